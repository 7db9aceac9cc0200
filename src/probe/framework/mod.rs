//! The frameworks of the consumer's environment: versions as their own files tell them, the CUDA that they were built
//! for, the device code that they hold, and what their GPU library needs.
//!
//! Places are known (`known`), so no folder is walked: of a library of 500 MB some pages are read. Nothing is loaded and
//! no Python is run.

mod build;
mod known;
mod needs;

use known::{KNOWN, Known};

use crate::facts::{
    Consumer, ConsumerKind, DeviceCode, Facts, Framework, FrameworkFacts, PtxCode, Reading,
    VendorFacts,
};
use crate::probe::loader::Loader;
use crate::read::elf::{self, Shape};
use crate::read::fatbin::{self, Held, Suffix};
use crate::read::pydist;
use crate::sysroot::{Sysroot, file_name, join, parent};
use crate::version::Version;

/// Containers of device code that are looked into at least.
const FIRST_CONTAINERS: u64 = 32;
/// The most of a METADATA file that is read: the lines that name other parts stand before the description.
const METADATA_CAP: usize = 64 << 10;
/// Parts that a line of a framework's metadata may ask for, as far as a rule looks at it.
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
pub(super) fn probe(sysroot: &Sysroot, loader: &Loader<'_>, facts: &Facts) -> FrameworkFacts {
    let consumer = &facts.consumer;
    if consumer.kind == ConsumerKind::Machine {
        return FrameworkFacts {
            frameworks: Reading::present(Vec::new(), "no environment"),
        };
    }
    let records = match records(sysroot, consumer) {
        Ok(records) => records,
        Err(reason) => {
            return FrameworkFacts {
                frameworks: Reading::unreadable(reason),
            };
        }
    };
    let mut look = Look {
        sysroot,
        loader,
        consumer,
        capabilities: capabilities(&facts.vendor),
        folders: None,
        torch: None,
    };
    let mut found: Vec<Framework> = Vec::new();
    for known in KNOWN {
        let recorded: Vec<&Record> = records
            .iter()
            .filter(|record| known.is_called(&record.name))
            .collect();
        // Of one site a distribution counts once; conda's record and the dist-info beside it are the same one.
        let mut sites: Vec<(&str, &str)> = Vec::new();
        for record in recorded {
            let site = record.site.as_str();
            let is_same = sites.iter().any(|(name, at)| {
                *at == site && (*name == record.name || known.distributions.contains(&"pytorch"))
            });
            if is_same {
                continue;
            }
            sites.push((&record.name, site));
            found.push(look.framework(known, site, Some(record)));
        }
        if sites.is_empty()
            && let Some(site) = consumer
                .site_packages
                .iter()
                .find(|site| !known.marker.is_empty() && sysroot.exists(&join(site, known.marker)))
        {
            found.push(look.framework(known, site, None));
        }
        // An environment's own copy goes before the user's or the system's.
        if known.name == "torch" {
            look.torch = found.first().cloned();
        }
    }
    FrameworkFacts {
        frameworks: Reading::present(
            found,
            "dist-info folders, conda records, files of frameworks",
        ),
    }
}

/// A record of an installed distribution.
struct Record {
    name: String,
    version: String,
    /// The site-packages folder that it is about.
    site: String,
    /// Its dist-info folder or conda record.
    path: String,
    is_conda: bool,
}

/// The records of what may be a framework, in the order of the search path; dist-info before conda's.
fn records(sysroot: &Sysroot, consumer: &Consumer) -> Result<Vec<Record>, String> {
    let wanted = |name: &str| KNOWN.iter().any(|known| known.is_called(name));
    let mut found = Vec::new();
    let mut refused = None;
    for site in &consumer.site_packages {
        let listed = sysroot.list(site, |name| {
            name.ends_with(".dist-info") || name.ends_with(".egg-info")
        });
        if let Reading::Unreadable { reason } = &listed {
            refused = Some(reason.clone());
        }
        for dir in listed.items() {
            let Some((name, version)) = pydist::from_dist_info_dir(dir).filter(|(n, _)| wanted(n))
            else {
                continue;
            };
            found.push(Record {
                name,
                version,
                site: site.clone(),
                path: join(site, dir),
                is_conda: false,
            });
        }
    }
    if let (Some(prefix), Some(site)) = (consumer.prefix.value(), consumer.site_packages.last()) {
        let meta = join(prefix, "conda-meta");
        let listed = sysroot.list(&meta, |name| {
            pydist::from_conda_meta(name).is_some_and(|(name, _)| wanted(&name))
        });
        for file in listed.items() {
            if let Some((name, version)) = pydist::from_conda_meta(file) {
                let of_prefix = consumer
                    .site_packages
                    .iter()
                    .find(|s| s.starts_with(prefix));
                found.push(Record {
                    name,
                    version,
                    site: of_prefix.unwrap_or(site).clone(),
                    path: join(&meta, file),
                    is_conda: true,
                });
            }
        }
    }
    match refused {
        Some(reason) if found.is_empty() => Err(reason),
        _ => Ok(found),
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

/// What one look at an environment goes by.
pub(super) struct Look<'a> {
    sysroot: &'a Sysroot,
    loader: &'a Loader<'a>,
    consumer: &'a Consumer,
    /// Of the GPUs that are here.
    capabilities: Vec<(u32, u32)>,
    /// Folders of the environment that hold CUDA libraries, and the names in them; listed when first asked for.
    folders: Option<Vec<(String, Vec<String>)>>,
    /// The torch that extensions have to fit.
    torch: Option<Framework>,
}

impl Look<'_> {
    fn framework(&mut self, known: &Known, site: &str, record: Option<&Record>) -> Framework {
        let mut found = Framework {
            name: known.name.to_owned(),
            site: site.to_owned(),
            distribution: match record {
                Some(record) => Reading::present(record.name.clone(), record.path.as_str()),
                None => Reading::absent(join(site, "*.dist-info")),
            },
            installer: match record {
                Some(record) => self.installer(record),
                None => Reading::absent(join(site, "*.dist-info")),
            },
            version: match record {
                Some(record) => Reading::present(record.version.clone(), record.path.as_str()),
                None => Reading::unreadable(format!("{site}: no record of {}", known.name)),
            },
            requires: record.map_or_else(Vec::new, |record| self.requires(record)),
            hip: Reading::absent(site),
            lacking: Reading::absent(site),
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
        found
    }

    /// Who installed a distribution. A conda package's own dist-info says conda.
    fn installer(&self, record: &Record) -> Reading<String> {
        if record.is_conda {
            return Reading::present("conda".to_owned(), record.path.as_str());
        }
        let path = join(&record.path, "INSTALLER");
        match self.sysroot.text(&path) {
            Reading::Present { value, source } if !value.trim().is_empty() => {
                Reading::present(value.trim().to_lowercase(), source)
            }
            Reading::Unreadable { reason } => Reading::unreadable(reason),
            _ => Reading::absent(path),
        }
    }

    /// Lines of METADATA that ask for a part that a rule looks at; those of extras that nobody may have wanted left out.
    fn requires(&self, record: &Record) -> Vec<String> {
        let file = join(&record.path, "METADATA");
        let text = self.sysroot.text_up_to(&file, METADATA_CAP);
        let lines = text.value().map(String::as_str).unwrap_or_default().lines();
        lines
            .take_while(|line| !line.trim().is_empty())
            .filter_map(|line| line.strip_prefix("Requires-Dist:"))
            .map(str::trim)
            .filter(|line| !line.contains("extra =="))
            .filter(|line| {
                let end = line
                    .find(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '.'))
                    .unwrap_or(line.len());
                let name = line.get(..end).unwrap_or_default().to_lowercase();
                PARTS.contains(&name.replace(['_', '.'], "-").as_str())
            })
            .map(str::to_owned)
            .collect()
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
        let elf = match elf::identify(&file) {
            Shape::Elf(elf) => elf,
            Shape::Empty => return found.code = damaged(path, "an empty file"),
            Shape::Truncated(words) | Shape::NotElf(words) | Shape::Unreadable(words) => {
                return found.code = damaged(path, &words);
            }
        };
        found.cuda_needs = self.cuda_needs(&elf.needed);
        if known.on_torch {
            found.lacking = self.lacking(&file, path);
        }
        found.needed = elf.needed;
        if known.by_code {
            let held = fatbin::held(&file, &mut |held| self.is_enough(held));
            found.code = Reading::present(device_code(held), path);
        }
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
        held.containers >= FIRST_CONTAINERS && self.capabilities.iter().all(may_run)
    }
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
