//! `gpudoctor explain` and `check --log` as they are called: several things at once, all formats, logs that cannot be read,
//! pipes, and what may not be passed on.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it starts the program and writes logs under a temporary folder"
)]

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const DRIVER_TOO_OLD: &str = "CUDA driver version is insufficient for CUDA runtime version";

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpudoctor"));
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command
}

fn explain<A: AsRef<OsStr>>(args: &[A]) -> Output {
    program().arg("explain").args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn json<A: AsRef<OsStr>>(args: &[A]) -> Value {
    let mut all: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    all.extend([OsStr::new("--format"), OsStr::new("json")]);
    let output = explain(&all);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["schema"], "gpudoctor.explanation/1");
    for key in ["matches", "pages", "no_error", "nothing"] {
        assert!(value[key].is_array(), "{key}: {value}");
    }
    value
}

/// The first lines of the answers: those that name what was asked, or a layer.
fn first_line(output: &Output) -> String {
    stdout(output).lines().next().unwrap_or_default().to_owned()
}

fn log(place: &TempDir, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = place.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn several_things_are_answered_one_after_the_other() {
    let place = TempDir::new().unwrap();
    let one = log(&place, "one.log", format!("a\n{DRIVER_TOO_OLD}\n"));
    let one = one.to_str().unwrap();
    for (args, asked) in [
        (&["803", "804"][..], &["803", "804"][..]),
        (&["xid", "13", "31", "79"], &["xid 13", "xid 31", "xid 79"]),
        (
            &["cudaErrorNoDevice", "xid 79"],
            &["cudaErrorNoDevice", "xid 79"],
        ),
        (&["804", one], &["804", one]),
    ] {
        let found = json(args);
        let mut told: Vec<&str> = Vec::new();
        for found in found["matches"].as_array().unwrap() {
            let asked = found["asked"].as_str().unwrap();
            if !told.contains(&asked) {
                told.push(asked);
            }
        }
        assert_eq!(told.len(), asked.len(), "{args:?}: {told:?}");
        let output = explain(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        let text = stdout(&output);
        assert!(text.starts_with(&format!("{}: ", asked[0])), "{text}");
        assert!(
            text.contains(&format!("\n{}: ", told.last().unwrap())),
            "{text}"
        );
    }
    // Words that belong together stay together.
    for args in [
        &["xid", "79"][..],
        &["CUDA", "error", "35"],
        &["no", "CUDA-capable", "device", "is", "detected"],
        &["compute", "capability"],
    ] {
        let found = json(args);
        let all = found["matches"].as_array().unwrap();
        assert!(all.iter().all(|m| m.get("asked").is_none()), "{args:?}");
        assert_eq!(
            all.len() + found["pages"].as_array().unwrap().len(),
            1,
            "{args:?}"
        );
    }
    let found = json(&["driver-too-old", "ptx"]);
    assert_eq!(found["pages"][0]["id"], "driver-too-old");
    assert_eq!(found["pages"][1]["kind"], "concept");
    // One of them unknown: the others are answered, and the exit status says so.
    let output = explain(&["804", "no_such_thing.log/../x y"]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
}

#[test]
fn every_format_holds_for_everything_that_can_be_asked() {
    let found = json(&["driver-too-old"]);
    let page = &found["pages"][0];
    assert_eq!(
        (&page["kind"], &page["severity"]),
        (&"finding".into(), &"error".into())
    );
    assert_eq!(page["layers"][0], "driver");
    assert!(page["text"].as_str().unwrap().contains("driver"));
    let found = json(&["layers"]);
    assert_eq!(found["pages"][0]["severity"], Value::Null);
    let found = json(&["cudaSuccess"]);
    assert!(
        found["no_error"][0]["text"]
            .as_str()
            .unwrap()
            .contains("CUDA")
    );
    let found = json(&["no such words at all"]);
    assert_eq!(found["nothing"][0]["asked"], "no such words at all");
    let found = json(&["--list"]);
    let findings = found["list"]["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|row| row["id"] == "driver-too-old" && row["layer"] == "driver")
    );
    assert!(found["list"]["errors"].as_array().unwrap().len() > 600);
    assert!(
        found["list"]["concepts"]
            .as_array()
            .unwrap()
            .contains(&"ptx".into())
    );
    for args in [
        &["driver-too-old"][..],
        &["layers"],
        &["--list"],
        &["804"],
        &["0"],
        &["no such words at all"],
    ] {
        let output = explain(&[args, &["--format", "markdown"]].concat());
        assert!(stdout(&output).len() > 20, "{args:?}");
        assert_eq!(stderr(&output), "", "{args:?}");
    }
}

#[test]
fn what_is_no_error_is_said_to_be_none() {
    for what in [
        "0",
        "cudaSuccess",
        "NVML_SUCCESS",
        "ncclSuccess",
        "cuda error 0",
        "exit code 0",
    ] {
        let output = explain(&[what]);
        assert_eq!(output.status.code(), Some(0), "{what}");
        assert!(
            first_line(&output).starts_with("no error: 0 says"),
            "{what}: {}",
            stdout(&output)
        );
    }
}

#[test]
fn the_answer_comes_first() {
    for (what, first) in [
        ("Error 2: out of memory", "application: "),
        ("Xid 79 GPU fell off bus", "hardware: "),
        ("code=209", "framework: "),
        ("(err 999)", "driver: "),
        (
            "rc=-110",
            "nothing is known about `rc=-110`: -110 is no known code of it; from Linux it would be: Connection timed out",
        ),
        (
            "nothing that is known",
            "nothing is known about `nothing that is known`",
        ),
    ] {
        let line = first_line(&explain(&[what]));
        assert!(line.starts_with(first), "{what}: {line}");
    }
}

#[test]
fn a_log_that_cannot_be_read_is_refused() {
    let place = TempDir::new().unwrap();
    let folder = place.path().join("folder.log");
    fs::create_dir(&folder).unwrap();
    let missing = place.path().join("missing.log");
    let socket = place.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for (path, why) in [
        (folder.as_path(), "it is a folder"),
        (&missing, "no such file"),
        (&socket, "it is a socket"),
        (Path::new("/dev/zero"), "it is a device"),
    ] {
        for output in [
            explain(&[path]),
            program()
                .args(["check", "--static", "--log"])
                .arg(path)
                .output()
                .unwrap(),
        ] {
            assert_eq!(output.status.code(), Some(2), "{path:?}");
            assert_eq!(stdout(&output), "");
            let said = stderr(&output);
            assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        }
    }
}

#[test]
fn a_pipe_with_a_name_is_read() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("pipe");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let child = program()
        .arg("explain")
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = fs::OpenOptions::new().write(true).open(&path).unwrap();
    writeln!(pipe, "before\n{DRIVER_TOO_OLD}").unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert!(stdout(&output).contains("line 2: "), "{}", stdout(&output));
}

fn check_log(path: &Path, format: &str) -> String {
    let output = program()
        .args([
            "check",
            "--static",
            "--fail-on",
            "never",
            "--format",
            format,
            "--log",
        ])
        .arg(path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn a_log_without_a_known_error_is_said_to_have_none() {
    let place = TempDir::new().unwrap();
    let empty = log(&place, "empty.log", "");
    let calm = log(&place, "calm.log", "step 1\nstep 2\n");
    for (path, said) in [
        (&empty, "it is empty"),
        (&calm, "2 lines read, no known error in them"),
    ] {
        for (format, label) in [("text", "log: "), ("markdown", "Log: ")] {
            let text = check_log(path, format);
            assert!(text.contains(&format!("\n{label}{said}\n")), "{text}");
        }
    }
    let report: Value = serde_json::from_str(&check_log(&calm, "json")).unwrap();
    assert_eq!(report["log"]["lines"], 2);
    assert_eq!(report["symptoms"], Value::Array(Vec::new()));
    assert_eq!(
        first_line(&explain(&[&empty])),
        format!("{} is empty", empty.display())
    );
    let said = stdout(&explain(&[&calm]));
    assert!(
        said.starts_with("no known error in ") && said.contains("2 lines read"),
        "{said}"
    );
}

#[test]
fn ten_thousand_repeats_are_a_screenful() {
    let place = TempDir::new().unwrap();
    let text = format!(
        "[rank0]: {DRIVER_TOO_OLD}\n[rank1]: CUDA error: no kernel image is available for execution on the device\n"
    );
    let path = log(&place, "long.log", text.repeat(10_000));
    let text = stdout(&explain(&[&path]));
    assert!(text.lines().count() <= 40, "{text}");
    assert!(
        text.contains("line 1, and 9999 more up to line 19999"),
        "{text}"
    );
    assert!(text.contains("also in it:"), "{text}");
    let text = check_log(&path, "text");
    assert!(
        text.contains("log, line 1, and 9999 more up to line 19999: "),
        "{text}"
    );
}

/// Who pastes the answer passes on no names: whatever the format, and in `check --log` as well.
#[test]
fn what_a_log_says_of_people_and_machines_is_not_passed_on() {
    let place = TempDir::new().unwrap();
    let line = format!(
        "Dec 01 10:00:00 node-secret python[7]: /home/jdoe/app.py: tcp://10.1.2.3:29500 GPU-8f9e1b2c-1111-2222-3333-444455556666 {DRIVER_TOO_OLD}"
    );
    let path = log(&place, "secret.log", format!("{line}\n"));
    for format in ["text", "markdown", "json"] {
        for text in [
            stdout(&explain(&[
                path.as_os_str(),
                "--format".as_ref(),
                format.as_ref(),
            ])),
            stdout(&explain(&[line.as_str(), "--format", format])),
            check_log(&path, format),
        ] {
            for secret in ["node-secret", "jdoe", "10.1.2.3", "8f9e1b2c"] {
                assert!(!text.contains(secret), "{format}: {secret}: {text}");
            }
        }
        let args = ["--format", format, "--no-redact"].map(OsStr::new);
        let kept = explain(&[&[path.as_os_str()], &args[..]].concat());
        assert!(stdout(&kept).contains("jdoe"), "{format}");
    }
}
