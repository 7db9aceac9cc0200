//! The hardware layer: what the PCI bus says, read without waking anything and without any driver.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reading;

/// PCI vendor id of NVIDIA.
pub const VENDOR_NVIDIA: u16 = 0x10de;
/// PCI vendor id of AMD.
pub const VENDOR_AMD: u16 = 0x1002;
/// PCI vendor id of Intel.
pub const VENDOR_INTEL: u16 = 0x8086;

/// A maker of GPUs whose stack is known.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Vendor {
    /// CUDA.
    Nvidia,
    /// `ROCm`.
    Amd,
    /// Level Zero.
    Intel,
}

impl Vendor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nvidia, Self::Amd, Self::Intel];

    /// As reports write it: `nvidia`, `amd`, `intel`.
    pub fn id(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Intel => "intel",
        }
    }

    /// As sentences write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
            Self::Intel => "Intel",
        }
    }

    /// Its PCI vendor id.
    pub fn pci_id(self) -> u16 {
        match self {
            Self::Nvidia => VENDOR_NVIDIA,
            Self::Amd => VENDOR_AMD,
            Self::Intel => VENDOR_INTEL,
        }
    }
}

/// What the bus holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HardwareFacts {
    /// Every function of a GPU vendor that is a display, a processing accelerator or an `NVSwitch`, sorted by address.
    /// Present and empty where the bus was read and holds none.
    pub pci: Reading<Vec<PciDevice>>,
    /// `NVSwitches` that the driver lists (`/proc/driver/nvidia-nvswitch/devices`), by PCI address.
    pub nvswitch_driver: Reading<Vec<String>>,
}

/// One PCI function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PciDevice {
    /// `0000:01:00.0`.
    pub address: String,
    /// Vendor id: 0x10de is NVIDIA.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Class code, 24 bits: 0x0300xx VGA, 0x0302xx 3D, 0x0680xx bridge (`NVSwitch`).
    pub class: u32,
    /// Subsystem vendor and device.
    #[serde(default)]
    pub subsystem: Reading<(u16, u16)>,
    /// The driver bound to it; absent where none is.
    #[serde(default)]
    pub driver: Reading<String>,
    /// A driver that somebody asked for by name (`driver_override`); absent where none.
    #[serde(default)]
    pub driver_override: Reading<String>,
    /// `active`, `suspended`, `unsupported`.
    #[serde(default)]
    pub runtime_status: Reading<String>,
    /// `D0`, `D3hot`, `D3cold`.
    #[serde(default)]
    pub power_state: Reading<String>,
    /// Lanes in use now; not read while the device sleeps, since that would wake it.
    #[serde(default)]
    pub link_width: Reading<u32>,
    /// Lanes that the device could use.
    #[serde(default)]
    pub link_width_max: Reading<u32>,
    /// Lanes of the slot or port that the device sits in; absent where it hangs on the root bus itself, as in many virtual
    /// machines. Not read while the device sleeps.
    #[serde(default)]
    pub slot_width_max: Reading<u32>,
    /// Sizes of the six base address registers in bytes; 0 = unused or unassigned.
    #[serde(default)]
    pub bar_bytes: Reading<Vec<u64>>,
    /// Whether the first 64 bytes of configuration space read all ones: the device no longer answers.
    #[serde(default)]
    pub config_all_ones: Reading<bool>,
    /// NUMA node, -1 = unknown.
    #[serde(default)]
    pub numa_node: Reading<i32>,
}

impl PciDevice {
    /// Whose GPU this is: a display device (class 03) or a processing accelerator (class 1200), as AMD's Instinct are.
    pub fn gpu_of(&self) -> Option<Vendor> {
        let is_gpu = self.class >> 16 == 0x03 || self.class >> 8 == 0x1200;
        Vendor::ALL
            .into_iter()
            .find(|vendor| is_gpu && vendor.pci_id() == self.vendor)
    }

    /// Whether this is one of AMD's GPUs.
    pub fn is_amd_gpu(&self) -> bool {
        self.gpu_of() == Some(Vendor::Amd)
    }

    /// Whether this is an NVIDIA GPU function (VGA or 3D controller).
    pub fn is_nvidia_gpu(&self) -> bool {
        self.vendor == VENDOR_NVIDIA && matches!(self.class >> 8, 0x0300 | 0x0302)
    }

    /// Whether this is an `NVSwitch` (a bridge of class 0680 by NVIDIA).
    pub fn is_nvswitch(&self) -> bool {
        self.vendor == VENDOR_NVIDIA && self.class >> 8 == 0x0680
    }

    /// `10de:2330`, as `lspci -n` writes it.
    pub fn id(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }

    /// Whether the device sleeps (runtime D3). A sleeping GPU wakes when it is used and is no fault.
    pub fn sleeps(&self) -> bool {
        matches!(
            self.runtime_status.value().map(String::as_str),
            Some("suspended" | "suspending")
        )
    }
}
