//! The libraries layer, with the parts of the runtime layer that are found the same way (NVRTC, nvJitLink): every copy
//! that the consumer reaches, and who gets which copy by what rule.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FileKind, ReachedBy, Reading};
use crate::version::Version;

/// The consumer of a link where no program is known that asks: whatever opens the library by its name, each time in a
/// process of its own.
pub const ANY_PROGRAM: &str = "any program";

/// Copies of NVIDIA's libraries, and the ties between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LibrariesFacts {
    /// Every copy that the consumer reaches or has brought, each file once.
    pub copies: Reading<Vec<LibraryFile>>,
    /// What the consumer's programs and their libraries ask for, and what they get.
    pub links: Reading<Vec<Link>>,
}

impl LibrariesFacts {
    /// The copy that lies at a path, by either of its names.
    pub fn at(&self, path: &str) -> Option<&LibraryFile> {
        self.copies
            .items()
            .iter()
            .find(|copy| copy.path == path || copy.real_path == path)
    }

    /// The copies that something gets: what is in use, not what lies about.
    pub fn in_use(&self) -> impl Iterator<Item = &LibraryFile> {
        self.copies
            .items()
            .iter()
            .filter(|copy| copy.used_by.is_some())
    }
}

/// One copy of a library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LibraryFile {
    /// Where it was found.
    pub path: String,
    /// Where that path leads in the end.
    pub real_path: String,
    /// What kind of file it is.
    pub kind: FileKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The library without version and ending: `libcublasLt`, `libcudnn_graph`.
    pub name: String,
    /// The name that others need it by: `libcublasLt.so.12`. Absent where the file says none.
    pub soname: Reading<String>,
    /// Its version: the first of `versions`.
    pub version: Reading<Version>,
    /// Every source of the version that answered: (1) the file's code, variables or symbols, (2) the real file's name,
    /// (3) the library beside it that tells the version of both, (4) the distribution that brought it.
    pub versions: Vec<(String, Version)>,
    /// The CUDA version that it was built for, where it says so beside its own.
    pub cuda: Option<Version>,
    /// The distribution that brought it: `nvidia-nvjitlink-cu12 12.8.93`.
    pub owner: Reading<String>,
    /// The sonames that it needs, in order.
    pub needed: Vec<String>,
    /// `DT_RPATH` as written.
    pub rpath: Option<String>,
    /// `DT_RUNPATH` as written.
    pub runpath: Option<String>,
    /// How it is reached.
    pub reached_by: Vec<ReachedBy>,
    /// What gets it: the path of the first program or library that does; `None` where nothing that is known of asks for it.
    pub used_by: Option<String>,
}

/// A library that something asks for, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Link {
    /// What is started or imported, in words: `torch 2.5.1`, [`ANY_PROGRAM`].
    pub consumer: String,
    /// What was loaded into the same process before: `torch 2.5.1` for an extension of it.
    pub after: Option<String>,
    /// The path of the object that asks; empty for a program that opens a library by its name.
    pub user: String,
    /// The name that it asks for.
    pub soname: String,
    /// Whether it is opened by name while the program runs; else it is needed when `user` is loaded.
    pub opened: bool,
    /// The path of what it gets; `None`: nothing.
    pub got: Option<String>,
    /// By which rule of the loader, or why there is nothing: `LD_LIBRARY_PATH`, `RUNPATH`, `not found`.
    pub by: String,
    /// The copy that the environment brought under that name and that is not the one in use; where nothing was got, the
    /// copy that the loader does not find.
    pub beside: Option<String>,
    /// The symbols and version nodes that `user` needs of it and `got` does not have: `__nvJitLinkCreate_12_9@libnvJitLink.so.12`.
    pub lacking: Vec<String>,
}
