//! `amdgpu`: in the kernel, with the firmware that it needs, and with the GPU listed by its compute part (KFD).

use super::VERIFY;
use crate::facts::{Layer, PciDevice, Reading, Vendor};
use crate::finding::{Finding, Fix, Severity};
use crate::read::rocm;
use crate::rules::drm::{self, Wants};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};
use crate::version::Version;

/// A GPU of AMD's that `amdgpu` should drive here, and what wants it. `None`: nothing here asks for it, or this is a world
/// (container, WSL) whose kernel is another's business.
fn wanted<'a>(ctx: &'a Ctx<'_>) -> Option<(Vec<&'a PciDevice>, Wants)> {
    let wants = ctx.wants_rocm()?;
    let gpus: Vec<&PciDevice> = ctx.amd_gpus().collect();
    let here = !gpus.is_empty() && ctx.vendor() == Some(Vendor::Amd);
    (here && !ctx.in_container() && ctx.plain_linux() && ctx.place_unknown().is_none())
        .then_some((gpus, wants))
}

fn names(ctx: &Ctx<'_>, gpus: &[&PciDevice]) -> String {
    in_words(&gpus.iter().map(|gpu| ctx.amd_name(gpu)).collect::<Vec<_>>())
}

/// A finding with what wants the GPU, and which kernel driver holds each.
fn finding(
    ctx: &Ctx<'_>,
    id: &str,
    layer: Layer,
    gpus: &[&PciDevice],
    wants: &Wants,
    title: String,
) -> Finding {
    let mut finding = Finding::new(id, layer, Severity::Error, title)
        .of(Vendor::Amd)
        .complaining(Layer::Runtime)
        .component("amdgpu");
    for gpu in gpus {
        let holder = gpu.driver.value();
        let holder = holder.map_or("no kernel driver bound".to_owned(), |name| {
            format!("bound to {name}")
        });
        let what = format!("{} at {}", ctx.amd_name(gpu), gpu.address);
        finding = finding.evidence(what, holder, "/sys/bus/pci/devices");
    }
    finding.evidence("wants it", wants.what.clone(), wants.source.clone())
}

/// The newest line of the kernel log that is about it.
fn logged<'a>(ctx: &'a Ctx<'_>, is_it: impl Fn(&str) -> bool) -> Option<&'a String> {
    let lines = ctx.facts.amd.kernel_log.items().iter();
    lines.rev().find(|line| is_it(line))
}

/// GPUs that `amdgpu` does not drive, where none is driven.
fn without_driver<'a>(ctx: &'a Ctx<'_>) -> Option<(Vec<&'a PciDevice>, Wants)> {
    let (gpus, wants) = wanted(ctx)?;
    let is_driven = |gpu: &&PciDevice| gpu.driver.value().is_some_and(|name| name == "amdgpu");
    (!gpus.iter().any(is_driven) && ctx.facts.amd.topology.is_absent()).then_some((gpus, wants))
}

/// `amdgpu` is kept from being loaded.
pub(super) fn blacklisted(ctx: &Ctx<'_>) -> Outcome {
    let Some((gpus, wants)) = without_driver(ctx) else {
        return Outcome::Clean;
    };
    let Some((line, place)) = drm::blocked(ctx, "amdgpu") else {
        return Outcome::Clean;
    };
    let title = format!(
        "amdgpu is kept from being loaded by `{line}`, so {} has no driver",
        names(ctx, &gpus)
    );
    let found = finding(
        ctx,
        "amdgpu-blacklisted",
        Layer::Driver,
        &gpus,
        &wants,
        title,
    )
    .detail("Without amdgpu there is neither /dev/kfd nor a render node: ROCm finds no GPU.")
    .evidence("configuration", line.clone(), place.clone());
    let fix = if place == "/proc/cmdline" {
        Fix::at(
            Layer::Driver,
            format!(
                "take `{line}` off the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then update-grub or grub2-mkconfig) and reboot"
            ),
        )
    } else {
        Fix::at(
            Layer::Driver,
            format!(
                "take the line `{line}` out of {place}, renew the initramfs and load the module"
            ),
        )
        .line("sudo modprobe amdgpu")
    };
    Outcome::found([found.fix(fix.cost("root, reboot").verify(VERIFY))])
}

/// Neither the kernel's own `amdgpu` nor one of AMD's packages is there for the kernel that runs.
pub(super) fn not_built(ctx: &Ctx<'_>) -> Outcome {
    let Some((gpus, wants)) = without_driver(ctx) else {
        return Outcome::Clean;
    };
    // Without this kernel's folder of modules nothing can be said; built into the kernel, it would be loaded.
    let files = known!(ctx.facts.amd.disk_modules, "amdgpu on disk");
    if !files.is_empty() {
        return Outcome::Clean;
    }
    let release = known!(ctx.facts.system.kernel_release, "the kernel's release");
    let tree = ctx.facts.amd.dkms.items().first();
    let failed = tree.is_some_and(|tree| tree.failed_build);
    let why = match tree {
        Some(tree) if failed => {
            format!("the build of {}/{} by DKMS failed", tree.name, tree.version)
        }
        Some(tree) => format!(
            "DKMS has {}/{}, built for {}",
            tree.name,
            tree.version,
            if tree.built.is_empty() {
                "no kernel".to_owned()
            } else {
                in_words(&tree.built)
            }
        ),
        None => "its modules lack it".to_owned(),
    };
    let title = format!("there is no amdgpu for the running kernel {release}: {why}");
    let mut found = finding(ctx, "amdgpu-not-built", Layer::Driver, &gpus, &wants, title)
        .detail("The kernel that runs has no module that drives the GPU: neither its own, which distributions may keep in a package of further modules, nor one that DKMS built from AMD's package.")
        .evidence("amdgpu.ko", "absent", ctx.facts.amd.disk_modules.source());
    if let Some(tree) = tree {
        found = found.evidence(
            "DKMS tree",
            format!("{}/{}", tree.name, tree.version),
            "/var/lib/dkms",
        );
        for error in tree.errors.iter().take(2) {
            found = found.evidence(
                "make.log",
                error.clone(),
                format!(
                    "/var/lib/dkms/{}/{}/build/make.log",
                    tree.name, tree.version
                ),
            );
        }
    }
    let is_ubuntu = ctx
        .facts
        .system
        .os
        .value()
        .is_some_and(|os| os.id == "ubuntu");
    let headers = ctx.facts.driver.kernel_headers.is_present();
    let fix = match tree {
        Some(_) if !headers => Fix::at(
            Layer::Driver,
            format!("install the headers of kernel {release}, then let DKMS build the module"),
        ),
        Some(_) => Fix::at(
            Layer::Driver,
            format!(
                "let DKMS build the module for {release}; where it does not compile, take the amdgpu-dkms that AMD lists for this kernel, or boot a kernel that it lists"
            ),
        ),
        None => Fix::at(
            Layer::Driver,
            "install the package with this kernel's further modules",
        ),
    };
    let fix = match tree {
        Some(_) if is_ubuntu && !headers => fix
            .command(&[
                "sudo",
                "apt-get",
                "install",
                &format!("linux-headers-{release}"),
            ])
            .line("sudo dkms autoinstall"),
        Some(_) => fix.line("sudo dkms autoinstall"),
        None if is_ubuntu => fix
            .command(&[
                "sudo",
                "apt-get",
                "install",
                &format!("linux-modules-extra-{release}"),
            ])
            .line("sudo modprobe amdgpu"),
        None => fix,
    };
    Outcome::found([found.fix(fix.cost("root").verify(VERIFY))])
}

/// The kernel asked for firmware of the GPU and did not get it.
pub(super) fn firmware_missing(ctx: &Ctx<'_>) -> Outcome {
    let Some((gpus, wants)) = wanted(ctx) else {
        return Outcome::Clean;
    };
    if !ctx.kfd_gpus().is_empty() {
        return Outcome::Clean;
    }
    let lines = known!(ctx.facts.amd.kernel_log, "kernel log");
    let is_it = |line: &&String| {
        let lower = line.to_lowercase();
        lower.contains("firmware") && lower.contains("fail")
    };
    let Some(line) = lines.iter().rev().find(is_it) else {
        return Outcome::Clean;
    };
    let file = line
        .split(['"', ' ', '\''])
        .find(|word| word.starts_with("amdgpu/") && word.contains(".bin"));
    let what = file.unwrap_or("a file of the GPU's firmware");
    let title = format!(
        "amdgpu cannot load {what}, so {} does not start",
        names(ctx, &gpus)
    );
    let found = finding(ctx, "amdgpu-firmware-missing", Layer::Driver, &gpus, &wants, title)
        .detail("The driver brings no firmware itself: it reads it from /lib/firmware/amdgpu. A GPU that is newer than the distribution's firmware package has none there.")
        .evidence("kernel log", line.clone(), ctx.facts.amd.kernel_log.source());
    let id = ctx.facts.system.os.value().map(|os| os.id.as_str());
    let fix = Fix::at(
        Layer::Driver,
        "install the newest firmware package, renew the initramfs and reboot",
    );
    let fix = match id {
        Some("ubuntu") => fix.line("sudo apt-get install --only-upgrade linux-firmware"),
        Some("debian") => fix.line("sudo apt-get install firmware-amd-graphics"),
        _ => fix,
    };
    Outcome::found([found.fix(fix.cost("root, reboot").verify(VERIFY))])
}

/// No driver holds the GPU, and nothing of the above is why.
pub(super) fn not_loaded(ctx: &Ctx<'_>) -> Outcome {
    let Some((gpus, wants)) = without_driver(ctx) else {
        return Outcome::Clean;
    };
    match ctx.facts.driver.has_module("amdgpu") {
        Some(false) => {}
        Some(true) => return Outcome::Clean,
        None => {
            return Outcome::unknown(format!(
                "kernel modules: {}",
                ctx.facts.driver.modules.source()
            ));
        }
    }
    let radeon = gpus
        .iter()
        .any(|gpu| gpu.driver.value().is_some_and(|name| name == "radeon"));
    let why = if radeon {
        ": radeon holds it, which cannot compute"
    } else {
        ""
    };
    let title = format!(
        "amdgpu is not loaded, so {} has no driver that computes{why}",
        names(ctx, &gpus)
    );
    let found = finding(
        ctx,
        "amdgpu-not-loaded",
        Layer::Driver,
        &gpus,
        &wants,
        title,
    )
    .detail("ROCm reaches a GPU through amdgpu alone, by /dev/kfd and a render node.")
    .evidence("amdgpu", "not loaded", ctx.facts.driver.modules.source())
    .reading(
        "amdgpu.ko",
        &ctx.facts.amd.disk_modules.clone().map(|files| {
            if files.is_empty() {
                "none for this kernel".to_owned()
            } else {
                files.join(", ")
            }
        }),
    );
    let fix = if radeon {
        Fix::at(
            Layer::Driver,
            "give the GPU to amdgpu: boot with radeon.si_support=0 radeon.cik_support=0 amdgpu.si_support=1 amdgpu.cik_support=1; ROCm itself supports no GPU of that age",
        )
    } else {
        Fix::at(
            Layer::Driver,
            "load the module; where that fails, the kernel's log says why",
        )
        .line("sudo modprobe amdgpu")
    };
    Outcome::found([found.fix(fix.cost("root").verify(VERIFY))])
}

/// `amdgpu` drives the GPU, and the kernel has no KFD at all.
pub(super) fn kfd_absent(ctx: &Ctx<'_>) -> Outcome {
    let Some((gpus, wants)) = wanted(ctx) else {
        return Outcome::Clean;
    };
    let is_driven = |gpu: &&PciDevice| gpu.driver.value().is_some_and(|name| name == "amdgpu");
    if !gpus.iter().any(is_driven)
        || !ctx.facts.amd.topology.is_absent()
        || !ctx.facts.amd.kfd.is_absent()
        // A sysfs that is not the kernel's own shows nothing of KFD.
        || ctx.facts.driver.has_module("amdgpu") != Some(true)
    {
        return Outcome::Clean;
    }
    let title = format!(
        "amdgpu drives {}, but this kernel has no KFD: there is no /dev/kfd",
        names(ctx, &gpus)
    );
    Outcome::found([finding(ctx, "amd-kfd-absent", Layer::Driver, &gpus, &wants, title)
        .component("KFD")
        .detail("KFD is the part of amdgpu that programs compute through. A kernel that was built without CONFIG_HSA_AMD has a display and no ROCm.")
        .evidence("/dev/kfd", "absent", "/dev")
        .evidence("KFD's topology", "absent", ctx.facts.amd.topology.source())
        .fix(Fix::at(Layer::Driver, "boot a kernel with CONFIG_HSA_AMD=y, as those of distributions are, or install AMD's amdgpu-dkms").cost("root, reboot").verify(VERIFY))])
}

/// `amdgpu` drives GPUs, and KFD lists none of them: with a reason in the log that is the chip's, or without one.
pub(super) fn gpu_not_in_kfd(ctx: &Ctx<'_>) -> Outcome {
    let Some((gpus, wants)) = wanted(ctx) else {
        return Outcome::Clean;
    };
    let gpus: Vec<&PciDevice> = gpus
        .into_iter()
        .filter(|gpu| gpu.driver.value().is_some_and(|name| name == "amdgpu"))
        .collect();
    let nodes = known!(ctx.facts.amd.topology, "KFD's topology");
    if gpus.is_empty() || nodes.is_empty() || !ctx.kfd_gpus().is_empty() {
        return Outcome::Clean;
    }
    let refusal = logged(ctx, |line| line.contains("not supported in kfd"));
    let open = ctx.drm_open("/dev/kfd");
    let title = match refusal {
        Some(_) => format!(
            "{} is not supported by the kernel's compute driver (KFD)",
            names(ctx, &gpus)
        ),
        None => format!(
            "KFD lists no GPU: the kernel's compute driver does not take {}",
            names(ctx, &gpus)
        ),
    };
    let mut found = finding(ctx, "amd-gpu-not-in-kfd", Layer::Hardware, &gpus, &wants, title)
        .detail("The GPU drives a display, and the compute part of amdgpu leaves it out: it is of a generation from before ROCm's (GCN 1 and 2), newer than this kernel, or the slot lacks what computing needs. Permissions have no part in it.")
        .evidence("GPUs in KFD's topology", "none", ctx.facts.amd.topology.source());
    if let Some(line) = refusal {
        found = found.evidence(
            "kernel log",
            line.clone(),
            ctx.facts.amd.kernel_log.source(),
        );
    } else {
        found = found.reading(
            "kernel log",
            &ctx.facts
                .amd
                .kernel_log
                .clone()
                .map(|_| "does not tell why".to_owned()),
        );
    }
    if let Some(open) = open {
        // Of its own /dev/kfd the kernel answers ENOMEM where it has no GPU for it.
        found = found.evidence("open /dev/kfd", open.to_owned(), "open()");
    }
    let first = if refusal.is_some() {
        Fix::at(
            Layer::Hardware,
            "use a GPU that ROCm supports: no software makes this one compute with it",
        )
    } else {
        Fix::at(Layer::Driver, "see in the kernel's log why KFD leaves the GPU out, and boot a newer kernel where the GPU is newer than this one")
            .line("sudo dmesg | grep -i kfd")
            .cost("root")
    };
    Outcome::found([found
        .source("Linux kernel: drivers/gpu/drm/amd/amdkfd/kfd_device.c")
        .fix(first.verify(VERIFY))])
}

/// KFD leaves a GPU out since its slot has no `PCIe` atomics.
pub(super) fn pcie_atomics_missing(ctx: &Ctx<'_>) -> Outcome {
    let Some((gpus, wants)) = wanted(ctx) else {
        return Outcome::Clean;
    };
    let lines = known!(ctx.facts.amd.kernel_log, "kernel log");
    let is_it = |line: &&String| {
        line.contains("atomics")
            && (line.contains("skipped device")
                || line.contains("rejects")
                || line.contains("not supported"))
    };
    let Some(line) = lines.iter().rev().find(is_it) else {
        return Outcome::Clean;
    };
    // The line names vendor and device: `skipped device 1002:7300`.
    let left: Vec<&PciDevice> = gpus
        .iter()
        .copied()
        .filter(|gpu| line.contains(&gpu.id()) || gpus.len() == 1)
        .filter(|gpu| ctx.kfd_node_of(gpu).is_none())
        .collect();
    if left.is_empty() {
        return Outcome::Clean;
    }
    let title = format!(
        "the slot of {} has no PCIe atomics, so KFD leaves it out",
        names(ctx, &left)
    );
    let mut found = finding(ctx, "amd-pcie-atomics-missing", Layer::Hardware, &left, &wants, title)
        .component("PCIe slot")
        .detail("ROCm needs atomic operations across PCI Express for this GPU. They work where the GPU, the processor and every switch between them can do it: not in slots of old chipsets, of many Thunderbolt cases and of virtual machines.")
        .evidence("kernel log", line.clone(), ctx.facts.amd.kernel_log.source());
    if !ctx.kfd_gpus().is_empty() {
        found.severity = Severity::Warning;
    }
    if let Reading::Present { value, source } = &ctx.facts.system.virtualisation {
        found = found.evidence("virtual machine", value.clone(), source.clone());
    }
    Outcome::found([found
        .source("Linux kernel: drivers/gpu/drm/amd/amdkfd/kfd_device.c")
        .fix(Fix::at(Layer::Hardware, "put the GPU into a slot that is wired to the processor (of generation 3 or newer); of a virtual machine, let the hypervisor offer atomics at the root port").cost("power cycle").verify(VERIFY))])
}

/// The driver of AMD's packages and the `ROCm` that runs on it are of releases that were never tested together.
pub(super) fn release_untested(ctx: &Ctx<'_>) -> Outcome {
    let Some((gpus, wants)) = wanted(ctx) else {
        return Outcome::Clean;
    };
    let packages = ctx.facts.system.packages.items().iter();
    let mut packages = packages.filter(|package| package.name == "amdgpu-dkms");
    let Some(package) = packages.next() else {
        return Outcome::Clean;
    };
    // Installed, and the kernel's own amdgpu runs: then the package says nothing.
    let runs = ctx.facts.amd.module_version.is_present();
    let Some(driver) = rocm::driver_release(&package.version).filter(|_| runs) else {
        return Outcome::Clean;
    };
    let Some((release, source)) = ctx.rocm_release() else {
        return Outcome::Clean;
    };
    let Some(row) = ctx.matrix.rocm_driver(&driver) else {
        return Outcome::Clean;
    };
    let Some(minor) = Version::parse(&release.major_minor()) else {
        return Outcome::Clean;
    };
    let (Some(first), Some(last)) = (row.rocm.first(), row.rocm.last()) else {
        return Outcome::Clean;
    };
    let older = minor < *first;
    if !older && (minor <= *last || row.later_unknown) {
        return Outcome::Clean;
    }
    let title = format!(
        "ROCm {release} runs on the amdgpu of ROCm {driver}, which was tested with {first} to {last}"
    );
    let mut found = finding(ctx, "rocm-driver-untested", Layer::Driver, &gpus, &wants, title)
        .component("amdgpu-dkms")
        .detail("Driver and user space of ROCm are tested up to two minor releases apart. Farther apart calls may fail that the other does not have, often as HSA's OUT_OF_RESOURCES.")
        .evidence("package amdgpu-dkms", package.version.clone(), ctx.facts.system.packages.source())
        .evidence("ROCm", release.to_string(), source)
        .source(row.source.clone());
    found.severity = Severity::Warning;
    let fix = if older {
        Fix::at(Layer::Runtime, format!("take a ROCm of {first} to {last}"))
    } else {
        Fix::at(Layer::Driver, format!("install the amdgpu-dkms of ROCm {minor}, or take what is built for ROCm {first} to {last}")).cost("root, reboot")
    };
    Outcome::found([found.fix(fix.verify(VERIFY))])
}
