//! What the *call* did wrong, or an input that cannot be read: one line that names the file and the reason, exit 2.
//! What is wrong with the *host* is never an error of this kind: it is a reading or a finding.

use std::io;
use std::path::{Path, PathBuf};

/// The caller's mistakes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder that was named cannot be used.
    #[error("cannot {operation} `{}`: {reason}", path.display().to_string().escape_debug())]
    File {
        /// `read`, `write`, `open`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why, in words.
        reason: String,
    },
    /// The call contradicts itself or names something unknown.
    #[error("{0}")]
    Usage(String),
    /// Writing the report failed.
    #[error("cannot write the report: {}", plain_io(&.0.to_string()))]
    Output(#[from] io::Error),
}

impl Error {
    /// An error about a file.
    pub fn file(operation: &'static str, path: &Path, reason: impl std::fmt::Display) -> Self {
        Self::File {
            operation,
            path: path.to_owned(),
            reason: plain_io(&reason.to_string()),
        }
    }
}

/// The words of an I/O error without the number that the standard library adds.
pub fn plain_io(text: &str) -> String {
    match text.find(" (os error ") {
        Some(at) => text.get(..at).unwrap_or(text).to_owned(),
        None => text.to_owned(),
    }
}
