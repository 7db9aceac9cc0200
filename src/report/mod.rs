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
mod paragraph;
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
    /// That log, where there was one.
    pub log: Option<LogRead>,
}

/// A log that was read to its end.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct LogRead {
    /// Its lines.
    pub lines: u64,
    /// Its bytes.
    pub bytes: u64,
    /// How many kinds of lines it has that people take for errors and that are none.
    pub noise: usize,
}

impl LogRead {
    /// What is said of it where it has no symptom.
    pub fn without_symptom(self) -> String {
        match (self.bytes, self.noise) {
            (0, _) => "it is empty".to_owned(),
            (_, 0) => format!("{} lines read, no known error in them", self.lines),
            (_, _) => format!(
                "{} lines read, no known error in them but noise that is no fault",
                self.lines
            ),
        }
    }
}

/// What a log says, and what on the machine causes it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Symptom {
    /// The line.
    pub text: String,
    /// Its number, counted from 1.
    pub line: u64,
    /// The last line that says so.
    pub line_end: u64,
    /// How many say so.
    pub count: u64,
    /// The entry of the catalogue that it is: `gpudoctor explain ENTRY`.
    pub entry: String,
    /// What it means, in a phrase.
    pub meaning: String,
    /// The key of the finding that causes it; `None` where none does.
    pub explained_by: Option<String>,
}

impl Symptom {
    /// Where it stands: `line 12`, `line 12, and 8 more up to line 90`.
    pub fn place(&self) -> String {
        lines(self.line, self.line_end, self.count)
    }
}

/// Lines of a log that say the same.
fn lines(first: u64, last: u64, count: u64) -> String {
    match count {
        0 | 1 => format!("line {first}"),
        n => format!("line {first}, and {} more up to line {last}", n - 1),
    }
}
