//! `gpudoctor matrix` and the overlay, on the real binary: what is asked, the first line, and the exit code.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: what is not as described has to stop the test"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use gpudoctor::ask::{self, Word};
use gpudoctor::matrix::Matrix;
use gpudoctor::target::Target;
use serde_json::Value;

/// What a call gave.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn first_line(&self) -> &str {
        self.out.lines().next().unwrap_or_default()
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap()
    }
}

/// Runs gpudoctor with nothing of the caller's environment but these variables.
fn run(args: &[&str], env: &[(&str, &Path)]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_gpudoctor"))
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .output()
        .unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn ask(args: &[&str]) -> Ran {
    run(&[&["matrix"], args].concat(), &[])
}

/// The textbook question in full: an application container for CUDA 12.4 on a host whose driver is of 2021.
#[test]
fn a_container_for_cuda_12_4_on_a_driver_of_2021() {
    for (name, gpu) in [
        ("without-gpu", None),
        ("data-center-gpu", Some("A100")),
        ("geforce", Some("GeForce RTX 3090")),
    ] {
        let mut args = vec!["can", "--driver", "470.82.01", "--cuda", "12.4"];
        args.extend(gpu.iter().flat_map(|gpu| ["--gpu", gpu]));
        let ran = ask(&args);
        assert_eq!(ran.code, 1);
        assert_eq!(
            ran.first_line(),
            "no: driver 470.82.01 (CUDA 11.4) cannot run CUDA 12.4; it needs 525.60.13 or newer"
        );
        let wide = ran.out.lines().skip(1).find(|line| line.len() > 80);
        assert_eq!(wide, None);
        let as_of = Matrix::bundled().as_of().to_owned();
        insta::assert_snapshot!(name, ran.out.replace(&as_of, "AS-OF"));
        args.extend(["--format", "json"]);
        let answer = ask(&args).json();
        assert_eq!(answer["schema"], "gpudoctor.matrix/1");
        assert_eq!(answer["answer"], "no");
        assert_eq!(answer["layer"], "driver");
        assert_eq!(answer["confidence"], "verified");
        let ways: Vec<_> = answer["ways"]
            .as_array()
            .unwrap()
            .iter()
            .map(|way| (way["kind"].as_str().unwrap(), way["open"].as_bool()))
            .collect();
        let compat = gpu.map(|name| name == "A100");
        let ranked = [
            ("driver", Some(true)),
            ("build", Some(true)),
            ("compat-package", compat),
        ];
        assert_eq!(ways, ranked, "{name}");
        let rows: Vec<_> = answer["why"]
            .as_array()
            .unwrap()
            .iter()
            .map(|cited| cited["row"].as_str().unwrap())
            .collect();
        assert_eq!(rows, ["family 12", "driver_branch 470"]);
    }
}

/// Each line: what is asked, the exit code, and how the first line begins.
#[test]
fn can_one_run_the_other() {
    for (args, code, line) in [
        // The driver decides, by major version, and numbers are compared as numbers.
        (
            "--driver 525.60.13 --cuda 12.9",
            0,
            "yes: driver 525.60.13 (CUDA 12.0) runs CUDA 12.9 by minor-version compatibility, within limits",
        ),
        (
            "--driver 550.163.01 --cuda 12.4",
            0,
            "yes: driver 550.163.01 (CUDA 12.4) runs CUDA 12.4",
        ),
        (
            "--driver 620.70.06 --cuda 11.8",
            0,
            "yes: driver 620.70.06 (CUDA 13.5) runs CUDA 11.8",
        ),
        (
            "--driver 575.57.08 --cuda 13.0",
            1,
            "no: driver 575.57.08 (CUDA 12.9) cannot run CUDA 13.0; it needs 580.65.06 or newer",
        ),
        (
            "--driver 440.33 --cuda 12.10",
            1,
            "no: driver 440.33 (CUDA 10.2) cannot run CUDA 12.10; it needs 525.60.13 or newer",
        ),
        (
            "--driver none --cuda 12.4",
            1,
            "no: without a driver CUDA 12.4 does not run; it needs 525.60.13 or newer",
        ),
        (
            "--driver 525 --cuda 12.4",
            0,
            "yes: driver 525 (CUDA 12.0) runs CUDA 12.4 by minor-version compatibility, within limits",
        ),
        (
            "--driver 450.51 --cuda 11.0",
            0,
            "yes: driver 450.51 (CUDA 11.0) runs CUDA 11.0, within limits",
        ),
        // The GPU: dropped by the branch, too new for it, dropped by the toolkit, too new for that.
        (
            "--driver 590.48.01 --cuda 12.9 --gpu V100",
            1,
            "no: driver 590.48.01 no longer drives V100: 580 is the last branch for Volta",
        ),
        (
            "--driver 535.104.05 --cuda 12.8 --gpu 10de:2b85",
            1,
            "no: driver 535.104.05 is too old for GeForce RTX 5090: 570 is the first branch for it",
        ),
        (
            "--driver 580.95.05 --cuda 13.0 --gpu V100",
            1,
            "no: CUDA 13.0 no longer builds for V100 (sm_70): CUDA 12.9 is the last that does",
        ),
        (
            "--driver 580.95.05 --cuda 12.4 --gpu sm_120",
            1,
            "unknown: CUDA 12.4 writes no machine code for sm_120 (sm_120, from CUDA 12.8 on): only a program that brings PTX runs there",
        ),
        (
            "--driver 470.82.01 --cuda 12.4 --gpu K80",
            1,
            "no: driver 470.82.01 (CUDA 11.4) cannot run CUDA 12.4, and no driver that does drives Tesla K80 any more",
        ),
        (
            "--driver 470.82.01 --cuda 12.8 --gpu B200",
            1,
            "no: driver 470.82.01 (CUDA 11.4) cannot run CUDA 12.8; with B200 it needs branch 570 or newer",
        ),
        (
            "--driver 450.80.02 --gpu A10",
            1,
            "no: driver 450.80.02 is too old for A10: 455 is the first branch for it",
        ),
        (
            "--driver 575.57.08 --gpu B300",
            1,
            "unknown: whether driver 575.57.08 drives B300",
        ),
        // sm_86 code on a GPU of 8.9 is not missing.
        (
            "--cuda 11.4 --gpu L40S",
            0,
            "yes: what CUDA 11.4 builds runs on L40S",
        ),
        (
            "--driver 535.104.05 --cuda 12.4 --gpu A100+L40S",
            0,
            "yes: driver 535.104.05 (CUDA 12.2) runs CUDA 12.4 on A100 and L40S",
        ),
        (
            "--driver 535.104.05 --gpu A100+B200",
            1,
            "no: driver 535.104.05 is too old for B200",
        ),
        // Windows numbers are another line.
        (
            "--driver 551.61 --cuda 12.4",
            1,
            "unknown: driver 551.61 is no Linux driver that the matrix can compare",
        ),
        (
            "--driver 551.61 --cuda 12.4 --os windows",
            0,
            "yes: Windows driver 551.61 (CUDA 12.4) runs CUDA 12.4",
        ),
        (
            "--driver 516.94 --cuda 12.4 --os wsl",
            1,
            "no: Windows driver 516.94 (CUDA 11.7 to 11.8) cannot run CUDA 12.4; it needs 527.41 or newer",
        ),
        (
            "--driver 551.61 --cuda 13.0 --os windows",
            1,
            "no: Windows driver 551.61 (CUDA 12.4) cannot run CUDA 13.0",
        ),
        // Side lines are compared; newer than the matrix is said to be newer; unknown is unknown.
        (
            "--driver 387.26 --cuda 9.0",
            0,
            "yes: driver 387.26 (CUDA 9.0 to 9.1) runs CUDA 9.0",
        ),
        (
            "--driver 387.26 --cuda 9.1",
            1,
            "unknown: whether driver 387.26",
        ),
        (
            "--driver 999.10 --cuda 12.4",
            0,
            "yes: driver 999.10 (CUDA 13.5 or newer) runs CUDA 12.4, within limits",
        ),
        (
            "--driver 999.10 --cuda 21.0",
            1,
            "unknown: whether driver 999.10 (CUDA 13.5 or newer) runs CUDA 21.0 is not known",
        ),
        (
            "--driver 580.95.05 --cuda 21.0",
            1,
            "no: driver 580.95.05 (CUDA 13.0) cannot run CUDA 21.0",
        ),
        (
            "--driver 565.57.01 --cuda 12.7",
            1,
            "unknown: there is no CUDA 12.7 in the matrix",
        ),
        (
            "--driver 535.104.05 --gpu 10de:ffff",
            1,
            "unknown: `10de:ffff` is no GPU that the matrix knows",
        ),
        (
            "--driver 470.82.01 --gpu sm_131",
            1,
            "unknown: `sm_131` is no GPU that the matrix knows",
        ),
        (
            "--cuda 12.4 --driver 535.104.05 --gpu sm_87",
            1,
            "unknown: a Jetson's driver comes with its L4T release",
        ),
        (
            "--target driver=535.104.05,gpu=A100+L40S,glibc=2.31,os=ubuntu-22.04 --cuda 12.4",
            0,
            "yes: driver 535.104.05 (CUDA 12.2) runs CUDA 12.4 on A100 and L40S",
        ),
        // PyTorch brings a CUDA version, and its own list of GPUs.
        (
            "--torch 2.7+cu128 --driver 535.104 --gpu P100",
            1,
            "no: torch 2.7.1+cu128 has no code for P100 (sm_60)",
        ),
        (
            "--torch 2.7 --driver 535.104 --gpu P100",
            0,
            "yes: driver 535.104 (CUDA 12.2) runs torch 2.7.1+cu126 (CUDA 12.6) on P100 by minor-version compatibility, within limits",
        ),
        (
            "--torch 2.11 --driver 535.104",
            1,
            "no: driver 535.104 (CUDA 12.2) cannot run torch 2.11.0+cu130 (CUDA 13.0); it needs 580.65.06 or newer",
        ),
        (
            "--torch 2.11 --driver 580.65.06 --gpu GTX1080",
            1,
            "unknown: `GTX1080` is no GPU",
        ),
        (
            "--torch 2.7.1+cu128 --gpu sm_70",
            1,
            "no: torch 2.7.1+cu128 has no code for sm_70 (sm_70) (by secondary sources)",
        ),
        (
            "--torch 2.9.1+cu128 --gpu sm_70",
            0,
            "yes: torch 2.9.1+cu128 (CUDA 12.8) has code for sm_70",
        ),
        (
            "--torch 2.7.1+cpu --driver 550.54.14 --gpu A100",
            1,
            "no: torch 2.7.1+cpu is a build without CUDA",
        ),
        (
            "--torch 2.6.0+cu128 --driver 550.54.14 --gpu A100",
            1,
            "unknown: the matrix knows no torch 2.6.0+cu128",
        ),
        (
            "--torch 2.99 --driver 550.54.14",
            1,
            "unknown: torch 2.99 is not in the matrix of 2026-12-01; the newest there is 2.15.0",
        ),
        (
            "--target driver=580.95.05,torch=2.15.0,gpu=H100,cudnn=9.26.0",
            0,
            "yes: driver 580.95.05 (CUDA 13.0) runs torch 2.15.0+cu132 (CUDA 13.2) on H100 by minor-version compatibility, within limits; cuDNN 9.26.0 runs there too",
        ),
        // cuDNN leaves old GPUs in the middle of a major version, and knows new ones from some release on.
        (
            "--cudnn 9.11 --gpu V100",
            1,
            "no: cuDNN 9.11 no longer runs on V100 (sm_70)",
        ),
        (
            "--cudnn 9.10.2.21 --gpu V100",
            0,
            "yes: cuDNN 9.10.2.21 runs on V100",
        ),
        (
            "--cudnn 9.1.0 --cuda 12.8 --gpu sm_120",
            1,
            "no: cuDNN 9.1.0 does not know sm_120 (sm_120) yet",
        ),
        (
            "--cudnn 7.6.5 --gpu V100",
            1,
            "unknown: cuDNN 7.6.5 is not in the matrix",
        ),
        (
            "--target driver=535.104.05,cuda=12.4,glibc=2.12",
            1,
            "no: glibc 2.12 is too old for NVIDIA's runtime, which needs 2.17",
        ),
    ] {
        let ran = ask(&[&["can"], &args.split(' ').collect::<Vec<_>>()[..]].concat());
        assert_eq!(
            (ran.code, ran.err.as_str()),
            (code, ""),
            "{args}: {}",
            ran.out
        );
        assert!(
            ran.first_line().starts_with(line),
            "{args}\n{}\n{line}",
            ran.first_line()
        );
    }
}

/// What a no about PyTorch has to tell: the layer, the build to take as the words of pip, and what does not help.
#[test]
fn a_torch_without_code_for_the_gpu_is_told_which_build_has_it() {
    let ran = ask(&[
        "can",
        "--torch",
        "2.7+cu128",
        "--driver",
        "535.104",
        "--gpu",
        "P100",
        "--format",
        "json",
    ]);
    let answer = ran.json();
    assert_eq!((ran.code, &answer["layer"]), (1, &"framework".into()));
    assert_eq!(answer["question"]["torch"], "2.7+cu128");
    let ways = answer["ways"].as_array().unwrap();
    let (build, driver) = (&ways[0], &ways[1]);
    assert_eq!(
        (&build["kind"], &build["open"]),
        (&"build".into(), &true.into())
    );
    let summary = build["summary"].as_str().unwrap();
    assert!(
        summary.contains("pip install torch==2.7.1+cu126 --index-url "),
        "{summary}"
    );
    assert!(summary.ends_with("/cu126"), "{summary}");
    assert_eq!(
        (&driver["kind"], &driver["open"]),
        (&"driver".into(), &false.into())
    );
    // The other way round: the driver can change, and the other build is second best.
    let ran = ask(&[
        "can", "--torch", "2.12", "--driver", "535.104", "--gpu", "A100", "--format", "json",
    ]);
    let answer = ran.json();
    let ways = answer["ways"].as_array().unwrap();
    assert_eq!(answer["layer"], "driver");
    assert_eq!(
        (&ways[0]["kind"], &ways[1]["kind"]),
        (&"driver".into(), &"build".into())
    );
    assert!(
        ways[1]["summary"]
            .as_str()
            .unwrap()
            .contains("torch==2.12.1+cu129"),
        "{}",
        ran.out
    );
    // Neither alone: the last driver for a P100 is too old for CUDA 13, and no build of that release does.
    let ran = ask(&[
        "can",
        "--torch",
        "2.15.0",
        "--driver",
        "580.95.05",
        "--gpu",
        "P100",
    ]);
    assert!(ran.out.contains("torch==2.14.1+cu126"), "{}", ran.out);
    let plain = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        plain.contains("(2.15.0 has no build that would run)"),
        "{plain}"
    );
}

/// The measured grid, by the same answer that the command gives.
#[test]
fn every_measured_cell_is_answered() {
    let matrix = Matrix::bundled();
    let mut exceptions = Vec::new();
    let lines = include_str!("../fixtures/oracle-cudart-driver.csv").lines();
    for line in lines.filter(|line| !line.starts_with('#')).skip(1) {
        let [cudart, driver, _, _, _, code] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let target: Target = format!("driver={driver},cuda={cudart}").parse().unwrap();
        let word = ask::can(&matrix, &target).unwrap().answer;
        let wanted = if code == "35" { Word::No } else { Word::Yes };
        if word != wanted {
            exceptions.push((cudart, driver));
        }
    }
    // A runtime of 11.2 asks cuInit first, and without a GPU it does not come to the version.
    let known = ["340.108", "390.157", "418.226.00"].map(|driver| ("11.2.152", driver));
    assert_eq!(exceptions, known);
}

#[test]
fn a_name_of_several_gpus_is_not_guessed() {
    let ran = ask(&["can", "--driver", "470.82.01", "--gpu", "GT 730"]);
    assert_eq!(ran.code, 1);
    let line = ran.first_line();
    assert!(
        line.starts_with("unknown: `GT 730` is the name of several GPUs"),
        "{line}"
    );
    assert!(
        line.contains("GF108") && line.contains("GK208") && line.ends_with("give its PCI id"),
        "{line}"
    );
    assert!(!ran.out.contains("ways out"), "{}", ran.out);
    // All of them are too old for this one, whichever is meant.
    let ran = ask(&["can", "--driver", "535.104.05", "--gpu", "GT 730"]);
    assert!(
        ran.first_line()
            .starts_with("no: driver 535.104.05 no longer drives"),
        "{}",
        ran.out
    );
    let ran = ask(&["gpu", "RTX 6000", "--format", "json"]);
    let answer = ran.json();
    let capabilities: Vec<_> = answer["gpus"][0]["kinds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind["capability"].as_str().unwrap())
        .collect();
    assert_eq!((ran.code, capabilities), (1, vec!["7.5", "8.9"]));
}

#[test]
fn things_are_looked_up() {
    for (args, code, line) in [
        (
            &["cuda", "12.4"][..],
            0,
            "CUDA 12.4 needs driver 525.60.13 or newer; it came with 550.54.14, which is no minimum",
        ),
        (
            &["cuda", "12.4.1"],
            0,
            "CUDA 12.4 Update 1 needs driver 525.60.13 or newer; it came with 550.54.15",
        ),
        (
            &["cuda", "13"],
            0,
            "CUDA 13.x needs driver 580.65.06 or newer",
        ),
        (
            &["cuda", "10.2"],
            0,
            "CUDA 10.2 needs driver 440.33 or newer; it came with that one",
        ),
        (
            &["cuda", "12.7"],
            1,
            "unknown: CUDA 12.7 is not in the matrix",
        ),
        (
            &["torch", "2.6"],
            0,
            "torch 2.6.0 on PyPI brings CUDA 12.4, which needs driver 525.60.13 or newer",
        ),
        (
            &["torch", "2.7.1+cu128"],
            0,
            "torch 2.7.1+cu128 brings CUDA 12.8, which needs driver 525.60.13 or newer",
        ),
        (
            &["torch", "2.5.2"],
            1,
            "unknown: torch 2.5.2 is not in the matrix of 2026-12-01; the nearest are 2.5.1 and 2.6.0",
        ),
        (
            &["torch", "2.6+cu128"],
            1,
            "unknown: the matrix knows no torch 2.6.0+cu128",
        ),
        (
            &["torch", "2.6+rocm6.2"],
            1,
            "unknown: torch 2.6.0+rocm6.2 is a build without CUDA",
        ),
        (
            &["tensorflow", "2.19.1"],
            0,
            "TensorFlow 2.19.1 is built with CUDA 12.5 and cuDNN 9.3, which needs driver 525.60.13 or newer",
        ),
        (
            &["jax", "0.10"],
            0,
            "JAX 0.10.2 has plugins for CUDA 12 (cuDNN 9.8 or newer) and CUDA 13 (cuDNN 9.12.0.46 or newer)",
        ),
        (
            &["onnxruntime", "1.26"],
            0,
            "onnxruntime-gpu 1.26.0 on PyPI is built for CUDA 12.8 and cuDNN 9, which needs driver 525.60.13 or newer",
        ),
        (
            &["onnxruntime", "1.28.0"],
            0,
            "onnxruntime-gpu 1.28.0 on PyPI is built for CUDA 13.x and cuDNN 9, which needs driver 580.65.06 or newer",
        ),
        (
            &["vllm", "0.10.2"],
            0,
            "vLLM 0.10.2 on PyPI pins torch 2.8.0, built for CUDA 12.8, which needs driver 525.60.13 or newer",
        ),
        (
            &["vllm", "0.5.0"],
            1,
            "unknown: vLLM 0.5.0 is not in the matrix of 2026-12-01; the nearest are 0.4.3 and 0.5.5",
        ),
        (
            &["cudnn", "9.8"],
            0,
            "cuDNN 9.8 is built for CUDA 11.x and 12.x and runs on compute capability 5.0 and newer",
        ),
        (
            &["cudnn", "9.5.1"],
            0,
            "cuDNN 9.5.1 is built for CUDA 11.x and 12.x and runs on compute capability 5.0 to 9.0",
        ),
        (
            &["cudnn", "9.40"],
            1,
            "unknown: cuDNN 9.40 is not in the matrix of 2026-12-01; the newest there is 9.28",
        ),
        (
            &["nccl", "2.27.5"],
            0,
            "NCCL 2.27.5 is built for CUDA 12.x; torch 2.9.0, 2.9.1 and 2.10.0 ask for it",
        ),
        (
            &["nccl", "2.27.6"],
            1,
            "unknown: NCCL 2.27.6 is not in the matrix of 2026-12-01; the nearest are 2.27.5 and 2.27.7",
        ),
        (
            &["tensorrt", "10.13.2"],
            0,
            "TensorRT 10.13.2 is built for CUDA 12.x and 13.x and runs on compute capability 7.5 and newer",
        ),
        (
            &["tensorrt", "9.0"],
            1,
            "unknown: TensorRT 9.0 is not in the matrix of 2026-12-01; the nearest are 8.6.1 and 10.0",
        ),
        (
            &["cuda", "21"],
            1,
            "unknown: CUDA 21.x is not in the matrix",
        ),
        (
            &["driver", "470.82.01"],
            0,
            "driver 470.82.01 is CUDA 11.4: runs CUDA 11.x and older; branch 470 (lts), without support since 2024-07",
        ),
        (
            &["driver", "R580"],
            0,
            "driver 580 is CUDA 13.0: runs CUDA 13.x and older; branch 580 (lts), with support until 2028-06",
        ),
        (
            &["driver", "387.26"],
            0,
            "driver 387.26: CUDA 9.0 to 9.1, runs CUDA 9.0 and older",
        ),
        (
            &["driver", "999.10"],
            1,
            "unknown: driver 999.10 is newer than the matrix",
        ),
        (
            &["driver", "551.61"],
            1,
            "unknown: 551.61 is the number of a Windows driver",
        ),
        (
            &["driver", "551.61", "--os", "wsl"],
            0,
            "Windows driver 551.61: CUDA 12.4, runs CUDA 12.x and older",
        ),
        (
            &["gpu", "RTX 5090"],
            0,
            "GeForce RTX 5090 has compute capability 12.0 (Blackwell): it takes driver branch 570 or newer, and CUDA 12.8 or newer builds for it",
        ),
        (
            &["gpu", "10de:2b85"],
            0,
            "GeForce RTX 5090 has compute capability 12.0",
        ),
        (
            &["gpu", "sm_120"],
            0,
            "sm_120 has compute capability 12.0 (Blackwell)",
        ),
        (
            &["gpu", "NVIDIA A100-SXM4-80GB"],
            0,
            "A100 SXM4 80GB has compute capability 8.0",
        ),
        (
            &["gpu", "K80"],
            0,
            "Tesla K80 has compute capability 3.7 (Kepler): it takes driver branch 470 at the newest, and CUDA 6.5 to 11.8 builds for it",
        ),
        (
            &["gpu", "10de:3340"],
            1,
            "unknown: GB120 is known (Blackwell), but its compute capability is not",
        ),
        (
            &["gpu", "10de:2209"],
            1,
            "unknown: `10de:2209` is unknown: the id is not in pci.ids",
        ),
        (
            &["gpu", "10de:1af1"],
            1,
            "unknown: `10de:1af1` is unknown: it is no GPU but an NVSwitch",
        ),
        (
            &["gpu", "1002:744c"],
            1,
            "unknown: `1002:744c` is unknown: vendor 1002 is not NVIDIA",
        ),
        (
            &["gpu", "RTX 9090"],
            1,
            "unknown: `RTX 9090` is unknown: no product",
        ),
    ] {
        let ran = ask(args);
        assert_eq!(
            (ran.code, ran.err.as_str()),
            (code, ""),
            "{args:?}: {}",
            ran.out
        );
        assert!(
            ran.first_line().starts_with(line),
            "{args:?}\n{}\n{line}",
            ran.first_line()
        );
        let json = ask(&[args, &["--format", "json"]].concat()).json();
        let word = json["answer"].as_str().unwrap();
        assert_eq!(word == "known", code == 0, "{args:?}");
        let cited = json["facts"].as_array().unwrap();
        assert!(
            cited
                .iter()
                .all(|fact| fact["source"].is_string() && fact["confidence"].is_string())
        );
    }
}

#[test]
fn a_wrong_call_is_told() {
    for (args, needle) in [
        (&["driver", "12.4"][..], "three digits"),
        (&["driver", "new"], "no driver version"),
        (&["cuda", "550.54.14"], "looks like a driver's"),
        (&["cuda", "12.4-rc1"], "no CUDA version"),
        (&["gpu", "sm_"], "no architecture"),
        (&["gpu", "10de:xyz"], "no PCI id"),
        (&["can"], "two of driver, CUDA version and GPU"),
        (
            &["can", "--cuda", "12.4"],
            "two of driver, CUDA version and GPU",
        ),
        (&["can", "--target", "drivers=535"], "unknown key `drivers`"),
        (&["can", "--target", "driver=535,driver=550"], "given twice"),
        (
            &["can", "--target", "driver=535", "--driver", "550"],
            "`driver` is given twice",
        ),
        (
            &["can", "--target", "gpu=A100", "--gpu", "L40S"],
            "`gpu` is given twice",
        ),
        (&["can", "--target", ""], "has no `=`"),
        (&["torch", "2"], "no version of PyTorch"),
        (&["torch", "2.7+gpu"], "no version of PyTorch"),
        (&["cudnn", "9"], "a major version"),
        (
            &["can", "--torch", "2.7"],
            "two of driver, CUDA version and GPU",
        ),
        (
            &["can", "--torch", "2.7", "--cuda", "12.4"],
            "cannot be used with",
        ),
        (
            &["can", "--target", "driver=535,torch=2.7,cuda=12.4"],
            "PyTorch brings the CUDA version",
        ),
        (
            &["can", "--cudnn", "9.8", "--driver", "535", "--cuda", "12.4"],
            "cuDNN is held against a GPU",
        ),
    ] {
        let ran = ask(args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}");
        assert!(ran.err.contains(needle), "{args:?}: {}", ran.err);
    }
}

/// A branch, a toolkit and a PTX ISA that came after the bundled tables.
const NEWER: &str = r#"schema = 1
as_of = "2027-02-01"

[[driver_branch]]
branch = 640
level = 13060
level_by = "pairing"
kind = "new-feature"
oldest_arch = "Turing"
newest_arch = ["Rubin"]
source = "release notes of CUDA 13.6"
confidence = "verified"

[[toolkit]]
cuda = "13.6.0"
label = "13.6 GA"
branch = 640
driver_bundled = false
level = 13060
source = "release notes of CUDA 13.6"
confidence = "verified"
"#;

/// A home with an overlay in the configuration folder; the folder with the tables.
fn home() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config/gpudoctor/matrix");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("cuda-driver.toml"), NEWER).unwrap();
    fs::write(folder.join("README"), "not a table").unwrap();
    // Whatever the umask of the caller is.
    mode(&folder, 0o755);
    mode(folder.parent().unwrap(), 0o755);
    mode(&folder.join("cuda-driver.toml"), 0o644);
    (home, folder)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

const NEW_DRIVER: [&str; 5] = ["matrix", "driver", "640.10", "--format", "json"];

fn overlays(ran: &Ran) -> Vec<(String, u64)> {
    let json = ran.json();
    let overlays = json["matrix"]["overlays"].as_array().unwrap();
    overlays
        .iter()
        .map(|overlay| {
            assert_eq!(overlay["sha256"].as_str().unwrap().len(), 64);
            let path = overlay["path"].as_str().unwrap().to_owned();
            (path, overlay["rows"].as_u64().unwrap())
        })
        .collect()
}

#[test]
fn rows_of_ones_own_count_and_are_named() {
    let (home, folder) = home();
    let own = [("HOME", home.path())];
    let named = ("~/.config/gpudoctor/matrix/cuda-driver.toml".to_owned(), 2);

    let ran = run(&NEW_DRIVER, &own);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(overlays(&ran), std::slice::from_ref(&named));
    let text = run(&["matrix", "driver", "640.10"], &own);
    assert!(text.first_line().contains("CUDA 13.6"), "{}", text.out);
    assert!(
        text.out.contains("(overlay cuda-driver.toml)"),
        "{}",
        text.out
    );
    let hash = ran.json()["matrix"]["overlays"][0]["sha256"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(text.out.contains(&hash), "{}", text.out);

    // Every report names it: the check's as well, in both formats.
    let root = tempfile::tempdir().unwrap();
    let root = root.path().to_str().unwrap();
    let report = run(&["check", "--root", root, "--format", "json"], &own);
    assert_eq!(overlays(&report), std::slice::from_ref(&named));
    let text = run(&["check", "--root", root], &own);
    assert!(text.out.contains(&hash), "{}", text.out);
    let shown = run(
        &["check", "--root", root, "--format", "json", "--no-redact"],
        &own,
    );
    assert_eq!(
        overlays(&shown)[0].0,
        folder.join("cuda-driver.toml").to_str().unwrap()
    );

    // XDG_CONFIG_HOME goes first; a relative one does not count.
    let elsewhere = tempfile::tempdir().unwrap();
    let ran = run(
        &NEW_DRIVER,
        &[("HOME", home.path()), ("XDG_CONFIG_HOME", elsewhere.path())],
    );
    assert_eq!((ran.code, overlays(&ran)), (1, vec![]));
    let ran = run(
        &NEW_DRIVER,
        &[("HOME", home.path()), ("XDG_CONFIG_HOME", Path::new("x"))],
    );
    assert_eq!(overlays(&ran), [named]);

    // In CI only where it is asked for, and the same bytes have the same hash.
    let ci = [("HOME", home.path()), ("CI", Path::new("true"))];
    let ran = run(&NEW_DRIVER, &ci);
    assert_eq!((ran.code, overlays(&ran)), (1, vec![]));
    let dir = folder.to_str().unwrap();
    let ran = run(&[&NEW_DRIVER[..], &["--matrix", dir]].concat(), &ci);
    assert_eq!(ran.code, 0);
    assert_eq!(ran.json()["matrix"]["overlays"][0]["sha256"], *hash);
}

/// Rows that others could have written decide nothing, and that is said.
#[test]
fn a_folder_that_others_can_write_to_does_not_count() {
    let refused = |home: &Path, why: &str| {
        let ran = run(&NEW_DRIVER, &[("HOME", home)]);
        assert_eq!((ran.code, overlays(&ran)), (1, vec![]), "{why}");
        assert!(
            ran.err.contains("not used") && ran.err.contains(why),
            "{}",
            ran.err
        );
    };
    let (place, folder) = home();
    for bits in [0o775, 0o757, 0o777] {
        mode(&folder, bits);
        refused(place.path(), "others can write to a folder there");
    }
    mode(&folder, 0o755);
    mode(folder.parent().unwrap(), 0o777);
    refused(place.path(), "others can write to a folder there");
    mode(folder.parent().unwrap(), 0o755);
    mode(&folder.join("cuda-driver.toml"), 0o666);
    refused(place.path(), "others can write to a file there");
    mode(&folder.join("cuda-driver.toml"), 0o600);
    assert_eq!(run(&NEW_DRIVER, &[("HOME", place.path())]).code, 0);

    // Another owner: root can give the folder away; anybody else has root's folders for that.
    let (place, folder) = home();
    if chown(&folder, Some(1), None).is_err() {
        fs::remove_dir_all(&folder).unwrap();
        symlink("/etc", &folder).unwrap();
    }
    refused(place.path(), "belongs to another user");
}

#[test]
fn an_overlay_that_cannot_be_used_ends_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let call = || run(&["matrix", "driver", "640.10", "--matrix", dir], &[]);
    let distro = "schema = 1\n[[distro_package]]\nos = \"debian\"\npurpose = \"driver\"\npackages = [\"x\"]\ncommands = [[\"reboot\"]]\nsource = \"somebody\"\nconfidence = \"verified\"\n";
    for (name, text, needles) in [
        (
            "cuda-driver.toml",
            NEWER.replace("kind =", "kin ="),
            &["line 8", "[[driver_branch]]", "`kin`"][..],
        ),
        (
            "cuda-driver.toml",
            NEWER.replace("[[toolkit]]", "[[tool]]"),
            &["line 14", "`tool`"],
        ),
        (
            "cuda-driver.toml",
            NEWER.replace("\"13.6.0\"", "\"13,6\""),
            &["line 15", "`cuda`", "13,6"],
        ),
        (
            "cuda-driver.toml",
            NEWER.replace("13.6.0", "13.7.0"),
            &["does not hold", "[[toolkit]] 13.7.0"],
        ),
        (
            "cuda-driver.toml",
            NEWER.replace("confidence", "note = \"x\"\nconfidence"),
            &["`note`", "no texts"],
        ),
        ("cuda-driver.toml", "\u{0}".to_owned(), &["line 1"]),
        (
            "distros.toml",
            distro.to_owned(),
            &["[[distro_package]]", "no commands"],
        ),
        ("drivers.toml", NEWER.to_owned(), &["no file of the matrix"]),
    ] {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        let ran = call();
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{needles:?}");
        assert!(ran.err.contains(&format!("{dir}/{name}")), "{}", ran.err);
        for needle in needles {
            assert!(ran.err.contains(needle), "{needle}: {}", ran.err);
        }
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
        fs::remove_file(&file).unwrap();
    }
    assert!(call().err.contains("no table"));
    fs::create_dir(folder.path().join("gpus.toml")).unwrap();
    assert!(call().err.contains("gpus.toml: is no regular file"));
    let ran = run(&["check", "--matrix", "/nonexistent"], &[]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("`/nonexistent`"), "{}", ran.err);
    // A bad file in the user's own folder ends the call as well: half an overlay would be worse.
    let (home, folder) = home();
    fs::write(folder.join("cuda-driver.toml"), "schema = 2\n").unwrap();
    let ran = run(&NEW_DRIVER, &[("HOME", home.path())]);
    assert_eq!(
        (ran.code, ran.err.contains("schema 2")),
        (2, true),
        "{}",
        ran.err
    );
}

/// Programs that bring their own CUDA: by range of releases, by image.
#[test]
fn ollama_and_triton_server_are_known_by_release() {
    for (args, code, line) in [
        (
            ["ollama", "0.9.2"],
            0,
            "Ollama 0.9.2 has back ends for CUDA 11.3 and CUDA 12.8",
        ),
        (
            ["ollama", "0.31.0"],
            0,
            "Ollama 0.31.0 has back ends for CUDA 12.8 and CUDA 13.0 and asks for driver 550 or newer",
        ),
        (
            ["ollama", "0.1.40"],
            1,
            "unknown: Ollama 0.1.40 is not in the matrix",
        ),
        (
            ["tritonserver", "25.10"],
            0,
            "images 25.10 of Triton Inference Server bring CUDA 12.9.1 and CUDA 13.0.2",
        ),
        (
            ["tritonserver", "19.03"],
            1,
            "unknown: release 19.03 of Triton Inference Server is not in the matrix",
        ),
    ] {
        let ran = ask(&args);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.out);
        assert!(ran.first_line().starts_with(line), "{}", ran.first_line());
    }
}

/// A requirement as images have it, with its name, in pieces, beside others; the first line, and how much of a long value is told.
#[test]
fn what_an_image_asks_of_its_host() {
    const A100: [&str; 2] = ["--target", "driver=550.54.14,gpu=A100"];
    for (words, code, line) in [
        (
            &["cuda>=12.4"][..],
            0,
            "yes: the host meets the requirement: cuda>=12.4",
        ),
        (
            &["NVIDIA_REQUIRE_CUDA=cuda>=12.8"],
            1,
            "no: the host does not meet the requirement: cuda>=12.8",
        ),
        (
            &[
                "NVIDIA_REQUIRE_CUDA=cuda>=12.8",
                "brand=nvidia,driver>=550,driver<551",
                "brand=tesla,driver>=550,driver<551",
            ],
            0,
            "yes: the host meets the requirement: brand=nvidia,driver>=550,driver<551 or brand=tesla",
        ),
        (
            &["NVIDIA_REQUIRE_A=arch>=9.0", "CUDA_VERSION=12.4.1"],
            1,
            "no: NVIDIA_REQUIRE_A: the host does not meet the requirement: arch>=9.0",
        ),
        (
            &["cuda>=13.0", "NVIDIA_DISABLE_REQUIRE=true"],
            0,
            "yes: nobody checks: NVIDIA_DISABLE_REQUIRE=true switches it off",
        ),
        (&["NVIDIA_VISIBLE_DEVICES=all"], 2, ""),
    ] {
        let ran = ask(&[&["require"], words, &A100].concat());
        assert_eq!(ran.code, code, "{words:?}: {}", ran.err);
        assert!(
            ran.first_line().starts_with(line),
            "{words:?}: {}",
            ran.first_line()
        );
    }
    let mut value = "cuda>=13.1".to_owned();
    for branch in [535, 550, 570, 575, 580] {
        for brand in ["unknown", "grid", "tesla", "nvidia", "quadro"] {
            let below = branch + 1;
            let term = format!(" brand={brand},driver>={branch},driver<{below}");
            value.push_str(&term);
        }
    }
    let target = ["--target", "driver=560.35.03,gpu=T4"];
    let short = ask(&[&["require", value.as_str()], &target[..]].concat());
    let long = ask(&[&["require", "-v", value.as_str()], &target[..]].concat());
    let terms = |ran: &Ran| ran.out.matches(": not met: ").count();
    assert_eq!((terms(&short), terms(&long)), (6, 26), "{}", short.out);
    assert!(
        short.out.contains("branch 535, 550, 570, 575 or 580"),
        "{}",
        short.out
    );
    let json = ask(&[
        &["require", value.as_str(), "--format", "json"],
        &target[..],
    ]
    .concat())
    .json();
    assert_eq!(json["why"].as_array().unwrap().len(), 26);
}
