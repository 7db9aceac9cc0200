//! The program as it is called: help texts, README, wrong calls, hostile hosts, output that cannot be written.
//!
//! What a rule finds on which host is tested elsewhere; here it is that every call ends as the contract says, whatever
//! it is given. The trees are a few files under a temporary folder, read with `--root`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it starts the program and writes trees under a temporary folder"
)]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gpudoctor::{facts, report, rules};
use serde_json::Value;
use tempfile::TempDir;

/// What no report may pass on: a command substitution, a workflow command, "clear the screen", "write backwards".
const HOSTILE: &str = "$(id)\n::error::x\u{1b}[2J\u{202e}\u{9b}31m'\"`;";

/// The program with nothing of this process's environment.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpudoctor"));
    command.env_clear().env("PATH", "/usr/bin:/bin");
    command
}

fn run<A: AsRef<OsStr>>(args: &[A]) -> Output {
    program().args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("standard output is UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("standard error is UTF-8")
}

/// The call was wrong: one line that names what and why, nothing on standard output, exit code 2.
fn assert_refused(output: &Output, words: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(stdout(output), "", "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("gpudoctor: "), "{said}");
    assert!(said.ends_with('\n') && !has_control(&said), "{said:?}");
    for word in words {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
}

/// Whether a text has anything that a terminal would act on, line feeds aside.
fn has_control(text: &str) -> bool {
    text.chars()
        .any(|c| c != '\n' && (c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c)))
}

/// A machine's disk, a few files of it.
struct Disk {
    folder: TempDir,
}

impl Disk {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn with(self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Self {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// A host with one GPU.
    fn with_board() -> Self {
        let device = "sys/bus/pci/devices/0000:01:00.0";
        Self::new()
            .with(format!("{device}/vendor"), "0x10de\n")
            .with(format!("{device}/device"), "0x2684\n")
            .with(format!("{device}/class"), "0x030000\n")
    }

    /// A host with one GPU, and the driver's module for it loaded.
    fn with_gpu() -> Self {
        Self::with_board()
            .with(
                "etc/os-release",
                "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
            )
            .with("proc/sys/kernel/osrelease", "6.1.0-37-amd64\n")
            .with(
                "proc/devices",
                "Character devices:\n195 nvidia\n195 nvidiactl\n508 nvidia-uvm\n",
            )
            .with(
                "proc/modules",
                "nvidia_uvm 1 0 - Live 0x0 (POE)\nnvidia 1 1 nvidia_uvm, Live 0x0 (POE)\n",
            )
            .with("sys/module/nvidia/version", "550.163.01\n")
            .with("sys/module/nvidia/initstate", "live\n")
    }

    fn check(&self, args: &[&str]) -> Output {
        program()
            .args(["check", "--root"])
            .arg(self.path())
            .args(args)
            .output()
            .unwrap()
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.check(&["--format", "json"]).stdout).unwrap()
    }
}

#[test]
fn help_and_readme_say_what_the_program_does() {
    trycmd::TestCases::new()
        .env("COLUMNS", "80")
        .env("GITHUB_ACTIONS", "")
        .case("tests/cmd/*.md")
        .case("README.md");
}

#[test]
fn help_fits_a_terminal_of_80_columns() {
    for command in [
        "",
        "check",
        "snapshot",
        "demo",
        "schema",
        "explain",
        "inspect",
        "preflight",
        "gpus",
        "matrix",
        "matrix plan",
        "matrix cuda",
        "matrix driver",
        "matrix gpu",
        "matrix can",
    ] {
        let args: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let output = run(&args);
        let wide: Vec<String> = stdout(&output)
            .lines()
            .filter(|line| line.len() > 80)
            .map(str::to_owned)
            .collect();
        assert_eq!(wide, Vec::<String>::new(), "{command:?}");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn explain_knows_every_finding_and_nothing_else() {
    let list = run(&["explain", "--list"]);
    assert_eq!(list.status.code(), Some(0));
    let listed = stdout(&list);
    let ids: Vec<&str> = rules::all().map(|rule| rule.id).collect();
    let findings = listed.lines().take_while(|line| !line.is_empty()).count();
    assert_eq!(findings, ids.len());
    for id in ids {
        assert!(listed.contains(&format!(" {id} ")), "{id}");
        let page = run(&["explain", id]);
        assert_eq!(page.status.code(), Some(0));
        assert!(stdout(&page).starts_with(&format!("# {id}\n")));
    }
    let unknown = run(&["explain", "nothing-known"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stdout(&unknown).contains("nothing is known about `nothing-known`"));
    assert_eq!(stderr(&unknown), "");
    // A near miss is led on, and a hostile one is shown, not sent.
    let near = run(&["explain", "driver-too-new"]);
    assert!(stdout(&near).contains("driver-too-old"));
    let hostile = run(&["explain", HOSTILE]);
    assert!(!has_control(&stdout(&hostile)));
}

#[test]
fn a_wrong_call_is_refused_in_one_line() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["--frmo"], &["--frmo"]),
        (&["chekc"], &["chekc"]),
        (&["--timeout", "0"], &["--timeout", "1..=3600"]),
        (&["--timeout", "soon"], &["--timeout", "soon"]),
        (&["--format", "yaml"], &["--format", "text, markdown, json"]),
        (&["--fail-on", "note"], &["--fail-on", "unknown, never"]),
        (&["--color", "mauve"], &["--color"]),
        (&["--from"], &["--from"]),
        (&["--from", "a", "--root", "/"], &["--from", "--root"]),
        (
            &["--from", "a", "--python-env", "b"],
            &["--from", "--python-env"],
        ),
        (&["--static", "--probe"], &["--static", "--probe"]),
        (&["-q", "-v"], &["--quiet", "--verbose"]),
        (&["snapshot", "--from", "a"], &["--from"]),
        (&[HOSTILE], &["$(id)"]),
    ];
    for (args, words) in cases {
        assert_refused(&run(args), words);
    }
    // An argument that is no text.
    assert_refused(&run(&[OsStr::from_bytes(b"--root=\xff\xfe")]), &[]);
}

#[test]
fn an_input_that_cannot_be_read_is_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| -> String {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let snapshot = stdout(&run(&[
        "snapshot",
        "--root",
        folder.path().to_str().unwrap(),
    ]));
    let cut = snapshot.get(..snapshot.len() / 2).unwrap();
    let empty = file("empty.json", b"");
    let text = file("notes.txt", b"the GPU is gone\n");
    let other = file("other.json", br#"{"schema": "somebody.else/7"}"#);
    let without = file("without.json", b"{\"verdict\": 1}");
    let newer = file(
        "newer.json",
        snapshot
            .replace(facts::SCHEMA, "gpudoctor.facts/9")
            .as_bytes(),
    );
    let wrong_type = file(
        "wrong-type.json",
        format!(r#"{{"schema": "{}", "hardware": 3}}"#, facts::SCHEMA).as_bytes(),
    );
    let half = file("half.json", cut.as_bytes());
    let binary = file("binary.json", &[0x7f, b'E', b'L', b'F', 0xff, 0x00]);
    let dir = folder.path().display().to_string();
    for (args, words) in [
        (["--from", &empty], ["empty.json", "is empty"]),
        (["--from", &text], ["notes.txt", "no snapshot"]),
        (["--from", &other], ["other.json", "somebody.else/7"]),
        (["--from", &without], ["without.json", "no `schema`"]),
        (["--from", &newer], ["newer.json", "gpudoctor.facts/9"]),
        (["--from", &wrong_type], ["wrong-type.json", "line 1"]),
        (["--from", &half], ["half.json", "EOF"]),
        (["--from", &binary], ["binary.json", "no snapshot"]),
        (["--from", &dir], [&dir, "folder"]),
        (
            ["--from", "/nowhere/host.json"],
            ["/nowhere/host.json", "No such file"],
        ),
        (["--root", &empty], ["empty.json", "Not a directory"]),
        (["--root", "/nowhere"], ["/nowhere", "No such file"]),
        (
            ["--python-env", "/nowhere/.venv"],
            ["/nowhere/.venv", "no such folder"],
        ),
    ] {
        assert_refused(&run(&args), &words);
    }
    assert_refused(
        &run(&["check", "--root", dir.as_str(), "--python-env", "/opt/venv"]),
        &["/opt/venv", "in that root"],
    );
    // Root may read everything: then there is no such file.
    let secret = file("secret.json", snapshot.as_bytes());
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    if fs::read(&secret).is_err() {
        assert_refused(
            &run(&["--from", &secret]),
            &["secret.json", "Permission denied"],
        );
    }
    // A name that would write to the terminal is shown, not sent.
    let hostile = folder.path().join(HOSTILE).display().to_string();
    assert_refused(&run(&["--from", &hostile]), &["$(id)"]);
}

#[test]
fn a_snapshot_is_read_from_standard_input() {
    let disk = Disk::with_gpu();
    let snapshot = run(&["snapshot", "--root", disk.path().to_str().unwrap()]);
    let mut child = program()
        .args(["--from", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), &snapshot.stdout).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, disk.check(&[]).stdout);
}

#[test]
fn a_library_that_is_cut_off_is_named_and_nothing_panics() {
    let whole = fs::read("fixtures/elf/libexample.so.9").unwrap();
    for length in [
        0,
        1,
        4,
        16,
        63,
        64,
        65,
        120,
        whole.len() / 2,
        whole.len() - 1,
    ] {
        let disk = Disk::with_gpu().with(
            "usr/lib/x86_64-linux-gnu/libcuda.so.1",
            whole.get(..length).unwrap(),
        );
        let output = disk.check(&["--format", "json"]);
        assert_eq!(stderr(&output), "", "{length} bytes");
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{length} bytes"
        );
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        if length < whole.len() / 2 {
            let findings = report["findings"].to_string();
            assert!(
                findings.contains("/usr/lib/x86_64-linux-gnu/libcuda.so.1"),
                "{length} bytes: {findings}"
            );
            assert_eq!(report["verdict"]["layer"], "driver", "{length} bytes");
        }
    }
}

/// A host whose every string is somebody's attempt.
fn hostile_disk() -> Disk {
    let release = "6.1.0-$(reboot);x";
    let mut os = b"ID=debian\nVERSION_ID=12\nPRETTY_NAME=\"Debian \x1b[2J\xff\xfe ".to_vec();
    os.extend_from_slice("\u{202e}::error::\u{9b}31m\"\n".as_bytes());
    let long = format!(
        "kernel: NVRM: Xid (PCI:0000:01:00): 79, {}\u{1b}[2J\n",
        "y".repeat(10_000)
    );
    Disk::with_board()
        .with("proc/modules", "ext4 1 0 - Live 0x0\n")
        .with("proc/sys/kernel/osrelease", format!("{release}\n"))
        .with("etc/os-release", os)
        .with(
            format!("lib/modules/{HOSTILE}/updates/dkms/nvidia.ko"),
            "no module",
        )
        .with(format!("lib/modules/{release}/modules.dep"), "")
        .with(
            "var/lib/dkms/nvidia/550.163.01/source/dkms.conf",
            "PACKAGE_NAME=nvidia\n",
        )
        .with(
            format!("etc/modprobe.d/{HOSTILE}.conf"),
            "blacklist nvidia\u{1b}[2J\nblacklist nvidia\n",
        )
        .with(
            format!("etc/ld.so.conf.d/{}.conf", "z".repeat(200)),
            "/opt/\u{1b}[2J/lib\n",
        )
        .with(
            "var/log/kern.log",
            format!("{long}{}\n", long.trim_end().replace('y', "\u{202e}")),
        )
        .with("usr/lib/x86_64-linux-gnu/libcuda.so.1", "\u{1b}[2J")
}

fn assert_harmless(output: &Output, what: &str) {
    let text = stdout(output);
    assert_eq!(stderr(output), "", "{what}");
    assert!(matches!(output.status.code(), Some(0 | 1)), "{what}");
    assert!(!text.is_empty(), "{what}");
    assert!(!has_control(&text), "{what}: {text:?}");
    assert!(
        !text.lines().any(|line| line.trim_start().starts_with("::")),
        "{what}: {text}"
    );
}

#[test]
fn strings_of_a_hostile_host_are_shown_and_not_sent() {
    let disk = hostile_disk();
    for args in [&[] as &[&str], &["-v"], &["-q"], &["--no-redact", "-v"]] {
        assert_harmless(&disk.check(args), &format!("{args:?}"));
    }
    for line in stdout(&disk.check(&[])).lines() {
        assert!(line.len() < 1000, "a flood of {} bytes", line.len());
    }
    // JSON escapes control characters by its own rules; it has to stay JSON and of one shape.
    let output = disk.check(&["--format", "json"]);
    let text = stdout(&output);
    assert!(!text.chars().any(|c| c != '\n' && c < ' '), "{text}");
    let report = disk.json();
    assert_eq!(report["schema"], report::json::SCHEMA);
    let commands: Vec<&str> = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|finding| finding["fixes"].as_array().unwrap())
        .flat_map(|fix| fix["commands"].as_array().unwrap())
        .filter_map(Value::as_str)
        .collect();
    let quoted = "'6.1.0-$(reboot);x'";
    assert!(commands.iter().any(|c| c.contains(quoted)), "{commands:?}");
    for command in commands {
        // What a shell would act on stands between single quotes.
        let bare: String = command.split('\'').step_by(2).collect();
        assert!(!bare.contains(['$', '`', ';']), "{command}");
    }
}

#[test]
fn a_hostile_environment_is_shown_and_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = folder.path().join(HOSTILE.replace('/', "_"));
    fs::create_dir_all(libraries.join("lib/python3.12/site-packages/torch-2.0\u{1b}[2J.dist-info"))
        .unwrap();
    fs::write(libraries.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
    fs::write(libraries.join("libcuda.so.1"), "").unwrap();
    let mut devices = HOSTILE.as_bytes().to_vec();
    devices.extend_from_slice(b"\xff\xfe");
    devices.extend(std::iter::repeat_n(b'8', 10_000));
    for format in ["text", "json"] {
        let output = program()
            .args(["check", "--static", "--format", format])
            .env("LD_LIBRARY_PATH", &libraries)
            .env("VIRTUAL_ENV", &libraries)
            .env("CUDA_VISIBLE_DEVICES", OsStr::from_bytes(&devices))
            .env("SUDO_USER", HOSTILE)
            .current_dir(folder.path())
            .output()
            .unwrap();
        if format == "text" {
            assert_harmless(&output, format);
        } else {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["schema"], report::json::SCHEMA);
        }
    }
}

/// Names in a folder, so that what was left behind is seen.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_that_cannot_be_written_leaves_nothing_behind() {
    let disk = Disk::with_gpu();
    let root = disk.path().to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let old = folder.path().join("old.json");
    fs::write(&old, "yesterday's").unwrap();
    let to = |output: &str| run(&["snapshot", "--root", root, "-o", output]);
    assert_refused(&to(folder.path().to_str().unwrap()), &["is a folder"]);
    assert_refused(&to("/dev/full"), &["/dev/full", "No space left"]);
    assert_refused(&to("/proc/host.json"), &["/proc/host.json"]);
    assert_refused(&to("/nowhere/host.json"), &["/nowhere/host.json"]);
    // A disk that is full after the first few hundred bytes.
    let full = Command::new("/bin/sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 1; exec \"$@\"", "sh"])
        .args([
            env!("CARGO_BIN_EXE_gpudoctor"),
            "snapshot",
            "--root",
            root,
            "-o",
        ])
        .arg(&old)
        .output()
        .unwrap();
    assert_refused(&full, &["old.json", "File too large"]);
    assert_eq!(fs::read_to_string(&old).unwrap(), "yesterday's");
    assert_eq!(names(folder.path()), ["old.json"]);
    // And the same file where it can be written.
    let output = to(old.to_str().unwrap());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    assert_eq!(names(folder.path()), ["old.json"]);
    assert!(fs::read_to_string(&old).unwrap().contains(facts::SCHEMA));
}

#[test]
fn a_report_goes_to_several_places_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output = run(&[
        "demo",
        "--output",
        &format!("junit={}", file("report.xml")),
        "--output",
        &format!("json={}", file("report.json")),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("driver: "));
    let junit = fs::read_to_string(file("report.xml")).unwrap();
    assert!(
        junit.contains("<failure type=\"driver-too-old\""),
        "{junit}"
    );
    let json: Value =
        serde_json::from_str(&fs::read_to_string(file("report.json")).unwrap()).unwrap();
    assert_eq!(json["verdict"]["finding"], "driver-too-old");
    assert_eq!(names(folder.path()), ["report.json", "report.xml"]);
    for (wrong, words) in [
        ("report.xml", "junit=report.xml"),
        ("xml=report.xml", "`xml` is no format"),
        ("junit=", "junit=report.xml"),
    ] {
        assert_refused(&run(&["demo", "--output", wrong]), &[words]);
    }
    let nowhere = run(&["demo", "--output", "sarif=/nowhere/report.sarif"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(stderr(&nowhere).contains("/nowhere/report.sarif"));
    assert!(stdout(&nowhere).starts_with("driver: "), "nothing is lost");
}

#[test]
fn a_github_workflow_gets_annotations_and_a_summary_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let summary = folder.path().join("summary.md");
    let demo = |words: &[&str]| {
        program()
            .args(["demo", "driver-too-old"])
            .args(words)
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_STEP_SUMMARY", &summary)
            .output()
            .unwrap()
    };
    let log = stdout(&demo(&[]));
    assert!(log.starts_with("driver: "), "{log}");
    let commands: Vec<&str> = log.lines().filter(|line| line.starts_with("::")).collect();
    assert_eq!(commands.len(), 1, "{log}");
    assert!(commands[0].starts_with("::error title="), "{log}");
    let once = fs::read_to_string(&summary).unwrap();
    assert!(once.starts_with("### gpudoctor check: failed\n"), "{once}");
    // What another step has written stays, and a format that was asked for writes none.
    demo(&[]);
    demo(&["--format", "text"]);
    assert_eq!(fs::read_to_string(&summary).unwrap(), once.repeat(2));
}

#[test]
fn a_report_that_cannot_be_written_is_no_success() {
    let disk = Disk::with_gpu();
    for args in [vec!["check", "--root"], vec!["snapshot", "--root"]] {
        let output = program()
            .args(&args)
            .arg(disk.path())
            .stdout(fs::File::create("/dev/full").unwrap())
            .output()
            .unwrap();
        assert_refused(&output, &["No space left"]);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let disk = Disk::with_gpu();
    for args in [
        vec!["check", "--format", "json", "--root"],
        vec!["snapshot", "--root"],
    ] {
        let mut child = program()
            .args(&args)
            .arg(disk.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(stderr(&output), "", "{args:?}");
        // What was found counts all the same.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}");
    }
}

/// A text without its colours.
fn without_colour(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

#[test]
fn colour_only_repeats_what_the_words_say() {
    let disk = Disk::with_gpu();
    let plain = stdout(&disk.check(&[]));
    assert!(!plain.contains('\u{1b}'));
    let coloured = stdout(&disk.check(&["--color", "always"]));
    assert!(coloured.contains("\u{1b}["));
    assert_eq!(without_colour(&coloured), plain);
    assert_eq!(stdout(&disk.check(&["--color", "never"])), plain);
    let refused = program()
        .args(["check", "--root"])
        .arg(disk.path())
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    assert_eq!(stdout(&refused), plain);
    assert!(plain.is_ascii());
}

#[test]
fn quiet_says_nothing_where_nothing_is_wrong() {
    let bare = Disk::new().with("etc/os-release", "ID=debian\n");
    let output = bare.check(&["-q"]);
    assert_eq!(
        (stdout(&output).as_str(), output.status.code()),
        ("", Some(0))
    );
    let output = bare.check(&["-q", "--expect-gpu"]);
    assert!(!stdout(&output).is_empty());
    assert_eq!(output.status.code(), Some(1));
    let output = bare.check(&["--expect-gpu", "--fail-on", "never"]);
    assert_eq!(output.status.code(), Some(0));
}

/// A report without the time that its snapshot was taken.
fn timeless(output: &Output) -> String {
    let text = stdout(output);
    let taken_at = serde_json::from_str::<Value>(&text)
        .ok()
        .and_then(|report| report["taken_at"].as_str().map(str::to_owned));
    taken_at.map_or_else(|| text.clone(), |time| text.replace(&time, "TIME"))
}

#[test]
fn a_snapshot_gives_the_same_report_anywhere() {
    let disks = [Disk::new(), Disk::with_gpu(), hostile_disk()];
    for (index, disk) in disks.iter().enumerate() {
        let here = tempfile::tempdir().unwrap();
        let file: PathBuf = here.path().join("host.json");
        let written = program()
            .args(["snapshot", "--root"])
            .arg(disk.path())
            .arg("-o")
            .arg(&file)
            .output()
            .unwrap();
        assert_eq!(written.status.code(), Some(0), "{}", stderr(&written));
        for format in ["json", "text"] {
            let from = |home: &str, cwd: &str, lang: &str, zone: &str| {
                program()
                    .args(["check", "--format", format, "--from"])
                    .arg(&file)
                    .envs([
                        ("HOME", home),
                        ("LANG", lang),
                        ("LC_ALL", lang),
                        ("TZ", zone),
                    ])
                    .envs([("LD_LIBRARY_PATH", "/opt/x"), ("VIRTUAL_ENV", "/opt/y")])
                    .env("CUDA_VISIBLE_DEVICES", "7")
                    .current_dir(cwd)
                    .output()
                    .unwrap()
            };
            let one = from("/root", "/", "C", "UTC");
            let other = from("/home/someone", "/tmp", "tr_TR.UTF-8", "Asia/Kathmandu");
            assert_eq!(one.stdout, other.stdout, "disk {index}");
            assert_eq!(one.status, other.status, "disk {index}");
            let direct = disk.check(&["--format", format]);
            assert_eq!(timeless(&one), timeless(&direct), "disk {index}");
            assert_eq!(one.status, direct.status, "disk {index}");
            // A report is as good as its snapshot.
            let report = here.path().join("report.json");
            fs::write(&report, &one.stdout).unwrap();
            if format == "json" {
                let again = run(&["--format", "json", "--from", report.to_str().unwrap()]);
                assert_eq!(again.stdout, one.stdout, "disk {index}");
            }
        }
    }
}

#[test]
fn explain_takes_a_code_a_line_a_file_and_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("training.log");
    fs::write(&log, "step 1\nRuntimeError: CUDA error: out of memory\n").unwrap();
    let named = log.to_str().unwrap();
    for (args, first) in [
        (
            &["explain", "804"][..],
            "driver: a forward-compatibility libcuda",
        ),
        (
            &["explain", "xid", "79"],
            "hardware: the GPU fell off the bus",
        ),
        (
            &["explain", "CUDA_ERROR_NO_DEVICE"],
            "driver: the driver's library is loaded and sees no GPU",
        ),
        (
            &["explain", "GPU", "is", "lost"],
            "hardware: the GPU does not answer",
        ),
        (
            &["explain", named],
            "application: the GPU has not that much free memory",
        ),
        (&["explain", "layers"], "# layers"),
    ] {
        let output = run(args);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(
            stdout(&output).starts_with(first),
            "{args:?}: {}",
            stdout(&output)
        );
    }
    let piped = program()
        .args(["explain", "--format", "json", "-"])
        .stdin(fs::File::open(&log).unwrap())
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&piped.stdout).unwrap();
    assert_eq!(document["schema"], "gpudoctor.explanation/1");
    let found = &document["matches"][0];
    assert_eq!(found["id"], "cuda-2-out-of-memory");
    assert_eq!((&found["line"], &found["line_end"]), (&2.into(), &2.into()));
    assert_eq!(found["layers_at_fault"][0], "application");
    assert_eq!(found["causes"][0]["state"], "unknown");
    let markdown = run(&["explain", "--format", "markdown", "xid 79"]);
    assert!(stdout(&markdown).starts_with("**hardware: "));
    assert_refused(
        &run(&["explain", "no-such.log"]),
        &["no-such.log", "no such file"],
    );
    assert_refused(
        &run(&["explain", folder.path().to_str().unwrap()]),
        &["folder"],
    );
    let unknown = run(&["explain", "--format", "json", "cudnn", "9999"]);
    assert_eq!(unknown.status.code(), Some(1));
}

#[test]
fn what_a_log_says_stands_on_top_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("job.log");
    fs::write(&log, "\nRuntimeError: No CUDA GPUs are available\n").unwrap();
    let disk = Disk::new();
    let args = ["--log", log.to_str().unwrap()];
    let text = stdout(&disk.check(&args));
    assert!(
        text.contains("log, line 2: RuntimeError: No CUDA GPUs are available"),
        "{text}"
    );
    let json = stdout(&disk.check(&[&args[..], &["--format", "json"]].concat()));
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["symptoms"][0]["entry"], "torch-no-gpus-available");
    assert_eq!(report["symptoms"][0]["line"], 2);
}
