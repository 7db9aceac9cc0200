//! Rules whose fault lies in the hardware layer: the GPU and its bus.

use super::stack::{in_words, nvml_code, pci_missing, verified, with_cu_init, with_kernel_log};
use super::{Ctx, Expectation, Need, Outcome, Rule, gpu_expected, gpu_state};
use crate::facts::{Layer, Reading, Vendor};
use crate::finding::{Finding, Fix, Severity};

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "ecc-row-remap-pending",
        layer: Layer::Hardware,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/ecc-row-remap-pending.md"),
        check: gpu_state::ecc_row_remap_pending,
    },
    Rule {
        id: "gpu-absent",
        layer: Layer::Hardware,
        severity: Severity::Error,
        need: Need::Verdict,
        follows_from: &[],
        page: include_str!("pages/gpu-absent.md"),
        check: gpu_absent,
    },
    Rule {
        id: "gpu-off-bus",
        layer: Layer::Hardware,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/gpu-off-bus.md"),
        check: gpu_off_bus,
    },
    Rule {
        id: "mig-without-instances",
        layer: Layer::Hardware,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/mig-without-instances.md"),
        check: gpu_state::mig_without_instances,
    },
    Rule {
        id: "pcie-link-narrow",
        layer: Layer::Hardware,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &["gpu-off-bus"],
        page: include_str!("pages/pcie-link-narrow.md"),
        check: gpu_state::pcie_link_narrow,
    },
    Rule {
        id: "xid-in-log",
        layer: Layer::Hardware,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["gpu-off-bus", "ecc-row-remap-pending"],
        page: include_str!("pages/xid-in-log.md"),
        check: gpu_state::xid_in_log,
    },
];

/// No GPU where one is expected.
fn gpu_absent(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() {
        return Outcome::Clean;
    }
    let expectation = gpu_expected(ctx);
    let (severity, why) = match &expectation {
        // Nothing asks for a GPU; whether there is one cannot be said of a bus that was not read.
        Expectation::No => return pci_missing(ctx).map_or(Outcome::Clean, Outcome::unknown),
        Expectation::Yes(why) => (Severity::Error, why),
        Expectation::Likely(why) => (Severity::Warning, why),
    };
    if let Some(missing) = pci_missing(ctx).or_else(|| ctx.place_unknown()) {
        return Outcome::Unknown {
            missing: vec![missing],
        };
    }
    let counted = ctx
        .nvml_answers()
        .and_then(|a| a.number("nvmlDeviceGetCount_v2"))
        .unwrap_or(0);
    // Where another vendor's are what is here and meant, the rules of that one say what is wrong with them. Intel's are in most
    // processors: they are meant where what runs is built for them.
    let by_other = match ctx.vendor() {
        Some(Vendor::Amd) => ctx.is_of_alone(Vendor::Amd),
        Some(Vendor::Intel) => {
            ctx.is_of_alone(Vendor::Intel) && ctx.wants_xpu().is_some_and(|wants| wants.own)
        }
        _ => false,
    };
    if by_other
        || ctx.gpus().next().is_some()
        || !ctx.facts.driver.gpus.items().is_empty()
        || ctx.cuda_works()
        || counted > 0
    {
        return Outcome::Clean;
    }
    // Inside a container a wish in the environment that nobody granted is the container layer's business.
    if ctx.in_container()
        && (!ctx.expect_gpu && ctx.module_loaded() != Some(true) || ctx.in_gvisor())
    {
        return Outcome::Clean;
    }
    let bus = match &ctx.facts.hardware.pci {
        Reading::Present { value, .. } => format!(
            "{} display or accelerator functions, none by NVIDIA",
            value.len()
        ),
        _ => "no PCI bus".to_owned(),
    };
    let hypervisor = ctx.facts.system.virtualisation.value();
    let container = ctx.in_container();
    // Which node a pod runs on is the orchestrator's doing, by what the pod asks for.
    let by_orchestrator = matches!(ctx.engine(), "kubernetes" | "containerd" | "cri-o" | "gke");
    let (layer, place) = match (by_orchestrator, container) {
        (true, _) => (Layer::Container, " of this pod's node"),
        (false, true) => (Layer::Hardware, " of this container's host"),
        (false, false) => (Layer::Hardware, ""),
    };
    let mut finding = Finding::new("gpu-absent", layer, severity, format!("no NVIDIA GPU on the PCI bus{place}, and one is expected: {why}"))
        .component("GPU")
        .detail("Nothing on the bus has NVIDIA's vendor id (10de) and a display class. No driver or library can change that: the card is not seated, has no power, is switched off in the firmware, or, in a virtual machine, is not passed through.")
        .evidence("PCI bus", bus, ctx.facts.hardware.pci.source())
        .evidence("GPU expected", why.clone(), "the table of when a GPU is expected")
        .source("NVIDIA driver module: PCI match table (vendor 10de, classes 0300 and 0302)");
    if let Some(name) = hypervisor {
        finding = finding.evidence(
            "virtual machine",
            name.clone(),
            ctx.facts.system.virtualisation.source(),
        );
    }
    if by_orchestrator {
        return Outcome::found([finding.fix(verified(ctx, Fix::at(Layer::Container, "ask for a GPU in the pod's spec, so that it is put on a node that has one: resources.limits nvidia.com/gpu: 1; without the device plugin, a nodeSelector such as nvidia.com/gpu.present: \"true\"")
            .cost("restart of the pod")))]);
    }
    if container {
        return Outcome::found([finding.fix(verified(ctx, Fix::at(Layer::Hardware, "start the container on a host that has an NVIDIA GPU; if this host is meant to have one, run gpudoctor there")
            .cost("restart of the container")))]);
    }
    let first = match hypervisor {
        Some(_) => {
            "pass the GPU through to this virtual machine, or choose an instance type that has one"
        }
        None => "check that the card is seated, powered and enabled in the firmware",
    };
    finding = finding.fix(
        Fix::at(Layer::Hardware, first)
            .cost("power cycle")
            .verify("lspci -d 10de:"),
    );
    if !ctx.expect_gpu {
        finding = finding.fix(
            Fix::at(
                Layer::Driver,
                "remove the NVIDIA driver if this machine is not meant to have a GPU",
            )
            .second("right only where no GPU is meant to be here")
            .verify("gpudoctor"),
        );
    }
    Outcome::found([finding])
}

/// A GPU that no longer answers: its configuration space reads all ones, or NVML calls it lost.
fn gpu_off_bus(ctx: &Ctx<'_>) -> Outcome {
    let gpus: Vec<_> = ctx.gpus().collect();
    let lost: Vec<_> = gpus
        .iter()
        .filter(|d| {
            d.config_all_ones.value() == Some(&true)
                && d.power_state.value().map(String::as_str) != Some("D3cold")
                && !d.sleeps()
        })
        .collect();
    let nvml_lost = ctx
        .nvml_answers()
        .map_or(0, |a| a.devices.iter().filter(|d| d.code == 15).count());
    if lost.is_empty() && nvml_lost == 0 {
        return Outcome::Clean;
    }
    // One of several that is gone makes cuInit fail for all; where it succeeds, the others work.
    let severity = if ctx.cuda_works() && lost.len() < gpus.len() {
        Severity::Warning
    } else {
        Severity::Error
    };
    let names: Vec<String> = lost.iter().map(|d| d.address.clone()).collect();
    let title = match names.as_slice() {
        [] => format!(
            "{nvml_lost} of {} GPUs no longer answers (NVML: GPU is lost)",
            gpus.len()
        ),
        [_] if gpus.len() > 1 => format!(
            "GPU {}, one of {}, no longer answers on the PCIe bus",
            in_words(&names),
            gpus.len()
        ),
        [_] => format!("GPU {} no longer answers on the PCIe bus", in_words(&names)),
        _ => format!(
            "GPUs {} of {} no longer answer on the PCIe bus",
            in_words(&names),
            gpus.len()
        ),
    };
    let mut finding = Finding::new("gpu-off-bus", Layer::Hardware, severity, title)
        .complaining(Layer::Driver)
        .component("GPU")
        .detail("Reads from the device come back as all ones: it has fallen off the bus. Power, seating, riser, slot or the board itself are the causes; a different driver or CUDA version does not bring it back.")
        .source("PCI: a read that no device answers returns all ones");
    for device in &lost {
        finding = finding.subject(device.address.clone()).evidence(
            format!("configuration space of {}", ctx.gpu_in_full(device)),
            "all ones",
            format!("/sys/bus/pci/devices/{}/config", device.address),
        );
        let minor = ctx
            .facts
            .driver
            .gpus
            .items()
            .iter()
            .find(|g| g.address == device.address)
            .and_then(|g| g.minor);
        if let Some(path) = minor.map(|minor| format!("/dev/nvidia{minor}"))
            && let Some(result) = ctx.open_result(&path).filter(|r| *r != "ok")
        {
            finding = finding.evidence(format!("open {path}"), result, "open()");
        }
        let short = device.address.trim_end_matches(".0");
        finding = with_kernel_log(ctx, finding, |line| {
            line.contains(short) && line.contains("Xid")
        });
    }
    if let Some(answers) = ctx.nvml_answers() {
        for device in answers.devices.iter().filter(|d| d.code == 15) {
            finding = finding.evidence(
                format!("NVML handle of GPU {}", device.index),
                nvml_code(15),
                answers.path.clone(),
            );
        }
    }
    if ctx.cu_init() != Some(0) {
        finding = with_cu_init(ctx, finding);
    }
    Outcome::found([finding
        .fix(Fix::at(Layer::Hardware, "power the machine off and on (a warm reboot may not reset the card), then reseat the card and check its power cables, riser and slot").cost("power cycle").verify("nvidia-smi"))
        .fix(Fix::at(Layer::Hardware, "hide the lost GPU from programs until then: list the others in CUDA_VISIBLE_DEVICES").second("keeps the other GPUs usable only where cuInit still succeeds"))])
}
