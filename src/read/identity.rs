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
/// The longest version string, `12.550.163.01`, with what stands before and after it.
const OVERLAP: usize = 32;

/// The driver version of a libcuda: a string that is nothing but a version in `.rodata`.
///
/// There are several: libcuda keeps the versions at which its interfaces were introduced. None is newer than the
/// library itself, so the highest one is its own (checked on 470.256.02, 535.261.03, 550.163.01).
pub fn libcuda_driver_version(file: &dyn ReadAt) -> Option<Version> {
    let found = search(file);
    found.exact.or(found.spoken)
}

/// The driver version of a libnvidia-ml: it keeps `12.550.163.01`, its CUDA major and its driver version in one string.
pub fn libnvidia_ml_version(file: &dyn ReadAt) -> Option<Version> {
    let found = search(file);
    found.with_cuda.or(found.exact).or(found.spoken)
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
    /// `535.261.03` between NULs.
    exact: Option<Version>,
    /// `12.535.261.03` between NULs, without the first part.
    with_cuda: Option<Version>,
    /// `version 535.261.03` within a longer text.
    spoken: Option<Version>,
}

impl Found {
    fn is_empty(&self) -> bool {
        self.exact.is_none() && self.with_cuda.is_none() && self.spoken.is_none()
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
    let spoken = memmem::Finder::new(b"version ");
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
                raise(slot, version);
            }
        }
        for at in spoken.find_iter(window) {
            let text = window.get(at + 8..).unwrap_or_default();
            let len = text.iter().position(|b| !matches!(b, b'0'..=b'9' | b'.'));
            // Without an end in sight, the next window sees it whole.
            if let Some(version) = len.and_then(|len| driver_version(text.get(..len)?)) {
                raise(&mut found.spoken, version);
            }
        }
        ControlFlow::Continue(())
    });
    found
}

fn raise(slot: &mut Option<Version>, version: Version) {
    if slot.as_ref().is_none_or(|highest| *highest < version) {
        *slot = Some(version);
    }
}

/// The NUL-delimited version whose branch ends at `dot`, and whether a CUDA major stands before it.
fn exact_around(window: &[u8], dot: usize) -> Option<(Version, bool)> {
    let start = dot.checked_sub(3)?;
    let (branch, rest) = (window.get(start..dot)?, window.get(dot..)?);
    if !branch.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let before = window.get(start.saturating_sub(4)..start)?;
    let with_cuda = match before {
        [.., 0] => false,
        [.., 0, a, b'.'] => a.is_ascii_digit(),
        [0, a, b, b'.'] => a.is_ascii_digit() && b.is_ascii_digit(),
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
