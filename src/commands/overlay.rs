//! The matrix that a command judges by: the bundled one, with rows of a folder added where one was named, else with
//! those of the user's own configuration folder.
//!
//! Rows decide verdicts, so the configuration folder counts only where nobody but its owner, who is the caller, can
//! write to it, and in CI not at all unless `--matrix` names it: a job must not depend on what lies in a home.

#![expect(
    clippy::disallowed_methods,
    reason = "the folder that was named, or the user's own configuration"
)]

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::terminal;
use crate::error::{Error, plain_io};
use crate::matrix::{Matrix, OverlayFile};
use crate::redact::{Redactor, Secrets};

/// The bundled tables have 200 kB in all.
const CAP: u64 = 1 << 20;

/// The matrix with its overlay. `redact`: whether reports show the paths of its files with names in place of secrets.
///
/// # Errors
/// Where a folder that counts holds what cannot be used.
pub(super) fn matrix(named: Option<&Path>, redact: bool) -> Result<Matrix, Error> {
    let (folder, files) = match named {
        Some(dir) => {
            let files = read(dir, |_| Ok(())).map_err(|e| Error::file("read", dir, e))?;
            if files.is_empty() {
                return Err(Error::file("use", dir, "no table (*.toml) is in it"));
            }
            (dir.to_owned(), files)
        }
        None => match configured() {
            Some(found) => found,
            None => return Ok(Matrix::bundled()),
        },
    };
    let shown = |name: &str| {
        let path = folder.join(name).display().to_string();
        if redact {
            Redactor::new(secrets()).text(&path).into_owned()
        } else {
            path
        }
    };
    let files: Vec<OverlayFile> = files
        .into_iter()
        .map(|(name, text)| OverlayFile {
            path: shown(&name),
            name,
            text,
        })
        .collect();
    Matrix::with_overlay(&files).map_err(|e| Error::file("use", &folder.join(&e.name), &e.reason))
}

/// What a path or a line of a log could tell of the caller.
pub(super) fn secrets() -> Secrets {
    let text = |name: &str| std::env::var(name).ok();
    Secrets {
        home: text("HOME").filter(|home| home.starts_with('/') && home.len() > 1),
        user_names: ["USER", "LOGNAME", "SUDO_USER"]
            .into_iter()
            .filter_map(text)
            .collect(),
        host_names: Vec::new(),
    }
}

/// A file's name and text.
type NamedText = (String, String);

/// The user's own folder and its tables, where it counts. What is there and does not count is told.
fn configured() -> Option<(PathBuf, Vec<NamedText>)> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if set("CI").is_some() {
        return None;
    }
    let absolute = |name: &str| set(name).map(PathBuf::from).filter(|dir| dir.is_absolute());
    let config = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    let own = config.join("gpudoctor");
    let folder = own.join("matrix");
    let not_used = |why: &dyn std::fmt::Display| {
        terminal::say(&format!(
            "not used: the rows in {}: {}",
            folder.display(),
            plain_io(&why.to_string())
        ));
    };
    match fs::metadata(&folder) {
        Ok(_) => {}
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return None;
        }
        Err(e) => {
            not_used(&e);
            return None;
        }
    }
    // Whoever can write to the folder above can put another one in its place.
    let read = fs::metadata(&own)
        .and_then(|above| is_own(&above))
        .and_then(|()| read(&folder, is_own));
    match read {
        Ok(files) if files.is_empty() => None,
        Ok(files) => Some((folder, files)),
        Err(e) => {
            not_used(&e);
            None
        }
    }
}

/// Whether the caller owns it and nobody else can write to it.
fn is_own(of: &Metadata) -> io::Result<()> {
    let refused = |why: &str| Err(io::Error::other(why.to_owned()));
    let what = if of.is_dir() { "a folder" } else { "a file" };
    if of.uid() != rustix::process::geteuid().as_raw() {
        return refused(&format!("{what} there belongs to another user"));
    }
    if of.mode() & 0o022 != 0 {
        return refused(&format!("others can write to {what} there"));
    }
    Ok(())
}

/// The tables in a folder by name; `trusted` may refuse the folder or a file by what `fstat` says of it.
fn read(dir: &Path, trusted: impl Fn(&Metadata) -> io::Result<()>) -> io::Result<Vec<NamedText>> {
    let of_folder = fs::metadata(dir)?;
    if !of_folder.is_dir() {
        return Err(io::Error::other("is no folder"));
    }
    trusted(&of_folder)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        // What is hidden or has another ending (an editor's copy, a README) is no table.
        if let Some(name) = name.to_str().filter(|name| is_table(name)) {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    names
        .into_iter()
        .map(|name| {
            let text = text(&dir.join(&name), &trusted)
                .map_err(|e| io::Error::other(format!("{name}: {}", plain_io(&e.to_string()))))?;
            Ok((name, text))
        })
        .collect()
}

fn is_table(name: &str) -> bool {
    !name.starts_with('.') && Path::new(name).extension().is_some_and(|end| end == "toml")
}

fn text(path: &Path, trusted: impl Fn(&Metadata) -> io::Result<()>) -> io::Result<String> {
    // A FIFO or a device would block or act: opened without waiting, and refused.
    let file = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let of = file.metadata()?;
    if !of.is_file() {
        return Err(io::Error::other("is no regular file"));
    }
    trusted(&of)?;
    if of.len() > CAP {
        return Err(io::Error::other("is too large for a table"));
    }
    let mut bytes = Vec::new();
    file.take(CAP).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|_| io::Error::other("is no text (UTF-8)"))
}
