//! Symbol versions that a library defines, and whether it defines given symbols: by the tables the loader uses.
//!
//! Each question is a hash lookup of a few small reads; no symbol table is loaded, however large it is.

use std::ops::Range;

use goblin::elf::dynamic::{
    DT_GNU_HASH, DT_HASH, DT_RELA, DT_STRSZ, DT_STRTAB, DT_SYMTAB, DT_VERDEF, DT_VERDEFNUM,
    DT_VERNEED, DT_VERSYM,
};

use super::Endian;
use super::dynamic::Dynamic;
use super::elf::Headers;
use super::window::{ReadAt, bytes, bytes_up_to};
use crate::version::Version;

/// The most version definitions that are looked at; glibc has about 45.
const MAX_DEFINITIONS: u64 = 1024;
/// The most symbols of one hash chain that are looked at; linkers keep chains at a handful.
const MAX_CHAIN: usize = 512;

/// The highest version that a library defines under a prefix: `GLIBC_` of `libc.so.6` is the C library's own version.
///
/// Names whose rest is no number (`GLIBC_PRIVATE`) do not count. `None` where nothing is defined under the prefix.
pub fn highest_version_definition(file: &dyn ReadAt, prefix: &str) -> Option<Version> {
    let headers = Headers::read(file).ok()?;
    let dynamic = Dynamic::read(file, &headers);
    let count = dynamic.value(DT_VERDEFNUM)?.min(MAX_DEFINITIONS);
    let mut at = dynamic.address(DT_VERDEF)?;
    let mut highest = None;
    for _ in 0..count {
        // version, flags, index, count (16 bits each), hash, offset of the names, offset of the next definition
        let Some(definition) = bytes(file, at, 20) else {
            break;
        };
        let word = |i| headers.endian.u32(&definition, i).map(u64::from);
        let (Some(names), Some(next)) = (word(12), word(16)) else {
            break;
        };
        // The first name is its own; the others are its parents.
        let name = at.checked_add(names).and_then(|at| bytes(file, at, 4));
        let name = name.and_then(|raw| headers.endian.u32(&raw, 0));
        let name = name.and_then(|offset| dynamic.name(file, u64::from(offset)));
        let version = name
            .as_deref()
            .and_then(|n| n.strip_prefix(prefix))
            .and_then(Version::parse);
        highest = highest.max(version);
        match at.checked_add(next) {
            Some(after) if next != 0 => at = after,
            _ => break,
        }
    }
    highest
}

/// Whether a library defines each of the wanted dynamic symbols, in the order in which they were asked for.
pub fn dynamic_symbols_defined(file: &dyn ReadAt, wanted: &[&str]) -> Vec<bool> {
    let table = Headers::read(file)
        .ok()
        .map(|headers| SymbolTable::of(file, &headers));
    let defined = |name: &&str| {
        table
            .as_ref()
            .is_some_and(|table| table.defines(name).unwrap_or(false))
    };
    wanted.iter().map(defined).collect()
}

/// The content of a dynamic symbol that a library defines: a function's code or a variable's bytes, `max` at most.
pub fn symbol_content(file: &dyn ReadAt, name: &str, max: usize) -> Option<Vec<u8>> {
    let headers = Headers::read(file).ok()?;
    let table = SymbolTable::of(file, &headers);
    let (at, size) = table.content(table.find(name)?)?;
    let len = usize::try_from(size).unwrap_or(max).min(max);
    Some(bytes_up_to(file, at, len))
}

/// Where the tables lie that a symbol is looked up in: hashes, symbols, versions and names. Each of them ends where the next
/// one begins.
pub fn symbol_tables(file: &dyn ReadAt) -> Vec<Range<u64>> {
    /// As much as is told of one that no other follows.
    const MAX_TABLE: u64 = 256 << 10;
    let Ok(headers) = Headers::read(file) else {
        return Vec::new();
    };
    let dynamic = Dynamic::read(file, &headers);
    let names = dynamic.address(DT_STRTAB).zip(dynamic.value(DT_STRSZ));
    let names = names.and_then(|(at, size)| Some(at..at.checked_add(size)?));
    let all = [
        DT_GNU_HASH,
        DT_HASH,
        DT_SYMTAB,
        DT_STRTAB,
        DT_VERSYM,
        DT_VERNEED,
        DT_VERDEF,
        DT_RELA,
    ];
    let mut starts: Vec<u64> = all
        .into_iter()
        .filter_map(|tag| dynamic.address(tag))
        .collect();
    starts.sort_unstable();
    let tables = [DT_GNU_HASH, DT_HASH, DT_SYMTAB, DT_VERDEF].into_iter();
    let tables = tables.filter_map(|tag| {
        let start = dynamic.address(tag)?;
        let next = starts.iter().find(|other| **other > start).copied();
        let most = start.saturating_add(MAX_TABLE);
        Some(start..next.unwrap_or(most).min(most))
    });
    tables.chain(names).collect()
}

struct SymbolTable<'a> {
    file: &'a dyn ReadAt,
    dynamic: Dynamic,
    endian: Endian,
    is_64: bool,
}

impl<'a> SymbolTable<'a> {
    fn of(file: &'a dyn ReadAt, headers: &Headers) -> Self {
        let dynamic = Dynamic::read(file, headers);
        Self {
            file,
            dynamic,
            endian: headers.endian,
            is_64: headers.is_64(),
        }
    }

    fn defines(&self, name: &str) -> Option<bool> {
        self.find(name).map(|_| true)
    }

    /// The index of a symbol that is defined here.
    fn find(&self, name: &str) -> Option<u32> {
        if name.is_empty() {
            return None;
        }
        match self.dynamic.address(DT_GNU_HASH) {
            Some(at) => self.by_gnu_hash(at, name),
            None => self.by_old_hash(self.dynamic.address(DT_HASH)?, name),
        }
    }

    /// The 32-bit number at index `i` of a table.
    fn u32(&self, table: u64, i: u64) -> Option<u32> {
        let at = table.checked_add(i.checked_mul(4)?)?;
        self.endian.u32(&bytes(self.file, at, 4)?, 0)
    }

    /// Table: bucket count, first symbol, filter size, filter shift; filter words; buckets; one hash per symbol, whose
    /// lowest bit marks the end of a chain.
    fn by_gnu_hash(&self, table: u64, name: &str) -> Option<u32> {
        let hash = name.bytes().fold(5381u32, |h, b| {
            h.wrapping_mul(33).wrapping_add(u32::from(b))
        });
        let (buckets, first, filter) = (
            self.u32(table, 0)?,
            self.u32(table, 1)?,
            self.u32(table, 2)?,
        );
        let filter_words = u64::from(filter) * if self.is_64 { 2 } else { 1 };
        let chains = 4 + filter_words + u64::from(buckets);
        let mut symbol = self.u32(
            table,
            4 + filter_words + u64::from(hash.checked_rem(buckets)?),
        )?;
        for _ in 0..MAX_CHAIN {
            let found = self.u32(table, chains + u64::from(symbol.checked_sub(first)?))?;
            if found | 1 == hash | 1 && self.is_defined_as(symbol, name) == Some(true) {
                return Some(symbol);
            }
            if found & 1 == 1 {
                return None;
            }
            symbol = symbol.checked_add(1)?;
        }
        None
    }

    /// Table: bucket count, symbol count; buckets; for each symbol the next of its chain. NVIDIA's libraries up to
    /// branch 470 have only this one.
    fn by_old_hash(&self, table: u64, name: &str) -> Option<u32> {
        let hash = name.bytes().fold(0u32, |h, b| {
            let h = (h << 4).wrapping_add(u32::from(b));
            let high = h & 0xf000_0000;
            (h ^ (high >> 24)) & !high
        });
        let buckets = self.u32(table, 0)?;
        let mut symbol = self.u32(table, 2 + u64::from(hash.checked_rem(buckets)?))?;
        for _ in 0..MAX_CHAIN {
            if symbol == 0 {
                return None;
            }
            if self.is_defined_as(symbol, name) == Some(true) {
                return Some(symbol);
            }
            symbol = self.u32(table, 2 + u64::from(buckets) + u64::from(symbol))?;
        }
        None
    }

    /// Where in the file the content of a symbol lies, and how long it is.
    fn content(&self, symbol: u32) -> Option<(u64, u64)> {
        let entry_size = if self.is_64 { 24 } else { 16 };
        let at = self
            .dynamic
            .address(DT_SYMTAB)?
            .checked_add(u64::from(symbol) * entry_size)?;
        let entry = bytes(self.file, at, usize::try_from(entry_size).ok()?)?;
        let (value, size) = if self.is_64 {
            (self.endian.u64(&entry, 8)?, self.endian.u64(&entry, 16)?)
        } else {
            (
                self.endian.u32(&entry, 4)?.into(),
                self.endian.u32(&entry, 8)?.into(),
            )
        };
        Some((self.dynamic.offset_of(value)?, size))
    }

    fn is_defined_as(&self, symbol: u32, name: &str) -> Option<bool> {
        let (size, section) = if self.is_64 { (24, 6) } else { (16, 14) };
        let at = self
            .dynamic
            .address(DT_SYMTAB)?
            .checked_add(u64::from(symbol) * size)?;
        let entry = bytes_up_to(self.file, at, usize::try_from(size).ok()?);
        let undefined = self.endian.u16(&entry, section)? == 0;
        let called = self
            .dynamic
            .name(self.file, u64::from(self.endian.u32(&entry, 0)?))?;
        Some(!undefined && called == name)
    }
}
