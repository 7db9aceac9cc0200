//! What zstd codes numbers and literals by: finite state entropy and Huffman codes, read from the end of a piece to its start.

/// The longest code of a literal, in bits.
const MAX_CODE_BITS: u8 = 11;

/// What the symbols of a table stand for.
#[derive(Clone, Copy)]
pub(super) enum Classes {
    /// A number.
    Itself,
    /// A power of two, and as many bits more.
    Powers,
    /// The least number of a class, and the bits that say which one of it.
    Of(&'static [(u32, u8)]),
}

impl Classes {
    pub(super) fn of(self, symbol: u8) -> Option<(u32, u8)> {
        match self {
            Self::Itself => Some((symbol.into(), 0)),
            Self::Powers => Some((1u32.checked_shl(symbol.into())?, symbol)),
            Self::Of(classes) => classes.get(usize::from(symbol)).copied(),
        }
    }
}

/// What a state stands for.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    /// What the symbol stands for, and the bits that are added to it.
    pub(super) base: u32,
    pub(super) more: u8,
    /// The next state, and the bits that are added to it.
    pub(super) bits: u8,
    pub(super) next: u16,
}

/// How many states the largest table has.
const STATES: usize = 1 << 9;

/// A table of finite state entropy: state to symbol, and to the next state with further bits.
pub(super) struct Table {
    pub(super) log: u8,
    /// There is room for the largest, so that no index is outside.
    entries: [Entry; STATES],
}

impl Table {
    /// One that knows a single symbol.
    pub(super) fn single(symbol: u8, classes: Classes) -> Option<Self> {
        let (base, more) = classes.of(symbol)?;
        let entry = Entry {
            base,
            more,
            bits: 0,
            next: 0,
        };
        Some(Self {
            log: 0,
            entries: [entry; STATES],
        })
    }

    /// One of these shares.
    pub(super) fn new(shares: &[i16], log: u8, classes: Classes) -> Option<Self> {
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
        let mut entries = [Entry::default(); STATES];
        for (entry, symbol) in entries.iter_mut().zip(states) {
            let count = next.get_mut(usize::from(symbol))?;
            let bits = u32::from(log).checked_sub(count.checked_ilog2()?)?;
            let (base, more) = classes.of(symbol)?;
            *entry = Entry {
                base,
                more,
                bits: u8::try_from(bits).ok()?,
                next: u16::try_from((usize::from(*count) << bits).checked_sub(size)?).ok()?,
            };
            *count += 1;
        }
        Some(Self { log, entries })
    }

    #[inline]
    pub(super) fn at(&self, state: u64) -> Entry {
        let index = usize::try_from(state).map(|state| state % STATES);
        let entry = index.ok().and_then(|index| self.entries.get(index));
        // There is one for every index.
        entry.copied().unwrap_or_default()
    }
}

/// The shares of a table, its logarithm, and how many bytes they take.
pub(super) fn shares(bytes: &[u8], max_log: u8, max_symbol: u8) -> Option<(Vec<i16>, u8, usize)> {
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
pub(super) struct Backward<'b> {
    block: &'b [u8],
    /// In bits of the block: the next ones stand below.
    at: usize,
    start: usize,
}

impl<'b> Backward<'b> {
    /// The highest bit that is set is the end's mark.
    pub(super) fn new(block: &'b [u8], start: usize, end: usize) -> Option<Self> {
        let last = *block.get(start..end)?.last()?;
        let mark = usize::try_from(last.checked_ilog2()?).ok()?;
        Some(Self {
            block,
            at: (end - 1) * 8 + mark,
            start: start * 8,
        })
    }

    /// The most bits that are read in one go.
    pub(super) const AT_ONCE: u8 = 56;

    /// The next bits, the first of them the highest.
    #[inline]
    pub(super) fn read(&mut self, count: u8) -> Option<u64> {
        self.use_up(count)?;
        let word = *self.block.get(self.at / 8..)?.first_chunk()?;
        Some(low(u64::from_le_bytes(word) >> (self.at % 8), count))
    }

    /// The next bits at the top of a word, and in its lowest bit a mark that says how many were taken off (`used`). What
    /// lies before the start is anything.
    #[inline]
    fn word(&self) -> Option<u64> {
        let end = self.at.div_ceil(8);
        let word = *self.block.get(end.checked_sub(8)?..)?.first_chunk()?;
        Some(u64::from_le_bytes(word) << (end * 8 - self.at) | 1)
    }

    /// Goes on behind bits that were taken of those ahead.
    #[inline]
    pub(super) fn use_up(&mut self, count: u8) -> Option<()> {
        let at = self.at.checked_sub(usize::from(count));
        self.at = at.filter(|at| *at >= self.start)?;
        Some(())
    }

    pub(super) fn left(&self) -> usize {
        self.at - self.start
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.at == self.start
    }
}

/// The lowest bits of a word.
#[inline]
pub(super) fn low(word: u64, count: u8) -> u64 {
    word & !(u64::MAX << (count & 63))
}

/// How many codes there are room for: all that the longest can be.
const CODES: usize = 1 << MAX_CODE_BITS;

/// Codes of literals.
pub(super) struct Huffman {
    /// By the next bits: how many bits the symbol takes, and in the high byte the symbol.
    symbols: Box<[u16; CODES]>,
}

impl Huffman {
    /// The codes that are described at a place; where what follows begins.
    pub(super) fn read(block: &[u8], at: usize, end: usize) -> Option<(Self, usize)> {
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
                let entry = table.at(*state);
                weights.push(u8::try_from(entry.base).ok()?);
                if bits.left() < usize::from(entry.bits) {
                    weights.push(u8::try_from(table.at(*other).base).ok()?);
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
                    let entry = u16::from_le_bytes([bits + 1 - wanted, symbol]);
                    symbols.resize(symbols.len() + share(wanted) * spread, entry);
                }
            }
        }
        let symbols = symbols.into_boxed_slice().try_into().ok()?;
        Some(Self { symbols })
    }

    /// Symbols that one word has bits for.
    const AT_ONCE: usize = 5;

    /// Reads a symbol off the top of a word.
    #[inline]
    fn next(&self, word: &mut u64) -> u8 {
        let index = usize::try_from(*word >> (64 - u32::from(MAX_CODE_BITS)));
        let entry = index.ok().and_then(|index| self.symbols.get(index));
        // There is one for every index.
        let [length, symbol] = entry.copied().unwrap_or_default().to_le_bytes();
        *word <<= length & 63;
        symbol
    }

    /// Reads a stream of literals, which has to be used up by them.
    pub(super) fn stream(&self, mut bits: Backward<'_>, into: &mut [u8]) -> Option<()> {
        for piece in into.chunks_mut(Self::AT_ONCE) {
            self.few(&mut bits, piece)?;
        }
        bits.is_used_up().then_some(())
    }

    /// Reads four streams side by side: none has to wait for another.
    pub(super) fn streams(&self, bits: [Backward<'_>; 4], into: [&mut [u8]; 4]) -> Option<()> {
        let [mut first, mut second, mut third, mut fourth] = bits;
        let [one, two, three, four] = into.map(|piece| piece.as_chunks_mut::<{ Self::AT_ONCE }>());
        let done = one
            .0
            .len()
            .min(two.0.len())
            .min(three.0.len())
            .min(four.0.len());
        let side_by_side =
            (one.0.iter_mut().zip(&mut *two.0)).zip(three.0.iter_mut().zip(&mut *four.0));
        for ((one, two), (three, four)) in side_by_side {
            let mut words = [first.word()?, second.word()?, third.word()?, fourth.word()?];
            let [of_one, of_two, of_three, of_four] = &mut words;
            let literals = one.iter_mut().zip(two).zip(three).zip(four);
            for (((one, two), three), four) in literals {
                *one = self.next(of_one);
                *two = self.next(of_two);
                *three = self.next(of_three);
                *four = self.next(of_four);
            }
            first.use_up(used(*of_one))?;
            second.use_up(used(*of_two))?;
            third.use_up(used(*of_three))?;
            fourth.use_up(used(*of_four))?;
        }
        let bits = [first, second, third, fourth];
        for (mut bits, (pieces, rest)) in bits.into_iter().zip([one, two, three, four]) {
            for piece in pieces.iter_mut().skip(done) {
                self.few(&mut bits, piece)?;
            }
            self.few(&mut bits, rest)?;
            if !bits.is_used_up() {
                return None;
            }
        }
        Some(())
    }

    /// Reads as many symbols as one word has bits for, or fewer.
    #[inline]
    fn few(&self, bits: &mut Backward<'_>, into: &mut [u8]) -> Option<()> {
        let mut word = bits.word()?;
        for literal in into {
            *literal = self.next(&mut word);
        }
        bits.use_up(used(word))
    }
}

/// How many bits of a word were taken off its top.
#[inline]
fn used(word: u64) -> u8 {
    u8::try_from(word.trailing_zeros()).unwrap_or(u8::MAX)
}
