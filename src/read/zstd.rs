//! A frame of zstd (RFC 8878), block by block.
//!
//! `ruzstd` unpacks what is small and read once (`inflate`). In a layer of gigabytes one has to be able to go back, and that
//! takes a decoder whose state can be copied: its window, its tables and three offsets. It is held against `ruzstd` and
//! against the program `zstd`. Checksums of frames are not looked at: blobs have digests. Dictionaries are refused.

use std::io;
use std::sync::Arc;

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
/// The longest code of a literal, in bits.
const MAX_CODE_BITS: u8 = 11;
/// Before and behind the bytes of a block, so that eight of them can be had at any place.
const PAD: usize = 8;
/// What is copied in one go, so that short copies need no loop: what lies behind is written over later.
const STRIDE: usize = 16;

/// What the symbols of a table stand for.
#[derive(Clone, Copy)]
enum Classes {
    /// A number.
    Itself,
    /// A power of two, and as many bits more.
    Powers,
    /// The least number of a class, and the bits that say which one of it.
    Of(&'static [(u32, u8)]),
}

impl Classes {
    fn of(self, symbol: u8) -> Option<(u32, u8)> {
        match self {
            Self::Itself => Some((symbol.into(), 0)),
            Self::Powers => Some((1u32.checked_shl(symbol.into())?, symbol)),
            Self::Of(classes) => classes.get(usize::from(symbol)).copied(),
        }
    }
}

const LITERAL_LENGTHS: &[(u32, u8)] = &[
    (0, 0),
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 0),
    (12, 0),
    (13, 0),
    (14, 0),
    (15, 0),
    (16, 1),
    (18, 1),
    (20, 1),
    (22, 1),
    (24, 2),
    (28, 2),
    (32, 3),
    (40, 3),
    (48, 4),
    (64, 6),
    (128, 7),
    (256, 8),
    (512, 9),
    (1024, 10),
    (2048, 11),
    (4096, 12),
    (8192, 13),
    (16384, 14),
    (32768, 15),
    (65536, 16),
];
const MATCH_LENGTHS: &[(u32, u8)] = &[
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 0),
    (12, 0),
    (13, 0),
    (14, 0),
    (15, 0),
    (16, 0),
    (17, 0),
    (18, 0),
    (19, 0),
    (20, 0),
    (21, 0),
    (22, 0),
    (23, 0),
    (24, 0),
    (25, 0),
    (26, 0),
    (27, 0),
    (28, 0),
    (29, 0),
    (30, 0),
    (31, 0),
    (32, 0),
    (33, 0),
    (34, 0),
    (35, 1),
    (37, 1),
    (39, 1),
    (41, 1),
    (43, 2),
    (47, 2),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 5),
    (131, 7),
    (259, 8),
    (515, 9),
    (1027, 10),
    (2051, 11),
    (4099, 12),
    (8195, 13),
    (16387, 14),
    (32771, 15),
    (65539, 16),
];

/// Shares of the classes where a block brings no table of its own; -1 is a share of less than one.
const LITERAL_SHARES: &[i16] = &[
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1,
    -1, -1, -1, -1,
];
const MATCH_SHARES: &[i16] = &[
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1,
];
const OFFSET_SHARES: &[i16] = &[
    1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1,
];

/// What is coded in a sequence: its table without one of its own, the largest table, the largest class.
struct Code {
    classes: Classes,
    shares: &'static [i16],
    log: u8,
    max_log: u8,
    max_symbol: u8,
}

const LITERAL_CODE: Code = Code {
    classes: Classes::Of(LITERAL_LENGTHS),
    shares: LITERAL_SHARES,
    log: 6,
    max_log: 9,
    max_symbol: 35,
};
const OFFSET_CODE: Code = Code {
    classes: Classes::Powers,
    shares: OFFSET_SHARES,
    log: 5,
    max_log: 8,
    max_symbol: 31,
};
const MATCH_CODE: Code = Code {
    classes: Classes::Of(MATCH_LENGTHS),
    shares: MATCH_SHARES,
    log: 6,
    max_log: 9,
    max_symbol: 52,
};

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
        mut bits: Backward<'_>,
        count: usize,
        literals: &[u8],
        literal_count: usize,
        most: usize,
    ) -> Option<usize> {
        let lengths = self.literal_lengths.clone()?;
        let offsets = self.offsets.clone()?;
        let matches = self.match_lengths.clone()?;
        let mut length = bits.read(lengths.log)?;
        let mut offset = bits.read(offsets.log)?;
        let mut matched = bits.read(matches.log)?;
        let mut last = self.last;
        let mut taken = 0;
        let mut end = self.end;
        let past = self.past.as_mut_slice();
        for index in 0..count {
            let (l, o, m) = (
                lengths.at(length)?,
                offsets.at(offset)?,
                matches.at(matched)?,
            );
            let mut ahead = bits.ahead()?;
            let distance = u64::from(o.base) + ahead.take(o.more);
            if o.more + m.more + l.more > Ahead::BITS {
                bits.use_up(ahead.used)?;
                ahead = bits.ahead()?;
            }
            let match_length = usize::try_from(u64::from(m.base) + ahead.take(m.more)).ok()?;
            let literal_length = usize::try_from(u64::from(l.base) + ahead.take(l.more)).ok()?;
            bits.use_up(ahead.used)?;
            if index + 1 < count {
                let mut ahead = bits.ahead()?;
                length = u64::from(l.next) + ahead.take(l.bits);
                matched = u64::from(m.next) + ahead.take(m.bits);
                offset = u64::from(o.next) + ahead.take(o.bits);
                bits.use_up(ahead.used)?;
            }
            let distance = distance_of(&mut last, distance, literal_length == 0)?;
            // Literals.
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
            repeat(past, end, distance, match_length)?;
            end += match_length;
        }
        self.last = last;
        self.end = end;
        bits.is_used_up().then_some(taken)
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

/// What an offset as it is coded comes to: 1 to 3 are those used last.
#[inline]
fn distance_of(last: &mut [usize; 3], coded: u64, no_literals: bool) -> Option<usize> {
    let [first, second, third] = *last;
    let coded = usize::try_from(coded).ok()?;
    let distance = match (coded, no_literals) {
        (4.., _) => coded - 3,
        (1, false) => return Some(first),
        (2, false) | (1, true) => {
            *last = [second, first, third];
            return Some(second);
        }
        (3, false) | (2, true) => third,
        _ => first.checked_sub(1).filter(|distance| *distance > 0)?,
    };
    *last = [distance, first, second];
    Some(distance)
}

/// Repeats at `end` what stands so far back. What lies up to [`STRIDE`] bytes behind may be written over.
#[inline]
fn repeat(past: &mut [u8], end: usize, distance: usize, length: usize) -> Option<()> {
    /// Longer ones are worth a call.
    const LONG: usize = 4 * STRIDE;
    let from = end.checked_sub(distance).filter(|_| distance > 0)?;
    if end + length + STRIDE > past.len() {
        return None;
    }
    if distance >= length && length > LONG {
        past.copy_within(from..from + length, end);
        return Some(());
    }
    if distance >= STRIDE {
        let mut done = 0;
        while done < length {
            let piece: [u8; STRIDE] = *past.get(from + done..)?.first_chunk()?;
            *past.get_mut(end + done..)?.first_chunk_mut()? = piece;
            done += STRIDE;
        }
        return Some(());
    }
    let mut done = 0;
    while done < length {
        // What is repeated grows with each turn, since the two overlap.
        let piece = (length - done).min(distance + done);
        past.copy_within(from..from + piece, end + done);
        done += piece;
    }
    Some(())
}

impl Code {
    /// The table that a block says; where what follows it begins.
    fn table(
        &self,
        mode: usize,
        block: &[u8],
        at: usize,
        end: usize,
        table: &mut Option<Arc<Table>>,
    ) -> Option<usize> {
        match mode {
            0 => {
                *table = Some(Arc::new(Table::new(self.shares, self.log, self.classes)?));
                Some(at)
            }
            1 => {
                let symbol = *block.get(at).filter(|_| at < end)?;
                if symbol > self.max_symbol {
                    return None;
                }
                let (base, more) = self.classes.of(symbol)?;
                let entries = vec![Entry {
                    base,
                    more,
                    bits: 0,
                    next: 0,
                }];
                *table = Some(Arc::new(Table { log: 0, entries }));
                Some(at + 1)
            }
            2 => {
                let (shares, log, used) =
                    shares(block.get(at..end)?, self.max_log, self.max_symbol)?;
                *table = Some(Arc::new(Table::new(&shares, log, self.classes)?));
                Some(at + used)
            }
            _ => table.is_some().then_some(at),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// What the symbol stands for, and the bits that are added to it.
    base: u32,
    more: u8,
    /// The next state, and the bits that are added to it.
    bits: u8,
    next: u16,
}

/// A table of finite state entropy: state to symbol, and to the next state with further bits.
struct Table {
    log: u8,
    entries: Vec<Entry>,
}

impl Table {
    fn new(shares: &[i16], log: u8, classes: Classes) -> Option<Self> {
        let size = 1usize << log;
        let mut states = vec![0u8; size];
        let mut high = size;
        let symbols = || (0u8..).zip(shares);
        for (symbol, share) in symbols() {
            if *share == -1 {
                high = high.checked_sub(1)?;
                *states.get_mut(high)? = symbol;
            }
        }
        let step = (size >> 1) + (size >> 3) + 3;
        let mut place = 0;
        for (symbol, share) in symbols() {
            for _ in 0..(*share).max(0) {
                *states.get_mut(place)? = symbol;
                loop {
                    place = (place + step) & (size - 1);
                    if place < high || high == 0 {
                        break;
                    }
                }
            }
        }
        if place != 0 {
            return None;
        }
        let mut next: Vec<u16> = shares.iter().map(|share| share.unsigned_abs()).collect();
        let mut entries = Vec::with_capacity(size);
        for symbol in states {
            let count = next.get_mut(usize::from(symbol))?;
            let bits = u32::from(log).checked_sub(count.checked_ilog2()?)?;
            let (base, more) = classes.of(symbol)?;
            entries.push(Entry {
                base,
                more,
                bits: u8::try_from(bits).ok()?,
                next: u16::try_from((usize::from(*count) << bits).checked_sub(size)?).ok()?,
            });
            *count += 1;
        }
        Some(Self { log, entries })
    }

    #[inline]
    fn at(&self, state: u64) -> Option<Entry> {
        self.entries.get(usize::try_from(state).ok()?).copied()
    }
}

/// The shares of a table, its logarithm, and how many bytes they take.
fn shares(bytes: &[u8], max_log: u8, max_symbol: u8) -> Option<(Vec<i16>, u8, usize)> {
    let mut bit = 0usize;
    let mut read = |count: u32, advance: &dyn Fn(u32) -> u32| -> Option<u32> {
        let mut value = 0;
        for index in 0..3 {
            let byte = bytes.get(bit / 8 + index).copied().unwrap_or(0);
            value |= u32::from(byte) << (8 * index);
        }
        let value = value >> (bit % 8) & ((1 << count) - 1);
        bit += usize::try_from(advance(value)).ok()?;
        (bit <= bytes.len() * 8).then_some(value)
    };
    let log = u8::try_from(read(4, &|_| 4)? + 5).ok()?;
    if log > max_log {
        return None;
    }
    let mut left: u32 = 1 << log;
    let mut shares: Vec<i16> = Vec::new();
    while left > 0 {
        let bits = (left + 1).ilog2() + 1;
        let mask = (1 << (bits - 1)) - 1;
        let short = (1 << bits) - 1 - (left + 1);
        // Small values take a bit less.
        let value = read(bits, &|value| {
            if value & mask < short { bits - 1 } else { bits }
        })?;
        let value = if value & mask < short {
            value & mask
        } else if value > mask {
            value - short
        } else {
            value
        };
        let share = i16::try_from(value).ok()? - 1;
        left = left.checked_sub(u32::from(share.unsigned_abs()))?;
        shares.push(share);
        if share == 0 {
            loop {
                let zeros = read(2, &|_| 2)?;
                shares.extend((0..zeros).map(|_| 0));
                if zeros < 3 || shares.len() > usize::from(max_symbol) + 1 {
                    break;
                }
            }
        }
        if shares.len() > usize::from(max_symbol) + 1 {
            return None;
        }
    }
    Some((shares, log, bit.div_ceil(8)))
}

/// Bits from the end of a piece of a block to its start.
struct Backward<'b> {
    block: &'b [u8],
    /// In bits of the block: the next ones stand below.
    at: usize,
    start: usize,
}

impl<'b> Backward<'b> {
    /// The highest bit that is set is the end's mark.
    fn new(block: &'b [u8], start: usize, end: usize) -> Option<Self> {
        let last = *block.get(start..end)?.last()?;
        let mark = usize::try_from(last.checked_ilog2()?).ok()?;
        Some(Self {
            block,
            at: (end - 1) * 8 + mark,
            start: start * 8,
        })
    }

    /// The next bits, the first of them the highest; at most 56.
    #[inline]
    fn read(&mut self, count: u8) -> Option<u64> {
        self.at = self
            .at
            .checked_sub(usize::from(count))
            .filter(|at| *at >= self.start)?;
        let from = self.at / 8;
        let word = self.block.get(from..from + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(word) >> (self.at % 8) & ((1 << count) - 1))
    }

    /// The next bits: what lies before the start is anything.
    #[inline]
    fn ahead(&self) -> Option<Ahead> {
        let end = self.at.div_ceil(8);
        let word = *self.block.get(end.checked_sub(8)?..)?.first_chunk()?;
        let word = u64::from_le_bytes(word) << (end * 8 - self.at);
        Some(Ahead { word, used: 0 })
    }

    /// Goes on behind bits that were taken of those ahead.
    #[inline]
    fn use_up(&mut self, count: u8) -> Option<()> {
        let at = self.at.checked_sub(usize::from(count));
        self.at = at.filter(|at| *at >= self.start)?;
        Some(())
    }

    fn left(&self) -> usize {
        self.at - self.start
    }

    fn is_used_up(&self) -> bool {
        self.at == self.start
    }
}

/// Bits at the top of a word.
struct Ahead {
    word: u64,
    used: u8,
}

impl Ahead {
    /// How many there are at least.
    const BITS: u8 = 57;

    /// The next ones, the first of them the highest.
    #[inline]
    fn take(&mut self, count: u8) -> u64 {
        // In two steps, since none may be wanted.
        let bits = self.word >> 1 >> (63 - (count & 63));
        self.word <<= count & 63;
        self.used += count;
        bits
    }
}

/// How many codes there are room for: all that the longest can be.
const CODES: usize = 1 << MAX_CODE_BITS;

/// Codes of literals.
struct Huffman {
    /// By the next bits: the symbol, and how many bits it takes.
    symbols: Box<[(u8, u8); CODES]>,
}

impl Huffman {
    /// The codes that are described at a place; where what follows begins.
    fn read(block: &[u8], at: usize, end: usize) -> Option<(Self, usize)> {
        let head = usize::from(*block.get(at).filter(|_| at < end)?);
        let at = at + 1;
        let mut weights: Vec<u8> = Vec::new();
        let behind = if head < 128 {
            let behind = at + head;
            let (shares, log, used) =
                shares(block.get(at..behind).filter(|_| behind <= end)?, 6, u8::MAX)?;
            let table = Table::new(&shares, log, Classes::Itself)?;
            let mut bits = Backward::new(block, at + used, behind)?;
            let mut states = [bits.read(log)?, bits.read(log)?];
            // The two states take turns, until one finds no bits for its next.
            for turn in 0..=usize::from(u8::MAX) {
                let [state, other] = &mut states;
                let (state, other) = if turn % 2 == 0 {
                    (state, other)
                } else {
                    (other, state)
                };
                let entry = table.at(*state)?;
                weights.push(u8::try_from(entry.base).ok()?);
                if bits.left() < usize::from(entry.bits) {
                    weights.push(u8::try_from(table.at(*other)?.base).ok()?);
                    break;
                }
                *state = u64::from(entry.next) + bits.read(entry.bits)?;
            }
            behind
        } else {
            let count = head - 127;
            let behind = at + count.div_ceil(2);
            let bytes = block.get(at..behind).filter(|_| behind <= end)?;
            weights.extend(
                bytes
                    .iter()
                    .flat_map(|byte| [byte >> 4, byte & 15])
                    .take(count),
            );
            behind
        };
        Some((Self::of(weights)?, behind))
    }

    /// The weight of the last symbol is what fills the codes up.
    fn of(mut weights: Vec<u8>) -> Option<Self> {
        if weights.len() > usize::from(u8::MAX)
            || weights.iter().any(|weight| *weight > MAX_CODE_BITS)
        {
            return None;
        }
        let share = |weight: u8| {
            if weight == 0 {
                0
            } else {
                1usize << (weight - 1)
            }
        };
        let sum: usize = weights.iter().map(|weight| share(*weight)).sum();
        let bits = u8::try_from(sum.checked_ilog2()? + 1).ok()?;
        let rest = (1usize << bits) - sum;
        if bits > MAX_CODE_BITS || !rest.is_power_of_two() {
            return None;
        }
        weights.push(u8::try_from(rest.ilog2() + 1).ok()?);
        let mut symbols = Vec::with_capacity(CODES);
        // Shorter codes than the longest that can be are followed by whatever comes next.
        let spread = CODES >> bits;
        for wanted in 1..=bits {
            for (symbol, weight) in (0u8..=u8::MAX).zip(&weights) {
                if *weight == wanted {
                    let entry = (symbol, bits + 1 - wanted);
                    symbols.resize(symbols.len() + share(wanted) * spread, entry);
                }
            }
        }
        let symbols = symbols.into_boxed_slice().try_into().ok()?;
        Some(Self { symbols })
    }

    /// Symbols that one word has bits for.
    const AT_ONCE: usize = 5;

    /// Reads a symbol.
    #[inline]
    fn next(&self, ahead: &mut Ahead) -> u8 {
        let index = usize::try_from(ahead.word >> (64 - u32::from(MAX_CODE_BITS)));
        let entry = index.ok().and_then(|index| self.symbols.get(index));
        // There is one for every index.
        let (symbol, length) = entry.copied().unwrap_or_default();
        ahead.word <<= length & 63;
        ahead.used += length;
        symbol
    }

    /// Reads a stream of literals, which has to be used up by them.
    fn stream(&self, mut bits: Backward<'_>, into: &mut [u8]) -> Option<()> {
        for piece in into.chunks_mut(Self::AT_ONCE) {
            self.few(&mut bits, piece)?;
        }
        bits.is_used_up().then_some(())
    }

    /// Reads four streams side by side: none has to wait for another.
    fn streams(&self, mut bits: [Backward<'_>; 4], into: [&mut [u8]; 4]) -> Option<()> {
        let [first, second, third, fourth] = &mut bits;
        let mut pieces = into.map(|piece| piece.chunks_exact_mut(Self::AT_ONCE));
        let [one, two, three, four] = &mut pieces;
        let side_by_side = one.len().min(two.len()).min(three.len()).min(four.len());
        for _ in 0..side_by_side {
            let (one, two) = (one.next()?, two.next()?);
            let (three, four) = (three.next()?, four.next()?);
            let mut aheads = [
                first.ahead()?,
                second.ahead()?,
                third.ahead()?,
                fourth.ahead()?,
            ];
            let [of_one, of_two, of_three, of_four] = &mut aheads;
            for (((one, two), three), four) in one.iter_mut().zip(two).zip(three).zip(four) {
                *one = self.next(of_one);
                *two = self.next(of_two);
                *three = self.next(of_three);
                *four = self.next(of_four);
            }
            first.use_up(of_one.used)?;
            second.use_up(of_two.used)?;
            third.use_up(of_three.used)?;
            fourth.use_up(of_four.used)?;
        }
        for (mut bits, mut pieces) in bits.into_iter().zip(pieces) {
            for piece in &mut pieces {
                self.few(&mut bits, piece)?;
            }
            self.few(&mut bits, pieces.into_remainder())?;
            if !bits.is_used_up() {
                return None;
            }
        }
        Some(())
    }

    /// Reads as many symbols as one word has bits for, or fewer.
    #[inline]
    fn few(&self, bits: &mut Backward<'_>, into: &mut [u8]) -> Option<()> {
        let mut ahead = bits.ahead()?;
        for literal in into {
            *literal = self.next(&mut ahead);
        }
        bits.use_up(ahead.used)
    }
}
