//! `explain --here` and `check --log`: which of the possible causes it is on a described host.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code: what is not as expected has to stop the test"
)]

mod support;

use gpudoctor::explain::{self, Asked, Explanation, Here, State};
use support::diagnosed::{Diagnosed, all, matrix};

/// What a question or line is about.
fn explained(question: &str) -> Explanation {
    if let Asked::Entries(entries) = explain::ask(question) {
        let matches = entries
            .into_iter()
            .filter_map(|(entry, code)| explain::of_entry(entry, code))
            .collect();
        return Explanation { matches };
    }
    explain::of_scan(&explain::scan(question.as_bytes()).unwrap(), matrix())
}

fn host(case: &str) -> &'static Diagnosed {
    all()
        .iter()
        .find(|host| host.host.case == case)
        .unwrap_or_else(|| panic!("no host {case}"))
}

/// A sick host, and what its user has in the hand.
const SICK: &[(&str, &str)] = &[
    (
        "driver-too-old-for-cuda-13",
        "The NVIDIA driver on your system is too old (found version 12020)",
    ),
    ("driver-too-old-for-cuda-13", "cudaErrorInsufficientDriver"),
    (
        "driver-mismatch-unattended-upgrade",
        "Failed to initialize NVML: Driver/library version mismatch",
    ),
    ("driver-mismatch-unattended-upgrade", "803"),
    (
        "kernel-nouveau-owns-gpus",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
    ),
    (
        "kernel-uvm-not-loaded",
        "CUDA unknown error - this may be due to an incorrectly set up environment",
    ),
    (
        "driver-fabric-manager-absent",
        "Error 802: system not yet initialized",
    ),
    ("driver-compat-on-geforce", "804"),
    (
        "container-gpu-lost-after-daemon-reload",
        "Failed to initialize NVML: Unknown Error",
    ),
    (
        "kernel-secure-boot-key-rejected",
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
    ),
    (
        "visible-devices-minus-one",
        "no CUDA-capable device is detected",
    ),
    (
        "fw-torch-cu121-on-rtx5090",
        "no kernel image is available for execution on the device",
    ),
    (
        "libs-nvjitlink-shadowed-cuda-12-1",
        "libcusparse.so.12: undefined symbol: __nvJitLinkAddData_12_1, version libnvJitLink.so.12",
    ),
    ("hw-gpu-lost-reseat", "xid 79"),
    ("driver-stub-in-ld-library-path", "CUDA_ERROR_STUB_LIBRARY"),
    (
        "build-gcc-too-new-cuda-12-1",
        "#error -- unsupported GNU version! gcc versions later than 12 are not supported!",
    ),
    ("mig-without-instances", "cuda 100"),
    ("device-nodes-missing", "cuda 100"),
    (
        "container-libcuda-missing",
        "libcuda.so.1: cannot open shared object file: No such file or directory",
    ),
    (
        "fw-triton-libcuda-dev-name-missing",
        "/usr/bin/ld: cannot find -lcuda",
    ),
    ("module-not-built-dkms-failed", "nvml 9"),
    (
        "fw-torch-torchvision-cuda-mismatch",
        "operator torchvision::nms does not exist",
    ),
    (
        "runtime-nvrtc-builtins-mixed",
        "nvrtc: error: failed to open libnvrtc-builtins.so.12.1.",
    ),
    (
        "kernel-open-module-on-pascal",
        "NVRM: installed in this system is not supported by open nvidia.ko",
    ),
    ("nodes-for-group-video-only", "cuda 100"),
    (
        "compute-mode-prohibited",
        "all CUDA-capable devices are busy or unavailable",
    ),
    ("libcuda-missing", "cuda 35"),
    (
        "driver-not-installed",
        "Found no NVIDIA driver on your system",
    ),
];

#[test]
fn the_confirmed_cause_is_the_finding_of_the_check() {
    let mut wrong = Vec::new();
    for (case, question) in SICK {
        let host = host(case);
        let mut found = explained(question);
        assert!(!found.matches.is_empty(), "{question}");
        explain::judge(
            &mut found,
            &Here::new(&host.facts, matrix(), false, &host.diagnosis),
        );
        let cause = &found.matches[0].causes[0];
        let verdict = &host.diagnosis.verdict;
        if cause.state != State::Confirmed || cause.finding != verdict.finding {
            wrong.push(format!(
                "{case}: {:?} {:?}, not {:?}: {question}",
                cause.state, cause.finding, verdict.finding
            ));
        }
        let layers = &found.matches[0].layers_at_fault;
        if layers.first().copied() != verdict.layer {
            wrong.push(format!("{case}: {layers:?}, not {:?}", verdict.layer));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// On a machine where nothing is wrong nothing is confirmed, and what can be seen is ruled out with what was read.
#[test]
fn a_healthy_host_confirms_nothing_and_rules_out_what_it_can() {
    let host = host("healthy-bare-host");
    for (_, question) in SICK {
        let mut found = explained(question);
        explain::judge(
            &mut found,
            &Here::new(&host.facts, matrix(), false, &host.diagnosis),
        );
        for cause in found.matches.iter().flat_map(|m| &m.causes) {
            assert_ne!(cause.state, State::Confirmed, "{question}: {}", cause.text);
        }
    }
    // Where nothing was expected nothing is ruled out either; a machine that computes can do that.
    let host = self::host("healthy-desktop-runtime-12-8-on-driver-535");
    let mut found = explained("803");
    explain::judge(
        &mut found,
        &Here::new(&host.facts, matrix(), false, &host.diagnosis),
    );
    let ruled_out = found.matches[0]
        .causes
        .iter()
        .find(|cause| cause.state == State::RuledOut)
        .unwrap();
    assert!(
        ruled_out
            .evidence
            .as_ref()
            .is_some_and(|text| !text.is_empty())
    );
}

#[test]
fn a_log_is_linked_to_the_finding_that_causes_it() {
    let host = host("driver-too-old-for-cuda-13");
    let log = "step 1\nRuntimeError: The NVIDIA driver on your system is too old (found version 12020).\n";
    let scan = explain::scan(log.as_bytes()).unwrap();
    let here = Here::new(&host.facts, matrix(), false, &host.diagnosis);
    let symptoms = explain::symptoms(&scan, matrix(), &here);
    assert_eq!(symptoms[0].entry, "torch-driver-too-old");
    assert_eq!(symptoms[0].line, 2);
    assert_eq!(symptoms[0].explained_by, host.diagnosis.verdict.key);
}
