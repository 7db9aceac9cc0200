//! The catalogue of errors against lines that programs write, the headers that codes come from, and logs of healthy machines.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it reads fixtures, and what is not as expected has to stop the test"
)]

use std::fs;
use std::path::Path;

use gpudoctor::explain::{self, Explanation};
use gpudoctor::matrix::Matrix;
use serde::Deserialize;

fn fixture(name: &str) -> Vec<u8> {
    fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures/errors")
            .join(name),
    )
    .unwrap()
}

fn explained(text: &[u8]) -> Explanation {
    let scan = explain::scan(text).unwrap();
    explain::of_scan(&scan, &Matrix::bundled())
}

#[derive(Deserialize)]
struct Lines {
    line: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    text: String,
    entry: String,
    layer: String,
}

#[test]
fn lines_lead_to_the_entry_and_the_layer_at_fault() {
    let lines: Lines = toml::from_str(&String::from_utf8(fixture("lines.toml")).unwrap()).unwrap();
    assert!(lines.line.len() >= 100);
    let mut wrong = Vec::new();
    for line in &lines.line {
        let found = explained(line.text.as_bytes());
        let first = found.matches.first();
        let entry = first.map_or("", |m| m.id.as_str());
        let layer = first.map_or("", |m| m.layers_at_fault[0].id());
        if (entry, layer) != (line.entry.as_str(), line.layer.as_str()) {
            wrong.push(format!(
                "{entry} in {layer}, not {} in {}: {}",
                line.entry, line.layer, line.text
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        lines.line.len(),
        wrong.join("\n")
    );
}
