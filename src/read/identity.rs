//! Which driver version a file of the driver was built as, from strings inside it: for when its name does not say.
//!
//! A version found here is what the file is, whatever it is called. It says nothing about the driver that is loaded.

use std::ops::{ControlFlow, Range};

use memchr::{memchr_iter, memmem};

use super::elf;
use super::window::{ReadAt, bytes_up_to, find, scan};
use crate::version::Version;

/// How much of a file without sections is searched: libcuda has 20 to 100 MB, and its strings lie in the first half.
const MAX_SEARCH: u64 = 64 << 20;
/// The oldest branch that counts: 304 (2012). Below it are percentages and sizes.
const OLDEST_BRANCH: u32 = 304;
/// The longest of what is looked for, `nvidia-application-profiles-550.163.01`, with what stands before and after it.
const OVERLAP: usize = 64;

/// The driver version of a libcuda, by (1) the name of its application profiles, `nvidia-application-profiles-V-rc`,
/// (2) a string that is nothing but a version, (3) a text that speaks of `version V`; all in `.rodata`.
///
/// Of 2 there are several: libcuda keeps the versions at which its interfaces were introduced. None is newer than the
/// library itself, so the highest one is taken. 1 and 2 both hold in 470.256.02, 535.261.03 and 550.163.01. Up to 20 MB
/// are read, which takes 5 to 10 ms: the file's name is the cheaper source.
pub fn libcuda_driver_version(file: &dyn ReadAt) -> Option<Version> {
    let found = search(file);
    found.named.or(found.exact).or(found.spoken)
}

/// The driver version of a libnvidia-ml: it keeps `12.550.163.01`, its CUDA major and its driver version in one string.
pub fn libnvidia_ml_version(file: &dyn ReadAt) -> Option<Version> {
    let found = search(file);
    found
        .with_cuda
        .or(found.named)
        .or(found.exact)
        .or(found.spoken)
}

/// The version of the fabric manager's program: `Fabric Manager version is : 580.95.05`.
pub fn fabric_manager_version(file: &dyn ReadAt) -> Option<Version> {
    const SAYS: &[u8] = b"Fabric Manager version is : ";
    let at = find(file, 0..MAX_SEARCH, SAYS).and_then(|at| {
        let text = bytes_up_to(file, at.checked_add(SAYS.len() as u64)?, OVERLAP);
        let end = text
            .iter()
            .position(|b| !matches!(b, b'0'..=b'9' | b'.'))
            .unwrap_or(text.len());
        driver_version(text.get(..end)?)
    });
    at.or_else(|| search(file).spoken)
}

/// The highest version of each spelling.
#[derive(Default)]
struct Found {
    /// `nvidia-application-profiles-535.261.03-rc`. Where this is found, nothing else is looked for any more.
    named: Option<Version>,
    /// `535.261.03`, up to a NUL.
    exact: Option<Version>,
    /// `12.535.261.03`, up to a NUL, without the first part.
    with_cuda: Option<Version>,
    /// `version 535.261.03` within a longer text.
    spoken: Option<Version>,
}

impl Found {
    fn is_empty(&self) -> bool {
        [&self.named, &self.exact, &self.with_cuda, &self.spoken]
            .into_iter()
            .all(Option::is_none)
    }
}

fn search(file: &dyn ReadAt) -> Found {
    let constants = elf::section(file, ".rodata").map(|at| search_in(file, at));
    match constants {
        Some(found) if !found.is_empty() => found,
        _ => search_in(file, 0..file.len().min(MAX_SEARCH)),
    }
}

fn search_in(file: &dyn ReadAt, range: Range<u64>) -> Found {
    const NAMED: &[u8] = b"nvidia-application-profiles-";
    const SPOKEN: &[u8] = b"version ";
    let (named, spoken) = (memmem::Finder::new(NAMED), memmem::Finder::new(SPOKEN));
    let mut found = Found::default();
    scan(file, range, OVERLAP, |_, window| {
        // Every version has a full stop after the third digit of its branch: that is quick to find and rare.
        for dot in memchr_iter(b'.', window) {
            if let Some((version, with_cuda)) = exact_around(window, dot) {
                let slot = if with_cuda {
                    &mut found.with_cuda
                } else {
                    &mut found.exact
                };
                raise(slot, Some(version));
            }
        }
        for at in spoken.find_iter(window) {
            raise(&mut found.spoken, version_at(window, at + SPOKEN.len()));
        }
        for at in named.find_iter(window) {
            raise(&mut found.named, version_at(window, at + NAMED.len()));
        }
        if found.named.is_some() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found
}

fn raise(slot: &mut Option<Version>, version: Option<Version>) {
    if version > *slot {
        *slot = version;
    }
}

/// The version at `at`, whatever follows it. Without its end in sight there is none: the next window sees it whole.
fn version_at(window: &[u8], at: usize) -> Option<Version> {
    let text = window.get(at..)?;
    let len = text.iter().position(|b| !matches!(b, b'0'..=b'9' | b'.'))?;
    driver_version(text.get(..len)?)
}

/// The whole string whose branch ends at `dot`, and whether a CUDA major stands before it.
///
/// A string ends with a NUL, but what stands before it may be anything: in 550.163.01 it is a table of jumps. It must
/// only not look like more text.
fn exact_around(window: &[u8], dot: usize) -> Option<(Version, bool)> {
    let start = dot.checked_sub(3)?;
    let (branch, rest) = (window.get(start..dot)?, window.get(dot..)?);
    if !branch.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let is_text = |byte: u8| matches!(byte, 0x20..=0x7e);
    let before = window.get(start.saturating_sub(4)..start)?;
    let with_cuda = match *before {
        [.., edge] if !is_text(edge) => false,
        [.., edge, b'0'..=b'9', b'.'] if !is_text(edge) => true,
        [edge, b'0'..=b'9', b'0'..=b'9', b'.'] if !is_text(edge) => true,
        _ => return None,
    };
    let end = rest.iter().take(OVERLAP).position(|b| *b == 0)?;
    let version = driver_version(window.get(start..dot.checked_add(end)?)?)?;
    Some((version, with_cuda))
}

/// A driver version and nothing else: `460.56`, `535.261.03`; Tegra's are `540.4.0`.
fn driver_version(text: &[u8]) -> Option<Version> {
    let text = std::str::from_utf8(text).ok()?;
    let parts: Vec<_> = text.trim_end_matches('.').split('.').collect();
    let digits = |part: &str, len: std::ops::RangeInclusive<usize>| {
        len.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
    };
    let plausible = match *parts.as_slice() {
        [branch, minor] => digits(branch, 3..=3) && digits(minor, 2..=3),
        [branch, minor, patch] => {
            digits(branch, 3..=3) && digits(minor, 1..=3) && digits(patch, 1..=2)
        }
        _ => false,
    };
    let version = Version::parse(text.trim_end_matches('.')).filter(|_| plausible)?;
    (version.major() >= OLDEST_BRANCH).then_some(version)
}
