//! Questions that several rules ask of the same facts. Pure look-ups; nothing here judges.

use crate::facts::{
    Calls, LibraryAnswers, LibraryCopy, PciDevice, ReachedBy, Reading, RuntimeCopy, Vendor,
};
use crate::finding::{Finding, Fix};
use crate::inspect::Linkage;
use crate::matrix::{Gpu, Purpose};
use crate::rules::Ctx;
use crate::version::Version;

/// Drivers other than NVIDIA's that hold its GPUs, as sysfs names them. `NovaCore` is `nova_core`'s name there.
pub(super) const OPEN_SOURCE_HOLDERS: &[&str] = &["nouveau", "NovaCore", "nova_core", "nova"];
/// Drivers that keep a GPU for a virtual machine.
pub(super) const PASSTHROUGH_HOLDERS: &[&str] = &["vfio-pci", "pci-stub", "nvgrace_gpu_vfio_pci"];

impl Ctx<'_> {
    /// Whether this is a virtual machine, as far as its firmware or processor says so.
    pub(super) fn in_virtual_machine(&self) -> bool {
        self.facts.system.virtualisation.is_present()
    }

    /// NVIDIA GPUs on the PCI bus.
    pub(super) fn gpus(&self) -> impl Iterator<Item = &PciDevice> {
        self.facts
            .hardware
            .pci
            .items()
            .iter()
            .filter(|d| d.is_nvidia_gpu())
    }

    /// `NVSwitches` on the PCI bus or in the driver's list.
    pub(super) fn nvswitches(&self) -> usize {
        let on_bus = self
            .facts
            .hardware
            .pci
            .items()
            .iter()
            .filter(|d| d.is_nvswitch())
            .count();
        on_bus.max(self.facts.hardware.nvswitch_driver.items().len())
    }

    /// What the matrix knows of a GPU by its PCI id.
    pub(super) fn gpu(&self, device: &PciDevice) -> Option<Gpu> {
        self.matrix.gpu(device.device)
    }

    /// A GPU's name for a sentence: what the driver calls it, else what its PCI id says, else the id.
    pub(super) fn gpu_name(&self, device: &PciDevice) -> String {
        let by_driver = self
            .facts
            .driver
            .gpus
            .items()
            .iter()
            .find(|g| g.address == device.address && !g.model.is_empty());
        by_driver
            .map(|g| g.model.clone())
            .or_else(|| self.gpu(device).map(|g| g.name))
            .unwrap_or_else(|| format!("NVIDIA GPU {}", device.id()))
    }

    /// The name of a GPU of any vendor.
    pub fn name_of(&self, device: &PciDevice) -> String {
        match device.gpu_of() {
            Some(Vendor::Amd) => self.amd_name(device),
            Some(Vendor::Intel) => match self.matrix.intel_gpu(device.device) {
                Some(known) => known.name.clone(),
                None => format!("Intel GPU {}", device.id()),
            },
            _ => self.gpu_name(device),
        }
    }

    /// The same with id and address: "NVIDIA A10 (10de:2236) at 0000:3b:00.0".
    pub(super) fn gpu_in_full(&self, device: &PciDevice) -> String {
        format!(
            "{} ({}) at {}",
            self.gpu_name(device),
            device.id(),
            device.address
        )
    }

    /// Whether the nvidia module is in the kernel; `None` where that cannot be told.
    ///
    /// A container may hide `/proc` and `/sys` of its host: where no list of modules is there and the driver's files were
    /// mounted in, their absence says nothing, and that CUDA works says that it is loaded.
    pub fn module_loaded(&self) -> Option<bool> {
        let told = self.facts.driver.module_loaded();
        let listed = self.facts.driver.modules.is_present();
        if told == Some(true)
            || listed
            || !self.in_container()
            || self.in_gvisor()
            || !self.plain_linux()
        {
            return told;
        }
        if self.cuda_works() {
            Some(true)
        } else if self.driver_was_mounted() {
            None
        } else {
            told
        }
    }

    /// The version of the module in the kernel.
    pub(super) fn loaded_version(&self) -> Option<&Version> {
        self.facts
            .driver
            .loaded_version()
            .map(|(version, _)| version)
    }

    /// The libcuda that the consumer's loader takes.
    pub(super) fn libcuda(&self) -> Option<&LibraryCopy> {
        self.facts.driver.libcuda.items().iter().find(|c| c.chosen)
    }

    /// The libnvidia-ml that the consumer's loader takes.
    pub(super) fn libnvidia_ml(&self) -> Option<&LibraryCopy> {
        self.facts
            .driver
            .libnvidia_ml
            .items()
            .iter()
            .find(|c| c.chosen)
    }

    /// The libcuda in use, where it is a real one: no stub, no broken file.
    pub(super) fn real_libcuda(&self) -> Option<&LibraryCopy> {
        self.libcuda()
            .filter(|c| c.kind.is_usable() && !c.is_stub() && !self.answers_as_stub())
    }

    /// Whether the libcuda in use says itself that it is a stub (34, `CUDA_ERROR_STUB_LIBRARY`).
    pub(super) fn answers_as_stub(&self) -> bool {
        self.cuda_answers().is_some_and(|a| {
            a.code("cuDriverGetVersion") == Some(34) || a.code("cuInit") == Some(34)
        })
    }

    /// What libcuda answered.
    pub(super) fn cuda_answers(&self) -> Option<&LibraryAnswers> {
        self.facts.vendor.libcuda.value()
    }

    /// What libnvidia-ml answered.
    pub(super) fn nvml_answers(&self) -> Option<&LibraryAnswers> {
        self.facts.vendor.libnvidia_ml.value()
    }

    /// The return code of cuInit, where it was called and came back.
    pub(super) fn cu_init(&self) -> Option<i64> {
        self.cuda_answers().and_then(|a| a.code("cuInit"))
    }

    /// The return code of nvmlInit, where it was called and came back.
    pub(super) fn nvml_init(&self) -> Option<i64> {
        self.nvml_answers().and_then(|a| a.code("nvmlInit_v2"))
    }

    /// Whether CUDA is known to work: cuInit succeeded and saw a GPU.
    pub fn cuda_works(&self) -> bool {
        self.cu_init() == Some(0)
            && self
                .cuda_answers()
                .and_then(|a| a.number("cuDeviceGetCount"))
                > Some(0)
    }

    /// Whether CUDA works and sees every GPU that the driver lists: then no node of one GPU can be amiss.
    pub(super) fn cuda_sees_all(&self) -> bool {
        let listed = self
            .facts
            .driver
            .gpus
            .items()
            .iter()
            .filter(|g| !g.excluded)
            .count();
        let listed = if listed == 0 {
            self.gpus().count()
        } else {
            listed
        };
        let seen = self
            .cuda_answers()
            .and_then(|a| a.number("cuDeviceGetCount"))
            .and_then(|n| usize::try_from(n).ok());
        self.cuda_works() && (seen >= Some(listed) || self.env("CUDA_VISIBLE_DEVICES").is_some())
    }

    /// Whether init calls were made at all.
    pub(super) fn calls_made(&self) -> bool {
        self.facts.scope.calls == Calls::Made
    }

    /// Whether the child that asked had to become an ordinary user for it: what it may not open, root might.
    pub(super) fn asked_as_nobody(&self) -> bool {
        self.facts
            .vendor
            .confined
            .value()
            .is_some_and(|c| c.as_nobody)
    }

    /// Whether every node that CUDA needs could be opened; without nodes, not.
    pub(super) fn all_nodes_open(&self) -> bool {
        let opened = self.facts.vendor.opens.items();
        let needed: Vec<_> = opened
            .iter()
            .filter(|o| super::system::needed_by_cuda(&o.path))
            .collect();
        let has = |path: &str| needed.iter().any(|o| o.path == path);
        let complete = !self.plain_linux() || (has("/dev/nvidia-uvm") && has("/dev/nvidiactl"));
        complete && needed.iter().all(|o| o.result == "ok")
    }

    /// Why the init calls of a library that was asked were not made, where they were not.
    pub(super) fn withheld(&self) -> Option<&str> {
        [self.cuda_answers(), self.nvml_answers()]
            .into_iter()
            .flatten()
            .find_map(|a| a.withheld.as_deref())
    }

    /// What `open()` of a node answered: `ok` or an errno name.
    pub(super) fn open_result(&self, path: &str) -> Option<&str> {
        self.facts
            .vendor
            .opens
            .items()
            .iter()
            .find(|o| o.path == path)
            .map(|o| o.result.as_str())
    }

    /// The CUDA level of the driver in use, and where it was read: (1) `cuDriverGetVersion`, (2) the branch of the
    /// library's version. `None`: no real libcuda, or of an unknown branch.
    pub(super) fn driver_level(&self) -> Option<(u32, String)> {
        let copy = self.real_libcuda()?;
        let called = self
            .cuda_answers()
            .and_then(|a| a.number("cuDriverGetVersion"))
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| *n > 0);
        if let Some(level) = called {
            return Some((level, format!("cuDriverGetVersion of {}", copy.real_path)));
        }
        // Numbers of Windows drivers and of Tegra's are another line than the table's.
        if !self.plain_linux() {
            return None;
        }
        let version = copy.version.value()?;
        self.matrix
            .cuda_level_of(version)
            .map(|(level, source)| (level, format!("{}, {source}", copy.real_path)))
    }

    /// The runtimes that the consumer's processes get: of a process what is mapped, of a program what it needs or has
    /// inside, of an environment its own; where there is none of that, what the loader finds.
    pub(super) fn consumer_runtimes(&self) -> Vec<&RuntimeCopy> {
        let all = self.facts.runtime.cudart.items();
        let by = |by: ReachedBy| -> Vec<&RuntimeCopy> {
            all.iter().filter(|c| c.reached_by.contains(&by)).collect()
        };
        let application = &self.facts.application;
        if application
            .process
            .value()
            .is_some_and(|p| p.mapped.is_present())
        {
            return by(ReachedBy::Process);
        }
        if self.program_is_foreign() {
            return Vec::new();
        }
        if let Some(program) = application.program.value() {
            let own = by(ReachedBy::Program);
            if !own.is_empty() || program.runtime.linkage != Linkage::Dlopen {
                return own;
            }
        }
        let own = by(ReachedBy::Environment);
        if own.is_empty() {
            all.iter().filter(|c| c.is_reached()).collect()
        } else {
            own
        }
    }

    /// Installed packages whose name begins with one of these.
    pub(super) fn packages(&self, prefixes: &[&str]) -> Vec<String> {
        let packages = self.facts.system.packages.items();
        packages
            .iter()
            .filter(|p| prefixes.iter().any(|prefix| p.name.starts_with(prefix)))
            .map(|p| format!("{} {}", p.name, p.version))
            .collect()
    }

    /// What says that NVIDIA's driver is installed here, whether or not it runs.
    pub(super) fn driver_installed(&self) -> Option<String> {
        let driver = &self.facts.driver;
        if self.module_loaded() == Some(true) {
            return Some("the nvidia module is loaded".to_owned());
        }
        if let Some(module) = driver.disk_modules.items().iter().find(|m| m.is_core()) {
            return Some(format!("{} is on disk", module.path));
        }
        if let Some(tree) = driver.dkms.items().first() {
            return Some(format!("DKMS tree {}/{}", tree.name, tree.version));
        }
        let packages = self.packages(&[
            "nvidia-driver",
            "nvidia-kernel",
            "nvidia-dkms",
            "nvidia-open",
            "libnvidia-compute",
            "libcuda1",
            "nvidia-utils",
            "cuda-drivers",
            "nvidia-tesla",
        ]);
        if let Some(package) = packages.first() {
            return Some(format!("package {package}"));
        }
        let copy = self
            .real_libcuda()
            .filter(|c| !c.is_compat() && c.version.is_present())?;
        Some(format!("{} is on the loader's path", copy.path))
    }

    /// The version of the driver that is meant to drive the GPUs: loaded, else on disk, else in user space.
    pub(super) fn driver_version(&self) -> Option<(&Version, String)> {
        if let Some((version, source)) = self.facts.driver.loaded_version() {
            return Some((version, source.to_owned()));
        }
        let disk = self
            .facts
            .driver
            .disk_modules
            .items()
            .iter()
            .find(|m| m.is_core() && m.version.is_present());
        if let Some(module) = disk {
            return module.version.value().map(|v| (v, module.path.clone()));
        }
        let copy = self.real_libcuda().filter(|c| !c.is_compat())?;
        copy.version.value().map(|v| (v, copy.real_path.clone()))
    }

    /// Adds the commands that the matrix knows for this very distribution, from verified rows only; none where the
    /// driver is not installed by hand in this system.
    pub(super) fn with_distro_commands(&self, mut fix: Fix, purpose: Purpose) -> Fix {
        let Some(os) = self
            .facts
            .system
            .os
            .value()
            .filter(|_| self.hands_off().is_none())
        else {
            return fix;
        };
        let release = self.facts.system.kernel_release.value().map(String::as_str);
        for words in self
            .matrix
            .distro_commands(&os.id, &os.version_id, purpose, release)
        {
            let words: Vec<&str> = std::iter::once("sudo")
                .chain(words.iter().map(String::as_str))
                .collect();
            fix = fix.command(&words);
        }
        fix
    }

    /// The same where the distribution's driver is of this branch: another branch's packages would undo the advice.
    pub(super) fn with_branch_commands(&self, fix: Fix, purpose: Purpose, branch: u32) -> Fix {
        let os = self.facts.system.os.value();
        let row = os.and_then(|os| {
            self.matrix
                .distro_packages(&os.id, &[], &os.version_id, purpose)
        });
        if row.is_some_and(|row| row.driver_branch == Some(branch)) {
            self.with_distro_commands(fix, purpose)
        } else {
            fix
        }
    }

    /// What packages are called here or in a relative of this distribution, for prose.
    pub(super) fn distro_package_names(&self, purpose: Purpose) -> Option<String> {
        let os = self.facts.system.os.value()?;
        let release = self.facts.system.kernel_release.value()?;
        let row = self
            .matrix
            .distro_packages(&os.id, &os.id_like, &os.version_id, purpose)?;
        let names: Vec<String> = row
            .packages
            .iter()
            .map(|name| name.replace("{release}", release))
            .collect();
        (!names.is_empty() && !names.iter().any(|name| name.contains('{')))
            .then(|| in_words(&names))
    }

    /// Whether the running system is one whose driver is not installed by hand in it: a container, WSL, Jetson, an
    /// immutable distribution. There a fix says in words who does it.
    pub(super) fn hands_off(&self) -> Option<&'static str> {
        if self.in_container() {
            return Some("on the host, since a container takes the host's driver");
        }
        if self.in_wsl() {
            return Some("in Windows, since WSL takes the Windows driver");
        }
        if self.on_tegra() {
            return Some("with a newer JetPack, which brings the driver");
        }
        let os = self.facts.system.os.value()?;
        // An appliance that calls itself `debian`.
        if os.pretty_name.starts_with("TrueNAS") {
            return Some("in the settings of this appliance, whose system is an image");
        }
        match (os.id.as_str(), os.variant_id.as_str()) {
            ("nixos", _) => Some("in the NixOS configuration (hardware.nvidia.package)"),
            (_, "silverblue" | "kinoite" | "coreos" | "iot" | "bluefin" | "bazzite") => {
                Some("in the image of this immutable system")
            }
            ("talos" | "bottlerocket" | "flatcar" | "cos", _) => {
                Some("by the node's image or the GPU operator")
            }
            _ => None,
        }
    }
}

/// Adds how to see that a driver fix worked: nvidia-smi asks the driver through NVML.
pub(super) fn verified(ctx: &Ctx<'_>, fix: Fix) -> Fix {
    fix.verify(match ctx.engine() {
        // Before JetPack 6 a Jetson has no nvidia-smi.
        _ if ctx.on_tegra() => "gpudoctor",
        _ if !ctx.in_container() => "nvidia-smi",
        "docker" => "docker run --rm --gpus all IMAGE nvidia-smi",
        "podman" => "podman run --rm --device nvidia.com/gpu=all IMAGE nvidia-smi",
        "kubernetes" | "containerd" | "cri-o" => "kubectl exec POD -- nvidia-smi",
        "gke" => "kubectl exec POD -- /usr/local/nvidia/bin/nvidia-smi",
        "apptainer" if ctx.in_slurm() => "srun --gpus=1 apptainer exec --nv IMAGE nvidia-smi",
        "apptainer" => "apptainer exec --nv IMAGE nvidia-smi",
        "lxc" => "incus exec NAME -- nvidia-smi",
        "nspawn" => "machinectl shell NAME /usr/bin/nvidia-smi",
        "enroot" if ctx.in_slurm() => "srun --gpus=1 --container-image=IMAGE nvidia-smi",
        "enroot" => "enroot start NAME nvidia-smi",
        _ => "nvidia-smi in the new container",
    })
}

/// The evidence of which cuInit answered, where it was asked.
pub(super) fn with_cu_init(ctx: &Ctx<'_>, finding: Finding) -> Finding {
    match (ctx.cu_init(), ctx.cuda_answers()) {
        (Some(code), Some(answers)) => {
            finding.evidence("cuInit", cuda_code(code), answers.path.clone())
        }
        _ => finding,
    }
}

/// The evidence of which init answered: cuInit, and NVML's where it works.
pub(super) fn with_init_answers(ctx: &Ctx<'_>, finding: Finding) -> Finding {
    let finding = with_cu_init(ctx, finding);
    match ctx.nvml_answers().filter(|_| ctx.nvml_init() == Some(0)) {
        Some(answers) => finding.evidence("nvmlInit", "0: NVML works", answers.path.clone()),
        None => finding,
    }
}

/// The evidence of the newest line of the kernel log that is about it.
pub(super) fn with_kernel_log(
    ctx: &Ctx<'_>,
    finding: Finding,
    is_about_it: impl Fn(&str) -> bool,
) -> Finding {
    let log = &ctx.facts.driver.kernel_log;
    match log.items().iter().rev().find(|line| is_about_it(line)) {
        Some(line) => finding.evidence("kernel log", line.clone(), log.source()),
        None => finding,
    }
}

/// The evidence of a GPU and of which kernel driver holds it.
pub(super) fn with_holder(ctx: &Ctx<'_>, finding: Finding, device: &PciDevice) -> Finding {
    let holder = device
        .driver
        .value()
        .map_or("no kernel driver bound".to_owned(), |name| {
            format!("bound to {name}")
        });
    finding.evidence(ctx.gpu_in_full(device), holder, "/sys/bus/pci/devices")
}

/// A CUDA error number with its name (`cuda.h` of CUDA 13.0, `CUresult`).
pub(super) fn cuda_code(code: i64) -> String {
    let name = match code {
        0 => "CUDA_SUCCESS",
        1 => "CUDA_ERROR_INVALID_VALUE",
        2 => "CUDA_ERROR_OUT_OF_MEMORY",
        3 => "CUDA_ERROR_NOT_INITIALIZED",
        34 => "CUDA_ERROR_STUB_LIBRARY",
        46 => "CUDA_ERROR_DEVICE_UNAVAILABLE",
        100 => "CUDA_ERROR_NO_DEVICE",
        101 => "CUDA_ERROR_INVALID_DEVICE",
        304 => "CUDA_ERROR_OPERATING_SYSTEM",
        801 => "CUDA_ERROR_NOT_SUPPORTED",
        802 => "CUDA_ERROR_SYSTEM_NOT_READY",
        803 => "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        804 => "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        805 => "CUDA_ERROR_MPS_CONNECTION_FAILED",
        999 => "CUDA_ERROR_UNKNOWN",
        _ => return code.to_string(),
    };
    format!("{code} ({name})")
}

/// An NVML return code with its name (`nvml.h` of CUDA 13.0, `nvmlReturn_t`).
pub fn nvml_code(code: i64) -> String {
    let name = match code {
        0 => "NVML_SUCCESS",
        1 => "NVML_ERROR_UNINITIALIZED",
        3 => "NVML_ERROR_NOT_SUPPORTED",
        4 => "NVML_ERROR_NO_PERMISSION",
        9 => "NVML_ERROR_DRIVER_NOT_LOADED",
        12 => "NVML_ERROR_LIBRARY_NOT_FOUND",
        15 => "NVML_ERROR_GPU_IS_LOST",
        17 => "NVML_ERROR_OPERATING_SYSTEM",
        18 => "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
        999 => "NVML_ERROR_UNKNOWN",
        _ => return code.to_string(),
    };
    format!("{code} ({name})")
}

/// Reading of a list of devices as a missing reason, for rules that need it.
pub(super) fn pci_missing(ctx: &Ctx<'_>) -> Option<String> {
    match &ctx.facts.hardware.pci {
        Reading::Unreadable { reason } => Some(format!("PCI devices: {reason}")),
        _ => None,
    }
}

/// A list in words: "a, b and c".
pub(super) fn in_words(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
