//! Reads a log of any size in constant memory: finds the lines that matter, groups what says the same, and puts first what
//! should be read first.
//!
//! Bytes are searched in large pieces, not line by line; a line is looked at where a literal of the catalogue stands in it.
//! Nothing is assumed of the bytes: no length of lines, no encoding, no prefix.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::LazyLock;

use memchr::memmem::Finder;

use super::matcher::{Candidate, Found, Line, Matcher, PASSES_ON};
use super::runs::Run;
use crate::catalogue::{Entry, find, normal, tag, unfolded, without_prefix};
use crate::finding::Severity;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
/// Bytes before and after a literal that are looked at, and kept between two pieces.
const AROUND: usize = 4096;
/// Bytes of a line that are kept, and how many of them stand before the match where the line is longer.
const KEPT: usize = 400;
const KEPT_BEFORE: usize = 120;
/// The longest line that may have been broken into several.
const WIDEST: usize = 240;
/// Lines beside one that may be the rest of it.
const WRAPPED: usize = 2;
/// Lines of other writers that may stand between.
const BETWEEN: usize = 8;
/// A text that somebody pasted: any of its lines may go on in the next.
const PASTED: usize = 4096;
/// Widths at which terminals break lines.
const TERMINALS: [usize; 6] = [80, 100, 120, 132, 160, 200];
/// Different sets of literals in a line whose outcome is remembered.
const REMEMBERED: usize = 4096;
/// How often a line has to come out the same before it is taken to do so always, whatever stands beside it.
const SETTLED: u32 = 8;
/// How many of a line that stands many times in a row are looked at, so that they are settled.
const SAMPLED: usize = 2 * SETTLED as usize;
/// Bytes that a line has at least after what looks like a prefix, so that these tell it from others.
const DISTINCT: usize = 20;
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
    /// How many.
    pub count: u64,
    /// The first of them; of a long one what stands around the match.
    pub text: String,
    /// It and what stands around it.
    pub context: String,
    /// How well the first line fits it: 0 where it is the heaviest of that line.
    rank: usize,
    /// Whether it stands in lines of source alone that a traceback shows.
    quoted: bool,
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
        if first {
            reader.wide = buffer.starts_with(b"\xff\xfe") || buffer.starts_with(b"\xfe\xff");
            reader.pasted = buffer.len() <= PASTED;
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
    input.take(PIECE as u64).read_to_end(buffer)
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
    /// Whether it is short enough to have been pasted.
    pasted: bool,
    /// The line under way: where it begins and ends, and what stands in it.
    line: Option<(usize, usize)>,
    candidates: Vec<Candidate>,
    /// What lines are that hold these literals and are decided by them alone.
    decided: HashMap<Vec<u16>, Vec<Found>>,
    /// What lines of these words were, and how often; by their shape where it does not matter which digits they have.
    repeated: Repeated,
    /// What the line was that was looked at last, and where it begins.
    told: Vec<(usize, Entry)>,
    /// The shape of the line under way: its words with all digits alike, and its literals.
    shape: Vec<u8>,
}

/// What lines were, and how often.
type Repeated = HashMap<Vec<u8>, (Vec<Found>, u32)>;

impl Reader {
    /// Searches a part of the buffer, where the same line stands many times in a row a few of them for all.
    fn piece(&mut self, buffer: &[u8], from: usize, to: usize) {
        self.bytes += (to - from) as u64;
        self.told.clear();
        let mut at = from;
        while let Some(run) = Run::next(buffer, at, to) {
            let sampled = run.start + SAMPLED * run.line;
            self.search(buffer, at, sampled);
            self.flush(buffer);
            // The last one is looked at again, for what stands behind it.
            let skipped = run.count - SAMPLED - 1;
            let of_it = self
                .told
                .iter()
                .filter(|(start, _)| *start + run.line == sampled);
            for (_, entry) in of_it {
                if let Some(group) = self.groups.iter_mut().find(|g| g.entry == *entry) {
                    group.count += skipped as u64;
                }
            }
            at = sampled + skipped * run.line;
        }
        self.search(buffer, at, to);
    }

    /// Collects the literals of a part of the buffer, and looks at each line that has some.
    fn search(&mut self, buffer: &[u8], from: usize, to: usize) {
        let mut hits = Vec::new();
        find(buffer, from, to, |hit| hits.push(hit));
        hits.sort_by_key(|hit| hit.start);
        for hit in hits {
            if self.line.is_none_or(|(_, end)| hit.start >= end) {
                self.flush(buffer);
                self.line = Some(line_of(buffer, hit.start));
            }
            for (target, proves) in hit.targets {
                let known = |c: &Candidate| c.target == *target && c.proves == *proves;
                if !self.candidates.iter().any(known) {
                    self.candidates.push(Candidate {
                        target: *target,
                        proves: *proves,
                        at: hit.start,
                        end: hit.end,
                    });
                }
            }
        }
    }

    /// Looks at the line under way.
    fn flush(&mut self, buffer: &[u8]) {
        let Some((start, end)) = self.line.take() else {
            return;
        };
        self.told.clear();
        let candidates = std::mem::take(&mut self.candidates);
        self.lines += count_lines(buffer.get(self.counted..start).unwrap_or_default());
        self.counted = self.counted.max(start);
        let number = self.lines + 1;
        let place = Place {
            buffer,
            start,
            end,
            number,
            quoted: in_traceback(buffer, start, end),
        };
        // A log of one failure a million times is not looked at a million times.
        let decided = self.matcher.decided(&candidates).then(|| {
            let mut targets: Vec<u16> = candidates.iter().map(|c| c.target).collect();
            targets.sort_unstable();
            targets
        });
        if let Some(found) = decided.as_ref().and_then(|key| self.decided.get(key)) {
            let found = found.clone();
            self.add_again(found, &candidates, &place);
            return;
        }
        let words = Some(without_prefix(place.line()))
            .filter(|words| words.len() >= DISTINCT)
            .unwrap_or(place.line());
        self.shape.clear();
        if self.matcher.digits_alike(&candidates) && words.len() <= WIDEST {
            let digits_alike = |b: &u8| if b.is_ascii_digit() { b'0' } else { *b };
            self.shape.extend(words.iter().map(digits_alike));
            for candidate in &candidates {
                self.shape.extend(candidate.target.to_le_bytes());
                self.shape.push(u8::from(candidate.proves));
            }
        }
        let known = [&self.shape, words].into_iter().find_map(|key| {
            let (found, times) = self.repeated.get(key)?;
            (*times >= SETTLED).then(|| found.clone())
        });
        if let Some(found) = known {
            self.add_again(found, &candidates, &place);
            return;
        }
        let text = normal(place.line());
        let around = buffer
            .get(start.saturating_sub(AROUND / 2)..buffer.len().min(end + AROUND / 2))
            .unwrap_or_default();
        let pasted = self.pasted;
        let neighbours = || neighbours(buffer, start, end, pasted);
        let line = Line::new(&text, place.line(), &neighbours, around);
        let (found, numbered) = self.matcher.line(&line, &candidates);
        if let Some(key) = decided
            && self.decided.len() < REMEMBERED
        {
            self.decided.insert(key, found.clone());
        } else if words.len() <= WIDEST {
            // Where codes stand the number decides.
            let by_words = numbered || self.shape.is_empty();
            let key = if by_words { words } else { &self.shape };
            repeat(&mut self.repeated, key, &found);
        }
        for (rank, found) in found.into_iter().enumerate() {
            self.add(found, rank, &place);
        }
    }

    /// Adds what is known of such lines, where this one has it.
    fn add_again(&mut self, found: Vec<Found>, candidates: &[Candidate], place: &Place<'_>) {
        for (rank, found) in found.into_iter().enumerate() {
            let hit = candidates
                .iter()
                .find(|c| Entry::of_target(c.target) == found.entry);
            let (at, end) = hit.map_or((place.start, place.end), |hit| (hit.at, hit.end));
            self.add(Found { at, end, ..found }, rank, place);
        }
    }

    fn add(&mut self, found: Found, rank: usize, place: &Place<'_>) {
        self.told.push((place.start, found.entry));
        let broken = place.buffer.get(place.start..found.end);
        let line_end = place.number + count_lines(broken.unwrap_or_default());
        if let Some(group) = self.groups.iter_mut().find(|g| g.entry == found.entry) {
            // A long line is looked at in pieces, and one that was broken may be found from both of its parts.
            if group.line_end < place.number {
                group.count += 1;
            }
            group.line_end = group.line_end.max(line_end);
            group.severity = group.severity.max(found.severity);
            group.rank = group.rank.min(rank);
            group.quoted &= place.quoted;
            return;
        }
        let (before, _, after) = neighbours(place.buffer, place.start, place.end, false);
        let mut context = before;
        context.extend(place.line());
        context.extend(after);
        self.groups.push(Group {
            entry: found.entry,
            severity: found.severity,
            code: found.code,
            line: place.number,
            line_end,
            count: 1,
            text: place.text(found.at),
            context: unfolded(&context, false),
            rank,
            quoted: place.quoted,
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

/// Counts a line that came out like this.
fn repeat(repeated: &mut Repeated, key: &[u8], found: &[Found]) {
    let same = |known: &[Found]| {
        let outcome = |f: &Found| (f.entry, f.severity, f.code);
        known.iter().map(outcome).eq(found.iter().map(outcome))
    };
    match repeated.get_mut(key) {
        Some((known, times)) if same(known) => *times += 1,
        Some(known) => *known = (found.to_vec(), 1),
        None => {
            // What a log began with may be long over.
            if repeated.len() >= REMEMBERED {
                repeated.clear();
            }
            repeated.insert(key.to_vec(), (found.to_vec(), 1));
        }
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

/// A line that something was found in.
struct Place<'a> {
    buffer: &'a [u8],
    start: usize,
    end: usize,
    number: u64,
    quoted: bool,
}

impl Place<'_> {
    fn line(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// The line as it is shown: around `at` where it is long.
    fn text(&self, at: usize) -> String {
        let text = normal(self.line());
        if text.len() <= KEPT {
            return text;
        }
        let before = self.buffer.get(self.start..at.min(self.end));
        let at = before.map_or(0, |before| normal(before).len());
        let from = at.saturating_sub(KEPT_BEFORE).min(text.len() - KEPT);
        let border = |mut at: usize| {
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let from = border(from);
        let to = border((from + KEPT).min(text.len()));
        let part = text.get(from..to).unwrap_or_default().trim();
        let (start, end) = (
            if from > 0 { "... " } else { "" },
            if to < text.len() { " ..." } else { "" },
        );
        format!("{start}{part}{end}")
    }
}

/// The line before the place, if there is one within reach.
fn line_before(buffer: &[u8], start: usize) -> Option<(usize, usize)> {
    let end = start
        .checked_sub(1)
        .filter(|end| buffer.get(*end) == Some(&b'\n'))?;
    let low = end.saturating_sub(WIDEST + 1);
    let before = buffer.get(low..end)?;
    let from = match memchr::memrchr(b'\n', before) {
        Some(newline) => low + newline + 1,
        None if low == 0 => 0,
        None => return None,
    };
    Some((from, end))
}

/// The lines that may be the beginning and the rest of one, each with its line break, and whether any of these breaks may
/// stand within a word.
pub(super) type Neighbours = (Vec<u8>, bool, Vec<u8>);

/// Lines before and after that may belong to the one at `start..end`: those of the same writer.
fn neighbours(buffer: &[u8], start: usize, end: usize, pasted: bool) -> Neighbours {
    let own = buffer.get(start..end).unwrap_or_default();
    let (mut before, mut after, mut cut) = (Vec::new(), Vec::new(), false);
    if own.len() > WIDEST {
        return (before, cut, after);
    }
    let own_tag = tag(own);
    let joins = |left: &[u8], right: &[u8]| {
        let right = without_prefix(right);
        left.trim_ascii_end()
            .last()
            .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'-')
            && left.len() >= 20
            && right.first().is_some_and(u8::is_ascii_alphanumeric)
    };
    let mut first = (start, end);
    for _ in 0..WRAPPED {
        let Some((from, to)) = line_before(buffer, first.0) else {
            break;
        };
        let line = buffer.get(from..to).unwrap_or_default();
        let width = line.strip_suffix(b"\r").unwrap_or(line).len();
        if !(pasted || TERMINALS.contains(&width)) || tag(line) != own_tag {
            break;
        }
        cut |= joins(line, buffer.get(first.0..first.1).unwrap_or_default());
        let rest = std::mem::take(&mut before);
        before.extend(line);
        before.push(b'\n');
        before.extend(rest);
        first = (from, to);
    }
    let mut last = own;
    let mut taken = 0;
    let rest = buffer
        .get(end..buffer.len().min(end + AROUND))
        .unwrap_or_default();
    for line in rest.split(|b| *b == b'\n').skip(1).take(WRAPPED + BETWEEN) {
        if tag(line) != own_tag {
            if own_tag.is_none() {
                break;
            }
            continue;
        }
        if taken == WRAPPED || line.len() > WIDEST {
            break;
        }
        taken += 1;
        cut |= joins(last, line);
        after.push(b'\n');
        after.extend(line);
        last = line;
    }
    (before, cut, after)
}

/// Whether a line is one of those by which a traceback of Python tells where it was: the source that it shows names errors
/// as well, and the error that it ends with stands in the last line.
fn in_traceback(buffer: &[u8], start: usize, end: usize) -> bool {
    static MARK: LazyLock<Finder<'_>> = LazyLock::new(|| Finder::new(b"\", line "));
    let place =
        |line: &[u8]| MARK.find(line).is_some() && without_prefix(line).starts_with(b"File \"");
    place(buffer.get(start..end).unwrap_or_default())
        || line_before(buffer, start)
            .and_then(|(from, to)| buffer.get(from..to))
            .is_some_and(place)
}

/// In the order of reading: the first of the heavy ones, what is beside it in the order of the log, what only passes on
/// what others say, then noise.
fn ordered(mut groups: Vec<Group>) -> Vec<Group> {
    let heaviest = groups
        .iter()
        .filter(|g| g.severity > Severity::Note && !g.quoted)
        .map(|g| g.entry.weight())
        .max()
        .unwrap_or(0);
    let lead = groups
        .iter()
        .filter(|g| {
            g.severity > Severity::Note
                && g.entry.weight() + NEARLY >= heaviest
                && g.rank == 0
                && !g.quoted
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
        } else if g.quoted || weight < PASSES_ON && heaviest >= PASSES_ON {
            2
        } else {
            1
        };
        (tier, g.line, g.rank, std::cmp::Reverse(weight))
    });
    groups
}
