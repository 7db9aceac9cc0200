//! Static libraries: the members of an `ar` archive, each with its place in the file.

use std::ops::Range;

use super::text_to_nul;
use super::window::{ReadAt, bytes, bytes_up_to};

const MAGIC: &[u8] = b"!<arch>\n";
/// Name, time, owner, group, mode, size, end mark.
const HEADER: u64 = 60;
/// The most members that are listed; `libcublas_static` has 3,000.
const MAX_MEMBERS: usize = 100_000;
/// The most bytes of the table of long names.
const MAX_NAMES: usize = 8 << 20;

/// The members of an archive and their names; `None` where this is none. Ends at the first header that makes no sense.
pub fn members(file: &dyn ReadAt) -> Option<Vec<(String, Range<u64>)>> {
    if bytes_up_to(file, 0, MAGIC.len()) != MAGIC {
        return None;
    }
    let mut found = Vec::new();
    let mut names = Vec::new();
    let mut at = MAGIC.len() as u64;
    while let Some(header) = bytes(file, at, 60).filter(|h| h.ends_with(b"`\n")) {
        let field = |range: Range<usize>| {
            let text = header.get(range).unwrap_or_default();
            String::from_utf8_lossy(text).trim_end().to_owned()
        };
        let Ok(size) = field(48..58).parse::<u64>() else {
            break;
        };
        let name = field(0..16);
        let start = at + HEADER;
        let Some(end) = start.checked_add(size) else {
            break;
        };
        // BSD keeps a long name at the start of the member.
        let bsd = name
            .strip_prefix("#1/")
            .and_then(|len| len.parse::<u64>().ok());
        match name.as_str() {
            "/" | "/SYM64/" | "__.SYMDEF" => {}
            "//" => {
                let len = usize::try_from(size).unwrap_or(MAX_NAMES).min(MAX_NAMES);
                names = bytes_up_to(file, start, len);
            }
            _ if found.len() >= MAX_MEMBERS => break,
            _ if bsd.is_some() => {
                let skip = bsd.unwrap_or(0).min(size);
                let name = bytes_up_to(file, start, usize::try_from(skip).unwrap_or(0).min(4096));
                found.push((text_to_nul(&name), start + skip..end));
            }
            _ => {
                let long = name
                    .strip_prefix('/')
                    .and_then(|at| at.parse::<usize>().ok());
                let long = long.and_then(|at| names.get(at..)).map(|rest| {
                    let rest = rest.get(..4096).unwrap_or(rest);
                    let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                    String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).into_owned()
                });
                let name = long.unwrap_or(name);
                found.push((name.trim_end_matches('/').to_owned(), start..end));
            }
        }
        // Members begin at even places.
        let Some(next) = end.checked_add(end % 2) else {
            break;
        };
        at = next;
    }
    Some(found)
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers are small")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(name: &str, body: &[u8]) -> Vec<u8> {
        let mut raw = format!(
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
            0,
            0,
            0,
            644,
            body.len()
        )
        .into_bytes();
        raw.extend(body);
        if body.len() % 2 == 1 {
            raw.push(b'\n');
        }
        raw
    }

    fn archive() -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend(member("/", &[0; 4]));
        file.extend(member("//", b"a_name_of_some_length.o/\n"));
        file.extend(member("short.o/", b"abc"));
        file.extend(member("/0", b"defg"));
        file.extend(member("#1/8", b"bsd.o\0\0\0hi"));
        file
    }

    #[test]
    fn names_and_places() {
        let file = archive();
        let found: Vec<(String, Vec<u8>)> = members(&file)
            .unwrap()
            .into_iter()
            .map(|(name, at)| (name, file[at.start as usize..at.end as usize].to_vec()))
            .collect();
        assert_eq!(
            found,
            [
                ("short.o".to_owned(), b"abc".to_vec()),
                ("a_name_of_some_length.o".to_owned(), b"defg".to_vec()),
                ("bsd.o".to_owned(), b"hi".to_vec()),
            ]
        );
        assert_eq!(members(&b"!<thin>\n".to_vec()), None);
    }

    proptest! {
        #[test]
        fn damaged(at in 0usize..400, byte: u8, cut in 0usize..400) {
            let mut file = archive();
            let place = at % file.len();
            file[place] = byte;
            file.truncate(cut.max(1));
            let _ = members(&file);
        }
    }
}
