//! What stands in a file of the catalogue.
//!
//! A file is a family of failures: a head (`schema`, `as_of`), then tables. `[[error]]` is one failure, [`Error`];
//! `[[form]]` a way in which programs write a bare number, [`Form`]; `[[number]]` a number with its name alone,
//! `[[success]]` what is no error at all, [`Success`], and `[[legacy]]` a number that CUDA gave before 10.1. The index that is made when gpudoctor is built reads `id`, `weight`,
//! `codes`, `names`, `literals`, `with` and the `with` of `patterns`, each key on a line of its own.
//!
//! Texts are found loosely: case counts for nothing, any run of blanks and line breaks is one blank, any quote is `'`.
//! A literal stands at the borders of words unless `*` at its end opens it there. Patterns see the line in that form.

use serde::Deserialize;

use crate::facts::Layer;
use crate::finding::Severity;
use crate::matrix::Confidence;

/// One distinct failure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Error {
    /// Kebab-case, never reused.
    pub id: String,
    /// 0 to 100: of several that match one line the heaviest is told first. What only passes another error on is below 30.
    pub weight: u32,
    /// Numbers that mean it: `cuda 35`.
    #[serde(default)]
    pub codes: Vec<String>,
    /// Names of those numbers. Each is a literal as well.
    #[serde(default)]
    pub names: Vec<String>,
    /// Texts that each prove it.
    #[serde(default)]
    pub literals: Vec<String>,
    /// Patterns that each prove it.
    #[serde(default)]
    pub patterns: Vec<Pattern>,
    /// Texts beside which it is something else.
    #[serde(default)]
    pub unless: Vec<String>,
    /// Whose stack; `None` is NVIDIA's.
    pub vendor: Option<String>,
    /// `note`: people take it for a failure, and it is none.
    pub severity: Severity,
    /// The layer that writes the text.
    pub complaining_layer: Layer,
    /// Where it has to be mended, likeliest first.
    pub layers_at_fault: Vec<Layer>,
    /// What it says, in a phrase.
    pub meaning: String,
    /// Why it happens, likeliest first.
    pub causes: Vec<Cause>,
    /// What to do, best first.
    pub fixes: Vec<String>,
    /// Versions that the text names.
    #[serde(default)]
    pub versions: Vec<VersionIn>,
    /// Lines that this entry has to explain better than any other.
    pub samples: Vec<String>,
    /// Who says so.
    pub source: String,
    /// How far the text and its meaning can be trusted.
    pub confidence: Confidence,
}

/// A regular expression of the `regex` crate, ASCII only, upper and lower case alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// Literals of which one has to be there, so that the expression is looked at.
    pub with: Vec<String>,
    /// The expression.
    pub regex: String,
    /// Whether it reaches over lines.
    #[serde(default)]
    pub across: bool,
    /// Where this wording weighs less than the others.
    pub severity: Option<Severity>,
}

/// One cause.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// The layer at fault then.
    pub layer: Layer,
    /// The cause, in a phrase.
    pub text: String,
    /// What to look at, so that one knows.
    pub check: Option<String>,
    /// Ids of findings that confirm it, where the check of this machine can see it.
    #[serde(default)]
    pub findings: Vec<String>,
    /// No rule can see it: said where the layer is one that rules look at, so that none is forgotten.
    #[serde(default)]
    pub unseen: bool,
}

/// A version that is read out of the text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionIn {
    /// What it is the version of.
    pub name: Role,
    /// An expression whose first group is the version.
    pub regex: String,
}

/// What a version in a text is the version of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The newest CUDA that the driver runs: `11040` or `11.4`.
    DriverCuda,
    /// The CUDA that is asked for.
    NeededCuda,
    /// The CUDA that a framework was built with.
    BuiltCuda,
    /// The CUDA of nvcc.
    NvccCuda,
    /// The loaded kernel module.
    KernelModule,
    /// The driver library in user space.
    DriverLibrary,
    /// The driver.
    Driver,
    /// The driver that is asked for.
    NeededDriver,
    /// The GPU's compute capability: `sm_120`, `8.6`.
    Capability,
    /// The newest gcc that nvcc takes.
    NewestGcc,
    /// The library that was found, or its major version in a file's name.
    Found,
    /// The library that is wanted.
    Needed,
}

impl Role {
    /// Its key in JSON: `driver_cuda`.
    pub fn key(self) -> &'static str {
        match self {
            Self::DriverCuda => "driver_cuda",
            Self::NeededCuda => "needed_cuda",
            Self::BuiltCuda => "built_cuda",
            Self::NvccCuda => "nvcc_cuda",
            Self::KernelModule => "kernel_module",
            Self::DriverLibrary => "driver_library",
            Self::Driver => "driver",
            Self::NeededDriver => "needed_driver",
            Self::Capability => "compute_capability",
            Self::NewestGcc => "newest_gcc",
            Self::Found => "found",
            Self::Needed => "needed",
        }
    }
}

/// How programs write a number that is a code.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Form {
    /// Kebab-case.
    pub id: String,
    /// Whose number: `cuda`, `nvml`, `xid` ...
    pub domain: String,
    /// Literals of which one has to be there.
    pub with: Vec<String>,
    /// An expression whose first group that is there is the number.
    pub regex: String,
    /// A line of this form.
    pub sample: String,
    /// Who writes so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}

/// A number and its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// 79.
    pub number: i32,
    /// `ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS`.
    pub name: String,
    /// Of an `SXid`: `always-fatal`, `potentially-fatal`, `non-fatal`.
    pub class: Option<String>,
}

/// What says that a call went well: the number 0 in all of these interfaces.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Success {
    /// `cuda`, `nvml` ...
    pub domain: String,
    /// As people call it: `CUDA`, `NVML`.
    pub api: String,
    /// `cudaSuccess`, `CUDA_SUCCESS`.
    pub names: Vec<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}

/// A number of the CUDA runtime before 10.1.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Legacy {
    /// 38.
    pub number: i32,
    /// 100.
    pub now: i32,
}
