//! A cubin: an ELF file of machine number 190 that holds the code of one GPU architecture, and says which toolkit built it.

use std::collections::BTreeSet;

use super::{Arch, Suffix};
use crate::read::notes::{Note, notes};
use crate::read::window::{ReadAt, bytes, bytes_up_to};
use crate::read::{Endian, text_to_nul};
use crate::version::Version;

/// `e_machine` of a cubin.
pub(super) const MACHINE: u16 = 190;
/// The bytes of a cubin's start that tell its generation and, up to CUDA 12.9, its toolkit.
pub(super) const START: usize = 24;
/// Toolkits by the old rule: from 6.0 to 12.9, and some room. The new rule has 1 there.
const OLD_VERSIONS: std::ops::Range<u32> = 60..200;
/// The most section headers that are looked through for notes; in all cubins seen, the notes are among the first ten.
const MAX_SECTIONS: u64 = 4096;
/// How many of them are read in one go.
const SECTIONS_AT_ONCE: u64 = 12;
/// The most bytes of one note section; those of nvlink list the folders it searched.
const MAX_NOTE: usize = 64 << 10;
/// Owner of the notes.
const OWNER: &str = "NVIDIA Corp";
/// Note with the names and versions of the tools.
const TOOL_INFO: u32 = 2000;
/// Note with numbers: note version, virtual SM, toolkit.
const CUDA_INFO: u32 = 1000;

/// The toolkit that built a cubin, by its first [`START`] bytes. `None` for the generation that keeps it in notes, and
/// for what is no cubin.
pub(super) fn toolkit_of_start(start: &[u8]) -> Option<Version> {
    let e_version = Endian::Little.u32(start, 0x14)?;
    let is_cubin =
        start.starts_with(b"\x7fELF") && Endian::Little.u16(start, 0x12) == Some(MACHINE);
    (is_cubin && OLD_VERSIONS.contains(&e_version)).then(|| tenfold(e_version))
}

/// 129 is 12.9.
fn tenfold(number: u32) -> Version {
    Version::from_cuda_level(number / 10 * 1000 + number % 10 * 10)
}

/// The toolkits that built a cubin: one, or two where a newer tool linked what an older one had compiled.
///
/// By (1) the version field of the ELF header, (2) the oldest of the tools in the note `.note.nv.tkinfo`, and the number
/// in `.note.nv.cuinfo`. The command lines and folders that those notes also hold are private and are not handed out.
pub(super) fn toolkits(cubin: &dyn ReadAt) -> BTreeSet<Version> {
    let start = bytes_up_to(cubin, 0, 64);
    if let Some(toolkit) = toolkit_of_start(&start) {
        return [toolkit].into();
    }
    told_by(nvidia_notes(cubin, &start))
}

/// The same by the start of a cubin alone, as far as it has the notes: in all cubins seen they stand behind the names and
/// symbols, before the code, while the section table is at the very end. Nothing where the start has not both of them.
pub(super) fn toolkits_in_head(head: &[u8]) -> BTreeSet<Version> {
    const MAX_NOTES: usize = 8;
    /// Lengths of owner and content, type.
    const BEFORE: usize = 12;
    if let Some(toolkit) = toolkit_of_start(head) {
        return [toolkit].into();
    }
    if !head.starts_with(b"\x7fELF\x02\x01") || Endian::Little.u16(head, 0x12) != Some(MACHINE) {
        return BTreeSet::new();
    }
    let owned = memchr::memmem::find_iter(head, b"NVIDIA Corp\0").take(MAX_NOTES);
    let owned: Vec<Note> = owned
        .filter_map(|at| {
            let rest = head.get(at.checked_sub(BEFORE)?..)?;
            let rest = rest.get(..MAX_NOTE).unwrap_or(rest);
            let note = notes(rest, 4, Endian::Little).into_iter().next()?;
            (note.owner == OWNER).then_some(note)
        })
        .collect();
    let has = |kind: u32| owned.iter().any(|note| note.kind == kind);
    if has(TOOL_INFO) && has(CUDA_INFO) {
        told_by(owned)
    } else {
        BTreeSet::new()
    }
}

/// The toolkits that the notes of a cubin tell.
fn told_by(notes: impl IntoIterator<Item = Note>) -> BTreeSet<Version> {
    let mut found = BTreeSet::new();
    let mut oldest: Option<Version> = None;
    for note in notes {
        if note.kind == TOOL_INFO {
            for tool in tool_versions(&note.descriptor) {
                oldest = Some(oldest.map_or(tool.clone(), |known| known.min(tool)));
            }
        } else if note.kind == CUDA_INFO {
            // The older layout of 12.8 and 12.9 has no third number.
            let number = Endian::Little.u16(&note.descriptor, 4).map(u32::from);
            found.extend(number.filter(|n| OLD_VERSIONS.contains(n)).map(tenfold));
        }
    }
    found.extend(oldest);
    found
}

/// The notes of NVIDIA's tools in a cubin whose first bytes are `start`.
fn nvidia_notes(cubin: &dyn ReadAt, start: &[u8]) -> Vec<Note> {
    const SHT_NOTE: u32 = 7;
    let le = Endian::Little;
    let mut found = Vec::new();
    let word = |at| le.u16(start, at).map(u64::from);
    let (Some(table), Some(64), Some(count)) = (le.u64(start, 0x28), word(0x3a), word(0x3c)) else {
        return found;
    };
    if !start.starts_with(b"\x7fELF\x02\x01") {
        return found;
    }
    let mut index = 0;
    while index < count.min(MAX_SECTIONS) && found.is_empty() {
        let Some(at) = index.checked_mul(64).and_then(|i| table.checked_add(i)) else {
            break;
        };
        for header in bytes_up_to(cubin, at, 64 * 12).chunks_exact(64) {
            let (Some(SHT_NOTE), Some(offset), Some(size)) = (
                le.u32(header, 4),
                le.u64(header, 0x18),
                le.u64(header, 0x20),
            ) else {
                continue;
            };
            let len = usize::try_from(size).unwrap_or(MAX_NOTE).min(MAX_NOTE);
            let notes = notes(&bytes_up_to(cubin, offset, len), 4, le);
            found.extend(notes.into_iter().filter(|note| note.owner == OWNER));
        }
        index += SECTIONS_AT_ONCE;
    }
    found
}

/// The versions in the texts of a tool note: `Cuda compilation tools, release 13.2, V13.2.86`.
fn tool_versions(descriptor: &[u8]) -> impl Iterator<Item = Version> {
    const SAYS: &[u8] = b"compilation tools, release ";
    memchr::memmem::find_iter(descriptor, SAYS).filter_map(|at| {
        let text = text_to_nul(descriptor.get(at.checked_add(SAYS.len())?..)?);
        let release = text.split(',').next()?;
        Version::parse(&Version::parse(release)?.major_minor())
    })
}

/// The architecture that a cubin on its own is for, by its header: the SM stands in the low byte of the flags up to
/// CUDA 12.9, and in the next one from the new generation on.
///
/// In the old generation only `sm_90a` can be told from `sm_90`: the flag's bit is set on some others without that
/// meaning. The new one has the letter nowhere but in the compiler's command line, in a note.
pub fn arch(cubin: &dyn ReadAt) -> Option<Arch> {
    const SAYS: &[u8] = b"-arch sm_";
    let start = bytes(cubin, 0, 64)?;
    if !start.starts_with(b"\x7fELF") || Endian::Little.u16(&start, 0x12)? != MACHINE {
        return None;
    }
    let flags = Endian::Little.u32(&start, 0x30)?;
    let plain = |number| Arch {
        number,
        suffix: Suffix::None,
    };
    if OLD_VERSIONS.contains(&Endian::Little.u32(&start, 0x14)?) {
        let suffix = if flags & 0xff == 90 && flags & 0x800 != 0 {
            Suffix::Specific
        } else {
            Suffix::None
        };
        return Some(Arch {
            number: flags & 0xff,
            suffix,
        });
    }
    let number = flags >> 8 & 0xff;
    let told = nvidia_notes(cubin, &start).into_iter().find_map(|note| {
        let at = memchr::memmem::find(&note.descriptor, SAYS)?;
        let text = text_to_nul(note.descriptor.get(at.checked_add(SAYS.len())?..)?);
        Arch::parse(text.split_whitespace().next()?).filter(|arch| arch.number == number)
    });
    Some(told.unwrap_or_else(|| plain(number)))
}
