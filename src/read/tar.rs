//! A tar archive, member by member: container images and their layers.
//!
//! The forms that are met: ustar, GNU (long names, base-256 numbers, sparse files) and pax. Only headers are read; where a
//! member's bytes lie is told, so that an archive of gigabytes costs its headers. Nothing is unpacked, and names are
//! handed out as they stand: where they lead is the caller's business.

use super::window::{ReadAt, fill};
use super::{cut, text_to_nul};

/// Headers and the ends of members stand at multiples of this.
const BLOCK: u64 = 512;
/// Bytes of a header.
const HEADER: usize = 512;
/// The most bytes of a long name or of pax records; a path has 4,096 at most.
const MAX_EXTENSION: u64 = 1 << 20;
/// The longest name that is handed out, as in the kernel.
const MAX_NAME: usize = 4096;
/// The most extension headers before one member.
const MAX_EXTENSIONS: u32 = 16;
/// The most blocks of a map of a sparse file.
const MAX_SPARSE: u32 = 4096;

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A regular file with holes: its bytes do not stand in one piece.
    Sparse,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// Another name of a member before.
    HardLink,
    /// A character device.
    CharDevice,
    /// A block device, a FIFO, or what is not known.
    Other,
}

/// A member of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its path as written: `./usr/lib/libx.so`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its size in bytes, holes included.
    pub size: u64,
    /// Where its bytes begin in the archive.
    pub at: u64,
    /// Where a link leads, as written.
    pub link: String,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Major and minor of a device.
    pub device: (u32, u32),
}

/// Goes through the members of an archive.
pub struct Members<'a> {
    file: &'a dyn ReadAt,
    at: u64,
    done: bool,
}

/// What extension headers say of the member that follows.
#[derive(Default)]
struct Extension {
    name: Option<String>,
    link: Option<String>,
    size: Option<u64>,
    real_size: Option<u64>,
    is_sparse: bool,
}

/// Whether a file begins like a tar archive: by the checksum of its first header.
pub fn is_tar(file: &dyn ReadAt) -> bool {
    let mut header = [0; HEADER];
    fill(file, 0, &mut header).is_ok_and(|got| got == header.len()) && checksum_is_right(&header)
}

impl<'a> Members<'a> {
    /// The members of an archive, from its start.
    pub fn new(file: &'a dyn ReadAt) -> Self {
        Self {
            file,
            at: 0,
            done: false,
        }
    }

    /// How far it has been read.
    pub fn at(&self) -> u64 {
        self.at
    }

    fn header(&mut self) -> Result<Option<[u8; HEADER]>, String> {
        let mut header = [0; HEADER];
        let got = fill(self.file, self.at, &mut header).map_err(|e| e.to_string())?;
        // Two blocks of zeros end it; some writers leave them out.
        if got == 0 || header.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if got < header.len() {
            return Err(format!("is cut off in a header at byte {}", self.at));
        }
        if !checksum_is_right(&header) {
            return Err(format!(
                "has no header of a tar archive at byte {}",
                self.at
            ));
        }
        Ok(Some(header))
    }

    fn extension(&self, size: u64) -> Result<Vec<u8>, String> {
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        if size > MAX_EXTENSION {
            return Err(format!(
                "has a name or record of {size} bytes at byte {}",
                self.at
            ));
        }
        let mut bytes = vec![0; len];
        let got = fill(self.file, self.at + BLOCK, &mut bytes).map_err(|e| e.to_string())?;
        if got < len {
            return Err(format!("is cut off in a header at byte {}", self.at));
        }
        Ok(bytes)
    }

    fn read(&mut self) -> Result<Option<Member>, String> {
        let mut extension = Extension::default();
        for _ in 0..=MAX_EXTENSIONS {
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let field = |from: usize, len: usize| header.get(from..from + len).unwrap_or_default();
            let size = number(field(124, 12))
                .ok_or_else(|| format!("has no size in the header at byte {}", self.at))?;
            let kind = header.get(156).copied().unwrap_or_default();
            match kind {
                b'L' => extension.name = Some(text(&self.extension(size)?)),
                b'K' => extension.link = Some(text(&self.extension(size)?)),
                b'x' => records(&self.extension(size)?, &mut extension),
                // For all that follows; nothing in it is of use here.
                b'g' => {}
                _ => return self.member(&header, kind, size, extension).map(Some),
            }
            self.at = self.after(size)?;
        }
        Err(format!("has only extension headers at byte {}", self.at))
    }

    /// Where the next header is behind a member of this size.
    fn after(&self, size: u64) -> Result<u64, String> {
        size.checked_next_multiple_of(BLOCK)
            .and_then(|size| self.at.checked_add(BLOCK)?.checked_add(size))
            .ok_or_else(|| format!("has a member of {size} bytes at byte {}", self.at))
    }

    fn member(
        &mut self,
        header: &[u8; HEADER],
        kind: u8,
        size: u64,
        extension: Extension,
    ) -> Result<Member, String> {
        let field = |from: usize, len: usize| header.get(from..from + len).unwrap_or_default();
        let is_ustar = field(257, 6) == b"ustar\0";
        let name = extension.name.unwrap_or_else(|| {
            let name = text_to_nul(field(0, 100));
            let prefix = text_to_nul(field(345, 155));
            if is_ustar && !prefix.is_empty() {
                format!("{prefix}/{name}")
            } else {
                name
            }
        });
        let link = extension
            .link
            .unwrap_or_else(|| text_to_nul(field(157, 100)));
        let mut is_sparse = extension.is_sparse;
        let mut real_size = extension.real_size;
        // Bytes in the archive: a link or a folder has none, whatever its size field says.
        let is_file = matches!(kind, 0 | b'0' | b'7' | b'S');
        let stored = match extension.size {
            _ if !is_file => 0,
            Some(size) => size,
            None => size,
        };
        let mut at = self.at.saturating_add(BLOCK);
        if kind == b'S' {
            is_sparse = true;
            real_size = number(field(483, 12));
            // Further blocks of the map stand behind the header, each saying whether another one follows.
            let mut more = header.get(482).is_some_and(|byte| *byte != 0);
            let mut blocks = 0;
            while more {
                let mut block = [0; HEADER];
                let got = fill(self.file, at, &mut block).map_err(|e| e.to_string())?;
                blocks += 1;
                if got < block.len() || blocks > MAX_SPARSE {
                    return Err(format!("has a damaged sparse file at byte {}", self.at));
                }
                more = block.get(504).is_some_and(|byte| *byte != 0);
                at = at.saturating_add(BLOCK);
            }
        }
        if name.len() > MAX_NAME || link.len() > MAX_NAME {
            return Err(format!(
                "has a name of more than {MAX_NAME} bytes at byte {}: {}...",
                self.at,
                cut(&name, 40).escape_debug()
            ));
        }
        let end = at.checked_add(stored);
        if end.is_none_or(|end| end > self.file.len()) {
            return Err(format!(
                "is cut off: `{}` ends behind its end",
                name.escape_debug()
            ));
        }
        self.at = stored
            .checked_next_multiple_of(BLOCK)
            .and_then(|stored| at.checked_add(stored))
            .ok_or_else(|| format!("has a member of {stored} bytes"))?;
        let number32 = |from: usize, len: usize| {
            number(field(from, len))
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0)
        };
        let kind = match kind {
            0 | b'0' | b'7' if name.ends_with('/') => Kind::Folder,
            0 | b'0' | b'7' | b'S' if is_sparse => Kind::Sparse,
            0 | b'0' | b'7' => Kind::File,
            b'1' => Kind::HardLink,
            b'2' => Kind::Link,
            b'3' => Kind::CharDevice,
            b'5' => Kind::Folder,
            _ => Kind::Other,
        };
        Ok(Member {
            name,
            kind,
            size: real_size.filter(|_| is_sparse).unwrap_or(stored),
            at,
            link,
            mode: number32(100, 8) & 0o7777,
            uid: number32(108, 8),
            gid: number32(116, 8),
            device: (number32(329, 8), number32(337, 8)),
        })
    }
}

impl Iterator for Members<'_> {
    type Item = Result<Member, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.read().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// A checksum is the sum of all bytes, those of its own field counted as spaces; old writers took them as signed.
fn checksum_is_right(header: &[u8; HEADER]) -> bool {
    let Some(wanted) = number(header.get(148..156).unwrap_or_default()) else {
        return false;
    };
    let bytes = || {
        let own = 148..156;
        let bytes = header.iter().enumerate();
        bytes.map(move |(at, byte)| if own.contains(&at) { b' ' } else { *byte })
    };
    let sum: u64 = bytes().map(u64::from).sum();
    let signed: i64 = bytes().map(|byte| i64::from(byte.cast_signed())).sum();
    wanted == sum || u64::try_from(signed) == Ok(wanted)
}

/// A number in octal digits, or in bytes where the first has its highest bit set. An empty field is 0.
fn number(field: &[u8]) -> Option<u64> {
    if let Some((first @ 0x80..=0xff, rest)) = field.split_first() {
        // A negative one is none that is of use here.
        let first = u64::from(first & 0x7f);
        return rest.iter().try_fold(first, |sum, byte| {
            sum.checked_mul(256)?.checked_add(u64::from(*byte))
        });
    }
    let text = field
        .iter()
        .skip_while(|byte| matches!(byte, b' ' | 0))
        .take_while(|byte| !matches!(byte, b' ' | 0));
    text.into_iter().try_fold(0u64, |sum, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 8)?;
        sum.checked_mul(8)?.checked_add(u64::from(digit))
    })
}

fn text(bytes: &[u8]) -> String {
    text_to_nul(bytes)
}

/// Pax records: `LENGTH KEY=VALUE\n`, the length counting all of it.
fn records(mut bytes: &[u8], extension: &mut Extension) {
    while let Some(space) = memchr::memchr(b' ', bytes) {
        let length = std::str::from_utf8(bytes.get(..space).unwrap_or_default())
            .ok()
            .and_then(|digits| digits.parse::<usize>().ok());
        let Some(record) = length
            .filter(|length| *length > space + 1)
            .and_then(|length| bytes.get(space + 1..length - 1))
        else {
            return;
        };
        if let Some(equals) = memchr::memchr(b'=', record) {
            let (key, value) = record.split_at(equals);
            let value = String::from_utf8_lossy(value.get(1..).unwrap_or_default());
            let number = value.parse::<u64>().ok();
            match key {
                // The true name of a sparse file stands in another record, before or behind.
                b"path" if !extension.is_sparse || extension.name.is_none() => {
                    extension.name = Some(value.into_owned());
                }
                b"linkpath" => extension.link = Some(value.into_owned()),
                b"size" => extension.size = number,
                b"GNU.sparse.name" => {
                    extension.is_sparse = true;
                    extension.name = Some(value.into_owned());
                }
                b"GNU.sparse.size" | b"GNU.sparse.realsize" => {
                    extension.is_sparse = true;
                    extension.real_size = number;
                }
                b"GNU.sparse.major" | b"GNU.sparse.map" => extension.is_sparse = true,
                _ => {}
            }
        }
        bytes = bytes
            .get(length.unwrap_or(usize::MAX)..)
            .unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A header as GNU tar writes it.
    fn header(name: &str, kind: u8, size: u64, link: &str) -> Vec<u8> {
        let mut header = vec![0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000755");
        header[108..115].copy_from_slice(b"0000000");
        header[116..123].copy_from_slice(b"0000000");
        header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        header[156] = kind;
        header[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header[257..265].copy_from_slice(b"ustar  \0");
        sealed(header)
    }

    fn sealed(mut header: Vec<u8>) -> Vec<u8> {
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        header
    }

    fn padded(bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    fn archive() -> Vec<u8> {
        let long = format!("{}/x.so", "a".repeat(150));
        let pax = b"30 path=usr/lib/libn\xc3\xa4me.so.1\n".to_vec();
        [
            header("etc/", b'5', 0, ""),
            header("etc/os-release", b'0', 5, ""),
            padded(b"ID=x\n"),
            header("lib", b'2', 0, "usr/lib"),
            header("././@LongLink", b'L', long.len() as u64 + 1, ""),
            padded(format!("{long}\0").as_bytes()),
            header("cut", b'0', 0, ""),
            header("pax", b'x', pax.len() as u64, ""),
            padded(&pax),
            header("short", b'0', 3, ""),
            padded(b"abc"),
            header("again", b'1', 0, "etc/os-release"),
            vec![0; 1024],
        ]
        .concat()
    }

    fn names(file: &[u8]) -> Vec<(String, Kind, u64)> {
        let members = Members::new(&file);
        let members = members.map(|member| member.unwrap());
        members.map(|m| (m.name, m.kind, m.size)).collect()
    }

    #[test]
    fn members_of_all_forms() {
        let file = archive();
        assert!(is_tar(&file));
        let long = format!("{}/x.so", "a".repeat(150));
        assert_eq!(
            names(&file),
            [
                ("etc/".to_owned(), Kind::Folder, 0),
                ("etc/os-release".to_owned(), Kind::File, 5),
                ("lib".to_owned(), Kind::Link, 0),
                (long, Kind::File, 0),
                ("usr/lib/libn\u{e4}me.so.1".to_owned(), Kind::File, 3),
                ("again".to_owned(), Kind::HardLink, 0),
            ]
        );
        let member = Members::new(&file).nth(1).unwrap().unwrap();
        let at = usize::try_from(member.at).unwrap();
        assert_eq!(&file[at..at + 5], b"ID=x\n");
    }

    #[test]
    fn what_is_no_archive_is_refused() {
        assert!(!is_tar(&vec![0; 512]));
        assert!(!is_tar(&b"\x7fELF".to_vec()));
        let file = archive();
        let cut = file[..2048].to_vec();
        assert!(Members::new(&cut).all(|m| m.is_ok()));
        let cut = file[..1026].to_vec();
        assert!(Members::new(&cut).any(|m| m.is_err()));
        // A member larger than the archive, one of nearly 2^64 bytes, a name without an end.
        for (kind, size) in [(b'0', 1 << 30), (b'L', 1 << 30), (b'x', 1 << 24)] {
            let file = [header("x", kind, size, ""), vec![0; 512]].concat();
            assert!(Members::new(&file).next().unwrap().is_err(), "{kind}");
        }
        let mut huge = header("x", b'0', 0, "");
        huge[124..136].copy_from_slice(&[
            0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ]);
        let huge = [sealed(huge), vec![0; 512]].concat();
        assert!(Members::new(&huge).next().unwrap().is_err());
        let endless = header("x", b'g', 0, "").repeat(40);
        assert!(Members::new(&endless).next().unwrap().is_err());
    }

    #[test]
    fn sparse_files_have_holes() {
        let mut sparse = header("hole", b'S', 3, "");
        sparse[483..494].copy_from_slice(format!("{:011o}", 1u64 << 32).as_bytes());
        let file = [sealed(sparse), padded(b"abc"), vec![0; 1024]].concat();
        assert_eq!(names(&file), [("hole".to_owned(), Kind::Sparse, 1 << 32)]);
        let pax =
            b"22 GNU.sparse.major=1\n31 GNU.sparse.realsize=99999999\n24 GNU.sparse.name=hole\n";
        let file = [
            header("pax", b'x', pax.len() as u64, ""),
            padded(pax),
            header("GNUSparseFile.0/hole", b'0', 3, ""),
            padded(b"abc"),
        ]
        .concat();
        assert_eq!(names(&file)[0].1, Kind::Sparse);
    }

    proptest! {
        #[test]
        fn damaged(at in 0usize..5000, byte: u8, cut in 0usize..6000) {
            let mut file = archive();
            let place = at % file.len();
            file[place] = byte;
            file.truncate(cut.max(1));
            prop_assert!(Members::new(&file).count() < 100);
        }
    }
}
