//! The container layer: the container that this runs in and what NVIDIA's glue left there, and what a host has to start
//! containers with.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reading;
use crate::version::Version;

/// The container that gpudoctor runs in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Container {
    /// `docker`, `podman`, `kubernetes`, `apptainer`, `lxc`, `nspawn`, `enroot`, `container`.
    pub kind: String,
    /// What says so: `/.dockerenv`, `overlay root`, `KUBERNETES_SERVICE_HOST`.
    pub evidence: Vec<String>,
    /// Driver files and device nodes that were mounted in, from mountinfo: target paths.
    pub injected: Vec<String>,
}

/// The container layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ContainerFacts {
    /// What came into this container, and how; absent on a host.
    pub glue: Reading<Glue>,
    /// What starts containers on this host.
    pub engines: Reading<Vec<Engine>>,
    /// NVIDIA's container toolkit; absent where it is not installed.
    pub toolkit: Reading<ContainerToolkit>,
    /// Docker's `daemon.json`; absent where there is none.
    pub docker: Reading<EngineConfig>,
    /// containerd's configuration with what it imports.
    pub containerd: Reading<EngineConfig>,
    /// CRI-O's configuration with its drop-in files.
    pub crio: Reading<EngineConfig>,
    /// Further engines beside those: a containerd of k3s beside the system's, Docker's snap, a Docker without root.
    pub others: Reading<Vec<EngineConfig>>,
    /// Whether systemd runs and cgroups are of version 2: Docker's cgroup driver is then systemd where nobody says otherwise.
    pub systemd_cgroups: Reading<bool>,
    /// CDI specifications of NVIDIA's, in the order in which folders are searched: a later folder wins.
    pub cdi_specs: Reading<Vec<CdiSpec>>,
    /// Links of `/dev/char` to NVIDIA's nodes: `195:0`.
    pub char_links: Reading<Vec<String>>,
    /// The GPU operator's marks of what it has seen to work (`/run/nvidia/validations`): names of files.
    pub operator_marks: Reading<Vec<String>>,
}

/// How the driver came into a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Injection {
    /// Nothing of it came in.
    #[default]
    None,
    /// By `nvidia-container-cli`, from a hook.
    Legacy,
    /// By a CDI specification.
    Cdi,
    /// By the lists of a Jetson.
    Csv,
    /// By Apptainer's `--nv`.
    Apptainer,
    /// As a folder of the node that is mounted whole (GKE).
    Folder,
    /// Out of Windows, on WSL.
    Wsl,
    /// By mounts or devices that somebody named one by one.
    ByHand,
    /// Something came in, and nothing says how.
    Unknown,
}

impl Injection {
    /// In words: `by a CDI specification`.
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "nothing of the driver came in",
            Self::Legacy => "by nvidia-container-cli (legacy hook)",
            Self::Cdi => "by a CDI specification",
            Self::Csv => "by the CSV lists of a Jetson",
            Self::Apptainer => "by apptainer --nv",
            Self::Folder => "as a folder of the node",
            Self::Wsl => "out of Windows",
            Self::ByHand => "by mounts or devices named by hand",
            Self::Unknown => "in a way that left no mark",
        }
    }

    /// Whether somebody checked `NVIDIA_REQUIRE_*` on the way in; `None`: not known.
    pub fn checks_requirements(self) -> Option<bool> {
        match self {
            Self::Legacy | Self::Csv => Some(true),
            Self::Unknown => None,
            _ => Some(false),
        }
    }
}

/// What NVIDIA's glue left in this container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Glue {
    /// Who started it, as exactly as can be told: `docker`, `podman`, `cri-o`, `containerd`, `kubernetes`, `gke`,
    /// `apptainer`, `lxc`, `nspawn`, `enroot`, `container`.
    pub engine: String,
    /// How the driver came in.
    pub injection: Injection,
    /// What says so.
    pub evidence: Vec<String>,
    /// Driver files, nodes and folders that are mounts of their own.
    pub mounts: Vec<DriverMount>,
    /// Driver libraries that lie in the image itself, no mount above them.
    pub in_image: Vec<ImageFile>,
    /// Whether the root is mounted read-only, so that no hook could write links or a loader's cache into it.
    pub read_only_root: bool,
    /// The folder of the host that the driver came from, where it is not its root: `/run/nvidia/driver`.
    pub driver_root: Option<String>,
    /// The job of a batch system whose control group this process is in: `job_42`; absent where it is in none.
    pub job: Reading<String>,
    /// The rules of the device control group of version 1 (`c 195:* rw`), at most 64; absent with version 2, whose rules
    /// cannot be read.
    pub device_rules: Reading<Vec<String>>,
    /// Whether user 0 in here is another user outside (`/proc/self/uid_map`, or Podman's own note).
    pub rootless: Reading<bool>,
    /// The files by which the toolkit's hook puts the image's forward-compatibility libraries first on the loader's path.
    pub compat_files: Reading<Vec<String>>,
}

/// A driver file or node that was mounted into a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DriverMount {
    /// Where it is.
    pub target: String,
    /// What it is on its own file system.
    pub root: String,
    /// `ext4`, `tmpfs`, `devtmpfs`.
    pub fstype: String,
}

/// A driver library in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ImageFile {
    /// Where it is.
    pub path: String,
    /// Its size.
    pub size_bytes: u64,
    /// The driver that its name says it is of.
    pub version: Option<Version>,
}

/// Something that starts containers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Engine {
    /// `docker`, `containerd`, `cri-o`, `podman`, `apptainer`, `enroot`, `k3s`, `rke2`, `microk8s`.
    pub name: String,
    /// What says so.
    pub path: String,
}

/// NVIDIA's container toolkit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ContainerToolkit {
    /// Its parts with versions, each with where that was read.
    pub parts: Vec<ToolkitPart>,
    /// Its programs that are there.
    pub programs: Vec<String>,
    /// `config.toml`; absent: the built-in defaults hold.
    pub config: Reading<ToolkitConfig>,
}

impl ContainerToolkit {
    /// The oldest of its parts: the one that holds what was mended last.
    pub fn oldest(&self) -> Option<&ToolkitPart> {
        self.parts.iter().min_by(|a, b| a.version.cmp(&b.version))
    }
}

/// A part of the toolkit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ToolkitPart {
    /// `nvidia-container-toolkit`, `libnvidia-container.so`.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// Where that was read.
    pub source: String,
}

/// What `config.toml` of the toolkit sets; `None`: not set, so that the default holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ToolkitConfig {
    /// `nvidia-container-runtime.mode`: `auto`, `legacy`, `cdi`, `jit-cdi`, `csv`.
    pub mode: Option<String>,
    /// `disable-require`.
    pub disable_require: Option<bool>,
    /// `accept-nvidia-visible-devices-envvar-when-unprivileged`.
    pub accept_variable: Option<bool>,
    /// `nvidia-container-cli.no-cgroups`.
    pub no_cgroups: Option<bool>,
    /// `nvidia-container-cli.ldconfig`.
    pub ldconfig: Option<String>,
    /// `nvidia-container-cli.root`: where the driver is looked for.
    pub root: Option<String>,
    /// Whether the host's ldconfig that it names (`@`) is there.
    pub ldconfig_found: Reading<bool>,
    /// Whether the root that it names is there.
    pub root_found: Reading<bool>,
    /// `nvidia-container-runtime.runtimes`, where set.
    pub runtimes: Vec<String>,
    /// Whether one of them is there; only where all are named by their folder.
    pub runtimes_found: Reading<bool>,
    /// It lies in the caller's own folder (`XDG_CONFIG_HOME`), which daemons of the system do not see.
    pub of_user: bool,
    /// `nvidia-container-runtime.modes.legacy.cuda-compat-mode`.
    pub cuda_compat_mode: Option<String>,
    /// `features.disable-cuda-compat-lib-hook`.
    pub compat_hook_off: Option<bool>,
    /// Why it could not be read as TOML.
    pub problem: Option<String>,
}

/// What the configuration of a container engine says of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EngineConfig {
    /// The main file, whether or not it could be read.
    pub main: String,
    /// The files that it was read from, the main one first.
    pub files: Vec<String>,
    /// It is of a daemon that the caller runs without root.
    pub of_user: bool,
    /// Whether the engine is there: its program, its unit or its socket. Files stay behind when a package is removed. Not
    /// looked for where the engine is part of something else (k3s, a snap) or of a user's own.
    pub engine_found: Reading<bool>,
    /// Runtimes whose name or program speaks of NVIDIA.
    pub runtimes: Vec<RuntimeEntry>,
    /// The runtime of containers that name none.
    pub default_runtime: Option<String>,
    /// Names of all runtimes that it defines, and Docker's own flags add.
    pub runtime_names: Vec<String>,
    /// containerd: runtimes that stand where the form of their file reads none.
    pub unread_runtimes: Vec<RuntimeEntry>,
    /// containerd: the CRI plugin is switched off.
    pub cri_disabled: bool,
    /// containerd: files named in `imports` that are not there.
    pub imports_missing: Vec<String>,
    /// containerd: imported files of a newer form than the main one.
    pub newer_form: Vec<String>,
    /// Whether it reads CDI specifications itself, where the file says.
    pub cdi: Option<bool>,
    /// Where it looks for them, where the file says.
    pub cdi_dirs: Vec<String>,
    /// `systemd` or `cgroupfs`, where the file says.
    pub cgroup_driver: Option<String>,
    /// containerd: the version of the file's form.
    pub version: Option<u32>,
    /// Drop-in files that define a runtime of NVIDIA's and that nothing imports.
    pub not_imported: Vec<String>,
    /// Files that could not be read, with the reason.
    pub problems: Vec<String>,
}

/// A runtime in an engine's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RuntimeEntry {
    /// Its name: `nvidia`.
    pub name: String,
    /// Its program.
    pub program: String,
    /// The file that says so.
    pub file: String,
    /// Whether that program is there; a name without a folder is looked for in the default PATH.
    pub program_found: Reading<bool>,
}

/// A device node that a CDI specification names and that is not there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MissingNode {
    /// Its path.
    pub path: String,
    /// The devices that name it, by themselves or since all do.
    pub devices: Vec<String>,
}

/// A CDI specification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CdiSpec {
    /// Its file.
    pub path: String,
    /// The version of the format that it is written in.
    pub cdi_version: String,
    /// `nvidia.com/gpu`.
    pub kind: String,
    /// Names of its devices.
    pub devices: Vec<String>,
    /// Device nodes that it names.
    pub nodes: Vec<String>,
    /// The version in the name of the libcuda that it mounts.
    pub driver: Option<Version>,
    /// Files that it mounts and that are not there (at most 16).
    pub missing: Vec<String>,
    /// How many files it mounts.
    pub mounts: u32,
    /// Programs that it runs as hooks and that are not there.
    pub missing_hooks: Vec<String>,
    /// Devices that name such a file or program, by themselves or since all do.
    pub broken_devices: Vec<String>,
    /// Device nodes that engines have to look at and that are not there (at most 16).
    pub missing_nodes: Vec<MissingNode>,
    /// Why it could not be read.
    pub problem: Option<String>,
}
