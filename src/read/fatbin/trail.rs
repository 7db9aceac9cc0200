//! Fat binaries as they come by in a stream: which bytes of them the walk will ask for, so that they are kept.

use std::collections::BTreeSet;
use std::ops::Range;

use super::asked::{FIRST_PIECE, Samples};
use super::is_told_by_start;
use super::walk::{CONCATENATED, CONTAINER, ENTRY, Header, Kind, MAX_TABLE, START, container};

/// The first bytes of a container with its version and the length of its header, as a stream is searched for it.
pub(in crate::read) const BEGINS: [u8; 8] = [0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
/// How many bytes of a header [`Trail`] has to be shown.
pub(in crate::read) const SHOWN: usize = 64;
/// The longest header of an entry that is kept whole.
const MAX_OPTIONS: u64 = 4 << 10;

/// A container that is followed from header to header.
pub(in crate::read) struct Trail {
    at: u64,
    stop: u64,
}

/// What is to be kept of an entry.
pub(in crate::read) struct Step {
    /// Its header, and the start of its payload.
    pub(in crate::read) header: Range<u64>,
    /// The start of a cubin that may be asked for its toolkit.
    pub(in crate::read) head: Option<Range<u64>>,
}

/// Which cubins will be asked for their toolkit, as far as the stream has come by.
#[derive(Default)]
pub(in crate::read) struct Asked(Samples);

impl Asked {
    /// Where their payloads lie.
    pub(in crate::read) fn payloads(&self) -> BTreeSet<u64> {
        self.0.kept().map(|entry| entry.payload).collect()
    }
}

impl Trail {
    /// The container that begins with these bytes.
    pub(in crate::read) fn begin(at: u64, bytes: &[u8]) -> Option<Self> {
        Some(Self {
            at: at.checked_add(CONTAINER)?,
            stop: at.checked_add(container(bytes)?)?,
        })
    }

    /// Where the next header lies; `None` at the end.
    pub(in crate::read) fn next(&self) -> Option<u64> {
        (self.at < self.stop).then_some(self.at)
    }

    /// Where the container ends.
    pub(in crate::read) fn stop(&self) -> u64 {
        self.stop
    }

    /// Goes to the next header, by the one that lies at [`Trail::next`]; `None` where that is none.
    pub(in crate::read) fn step(&mut self, bytes: &[u8], asked: &mut Asked) -> Option<Step> {
        let room = self.stop - self.at;
        let header = Header::parse(bytes).filter(|h| h.length >= ENTRY && h.length <= room)?;
        let payload = self.at + header.length;
        let (most, start) = if header.kind == CONCATENATED {
            (MAX_TABLE as u64 + ENTRY, 0)
        } else {
            (MAX_OPTIONS, START as u64)
        };
        let end = payload.min(self.at + most).saturating_add(start);
        let step = Step {
            header: self.at..end,
            head: header.head(payload, asked),
        };
        self.at = payload.checked_add(header.padded)?;
        Some(step)
    }
}

impl Header {
    fn head(&self, payload: u64, asked: &mut Asked) -> Option<Range<u64>> {
        let entry = self.entry(payload);
        if entry.kind != Kind::Cubin || is_told_by_start(&entry) {
            return None;
        }
        let end = payload.checked_add(entry.stored.min(FIRST_PIECE as u64))?;
        asked.0.offer(&entry).then_some(payload..end)
    }
}
