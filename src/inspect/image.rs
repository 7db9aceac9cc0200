//! What a container image holds beside its files: how it is started, which system and frameworks are in it, what it asks
//! of its host, and which files of a driver it should not have.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{File, Kind, is_cuda_library, look};
use crate::facts::{self, CompatNote};
use crate::image::{self, Image, Passing};
use crate::probe::resolve::Resolver;
use crate::probe::{is_known_framework, kept_variables};
use crate::read::fatbin::Look;
use crate::read::window::{ReadAt, bytes_up_to};
use crate::read::{elf, needs, oci, pages, proc, pydist, recipes};
use crate::sysroot::{self, Sysroot, file_name, join, parent};
use crate::version::Version;

use super::gather::{is_binary, is_surely_binary, is_wheel, may_be_binary};

/// How a need is met that the container's host brings: the libraries of the driver are put into it when it is started.
pub(super) const FROM_HOST: &str = "of the driver, which the host brings";
/// The most folders of Python packages that are listed.
const MAX_SITES: usize = 64;
/// The most packages that are told.
const MAX_PACKAGES: usize = 500;
/// The most that is kept of the files of an image, unless all are asked for: a library or a program counts as
/// [`LIBRARY`], anything else as one. 5,000 libraries take 72 MB.
const MAX_KEPT: usize = 20_000;
/// What a library counts for beside a cubin: it takes some 11 KB.
const LIBRARY: usize = 4;
/// The most files of a driver that are told.
const MAX_DRIVER_FILES: usize = 100;

/// A container image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ImageFacts {
    /// `docker-archive`, `oci-archive`, `oci-layout`, `root-filesystem`.
    pub form: String,
    /// A name that it goes by.
    pub name: Option<String>,
    /// The processor that it says it is for, as `uname -m` writes it.
    pub arch: Option<String>,
    /// Its layers, the lowest first.
    pub layers: Vec<Layer>,
    /// How many files there are in it.
    pub files: u64,
    /// The variables that programs in it start with, of those that matter here; absent where the image has no
    /// configuration.
    pub environment: Option<BTreeMap<String, String>>,
    /// `Ubuntu 22.04.5 LTS`.
    pub system: Option<String>,
    /// The version of its C library.
    pub glibc: Option<Version>,
    /// The CUDA toolkits or runtimes in it, by the version files of their folders.
    pub toolkits: Vec<Toolkit>,
    /// Python packages that have to do with the GPU.
    pub packages: Vec<Package>,
    /// Forward-compatibility packages: newer copies of libcuda that the container toolkit may put before the host's.
    pub compat: Vec<Compat>,
    /// Files of a driver that came into the image and belong to a host.
    pub driver_files: Vec<DriverFile>,
    /// The libcuda in the image itself that its `LD_LIBRARY_PATH` leads to, before the one that the host brings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_libcuda: Option<OwnLibcuda>,
    /// Loaders that programs in it name, and that are not in it. Not told where layers are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loaders_missing: Vec<String>,
    /// For which other processors its index has an image, as `uname -m` writes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_archs: Vec<String>,
}

/// A libcuda in an image that is found before the host's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OwnLibcuda {
    /// Where it is found: `/usr/local/cuda/lib64/stubs/libcuda.so.1`.
    pub path: String,
    /// The file that this leads to.
    pub real_path: String,
    /// What it is.
    pub kind: OwnKind,
    /// The version of the driver that it is of, by its name.
    pub version: Option<Version>,
}

/// What a libcuda in an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OwnKind {
    /// A stub to link against.
    Stub,
    /// One under the name `libcuda.so` alone, which few programs open.
    StubByShortName,
    /// Of a package for forward compatibility.
    Compat,
    /// Of a driver.
    Driver,
}

/// A layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Layer {
    /// Its digest, or its path in the archive.
    pub name: String,
    /// `gzip`, `zstd`; absent where it is not packed.
    pub packing: Option<String>,
    /// Bytes as it lies there.
    pub size_bytes: u64,
    /// How many members it has, those included that take something away.
    pub members: u64,
    /// Its digest was computed, and is the one that it should have. Of layers that are not packed that takes `--deep`.
    pub checked: bool,
}

/// A toolkit's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Toolkit {
    /// `/usr/local/cuda-12.4`.
    pub path: String,
    /// Its version.
    pub version: Version,
}

/// A Python package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Package {
    /// `torch`.
    pub name: String,
    /// `2.6.0+cu124`.
    pub version: String,
    /// The folder that it is installed in.
    pub place: String,
}

/// A copy of libcuda for forward compatibility.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Compat {
    /// `/usr/local/cuda-12.4/compat/libcuda.so.550.54.15`.
    pub path: String,
    /// The version of the driver that it is of.
    pub version: Option<Version>,
    /// What its own note says; absent where it has none that can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<CompatNote>,
    /// Who puts it before the host's libcuda.
    pub taken_by: TakenBy,
    /// The compiler for PTX lies beside it.
    pub compiles_ptx: bool,
}

/// Who puts a compat libcuda of an image before its host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TakenBy {
    /// The image's `LD_LIBRARY_PATH`, whatever the driver.
    LibraryPath,
    /// The container toolkit, which looks into `/usr/local/cuda/compat`, on older drivers.
    Toolkit,
    /// The image's own start script, where it works: images of NGC keep it in `compat/lib.real`.
    StartScript,
    /// Nobody.
    #[default]
    Nobody,
}

/// A file of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverFile {
    /// Its path in the image.
    pub path: String,
    /// The version in its name.
    pub version: Version,
    /// In bytes; 0 of what a mount left behind when the image was made from a running container.
    pub size_bytes: u64,
}

/// The files of an image that were looked at as they came by, by layer and place.
#[derive(Default)]
pub struct Looked {
    files: BTreeMap<(u64, u64), File>,
    plain: BTreeSet<(u64, u64)>,
    /// The notes of copies of libcuda.
    notes: BTreeMap<(u64, u64), CompatNote>,
    /// The names by which libraries in it are needed, and those of their files.
    pub(super) libraries: BTreeSet<String>,
}

/// What is known of a file of an image.
pub(super) enum Known {
    /// It was looked at, and is worth a line.
    File(Box<File>),
    /// It was looked at, and is not.
    Plain,
    /// It is no binary.
    NoBinary,
}

impl Looked {
    /// What is known of a file.
    pub(super) fn take(&mut self, identity: (u64, u64)) -> Known {
        match self.files.remove(&identity) {
            Some(file) => Known::File(Box::new(file)),
            None if self.plain.contains(&identity) => Known::Plain,
            None => Known::NoBinary,
        }
    }
}

/// Reads an image, and looks at its binaries as they come by.
pub(super) fn read(
    sysroot: &Sysroot,
    path: &str,
    arch: &str,
    how: Look,
    all: bool,
    progress: &dyn Fn(u64, &str),
) -> Result<(Image, Looked), String> {
    let looked = RefCell::new(Looked::default());
    let mut count = 0;
    let (mut kept, mut left_out) = (0, 0);
    let mut show = |passing: &Passing<'_>| {
        // A pack of gigabytes without a single binary takes as long.
        progress(count, passing.place);
        let is_made_up = ["/proc/", "/sys/", "/dev/"]
            .iter()
            .any(|folder| passing.path.starts_with(folder));
        let name = file_name(passing.path);
        if is_made_up || !may_be_binary(name) || is_wheel(name) {
            return false;
        }
        if !is_surely_binary(passing.path) && !is_binary(&bytes_up_to(passing.file, 0, 8)) {
            return false;
        }
        count += 1;
        progress(count, &format!("{}: {}", passing.place, passing.path));
        let one = look(passing.file, passing.path, how);
        ask_ahead(passing.kept, &one);
        let mut looked = looked.borrow_mut();
        if one.kind == Kind::SharedLibrary {
            looked.libraries.extend(one.soname.clone());
            looked.libraries.insert(name.to_owned());
        }
        if is_libcuda(&one)
            && let Some(Ok(note)) = elf::compat_note(passing.file)
        {
            looked.notes.insert(passing.identity, note);
        }
        let is_again = matches!(one.kind, Kind::SharedLibrary | Kind::Program);
        let is_told = all || one.is_gpu() || one.is_damaged();
        if is_told && (all || kept < MAX_KEPT) {
            kept += if is_again { LIBRARY } else { 1 };
            looked.files.insert(passing.identity, one);
        } else {
            left_out += usize::from(is_told);
            looked.plain.insert(passing.identity);
        }
        is_again
    };
    let mut image = image::open_for(sysroot, path, arch, how.deep, &mut show)?;
    if left_out > 0 {
        image.problems.push(format!(
            "holds more files with device code than are told of one image: {left_out} are not judged"
        ));
    }
    Ok((image, looked.into_inner()))
}

/// Asks what will be asked of a library once all files are known, so that those pages are kept: what it needs and has for
/// the loader, and of one that others look for symbols in, the tables of them.
fn ask_ahead(file: &dyn ReadAt, one: &File) {
    /// The most bytes of tables; those of libraries that others look into have 20 to 200 KB.
    const MAX_TABLES: u64 = 1 << 20;
    const PAGE: u64 = pages::PAGE as u64;
    if !matches!(one.kind, Kind::SharedLibrary | Kind::Program) {
        return;
    }
    elf::identify(file);
    needs::loading(file);
    needs::version_needs(file);
    needs::version_definitions(file);
    if one.identity.is_some() {
        recipes::identify_quickly(file, one.soname.as_deref(), file_name(&one.path));
    }
    if one.is_gpu() {
        needs::undefined_symbols_of(file, |library| library.is_some_and(is_cuda_library));
    }
    if one.soname.as_deref().is_some_and(is_cuda_library) {
        let tables = elf::symbol_tables(file);
        let bytes: u64 = tables.iter().map(|table| table.end - table.start).sum();
        let pages = tables.into_iter().filter(|_| bytes <= MAX_TABLES);
        for at in pages.flat_map(|table| table.start / PAGE..=table.end / PAGE) {
            bytes_up_to(file, at * PAGE, 1);
        }
    }
}

/// The variables of an image's configuration.
pub(crate) fn variables(image: &Image) -> BTreeMap<String, String> {
    let config = image.described.config.as_ref();
    let run = config.and_then(|config| config.config.as_ref());
    let env = run.and_then(|run| run.env.as_ref());
    env.into_iter()
        .flatten()
        .filter_map(|line| {
            let (name, value) = line.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect()
}

/// What an image holds.
pub(super) fn facts(
    image: &Image,
    root: &Sysroot,
    resolver: &Resolver<'_>,
    files: &[File],
    looked: &Looked,
) -> ImageFacts {
    let described = &image.described;
    let library_path = variables(image)
        .remove("LD_LIBRARY_PATH")
        .unwrap_or_default();
    let own_libcuda = own_libcuda(root, &library_path);
    let config = described.config.as_ref();
    let os = ["/etc/os-release", "/usr/lib/os-release"]
        .iter()
        .find_map(|path| root.text(path).value().map(|text| proc::os_release(text)));
    let system = os.map(|os| {
        if os.pretty_name.is_empty() {
            format!("{} {}", os.id, os.version_id).trim().to_owned()
        } else {
            os.pretty_name
        }
    });
    let arch = config
        .map(|config| config.architecture.as_str())
        .filter(|architecture| !architecture.is_empty());
    ImageFacts {
        form: described.form.clone(),
        name: described.name.clone(),
        arch: arch.map(|architecture| oci::arch(architecture).to_owned()),
        layers: described
            .layers
            .iter()
            .map(|layer| Layer {
                name: layer.name.clone(),
                packing: layer.packing.clone(),
                size_bytes: layer.size,
                members: layer.members,
                checked: layer.checked,
            })
            .collect(),
        files: image.tree.files(),
        environment: config.map(|_| kept_variables(&variables(image))),
        system: system.filter(|system| !system.is_empty()),
        glibc: resolver.glibc(),
        toolkits: toolkits(root),
        packages: packages(image, root),
        compat: compat(files, root, own_libcuda.as_ref(), looked),
        driver_files: driver_files(root, own_libcuda.as_ref()),
        own_libcuda,
        loaders_missing: loaders_missing(image, root, files),
        other_archs: described.other_archs.clone(),
    }
}

/// The loaders that programs name and that are not there.
fn loaders_missing(image: &Image, root: &Sysroot, files: &[File]) -> Vec<String> {
    if image.is_partial {
        return Vec::new();
    }
    let programs = files.iter().filter(|file| file.kind == Kind::Program);
    let named: BTreeSet<&str> = programs
        .filter_map(|file| file.interpreter.as_deref())
        .collect();
    let missing = named.into_iter().filter(|path| !root.exists(path));
    missing.map(str::to_owned).collect()
}

/// Folders of the loader in which the container's tools put the host's libraries: what is found in one of them is found where
/// the host's is.
const HOSTS_FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/lib64",
    "/lib",
];

/// The libcuda that the variable leads to. A folder that is not there, or that a link leads out to nowhere, is passed over,
/// as the loader does.
fn own_libcuda(root: &Sysroot, library_path: &str) -> Option<OwnLibcuda> {
    let mut by_short_name = None;
    for folder in library_path.split([':', ';']) {
        if !folder.starts_with('/') {
            continue;
        }
        let folder = folder.trim_end_matches('/');
        let real = root.real_path(folder).value().cloned();
        if HOSTS_FOLDERS
            .iter()
            .any(|hosts| real.as_deref() == Some(*hosts))
        {
            break;
        }
        let at = |name: &str| {
            let path = join(folder, name);
            let stat = root.stat(&path);
            let stat = stat.value()?;
            if stat.kind != sysroot::Kind::File || stat.size_bytes == 0 {
                return None;
            }
            let real_path = root.real_path(&path).value().cloned()?;
            let paths = [path.as_str(), real_path.as_str()];
            let kind = if paths.iter().any(|path| facts::is_in_stubs(path)) {
                OwnKind::Stub
            } else if paths.iter().any(|path| facts::is_in_compat(path)) {
                OwnKind::Compat
            } else {
                OwnKind::Driver
            };
            Some(OwnLibcuda {
                version: is_of_driver(file_name(&real_path)),
                kind,
                path,
                real_path,
            })
        };
        if let Some(found) = at("libcuda.so.1") {
            return Some(found);
        }
        if by_short_name.is_none() {
            by_short_name = at("libcuda.so").filter(|own| own.kind == OwnKind::Stub);
        }
    }
    by_short_name.map(|own| OwnLibcuda {
        kind: OwnKind::StubByShortName,
        ..own
    })
}

fn toolkits(root: &Sysroot) -> Vec<Toolkit> {
    const BELOW: &str = "/usr/local";
    let names = root.list(BELOW, |name| name == "cuda" || name.starts_with("cuda-"));
    let mut found: Vec<Toolkit> = Vec::new();
    let mut seen = BTreeSet::new();
    for name in names.items() {
        let path = join(BELOW, name);
        let real = root.real_path(&path).value().cloned();
        if !real.is_some_and(|real| seen.insert(real)) {
            continue;
        }
        let version = ["version.json", "version.txt"].iter().find_map(|file| {
            let text = root.text_up_to(&join(&path, file), 64 << 10);
            proc::cuda_toolkit_version(text.value()?)
        });
        found.extend(version.map(|version| Toolkit { path, version }));
    }
    found
}

/// Python packages that have to do with the GPU, by the names of their records.
fn packages(image: &Image, root: &Sysroot) -> Vec<Package> {
    let mut found = BTreeSet::new();
    let sites = image
        .tree
        .folders_named(&["site-packages", "dist-packages"]);
    for site in sites.into_iter().take(MAX_SITES) {
        let names = root.list(&site, |name| name.ends_with(".dist-info"));
        for name in names.items() {
            let Some((name, version)) = pydist::from_dist_info_dir(name) else {
                continue;
            };
            let normalised = pydist::normalised(&name);
            let is_told = normalised.starts_with("nvidia-") || is_known_framework(&normalised);
            if is_told && found.len() < MAX_PACKAGES {
                found.insert(Package {
                    name: normalised,
                    version,
                    place: site.clone(),
                });
            }
        }
    }
    found.into_iter().collect()
}

fn is_libcuda(file: &File) -> bool {
    let identity = file.identity.as_ref();
    identity.is_some_and(|identity| identity.name == "libcuda")
}

fn compat(
    files: &[File],
    root: &Sysroot,
    own: Option<&OwnLibcuda>,
    looked: &Looked,
) -> Vec<Compat> {
    /// Where the container toolkit looks.
    const BY_TOOLKIT: &str = "/usr/local/cuda/compat";
    let by_toolkit = root.real_path(BY_TOOLKIT).value().cloned();
    let all = files.iter().filter(|file| is_libcuda(file));
    all.filter(|file| facts::is_in_compat(&file.path))
        .map(|file| {
            let folder = parent(&file.path);
            let stat = root.stat(&file.path);
            let note = stat.value().and_then(|s| looked.notes.get(&s.identity));
            let beside = root.list(folder, |name| {
                name.starts_with("libnvidia-ptxjitcompiler.so.")
            });
            Compat {
                version: file.identity.as_ref().and_then(|i| i.version.clone()),
                note: note.cloned(),
                taken_by: if own.is_some_and(|own| own.real_path == file.path) {
                    TakenBy::LibraryPath
                } else if by_toolkit.as_deref() == Some(folder) {
                    TakenBy::Toolkit
                } else if file_name(folder) == "lib.real" {
                    TakenBy::StartScript
                } else {
                    TakenBy::Nobody
                },
                compiles_ptx: !beside.items().is_empty(),
                path: file.path.clone(),
            }
        })
        .collect()
}

/// Files of a driver in the folders of the loader: the container toolkit puts the host's there. Links are followed, such as
/// those of Debian's alternatives; and what `LD_LIBRARY_PATH` leads to is one of them.
fn driver_files(root: &Sysroot, own: Option<&OwnLibcuda>) -> Vec<DriverFile> {
    let mut found: Vec<DriverFile> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut add = |path: &str| {
        let stat = root.stat(path);
        let real = root.real_path(path);
        let (Some(stat), Some(real)) = (stat.value(), real.value()) else {
            return;
        };
        if stat.kind == sysroot::Kind::File
            && !facts::is_in_compat(real)
            && !facts::is_in_stubs(real)
            && found.len() < MAX_DRIVER_FILES
            && let Some(version) = is_of_driver(file_name(real))
            && seen.insert(real.clone())
        {
            found.push(DriverFile {
                path: real.clone(),
                version,
                size_bytes: stat.size_bytes,
            });
        }
    };
    for dir in HOSTS_FOLDERS
        .iter()
        .chain(&["/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"])
    {
        let names = root.list(dir, |name| {
            is_of_driver(name).is_some() || matches!(name, "libcuda.so.1" | "libnvidia-ml.so.1")
        });
        for name in names.items() {
            add(&join(dir, name));
        }
    }
    if let Some(own) = own.filter(|own| own.kind == OwnKind::Driver) {
        add(&own.path);
    }
    found
}

/// The driver's version in the name of one of its libraries: `libcuda.so.550.163.01`. Other libraries of these names have
/// lower versions: `libnvidia-container.so.1.17.8`, `libnvidia-egl-wayland.so.1.1.11`.
fn is_of_driver(name: &str) -> Option<Version> {
    const FIRST_BRANCH: u32 = 300;
    let (stem, version) = name.split_once(".so.")?;
    let is_ours = matches!(stem, "libcuda" | "libnvcuvid" | "libnvoptix")
        || stem.starts_with("libnvidia-")
        || stem.starts_with("libcudadebugger");
    let version = Version::parse(version).filter(|v| v.major() >= FIRST_BRANCH && v.len() >= 2)?;
    is_ours.then_some(version)
}

/// Whether a library is one of the driver's, which a container takes from its host.
pub(super) fn is_brought_by_host(soname: &str) -> bool {
    [
        "libcuda.so",
        "libnvidia-",
        "libnvcuvid.so",
        "libnvoptix.so",
        "libcudadebugger.so",
        "libGLX_nvidia.so",
        "libEGL_nvidia.so",
    ]
    .iter()
    .any(|stem| soname.starts_with(stem))
}
