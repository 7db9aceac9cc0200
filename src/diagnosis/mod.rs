//! From findings to a verdict: which finding explains which, which one is the root, and in what state each layer is.
//!
//! A lower fault explains the symptoms above it. One root cause is told first; what follows from it is listed under it.
//! Pure: it runs the rules over the facts and links what they answer, and reads nothing itself.

mod summary;
mod verify;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::{Facts, Layer, Vendor};
use crate::finding::{Finding, Severity};
use crate::matrix::Matrix;
use crate::rules::{self, Ctx, Need, Outcome, Rule};

/// The state of a layer, or of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Nothing wrong, and what was needed to say so was read.
    Ok,
    /// Something is broken.
    Fault,
    /// Something is half broken, or will bite.
    Warning,
    /// Nothing there, and nothing needed.
    Absent,
    /// It could not be told.
    Unknown,
}

impl Status {
    /// `ok`, `fault` ...
    pub fn id(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Fault => "fault",
            Self::Warning => "warning",
            Self::Absent => "absent",
            Self::Unknown => "unknown",
        }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// `ok`, `warning`, `fault` or `unknown`.
    pub status: Status,
    /// The layer at fault.
    pub layer: Option<Layer>,
    /// The id of the root finding.
    pub finding: Option<String>,
    /// Its key.
    pub key: Option<String>,
    /// One line.
    pub summary: String,
    /// Keys of all independent root causes of the same or a lower severity.
    pub roots: Vec<String>,
}

impl Verdict {
    /// What stands before the colon of the first line, with the colon: `driver: `; empty where there is nothing to praise
    /// or to blame.
    pub fn label(&self) -> String {
        match (self.status, self.layer) {
            (Status::Fault, Some(layer)) => format!("{layer}: "),
            (Status::Warning, Some(layer)) => format!("warning: {layer}: "),
            (Status::Unknown, _) => "could not tell: ".to_owned(),
            _ if self.summary.starts_with("no ") => String::new(),
            _ => "ok: ".to_owned(),
        }
    }

    /// What stands behind it, with the number of the independent faults besides.
    pub fn answer(&self) -> String {
        // The layer's name stands before the colon: "driver: 535.104.05 is too old", not "driver: driver 535.104.05".
        let summary = self
            .layer
            .and_then(|layer| self.summary.strip_prefix(&format!("{layer} ")))
            .unwrap_or(&self.summary);
        let others = match self.roots.len().saturating_sub(1) {
            _ if !matches!(self.status, Status::Fault | Status::Warning) => String::new(),
            0 => String::new(),
            1 => " (and 1 more independent fault)".to_owned(),
            n => format!(" (and {n} more independent faults)"),
        };
        format!("{summary}{others}")
    }
}

/// The state of one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct LayerState {
    /// The layer.
    pub layer: Layer,
    /// Its state.
    pub status: Status,
    /// What is there, in one line.
    pub summary: String,
    /// Why it could not be told; `None` otherwise.
    pub reason: Option<String>,
}

/// Everything that a report renders.
#[derive(Clone, Debug)]
pub struct Diagnosis {
    /// Whose stack the consumer runs on; `None` where nothing tells.
    pub vendor: Option<Vendor>,
    /// The answer.
    pub verdict: Verdict,
    /// All layers in walking order.
    pub layers: Vec<LayerState>,
    /// Findings, root causes first, each followed by what it explains.
    pub findings: Vec<Finding>,
    /// Findings that the caller asked to leave out of the verdict.
    pub ignored: Vec<Finding>,
    /// What was not looked at although it would have sharpened the picture, with reasons.
    pub not_seen: Vec<String>,
}

/// What the caller wants of a diagnosis.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--expect-gpu`: a GPU must be here.
    pub expect_gpu: bool,
    /// Ids or keys of findings that are listed as ignored and do not count.
    pub ignore: Vec<String>,
    /// The only layers that are wanted; none named: all.
    pub only: Vec<Layer>,
}

impl Options {
    /// Whether a finding is one that the caller wants left out.
    fn ignores(&self, id: &str, key: &str) -> bool {
        self.ignore.iter().any(|name| name == id || name == key)
    }
}

/// Runs the rules and links what they find.
pub fn diagnose(facts: &Facts, matrix: &Matrix, options: &Options) -> Diagnosis {
    let ctx = Ctx {
        facts,
        matrix,
        expect_gpu: options.expect_gpu,
    };
    let mut findings: Vec<Finding> = Vec::new();
    let mut symptoms: Vec<(&Rule, Finding, String, Need)> = Vec::new();
    let mut unknown: Vec<(&Rule, Vec<String>)> = Vec::new();
    for (rule, outcome) in rules::run(&ctx) {
        match outcome {
            Outcome::Found(found) => findings.extend(found),
            Outcome::Symptom {
                finding,
                alone,
                need,
            } => symptoms.push((rule, *finding, alone, need)),
            Outcome::Unknown { missing } => unknown.push((rule, missing)),
            Outcome::Clean => {}
        }
    }
    // A symptom that nothing explains is no finding: it is something that cannot be told, and the verdict says so unless
    // it was to be expected.
    let mut unexplained: Vec<(&Rule, String)> = Vec::new();
    let mut not_seen: Vec<String> = Vec::new();
    for (rule, finding, alone, need) in symptoms {
        match (cause_of(&finding, &findings), need) {
            (Some(_), _) => findings.push(finding),
            (None, Need::Verdict) => unexplained.push((rule, alone)),
            (None, Need::Detail) => not_seen.push(alone),
        }
    }
    // Causes are linked before anything is left out, so that a symptom never turns into a root by that.
    link(&mut findings);
    let (ignored, mut findings) = leave_out(findings, options);
    let wanted = |layer: Layer| options.only.is_empty() || options.only.contains(&layer);
    findings.retain(|f| wanted(f.layer));
    let mut findings = in_telling_order(findings);
    verify::fill(facts, &mut findings);
    let layers: Vec<LayerState> = Layer::ALL
        .into_iter()
        .filter(|layer| wanted(*layer))
        .map(|layer| layer_state(&ctx, layer, &findings, &unknown, &unexplained))
        .collect();
    let not_seen = unknown
        .iter()
        .filter(|(rule, _)| rule.need == Need::Detail)
        .flat_map(|(_, missing)| missing.clone())
        .fold(not_seen, |mut all, reason| {
            if !all.contains(&reason) {
                all.push(reason);
            }
            all
        });
    Diagnosis {
        vendor: ctx.vendor(),
        verdict: verdict(&ctx, &findings, &ignored, &layers, &options.only),
        layers,
        findings,
        ignored,
        not_seen,
    }
}

/// Takes out what the caller ignores, and what follows from that: a symptom of something that is known and accepted is
/// no news either.
fn leave_out(findings: Vec<Finding>, options: &Options) -> (Vec<Finding>, Vec<Finding>) {
    let (mut ignored, mut kept): (Vec<Finding>, Vec<Finding>) = findings
        .into_iter()
        .partition(|f| options.ignores(&f.id, &f.key));
    loop {
        let (followers, rest): (Vec<Finding>, Vec<Finding>) = kept.into_iter().partition(|f| {
            f.caused_by
                .as_ref()
                .is_some_and(|cause| ignored.iter().any(|i| i.key == *cause))
        });
        kept = rest;
        if followers.is_empty() {
            return (ignored, kept);
        }
        ignored.extend(followers);
    }
}

/// Whether a finding follows from none of the others that are told.
fn is_root(finding: &Finding, all: &[Finding]) -> bool {
    finding
        .caused_by
        .as_ref()
        .is_none_or(|cause| !all.iter().any(|f| f.key == *cause))
}

/// The finding that explains another, by the table of its rule: the first id that was found, at least as bad.
fn cause_of<'a>(finding: &Finding, all: &'a [Finding]) -> Option<&'a Finding> {
    let rule = rules::by_id(&finding.id)?;
    rule.follows_from.iter().find_map(|id| {
        all.iter().find(|c| {
            c.id == *id
                && c.key != finding.key
                && c.severity >= finding.severity
                && c.severity > Severity::Note
        })
    })
}

/// Sets `caused_by`: what the rule itself says, where it knows the very finding, else by the table. The table of causes has
/// no cycle (a test holds that), and what rules name by themselves are roots, so neither have the links.
fn link(findings: &mut [Finding]) {
    let causes: Vec<Option<String>> = findings
        .iter()
        .map(|f| {
            let told = f.caused_by.as_ref();
            let told = told.and_then(|key| findings.iter().find(|c| c.key == *key));
            let cause = told.or_else(|| cause_of(f, findings));
            cause.map(|c| c.key.clone())
        })
        .collect();
    for (finding, cause) in findings.iter_mut().zip(causes) {
        finding.caused_by = cause;
    }
}

/// Roots first, worst first, lowest layer first; each followed by what it explains.
fn in_telling_order(findings: Vec<Finding>) -> Vec<Finding> {
    let rank = |f: &Finding| (std::cmp::Reverse(f.severity), f.layer, f.key.clone());
    let (mut roots, mut followers): (Vec<Finding>, Vec<Finding>) =
        findings.into_iter().partition(|f| f.caused_by.is_none());
    roots.sort_by_key(rank);
    followers.sort_by_key(rank);
    let mut ordered = Vec::new();
    for root in roots {
        let mut keys = vec![root.key.clone()];
        ordered.push(root);
        // What follows from what follows: a chain is as long as the table of causes at most.
        let mut at = 0;
        while let Some(key) = keys.get(at).cloned() {
            let (mine, rest): (Vec<_>, Vec<_>) = followers
                .into_iter()
                .partition(|f| f.caused_by.as_deref() == Some(key.as_str()));
            followers = rest;
            keys.extend(mine.iter().map(|f| f.key.clone()));
            ordered.extend(mine);
            at += 1;
        }
    }
    ordered.extend(followers);
    ordered
}

/// Each reason once; one that ends with another says the same and more.
fn without_repeats(reasons: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for reason in reasons {
        if !kept.iter().any(|known| known.ends_with(&reason)) {
            kept.push(reason);
        }
    }
    kept
}

/// A reason, with who may read what was refused.
fn with_who_may(ctx: &Ctx<'_>, reason: String) -> String {
    let is_refused = reason.contains("permission denied");
    if is_refused && ctx.facts.scope.as_root.value() == Some(&false) {
        format!("{reason} (as root it can be read)")
    } else {
        reason
    }
}

fn layer_state(
    ctx: &Ctx<'_>,
    layer: Layer,
    findings: &[Finding],
    unknown: &[(&Rule, Vec<String>)],
    unexplained: &[(&Rule, String)],
) -> LayerState {
    let (present, mut summary) = summary::of_layer(ctx, layer);
    // What follows from a fault of another layer is no fault of this one.
    let worst = findings
        .iter()
        .filter(|f| f.layer == layer && f.caused_by.is_none())
        .map(|f| f.severity)
        .max();
    // "FAULT: none that it reaches" says nothing: it is at fault since something of it is missed.
    let lost = findings
        .iter()
        .find(|f| f.layer == layer && f.caused_by.is_none() && f.severity > Severity::Note);
    if let Some(part) = lost.and_then(|f| f.component.as_ref())
        && !present
        && matches!(layer, Layer::Runtime | Layer::Libraries)
    {
        summary = format!("{}: see below", crate::sysroot::file_name(part));
    }
    let reasons: Vec<String> = unknown
        .iter()
        .filter(|(rule, _)| rule.layer == layer && rule.need == Need::Verdict)
        .flat_map(|(_, missing)| missing.iter().cloned())
        .chain(
            unexplained
                .iter()
                .filter(|(rule, _)| rule.layer == layer)
                .map(|(_, alone)| alone.clone()),
        )
        .chain(ctx.unread(layer))
        .collect();
    let reasons = without_repeats(reasons);
    let (status, reason) = match worst {
        Some(Severity::Error) => (Status::Fault, None),
        _ if !reasons.is_empty() => (Status::Unknown, Some(reasons.join("; "))),
        Some(Severity::Warning) => (Status::Warning, None),
        _ if present => (Status::Ok, None),
        _ => (Status::Absent, None),
    };
    // The reason stands beside it, and is told once.
    let is_told = reason.is_some() && reason.as_deref() == summary.strip_prefix("not read: ");
    LayerState {
        layer,
        status,
        summary: if is_told {
            "not read".to_owned()
        } else {
            summary
        },
        reason,
    }
}

fn verdict(
    ctx: &Ctx<'_>,
    findings: &[Finding],
    ignored: &[Finding],
    layers: &[LayerState],
    only: &[Layer],
) -> Verdict {
    let roots: Vec<&Finding> = findings
        .iter()
        .filter(|f| is_root(f, findings) && f.severity > Severity::Note)
        .collect();
    let unknown = layers.iter().find(|l| l.status == Status::Unknown);
    let keys = roots.iter().map(|f| f.key.clone()).collect();
    // Ordered worst first and lowest layer first among equals: the first root is the one.
    match (roots.first(), unknown) {
        (Some(root), unknown) if root.severity == Severity::Error || unknown.is_none() => Verdict {
            status: if root.severity == Severity::Error {
                Status::Fault
            } else {
                Status::Warning
            },
            layer: Some(root.layer),
            finding: Some(root.id.clone()),
            key: Some(root.key.clone()),
            summary: root.title.clone(),
            roots: keys,
        },
        (_, Some(state)) => Verdict {
            status: Status::Unknown,
            layer: Some(state.layer),
            finding: None,
            key: None,
            summary: with_who_may(ctx, state.reason.clone().unwrap_or_default()),
            roots: keys,
        },
        _ => Verdict {
            status: Status::Ok,
            layer: None,
            finding: None,
            key: None,
            summary: healthy_summary(ctx, ignored, layers, only),
            roots: keys,
        },
    }
}

/// The line of a machine without faults that count. What is ignored is no health: it is named.
fn healthy_summary(
    ctx: &Ctx<'_>,
    ignored: &[Finding],
    layers: &[LayerState],
    only: &[Layer],
) -> String {
    let mut ids: Vec<&str> = ignored
        .iter()
        .filter(|f| f.severity > Severity::Note)
        .map(|f| f.id.as_str())
        .collect();
    ids.dedup();
    if ids.is_empty() && !only.is_empty() {
        // In the order of the stack, each once, however often it was named.
        let asked = Layer::ALL.into_iter().filter(|layer| only.contains(layer));
        let names: Vec<&str> = asked.map(Layer::id).collect();
        format!(
            "no fault in {}; the other layers were not asked for",
            names.join(", ")
        )
    } else if ids.is_empty() {
        summary::of_healthy(ctx, layers)
    } else {
        format!(
            "no fault beside what is ignored on request: {}",
            ids.join(", ")
        )
    }
}
