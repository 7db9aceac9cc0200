//! Nothing of the host's driver came into this container: nobody asked for it, or nobody answered.

use super::ways::with_gpus;
use super::{asked, has_gpu_node, with_request};
use crate::facts::Layer;
use crate::finding::{Finding, Severity};
use crate::rules::{Ctx, Outcome};

/// What can be said in a container of the GPU of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HostGpu {
    /// Its driver runs.
    Runs,
    /// It is Windows's, which nothing in here tells.
    OfWindows,
    /// It is on the bus, and its driver does not run.
    Idle,
    /// Neither the bus nor the modules of the host can be seen.
    Hidden,
    /// There is none: the hardware's affair.
    None,
}

impl HostGpu {
    fn of(ctx: &Ctx<'_>) -> Self {
        if ctx.module_loaded() == Some(true) || ctx.on_tegra() {
            Self::Runs
        } else if ctx.in_wsl() {
            Self::OfWindows
        } else if ctx.in_gvisor() {
            Self::Hidden
        } else if ctx.gpus().next().is_some() {
            Self::Idle
        } else if ctx.module_loaded().is_none() {
            Self::Hidden
        } else {
            Self::None
        }
    }

    /// In a sentence about a container that nothing came into.
    fn words(self) -> &'static str {
        match self {
            Self::Runs => "the host's driver runs",
            Self::OfWindows => "the driver is Windows's",
            Self::Idle => "the host's driver does not run",
            Self::Hidden | Self::None => "nothing of the host's driver can be seen",
        }
    }
}

/// Whether neither libraries nor devices of the driver are here.
fn nothing_came_in(ctx: &Ctx<'_>) -> bool {
    ctx.parts_here()
        .is_some_and(|parts| !parts.nodes && !parts.libcuda && !parts.nvml)
}

fn with_host(ctx: &Ctx<'_>, finding: Finding, host: HostGpu) -> Finding {
    if let Some((version, source)) = ctx.facts.driver.loaded_version() {
        return finding.evidence("host's kernel module", version.to_string(), source);
    }
    match host {
        HostGpu::OfWindows => finding.reading("WSL kernel", &ctx.facts.system.wsl),
        _ => finding,
    }
}

/// GPUs are asked for in the environment, the host has a driver, and nothing came in.
pub(super) fn container_without_gpu(ctx: &Ctx<'_>) -> Outcome {
    if !nothing_came_in(ctx) || !asked(ctx) || has_gpu_node(ctx) {
        return Outcome::Clean;
    }
    let host = HostGpu::of(ctx);
    let wants = ctx.wants_a_gpu();
    let severity = match host {
        HostGpu::None => return Outcome::Clean,
        _ if ctx.expect_gpu => Severity::Error,
        HostGpu::Runs => Severity::Warning,
        // Whether Windows has a GPU of NVIDIA's cannot be seen from in here.
        HostGpu::OfWindows if wants.is_some() => Severity::Warning,
        HostGpu::OfWindows => Severity::Note,
        HostGpu::Idle | HostGpu::Hidden => return Outcome::Clean,
    };
    let hence = wants
        .as_ref()
        .map_or_else(String::new, |wants| format!("; {wants} runs on the CPU"));
    let mut finding = Finding::new(
        "container-without-gpu",
        Layer::Container,
        severity,
        format!("GPUs are asked for in the environment, {}, and neither devices nor libraries are in this container{hence}", host.words()),
    )
    .component("container runtime")
    .detail("NVIDIA_VISIBLE_DEVICES only works through NVIDIA's runtime or hook. Images built on nvidia/cuda carry it always, so this is a fault only where a GPU is wanted.");
    if let Some(wants) = wants {
        finding = finding.evidence("wants a GPU", wants, ctx.facts.consumer.what.clone());
    }
    let finding = with_request(ctx, with_host(ctx, finding, host));
    Outcome::found([finding.fix(with_gpus(ctx))])
}

/// No GPU was asked for, the host has one, and something here evidently wants it, or the caller expects it.
pub(super) fn container_gpu_not_requested(ctx: &Ctx<'_>) -> Outcome {
    if !nothing_came_in(ctx) || asked(ctx) {
        return Outcome::Clean;
    }
    let host = HostGpu::of(ctx);
    if host == HostGpu::None || !ctx.expect_gpu && (host != HostGpu::Runs || ctx.on_tegra()) {
        return Outcome::Clean;
    }
    let wants = ctx.wants_a_gpu();
    let image = ctx.image_of_old_cuda();
    let title = match (&wants, image) {
        _ if ctx.expect_gpu => format!(
            "a GPU is expected (--expect-gpu), {}, and this container was started without one",
            host.words()
        ),
        (Some(wants), _) => {
            format!("this container was started without a GPU, and {wants} runs on the CPU here")
        }
        (None, Some(version)) => format!(
            "this container was started without a GPU, and its image is one of CUDA {version}"
        ),
        (None, None) => return Outcome::Clean,
    };
    let variable = match ctx.env("NVIDIA_VISIBLE_DEVICES") {
        None => "not set".to_owned(),
        Some(value) => format!("'{value}'"),
    };
    let mut finding = Finding::new(
        "container-gpu-not-requested",
        Layer::Container,
        if ctx.expect_gpu {
            Severity::Error
        } else {
            Severity::Note
        },
        title,
    )
    .complaining(Layer::Framework)
    .component("container runtime")
    .detail("Nothing of the host's driver came in, since nobody asked for it. That is right where no GPU is wanted.")
    .evidence("NVIDIA_VISIBLE_DEVICES", variable, "environment");
    if let Some(version) = image {
        finding = finding.evidence(
            "CUDA_VERSION",
            format!("{version}, without NVIDIA_REQUIRE_CUDA: NVIDIA's runtime gives such an image all GPUs"),
            "environment",
        );
    }
    if let Some(wants) = wants {
        finding = finding.evidence("wants a GPU", wants, ctx.facts.consumer.what.clone());
    }
    Outcome::found([with_host(ctx, finding, host).fix(with_gpus(ctx))])
}

impl Ctx<'_> {
    /// The CUDA version of an image from before `NVIDIA_REQUIRE_CUDA`, to which NVIDIA's runtime gives all GPUs without
    /// being asked. Source: the container toolkit's own test. enroot does not.
    pub fn image_of_old_cuda(&self) -> Option<&str> {
        let set = |name: &str| self.env(name).filter(|value| !value.is_empty());
        let is_old = self.in_container()
            && self.engine() != "enroot"
            && self.env("NVIDIA_VISIBLE_DEVICES").is_none()
            && set("NVIDIA_REQUIRE_CUDA").is_none();
        set("CUDA_VERSION").filter(|_| is_old)
    }
}
