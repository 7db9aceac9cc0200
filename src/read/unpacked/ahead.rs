//! A packed stream that is unpacked on a thread of its own, a little ahead of who reads it.
//!
//! Unpacking takes most of the time that a layer takes, and the rest of the work does not have to wait for it.

use std::io;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, JoinHandle};

use super::stream::Stream;
use super::{BLOCK, Spacing};
use crate::read::window::ReadAt;

/// How many blocks it may be ahead: 1 MiB.
const BLOCKS: usize = 16;

/// A stream on its thread.
pub(super) struct Ahead<S> {
    /// `None` once nobody listens any more.
    pieces: Option<Receiver<Piece<S>>>,
    /// Blocks that were read, to be filled again.
    spares: Sender<Vec<u8>>,
    thread: Option<JoinHandle<()>>,
    used: u64,
    ended: bool,
}

/// A block as it comes out.
struct Piece<S> {
    bytes: io::Result<Vec<u8>>,
    /// How far the packed stream is used up behind it.
    used: u64,
    /// The state before it, where one is to be kept.
    state: Option<S>,
}

impl<S: Stream> Ahead<S> {
    /// Lets a stream go on from `at`. Where no thread can be had the stream comes back.
    pub(super) fn start(stream: S, at: u64, spacing: Spacing) -> Result<Self, S>
    where
        S: Send + 'static,
    {
        let (to_us, pieces) = sync_channel(BLOCKS);
        let (spares, to_it) = channel();
        let used = stream.used();
        let copy = stream.clone();
        let thread = thread::Builder::new()
            .name("unpack".to_owned())
            .spawn(move || go_on(stream, at, spacing, &to_us, &to_it))
            .map_err(|_| copy)?;
        Ok(Self {
            pieces: Some(pieces),
            spares,
            thread: Some(thread),
            used,
            ended: false,
        })
    }

    /// Fills a block; fewer bytes only at the end. With it comes the state before it, where one is to be kept.
    pub(super) fn read_block(&mut self, block: &mut [u8]) -> io::Result<(usize, Option<S>)> {
        if self.ended {
            return Ok((0, None));
        }
        let piece = self.pieces.as_ref().and_then(|pieces| pieces.recv().ok());
        let Piece { bytes, used, state } =
            piece.ok_or_else(|| io::Error::other("the thread that unpacks it is gone"))?;
        let bytes = bytes.inspect_err(|_| self.ended = true)?;
        self.used = used;
        self.ended = bytes.len() < BLOCK;
        let got = bytes.read_at(0, block)?;
        // It may have ended meanwhile.
        let _ = self.spares.send(bytes);
        Ok((got, state))
    }

    /// How far the packed stream is used up.
    pub(super) fn used(&self) -> u64 {
        self.used
    }
}

impl<S> Drop for Ahead<S> {
    /// Waits for the thread: it gives up with the block that it is at.
    fn drop(&mut self) {
        self.pieces = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn go_on<S: Stream>(
    mut stream: S,
    mut at: u64,
    mut spacing: Spacing,
    pieces: &SyncSender<Piece<S>>,
    spares: &Receiver<Vec<u8>>,
) {
    loop {
        let state = spacing.is_due(at, stream.size()).then(|| stream.clone());
        let mut block = spares.try_recv().unwrap_or_default();
        block.resize(BLOCK, 0);
        let bytes = stream.read_block(&mut block).map(|got| {
            block.truncate(got);
            block
        });
        let got = bytes.as_ref().map_or(0, Vec::len);
        let piece = Piece {
            bytes,
            used: stream.used(),
            state,
        };
        if pieces.send(piece).is_err() || got < BLOCK {
            return;
        }
        at += got as u64;
    }
}
