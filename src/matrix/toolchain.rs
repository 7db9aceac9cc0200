//! Compilers: what ptxas of a toolkit builds for, which host compilers nvcc takes, what glibc NVIDIA's files need.

use serde::{Deserialize, Serialize};

use super::rows::row;
use super::{Confidence, Matrix};
use crate::version::Version;

/// Targets of ptxas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PtxasTargets {
    /// The first minor version of the toolkit with this list: 12.0.
    pub toolkit_from: Version,
    /// The last one.
    pub toolkit_to: Version,
    /// What follows `sm_`: `86`, `90a`.
    pub targets: Vec<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(PtxasTargets, |row| row.toolkit_from);

/// The newest host compilers that nvcc takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCompiler {
    /// The first release that the row is for, up to the next row of the same minor.
    pub toolkit: Version,
    /// The newest major version of GCC.
    pub gcc_max: u32,
    /// The oldest one by the installation guides; no header tests for it.
    pub gcc_min: Option<u32>,
    /// Where weaker than the row.
    pub gcc_min_confidence: Option<Confidence>,
    /// The newest major version of Clang.
    pub clang_max: u32,
    /// The lower bound for Clang in the header.
    pub clang_min: Version,
    /// The first version of GCC, within what the header lets pass, whose C++ headers nvcc cannot parse.
    pub gcc_headers_break: Option<Version>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(HostCompiler, |row| row.toolkit);

/// The newest symbol version of glibc that a file of NVIDIA asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Glibc {
    /// Which files.
    pub component: String,
    /// 2.17.
    pub max_symbol_version: Version,
    /// The least seen among them, where they differ.
    pub min_seen: Option<Version>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Glibc, |row| row.component);

/// A function that the C library declares from some version on, and toolkits before some version in another way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedMath {
    /// `cospi`.
    pub function: String,
    /// The first glibc that declares it.
    pub glibc: Version,
    /// The oldest toolkit that is known to go with it.
    pub toolkit: Version,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(SharedMath, |row| row.function);

impl Matrix {
    /// What ptxas of this toolkit builds for; `None` for toolkits that were not asked.
    pub fn ptxas_targets(&self, toolkit: &Version) -> Option<&PtxasTargets> {
        let minor = Version::from_cuda_level(toolkit.cuda_level());
        self.ptxas_target_rows()
            .iter()
            .find(|row| row.toolkit_from <= minor && minor <= row.toolkit_to)
    }

    /// The first toolkit that is known to build for a target: what follows `sm_`, `100f`.
    pub fn first_toolkit_for(&self, target: &str) -> Option<Version> {
        let rows = self.ptxas_target_rows().iter();
        let knows = |row: &&PtxasTargets| row.targets.iter().any(|known| known == target);
        rows.filter(knows).map(|row| row.toolkit_from.clone()).min()
    }

    /// The first toolkit whose nvcc takes a GCC of this major version.
    pub fn first_toolkit_for_gcc(&self, major: u32) -> Option<&HostCompiler> {
        self.host_compilers().iter().find(|row| {
            let breaks = row.gcc_headers_break.as_ref();
            row.gcc_max >= major && breaks.is_none_or(|version| version.major() != major)
        })
    }

    /// The first toolkit whose nvcc takes a Clang of this major version.
    pub fn first_toolkit_for_clang(&self, major: u32) -> Option<&HostCompiler> {
        self.host_compilers()
            .iter()
            .find(|row| row.clang_max >= major)
    }

    /// The newest host compilers for this toolkit.
    pub fn host_compiler(&self, toolkit: &Version) -> Option<&HostCompiler> {
        let of_minor = |row: &&HostCompiler| row.toolkit.major_minor() == toolkit.major_minor();
        let mut rows = self.host_compilers().iter().filter(of_minor);
        let first = rows.next()?;
        Some(
            rows.take_while(|row| row.toolkit <= *toolkit)
                .last()
                .unwrap_or(first),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_up_to_the_next_one_of_its_minor() {
        let matrix = Matrix::bundled();
        let gcc = |text: &str| {
            matrix
                .host_compiler(&Version::parse(text).unwrap())
                .map(|row| row.gcc_max)
        };
        assert_eq!(
            (
                gcc("11.4.0"),
                gcc("11.4.4"),
                gcc("11.5"),
                gcc("12.7"),
                gcc("14.0")
            ),
            (Some(10), Some(11), Some(11), None, None)
        );
    }
}
