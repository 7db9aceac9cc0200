//! The one rule under it all, on real libraries: three drivers against seven runtimes, and the runtime itself is the judge.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use crate::lab::{self, Report, text};
use crate::parts;

/// Loads a libcudart beside the libcuda that the loader finds, and prints what cudaGetDeviceCount answers. As an ordinary
/// user without helpers, since cuInit as root makes device nodes.
const JUDGE: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
print(ctypes.CDLL(sys.argv[1]).cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))
";
/// cudaErrorInsufficientDriver.
const TOO_OLD: i32 = 35;
/// cudaErrorNoDevice.
const NO_DEVICE: i32 = 100;

/// The least driver for a runtime's major version, and which of the three branches has it: NVIDIA's release notes, and as
/// recorded from these very libraries.
fn expected(runtime: &str) -> (&'static str, &'static [u32]) {
    match runtime.split_once('.').unwrap().0 {
        "11" => ("450.80.02", &[470, 535, 550]),
        "12" => ("525.60.13", &[535, 550]),
        "13" => ("580.65.06", &[]),
        major => panic!("no expectation for CUDA {major}"),
    }
}

/// What the real runtime says.
fn judge(libcudart: &Path, libraries: &Path) -> i32 {
    // The interpreter itself: what is called python3 may be a script that takes longer than the question.
    static PYTHON: OnceLock<String> = OnceLock::new();
    let python = PYTHON.get_or_init(|| {
        let output = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable)"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    });
    let output = Command::new(python)
        .args(["-c", JUDGE])
        .arg(libcudart)
        .env("LD_LIBRARY_PATH", libraries)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().unwrap_or_else(|_| {
        let why = String::from_utf8_lossy(&output.stderr);
        panic!("{}: {said}{why}", libcudart.display())
    })
}

#[test]
fn too_old_exactly_where_the_real_runtime_says_so() {
    let Some(parts) = parts::all() else { return };
    if lab::has_driver() {
        return parts::left_out("this machine has a driver of its own");
    }
    let place = lab::place();
    let environments: Vec<_> = parts
        .runtimes
        .iter()
        .map(|runtime| lab::environment(runtime, place.path()))
        .collect();
    for driver in &parts.drivers {
        let libraries = lab::driver_folder(driver, place.path());
        for ((wheel, _), prefix) in parts.runtimes.iter().zip(&environments) {
            let cell = format!("{} on {}", wheel.version, driver.version);
            let libcudart = lab::libcudart(prefix);
            let (minimum, fits) = expected(wheel.version);
            let code = judge(&libcudart, &libraries);
            let recorded = if fits.contains(&driver.branch) {
                NO_DEVICE
            } else {
                TOO_OLD
            };
            assert_eq!(code, recorded, "{cell}");
            for by_variable in [false, true] {
                let mut run = lab::gpudoctor(place.path());
                run.env("LD_LIBRARY_PATH", &libraries);
                let report = if by_variable {
                    lab::check(run.env("VIRTUAL_ENV", prefix), &[])
                } else {
                    lab::check(&mut run, &["--python-env", prefix.to_str().unwrap()])
                };
                if code == TOO_OLD {
                    is_too_old(&report, &cell, &driver.version, wheel.version, minimum);
                } else {
                    assert_eq!(report.errors(), [""; 0], "{cell}: {:#?}", report.findings());
                    assert_eq!(report.code, Some(0), "{cell}");
                }
            }
        }
    }
}

/// The one error: which driver, which runtime, what is needed, and both ways out.
fn is_too_old(report: &Report, cell: &str, driver: &str, runtime: &str, minimum: &str) {
    assert_eq!(report.errors(), ["driver-too-old"], "{cell}");
    assert_eq!(report.verdict(), ("fault", "driver"), "{cell}");
    assert_eq!(report.code, Some(1), "{cell}");
    let finding = report.finding("driver-too-old");
    let title = text(&finding["title"]);
    let cuda = runtime.rsplit_once('.').unwrap().0;
    for named in [
        driver,
        &format!("CUDA {cuda} "),
        &format!("needs {minimum} or newer"),
    ] {
        assert!(title.contains(named), "{cell}: {title}");
    }
    let fixes: Vec<_> = finding["fixes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fix| (text(&fix["layer"]), text(&fix["summary"])))
        .collect();
    let [(upgraded, upgrade), (rebuilt, older)] = fixes[..] else {
        panic!("{cell}: {fixes:?}")
    };
    assert_eq!((upgraded, rebuilt), ("driver", "framework"), "{cell}");
    assert!(upgrade.contains(minimum), "{cell}: {upgrade}");
    assert!(
        older.starts_with("take ") && older.contains("for CUDA"),
        "{cell}: {older}"
    );
}
