//! Renders a diagnosis. It decides nothing: what stands in a report was found by a rule or read by a probe.
//!
//! Strings from the host are hostile, and each format shows what its reader would act on (see [`escape`]).

pub mod ci;
mod copies;
pub mod escape;
pub mod explanation;
pub mod gpus;
pub mod inspection;
pub mod json;
pub mod markdown;
pub mod matrix;
pub mod plan;
pub mod preflight;
pub mod text;

use schemars::JsonSchema;
use serde::Serialize;

use crate::diagnosis::Diagnosis;
use crate::facts::Facts;
use crate::matrix::Matrix;

/// What every format is given.
#[derive(Clone, Copy)]
pub struct Report<'a> {
    /// The snapshot.
    pub facts: &'a Facts,
    /// The knowledge that it was held against.
    pub matrix: &'a Matrix,
    /// What came of it.
    pub diagnosis: &'a Diagnosis,
    /// What a log says that was given with `--log`.
    pub symptoms: &'a [Symptom],
}

/// What a log says, and what on the machine causes it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Symptom {
    /// The line.
    pub text: String,
    /// Its number, counted from 1.
    pub line: u64,
    /// The entry of the catalogue that it is: `gpudoctor explain ENTRY`.
    pub entry: String,
    /// What it means, in a phrase.
    pub meaning: String,
    /// The key of the finding that causes it; `None` where none does.
    pub explained_by: Option<String>,
}
