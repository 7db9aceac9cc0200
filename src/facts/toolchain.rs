//! The toolchain, beside the stack: every nvcc that a build would take, the host compilers it would call, and what shows
//! that something is built here at all. Read from files; no compiler is run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reading;
use crate::version::Version;

/// Compilers of CUDA code and what they work with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolchainFacts {
    /// Every nvcc that was found, what builds take first; absent where there is none.
    pub nvcc: Reading<Vec<Nvcc>>,
    /// The variables that name a toolkit folder, and whether an nvcc lies there.
    pub homes: Reading<Vec<CudaHome>>,
    /// The host compilers that nvcc would call, and others that are installed. Not looked for where there is no nvcc.
    pub compilers: Reading<Vec<Compiler>>,
    /// Architectures that builds here are told to write code for. Not looked for where no toolkit was found or named.
    pub requests: Reading<Vec<ArchitectureRequest>>,
    /// Files that would say more of them and could not be read whole, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests_unread: Vec<String>,
    /// What shows that CUDA code is compiled here. Not looked for where no toolkit was found or named.
    pub signs: Reading<Vec<BuildSign>>,
}

/// One nvcc.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Nvcc {
    /// Where it was found: `/usr/local/cuda/bin/nvcc`.
    pub path: String,
    /// The program in the end: links followed, and through the script that Debian puts before it.
    pub program: String,
    /// What `CUDA_HOME` has to be for this one: the folder above the one it was found in.
    pub toolkit: String,
    /// Its version: (1) the text in the program, `release 12.4, V12.4.131`, (2) the version file of its toolkit.
    pub version: Reading<Version>,
    /// How it was found.
    pub found_by: Vec<NvccFoundBy>,
    /// The newest host compilers that its own `crt/host_config.h` lets pass.
    pub limits: Reading<HostLimits>,
    /// Functions that its `crt/math_functions.h` declares without exception specification, of those that newer C
    /// libraries declare with one: `cospi`, `rsqrt`.
    pub plain_math: Reading<Vec<String>>,
}

impl Nvcc {
    /// Whether it was found this way.
    pub fn is_by(&self, by: NvccFoundBy) -> bool {
        self.found_by.contains(&by)
    }
}

/// How an nvcc was found.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NvccFoundBy {
    /// `$CUDA_HOME/bin`: what `PyTorch` takes first.
    CudaHome,
    /// `$CUDA_PATH/bin`: what it takes where `CUDA_HOME` is not set.
    CudaPath,
    /// `$CUDACXX`: what `CMake` takes first.
    Cudacxx,
    /// The first one on `PATH`: what is taken where no variable names one.
    Path,
    /// `/usr/local/cuda/bin`: what `PyTorch` takes where all of these are missing.
    DefaultFolder,
    /// The environment that is examined: conda's `bin`, a wheel's `nvidia/cu13/bin`.
    Environment,
    /// Another toolkit on disk.
    Toolkit,
}

/// Architectures that a build is told to write code for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ArchitectureRequest {
    /// Where it is said: `TORCH_CUDA_ARCH_LIST`, `CMAKE_CUDA_ARCHITECTURES`, `compile_commands.json`.
    pub by: String,
    /// As it is written; a part where it is long.
    pub text: String,
    /// The file, or `environment`.
    pub source: String,
    /// The code that is written: `sm_80`, `compute_80`.
    pub written: Vec<String>,
    /// Every architecture that is named, also where no code of it stays: nvcc must know them all.
    pub named: Vec<String>,
    /// A word that leaves the choice to the tool or to the machine: `native`, `all-major`.
    pub open: Option<String>,
    /// The nvcc that the build was configured with, where that is said.
    pub nvcc: Option<String>,
}

/// A variable that names a toolkit folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CudaHome {
    /// `CUDA_HOME`, `CUDA_PATH`.
    pub variable: String,
    /// The folder that it names, as written.
    pub folder: String,
    /// Its `bin/nvcc`.
    pub nvcc: Reading<String>,
}

/// The newest host compilers that a header lets pass, by major version; `None` where it has no such test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HostLimits {
    /// The newest GCC.
    pub gcc_max: Option<u32>,
    /// The newest Clang.
    pub clang_max: Option<u32>,
}

/// A host compiler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Compiler {
    /// Where it was found: `/usr/bin/gcc`.
    pub path: String,
    /// Where that path leads in the end: `/usr/bin/x86_64-linux-gnu-gcc-12`.
    pub real_path: String,
    /// Whose it is.
    pub family: CompilerFamily,
    /// Its version, two or three numbers where the file tells, else the major one: (1) the real file's name, (2) the
    /// folder of its libraries, (3) the text in the program.
    pub version: Reading<Version>,
    /// Who would call it.
    pub used_by: Vec<CompilerUse>,
}

/// A family of host compilers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CompilerFamily {
    /// GCC.
    Gcc,
    /// Clang.
    Clang,
    /// Another one, or a script that chooses.
    #[default]
    Other,
}

impl CompilerFamily {
    /// As in speech: `gcc`, `clang`.
    pub fn id(self) -> &'static str {
        match self {
            Self::Gcc => "gcc",
            Self::Clang => "clang",
            Self::Other => "host compiler",
        }
    }
}

/// Who would call a host compiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CompilerUse {
    /// This variable names it: `NVCC_CCBIN`, `CC`.
    Variable(String),
    /// It lies beside the program of this nvcc, whose profile puts its own folder first on `PATH`.
    BesideNvcc(String),
    /// It is the `gcc` that `PATH` has first.
    Path,
    /// Nobody: it is installed, and could be named.
    Installed,
}

/// Something that shows that CUDA code is compiled here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BuildSign {
    /// What kind of sign.
    pub kind: SignKind,
    /// What it is, in words.
    pub what: String,
    /// Where it was seen.
    pub source: String,
}

/// A kind of sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SignKind {
    /// A variable that only builds read.
    Variable,
    /// The project in the working folder.
    Project,
    /// A tool in the environment that extensions are built with.
    Tool,
}
