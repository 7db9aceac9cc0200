//! SARIF 2.1.0 (OASIS), for code scanning: a run with one rule for each id that was found and a result a finding.
//!
//! Results about an artifact carry its place below the sources; those about a layer of a machine have a logical place
//! only, since no file of the repository is at fault.

use serde::Serialize;
use serde_json::{Value, json};

use super::{Case, Results, Suite, Told, fingerprint, in_full};
use crate::finding::Severity;
use crate::rules;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Log {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Value,
    automation_details: Value,
    invocations: [Value; 1],
    column_kind: &'static str,
    results: Vec<Value>,
}

/// The document.
pub fn render(results: &Results<'_>) -> serde_json::Result<String> {
    let mut ids: Vec<&str> = results
        .findings()
        .map(|(_, _, told)| told.finding.id.as_str())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let found = results
        .findings()
        .map(|(suite, case, told)| result(results, suite, case, told, &ids))
        .collect();
    let log = Log {
        schema: "https://json.schemastore.org/sarif-2.1.0.json",
        version: "2.1.0",
        runs: [Run {
            tool: json!({"driver": {
                "name": "gpudoctor",
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": ids.iter().map(|id| rule(id)).collect::<Vec<_>>(),
            }}),
            automation_details: json!({"id": format!("gpudoctor/{}/", results.command)}),
            invocations: [json!({
                // What was asked was answered; that the answer is bad stands in the exit code.
                "executionSuccessful": true,
                "exitCode": u8::from(results.failed),
                "startTimeUtc": results.taken_at,
                "toolExecutionNotifications": results
                    .unknown()
                    .map(|(suite, case, reason)| json!({
                        "level": "error",
                        "message": {"text": format!(
                            "could not tell: {}: {reason}{}", case.name, results.on(suite)
                        )},
                    }))
                    .collect::<Vec<_>>(),
            })],
            column_kind: "unicodeCodePoints",
            results: found,
        }],
    };
    super::super::json::document(&log)
}

fn level(severity: Severity) -> &'static str {
    severity.id()
}

/// What is known of an id: the first lines of its page, and the page.
fn rule(id: &str) -> Value {
    let Some(rule) = rules::by_id(id) else {
        return json!({"id": id});
    };
    let page = rule.page;
    let title = page
        .lines()
        .skip(1)
        .find(|line| !line.trim().is_empty())
        .unwrap_or(id);
    let meaning: Vec<&str> = page
        .lines()
        .skip_while(|line| !line.starts_with("## "))
        .skip(1)
        .take_while(|line| !line.starts_with("## "))
        .collect();
    json!({
        "id": id,
        "shortDescription": {"text": sentence(title)},
        "fullDescription": {"text": sentence(meaning.join(" ").trim())},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": level(rule.severity)},
        "properties": {"tags": ["gpu", rule.layer.to_string()]},
    })
}

/// SARIF asks for sentences that end as sentences do.
fn sentence(text: &str) -> String {
    if text.ends_with(['.', '!', '?']) {
        text.to_owned()
    } else {
        format!("{text}.")
    }
}

fn result(
    results: &Results<'_>,
    suite: &Suite<'_>,
    case: &Case<'_>,
    told: Told<'_>,
    ids: &[&str],
) -> Value {
    let finding = told.finding;
    let mut location = json!({"logicalLocations": [{
        "name": case.name,
        "fullyQualifiedName": format!("{}/{}", suite.name, case.name),
    }]});
    if let Some(file) = case.file.as_deref().and_then(below_the_sources)
        && let Some(location) = location.as_object_mut()
    {
        location.insert(
            "physicalLocation".to_owned(),
            json!({"artifactLocation": {"uri": file, "uriBaseId": "%SRCROOT%"}}),
        );
    }
    // `fail` also where it is a warning that fails the run: the level says what it is, the exit code what it did.
    let mut result = json!({
        "ruleId": finding.id,
        "ruleIndex": ids.iter().position(|id| *id == finding.id),
        "level": level(finding.severity),
        "message": {"text": format!("{}{}\n\n{}", finding.title, results.on(suite), in_full(finding))},
        "locations": [location],
        "partialFingerprints": {"gpudoctorKey/v1": fingerprint(suite, case, finding)},
        "properties": {
            "layer": finding.layer,
            "complainingLayer": finding.complaining_layer,
            "target": suite.name,
            "key": finding.key,
        },
    });
    if told.ignored
        && let Some(result) = result.as_object_mut()
    {
        result.insert("suppressions".to_owned(), json!([{"kind": "external"}]));
    }
    result
}

/// A path below the working folder as a URI reference; none for one that leads elsewhere.
fn below_the_sources(path: &str) -> Option<String> {
    use std::fmt::Write as _;
    let path = path.trim_start_matches("./");
    let elsewhere =
        path.starts_with(['/', '~']) || path.is_empty() || path.split('/').any(|part| part == "..");
    if elsewhere {
        return None;
    }
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        // What RFC 3986 leaves as it is in a path; a colon might be taken for a scheme.
        if byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    Some(uri)
}
