//! The index of a zip archive, which wheels are: names, and where each member's bytes lie. Nothing is unpacked here.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Endian;
use super::window::{MAX_PIECE, ReadAt, bytes, bytes_up_to};

/// The end record and the longest comment behind it.
const END: u64 = 22 + 65_535;
/// The most members that are listed; the largest wheels have 20,000.
const MAX_MEMBERS: u64 = 500_000;

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its path in the archive.
    pub name: String,
    /// Its bytes are stored as they are, deflated, or something that is not read here.
    pub packing: Packing,
    /// Bytes in the archive.
    pub packed: u64,
    /// Bytes unpacked.
    pub size: u64,
    header: u64,
}

/// How a member is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    Stored,
    /// By deflate.
    Deflated,
    /// By another method, by its number.
    Other(u16),
}

/// The members of an archive, in the index's order; folders are left out.
///
/// # Errors
/// In words: this is no zip archive, or its index is cut off or too large. A member that shares its bytes with one
/// before is left out: no archive that was made to be unpacked has such.
pub fn members(file: &dyn ReadAt) -> Result<Vec<Member>, String> {
    let (at, len, count) =
        index(file).ok_or("it has no index at its end: no zip archive, or cut off")?;
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if len > MAX_PIECE {
        return Err(format!("its index of {len} bytes is too large"));
    }
    let index = bytes(file, at, len).ok_or("its index is cut off")?;
    let mut rest = index.as_slice();
    let mut found = Vec::new();
    let mut headers = BTreeSet::new();
    for _ in 0..count.min(MAX_MEMBERS) {
        let Some((member, length)) = member(rest) else {
            break;
        };
        if !member.name.ends_with('/') && headers.insert(member.header) {
            found.push(member);
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(found)
}

/// Where the index lies, how long it is, and how many members it has.
fn index(file: &dyn ReadAt) -> Option<(u64, u64, u64)> {
    let le = Endian::Little;
    let start = file.len().saturating_sub(END);
    let tail = bytes_up_to(file, start, usize::try_from(END).ok()?);
    let end = memchr::memmem::rfind(&tail, b"PK\x05\x06")?;
    let record = tail.get(end..)?;
    let small = (
        u64::from(le.u32(record, 16)?),
        u64::from(le.u32(record, 12)?),
        u64::from(le.u16(record, 10)?),
    );
    // Larger numbers stand in a record of their own, which a locator right before this one leads to.
    let locator = end.checked_sub(20).and_then(|at| tail.get(at..end));
    let locator = locator.filter(|raw| raw.starts_with(b"PK\x06\x07"));
    let large = locator.and_then(|raw| {
        let record = bytes(file, le.u64(raw, 8)?, 56).filter(|r| r.starts_with(b"PK\x06\x06"))?;
        Some((
            le.u64(&record, 48)?,
            le.u64(&record, 40)?,
            le.u64(&record, 32)?,
        ))
    });
    Some(large.unwrap_or(small))
}

/// The entry at the start of these bytes, and its length.
fn member(raw: &[u8]) -> Option<(Member, usize)> {
    let le = Endian::Little;
    if !raw.starts_with(b"PK\x01\x02") {
        return None;
    }
    let length = |at| le.u16(raw, at).map(usize::from);
    let (name, extra, comment) = (length(28)?, length(30)?, length(32)?);
    let name_end = 46 + name;
    let (mut packed, mut size, mut header) = (
        u64::from(le.u32(raw, 20)?),
        u64::from(le.u32(raw, 24)?),
        u64::from(le.u32(raw, 42)?),
    );
    // Numbers that do not fit into 32 bits stand in an extra field of kind 1, in this order, those only.
    let mut extras = raw.get(name_end..name_end + extra)?;
    while let (Some(kind), Some(len)) = (le.u16(extras, 0), le.u16(extras, 2)) {
        let end = 4 + usize::from(len);
        if kind == 1 {
            let mut values = extras.get(4..end)?.chunks_exact(8);
            for number in [&mut size, &mut packed, &mut header] {
                if *number == u64::from(u32::MAX) {
                    *number = le.u64(values.next()?, 0)?;
                }
            }
        }
        extras = extras.get(end..).unwrap_or_default();
    }
    let member = Member {
        name: String::from_utf8_lossy(raw.get(46..name_end)?).into_owned(),
        packing: match le.u16(raw, 10)? {
            0 => Packing::Stored,
            8 => Packing::Deflated,
            other => Packing::Other(other),
        },
        packed,
        size,
        header,
    };
    Some((member, name_end + extra + comment))
}

impl Member {
    /// Where its bytes lie, packed; `None` where its header is not where the index says.
    pub fn range(&self, file: &dyn ReadAt) -> Option<Range<u64>> {
        let le = Endian::Little;
        let header = bytes(file, self.header, 30).filter(|h| h.starts_with(b"PK\x03\x04"))?;
        let skip = 30 + u64::from(le.u16(&header, 26)?) + u64::from(le.u16(&header, 28)?);
        let start = self.header.checked_add(skip)?;
        Some(start..start.checked_add(self.packed)?)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "the numbers are small")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An archive with one stored member, as Info-ZIP writes it.
    fn archive() -> Vec<u8> {
        let mut file =
            b"PK\x03\x04\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\x03\0\0\0\x05\0\0\0a/b.cabc"
                .to_vec();
        let index = file.len();
        file.extend(b"PK\x01\x02\x1e\x03\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\0\0\0\x03\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0a/b.c");
        let len = file.len() - index;
        file.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
        file.extend((len as u32).to_le_bytes());
        file.extend((index as u32).to_le_bytes());
        file.extend([0, 0]);
        file
    }

    #[test]
    fn an_archive() {
        let file = archive();
        let members = members(&file).unwrap();
        assert_eq!(members.len(), 1);
        assert_eq!(
            (members[0].name.as_str(), members[0].packing),
            ("a/b.c", Packing::Stored)
        );
        let range = members[0].range(&file).unwrap();
        assert_eq!(&file[range.start as usize..range.end as usize], b"abc");
        assert!(super::members(&file[..40].to_vec()).is_err());
        assert!(super::members(&Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn damaged(at in 0usize..110, byte: u8, cut in 0usize..120) {
            let mut file = archive();
            let place = at % file.len();
            file[place] = byte;
            file.truncate(cut.max(1));
            for member in members(&file).unwrap_or_default() {
                let _ = member.range(&file);
            }
        }
    }
}
