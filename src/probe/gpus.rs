//! The GPUs of this machine, now: NVIDIA's by NVML in a confined child, others by sysfs alone. It can be asked again and again.
//!
//! Where no driver seems loaded nothing is asked, and a GPU that sleeps is neither asked nor woken, unless the caller wants it.
//! What an answer means, and how it is shown, is not said here.

use std::collections::BTreeMap;

use crate::facts::{
    ChildEnd, DriverFacts, FileKind, GpuLine, GpuSample, GpuState, Gpus, KfdNode, PciDevice,
    Reading, Sensor, SysfsGpu, Trouble, VENDOR_NVIDIA, Vendor,
};
use crate::probe::vendor::{Ask, Heard, Launcher, LibraryKind, Standing};
use crate::probe::{amd, driver, hardware, loader};
use crate::read::proc;
use crate::sysroot::{Sysroot, join};

/// What is to be looked at, and how.
#[derive(Debug)]
pub struct GpusRequest {
    /// The caller's `LD_LIBRARY_PATH`.
    pub library_path: Option<String>,
    /// `uname -r` and `uname -m`.
    pub uname: (String, String),
    /// `--probe`: ask even where no driver seems loaded, and wake GPUs that sleep.
    pub always: bool,
    /// How long one look may take.
    pub timeout: std::time::Duration,
    /// How children are started.
    pub launcher: Launcher,
    /// Ends waiting for a child.
    pub stop: fn() -> bool,
}

/// Looks at the GPUs.
#[derive(Debug)]
pub struct GpusProbe {
    sysroot: Sysroot,
    request: GpusRequest,
    /// GPUs on the bus; what they are does not change while one looks.
    pci: Vec<PciDevice>,
    /// Products of AMD's by address, of libdrm's list.
    names: BTreeMap<String, String>,
    child: Option<Standing>,
    driver: Option<String>,
}

impl GpusProbe {
    /// Reads the bus of this machine, and asks nobody yet.
    pub fn new(request: GpusRequest) -> Self {
        Self::at(Sysroot::live(), request)
    }

    /// The same of a machine whose files lie in a folder.
    pub fn at(sysroot: Sysroot, request: GpusRequest) -> Self {
        let pci = hardware::probe(&sysroot).pci.items().to_vec();
        let ours: Vec<&PciDevice> = pci.iter().filter(|d| d.is_amd_gpu()).collect();
        let names = amd::names(&sysroot, &ours);
        Self {
            sysroot,
            request,
            pci,
            names,
            child: None,
            driver: None,
        }
    }

    /// One look at all of them.
    pub fn look(&mut self, taken_at: String) -> Gpus {
        let mut lines = Vec::new();
        let trouble = self.nvidia(&mut lines).err();
        let topology = amd::topology(&self.sysroot);
        for device in &self.pci {
            let Some(vendor) = device.gpu_of().filter(|vendor| *vendor != Vendor::Nvidia) else {
                continue;
            };
            lines.push(GpuLine {
                vendor: vendor.id(),
                pci: Some((device.address.clone(), device.id())),
                bound: device.driver.value().cloned(),
                state: GpuState::Foreign(Box::new(self.by_sysfs(device, topology.items()))),
            });
        }
        Gpus {
            taken_at,
            driver: self.driver.clone(),
            lines,
            trouble,
        }
    }

    /// A GPU of another vendor. `amdgpu` tells its sensors in sysfs, without root; what others tell there is no number of these.
    fn by_sysfs(&self, device: &PciDevice, topology: &[KfdNode]) -> SysfsGpu {
        let mut gpu = SysfsGpu {
            asleep: hardware::sleeps(&self.sysroot, &device.address),
            ..SysfsGpu::default()
        };
        if !device.is_amd_gpu() {
            return gpu;
        }
        let node = |node: &&KfdNode| node.address().as_ref() == Some(&device.address);
        gpu.name = self.names.get(&device.address).cloned();
        gpu.target = topology
            .iter()
            .filter(|node| node.is_gpu())
            .find(node)
            .and_then(KfdNode::target)
            .map(|target| target.to_string());
        if gpu.asleep && !self.request.always {
            return gpu;
        }
        let dir = format!("/sys/bus/pci/devices/{}", device.address);
        let number = |dir: &str, name: &str, divisor: u64| {
            let text = self.sysroot.text(&join(dir, name));
            let number = text
                .value()
                .and_then(|text| text.trim().parse::<u64>().ok());
            number.map_or_else(Sensor::default, |number| Sensor::Reads(number / divisor))
        };
        let sample = &mut gpu.sample;
        sample.memory_total_bytes = number(&dir, "mem_info_vram_total", 1);
        sample.memory_used_bytes = number(&dir, "mem_info_vram_used", 1);
        sample.utilization_percent = number(&dir, "gpu_busy_percent", 1);
        let hwmon = join(&dir, "hwmon");
        if let Some(name) = self.sysroot.list(&hwmon, |_| true).items().first() {
            let hwmon = join(&hwmon, name);
            // Thousandths of a degree, millionths of a watt (the kernel's hwmon interface).
            sample.temperature_celsius = number(&hwmon, "temp1_input", 1000);
            sample.power_milliwatts = match number(&hwmon, "power1_average", 1000) {
                Sensor::Refuses(_) => number(&hwmon, "power1_input", 1000),
                reads @ Sensor::Reads(_) => reads,
            };
        }
        gpu
    }

    /// NVIDIA's GPUs; what was learnt before something went wrong is kept.
    fn nvidia(&mut self, lines: &mut Vec<GpuLine>) -> Result<(), Trouble> {
        if !self.request.always {
            self.driver_runs()?;
        }
        let listed = hardware::listed_by_driver(&self.sysroot);
        let asleep: Vec<u32> = (0..)
            .zip(&listed)
            .filter(|(_, address)| !self.request.always && hardware::sleeps(&self.sysroot, address))
            .map(|(index, _)| index)
            .collect();
        for (index, address) in (0..).zip(&listed) {
            if asleep.contains(&index) {
                lines.push(self.sleeper(index, address));
            }
        }
        if !asleep.is_empty() && asleep.len() == listed.len() {
            // Nobody holds the library meanwhile: an open device might keep them awake once they are.
            self.child = None;
            return Ok(());
        }
        let child = match &mut self.child {
            Some(child) => child,
            none => {
                let library = library(&self.sysroot, &self.request)?;
                let ask = Ask {
                    init: true,
                    deadline: self.request.timeout,
                    ..Ask::library(LibraryKind::Gpus, library)
                };
                none.insert(Standing::new(
                    self.request.launcher.clone(),
                    ask,
                    self.request.stop,
                ))
            }
        };
        let heard = child
            .ask(asleep, u32::try_from(listed.len()).ok())
            .ok_or(Trouble::Stuck)?;
        if let Some(version) = heard.answers.text("nvmlSystemGetDriverVersion") {
            self.driver = Some(version.to_owned());
        }
        let trouble = trouble(&heard);
        // A driver that answers for no GPU any more does not begin to again in the same process.
        if trouble.is_some() || heard.gpus.iter().all(|gpu| gpu.code() != 0) {
            child.renew();
        }
        lines.extend(heard.gpus.into_iter().map(|sample| self.asked(sample)));
        lines.sort_by_key(|line| match &line.state {
            GpuState::Asked(sample) => sample.device.index,
            GpuState::Asleep { index, .. } => *index,
            GpuState::Foreign(_) => u32::MAX,
        });
        trouble.map_or(Ok(()), Err)
    }

    /// Whether a driver seems loaded, by the files that the check looks at as well.
    fn driver_runs(&mut self) -> Result<(), Trouble> {
        let (sys_version, proc_version, modules) = driver::loaded(&self.sysroot);
        let facts = DriverFacts {
            sys_version,
            proc_version,
            modules,
            nodes: driver::nodes(&self.sysroot),
            ..DriverFacts::default()
        };
        if driver::seems_loaded(&self.sysroot, &facts) {
            if let Some((version, _)) = facts.loaded_version() {
                self.driver = Some(version.to_string());
            }
            return Ok(());
        }
        match self.pci.iter().filter(|d| d.is_nvidia_gpu()).count() {
            0 => Err(Trouble::NoGpu),
            gpus => Err(Trouble::NoDriver { gpus }),
        }
    }

    fn sleeper(&self, index: u32, address: &str) -> GpuLine {
        let information = join(&join("/proc/driver/nvidia/gpus", address), "information");
        let name = self
            .sysroot
            .text(&information)
            .value()
            .map(|text| proc::gpu_information(address, text).model)
            .filter(|model| !model.is_empty());
        self.line(Some(address), GpuState::Asleep { index, name })
    }

    fn asked(&self, sample: GpuSample) -> GpuLine {
        let address = sample.device.address.clone();
        self.line(address.as_deref(), GpuState::Asked(Box::new(sample)))
    }

    /// A line about one of NVIDIA's GPUs, with what the bus says of the device at this address.
    fn line(&self, address: Option<&str>, state: GpuState) -> GpuLine {
        let device = self
            .pci
            .iter()
            .find(|d| d.vendor == VENDOR_NVIDIA && Some(d.address.as_str()) == address);
        GpuLine {
            vendor: "nvidia",
            pci: device.map(|d| (d.address.clone(), d.id())),
            bound: device.and_then(|d| d.driver.value().cloned()),
            state,
        }
    }
}

/// The libnvidia-ml that a program started here would get.
fn library(sysroot: &Sysroot, request: &GpusRequest) -> Result<String, Trouble> {
    let loader = loader::Loader::new(
        sysroot,
        request.library_path.as_deref(),
        Some(&request.uname),
    );
    match driver::library_copies(sysroot, &loader, driver::Library::Nvml) {
        Reading::Present { value, source } => match value.into_iter().find(|copy| copy.chosen) {
            Some(copy) if copy.kind == FileKind::Library => Ok(copy.path),
            Some(copy) => Err(Trouble::NotAsked(format!(
                "{} is no library that can be loaded",
                copy.path
            ))),
            None => Err(Trouble::NoLibrary(source)),
        },
        Reading::Absent { source } => Err(Trouble::NoLibrary(source)),
        Reading::Unreadable { reason } => Err(Trouble::NotAsked(reason)),
    }
}

/// What went wrong in a look.
fn trouble(heard: &Heard) -> Option<Trouble> {
    let answers = &heard.answers;
    let not_asked = match &answers.end {
        ChildEnd::NotStarted { reason } | ChildEnd::NotTrusted { reason } => Some(reason),
        _ => answers.withheld.as_ref(),
    };
    if let Some(reason) = not_asked {
        return Some(Trouble::NotAsked(reason.clone()));
    }
    // A library that does not load, or lacks a function, says why in words.
    let failed = answers.calls.iter().find(|call| {
        call.code != Some(0)
            && (call.name == "dlopen"
                || call.name.starts_with("nvmlInit")
                || call.name.starts_with("nvmlDeviceGetCount"))
    });
    match (failed, &answers.end) {
        (Some(call), ChildEnd::Unknown | ChildEnd::Finished) => Some(match call.code {
            Some(code) => Trouble::Refused {
                call: call.name.clone(),
                code,
            },
            None => Trouble::NotAsked(call.text.clone().unwrap_or_default()),
        }),
        (None, ChildEnd::Unknown) if !heard.certain => Some(Trouble::WhichSleep),
        (None, ChildEnd::Unknown) if heard.gpus.is_empty() => Some(Trouble::NoneCounted),
        (None, ChildEnd::Unknown) => None,
        (_, end) => Some(Trouble::Ended(end.clone())),
    }
}
