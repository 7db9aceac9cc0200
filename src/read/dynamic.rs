//! The dynamic table of an ELF file: what the loader goes by. It needs no section headers.

use std::ops::Range;

use goblin::elf::dynamic::{
    DT_GNU_HASH, DT_HASH, DT_NULL, DT_STRSZ, DT_STRTAB, DT_SYMTAB, DT_VERDEF, DT_VERNEED, DT_VERSYM,
};
use goblin::elf::program_header::{PT_DYNAMIC, PT_LOAD, ProgramHeader};

use super::elf::Headers;
use super::text_to_nul;
use super::window::{ReadAt, bytes_up_to};

/// The most bytes of a dynamic table that are read: 4,096 entries of 16 bytes.
const MAX_DYNAMIC: usize = 64 << 10;

/// Where the tables lie that a dynamic table names, with as much of each as is ever asked for: names, hashes, symbols and
/// their versions.
pub(super) fn tables(file: &dyn ReadAt, headers: &Headers) -> Vec<Range<u64>> {
    const NAMES: u64 = 12 << 20;
    const SYMBOLS: u64 = 4 << 20;
    const VERSIONS: u64 = 128 << 10;
    let dynamic = Dynamic::read(file, headers);
    let size = dynamic.value(DT_STRSZ).unwrap_or(0).min(NAMES);
    let named = [
        (DT_VERNEED, VERSIONS),
        (DT_VERDEF, VERSIONS),
        (DT_VERSYM, VERSIONS),
        (DT_GNU_HASH, SYMBOLS),
        (DT_HASH, SYMBOLS),
        (DT_SYMTAB, SYMBOLS),
        (DT_STRTAB, size),
    ];
    let range = |(tag, most)| {
        let start = dynamic.address(tag)?;
        Some(start..start.checked_add(most)?)
    };
    named.into_iter().filter_map(range).collect()
}

/// The dynamic table: tags with their values, and where addresses lie in the file.
pub(super) struct Dynamic {
    entries: Vec<(u64, u64)>,
    /// Address, length and offset in the file of what is loaded.
    loads: Vec<(u64, u64, u64)>,
    strings: Option<Range<u64>>,
}

impl Dynamic {
    /// The table of a file; empty where it has none.
    pub(super) fn read(file: &dyn ReadAt, headers: &Headers) -> Self {
        Self::of(file, headers, &headers.segments(file))
    }

    pub(super) fn of(file: &dyn ReadAt, headers: &Headers, segments: &[ProgramHeader]) -> Self {
        let loads = segments.iter().filter(|s| s.p_type == PT_LOAD);
        let loads = loads.map(|s| (s.p_vaddr, s.p_filesz, s.p_offset)).collect();
        let table = segments.iter().find(|s| s.p_type == PT_DYNAMIC).map(|s| {
            let len = usize::try_from(s.p_filesz)
                .unwrap_or(MAX_DYNAMIC)
                .min(MAX_DYNAMIC);
            bytes_up_to(file, s.p_offset, len)
        });
        let word = |bytes: &[u8], at: usize| {
            if headers.is_64() {
                headers.endian.u64(bytes, at * 8)
            } else {
                headers.endian.u32(bytes, at * 4).map(u64::from)
            }
        };
        let size = if headers.is_64() { 16 } else { 8 };
        let entries = table.as_deref().unwrap_or_default().chunks_exact(size);
        let entries = entries.map_while(|entry| Some((word(entry, 0)?, word(entry, 1)?)));
        let entries = entries.take_while(|(tag, _)| *tag != DT_NULL).collect();
        let mut dynamic = Self {
            entries,
            loads,
            strings: None,
        };
        dynamic.strings = dynamic
            .address(DT_STRTAB)
            .and_then(|at| Some(at..at.checked_add(dynamic.value(DT_STRSZ)?)?));
        dynamic
    }

    /// The values of a tag, in order.
    pub(super) fn values(&self, tag: u64) -> impl Iterator<Item = u64> {
        self.entries
            .iter()
            .filter(move |(t, _)| *t == tag)
            .map(|(_, value)| *value)
    }

    /// The first value of a tag.
    pub(super) fn value(&self, tag: u64) -> Option<u64> {
        self.values(tag).next()
    }

    /// Where in the file the address lies that a tag holds.
    pub(super) fn address(&self, tag: u64) -> Option<u64> {
        self.offset_of(self.value(tag)?)
    }

    /// Where in the file an address lies once it is loaded.
    pub(super) fn offset_of(&self, address: u64) -> Option<u64> {
        self.loads.iter().find_map(|(start, len, offset)| {
            let inside = address.checked_sub(*start).filter(|inside| inside < len)?;
            offset.checked_add(inside)
        })
    }

    /// The name at an offset of the string table, of 4 KiB at most: a path is no longer.
    pub(super) fn name(&self, file: &dyn ReadAt, at: u64) -> Option<String> {
        self.string(file, at, [128, 4 << 10])
    }

    /// The list of folders at an offset of the string table, of 64 KiB at most; some wheels search dozens of folders.
    pub(super) fn folders(&self, file: &dyn ReadAt, at: u64) -> Option<String> {
        self.string(file, at, [1 << 10, 64 << 10])
    }

    fn string(&self, file: &dyn ReadAt, at: u64, sizes: [usize; 2]) -> Option<String> {
        let strings = self.strings.as_ref()?;
        let at = strings
            .start
            .checked_add(at)
            .filter(|at| *at < strings.end)?;
        sizes.into_iter().find_map(|len| {
            let piece = bytes_up_to(file, at, len);
            piece.contains(&0).then(|| text_to_nul(&piece))
        })
    }
}
