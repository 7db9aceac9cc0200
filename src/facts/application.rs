//! The application layer: the program that was named (`--app`), the process that runs (`--pid`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Reading;
use crate::inspect::File;
use crate::version::Version;

/// What the kernel adds to the path of a file that has no name any more.
pub const DELETED: &str = " (deleted)";

/// What the user wants to run, where it was named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ApplicationFacts {
    /// The program of `--app`, as `inspect` tells a file, with what its needs resolve to. Absent where no program was
    /// named, or a script.
    pub program: Reading<Box<File>>,
    /// The process of `--pid`; absent where none was named.
    pub process: Reading<Process>,
    /// What the kernel starts when the program or script of `--app` is called; absent where none was named.
    pub start: Reading<Start>,
}

/// How a program or script is started: the file itself, and what each one names to be started in its place or with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Start {
    /// The files, the named one first. The last one stands on its own, or cannot be started.
    pub chain: Vec<Started>,
    /// The emulator that the kernel hands the program to (`binfmt_misc`). Absent: there is none for it. Asked only where
    /// the program is for another machine.
    pub emulator: Reading<String>,
    /// A Python that works and lies in the script's own folder: where an environment was moved, the one it should name.
    pub beside: Option<String>,
}

/// One file of a start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Started {
    /// Its path, or the bare name where `PATH` has none of it.
    pub path: String,
    /// What it is here.
    pub part: StartPart,
    /// As it is written in the file before: `#!/usr/bin/env python3`, `/lib64/ld-linux-x86-64.so.2`.
    pub written: String,
    /// The machine that it is for, where it is an ELF file: `x86_64`, `aarch64`.
    pub arch: Option<String>,
    /// Whether it can be started.
    pub state: StartState,
    /// Where a link of its name leads in the end, where it is one.
    pub leads_to: Option<String>,
}

/// What a file of a start is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StartPart {
    /// A program.
    #[default]
    Program,
    /// A library, which is loaded and not started.
    Library,
    /// A script.
    Script,
    /// What a script's first line names.
    Interpreter,
    /// What `env` in a script's first line finds on `PATH`.
    OnPath,
    /// The loader that a program names.
    Loader,
}

/// Whether a file can be started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StartState {
    /// Nothing stands against it.
    Fit,
    /// There is nothing at the path.
    Missing,
    /// There is a link that leads nowhere: its text.
    BrokenLink(String),
    /// It has no permission to be executed, or is no file.
    NotExecutable,
    /// No folder of `PATH` has it.
    NotOnPath,
    /// It could not be told, and why.
    Unreadable(String),
    /// Not recorded.
    #[default]
    Unknown,
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
    /// Of a file that is gone, the name that others need it by, where the mapping can be read.
    pub soname: Option<String>,
    /// Of a file that is gone, its version: (1) of the mapping, (2) of its full name.
    pub version: Option<Version>,
    /// Of a file that is gone, where that was read, or why it could not be.
    pub told_by: String,
}

impl Mapped {
    /// The soname, as a fact; for a file that is gone.
    pub fn soname(&self) -> Reading<String> {
        self.told(self.soname.as_ref())
    }

    /// The version, as a fact; for a file that is gone.
    pub fn version(&self) -> Reading<Version> {
        self.told(self.version.as_ref())
    }

    /// The version with where it was read, as the lists of versions have it.
    pub fn versions(&self) -> Vec<(String, Version)> {
        let version = self.version.iter();
        version
            .map(|version| (self.told_by.clone(), version.clone()))
            .collect()
    }

    fn told<T: Clone>(&self, value: Option<&T>) -> Reading<T> {
        match value {
            Some(value) => Reading::present(value.clone(), self.told_by.as_str()),
            None => Reading::unreadable(self.told_by.as_str()),
        }
    }
}
