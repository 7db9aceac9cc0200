//! Intel's GPUs: which PCI id is which.

use serde::{Deserialize, Serialize};

use super::rows::row;
use super::{Confidence, Matrix};
use crate::facts::{GpuState, Gpus};

/// A GPU of Intel's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntelGpu {
    /// `Intel Arc A770 Graphics`.
    pub name: String,
    /// Its PCI device ids, four hexadecimal digits each.
    pub devices: Vec<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(IntelGpu, |row| row.name);

impl Matrix {
    /// The name of a GPU of Intel's, by its PCI device id.
    pub fn intel_gpu(&self, device: u16) -> Option<&IntelGpu> {
        let id = format!("{device:04x}");
        self.intel_gpus()
            .iter()
            .find(|row| row.devices.contains(&id))
    }

    /// Gives Intel's GPUs of a list their names, which sysfs does not tell.
    pub fn name_gpus(&self, gpus: &mut Gpus) {
        for line in &mut gpus.lines {
            let (Some((_, id)), GpuState::Foreign(gpu)) = (&line.pci, &mut line.state) else {
                continue;
            };
            let device = id.strip_prefix("8086:");
            let device = device.and_then(|device| u16::from_str_radix(device, 16).ok());
            if gpu.name.is_none() {
                gpu.name = device
                    .and_then(|device| self.intel_gpu(device))
                    .map(|row| row.name.clone());
            }
        }
    }
}
