//! The snapshot: what was seen on a machine, and where. Plain data, no judgement.
//!
//! Each reading has three values: present, absent (looked for, not there) or unreadable (with the reason). They are
//! three different things, and a rule that mixes two of them up gives false answers. A key that an older snapshot
//! lacks reads as unreadable, never as absent: every field of a `Reading` type has that default.

mod amd;
mod application;
mod container;
mod driver;
mod drm;
mod framework;
mod gpus;
mod hardware;
mod icd;
mod intel;
mod libraries;
mod python;
mod runtime;
mod system;
mod toolchain;
mod vendor;

use std::collections::BTreeMap;

pub use amd::*;
pub use application::*;
pub use container::*;
pub use driver::*;
pub use drm::*;
pub use framework::*;
pub use gpus::*;
pub use hardware::*;
pub use icd::*;
pub use intel::*;
pub use libraries::*;
pub use python::*;
pub use runtime::*;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
pub use system::*;
pub use toolchain::*;
pub use vendor::*;

/// The schema of [`Facts`] as JSON. Fields are added, never renamed; a breaking change takes `/2`.
pub const SCHEMA: &str = "gpudoctor.facts/1";

/// A layer of the stack, bottom up; `toolchain` stands beside it and is reported last.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// The GPU and its bus.
    Hardware,
    /// What the driver sits on: kernel, Secure Boot, libc, users and groups.
    System,
    /// Kernel modules, device nodes, libcuda, libnvidia-ml, compat copies, fabric manager, firmware.
    Driver,
    /// The glue that makes the host's driver visible in a container.
    Container,
    /// libcudart, NVRTC, nvJitLink.
    Runtime,
    /// cuBLAS, cuDNN, NCCL ...
    Libraries,
    /// `PyTorch`, vLLM, llama.cpp ...
    Framework,
    /// The user's own program and its environment.
    Application,
    /// nvcc, ptxas, host compiler: build hosts.
    Toolchain,
}

impl Layer {
    /// All layers in walking order.
    pub const ALL: [Self; 9] = [
        Self::Hardware,
        Self::System,
        Self::Driver,
        Self::Container,
        Self::Runtime,
        Self::Libraries,
        Self::Framework,
        Self::Application,
        Self::Toolchain,
    ];

    /// The layer's id as reports write it.
    pub fn id(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::System => "system",
            Self::Driver => "driver",
            Self::Container => "container",
            Self::Runtime => "runtime",
            Self::Libraries => "libraries",
            Self::Framework => "framework",
            Self::Application => "application",
            Self::Toolchain => "toolchain",
        }
    }
}

impl std::fmt::Display for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.id())
    }
}

impl std::str::FromStr for Layer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|layer| layer.id() == text)
            .ok_or_else(|| format!("`{}` is no layer", text.escape_debug()))
    }
}

/// One question to the machine and its answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reading<T> {
    /// It is there.
    Present {
        /// What was read.
        value: T,
        /// Where: a path, `cuInit`, `LD_LIBRARY_PATH`.
        source: String,
    },
    /// It was looked for and is not there.
    Absent {
        /// Where it was looked for.
        source: String,
    },
    /// It could not be told.
    Unreadable {
        /// Why: `/proc/keys: permission denied`.
        reason: String,
    },
}

/// What a key that is missing in a snapshot reads as.
pub const NOT_RECORDED: &str = "not recorded in this snapshot";

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self::Unreadable {
            reason: NOT_RECORDED.to_owned(),
        }
    }
}

impl<T> Reading<T> {
    /// A value and where it was read.
    pub fn present(value: T, source: impl Into<String>) -> Self {
        Self::Present {
            value,
            source: source.into(),
        }
    }

    /// Not there, and where it was looked for.
    pub fn absent(source: impl Into<String>) -> Self {
        Self::Absent {
            source: source.into(),
        }
    }

    /// Not to be told, and why.
    pub fn unreadable(reason: impl Into<String>) -> Self {
        Self::Unreadable {
            reason: reason.into(),
        }
    }

    /// The value, where there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Present { value, .. } => Some(value),
            Self::Absent { .. } | Self::Unreadable { .. } => None,
        }
    }

    /// Where the value was read or looked for; the reason where it could not be read.
    pub fn source(&self) -> &str {
        match self {
            Self::Present { source, .. } | Self::Absent { source } => source,
            Self::Unreadable { reason } => reason,
        }
    }

    /// Whether there is a value.
    pub fn is_present(&self) -> bool {
        matches!(self, Self::Present { .. })
    }

    /// Whether it was looked for and is not there.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }

    /// Whether it could not be told.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Unreadable { .. })
    }

    /// The same reading of something derived from the value; `None` makes it unreadable with `why`.
    pub fn and_then<U>(self, why: &str, f: impl FnOnce(T) -> Option<U>) -> Reading<U> {
        match self {
            Self::Present { value, source } => match f(value) {
                Some(value) => Reading::Present { value, source },
                None => Reading::Unreadable {
                    reason: format!("{source}: {why}"),
                },
            },
            Self::Absent { source } => Reading::Absent { source },
            Self::Unreadable { reason } => Reading::Unreadable { reason },
        }
    }

    /// The same reading of something computed from the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        self.and_then("", |value| Some(f(value)))
    }
}

impl<T> Reading<Vec<T>> {
    /// The items; none where the list is absent or unreadable. For rules that have settled that question before.
    pub fn items(&self) -> &[T] {
        self.value().map_or(&[], Vec::as_slice)
    }
}

/// A value of a snapshot that this version cannot use reads as unreadable, so that an item with a missing key is
/// never taken for an item that says "no".
impl<'de, T: DeserializeOwned> Deserialize<'de> for Reading<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Raw {
            Present {
                value: serde_json::Value,
                source: String,
            },
            Absent {
                source: String,
            },
            Unreadable {
                reason: String,
            },
        }
        Ok(match Raw::deserialize(deserializer)? {
            Raw::Present { value, source } => match serde_json::from_value(value) {
                Ok(value) => Self::Present { value, source },
                Err(e) => Self::Unreadable {
                    reason: format!("{source}: the record in this snapshot cannot be used: {e}"),
                },
            },
            Raw::Absent { source } => Self::Absent { source },
            Raw::Unreadable { reason } => Self::Unreadable { reason },
        })
    }
}

/// The snapshot of one machine at one moment, seen from one consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Facts {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of gpudoctor that took it.
    pub version: String,
    /// When, in UTC (RFC 3339, whole seconds).
    pub taken_at: String,
    /// How it was taken.
    pub scope: Scope,
    /// What the user wants to run.
    pub consumer: Consumer,
    /// The environment variables that matter, from an allow-list; under `--root` none.
    pub environment: Reading<BTreeMap<String, String>>,
    /// PCI devices.
    pub hardware: HardwareFacts,
    /// Kernel, distribution, firmware security, libc, users, container or not.
    pub system: SystemFacts,
    /// Kernel modules, device nodes, user-space driver libraries, services.
    pub driver: DriverFacts,
    /// Render nodes, and AMD's `/dev/kfd`.
    pub drm: DrmFacts,
    /// AMD's stack.
    pub amd: AmdFacts,
    /// Intel's stack.
    pub intel: IntelFacts,
    /// Drivers of Vulkan and `OpenCL`.
    pub icd: IcdFacts,
    /// The container that this runs in, and what a host has to start containers with.
    pub container: ContainerFacts,
    /// CUDA runtimes.
    pub runtime: RuntimeFacts,
    /// Frameworks, their companions and extensions.
    pub framework: FrameworkFacts,
    /// What is installed in the consumer's environment.
    pub python: PythonFacts,
    /// Libraries of the CUDA stack, NVRTC and nvJitLink among them.
    pub libraries: LibrariesFacts,
    /// The program or process that was named.
    pub application: ApplicationFacts,
    /// Compilers of CUDA code, beside the stack.
    pub toolchain: ToolchainFacts,
    /// The answers of vendor libraries and of `open()`.
    pub vendor: VendorFacts,
    /// What went wrong while looking, for the curious: no rule reads it.
    pub problems: Vec<String>,
}

/// How a snapshot was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Scope {
    /// `live`; `root` where a folder was read as a machine's root, `image` where a container image was.
    pub mode: String,
    /// Whether init calls and `open()` were made.
    pub calls: Calls,
    /// Whether root took it.
    pub as_root: Reading<bool>,
    /// Whether it was started through sudo: then it is root's environment that was seen.
    pub sudo: Reading<bool>,
}

impl Scope {
    /// Whether a container image was read: no machine, and what its host brings is not there.
    pub fn is_image(&self) -> bool {
        self.mode == Self::IMAGE
    }

    /// The mode where a container image was read.
    pub const IMAGE: &'static str = "image";
}

/// Whether calls with side effects (cuInit, nvmlInit, `open()`) were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Calls {
    /// They were: a driver seems loaded, or `--probe` was given.
    Made,
    /// No driver seems loaded, so there was nobody to ask.
    #[default]
    NoDriver,
    /// Every GPU that the driver holds sleeps, and a call would have woken it.
    Asleep,
    /// The caller forbade them (`--static`, `--root`).
    Forbidden,
}

/// What the user wants to run, as far as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Consumer {
    /// Environment or machine.
    pub kind: ConsumerKind,
    /// A short name for titles: `./.venv`, `/opt/conda/envs/train`, `this machine`.
    pub what: String,
    /// Why this one: `$VIRTUAL_ENV`, `python3 on PATH`, `--python-env`.
    pub why: String,
    /// The prefix of the environment.
    pub prefix: Reading<String>,
    /// The site-packages folders that its interpreter would search, in order.
    pub site_packages: Vec<String>,
    /// Other environments that were seen and not examined.
    pub also_found: Vec<String>,
    /// The CUDA version that its torch was built for (`torch/version.py`); absent where there is no torch, or a CPU build.
    pub torch_cuda: Reading<crate::version::Version>,
    /// The frameworks whose runtime is judged: `torch 2.10.0`. Names and versions of distributions only.
    pub frameworks: Reading<Vec<Distribution>>,
    /// Files and folders of it that are there and could not be read: what they hold is not known, and not absent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Unread>,
    /// The link in place of the environment's Python that leads nowhere, with its text, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead_python: Option<(String, String)>,
}

/// A file or folder that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Unread {
    /// Where it is.
    pub path: String,
    /// Why, with the path that was refused: `/v/lib: permission denied`.
    pub reason: String,
}

/// The kind of consumer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ConsumerKind {
    /// No environment: whatever the loader finds.
    #[default]
    Machine,
    /// A Python or conda environment.
    Environment,
    /// A program or script (`--app`).
    Application,
    /// A running process (`--pid`).
    Process,
}

/// An installed Python or conda distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Distribution {
    /// Its normalised name: `nvidia-cuda-runtime-cu12`.
    pub name: String,
    /// Its version as written: `2.7.1+cu126`.
    pub version: String,
    /// The folder it is installed in.
    pub site: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_keys_are_unreadable_never_absent() {
        let facts: Facts = serde_json::from_str("{}").unwrap();
        assert!(facts.environment.is_unreadable());
        assert!(facts.hardware.pci.is_unreadable());
        assert!(facts.driver.libcuda.is_unreadable());
        let list: Reading<Vec<PciDevice>> = serde_json::from_str(
            r#"{"present": {"value": [{"vendor": "no number"}], "source": "/sys"}}"#,
        )
        .unwrap();
        assert!(list.is_unreadable(), "{list:?}");
    }
}
