//! What a loaded module needs besides itself: GSP firmware, nobody who excludes the GPU, and the nodes of MIG instances.

use crate::facts::{Flavour, Layer, Reading};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::{in_words, verified, with_cu_init};
use crate::rules::{Ctx, Outcome, known, missing};

/// Whether this is a plain host whose module is loaded and whose CUDA does not work as far as was asked.
fn host_in_trouble(ctx: &Ctx<'_>) -> bool {
    ctx.plain_linux()
        && !ctx.in_container()
        && ctx.module_loaded() == Some(true)
        && !ctx.cuda_works()
}

/// Error where CUDA was asked and failed; without that the files alone are a warning.
fn severity(ctx: &Ctx<'_>) -> Severity {
    if ctx.cu_init().is_some_and(|code| code != 0) {
        Severity::Error
    } else {
        Severity::Warning
    }
}

/// Whether this driver runs the GPU's own processor: the open module always does.
fn needs_gsp(ctx: &Ctx<'_>) -> bool {
    ctx.facts.driver.loaded_flavour() == Some(Flavour::Open)
}

/// The firmware of exactly this driver version is not on disk.
pub(super) fn gsp_firmware_missing(ctx: &Ctx<'_>) -> Outcome {
    if !host_in_trouble(ctx) || !needs_gsp(ctx) {
        return Outcome::Clean;
    }
    let Some(version) = ctx.loaded_version() else {
        return Outcome::Clean;
    };
    if let Some(reason) = missing("GSP firmware", &ctx.facts.driver.gsp_firmware) {
        return Outcome::unknown(reason);
    }
    // A GPU whose firmware runs shows its version: then the file was found wherever the kernel looks for it.
    let runs = ctx
        .facts
        .driver
        .gpus
        .items()
        .iter()
        .any(|g| !g.firmware.is_empty() && g.firmware != "N/A");
    let folders = ctx.facts.driver.gsp_firmware.items();
    let there = folders
        .iter()
        .any(|f| f.version == version.as_str() && !f.files.is_empty());
    let said = ctx.facts.driver.kernel_log.items().iter().rev().find(|l| {
        let line = l.to_lowercase();
        line.contains("gsp")
            && ["fail", "missing", "not found", "unable"]
                .iter()
                .any(|word| line.contains(word))
    });
    // No folder of this vendor at all says nothing: firmware may lie where only the kernel was told to look.
    if runs || there || (folders.is_empty() && said.is_none()) {
        return Outcome::Clean;
    }
    let others: Vec<String> = folders
        .iter()
        .filter(|f| !f.files.is_empty())
        .map(|f| f.version.clone())
        .collect();
    let mut finding = Finding::new("gsp-firmware-missing", Layer::Driver, severity(ctx), format!("the GSP firmware of driver {version} is missing, and the open kernel module cannot start a GPU without it"))
        .complaining(Layer::Runtime)
        .component("gsp_ga10x.bin, gsp_tu10x.bin")
        .detail("The open kernel module hands the GPU over to its own processor (GSP), which runs firmware of exactly the module's version. The module loads without it and fails when the GPU is used.")
        .evidence("loaded kernel module", format!("{version} (open)"), ctx.facts.driver.proc_version.source())
        .evidence(format!("/lib/firmware/nvidia/{version}"), "no gsp*.bin", ctx.facts.driver.gsp_firmware.source());
    if !others.is_empty() {
        finding = finding.evidence(
            "firmware of other versions",
            in_words(&others),
            ctx.facts.driver.gsp_firmware.source(),
        );
    }
    if let Some(line) = said {
        finding = finding.evidence(
            "kernel log",
            line.clone(),
            ctx.facts.driver.kernel_log.source(),
        );
    }
    let finding = with_cu_init(ctx, finding);
    Outcome::found([finding.fix(verified(
        ctx,
        Fix::at(Layer::Driver, format!("install the firmware of driver {version} (package firmware-nvidia-gsp, nvidia-firmware or linux-firmware-nvidia, by distribution), and reload the module or reboot")).cost("root, reboot"),
    ))])
}

/// The open module with its firmware switched off.
pub(super) fn gsp_firmware_disabled(ctx: &Ctx<'_>) -> Outcome {
    if !host_in_trouble(ctx) || !needs_gsp(ctx) {
        return Outcome::Clean;
    }
    let params = known!(ctx.facts.driver.params, "/proc/driver/nvidia/params");
    if params.get("EnableGpuFirmware").map(String::as_str) != Some("0") {
        return Outcome::Clean;
    }
    let mut finding = Finding::new("gsp-firmware-disabled", Layer::Driver, severity(ctx), "the open kernel module runs with EnableGpuFirmware=0, and cannot start a GPU without its firmware")
        .complaining(Layer::Runtime)
        .component("nvidia.ko")
        .detail("The option switches the GPU's own processor off. The proprietary module can do without it on GPUs before Blackwell; the open one cannot.")
        .evidence("EnableGpuFirmware", "0", ctx.facts.driver.params.source())
        .evidence("flavour of the module", "open", ctx.facts.driver.proc_version.source());
    for line in ctx
        .facts
        .driver
        .modprobe
        .items()
        .iter()
        .filter(|l| l.text.contains("NVreg_EnableGpuFirmware"))
    {
        finding = finding.evidence("module option", line.text.clone(), line.file.clone());
    }
    let finding = with_cu_init(ctx, finding);
    Outcome::found([finding.fix(verified(ctx, Fix::at(Layer::Driver, "remove NVreg_EnableGpuFirmware=0 from modprobe.d or the kernel command line, and reload the module or reboot").cost("root, reboot")))])
}

/// GPUs that an option excludes.
pub(super) fn gpu_excluded(ctx: &Ctx<'_>) -> Outcome {
    if ctx.module_loaded() != Some(true) {
        return Outcome::Clean;
    }
    let gpus = known!(ctx.facts.driver.gpus, "GPUs of the driver");
    let excluded: Vec<_> = gpus.iter().filter(|g| g.excluded).collect();
    if excluded.is_empty() {
        return Outcome::Clean;
    }
    let all = excluded.len() == gpus.len() && !ctx.cuda_works();
    let names: Vec<String> = excluded
        .iter()
        .map(|g| {
            format!(
                "{} at {}",
                if g.model.is_empty() { "GPU" } else { &g.model },
                g.address
            )
        })
        .collect();
    let mut finding = Finding::new("gpu-excluded", Layer::Driver, if all { Severity::Error } else { Severity::Note }, format!("the driver was told to leave out {}", in_words(&names)))
        .complaining(Layer::Runtime)
        .component("nvidia.ko")
        .detail("A module option excludes these GPUs: the driver knows them and does not use them. That is a choice somebody made, and the reason why they are missing in nvidia-smi and CUDA.");
    for gpu in &excluded {
        finding = finding.subject(gpu.address.clone()).evidence(
            gpu.address.clone(),
            "GPU Excluded: Yes",
            format!("/proc/driver/nvidia/gpus/{}/information", gpu.address),
        );
    }
    for name in ["ExcludedGpus", "GpuBlacklist"] {
        if let Some(value) = ctx
            .facts
            .driver
            .params
            .value()
            .and_then(|p| p.get(name))
            .filter(|v| !v.trim_matches('"').is_empty())
        {
            finding = finding.evidence(name, value.clone(), ctx.facts.driver.params.source());
        }
    }
    Outcome::found([finding.fix(verified(ctx, Fix::at(Layer::Driver, "remove the GPU from NVreg_ExcludedGpus (NVreg_GpuBlacklist on old branches), and reload the module or reboot").cost("root, reboot")))])
}

/// A MIG instance whose capability node is not there or not readable: CUDA then sees no device.
pub(super) fn mig_device_node_missing(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux()
        || ctx.module_loaded() != Some(true)
        || ctx.cuda_works()
        || ctx.cu_init().is_none()
    {
        return Outcome::Clean;
    }
    let instances = known!(ctx.facts.driver.mig_instances, "MIG instances");
    let user = ctx.facts.system.user.value();
    let path = |minor: u32| format!("/dev/nvidia-caps/nvidia-cap{minor}");
    let lacking: Vec<(String, &str, &str)> = instances
        .iter()
        .filter_map(|instance| {
            let path = path(instance.minor);
            match ctx.facts.driver.node(&path) {
                None => Some((path, instance.name.as_str(), "absent")),
                // A capability is proved by reading its node.
                Some(node) if user.is_some_and(|u| !u.may_read(node.mode, node.uid, node.gid)) => {
                    Some((path, instance.name.as_str(), "not readable for this user"))
                }
                Some(_) => None,
            }
        })
        .collect();
    // One instance that is whole is enough for CUDA to see a device.
    let whole = instances.len() > lacking.len()
        && instances
            .iter()
            .any(|i| !i.name.contains("/ci") && lacking.iter().all(|(p, ..)| *p != path(i.minor)));
    let Some((first, name, state)) = lacking
        .first()
        .filter(|_| !whole || ctx.cu_init() == Some(100))
    else {
        return Outcome::Clean;
    };
    if made_on_demand(ctx) && *state == "absent" {
        return Outcome::Clean;
    }
    let layer = if ctx.in_container() {
        Layer::Container
    } else {
        Layer::Driver
    };
    let mut finding = Finding::new("mig-device-node-missing", layer, Severity::Error, format!("the MIG instance {name} cannot be used: {first} is {state}"))
        .complaining(Layer::Runtime)
        .component("/dev/nvidia-caps")
        .detail("A process may use a MIG instance if it can read two capability nodes: that of the GPU instance and that of the compute instance. Without them NVML shows the GPU, and CUDA sees no device.");
    for (path, name, state) in &lacking {
        finding = finding.evidence(
            path.clone(),
            format!("{state} (for {name})"),
            "/proc/driver/nvidia/capabilities, /dev/nvidia-caps",
        );
    }
    let finding = with_cu_init(ctx, finding);
    let fix = if ctx.in_container() {
        Fix::at(Layer::Container, "give the container the MIG instance by its UUID (NVIDIA_VISIBLE_DEVICES=MIG-..., --device nvidia.com/gpu=...), so that both nodes come in").cost("restart of the container")
    } else if *state == "absent" {
        Fix::at(Layer::Driver, "make the capability nodes")
            .line(format!(
                "sudo nvidia-modprobe -f {}",
                ctx.facts
                    .driver
                    .mig_instances
                    .items()
                    .iter()
                    .find(|i| path(i.minor) == *first)
                    .map_or("", |i| i.source.as_str())
            ))
            .cost("root")
    } else {
        Fix::at(Layer::System, "let this user read the nodes in /dev/nvidia-caps (mode 0444 is the driver's default for instances)").cost("root")
    };
    Outcome::found([finding.fix(verified(ctx, fix))])
}

/// Whether the setuid helper makes missing capability nodes.
fn made_on_demand(ctx: &Ctx<'_>) -> bool {
    matches!(&ctx.facts.driver.nvidia_modprobe, Reading::Present { value, .. } if value.setuid)
}
