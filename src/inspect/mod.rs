//! What a file holds, as far as it can be told without running it: what `gpudoctor inspect` writes, as plain data.
//!
//! `look` reads one file, `gather` finds the files (folders, wheels, environments), `judge` holds them against a target.
//! Nothing is executed or loaded, and links under another root never lead out of it.

mod advice;
pub mod gather;
mod image;
mod judge;
mod look;
mod target;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use image::variables as variables_of;
pub use image::{
    Compat, DriverFile, ImageFacts, Layer, Looked, OwnKind, OwnLibcuda, Package, TakenBy, Toolkit,
};
pub use judge::glibc_not_known;
pub use judge::{
    Brought, by_minor_version, judge, merged, of_file, of_files, of_image, of_machine, unmet,
};
pub use look::look;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use target::{Machine, MachineGpu, has_musl, machine_of_host, machine_of_target};

use crate::diagnosis::Verdict;
use crate::facts::GfxCode;
use crate::finding::Finding;
use crate::read::fatbin::{Codes, DeviceCode, Packing};
use crate::version::Version;

/// The processor family that this build runs on, as Rust names it.
pub const ARCH: &str = std::env::consts::ARCH;

/// The schema. Fields are added, never renamed; a breaking change takes `/2`.
pub const SCHEMA: &str = "gpudoctor.inspection/1";

/// Everything that one call found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Inspection {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of gpudoctor.
    pub version: String,
    /// The files that were named, and of folders, wheels and environments those that have to do with the GPU.
    pub files: Vec<File>,
    /// Folders, wheels, environments and images that were looked into.
    pub containers: Vec<Container>,
    /// How many files were looked at.
    pub looked_at: u64,
    /// What could not be read, in words.
    pub problems: Vec<String>,
    /// Against what it was judged, in words; absent where neither a target nor a GPU is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The verdict, in the report's form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The findings, in the report's form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub findings: Option<Vec<Finding>>,
}

/// A folder, a wheel, an environment or an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Container {
    /// Its path.
    pub path: String,
    /// `folder`, `wheel`, `python-environment`, `image`.
    pub kind: String,
    /// The distribution that a wheel is.
    pub package: Option<String>,
    /// The names of what a wheel requires.
    #[serde(default)]
    pub requires: Vec<String>,
    /// How many files in it were looked at.
    pub looked_at: u64,
    /// How many of them have to do with the GPU.
    pub listed: u64,
    /// What an image holds beside its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Box<ImageFacts>>,
}

/// What a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A program.
    Program,
    /// A shared library; a Python extension is one.
    SharedLibrary,
    /// An object file.
    Object,
    /// A static library.
    StaticLibrary,
    /// A kernel module.
    KernelModule,
    /// The memory of a process that died.
    Core,
    /// A fat binary on its own.
    Fatbin,
    /// A cubin on its own.
    Cubin,
    /// PTX text.
    Ptx,
    /// No bytes.
    Empty,
    /// An ELF file that is shorter than its headers say.
    Truncated,
    /// A text that stands for a file that Git LFS keeps elsewhere.
    GitLfsPointer,
    /// Could not be read.
    Unreadable,
    /// Something else.
    #[default]
    Other,
}

/// One file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct File {
    /// Its path; of a member of a wheel or an image, that one's path, `!`, and the path in it.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// The same in words, with what is wrong with it.
    pub description: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// `x86_64`, `aarch64` ...
    pub arch: Option<String>,
    /// Which library of the stack it is.
    pub identity: Option<Identity>,
    /// The name that other files need it by.
    pub soname: Option<String>,
    /// The build id in lower-case hexadecimal.
    pub build_id: Option<String>,
    /// The loader it asks for.
    pub interpreter: Option<String>,
    /// `DT_RPATH` as written.
    pub rpath: Option<String>,
    /// `DT_RUNPATH` as written.
    pub runpath: Option<String>,
    /// What it needs, and where that comes from here.
    pub needed: Vec<Needed>,
    /// Version nodes and symbols that the libraries found here do not have.
    pub missing: Vec<Missing>,
    /// Linked device code.
    pub archs: Archs,
    /// The versions of the PTX language in it.
    pub ptx_isa: Vec<Version>,
    /// Device code that is still to be linked.
    pub relocatable: Archs,
    /// Device code outside the sections for it; only `--deep` looks for that.
    pub stray: BTreeMap<String, Archs>,
    /// Sets of targets of the modules of linked code, and how many modules have them.
    pub modules: Vec<Module>,
    /// Numbers of the device code.
    pub device: Device,
    /// The CUDA runtime it uses.
    pub runtime: Runtime,
    /// The toolkits that built its cubins, as `major.minor`.
    pub toolkits: Vec<Version>,
    /// How it uses libcuda: `needed`, `dlopen` or `none`.
    pub libcuda: Use,
    /// How it uses libnvidia-ml.
    pub libnvidia_ml: Use,
    /// The least glibc.
    pub glibc: Option<Version>,
    /// The least libstdc++, by its symbols.
    pub glibcxx: Option<Version>,
    /// The least C++ ABI, by its symbols.
    pub cxxabi: Option<Version>,
    /// How a Go program was built.
    pub go: Option<Go>,
    /// What a kernel module says about itself.
    pub module: Option<KernelModule>,
    /// The distribution that brought it: `nvidia-cublas-cu12 12.8.4.1`.
    pub package: Option<String>,
    /// It holds code of AMD's `ROCm`.
    pub rocm: bool,
    /// For which of AMD's GPUs that code is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gfx: Option<GfxCode>,
    /// What is not as it should be in it.
    pub problems: Vec<String>,
}

/// Which library of the stack a file is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Identity {
    /// `libcublasLt`.
    pub name: String,
    /// Its exact version, where the file tells.
    pub version: Option<Version>,
    /// Where the version was read.
    pub source: String,
    /// The CUDA version that it says it was built for.
    pub cuda: Option<Version>,
}

/// A needed library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Needed {
    /// As it is needed.
    pub soname: String,
    /// The file that the loader takes here; absent where it finds none, or where nothing was looked up.
    pub resolved: Option<String>,
    /// How it is found: `RPATH of FILE`, `LD_LIBRARY_PATH`, `RUNPATH`, `ld.so.cache`, `default folder`, `not found`.
    pub by: String,
}

/// What a library that was found does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// The library as it is needed.
    pub soname: String,
    /// The file that the loader takes.
    pub library: String,
    /// The version node `GLIBC_2.34`, or the symbol.
    pub what: String,
}

/// Targets of device code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Archs {
    /// Of cubins: `sm_80`.
    pub elf: Vec<String>,
    /// Of PTX: `compute_90`.
    pub ptx: Vec<String>,
}

/// Modules with the same targets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Module {
    /// How many.
    pub count: u64,
    /// Targets of their cubins.
    pub elf: Vec<String>,
    /// Targets of their PTX, each with its version: `compute_90 (8.4)`.
    pub ptx: Vec<Ptx>,
}

/// PTX for one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ptx {
    /// `compute_90`.
    pub target: String,
    /// 8.4.
    pub isa: Version,
}

/// Numbers of the device code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Device {
    /// Containers in `.nv_fatbin`, or in the file where it is a fat binary.
    pub containers: u64,
    /// Cubins of linked code.
    pub elf: u64,
    /// PTX of linked code.
    pub ptx: u64,
    /// Cubins that are still to be linked.
    pub relocatable_elf: u64,
    /// PTX that is still to be linked.
    pub relocatable_ptx: u64,
    /// Targets of code for link-time optimisation.
    pub lto: Vec<String>,
    /// Entries that are not packed.
    pub unpacked: u64,
    /// Entries packed by LZ4.
    pub lz4: u64,
    /// Entries packed by zstd.
    pub zstd: u64,
    /// How many cubins were asked for their toolkit; `--deep` asks all.
    pub toolkits_of: u64,
    /// How many cubins there are.
    pub cubins: u64,
}

/// The CUDA runtime of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Runtime {
    /// How it is used.
    pub linkage: Linkage,
    /// Its version: of a shared one what its soname tells, of a static one major and minor (inferred from its code).
    pub version: Option<Version>,
    /// The needed file of a shared one.
    pub library: Option<String>,
    /// The soname it was linked as, where the file was renamed since.
    pub linked_as: Option<String>,
}

impl Runtime {
    /// The CUDA version that it stands for. All of 11.x is called `libcudart.so.11.0`: that says 11 and no more.
    pub fn cuda(&self) -> Option<Version> {
        let version = self.version.as_ref()?;
        let only_major = self.linkage == Linkage::Dynamic && version.major() == 11;
        Some(if only_major {
            Version::parse("11")?
        } else {
            version.clone()
        })
    }
}

impl Missing {
    /// Whether it is a library that is missing, which another one needs; else a version node or symbol.
    pub fn is_library(&self) -> bool {
        self.what.starts_with("needs ")
    }
}

/// How a runtime is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Linkage {
    /// Shared.
    Dynamic,
    /// Inside the file.
    Static,
    /// Opened by the file itself.
    Dlopen,
    /// Not at all.
    #[default]
    None,
}

/// How a library of the driver is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Without it the file does not load.
    Needed,
    /// Opened where it is there.
    Dlopen,
    /// Not at all.
    #[default]
    None,
}

/// How a Go program was built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Go {
    /// `go1.19.8`.
    pub version: String,
    /// The package of `main`.
    pub path: Option<String>,
    /// Modules that have to do with the GPU, with their versions.
    pub modules: BTreeMap<String, String>,
    /// How many modules there are.
    pub module_count: u64,
}

/// What a kernel module says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelModule {
    /// Its name in the kernel.
    pub name: Option<String>,
    /// Its version: of NVIDIA's, the driver's.
    pub version: Option<String>,
    /// The kernel it was built for.
    pub vermagic: Option<String>,
    /// `NVIDIA`, `Dual MIT/GPL`.
    pub license: Option<String>,
    /// Whether a signature is appended.
    pub signed: bool,
}

impl File {
    /// Whether it has to do with the GPU: what of a folder or a wheel is worth a line.
    pub fn is_gpu(&self) -> bool {
        self.has_device_code()
            || self.rocm
            || self.identity.is_some()
            || self.runtime.linkage != Linkage::None
            || self.libcuda != Use::None
            || self.libnvidia_ml != Use::None
            || self
                .module
                .as_ref()
                .is_some_and(|m| m.name.as_deref().is_some_and(|n| n.starts_with("nvidia")))
            || self
                .needed
                .iter()
                .any(|needed| is_cuda_library(&needed.soname))
    }

    /// Whether there is device code of CUDA in it.
    pub fn has_device_code(&self) -> bool {
        [&self.archs, &self.relocatable]
            .into_iter()
            .chain(self.stray.values())
            .any(|archs| !archs.elf.is_empty() || !archs.ptx.is_empty())
            || !self.device.lto.is_empty()
    }

    /// Whether it is what it claims to be, and whole.
    pub fn is_damaged(&self) -> bool {
        matches!(
            self.kind,
            Kind::Empty | Kind::Truncated | Kind::GitLfsPointer | Kind::Unreadable
        )
    }

    fn take_device_code(&mut self, code: &DeviceCode) {
        self.archs = Archs::of(&code.executable);
        self.relocatable = Archs::of(&code.relocatable);
        self.stray = code
            .stray
            .iter()
            .map(|(name, codes)| (name.clone(), Archs::of(codes)))
            .collect();
        self.ptx_isa = code
            .ptx_isas()
            .iter()
            .filter_map(|isa| Version::parse(&isa.to_string()))
            .collect();
        // What runs is the linked code; an object file has only the other.
        let runs = if code.executable.is_empty() {
            &code.relocatable
        } else {
            &code.executable
        };
        self.modules = runs
            .modules
            .iter()
            .map(|(targets, count)| Module {
                count: *count,
                elf: targets.elf.iter().map(|arch| arch.sm()).collect(),
                ptx: targets
                    .ptx
                    .iter()
                    .filter_map(|(arch, isa)| {
                        Some(Ptx {
                            target: arch.compute(),
                            isa: Version::parse(&isa.to_string())?,
                        })
                    })
                    .collect(),
            })
            .collect();
        let packed = |packing| code.packings.get(&packing).copied().unwrap_or(0);
        let lto: BTreeSet<_> = code.places().flat_map(|codes| codes.lto.keys()).collect();
        self.device = Device {
            containers: code.executable.containers,
            elf: code.executable.elf.values().sum(),
            ptx: code.executable.ptx.values().sum(),
            relocatable_elf: code.relocatable.elf.values().sum(),
            relocatable_ptx: code.relocatable.ptx.values().sum(),
            lto: lto.into_iter().map(|arch| format!("lto_{arch}")).collect(),
            unpacked: packed(Packing::None),
            lz4: packed(Packing::Lz4),
            zstd: packed(Packing::Zstd),
            toolkits_of: code.asked.0,
            cubins: code.asked.1,
        };
        self.toolkits = code.toolkits.iter().cloned().collect();
        self.rocm = code.rocm;
        self.problems.extend(code.problems.iter().cloned());
    }
}

impl Archs {
    fn of(codes: &Codes) -> Self {
        Self {
            elf: codes.elf.keys().map(|arch| arch.sm()).collect(),
            ptx: codes
                .ptx_archs()
                .iter()
                .map(|arch| arch.compute())
                .collect(),
        }
    }
}

/// Whether a needed name is a library of the CUDA stack or of the driver.
pub fn is_cuda_library(soname: &str) -> bool {
    const STEMS: &[&str] = &[
        "libcuda",
        "libcudart",
        "libcublas",
        "libcudnn",
        "libcufft",
        "libcurand",
        "libcusolver",
        "libcusparse",
        "libnccl",
        "libnvrtc",
        "libnvJitLink",
        "libnvidia-",
        "libnvinfer",
        "libnpp",
        "libnvjpeg",
        "libcupti",
        "libnvToolsExt",
        "libnvshmem",
        "libcufile",
        "libtorch_cuda",
        "libc10_cuda",
        "libcutensor",
        "libcudss",
        "libnvcomp",
    ];
    STEMS.iter().any(|stem| soname.starts_with(stem))
}
