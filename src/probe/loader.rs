//! Where the dynamic loader of the consumer would find a library, and where else copies lie.
//!
//! Order, as in `ld.so(8)`: what is loaded already, by `LD_PRELOAD` too; the folders of `LD_LIBRARY_PATH` (each with its glibc-hwcaps folders first), the cache
//! `/etc/ld.so.cache`, the default folders. A library's own RPATH and RUNPATH come into play only for what it needs
//! itself; what a process opens by name, as every CUDA program opens `libcuda.so.1`, follows this order.
//! A file of another architecture is skipped, as the loader does; a file that is too short is not: the loader stops there.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;

use crate::facts::{FileKind, ReachedBy, Reading};
use crate::read::elf::{self, Elf, Shape};
use crate::read::ldcache;
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};

/// The most of a cache file that is read, in bytes; real ones have 50 to 500 kB.
const CACHE_CAP: usize = 16 << 20;

/// What every file that is looked for begins with. A folder such as `/usr/lib/x86_64-linux-gnu` has thousands of names, and
/// listing it is most of what a bare host costs: so it is listed once, and these names are kept.
const PREFIXES: [&str; 3] = ["libcuda.so", "libcudart", "libnvidia-ml.so"];

/// What the names of the stack's libraries begin with.
const STACK: [&str; 4] = ["libcu", "libnv", "libnccl.", "libnpp"];

/// The search of one consumer.
#[derive(Debug)]
pub(super) struct Loader<'a> {
    sysroot: &'a Sysroot,
    /// Folders of `LD_LIBRARY_PATH`, in order.
    library_path: Vec<String>,
    /// What a process has before it opens anything by name: mapped files, and those of `LD_PRELOAD`.
    before: Vec<Found>,
    /// Bytes of the cache.
    cache: Reading<Vec<u8>>,
    /// `x86_64` or `aarch64`: the machine's, by its loader.
    arch: String,
    /// Names in folders that were listed already.
    listed: RefCell<BTreeMap<String, Vec<String>>>,
    /// Where copies lie that nothing was found for.
    places: OnceCell<Vec<(String, ReachedBy)>>,
}

/// A file that was found for a name.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The path by which.
    pub(super) path: String,
    /// How.
    pub(super) by: ReachedBy,
}

/// Folders that hold copies which no loader reaches by itself, besides those of [`toolkit_folders`].
/// Platforms and sources: `driver-and-containers`, where the user-space libraries live (Debian verified; others by packaging).
const KNOWN_PLACES: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/x86_64-linux-gnu/nvidia/tesla-470",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia",
    "/usr/lib/aarch64-linux-gnu/tegra",
    "/usr/lib64/nvidia",
    "/usr/lib/nvidia",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib",
    "/usr/local/nvidia/lib64",
    "/run/opengl-driver/lib",
    "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
    "/run/nvidia/driver/usr/lib/aarch64-linux-gnu",
    "/run/nvidia/driver/usr/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
    "/var/lib/nvidia/lib64",
    "/.singularity.d/libs",
    "/usr/local/glibc/usr/lib",
];

/// The architecture of this program, where nothing else says it.
const OWN_ARCH: &str = std::env::consts::ARCH;

impl<'a> Loader<'a> {
    /// Reads what the loader reads.
    pub(super) fn new(
        sysroot: &'a Sysroot,
        ld_library_path: Option<&str>,
        uname: Option<&(String, String)>,
    ) -> Self {
        // An empty part of LD_LIBRARY_PATH means the working folder: nothing of ours lies there, and it is not recorded.
        let library_path = ld_library_path
            .unwrap_or_default()
            .split([':', ';'])
            .filter(|dir| dir.starts_with('/'))
            .map(|dir| dir.trim_end_matches('/').to_owned())
            .collect();
        let arch = if sysroot.exists("/lib64/ld-linux-x86-64.so.2") {
            "x86_64".to_owned()
        } else if sysroot.exists("/lib/ld-linux-aarch64.so.1") {
            "aarch64".to_owned()
        } else {
            uname.map_or_else(|| OWN_ARCH.to_owned(), |(_, machine)| machine.clone())
        };
        Self {
            sysroot,
            library_path,
            before: Vec::new(),
            cache: sysroot.bytes("/etc/ld.so.cache", CACHE_CAP),
            arch,
            listed: RefCell::default(),
            places: OnceCell::new(),
        }
    }

    /// The same search in a process that has these files mapped, or was given these by `LD_PRELOAD` and
    /// `/etc/ld.so.preload`: a name for which something is loaded already is not searched for. Names without a folder in
    /// `LD_PRELOAD` are searched for as all others are, and not told here.
    pub(super) fn loaded_before<'p>(
        mut self,
        preload: Option<&str>,
        mapped: impl Iterator<Item = &'p str>,
    ) -> Self {
        let of_mapped = mapped.map(|path| Found {
            path: path.to_owned(),
            by: ReachedBy::Process,
        });
        self.before.extend(of_mapped);
        let file = self.sysroot.text("/etc/ld.so.preload");
        let listed = file.value().map_or("", String::as_str);
        let lines = listed
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default());
        let words = [preload.unwrap_or_default()]
            .into_iter()
            .chain(lines)
            .flat_map(|text| text.split([' ', ':', '\t', ',']))
            .filter(|path| path.starts_with('/'));
        self.before.extend(words.map(|path| Found {
            path: path.to_owned(),
            by: ReachedBy::LdPreload,
        }));
        self
    }

    /// What is loaded already under a soname. The loader goes by the name in the file; what is no library for this machine
    /// it did not load.
    fn loaded_as<'s>(&'s self, soname: &'s str) -> impl Iterator<Item = &'s Found> {
        // The name in a file costs a look at it: of what could be it at all.
        let stem = soname.split(".so").next().unwrap_or(soname);
        self.before.iter().filter(move |found| {
            if !file_name(&found.path).starts_with(stem) {
                return false;
            }
            let (kind, _, elf) = self.look_at(&found.path);
            kind == FileKind::Library
                && elf.is_some_and(|elf| elf.soname.as_deref() == Some(soname))
        })
    }

    /// `x86_64` or `aarch64`: the machine's.
    pub(super) fn arch(&self) -> &str {
        &self.arch
    }

    /// The files of the stack in the folders of `LD_LIBRARY_PATH` and in the cache whose name is wanted.
    pub(super) fn libraries(&self, wanted: impl Fn(&str) -> bool) -> Vec<Found> {
        let mut found = Vec::new();
        for dir in &self.library_path {
            let names = self.sysroot.list(dir, &wanted);
            found.extend(names.items().iter().map(|name| Found {
                path: join(dir, name),
                by: ReachedBy::LdLibraryPath(dir.clone()),
            }));
        }
        let cached = self.of_cache(|bytes| ldcache::parse_prefixed(bytes, &STACK));
        found.extend(
            cached
                .into_iter()
                .filter(|path| wanted(file_name(path)))
                .map(|path| Found {
                    path,
                    by: ReachedBy::LdCache,
                }),
        );
        found
    }

    /// The folders that the loader searches when all else fails.
    pub(super) fn default_folders(&self) -> Vec<String> {
        let triplet = format!("{}-linux-gnu", self.arch);
        [
            format!("/lib/{triplet}"),
            format!("/usr/lib/{triplet}"),
            "/lib64".into(),
            "/usr/lib64".into(),
            "/lib".into(),
            "/usr/lib".into(),
        ]
        .into()
    }

    /// Files called `soname` in the loader's order: the first usable one is what a process gets.
    ///
    /// Beside them, why the first folder that could not be looked into was closed: what lies there is not known.
    pub(super) fn search(&self, soname: &str) -> (Vec<Found>, Option<String>) {
        let mut found = Vec::new();
        let mut refused = None;
        let mut offer = |path: String, by: ReachedBy| match self.sysroot.lstat(&path) {
            // That it is loaded already says nothing of how it got there.
            Reading::Present { .. }
                if !found.iter().any(|f: &Found| {
                    f.path == path && !matches!(f.by, ReachedBy::Process | ReachedBy::LdPreload)
                }) =>
            {
                found.push(Found { path, by });
            }
            Reading::Unreadable { reason } if refused.is_none() => refused = Some(reason),
            _ => {}
        };
        for Found { path, by } in self.loaded_as(soname) {
            offer(path.clone(), by.clone());
        }
        for dir in &self.library_path {
            for sub in self.hwcaps() {
                offer(
                    join(&join(dir, sub), soname),
                    ReachedBy::LdLibraryPath(dir.clone()),
                );
            }
            offer(join(dir, soname), ReachedBy::LdLibraryPath(dir.clone()));
        }
        for entry in self.of_cache(|bytes| ldcache::parse(bytes, &[soname])) {
            offer(entry, ReachedBy::LdCache);
        }
        for dir in self.default_folders() {
            offer(join(&dir, soname), ReachedBy::DefaultPath);
        }
        (found, refused)
    }

    /// Paths that the cache holds, in its order, for this architecture.
    fn of_cache(
        &self,
        parse: impl Fn(&[u8]) -> Result<Vec<ldcache::CacheEntry>, String>,
    ) -> Vec<String> {
        let Some(bytes) = self.cache.value() else {
            return Vec::new();
        };
        match parse(bytes) {
            // On another machine's root the flags may be those of a cross-built fixture: paths that exist decide.
            Ok(entries) => entries
                .into_iter()
                .filter(|e| ldcache::is_for_arch(e.flags, &self.arch) || !self.sysroot.is_live())
                .map(|e| e.path)
                .collect(),
            Err(reason) => {
                log::debug!("/etc/ld.so.cache: {reason}");
                Vec::new()
            }
        }
    }

    /// Names in the cache that begin with `prefix`: `libcudart.so.`.
    pub(super) fn cached_with_prefix(&self, prefix: &str) -> Vec<Found> {
        self.cached(&[prefix])
    }

    /// Names in the cache that begin with one of these.
    pub(super) fn cached(&self, prefixes: &[&str]) -> Vec<Found> {
        self.of_cache(|bytes| ldcache::parse_prefixed(bytes, prefixes))
            .into_iter()
            .map(|path| Found {
                path,
                by: ReachedBy::LdCache,
            })
            .collect()
    }

    /// Whether there is a cache, which names what lies in the default folders.
    pub(super) fn has_cache(&self) -> bool {
        self.cache.is_present()
    }

    /// The folders of `LD_LIBRARY_PATH`, in order.
    pub(super) fn library_path(&self) -> &[String] {
        &self.library_path
    }

    /// Files whose name begins with `prefix` in the folders of `LD_LIBRARY_PATH`.
    pub(super) fn on_library_path(&self, prefix: &str) -> Vec<Found> {
        self.library_path
            .iter()
            .flat_map(|dir| self.files_in(dir, prefix, &ReachedBy::LdLibraryPath(dir.clone())))
            .collect()
    }

    /// Files whose name begins with `prefix`, one of [`PREFIXES`] or longer, in a folder.
    fn files_in(&self, dir: &str, prefix: &str, by: &ReachedBy) -> Vec<Found> {
        let mut listed = self.listed.borrow_mut();
        let names = listed.entry(dir.to_owned()).or_insert_with(|| {
            let wanted = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            self.sysroot.list(dir, wanted).items().to_vec()
        });
        names
            .iter()
            .filter(|name| name.starts_with(prefix))
            .map(|name| Found {
                path: join(dir, name),
                by: by.clone(),
            })
            .collect()
    }

    /// Every other copy: beside those that were found, in the default folders and in the known places.
    pub(super) fn elsewhere(&self, prefix: &str, reached: &[Found]) -> Vec<Found> {
        let mut dirs: Vec<(&str, &ReachedBy)> = Vec::new();
        let beside = reached
            .iter()
            .map(|found| (parent(&found.path), &ReachedBy::KnownPlace));
        let places = self.places.get_or_init(|| self.known_places());
        for (dir, by) in beside.chain(places.iter().map(|(dir, by)| (dir.as_str(), by))) {
            if !dirs.iter().any(|(d, _)| *d == dir) {
                dirs.push((dir, by));
            }
        }
        dirs.into_iter()
            .flat_map(|(dir, by)| self.files_in(dir, prefix, by))
            .collect()
    }

    /// The default folders, the known places, and what toolkits have.
    fn known_places(&self) -> Vec<(String, ReachedBy)> {
        let mut places = Vec::new();
        for dir in self.default_folders() {
            // /lib is a link to /usr/lib on merged systems: one listing is enough.
            if let Some(real) = self.sysroot.real_path(&dir).value() {
                places.push((real.clone(), ReachedBy::KnownPlace));
            }
        }
        for dir in KNOWN_PLACES {
            places.push(((*dir).to_owned(), ReachedBy::KnownPlace));
        }
        for store in self
            .sysroot
            .list("/usr/lib/wsl/drivers", |name| name.starts_with("nv"))
            .items()
        {
            places.push((join("/usr/lib/wsl/drivers", store), ReachedBy::KnownPlace));
        }
        for toolkit in toolkit_folders(self.sysroot) {
            for sub in [
                "compat",
                "compat_orin",
                "lib64/stubs",
                "lib64",
                "targets/x86_64-linux/lib/stubs",
                "targets/sbsa-linux/lib/stubs",
                "targets/aarch64-linux/lib/stubs",
            ] {
                places.push((join(&toolkit, sub), ReachedBy::Toolkit(toolkit.clone())));
            }
        }
        places
    }

    /// The glibc-hwcaps folders that this processor may use; which of them is not asked, since none of NVIDIA's
    /// packages uses them: a copy there is found all the same.
    fn hwcaps(&self) -> &'static [&'static str] {
        if self.arch == "x86_64" {
            &[
                "glibc-hwcaps/x86-64-v4",
                "glibc-hwcaps/x86-64-v3",
                "glibc-hwcaps/x86-64-v2",
            ]
        } else {
            &[]
        }
    }

    /// What a file is, and its ELF identity where it is a library for this machine.
    pub(super) fn look_at(&self, path: &str) -> (FileKind, u64, Option<Elf>) {
        match self.sysroot.stat(path) {
            Reading::Absent { .. } => return (FileKind::DanglingLink, 0, None),
            Reading::Unreadable { reason } => return (FileKind::Unreadable(reason), 0, None),
            Reading::Present { value, .. } if value.kind == Kind::Folder => {
                return (FileKind::NotElf("a folder".to_owned()), 0, None);
            }
            Reading::Present { .. } => {}
        }
        let file = match self.sysroot.file(path) {
            Reading::Present { value, .. } => value,
            Reading::Absent { .. } => return (FileKind::DanglingLink, 0, None),
            Reading::Unreadable { reason } => return (FileKind::Unreadable(reason), 0, None),
        };
        let size = crate::read::window::ReadAt::len(&file);
        match elf::identify(&file) {
            Shape::Elf(elf) if elf.arch != self.arch => {
                (FileKind::OtherArch(elf.arch.clone()), size, Some(elf))
            }
            Shape::Elf(elf) => (FileKind::Library, size, Some(elf)),
            other => (kind_of(path, &other), size, None),
        }
    }
}

/// What kind of file has this shape; whether it is for this machine is another question.
pub(super) fn kind_of(path: &str, shape: &Shape) -> FileKind {
    match shape {
        Shape::Unreadable(reason) => FileKind::Unreadable(format!("{path}: {reason}")),
        Shape::Empty => FileKind::Empty,
        Shape::Truncated(_) => FileKind::Truncated,
        Shape::NotElf(words) => FileKind::NotElf(words.clone()),
        Shape::Elf(_) => FileKind::Library,
    }
}

/// CUDA toolkit folders: `/usr/local/cuda*`, `/opt/cuda`, `/usr/lib/cuda`, links left out where their target is listed.
pub(super) fn toolkit_folders(sysroot: &Sysroot) -> Vec<String> {
    let mut folders: Vec<String> = sysroot
        .list("/usr/local", |name| name.starts_with("cuda"))
        .items()
        .iter()
        .map(|name| join("/usr/local", name))
        .collect();
    folders.extend(["/opt/cuda", "/usr/lib/cuda"].map(str::to_owned));
    let mut seen = Vec::new();
    folders.retain(|dir| match sysroot.real_path(dir) {
        Reading::Present { value, .. } if !seen.contains(&value) => {
            // `/usr/local/cuda` is listed before `/usr/local/cuda-12.4`: the real folder's name says more.
            seen.push(value);
            true
        }
        _ => false,
    });
    seen.sort_unstable();
    seen
}

/// Whether a file name is `prefix` followed by nothing or by a version: `libcuda.so`, `libcuda.so.1`,
/// `libcuda.so.550.54.14`; `libcuda.so.bak` is none.
pub(super) fn is_library_name(path: &str, prefix: &str) -> bool {
    file_name(path).strip_prefix(prefix).is_some_and(|rest| {
        rest.is_empty()
            || rest
                .strip_prefix('.')
                .is_some_and(|v| v.chars().all(|c| c.is_ascii_digit() || c == '.'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_names() {
        for (path, is) in [
            ("/usr/lib/libcuda.so", true),
            ("/usr/lib/libcuda.so.1", true),
            ("/usr/lib/libcuda.so.550.54.14", true),
            ("/usr/lib/libcuda.so.550.54.14.bak", false),
            ("/usr/lib/libcuda.so~", false),
        ] {
            assert_eq!(is_library_name(path, "libcuda.so"), is, "{path}");
        }
    }
}
