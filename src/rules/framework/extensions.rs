//! Builds for another CUDA than the one that is here: libraries that need a major version of libcudart or cuBLAS which no
//! file provides, bitsandbytes without a library for torch's CUDA, operators of `DeepSpeed` for another torch.

use super::{Ctx, Outcome, finding, instead, shown, unread};
use crate::facts::{CudaNeed, Framework, Layer, Reading};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::in_words;
use crate::version::Version;

/// The major version in a soname: 12 of `libcublasLt.so.12`.
fn major(soname: &str) -> Option<u32> {
    let (_, version) = soname.split_once(".so.")?;
    Version::parse(version).map(|v| v.major())
}

/// A library needs one CUDA, and there is another.
pub(super) fn framework_for_other_cuda(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    Outcome::found(ctx.frameworks().iter().filter_map(|framework| {
        let other = other_cuda(ctx, framework)?;
        Some(for_other_cuda(ctx, framework, &other))
    }))
}

/// Whether a framework is built for another CUDA than the one that is here.
pub(in crate::rules) fn is_for_other_cuda(ctx: &Ctx<'_>, framework: &Framework) -> bool {
    other_cuda(ctx, framework).is_some()
}

/// The CUDA that a framework is built for, and the one that is here.
struct OtherCuda<'a> {
    wants: u32,
    missing: Vec<&'a CudaNeed>,
    others: Vec<String>,
    torch: Option<&'a Version>,
}

fn other_cuda<'a>(ctx: &'a Ctx<'_>, framework: &'a Framework) -> Option<OtherCuda<'a>> {
    let missing: Vec<&CudaNeed> = framework
        .cuda_needs
        .iter()
        .filter(|need| need.found.is_absent())
        .collect();
    let first = missing.first()?;
    let wants = major(&first.soname)?;
    // Without any other CUDA its libraries are missing, and that is no fault of the build.
    let mut others: Vec<String> = missing
        .iter()
        .flat_map(|need| need.others.clone())
        .collect();
    others.sort();
    others.dedup();
    let torch = ctx
        .framework("torch")
        .filter(|torch| framework.name != "torch" && torch.library.is_present());
    let torch = torch
        .and_then(|torch| torch.cuda.value())
        .filter(|cuda| cuda.major() != wants);
    (!others.is_empty() || torch.is_some()).then_some(OtherCuda {
        wants,
        missing,
        others,
        torch,
    })
}

/// What says so and goes on by another way breaks less: xformers only warns, and ONNX Runtime beside a torch that works
/// is often there for the processor.
fn severity(ctx: &Ctx<'_>, framework: &Framework) -> Severity {
    let torch_works = ctx.framework("torch").is_some_and(|torch| {
        torch.library.is_present() && torch.cuda_needs.iter().all(|need| need.found.is_present())
    });
    match framework.name.as_str() {
        "xformers" => Severity::Warning,
        "onnxruntime" if torch_works => Severity::Warning,
        _ => Severity::Error,
    }
}

fn for_other_cuda(ctx: &Ctx<'_>, framework: &Framework, other: &OtherCuda<'_>) -> Finding {
    let OtherCuda {
        wants,
        missing,
        others,
        torch: torch_cuda,
    } = other;
    let (wants, torch_cuda) = (*wants, *torch_cuda);
    let sonames: Vec<String> = missing.iter().map(|need| need.soname.clone()).collect();
    let here = match torch_cuda {
        Some(cuda) => format!("torch here brings CUDA {cuda}"),
        None => format!("only {} is here", in_words(others)),
    };
    let title = format!(
        "{} is built for CUDA {wants} and needs {}, but {here}",
        shown(framework),
        in_words(&sonames)
    );
    let mut finding = finding("framework-for-other-cuda", framework, severity(ctx, framework), title)
        .detail("Its library does not load without the CUDA libraries of that major version: `cannot open shared object file`. ONNX Runtime then computes on the processor without an error. Libraries of another major version do not stand in for them.")
        .evidence("needed", in_words(&sonames), framework.library.source());
    for need in missing {
        finding = finding.evidence(need.soname.clone(), "not found", need.found.source());
    }
    if !others.is_empty() {
        finding = finding.evidence(
            "of another version",
            others.join(" "),
            "the environment's folders, ld.so.cache",
        );
    }
    if let Some(torch) = ctx.framework("torch").filter(|_| torch_cuda.is_some()) {
        finding = finding.reading("torch", &torch.version);
    }
    let has = torch_cuda
        .map(Version::major)
        .or_else(|| others.iter().filter_map(|name| major(name)).max());
    let name = framework
        .distribution
        .value()
        .unwrap_or(&framework.name)
        .clone();
    let Some(has) = has else {
        return finding.fix(Fix::at(
            Layer::Framework,
            format!("take a build of {name} for the CUDA that is here"),
        ));
    };
    if framework.name == "onnxruntime" {
        // The first release of the wanted CUDA: nearest to what is installed.
        let rows = ctx.matrix.onnxruntime_releases();
        let version = framework.version.value().and_then(|v| Version::parse(v));
        let of_major = rows.iter().filter(|row| row.cuda.major() == has);
        let row = match version {
            Some(v)
                if rows
                    .iter()
                    .any(|row| row.cuda.major() == has && row.version > v) =>
            {
                of_major.into_iter().find(|row| row.version > v)
            }
            _ => of_major.into_iter().next_back(),
        };
        if let Some(row) = row {
            let fix = Fix::at(
                Layer::Framework,
                format!(
                    "install onnxruntime-gpu {}, which is built for CUDA {}",
                    row.version, row.cuda
                ),
            );
            let what = format!("onnxruntime-gpu=={}", row.version);
            finding = finding
                .fix(instead::install(ctx, fix, framework, &[&what]))
                .source(row.source.clone());
        }
    } else {
        finding = finding.fix(Fix::at(
            Layer::Framework,
            format!("take a build of {name} for CUDA {has}"),
        ));
    }
    let torch = ctx.framework("torch").filter(|_| torch_cuda.is_some());
    if let Some(torch) = torch
        && let Some(build) = instead::torch_build_of_major(ctx, torch, wants)
    {
        let fix = instead::torch_fix(
            ctx,
            torch,
            &build,
            &format!("it brings CUDA {wants}, as {} needs it", shown(framework)),
        );
        return finding.fix(fix);
    }
    let wheels = match wants {
        11 | 12 => Some(format!(
            "nvidia-cuda-runtime-cu{wants} nvidia-cublas-cu{wants}"
        )),
        13 => Some("nvidia-cuda-runtime nvidia-cublas".to_owned()),
        _ => None,
    };
    match wheels {
        Some(wheels) => finding.fix(Fix::at(Layer::Libraries, format!("or bring the libraries of CUDA {wants} beside the others: {wheels}, and their folders in LD_LIBRARY_PATH")).second("two CUDA versions in one environment are twice as much to keep right")),
        None => finding,
    }
}

/// The first release of bitsandbytes that takes another of its libraries where it has none for torch's CUDA. Measured on
/// 0.50.2; whether some releases before it do is not known.
const TAKES_ANOTHER: &str = "0.50";
/// The last release that is known to need one for that very version.
const NEEDS_THE_SAME: &str = "0.45";

pub(super) fn bitsandbytes_no_library(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let (Some(part), Some(torch)) = (ctx.framework("bitsandbytes"), ctx.framework("torch")) else {
        return Outcome::Clean;
    };
    // Without a library for any CUDA it is a build for something else; without torch's CUDA there is nothing to compare.
    let Some(cuda) = torch.cuda.value().filter(|_| !part.variants.is_empty()) else {
        return Outcome::Clean;
    };
    if ctx
        .env("BNB_CUDA_VERSION")
        .is_some_and(|value| !value.is_empty())
    {
        return Outcome::Clean;
    }
    if part
        .variants
        .iter()
        .any(|v| v.major_minor() == cuda.major_minor())
    {
        return Outcome::Clean;
    }
    let minor = part
        .version
        .value()
        .and_then(|v| Version::parse(v))
        .and_then(|v| Version::parse(&v.major_minor()));
    let Some(minor) = minor else {
        return Outcome::unknown("the version of bitsandbytes: not read");
    };
    let is_from = |from: &str| Version::parse(from).is_some_and(|from| minor >= from);
    let same_major = part.variants.iter().any(|v| v.major() == cuda.major());
    let severity =
        if !same_major || Version::parse(NEEDS_THE_SAME).is_some_and(|last| minor <= last) {
            Severity::Error
        } else if is_from(TAKES_ANOTHER) {
            return Outcome::Clean;
        } else {
            Severity::Warning
        };
    let has: Vec<String> = part.variants.iter().map(Version::major_minor).collect();
    let finding = finding(
        "bitsandbytes-no-library",
        part,
        severity,
        format!("{} has no library for CUDA {cuda} of {}: it has them for {}", shown(part), shown(torch), in_words(&has)),
    )
    .detail("bitsandbytes brings a library for each CUDA version and takes the one for torch's: `CUDA Setup failed despite GPU being available`. GPU and driver are not at fault.")
    .reading("torch", &torch.version)
    .reading("CUDA of torch", &torch.cuda)
    .evidence("libraries of bitsandbytes", has.join(" "), format!("{}/bitsandbytes", part.site));
    let fitting = ctx.matrix.bitsandbytes_releases().iter().find(|row| {
        row.cudas
            .iter()
            .any(|c| c.major_minor() == cuda.major_minor())
    });
    let (fix, what, source) = if let Some(row) = fitting {
        let summary = format!(
            "install bitsandbytes {} or newer, which has one for CUDA {cuda}",
            row.version
        );
        let what = format!("bitsandbytes>={}", row.version);
        (summary, what, row.source.clone())
    } else {
        let summary = "install the newest bitsandbytes".to_owned();
        (summary, "bitsandbytes".to_owned(), String::new())
    };
    let fix = Fix::at(Layer::Framework, fix);
    let fix = instead::install(ctx, fix, part, &["-U", &what]);
    let finding = finding.fix(fix).source(source);
    Outcome::found([finding])
}

/// Operators that compute on the processor: torch's CUDA does not matter to them.
const ON_THE_PROCESSOR: &[&str] = &["async_io", "cpu_", "deepspeed_", "utils"];

/// `DeepSpeed` compares the torch that its compiled operators were built with, and refuses another one.
pub(super) fn deepspeed_ops_for_other_torch(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let (Some(part), Some(torch)) = (ctx.framework("deepspeed"), ctx.framework("torch")) else {
        return Outcome::Clean;
    };
    let operators = match &part.operators {
        Reading::Present { value, .. } => value,
        Reading::Absent { .. } => return Outcome::Clean,
        Reading::Unreadable { reason } => {
            return Outcome::unknown(format!("operators of DeepSpeed: {reason}"));
        }
    };
    let Some(has) = torch.version.value().and_then(|v| Version::parse(v)) else {
        return Outcome::Clean;
    };
    let of_gpu = operators
        .names
        .iter()
        .any(|name| !ON_THE_PROCESSOR.iter().any(|start| name.starts_with(start)));
    let other_torch = operators.torch.major_minor() != has.major_minor();
    let other_cuda = match (&operators.cuda, torch.cuda.value()) {
        (Some(built), Some(cuda)) if of_gpu => built.major_minor() != cuda.major_minor(),
        _ => false,
    };
    if !other_torch && !other_cuda {
        return Outcome::Clean;
    }
    let mut built = format!("torch {}", operators.torch.major_minor());
    if let Some(cuda) = operators.cuda.as_ref().filter(|_| other_cuda) {
        built = format!("{built} for CUDA {}", cuda.major_minor());
    }
    let title = format!(
        "the operators of {} are compiled for {built}, and {} is here: DeepSpeed refuses them",
        shown(part),
        shown(torch)
    );
    let name = part.distribution.value().unwrap_or(&part.name);
    let version = part.version.value().map_or("", |v| v.trim());
    let again = format!("{name}=={}", version.split('+').next().unwrap_or(version));
    let what = [
        "--force-reinstall",
        "--no-deps",
        "--no-cache-dir",
        "--no-build-isolation",
        again.as_str(),
    ];
    let rebuild = Fix::at(
        Layer::Framework,
        format!(
            "install it again against this torch: its operators are compiled anew, {}",
            if other_torch {
                "when they are first used"
            } else {
                "for its CUDA"
            }
        ),
    )
    .cost("rebuild")
    .verify("ds_report");
    let finding = finding("deepspeed-ops-for-other-torch", part, Severity::Warning, title)
        .detail("It wrote down the torch and CUDA that its operators were built with, and stops where one of them is loaded beside another: `PyTorch version mismatch! DeepSpeed ops were compiled and installed with a different version`. What uses none of its operators runs.")
        .reading("torch", &torch.version)
        .reading("CUDA of torch", &torch.cuda)
        .evidence("operators compiled", operators.names.join(" "), part.operators.source())
        .evidence("built with", built, part.operators.source())
        .source("op_builder/builder.py of DeepSpeed 0.18.2");
    Outcome::found([finding.fix(instead::install(ctx, rebuild, part, &what))])
}
