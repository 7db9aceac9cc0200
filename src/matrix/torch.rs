//! Which build of PyTorch to take instead: the one of the same release that runs on this driver and these GPUs, else the
//! nearest release that has one, with the very words of the installer.
//!
//! A build of which the matrix cannot tell that it runs is not proposed.

use super::{
    Capability, CodeFit, CodeTargets, Confidence, Matrix, TorchArchs, TorchInstall, TorchRelease,
};
use crate::version::Version;

/// The instruction set of the machine that a wheel is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Machine {
    /// `x86_64`.
    #[default]
    X86_64,
    /// aarch64.
    Aarch64,
}

impl Machine {
    /// By the name that `uname -m` gives; `None` for all others.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "x86_64" | "amd64" => Some(Self::X86_64),
            "aarch64" | "arm64" => Some(Self::Aarch64),
            _ => None,
        }
    }
}

/// What a build of PyTorch has to run with; what is not known bounds nothing.
#[derive(Clone, Copy, Debug)]
pub struct TorchWanted<'a> {
    /// The release that is wanted, or as near to it as there is.
    pub torch: &'a Version,
    /// The GPUs, all of which have to be served.
    pub gpus: &'a [Capability],
    /// The CUDA level of the driver.
    pub level: Option<u32>,
    /// The Python.
    pub python: Option<&'a Version>,
    /// The instruction set.
    pub machine: Machine,
}

/// A build of PyTorch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchBuild<'m> {
    /// Its release.
    pub release: &'m TorchRelease,
    /// Its CUDA version.
    pub cuda: &'m Version,
    /// The row of its device code, where there is one.
    pub archs: Option<&'m TorchArchs>,
}

impl TorchBuild<'_> {
    /// `cu126`.
    pub fn tag(&self) -> String {
        torch_tag(self.cuda)
    }

    /// `2.7.1+cu126`.
    pub fn name(&self) -> String {
        format!("{}+{}", self.release.version, self.tag())
    }

    /// How far it can be trusted that there is such a build, and that it runs.
    pub fn confidence(&self) -> Confidence {
        let archs = self
            .archs
            .map_or(Confidence::Verified, |row| row.confidence);
        archs.min(self.release.cudas_confidence())
    }
}

/// The CUDA version as PyTorch's local versions and its index write it: `cu126`.
pub fn torch_tag(cuda: &Version) -> String {
    format!("cu{}{}", cuda.major(), cuda.minor())
}

/// The CUDA version of such a tag: `cu126`, `cu118`.
pub fn cuda_of_torch_tag(tag: &str) -> Option<Version> {
    let digits = tag.strip_prefix("cu")?;
    let all_digits = digits.bytes().all(|b| b.is_ascii_digit());
    let (major, minor) = digits.split_at_checked(2).filter(|_| all_digits)?;
    (!minor.is_empty())
        .then(|| Version::parse(&format!("{major}.{minor}")))
        .flatten()
}

impl TorchArchs {
    /// The device code in the wheels for a machine; `None` where there are none, or none was looked at.
    pub fn code(&self, machine: Machine) -> Option<&CodeTargets> {
        match machine {
            Machine::X86_64 => Some(&self.x86_64),
            Machine::Aarch64 => self.aarch64.as_ref(),
        }
    }
}

impl Matrix {
    /// How the device code that a build for this CUDA version holds does on a GPU: PTX counts where a driver of this level
    /// compiles it (any driver, without one).
    pub fn code_fit(
        &self,
        code: &CodeTargets,
        gpu: Capability,
        cuda: &Version,
        level: Option<u32>,
    ) -> CodeFit {
        let fit = self.targets_fit(code, gpu);
        let isa = self.ptx_isa_of_toolkit(cuda);
        match (&fit, level, isa) {
            (CodeFit::Ptx(_), Some(level), Some(isa)) => match self.ptx_loads(&isa.ptx, level) {
                Some(true) => fit,
                Some(false) => CodeFit::PtxTooNew(isa.ptx.clone()),
                None => CodeFit::Unknown("the driver is newer than the matrix".to_owned()),
            },
            _ => fit,
        }
    }

    /// The build of the wanted release, or as near to it as there is, that runs: the newest CUDA of a release, the newest
    /// patch of a minor version. `None`: the matrix knows none.
    pub fn torch_build_for(&self, wanted: &TorchWanted<'_>) -> Option<TorchBuild<'_>> {
        let rows = self.torch_releases();
        let at = rows.partition_point(|row| row.version < *wanted.torch);
        // Of one distance the newer release comes first; the wanted one has distance 0.
        let (older, newer) = rows.split_at_checked(at)?;
        let newer = newer.iter().enumerate().map(|(far, row)| (2 * far, row));
        let older = older.iter().rev().enumerate();
        let mut all: Vec<_> = newer
            .chain(older.map(|(far, row)| (2 * far + 1, row)))
            .collect();
        let same_minor =
            |row: &TorchRelease| row.version.major_minor() == wanted.torch.major_minor();
        all.sort_by_key(|(far, row)| (row.version != *wanted.torch, !same_minor(row), *far));
        let found = all
            .into_iter()
            .find_map(|(_, row)| self.newest_torch_build(row, wanted))?;
        if found.release.version == *wanted.torch {
            return Some(found);
        }
        let mut of_minor = rows.iter().rev().filter(|row| {
            row.version.major_minor() == found.release.version.major_minor()
                && row.version > found.release.version
        });
        let newest_patch = of_minor.find_map(|row| self.newest_torch_build(row, wanted));
        Some(newest_patch.unwrap_or(found))
    }

    /// The build of a release for the newest CUDA version that runs.
    pub fn newest_torch_build<'m>(
        &'m self,
        release: &'m TorchRelease,
        wanted: &TorchWanted<'_>,
    ) -> Option<TorchBuild<'m>> {
        let python = wanted.python;
        if python.is_some_and(|python| !release.takes_python(python)) {
            return None;
        }
        let mut cudas: Vec<&Version> = release.cudas.iter().collect();
        cudas.sort_unstable();
        let builds = cudas.into_iter().rev().map(|cuda| TorchBuild {
            release,
            cuda,
            archs: self.torch_archs(&release.version, cuda),
        });
        builds
            .into_iter()
            .find(|build| self.torch_runs(build, wanted))
    }

    fn torch_runs(&self, build: &TorchBuild<'_>, wanted: &TorchWanted<'_>) -> bool {
        let level = wanted.level;
        if level.is_some_and(|level| !self.runtime_accepts(build.cuda, level)) {
            return false;
        }
        let code = build.archs.and_then(|row| row.code(wanted.machine));
        let Some(code) = code else {
            // That there are wheels for x86_64 is said by the release, for aarch64 by the row of the device code alone.
            return wanted.gpus.is_empty() && wanted.machine == Machine::X86_64;
        };
        wanted.gpus.iter().all(|gpu| {
            let fit = self.code_fit(code, *gpu, build.cuda, level);
            matches!(fit, CodeFit::Cubin(_) | CodeFit::Ptx(_))
        })
    }

    /// The words with which an installer (`pip`, `uv`) takes this build; `None` for installers without a row.
    pub fn torch_install(&self, build: &TorchBuild<'_>, installer: &str) -> Option<Vec<String>> {
        let rows = self.torch_installs().iter();
        let row: &TorchInstall = rows.into_iter().find(|row| row.installer == installer)?;
        let filled = |word: &String| {
            word.replace("{version}", build.release.version.as_str())
                .replace("{tag}", &build.tag())
        };
        Some(row.command.iter().map(filled).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_cuda_versions() {
        for (tag, cuda) in [
            ("cu118", Some("11.8")),
            ("cu126", Some("12.6")),
            ("cu130", Some("13.0")),
            ("cu92", None),
            ("cpu", None),
            ("cu12x", None),
        ] {
            let read = cuda_of_torch_tag(tag);
            assert_eq!(read.as_ref().map(Version::as_str), cuda, "{tag}");
            if let Some(read) = read {
                assert_eq!(torch_tag(&read), tag);
            }
        }
    }
}
