//! A packed stream (gzip, zstd) read at any place as if it were not packed: the layers of container images.
//!
//! Nothing is unpacked to disk, and never the whole to memory. Reading forward unpacks each byte once; the newest blocks
//! are kept. Copies of the decoder's state are kept on the way, so that going back starts at the nearest of them: many of
//! gzip's, of 43 KB each, few of zstd's, which have a window of megabytes. All of that has a bound, and so has how much comes
//! out of how little. What is read on and on is unpacked on a thread of its own, ahead of who reads it.

mod ahead;
mod stream;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;

pub use self::stream::Packing;

use self::ahead::Ahead;
use self::stream::{Decoder, Stream};
use super::window::ReadAt;

/// What comes out is cut into blocks of this many bytes.
const BLOCK: usize = 64 << 10;
/// How many blocks are kept: 2 MiB.
const BLOCKS: usize = 32;
/// What lies up to so many bytes before what is asked for is kept with it.
const NEAR: u64 = 8 * BLOCK as u64;
/// The least distance between two kept states, in unpacked bytes.
const SPACING: u64 = 4 << 20;
/// How many states are kept.
const STATES: usize = 160;
/// How many bytes of states are kept while a stream is gone through.
const STATE_BYTES: usize = 8 << 20;
/// A stream that unpacks to more than this many times its size, and to more than [`LARGE`], is made to fill a disk.
/// Layers are packed to a half or a tenth.
const MAX_RATIO: u64 = 250;
/// Streams that unpack to less than this may be packed as tightly as they are.
const LARGE: u64 = if cfg!(test) { 16 << 20 } else { 1 << 30 };
/// After so many blocks without a jump it goes ahead by itself: 1 MiB.
const RUN: u32 = 16;
/// How often what was unpacked once may be unpacked again, all jumps together.
const MAX_AGAIN: u64 = 8;

/// A decoder: with who reads, or ahead of them on a thread of its own.
enum Going<S> {
    Here(S),
    Ahead(Ahead<S>),
}

/// Sends a decoder ahead that is at a place.
type SendAhead<S> = fn(S, u64, Spacing) -> Going<S>;

fn send_ahead<S: Stream + Send + 'static>(stream: S, at: u64, spacing: Spacing) -> Going<S> {
    Ahead::start(stream, at, spacing).map_or_else(Going::Here, Going::Ahead)
}

impl<S: Stream> Going<S> {
    fn used(&self) -> u64 {
        match self {
            Self::Here(stream) => stream.used(),
            Self::Ahead(ahead) => ahead.used(),
        }
    }
}

/// Where copies of states are kept.
#[derive(Clone, Copy)]
struct Spacing {
    /// Where the last one is kept, or up to where none is wanted.
    last: u64,
}

impl Spacing {
    /// Whether one is to be kept at a place, of so many bytes.
    fn is_due(&mut self, at: u64, size: usize) -> bool {
        // Where few can be kept, most of them would soon be thrown away: copies cost more than they are worth.
        let room = (STATE_BYTES / size.max(1)).clamp(1, STATES);
        let least = SPACING.max(2 * size as u64).max(at / (4 * room as u64));
        let is_due = at >= self.last.saturating_add(least);
        if is_due {
            self.last = at;
        }
        is_due
    }
}

/// A packed file.
pub struct Unpacked<F: ReadAt> {
    inner: RefCell<Inner<Decoder<F>>>,
}

struct Inner<S> {
    now: Going<S>,
    /// The state at the start.
    first: S,
    /// Sends a decoder ahead; `None` where it has to stay with who reads.
    send_ahead: Option<SendAhead<S>>,
    /// How many blocks came one after the other.
    run: u32,
    /// How much came out: a multiple of [`BLOCK`], or the end.
    made: u64,
    /// The furthest that it ever came.
    furthest: u64,
    end: Option<u64>,
    failed: Option<(u64, String)>,
    states: BTreeMap<u64, S>,
    state_bytes: usize,
    /// The state that came furthest, while another one goes over what lies before it.
    front: Option<(u64, Going<S>)>,
    blocks: BTreeMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
    /// Bytes that were unpacked again.
    again: u64,
}

impl<F: ReadAt + Clone> Unpacked<F> {
    /// A file that is packed so.
    pub fn new(packed: F, packing: Packing) -> Self {
        let decoder = Decoder::new(packed, packing);
        Self {
            inner: RefCell::new(Inner {
                now: Going::Here(decoder.clone()),
                first: decoder,
                send_ahead: None,
                run: 0,
                made: 0,
                furthest: 0,
                end: None,
                failed: None,
                states: BTreeMap::new(),
                state_bytes: 0,
                front: None,
                blocks: BTreeMap::new(),
                order: VecDeque::new(),
                again: 0,
            }),
        }
    }

    /// The same, for files that any thread may read: what is read on and on is unpacked ahead of who reads it.
    pub fn going_ahead(packed: F, packing: Packing) -> Self
    where
        F: Send + 'static,
    {
        let unpacked = Self::new(packed, packing);
        // On a single processor it would only take turns.
        if std::thread::available_parallelism().is_ok_and(|count| count.get() > 1) {
            unpacked.inner.borrow_mut().send_ahead = Some(send_ahead);
        }
        unpacked
    }

    /// Lets go of what is only of use while it is read from start to end, up to so many bytes.
    pub fn rest(&self, bytes: usize) {
        let mut inner = self.inner.borrow_mut();
        inner.thin(bytes);
        inner.blocks.clear();
        inner.order.clear();
        inner.now = Going::Here(inner.first.clone());
        inner.made = 0;
        inner.run = 0;
        inner.front = None;
    }

    /// How far the packed file is used up, in bytes.
    pub fn used(&self) -> u64 {
        self.inner.borrow().now.used()
    }

    /// How many bytes were unpacked more than once.
    pub fn again(&self) -> u64 {
        self.inner.borrow().again
    }
}

impl<S: Stream> Inner<S> {
    /// Where the next state is to be kept.
    fn spacing(&self) -> Spacing {
        let last = self.states.keys().next_back().copied().unwrap_or(0);
        // What lies before the furthest has its states.
        let last = if self.made < self.furthest {
            self.furthest
        } else {
            last
        };
        Spacing { last }
    }

    fn keep(&mut self, at: u64, state: S) {
        let size = state.size();
        if self.states.insert(at, state).is_none() {
            self.state_bytes += size;
        }
        self.thin(STATE_BYTES);
    }

    /// Throws states away until they hold no more than this: the less they are missed, the earlier. The nearer a place is to
    /// the end, the closer together they stay.
    fn thin(&mut self, bytes: usize) {
        while self.states.len() > STATES || self.state_bytes > bytes {
            let places: Vec<u64> = self.states.keys().copied().collect();
            let gap = |index: usize, at: u64| {
                let before = index.checked_sub(1).and_then(|index| places.get(index));
                let after = places.get(index + 1).copied().unwrap_or(self.made);
                after.saturating_sub(before.copied().unwrap_or(0))
                    / (1 + self.made.abs_diff(at) / SPACING)
            };
            let places_with_gaps = places
                .iter()
                .enumerate()
                .map(|(index, at)| (gap(index, *at), *at));
            let Some((_, at)) = places_with_gaps.min() else {
                break;
            };
            if let Some(state) = self.states.remove(&at) {
                self.state_bytes = self.state_bytes.saturating_sub(state.size());
            }
        }
    }

    /// Goes to the nearest state before an offset, where that is better than going on. The one that came furthest is kept
    /// aside, so that what lies behind it is not unpacked again.
    fn go_back(&mut self, at: u64) {
        let nearest = self.states.range(..=at).next_back();
        let from = nearest.map_or(0, |(at, _)| *at);
        let front = self.front.as_ref().map(|(front, _)| *front);
        let front = front.filter(|front| *front <= at);
        if self.made <= at && self.made >= from && Some(self.made) >= front {
            return;
        }
        if front >= Some(from)
            && let Some((made, state)) = self.front.take()
        {
            (self.made, self.now) = (made, state);
            self.run = 0;
            return;
        }
        let state = nearest.map_or(&self.first, |(_, state)| state).clone();
        let before = std::mem::replace(&mut self.now, Going::Here(state));
        self.run = 0;
        if self.made == self.furthest {
            self.front = Some((self.made, before));
        }
        self.made = from;
    }

    /// Unpacks until the block at `at` is there.
    fn bring(&mut self, at: u64) -> io::Result<()> {
        self.readable(at)?;
        self.go_back(at);
        let mut passed_over = Vec::new();
        while self.made <= at && self.end.is_none_or(|end| self.made < end) {
            let start = self.made;
            // What is only passed over pushes out nothing that was asked for.
            if at - start > NEAR {
                passed_over.resize(BLOCK, 0);
                self.next_block(&mut passed_over)?;
                continue;
            }
            let mut block = self.spare_block();
            let got = self.next_block(&mut block)?;
            block.truncate(got);
            if self.blocks.insert(start, block).is_none() {
                self.order.push_back(start);
            }
        }
        Ok(())
    }

    /// Refuses what lies behind a place that could not be unpacked.
    fn readable(&self, at: u64) -> io::Result<()> {
        match &self.failed {
            Some((from, why)) if at >= *from => Err(io::Error::other(why.clone())),
            _ => Ok(()),
        }
    }

    /// Unpacks the next block; how many bytes it has.
    fn next_block(&mut self, block: &mut [u8]) -> io::Result<usize> {
        let start = self.made;
        if start < self.furthest {
            self.again += BLOCK as u64;
            let most = self.furthest.saturating_mul(MAX_AGAIN);
            if self.again > most.saturating_add(LARGE) {
                return Err(io::Error::other("it would have to be unpacked too often"));
            }
        }
        let got = self.next_bytes(block).and_then(|got| {
            let made = start.saturating_add(got as u64);
            if made > LARGE && made / MAX_RATIO > self.now.used() {
                return Err(io::Error::other(format!(
                    "unpacks to more than {MAX_RATIO} times its size"
                )));
            }
            Ok(got)
        });
        let got = match got {
            Ok(got) => got,
            Err(e) => {
                self.failed = Some((start, e.to_string()));
                return Err(e);
            }
        };
        self.made = start.saturating_add(got as u64);
        self.furthest = self.furthest.max(self.made);
        if got < BLOCK {
            self.end = Some(self.made);
        }
        Ok(got)
    }

    /// Has the next bytes unpacked, here or ahead.
    fn next_bytes(&mut self, block: &mut [u8]) -> io::Result<usize> {
        self.run = self.run.saturating_add(1);
        if self.run == RUN
            && let Some(send_ahead) = self.send_ahead
            && matches!(self.now, Going::Here(_))
        {
            let now = std::mem::replace(&mut self.now, Going::Here(self.first.clone()));
            if let Going::Here(stream) = now {
                self.now = send_ahead(stream, self.made, self.spacing());
            }
        }
        let mut spacing = self.spacing();
        let (got, state) = match &mut self.now {
            Going::Here(stream) => {
                let is_due = spacing.is_due(self.made, stream.size());
                let state = is_due.then(|| stream.clone());
                (stream.read_block(block)?, state)
            }
            Going::Ahead(ahead) => ahead.read_block(block)?,
        };
        if let Some(state) = state {
            self.keep(self.made, state);
        }
        Ok(got)
    }

    /// A block to be filled: the oldest one where there are many.
    fn spare_block(&mut self) -> Vec<u8> {
        let mut spare = None;
        if self.order.len() >= BLOCKS {
            spare = self
                .order
                .pop_front()
                .and_then(|at| self.blocks.remove(&at));
        }
        let mut block = spare.unwrap_or_default();
        block.resize(BLOCK, 0);
        block
    }
}

impl<F: ReadAt + Clone> ReadAt for Unpacked<F> {
    /// Not known before its end was seen: more than any file has.
    fn len(&self) -> u64 {
        self.inner.borrow().end.unwrap_or(u64::MAX >> 1)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut inner = self.inner.borrow_mut();
        if buf.is_empty() || inner.end.is_some_and(|end| offset >= end) {
            return Ok(0);
        }
        let start = offset - offset % BLOCK as u64;
        if !inner.blocks.contains_key(&start) {
            // What is gone through in large pieces is not kept here as well.
            if offset == inner.made
                && let Some(block) = buf.get_mut(..BLOCK)
            {
                inner.readable(offset)?;
                return inner.next_block(block);
            }
            inner.bring(start)?;
        }
        let inside = usize::try_from(offset - start).unwrap_or(BLOCK);
        let block = inner.blocks.get(&start);
        let rest = block
            .and_then(|block| block.get(inside..))
            .unwrap_or_default();
        rest.read_at(0, buf)
    }
}

#[cfg(test)]
mod tests;
