//! Writing the files that were asked for.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use crate::error::Error;

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
