//! Programs that bring a back end for each CUDA version and take one that runs: Ollama.

use super::{Ctx, GpuHere, Outcome, code, finding, unread};
use crate::facts::{Framework, Layer, Reading, Runner};
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::CodeFit;
use crate::rules::stack::{in_words, verified};
use crate::sysroot::file_name;
use crate::version::Version;

/// Why a back end does not serve a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refused {
    /// The driver is too old for its CUDA.
    Driver,
    /// It has PTX for the GPU, newer than the driver compiles.
    Ptx,
    /// It has no code for the GPU.
    Code,
}

/// Why a back end does not serve a GPU: `Ok(None)` where it does, the reason where that cannot be told.
fn refused(ctx: &Ctx<'_>, runner: &Runner, gpu: &GpuHere) -> Result<Option<Refused>, String> {
    let Some(code) = runner.code.value() else {
        return Err(format!("{}: {}", runner.folder, runner.code.source()));
    };
    // Without code for the GPU another driver does not help either.
    let by_code = match code::fit_of(ctx, "ollama", code, gpu) {
        CodeFit::Cubin(_) | CodeFit::Ptx(_) => None,
        CodeFit::PtxTooNew(_) => Some(Refused::Ptx),
        CodeFit::No if code.complete => return Ok(Some(Refused::Code)),
        _ => {
            let folder = &runner.folder;
            return Err(format!(
                "{folder}: its device code could not be read to its end"
            ));
        }
    };
    let level = ctx.driver_level().map(|(level, _)| level);
    let is_too_new = level
        .zip(runner.cuda.value())
        .is_some_and(|(level, cuda)| !ctx.matrix.runtime_accepts(cuda, level));
    Ok(if is_too_new {
        Some(Refused::Driver)
    } else {
        by_code
    })
}

pub(super) fn ollama_no_back_end(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    // A Jetson has a back end of its own, chosen by its JetPack; without a GPU that works there is nothing to miss.
    if ctx.on_tegra() || !ctx.gpu_usable() {
        return Outcome::Clean;
    }
    let Some(ollama) = ctx.framework("ollama") else {
        return Outcome::Clean;
    };
    let Reading::Present { value: runners, .. } = &ollama.runners else {
        return Outcome::Clean;
    };
    let mut lost: Vec<(GpuHere, Vec<Refused>)> = Vec::new();
    let mut unknown = Vec::new();
    let gpus = ctx.gpus_here();
    for gpu in &gpus {
        let mut why = Vec::new();
        let mut is_served = false;
        for runner in runners {
            match refused(ctx, runner, gpu) {
                Ok(None) => is_served = true,
                Ok(Some(refused)) => why.push(refused),
                Err(reason) => unknown.push(reason),
            }
        }
        if !is_served && why.len() == runners.len() {
            lost.push((gpu.clone(), why));
        }
    }
    // Where one GPU is served, Ollama works; an old display GPU beside it is a choice.
    if lost.len() < gpus.len() || lost.is_empty() {
        return match unknown {
            reasons if lost.is_empty() && !reasons.is_empty() => {
                Outcome::Unknown { missing: reasons }
            }
            _ => Outcome::Clean,
        };
    }
    Outcome::found([no_back_end(ctx, ollama, runners, &lost)])
}

fn no_back_end(
    ctx: &Ctx<'_>,
    ollama: &Framework,
    runners: &[Runner],
    lost: &[(GpuHere, Vec<Refused>)],
) -> Finding {
    let mut names: Vec<String> = lost.iter().map(|(gpu, _)| gpu.shown()).collect();
    names.dedup();
    let names = in_words(&names);
    let is = |wanted: Refused| lost.iter().any(|(_, why)| why.contains(&wanted));
    let by_driver = is(Refused::Driver) || is(Refused::Ptx);
    let folders: Vec<String> = runners
        .iter()
        .map(|runner| file_name(&runner.folder).to_owned())
        .collect();
    let driver = ctx.driver_version().map_or_else(
        || "this driver".to_owned(),
        |(version, _)| format!("driver {version}"),
    );
    let why = if by_driver {
        format!("{driver} is too old for {}", in_words(&folders))
    } else {
        format!("{} has no code for it", in_words(&folders))
    };
    let title = format!("Ollama has no back end that runs on {names}: {why}");
    let mut finding = finding("ollama-no-back-end", ollama, Severity::Warning, title)
        .detail("Ollama brings a back end for each CUDA version and takes one that starts; where none does it computes on the processor without an error, and `ollama ps` shows 100% CPU.");
    if by_driver {
        finding.layer = Layer::Driver;
        finding.complaining_layer = Layer::Framework;
    }
    for (gpu, _) in lost {
        finding = finding.evidence(
            gpu.name.clone(),
            format!(
                "compute capability {}.{}",
                gpu.capability.0, gpu.capability.1
            ),
            gpu.source.clone(),
        );
    }
    for (index, runner) in runners.iter().enumerate() {
        let refused = lost.first().and_then(|(_, why)| why.get(index));
        let text = match refused {
            Some(Refused::Driver) => "its CUDA is too new for the driver",
            Some(Refused::Ptx) => "it has PTX for the GPU that the driver does not compile",
            _ => "no code for the GPU",
        };
        let cuda = runner
            .cuda
            .value()
            .map_or_else(String::new, |cuda| format!("CUDA {cuda}: "));
        let code = runner.code.value().map(code::held).unwrap_or_default();
        finding = finding
            .evidence(
                file_name(&runner.folder).to_owned(),
                format!("{cuda}{text}"),
                runner.cuda.source(),
            )
            .evidence("device code", code, runner.code.source());
    }
    let row = ctx.matrix.ollama_releases().last();
    if let Some((level, source)) = ctx.driver_level().filter(|_| by_driver) {
        finding = finding.evidence(
            "driver",
            format!("CUDA {} ({level})", Version::from_cuda_level(level)),
            source,
        );
    }
    if let Some(row) = row {
        finding = finding.source(row.source.clone());
    }
    if by_driver {
        let least = least_driver(ctx, lost);
        let wanted = least.map_or_else(
            || "a newer driver".to_owned(),
            |branch| format!("driver {branch} or newer"),
        );
        let fix = match ctx.hands_off() {
            Some(place) => format!("take {wanted}, {place}"),
            None => format!("install {wanted}"),
        };
        let fix = verified(ctx, Fix::at(Layer::Driver, fix).cost("root, reboot"));
        finding.fix(fix.verify("ollama ps")).fix(
            Fix::at(
                Layer::Framework,
                "or take an older release of Ollama, whose back end is of an older CUDA",
            )
            .second("newer models do not run with it"),
        )
    } else {
        finding.fix(
            Fix::at(
                Layer::Framework,
                format!("take a release of Ollama with code for {names}, or build it here: CMAKE_CUDA_ARCHITECTURES names the GPU"),
            )
            .cost("rebuild")
            .verify("ollama ps"),
        )
    }
}

/// The branch that the newest releases of Ollama ask for with these GPUs.
fn least_driver(ctx: &Ctx<'_>, lost: &[(GpuHere, Vec<Refused>)]) -> Option<u32> {
    let row = ctx.matrix.ollama_releases().last()?;
    let is_old = |gpu: &GpuHere| row.old_below.is_some_and(|below| gpu.capability < below);
    if lost.iter().any(|(gpu, _)| is_old(gpu)) {
        row.min_driver_old.or(row.min_driver)
    } else {
        row.min_driver
    }
}
