//! Questions that rules ask of Intel's stack. Pure look-ups.

use crate::facts::{DeviceNode, PciDevice, Vendor};
use crate::read::icd::stem;
use crate::rules::Ctx;
use crate::rules::drm::Wants;
use crate::sysroot::file_name;

/// The kernel drivers of Intel's GPUs: the old one, and the one for Lunar Lake, Battlemage and later.
pub(super) const KERNEL_DRIVERS: [&str; 2] = ["i915", "xe"];

/// The name by which programs need Level Zero.
const LEVEL_ZERO: &str = "libze_loader";

impl Ctx<'_> {
    /// Intel's GPUs that `i915` or `xe` holds.
    pub(in crate::rules) fn driven_intel_gpus(&self) -> Vec<&PciDevice> {
        self.gpus_of(Vendor::Intel)
            .filter(|gpu| intel_driver_of(gpu).is_some())
            .collect()
    }

    /// The render nodes of Intel's GPUs, those that are there.
    pub(in crate::rules) fn intel_nodes(&self) -> Vec<&DeviceNode> {
        let gpus = self.driven_intel_gpus().into_iter();
        gpus.filter_map(|gpu| self.render_of(gpu)?.node.value())
            .collect()
    }

    /// What is built for Intel's GPUs: (1) the program or process that was named uses Level Zero, (2) the environment holds a
    /// framework that is for them.
    pub(in crate::rules) fn wants_xpu(&self) -> Option<Wants> {
        let own = |what: String, source: &str| Wants {
            what,
            source: source.to_owned(),
            own: true,
        };
        let application = &self.facts.application;
        let consumer = &self.facts.consumer.what;
        if let Some(program) = application.program.value()
            && program.needed.iter().any(|n| stem(&n.soname) == LEVEL_ZERO)
        {
            return Some(own(
                format!("{consumer}, which needs {LEVEL_ZERO}"),
                &program.path,
            ));
        }
        if let Some(process) = application.process.value()
            && let Some(mapped) = process
                .mapped
                .items()
                .iter()
                .find(|m| stem(&m.path) == LEVEL_ZERO)
        {
            return Some(own(
                format!("{consumer}, which uses {LEVEL_ZERO}"),
                &mapped.path,
            ));
        }
        let torch = self.framework("torch")?;
        let named = |version: &&String| version.contains("+xpu");
        match (torch.version.value().filter(named), &torch.xpu) {
            (Some(version), xpu) => {
                let source = xpu.value().map_or(torch.version.source(), |_| xpu.source());
                Some(own(format!("torch {version}"), source))
            }
            (None, xpu) => {
                xpu.value()?;
                let version = torch.version.value().map_or("", String::as_str);
                let what = format!("torch {version} for Intel GPUs");
                Some(own(what, xpu.source()))
            }
        }
    }

    /// Whether something is built for Intel's GPUs, and the node of one is here.
    pub fn xpu_runs(&self) -> bool {
        self.wants_xpu().is_some() && !self.intel_nodes().is_empty()
    }

    /// What runs on Intel's GPUs, in words: `torch 2.8.0+xpu`.
    pub fn xpu_in_words(&self) -> Option<String> {
        self.wants_xpu().map(|wants| wants.what)
    }

    /// The kernel driver of Intel's GPUs in words, where what runs is for them or they are all that is here.
    pub fn intel_driver_in_words(&self) -> Option<String> {
        if self.vendor() != Some(Vendor::Intel) {
            return None;
        }
        let mut names: Vec<&str> = self
            .driven_intel_gpus()
            .into_iter()
            .filter_map(intel_driver_of)
            .collect();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| format!("{} of the kernel", names.join(" and ")))
    }

    /// Level Zero as the consumer gets it, in words: `Level Zero 1.3.24595`, by the name of its driver's file.
    pub fn level_zero_in_words(&self) -> Option<String> {
        if self.vendor() != Some(Vendor::Intel) {
            return None;
        }
        let driver = self.facts.intel.level_zero_driver.value()?;
        let (_, version) = file_name(&driver.real_path).split_once(".so.")?;
        Some(if version.contains('.') {
            format!("Level Zero {version}")
        } else {
            "Level Zero".to_owned()
        })
    }
}

/// The kernel driver of Intel's that holds a GPU.
pub(super) fn intel_driver_of(gpu: &PciDevice) -> Option<&str> {
    let holder = gpu.driver.value()?;
    KERNEL_DRIVERS
        .into_iter()
        .find(|name| *name == holder.as_str())
}
