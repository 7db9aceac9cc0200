//! A frame of zstd (RFC 8878), block by block.
//!
//! `ruzstd` unpacks what is small and read once (`inflate`). In a layer of gigabytes one has to be able to go back, and that
//! takes a decoder whose state can be copied: its window, its tables and three offsets. It is held against `ruzstd` and
//! against the program `zstd`. Checksums of frames are for who reads all of them. Dictionaries are refused.

mod entropy;
mod sequences;

use std::io;
use std::sync::Arc;

use self::entropy::{Backward, Huffman, Table};
use self::sequences::{BATCH, Coded, LITERAL_CODE, MATCH_CODE, OFFSET_CODE, Sequence, repeat};
use super::Endian;
use super::window::{ReadAt, bytes_up_to, fill};

/// The most that a block unpacks to, in bytes.
pub(super) const MAX_BLOCK: usize = 128 << 10;
/// The longest header of a frame, with its magic.
const MAX_HEADER: usize = 18;
/// Room behind the window, as much as it has itself, so that it is moved down seldom: at least.
const MIN_ROOM: usize = 4 << 20;
/// At most.
const MAX_ROOM: usize = 8 << 20;
/// Before and behind the bytes of a block, so that eight of them can be had at any place.
const PAD: usize = 8;
/// What is copied in one go, so that short copies need no loop: what lies behind is written over later.
const STRIDE: usize = 16;

/// A frame that is being unpacked. A copy goes on from the same place.
pub(super) struct Frame {
    /// What was unpacked last, up to `end`: the window, and what nobody has taken yet. Behind it is room.
    past: Vec<u8>,
    end: usize,
    /// How much of `past` was taken.
    taken: usize,
    window: usize,
    huffman: Option<Arc<Huffman>>,
    literal_lengths: Option<Arc<Table>>,
    offsets: Option<Arc<Table>>,
    match_lengths: Option<Arc<Table>>,
    /// The offsets used last.
    last: [usize; 3],
    /// Where the next block begins in the file.
    at: u64,
    has_checksum: bool,
    ended: bool,
    /// The block that is being read, padded.
    block: Vec<u8>,
    /// Its literals, with room behind them.
    literals: Vec<u8>,
}

impl Clone for Frame {
    /// Only what is needed to go on.
    fn clone(&self) -> Self {
        let from = self.taken.saturating_sub(self.window);
        Self {
            past: self.past.get(from..self.end).unwrap_or_default().to_vec(),
            end: self.end - from,
            taken: self.taken - from,
            window: self.window,
            huffman: self.huffman.clone(),
            literal_lengths: self.literal_lengths.clone(),
            offsets: self.offsets.clone(),
            match_lengths: self.match_lengths.clone(),
            last: self.last,
            at: self.at,
            has_checksum: self.has_checksum,
            ended: self.ended,
            block: Vec::new(),
            literals: Vec::new(),
        }
    }
}

fn damaged() -> io::Error {
    io::Error::other("is damaged: what zstd packed is not readable")
}

fn cut_off() -> io::Error {
    io::Error::other("is cut off")
}

impl Frame {
    /// The frame that begins at a place of a file.
    pub(super) fn begin(file: &dyn ReadAt, at: u64, max_window: u64) -> io::Result<Self> {
        let bytes = bytes_up_to(file, at, MAX_HEADER);
        let head = *bytes.get(4).ok_or_else(cut_off)?;
        if head & 8 != 0 {
            return Err(damaged());
        }
        let is_single = head & 0x20 != 0;
        let mut place = 5;
        let mut window = 0;
        if !is_single {
            let byte = *bytes.get(place).ok_or_else(cut_off)?;
            place += 1;
            let base = 1u64 << (10 + (byte >> 3));
            window = base + base / 8 * u64::from(byte & 7);
        }
        let little = |place: usize, len: usize| -> io::Result<u64> {
            let bytes = bytes.get(place..place + len).ok_or_else(cut_off)?;
            Ok(bytes
                .iter()
                .rev()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
        };
        let dictionary = [0, 1, 2, 4]
            .get(usize::from(head & 3))
            .copied()
            .unwrap_or(0);
        if little(place, dictionary)? != 0 {
            return Err(io::Error::other(
                "needs a dictionary of zstd, which is not here",
            ));
        }
        place += dictionary;
        let size = match (head >> 6, is_single) {
            (0, false) => 0,
            (0, true) => 1,
            (1, _) => 2,
            (2, _) => 4,
            _ => 8,
        };
        if is_single {
            window = little(place, size)? + if size == 2 { 256 } else { 0 };
        }
        place += size;
        if window > max_window {
            return Err(io::Error::other(format!(
                "is packed by zstd with a window of {} MiB; {} MiB at most are read",
                window >> 20,
                max_window >> 20
            )));
        }
        Ok(Self {
            past: Vec::new(),
            end: 0,
            taken: 0,
            window: usize::try_from(window).unwrap_or(usize::MAX).max(1024),
            huffman: None,
            literal_lengths: None,
            offsets: None,
            match_lengths: None,
            last: [1, 4, 8],
            at: at + place as u64,
            has_checksum: head & 4 != 0,
            ended: false,
            block: Vec::new(),
            literals: Vec::new(),
        })
    }

    /// Where the next block, or what follows the frame, begins in the file.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Whether a checksum of what it unpacks to follows it.
    pub(super) fn has_checksum(&self) -> bool {
        self.has_checksum
    }

    /// How many bytes a copy of it holds.
    pub(super) fn size(&self) -> usize {
        self.end - self.taken.saturating_sub(self.window)
    }

    /// Unpacks into a buffer; 0 at the end of the frame.
    pub(super) fn read(&mut self, file: &dyn ReadAt, buf: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.end {
            if self.ended {
                return Ok(0);
            }
            self.next_block(file)?;
        }
        let got = self
            .past
            .get(self.taken..self.end)
            .unwrap_or_default()
            .read_at(0, buf)?;
        self.taken += got;
        Ok(got)
    }

    fn next_block(&mut self, file: &dyn ReadAt) -> io::Result<()> {
        let limit = self
            .window
            .saturating_add(self.window.clamp(MIN_ROOM, MAX_ROOM));
        if self.end > limit {
            let from = self.end - self.window;
            self.past.copy_within(from..self.end, 0);
            self.end = self.window;
            self.taken = self.window;
        }
        let needed = self.end + MAX_BLOCK + 2 * STRIDE;
        if needed > self.past.len() {
            // Doubled as it grows: a small frame with a large window takes little.
            let most = limit.saturating_add(MAX_BLOCK + 2 * STRIDE);
            let len = needed.max((2 * self.past.len()).min(most));
            self.past.reserve_exact(len - self.past.len());
            self.past.resize(len, 0);
        }
        let mut header = [0; 3];
        if fill(file, self.at, &mut header)? < header.len() {
            return Err(cut_off());
        }
        self.at += header.len() as u64;
        let [low, middle, high] = header.map(u32::from);
        let header = low | middle << 8 | high << 16;
        let size = usize::try_from(header >> 3).unwrap_or(usize::MAX);
        if size > MAX_BLOCK {
            return Err(damaged());
        }
        let before = self.end;
        let stored = match header >> 1 & 3 {
            0 => {
                let piece = self.past.get_mut(before..before + size);
                if fill(file, self.at, piece.unwrap_or_default())? < size {
                    return Err(cut_off());
                }
                self.end += size;
                size
            }
            1 => {
                let mut byte = [0];
                if fill(file, self.at, &mut byte)? == 0 {
                    return Err(cut_off());
                }
                let piece = self.past.get_mut(before..before + size);
                piece.unwrap_or_default().fill(byte[0]);
                self.end += size;
                1
            }
            2 => {
                let mut block = std::mem::take(&mut self.block);
                if block.len() < size + 2 * PAD {
                    block.resize(size + 2 * PAD, 0);
                }
                let piece = block.get_mut(PAD..PAD + size).unwrap_or_default();
                if fill(file, self.at, piece)? < size {
                    return Err(cut_off());
                }
                let done = self.packed_block(&block, PAD + size);
                self.block = block;
                done.ok_or_else(damaged)?;
                size
            }
            _ => return Err(damaged()),
        };
        self.at += stored as u64;
        if header & 1 != 0 {
            self.ended = true;
            if self.has_checksum {
                self.at += 4;
            }
        }
        Ok(())
    }

    /// A block of literals and sequences, which lies behind the padding and ends at `end`.
    fn packed_block(&mut self, block: &[u8], end: usize) -> Option<()> {
        let mut literals = std::mem::take(&mut self.literals);
        let done = self
            .literals(block, end, &mut literals)
            .and_then(|(at, count)| self.sequences(block, at, end, &literals, count));
        self.literals = literals;
        done
    }

    /// Reads the literals; where the sequences begin, and how many literals there are.
    fn literals(&mut self, block: &[u8], end: usize, into: &mut Vec<u8>) -> Option<(usize, usize)> {
        let byte = |at: usize| Some(usize::from(*block.get(at).filter(|_| at < end)?));
        let first = byte(PAD)?;
        let form = (first >> 2) & 3;
        if first & 3 < 2 {
            let (size, at) = match form {
                0 | 2 => (first >> 3, PAD + 1),
                1 => (first >> 4 | byte(PAD + 1)? << 4, PAD + 2),
                _ => (
                    first >> 4 | byte(PAD + 1)? << 4 | byte(PAD + 2)? << 12,
                    PAD + 3,
                ),
            };
            let into = room(into, size)?;
            if first & 3 == 1 {
                into.fill(u8::try_from(byte(at)?).ok()?);
                return Some((at + 1, size));
            }
            into.copy_from_slice(block.get(at..at + size).filter(|_| at + size <= end)?);
            return Some((at + size, size));
        }
        let (bits, length) = match form {
            0 | 1 => (10, 3),
            2 => (14, 4),
            _ => (18, 5),
        };
        let mut header = 0;
        for index in (0..length).rev() {
            header = header << 8 | byte(PAD + index)?;
        }
        let mask = (1 << bits) - 1;
        let (size, packed) = (header >> 4 & mask, header >> (4 + bits) & mask);
        let start = PAD + length;
        let behind = start + packed;
        if behind > end {
            return None;
        }
        let into = room(into, size)?;
        let mut at = start;
        if first & 3 == 2 {
            let (huffman, used) = Huffman::read(block, at, behind)?;
            self.huffman = Some(Arc::new(huffman));
            at = used;
        }
        let huffman = self.huffman.as_ref()?;
        if form == 0 {
            huffman.stream(Backward::new(block, at, behind)?, into)?;
            return Some((behind, size));
        }
        let of_stream = |index: usize| {
            let place = at + 2 * index;
            Some(usize::from(
                Endian::Little
                    .u16(block, place)
                    .filter(|_| place + 2 <= behind)?,
            ))
        };
        let first = at + 6;
        let second = first + of_stream(0)?;
        let third = second + of_stream(1)?;
        let fourth = third + of_stream(2)?;
        let bits = [
            Backward::new(block, first, second)?,
            Backward::new(block, second, third)?,
            Backward::new(block, third, fourth.min(behind))?,
            Backward::new(block, fourth, behind)?,
        ];
        let each = size.div_ceil(4);
        let (one, rest) = into.split_at_mut_checked(each)?;
        let (two, rest) = rest.split_at_mut_checked(each)?;
        let (three, four) = rest.split_at_mut_checked(each)?;
        huffman.streams(bits, [one, two, three, four])?;
        Some((behind, size))
    }

    fn sequences(
        &mut self,
        block: &[u8],
        at: usize,
        end: usize,
        literals: &[u8],
        literal_count: usize,
    ) -> Option<()> {
        let byte = |at: usize| Some(usize::from(*block.get(at).filter(|_| at < end)?));
        let (count, mut at) = match byte(at)? {
            0 => (0, at + 1),
            first @ 1..128 => (first, at + 1),
            first @ 128..255 => ((first - 128) << 8 | byte(at + 1)?, at + 2),
            _ => ((byte(at + 1)? | byte(at + 2)? << 8) + 0x7f00, at + 3),
        };
        let most = self.end + MAX_BLOCK;
        let mut taken = 0;
        if count > 0 {
            let modes = byte(at)?;
            at += 1;
            if modes & 3 != 0 {
                return None;
            }
            at = LITERAL_CODE.table(modes >> 6, block, at, end, &mut self.literal_lengths)?;
            at = OFFSET_CODE.table(modes >> 4 & 3, block, at, end, &mut self.offsets)?;
            at = MATCH_CODE.table(modes >> 2 & 3, block, at, end, &mut self.match_lengths)?;
            let bits = Backward::new(block, at, end)?;
            taken = self.copies(bits, count, literals, literal_count, most)?;
        }
        let rest = literals.get(taken..literal_count)?;
        if self.end + rest.len() > most {
            return None;
        }
        let into = self.past.get_mut(self.end..self.end + rest.len())?;
        into.copy_from_slice(rest);
        self.end += rest.len();
        Some(())
    }

    /// Carries out the sequences of a block, each some literals and a copy of what came before; how many literals they took.
    fn copies(
        &mut self,
        bits: Backward<'_>,
        count: usize,
        literals: &[u8],
        literal_count: usize,
        most: usize,
    ) -> Option<usize> {
        let lengths = self.literal_lengths.clone()?;
        let offsets = self.offsets.clone()?;
        let matches = self.match_lengths.clone()?;
        let mut coded = Coded::new(bits, [&lengths, &offsets, &matches], count)?;
        let mut batch = [Sequence::default(); BATCH];
        let mut last = self.last;
        let mut taken = 0;
        let mut end = self.end;
        let past = self.past.as_mut_slice();
        for from in (0..count).step_by(BATCH) {
            let batch = batch.get_mut(..BATCH.min(count - from))?;
            for sequence in &mut *batch {
                *sequence = coded.next(&mut last)?;
            }
            for sequence in batch {
                let (literal_length, match_length) = (sequence.literals, sequence.matched);
                let behind = taken + literal_length;
                if behind > literal_count || end + literal_length + match_length > most {
                    return None;
                }
                if literal_length <= STRIDE {
                    let piece: &[u8; STRIDE] = literals.get(taken..)?.first_chunk()?;
                    *past.get_mut(end..)?.first_chunk_mut()? = *piece;
                } else {
                    let piece = literals.get(taken..behind)?;
                    past.get_mut(end..end + literal_length)?
                        .copy_from_slice(piece);
                }
                taken = behind;
                end += literal_length;
                repeat(past, end, sequence.distance, match_length)?;
                end += match_length;
            }
        }
        self.last = last;
        self.end = end;
        coded.bits.is_used_up().then_some(taken)
    }
}

/// Room for so many literals, and behind them.
fn room(literals: &mut Vec<u8>, size: usize) -> Option<&mut [u8]> {
    if size > MAX_BLOCK {
        return None;
    }
    if literals.len() < size + STRIDE {
        literals.resize(size + STRIDE, 0);
    }
    literals.get_mut(..size)
}
