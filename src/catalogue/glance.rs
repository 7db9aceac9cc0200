//! Tells most places of a text at a glance: a literal is not there, or is there written as it is.
//!
//! It is the searcher's close look (`search`) without what that is made for: line breaks, colours, quotes and blanks of all
//! kinds. Where one of these may stand it says that it does not know. A test holds the two against each other.

use super::prefix;
use super::search::{LONGEST_GAP, may_end_escape, word_break_start};

/// What a look at plain letters says of a literal at a place.
pub(super) enum Glance {
    /// It is not there.
    Not,
    /// It is there, written as it is.
    At(usize, usize),
    /// Something stands there that has to be looked at more closely: a line break, a colour, blanks, a quote.
    Unknown,
}

/// What the close look says of most places, at a fraction of its cost: most literals of a bucket are not
/// the one that is there, and what is there is mostly written in one piece.
pub(super) fn glance(head: &[u8], tail: &[u8], text: &[u8], at: usize) -> Glance {
    match behind(tail, text, at) {
        Glance::At(_, end) => match before(head, text, at) {
            Glance::At(start, _) => Glance::At(start, end),
            other => other,
        },
        Glance::Unknown => match before(head, text, at) {
            Glance::Not => Glance::Not,
            _ => Glance::Unknown,
        },
        Glance::Not => Glance::Not,
    }
}

/// Whether a byte of text is just that letter of a literal: no blank and no quote, which are written in many ways.
fn is_letter((letter, here): &(&u8, &u8)) -> bool {
    here.to_ascii_lowercase() == **letter && !matches!(letter, b' ' | b'\'' | b'\\' | b'^')
}

/// Of the part of a literal that follows its window.
fn behind(tail: &[u8], text: &[u8], at: usize) -> Glance {
    let (mut left, mut end) = (tail, at);
    loop {
        let rest = text.get(end..).unwrap_or_default();
        let same = left.iter().zip(rest).take_while(is_letter).count();
        left = left.get(same..).unwrap_or_default();
        end += same;
        let Some((letter, after)) = left.split_first() else {
            return Glance::At(at, end);
        };
        let (here, next) = match rest.get(same..) {
            None | Some([]) => return Glance::Not,
            Some([here]) => (*here, None),
            Some([here, next, ..]) => (*here, Some(*next)),
        };
        let itself = |b: u8| b.is_ascii_graphic() && !matches!(b, b'\\' | b'^');
        let is_quote = *letter == b'\'' && matches!(here, b'\'' | b'"' | b'`');
        let breaks = here == b'-' && next.is_none_or(|next| next.is_ascii_whitespace());
        if is_quote || *letter == b' ' && here == b' ' && next.is_some_and(itself) {
            left = after;
            end += 1;
        } else if itself(here) && !breaks || here == b' ' && *letter != b' ' {
            return Glance::Not;
        } else {
            return Glance::Unknown;
        }
    }
}

/// Of the part of a literal up to the end of its window.
fn before(head: &[u8], text: &[u8], at: usize) -> Glance {
    let (mut left, mut start) = (head, at);
    loop {
        let text_before = text.get(..start).unwrap_or_default();
        let letters = left.iter().rev().zip(text_before.iter().rev());
        let same = letters.take_while(is_letter).count();
        // What looks like letters may be the end of a colour.
        let looked_at = text_before.get(text_before.len().saturating_sub(same + 2)..);
        let mut pairs = looked_at.unwrap_or_default().windows(2);
        if pairs.any(|pair| may_end_escape(pair, 2)) {
            return Glance::Unknown;
        }
        left = left
            .get(..left.len().saturating_sub(same))
            .unwrap_or_default();
        start -= same;
        let Some((letter, rest)) = left.split_last() else {
            return Glance::At(start, at);
        };
        let Some(here) = start.checked_sub(1).and_then(|last| text.get(last)) else {
            return Glance::Not;
        };
        if *letter == b'\'' {
            return Glance::Unknown;
        }
        let is_it = |letter: &u8, last: u8| last.to_ascii_lowercase() == *letter;
        if *letter == b' ' {
            // The next letter stands before the blank, or ends the line before where only a prefix stands between.
            let elsewhere = line_before_ends(text, start)
                .map(|last| last.is_some_and(|last| rest.last().is_none_or(|n| is_it(n, last))));
            match elsewhere {
                Some(false) if *here == b' ' && last_letter(text, start - 1).is_some() => {
                    left = rest;
                    start -= 1;
                    continue;
                }
                Some(false) if *here == b'\n' || last_letter(text, start).is_some() => {
                    return Glance::Not;
                }
                _ => return Glance::Unknown,
            }
        }
        let last = match here {
            b'\n' => word_break_start(text, start - 1).checked_sub(1),
            b' ' if prefix::is_of_kubernetes(text.get(..start).unwrap_or_default()) => {
                return Glance::Unknown;
            }
            b'\\' | b'^' => return Glance::Unknown,
            _ => return Glance::Not,
        };
        return match last.and_then(|last| text.get(last)) {
            Some(last) if is_it(letter, *last) => Glance::Unknown,
            _ => Glance::Not,
        };
    }
}

/// The byte that ends before `at`, where it is one that stands for itself: no blank in any writing, no end of a colour.
fn last_letter(text: &[u8], at: usize) -> Option<u8> {
    let [before, last] = text.get(at.checked_sub(2)?..at)? else {
        return None;
    };
    let plain = last.is_ascii_graphic() && *before != b'\\' && !may_end_escape(text, at);
    plain.then_some(*last)
}

/// The last byte of the line before, where a prefix can reach from there to `at` (`None` within: it cannot); `None` where
/// that is not plain to see.
#[expect(
    clippy::option_option,
    reason = "it is not seen, there is none, or it is this one"
)]
fn line_before_ends(text: &[u8], at: usize) -> Option<Option<u8>> {
    let low = at.saturating_sub(prefix::LONGEST);
    let Some(newline) = memchr::memrchr(b'\n', text.get(low..at)?) else {
        return Some(None);
    };
    let line = low + newline;
    let before = text.get(line.saturating_sub(LONGEST_GAP)..line)?;
    let blanks = before.len() - before.trim_ascii_end().len();
    last_letter(text, line - blanks).map(Some)
}

/// Whether a prefix may end in this byte where no colour ends: most words end in a letter, and most prefixes do not.
pub(super) fn may_end_prefix(byte: u8) -> bool {
    !byte.is_ascii_alphabetic() || matches!(byte, b'Z' | b'T' | b'F' | b'P')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::index::LITERALS;
    use crate::catalogue::search::{backward, forward};

    /// What is told at a glance is what a close look tells, whatever stands in a text.
    #[test]
    fn a_glance_says_what_a_close_look_says() {
        let pieces: &[&[u8]] = &[
            b" ",
            b"  ",
            b"\n",
            b"\r\n",
            b"-\n",
            b"\\n",
            b"\t",
            b"\x1b[31m",
            b"\\u001b[0m",
            b"^[[1m",
            b"\xc2\xa0",
            b"'",
            b"\\\"",
            b"`",
            b"\xe2\x80\x99",
            b"[rank3]: ",
            b"\n[rank3]: ",
            b"\n> ",
            b"web-1  | ",
            b"0",
            b"m",
            b"7m",
            b"(B",
            b"\n2026-12-01T10:00:00.123456789Z stderr F ",
            b"\nDec 01 10:00:00 host python[7]: ",
            b"x",
            b"-",
            b"\\",
        ];
        let mut state = 20_261_201u64;
        let mut below = |end: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % end as u64).unwrap()
        };
        let (mut told, mut found) = (0, 0);
        for literal in LITERALS {
            let letters = literal.text.as_bytes();
            for turn in 0..8 {
                let mut text: Vec<u8> = b"a line before, and a prefix\n".to_vec();
                // Where a word begins, and what stands in place of a letter or between two, now and then.
                text.extend(pieces[below(pieces.len())]);
                let mut at = 0;
                let odd = if turn < 2 { 1000 } else { 8 };
                for (index, letter) in letters.iter().enumerate() {
                    if below(odd) == 0 {
                        text.extend(pieces[below(pieces.len())]);
                        if below(3) == 0 {
                            continue;
                        }
                    }
                    text.push(letter.to_ascii_uppercase());
                    if index + 1 == literal.window_end {
                        at = text.len();
                    }
                }
                text.extend(pieces[below(pieces.len())]);
                text.extend(b"and so on");
                let (head, tail) = letters.split_at(literal.window_end);
                let close = backward(head, &text, at).zip(forward(tail, &text, at));
                let glance = match glance(head, tail, &text, at) {
                    Glance::Unknown => continue,
                    Glance::Not => None,
                    Glance::At(start, end) => Some((start, end)),
                };
                told += 1;
                found += usize::from(glance.is_some());
                assert_eq!(
                    glance,
                    close,
                    "{:?} in {:?}",
                    literal.text,
                    text.escape_ascii().to_string()
                );
            }
        }
        assert!(told > 5000 && found > 1000, "{told} {found}");
    }
}
