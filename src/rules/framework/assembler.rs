//! The ptxas that Triton starts for each kernel against the GPUs that are here: a GPU that is newer than its CUDA
//! release, or one that the release has dropped.

use super::{Ctx, GpuHere, Outcome, finding, instead, shown, sm, unread};
use crate::facts::{Assembler, Framework, Layer, Nvcc, Reading};
use crate::finding::{Finding, Fix, Severity, shell_line};
use crate::matrix::Capability;
use crate::version::Version;

/// Whether this ptxas is the one that is started for a GPU; the one for Blackwell goes first where there is one.
fn of_gpu(all: &[Assembler], (major, _): Capability) -> Option<&Assembler> {
    let blackwell = all.iter().find(|tool| tool.only_blackwell && major >= 10);
    blackwell.or_else(|| all.iter().find(|tool| !tool.only_blackwell))
}

/// Whether the ptxas of a CUDA release builds for a GPU; `None` where the matrix does not know that release.
fn builds_for(ctx: &Ctx<'_>, release: &Version, gpu: Capability) -> Option<bool> {
    let row = ctx.matrix.ptxas_targets(release)?;
    let wanted = format!("{}{}", gpu.0, gpu.1);
    Some(row.targets.contains(&wanted))
}

pub(super) fn triton_ptxas_lacks_gpu(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let Some(triton) = ctx.framework("triton") else {
        return Outcome::Clean;
    };
    let all = match &triton.assemblers {
        Reading::Present { value, .. } => value,
        Reading::Absent { .. } => return Outcome::Clean,
        Reading::Unreadable { reason } => {
            return Outcome::unknown(format!("ptxas of Triton: {reason}"));
        }
    };
    let mut findings: Vec<Finding> = Vec::new();
    let mut unknown = None;
    let mut seen: Vec<Capability> = Vec::new();
    for gpu in ctx.gpus_here() {
        if seen.contains(&gpu.capability) {
            continue;
        }
        seen.push(gpu.capability);
        let Some(tool) = of_gpu(all, gpu.capability) else {
            continue;
        };
        // Then another one is started, whose version nobody looked for.
        let variable = if tool.only_blackwell {
            "TRITON_PTXAS_BLACKWELL_PATH"
        } else {
            "TRITON_PTXAS_PATH"
        };
        if ctx.env(variable).is_some_and(|path| !path.is_empty()) {
            continue;
        }
        let Some(version) = tool.version.value() else {
            unknown = Some(format!("ptxas of Triton: {}", tool.version.source()));
            continue;
        };
        if builds_for(ctx, version, gpu.capability) == Some(false) {
            findings.push(lacks(ctx, triton, tool, version, &gpu));
        }
    }
    match unknown {
        Some(reason) if findings.is_empty() => Outcome::unknown(reason),
        _ => Outcome::found(findings),
    }
}

fn lacks(
    ctx: &Ctx<'_>,
    triton: &Framework,
    tool: &Assembler,
    version: &Version,
    gpu: &GpuHere,
) -> Finding {
    let capability = gpu.capability;
    let arch = ctx.matrix.arch(capability);
    let minor = version.major_minor();
    let is_too_old = arch
        .is_some_and(|arch| Version::parse(&minor).is_some_and(|minor| minor < arch.first_toolkit));
    let (what, wanted) = match arch {
        Some(arch) if is_too_old => (
            "came before",
            format!("CUDA {} or newer", arch.first_toolkit),
        ),
        Some(arch) => match &arch.last_toolkit {
            Some(last) => ("has dropped", format!("CUDA {last} or older")),
            None => ("does not know", "a CUDA release that knows it".to_owned()),
        },
        None => ("does not know", "a CUDA release that knows it".to_owned()),
    };
    let title = format!(
        "{} compiles by ptxas of CUDA {minor}, which {what} {}: that takes {wanted}",
        shown(triton),
        gpu.shown(),
    );
    let mut finding = finding("triton-ptxas-lacks-gpu", triton, Severity::Warning, title)
        .detail(format!("Triton starts its own ptxas for each kernel, and that one refuses the GPU: `Value '{}' is not defined for option 'gpu-name'`. What torch compiles (torch.compile, vLLM, flex attention) fails; kernels that are compiled already run. Driver and CUDA runtime are not at fault.", sm(capability)))
        .component("ptxas")
        .evidence(
            gpu.name.clone(),
            format!("compute capability {}.{}", capability.0, capability.1),
            gpu.source.clone(),
        )
        .reading("ptxas that Triton starts", &tool.version);
    finding.key = format!("{}:{}", finding.key, sm(capability));
    if let Some(variable) = &tool.named_by {
        finding = finding.evidence("named by", variable.clone(), "environment");
    }
    if let Some(row) = ctx.matrix.ptxas_targets(version) {
        finding = finding.source(row.source.clone());
    }
    let variable = if tool.only_blackwell {
        "TRITON_PTXAS_BLACKWELL_PATH"
    } else {
        "TRITON_PTXAS_PATH"
    };
    let fits = |nvcc: &&Nvcc| {
        nvcc.version
            .value()
            .is_some_and(|version| builds_for(ctx, version, capability) == Some(true))
    };
    let other = ctx.facts.toolchain.nvcc.items().iter().find(fits);
    let named = match other {
        Some(nvcc) => Fix::at(
            Layer::Framework,
            format!(
                "let {variable} name the ptxas of CUDA {} that is here",
                nvcc.version
                    .value()
                    .map(Version::major_minor)
                    .unwrap_or_default()
            ),
        )
        .line(format!(
            "export {variable}={}",
            shell_line(&[&format!("{}/bin/ptxas", nvcc.toolkit)])
        )),
        None => Fix::at(
            Layer::Framework,
            format!("let {variable} name the ptxas of a toolkit of {wanted}"),
        ),
    };
    let finding = finding.fix(named.verify("TRITON_ALWAYS_COMPILE=1 python your_script.py"));
    let torch = ctx.framework("torch");
    let (release, what) = if is_too_old {
        (
            "a newer release of torch, which brings a newer Triton",
            "-U",
        )
    } else {
        (
            "the release of torch whose Triton still brings an older ptxas",
            "",
        )
    };
    let fix = Fix::at(Layer::Framework, format!("or take {release}"));
    match torch {
        Some(torch) if is_too_old => finding.fix(
            instead::install(ctx, fix, torch, &[what, "torch"])
                .second("it is another release of torch"),
        ),
        Some(_) => finding.fix(fix.second("it is another release of torch")),
        None => finding,
    }
    .source("triton-lang/triton issue 8539; third_party/nvidia/backend/compiler.py")
}
