//! AMD's real libraries on a machine without an AMD GPU: what gpudoctor reads of Debian's libamdhip64, libhsa-runtime64 and
//! of the machine is what rocminfo and the libraries themselves say; and what it reads of headers of code for AMD's GPUs is what the
//! whole of that code names.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpudoctor::facts::{ChildEnd, Facts};
use gpudoctor::read::elf;

use crate::lab;
use crate::parts;
use crate::wheels;

/// `hipErrorNoDevice` of `hip_runtime_api.h`.
const NO_DEVICE: i64 = 100;
/// `HSA_STATUS_ERROR_OUT_OF_RESOURCES` of `hsa.h`: what `hsa_init` answers where there is no `/dev/kfd`.
const OUT_OF_RESOURCES: i64 = 0x1008;

/// Debian's libraries in a folder that others cannot write, since root loads nothing else.
fn libraries(place: &Path) -> Option<(PathBuf, PathBuf)> {
    if Path::new("/dev/kfd").exists() || Path::new("/sys/module/amdgpu").exists() {
        parts::left_out("this machine has an AMD GPU or its driver");
        return None;
    }
    let unpacked = parts::rocm()?;
    let folder = place.join("rocm");
    let copied = Command::new("cp")
        .arg("-a")
        .arg(&unpacked)
        .arg(&folder)
        .status();
    assert!(copied.unwrap().success());
    let rocminfo = folder.join("usr/bin/rocminfo");
    Some((folder.join("usr/lib/x86_64-linux-gnu"), rocminfo))
}

fn facts(folder: &Path, place: &Path, args: &[&str]) -> (Facts, lab::Report) {
    let mut run = lab::gpudoctor(place);
    let report = lab::check(run.env("LD_LIBRARY_PATH", folder), args);
    let facts = serde_json::from_value(report.json["facts"].clone()).unwrap();
    (facts, report)
}

/// Version, device count and the reason for no device: HIP's and HSA's own answers, and rocminfo's words.
#[test]
fn without_a_device_hip_and_hsa_say_what_rocminfo_says() {
    let place = lab::place();
    let Some((folder, rocminfo)) = libraries(place.path()) else {
        return;
    };
    let (facts, report) = facts(&folder, place.path(), &["--probe"]);
    // No GPU, none expected: libraries alone are no fault.
    assert_eq!(report.alarms(), [""; 0], "{:#?}", report.findings());
    assert_eq!(report.code, Some(0));

    let hip = facts.vendor.hip.value().expect("HIP was asked");
    assert_eq!(hip.end, ChildEnd::Finished, "{hip:#?}");
    // Version: the number of the call is that of the file's name.
    assert_eq!(hip.number("hipRuntimeGetVersion"), Some(50_221_153));
    assert_eq!(hip.number("hipDriverGetVersion"), Some(50_221_153));
    let copies = facts.amd.libraries.items();
    let copy = |name: &str| copies.iter().find(|copy| copy.name == name).unwrap();
    let version = |name: &str| copy(name).version.value().unwrap().to_string();
    assert_eq!(version("libamdhip64"), "5.2.21153");
    assert_eq!(
        copy("libamdhip64").soname.value().unwrap(),
        "libamdhip64.so.5"
    );
    assert_eq!(
        copy("libhsa-runtime64").soname.value().unwrap(),
        "libhsa-runtime64.so.1"
    );
    // Device count: none, and HIP's code for it.
    assert_eq!(hip.code("hipGetDeviceCount"), Some(NO_DEVICE));
    assert!(facts.amd.topology.is_absent(), "{:?}", facts.amd.topology);
    // The reason: HSA's code for a /dev/kfd that is not there, which rocminfo tells as a module that is not loaded.
    let hsa = facts.vendor.hsa.value().expect("HSA was asked");
    assert_eq!(hsa.code("hsa_init"), Some(OUT_OF_RESOURCES), "{hsa:#?}");
    assert!(facts.amd.kfd.is_absent());
    assert_ne!(facts.driver.has_module("amdgpu"), Some(true));
    let said = Command::new(rocminfo)
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .unwrap();
    assert_eq!(said.status.code(), Some(1));
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("ROCk module is NOT loaded, possibly no GPU devices"),
        "{said}"
    );
}

/// Without a driver nothing is asked of itself: the versions are read from the files.
#[test]
fn without_a_driver_rocm_is_read_and_not_called() {
    let place = lab::place();
    let Some((folder, _)) = libraries(place.path()) else {
        return;
    };
    let (facts, report) = facts(&folder, place.path(), &[]);
    assert!(facts.vendor.hip.is_unreadable() && facts.vendor.hsa.is_unreadable());
    let runtime = report.json["layers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|layer| layer["layer"] == "runtime")
        .unwrap();
    let summary = runtime["summary"].as_str().unwrap();
    assert!(summary.starts_with("HIP 5.2"), "{summary}");
}

/// The targets that `inspect` lists, all of them read.
fn inspected(path: &Path) -> BTreeSet<String> {
    let output = Command::new(lab::PROGRAM)
        .args(["inspect", "--format", "json"])
        .arg(path)
        .output()
        .unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let code = &found["files"][0]["gfx"];
    assert_eq!(code["complete"], true, "{}: {code}", path.display());
    serde_json::from_value(code["targets"].clone()).unwrap()
}

/// The targets that bundles name, wherever in these bytes.
fn named_in(bytes: &[u8]) -> BTreeSet<String> {
    const NAME: &[u8] = b"hipv4-amdgcn-amd-amdhsa--";
    let mut found = BTreeSet::new();
    for at in memchr::memmem::find_iter(bytes, NAME) {
        let rest = bytes[at + NAME.len()..].iter();
        // What follows a name is an offset whose low byte is 0, or padding.
        let name = rest.take_while(|byte| byte.is_ascii_graphic());
        found.insert(name.map(|byte| char::from(*byte)).collect());
    }
    found
}

/// What lies in the section, unpacked where it is packed: by another decoder, and all of it.
fn whole_code(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    let range = elf::section(&bytes, ".hip_fatbin").unwrap();
    let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
    let code = &bytes[start..end];
    let mut whole = code.to_vec();
    for page in (0..code.len()).step_by(4096) {
        if code[page..].starts_with(b"CCOB") {
            let header = [20, 24, 32][usize::from(code[page + 4]) - 1];
            let packed = &code[page + header..];
            let mut decoder = ruzstd::decoding::StreamingDecoder::new(packed).unwrap();
            decoder.read_to_end(&mut whole).unwrap();
        }
    }
    whole
}

/// Bundles that lie there as they are, with features in the targets' names.
#[test]
fn the_targets_of_debians_rocrand_are_those_that_its_code_names() {
    let Some(unpacked) = parts::rocrand() else {
        return;
    };
    let path = unpacked.join("usr/lib/x86_64-linux-gnu/librocrand.so.1.1");
    let found = inspected(&path);
    assert_eq!(found, named_in(&whole_code(&path)));
    let own = [
        "gfx1030",
        "gfx803",
        "gfx900:xnack-",
        "gfx906:xnack-",
        "gfx908:xnack-",
        "gfx90a:xnack+",
        "gfx90a:xnack-",
    ];
    assert_eq!(found, own.map(str::to_owned).into());
}

/// Packed bundles of the second and third form, of which only the first block is unpacked.
#[test]
fn the_targets_of_packed_bundles_are_those_that_all_of_their_code_names() {
    let Some(wheel) = wheels::wheel("bitsandbytes", "0.50.2", "3.11") else {
        return;
    };
    for release in ["64", "70", "71", "72", "714", "715"] {
        let name = format!("bitsandbytes/libbitsandbytes_rocm{release}.so");
        let path = wheels::member(&wheel, &name);
        let found = inspected(&path);
        assert!(found.len() > 5, "{name}: {found:?}");
        assert_eq!(found, named_in(&whole_code(&path)), "{name}");
    }
}
