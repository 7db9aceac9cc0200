//! The copies: where they lie, what they are, which version, and who brought them.
//!
//! Each file is looked at once, and only a few small reads of it: no text is searched for, however the version could be
//! had from one. What a file's code does not tell, its full name or the distribution that brought it does.

use std::collections::BTreeMap;

use super::known;
use crate::facts::{Consumer, ConsumerKind, FileKind, LibraryFile, Link, ReachedBy, Reading};
use crate::probe::loader::Loader;
use crate::probe::runtime::environment_folders;
use crate::probe::search_path::Site;
use crate::read::{pydist, recipes};
use crate::sysroot::{Sysroot, file_name, join, parent};
use crate::version::Version;

/// The copies of one consumer.
pub(super) struct Copies<'a> {
    sysroot: &'a Sysroot,
    loader: &'a Loader<'a>,
    consumer: &'a Consumer,
    /// What the environment brought comes first.
    files: Vec<LibraryFile>,
    brought: usize,
    /// Index of a file by its real path.
    by_real_path: BTreeMap<String, usize>,
    /// Distributions of NVIDIA's in a site, by name.
    owners: BTreeMap<String, Vec<(String, String)>>,
}

impl<'a> Copies<'a> {
    /// Looks where copies lie: the environment's folders, `LD_LIBRARY_PATH`, the loader's cache.
    pub(super) fn new(
        sysroot: &'a Sysroot,
        loader: &'a Loader<'a>,
        consumer: &'a Consumer,
        sites: &[Site],
    ) -> Self {
        let mut copies = Self {
            sysroot,
            loader,
            consumer,
            files: Vec::new(),
            brought: 0,
            by_real_path: BTreeMap::new(),
            owners: BTreeMap::new(),
        };
        if !sites.is_empty() {
            for dir in environment_folders(sysroot, consumer, sites) {
                let names = sysroot.list(&dir, is_wanted);
                for name in names.items() {
                    copies.add(join(&dir, name), ReachedBy::Environment);
                }
            }
        }
        copies.brought = copies.files.len();
        for found in loader.libraries(is_wanted) {
            copies.add(found.path, found.by);
        }
        copies.tell_versions();
        copies
    }

    /// What the environment brought.
    pub(super) fn brought(&self) -> &[LibraryFile] {
        self.files.get(..self.brought).unwrap_or_default()
    }

    /// The sonames that a program of this machine gets by name alone.
    pub(super) fn sonames_of_loader(&self) -> Vec<String> {
        let mut sonames: Vec<String> = Vec::new();
        for copy in &self.files {
            let name = copy
                .soname
                .value()
                .map_or_else(|| file_name(&copy.path).to_owned(), Clone::clone);
            // NVRTC's builtins and the parts of cuDNN are nothing that programs open themselves.
            let is_part = copy.name.starts_with("libcudnn_") || copy.name == "libnvrtc-builtins";
            if !is_part && !sonames.contains(&name) {
                sonames.push(name);
            }
        }
        sonames
    }

    /// The copy that the environment brought under a soname.
    pub(super) fn brought_as(&self, soname: &str) -> Option<&LibraryFile> {
        self.brought().iter().find(|copy| {
            copy.soname.value().map(String::as_str) == Some(soname)
                || file_name(&copy.path) == soname
        })
    }

    /// The real path of a file that was looked at.
    pub(super) fn real_path(&self, path: &str) -> String {
        match self.sysroot.real_path(path) {
            Reading::Present { value, .. } => value,
            _ => path.to_owned(),
        }
    }

    /// Remembers that something gets the copy that a link leads to.
    pub(super) fn mark_used(&mut self, link: &Link) {
        let Some(path) = &link.got else { return };
        let user = if link.user.is_empty() {
            &link.consumer
        } else {
            &link.user
        };
        let by = match link.by.as_str() {
            "LD_LIBRARY_PATH" => ReachedBy::LdLibraryPath(parent(path).to_owned()),
            "ld.so.cache" => ReachedBy::LdCache,
            "default folder" => ReachedBy::DefaultPath,
            "LD_PRELOAD" => ReachedBy::LdPreload,
            _ => ReachedBy::Environment,
        };
        let before = self.files.len();
        let index = self.add(path.clone(), by);
        if self.files.len() > before {
            self.tell_versions();
        }
        if let Some(file) = self.files.get_mut(index) {
            file.used_by.get_or_insert_with(|| user.clone());
        }
    }

    /// All of them.
    pub(super) fn finish(self) -> Vec<LibraryFile> {
        self.files
    }

    /// Looks at a file unless it was looked at before; its index.
    fn add(&mut self, path: String, by: ReachedBy) -> usize {
        let real = self.real_path(&path);
        if let Some(index) = self.by_real_path.get(&real).copied() {
            if let Some(file) = self.files.get_mut(index)
                && !file.reached_by.contains(&by)
            {
                file.reached_by.push(by);
            }
            return index;
        }
        let (kind, size_bytes, elf) = self.loader.look_at(&path);
        let soname = elf.as_ref().and_then(|elf| elf.soname.clone());
        let name = soname
            .as_deref()
            .and_then(known)
            .or_else(|| known(file_name(&path)))
            .unwrap_or_else(|| file_name(&path).to_owned());
        let mut versions = Vec::new();
        let mut cuda = None;
        if kind == FileKind::Library
            && let Some(file) = self.sysroot.file(&path).value()
            && let Some(told) = recipes::identify_quickly(file, soname.as_deref(), file_name(&real))
        {
            cuda = told.cuda;
            versions.extend(
                told.version
                    .map(|v| (format!("{real}: {}", told.source), v)),
            );
        }
        if let Some(version) = full_version(&real)
            && versions.is_empty()
        {
            versions.push((real.clone(), version));
        }
        let (needed, rpath, runpath) =
            elf.map_or_else(Default::default, |elf| (elf.needed, elf.rpath, elf.runpath));
        self.by_real_path.insert(real.clone(), self.files.len());
        let owner = self.owner(&real, &name, versions.first().map(|(_, v)| v));
        self.files.push(LibraryFile {
            owner,
            path,
            real_path: real.clone(),
            kind,
            size_bytes,
            name,
            soname: match soname {
                Some(soname) => Reading::present(soname, real),
                None => Reading::absent(real),
            },
            version: Reading::default(),
            versions,
            cuda,
            needed,
            rpath,
            runpath,
            reached_by: vec![by],
            used_by: None,
        });
        self.files.len() - 1
    }
}

impl Copies<'_> {
    /// Settles the version of each: its own sources, the library beside it, the distribution.
    fn tell_versions(&mut self) {
        let known: Vec<(String, String, Version)> = self
            .files
            .iter()
            .filter_map(|file| {
                let (_, version) = file.versions.first()?;
                Some((
                    parent(&file.real_path).to_owned(),
                    file.name.clone(),
                    version.clone(),
                ))
            })
            .collect();
        for file in &mut self.files {
            if file.version.is_present() {
                continue;
            }
            if file.versions.is_empty() {
                let dir = parent(&file.real_path);
                let beside = recipes::companions(&file.name).iter().find_map(|name| {
                    known
                        .iter()
                        .find(|(folder, other, _)| folder == dir && other == name)
                });
                if let Some((folder, name, version)) = beside {
                    file.versions
                        .push((format!("{folder}/{name} beside it"), version.clone()));
                }
            }
            if let Some((name, version)) = file.owner.value().and_then(|o| o.split_once(' '))
                && let Some(version) = Version::parse(version)
            {
                file.versions
                    .push((format!("distribution {name}"), version));
            }
            file.version = best(&file.versions).unwrap_or_else(|| {
                Reading::unreadable(format!(
                    "{}: no version in code, name or package",
                    file.path
                ))
            });
        }
    }

    /// The distribution that brought a file of a site: one of NVIDIA's by the library's name; of several (`-cu12` and
    /// `-cu13` share folders) the one whose version the file has.
    fn owner(&mut self, real: &str, name: &str, version: Option<&Version>) -> Reading<String> {
        let site = self
            .consumer
            .site_packages
            .iter()
            .find(|site| real.starts_with(&format!("{site}/")));
        let Some(site) = site else {
            return Reading::absent("the environment's site-packages folders");
        };
        let sysroot = self.sysroot;
        let distributions = self.owners.entry(site.clone()).or_insert_with(|| {
            let wanted = |dir: &str| {
                dir.ends_with(".dist-info")
                    && ["nvidia_", "torch-", "tensorrt"]
                        .iter()
                        .any(|start| dir.starts_with(start))
            };
            let dirs = sysroot.list(site, wanted);
            dirs.items()
                .iter()
                .filter_map(|dir| pydist::from_dist_info_dir(dir))
                .collect()
        });
        let in_torch = real.starts_with(&format!("{site}/torch/"));
        let stem = distribution_stem(name);
        let owns = |distribution: &&(String, String)| {
            if in_torch {
                return distribution.0 == "torch";
            }
            stem.is_some_and(|stem| {
                distribution
                    .0
                    .strip_prefix("nvidia-")
                    .unwrap_or(&distribution.0)
                    .strip_prefix(stem)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with("-cu"))
            })
        };
        let mut candidates: Vec<&(String, String)> = distributions.iter().filter(owns).collect();
        if !in_torch && candidates.len() > 1 {
            let cuda13 = real.contains("/nvidia/cu13/");
            // Of the toolkit's parts those of CUDA 13 have no `-cu` in their names, and a folder of their own.
            let toolkit_of_13 = |name: &str| !name.contains("-cu");
            if candidates.iter().any(|(name, _)| toolkit_of_13(name)) {
                candidates.retain(|(name, _)| toolkit_of_13(name) == cuda13);
            }
            if candidates.len() > 1
                && let Some(version) = version
            {
                let exact: Vec<_> = candidates
                    .iter()
                    .copied()
                    .filter(|(_, v)| Version::parse(v).is_some_and(|v| agree(version, &v)))
                    .collect();
                if !exact.is_empty() {
                    candidates = exact;
                }
            }
        }
        match candidates.first() {
            Some((name, version)) => {
                Reading::present(format!("{name} {version}"), join(site, "*.dist-info"))
            }
            None => Reading::absent(join(site, "*.dist-info")),
        }
    }
}

/// Whether a file name in a folder is one to look at: not the archive or the second build (`.alt.so`) beside it.
fn is_wanted(name: &str) -> bool {
    known(name).is_some()
}

/// A library's version by its own file: its code, else its full name.
pub(super) fn own_version(sysroot: &Sysroot, real: &str) -> Option<Version> {
    let file = sysroot.file(real);
    let soname = crate::read::needs::loading(file.value()?)?.soname;
    recipes::identify_quickly(file.value()?, soname.as_deref(), file_name(real))
        .and_then(|told| told.version)
        .or_else(|| full_version(real))
}

/// The version in a real file's full name: `libnvJitLink.so.12.1.55`. A soname has one or two numbers.
fn full_version(real: &str) -> Option<Version> {
    let (_, version) = file_name(real).split_once(".so.")?;
    Version::parse(version).filter(|version| version.len() >= 3)
}

/// Whether two versions say the same, one of them in more numbers: 12.9 and 12.9.86.
pub(super) fn agree(one: &Version, other: &Version) -> bool {
    let len = one.len().min(other.len());
    (0..len).all(|index| one.part(index) == other.part(index))
}

/// The first source's version, in the words of the source that says it in most numbers.
fn best(versions: &[(String, Version)]) -> Option<Reading<Version>> {
    let (_, first) = versions.first()?;
    let (source, version) = versions
        .iter()
        .filter(|(_, version)| agree(first, version))
        .max_by(|(_, a), (_, b)| a.len().cmp(&b.len()).then(std::cmp::Ordering::Greater))?;
    Some(Reading::present(version.clone(), source.clone()))
}

/// What NVIDIA calls the distribution of a library, without `nvidia-` and `-cu12`.
fn distribution_stem(name: &str) -> Option<&'static str> {
    const STEMS: &[(&str, &str)] = &[
        ("libcublas", "cublas"),
        ("libcublasLt", "cublas"),
        ("libcudart", "cuda-runtime"),
        ("libcudnn", "cudnn"),
        ("libcufft", "cufft"),
        ("libcufftw", "cufft"),
        ("libcufile", "cufile"),
        ("libcupti", "cuda-cupti"),
        ("libcurand", "curand"),
        ("libcusolver", "cusolver"),
        ("libcusolverMg", "cusolver"),
        ("libcusparse", "cusparse"),
        ("libcusparseLt", "cusparselt"),
        ("libcutensor", "cutensor"),
        ("libnccl", "nccl"),
        ("libnvJitLink", "nvjitlink"),
        ("libnvjpeg", "nvjpeg"),
        ("libnvrtc", "cuda-nvrtc"),
        ("libnvrtc-builtins", "cuda-nvrtc"),
        ("libnvshmem_host", "nvshmem"),
        ("libnvToolsExt", "nvtx"),
    ];
    if let Some((_, stem)) = STEMS.iter().find(|(library, _)| *library == name) {
        return Some(stem);
    }
    [
        ("libcudnn_", "cudnn"),
        ("libnpp", "npp"),
        ("libnvinfer", "tensorrt"),
    ]
    .iter()
    .find(|(start, _)| name.starts_with(start))
    .map(|(_, stem)| *stem)
}
