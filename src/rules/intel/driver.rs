//! The driver, kernel side and user space: `i915` or `xe`, who may open the render node, Level Zero.

use super::VERIFY;
use super::stack::KERNEL_DRIVERS;
use crate::facts::{DeviceNode, FileKind, IntelLibrary, Layer, PciDevice, Reading, Vendor};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::drm::{self, Access, Wants};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};

/// What the consumer wants of Intel's GPUs, where it is built for them.
fn wanted(ctx: &Ctx<'_>) -> Option<Wants> {
    let wants = ctx.wants_xpu()?;
    (ctx.vendor() == Some(Vendor::Intel) && ctx.plain_linux()).then_some(wants)
}

/// A GPU of Intel's that no driver of Intel's holds, where none is held.
pub(super) fn absent(ctx: &Ctx<'_>) -> Outcome {
    let Some(wants) = wanted(ctx).filter(|_| !ctx.in_container() && ctx.place_unknown().is_none())
    else {
        return Outcome::Clean;
    };
    let gpus: Vec<&PciDevice> = ctx.gpus_of(Vendor::Intel).collect();
    if gpus.is_empty() || !ctx.driven_intel_gpus().is_empty() {
        return Outcome::Clean;
    }
    if let Some(reason) = gpus.iter().find_map(|gpu| match &gpu.driver {
        Reading::Unreadable { reason } => Some(reason),
        _ => None,
    }) {
        return Outcome::unknown(format!("driver of the Intel GPU: {reason}"));
    }
    let names: Vec<String> = gpus.iter().map(|gpu| ctx.name_of(gpu)).collect();
    let blocked = KERNEL_DRIVERS
        .into_iter()
        .find_map(|module| Some((module, drm::blocked(ctx, module)?)));
    let title = match &blocked {
        Some((module, (line, _))) => format!(
            "{module} is kept from being loaded by `{line}`, so {} has no driver",
            in_words(&names)
        ),
        None => format!(
            "neither i915 nor xe drives {}: there is no render node to compute on",
            in_words(&names)
        ),
    };
    let mut finding = Finding::new("intel-gpu-driver-absent", Layer::Driver, Severity::Error, title)
        .of(Vendor::Intel)
        .complaining(Layer::Runtime)
        .component(blocked.as_ref().map_or("i915, xe", |(module, _)| module))
        .detail("Level Zero and OpenCL reach a GPU of Intel's by its render node, which i915 or xe makes. Lunar Lake, Battlemage and what came later are driven by xe alone, and a kernel that is older than a GPU does not know it.");
    for gpu in &gpus {
        let holder = gpu
            .driver
            .value()
            .map_or("no kernel driver bound".to_owned(), |name| {
                format!("bound to {name}")
            });
        finding = finding.evidence(
            format!("{} at {}", ctx.name_of(gpu), gpu.address),
            holder,
            "/sys/bus/pci/devices",
        );
    }
    finding = finding.evidence("wants it", wants.what, wants.source);
    let fix = if let Some((module, (line, place))) = blocked {
        finding = finding.evidence("configuration", line.clone(), place.clone());
        if place == "/proc/cmdline" {
            let what = format!("take `{line}` off the kernel's command line and reboot");
            Fix::at(Layer::Driver, what).cost("root, reboot")
        } else {
            let what = format!(
                "take the line `{line}` out of {place}, renew the initramfs and load the module"
            );
            Fix::at(Layer::Driver, what)
                .line(format!("sudo modprobe {module}"))
                .cost("root")
        }
    } else {
        for module in KERNEL_DRIVERS {
            let loaded = match ctx.facts.driver.has_module(module) {
                Some(true) => "loaded",
                Some(false) => "not loaded",
                None => continue,
            };
            finding = finding.evidence(module, loaded, ctx.facts.driver.modules.source());
        }
        Fix::at(Layer::Driver, "see in the kernel's log why the GPU is left alone; boot a newer kernel where the GPU is newer than this one")
            .line("sudo dmesg | grep -iE 'i915|xe '")
            .cost("root")
    };
    Outcome::found([finding
        .source("Linux kernel: drivers/gpu/drm/i915, drivers/gpu/drm/xe")
        .fix(fix.verify("ls /dev/dri/renderD*"))])
}

/// The user is not in the group that may open the render node.
pub(super) fn permission(ctx: &Ctx<'_>) -> Outcome {
    let Some(wants) = wanted(ctx) else {
        return Outcome::Clean;
    };
    let nodes = match drm::refused(ctx, ctx.intel_nodes()) {
        Ok(nodes) => nodes,
        Err(reason) => return Outcome::unknown(reason),
    };
    Outcome::found(drm::permission(
        ctx,
        &Access {
            id: "intel-node-permission",
            vendor: Vendor::Intel,
            wants,
            needed: ctx.intel_nodes(),
            severity: Severity::Error,
            detail: "Level Zero and OpenCL open the render node of each GPU for reading and writing. As root they find the GPU, as this user none.",
            devices: "--device=/dev/dri",
            source: "Intel software for general purpose GPU capabilities: installation, group render",
            verify: VERIFY,
        },
        &nodes,
    ))
}

/// A container whose program is built for Intel's GPUs, on a host that has one, was given no render node.
pub(super) fn container_node_missing(ctx: &Ctx<'_>) -> Outcome {
    let Some(wants) = wanted(ctx).filter(|wants| wants.own && ctx.in_container()) else {
        return Outcome::Clean;
    };
    // The host's /sys is seen from inside, whatever was given.
    let gpus = ctx.driven_intel_gpus();
    if gpus.is_empty() {
        return Outcome::Clean;
    }
    let render = known!(ctx.facts.drm.render, "render nodes");
    if let Some(reason) = render.iter().find_map(|node| match &node.node {
        Reading::Unreadable { reason } => Some(reason),
        _ => None,
    }) {
        return Outcome::unknown(reason.clone());
    }
    let there = render.iter().filter_map(|node| node.node.value());
    let there: Vec<&DeviceNode> = there.collect();
    let kept = there
        .iter()
        .all(|node| ctx.drm_open(&node.path) == Some("EPERM"));
    if !there.is_empty() && !kept {
        return Outcome::Clean;
    }
    let names: Vec<String> = gpus.iter().map(|gpu| ctx.name_of(gpu)).collect();
    let title = match there.first() {
        Some(node) => format!(
            "{} is in this container and its device cgroup forbids it (EPERM)",
            node.path
        ),
        None => format!(
            "/dev/dri/renderD* is not in this container, on a host with an Intel GPU: {} finds none",
            wants.what
        ),
    };
    let mut finding = Finding::new("intel-container-node-missing", Layer::Container, Severity::Error, title)
        .of(Vendor::Intel)
        .complaining(Layer::Framework)
        .component("/dev/dri")
        .detail("A container gets the host's Intel GPUs by their render nodes alone. The libraries come with the image.")
        .evidence("GPUs of the host", in_words(&names), ctx.facts.hardware.pci.source())
        .evidence("wants it", wants.what, wants.source);
    finding = match there.first() {
        Some(node) => finding.evidence(format!("open {}", node.path), "EPERM", "open()"),
        None => finding.evidence("/dev/dri/renderD*", "absent", "/dev"),
    };
    let kind = ctx.facts.system.container.value().map(|c| c.kind.as_str());
    let fix = match kind {
        Some("kubernetes") => Fix::at(
            Layer::Container,
            "ask for Intel's GPU in the pod's limits (`gpu.intel.com/i915: 1`, or `xe`); Intel's device plugin gives the node",
        ),
        _ => Fix::at(Layer::Container, "start the container with the nodes, and with the group that may open them by the host's number").line(format!(
            "{} run --device=/dev/dri --group-add \"$(stat -c %g /dev/dri/renderD128)\" IMAGE",
            if kind == Some("podman") { "podman" } else { "docker" }
        )),
    };
    Outcome::found([finding
        .source("Intel device plugins for Kubernetes: GPU plugin; Docker documentation: --device")
        .fix(fix.cost("restart of the container").verify(VERIFY))])
}

/// What is wrong with a library that is not what it should be, in words.
fn lacking(library: &Reading<IntelLibrary>) -> Option<String> {
    match library {
        Reading::Present { value, .. } => match &value.kind {
            FileKind::Library | FileKind::Unknown | FileKind::Unreadable(_) => None,
            FileKind::OtherArch(arch) => Some(format!("{} is for {arch}", value.path)),
            _ => Some(format!("{} cannot be loaded", value.path)),
        },
        Reading::Absent { .. } => Some("is not here".to_owned()),
        Reading::Unreadable { .. } => None,
    }
}

/// Whether Level Zero has a GPU to drive here.
fn has_gpu(ctx: &Ctx<'_>) -> bool {
    !ctx.intel_nodes().is_empty()
}

/// A finding about a library of Level Zero, with what wants it.
fn of_library(
    ctx: &Ctx<'_>,
    finding: Finding,
    file: &str,
    library: &Reading<IntelLibrary>,
    wants: Wants,
) -> Finding {
    let names: Vec<String> = ctx
        .driven_intel_gpus()
        .into_iter()
        .map(|gpu| ctx.name_of(gpu))
        .collect();
    finding
        .of(Vendor::Intel)
        .complaining(Layer::Framework)
        .component(file)
        .evidence(
            file,
            match library {
                Reading::Present { value, .. } => value.path.clone(),
                _ => "absent".to_owned(),
            },
            library.source(),
        )
        .evidence("GPUs", in_words(&names), "/sys/bus/pci/devices")
        .evidence("wants it", wants.what, wants.source)
}

/// The command for Debian's package, where this is Debian.
fn with_package(ctx: &Ctx<'_>, fix: Fix, package: &str) -> Fix {
    let os = ctx.facts.system.os.value();
    let is_debian = os.is_some_and(|os| os.id == "debian") && !ctx.in_container();
    let fix = if is_debian {
        fix.command(&["sudo", "apt-get", "install", package])
    } else {
        fix
    };
    fix.cost(if ctx.in_container() {
        "rebuild"
    } else {
        "root"
    })
    .verify(VERIFY)
}

/// Level Zero's driver, a part of Intel's compute runtime, is not here.
pub(super) fn level_zero_driver_missing(ctx: &Ctx<'_>) -> Outcome {
    let Some(wants) = wanted(ctx).filter(|_| has_gpu(ctx)) else {
        return Outcome::Clean;
    };
    let library = &ctx.facts.intel.level_zero_driver;
    if let Reading::Unreadable { reason } = library {
        return Outcome::unknown(format!("Level Zero's driver: {reason}"));
    }
    let Some(why) = lacking(library) else {
        return Outcome::Clean;
    };
    let file = "libze_intel_gpu.so.1";
    let title = if library.is_absent() {
        format!(
            "Intel's compute runtime is not here ({file}), so {} finds no GPU",
            wants.what
        )
    } else {
        format!("Level Zero's driver {why}, so {} finds no GPU", wants.what)
    };
    let finding = Finding::new("level-zero-driver-missing", Layer::Driver, Severity::Error, title)
        .detail("PyTorch for Intel GPUs and what is built by oneAPI reach the GPU through Level Zero alone; its driver comes with the compute runtime of the system and is in no wheel. Without it zeInit answers 0x78000001, as it does where there is no GPU.");
    let fix = Fix::at(
        Layer::Driver,
        "install Intel's compute runtime with its part for Level Zero (packages libze-intel-gpu1, intel-level-zero-gpu or intel-compute-runtime)",
    );
    Outcome::found([of_library(ctx, finding, file, library, wants)
        .source("PyTorch documentation: getting started on Intel GPU; intel/compute-runtime")
        .fix(with_package(ctx, fix, "intel-opencl-icd"))])
}

/// The loader of Level Zero is neither on the system nor in the environment.
pub(super) fn level_zero_loader_missing(ctx: &Ctx<'_>) -> Outcome {
    let Some(wants) = wanted(ctx).filter(|_| has_gpu(ctx)) else {
        return Outcome::Clean;
    };
    let library = &ctx.facts.intel.level_zero_loader;
    if let Reading::Unreadable { reason } = library {
        return Outcome::unknown(format!("Level Zero's loader: {reason}"));
    }
    let Some(why) = lacking(library) else {
        return Outcome::Clean;
    };
    let file = "libze_loader.so.1";
    let title = format!(
        "Level Zero's loader ({file}) {why}: {} may find no GPU",
        wants.what
    );
    let finding = Finding::new("level-zero-loader-missing", Layer::Runtime, Severity::Warning, title)
        .detail("Programs call Level Zero through its loader, which opens the driver. Some builds bring it inside; where none does, no GPU is found.");
    let fix = Fix::at(
        Layer::Runtime,
        "install Level Zero's loader (packages libze1, level-zero or level-zero-loader)",
    );
    Outcome::found([of_library(ctx, finding, file, library, wants)
        .source("oneapi-src/level-zero: loader")
        .fix(with_package(ctx, fix, "libze1"))])
}
