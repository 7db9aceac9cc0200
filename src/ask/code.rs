//! Runtime and GPU: whether the toolkit writes code that the GPU runs: its own machine code, that of an earlier minor of
//! the same major version, or PTX alone.

use super::can::{Case, Check, CudaSide};
use super::gpus::GpuKind;
use super::{Cited, Word, sm};
use crate::facts::Layer;
use crate::matrix::{Arch, Capability, Confidence, Fit, Matrix, Scope, Target as CodeTarget};
use crate::version::Version;

/// Runtime and GPU: whether what the toolkit writes is code for it.
pub(super) fn code_for_gpu(case: &Case<'_>, cuda: &CudaSide<'_>, kind: &GpuKind) -> Check {
    let matrix = case.matrix;
    let unknown = |why: &str, cited: Vec<Cited>| {
        let headline = format!(
            "whether {} builds for {} is not known: {why}",
            cuda.shown(),
            kind.name
        );
        Check::not(Word::Unknown, Layer::Runtime, headline, cited)
    };
    let Some(arch) = kind.arch(matrix) else {
        return unknown("its compute capability is not known", Vec::new());
    };
    let Some(toolkit) = &cuda.toolkit else {
        return unknown("the matrix does not know this major version", Vec::new());
    };
    let served = serves(matrix, toolkit, arch.capability);
    let cited = Cited::arch(toolkits_text(arch), arch);
    match served {
        Served::Own => {
            let mut check = Check::yes(Layer::Runtime, vec![cited]);
            if case.driver.is_none() && cuda.newer {
                check.limits.push(Cited::rule(
                    format!(
                        "{} is newer than the matrix of {}",
                        cuda.shown(),
                        matrix.as_of()
                    ),
                    "the last toolkit of its major version that the matrix knows",
                    Confidence::Secondary,
                ));
            }
            check
        }
        Served::By(code) => {
            let mut check = Check::yes(Layer::Runtime, vec![cited]);
            let rules = matrix.binary_rules().iter();
            check.limits.push(Cited::rule(
                format!(
                    "{} writes no code for {} itself; its machine code for {} runs there",
                    cuda.shown(),
                    sm(arch.capability),
                    sm(code)
                ),
                "compute capability rules of the CUDA documentation",
                Confidence::Secondary,
            ));
            check.why.extend(
                rules
                    .filter(|rule| rule.kind == "cubin")
                    .map(Cited::binary_rule),
            );
            check
        }
        Served::Unsure(why) => unknown(&why, vec![cited]),
        Served::PtxOnly(code) => {
            let headline = format!(
                "{} writes no machine code for {} ({}, from CUDA {} on): only a program that brings PTX runs there",
                cuda.shown(),
                kind.name,
                sm(arch.capability),
                arch.first_toolkit.major_minor()
            );
            let mut why = vec![cited];
            let rules = matrix.binary_rules().iter();
            why.extend(
                rules
                    .filter(|rule| rule.kind == "ptx")
                    .map(Cited::binary_rule),
            );
            Check::not(Word::Unknown, Layer::Runtime, headline, why).because(format!(
                "a newer driver only compiles the PTX that a program brings ({} at the newest); machine code for this GPU is in builds for CUDA {} or newer",
                sm(code).replace("sm_", "compute_"),
                arch.first_toolkit.major_minor()
            ))
        }
        Served::No => {
            let last = arch.last_toolkit.as_ref().map_or_else(String::new, |last| {
                format!(": CUDA {} is the last that does", last.major_minor())
            });
            let headline = format!(
                "{} no longer builds for {} ({}){last}",
                cuda.shown(),
                kind.name,
                sm(arch.capability)
            );
            Check::not(Word::No, Layer::Runtime, headline, vec![cited]).because(
                "no driver brings back code that the toolkit no longer writes, and the PTX of newer architectures does not compile for an older one",
            )
        }
    }
}

fn toolkits_text(arch: &Arch) -> String {
    let to = match &arch.last_toolkit {
        Some(last) => format!("to {}", last.major_minor()),
        None => "on".to_owned(),
    };
    format!(
        "{}: built for by CUDA {} {to}",
        sm(arch.capability),
        arch.first_toolkit.major_minor()
    )
}

/// How a toolkit serves a GPU.
pub(super) enum Served {
    /// It builds for it.
    Own,
    /// Its machine code for this capability runs there.
    By(Capability),
    /// Only its PTX can: the newest that it writes below the GPU's.
    PtxOnly(Capability),
    /// Not known, and why.
    Unsure(String),
    /// It writes nothing that runs there.
    No,
}

/// How a toolkit (its minor version) serves GPUs of this capability.
pub(super) fn serves(matrix: &Matrix, toolkit: &Version, gpu: Capability) -> Served {
    let minor = |version: &Version| Version::from_cuda_level(version.cuda_level());
    let built = |arch: &&Arch| {
        minor(&arch.first_toolkit) <= *toolkit
            && arch
                .last_toolkit
                .as_ref()
                .is_none_or(|last| minor(last) >= *toolkit)
    };
    let targets: Vec<Capability> = matrix
        .archs()
        .iter()
        .filter(built)
        .map(|arch| arch.capability)
        .collect();
    if targets.contains(&gpu) {
        return Served::Own;
    }
    let fit = |capability: Capability| {
        let target = CodeTarget {
            capability,
            scope: Scope::Plain,
        };
        matrix.cubin_fits(&target, gpu)
    };
    let mut below = targets.iter().rev().filter(|target| **target < gpu);
    if let Some(code) = below.clone().find(|target| fit(**target) == Fit::Yes) {
        return Served::By(*code);
    }
    let unsure = targets.iter().rev().find_map(|target| match fit(*target) {
        Fit::Unknown(why) => Some(format!("{} code there: {why}", sm(*target))),
        _ => None,
    });
    match (unsure, below.next()) {
        (Some(why), _) => Served::Unsure(why),
        (None, Some(code)) => Served::PtxOnly(*code),
        (None, None) => Served::No,
    }
}
