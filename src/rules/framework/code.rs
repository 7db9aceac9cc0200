//! Device code: what a framework's library holds against the GPUs that are here.
//!
//! Whether code runs on a GPU is the matrix's knowledge; here it is asked for one library and all GPUs. That nothing is
//! there is said only where all of the library's device code was looked at.

use super::{Ctx, GpuHere, Outcome, finding, instead, shown, sm, unread};
use crate::facts::{DeviceCode, Framework, Layer};
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::{CodeFit, Target};
use crate::rules::stack::{in_words, verified};
use crate::version::Version;

/// Frameworks that a program may do without: it takes another way where they do not run.
const EXTENSIONS: &[&str] = &[
    "xformers",
    "flash-attn",
    "flash-attn-3",
    "bitsandbytes",
    "torchvision",
];
/// Programs of their own.
const PROGRAMS: &[&str] = &["llama.cpp", "triton-server"];
/// Below this capability ggml's kernels lack the instructions (`dp4a`) that they are written with, so that PTX for it is
/// compiled for a newer GPU and still stops: "no device code compatible with CUDA arch 520".
const LEAST_OF_GGML: (u32, u32) = (6, 1);
/// What computes by ggml.
const WITH_GGML: &[&str] = &["llama.cpp", "ollama"];

/// How a library's code does on a GPU: machine code, else PTX where the driver here compiles it.
fn fit(ctx: &Ctx<'_>, framework: &Framework, code: &DeviceCode, gpu: &GpuHere) -> CodeFit {
    fit_of(ctx, &framework.name, code, gpu)
}

/// The same of a part of a framework.
pub(super) fn fit_of(ctx: &Ctx<'_>, name: &str, code: &DeviceCode, gpu: &GpuHere) -> CodeFit {
    let targets = |names: &[String]| -> Option<Vec<Target>> {
        names.iter().map(|name| Target::parse(name)).collect()
    };
    let ptx: Option<Vec<(Target, Version)>> = code
        .ptx
        .iter()
        .map(|ptx| Some((Target::parse(&ptx.target)?, ptx.isa.clone())))
        .collect();
    let (Some(elf), Some(ptx)) = (targets(&code.elf), ptx) else {
        return CodeFit::Unknown("a target that is not known".to_owned());
    };
    let level = ctx.driver_level().map(|(level, _)| level);
    match ctx.matrix.held_code_fit(&elf, &ptx, gpu.capability, level) {
        CodeFit::Ptx(best)
            if WITH_GGML.contains(&name)
                && best.capability < LEAST_OF_GGML
                && gpu.capability >= LEAST_OF_GGML =>
        {
            CodeFit::No
        }
        fit => fit,
    }
}

/// A framework whose own code decides, with its code.
fn with_code<'a>(ctx: &'a Ctx<'_>) -> impl Iterator<Item = (&'a Framework, &'a DeviceCode)> {
    ctx.frameworks()
        .iter()
        .filter_map(|framework| Some((framework, framework.code.value()?)))
        // A file without any is no build for CUDA: that is another question.
        .filter(|(_, code)| !code.elf.is_empty() || !code.ptx.is_empty())
}

/// The GPUs that answer to a question about their fit, each kind once.
fn gpus_where(
    ctx: &Ctx<'_>,
    framework: &Framework,
    code: &DeviceCode,
    is_so: impl Fn(&CodeFit) -> bool,
) -> Vec<GpuHere> {
    let mut gpus: Vec<GpuHere> = Vec::new();
    for gpu in ctx.gpus_here() {
        let is_new = !gpus.iter().any(|known| known.capability == gpu.capability);
        if is_new && is_so(&fit(ctx, framework, code, &gpu)) {
            gpus.push(gpu);
        }
    }
    gpus
}

/// What a library holds, for a sentence.
pub(super) fn held(code: &DeviceCode) -> String {
    let ptx = code
        .ptx
        .iter()
        .map(|ptx| format!("{} (PTX {})", ptx.target, ptx.isa));
    let all: Vec<String> = code.elf.iter().cloned().chain(ptx).collect();
    all.join(" ")
}

/// Error where no GPU is left for a framework that one cannot do without.
fn severity(ctx: &Ctx<'_>, framework: &Framework, affected: &[GpuHere]) -> Severity {
    let is_left = ctx
        .gpus_here()
        .iter()
        .any(|gpu| !affected.iter().any(|a| a.capability == gpu.capability));
    // A program on PATH that no environment brings is one of several things that may be run here.
    let is_beside =
        framework.distribution.is_absent() && PROGRAMS.contains(&framework.name.as_str());
    if is_left || is_beside || EXTENSIONS.contains(&framework.name.as_str()) {
        Severity::Warning
    } else {
        Severity::Error
    }
}

/// Adds the GPUs and the code as evidence.
fn with_evidence(
    mut finding: Finding,
    framework: &Framework,
    code: &DeviceCode,
    gpus: &[GpuHere],
) -> Finding {
    for gpu in gpus {
        finding = finding.evidence(
            gpu.name.clone(),
            format!(
                "compute capability {}.{}",
                gpu.capability.0, gpu.capability.1
            ),
            gpu.source.clone(),
        );
    }
    finding.evidence("device code", held(code), framework.code.source())
}

fn names(gpus: &[GpuHere]) -> String {
    in_words(&gpus.iter().map(GpuHere::shown).collect::<Vec<_>>())
}

pub(super) fn framework_lacks_gpu_code(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let mut findings = Vec::new();
    let mut unknown = Vec::new();
    let mut torch_lacks = false;
    for (framework, code) in with_code(ctx) {
        let none = gpus_where(ctx, framework, code, |fit| *fit == CodeFit::No);
        if none.is_empty() {
            continue;
        }
        if !code.complete {
            let source = framework.code.source();
            unknown.push(format!(
                "device code for {}: {source} could not be read to its end",
                names(&none)
            ));
            continue;
        }
        // On a Jetson the wheel for its JetPack is the answer, and another rule gives it.
        if ctx.on_tegra() && framework.name == "torch" {
            continue;
        }
        // What is built on a torch without code for the GPU gets there with another torch.
        if torch_lacks
            && framework
                .cuda_needs
                .iter()
                .any(|need| need.soname.starts_with("libcudart"))
        {
            continue;
        }
        torch_lacks |= framework.name == "torch";
        findings.push(lacks(ctx, framework, code, &none));
    }
    if findings.is_empty() && !unknown.is_empty() {
        return Outcome::Unknown { missing: unknown };
    }
    Outcome::found(findings)
}

fn lacks(ctx: &Ctx<'_>, framework: &Framework, code: &DeviceCode, gpus: &[GpuHere]) -> Finding {
    let title = format!(
        "{} has no code for {}: it has {}",
        shown(framework),
        names(gpus),
        held(code)
    );
    let mut finding = finding("framework-lacks-gpu-code", framework, severity(ctx, framework, gpus), title)
        .detail("Its kernels cannot start on that GPU: `no kernel image is available for execution on the device`. Machine code runs on GPUs of its own major version and the same or a later minor; PTX is compiled for later ones. Driver and CUDA runtime are not at fault, and a newer driver does not help.");
    // llama.cpp is compiled by whoever makes the program: the program's own artefact is wrong then.
    if framework.name == "llama.cpp" {
        finding.layer = Layer::Application;
        finding.complaining_layer = Layer::Application;
    }
    let finding = with_evidence(finding, framework, code, gpus)
        .source("CUDA C++ Programming Guide: binary and PTX compatibility");
    instead::with_build_for(ctx, finding, framework, &ctx.gpus_here())
}

pub(in crate::rules) fn framework_ptx_too_new(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let mut findings = Vec::new();
    for (framework, code) in with_code(ctx).filter(|(_, code)| code.complete) {
        let gpus = gpus_where(ctx, framework, code, |fit| {
            matches!(fit, CodeFit::PtxTooNew(_))
        });
        let Some((level, source)) = ctx.driver_level().filter(|_| !gpus.is_empty()) else {
            continue;
        };
        let has = Version::from_cuda_level(level);
        let mut finding = finding(
            "framework-ptx-too-new",
            framework,
            severity(ctx, framework, &gpus),
            format!("{} has only PTX for {}, newer than this driver of CUDA {has} compiles", shown(framework), names(&gpus)),
        )
        .detail("The driver compiles PTX when a program starts, and knows the PTX of its own CUDA release and older: `the provided PTX was compiled with an unsupported toolchain` (222).")
        .evidence("driver", format!("CUDA {has} ({level})"), source);
        finding.layer = Layer::Driver;
        finding.complaining_layer = Layer::Framework;
        if let Some(isa) = ctx.matrix.ptx_isa_of_level(level) {
            finding = finding.evidence(
                "PTX that this driver takes",
                format!("up to ISA {}", isa.ptx),
                isa.source.clone(),
            );
        }
        let finding = with_evidence(finding, framework, code, &gpus);
        let newest = code.ptx.iter().map(|ptx| ptx.isa.to_string()).next_back();
        let wanted = newest.map_or_else(String::new, |isa| format!(" that takes PTX {isa}"));
        let fix = match ctx.hands_off() {
            Some(place) => format!("take a newer driver{wanted}, {place}"),
            None => format!("upgrade the driver to one{wanted}"),
        };
        let finding = finding.fix(verified(
            ctx,
            Fix::at(Layer::Driver, fix).cost("root, reboot"),
        ));
        findings.push(instead::with_build_for(
            ctx,
            finding,
            framework,
            &ctx.gpus_here(),
        ));
    }
    Outcome::found(findings)
}

/// `CUDA_DISABLE_PTX_JIT` takes PTX away, `CUDA_FORCE_PTX_JIT` machine code: what is left may be nothing.
pub(in crate::rules) fn ptx_jit_variable(ctx: &Ctx<'_>) -> Outcome {
    const VARIABLES: [&str; 2] = ["CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT"];
    let is_set = |name: &&str| ctx.env(name).is_some_and(|value| value.trim() == "1");
    let Some(variable) = VARIABLES.into_iter().find(is_set) else {
        return Outcome::Clean;
    };
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let forced = variable == "CUDA_FORCE_PTX_JIT";
    let mut findings = Vec::new();
    for (framework, code) in with_code(ctx) {
        // Of code that was not looked at to its end it is not known that there is no PTX.
        if forced && !code.complete {
            continue;
        }
        let left = DeviceCode {
            elf: if forced { Vec::new() } else { code.elf.clone() },
            ptx: if forced { code.ptx.clone() } else { Vec::new() },
            complete: code.complete,
        };
        let runs = |fit: &CodeFit| matches!(fit, CodeFit::Cubin(_) | CodeFit::Ptx(_));
        let served = gpus_where(ctx, framework, code, runs);
        let lost: Vec<GpuHere> = served
            .into_iter()
            .filter(|gpu| fit(ctx, framework, &left, gpu) == CodeFit::No)
            .collect();
        if lost.is_empty() || !code.complete {
            continue;
        }
        let (takes, rest) = if forced {
            ("machine code", "PTX")
        } else {
            ("PTX", "machine code")
        };
        let mut finding = finding(
            "ptx-jit-variable",
            framework,
            severity(ctx, framework, &lost),
            format!("{variable}=1 leaves {} without code for {}: it has only {takes} for it", shown(framework), names(&lost)),
        )
        .detail(format!("With this variable the driver ignores {takes}, and of {rest} there is none for this GPU: `no kernel image is available for execution on the device`."))
        .evidence(variable, "1", "environment");
        finding.layer = Layer::Application;
        finding.complaining_layer = Layer::Framework;
        let fix = Fix::at(Layer::Application, format!("do not set {variable}"))
            .command(&["unset", variable]);
        findings.push(with_evidence(finding, framework, code, &lost).fix(fix));
    }
    Outcome::found(findings)
}

/// Whether the code of the frameworks is for the GPUs that are here: `code for sm_86 is there`.
pub(super) fn summary(ctx: &Ctx<'_>) -> Option<String> {
    let (framework, code) = with_code(ctx).next()?;
    let gpus = ctx.gpus_here();
    let mut texts: Vec<String> = Vec::new();
    for gpu in &gpus {
        let word = sm(gpu.capability);
        let text = match fit(ctx, framework, code, gpu) {
            CodeFit::Cubin(_) => format!("code for {word} is there"),
            CodeFit::Ptx(_) => format!("PTX that the driver compiles for {word}"),
            CodeFit::PtxTooNew(_) => format!("PTX for {word} that is too new for the driver"),
            CodeFit::No if code.complete => format!("no code for {word}"),
            CodeFit::No => format!("code for {word} not seen"),
            CodeFit::Unknown(_) => format!("whether its code runs on {word} is not known"),
        };
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    (!texts.is_empty()).then(|| texts.join(", "))
}
