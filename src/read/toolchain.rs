//! Texts of compilers: what a toolkit's headers let pass, which host compiler flags name, what a compiler's file name
//! says, whether a project's build file speaks of CUDA.

use super::window::{ReadAt, bytes_up_to, find};
use crate::facts::{CompilerFamily, HostLimits};
use crate::version::Version;

/// Functions that newer C libraries declare as well, with an exception specification: where the toolkit's own
/// declaration has none, C++ takes the two for different ones. Which library has which is the matrix's business.
const SHARED_MATH: &[(&str, &str)] =
    &[("cospi", " cospi(double x)"), ("rsqrt", " rsqrt(double x)")];

/// The limits in `crt/host_config.h`, by its tests: the text of its messages was wrong more than once.
///
/// ```text
/// #if __GNUC__ > 12
/// #if (__clang_major__ >= 16) || (__clang_major__ < 3) || ((__clang_major__ == 3) &&  (__clang_minor__ < 3))
/// ```
///
/// Of the tests for Clang the last one is that for plain Clang: those of vendors' own builds stand before it.
pub fn host_limits(text: &str) -> HostLimits {
    let mut limits = HostLimits::default();
    for line in text.lines() {
        let Some(test) = line
            .trim_start()
            .strip_prefix('#')
            .and_then(|line| line.trim_start().strip_prefix("if"))
        else {
            continue;
        };
        let test = test.trim();
        if let Some(number) = test.strip_prefix("__GNUC__ > ") {
            limits.gcc_max = number.trim().parse().ok();
        } else if let Some(rest) = test.strip_prefix("(__clang_major__ >") {
            let (number, beyond) = match rest.strip_prefix('=') {
                Some(number) => (number, 1),
                None => (rest, 0),
            };
            limits.clang_max = number
                .split_once(')')
                .and_then(|(number, _)| number.trim().parse::<u32>().ok())
                .and_then(|number| number.checked_sub(beyond));
        }
    }
    limits
}

/// Functions of [`SHARED_MATH`] that `crt/math_functions.h` declares with nothing behind the parameters.
///
/// ```text
/// extern __DEVICE_FUNCTIONS_DECL__ __device_builtin__ double                 cospi(double x);
/// extern __DEVICE_FUNCTIONS_DECL__ __device_builtin__ double                 cospi(double x) __NV_..._SPECIFIER;
/// ```
pub fn plain_math(text: &[u8]) -> Vec<String> {
    let bare = |declaration: &str| {
        let at = memchr::memmem::find(text, declaration.as_bytes())?;
        let behind = text.get(at.checked_add(declaration.len())?..)?;
        Some(behind.trim_ascii_start().first() == Some(&b';'))
    };
    SHARED_MATH
        .iter()
        .filter(|(_, declaration)| bare(declaration) == Some(true))
        .map(|(name, _)| (*name).to_owned())
        .collect()
}

/// The host compiler that flags for nvcc name: `-ccbin X`, `-ccbin=X`, `--compiler-bindir X`; the last one where there
/// are several.
pub fn compiler_of_flags(flags: &str) -> Option<&str> {
    let mut words = flags.split_ascii_whitespace();
    let mut named = None;
    while let Some(word) = words.next() {
        let rest = ["--compiler-bindir", "-compiler-bindir", "--ccbin", "-ccbin"]
            .iter()
            .find_map(|option| word.strip_prefix(option));
        match rest {
            Some("") => named = words.next(),
            Some(value) => named = value.strip_prefix('='),
            None => {}
        }
    }
    named.map(|word| word.trim_matches(['"', '\'']))
}

/// The program that a shell script ends in: `exec /usr/lib/nvidia-cuda-toolkit/bin/nvcc "$@"`.
pub fn script_target(text: &str) -> Option<&str> {
    if !text.starts_with("#!") {
        return None;
    }
    text.lines()
        .filter_map(|line| line.trim_start().strip_prefix("exec "))
        .find_map(|line| line.split_ascii_whitespace().next())
        .map(|word| word.trim_matches('"'))
        .filter(|word| word.starts_with('/'))
}

/// The word of `CC` or `CXX` that names the compiler: `ccache gcc-12 -m64` is `gcc-12`.
pub fn compiler_word(value: &str) -> Option<&str> {
    value.split_ascii_whitespace().find(|word| {
        let name = word.rsplit('/').next().unwrap_or(word);
        !is_wrapper(name) && !word.starts_with('-')
    })
}

/// Programs that stand before a compiler and pass the call on.
pub fn is_wrapper(name: &str) -> bool {
    ["ccache", "sccache", "distcc", "icecc", "env"].contains(&name)
}

/// What the name of a compiler's real file says: `x86_64-linux-gnu-g++-13` is GCC 13, `clang-18` Clang 18.
pub fn compiler_name(file_name: &str) -> Option<(CompilerFamily, Option<Version>)> {
    let (name, version) = match file_name.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => {
            (name, Version::parse(version))
        }
        _ => (file_name, None),
    };
    let last = name.rsplit('-').next().unwrap_or(name);
    match last {
        "gcc" | "g++" | "cc" | "c++" => Some((CompilerFamily::Gcc, version)),
        "clang" | "clang++" => Some((CompilerFamily::Clang, version)),
        _ => None,
    }
}

/// The full version of a compiler whose major version is known, from its program: the text `12.2.0` that ends there.
pub fn full_compiler_version(file: &dyn ReadAt, major: u32) -> Option<Version> {
    let constants = super::elf::section(file, ".rodata")?;
    let needle = format!("{major}.");
    let mut from = constants.start;
    for _ in 0..256 {
        let at = find(file, from..constants.end, needle.as_bytes())?;
        from = at.checked_add(1)?;
        let edge = bytes_up_to(file, at.checked_sub(1)?, 1);
        if !matches!(*edge, [0 | b' ']) {
            continue;
        }
        let text = bytes_up_to(file, at, 16);
        let whole = text
            .iter()
            .position(|b| *b == 0)
            .and_then(|end| text.get(..end));
        let version = whole
            .and_then(|text| std::str::from_utf8(text).ok())
            .filter(|text| text.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
            .and_then(Version::parse)
            .filter(|version| version.len() == 3);
        if version.is_some() {
            return version;
        }
    }
    None
}

/// Whether a project's build file has CUDA code compiled: a `setup.py` that speaks of `CUDAExtension`, a `CMakeLists.txt`
/// that enables the language or looks for the toolkit.
pub fn builds_cuda(file_name: &str, text: &str) -> bool {
    match file_name {
        "setup.py" => text.contains("CUDAExtension"),
        "CMakeLists.txt" => text.lines().any(|line| {
            let line = line.split('#').next().unwrap_or_default();
            let call = line.trim_start().to_ascii_lowercase();
            let has_word = line
                .split(|c: char| !c.is_ascii_alphanumeric())
                .any(|word| word == "CUDA" || word == "CUDAToolkit");
            has_word
                && ["project", "enable_language", "find_package"]
                    .iter()
                    .any(|name| call.starts_with(name))
        }),
        _ => false,
    }
}

/// Whether a project is built with torch at hand: `pyproject.toml` names it among what the build requires, which a
/// project of Python alone has no use for.
///
/// ```text
/// [build-system]
/// requires = ["setuptools>=64", "torch>=2.4", "ninja"]
/// ```
pub fn builds_with_torch(file_name: &str, text: &str) -> bool {
    if file_name != "pyproject.toml" {
        return false;
    }
    let mut lines = text
        .lines()
        .skip_while(|line| line.trim() != "[build-system]");
    lines.next();
    let section = lines.take_while(|line| !line.trim_start().starts_with('['));
    let mut is_open = false;
    for line in section {
        let line = line.split('#').next().unwrap_or_default();
        let value = match line.trim_start().strip_prefix("requires") {
            Some(rest) if rest.trim_start().starts_with('=') => {
                is_open = true;
                rest
            }
            _ => line,
        };
        let names = value.split(['"', '\'']).skip(1).step_by(2);
        if is_open && names.map(name_of).any(|name| name == "torch") {
            return true;
        }
        // An array goes on until it is closed; brackets of extras stand inside quotes.
        is_open &= !value.trim_end().ends_with(']');
    }
    false
}

/// The name at the beginning of a requirement: `torch` of `torch>=2.4`.
fn name_of(requirement: &str) -> &str {
    let requirement = requirement.trim_start();
    let end = requirement.find(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '_' | '.'));
    requirement
        .get(..end.unwrap_or(requirement.len()))
        .unwrap_or_default()
}

/// The nvcc that a `build.ninja` of `torch.utils.cpp_extension` names; none where it compiles C++ alone.
///
/// ```text
/// cxx = c++
/// nvcc = /usr/local/cuda/bin/nvcc
/// ```
pub fn nvcc_of_ninja(text: &str) -> Option<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("nvcc")?.trim_start().strip_prefix('='))
        .map(str::trim)
        .find(|path| path.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_of_a_header_are_read_and_its_messages_are_not() {
        // The lines of 13.5 that count, and the message of 12.3 that says 16 where its test says otherwise.
        let text = "#if (__GRCO_CLANG_COMPILER__ == 1) && ((__clang_major__ < 16) || (__clang_major__ > 22))\n\
            #if __GNUC__ > 16\n\
            #error -- unsupported GNU version! gcc versions later than 15 are not supported!\n\
            #endif /* __GNUC__ > 14 */\n\
            #if (__clang_major__ >= 22) || (__clang_major__ < 3)\n\
            # if (__clang_major__ >= 23) || (__clang_major__ < 3)\n";
        assert_eq!(
            host_limits(text),
            HostLimits {
                gcc_max: Some(16),
                clang_max: Some(22)
            }
        );
        let old = "#if __GNUC__ > 4 || (__GNUC__ == 4 && __GNUC_MINOR__ > 9)\n#if (__clang_major__ > 15)\n";
        assert_eq!(
            host_limits(old),
            HostLimits {
                gcc_max: None,
                clang_max: Some(15)
            }
        );
        assert_eq!(host_limits(""), HostLimits::default());
    }

    #[test]
    fn declarations_with_nothing_behind_them() {
        let old = b"double   cospi(double x);\n__func__(double cospi(double a));\ndouble rsqrt(double x) ;";
        assert_eq!(plain_math(old), ["cospi", "rsqrt"]);
        let new = b"double   cospi(double x) __SPECIFIER;\ndouble rsqrt(double x) __SPECIFIER;";
        assert!(plain_math(new).is_empty());
        assert!(plain_math(b"double cospi(double x)").is_empty());
    }

    #[test]
    fn flags_and_words_that_name_a_compiler() {
        for (flags, named) in [
            ("-ccbin g++-12 -O2", Some("g++-12")),
            (
                " -ccbin=/env/bin/x86_64-conda-linux-gnu-c++",
                Some("/env/bin/x86_64-conda-linux-gnu-c++"),
            ),
            ("--compiler-bindir /usr/bin", Some("/usr/bin")),
            ("-ccbin a --compiler-bindir=b", Some("b")),
            ("-ccbin", None),
            ("-O2 -Xcompiler -Wall", None),
        ] {
            assert_eq!(compiler_of_flags(flags), named, "{flags}");
        }
        assert_eq!(
            compiler_word("ccache /usr/bin/gcc-12 -m64"),
            Some("/usr/bin/gcc-12")
        );
        assert_eq!(compiler_word(" "), None);
        assert_eq!(
            script_target("#!/bin/sh\n\nexec /usr/lib/nvidia-cuda-toolkit/bin/nvcc \"$@\"\n"),
            Some("/usr/lib/nvidia-cuda-toolkit/bin/nvcc")
        );
        assert_eq!(script_target("#!/bin/sh\nexec $prog \"$@\"\n"), None);
    }

    #[test]
    fn names_of_compilers() {
        for (name, family, version) in [
            ("x86_64-linux-gnu-g++-13", CompilerFamily::Gcc, Some("13")),
            ("gcc", CompilerFamily::Gcc, None),
            ("x86_64-conda-linux-gnu-cc", CompilerFamily::Gcc, None),
            ("gcc-11.4.0", CompilerFamily::Gcc, Some("11.4.0")),
            ("clang-18", CompilerFamily::Clang, Some("18")),
            ("clang++", CompilerFamily::Clang, None),
        ] {
            let read = compiler_name(name).unwrap();
            assert_eq!(read.0, family, "{name}");
            assert_eq!(read.1, version.and_then(Version::parse), "{name}");
        }
        for name in ["ccache", "icpx", "nvc++x", "-", ""] {
            assert!(compiler_name(name).is_none(), "{name}");
        }
    }

    #[test]
    fn build_files() {
        assert!(builds_cuda(
            "setup.py",
            "from torch.utils.cpp_extension import CUDAExtension"
        ));
        assert!(!builds_cuda("setup.py", "from setuptools import setup"));
        assert!(builds_cuda(
            "CMakeLists.txt",
            "project(app LANGUAGES C CXX CUDA)"
        ));
        assert!(builds_cuda(
            "CMakeLists.txt",
            "  find_package( CUDAToolkit REQUIRED)"
        ));
        for text in [
            "project(app CXX) # no CUDA",
            "option(USE_CUDA \"CUDA\" OFF)",
            "project(CUDAX)",
        ] {
            assert!(!builds_cuda("CMakeLists.txt", text), "{text}");
        }
    }

    #[test]
    fn projects_that_are_built_with_torch() {
        let of = |text: &str| builds_with_torch("pyproject.toml", text);
        assert!(of(
            "[build-system]\nrequires = [\"setuptools\", 'torch>=2.4']\n"
        ));
        assert!(of(
            "[project]\nname = \"x\"\n[build-system]\nrequires=[\n  \"setuptools[core]>=64\", # \"no\n  \"torch\",\n]\n"
        ));
        for text in [
            "[project]\ndependencies = [\"torch\"]\n",
            "[build-system]\nrequires = [\"setuptools\"]\n[project]\ndependencies = [\"torch\"]\n",
            "[build-system]\nrequires = [\n\"torchmetrics\"\n]\nbackend = \"torch\"\n",
            "[build-system]\n# requires = [\"torch\"]\n",
            "",
        ] {
            assert!(!of(text), "{text}");
        }
        assert!(!builds_with_torch(
            "setup.py",
            "[build-system]\nrequires = [\"torch\"]"
        ));
    }

    #[test]
    fn the_nvcc_of_a_build() {
        let text = "ninja_required_version = 1.3\ncxx = c++\nnvcc = /usr/local/cuda-12.1/bin/nvcc\n\nnvcc_dlink_post_cflags = /x\n";
        assert_eq!(nvcc_of_ninja(text), Some("/usr/local/cuda-12.1/bin/nvcc"));
        assert_eq!(nvcc_of_ninja("cxx = c++\n"), None);
        assert_eq!(nvcc_of_ninja("nvcc = $cuda\n"), None);
    }
}
