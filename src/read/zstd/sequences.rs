//! The sequences of a block: some literals, and a copy of what came before.

use std::sync::Arc;

use super::STRIDE;
use super::entropy::{Backward, Classes, Table, low, shares};

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
pub(super) struct Code {
    classes: Classes,
    shares: &'static [i16],
    log: u8,
    max_log: u8,
    max_symbol: u8,
}

pub(super) const LITERAL_CODE: Code = Code {
    classes: Classes::Of(LITERAL_LENGTHS),
    shares: LITERAL_SHARES,
    log: 6,
    max_log: 9,
    max_symbol: 35,
};

pub(super) const OFFSET_CODE: Code = Code {
    classes: Classes::Powers,
    shares: OFFSET_SHARES,
    log: 5,
    max_log: 8,
    max_symbol: 31,
};

pub(super) const MATCH_CODE: Code = Code {
    classes: Classes::Of(MATCH_LENGTHS),
    shares: MATCH_SHARES,
    log: 6,
    max_log: 9,
    max_symbol: 52,
};

impl Code {
    /// The table that a block says; where what follows it begins.
    pub(super) fn table(
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
                *table = Some(Arc::new(Table::single(symbol, self.classes)?));
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

/// How many sequences are read before they are carried out: one thing at a time goes faster.
pub(super) const BATCH: usize = 64;

/// Some literals, and a copy of what came before.
#[derive(Clone, Copy, Default)]
pub(super) struct Sequence {
    pub(super) literals: usize,
    /// How many bytes are copied, and how far back they stand.
    pub(super) matched: usize,
    pub(super) distance: usize,
}

/// The sequences of a block as they are coded.
pub(super) struct Coded<'b> {
    pub(super) bits: Backward<'b>,
    lengths: &'b Table,
    offsets: &'b Table,
    matches: &'b Table,
    /// The states that the three tables are in.
    length: u64,
    offset: u64,
    matched: u64,
    /// How many are still to come.
    left: usize,
}

impl<'b> Coded<'b> {
    pub(super) fn new(mut bits: Backward<'b>, tables: [&'b Table; 3], left: usize) -> Option<Self> {
        let [lengths, offsets, matches] = tables;
        let length = bits.read(lengths.log)?;
        let offset = bits.read(offsets.log)?;
        let matched = bits.read(matches.log)?;
        Some(Self {
            bits,
            lengths,
            offsets,
            matches,
            length,
            offset,
            matched,
            left,
        })
    }

    #[inline]
    pub(super) fn next(&mut self, last: &mut [usize; 3]) -> Option<Sequence> {
        let l = self.lengths.at(self.length);
        let o = self.offsets.at(self.offset);
        let m = self.matches.at(self.matched);
        self.left -= 1;
        let (values, states) = (o.more + m.more + l.more, l.bits + m.bits + o.bits);
        let (coded, matched, literals);
        if values + states <= Backward::AT_ONCE && self.left > 0 {
            // All of them in one go: none has to wait for another.
            let word = self.bits.read(values + states)?;
            self.offset = u64::from(o.next) + low(word, o.bits);
            self.matched = u64::from(m.next) + low(word >> o.bits, m.bits);
            self.length = u64::from(l.next) + low(word >> (o.bits + m.bits), l.bits);
            literals = u64::from(l.base) + low(word >> states, l.more);
            matched = u64::from(m.base) + low(word >> (states + l.more), m.more);
            coded = u64::from(o.base) + (word >> (states + l.more + m.more));
        } else {
            coded = u64::from(o.base) + self.bits.read(o.more)?;
            matched = u64::from(m.base) + self.bits.read(m.more)?;
            literals = u64::from(l.base) + self.bits.read(l.more)?;
            if self.left > 0 {
                self.length = u64::from(l.next) + self.bits.read(l.bits)?;
                self.matched = u64::from(m.next) + self.bits.read(m.bits)?;
                self.offset = u64::from(o.next) + self.bits.read(o.bits)?;
            }
        }
        let literals = usize::try_from(literals).ok()?;
        Some(Sequence {
            literals,
            matched: usize::try_from(matched).ok()?,
            distance: distance_of(last, coded, literals == 0)?,
        })
    }
}

/// What an offset as it is coded comes to: 1 to 3 are those used last.
#[inline]
fn distance_of(last: &mut [usize; 3], coded: u64, no_literals: bool) -> Option<usize> {
    let [first, second, third] = *last;
    let coded = usize::try_from(coded).ok()?;
    if coded > 3 {
        *last = [coded - 3, first, second];
        return Some(coded - 3);
    }
    let (distance, behind) = match coded + usize::from(no_literals) {
        1 => return Some(first),
        2 => (second, third),
        3 => (third, second),
        _ => (first.checked_sub(1)?, second),
    };
    *last = [distance, first, behind];
    Some(distance)
}

/// Repeats at `end` what stands so far back. What lies up to [`STRIDE`] bytes behind may be written over.
#[inline]
pub(super) fn repeat(past: &mut [u8], end: usize, distance: usize, length: usize) -> Option<()> {
    /// Longer ones are worth a call.
    const LONG: usize = 4 * STRIDE;
    let from = end.checked_sub(distance).filter(|_| distance > 0)?;
    if end + length + STRIDE > past.len() {
        return None;
    }
    if length > LONG && distance >= length {
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
    // What is repeated is laid out once, as often as it fits.
    let mut pattern: [u8; STRIDE] = *past.get(from..)?.first_chunk()?;
    let (once, again) = pattern.split_at_mut(distance);
    for piece in again.chunks_mut(distance) {
        for (to, from) in piece.iter_mut().zip(&*once) {
            *to = *from;
        }
    }
    let mut done = 0;
    while done < length {
        *past.get_mut(end + done..)?.first_chunk_mut()? = pattern;
        done += STRIDE / distance * distance;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_goes_on_into_itself() {
        let before: Vec<u8> = (0..80).map(|byte| byte * 3 + 1).collect();
        for distance in 1..=before.len() {
            for length in 0..200 {
                let mut wanted = before.clone();
                for index in 0..length {
                    wanted.push(wanted[before.len() - distance + index]);
                }
                let mut past = before.clone();
                past.resize(before.len() + length + STRIDE, 0);
                repeat(&mut past, before.len(), distance, length).unwrap();
                assert_eq!(past[..wanted.len()], wanted, "{distance} {length}");
            }
        }
        let mut past = [0; 40];
        assert!(repeat(&mut past, 20, 21, 1).is_none() && repeat(&mut past, 20, 0, 1).is_none());
        assert!(repeat(&mut past, 20, 1, 5).is_none());
    }
}
