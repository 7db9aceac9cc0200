//! A deflated piece of a file, read at any place as if it were not packed: for libraries inside wheels.
//!
//! Nothing is unpacked to disk and never the whole to memory. The stream is unpacked from its start; on the way the
//! decoder's state is kept every few megabytes, and what comes out is kept in a bounded cache of blocks, so that going
//! back costs unpacking a few megabytes at most.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

use super::part::Part;
use super::window::{ReadAt, fill};

/// What comes out is cut into blocks of this many bytes.
const BLOCK: usize = 64 << 10;
/// How many blocks are kept: 12 MiB.
const BLOCKS: usize = 192;
/// The least distance between two kept states, in unpacked bytes.
const SPACING: u64 = 4 << 20;
/// The most states that are kept, of 43 KB each.
const STATES: u64 = 192;
/// How many bytes of the packed stream are read in one go.
const INPUT: usize = 32 << 10;
/// The largest piece that is read this way; the largest library in a wheel has 0.9 GB.
const MAX_LEN: u64 = 8 << 30;
/// A stream that unpacks to more than this many times its size is no library. Those are packed to a half or a tenth.
const MAX_RATIO: u64 = 250;
/// Pieces below this size may be packed as tightly as they are.
const SMALL: u64 = 16 << 20;
/// How often all of it may be unpacked, all jumps back and forth together.
const MAX_PASSES: u64 = 6;

/// A deflated piece of a file.
pub struct Inflated<'a> {
    packed: Part<'a>,
    len: u64,
    inner: RefCell<Inner>,
}

struct Inner {
    decoder: Box<InflateState>,
    /// How far the packed stream is used up.
    used: u64,
    /// How much came out: a multiple of [`BLOCK`], or the end.
    made: u64,
    /// States by the unpacked offset they stand at, with what was used up by then.
    states: BTreeMap<u64, (u64, Box<InflateState>)>,
    blocks: BTreeMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
    /// Bytes that may still be unpacked.
    budget: u64,
}

impl<'a> Inflated<'a> {
    /// The piece at `packed`, which unpacks to `len` bytes as its archive says.
    ///
    /// # Errors
    /// In words: no library is that large or packs that tightly.
    pub fn new(file: &'a dyn ReadAt, packed: Range<u64>, len: u64) -> Result<Self, String> {
        let packed = Part::new(file, packed);
        if len > MAX_LEN || len > SMALL && len / MAX_RATIO > packed.len() {
            return Err(format!(
                "{} bytes that unpack to {len} are not unpacked",
                packed.len()
            ));
        }
        Ok(Self {
            packed,
            len,
            inner: RefCell::new(Inner {
                decoder: InflateState::new_boxed(DataFormat::Raw),
                used: 0,
                made: 0,
                states: BTreeMap::new(),
                blocks: BTreeMap::new(),
                order: VecDeque::new(),
                budget: len.saturating_mul(MAX_PASSES).saturating_add(64 * SPACING),
            }),
        })
    }

    /// Unpacks until the block at `at` is there.
    fn bring(&self, inner: &mut Inner, at: u64) -> io::Result<()> {
        let kept = inner.states.range(..=at).next_back();
        let nearest = kept.map_or(0, |(offset, _)| *offset);
        // Back, or forward over what is known already.
        if at < inner.made || nearest > inner.made {
            (inner.made, inner.used, inner.decoder) = match kept {
                Some((offset, (used, state))) => (*offset, *used, state.clone()),
                None => (0, 0, InflateState::new_boxed(DataFormat::Raw)),
            };
        }
        let spacing = SPACING.max(self.len / STATES);
        while inner.made <= at {
            let start = inner.made;
            let last = inner.states.keys().next_back().copied().unwrap_or(0);
            if start >= last.saturating_add(spacing) {
                inner
                    .states
                    .insert(start, (inner.used, inner.decoder.clone()));
            }
            let wanted = usize::try_from(self.len - start)
                .unwrap_or(BLOCK)
                .min(BLOCK);
            let block = self.next_block(inner, wanted)?;
            inner.made = start.saturating_add(block.len() as u64);
            let is_whole = block.len() == wanted;
            inner.keep(start, block);
            if !is_whole {
                // It ends before its archive says it does.
                break;
            }
        }
        Ok(())
    }

    fn next_block(&self, inner: &mut Inner, wanted: usize) -> io::Result<Vec<u8>> {
        inner.budget = inner
            .budget
            .checked_sub(wanted as u64)
            .ok_or_else(|| io::Error::other("it would have to be unpacked too often"))?;
        let mut block = vec![0; wanted];
        let mut done = 0;
        let mut input = vec![0; INPUT];
        while let Some(rest) = block.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let got = fill(&self.packed, inner.used, &mut input)?;
            let piece = input.get(..got).unwrap_or_default();
            let result = inflate(&mut inner.decoder, piece, rest, MZFlush::None);
            inner.used = inner.used.saturating_add(result.bytes_consumed as u64);
            done += result.bytes_written;
            let is_stuck = result.bytes_consumed == 0 && result.bytes_written == 0;
            match result.status {
                Ok(MZStatus::Ok) if !is_stuck => {}
                _ => break,
            }
        }
        block.truncate(done);
        Ok(block)
    }
}

impl Inner {
    fn keep(&mut self, start: u64, block: Vec<u8>) {
        if self.blocks.insert(start, block).is_none() {
            self.order.push_back(start);
        }
        while self.order.len() > BLOCKS {
            if let Some(oldest) = self.order.pop_front() {
                self.blocks.remove(&oldest);
            }
        }
    }
}

impl ReadAt for Inflated<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if offset >= self.len || buf.is_empty() {
            return Ok(0);
        }
        let start = offset - offset % BLOCK as u64;
        let mut inner = self.inner.borrow_mut();
        if !inner.blocks.contains_key(&start) {
            self.bring(&mut inner, start)?;
        }
        let block = inner.blocks.get(&start);
        let inside = usize::try_from(offset - start).unwrap_or(BLOCK);
        let rest = block
            .and_then(|block| block.get(inside..))
            .unwrap_or_default();
        let len = rest.len().min(buf.len());
        if let (Some(into), Some(from)) = (buf.get_mut(..len), rest.get(..len)) {
            into.copy_from_slice(from);
        }
        Ok(len)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers are small")]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn deflated(bytes: &[u8]) -> Vec<u8> {
        let mut encoder =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn any_place_of_a_large_piece() {
        // 20 MiB that cannot be packed well, so that states and blocks come and go.
        let mut seed = 1u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let bytes: Vec<u8> = (0..20 << 20).map(|_| next() & 0x3f).collect();
        let packed = deflated(&bytes);
        let file = Inflated::new(&packed, 0..packed.len() as u64, bytes.len() as u64).unwrap();
        let mut buf = [0; 100];
        for at in [20_971_000, 3, 9_000_000, 8_999_999, 65_530, 20_971_500, 100] {
            let got = fill(&file, at, &mut buf).unwrap();
            let at = at as usize;
            assert_eq!(buf[..got], bytes[at..(at + 100).min(bytes.len())]);
        }
    }

    #[test]
    fn what_is_cut_off_ends() {
        let packed = deflated(&[7; 1000]);
        let file = Inflated::new(&packed, 0..packed.len() as u64 / 2, 1000).unwrap();
        assert!(fill(&file, 0, &mut [0; 1000]).unwrap() < 1000);
        let longer = Inflated::new(&packed, 0..packed.len() as u64, 5000).unwrap();
        assert_eq!(fill(&longer, 0, &mut [0; 5000]).unwrap(), 1000);
        assert!(Inflated::new(&packed, 0..20, 1 << 30).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes(packed in prop::collection::vec(any::<u8>(), 0..300), offset in 0u64..2000) {
            let file = Inflated::new(&packed, 0..packed.len() as u64, 1000).unwrap();
            let _ = file.read_at(offset, &mut [0; 64]);
        }
    }
}
