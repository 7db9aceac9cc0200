//! `gpudoctor inspect` on real files: NVIDIA's and other projects' libraries from `PyPI` against what cuobjdump says of
//! them, the loader's search against glibc's loader, and small samples of nvcc's.
//!
//! What is fetched lies under `target/parts/inspect`: most of 300 MB, or over 3 GB with `GPUDOCTOR_REAL=full`. Where it cannot be had
//! a test says so and passes, but under `CI` it fails.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "test code: it starts the binary, pip and gcc, and writes below target"
)]

mod parts;
mod real;
mod resolve;
mod samples;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs `gpudoctor inspect` with these words.
fn inspect(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpudoctor"))
        .arg("inspect")
        .args(words)
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap()
}

/// Its JSON for one path and other words.
fn json(path: &Path, words: &[&str]) -> Value {
    let path = path.to_str().unwrap();
    let output = inspect(&[&["--format", "json", "--no-redact", path], words].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{path}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// A list of texts as one text, with spaces between them.
fn list(value: &Value) -> String {
    let items = value.as_array().into_iter().flatten();
    items
        .map(|item| item.as_str().unwrap())
        .collect::<Vec<_>>()
        .join(" ")
}
