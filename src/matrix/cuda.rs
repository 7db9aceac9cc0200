//! CUDA levels, driver branches, toolkits and PTX ISA: the row types and the questions about them.
//!
//! It answers from versions alone. Whether a driver is really loaded, or which GPU is there, is not its business.

use serde::{Deserialize, Serialize};

use super::rows::row;
use super::{Confidence, Generation, Matrix};
use crate::version::Version;

/// A major version of CUDA under minor-version compatibility (11 and later).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Family {
    /// 12.
    pub major: u32,
    /// The CUDA level that the runtime itself asks of the driver: 12000. Measured.
    pub min_level: u32,
    /// The driver branch of the documented floor: 525.
    pub min_branch: u32,
    /// The documented floor on Linux: 525.60.13.
    pub min_driver: Version,
    /// The documented floor on Windows (for WSL).
    pub min_driver_windows: Option<Version>,
    /// Drivers below this branch are of the same major version; from here on they are newer and run it all the same.
    pub native_below_branch: Option<u32>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Family, |family| family.major);

/// How the CUDA level of a branch is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LevelBy {
    /// A real library of the branch was asked.
    Measured,
    /// It ships with the toolkit of that level.
    Pairing,
}

/// Which kernel module flavours a branch has, and which one is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KernelModules {
    /// Before 515.
    ProprietaryOnly,
    /// Both; proprietary unless asked otherwise.
    OpenOptional,
    /// Both; open unless asked otherwise, for GPUs that can.
    OpenDefault,
    /// Open modules only.
    OpenOnly,
}

/// A driver branch: everything whose version begins with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverBranch {
    /// 535.
    pub branch: u32,
    /// What its libcuda answers to cuDriverGetVersion: 12020.
    pub level: u32,
    /// How that is known.
    pub level_by: LevelBy,
    /// NVIDIA's word: `lts`, `production`, `new-feature`, `developer`, `long-lived`, `legacy`.
    pub kind: String,
    /// Day, month or year of the first release.
    pub first_release: Option<String>,
    /// Where weaker or stronger than the row.
    pub first_release_confidence: Option<Confidence>,
    /// The last month of support, `2026-06`.
    pub end_of_life: Option<String>,
    /// Where weaker or stronger than the row.
    pub end_of_life_confidence: Option<Confidence>,
    /// NVIDIA gives this kind of branch no end of life.
    #[serde(default)]
    pub no_end_of_life: bool,
    /// The oldest generation that it drives.
    pub oldest_arch: Generation,
    /// The newest ones.
    pub newest_arch: Vec<Generation>,
    /// Which chips of the newest generation, where not all.
    pub newest_arch_note: Option<String>,
    /// Where weaker than the row.
    pub archs_confidence: Option<Confidence>,
    /// Kernel module flavours; `None` = not known.
    pub kernel_modules: Option<KernelModules>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(DriverBranch, |branch| branch.branch);

/// Whether a branch is still supported on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfLife {
    /// Its last month has passed.
    Ended,
    /// It has not.
    Alive,
    /// No date is known, or the day could not be read.
    Unknown,
}

impl DriverBranch {
    /// Whether it is supported on `date` (`YYYY-MM-DD`, what follows is ignored): through the whole of its last month.
    pub fn life_at(&self, date: &str) -> EndOfLife {
        let month = |text: &str| {
            let (year, rest) = text.split_once('-')?;
            Some((
                year.parse::<u32>().ok()?,
                rest.get(..2)?.parse::<u32>().ok()?,
            ))
        };
        match (self.end_of_life.as_deref().and_then(month), month(date)) {
            (Some(last), Some(now)) if now > last => EndOfLife::Ended,
            (Some(_), Some(_)) => EndOfLife::Alive,
            _ => EndOfLife::Unknown,
        }
    }

    /// How far the end of life can be trusted.
    pub fn end_of_life_confidence(&self) -> Confidence {
        self.end_of_life_confidence.unwrap_or(self.confidence)
    }
}

/// A toolkit release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toolkit {
    /// 12.4.1. The third number is not always the number of the update.
    pub cuda: Version,
    /// `12.4 Update 1`.
    pub label: String,
    /// A release candidate or developer preview.
    #[serde(default)]
    pub preview: bool,
    /// Year and month.
    pub released: Option<String>,
    /// Where weaker or stronger than the row.
    pub released_confidence: Option<Confidence>,
    /// The driver branch it belongs to.
    pub branch: u32,
    /// The Linux driver that it came with: no minimum, see [`Matrix::minimum_driver`].
    pub driver: Option<Version>,
    /// The Windows driver that it came with.
    pub driver_windows: Option<Version>,
    /// Whether the Linux toolkit brings a driver.
    pub driver_bundled: bool,
    /// Whether the Windows toolkit brings a driver, where that is not plain.
    pub windows_driver_bundled: Option<bool>,
    /// Where weaker than the row.
    pub windows_driver_bundled_confidence: Option<Confidence>,
    /// What cudaRuntimeGetVersion of its libcudart answers: 12040.
    pub level: u32,
    /// Where weaker or stronger than the row.
    pub level_confidence: Option<Confidence>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Toolkit, |toolkit| toolkit.cuda);

/// A PTX ISA version, the toolkit that first writes it, and the drivers that compile it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PtxIsa {
    /// 8.4.
    pub ptx: Version,
    /// 12.4: the toolkit that writes it, and the CUDA level of the driver that compiles it.
    pub cuda: Version,
    /// The branch that NVIDIA's document names; internal ones among them, so it is compared, never looked up.
    pub document_branch: u32,
    /// Where weaker than the row.
    pub document_branch_confidence: Option<Confidence>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(PtxIsa, |isa| isa.cuda);

/// The least driver for a runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MinimumDriver {
    /// The CUDA level that the runtime asks of the driver. This is what the runtime tests.
    pub level: u32,
    /// The documented least driver on Linux; `None` for a runtime newer than the matrix.
    pub version: Option<Version>,
    /// The documented least driver on Windows, for WSL.
    pub version_windows: Option<Version>,
    /// The first branch that will do.
    pub branch: Option<u32>,
    /// The runtime's major version.
    pub runtime_major: u32,
    /// The runtime is of a major version that the matrix does not know; the level is by the general rule.
    pub newer_than_matrix: bool,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}

/// The first major version under minor-version compatibility.
const FIRST_FAMILY: u32 = 11;

/// The CUDA level that a runtime asks of the driver: 1000 x its major from 11 on, its own level before.
fn level_asked(runtime: &Version) -> u32 {
    if runtime.major() >= FIRST_FAMILY {
        runtime.major().saturating_mul(1000)
    } else {
        runtime.cuda_level()
    }
}

impl Matrix {
    /// The least driver for a runtime or toolkit of this version; `None` for versions before the matrix (CUDA 8.0).
    ///
    /// From CUDA 11 on any minor runs on the documented floor of its major version; before, each toolkit needs its own
    /// driver. A major version newer than the matrix gets the general rule, the level alone.
    pub fn minimum_driver(&self, runtime: &Version) -> Option<MinimumDriver> {
        let runtime_major = runtime.major();
        let level = level_asked(runtime);
        if runtime_major < FIRST_FAMILY {
            let first = self
                .toolkits()
                .iter()
                .find(|toolkit| toolkit.level == level && !toolkit.preview)?;
            return Some(MinimumDriver {
                level,
                version: first.driver.clone(),
                version_windows: first.driver_windows.clone(),
                branch: Some(first.branch),
                runtime_major,
                newer_than_matrix: false,
                source: first.source.clone(),
                confidence: first.confidence,
            });
        }
        Some(
            match self
                .families()
                .iter()
                .find(|family| family.major == runtime_major)
            {
                Some(family) => MinimumDriver {
                    level: family.min_level,
                    version: Some(family.min_driver.clone()),
                    version_windows: family.min_driver_windows.clone(),
                    branch: Some(family.min_branch),
                    runtime_major,
                    newer_than_matrix: false,
                    source: family.source.clone(),
                    confidence: family.confidence,
                },
                None => MinimumDriver {
                    level,
                    version: None,
                    version_windows: None,
                    branch: None,
                    runtime_major,
                    newer_than_matrix: true,
                    source: "the test that the runtimes of CUDA 11 to 13 make, carried on"
                        .to_owned(),
                    confidence: Confidence::Secondary,
                },
            },
        )
    }

    /// Whether a runtime accepts a driver of this CUDA level (0 = there is none): the integer test that it makes.
    ///
    /// Below the documented floor this can still be true (450.36 for CUDA 11). A runtime of 11.2 asks cuInit first, so
    /// without a GPU it does not come to this test.
    pub fn runtime_accepts(&self, runtime: &Version, driver_level: u32) -> bool {
        driver_level >= level_asked(runtime)
    }

    /// The branch of a driver. `None` for internal and beta lines, and for what is newer than the matrix.
    pub fn branch(&self, driver: &Version) -> Option<&DriverBranch> {
        self.driver_branches()
            .iter()
            .find(|row| row.branch == driver.major())
    }

    /// The CUDA level of a driver by its branch, and who says so.
    pub fn cuda_level_of(&self, driver: &Version) -> Option<(u32, String)> {
        self.branch(driver)
            .map(|row| (row.level, row.source.clone()))
    }

    /// Between which CUDA levels a driver lies, also where its branch is in no table: at least, at most.
    pub fn cuda_level_range(&self, driver: &Version) -> (Option<u32>, Option<u32>) {
        let branches = self.driver_branches();
        let lower = branches
            .iter()
            .rev()
            .find(|row| row.branch <= driver.major());
        let upper = branches.iter().find(|row| row.branch >= driver.major());
        (lower.map(|row| row.level), upper.map(|row| row.level))
    }

    /// The newest branch that the matrix knows.
    pub fn newest_branch(&self) -> Option<&DriverBranch> {
        self.driver_branches().last()
    }

    /// The oldest branch whose driver has at least this CUDA level.
    pub fn first_branch_of_level(&self, level: u32) -> Option<&DriverBranch> {
        self.driver_branches().iter().find(|row| row.level >= level)
    }

    /// The newest toolkit that the matrix knows.
    pub fn newest_toolkit(&self) -> Option<&Toolkit> {
        self.toolkits().last()
    }

    /// A toolkit release; `12.4` means the first release of 12.4 that is no preview.
    pub fn toolkit(&self, version: &Version) -> Option<&Toolkit> {
        let mut toolkits = self.toolkits().iter();
        if version.len() > 2 {
            return toolkits.find(|row| row.cuda == *version);
        }
        toolkits.find(|row| !row.preview && row.cuda.major_minor() == version.major_minor())
    }

    /// The newest runtimes that a driver of this level runs, in words: `CUDA 12.x`, `CUDA 10.2`.
    pub fn newest_runtime_for_level(&self, level: u32) -> String {
        let version = Version::from_cuda_level(level);
        if version.major() >= FIRST_FAMILY {
            format!("CUDA {}.x", version.major())
        } else {
            format!("CUDA {version}")
        }
    }

    /// The newest PTX ISA that a driver of this CUDA level compiles. For a level newer than the matrix: at least this.
    pub fn ptx_isa_of_level(&self, level: u32) -> Option<&PtxIsa> {
        self.ptx_isas()
            .iter()
            .rev()
            .find(|row| row.cuda.cuda_level() <= level)
    }

    /// The newest PTX ISA that a driver compiles, by NVIDIA's document; good for internal and beta lines too.
    pub fn ptx_isa_of_driver(&self, driver: &Version) -> Option<&PtxIsa> {
        self.ptx_isas()
            .iter()
            .rev()
            .find(|row| row.document_branch <= driver.major())
    }

    /// The PTX ISA that a toolkit writes.
    pub fn ptx_isa_of_toolkit(&self, cuda: &Version) -> Option<&PtxIsa> {
        self.ptx_isas()
            .iter()
            .find(|row| row.cuda.major_minor() == cuda.major_minor())
    }

    /// Whether a driver of this CUDA level compiles PTX of this ISA. `None`: the driver or the ISA is out of the matrix.
    pub fn ptx_loads(&self, ptx: &Version, level: u32) -> Option<bool> {
        let newest = self.ptx_isas().last()?;
        let of_level = self.ptx_isa_of_level(level)?;
        match *ptx <= of_level.ptx {
            true => Some(true),
            false if level > newest.cuda.cuda_level() => None,
            false => Some(false),
        }
    }
}
