//! What is kept of a large library as it comes by in a packed layer.
//!
//! There bytes are to be had in their order, and each look back unpacks again. So a library that is too large for memory is
//! gone through once, from its start to its end, and what will be asked of it is learnt on the way: the tables that the
//! loader and its tools go by are kept, of device code the headers; telling texts are looked for, and the numbers of a
//! runtime in its code. All of that has a bound. What was not kept is read from where it lies: nothing is answered
//! otherwise than without this, only sooner.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::ops::Range;

use memchr::memchr_iter;
use regex::bytes::Regex;

use super::elf::Headers;
use super::fatbin::{Asked, BEGINS, SHOWN, Trail};
use super::pages::{Kept, PAGE};
use super::window::{ReadAt, fill};
use super::{cudart, dynamic, linkage, recipes};

/// How much is read in one go, in bytes.
const PIECE: usize = 256 << 10;
/// What is looked at again with the next piece, since it may go on there.
const CARRY: usize = 128;
/// The most bytes of tables that are kept.
const MAX_TABLES: u64 = 32 << 20;
/// The most bytes of headers of device code, and around texts.
const MAX_HEADERS: usize = 8 << 20;
/// The most starts of cubins, of up to 32 KB each.
const MAX_HEADS: usize = 256;
/// The most places of one text that are noted.
const MAX_PLACES: usize = 4096;
/// The most numbers in code that are noted; a library has a few hundred.
const MAX_LEVELS: usize = 64 << 10;
/// What is kept behind a text, and of what follows a container.
const AROUND: u64 = 64;
/// The most pages that are handed out of one file in the end: 4 MB.
const MAX_PAGES: usize = 1024;

/// What is known of a file.
#[derive(Default)]
pub struct Gist {
    /// Tables, by where they begin; none overlaps another.
    tables: Vec<(u64, Vec<u8>)>,
    headers: Pieces,
    /// Starts of cubins, by where they lie.
    heads: BTreeMap<u64, Vec<u8>>,
    texts: Vec<(&'static [u8], Vec<u64>)>,
    /// Where code was gone through for numbers of a runtime, and those that were found.
    code: Vec<Range<u64>>,
    levels: Vec<(u64, u32)>,
}

impl Gist {
    /// Goes through a file. `None` where it is no ELF file.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn of(file: &dyn ReadAt, name: &str) -> io::Result<Option<Self>> {
        let mut piece = vec![0; PIECE];
        let got = fill(file, 0, &mut piece)?;
        piece.truncate(got);
        let Ok(headers) = Headers::read(&piece) else {
            return Ok(None);
        };
        let mut pass = Pass::new(headers, &piece, file.len(), name);
        // The end of the piece before stands before each piece.
        let mut carried = 0;
        let mut end = 0;
        loop {
            end += (piece.len() - carried) as u64;
            pass.take(end, &piece, carried);
            let from = piece.len().saturating_sub(CARRY);
            piece.copy_within(from.., 0);
            carried = piece.len() - from;
            piece.resize(carried + PIECE, 0);
            let got = fill(file, end, piece.get_mut(carried..).unwrap_or_default())?;
            piece.truncate(carried + got);
            if got == 0 {
                return Ok(Some(pass.finish()));
            }
        }
    }

    /// The bytes that are kept from an offset on.
    pub fn at_hand(&self, offset: u64) -> &[u8] {
        let table = self.table(offset);
        let header = self.headers.get(offset);
        let head = self.heads.range(..=offset).next_back();
        let head = head.map_or(&[][..], |(at, bytes)| from(*at, bytes, offset));
        let most = [table, header, head].into_iter().max_by_key(ReadAt::len);
        most.unwrap_or_default()
    }

    fn table(&self, offset: u64) -> &[u8] {
        let index = self.tables.partition_point(|(at, _)| *at <= offset);
        let table = index
            .checked_sub(1)
            .and_then(|index| self.tables.get(index));
        table.map_or(&[][..], |(at, bytes)| from(*at, bytes, offset))
    }

    /// Where a text stands, in order; `None` where it was not looked for, or stands at too many places.
    pub fn places(&self, text: &[u8]) -> Option<impl Iterator<Item = u64>> {
        let (_, places) = self.texts.iter().find(|(known, _)| *known == text)?;
        (places.len() < MAX_PLACES).then(|| places.iter().copied())
    }

    /// The numbers in a stretch of code that may be a runtime's; `None` where it was not gone through.
    pub fn levels(&self, code: Range<u64>) -> Option<impl Iterator<Item = u32>> {
        let known = |whole: &Range<u64>| whole.start <= code.start && code.end <= whole.end;
        if self.levels.len() >= MAX_LEVELS || !self.code.iter().any(known) {
            return None;
        }
        let inside = move |at: u64| {
            let end = at.checked_add(cudart::INSTRUCTION as u64);
            at >= code.start && end.is_some_and(|end| end <= code.end)
        };
        let levels = self.levels.iter().filter(move |(at, _)| inside(*at));
        Some(levels.map(|(_, level)| *level))
    }
}

/// The bytes from an offset on of what begins at a place.
fn from(at: u64, bytes: &[u8], offset: u64) -> &[u8] {
    let skip = offset
        .checked_sub(at)
        .and_then(|skip| usize::try_from(skip).ok());
    skip.and_then(|skip| bytes.get(skip..)).unwrap_or_default()
}

/// The bytes of a range, as far as a piece has them.
fn within<'p>(start: u64, piece: &'p [u8], range: &Range<u64>) -> &'p [u8] {
    let skip = range.start.saturating_sub(start);
    let end = range.end.saturating_sub(start);
    let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(piece.len());
    piece.get(index(skip)..index(end)).unwrap_or_default()
}

/// Small pieces of a file, in the order in which they lie there.
#[derive(Default)]
struct Pieces {
    bytes: Vec<u8>,
    /// Where a piece lies in the file, and where among the bytes; it ends where the next one begins.
    index: Vec<(u64, usize)>,
    /// Up to where the last one is to go on.
    until: u64,
}

impl Pieces {
    fn get(&self, offset: u64) -> &[u8] {
        let next = self.index.partition_point(|(at, _)| *at <= offset);
        let Some((at, start)) = next.checked_sub(1).and_then(|index| self.index.get(index)) else {
            return &[];
        };
        let end = self
            .index
            .get(next)
            .map_or(self.bytes.len(), |(_, start)| *start);
        from(*at, self.bytes.get(*start..end).unwrap_or_default(), offset)
    }

    /// Where the last one ends so far.
    fn end(&self) -> u64 {
        let last = self.index.last();
        last.map_or(0, |(at, start)| at + (self.bytes.len() - start) as u64)
    }

    /// Keeps a range that begins in this piece of the file or behind it; none lies before the one before.
    fn keep(&mut self, range: Range<u64>, start: u64, piece: &[u8]) {
        let end = self.end();
        let from = range.start.max(end);
        if from < start || from >= range.end || self.bytes.len() >= MAX_HEADERS {
            return;
        }
        if self.index.is_empty() || from > end {
            // What was still to come of the last one and did not is not missed: it is behind.
            self.index.push((from, self.bytes.len()));
        }
        self.until = self.until.max(range.end);
        let now = within(start, piece, &(from..range.end));
        self.bytes.extend_from_slice(now);
    }

    /// Goes on with the last one.
    fn go_on(&mut self, start: u64, piece: &[u8]) {
        let end = self.end();
        if !self.index.is_empty() && end < self.until {
            let now = within(start, piece, &(end..self.until));
            self.bytes.extend_from_slice(now);
        }
    }
}

/// A file that is being gone through.
struct Pass {
    gist: Gist,
    len: u64,
    headers: Headers,
    /// Ranges of tables that are not complete yet.
    wanted: Vec<Range<u64>>,
    /// How many more bytes of tables may be wanted.
    room: u64,
    /// Where the dynamic table lies, until it has come by.
    dynamic: Option<Range<u64>>,
    /// Texts and beginnings of device code.
    finder: Option<Regex>,
    /// Up to where they were looked for.
    looked: u64,
    /// Up to where code was gone through.
    counted: u64,
    trail: Option<Trail>,
    asked: Asked,
    /// A start of a cubin that goes on.
    head: Option<Range<u64>>,
    /// How many more are kept before those are looked through that are; none where that was no use.
    room_for_heads: Option<usize>,
}

impl Pass {
    fn new(headers: Headers, start: &dyn ReadAt, len: u64, name: &str) -> Self {
        let mut texts: Vec<&'static [u8]> = linkage::TEXTS.to_vec();
        texts.extend(recipes::text_of(name));
        let either: Vec<String> = [&BEGINS[..]]
            .iter()
            .chain(&texts)
            .map(|text| in_hexadecimal(text))
            .collect();
        let wanted = bounded(headers.tables(start, len), len, MAX_TABLES);
        let taken: u64 = wanted.iter().map(|range| range.end - range.start).sum();
        let is_read = headers.is_x86_64();
        let mut code = apart(headers.code_segments(start));
        code.retain(|_| is_read);
        Self {
            gist: Gist {
                tables: Vec::new(),
                texts: texts.into_iter().map(|text| (text, Vec::new())).collect(),
                code,
                ..Gist::default()
            },
            len,
            wanted,
            room: MAX_TABLES.saturating_sub(taken),
            dynamic: headers.dynamic_table(start),
            headers,
            finder: Regex::new(&format!("(?s-u){}", either.join("|"))).ok(),
            looked: 0,
            counted: 0,
            trail: None,
            asked: Asked::default(),
            head: None,
            room_for_heads: Some(MAX_HEADS),
        }
    }

    /// Looks at the piece that ends at `end`, of which this much was looked at before.
    fn take(&mut self, end: u64, piece: &[u8], carried: usize) {
        let start = end - piece.len() as u64;
        let new = piece.get(carried..).unwrap_or_default();
        let at = end - new.len() as u64;
        self.tables(at, new);
        self.want_named(end);
        self.gist.headers.go_on(at, new);
        self.go_on_with_head(at, new);
        // Inside of device code there is nothing to be looked for before the next header.
        let next = self.trail.as_ref().and_then(Trail::next);
        if next.unwrap_or(self.looked) < end {
            self.follow(start, piece);
        }
        self.count(start, piece);
    }

    /// Wants the tables that the dynamic table names and that are still to come, once it is there.
    fn want_named(&mut self, end: u64) {
        let Some(table) = self.dynamic.take_if(|table| table.end <= end) else {
            return;
        };
        let seen = Seen(&self.gist, table.end);
        let named = dynamic::tables(&seen, &self.headers);
        let page = PAGE as u64;
        let to_come = named.into_iter().filter_map(|range| {
            let start = range.start - range.start % page;
            let start = start.max(end.checked_next_multiple_of(page)?);
            let stop = range.end.checked_next_multiple_of(page)?.min(self.len);
            let stop = stop.min(start.saturating_add(self.room));
            self.room -= stop.saturating_sub(start);
            (start < stop).then_some(start..stop)
        });
        // One that has begun keeps its start.
        self.wanted.extend(to_come);
        self.wanted = apart(std::mem::take(&mut self.wanted));
    }

    fn tables(&mut self, at: u64, new: &[u8]) {
        let end = at + new.len() as u64;
        for range in &self.wanted {
            if range.start >= end || range.end <= at {
                continue;
            }
            let bytes = within(at, new, range);
            match self.gist.tables.last_mut() {
                Some((start, table)) if *start == range.start => table.extend_from_slice(bytes),
                _ => self.gist.tables.push((range.start, bytes.to_vec())),
            }
        }
        self.wanted.retain(|range| range.end > end);
    }

    fn go_on_with_head(&mut self, at: u64, new: &[u8]) {
        let Some(range) = self.head.clone() else {
            return;
        };
        if let Some(bytes) = self.gist.heads.get_mut(&range.start) {
            let from = range.start + bytes.len() as u64;
            bytes.extend_from_slice(within(at, new, &(from..range.end)));
        }
        if range.end <= at + new.len() as u64 {
            self.head = None;
        }
    }

    /// Follows device code, and looks for texts where there is none.
    fn follow(&mut self, start: u64, piece: &[u8]) {
        let end = start + piece.len() as u64;
        loop {
            if let Some(trail) = &mut self.trail {
                let Some(at) = trail.next() else {
                    let stop = trail.stop();
                    self.looked = self.looked.max(stop);
                    self.gist
                        .headers
                        .keep(stop..stop.saturating_add(AROUND), start, piece);
                    self.trail = None;
                    continue;
                };
                let shown = from(start, piece, at);
                if shown.len() < SHOWN && end < self.len {
                    return;
                }
                if let Some(step) = trail.step(shown, &mut self.asked) {
                    self.gist.headers.keep(step.header, start, piece);
                    if let Some(head) = step.head {
                        self.keep_head(head, start, piece);
                    }
                } else {
                    self.looked = self.looked.max(at);
                    self.trail = None;
                }
                continue;
            }
            self.looked = self.looked.max(start);
            let rest = from(start, piece, self.looked);
            let Some(found) = self.finder.as_ref().and_then(|finder| finder.find(rest)) else {
                // What begins in the last bytes may go on.
                self.looked = self.looked.max(end.saturating_sub(CARRY as u64));
                return;
            };
            let at = self.looked + found.start() as u64;
            let text = found.as_bytes();
            if text == BEGINS {
                let bytes = from(start, piece, at);
                if bytes.len() < CARRY / 2 && end < self.len {
                    self.looked = at;
                    return;
                }
                self.trail = Trail::begin(at, bytes);
                if let Some(trail) = &self.trail {
                    let first = trail.next().unwrap_or(at);
                    self.gist
                        .headers
                        .keep(at..first.max(at + AROUND), start, piece);
                }
            } else if let Some((_, places)) = self.gist.texts.iter_mut().find(|(t, _)| *t == text)
                && places.len() < MAX_PLACES
            {
                places.push(at);
                let behind = at + text.len() as u64;
                self.gist
                    .headers
                    .keep(at..behind.saturating_add(AROUND), start, piece);
            }
            self.looked = at + text.len() as u64;
        }
    }

    fn keep_head(&mut self, range: Range<u64>, start: u64, piece: &[u8]) {
        if self.room_for_heads == Some(0) {
            self.clean_heads();
            let room = MAX_HEADS.saturating_sub(self.gist.heads.len());
            // Where hardly any was in vain, no more are kept.
            self.room_for_heads = Some(room).filter(|room| *room > MAX_HEADS / 8);
        }
        let Some(room) = &mut self.room_for_heads else {
            return;
        };
        *room -= 1;
        let bytes = within(start, piece, &range);
        self.gist.heads.insert(range.start, bytes.to_vec());
        if start + piece.len() as u64 <= range.end {
            self.head = Some(range);
        }
    }

    /// Lets go of the starts that will not be asked for any more.
    fn clean_heads(&mut self) {
        let payloads = self.asked.payloads();
        self.gist
            .heads
            .retain(|payload, _| payloads.contains(payload));
    }

    /// Goes through code for numbers of a runtime.
    fn count(&mut self, start: u64, piece: &[u8]) {
        const OPCODE: u8 = 0xc7;
        let end = start + piece.len() as u64;
        // An instruction has to be there in whole.
        let whole = end.saturating_sub(cudart::INSTRUCTION as u64 - 1);
        for code in &self.gist.code {
            let from_here = code.start.max(self.counted).max(start);
            let bytes = within(start, piece, &(from_here..code.end.min(whole)));
            for at in memchr_iter(OPCODE, bytes) {
                let at = from_here + at as u64;
                if let Some(level) = cudart::level(from(start, piece, at + 1))
                    && self.gist.levels.len() < MAX_LEVELS
                {
                    self.gist.levels.push((at, level));
                }
            }
        }
        self.counted = self.counted.max(whole);
    }

    fn finish(mut self) -> Gist {
        self.clean_heads();
        if self.finder.is_none() {
            self.gist.texts.clear();
        }
        self.gist
    }
}

/// A text as a pattern for any bytes.
fn in_hexadecimal(text: &[u8]) -> String {
    let mut pattern = String::new();
    for byte in text {
        let _ = write!(pattern, "\\x{byte:02x}");
    }
    pattern
}

/// Makes whole pages of ranges as long as there is room for them, the first ones first; sorted, and none overlaps another.
fn bounded(ranges: Vec<Range<u64>>, len: u64, mut most: u64) -> Vec<Range<u64>> {
    let page = PAGE as u64;
    let mut bounded: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let start = range.start - range.start % page;
        let end = range.end.checked_next_multiple_of(page).unwrap_or(len);
        let end = end.min(len).min(start.saturating_add(most));
        if start < end {
            most -= end - start;
            bounded.push(start..end);
        }
    }
    apart(bounded)
}

/// Sorts ranges, and makes one of those that overlap.
fn apart(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut apart: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match apart.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => apart.push(range),
        }
    }
    apart
}

/// The tables that are kept so far, of a file that has come by up to a place.
struct Seen<'a>(&'a Gist, u64);

impl ReadAt for Seen<'_> {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.table(offset).read_at(0, buf)
    }
}

/// A file with its gist, and with the pages of it that were asked for beside it.
pub struct Sifted<'a> {
    file: &'a dyn ReadAt,
    gist: Gist,
    late: RefCell<BTreeMap<u64, Box<[u8]>>>,
    used: RefCell<BTreeSet<u64>>,
}

impl<'a> Sifted<'a> {
    /// A file that was gone through.
    pub fn new(file: &'a dyn ReadAt, gist: Gist) -> Self {
        Self {
            file,
            gist,
            late: RefCell::default(),
            used: RefCell::default(),
        }
    }

    /// The pages of its tables that were asked for.
    pub fn into_pages(self) -> Kept {
        let mut pages = self.late.into_inner();
        for number in self.used.into_inner() {
            let at = number * PAGE as u64;
            let bytes = self.gist.table(at);
            let bytes = bytes.get(..PAGE).unwrap_or(bytes);
            let is_whole = bytes.len() == PAGE || at + bytes.len() as u64 == self.file.len();
            if is_whole && pages.len() < MAX_PAGES {
                pages.insert(number, bytes.into());
            }
        }
        pages
    }
}

impl ReadAt for Sifted<'_> {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let number = offset / PAGE as u64;
        let table = self.gist.table(offset);
        if !table.is_empty() {
            let got = table.read_at(0, buf)?;
            let mut used = self.used.borrow_mut();
            if used.len() < MAX_PAGES && got > 0 {
                used.extend(number..=(offset + got as u64 - 1) / PAGE as u64);
            }
            return Ok(got);
        }
        let kept = self.gist.at_hand(offset);
        if !kept.is_empty() {
            return kept.read_at(0, buf);
        }
        let mut late = self.late.borrow_mut();
        let inside = usize::try_from(offset % PAGE as u64).unwrap_or(PAGE);
        if let Some(page) = late.get(&number) {
            return page.get(inside..).unwrap_or_default().read_at(0, buf);
        }
        if buf.len() > PAGE || late.len() >= MAX_PAGES {
            return self.file.read_at(offset, buf);
        }
        log::debug!("goes back to byte {offset} for {} bytes", buf.len());
        let mut page = vec![0; PAGE];
        let got = fill(self.file, number * PAGE as u64, &mut page)?;
        page.truncate(got);
        let page = late.entry(number).or_insert(page.into_boxed_slice());
        page.get(inside..).unwrap_or_default().read_at(0, buf)
    }

    fn gist(&self) -> Option<&Gist> {
        Some(&self.gist)
    }
}
