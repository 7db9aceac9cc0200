//! Which of the possible causes it is on a machine: holds an explanation against what the check of it found.

use super::{Cause, Explanation, Match, Scan, State, of_scan};
use crate::diagnosis::{Diagnosis, Status};
use crate::facts::{Facts, Layer};
use crate::finding::{Finding, Severity};
use crate::matrix::Matrix;
use crate::report::Symptom;
use crate::rules::{self, Ctx, Outcome, Rule};

/// What a machine says of each rule.
pub struct Here<'a> {
    diagnosis: &'a Diagnosis,
    outcomes: Vec<(&'static Rule, Outcome)>,
}

impl<'a> Here<'a> {
    /// Runs the rules over the facts that the diagnosis was made of.
    pub fn new(facts: &Facts, matrix: &Matrix, expect_gpu: bool, diagnosis: &'a Diagnosis) -> Self {
        let ctx = Ctx {
            facts,
            matrix,
            expect_gpu,
        };
        Self {
            diagnosis,
            outcomes: rules::run(&ctx),
        }
    }

    fn finding(&self, id: &str) -> Option<&'a Finding> {
        self.diagnosis.findings.iter().find(|f| f.id == id)
    }

    /// The root of what is wrong, where an error of that kind can come of it.
    fn root_for(&self, layers: &[Layer], complaining: Layer) -> Option<&'a Finding> {
        let verdict = &self.diagnosis.verdict;
        let key = verdict
            .key
            .as_ref()
            .filter(|_| verdict.status == Status::Fault)?;
        let root = self.diagnosis.findings.iter().find(|f| f.key == *key)?;
        let below = root.layer <= complaining && root.layer != Layer::Toolchain;
        (root.severity == Severity::Error && (layers.contains(&root.layer) || below))
            .then_some(root)
    }

    /// What a finding follows from in the end; itself where nothing else causes it.
    fn root_of(&self, finding: &'a Finding) -> &'a Finding {
        let mut root = finding;
        // A cause of a cause is told by its key; no chain is as long as there are findings.
        for _ in &self.diagnosis.findings {
            let caused_by = root.caused_by.as_ref();
            let cause = caused_by.and_then(|key| {
                let all = &self.diagnosis.findings;
                all.iter().find(|cause| cause.key == *key)
            });
            match cause {
                Some(cause) => root = cause,
                None => break,
            }
        }
        root
    }

    /// What the machine says to a cause that none of the findings confirms.
    fn without_finding(&self, ids: &[String]) -> (State, Option<String>) {
        let mut read = Vec::new();
        for id in ids {
            match self.outcomes.iter().find(|(rule, _)| rule.id == id) {
                Some((rule, Outcome::Clean)) => {
                    let layer = self
                        .diagnosis
                        .layers
                        .iter()
                        .find(|state| state.layer == rule.layer);
                    // Nothing was expected there, so nothing was missed: that rules no cause out.
                    if let Some(state) = layer.filter(|state| state.status == Status::Absent) {
                        return (
                            State::Unknown,
                            Some(format!("{}: {}", state.layer, state.summary)),
                        );
                    }
                    if let Some(state) = layer.filter(|state| !state.summary.is_empty()) {
                        let said = format!("{}: {}", state.layer, state.summary);
                        if !read.contains(&said) {
                            read.push(said);
                        }
                    }
                }
                Some((_, Outcome::Unknown { missing })) => {
                    return (State::Unknown, Some(missing.join("; ")));
                }
                Some((_, Outcome::Symptom { alone, .. })) => {
                    return (State::Unknown, Some(alone.clone()));
                }
                Some((_, Outcome::Found(_))) | None => return (State::Unknown, None),
            }
        }
        if ids.is_empty() {
            (State::Unknown, None)
        } else {
            (
                State::RuledOut,
                Some(read.join("; ")).filter(|text| !text.is_empty()),
            )
        }
    }
}

/// The cause that a finding is by itself, and by what it is known.
fn confirmed_by(finding: &Finding, evidence: String) -> Cause {
    Cause {
        finding: Some(finding.id.clone()),
        findings: vec![finding.id.clone()],
        layer: finding.layer,
        text: finding.title.clone(),
        check: None,
        state: State::Confirmed,
        evidence: Some(evidence),
    }
}

/// Sorts the causes of every match by what the machine says; the heaviest is the first.
pub fn judge(explanation: &mut Explanation, here: &Here<'_>) {
    let verdict = &here.diagnosis.verdict;
    let root = verdict.finding.as_ref();
    let root = root.filter(|_| verdict.status == Status::Fault);
    for found in &mut explanation.matches {
        // What is no failure has no cause, but where the fault of the machine is one of those that it may come of.
        let names_root = |cause: &Cause| root.is_some_and(|root| cause.findings.contains(root));
        if found.severity > Severity::Note || found.causes.iter().any(names_root) {
            judge_one(found, here);
        }
    }
}

fn judge_one(found: &mut Match, here: &Here<'_>) {
    let mut confirmed: Vec<(usize, &Finding)> = Vec::new();
    let mut ids: Vec<String> = found
        .causes
        .iter()
        .flat_map(|cause| cause.findings.clone())
        .collect();
    // The root of what is wrong speaks before what follows from it.
    let verdict = here.diagnosis.verdict.finding.as_ref();
    ids.sort_by_key(|id| match here.finding(id) {
        _ if Some(id) == verdict => 0,
        Some(finding) if finding.caused_by.is_none() => 1,
        _ => 2,
    });
    for id in ids {
        let Some(finding) = here.finding(&id) else {
            continue;
        };
        let of_it = |cause: &Cause| cause.findings.contains(&id);
        let best = found
            .causes
            .iter()
            .position(|cause| of_it(cause) && cause.layer == finding.layer)
            .or_else(|| found.causes.iter().position(of_it));
        if let Some(at) = best.filter(|at| confirmed.iter().all(|(known, _)| known != at)) {
            confirmed.push((at, finding));
        }
    }
    for (at, cause) in found.causes.iter_mut().enumerate() {
        if let Some((_, finding)) = confirmed.iter().find(|(known, _)| *known == at) {
            cause.state = State::Confirmed;
            cause.finding = Some(finding.id.clone());
            cause.layer = finding.layer;
            cause.evidence = Some(finding.title.clone());
        } else {
            (cause.state, cause.evidence) = here.without_finding(&cause.findings);
        }
    }
    // What the check finds and the catalogue does not name: still the root of what is wrong here.
    if confirmed.is_empty()
        && let Some(root) = here.root_for(&found.layers_at_fault, found.complaining_layer)
    {
        let evidence = format!(
            "what the check finds wrong here; until it is mended nothing above {} can be told",
            root.layer
        );
        found.causes.push(confirmed_by(root, evidence));
        confirmed.push((found.causes.len() - 1, root));
    }
    // What a confirmed cause follows from itself, where the catalogue does not name it.
    for (_, finding) in &confirmed {
        let root = here.root_of(finding);
        let is_told = |cause: &Cause| cause.finding.as_ref() == Some(&root.id);
        if !found.causes.iter().any(is_told) {
            let evidence = format!("`{}` follows from it", finding.id);
            found.causes.push(confirmed_by(root, evidence));
        }
    }
    // The root of the machine's fault is told before what follows from it.
    let root = here.diagnosis.verdict.finding.clone();
    found.causes.sort_by_key(|cause| match cause.state {
        State::Confirmed if cause.finding == root => 0,
        State::Confirmed => 1,
        State::Unknown => 2,
        State::RuledOut => 3,
    });
    let mut layers: Vec<Layer> = Vec::new();
    for layer in found
        .causes
        .iter()
        .filter(|cause| cause.state == State::Confirmed)
        .map(|cause| cause.layer)
        .chain(found.layers_at_fault.iter().copied())
    {
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    }
    found.layers_at_fault = layers;
    if let Some((_, finding)) = confirmed
        .iter()
        .find(|(_, f)| Some(&f.id) == root.as_ref())
        .or_else(|| confirmed.first())
    {
        found.fixes = finding
            .fixes
            .iter()
            .map(|fix| fix.summary.clone())
            .collect();
    }
}

/// Symptoms that are told at most.
const SYMPTOMS: usize = 50;

/// What a log says, each linked to the finding that causes it where there is one.
pub fn symptoms(scan: &Scan, matrix: &Matrix, here: &Here<'_>) -> Vec<Symptom> {
    let explanation = of_scan(scan, matrix);
    explanation
        .matches
        .iter()
        .filter(|found| found.severity > Severity::Note)
        .take(SYMPTOMS)
        .map(|found| {
            let findings = found.causes.iter().flat_map(|cause| &cause.findings);
            let named: Vec<&Finding> = findings.filter_map(|id| here.finding(id)).collect();
            let root = here.diagnosis.verdict.key.as_ref();
            let cause = named
                .iter()
                .find(|f| Some(&f.key) == root)
                .or_else(|| named.first())
                .copied();
            Symptom {
                text: found.text.clone().unwrap_or_default(),
                line: found.line.unwrap_or(0),
                line_end: found.line_end.unwrap_or(0),
                count: found.count,
                entry: found.id.clone(),
                meaning: found.meaning.clone(),
                explained_by: cause.map(|f| f.key.clone()),
            }
        })
        .collect()
}
