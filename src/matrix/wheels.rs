//! Which package brings a library, which extra of a framework brings all of them, and which libraries a framework opens
//! by name while it runs, so that no file says that it needs them.

use serde::{Deserialize, Serialize};

use super::rows::row;
use super::{Confidence, Matrix};
use crate::version::Version;

/// A package that brings libraries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wheel {
    /// The distribution on `PyPI`: `nvidia-cudnn-cu12`.
    pub wheel: String,
    /// The major version of CUDA that it is built for.
    pub cuda: u32,
    /// What it brings: `libcudnn.so.9`.
    pub sonames: Vec<String>,
    /// The versions of it that bring these, where another version brings others: `==9.*`.
    pub versions: Option<String>,
    /// Conda's package with the same libraries, where known.
    pub conda: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Wheel, |row| format!(
    "{}{} for CUDA {}",
    row.wheel,
    row.versions.as_deref().unwrap_or_default(),
    row.cuda
));

impl Wheel {
    /// As pip and uv take it: `nvidia-cudnn-cu12==9.*`.
    pub fn requirement(&self) -> String {
        format!(
            "{}{}",
            self.wheel,
            self.versions.as_deref().unwrap_or_default()
        )
    }
}

/// The extras of a distribution that bring the CUDA libraries which it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibrariesExtra {
    /// `onnxruntime-gpu`.
    pub distribution: String,
    /// As they are written in brackets: `cuda,cudnn`.
    pub extras: String,
    /// The major version of CUDA, where there are several extras; `None` where it is that of the build.
    pub cuda: Option<u32>,
    /// The first version that has them.
    pub first: Version,
    /// Versions whose extras cannot be installed.
    #[serde(default)]
    pub except: Vec<Version>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(LibrariesExtra, |row| format!(
    "{}[{}]",
    row.distribution, row.extras
));

/// The libraries that a framework opens by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opens {
    /// The framework as facts call it: `tensorflow`, `jax-cuda-pjrt`.
    pub framework: String,
    /// The major version of CUDA that it is built for.
    pub cuda: u32,
    /// The first version that this is known of.
    pub first: Version,
    /// Those without any one of which it does not use the GPU at all.
    pub needs: Vec<String>,
    /// What it says then.
    pub says: String,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Opens, |row| format!(
    "{} for CUDA {}",
    row.framework, row.cuda
));

/// What a framework says of a cuDNN that is older than the one it was built with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CudnnCheck {
    /// `torch`.
    pub framework: String,
    /// Its words.
    pub says: String,
    /// The variable that keeps it from looking, where there is one.
    pub skip: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(CudnnCheck, |row| row.framework);

/// A variable that takes a framework off the GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuSetting {
    /// The distribution that reads it: `jax`.
    pub distribution: String,
    /// What has to be installed beside it, by the beginning of its name: without, it would use no GPU anyway.
    pub with: Option<String>,
    /// The variable.
    pub variable: String,
    /// The values that do it; empty: any but an empty one and `0`.
    #[serde(default)]
    pub values: Vec<String>,
    /// What it does then, as the end of a sentence: `to use the processor alone`.
    pub does: String,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(CpuSetting, |row| format!(
    "{} of {}",
    row.variable, row.distribution
));

impl CpuSetting {
    /// Whether this value does it.
    pub fn applies(&self, value: &str) -> bool {
        let value = value.trim();
        if self.values.is_empty() {
            return !value.is_empty() && value != "0";
        }
        self.values.iter().any(|v| v.eq_ignore_ascii_case(value))
    }
}

/// The platform tag of the wheels of a package, from a release on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WheelPlatform {
    /// The package, as indexes compare names: `onnxruntime-gpu`.
    pub package: String,
    /// The machine: `x86_64`.
    pub machine: String,
    /// The first release of the row; it holds up to the next row of the package and machine.
    pub first: Version,
    /// The least glibc with which an installer takes them.
    pub glibc: Version,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(WheelPlatform, |row| format!(
    "{} {} for {}",
    row.package, row.first, row.machine
));

/// The Pythons for which there are wheels of a package, from a release on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WheelPython {
    /// The package, as indexes compare names: `onnxruntime-gpu`.
    pub package: String,
    /// The first release of the row; it holds up to the next row of the package.
    pub first: Version,
    /// The oldest Python with a wheel: 3.9.
    pub oldest: Version,
    /// The newest one; `None` where the wheels are for any newer one as well.
    pub newest: Option<Version>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(WheelPython, |row| format!("{} {}", row.package, row.first));

impl WheelPython {
    /// Whether there is a wheel for a Python.
    pub fn takes(&self, python: &Version) -> bool {
        let minor = Version::parse(&python.major_minor());
        minor.is_some_and(|minor| {
            minor >= self.oldest && self.newest.as_ref().is_none_or(|newest| minor <= *newest)
        })
    }

    /// `3.9 to 3.13`.
    pub fn shown(&self) -> String {
        match &self.newest {
            Some(newest) => format!("{} to {newest}", self.oldest),
            None => format!("{} and newer", self.oldest),
        }
    }
}

/// Whether there is a wheel of a release for a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WheelFor<'m> {
    /// There is, with this tag.
    Wheel(&'m WheelPlatform),
    /// There is none: the wheels for that machine begin later, or there never were any.
    None,
    /// No table says.
    Unknown,
}

impl Matrix {
    /// The wheel of a release for a machine.
    pub fn wheel_for(&self, package: &str, version: &Version, machine: &str) -> WheelFor<'_> {
        let rows = || {
            let rows = self.wheel_platforms().iter();
            rows.filter(|row| row.package == package)
        };
        let of_machine = || rows().filter(|row| row.machine == machine);
        let found = of_machine()
            .filter(|row| row.first <= *version)
            .max_by_key(|row| &row.first);
        match found {
            Some(row) => WheelFor::Wheel(row),
            // Of a release that is older than all rows nothing is known.
            None if rows().any(|row| row.first <= *version) => WheelFor::None,
            None => WheelFor::Unknown,
        }
    }

    /// The Pythons for which a release has wheels; `None` where no table says.
    pub fn wheel_pythons(&self, package: &str, version: &Version) -> Option<&WheelPython> {
        let rows = self.wheel_python_rows().iter();
        rows.filter(|row| row.package == package && row.first <= *version)
            .max_by_key(|row| &row.first)
    }

    /// The packages that bring a library of this soname, for each major version of CUDA.
    pub fn wheels_with(&self, soname: &str) -> impl Iterator<Item = &Wheel> {
        self.wheels()
            .iter()
            .filter(move |row| row.sonames.iter().any(|known| known == soname))
    }

    /// The extras of a distribution of this version that bring its libraries.
    pub fn libraries_extra(
        &self,
        distribution: &str,
        version: &Version,
        cuda: Option<u32>,
    ) -> Option<&LibrariesExtra> {
        self.libraries_extras().iter().find(|row| {
            row.distribution == distribution
                && *version >= row.first
                && !row.except.contains(version)
                && (row.cuda.is_none() || row.cuda == cuda)
        })
    }

    /// What a framework of this version opens by name.
    pub fn opened_by(&self, framework: &str, version: &Version, cuda: u32) -> Option<&Opens> {
        self.opened()
            .iter()
            .find(|row| row.framework == framework && row.cuda == cuda && *version >= row.first)
    }
}
