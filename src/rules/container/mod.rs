//! Rules whose fault lies in the container layer: between the host's driver and what a container sees of it.
//!
//! A container takes the driver from its host. What is missing or different inside is never called the driver's fault
//! here: it is the container's, or it cannot be told.

mod absent;
mod cdi;
mod engines;
mod eperm;
mod foreign;
mod host;
mod image;
mod mismatch;
mod requirement;
mod toolkit;
mod ways;

pub(super) use self::mismatch::fixes as mismatch_fixes;
pub(super) use self::ways::with_group;
use self::ways::{with_capabilities, with_gpus};
use super::driver::mismatch;
use super::stack::{in_words, verified, with_cu_init};
use super::system::needed_by_cuda;
use super::{Ctx, Need, Outcome, Rule, missing};
use crate::facts::{FileKind, Layer, LibraryCopy, Reading};
use crate::finding::{Finding, Fix, Severity};

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "cdi-device-twice",
        layer: Layer::Container,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/cdi-device-twice.md"),
        check: cdi::cdi_device_twice,
    },
    Rule {
        id: "cdi-spec-stale",
        layer: Layer::Container,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/cdi-spec-stale.md"),
        check: cdi::cdi_spec_stale,
    },
    Rule {
        id: "container-char-links-missing",
        layer: Layer::Container,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-char-links-missing.md"),
        check: host::container_char_links_missing,
    },
    Rule {
        id: "container-device-eperm",
        layer: Layer::Container,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-device-eperm.md"),
        check: eperm::container_device_eperm,
    },
    Rule {
        id: "container-device-missing",
        layer: Layer::Container,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-device-missing.md"),
        check: container_device_missing,
    },
    Rule {
        id: "container-driver-in-image",
        layer: Layer::Container,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-driver-in-image.md"),
        check: image::container_driver_in_image,
    },
    Rule {
        id: "container-driver-mismatch",
        layer: Layer::Container,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["container-driver-in-image"],
        page: include_str!("../pages/container-driver-mismatch.md"),
        check: container_driver_mismatch,
    },
    Rule {
        id: "container-engine-misconfigured",
        layer: Layer::Container,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-engine-misconfigured.md"),
        check: engines::container_engine_misconfigured,
    },
    Rule {
        id: "container-gpu-not-requested",
        layer: Layer::Container,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-gpu-not-requested.md"),
        check: absent::container_gpu_not_requested,
    },
    Rule {
        id: "container-library-missing",
        layer: Layer::Container,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["libc-is-musl", "container-library-not-linked"],
        page: include_str!("../pages/container-library-missing.md"),
        check: container_library_missing,
    },
    Rule {
        id: "container-library-not-linked",
        layer: Layer::Container,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-library-not-linked.md"),
        check: image::container_library_not_linked,
    },
    Rule {
        id: "container-nvml-missing",
        layer: Layer::Container,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-nvml-missing.md"),
        check: image::container_nvml_missing,
    },
    Rule {
        id: "container-requirement-not-met",
        layer: Layer::Container,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[
            "driver-too-old",
            "container-driver-in-image",
            "container-driver-mismatch",
        ],
        page: include_str!("../pages/container-requirement-not-met.md"),
        check: requirement::container_requirement_not_met,
    },
    Rule {
        id: "container-toolkit-vulnerable",
        layer: Layer::Container,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-toolkit-vulnerable.md"),
        check: toolkit::container_toolkit_vulnerable,
    },
    Rule {
        id: "container-without-gpu",
        layer: Layer::Container,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-without-gpu.md"),
        check: absent::container_without_gpu,
    },
    Rule {
        id: "gvisor-refuses-driver",
        layer: Layer::Container,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[
            "container-driver-in-image",
            "container-device-eperm",
            "device-node-permission",
            "cuda-visible-devices-hides-all",
        ],
        page: include_str!("../pages/gvisor-refuses-driver.md"),
        check: foreign::gvisor_refuses_driver,
    },
    Rule {
        id: "libc-is-musl",
        layer: Layer::Container,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/libc-is-musl.md"),
        check: foreign::libc_is_musl,
    },
    Rule {
        id: "gpu-operator-stuck",
        layer: Layer::Container,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/gpu-operator-stuck.md"),
        check: host::gpu_operator_stuck,
    },
];

/// What a host's container files say is of no use inside a container.
fn on_host(ctx: &Ctx<'_>) -> bool {
    !ctx.in_container() && ctx.place_unknown().is_none()
}

/// The variables that ask for GPUs, as evidence.
fn with_request(ctx: &Ctx<'_>, mut finding: Finding) -> Finding {
    for name in ["NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"] {
        if let Some(value) = ctx.env(name) {
            finding = finding.evidence(name, value, "environment");
        }
    }
    if let Reading::Present { value, source } = &ctx.facts.system.container {
        finding = finding.evidence("container", value.kind.clone(), source.clone());
    }
    finding
}

/// Whether device nodes of an NVIDIA GPU are in the container. WSL's is there for a GPU of any vendor.
pub(super) fn has_gpu_node(ctx: &Ctx<'_>) -> bool {
    ctx.facts.driver.nodes.items().iter().any(|n| {
        n.path == "/dev/dxg" && (ctx.windows_has_nvidia() || asked(ctx) || ctx.expect_gpu)
            || ctx.on_tegra()
                && matches!(
                    n.path.as_str(),
                    "/dev/nvhost-gpu" | "/dev/nvgpu/igpu0/ctrl" | "/dev/nvmap"
                )
            || n.path
                .strip_prefix("/dev/nvidia")
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Whether this container asked for GPUs.
fn asked(ctx: &Ctx<'_>) -> bool {
    ctx.asks_for_gpus()
}

/// A usable libcuda that the loader finds.
fn has_libcuda(ctx: &Ctx<'_>) -> bool {
    ctx.libcuda()
        .is_some_and(|c| !c.is_stub() && !is_no_library(c))
}

/// Whether a file is none that a loader can take, whatever its name says: that is told by its own rule.
fn is_no_library(copy: &LibraryCopy) -> bool {
    matches!(
        copy.kind,
        FileKind::Empty | FileKind::Truncated | FileKind::NotElf(_)
    )
}

/// What of the driver is in a container.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Nodes of a GPU that somebody gave to it.
    pub nodes: bool,
    /// A libcuda that the loader takes, of a driver.
    pub libcuda: bool,
    /// A libnvidia-ml that it takes.
    pub nvml: bool,
}

impl Ctx<'_> {
    /// What of the driver is in this container; `None` on a host, and where that cannot be told.
    pub fn parts_here(&self) -> Option<Parts> {
        let driver = &self.facts.driver;
        if !self.in_container()
            || driver.nodes.is_unreadable()
            || driver.libcuda.is_unreadable()
            || driver.libnvidia_ml.is_unreadable()
        {
            return None;
        }
        let usable = |copy: Option<&LibraryCopy>| {
            copy.is_some_and(|copy| {
                let may_be = copy.kind.is_usable() || matches!(copy.kind, FileKind::Unreadable(_));
                may_be && !copy.is_stub() && !copy.is_compat()
            })
        };
        Some(Parts {
            // Apptainer brings all nodes of the host, asked or not.
            nodes: has_gpu_node(self) && (self.engine() != "apptainer" || self.expect_gpu),
            libcuda: usable(self.libcuda()),
            nvml: usable(self.libnvidia_ml()),
        })
    }

    /// Whether `nvidia_uvm` is in the kernel of the host; `None` where its lists cannot be read.
    fn uvm_loaded(&self) -> Option<bool> {
        let driver = &self.facts.driver;
        let modules = driver.modules.value()?;
        let majors = driver.majors.value()?;
        Some(
            modules
                .iter()
                .any(|m| m.name == "nvidia_uvm" || m.name == "nvidia_current_uvm")
                || majors.iter().any(|m| m.name == "nvidia-uvm"),
        )
    }

    /// Whether CUDA cannot start in this container since the host has not loaded `nvidia_uvm`.
    pub(super) fn host_lacks_uvm(&self) -> bool {
        self.in_container()
            && self.plain_linux()
            && !self.in_gvisor()
            && self.module_loaded() == Some(true)
            && !self.cuda_works()
            && has_libcuda(self)
            && has_gpu_node(self)
            && self.was_given_a_gpu()
            && self.facts.driver.nodes.is_present()
            && self.facts.driver.node("/dev/nvidia-uvm").is_none()
            && self.uvm_loaded() == Some(false)
    }
}

/// The host's driver is there, libraries are there, and the nodes are not.
fn container_device_missing(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container()
        || ctx.cuda_works()
        || !ctx.plain_linux()
        || ctx.module_loaded() == Some(false)
        || ctx.in_gvisor()
        || !has_libcuda(ctx)
    {
        return Outcome::Clean;
    }
    if !ctx.driver_was_mounted()
        && (!asked(ctx) || ctx.module_loaded().is_none())
        && !ctx.expect_gpu
    {
        return Outcome::Clean;
    }
    let absent: Vec<String> = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
        .into_iter()
        .filter(|path| ctx.facts.driver.node(path).is_none())
        .map(str::to_owned)
        .chain((!has_gpu_node(ctx)).then(|| "/dev/nvidia0 (or another GPU)".to_owned()))
        .collect();
    if absent.is_empty() || ctx.facts.driver.nodes.is_unreadable() {
        return Outcome::Clean;
    }
    // The host has not loaded it: a rule of the driver says so.
    if ctx.host_lacks_uvm() && absent.iter().all(|path| path == "/dev/nvidia-uvm") {
        return Outcome::Clean;
    }
    // By the variable `none` it would be as it was asked for.
    if let Some(reason) = missing("environment", &ctx.facts.environment)
        && !has_gpu_node(ctx)
        && !ctx.expect_gpu
    {
        return Outcome::unknown(reason);
    }
    let declined = ctx.declines_gpus();
    let title = if declined {
        let hence = ctx.wants_a_gpu().map_or_else(String::new, |wants| {
            format!("; {wants} runs on the CPU here")
        });
        format!(
            "NVIDIA_VISIBLE_DEVICES is none: the driver's files are in this container and no GPU, as that asks{hence}"
        )
    } else {
        format!(
            "this container has the driver's libraries and not its devices: {} {} missing",
            in_words(&absent),
            if absent.len() == 1 { "is" } else { "are" }
        )
    };
    let severity = if declined {
        Severity::Note
    } else {
        Severity::Error
    };
    let mut finding = Finding::new("container-device-missing", Layer::Container, severity, title)
        .complaining(Layer::Driver)
        .component("device nodes")
        .detail("The container toolkit mounts libraries and devices together. Libraries alone come from mounts by hand, from NVIDIA_VISIBLE_DEVICES=none, or from a host where nvidia_uvm is not loaded.");
    for path in &absent {
        finding = finding.evidence(path.clone(), "absent", "/dev");
    }
    let finding = with_cu_init(ctx, with_request(ctx, finding));
    Outcome::found([finding.fix(with_gpus(ctx))])
}

/// Inside a container, user space and the host's module differ.
fn container_driver_mismatch(ctx: &Ctx<'_>) -> Outcome {
    if ctx.in_container() {
        mismatch(ctx)
    } else {
        Outcome::Clean
    }
}

/// Whether somebody asked for some of the driver's capabilities, and not for `compute`.
fn left_compute_out(ctx: &Ctx<'_>) -> bool {
    ctx.env("NVIDIA_DRIVER_CAPABILITIES").is_some_and(|value| {
        let mut words = value.split(',').map(str::trim).filter(|w| !w.is_empty());
        words.clone().next().is_some() && words.all(|word| word != "compute" && word != "all")
    })
}

/// How bad it is that libcuda is not here. What a container of an image of CUDA wishes by its variable alone is a wish: that is
/// an error only where something of it was granted, or something in it needs CUDA.
fn severity_without_libcuda(
    ctx: &Ctx<'_>,
    nvml: bool,
    nodes: bool,
    wants: bool,
) -> Option<Severity> {
    let mounted = ctx.driver_was_mounted();
    if ctx.expect_gpu {
        return (nvml || nodes).then_some(Severity::Error);
    }
    if nvml && (mounted || asked(ctx) || nodes && wants) {
        return Some(if !wants && left_compute_out(ctx) {
            Severity::Note
        } else {
            Severity::Error
        });
    }
    if !nodes {
        return None;
    }
    // Any privileged container has the nodes of its host, and Apptainer brings them always.
    let given = ctx.engine() != "apptainer";
    match (mounted, asked(ctx), wants) {
        (true, _, _) => Some(Severity::Error),
        (false, true, true) if given => Some(Severity::Error),
        (false, true, _) => Some(Severity::Warning),
        (false, false, true) if given => Some(Severity::Warning),
        _ => None,
    }
}

/// NVML or the devices are in the container, and libcuda is not.
fn container_library_missing(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container() || has_libcuda(ctx) || ctx.facts.driver.libcuda.is_unreadable() {
        return Outcome::Clean;
    }
    // A file of that name that is none is told by itself.
    if ctx.libcuda().is_some_and(is_no_library) && ctx.was_given_a_gpu() {
        return Outcome::Clean;
    }
    if let Some(reason) = missing("libnvidia-ml", &ctx.facts.driver.libnvidia_ml) {
        return Outcome::unknown(reason);
    }
    let nvml = ctx.libnvidia_ml().filter(|c| c.kind.is_usable());
    let nodes = has_gpu_node(ctx);
    let wants = ctx.wants_a_gpu();
    // Whether it was left out on purpose, a variable says.
    if let Some(reason) = missing("environment", &ctx.facts.environment)
        && (nvml.is_some() || nodes)
        && wants.is_none()
        && !ctx.expect_gpu
    {
        return Outcome::unknown(reason);
    }
    let Some(severity) = severity_without_libcuda(ctx, nvml.is_some(), nodes, wants.is_some())
    else {
        return Outcome::Clean;
    };
    // A folder of the node that is mounted whole (GKE): there it is, off the loader's path.
    let off_path = ctx
        .facts
        .driver
        .libcuda
        .items()
        .iter()
        .find(|copy| copy.kind.is_usable() && copy.path.starts_with("/usr/local/nvidia/"));
    if let Some(copy) = off_path {
        return Outcome::found([driver_folder_off_the_path(ctx, copy)]);
    }
    let hence = wants
        .as_ref()
        .map_or_else(String::new, |wants| format!(": {wants} finds no GPU"));
    let title = match (nvml.is_some(), severity) {
        (true, Severity::Note) => "libnvidia-ml.so.1 is in this container and libcuda.so.1 is not, as NVIDIA_DRIVER_CAPABILITIES asks; nothing here needs it".to_owned(),
        (true, _) => format!("libnvidia-ml.so.1 is in this container and libcuda.so.1 is not: the compute capability was not asked for{}", hence.replacen(':', ",", 1)),
        (false, _) => format!("the GPU's devices are in this container and libcuda.so.1 is not{hence}"),
    };
    let mut finding = Finding::new("container-library-missing", Layer::Container, severity, title)
        .complaining(Layer::Runtime)
        .component("libcuda.so.1")
        .detail("The container toolkit mounts the host's driver libraries by capability: `utility` brings NVML and nvidia-smi, `compute` brings libcuda. Devices without libraries come from --device or a privileged container without the NVIDIA runtime.")
        .evidence(
            "libcuda.so.1",
            ctx.libcuda()
                .filter(|copy| is_no_library(copy))
                .map_or_else(|| "not found".to_owned(), |copy| format!("{}, which is no library", copy.real_path)),
            "LD_LIBRARY_PATH, ld.so.cache, default folders",
        );
    if let Some(wants) = wants {
        finding = finding.evidence("wants a GPU", wants, ctx.facts.consumer.what.clone());
    }
    if let Some(copy) = nvml {
        finding = finding.evidence(
            "libnvidia-ml.so.1",
            copy.path.clone(),
            "the loader's search",
        );
    }
    for node in ctx
        .facts
        .driver
        .nodes
        .items()
        .iter()
        .filter(|n| needed_by_cuda(&n.path) || n.path == "/dev/dxg")
        .take(4)
    {
        finding = finding.evidence("device", node.path.clone(), "/dev");
    }
    let finding = with_request(ctx, finding);
    Outcome::found([finding.fix(if nvml.is_some() {
        with_capabilities(ctx)
    } else {
        with_gpus(ctx)
    })])
}

/// The node's folder with the driver is mounted, and nothing makes the loader look into it.
fn driver_folder_off_the_path(ctx: &Ctx<'_>, copy: &crate::facts::LibraryCopy) -> Finding {
    let folder = crate::sysroot::parent(&copy.path);
    let set = ctx.env("LD_LIBRARY_PATH");
    let finding = Finding::new(
        "container-library-missing",
        Layer::Container,
        Severity::Error,
        format!("the driver's libraries are in this container in {folder}, and the loader does not look there: LD_LIBRARY_PATH does not name it"),
    )
    .complaining(Layer::Runtime)
    .component("libcuda.so.1")
    .detail("GKE mounts the node's driver as a folder, and leaves it to the image or the pod to put that into LD_LIBRARY_PATH. Images of nvidia/cuda did so up to 12.8.0 and no longer do.")
    .evidence("libcuda.so.1", copy.path.clone(), "a folder that the loader does not search")
    .evidence("LD_LIBRARY_PATH", set.map_or_else(|| "not set".to_owned(), |value| format!("'{value}'")), "environment")
    .source("GKE documentation: about the CUDA libraries")
    .source("GoogleCloudPlatform/compute-gpu-installation issue 46, NVIDIA/dcgm-exporter issue 484 (secondary)");
    let old = if set.is_some_and(|value| !value.is_empty()) {
        ":$LD_LIBRARY_PATH"
    } else {
        ""
    };
    with_request(ctx, finding).fix(verified(
        ctx,
        Fix::at(Layer::Container, format!("put {folder} into LD_LIBRARY_PATH, in the image (ENV) or in the env of the pod's container; /usr/local/nvidia/bin with nvidia-smi into PATH"))
            .line(format!("export LD_LIBRARY_PATH={folder}{old}")),
    ))
}
