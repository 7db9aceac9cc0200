//! Folders as a user would have them, made of real parts, and runs of the program in an environment of their own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::parts::{self, Driver, Wheel};

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_gpudoctor");

/// A folder for everything of one test, which everybody may read. In the system's temporary folder, since root loads
/// nothing from below a folder that others can write.
pub fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.path().join("home")).unwrap();
    place
}

/// Whether a driver is loaded here: then the live machine answers for itself, and these tests cannot foretell it.
pub fn has_driver() -> bool {
    ["/proc/driver/nvidia/version", "/dev/dxg", "/dev/nvhost-gpu"]
        .iter()
        .any(|path| Path::new(path).exists())
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A driver's folder as Debian's alternatives make it: both libraries under their full names, with links for the sonames.
pub fn driver_folder(driver: &Driver, place: &Path) -> PathBuf {
    let folder = place.join(format!("driver-{}", driver.branch));
    for library in [&driver.libcuda, &driver.libnvidia_ml] {
        let name = library.file_name().unwrap().to_str().unwrap();
        copy(library, &folder.join(name));
        let (stem, _) = name.split_once(".so.").unwrap();
        symlink(name, folder.join(format!("{stem}.so.1"))).unwrap();
    }
    folder
}

/// A virtual environment with a runtime's wheel in it.
pub fn environment(runtime: &(Wheel, PathBuf), place: &Path) -> PathBuf {
    let (wheel, unpacked) = runtime;
    let prefix = place.join(format!("venv-{}", wheel.version));
    let site = prefix.join("lib/python3.11/site-packages");
    copy_tree(unpacked, &site);
    fs::write(
        prefix.join("pyvenv.cfg"),
        "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n",
    )
    .unwrap();
    prefix
}

/// The libcudart in a folder or below it.
pub fn libcudart(folder: &Path) -> PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                folders.push(path);
            } else if name.starts_with("libcudart.so.") {
                return path;
            }
        }
    }
    panic!("no libcudart below {}", folder.display());
}

/// What tests need of a wheel: libraries and metadata, without the headers.
fn copy_tree(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_name() == "include" {
            continue;
        }
        if entry.path().is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            copy(&entry.path(), &to);
        }
    }
}

/// Copies a file; whatever the umask was when it was fetched, only its owner may write the copy.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap();
    fs::set_permissions(to, fs::Permissions::from_mode(0o644)).unwrap();
}

/// The program, with nothing of this machine's environment.
pub fn gpudoctor(place: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", place.join("home"))
        .env("LC_ALL", "C.UTF-8")
        .current_dir(place.join("home"));
    command
}

/// A shell that runs a script in a mount namespace of its own: what it mounts nobody else sees. Arguments that are added
/// are the script's. `None`, and said, where that cannot be had.
pub fn with_own_mounts(script: &str) -> Option<Command> {
    if !is_root() {
        parts::left_out("only root has mounts of its own");
        return None;
    }
    let shell = |script: &str| {
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-eu",
            "-c",
            script,
            "sh",
        ]);
        command
    };
    let tried = shell("mount -t tmpfs gpudoctor-test /dev").output();
    if tried.is_ok_and(|output| output.status.success()) {
        Some(shell(script))
    } else {
        parts::left_out("no mount namespace can be had");
        None
    }
}

/// A report.
#[derive(Debug)]
pub struct Report {
    /// Exit code.
    pub code: Option<i32>,
    /// The report as JSON.
    pub json: Value,
}

/// Runs `check --format json` with more options; its standard output must be one JSON document, whatever else happens.
pub fn check(command: &mut Command, options: &[&str]) -> Report {
    let output = command
        .args(["check", "--format", "json"])
        .args(options)
        .output()
        .unwrap();
    report(&output)
}

/// The report in what a run wrote.
pub fn report(output: &Output) -> Report {
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!(
            "{e}: {}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    });
    Report {
        code: output.status.code(),
        json,
    }
}

impl Report {
    /// All findings.
    pub fn findings(&self) -> &[Value] {
        self.json["findings"].as_array().unwrap()
    }

    /// `id severity` of the findings above note.
    pub fn alarms(&self) -> Vec<String> {
        self.with_severity(&["error", "warning"])
    }

    /// The ids of the errors.
    pub fn errors(&self) -> Vec<String> {
        self.with_severity(&["error"])
    }

    fn with_severity(&self, wanted: &[&str]) -> Vec<String> {
        let wanted = self
            .findings()
            .iter()
            .filter(|f| wanted.contains(&text(&f["severity"])));
        wanted.map(|f| text(&f["id"]).to_owned()).collect()
    }

    /// The finding with this id.
    pub fn finding(&self, id: &str) -> &Value {
        let found = self.findings().iter().find(|f| f["id"] == id);
        found.unwrap_or_else(|| panic!("no {id}: {}", self.json["findings"]))
    }

    /// Status and layer of the verdict.
    pub fn verdict(&self) -> (&str, &str) {
        let verdict = &self.json["verdict"];
        (text(&verdict["status"]), text(&verdict["layer"]))
    }
}

/// A JSON string, or nothing.
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
