//! Files as pip, uv, poetry, conda and pixi write them, and what is read of them.

use super::*;

/// Name, version, local version, index, build and place of each pin.
fn pins(path: &str, text: &str) -> Vec<String> {
    let mut manifest = read(path, text).unwrap();
    from_indexes(&mut manifest.pins, &manifest.indexes);
    let shown = |pin: &Pin| {
        let version = pin.version.as_ref().map_or("?", Version::as_str);
        let part = |sign: &str, value: &Option<String>| {
            value
                .as_ref()
                .map_or(String::new(), |v| format!("{sign}{v}"))
        };
        format!(
            "{} {version}{}{}{} {}",
            pin.name,
            part("+", &pin.local),
            part(" from ", &pin.index),
            part(" = ", &pin.build),
            pin.place.rsplit(':').next().unwrap()
        )
    };
    manifest.pins.iter().map(shown).collect()
}

#[test]
fn requirements_of_pip() {
    let text = "\
# a comment
--extra-index-url https://download.pytorch.org/whl/cu126
torch==2.7.1 \\
    --hash=sha256:00 \\
    --hash=sha256:11   # via app
Torch_Vision == 0.22.1+cu126 ; sys_platform == 'linux'
torch==2.7.1 ; sys_platform == 'darwin'
jax[cuda12]==0.6.2
numpy
vllm>=0.10
onnxruntime-gpu @ https://example.com/onnxruntime_gpu-1.23.2-cp312-cp312-manylinux_2_27_x86_64.whl
https://example.com/whl/cu128/torch-2.8.0%2Bcu128-cp312-cp312-linux_x86_64.whl
-e .
./local
-r more.txt
-c constraints.txt
";
    assert_eq!(
        pins("requirements.txt", text),
        [
            "torch 2.7.1 from cu126 3",
            "torch-vision 0.22.1+cu126 6",
            "jax 0.6.2 from cu126 8",
            "numpy ? from cu126 9",
            "vllm ? from cu126 10",
            "onnxruntime-gpu 1.23.2 from cu126 11",
            "torch 2.8.0+cu128 12",
        ]
    );
    let manifest = read("requirements.txt", text).unwrap();
    assert_eq!(
        manifest.includes,
        [
            ("more.txt".to_owned(), false),
            ("constraints.txt".to_owned(), true)
        ]
    );
    assert!(manifest.problems.is_empty(), "{:?}", manifest.problems);
    let jax = manifest.pins.iter().find(|pin| pin.name == "jax").unwrap();
    assert_eq!(jax.extras, ["cuda12"]);
}

#[test]
fn locks_of_uv_and_poetry() {
    let uv = r#"
version = 1
resolution-markers = ["sys_platform == 'darwin'", "sys_platform == 'linux'"]

[[package]]
name = "torch"
version = "2.7.1"
source = { registry = "https://example.com/simple" }
resolution-markers = ["sys_platform == 'darwin'"]

[[package]]
name = "torch"
version = "2.7.1+cu128"
source = { registry = "https://download.pytorch.org/whl/cu128" }
resolution-markers = ["sys_platform == 'linux'"]
wheels = [{ url = "https://example.com/torch-2.7.1%2Bcu128-cp312-cp312-manylinux_2_28_x86_64.whl" }]

[[package]]
name = "app"
source = { editable = "." }
"#;
    assert_eq!(pins("uv.lock", uv), ["torch 2.7.1+cu128 from cu128 12"]);
    let poetry = r#"
[[package]]
name = "nvidia-cuda-runtime-cu12"
version = "12.6.77"

[[package]]
name = "torch"
version = "2.6.0+cu124"

[package.source]
type = "legacy"
url = "https://download.pytorch.org/whl/cu124"
reference = "torch"
"#;
    assert_eq!(
        pins("sub/poetry.lock", poetry),
        [
            "nvidia-cuda-runtime-cu12 12.6.77 3",
            "torch 2.6.0+cu124 from cu124 7"
        ]
    );
    let broken = read("uv.lock", "[[package]\n").unwrap();
    assert!(broken.problems[0].starts_with("uv.lock:1: "));
}

#[test]
fn files_of_conda_and_pixi() {
    let environment = "\
name: app
channels:
  - conda-forge
dependencies:
  - python=3.12
  - pytorch::pytorch=2.5.1=py3.12_cuda12.4_cudnn9.1.0_0
  - pytorch-cuda=12.4  # from the channel
  - 'cuda-version>=12.6'
  - cudatoolkit 11.8.*
  - pip:
    - torch==2.6.0+cu124
    - --extra-index-url https://download.pytorch.org/whl/cu124
  - numpy
variables:
  X: y
";
    assert_eq!(
        pins("environment.yml", environment),
        [
            "python 3.12 5",
            "pytorch 2.5.1 = py3.12_cuda12.4_cudnn9.1.0_0 6",
            "pytorch-cuda 12.4 7",
            "cuda-version ? 8",
            "cudatoolkit 11.8 9",
            "torch 2.6.0+cu124 11",
            "numpy ? 13",
        ]
    );
    let pixi = "\
environments:
  default:
    packages:
      linux-64:
      - conda: https://conda.example.com/conda-forge/linux-64/pytorch-2.7.0-cuda126_mkl_py312_h30b5a27_300.conda
      - conda: https://conda.example.com/conda-forge/noarch/cuda-version-12.6-h7480c83_3.conda
      osx-arm64:
      - conda: https://conda.example.com/conda-forge/osx-arm64/pytorch-2.7.0-cpu_generic_py312_1.conda
packages:
- conda: https://conda.example.com/conda-forge/linux-64/pytorch-2.7.0-cuda126_mkl_py312_h30b5a27_300.conda
- pypi: https://files.example.com/packages/aa/torch-2.7.1-cp312-cp312-manylinux_2_28_x86_64.whl
- pypi: https://files.example.com/packages/aa/torch-2.7.2-cp312-none-macosx_11_0_arm64.whl
";
    assert_eq!(
        pins("pixi.lock", pixi),
        [
            "pytorch 2.7.0 = cuda126_mkl_py312_h30b5a27_300 5",
            "cuda-version 12.6 = h7480c83_3 6",
            "torch 2.7.1 11",
        ]
    );
    assert!(
        !read("environment.yml", "a: b\n")
            .unwrap()
            .problems
            .is_empty()
    );
}

#[test]
fn other_files_are_none() {
    for path in ["notes.txt", "setup.py", "ci.yml", "Cargo.lock"] {
        assert!(!is_manifest(path), "{path}");
    }
    for path in [
        "requirements-dev.txt",
        "requirements/prod.txt",
        "a/conda-lock.yml",
    ] {
        assert!(is_manifest(path), "{path}");
    }
}

proptest::proptest! {
    #[test]
    fn any_text_is_taken(
        name in proptest::sample::select(vec!["requirements.txt", "uv.lock", "environment.yml", "pixi.lock"]),
        text in "((-r|--index-url|torch|==|=|\\[|\\]|;|@|- |pip:|dependencies:|https://|/linux-64/|.conda|.whl|\\+cu126|\\\\\n|\n|\\PC){0,3} ?){0,12}"
    ) {
        let _ = read(name, &text);
    }
}
