//! What distributions call the parts of the stack, and the commands that install them.
//!
//! A command is given only where its row is verified and names this very distribution: a relative's package may have
//! another name, and a wrong command is worse than none.

use serde::{Deserialize, Serialize};

use super::rows::row;
use super::{Confidence, Matrix};
use crate::version::Version;

/// What a package is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Headers of the running kernel, to build modules.
    KernelHeaders,
    /// Build all registered modules for the running kernel.
    RebuildModules,
    /// The driver with proprietary kernel modules.
    Driver,
    /// The open kernel modules.
    OpenModules,
    /// The driver of branch 470, last for Kepler.
    #[serde(rename = "legacy-470")]
    Legacy470,
    /// The driver of LTS branch 535.
    #[serde(rename = "lts-535")]
    Lts535,
    /// The setuid helper that makes device nodes.
    Modprobe,
    /// The persistence daemon.
    Persistence,
    /// GSP firmware.
    GspFirmware,
}

/// A package of a distribution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistroPackage {
    /// `ID` of os-release.
    pub os: String,
    /// `VERSION_ID`; `None` = every version.
    pub version: Option<String>,
    /// What it is for.
    pub purpose: Purpose,
    /// Package names; `{release}` stands for the kernel's release, `{branch}` for a driver branch.
    pub packages: Vec<String>,
    /// The driver branch that this version of the distribution has.
    pub driver_branch: Option<u32>,
    /// Parts of the archive that have to be enabled.
    #[serde(default)]
    pub components: Vec<String>,
    /// Commands, each a list of words; as root.
    #[serde(default)]
    pub commands: Vec<Vec<String>>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(DistroPackage, |row| format!(
    "{} {} {:?}",
    row.os,
    row.version.as_deref().unwrap_or("*"),
    row.purpose
));

/// The C and C++ libraries of a distribution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistroLibc {
    /// `ID` of os-release.
    pub os: String,
    /// `VERSION_ID`, or its first number where that decides.
    pub version: Version,
    /// Its glibc.
    pub glibc: Version,
    /// The newest symbol version of its libstdc++, where known.
    pub glibcxx: Option<Version>,
    /// Where weaker than the row.
    pub glibcxx_confidence: Option<Confidence>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(DistroLibc, |row| format!("{} {}", row.os, row.version));

/// What stands for the kernel's release in packages and commands.
pub(super) const RELEASE: &str = "{release}";

impl Matrix {
    /// The C and C++ libraries of a distribution (`ID` and `VERSION_ID` of os-release).
    pub fn distro_libc(&self, id: &str, version: &Version) -> Option<&DistroLibc> {
        let rows = || self.distro_libcs().iter().filter(|row| row.os == id);
        rows().find(|row| row.version == *version).or_else(|| {
            rows().find(|row| row.version.len() == 1 && row.version.major() == version.major())
        })
    }

    /// The row for a distribution (`ID`, `VERSION_ID` of os-release), else one for a relative (`ID_LIKE`), whose names
    /// may be told but whose commands do not count.
    pub fn distro_packages(
        &self,
        id: &str,
        id_like: &[String],
        version: &str,
        purpose: Purpose,
    ) -> Option<&DistroPackage> {
        let of = |os: &str| {
            let mut rows = self
                .distro_package_rows()
                .iter()
                .filter(|row| row.purpose == purpose && row.os == os);
            rows.find(|row| {
                row.version
                    .as_deref()
                    .is_none_or(|wanted| wanted == version)
            })
        };
        of(id).or_else(|| id_like.iter().find_map(|id| of(id)))
    }

    /// Commands for this very distribution, each a list of words to quote; none where no verified row has them, or where
    /// they need the kernel's release and it is not known.
    pub fn distro_commands(
        &self,
        id: &str,
        version: &str,
        purpose: Purpose,
        release: Option<&str>,
    ) -> Vec<Vec<String>> {
        let row = self
            .distro_packages(id, &[], version, purpose)
            .filter(|row| row.confidence == Confidence::Verified);
        let filled = |words: &Vec<String>| {
            words
                .iter()
                .map(|word| {
                    if word.contains(RELEASE) {
                        Some(word.replace(RELEASE, release?))
                    } else {
                        Some(word.clone())
                    }
                })
                .collect()
        };
        row.map_or_else(Vec::new, |row| {
            row.commands
                .iter()
                .map(filled)
                .collect::<Option<_>>()
                .unwrap_or_default()
        })
    }
}
