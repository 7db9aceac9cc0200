//! What is installed in the consumer's environment: Python and conda distributions that mean something to the GPU stack,
//! by their own records. Those say what was installed, not what lies on the disk now: both are kept here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FileKind, Reading};
use crate::version::Version;

/// The distributions of the consumer's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PythonFacts {
    /// Those that bring GPU libraries, frameworks or extensions, in the order of the search path; the same name may
    /// occur more than once. Other distributions are not recorded. Absent where the consumer is no environment.
    pub distributions: Reading<Vec<Installed>>,
    /// What two or more of them brought: one lies there, and the others' records speak of a file that is gone.
    pub shared: Reading<Vec<SharedFile>>,
}

impl PythonFacts {
    /// The distribution that an interpreter sees under a name: the first on its search path. Conda's records are asked
    /// last, and by conda's own name.
    pub fn installed(&self, name: &str) -> Option<&Installed> {
        self.distributions.items().iter().find(|d| d.name == name)
    }

    /// The distributions that recorded a file, by its path.
    pub fn owners<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Installed> {
        let all = self.distributions.items().iter();
        all.filter(move |d| d.files.items().iter().any(|file| file.path == path))
    }
}

/// An installed distribution, and what became of its libraries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Installed {
    /// Its name, normalised by PEP 503: `nvidia-cuda-runtime-cu12`. Conda packages keep conda's name: `pytorch`.
    pub name: String,
    /// Its version as written: `2.7.1+cu126`.
    pub version: String,
    /// The folder that it is installed in; of a conda package the environment's prefix.
    pub site: String,
    /// Its record: the `dist-info` or `egg-info` folder or file, or the file in `conda-meta`.
    pub metadata: String,
    /// What installed it: `pip`, `uv`, `conda`, `dpkg`. Absent where it says nothing.
    pub installer: Reading<String>,
    /// Its requirements as written (`Requires-Dist`; of a conda package its `depends`) that name a GPU library, a
    /// framework or an extension.
    pub requires: Vec<String>,
    /// The shared libraries (`lib*.so*`) that it recorded; extension modules are left out. Absent where it has no list of
    /// files, as after Debian's packages.
    pub files: Reading<Vec<RecordedFile>>,
    /// Recorded shared libraries, extension modules and programs of a kernel compiler (Triton's ptxas) that are not there.
    pub missing: Vec<String>,
    /// Recorded shared libraries and extension modules that have another size than recorded.
    pub changed: Vec<ChangedFile>,
}

impl Installed {
    /// Whether this is a package of conda's, by its record in `conda-meta`.
    pub fn is_conda_package(&self) -> bool {
        self.metadata
            .rsplit_once('.')
            .is_some_and(|(_, extension)| extension == "json")
    }
}

/// A file as a distribution recorded it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RecordedFile {
    /// Where it was put.
    pub path: String,
    /// Its size in bytes, where that was recorded.
    pub size_bytes: Option<u64>,
    /// The digest that a RECORD has of it. In a snapshot it stands with files that several distributions brought only.
    #[serde(skip)]
    pub digest: Option<String>,
}

/// A file that has another size than its distribution recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChangedFile {
    /// Where it lies.
    pub path: String,
    /// The recorded size in bytes.
    pub recorded_bytes: u64,
    /// The size that it has, in bytes.
    pub size_bytes: u64,
    /// What kind of file it is now: a package that was stripped or relinked has another size and is whole.
    pub kind: FileKind,
}

/// A shared object, or the folder of a package, that more than one distribution brought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SharedFile {
    /// Where it lies.
    pub path: String,
    /// Who brought it, in the order of the search path.
    pub owners: Vec<Owner>,
    /// The size that the file has, in bytes; absent where it is a folder.
    pub size_bytes: Reading<u64>,
    /// The version that the file itself tells. Not looked for (unreadable) where its size tells whose it is.
    pub version: Reading<Version>,
    /// The version of CUDA that the file says it was built for. As with `version`.
    pub cuda: Reading<Version>,
    /// The distribution that the package itself says it is of: ONNX Runtime's `package_name`.
    pub package: Reading<String>,
}

/// One of those that brought a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Owner {
    /// The distribution's name.
    pub name: String,
    /// Its version as written.
    pub version: String,
    /// Its record.
    pub metadata: String,
    /// The size that it recorded, in bytes; `None` where it recorded none.
    pub recorded_bytes: Option<u64>,
    /// The digest that it recorded, `sha256=...`; `None` where it recorded none.
    pub recorded_digest: Option<String>,
}
