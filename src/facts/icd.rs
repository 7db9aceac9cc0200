//! The drivers that the loaders of Vulkan and `OpenCL` are told of, and the library that each of them leads to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FileKind, Reading};

/// Drivers by programming interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IcdFacts {
    /// Manifests that Vulkan's loader reads, in its order.
    pub vulkan: Reading<Vec<Icd>>,
    /// Files that `OpenCL`'s loader reads.
    pub opencl: Reading<Vec<Icd>>,
}

/// A file that names a driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Icd {
    /// `/usr/share/vulkan/icd.d/intel_icd.x86_64.json`, `/etc/OpenCL/vendors/intel.icd`.
    pub path: String,
    /// The library, as written. Unreadable where the file cannot be read, or names none.
    pub library: Reading<String>,
    /// Whether it is for programs of 32 bits, by what the file or its name says.
    pub for_32_bit: bool,
    /// The file that the loader gets for that name. Absent: there is none.
    pub file: Reading<String>,
    /// What kind of file that is.
    pub kind: FileKind,
    /// The variable that names this file, or its folder, in place of the usual folders.
    pub named_by: Option<String>,
}

impl Icd {
    /// Whether the loader can load it; `None` where that cannot be told.
    pub fn loads(&self) -> Option<bool> {
        match (&self.file, &self.kind) {
            (Reading::Present { .. }, FileKind::Library) => Some(true),
            (Reading::Present { .. }, FileKind::Unreadable(_) | FileKind::Unknown)
            | (Reading::Unreadable { .. }, _) => None,
            (Reading::Present { .. } | Reading::Absent { .. }, _) => Some(false),
        }
    }
}
