//! Device code where no tool looks for it: fat binaries and cubins among a program's data, found byte by byte.
//!
//! libcublasLt of CUDA 13 has 299 fat binaries in `.cask_resource`, `libtorch_cuda` has 58 in `.lrodata`, ONNX Runtime has
//! 114 cubins in `.rodata`. This reads all of these sections, so it is done only when asked for.

use std::ops::{ControlFlow, Range};

use memchr::memmem;

use super::walk::{MAGIC, container};
use super::{Collector, EXECUTABLE, Place, RELOCATABLE, Targets, bump, cubin};
use crate::read::Endian;
use crate::read::elf::{self, Section};
use crate::read::part::Part;
use crate::read::window::{ReadAt, scan};

/// The most places that are looked at more closely; false hits are rare.
const MAX_HITS: usize = 100_000;
/// Header of a cubin or a container, whichever is longer.
const OVERLAP: usize = 63;

/// Searches what is neither code nor a section for device code.
pub(super) fn search(file: &dyn ReadAt, sections: &[Section], collector: &mut Collector<'_>) {
    if sections.is_empty() {
        search_in(file, 0..file.len(), "no section table", collector);
    }
    for section in elf::apart(sections) {
        let known = [EXECUTABLE, RELOCATABLE].contains(&section.name.as_str());
        // Symbol and debug tables are no place for it, and are large.
        let is_table = [
            ".debug",
            ".symtab",
            ".strtab",
            ".dyn",
            ".gnu",
            ".rela",
            ".eh_frame",
            ".hip",
        ]
        .iter()
        .any(|start| section.name.starts_with(start));
        if !known && !is_table && !section.executable {
            search_in(file, section.range.clone(), &section.name, collector);
        }
    }
}

fn search_in(file: &dyn ReadAt, range: Range<u64>, name: &str, collector: &mut Collector<'_>) {
    let end = range.end.min(file.len());
    let fatbins = memmem::Finder::new(&MAGIC);
    let cubins = memmem::Finder::new(b"\x7fELF\x02\x01\x01");
    // Offsets and lengths; none overlaps the one before.
    let mut found: Vec<(u64, u64, bool)> = Vec::new();
    let mut after = range.start;
    scan(file, range.start..end, OVERLAP, |offset, window| {
        let mut hits: Vec<(usize, bool)> = fatbins.find_iter(window).map(|at| (at, true)).collect();
        hits.extend(cubins.find_iter(window).map(|at| (at, false)));
        hits.sort_unstable();
        for (at, is_fatbin) in hits {
            let here = offset.saturating_add(at as u64);
            let start = window.get(at..).unwrap_or_default();
            let length = if is_fatbin {
                container(start)
            } else {
                cubin_length(start)
            };
            let Some(length) = length.filter(|length| *length <= end.saturating_sub(here)) else {
                continue;
            };
            if here >= after && found.len() < MAX_HITS {
                found.push((here, length, is_fatbin));
                after = here.saturating_add(length.max(1));
            }
        }
        if found.len() < MAX_HITS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    for (at, length, is_fatbin) in found {
        if is_fatbin {
            collector.walk(at..at.saturating_add(length), Place::Stray(name));
            continue;
        }
        let part = Part::new(file, at..at.saturating_add(length));
        let Some(arch) = cubin::arch(&part) else {
            continue;
        };
        let codes = collector.code.stray.entry(name.to_owned()).or_default();
        bump(&mut codes.elf, arch);
        codes.module(Targets {
            elf: [arch].into(),
            ..Targets::default()
        });
        collector.code.asked.1 += 1;
        let toolkits = cubin::toolkits(&part);
        collector.code.asked.0 += u64::from(!toolkits.is_empty());
        for toolkit in toolkits {
            collector.found_toolkit(toolkit);
        }
    }
}

/// The length of a cubin by its header: to the end of its program headers or its section table, whichever is last.
fn cubin_length(header: &[u8]) -> Option<u64> {
    let le = Endian::Little;
    if le.u16(header, 0x12)? != cubin::MACHINE {
        return None;
    }
    let table = |at, size, count| {
        let len = u64::from(le.u16(header, size)?) * u64::from(le.u16(header, count)?);
        le.u64(header, at)?.checked_add(len)
    };
    Some(
        table(0x20, 0x36, 0x38)?
            .max(table(0x28, 0x3a, 0x3c)?)
            .max(64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_how_long_a_cubin_is() {
        let mut header = vec![0; 64];
        header[0x12] = 190;
        header[0x28..0x2a].copy_from_slice(&500u16.to_le_bytes());
        header[0x3a] = 64;
        header[0x3c] = 2;
        assert_eq!(cubin_length(&header), Some(628));
        header[0x12] = 62;
        assert_eq!(cubin_length(&header), None);
    }
}
