//! `gpudoctor preflight`: the table of `fixtures/preflight/rows.toml`, which was written before the rules; gpudoctor.toml;
//! requirement and lock files; exit codes and first lines.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it starts the binary and writes below a temporary folder"
)]

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize;
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/preflight")
}

/// Runs `gpudoctor preflight` in a folder.
fn preflight(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpudoctor"))
        .arg("preflight")
        .args(words)
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(folder: &Path, words: &[&str]) -> Value {
    let output = preflight(folder, &[&["--format", "json"], words].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{words:?}: {e}: {}", stderr(&output)))
}

#[derive(Deserialize)]
struct Rows {
    row: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    artifact: String,
    target: String,
    verdict: String,
    finding: Option<String>,
    fix: Option<String>,
    rule: String,
}

/// The artifact in a folder of its own; those that are kept packed are unpacked.
fn artifact(name: &str, folder: &Path) -> String {
    let file = name.rsplit('/').next().unwrap();
    let place = folder.join(name.replace("../", "").replace('/', "-"));
    fs::create_dir_all(&place).unwrap();
    let mut bytes = Vec::new();
    match fs::read(fixtures().join(name)) {
        Ok(whole) => bytes = whole,
        Err(_) => {
            let packed = fs::read(fixtures().join(format!("{name}.xz"))).unwrap();
            lzma_rust2::XzReader::new(packed.as_slice(), true)
                .read_to_end(&mut bytes)
                .unwrap();
        }
    }
    let path = place.join(file);
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_row_of_the_table() {
    let rows: Rows =
        toml::from_str(&fs::read_to_string(fixtures().join("rows.toml")).unwrap()).unwrap();
    assert!(rows.row.len() >= 40);
    assert!(rows.row.iter().filter(|row| row.verdict == "runs").count() >= 15);
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for row in &rows.row {
        let path = artifact(&row.artifact, folder.path());
        let words = [path.as_str(), "--target", row.target.as_str()];
        let found = json(folder.path(), &words);
        let verdict = match found["verdict"]["status"].as_str().unwrap() {
            "ok" => "runs",
            "warning" => "warns",
            "fault" => "fails",
            other => other,
        };
        let about = format!("{} on {} ({})", row.artifact, row.target, row.rule);
        let findings = found["findings"].as_array().unwrap();
        let ids: Vec<&str> = findings
            .iter()
            .filter(|f| f["severity"] != "note")
            .map(|f| f["id"].as_str().unwrap())
            .collect();
        if verdict != row.verdict {
            wrong.push(format!(
                "{about}: {verdict}, not {}: {ids:?} {}",
                row.verdict, found["verdict"]["summary"]
            ));
            continue;
        }
        let Some(wanted) = &row.finding else {
            continue;
        };
        if found["verdict"]["finding"] != wanted.as_str() || ids.iter().any(|id| id != wanted) {
            wrong.push(format!("{about}: {ids:?}, not {wanted}"));
            continue;
        }
        let words = row.fix.as_deref().unwrap();
        let fixes: Vec<&str> = findings
            .iter()
            .flat_map(|f| f["fixes"].as_array().unwrap())
            .map(|fix| fix["summary"].as_str().unwrap())
            .collect();
        if !fixes.iter().any(|fix| fix.contains(words)) {
            wrong.push(format!("{about}: no fix has `{words}`: {fixes:?}"));
        }
        let code = preflight(folder.path(), &[path.as_str(), "--target", &row.target])
            .status
            .code();
        if code != Some(i32::from(row.verdict == "fails")) {
            wrong.push(format!("{about}: exit code {code:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
