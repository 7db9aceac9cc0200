//! libcuda, libnvidia-ml and libcudart by `dlopen`: typed symbols, raw return codes, nothing interpreted.
//!
//! A symbol can be had only through the constants of this file, which pair its names, newest first, with its type as
//! NVIDIA's headers declare it. Whether a library keeps to its header cannot be proved: that is why it is loaded only
//! in a child process, which holds nothing that a library gone wrong could spoil. NVML's numbered fields
//! (`nvmlDeviceGetFieldValues`) are not used: some numbers changed their meaning at driver 580.82.

use std::error::Error as _;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// Bytes that a library may write into a buffer for text. The longest that NVML documents is 96.
const TEXT_BYTES: u16 = 256;

/// A library that was loaded. It is never unloaded: its threads and exit handlers may still need its code.
#[derive(Debug)]
pub struct Loaded {
    library: Library,
}

impl Loaded {
    /// Loads the file as a CUDA program does (`RTLD_NOW`), which runs its constructors; the loader's message where it
    /// does not.
    pub fn open(path: &str) -> Result<&'static Self, String> {
        // SAFETY: constructors of the library run. That is the question being asked, and the reason why this process
        // exists; nothing here relies on what they leave behind.
        let library =
            unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(|e| words(&e))?;
        Ok(Box::leak(Box::new(Self { library })))
    }

    /// The first of the symbol's names that the library has; the loader's message about the last where it has none.
    pub fn find<F: Copy>(&'static self, symbol: &Symbol<F>) -> Result<Entry<F>, String> {
        let mut message = String::new();
        for &name in symbol.names {
            // SAFETY: the constants below are the only `Symbol`s, and each has the type of its names in the header.
            // The library stays loaded for as long as the program runs, so the pointer may be copied out.
            match unsafe { self.library.get::<F>(name) } {
                Ok(found) => return Ok(Entry { name, call: *found }),
                Err(e) => message = words(&e),
            }
        }
        Err(message)
    }
}

fn words(error: &libloading::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

/// The names of a function, newest first, and its type.
#[derive(Debug)]
pub struct Symbol<F> {
    names: &'static [&'static str],
    of: PhantomData<F>,
}

impl<F> Symbol<F> {
    pub(super) const fn new(names: &'static [&'static str]) -> Self {
        Self {
            names,
            of: PhantomData,
        }
    }

    /// The newest name.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }
}

/// A function that a library has.
#[derive(Clone, Copy, Debug)]
pub struct Entry<F> {
    /// The name under which it was found.
    pub name: &'static str,
    pub(super) call: F,
}

/// `(void)`.
pub type Plain = unsafe extern "C" fn() -> c_int;
/// `(unsigned flags)`.
pub type Flags = unsafe extern "C" fn(c_uint) -> c_int;
/// `(int *out)`; also `(unsigned *out)`, which has the same shape.
pub type Number = unsafe extern "C" fn(*mut c_int) -> c_int;
/// `(char *out, unsigned bytes)`.
pub type Text = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
/// `(CUdevice *out, int ordinal)`.
pub type CudaDevice = unsafe extern "C" fn(*mut c_int, c_int) -> c_int;
/// `(char *out, int bytes, CUdevice)`.
pub type CudaText = unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int;
/// `(int *out, CUdevice_attribute, CUdevice)`.
pub type CudaAttribute = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int;
/// `(unsigned index, nvmlDevice_t *out)`.
pub type NvmlDevice = unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int;
/// `(nvmlDevice_t, char *out, unsigned bytes)`.
pub type NvmlText = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> c_int;
/// `(nvmlDevice_t, nvmlPciInfo_t *out)`.
pub type NvmlPci = unsafe extern "C" fn(*mut c_void, *mut PciInfo) -> c_int;
/// `(nvmlDevice_t, int *major, int *minor)`.
pub type NvmlCapability = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_int) -> c_int;
/// `(hsa_system_info_t, void *out)`.
pub type HsaInfo = unsafe extern "C" fn(c_int, *mut c_void) -> c_int;

// cuda.h of CUDA 12.4 (the same in 11.8 and 13.0); the level as 1000 * major + 10 * minor.
/// `CUresult cuDriverGetVersion(int *driverVersion)`.
pub const CU_DRIVER_GET_VERSION: Symbol<Number> = Symbol::new(&["cuDriverGetVersion"]);
/// `CUresult cuInit(unsigned int Flags)`.
pub const CU_INIT: Symbol<Flags> = Symbol::new(&["cuInit"]);
/// `CUresult cuDeviceGetCount(int *count)`.
pub const CU_DEVICE_GET_COUNT: Symbol<Number> = Symbol::new(&["cuDeviceGetCount"]);
/// `CUresult cuDeviceGet(CUdevice *device, int ordinal)`.
pub const CU_DEVICE_GET: Symbol<CudaDevice> = Symbol::new(&["cuDeviceGet"]);
/// `CUresult cuDeviceGetName(char *name, int len, CUdevice dev)`.
pub const CU_DEVICE_GET_NAME: Symbol<CudaText> = Symbol::new(&["cuDeviceGetName"]);
/// `CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)`.
pub const CU_DEVICE_GET_ATTRIBUTE: Symbol<CudaAttribute> = Symbol::new(&["cuDeviceGetAttribute"]);
/// `CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)`.
pub const CU_DEVICE_GET_PCI_BUS_ID: Symbol<CudaText> = Symbol::new(&["cuDeviceGetPCIBusId"]);
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` of cuda.h.
pub const CAPABILITY_MAJOR: i32 = 75;
/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR` of cuda.h.
pub const CAPABILITY_MINOR: i32 = 76;

// cuda_runtime_api.h of CUDA 12.4 (the same in 11.8 and 13.0).
/// `cudaError_t cudaRuntimeGetVersion(int *runtimeVersion)`.
pub const CUDA_RUNTIME_GET_VERSION: Symbol<Number> = Symbol::new(&["cudaRuntimeGetVersion"]);
/// `cudaError_t cudaDriverGetVersion(int *driverVersion)`.
pub const CUDA_DRIVER_GET_VERSION: Symbol<Number> = Symbol::new(&["cudaDriverGetVersion"]);
/// `cudaError_t cudaGetDeviceCount(int *count)`.
pub const CUDA_GET_DEVICE_COUNT: Symbol<Number> = Symbol::new(&["cudaGetDeviceCount"]);

// nvml.h of CUDA 12.4. The unversioned names are the first editions of the same shape.
/// `nvmlReturn_t nvmlInit_v2(void)`.
pub const NVML_INIT: Symbol<Plain> = Symbol::new(&["nvmlInit_v2", "nvmlInit"]);
/// `nvmlReturn_t nvmlShutdown(void)`.
pub const NVML_SHUTDOWN: Symbol<Plain> = Symbol::new(&["nvmlShutdown"]);
/// `nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)`.
pub const NVML_SYSTEM_GET_DRIVER_VERSION: Symbol<Text> =
    Symbol::new(&["nvmlSystemGetDriverVersion"]);
/// `nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)`. The first edition is no substitute:
/// where it finds no libcuda it answers the version that it was built for.
pub const NVML_SYSTEM_GET_CUDA_DRIVER_VERSION: Symbol<Number> =
    Symbol::new(&["nvmlSystemGetCudaDriverVersion_v2"]);
/// `nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)`.
pub const NVML_DEVICE_GET_COUNT: Symbol<Number> =
    Symbol::new(&["nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"]);
/// `nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)`.
pub const NVML_DEVICE_GET_HANDLE: Symbol<NvmlDevice> = Symbol::new(&[
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByIndex",
]);
/// `nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)`.
pub const NVML_DEVICE_GET_NAME: Symbol<NvmlText> = Symbol::new(&["nvmlDeviceGetName"]);
/// `nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)`.
pub const NVML_DEVICE_GET_UUID: Symbol<NvmlText> = Symbol::new(&["nvmlDeviceGetUUID"]);
/// `nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)`; older editions fill another
/// structure.
pub const NVML_DEVICE_GET_PCI_INFO: Symbol<NvmlPci> = Symbol::new(&["nvmlDeviceGetPciInfo_v3"]);
/// `nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)`.
pub const NVML_DEVICE_GET_CAPABILITY: Symbol<NvmlCapability> =
    Symbol::new(&["nvmlDeviceGetCudaComputeCapability"]);

// hip_runtime_api.h of ROCm 5.2 (the same in 7.0); a version as 10 000 000 * major + 100 000 * minor + patch.
/// `hipError_t hipRuntimeGetVersion(int *runtimeVersion)`.
pub const HIP_RUNTIME_GET_VERSION: Symbol<Number> = Symbol::new(&["hipRuntimeGetVersion"]);
/// `hipError_t hipDriverGetVersion(int *driverVersion)`.
pub const HIP_DRIVER_GET_VERSION: Symbol<Number> = Symbol::new(&["hipDriverGetVersion"]);
/// `hipError_t hipGetDeviceCount(int *count)`.
pub const HIP_GET_DEVICE_COUNT: Symbol<Number> = Symbol::new(&["hipGetDeviceCount"]);

// hsa.h of ROCm 5.2 (HSA runtime specification 1.2).
/// `hsa_status_t hsa_init()`.
pub const HSA_INIT: Symbol<Plain> = Symbol::new(&["hsa_init"]);
/// `hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value)`.
pub const HSA_SYSTEM_GET_INFO: Symbol<HsaInfo> = Symbol::new(&["hsa_system_get_info"]);
/// `HSA_SYSTEM_INFO_VERSION_MAJOR` of hsa.h: a `uint16_t`.
const HSA_VERSION_MAJOR: c_int = 0;
/// `HSA_SYSTEM_INFO_VERSION_MINOR` of hsa.h: a `uint16_t`.
const HSA_VERSION_MINOR: c_int = 1;

/// `nvmlPciInfo_t` of nvml.h 12.4 (68 bytes), with room to spare should an edition write more.
#[repr(C)]
#[derive(Debug)]
pub struct PciInfo {
    bus_id_legacy: [u8; 16],
    numbers: [c_uint; 5],
    bus_id: [u8; 32],
    spare: [u8; 256],
}

/// An `nvmlDevice_t`: meaningful to the library only.
#[derive(Clone, Copy, Debug)]
pub struct NvmlHandle(pub(super) *mut c_void);

impl Entry<Plain> {
    /// The return code.
    pub fn call(&self) -> i32 {
        // SAFETY: a function without parameters, by its type.
        unsafe { (self.call)() }
    }
}

impl Entry<Flags> {
    /// The return code.
    pub fn call(&self, flags: u32) -> i32 {
        // SAFETY: the one parameter is a number.
        unsafe { (self.call)(flags) }
    }
}

impl Entry<Number> {
    /// The return code and the number, which means something only where the code is 0.
    pub fn call(&self) -> (i32, i32) {
        let mut number = 0;
        // SAFETY: the function writes one int (or unsigned), for which `number` is the place.
        let code = unsafe { (self.call)(&raw mut number) };
        (code, number)
    }
}

impl Entry<Text> {
    /// The return code and the text.
    pub fn call(&self) -> (i32, String) {
        let mut text = Buffer::default();
        // SAFETY: the function writes at most as many bytes as it is told, and that many there are.
        let code = unsafe { (self.call)(text.place(), TEXT_BYTES.into()) };
        (code, text.read())
    }
}

impl Entry<CudaDevice> {
    /// The return code and the device of this ordinal.
    pub fn call(&self, ordinal: i32) -> (i32, i32) {
        let mut device = 0;
        // SAFETY: a CUdevice is an int; the function writes one.
        let code = unsafe { (self.call)(&raw mut device, ordinal) };
        (code, device)
    }
}

impl Entry<CudaText> {
    /// The return code and the text for this device.
    pub fn call(&self, device: i32) -> (i32, String) {
        let mut text = Buffer::default();
        // SAFETY: the function writes at most as many bytes as it is told, and that many there are.
        let code = unsafe { (self.call)(text.place(), TEXT_BYTES.into(), device) };
        (code, text.read())
    }
}

impl Entry<CudaAttribute> {
    /// The return code and the attribute of this device.
    pub fn call(&self, attribute: i32, device: i32) -> (i32, i32) {
        let mut value = 0;
        // SAFETY: the function writes one int.
        let code = unsafe { (self.call)(&raw mut value, attribute, device) };
        (code, value)
    }
}

impl Entry<NvmlDevice> {
    /// The return code and the handle.
    pub fn call(&self, index: u32) -> (i32, NvmlHandle) {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the function writes one pointer.
        let code = unsafe { (self.call)(index, &raw mut handle) };
        (code, NvmlHandle(handle))
    }
}

impl Entry<NvmlText> {
    /// The return code and the text for this device.
    pub fn call(&self, device: NvmlHandle) -> (i32, String) {
        let mut text = Buffer::default();
        // SAFETY: the handle came from this library (NVML takes a null one for an invalid argument); the function
        // writes at most as many bytes as it is told, and that many there are.
        let code = unsafe { (self.call)(device.0, text.place(), TEXT_BYTES.into()) };
        (code, text.read())
    }
}

impl Entry<NvmlPci> {
    /// The return code and the address as NVML writes it: `00000000:41:00.0`.
    pub fn call(&self, device: NvmlHandle) -> (i32, String) {
        let mut info = PciInfo {
            bus_id_legacy: [0; 16],
            numbers: [0; 5],
            bus_id: [0; 32],
            spare: [0; 256],
        };
        // SAFETY: the handle came from this library; the structure is as large as the header says, and larger.
        let code = unsafe { (self.call)(device.0, &raw mut info) };
        (code, until_nul(&info.bus_id))
    }
}

impl Entry<NvmlCapability> {
    /// The return code, and major and minor.
    pub fn call(&self, device: NvmlHandle) -> (i32, (i32, i32)) {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the handle came from this library; the function writes two ints.
        let code = unsafe { (self.call)(device.0, &raw mut major, &raw mut minor) };
        (code, (major, minor))
    }
}

impl Entry<HsaInfo> {
    /// The return code, and the version of the runtime's interface: `1.1`.
    pub fn call_version(&self) -> (i32, String) {
        let ask = |attribute| {
            // Room to spare, should an attribute be wider than the header says.
            let mut value = [0_u16; 32];
            // SAFETY: for these two attributes the function writes one uint16_t.
            let code = unsafe { (self.call)(attribute, value.as_mut_ptr().cast()) };
            (code, value[0])
        };
        let (code, major) = ask(HSA_VERSION_MAJOR);
        let (second, minor) = ask(HSA_VERSION_MINOR);
        (
            if code == 0 { second } else { code },
            format!("{major}.{minor}"),
        )
    }
}

/// Room for text, with one byte more than the library is told, so that there is always an end.
struct Buffer([u8; TEXT_BYTES as usize + 1]);

impl Default for Buffer {
    fn default() -> Self {
        Self([0; TEXT_BYTES as usize + 1])
    }
}

impl Buffer {
    fn place(&mut self) -> *mut c_char {
        self.0.as_mut_ptr().cast()
    }

    fn read(&self) -> String {
        until_nul(&self.0)
    }
}

fn until_nul(bytes: &[u8]) -> String {
    match CStr::from_bytes_until_nul(bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    }
}
