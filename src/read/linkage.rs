//! How a file gets at CUDA: which runtime (libcudart) it uses, and whether it needs or opens libcuda and libnvidia-ml.

use std::ops::{ControlFlow, Range};

use memchr::memmem;

use super::elf::{self, Elf};
use super::fatbin::Look;
use super::needs::VersionNeed;
use super::window::{ReadAt, WINDOW, bytes_up_to, scan};
use super::{cudart, recipes};
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
/// All that is looked for among a file's constants.
pub(super) const TEXTS: [&[u8]; 5] = [STATIC_RUNTIME, REGISTER, LOOKED_UP, LIBCUDA, LIBNVIDIA_ML];
/// The longest of what is looked for.
const OVERLAP: usize = 32;
/// How much of the end of the constants is searched first; a static runtime's texts lie in the last 36 KB of libcublas
/// and libcublasLt.
const TAIL: u64 = 1 << 20;

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
///
/// Texts are looked for where an answer depends on them and nothing else has given it: libcublasLt has 53 MB of constants.
pub fn linkage(
    file: &dyn ReadAt,
    elf: &Elf,
    needs: &[VersionNeed],
    has_device_code: bool,
    how: Look,
) -> Linkage {
    const PREFIX: &str = "libcudart.so.";
    let is_named = |prefix: &str| {
        let of_family = |name: &&String| is_library(name, prefix);
        elf.needed.iter().find(of_family).cloned()
    };
    let library = is_named("libcudart");
    let (libcuda, libnvidia_ml) = (is_named("libcuda"), is_named("libnvidia-ml"));
    let is_runtime = elf
        .soname
        .as_deref()
        .is_some_and(|soname| is_library(soname, "libcudart"));
    let has_other_runtime = library.is_none() && !is_runtime;
    let texts = texts(
        file,
        Texts {
            static_runtime: has_other_runtime,
            register: has_other_runtime,
            looked_up: has_other_runtime && !has_device_code,
            libcuda: libcuda.is_none(),
            libnvidia_ml: libnvidia_ml.is_none() && (how.deep || !recipes::is_without_nvml(elf)),
        },
    );
    let driver = |needed: Option<String>, is_text: bool| {
        if needed.is_some() {
            Driver::Needed
        } else if is_text {
            Driver::Dlopen
        } else {
            Driver::None
        }
    };
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
        libcuda: driver(libcuda, texts.libcuda),
        libnvidia_ml: driver(libnvidia_ml, texts.libnvidia_ml),
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

/// The telling texts: what is to be looked for, or what was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Texts {
    static_runtime: bool,
    register: bool,
    looked_up: bool,
    libcuda: bool,
    libnvidia_ml: bool,
}

impl Texts {
    /// What is still to be looked for once `found` is known. A runtime inside a file registers the file's code itself,
    /// and opens libcuda.
    fn without(self, found: Self) -> Self {
        Self {
            static_runtime: self.static_runtime && !found.static_runtime,
            register: self.register && !found.register && !found.static_runtime,
            looked_up: self.looked_up && !found.looked_up && !found.static_runtime,
            libcuda: self.libcuda && !found.libcuda && !found.static_runtime,
            libnvidia_ml: self.libnvidia_ml && !found.libnvidia_ml,
        }
    }
}

/// Looks for texts among a file's constants.
fn texts(file: &dyn ReadAt, wanted: Texts) -> Texts {
    let mut found = Texts::default();
    let looked_for = [REGISTER, LOOKED_UP, LIBCUDA, LIBNVIDIA_ML].map(memmem::Finder::new);
    let static_runtime = memmem::Finder::new(STATIC_RUNTIME);
    // As a text of C it ends there; gpudoctor itself has it too, and goes on with another word.
    let is_static = |window: &[u8]| {
        let mut places = static_runtime.find_iter(window);
        places.any(|at| window.get(at + STATIC_RUNTIME.len()) == Some(&0))
    };
    let known = known_texts(file);
    let mut search = |range: Range<u64>| {
        if let Some(known) = &known {
            let stands = known.each_ref().map(|places| {
                let mut places = places.iter();
                places.any(|place| range.start <= place.start && place.end <= range.end)
            });
            let [static_runtime, register, looked_up, libcuda, libnvidia_ml] = stands;
            found.static_runtime |= wanted.static_runtime && static_runtime;
            found.register |= wanted.register && register;
            found.looked_up |= wanted.looked_up && looked_up;
            found.libcuda |= wanted.libcuda && libcuda || found.static_runtime;
            found.libnvidia_ml |= wanted.libnvidia_ml && libnvidia_ml;
            return;
        }
        for piece in from_the_end(range) {
            if wanted.without(found) == Texts::default() {
                break;
            }
            scan(file, piece, OVERLAP, |_, window| {
                let left = wanted.without(found);
                let static_runtime = left.static_runtime && is_static(window);
                let left = [
                    left.register,
                    left.looked_up,
                    left.libcuda,
                    left.libnvidia_ml,
                ];
                let is_there: [bool; 4] = std::array::from_fn(|i| {
                    left.get(i) == Some(&true)
                        && looked_for.get(i).is_some_and(|f| f.find(window).is_some())
                });
                let [register, looked_up, libcuda, libnvidia_ml] = is_there;
                found.static_runtime |= static_runtime;
                found.register |= register;
                found.looked_up |= looked_up;
                found.libcuda |= libcuda || static_runtime;
                found.libnvidia_ml |= libnvidia_ml;
                if wanted.without(found) == Texts::default() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
        }
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

/// Where each of [`TEXTS`] stands, of a file that was searched for all of them as it came by.
fn known_texts(file: &dyn ReadAt) -> Option<[Vec<Range<u64>>; 5]> {
    let gist = file.gist()?;
    let mut known: [Vec<Range<u64>>; 5] = std::array::from_fn(|_| Vec::new());
    for (text, known) in TEXTS.iter().zip(&mut known) {
        let ranges = gist.places(text)?.map(|at| at..at + text.len());
        let ends = |end: u64| bytes_up_to(file, end, 1) == [0];
        known.extend(ranges.filter(|range| *text != STATIC_RUNTIME || ends(range.end)));
    }
    Some(known)
}

/// The pieces of a range in the order in which they are searched: the end first, since a static library stands last on
/// a linker's command line, and its texts with it. Each reaches a little into the next, so that no text is cut in two.
fn from_the_end(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = range;
    let tail = end.saturating_sub(TAIL).max(start);
    let window = WINDOW as u64;
    let steps = (end - tail).div_ceil(window);
    let tails = (1..=steps).map(move |step| {
        let from = end.saturating_sub(step * window).max(tail);
        let to = end.saturating_sub((step - 1) * window);
        from..to.saturating_add(OVERLAP as u64).min(end)
    });
    let rest = start..tail.saturating_add(OVERLAP as u64).min(end);
    tails.chain((tail > start).then_some(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::tests::Counted;

    const ALL: Texts = Texts {
        static_runtime: true,
        register: true,
        looked_up: true,
        libcuda: true,
        libnvidia_ml: true,
    };

    #[test]
    fn texts_are_found_wherever_they_stand() {
        let window = WINDOW as u64;
        for len in [40, window + 1, TAIL, TAIL + 1, TAIL + window + 100] {
            let len = usize::try_from(len).unwrap();
            let from_end = [40, WINDOW, WINDOW + 3, WINDOW + 40, 1 << 20, (1 << 20) + 9];
            for back in from_end
                .into_iter()
                .chain([len])
                .filter(|back| *back <= len)
            {
                let mut file = vec![0; len];
                let at = len - back;
                file[at..at + STATIC_RUNTIME.len()].copy_from_slice(STATIC_RUNTIME);
                let found = texts(&file, ALL);
                assert!(found.static_runtime, "{back} from the end of {len}");
                assert!(found.libcuda, "a runtime opens libcuda");
                assert!(!found.libnvidia_ml && !found.register);
            }
        }
    }

    #[test]
    fn who_looks_for_a_runtime_has_none() {
        let mut file = STATIC_RUNTIME.to_vec();
        file.extend(REGISTER);
        file.resize(4096, 0);
        assert!(!texts(&file, ALL).static_runtime);
    }

    #[test]
    fn what_is_known_is_not_looked_for() {
        // What is read to see that it is no ELF file.
        const HEADER: usize = 512;
        let mut file = Counted::new(vec![0; 4 << 20]);
        assert_eq!(texts(&file, Texts::default()), Texts::default());
        assert!(file.bytes() <= HEADER, "{}", file.bytes());
        let at = (4 << 20) - 1000;
        file.file[at..at + LIBCUDA.len()].copy_from_slice(LIBCUDA);
        let only_libcuda = Texts {
            libcuda: true,
            ..Texts::default()
        };
        assert_eq!(texts(&file, only_libcuda), only_libcuda);
        assert!(file.bytes() <= WINDOW + 2 * HEADER, "{}", file.bytes());
    }

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
