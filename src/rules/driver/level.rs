//! The one rule under it all: the driver must be at least as new as the CUDA runtime asks for.
//!
//! What libcudart really tests is an integer: `cuDriverGetVersion` >= 1000 x its own major version (measured on 22
//! builds from 11.7 to 13.5). Within a major version a newer runtime runs on an older driver; that is a note of the
//! runtime layer. The driver's side is the consumer's libcuda, whatever the kernel module is.

use crate::facts::{Layer, ReachedBy, Reading, RuntimeCopy};
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::{Compat, Jetson, MinimumDriver};
use crate::rules::stack::{in_words, verified, with_cu_init};
use crate::rules::{Ctx, Outcome};
use crate::version::Version;

/// A runtime with its version: by file, by its own answer, or at least the major by its soname.
pub(in crate::rules) fn runtime_version(
    ctx: &Ctx<'_>,
    copy: &RuntimeCopy,
) -> Option<(Version, String)> {
    if let Reading::Present { value, source } = &copy.version {
        return Some((value.clone(), source.clone()));
    }
    let answered = ctx
        .facts
        .vendor
        .cudart
        .items()
        .iter()
        .find(|a| a.path == copy.path)
        .and_then(|a| a.number("cudaRuntimeGetVersion"))
        .and_then(|n| u32::try_from(n).ok());
    if let Some(level) = answered.filter(|n| *n >= 1000) {
        return Some((
            Version::from_cuda_level(level),
            format!("cudaRuntimeGetVersion of {}", copy.path),
        ));
    }
    copy.soname_version()
        .map(|v| (v, format!("soname of {}", copy.path)))
}

/// Which framework a runtime belongs to, for titles: "torch 2.10.0 in ./.venv".
pub(in crate::rules) fn user_of(ctx: &Ctx<'_>, copy: &RuntimeCopy, version: &Version) -> String {
    let consumer = &ctx.facts.consumer;
    let reached = |by: &ReachedBy| copy.reached_by.contains(by);
    if reached(&ReachedBy::Program) || reached(&ReachedBy::Process) {
        return consumer.what.clone();
    }
    if !reached(&ReachedBy::Environment) {
        return copy.path.clone();
    }
    let torch_wants = consumer.torch_cuda.value().map(Version::major);
    let framework =
        consumer.frameworks.items().iter().find(|d| {
            d.name != "torch" || torch_wants.is_none_or(|major| major == version.major())
        });
    match framework {
        Some(dist) => format!("{} {} in {}", dist.name, dist.version, consumer.what),
        None => consumer.what.clone(),
    }
}

/// A runtime that this driver is too old for.
struct TooOld<'a> {
    copy: &'a RuntimeCopy,
    version: Version,
    source: String,
    minimum: MinimumDriver,
}

pub(super) fn driver_too_old(ctx: &Ctx<'_>) -> Outcome {
    if let Reading::Unreadable { reason } = &ctx.facts.driver.libcuda {
        return Outcome::unknown(format!("libcuda: {reason}"));
    }
    if let Reading::Unreadable { reason } = &ctx.facts.runtime.cudart {
        return Outcome::unknown(format!("CUDA runtimes: {reason}"));
    }
    // No real libcuda: that is another fault, or a machine without a driver.
    let Some(libcuda) = ctx.real_libcuda() else {
        return Outcome::Clean;
    };
    let runtimes = ctx.consumer_runtimes();
    if runtimes.is_empty() {
        return Outcome::Clean;
    }
    let Some((level, level_source)) = ctx.driver_level() else {
        // Of a branch that is in no table (a newer one, a side line) the level of the one before it is sure.
        let version = libcuda.version.value().filter(|_| ctx.plain_linux());
        let at_least = version.and_then(|version| ctx.matrix.cuda_level_range(version).0);
        let all_fit = at_least.is_some_and(|level| {
            runtimes.iter().all(|copy| {
                runtime_version(ctx, copy)
                    .is_some_and(|(version, _)| ctx.matrix.runtime_accepts(&version, level))
            })
        });
        if all_fit {
            return Outcome::Clean;
        }
        return Outcome::unknown(format!(
            "the CUDA version of {}: not asked, and no branch of the matrix",
            libcuda.path
        ));
    };
    let known: Vec<_> = runtimes
        .iter()
        .filter_map(|copy| {
            runtime_version(ctx, copy).map(|(version, source)| (*copy, version, source))
        })
        .collect();
    let fits = known
        .iter()
        .filter(|(_, version, _)| ctx.matrix.runtime_accepts(version, level))
        .count();
    let too_old: Vec<TooOld<'_>> = known
        .into_iter()
        .filter(|(_, version, _)| !ctx.matrix.runtime_accepts(version, level))
        .filter_map(|(copy, version, source)| {
            Some(TooOld {
                copy,
                minimum: ctx.matrix.minimum_driver(&version)?,
                version,
                source,
            })
        })
        .collect();
    let torch_major = ctx.facts.consumer.torch_cuda.value().map(Version::major);
    Outcome::found(too_old.iter().map(|t| {
        // Where another runtime of the environment fits, some ways work; torch's own one is the way that matters.
        let is_torchs = torch_major == Some(t.version.major());
        let severity = if fits > 0 && !is_torchs {
            Severity::Warning
        } else {
            Severity::Error
        };
        finding(ctx, t, level, &level_source, severity)
    }))
}

fn finding(
    ctx: &Ctx<'_>,
    t: &TooOld<'_>,
    level: u32,
    level_source: &str,
    severity: Severity,
) -> Finding {
    let libcuda = ctx.real_libcuda();
    let driver = name_of_driver(ctx);
    let has = Version::from_cuda_level(level);
    let wants = t.version.major_minor();
    let needs = needed(ctx, &t.minimum);
    let user = user_of(ctx, t.copy, &t.version);
    let mut finding = Finding::new("driver-too-old", Layer::Driver, severity, format!("{driver} (CUDA {has}) is too old for CUDA {wants} ({user}), which needs {needs} or newer"))
        .complaining(Layer::Runtime)
        .component(libcuda.map_or("libcuda.so.1", |c| c.real_path.as_str()))
        .subject(t.copy.path.clone())
        .detail(format!(
            "CUDA {}.x runtimes ask the driver for CUDA {}.0 or newer and answer error 35 (\"driver version is insufficient\") otherwise. A newer runtime cannot be made to run on this driver: either the driver gets newer, or the runtime older.",
            t.version.major(),
            t.version.major()
        ))
        .evidence("driver", format!("CUDA {has} ({level})"), level_source)
        .evidence("CUDA runtime", t.version.to_string(), t.source.clone())
        .evidence("needed", format!("driver level {}, that is {needs} or newer", t.minimum.level), t.minimum.source.clone())
        .source(t.minimum.source.clone());
    if let Some(by) = t.copy.reached_by.first() {
        finding = finding.evidence("runtime reached by", by.describe(), t.copy.path.clone());
    }
    let said = ctx
        .facts
        .vendor
        .cudart
        .items()
        .iter()
        .find(|a| a.path == t.copy.path)
        .and_then(|a| a.code("cudaGetDeviceCount"));
    if let Some(code) = said.filter(|code| *code == 35) {
        finding = finding.evidence(
            "cudaGetDeviceCount",
            format!("{code} (cudaErrorInsufficientDriver)"),
            t.copy.path.clone(),
        );
    }
    finding = with_cu_init(ctx, finding);
    fixes(ctx, finding, t, &has, &needs)
}

/// Both ways out, and the third where the GPU is eligible: driver, older runtime, compat package.
fn fixes(ctx: &Ctx<'_>, finding: Finding, t: &TooOld<'_>, has: &Version, needs: &str) -> Finding {
    let older = format!("take {}", older_build(ctx, t, has));
    let older = Fix::at(
        if t.copy.reached_by.contains(&ReachedBy::Environment) {
            Layer::Framework
        } else {
            Layer::Runtime
        },
        older,
    )
    .verify("gpudoctor");
    if let Some(finding) = fixes_elsewhere(ctx, &finding, t, needs, &older) {
        return finding;
    }
    // A GPU whose support ended before the branch that is needed cannot go that way.
    let stuck: Vec<String> = ctx
        .gpus()
        .filter(|device| {
            let arch = ctx
                .gpu(device)
                .and_then(|g| g.capability)
                .and_then(|c| ctx.matrix.arch(c));
            arch.and_then(|a| a.last_driver_branch)
                .zip(t.minimum.branch)
                .is_some_and(|(last, branch)| last < branch)
        })
        .map(|device| ctx.gpu_name(device))
        .collect();
    if !stuck.is_empty() && stuck.len() == ctx.gpus().count() {
        return finding
            .evidence(
                "driver upgrade",
                format!(
                    "no: what CUDA {} needs no longer supports {}",
                    t.version.major_minor(),
                    in_words(&stuck)
                ),
                "compatibility matrix: last branch of the architecture",
            )
            .fix(older);
    }
    let place = ctx
        .hands_off()
        .map_or_else(String::new, |place| format!(" {place}"));
    let upgrade = Fix::at(
        Layer::Driver,
        format!(
            "upgrade the driver to {needs} or newer{}{place}",
            t.minimum
                .branch
                .map_or_else(String::new, |branch| format!(" (branch {branch})"))
        ),
    )
    .cost("root, reboot");
    let finding =
        finding.fix(verified(ctx, upgrade)).fix(older.second(
            "leaves the driver as it is, and gives up what only the newer CUDA version has",
        ));
    // The package is for data-center GPUs and certain pairs; the driver must have a branch that the guide lists.
    let base = ctx.loaded_version().map(Version::major);
    let eligible = ctx.gpus().next().is_some()
        && ctx
            .gpus()
            .all(|d| ctx.matrix.compat_eligible(&ctx.gpu_name(d)) == Some(true));
    match base.map(|base| ctx.matrix.forward_compat(&t.version, base)) {
        Some(Compat::Supported { .. }) if eligible && ctx.plain_linux() => finding.fix(
            Fix::at(Layer::Driver, format!("install the package cuda-compat-{}-{} and put its folder first in LD_LIBRARY_PATH", t.version.major(), t.version.minor()))
                .second("forward compatibility: only for data-center GPUs, and a fault of its own once the host's driver is newer than the package")
                .verify("gpudoctor"),
        ),
        _ => finding,
    }
}

/// What the driver is called here: on WSL by the number that Windows gives it, on a Jetson by its `JetPack`.
fn name_of_driver(ctx: &Ctx<'_>) -> String {
    if ctx.in_wsl() {
        let asked = ctx.nvml_answers();
        let number = asked.and_then(|a| a.text("nvmlSystemGetDriverVersion"));
        return number.map_or_else(
            || "the Windows driver".to_owned(),
            |number| format!("the Windows driver {number}"),
        );
    }
    if ctx.on_tegra() {
        return match ctx.jetpack() {
            Some(row) => format!("the driver of JetPack {}", row.jetpack),
            None => "this Jetson's driver".to_owned(),
        };
    }
    let version = ctx.real_libcuda().and_then(|c| c.version.value());
    version.map_or_else(|| "driver".to_owned(), |v| format!("driver {v}"))
}

/// The least driver in the numbers that count here: those of Linux drivers say nothing of Windows's and of a Jetson's.
fn needed(ctx: &Ctx<'_>, minimum: &MinimumDriver) -> String {
    let level = format!("CUDA {}", Version::from_cuda_level(minimum.level));
    if ctx.in_wsl() {
        return match &minimum.version_windows {
            Some(version) => format!("Windows driver {version}"),
            None => format!("a Windows driver of {level}"),
        };
    }
    if ctx.on_tegra() {
        return match first_jetpack(ctx, minimum.level) {
            Some(row) => format!("JetPack {}", row.jetpack),
            None => format!("a JetPack with {level}"),
        };
    }
    let version = minimum.version.as_ref();
    version.map_or(level, ToString::to_string)
}

/// The first `JetPack` for this board that brings a driver of this level.
fn first_jetpack<'a>(ctx: &'a Ctx<'_>, level: u32) -> Option<&'a Jetson> {
    let tegra = ctx.facts.system.tegra.value()?;
    let board = ctx.matrix.jetson_board_of(&tegra.chip)?;
    ctx.matrix.jetsons().iter().find(|row| {
        !row.preview && row.boards.contains(&board.board) && row.cuda.cuda_level() >= level
    })
}

/// The ways out where the driver is not a package of this system: Windows's on WSL, `JetPack`'s on a Jetson.
fn fixes_elsewhere(
    ctx: &Ctx<'_>,
    finding: &Finding,
    t: &TooOld<'_>,
    needs: &str,
    older: &Fix,
) -> Option<Finding> {
    let finding = finding.clone();
    let older = older.clone();
    if ctx.in_wsl() && !ctx.in_container() {
        let upgrade = Fix::at(
            Layer::Driver,
            format!("install a newer NVIDIA driver in Windows ({needs} or newer; `nvidia-smi` shows its CUDA version), then start WSL anew"),
        )
        .line("wsl.exe --shutdown")
        .cost("administrator in Windows, restart of WSL");
        return Some(finding.fix(verified(ctx, upgrade)).fix(older.second(
            "leaves Windows as it is, and gives up what only the newer CUDA version has",
        )));
    }
    if !ctx.on_tegra() {
        return None;
    }
    // What a wheel for servers needs is what a newer JetPack brings; a build for this one is there today.
    let mut finding = finding.fix(older);
    let upgrades = ctx
        .jetpack()
        .and_then(|row| ctx.matrix.jetson_upgrade(&row.jetpack));
    if let Some(row) = upgrades {
        let newest = row
            .upgrades
            .iter()
            .rev()
            .find(|cuda| cuda.cuda_level() >= t.minimum.level);
        let last = row.upgrades.last().unwrap_or(&row.cuda);
        finding = finding
            .evidence(
                format!("CUDA upgrade packages of JetPack {}", row.jetpack),
                format!("up to CUDA {last}"),
                "compatibility matrix: jetson_upgrade",
            )
            .source(row.source.clone());
        if let Some(cuda) = newest {
            finding = finding.fix(
                Fix::at(
                    Layer::Driver,
                    format!("or install NVIDIA's CUDA upgrade package of CUDA {cuda} for this JetPack, and put its folder first on the loader's path"),
                )
                .cost("root")
                .second("one such package at a time, and for CUDA itself only")
                .verify("gpudoctor"),
            );
        }
    }
    Some(match first_jetpack(ctx, t.minimum.level) {
        Some(row) => finding
            .fix(
                Fix::at(
                    Layer::Driver,
                    format!("or move this Jetson to JetPack {} (L4T {}, CUDA {}) or newer, which brings the driver", row.jetpack, row.l4t, row.cuda),
                )
                .cost("root, reboot, flashing")
                .second("the whole system changes with it")
                .verify("gpudoctor"),
            )
            .source(row.source.clone()),
        None => finding,
    })
}

/// What "an older build" means for this consumer.
fn older_build(ctx: &Ctx<'_>, t: &TooOld<'_>, has: &Version) -> String {
    let own = t.copy.reached_by.contains(&ReachedBy::Environment);
    let torch = ctx
        .facts
        .consumer
        .frameworks
        .items()
        .iter()
        .find(|d| d.name == "torch");
    let runs = ctx.matrix.newest_runtime_for_level(has.cuda_level());
    // On a Jetson before the builds for servers run there, an older one of those does not run either.
    if let Some(row) = ctx.jetpack().filter(|row| !row.sbsa && own) {
        let what = torch.map_or_else(
            || format!("packages in {}", ctx.facts.consumer.what),
            |torch| format!("{} {}", torch.name, torch.version),
        );
        return format!(
            "the build for JetPack {} (CUDA {}) in place of {what}: NVIDIA lists its wheels by JetPack",
            row.jetpack, row.cuda
        );
    }
    match torch {
        Some(torch) if own => format!(
            "a build of torch for {runs} in place of {} {}",
            torch.name, torch.version
        ),
        _ if own => format!("packages for {runs} in {}", ctx.facts.consumer.what),
        _ => format!("programs and a toolkit of {runs}"),
    }
}
