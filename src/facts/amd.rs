//! AMD's stack: what the compute part of `amdgpu` (KFD) lists, the driver on disk, and what there is of `ROCm`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DeviceNode, DkmsTree, FileKind, ReachedBy, Reading};
use crate::gfx::GfxTarget;
use crate::read::offload::Bundles;
use crate::version::Version;

/// What there is of AMD's stack. Looked for where an AMD GPU, its driver or a part of `ROCm` is here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AmdFacts {
    /// The nodes of KFD's topology, in its order, processors among them. Absent: this kernel has no KFD.
    pub topology: Reading<Vec<KfdNode>>,
    /// The version of `amdgpu`, which only the driver of AMD's own packages has; absent of the kernel's own.
    pub module_version: Reading<String>,
    /// `/dev/kfd`.
    pub kfd: Reading<DeviceNode>,
    /// The GPUs that variables name by UUID.
    pub named: Reading<Vec<NamedGpu>>,
    /// Product names by PCI address, of libdrm's list.
    pub names: BTreeMap<String, String>,
    /// Files of `amdgpu` for the running kernel. Present and empty: this kernel's modules are here, and that is none of them.
    pub disk_modules: Reading<Vec<String>>,
    /// DKMS trees of `amdgpu`.
    pub dkms: Reading<Vec<DkmsTree>>,
    /// Lines of the kernel log about `amdgpu` and KFD, newest last.
    pub kernel_log: Reading<Vec<String>>,
    /// Releases of `ROCm` on disk: `/opt/rocm*`, wheels.
    pub releases: Reading<Vec<RocmRelease>>,
    /// Libraries of `ROCm` that were found, those that the consumer reaches first.
    pub libraries: Reading<Vec<RocmLibrary>>,
    /// Of HIP's and the HSA runtime what torch and HIP need, and what neither lies among these nor is found by the loader.
    pub lacking: Reading<Vec<RocmNeed>>,
    /// Folders of kernels that rocBLAS and hipBLASLt load at run time.
    pub kernels: Reading<Vec<KernelFolder>>,
}

/// One node of `/sys/class/kfd/kfd/topology/nodes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KfdNode {
    /// Its number.
    pub node: u32,
    /// KFD's id of the GPU; 0 = a processor.
    pub gpu_id: u32,
    /// What its `properties` say. Unreadable where the kernel keeps it from this process, as from a container that was not
    /// given the GPU.
    pub properties: Reading<KfdProperties>,
}

/// What matters of a node's `properties`. A line that an old kernel does not write leaves 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KfdProperties {
    /// SIMD units: 0 = a processor.
    pub simd_count: u32,
    /// PCI vendor id: 0x1002.
    pub vendor_id: u32,
    /// PCI device id.
    pub device_id: u32,
    /// Bus, device and function: `bus << 8 | device << 3 | function`.
    pub location_id: u32,
    /// PCI domain.
    pub domain: u32,
    /// Instruction set as a number: 100301 is `gfx1031`. 0 where the kernel does not tell (before 5.14).
    pub gfx_target_version: u32,
    /// Minor number of the render node: 128 is `/dev/dri/renderD128`.
    pub drm_render_minor: u32,
    /// Processor cores of the node: above 0 on a GPU that shares its memory with the processor, before `ROCm` told those
    /// apart.
    pub cpu_cores_count: u32,
}

impl KfdNode {
    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.gpu_id != 0
    }

    /// Its instruction set, where the kernel tells.
    pub fn target(&self) -> Option<GfxTarget> {
        GfxTarget::from_number(self.properties.value()?.gfx_target_version)
    }

    /// Its PCI address as sysfs writes it.
    pub fn address(&self) -> Option<String> {
        let at = self.properties.value()?;
        let (bus, slot, function) = (
            at.location_id >> 8 & 0xff,
            at.location_id >> 3 & 0x1f,
            at.location_id & 7,
        );
        Some(format!("{:04x}:{bus:02x}:{slot:02x}.{function}", at.domain))
    }

    /// Its render node.
    pub fn render_node(&self) -> Option<String> {
        let minor = self.properties.value()?.drm_render_minor;
        (minor > 0).then(|| format!("/dev/dri/renderD{minor}"))
    }
}

/// A GPU that a variable names by UUID. The UUID itself, which KFD lists as a number, is not kept: it is a serial number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct NamedGpu {
    /// `ROCR_VISIBLE_DEVICES`.
    pub variable: String,
    /// The entry as it stands there: `GPU-4b2c1a9f8d3e6f7a`, or the start of it.
    pub entry: String,
    /// The node of the GPU that it is; none where it is none of these.
    pub node: Option<u32>,
}

/// A release of `ROCm` on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RocmRelease {
    /// `/opt/rocm-6.4.1`.
    pub path: String,
    /// 6.4.1, by its `.info/version`.
    pub version: Reading<Version>,
}

/// A library of `ROCm`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RocmLibrary {
    /// `libamdhip64`.
    pub name: String,
    /// Where it was found.
    pub path: String,
    /// Where that path leads in the end.
    pub real_path: String,
    /// What kind of file it is.
    pub kind: FileKind,
    /// Its soname: `libamdhip64.so.6`.
    pub soname: Reading<String>,
    /// Its version by its file's name: 6.4 of `libamdhip64.so.6.4.60401`.
    pub version: Reading<Version>,
    /// The release of `ROCm` that it is of, by the same name: 6.4.1.
    pub release: Reading<Version>,
    /// How it is reached.
    pub reached_by: Vec<ReachedBy>,
}

impl RocmLibrary {
    /// Whether a process of the consumer gets this copy without further ado.
    pub fn is_reached(&self) -> bool {
        self.reached_by.iter().any(ReachedBy::is_live)
    }
}

/// Code for AMD's GPUs in a program or library, by the headers of its bundles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GfxCode {
    /// Targets with their features: `gfx90a:xnack-`, of a family `gfx11-generic`, of code that is compiled when it is loaded
    /// `amdgcnspirv`.
    pub targets: Vec<String>,
    /// Whether all bundles were looked into: only then is what is not listed not there.
    pub complete: bool,
}

impl From<Bundles> for GfxCode {
    fn from(bundles: Bundles) -> Self {
        Self {
            targets: bundles.targets.into_iter().collect(),
            complete: bundles.complete,
        }
    }
}

/// A library of `ROCm` that is needed and found nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RocmNeed {
    /// `libamdhip64.so.6`.
    pub soname: String,
    /// The file that needs it.
    pub user: String,
    /// What became of the loader's search, in words.
    pub by: String,
}

/// A folder of kernels, by the names of its files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KernelFolder {
    /// `rocBLAS`, `hipBLASLt`.
    pub library: String,
    /// Where it lies.
    pub path: String,
    /// The targets that its files are for: `gfx90a`, or of a family `gfx11-generic`.
    pub targets: Vec<String>,
    /// How the library that loads from it is reached.
    pub reached_by: Vec<ReachedBy>,
    /// The variable that names it in place of the library's own folder.
    pub named_by: Option<String>,
}
