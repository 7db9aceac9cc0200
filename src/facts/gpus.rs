//! The GPUs of a machine at one moment: what `gpudoctor gpus` shows. Plain data; no snapshot holds it, since it is out of
//! date the moment it is read.

use serde::{Deserialize, Serialize};

use super::{ChildEnd, DeviceAnswer};

/// What one sensor of a GPU answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sensor {
    /// A number, in the unit that the field's name says.
    Reads(u64),
    /// None, and NVML's code for why: 3 where the board has no such sensor.
    Refuses(i64),
}

/// `NVML_ERROR_NOT_SUPPORTED`: the board has no such thing.
pub const NVML_NOT_SUPPORTED: i64 = 3;
/// `NVML_ERROR_GPU_IS_LOST`.
pub const NVML_GPU_IS_LOST: i64 = 15;

impl Default for Sensor {
    fn default() -> Self {
        Self::Refuses(NVML_NOT_SUPPORTED)
    }
}

impl Sensor {
    /// The number, where there is one.
    pub fn value(self) -> Option<u64> {
        match self {
            Self::Reads(number) => Some(number),
            Self::Refuses(_) => None,
        }
    }

    /// Why there is none.
    pub fn code(self) -> Option<i64> {
        match self {
            Self::Reads(_) => None,
            Self::Refuses(code) => Some(code),
        }
    }
}

/// What NVML says of one GPU at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuSample {
    /// Which one it is, and what changes seldom.
    pub device: DeviceAnswer,
    /// Memory in use, without what the driver keeps for itself where the driver tells that apart (510 and newer).
    pub memory_used_bytes: Sensor,
    /// All memory.
    pub memory_total_bytes: Sensor,
    /// Share of the last sample period in which a kernel ran.
    pub utilization_percent: Sensor,
    /// Of the die.
    pub temperature_celsius: Sensor,
    /// Of the board.
    pub power_milliwatts: Sensor,
}

impl GpuSample {
    /// The sensors with the names of their fields.
    pub fn sensors(&self) -> [(&'static str, Sensor); 5] {
        [
            ("memory_used_bytes", self.memory_used_bytes),
            ("memory_total_bytes", self.memory_total_bytes),
            ("utilization_percent", self.utilization_percent),
            ("temperature_celsius", self.temperature_celsius),
            ("power_milliwatts", self.power_milliwatts),
        ]
    }

    /// The code that stands for the whole GPU: 0 where it answers, 15 where it is lost, another one where every sensor
    /// refuses with it although the board must have some of them.
    pub fn code(&self) -> i64 {
        let sensors = self.sensors();
        let codes = || sensors.iter().filter_map(|(_, sensor)| sensor.code());
        if self.device.code != 0 {
            self.device.code
        } else if codes().any(|code| code == NVML_GPU_IS_LOST) {
            NVML_GPU_IS_LOST
        } else {
            let first = codes().next().unwrap_or_default();
            let all = codes().filter(|code| *code == first).count() == sensors.len();
            if all && first != NVML_NOT_SUPPORTED {
                first
            } else {
                0
            }
        }
    }
}

/// One GPU, of whatever vendor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuLine {
    /// `nvidia`, `amd`, `intel`.
    pub vendor: &'static str,
    /// Address and id on the PCI bus, where it is a PCI device and sysfs shows it.
    pub pci: Option<(String, String)>,
    /// The kernel driver that is bound to it, by sysfs.
    pub bound: Option<String>,
    /// What is known of it.
    pub state: GpuState,
}

/// What sysfs tells of a GPU of AMD or Intel. What its driver does not offer there is refused as NVML refuses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysfsGpu {
    /// The product, where libdrm's list or the matrix has it.
    pub name: Option<String>,
    /// The instruction set that KFD names: `gfx1100`.
    pub target: Option<String>,
    /// Whether it sleeps: then it was not woken to be read.
    pub asleep: bool,
    /// Its sensors.
    pub sample: GpuSample,
}

impl SysfsGpu {
    /// Whether any sensor tells something.
    pub fn reads(&self) -> bool {
        let sensors = self.sample.sensors();
        sensors.iter().any(|(_, sensor)| sensor.value().is_some())
    }
}

/// What is known of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuState {
    /// NVML was asked. Its code says whether it answered.
    Asked(Box<GpuSample>),
    /// It sleeps and was not woken.
    Asleep {
        /// Its index in NVML's order, as far as that follows from the addresses.
        index: u32,
        /// What the driver calls it.
        name: Option<String>,
    },
    /// NVML does not know it: another vendor's GPU, told by sysfs alone.
    Foreign(Box<SysfsGpu>),
}

/// All GPUs at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpus {
    /// When, in UTC (RFC 3339, whole seconds).
    pub taken_at: String,
    /// The driver's version, as NVML or the loaded module says it.
    pub driver: Option<String>,
    /// One entry a GPU: NVIDIA's in NVML's order, then the others by address.
    pub lines: Vec<GpuLine>,
    /// Why NVIDIA's GPUs, or some of them, could not be asked.
    pub trouble: Option<Trouble>,
}

/// Why GPUs could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There is none.
    NoGpu,
    /// So many are on the bus, and no driver seems loaded.
    NoDriver {
        /// How many.
        gpus: usize,
    },
    /// There is no libnvidia-ml that the loader would take; where it was looked for.
    NoLibrary(String),
    /// The library was not loaded, or nothing was asked of it: why.
    NotAsked(String),
    /// NVML does not start, or does not count GPUs: the call and its code.
    Refused {
        /// `nvmlInit_v2`.
        call: String,
        /// 9: the driver is not loaded.
        code: i64,
    },
    /// It was asked and died or hung.
    Ended(ChildEnd),
    /// A child that hung before could not be killed, and no other is started beside it.
    Stuck,
    /// NVML counts none.
    NoneCounted,
    /// Some sleep, and which of those that NVML counts these are cannot be told without waking them.
    WhichSleep,
}
