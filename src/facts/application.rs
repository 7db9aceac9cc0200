//! The application layer: the program that was named (`--app`), the process that runs (`--pid`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reading;
use crate::inspect::File;

/// What the user wants to run, where it was named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApplicationFacts {
    /// The program of `--app`, as `inspect` tells a file, with what its needs resolve to. Absent where no program was
    /// named, or a script.
    pub program: Reading<Box<File>>,
    /// The process of `--pid`; absent where none was named.
    pub process: Reading<Process>,
}

/// A running process, by what `/proc` tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The program that it runs.
    pub exe: Reading<String>,
    /// Whether it sees another file system than this program does: that of a container.
    pub other_root: Reading<bool>,
    /// The libraries of the GPU stack that are mapped into it, each once, in the order of their addresses.
    pub mapped: Reading<Vec<Mapped>>,
    /// The environment of Python that its modules lie in: the prefix of a mapped `site-packages` folder.
    pub prefix: Option<String>,
}

/// A file that is mapped into a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Mapped {
    /// Its path when it was mapped, as the process sees it.
    pub path: String,
    /// Whether that file is gone from the disk: the process goes on with it, others get what is there now.
    pub deleted: bool,
    /// Whether another file lies at the path now.
    pub replaced: bool,
}
