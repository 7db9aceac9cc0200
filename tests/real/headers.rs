//! The codes of the error catalogue against the headers of the real packages.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use gpudoctor::explain::{self, Asked};
use regex::Regex;

use crate::parts::{self, Wheel};

/// A header, whose codes it has, and how their names begin.
const HEADERS: [(&str, &str, &str); 3] = [
    ("cuda.h", "cuda", "CUDA_(?:ERROR_|SUCCESS)"),
    ("driver_types.h", "cuda", "cuda(?:Error|Success)"),
    ("nvml.h", "nvml", "NVML_(?:ERROR_|SUCCESS)"),
];

/// Files of a name, some folders below another one.
fn find(folder: &Path, name: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, name, found);
        } else if path.file_name().is_some_and(|n| n == name) {
            found.push(String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned());
        }
    }
}

#[test]
fn every_code_of_the_headers_is_known_by_number_and_by_name() {
    let Some(parts) = parts::all() else { return };
    let mut folders: Vec<_> = parts
        .runtimes
        .iter()
        .map(|(_, folder)| folder.clone())
        .collect();
    let nvml = Wheel {
        name: "nvidia-nvml-dev",
        version: "13.5.37",
    };
    match parts::wheel(nvml) {
        Ok(folder) => folders.push(folder),
        Err(why) => parts::not_run(&format!("nvml.h cannot be had: {why}")),
    }
    let (mut seen, mut wrong) = (BTreeSet::new(), BTreeSet::new());
    for (header, domain, prefix) in HEADERS {
        let code = Regex::new(&format!(r"(?m)^\s*({prefix}\w*)\s*=\s*(\d+)\s*[,}}/\n]")).unwrap();
        let mut texts = Vec::new();
        for folder in &folders {
            find(folder, header, &mut texts);
        }
        for text in texts {
            for found in code.captures_iter(&text) {
                let (name, number) = (&found[1], &found[2]);
                let by_number = first(&explain::ask(&format!("{domain} {number}")));
                let by_name = first(&explain::ask(name));
                seen.insert(name.to_owned());
                if by_number.is_none() || by_number != by_name {
                    wrong.insert(format!("{header}: {name} = {number}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen.len() > 200, "{}", seen.len());
}

/// The id of the first entry.
fn first(asked: &Asked) -> Option<&'static str> {
    match asked {
        Asked::Entries(entries) => entries.first().map(|(entry, _)| entry.id()),
        // What is no error has no entry.
        Asked::Success(_) => Some("success"),
        _ => None,
    }
}
