//! A file whose small reads are answered from pages that are kept: for questions that go back and forth in its tables.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;

use super::window::{ReadAt, fill};

/// What is read in one piece, in bytes.
pub const PAGE: usize = 4 << 10;
/// The most pages that are kept of one file, where nothing else is said.
const MAX_PAGES: usize = 256;

/// The largest read that is answered from pages; searches read more in one go, and go on.
const MAX_SMALL: usize = 8 * PAGE;

/// Pages of a file by their number.
pub type Kept = BTreeMap<u64, Box<[u8]>>;

/// A file with the pages of it that were read.
pub struct Pages<F> {
    file: F,
    most: usize,
    /// With their numbers in the order in which they came.
    kept: RefCell<(Kept, VecDeque<u64>)>,
}

impl<F: ReadAt> Pages<F> {
    /// A file of which nothing was read yet.
    pub fn new(file: F) -> Self {
        Self::up_to(file, MAX_PAGES)
    }

    /// One of which no more than so many pages are kept: those that were read last.
    pub fn up_to(file: F, most: usize) -> Self {
        Self {
            file,
            most: most.max(1),
            kept: RefCell::default(),
        }
    }

    /// The pages that are kept.
    pub fn into_kept(self) -> Kept {
        self.kept.into_inner().0
    }
}

impl<F: ReadAt> ReadAt for Pages<F> {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if buf.len() > MAX_SMALL {
            return self.file.read_at(offset, buf);
        }
        let number = offset / PAGE as u64;
        let inside = usize::try_from(offset % PAGE as u64).unwrap_or(PAGE);
        let (pages, order) = &mut *self.kept.borrow_mut();
        if !pages.contains_key(&number) {
            let mut page = vec![0; PAGE];
            let got = fill(&self.file, number * PAGE as u64, &mut page)?;
            page.truncate(got);
            if order.len() >= self.most
                && let Some(oldest) = order.pop_front()
            {
                pages.remove(&oldest);
            }
            pages.insert(number, page.into_boxed_slice());
            order.push_back(number);
        }
        // To the end of the page at most: whoever wants more asks again.
        let page = pages.get(&number).map(AsRef::as_ref).unwrap_or_default();
        page.get(inside..).unwrap_or_default().read_at(0, buf)
    }
}

#[cfg(test)]
mod tests {
    use super::super::window::{bytes, bytes_up_to};
    use super::*;

    #[test]
    fn the_same_bytes_come_out() {
        let file: Vec<u8> = (0..=250).cycle().take(3 * PAGE + 7).collect();
        let pages = Pages::new(file.clone());
        for (at, len) in [
            (0, 1),
            (PAGE - 1, 2),
            (PAGE, PAGE),
            (5, PAGE),
            (3, 2 * PAGE),
            (3 * PAGE, 7),
        ] {
            assert_eq!(
                bytes(&pages, at as u64, len).unwrap(),
                file[at..at + len],
                "{len} at {at}"
            );
        }
        assert_eq!(bytes(&pages, 3 * PAGE as u64, 8), None);
        assert_eq!(bytes_up_to(&pages, 3 * PAGE as u64, 8), file[3 * PAGE..]);
        assert_eq!(bytes_up_to(&pages, u64::MAX, 8), b"");
    }

    #[test]
    fn few_pages_are_kept() {
        let pages = Pages::new(vec![1; (MAX_PAGES + 3) * PAGE]);
        for page in 0..MAX_PAGES + 3 {
            assert_eq!(bytes(&pages, (page * PAGE) as u64, 1).unwrap(), [1]);
        }
        assert_eq!(pages.into_kept().len(), MAX_PAGES);
    }
}
