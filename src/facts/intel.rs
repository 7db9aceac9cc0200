//! Intel's stack: what the loader finds of Level Zero. Its kernel drivers are told by the bus and among the modules, its render
//! nodes by the facts of DRM.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FileKind, Reading};

/// What there is of Intel's stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IntelFacts {
    /// The loader of Level Zero that the consumer gets: `libze_loader.so.1`. Absent: there is none.
    pub level_zero_loader: Reading<IntelLibrary>,
    /// The driver that this loader opens: `libze_intel_gpu.so.1` of Intel's compute runtime, or of its line for older GPUs.
    pub level_zero_driver: Reading<IntelLibrary>,
    /// The runtimes of SYCL that torch or the program that was named needs.
    pub sycl: Reading<Vec<SyclNeed>>,
}

/// A runtime of SYCL that something needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SyclNeed {
    /// `libsycl.so.8`.
    pub soname: String,
    /// The file that needs it.
    pub user: String,
    /// The file that it gets. Absent: there is none.
    pub found: Reading<String>,
    /// Where a release of oneAPI has one that no search path leads to.
    pub elsewhere: Option<String>,
}

/// A library of Intel's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IntelLibrary {
    /// Where it was found.
    pub path: String,
    /// Where that path leads in the end.
    pub real_path: String,
    /// What kind of file it is.
    pub kind: FileKind,
}
