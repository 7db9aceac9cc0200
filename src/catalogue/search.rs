//! Finds the catalogue's literals in bytes: all of them in one pass, whatever their case, quotes, blanks and colours.
//!
//! The tables were made when gpudoctor was built (see `build.rs`): of any three letters it is known how far the next window
//! can be, and which literals end their window there. What it finds is exact but for what it is loose about.

use super::index::{LITERALS, SHIFT, STARTS};

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
const LONGEST_GAP: usize = 200;
/// Letters that a window has, and those that tell windows apart.
const WINDOW: usize = 4;
const BLOCK: usize = 3;

/// Calls `found` for every literal whose window ends in `from..to`, in the order of those ends.
pub fn find(text: &[u8], from: usize, to: usize, mut found: impl FnMut(Hit)) {
    let mut at = from.max(WINDOW - 1);
    let to = to.min(text.len());
    while at < to {
        let Some(&[a, b, c]) = text.get(at + 1 - BLOCK..=at) else {
            return;
        };
        let hash = usize::from(a & 31) << 10 | usize::from(b & 31) << 5 | usize::from(c & 31);
        let shift = SHIFT.get(hash).copied().unwrap_or(1);
        if shift > 0 {
            at += usize::from(shift);
            continue;
        }
        for literal in bucket(hash) {
            if let Some((start, end)) = matched(literal, text, at + 1) {
                found(Hit {
                    start,
                    end,
                    targets: literal.targets,
                });
            }
        }
        at += 1;
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
    let start = backward(head, text, at)?;
    let end = forward(tail, text, at)?;
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
    before.ends_with(b"\\n")
        || before.ends_with(b"\\t")
        || before
            .iter()
            .rposition(|b| *b == 0x1b)
            .and_then(|escape| before.get(escape..))
            .is_some_and(|escape| escape_length(escape) == Some(escape.len()))
}

/// The length of an escape sequence for colours and the like that begins here.
pub(super) fn escape_length(text: &[u8]) -> Option<usize> {
    if text.first() != Some(&0x1b) || text.get(1) != Some(&b'[') {
        return None;
    }
    let inner = text.get(2..text.len().min(32))?;
    let end = inner.iter().position(|b| (0x40..=0x7e).contains(b))?;
    Some(end + 3)
}

/// How many bytes of a quote stand here: plain, typographic, or with the backslash of a string in JSON.
fn quote_length(text: &[u8]) -> Option<usize> {
    match text {
        [b'\'' | b'"' | b'`', ..] => Some(1),
        [b'\\', b'\'' | b'"', ..] => Some(2),
        [0xe2, 0x80, 0x98 | 0x99 | 0x9c | 0x9d, ..] => Some(3),
        _ => None,
    }
}

/// How many bytes of blank stand here; `\n` and `\t` of JSON are blanks.
fn blank_length(text: &[u8]) -> Option<usize> {
    match text {
        [b' ' | b'\t' | b'\n' | b'\r', ..] => Some(1),
        [b'\\', b'n' | b't' | b'r', ..] => Some(2),
        _ => escape_length(text),
    }
}

/// Where the text after `at` ends that `literal` means.
fn forward(literal: &[u8], text: &[u8], mut at: usize) -> Option<usize> {
    for letter in literal {
        while let Some(length) = text.get(at..).and_then(escape_length) {
            at += length;
        }
        let rest = text.get(at..)?;
        at += match letter {
            b' ' => {
                let mut gap = blank_length(rest)?;
                while gap < LONGEST_GAP
                    && let Some(more) = rest.get(gap..).and_then(blank_length)
                {
                    gap += more;
                }
                gap
            }
            b'\'' => quote_length(rest)?,
            letter => usize::from(rest.first()?.to_ascii_lowercase() == *letter)
                .checked_sub(1)
                .map(|_| 1)?,
        };
    }
    Some(at)
}

/// Where the text before `at` begins that `literal` means.
fn backward(literal: &[u8], text: &[u8], mut at: usize) -> Option<usize> {
    for letter in literal.iter().rev() {
        at = skip_escape_before(text, at);
        let before = text.get(..at)?;
        at -= match letter {
            b' ' => {
                let mut gap = blank_before(before)?;
                while gap < LONGEST_GAP
                    && let Some(more) = before.get(..before.len() - gap).and_then(blank_before)
                {
                    gap += more;
                }
                gap
            }
            b'\'' => quote_before(before)?,
            letter => usize::from(before.last()?.to_ascii_lowercase() == *letter)
                .checked_sub(1)
                .map(|_| 1)?,
        };
    }
    Some(at)
}

/// Takes a colour off that ends at `at`.
fn skip_escape_before(text: &[u8], at: usize) -> usize {
    let before = text.get(at.saturating_sub(12)..at).unwrap_or_default();
    if before.last().is_none_or(|b| !b.is_ascii_alphabetic()) {
        return at;
    }
    let escape = before.iter().rposition(|b| *b == 0x1b);
    match escape.and_then(|escape| before.get(escape..)) {
        Some(sequence) if escape_length(sequence) == Some(sequence.len()) => at - sequence.len(),
        _ => at,
    }
}

fn blank_before(before: &[u8]) -> Option<usize> {
    match before {
        [.., b' ' | b'\t' | b'\n' | b'\r'] => Some(1),
        [.., b'\\', b'n' | b't' | b'r'] => Some(2),
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
        _ => None,
    }
}

/// A line, or several, in the form that patterns see: one blank for any run of blanks, `'` for any quote, no colours, and
/// what is no UTF-8 replaced. Upper and lower case stay.
pub fn normal(text: &[u8]) -> String {
    let mut out: Vec<u8> = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..)
        && let Some(&first) = rest.first()
    {
        if let Some(length) = blank_length(rest) {
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
