//! Which files there are to look at: a file that was named, the files of a folder, the members of a wheel, the libraries
//! of a Python environment, the files of a container image.
//!
//! Links in folders are not followed (what they lead to is looked at where it lies), and a file under two names is looked
//! at once. A wheel's index is read first and only what can be a binary is unpacked, never to disk. An environment is
//! known by its RECORD files, so that its other 40,000 files are not opened.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::image::{self, FROM_HOST, Known, Looked};
use super::{Container, File, Inspection, Kind, Missing, Needed, is_cuda_library, look};
use crate::error::Error;
use crate::facts::Reading;
use crate::image::is_image;
use crate::probe::resolve::{Closure, Environment, Resolver};
use crate::read::elf;
use crate::read::fatbin::Look;
use crate::read::inflate::Inflated;
use crate::read::needs::{undefined_symbols_of, version_definitions, version_needs};
use crate::read::part::Part;
use crate::read::recipes::companions;
use crate::read::window::{ReadAt, bytes_up_to};
use crate::read::zip::{self, Packing};
use crate::read::{pydist, recipes};
use crate::sysroot::{self, RegularFile, Sysroot, file_name, join, parent};

/// How a need is met that another member of the wheel meets.
pub const IN_WHEEL: &str = "in this wheel";
/// What is said of a file that a distribution lists.
pub(super) const NOT_THERE: &str = ", but not there";
/// How a need is not met by the loader that a library elsewhere in the image could meet.
pub(super) const ELSEWHERE: &str = "not found, though the image has it elsewhere";
/// The deepest folder that is entered.
const MAX_DEPTH: usize = 64;
/// The most bytes of a RECORD file; torch's has 2 MB.
const MAX_RECORD: usize = 32 << 20;
/// The most bytes of a METADATA file.
const MAX_METADATA: usize = 4 << 20;
/// The most missing symbols that are listed for a file.
const MAX_MISSING: usize = 32;
/// Endings of files that are no binaries, however executable their mode is.
const NO_BINARIES: &[&str] = &[
    "py",
    "pyc",
    "pyi",
    "h",
    "hpp",
    "cuh",
    "c",
    "cc",
    "cpp",
    "cu",
    "txt",
    "md",
    "rst",
    "json",
    "toml",
    "yaml",
    "yml",
    "html",
    "js",
    "css",
    "map",
    "png",
    "jpg",
    "svg",
    "gif",
    "pdf",
    "xml",
    "csv",
    "tsv",
    "npy",
    "npz",
    "pt",
    "pth",
    "safetensors",
    "gguf",
    "onnx",
    "bin",
    "ipynb",
    "cmake",
    "pc",
    "la",
    "sh",
    "pem",
    "gz",
    "xz",
    "bz2",
    "zst",
    "tar",
    "deb",
    "rpm",
    "log",
    "lock",
    "cfg",
    "ini",
    "conf",
    "rs",
    "go",
    "java",
    "class",
    "jar",
    "mo",
    "po",
    "ttf",
    "woff",
    "woff2",
    "rlib",
    "rmeta",
    "d",
];

/// How to look, and where.
pub struct Request<'a> {
    /// The machine that the paths are of.
    pub sysroot: &'a Sysroot,
    /// Its loader; without one nothing is looked up of what files need.
    pub resolver: Option<&'a Resolver<'a>>,
    /// How far to look into each file.
    pub look: Look,
    /// List every binary of a folder, not only those that have to do with the GPU.
    pub all: bool,
    /// The same of images, which hold a whole system.
    pub all_of_images: bool,
    /// Is told how many files were looked at, and which one is next.
    pub progress: &'a dyn Fn(u64, &str),
    /// What was looked at before: the files of an image, as they came by.
    pub looked: Option<&'a RefCell<Looked>>,
    /// For which processor an image is read, where its index has several: `x86_64`.
    pub arch: &'a str,
}

/// Looks at a path and adds what it holds.
///
/// # Errors
/// Where there is no such file, it cannot be read, or it is nothing that device code can be in.
pub fn gather(path: &str, request: &Request<'_>, found: &mut Inspection) -> Result<(), Error> {
    let wrong = |reason: &str| Error::file("inspect", std::path::Path::new(path), reason);
    let stat = match request.sysroot.stat(path) {
        Reading::Present { value, .. } => value,
        Reading::Absent { .. } => return Err(wrong("no such file or folder")),
        Reading::Unreadable { reason } => {
            return Err(wrong(reason.rsplit(": ").next().unwrap_or(&reason)));
        }
    };
    let mut gatherer = Gatherer {
        request,
        found,
        seen: BTreeSet::new(),
        package: None,
        requires: Vec::new(),
        alone: true,
    };
    match stat.kind {
        sysroot::Kind::Folder if request.sysroot.is_live() && is_image(request.sysroot, path) => {
            gatherer.image(path).map_err(|why| wrong(&why))?;
        }
        sysroot::Kind::Folder if gatherer.is_environment(path) => {
            gatherer.container(path, "python-environment", |this| this.environment(path));
        }
        sysroot::Kind::Folder => {
            let before = gatherer.found.files.len();
            gatherer.container(path, "folder", |this| this.folder(path, 0));
            if gatherer.found.files.len() == before
                && let Some(why) = why_not_looked_into(request.sysroot, path)
            {
                gatherer.found.problems.push(format!("{path}: {why}"));
            }
        }
        sysroot::Kind::File => {
            let file = match request.sysroot.file(path) {
                Reading::Present { value, .. } => value,
                Reading::Absent { .. } => return Err(wrong("no such file")),
                Reading::Unreadable { reason } => {
                    return Err(wrong(reason.rsplit(": ").next().unwrap_or(&reason)));
                }
            };
            if bytes_up_to(&file, 0, 4) == b"PK\x03\x04" {
                gatherer.wheel(path, &file).map_err(|why| wrong(&why))?;
            } else if request.sysroot.is_live() && is_image(request.sysroot, path) {
                gatherer.image(path).map_err(|why| wrong(&why))?;
            } else {
                let file = gatherer.look_at(path, &file);
                if file.kind == Kind::Other {
                    return Err(wrong(&unread(&file.description)));
                }
                if file.kind == Kind::Unreadable {
                    return Err(wrong(&file.description));
                }
                gatherer.found.files.push(file);
            }
        }
        _ => return Err(wrong("is no regular file")),
    }
    Ok(())
}

/// What is said of a named file that is nothing to look into.
fn unread(description: &str) -> String {
    let hint = if description.ends_with("(SIF)") {
        ", which is not read: `apptainer build --sandbox FOLDER IMAGE.sif` makes a folder of it, and that is"
    } else if description.ends_with(" archive") {
        ", and holds no image, or is cut off; read are wheels, and images in a tar archive, plain or packed by gzip or zstd"
    } else {
        ""
    };
    format!("it is {description}{hint}")
}

/// Why nothing of a folder can be judged, where it is there to be judged: an image in a layout that is not read, or nothing.
fn why_not_looked_into(sysroot: &Sysroot, path: &str) -> Option<&'static str> {
    let has = |name: &str| sysroot.exists(&join(path, name));
    let is_digest = |name: &str| name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let names = sysroot.list_all(path);
    let names = names.value()?;
    if names.names.is_empty() && names.odd.is_empty() {
        return Some("an empty folder");
    }
    if has("index.json") && has("blobs") {
        return Some(
            "a container image in the OCI's layout without its file oci-layout, so that it is not read as one: make the file anew with `{\"imageLayoutVersion\": \"1.0.0\"}` in it, or copy the image again",
        );
    }
    if has("manifest.json") && names.names.iter().any(|name| is_digest(name)) {
        return Some(
            "a container image in the layout of `skopeo copy ... dir:`, which is not read: copy it to `oci:` or `docker-archive:`",
        );
    }
    None
}

struct Gatherer<'a, 'f> {
    request: &'a Request<'a>,
    found: &'f mut Inspection,
    /// Device and inode of what was looked at.
    seen: BTreeSet<(u64, u64)>,
    /// The distribution that all of it belongs to.
    package: Option<String>,
    /// What the wheel that is looked into requires.
    requires: Vec<String>,
    /// It is one file that was named.
    alone: bool,
}

impl Gatherer<'_, '_> {
    /// Looks at what holds files, and says how many.
    fn container<T>(&mut self, path: &str, kind: &str, look: impl FnOnce(&mut Self) -> T) -> T {
        let (looked_at, listed) = (self.found.looked_at, self.found.files.len());
        self.alone = false;
        let result = look(self);
        self.found.containers.push(Container {
            path: path.to_owned(),
            kind: kind.to_owned(),
            package: None,
            requires: std::mem::take(&mut self.requires),
            looked_at: self.found.looked_at - looked_at,
            listed: (self.found.files.len() - listed) as u64,
            image: None,
        });
        result
    }

    /// Reads a file of this machine and looks up what it needs.
    fn look_at(&mut self, path: &str, file: &RegularFile) -> File {
        (self.request.progress)(self.found.looked_at, path);
        self.found.looked_at += 1;
        let one = look(file, path, self.request.look);
        self.looked_at(path, file, one)
    }

    /// What the files around it say of a file.
    fn looked_at(&self, path: &str, file: &RegularFile, mut one: File) -> File {
        self.by_companion(path, &mut one);
        let is_told = one.is_gpu() || self.request.all || self.alone;
        let is_loaded = matches!(one.kind, Kind::Program | Kind::SharedLibrary);
        if is_told && is_loaded && !one.needed.is_empty() {
            self.resolve(path, file, &mut one);
        }
        one.package.clone_from(&self.package);
        one
    }

    /// cuBLAS does not hold its own version; the library beside it does.
    fn by_companion(&self, path: &str, one: &mut File) {
        let Some(identity) = one
            .identity
            .as_mut()
            .filter(|identity| identity.version.is_none())
        else {
            return;
        };
        let dir = parent(path);
        for companion in companions(&identity.name) {
            let names = self.request.sysroot.list(dir, |name| {
                name.strip_prefix(companion)
                    .is_some_and(|rest| rest.starts_with(".so"))
            });
            for name in names.items() {
                let beside = join(dir, name);
                let file = self.request.sysroot.file(&beside);
                let Some(file) = file.value() else { continue };
                let elf::Shape::Elf(elf) = elf::identify(file) else {
                    continue;
                };
                if let Some(version) =
                    recipes::identify(file, &elf, name).and_then(|other| other.version)
                {
                    identity.version = Some(version);
                    identity.source = format!("{name} beside it");
                    return;
                }
            }
        }
    }

    fn resolve(&self, path: &str, file: &RegularFile, one: &mut File) {
        let resolver = self.request.resolver;
        let Some(closure) = resolver.and_then(|resolver| resolver.closure(path)) else {
            return;
        };
        let site = site_of(path);
        for need in closure.needs.iter().filter(|need| need.object == 0) {
            let slot = one
                .needed
                .iter_mut()
                .find(|n| n.soname == need.soname && n.by.is_empty());
            let Some(slot) = slot else { continue };
            slot.resolved = need
                .found
                .and_then(|index| closure.objects.get(index))
                .map(|o| o.path.clone());
            slot.by.clone_from(&need.by);
            if slot.resolved.is_none()
                && let Some(site) = site
                && let Some(sibling) = self.in_site(site, &slot.soname)
            {
                slot.resolved = Some(sibling);
                "loaded by its Python package, not by the loader's search".clone_into(&mut slot.by);
            }
        }
        for need in closure
            .needs
            .iter()
            .filter(|need| need.object != 0 && need.found.is_none())
        {
            let known = site.is_some_and(|site| self.in_site(site, &need.soname).is_some());
            if known || one.missing.len() >= MAX_MISSING {
                continue;
            }
            one.missing.push(Missing {
                soname: need.soname.clone(),
                library: closure
                    .objects
                    .get(need.object)
                    .map_or(String::new(), |o| o.path.clone()),
                what: format!("needs {}: {}", need.soname, need.by),
            });
        }
        self.missing(file, &closure, one);
    }

    /// Version nodes that the libraries found here do not define, and of CUDA's libraries the symbols.
    fn missing(&self, file: &RegularFile, closure: &Closure, one: &mut File) {
        let object = |library: &str| {
            let need = closure
                .needs
                .iter()
                .find(|n| n.object == 0 && n.soname == library)?;
            closure.objects.get(need.found?)
        };
        for need in version_needs(file) {
            let Some(object) = object(&need.library) else {
                continue;
            };
            let provider = self.request.sysroot.file(&object.path);
            let Some(provider) = provider.value() else {
                continue;
            };
            let mut defined = version_definitions(provider);
            defined.extend(object.names.iter().cloned());
            if defined.len() == object.names.len() {
                // A library without any version node: the loader takes it as it is.
                continue;
            }
            for node in need.nodes {
                if !defined.contains(&node) && one.missing.len() < MAX_MISSING {
                    one.missing.push(Missing {
                        soname: need.library.clone(),
                        library: object.path.clone(),
                        what: node,
                    });
                }
            }
        }
        let mut wanted: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let is_found = |library: &str| is_cuda_library(library) && object(library).is_some();
        for symbol in undefined_symbols_of(file, |library| library.is_some_and(is_found)) {
            if let Some((_, library)) = symbol.node
                && !symbol.weak
            {
                wanted.entry(library).or_default().push(symbol.name);
            }
        }
        for (library, symbols) in wanted {
            let Some(object) = object(&library) else {
                continue;
            };
            let provider = self.request.sysroot.file(&object.path);
            let Some(provider) = provider.value() else {
                continue;
            };
            let names: Vec<&str> = symbols.iter().map(String::as_str).collect();
            let defined = elf::dynamic_symbols_defined(provider, &names);
            for (symbol, defined) in symbols.iter().zip(defined) {
                if !defined && one.missing.len() < MAX_MISSING {
                    one.missing.push(Missing {
                        soname: library.clone(),
                        library: object.path.clone(),
                        what: symbol.clone(),
                    });
                }
            }
        }
    }

    /// A library that a Python package loads before: torch's own, NVIDIA's wheels', what a wheel builder copied.
    fn in_site(&self, site: &str, soname: &str) -> Option<String> {
        let sysroot = self.request.sysroot;
        let mut dirs = vec![join(site, "torch/lib"), join(site, "nvidia/cu13/lib")];
        if is_cuda_library(soname) {
            let nvidia = join(site, "nvidia");
            let names = sysroot.list(&nvidia, |_| true);
            dirs.extend(
                names
                    .items()
                    .iter()
                    .map(|name| format!("{nvidia}/{name}/lib")),
            );
        }
        dirs.into_iter()
            .map(|dir| join(&dir, soname))
            .find(|path| sysroot.exists(path))
    }

    /// Adds a file of a folder or a wheel where it is worth a line.
    fn add(&mut self, file: File) {
        let is_library = file_name(&file.path).contains(".so");
        let is_damaged = file.is_damaged() && is_library;
        let is_binary = !matches!(file.kind, Kind::Other | Kind::Empty | Kind::Unreadable);
        if file.kind == Kind::Unreadable {
            self.found
                .problems
                .push(format!("{}: {}", file.path, file.description));
        }
        if file.is_gpu() || is_damaged || self.request.all && is_binary {
            self.found.files.push(file);
        }
    }

    fn file(&mut self, path: &str) {
        let file = match self.request.sysroot.file(path) {
            Reading::Present { value, .. } => value,
            Reading::Absent { .. } => return,
            Reading::Unreadable { reason } => {
                self.found.problems.push(reason);
                return;
            }
        };
        if let Some(looked) = self.request.looked
            && !file.is_empty()
            && !has_ending(path, "whl")
        {
            let identity = self.request.sysroot.stat(path).value().map(|s| s.identity);
            let known = identity.map(|identity| looked.borrow_mut().take(identity));
            match known {
                Some(Known::File(mut one)) => {
                    self.found.looked_at += 1;
                    path.clone_into(&mut one.path);
                    let one = self.looked_at(path, &file, *one);
                    self.add(one);
                }
                Some(Known::Plain) => self.found.looked_at += 1,
                Some(Known::NoBinary) | None => {}
            }
            return;
        }
        if has_ending(path, "whl") {
            if let Err(why) = self.wheel(path, &file) {
                self.found.problems.push(format!("{path}: {why}"));
            }
            return;
        }
        if !is_surely_binary(path) && !is_binary(&bytes_up_to(&file, 0, 8)) {
            return;
        }
        let one = self.look_at(path, &file);
        self.add(one);
    }

    fn folder(&mut self, path: &str, depth: usize) {
        // What the kernel makes up is no folder of files.
        if depth > MAX_DEPTH || ["/proc", "/sys", "/dev"].contains(&path) {
            return;
        }
        let names = match self.request.sysroot.list_all(path) {
            Reading::Present { value, .. } => value,
            Reading::Absent { .. } => return,
            Reading::Unreadable { reason } => {
                self.found.problems.push(reason);
                return;
            }
        };
        // A name that is no text can neither be shown nor opened by what is shown.
        for odd in names.odd {
            if odd.ends_with('/') || may_be_binary(&odd) {
                self.found.problems.push(format!(
                    "{}: not read, since its name is not UTF-8: rename it",
                    join(path, &odd)
                ));
            }
        }
        for name in names.names {
            let inner = join(path, &name);
            let stat = self.request.sysroot.lstat(&inner);
            let Some(stat) = stat.value() else { continue };
            match stat.kind {
                sysroot::Kind::Folder => self.folder(&inner, depth + 1),
                sysroot::Kind::File if may_be_binary(&name) && self.seen.insert(stat.identity) => {
                    self.file(&inner);
                }
                _ => {}
            }
        }
    }

    fn is_environment(&self, path: &str) -> bool {
        ["pyvenv.cfg", "conda-meta"]
            .iter()
            .any(|name| self.request.sysroot.exists(&join(path, name)))
    }

    /// The libraries of a Python environment: those its distributions list, and conda's `lib`.
    fn environment(&mut self, prefix: &str) {
        let lib = join(prefix, "lib");
        let versions = self
            .request
            .sysroot
            .list(&lib, |name| name.starts_with("python3."));
        for version in versions.items() {
            self.site(&format!("{lib}/{version}/site-packages"));
        }
        if self.request.sysroot.exists(&join(prefix, "conda-meta")) {
            for dir in [lib, join(prefix, "targets/x86_64-linux/lib")] {
                let names = self.request.sysroot.list(&dir, |name| name.contains(".so"));
                for path in names.items().iter().map(|name| join(&dir, name)) {
                    self.once(&path);
                }
            }
        }
    }

    fn site(&mut self, site: &str) {
        let dists = self
            .request
            .sysroot
            .list(site, |name| name.ends_with(".dist-info"));
        for dist in dists.items() {
            let Some((name, version)) = pydist::from_dist_info_dir(dist) else {
                continue;
            };
            let record = format!("{site}/{dist}/RECORD");
            let text = self.request.sysroot.text_up_to(&record, MAX_RECORD);
            let Some(text) = text.value() else { continue };
            self.package = Some(format!("{name} {version}"));
            for line in text.lines() {
                // PATH,HASH,SIZE; a path with a comma in it is quoted.
                let path = line
                    .rsplitn(3, ',')
                    .last()
                    .unwrap_or(line)
                    .trim_matches('"');
                let is_inside = !path.starts_with('/') && !path.split('/').any(|part| part == "..");
                if is_inside && is_library_name(file_name(path)) {
                    let path = join(site, path);
                    if self.request.sysroot.exists(&path) {
                        self.once(&path);
                    } else {
                        self.found
                            .problems
                            .push(format!("{path}: listed by {name} {version}{NOT_THERE}"));
                    }
                }
            }
        }
        self.package = None;
    }

    fn once(&mut self, path: &str) {
        let stat = self.request.sysroot.stat(path);
        if let Some(stat) = stat.value()
            && stat.kind == sysroot::Kind::File
            && self.seen.insert(stat.identity)
        {
            self.file(path);
        }
    }

    /// The files of a container image, as a loader in it would find them.
    fn image(&mut self, path: &str) -> Result<(), String> {
        let request = self.request;
        let (image, looked) = image::read(
            request.sysroot,
            path,
            request.arch,
            request.look,
            request.all_of_images,
            request.progress,
        )?;
        let looked = RefCell::new(looked);
        let root = Sysroot::of_image(image.tree.clone());
        let variables = image::variables(&image);
        let resolver = Resolver::new(
            &root,
            &Environment {
                library_path: variables.get("LD_LIBRARY_PATH").cloned(),
                preload: variables.get("LD_PRELOAD").cloned(),
                working_folder: None,
            },
        );
        let mut inside = Inspection::default();
        let mut gatherer = Gatherer {
            request: &Request {
                sysroot: &root,
                resolver: Some(&resolver),
                look: request.look,
                all: request.all_of_images,
                all_of_images: request.all_of_images,
                progress: request.progress,
                looked: Some(&looked),
                arch: request.arch,
            },
            found: &mut inside,
            seen: BTreeSet::new(),
            package: None,
            requires: Vec::new(),
            alone: false,
        };
        gatherer.container("/", "image", |this| this.folder("/", 0));
        let facts = image::facts(&image, &root, &resolver, &inside.files, &looked.borrow());
        let has_unread = image.tree.has_unread();
        if has_unread {
            let words =
                "not all of it could be read again: what libraries lack of each other is not told";
            inside.problems.push(words.to_owned());
        }
        for file in &mut inside.files {
            // What could not be looked up is not held missing.
            if has_unread || image.is_partial {
                file.missing.clear();
            }
            if image.is_partial {
                let missing = file.needed.iter_mut().filter(|needed| needed.is_missing());
                missing.for_each(|needed| needed.by.clear());
            }
            for needed in &mut file.needed {
                if needed.is_missing() && image::is_brought_by_host(&needed.soname) {
                    FROM_HOST.clone_into(&mut needed.by);
                }
                // A start script may lead the loader there.
                if file.kind == Kind::Program
                    && needed.is_missing()
                    && looked.borrow().libraries.contains(&needed.soname)
                {
                    ELSEWHERE.clone_into(&mut needed.by);
                }
            }
            let of_image = |missing: &Missing| !image::is_brought_by_host(&missing.soname);
            file.missing.retain(of_image);
            file.path = format!("{path}!{}", file.path);
        }
        let mut containers = std::mem::take(&mut inside.containers);
        if let Some(whole) = containers.last_mut() {
            whole.image = Some(Box::new(facts));
            whole.path.clear();
        }
        for container in &mut containers {
            container.path = if container.path.is_empty() {
                path.to_owned()
            } else {
                format!("{path}!{}", container.path)
            };
        }
        let found = &mut *self.found;
        found.containers.extend(containers);
        found.looked_at += inside.looked_at;
        found.files.extend(inside.files);
        let told = |problem: &String| match problem.strip_prefix('/') {
            Some(rest) => format!("{path}!/{rest}"),
            None => format!("{path}: {problem}"),
        };
        let problems = image.problems.iter().chain(&inside.problems);
        found.problems.extend(problems.map(told));
        Ok(())
    }

    fn wheel(&mut self, path: &str, archive: &RegularFile) -> Result<(), String> {
        let outer = self.package.take();
        let result = self.container(path, "wheel", |this| this.members(path, archive));
        if let Some(container) = self.found.containers.last_mut() {
            container.package = self.package.take();
        }
        self.package = outer;
        result
    }

    fn members(&mut self, path: &str, archive: &RegularFile) -> Result<(), String> {
        let members = zip::members(archive)?;
        self.package = members.iter().find_map(|member| {
            let dist = member
                .name
                .strip_suffix("/METADATA")
                .filter(|dist| !dist.contains('/'))?;
            pydist::from_dist_info_dir(dist).map(|(name, version)| format!("{name} {version}"))
        });
        self.requires = members
            .iter()
            .find(|member| is_metadata(&member.name))
            .and_then(|member| text_of(member, archive))
            .map(|text| {
                let requires = pydist::metadata_requires(&text);
                requires.map(pydist::required_name).collect()
            })
            .unwrap_or_default();
        let names: BTreeSet<&str> = members
            .iter()
            .map(|member| file_name(&member.name))
            .collect();
        let mut files = Vec::new();
        for member in &members {
            let name = file_name(&member.name);
            let is_sure = is_library_name(name);
            if !is_sure && !may_be_binary(name) {
                continue;
            }
            let shown = format!("{path}!{}", member.name);
            let Some(range) = member.range(archive) else {
                self.found
                    .problems
                    .push(format!("{shown}: its bytes are not where the index says"));
                continue;
            };
            let inflated;
            let part;
            let file: &dyn ReadAt = match member.packing {
                Packing::Stored => {
                    part = Part::new(archive, range);
                    &part
                }
                Packing::Deflated => match Inflated::new(archive, range, member.size) {
                    Ok(file) => {
                        inflated = file;
                        &inflated
                    }
                    Err(why) => {
                        self.found.problems.push(format!("{shown}: {why}"));
                        continue;
                    }
                },
                Packing::Other(method) => {
                    self.found.problems.push(format!(
                        "{shown}: packed by method {method}, which is not read"
                    ));
                    continue;
                }
            };
            if !is_sure && !is_binary(&bytes_up_to(file, 0, 8)) {
                continue;
            }
            (self.request.progress)(self.found.looked_at, &shown);
            self.found.looked_at += 1;
            let mut one = look(file, &shown, self.request.look);
            one.package.clone_from(&self.package);
            for needed in &mut one.needed {
                if names.contains(needed.soname.as_str()) {
                    IN_WHEEL.clone_into(&mut needed.by);
                }
            }
            files.push(one);
        }
        companions_of_wheel(&mut files);
        for one in files {
            self.add(one);
        }
        Ok(())
    }
}

/// `torch-2.7.1.dist-info/METADATA`.
fn is_metadata(name: &str) -> bool {
    name.strip_suffix(".dist-info/METADATA")
        .is_some_and(|dist| !dist.contains('/'))
}

/// A small text in a wheel; `None` where it cannot be unpacked, or is no small text.
fn text_of(member: &zip::Member, archive: &RegularFile) -> Option<String> {
    let size = usize::try_from(member.size)
        .ok()
        .filter(|size| *size <= MAX_METADATA)?;
    let range = member.range(archive)?;
    let bytes = match member.packing {
        Packing::Stored => bytes_up_to(&Part::new(archive, range), 0, size),
        Packing::Deflated => {
            bytes_up_to(&Inflated::new(archive, range, member.size).ok()?, 0, size)
        }
        Packing::Other(_) => return None,
    };
    String::from_utf8(bytes).ok()
}

/// Versions that a library of a wheel has from another one in it.
fn companions_of_wheel(files: &mut [File]) {
    let known: Vec<_> = files
        .iter()
        .filter_map(|file| {
            let identity = file.identity.as_ref()?;
            Some((
                identity.name.clone(),
                identity.version.clone()?,
                file_name(&file.path).to_owned(),
            ))
        })
        .collect();
    for identity in files.iter_mut().filter_map(|file| file.identity.as_mut()) {
        if identity.version.is_some() {
            continue;
        }
        let beside = companions(&identity.name)
            .iter()
            .find_map(|companion| known.iter().find(|(name, ..)| name == companion));
        if let Some((_, version, name)) = beside {
            identity.version = Some(version.clone());
            identity.source = format!("{name} beside it");
        }
    }
}

/// The site-packages folder that a path lies in.
fn site_of(path: &str) -> Option<&str> {
    ["/site-packages/", "/dist-packages/"]
        .iter()
        .find_map(|dir| {
            let at = path.find(dir)?;
            path.get(..at + dir.len() - 1)
        })
}

fn has_ending(path: &str, ending: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, e)| e == ending)
}

/// `libx.so`, `libx.so.1.2`, `x.cpython-312-x86_64-linux-gnu.so`.
fn is_library_name(name: &str) -> bool {
    has_ending(name, "so") || name.contains(".so.")
}

/// Whether a file is a wheel, by its name.
pub(super) fn is_wheel(name: &str) -> bool {
    has_ending(name, "whl")
}

/// Whether a file may be a binary, by its name.
pub(super) fn may_be_binary(name: &str) -> bool {
    match name.rsplit_once('.') {
        Some((_, ending)) => {
            name.contains(".ko.")
                || name.contains(".so.")
                || !NO_BINARIES.contains(&ending.to_ascii_lowercase().as_str())
        }
        None => true,
    }
}

/// Whether a file is worth being opened, by its name alone. Most files without an ending are scripts and texts.
pub(super) fn is_surely_binary(path: &str) -> bool {
    path.contains(".so")
        || file_name(path).contains(".ko.")
        || ["a", "o", "ko", "cubin", "fatbin", "ptx"]
            .iter()
            .any(|e| has_ending(path, e))
}

/// Whether a file begins like something that is looked at.
pub(super) fn is_binary(start: &[u8]) -> bool {
    [&b"\x7fELF"[..], b"!<arch>\n", b"\x50\xed\x55\xba"]
        .iter()
        .any(|magic| start.starts_with(magic))
}

impl Needed {
    /// Whether it was looked up and not found.
    pub fn is_missing(&self) -> bool {
        self.resolved.is_none()
            && !self.by.is_empty()
            && ![IN_WHEEL, FROM_HOST].contains(&self.by.as_str())
    }

    /// The file that the loader stops at since it is no library, and what it is: of
    /// `/opt/l/libcudart.so.12 (RUNPATH) is an empty file`.
    pub fn broken(&self) -> Option<(&str, &str)> {
        if self.resolved.is_some() || self.by.starts_with("not found") {
            return None;
        }
        match self.by.split_once(") is ") {
            Some((found, why)) => Some((found.rsplit_once(" (")?.0, why)),
            None => self
                .by
                .split_once(" is ")
                .filter(|(path, _)| path.starts_with('/')),
        }
    }
}
