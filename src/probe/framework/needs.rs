//! What a framework's library needs of others: the CUDA libraries by the major version in their sonames, and the C++
//! symbols of the torch that it was built against.

use super::Look;
use crate::facts::{CudaNeed, Reading};
use crate::probe::runtime::environment_folders;
use crate::read::elf::{Elf, dynamic_symbols_defined};
use crate::read::needs::{loading, undefined_symbols};
use crate::read::window::ReadAt;
use crate::sysroot::{file_name, join, parent};

/// Libraries whose sonames carry the CUDA major version.
const BY_MAJOR: &[&str] = &["libcudart.so.", "libcublas.so.", "libcublasLt.so."];
/// Libraries that `TensorFlow` opens by name, by the start of their file names.
const OPENED: &[&str] = &[
    "libcublas.so.",
    "libcublasLt.so.",
    "libcudart.so.",
    "libcudnn.so.",
    "libcufft.so.",
    "libcusolver.so.",
    "libcusparse.so.",
];
/// Libraries of torch that define what an extension uses, the one with the most first.
const OF_TORCH: &[&str] = &[
    "libc10.so",
    "libtorch_cpu.so",
    "libtorch_python.so",
    "libc10_cuda.so",
    "libtorch_cuda.so",
    "libtorch.so",
];
/// The most symbols of one extension that are looked up: one of another ABI or release lacks dozens.
const MAX_SYMBOLS: usize = 96;
/// The most symbols that are told.
const MAX_LACKING: usize = 8;

/// The folders that a library names itself, `$ORIGIN` filled in.
fn search_path<'a>(
    rpath: Option<&'a str>,
    runpath: Option<&'a str>,
    path: &'a str,
) -> impl Iterator<Item = String> + 'a {
    let origin = parent(path);
    let dirs = rpath.into_iter().chain(runpath).flat_map(|p| p.split(':'));
    dirs.filter(|dir| !dir.is_empty())
        .map(move |dir| dir.replace("${ORIGIN}", origin).replace("$ORIGIN", origin))
}

impl Look<'_> {
    /// The CUDA libraries among the needs, and where a copy of each lies.
    pub(super) fn cuda_needs(&mut self, elf: &Elf, path: &str) -> Vec<CudaNeed> {
        let mut needs = Vec::new();
        for soname in &elf.needed {
            let Some(stem) = BY_MAJOR.iter().find(|stem| soname.starts_with(**stem)) else {
                continue;
            };
            let own = search_path(elf.rpath.as_deref(), elf.runpath.as_deref(), path)
                .map(|dir| join(&dir, soname))
                .find(|file| self.sysroot.exists(file));
            let found = match own {
                Some(file) => Reading::present(file, "the library's own search path"),
                None => self.find(soname),
            };
            let others = if found.is_absent() {
                self.others(stem, soname)
            } else {
                Vec::new()
            };
            needs.push(CudaNeed {
                soname: soname.clone(),
                found,
                others,
            });
        }
        needs
    }

    /// A file of this name, in any folder that a process of the consumer may take one from. By which rule it gets there
    /// is another question: what torch loads first serves its extensions, whatever their own search path says.
    fn find(&mut self, soname: &str) -> Reading<String> {
        let own = self
            .folders()
            .iter()
            .find(|(_, names)| names.iter().any(|n| n == soname));
        if let Some((dir, _)) = own {
            return Reading::present(join(dir, soname), "the environment's folders");
        }
        let (found, refused) = self.loader.search(soname);
        match (found.first(), refused) {
            (Some(first), _) => Reading::present(first.path.clone(), "the loader's search"),
            (None, Some(reason)) => Reading::unreadable(reason),
            (None, None) => Reading::absent(
                "the environment's folders, LD_LIBRARY_PATH, ld.so.cache, default folders",
            ),
        }
    }

    /// The same library of other major versions.
    fn others(&mut self, stem: &str, soname: &str) -> Vec<String> {
        let mut others: Vec<String> = self
            .folders()
            .iter()
            .flat_map(|(_, names)| names)
            .filter(|name| name.starts_with(stem))
            .cloned()
            .collect();
        let cached = self.loader.cached_with_prefix(stem);
        others.extend(cached.iter().map(|found| file_name(&found.path).to_owned()));
        // `libcudart.so.12.8.90` lies beside its soname; the short name says enough.
        let major = |name: &str| {
            let version = name.strip_prefix(stem).unwrap_or_default();
            version.split('.').next().unwrap_or_default().to_owned()
        };
        let wanted = major(soname);
        others.retain(|name| major(name) != wanted && !major(name).is_empty());
        others.sort_by_key(|name| (major(name), name.len()));
        others.dedup_by_key(|name| major(name));
        others
    }

    /// Folders of the environment with CUDA libraries, and the names of those libraries in each.
    fn folders(&mut self) -> &[(String, Vec<String>)] {
        let (sysroot, consumer, sites) = (self.sysroot, self.consumer, self.sites);
        self.folders.get_or_insert_with(|| {
            environment_folders(sysroot, consumer, sites)
                .into_iter()
                .map(|dir| {
                    let listed = sysroot.list(&dir, |name| {
                        OPENED.iter().any(|stem| name.starts_with(stem))
                    });
                    let names = listed.items().to_vec();
                    (dir, names)
                })
                .filter(|(_, names)| !names.is_empty())
                .collect()
        })
    }

    /// CUDA libraries in the environment's folders that neither the library's search path nor the loader leads to.
    pub(super) fn out_of_reach(&mut self, elf: &Elf, path: &str) -> Reading<Vec<String>> {
        // Which of its two libraries opens them has changed over the releases: what one of them reaches counts.
        let companion = join(parent(path), "libtensorflow_framework.so.2");
        let companion = self.sysroot.file(&companion);
        let companion = companion.value().and_then(|file| loading(file));
        let companion = companion.unwrap_or_default();
        let searched: Vec<String> = [
            (&elf.rpath, &elf.runpath),
            (&companion.rpath, &companion.runpath),
        ]
        .into_iter()
        .flat_map(|(rpath, runpath)| search_path(rpath.as_deref(), runpath.as_deref(), path))
        .filter_map(|dir| self.sysroot.real_path(&dir).value().cloned())
        .collect();
        let mut lost = Vec::new();
        for (dir, names) in self.folders().to_vec() {
            let real = self.sysroot.real_path(&dir);
            if real.value().is_some_and(|real| searched.contains(real)) {
                continue;
            }
            for name in names.iter().filter(|name| !name.contains(".alt.")) {
                let (found, refused) = self.loader.search(name);
                if let Some(reason) = refused {
                    return Reading::unreadable(reason);
                }
                if found.is_empty() {
                    lost.push(join(&dir, name));
                }
            }
        }
        Reading::present(lost, path)
    }

    /// Symbols of torch's C++ core (`c10::...`) that the extension uses and that no library of the torch here defines:
    /// then it was built against another torch, or for the other C++ ABI. Only a sample is looked up.
    pub(super) fn lacking(&self, file: &dyn ReadAt, path: &str) -> Reading<Vec<String>> {
        let Some(torch) = &self.torch else {
            return Reading::absent("no torch");
        };
        let dir = match torch.library.value() {
            Some(library) => parent(library).to_owned(),
            None => join(&torch.site, "torch/lib"),
        };
        let mut wanted: Vec<String> = undefined_symbols(file)
            .into_iter()
            .filter(|symbol| {
                !symbol.weak
                    && ["_ZN3c10", "_ZNK3c10"]
                        .iter()
                        .any(|start| symbol.name.starts_with(start))
            })
            .map(|symbol| symbol.name)
            .take(MAX_SYMBOLS)
            .collect();
        for name in OF_TORCH {
            if wanted.is_empty() {
                break;
            }
            let library = join(&dir, name);
            let file = match self.sysroot.file(&library) {
                Reading::Present { value, .. } => value,
                // Its own parts are what the answer depends on; without one of them there is none.
                Reading::Absent { .. } if *name == "libc10.so" => return Reading::absent(library),
                Reading::Absent { .. } => continue,
                Reading::Unreadable { reason } => return Reading::unreadable(reason),
            };
            let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
            let mut defined = dynamic_symbols_defined(&file, &names).into_iter();
            wanted.retain(|_| !defined.next().unwrap_or(false));
        }
        wanted.truncate(MAX_LACKING);
        Reading::present(wanted, path)
    }
}
