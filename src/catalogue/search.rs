//! Finds the catalogue's literals in bytes: all of them in one pass, whatever their case, quotes, blanks and colours.
//!
//! The tables were made when gpudoctor was built (see `build.rs`): of any three letters it is known how far the next window
//! can be, and which literals end their window there. What it finds is exact but for what it is loose about.

use super::glance::{Glance, glance, may_end_prefix};
use super::index::{LITERALS, SHIFT, STARTS};
use super::prefix;

/// A literal and the entries that it speaks for.
pub(super) struct Literal {
    /// Lower case; `'` is any quote, a blank any run of blanks and line breaks.
    pub(super) text: &'static str,
    /// Whether it may begin within a word.
    pub(super) open_start: bool,
    /// Whether it may end within a word.
    pub(super) open_end: bool,
    /// Where in it its window ends.
    pub(super) window_end: usize,
    /// Entries, each with whether the literal alone proves it.
    pub(super) targets: &'static [(u16, bool)],
}

/// A literal that was found.
#[derive(Clone, Copy, Debug)]
pub struct Hit {
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// What it speaks for.
    pub targets: &'static [(u16, bool)],
}

/// Blanks and line breaks in a row that count as one.
pub(super) const LONGEST_GAP: usize = 200;
/// Letters that a window has, and those that tell windows apart.
const WINDOW: usize = 4;
const BLOCK: usize = 3;

/// Calls `found` for every literal whose window ends in `from..to`: first those that are written in one piece, in the
/// order of those ends, then those whose window a line break cuts.
pub fn find(text: &[u8], from: usize, to: usize, mut found: impl FnMut(Hit)) {
    let mut at = from.max(WINDOW - 1);
    let to = to.min(text.len());
    while at < to {
        let Some(three) = text.get(at + 1 - BLOCK..=at) else {
            break;
        };
        let hash = hash(three);
        let shift = SHIFT.get(hash).copied().unwrap_or(1);
        if shift > 0 {
            at += usize::from(shift);
            continue;
        }
        verify(hash, text, at + 1, &mut found);
        at += 1;
    }
    broken(text, from, to, &mut found);
}

/// Finds the literals whose window has a line break in it, as terminals and Kubernetes break lines: anywhere.
fn broken(text: &[u8], from: usize, to: usize, found: &mut impl FnMut(Hit)) {
    for newline in memchr::memchr_iter(b'\n', text.get(from..to).unwrap_or_default()) {
        let newline = from + newline;
        let end = word_break_start(text, newline);
        let (Some(&[before, last]), Some(rest)) = (
            text.get(end.saturating_sub(2)..end),
            text.get(newline + 1..),
        ) else {
            continue;
        };
        if !last.is_ascii_alphanumeric() {
            continue;
        }
        let skipped = match rest.first() {
            Some(first) if first.is_ascii_digit() => {
                let length = prefix::length(rest);
                let kubernetes = rest.get(..length).is_some_and(prefix::is_of_kubernetes);
                if kubernetes { length } else { 0 }
            }
            Some(_) => 0,
            None => continue,
        };
        let next = newline + 1 + skipped;
        for (three, at) in [
            (text.get(next).map(|a| [before, last, *a]), next + 1),
            (
                text.get(next..next + 2)
                    .and_then(|n| Some([last, *n.first()?, *n.get(1)?])),
                next + 2,
            ),
        ] {
            let Some(three) = three else { continue };
            let hash = hash(&three);
            if SHIFT.get(hash) == Some(&0) {
                verify(hash, text, at, found);
            }
        }
    }
}

/// Three letters as a number: upper and lower case are the same.
fn hash(three: &[u8]) -> usize {
    three
        .iter()
        .fold(0, |hash, letter| hash << 5 | usize::from(letter & 31))
}

/// Calls `found` for the literals of a bucket whose window ends before `at`.
fn verify(hash: usize, text: &[u8], at: usize, found: &mut impl FnMut(Hit)) {
    // Most literals are told from the text by the byte behind their window, or by the first of it.
    let is_itself =
        |b: &u8| b.is_ascii_graphic() && !matches!(b, b'\\' | b'^' | b'-' | b'\'' | b'"' | b'`');
    let behind = text.get(at).filter(|b| is_itself(b));
    // A window that a line break cuts does not begin there.
    let window = at.checked_sub(BLOCK).and_then(|from| text.get(from..at));
    let whole = window.is_some_and(|w| w.iter().all(u8::is_ascii_graphic));
    let first = at.checked_sub(WINDOW).and_then(|first| text.get(first));
    let first = first.filter(|b| whole && is_itself(b) && !may_end_escape(text, at + 1 - WINDOW));
    for literal in bucket(hash) {
        let letters = literal.text.as_bytes();
        let differs = |at: Option<usize>, here: Option<&u8>| {
            let letter = at.and_then(|at| letters.get(at));
            letter
                .zip(here)
                .is_some_and(|(letter, here)| here.to_ascii_lowercase() != *letter)
        };
        if differs(Some(literal.window_end), behind)
            || differs(literal.window_end.checked_sub(WINDOW), first)
        {
            continue;
        }
        if let Some((start, end)) = matched(literal, text, at) {
            found(Hit {
                start,
                end,
                targets: literal.targets,
            });
        }
    }
}

/// The literals whose window ends with these three letters.
fn bucket(hash: usize) -> &'static [Literal] {
    let start = |hash: usize| {
        let bytes = STARTS.get(2 * hash..2 * hash + 2)?;
        Some(usize::from(u16::from_le_bytes([
            *bytes.first()?,
            *bytes.get(1)?,
        ])))
    };
    match (start(hash), start(hash + 1)) {
        (Some(from), Some(to)) => LITERALS.get(from..to).unwrap_or_default(),
        _ => &[],
    }
}

/// Where a literal begins and ends whose window ends at `at`.
fn matched(literal: &Literal, text: &[u8], at: usize) -> Option<(usize, usize)> {
    let (head, tail) = literal
        .text
        .as_bytes()
        .split_at_checked(literal.window_end)?;
    let (start, end) = match glance(head, tail, text, at) {
        Glance::Not => return None,
        Glance::At(start, end) => (start, end),
        Glance::Unknown => (backward(head, text, at)?, forward(tail, text, at)?),
    };
    let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    let begins = head.first().is_some_and(word);
    let before = start.checked_sub(1).and_then(|at| text.get(at));
    if begins && !literal.open_start && before.is_some_and(word) && !after_escape(text, start) {
        return None;
    }
    let ends = literal.text.as_bytes().last().is_some_and(word);
    if ends && !literal.open_end && text.get(end).is_some_and(word) {
        return None;
    }
    Some((start, end))
}

/// Whether what stands before is the end of a colour, or of `\n` as JSON writes it.
fn after_escape(text: &[u8], at: usize) -> bool {
    let before = text.get(at.saturating_sub(8)..at).unwrap_or_default();
    before.ends_with(b"\\n") || before.ends_with(b"\\t") || skip_escape_before(text, at) < at
}

/// How colours begin: as terminals get them, and as JSON, `cat -v`, shells and Python show them.
const ESCAPES: [&[u8]; 6] = [
    b"\x1b[",
    b"\\u001b[",
    b"\\u001B[",
    b"\\x1b[",
    b"\\033[",
    b"^[[",
];
/// Bytes of the longest escape sequence for colours that is looked for.
const LONGEST_ESCAPE: usize = 32;

/// The length of an escape sequence for colours and the like that begins here.
pub(super) fn escape_length(text: &[u8]) -> Option<usize> {
    let first = text.first()?;
    if !matches!(first, 0x1b | b'\\' | b'^') {
        return None;
    }
    if let [0x1b, b'(', b'B', ..] = text {
        return Some(3);
    }
    let intro = ESCAPES.iter().find(|intro| text.starts_with(intro))?.len();
    let inner = text.get(intro..text.len().min(LONGEST_ESCAPE))?;
    let end = inner.iter().position(|b| (0x40..=0x7e).contains(b))?;
    Some(intro + end + 1)
}

/// How many bytes of a quote stand here: plain, typographic, or as strings in JSON have it.
fn quote_length(text: &[u8]) -> Option<usize> {
    match text {
        [b'\'' | b'"' | b'`', ..] => Some(1),
        [b'\\', b'\'' | b'"', ..] => Some(2),
        [0xe2, 0x80, 0x98 | 0x99 | 0x9c | 0x9d, ..] => Some(3),
        [b'\\', b'u', b'0', b'0', b'2', b'2' | b'7', ..] => Some(6),
        _ => None,
    }
}

/// How many bytes of blank stand here; `\n` and `\t` of JSON are blanks, and so is one that does not break.
fn blank_length(text: &[u8]) -> Option<usize> {
    match text {
        [b' ' | b'\t' | b'\n' | b'\r', ..] => Some(1),
        [b'\\', b'n' | b't' | b'r', ..] | [0xc2, 0xa0, ..] => Some(2),
        _ => escape_length(text),
    }
}

/// Where a line ends whose line break is at `newline`: before `\r`, and before the hyphen of a word that was broken.
pub(super) fn word_break_start(text: &[u8], newline: usize) -> usize {
    let before = text.get(..newline).unwrap_or_default();
    let before = before.strip_suffix(b"\r").unwrap_or(before);
    match before {
        [rest @ .., letter, b'-'] if letter.is_ascii_alphabetic() => rest.len() + 1,
        _ => before.len(),
    }
}

/// The bytes of a line break within a word that begins here, the hyphen before it included.
fn word_break(text: &[u8]) -> Option<usize> {
    match text {
        [b'\n', ..] => Some(1),
        [b'\r' | b'-', b'\n', ..] => Some(2),
        [b'-', b'\r', b'\n', ..] => Some(3),
        _ => None,
    }
}

/// Where the text after `at` ends that `literal` means.
pub(super) fn forward(literal: &[u8], text: &[u8], mut at: usize) -> Option<usize> {
    for (index, letter) in literal.iter().enumerate() {
        while let Some(length) = text.get(at..).and_then(escape_length) {
            at += length;
        }
        let rest = text.get(at..)?;
        let same = match letter {
            b' ' => {
                let mut gap = blank_length(rest)?;
                while gap < LONGEST_GAP
                    && let Some(more) = rest.get(gap..).and_then(blank_length)
                {
                    gap += more;
                }
                // What begins the next line belongs to who wrote the log down, unless it is the text itself.
                if let Some(newline) = memchr::memrchr(b'\n', rest.get(..gap)?)
                    && let length = prefix::length(rest.get(newline + 1..)?)
                    && newline + 1 + length > gap
                {
                    let after = literal.get(index + 1..)?;
                    return forward(after, text, at + gap)
                        .or_else(|| forward(after, text, at + newline + 1 + length));
                }
                Some(gap)
            }
            b'\'' => quote_length(rest),
            letter => (rest.first()?.to_ascii_lowercase() == *letter).then_some(1),
        };
        at += match same {
            Some(length) => length,
            None if index == 0 && literal.len() < WINDOW => return None,
            None => {
                let next = word_break(rest)?;
                let line = rest.get(next..)?;
                let length = prefix::length(line);
                let literal = literal.get(index..)?;
                return forward_at(literal, text, at + next).or_else(|| {
                    (length > 0)
                        .then(|| forward_at(literal, text, at + next + length))
                        .flatten()
                });
            }
        };
    }
    Some(at)
}

/// [`forward`], where the first letter has to be here.
fn forward_at(literal: &[u8], text: &[u8], at: usize) -> Option<usize> {
    let (letter, here) = (literal.first()?, text.get(at)?);
    (here.to_ascii_lowercase() == *letter)
        .then(|| forward(literal, text, at))
        .flatten()
}

/// Where the text before `at` begins that `literal` means.
pub(super) fn backward(literal: &[u8], text: &[u8], mut at: usize) -> Option<usize> {
    for (left, letter) in literal.iter().enumerate().rev() {
        at = skip_escape_before(text, at);
        let before = text.get(..at)?;
        let same = match letter {
            b' ' => {
                let Some(mut gap) = blank_before(before) else {
                    let start = prefix_start(text, at)?;
                    return backward(literal.get(..left)?, text, blanks_start(text, start)?);
                };
                while gap < LONGEST_GAP
                    && let Some(more) = before.get(..before.len() - gap).and_then(blank_before)
                {
                    gap += more;
                }
                let blanks = before.get(before.len() - gap..)?;
                if !blanks.contains(&b'\n')
                    && let Some(start) = prefix_start(text, at)
                {
                    let literal = literal.get(..left)?;
                    return backward(literal, text, at - gap)
                        .or_else(|| backward(literal, text, blanks_start(text, start)?));
                }
                Some(gap)
            }
            b'\'' => quote_before(before),
            letter => (before.last()?.to_ascii_lowercase() == *letter).then_some(1),
        };
        if let Some(length) = same {
            at -= length;
            continue;
        }
        let start = match before.last()? {
            b'\n' => at,
            b' ' if prefix::is_of_kubernetes(before) => prefix_start(text, at)?,
            _ => return None,
        };
        let end = word_break_start(text, start.checked_sub(1)?);
        let literal = literal.get(..=left)?;
        let here = text.get(end.checked_sub(1)?)?;
        return (here.to_ascii_lowercase() == *literal.last()?)
            .then(|| backward(literal, text, end))
            .flatten();
    }
    Some(at)
}

/// Where the line begins of which nothing but a prefix stands before `at`.
fn prefix_start(text: &[u8], at: usize) -> Option<usize> {
    let low = at.saturating_sub(prefix::LONGEST);
    let before = text.get(low..at)?;
    // This is asked for every blank.
    let last = before
        .iter()
        .rposition(|b| !matches!(b, b' ' | b'\t'))
        .unwrap_or(0);
    let ends = before.get(last).is_none_or(|b| may_end_prefix(*b));
    if !ends && !may_end_escape(before, last + 1) {
        return None;
    }
    let start = memchr::memrchr(b'\n', before)? + 1;
    let line = before.get(start..)?;
    (!line.is_empty() && prefix::length(line) == line.len()).then_some(low + start)
}

/// Where the blanks before `at` begin.
fn blanks_start(text: &[u8], at: usize) -> Option<usize> {
    let before = text.get(at.saturating_sub(LONGEST_GAP)..at)?;
    Some(at - (before.len() - before.trim_ascii_end().len()))
}

/// Whether a colour may end at `at`: most letters that stand before a place are no end of one, and this is asked for
/// every letter.
#[inline]
pub(super) fn may_end_escape(text: &[u8], at: usize) -> bool {
    let Some([parameter, last]) = at.checked_sub(2).and_then(|two| text.get(two..at)) else {
        return false;
    };
    last.is_ascii_alphabetic() && matches!(parameter, b'0'..=b'9' | b';' | b'[' | b'(' | b'?')
}

/// Takes a colour off that ends at `at`.
fn skip_escape_before(text: &[u8], at: usize) -> usize {
    if !may_end_escape(text, at) {
        return at;
    }
    let before = text
        .get(at.saturating_sub(LONGEST_ESCAPE)..at)
        .unwrap_or_default();
    if before.ends_with(b"\x1b(B") {
        return at - 3;
    }
    let Some(bracket) = before.iter().rposition(|b| *b == b'[') else {
        return at;
    };
    let opening = before.get(..=bracket).unwrap_or_default();
    let Some(intro) = ESCAPES.iter().find(|intro| opening.ends_with(intro)) else {
        return at;
    };
    let sequence = before
        .get(opening.len() - intro.len()..)
        .unwrap_or_default();
    if escape_length(sequence) == Some(sequence.len()) {
        at - sequence.len()
    } else {
        at
    }
}

fn blank_before(before: &[u8]) -> Option<usize> {
    match before {
        [.., b' ' | b'\t' | b'\n' | b'\r'] => Some(1),
        [.., b'\\', b'n' | b't' | b'r'] | [.., 0xc2, 0xa0] => Some(2),
        _ => {
            let at = skip_escape_before(before, before.len());
            (at < before.len()).then(|| before.len() - at)
        }
    }
}

fn quote_before(before: &[u8]) -> Option<usize> {
    match before {
        [.., b'\\', b'\'' | b'"'] => Some(2),
        [.., b'\'' | b'"' | b'`'] => Some(1),
        [.., 0xe2, 0x80, 0x98 | 0x99 | 0x9c | 0x9d] => Some(3),
        [.., b'\\', b'u', b'0', b'0', b'2', b'2' | b'7'] => Some(6),
        _ => None,
    }
}

/// Several lines as one, without what stands before each line's own words. `within_words`: the break may stand anywhere,
/// as terminals break lines, and so nothing stands for it; else it is a blank.
pub fn unfolded(lines: &[u8], within_words: bool) -> String {
    let mut joined: Vec<u8> = Vec::with_capacity(lines.len());
    for (index, line) in lines.split(|b| *b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if index == 0 {
            joined.extend(line);
            continue;
        }
        if within_words {
            let end = word_break_start(&joined, joined.len());
            joined.truncate(end);
        } else {
            joined.push(b' ');
        }
        joined.extend(line.get(prefix::length(line)..).unwrap_or_default());
    }
    normal(&joined)
}

/// Whether a byte stands in [`normal`] as it is, whatever stands beside it.
fn is_plain(byte: u8) -> bool {
    let special = matches!(
        byte,
        b' ' | b'\'' | b'"' | b'`' | b'\\' | b'^' | 0xc2 | 0xe2
    );
    !special && !byte.is_ascii_control()
}

/// A line, or several, in the form that patterns see: one blank for any run of blanks, `'` for any quote, no colours, and
/// what is no UTF-8 replaced. Upper and lower case stay.
pub fn normal(text: &[u8]) -> String {
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..)
        && let Some(&first) = rest.first()
    {
        let plain = rest.iter().take_while(|b| is_plain(**b)).count();
        if plain > 0 {
            out.extend(rest.get(..plain).unwrap_or_default());
            at += plain;
        } else if let Some(length) = blank_length(rest) {
            if first != 0x1b && out.last().is_some_and(|b| *b != b' ') {
                out.push(b' ');
            }
            at += length;
        } else if let Some(length) = quote_length(rest) {
            out.push(b'\'');
            at += length;
        } else if let Some((byte, length)) = escaped_letter(rest) {
            out.push(byte);
            at += length;
        } else {
            if !first.is_ascii_control() {
                out.push(first);
            }
            at += 1;
        }
    }
    while out.last() == Some(&b' ') {
        out.pop();
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// `\u003e` and its like, as Go writes `>` into JSON.
fn escaped_letter(text: &[u8]) -> Option<(u8, usize)> {
    let rest = text.strip_prefix(b"\\u00")?;
    let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
    let byte = u8::from_str_radix(digits, 16).ok()?;
    byte.is_ascii_graphic().then_some((byte, 6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_brought_to_one_form() {
        for (text, normal_form) in [
            (&b"a  b\t c \r\n"[..], "a b c"),
            (b"\x1b[1;31merror:\x1b[0m x", "error: x"),
            (
                b"say \"x\" `y` \xe2\x80\x98z\xe2\x80\x99",
                "say 'x' 'y' 'z'",
            ),
            (
                b"{\"log\":\"cuda\\u003e=12.4\\n\"}",
                "{'log':'cuda>=12.4 '}",
            ),
            (b"a\xff\x00b", "a\u{fffd}b"),
            (b"", ""),
        ] {
            assert_eq!(normal(text), normal_form);
        }
    }

    #[test]
    fn colours_are_measured() {
        assert_eq!(escape_length(b"\x1b[0m"), Some(4));
        assert_eq!(escape_length(b"\x1b[01;31m\x1b[K"), Some(8));
        assert_eq!(escape_length(b"\x1b["), None);
        assert_eq!(escape_length(b"x"), None);
    }

    #[test]
    fn literals_are_found_however_they_are_written() {
        let found = |text: &[u8]| {
            let mut hits = Vec::new();
            find(text, 0, text.len(), |hit| {
                hits.push(text.get(hit.start..hit.end).unwrap().to_vec());
            });
            hits
        };
        for text in [
            "CUDA driver version is insufficient for CUDA runtime version",
            "cuda DRIVER version is insufficient for CUDA runtime version",
            "xx: CUDA driver version is\n   insufficient for CUDA\r\n runtime version",
            "CUDA driver \x1b[31mversion is insufficient\x1b[0m for CUDA runtime version!",
        ] {
            assert!(!found(text.as_bytes()).is_empty(), "{text}");
        }
        assert!(found(b"my version is sufficient for the run").is_empty());
        assert!(!found(b"\\ncudaErrorNoDevice").is_empty());
        let within_a_word = found(b"mycudaErrorNoDevices");
        assert!(within_a_word.iter().all(|hit| hit != b"cudaErrorNoDevice"));
    }
}
