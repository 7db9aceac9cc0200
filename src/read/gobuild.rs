//! What Go's linker writes into every program: the Go version and the modules it was built from.

use std::ops::Range;

use super::Endian;
use super::elf::{self, Headers};
use super::window::{ReadAt, bytes, bytes_up_to, find};
use goblin::elf::program_header::PT_LOAD;

/// First bytes of the record; it lies on a multiple of 16 bytes.
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// The most bytes that are searched where no section is named for it.
const MAX_SEARCH: u64 = 1 << 20;
/// The most bytes of a text of the record.
const MAX_TEXT: u64 = 256 << 10;
/// The most modules that are listed.
const MAX_MODULES: usize = 2000;

/// How a Go program was built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoBuild {
    /// `go1.19.8`.
    pub go: String,
    /// The package of `main`.
    pub path: Option<String>,
    /// Modules with their versions, the program's own first; what replaces a module stands for it.
    pub modules: Vec<(String, String)>,
}

/// The build record of a Go program; `None` for other programs.
pub fn build(file: &dyn ReadAt) -> Option<GoBuild> {
    const INLINE: u8 = 2;
    const BIG_ENDIAN: u8 = 1;
    let headers = Headers::read(file).ok()?;
    let at = record(file)?;
    let head = bytes(file, at, 32)?;
    let (pointer, flags) = (*head.get(14)?, *head.get(15)?);
    let (go, modules) = if flags & INLINE != 0 {
        let (go, next) = inline(file, at.checked_add(32)?)?;
        (
            go,
            inline(file, next).map(|(text, _)| text).unwrap_or_default(),
        )
    } else {
        // Before Go 1.18: two pointers, each to a pointer and a length.
        let endian = if flags & BIG_ENDIAN == 0 {
            Endian::Little
        } else {
            Endian::Big
        };
        let text = |i: usize| pointed(file, &headers, endian, pointer, head.get(i..)?);
        (
            text(16)?,
            text(16 + usize::from(pointer)).unwrap_or_default(),
        )
    };
    let go = String::from_utf8_lossy(&go).into_owned();
    Some(GoBuild {
        go,
        ..modules_of(&modules)
    })
}

fn record(file: &dyn ReadAt) -> Option<u64> {
    let places: [Option<Range<u64>>; 2] = [
        elf::section(file, ".go.buildinfo"),
        // Programs of old linkers have it at the start of their data.
        elf::section(file, ".data")
            .map(|at| at.start..at.end.min(at.start.saturating_add(MAX_SEARCH))),
    ];
    places
        .into_iter()
        .flatten()
        .find_map(|range| find(file, range, MAGIC))
}

/// A text with its length before it, and where it ends.
fn inline(file: &dyn ReadAt, at: u64) -> Option<(Vec<u8>, u64)> {
    let raw = bytes_up_to(file, at, 10);
    let mut length: u64 = 0;
    for (index, byte) in raw.iter().enumerate() {
        length |= u64::from(byte & 0x7f).checked_shl(7 * u32::try_from(index).ok()?)?;
        if byte & 0x80 == 0 {
            let start = at.checked_add(index as u64 + 1)?;
            let text = bytes(file, start, usize::try_from(length.min(MAX_TEXT)).ok()?)?;
            return Some((text, start.checked_add(length)?));
        }
    }
    None
}

fn pointed(
    file: &dyn ReadAt,
    headers: &Headers,
    endian: Endian,
    size: u8,
    raw: &[u8],
) -> Option<Vec<u8>> {
    let number = |raw: &[u8], index: usize| match size {
        8 => endian.u64(raw, index * 8),
        4 => endian.u32(raw, index * 4).map(u64::from),
        _ => None,
    };
    let loads = headers.segments(file);
    let offset = |address: u64| {
        loads.iter().filter(|s| s.p_type == PT_LOAD).find_map(|s| {
            let inside = address
                .checked_sub(s.p_vaddr)
                .filter(|inside| *inside < s.p_filesz)?;
            s.p_offset.checked_add(inside)
        })
    };
    let text = bytes(file, offset(number(raw, 0)?)?, usize::from(size) * 2)?;
    let length = number(&text, 1)?.min(MAX_TEXT);
    bytes(
        file,
        offset(number(&text, 0)?)?,
        usize::try_from(length).ok()?,
    )
}

/// The text lies between two marks of 16 bytes: lines of a word and its values, with tabs between them.
fn modules_of(text: &[u8]) -> GoBuild {
    let text = String::from_utf8_lossy(text);
    let mut build = GoBuild::default();
    for line in text.lines() {
        // The first mark stands right before the first line.
        let line = line
            .find("path\t")
            .filter(|at| *at <= 64 && build.path.is_none())
            .map_or(line, |at| line.get(at..).unwrap_or(line));
        let mut fields = line.split('\t');
        let (word, first, second) = (fields.next(), fields.next(), fields.next());
        match (word, first, second) {
            (Some("path"), Some(path), _) => build.path = Some(path.to_owned()),
            (Some("mod" | "dep"), Some(module), version) if build.modules.len() < MAX_MODULES => {
                let version = version.unwrap_or_default().to_owned();
                build.modules.push((module.to_owned(), version));
            }
            (Some("=>"), Some(module), version) => {
                if let Some(last) = build.modules.last_mut() {
                    *last = (module.to_owned(), version.unwrap_or_default().to_owned());
                }
            }
            _ => {}
        }
    }
    build
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules() {
        let text = "0w\u{1}path\texample.com/service\nmod\texample.com/service\t(devel)\t\ndep\tgithub.com/NVIDIA/go-nvml\tv0.12.4-1\th1:x=\ndep\tother\tv1.0.0\n=>\tfork\tv1.0.1\th1:y=\nbuild\tCGO_ENABLED=1\n";
        let build = modules_of(text.as_bytes());
        assert_eq!(build.path.as_deref(), Some("example.com/service"));
        let modules: Vec<String> = build
            .modules
            .iter()
            .map(|(m, v)| format!("{m} {v}"))
            .collect();
        assert_eq!(
            modules,
            [
                "example.com/service (devel)",
                "github.com/NVIDIA/go-nvml v0.12.4-1",
                "fork v1.0.1"
            ]
        );
        assert_eq!(modules_of(b"\xff\xfe"), GoBuild::default());
    }
}
