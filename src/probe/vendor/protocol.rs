//! What parent and child say to each other: JSON, one message a line, on a socket that the library knows nothing of.
//!
//! Both ends are the same executable, so there is no version to negotiate.

use serde::{Deserialize, Serialize};

use crate::facts::{Confinement, DeviceAnswer, GpuSample, OpenAnswer};

/// The first argument of a child. Not part of the command line that is documented.
pub(super) const CHILD_ARGUMENT: &str = "__vendor-child";

/// The exit code of a child that could not keep to the protocol: its socket was gone, or it panicked.
pub(super) const EXIT_LOST: i32 = 119;

/// What a child that died before it made a call is said to have died in.
pub(super) const BEFORE_ANY_CALL: &str = "start";

/// From how many milliseconds on the time of a call is kept.
pub(super) const SLOW_MS: u64 = 1000;

/// What the parent says to a child that is asked again and again, each time.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Request {
    /// Indices of GPUs that sleep and must not be touched.
    pub(super) asleep: Vec<u32>,
    /// How many GPUs the driver lists; these indices mean something only where NVML counts as many.
    pub(super) listed: Option<u32>,
}

/// What the child says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    /// Said once, before anything of the library runs.
    Confined {
        /// What was had.
        confinement: Confinement,
        /// Why calls with side effects will not be made, where they were asked for.
        withheld: Option<String>,
    },
    /// A call is about to be made.
    Calling(String),
    /// The call came back, or cannot be made.
    Answer(Answer),
    /// All that was learnt about one GPU.
    Device(Box<DeviceAnswer>),
    /// The sensors of one GPU.
    Gpu(Box<GpuSample>),
    /// All GPUs were asked for this time; the parent may ask once more.
    Tick {
        /// Whether it was certain which of them sleep; otherwise none was asked.
        certain: bool,
    },
    /// All that was learnt about one node.
    Opened(OpenAnswer),
    /// Nothing more will be said.
    Done,
}

/// How a call came back.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Answer {
    /// The raw return code; `None` where there was nothing to call.
    pub(super) code: Option<i64>,
    /// The number it answered.
    pub(super) number: Option<i64>,
    /// The text it answered, or the loader's message.
    pub(super) text: Option<String>,
    /// How long it took, in milliseconds.
    pub(super) ms: u64,
    /// How many bytes stood in the file of printed text when it came back.
    pub(super) printed_to: u64,
    /// One of many of its kind, worth keeping only where something is odd about it.
    pub(super) routine: bool,
}
