//! A packed stream (gzip, zstd) read at any place as if it were not packed: the layers of container images.
//!
//! Nothing is unpacked to disk, and never the whole to memory. Reading forward unpacks each byte once; the newest blocks
//! are kept. Copies of the decoder's state are kept on the way, so that going back starts at the nearest of them: many of
//! gzip's, of 43 KB each, few of zstd's, which have a window of megabytes. All of that has a bound, and so has how much comes
//! out of how little. Checksums inside the streams are not checked: the blobs of an image have digests of their own.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};

use super::Endian;
use super::window::{ReadAt, bytes_up_to, fill};
use super::zstd::Frame;

/// What comes out is cut into blocks of this many bytes.
const BLOCK: usize = 64 << 10;
/// How many blocks are kept: 6 MiB.
const BLOCKS: usize = 96;
/// The least distance between two kept states, in unpacked bytes.
const SPACING: u64 = 4 << 20;
/// How many states are kept.
const STATES: usize = 160;
/// How many bytes of states are kept while a stream is gone through.
const STATE_BYTES: usize = 8 << 20;
/// How many bytes of the packed stream are read in one go.
const INPUT: usize = 16 << 10;
/// A stream that unpacks to more than this many times its size, and to more than [`LARGE`], is made to fill a disk.
/// Layers are packed to a half or a tenth.
const MAX_RATIO: u64 = 250;
/// Streams that unpack to less than this may be packed as tightly as they are.
const LARGE: u64 = if cfg!(test) { 16 << 20 } else { 1 << 30 };
/// How often what was unpacked once may be unpacked again, all jumps together.
const MAX_AGAIN: u64 = 8;
/// The largest window of zstd, in bytes: `zstd --ultra -22` takes 128 MiB, builders of images 8 MiB at most.
const MAX_WINDOW: u64 = 32 << 20;

/// How a file is packed, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// By gzip.
    Gzip,
    /// By zstd.
    Zstd,
}

impl Packing {
    /// How a file is packed; `None` where it is not, or otherwise.
    pub fn of(file: &dyn ReadAt) -> Option<Self> {
        let start = bytes_up_to(file, 0, 4);
        if start.starts_with(&GZIP) {
            Some(Self::Gzip)
        } else if Endian::Little.u32(&start, 0).is_some_and(is_zstd) {
            Some(Self::Zstd)
        } else {
            None
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }
}

const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// A frame, or one that is to be skipped.
fn is_zstd(magic: u32) -> bool {
    magic == 0xfd2f_b528 || is_skipped(magic)
}

fn is_skipped(magic: u32) -> bool {
    magic & 0xffff_fff0 == 0x184d_2a50
}

/// A decoder that goes forward; a copy of it goes on from the same place.
trait Stream: Clone {
    /// Fills a block; fewer bytes only at the end.
    fn read_block(&mut self, block: &mut [u8]) -> io::Result<usize>;

    /// How many bytes a copy holds.
    fn size(&self) -> usize;

    /// How far the packed stream is used up.
    fn used(&self) -> u64;
}

/// A packed file.
pub struct Unpacked<F: ReadAt> {
    inner: RefCell<Inner<Decoder<F>>>,
}

struct Inner<S> {
    now: S,
    /// The state at the start.
    first: S,
    /// How much came out: a multiple of [`BLOCK`], or the end.
    made: u64,
    /// The furthest that it ever came.
    furthest: u64,
    end: Option<u64>,
    failed: Option<(u64, String)>,
    states: BTreeMap<u64, S>,
    state_bytes: usize,
    /// The state that came furthest, while another one goes over what lies before it.
    front: Option<(u64, S)>,
    blocks: BTreeMap<u64, Vec<u8>>,
    order: VecDeque<u64>,
    /// Bytes that were unpacked again.
    again: u64,
}

impl<F: ReadAt + Clone> Unpacked<F> {
    /// A file that is packed so.
    pub fn new(packed: F, packing: Packing) -> Self {
        let decoder = match packing {
            Packing::Gzip => Decoder::Gzip(Gzip {
                packed,
                used: 0,
                state: None,
                ended: false,
            }),
            Packing::Zstd => Decoder::Zstd(Zstd {
                packed,
                next: 0,
                frame: None,
                ended: false,
            }),
        };
        Self {
            inner: RefCell::new(Inner {
                now: decoder.clone(),
                first: decoder,
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

    /// Lets go of what is only of use while it is read from start to end, up to so many bytes.
    pub fn rest(&self, bytes: usize) {
        let mut inner = self.inner.borrow_mut();
        inner.thin(bytes);
        inner.blocks.clear();
        inner.order.clear();
        inner.now = inner.first.clone();
        inner.made = 0;
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
    fn keep_state(&mut self) {
        let at = self.made;
        let last = self.states.keys().next_back().copied().unwrap_or(0);
        let is_far = at >= last.saturating_add(SPACING) && at >= self.furthest;
        if !is_far || self.states.contains_key(&at) {
            return;
        }
        // Where copies are large, one that is soon thrown away costs more than it is worth.
        let size = self.now.size();
        if at < last.saturating_add(2 * size as u64) {
            return;
        }
        self.state_bytes += size;
        self.states.insert(at, self.now.clone());
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
            return;
        }
        let state = nearest.map_or(&self.first, |(_, state)| state).clone();
        let before = std::mem::replace(&mut self.now, state);
        if self.made == self.furthest {
            self.front = Some((self.made, before));
        }
        self.made = from;
    }

    /// Unpacks until the block at `at` is there.
    fn bring(&mut self, at: u64) -> io::Result<()> {
        self.readable(at)?;
        self.go_back(at);
        while self.made <= at && self.end.is_none_or(|end| self.made < end) {
            let start = self.made;
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
        self.keep_state();
        let start = self.made;
        if start < self.furthest {
            self.again += BLOCK as u64;
            let most = self.furthest.saturating_mul(MAX_AGAIN);
            if self.again > most.saturating_add(LARGE) {
                return Err(io::Error::other("it would have to be unpacked too often"));
            }
        }
        let got = self.now.read_block(block).and_then(|got| {
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

#[derive(Clone)]
enum Decoder<F: ReadAt> {
    Gzip(Gzip<F>),
    Zstd(Zstd<F>),
}

impl<F: ReadAt + Clone> Stream for Decoder<F> {
    fn read_block(&mut self, block: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(gzip) => gzip.read_block(block),
            Self::Zstd(zstd) => zstd.read_block(block),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Gzip(gzip) => gzip.size(),
            Self::Zstd(zstd) => zstd.size(),
        }
    }

    fn used(&self) -> u64 {
        match self {
            Self::Gzip(gzip) => gzip.used(),
            Self::Zstd(zstd) => zstd.used(),
        }
    }
}

/// Gzip members one after the other: pigz and eStargz write many.
#[derive(Clone)]
struct Gzip<F> {
    packed: F,
    used: u64,
    /// Within a member.
    state: Option<Box<InflateState>>,
    ended: bool,
}

impl<F: ReadAt> Gzip<F> {
    /// Steps over a member's header; false where there is no further member.
    fn begin(&mut self) -> io::Result<bool> {
        /// An extra field and two texts; the texts have no bound of their own.
        const MAX_HEADER: usize = 130 << 10;
        let header = bytes_up_to(&self.packed, self.used, MAX_HEADER);
        if !header.starts_with(&GZIP) {
            // Zeros or something else behind the last member are nobody's business.
            return if self.used == 0 {
                Err(io::Error::other("is not packed by gzip"))
            } else {
                Ok(false)
            };
        }
        let length = gzip_header(&header).ok_or_else(cut_off)?;
        self.used += length as u64;
        self.state = Some(InflateState::new_boxed(DataFormat::Raw));
        Ok(true)
    }
}

/// Length of a member's header.
fn gzip_header(header: &[u8]) -> Option<usize> {
    let flags = *header.get(3)?;
    let mut at = 10;
    if flags & 4 != 0 {
        at += 2 + usize::from(Endian::Little.u16(header, at)?);
    }
    for text in [8, 16] {
        if flags & text != 0 {
            at += memchr::memchr(0, header.get(at..)?)? + 1;
        }
    }
    if flags & 2 != 0 {
        at += 2;
    }
    (at <= header.len()).then_some(at)
}

fn cut_off() -> io::Error {
    io::Error::other("is cut off")
}

impl<F: ReadAt + Clone> Stream for Gzip<F> {
    fn read_block(&mut self, block: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        let mut input = [0; INPUT];
        while let Some(rest) = block.get_mut(done..).filter(|rest| !rest.is_empty()) {
            if self.ended {
                break;
            }
            if self.state.is_none() && !self.begin()? {
                self.ended = true;
                break;
            }
            let Some(state) = &mut self.state else { break };
            let got = fill(&self.packed, self.used, &mut input)?;
            let piece = input.get(..got).unwrap_or_default();
            let result = inflate(state, piece, rest, MZFlush::None);
            self.used = self.used.saturating_add(result.bytes_consumed as u64);
            done += result.bytes_written;
            match result.status {
                Ok(MZStatus::StreamEnd) => {
                    // The checksum and the length.
                    self.used = self.used.saturating_add(8);
                    if self.used > self.packed.len() {
                        return Err(cut_off());
                    }
                    self.state = None;
                    self.ended = self.used == self.packed.len();
                }
                Ok(_) if result.bytes_consumed > 0 || result.bytes_written > 0 => {}
                _ if self.used >= self.packed.len() => return Err(cut_off()),
                _ => {
                    return Err(io::Error::other(
                        "is damaged: what gzip packed is not readable",
                    ));
                }
            }
        }
        Ok(done)
    }

    fn size(&self) -> usize {
        self.state.as_ref().map_or(0, |state| size_of_val(&**state))
    }

    fn used(&self) -> u64 {
        self.used
    }
}

/// Zstd frames one after the other.
#[derive(Clone)]
struct Zstd<F> {
    packed: F,
    /// Where the next frame begins, between frames.
    next: u64,
    frame: Option<Frame>,
    ended: bool,
}

impl<F: ReadAt> Zstd<F> {
    /// Begins the next frame; false where there is none.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            let start = bytes_up_to(&self.packed, self.next, 8);
            let magic = Endian::Little.u32(&start, 0);
            match magic.filter(|magic| is_zstd(*magic)) {
                Some(magic) if is_skipped(magic) => {
                    let len = Endian::Little.u32(&start, 4).ok_or_else(cut_off)?;
                    self.next += 8 + u64::from(len);
                }
                Some(_) => break,
                None if self.next == 0 => return Err(io::Error::other("is not packed by zstd")),
                None => return Ok(false),
            }
        }
        self.frame = Some(Frame::begin(&self.packed, self.next, MAX_WINDOW)?);
        Ok(true)
    }
}

impl<F: ReadAt + Clone> Stream for Zstd<F> {
    fn read_block(&mut self, block: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while let Some(rest) = block.get_mut(done..).filter(|rest| !rest.is_empty()) {
            if self.ended {
                break;
            }
            let Some(frame) = &mut self.frame else {
                self.ended = !self.begin()?;
                continue;
            };
            let got = frame.read(&self.packed, rest)?;
            done += got;
            if got == 0 {
                self.next = frame.at();
                self.frame = None;
                if self.next > self.packed.len() {
                    return Err(cut_off());
                }
                self.ended = self.next == self.packed.len();
            }
        }
        Ok(done)
    }

    fn size(&self) -> usize {
        self.frame.as_ref().map_or(0, Frame::size)
    }

    fn used(&self) -> u64 {
        self.frame.as_ref().map_or(self.next, Frame::at)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers are small")]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone)]
    struct Shared(Arc<Vec<u8>>);

    impl ReadAt for Shared {
        fn len(&self) -> u64 {
            self.0.as_ref().len() as u64
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            self.0.read_at(offset, buf)
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::GzBuilder::new()
            .filename("layer.tar")
            .write(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
    }

    fn open(packed: &[u8]) -> Unpacked<Shared> {
        let packing = Packing::of(&packed).unwrap();
        Unpacked::new(Shared(Arc::new(packed.to_vec())), packing)
    }

    /// Bytes that cannot be packed well.
    fn noise(len: usize) -> Vec<u8> {
        let mut seed = 1u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8 & 0x3f
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn any_place_of_a_large_stream() {
        let bytes = noise(5 << 20);
        for packed in [gzip(&bytes), zstd(&bytes)] {
            let file = open(&packed);
            let mut buf = [0; 100];
            for at in [
                0, 5_242_800, 3, 5_000_000, 4_999_999, 65_530, 5_242_850, 100,
            ] {
                let got = fill(&file, at, &mut buf).unwrap();
                let at = at as usize;
                assert_eq!(buf[..got], bytes[at..(at + 100).min(bytes.len())]);
            }
            assert_eq!(file.len(), bytes.len() as u64);
            assert_eq!(fill(&file, 4_345_678, &mut buf).unwrap(), 100);
            file.rest(1 << 20);
            assert_eq!(fill(&file, 2_345_678, &mut buf).unwrap(), 100);
            assert_eq!(buf, bytes[2_345_678..2_345_778]);
        }
    }

    #[test]
    fn many_members_are_one_stream() {
        let (one, other) = (noise(100_000), noise(70_000));
        let both = [one.clone(), other.clone()].concat();
        let skipped = [
            &b"\x50\x2a\x4d\x18\x03\0\0\0abc"[..],
            &zstd(&one),
            b"\x5e\x2a\x4d\x18\x01\0\0\0x",
            &zstd(&other),
        ]
        .concat();
        for packed in [[gzip(&one), gzip(&other), vec![0; 512]].concat(), skipped] {
            let file = open(&packed);
            let mut buf = vec![0; both.len() + 5];
            assert_eq!(fill(&file, 0, &mut buf).unwrap(), both.len());
            assert_eq!(buf[..both.len()], both);
        }
    }

    #[test]
    fn what_is_cut_off_or_damaged_is_said() {
        let bytes = noise(300_000);
        for mut packed in [gzip(&bytes), zstd(&bytes)] {
            let mut buf = vec![0; bytes.len()];
            let whole = packed.len();
            let half = open(&packed[..whole / 2]);
            let error = fill(&half, 0, &mut buf).unwrap_err().to_string();
            assert!(error.contains("cut off"), "{error}");
            assert_eq!(fill(&half, 0, &mut buf).unwrap_err().to_string(), error);
            packed[whole / 2..whole / 2 + 400].fill(0xff);
            assert!(fill(&open(&packed), 0, &mut buf).is_err() || buf != bytes);
        }
    }

    #[test]
    fn a_stream_that_unpacks_without_end_is_refused() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&vec![0; 20 << 20]).unwrap();
        let file = open(&encoder.finish().unwrap());
        let error = fill(&file, 18 << 20, &mut [0; 9]).unwrap_err();
        assert!(error.to_string().contains("250 times"), "{error}");
        assert!(fill(&file, 1 << 20, &mut [0; 9]).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes(mut packed in prop::collection::vec(any::<u8>(), 0..300), is_zstd: bool, offset in 0u64..200_000) {
            let head: &[u8] = if is_zstd { b"\x28\xb5\x2f\xfd" } else { b"\x1f\x8b\x08\0\0\0\0\0\0\0" };
            packed.splice(0..0, head.iter().copied());
            let _ = open(&packed).read_at(offset, &mut [0; 64]);
        }
    }
}
