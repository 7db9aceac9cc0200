//! What is known of NVIDIA's container toolkit by version.

use serde::{Deserialize, Serialize};

use super::Confidence;
use super::rows::row;
use crate::version::Version;

/// A known hole of the toolkit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolkitFlaw {
    /// `CVE-2024-0132`.
    pub id: String,
    /// The last version that has it.
    pub last: Version,
    /// The first version that has it no more.
    pub fixed: Version,
    /// A host that works by CDI alone does not have it.
    #[serde(default)]
    pub not_in_cdi: bool,
    /// Before this version only a host that works by CDI has it.
    pub cdi_only_before: Option<Version>,
    /// Only where `nvidia-container-cli.ldconfig` does not begin with `@`.
    #[serde(default)]
    pub needs_own_ldconfig: bool,
    /// Not where `features.disable-cuda-compat-lib-hook` is set.
    #[serde(default)]
    pub off_without_compat_hook: bool,
    /// The first GPU operator that brings a toolkit without it.
    pub operator_fixed: Option<Version>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(ToolkitFlaw, |flaw| flaw.id);

/// A kind of CDI devices that are NVIDIA GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CdiKind {
    /// `nvidia.com/gpu`.
    pub kind: String,
    /// Who writes its specification.
    pub made_by: String,
    /// How it is written anew; `{path}` stands for its file.
    pub command: Option<String>,
    /// The pod that writes it where the GPU operator runs.
    pub pod: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(CdiKind, |row| row.kind);
