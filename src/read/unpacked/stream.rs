//! Decoders of gzip and zstd that go forward block by block, and that can be copied.

use std::hash::Hasher as _;
use std::io;

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush, MZStatus};
use twox_hash::XxHash64;

use crate::read::Endian;
use crate::read::window::{ReadAt, bytes_up_to, fill};
use crate::read::zstd::Frame;

/// How many bytes of the packed stream are read in one go.
const INPUT: usize = 16 << 10;
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
pub(super) trait Stream: Clone {
    /// Fills a block; fewer bytes only at the end.
    fn read_block(&mut self, block: &mut [u8]) -> io::Result<usize>;

    /// How many bytes a copy holds.
    fn size(&self) -> usize;

    /// How far the packed stream is used up.
    fn used(&self) -> u64;
}

#[derive(Clone)]
pub(super) enum Decoder<F: ReadAt> {
    Gzip(Gzip<F>),
    Zstd(Box<Zstd<F>>),
}

impl<F: ReadAt> Decoder<F> {
    /// At the start of a file.
    pub(super) fn new(packed: F, packing: Packing) -> Self {
        match packing {
            Packing::Gzip => Self::Gzip(Gzip {
                packed,
                used: 0,
                state: None,
                checksum: crc32fast::Hasher::new(),
                ended: false,
            }),
            Packing::Zstd => Self::Zstd(Box::new(Zstd {
                packed,
                next: 0,
                frame: None,
                checksum: XxHash64::with_seed(0),
                ended: false,
            })),
        }
    }
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
pub(super) struct Gzip<F> {
    packed: F,
    used: u64,
    /// Within a member.
    state: Option<Box<InflateState>>,
    /// Of what the member unpacked to so far.
    checksum: crc32fast::Hasher,
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
        self.checksum = crc32fast::Hasher::new();
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

fn other_checksum() -> io::Error {
    io::Error::other("is damaged: it unpacks to something else than its checksum says")
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
            self.checksum
                .update(rest.get(..result.bytes_written).unwrap_or_default());
            done += result.bytes_written;
            match result.status {
                Ok(MZStatus::StreamEnd) => {
                    // The checksum and the length.
                    let end = bytes_up_to(&self.packed, self.used, 8);
                    if end.len() < 8 {
                        return Err(cut_off());
                    }
                    let checksum = std::mem::take(&mut self.checksum).finalize();
                    if Endian::Little.u32(&end, 0) != Some(checksum) {
                        return Err(other_checksum());
                    }
                    self.used = self.used.saturating_add(8);
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
pub(super) struct Zstd<F> {
    packed: F,
    /// Where the next frame begins, between frames.
    next: u64,
    frame: Option<Frame>,
    /// Of what the frame unpacked to so far.
    checksum: XxHash64,
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
        self.checksum = XxHash64::with_seed(0);
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
            if frame.has_checksum() {
                self.checksum.write(rest.get(..got).unwrap_or_default());
            }
            done += got;
            if got == 0 {
                self.next = frame.at();
                if self.next > self.packed.len() {
                    return Err(cut_off());
                }
                if frame.has_checksum() {
                    // The lower half of it.
                    let checksum = bytes_up_to(&self.packed, self.next - 4, 4);
                    if checksum != self.checksum.finish().to_le_bytes()[..4] {
                        return Err(other_checksum());
                    }
                }
                self.frame = None;
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
