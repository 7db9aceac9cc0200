//! GPUs: from a PCI device id to chip, name and capability, and from a capability to drivers and toolkits.
//!
//! Ids are taken one by one: one that is not in the table is unknown, never its neighbour.

use std::collections::BTreeSet;

use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::rows::{capability, optional_capability, row};
use super::{Capability, Confidence, GPUS, Matrix, table};
use crate::version::Version;

/// A generation of GPUs, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Generation {
    /// Before the first one that CUDA ran on.
    #[serde(rename = "older")]
    Older,
    /// 2006: G80 to GT218, capabilities 1.x.
    Tesla,
    /// 2.x.
    Fermi,
    /// 3.x.
    Kepler,
    /// 5.x.
    Maxwell,
    /// 6.x.
    Pascal,
    /// 7.0, 7.2.
    Volta,
    /// 7.5.
    Turing,
    /// 8.0 to 8.7.
    Ampere,
    /// 8.9.
    #[serde(rename = "Ada Lovelace")]
    Ada,
    /// 9.0.
    Hopper,
    /// 10.0, 10.3, 11.0, 12.x.
    Blackwell,
    /// 10.7.
    Rubin,
}

impl Generation {
    /// The name that NVIDIA gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Older => "older than Tesla",
            Self::Tesla => "Tesla",
            Self::Fermi => "Fermi",
            Self::Kepler => "Kepler",
            Self::Maxwell => "Maxwell",
            Self::Pascal => "Pascal",
            Self::Volta => "Volta",
            Self::Turing => "Turing",
            Self::Ampere => "Ampere",
            Self::Ada => "Ada Lovelace",
            Self::Hopper => "Hopper",
            Self::Blackwell => "Blackwell",
            Self::Rubin => "Rubin",
        }
    }
}

/// Whether NVIDIA's open kernel modules drive an architecture, as the table has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OpenModuleWord {
    Required,
    Possible,
    Impossible,
}

/// Whether NVIDIA's open kernel modules drive a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenModule {
    /// Only they do.
    Required {
        /// How far to trust that.
        confidence: Confidence,
    },
    /// They do, and so do the proprietary ones of a branch that has them.
    Possible,
    /// They do not: only the proprietary ones do.
    Impossible,
}

/// An architecture, by compute capability.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arch {
    /// (8, 6).
    #[serde(with = "capability")]
    pub capability: Capability,
    /// `Ampere`, `Volta Tegra`; `None` where no product was identified.
    pub name: Option<String>,
    /// The generation, likewise.
    pub generation: Option<Generation>,
    /// Products.
    pub examples: Vec<String>,
    /// Chip codes.
    pub chips: Vec<String>,
    /// Where weaker than the row.
    pub chips_confidence: Option<Confidence>,
    /// The first toolkit whose compiler builds for it.
    pub first_toolkit: Version,
    /// The last one; `None` with [`Arch::in_newest_toolkit`].
    pub last_toolkit: Option<Version>,
    /// The newest toolkit still builds for it.
    #[serde(default)]
    pub in_newest_toolkit: bool,
    /// The first driver branch that drives it, where known.
    pub first_driver_branch: Option<u32>,
    /// The last one, where it is no longer driven.
    pub last_driver_branch: Option<u32>,
    /// The newest branch drives it.
    #[serde(default)]
    pub supported: bool,
    /// The GPU of a Jetson: its driver comes with L4T, so without branches here they say nothing.
    #[serde(default)]
    pub tegra: bool,
    /// No product is known, so nothing is known of its drivers.
    #[serde(default)]
    pub driver_unknown: bool,
    #[serde(rename = "open_module")]
    pub(super) open_module_word: Option<OpenModuleWord>,
    /// Where weaker or stronger than the row.
    pub open_module_confidence: Option<Confidence>,
    /// Products of the architecture that need the open modules, although others of it do not: words of their names.
    #[serde(default)]
    pub open_module_products: Vec<String>,
    /// The capability that the same chip has under newer toolkits.
    #[serde(with = "optional_capability", default)]
    pub renamed_to: Option<Capability>,
    /// What else is worth knowing.
    pub note: Option<String>,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(Arch, |arch| format!(
    "{}.{}",
    arch.capability.0, arch.capability.1
));

impl Arch {
    /// Whether the open kernel modules drive it; `None` where that is not known or, on a Jetson, no question.
    pub fn open_module(&self) -> Option<OpenModule> {
        let confidence = self.open_module_confidence.unwrap_or(self.confidence);
        self.open_module_word.map(|word| match word {
            OpenModuleWord::Required => OpenModule::Required { confidence },
            OpenModuleWord::Possible => OpenModule::Possible,
            OpenModuleWord::Impossible => OpenModule::Impossible,
        })
    }
}

/// A chip and its PCI device ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chip {
    /// `GA102`.
    pub chip: String,
    /// Its generation.
    pub generation: Generation,
    /// Where weaker than the row.
    pub generation_confidence: Option<Confidence>,
    /// Its compute capability, where known.
    #[serde(with = "optional_capability", default)]
    pub capability: Option<Capability>,
    /// Where weaker than the row.
    pub capability_confidence: Option<Confidence>,
    /// Where ids and names come from.
    pub source: String,
    /// How far to trust the ids.
    pub confidence: Confidence,
    /// Device id (four hexadecimal digits) and product name; the chip code again where no product is named.
    pub ids: Vec<(String, String)>,
}
row!(Chip, |chip| chip.chip);

/// A switch between data-center GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvSwitch {
    /// Device id, four hexadecimal digits.
    pub id: String,
    /// `A100 NVSwitch`.
    pub name: String,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(NvSwitch, |switch| switch.id);

/// A GPU by its PCI device id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// PCI device id (vendor 10de).
    pub device: u16,
    /// Product name, `GeForce RTX 3090`; the chip code where no product is named.
    pub name: String,
    /// Chip code, `GA102`.
    pub chip: String,
    /// Compute capability, where known.
    pub capability: Option<Capability>,
    /// How far to trust the capability.
    pub capability_confidence: Confidence,
    /// `Ampere`.
    pub arch_name: Option<String>,
    /// The generation, to compare.
    pub generation: Generation,
    /// Who says so.
    pub source: String,
    /// How far to trust id, name and chip.
    pub confidence: Confidence,
}

impl Chip {
    /// Every product of it.
    pub fn gpus(&self) -> impl Iterator<Item = Gpu> {
        self.ids.iter().filter_map(|(id, name)| self.gpu(id, name))
    }

    fn gpu(&self, id: &str, name: &str) -> Option<Gpu> {
        Some(Gpu {
            device: u16::from_str_radix(id, 16).ok()?,
            name: name.to_owned(),
            chip: self.chip.clone(),
            capability: self.capability,
            capability_confidence: self.capability_confidence.unwrap_or(self.confidence),
            arch_name: Some(self.generation.name().to_owned()),
            generation: self.generation,
            source: self.source.clone(),
            confidence: self.confidence,
        })
    }
}

/// The text of the one row that holds `id`, cut down to that id; `None` where there is none.
///
/// Each id stands on a line of its own, `    ["2204", "GeForce RTX 3090"],`, so that it is found without parsing the
/// table: parsing all of it costs a hundred times as much.
fn row_of_id(text: &str, id: &str) -> Option<String> {
    let at = memmem::find(text.as_bytes(), format!("\n    [\"{id}\", ").as_bytes())? + 1;
    let line = text.get(at..)?.lines().next()?;
    let before = text.get(..at)?;
    let row = before.get(memmem::rfind(before.as_bytes(), b"[[chip]]")?..)?;
    let head = row.get(..memmem::find(row.as_bytes(), b"ids = [")?)?;
    Some(format!("{head}ids = [{line}]\n"))
}

impl Matrix {
    /// The GPU of a PCI device id (vendor 10de). `None`: not in the table, which is not the same as no GPU.
    pub fn gpu(&self, device_id: u16) -> Option<Gpu> {
        if let Ok(mut seen) = self.gpus_seen.lock() {
            return seen
                .entry(device_id)
                .or_insert_with(|| self.look_up(device_id))
                .clone();
        }
        self.look_up(device_id)
    }

    fn look_up(&self, device_id: u16) -> Option<Gpu> {
        let id = format!("{device_id:04x}");
        if self.chips_added {
            let mut chips = self.chips().iter();
            return chips.find_map(|chip| {
                let (id, name) = chip.ids.iter().find(|(known, _)| *known == id)?;
                chip.gpu(id, name)
            });
        }
        let row = row_of_id(self.text(GPUS), &id)?;
        let chip: Chip = table::rows(&row, "chip").ok()?.pop()?;
        let (id, name) = chip.ids.first()?;
        chip.gpu(id, name)
    }

    /// The ids that stand on a line of their own, as [`Matrix::gpu`] needs them to.
    pub(super) fn ids_on_lines(&self) -> BTreeSet<&str> {
        if self.chips_added {
            let chips = self.chips().iter();
            return chips
                .flat_map(|chip| chip.ids.iter().map(|(id, _)| id.as_str()))
                .collect();
        }
        let lines = self.text(GPUS).lines();
        lines
            .filter_map(|line| line.strip_prefix("    [\"")?.split_once("\", "))
            .map(|(id, _)| id)
            .collect()
    }

    /// All GPUs whose product name or chip code contains `text`, without regard to case.
    pub fn gpus_named(&self, text: &str) -> Vec<Gpu> {
        let text = text.trim().to_lowercase();
        let named = |chip: &Chip, name: &str| {
            name.to_lowercase().contains(&text) || chip.chip.to_lowercase() == text
        };
        let chips = self.chips().iter();
        chips
            .flat_map(|chip| {
                chip.ids
                    .iter()
                    .filter(|(_, name)| named(chip, name))
                    .filter_map(|(id, name)| chip.gpu(id, name))
            })
            .collect()
    }

    /// The `NVSwitch` of a PCI device id.
    pub fn nvswitch(&self, device_id: u16) -> Option<&NvSwitch> {
        let id = format!("{device_id:04x}");
        self.nvswitches().iter().find(|row| row.id == id)
    }

    /// The architecture of a compute capability.
    pub fn arch(&self, capability: Capability) -> Option<&Arch> {
        self.archs().iter().find(|row| row.capability == capability)
    }

    /// Whether the open kernel modules drive this GPU. Grace Hopper boards need them although Hopper as such does not.
    pub fn open_module_of(&self, gpu: &Gpu) -> Option<OpenModule> {
        match self.arch(gpu.capability?)?.open_module()? {
            OpenModule::Possible if gpu.name.contains("GH200") => Some(OpenModule::Required {
                confidence: Confidence::Secondary,
            }),
            other => Some(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_one_id_up_gives_what_the_whole_table_gives() {
        let matrix = Matrix::bundled();
        let mut seen = 0;
        for chip in matrix.chips() {
            for (id, name) in &chip.ids {
                let device = u16::from_str_radix(id, 16).unwrap();
                assert_eq!(matrix.gpu(device), chip.gpu(id, name), "{id}");
                seen += 1;
            }
        }
        assert!(seen > 1400, "{seen}");
    }
}
