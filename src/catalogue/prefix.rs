//! What stands in a line before the words of the program itself: quote marks, ranks, times, hosts, names of containers.
//!
//! It is known by its form alone, and only so that a text that was broken over two lines is read as one. It does not say
//! what the prefix means, but for the tag by which lines of one writer are told from those of others.

use super::search::escape_length;

/// Bytes of a prefix that are looked at.
pub(super) const LONGEST: usize = 200;

/// How many bytes of prefix a line begins with, blanks after it included.
pub(super) fn length(line: &[u8]) -> usize {
    let line = line.get(..line.len().min(LONGEST)).unwrap_or(line);
    let mut at = 0;
    // Prefixes stand one behind another: `web-1  | 2026-12-01T10:00:00Z [rank3]: `.
    while let Some(rest) = line.get(at..)
        && let Some(more) = part(rest).filter(|more| *more > 0)
    {
        at += more;
    }
    at
}

/// One part of a prefix.
fn part(text: &[u8]) -> Option<usize> {
    let first = *text.first()?;
    match first {
        b' ' | b'\t' | b'>' | b'|' => Some(1),
        b'[' => bracket(text),
        b'(' => process(text),
        b'0'..=b'9' => time(text).or_else(|| step(text)),
        b'A'..=b'Z' | b'a'..=b'z' | b'_' => logged(text)
            .or_else(|| stream(text))
            .or_else(|| container(text)),
        0xe2 if text.starts_with("│".as_bytes()) => Some("│".len()),
        _ => escape_length(text),
    }
}

/// `[rank3]:`, `[1,0]<stderr>:`, `[   12.345678]`, `[pod/web/main]`.
fn bracket(text: &[u8]) -> Option<usize> {
    let end = text.iter().take(80).position(|b| *b == b']')? + 1;
    let rest = text.get(end..)?;
    let stream: &[u8] = [&b"<stderr>"[..], b"<stdout>"]
        .into_iter()
        .find(|name| rest.starts_with(name))
        .unwrap_or_default();
    let end = end + stream.len();
    Some(end + usize::from(text.get(end) == Some(&b':')))
}

/// `(EngineCore_0 pid=812)`, as Ray and vLLM write it.
fn process(text: &[u8]) -> Option<usize> {
    let end = text.iter().take(80).position(|b| *b == b')')? + 1;
    let inner = text.get(..end)?;
    memchr::memmem::find(inner, b"pid=").map(|_| end)
}

/// `2026-12-01T10:00:00.123Z`, `2026/12/01 10:00:00`, `10:00:00,123`.
fn time(text: &[u8]) -> Option<usize> {
    let end = text
        .iter()
        .take(40)
        .position(|b| {
            !matches!(
                b,
                b'0'..=b'9' | b'-' | b'/' | b':' | b'.' | b',' | b'T' | b'Z' | b'+'
            )
        })
        .unwrap_or(text.len().min(40));
    let word = text.get(..end)?;
    let marks = |mark: u8| memchr::memchr_iter(mark, word).count();
    let date = word.len() >= 10 && (marks(b'-') >= 2 || marks(b'/') >= 2);
    let clock = marks(b':') >= 2 && word.len() >= 8;
    (date || clock).then_some(end)
}

/// `3: `, as `srun --label` writes it.
fn step(text: &[u8]) -> Option<usize> {
    let end = text.iter().take(6).position(|b| !b.is_ascii_digit())?;
    (text.get(end..end + 2) == Some(b": ")).then_some(end + 2)
}

/// `Dec 01 10:00:00 host python[7]: `, of syslog and the journal.
fn logged(text: &[u8]) -> Option<usize> {
    const MONTHS: [&[u8]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    if !MONTHS.iter().any(|month| text.starts_with(month)) {
        return None;
    }
    let mut at = 0;
    for _ in 0..3 {
        at = word_end(text, at)?;
    }
    let clock = text.get(..at)?;
    if memchr::memchr_iter(b':', clock).count() < 2 {
        return None;
    }
    // Host and process are there, or they are not.
    let process = word_end(text, at).and_then(|host| word_end(text, host));
    let colon = |end: &usize| {
        text.get(..*end)
            .is_some_and(|t| t.trim_ascii_end().ends_with(b":"))
    };
    Some(process.filter(colon).unwrap_or(at))
}

/// Where the word after `at` ends, with the blanks behind it.
fn word_end(text: &[u8], at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    let word = rest.iter().position(|b| *b == b' ')?;
    let blanks = rest.get(word..)?.iter().take_while(|b| **b == b' ').count();
    (word > 0).then_some(at + word + blanks)
}

/// `stderr F `, of the container runtime of Kubernetes, after its time.
fn stream(text: &[u8]) -> Option<usize> {
    let rest = text
        .strip_prefix(b"stderr ")
        .or_else(|| text.strip_prefix(b"stdout "))?;
    matches!(rest, [b'F' | b'P', b' ', ..]).then_some(9)
}

/// `web-1  | `, of docker compose.
fn container(text: &[u8]) -> Option<usize> {
    let name = text
        .iter()
        .take(64)
        .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')))?;
    let rest = text.get(name..)?;
    let blanks = rest.iter().take(40).take_while(|b| **b == b' ').count();
    (blanks > 0 && rest.get(blanks) == Some(&b'|')).then_some(name + blanks + 1)
}

/// Whether what ends here is the prefix of Kubernetes: the line before it may have been cut within a word.
pub(super) fn is_of_kubernetes(before: &[u8]) -> bool {
    matches!(
        before,
        [
            ..,
            b's',
            b't',
            b'd',
            b'o' | b'e',
            b'u' | b'r',
            b't' | b'r',
            b' ',
            b'F' | b'P',
            b' '
        ]
    )
}

/// What tells the lines of one writer from those of others: `[rank3]`, `web-1 `, `python[7]`.
pub(super) fn tag(line: &[u8]) -> Option<&[u8]> {
    let prefix = line.get(..length(line))?;
    let start = [&b"[rank"[..], b"[default", b"(", b"["]
        .iter()
        .find_map(|mark| memchr::memmem::find(prefix, mark));
    if let Some(start) = start {
        let rest = prefix.get(start..)?;
        let end = rest.iter().position(|b| matches!(b, b']' | b')'))?;
        let inner = rest.get(1..end)?;
        let clock = memchr::memchr_iter(b':', inner).count() >= 2
            || inner
                .iter()
                .all(|b| b.is_ascii_digit() || matches!(b, b' ' | b'.'))
                && inner.contains(&b'.');
        if !clock {
            // `python[7]`: the number alone tells.
            return rest.get(..=end);
        }
    }
    let bar = prefix.iter().position(|b| *b == b'|')?;
    let name = prefix.get(..bar)?.trim_ascii();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_before_the_words_of_a_program_is_known() {
        for prefix in [
            "",
            "> ",
            ">> ",
            "| ",
            "[rank3]: ",
            "[1,0]<stderr>:",
            "3: ",
            "web-1  | ",
            "trainer_worker.2 | [rank1]: ",
            "2026-12-01T10:00:00.123456789Z stderr F ",
            "2026-12-01T10:00:00.123456789+00:00 stdout P ",
            "2026-12-01 10:00:00,123 ",
            "2026/12/01 10:00:00 ",
            "10:00:00.123 ",
            "Dec 01 10:00:00 host python[7]: ",
            "Dec  1 10:00:00 host kernel: ",
            "[   12.345678] ",
            "[Tue Dec  1 10:00:00 2026] ",
            "(EngineCore_0 pid=812) ",
            "(RayWorkerWrapper pid=812, ip=10.0.0.2) ",
            "\u{1b}[36mweb-1  | \u{1b}[0m",
            "│ ",
        ] {
            let line = format!("{prefix}CUDA driver version");
            assert_eq!(length(line.as_bytes()), prefix.len(), "{prefix}");
        }
        for line in [
            "error: x",
            "CUDA driver",
            "803 is it",
            "Decoder failed",
            "a b | c",
        ] {
            assert_eq!(length(line.as_bytes()), 0, "{line}");
        }
    }

    #[test]
    fn lines_of_one_writer_have_one_tag() {
        for (line, expected) in [
            ("[rank3]: x", Some("[rank3]")),
            ("2026-12-01T10:00:00Z stderr F [rank3]: x", Some("[rank3]")),
            ("web-1  | x", Some("web-1")),
            ("Dec 01 10:00:00 host python[7]: x", Some("[7]")),
            ("[   12.345678] x", None),
            ("x", None),
        ] {
            let expected = expected.map(str::as_bytes);
            assert_eq!(tag(line.as_bytes()), expected, "{line}");
        }
    }
}
