//! Device code: the cubins and the PTX in a file, for which GPUs they are, and which toolkits built them.
//!
//! It lies in `.nv_fatbin` (linked code) and `__nv_relfatbin` (code that is still to be linked), as fat binaries back to
//! back. Their headers are enough for the lists: of a library of 520 MB, 0.2 MB. The toolkit of a cubin up to CUDA 12.9
//! stands in its first bytes; a newer one keeps it in notes, so of those a spread-out sample is read (another 0.35 MB),
//! and all of them only when asked for. Nothing is disassembled, and no code is judged here.

mod arch;
mod asked;
mod cubin;
mod deep;
mod held;
mod trail;
mod unpack;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{ControlFlow, Range};

pub use arch::{Arch, Suffix};
use asked::{DEEP_BUDGET, SAMPLE_BUDGET, Samples};
pub use cubin::arch as cubin_arch;
pub use held::{Held, held};
pub(super) use trail::{Asked, BEGINS, SHOWN, Trail};
pub use walk::{Entry, Kind, Packing};
use walk::{Event, MAGIC, walk};

use super::elf;
use super::window::{ReadAt, bytes_up_to};
use crate::version::Version;

/// The most different targets that are kept apart in one place; files have 20 at most.
const MAX_TARGETS: usize = 256;
/// The most different sets of targets that modules of a file may have; files have 60 at most.
const MAX_SETS: usize = 512;
/// The most problems that are listed.
const MAX_PROBLEMS: usize = 8;
/// Below this a cubin holds no kernel: the linker leaves such a one in every program.
const STUB: u64 = 2048;
/// The section of linked code.
const EXECUTABLE: &str = ".nv_fatbin";
/// The section of code that is still to be linked.
const RELOCATABLE: &str = "__nv_relfatbin";

/// The version of the PTX language, or of a cubin's format: 8.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isa {
    /// 8.
    pub major: u16,
    /// 4.
    pub minor: u16,
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// How far to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Read the notes of every cubin, and search what is no device-code section for more of it, byte by byte.
    pub deep: bool,
}

/// The device code of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceCode {
    /// Linked code.
    pub executable: Codes,
    /// Code that is still to be linked with other code.
    pub relocatable: Codes,
    /// Code outside the sections for it, by the section's name: only a deep look finds it.
    pub stray: BTreeMap<String, Codes>,
    /// The toolkits that built the cubins.
    pub toolkits: BTreeSet<Version>,
    /// How many cubins were asked for their toolkit, and how many there are.
    pub asked: (u64, u64),
    /// Entries by how they are packed.
    pub packings: BTreeMap<Packing, u64>,
    /// What is not as it should be, in words with the offset.
    pub problems: Vec<String>,
    /// Code of AMD's `ROCm` is in it.
    pub rocm: bool,
}

/// Device code of one kind of place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Codes {
    /// Containers.
    pub containers: u64,
    /// Cubins by target.
    pub elf: BTreeMap<Arch, u64>,
    /// PTX by target and language version.
    pub ptx: BTreeMap<(Arch, Isa), u64>,
    /// Code for link-time optimisation by target.
    pub lto: BTreeMap<Arch, u64>,
    /// Entries of other kinds.
    pub other: u64,
    /// How many modules have which targets: a library can have one module for `sm_75` and the next one not. What holds
    /// nothing but a stub of the linker is no module.
    pub modules: BTreeMap<Targets, u64>,
}

/// The targets of one module.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Targets {
    /// Of its cubins.
    pub elf: BTreeSet<Arch>,
    /// Of its PTX.
    pub ptx: BTreeSet<(Arch, Isa)>,
}

impl Codes {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.containers == 0 && self.elf.is_empty() && self.ptx.is_empty()
    }

    /// The targets of its PTX, each once.
    pub fn ptx_archs(&self) -> BTreeSet<Arch> {
        self.ptx.keys().map(|(arch, _)| *arch).collect()
    }

    fn count(&mut self, entry: &Entry) {
        match entry.kind {
            Kind::Cubin => bump(&mut self.elf, entry.arch),
            Kind::Ptx => bump(&mut self.ptx, (entry.arch, entry.isa)),
            Kind::Lto => bump(&mut self.lto, entry.arch),
            Kind::Other(_) => self.other += 1,
        }
    }

    fn module(&mut self, targets: Targets) {
        if targets != Targets::default()
            && (self.modules.len() < MAX_SETS || self.modules.contains_key(&targets))
        {
            *self.modules.entry(targets).or_default() += 1;
        }
    }
}

/// Counts a target, up to [`MAX_TARGETS`] different ones.
fn bump<T: Ord>(counts: &mut BTreeMap<T, u64>, target: T) {
    if counts.len() < MAX_TARGETS || counts.contains_key(&target) {
        *counts.entry(target).or_default() += 1;
    }
}

impl DeviceCode {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.executable.is_empty() && self.relocatable.is_empty() && self.stray.is_empty()
    }

    /// Everything in it: linked, to be linked, stray.
    pub fn places(&self) -> impl Iterator<Item = &Codes> {
        [&self.executable, &self.relocatable]
            .into_iter()
            .chain(self.stray.values())
    }

    /// The versions of the PTX language that occur.
    pub fn ptx_isas(&self) -> BTreeSet<Isa> {
        self.places()
            .flat_map(|codes| codes.ptx.keys().map(|(_, isa)| *isa))
            .collect()
    }

    /// Adds what another file holds: a member of the same archive.
    pub fn add(&mut self, other: Self) {
        let add = |into: &mut Codes, from: Codes| {
            into.containers += from.containers;
            into.other += from.other;
            for (arch, n) in from.elf {
                *into.elf.entry(arch).or_default() += n;
            }
            for (ptx, n) in from.ptx {
                *into.ptx.entry(ptx).or_default() += n;
            }
            for (arch, n) in from.lto {
                *into.lto.entry(arch).or_default() += n;
            }
            for (targets, n) in from.modules {
                *into.modules.entry(targets).or_default() += n;
            }
        };
        add(&mut self.executable, other.executable);
        add(&mut self.relocatable, other.relocatable);
        for (name, codes) in other.stray {
            add(self.stray.entry(name).or_default(), codes);
        }
        self.toolkits.extend(other.toolkits);
        self.asked.0 += other.asked.0;
        self.asked.1 += other.asked.1;
        for (packing, n) in other.packings {
            *self.packings.entry(packing).or_default() += n;
        }
        let room = MAX_PROBLEMS.saturating_sub(self.problems.len());
        self.problems.extend(other.problems.into_iter().take(room));
        self.rocm |= other.rocm;
    }
}

/// The device code of an ELF file, or of a fat binary, a cubin or PTX text on its own. Empty where there is none.
pub fn device_code(file: &dyn ReadAt, look: Look) -> DeviceCode {
    let mut collector = Collector::new(file, look);
    let start = bytes_up_to(file, 0, 64);
    if start.starts_with(&MAGIC) {
        collector.walk(0..file.len(), Place::Executable);
    } else if let Some(arch) = cubin::arch(file) {
        collector.whole_cubin(arch);
    } else if start.starts_with(b"\x7fELF") {
        let sections = elf::sections(file);
        for section in elf::apart(&sections) {
            match section.name.as_str() {
                EXECUTABLE => collector.walk(section.range.clone(), Place::Executable),
                RELOCATABLE => collector.walk(section.range.clone(), Place::Relocatable),
                ".hip_fatbin" | ".hipFatBinSegment" => collector.code.rocm = true,
                _ => {}
            }
        }
        // A file without a section table says nothing of where its device code is: there it takes a search.
        if look.deep || sections.is_empty() {
            deep::search(file, &sections, &mut collector);
        }
    } else if let Some((arch, isa)) = ptx_text(&bytes_up_to(file, 0, 16 << 10)) {
        bump(&mut collector.code.executable.ptx, (arch, isa));
        collector.code.executable.module(Targets {
            ptx: [(arch, isa)].into(),
            ..Targets::default()
        });
    }
    collector.finish()
}

/// The target and language version of PTX text: `.version 8.4`, `.target sm_90a, debug`.
pub fn ptx_text(start: &[u8]) -> Option<(Arch, Isa)> {
    let text = String::from_utf8_lossy(start);
    let lines = || text.lines().map(str::trim_start);
    let version = lines().find_map(|line| line.strip_prefix(".version"))?;
    let target = lines().find_map(|line| line.strip_prefix(".target"))?;
    let (major, minor) = version.split_whitespace().next()?.split_once('.')?;
    let isa = Isa {
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    };
    Some((
        Arch::parse(target.trim().split([',', ' ', '\r']).next()?)?,
        isa,
    ))
}

/// Where code was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place<'a> {
    Executable,
    Relocatable,
    Stray(&'a str),
}

/// Whether the first bytes of a cubin tell its toolkit.
fn is_told_by_start(entry: &Entry) -> bool {
    entry.is_old_cubin() && entry.inner == 0 && entry.packing != Packing::Zstd
}

/// Gathers what the walks find.
struct Collector<'a> {
    file: &'a dyn ReadAt,
    look: Look,
    code: DeviceCode,
    samples: Samples,
    /// Bytes that may still be unpacked for toolkits.
    budget: u64,
}

impl<'a> Collector<'a> {
    fn new(file: &'a dyn ReadAt, look: Look) -> Self {
        Self {
            file,
            look,
            code: DeviceCode::default(),
            samples: Samples::default(),
            budget: if look.deep {
                DEEP_BUDGET
            } else {
                SAMPLE_BUDGET
            },
        }
    }

    fn walk(&mut self, range: Range<u64>, place: Place<'_>) {
        let mut targets = Targets::default();
        let mut found: Vec<(u64, &str)> = Vec::new();
        let mut packings: BTreeMap<Packing, u64> = BTreeMap::new();
        let mut codes = Codes::default();
        let mut asked = (0, 0);
        let file = self.file;
        walk(file, range, &mut |event| {
            match event {
                Event::Container => codes.containers += 1,
                Event::Entry(entry, start) => {
                    codes.count(entry);
                    *packings.entry(entry.packing).or_default() += 1;
                    match entry.kind {
                        Kind::Cubin => {
                            if entry.unpacked >= STUB && targets.elf.len() < MAX_TARGETS {
                                targets.elf.insert(entry.arch);
                            }
                            asked.1 += 1;
                            if self.toolkit(entry, start) {
                                asked.0 += 1;
                            }
                        }
                        Kind::Ptx if targets.ptx.len() < MAX_TARGETS => {
                            targets.ptx.insert((entry.arch, entry.isa));
                        }
                        _ => {}
                    }
                }
                Event::End => codes.module(std::mem::take(&mut targets)),
                Event::Problem(at, words) => {
                    if found.len() < MAX_PROBLEMS {
                        found.push((at, words));
                    }
                }
            }
            ControlFlow::Continue(())
        });
        for (at, words) in found {
            if self.code.problems.len() < MAX_PROBLEMS {
                self.code.problems.push(format!("at byte {at}: {words}"));
            }
        }
        let other = match place {
            Place::Executable => DeviceCode {
                executable: codes,
                ..DeviceCode::default()
            },
            Place::Relocatable => DeviceCode {
                relocatable: codes,
                ..DeviceCode::default()
            },
            Place::Stray(name) => DeviceCode {
                stray: [(name.to_owned(), codes)].into(),
                ..DeviceCode::default()
            },
        };
        self.code.add(DeviceCode {
            asked,
            packings,
            ..other
        });
    }

    /// Reads the toolkit of a cubin where that is cheap; else it is left for later. Whether it was read.
    fn toolkit(&mut self, entry: &Entry, start: &[u8]) -> bool {
        const FEW: usize = 64;
        if is_told_by_start(entry) {
            let read;
            let mut start = start;
            if start.len() < FEW {
                let len = usize::try_from(entry.stored).unwrap_or(FEW).min(FEW);
                read = bytes_up_to(self.file, entry.payload, len);
                start = &read;
            }
            let toolkit = if entry.packing == Packing::Lz4 {
                cubin::toolkit_of_start(&unpack::lz4(start, cubin::START, &mut |_| false))
            } else {
                cubin::toolkit_of_start(start)
            };
            if let Some(toolkit) = toolkit {
                self.found_toolkit(toolkit);
                return true;
            }
        }
        if self.look.deep {
            return self.ask(entry);
        }
        self.samples.offer(entry);
        false
    }

    fn found_toolkit(&mut self, toolkit: Version) {
        if self.code.toolkits.len() < MAX_TARGETS {
            self.code.toolkits.insert(toolkit);
        }
    }

    /// A cubin that is the whole file.
    fn whole_cubin(&mut self, arch: Arch) {
        bump(&mut self.code.executable.elf, arch);
        self.code.executable.module(Targets {
            elf: [arch].into(),
            ..Targets::default()
        });
        self.code.asked = (0, 1);
        for toolkit in cubin::toolkits(self.file) {
            self.code.asked.0 = 1;
            self.found_toolkit(toolkit);
        }
    }
}
