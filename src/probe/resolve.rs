//! Which files the dynamic loader would take for what a file needs: glibc's search, step by step, without running it.
//!
//! For a name without a slash: what is loaded already under that name; the RPATH of the object that needs it and of
//! those that loaded it (objects without RUNPATH only) and of the program; `LD_LIBRARY_PATH`; the RUNPATH of the object
//! alone; `/etc/ld.so.cache`; the default folders. In each folder the glibc-hwcaps folders of this processor come first,
//! up to glibc 2.36 the older `tls/haswell/x86_64` ones too. Source: `ld.so(8)`, and what `LD_DEBUG=libs` of glibc 2.36
//! says; the tests hold it against the real loader. musl's loader searches otherwise and is not modelled.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::facts::Reading;
use crate::read::elf::{self, Shape};
use crate::read::ldcache::{self, CacheEntry};
use crate::read::needs::{self, Loading};
use crate::read::pages::Pages;
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};
use crate::version::Version;

/// The most of a cache file that is read, in bytes.
const CACHE_CAP: usize = 16 << 20;
/// The most objects that one program loads; TensorFlow has 120.
const MAX_OBJECTS: usize = 2000;
/// The last glibc that searches the older folders of processor features.
const LAST_LEGACY: (u32, u32) = (2, 36);
/// Bit of a cache entry's hwcap: it lies in a glibc-hwcaps folder, by its index in the cache's list of names.
const HWCAPS_FOLDER: u64 = 1 << 62;

/// What the caller's environment says to the loader.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `LD_LIBRARY_PATH` as it is set.
    pub library_path: Option<String>,
    /// `LD_PRELOAD` as it is set.
    pub preload: Option<String>,
    /// The working folder, for relative search paths.
    pub working_folder: Option<String>,
}

/// One machine's loader.
#[derive(Debug)]
pub struct Resolver<'a> {
    sysroot: &'a Sysroot,
    library_path: Vec<String>,
    preload: Vec<String>,
    working_folder: Option<String>,
    cache: Option<Vec<u8>>,
    /// Names of the cache's glibc-hwcaps folders.
    cache_hwcaps: Vec<String>,
    /// Folders tried before a search folder itself, for x86-64.
    subfolders: Vec<String>,
    /// Files that were read before: a folder of libraries needs the same ones again and again.
    read: RefCell<BTreeMap<String, Rc<Candidate>>>,
    /// The folders that are tried for a search folder.
    folders: RefCell<BTreeMap<String, Rc<Vec<String>>>>,
    /// What the cache has for a name.
    cached: RefCell<BTreeMap<String, Rc<Vec<CacheEntry>>>>,
}

/// What lies at a path that the loader tries.
#[derive(Debug)]
enum Candidate {
    /// Nothing that can be opened: the search goes on.
    Nothing,
    /// A library of another machine: the search goes on.
    OtherMachine,
    /// No library at all: the loader stops there.
    Broken(String),
    /// One that it loads.
    Library(Library),
}

/// Path, what lies there, and how it was found.
type Hit = (String, Rc<Candidate>, String);

#[derive(Debug)]
struct Library {
    real_path: String,
    identity: (u64, u64),
    loading: Loading,
}

/// An object of a process, in the order in which they are loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The path by which it was found.
    pub path: String,
    /// The names that it is known by.
    pub names: Vec<String>,
    /// How it was found: `LD_LIBRARY_PATH`, `RUNPATH`, `ld.so.cache` ...
    pub by: String,
    rpath: Option<String>,
    runpath: Option<String>,
    no_default_folders: bool,
    loader: Option<usize>,
    identity: (u64, u64),
    needed: Vec<String>,
}

/// A need and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// Index of the object that needs it.
    pub object: usize,
    /// The name.
    pub soname: String,
    /// Index of the object that it got.
    pub found: Option<usize>,
    /// How, or why not.
    pub by: String,
}

/// Everything that a file brings into a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Closure {
    /// The objects, the file itself first.
    pub objects: Vec<Object>,
    /// All needs, in the loader's order.
    pub needs: Vec<Need>,
    arch: String,
}

impl<'a> Resolver<'a> {
    /// Reads what the loader reads.
    pub fn new(sysroot: &'a Sysroot, environment: &Environment) -> Self {
        let cache = match sysroot.bytes("/etc/ld.so.cache", CACHE_CAP) {
            Reading::Present { value, .. } => Some(value),
            _ => None,
        };
        let mut preload: Vec<String> = environment
            .preload
            .as_deref()
            .unwrap_or_default()
            .split([' ', ':'])
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        if let Some(text) = sysroot.text("/etc/ld.so.preload").value() {
            let words = text.lines().filter_map(|line| line.split('#').next());
            preload.extend(
                words
                    .flat_map(|line| line.split([' ', '\t', ':', ',']))
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned),
            );
        }
        let library_path = environment
            .library_path
            .as_deref()
            .filter(|path| !path.is_empty());
        let mut resolver = Self {
            sysroot,
            library_path: library_path
                .map(|path| path.split([':', ';']).map(str::to_owned).collect())
                .unwrap_or_default(),
            preload,
            working_folder: environment.working_folder.clone(),
            cache_hwcaps: cache
                .as_deref()
                .map(ldcache::hwcaps_names)
                .unwrap_or_default(),
            cache,
            subfolders: hwcaps()
                .iter()
                .map(|level| format!("glibc-hwcaps/{level}"))
                .collect(),
            read: RefCell::default(),
            folders: RefCell::default(),
            cached: RefCell::default(),
        };
        if resolver
            .glibc()
            .is_some_and(|v| (v.major(), v.minor()) <= LAST_LEGACY)
        {
            resolver.subfolders.extend(legacy_folders());
        }
        resolver
    }

    /// The version of the C library that programs of this machine get.
    pub fn glibc(&self) -> Option<Version> {
        let dirs = default_folders(std::env::consts::ARCH);
        dirs.iter()
            .find_map(|dir| match self.sysroot.file(&join(dir, "libc.so.6")) {
                Reading::Present { value, .. } => {
                    elf::highest_version_definition(&Pages::new(value), "GLIBC_")
                }
                Reading::Absent { .. } | Reading::Unreadable { .. } => None,
            })
    }

    /// What a file brings into a process when it is started, or loaded first. `None` where it is no ELF file.
    pub fn closure(&self, path: &str) -> Option<Closure> {
        let file = self.sysroot.file(path);
        let file = file.value()?;
        let Shape::Elf(elf) = elf::identify(file) else {
            return None;
        };
        let loading = needs::loading(file)?;
        let identity = self
            .sysroot
            .stat(path)
            .value()
            .map_or((0, 0), |stat| stat.identity);
        let real = self.real(path);
        let mut names = vec![path.to_owned()];
        names.extend(loading.soname.clone());
        let program = Object {
            path: real,
            names,
            by: "the file itself".to_owned(),
            rpath: loading.rpath,
            runpath: loading.runpath,
            no_default_folders: loading.no_default_folders,
            loader: None,
            identity,
            needed: loading.needed,
        };
        Some(self.started(program, &elf.arch))
    }

    /// A process whose program is not known, or brings nothing that matters: it searches where every program does.
    pub fn any_program(&self, arch: &str) -> Closure {
        let program = Object {
            path: String::new(),
            names: Vec::new(),
            by: "a program".to_owned(),
            rpath: None,
            runpath: None,
            no_default_folders: false,
            loader: None,
            identity: (0, 0),
            needed: Vec::new(),
        };
        self.started(program, arch)
    }

    fn started(&self, program: Object, arch: &str) -> Closure {
        let mut closure = Closure {
            objects: vec![program],
            needs: Vec::new(),
            arch: arch.to_owned(),
        };
        for name in &self.preload {
            let need = self.load(&mut closure.objects, 0, name, arch);
            if let (Some(index), _) = need
                && let Some(object) = closure.objects.get_mut(index)
                && object.loader == Some(0)
            {
                "LD_PRELOAD".clone_into(&mut object.by);
            }
        }
        self.follow(&mut closure, 0);
        closure
    }

    /// What an object of a process gets when it opens a library by name or path (`dlopen`): the index of it, with all
    /// that it needs loaded behind it.
    pub fn open(&self, closure: &mut Closure, by: usize, name: &str) -> Option<usize> {
        let before = closure.objects.len();
        let arch = closure.arch.clone();
        let (found, how) = self.load(&mut closure.objects, by, name, &arch);
        closure.needs.push(Need {
            object: by,
            soname: name.to_owned(),
            found,
            by: how,
        });
        self.follow(closure, before);
        found
    }

    /// Loads what the objects from this one on need, and what those need.
    fn follow(&self, closure: &mut Closure, mut next: usize) {
        while let Some(object) = closure.objects.get(next) {
            for soname in object.needed.clone() {
                let (found, by) = self.load(&mut closure.objects, next, &soname, &closure.arch);
                closure.needs.push(Need {
                    object: next,
                    soname,
                    found,
                    by,
                });
            }
            next += 1;
        }
    }

    fn real(&self, path: &str) -> String {
        match self.sysroot.real_path(path) {
            Reading::Present { value, .. } => value,
            _ => path.to_owned(),
        }
    }

    /// Loads a name for an object: the index of what it got, and how.
    fn load(
        &self,
        objects: &mut Vec<Object>,
        by: usize,
        name: &str,
        arch: &str,
    ) -> (Option<usize>, String) {
        if let Some(index) = objects
            .iter()
            .position(|o| o.names.iter().any(|known| known == name))
        {
            let how = objects
                .get(index)
                .map_or(String::new(), |object| object.by.clone());
            return (Some(index), how);
        }
        let (path, library, how) = match self.find(objects, by, name, arch) {
            Ok(found) => found,
            Err(why) => return (None, why),
        };
        let Candidate::Library(library) = &*library else {
            return (None, how);
        };
        // The same file under another name is the same object.
        if library.identity != (0, 0)
            && let Some(index) = objects.iter().position(|o| o.identity == library.identity)
        {
            if let Some(object) = objects.get_mut(index) {
                object.names.push(name.to_owned());
            }
            return (Some(index), how);
        }
        if objects.len() >= MAX_OBJECTS {
            return (None, "not followed: too many libraries".to_owned());
        }
        let mut names = vec![name.to_owned(), path.clone()];
        names.extend(library.loading.soname.clone());
        objects.push(Object {
            path,
            names,
            by: how.clone(),
            rpath: library.loading.rpath.clone(),
            runpath: library.loading.runpath.clone(),
            no_default_folders: library.loading.no_default_folders,
            loader: Some(by),
            identity: library.identity,
            needed: library.loading.needed.clone(),
        });
        (Some(objects.len() - 1), how)
    }

    /// Where the search ends: a library, or in words why there is none.
    fn find(&self, objects: &[Object], by: usize, name: &str, arch: &str) -> Result<Hit, String> {
        let Some(object) = objects.get(by) else {
            return Err("not found".to_owned());
        };
        if name.contains('/') {
            let path = self.expand(name, object, arch);
            let candidate = self.candidate(&path, arch);
            return match &*candidate {
                Candidate::Library(_) => Ok((path, candidate, "path".to_owned())),
                Candidate::Broken(why) => Err(format!("{path} is {why}")),
                Candidate::Nothing => Err("not found".to_owned()),
                Candidate::OtherMachine => Err(format!("{path} is for another machine")),
            };
        }
        let mut other_machine = None;
        let mut try_folder = |dir: &str, how: &str| -> Option<Result<Hit, String>> {
            if dir.is_empty() {
                return None;
            }
            for dir in self.tried_for(dir).iter() {
                let path = join(dir, name);
                let candidate = self.candidate(&path, arch);
                match &*candidate {
                    Candidate::Library(_) => return Some(Ok((path, candidate, how.to_owned()))),
                    // The loader gives up at a file that is no library, whatever lies further on.
                    Candidate::Broken(why) => return Some(Err(format!("{path} ({how}) is {why}"))),
                    Candidate::OtherMachine => other_machine = Some(path),
                    Candidate::Nothing => {}
                }
            }
            None
        };
        if object.runpath.is_none() {
            let mut chain = Some(by);
            let mut steps = 0;
            let mut saw_program = false;
            while let Some(asker) = chain.and_then(|index| objects.get(index)) {
                saw_program |= chain == Some(0);
                if let Some(rpath) = asker.rpath.as_deref().filter(|_| asker.runpath.is_none()) {
                    let how = if chain == Some(by) {
                        "RPATH".to_owned()
                    } else {
                        format!("RPATH of {}", file_name(&asker.path))
                    };
                    for dir in self.search_path(rpath, asker, arch) {
                        if let Some(found) = try_folder(&dir, &how) {
                            return found;
                        }
                    }
                }
                chain = asker.loader;
                steps += 1;
                if steps > MAX_OBJECTS {
                    break;
                }
            }
            if let Some(program) = objects
                .first()
                .filter(|program| !saw_program && program.runpath.is_none())
                && let Some(rpath) = program.rpath.as_deref()
            {
                for dir in self.search_path(rpath, program, arch) {
                    if let Some(found) = try_folder(&dir, "RPATH of the program") {
                        return found;
                    }
                }
            }
        }
        for dir in &self.library_path {
            let dir = self.expand(dir, object, arch);
            if let Some(found) = try_folder(&self.absolute(&dir), "LD_LIBRARY_PATH") {
                return found;
            }
        }
        if let Some(runpath) = &object.runpath {
            for dir in self.search_path(runpath, object, arch) {
                if let Some(found) = try_folder(&dir, "RUNPATH") {
                    return found;
                }
            }
        }
        let defaults = default_folders(arch);
        if let Some(path) = self.in_cache(name, arch)
            && !(object.no_default_folders
                && defaults
                    .iter()
                    .any(|dir| path.starts_with(&format!("{dir}/"))))
        {
            let candidate = self.candidate(&path, arch);
            if matches!(&*candidate, Candidate::Library(_)) {
                return Ok((path, candidate, "ld.so.cache".to_owned()));
            }
        }
        if !object.no_default_folders {
            for dir in &defaults {
                if let Some(found) = try_folder(dir, "default folder") {
                    return found;
                }
            }
        }
        Err(other_machine.map_or("not found".to_owned(), |path| {
            format!("not found ({path} is for another machine)")
        }))
    }

    /// The folders that are tried for a search folder: those of this processor in it that are there, and itself.
    fn tried_for(&self, dir: &str) -> Rc<Vec<String>> {
        if let Some(known) = self.folders.borrow().get(dir) {
            return Rc::clone(known);
        }
        let mut tried = Vec::new();
        if self.sysroot.exists(dir) {
            let subfolders = self.subfolders.iter().map(|sub| join(dir, sub));
            tried.extend(subfolders.filter(|sub| self.sysroot.exists(sub)));
            tried.push(dir.to_owned());
        }
        let tried = Rc::new(tried);
        self.folders
            .borrow_mut()
            .insert(dir.to_owned(), Rc::clone(&tried));
        tried
    }

    /// The folders of an RPATH or RUNPATH.
    fn search_path(&self, list: &str, object: &Object, arch: &str) -> Vec<String> {
        list.split(':')
            .map(|dir| self.absolute(&self.expand(dir, object, arch)))
            .collect()
    }

    /// A search folder as a path from the root; one that is relative counts from the working folder, an empty one is it.
    fn absolute(&self, dir: &str) -> String {
        if dir.starts_with('/') {
            return dir.to_owned();
        }
        match &self.working_folder {
            Some(working) if dir.is_empty() => working.clone(),
            Some(working) => join(working, dir),
            None => String::new(),
        }
    }

    /// Replaces `$ORIGIN`, `$LIB` and `$PLATFORM`, with or without braces.
    fn expand(&self, text: &str, object: &Object, arch: &str) -> String {
        if !text.contains('$') {
            return text.to_owned();
        }
        let lib = if text.contains("LIB") {
            let multiarch = format!("/lib/{arch}-linux-gnu");
            if self.sysroot.exists(&multiarch) {
                format!("lib/{arch}-linux-gnu")
            } else {
                "lib64".to_owned()
            }
        } else {
            String::new()
        };
        let origin = parent(&object.path).to_owned();
        let platform = if arch == "x86_64" { platform() } else { arch };
        let mut done = String::new();
        let mut rest = text;
        'text: while let Some(at) = rest.find('$') {
            let (before, after) = rest.split_at(at);
            done.push_str(before);
            for (name, value) in [
                ("ORIGIN", origin.as_str()),
                ("LIB", lib.as_str()),
                ("PLATFORM", platform),
            ] {
                let bare = after.strip_prefix('$').and_then(|a| a.strip_prefix(name));
                let braced = after
                    .strip_prefix("${")
                    .and_then(|a| a.strip_prefix(name))
                    .and_then(|a| a.strip_prefix('}'));
                let is_whole =
                    |a: &str| !a.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
                if let Some(after) = braced.or(bare.filter(|a| is_whole(a))) {
                    done.push_str(value);
                    rest = after;
                    continue 'text;
                }
            }
            done.push('$');
            rest = after.strip_prefix('$').unwrap_or_default();
        }
        done + rest
    }

    /// The file that the cache has for a name: the best glibc-hwcaps folder of this processor, else the plain entry.
    fn in_cache(&self, name: &str, arch: &str) -> Option<String> {
        let bytes = self.cache.as_deref()?;
        let known = self.cached.borrow().get(name).cloned();
        let entries = known.unwrap_or_else(|| {
            let entries = Rc::new(ldcache::parse(bytes, &[name]).unwrap_or_default());
            self.cached
                .borrow_mut()
                .insert(name.to_owned(), Rc::clone(&entries));
            entries
        });
        let levels = hwcaps();
        let rank = |entry: &CacheEntry| {
            if entry.hwcap == 0 {
                return Some(usize::MAX);
            }
            let index = u32::try_from(entry.hwcap.checked_sub(HWCAPS_FOLDER)?).ok()?;
            let folder = self.cache_hwcaps.get(usize::try_from(index).ok()?)?;
            levels.iter().position(|level| level == folder)
        };
        entries
            .iter()
            .filter(|entry| ldcache::is_for_arch(entry.flags, arch))
            .filter_map(|entry| Some((rank(entry)?, entry)))
            .min_by_key(|(rank, _)| *rank)
            .map(|(_, entry)| entry.path.clone())
    }

    fn candidate(&self, path: &str, arch: &str) -> Rc<Candidate> {
        if let Some(known) = self.read.borrow().get(path) {
            return Rc::clone(known);
        }
        let candidate = Rc::new(self.read_candidate(path, arch));
        self.read
            .borrow_mut()
            .insert(path.to_owned(), Rc::clone(&candidate));
        candidate
    }

    fn read_candidate(&self, path: &str, arch: &str) -> Candidate {
        let file = match self.sysroot.file(path) {
            Reading::Present { value, .. } => Pages::new(value),
            Reading::Absent { .. } | Reading::Unreadable { .. } => {
                // A folder can be opened, and the loader stops where it cannot be read.
                let stat = self.sysroot.stat(path);
                let is_folder = stat.value().is_some_and(|stat| stat.kind == Kind::Folder);
                return if is_folder {
                    Candidate::Broken("a folder".to_owned())
                } else {
                    Candidate::Nothing
                };
            }
        };
        match elf::identify(&file) {
            Shape::Elf(elf) if elf.arch != arch => Candidate::OtherMachine,
            Shape::Elf(_) => Candidate::Library(Library {
                real_path: self.real(path),
                identity: self
                    .sysroot
                    .stat(path)
                    .value()
                    .map_or((0, 0), |stat| stat.identity),
                loading: needs::loading(&file).unwrap_or_default(),
            }),
            Shape::Empty => Candidate::Broken("an empty file".to_owned()),
            Shape::Truncated(why) => Candidate::Broken(format!("cut off: {why}")),
            Shape::NotElf(words) => Candidate::Broken(words),
            Shape::Unreadable(_) => Candidate::Nothing,
        }
    }

    /// Where a library that the loader takes really lies, links followed.
    pub fn real_path_of(&self, path: &str, arch: &str) -> String {
        match &*self.candidate(path, arch) {
            Candidate::Library(library) => library.real_path.clone(),
            _ => path.to_owned(),
        }
    }
}

/// The folders that glibc of Debian and of Fedora search when all else fails; on each, those that exist.
fn default_folders(arch: &str) -> [String; 6] {
    let triplet = format!("{arch}-linux-gnu");
    [
        format!("/lib/{triplet}"),
        format!("/usr/lib/{triplet}"),
        "/lib64".to_owned(),
        "/usr/lib64".to_owned(),
        "/lib".to_owned(),
        "/usr/lib".to_owned(),
    ]
}

/// The glibc-hwcaps levels of this processor, best first.
fn hwcaps() -> &'static [&'static str] {
    #[cfg(target_arch = "x86_64")]
    {
        let v2 = is_x86_feature_detected!("sse4.2")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("ssse3")
            && is_x86_feature_detected!("cmpxchg16b");
        let v3 = v2
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("movbe");
        let v4 = v3 && has_avx512();
        match (v2, v3, v4) {
            (_, _, true) => &["x86-64-v4", "x86-64-v3", "x86-64-v2"],
            (_, true, _) => &["x86-64-v3", "x86-64-v2"],
            (true, ..) => &["x86-64-v2"],
            _ => &[],
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        &[]
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// What the loader calls this processor.
fn platform() -> &'static str {
    if hwcaps().contains(&"x86-64-v3") {
        "haswell"
    } else {
        "x86_64"
    }
}

/// The folders of older glibc for this processor: every choice of `tls`, the platform, AVX-512 and `x86_64`, in that
/// order, those with the earlier words first.
fn legacy_folders() -> Vec<String> {
    if !cfg!(target_arch = "x86_64") {
        return Vec::new();
    }
    let mut words = vec!["tls"];
    if platform() == "haswell" {
        words.push("haswell");
    }
    if hwcaps().contains(&"x86-64-v4") {
        words.push("avx512_1");
    }
    words.push("x86_64");
    let choices = 1u32 << words.len();
    (1..choices)
        .rev()
        .map(|choice| {
            let chosen = words
                .iter()
                .rev()
                .enumerate()
                .filter(|(bit, _)| choice & (1 << bit) != 0);
            let mut chosen: Vec<&str> = chosen.map(|(_, word)| *word).collect();
            chosen.reverse();
            chosen.join("/")
        })
        .collect()
}
