//! Wheels from `PyPI` by name and pinned version, fetched once and kept as they are under `target/parts/inspect`.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A wheel, unpacked nowhere; `python` is the version whose wheel is wanted where there are several.
pub(super) fn wheel(name: &str, version: &str, python: &str) -> Option<PathBuf> {
    match fetch(name, version, python) {
        Ok(path) => Some(path),
        Err(why) => {
            not_run(&format!("{name} {version} cannot be had: {why}"));
            None
        }
    }
}

/// Whether the large wheels are wanted too.
pub(super) fn full() -> bool {
    std::env::var_os("GPUDOCTOR_REAL").is_some_and(|value| value == "full")
}

/// Says that a test, or a part of one, is not run; under CI that is a failure.
pub(super) fn not_run(why: &str) {
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci.is_empty() || ci == "false"),
        "not run, and under CI it must be: {why}"
    );
    let _ = writeln!(std::io::stderr(), "NOT RUN: {why}");
}

/// A file of a wheel, unpacked beside it.
pub(super) fn member(wheel: &Path, path: &str) -> PathBuf {
    let folder = wheel.with_extension("unpacked");
    let file = folder.join(path);
    if !file.exists() {
        let script =
            "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract(sys.argv[2], sys.argv[3])";
        let done = Command::new("python3")
            .args(["-c", script])
            .args([wheel, Path::new(path), &folder])
            .status();
        assert!(done.unwrap().success(), "{path}");
    }
    file
}

fn fetch(name: &str, version: &str, python: &str) -> Result<PathBuf, String> {
    let store = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap()
        .join("parts/inspect");
    let io = |e: std::io::Error| format!("{}: {e}", store.display());
    fs::create_dir_all(&store).map_err(io)?;
    let lock = File::create(store.join("lock")).map_err(io)?;
    lock.lock().map_err(io)?;
    let start = format!("{}-{version}-", name.replace('-', "_"));
    let find = || {
        let names = fs::read_dir(&store)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()));
        names
            .filter(|path| path.extension().is_some_and(|e| e == "whl"))
            .find(|path| {
                path.file_name()
                    .unwrap()
                    .to_str()
                    .is_some_and(|n| n.starts_with(&start))
            })
    };
    if let Some(path) = find() {
        return Ok(path);
    }
    let download = tempfile::tempdir_in(&store).map_err(io)?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",
        "--no-deps",
        "--no-cache-dir",
    ]);
    pip.args([
        "--only-binary=:all:",
        "--python-version",
        python,
        "--platform",
        "any",
    ]);
    for tag in ["1", "2010", "2014", "_2_17", "_2_24", "_2_27", "_2_28"] {
        pip.args(["--platform", &format!("manylinux{tag}_x86_64")]);
    }
    let output = pip
        .arg("--dest")
        .arg(download.path())
        .arg(format!("{name}=={version}"))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said.lines().last().unwrap_or("pip failed").to_owned());
    }
    for entry in fs::read_dir(download.path()).map_err(io)? {
        let path = entry.map_err(io)?.path();
        fs::rename(&path, store.join(path.file_name().unwrap())).map_err(io)?;
    }
    find().ok_or_else(|| "pip fetched something else".to_owned())
}
