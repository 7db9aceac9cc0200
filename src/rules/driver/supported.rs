//! Which GPUs a driver branch and a module flavour can drive. One GPU of several may be left out.

use crate::facts::{Flavour, Layer, PciDevice};
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::{Arch, Confidence, EndOfLife, OpenModule, Purpose};
use crate::rules::stack::{in_words, verified, with_cu_init, with_kernel_log};
use crate::rules::{Ctx, Outcome};
use crate::version::Version;

/// GPUs with their architecture, as far as the matrix knows it: an unknown id says nothing.
fn known_gpus<'a>(ctx: &'a Ctx<'_>) -> Vec<(&'a PciDevice, &'a Arch)> {
    ctx.gpus()
        .filter_map(|device| Some((device, ctx.matrix.arch(ctx.gpu(device)?.capability?)?)))
        .collect()
}

/// Whether the kernel module said in the log that it leaves this GPU alone:
///
/// ```text
/// NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)
/// NVRM: installed in this system is not supported by the
/// NVRM: NVIDIA 550.163.01 driver release.
/// ```
fn refused_in_log(ctx: &Ctx<'_>, device: &PciDevice) -> bool {
    let log = ctx.facts.driver.kernel_log.items();
    log.iter().enumerate().any(|(at, line)| {
        line.contains("NVIDIA GPU")
            && line.contains(&device.address)
            && log.iter().skip(at).take(3).any(|line| {
                line.contains("is not supported by")
                    || line.contains("requires use of the NVIDIA open kernel modules")
            })
    })
}

/// Whether the driver shows that it does not drive this GPU: it is not in its list, nothing is bound, CUDA sees none, or
/// the kernel's log says so.
fn not_driven(ctx: &Ctx<'_>, device: &PciDevice) -> bool {
    let listed = ctx
        .facts
        .driver
        .gpus
        .value()
        .map(|gpus| gpus.iter().any(|g| g.address == device.address));
    listed == Some(false)
        || ctx.cu_init().is_some_and(|code| code != 0)
        || (device.driver.is_absent() && ctx.module_loaded() == Some(true))
        || refused_in_log(ctx, device)
}

/// Error where no GPU is left that this driver can use, else warning.
fn severity(ctx: &Ctx<'_>, affected: usize) -> Severity {
    if affected == ctx.gpus().count() && !ctx.cuda_works() {
        Severity::Error
    } else {
        Severity::Warning
    }
}

/// The skeleton of these findings: the driver, and each GPU that it cannot use.
fn finding(
    ctx: &Ctx<'_>,
    id: &str,
    affected: &[(&PciDevice, &Arch)],
    title: String,
    version: &Version,
    source: &str,
) -> Finding {
    let mut finding = Finding::new(id, Layer::Driver, severity(ctx, affected.len()), title)
        .component("nvidia.ko")
        .evidence("driver", version.to_string(), source);
    for (device, arch) in affected {
        finding = finding
            .subject(device.address.clone())
            .evidence(
                ctx.gpu_in_full(device),
                format!(
                    "{}, compute capability {}.{}",
                    arch_name(arch),
                    arch.capability.0,
                    arch.capability.1
                ),
                format!("/sys/bus/pci/devices/{}", device.address),
            )
            .source(arch.source.clone());
    }
    finding = with_kernel_log(ctx, finding, |l| {
        [
            "will ignore this GPU",
            "not supported by open",
            "Legacy drivers",
            "legacy GPU",
            "not supported by the NVIDIA",
            "requires use of the NVIDIA open kernel modules",
        ]
        .iter()
        .any(|text| l.contains(text))
    });
    if ctx.cu_init() != Some(0) {
        finding = with_cu_init(ctx, finding);
    }
    finding
}

/// An architecture's name for a sentence.
fn arch_name(arch: &Arch) -> String {
    arch.name
        .clone()
        .unwrap_or_else(|| format!("sm_{}{}", arch.capability.0, arch.capability.1))
}

fn names(ctx: &Ctx<'_>, affected: &[(&PciDevice, &Arch)]) -> String {
    in_words(
        &affected
            .iter()
            .map(|(device, arch)| {
                format!(
                    "{} ({}, {})",
                    ctx.gpu_name(device),
                    device.id(),
                    arch_name(arch)
                )
            })
            .collect::<Vec<_>>(),
    )
}

/// A driver fix in words, with who does it where that is not this system.
fn driver_fix(ctx: &Ctx<'_>, what: String) -> Fix {
    let text = match ctx.hands_off() {
        Some(place) => format!("{what} {place}"),
        None => what,
    };
    verified(ctx, Fix::at(Layer::Driver, text).cost("root, reboot"))
}

/// The branch no longer supports the architecture.
pub(super) fn gpu_dropped_by_branch(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() {
        return Outcome::Clean;
    }
    let Some((version, source)) = ctx.driver_version() else {
        return Outcome::Clean;
    };
    let affected: Vec<_> = known_gpus(ctx)
        .into_iter()
        .filter(|(_, arch)| {
            arch.last_driver_branch
                .is_some_and(|last| version.major() > last)
        })
        .collect();
    let Some(last) = affected
        .iter()
        .filter_map(|(_, arch)| arch.last_driver_branch)
        .min()
    else {
        return Outcome::Clean;
    };
    if ctx.cuda_works() && affected.len() == ctx.gpus().count() {
        return Outcome::Clean;
    }
    let title = format!(
        "driver {version} no longer supports {}: {last} is the last branch for it",
        names(ctx, &affected)
    );
    let finding = finding(ctx, "gpu-dropped-by-branch", &affected, title, version, &source)
        .detail("NVIDIA ended support for this architecture with an earlier branch. The module loads and ignores the GPU; no setting changes that.")
        .fix(driver_fix(ctx, format!("install the {last} branch of the driver")))
        .fix(Fix::at(Layer::Hardware, "use a newer GPU").second("the only way to newer branches and to CUDA versions that need them"));
    Outcome::found([finding])
}

/// The branch does not know the architecture yet.
pub(super) fn gpu_too_new_for_branch(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() {
        return Outcome::Clean;
    }
    let Some((version, source)) = ctx.driver_version() else {
        return Outcome::Clean;
    };
    // The first branch of a chip is read from lists that may lag behind what the driver does: the host has to confirm.
    // A module that does not load where this is its only GPU confirms it too.
    let not_loaded = ctx.module_loaded() == Some(false);
    let affected: Vec<_> = known_gpus(ctx)
        .into_iter()
        .filter(|(device, arch)| {
            arch.first_driver_branch
                .is_some_and(|first| version.major() < first)
                && (not_driven(ctx, device) || (not_loaded && device.driver.is_absent()))
        })
        .collect();
    let Some(first) = affected
        .iter()
        .filter_map(|(_, arch)| arch.first_driver_branch)
        .max()
    else {
        return Outcome::Clean;
    };
    let title = format!(
        "driver {version} is too old for {}: {first} is the first branch for it",
        names(ctx, &affected)
    );
    let finding = finding(ctx, "gpu-too-new-for-branch", &affected, title, version, &source)
        .detail("The GPU is of an architecture that this branch does not know. The module loads and ignores it.")
        .fix(driver_fix(ctx, format!("install the {first} branch of the driver or a newer one")));
    Outcome::found([finding])
}

/// The branch gets no more fixes.
pub(super) fn branch_end_of_life(ctx: &Ctx<'_>) -> Outcome {
    // Windows's and Tegra's drivers are other lines than the table's.
    if !ctx.plain_linux() {
        return Outcome::Clean;
    }
    let date = ctx.facts.taken_at.as_str();
    let found = ctx.driver_version().and_then(|(version, source)| {
        let branch = ctx.matrix.branch(version)?;
        (branch.life_at(date) == EndOfLife::Ended).then_some((version, source, branch))
    });
    let Some((version, source, branch)) = found else {
        return Outcome::Clean;
    };
    // Where a GPU has a last branch, nothing newer is of use to it.
    let last = known_gpus(ctx)
        .iter()
        .filter_map(|(_, arch)| arch.last_driver_branch)
        .min();
    let next: Vec<u32> = ctx
        .matrix
        .driver_branches()
        .iter()
        .filter(|b| {
            b.branch > branch.branch
                && last.is_none_or(|last| b.branch <= last)
                && matches!(b.kind.as_str(), "lts" | "production")
                && b.life_at(date) == EndOfLife::Alive
        })
        .map(|b| b.branch)
        .collect();
    let ended = branch.end_of_life.as_deref().unwrap_or_default();
    let finding = Finding::new("branch-end-of-life", Layer::Driver, Severity::Note, format!("driver {version} is of branch {}, which has had no fixes since {ended}", branch.branch))
        .component("nvidia.ko")
        .detail("The driver goes on working as it does. Faults and security holes that are found now are mended in newer branches only, and newer kernels may no longer build its module.")
        .evidence("driver", version.to_string(), source)
        .evidence("last month of support of the branch", ended, "compatibility matrix")
        .source(branch.source.clone());
    let fix = match next.iter().max() {
        Some(newest) => driver_fix(
            ctx,
            format!("move to a branch that is supported, {newest} for instance"),
        ),
        None => Fix::at(
            Layer::Hardware,
            match last {
                Some(_) => {
                    "keep the driver: no supported branch drives this GPU any more, so a newer GPU is the way to one"
                }
                None => "move to a branch that NVIDIA supports",
            },
        ),
    };
    Outcome::found([finding.fix(fix)])
}

/// The open module on a GPU without the firmware processor that it needs.
pub(super) fn open_module_unsupported_gpu(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() {
        return Outcome::Clean;
    }
    let Some((version, source, Flavour::Open)) = flavour(ctx) else {
        return Outcome::Clean;
    };
    let affected: Vec<_> = known_gpus(ctx)
        .into_iter()
        .filter(|(_, arch)| {
            arch.open_module() == Some(OpenModule::Impossible)
                && arch
                    .last_driver_branch
                    .is_none_or(|last| version.major() <= last)
        })
        .collect();
    if affected.is_empty() || (ctx.cuda_works() && affected.len() == ctx.gpus().count()) {
        return Outcome::Clean;
    }
    let others = ctx.gpus().count() - affected.len();
    let title = format!(
        "the open kernel module {version} cannot drive {}: it needs the proprietary module",
        names(ctx, &affected)
    );
    let mut finding = finding(ctx, "open-module-unsupported-gpu", &affected, title, &version, &source)
        .detail("The open module needs the GPU System Processor (GSP), which Turing and newer GPUs have. Maxwell, Pascal and Volta are driven by the proprietary module alone.")
        .evidence("flavour of the module", "open", source.clone())
        .source("NVIDIA driver installation guide: kernel modules");
    for (device, _) in &affected {
        let minor = ctx
            .facts
            .driver
            .gpus
            .items()
            .iter()
            .find(|g| g.address == device.address)
            .and_then(|g| g.minor)
            .unwrap_or(0);
        let path = format!("/dev/nvidia{minor}");
        if let Some(result) = ctx.open_result(&path).filter(|r| *r != "ok") {
            finding = finding.evidence(format!("open {path}"), result, "open()");
        }
    }
    let fix = driver_fix(
        ctx,
        format!("install the proprietary module of {version} instead of the open one"),
    );
    let fix = ctx.with_branch_commands(fix, Purpose::Driver, version.major());
    let finding = finding.fix(fix);
    Outcome::found([if others > 0 {
        finding.fix(Fix::at(Layer::Hardware, "or take the older GPU out, if the others need the open module (Blackwell and newer do)").second("one module has to drive all GPUs of a machine"))
    } else {
        finding
    }])
}

/// The proprietary module on a GPU that only the open one drives.
pub(super) fn proprietary_module_unsupported_gpu(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.plain_linux() {
        return Outcome::Clean;
    }
    let Some((version, source, Flavour::Proprietary)) = flavour(ctx) else {
        return Outcome::Clean;
    };
    // That these GPUs need the open module is others' word: the host has to confirm it before it is an error.
    let affected: Vec<_> = known_gpus(ctx)
        .into_iter()
        .filter(|(device, arch)| {
            let name = ctx.gpu_name(device);
            let is_named = |word: &String| name.contains(word.as_str());
            (matches!(arch.open_module(), Some(OpenModule::Required { .. }))
                || arch.open_module_products.iter().any(is_named))
                && arch
                    .first_driver_branch
                    .is_none_or(|first| version.major() >= first)
                && not_driven(ctx, device)
        })
        .collect();
    if affected.is_empty() {
        return Outcome::Clean;
    }
    let secondary = affected.iter().any(|(_, arch)| {
        matches!(
            arch.open_module(),
            Some(OpenModule::Required {
                confidence: Confidence::Secondary
            })
        )
    });
    let title = format!(
        "the proprietary kernel module {version} cannot drive {}: it needs the open module",
        names(ctx, &affected)
    );
    let mut finding = finding(
        ctx,
        "proprietary-module-unsupported-gpu",
        &affected,
        title,
        &version,
        &source,
    )
    .detail(
        "Blackwell and newer GPUs, and Grace Hopper, are driven by the open kernel module alone.",
    )
    .evidence("flavour of the module", "proprietary", source.clone());
    for (device, _) in &affected {
        finding = finding.evidence(
            format!("{} in the driver's list", device.address),
            "no, or CUDA does not see it",
            "/proc/driver/nvidia/gpus, cuInit",
        );
    }
    if secondary {
        finding = finding.source(
            "that this GPU needs the open module is secondary knowledge; this host confirms it",
        );
    }
    let fix = driver_fix(
        ctx,
        format!("install the open module of {version} instead of the proprietary one"),
    );
    let fix = ctx.with_branch_commands(fix, Purpose::OpenModules, version.major());
    Outcome::found([finding.fix(fix)])
}

/// Version and flavour of the module that runs, else of the one on disk for this kernel.
fn flavour(ctx: &Ctx<'_>) -> Option<(Version, String, Flavour)> {
    if let (Some(flavour), Some((version, _))) = (
        ctx.facts.driver.loaded_flavour(),
        ctx.facts.driver.loaded_version(),
    ) {
        return Some((
            version.clone(),
            ctx.facts.driver.proc_version.source().to_owned(),
            flavour,
        ));
    }
    if ctx.module_loaded() != Some(false) {
        return None;
    }
    let module = ctx
        .facts
        .driver
        .disk_modules
        .items()
        .iter()
        .find(|m| m.is_core())?;
    Some((
        module.version.value()?.clone(),
        module.path.clone(),
        *module.flavour.value()?,
    ))
}
