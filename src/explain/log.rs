//! Reads a log of any size in constant memory: finds the lines that matter, groups what says the same, and puts first what
//! should be read first.
//!
//! Bytes are searched in large pieces, not line by line; a line is looked at where a literal of the catalogue stands in it.
//! Nothing is assumed of the bytes: no length of lines, no encoding, no prefix.

use std::io::{self, Read};

use super::matcher::{Found, Line, Matcher, PASSES_ON};
use crate::catalogue::{Entry, find, normal};
use crate::finding::Severity;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Bytes before and after a literal that are looked at, and kept between two pieces.
const AROUND: usize = 4096;
/// Bytes of a line that is kept.
const KEPT: usize = 600;
/// Lines of one entry that are counted; more are said to be more.
const COUNTED: u64 = 1000;
/// The longest line that may have been wrapped.
const WIDEST: usize = 240;
/// Lines after one that may be the rest of it.
const WRAPPED: usize = 2;
/// How much lighter the first failure may be than the heaviest and be told first.
const NEARLY: u32 = 15;

/// What a log says.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// In the order in which they should be read.
    pub groups: Vec<Group>,
    /// Lines of the log.
    pub lines: u64,
    /// Its last lines, for who asks for help.
    pub bytes: u64,
}

/// Lines that say the same.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they say.
    pub entry: Entry,
    /// How bad.
    pub severity: Severity,
    /// The code that they have.
    pub code: Option<(&'static str, i32)>,
    /// The first of them, counted from 1.
    pub line: u64,
    /// The last.
    pub line_end: u64,
    /// How many; at least that many where `more` is set.
    pub count: u64,
    /// Whether more were not counted.
    pub more: bool,
    /// The first of them.
    pub text: String,
    /// It and what stands around it.
    pub context: String,
    /// How well the first line fits it: 0 where it is the heaviest of that line.
    rank: usize,
}

/// Reads a log to its end.
///
/// # Errors
/// What reading gives.
pub fn scan(mut input: impl Read) -> io::Result<Scan> {
    let mut reader = Reader::default();
    let mut buffer: Vec<u8> = Vec::with_capacity(PIECE + 4 * AROUND);
    // Where in the buffer the search goes on, and up to where lines were counted.
    let (mut from, mut first) = (0, true);
    loop {
        let before = buffer.len();
        let read = fill(&mut input, &mut buffer)?;
        let ended = read == 0;
        if first && buffer.starts_with(b"\xff\xfe") {
            reader.wide = true;
        }
        first = false;
        if reader.wide {
            drop_zeros(&mut buffer, before);
        }
        let to = if ended {
            buffer.len()
        } else {
            buffer.len().saturating_sub(AROUND)
        };
        reader.piece(&buffer, from, to.max(from));
        from = to.max(from);
        if ended {
            reader.flush(&buffer);
            reader.lines += count_lines(buffer.get(reader.counted..).unwrap_or_default());
            if buffer.last().is_some_and(|b| *b != b'\n') {
                reader.lines += 1;
            }
            break;
        }
        // What lies further back than a line reaches is let go.
        let go = from.saturating_sub(AROUND);
        if go > PIECE / 2 {
            reader.let_go(&buffer, go);
            buffer.drain(..go);
            from -= go;
        }
    }
    Ok(Scan {
        groups: ordered(reader.groups),
        lines: reader.lines,
        bytes: reader.bytes,
    })
}

fn fill(input: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut limited = input.take(PIECE as u64);
    let mut read = 0;
    loop {
        match limited.read_to_end(buffer) {
            Ok(n) => return Ok(read + n),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => read += 1,
            Err(e) => return Err(e),
        }
    }
}

/// UTF-16 of ASCII text without its zeros.
fn drop_zeros(buffer: &mut Vec<u8>, from: usize) {
    let tail: Vec<u8> = buffer
        .get(from..)
        .unwrap_or_default()
        .iter()
        .copied()
        .filter(|b| *b != 0)
        .collect();
    buffer.truncate(from);
    buffer.extend(tail);
}

fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// What is known so far.
#[derive(Default)]
struct Reader {
    matcher: Matcher,
    groups: Vec<Group>,
    /// Lines before `counted`.
    lines: u64,
    counted: usize,
    bytes: u64,
    wide: bool,
    /// The line under way: where it begins and ends, and what stands in it.
    line: Option<(usize, usize)>,
    candidates: Vec<(u16, bool)>,
}

impl Reader {
    /// Searches a part of the buffer.
    fn piece(&mut self, buffer: &[u8], from: usize, to: usize) {
        self.bytes += (to - from) as u64;
        let mut hits = Vec::new();
        find(buffer, from, to, |hit| hits.push(hit));
        for hit in hits {
            if self.line.is_none_or(|(_, end)| hit.start >= end) {
                self.flush(buffer);
                self.line = Some(line_of(buffer, hit.start));
            }
            for target in hit.targets {
                if !self.candidates.contains(target) {
                    self.candidates.push(*target);
                }
            }
        }
    }

    /// Looks at the line under way.
    fn flush(&mut self, buffer: &[u8]) {
        let Some((start, end)) = self.line.take() else {
            return;
        };
        let candidates = std::mem::take(&mut self.candidates);
        self.lines += count_lines(buffer.get(self.counted..start).unwrap_or_default());
        self.counted = self.counted.max(start);
        let number = self.lines + 1;
        // A log of one failure a million times is not looked at a million times.
        let all_known = candidates.iter().all(|(target, proves)| {
            *proves
                && self
                    .groups
                    .iter()
                    .any(|g| g.entry == Entry::of_target(*target) && g.count >= COUNTED)
        });
        if all_known {
            for group in &mut self.groups {
                if candidates
                    .iter()
                    .any(|(target, _)| Entry::of_target(*target) == group.entry)
                {
                    group.more = true;
                    group.line_end = number;
                }
            }
            return;
        }
        let raw = buffer.get(start..end).unwrap_or_default();
        let text = normal(raw);
        let after = lines_after(buffer, end, WRAPPED);
        let wrapped = buffer
            .get(start..after)
            .filter(|_| end - start <= WIDEST && after - start <= 3 * WIDEST)
            .unwrap_or_default();
        let around = buffer
            .get(start.saturating_sub(AROUND / 2)..buffer.len().min(end + AROUND / 2))
            .unwrap_or_default();
        let line = Line::new(&text, wrapped, around);
        let context = buffer
            .get(start..after.min(start + 2 * KEPT))
            .unwrap_or_default();
        for (rank, found) in self
            .matcher
            .line(&line, &candidates)
            .into_iter()
            .enumerate()
        {
            self.add(found, rank, number, &text, context);
        }
    }

    fn add(&mut self, found: Found, rank: usize, number: u64, text: &str, context: &[u8]) {
        if let Some(group) = self.groups.iter_mut().find(|g| g.entry == found.entry) {
            if group.count < COUNTED {
                group.count += 1;
            } else {
                group.more = true;
            }
            group.line_end = number;
            group.severity = group.severity.max(found.severity);
            group.rank = group.rank.min(rank);
            return;
        }
        self.groups.push(Group {
            entry: found.entry,
            severity: found.severity,
            code: found.code,
            line: number,
            line_end: number,
            count: 1,
            more: false,
            text: cut(text, KEPT).to_owned(),
            context: normal(context),
            rank,
        });
    }

    /// Forgets the first bytes of the buffer.
    fn let_go(&mut self, buffer: &[u8], go: usize) {
        if self.line.is_some_and(|(start, _)| start < go + AROUND) {
            self.flush(buffer);
        }
        if self.counted < go {
            self.lines += count_lines(buffer.get(self.counted..go).unwrap_or_default());
            self.counted = go;
        }
        self.counted -= go;
        self.line = self
            .line
            .map(|(start, end)| (start.saturating_sub(go), end.saturating_sub(go)));
    }
}

/// Where the line around a place begins and ends, as far as lines are looked at.
fn line_of(buffer: &[u8], at: usize) -> (usize, usize) {
    let low = at.saturating_sub(AROUND);
    let before = buffer.get(low..at).unwrap_or_default();
    let start = memchr::memrchr(b'\n', before).map_or(low, |newline| low + newline + 1);
    let rest = buffer
        .get(at..buffer.len().min(at + AROUND))
        .unwrap_or_default();
    let end = memchr::memchr(b'\n', rest).map_or(at + rest.len(), |newline| at + newline);
    (start, end)
}

/// Where the next few lines end.
fn lines_after(buffer: &[u8], end: usize, lines: usize) -> usize {
    let rest = buffer
        .get(end..buffer.len().min(end + AROUND))
        .unwrap_or_default();
    memchr::memchr_iter(b'\n', rest)
        .nth(lines)
        .map_or(end + rest.len(), |newline| end + newline)
}

/// A text of at most `most` bytes.
fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// In the order of reading: the first of the heavy ones, what is beside it in the order of the log, what only passes on
/// what others say, then noise.
fn ordered(mut groups: Vec<Group>) -> Vec<Group> {
    let heaviest = groups
        .iter()
        .filter(|g| g.severity > Severity::Note)
        .map(|g| g.entry.weight())
        .max()
        .unwrap_or(0);
    let lead = groups
        .iter()
        .filter(|g| {
            g.severity > Severity::Note && g.entry.weight() + NEARLY >= heaviest && g.rank == 0
        })
        .min_by_key(|g| (g.line, g.rank, std::cmp::Reverse(g.entry.weight())))
        .map(|g| g.entry);
    groups.sort_by_key(|g| {
        let weight = g.entry.weight();
        let tier = if weight < PASSES_ON && g.rank > 0 {
            4
        } else if g.severity == Severity::Note {
            3
        } else if Some(g.entry) == lead {
            0
        } else if weight < PASSES_ON && heaviest >= PASSES_ON {
            2
        } else {
            1
        };
        (tier, g.line, g.rank, std::cmp::Reverse(weight))
    });
    groups
}
