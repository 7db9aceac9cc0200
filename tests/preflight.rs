//! `gpudoctor preflight`: the table of `fixtures/preflight/rows.toml`, which was written before the rules; gpudoctor.toml;
//! requirement and lock files; exit codes and first lines.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it starts the binary and writes below a temporary folder"
)]

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize;
use serde_json::Value;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/preflight")
}

/// Runs `gpudoctor preflight` in a folder.
fn preflight(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpudoctor"))
        .arg("preflight")
        .args(words)
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json(folder: &Path, words: &[&str]) -> Value {
    let output = preflight(folder, &[&["--format", "json"], words].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{words:?}: {e}: {}", stderr(&output)))
}

#[derive(Deserialize)]
struct Rows {
    row: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    artifact: String,
    target: String,
    verdict: String,
    finding: Option<String>,
    fix: Option<String>,
    rule: String,
}

/// The artifact in a folder of its own; those that are kept packed are unpacked.
fn artifact(name: &str, folder: &Path) -> String {
    let file = name.rsplit('/').next().unwrap();
    let place = folder.join(name.replace("../", "").replace('/', "-"));
    fs::create_dir_all(&place).unwrap();
    let mut bytes = Vec::new();
    if let Ok(whole) = fs::read(fixtures().join(name)) {
        bytes = whole;
    } else {
        let packed = fs::read(fixtures().join(format!("{name}.xz"))).unwrap();
        lzma_rust2::XzReader::new(packed.as_slice(), true)
            .read_to_end(&mut bytes)
            .unwrap();
    }
    let path = place.join(file);
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn every_row_of_the_table() {
    let rows: Rows =
        toml::from_str(&fs::read_to_string(fixtures().join("rows.toml")).unwrap()).unwrap();
    assert!(rows.row.len() >= 40);
    assert!(rows.row.iter().filter(|row| row.verdict == "runs").count() >= 15);
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for row in &rows.row {
        let path = artifact(&row.artifact, folder.path());
        let words = [path.as_str(), "--target", row.target.as_str()];
        let found = json(folder.path(), &words);
        let verdict = match found["verdict"]["status"].as_str().unwrap() {
            "ok" => "runs",
            "warning" => "warns",
            "fault" => "fails",
            other => other,
        };
        let about = format!("{} on {} ({})", row.artifact, row.target, row.rule);
        let findings = found["findings"].as_array().unwrap();
        let ids: Vec<&str> = findings
            .iter()
            .filter(|f| f["severity"] != "note")
            .map(|f| f["id"].as_str().unwrap())
            .collect();
        if verdict != row.verdict {
            wrong.push(format!(
                "{about}: {verdict}, not {}: {ids:?} {}",
                row.verdict, found["verdict"]["summary"]
            ));
            continue;
        }
        let Some(wanted) = &row.finding else {
            continue;
        };
        if found["verdict"]["finding"] != wanted.as_str() || ids.iter().any(|id| id != wanted) {
            wrong.push(format!("{about}: {ids:?}, not {wanted}"));
            continue;
        }
        let words = row.fix.as_deref().unwrap();
        let fixes: Vec<&str> = findings
            .iter()
            .flat_map(|f| f["fixes"].as_array().unwrap())
            .map(|fix| fix["summary"].as_str().unwrap())
            .collect();
        if !fixes.iter().any(|fix| fix.contains(words)) {
            wrong.push(format!("{about}: no fix has `{words}`: {fixes:?}"));
        }
        let code = preflight(folder.path(), &[path.as_str(), "--target", &row.target])
            .status
            .code();
        if code != Some(i32::from(row.verdict == "fails")) {
            wrong.push(format!("{about}: exit code {code:?}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// A repository with artifacts and a gpudoctor.toml.
fn repository(config: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let build = folder.path().join("build/sub");
    fs::create_dir_all(&build).unwrap();
    fs::create_dir_all(folder.path().join(".git")).unwrap();
    for (from, to) in [
        ("13.0/libhopper.so", "build/libhopper.so"),
        ("11.8/server-shared", "build/sub/server"),
    ] {
        fs::write(
            folder.path().join(to),
            fs::read(fixtures().join(from)).unwrap(),
        )
        .unwrap();
    }
    fs::write(folder.path().join("build/notes.txt"), "text").unwrap();
    fs::write(folder.path().join("gpudoctor.toml"), config).unwrap();
    folder
}

const FLEET: &str = r#"
[target.prod]
driver = "580.95.05"
gpus = ["H100"]
glibc = "2.35"
cuda = "13.0"
provides = ["libcudart.so.11.0"]

[target.edge]
driver = "470.256.02"
gpus = ["P100"]
glibc = "2.35"
cuda = "11.8"

[preflight]
artifacts = ["build/**"]
"#;

#[test]
fn a_repository_is_judged_by_its_file() {
    let folder = repository(FLEET);
    let output = preflight(folder.path(), &[]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{said}{}", stderr(&output));
    let first = said.lines().next().unwrap();
    assert!(first.starts_with("edge: "), "{first}");
    let row = |name: &str| {
        let line = said.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace()
            .skip(1)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(row("build/libhopper.so "), ["ok", "FAULT"], "{said}");
    assert_eq!(row("build/sub/server "), ["ok", "ok"], "{said}");
    assert!(!said.contains("notes.txt"), "{said}");
    // From below, the file of the repository is found, and the artifacts are its.
    let below = preflight(&folder.path().join("build/sub"), &["--target-name", "prod"]);
    let said = stdout(&below);
    assert_eq!(below.status.code(), Some(0), "{said}{}", stderr(&below));
    assert_eq!(said.lines().next(), Some("ok: 2 artifacts run on prod"));
    let quiet = preflight(folder.path(), &["--target-name", "prod", "-q"]);
    assert_eq!(
        (quiet.status.code(), stdout(&quiet)),
        (Some(0), String::new())
    );
    // Nothing was written.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn the_json_has_a_verdict_a_target() {
    let folder = repository(FLEET);
    let found = json(folder.path(), &[]);
    assert_eq!(found["schema"], "gpudoctor.report/1");
    assert_eq!(found["examined"]["kind"], "artifacts");
    assert_eq!(found["verdict"]["status"], "fault");
    let targets = found["targets"].as_array().unwrap();
    let told: Vec<_> = targets
        .iter()
        .map(|t| {
            (
                t["name"].as_str().unwrap(),
                t["verdict"]["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [("prod", "ok"), ("edge", "fault")]);
    let key = found["verdict"]["key"].as_str().unwrap();
    assert!(key.ends_with("#edge"), "{key}");
    let keys: Vec<&str> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["key"].as_str().unwrap())
        .collect();
    assert!(keys.contains(&key), "{keys:?}");
    let mut once = keys.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), keys.len(), "{keys:?}");
    assert!(found.get("facts").is_none());
}

#[test]
fn what_is_accepted_does_not_count_until_its_last_day() {
    let ignore = |expires: &str| {
        format!(
            "{FLEET}ignore = [\n  {{ id = \"driver-too-old\", reason = \"upgraded in May\"{expires} }},\n  {{ id = \"library-not-found\", reason = \"as above\" }},\n  {{ id = \"no-device-code-for-gpu\", reason = \"as above\" }},\n]\n"
        )
    };
    let folder = repository(&ignore(", expires = 2999-01-01"));
    let output = preflight(folder.path(), &[]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}{}", stderr(&output));
    assert!(
        said.starts_with("ok: 2 artifacts run on prod, edge"),
        "{said}"
    );
    assert!(
        said.contains("ignored: ") && said.contains("upgraded in May, until 2999-01-01"),
        "{said}"
    );
    let found = json(folder.path(), &[]);
    assert!(!found["ignored"].as_array().unwrap().is_empty());
    let folder = repository(&ignore(", expires = \"2020-01-31\""));
    let output = preflight(folder.path(), &[]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ran out on 2020-01-31"), "{said}");
}

#[test]
fn what_is_wrong_with_the_file_is_told_with_its_line() {
    for (config, words) in [
        (
            "[target.a]\ndriver = 535\ngpu = \"A100\"\n",
            ["line 3", "gpu"],
        ),
        ("[target.a]\ndriver = 12.4\n", ["line 2", "three digits"]),
        (
            "[target.a]\ndriver = 535\n[preflight]\nignore = [{id = \"x\", reason = \"y\"}]\n",
            ["line 4", "no finding id"],
        ),
        ("[target.a\n", ["line 1", ""]),
        ("", ["has no target", "[target.prod]"]),
        (
            "[target.a]\ndriver = 535\n[preflight]\nartifacts = [\"build/*.{so,a}\"]\n",
            ["line 4", "write a glob for each"],
        ),
    ] {
        let folder = repository(config);
        let output = preflight(folder.path(), &[]);
        let said = stderr(&output);
        assert_eq!(
            (output.status.code(), said.lines().count()),
            (Some(2), 1),
            "{said}"
        );
        assert!(said.contains("gpudoctor.toml"), "{said}");
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn a_wrong_call_is_refused() {
    let folder = repository(FLEET);
    let empty = tempfile::tempdir().unwrap();
    fs::create_dir(empty.path().join(".git")).unwrap();
    for (folder, words, needle) in [
        (empty.path(), vec!["x"], "--init"),
        (folder.path(), vec!["--target-name", "none"], "prod, edge"),
        (folder.path(), vec!["none.so"], "none.so"),
        (folder.path(), vec!["build/notes.txt"], "a text file"),
        (
            folder.path(),
            vec!["--target", "gpu=A1000000"],
            "is not known",
        ),
        (
            folder.path(),
            vec!["--target", "os=windows,driver=551.61"],
            "wsl",
        ),
        (
            folder.path(),
            vec!["--target", "a:driver=535", "--target", "a:driver=580"],
            "called `a`",
        ),
        (
            folder.path(),
            vec!["--target-from", "gpudoctor.toml"],
            "no snapshot",
        ),
        (folder.path(), vec!["--ignore", "nothing"], "no finding id"),
        (
            folder.path(),
            vec!["--output", "junit=r", "--output", "sarif=r"],
            "two reports go to r",
        ),
        (
            folder.path(),
            vec!["--target", "driver=535,cuda=99"],
            "the newest is",
        ),
        (
            folder.path(),
            vec!["--target", "driver=535,os=ubuntu"],
            "has no version",
        ),
        (
            folder.path(),
            vec!["--target", "driver=535,torch=2.7"],
            "no part of a machine",
        ),
        (folder.path(), vec!["--config", "other.toml"], "other.toml"),
        (folder.path(), vec!["--force"], "--init"),
    ] {
        let output = preflight(folder, &words);
        let said = stderr(&output);
        assert_eq!(
            (output.status.code(), said.lines().count()),
            (Some(2), 1),
            "{words:?}: {said}"
        );
        assert!(said.contains(needle), "{words:?}: {said}");
    }
}

#[test]
fn init_writes_what_preflight_reads() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/snapshots/healthy.json");
    let snapshot = snapshot.to_str().unwrap();
    fs::write(
        folder.path().join("requirements.txt"),
        "torch==2.7.1+cu128\n",
    )
    .unwrap();
    let config = folder.path().join("gpudoctor.toml");
    let output = preflight(folder.path(), &["--init", "--from", snapshot]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = fs::read_to_string(&config).unwrap();
    assert!(
        text.contains("artifacts = [\"requirements.txt\"]"),
        "{text}"
    );
    let again = preflight(folder.path(), &["--init"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains("--force"), "{}", stderr(&again));
    assert_eq!(fs::read_to_string(&config).unwrap(), text);
    let judged = preflight(folder.path(), &[]);
    assert_eq!(
        judged.status.code(),
        Some(0),
        "{}{}",
        stdout(&judged),
        stderr(&judged)
    );
    // The same machine, named by its snapshot.
    let same = preflight(folder.path(), &["--target-from", snapshot]);
    assert!(
        stdout(&same).starts_with("ok: 1 artifact runs on healthy"),
        "{}",
        stdout(&same)
    );
    let flags = ["--init", "--force", "--target", "edge:driver=470,gpu=P100"];
    assert_eq!(preflight(folder.path(), &flags).status.code(), Some(0));
    let text = fs::read_to_string(&config).unwrap();
    assert!(
        text.contains("[target.edge]") && text.contains("driver = \"470\""),
        "{text}"
    );
    let judged = preflight(folder.path(), &[]);
    assert_eq!(judged.status.code(), Some(1), "{}", stdout(&judged));
    // A build host without a GPU gets an example, and it can be read.
    let example = preflight(folder.path(), &["--init", "--force"]);
    assert_eq!(example.status.code(), Some(0), "{}", stderr(&example));
}

#[test]
fn what_a_file_pins_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text, target, verdict, id, words) in [
        (
            "requirements.txt",
            "torch==2.7.1+cu128\n",
            "driver=535.183.01,gpu=A100",
            "ok",
            "",
            "",
        ),
        (
            "requirements.txt",
            "torch==2.7.1+cu128\n",
            "driver=470.256.02,gpu=A100",
            "fault",
            "driver-too-old",
            "cu118",
        ),
        (
            "requirements.txt",
            "torch==2.7.1+cu128\n",
            "driver=580.95.05,gpu=P100",
            "fault",
            "framework-lacks-gpu-code",
            "cu126",
        ),
        (
            "requirements.txt",
            "--index-url https://download.pytorch.org/whl/cu126\ntorch==2.7.1\n",
            "driver=580.95.05,gpu=P100",
            "ok",
            "",
            "",
        ),
        (
            "requirements.txt",
            "-r more.txt\n",
            "driver=470.256.02,gpu=A100",
            "fault",
            "driver-too-old",
            "cu118",
        ),
        (
            "requirements.txt",
            "torch\n",
            "driver=580.95.05,gpu=A100",
            "ok",
            "",
            "",
        ),
        // A version left open: the newest that is allowed decides, and what runs is named.
        (
            "requirements.txt",
            "torch>=2.5\n",
            "driver=535.183.01,gpu=A100",
            "warning",
            "version-left-open",
            "torch==2.10",
        ),
        (
            "requirements.txt",
            "torch==2.6.*\n",
            "driver=535.183.01,gpu=A100",
            "ok",
            "",
            "",
        ),
        (
            "requirements.txt",
            "torch~=2.6.0\n",
            "driver=470.256.02,gpu=A100",
            "fault",
            "driver-too-old",
            "525",
        ),
        (
            "requirements.txt",
            "torch>=2.5\n-c more.txt\n",
            "driver=535.183.01,gpu=A100",
            "ok",
            "",
            "",
        ),
        (
            "requirements.txt",
            "torch~=97.0\n",
            "driver=535.183.01,gpu=A100",
            "unknown",
            "",
            "",
        ),
        // Markers decide whether it is installed there.
        (
            "requirements.txt",
            "torch==2.12.0; platform_machine == 'aarch64'\n",
            "driver=535.183.01,gpu=A100,arch=x86_64",
            "ok",
            "",
            "",
        ),
        (
            "requirements.txt",
            "torch==2.12.0; platform_machine == 'x86_64'\n",
            "driver=535.183.01,gpu=A100",
            "fault",
            "driver-too-old",
            "580",
        ),
        (
            "requirements.txt",
            "torch==2.12.0; python_version < '3.11'\n",
            "driver=535.183.01,gpu=A100",
            "unknown",
            "",
            "",
        ),
        (
            "requirements.txt",
            "torch==2.12.0; python_version < '3.11'\n",
            "driver=535.183.01,gpu=A100,python=3.12",
            "ok",
            "",
            "",
        ),
        (
            "requirements.txt",
            "torch==2.6.0; python_version < '3.11'\n",
            "driver=535.183.01,gpu=A100",
            "ok",
            "",
            "",
        ),
        (
            "uv.lock",
            "requires-python = \">=3.12\"\n[[package]]\nname = \"app\"\nversion = \"1\"\nsource = { virtual = \".\" }\ndependencies = [{ name = \"vllm\", marker = \"python_full_version < '3.12'\" }]\n[[package]]\nname = \"vllm\"\nversion = \"0.10.2\"\n",
            "driver=470.256.02,gpu=A100",
            "ok",
            "",
            "",
        ),
        (
            "uv.lock",
            "requires-python = \">=3.12\"\n[[package]]\nname = \"app\"\nversion = \"1\"\nsource = { virtual = \".\" }\ndependencies = [{ name = \"vllm\", marker = \"python_full_version >= '3.12'\" }]\n[[package]]\nname = \"vllm\"\nversion = \"0.10.2\"\n",
            "driver=470.256.02,gpu=A100",
            "fault",
            "driver-too-old",
            "525",
        ),
        (
            "poetry.lock",
            "[[package]]\nname = \"torch\"\nversion = \"2.12.0\"\nmarkers = \"platform_machine == \\\"aarch64\\\"\"\n[metadata]\npython-versions = \">=3.11\"\n",
            "driver=535.183.01,gpu=A100",
            "ok",
            "",
            "",
        ),
        // Wheels: for a newer glibc, for musl, for another machine.
        (
            "requirements.txt",
            "torch==2.7.1+cu126\n",
            "driver=580.95.05,gpu=A100,glibc=2.17",
            "fault",
            "glibc-too-old",
            "2.28",
        ),
        (
            "requirements.txt",
            "torch==2.7.1+cu126\n",
            "driver=580.95.05,gpu=A100,glibc=2.28",
            "ok",
            "",
            "",
        ),
        (
            "requirements.txt",
            "torch==2.7.1+cu126\n",
            "driver=580.95.05,gpu=A100,os=alpine-3.20",
            "fault",
            "program-loader-missing",
            "glibc",
        ),
        (
            "requirements.txt",
            "torch==2.7.1+cu126\n",
            "driver=580.95.05,gpu=A100,os=linuxmint-22",
            "unknown",
            "",
            "",
        ),
        (
            "requirements.txt",
            "onnxruntime-gpu==1.23.2\n",
            "driver=580.95.05,gpu=H100,arch=aarch64",
            "fault",
            "program-other-architecture",
            "aarch64",
        ),
        (
            "requirements.txt",
            "torch==2.9.1+cu130\n",
            "driver=580.95.05,gpu=H100,arch=aarch64",
            "ok",
            "",
            "",
        ),
        (
            "poetry.lock",
            "[[package]]\nname = \"torch\"\nversion = \"2.6.0\"\nfiles = [{file = \"torch-2.6.0-cp312-cp312-manylinux_2_28_aarch64.whl\", hash = \"x\"}]\n",
            "driver=580.95.05,gpu=A100",
            "fault",
            "program-other-architecture",
            "x86_64",
        ),
        // The least compute capability that a framework names.
        (
            "requirements.txt",
            "vllm==0.10.2\n",
            "driver=580.95.05,gpu=P100",
            "fault",
            "framework-lacks-gpu-code",
            "plan",
        ),
        (
            "requirements.txt",
            "vllm==0.10.2\n",
            "driver=580.95.05,gpu=T4",
            "ok",
            "",
            "",
        ),
        // Byte order marks, and UTF-16 as PowerShell writes it.
        (
            "requirements.txt",
            "\u{feff}torch==2.12.0\n",
            "driver=535.183.01,gpu=A100",
            "fault",
            "driver-too-old",
            "580",
        ),
        // Names of every kind.
        (
            "requirements.in",
            "torch==2.12.0\n",
            "driver=535.183.01,gpu=A100",
            "fault",
            "driver-too-old",
            "580",
        ),
        (
            "gpu-deps.txt",
            "torch==2.12.0\n",
            "driver=535.183.01,gpu=A100",
            "fault",
            "driver-too-old",
            "580",
        ),
        (
            "requirements.txt",
            "-r https://example.com/more.txt\nnumpy\n",
            "driver=535.183.01,gpu=A100",
            "unknown",
            "",
            "",
        ),
        (
            "requirements.txt",
            "torch==2.7.1+cpu\n",
            "driver=580.95.05,gpu=A100",
            "warning",
            "framework-cpu-build",
            "plan",
        ),
        (
            "requirements.txt",
            "torch==99.1\n",
            "driver=580.95.05,gpu=A100",
            "unknown",
            "",
            "",
        ),
        (
            "requirements.txt",
            "tensorflow==2.19.0\nnumpy==2.0\n",
            "driver=470.256.02,gpu=A100",
            "fault",
            "driver-too-old",
            "525",
        ),
        (
            "requirements.txt",
            "jax[cuda12]==0.6.2\n",
            "driver=535.183.01,gpu=A100",
            "ok",
            "",
            "",
        ),
        (
            "requirements.txt",
            "cupy-cuda13x==14.2.0\n",
            "driver=550.54.14,gpu=A100",
            "fault",
            "driver-too-old",
            "580",
        ),
        (
            "uv.lock",
            "[[package]]\nname = \"vllm\"\nversion = \"0.10.2\"\n",
            "driver=470.256.02,gpu=A100",
            "fault",
            "driver-too-old",
            "525",
        ),
        (
            "poetry.lock",
            "[[package]]\nname = \"nvidia-cuda-runtime-cu12\"\nversion = \"12.6.77\"\n",
            "driver=470.256.02,gpu=A100",
            "fault",
            "driver-too-old",
            "525",
        ),
        (
            "environment.yml",
            "dependencies:\n  - pytorch=2.5.1=cuda126_py312_h1\n",
            "driver=470.256.02,gpu=A100",
            "fault",
            "driver-too-old",
            "525",
        ),
        // What brings a PyTorch that nobody names is no project that needs no GPU.
        (
            "requirements.txt",
            "torchvision==0.21.0\n",
            "driver=580.95.05,gpu=A100",
            "unknown",
            "",
            "",
        ),
        // One of two pins runs: which one counts is not said here.
        (
            "requirements.txt",
            "torch==2.12.0\ntorch==2.6.0\n",
            "driver=535.183.01,gpu=A100",
            "warning",
            "driver-too-old",
            "580",
        ),
        (
            "requirements.txt",
            "numpy==2.0\n",
            "driver=580.95.05,gpu=A100",
            "ok",
            "",
            "",
        ),
    ] {
        expect(folder.path(), name, text, target, verdict, id, words);
    }
}

/// Writes a file, and a `more.txt` beside it that names torch 2.7.1+cu128, judges it, and looks at verdict, finding and fix.
fn expect(
    folder: &Path,
    name: &str,
    text: &str,
    target: &str,
    verdict: &str,
    id: &str,
    words: &str,
) {
    fs::write(folder.join("more.txt"), "torch==2.7.1+cu128\n").unwrap();
    fs::write(folder.join(name), text).unwrap();
    let found = json(folder, &[name, "--target", target]);
    let about = format!("{text:?} on {target}: {}", found["verdict"]["summary"]);
    assert_eq!(found["verdict"]["status"], verdict, "{about}");
    let unknown = preflight(folder, &[name, "--target", target]).status.code();
    assert_eq!(
        unknown,
        Some(i32::from(matches!(verdict, "fault" | "unknown"))),
        "{about}"
    );
    if id.is_empty() {
        return;
    }
    assert_eq!(found["verdict"]["finding"], id, "{about}");
    let first = found["findings"].as_array().unwrap().iter();
    let first = first.clone().find(|f| f["id"] == id).unwrap();
    let fixes = first["fixes"].to_string();
    assert!(fixes.contains(words), "{about}: {fixes}");
}

#[test]
fn what_installers_would_take_is_judged() {
    const OLD: &str = "driver=470.256.02,gpu=A100,glibc=2.31";
    let folder = tempfile::tempdir().unwrap();
    let index = "https://download.pytorch.org/whl";
    let cu118 = format!("--extra-index-url {index}/cu118\n");
    let poetry = |python: &str| {
        format!(
            "[[package]]\nname = \"torch\"\nversion = \"2.5.1+cu118\"\nmarkers = \"python_version >= \\\"3.10\\\"\"\n\n[[package]]\nname = \"torch\"\nversion = \"2.4.1\"\nmarkers = \"python_version < \\\"3.10\\\"\"\n\n[metadata]\npython-versions = \"{python}\"\n"
        )
    };
    let conda = |lines: &str| format!("dependencies:\n{lines}");
    fs::write(folder.path().join("index.txt"), &cu118).unwrap();
    fs::write(folder.path().join("torch.txt"), "torch==2.5.1\n").unwrap();
    fs::write(folder.path().join("exact.txt"), "torch==2.5.1+cu118\n").unwrap();
    fs::write(
        folder.path().join("by-python.txt"),
        "torch==2.5.1; python_version>=\"3.9\"\ntorch==2.0.1; python_version<\"3.9\"\n",
    )
    .unwrap();
    for (name, text, target, verdict, id) in [
        // Indexes hold for all files that name each other, however often they are named.
        (
            "requirements.txt",
            "torch==2.5.1\n".to_owned(),
            OLD,
            "fault",
            "driver-too-old",
        ),
        (
            "requirements.txt",
            "-r index.txt\ntorch==2.5.1\n".to_owned(),
            OLD,
            "ok",
            "",
        ),
        (
            "requirements.txt",
            format!("{cu118}-r torch.txt\n"),
            OLD,
            "ok",
            "",
        ),
        (
            "requirements.txt",
            format!("--index-url {index}/cu118\n{cu118}torch==2.5.1\n"),
            OLD,
            "ok",
            "",
        ),
        (
            "requirements.txt",
            "--extra-index-url ${TORCH_INDEX}\ntorch==2.5.1\n".to_owned(),
            OLD,
            "unknown",
            "",
        ),
        // Constraints: the build that they name, and each for its own Python.
        (
            "requirements.txt",
            "-c exact.txt\ntorch==2.5.1\n".to_owned(),
            OLD,
            "ok",
            "",
        ),
        (
            "requirements.txt",
            "-c by-python.txt\ntorch\n".to_owned(),
            "driver=470.256.02,gpu=A100,python=3.11",
            "fault",
            "driver-too-old",
        ),
        (
            "requirements.txt",
            "-c by-python.txt\ntorch\n".to_owned(),
            "driver=470.256.02,gpu=A100,python=3.8",
            "ok",
            "",
        ),
        // What is not read is not known.
        (
            "requirements.txt",
            "torch @ git+https://example.com/pytorch@v2.5.1\n".to_owned(),
            OLD,
            "unknown",
            "",
        ),
        (
            "requirements.txt",
            "vllm @ git+https://example.com/vllm@v0.8.5\n".to_owned(),
            OLD,
            "unknown",
            "",
        ),
        // Wheels by address, with a marker and with a login.
        (
            "requirements.txt",
            format!(
                "{index}/cu124/torch-2.5.1%2Bcu124-cp311-cp311-linux_x86_64.whl ; sys_platform == \"linux\"\n"
            ),
            OLD,
            "fault",
            "driver-too-old",
        ),
        (
            "requirements.txt",
            format!(
                "{index}/cu124/torch-2.5.1%2Bcu124-cp311-cp311-linux_x86_64.whl ; sys_platform == \"win32\"\n"
            ),
            OLD,
            "ok",
            "",
        ),
        (
            "requirements.txt",
            "https://user:pw@mirror.example/torch-2.5.1+cu124-cp311-cp311-linux_x86_64.whl\n"
                .to_owned(),
            OLD,
            "fault",
            "driver-too-old",
        ),
        // vLLM runs with the torch that is beside it, and has builds of its own.
        (
            "requirements.txt",
            "vllm==0.8.5.post1+cu118\n".to_owned(),
            OLD,
            "ok",
            "",
        ),
        (
            "requirements.txt",
            "vllm==0.8.5.post1\n".to_owned(),
            OLD,
            "fault",
            "driver-too-old",
        ),
        (
            "requirements.txt",
            "torch==2.7.0+cu128\nvllm==0.9.0\n".to_owned(),
            "driver=570.124.06,gpu=B200,glibc=2.31",
            "ok",
            "",
        ),
        (
            "requirements.txt",
            format!("--extra-index-url {index}/cu128\nvllm==0.9.0\n"),
            "driver=570.124.06,gpu=B200,glibc=2.31",
            "ok",
            "",
        ),
        (
            "requirements.txt",
            "vllm==0.9.0\n".to_owned(),
            "driver=570.124.06,gpu=B200,glibc=2.31",
            "fault",
            "framework-lacks-gpu-code",
        ),
        // Poetry's bounds of Python.
        ("poetry.lock", poetry("^3.11"), OLD, "ok", ""),
        ("poetry.lock", poetry("~3.11"), OLD, "ok", ""),
        ("poetry.lock", poetry(">=3.11"), OLD, "ok", ""),
        ("poetry.lock", poetry("^3.9"), OLD, "unknown", ""),
        // Conda: the build says which CUDA; where it is open, conda takes one that runs.
        (
            "environment.yml",
            conda("- tensorflow=2.17.0=cpu_py312*\n"),
            OLD,
            "warning",
            "framework-cpu-build",
        ),
        (
            "environment.yml",
            conda("- tensorflow=2.15.0=cuda118*\n"),
            OLD,
            "ok",
            "",
        ),
        (
            "environment.yml",
            conda("- tensorflow=2.18\n"),
            OLD,
            "ok",
            "",
        ),
        (
            "environment.yml",
            conda("- pytorch=2.5.1=cuda126*\n"),
            OLD,
            "fault",
            "driver-too-old",
        ),
        (
            "environment.yml",
            conda("- pytorch=2.5.1=*cuda126*\n"),
            OLD,
            "fault",
            "driver-too-old",
        ),
        (
            "environment.yml",
            conda("- pytorch=2.5.1=*cuda*\n"),
            OLD,
            "ok",
            "",
        ),
        (
            "environment.yml",
            conda("- pytorch[build=cuda126*]\n"),
            OLD,
            "fault",
            "driver-too-old",
        ),
        (
            "environment.yml",
            conda("- cuda-version>=12\n"),
            OLD,
            "fault",
            "driver-too-old",
        ),
        (
            "environment.yml",
            conda("- cuda-version>=11.2\n"),
            OLD,
            "ok",
            "",
        ),
        (
            "environment.yml",
            conda("- nvidia/label/cuda-12.4.0::cuda-toolkit\n"),
            OLD,
            "fault",
            "driver-too-old",
        ),
        (
            "environment.yml",
            conda(
                "- pip:\n  - --extra-index-url https://download.pytorch.org/whl/cu118\n  - torch==2.5.1\n",
            ),
            OLD,
            "ok",
            "",
        ),
        (
            "environment.yml",
            conda("- pip: [\"torch==2.5.1\"]\n"),
            OLD,
            "fault",
            "driver-too-old",
        ),
        (
            "environment.yml",
            conda("- pip:\n  - -r torch.txt\n"),
            OLD,
            "fault",
            "driver-too-old",
        ),
        // NVIDIA's libraries say in their name which CUDA they are for.
        (
            "requirements.txt",
            "nvidia-cublas-cu12==12.1.3.1\n".to_owned(),
            OLD,
            "fault",
            "driver-too-old",
        ),
        (
            "requirements.txt",
            "nvidia-cublas-cu11==11.11.3.6\n".to_owned(),
            OLD,
            "ok",
            "",
        ),
        // The Python of the target.
        (
            "requirements.txt",
            "torch==2.4.1\n".to_owned(),
            "driver=580.95.05,gpu=A100,python=3.13",
            "fault",
            "no-wheel-for-python",
        ),
        (
            "requirements.txt",
            "torch==2.5.1\n".to_owned(),
            "driver=580.95.05,gpu=A100,python=3.8",
            "fault",
            "no-wheel-for-python",
        ),
        (
            "requirements.txt",
            "torch==2.5.1\n".to_owned(),
            "driver=580.95.05,gpu=A100,python=3.13",
            "ok",
            "",
        ),
        (
            "requirements.txt",
            "vllm==0.8.5.post1\n".to_owned(),
            "driver=580.95.05,gpu=A100,python=3.13",
            "fault",
            "no-wheel-for-python",
        ),
        (
            "requirements.txt",
            "vllm==0.8.5.post1\n".to_owned(),
            "driver=580.95.05,gpu=A100,python=3.12",
            "ok",
            "",
        ),
        (
            "requirements.txt",
            "jax[cuda12]==0.5.3\n".to_owned(),
            "driver=580.95.05,gpu=A100,python=3.9",
            "fault",
            "no-wheel-for-python",
        ),
        // Release notes: no code for Maxwell.
        (
            "requirements.txt",
            "tensorflow[and-cuda]==2.18.0\n".to_owned(),
            "driver=570.124.06,gpu=M60,glibc=2.31",
            "fault",
            "framework-lacks-gpu-code",
        ),
        (
            "requirements.txt",
            "tensorflow[and-cuda]==2.18.0\n".to_owned(),
            "driver=570.124.06,gpu=P100,glibc=2.31",
            "ok",
            "",
        ),
        // GPUs as people write them.
        (
            "requirements.txt",
            "torch==2.7.1+cu128\n".to_owned(),
            "driver=580.95.05,gpu=RTX5090+A100 80GB",
            "ok",
            "",
        ),
    ] {
        expect(folder.path(), name, &text, target, verdict, id, "");
    }
}

#[test]
fn a_wheel_is_taken_by_its_tags() {
    const TARGET: &str = "driver=535.183.01,gpu=A100,glibc=2.31,python=3.12";
    let folder = tempfile::tempdir().unwrap();
    let script = "import sys, zipfile\nzipfile.ZipFile(sys.argv[1], 'w').writestr('w-1.dist-info/METADATA', 'Name: w\\nVersion: 1\\n')";
    for (tags, verdict, id) in [
        ("cp312-cp312-manylinux_2_28_x86_64", "ok", ""),
        ("cp38-abi3-manylinux2014_x86_64", "ok", ""),
        ("py3-none-any", "ok", ""),
        ("py2.py3-none-linux_x86_64", "ok", ""),
        (
            "cp312-cp312-manylinux_2_34_x86_64.manylinux_2_28_x86_64",
            "ok",
            "",
        ),
        (
            "cp312-cp312-manylinux_2_34_x86_64",
            "fault",
            "glibc-too-old",
        ),
        (
            "cp311-cp311-manylinux_2_28_x86_64",
            "fault",
            "no-wheel-for-python",
        ),
        ("cp311-none-linux_x86_64", "fault", "no-wheel-for-python"),
        ("cp313-abi3-linux_x86_64", "fault", "no-wheel-for-python"),
        (
            "cp312-cp312-manylinux_2_28_aarch64",
            "fault",
            "program-other-architecture",
        ),
        (
            "cp312-cp312-win_amd64",
            "fault",
            "program-other-architecture",
        ),
        (
            "cp312-cp312-musllinux_1_2_x86_64",
            "fault",
            "program-other-architecture",
        ),
    ] {
        let name = format!("w-1-{tags}.whl");
        let made = std::process::Command::new("python3")
            .args(["-c", script, &name])
            .current_dir(folder.path())
            .status()
            .unwrap();
        assert!(made.success());
        let found = json(folder.path(), &[&name, "--target", TARGET]);
        let verdict_of = &found["verdict"];
        assert_eq!(
            verdict_of["status"], verdict,
            "{tags}: {}",
            verdict_of["summary"]
        );
        if !id.is_empty() {
            assert_eq!(verdict_of["finding"], id, "{tags}");
        }
    }
}

#[test]
fn libraries_of_a_framework_are_no_fault_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let told = |pins: &str| {
        fs::write(folder.path().join("requirements.txt"), pins).unwrap();
        let target = "driver=470.256.02,gpu=A100,glibc=2.31";
        let found = json(folder.path(), &["requirements.txt", "--target", target]);
        let findings = found["findings"].as_array().unwrap().iter();
        findings.filter(|f| f["severity"] == "error").count()
    };
    assert_eq!(told("nvidia-cublas-cu12==12.1.3.1\ntorch==2.5.1\n"), 1);
    assert_eq!(told("nvidia-cublas==13.0.0.19\ntorch==2.5.1\n"), 2);
}

#[test]
fn the_first_fix_stands_in_the_head_whatever_the_target_is_called() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("requirements.txt"), "torch==2.10.0\n").unwrap();
    for target in ["driver=470,gpu=A100", "gpu-off-bus:driver=470,gpu=A100"] {
        let words = ["requirements.txt", "--target", target];
        let text = stdout(&preflight(folder.path(), &words));
        let second = text.lines().nth(1).unwrap();
        assert!(second.starts_with("fix: "), "{text}");
        let key = json(folder.path(), &words)["verdict"]["key"].to_string();
        assert!(
            key.starts_with("\"driver-too-old:requirements.txt:1"),
            "{key}"
        );
    }
}

#[test]
fn a_folder_is_judged_with_what_is_pinned_in_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("app/tests")).unwrap();
    fs::write(folder.path().join("app/requirements.txt"), "torch==2.5.1\n").unwrap();
    let status = |target: &str| {
        let found = json(folder.path(), &["app", "--target", target]);
        found["verdict"]["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status("driver=470.256.02,gpu=A100"), "fault");
    assert_eq!(status("driver=550.163.01,gpu=A100"), "ok");
    // Of tests and other projects in it nothing is said.
    fs::write(
        folder.path().join("app/requirements.txt"),
        "torch==2.0.1+cu118\n",
    )
    .unwrap();
    fs::write(
        folder.path().join("app/tests/requirements.txt"),
        "torch==2.5.1\n",
    )
    .unwrap();
    assert_eq!(status("driver=470.256.02,gpu=A100"), "ok");
}

#[test]
fn what_comes_along_meets_a_need() {
    let folder = tempfile::tempdir().unwrap();
    let server = fixtures().join("11.8/server-shared");
    let server = server.to_str().unwrap();
    let target = "driver=535.183.01,gpu=A100";
    let status = |words: &[&str]| {
        json(folder.path(), &[words, &["--target", target]].concat())["verdict"]["status"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(status(&[server]), "fault");
    // Any file of that name that comes along, as the loader takes it.
    let runtime = folder.path().join("libcudart.so.11.0");
    fs::write(
        &runtime,
        fs::read(fixtures().join("13.0/libdriver.so")).unwrap(),
    )
    .unwrap();
    assert_eq!(status(&[server, runtime.to_str().unwrap()]), "warning");
}

#[test]
fn a_plan_for_the_fleet_of_the_file() {
    let folder = repository(FLEET);
    let run = |words: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_gpudoctor"))
            .args(["matrix", "plan"])
            .args(words)
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let output = run(&[]);
    let said = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{said}{}", stderr(&output));
    assert!(said.starts_with("CUDA 11.8"), "{said}");
    assert!(
        said.contains("TORCH_CUDA_ARCH_LIST=\"6.0;9.0+PTX\""),
        "{said}"
    );
    let json: Value = serde_json::from_slice(&run(&["--format", "json"]).stdout).unwrap();
    assert_eq!(json["schema"], "gpudoctor.plan/1");
    assert_eq!(json["builds"][0]["what"], "CUDA");
    let none = run(&["--target", "driver=none"]);
    assert_eq!(none.status.code(), Some(1), "{}", stdout(&none));
}

/// A folder with something that says it is nvcc 12.4, for the front of `PATH`.
fn with_nvcc() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::tempdir().unwrap();
    let bin = place.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let nvcc = bin.join("nvcc");
    fs::write(&nvcc, "\0Cuda compilation tools, release 12.4, V12.4.131\0").unwrap();
    fs::set_permissions(&nvcc, fs::Permissions::from_mode(0o755)).unwrap();
    place
}

#[test]
fn what_builds_here_is_held_against_the_targets() {
    let toolkit = with_nvcc();
    let path = format!("{}:/usr/bin:/bin", toolkit.path().join("bin").display());
    let repository = tempfile::tempdir().unwrap();
    fs::write(repository.path().join("requirements.txt"), "torch==2.6.0\n").unwrap();
    let run = |list: &str, target: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_gpudoctor"))
            .env_clear()
            .env("PATH", &path)
            .env("TORCH_CUDA_ARCH_LIST", list)
            .current_dir(repository.path())
            .args(["preflight", "requirements.txt", "--format", "json"])
            .args(["--target", target])
            .output()
            .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let ids: Vec<String> = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|finding| finding["layer"] == "toolchain" && finding["severity"] != "note")
            .map(|finding| finding["id"].as_str().unwrap().to_owned())
            .collect();
        (output.status.code(), ids)
    };
    let fleet = "driver=550.54.14,gpu=A100+P100";
    // It builds for all of them: nothing is said.
    assert_eq!(run("6.0 8.0", fleet), (Some(0), vec![]));
    // A GPU is left out; PTX of the older architecture would serve the newer GPU, not the other way round.
    assert_eq!(
        run("8.0", fleet),
        (Some(0), vec!["architecture-not-asked-for".to_owned()])
    );
    assert_eq!(run("6.0+PTX", fleet), (Some(0), vec![]));
    // The compiler will stop, whatever the target.
    assert_eq!(
        run("6.0 8.0 12.0", fleet),
        (Some(0), vec!["architecture-unknown-to-nvcc".to_owned()])
    );
}
