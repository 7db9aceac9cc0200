//! Will what was built here run over there: artifacts held against the machines of a fleet.
//!
//! `config` reads `gpudoctor.toml`, `fleet` makes the machines that are judged against, `walk` finds the artifacts that the
//! globs mean, `seen` proposes globs, `manifest` reads requirement and lock files, `pins` judges what they pin, `build` holds what
//! builds here are told against a target, `judge` everything against every target. What a file holds and whether it runs is
//! [`crate::inspect`]'s; nothing is executed. How it is shown is `report::preflight`'s.

mod build;
pub mod config;
pub mod fleet;
pub mod init;
mod judge;
pub mod manifest;
mod pins;
pub mod plan;
pub mod seen;
pub mod walk;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use judge::{Build, Ignore, Question, Read, judge};

use crate::diagnosis::Verdict;
use crate::finding::Finding;

/// What came of a preflight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Preflight {
    /// The worst of the targets' verdicts.
    pub verdict: Verdict,
    /// What was judged.
    pub artifacts: Vec<Artifact>,
    /// Against what, with what came of each.
    pub targets: Vec<TargetVerdict>,
    /// What builds on this machine: there where an nvcc is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_host: Option<BuildHost>,
    /// Findings that the caller asked to leave out of the verdict.
    pub ignored: Vec<Ignored>,
    /// What is worth saying beside the findings: an ignore that has run out, what could not be read.
    pub notes: Vec<String>,
}

/// One artifact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// Its path.
    pub path: String,
    /// `file`, `wheel`, `folder`, `python-environment`, `image`, `requirements`, `lock`.
    pub kind: String,
    /// How many files of it, or packages that it pins, have to do with the GPU.
    pub judged: u64,
    /// Its state on each target, in their order: `ok`, `warning`, `fault`, `unknown`.
    pub on: Vec<crate::diagnosis::Status>,
}

/// What came of one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetVerdict {
    /// Its name.
    pub name: String,
    /// What is known of it, in the grammar of `--target`.
    pub described: String,
    /// What of it is not said, and so was not judged: `driver`, `GPUs`, `glibc`.
    pub unsaid: Vec<String>,
    /// The verdict.
    pub verdict: Verdict,
    /// The findings, worst first.
    pub findings: Vec<Finding>,
    /// What could not be told.
    pub unknown: Vec<String>,
}

/// The machine that the preflight runs on, as far as it builds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildHost {
    /// `nvcc 12.4.131 of /usr/local/cuda/bin/nvcc`.
    pub described: String,
    /// What is wrong with its toolchain, whatever the target.
    pub findings: Vec<Finding>,
}

/// The name by which reports call it, where a target's name would stand.
pub const BUILD_HOST: &str = "build host";

/// The key of a finding on a target, unique in a report. No `@` between them: that would be the form of an address, which
/// no report may hold.
pub fn key_on(key: &str, target: &str) -> String {
    format!("{key}#{target}")
}

/// A finding that does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ignored {
    /// On which target.
    pub target: String,
    /// Why it does not count, in its owner's words.
    pub reason: String,
    /// The last day on which it does not count, `2026-03-31`; `None`: no end.
    pub expires: Option<String>,
    /// The finding.
    pub finding: Finding,
}
