//! What vendor libraries and `open()` answered, call by call, with raw return codes. Asked in a child process.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reading;

/// The answers. Under `--static` and `--root` all unreadable, with that reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VendorFacts {
    /// The libcuda that the consumer's loader takes. Absent: there is none.
    pub libcuda: Reading<LibraryAnswers>,
    /// The same libcuda asked again without `CUDA_VISIBLE_DEVICES`, where the variable is set and no GPU was seen: whether
    /// it is the variable that hides them.
    pub libcuda_unhidden: Reading<LibraryAnswers>,
    /// The libnvidia-ml that the consumer's loader takes.
    pub libnvidia_ml: Reading<LibraryAnswers>,
    /// Each libcudart that the consumer reaches, in the order of the runtime facts.
    pub cudart: Reading<Vec<LibraryAnswers>>,
    /// The libamdhip64 that the consumer gets.
    pub hip: Reading<LibraryAnswers>,
    /// The libhsa-runtime64 that the consumer gets.
    pub hsa: Reading<LibraryAnswers>,
    /// `open(path, O_RDWR)` of NVIDIA's device nodes.
    pub opens: Reading<Vec<OpenAnswer>>,
    /// `open(path, O_RDWR)` of `/dev/kfd`, and of the render nodes of AMD's GPUs that do not sleep.
    pub drm_opens: Reading<Vec<OpenAnswer>>,
    /// Whether the child ran with /dev read-only in a mount namespace of its own, without `CAP_MKNOD` and
    /// `CAP_SYS_MODULE`: what it is refused may confirm a fault, never accuse.
    pub confined: Reading<Confinement>,
}

/// How the child that asks was confined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Confinement {
    /// `no_new_privs`: setuid helpers such as nvidia-modprobe do not work from it.
    pub no_new_privs: bool,
    /// /dev was read-only.
    pub read_only_dev: bool,
    /// Root became an ordinary user for it, since /dev could not be made read-only: what that user may not open, root
    /// might.
    pub as_nobody: bool,
    /// `CAP_MKNOD`, `CAP_SYS_MODULE` and `CAP_SYS_ADMIN` are not held: given up, or never had.
    pub dropped_capabilities: bool,
}

/// What one library answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LibraryAnswers {
    /// The file that was loaded.
    pub path: String,
    /// The calls in the order in which they were made, `dlopen` first. Calls that are made once a GPU are kept only
    /// where they failed, printed or were slow.
    pub calls: Vec<Call>,
    /// How the child ended.
    pub end: ChildEnd,
    /// GPUs that it named.
    pub devices: Vec<DeviceAnswer>,
    /// Why calls with side effects (init calls, `open()`) were not made although they were asked for: the child could
    /// not be confined, and the host must not be changed.
    pub withheld: Option<String>,
}

impl LibraryAnswers {
    /// The call of this name, where it was made.
    pub fn call(&self, name: &str) -> Option<&Call> {
        self.calls.iter().find(|c| c.name == name)
    }

    /// The return code of a call that came back.
    pub fn code(&self, name: &str) -> Option<i64> {
        self.call(name).and_then(|c| c.code)
    }

    /// The number that a call answered, where it succeeded.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.call(name)
            .filter(|c| c.code == Some(0))
            .and_then(|c| c.number)
    }

    /// The text that a call answered, where it succeeded.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.call(name)
            .filter(|c| c.code == Some(0))
            .and_then(|c| c.text.as_deref())
    }
}

/// One call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Call {
    /// `dlopen`, `cuInit`, `nvmlInit_v2` ...
    pub name: String,
    /// The raw return code, 0 for a `dlopen` that succeeded; `None` where the call did not come back, the symbol is
    /// missing or `dlopen` failed (then `text` says why).
    pub code: Option<i64>,
    /// The number it answered.
    pub number: Option<i64>,
    /// The text it answered, or the loader's message where `dlopen` or the symbol failed.
    pub text: Option<String>,
    /// What it printed on standard output, at most 4 KiB.
    pub printed: Option<String>,
    /// How long it took, in whole milliseconds; only kept from one second on, since a shorter time says nothing and
    /// would make two snapshots of one host differ.
    pub slow_ms: Option<u64>,
}

/// How the child ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChildEnd {
    /// It said all it had to say.
    Finished,
    /// It had to be killed; the call that did not come back, and the deadline in milliseconds.
    TimedOut {
        /// The call.
        call: String,
        /// After how long.
        after_ms: u64,
    },
    /// A signal ended it.
    Signal {
        /// The call that was being made.
        call: String,
        /// The signal's number.
        signal: i32,
    },
    /// The library ended the process.
    Exited {
        /// The call that was being made.
        call: String,
        /// The exit code.
        code: i32,
    },
    /// What came back was not the protocol.
    Garbled {
        /// The call that was being made.
        call: String,
    },
    /// The child could not be started.
    NotStarted {
        /// Why.
        reason: String,
    },
    /// It was not loaded, for the reason: as root, a library that others could have written.
    NotTrusted {
        /// Why.
        reason: String,
    },
    /// Not recorded.
    #[default]
    Unknown,
}

/// A GPU as a library names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DeviceAnswer {
    /// Its index in that library's order.
    pub index: u32,
    /// Return code of the call for its handle: NVML 15 = GPU is lost.
    pub code: i64,
    /// Its name.
    pub name: Option<String>,
    /// Compute capability.
    pub capability: Option<(u32, u32)>,
    /// PCI address as /sys writes it: `0000:41:00.0`.
    pub address: Option<String>,
    /// `GPU-...`; redacted in reports.
    pub uuid: Option<String>,
    /// MIG, on boards that can be partitioned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigAnswer>,
    /// Whether memory errors are corrected (ECC), on boards that can do it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc: Option<ModeAnswer>,
    /// Whether bad rows of memory wait for a reset to be replaced by spare ones (Ampere and newer).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_remap_pending: Option<bool>,
    /// Whether a bad row could not be replaced, since no spare one is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row_remap_failed: Option<bool>,
    /// Whether bad pages of memory wait for a reboot to be retired (before Ampere).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retired_pages_pending: Option<bool>,
    /// `nvmlComputeMode_t`: 0 default, 1 exclusive to a thread, 2 prohibited, 3 exclusive to a process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_mode: Option<u32>,
    /// Whether persistence mode is on: the driver keeps the GPU initialised while nobody uses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistence: Option<bool>,
    /// Lanes of PCI Express in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_width: Option<u32>,
    /// Lanes of PCI Express that GPU and slot together could use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_width_max: Option<u32>,
    /// Processes with a compute context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u32>,
}

/// A mode that takes effect after a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModeAnswer {
    /// Whether it is on now.
    pub on: bool,
    /// Whether it will be on after the next reset.
    pub pending: bool,
}

/// MIG: a GPU that is partitioned into instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MigAnswer {
    /// Whether it is on now: then CUDA sees the instances only.
    pub on: bool,
    /// Whether it will be on after the next reset.
    pub pending: bool,
    /// MIG devices (compute instances) that this user sees, where it is on and they could be counted.
    pub instances: Option<u32>,
}

/// What `open(path, O_RDWR)` answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OpenAnswer {
    /// The node.
    pub path: String,
    /// `ok`, or the name of the errno: `EPERM`.
    pub result: String,
}
