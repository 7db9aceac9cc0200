//! Finds where a log says the same line many times in a row, so that these are not looked at one by one.

/// Lines in a row that are worth it.
const MANY: usize = 64;
/// The longest line that is looked for, its line break included.
const LONGEST: usize = 1024;

/// The same line many times in a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where the first begins.
    pub(super) start: usize,
    /// Bytes of one, its line break included.
    pub(super) line: usize,
    /// How many they are: [`MANY`] at least.
    pub(super) count: usize,
}

impl Run {
    /// The first run of whole lines in `from..to`.
    pub(super) fn next(buffer: &[u8], from: usize, to: usize) -> Option<Self> {
        let text = buffer.get(from..to)?;
        let mut breaks = memchr::memchr_iter(b'\n', text);
        // Where the part begins, and not the log, the first line may be cut.
        let mut start = if from == 0 { 0 } else { breaks.next()? + 1 };
        let (mut line, mut count) = (0, 0);
        for newline in breaks {
            let next = start + line * count;
            let length = newline + 1 - next;
            let same = length == line && text.get(start..start + line) == text.get(next..=newline);
            if same && length <= LONGEST {
                count += 1;
                continue;
            }
            if count >= MANY {
                break;
            }
            (start, line, count) = (next, length, 1);
        }
        (count >= MANY).then_some(Self {
            start: from + start,
            line,
            count,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_line_is_found_where_it_stands_many_times_in_a_row() {
        let text = format!("x\nyy\n{}yy\n{}", "abc\n".repeat(100), "z\n".repeat(MANY));
        let text = text.as_bytes();
        let next = |from| Run::next(text, from, text.len());
        let run = |start, line, count| Some(Run { start, line, count });
        assert_eq!(next(0), run(5, 4, 100));
        assert_eq!(next(5), run(9, 4, 99));
        assert_eq!(next(405), run(408, 2, MANY));
        assert_eq!(next(409), None);
        assert_eq!(Run::next(text, 0, 5 + 4 * (MANY - 1)), None);
        assert_eq!(Run::next(b"", 0, 0), None);
        assert_eq!(Run::next(b"abc", 0, 3), None);
        assert_eq!(Run::next(b"abc", 2, 9), None);
    }
}
