//! A wheel by name and version: downloaded without what it depends on, unpacked and not installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Wheel, run};

/// Downloads the wheel and unpacks it into `folder`.
pub(super) fn fetch(wheel: Wheel, folder: &Path) -> Result<(), String> {
    let io = |e: std::io::Error| format!("{}: {e}", folder.display());
    let download = tempfile::tempdir_in(folder.parent().unwrap()).map_err(io)?;
    run(Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-input"])
        .args([
            "--no-deps",
            "--only-binary=:all:",
            "--no-cache-dir",
            "--dest",
        ])
        .arg(download.path())
        .arg(format!("{}=={}", wheel.name, wheel.version)))?;
    for file in fs::read_dir(download.path()).map_err(io)? {
        let file = file.map_err(io)?.path();
        run(Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .args([&file, folder]))?;
    }
    Ok(())
}
