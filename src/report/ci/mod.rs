//! What a CI system is told: the same results as test cases (JUnit), as code-scanning results (SARIF), as annotations of
//! a workflow (GitHub) or as a code-quality report (GitLab). One file a format.
//!
//! A suite is what was asked about: this machine, or one target of a preflight. A case is a layer of that machine, or an
//! artifact that was held against that target. Which findings fail a run was decided by the caller.

mod github;
mod gitlab;
mod junit;
mod sarif;

use std::fmt::Write as _;

pub use github::{annotations, log, summary};
pub use gitlab::render as gitlab;
pub use junit::render as junit;
pub use sarif::render as sarif;

use super::Report;
use crate::diagnosis::Status;
use crate::finding::{Finding, Severity};
use crate::preflight::{Artifact, BUILD_HOST, Preflight, TargetVerdict};

/// Pieces of evidence of a finding that are shown.
const EVIDENCE_SHOWN: usize = 8;

/// The results of one run.
#[derive(Clone, Debug)]
pub struct Results<'a> {
    /// The command: `check`, `preflight`.
    pub command: &'a str,
    /// When the facts were taken: RFC 3339, UTC.
    pub taken_at: &'a str,
    /// The answer, as the first line of the text report has it.
    pub summary: String,
    /// Whether the exit status says that something is wrong.
    pub failed: bool,
    /// What was asked about.
    pub suites: Vec<Suite<'a>>,
}

/// One thing that was asked about.
#[derive(Clone, Debug)]
pub struct Suite<'a> {
    /// What was examined, or the name of a target.
    pub name: String,
    /// Its cases.
    pub cases: Vec<Case<'a>>,
}

/// One thing that was looked at for a suite.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    /// The layer, or the artifact.
    pub name: String,
    /// The file it is about, as it was named on the command line; none for a layer.
    pub file: Option<String>,
    /// What is there, in one line.
    pub tells: String,
    /// Whether nothing is there and nothing needed.
    pub absent: bool,
    /// Why it could not be told; none where it could.
    pub unknown: Option<Unknown>,
    /// What was found.
    pub findings: Vec<Told<'a>>,
}

/// That something could not be told.
#[derive(Clone, Debug)]
pub struct Unknown {
    /// What was missing.
    pub reason: String,
    /// Whether that fails the run.
    pub fails: bool,
}

/// A finding, and what it does to the run.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// The finding.
    pub finding: &'a Finding,
    /// Whether it fails the run.
    pub fails: bool,
    /// Whether the caller asked to leave it out of the verdict.
    pub ignored: bool,
}

impl<'a> Results<'a> {
    /// The results of a check: a suite with a case a layer. `fails` says which findings fail the run.
    pub fn of_check(
        report: &Report<'a>,
        failed: bool,
        unknown_fails: bool,
        fails: impl Fn(Severity) -> bool,
    ) -> Self {
        let diagnosis = report.diagnosis;
        let cases = diagnosis
            .layers
            .iter()
            .map(|state| {
                let of_layer = |f: &&Finding| f.layer == state.layer;
                let told = |finding, ignored: bool| Told {
                    finding,
                    fails: !ignored && fails(finding.severity),
                    ignored,
                };
                let found = diagnosis.findings.iter().filter(of_layer);
                let ignored = diagnosis.ignored.iter().filter(of_layer);
                Case {
                    name: state.layer.to_string(),
                    file: None,
                    tells: state.summary.clone(),
                    absent: state.status == Status::Absent,
                    unknown: (state.status == Status::Unknown).then(|| Unknown {
                        reason: state
                            .reason
                            .clone()
                            .unwrap_or_else(|| state.summary.clone()),
                        fails: unknown_fails,
                    }),
                    findings: found
                        .map(|f| told(f, false))
                        .chain(ignored.map(|f| told(f, true)))
                        .collect(),
                }
            })
            .collect();
        Self {
            command: "check",
            taken_at: &report.facts.taken_at,
            summary: diagnosis.verdict.label() + &diagnosis.verdict.answer(),
            failed,
            suites: vec![Suite {
                name: report.facts.consumer.what.clone(),
                cases,
            }],
        }
    }

    /// The results of a preflight: a suite a target, with a case an artifact. `fails` says which findings fail the run.
    pub fn of_preflight(
        found: &'a Preflight,
        taken_at: &'a str,
        failed: bool,
        unknown_fails: bool,
        fails: impl Fn(Severity) -> bool,
    ) -> Self {
        let build_host = found.build_host.as_ref().map(|host| Suite {
            name: BUILD_HOST.to_owned(),
            cases: vec![Case {
                name: "toolchain".to_owned(),
                file: None,
                tells: host.described.clone(),
                absent: false,
                unknown: None,
                findings: host
                    .findings
                    .iter()
                    .map(|finding| Told {
                        finding,
                        fails: fails(finding.severity),
                        ignored: false,
                    })
                    .collect(),
            }],
        });
        let suites = found
            .targets
            .iter()
            .enumerate()
            .map(|(index, target)| {
                let mut cases: Vec<Case<'a>> = found
                    .artifacts
                    .iter()
                    .map(|artifact| case(artifact, index, unknown_fails))
                    .collect();
                let ignored = found
                    .ignored
                    .iter()
                    .filter(|ignored| ignored.target == target.name)
                    .map(|ignored| (&ignored.finding, true));
                let counting = target.findings.iter().map(|finding| (finding, false));
                for (finding, ignored) in counting.chain(ignored) {
                    let told = Told {
                        finding,
                        fails: !ignored && fails(finding.severity),
                        ignored,
                    };
                    // One fault of several artifacts fails each of them.
                    let of = |case: &Case<'a>| {
                        finding.subjects.iter().any(|subject| {
                            // `libcudart.so.13 for dist/server`: the file stands behind.
                            let file = subject.rsplit(" for ").next().unwrap_or(subject);
                            is_of(file, &case.name) || is_of(subject, &case.name)
                        })
                    };
                    let mut is_told = false;
                    for case in cases.iter_mut().filter(|case| of(case)) {
                        case.findings.push(told);
                        is_told = true;
                    }
                    if !is_told {
                        of_target(&mut cases, target).findings.push(told);
                    }
                }
                for reason in &target.unknown {
                    let is_told = |case: &&mut Case<'a>| is_of(reason, &case.name);
                    let unknown = Unknown {
                        reason: reason.clone(),
                        fails: unknown_fails,
                    };
                    match cases.iter_mut().find(is_told) {
                        Some(case) => case.unknown = Some(unknown),
                        None => of_target(&mut cases, target).unknown = Some(unknown),
                    }
                }
                Suite {
                    name: target.name.clone(),
                    cases,
                }
            })
            .chain(build_host)
            .collect();
        Self {
            command: "preflight",
            taken_at,
            summary: found.verdict.summary.clone(),
            failed,
            suites,
        }
    }

    /// All findings with their suite and case.
    fn findings(&self) -> impl Iterator<Item = (&Suite<'a>, &Case<'a>, Told<'a>)> {
        self.suites.iter().flat_map(|suite| {
            suite.cases.iter().flat_map(move |case| {
                case.findings
                    .iter()
                    .map(move |finding| (suite, case, *finding))
            })
        })
    }

    /// What could not be told and fails the run, with its suite and case.
    fn unknown(&self) -> impl Iterator<Item = (&Suite<'a>, &Case<'a>, &str)> {
        self.suites.iter().flat_map(|suite| {
            suite.cases.iter().filter_map(move |case| {
                let unknown = case.unknown.as_ref().filter(|unknown| unknown.fails)?;
                Some((suite, case, unknown.reason.as_str()))
            })
        })
    }

    /// The word for a place where several were asked about: ` (prod)`.
    fn on(&self, suite: &Suite<'_>) -> String {
        if self.suites.len() > 1 {
            format!(" ({})", suite.name)
        } else {
            String::new()
        }
    }
}

/// An artifact on one target.
fn case<'a>(artifact: &Artifact, target: usize, unknown_fails: bool) -> Case<'a> {
    let is_unknown = artifact.on.get(target) == Some(&Status::Unknown);
    Case {
        name: artifact.path.clone(),
        file: Some(artifact.path.clone()),
        tells: match artifact.judged {
            0 => format!("{}: nothing in it has to do with the GPU", artifact.kind),
            1 => format!("{}: 1 thing judged", artifact.kind),
            n => format!("{}: {n} things judged", artifact.kind),
        },
        absent: artifact.judged == 0,
        unknown: is_unknown.then(|| Unknown {
            reason: "see the report".to_owned(),
            fails: unknown_fails,
        }),
        findings: Vec::new(),
    }
}

/// The case of what is about the target itself.
fn of_target<'c, 'a>(cases: &'c mut Vec<Case<'a>>, target: &TargetVerdict) -> &'c mut Case<'a> {
    const NAME: &str = "the target itself";
    let at = cases.iter().position(|case| case.name == NAME);
    let at = at.unwrap_or_else(|| {
        cases.push(Case {
            name: NAME.to_owned(),
            file: None,
            tells: target.described.clone(),
            absent: false,
            unknown: None,
            findings: Vec::new(),
        });
        cases.len() - 1
    });
    // It was found or put there a line above.
    #[expect(clippy::indexing_slicing, reason = "an index of this very list")]
    &mut cases[at]
}

/// Whether a path or a text begins with an artifact's path: `dist/a.whl` of `dist/a.whl/x/libx.so` and `dist/a.whl: cut`.
fn is_of(text: &str, artifact: &str) -> bool {
    let artifact = artifact.trim_end_matches('/');
    text.strip_prefix(artifact)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ':', '!', '(', ' ']))
}

/// A finding in plain text of several lines: what it means, what it rests on, and what mends it. The host's strings
/// stand in it as they are; each format escapes the whole.
fn in_full(finding: &Finding) -> String {
    let mut text = String::new();
    let complaining = if finding.complaining_layer == finding.layer {
        String::new()
    } else {
        format!(", seen in {}", finding.complaining_layer)
    };
    let _ = writeln!(
        text,
        "{} in {}{complaining}: {}",
        finding.severity.id(),
        finding.layer,
        finding.title
    );
    if let Some(cause) = &finding.caused_by {
        let _ = writeln!(text, "follows from {cause}");
    } else if !finding.detail.is_empty() {
        let _ = writeln!(text, "{}", finding.detail);
    }
    // One fault of a thousand files has a thousand pieces of it, and stands with each of these files.
    for evidence in finding.evidence.iter().take(EVIDENCE_SHOWN) {
        let _ = writeln!(
            text,
            "  {}: {} [{}]",
            evidence.what, evidence.value, evidence.source
        );
    }
    if let Some(more) = finding.evidence.len().checked_sub(EVIDENCE_SHOWN)
        && more > 0
    {
        let _ = writeln!(text, "  and {more} more like these");
    }
    for (index, fix) in finding.fixes.iter().enumerate() {
        let label = if index == 0 { "fix" } else { "or" };
        let summary = fix.summary.strip_prefix("or ").unwrap_or(&fix.summary);
        let _ = writeln!(text, "{label}: {summary}");
        for command in &fix.commands {
            let _ = writeln!(text, "  {command}");
        }
    }
    let _ = writeln!(text, "more: gpudoctor explain {}", finding.id);
    text
}

/// A name for the same finding of the same suite in every run: SHA-256 in hexadecimal.
fn fingerprint(suite: &Suite<'_>, case: &Case<'_>, finding: &Finding) -> String {
    name_for_good(&[&suite.name, &case.name, &finding.key])
}

/// SHA-256 of words, in hexadecimal.
fn name_for_good(words: &[&str]) -> String {
    use sha2::{Digest as _, Sha256};
    let mut hash = Sha256::new();
    for word in words {
        hash.update(word.as_bytes());
        hash.update([0]);
    }
    hash.finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
