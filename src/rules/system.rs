//! Rules whose fault lies in the system layer: Secure Boot, users and groups, confinement of the process.

use super::container::with_group;
use super::drm;
use super::stack::{cuda_code, in_words, verified, with_cu_init};
use super::{Ctx, Need, Outcome, Rule, known, missing};
use crate::facts::{DeviceNode, DiskModule, Layer, Reading};
use crate::finding::{Finding, Fix, Severity, shell_line};

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "address-space-limit",
        layer: Layer::System,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/address-space-limit.md"),
        check: address_space_limit,
    },
    Rule {
        id: "device-node-eperm",
        layer: Layer::System,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/device-node-eperm.md"),
        check: device_node_eperm,
    },
    Rule {
        id: "device-node-permission",
        layer: Layer::System,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/device-node-permission.md"),
        check: device_node_permission,
    },
    Rule {
        id: "module-refused-by-secure-boot",
        layer: Layer::System,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/module-refused-by-secure-boot.md"),
        check: module_refused_by_secure_boot,
    },
];

/// Nodes that CUDA opens on a Jetson: the memory manager's, which reading is enough for, and the GPU's, before and from
/// Jetson Linux 36 on.
const TEGRA_NODES: [&str; 3] = ["/dev/nvmap", "/dev/nvhost-gpu", "/dev/nvgpu/igpu0/ctrl"];

/// Whether a node is one that every CUDA program needs: the control device, a GPU, UVM; on a Jetson its own.
pub(super) fn needed_by_cuda(path: &str) -> bool {
    matches!(path, "/dev/nvidiactl" | "/dev/nvidia-uvm")
        || TEGRA_NODES.contains(&path)
        || path
            .strip_prefix("/dev/nvidia")
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Nodes that CUDA needs and whose `open()` gave this errno.
fn refused<'a>(ctx: &'a Ctx<'_>, errno: &str) -> Vec<&'a DeviceNode> {
    ctx.facts
        .driver
        .nodes
        .items()
        .iter()
        .filter(|n| needed_by_cuda(&n.path) && ctx.open_result(&n.path) == Some(errno))
        .collect()
}

/// Whether losing these nodes breaks every way to a GPU, or only some GPUs.
fn severity_of(ctx: &Ctx<'_>, nodes: &[&DeviceNode]) -> Severity {
    let shared = nodes.iter().any(|n| {
        let path = n.path.as_str();
        matches!(path, "/dev/nvidiactl" | "/dev/nvidia-uvm") || TEGRA_NODES.contains(&path)
    });
    let gpus = |node: &&&DeviceNode| node.path.bytes().last().is_some_and(|b| b.is_ascii_digit());
    let all = ctx
        .facts
        .driver
        .nodes
        .items()
        .iter()
        .filter(|n| needed_by_cuda(&n.path))
        .collect::<Vec<_>>();
    if shared || nodes.iter().filter(gpus).count() == all.iter().filter(gpus).count() {
        Severity::Error
    } else {
        Severity::Warning
    }
}

/// EPERM although the mode bits allow it: a device cgroup. On a host that is a systemd unit's doing.
fn device_node_eperm(ctx: &Ctx<'_>) -> Outcome {
    if ctx.in_container() || !ctx.calls_made() || ctx.cuda_works() {
        return Outcome::Clean;
    }
    if let Reading::Unreadable { reason } = &ctx.facts.vendor.opens {
        return Outcome::unknown(format!("open() of the device nodes: {reason}"));
    }
    let mut nodes = refused(ctx, "EPERM");
    // EACCES although the mode bits allow it: a mount without devices, or a security module.
    let user = ctx.facts.system.user.value();
    nodes.extend(refused(ctx, "EACCES").into_iter().filter(|n| {
        user.is_some_and(|u| u.may_read_write(n.mode, n.uid, n.gid)) && !ctx.asked_as_nobody()
    }));
    let Some(first) = nodes.first() else {
        return Outcome::Clean;
    };
    let errno = ctx.open_result(&first.path).unwrap_or("EPERM");
    let paths: Vec<String> = nodes.iter().map(|n| n.path.clone()).collect();
    let mut finding = Finding::new(
        "device-node-eperm",
        Layer::System,
        severity_of(ctx, &nodes),
        format!("{} cannot be opened ({errno}) although mode {:04o} allows it: {} forbids it", in_words(&paths), first.mode, if errno == "EPERM" { "a device cgroup" } else { "a mount without devices or a security module" }),
    )
    .complaining(Layer::Driver)
    .component(if errno == "EPERM" { "device cgroup" } else { "mount or security module" })
    .detail("The refusal does not come from the mode bits. Outside a container, EPERM is the device list of a systemd unit (PrivateDevices=, DevicePolicy=) or of a batch system that this process runs under; EACCES is a file system mounted with nodev, or SELinux or AppArmor.");
    for node in &nodes {
        finding = finding.evidence(
            format!("open {}", node.path),
            ctx.open_result(&node.path).unwrap_or(errno),
            format!(
                "open(); mode {:04o}, owner {}:{}",
                node.mode, node.uid, node.gid
            ),
        );
    }
    let service = ctx.facts.system.unit.value().filter(|unit| {
        unit.rsplit_once('.')
            .is_some_and(|(_, kind)| kind == "service")
    });
    if let Some(unit) = service {
        finding = finding.evidence(
            "this process belongs to",
            unit.clone(),
            ctx.facts.system.unit.source(),
        );
    }
    let finding = with_cu_init(ctx, finding);
    Outcome::found([finding.fix(verified(
        ctx,
        Fix::at(
            Layer::System,
            "let the unit or job that starts this process use the devices: drop PrivateDevices=yes, or add DeviceAllow= lines for /dev/nvidiactl, /dev/nvidia-uvm and the GPUs; under a batch system, ask for a GPU",
        ),
    ))])
}

/// The group of what is not mapped into a user namespace (`/proc/sys/kernel/overflowgid`).
const UNMAPPED: u32 = 65534;

/// EACCES: mode bits and groups.
fn device_node_permission(ctx: &Ctx<'_>) -> Outcome {
    let user = match &ctx.facts.system.user {
        Reading::Present { value, .. } => value,
        Reading::Absent { .. } => return Outcome::Clean,
        Reading::Unreadable { reason } => return Outcome::unknown(format!("the user: {reason}")),
    };
    let all = known!(ctx.facts.driver.nodes, "device nodes");
    let nodes: Vec<&DeviceNode> = all
        .iter()
        .filter(|n| needed_by_cuda(&n.path))
        .filter(|n| {
            let may = if TEGRA_NODES.contains(&n.path.as_str()) {
                user.may_read(n.mode, n.uid, n.gid)
            } else {
                user.may_read_write(n.mode, n.uid, n.gid)
            };
            match ctx.open_result(&n.path) {
                Some(result) if !ctx.asked_as_nobody() => result == "EACCES" && !may,
                _ => n.is_char && !may && n.acl.value() != Some(&true),
            }
        })
        .collect();
    let Some(first) = nodes.first() else {
        return Outcome::Clean;
    };
    let no_driver = ctx.plain_linux() && ctx.module_loaded() == Some(false);
    if ctx.cuda_sees_all() || no_driver || ctx.on_tegra() && ctx.cuda_works() {
        return Outcome::Clean;
    }
    let paths: Vec<String> = nodes.iter().map(|n| n.path.clone()).collect();
    let group = drm::group_name(ctx, first).cloned();
    let group_text = drm::group(ctx, first);
    let in_group = user.gid == first.gid || user.groups.contains(&first.gid);
    let grants_group = first.mode & 0o060 == 0o060;
    let mut finding = Finding::new(
        "device-node-permission",
        if ctx.in_container() { Layer::Container } else { Layer::System },
        // Where CUDA works on the others, the GPUs may be shared out by group on purpose.
        if ctx.cuda_works() { Severity::Note } else { severity_of(ctx, &nodes) },
        format!("{} {} mode {:04o} with group {group_text}, and this user may not open {}", in_words(&paths), if nodes.len() == 1 { "has" } else { "have" }, first.mode, if nodes.len() == 1 { "it" } else { "them" }),
    )
    .complaining(Layer::Driver)
    .component(first.path.clone())
    .detail("The device nodes of the driver are restricted by mode and group. Root sees the GPU, this user does not.");
    finding = drm::with_nodes(ctx, finding, &nodes, |path| ctx.open_result(path).is_some());
    if let Some(mode) = ctx
        .facts
        .driver
        .params
        .value()
        .and_then(|p| p.get("DeviceFileMode"))
    {
        // Printed in decimal: 432 is 0660.
        if let Ok(mode) = mode.parse::<u32>() {
            finding = finding.evidence(
                "DeviceFileMode",
                format!("{mode:04o}"),
                "/proc/driver/nvidia/params",
            );
        }
    }
    for line in ctx
        .facts
        .driver
        .modprobe
        .items()
        .iter()
        .filter(|l| l.text.contains("NVreg_DeviceFile"))
        .take(2)
    {
        finding = finding.evidence("module option", line.text.clone(), line.file.clone());
    }
    let finding = with_cu_init(ctx, finding);
    let mode_fix = if ctx.on_tegra() {
        Fix::at(
            Layer::System,
            "start the container with the group of the nodes as well: docker run --group-add video",
        )
        .cost("restart of the container")
    } else {
        let place = if ctx.in_container() {
            "on the host, "
        } else {
            ""
        };
        Fix::at(Layer::Driver, format!("{place}let everybody use the GPU again: remove the NVreg_DeviceFileMode, NVreg_DeviceFileUID and NVreg_DeviceFileGID options (the default mode is 0666) and reload the module")).cost("root, reload of the module")
    };
    let by_group = grants_group && first.gid != 0 && !in_group;
    // A group that is not mapped into this container is shown as nobody's.
    let finding = if by_group && ctx.in_container() && first.gid != UNMAPPED {
        let finding = finding.fix(with_group(ctx, first.gid));
        if ctx.on_tegra() {
            finding
        } else {
            finding.fix(verified(
                ctx,
                mode_fix.second("opens the GPU to every user of the host"),
            ))
        }
    } else if by_group && !ctx.in_container() {
        let name = group.unwrap_or_else(|| first.gid.to_string());
        finding
            .fix(verified(
                ctx,
                Fix::at(
                    Layer::System,
                    format!("add the user to group {name} and log in anew"),
                )
                .line(format!(
                    "sudo usermod -aG {} \"$USER\"",
                    shell_line(&[&name])
                ))
                .cost("root, new login"),
            ))
            .fix(mode_fix.second(if ctx.on_tegra() {
                "for what runs in a container"
            } else {
                "opens the GPU to every user of the machine"
            }))
    } else {
        finding.fix(verified(ctx, mode_fix))
    };
    Outcome::found([finding])
}

/// `CUDA_ERROR_OUT_OF_MEMORY` of cuda.h.
const OUT_OF_MEMORY: i64 = 2;
/// Less locked memory than this is less than any distribution's default (64 KiB is the kernel's own).
const LOCKED_ENOUGH: u64 = 64 << 10;

/// A limit of the process keeps cuInit from reserving address space, or from locking the little memory it needs.
fn address_space_limit(ctx: &Ctx<'_>) -> Outcome {
    if ctx.cu_init() != Some(OUT_OF_MEMORY) {
        return Outcome::Clean;
    }
    let limits = known!(ctx.facts.system.limits, "limits of the process");
    let locked = limits.locked_bytes.filter(|most| *most < LOCKED_ENOUGH);
    let (what, option, bytes) = match (limits.address_space_bytes, locked) {
        (Some(bytes), _) => ("address space", "-v", bytes),
        (None, Some(bytes)) => ("locked memory", "-l", bytes),
        (None, None) => return Outcome::Clean,
    };
    let shown = |limit: Option<u64>| {
        limit.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{bytes} bytes"))
    };
    let source = ctx.facts.system.limits.source();
    Outcome::found([Finding::new("address-space-limit", Layer::System, Severity::Error, format!("the process may have {} MiB of {what} only (ulimit {option}), so cuInit fails", bytes >> 20))
        .complaining(Layer::Runtime)
        .component(format!("ulimit {option}"))
        .detail("CUDA reserves address space for all memory of host and GPUs when it starts, far more than it ever uses: with a limit on it there is no room. Memory in use is limited by a control group, not by this.")
        .evidence("cuInit", cuda_code(OUT_OF_MEMORY), ctx.cuda_answers().map_or("", |a| a.path.as_str()))
        .evidence("address space", shown(limits.address_space_bytes), source)
        .evidence("locked memory", shown(limits.locked_bytes), source)
        .source("CUDA programming guide: unified virtual addressing")
        .fix(verified(ctx, Fix::at(Layer::System, "lift the limit where the program is started: the shell's ulimit, LimitAS= or LimitMEMLOCK= of a systemd unit, limits.conf, the job scheduler").line(format!("ulimit {option} unlimited"))))])
}

/// Signers whose keys distributions build into their kernels: a module of theirs loads under Secure Boot without any
/// owner key. By their names in the signer field of shipped modules.
const DISTRIBUTION_SIGNERS: &[&str] = &[
    "Canonical",
    "Red Hat",
    "Fedora",
    "SUSE",
    "openSUSE",
    "Debian Secure Boot",
    "Oracle",
    "AlmaLinux",
    "Rocky",
    "CentOS",
    "Build time autogenerated",
    "Amazon",
    "Google",
    "Microsoft",
];

/// What the kernel's log says when a signature is refused.
const REFUSALS: &[&str] = &[
    "Key was rejected by service",
    "Required key not available",
    "unsigned module loading is restricted",
    "Loading of unsigned module is rejected",
    "Loading of module with unavailable key is rejected",
];

/// The module is on disk, Secure Boot is on, and its signature is missing or by a key that the kernel does not have.
fn module_refused_by_secure_boot(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux()
        || ctx.in_container()
        || ctx.module_loaded() != Some(false)
        || ctx.gpus().next().is_none()
    {
        return Outcome::Clean;
    }
    let system = &ctx.facts.system;
    if let Some(missing) = missing("Secure Boot", &system.secure_boot) {
        return Outcome::unknown(missing);
    }
    let secure_boot = system.secure_boot.value() == Some(&true);
    let enforced = system.sig_enforce.value() == Some(&true)
        || system.lockdown.value().is_some_and(|mode| mode != "none");
    if !(secure_boot || enforced) || system.shim_validation_disabled.value() == Some(&true) {
        return Outcome::Clean;
    }
    let modules = known!(ctx.facts.driver.disk_modules, "nvidia module on disk");
    let Some(module) = modules.iter().find(|m| m.is_core()) else {
        return Outcome::Clean;
    };
    if let Some(missing) = missing("the module's signature", &module.signer) {
        return Outcome::unknown(missing);
    }
    // Most of these lines do not say which module was refused: they confirm, and decide only where they name ours.
    let log = ctx
        .facts
        .driver
        .kernel_log
        .items()
        .iter()
        .rev()
        .find(|line| REFUSALS.iter().any(|text| line.contains(text)));
    let names_ours = log.is_some_and(|line| line.contains("nvidia"));
    let by_distribution = module
        .signer
        .value()
        .is_some_and(|signer| DISTRIBUTION_SIGNERS.iter().any(|d| signer.contains(d)));
    // Owner keys reach the kernel through shim's list, and land in the .machine ring (kernels from 5.18).
    let no_owner_keys = system.machine_keys.value() == Some(&0)
        || (system.mok_list.is_absent() && !system.machine_keys.is_present());
    let unsigned = module.signer.is_absent();
    if !(unsigned || names_ours || (no_owner_keys && !by_distribution)) {
        return Outcome::Clean;
    }
    Outcome::found([secure_boot_finding(ctx, module, unsigned, log)])
}

fn secure_boot_finding(
    ctx: &Ctx<'_>,
    module: &DiskModule,
    unsigned: bool,
    log: Option<&String>,
) -> Finding {
    let system = &ctx.facts.system;
    let why = if unsigned {
        "it is not signed"
    } else {
        "its signing key is not in the kernel's keyrings (not enrolled, or not booted through shim)"
    };
    let who = if system.secure_boot.value() == Some(&true) {
        "Secure Boot"
    } else {
        "the kernel's signature check (lockdown)"
    };
    let mut finding = Finding::new("module-refused-by-secure-boot", Layer::System, Severity::Error, format!("{who} refuses {}: {why}", crate::sysroot::file_name(&module.path)))
        .complaining(Layer::Driver)
        .component(crate::sysroot::file_name(&module.path))
        .detail("Under Secure Boot the kernel loads only modules that are signed by a key it trusts. A module built on this machine is signed with a machine owner key, which has to be enrolled once in the firmware's boot dialogue.")
        .reading("Secure Boot", &system.secure_boot)
        .reading("kernel lockdown", &system.lockdown)
        .reading("module on disk", &Reading::present(module.path.clone(), "modules.dep or module folder"))
        .reading("signer of the module", &module.signer)
        .reading("keys in the .machine keyring", &system.machine_keys)
        .reading("owner keys handed over by shim", &system.mok_list)
        .source("Linux kernel: module signing facility, lockdown");
    if let Some(line) = log {
        finding = finding.evidence(
            "kernel log",
            line.clone(),
            ctx.facts.driver.kernel_log.source(),
        );
    }
    let enrol = Fix::at(Layer::System, "enrol the key that the modules are signed with: request it (mokutil --import with DKMS's public key), reboot, and confirm in the blue MOK dialogue; boot through shim").cost("root, reboot, console access");
    finding
        .fix(verified(ctx, enrol))
        .fix(
            Fix::at(
                Layer::System,
                "use the distribution's own signed driver modules, where it has them",
            )
            .second("ties the driver version to what the distribution signs"),
        )
        .fix(
            Fix::at(Layer::System, "switch Secure Boot off in the firmware")
                .cost("reboot, console access")
                .second("gives up the protection"),
        )
}
