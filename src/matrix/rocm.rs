//! AMD's instruction sets, and which releases of `ROCm` go with which driver.

use serde::{Deserialize, Serialize};

use super::rows::row;
use super::{Confidence, Matrix};
use crate::gfx::GfxTarget;
use crate::version::Version;

/// SPIR-V, which is compiled for the GPU that it meets (LLVM, "User Guide for AMDGPU Backend").
const FOR_ANY: &str = "amdgcnspirv";

/// An instruction set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GfxRow {
    /// `gfx1031`.
    pub name: String,
    /// Whether such a GPU is part of a processor.
    #[serde(default)]
    pub integrated: bool,
    /// The generic target whose code runs on it: `gfx10-3-generic`.
    pub family: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(GfxRow, |row| row.name);

/// An instruction set for which code of another one is known to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GfxOverride {
    /// What the GPU has.
    pub gpu: String,
    /// What the code is for.
    pub code: String,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(GfxOverride, |row| format!("{} {}", row.gpu, row.code));

/// Python distributions that are of use on AMD's GPUs alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RocmDistribution {
    /// The start of their names: `jax-rocm` stands for `jax-rocm7-plugin` as well.
    pub name: String,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(RocmDistribution, |row| row.name);

/// A driver of AMD's packages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RocmDriver {
    /// The release of `ROCm` that it came with, later its own: 6.3, 30.30.
    pub driver: Version,
    /// Releases of the user space that it was tested with.
    pub rocm: Vec<Version>,
    /// Whether later releases were not out when that was written.
    #[serde(default)]
    pub later_unknown: bool,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(RocmDriver, |row| row.driver);

impl Matrix {
    /// What is known of an instruction set.
    pub fn gfx_target(&self, target: GfxTarget) -> Option<&GfxRow> {
        let name = target.to_string();
        self.gfx_targets().iter().find(|row| row.name == name)
    }

    /// Whether a GPU of this instruction set is part of a processor; `None` where the matrix does not know it.
    pub fn gfx_is_integrated(&self, target: GfxTarget) -> Option<bool> {
        self.gfx_target(target).map(|row| row.integrated)
    }

    /// Whether a name as code objects have it is understood: of a target, of a family, of code that is compiled when it is loaded.
    pub fn gfx_code_is_known(&self, code: &str) -> bool {
        GfxTarget::parse(code).is_some() || code.ends_with("-generic") || code == FOR_ANY
    }

    /// Whether code for `target`, a name as code objects have it, runs on a GPU of this instruction set.
    pub fn gfx_code_runs(&self, code: &str, gpu: GfxTarget) -> bool {
        let family = || self.gfx_target(gpu)?.family.as_deref();
        GfxTarget::parse(code) == Some(gpu) || family() == Some(code) || code == FOR_ANY
    }

    /// Of these targets the one that `HSA_OVERRIDE_GFX_VERSION` may stand for on a GPU that has no code: one that is known to
    /// run, else the lowest of the same family. The source, and whether it is known.
    pub fn gfx_stand_in(
        &self,
        gpu: GfxTarget,
        among: &[String],
    ) -> Option<(GfxTarget, String, bool)> {
        let name = gpu.to_string();
        let known = self.gfx_overrides().iter();
        let mut known = known.filter(|row| row.gpu == name && among.contains(&row.code));
        if let Some(row) = known.next() {
            return Some((GfxTarget::parse(&row.code)?, row.source.clone(), true));
        }
        let own = self.gfx_target(gpu)?;
        own.family.as_ref()?;
        let alike = among
            .iter()
            .filter_map(|name| GfxTarget::parse(name))
            .filter(|target| {
                *target != gpu
                    && self
                        .gfx_target(*target)
                        .is_some_and(|row| row.family == own.family)
            });
        Some((alike.min()?, own.source.clone(), false))
    }

    /// The row of a driver of AMD's packages.
    pub fn rocm_driver(&self, driver: &Version) -> Option<&RocmDriver> {
        let minor = driver.major_minor();
        let mut rows = self.rocm_drivers().iter();
        rows.find(|row| row.driver.major_minor() == minor)
    }
}
