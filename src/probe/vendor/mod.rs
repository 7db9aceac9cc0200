//! Asks libcuda, libnvidia-ml, libcudart and the device nodes, each in a child process with a deadline.
//!
//! Vendor libraries hang, crash, exit, print, and as root re-mode device nodes. So each is loaded in a child of its own: this
//! executable once more, with a hidden argument. The child gives up what could change the host (`confine`), says the
//! name of each call before it makes it, and the raw code after it (`protocol`). The parent waits no longer than the
//! deadline, kills, and writes down what was said; what it means is for the rules to say.
//!
//! [`start`] returns at once: start all children, read files meanwhile, then [`Running::finish`] each.

#![expect(
    clippy::disallowed_methods,
    reason = "a child inherits the environment, so what it inherits is looked up"
)]

mod child;
mod confine;
mod live;
mod nvml;
mod protocol;
mod standing;
mod trust;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::live::Live;
use self::protocol::CHILD_ARGUMENT;
pub use self::standing::Standing;
pub use self::trust::trusted_to_load;
use crate::error::plain_io;
use crate::facts::{ChildEnd, Confinement, GpuSample, LibraryAnswers, OpenAnswer, Reading};

/// How long a child may take, unless the caller says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LibraryKind {
    /// libcuda: version, `cuInit`, GPUs.
    Cuda,
    /// libnvidia-ml: `nvmlInit`, driver version, GPUs.
    Nvml,
    /// libcudart: version, version of the driver, number of GPUs.
    Cudart,
    /// libamdhip64: versions, number of GPUs.
    Hip,
    /// libhsa-runtime64: `hsa_init`, version.
    Hsa,
    /// `open()` of device nodes.
    Nodes,
    /// libnvidia-ml: the sensors of the GPUs, again and again.
    Gpus,
}

/// One question, for one child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// What is asked.
    pub kind: LibraryKind,
    /// The file to load: absolute, as the consumer's loader would resolve it. Not used for nodes.
    pub path: String,
    /// Whether calls with side effects may be made: init calls and `open()`. They are made only if the child can be confined.
    pub init: bool,
    /// The nodes to open, read-write and without waiting.
    pub nodes: Vec<String>,
    /// Variables that the child has otherwise than this process; `None` removes one.
    pub env: BTreeMap<String, Option<String>>,
    /// How long the child may take, from its start.
    pub deadline: Duration,
}

impl Ask {
    /// The question to a library, without calls that have side effects.
    pub fn library(kind: LibraryKind, path: impl Into<String>) -> Self {
        Self {
            kind,
            path: path.into(),
            init: false,
            nodes: Vec::new(),
            env: BTreeMap::new(),
            deadline: DEADLINE,
        }
    }

    /// The question whether these nodes can be opened.
    pub fn nodes(nodes: Vec<String>) -> Self {
        Self {
            init: true,
            nodes,
            ..Self::library(LibraryKind::Nodes, "")
        }
    }

    /// A variable as the child will have it.
    fn variable(&self, name: &str) -> Option<OsString> {
        match self.env.get(name) {
            Some(value) => value.as_ref().map(OsString::from),
            None => std::env::var_os(name),
        }
    }

    fn about(&self) -> &str {
        if self.kind == LibraryKind::Nodes {
            "device nodes"
        } else {
            &self.path
        }
    }
}

/// All that a child said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Calls and how the child ended. For nodes the calls are those that were odd (`open /dev/nvidia0`).
    pub answers: LibraryAnswers,
    /// The nodes that were opened, or not.
    pub opens: Vec<OpenAnswer>,
    /// The sensors of the GPUs.
    pub gpus: Vec<GpuSample>,
    /// Whether it was certain which GPUs sleep; otherwise none was asked.
    pub certain: bool,
    /// How the child was confined; unreadable where it did not come to that.
    pub confined: Reading<Confinement>,
}

/// Starts children, from a program whose `main` begins with [`child_main`].
#[derive(Clone, Debug)]
pub struct Launcher {
    program: PathBuf,
}

impl Launcher {
    /// Children are started from this program.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
        }
    }

    /// Children are started from the running executable: the path it was started by (which needs no /proc), or else the
    /// one that /proc names.
    pub fn own() -> io::Result<Self> {
        let started_by = OsStr::from_bytes(rustix::param::linux_execfn().to_bytes());
        match std::path::absolute(started_by) {
            Ok(path) if path.is_file() => Ok(Self::new(path)),
            _ => std::env::current_exe().map(Self::new),
        }
    }

    /// Starts a child and does not wait for it.
    pub fn start(&self, ask: &Ask) -> Running {
        let heard = Heard {
            answers: LibraryAnswers {
                path: ask.path.clone(),
                ..LibraryAnswers::default()
            },
            confined: Reading::unreadable("no child was started"),
            ..Heard::default()
        };
        if ask.kind != LibraryKind::Nodes
            && let Err(reason) = trusted_to_load(Path::new(&ask.path), &|name| ask.variable(name))
        {
            log::debug!("{} is not loaded: {reason}", ask.about());
            return Running::over(heard, ChildEnd::NotTrusted { reason });
        }
        match Live::spawn(&self.program, ask) {
            Ok(live) => Running {
                heard,
                live: Some(live),
            },
            Err(e) => {
                log::debug!("no child for {}: {e}", ask.about());
                Running::over(
                    heard,
                    ChildEnd::NotStarted {
                        reason: plain_io(&e.to_string()),
                    },
                )
            }
        }
    }
}

/// Starts a child of the running executable and does not wait for it. All that is to be asked can be started at once.
pub fn start(ask: &Ask) -> Running {
    match Launcher::own() {
        Ok(launcher) => launcher.start(ask),
        Err(e) => Running::over(
            Heard {
                answers: LibraryAnswers {
                    path: ask.path.clone(),
                    ..LibraryAnswers::default()
                },
                confined: Reading::unreadable("no child was started"),
                ..Heard::default()
            },
            ChildEnd::NotStarted {
                reason: format!("own executable: {}", plain_io(&e.to_string())),
            },
        ),
    }
}

/// Answers in a child's stead where the arguments say that this process is one; its exit code. To be called before
/// anything else in `main`.
pub fn child_main(args: impl IntoIterator<Item = OsString>) -> Option<i32> {
    (args.into_iter().nth(1)? == CHILD_ARGUMENT).then(child::run)
}

/// A child that was started, or the reason why none was.
#[derive(Debug)]
pub struct Running {
    heard: Heard,
    live: Option<Live>,
}

impl Running {
    fn over(mut heard: Heard, end: ChildEnd) -> Self {
        heard.answers.end = end;
        Self { heard, live: None }
    }

    /// Waits for the child until its deadline, and not longer.
    pub fn finish(self) -> Heard {
        self.finish_saying(Duration::MAX, &mut |_| ())
    }

    /// The same; once it has waited this long in all, `say` hears the name of the call that is being waited for.
    pub fn finish_saying(mut self, patience: Duration, say: &mut dyn FnMut(&str)) -> Heard {
        if let Some(live) = self.live.take() {
            live.hear(&mut self.heard, patience, say);
        }
        self.heard
    }
}
