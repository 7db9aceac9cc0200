//! The framework layer: what the consumer computes with, for which CUDA it was built, and the device code it really holds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{GfxCode, Reading};
use crate::version::Version;

/// Frameworks, their companions and extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FrameworkFacts {
    /// Those that the consumer's environment brings, torch first; present and empty where it brings none.
    pub frameworks: Reading<Vec<Framework>>,
}

/// One framework, companion or extension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Framework {
    /// What it is, whatever its distribution is called: `torch`, `onnxruntime`, `flash-attn`, `jax-cuda-plugin`.
    pub name: String,
    /// The distribution that brought it: `onnxruntime-gpu`; absent where no record names one.
    pub distribution: Reading<String>,
    /// Its version: of torch as `version.py` has it (`2.8.0+cu128`), else as its distribution has it.
    pub version: Reading<String>,
    /// The folder it is installed in: site-packages, or the folder of a program.
    pub site: String,
    /// Who installed it: `pip`, `uv`, `conda`.
    pub installer: Reading<String>,
    /// The CUDA version that it was built for. Absent: its own files say that it was built without CUDA.
    pub cuda: Reading<Version>,
    /// The `ROCm` version that it was built for; absent where it was not.
    pub hip: Reading<Version>,
    /// What says that it was built for Intel's GPUs: `20250301`, the release of oneAPI's compiler, or the library that is for them.
    /// Absent where it was not.
    pub xpu: Reading<String>,
    /// Its GPU library: the file whose device code and needs are told here.
    pub library: Reading<String>,
    /// Files that stand where this library, or one beside it that it needs, should be, and are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<DamagedLibrary>,
    /// Sonames that the library needs, in order.
    pub needed: Vec<String>,
    /// Of those the ones that carry a CUDA major version (libcudart, libcublas, libcublasLt), and where a copy lies.
    pub cuda_needs: Vec<CudaNeed>,
    /// C++ symbols of torch that the library uses and that no library of the torch beside it defines.
    pub lacking: Reading<Vec<String>>,
    /// CUDA libraries of the environment's own folders that it opens by name and does not reach: neither its search path
    /// nor the loader's leads there. Looked for where a framework searches in such folders (`TensorFlow`).
    pub out_of_reach: Reading<Vec<String>>,
    /// The device code in the library.
    pub code: Reading<DeviceCode>,
    /// The code for AMD's GPUs in the library; absent where it has none.
    pub gfx: Reading<GfxCode>,
    /// What its metadata asks of other parts that matter here: `torch==2.8.0`. Markers are kept.
    pub requires: Vec<String>,
    /// CUDA versions for which it brings a library each (bitsandbytes).
    pub variants: Vec<Version>,
    /// The compilers of device code that it brings and starts for each kernel (Triton): those that it takes here.
    pub assemblers: Reading<Vec<Assembler>>,
    /// Its back ends for CUDA, of which it takes one that runs (Ollama). Absent: it has none.
    pub runners: Reading<Vec<Runner>>,
    /// The torch that its compiled operators were built with (`DeepSpeed`). Absent: it has none that are compiled.
    pub operators: Reading<Operators>,
}

/// A compiler from PTX to machine code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Assembler {
    /// Where it lies.
    pub path: String,
    /// Whether it is taken for compute capability 10.0 and later alone, in place of the other one.
    pub only_blackwell: bool,
    /// What names it where it is not the one that was brought along: `TRITON_PTXAS_PATH`.
    pub named_by: Option<String>,
    /// The CUDA release that it is of.
    pub version: Reading<Version>,
}

/// A back end for one CUDA version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Runner {
    /// Its folder: `/usr/local/lib/ollama/cuda_v12`.
    pub folder: String,
    /// The CUDA version that it was built for.
    pub cuda: Reading<Version>,
    /// The device code in its library.
    pub code: Reading<DeviceCode>,
}

/// What operators were compiled with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Operators {
    /// Their names: `fused_adam`.
    pub names: Vec<String>,
    /// The torch, by its minor version: 2.1.
    pub torch: Version,
    /// The CUDA of that torch; `None` where it had none.
    pub cuda: Option<Version>,
}

/// A library of the CUDA toolkit that a framework's library needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CudaNeed {
    /// `libcudart.so.12`.
    pub soname: String,
    /// Where a file of that name lies that a process of the consumer can get: the environment's folders,
    /// `LD_LIBRARY_PATH`, the loader's cache and default folders. Absent: in none of them.
    pub found: Reading<String>,
    /// The same library of another major version, where one lies in those folders: `libcudart.so.13`.
    pub others: Vec<String>,
}

/// The device code that a library holds, as far as it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceCode {
    /// Targets of machine code: `sm_80`, `sm_90a`.
    pub elf: Vec<String>,
    /// Targets of PTX.
    pub ptx: Vec<PtxCode>,
    /// Whether all of it was looked at: only then is what is not listed not there.
    pub complete: bool,
}

/// PTX for one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PtxCode {
    /// `compute_90`.
    pub target: String,
    /// The version of the PTX language.
    pub isa: Version,
}

/// A file that stands where a library should be and is none, by its headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DamagedLibrary {
    /// Where it lies.
    pub path: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// What kind of file it is.
    pub kind: super::FileKind,
}
