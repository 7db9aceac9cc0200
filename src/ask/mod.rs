//! Questions to the matrix, and answers with the rows that they rest on: what a CUDA version, a driver, a GPU or a release
//! of a library or framework is, and whether one can run the other.
//!
//! Pure: an answer is made of the question and the matrix alone. Nothing of the machine is read, no date is known, and
//! how an answer is shown is `report::matrix`'s business. What no row says is unknown, and is told as that.

mod can;
mod code;
mod cudnn;
mod driver;
mod gpus;
mod hardware;
mod look_up;
mod requirement;
mod runtime;
mod torch;
mod ways;

use std::collections::BTreeMap;

use serde::Serialize;

pub use can::can;
pub use gpus::{GpuKind, Meant};
pub(crate) use gpus::{compat_eligible, meant};
pub use look_up::{Product, cuda, driver, gpu, release, torch};
pub use requirement::requirement;
pub(crate) use requirement::{brand, hosts, ways as requirement_ways};

use crate::facts::Layer;
use crate::matrix::{Arch, BinaryRule, Confidence, Note};
use crate::target;
use crate::version::Version;

/// The answer in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// It can.
    Yes,
    /// It cannot.
    No,
    /// The matrix cannot tell.
    Unknown,
    /// What was looked up is there.
    Known,
}

/// What was asked, as it was understood.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one question a run, and it is not moved about"
)]
pub enum Question {
    /// What a CUDA version is.
    Cuda {
        /// The version.
        cuda: Version,
    },
    /// What a driver is.
    Driver {
        /// The driver.
        driver: target::Driver,
        /// Its system.
        os: Option<target::Os>,
    },
    /// What a GPU is.
    Gpu {
        /// The GPU.
        gpu: target::Gpu,
    },
    /// What a build of PyTorch is.
    Torch {
        /// The build.
        torch: target::Torch,
    },
    /// What a release of a library or framework is.
    Release {
        /// Of what.
        product: Product,
        /// Which one.
        version: Version,
    },
    /// Whether a host does what an image asks.
    Requirement {
        /// The value of `NVIDIA_REQUIRE_CUDA`, or of the first variable that asks.
        requirement: String,
        /// All variables that were given.
        variables: BTreeMap<String, String>,
        /// The driver.
        driver: Option<target::Driver>,
        /// The GPUs.
        gpus: Vec<target::Gpu>,
    },
    /// Whether these go together.
    Can {
        /// The driver.
        driver: Option<target::Driver>,
        /// The CUDA runtime.
        cuda: Option<Version>,
        /// PyTorch.
        torch: Option<target::Torch>,
        /// vLLM.
        #[serde(skip_serializing_if = "Option::is_none")]
        vllm: Option<Version>,
        /// cuDNN.
        cudnn: Option<Version>,
        /// The GPUs.
        gpus: Vec<target::Gpu>,
        /// The C library.
        glibc: Option<Version>,
        /// The system.
        os: Option<target::Os>,
    },
}

/// A statement and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cited {
    /// What is so.
    pub text: String,
    /// Table and key of the row: `driver_branch 470`; `None` for a general rule.
    pub row: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}

impl Cited {
    /// A statement that rests on a row.
    fn row(
        text: impl Into<String>,
        table: &str,
        key: impl std::fmt::Display,
        source: &str,
        confidence: Confidence,
    ) -> Self {
        Self {
            text: text.into(),
            row: Some(format!("{table} {key}")),
            source: source.to_owned(),
            confidence,
        }
    }

    /// A statement that follows from no single row.
    fn rule(text: impl Into<String>, source: &str, confidence: Confidence) -> Self {
        Self {
            text: text.into(),
            row: None,
            source: source.to_owned(),
            confidence,
        }
    }

    fn arch(text: impl Into<String>, arch: &Arch) -> Self {
        Self::row(
            text,
            "arch",
            capability(arch.capability),
            &arch.source,
            arch.confidence,
        )
    }

    fn binary_rule(rule: &BinaryRule) -> Self {
        Self::row(
            &*rule.fact,
            "binary_rule",
            &rule.kind,
            &rule.source,
            rule.confidence,
        )
    }

    fn note(note: &Note) -> Self {
        Self::row(
            &*note.fact,
            "note",
            &note.topic,
            &note.source,
            note.confidence,
        )
    }
}

/// A line of what was looked up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What it is about: `least driver`.
    pub what: &'static str,
    /// The statement and its row.
    #[serde(flatten)]
    pub cited: Cited,
}

/// Which way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WayKind {
    /// Another driver.
    Driver,
    /// A program, image or wheel that was built for another CUDA version.
    Build,
    /// The user-space libcuda of a newer driver on the old kernel module.
    CompatPackage,
    /// Another driver and another build: one alone does not do.
    DriverAndBuild,
    /// Another release of a library.
    Library,
    /// Another GPU.
    Gpu,
}

/// A way out, open or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Way {
    /// Which one.
    pub kind: WayKind,
    /// The layer that changes.
    pub layer: Layer,
    /// Whether it can be gone; `None` where that hangs on what was not said.
    pub open: Option<bool>,
    /// What to do.
    pub summary: String,
    /// What it costs: `root, reboot`; empty where nothing.
    pub cost: &'static str,
    /// Why it is second best, where it is.
    pub why_second: Option<String>,
    /// Why it is not open, or on what that hangs.
    pub why_not: Option<String>,
    /// How to see that it worked.
    pub verify: Option<&'static str>,
    /// What it rests on.
    pub rows: Vec<Cited>,
}

/// An answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// What was asked.
    pub question: Question,
    /// The answer in one word.
    pub answer: Word,
    /// The answer in one line, without full stop.
    pub summary: String,
    /// How far the answer can be trusted: as far as the weakest row that it rests on.
    pub confidence: Confidence,
    /// The layer that has to change; `None` where none has to, or it is not known.
    pub layer: Option<Layer>,
    /// Why that one, and why not the other.
    pub why_layer: Option<String>,
    /// Which GPUs were understood.
    pub gpus: Vec<Meant>,
    /// What the answer rests on.
    pub why: Vec<Cited>,
    /// What holds although the answer is yes.
    pub limits: Vec<Cited>,
    /// Ways out, best first, those that are closed last.
    pub ways: Vec<Way>,
    /// What was looked up.
    pub facts: Vec<Fact>,
    /// How many of the reasons a short answer tells.
    #[serde(skip)]
    pub decisive: usize,
}

impl Answer {
    fn new(question: Question, answer: Word, summary: String) -> Self {
        Self {
            question,
            answer,
            summary,
            confidence: Confidence::Verified,
            layer: None,
            why_layer: None,
            gpus: Vec::new(),
            why: Vec::new(),
            limits: Vec::new(),
            ways: Vec::new(),
            facts: Vec::new(),
            decisive: usize::MAX,
        }
    }

    /// Leaves out the reasons that decide nothing, and says how many there were.
    pub fn shorten(&mut self) {
        let more = self.why.len().saturating_sub(self.decisive);
        if more > 1
            && let Some(like) = self.why.first().cloned()
        {
            self.why.truncate(self.decisive);
            self.why.push(Cited {
                text: format!("{more} more terms decide nothing: -v tells them"),
                ..like
            });
        }
    }

    /// Sets the confidence by the reasons; of what was looked up by the first line, which is what the summary tells.
    fn weighed(mut self) -> Self {
        let first = self.facts.first().map(|fact| fact.cited.confidence);
        let why = self.why.iter().map(|cited| cited.confidence);
        self.confidence = why.chain(first).min().unwrap_or(Confidence::Verified);
        self
    }

    /// 0 where the answer is yes or was found, else 1: what is unknown is no yes.
    pub fn exit_code(&self) -> u8 {
        u8::from(matches!(self.answer, Word::No | Word::Unknown))
    }
}

/// `8.6`.
fn capability((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

/// `sm_86`.
fn sm((major, minor): (u32, u32)) -> String {
    format!("sm_{major}{minor}")
}

/// "a, b and c".
fn in_words(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `CUDA 12.4` of a level.
fn cuda_of(level: u32) -> String {
    format!("CUDA {}", Version::from_cuda_level(level))
}
