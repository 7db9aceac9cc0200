//! Which CUDA version a libcudart is, from its code: its soname says the major version only (all of 11.x is
//! `libcudart.so.11.0`), wheels give the file no longer name, and asking 11.x itself takes a driver.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use memchr::memchr_iter;

use super::elf::{Headers, symbol_content};
use super::recipes::constants;
use super::window::{ReadAt, WINDOW, scan};
use crate::version::Version;

/// The CUDA integers that can be a runtime's own: 7.0 up to and without 15.0.
const LEVELS: std::ops::Range<u32> = 7000..15_000;
/// How much code is searched; the largest libcudart has 0.6 MB of it, libcublasLt with one inside 110 MB.
const MAX_CODE: u64 = 256 << 20;
/// Functions of libraries with a runtime inside that answer its version.
const ANSWERS: [&str; 4] = [
    "cublasLtGetCudartVersion",
    "cublasGetCudartVersion",
    "cudnnGetCudartVersion",
    "cutensorGetCudartVersion",
];
/// Opcode, operand and constant.
pub(super) const INSTRUCTION: usize = 6;

/// The CUDA version (major and minor) of a libcudart for x86-64; `None` for other machines, or where nothing is found.
///
/// The runtime stores its own version through pointers, as `mov dword ptr [register], constant` (C7 /0), in two places
/// or more. So this takes the highest constant that looks like a CUDA integer (`1000 * major + 10 * minor`) and occurs
/// at least twice. That was right on 43 of 43 runtimes from 9.0 to 13.5, but it is an inference, and only for a file that
/// is known to be a libcudart or to contain one: others have such constants by chance.
pub fn version(file: &dyn ReadAt) -> Option<Version> {
    let headers = Headers::read(file).ok().filter(Headers::is_x86_64)?;
    let mut seen: BTreeMap<u32, u32> = BTreeMap::new();
    let mut left = MAX_CODE;
    for code in headers.code(file) {
        let len = code.end.saturating_sub(code.start).min(left);
        left -= len;
        let code = code.start..code.start.saturating_add(len);
        if let Some(levels) = file.gist().and_then(|gist| gist.levels(code.clone())) {
            levels.for_each(|level| *seen.entry(level).or_default() += 1);
            continue;
        }
        scan(file, code, INSTRUCTION - 1, |_, window| {
            // A whole instruction that begins behind WINDOW would not fit, so none is counted twice.
            let opcodes = memchr_iter(0xc7, window).take_while(|at| *at < WINDOW);
            for level in opcodes.filter_map(|at| level(window.get(at + 1..)?)) {
                *seen.entry(level).or_default() += 1;
            }
            ControlFlow::Continue(())
        });
    }
    let own = seen.into_iter().rev().find(|(_, times)| *times > 1);
    own.map(|(level, _)| Version::from_cuda_level(level))
}

/// The CUDA version of the runtime that is linked into a file, where the file is known to have one inside: by a function
/// of the library that answers it, else as [`version`].
pub fn version_inside(file: &dyn ReadAt) -> Option<Version> {
    let answer = ANSWERS.iter().find_map(|function| {
        let code = symbol_content(file, function, 1024)?;
        constants(&code).into_iter().find(|n| is_level(*n))
    });
    answer.map_or_else(
        || version(file),
        |level| Some(Version::from_cuda_level(level)),
    )
}

/// The CUDA integer that is stored by an instruction whose bytes after the opcode are these.
pub(super) fn level(operands: &[u8]) -> Option<u32> {
    let [operand, a, b, c, d] = *operands.first_chunk()?;
    // 4 and 5 are other addressing modes, whose constant stands further on.
    let is_register = matches!(operand, 0..=3 | 6 | 7);
    let level = u32::from_le_bytes([a, b, c, d]);
    (is_register && is_level(level)).then_some(level)
}

/// Whether a number can be a runtime's CUDA integer: `1000 * major + 10 * minor`, of a version that there is.
pub(super) fn is_level(number: u32) -> bool {
    LEVELS.contains(&number) && number.is_multiple_of(10) && number % 1000 < 100
}

#[cfg(test)]
mod tests {
    use super::is_level;

    #[test]
    fn levels() {
        for (number, is) in [
            (11_080, true),
            (13_050, true),
            // A mask in cuDNN 8.5, which was taken for CUDA 16.38.
            (16_380, false),
            (12_085, false),
            (12_180, false),
            (0, false),
        ] {
            assert_eq!(is_level(number), is, "{number}");
        }
    }
}
