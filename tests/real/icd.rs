//! Debian's real drivers of Vulkan and `OpenCL` on a machine without a GPU: what gpudoctor reads of the files that name them is what
//! clinfo and vulkaninfo list.

use std::path::{Path, PathBuf};
use std::process::Command;

use gpudoctor::facts::{Facts, Icd};
use gpudoctor::matrix::Matrix;
use gpudoctor::read::icd::stem;

use crate::lab;
use crate::parts;

/// The folder with the unpacked packages.
fn unpacked() -> Option<PathBuf> {
    if Path::new("/dev/dri").exists() {
        parts::left_out("this machine has a GPU, which Vulkan would list");
        return None;
    }
    parts::icds()
}

/// The libraries of the packages.
fn libraries(unpacked: &Path) -> PathBuf {
    unpacked.join("usr/lib/x86_64-linux-gnu")
}

/// What a program of the packages prints, with these variables.
fn said(unpacked: &Path, program: &str, args: &[&str], name: &str, value: &str) -> String {
    let output = Command::new(unpacked.join("usr/bin").join(program))
        .args(args)
        .env("LD_LIBRARY_PATH", libraries(unpacked))
        .env("LC_ALL", "C")
        .env(name, value)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("{out}{err}")
}

/// What gpudoctor reads with the same variables.
fn facts(unpacked: &Path, place: &Path, name: &str, value: &str) -> Facts {
    let mut run = lab::gpudoctor(place);
    let run = run
        .env("LD_LIBRARY_PATH", libraries(unpacked))
        .env(name, value);
    let report = lab::check(run, &[]);
    // No GPU here: what drivers there are is no fault.
    assert_eq!(report.alarms(), [""; 0], "{:#?}", report.findings());
    serde_json::from_value(report.json["facts"].clone()).unwrap()
}

/// The values of a field in what clinfo or vulkaninfo prints.
fn values<'a>(text: &'a str, field: &str) -> Vec<&'a str> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix(field))
        .map(|rest| rest.trim_start_matches([' ', '=']).trim())
        .collect()
}

/// Those that the loader can load, by the stem of the library.
fn loaded(icds: &[Icd]) -> Vec<&str> {
    icds.iter()
        .filter(|icd| icd.loads() == Some(true))
        .map(|icd| stem(icd.library.value().unwrap()))
        .collect()
}

/// Number of platforms, the platform's device type, and nothing where the library is not there.
#[test]
fn opencl_has_the_platforms_that_clinfo_lists() {
    let place = lab::place();
    let Some(unpacked) = unpacked() else {
        return;
    };
    let vendors = unpacked.join("etc/OpenCL/vendors");
    let vendors = vendors.to_str().unwrap();
    let seen = facts(&unpacked, place.path(), "OCL_ICD_VENDORS", vendors);
    let icds = seen.icd.opencl.items();
    let clinfo = said(&unpacked, "clinfo", &[], "OCL_ICD_VENDORS", vendors);
    // Number of platforms: one .icd file, whose library can be loaded.
    assert_eq!(values(&clinfo, "Number of platforms"), ["1"], "{clinfo}");
    assert_eq!(loaded(icds), ["libpocl"], "{icds:#?}");
    assert!(
        clinfo.contains("Portable Computing Language"),
        "PoCL's name: {clinfo}"
    );
    // Device type: the processor.
    let row = Matrix::bundled();
    let row = row.icd("libpocl").unwrap();
    assert!(row.cpu && row.api == "opencl");
    assert_eq!(values(&clinfo, "Device Type"), ["CPU"], "{clinfo}");

    // A file that names a library that is not there: no platform, and no word of it.
    let broken = place.path().join("vendors");
    std::fs::create_dir(&broken).unwrap();
    std::fs::write(broken.join("gone.icd"), "libnot-there.so.1\n").unwrap();
    let broken = broken.to_str().unwrap();
    let seen = facts(&unpacked, place.path(), "OCL_ICD_VENDORS", broken);
    let clinfo = said(&unpacked, "clinfo", &[], "OCL_ICD_VENDORS", broken);
    assert_eq!(values(&clinfo, "Number of platforms"), ["0"], "{clinfo}");
    let [gone] = seen.icd.opencl.items() else {
        panic!("{:#?}", seen.icd.opencl);
    };
    assert_eq!(gone.loads(), Some(false), "{gone:#?}");
}

/// Number and type of devices, and the reason for none.
#[test]
fn vulkan_has_the_devices_that_vulkaninfo_lists() {
    let place = lab::place();
    let Some(unpacked) = unpacked() else {
        return;
    };
    // The manifests as they are, but for the folder that the packages were unpacked into.
    let folder = place.path().join("icd.d");
    std::fs::create_dir(&folder).unwrap();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(unpacked.join("usr/share/vulkan/icd.d")).unwrap() {
        let from = entry.unwrap().path();
        let text = std::fs::read_to_string(&from).unwrap();
        let to = folder.join(from.file_name().unwrap());
        let libraries = libraries(&unpacked);
        let text = text.replace("/usr/lib/x86_64-linux-gnu", libraries.to_str().unwrap());
        std::fs::write(&to, text).unwrap();
        files.push(to.to_str().unwrap().to_owned());
    }
    files.sort();
    let files = files.join(":");
    let seen = facts(&unpacked, place.path(), "VK_DRIVER_FILES", &files);
    let vulkaninfo = said(
        &unpacked,
        "vulkaninfo",
        &["--summary"],
        "VK_DRIVER_FILES",
        &files,
    );
    let found = loaded(seen.icd.vulkan.items());
    assert_eq!(
        found,
        [
            "libvulkan_intel_hasvk",
            "libvulkan_intel",
            "libvulkan_lvp",
            "libvulkan_radeon"
        ]
    );
    // Device count and type: those for GPUs have none here, the one for the processor has one.
    let matrix = Matrix::bundled();
    let on_cpu = found
        .iter()
        .filter(|library| matrix.icd(library).unwrap().cpu);
    let types = values(&vulkaninfo, "deviceType");
    assert_eq!(types.len(), on_cpu.count(), "{vulkaninfo}");
    assert_eq!(types, ["PHYSICAL_DEVICE_TYPE_CPU"], "{vulkaninfo}");
    // Device name and driver.
    let names = values(&vulkaninfo, "deviceName");
    assert!(names[0].starts_with("llvmpipe"), "{vulkaninfo}");
    assert_eq!(values(&vulkaninfo, "driverID"), ["DRIVER_ID_MESA_LLVMPIPE"]);

    let broken = place.path().join("gone.json");
    let text = r#"{"file_format_version": "1.0.0", "ICD": {"library_path": "libnot-there.so", "api_version": "1.3.0"}}"#;
    std::fs::write(&broken, text).unwrap();
    let broken = broken.to_str().unwrap();
    let seen = facts(&unpacked, place.path(), "VK_DRIVER_FILES", broken);
    let vulkaninfo = said(
        &unpacked,
        "vulkaninfo",
        &["--summary"],
        "VK_DRIVER_FILES",
        broken,
    );
    assert!(vulkaninfo.contains("Found no drivers"), "{vulkaninfo}");
    assert_eq!(seen.icd.vulkan.items()[0].loads(), Some(false));
}

/// Level Zero's loader without a driver, as the dynamic loader finds both.
#[test]
fn level_zeros_loader_is_found_and_its_driver_is_not() {
    let place = lab::place();
    let Some(unpacked) = unpacked() else {
        return;
    };
    let seen = facts(&unpacked, place.path(), "OCL_ICD_VENDORS", "/nonexistent");
    let loader = seen.intel.level_zero_loader.value().unwrap();
    assert!(
        loader.real_path.ends_with("/libze_loader.so.1.8.0"),
        "{loader:?}"
    );
    assert!(seen.intel.level_zero_driver.is_absent());
}
