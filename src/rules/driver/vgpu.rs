//! Guests with a virtual GPU (vGPU): what its profile can, and whether it has a licence.

use crate::facts::{DriverGpu, Layer, Reading};
use crate::finding::{Finding, Fix, Severity};
use crate::read::proc::vgpu_profile;
use crate::rules::stack::with_init_answers;
use crate::rules::{Ctx, Outcome};

/// The vGPUs of this guest, by the names that the driver gives them: each with its profile and the letter of its series.
fn vgpus<'a>(ctx: &'a Ctx<'_>) -> impl Iterator<Item = (&'a DriverGpu, String, char)> {
    let gpus = ctx.facts.driver.gpus.items().iter();
    gpus.filter_map(|gpu| {
        let (profile, series) = vgpu_profile(&gpu.model)?;
        Some((gpu, profile, series))
    })
}

/// A profile for desktops, which has no CUDA.
pub(super) fn vgpu_without_cuda(ctx: &Ctx<'_>) -> Outcome {
    let refused = ctx.cu_init().filter(|code| *code != 0);
    if ctx.cu_init() == Some(0) {
        return Outcome::Clean;
    }
    let all = ctx.facts.driver.gpus.items().len();
    let without: Vec<_> = vgpus(ctx)
        .filter_map(|(gpu, profile, series)| {
            let row = ctx.matrix.vgpu_series(series).filter(|row| !row.cuda)?;
            Some((gpu, profile, row))
        })
        .collect();
    let Some((_, profile, row)) = without.first() else {
        return Outcome::Clean;
    };
    let mut finding = Finding::new(
        "vgpu-without-cuda",
        Layer::Hardware,
        // What others say of the series is an error only where this host confirms it.
        if refused.is_some() && without.len() == all { Severity::Error } else { Severity::Warning },
        format!("the vGPU {profile} of this virtual machine has no CUDA: {}-series profiles ({}) are for graphics alone", row.series, row.product),
    )
    .complaining(Layer::Runtime)
    .component(profile.clone())
    .detail("The host cuts its GPU into vGPUs by a profile, and the letter at the end of its name is the series: Q and C have CUDA. nvidia-smi works with all of them. Nothing inside the virtual machine can change that.")
    .source(row.source.clone());
    for (gpu, _, _) in &without {
        finding = finding.evidence(
            gpu.address.clone(),
            gpu.model.clone(),
            format!("/proc/driver/nvidia/gpus/{}/information", gpu.address),
        );
    }
    Outcome::found([with_init_answers(ctx, finding).fix(
        Fix::at(Layer::Hardware, "have this virtual machine given a profile of the Q-series or C-series, with its licence, by who runs the host")
            .cost("restart of the virtual machine")
            .verify("gpudoctor"),
    )])
}

/// The licensing daemon could not get a licence.
pub(super) fn vgpu_unlicensed(ctx: &Ctx<'_>) -> Outcome {
    let Some((gpu, profile, _)) = vgpus(ctx).next() else {
        return Outcome::Clean;
    };
    let licence = &ctx.facts.driver.vgpu_licence;
    let log = match &licence.log {
        Reading::Present { value, .. } => value,
        Reading::Absent { source } | Reading::Unreadable { reason: source } => {
            return Outcome::unknown(format!(
                "whether the vGPU {profile} has a licence: {source}"
            ));
        }
    };
    let Some(last) = log.last() else {
        return Outcome::unknown(format!(
            "whether the vGPU {profile} has a licence: nothing of nvidia-gridd in {}",
            licence.log.source()
        ));
    };
    if last.contains("successfully") {
        return Outcome::Clean;
    }
    let tokens = licence.tokens.value().copied().unwrap_or(0);
    let mut finding = Finding::new(
        "vgpu-unlicensed",
        Layer::Driver,
        Severity::Warning,
        format!("the vGPU {profile} has no licence: nvidia-gridd could not get one"),
    )
    .complaining(Layer::Runtime)
    .component("nvidia-gridd")
    .detail("Without a licence a vGPU works for a while and is then held back: CUDA gets slow, and new contexts fail with error 46 (all CUDA-capable devices are busy or unavailable), while nvidia-smi looks healthy.")
    .evidence("vGPU", gpu.model.clone(), format!("/proc/driver/nvidia/gpus/{}/information", gpu.address))
    .evidence("nvidia-gridd said last", last.clone(), licence.log.source())
    .source("NVIDIA Virtual GPU Client Licensing User Guide")
    .source("NVIDIA/gpu-operator issue 220, DDMAL/Rodan issue 1332 (secondary)");
    finding = match &licence.tokens {
        Reading::Unreadable { reason } => {
            finding.evidence("client configuration tokens", "not read", reason.clone())
        }
        _ => finding.evidence(
            "client configuration tokens",
            tokens.to_string(),
            "/etc/nvidia/ClientConfigToken",
        ),
    };
    let first = if tokens == 0 && !licence.tokens.is_unreadable() {
        "put the client configuration token of your licence server into /etc/nvidia/ClientConfigToken, and start nvidia-gridd anew"
    } else {
        "see that this machine reaches its licence server, that its clock is right and that the token in /etc/nvidia/ClientConfigToken is of that server; then start nvidia-gridd anew"
    };
    Outcome::found([with_init_answers(ctx, finding).fix(
        Fix::at(Layer::Driver, first)
            .line("sudo systemctl restart nvidia-gridd")
            .cost("root")
            .verify("nvidia-smi -q | grep -i license"),
    )])
}
