//! The JSON contract, schema `gpudoctor.report/1`. Fields are added, never renamed; a breaking change takes `/2`.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use super::Report;
use crate::diagnosis::{LayerState, Verdict};
use crate::facts::{Consumer, ConsumerKind, Facts};
use crate::finding::Finding;
use crate::matrix::{Matrix, Overlay};

/// The schema of a report.
pub const SCHEMA: &str = "gpudoctor.report/1";

#[derive(Serialize, JsonSchema)]
#[schemars(title = "gpudoctor.report/1")]
struct Document<'a> {
    schema: &'static str,
    version: &'a str,
    matrix: MatrixOf<'a>,
    taken_at: &'a str,
    examined: Examined<'a>,
    verdict: &'a Verdict,
    layers: &'a [LayerState],
    findings: &'a [Finding],
    ignored: &'a [Finding],
    symptoms: [(); 0],
    not_seen: &'a [String],
    facts: &'a Facts,
}

/// Which knowledge was used: the same in every document.
#[derive(Serialize, JsonSchema)]
pub(super) struct MatrixOf<'a> {
    as_of: &'a str,
    overlays: &'a [Overlay],
}

impl<'a> From<&'a Matrix> for MatrixOf<'a> {
    fn from(matrix: &'a Matrix) -> Self {
        Self {
            as_of: matrix.as_of(),
            overlays: matrix.overlays(),
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct Examined<'a> {
    kind: ConsumerKind,
    what: &'a str,
    why: &'a str,
    also_found: &'a [String],
}

impl<'a> From<&'a Consumer> for Examined<'a> {
    fn from(c: &'a Consumer) -> Self {
        Self {
            kind: c.kind,
            what: &c.what,
            why: &c.why,
            also_found: &c.also_found,
        }
    }
}

/// The report as pretty-printed JSON with a final newline.
pub fn render(report: &Report<'_>) -> serde_json::Result<String> {
    let document = Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        matrix: report.matrix.into(),
        taken_at: &report.facts.taken_at,
        examined: (&report.facts.consumer).into(),
        verdict: &report.diagnosis.verdict,
        layers: &report.diagnosis.layers,
        findings: &report.diagnosis.findings,
        ignored: &report.diagnosis.ignored,
        symptoms: [],
        not_seen: &report.diagnosis.not_seen,
        facts: report.facts,
    };
    self::document(&document)
}

/// A document as pretty-printed JSON with a final newline, with nothing in it that a terminal acts on.
pub(super) fn document(document: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(document).map(|text| escaped(&text) + "\n")
}

/// JSON with what a terminal would act on written as escapes: C1 controls and what reorders or hides text. They stand in
/// strings only, where `\u` escapes mean the same characters.
fn escaped(text: &str) -> String {
    let acts = |c: char| matches!(c, '\u{7f}'..='\u{9f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    if !text.contains(acts) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// The JSON Schema of the report, made from the types that it is written from.
pub fn schema() -> serde_json::Result<String> {
    serde_json::to_string_pretty(&schemars::schema_for!(Document<'static>)).map(|text| text + "\n")
}
