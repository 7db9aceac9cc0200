//! The fabric manager: on a machine with `NVSwitches` no GPU is ready for CUDA until it has set the fabric up.

use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::{verified, with_cu_init, with_init_answers};
use crate::rules::{Ctx, Outcome, missing};

/// `CUDA_ERROR_SYSTEM_NOT_READY`.
const NOT_READY: i64 = 802;

/// `NVSwitches`, and nobody who sets them up.
pub(super) fn fabric_manager_absent(ctx: &Ctx<'_>) -> Outcome {
    // In a container the daemon is the host's: neither its process nor its socket need be visible.
    if ctx.nvswitches() == 0
        || ctx.in_container()
        || ctx.module_loaded() != Some(true)
        || ctx.cuda_works()
    {
        return Outcome::Clean;
    }
    let fm = &ctx.facts.driver.fabric_manager;
    if fm.process.is_present() || fm.socket.is_present() {
        return Outcome::Clean;
    }
    if let (Some(process), Some(socket)) = (
        missing("processes", &fm.process),
        missing("its socket", &fm.socket),
    ) {
        return Outcome::Unknown {
            missing: vec![process, socket],
        };
    }
    let not_ready = ctx.cu_init() == Some(NOT_READY);
    let severity = if not_ready || !ctx.calls_made() {
        Severity::Error
    } else {
        Severity::Warning
    };
    let version = ctx
        .loaded_version()
        .map_or_else(|| "of the driver's version".to_owned(), ToString::to_string);
    let installed = fm.unit.is_present() || fm.version.is_present();
    let mut finding = Finding::new(
        "fabric-manager-absent",
        Layer::Driver,
        severity,
        format!("{} NVSwitch{} here and the fabric manager (nvidia-fabricmanager {version}) {}", ctx.nvswitches(), if ctx.nvswitches() == 1 { "" } else { "es" }, if installed { "does not run" } else { "is not installed" }),
    )
    .complaining(Layer::Runtime)
    .component("nv-fabricmanager")
    .detail("GPUs behind NVSwitches wait until the fabric manager has configured the switches. Until then cuInit answers 802, while nvidia-smi looks healthy.")
    .evidence("NVSwitches", ctx.nvswitches().to_string(), "/sys/bus/pci/devices (class 0680)")
    .reading("fabric manager process", &fm.process)
    .reading("fabric manager socket", &fm.socket)
    .reading("fabric manager program", &fm.version)
    .reading("systemd unit", &fm.unit)
    .evidence("loaded kernel module", version.clone(), ctx.facts.driver.loaded_version().map_or("", |(_, source)| source));
    finding = with_init_answers(ctx, finding);
    let start = "sudo systemctl enable --now nvidia-fabricmanager";
    let fix = if installed {
        Fix::at(
            Layer::Driver,
            "start the fabric manager, now and at every boot",
        )
        .line(start)
        .cost("root")
    } else {
        Fix::at(Layer::Driver, format!("install the fabric manager of exactly version {version} (package nvidia-fabricmanager), then start it")).line(start).cost("root")
    };
    Outcome::found([finding.fix(verified(ctx, fix))])
}

/// A fabric manager of another version than the driver refuses to work.
pub(super) fn fabric_manager_version(ctx: &Ctx<'_>) -> Outcome {
    if ctx.nvswitches() == 0 || ctx.in_container() || ctx.cuda_works() {
        return Outcome::Clean;
    }
    let Some(loaded) = ctx.loaded_version() else {
        return Outcome::Clean;
    };
    let fm = &ctx.facts.driver.fabric_manager;
    let Some(version) = fm.version.value() else {
        return missing("the fabric manager's version", &fm.version)
            .map_or(Outcome::Clean, Outcome::unknown);
    };
    if version == loaded {
        return Outcome::Clean;
    }
    let severity = if ctx.cu_init() == Some(NOT_READY) || !ctx.calls_made() {
        Severity::Error
    } else {
        Severity::Warning
    };
    let mut finding = Finding::new("fabric-manager-version", Layer::Driver, severity, format!("the fabric manager is {version} and the driver {loaded}: they must be of the same version"))
        .complaining(Layer::Runtime)
        .component("nv-fabricmanager")
        .detail("The fabric manager checks the driver's version to the last digit and stops where it differs. The GPUs then stay in the state that cuInit answers with 802.")
        .reading("fabric manager program", &fm.version)
        .evidence("loaded kernel module", loaded.to_string(), ctx.facts.driver.loaded_version().map_or("", |(_, source)| source));
    finding = with_cu_init(ctx, finding);
    Outcome::found([finding.fix(verified(
        ctx,
        Fix::at(Layer::Driver, format!("install the fabric manager of version {loaded}, and restart it; hold both packages together in updates")).line("sudo systemctl restart nvidia-fabricmanager").cost("root"),
    ))])
}
