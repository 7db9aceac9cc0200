//! Real wheels: the tables of `fixtures/fatbin-expected.csv` and `fixtures/fatbin-wheels.csv`, cuobjdump itself, and exact
//! versions by the file alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{json, list, parts};

/// Wheels that are fetched only when all of it is wanted.
const LARGE: &[&str] = &[
    "cupy-cuda12x",
    "nvidia-nccl-cu12",
    "nvidia-cudnn-cu12",
    "nvidia-curand-cu12",
    "xgboost",
    "cumm-cu118",
    "pynvvideocodec",
    "cuequivariance-ops-cu12",
    "cupy-cuda13x",
    "nixl-cu12",
    "warp-lang",
];

/// The member of a wheel in what `inspect` said of it.
fn member<'a>(wheel: &'a Value, path: &str) -> &'a Value {
    let files = wheel["files"].as_array().unwrap();
    let ending = format!("!{path}");
    files
        .iter()
        .find(|file| file["path"].as_str().unwrap().ends_with(&ending))
        .unwrap_or_else(|| panic!("{path} is not listed"))
}

fn runtime(file: &Value) -> String {
    let runtime = &file["runtime"];
    let version = runtime["version"].as_str().unwrap_or_default();
    match runtime["linkage"].as_str().unwrap() {
        "dynamic" => format!("shared:libcudart.so.{version}"),
        other => format!("{other}:{version}"),
    }
}

#[test]
fn the_table() {
    check_table(include_str!("../../fixtures/fatbin-expected.csv"));
}

#[test]
fn more_wheels() {
    check_table(include_str!("../../fixtures/fatbin-wheels.csv"));
}

fn check_table(table: &str) {
    let mut wheels: BTreeMap<(&str, &str), Value> = BTreeMap::new();
    for line in table.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let field: Vec<&str> = line.split(',').collect();
        let [package, version, wheel_name, path] = field[..4] else {
            panic!("{line}")
        };
        if LARGE.contains(&package) && !parts::full() {
            continue;
        }
        let python = if wheel_name.contains("cp39") {
            "3.9"
        } else {
            "3.11"
        };
        let Some(wheel) = parts::wheel(package, version, python) else {
            continue;
        };
        let found = wheels
            .entry((package, version))
            .or_insert_with(|| json(&wheel, &["--all"]));
        let file = member(found, path);
        // Where nobody could be asked for the version of a static runtime, the table has a question mark.
        let runtime = match field[15].strip_suffix('?') {
            Some(_) => format!("{}:?", file["runtime"]["linkage"].as_str().unwrap()),
            None => runtime(file),
        };
        let device = &file["device"];
        for (what, is, expected) in [
            ("size", file["size_bytes"].to_string(), field[4]),
            ("cubins", device["elf"].to_string(), field[6]),
            ("cubin targets", list(&file["archs"]["elf"]), field[7]),
            ("PTX", device["ptx"].to_string(), field[8]),
            ("PTX targets", list(&file["archs"]["ptx"]), field[9]),
            (
                "relocatable cubins",
                device["relocatable_elf"].to_string(),
                field[10],
            ),
            (
                "relocatable cubin targets",
                list(&file["relocatable"]["elf"]),
                field[11],
            ),
            (
                "relocatable PTX",
                device["relocatable_ptx"].to_string(),
                field[12],
            ),
            (
                "relocatable PTX targets",
                list(&file["relocatable"]["ptx"]),
                field[13],
            ),
            ("PTX versions", list(&file["ptx_isa"]), field[14]),
            ("runtime", runtime, field[15]),
            ("toolkits", list(&file["toolkits"]), field[16]),
        ] {
            assert_eq!(is, expected, "{path}: {what}");
        }
        assert_eq!(list(&file["problems"]), "", "{path}");
    }
}

/// Lists of cuobjdump in one form: how many entries there are for each target.
fn counted(text: &str, ending: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        // `ELF file    1: name.1.sm_90a.cubin`
        let target = line
            .strip_suffix(ending)
            .and_then(|rest| rest.rsplit_once('.'));
        if let Some((_, target)) = target {
            *counts.entry(target.to_owned()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn cuobjdump_says_the_same() {
    let Some(tool) = parts::wheel("nvidia-cuda-cuobjdump", "13.5.37", "3.11") else {
        return;
    };
    let cuobjdump = parts::member(&tool, "nvidia/cu13/bin/cuobjdump");
    let done = Command::new("chmod")
        .arg("+x")
        .arg(&cuobjdump)
        .status()
        .unwrap();
    assert!(done.success());
    for (package, version, path) in [
        ("torchvision", "0.29.2", "torchvision/_C_stable.so"),
        (
            "torchvision",
            "0.29.2",
            "torchvision.libs/libnvjpeg.4a0b5c81.so.13",
        ),
        (
            "bitsandbytes",
            "0.50.2",
            "bitsandbytes/libbitsandbytes_cuda118.so",
        ),
        (
            "bitsandbytes",
            "0.50.2",
            "bitsandbytes/libbitsandbytes_cuda124.so",
        ),
        (
            "bitsandbytes",
            "0.50.2",
            "bitsandbytes/libbitsandbytes_cuda126.so",
        ),
        (
            "bitsandbytes",
            "0.50.2",
            "bitsandbytes/libbitsandbytes_cuda128.so",
        ),
        (
            "bitsandbytes",
            "0.50.2",
            "bitsandbytes/libbitsandbytes_cuda132.so",
        ),
        (
            "bitsandbytes",
            "0.50.2",
            "bitsandbytes/libbitsandbytes_cuda130.so",
        ),
        (
            "faiss-gpu-cu12",
            "1.14.1.post1",
            "faiss_gpu_cu12.libs/libfaiss-6b43fd57.so",
        ),
        (
            "nvidia-curand-cu12",
            "10.3.10.19",
            "nvidia/curand/lib/libcurand.so.10",
        ),
    ] {
        if LARGE.contains(&package) && !parts::full() {
            continue;
        }
        let Some(wheel) = parts::wheel(package, version, "3.11") else {
            continue;
        };
        let library = parts::member(&wheel, path);
        let found = json(&library, &[]);
        let file = &found["files"][0];
        for (option, ending, kind, whole) in [
            ("--list-elf", ".cubin", "elf", "sm_"),
            ("--list-ptx", ".ptx", "ptx", "sm_"),
        ] {
            let output = Command::new(&cuobjdump)
                .arg(option)
                .arg(&library)
                .output()
                .unwrap();
            let said = counted(&String::from_utf8_lossy(&output.stdout), ending);
            // Its lists have `sm_` for PTX too, and leave out the `f` of families.
            let ours = list(&file["archs"][kind]).replace("compute_", whole);
            let mut ours: Vec<&str> = ours
                .split_whitespace()
                .map(|t| t.trim_end_matches('f'))
                .collect();
            let mut theirs: Vec<&str> = said.keys().map(|t| t.trim_end_matches('f')).collect();
            ours.sort_unstable();
            theirs.sort_unstable();
            assert_eq!(ours, theirs, "{path} {option}");
            assert_eq!(
                file["device"][kind].as_u64().unwrap(),
                said.values().sum::<u64>(),
                "{path} {option}"
            );
        }
    }
}

#[test]
fn exact_versions() {
    let small = [
        ("nvidia-cuda-runtime", "13.5.37", "libcudart.so.13", "13.5"),
        (
            "nvidia-cuda-runtime-cu12",
            "12.4.127",
            "libcudart.so.12",
            "12.4",
        ),
        (
            "nvidia-nvjitlink-cu12",
            "12.4.127",
            "libnvJitLink.so.12",
            "12.4.127",
        ),
        (
            "nvidia-cuda-nvrtc-cu12",
            "12.4.127",
            "libnvrtc.so.12",
            "12.4.127",
        ),
    ];
    let large = [
        (
            "nvidia-curand-cu12",
            "10.3.10.19",
            "libcurand.so.10",
            "10.3.10",
        ),
        (
            "nvidia-cublas",
            "13.10.0.20",
            "libcublasLt.so.13",
            "13.10.0",
        ),
        ("nvidia-cublas", "13.10.0.20", "libcublas.so.13", "13.10.0"),
        ("nvidia-cufft-cu12", "11.4.1.4", "libcufft.so.11", "11.4.1"),
        (
            "nvidia-cusparse-cu12",
            "12.5.10.65",
            "libcusparse.so.12",
            "12.5.10",
        ),
        (
            "nvidia-cusolver-cu12",
            "11.7.5.82",
            "libcusolver.so.11",
            "11.7.5",
        ),
        (
            "nvidia-cusparselt-cu12",
            "0.8.1",
            "libcusparseLt.so.0",
            "0.8.1",
        ),
        (
            "nvidia-cusparselt-cu13",
            "0.10.0",
            "libcusparseLt.so.0",
            "0.10.0",
        ),
        (
            "nvidia-cusparse-cu11",
            "11.7.5.86",
            "libcusparse.so.11",
            "11.7.5",
        ),
        ("nvidia-nccl-cu12", "2.21.5", "libnccl.so.2", "2.21.5"),
        (
            "nvidia-cudnn-cu12",
            "9.28.0.42",
            "libcudnn_graph.so.9",
            "9.28.0",
        ),
        ("nvidia-cudnn-cu12", "9.28.0.42", "libcudnn.so.9", "9.28.0"),
        (
            "tensorrt-lean-cu12-libs",
            "11.4.0.106",
            "libnvinfer_lean.so.11",
            "11.4.0.106",
        ),
    ];
    let wanted = small.iter().chain(large.iter().filter(|_| parts::full()));
    for (package, version, library, exact) in wanted {
        let Some(wheel) = parts::wheel(package, version, "3.11") else {
            continue;
        };
        let found = json(&wheel, &[]);
        let files = found["files"].as_array().unwrap();
        let file = files
            .iter()
            .find(|f| Path::new(f["path"].as_str().unwrap()).ends_with(library))
            .unwrap();
        assert_eq!(
            file["identity"]["version"], *exact,
            "{library}: {}",
            file["identity"]
        );
    }
}
