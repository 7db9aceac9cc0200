//! Device nodes: there, of the right number, with UVM behind them. NVIDIA's nodes are not made by the kernel's devtmpfs
//! but by udev rules, by nvidia-modprobe on first use, or by any CUDA program that root starts: a fresh boot without
//! them is healthy.

use crate::facts::{DriverGpu, Layer, Reading};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::{in_words, verified, with_cu_init, with_init_answers};
use crate::rules::{Ctx, Outcome, known, missing};

/// Major number of the control and GPU nodes (`nv-chardev-numbers.h` of the open kernel modules).
const NVIDIA_MAJOR: u32 = 195;

/// What will make missing nodes on first use, where something will.
fn made_on_first_use(ctx: &Ctx<'_>) -> Option<&'static str> {
    let forbidden = ctx
        .facts
        .driver
        .params
        .value()
        .and_then(|p| p.get("ModifyDeviceFiles"))
        .is_some_and(|v| v == "0");
    if forbidden {
        return None;
    }
    if ctx
        .facts
        .driver
        .nvidia_modprobe
        .value()
        .is_some_and(|m| m.setuid)
    {
        return Some("nvidia-modprobe (setuid) makes them on first use");
    }
    ctx.facts
        .system
        .user
        .value()
        .is_some_and(|u| u.uid == 0)
        .then_some("libcuda makes them when root starts a CUDA program")
}

/// The same where a node that CUDA needs is missing: a machine after boot that is healthy all the same.
pub(super) fn nodes_come_on_first_use(ctx: &Ctx<'_>) -> Option<&'static str> {
    let nodes = ctx.facts.driver.nodes.value()?;
    let is_there = |path: &str| nodes.iter().any(|n| n.path == path);
    let gpus = ctx.facts.driver.gpus.items().iter();
    let complete = is_there("/dev/nvidiactl")
        && is_there("/dev/nvidia-uvm")
        && gpus
            .filter(|g| !g.excluded)
            .filter_map(|g| g.minor)
            .all(|minor| is_there(&format!("/dev/nvidia{minor}")));
    if complete || !host_with_module(ctx) {
        return None;
    }
    made_on_first_use(ctx)
}

/// Whether this is a plain host with the module loaded: elsewhere missing nodes are the container's, or right.
fn host_with_module(ctx: &Ctx<'_>) -> bool {
    ctx.plain_linux() && !ctx.in_container() && ctx.module_loaded() == Some(true)
}

/// `/dev/nvidiactl` or a GPU's node is not there, and nothing will make it.
pub(super) fn device_node_missing(ctx: &Ctx<'_>) -> Outcome {
    if !host_with_module(ctx) {
        return Outcome::Clean;
    }
    if ctx.cuda_sees_all() || made_on_first_use(ctx).is_some() {
        return Outcome::Clean;
    }
    if let Some(reason) = missing("device nodes", &ctx.facts.driver.nodes)
        .or_else(|| missing("the user", &ctx.facts.system.user))
        .or_else(|| missing("nvidia-modprobe", &ctx.facts.driver.nvidia_modprobe))
        .or_else(|| ctx.place_unknown())
    {
        return Outcome::unknown(reason);
    }
    let mut wanted = vec!["/dev/nvidiactl".to_owned()];
    let gpus: Vec<&DriverGpu> = ctx
        .facts
        .driver
        .gpus
        .items()
        .iter()
        .filter(|g| !g.excluded)
        .collect();
    wanted.extend(
        gpus.iter()
            .filter_map(|g| g.minor)
            .map(|minor| format!("/dev/nvidia{minor}")),
    );
    let absent: Vec<String> = wanted
        .iter()
        .filter(|path| ctx.facts.driver.node(path).is_none())
        .cloned()
        .collect();
    if absent.is_empty() {
        return Outcome::Clean;
    }
    let all_gpus_gone =
        absent.contains(&"/dev/nvidiactl".to_owned()) || absent.len() + 1 == wanted.len();
    let mut finding = Finding::new(
        "device-node-missing",
        Layer::Driver,
        if all_gpus_gone { Severity::Error } else { Severity::Warning },
        format!("{} {} missing, and nothing here will make {}", in_words(&absent), if absent.len() == 1 { "is" } else { "are" }, if absent.len() == 1 { "it" } else { "them" }),
    )
    .component("/dev/nvidia*")
    .detail("The module is loaded, but the device nodes that programs open are not there. They are made by udev rules, by the setuid helper nvidia-modprobe on first use, or by a CUDA program that root starts.")
    .reading("loaded module", &ctx.facts.driver.sys_version)
    .reading("nvidia-modprobe", &ctx.facts.driver.nvidia_modprobe.clone().map(|m| format!("{}{}", m.path, if m.setuid { ", setuid" } else { ", not setuid" })));
    for path in &absent {
        finding = finding.evidence(path.clone(), "absent", "/dev");
    }
    if let Some(value) = ctx
        .facts
        .driver
        .params
        .value()
        .and_then(|p| p.get("ModifyDeviceFiles"))
    {
        finding = finding.evidence(
            "ModifyDeviceFiles",
            value.clone(),
            "/proc/driver/nvidia/params",
        );
    }
    let finding = with_cu_init(ctx, finding);
    Outcome::found([finding
        .fix(verified(ctx, Fix::at(Layer::Driver, "make the nodes now").line("sudo nvidia-modprobe -c 0 && sudo nvidia-modprobe -u -c 0").cost("root")))
        .fix(Fix::at(Layer::Driver, "install nvidia-modprobe (setuid root) or the distribution's udev rules, so that they are made at every boot").cost("root"))])
}

/// A node with a number that the kernel no longer answers to, or no device at all.
pub(super) fn device_node_wrong_major(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() || ctx.module_loaded() != Some(true) {
        return Outcome::Clean;
    }
    let nodes = known!(ctx.facts.driver.nodes, "device nodes");
    if let Some(reason) = missing("/proc/devices", &ctx.facts.driver.majors) {
        return Outcome::unknown(reason);
    }
    let right = |path: &str| -> Option<u32> {
        match path {
            "/dev/nvidia-uvm" | "/dev/nvidia-uvm-tools" => ctx.facts.driver.major_of("nvidia-uvm"),
            "/dev/nvidiactl" | "/dev/nvidia-modeset" => Some(NVIDIA_MAJOR),
            _ => path
                .strip_prefix("/dev/nvidia")
                .filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
                .map(|_| NVIDIA_MAJOR),
        }
    };
    let wrong: Vec<_> = nodes
        .iter()
        .filter_map(|n| {
            right(&n.path)
                .filter(|major| !n.is_char || n.major != *major)
                .map(|major| (n, major))
        })
        .collect();
    let needed = wrong
        .iter()
        .any(|(n, _)| crate::rules::system::needed_by_cuda(&n.path));
    let Some((first, major)) = wrong.first() else {
        return Outcome::Clean;
    };
    if ctx.cuda_sees_all() {
        return Outcome::Clean;
    }
    let title = if first.is_char {
        format!(
            "{} has major number {}, and the kernel's is {major}: the node is stale",
            first.path, first.major
        )
    } else {
        format!("{} is no character device", first.path)
    };
    let mut finding = Finding::new("device-node-wrong-major", if ctx.in_container() { Layer::Container } else { Layer::Driver }, if needed { Severity::Error } else { Severity::Warning }, title)
        .component(first.path.clone())
        .detail("The kernel gives UVM's major number anew at every load of the module. A node that was made before has the old number and opens nothing (ENXIO, ENODEV).")
        .source("NVIDIA open kernel modules: nv-chardev-numbers.h (195), uvm (dynamic major)");
    for (node, major) in &wrong {
        let is = if node.is_char {
            format!("{}:{}", node.major, node.minor)
        } else {
            "no character device".to_owned()
        };
        finding = finding
            .subject(node.path.clone())
            .evidence(node.path.clone(), is, "stat")
            .evidence(
                format!("major for {}", node.path),
                major.to_string(),
                if *major == NVIDIA_MAJOR {
                    "fixed in the kernel module"
                } else {
                    "/proc/devices"
                },
            );
        if let Some(result) = ctx.open_result(&node.path).filter(|r| *r != "ok") {
            finding = finding.evidence(format!("open {}", node.path), result, "open()");
        }
    }
    let paths: Vec<String> = wrong.iter().map(|(n, _)| n.path.clone()).collect();
    let mut words: Vec<&str> = vec!["sudo", "rm"];
    words.extend(paths.iter().map(String::as_str));
    let finding = with_cu_init(ctx, finding);
    Outcome::found([if ctx.in_container() {
        finding.fix(verified(
            ctx,
            Fix::at(
                Layer::Container,
                "start the container anew, so that it gets the host's present device nodes",
            )
            .cost("restart of the container"),
        ))
    } else {
        finding.fix(verified(
            ctx,
            Fix::at(
                Layer::Driver,
                "remove the stale nodes and have them made again",
            )
            .command(&words)
            .line("sudo nvidia-modprobe -c 0 && sudo nvidia-modprobe -u -c 0")
            .cost("root"),
        ))
    }])
}

/// UVM is not loaded on the host, which a container cannot do for it.
fn uvm_missing_on_host(ctx: &Ctx<'_>) -> Finding {
    let finding = Finding::new("uvm-missing", Layer::Driver, Severity::Error, "nvidia_uvm is not loaded on the host, so that this container has no /dev/nvidia-uvm and CUDA cannot start")
        .complaining(Layer::Runtime)
        .component("nvidia-uvm.ko")
        .detail("CUDA needs unified virtual memory, NVML does not: nvidia-smi shows a healthy GPU while cuInit fails with 999 or 100. A container can neither load the module nor make its node; both are the host's, and the node comes in when the container is started.")
        .evidence("module nvidia_uvm", "not loaded", ctx.facts.driver.modules.source())
        .evidence("major of nvidia-uvm", "none", ctx.facts.driver.majors.source())
        .evidence("/dev/nvidia-uvm", "absent", "/dev");
    with_init_answers(ctx, finding)
        .fix(verified(
            ctx,
            Fix::at(
                Layer::Driver,
                "on the host, load the module and make its node; then start the container anew",
            )
            .line("sudo modprobe nvidia_uvm && sudo nvidia-modprobe -u -c 0")
            .cost("root on the host, restart of the container"),
        ))
        .fix(
            Fix::at(Layer::Driver, "on the host, have it loaded at every boot")
                .line("echo nvidia_uvm | sudo tee /etc/modules-load.d/nvidia-uvm.conf")
                .cost("root on the host"),
        )
}

/// UVM: NVML works without it, CUDA does not.
pub(super) fn uvm_missing(ctx: &Ctx<'_>) -> Outcome {
    if ctx.host_lacks_uvm() {
        return Outcome::found([uvm_missing_on_host(ctx)]);
    }
    if !host_with_module(ctx) || ctx.cuda_works() || ctx.gpus().next().is_none() {
        return Outcome::Clean;
    }
    let modules = known!(ctx.facts.driver.modules, "kernel modules");
    if let Some(reason) = missing("device nodes", &ctx.facts.driver.nodes) {
        return Outcome::unknown(reason);
    }
    let loaded = modules
        .iter()
        .any(|m| m.name == "nvidia_uvm" || m.name == "nvidia_current_uvm")
        || ctx.facts.driver.major_of("nvidia-uvm").is_some();
    let node = ctx.facts.driver.node("/dev/nvidia-uvm").is_some();
    if loaded && node || made_on_first_use(ctx).is_some() {
        return Outcome::Clean;
    }
    if let Some(reason) = missing("the user", &ctx.facts.system.user)
        .or_else(|| missing("nvidia-modprobe", &ctx.facts.driver.nvidia_modprobe))
        .or_else(|| ctx.place_unknown())
    {
        return Outcome::unknown(reason);
    }
    let title = match (loaded, node) {
        (false, false) => {
            "nvidia_uvm is not loaded and /dev/nvidia-uvm is missing, so CUDA cannot start"
        }
        (false, true) => "nvidia_uvm is not loaded, so CUDA cannot start",
        _ => "/dev/nvidia-uvm is missing, so CUDA cannot start",
    };
    let mut finding = Finding::new("uvm-missing", Layer::Driver, Severity::Error, title)
        .component("nvidia-uvm.ko")
        .detail("CUDA needs unified virtual memory, NVML does not: nvidia-smi shows a healthy GPU while cuInit fails with 999 or 100. Nothing on this machine (no setuid nvidia-modprobe) loads the module on first use.")
        .evidence("module nvidia_uvm", if loaded { "loaded" } else { "not loaded" }, ctx.facts.driver.modules.source())
        .evidence("/dev/nvidia-uvm", if node { "present" } else { "absent" }, "/dev")
        .reading("nvidia-modprobe", &ctx.facts.driver.nvidia_modprobe.clone().map(|m| format!("{}{}", m.path, if m.setuid { ", setuid" } else { ", not setuid" })));
    if let Some(module) = ctx
        .facts
        .driver
        .disk_modules
        .items()
        .iter()
        .find(|m| m.name.contains("uvm"))
    {
        finding = finding.evidence(
            "module on disk",
            module.path.clone(),
            "modules.dep or module folder",
        );
    }
    finding = with_init_answers(ctx, finding);
    if let Reading::Present { value, .. } = &ctx.facts.driver.libcuda {
        finding = finding.evidence(
            "libcuda",
            value
                .iter()
                .find(|c| c.chosen)
                .map_or("none", |c| c.real_path.as_str()),
            "the loader's search",
        );
    }
    Outcome::found([finding
        .fix(verified(
            ctx,
            Fix::at(Layer::Driver, "load the module and make its node")
                .line("sudo modprobe nvidia_uvm")
                .line("sudo nvidia-modprobe -u -c 0")
                .cost("root"),
        ))
        .fix(
            Fix::at(Layer::Driver, "have it loaded at every boot")
                .line("echo nvidia_uvm | sudo tee /etc/modules-load.d/nvidia-uvm.conf")
                .cost("root"),
        )])
}
