//! Libraries above the runtime: cuDNN, NCCL, TensorRT, the sonames of each CUDA version and the components of a toolkit.

use serde::{Deserialize, Serialize};

use super::rows::{capability, optional_capability, row};
use super::{Capability, CodeTargets, Confidence, Matrix};
use crate::requirement::Requirement;
use crate::version::Version;

/// cuDNN for one major version of CUDA, from one release to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cudnn {
    /// The first release.
    pub first: Version,
    /// The last one.
    pub last: Version,
    /// The major version of CUDA that it is built for.
    pub cuda: u32,
    /// The documented least driver on Linux, where one is named.
    pub min_driver: Option<Version>,
    /// The least compute capability that it runs on.
    #[serde(with = "capability")]
    pub capability_min: Capability,
    /// The greatest one that was documented then; `None` where the newest GPUs are served.
    #[serde(with = "optional_capability", default)]
    pub capability_max: Option<Capability>,
    /// Device code of `libcudnn_ops`.
    pub archs: Option<CodeTargets>,
    /// The release in which that was seen.
    pub archs_of: Option<Version>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Cudnn, |row| format!(
    "{} to {} for CUDA {}",
    row.first, row.last, row.cuda
));

/// The files that make one cuDNN.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CudnnFiles {
    /// Its major version.
    pub major: u32,
    /// Those that every release has.
    pub files: Vec<String>,
    /// Those that only newer releases have.
    #[serde(default)]
    pub later: Vec<String>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(CudnnFiles, |row| row.major);

/// A build of NCCL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nccl {
    /// 2.27.5.
    pub version: Version,
    /// The CUDA version that it was built with; a major version alone where no more is known.
    pub cuda: Version,
    /// Its device code, where known.
    pub archs: Option<CodeTargets>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Nccl, |row| format!("{} for CUDA {}", row.version, row.cuda));

/// `TensorRT`, from one release to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensorrt {
    /// The first release.
    pub first: Version,
    /// The last one.
    pub last: Version,
    /// The CUDA versions that it is built for; a major version alone is all of it.
    pub cudas: Vec<Version>,
    /// The cuDNN that it goes with, where it is named.
    pub cudnn: Option<Version>,
    /// The least compute capability, where known.
    #[serde(with = "optional_capability", default)]
    pub capability_min: Option<Capability>,
    /// Where weaker than the row.
    pub capability_min_confidence: Option<Confidence>,
    /// `libnvinfer.so.10`.
    pub soname: String,
    /// Where weaker than the row.
    pub soname_confidence: Option<Confidence>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Tensorrt, |row| format!("{} to {}", row.first, row.last));

/// The soname of a library in one major version of CUDA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Soname {
    /// `cublasLt`.
    pub library: String,
    /// The major version of CUDA.
    pub cuda: u32,
    /// `libcublasLt.so.12`.
    pub soname: String,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Soname, |row| format!(
    "{} of CUDA {}",
    row.library, row.cuda
));

/// The versions of a toolkit's libraries, as wheels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolkitComponents {
    /// 12.9.1.
    pub toolkit: Version,
    /// The wheels.
    pub requires: Vec<Requirement>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(ToolkitComponents, |row| row.toolkit);

/// Whether a version lies between two releases: `9.10.2.21` up to `9.10.2`, as far as that is written.
fn between(version: &Version, first: &Version, last: &Version) -> bool {
    let up_to = (0..last.len())
        .map(|i| version.part(i).cmp(&last.part(i)))
        .find(|order| order.is_ne());
    version >= first && up_to.is_none_or(std::cmp::Ordering::is_lt)
}

impl Cudnn {
    /// Whether a release is one of these.
    pub fn covers(&self, version: &Version) -> bool {
        between(version, &self.first, &self.last)
    }
}

impl Tensorrt {
    /// Whether a release is one of these.
    pub fn covers(&self, version: &Version) -> bool {
        between(version, &self.first, &self.last)
    }
}

/// What `cudnnGetVersion` answers for a cuDNN: 91002 for 9.10.2, 8902 for 8.9.2.
pub fn cudnn_answer(version: &Version) -> u32 {
    let thousands = if version.major() >= 9 { 10_000 } else { 1_000 };
    let major = version.major().saturating_mul(thousands);
    major
        .saturating_add(version.minor().saturating_mul(100))
        .saturating_add(version.part(2))
}

/// The version that such an answer stands for.
pub fn cudnn_of_answer(answer: u32) -> Option<Version> {
    let thousands = if answer >= 90_000 { 10_000 } else { 1_000 };
    let text = format!(
        "{}.{}.{}",
        answer / thousands,
        answer % thousands / 100,
        answer % 100
    );
    Version::parse(&text)
}

impl Matrix {
    /// cuDNN of a release for a major version of CUDA.
    pub fn cudnn(&self, version: &Version, cuda_major: u32) -> Option<&Cudnn> {
        self.cudnn_release(version)
            .into_iter()
            .find(|row| row.cuda == cuda_major)
    }

    /// cuDNN of a release, for each major version of CUDA that it is built for; empty where it is in no row.
    pub fn cudnn_release(&self, version: &Version) -> Vec<&Cudnn> {
        let rows = self.cudnns().iter();
        rows.filter(|row| row.covers(version)).collect()
    }

    /// The newest cuDNN for a major version of CUDA that still runs on this GPU.
    pub fn newest_cudnn_for(&self, gpu: Capability, cuda_major: u32) -> Option<&Cudnn> {
        let serves = |row: &&Cudnn| {
            row.cuda == cuda_major
                && row.capability_min <= gpu
                && row.capability_max.is_none_or(|max| gpu <= max)
        };
        self.cudnns()
            .iter()
            .filter(serves)
            .max_by_key(|row| &row.last)
    }

    /// The files of one cuDNN of this major version.
    pub fn cudnn_files(&self, major: u32) -> Option<&CudnnFiles> {
        self.cudnn_file_rows().iter().find(|row| row.major == major)
    }

    /// The builds of NCCL of this version that were looked at.
    pub fn nccl(&self, version: &Version) -> Vec<&Nccl> {
        let rows = self.nccls().iter();
        rows.filter(|row| row.version == *version).collect()
    }

    /// `TensorRT` of a release.
    pub fn tensorrt(&self, version: &Version) -> Option<&Tensorrt> {
        self.tensorrts().iter().find(|row| row.covers(version))
    }

    /// The soname of a library (`cublasLt`) in a major version of CUDA.
    pub fn soname(&self, library: &str, cuda_major: u32) -> Option<&str> {
        self.sonames()
            .iter()
            .find(|row| row.library == library && row.cuda == cuda_major)
            .map(|row| row.soname.as_str())
    }

    /// The major versions of CUDA that have a library of this soname: of `libcusparse.so.12` both 12 and 13. Empty where
    /// the soname is in no row.
    pub fn cuda_majors_of_soname(&self, soname: &str) -> Vec<u32> {
        let rows = self.sonames().iter();
        rows.filter(|row| row.soname == soname)
            .map(|row| row.cuda)
            .collect()
    }

    /// The libraries of a toolkit release.
    pub fn toolkit_components(&self, toolkit: &Version) -> Option<&ToolkitComponents> {
        self.toolkit_component_rows()
            .iter()
            .find(|row| row.toolkit == *toolkit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cudnn_numbers_its_releases_in_two_ways() {
        for (version, answer) in [
            ("8.9.2", 8902),
            ("9.1.0.70", 90100),
            ("9.10.2.21", 91002),
            ("9.28.1", 92801),
        ] {
            let version = Version::parse(version).unwrap();
            assert_eq!(cudnn_answer(&version), answer);
            assert_eq!(
                cudnn_of_answer(answer).unwrap().major_minor(),
                version.major_minor()
            );
        }
    }

    #[test]
    fn a_range_ends_with_the_last_build_of_its_last_release() {
        let v = |text: &str| Version::parse(text).unwrap();
        for (version, first, last, within) in [
            ("9.10.2.21", "9.0", "9.10.2", true),
            ("9.10.3", "9.0", "9.10.2", false),
            ("9.28.1.4", "9.12", "9.28", true),
            ("9.11", "9.0", "9.10.2", false),
            ("8.9.7.29", "8.9.2", "8.9.7", true),
            ("10.16.0.72", "10.13.2", "10.16", true),
        ] {
            assert_eq!(
                between(&v(version), &v(first), &v(last)),
                within,
                "{version}"
            );
        }
    }
}
