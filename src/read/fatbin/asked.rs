//! Which toolkits built the cubins.
//!
//! One of CUDA 12.8 and later keeps that in notes, and they may be packed. Unpacking is what costs here, so a spread-out
//! sample is asked, no more of it than befits the size of the file, and each only as far as its notes.

use std::collections::{BTreeMap, BTreeSet};

use super::unpack::{self, HEAD};
use super::walk::{Entry, Packing};
use super::{Arch, Collector, DeviceCode, STUB, cubin};
use crate::read::pages::Pages;
use crate::read::part::Part;
use crate::read::window::bytes_up_to;
use crate::version::Version;

/// The most bytes that samples may have unpacked, all together; one alone may have more where none has told anything.
pub(super) const SAMPLE_BUDGET: u64 = 8 << 20;
/// The most bytes that a deep look unpacks of one file.
pub(super) const DEEP_BUDGET: u64 = 2 << 30;
/// Samples kept for each target and way of packing: so many to twice as many.
const SAMPLES: usize = 7;
/// Groups of samples.
const MAX_GROUPS: usize = 256;
/// So many packed samples are asked of the smallest file, and one more for each [`BYTES_EACH`] of a larger one.
const LEAST_PACKED: u64 = 4;
/// cuobjdump takes 4 to 16 ms for a megabyte of a library; a packed sample takes a twentieth of that.
const BYTES_EACH: u64 = 1 << 20;
/// How much of a packed cubin has its notes nearly always: so much of what LZ4 packed is unpacked before all of it is.
pub(super) const FIRST_PIECE: usize = 32 << 10;
/// The most bytes that one cubin may have unpacked.
const MAX_CUBIN: u64 = 64 << 20;

/// Cubins whose toolkit is still to be read.
#[derive(Default)]
pub(super) struct Samples(BTreeMap<(Arch, Packing), Group>);

/// Those for one target and packed one way: evenly spread over the file, of each stretch the smallest.
#[derive(Default)]
struct Group {
    kept: Vec<Entry>,
    seen: u64,
    /// How many in a row share one place among the kept.
    stride: u64,
}

impl Samples {
    /// Keeps a cubin, or not; whether it is one of them now.
    pub(super) fn offer(&mut self, entry: &Entry) -> bool {
        let group = (entry.arch, entry.packing);
        if self.0.len() >= MAX_GROUPS && !self.0.contains_key(&group) {
            return false;
        }
        let group = self.0.entry(group).or_default();
        group.offer(entry);
        group.kept.last() == Some(entry)
    }

    /// Those that are kept.
    pub(super) fn kept(&self) -> impl Iterator<Item = &Entry> {
        self.0.values().flat_map(|group| &group.kept)
    }

    /// The smallest one of each group, then the next one of each, so that few of them have many targets; in a round the
    /// small ones first, so that the budget reaches far.
    fn by_turns(self) -> Vec<Entry> {
        let mut turns = Vec::new();
        for mut group in self.0.into_values() {
            let size = |entry: &Entry| (entry.unpacked, entry.payload);
            group.kept.sort_by_key(size);
            turns.extend(group.kept.into_iter().enumerate());
        }
        turns.sort_by_key(|(turn, entry)| (*turn, entry.unpacked, entry.payload));
        turns.into_iter().map(|(_, entry)| entry).collect()
    }
}

impl Group {
    fn offer(&mut self, entry: &Entry) {
        let stride = self.stride.max(1);
        if self.seen.is_multiple_of(stride) {
            if self.kept.len() >= SAMPLES * 2 {
                // Full: every second one goes, and from here on a place stands for twice as many.
                let mut index = 0;
                self.kept.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride = stride * 2;
            }
            self.kept.push(*entry);
        } else if let Some(last) = self.kept.last_mut()
            && entry.unpacked < last.unpacked
            && entry.unpacked > STUB
        {
            *last = *entry;
        }
        self.seen += 1;
    }
}

impl Collector<'_> {
    /// Reads a cubin's toolkit from its notes. Whether it had one.
    pub(super) fn ask(&mut self, entry: &Entry) -> bool {
        let end = entry.payload.saturating_add(entry.stored);
        let stored = Part::new(self.file, entry.payload..end);
        let toolkits = if entry.packing == Packing::None {
            cubin::toolkits(&Part::new(&stored, entry.inner..u64::MAX))
        } else {
            self.ask_packed(entry, &stored)
        };
        let any = !toolkits.is_empty();
        for toolkit in toolkits {
            self.found_toolkit(toolkit);
        }
        any
    }

    /// Of a packed cubin so much of the start is unpacked as has the notes, since they stand before the code, and all of it
    /// only where the start does not tell.
    fn ask_packed(&mut self, entry: &Entry, stored: &Part<'_>) -> BTreeSet<Version> {
        let mut found = BTreeSet::new();
        if self.budget == 0 {
            return found;
        }
        let size = entry.unpacked.max(entry.stored);
        let whole = (size <= self.budget.min(MAX_CUBIN))
            .then(|| usize::try_from(entry.unpacked).ok())
            .flatten();
        let mut notes = |start: &[u8]| {
            if entry.inner == 0 && start.len() <= HEAD {
                found = cubin::toolkits_in_head(start);
            }
            !found.is_empty()
        };
        let mut unpacked = match entry.packing {
            Packing::Zstd => {
                let limit = whole.unwrap_or(HEAD);
                unpack::zstd(&Pages::new(stored), limit, &mut notes)
            }
            Packing::Lz4 | Packing::None => {
                unpack::lz4(&bytes_up_to(stored, 0, FIRST_PIECE), HEAD, &mut notes)
            }
        };
        let mut cost = unpacked.len();
        if let (Packing::Lz4, Some(whole), true) = (entry.packing, whole, found.is_empty()) {
            let length = usize::try_from(entry.stored).unwrap_or(usize::MAX);
            unpacked = unpack::lz4(&bytes_up_to(stored, 0, length), whole, &mut |_| false);
            cost += unpacked.len();
        }
        self.budget = self.budget.saturating_sub(cost as u64);
        if found.is_empty() && whole.is_some() {
            found = cubin::toolkits(&Part::new(&unpacked, entry.inner..u64::MAX));
        }
        found
    }

    /// Asks the samples, and hands out what was found.
    pub(super) fn finish(mut self) -> DeviceCode {
        let entries = std::mem::take(&mut self.samples).by_turns();
        let mut packed = LEAST_PACKED + self.file.len() / BYTES_EACH;
        for entry in &entries {
            if entry.packing != Packing::None {
                let Some(rest) = packed.checked_sub(1) else {
                    continue;
                };
                packed = rest;
            }
            if self.ask(entry) {
                self.code.asked.0 += 1;
            }
        }
        // CuPy's largest modules are packed and have nothing as small as the budget: then one is worth its size.
        if let Some(smallest) = entries.iter().min_by_key(|entry| entry.unpacked)
            && self.code.toolkits.is_empty()
        {
            self.budget = self.budget.max(MAX_CUBIN);
            if self.ask(smallest) {
                self.code.asked.0 += 1;
            }
        }
        self.code
    }
}
