//! Holds the tables against themselves: which rows cannot be right, or disagree with others.
//!
//! It knows nothing that is not in the tables, so it cannot say whether a row is true. Here is what holds for every row;
//! the other files hold one group of tables each.

mod cuda;
mod frameworks;
mod gpus;
mod icds;
mod intel;
mod libraries;
mod platforms;
mod rocm;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt::Display;

use serde_json::{Map, Value};

use super::rows::AnyRow;
use super::{Confidence, DriverBranch, Matrix, TABLES, table};
use crate::version::Version;

/// Everything that is wrong, one line each:
/// `cuda-driver.toml, [[toolkit]] 12.4.1: branch 551 is no driver branch`.
pub fn lint(matrix: &Matrix) -> Vec<String> {
    let mut report = Report {
        matrix,
        problems: Vec::new(),
    };
    heads(&mut report);
    every_row(&mut report);
    cuda::check(&mut report);
    gpus::check(&mut report);
    platforms::check(&mut report);
    libraries::check(&mut report);
    frameworks::check(&mut report);
    rocm::check(&mut report);
    icds::check(&mut report);
    intel::check(&mut report);
    report.problems
}

/// What is looked at, and what was found.
struct Report<'a> {
    matrix: &'a Matrix,
    problems: Vec<String>,
}

impl<'a> Report<'a> {
    /// A row to say something about.
    fn at(&mut self, table: &str, key: impl Display) -> At<'_, 'a> {
        let file = TABLES
            .iter()
            .find(|(_, name)| *name == table)
            .map_or("", |(file, _)| file);
        At {
            place: format!("{file}, [[{table}]] {key}"),
            report: self,
        }
    }

    /// Each value is at least the one before it, and more where `strictly`.
    fn ascending<'r, T: PartialOrd, R: AnyRow + 'r>(
        &mut self,
        table: &str,
        strictly: bool,
        values: impl Iterator<Item = (T, &'r R)>,
    ) {
        let mut last: Option<T> = None;
        for (value, row) in values {
            let holds = last
                .as_ref()
                .is_none_or(|last| *last < value || !strictly && *last <= value);
            self.at(table, row.key()).need(holds, "out of order");
            last = Some(value);
        }
    }
}

/// One row under examination.
struct At<'r, 'a> {
    place: String,
    report: &'r mut Report<'a>,
}

impl<'a> At<'_, 'a> {
    /// Notes the problem unless `holds`.
    fn need(&mut self, holds: bool, problem: impl Display) {
        if !holds {
            self.report
                .problems
                .push(format!("{}: {problem}", self.place));
        }
    }

    /// The row of a branch that this one names; a problem where there is none.
    fn branch(&mut self, branch: u32) -> Option<&'a DriverBranch> {
        let row = self
            .report
            .matrix
            .driver_branches()
            .iter()
            .find(|row| row.branch == branch);
        self.need(
            row.is_some(),
            format_args!("branch {branch} is no driver branch"),
        );
        row
    }

    /// A branch that this row names has this CUDA level.
    fn branch_has_level(&mut self, branch: u32, level: u32, problem: &str) {
        let found = self.branch(branch).map(|row| row.level);
        self.need(found == Some(level), problem);
    }

    /// There is a toolkit of this major version.
    fn major(&mut self, cuda: u32) {
        let mut toolkits = self.report.matrix.toolkits().iter();
        let known = toolkits.any(|row| row.cuda.major() == cuda);
        self.need(known, format_args!("there is no toolkit {cuda}.x"));
    }

    /// There is a toolkit of this major and minor version.
    fn toolkit(&mut self, cuda: &Version) {
        let minor = cuda.major_minor();
        let known = self
            .report
            .matrix
            .toolkits()
            .iter()
            .any(|row| row.cuda.major_minor() == minor);
        self.need(known, format_args!("there is no toolkit {minor}"));
    }
}

fn heads(report: &mut Report<'_>) {
    for (file, text) in &report.matrix.texts {
        match table::head(file, text) {
            Ok(head) if is_date(&head.as_of) && head.as_of.len() == "2026-12-01".len() => {}
            Ok(head) => report
                .problems
                .push(format!("{file}: as_of `{}` is no day", head.as_of)),
            Err(error) => report.problems.push(error),
        }
    }
}

/// Cells that hold a version, and nothing else.
pub(super) const VERSION_CELLS: &[&str] = &[
    "archs_of",
    "clang_min",
    "cublas",
    "cuda",
    "cudas",
    "cudnn",
    "cudnn_min",
    "driver",
    "driver_windows",
    "first",
    "first_toolkit",
    "jetpack",
    "l4t",
    "last",
    "last_toolkit",
    "libcuda",
    "max_symbol_version",
    "min_driver",
    "min_driver_windows",
    "min_seen",
    "nccl",
    "never",
    "never_from",
    "newest_python",
    "onnxruntime",
    "ptx",
    "rocm",
    "tensorrt",
    "tensorrt_llm",
    "toolkit",
    "toolkit_from",
    "toolkit_to",
    "torch_from",
    "torch_to",
    "unknown_after",
    "upgrades",
    "vllm",
];
/// Cells that hold a day, a month or a year.
const DATE_CELLS: &[&str] = &["released", "first_release", "end_of_life"];

/// Keys unique, sources given, versions and dates well formed, no cell that says nothing.
fn every_row(report: &mut Report<'_>) {
    let mut keys = BTreeSet::new();
    let matrix = report.matrix;
    matrix.each_row(&mut |file, table, row| {
        let mut at = report.at(table, row.key());
        at.place = format!("{file}, [[{table}]] {}", row.key());
        at.need(
            row.source().trim().len() > 5,
            format_args!("`{}` is no source", row.source()),
        );
        at.need(keys.insert(at.place.clone()), "stands twice");
        let cells = row.cells();
        for (name, value) in &cells {
            for text in strings(value) {
                let version = !VERSION_CELLS.contains(&name.as_str()) || is_version(text);
                at.need(version, format_args!("{name} `{text}` is no version"));
                let date = !DATE_CELLS.contains(&name.as_str()) || is_date(text);
                at.need(date, format_args!("{name} `{text}` is no date"));
                // `unknown` is a brand as well.
                let empty =
                    text.is_empty() || matches!(text, "unknown" | "none") && name != "brands";
                at.need(
                    !empty,
                    format_args!("{name} `{text}` says nothing: leave it out"),
                );
            }
        }
        confidences(row.confidence(), &cells, &mut at);
    });
}

/// A cell's own confidence stands beside the cell, and says something that the row does not.
fn confidences(row: Confidence, cells: &Map<String, Value>, at: &mut At<'_, '_>) {
    let own = if row == Confidence::Verified {
        "verified"
    } else {
        "secondary"
    };
    for (name, value) in cells.iter().filter(|(_, value)| !value.is_null()) {
        let Some(of) = name.strip_suffix("_confidence") else {
            continue;
        };
        // The one that speaks of two cells.
        let of = if of == "archs" { "newest_arch" } else { of };
        let there = cells.get(of).is_some_and(|cell| !cell.is_null());
        at.need(there, format_args!("{name} of a cell that is not there"));
        at.need(
            value.as_str() != Some(own),
            format_args!("{name} says what the row says"),
        );
    }
}

/// All texts in a cell.
pub(super) fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// Digits and dots: no words, no ranges.
pub(super) fn is_version(text: &str) -> bool {
    text.split('.')
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

/// `2024`, `2024-03`, `2024-03-31`.
pub(super) fn is_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let mut next = |len: usize, range: std::ops::RangeInclusive<u32>| {
        let part = parts.next()?;
        Some(part.len() == len && part.parse().is_ok_and(|number| range.contains(&number)))
    };
    let (year, month, day) = (next(4, 2000..=2099), next(2, 1..=12), next(2, 1..=31));
    year == Some(true) && month != Some(false) && day != Some(false) && parts.next().is_none()
}
