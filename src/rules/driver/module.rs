//! The kernel module: installed, built, allowed, loaded, and of one version with user space.

use std::fmt::Write as _;

use crate::facts::{DiskModule, Layer, LibraryCopy, Reading};
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::Purpose;
use crate::rules::stack::{
    OPEN_SOURCE_HOLDERS, PASSTHROUGH_HOLDERS, cuda_code, in_words, nvml_code, verified,
    with_holder, with_kernel_log,
};
use crate::rules::{Ctx, Outcome, known, missing};
use crate::sysroot::file_name;

/// Whether the question of a missing module is one for this machine: a plain Linux host with an NVIDIA GPU and
/// without the module. In a container the module is the host's.
fn host_without_module(ctx: &Ctx<'_>) -> bool {
    ctx.plain_linux()
        && !ctx.in_container()
        && ctx.module_loaded() == Some(false)
        // GPUs that are all kept for virtual machines need no module here.
        && ctx.gpus().any(|d| {
            !d.driver
                .value()
                .is_some_and(|name| PASSTHROUGH_HOLDERS.contains(&name.as_str()))
        })
}

/// Core modules on disk for the running kernel.
fn core_modules<'a>(ctx: &'a Ctx<'_>) -> impl Iterator<Item = &'a DiskModule> {
    ctx.facts
        .driver
        .disk_modules
        .items()
        .iter()
        .filter(|m| m.is_core())
}

fn kernel(ctx: &Ctx<'_>) -> String {
    ctx.facts
        .system
        .kernel_release
        .value()
        .cloned()
        .unwrap_or_else(|| "of unknown release".to_owned())
}

/// A GPU is here, something wants CUDA, and nothing of NVIDIA's driver is installed.
pub(super) fn driver_not_installed(ctx: &Ctx<'_>) -> Outcome {
    if !host_without_module(ctx) || ctx.driver_installed().is_some() {
        return Outcome::Clean;
    }
    if let Some(missing) = missing("nvidia module on disk", &ctx.facts.driver.disk_modules)
        .or_else(|| missing("libcuda", &ctx.facts.driver.libcuda))
        .or_else(|| ctx.place_unknown())
    {
        return Outcome::unknown(missing);
    }
    let gpus: Vec<_> = ctx.gpus().collect();
    if gpus.iter().all(|d| {
        d.driver
            .value()
            .is_some_and(|name| PASSTHROUGH_HOLDERS.contains(&name.as_str()))
    }) {
        return Outcome::Clean;
    }
    let runtimes = ctx.consumer_runtimes();
    let wanted = ctx.expect_gpu || !runtimes.is_empty();
    let names: Vec<String> = gpus.iter().map(|d| ctx.gpu_in_full(d)).collect();
    let mut finding = Finding::new(
        "driver-not-installed",
        Layer::Driver,
        if wanted { Severity::Error } else { Severity::Note },
        format!("the NVIDIA driver is not installed, and here is {}", in_words(&names)),
    )
    .complaining(Layer::Runtime)
    .component("nvidia.ko, libcuda.so.1")
    .detail("There is a GPU and no NVIDIA driver: no kernel module for this kernel, no DKMS tree, no libcuda on the loader's path. CUDA programs answer error 35 or 100.")
    .reading("kernel modules", &Reading::present("no nvidia", ctx.facts.driver.modules.source()))
    .evidence("libcuda.so.1", "absent or no driver's", ctx.facts.driver.libcuda.source());
    for device in &gpus {
        finding = with_holder(ctx, finding.subject(device.address.clone()), device);
    }
    for runtime in runtimes.iter().take(2) {
        finding = finding.evidence(
            "wants it",
            runtime.path.clone(),
            runtime
                .reached_by
                .first()
                .map_or_else(String::new, crate::facts::ReachedBy::describe),
        );
    }
    let fix = match ctx.hands_off() {
        Some(place) => Fix::at(Layer::Driver, format!("install the NVIDIA driver {place}")),
        None => Fix::at(Layer::Driver, "install the distribution's NVIDIA driver"),
    };
    let fix = ctx.with_distro_commands(fix.cost("root, reboot"), Purpose::Driver);
    Outcome::found([finding.fix(verified(ctx, fix))])
}

/// GPUs bound to nouveau, `nova_core`, vfio-pci.
pub(super) fn gpu_held_by_other_driver(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() {
        return Outcome::Clean;
    }
    let all: Vec<_> = ctx.gpus().collect();
    let holder = |names: &[&str]| {
        all.iter()
            .filter(|d| {
                d.driver
                    .value()
                    .is_some_and(|n| names.contains(&n.as_str()))
            })
            .copied()
            .collect::<Vec<_>>()
    };
    let (open_source, passed) = (holder(OPEN_SOURCE_HOLDERS), holder(PASSTHROUGH_HOLDERS));
    let installed = ctx.driver_installed();
    let free = all.len() - open_source.len() - passed.len();
    let mut findings = Vec::new();
    for (held, is_passthrough) in [(open_source, false), (passed, true)] {
        let Some(first) = held.first() else { continue };
        let name = first.driver.value().cloned().unwrap_or_default();
        let module = if name == "NovaCore" {
            "nova_core"
        } else {
            name.as_str()
        };
        let severity = match (&installed, free) {
            (None, _) => Severity::Note,
            (Some(_), 0) => Severity::Error,
            (Some(_), _) if is_passthrough => Severity::Note,
            (Some(_), _) => Severity::Warning,
        };
        let count = if held.len() == 1 {
            "1 NVIDIA GPU is".to_owned()
        } else {
            format!("{} NVIDIA GPUs are", held.len())
        };
        let mut finding = Finding::new("gpu-held-by-other-driver", Layer::Driver, severity, format!("{count} bound to {module}, so NVIDIA's driver cannot have {}", if held.len() == 1 { "it" } else { "them" }))
            .component(module)
            .subject(module)
            .detail(if is_passthrough {
                "A GPU that vfio-pci holds is reserved for a virtual machine: no program on this host can use it."
            } else {
                "A PCI device has one driver at a time. The kernel's own driver took the GPU at boot; NVIDIA's module then finds no device, or is not loaded at all."
            })
            .source("NVIDIA open kernel modules: nv-pci.c, messages of a probe that finds the device bound");
        for device in &held {
            finding = finding.subject(device.address.clone()).evidence(
                ctx.gpu_in_full(device),
                format!("bound to {name}"),
                format!("/sys/bus/pci/devices/{}/driver", device.address),
            );
        }
        if let Some(why) = &installed {
            finding = finding.evidence(
                "NVIDIA driver installed",
                why.clone(),
                "modules, packages, libraries",
            );
        }
        finding = with_kernel_log(ctx, finding, |l| {
            l.contains("already bound to") || l.contains("another driver was loaded")
        });
        findings.push(release_fixes(
            ctx,
            finding,
            module,
            is_passthrough,
            installed.is_some(),
        ));
    }
    Outcome::found(findings)
}

/// How to take a GPU back.
fn release_fixes(
    ctx: &Ctx<'_>,
    finding: Finding,
    module: &str,
    is_passthrough: bool,
    installed: bool,
) -> Finding {
    if is_passthrough {
        return finding.fix(verified(
            ctx,
            Fix::at(Layer::System, "give the GPU back to the host, if it is not meant for a virtual machine: remove its id from vfio-pci's `ids=` option and from the kernel command line, rebuild the initramfs, reboot").cost("root, reboot"),
        ));
    }
    if !installed {
        return finding.fix(verified(
            ctx,
            Fix::at(
                Layer::Driver,
                format!("install NVIDIA's driver if CUDA is wanted; it blacklists {module}"),
            )
            .cost("root, reboot"),
        ));
    }
    // nova_core sits under the display driver nova_drm, and both have to stay away.
    let names: &[&str] = if module == "nouveau" {
        &["nouveau"]
    } else {
        &["nova_core", "nova_drm"]
    };
    let lines = names
        .iter()
        .map(|n| format!("blacklist {n}"))
        .collect::<Vec<_>>()
        .join("\\n");
    let what = in_words(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
    let blacklist = format!(
        "printf '{lines}\\n' | sudo tee /etc/modprobe.d/blacklist-{}.conf",
        names.first().unwrap_or(&"nouveau")
    );
    // Without the new initramfs the old one loads the module at the next boot all the same.
    let fix = match initramfs_command(ctx) {
        Some(command) => Fix::at(
            Layer::Driver,
            format!("blacklist {what}, rebuild the initramfs so that it holds at boot, and reboot"),
        )
        .line(blacklist)
        .line(command)
        .line("sudo reboot"),
        None => Fix::at(
            Layer::Driver,
            format!("blacklist {what}, rebuild the initramfs with this distribution's tool so that it holds at boot, and reboot"),
        )
        .line(blacklist),
    };
    finding.fix(verified(ctx, fix.cost("root, reboot")))
}

/// What rebuilds the initramfs of the running kernel here: initramfs-tools of Debian and its kin, dracut of Fedora, RHEL
/// and SUSE.
fn initramfs_command(ctx: &Ctx<'_>) -> Option<&'static str> {
    let os = ctx.facts.system.os.value()?;
    let is = |family: &str| os.id == family || os.id_like.iter().any(|like| like == family);
    if is("debian") || is("ubuntu") {
        Some("sudo update-initramfs -u")
    } else if ["fedora", "rhel", "centos", "suse", "opensuse"]
        .into_iter()
        .any(is)
    {
        Some("sudo dracut -f")
    } else {
        None
    }
}

/// Installed, and no module for the running kernel.
pub(super) fn module_not_built(ctx: &Ctx<'_>) -> Outcome {
    if !host_without_module(ctx) {
        return Outcome::Clean;
    }
    let driver = &ctx.facts.driver;
    if let Some(missing) =
        missing("nvidia module on disk", &driver.disk_modules).or_else(|| ctx.place_unknown())
    {
        return Outcome::unknown(missing);
    }
    let others = driver.disk_module_kernels.items();
    let Some(why) = ctx.driver_installed().or_else(|| {
        others
            .first()
            .map(|k| format!("a module for {k} is on disk"))
    }) else {
        return Outcome::Clean;
    };
    if core_modules(ctx).next().is_some() {
        return Outcome::Clean;
    }
    let kernel = kernel(ctx);
    let no_headers = driver.kernel_headers.is_absent();
    let tree = driver
        .dkms
        .items()
        .iter()
        .find(|t| !t.built.contains(&kernel));
    let failed = tree.is_some_and(|t| t.failed_build);
    let mut title = format!("no nvidia module for the running kernel {kernel}");
    if !others.is_empty() {
        title = format!("{title}; there is one for {}", in_words(others));
    }
    if no_headers {
        title.push_str("; kernel headers are missing");
    } else if failed {
        title.push_str("; its DKMS build failed");
    }
    // Libraries alone may have come with a desktop program: that somebody wants the module then is not certain.
    let meant = !others.is_empty()
        || !driver.dkms.items().is_empty()
        || !ctx
            .packages(&[
                "nvidia-driver",
                "nvidia-kernel",
                "nvidia-dkms",
                "nvidia-open",
                "cuda-drivers",
                "nvidia-tesla",
            ])
            .is_empty()
        || !ctx.consumer_runtimes().is_empty()
        || ctx.expect_gpu;
    let mut finding = Finding::new("module-not-built", Layer::Driver, if meant { Severity::Error } else { Severity::Warning }, title)
        .component("nvidia.ko")
        .subject(kernel.clone())
        .detail("The driver is installed, but the kernel that runs has no nvidia module: it was updated after the driver was built, and the new module was not built or could not be.")
        .reading("running kernel", &ctx.facts.system.kernel_release)
        .evidence("nvidia module for it", "none", driver.disk_modules.source())
        .reading("kernel headers", &driver.kernel_headers)
        .evidence("driver installed", why, "modules, packages, libraries");
    if !others.is_empty() {
        finding = finding.evidence(
            "modules for other kernels",
            others.join(", "),
            driver.disk_module_kernels.source(),
        );
    }
    for tree in driver.dkms.items().iter().take(2) {
        let state = if tree.failed_build {
            "build failed".to_owned()
        } else {
            format!(
                "built for {}",
                if tree.built.is_empty() {
                    "no kernel".to_owned()
                } else {
                    tree.built.join(", ")
                }
            )
        };
        finding = finding.evidence(
            format!("DKMS {}/{}", tree.name, tree.version),
            state,
            "/var/lib/dkms",
        );
        for line in &tree.errors {
            finding = finding.evidence(
                "build log",
                line.clone(),
                format!(
                    "/var/lib/dkms/{}/{}/build/make.log",
                    tree.name, tree.version
                ),
            );
        }
    }
    let mut fix = Fix::at(
        Layer::Driver,
        if no_headers {
            format!("install the kernel headers for {kernel} and build the module")
        } else {
            format!("build the module for {kernel}")
        },
    )
    .cost("root");
    if no_headers {
        fix = ctx.with_distro_commands(fix, Purpose::KernelHeaders);
        if fix.commands.is_empty() {
            let package = ctx
                .distro_package_names(Purpose::KernelHeaders)
                .unwrap_or_else(|| {
                    "linux-headers, kernel-devel or kernel-default-devel".to_owned()
                });
            let _ = write!(fix.summary, " (the package is called {package})");
        }
    }
    if !driver.dkms.items().is_empty() {
        fix = fix
            .line(format!(
                "sudo dkms autoinstall -k {}",
                crate::finding::shell_quote(&kernel)
            ))
            .line("sudo modprobe nvidia");
    }
    let held = ctx.gpus().find_map(|d| {
        d.driver
            .value()
            .filter(|n| OPEN_SOURCE_HOLDERS.contains(&n.as_str()))
    });
    if let Some(holder) = held {
        fix.summary = format!(
            "{}, and reboot, since {holder} holds the GPU until then",
            fix.summary
        );
        fix = fix.cost("root, reboot");
    }
    let finding = finding.fix(verified(ctx, fix));
    Outcome::found([match others.first() {
        Some(other) => finding.fix(verified(
            ctx,
            Fix::at(
                Layer::System,
                format!("boot the kernel {other} again, for which there is a module"),
            )
            .cost("reboot")
            .second("holds only until the next kernel update"),
        )),
        None => finding,
    }])
}

/// Something tells modprobe not to load the module.
pub(super) fn module_blacklisted(ctx: &Ctx<'_>) -> Outcome {
    if !host_without_module(ctx) || ctx.driver_installed().is_none() {
        return Outcome::Clean;
    }
    let lines = known!(ctx.facts.driver.modprobe, "modprobe.d");
    // A line for the legacy or the open variant only steers which of them is taken.
    let own: Vec<&str> = ["nvidia"]
        .into_iter()
        .chain(core_modules(ctx).map(|m| m.name.as_str()))
        .collect();
    let names: Vec<String> = own.iter().map(|n| n.replace('-', "_")).collect();
    let is_ours = |name: &str| names.contains(&name.replace('-', "_"));
    let mut found: Vec<(String, String)> = lines
        .iter()
        .filter(|l| l.blocks().is_some_and(is_ours))
        .map(|l| (l.text.clone(), l.file.clone()))
        .collect();
    // `blacklist` only stops loading by alias, as udev does at boot; the setuid helper loads the module by its name.
    let mut outright = found.iter().any(|(text, _)| text.starts_with("install"));
    for parameter in ctx.facts.system.cmdline.items() {
        let Some((key, value)) = parameter.split_once('=') else {
            continue;
        };
        if [
            "modprobe.blacklist",
            "module_blacklist",
            "rd.driver.blacklist",
        ]
        .contains(&key)
            && value.split(',').any(is_ours)
        {
            outright |= key == "module_blacklist";
            found.push((parameter.clone(), "/proc/cmdline".to_owned()));
        }
    }
    let Some((text, place)) = found.first() else {
        return Outcome::Clean;
    };
    let by_helper = ctx
        .facts
        .driver
        .nvidia_modprobe
        .value()
        .is_some_and(|m| m.setuid)
        && !outright;
    let mut finding = Finding::new("module-blacklisted", Layer::Driver, if by_helper { Severity::Warning } else { Severity::Error }, format!("the nvidia module is kept from loading by `{text}` in {place}"))
        .component("nvidia.ko")
        .detail("The module is there for this kernel, but modprobe's configuration or the kernel command line forbids it. Tools that switch to an integrated GPU (prime-select, envycontrol) leave such lines behind.")
        .reading("kernel modules", &Reading::present("no nvidia", ctx.facts.driver.modules.source()));
    for (text, place) in &found {
        finding = finding.evidence("blocked by", text.clone(), place.clone());
    }
    let fix = if place == "/proc/cmdline" {
        Fix::at(
            Layer::Driver,
            format!("remove `{text}` from the boot loader's kernel command line, and reboot"),
        )
        .cost("root, reboot")
    } else {
        Fix::at(
            Layer::Driver,
            format!("remove the line from {place}, rebuild the initramfs, and load the module"),
        )
        .line("sudo modprobe nvidia")
        .cost("root")
    };
    Outcome::found([finding.fix(verified(ctx, fix))])
}

/// The module on disk was built for another kernel.
pub(super) fn module_vermagic_mismatch(ctx: &Ctx<'_>) -> Outcome {
    if !host_without_module(ctx) {
        return Outcome::Clean;
    }
    let release = known!(ctx.facts.system.kernel_release, "kernel release");
    let said = ctx.facts.driver.kernel_log.items().iter().rev().find(|l| {
        l.contains("nvidia")
            && (l.contains("disagrees about version of symbol") || l.contains("version magic"))
    });
    // Enterprise kernels keep an ABI: a module of another release in weak-updates is right there.
    let wrong = core_modules(ctx).find(|m| {
        !m.path.contains("/weak-updates/") && m.built_for().is_some_and(|built| built != release)
    });
    let Some(module) = wrong else {
        return Outcome::Clean;
    };
    let built = module.built_for().unwrap_or_default();
    let mut finding = Finding::new(
        "module-vermagic-mismatch",
        Layer::Driver,
        Severity::Error,
        format!(
            "{} was built for kernel {built}, and {release} runs",
            file_name(&module.path)
        ),
    )
    .component(file_name(&module.path))
    .detail("The kernel refuses a module whose version magic is not its own.")
    .reading("vermagic of the module", &module.vermagic)
    .reading("running kernel", &ctx.facts.system.kernel_release);
    if let Some(line) = said {
        finding = finding.evidence(
            "kernel log",
            line.clone(),
            ctx.facts.driver.kernel_log.source(),
        );
    }
    let fix = Fix::at(Layer::Driver, format!("build the module for {release}")).cost("root");
    let fix = if ctx.facts.driver.dkms.items().is_empty() {
        fix
    } else {
        fix.line(format!(
            "sudo dkms autoinstall -k {}",
            crate::finding::shell_quote(release)
        ))
    };
    Outcome::found([finding.fix(verified(ctx, fix.line("sudo modprobe nvidia")))])
}

/// On disk for this kernel, allowed as far as can be seen, and not loaded.
pub(super) fn module_not_loaded(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() || ctx.in_container() || ctx.gpus().next().is_none() {
        return Outcome::Clean;
    }
    let Some(loaded) = ctx.module_loaded() else {
        let reason = missing("kernel modules", &ctx.facts.driver.modules)
            .or_else(|| missing("/sys/module/nvidia", &ctx.facts.driver.sys_version))
            .unwrap_or_else(|| "kernel modules".to_owned());
        return Outcome::unknown(reason);
    };
    if loaded {
        return Outcome::Clean;
    }
    if let Some(missing) = missing("nvidia module on disk", &ctx.facts.driver.disk_modules)
        .or_else(|| missing("nvidia-modprobe", &ctx.facts.driver.nvidia_modprobe))
        .or_else(|| ctx.place_unknown())
    {
        return Outcome::unknown(missing);
    }
    let Some(module) = core_modules(ctx).next() else {
        return Outcome::Clean;
    };
    let failed = ctx.facts.driver.kernel_log.items().iter().any(|l| {
        [
            "No NVIDIA GPU found",
            "probe routine",
            "No NVIDIA devices probed",
            "RmInitAdapter failed",
            "None of the NVIDIA devices",
        ]
        .iter()
        .any(|text| l.contains(text))
    });
    let on_demand = ctx
        .facts
        .driver
        .nvidia_modprobe
        .value()
        .is_some_and(|m| m.setuid)
        && !failed;
    let gpus: Vec<_> = ctx.gpus().collect();
    let all_passed = gpus.iter().all(|d| {
        d.driver
            .value()
            .is_some_and(|n| PASSTHROUGH_HOLDERS.contains(&n.as_str()))
    });
    let blocked = gpus.iter().any(|d| d.driver.is_present());
    // On a headless host the module may be loaded by the first CUDA program, through the setuid helper.
    let severity = if all_passed || (on_demand && !blocked) {
        Severity::Note
    } else {
        Severity::Error
    };
    let title = if severity == Severity::Note && !all_passed {
        format!(
            "the nvidia module {} is not loaded yet; the first CUDA program loads it",
            file_name(&module.path)
        )
    } else {
        format!(
            "the nvidia module {} is on disk for this kernel and not loaded",
            file_name(&module.path)
        )
    };
    let mut finding = Finding::new("module-not-loaded", Layer::Driver, severity, title)
        .component(file_name(&module.path))
        .detail("Without the module there are no device nodes and no GPU for anybody.")
        .reading(
            "kernel modules",
            &Reading::present("no nvidia", ctx.facts.driver.modules.source()),
        )
        .reading("version on disk", &module.version)
        .evidence(
            "module on disk",
            module.path.clone(),
            "modules.dep or module folder",
        );
    for device in gpus {
        finding = with_holder(ctx, finding, device);
    }
    for line in ctx
        .facts
        .driver
        .kernel_log
        .items()
        .iter()
        .rev()
        .filter(|l| l.contains("NVRM:"))
        .take(4)
    {
        finding = finding.evidence(
            "kernel log",
            line.clone(),
            ctx.facts.driver.kernel_log.source(),
        );
    }
    Outcome::found([finding.fix(verified(
        ctx,
        Fix::at(
            Layer::Driver,
            "load the module; if that fails, the kernel log says why",
        )
        .line("sudo modprobe nvidia")
        .line("sudo dmesg | grep -i nvidia")
        .cost("root"),
    ))])
}

/// `/sys` and `/proc` name different versions of the loaded module.
pub(super) fn module_version_disagrees(ctx: &Ctx<'_>) -> Outcome {
    let (Some(sys), Some(proc)) = (
        ctx.facts.driver.sys_version.value(),
        ctx.facts.driver.proc_version.value(),
    ) else {
        return Outcome::Clean;
    };
    if *sys == proc.version {
        return Outcome::Clean;
    }
    let layer = if ctx.in_container() {
        Layer::Container
    } else {
        Layer::Driver
    };
    Outcome::found([Finding::new("module-version-disagrees", layer, Severity::Warning, format!("the loaded nvidia module calls itself {sys} in /sys and {} in /proc", proc.version))
        .component("nvidia.ko")
        .detail("Both files are made by the module that runs. One of them was replaced or mounted over, as some sandboxes and container runtimes do; what user space sees is not what runs.")
        .reading("version in /sys", &ctx.facts.driver.sys_version)
        .evidence("version in /proc", proc.version.to_string(), ctx.facts.driver.proc_version.source())
        .fix(verified(ctx, Fix::at(Layer::Driver, "look what is mounted over /proc/driver/nvidia or /sys/module/nvidia").line("grep -E 'nvidia' /proc/self/mountinfo")))])
}

/// The copy that decides whether user space fits the module: libcuda, unless it is a compat copy, which may differ.
fn user_space<'a>(ctx: &'a Ctx<'_>) -> Option<(&'static str, &'a LibraryCopy)> {
    let usable =
        |copy: &&LibraryCopy| !copy.is_compat() && !copy.is_stub() && copy.version.is_present();
    ctx.libcuda()
        .filter(usable)
        .map(|c| ("libcuda.so.1", c))
        .or_else(|| {
            ctx.libnvidia_ml()
                .filter(usable)
                .map(|c| ("libnvidia-ml.so.1", c))
        })
}

/// The loaded module and user space are not of the very same version.
pub(super) fn driver_library_mismatch(ctx: &Ctx<'_>) -> Outcome {
    if ctx.in_container() {
        Outcome::Clean
    } else {
        mismatch(ctx)
    }
}

/// The comparison, for a host and for a container: in the latter the same fault is the container's.
pub(in crate::rules) fn mismatch(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() || ctx.module_loaded() == Some(false) {
        return Outcome::Clean;
    }
    let Some(loaded) = ctx.loaded_version() else {
        return Outcome::Unknown {
            missing: [
                missing("/sys/module/nvidia/version", &ctx.facts.driver.sys_version),
                missing(
                    "/proc/driver/nvidia/version",
                    &ctx.facts.driver.proc_version,
                ),
                missing("kernel modules", &ctx.facts.driver.modules),
            ]
            .into_iter()
            .flatten()
            .collect(),
        };
    };
    if let Some(missing) = missing("libcuda", &ctx.facts.driver.libcuda) {
        return Outcome::unknown(missing);
    }
    let Some((soname, copy)) = user_space(ctx) else {
        return Outcome::Clean;
    };
    let Some(version) = copy.version.value() else {
        return Outcome::Clean;
    };
    let other = ctx
        .libnvidia_ml()
        .filter(|c| c.path != copy.path && c.version.value().is_some_and(|v| v != loaded));
    if version == loaded && other.is_none() {
        return Outcome::Clean;
    }
    if let Some(reason) = ctx.place_unknown() {
        return Outcome::unknown(reason);
    }
    let (soname, copy, version) = if version == loaded {
        (
            "libnvidia-ml.so.1",
            other.unwrap_or(copy),
            other.and_then(|c| c.version.value()).unwrap_or(version),
        )
    } else {
        (soname, copy, version)
    };
    // The kernel compares the two strings in the first ioctl of cuInit: success there means that this libcuda fits.
    let only_nvml = soname == "libnvidia-ml.so.1";
    let severity = if ctx.cuda_works() || only_nvml {
        Severity::Warning
    } else {
        Severity::Error
    };
    let disk = core_modules(ctx).find_map(|m| m.version.value().map(|v| (v, m)));
    let container = ctx.in_container();
    let id = if container {
        "container-driver-mismatch"
    } else {
        "driver-library-mismatch"
    };
    let stray = disk.is_some_and(|(v, _)| v == loaded) || (disk.is_none() && version < loaded);
    let title = if container {
        format!("this container has {soname} {version}, and the host's kernel module is {loaded}")
    } else if stray {
        format!(
            "{soname} is {version}, and the loaded kernel module is {loaded}: these libraries are from elsewhere"
        )
    } else {
        format!(
            "the loaded kernel module is {loaded}, and {soname} is {version}: the driver was upgraded and the old module still runs"
        )
    };
    let mut finding = Finding::new(id, if container { Layer::Container } else { Layer::Driver }, severity, title)
        .component(if stray { soname } else { "nvidia.ko" })
        .detail("The kernel module answers only to user-space libraries of its very own version; others get CUDA error 803 and NVML error 18 (\"Driver/library version mismatch\"). A forward-compatibility libcuda is the one exception, and this is none.")
        .evidence("loaded kernel module", loaded.to_string(), ctx.facts.driver.loaded_version().map_or("", |(_, source)| source))
        .evidence(soname, version.to_string(), copy.real_path.clone())
        .source("NVIDIA open kernel modules: exact compare of version strings in osapi.c");
    finding = match disk {
        Some((v, module)) => {
            finding.evidence("kernel module on disk", v.to_string(), module.path.clone())
        }
        None => finding,
    };
    if let Some(by) = copy.reached_by.first() {
        finding = finding.evidence(
            format!("{soname} found by"),
            by.describe(),
            copy.path.clone(),
        );
    }
    if let Reading::Present { value, source } = &copy.package {
        finding = finding.evidence(
            format!("package of {soname}"),
            value.clone(),
            source.clone(),
        );
    }
    for copies in [&ctx.facts.driver.libcuda, &ctx.facts.driver.libnvidia_ml] {
        for broken in copies
            .items()
            .iter()
            .filter(|c| c.kind == crate::facts::FileKind::Empty)
        {
            finding = finding.evidence("empty file", broken.path.clone(), "0 bytes");
        }
    }
    for (call, answers, code, name) in [
        (
            "cuInit",
            ctx.cuda_answers(),
            ctx.cu_init(),
            cuda_code as fn(i64) -> String,
        ),
        ("nvmlInit", ctx.nvml_answers(), ctx.nvml_init(), nvml_code),
    ] {
        if let (Some(answers), Some(code)) = (answers, code.filter(|c| *c != 0)) {
            finding = finding.evidence(call, name(code), answers.path.clone());
        }
    }
    finding = with_kernel_log(ctx, finding, |l| l.contains("API mismatch"));
    Outcome::found([mismatch_fixes(
        ctx,
        finding,
        &loaded.to_string(),
        &version.to_string(),
        copy,
        stray,
    )])
}

/// What mends a mismatch depends on which side is old.
fn mismatch_fixes(
    ctx: &Ctx<'_>,
    finding: Finding,
    loaded: &str,
    version: &str,
    copy: &LibraryCopy,
    stray: bool,
) -> Finding {
    if ctx.in_container() {
        return crate::rules::container::mismatch_fixes(ctx, finding, loaded, copy);
    }
    let right_one = ctx
        .facts
        .driver
        .libcuda
        .items()
        .iter()
        .chain(ctx.facts.driver.libnvidia_ml.items())
        .any(|c| {
            !c.chosen
                && c.version.value().is_some_and(|v| v.to_string() == loaded)
                && c.reached_by.iter().any(crate::facts::ReachedBy::is_live)
        });
    let by_variable = copy.reached_by.iter().find_map(|by| match by {
        crate::facts::ReachedBy::LdLibraryPath(dir) => Some(dir),
        _ => None,
    });
    if let Some(dir) = by_variable.filter(|_| stray && right_one) {
        return finding.fix(Fix::at(Layer::Application, format!("remove {dir} from LD_LIBRARY_PATH: the libraries of {loaded} are installed, and found without it")).verify("gpudoctor"));
    }
    if stray {
        return finding.fix(verified(
            ctx,
            Fix::at(Layer::Driver, format!("remove the {version} libraries that are left over or from another installer ({}), install the user-space libraries of {loaded}, and run ldconfig", copy.real_path)).line("sudo ldconfig").cost("root"),
        )).fix(Fix::at(Layer::Driver, format!("or install the whole driver {version}, and reboot")).cost("root, reboot").second(format!("changes the driver from {loaded}")));
    }
    finding
        .fix(verified(ctx, Fix::at(Layer::Driver, format!("reboot, so that the module {version} is loaded")).line("sudo reboot").cost("reboot")))
        .fix(verified(
            ctx,
            Fix::at(Layer::Driver, "or unload the old modules and load the new ones, after everything that uses the GPU has ended")
                .line("sudo rmmod nvidia_drm nvidia_modeset nvidia_uvm nvidia && sudo modprobe nvidia")
                .cost("root, no GPU work running")
                .second("needs every process off the GPU, the display included"),
        ))
}

/// The loaded module fits user space, and the one on disk for this kernel is another: the next boot will break it.
pub(super) fn module_on_disk_differs(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() || ctx.in_container() {
        return Outcome::Clean;
    }
    let Some(loaded) = ctx.loaded_version() else {
        return Outcome::Clean;
    };
    let versions: Vec<_> = core_modules(ctx)
        .filter_map(|m| m.version.value().map(|v| (v, m)))
        .collect();
    let Some((disk, module)) = versions.first() else {
        let unread =
            core_modules(ctx).find_map(|m| missing("version of the module on disk", &m.version));
        return unread.map_or(Outcome::Clean, Outcome::unknown);
    };
    if versions.iter().any(|(v, _)| *v == loaded) {
        return Outcome::Clean;
    }
    Outcome::found([Finding::new("module-on-disk-differs", Layer::Driver, Severity::Warning, format!("the nvidia module on disk is {disk}, and {loaded} is loaded: the next boot changes the driver"))
        .component(file_name(&module.path))
        .detail("What runs now is not what will be loaded at the next boot. If user space is not of the same version as the module on disk by then, CUDA and NVML stop working.")
        .evidence("loaded kernel module", loaded.to_string(), ctx.facts.driver.loaded_version().map_or("", |(_, source)| source))
        .evidence("kernel module on disk", disk.to_string(), module.path.clone())
        .fix(verified(ctx, Fix::at(Layer::Driver, format!("reboot at a time of your choosing, and see that the user-space libraries are of version {disk} then")).cost("reboot")))])
}
