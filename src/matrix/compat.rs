//! Forward compatibility: a newer user-space libcuda (package cuda-compat-X-Y) on the kernel module of an older branch.
//!
//! The note inside the library at hand beats these tables; reading it is the probe's work.

use serde::{Deserialize, Serialize};

use super::rows::row;
use super::{Confidence, Matrix};
use crate::version::Version;

/// On which driver branches a compat package works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardCompat {
    /// 12.9: the CUDA level that the package brings.
    pub cuda: Version,
    /// `cuda-compat-12-9`.
    pub package: String,
    /// Branches whose kernel module it works on.
    pub supported: Vec<u32>,
    /// The branch that has this CUDA level by itself.
    pub native: Option<u32>,
    /// Branches that it is known not to work on.
    #[serde(default)]
    pub not_supported: Vec<u32>,
    /// Branches on which sources disagree.
    #[serde(default)]
    pub undecided: Vec<u32>,
    /// The list is the library's own: what it lacks is refused.
    #[serde(default)]
    pub complete: bool,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(ForwardCompat, |compat| compat.cuda);

/// A build of libcuda seen in a compat package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompatBuild {
    /// 12.9.
    pub cuda: Version,
    /// `cuda-compat-12-9`.
    pub package: String,
    /// The version in the library's file name.
    pub libcuda: Version,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(CompatBuild, |build| build.cuda);

/// A note (`.note.cuda.fwd_compatibility`) read in a compat library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompatNote {
    /// The CUDA version in the note.
    pub cuda: Version,
    /// The library's version; `None` on Orin, whose library has none.
    pub libcuda: Option<Version>,
    /// The library is one for Jetson Orin: no lists.
    #[serde(default)]
    pub orin: bool,
    /// Driver branches that it accepts, its own included.
    #[serde(default)]
    pub drivers: Vec<u32>,
    /// Device classes that it accepts; what the numbers mean is not known.
    #[serde(default)]
    pub device_classes: Vec<u32>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(CompatNote, |note| format!(
    "{}{}",
    note.cuda,
    if note.orin { " orin" } else { "" }
));

/// Whether a compat package works on a driver branch. It takes an eligible GPU as well: [`Matrix::compat_eligible`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compat {
    /// It does.
    Supported {
        /// Who says so.
        source: String,
        /// How far to trust it.
        confidence: Confidence,
    },
    /// The branch has this CUDA level by itself: there is nothing to add.
    Native {
        /// Who says so.
        source: String,
        /// How far to trust it.
        confidence: Confidence,
    },
    /// It does not: the branch is newer than the package, or in no list of the library.
    NotSupported {
        /// Who says so.
        source: String,
        /// How far to trust it.
        confidence: Confidence,
    },
    /// Not known.
    Unknown {
        /// Why.
        why: String,
    },
}

/// What is known of a compat library at hand.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompatLibrary<'a> {
    /// The driver that it is of: 580.65.06.
    pub version: Option<&'a Version>,
    /// The CUDA version in its note.
    pub cuda: Option<&'a Version>,
    /// The driver branches in its note, its own included; empty where there is no list.
    pub branches: &'a [u32],
}

/// How a compat library does on a driver and its GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompatFit {
    /// It works.
    Works {
        /// Who says so.
        source: String,
        /// How far to trust it.
        confidence: Confidence,
    },
    /// It is refused.
    Refused {
        /// Why, to follow a colon.
        why: String,
        /// It is the GPU, whatever the driver: error 804. Else it is the driver: error 803.
        by_gpu: bool,
        /// How far to trust it.
        confidence: Confidence,
    },
    /// Not known.
    Unknown {
        /// Why.
        why: String,
    },
}

/// Who says that a compat library works where its note says so.
const BY_NOTE: &str = "the note in the compat library";

impl Matrix {
    /// How a compat library does on a driver and GPUs. Of each GPU its name and whether it may use forward compatibility.
    /// What is certain from the library's own note comes before the tables.
    pub fn compat_fit(
        &self,
        library: CompatLibrary<'_>,
        driver: &Version,
        gpus: &[(String, Option<bool>)],
    ) -> CompatFit {
        // The driver's own library under another path.
        if library.version == Some(driver) {
            return CompatFit::Works {
                source: "the very version of the driver".to_owned(),
                confidence: Confidence::Verified,
            };
        }
        if let Some(refused) = refused_for_certain(library, driver, gpus) {
            return refused;
        }
        let unsure: Vec<&str> = gpus
            .iter()
            .filter(|(_, may)| may.is_none())
            .map(|(name, _)| name.as_str())
            .collect();
        let by_table = || {
            let level = library.version.and_then(|v| self.cuda_level_range(v).0);
            let cuda = library.cuda.cloned();
            match cuda.or_else(|| level.map(Version::from_cuda_level)) {
                Some(cuda) => self.forward_compat(&cuda, driver.major()),
                None => Compat::Unknown {
                    why: "which CUDA version it is of is in no table".to_owned(),
                },
            }
        };
        let by_driver = if library.branches.contains(&driver.major()) {
            CompatFit::Works {
                source: BY_NOTE.to_owned(),
                confidence: Confidence::Verified,
            }
        } else {
            match by_table() {
                Compat::Supported { source, confidence }
                | Compat::Native { source, confidence } => CompatFit::Works { source, confidence },
                Compat::NotSupported { source, confidence } => CompatFit::Refused {
                    why: format!(
                        "it does not work on drivers of branch {} ({source})",
                        driver.major()
                    ),
                    by_gpu: false,
                    confidence,
                },
                Compat::Unknown { why } => CompatFit::Unknown { why },
            }
        };
        match by_driver {
            CompatFit::Works { .. } if !unsure.is_empty() => CompatFit::Unknown {
                why: format!(
                    "whether {} may use it is in no table: data-center boards may, GeForce may not (error 804)",
                    unsure.join(" and ")
                ),
            },
            fit => fit,
        }
    }

    /// Whether the compat package of this CUDA version works on a driver of this branch.
    pub fn forward_compat(&self, cuda: &Version, base_branch: u32) -> Compat {
        let wanted = Version::from_cuda_level(cuda.cuda_level());
        let base = self
            .driver_branches()
            .iter()
            .find(|row| row.branch == base_branch);
        // A base of the same level needs no package, a newer one refuses it: that holds for every package.
        if let Some(base) = base.filter(|base| base.level == wanted.cuda_level()) {
            return Compat::Native {
                source: base.source.clone(),
                confidence: base.confidence,
            };
        }
        if base.is_some_and(|base| base.level > wanted.cuda_level()) {
            let source =
                "CUDA Compatibility guide: a package older than the driver is not to be used"
                    .to_owned();
            return Compat::NotSupported {
                source,
                confidence: Confidence::Verified,
            };
        }
        let Some(row) = self
            .forward_compat_rows()
            .iter()
            .find(|row| row.cuda == wanted)
        else {
            return Compat::Unknown {
                why: format!("no row for a compat package of CUDA {wanted}"),
            };
        };
        let (source, confidence) = (row.source.clone(), row.confidence);
        if row.supported.contains(&base_branch) {
            return Compat::Supported { source, confidence };
        }
        if row.undecided.contains(&base_branch) {
            return Compat::Unknown {
                why: row
                    .note
                    .clone()
                    .unwrap_or_else(|| "sources disagree".to_owned()),
            };
        }
        let newer = row.native.is_some_and(|native| base_branch > native);
        if newer || row.complete || row.not_supported.contains(&base_branch) {
            return Compat::NotSupported { source, confidence };
        }
        Compat::Unknown {
            why: format!(
                "branch {base_branch} is in no list that was seen for {}",
                row.package
            ),
        }
    }

    /// Whether a GPU may use forward compatibility, by its name (NVML's or this matrix's): data-center boards may,
    /// `GeForce` and TITAN may not; of professional RTX boards some may, so those are `None`, like all else.
    pub fn compat_eligible(&self, name: &str) -> Option<bool> {
        let name = name.trim();
        let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
        let first = name
            .split(|c: char| c == '-' || c.is_whitespace())
            .next()
            .unwrap_or_default();
        match first {
            "Tesla" => Some(true),
            "GeForce" | "TITAN" | "GTX" | "GT" => Some(false),
            _ => is_data_center(first).then_some(true),
        }
    }
}

/// Why a compat library cannot work, where that is certain from its own file and the names of the GPUs: it is older than the
/// driver, its note has another list, a GPU may not use it. One GPU is enough, since all that are visible count.
pub fn refused_for_certain(
    library: CompatLibrary<'_>,
    driver: &Version,
    gpus: &[(String, Option<bool>)],
) -> Option<CompatFit> {
    let (why, by_gpu) = if library.version.is_some_and(|own| own < driver) {
        (
            format!("it is older than the driver {driver}, which needs no compat library"),
            false,
        )
    } else if !library.branches.is_empty() && !library.branches.contains(&driver.major()) {
        let list: Vec<String> = library.branches.iter().map(ToString::to_string).collect();
        (
            format!(
                "its own note allows branches {} and the driver is {driver}",
                list.join(", ")
            ),
            false,
        )
    } else {
        let (name, _) = gpus.iter().find(|(_, may)| *may == Some(false))?;
        (
            format!("forward compatibility is for data-center GPUs, and {name} is none"),
            true,
        )
    };
    Some(CompatFit::Refused {
        why,
        by_gpu,
        confidence: Confidence::Verified,
    })
}

/// `A100`, `L40S`, `H20`, `B200`, `GH200`, `GB300`. Not `A1000` (a professional board), `GB10` (DGX Spark), `GB202` (a chip).
fn is_data_center(word: &str) -> bool {
    let letters = word.len()
        - word
            .trim_start_matches(|c: char| c.is_ascii_uppercase())
            .len();
    let Some((series, rest)) = word.split_at_checked(letters) else {
        return false;
    };
    let number = rest.trim_end_matches(['G', 'S', 'M', 'X']);
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    match series {
        "A" | "H" | "L" | "B" => digits && number.len() <= 3,
        "GH" | "GB" => digits && number.len() == 3 && number.ends_with("00"),
        _ => false,
    }
}
