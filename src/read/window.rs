//! Reading a file piece by piece: exact pieces, and searches through a small window.
//!
//! Libraries of the stack are up to 750 MB, and a verdict needs a few pages of each. So nothing is mapped (a file that
//! shrinks while mapped is a SIGBUS) and nothing is read whole: memory is bounded by the window, whatever the size.

use std::io;
use std::ops::{ControlFlow, Range};

use memchr::memmem;

use super::gist::Gist;

/// What can be read at an offset: a regular file, or bytes in memory.
pub trait ReadAt {
    /// The length in bytes.
    fn len(&self) -> u64;

    /// Reads at `offset` into `buf` and answers how many bytes it got; 0 at the end. May read less than was asked for.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What was learnt of it as it came by, where looking back is dear.
    fn gist(&self) -> Option<&Gist> {
        None
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|at| self.get(at..))
            .unwrap_or_default();
        let len = rest.len().min(buf.len());
        let (Some(into), Some(from)) = (buf.get_mut(..len), rest.get(..len)) else {
            return Ok(0);
        };
        into.copy_from_slice(from);
        Ok(len)
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        self.as_slice().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.as_slice().read_at(offset, buf)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, buf)
    }

    fn gist(&self) -> Option<&Gist> {
        (**self).gist()
    }
}

/// The most bytes that one call of [`bytes`] or [`bytes_up_to`] hands out: 16 MiB, four times the largest table that is
/// read in one piece (65,535 section headers of 64 bytes).
pub const MAX_PIECE: usize = 16 << 20;

/// How many bytes a search looks at in one go.
pub const WINDOW: usize = 64 << 10;

/// Fills as much of `buf` as the file has at `offset`, and answers how much that was. An interrupted read is taken up
/// again.
pub fn fill(file: &dyn ReadAt, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let Some(at) = offset.checked_add(done as u64) else {
            break;
        };
        match file.read_at(at, rest) {
            Ok(0) => break,
            Ok(n) => done += n.min(rest.len()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Exactly `len` bytes at `offset`; `None` where the file has fewer, cannot be read, or `len` is over [`MAX_PIECE`].
pub fn bytes(file: &dyn ReadAt, offset: u64, len: usize) -> Option<Vec<u8>> {
    let end = offset.checked_add(len as u64)?;
    // Checked before anything is allocated: `len` comes from the file itself.
    if len > MAX_PIECE || end > file.len() {
        return None;
    }
    let mut buf = vec![0; len];
    (fill(file, offset, &mut buf).ok()? == len).then_some(buf)
}

/// At most `len` bytes at `offset`, fewer at the end of the file; none where it cannot be read.
pub fn bytes_up_to(file: &dyn ReadAt, offset: u64, len: usize) -> Vec<u8> {
    let rest = file.len().saturating_sub(offset);
    let len = len
        .min(MAX_PIECE)
        .min(usize::try_from(rest).unwrap_or(usize::MAX));
    let mut buf = vec![0; len];
    let got = fill(file, offset, &mut buf).unwrap_or(0);
    buf.truncate(got);
    buf
}

/// Shows `visit` the bytes of `range`, window by window, each with its offset in the file.
///
/// Neighbouring windows overlap by `overlap` bytes, so that nothing of up to `overlap + 1` bytes is cut in two; what lies
/// wholly inside the overlap is seen twice. Ends where the file ends or cannot be read, or where `visit` breaks.
pub fn scan(
    file: &dyn ReadAt,
    range: Range<u64>,
    overlap: usize,
    mut visit: impl FnMut(u64, &[u8]) -> ControlFlow<()>,
) {
    let end = range.end.min(file.len());
    let overlap = overlap.min(WINDOW);
    let mut buf = vec![0; WINDOW + overlap];
    let mut at = range.start;
    while at < end {
        let len = usize::try_from(end - at)
            .unwrap_or(usize::MAX)
            .min(buf.len());
        let Some(window) = buf.get_mut(..len) else {
            break;
        };
        let Ok(got) = fill(file, at, window) else {
            break;
        };
        let seen = window.get(..got).unwrap_or_default();
        if visit(at, seen).is_break() || got < WINDOW + overlap {
            break;
        }
        at += WINDOW as u64;
    }
}

/// Where `needle` first begins in `range`, counted from the start of the file. A needle of nothing, or of more than
/// [`WINDOW`] bytes, is not found.
pub fn find(file: &dyn ReadAt, range: Range<u64>, needle: &[u8]) -> Option<u64> {
    let overlap = needle
        .len()
        .checked_sub(1)
        .filter(|overlap| *overlap < WINDOW)?;
    if let Some(mut places) = file.gist().and_then(|gist| gist.places(needle)) {
        return places.find(|at| *at >= range.start && at + needle.len() as u64 <= range.end);
    }
    let finder = memmem::Finder::new(needle);
    let mut found = None;
    scan(file, range, overlap, |offset, window| {
        match finder.find(window) {
            Some(at) => {
                found = offset.checked_add(at as u64);
                ControlFlow::Break(())
            }
            None => ControlFlow::Continue(()),
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    /// Reads one byte at a time, every second call interrupted.
    struct Stuttering(Vec<u8>, Cell<u32>);

    impl ReadAt for Stuttering {
        fn len(&self) -> u64 {
            self.0.len() as u64
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            self.1.set(self.1.get() + 1);
            if self.1.get().is_multiple_of(2) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let n = buf.len().min(1);
            self.0.read_at(offset, &mut buf[..n])
        }
    }

    /// Says it is longer than it is, like a file that shrinks while it is read.
    struct Shrinking(Vec<u8>);

    impl ReadAt for Shrinking {
        fn len(&self) -> u64 {
            self.0.len() as u64 + 100
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            self.0.read_at(offset, buf)
        }
    }

    #[test]
    fn pieces() {
        let file = b"0123456789".to_vec();
        assert_eq!(bytes(&file, 2, 3).unwrap(), b"234");
        assert_eq!(bytes(&file, 8, 3), None);
        assert_eq!(bytes(&file, u64::MAX, 3), None);
        assert_eq!(bytes(&file, 0, usize::MAX), None);
        assert_eq!(bytes_up_to(&file, 8, 30), b"89");
        assert_eq!(bytes_up_to(&file, 11, usize::MAX), b"");
    }

    #[test]
    fn short_and_interrupted_reads_are_taken_up_again() {
        let file = Stuttering(b"0123456789".to_vec(), Cell::new(0));
        assert_eq!(bytes(&file, 1, 5).unwrap(), b"12345");
        assert_eq!(find(&file, 0..10, b"78"), Some(7));
    }

    #[test]
    fn a_file_that_shrinks_is_no_piece() {
        let file = Shrinking(b"0123456789".to_vec());
        assert_eq!(bytes(&file, 5, 20), None);
        assert_eq!(bytes_up_to(&file, 5, 20), b"56789");
        assert_eq!(find(&file, 0..200, b"x"), None);
    }

    #[test]
    fn what_lies_across_windows_is_found() {
        for at in [0, WINDOW - 2, WINDOW - 1, WINDOW, 3 * WINDOW - 1] {
            let mut file = vec![b'.'; 3 * WINDOW + 2];
            file[at..at + 3].copy_from_slice(b"abc");
            assert_eq!(find(&file, 0..u64::MAX, b"abc"), Some(at as u64));
            assert_eq!(find(&file, at as u64 + 1..u64::MAX, b"abc"), None);
            assert_eq!(find(&file, 0..at as u64 + 2, b"abc"), None);
        }
        assert_eq!(find(&vec![1], 0..1, b""), None);
    }

    proptest! {
        #[test]
        fn pieces_of_any_place(file in prop::collection::vec(any::<u8>(), 0..50), offset: u64, len in 0usize..100) {
            let offset = offset % 60;
            let expected = file.get(offset as usize..).and_then(|f| f.get(..len)).map(<[u8]>::to_vec);
            prop_assert_eq!(bytes(&file, offset, len).unwrap_or_default(), expected.unwrap_or_default());
        }
    }
}
