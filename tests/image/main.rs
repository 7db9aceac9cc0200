//! `gpudoctor inspect` on container images: real layouts made by umoci and skopeo against the same tree unpacked, and
//! images that are made to do harm.
//!
//! What a machine lacks is said (`NOT RUN`), and under `CI` it is a failure.
#![allow(
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it lays out folders and starts programs; what is not as described has to stop the test"
)]

#[path = "../support/elf/mod.rs"]
mod elf;
mod hostile;
mod layouts;
#[path = "../parts/mod.rs"]
mod parts;
mod tar;
mod verdicts;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs gpudoctor with these words.
fn gpudoctor(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpudoctor"))
        .args(words)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap()
}

/// The same, with no more than 100 MB of memory for its data and stacks.
fn confined(words: &[&str]) -> Output {
    Command::new("sh")
        .args(["-c", "ulimit -d 102400 && exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_gpudoctor"))
        .args(words)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap()
}

/// What `inspect` says of a path, as JSON.
fn inspected(path: &Path, words: &[&str]) -> Value {
    let path = path.to_str().unwrap();
    let words = [&["inspect", "--format", "json", "--no-redact", path], words].concat();
    let output = confined(&words);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{path}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Runs a program that has to succeed.
fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Whether a program is there; says so where it is not.
fn has(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        parts::not_run(&format!("{program} is not installed"));
    }
    is_there
}
