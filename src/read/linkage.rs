//! How a file gets at CUDA: which runtime (libcudart) it uses, and whether it needs or opens libcuda and libnvidia-ml.

use std::ops::{ControlFlow, Range};

use memchr::memmem;

use super::cudart;
use super::elf::{self, Elf};
use super::needs::VersionNeed;
use super::window::{ReadAt, scan};
use crate::version::Version;

/// The most bytes of constants that are searched; `libtorch_cuda` has 30 MB.
const MAX_SEARCH: u64 = 128 << 20;
/// A runtime opens its shared memory by a name of this form; nothing else does.
const STATIC_RUNTIME: &[u8] = b"/cudart.shm.%x.%x.%llx";
/// What a program with device code calls before `main`; as a text it is looked up in a library opened later.
const REGISTER: &[u8] = b"__cudaRegisterFatBinary\0";
/// Another function that is looked up so. A compiler that writes calls into programs (LLVM) has the name above and not this
/// one: both together are the table of a file that opens a runtime.
const LOOKED_UP: &[u8] = b"cudaGetDeviceCount\0";
const LIBCUDA: &[u8] = b"libcuda.so";
const LIBNVIDIA_ML: &[u8] = b"libnvidia-ml.so";
/// The longest of what is looked for.
const OVERLAP: usize = 32;

/// How a file uses the CUDA runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// A shared libcudart, which the loader finds.
    Dynamic,
    /// A libcudart inside the file.
    Static,
    /// A libcudart that the file opens itself.
    Dlopen,
    /// None.
    None,
}

/// How a file uses a library of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// It needs it: without the driver it does not load.
    Needed,
    /// Its name is among the file's texts: it is opened where it is there.
    Dlopen,
    /// Not at all.
    None,
}

/// How a file gets at CUDA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linkage {
    /// The runtime.
    pub runtime: Runtime,
    /// The runtime's version: of a shared one as far as its soname tells (`12`, `10.2`), of a static one major and minor,
    /// inferred from its code.
    pub version: Option<Version>,
    /// The file that is needed: `libcudart.so.12`, `libcudart-80664282.so.10.2.89`.
    pub library: Option<String>,
    /// The soname that a shared runtime had when the file was linked, where a wheel builder renamed it since.
    pub linked_as: Option<String>,
    /// libcuda.
    pub libcuda: Driver,
    /// libnvidia-ml.
    pub libnvidia_ml: Driver,
}

/// Says how a file gets at CUDA. `has_device_code` tells a file that registers its own code from one that only knows how
/// code is registered.
pub fn linkage(
    file: &dyn ReadAt,
    elf: &Elf,
    needs: &[VersionNeed],
    has_device_code: bool,
) -> Linkage {
    const PREFIX: &str = "libcudart.so.";
    let is_named = |prefix: &str| {
        let of_family = |name: &&String| is_library(name, prefix);
        elf.needed.iter().find(of_family).cloned()
    };
    let library = is_named("libcudart");
    let texts = texts(file);
    let driver = |needed: Option<String>, is_text: bool| {
        if needed.is_some() {
            Driver::Needed
        } else if is_text {
            Driver::Dlopen
        } else {
            Driver::None
        }
    };
    let is_runtime = elf
        .soname
        .as_deref()
        .is_some_and(|soname| is_library(soname, "libcudart"));
    let linked_as = needs
        .iter()
        .flat_map(|need| &need.nodes)
        .find(|node| node.starts_with(PREFIX))
        .cloned();
    let (runtime, version) = if let Some(library) = &library {
        let named = linked_as.as_deref().unwrap_or(library);
        let version = named
            .split_once(".so.")
            .and_then(|(_, v)| Version::parse(v));
        (Runtime::Dynamic, version)
    } else if is_runtime {
        (Runtime::None, None)
    } else if texts.static_runtime {
        (Runtime::Static, cudart::version_inside(file))
    } else if texts.register && (has_device_code || texts.looked_up) {
        (Runtime::Dlopen, None)
    } else {
        (Runtime::None, None)
    };
    Linkage {
        runtime,
        version,
        linked_as: linked_as.filter(|soname| library.as_ref().is_some_and(|l| l != soname)),
        library,
        libcuda: driver(is_named("libcuda"), texts.libcuda),
        libnvidia_ml: driver(is_named("libnvidia-ml"), texts.libnvidia_ml),
    }
}

/// Whether a needed name is that library, renamed by a wheel builder or not: `libcudart-80664282.so.10.2.89`,
/// `libcudart.3eda8113.so.13`.
pub fn is_library(name: &str, stem: &str) -> bool {
    let Some((before, _)) = name.split_once(".so") else {
        return false;
    };
    before == stem
        || before
            .strip_prefix(stem)
            .and_then(|rest| rest.strip_prefix(['-', '.']))
            .is_some_and(|hash| hash.len() == 8 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[derive(Default)]
struct Texts {
    static_runtime: bool,
    register: bool,
    looked_up: bool,
    libcuda: bool,
    libnvidia_ml: bool,
}

/// Looks for the telling texts among a file's constants.
fn texts(file: &dyn ReadAt) -> Texts {
    let mut found = Texts::default();
    let mut search = |range: Range<u64>| {
        let looked_for =
            [STATIC_RUNTIME, REGISTER, LOOKED_UP, LIBCUDA, LIBNVIDIA_ML].map(memmem::Finder::new);
        let mut seen = [false; 5];
        scan(file, range, OVERLAP, |_, window| {
            for (finder, seen) in looked_for.iter().zip(&mut seen) {
                *seen = *seen || finder.find(window).is_some();
            }
            if seen == [true; 5] {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        let [static_runtime, register, looked_up, libcuda, libnvidia_ml] = seen;
        found.static_runtime |= static_runtime;
        found.register |= register;
        found.looked_up |= looked_up;
        found.libcuda |= libcuda;
        found.libnvidia_ml |= libnvidia_ml;
    };
    let sections = elf::sections(file);
    let mut left = MAX_SEARCH;
    for section in elf::apart(&sections) {
        if section.name == ".rodata" || section.name.starts_with(".rodata.") {
            let len = (section.range.end - section.range.start).min(left);
            left -= len;
            search(section.range.start..section.range.start + len);
        }
    }
    if sections.is_empty() {
        search(0..file.len().min(MAX_SEARCH));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_libraries() {
        for (name, is) in [
            ("libcudart.so.12", true),
            ("libcudart.so", true),
            ("libcudart-80664282.so.10.2.89", true),
            ("libcudart.3eda8113.so.13", true),
            ("libcudart_static.so", false),
            ("libcudartx.so.12", false),
            ("libcudart", false),
        ] {
            assert_eq!(is_library(name, "libcudart"), is, "{name}");
        }
    }
}
