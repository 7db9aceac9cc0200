//! The description of a host, as the files in `fixtures/hosts` hold it: one `[[host]]` table a file.
//!
//! A host says what lies on its disk, what its device nodes are, what the libraries answer there, and what is expected
//! of a diagnosis. This file only reads that; it neither lays a host out nor checks that it makes sense.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use gpudoctor::facts::{DeviceNode, Reading};
use gpudoctor::finding::Severity;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// The folder that holds the hosts, one file each.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hosts")
}

/// Every host of `fixtures/hosts`, sorted by name.
pub fn load_all() -> Vec<Host> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("fixtures/hosts can be listed")
        .map(|entry| entry.expect("fixtures/hosts can be listed").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    paths.sort();
    paths.iter().map(|path| load_file(path)).collect()
}

/// The host of this name.
pub fn load(case: &str) -> Host {
    load_file(&folder().join(format!("{case}.toml")))
}

/// The one host of a file. The file is called as the host is.
fn load_file(path: &Path) -> Host {
    let fail = |why: &dyn fmt::Display| -> ! { panic!("{}: {why}", path.display()) };
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| fail(&e));
    let file: HostFile = toml::from_str(&text).unwrap_or_else(|e| fail(&e));
    if file.schema != 1 {
        fail(&format_args!("schema {} is not known", file.schema));
    }
    let [host] = <[Host; 1]>::try_from(file.host)
        .unwrap_or_else(|h| fail(&format_args!("{} hosts, not one", h.len())));
    if path
        .file_stem()
        .is_none_or(|stem| stem != host.case.as_str())
    {
        fail(&format_args!("the host is called {}", host.case));
    }
    host
}

/// A file of `fixtures/hosts`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostFile {
    schema: u32,
    host: Vec<Host>,
}

/// A host, and what a diagnosis of it has to say.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// Its name.
    pub case: String,
    /// The fault in words; `no fault: ...` for a healthy host.
    pub expect: String,
    /// The layer at fault; `none` for a healthy host. `kernel` stands for driver or system, `build` for toolchain.
    pub expect_layer: String,
    /// Several layers that are all right as an answer.
    pub expect_layers: Vec<String>,
    /// When the snapshot is taken (UTC, RFC 3339), where that matters; else a fixed day.
    pub taken_at: Option<String>,
    /// Words that title, component, evidence or fixes of the root cause have to contain.
    pub expect_says: Vec<String>,
    /// Exit codes that are all right; empty: 1 for a fault, 0 for none.
    #[serde(deserialize_with = "one_or_many")]
    pub exit: Vec<i32>,
    /// Ids of further errors that are right beside the root cause.
    pub also: Vec<String>,
    /// On a healthy host the worst severity that a finding may have; `warning` where not given.
    pub worst: Option<String>,
    /// What must not be reported, in words.
    pub must_not_report: Vec<String>,
    /// Ids of findings that have to be there, with a severity where it is not the usual one: `driver-library-slow=warning`.
    pub provokes: Vec<String>,
    /// Ids of findings whose rule has to stay quiet here, where it might be fooled: this is their healthy twin.
    pub twin_of: Vec<String>,
    /// Where the case comes from.
    pub source: String,
    /// What of it is from that source.
    pub basis: String,
    /// What was added to make a whole host of it.
    pub filled_in: Vec<String>,
    /// Arguments of the run; empty: `check --format json`.
    pub args: Vec<String>,
    /// Machine architecture as `uname -m` answers it; `x86_64` where empty.
    pub arch: String,
    /// Text files by path.
    pub files: BTreeMap<String, String>,
    /// Other files by path: hex digits, white space between them allowed.
    pub files_hex: BTreeMap<String, String>,
    /// Permission bits of files, in octal: `4755`.
    pub modes: BTreeMap<String, String>,
    /// Links by path: what they hold.
    pub links: BTreeMap<String, String>,
    /// Paths that do not exist although one would look for them.
    pub absent: Vec<String>,
    /// Sockets that nobody listens on.
    pub sockets: Vec<String>,
    /// Device nodes.
    pub nodes: Vec<Node>,
    /// What `open(path, O_RDWR)` answers: `ok` or the name of an errno.
    pub open: BTreeMap<String, String>,
    /// Libraries, programs and kernel modules.
    pub elf: Vec<ElfFile>,
    /// Lines of the loader's cache, as `ldconfig -p` prints them.
    pub ldcache: Vec<String>,
    /// Environment variables of the failing process.
    pub env: BTreeMap<String, String>,
    /// What library calls answer in that process.
    pub dlopen: Answers,
    /// Installed Python distributions.
    pub python: Vec<Distribution>,
    /// The user; root where not given and `/proc/self/status` does not tell.
    pub uid: Option<u32>,
    /// Further groups of that user.
    pub groups: Option<Vec<u32>>,
    /// What a library answers against what `dlopen` implies, by path (with `*`).
    pub stubs: BTreeMap<String, BTreeMap<String, Answer>>,
    /// What commands print, by command line. Those that begin with a path are laid out as files.
    pub answers: BTreeMap<String, String>,
}

impl Host {
    /// Whether nothing is wrong with it.
    pub fn is_healthy(&self) -> bool {
        self.expect_layer == "none"
    }

    /// The findings that have to be there, with their severities: on a sick host errors, on a healthy one notes, unless
    /// it says otherwise.
    pub fn provoked(&self) -> Vec<(&str, Severity)> {
        let usual = if self.is_healthy() {
            Severity::Note
        } else {
            Severity::Error
        };
        self.provokes
            .iter()
            .map(|text| match text.split_once('=') {
                None => (text.as_str(), usual),
                Some((id, "note")) => (id, Severity::Note),
                Some((id, "warning")) => (id, Severity::Warning),
                Some((id, "error")) => (id, Severity::Error),
                Some(_) => panic!("{}: no severity in `{text}`", self.case),
            })
            .collect()
    }

    /// The machine architecture.
    pub fn machine(&self) -> &str {
        if self.arch.is_empty() {
            "x86_64"
        } else {
            &self.arch
        }
    }
}

/// A device node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Its path.
    pub path: String,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Permission bits in octal; `0666` where not given.
    #[serde(default)]
    pub mode: Option<String>,
    /// Owner.
    #[serde(default)]
    pub uid: u32,
    /// Group.
    #[serde(default)]
    pub gid: u32,
}

impl Node {
    /// The node as a fact. No node of a described host carries an access control list.
    pub fn fact(&self) -> DeviceNode {
        let mode = self.mode.as_deref().unwrap_or("0666");
        DeviceNode {
            path: self.path.clone(),
            is_char: true,
            major: self.major,
            minor: self.minor,
            mode: u32::from_str_radix(mode, 8)
                .unwrap_or_else(|e| panic!("mode {mode} of {}: {e}", self.path)),
            uid: self.uid,
            gid: self.gid,
            acl: Reading::present(false, &self.path),
        }
    }
}

/// A library, a program or a kernel module.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ElfFile {
    /// Where it lies. What ends in `.ko` is a kernel module.
    pub path: String,
    /// Its soname; a link of that name is put beside it.
    pub soname: String,
    /// Sonames it needs.
    pub needed: Vec<String>,
    /// Its version.
    pub version: String,
    /// The text in its read-only data; `version VERSION` where not given.
    pub version_string: Option<String>,
    /// Defined dynamic symbols, with their version node where they have one: `symbol@@node`.
    pub defines: Vec<String>,
    /// Symbols that it does not define although one would look for them.
    pub defines_not: Vec<String>,
    /// Undefined dynamic symbols: `symbol`, `symbol@node`.
    pub undefined: Vec<String>,
    /// Version nodes that it defines beside those of `defines`: `GLIBC_2.36`.
    pub version_nodes: Vec<String>,
    /// `DT_RUNPATH`.
    pub runpath: Option<String>,
    /// `DT_RPATH`.
    pub rpath: Option<String>,
    /// Device code: `sm_80`, `sm_90a`.
    pub cubins: Vec<String>,
    /// Code for AMD's GPUs: `gfx1030`, `gfx11-generic`.
    pub gfx: Vec<String>,
    /// PTX: `sm_80` or `compute_80`.
    pub ptx: Vec<String>,
    /// Size that the file is brought to. Below 64 bytes the file is cut.
    pub size: Option<u64>,
    /// Whether the link by its soname is put beside it; it is where not given.
    pub link: Option<bool>,
    /// Whether this is a link-time stub.
    pub is_stub: bool,
    /// The note of a forward-compatibility libcuda.
    pub compat_note: Option<CompatNote>,
    /// Its machine where it is not the host's: `x86_64`, `aarch64`.
    pub machine: Option<String>,
    /// `vermagic=` of a kernel module.
    pub modinfo_vermagic: Option<String>,
    /// `license=` of a kernel module; `NVIDIA` where not given.
    pub modinfo_license: Option<String>,
    /// `signer=` of a kernel module. A signature is appended then.
    pub modinfo_signer: Option<String>,
    /// Whether a signature is appended to a kernel module.
    pub signature_appended: bool,
}

/// What the note of a forward-compatibility libcuda says.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompatNote {
    /// The CUDA version that it brings.
    pub cuda: String,
    /// The driver branches that it may run on.
    pub drivers: Vec<u32>,
}

/// An installed Python distribution.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Distribution {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The site-packages folder; Debian's where not given.
    #[serde(default = "debian_site")]
    pub site: String,
}

fn debian_site() -> String {
    "/usr/lib/python3/dist-packages".to_owned()
}

/// What calls of the vendor libraries answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Answers {
    /// The file that `libcuda.so.1` is in the failing process, for the reader: which one it is follows from the tree.
    pub libcuda: Option<String>,
    /// The name by which the process opened it.
    pub opened_by_name: Option<String>,
    /// The driver's own libcuda, where another one is found first.
    pub libcuda_system: Option<String>,
    /// Windows's libcuda, where another one is found first.
    pub libcuda_wsl: Option<String>,
    /// Level that libcuda answers, or its error code as text: `error 34`.
    #[serde(rename = "cuDriverGetVersion")]
    pub driver_level: Option<Answer>,
    /// The same of the driver's own libcuda.
    #[serde(rename = "cuDriverGetVersion_system")]
    pub driver_level_system: Option<Answer>,
    /// The same of Windows's libcuda.
    #[serde(rename = "cuDriverGetVersion_wsl")]
    pub driver_level_wsl: Option<Answer>,
    /// Return code of `cuInit`; 0 where not given.
    #[serde(rename = "cuInit")]
    pub cu_init: Option<Answer>,
    /// The same of the driver's own libcuda.
    #[serde(rename = "cuInit_system")]
    pub cu_init_system: Option<Answer>,
    /// The same of Windows's libcuda.
    #[serde(rename = "cuInit_wsl")]
    pub cu_init_wsl: Option<Answer>,
    /// GPUs that CUDA sees.
    #[serde(rename = "cuDeviceGetCount")]
    pub cu_device_count: Option<Answer>,
    /// Compute capability, one or one for each GPU: `8.6`.
    #[serde(deserialize_with = "one_or_many")]
    pub compute_capability: Vec<String>,
    /// The libcudart that `cudaRuntimeGetVersion` is about.
    pub libcudart: Option<String>,
    /// Level of that libcudart.
    #[serde(rename = "cudaRuntimeGetVersion")]
    pub runtime_level: Option<u32>,
    /// What it answers, for the reader: it follows from the levels and from `cuInit`.
    #[serde(rename = "cudaGetDeviceCount")]
    pub cuda_device_count: Option<Answer>,
    /// Return code of `nvmlInit`; 0 where not given, library not found where it is no number.
    #[serde(rename = "nvmlInit")]
    pub nvml_init: Option<Answer>,
    /// What NVML says of the driver, for the reader.
    #[serde(rename = "nvmlSystemGetDriverVersion")]
    pub nvml_driver: Option<Answer>,
    /// GPUs that NVML counts.
    #[serde(rename = "nvmlDeviceGetCount")]
    pub nvml_device_count: Option<Answer>,
    /// 1: MIG is on.
    #[serde(rename = "nvmlDeviceGetMigMode")]
    pub mig_mode: Option<u32>,
    /// Index of the GPU that NVML answers "GPU is lost" for.
    pub lost: Option<u32>,
    /// The GPUs, where `/proc/driver/nvidia/gpus` does not name them.
    pub gpus: Vec<NamedGpu>,
    /// What NVML reads of each GPU, in its order; a GPU beyond the last entry is like the last.
    pub readings: Vec<Readings>,
}

/// What NVML reads of one GPU beside its name. What is not given the board cannot tell.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Readings {
    /// MIG devices that this user may use; counted only where MIG is on.
    pub mig_instances: Option<u32>,
    /// Whether rows of memory wait to be remapped.
    pub row_remap_pending: Option<bool>,
    /// Whether a remapping failed.
    pub row_remap_failed: Option<bool>,
    /// Whether pages of memory wait to be retired.
    pub retired_pages_pending: Option<bool>,
    /// `nvmlComputeMode_t`.
    pub compute_mode: Option<u32>,
    /// Whether persistence mode is on.
    pub persistence: Option<bool>,
    /// Greatest width of the `PCIe` link in this slot.
    pub link_width_max: Option<u32>,
    /// Compute processes.
    pub processes: Option<u32>,
}

/// A GPU that only the libraries name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedGpu {
    /// Its name.
    pub name: String,
    /// Its PCI address.
    #[serde(default)]
    pub bus: Option<String>,
    /// Its PCI device id.
    #[serde(default)]
    pub device: Option<String>,
}

/// A number, or words that may hold one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// A number.
    Number(i64),
    /// Words: `error 34`, `library absent`.
    Text(String),
}

impl Answer {
    /// The first number in it.
    pub fn code(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text
                .split(|c: char| !c.is_ascii_digit() && c != '-')
                .find_map(|word| word.parse().ok()),
        }
    }

    /// The number, where it is nothing else.
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

/// A value, or a list of such.
fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany<T> {
        One(T),
        Many(Vec<T>),
    }
    match OneOrMany::deserialize(deserializer) {
        Ok(OneOrMany::One(one)) => Ok(vec![one]),
        Ok(OneOrMany::Many(many)) => Ok(many),
        Err(_) => Err(D::Error::custom("a value or a list of such was expected")),
    }
}
