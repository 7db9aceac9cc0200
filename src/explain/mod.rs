//! From an error in the hand to the layer at fault: finds what the catalogue knows in a question or a log, and makes an
//! explanation of it.
//!
//! Pure: it gets bytes and gives data. What confirms a cause on this machine is told by `here`, from a diagnosis.

pub mod concepts;
mod here;
mod log;
mod matcher;
mod nearest;
mod query;
mod runs;
mod versions;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

pub use here::{Here, judge, symptoms};
pub use log::{Group, Scan, scan};
pub(crate) use matcher::regex;
pub use nearest::nearest;
pub use query::{Asked, Reading, ask, code_in};

use crate::catalogue::{self, Entry};
use crate::facts::Layer;
use crate::finding::Severity;
use crate::matrix::Matrix;

/// What is known of a question or a log.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Explanation {
    /// What was found: the one to begin with first, then what follows from it, then noise.
    pub matches: Vec<Match>,
}

/// One thing that the catalogue knows.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Match {
    /// What was asked, where more than one thing was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
    /// No entry has this text: the one that its words are nearest to.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub guessed: bool,
    /// The entry's id.
    pub id: String,
    /// `note`: no failure, though people take it for one.
    pub severity: Severity,
    /// The code that was asked for or that the text has: `cuda 35`.
    pub code: Option<String>,
    /// Names of that code.
    pub names: Vec<String>,
    /// The first line that says so, counted from 1; `None` for a code.
    pub line: Option<u64>,
    /// The last line that says so.
    pub line_end: Option<u64>,
    /// How many lines say so.
    pub count: u64,
    /// The first of those lines.
    pub text: Option<String>,
    /// The layer that writes it.
    pub complaining_layer: Layer,
    /// Where it has to be mended, likeliest first.
    pub layers_at_fault: Vec<Layer>,
    /// What it says.
    pub meaning: String,
    /// Versions that the text names: `driver_cuda`, `kernel_module` ...
    pub versions: BTreeMap<&'static str, String>,
    /// What the compatibility matrix says to these versions.
    pub advice: Vec<String>,
    /// Why it happens, likeliest first; those that this machine confirms before all others.
    pub causes: Vec<Cause>,
    /// What to look at.
    pub checks: Vec<String>,
    /// What to do, best first.
    pub fixes: Vec<String>,
    /// Who says so.
    pub source: String,
}

/// Whether a cause is the one on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A rule found it.
    Confirmed,
    /// What was needed to see it was read, and it is not so.
    RuledOut,
    /// It was not looked at, cannot be seen, or could not be read.
    Unknown,
}

/// One cause.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Cause {
    /// The finding that confirms it: the one that did, else the first that could.
    pub finding: Option<String>,
    /// All findings that could.
    pub findings: Vec<String>,
    /// The layer at fault then.
    pub layer: Layer,
    /// The cause.
    pub text: String,
    /// What to look at.
    pub check: Option<String>,
    /// Whether it is so here.
    pub state: State,
    /// By what that is known.
    pub evidence: Option<String>,
}

/// An entry of the catalogue as a match, without lines.
pub fn of_entry(entry: Entry, code: Option<(&str, i32)>) -> Option<Match> {
    let error = entry.error()?;
    let mut meaning = error.meaning;
    let mut names = error.names;
    // Where an entry has a name for each of its codes, only that of the one in question is told.
    if let Some((domain, number)) = code
        && names.len() == error.codes.len()
    {
        let asked = format!("{domain} {number}");
        let mut codes = error.codes.iter();
        names.retain(|_| codes.next() == Some(&asked));
    }
    if let Some((domain @ ("xid" | "sxid"), number)) = code
        && let Some((name, class)) = catalogue::number_name(domain, number)
    {
        names = vec![name.to_owned()];
        if entry.id() == "xid-generic" {
            meaning = format!("Xid {number}, {name}: a number that current drivers hardly use");
        } else if entry.id().ends_with("-generic") || entry.id().ends_with("-fatal") {
            let class = class.unwrap_or("of unknown weight");
            meaning = format!("SXid {number}, {name} ({class}): {meaning}");
        }
    }
    let checks = error
        .causes
        .iter()
        .filter_map(|cause| cause.check.clone())
        .collect();
    Some(Match {
        asked: None,
        guessed: false,
        id: error.id,
        severity: error.severity,
        code: code.map(|(domain, number)| format!("{domain} {number}")),
        names,
        line: None,
        line_end: None,
        count: 0,
        text: None,
        complaining_layer: error.complaining_layer,
        layers_at_fault: error.layers_at_fault,
        meaning,
        versions: BTreeMap::new(),
        advice: Vec::new(),
        causes: error
            .causes
            .into_iter()
            .map(|cause| Cause {
                finding: cause.findings.first().cloned(),
                findings: cause.findings,
                layer: cause.layer,
                text: cause.text,
                check: cause.check,
                state: State::Unknown,
                evidence: None,
            })
            .collect(),
        checks,
        fixes: error.fixes,
        source: error.source,
    })
}

/// What a log says, in the order in which it should be read.
pub fn of_scan(scan: &Scan, matrix: &Matrix) -> Explanation {
    let matches = scan
        .groups
        .iter()
        .filter_map(|group| {
            let mut found = of_entry(group.entry, group.code)?;
            found.severity = group.severity;
            found.line = Some(group.line);
            found.line_end = Some(group.line_end);
            found.count = group.count;
            found.text = Some(group.text.clone());
            versions::read(&mut found, group.entry, &group.context, matrix);
            Some(found)
        })
        .collect();
    Explanation { matches }
}
