//! Questions that rules ask of AMD's stack. Pure look-ups.

use crate::facts::{
    ConsumerKind, DeviceNode, KfdNode, PciDevice, ReachedBy, Reading, RenderNode, RocmLibrary,
    Vendor,
};
use crate::read::icd::stem;
use crate::rules::Ctx;
use crate::rules::drm::Wants;
use crate::version::Version;

/// The two lowest libraries of `ROCm`, which all of it needs.
pub(super) const LOWEST: [&str; 2] = ["libamdhip64", "libhsa-runtime64"];

impl Ctx<'_> {
    /// AMD's GPUs on the PCI bus, without those that are kept for a virtual machine.
    pub(in crate::rules) fn amd_gpus(&self) -> impl Iterator<Item = &PciDevice> {
        self.gpus_of(Vendor::Amd)
    }

    /// The GPUs of KFD's topology, in the order in which HIP counts them.
    pub(in crate::rules) fn kfd_gpus(&self) -> Vec<&KfdNode> {
        let nodes = self.facts.amd.topology.items().iter();
        nodes.filter(|node| node.is_gpu()).collect()
    }

    /// A GPU's name for a sentence: libdrm's, else its PCI id; with its instruction set where KFD tells.
    pub fn amd_name(&self, device: &PciDevice) -> String {
        let name = self.facts.amd.names.get(&device.address).cloned();
        let name = name.unwrap_or_else(|| format!("AMD GPU {}", device.id()));
        match self.kfd_node_of(device).and_then(KfdNode::target) {
            Some(target) => format!("{name} ({target})"),
            None => name,
        }
    }

    /// KFD's node of a device.
    pub(in crate::rules) fn kfd_node_of(&self, device: &PciDevice) -> Option<&KfdNode> {
        let mut nodes = self.kfd_gpus().into_iter();
        nodes.find(|node| node.address().as_ref() == Some(&device.address))
    }

    /// The device of a node of KFD's.
    pub(in crate::rules) fn device_of(&self, node: &KfdNode) -> Option<&PciDevice> {
        let address = node.address()?;
        let mut pci = self.facts.hardware.pci.items().iter();
        pci.find(|d| d.address == address)
    }

    /// The name of a GPU of KFD's: its product and instruction set.
    pub(in crate::rules) fn kfd_name(&self, node: &KfdNode) -> String {
        match (self.device_of(node), node.target()) {
            (Some(device), _) => self.amd_name(device),
            (None, Some(target)) => format!("AMD GPU ({target})"),
            (None, None) => format!("GPU {} of KFD", node.node),
        }
    }

    /// Whether `amdgpu` drives one of AMD's GPUs here, or is loaded.
    pub fn amdgpu_loaded(&self) -> Option<bool> {
        let bound = |d: &PciDevice| d.driver.value().is_some_and(|name| name == "amdgpu");
        if self.amd_gpus().any(bound) || self.facts.amd.topology.is_present() {
            return Some(true);
        }
        self.facts.driver.has_module("amdgpu")
    }

    /// The copies of a library of `ROCm` that the consumer gets: of a process or program its own, of an environment what it
    /// brings, else what the loader finds.
    pub(in crate::rules) fn rocm_libraries(&self, name: &str) -> Vec<&RocmLibrary> {
        let all = self.facts.amd.libraries.items();
        let by = |by: ReachedBy| -> Vec<&RocmLibrary> {
            let copies = all.iter().filter(|copy| copy.name == name);
            copies
                .filter(|copy| copy.reached_by.contains(&by))
                .collect()
        };
        let own = [
            ReachedBy::Process,
            ReachedBy::Program,
            ReachedBy::Environment,
        ];
        let found = own.into_iter().map(by).find(|copies| !copies.is_empty());
        found.unwrap_or_else(|| {
            let copies = all.iter().filter(|copy| copy.name == name);
            copies.filter(|copy| copy.is_reached()).collect()
        })
    }

    /// What makes `ROCm` matter: (1) the program or process that was named uses it, (2) the environment holds a framework that
    /// is built for it, (3) a release of it is on the loader's path.
    pub(in crate::rules) fn wants_rocm(&self) -> Option<Wants> {
        let own = |what: String, source: &str| Wants {
            what,
            source: source.to_owned(),
            own: true,
        };
        let libraries = self.facts.amd.libraries.items();
        let used = libraries.iter().find(|copy| {
            let by = &copy.reached_by;
            by.contains(&ReachedBy::Program) || by.contains(&ReachedBy::Process)
        });
        if let Some(copy) = used {
            let what = format!("{}, which uses {}", self.facts.consumer.what, copy.name);
            return Some(own(what, &copy.path));
        }
        if let Some(program) = self.facts.application.program.value()
            && let Some(needed) = program
                .needed
                .iter()
                .find(|needed| LOWEST.contains(&stem(&needed.soname)))
        {
            let consumer = &self.facts.consumer.what;
            let what = format!("{consumer}, which needs {}", needed.soname);
            return Some(own(what, &program.path));
        }
        let torch = self.framework("torch");
        if let Some((torch, hip)) = torch.and_then(|torch| Some((torch, torch.hip.value()?))) {
            let what = match torch.version.value() {
                Some(version) if version.contains("rocm") => format!("torch {version}"),
                Some(version) => format!("torch {version} for ROCm {hip}"),
                None => format!("torch for ROCm {hip}"),
            };
            return Some(own(what, torch.hip.source()));
        }
        let distributions = self.facts.python.distributions.items().iter();
        let is_for_rocm = |name: &str| {
            let mut known = self.matrix.rocm_distributions().iter();
            known.any(|row| name.starts_with(&row.name))
        };
        let mut distributions = distributions.filter(|d| is_for_rocm(&d.name));
        if let Some(found) = distributions.next() {
            let what = format!("{} {}", found.name, found.version);
            return Some(own(what, &found.metadata));
        }
        if self.expect_gpu && self.is_of_alone(Vendor::Amd) {
            return Some(Wants {
                what: "--expect-gpu".to_owned(),
                source: "the command line".to_owned(),
                own: false,
            });
        }
        // What another consumer would get says nothing of this one.
        if self.facts.consumer.kind == ConsumerKind::Process {
            return None;
        }
        let installed = libraries
            .iter()
            .filter(|copy| LOWEST.contains(&copy.name.as_str()))
            .find(|copy| copy.is_reached());
        let installed = installed.map(|copy| {
            let what = match self.rocm_release() {
                Some((version, _)) => format!("ROCm {version}"),
                None => copy.name.clone(),
            };
            (what, copy.path.clone())
        });
        let (what, source) = installed.or_else(|| {
            let release = self.facts.amd.releases.items().first()?;
            let what = match release.version.value() {
                Some(version) => format!("ROCm {version}"),
                None => "ROCm".to_owned(),
            };
            Some((what, release.path.clone()))
        })?;
        Some(Wants {
            what,
            source,
            own: false,
        })
    }

    /// The release of `ROCm` that the consumer gets: (1) of its libhsa-runtime64 or libamdhip64, (2) of the torch that brings
    /// them, (3) the only one on disk.
    pub(in crate::rules) fn rocm_release(&self) -> Option<(Version, String)> {
        for name in ["libamdhip64", "libhsa-runtime64"] {
            let copies = self.rocm_libraries(name);
            let told = copies.iter().find_map(|copy| {
                let version = copy.release.value()?;
                Some((version.clone(), copy.real_path.clone()))
            });
            if told.is_some() {
                return told;
            }
        }
        let torch = self.framework("torch");
        let hip = torch.and_then(|torch| Some((torch.hip.value()?, torch.hip.source())));
        if let Some((version, source)) = hip {
            return Some((version.clone(), source.to_owned()));
        }
        match self.facts.amd.releases.items() {
            [one] => Some((one.version.value()?.clone(), one.path.clone())),
            _ => None,
        }
    }

    /// The render node of a GPU.
    pub(in crate::rules) fn render_of(&self, device: &PciDevice) -> Option<&RenderNode> {
        let by_kfd = self.kfd_node_of(device).and_then(KfdNode::render_node);
        let mut render = self.facts.drm.render.items().iter();
        render.find(|node| {
            node.address.value() == Some(&device.address) || by_kfd == Some(node.path())
        })
    }

    /// The nodes in `/dev` that computing on AMD's GPUs needs, those that are there: `/dev/kfd` and a render node a GPU.
    pub(in crate::rules) fn amd_nodes(&self) -> Vec<&DeviceNode> {
        let render = self
            .amd_gpus()
            .filter_map(|gpu| self.render_of(gpu)?.node.value());
        self.facts
            .amd
            .kfd
            .value()
            .into_iter()
            .chain(render)
            .collect()
    }

    /// The driver of AMD's GPUs in words: `amdgpu 6.12.12`, `amdgpu of the kernel`.
    pub fn amdgpu_in_words(&self) -> Option<String> {
        if self.amdgpu_loaded() != Some(true) || self.amd_gpus().next().is_none() {
            return None;
        }
        Some(match &self.facts.amd.module_version {
            Reading::Present { value, .. } => format!("amdgpu {value}"),
            _ => "amdgpu of the kernel".to_owned(),
        })
    }

    /// Whether a GPU of AMD is here.
    pub fn amd_is_here(&self) -> bool {
        let mut pci = self.facts.hardware.pci.items().iter();
        pci.any(PciDevice::is_amd_gpu)
    }

    /// What runs on AMD's GPUs, in words: `torch 2.8.0+rocm6.4`, `ROCm 6.4.1`.
    pub fn rocm_in_words(&self) -> Option<String> {
        self.wants_rocm().map(|wants| wants.what)
    }

    /// rocBLAS as the consumer gets it, in words: `rocBLAS 4.4`.
    pub fn rocblas_in_words(&self) -> Vec<String> {
        let copies = self.rocm_libraries("librocblas");
        let version = |copy: &&RocmLibrary| copy.version.value().map(Version::major_minor);
        copies
            .first()
            .map_or_else(Vec::new, |copy| match version(copy) {
                Some(version) => vec![format!("rocBLAS {version}")],
                None => vec!["rocBLAS".to_owned()],
            })
    }

    /// `ROCm` as the consumer gets it, in words: `HIP 6.4`, `HIP of ROCm 6.4`.
    pub fn hip_in_words(&self) -> Option<String> {
        let answered = self.facts.vendor.hip.value();
        let answered = answered.and_then(|a| a.number("hipRuntimeGetVersion"));
        if let Some(version) = answered.and_then(hip_version) {
            return Some(format!("HIP {version}"));
        }
        let copy = *self.rocm_libraries("libamdhip64").first()?;
        let version = copy.version.value().map(Version::major_minor);
        Some(match (version, self.rocm_release()) {
            (Some(version), _) => format!("HIP {version}"),
            (None, Some((release, _))) => format!("HIP of ROCm {}", release.major_minor()),
            (None, None) => "HIP".to_owned(),
        })
    }
}

/// A version as HIP's calls give it: 50221153 is 5.2.21153 (`hip_version.h`: major * 10 000 000 + minor * 100 000 + patch).
pub(in crate::rules) fn hip_version(number: i64) -> Option<Version> {
    let (major, rest) = (number / 10_000_000, number % 10_000_000);
    (number > 0)
        .then(|| format!("{major}.{}.{}", rest / 100_000, rest % 100_000))
        .and_then(|text| Version::parse(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_as_hip_counts() {
        assert_eq!(hip_version(50_221_153).unwrap().to_string(), "5.2.21153");
        assert_eq!(hip_version(0), None);
    }
}
