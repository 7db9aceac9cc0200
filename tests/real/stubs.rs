//! Stand-ins for libcuda that hang, crash, end the process and print, through the whole program: a finding names the
//! call, the run comes back with exit code 1, and standard output is one JSON document all the same.

use std::path::Path;
use std::process::Command;

use crate::lab::{self, text};

/// Compiles the stand-in (by the C compiler that linking Rust needs anyway) under the name that programs open.
fn stub(folder: &Path) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut words = compiler.split_whitespace();
    let status = Command::new(words.next().unwrap())
        .args(words)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stubs/cuda.c"))
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn a_driver_that_misbehaves_is_named_with_the_call() {
    let place = lab::place();
    let folder = place.path().join("stub");
    std::fs::create_dir(&folder).unwrap();
    stub(&folder);
    // Whatever else runs here: only what hangs is to meet the deadline.
    let (soon, ample) = ("1", "60");
    for (broken, timeout, finding, call) in [
        (
            "hang-version",
            soon,
            "driver-library-hangs",
            "cuDriverGetVersion",
        ),
        ("hang-init", soon, "driver-library-hangs", "cuInit"),
        ("crash-load", ample, "driver-library-crashes", "dlopen"),
        ("crash-init", ample, "driver-library-crashes", "cuInit"),
        ("exit-load", ample, "driver-library-exits", "dlopen"),
        ("exit-init", ample, "driver-library-exits", "cuInit"),
        (
            "print",
            ample,
            "driver-library-prints",
            "cuDriverGetVersion",
        ),
    ] {
        let mut run = lab::gpudoctor(place.path());
        run.env("LD_LIBRARY_PATH", &folder).env("STUB", broken);
        let report = lab::check(&mut run, &["--probe", "--timeout", timeout]);
        assert_eq!(report.code, Some(1), "{broken}");
        assert_eq!(report.verdict(), ("fault", "driver"), "{broken}");
        assert_eq!(report.json["verdict"]["finding"], finding, "{broken}");
        let found = report.finding(finding);
        let title = text(&found["title"]);
        assert!(title.ends_with(&format!(" in {call}")), "{broken}: {title}");
        let evidence = found["evidence"].as_array().unwrap();
        let named = evidence
            .iter()
            .any(|e| e["what"] == "call" && e["value"] == call);
        assert!(named, "{broken}: {evidence:?}");
    }
}

#[test]
fn one_that_works_is_no_fault() {
    let place = lab::place();
    let folder = place.path().join("stub");
    std::fs::create_dir(&folder).unwrap();
    stub(&folder);
    let mut run = lab::gpudoctor(place.path());
    run.env("LD_LIBRARY_PATH", &folder);
    let report = lab::check(&mut run, &["--probe"]);
    assert_eq!(report.errors(), [""; 0], "{:#?}", report.findings());
    assert_eq!(report.code, Some(0));
}
