//! What kind of file a library is, and what its headers say: machine, soname, what it needs, search paths, notes.
//!
//! Only headers are read, piece by piece: about six small reads whatever the size. goblin knows the layout of file,
//! program and section headers; the other tables are read by `dynamic`, `notes` and `symbols`, none of them whole. Driver
//! versions are in `identity`; device code is not looked at.

use std::ops::Range;

use goblin::container::Ctx;
use goblin::elf::Elf as Goblin;
use goblin::elf::dynamic::{DF_1_PIE, DT_FLAGS_1, DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME};
use goblin::elf::header::{
    EM_386, EM_AARCH64, EM_ARM, EM_LOONGARCH, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64, ET_CORE,
    ET_DYN, ET_EXEC, ET_REL, Header,
};
use goblin::elf::note::NT_GNU_BUILD_ID;
use goblin::elf::program_header::{PF_X, PT_DYNAMIC, PT_INTERP, PT_LOAD, PT_NOTE, ProgramHeader};
use goblin::elf::section_header::{SHF_EXECINSTR, SHN_XINDEX, SHT_NOBITS, SHT_NULL, SectionHeader};

use super::dynamic::Dynamic;
pub use super::identity::{fabric_manager_version, libcuda_driver_version, libnvidia_ml_version};
use super::notes::{MAX_NOTES, notes};
pub use super::notes::{Note, compat_note, note_section};
pub use super::symbols::{
    dynamic_symbols_defined, highest_version_definition, symbol_content, symbol_tables,
};
use super::window::{MAX_PIECE, ReadAt, bytes, fill};
use super::{Endian, hexadecimal, text_to_nul};
use crate::error::plain_io;

/// The most program headers that are read; linkers write about a dozen.
const MAX_SEGMENTS: usize = 1024;

/// The most needed libraries that are listed; a large one needs about 40.
const MAX_NEEDED: usize = 512;

/// The most bytes of a section's name that are kept.
const MAX_SECTION_NAME: usize = 64;

/// What a file turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An ELF file that is whole, as far as its own headers tell.
    Elf(Elf),
    /// A file of no bytes: what a bind mount leaves behind in an image.
    Empty,
    /// Shorter than its own headers say, in words with both numbers.
    Truncated(String),
    /// Something else, in words that can follow "is": `a Git LFS pointer, not the library itself`.
    NotElf(String),
    /// The first read failed, with the reason.
    Unreadable(String),
}

/// What the headers of an ELF file say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// `x86_64`, `aarch64`, `i386`, `x32`, `ppc64le`, `ppc64`, `arm`, else `machine N`.
    pub arch: String,
    /// Whether it is a 64-bit file.
    pub is_64: bool,
    /// What it is for.
    pub kind: Kind,
    /// The name that other files need it by.
    pub soname: Option<String>,
    /// The sonames it needs, in order.
    pub needed: Vec<String>,
    /// `DT_RPATH` as written; the loader ignores it where there is a runpath.
    pub rpath: Option<String>,
    /// `DT_RUNPATH` as written.
    pub runpath: Option<String>,
    /// The loader that it asks for.
    pub interp: Option<String>,
    /// The build id in lower-case hexadecimal.
    pub build_id: Option<String>,
}

/// What an ELF file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A shared library.
    SharedObject,
    /// A program, position-independent or not.
    Executable,
    /// An object file: a kernel module is one.
    Relocatable,
    /// The memory of a process that died.
    Core,
    /// Another type, by its number.
    Other(u16),
}

/// Says what a file is, by its headers alone.
pub fn identify(file: &dyn ReadAt) -> Shape {
    if file.is_empty() {
        return Shape::Empty;
    }
    match Headers::read(file) {
        Err(shape) => *shape,
        Ok(headers) => match headers.what_is_missing(file) {
            Some(words) => Shape::Truncated(words),
            None => Shape::Elf(headers.describe(file)),
        },
    }
}

/// Where a section's bytes lie in the file; `None` where there is no such section, or it has no bytes in the file.
pub fn section(file: &dyn ReadAt, name: &str) -> Option<Range<u64>> {
    Headers::read(file).ok()?.section(file, name)
}

/// A section of an ELF file that has bytes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// `.nv_fatbin`.
    pub name: String,
    /// Where its bytes lie in the file, cut to what the file has.
    pub range: Range<u64>,
    /// Whether it holds code of the machine.
    pub executable: bool,
}

/// The sections that have bytes in the file, in the table's order; none where there is no table.
pub fn sections(file: &dyn ReadAt) -> Vec<Section> {
    Headers::read(file).map_or_else(|_| Vec::new(), |headers| headers.named_sections(file))
}

/// The sections in the order of their bytes, those left out that overlap one before: in a sound file none does, and a
/// hostile one must not have the same bytes read a hundred thousand times.
pub(super) fn apart(sections: &[Section]) -> Vec<&Section> {
    let mut sections: Vec<&Section> = sections.iter().collect();
    sections.sort_by_key(|section| section.range.start);
    let mut end = 0;
    sections.retain(|section| {
        let is_apart = section.range.start >= end;
        if is_apart {
            end = section.range.end;
        }
        is_apart
    });
    sections
}

/// A file header that made sense, and how to read what it leads to.
pub(super) struct Headers {
    header: Header,
    ctx: Ctx,
    pub(super) endian: Endian,
}

impl Headers {
    /// Reads the file header, or says what the file is instead.
    pub(super) fn read(file: &dyn ReadAt) -> Result<Self, Box<Shape>> {
        let mut start = vec![0; 512];
        let got =
            fill(file, 0, &mut start).map_err(|e| Shape::Unreadable(plain_io(&e.to_string())))?;
        start.truncate(got);
        if !start.starts_with(b"\x7fELF") {
            return Err(Shape::NotElf(what_else(&start)).into());
        }
        let header_len = if start.get(4) == Some(&1) { 52 } else { 64 };
        if start.len() < header_len {
            let len = start.len();
            let words = format!("an ELF header has {header_len} bytes, but the file has {len}");
            return Err(Shape::Truncated(words).into());
        }
        let nonsense =
            |_| Shape::NotElf("an ELF file of an unknown class or byte order".to_owned());
        let header = Goblin::parse_header(&start).map_err(nonsense)?;
        let ctx = Ctx::new(
            header.container().map_err(nonsense)?,
            header.endianness().map_err(nonsense)?,
        );
        let endian = if ctx.le.is_little() {
            Endian::Little
        } else {
            Endian::Big
        };
        Ok(Self {
            header,
            ctx,
            endian,
        })
    }

    pub(super) fn is_64(&self) -> bool {
        self.ctx.is_big()
    }

    pub(super) fn is_x86_64(&self) -> bool {
        self.header.e_machine == EM_X86_64
    }

    fn arch(&self) -> String {
        let name = match (self.header.e_machine, self.is_64(), self.endian) {
            (EM_X86_64, true, _) => "x86_64",
            (EM_X86_64, false, _) => "x32",
            (EM_AARCH64, ..) => "aarch64",
            (EM_386, ..) => "i386",
            (EM_PPC64, _, Endian::Little) => "ppc64le",
            (EM_PPC64, ..) => "ppc64",
            (EM_ARM, ..) => "arm",
            (EM_RISCV, true, _) => "riscv64",
            (EM_S390, true, _) => "s390x",
            (EM_LOONGARCH, true, _) => "loongarch64",
            (other, ..) => return format!("machine {other}"),
        };
        name.to_owned()
    }

    pub(super) fn segments(&self, file: &dyn ReadAt) -> Vec<ProgramHeader> {
        let size = ProgramHeader::size(self.ctx);
        let count = usize::from(self.header.e_phnum).min(MAX_SEGMENTS);
        if count == 0 || usize::from(self.header.e_phentsize) != size {
            return Vec::new();
        }
        bytes(file, self.header.e_phoff, count * size)
            .and_then(|table| ProgramHeader::parse(&table, 0, count, self.ctx).ok())
            .unwrap_or_default()
    }

    fn sections(&self, file: &dyn ReadAt) -> Vec<SectionHeader> {
        let size = SectionHeader::size(self.ctx);
        let at = self.header.e_shoff;
        if at == 0 || usize::from(self.header.e_shentsize) != size {
            return Vec::new();
        }
        let read = |count: usize| {
            let table = bytes(file, at, count.checked_mul(size)?)?;
            SectionHeader::parse_from(&table, 0, count, self.ctx).ok()
        };
        let count = match usize::from(self.header.e_shnum) {
            // More than fit into the header's field: the count is the size of section 0.
            0 => read(1)
                .and_then(|s| usize::try_from(s.first()?.sh_size).ok())
                .unwrap_or(0),
            count => count,
        };
        if count == 0 {
            Vec::new()
        } else {
            read(count).unwrap_or_default()
        }
    }

    /// The names of sections, as one table.
    fn section_names(&self, file: &dyn ReadAt, sections: &[SectionHeader]) -> Option<Vec<u8>> {
        let index = match u32::from(self.header.e_shstrndx) {
            SHN_XINDEX => usize::try_from(sections.first()?.sh_link).ok()?,
            index => usize::try_from(index).ok()?,
        };
        let names = range_of(sections.get(index)?)?;
        let len = usize::try_from(names.end - names.start)
            .ok()?
            .min(MAX_PIECE);
        bytes(file, names.start, len)
    }

    fn named_sections(&self, file: &dyn ReadAt) -> Vec<Section> {
        let sections = self.sections(file);
        let Some(names) = self.section_names(file, &sections) else {
            return Vec::new();
        };
        let described = |section: &SectionHeader| {
            let range = range_of(section)?;
            let name = names.get(section.sh_name..).unwrap_or_default();
            Some(Section {
                name: text_to_nul(name.get(..MAX_SECTION_NAME).unwrap_or(name)),
                range: range.start.min(file.len())..range.end.min(file.len()),
                executable: section.sh_flags & u64::from(SHF_EXECINSTR) != 0,
            })
        };
        sections.iter().filter_map(described).collect()
    }

    pub(super) fn section(&self, file: &dyn ReadAt, name: &str) -> Option<Range<u64>> {
        let sections = self.sections(file);
        let names = self.section_names(file, &sections)?;
        let named = |section: &&SectionHeader| {
            let rest = names.get(section.sh_name..).unwrap_or_default();
            rest.strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.first() == Some(&0))
        };
        range_of(sections.iter().find(named)?).filter(|at| at.end <= file.len())
    }

    /// Where code lies: the executable sections, or the executable segments where there are no sections.
    pub(super) fn code(&self, file: &dyn ReadAt) -> Vec<Range<u64>> {
        let sections = self.sections(file);
        if sections.is_empty() {
            return self.code_segments(file);
        }
        let code = |s: &&SectionHeader| s.sh_flags & u64::from(SHF_EXECINSTR) != 0;
        sections.iter().filter(code).filter_map(range_of).collect()
    }

    /// The executable segments.
    pub(super) fn code_segments(&self, file: &dyn ReadAt) -> Vec<Range<u64>> {
        let segments = self.segments(file);
        let code = |s: &&ProgramHeader| s.p_type == PT_LOAD && s.p_flags & PF_X != 0;
        let code = segments.iter().filter(code);
        code.filter_map(segment_range).collect()
    }

    /// Where the dynamic table lies, as far as the program headers say.
    pub(super) fn dynamic_table(&self, start: &dyn ReadAt) -> Option<Range<u64>> {
        let segments = self.segments(start);
        let table = segments.iter().find(|s| s.p_type == PT_DYNAMIC)?;
        segment_range(table)
    }

    /// Where the tables of a file of `len` bytes lie that questions are asked of, by its start, those that are asked most
    /// first: the section table, and the names beside it; the end; the dynamic table and notes; the beginnings of segments
    /// without code, with notes and variables; what is loaded first, with the tables of symbols.
    pub(super) fn tables(&self, start: &dyn ReadAt, len: u64) -> Vec<Range<u64>> {
        const FIRST: u64 = 14 << 20;
        const OTHER: u64 = 1 << 20;
        const BESIDE: u64 = 128 << 10;
        const END: u64 = 1 << 20;
        let header = &self.header;
        let sections = u64::from(header.e_shnum) * u64::from(header.e_shentsize);
        let names = header.e_shoff.saturating_sub(BESIDE);
        let behind = header.e_shoff.saturating_add(sections);
        let mut tables = vec![
            0..BESIDE,
            names..behind.saturating_add(BESIDE),
            len.saturating_sub(END)..len,
        ];
        let mut loaded = Vec::new();
        for segment in self.segments(start) {
            let Some(range) = segment_range(&segment) else {
                continue;
            };
            let cut = |most| range.start..range.end.min(range.start.saturating_add(most));
            if segment.p_type != PT_LOAD {
                tables.push(cut(BESIDE));
            } else if range.start == 0 {
                loaded.push(cut(FIRST));
            } else if segment.p_flags & PF_X == 0 {
                loaded.insert(0, cut(OTHER));
            }
        }
        tables.extend(loaded);
        tables
    }

    /// What the headers promise and the file does not have.
    fn what_is_missing(&self, file: &dyn ReadAt) -> Option<String> {
        let len = file.len();
        let behind = |what: &str, end: u64| {
            (end > len).then(|| format!("its {what} ends at byte {end}, but the file has {len}"))
        };
        let table_end =
            |at: u64, count: u16, size: u16| at.saturating_add(u64::from(count) * u64::from(size));
        let header = &self.header;
        let segments = table_end(header.e_phoff, header.e_phnum, header.e_phentsize);
        let sections = table_end(header.e_shoff, header.e_shnum, header.e_shentsize);
        behind("program header table", segments)
            .or_else(|| behind("section header table", sections))
            .or_else(|| {
                let loads = self.segments(file);
                let loads = loads.iter().filter(|s| s.p_type == PT_LOAD);
                let end = loads.map(|s| s.p_offset.saturating_add(s.p_filesz)).max();
                behind("last segment", end.unwrap_or(0))
            })
    }

    fn describe(&self, file: &dyn ReadAt) -> Elf {
        let segments = self.segments(file);
        let dynamic = Dynamic::of(file, self, &segments);
        let soname = dynamic
            .value(DT_SONAME)
            .and_then(|at| dynamic.name(file, at));
        let folders = |tag| dynamic.value(tag).and_then(|at| dynamic.folders(file, at));
        let interp = segments
            .iter()
            .find(|s| s.p_type == PT_INTERP)
            .and_then(|s| {
                let len = usize::try_from(s.p_filesz)
                    .ok()
                    .filter(|len| *len <= 4096)?;
                Some(text_to_nul(&bytes(file, s.p_offset, len)?))
            });
        let is_pie = dynamic
            .value(DT_FLAGS_1)
            .is_some_and(|flags| flags & DF_1_PIE != 0);
        let kind = match self.header.e_type {
            // Old linkers do not set the flag. The C library can be run as a program too, but it has a soname.
            ET_DYN if is_pie || (interp.is_some() && soname.is_none()) => Kind::Executable,
            ET_DYN => Kind::SharedObject,
            ET_EXEC => Kind::Executable,
            ET_REL => Kind::Relocatable,
            ET_CORE => Kind::Core,
            other => Kind::Other(other),
        };
        Elf {
            arch: self.arch(),
            is_64: self.is_64(),
            kind,
            soname,
            needed: dynamic
                .values(DT_NEEDED)
                .take(MAX_NEEDED)
                .filter_map(|at| dynamic.name(file, at))
                .collect(),
            rpath: folders(DT_RPATH),
            runpath: folders(DT_RUNPATH),
            interp,
            build_id: self.build_id(file, &segments),
        }
    }

    fn build_id(&self, file: &dyn ReadAt, segments: &[ProgramHeader]) -> Option<String> {
        segments
            .iter()
            .filter(|s| s.p_type == PT_NOTE)
            .find_map(|segment| {
                let len = usize::try_from(segment.p_filesz).ok()?.min(MAX_NOTES);
                let notes = notes(
                    &bytes(file, segment.p_offset, len)?,
                    segment.p_align,
                    self.endian,
                );
                let is_id = |note: &Note| note.kind == NT_GNU_BUILD_ID && note.owner == "GNU";
                let id = notes.into_iter().find(is_id)?.descriptor;
                Some(hexadecimal(id.get(..64).unwrap_or(&id)))
            })
    }
}

fn range_of(section: &SectionHeader) -> Option<Range<u64>> {
    let has_bytes = !matches!(section.sh_type, SHT_NOBITS | SHT_NULL);
    let end = section.sh_offset.checked_add(section.sh_size)?;
    has_bytes.then_some(section.sh_offset..end)
}

fn segment_range(segment: &ProgramHeader) -> Option<Range<u64>> {
    Some(segment.p_offset..segment.p_offset.checked_add(segment.p_filesz)?)
}

/// What a file is that is no ELF file, by its first bytes.
fn what_else(start: &[u8]) -> String {
    const MAGIC: [(&[u8], &str); 12] = [
        (
            b"version https://git-lfs",
            "a Git LFS pointer, not the library itself",
        ),
        (b"!<arch>\n", "a static library (ar archive)"),
        (b"!<thin>\n", "a static library (thin ar archive)"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"\xfd7zXZ\0", "an xz archive"),
        (b"BZh", "a bzip2 archive"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (b"PK\x03\x04", "a zip archive"),
        (b"MZ", "a Windows program or library"),
        (b"\xcf\xfa\xed\xfe", "a macOS program or library"),
        (b"#!", "a script"),
        (
            b"/* GNU ld script",
            "a linker script, for linking programs and not for loading",
        ),
    ];
    // https://github.com/apptainer/sif, pkg/sif/sif.go: 32 bytes of a script that starts it, then this.
    if start
        .get(32..)
        .is_some_and(|rest| rest.starts_with(b"SIF_MAGIC"))
    {
        return "an Apptainer image (SIF)".to_owned();
    }
    if let Some((_, words)) = MAGIC.iter().find(|(magic, _)| start.starts_with(magic)) {
        return (*words).to_owned();
    }
    let text = start.trim_ascii_start();
    let begins = |tag: &[u8]| {
        text.get(..tag.len())
            .is_some_and(|t| t.eq_ignore_ascii_case(tag))
    };
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..);
    if begins(b"<!doctype html") || begins(b"<html") {
        "an HTML page".to_owned()
    } else if start.iter().all(|byte| *byte == 0) {
        "a file that begins with zero bytes only".to_owned()
    } else if start.iter().all(is_text) && String::from_utf8_lossy(start).chars().count() > 3 {
        "a text file".to_owned()
    } else {
        let first = hexadecimal(start.get(..8).unwrap_or(start));
        format!("no ELF file: it begins with the bytes {first}")
    }
}
