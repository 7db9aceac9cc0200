//! `ld.so.cache`: which file glibc's loader takes for a soname where no search path names one.
//!
//! Only the entries that were asked for are read; the folders behind the cache are not looked at. musl has no cache.

use super::{Endian, text_to_nul};

/// The header of today's format; until glibc 2.31, `ldconfig` put a table of the old format before it.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// The header of the old format: this, one byte of nothing, and the number of entries.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;
/// Magic, count, length of the strings, byte order, offset of the extensions, and room.
const HEADER: usize = 48;
/// Flags, offsets of key and value, an unused word, and hardware capabilities as 64 bits.
const ENTRY: usize = 24;

/// One line of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEntry {
    /// `libcuda.so.1`
    pub soname: String,
    /// The file, as `ldconfig` found it; it may be gone by now.
    pub path: String,
    /// Which kind of library: see [`is_for_arch`].
    pub flags: i32,
    /// 0 for an ordinary entry; else the processor features it is for, and the loader takes it first where they match.
    pub hwcap: u64,
}

/// Whether an entry's flags mean glibc libraries of this architecture: 0x0303 x86-64, 0x0a03 `AArch64`.
pub fn is_for_arch(flags: i32, arch: &str) -> bool {
    match arch {
        "x86_64" => flags == 0x0303,
        "aarch64" => flags == 0x0a03,
        _ => false,
    }
}

/// The entries whose soname is one of `wanted`, in the cache's order.
///
/// # Errors
/// In words: this is no cache, or it is cut off. An entry whose offsets lead out of the cache is left out.
pub fn parse(bytes: &[u8], wanted: &[&str]) -> Result<Vec<CacheEntry>, String> {
    entries(bytes, |soname| {
        wanted.iter().any(|w| w.as_bytes() == soname)
    })
}

/// The entries whose soname begins with one of `prefixes`, such as `libcudart.so`, in the cache's order.
///
/// # Errors
/// As [`parse`].
pub fn parse_prefixed(bytes: &[u8], prefixes: &[&str]) -> Result<Vec<CacheEntry>, String> {
    entries(bytes, |soname| {
        prefixes.iter().any(|p| soname.starts_with(p.as_bytes()))
    })
}

/// The names of the glibc-hwcaps folders that entries of the cache refer to by their index: `x86-64-v3`. Caches of glibc
/// before 2.33 have none.
pub fn hwcaps_names(bytes: &[u8]) -> Vec<String> {
    /// First word of the extensions.
    const MAGIC: u32 = 0xeaa4_2174;
    /// Tag of the list of names.
    const HWCAPS: u32 = 1;
    /// The most names; there are three for x86-64.
    const MAX_NAMES: usize = 64;
    let names = || {
        let cache = newest_table(bytes).ok()?;
        let number = |at: usize| {
            Endian::Little
                .u32(cache, at)
                .and_then(|n| usize::try_from(n).ok())
        };
        let at = number(32).filter(|at| *at > 0)?;
        let magic = Endian::Little.u32(cache, at)?;
        let count = number(at.checked_add(4)?)?.min(MAX_NAMES);
        (magic == MAGIC).then_some(())?;
        let mut names = Vec::new();
        for index in 0..count {
            let record = at.checked_add(8)?.checked_add(index * 16)?;
            if Endian::Little.u32(cache, record)? != HWCAPS {
                continue;
            }
            let (start, len) = (
                number(record.checked_add(8)?)?,
                number(record.checked_add(12)?)?,
            );
            let list = cache.get(start..start.checked_add(len)?)?;
            for offset in list.chunks_exact(4).take(MAX_NAMES) {
                let name = usize::try_from(Endian::Little.u32(offset, 0)?).ok()?;
                let name = cache.get(name..)?;
                names.push(text_to_nul(name.get(..64).unwrap_or(name)));
            }
        }
        Some(names)
    };
    names().unwrap_or_default()
}

fn entries(bytes: &[u8], keep: impl Fn(&[u8]) -> bool) -> Result<Vec<CacheEntry>, String> {
    let cache = newest_table(bytes)?;
    // Until glibc 2.32 the byte order was not recorded, and no such machine of ours is big-endian.
    let endian = if cache.get(28).is_some_and(|order| order & 3 == 3) {
        Endian::Big
    } else {
        Endian::Little
    };
    let count = endian
        .u32(cache, 20)
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(0);
    let table = count
        .checked_mul(ENTRY)
        .and_then(|len| cache.get(HEADER..HEADER.checked_add(len)?));
    let table = table.ok_or_else(|| {
        format!(
            "the cache is cut off: it says {count} entries, but it has {} bytes",
            bytes.len()
        )
    })?;
    let read = |entry: &[u8]| {
        let string = |at| cache.get(usize::try_from(endian.u32(entry, at)?).ok()?..);
        let soname = string(4)?;
        let soname = soname.get(..memchr::memchr(0, soname)?)?;
        if !keep(soname) {
            return None;
        }
        Some(CacheEntry {
            soname: text_to_nul(soname),
            path: path(string(8)?)?,
            flags: endian.u32(entry, 0)?.cast_signed(),
            hwcap: endian.u64(entry, 16)?,
        })
    };
    Ok(table.chunks_exact(ENTRY).filter_map(read).collect())
}

/// The path at the start of these bytes; `None` where none ends within the 4,096 bytes that Linux lets a path have.
fn path(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.get(..4096).unwrap_or(bytes);
    bytes.contains(&0).then(|| text_to_nul(bytes))
}

/// The table of today's format; offsets in it count from its own start.
fn newest_table(bytes: &[u8]) -> Result<&[u8], String> {
    if bytes.starts_with(MAGIC) {
        return Ok(bytes);
    }
    if !bytes.starts_with(OLD_MAGIC) {
        return Err("this is no ld.so.cache of glibc".to_owned());
    }
    let count = Endian::Little
        .u32(bytes, OLD_HEADER - 4)
        .and_then(|n| usize::try_from(n).ok());
    let end = count.and_then(|n| n.checked_mul(OLD_ENTRY)?.checked_add(OLD_HEADER));
    // Aligned to the 64-bit numbers in it, which is 4 bytes on 32-bit x86.
    let candidates = end
        .into_iter()
        .flat_map(|end| [end.checked_next_multiple_of(8), Some(end)]);
    candidates
        .flatten()
        .find_map(|at| bytes.get(at..).filter(|table| table.starts_with(MAGIC)))
        .ok_or_else(|| "the cache has only the table of glibc before 2.2, or is cut off".to_owned())
}
