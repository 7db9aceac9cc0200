//! A piece of a file, read as if it were a file of its own: a member of an archive, a cubin inside a library.

use std::io;
use std::ops::Range;

use super::window::ReadAt;

/// A range of another file. What lies outside it cannot be reached through it.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    file: &'a dyn ReadAt,
    start: u64,
    len: u64,
}

impl<'a> Part<'a> {
    /// The bytes of `range`, or as many of them as the file has.
    pub fn new(file: &'a dyn ReadAt, range: Range<u64>) -> Self {
        let end = range.end.min(file.len());
        let start = range.start.min(end);
        Self {
            file,
            start,
            len: end - start,
        }
    }
}

impl ReadAt for Part<'_> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = self.len.saturating_sub(offset);
        let len = usize::try_from(rest).unwrap_or(usize::MAX).min(buf.len());
        let Some(into) = buf.get_mut(..len).filter(|into| !into.is_empty()) else {
            return Ok(0);
        };
        // In range, since `offset` lies before the part's end.
        self.file.read_at(self.start.saturating_add(offset), into)
    }
}
