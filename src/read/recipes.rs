//! Which exact version a library of the CUDA stack is, from the file alone: wheels name their files by soname, which
//! tells the major version at most.
//!
//! Most libraries have a function that answers their version, and it holds the number as a constant: its few bytes of
//! code are read, none is run. Others keep it in a variable or a text. What a distribution's metadata says is another
//! source, and not asked here.

use super::elf::{
    Elf, dynamic_symbols_defined, libcuda_driver_version, libnvidia_ml_version, section,
    symbol_content,
};
use super::linkage::is_library;
use super::window::{ReadAt, bytes_up_to, find};
use super::{Endian, cudart};
use crate::version::Version;

/// The most bytes of a function that are read; version functions have 6 to 900.
const MAX_FUNCTION: usize = 1024;

/// What a library is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The library without version and ending: `libcublasLt`.
    pub name: String,
    /// Its version, where the file tells.
    pub version: Option<Version>,
    /// Where the version was read, in words: `cublasLtGetVersion`.
    pub source: String,
    /// The version of CUDA that it was built for, where it says so beside its own.
    pub cuda: Option<Version>,
}

/// How a number stands for a version.
#[derive(Clone, Copy)]
enum Scheme {
    /// 11401 is 11.4.1. A minor version of two digits runs into the major one: 1000 is 1.0.0 as well as 0.10.0.
    Thousands,
    /// 131000 is 13.10.0; below 20000 as above. The libraries that changed it.
    Either,
}

impl Scheme {
    fn version(self, number: u32) -> Option<Version> {
        let large = matches!(self, Self::Either) && number >= 20_000;
        let parts = if large {
            [number / 10_000, number / 100 % 100, number % 100]
        } else {
            [number / 1000, number / 100 % 10, number % 100]
        };
        Version::parse(&parts.map(|part| part.to_string()).join("."))
    }

    /// The version of a library whose soname tells its major version.
    fn version_of(self, number: u32, major: Option<u32>) -> Option<Version> {
        let plain = self.version(number);
        let Some(major) = major else { return plain };
        plain.filter(|v| v.major() == major).or_else(|| {
            let rest = number.checked_sub(major.checked_mul(1000)?)?;
            let carried = matches!(self, Self::Thousands) && (1000..2000).contains(&rest);
            carried.then(|| Version::parse(&format!("{major}.{}.{}", rest / 100, rest % 100)))?
        })
    }
}

/// Libraries with a version function.
const FUNCTIONS: &[(&str, &str, Scheme)] = &[
    ("libcublasLt", "cublasLtGetVersion", Scheme::Either),
    ("libcufft", "cufftGetVersion", Scheme::Thousands),
    ("libcusolver", "cusolverGetVersion", Scheme::Thousands),
    ("libcusparse", "cusparseGetVersion", Scheme::Thousands),
    ("libcurand", "curandGetVersion", Scheme::Thousands),
    ("libcusparseLt", "cusparseLtGetVersion", Scheme::Thousands),
    ("libnvinfer", "getInferLibVersion", Scheme::Either),
    ("libnvinfer_lean", "getInferLibVersion", Scheme::Either),
    ("libnvinfer_dispatch", "getInferLibVersion", Scheme::Either),
    ("libcudnn", "cudnnGetVersion", Scheme::Either),
    ("libcudnn_graph", "cudnnGetVersion", Scheme::Either),
    ("libcudnn_ops_infer", "cudnnGetVersion", Scheme::Either),
    ("libnccl", "ncclGetVersion", Scheme::Either),
    ("libcutensor", "cutensorGetVersion", Scheme::Either),
];

/// Other libraries of the stack that are known by name.
const OTHERS: &[&str] = &[
    "libcublas",
    "libcudart",
    "libcuda",
    "libnvidia-ml",
    "libnvrtc",
    "libnvJitLink",
    "libnvshmem_host",
    "libcufftw",
    "libcusolverMg",
    "libnvjpeg",
    "libnvptxcompiler",
    "libcufile",
    "libcupti",
    "libnvToolsExt",
    "libnppc",
    "libnvrtc-builtins",
];

/// Libraries that compute and leave NVML alone: `libnvidia-ml.so` is no text of theirs in CUDA 11.8, 12.9 and 13.5 (libcublas,
/// libcublasLt, libnvblas) or in 13.5 (the others).
const WITHOUT_NVML: &[&str] = &[
    "libcublasLt",
    "libcublas",
    "libnvblas",
    "libcufft",
    "libcufftw",
    "libcurand",
    "libcusolver",
    "libcusolverMg",
    "libcusparse",
];

/// What the tools of a toolkit say of themselves.
const TOOLS: &[u8] = b"Cuda compilation tools, release ";
const NVSHMEM: &[u8] = b"NVSHMEM v";
const NCCL: &[u8] = b"NCCL version ";
const CUDNN: &[u8] = b"cudnn_version != (";

/// The text that is looked for in a library of this file name.
pub(super) fn text_of(file_name: &str) -> Option<&'static [u8]> {
    match known_name(file_name)?.as_str() {
        "libnvrtc" | "libnvJitLink" => Some(TOOLS),
        "libnvshmem_host" => Some(NVSHMEM),
        "libnccl" => Some(NCCL),
        name if name.starts_with("libcudnn_") => Some(CUDNN),
        _ => None,
    }
}

/// Whether a file is, by its soname, a library that is known not to open libnvidia-ml.
pub(super) fn is_without_nvml(elf: &Elf) -> bool {
    elf.soname
        .as_deref()
        .is_some_and(|soname| WITHOUT_NVML.iter().any(|stem| is_library(soname, stem)))
}

/// The library beside this one that tells its version, likeliest first.
pub fn companions(name: &str) -> &'static [&'static str] {
    match name {
        "libcublas" => &["libcublasLt"],
        "libcufftw" => &["libcufft"],
        "libcusolverMg" => &["libcusolver"],
        _ if name.starts_with("libcudnn") => &["libcudnn_graph", "libcudnn_ops_infer"],
        _ => &[],
    }
}

/// Which library of the stack a file is, by its soname, else by its name; `None` for all others.
pub fn name_of(elf: &Elf, file_name: &str) -> Option<String> {
    known_name(elf.soname.as_deref().unwrap_or(file_name))
}

/// Which library of the stack a soname or a file name stands for: `libcublasLt.so.12` is `libcublasLt`.
pub fn known_name(name: &str) -> Option<String> {
    let known = || {
        FUNCTIONS
            .iter()
            .map(|(stem, ..)| *stem)
            .chain(OTHERS.iter().copied())
    };
    if let Some(stem) = known().find(|stem| is_library(name, stem)) {
        return Some(stem.to_owned());
    }
    let stem = name.split_once(".so")?.0;
    ["libcudnn_", "libnvinfer", "libnpp"]
        .iter()
        .any(|prefix| stem.starts_with(prefix))
        .then(|| stem.to_owned())
}

/// Which library of the stack a file is, and its version as far as the file tells.
pub fn identify(file: &dyn ReadAt, elf: &Elf, file_name: &str) -> Option<Identity> {
    let name = name_of(elf, file_name)?;
    identify_as(file, elf.soname.as_deref(), file_name, name, true)
}

/// The same from a few small reads, without a search for texts: those of NCCL and nvJitLink lie up to 90 MB into the
/// file. What only a text tells is not known then.
pub fn identify_quickly(
    file: &dyn ReadAt,
    soname: Option<&str>,
    file_name: &str,
) -> Option<Identity> {
    let name = known_name(soname.unwrap_or(file_name))?;
    identify_as(file, soname, file_name, name, false)
}

fn identify_as(
    file: &dyn ReadAt,
    soname: Option<&str>,
    file_name: &str,
    name: String,
    search: bool,
) -> Option<Identity> {
    let major = soname
        .and_then(|s| Version::parse(s.split_once(".so.")?.1))
        .map(|v| v.major());
    let mut cuda = None;
    let mut source = String::new();
    let mut told = |version: Option<Version>, by: &str| {
        if version.is_some() {
            by.clone_into(&mut source);
        }
        version
    };
    let version = match name.as_str() {
        "libcudart" => told(full_name(file_name, 3), "file name")
            .or_else(|| told(cudart::version(file), "version constant in its code")),
        "libcuda" => told(full_name(file_name, 2), "file name")
            .or_else(|| told(libcuda_driver_version(file), "text in the file")),
        "libnvidia-ml" => told(full_name(file_name, 2), "file name")
            .or_else(|| told(libnvidia_ml_version(file), "text in the file")),
        "libnvrtc" | "libnvJitLink" if search => told(tools_version(file), "text in the file"),
        "libnvrtc" => told(nvrtc_version(file), "nvrtcVersion"),
        "libnvJitLink" => told(
            nvjitlink_version(file, major?),
            "versions in its symbols' names",
        ),
        "libnvrtc-builtins" => told(full_name(file_name, 2), "file name"),
        "libnvshmem_host" if search => told(after(file, NVSHMEM), "text in the file"),
        "libnccl" if search => {
            let text = text_after(file, NCCL);
            cuda = text
                .as_deref()
                .and_then(|t| Version::parse(t.split_once("+cuda")?.1));
            let plain = text
                .as_deref()
                .and_then(|t| t.split('+').next())
                .and_then(Version::parse);
            told(plain, "text in the file")
        }
        _ => None,
    };
    let version = version.or_else(|| {
        let (_, function, scheme) = FUNCTIONS.iter().find(|(stem, ..)| *stem == name)?;
        let fits = |number: u32| scheme.version_of(number, major);
        let code = symbol_content(file, function, MAX_FUNCTION)?;
        let version = constants(&code).into_iter().find_map(fits);
        let build = symbol_content(file, "getInferLibBuildVersion", 16);
        let build = build.and_then(|code| constants(&code).first().copied());
        let version = match (version, build) {
            (Some(version), Some(build)) if build < 100_000 => {
                Version::parse(&format!("{version}.{build}"))
            }
            (version, _) => version,
        };
        told(version, function)
    });
    let version = version.or_else(|| {
        let (version, by) = cudnn_part(file, &name, search)?;
        told(Some(version), by)
    });
    // What the code does not tell, the name may: toolkits and wheel builders keep the whole version in it. Where a library
    // beside it knows better, that one is asked.
    let version = version.or_else(|| {
        let alone = companions(&name).is_empty();
        alone.then(|| told(full_name(file_name, 3), "file name"))?
    });
    if cuda.is_none() && name.starts_with("libcudnn") {
        let code = symbol_content(file, "cudnnGetCudartVersion", MAX_FUNCTION);
        cuda = code.and_then(|code| {
            let level = constants(&code)
                .into_iter()
                .find(|n| cudart::is_level(*n))?;
            Some(Version::from_cuda_level(level))
        });
    }
    Some(Identity {
        name,
        version,
        source,
        cuda,
    })
}

/// The version in a file's own name where it has that many parts: `libcudart.so.12.8.90`. A soname has fewer.
fn full_name(file_name: &str, parts: usize) -> Option<Version> {
    let version = Version::parse(file_name.split_once(".so.")?.1)?;
    (version.len() >= parts).then_some(version)
}

/// A part of cuDNN: (1) its variable of four bytes, `cudnn_graph_version` = major, minor, patch; (2) the text of a check
/// of it, `cudnn_version != (9 * 10000 + 28 * 100 + 0)`.
fn cudnn_part(file: &dyn ReadAt, name: &str, search: bool) -> Option<(Version, &'static str)> {
    let part = name.strip_prefix("libcudnn_")?;
    let variables = [
        format!("cudnn_{part}_version"),
        format!("cudnn_{part}_infer_version"),
    ];
    let variable = variables.iter().find_map(|symbol| {
        let value = Endian::Little.u32(&symbol_content(file, symbol, 4)?, 0)?;
        let version = format!("{}.{}.{}", value >> 16, value >> 8 & 0xff, value & 0xff);
        Version::parse(&version).filter(|v| (5..100).contains(&v.major()))
    });
    if let Some(version) = variable {
        return Some((version, "version variable"));
    }
    let text = search.then(|| text_after(file, CUDNN))??;
    let numbers: Vec<u32> = text
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let [major, _, minor, 100, patch] = *numbers.get(..5)? else {
        return None;
    };
    Version::parse(&format!("{major}.{minor}.{patch}")).map(|v| (v, "text in the file"))
}

/// `Cuda compilation tools, release 13.5, V13.5.37`: 13.5.37. Another such text is a format and has no number.
pub fn tools_version(file: &dyn ReadAt) -> Option<Version> {
    let constants = constants_of(file);
    let mut from = constants.start;
    for _ in 0..16 {
        let at = find(file, from..constants.end, TOOLS)?;
        from = at.checked_add(TOOLS.len() as u64)?;
        let text = bytes_up_to(file, from, 64);
        let text = String::from_utf8_lossy(&text);
        let version = text
            .split_once(", V")
            .and_then(|(_, rest)| Version::parse(number(rest)));
        if version.as_ref().is_some_and(|v| v.len() == 3) {
            return version;
        }
    }
    None
}

/// `nvrtcVersion(int *major, int *minor)` stores two constants: `mov dword ptr [rdi], 12`, `mov dword ptr [rsi], 9`.
fn nvrtc_version(file: &dyn ReadAt) -> Option<Version> {
    let code = symbol_content(file, "nvrtcVersion", 64)?;
    let stored = |register: u8| {
        let at = code
            .windows(2)
            .position(|pair| pair == [0xc7, register])?
            .checked_add(2)?;
        Endian::Little.u32(&code, at).filter(|n| *n < 100)
    };
    Version::parse(&format!("{}.{}", stored(0x07)?, stored(0x06)?))
}

/// nvJitLink has every function once for each minor version of its CUDA: the highest is its own.
fn nvjitlink_version(file: &dyn ReadAt, major: u32) -> Option<Version> {
    const HIGHEST_MINOR: u32 = 15;
    let minors: Vec<u32> = (0..=HIGHEST_MINOR).rev().collect();
    let names: Vec<String> = minors
        .iter()
        .map(|minor| format!("__nvJitLinkCreate_{major}_{minor}"))
        .collect();
    let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
    let defined = dynamic_symbols_defined(file, &wanted);
    let minor = minors.iter().zip(defined).find(|(_, defined)| *defined)?.0;
    Version::parse(&format!("{major}.{minor}"))
}

fn after(file: &dyn ReadAt, says: &[u8]) -> Option<Version> {
    Version::parse(number(&text_after(file, says)?))
}

/// The digits and dots at the start of a text.
fn number(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// The text behind some words, where a digit stands there; the first such place.
fn text_after(file: &dyn ReadAt, says: &[u8]) -> Option<String> {
    let constants = constants_of(file);
    let mut from = constants.start;
    let mut first: Option<String> = None;
    for _ in 0..16 {
        let Some(at) = find(file, from..constants.end, says) else {
            break;
        };
        from = at.checked_add(says.len() as u64)?;
        let raw = bytes_up_to(file, from, 64);
        let end = raw
            .iter()
            .position(|b| !matches!(b, 0x20..=0x7e))
            .unwrap_or(raw.len());
        let text = String::from_utf8_lossy(raw.get(..end).unwrap_or_default()).into_owned();
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            // NCCL has its version twice; the longer text also says for which CUDA it is.
            if text.contains("+cuda") {
                return Some(text);
            }
            first = first.or(Some(text));
        }
    }
    first
}

/// Where texts lie.
fn constants_of(file: &dyn ReadAt) -> std::ops::Range<u64> {
    const MAX_SEARCH: u64 = 64 << 20;
    section(file, ".rodata").unwrap_or(0..file.len().min(MAX_SEARCH))
}

/// The constants that a function's code stores or returns, in order: of x86-64 `mov register, constant` and
/// `mov dword ptr [...], constant`, of `AArch64` `movz` with the `movk` that follows it.
pub(super) fn constants(code: &[u8]) -> Vec<u32> {
    let le = Endian::Little;
    let mut found = Vec::new();
    for at in 0..code.len() {
        let skip = match (code.get(at), code.get(at + 1)) {
            (Some(0xb8..=0xbf), _) => 1,
            // [register]; register itself
            (Some(0xc7), Some(0x00..=0x03 | 0x06 | 0x07 | 0xc0..=0xc7)) => 2,
            // [register + byte]
            (Some(0xc7), Some(0x40..=0x43 | 0x45..=0x47)) => 3,
            // [r12], which takes a byte more
            (Some(0xc7), Some(0x04)) if code.get(at + 2) == Some(&0x24) => 3,
            _ => continue,
        };
        found.extend(
            le.u32(code, at + skip)
                .filter(|n| (100..10_000_000).contains(n)),
        );
    }
    if found.is_empty() {
        let words: Vec<u32> = code.chunks_exact(4).filter_map(|w| le.u32(w, 0)).collect();
        for (index, word) in words.iter().enumerate() {
            if word & 0xffe0_0000 == 0x5280_0000 {
                let low = word >> 5 & 0xffff;
                let next = words
                    .get(index + 1)
                    .filter(|w| *w & 0xffe0_001f == 0x72a0_0000 | word & 0x1f);
                found.push(low | next.map_or(0, |w| (w >> 5 & 0xffff) << 16));
            }
        }
        found.retain(|n| (100..10_000_000).contains(n));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_versions() {
        for (scheme, number, version) in [
            (Scheme::Thousands, 11_401, "11.4.1"),
            (Scheme::Thousands, 10_310, "10.3.10"),
            (Scheme::Thousands, 801, "0.8.1"),
            (Scheme::Either, 131_000, "13.10.0"),
            (Scheme::Either, 120_903, "12.9.3"),
            (Scheme::Either, 11_200, "11.2.0"),
            (Scheme::Either, 92_801, "9.28.1"),
            (Scheme::Either, 7605, "7.6.5"),
            (Scheme::Either, 2506, "2.5.6"),
        ] {
            assert_eq!(scheme.version(number).unwrap().as_str(), version);
        }
    }

    #[test]
    fn minor_versions_of_two_digits() {
        for (number, major, version) in [
            (1000, 0, Some("0.10.0")),
            (801, 0, Some("0.8.1")),
            (1000, 1, Some("1.0.0")),
            (13_102, 12, Some("12.11.2")),
            (11_705, 11, Some("11.7.5")),
            (11_705, 9, None),
            (10_000, 12, None),
        ] {
            let is = Scheme::Thousands.version_of(number, Some(major));
            assert_eq!(is.as_ref().map(Version::as_str), version, "{number}");
        }
        // Where the scheme itself has room for them, nothing is carried.
        assert!(Scheme::Either.version_of(13_102, Some(12)).is_none());
    }

    #[test]
    fn constants_in_code() {
        // test rdi, rdi; je; mov dword ptr [rdi], 11401; xor eax, eax; ret
        let cufft = [
            0x48, 0x85, 0xff, 0x74, 6, 0xc7, 0x07, 0x89, 0x2c, 0, 0, 0x31, 0xc0, 0xc3,
        ];
        assert_eq!(constants(&cufft), [11_401]);
        // mov dword ptr [rbp + 0], 801
        assert_eq!(constants(&[0xc7, 0x45, 0, 0x21, 3, 0, 0]), [801]);
        // mov dword ptr [r12], 11705
        assert_eq!(
            constants(&[0x41, 0xc7, 0x04, 0x24, 0xb9, 0x2d, 0, 0]),
            [11_705]
        );
        // mov eax, 110400; ret
        assert_eq!(constants(&[0xb8, 0x40, 0xaf, 1, 0, 0xc3]), [110_400]);
        // movz w0, #0xaf40; movk w0, #1, lsl #16; ret
        let arm = [
            0x00, 0xe8, 0x95, 0x52, 0x20, 0x00, 0xa0, 0x72, 0xc0, 0x03, 0x5f, 0xd6,
        ];
        assert_eq!(constants(&arm), [110_400]);
        assert!(constants(&[0xb8, 1]).is_empty());
    }
}
