//! A machine without a GPU where none is expected: no alarm, whatever of CUDA lies about, and for whoever asks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use gpudoctor::facts::Facts;
use gpudoctor::report::json;

use crate::lab::{self, Report, text};
use crate::parts;

/// The user and group that own nothing.
const NOBODY: u32 = 65534;

/// Whether the machine that runs the tests is one without a GPU and without a driver; said where it is not.
fn is_bare() -> bool {
    let bus = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten();
    let mut vendors = bus
        .flatten()
        .filter_map(|device| fs::read_to_string(device.path().join("vendor")).ok());
    let bare = !lab::has_driver() && !vendors.any(|vendor| vendor.trim() == "0x10de");
    if !bare {
        parts::left_out("this machine has a GPU or a driver of its own");
    }
    bare
}

/// Exit code 0, and nothing above note.
fn is_quiet(report: &Report, what: &str) {
    assert_eq!(report.alarms(), [""; 0], "{what}: {:#?}", report.findings());
    assert_eq!(report.code, Some(0), "{what}");
    assert_eq!(report.verdict(), ("ok", ""), "{what}");
}

#[test]
fn a_bare_machine() {
    if !is_bare() {
        return;
    }
    let place = lab::place();
    let report = lab::check(&mut lab::gpudoctor(place.path()), &[]);
    is_quiet(&report, "bare");
    assert_eq!(report.json["schema"], json::SCHEMA);
    // A kernel without loadable modules has no list of them: that is no driver, and nothing unknown.
    if !Path::new("/proc/modules").exists() {
        let facts: Facts = serde_json::from_value(report.json["facts"].clone()).unwrap();
        assert!(facts.driver.modules.is_absent());
        assert_eq!(facts.driver.module_loaded(), Some(false));
    }
    let root = place.path().join("root");
    fs::create_dir_all(root.join("proc")).unwrap();
    let empty = lab::check(
        &mut lab::gpudoctor(place.path()),
        &["--root", root.to_str().unwrap()],
    );
    assert_eq!(empty.alarms(), [""; 0], "{:#?}", empty.findings());
    assert_eq!(empty.code, Some(0));
}

#[test]
fn cuda_wheels_in_the_active_environment() {
    if !is_bare() {
        return;
    }
    let Some(parts) = parts::all() else { return };
    let place = lab::place();
    for runtime in &parts.runtimes {
        let prefix = lab::environment(runtime, place.path());
        let mut run = lab::gpudoctor(place.path());
        let report = lab::check(run.env("VIRTUAL_ENV", &prefix), &[]);
        is_quiet(&report, runtime.0.version);
        assert_eq!(report.json["examined"]["kind"], "environment");
    }
}

#[test]
fn an_ordinary_user() {
    if !is_bare() {
        return;
    }
    let place = lab::place();
    if !lab::is_root() {
        return is_quiet(&lab::check(&mut lab::gpudoctor(place.path()), &[]), "user");
    }
    // Where the tests were built only root may be able to go.
    let program = place.path().join("gpudoctor");
    // Copied by another process: were it open for writing here, a child that another test forks meanwhile would hold it
    // open, and starting it fails with ETXTBSY.
    let copied = Command::new("cp").arg(lab::PROGRAM).arg(&program).status();
    assert!(copied.unwrap().success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut run = Command::new(&program);
    run.env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir(place.path())
        .uid(NOBODY)
        .gid(NOBODY);
    let report = lab::check(&mut run, &[]);
    is_quiet(&report, "nobody");
    let facts: Facts = serde_json::from_value(report.json["facts"].clone()).unwrap();
    assert_eq!(facts.scope.as_root.value(), Some(&false));
}

#[test]
fn where_one_is_demanded_its_absence_is_the_hardwares_fault() {
    if !is_bare() {
        return;
    }
    let place = lab::place();
    let report = lab::check(&mut lab::gpudoctor(place.path()), &["--expect-gpu"]);
    assert_eq!(report.errors(), ["gpu-absent"]);
    assert_eq!(report.verdict(), ("fault", "hardware"));
    assert_eq!(report.code, Some(1));
}

/// A /dev in which nothing but a control device is left behind; as a device and as the regular file that some leave.
const LONE_NVIDIACTL: &str = r#"
mount -t tmpfs -o mode=755 gpudoctor-test /dev
mknod -m 666 /dev/null c 1 3
case "$1" in
device) mknod -m 666 /dev/nvidiactl c 195 255 ;;
file) : > /dev/nvidiactl ;;
esac
shift
exec "$@"
"#;

#[test]
fn a_lone_control_device() {
    if !is_bare() {
        return;
    }
    let place = lab::place();
    for kind in ["device", "file"] {
        let Some(mut run) = lab::with_own_mounts(LONE_NVIDIACTL) else {
            return;
        };
        run.args([kind, lab::PROGRAM])
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", place.path().join("home"));
        let report = lab::check(&mut run, &[]);
        is_quiet(&report, kind);
        let nodes = report.json["facts"]["driver"]["nodes"].to_string();
        assert!(nodes.contains("/dev/nvidiactl"), "{nodes}");
        let asked = text(&report.json["facts"]["scope"]["calls"]);
        assert_eq!(asked, "no-driver", "nobody is there to be asked");
    }
}
