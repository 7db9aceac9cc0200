//! Real environments, made by venv and pip and then broken on purpose: what is installed is read right to the last
//! version, each fault is named in its layer, and after each repair it is quiet again. The search path is held against
//! what Python itself says.
//!
//! Wheels come from `target/parts/inspect`, where other tests have fetched them; those that only have to be in each
//! other's way are made here. Where pip or a wheel cannot be had a test says so and passes, but under `CI` it fails.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "test code: it makes environments and starts python3 and the program"
)]

#[path = "inspect/parts.rs"]
#[allow(dead_code, reason = "other tests take single files out of wheels")]
mod parts;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpudoctor");
/// The ids that these tests are about.
const OURS: [&str; 4] = [
    "distribution-files-missing",
    "distribution-overwritten",
    "requirement-absent",
    "requirement-not-met",
];

/// The header of a shared library for `x86_64` and nothing else: a library that is whole by its own headers.
const ELF_HEADER: &str = "\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0\
    \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
    \0\0\0\0\x40\0\x38\0\0\0\x40\0\0\0\0\0";

/// A folder with a virtual environment in it.
struct Lab {
    place: tempfile::TempDir,
    prefix: PathBuf,
}

/// Runs a program; what it prints.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

impl Lab {
    fn new(options: &[&str]) -> Self {
        let place = tempfile::tempdir().unwrap();
        // Python resolves links in what it says of itself.
        let prefix = place.path().canonicalize().unwrap().join("venv");
        run(Command::new("python3")
            .args(["-m", "venv", "--without-pip"])
            .args(options)
            .arg(&prefix));
        Self { place, prefix }
    }

    fn pip(&self, words: &[&str]) -> String {
        run(Command::new("python3")
            .args(["-m", "pip", "--disable-pip-version-check"])
            .arg("--python")
            .arg(self.prefix.join("bin/python3"))
            .args(words)
            .env("PIP_ROOT_USER_ACTION", "ignore"))
    }

    fn install(&self, wheels: &[&Path]) {
        let mut words = vec![
            "install",
            "--no-deps",
            "--no-index",
            "--no-compile",
            "--force-reinstall",
        ];
        words.extend(wheels.iter().map(|wheel| wheel.to_str().unwrap()));
        self.pip(&words);
    }

    /// The one folder of its packages.
    fn site(&self) -> PathBuf {
        let lib = self.prefix.join("lib");
        let python = fs::read_dir(lib).unwrap().next().unwrap().unwrap().path();
        python.join("site-packages")
    }

    /// A wheel that is made here: its version, what it requires, its files with their texts.
    fn wheel(
        &self,
        name: &str,
        version: &str,
        requires: &[&str],
        files: &[(&str, &str)],
    ) -> PathBuf {
        let stem = format!("{}-{version}", name.replace('-', "_"));
        let folder = self.place.path().join(format!("make-{stem}"));
        let requires: Vec<String> = requires
            .iter()
            .map(|line| format!("Requires-Dist: {line}\n"))
            .collect();
        let requires = requires.concat();
        let info = format!("{stem}.dist-info");
        let metadata =
            format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}");
        let kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: py3-none-any\n";
        let mut record = String::new();
        let all = [
            (format!("{info}/METADATA"), metadata.as_str()),
            (format!("{info}/WHEEL"), kind),
        ];
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), *text));
        for (path, text) in files.chain(all) {
            let file = folder.join(&path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
            let line = format!("{path},,{}\n", text.len());
            record.push_str(&line);
        }
        record.push_str(&info);
        record.push_str("/RECORD,,\n");
        fs::write(folder.join(&info).join("RECORD"), record).unwrap();
        let wheel = self.place.path().join(format!("{stem}-py3-none-any.whl"));
        let tops = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        run(Command::new("python3")
            .args(["-m", "zipfile", "-c"])
            .arg(&wheel)
            .args(tops)
            .current_dir(&folder));
        wheel
    }

    /// The program in this environment, with nothing of the caller's.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(words)
            .args(["--no-redact", "--static"])
            .env_clear()
            .env(
                "PATH",
                format!("{}/bin:/usr/bin:/bin", self.prefix.display()),
            )
            .env("HOME", self.place.path().canonicalize().unwrap())
            .env("VIRTUAL_ENV", &self.prefix)
            .current_dir(self.place.path());
        command
    }

    fn report(&self, variables: &[(&str, &Path)]) -> Value {
        let mut command = self.command(&["check", "--format", "json"]);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    fn facts(&self, variables: &[(&str, &Path)]) -> Value {
        self.report(variables)["facts"].clone()
    }

    /// What these tests are about: id, severity, layer and title of each finding.
    fn found(&self, variables: &[(&str, &Path)]) -> Vec<[String; 4]> {
        let report = self.report(variables);
        let findings = report["findings"].as_array().unwrap().iter();
        findings
            .filter(|finding| OURS.contains(&finding["id"].as_str().unwrap()))
            .map(|finding| {
                ["id", "severity", "layer", "title"]
                    .map(|key| finding[key].as_str().unwrap().to_owned())
            })
            .collect()
    }

    /// Fails where something else is found than one finding with these words in its title.
    fn expect(&self, after: &str, id: &str, severity: &str, layer: &str, words: &[&str]) {
        let found = self.found(&[]);
        let [one] = found.as_slice() else {
            panic!("{after}: {found:?}");
        };
        assert_eq!(one[..3], [id, severity, layer], "{after}: {}", one[3]);
        for word in words {
            assert!(one[3].contains(word), "{after}: no {word} in: {}", one[3]);
        }
    }

    fn expect_quiet(&self, after: &str) {
        assert_eq!(self.found(&[]), <[[String; 4]; 0]>::default(), "{after}");
    }
}

/// The distributions in a snapshot: name, then version, installer and how many libraries it recorded.
fn distributions(facts: &Value) -> BTreeMap<String, (String, String, usize)> {
    let all = facts["python"]["distributions"]["present"]["value"]
        .as_array()
        .unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.iter()
        .map(|dist| {
            let files = &dist["files"]["present"]["value"];
            let installer = text(&dist["installer"]["present"]["value"]);
            let row = (
                text(&dist["version"]),
                installer,
                files.as_array().unwrap().len(),
            );
            (text(&dist["name"]), row)
        })
        .collect()
}

#[test]
fn what_pip_installed_is_read_to_the_last_version() {
    let lab = Lab::new(&[]);
    let wheels: Vec<PathBuf> = [
        ("nvidia-cuda-runtime-cu12", "12.4.127"),
        ("nvidia-cuda-runtime", "13.5.37"),
        ("nvidia-nvjitlink-cu12", "12.4.127"),
        ("bitsandbytes", "0.50.2"),
        ("torchvision", "0.29.2"),
    ]
    .iter()
    .filter_map(|(name, version)| parts::wheel(name, version, "3.11"))
    .collect();
    if wheels.len() < 5 {
        return;
    }
    let wheels: Vec<&Path> = wheels.iter().map(PathBuf::as_path).collect();
    lab.install(&wheels);
    let facts = lab.facts(&[]);
    let found = distributions(&facts);
    let pip: Value = serde_json::from_str(&lab.pip(&["list", "--format=json"])).unwrap();
    let pip: BTreeMap<&str, &str> = pip
        .as_array()
        .unwrap()
        .iter()
        .map(|dist| {
            (
                dist["name"].as_str().unwrap(),
                dist["version"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(found.len(), 5, "{found:?}");
    for (name, (version, installer, libraries)) in &found {
        assert_eq!(pip[name.as_str()], version, "{name}");
        assert_eq!(installer, "pip", "{name}");
        assert!(*libraries > 0, "{name}");
    }
    for dist in facts["python"]["distributions"]["present"]["value"]
        .as_array()
        .unwrap()
    {
        assert_eq!(
            (&dist["missing"], &dist["changed"]),
            (&Value::from([(); 0]), &Value::from([(); 0])),
            "{dist}"
        );
        for file in dist["files"]["present"]["value"].as_array().unwrap() {
            let size = fs::metadata(file["path"].as_str().unwrap()).unwrap().len();
            assert_eq!(file["size_bytes"], size, "{file}");
        }
    }
    assert_eq!(
        facts["python"]["shared"]["present"]["value"],
        Value::from([(); 0])
    );
    // torchvision was installed without what it requires.
    lab.expect(
        "no torch",
        "requirement-absent",
        "error",
        "framework",
        &["torchvision 0.29.2", "torch"],
    );
    lab.pip(&["uninstall", "--yes", "torchvision"]);
    lab.expect_quiet("a new environment");

    let library = lab.site().join("nvidia/cuda_runtime/lib/libcudart.so.12");
    fs::remove_file(library).unwrap();
    lab.expect(
        "deleted",
        "distribution-files-missing",
        "warning",
        "libraries",
        &["nvidia-cuda-runtime-cu12 12.4.127", "libcudart.so.12"],
    );
    lab.install(&wheels[..1]);
    lab.expect_quiet("installed again");
}

#[test]
fn each_fault_is_named_and_gone_when_it_is_mended() {
    let lab = Lab::new(&[]);
    let library = "nvidia/nccl/lib/libnccl.so.2";
    let linux = "nvidia-nccl-cu12==2.21.5; platform_system == 'Linux'";
    let torch = lab.wheel(
        "torch",
        "2.6.0",
        &[linux, "nvidia-nvtx-cu12==1; platform_system == 'Windows'"],
        &[
            ("torch/version.py", "__version__ = '2.6.0'\ncuda = '12.4'\n"),
            ("torch/lib/libtorch_global.so", "torch"),
        ],
    );
    let cu12 = lab.wheel(
        "nvidia-nccl-cu12",
        "2.21.5",
        &[],
        &[(library, "for CUDA 12, 2.21.5")],
    );
    let older = lab.wheel(
        "nvidia-nccl-cu12",
        "2.20.5",
        &[],
        &[(library, "for CUDA 12, 2.20.5 ")],
    );
    let newer = lab.wheel(
        "nvidia-nccl-cu12",
        "2.27.3",
        &[],
        &[(library, "for CUDA 12, 2.27.3  ")],
    );
    let cu11 = lab.wheel(
        "nvidia-nccl-cu11",
        "2.14.3",
        &[],
        &[(library, "for CUDA 11")],
    );
    lab.install(&[&torch, &cu12]);
    lab.expect_quiet("a new environment");

    lab.install(&[&cu11]);
    let wrong = [
        "nvidia-nccl-cu11 2.14.3",
        "nvidia-nccl-cu12 2.21.5",
        "torch 2.6.0",
    ];
    lab.expect(
        "cu11 over cu12",
        "distribution-overwritten",
        "error",
        "libraries",
        &wrong,
    );
    lab.install(&[&cu12]);
    lab.expect(
        "cu12 over cu11",
        "distribution-overwritten",
        "note",
        "libraries",
        &["that of nvidia-nccl-cu12 2.21.5 lies there"],
    );
    lab.pip(&["uninstall", "--yes", "nvidia-nccl-cu11"]);
    let gone = ["nvidia-nccl-cu12 2.21.5", "torch 2.6.0", "libnccl.so.2"];
    lab.expect(
        "cu11 uninstalled",
        "distribution-files-missing",
        "error",
        "libraries",
        &gone,
    );
    lab.install(&[&cu12]);
    lab.expect_quiet("cu12 installed again");

    lab.install(&[&older]);
    lab.expect(
        "an older one",
        "requirement-not-met",
        "warning",
        "libraries",
        &[
            "nvidia-nccl-cu12 2.20.5 is older",
            "torch 2.6.0",
            "==2.21.5",
        ],
    );
    lab.install(&[&newer]);
    lab.expect(
        "a newer one",
        "requirement-not-met",
        "note",
        "libraries",
        &["nvidia-nccl-cu12 2.27.3 is newer"],
    );
    lab.pip(&["uninstall", "--yes", "nvidia-nccl-cu12"]);
    lab.expect(
        "none",
        "requirement-absent",
        "warning",
        "libraries",
        &["nvidia-nccl-cu12==2.21.5", "torch 2.6.0"],
    );
    lab.install(&[&cu12]);
    lab.expect_quiet("the right one");

    fs::remove_file(lab.site().join("torch/lib/libtorch_global.so")).unwrap();
    lab.expect(
        "torch's own library",
        "distribution-files-missing",
        "error",
        "framework",
        &["torch 2.6.0", "libtorch_global.so"],
    );
    lab.install(&[&torch]);
    lab.expect_quiet("torch again");

    // The libraries of this environment are texts: NVIDIA's are told as damaged all along, a framework's own one by its size.
    let damaged = || {
        let report = lab.report(&[]);
        let findings = report["findings"].as_array().unwrap().iter();
        let of_torch = findings.filter(|finding| {
            let title = finding["title"].as_str().unwrap();
            finding["id"] == "library-damaged"
                && title.contains("libtorch_global.so of torch 2.6.0")
        });
        let told: Vec<[String; 2]> = of_torch
            .map(|f| ["severity", "layer"].map(|key| f[key].as_str().unwrap().to_owned()))
            .collect();
        told
    };
    assert_eq!(damaged(), <[[String; 2]; 0]>::default());
    fs::write(lab.site().join("torch/lib/libtorch_global.so"), "").unwrap();
    assert_eq!(damaged(), [["error", "framework"].map(str::to_owned)]);
    lab.install(&[&torch]);
    assert_eq!(damaged(), <[[String; 2]; 0]>::default());

    // What an image leaves out says nothing of what is there.
    for name in ["torch-2.6.0", "nvidia_nccl_cu12-2.21.5"] {
        fs::remove_file(lab.site().join(format!("{name}.dist-info/RECORD"))).unwrap();
    }
    fs::remove_file(lab.site().join(library)).unwrap();
    lab.expect_quiet("no lists of files");
}

/// Runs the first fix of the root finding as it is printed, with pip from outside and the wheels of a folder.
fn mend(lab: &Lab, report: &Value, wheels: &Path) {
    let root = &report["verdict"]["key"];
    let findings = report["findings"].as_array().unwrap();
    let finding = findings.iter().find(|f| f["key"] == *root).unwrap();
    let commands = finding["fixes"][0]["commands"].as_array().unwrap();
    assert!(!commands.is_empty(), "{finding:#}");
    let python = lab.prefix.join("bin/python3");
    for command in commands {
        let command = command.as_str().unwrap();
        let inside = format!("{} -m pip", python.display());
        let outside = format!("python3 -m pip --python {}", python.display());
        run(Command::new("sh")
            .arg("-c")
            .arg(command.replace(&inside, &outside))
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
            .env("PIP_NO_COMPILE", "1")
            .env("PIP_ROOT_USER_ACTION", "ignore")
            .env("PIP_NO_INDEX", "1")
            .env("PIP_FIND_LINKS", wheels));
    }
}

/// The verdict: id, severity of its finding, layer; and the ids of all roots.
fn verdict(report: &Value) -> (String, String, String, usize) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let verdict = &report["verdict"];
    let findings = report["findings"].as_array().unwrap();
    let severity = findings
        .iter()
        .find(|f| f["key"] == verdict["key"])
        .map_or(String::new(), |f| text(&f["severity"]));
    (
        text(&verdict["finding"]),
        severity,
        text(&verdict["layer"]),
        verdict["roots"].as_array().unwrap().len(),
    )
}

#[test]
fn each_fault_is_mended_by_the_command_that_is_printed() {
    let lab = Lab::new(&[]);
    let real: Vec<PathBuf> = [
        ("nvidia-cuda-runtime-cu12", "12.4.127"),
        ("nvidia-nvjitlink-cu12", "12.4.127"),
    ]
    .iter()
    .filter_map(|(name, version)| parts::wheel(name, version, "3.11"))
    .collect();
    let [cudart, nvjitlink] = real.as_slice() else {
        return;
    };
    let module = "onnxruntime/capi/onnxruntime_pybind11_state.so";
    let provider = "onnxruntime/capi/libonnxruntime_providers_cuda.so";
    let info = "onnxruntime/capi/build_and_package_info.py";
    let cpu = lab.wheel(
        "onnxruntime",
        "1.23.2",
        &[],
        &[
            (module, "for the processor"),
            (
                info,
                "package_name = 'onnxruntime'\n__version__ = '1.23.2'\n",
            ),
        ],
    );
    let gpu = lab.wheel(
        "onnxruntime-gpu",
        "1.23.2",
        &[],
        &[
            (module, "for GPUs, and longer"),
            (provider, ELF_HEADER),
            (
                info,
                "package_name = 'onnxruntime-gpu'\n__version__ = '1.23.2'\ncuda_version = '12.2'\n",
            ),
        ],
    );
    // One folder has all of them, for pip.
    let wheels = lab.place.path().join("wheels");
    fs::create_dir(&wheels).unwrap();
    for wheel in [cudart, nvjitlink, &cpu, &gpu] {
        std::os::unix::fs::symlink(wheel, wheels.join(wheel.file_name().unwrap())).unwrap();
    }
    let healthy = (String::new(), String::new(), String::new(), 0);
    let check = |after: &str, id: &str, severity: &str, layer: &str| {
        let report = lab.report(&[]);
        let wanted = (id.to_owned(), severity.to_owned(), layer.to_owned(), 1);
        assert_eq!(
            verdict(&report),
            wanted,
            "{after}: {:#}",
            report["findings"]
        );
        mend(&lab, &report, &wheels);
        let report = lab.report(&[]);
        assert_eq!(
            verdict(&report),
            healthy,
            "{after}, mended: {:#}",
            report["findings"]
        );
    };
    lab.install(&[cudart, nvjitlink]);
    assert_eq!(verdict(&lab.report(&[])), healthy);

    let site = lab.site();
    let runtime = site.join("nvidia/cuda_runtime/lib/libcudart.so.12");
    let linker = site.join("nvidia/nvjitlink/lib/libnvJitLink.so.12");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    let whole = fs::read(&runtime).unwrap();
    fs::write(&runtime, &whole[..whole.len() / 2]).unwrap();
    check(
        "a runtime that is cut off",
        "runtime-library-damaged",
        "error",
        "runtime",
    );
    fs::write(&runtime, pointer).unwrap();
    check(
        "a runtime that Git LFS has not fetched",
        "runtime-library-damaged",
        "error",
        "runtime",
    );
    let whole = fs::read(&linker).unwrap();
    fs::write(&linker, &whole[..whole.len() / 2]).unwrap();
    check(
        "a library that is cut off",
        "library-damaged",
        "warning",
        "libraries",
    );
    fs::write(&linker, pointer).unwrap();
    check(
        "a library that Git LFS has not fetched",
        "library-damaged",
        "warning",
        "libraries",
    );
    fs::remove_dir_all(site.join("nvidia")).unwrap();
    check(
        "no folder nvidia",
        "distribution-files-missing",
        "warning",
        "libraries",
    );

    // Whichever pip unpacked last.
    lab.install(&[&gpu]);
    assert_eq!(verdict(&lab.report(&[])), healthy, "for GPUs alone");
    lab.install(&[&cpu]);
    check(
        "the build for the processor over that for GPUs",
        "distribution-overwritten",
        "error",
        "framework",
    );
    lab.install(&[&cpu]);
    lab.install(&[&gpu]);
    check(
        "both, and that for GPUs lies there",
        "distribution-overwritten",
        "warning",
        "framework",
    );
    lab.pip(&["uninstall", "--yes", "onnxruntime-gpu"]);
    lab.install(&[&cpu]);
    assert_eq!(
        verdict(&lab.report(&[])),
        healthy,
        "for the processor alone"
    );

    // An interrupted upgrade: the record of the version before is still there.
    let stale = site.join("nvidia_nvjitlink_cu12-12.1.105.dist-info");
    fs::create_dir(&stale).unwrap();
    let metadata = "Metadata-Version: 2.1\nName: nvidia-nvjitlink-cu12\nVersion: 12.1.105\n";
    fs::write(stale.join("METADATA"), metadata).unwrap();
    check(
        "two records",
        "distribution-recorded-twice",
        "warning",
        "libraries",
    );

    // Triton calls a compiler of its own.
    let ptxas = "triton/backends/nvidia/bin/ptxas";
    let triton = lab.wheel(
        "triton",
        "3.5.0",
        &[],
        &[(ptxas, "ptxas"), ("triton/__init__.py", "")],
    );
    std::os::unix::fs::symlink(&triton, wheels.join(triton.file_name().unwrap())).unwrap();
    lab.install(&[&triton]);
    assert_eq!(verdict(&lab.report(&[])), healthy, "triton");
    fs::remove_file(site.join(ptxas)).unwrap();
    check(
        "no ptxas",
        "distribution-files-missing",
        "warning",
        "framework",
    );
}

#[test]
fn a_second_target_install_leaves_records_without_files() {
    let lab = Lab::new(&[]);
    let first = lab.wheel(
        "nvidia-nccl-cu12",
        "2.21.5",
        &[],
        &[("nvidia/nccl/lib/libnccl.so.2", "nccl")],
    );
    let second = lab.wheel(
        "nvidia-cudnn-cu12",
        "9.1.0.70",
        &[],
        &[("nvidia/cudnn/lib/libcudnn.so.9", "cudnn")],
    );
    let target = lab.place.path().canonicalize().unwrap().join("target");
    let install = |wheel: &Path| {
        let target = target.to_str().unwrap();
        lab.pip(&[
            "install",
            "--no-deps",
            "--no-index",
            "--no-compile",
            "--target",
            target,
            wheel.to_str().unwrap(),
        ]);
    };
    let variables = [("PYTHONPATH", target.as_path())];
    install(&first);
    assert_eq!(lab.found(&variables).len(), 0);
    install(&second);
    let found = lab.found(&variables);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0][0], "distribution-files-missing");
    assert!(
        found[0][3].contains("nvidia-cudnn-cu12 9.1.0.70"),
        "{found:?}"
    );
}

/// The folders that Python says it searches, those of its own library left out.
fn python_path(lab: &Lab, variables: &[(&str, &Path)]) -> Vec<String> {
    let script = "import os, sys, sysconfig\nown = sysconfig.get_path('stdlib')\nfor p in sys.path:\n if os.path.isdir(p) and p != own and not p.endswith('lib-dynload'): print(p)";
    let mut python = Command::new(lab.prefix.join("bin/python3"));
    python
        .args(["-c", script])
        .env_clear()
        .env("HOME", lab.place.path().canonicalize().unwrap())
        .envs(variables.iter().copied())
        .current_dir("/");
    run(&mut python)
        .lines()
        .filter(|line| *line != "/")
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_search_path_is_pythons_own() {
    for options in [&[][..], &["--system-site-packages"][..]] {
        let lab = Lab::new(options);
        let home = lab.place.path().canonicalize().unwrap();
        let python = lab.site();
        let python = python
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap();
        let user = home.join(format!(".local/lib/{python}/site-packages"));
        for folder in [
            &user,
            &home.join("extra"),
            &home.join("by-pth"),
            &lab.site().join("beside"),
        ] {
            fs::create_dir_all(folder).unwrap();
        }
        let by_pth = home.join("by-pth");
        fs::write(
            lab.site().join("more.pth"),
            format!(
                "# a note\nimport sys\n{}\nbeside\nnot-there\n",
                by_pth.display()
            ),
        )
        .unwrap();
        let extra = home.join("extra");
        let nothing = Path::new("1");
        for variables in [
            &[][..],
            &[("PYTHONPATH", extra.as_path())][..],
            &[("PYTHONNOUSERSITE", nothing)][..],
        ] {
            let facts = lab.facts(variables);
            let ours = facts["consumer"]["site_packages"].as_array().unwrap();
            let ours: Vec<&str> = ours.iter().map(|path| path.as_str().unwrap()).collect();
            assert_eq!(
                ours,
                python_path(&lab, variables),
                "{options:?} {variables:?}"
            );
        }
    }
}

#[test]
fn what_else_was_seen_is_named() {
    let lab = Lab::new(&[]);
    let place = lab.place.path().canonicalize().unwrap();
    let conda = place.join("conda");
    for folder in [
        "conda/conda-meta",
        "conda/envs/train/conda-meta",
        ".venv",
        "venv",
    ] {
        fs::create_dir_all(place.join(folder)).unwrap();
    }
    fs::write(place.join(".venv/pyvenv.cfg"), "home = /usr/bin\n").unwrap();
    let facts = lab.facts(&[("CONDA_PREFIX", &conda)]);
    let consumer = &facts["consumer"];
    let place = place.display();
    assert_eq!(
        (&consumer["what"], &consumer["why"]),
        (&Value::from("./venv"), &Value::from("$VIRTUAL_ENV"))
    );
    let seen = [
        format!("{place}/conda ($CONDA_PREFIX)"),
        format!("{place}/.venv (./.venv)"),
        format!("{place}/conda/envs/train (conda environment)"),
    ];
    assert_eq!(consumer["also_found"], Value::from(seen.to_vec()));

    let gone = place.to_string() + "/gone";
    let facts = lab.facts(&[("VIRTUAL_ENV", Path::new(&gone)), ("CONDA_PREFIX", &conda)]);
    let why = facts["consumer"]["why"].as_str().unwrap();
    assert_eq!(
        why,
        format!("$CONDA_PREFIX; $VIRTUAL_ENV names {gone}, which is not there")
    );
}

/// The report of an ordinary user: as root nothing is refused.
fn report_of_user(lab: &Lab) -> Value {
    // What the user runs has to lie where the user gets.
    let program = lab.place.path().join("gpudoctor");
    let words = ["check", "--format", "json"];
    let mut command = lab.command(&words);
    if rustix::process::geteuid().is_root() {
        run(Command::new("chmod").arg("755").arg(lab.place.path()));
        if !program.exists() {
            run(Command::new("cp").arg(PROGRAM).arg(&program));
        }
        let own: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        let env: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&program)
            .args(own)
            .env_clear()
            .envs(env)
            .current_dir(lab.place.path());
    }
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn what_is_refused_is_no_absence() {
    let lab = Lab::new(&[]);
    let files = [
        ("torch/version.py", "__version__ = '2.6.0'\ncuda = '12.4'\n"),
        ("nvidia/cuda_runtime/__init__.py", ""),
    ];
    let torch = lab.wheel("torch", "2.6.0", &[], &files);
    lab.install(&[&torch]);
    let status = |report: &Value| report["verdict"]["status"].as_str().unwrap().to_owned();
    let before = status(&report_of_user(&lab));
    assert_ne!(before, "unknown");
    let site = lab.site();
    let refused = [
        site.clone(),
        site.join("nvidia/cuda_runtime"),
        site.join("torch"),
        lab.prefix.clone(),
    ];
    for path in refused {
        run(Command::new("chmod").arg("0").arg(&path));
        let report = report_of_user(&lab);
        run(Command::new("chmod").arg("755").arg(&path));
        let summary = report["verdict"]["summary"].as_str().unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(status(&report), "unknown", "{path}: {summary}");
        let words = format!("{path}: permission denied");
        assert!(summary.contains(&words), "{summary}");
    }
    assert_eq!(status(&report_of_user(&lab)), before);
}

#[test]
fn what_lies_in_pythonpath_is_mended_there() {
    let lab = Lab::new(&[]);
    let asks = ["nvidia-nccl-cu12==2.21.5"];
    let torch = lab.wheel("torch", "2.6.0", &asks, &[("torch/version.py", "")]);
    let own = lab.wheel("nvidia-nccl-cu12", "2.21.5", &[], &[]);
    let older = lab.wheel("nvidia-nccl-cu12", "2.20.5", &[], &[]);
    lab.install(&[&torch, &own]);
    lab.expect_quiet("as required");
    let other = lab.place.path().canonicalize().unwrap().join("other");
    run(Command::new("python3")
        .args(["-m", "zipfile", "-e"])
        .args([&older, &other]));
    let report = lab.report(&[("PYTHONPATH", &other)]);
    let finding = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["id"] == "requirement-not-met")
        .unwrap();
    let fixes = finding["fixes"].as_array().unwrap();
    assert_eq!(fixes.len(), 1, "{finding}");
    assert_eq!(fixes[0]["commands"], Value::from(["unset PYTHONPATH"]));
}

#[test]
fn a_pointer_of_the_recorded_size_is_no_library() {
    let lab = Lab::new(&[]);
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
    let files = [
        ("torch/version.py", "__version__ = '2.6.0'\ncuda = '12.4'\n"),
        ("torch/lib/libtorch_cuda.so", pointer),
    ];
    let torch = lab.wheel("torch", "2.6.0", &[], &files);
    lab.install(&[&torch]);
    let report = lab.report(&[]);
    let finding = report["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|finding| finding["id"] == "library-damaged")
        .unwrap();
    assert_eq!(finding["severity"], "error", "{finding}");
    let title = finding["title"].as_str().unwrap();
    assert!(title.contains("Git LFS pointer"), "{title}");
}
