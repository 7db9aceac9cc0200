//! NVML's questions about one GPU: its sensors, modes and instances. Typed symbols as in [`super::dl`], raw return codes,
//! nothing interpreted.
//!
//! Types and names by nvml.h of CUDA 12.4. Numbered fields (`nvmlDeviceGetFieldValues`) are not used: some changed their
//! meaning at driver 580.82.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use super::dl::{Entry, NvmlHandle, Symbol};

/// `(nvmlDevice_t, unsigned *out)`; also with an `int` or an enumeration as `out`, which have the same shape.
pub type OfDevice = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_int;
/// `(nvmlDevice_t, unsigned *current, unsigned *pending)`.
pub type TwoOfDevice = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut c_uint) -> c_int;
/// `(nvmlDevice_t, nvmlTemperatureSensors_t, unsigned *out)`.
pub type Temperature = unsafe extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int;
/// `(nvmlDevice_t, nvmlUtilization_t *out)`.
pub type UtilizationRates = unsafe extern "C" fn(*mut c_void, *mut Utilization) -> c_int;
/// `(nvmlDevice_t, nvmlMemory_t *out)`.
pub type FirstMemory = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;
/// `(nvmlDevice_t, nvmlMemory_v2_t *out)`.
pub type SecondMemory = unsafe extern "C" fn(*mut c_void, *mut Memory2) -> c_int;
/// `(nvmlDevice_t, unsigned *count, nvmlProcessInfo_t *infos)`.
pub type Processes = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut c_void) -> c_int;
/// `(nvmlDevice_t, unsigned index, nvmlDevice_t *out)`.
pub type InstanceHandle = unsafe extern "C" fn(*mut c_void, c_uint, *mut *mut c_void) -> c_int;
/// `(nvmlDevice_t, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)`.
pub type RowRemapping =
    unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint) -> c_int;

/// `nvmlDeviceGetMemoryInfo_v2`: what the driver keeps for itself is not in `used`. From driver 510 on.
pub const MEMORY_2: Symbol<SecondMemory> = Symbol::new(&["nvmlDeviceGetMemoryInfo_v2"]);
/// `nvmlDeviceGetMemoryInfo`: `used` holds what the driver keeps for itself.
pub const MEMORY: Symbol<FirstMemory> = Symbol::new(&["nvmlDeviceGetMemoryInfo"]);
/// Percent of the last sample period in which a kernel ran.
pub const UTILIZATION: Symbol<UtilizationRates> = Symbol::new(&["nvmlDeviceGetUtilizationRates"]);
/// Degrees Celsius.
pub const TEMPERATURE: Symbol<Temperature> = Symbol::new(&["nvmlDeviceGetTemperature"]);
/// Milliwatts.
pub const POWER: Symbol<OfDevice> = Symbol::new(&["nvmlDeviceGetPowerUsage"]);
/// 1: MIG is on; now, and after the next reset.
pub const MIG_MODE: Symbol<TwoOfDevice> = Symbol::new(&["nvmlDeviceGetMigMode"]);
/// How many MIG devices there could be at most.
pub const MIG_MOST: Symbol<OfDevice> = Symbol::new(&["nvmlDeviceGetMaxMigDeviceCount"]);
/// A MIG device; 6 (not found) where there is none of that index.
pub const MIG_DEVICE: Symbol<InstanceHandle> =
    Symbol::new(&["nvmlDeviceGetMigDeviceHandleByIndex"]);
/// Processes with a compute context. All editions count alike.
pub const COMPUTE_PROCESSES: Symbol<Processes> = Symbol::new(&[
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetComputeRunningProcesses",
]);
/// 1: ECC is on; now, and after the next reboot.
pub const ECC_MODE: Symbol<TwoOfDevice> = Symbol::new(&["nvmlDeviceGetEccMode"]);
/// Rows of memory that were, or will be, replaced by spare ones. Ampere and newer.
pub const REMAPPED_ROWS: Symbol<RowRemapping> = Symbol::new(&["nvmlDeviceGetRemappedRows"]);
/// 1: pages of memory will be retired at the next reboot. Before Ampere.
pub const RETIRED_PAGES_PENDING: Symbol<OfDevice> =
    Symbol::new(&["nvmlDeviceGetRetiredPagesPendingStatus"]);
/// `nvmlComputeMode_t`: 0 default, 1 exclusive to a thread, 2 prohibited, 3 exclusive to a process.
pub const COMPUTE_MODE: Symbol<OfDevice> = Symbol::new(&["nvmlDeviceGetComputeMode"]);
/// 1: persistence mode is on.
pub const PERSISTENCE: Symbol<OfDevice> = Symbol::new(&["nvmlDeviceGetPersistenceMode"]);
/// Lanes of PCI Express in use.
pub const LINK_WIDTH: Symbol<OfDevice> = Symbol::new(&["nvmlDeviceGetCurrPcieLinkWidth"]);
/// Lanes of PCI Express that GPU and slot together could use.
pub const LINK_WIDTH_MAX: Symbol<OfDevice> = Symbol::new(&["nvmlDeviceGetMaxPcieLinkWidth"]);

/// `NVML_ERROR_INSUFFICIENT_SIZE`: the list is longer than the room for it, which is how a count is asked for.
const INSUFFICIENT_SIZE: i32 = 7;
/// `NVML_TEMPERATURE_GPU`.
const ON_THE_DIE: c_uint = 0;

/// `nvmlUtilization_t`, with room to spare should an edition write more.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
    spare: [c_uint; 6],
}

/// `nvmlMemory_t`, with room to spare.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
    spare: [c_ulonglong; 5],
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Memory2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_v2` of nvml.h: the structure's size, and its edition in the highest byte.
const MEMORY_2_VERSION: c_uint = 0x28 | 2 << 24;
const _: () = assert!(size_of::<Memory2>() == 40);

impl Entry<OfDevice> {
    /// The return code and the number, which means something only where the code is 0.
    pub fn call(&self, device: NvmlHandle) -> (i32, u32) {
        let mut number = 0;
        // SAFETY: the handle came from this library; the function writes one unsigned, int or enumeration.
        let code = unsafe { (self.call)(device.0, &raw mut number) };
        (code, number)
    }
}

impl Entry<TwoOfDevice> {
    /// The return code, what is now and what is pending.
    pub fn call(&self, device: NvmlHandle) -> (i32, (u32, u32)) {
        let (mut current, mut pending) = (0, 0);
        // SAFETY: the handle came from this library; the function writes two unsigned or enumerations.
        let code = unsafe { (self.call)(device.0, &raw mut current, &raw mut pending) };
        (code, (current, pending))
    }
}

impl Entry<Temperature> {
    /// The return code and the temperature of the die in degrees Celsius.
    pub fn call(&self, device: NvmlHandle) -> (i32, u32) {
        let mut celsius = 0;
        // SAFETY: the handle came from this library; the function writes one unsigned.
        let code = unsafe { (self.call)(device.0, ON_THE_DIE, &raw mut celsius) };
        (code, celsius)
    }
}

impl Entry<UtilizationRates> {
    /// The return code and the GPU's utilisation in percent.
    pub fn call(&self, device: NvmlHandle) -> (i32, u32) {
        let mut rates = Utilization::default();
        // SAFETY: the handle came from this library; the structure is as large as the header says, and larger.
        let code = unsafe { (self.call)(device.0, &raw mut rates) };
        (code, rates.gpu)
    }
}

impl Entry<FirstMemory> {
    /// The return code, used and total bytes.
    pub fn call(&self, device: NvmlHandle) -> (i32, (u64, u64)) {
        let mut memory = Memory::default();
        // SAFETY: the handle came from this library; the structure is as large as the header says, and larger.
        let code = unsafe { (self.call)(device.0, &raw mut memory) };
        (code, (memory.used, memory.total))
    }
}

impl Entry<SecondMemory> {
    /// The return code, used and total bytes.
    pub fn call(&self, device: NvmlHandle) -> (i32, (u64, u64)) {
        let mut memory = Memory2 {
            version: MEMORY_2_VERSION,
            ..Memory2::default()
        };
        // SAFETY: the handle came from this library; the structure says its own edition and size, which is the
        // header's.
        let code = unsafe { (self.call)(device.0, &raw mut memory) };
        (code, (memory.used, memory.total))
    }
}

impl Entry<Processes> {
    /// The return code, 0 where the count was told, and the count.
    pub fn call(&self, device: NvmlHandle) -> (i32, u32) {
        let mut count = 0;
        // SAFETY: the handle came from this library; with room for no entry the function writes the count only.
        let code = unsafe { (self.call)(device.0, &raw mut count, std::ptr::null_mut()) };
        (if code == INSUFFICIENT_SIZE { 0 } else { code }, count)
    }
}

impl Entry<InstanceHandle> {
    /// The return code: 0 where there is a MIG device of this index.
    pub fn call(&self, device: NvmlHandle, index: u32) -> (i32, ()) {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the handle came from this library; the function writes one pointer.
        let code = unsafe { (self.call)(device.0, index, &raw mut handle) };
        (code, ())
    }
}

impl Entry<RowRemapping> {
    /// The return code; whether a remapping waits for a reset, and whether one failed.
    pub fn call(&self, device: NvmlHandle) -> (i32, (bool, bool)) {
        let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
        // SAFETY: the handle came from this library; the function writes four unsigned.
        let code = unsafe {
            (self.call)(
                device.0,
                &raw mut corrected,
                &raw mut uncorrected,
                &raw mut pending,
                &raw mut failed,
            )
        };
        (code, (pending != 0, failed != 0))
    }
}
