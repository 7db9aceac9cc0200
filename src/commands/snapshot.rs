//! `gpudoctor snapshot`, and reading one back.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;

use serde::Deserialize;

use super::{look, print};
use crate::cli::SnapshotArgs;
use crate::error::Error;
use crate::facts::{Facts, SCHEMA};
use crate::report::json;

/// A snapshot of a large machine has less than a megabyte; more than this is something else.
const CAP: u64 = 64 << 20;

pub(super) fn run(args: &SnapshotArgs) -> Result<u8, Error> {
    let facts = look(&args.look)?;
    let text = serde_json::to_string_pretty(&facts).map_err(|e| Error::Output(e.into()))? + "\n";
    match &args.output {
        Some(path) => write(path, &text)?,
        None => print(&text)?,
    }
    Ok(0)
}

/// Writes beside the target first, so that a full disk never leaves half a file in place of an older one.
#[expect(clippy::disallowed_methods, reason = "the one file that was asked for")]
pub(super) fn write(path: &Path, text: &str) -> Result<(), Error> {
    if path.is_dir() {
        return Err(Error::file("write", path, "is a folder"));
    }
    // A pipe, a terminal or /dev/stdout is written to as it is.
    if path.exists() && !path.is_file() {
        return fs::write(path, text).map_err(|e| Error::file("write", path, e));
    }
    let mut name = path
        .file_name()
        .map(std::ffi::OsStr::to_owned)
        .ok_or_else(|| Error::file("write", path, "no file name"))?;
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    // Never through a link that somebody else laid there: the name can be guessed.
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&beside)
        .and_then(|mut file| {
            let done = file
                .write_all(text.as_bytes())
                .and_then(|()| fs::rename(&beside, path));
            if done.is_err() {
                let _ = fs::remove_file(&beside);
            }
            done
        });
    written.map_err(|e| Error::file("write", path, e))
}

/// Reads a snapshot, or the facts of a JSON report.
#[expect(
    clippy::disallowed_methods,
    reason = "the file that was named on the command line"
)]
pub(super) fn read(path: &Path) -> Result<Facts, Error> {
    let refused = |reason: String| Error::file("read", path, reason);
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(CAP)
            .read_to_end(&mut bytes)
            .map_err(|e| refused(e.to_string()))?;
    } else {
        let file = fs::File::open(path).map_err(|e| refused(e.to_string()))?;
        if file.metadata().is_ok_and(|m| m.is_dir()) {
            return Err(refused("is a folder, not a snapshot".to_owned()));
        }
        file.take(CAP)
            .read_to_end(&mut bytes)
            .map_err(|e| refused(e.to_string()))?;
    }
    parse(&bytes).map_err(refused)
}

/// Which of the two documents it is.
#[derive(Deserialize)]
struct Schema {
    schema: Option<String>,
}

/// The facts of a report.
#[derive(Deserialize)]
struct ReportFacts {
    facts: Facts,
}

/// The facts in the bytes of a snapshot or of a JSON report; an error in words that follow the file's name.
pub(super) fn parse(bytes: &[u8]) -> Result<Facts, String> {
    if bytes.is_empty() {
        return Err("is empty, no snapshot".to_owned());
    }
    let Schema { schema } =
        serde_json::from_slice(bytes).map_err(|e| format!("is no snapshot: {e}"))?;
    let facts = match schema.as_deref() {
        Some(SCHEMA) => serde_json::from_slice(bytes),
        Some(json::SCHEMA) => serde_json::from_slice::<ReportFacts>(bytes).map(|r| r.facts),
        Some(other) => {
            return Err(format!(
                "has the schema `{}`, and `{SCHEMA}` or `{}` is wanted",
                other.escape_debug(),
                json::SCHEMA
            ));
        }
        None => {
            return Err(format!(
                "is no snapshot: it has no `schema` (`{SCHEMA}` is wanted)"
            ));
        }
    };
    facts.map_err(|e| format!("is no snapshot that can be used: {e}"))
}
