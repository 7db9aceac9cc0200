//! The runtime layer: every libcudart, and the toolkits on disk.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FileKind, ReachedBy, Reading};
use crate::version::Version;

/// CUDA runtimes and toolkits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RuntimeFacts {
    /// Every libcudart that was found, what the consumer reaches first.
    pub cudart: Reading<Vec<RuntimeCopy>>,
    /// CUDA toolkits on disk.
    pub toolkits: Reading<Vec<Toolkit>>,
}

/// One libcudart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RuntimeCopy {
    /// Where it was found.
    pub path: String,
    /// Where that path leads in the end.
    pub real_path: String,
    /// What kind of file it is.
    pub kind: FileKind,
    /// Its soname: `libcudart.so.12`. All of 11.x is called `libcudart.so.11.0`.
    pub soname: Reading<String>,
    /// CUDA version by file: (1) the real file's name, (2) the version constant in its code, (3) the distribution that
    /// owns it. The update digit of a toolkit is not in the integer.
    pub version: Reading<Version>,
    /// Every source of the version that answered, in that order; a disagreement is a finding.
    pub versions: Vec<(String, Version)>,
    /// The distribution or package that brought it: `nvidia-cuda-runtime-cu12 12.8.90`.
    pub owner: Reading<String>,
    /// How it is reached.
    pub reached_by: Vec<ReachedBy>,
}

impl RuntimeCopy {
    /// Whether a process of the consumer gets this copy without further ado.
    pub fn is_reached(&self) -> bool {
        self.reached_by.iter().any(ReachedBy::is_live)
    }

    /// The CUDA major version that the soname promises; 10.2 and older carry the minor too.
    pub fn soname_version(&self) -> Option<Version> {
        self.soname
            .value()
            .and_then(|s| s.strip_prefix("libcudart.so."))
            .and_then(Version::parse)
    }
}

/// A toolkit folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Toolkit {
    /// `/usr/local/cuda-12.4`.
    pub path: String,
    /// From its `version.json` or `version.txt`.
    pub version: Reading<Version>,
}
