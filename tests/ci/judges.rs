//! The judges of what CI systems are told: the schema of JUnit out of pytest's sources, the SARIF schema of OASIS out of
//! a crate that carries it, and check-jsonschema with the schemas of CI configurations. Each by name and pinned version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::parts::{self, complete, run};

/// What reads the schemas.
const TOOLS: [&str; 4] = [
    "xmlschema==4.3.2",
    "jsonschema==4.26.0",
    "check-jsonschema==0.39.0",
    "pre-commit==4.4.0",
];

/// The judges, each a path.
pub(crate) struct Judges {
    /// The tools: what `PYTHONPATH` has to name.
    tools: PathBuf,
    /// `junit-10.xsd`.
    pub(crate) junit: PathBuf,
    /// The JSON Schema of SARIF 2.1.0.
    pub(crate) sarif: PathBuf,
}

/// The judges; `None` where they cannot be had, which under CI fails the test.
pub(crate) fn all() -> Option<&'static Judges> {
    static JUDGES: OnceLock<Result<Judges, String>> = OnceLock::new();
    match JUDGES.get_or_init(fetch) {
        Ok(judges) => Some(judges),
        Err(why) => {
            parts::not_run(&format!("the judges of CI formats cannot be had: {why}"));
            None
        }
    }
}

impl Judges {
    /// Python with the tools.
    pub(crate) fn python(&self) -> Command {
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", &self.tools);
        command
    }
}

fn fetch() -> Result<Judges, String> {
    let (store, _lock) = parts::store()?;
    let tools = store.join("ci-judges-2");
    complete(&tools, |folder| {
        run(Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--no-input"])
            .args(["--disable-pip-version-check", "--no-compile", "--target"])
            .arg(folder)
            .args(TOOLS)
            .env("PIP_ROOT_USER_ACTION", "ignore"))
        .map(drop)
    })?;
    let junit = store.join("pytest-8.4.2-schema");
    complete(&junit, junit_schema)?;
    let sarif = store.join("serde-sarif-0.8.0");
    complete(&sarif, sarif_schema)?;
    Ok(Judges {
        tools,
        junit: junit.join("junit-10.xsd"),
        sarif: sarif.join("out/serde-sarif/src/schema.json"),
    })
}

/// pytest holds its own reports against this schema; only its sources carry it.
fn junit_schema(folder: &Path) -> Result<(), String> {
    run(Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--no-input"])
        .args(["--no-deps", "--no-binary=:all:", "--dest"])
        .arg(folder)
        .arg("pytest==8.4.2"))?;
    run(Command::new("tar")
        .args(["-xzf", "pytest-8.4.2.tar.gz", "--strip-components=3"])
        .arg("pytest-8.4.2/testing/example_scripts/junit-10.xsd")
        .current_dir(folder))
    .map(drop)
}

fn sarif_schema(folder: &Path) -> Result<(), String> {
    let manifest = "[package]\nname = \"judge\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
                    [lib]\npath = \"lib.rs\"\n\
                    [dependencies]\nserde-sarif = { version = \"=0.8.0\", default-features = false }\n\
                    [workspace]\n";
    fs::write(folder.join("Cargo.toml"), manifest).map_err(|e| e.to_string())?;
    fs::write(folder.join("lib.rs"), "").map_err(|e| e.to_string())?;
    run(Command::new(env!("CARGO"))
        .args(["vendor", "--quiet", "out"])
        .current_dir(folder))
    .map(drop)
}
