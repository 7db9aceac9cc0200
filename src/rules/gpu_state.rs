//! The state that each GPU is in, as NVML and the bus tell it: MIG, memory repairs, compute mode, persistence, link width, and
//! what the kernel log holds against it. The tables of the hardware and driver layers point here.

use super::stack::{in_words, verified, with_cu_init};
use super::{Ctx, Outcome, missing};
use crate::facts::{Calls, ChildEnd, DeviceAnswer, Layer, PciDevice};
use crate::finding::{Finding, Fix, Severity};
use crate::read::proc::{Xid, xid};

/// `nvmlComputeMode_t` of nvml.h.
const EXCLUSIVE_THREAD: u32 = 1;
const PROHIBITED: u32 = 2;
const EXCLUSIVE_PROCESS: u32 = 3;

/// GPUs as NVML answers for them, where it was asked; else the outcome of a rule that needs them.
fn answered<'a>(ctx: &'a Ctx<'_>) -> Result<Vec<&'a DeviceAnswer>, Outcome> {
    // Without a driver there is nobody to ask, and a GPU that sleeps is let sleep: neither leaves a question open.
    let nobody = ctx.plain_linux() && ctx.module_loaded() == Some(false)
        || ctx.facts.scope.calls == Calls::Asleep;
    if nobody {
        return Err(Outcome::Clean);
    }
    if let Some(missing) = missing("NVML", &ctx.facts.vendor.libnvidia_ml) {
        return Err(Outcome::unknown(missing));
    }
    let devices = ctx.nvml_answers().map_or(&[][..], |a| &a.devices);
    Ok(devices.iter().filter(|d| d.code == 0).collect())
}

/// "GPU 2 (NVIDIA A100 at 0000:41:00.0)".
fn called(device: &DeviceAnswer) -> String {
    let index = device.index;
    match (&device.name, &device.address) {
        (Some(name), Some(address)) => format!("GPU {index} ({name} at {address})"),
        (Some(name), None) => format!("GPU {index} ({name})"),
        _ => format!("GPU {index}"),
    }
}

/// The GPUs in words: by name where they are few, else by number.
fn all_called(devices: &[&DeviceAnswer]) -> String {
    let short: Vec<String> = devices.iter().map(|d| d.index.to_string()).collect();
    match devices {
        [one] => called(one),
        _ => format!("GPUs {}", in_words(&short)),
    }
}

/// Where NVML's answers were had from.
fn nvml_source(ctx: &Ctx<'_>, call: &str) -> String {
    let path = ctx.nvml_answers().map_or("", |a| a.path.as_str());
    format!("{call} of {path}")
}

/// A finding about these GPUs.
fn about(
    id: &str,
    layer: Layer,
    severity: Severity,
    title: String,
    devices: &[&DeviceAnswer],
) -> Finding {
    let finding = Finding::new(id, layer, severity, title).component("GPU");
    devices.iter().fold(finding, |finding, device| {
        let subject = device.address.clone();
        finding.subject(subject.unwrap_or_else(|| format!("GPU {}", device.index)))
    })
}

/// A fix of a GPU's state, which belongs to the host.
fn on_host(ctx: &Ctx<'_>, layer: Layer, what: &str) -> Fix {
    Fix::at(
        layer,
        if ctx.in_container() {
            format!("on the host: {what}")
        } else {
            what.to_owned()
        },
    )
}

/// Commands that name GPUs by index belong to the host, where the indices are the same.
fn command(ctx: &Ctx<'_>, fix: Fix, line: String) -> Fix {
    if ctx.in_container() {
        fix
    } else {
        fix.line(line)
    }
}

/// The indices for an option of nvidia-smi: `0,2`.
fn indices(devices: &[&DeviceAnswer]) -> String {
    let all: Vec<String> = devices.iter().map(|d| d.index.to_string()).collect();
    all.join(",")
}

/// Whether a GPU in MIG mode has an instance: (1) NVML counts those that this user may use, (2) the driver's capability files
/// show all. `None` where neither tells.
fn has_instance(ctx: &Ctx<'_>, device: &DeviceAnswer) -> Option<bool> {
    let by_nvml = device.mig?.instances;
    if by_nvml > Some(0) {
        return Some(true);
    }
    let minor = ctx
        .facts
        .driver
        .gpus
        .items()
        .iter()
        .find(|gpu| Some(&gpu.address) == device.address.as_ref())
        .and_then(|gpu| gpu.minor);
    let by_files = ctx.facts.driver.mig_instances.value().zip(minor);
    match by_files {
        Some((instances, minor)) => {
            let of_this = format!("gpu{minor}/");
            Some(instances.iter().any(|i| i.name.starts_with(&of_this)))
        }
        None => by_nvml.map(|count| count > 0),
    }
}

/// MIG is on and nothing was cut out of the GPU: CUDA sees no part of it.
pub(super) fn mig_without_instances(ctx: &Ctx<'_>) -> Outcome {
    let devices = match answered(ctx) {
        Ok(devices) => devices,
        Err(outcome) => return outcome,
    };
    let with_mig = || {
        devices
            .iter()
            .copied()
            .filter(|d| d.mig.is_some_and(|mig| mig.on))
    };
    let empty: Vec<&DeviceAnswer> = with_mig()
        .filter(|device| has_instance(ctx, device) == Some(false))
        .collect();
    let all = empty.len() == devices.len();
    if empty.is_empty() || all && ctx.cuda_works() {
        let open = with_mig().any(|device| has_instance(ctx, device).is_none());
        return if open && !ctx.cuda_works() {
            Outcome::unknown("MIG instances: neither NVML nor the driver's files tell of them")
        } else {
            Outcome::Clean
        };
    }
    let severity = if all {
        Severity::Error
    } else {
        Severity::Warning
    };
    let gpus = all_called(&empty);
    let it = if empty.len() == 1 { "it" } else { "them" };
    let (layer, title) = if ctx.in_container() {
        (
            Layer::Container,
            format!("MIG is on on {gpus}, and this container has no instance of {it}"),
        )
    } else {
        (
            Layer::Hardware,
            format!("MIG is on without any instance on {gpus}: CUDA sees nothing of {it}"),
        )
    };
    let mut finding = about("mig-without-instances", layer, severity, title, &empty)
        .complaining(Layer::Runtime)
        .component("MIG")
        .detail("In MIG mode CUDA uses the instances that the GPU was partitioned into, never the whole GPU. Instances do not outlive a reset or a reboot; the mode does.")
        .source("NVIDIA Multi-Instance GPU user guide: enabling MIG mode, creating GPU instances");
    for device in &empty {
        let counted = device.mig.and_then(|mig| mig.instances);
        finding = finding.evidence(
            format!("MIG mode of {}", called(device)),
            match counted {
                Some(_) => "on, no MIG device counted",
                None => "on",
            },
            nvml_source(ctx, "nvmlDeviceGetMigMode"),
        );
    }
    if let Some(instances) = ctx.facts.driver.mig_instances.value() {
        finding = finding.evidence(
            "instances by the driver's capability files",
            instances.len().to_string(),
            ctx.facts.driver.mig_instances.source(),
        );
    }
    let finding = with_cu_init(ctx, finding);
    if ctx.in_container() {
        return Outcome::found([finding.fix(verified(ctx, Fix::at(Layer::Container, "give the container a MIG instance by its UUID (NVIDIA_VISIBLE_DEVICES=MIG-..., --device nvidia.com/gpu=...); on the host `nvidia-smi -L` lists them").cost("restart of the container")))]);
    }
    let list = indices(&empty);
    let create = Fix::at(Layer::Hardware, "create GPU instances with compute instances, of a profile that `nvidia-smi mig -lgip` lists; 19 is the smallest")
        .line(format!("sudo nvidia-smi mig -i {list} -cgi 19 -C"))
        .cost("root");
    let off = Fix::at(Layer::Hardware, "or turn MIG off to use the whole GPU")
        .line(format!("sudo nvidia-smi -i {list} -mig 0"))
        .cost("root, reset of the GPU")
        .second("right only where nobody is meant to share the GPU");
    Outcome::found([finding
        .fix(create.verify("nvidia-smi -L"))
        .fix(off.verify("nvidia-smi -L"))])
}

/// Repairs of the GPU's memory that wait for a reset, or that failed.
pub(super) fn ecc_row_remap_pending(ctx: &Ctx<'_>) -> Outcome {
    let devices = match answered(ctx) {
        Ok(devices) => devices,
        Err(outcome) => return outcome,
    };
    let failed = |d: &&DeviceAnswer| d.row_remap_failed == Some(true);
    let waits = |d: &&DeviceAnswer| {
        d.row_remap_pending == Some(true) || d.retired_pages_pending == Some(true)
    };
    let broken: Vec<&DeviceAnswer> = devices.iter().copied().filter(failed).collect();
    let waiting: Vec<&DeviceAnswer> = devices
        .iter()
        .copied()
        .filter(|d| waits(d) || failed(d))
        .collect();
    if waiting.is_empty() {
        return Outcome::Clean;
    }
    let title = if broken.is_empty() {
        format!(
            "memory of {} waits for a reset to be repaired",
            all_called(&waiting)
        )
    } else {
        format!(
            "memory of {} could not be repaired: no spare rows are left",
            all_called(&broken)
        )
    };
    let mut finding = about("ecc-row-remap-pending", Layer::Hardware, Severity::Warning, title, &waiting)
        .complaining(Layer::Application)
        .detail("The driver met memory that errs, and marked it: rows are replaced by spare ones (Ampere and newer), pages are taken out of use (before), at the next reset. Until then a program that touches them may be ended by a memory error.")
        .source("NVIDIA GPU memory error management: row remapping, dynamic page retirement");
    for device in &waiting {
        for (what, value, call) in [
            (
                "row remapping pending",
                device.row_remap_pending,
                "nvmlDeviceGetRemappedRows",
            ),
            (
                "row remapping failed",
                device.row_remap_failed,
                "nvmlDeviceGetRemappedRows",
            ),
            (
                "page retirement pending",
                device.retired_pages_pending,
                "nvmlDeviceGetRetiredPagesPendingStatus",
            ),
        ] {
            if let Some(value) = value {
                finding = finding.evidence(
                    format!("{what}, {}", called(device)),
                    if value { "yes" } else { "no" },
                    nvml_source(ctx, call),
                );
            }
        }
    }
    finding = with_xid(ctx, finding, &waiting, MEMORY_XIDS);
    let reset = on_host(
        ctx,
        Layer::Hardware,
        "end the programs that use the GPU, then reset it, or reboot",
    )
    .cost("root, the GPU's programs end");
    let reset = command(
        ctx,
        reset,
        format!("sudo nvidia-smi -i {} --gpu-reset", indices(&waiting)),
    )
    .verify("nvidia-smi -q -d ROW_REMAPPER,PAGE_RETIREMENT");
    Outcome::found([if broken.is_empty() {
        finding.fix(reset)
    } else {
        finding
            .fix(Fix::at(
                Layer::Hardware,
                "take the GPU out of service and have it replaced",
            ))
            .fix(reset.second("brings it back for a while; the memory stays bad"))
    }])
}

/// Exclusive or prohibited compute mode.
pub(super) fn compute_mode_exclusive(ctx: &Ctx<'_>) -> Outcome {
    let devices = match answered(ctx) {
        Ok(devices) => devices,
        Err(outcome) => return outcome,
    };
    let of = |modes: &[u32]| -> Vec<&DeviceAnswer> {
        devices
            .iter()
            .copied()
            .filter(|d| d.compute_mode.is_some_and(|mode| modes.contains(&mode)))
            .collect()
    };
    let prohibited = of(&[PROHIBITED]);
    let limited = of(&[EXCLUSIVE_THREAD, PROHIBITED, EXCLUSIVE_PROCESS]);
    if limited.is_empty() {
        return Outcome::Clean;
    }
    let (severity, title) = if prohibited.is_empty() {
        (
            Severity::Note,
            format!(
                "compute mode of {} is exclusive: one process at a time",
                all_called(&limited)
            ),
        )
    } else {
        (
            if prohibited.len() == devices.len() {
                Severity::Error
            } else {
                Severity::Warning
            },
            format!(
                "compute mode of {} is prohibited: no CUDA program may use {}",
                all_called(&prohibited),
                if prohibited.len() == 1 { "it" } else { "them" }
            ),
        )
    };
    let mut finding = about("compute-mode-exclusive", Layer::Driver, severity, title, &limited)
        .complaining(Layer::Runtime)
        .component("compute mode")
        .detail("The mode is a setting of whoever runs the machine. In exclusive mode the second process gets `all CUDA-capable devices are busy or unavailable` (46); in prohibited mode already the first one does, or sees no GPU.")
        .source("nvidia-smi manual: compute mode");
    for device in &limited {
        let mode = match device.compute_mode {
            Some(EXCLUSIVE_THREAD) => "exclusive to a thread",
            Some(PROHIBITED) => "prohibited",
            _ => "exclusive to a process",
        };
        let users = match device.processes {
            Some(1) => ", 1 process on it now".to_owned(),
            Some(count) => format!(", {count} processes on it now"),
            None => String::new(),
        };
        finding = finding.evidence(
            format!("compute mode of {}", called(device)),
            format!("{mode}{users}"),
            nvml_source(ctx, "nvmlDeviceGetComputeMode"),
        );
    }
    let back = on_host(
        ctx,
        Layer::Driver,
        "set the default mode, if several processes are meant to share the GPU",
    )
    .cost("root");
    let list = if prohibited.is_empty() {
        indices(&limited)
    } else {
        indices(&prohibited)
    };
    Outcome::found([finding.fix(
        command(ctx, back, format!("sudo nvidia-smi -i {list} -c DEFAULT"))
            .verify("nvidia-smi -q -d COMPUTE"),
    )])
}

/// Persistence mode is off on a server with several GPUs and no screen: each first program waits for all of them.
pub(super) fn persistence_off(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() || ctx.in_container() || ctx.in_virtual_machine() {
        return Outcome::Clean;
    }
    let devices = match answered(ctx) {
        Ok(devices) => devices,
        Err(outcome) => return outcome,
    };
    // 3D controllers have no connector for a screen; a card that has one keeps its own process on the GPU.
    let headless = ctx.gpus().count() > 1 && ctx.gpus().all(|d| d.class >> 8 == 0x0302);
    let off: Vec<&DeviceAnswer> = devices
        .iter()
        .copied()
        .filter(|d| d.persistence == Some(false))
        .collect();
    if !headless || off.len() < 2 || ctx.facts.driver.persistenced_socket.is_present() {
        return Outcome::Clean;
    }
    let title = format!(
        "persistence mode is off on {} GPUs of this server: each program that comes first waits until the driver has started them",
        off.len()
    );
    Outcome::found([about("persistence-off", Layer::Driver, Severity::Note, title, &off)
        .component("nvidia-persistenced")
        .detail("Without it the driver shuts a GPU down when its last user goes, and starts it anew for the next: seconds on a machine with many GPUs, and settings such as power limits are lost.")
        .evidence("persistence mode", format!("off on {}", all_called(&off)), nvml_source(ctx, "nvmlDeviceGetPersistenceMode"))
        .reading("persistence daemon", &ctx.facts.driver.persistenced_socket)
        .source("NVIDIA driver persistence: persistence daemon")
        .fix(
            Fix::at(Layer::Driver, "run the persistence daemon")
                .line("sudo systemctl enable --now nvidia-persistenced")
                .cost("root")
                .verify("nvidia-smi -q | grep Persistence"),
        )])
}

/// Why a link is narrower than the GPU could use.
enum Narrow {
    /// Slot and GPU could use more lanes than they do.
    Fault { now: u32, could: u32 },
    /// The slot has no more.
    Slot { now: u32, card: u32 },
}

/// The link of one GPU. Only its width counts: its speed falls and rises with the load.
fn narrow_link(ctx: &Ctx<'_>, device: &PciDevice) -> Option<Narrow> {
    let (now, card) = (*device.link_width.value()?, *device.link_width_max.value()?);
    // A device that is lost or half asleep reads 63 or 0.
    if device.sleeps() || !(1..=32).contains(&card) || !(1..card).contains(&now) {
        return None;
    }
    let by_nvml = ctx
        .nvml_answers()
        .into_iter()
        .flat_map(|a| &a.devices)
        .find(|d| d.address.as_ref() == Some(&device.address))
        .and_then(|d| d.link_width_max);
    let slot = device.slot_width_max.value().copied().or(by_nvml);
    match slot.filter(|slot| (1..=32).contains(slot)) {
        Some(slot) if now < slot.min(card) => Some(Narrow::Fault {
            now,
            could: slot.min(card),
        }),
        _ => Some(Narrow::Slot { now, card }),
    }
}

/// A link with fewer lanes than GPU and slot have.
pub(super) fn pcie_link_narrow(ctx: &Ctx<'_>) -> Outcome {
    // A virtual machine's bus is made up, and a container sees the host's business.
    if !ctx.plain_linux() || ctx.in_virtual_machine() {
        return Outcome::Clean;
    }
    Outcome::found(ctx.gpus().filter_map(|device| {
        let narrow = narrow_link(ctx, device)?;
        let name = ctx.gpu_in_full(device);
        let finding = match narrow {
            Narrow::Fault { now, could } => Finding::new("pcie-link-narrow", Layer::Hardware, Severity::Warning, format!("{name} runs at x{now}, and it and its slot could use x{could}"))
                .detail("GPU and slot agreed on fewer lanes than both have. Copies between host and GPU are slower by that factor, and the contact that failed may fail altogether: a card that is not seated well, dirt, a riser, a damaged slot or socket.")
                .fix(Fix::at(Layer::Hardware, "reseat the card, and check riser, slot and the processor's socket; then look at the width again under load").cost("power off").verify("nvidia-smi -q | grep -A3 'Link Width'"))
                .fix(Fix::at(Layer::Hardware, "check in the firmware's settings that the slot's lanes are not shared with another slot or drive").second("right only where the board shares them, and then nothing is broken")),
            Narrow::Slot { now, card } => Finding::new("pcie-link-narrow", Layer::Hardware, Severity::Note, format!("{name} runs at x{now} of its x{card} lanes: its slot has no more"))
                .detail("Copies between host and GPU take longer than the card could do them; programs that keep their data on the GPU do not notice. Laptops and many boards are made so.")
                .fix(Fix::at(Layer::Hardware, "move the card to a slot with more lanes, if there is one and copies are what limits").cost("power off")),
        };
        let dir = format!("/sys/bus/pci/devices/{}", device.address);
        Some(
            finding
                .complaining(Layer::Application)
                .component("PCIe link")
                .subject(device.address.clone())
                .reading("lanes in use", &device.link_width)
                .reading("lanes of the GPU", &device.link_width_max)
                .reading("lanes of the slot", &device.slot_width_max)
                .evidence("power state", device.power_state.value().map_or("awake", String::as_str), dir)
                .source("Linux kernel: sysfs PCI, current_link_width and max_link_width"),
        )
    }))
}

/// Xids that tell of memory.
const MEMORY_XIDS: &[u32] = &[48, 63, 64, 92, 94, 95, 140];

/// What NVIDIA advises for most Xids.
const RESET: &str = "reset the GPU, or reboot";

/// What an Xid of weight says.
struct Weight {
    /// The layer whose part failed: the GPU, or the firmware that the driver brings.
    layer: Layer,
    /// In words.
    says: &'static str,
    /// What NVIDIA advises at once.
    advice: &'static str,
    /// Whether the GPU is of no use until that is done.
    stops: bool,
}

/// What an Xid says; `None` for one that most often only echoes what a program did (13, 31, 43, 45, 69), or that is handled
/// already (63).
fn of_weight(code: u32) -> Option<Weight> {
    let (says, advice) = match code {
        46 | 109 => ("a GPU's engine did not come back", RESET),
        48 => ("memory error that could not be corrected", RESET),
        62 => ("the GPU's micro-controller halted", RESET),
        64 => ("bad memory could not be replaced", RESET),
        74 => ("NVLink error", "reset the linked GPUs together"),
        79 => (
            "the GPU has fallen off the bus",
            "power the machine off and on",
        ),
        92 => ("many corrected memory errors", "watch the GPU's memory"),
        94 => (
            "memory error that hit one program",
            "restart that program; reset the GPU when convenient",
        ),
        95 => ("memory error that may have hit every program", RESET),
        110 => ("security fault", RESET),
        119 => ("the GPU's firmware (GSP) did not answer", RESET),
        120 => ("the GPU's firmware (GSP) failed", RESET),
        136 => ("an NVLink could not be trained", RESET),
        140 => ("memory errors that could not be corrected", RESET),
        143 => ("the GPU could not be initialised", RESET),
        _ => return None,
    };
    Some(Weight {
        layer: if matches!(code, 119 | 120) {
            Layer::Driver
        } else {
            Layer::Hardware
        },
        says,
        advice,
        stops: advice == RESET || code == 79,
    })
}

/// The Xids since the driver was loaded last, newest last, each with its message; and whether that is certain: the ring
/// buffer is of this boot, a log file may hold older ones.
fn xids<'a>(ctx: &'a Ctx<'_>) -> (Vec<(Xid, &'a str)>, bool) {
    let log = &ctx.facts.driver.kernel_log;
    let lines = log.items();
    let loaded = lines
        .iter()
        .rposition(|line| line.contains("NVRM: loading NVIDIA UNIX"));
    let since = lines
        .get(loaded.map_or(0, |at| at + 1)..)
        .unwrap_or_default();
    let found = since
        .iter()
        .filter_map(|line| Some((xid(line)?, line.as_str())))
        .collect();
    (found, loaded.is_some() || log.source() == "/dev/kmsg")
}

/// Adds the newest lines of the log that tell such an Xid of these GPUs.
fn with_xid(ctx: &Ctx<'_>, finding: Finding, devices: &[&DeviceAnswer], codes: &[u32]) -> Finding {
    let (found, _) = xids(ctx);
    let ours = |xid: &Xid| {
        devices
            .iter()
            .any(|d| d.address.as_ref() == Some(&xid.address))
            && codes.contains(&xid.code)
    };
    match found.iter().rev().find(|(xid, _)| ours(xid)) {
        Some((_, line)) => {
            finding.evidence("kernel log", *line, ctx.facts.driver.kernel_log.source())
        }
        None => finding,
    }
}

/// Adds the newest line of the log that tells an Xid of weight, whichever GPU it is of.
pub(super) fn with_last_xid(ctx: &Ctx<'_>, finding: Finding) -> Finding {
    let (found, _) = xids(ctx);
    match found
        .iter()
        .rev()
        .find(|(xid, _)| of_weight(xid.code).is_some())
    {
        Some((_, line)) => {
            finding.evidence("kernel log", *line, ctx.facts.driver.kernel_log.source())
        }
        None => finding,
    }
}

/// Whether CUDA fails as it does where a GPU failed; other codes are about libraries, nodes and settings.
fn cuda_fails_by_gpu(ctx: &Ctx<'_>) -> bool {
    ctx.cu_init()
        .is_some_and(|code| [46, 101, 999].contains(&code))
}

/// Whether anything of the present state speaks against the GPU of this address.
fn is_troubled(ctx: &Ctx<'_>, address: &str) -> bool {
    let all = cuda_fails_by_gpu(ctx)
        || ctx
            .nvml_init()
            .is_some_and(|code| [15, 999].contains(&code))
        || [ctx.cuda_answers(), ctx.nvml_answers()]
            .into_iter()
            .flatten()
            .any(|a| matches!(a.end, ChildEnd::TimedOut { .. } | ChildEnd::Signal { .. }));
    let by_bus = ctx
        .gpus()
        .any(|d| d.address == address && d.config_all_ones.value() == Some(&true) && !d.sleeps());
    let by_nvml = ctx.nvml_answers().is_some_and(|a| {
        a.devices.iter().any(|d| {
            let this = match &d.address {
                Some(known) => known == address,
                // A GPU without a handle has no address to tell.
                None => true,
            };
            this && (d.code != 0
                || d.row_remap_pending == Some(true)
                || d.row_remap_failed == Some(true)
                || d.retired_pages_pending == Some(true))
        })
    });
    all || by_bus || by_nvml
}

/// Errors that the driver wrote to the kernel log about a GPU, as far as they are of this boot and of weight.
pub(super) fn xid_in_log(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() || ctx.module_loaded() == Some(false) || ctx.gpus().next().is_none() {
        return Outcome::Clean;
    }
    if let Some(missing) = missing("kernel log", &ctx.facts.driver.kernel_log) {
        return Outcome::unknown(missing);
    }
    let (found, this_boot) = xids(ctx);
    let source = ctx.facts.driver.kernel_log.source();
    Outcome::found(ctx.gpus().filter_map(|device| {
        let of_this: Vec<_> = found
            .iter()
            .filter(|(xid, _)| xid.address == device.address)
            .filter_map(|(xid, line)| Some((xid, *line, of_weight(xid.code)?)))
            .collect();
        // The newest that stops the GPU tells its state; an older one may have led to it.
        let (xid, line, weight) = of_this
            .iter()
            .rfind(|(_, _, weight)| weight.stops)
            .or(of_this.last())?;
        let troubled = is_troubled(ctx, &device.address);
        // A line of who knows when accuses nobody; what it tells of may be long mended.
        if !this_boot && !troubled {
            return None;
        }
        let severity = if this_boot && weight.stops && cuda_fails_by_gpu(ctx) {
            Severity::Error
        } else if troubled {
            Severity::Warning
        } else {
            Severity::Note
        };
        let name = ctx.gpu_in_full(device);
        let mut finding = Finding::new("xid-in-log", weight.layer, severity, format!("the kernel log has Xid {} of {name}: {}", xid.code, weight.says))
            .complaining(if severity == Severity::Error { Layer::Runtime } else { Layer::Driver })
            .component(if weight.layer == Layer::Driver { "GSP firmware" } else { "GPU" })
            .subject(device.address.clone())
            .detail(if troubled {
                "The driver told an error of this GPU, and the GPU does not work as it should now. Of several Xids the first is often the cause, and those after it its echo."
            } else {
                "The driver told an error of this GPU since it was loaded. The GPU answers now; should the error come again, it is the GPU or its driver, not the program."
            })
            .evidence("kernel log", *line, source)
            .evidence("Xids of weight about this GPU", of_this.len().to_string(), source)
            .source("NVIDIA: Xid errors, catalogue of codes and actions");
        if let Some((_, first, _)) = of_this.first().filter(|(_, first, _)| first != line) {
            finding = finding.evidence("the first of them", *first, source);
        }
        finding = with_cu_init(ctx, finding);
        let fix = on_host(ctx, Layer::Hardware, weight.advice);
        let fix = if weight.advice == RESET {
            let line = format!("sudo nvidia-smi -i {} --gpu-reset", device.address);
            command(ctx, fix.cost("root, the GPU's programs end"), line)
        } else {
            fix
        };
        finding = finding.fix(verified(ctx, fix));
        let again = if weight.layer == Layer::Driver {
            Fix::at(Layer::Driver, "install a newer release of the driver's branch, if it comes again")
        } else {
            Fix::at(Layer::Hardware, "check temperature, power, cables and seating, if it comes again, and have the board replaced if that does not help")
        };
        Some(finding.fix(again.second("right only where a reset does not last")))
    }))
}
