//! The copies: where they lie, what they are, which version, and who brought them.
//!
//! Each file is looked at once, and only a few small reads of it: no text is searched for, however the version could be
//! had from one. What a file's code does not tell, its full name or the distribution that brought it does.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::{Environment, known};
use crate::facts::{
    ConsumerKind, FileKind, Installed, LibraryFile, Link, PythonFacts, ReachedBy, Reading,
};
use crate::probe::loader::Loader;
use crate::probe::runtime::environment_folders;
use crate::read::needs::loading;
use crate::read::pages::Pages;
use crate::read::recipes;
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};
use crate::version::Version;

/// The copies of one consumer.
pub(super) struct Copies<'a> {
    sysroot: &'a Sysroot,
    loader: &'a Loader<'a>,
    environment: &'a Environment<'a>,
    /// What the environment brought comes first.
    files: Vec<LibraryFile>,
    brought: usize,
    /// Index of a file by its real path.
    by_real_path: BTreeMap<String, usize>,
    /// Real paths of folders.
    folders: RefCell<BTreeMap<String, String>>,
}

impl<'a> Copies<'a> {
    /// Looks where copies lie: the environment's folders, `LD_LIBRARY_PATH`, the loader's cache.
    pub(super) fn new(
        sysroot: &'a Sysroot,
        loader: &'a Loader<'a>,
        environment: &'a Environment<'a>,
    ) -> Self {
        let mut copies = Self::none(sysroot, loader, environment);
        let consumer = environment.consumer;
        if consumer.kind != ConsumerKind::Machine {
            for dir in environment_folders(sysroot, consumer, environment.sites) {
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

    /// These files and no others.
    pub(super) fn of_files<'p>(
        sysroot: &'a Sysroot,
        loader: &'a Loader<'a>,
        environment: &'a Environment<'a>,
        paths: impl Iterator<Item = &'p str>,
        by: &ReachedBy,
    ) -> Self {
        let mut copies = Self::none(sysroot, loader, environment);
        for path in paths {
            copies.add(path.to_owned(), by.clone());
        }
        copies.tell_versions();
        copies
    }

    fn none(
        sysroot: &'a Sysroot,
        loader: &'a Loader<'a>,
        environment: &'a Environment<'a>,
    ) -> Self {
        Self {
            sysroot,
            loader,
            environment,
            files: Vec::new(),
            brought: 0,
            by_real_path: BTreeMap::new(),
            folders: RefCell::default(),
        }
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

    /// The path by which a file is told: the one it was found by, without the detours of a search path.
    pub(super) fn told_as(&self, path: &str) -> String {
        if !path.contains("/../") {
            return path.to_owned();
        }
        let real = self.real_path(path);
        self.by_real_path
            .get(&real)
            .and_then(|index| self.files.get(*index))
            .map_or(real, |file| file.path.clone())
    }

    /// The real path of a file that was looked at: of each folder it is asked once.
    pub(super) fn real_path(&self, path: &str) -> String {
        let folder = parent(path);
        let known = self.folders.borrow().get(folder).cloned();
        let real_folder = known.unwrap_or_else(|| {
            let real = self.resolved(folder);
            self.folders
                .borrow_mut()
                .insert(folder.to_owned(), real.clone());
            real
        });
        let path = join(&real_folder, file_name(path));
        match self.sysroot.lstat(&path).value() {
            Some(stat) if stat.kind == Kind::Link => self.resolved(&path),
            _ => path,
        }
    }

    fn resolved(&self, path: &str) -> String {
        match self.sysroot.real_path(path) {
            Reading::Present { value, .. } => value,
            _ => path.to_owned(),
        }
    }

    /// The copy that lies at a path.
    fn find(&self, path: &str) -> Option<&LibraryFile> {
        let index = self.by_real_path.get(&self.real_path(path))?;
        self.files.get(*index)
    }

    /// Whether a library is the very one that its user was put together with: both are as their distributions recorded
    /// them, and these are one, or the user's (or one that it requires) asks for this version and no other. What the
    /// user needs of it is not looked up then.
    pub(super) fn is_pinned(&self, user: &str, got: &str) -> bool {
        let python = self.environment.python;
        let Some(copy) = self.find(got) else {
            return false;
        };
        let (user, got) = (self.told_as(user), copy.path.as_str());
        let (Some(of_user), Some(of_copy)) = (as_recorded(python, &user), as_recorded(python, got))
        else {
            return false;
        };
        if of_user.metadata == of_copy.metadata {
            return true;
        }
        let told = copy.versions.first().map(|(_, version)| version);
        let recorded = Version::parse(&of_copy.version);
        if !told
            .zip(recorded.as_ref())
            .is_some_and(|(told, recorded)| agree(told, recorded))
        {
            return false;
        }
        let required = of_user
            .requires
            .iter()
            .filter_map(|line| python.installed(required_name(line)));
        required
            .chain([of_user])
            .any(|by| by.requires.iter().any(|line| pins(line, of_copy)))
    }

    /// Remembers that something gets the copy that a link leads to.
    pub(super) fn mark_used(&mut self, link: &Link) {
        // What the loader does not find and the environment has, packages load by its path.
        let by_package = link.beside.as_ref().filter(|_| link.got.is_none());
        let Some(path) = link.got.as_ref().or(by_package) else {
            return;
        };
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
            && let Reading::Present { value: file, .. } = self.sysroot.file(&path)
            && let Some(told) =
                recipes::identify_quickly(&Pages::new(file), soname.as_deref(), file_name(&real))
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
        let owner = self.owner(&path, &name, versions.first().map(|(_, v)| v));
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
            // A framework that carries a copy has a version of its own.
            if let Some((name, version)) = file.owner.value().and_then(|o| o.split_once(' '))
                && distribution_stem(&file.name).is_some_and(|stem| name.contains(stem))
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

    /// The distribution that brought a file: (1) one that recorded it, (2) where none has a list of files, one of
    /// NVIDIA's by the library's name. Of several (`-cu12` and `-cu13` share folders) the one whose version it has.
    fn owner(&self, path: &str, name: &str, version: Option<&Version>) -> Reading<String> {
        let python = self.environment.python;
        let mut candidates: Vec<&Installed> = python.owners(path).collect();
        if candidates.is_empty() {
            let by_name = python.distributions.items().iter();
            candidates = by_name
                .filter(|d| path.starts_with(&format!("{}/", d.site)) && !d.files.is_present())
                .filter(|d| is_of(d, name))
                .collect();
        }
        let of_this_version = candidates.iter().find(|d| {
            let own = Version::parse(&d.version);
            own.zip(version)
                .is_some_and(|(own, version)| agree(version, &own))
        });
        match of_this_version.or(candidates.first()) {
            Some(d) => Reading::present(format!("{} {}", d.name, d.version), d.metadata.as_str()),
            None => Reading::absent("records of the environment's distributions"),
        }
    }
}

/// The one distribution that recorded a file, where the file has the size that it recorded.
fn as_recorded<'a>(python: &'a PythonFacts, path: &'a str) -> Option<&'a Installed> {
    let mut owners = python.owners(path);
    let owner = owners.next()?;
    let is_changed = owner.changed.iter().any(|file| file.path == path);
    (!is_changed && owners.next().is_none()).then_some(owner)
}

/// The name in a requirement: `nvidia-nccl-cu12` of `nvidia-nccl-cu12==2.21.5; platform_system == "Linux"`.
fn required_name(line: &str) -> &str {
    let end = line
        .find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c))
        .unwrap_or(line.len());
    line.get(..end).unwrap_or_default()
}

/// Whether a requirement asks for the version of a distribution and no other: `==12.4.5.8`, `==13.1.0.*`.
fn pins(line: &str, distribution: &Installed) -> bool {
    let wanted = line.split(';').next().unwrap_or(line);
    let version = wanted
        .split_once("==")
        .and_then(|(_, version)| Version::parse(version));
    required_name(line) == distribution.name
        && version
            .zip(Version::parse(&distribution.version))
            .is_some_and(|(wanted, has)| wanted.len() >= 2 && agree(&wanted, &has))
}

/// Whether a distribution is the one that NVIDIA ships a library in.
fn is_of(distribution: &Installed, library: &str) -> bool {
    let name = &distribution.name;
    let name = name.strip_prefix("nvidia-").unwrap_or(name);
    distribution_stem(library)
        .and_then(|stem| name.strip_prefix(stem))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("-cu"))
}

/// Whether a file name in a folder is one to look at: not the archive or the second build (`.alt.so`) beside it.
fn is_wanted(name: &str) -> bool {
    known(name).is_some()
}

/// A library's version by its own file: its code, else its full name.
pub(super) fn own_version(sysroot: &Sysroot, real: &str) -> Option<Version> {
    let Reading::Present { value: file, .. } = sysroot.file(real) else {
        return None;
    };
    let file = Pages::new(file);
    let soname = loading(&file)?.soname;
    recipes::identify_quickly(&file, soname.as_deref(), file_name(real))
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
