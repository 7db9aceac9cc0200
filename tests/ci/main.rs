//! What CI systems are told, of every host in `fixtures/hosts` and of one whose strings are meant to do harm: JUnit and
//! SARIF are valid by their published schemas, GitLab's report and GitHub's annotations by their documented grammar.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it writes reports to a temporary folder and starts the judges"
)]

mod judges;
#[path = "../parts/mod.rs"]
#[allow(dead_code, reason = "the real libraries are for other tests")]
mod parts;
mod snippets;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use gpudoctor::cli::FailOn;
use gpudoctor::diagnosis::Diagnosis;
use gpudoctor::report::Report;
use gpudoctor::report::ci::{self, Results};
use serde_json::Value;
use support::diagnosed::{Diagnosed, all};

/// What is markup, a command or a control somewhere.
const HOSTILE: &str = "]]>&<a b=\"'\u{1b}[2J\r\n::error::x%0A##[group]y\u{0}\u{ffff}\u{202e}|`@x";

fn results<'a>(report: &Report<'a>) -> Results<'a> {
    let failed = report
        .diagnosis
        .findings
        .iter()
        .any(|f| FailOn::Error.fails(f.severity));
    Results::of_check(report, failed, true, |severity| {
        FailOn::Error.fails(severity)
    })
}

/// The diagnosis of a sick host with harm in each of its strings.
fn harmful(host: &Diagnosed) -> Diagnosis {
    let mut diagnosis = host.diagnosis.clone();
    diagnosis.verdict.summary.push_str(HOSTILE);
    for state in &mut diagnosis.layers {
        state.summary.push_str(HOSTILE);
    }
    for finding in &mut diagnosis.findings {
        finding.title.push_str(HOSTILE);
        finding.detail.push_str(HOSTILE);
        for evidence in &mut finding.evidence {
            evidence.value.push_str(HOSTILE);
        }
        for fix in &mut finding.fixes {
            fix.summary.push_str(HOSTILE);
            fix.commands.push(HOSTILE.to_owned());
        }
    }
    diagnosis.ignored = diagnosis.findings.clone();
    diagnosis
}

/// Hands the results of every host, and of a harmful one, to `check`.
fn each(mut check: impl FnMut(&str, &Results<'_>)) {
    for host in all() {
        check(&host.host.case, &results(&host.report()));
    }
    let sick = all()
        .iter()
        .find(|host| !host.diagnosis.findings.is_empty());
    let sick = sick.unwrap();
    let diagnosis = harmful(sick);
    let report = Report {
        diagnosis: &diagnosis,
        ..sick.report()
    };
    check("harmful", &results(&report));
}

/// Holds every file of a folder against a schema; how many there were.
const JUNIT: &str = "import pathlib, sys, xmlschema
schema = xmlschema.XMLSchema(sys.argv[1])
files = list(pathlib.Path(sys.argv[2]).iterdir())
for file in files:
    schema.validate(str(file))
print(len(files))";

/// The same for JSON Schema.
const SARIF: &str = "import json, jsonschema, pathlib, sys
schema = json.load(open(sys.argv[1]))
validator = jsonschema.validators.validator_for(schema)(schema)
files = list(pathlib.Path(sys.argv[2]).iterdir())
for file in files:
    validator.validate(json.loads(file.read_text()))
print(len(files))";

/// Runs one program of Python over all files of a folder; what it prints.
fn judged(judges: &judges::Judges, script: &str, schema: &Path, folder: &Path) -> String {
    let output = judges
        .python()
        .args(["-c", script])
        .args([schema, folder])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn junit_is_valid() {
    let Some(judges) = judges::all() else { return };
    let folder = tempfile::tempdir().unwrap();
    each(|case, results| {
        fs::write(folder.path().join(case), ci::junit(results)).unwrap();
    });
    let judged = judged(judges, JUNIT, &judges.junit, folder.path());
    assert_eq!(judged, (all().len() + 1).to_string());
}

#[test]
fn sarif_is_valid() {
    let Some(judges) = judges::all() else { return };
    let folder = tempfile::tempdir().unwrap();
    each(|case, results| {
        fs::write(folder.path().join(case), ci::sarif(results).unwrap()).unwrap();
    });
    let judged = judged(judges, SARIF, &judges.sarif, folder.path());
    assert_eq!(judged, (all().len() + 1).to_string());
}

/// By GitLab's page on the code-quality report format.
#[test]
fn gitlab_issues_are_whole() {
    each(|case, results| {
        let issues: Vec<Value> = serde_json::from_str(&ci::gitlab(results).unwrap()).unwrap();
        let mut fingerprints = BTreeSet::new();
        for issue in &issues {
            for field in ["description", "check_name", "fingerprint"] {
                assert!(
                    !issue[field].as_str().unwrap().is_empty(),
                    "{case}: {field}"
                );
            }
            let severity = issue["severity"].as_str().unwrap();
            assert!(
                ["info", "minor", "major", "critical", "blocker"].contains(&severity),
                "{case}: {severity}"
            );
            let path = issue["location"]["path"].as_str().unwrap();
            assert!(
                !path.is_empty() && !path.starts_with("./"),
                "{case}: {path}"
            );
            assert!(issue["location"]["lines"]["begin"].as_u64().unwrap() > 0);
            let fingerprint = issue["fingerprint"].as_str().unwrap();
            assert!(
                fingerprints.insert(fingerprint),
                "{case}: {fingerprint} twice"
            );
        }
    });
}

/// Undoes the runner's escapes: `%25`, `%0D`, `%0A`, and in properties `%3A`, `%2C`.
fn unescaped(text: &str) -> String {
    text.replace("%0A", "\n")
        .replace("%0D", "\r")
        .replace("%3A", ":")
        .replace("%2C", ",")
        .replace("%25", "%")
}

/// By GitHub's page on workflow commands: `::level key=value,key=value::message`, one a line.
#[test]
fn github_reads_the_annotations_that_were_meant_and_no_others() {
    each(|case, results| {
        let log = ci::log(&format!("{HOSTILE}\n  ::warning::no\n"), results);
        let commands: Vec<&str> = log
            .lines()
            .filter(|line| line.trim_start().starts_with("::") || line.contains("##["))
            .collect();
        let annotations = ci::annotations(results);
        assert_eq!(commands, annotations.lines().collect::<Vec<_>>(), "{case}");
        let mut levels = [0; 2];
        for line in commands {
            let (head, message) = line.strip_prefix("::").unwrap().split_once("::").unwrap();
            let (level, properties) = head.split_once(' ').unwrap();
            levels[usize::from(level == "warning")] += 1;
            assert!(["error", "warning"].contains(&level), "{case}: {line}");
            for property in properties.split(',') {
                let (name, value) = property.split_once('=').unwrap();
                assert!(["title", "file"].contains(&name), "{case}: {line}");
                assert!(unescaped(value).starts_with("gpudoctor"), "{case}: {line}");
            }
            let said = unescaped(message);
            let of_ours = results.suites.iter().flat_map(|s| &s.cases).any(|case| {
                case.unknown.is_some()
                    || case
                        .findings
                        .iter()
                        .any(|told| said.contains(&format!("[{}]", told.finding.id)))
            });
            assert!(of_ours, "{case}: {line}");
        }
        assert!(levels.iter().all(|count| *count <= 11), "{case}");
    });
}

/// Two targets and three artifacts, of which one runs nowhere and one on one target.
#[test]
fn a_preflight_is_told_by_target_and_artifact() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/preflight");
    let place = tempfile::tempdir().unwrap();
    let run = |format: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_gpudoctor"))
            .env_clear()
            .current_dir(&folder)
            .args(["preflight", "13.0/libptx.so", "11.8/server-shared"])
            .args(["--target", "prod:driver=535.104.05,gpu=A100,cuda=11.8"])
            .args(["--target", "edge:driver=470.82.01,gpu=P100"])
            .args(["--format", format])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let github = run("github");
    let of_file = |file: &str, target: &str| {
        let at = format!(",file={file}::");
        github
            .lines()
            .any(|line| line.starts_with("::error") && line.contains(&at) && line.contains(target))
    };
    assert!(of_file("13.0/libptx.so", "(prod)"), "{github}");
    assert!(of_file("13.0/libptx.so", "(edge)"), "{github}");
    assert!(of_file("11.8/server-shared", "(edge)"), "{github}");
    assert!(!of_file("11.8/server-shared", "(prod)"), "{github}");
    let sarif: Value = serde_json::from_str(&run("sarif")).unwrap();
    for result in sarif["runs"][0]["results"].as_array().unwrap() {
        let place = &result["locations"][0]["physicalLocation"]["artifactLocation"];
        assert!(place["uri"].as_str().unwrap().contains(".8/") || place["uri"] == "13.0/libptx.so");
    }
    let Some(judges) = judges::all() else { return };
    for (format, schema, script) in [
        ("junit", &judges.junit, JUNIT),
        ("sarif", &judges.sarif, SARIF),
    ] {
        let folder = place.path().join(format);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("report"), run(format)).unwrap();
        assert_eq!(judged(judges, script, schema, &folder), "1");
    }
}

#[test]
fn a_failed_run_says_so_in_every_format() {
    let sick = all()
        .iter()
        .find(|host| host.host.case == "driver-too-old-for-cuda-13")
        .unwrap();
    let results = results(&sick.report());
    assert!(results.failed);
    let junit = ci::junit(&results);
    assert!(
        junit.contains("<failure type=\"driver-too-old\""),
        "{junit}"
    );
    let sarif: Value = serde_json::from_str(&ci::sarif(&results).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "driver-too-old");
    assert_eq!(sarif["runs"][0]["results"][0]["level"], "error");
    assert_eq!(sarif["runs"][0]["invocations"][0]["exitCode"], 1);
    let gitlab: Value = serde_json::from_str(&ci::gitlab(&results).unwrap()).unwrap();
    assert_eq!(gitlab[0]["severity"], "critical");
    let github = ci::annotations(&results);
    assert!(
        github.starts_with("::error title=gpudoctor%3A driver is at fault::"),
        "{github}"
    );
    assert_eq!(github.lines().count(), 1, "{github}");
    let summary = ci::summary(&results);
    assert!(
        summary.starts_with("### gpudoctor check: failed\n\n**driver: "),
        "{summary}"
    );
}
