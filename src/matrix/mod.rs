//! The compatibility knowledge: which runtime needs which driver, what a driver brings, which GPU is what, and what runs
//! where. Every row carries its source and how far it can be trusted.
//!
//! The knowledge itself is data, in `compat-matrix/*.toml`; here are its types, its look-ups and its linter. The tables are
//! bundled, and each is parsed when it is first asked for, so that a check pays only for what it uses. Nothing here reads
//! the machine, opens a file or knows the date.

mod compat;
mod containers;
mod cuda;
mod distros;
mod frameworks;
mod gpus;
mod icds;
mod intel;
mod libraries;
pub mod lint;
mod overlay;
mod platforms;
mod rocm;
mod rows;
mod table;
mod targets;
mod toolchain;
mod torch;
mod wheels;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, OnceLock};

pub use compat::{
    Compat, CompatBuild, CompatFit, CompatLibrary, CompatNote, ForwardCompat, refused_for_certain,
};
pub use containers::{CdiKind, ToolkitFlaw};
pub use cuda::{
    DriverBranch, EndOfLife, Family, KernelModules, LevelBy, MinimumDriver, PtxIsa, Toolkit,
};
pub use distros::{DistroLibc, DistroPackage, Purpose};
pub use frameworks::{
    BitsandbytesRelease, JaxPlugin, NgcImage, OllamaRelease, OnnxruntimeRelease, Pins, Released,
    TensorflowRelease, TorchArchs, TorchInstall, TorchRelease, TritonServer, VllmRelease,
    XformersRelease, nearest,
};
pub use gpus::{Arch, Chip, Generation, Gpu, NvSwitch, OpenModule};
pub use icds::IcdRow;
pub use intel::IntelGpu;
pub use libraries::{
    Cudnn, CudnnFiles, Nccl, Soname, Tensorrt, ToolkitComponents, cudnn_answer, cudnn_of_answer,
};
pub use overlay::{Overlay, OverlayError, OverlayFile};
pub use platforms::{BrandList, ImageRequirement, Jetson, JetsonBoard, JetsonUpgrade, VgpuSeries};
pub use rocm::{GfxOverride, GfxRow, RocmDistribution, RocmDriver};
pub use rows::{Capability, Confidence, Note};
pub use targets::{BinaryRule, CodeFit, CodeTargets, CompatBorder, Fit, Scope, Target};
pub use toolchain::{Glibc, HostCompiler, PtxasTargets, SharedMath};
pub use torch::{Machine, TorchBuild, TorchWanted, cuda_of_torch_tag, torch_tag};
pub use wheels::{
    CpuSetting, CudnnCheck, LibrariesExtra, Opens, Wheel, WheelFor, WheelPlatform, WheelPython,
};

/// The bundled files: name and text. A table lies in one of them.
const FILES: [(&str, &str); 11] = [
    (
        CUDA_DRIVER,
        include_str!("../../compat-matrix/cuda-driver.toml"),
    ),
    (GPUS, include_str!("../../compat-matrix/gpus.toml")),
    (
        TOOLCHAIN,
        include_str!("../../compat-matrix/toolchain.toml"),
    ),
    (
        PLATFORMS,
        include_str!("../../compat-matrix/platforms.toml"),
    ),
    (
        CONTAINERS,
        include_str!("../../compat-matrix/containers.toml"),
    ),
    (DISTROS, include_str!("../../compat-matrix/distros.toml")),
    (
        LIBRARIES,
        include_str!("../../compat-matrix/libraries.toml"),
    ),
    (
        FRAMEWORKS,
        include_str!("../../compat-matrix/frameworks.toml"),
    ),
    (ROCM, include_str!("../../compat-matrix/rocm.toml")),
    (ICDS, include_str!("../../compat-matrix/icds.toml")),
    (INTEL, include_str!("../../compat-matrix/intel.toml")),
];
const CUDA_DRIVER: &str = "cuda-driver.toml";
const GPUS: &str = "gpus.toml";
const TOOLCHAIN: &str = "toolchain.toml";
const PLATFORMS: &str = "platforms.toml";
const CONTAINERS: &str = "containers.toml";
const DISTROS: &str = "distros.toml";
const LIBRARIES: &str = "libraries.toml";
const FRAMEWORKS: &str = "frameworks.toml";
const ROCM: &str = "rocm.toml";
const ICDS: &str = "icds.toml";
const INTEL: &str = "intel.toml";

/// The only schema of the files that this version reads.
const SCHEMA: u32 = 1;

/// Declares the tables: a lazily parsed field, an accessor, and the list that validation and the linter walk.
macro_rules! tables {
    ($($(#[$doc:meta])* $field:ident: $file:ident, $name:literal, $row:ty;)*) => {
        /// All tables, each parsed when it is first asked for.
        pub struct Matrix {
            texts: [(&'static str, Cow<'static, str>); FILES.len()],
            overlays: Vec<Overlay>,
            /// GPUs that were looked up: every rule asks for the same few.
            gpus_seen: Mutex<BTreeMap<u16, Option<Gpu>>>,
            /// Chips are looked up in the parsed table: an overlay added to it, and its text is not the whole.
            chips_added: bool,
            $($field: OnceLock<Vec<$row>>,)*
        }

        /// File and name of every table.
        const TABLES: &[(&str, &str)] = &[$(($file, $name),)*];

        impl Matrix {
            fn of_texts(texts: [(&'static str, Cow<'static, str>); FILES.len()]) -> Self {
                Self { texts, overlays: Vec::new(), gpus_seen: Mutex::default(), chips_added: false, $($field: OnceLock::new(),)* }
            }

            /// Parses every table that is not parsed yet.
            fn parse_all(&self) -> Result<(), String> {
                $(if self.$field.get().is_none() {
                    let rows = table::parse($file, self.text($file), $name)?;
                    self.$field.get_or_init(|| rows);
                })*
                Ok(())
            }

            /// Calls `f` with file, table and every row.
            fn each_row(&self, f: &mut dyn FnMut(&str, &str, &dyn rows::AnyRow)) {
                $(for row in self.$field() {
                    f($file, $name, row);
                })*
            }

            $($(#[$doc])*
            pub fn $field(&self) -> &[$row] {
                self.$field.get_or_init(|| {
                    table::parse($file, self.text($file), $name).expect("bundled tables are parsed by a test, others when they come in")
                })
            })*
        }
    };
}

tables! {
    /// The runtime's own test and the documented floor, by major version of CUDA; oldest first.
    families: CUDA_DRIVER, "family", Family;
    /// Driver branches, oldest first.
    driver_branches: CUDA_DRIVER, "driver_branch", DriverBranch;
    /// Toolkit releases, oldest first.
    toolkits: CUDA_DRIVER, "toolkit", Toolkit;
    /// On which older branches a compat package works.
    forward_compat_rows: CUDA_DRIVER, "forward_compat", ForwardCompat;
    /// Builds of libcuda seen in compat packages.
    compat_builds: CUDA_DRIVER, "compat_build", CompatBuild;
    /// Notes read in compat libraries.
    compat_notes: CUDA_DRIVER, "compat_note", CompatNote;
    /// PTX ISA versions, oldest first.
    ptx_isas: CUDA_DRIVER, "ptx_isa", PtxIsa;
    /// What the driver tables cannot say in columns.
    cuda_notes: CUDA_DRIVER, "note", Note;
    /// Architectures by capability.
    archs: GPUS, "arch", Arch;
    /// Where the rules of [`Matrix::cubin_fits`] and [`Matrix::ptx_fits`] come from.
    binary_rules: GPUS, "binary_rule", BinaryRule;
    /// Borders across which those rules are not sure.
    compat_borders: GPUS, "compat_border", CompatBorder;
    /// `NVSwitches`.
    nvswitches: GPUS, "nvswitch", NvSwitch;
    /// Chips with all their PCI ids: 1,500 rows. [`Matrix::gpu`] looks one id up without parsing them.
    chips: GPUS, "chip", Chip;
    /// Targets of ptxas by toolkit.
    ptxas_target_rows: TOOLCHAIN, "ptxas_targets", PtxasTargets;
    /// Host compilers by toolkit.
    host_compilers: TOOLCHAIN, "host_compiler", HostCompiler;
    /// What NVIDIA's files need of glibc.
    glibc: TOOLCHAIN, "glibc", Glibc;
    /// Functions that both the C library and a toolkit declare.
    shared_math: TOOLCHAIN, "shared_math", SharedMath;
    /// What the compiler tables cannot say in columns.
    toolchain_notes: TOOLCHAIN, "note", Note;
    /// Jetson releases, oldest first.
    jetsons: PLATFORMS, "jetson", Jetson;
    /// Jetson boards.
    jetson_boards: PLATFORMS, "jetson_board", JetsonBoard;
    /// CUDA upgrade packages of `JetPack` series.
    jetson_upgrades: PLATFORMS, "jetson_upgrade", JetsonUpgrade;
    /// Series of vGPU profiles.
    vgpu_series_rows: PLATFORMS, "vgpu_series", VgpuSeries;
    /// What official CUDA images ask of the host's driver.
    image_requirements: PLATFORMS, "image_require", ImageRequirement;
    /// The brand lists that [`ImageRequirement::brands`] names.
    brand_lists: PLATFORMS, "brand_list", BrandList;
    /// What the platform tables cannot say in columns.
    platform_notes: PLATFORMS, "note", Note;
    /// Known holes of NVIDIA's container toolkit, in the order in which they were mended.
    toolkit_flaws: CONTAINERS, "toolkit_flaw", ToolkitFlaw;
    /// Kinds of CDI devices that are NVIDIA GPUs.
    cdi_kinds: CONTAINERS, "cdi_kind", CdiKind;
    /// Packages of distributions.
    distro_package_rows: DISTROS, "distro_package", DistroPackage;
    /// C and C++ libraries of distributions.
    distro_libcs: DISTROS, "distro_libc", DistroLibc;
    /// cuDNN, by major version of CUDA, oldest first.
    cudnns: LIBRARIES, "cudnn", Cudnn;
    /// The files of a cuDNN.
    cudnn_file_rows: LIBRARIES, "cudnn_files", CudnnFiles;
    /// Builds of NCCL, oldest first.
    nccls: LIBRARIES, "nccl", Nccl;
    /// `TensorRT`, oldest first.
    tensorrts: LIBRARIES, "tensorrt", Tensorrt;
    /// Sonames by major version of CUDA.
    sonames: LIBRARIES, "soname", Soname;
    /// The libraries of toolkit releases, as wheels.
    toolkit_component_rows: LIBRARIES, "toolkit_components", ToolkitComponents;
    /// Packages that bring libraries, by CUDA version and name.
    wheels: LIBRARIES, "wheel", Wheel;
    /// What the tables of libraries cannot say in columns.
    library_notes: LIBRARIES, "note", Note;
    /// Releases of `PyTorch`, oldest first.
    torch_releases: FRAMEWORKS, "torch_release", TorchRelease;
    /// Device code in `PyTorch`'s builds.
    torch_arch_rows: FRAMEWORKS, "torch_archs", TorchArchs;
    /// How installers take one build of `PyTorch`.
    torch_installs: FRAMEWORKS, "torch_install", TorchInstall;
    /// Releases of `TensorFlow`, oldest first.
    tensorflow_releases: FRAMEWORKS, "tensorflow_release", TensorflowRelease;
    /// JAX plugins by major version of CUDA, oldest first.
    jax_plugins: FRAMEWORKS, "jax_plugin", JaxPlugin;
    /// Releases of ONNX Runtime for CUDA, oldest first.
    onnxruntime_releases: FRAMEWORKS, "onnxruntime_release", OnnxruntimeRelease;
    /// Releases of vLLM, oldest first.
    vllm_releases: FRAMEWORKS, "vllm_release", VllmRelease;
    /// Releases of xFormers, oldest first.
    xformers_releases: FRAMEWORKS, "xformers_release", XformersRelease;
    /// Releases of bitsandbytes, oldest first.
    bitsandbytes_releases: FRAMEWORKS, "bitsandbytes_release", BitsandbytesRelease;
    /// What releases ask of other packages.
    pins: FRAMEWORKS, "pins", Pins;
    /// Images of NGC, oldest first.
    ngc_images: FRAMEWORKS, "ngc_image", NgcImage;
    /// Extras that bring the libraries of a framework, by name.
    libraries_extras: FRAMEWORKS, "libraries_extra", LibrariesExtra;
    /// Platform tags of wheels, by package, machine and release.
    wheel_platforms: FRAMEWORKS, "wheel_platform", WheelPlatform;
    /// Pythons that wheels are for, by package and release.
    wheel_python_rows: FRAMEWORKS, "wheel_python", WheelPython;
    /// Libraries that frameworks open by name.
    opened: FRAMEWORKS, "opens", Opens;
    /// What frameworks say of a cuDNN that is too old.
    cudnn_checks: FRAMEWORKS, "cudnn_check", CudnnCheck;
    /// Variables that take a framework off the GPU.
    cpu_settings: FRAMEWORKS, "cpu_setting", CpuSetting;
    /// Releases of Ollama, oldest first.
    ollama_releases: FRAMEWORKS, "ollama_release", OllamaRelease;
    /// Images of Triton Inference Server, oldest first.
    triton_servers: FRAMEWORKS, "triton_server", TritonServer;
    /// What the tables of frameworks cannot say in columns.
    framework_notes: FRAMEWORKS, "note", Note;
    /// Instruction sets of AMD's GPUs, in the order of their numbers.
    gfx_targets: ROCM, "gfx_target", GfxRow;
    /// Instruction sets for which code of another one is known to run.
    gfx_overrides: ROCM, "gfx_override", GfxOverride;
    /// Distributions that are of use on AMD's GPUs alone, by the start of their names.
    rocm_distributions: ROCM, "rocm_distribution", RocmDistribution;
    /// Releases of `ROCm` that go with a driver of AMD's packages, oldest first.
    rocm_drivers: ROCM, "rocm_driver", RocmDriver;
    /// Drivers of Vulkan and `OpenCL`, by library.
    icds: ICDS, "icd", IcdRow;
    /// Intel's GPUs by name.
    intel_gpus: INTEL, "intel_gpu", IntelGpu;
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matrix")
            .field("as_of", &self.as_of())
            .finish_non_exhaustive()
    }
}

impl Matrix {
    /// The matrix that this build carries. Nothing is parsed yet.
    pub fn bundled() -> Self {
        Self::of_texts(FILES.map(|(name, text)| (name, Cow::Borrowed(text))))
    }

    /// A matrix with other texts in place of the bundled files of the same names (`cuda-driver.toml` ...), all parsed.
    ///
    /// # Errors
    /// One line with file, line and table of the first thing that cannot be used: an unknown file, table or key, a row
    /// that lacks a key or holds a wrong value, a table whose rows do not stand together, another schema.
    pub fn from_tables(files: &[(&str, &str)]) -> Result<Self, String> {
        let mut texts = FILES.map(|(name, text)| (name, Cow::Borrowed(text)));
        for (name, text) in files {
            let slot = texts.iter_mut().find(|(known, _)| known == name);
            let (_, slot) =
                slot.ok_or_else(|| format!("`{}` is no file of the matrix", name.escape_debug()))?;
            *slot = Cow::Owned((*text).to_owned());
        }
        let matrix = Self::of_texts(texts);
        for (file, text) in &matrix.texts {
            let known = TABLES
                .iter()
                .filter(|(of, _)| of == file)
                .map(|(_, table)| *table)
                .collect::<Vec<_>>();
            table::check_layout(file, text, &known)?;
            let head = table::head(file, text)?;
            if head.schema != SCHEMA {
                return Err(format!(
                    "{file}: schema {} is not {SCHEMA}, the one this version reads",
                    head.schema
                ));
            }
        }
        matrix.parse_all()?;
        Ok(matrix)
    }

    /// The date of the knowledge, `YYYY-MM-DD`: that of the CUDA and driver tables, which age first.
    pub fn as_of(&self) -> &str {
        table::as_of(self.text(CUDA_DRIVER))
    }

    /// What was added to the bundled tables; none without an overlay.
    pub fn overlays(&self) -> &[Overlay] {
        &self.overlays
    }

    /// Where the PCI ids come from: `pci.ids 2026.10.24`.
    pub fn pci_edition(&self) -> String {
        table::head(GPUS, self.text(GPUS))
            .ok()
            .and_then(|head| head.edition)
            .unwrap_or_default()
    }

    fn text(&self, file: &str) -> &str {
        self.texts
            .iter()
            .find(|(name, _)| *name == file)
            .map_or("", |(_, text)| text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bundled_file_is_parsed() {
        Matrix::from_tables(&[]).unwrap();
        let matrix = Matrix::bundled();
        matrix.parse_all().unwrap();
        assert_eq!(matrix.as_of().len(), "2026-12-01".len());
        assert!(matrix.pci_edition().starts_with("pci.ids 20"));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let bundled = |file: &str| FILES.iter().find(|(name, _)| *name == file).unwrap().1;
        let cuda = bundled(CUDA_DRIVER);
        let broken = |from: &str, to: &str| {
            assert!(cuda.contains(from), "{from}");
            Matrix::from_tables(&[(CUDA_DRIVER, &cuda.replacen(from, to, 1))]).unwrap_err()
        };
        for (error, needles) in [
            (
                broken("min_level = 11000", "min_levl = 11000"),
                &["[[family]]", "line 2", "min_levl"][..],
            ),
            (
                broken("min_driver = \"450.80.02\"", "min_driver = \"new\""),
                &["[[family]]", "`new` is no version"],
            ),
            (broken("[[ptx_isa]]", "[[ptx]]"), &["unknown table", "ptx"]),
            (
                broken("[[compat_note]]", "[[family]]"),
                &["[[family]]", "stand together"],
            ),
            (
                broken("confidence = \"verified\"", "confidence = \"certain\""),
                &["[[family]]", "certain"],
            ),
            (
                broken("branch = 340", "branch = "),
                &["cuda-driver.toml", "line"],
            ),
            (broken("schema = 1", "schema = 2"), &["schema 2"]),
            (broken("\nas_of", "\nasof"), &["asof"]),
            (
                Matrix::from_tables(&[("drivers.toml", "")]).unwrap_err(),
                &["drivers.toml"],
            ),
            (
                Matrix::from_tables(&[(DISTROS, "schema = 1\nas_of = \"2026-12-01\"\n")])
                    .unwrap_err(),
                &["distro_package"],
            ),
        ] {
            assert!(
                needles.iter().all(|needle| error.contains(needle)),
                "{error}"
            );
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
