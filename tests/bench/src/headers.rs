//! How many bytes of a library its headers have: what a reader of the architecture lists cannot do without, and the
//! measure for what `gpudoctor inspect` reads. A parser of its own, so that it does not go by what the product thinks.
//!
//! Counted: the ELF header, program headers, section headers and their names, the dynamic table, the version needs, the
//! notes, in each `.nv_fatbin` and `__nv_relfatbin` the header of every container and of every entry, and of every cubin
//! the 64 bytes of its own ELF header. Not counted, though a reader of toolkits and runtimes needs some of it: the notes
//! inside cubins, symbols and their names, code and constants.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The first bytes of a container.
const MAGIC: u32 = 0xba55_ed50;
/// An entry that is a cubin.
const CUBIN: u64 = 2;
const SHT_DYNAMIC: u64 = 6;
const SHT_NOTE: u64 = 7;
const SHT_GNU_VERNEED: u64 = 0x6fff_fffe;

/// What was counted.
#[derive(Default)]
pub(crate) struct Headers {
    /// Bytes of all headers.
    pub(crate) bytes: u64,
    /// Containers of device code.
    pub(crate) containers: u64,
    /// Entries in them.
    pub(crate) entries: u64,
    /// Cubins among those.
    pub(crate) cubins: u64,
}

/// Counts the headers of a 64-bit little-endian ELF file.
///
/// # Errors
/// Where it cannot be read or is something else.
pub(crate) fn headers(path: &Path) -> Result<Headers, String> {
    let wrong = |e: io::Error| format!("{}: {e}", path.display());
    let file = File::open(path).map_err(wrong)?;
    count(&file).map_err(wrong)
}

fn count(file: &File) -> io::Result<Headers> {
    let mut found = Headers::default();
    let header = read(file, 0, 64)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Err(io::Error::other("no 64-bit little-endian ELF file"));
    }
    let (segments, sections) = (number(&header, 0x36, 2), number(&header, 0x38, 2));
    let section_count = number(&header, 0x3c, 2);
    let table = read(file, number(&header, 0x28, 8), section_count * 64)?;
    found.bytes += 64 + segments * sections + section_count * 64;
    let section = |index: u64| {
        let at = usize::try_from(index)
            .unwrap_or(usize::MAX)
            .saturating_mul(64);
        let raw = table.get(at..).unwrap_or_default();
        let start = number(raw, 0x18, 8);
        (
            number(raw, 0, 4),
            number(raw, 4, 4),
            start..start + number(raw, 0x20, 8),
        )
    };
    let (_, _, names) = section(number(&header, 0x3e, 2));
    found.bytes += names.end - names.start;
    let names = read(file, names.start, names.end - names.start)?;
    for (name, kind, range) in (0..section_count).map(section) {
        if [SHT_DYNAMIC, SHT_NOTE, SHT_GNU_VERNEED].contains(&kind) {
            found.bytes += range.end - range.start;
        }
        let name = usize::try_from(name).ok().and_then(|at| names.get(at..));
        let is_code = [&b".nv_fatbin\0"[..], b"__nv_relfatbin\0"]
            .iter()
            .any(|is| name.is_some_and(|name| name.starts_with(is)));
        if is_code {
            containers(file, range, &mut found)?;
        }
    }
    Ok(found)
}

fn containers(file: &File, range: Range<u64>, found: &mut Headers) -> io::Result<()> {
    let mut at = range.start;
    while at + 16 <= range.end {
        let header = read(file, at, 16)?;
        if number(&header, 0, 4) != u64::from(MAGIC) {
            // Padding between two.
            at += 8;
            continue;
        }
        found.containers += 1;
        found.bytes += 16;
        let end = at + 16 + number(&header, 8, 8);
        at += 16;
        while at < end.min(range.end) {
            let header = read(file, at, 64)?;
            let length = number(&header, 4, 4).max(64);
            found.entries += 1;
            found.bytes += length;
            if number(&header, 0, 2) == CUBIN {
                found.cubins += 1;
                found.bytes += 64;
            }
            at += length + number(&header, 8, 8);
        }
        at = end;
    }
    Ok(())
}

fn read(file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// A little-endian number of `len` bytes; 0 where there are fewer.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let raw = bytes.get(at..at + len).unwrap_or_default();
    raw.iter()
        .rev()
        .fold(0, |n, byte| n << 8 | u64::from(*byte))
}
