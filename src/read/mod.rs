//! Parsers of foreign bytes: `&str`, `&[u8]` or [`ReadAt`] in, plain values out.
//!
//! Whatever the bytes are, a parser answers: a value, `None`, or an error in words. It does not panic, and memory and
//! work are bounded by constants that stand beside it. Nothing here knows paths, opens files, asks the environment or a
//! clock, and nothing judges: `sysroot` hands the bytes in, `probe` makes facts of what comes out.

pub mod ar;
pub mod architectures;
pub mod cdi;
pub mod cudart;
mod dynamic;
pub mod elf;
pub mod engines;
mod etc;
pub mod fatbin;
pub mod gist;
pub mod glob;
pub mod gobuild;
pub mod icd;
mod identity;
pub mod inflate;
mod kernel_log;
pub mod kfd;
pub mod kmod;
pub mod ldcache;
pub mod linkage;
pub mod needs;
mod notes;
pub mod nvidia_require;
pub mod oci;
pub mod offload;
mod packages;
pub mod pages;
pub mod part;
pub mod proc;
pub mod pybuild;
pub mod pydist;
pub mod recipes;
pub mod record;
pub mod requirement;
pub mod rocm;
pub mod start;
mod symbols;
pub mod tar;
#[cfg(test)]
mod tests;
pub mod toolchain;
pub mod unpacked;
pub mod window;
pub mod zip;
mod zstd;

pub use window::ReadAt;

/// A small integer of little-endian or big-endian bytes, for the tables that no crate reads lazily.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Endian {
    Little,
    Big,
}

impl Endian {
    /// The 16-bit number at `at`.
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(raw),
            Self::Big => u16::from_be_bytes(raw),
        })
    }

    /// The 32-bit number at `at`.
    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(raw),
            Self::Big => u32::from_be_bytes(raw),
        })
    }

    /// The 64-bit number at `at`.
    fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let raw = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Little => u64::from_le_bytes(raw),
            Self::Big => u64::from_be_bytes(raw),
        })
    }
}

/// The bytes of hexadecimal digits, at most `most` of them. `None` where it is something else.
fn hexadecimal_bytes(text: &str, most: usize) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * most {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits
        .chunks_exact(2)
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}

/// Text up to the first NUL, or to the end; bytes that are no UTF-8 are replaced.
fn text_to_nul(bytes: &[u8]) -> String {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

/// The first `max` bytes of a text, or a few less where a letter would be cut in two.
fn cut(text: &str, max: usize) -> &str {
    let max = max.min(text.len());
    (0..=max)
        .rev()
        .find_map(|end| text.get(..end))
        .unwrap_or_default()
}

/// Bytes in lower-case hexadecimal.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}
