//! Which GPU is meant: a PCI id, an architecture or a name, and what the matrix has of it.
//!
//! A name means every product that has its words one after the other: `A100` the A100 of all forms, not `A1000`. Where
//! products of several architectures answer to it, each is told; which one is meant is not guessed.

use serde::Serialize;

use super::{capability, sm};
use crate::matrix::{Arch, Capability, Confidence, Generation, Gpu, Matrix};
use crate::target;

/// NVIDIA on the PCI bus.
const NVIDIA: u16 = 0x10de;
/// Words that say nothing of which GPU it is.
const FILLERS: &[&str] = &["nvidia", "corporation", "gpu", "graphics", "card"];
/// Brands that people leave out. `Quadro` is none of them: `RTX 6000` is another board without it.
const SILENT_BRANDS: &[&str] = &["geforce", "tesla"];

/// What a GPU's name, id or architecture was understood as.
#[derive(Clone, Debug, Serialize)]
pub struct Meant {
    /// As it was asked for.
    pub asked: String,
    /// What answers to it, one for each architecture; more than one: the name is ambiguous. None: unknown.
    pub kinds: Vec<GpuKind>,
    /// Other products with these words in their name.
    pub also: Vec<String>,
    /// Why nothing is known.
    pub unknown: Option<String>,
}

/// GPUs of one architecture.
#[derive(Clone, Debug, Serialize)]
pub struct GpuKind {
    /// A name for sentences.
    pub name: String,
    /// `8.6`, where known.
    #[serde(serialize_with = "capability_text")]
    pub capability: Option<Capability>,
    /// `Ampere`.
    pub generation: Option<&'static str>,
    /// Chip codes.
    pub chips: Vec<String>,
    /// Ids and product names.
    pub products: Vec<Product>,
    /// Whether it may use forward compatibility, where that is known by its name.
    pub compat_eligible: Option<bool>,
    /// Who says so.
    pub source: String,
    /// How far to trust the capability.
    pub confidence: Confidence,
    #[serde(skip)]
    pub(super) age: Option<Generation>,
    #[serde(skip)]
    pub(super) gpus: Vec<Gpu>,
}

/// A product.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Product {
    /// `10de:2b85`.
    pub id: String,
    /// `GeForce RTX 5090`.
    pub name: String,
}

#[expect(clippy::ref_option, reason = "the form that serde calls")]
fn capability_text<S: serde::Serializer>(
    value: &Option<Capability>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.serialize_str(&capability(*value)),
        None => serializer.serialize_none(),
    }
}

impl GpuKind {
    /// The row of its architecture.
    pub(super) fn arch<'m>(&self, matrix: &'m Matrix) -> Option<&'m Arch> {
        matrix.arch(self.capability?)
    }

    /// `sm_86`, else the generation.
    pub(super) fn code(&self) -> String {
        self.capability.map_or_else(
            || self.generation.unwrap_or("capability not known").to_owned(),
            sm,
        )
    }

    fn of_arch(matrix: &Matrix, arch: &Arch, name: String, eligible_by: &str) -> Self {
        Self {
            name,
            capability: Some(arch.capability),
            generation: arch.generation.map(Generation::name),
            chips: arch.chips.clone(),
            products: Vec::new(),
            compat_eligible: matrix.compat_eligible(eligible_by),
            source: arch.source.clone(),
            confidence: arch.confidence,
            age: arch.generation,
            gpus: Vec::new(),
        }
    }

    /// Products of one architecture; `asked` stands for them where they have several names.
    fn of_gpus(matrix: &Matrix, gpus: Vec<Gpu>, asked: &str) -> Option<Self> {
        let first = gpus.first()?;
        let eligible: Vec<_> = gpus
            .iter()
            .map(|gpu| matrix.compat_eligible(&gpu.name))
            .collect();
        let same = gpus.iter().all(|gpu| gpu.name == first.name);
        let all = |wanted| eligible.iter().all(|one| *one == wanted);
        let mut chips: Vec<_> = gpus.iter().map(|gpu| gpu.chip.clone()).collect();
        chips.dedup();
        Some(Self {
            name: if same {
                first.name.clone()
            } else {
                asked.to_owned()
            },
            capability: first.capability,
            generation: Some(first.generation.name()),
            chips,
            products: gpus
                .iter()
                .map(|gpu| Product {
                    id: format!("{NVIDIA:04x}:{:04x}", gpu.device),
                    name: gpu.name.clone(),
                })
                .collect(),
            // Of names that say nothing by themselves ("A100-PG506") the name that was asked for can.
            compat_eligible: if all(Some(false)) {
                Some(false)
            } else if eligible.contains(&Some(false)) {
                None
            } else if all(Some(true)) {
                Some(true)
            } else {
                matrix.compat_eligible(asked)
            },
            source: first.source.clone(),
            confidence: first.capability_confidence,
            age: Some(first.generation),
            gpus,
        })
    }
}

/// What a GPU that was asked for is.
pub(crate) fn meant(matrix: &Matrix, asked: &target::Gpu) -> Meant {
    let found = match asked {
        target::Gpu::Pci(vendor, device) => by_id(matrix, *vendor, *device),
        target::Gpu::Capability(capability) => by_capability(matrix, *capability),
        target::Gpu::Name(name) => by_name(matrix, name),
    };
    let (kinds, also, unknown) = match found {
        Ok((kinds, also)) => (kinds, also, None),
        Err(why) => (Vec::new(), Vec::new(), Some(why)),
    };
    Meant {
        asked: asked.to_string(),
        kinds,
        also,
        unknown,
    }
}

/// Whether a GPU that was asked for may use forward compatibility: that of the products that its name stands for, of which
/// only those of this capability count; `None` where that differs, or is not known.
pub(crate) fn compat_eligible(
    matrix: &Matrix,
    asked: &target::Gpu,
    wanted: Capability,
) -> Option<bool> {
    let meant = meant(matrix, asked);
    let kinds = || {
        let all = meant.kinds.iter();
        all.filter(|kind| kind.capability == Some(wanted))
    };
    let first = kinds().next()?.compat_eligible?;
    kinds()
        .all(|kind| kind.compat_eligible == Some(first))
        .then_some(first)
}

type Found = Result<(Vec<GpuKind>, Vec<String>), String>;

fn by_id(matrix: &Matrix, vendor: u16, device: u16) -> Found {
    if vendor != NVIDIA {
        return Err(format!(
            "vendor {vendor:04x} is not NVIDIA ({NVIDIA:04x}), and the matrix has NVIDIA's GPUs only"
        ));
    }
    if let Some(switch) = matrix.nvswitch(device) {
        return Err(format!("it is no GPU but an NVSwitch ({})", switch.name));
    }
    let gpu = matrix.gpu(device).ok_or_else(|| {
        format!(
            "the id is not in {}; what its neighbours are says nothing",
            matrix.pci_edition()
        )
    })?;
    let name = gpu.name.clone();
    Ok((
        GpuKind::of_gpus(matrix, vec![gpu], &name)
            .into_iter()
            .collect(),
        Vec::new(),
    ))
}

fn by_capability(matrix: &Matrix, cc: Capability) -> Found {
    let Some(arch) = matrix.arch(cc) else {
        return Err(format!(
            "the matrix has no architecture of compute capability {}",
            capability(cc)
        ));
    };
    let name = sm(arch.capability);
    Ok((vec![GpuKind::of_arch(matrix, arch, name, "")], Vec::new()))
}

fn by_name(matrix: &Matrix, name: &str) -> Found {
    let unknown = || {
        Err(format!(
            "no product in {} has these words in its name; a PCI id (10de:....) or an architecture (sm_..) is surer",
            matrix.pci_edition()
        ))
    };
    let all = words(name);
    let telling: Vec<_> = without(&all, |word| FILLERS.contains(&word));
    if telling.is_empty() {
        return unknown();
    }
    // NVML and shops add the memory and the form to a name, and brands that the list of ids does not have.
    let bare = without(&telling, is_form);
    let unbranded = without(&bare, |word| SILENT_BRANDS.contains(&word));
    for query in [telling, bare, unbranded] {
        let found = named(matrix, name, &query);
        if !found.0.is_empty() {
            return Ok(found);
        }
    }
    unknown()
}

/// `80gb`, `hbm3`, `sxm4`, `pcie`.
fn is_form(word: &str) -> bool {
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'e');
    word.strip_suffix("gb").is_some_and(number)
        || word.strip_prefix("hbm").is_some_and(number)
        || word.strip_prefix("sxm").is_some_and(number)
        || word == "pcie"
}

/// All that has these words in its name, one after the other.
fn named(matrix: &Matrix, asked: &str, query: &[String]) -> (Vec<GpuKind>, Vec<String>) {
    if query.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let mut exact = Vec::new();
    let mut others = Vec::new();
    for chip in matrix.chips() {
        let is_chip = [chip.chip.to_lowercase()] == *query;
        for gpu in chip.gpus() {
            let of_name = words(&gpu.name);
            let short = without(&of_name, |word| SILENT_BRANDS.contains(&word));
            if is_chip || of_name == query || short == query {
                exact.push(gpu);
            } else if holds(&of_name, query) {
                others.push(gpu);
            }
        }
    }
    let (gpus, also) = if exact.is_empty() {
        (others, Vec::new())
    } else {
        (exact, others)
    };
    if gpus.is_empty() {
        return (archs_named(matrix, asked, query), Vec::new());
    }
    let mut groups: Vec<Vec<Gpu>> = Vec::new();
    for gpu in gpus {
        let same = |group: &&mut Vec<Gpu>| {
            group.first().is_some_and(|first| {
                first.capability == gpu.capability
                    && (gpu.capability.is_some() || first.generation == gpu.generation)
            })
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(gpu),
            None => groups.push(vec![gpu]),
        }
    }
    groups.sort_by_key(|group| group.first().map(|gpu| (gpu.capability, gpu.generation)));
    let several = groups.len() > 1;
    let kinds = groups
        .into_iter()
        .filter_map(|group| GpuKind::of_gpus(matrix, group, asked))
        .map(|mut kind| {
            if several {
                kind.name = format!("{} ({})", kind.name, kind.chips.join(", "));
            }
            kind
        })
        .collect();
    let mut names: Vec<String> = also.into_iter().map(|gpu| gpu.name).collect();
    names.sort_unstable();
    names.dedup();
    (kinds, names)
}

/// Architectures by a product that is on no PCI bus, or by their name.
fn archs_named(matrix: &Matrix, asked: &str, query: &[String]) -> Vec<GpuKind> {
    let archs = || matrix.archs().iter();
    let by_product: Vec<_> = archs()
        .filter(|arch| arch.examples.iter().any(|name| holds(&words(name), query)))
        .collect();
    let by_name =
        || archs().filter(|arch| arch.name.as_ref().is_some_and(|name| words(name) == query));
    let found = if by_product.is_empty() {
        by_name().collect()
    } else {
        by_product
    };
    let several = found.len() > 1;
    found
        .into_iter()
        .map(|arch| {
            let name = if several {
                format!("{asked} ({})", sm(arch.capability))
            } else {
                asked.to_owned()
            };
            GpuKind::of_arch(matrix, arch, name, asked)
        })
        .collect()
}

/// The words of a name in lower case.
fn words(name: &str) -> Vec<String> {
    name.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

fn without(words: &[String], drop: impl Fn(&str) -> bool) -> Vec<String> {
    words.iter().filter(|word| !drop(word)).cloned().collect()
}

/// Whether the query's words stand in the name, one after the other.
fn holds(name: &[String], query: &[String]) -> bool {
    name.windows(query.len()).any(|part| part == query)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line: what is asked, the name that is told, capabilities, and whether forward compatibility is open to it.
    #[test]
    fn names_as_people_and_libraries_write_them() {
        let matrix = Matrix::bundled();
        for (asked, name, capabilities, eligible) in [
            ("A100", "A100", &["8.0"][..], Some(true)),
            (
                "NVIDIA A100-SXM4-80GB",
                "A100 SXM4 80GB",
                &["8.0"],
                Some(true),
            ),
            ("NVIDIA H100 80GB HBM3", "H100", &["9.0"], Some(true)),
            ("L40S", "L40S", &["8.9"], Some(true)),
            ("Tesla T4", "Tesla T4", &["7.5"], Some(true)),
            ("t4", "Tesla T4", &["7.5"], Some(true)),
            ("RTX 5090", "GeForce RTX 5090", &["12.0"], Some(false)),
            (
                "NVIDIA GeForce RTX 4090",
                "GeForce RTX 4090",
                &["8.9"],
                Some(false),
            ),
            ("GTX 1080", "GeForce GTX 1080", &["6.1"], Some(false)),
            ("Quadro RTX 6000", "Quadro RTX 6000", &["7.5"], None),
            ("10de:2b85", "GeForce RTX 5090", &["12.0"], Some(false)),
            ("ga102", "ga102", &["8.6"], None),
            ("sm_90a", "sm_90", &["9.0"], None),
            ("8.9", "sm_89", &["8.9"], None),
            ("Jetson Orin", "Jetson Orin", &["8.7"], None),
            ("Hopper", "Hopper", &["9.0"], None),
        ] {
            let meant = meant(&matrix, &target::gpu(asked).unwrap());
            let got: Vec<_> = meant
                .kinds
                .iter()
                .map(|kind| capability(kind.capability.unwrap()))
                .collect();
            assert_eq!(got, capabilities, "{asked}: {:?}", meant.kinds);
            let kind = meant.kinds.first().unwrap();
            assert_eq!(
                (kind.name.as_str(), kind.compat_eligible),
                (name, eligible),
                "{asked}"
            );
        }
    }

    #[test]
    fn what_is_not_in_the_tables_is_unknown_and_several_are_several() {
        let matrix = Matrix::bundled();
        let ask = |text: &str| meant(&matrix, &target::gpu(text).unwrap());
        for (asked, why) in [
            ("RTX 9090", "no product"),
            ("NVIDIA", "no product"),
            ("A10", ""),
            ("10de:ffff", "not in pci.ids"),
            ("10de:1af1", "NVSwitch"),
            ("1002:744c", "not NVIDIA"),
            ("sm_131", "13.1"),
        ] {
            let meant = ask(asked);
            assert_eq!(meant.kinds.is_empty(), !why.is_empty(), "{asked}");
            let told = meant.unknown.unwrap_or_default();
            assert!(told.contains(why), "{asked}: {told}");
        }
        for (asked, capabilities) in [
            ("GT 730", &[(2, 1), (3, 5)][..]),
            ("RTX 6000", &[(7, 5), (8, 9)]),
        ] {
            let got: Vec<_> = ask(asked)
                .kinds
                .iter()
                .filter_map(|kind| kind.capability)
                .collect();
            assert!(
                capabilities.iter().all(|cc| got.contains(cc)),
                "{asked}: {got:?}"
            );
        }
        let names: Vec<_> = ask("A100")
            .kinds
            .into_iter()
            .flat_map(|kind| kind.products)
            .map(|p| p.name)
            .collect();
        assert!(
            names.iter().all(|name| !name.contains("A1000")),
            "{names:?}"
        );
    }
}
