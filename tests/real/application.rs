//! A program that was named (`--app`) and a process that runs (`--pid`), with NVIDIA's real runtimes and drivers.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{lab, parts};

/// A program that asks the runtime for its version.
const SOURCE: &str = "extern int cudaRuntimeGetVersion(int *);\n\
    int main(void) { int version; return cudaRuntimeGetVersion(&version); }\n";

/// Compiles it against the shared or the static runtime of an environment.
fn program(name: &str, prefix: &Path, is_static: bool, place: &Path) -> PathBuf {
    let shared = lab::libcudart(prefix);
    let folder = shared.parent().unwrap();
    let (source, program) = (place.join("program.c"), place.join(name));
    std::fs::write(&source, SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.arg(&source).arg("-o").arg(&program);
    if is_static {
        gcc.arg(folder.join("libcudart_static.a"));
        gcc.args(["-ldl", "-lpthread", "-lrt"]);
    } else {
        gcc.arg(&shared);
        gcc.arg(format!("-Wl,-rpath,{}", folder.display()));
    }
    assert!(gcc.status().unwrap().success());
    program
}

#[test]
fn a_program_is_judged_by_the_runtime_that_it_brings() {
    let Some(parts) = parts::all() else { return };
    if lab::has_driver() {
        return parts::left_out("this machine has a driver of its own");
    }
    let place = lab::place();
    let libraries = lab::driver_folder(&parts.drivers[1], place.path());
    for (version, too_old) in [("12.9.79", false), ("13.0.96", true)] {
        let runtime = parts.runtimes.iter().find(|(w, _)| w.version == version);
        let prefix = lab::environment(runtime.unwrap(), place.path());
        for is_static in [false, true] {
            let name = format!("program-{version}-{is_static}");
            let program = program(&name, &prefix, is_static, place.path());
            let mut run = lab::gpudoctor(place.path());
            run.env("LD_LIBRARY_PATH", &libraries);
            let report = lab::check(&mut run, &["--app", program.to_str().unwrap()]);
            if too_old {
                assert_eq!(report.errors(), ["driver-too-old"], "{name}");
                let title = lab::text(&report.finding("driver-too-old")["title"]);
                assert!(
                    title.contains(&name) && title.contains("CUDA 13.0"),
                    "{title}"
                );
            } else {
                assert_eq!(report.errors(), [""; 0], "{name}: {:#?}", report.findings());
            }
        }
    }
}

/// A Python that has loaded these libraries and waits.
struct Loaded(Child);

impl Loaded {
    fn new(libraries: &[PathBuf], library_path: &Path) -> Option<Self> {
        let script = "import ctypes, sys\n\
            for path in sys.argv[1:]: ctypes.CDLL(path)\n\
            print('loaded', flush=True)\n\
            sys.stdin.read()\n";
        let child = Command::new("python3")
            .args(["-c", script])
            .args(libraries)
            .env("LD_LIBRARY_PATH", library_path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            parts::not_run("there is no python3");
            return None;
        };
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "loaded\n");
        Some(Self(child))
    }

    fn check(&self, place: &Path) -> lab::Report {
        let pid = self.0.id().to_string();
        lab::check(&mut lab::gpudoctor(place), &["--pid", &pid])
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_judged_by_what_it_has_loaded() {
    let Some(parts) = parts::all() else { return };
    if lab::has_driver() {
        return parts::left_out("this machine has a driver of its own");
    }
    let place = lab::place();
    // Of the process, not of the caller: only there this driver is on the loader's path.
    let old = lab::driver_folder(&parts.drivers[0], place.path());
    let new = lab::driver_folder(&parts.drivers[2], place.path());
    let runtime = |version: &str| {
        let runtime = parts.runtimes.iter().find(|(w, _)| w.version == version);
        lab::libcudart(&lab::environment(runtime.unwrap(), place.path()))
    };
    let (twelve, thirteen) = (runtime("12.4.127"), runtime("13.0.96"));

    let Some(process) = Loaded::new(std::slice::from_ref(&twelve), &new) else {
        return;
    };
    let report = process.check(place.path());
    assert_eq!(report.errors(), [""; 0], "{:#?}", report.findings());
    let replaced = "process-library-replaced".to_owned();
    assert!(!report.alarms().contains(&replaced));
    // Replaced as a package manager does it: another file takes the name.
    let other = place.path().join("other");
    assert!(
        Command::new("cp")
            .args([&twelve, &other])
            .status()
            .unwrap()
            .success()
    );
    std::fs::rename(&other, &twelve).unwrap();
    let report = process.check(place.path());
    assert!(report.alarms().contains(&replaced), "{:?}", report.alarms());
    drop(process);

    let Some(process) = Loaded::new(std::slice::from_ref(&twelve), &old) else {
        return;
    };
    let report = process.check(place.path());
    assert_eq!(report.errors(), ["driver-too-old"]);
    drop(process);

    let Some(process) = Loaded::new(&[twelve, thirteen], &new) else {
        return;
    };
    let report = process.check(place.path());
    assert!(
        lab::text(&report.finding("process-two-runtimes")["title"]).contains("CUDA 12 and CUDA 13")
    );
    // 13 does not run on 550, and 12 does: some ways are broken.
    assert_eq!(report.errors(), [""; 0]);
    assert!(report.alarms().contains(&"driver-too-old".to_owned()));
}

#[test]
fn what_is_not_there_is_said_in_one_line() {
    let place = lab::place();
    for (options, says) in [
        (["--app", "nowhere"], "cannot read"),
        (["--pid", "4294967295"], "there is no process"),
    ] {
        let output = lab::gpudoctor(place.path()).args(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    }
}
