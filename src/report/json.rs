//! The JSON contract, schema `gpudoctor.report/1`. Fields are added, never renamed; a breaking change takes `/2`.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;

use super::{LogRead, Report, Symptom};
use crate::diagnosis::{LayerState, Status, Verdict};
use crate::facts::{Consumer, ConsumerKind, Facts, Layer, Vendor};
use crate::finding::{Finding, Severity};
use crate::matrix::{Matrix, Overlay};
use crate::preflight::{Artifact, BUILD_HOST, Preflight, TargetVerdict};

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
    symptoms: &'a [Symptom],
    /// The log of `--log`, where one was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<LogRead>,
    not_seen: &'a [String],
    /// Of a preflight: against what the artifacts were held, with what came of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    targets: Option<&'a [TargetVerdict]>,
    /// Of a preflight: what was judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    artifacts: Option<&'a [Artifact]>,
    /// The snapshot; absent in a preflight, which looks at no machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    facts: Option<&'a Facts>,
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
    kind: ExaminedKind,
    what: &'a str,
    why: &'a str,
    /// Whose stack it runs on, where that is known: `nvidia`, `amd`, `intel`.
    vendor: Option<Vendor>,
    also_found: &'a [String],
}

/// What was examined: a consumer of this machine, or artifacts for others.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ExaminedKind {
    Machine,
    Environment,
    Application,
    Process,
    Artifacts,
}

impl From<ConsumerKind> for ExaminedKind {
    fn from(kind: ConsumerKind) -> Self {
        match kind {
            ConsumerKind::Machine => Self::Machine,
            ConsumerKind::Environment => Self::Environment,
            ConsumerKind::Application => Self::Application,
            ConsumerKind::Process => Self::Process,
        }
    }
}

impl<'a> Examined<'a> {
    fn of(c: &'a Consumer, vendor: Option<Vendor>) -> Self {
        Self {
            kind: c.kind.into(),
            what: &c.what,
            why: &c.why,
            vendor,
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
        examined: Examined::of(&report.facts.consumer, report.diagnosis.vendor),
        verdict: &report.diagnosis.verdict,
        layers: &report.diagnosis.layers,
        findings: &report.diagnosis.findings,
        ignored: &report.diagnosis.ignored,
        symptoms: report.symptoms,
        log: report.log,
        not_seen: &report.diagnosis.not_seen,
        targets: None,
        artifacts: None,
        facts: Some(report.facts),
    };
    self::document(&document)
}

/// A document as pretty-printed JSON with a final newline, with nothing in it that a terminal acts on.
pub(super) fn document(document: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string_pretty(document).map(|text| escaped(&text) + "\n")
}

/// A preflight by the same contract, with its targets beside the verdict. The key of a finding ends in `@` and the name of
/// its target.
pub fn preflight(found: &Preflight, matrix: &Matrix, taken_at: &str) -> serde_json::Result<String> {
    let findings: Vec<Finding> = found
        .targets
        .iter()
        .flat_map(|target| target.findings.iter().map(move |f| on(f, &target.name)))
        .chain(
            found
                .build_host
                .iter()
                .flat_map(|host| host.findings.iter().map(|f| on(f, BUILD_HOST))),
        )
        .collect();
    let ignored: Vec<Finding> = found
        .ignored
        .iter()
        .map(|ignored| {
            let until = ignored.expires.as_ref();
            let until = until.map_or(String::new(), |day| format!(", until {day}"));
            on(&ignored.finding, &ignored.target).evidence(
                "ignored",
                format!("{}{until}", ignored.reason),
                crate::preflight::config::FILE,
            )
        })
        .collect();
    let layers: Vec<LayerState> = Layer::ALL
        .into_iter()
        .map(|layer| layer_state(layer, &findings))
        .collect();
    let not_seen: Vec<String> = found
        .targets
        .iter()
        .flat_map(|target| {
            let unsaid = target.unsaid.iter();
            let unsaid = unsaid.map(|what| format!("{}: its {what} is not said", target.name));
            let unknown = target.unknown.iter();
            unsaid.chain(unknown.map(|why| format!("{}: {why}", target.name)))
        })
        .chain(found.notes.iter().cloned())
        .collect();
    let paths: Vec<&str> = found.artifacts.iter().map(|a| a.path.as_str()).collect();
    let document = Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        matrix: matrix.into(),
        taken_at,
        examined: Examined {
            kind: ExaminedKind::Artifacts,
            what: &paths.join(", "),
            why: "named, or by the globs of gpudoctor.toml",
            vendor: None,
            also_found: &[],
        },
        verdict: &found.verdict,
        layers: &layers,
        findings: &findings,
        ignored: &ignored,
        symptoms: &[],
        log: None,
        not_seen: &not_seen,
        targets: Some(&found.targets),
        artifacts: Some(&found.artifacts),
        facts: None,
    };
    serde_json::to_string_pretty(&document).map(|text| escaped(&text) + "\n")
}

fn on(finding: &Finding, target: &str) -> Finding {
    let mut finding = finding.clone();
    finding.key = crate::preflight::key_on(&finding.key, target);
    finding
}

/// A layer as the findings leave it. A preflight looks at no hardware, container or toolchain.
fn layer_state(layer: Layer, findings: &[Finding]) -> LayerState {
    let mut of_layer = findings.iter().filter(|f| f.layer == layer);
    let worst = of_layer.clone().map(|f| f.severity).max();
    let (status, summary) = match worst {
        Some(severity @ (Severity::Error | Severity::Warning)) => {
            let first = of_layer.find(|f| f.severity == severity);
            let status = if severity == Severity::Error {
                Status::Fault
            } else {
                Status::Warning
            };
            (status, first.map_or(String::new(), |f| f.title.clone()))
        }
        _ if matches!(layer, Layer::Hardware | Layer::Container | Layer::Toolchain) => {
            (Status::Absent, "not looked at by a preflight".to_owned())
        }
        _ => (Status::Ok, "nothing stands in the way".to_owned()),
    };
    LayerState {
        layer,
        status,
        summary,
        reason: None,
    }
}

/// JSON with what a terminal would act on written as escapes: C1 controls and what reorders or hides text. They stand in
/// strings only, where `\u` escapes mean the same characters.
pub(super) fn escaped(text: &str) -> String {
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
