//! Rules whose fault lies in the container layer: between the host's driver and what a container sees of it.
//!
//! A container takes the driver from its host. What is missing or different inside is never called the driver's fault
//! here: it is the container's, or it cannot be told.

mod cdi;
mod engines;
mod foreign;
mod host;
mod image;
mod requirement;
mod toolkit;
mod ways;

use self::ways::{with_capabilities, with_gpus};
use super::driver::mismatch;
use super::stack::{in_words, verified, with_cu_init};
use super::system::needed_by_cuda;
use super::{Ctx, Need, Outcome, Rule};
use crate::facts::{Layer, Reading};
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
        check: container_device_eperm,
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
        severity: Severity::Note,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-gpu-not-requested.md"),
        check: image::container_gpu_not_requested,
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
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/container-without-gpu.md"),
        check: container_without_gpu,
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
fn has_gpu_node(ctx: &Ctx<'_>) -> bool {
    ctx.facts.driver.nodes.items().iter().any(|n| {
        n.path == "/dev/dxg" && (ctx.windows_has_nvidia() || asked(ctx) || ctx.expect_gpu)
            || n.path
                .strip_prefix("/dev/nvidia")
                .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// Whether this container asked for GPUs.
fn asked(ctx: &Ctx<'_>) -> bool {
    ctx.env("NVIDIA_VISIBLE_DEVICES")
        .is_some_and(|v| !matches!(v, "" | "void" | "none"))
}

/// A usable libcuda that the loader finds.
fn has_libcuda(ctx: &Ctx<'_>) -> bool {
    ctx.libcuda().is_some_and(|c| !c.is_stub())
}

/// EPERM on a node whose mode allows it: the container's device cgroup.
fn container_device_eperm(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container() {
        return Outcome::Clean;
    }
    let refused: Vec<_> = ctx
        .facts
        .driver
        .nodes
        .items()
        .iter()
        .filter(|n| needed_by_cuda(&n.path) && ctx.open_result(&n.path) == Some("EPERM"))
        .collect();
    let Some(first) = refused.first() else {
        return Outcome::Clean;
    };
    if ctx.cuda_works() {
        return Outcome::Clean;
    }
    let paths: Vec<String> = refused.iter().map(|n| n.path.clone()).collect();
    let mut finding = Finding::new(
        "container-device-eperm",
        Layer::Container,
        Severity::Error,
        format!("{} cannot be opened (EPERM) although mode {:04o} allows it: this container's device cgroup forbids it", in_words(&paths), first.mode),
    )
    .complaining(Layer::Driver)
    .component("device cgroup")
    .detail("The nodes are in the container, but its cgroup has no rule for them. Either they were mounted by hand, or the rules were lost: systemd writes a container's device rules anew on `systemctl daemon-reload`, and forgets those that a hook had added.")
    .source("NVIDIA container toolkit: notice on containers that lose access to GPUs");
    for node in &refused {
        finding = finding.evidence(
            format!("open {}", node.path),
            "EPERM",
            format!(
                "open(); mode {:04o}, owner {}:{}",
                node.mode, node.uid, node.gid
            ),
        );
    }
    let finding = with_cu_init(ctx, with_request(ctx, finding));
    Outcome::found([finding
        .fix(verified(ctx, Fix::at(Layer::Container, "start the container anew; give it its GPUs as devices (CDI, or --gpus), so that the engine knows the rules").cost("restart of the container")))
        .fix(Fix::at(Layer::Container, "on the host, make the links in /dev/char that systemd needs to keep the rules over a daemon-reload").line("sudo nvidia-ctk system create-dev-char-symlinks --create-all").cost("root on the host"))])
}

/// The host's driver is there, libraries are there, and the nodes are not.
fn container_device_missing(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container()
        || ctx.cuda_works()
        || !ctx.plain_linux()
        || ctx.module_loaded() != Some(true)
        || !has_libcuda(ctx)
    {
        return Outcome::Clean;
    }
    let injected = ctx
        .facts
        .system
        .container
        .value()
        .is_some_and(|c| !c.injected.is_empty());
    if !injected && !asked(ctx) {
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
    let mut finding = Finding::new(
        "container-device-missing",
        Layer::Container,
        Severity::Error,
        format!("this container has the driver's libraries and not its devices: {} {} missing", in_words(&absent), if absent.len() == 1 { "is" } else { "are" }),
    )
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

/// NVML or the devices are in the container, and libcuda is not.
fn container_library_missing(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container() || has_libcuda(ctx) || ctx.facts.driver.libcuda.is_unreadable() {
        return Outcome::Clean;
    }
    let nvml = ctx.libnvidia_ml().filter(|c| c.kind.is_usable());
    let nodes = has_gpu_node(ctx);
    let injected = ctx
        .facts
        .system
        .container
        .value()
        .is_some_and(|c| !c.injected.is_empty());
    // Devices alone, with nobody asking, are what any privileged container has.
    if nvml.is_none() && !(nodes && (asked(ctx) || injected || ctx.expect_gpu)) {
        return Outcome::Clean;
    }
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
    let title = if nvml.is_some() {
        "libnvidia-ml.so.1 is in this container and libcuda.so.1 is not: the compute capability was not asked for".to_owned()
    } else {
        "the GPU's devices are in this container and libcuda.so.1 is not".to_owned()
    };
    let mut finding = Finding::new("container-library-missing", Layer::Container, Severity::Error, title)
        .complaining(Layer::Runtime)
        .component("libcuda.so.1")
        .detail("The container toolkit mounts the host's driver libraries by capability: `utility` brings NVML and nvidia-smi, `compute` brings libcuda. Devices without libraries come from --device or a privileged container without the NVIDIA runtime.")
        .evidence("libcuda.so.1", "not found", "LD_LIBRARY_PATH, ld.so.cache, default folders");
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

/// GPUs are asked for in the environment, the host has a driver, and nothing came in.
fn container_without_gpu(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container()
        || !asked(ctx)
        || has_gpu_node(ctx)
        || has_libcuda(ctx)
        || ctx.libnvidia_ml().is_some()
        || ctx.module_loaded() != Some(true)
    {
        return Outcome::Clean;
    }
    let mut finding = Finding::new("container-without-gpu", Layer::Container, Severity::Warning, "GPUs are asked for in the environment, the host's driver runs, and neither devices nor libraries are in this container")
        .component("container runtime")
        .detail("NVIDIA_VISIBLE_DEVICES only works through NVIDIA's runtime or hook. Images built on nvidia/cuda carry it always, so this is a fault only where a GPU is wanted.");
    if let Some((version, source)) = ctx.facts.driver.loaded_version() {
        finding = finding.evidence("host's kernel module", version.to_string(), source);
    }
    let finding = with_request(ctx, finding);
    Outcome::found([finding.fix(with_gpus(ctx))])
}
