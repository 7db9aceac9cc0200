//! The frameworks of the consumer's environment: versions as their own files tell them, the CUDA that they were built
//! for, the device code that they hold, and what their GPU library needs.
//!
//! Places are known (`known`), so no folder is walked: of a library of 500 MB some pages are read. Nothing is loaded and
//! no Python is run.

mod build;
mod known;
mod needs;
mod own;
mod programs;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use build::by_name as cuda_by_name;
pub(super) use known::is_known;
use known::{KNOWN, Known};

use crate::facts::{
    Consumer, DamagedLibrary, DeviceCode, Facts, Framework, FrameworkFacts, GfxCode, Installed,
    KfdNode, PciDevice, PtxCode, Reading, VendorFacts,
};
use crate::gfx::GfxTarget;
use crate::probe::loader::{Loader, kind_of};
use crate::probe::search_path::Site;
use crate::read::ReadAt;
use crate::read::elf::{self, Shape};
use crate::read::fatbin::{self, Held, Suffix};
use crate::read::offload::{self, Bundles};
use crate::sysroot::{Sysroot, file_name, join, parent};
use crate::version::Version;

/// Containers of device code that are looked into at least.
const FIRST_CONTAINERS: u64 = 32;
/// Parts that a requirement may ask for, as far as a rule looks at it.
const PARTS: &[&str] = &[
    "torch",
    "torchvision",
    "torchaudio",
    "triton",
    "jax",
    "jaxlib",
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
    "onnxruntime",
    "nvidia-ml-py",
    "pynvml",
];

/// The frameworks of the consumer. The GPUs' capabilities, where a library told them, say how far device code is read.
pub(super) fn probe(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    env: &BTreeMap<String, String>,
    sites: &[Site],
    facts: &Facts,
) -> FrameworkFacts {
    let consumer = &facts.consumer;
    let (installed, source): (&[Installed], &str) = match &facts.python.distributions {
        Reading::Present { value, .. } => (value, "records of distributions, files of frameworks"),
        Reading::Absent { source } => (&[], source),
        Reading::Unreadable { reason } => {
            return FrameworkFacts {
                frameworks: Reading::unreadable(reason.as_str()),
            };
        }
    };
    let capabilities = capabilities(&facts.vendor);
    let has_gpu = facts
        .hardware
        .pci
        .items()
        .iter()
        .any(PciDevice::is_nvidia_gpu)
        || facts.system.tegra.is_present();
    let mut look = Look {
        sysroot,
        loader,
        env,
        consumer,
        sites,
        has_gpu,
        untold: capabilities.is_empty() && has_gpu,
        capabilities,
        targets: targets(&facts.amd.topology, env),
        folders: None,
        torch: None,
    };
    let mut found: Vec<Framework> = Vec::new();
    for known in KNOWN {
        let mut places: Vec<(&str, &str)> = Vec::new();
        for record in installed.iter().filter(|d| known.is_called(&d.name)) {
            let site = look.site_of(record);
            // What Python finds first under a name counts; conda's record and the dist-info beside it are the same part.
            let is_same = places
                .iter()
                .any(|(name, at)| *name == record.name || record.is_conda_package() && *at == site);
            if !is_same {
                places.push((&record.name, site));
                found.push(look.framework(known, site, Some(record)));
            }
        }
        if places.is_empty()
            && let Some(site) = consumer
                .site_packages
                .iter()
                .find(|site| !known.marker.is_empty() && sysroot.exists(&join(site, known.marker)))
        {
            found.push(look.framework(known, site, None));
        }
        if known.name == "torch" {
            look.torch = found.first().cloned();
        }
    }
    found.extend(look.programs());
    FrameworkFacts {
        frameworks: Reading::present(found, source),
    }
}

/// Compute capabilities that a library of the driver told, each once.
fn capabilities(vendor: &VendorFacts) -> Vec<(u32, u32)> {
    let mut all: Vec<(u32, u32)> = [
        &vendor.libcuda,
        &vendor.libcuda_unhidden,
        &vendor.libnvidia_ml,
    ]
    .into_iter()
    .filter_map(Reading::value)
    .flat_map(|answers| answers.devices.iter().filter_map(|d| d.capability))
    .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The instruction sets that AMD's GPUs here have, or pass for.
fn targets(topology: &Reading<Vec<KfdNode>>, env: &BTreeMap<String, String>) -> Vec<String> {
    let told = env.get("HSA_OVERRIDE_GFX_VERSION");
    let told = told.and_then(|text| GfxTarget::from_dotted(text));
    let own = topology.items().iter().filter_map(KfdNode::target);
    let all: BTreeSet<String> = own.map(|own| told.unwrap_or(own).to_string()).collect();
    all.into_iter().collect()
}

/// What one look at an environment goes by.
pub(super) struct Look<'a> {
    sysroot: &'a Sysroot,
    loader: &'a Loader<'a>,
    /// Of the process that would run them.
    env: &'a BTreeMap<String, String>,
    consumer: &'a Consumer,
    /// The folders of its search path, as they were listed.
    sites: &'a [Site],
    /// Whether an NVIDIA GPU is here.
    has_gpu: bool,
    /// Of the GPUs that are here.
    capabilities: Vec<(u32, u32)>,
    /// The instruction sets of AMD's GPUs that are here.
    targets: Vec<String>,
    /// A GPU is here, and nobody told its capability: all of the code may matter then.
    untold: bool,
    /// Folders of the environment that hold CUDA libraries, and the names in them; listed when first asked for.
    folders: Option<Vec<(String, Vec<String>)>>,
    /// The torch that extensions have to fit.
    torch: Option<Framework>,
}

impl<'a> Look<'a> {
    /// The site-packages folder that a distribution is about: conda's records are about the whole environment.
    fn site_of(&self, record: &'a Installed) -> &'a str {
        if !record.is_conda_package() {
            return &record.site;
        }
        let of_prefix = self
            .consumer
            .site_packages
            .iter()
            .find(|site| site.starts_with(&record.site));
        of_prefix.map_or(&record.site, String::as_str)
    }

    fn framework(&mut self, known: &Known, site: &str, record: Option<&Installed>) -> Framework {
        let mut found = Framework {
            name: known.name.to_owned(),
            site: site.to_owned(),
            distribution: match record {
                Some(record) => Reading::present(record.name.clone(), record.metadata.as_str()),
                None => Reading::absent(join(site, "*.dist-info")),
            },
            installer: match record {
                Some(record) => record.installer.clone(),
                None => Reading::absent(join(site, "*.dist-info")),
            },
            version: match record {
                Some(record) => Reading::present(record.version.clone(), record.metadata.as_str()),
                None => Reading::unreadable(format!("{site}: no record of {}", known.name)),
            },
            requires: record.map_or_else(Vec::new, requires),
            hip: Reading::absent(site),
            xpu: Reading::absent(site),
            gfx: Reading::absent(site),
            lacking: Reading::absent(site),
            out_of_reach: Reading::absent(site),
            assemblers: Reading::absent(site),
            runners: Reading::absent(site),
            operators: Reading::absent(site),
            ..Framework::default()
        };
        let library = self.library(known, site, &mut found);
        found.library = match &library {
            Some(path) => Reading::present(path.clone(), path.as_str()),
            None => Reading::absent(join(site, known.libraries.first().unwrap_or(&""))),
        };
        found.code = Reading::absent(found.library.source());
        if let Some(path) = &library {
            self.look_into(known, path, &mut found);
        }
        self.built_for(known, &mut found);
        match known.name {
            "triton" => found.assemblers = self.assemblers(site),
            "deepspeed" => found.operators = self.operators(site),
            _ => {}
        }
        found
    }

    /// The GPU library: the first of its places where a file is.
    fn library(&self, known: &Known, site: &str, found: &mut Framework) -> Option<String> {
        if known.name == "bitsandbytes" {
            return build::bitsandbytes(self, site, found);
        }
        let mut places: Vec<String> = known
            .libraries
            .iter()
            .filter_map(|place| self.place(site, place))
            .collect();
        // conda-forge splits torch: its libraries lie in the environment's own folder.
        if known.name == "torch"
            && let Some(prefix) = self.consumer.prefix.value()
            && site.starts_with(prefix.as_str())
            && self.sysroot.exists(&join(prefix, "conda-meta"))
        {
            places.push(join(prefix, "lib/libtorch_cuda.so"));
        }
        places.into_iter().find(|path| self.sysroot.exists(path))
    }

    /// A place below site-packages, with the name that stands for its `*`.
    fn place(&self, site: &str, place: &str) -> Option<String> {
        let path = join(site, place);
        let Some((start, end)) = file_name(place).split_once('*') else {
            return Some(path);
        };
        let dir = parent(&path);
        let names = self
            .sysroot
            .list(dir, |name| name.starts_with(start) && name.ends_with(end));
        names.items().first().map(|name| join(dir, name))
    }

    /// What the library needs and holds.
    fn look_into(&mut self, known: &Known, path: &str, found: &mut Framework) {
        let file = match self.sysroot.file(path) {
            Reading::Present { value, .. } => value,
            Reading::Absent { source } => {
                found.code = Reading::absent(source);
                return;
            }
            Reading::Unreadable { reason } => {
                found.code = Reading::unreadable(reason);
                return;
            }
        };
        let shape = elf::identify(&file);
        found.damaged.extend(damage(path, &shape, file.len()));
        let elf = match shape {
            Shape::Elf(elf) => elf,
            Shape::Empty => return found.code = damaged(path, "an empty file"),
            Shape::Truncated(words) | Shape::NotElf(words) | Shape::Unreadable(words) => {
                return found.code = damaged(path, &words);
            }
        };
        // Those beside it come with the same package, and are as easily cut off.
        for needed in &elf.needed {
            let beside = join(parent(path), needed);
            if let Reading::Present { value: file, .. } = self.sysroot.file(&beside) {
                let shape = elf::identify(&file);
                found.damaged.extend(damage(&beside, &shape, file.len()));
            }
        }
        found.cuda_needs = self.cuda_needs(&elf, path);
        if known.on_torch {
            found.lacking = self.lacking(&file, path);
        }
        if known.name == "tensorflow" {
            found.out_of_reach = self.out_of_reach(&elf, path);
        }
        // Code for AMD's GPUs is handed to HIP by whoever holds it; some get that by a library of ROCm's.
        let is_for_hip = |soname: &String| {
            let mut starts = ["libamdhip64", "libhip", "libroc"].iter();
            starts.any(|start| soname.starts_with(start))
        };
        if elf.needed.iter().any(is_for_hip) || file_name(path) == "libtorch_hip.so" {
            found.gfx = self.gfx(&file, path);
        }
        found.needed = elf.needed;
        if known.by_code {
            let held = fatbin::held(&file, &mut |held| self.is_enough(held));
            found.code = Reading::present(device_code(held), path);
        }
    }

    /// The code for AMD's GPUs in a library.
    fn gfx(&self, file: &dyn ReadAt, path: &str) -> Reading<GfxCode> {
        match offload::bundles(file, &mut |found| self.has_targets(found)) {
            Some(bundles) => Reading::present(bundles.into(), path),
            None => Reading::absent(format!("{path}: no .hip_fatbin")),
        }
    }

    /// Whether there is no need to look on: code for every AMD GPU that is here was seen, or there is none to look for.
    fn has_targets(&self, found: &Bundles) -> bool {
        let is_there = |wanted: &String| {
            let mut targets = found.targets.iter();
            targets.any(|target| target.split(':').next() == Some(wanted))
        };
        found.count >= FIRST_CONTAINERS && self.targets.iter().all(is_there)
    }

    /// Whether there is no need to look on: machine code that may run was seen for every GPU. With no GPU there is
    /// nobody to look for; with one whose capability nobody told, all of it may matter.
    fn is_enough(&self, held: &Held) -> bool {
        let may_run = |(major, minor): &(u32, u32)| {
            held.elf.iter().any(|arch| {
                let (code_major, code_minor) = (arch.number / 10, arch.number % 10);
                code_major == *major
                    && (code_minor == *minor
                        || code_minor < *minor && arch.suffix != Suffix::Specific)
            })
        };
        !self.untold && held.containers >= FIRST_CONTAINERS && self.capabilities.iter().all(may_run)
    }
}

/// Requirements that name a part that a rule looks at; those of extras, which nobody may have wanted, left out.
fn requires(record: &Installed) -> Vec<String> {
    let asks_for = |line: &str| {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
        let name: String = line.chars().take_while(|c| is_name(*c)).collect();
        PARTS.contains(&name.to_lowercase().replace(['_', '.'], "-").as_str())
    };
    let lines = record.requires.iter();
    lines
        .filter(|line| !line.contains("extra ==") && asks_for(line))
        .cloned()
        .collect()
}

/// A file that is no library, by its headers; of one that could not be read nothing is known.
fn damage(path: &str, shape: &Shape, size_bytes: u64) -> Option<DamagedLibrary> {
    if matches!(shape, Shape::Elf(_) | Shape::Unreadable(_)) {
        return None;
    }
    Some(DamagedLibrary {
        path: path.to_owned(),
        size_bytes,
        kind: kind_of(path, shape),
    })
}

fn damaged(path: &str, words: &str) -> Reading<DeviceCode> {
    Reading::unreadable(format!("{path}: {words}"))
}

fn device_code(held: Held) -> DeviceCode {
    DeviceCode {
        elf: held.elf.into_iter().map(fatbin::Arch::sm).collect(),
        ptx: held
            .ptx
            .into_iter()
            .filter_map(|(arch, isa)| {
                Some(PtxCode {
                    target: arch.compute(),
                    isa: Version::parse(&isa.to_string())?,
                })
            })
            .collect(),
        complete: held.complete,
    }
}
