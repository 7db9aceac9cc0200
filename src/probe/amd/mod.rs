//! AMD's stack as files tell it: what the compute part of `amdgpu` (KFD) lists, the driver on disk, what there is of `ROCm`.
//!
//! Most machines have none of it, and pay for a few looks at places that are not there.

mod rocm;

use std::collections::BTreeMap;

pub(super) use rocm::Where;

use crate::facts::{AmdFacts, Facts, KfdNode, NamedGpu, PciDevice, Reading, VENDOR_AMD};
use crate::probe::loader::Loader;
use crate::probe::{driver, hardware};
use crate::read::{kfd, kmod, proc};
use crate::sysroot::{Sysroot, join};

const TOPOLOGY: &str = "/sys/class/kfd/kfd/topology/nodes";
const KFD: &str = "/dev/kfd";
/// libdrm's list of products, where distributions put it.
const PRODUCTS: &str = "/usr/share/libdrm/amdgpu.ids";
/// It has 21 kB.
const PRODUCTS_CAP: usize = 1 << 18;

/// What is known before any library is asked: the topology, and what the consumer gets of `ROCm`.
pub(super) fn first(sysroot: &Sysroot, loader: &Loader<'_>, at: &Where<'_>) -> AmdFacts {
    AmdFacts {
        topology: topology(sysroot),
        named: named(sysroot, at.env),
        ..rocm::libraries(sysroot, loader, at)
    }
}

/// Whether `amdgpu` is in the kernel. Built in, it is no module.
fn is_loaded(sysroot: &Sysroot, facts: &Facts) -> bool {
    facts.driver.has_module("amdgpu") == Some(true)
        || sysroot.lstat("/sys/module/amdgpu").is_present()
}

/// The nodes that may be opened without waking a GPU or asking for a module: `/dev/kfd`, and the render nodes of AMD's GPUs that
/// are awake. The second: whether one sleeps.
pub(super) fn nodes_to_open(sysroot: &Sysroot, facts: &Facts) -> (Vec<String>, bool) {
    if !is_loaded(sysroot, facts) {
        return (Vec::new(), false);
    }
    let mut paths = Vec::new();
    let mut asleep = false;
    if driver::node(sysroot, KFD).is_some_and(|node| node.is_char) {
        paths.push(KFD.to_owned());
    }
    let of_kfd = |path: &str| {
        let mut nodes = facts.amd.topology.items().iter();
        nodes
            .find(|node| node.render_node().as_deref() == Some(path))?
            .address()
    };
    for render in facts.drm.render.items() {
        let path = render.path();
        let Some(address) = render.address.value().cloned().or_else(|| of_kfd(&path)) else {
            continue;
        };
        let vendor = sysroot.text(&format!("/sys/bus/pci/devices/{address}/vendor"));
        let is_amd = vendor.value().and_then(|text| proc::hex(text)) == Some(VENDOR_AMD.into());
        if is_amd && hardware::sleeps(sysroot, &address) {
            asleep = true;
        } else if is_amd && render.node.value().is_some_and(|node| node.is_char) {
            paths.push(path);
        }
    }
    (paths, asleep)
}

/// The rest of what there is of AMD's stack, where an AMD GPU, its driver or a part of `ROCm` is here.
pub(super) fn probe(sysroot: &Sysroot, facts: &mut Facts) {
    let gpus: Vec<&PciDevice> = facts
        .hardware
        .pci
        .items()
        .iter()
        .filter(|d| d.is_amd_gpu())
        .collect();
    let amd = &mut facts.amd;
    amd.kfd = match driver::node(sysroot, KFD) {
        Some(node) => Reading::present(node, KFD),
        None => match sysroot.stat(KFD) {
            Reading::Unreadable { reason } => Reading::unreadable(reason),
            _ => Reading::absent(KFD),
        },
    };
    amd.releases = rocm::releases(sysroot);
    let involved = !gpus.is_empty()
        || amd.kfd.is_present()
        || amd.topology.is_present()
        || facts.driver.has_module("amdgpu") == Some(true);
    if !involved {
        let none = "not looked for: no GPU of AMD here";
        amd.module_version = Reading::unreadable(none);
        amd.disk_modules = Reading::unreadable(none);
        amd.dkms = Reading::unreadable(none);
        amd.kernel_log = Reading::unreadable(none);
        return;
    }
    amd.names = names(sysroot, &gpus);
    amd.module_version = sysroot
        .text("/sys/module/amdgpu/version")
        .map(|text| text.trim().to_owned());
    amd.disk_modules = match &facts.system.kernel_release {
        Reading::Present { value, .. } => disk_modules(sysroot, value),
        other => Reading::unreadable(format!("kernel release unknown: {}", other.source())),
    };
    amd.dkms = driver::dkms(sysroot, "amdgpu");
    amd.kernel_log = driver::kernel_log(sysroot, kfd::trouble);
}

/// KFD's topology, by number.
pub(super) fn topology(sysroot: &Sysroot) -> Reading<Vec<KfdNode>> {
    sysroot.list(TOPOLOGY, |_| true).map(|names| {
        let mut nodes: Vec<KfdNode> = names
            .iter()
            .filter_map(|name| {
                let dir = join(TOPOLOGY, name);
                let properties = sysroot
                    .text(&join(&dir, "properties"))
                    .and_then("no properties in it", |text| kfd::properties(&text));
                Some(KfdNode {
                    node: name.parse().ok()?,
                    gpu_id: sysroot
                        .text(&join(&dir, "gpu_id"))
                        .value()
                        .and_then(|text| text.trim().parse().ok())
                        .unwrap_or_default(),
                    properties,
                })
            })
            .collect();
        nodes.sort_by_key(|node| node.node);
        nodes
    })
}

/// The variables that choose GPUs, and whether they are read as the HSA runtime does; else as HIP.
const CHOICES: [(&str, bool); 3] = [
    ("ROCR_VISIBLE_DEVICES", true),
    ("HIP_VISIBLE_DEVICES", false),
    ("CUDA_VISIBLE_DEVICES", false),
];

/// The GPUs that these variables name by UUID, held against what KFD lists.
fn named(sysroot: &Sysroot, env: &BTreeMap<String, String>) -> Reading<Vec<NamedGpu>> {
    let mut found = Vec::new();
    let mut uuids: Option<Vec<(u32, String)>> = None;
    for (variable, by_rocr) in CHOICES {
        let Some(value) = env.get(variable) else {
            continue;
        };
        let is_uuid = |entry: &&str| kfd::is_uuid(entry, by_rocr);
        for entry in value.split(',').filter(is_uuid) {
            if uuids.is_none() {
                match self::uuids(sysroot) {
                    Ok(all) => uuids = Some(all),
                    Err(reading) => return reading,
                }
            }
            let all = uuids.as_deref().unwrap_or_default();
            let names: Vec<String> = all.iter().map(|(_, uuid)| uuid.clone()).collect();
            let entry = if by_rocr { entry.trim() } else { entry };
            let at = if by_rocr {
                kfd::named_by_rocr(entry, &names)
            } else {
                kfd::named_by_hip(entry, &names)
            };
            found.push(NamedGpu {
                variable: variable.to_owned(),
                entry: entry.to_owned(),
                node: at.and_then(|at| all.get(at)).map(|(node, _)| *node),
            });
        }
    }
    Reading::present(found, TOPOLOGY)
}

/// The UUIDs of KFD's GPUs, by node.
fn uuids(sysroot: &Sysroot) -> Result<Vec<(u32, String)>, Reading<Vec<NamedGpu>>> {
    let nodes = match sysroot.list(TOPOLOGY, |_| true) {
        Reading::Present { value, .. } => value,
        Reading::Absent { source } => return Err(Reading::absent(source)),
        Reading::Unreadable { reason } => return Err(Reading::unreadable(reason)),
    };
    let mut found = Vec::new();
    for name in nodes {
        let dir = join(TOPOLOGY, &name);
        let id = sysroot.text(&join(&dir, "gpu_id"));
        let (Ok(node), Some(id)) = (name.parse::<u32>(), id.value()) else {
            continue;
        };
        if id.trim() == "0" {
            continue;
        }
        match sysroot.text(&join(&dir, "properties")) {
            Reading::Present { value, .. } => found.push((node, kfd::uuid(&value))),
            // A GPU that a container was not given.
            Reading::Absent { .. } => {}
            Reading::Unreadable { reason } => return Err(Reading::unreadable(reason)),
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Products by address: of libdrm's list, by device and revision.
pub(super) fn names(sysroot: &Sysroot, gpus: &[&PciDevice]) -> BTreeMap<String, String> {
    if gpus.is_empty() {
        return BTreeMap::new();
    }
    let ids = sysroot.text_up_to(PRODUCTS, PRODUCTS_CAP);
    let Some(ids) = ids.value() else {
        return BTreeMap::new();
    };
    gpus.iter()
        .filter_map(|gpu| Some((gpu.address.clone(), product(sysroot, ids, gpu)?)))
        .collect()
}

/// The product that a device is.
fn product(sysroot: &Sysroot, ids: &str, gpu: &PciDevice) -> Option<String> {
    let revision = sysroot.text(&format!("/sys/bus/pci/devices/{}/revision", gpu.address));
    let revision = u8::try_from(proc::hex(revision.value()?)?).ok()?;
    kfd::product(ids, gpu.device, revision).map(str::to_owned)
}

/// Files of `amdgpu` for a kernel: (1) those that `modules.dep` names, (2) those in the folders where it lies.
fn disk_modules(sysroot: &Sysroot, release: &str) -> Reading<Vec<String>> {
    let is_ours = |path: &str| kmod::module_name(path) == Some("amdgpu");
    let mut found: Vec<String> = Vec::new();
    let mut has_tree = false;
    for root in driver::module_roots(release) {
        has_tree |= sysroot.exists(&root);
        if let Reading::Present { value, .. } =
            sysroot.text_up_to(&join(&root, "modules.dep"), 4 << 20)
        {
            let paths = value.lines().filter_map(|line| line.split_once(':'));
            found.extend(
                paths
                    .map(|(path, _)| path)
                    .filter(|path| is_ours(path))
                    .map(|path| join(&root, path)),
            );
        }
        for dir in ["kernel/drivers/gpu/drm/amd/amdgpu", "updates/dkms", "extra"] {
            let dir = join(&root, dir);
            let names = sysroot.list(&dir, is_ours);
            found.extend(names.items().iter().map(|name| join(&dir, name)));
        }
    }
    found.retain(|path| sysroot.exists(path));
    found.sort_unstable();
    found.dedup();
    if has_tree {
        Reading::present(found, format!("/lib/modules/{release}"))
    } else {
        Reading::absent(format!("/lib/modules/{release}"))
    }
}
