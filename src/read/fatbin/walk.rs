//! The walk over fat binaries: containers back to back, in each a list of entries. Only headers are read.
//!
//! A container is 16 bytes of header and its entries; an entry is a header of 64 bytes or more, then its payload. All
//! numbers are little-endian on every machine.

use std::ops::{ControlFlow, Range};

use super::{Arch, Isa};
use crate::read::Endian;
use crate::read::window::{ReadAt, bytes_up_to, fill};

/// The first bytes of a container.
pub(super) const MAGIC: [u8; 4] = [0x50, 0xed, 0x55, 0xba];
/// Length of a container's header.
pub(super) const CONTAINER: u64 = 16;
/// The least length of an entry's header.
pub(super) const ENTRY: u64 = 64;
/// The most cubins of one concatenated entry.
const MAX_CONCATENATED: u32 = 1024;
/// The most bytes of their headers.
pub(super) const MAX_TABLE: usize = 256 << 10;
/// How much of a payload is read along with the header, where it is of use: a cubin of the old generation has its toolkit
/// there.
pub(super) const START: usize = 64;
/// How much is read where headers lie close together.
const LARGE: usize = 64 << 10;

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// PTX, which the driver compiles.
    Ptx,
    /// A cubin: machine code.
    Cubin,
    /// Code for link-time optimisation; not runnable by itself.
    Lto,
    /// Another kind, by its number.
    Other(u16),
}

/// How a payload is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Packing {
    /// It is not.
    None,
    /// A raw LZ4 block.
    Lz4,
    /// A zstd frame: drivers before 550.54.14 cannot unpack it.
    Zstd,
}

/// One entry, by its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it holds.
    pub kind: Kind,
    /// What it is for.
    pub arch: Arch,
    /// PTX: the version of its language. Cubin: 1.7 up to CUDA 12.9, 1.8 since.
    pub isa: Isa,
    /// How the payload is packed.
    pub packing: Packing,
    /// Where the payload begins.
    pub payload: u64,
    /// Bytes of the payload in the file.
    pub stored: u64,
    /// Bytes of the payload unpacked.
    pub unpacked: u64,
    /// Where in the unpacked payload the cubin lies: only for a concatenated one it is not 0.
    pub inner: u64,
}

impl Entry {
    /// Whether it is a cubin that has its toolkit in its first bytes: up to CUDA 12.9.
    pub(super) fn is_old_cubin(&self) -> bool {
        self.kind == Kind::Cubin && self.isa <= Isa { major: 1, minor: 7 }
    }
}

/// What the walk tells.
pub(super) enum Event<'a> {
    /// A container begins.
    Container,
    /// An entry, and as many bytes of its payload as were read along with the header.
    Entry(&'a Entry, &'a [u8]),
    /// The container has ended.
    End,
    /// Something is not as it should be, at this offset.
    Problem(u64, &'static str),
}

/// Whether a container begins with these bytes, and its length with the header.
pub(super) fn container(header: &[u8]) -> Option<u64> {
    let is_one = header.starts_with(&MAGIC)
        && Endian::Little.u16(header, 4) == Some(1)
        && Endian::Little.u16(header, 6) == Some(16);
    if !is_one {
        return None;
    }
    Endian::Little.u64(header, 8)?.checked_add(CONTAINER)
}

/// Walks the containers of `range`. What lies between them is stepped over, 8 bytes at a time.
pub(super) fn walk(
    file: &dyn ReadAt,
    range: Range<u64>,
    visit: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) {
    let end = range.end.min(file.len());
    let mut headers = Reader::new(file);
    let mut at = range.start;
    let mut lost = false;
    while at.checked_add(CONTAINER).is_some_and(|after| after <= end) {
        let length = headers.get(at, 16, 64).and_then(container);
        let Some(length) = length else {
            // Zeros between containers are padding; anything else is said once.
            let word = headers.get(at, 8, 0);
            let Some(word) = word else { break };
            if !lost && word != [0; 8] {
                lost = true;
                if visit(Event::Problem(at, "is no fat binary")).is_break() {
                    return;
                }
            }
            at += 8;
            continue;
        };
        lost = false;
        let stop = at.saturating_add(length);
        if visit(Event::Container).is_break() {
            return;
        }
        if stop > end && visit(Event::Problem(at, "a fat binary is cut off")).is_break() {
            return;
        }
        if entries(file, &mut headers, at + CONTAINER..stop.min(end), visit).is_break() {
            return;
        }
        if visit(Event::End).is_break() {
            return;
        }
        at = stop;
    }
}

fn entries(
    file: &dyn ReadAt,
    headers: &mut Reader<'_>,
    range: Range<u64>,
    visit: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut at = range.start;
    while at < range.end {
        let room = range.end - at;
        let parsed = headers.get(at, 64, 0).and_then(Header::parse);
        let Some(header) = parsed.filter(|h| h.length >= ENTRY && h.length <= room) else {
            return visit(Event::Problem(at, "an entry of a fat binary is corrupt"));
        };
        let payload = at + header.length;
        let Some(next) = payload.checked_add(header.padded) else {
            return visit(Event::Problem(at, "an entry of a fat binary is corrupt"));
        };
        if header.kind == CONCATENATED {
            concatenated(file, at, payload, &header, visit)?;
        } else {
            let entry = header.entry(payload);
            if entry.kind == Kind::Cubin {
                headers.with_start = entry.is_old_cubin();
            }
            let start = headers.have(payload);
            visit(Event::Entry(&entry, start))?;
        }
        if next > range.end {
            return visit(Event::Problem(at, "an entry of a fat binary is cut off"));
        }
        at = next;
    }
    ControlFlow::Continue(())
}

/// The kind of an entry that holds several cubins.
pub(super) const CONCATENATED: u16 = 0x100;

/// Several cubins packed into one payload: their headers stand unpacked behind the entry's own, each with options of its
/// own length from `sm_100` on.
fn concatenated(
    file: &dyn ReadAt,
    at: u64,
    payload: u64,
    outer: &Header,
    visit: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    /// What stands in every entry behind its kind.
    const ATTRIBUTE: u16 = 0x0101;
    let table = at.saturating_add(ENTRY);
    let len = usize::try_from(payload.saturating_sub(table)).unwrap_or(MAX_TABLE);
    let table = bytes_up_to(file, table, len.min(MAX_TABLE));
    // count, length of the table
    let count = Endian::Little.u32(&table, 0).unwrap_or(0);
    let mut rest = table.get(8..).unwrap_or_default();
    let mut seen = 0;
    while seen < count.min(MAX_CONCATENATED) && rest.len() >= 64 {
        let le = Endian::Little;
        let is_header =
            matches!(le.u16(rest, 0), Some(1 | 2 | 8)) && le.u16(rest, 2) == Some(ATTRIBUTE);
        let header = Header::parse(rest).filter(|_| is_header);
        let Some(inner) = header else {
            rest = rest.get(8..).unwrap_or_default();
            continue;
        };
        let entry = Entry {
            // The word that is a header's length elsewhere is the place in the unpacked payload here.
            inner: inner.length,
            packing: outer.packing(),
            stored: outer.stored(),
            unpacked: outer.unpacked,
            ..inner.entry(payload)
        };
        visit(Event::Entry(&entry, &[]))?;
        seen += 1;
        rest = rest.get(64..).unwrap_or_default();
    }
    if seen < count {
        visit(Event::Problem(at, "a concatenated entry is corrupt"))?;
    }
    ControlFlow::Continue(())
}

/// The header of an entry as it stands in the file.
pub(super) struct Header {
    pub(super) kind: u16,
    pub(super) length: u64,
    pub(super) padded: u64,
    packed: u64,
    isa: Isa,
    number: u32,
    flags: u64,
    unpacked: u64,
}

impl Header {
    pub(super) fn parse(raw: &[u8]) -> Option<Self> {
        let le = Endian::Little;
        Some(Self {
            kind: le.u16(raw, 0)?,
            length: le.u32(raw, 4)?.into(),
            padded: le.u64(raw, 8)?,
            packed: le.u32(raw, 0x10)?.into(),
            isa: Isa {
                minor: le.u16(raw, 0x18)?,
                major: le.u16(raw, 0x1a)?,
            },
            number: le.u32(raw, 0x1c)?,
            flags: le.u64(raw, 0x28)?,
            unpacked: le.u64(raw, 0x38)?,
        })
    }

    fn packing(&self) -> Packing {
        if self.flags & 0x8000 != 0 {
            Packing::Zstd
        } else if self.flags & 0x2000 != 0 {
            Packing::Lz4
        } else {
            Packing::None
        }
    }

    fn stored(&self) -> u64 {
        if self.packed == 0 {
            self.padded
        } else {
            self.packed.min(self.padded)
        }
    }

    pub(super) fn entry(&self, payload: u64) -> Entry {
        let packing = self.packing();
        Entry {
            kind: match self.kind {
                1 => Kind::Ptx,
                2 => Kind::Cubin,
                8 => Kind::Lto,
                other => Kind::Other(other),
            },
            arch: Arch::of_flags(self.number, self.flags),
            isa: self.isa,
            packing,
            payload,
            stored: self.stored(),
            unpacked: if packing == Packing::None {
                self.stored()
            } else {
                self.unpacked
            },
            inner: 0,
        }
    }
}

/// Reads headers: no more than the header where the next is far, larger pieces where it is close by.
struct Reader<'a> {
    file: &'a dyn ReadAt,
    start: u64,
    have: Vec<u8>,
    step: usize,
    /// The payloads seen last have something to read at their start.
    with_start: bool,
}

impl<'a> Reader<'a> {
    fn new(file: &'a dyn ReadAt) -> Self {
        Self {
            file,
            start: 0,
            have: Vec::new(),
            step: START,
            with_start: true,
        }
    }

    /// `len` bytes at an offset; `None` where the file has fewer. Where they have to be read, so are the `next` bytes.
    fn get(&mut self, at: u64, len: usize, next: usize) -> Option<&[u8]> {
        if self.have(at).len() < len {
            let end = self.start.saturating_add(self.have.len() as u64);
            // What begins inside what is there, or at its end, is close by.
            let is_close = !self.have.is_empty() && (self.start..=end).contains(&at);
            self.step = if is_close {
                (self.step * 2).min(LARGE)
            } else {
                START
            };
            let start = if self.with_start { START } else { 0 };
            let wanted = self.step.max(len + next + start);
            // What would have to be unpacked again is worth that for the header alone.
            let at_hand = self.file.gist().map(|gist| gist.at_hand(at).len());
            let wanted = at_hand.map_or(wanted, |at_hand| wanted.min(at_hand.max(len)));
            self.have.resize(wanted, 0);
            let got = fill(self.file, at, &mut self.have).unwrap_or(0);
            self.have.truncate(got);
            self.start = at;
        }
        self.have(at).get(..len)
    }

    /// The bytes that are there from an offset on, without reading.
    fn have(&self, at: u64) -> &[u8] {
        at.checked_sub(self.start)
            .and_then(|skip| usize::try_from(skip).ok())
            .and_then(|skip| self.have.get(skip..))
            .unwrap_or_default()
    }
}
