//! Drivers of Vulkan and `OpenCL`: whose GPUs each is for.

use serde::{Deserialize, Serialize};

use super::rows::row;
use super::{Confidence, Matrix};
use crate::facts::Vendor;

/// A driver, by its library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IcdRow {
    /// Its file name without ending and version: `libvulkan_intel`.
    pub library: String,
    /// `vulkan` or `opencl`.
    pub api: String,
    /// Whose GPUs it drives, where those are of one maker.
    pub vendor: Option<Vendor>,
    /// The kernel drivers that it works with.
    #[serde(default)]
    pub kernel_drivers: Vec<String>,
    /// The package of Debian and Ubuntu that has it.
    pub debian: Option<String>,
    /// Whether its device is the processor.
    #[serde(default)]
    pub cpu: bool,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(IcdRow, |row| row.library);

impl Matrix {
    /// The driver whose library has this name, without ending and version.
    pub fn icd(&self, library: &str) -> Option<&IcdRow> {
        self.icds().iter().find(|row| row.library == library)
    }
}
