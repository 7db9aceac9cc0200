//! The host is not changed: the program as root, with NVIDIA's real libraries and their init calls, under strace. No system
//! call that changes anything may succeed, and /dev is as it was. In the live /dev, and in one of its own with a control
//! device of the wrong mode, which these libraries would put right.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab;
use crate::parts::{self, Driver};

/// Lists /dev before and after a command. Terminals are left out: whoever writes to one changes its time.
const BEFORE_AND_AFTER: &str = r#"
list() {
    find /dev -path /dev/pts -prune -o -path /dev/shm -prune -o \
        -exec stat -c '%n mode %f owner %u:%g device %t:%T changed %y' {} + |
        grep -v '^/dev/\(tty\|console\|ptmx\)' | LC_ALL=C sort
}
case "$1" in
own)
    mount -t tmpfs -o mode=755 gpudoctor-test /dev
    mkdir -m 1777 /dev/shm
    mknod -m 666 /dev/null c 1 3
    : > /dev/nvidiactl
    chmod 600 /dev/nvidiactl
    touch -d '2001-02-03 04:05:06' /dev/nvidiactl /dev
    ;;
esac
lists="$2"
shift 2
list > "$lists.before"
"$@"
list > "$lists.after"
"#;

/// The classes of system calls that can change something, by strace's names.
const TRACED: &str = "trace=%file,%desc,%network,%process,mount_setattr,init_module,finit_module,delete_module,unshare";
/// What may not succeed anywhere.
const CHANGES: &[&str] = &[
    "mknod",
    "mknodat",
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "mkdirat",
    "symlink",
    "symlinkat",
    "link",
    "linkat",
    "truncate",
    "utime",
    "utimes",
    "utimensat",
    "futimesat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "removexattr",
    "init_module",
    "finit_module",
    "delete_module",
    "connect",
    "bind",
];

/// What one thread did.
#[derive(Debug)]
struct Trace {
    thread: String,
    lines: Vec<String>,
}

/// A system call that came back: its name, its arguments as strace writes them, its result.
fn call(line: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    Some((name, arguments, result))
}

/// The texts in quotes among the arguments: paths.
fn quoted(arguments: &str) -> Vec<&str> {
    arguments.split('"').skip(1).step_by(2).collect()
}

/// What the program may do: where it writes, and whether this is a child that confines itself.
struct Leave<'a> {
    output: &'a str,
    confined: bool,
}

/// What a line of a trace shows that may not be; `None` where all is well.
fn offence(line: &str, leave: &Leave<'_>) -> Option<String> {
    let (name, arguments, result) = call(line)?;
    if result.starts_with("-1 ") || result.starts_with('?') {
        return None;
    }
    let paths = quoted(arguments);
    let path = paths.first().copied().unwrap_or_default();
    let allowed = match name {
        "open" | "openat" | "openat2" | "creat" => {
            let writes = ["O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"]
                .iter()
                .any(|flag| arguments.contains(flag))
                || name == "creat";
            !writes || may_write(path, leave)
        }
        // The file that was asked for is written beside its place first.
        "rename" | "renameat" | "renameat2" => {
            path.starts_with(leave.output) && paths.last() == Some(&leave.output)
        }
        "execve" | "execveat" => Path::new(path) == Path::new(lab::PROGRAM),
        "socket" => arguments.starts_with("AF_UNIX"),
        "mount" | "mount_setattr" | "umount2" | "move_mount" => leave.confined,
        name => !CHANGES.contains(&name),
    };
    (!allowed).then(|| line.to_owned())
}

/// Whether something may be opened for writing at all.
fn may_write(path: &str, leave: &Leave<'_>) -> bool {
    let is_comm = path
        .strip_prefix("/proc/self/task/")
        .and_then(|rest| rest.strip_suffix("/comm"))
        .is_some_and(|thread| thread.bytes().all(|b| b.is_ascii_digit()));
    // A confined child has a /dev/shm of its own, and nodes are opened to see whether they can be.
    path == "/dev/null"
        || is_comm
        || path.starts_with(leave.output)
        || leave.confined && (path.starts_with("/dev/nvidia") || path.starts_with("/dev/shm/"))
}

#[test]
fn what_is_an_offence() {
    let parent = Leave {
        output: "/tmp/x/out",
        confined: false,
    };
    let child = Leave {
        output: "/tmp/x/out",
        confined: true,
    };
    for (line, of_parent, of_child) in [
        (
            r#"openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3"#,
            false,
            false,
        ),
        (r#"openat(AT_FDCWD, "/etc/passwd", O_RDWR) = 3"#, true, true),
        (
            r#"openat(AT_FDCWD, "/etc/passwd", O_RDWR) = -1 EACCES (Permission denied)"#,
            false,
            false,
        ),
        (
            r#"openat(AT_FDCWD, "/dev/nvidiactl", O_RDWR) = 3"#,
            true,
            false,
        ),
        (
            r#"openat(AT_FDCWD, "/tmp/x/out.12.tmp", O_WRONLY|O_CREAT, 0666) = 3"#,
            false,
            false,
        ),
        (
            r#"openat(AT_FDCWD, "/proc/self/task/12/comm", O_WRONLY|O_CREAT) = 3"#,
            false,
            false,
        ),
        (
            r#"openat(AT_FDCWD, "/proc/self/task/../../x/comm", O_WRONLY) = 3"#,
            true,
            true,
        ),
        (
            r#"rename("/tmp/x/out.12.tmp", "/tmp/x/out") = 0"#,
            false,
            false,
        ),
        (r#"rename("/tmp/x/out", "/tmp/y") = 0"#, true, true),
        (
            r#"mknodat(AT_FDCWD, "/dev/nvidiactl", S_IFCHR|0666, makedev(0xc3, 0xff)) = 0"#,
            true,
            true,
        ),
        (
            r#"mknodat(AT_FDCWD, "/dev/nvidiactl", S_IFCHR|0666, makedev(0xc3, 0xff)) = -1 EROFS (x)"#,
            false,
            false,
        ),
        (
            r#"fchmodat(AT_FDCWD, "/dev/nvidiactl", 0666) = 0"#,
            true,
            true,
        ),
        (
            r#"connect(8, {sa_family=AF_UNIX, sun_path="/tmp/x"}, 26) = 0"#,
            true,
            true,
        ),
        ("socket(AF_INET, SOCK_STREAM, IPPROTO_IP) = 3", true, true),
        (
            "socketpair(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0, [3, 4]) = 0",
            false,
            false,
        ),
        (
            r#"mount("/dev", "/dev", NULL, MS_BIND|MS_REC, NULL) = 0"#,
            true,
            false,
        ),
        (
            r#"execve("/usr/bin/nvidia-modprobe", ["nvidia-modprobe"], 0x7f /* 3 vars */) = 0"#,
            true,
            true,
        ),
        (r#"finit_module(3, "", 0) = 0"#, true, true),
    ] {
        assert_eq!(offence(line, &parent).is_some(), of_parent, "{line}");
        assert_eq!(offence(line, &child).is_some(), of_child, "{line}");
    }
}

/// The traces of a run, one a thread: `PREFIX.THREAD`.
fn traces(folder: &Path) -> Vec<Trace> {
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .map(|file| Trace {
            thread: file.extension().unwrap().to_str().unwrap().to_owned(),
            // A path need not be text.
            lines: String::from_utf8_lossy(&fs::read(&file).unwrap())
                .lines()
                .map(str::to_owned)
                .collect(),
        })
        .collect()
}

/// The threads of children that confine themselves: those that started as such, and those that they started.
fn confined(traces: &[Trace]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        for trace in traces {
            let is_child =
                |line: &String| line.starts_with("execve(") && line.contains("\"__vendor-child\"");
            if trace.lines.iter().any(is_child) {
                found.insert(trace.thread.clone());
            }
            if found.contains(&trace.thread) {
                let calls = trace.lines.iter().filter_map(|line| call(line));
                let started =
                    calls.filter(|(name, ..)| name.starts_with("clone") || name.ends_with("fork"));
                found.extend(started.map(|(_, _, result)| result.to_owned()));
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// Runs the program as root with a driver's libraries and a runtime, and holds what it did against what it may.
fn changes_nothing(mut shell: Command, dev: &str, driver: &Driver, prefix: &Path, place: &Path) {
    let what = format!("{} in the {dev} /dev", driver.version);
    let of_run = place.join(format!("{dev}-{}", driver.branch));
    let (listed, traced, output) = (
        of_run.join("dev"),
        of_run.join("traces"),
        of_run.join("out"),
    );
    fs::create_dir_all(&traced).unwrap();
    let libraries = place.join(format!("driver-{}", driver.branch));
    let ran = shell
        .arg(dev)
        .arg(&listed)
        .args(["strace", "-ff", "-qq", "-s", "4096", "-e", TRACED, "-o"])
        .arg(traced.join("thread"))
        .arg(lab::PROGRAM)
        .args(["snapshot", "--probe", "--python-env"])
        .arg(prefix)
        .arg("-o")
        .arg(&output)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", place.join("home"))
        .env("LD_LIBRARY_PATH", &libraries)
        .current_dir(place.join("home"))
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{what}: {}",
        String::from_utf8_lossy(&ran.stderr)
    );

    let traces = traces(&traced);
    let confined = confined(&traces);
    let output_text = output.to_str().unwrap();
    for trace in &traces {
        let leave = Leave {
            output: output_text,
            confined: confined.contains(&trace.thread),
        };
        let offences: Vec<String> = trace
            .lines
            .iter()
            .filter_map(|l| offence(l, &leave))
            .collect();
        assert_eq!(offences, [""; 0], "{what}");
        // Nothing is mounted before the namespace is the child's own.
        let calls = trace.lines.iter().filter_map(|line| call(line));
        let first = calls
            .map(|(name, ..)| name)
            .find(|n| ["mount", "unshare"].contains(n));
        assert_ne!(first, Some("mount"), "{what}");
    }

    // The init calls were made, so the libraries had their chance.
    let facts: gpudoctor::facts::Facts =
        serde_json::from_slice(&fs::read(&output).unwrap()).unwrap();
    let answers = facts.vendor.libcuda.value().unwrap();
    assert!(answers.code("cuInit").is_some(), "{what}: {answers:?}");
    assert!(
        traces
            .iter()
            .any(|t| t.lines.iter().any(|l| l.contains("/dev/nvidiactl"))),
        "{what}"
    );

    let list = |when: &str| fs::read_to_string(listed.with_extension(when)).unwrap();
    assert_eq!(list("before"), list("after"), "{what}");
    assert!(list("before").contains("/dev/null mode "), "{what}");
}

/// Whether the system calls of a process can be watched here.
fn can_trace() -> bool {
    let tried = Command::new("strace")
        .args(["-qq", "-e", "trace=none", "true"])
        .output();
    let can = tried.is_ok_and(|output| output.status.success());
    if !can {
        parts::not_run("strace is not installed, or may not trace");
    }
    can
}

#[test]
fn by_root_with_the_real_libraries() {
    if !lab::is_root() {
        return parts::left_out("only root could change the host");
    }
    let Some(parts) = parts::all() else { return };
    if lab::has_driver() {
        return parts::left_out("this machine has a driver of its own");
    }
    if !can_trace() {
        return;
    }
    let place = lab::place();
    // The oldest runtime initialises the driver at the first question, the newest of branch 12 does not.
    let prefixes: Vec<PathBuf> = [0, 3]
        .map(|i| lab::environment(&parts.runtimes[i], place.path()))
        .into();
    for (driver, prefix) in parts.drivers.iter().zip(prefixes.iter().cycle()) {
        lab::driver_folder(driver, place.path());
        let mut live = Command::new("sh");
        live.args(["-eu", "-c", BEFORE_AND_AFTER, "sh"]);
        changes_nothing(live, "live", driver, prefix, place.path());
        if let Some(own) = lab::with_own_mounts(BEFORE_AND_AFTER) {
            changes_nothing(own, "own", driver, prefix, place.path());
        }
    }
}

/// The test of the test: the same libraries, asked without confinement in a /dev of their own, do change it.
#[test]
fn unconfined_the_real_libraries_do_change_it() {
    if !lab::is_root() {
        return parts::left_out("only root could change the host");
    }
    let Some(parts) = parts::all() else { return };
    if lab::has_driver() || Path::new("/usr/bin/nvidia-modprobe").exists() {
        return parts::left_out("NVIDIA's own helper is installed here, and would be run");
    }
    let place = lab::place();
    for driver in &parts.drivers {
        let Some(mut shell) = lab::with_own_mounts(BEFORE_AND_AFTER) else {
            return;
        };
        let listed = place.path().join(format!("dev-{}", driver.branch));
        let ran = shell
            .arg("own")
            .arg(&listed)
            .args([
                "python3",
                "-c",
                "import ctypes, sys; ctypes.CDLL(sys.argv[1]).cuInit(0)",
            ])
            .arg(&driver.libcuda)
            .output()
            .unwrap();
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        let list = |when: &str| fs::read_to_string(listed.with_extension(when)).unwrap();
        assert_ne!(list("before"), list("after"), "{}", driver.version);
    }
}
