//! A file whose small reads are answered from pages that are kept: for questions that go back and forth in its tables.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

use super::window::{ReadAt, fill};

/// What is read in one piece, in bytes.
const PAGE: usize = 4 << 10;
/// The most pages that are kept of one file.
const MAX_PAGES: usize = 256;

/// A file with the pages of it that were read.
pub struct Pages<F> {
    file: F,
    pages: RefCell<BTreeMap<u64, Vec<u8>>>,
}

impl<F: ReadAt> Pages<F> {
    /// A file of which nothing was read yet.
    pub fn new(file: F) -> Self {
        Self {
            file,
            pages: RefCell::default(),
        }
    }
}

impl<F: ReadAt> ReadAt for Pages<F> {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if buf.len() > PAGE {
            return self.file.read_at(offset, buf);
        }
        let number = offset / PAGE as u64;
        let inside = usize::try_from(offset % PAGE as u64).unwrap_or(PAGE);
        let mut pages = self.pages.borrow_mut();
        if !pages.contains_key(&number) {
            let mut page = vec![0; PAGE];
            let got = fill(&self.file, number * PAGE as u64, &mut page)?;
            page.truncate(got);
            if pages.len() >= MAX_PAGES {
                pages.clear();
            }
            pages.insert(number, page);
        }
        // To the end of the page at most: whoever wants more asks again.
        let page = pages.get(&number).map(Vec::as_slice).unwrap_or_default();
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
        assert!(pages.pages.borrow().len() <= MAX_PAGES);
    }
}
