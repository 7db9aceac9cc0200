//! GitLab's code-quality report: an array of issues, each with description, check name, fingerprint, severity and the
//! path and line that it is shown at, by GitLab's documentation of that report format.

use serde::Serialize;

use super::{Results, fingerprint, name_for_good};
use crate::finding::Severity;

#[derive(Serialize)]
struct Issue {
    description: String,
    check_name: String,
    fingerprint: String,
    severity: &'static str,
    location: Location,
}

#[derive(Serialize)]
struct Location {
    path: String,
    lines: Lines,
}

#[derive(Serialize)]
struct Lines {
    begin: u32,
}

/// The document.
pub fn render(results: &Results<'_>) -> serde_json::Result<String> {
    let issues: Vec<Issue> = results
        .findings()
        .filter(|(_, _, told)| !told.ignored)
        .map(|(suite, case, told)| {
            let finding = told.finding;
            let fix = finding
                .fixes
                .first()
                .map_or_else(String::new, |fix| format!("; fix: {}", fix.summary));
            // A path may not begin with `./`; what is about no file is shown at the name of the layer.
            let path = case.file.as_deref().unwrap_or(&case.name);
            Issue {
                description: format!(
                    "{}: {}{}{fix}",
                    finding.layer,
                    finding.title,
                    results.on(suite)
                ),
                check_name: finding.id.clone(),
                fingerprint: fingerprint(suite, case, finding),
                severity: match (finding.severity, told.fails) {
                    (Severity::Error, true) => "critical",
                    (Severity::Error, false) | (Severity::Warning, true) => "major",
                    (Severity::Warning, false) => "minor",
                    (Severity::Note, _) => "info",
                },
                location: Location {
                    path: path.trim_start_matches("./").to_owned(),
                    lines: Lines { begin: 1 },
                },
            }
        })
        .chain(unknown(results))
        .collect();
    super::super::json::document(&issues)
}

/// What could not be told and fails the run: a job that fails without an issue says nothing.
fn unknown<'r>(results: &'r Results<'_>) -> impl Iterator<Item = Issue> + 'r {
    results.unknown().map(|(suite, case, reason)| Issue {
        description: format!("could not tell: {reason}{}", results.on(suite)),
        check_name: "could-not-tell".to_owned(),
        fingerprint: name_for_good(&[&suite.name, &case.name, "could-not-tell"]),
        severity: "major",
        location: Location {
            path: case
                .file
                .as_deref()
                .unwrap_or(&case.name)
                .trim_start_matches("./")
                .to_owned(),
            lines: Lines { begin: 1 },
        },
    })
}
