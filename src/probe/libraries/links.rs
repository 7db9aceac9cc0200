//! Who gets which copy: the needs of every object in a process, and what the copies lack of what is asked of them.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::copies::Copies;
use super::entries::Entry;
use super::known;
use crate::facts::{ANY_PROGRAM, Link, Reading};
use crate::probe::resolve::{Closure, Need, Resolver};
use crate::read::elf;
use crate::read::needs::{
    Undefined, VersionNeed, undefined_symbols_of, version_definitions, version_needs,
};
use crate::read::pages::Pages;
use crate::read::window::find;
use crate::sysroot::{RegularFile, Sysroot, file_name, join, parent};
use crate::version::Version;

/// The most lacking symbols that are listed of one library for one user.
const MAX_LACKING: usize = 8;

/// How a library was got that its package looked for in a toolkit's folder.
const TOOLKIT: &str = "CUDA_PATH or CUDA_HOME";

/// The parts of a library that another opens by name while it runs, by the texts in the files of cuDNN 8.9 to 9.28.
/// The last list has those that only some versions open: where the file names them.
const PARTS: &[(&str, u32, &[&str], &[&str])] = &[
    (
        "libcudnn",
        8,
        &[
            "libcudnn_ops_infer",
            "libcudnn_ops_train",
            "libcudnn_cnn_infer",
            "libcudnn_cnn_train",
            "libcudnn_adv_infer",
            "libcudnn_adv_train",
        ],
        &[],
    ),
    (
        "libcudnn",
        9,
        &[
            "libcudnn_graph",
            "libcudnn_ops",
            "libcudnn_cnn",
            "libcudnn_adv",
        ],
        &[],
    ),
    (
        "libcudnn_graph",
        9,
        &[
            "libcudnn_engines_precompiled",
            "libcudnn_engines_runtime_compiled",
            "libcudnn_heuristic",
        ],
        &["libcudnn_engines_tensor_ir", "libcudnn_ext"],
    ),
];

/// Symbols that carry no version node, by what their names begin with: NCCL, cuSPARSELt and cuFile have none.
const WITHOUT_NODE: &[(&str, &str)] = &[
    ("libnccl", "nccl"),
    ("libcusparseLt", "cusparseLt"),
    ("libcufile", "cuFile"),
];

/// The ties of all processes that were followed.
pub(super) struct Links<'a> {
    sysroot: &'a Sysroot,
    resolver: &'a Resolver<'a>,
    arch: &'a str,
    noted: Vec<Link>,
    /// The process of an entry, with what it loaded, by the entry's path.
    processes: BTreeMap<String, Closure>,
    /// What a file lacks of what another needs, by user and provider.
    lacking: BTreeMap<(String, String), Vec<String>>,
    /// What a library needs of the others, by its path.
    asked: BTreeMap<String, Rc<Asked>>,
    /// Files whose tables were looked into.
    files: BTreeMap<String, Rc<Pages<RegularFile>>>,
}

/// What a library needs of those that this layer is about.
#[derive(Default)]
struct Asked {
    nodes: Vec<VersionNeed>,
    symbols: Vec<Undefined>,
}

impl<'a> Links<'a> {
    pub(super) fn new(sysroot: &'a Sysroot, resolver: &'a Resolver<'a>, arch: &'a str) -> Self {
        Self {
            sysroot,
            resolver,
            arch,
            noted: Vec::new(),
            processes: BTreeMap::new(),
            lacking: BTreeMap::new(),
            asked: BTreeMap::new(),
            files: BTreeMap::new(),
        }
    }

    /// Follows an entry in a process of its own, behind the entry that it comes after.
    pub(super) fn follow(&mut self, entry: &Entry, all: &[Entry], copies: &Copies<'_>) {
        let mut process = match &entry.after {
            Some(path) => {
                if !self.processes.contains_key(path)
                    && let Some(before) = all.iter().find(|e| e.path == *path && e.after.is_none())
                {
                    self.follow(before, all, copies);
                }
                self.processes.get(path).cloned()
            }
            None => None,
        }
        .unwrap_or_else(|| self.resolver.any_program(self.arch));
        let known_before = process.needs.len();
        for path in &entry.first {
            self.resolver.open(&mut process, 0, path);
        }
        let library = self.resolver.open(&mut process, 0, &entry.path);
        let mut by_name = Vec::new();
        if let Some(library) = library {
            for soname in &entry.opens {
                by_name.push(process.needs.len());
                self.resolver.open(&mut process, library, soname);
            }
        }
        self.open_what_packages_load(&mut process, known_before, copies, &entry.toolkit);
        let mut opened = self.open_parts(&mut process);
        opened.extend(by_name);
        let after = entry
            .after
            .as_ref()
            .and_then(|path| all.iter().find(|e| e.path == *path))
            .map(|e| e.consumer.clone());
        self.note(
            &entry.consumer,
            after.as_ref(),
            &process,
            known_before,
            &opened,
            copies,
        );
        self.processes.insert(entry.path.clone(), process);
    }

    /// Follows a library that any program of this machine may open by name.
    pub(super) fn follow_name(&mut self, soname: &str, copies: &Copies<'_>) {
        let mut process = self.resolver.any_program(self.arch);
        self.resolver.open(&mut process, 0, soname);
        let mut opened = self.open_parts(&mut process);
        opened.push(0);
        self.note(ANY_PROGRAM, None, &process, 0, &opened, copies);
    }

    /// Opens by path what the loader does not find and the environment has: packages load such libraries before
    /// (`onnxruntime.preload_dlls`, torch where its own library cannot be loaded), or another package has.
    fn open_what_packages_load(
        &self,
        process: &mut Closure,
        from: usize,
        copies: &Copies<'_>,
        toolkit: &[String],
    ) {
        let mut next = from;
        while let Some(need) = process.needs.get(next) {
            next += 1;
            if need.found.is_some() || known(file_name(&need.soname)).is_none() {
                continue;
            }
            let brought = copies.brought_as(file_name(&need.soname));
            if let Some(copy) = brought.filter(|copy| copy.kind.is_usable()) {
                self.resolver.open(process, 0, &copy.path);
                continue;
            }
            let soname = file_name(&need.soname).to_owned();
            let mut paths = toolkit.iter().map(|dir| join(dir, &soname));
            let path = paths.find(|path| self.sysroot.exists(path));
            let found = path.and_then(|path| self.resolver.open(process, 0, &path));
            if let (Some(found), Some(need)) = (found, process.needs.get_mut(next - 1)) {
                need.found = Some(found);
                TOOLKIT.clone_into(&mut need.by);
            }
        }
    }

    /// Opens what the objects of a process open by name; the indices of the needs that came by that.
    fn open_parts(&self, process: &mut Closure) -> Vec<usize> {
        let mut opened = Vec::new();
        let mut next = 0;
        while let Some(object) = process.objects.get(next) {
            let path = object.path.clone();
            for (soname, is_sure) in self.parts_of(&path) {
                let before = process.needs.len();
                if is_sure {
                    self.resolver.open(process, next, &soname);
                    opened.push(before);
                    continue;
                }
                let mut tried = process.clone();
                let found = self.resolver.open(&mut tried, next, &soname);
                let beside = found
                    .and_then(|index| tried.objects.get(index))
                    .is_some_and(|part| parent(&part.path) == parent(&path));
                if beside || (found.is_some() && self.names(&path, &soname)) {
                    *process = tried;
                    opened.push(before);
                }
            }
            next += 1;
        }
        opened
    }

    /// What a library opens by name, and whether every version of it does.
    fn parts_of(&self, path: &str) -> Vec<(String, bool)> {
        let name = file_name(path);
        let Some(library) = known(name) else {
            return Vec::new();
        };
        if library == "libnvrtc" {
            return self
                .builtins_of(path)
                .map(|soname| (soname, true))
                .into_iter()
                .collect();
        }
        let major = name
            .split_once(".so.")
            .and_then(|(_, version)| Version::parse(version))
            .map(|version| version.major());
        let row = PARTS
            .iter()
            .find(|(opener, of, ..)| *opener == library && Some(*of) == major);
        let Some((_, major, always, sometimes)) = row else {
            return Vec::new();
        };
        let soname = |part: &&str| format!("{part}.so.{major}");
        always
            .iter()
            .map(|part| (soname(part), true))
            .chain(sometimes.iter().map(|part| (soname(part), false)))
            .collect()
    }

    /// The builtins that an NVRTC opens: of its own major and minor version since CUDA 11, by the bare name before.
    fn builtins_of(&self, path: &str) -> Option<String> {
        let real = self.resolver.real_path_of(path, self.arch);
        let version = super::copies::own_version(self.sysroot, &real)?;
        Some(if version.major() < 11 {
            "libnvrtc-builtins.so".to_owned()
        } else {
            format!("libnvrtc-builtins.so.{}", version.major_minor())
        })
    }

    /// Whether a file holds the name of a part, with or without its number.
    fn names(&self, path: &str, soname: &str) -> bool {
        let stem = soname.split_once(".so").map_or(soname, |(stem, _)| stem);
        let file = self.sysroot.file(path);
        let Some(file) = file.value() else {
            return false;
        };
        elf::section(file, ".rodata")
            .is_some_and(|range| find(file, range, format!("{stem}.so").as_bytes()).is_some())
    }

    /// Notes the needs of a process from one on, those of libraries that this layer is about.
    fn note(
        &mut self,
        consumer: &str,
        after: Option<&String>,
        process: &Closure,
        from: usize,
        opened: &[usize],
        copies: &Copies<'_>,
    ) {
        for (index, need) in process.needs.iter().enumerate().skip(from) {
            // What a package opens by path is no question to the loader.
            if known(&need.soname).is_none() {
                continue;
            }
            let path = |index: usize| process.objects.get(index).map(|o| o.path.clone());
            let user = path(need.object).unwrap_or_default();
            let got = need.found.and_then(path);
            let seen = |link: &Link| {
                link.user == user
                    && link.soname == need.soname
                    && link.got == got
                    && !user.is_empty()
            };
            if self.noted.iter().any(seen) {
                continue;
            }
            let lacking = match &got {
                // Of what it opens by name it asks for functions one by one while it runs.
                Some(got)
                    if !user.is_empty()
                        && !opened.contains(&index)
                        && !copies.is_pinned(&user, got) =>
                {
                    self.lacking(process, need, &user, got)
                }
                _ => Vec::new(),
            };
            self.noted.push(Link {
                consumer: consumer.to_owned(),
                after: after.cloned(),
                user,
                soname: need.soname.clone(),
                opened: opened.contains(&index),
                got,
                by: need.by.clone(),
                beside: None,
                lacking,
            });
        }
    }

    /// What a library needs of another and does not find there.
    fn lacking(&mut self, process: &Closure, need: &Need, user: &str, got: &str) -> Vec<String> {
        let key = (user.to_owned(), got.to_owned());
        if let Some(known) = self.lacking.get(&key) {
            return known.clone();
        }
        let lacking = self
            .read_lacking(process, need, user, got)
            .unwrap_or_default();
        self.lacking.insert(key, lacking.clone());
        lacking
    }

    fn file(&mut self, path: &str) -> Option<Rc<Pages<RegularFile>>> {
        if let Some(file) = self.files.get(path) {
            return Some(Rc::clone(file));
        }
        let Reading::Present { value, .. } = self.sysroot.file(path) else {
            return None;
        };
        let file = Rc::new(Pages::new(value));
        self.files.insert(path.to_owned(), Rc::clone(&file));
        Some(file)
    }

    /// What a library needs of the others. Names without a version node are read only where `all` is set: a large library
    /// has thousands of its own.
    fn asked(&mut self, user: &str, all: bool) -> Option<Rc<Asked>> {
        let key = format!("{user} {all}");
        if let Some(asked) = self.asked.get(&key) {
            return Some(Rc::clone(asked));
        }
        let file = self.file(user)?;
        let asked = Rc::new(Asked {
            nodes: version_needs(&*file)
                .into_iter()
                .filter(|need| known(&need.library).is_some())
                .collect(),
            symbols: undefined_symbols_of(&*file, |library| {
                library.map_or(all, |library| known(library).is_some())
            }),
        });
        self.asked.insert(key, Rc::clone(&asked));
        Some(asked)
    }

    fn read_lacking(
        &mut self,
        process: &Closure,
        need: &Need,
        user: &str,
        got: &str,
    ) -> Option<Vec<String>> {
        let soname = need.soname.as_str();
        let library = known(soname)?;
        let prefix = WITHOUT_NODE.iter().find(|(name, _)| *name == library);
        let mut asked = self.asked(user, false)?;
        let nodes = asked.nodes.iter().filter(|of| of.library == soname);
        let nodes: Vec<String> = nodes.flat_map(|of| of.nodes.clone()).collect();
        let prefix = prefix
            .filter(|_| nodes.is_empty())
            .map(|(_, prefix)| *prefix);
        if prefix.is_some() {
            asked = self.asked(user, true)?;
        } else if nodes.is_empty() {
            return None;
        }
        let provider = self.file(got)?;
        let mut lacking = Vec::new();
        let names = &process.objects.get(need.found?)?.names;
        let defined = version_definitions(&*provider);
        // A library without any node is taken as it is.
        if !defined.is_empty() {
            let missing = nodes
                .iter()
                .filter(|node| !defined.contains(node) && !names.contains(node));
            lacking.extend(missing.map(|node| format!("@{node}")));
        }
        let is_wanted = |symbol: &&Undefined| match &symbol.node {
            Some((_, of)) => of == soname,
            None => prefix.is_some_and(|prefix| symbol.name.starts_with(prefix)),
        };
        let wanted: Vec<&Undefined> = asked
            .symbols
            .iter()
            .filter(|symbol| !symbol.weak)
            .filter(is_wanted)
            .collect();
        let by_name: Vec<&str> = wanted.iter().map(|symbol| symbol.name.as_str()).collect();
        let there = elf::dynamic_symbols_defined(&*provider, &by_name);
        for (symbol, there) in wanted.iter().zip(there) {
            if there || lacking.len() >= MAX_LACKING {
                continue;
            }
            match &symbol.node {
                Some((node, _)) => lacking.push(format!("{}@{node}", symbol.name)),
                None if !self.is_defined_elsewhere(process, &symbol.name, got) => {
                    lacking.push(symbol.name.clone());
                }
                None => {}
            }
        }
        Some(lacking)
    }

    /// Whether another object of the process defines a symbol: any of them may, where it has no node.
    fn is_defined_elsewhere(&self, process: &Closure, symbol: &str, got: &str) -> bool {
        process
            .objects
            .iter()
            .filter(|object| object.path != got && !object.path.is_empty())
            .any(|object| {
                let file = self.sysroot.file(&object.path);
                file.value().is_some_and(|file| {
                    elf::dynamic_symbols_defined(file, &[symbol]).first() == Some(&true)
                })
            })
    }

    /// The links, each with the copy that the environment brought and that is not the one in use.
    pub(super) fn finish(self, copies: &Copies<'_>) -> Vec<Link> {
        let mut links = self.noted;
        for link in &mut links {
            let brought = copies.brought_as(file_name(&link.soname));
            let got = link.got.as_ref().map(|path| copies.real_path(path));
            link.beside = brought
                .filter(|copy| Some(&copy.real_path) != got.as_ref())
                .map(|copy| copy.path.clone());
            link.user = copies.told_as(&link.user);
            link.got = link.got.as_deref().map(|path| copies.told_as(path));
        }
        links
    }
}
