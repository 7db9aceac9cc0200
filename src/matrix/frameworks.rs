//! Frameworks: which CUDA a release brings, what device code is in it, what it asks of others. Which build of PyTorch to
//! take instead is in `torch`.
//!
//! A version that has no row is unknown: a neighbour is named by [`nearest`], and never taken for it.

use serde::{Deserialize, Serialize};

use super::rows::{capability, optional_capability, row};
use super::{Capability, CodeTargets, Confidence, Matrix};
use crate::requirement::{Bounds, Requirement};
use crate::version::Version;

/// A release of `PyTorch`, as its wheels for `x86_64` are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TorchRelease {
    /// 2.7.1.
    pub version: Version,
    /// The CUDA version of the build on `PyPI`.
    pub cuda: Version,
    /// The CUDA versions of all builds, oldest first: `PyPI`'s and those of `PyTorch`'s own index.
    pub cudas: Vec<Version>,
    /// Where weaker than the row.
    pub cudas_confidence: Option<Confidence>,
    /// The Python versions that its METADATA asks for.
    pub requires_python: Bounds,
    /// The newest Python that there are wheels for, where known.
    pub newest_python: Option<Version>,
    /// Whether `PyPI`'s wheel for aarch64 is built for CUDA; else it is for the CPU alone.
    pub aarch64_cuda: bool,
    /// Where weaker than the row.
    pub aarch64_cuda_confidence: Option<Confidence>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(TorchRelease, |release| release.version);

impl TorchRelease {
    /// How far the list of builds can be trusted.
    pub fn cudas_confidence(&self) -> Confidence {
        self.cudas_confidence.unwrap_or(self.confidence)
    }

    /// Whether there are wheels for a Python; where its newest is not known, by the bound in METADATA alone.
    pub fn takes_python(&self, python: &Version) -> bool {
        let minor = Version::parse(&python.major_minor());
        let newest = self.newest_python.as_ref();
        self.requires_python.allow(python)
            && newest.is_none_or(|newest| minor.is_some_and(|minor| minor <= *newest))
    }
}

/// Device code in builds of `PyTorch` for one CUDA version, over several minor versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TorchArchs {
    /// The first minor version: 2.6.
    pub torch_from: Version,
    /// The last one.
    pub torch_to: Version,
    /// The CUDA version of the build.
    pub cuda: Version,
    /// What the wheels for `x86_64` hold.
    pub x86_64: CodeTargets,
    /// What the wheels for aarch64 hold; `None` where there are none, or none was looked at.
    pub aarch64: Option<CodeTargets>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(TorchArchs, |archs| format!(
    "{} to {} for CUDA {}",
    archs.torch_from, archs.torch_to, archs.cuda
));

/// How an installer takes one build of `PyTorch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TorchInstall {
    /// `pip`, `uv`.
    pub installer: String,
    /// Its words, with `{version}` and `{tag}` for those of the build.
    pub command: Vec<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(TorchInstall, |row| row.installer);

/// A release of `TensorFlow`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorflowRelease {
    /// 2.19.0.
    pub version: Version,
    /// The CUDA version that it is built with.
    pub cuda: Version,
    /// The cuDNN that it is built with, or the least that it asks for.
    pub cudnn: Version,
    /// The Python versions that it asks for.
    pub requires_python: Bounds,
    /// Whether `tensorflow[and-cuda]` brings the CUDA libraries.
    pub cuda_extra: bool,
    /// Device code in its libraries, where known.
    pub archs: Option<CodeTargets>,
    /// The least compute capability, where its release notes name it.
    #[serde(with = "optional_capability", default)]
    pub capability_min: Option<Capability>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(TensorflowRelease, |release| release.version);

/// A release of the JAX plugin that brings CUDA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JaxPlugin {
    /// 0.10.2, the version of JAX that it goes with.
    pub version: Version,
    /// `jax-cuda12-plugin`.
    pub plugin: String,
    /// The major version of its CUDA.
    pub cuda: u32,
    /// The least cuDNN that it asks for, where it asks.
    pub cudnn_min: Option<Version>,
    /// The least compute capability.
    #[serde(with = "capability")]
    pub capability_min: Capability,
    /// The Python versions that it asks for.
    pub requires_python: Bounds,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(JaxPlugin, |plugin| format!(
    "{} {}",
    plugin.plugin, plugin.version
));

/// A release of ONNX Runtime for CUDA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnnxruntimeRelease {
    /// 1.23.2.
    pub version: Version,
    /// The CUDA version that it is built with; a major version alone where no more is known.
    pub cuda: Version,
    /// The major version of cuDNN that it needs.
    pub cudnn: u32,
    /// The Python versions that it asks for, where known.
    pub requires_python: Option<Bounds>,
    /// Device code of its CUDA provider, where known.
    pub archs: Option<CodeTargets>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(OnnxruntimeRelease, |release| release.version);

/// A release of vLLM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VllmRelease {
    /// 0.10.2.
    pub version: Version,
    /// The very torch that it pins.
    pub torch: Version,
    /// The CUDA version of that torch on `PyPI`, and its own.
    pub cuda: Version,
    /// The least compute capability that its documentation names.
    #[serde(with = "optional_capability", default)]
    pub capability_min: Option<Capability>,
    /// The Python versions that it asks for.
    pub requires_python: Bounds,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(VllmRelease, |release| release.version);

/// A release of xFormers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XformersRelease {
    /// 0.0.35.
    pub version: Version,
    /// The releases of torch that it asks for.
    pub torch: Bounds,
    /// The major version of the CUDA runtime that its libraries need, where known.
    pub cuda: Option<u32>,
    /// The Python versions that it asks for.
    pub requires_python: Bounds,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(XformersRelease, |release| release.version);

/// A release of bitsandbytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BitsandbytesRelease {
    /// 0.50.2.
    pub version: Version,
    /// The CUDA versions that it has a library for.
    pub cudas: Vec<Version>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(BitsandbytesRelease, |release| release.version);

/// Releases of Ollama, as its archives for Linux on `x86_64` are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OllamaRelease {
    /// The first release of the row; it holds up to the next row.
    pub first: Version,
    /// The CUDA versions that it has a back end for.
    pub cudas: Vec<Version>,
    /// The least compute capability.
    #[serde(with = "capability")]
    pub capability_min: Capability,
    /// The driver branch that its page on hardware asks for, where it asks.
    pub min_driver: Option<u32>,
    /// The branch that older GPUs need.
    pub min_driver_old: Option<u32>,
    /// Below this capability a GPU is one of those.
    #[serde(with = "optional_capability", default)]
    pub old_below: Option<Capability>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(OllamaRelease, |release| release.first);

/// A container image of Triton Inference Server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TritonServer {
    /// Year and month: `25.03`.
    pub tag: String,
    /// Which of the images: `vllm-python-py3`, `trtllm-python-py3`.
    pub image: String,
    /// The CUDA version in it.
    pub cuda: Version,
    /// The driver that its table names for that CUDA.
    pub driver: Version,
    /// The vLLM in it, as its own version begins.
    pub vllm: Option<Version>,
    /// The `TensorRT` in it.
    pub tensorrt: Option<Version>,
    /// The `TensorRT-LLM` in it.
    pub tensorrt_llm: Option<Version>,
    /// The ONNX Runtime of that release's server.
    pub onnxruntime: Option<Version>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(TritonServer, |image| format!(
    "{} {}",
    image.tag, image.image
));

/// What a release asks of other packages: the parts of the GPU stack among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pins {
    /// The package, as indexes compare names: `torch`, `onnxruntime-gpu`.
    pub package: String,
    /// Its version.
    pub version: Version,
    /// What it asks for.
    pub requires: Vec<Requirement>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Pins, |pins| format!("{} {}", pins.package, pins.version));

/// A container image of NGC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NgcImage {
    /// Year and month: `25.03`.
    pub tag: String,
    /// The CUDA version in it.
    pub cuda: Version,
    /// The cuBLAS in it.
    pub cublas: Option<Version>,
    /// The cuDNN in it.
    pub cudnn: Option<Version>,
    /// The NCCL in it.
    pub nccl: Option<Version>,
    /// The `TensorRT` in it.
    pub tensorrt: Option<Version>,
    /// The driver branch that its release notes print; none where what they print cannot be.
    pub min_driver_printed: Option<u32>,
    /// The least compute capability.
    #[serde(with = "optional_capability", default)]
    pub capability_min: Option<Capability>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(NgcImage, |image| image.tag);

/// Something that has releases.
pub trait Released {
    /// Which one.
    fn version(&self) -> &Version;
}

macro_rules! released {
    ($($type:ty),*) => {$(
        impl Released for $type {
            fn version(&self) -> &Version {
                &self.version
            }
        }
    )*};
}
released!(
    TorchRelease,
    TensorflowRelease,
    JaxPlugin,
    OnnxruntimeRelease,
    VllmRelease,
    XformersRelease,
    BitsandbytesRelease
);

/// The row of a version: of `2.6`, with two numbers where releases have three, the newest 2.6; else of that very release.
pub(super) fn release<'m, R: Released>(rows: &'m [R], version: &Version) -> Option<&'m R> {
    let asked = |row: &&R| match version.len() {
        2 => row.version().major_minor() == version.major_minor(),
        _ => row.version() == version,
    };
    rows.iter().filter(asked).max_by_key(|row| row.version())
}

/// The rows on both sides of a version that has none: the newest older one, the oldest newer one.
pub fn nearest<'m, R: Released>(
    rows: &'m [R],
    version: &Version,
) -> (Option<&'m R>, Option<&'m R>) {
    let older = rows.iter().filter(|row| row.version() < version);
    let newer = rows.iter().filter(|row| row.version() > version);
    (
        older.max_by_key(|row| row.version()),
        newer.min_by_key(|row| row.version()),
    )
}

impl Matrix {
    /// A release of `PyTorch`; of `2.6` the newest 2.6.
    pub fn torch_release(&self, version: &Version) -> Option<&TorchRelease> {
        release(self.torch_releases(), version)
    }

    /// The device code in `PyTorch` of this version (its minor version decides), built for this CUDA version.
    pub fn torch_archs(&self, torch: &Version, cuda: &Version) -> Option<&TorchArchs> {
        let minor = Version::parse(&torch.major_minor())?;
        self.torch_arch_rows().iter().find(|row| {
            row.torch_from <= minor
                && minor <= row.torch_to
                && row.cuda.major_minor() == cuda.major_minor()
        })
    }

    /// A release of `TensorFlow`; the CUDA and cuDNN of a patch release without a row are those of its minor version, so
    /// that row is given.
    pub fn tensorflow_release(&self, version: &Version) -> Option<&TensorflowRelease> {
        let minor = Version::parse(&version.major_minor())?;
        let rows = self.tensorflow_releases();
        release(rows, version).or_else(|| release(rows, &minor))
    }

    /// The JAX plugin of this version for a major version of CUDA.
    pub fn jax_plugin(&self, version: &Version, cuda_major: u32) -> Option<&JaxPlugin> {
        self.jax_plugins()
            .iter()
            .find(|row| row.cuda == cuda_major && row.version == *version)
    }

    /// A release of ONNX Runtime for CUDA; of `1.23` the newest 1.23.
    pub fn onnxruntime(&self, version: &Version) -> Option<&OnnxruntimeRelease> {
        release(self.onnxruntime_releases(), version)
    }

    /// A release of vLLM; of `0.10` the newest 0.10.
    pub fn vllm_release(&self, version: &Version) -> Option<&VllmRelease> {
        release(self.vllm_releases(), version)
    }

    /// A release of xFormers.
    pub fn xformers_release(&self, version: &Version) -> Option<&XformersRelease> {
        self.xformers_releases()
            .iter()
            .find(|row| row.version == *version)
    }

    /// A release of bitsandbytes.
    pub fn bitsandbytes_release(&self, version: &Version) -> Option<&BitsandbytesRelease> {
        release(self.bitsandbytes_releases(), version)
    }

    /// What a package (`torch`, `jax-cuda12-plugin`) of this very version asks of others.
    pub fn pins_of(&self, package: &str, version: &Version) -> Option<&Pins> {
        self.pins()
            .iter()
            .find(|row| row.package == package && row.version == *version)
    }

    /// Who asks for exactly this version of a package: pairs of the row and what it asks.
    pub fn pinned_by<'m>(
        &'m self,
        of: impl Fn(&str) -> bool,
        version: &Version,
    ) -> Vec<(&'m Pins, &'m Requirement)> {
        let whole = version.len();
        let is = |exact: &Version| (0..whole).all(|i| exact.part(i) == version.part(i));
        let pins = self.pins().iter();
        pins.flat_map(|row| row.requires.iter().map(move |asked| (row, asked)))
            .filter(|(_, asked)| of(&asked.name) && asked.bounds.exactly().is_some_and(is))
            .collect()
    }

    /// The row that a release of Ollama falls under; none for one that is older than all of them.
    pub fn ollama_release(&self, version: &Version) -> Option<&OllamaRelease> {
        let rows = self.ollama_releases().iter().rev();
        rows.into_iter().find(|row| row.first <= *version)
    }

    /// The NGC image of a tag: `25.03`, or `25.03-py3`.
    pub fn ngc_image(&self, tag: &str) -> Option<&NgcImage> {
        let month = tag.split('-').next().unwrap_or(tag);
        self.ngc_images().iter().find(|row| row.tag == month)
    }
}
