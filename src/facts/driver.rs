//! The driver layer: kernel modules, device nodes, user-space libraries and services of the NVIDIA driver.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reading;
use crate::version::Version;

/// The driver layer, as files tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DriverFacts {
    /// Modules in the kernel that bear on GPUs (`/proc/modules`). Absent: a kernel without loadable modules.
    pub modules: Reading<Vec<LoadedModule>>,
    /// Version of the loaded nvidia module by `/sys/module/nvidia/version`; absent where it is not loaded.
    pub sys_version: Reading<Version>,
    /// What `/proc/driver/nvidia/version` says; absent where the module is not loaded.
    pub proc_version: Reading<ProcVersion>,
    /// nvidia modules on disk for the running kernel.
    pub disk_modules: Reading<Vec<DiskModule>>,
    /// Other kernel releases that do have an nvidia module on disk.
    pub disk_module_kernels: Reading<Vec<String>>,
    /// What `modules.dep` of the running kernel names of nvidia; absent where there is no such file.
    pub modules_dep: Reading<Vec<String>>,
    /// The folder that `/lib/modules/RELEASE/build` leads to; absent where it leads nowhere: no kernel headers.
    pub kernel_headers: Reading<String>,
    /// DKMS trees of nvidia.
    pub dkms: Reading<Vec<DkmsTree>>,
    /// Lines of `modprobe.d` that name a GPU driver.
    pub modprobe: Reading<Vec<ModprobeLine>>,
    /// Device nodes under /dev that belong to NVIDIA (and /dev/dxg).
    pub nodes: Reading<Vec<DeviceNode>>,
    /// Character device majors by name (`/proc/devices`), those of NVIDIA only.
    pub majors: Reading<Vec<CharMajor>>,
    /// GPUs that the loaded module lists (`/proc/driver/nvidia/gpus`).
    pub gpus: Reading<Vec<DriverGpu>>,
    /// MIG instances that exist, by the driver's capability files; present and empty where there are none.
    pub mig_instances: Reading<Vec<MigInstance>>,
    /// `/proc/driver/nvidia/params`.
    pub params: Reading<BTreeMap<String, String>>,
    /// The copies of libcuda, the one that the loader takes first.
    pub libcuda: Reading<Vec<LibraryCopy>>,
    /// The copies of libnvidia-ml, the one that the loader takes first.
    pub libnvidia_ml: Reading<Vec<LibraryCopy>>,
    /// `/usr/bin/nvidia-modprobe`: present and setuid, it makes missing nodes on first use.
    pub nvidia_modprobe: Reading<NvidiaModprobe>,
    /// The persistence daemon's socket.
    pub persistenced_socket: Reading<String>,
    /// The fabric manager.
    pub fabric_manager: FabricManager,
    /// The Multi-Process Service.
    pub mps: Mps,
    /// The licence of a vGPU.
    pub vgpu_licence: VgpuLicence,
    /// GSP firmware versions on disk (folders of `/lib/firmware/nvidia`), each with its files.
    pub gsp_firmware: Reading<Vec<GspFirmware>>,
    /// Lines of the kernel log that speak of GPU drivers, newest last, at most 200.
    pub kernel_log: Reading<Vec<String>>,
}

impl DriverFacts {
    /// The version of the loaded kernel module, from whichever source has it.
    pub fn loaded_version(&self) -> Option<(&Version, &str)> {
        match (&self.sys_version, &self.proc_version) {
            (Reading::Present { value, source }, _) => Some((value, source)),
            (_, Reading::Present { value, source }) => Some((&value.version, source)),
            _ => None,
        }
    }

    /// Whether the nvidia module is in the kernel; `None` where that cannot be told.
    pub fn module_loaded(&self) -> Option<bool> {
        if self.sys_version.is_present() || self.proc_version.is_present() {
            return Some(true);
        }
        match &self.modules {
            Reading::Present { value, .. } => Some(value.iter().any(LoadedModule::is_nvidia)),
            // No module list at all, and neither of the files that the module makes: not loaded.
            Reading::Absent { .. }
                if self.sys_version.is_absent() && self.proc_version.is_absent() =>
            {
                Some(false)
            }
            _ => None,
        }
    }

    /// Whether a module of this kernel name is loaded.
    pub fn has_module(&self, name: &str) -> Option<bool> {
        self.modules
            .value()
            .map(|modules| modules.iter().any(|m| m.name == name))
    }

    /// Flavour of the loaded module.
    pub fn loaded_flavour(&self) -> Option<Flavour> {
        self.proc_version.value().and_then(|v| v.flavour)
    }

    /// The major that `/proc/devices` gives to a name.
    pub fn major_of(&self, name: &str) -> Option<u32> {
        self.majors
            .items()
            .iter()
            .find(|m| m.name == name)
            .map(|m| m.major)
    }

    /// The node at a path.
    pub fn node(&self, path: &str) -> Option<&DeviceNode> {
        self.nodes.items().iter().find(|n| n.path == path)
    }
}

/// A module in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoadedModule {
    /// Its name in the kernel: `nvidia_uvm`.
    pub name: String,
    /// `Live`, `Loading`, `Unloading`.
    #[serde(default)]
    pub state: String,
    /// Taint letters: `POE`; empty where none.
    #[serde(default)]
    pub taint: String,
    /// How many things use it; -1 where not given.
    #[serde(default)]
    pub used_by: i64,
}

impl LoadedModule {
    /// Whether this is the core NVIDIA module. Debian may call it `nvidia_current`.
    pub fn is_nvidia(&self) -> bool {
        matches!(self.name.as_str(), "nvidia" | "nvidia_current")
    }
}

/// Which of the two kernel modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Flavour {
    /// `NVIDIA UNIX x86_64 Kernel Module`; licence `NVIDIA`.
    Proprietary,
    /// `NVIDIA UNIX Open Kernel Module`; licence `Dual MIT/GPL`.
    Open,
}

impl Flavour {
    /// `open` or `proprietary`.
    pub fn id(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Proprietary => "proprietary",
        }
    }
}

/// `/proc/driver/nvidia/version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcVersion {
    /// The module's version.
    pub version: Version,
    /// Its flavour, where the line says it.
    #[serde(default)]
    pub flavour: Option<Flavour>,
    /// The file's text.
    #[serde(default)]
    pub raw: String,
}

/// A kernel module file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiskModule {
    /// Where it lies.
    pub path: String,
    /// Its name there: `nvidia`, `nvidia-uvm`, `nvidia-current-open`.
    pub name: String,
    /// `version=` of its modinfo.
    #[serde(default)]
    pub version: Reading<Version>,
    /// From `license=`.
    #[serde(default)]
    pub flavour: Reading<Flavour>,
    /// `vermagic=`: the kernel it was built for, and its options.
    #[serde(default)]
    pub vermagic: Reading<String>,
    /// `signer=`, or that a signature is appended; absent where it is not signed.
    #[serde(default)]
    pub signer: Reading<String>,
}

impl DiskModule {
    /// Whether this is the core module (not uvm, modeset, drm).
    pub fn is_core(&self) -> bool {
        matches!(
            self.name.as_str(),
            "nvidia" | "nvidia-current" | "nvidia-current-open" | "nvidia-open"
        )
    }

    /// The kernel release that the module says it was built for.
    pub fn built_for(&self) -> Option<&str> {
        self.vermagic
            .value()
            .and_then(|v| v.split_whitespace().next())
    }
}

/// A DKMS tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DkmsTree {
    /// `nvidia`, `nvidia-current-open`, `nvidia-srv`.
    pub name: String,
    /// The driver version it builds.
    pub version: String,
    /// Kernels for which a module was built.
    pub built: Vec<String>,
    /// Kernels with a log of a build but no module.
    pub logged: Vec<String>,
    /// Whether a half-built tree with its log lies there: the last build failed.
    pub failed_build: bool,
    /// The last lines of that log that name an error.
    pub errors: Vec<String>,
}

/// One line of modprobe's configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModprobeLine {
    /// The file.
    pub file: String,
    /// The line, without comment.
    pub text: String,
}

impl ModprobeLine {
    /// The module that this line keeps from being loaded by its alias: `blacklist X`, or `install X /bin/false`.
    pub fn blocks(&self) -> Option<&str> {
        let mut words = self.text.split_whitespace();
        match (words.next()?, words.next()?, words.next()) {
            ("blacklist", module, _) | ("alias", module, Some("off")) => Some(module),
            ("install", module, Some(program))
                if [
                    "/bin/false",
                    "/bin/true",
                    "/usr/bin/false",
                    "/usr/bin/true",
                    "/dev/null",
                ]
                .contains(&program) =>
            {
                Some(module)
            }
            _ => None,
        }
    }
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceNode {
    /// Its path.
    pub path: String,
    /// Whether it is a character device at all.
    pub is_char: bool,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether an access control list widens the mode bits (systemd's `uaccess`).
    #[serde(default)]
    pub acl: Reading<bool>,
}

/// A character device major.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CharMajor {
    /// The number.
    pub major: u32,
    /// The name it was registered under.
    pub name: String,
}

/// A GPU that the loaded module lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DriverGpu {
    /// PCI address.
    pub address: String,
    /// Marketing name.
    pub model: String,
    /// `GPU-...`; redacted in reports.
    pub uuid: String,
    /// N of `/dev/nvidiaN`.
    pub minor: Option<u32>,
    /// GSP firmware version; empty where GSP is not used.
    pub firmware: String,
    /// Whether an option excludes it.
    pub excluded: bool,
}

/// A GPU instance or a compute instance of MIG.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MigInstance {
    /// `gpu0/gi2`, `gpu0/gi2/ci0`: the GPU by its device minor.
    pub name: String,
    /// Minor number of its node in /dev/nvidia-caps.
    pub minor: u32,
    /// The capability file.
    pub source: String,
}

/// One copy of a driver library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LibraryCopy {
    /// The path by which it was found.
    pub path: String,
    /// Where that path leads in the end; the same where it is no link.
    pub real_path: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// What kind of file it is.
    pub kind: FileKind,
    /// Its soname.
    pub soname: Reading<String>,
    /// Its driver version.
    pub version: Reading<Version>,
    /// The forward-compatibility note, where the file carries one.
    pub compat: Reading<CompatNote>,
    /// How it is reached; empty: nothing on this machine reaches it.
    pub reached_by: Vec<ReachedBy>,
    /// Whether the loader of the consumer's process takes this copy for the soname.
    pub chosen: bool,
    /// The package that owns it, where the package manager's files tell.
    pub package: Reading<String>,
}

impl LibraryCopy {
    /// Whether this is a compat copy: by its note, or by the folder that the compat packages use.
    pub fn is_compat(&self) -> bool {
        self.compat.is_present()
            || [&self.path, &self.real_path]
                .iter()
                .any(|path| is_in_compat(path))
    }

    /// Whether this is a link-time stub, by the folder that toolkits keep stubs in.
    pub fn is_stub(&self) -> bool {
        [&self.path, &self.real_path]
            .iter()
            .any(|path| is_in_stubs(path))
    }
}

/// Whether a path is one of a folder that compat packages use: `/usr/local/cuda-13.1/compat/lib.real/...`.
pub fn is_in_compat(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "compat" || part.starts_with("compat_"))
}

/// Whether a path is one of a folder that toolkits keep stubs in.
pub fn is_in_stubs(path: &str) -> bool {
    path.split('/').any(|part| part == "stubs")
}

/// What a library file turned out to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A shared library for this machine.
    Library,
    /// A shared library for another architecture: `aarch64`, `i386`.
    OtherArch(String),
    /// Nothing in it.
    Empty,
    /// Shorter than its own headers say.
    Truncated,
    /// A Git LFS pointer, an archive, text: said in words.
    NotElf(String),
    /// A link that leads nowhere.
    DanglingLink,
    /// It could not be looked at, with the reason.
    Unreadable(String),
    /// Not recorded.
    #[default]
    Unknown,
}

impl FileKind {
    /// Whether it can be loaded at all.
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Library | Self::Unknown)
    }
}

/// The note that a cuda-compat libcuda carries (ELF section `.note.cuda.fwd_compatibility`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CompatNote {
    /// The CUDA version it brings.
    pub cuda: Option<Version>,
    /// Driver branches it may run on; empty where the note has no list.
    pub drivers: Vec<u32>,
}

/// How something is reached by the consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReachedBy {
    /// Inside the environment.
    Environment,
    /// By a folder of `LD_LIBRARY_PATH`.
    LdLibraryPath(String),
    /// By the loader's cache.
    LdCache,
    /// By a default folder of the loader.
    DefaultPath,
    /// By `LD_PRELOAD`.
    LdPreload,
    /// The program that was named needs it, or has it inside.
    Program,
    /// It is mapped into the process that was named.
    Process,
    /// Lies in a toolkit folder that the loader does not search.
    Toolkit(String),
    /// Lies in another known place that the loader does not search.
    KnownPlace,
}

impl ReachedBy {
    /// Whether a process of the consumer gets it without further ado.
    pub fn is_live(&self) -> bool {
        !matches!(self, Self::Toolkit(_) | Self::KnownPlace)
    }

    /// In words, for evidence.
    pub fn describe(&self) -> String {
        match self {
            Self::Environment => "the environment".to_owned(),
            Self::LdLibraryPath(dir) => format!("LD_LIBRARY_PATH ({dir})"),
            Self::LdCache => "ld.so.cache".to_owned(),
            Self::DefaultPath => "the loader's default folders".to_owned(),
            Self::LdPreload => "LD_PRELOAD".to_owned(),
            Self::Program => "the program".to_owned(),
            Self::Process => "the process".to_owned(),
            Self::Toolkit(dir) => format!("toolkit folder {dir}"),
            Self::KnownPlace => "a folder that the loader does not search".to_owned(),
        }
    }
}

/// The helper that makes device nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NvidiaModprobe {
    /// Where it lies.
    pub path: String,
    /// Whether it is setuid root, so that it works for everybody.
    pub setuid: bool,
}

/// The fabric manager, as files tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FabricManager {
    /// Its socket.
    pub socket: Reading<String>,
    /// A running process of that name: its process id.
    pub process: Reading<u32>,
    /// The version in its program file.
    pub version: Reading<Version>,
    /// Its systemd unit.
    pub unit: Reading<String>,
}

/// The Multi-Process Service (MPS), by which processes share a GPU, as files tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Mps {
    /// The folder where clients look for its daemon: that of `CUDA_MPS_PIPE_DIRECTORY` where the variable is set, whether or
    /// not it is there, else `/tmp/nvidia-mps` where that is there.
    pub pipe_directory: Reading<String>,
    /// A running control daemon or server: its process id. Looked for only where there is such a folder.
    pub process: Reading<u32>,
}

/// The licence of a virtual GPU (vGPU), as files tell it. Asked for only where the driver names a vGPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VgpuLicence {
    /// What the licensing daemon (nvidia-gridd) said of it in the system log, the last thing last.
    pub log: Reading<Vec<String>>,
    /// How many client configuration tokens lie in `/etc/nvidia/ClientConfigToken`.
    pub tokens: Reading<usize>,
}

/// One folder of GSP firmware.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GspFirmware {
    /// The driver version it is for (the folder's name).
    pub version: String,
    /// Files: `gsp_ga10x.bin`.
    pub files: Vec<String>,
}
