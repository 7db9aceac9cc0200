//! `ROCm` on disk: releases, the libraries that the consumer can get, and the kernels that rocBLAS and hipBLASLt load when they run.

use std::collections::BTreeMap;

use crate::facts::{
    AmdFacts, ApplicationFacts, KernelFolder, ReachedBy, Reading, RocmLibrary, RocmNeed,
    RocmRelease,
};
use crate::probe::loader::{Found, Loader, is_library_name};
use crate::probe::resolve::{self, Resolver};
use crate::probe::search_path::Site;
use crate::read::icd::stem;
use crate::read::rocm;
use crate::sysroot::{Sysroot, file_name, join, parent};
use crate::version::Version;

/// The libraries that are looked for, by the start of their file names.
const NAMES: [&str; 4] = [
    "libamdhip64",
    "libhsa-runtime64",
    "librocblas",
    "libhipblaslt",
];
/// The two that all the others need: HIP's runtime, and the HSA runtime below it.
const LOWEST: [&str; 2] = ["libamdhip64", "libhsa-runtime64"];
/// Libraries that load kernels from a folder, what they are called, that folder below the library's, and the variable that names
/// another one.
const LOADERS: [(&str, &str, &str, &str); 2] = [
    (
        "librocblas",
        "rocBLAS",
        "rocblas/library",
        "ROCBLAS_TENSILE_LIBPATH",
    ),
    (
        "libhipblaslt",
        "hipBLASLt",
        "hipblaslt/library",
        "HIPBLASLT_TENSILE_LIBPATH",
    ),
];

/// Releases below `/opt`, each once.
pub(super) fn releases(sysroot: &Sysroot) -> Reading<Vec<RocmRelease>> {
    sysroot
        .list("/opt", |name| name == "rocm" || name.starts_with("rocm-"))
        .map(|names| {
            let mut found: Vec<RocmRelease> = Vec::new();
            for name in names {
                let path = join("/opt", &name);
                let Reading::Present { value: real, .. } = sysroot.real_path(&path) else {
                    continue;
                };
                if found.iter().any(|release| release.path == real) {
                    continue;
                }
                let file = join(&real, ".info/version");
                // 6.4.1-83: what follows is the number of the build.
                let version = sysroot.text(&file).and_then("no version in it", |text| {
                    Version::parse(text.trim().split('-').next()?)
                });
                // An empty folder that a package left behind is no release.
                if version.is_present() || sysroot.exists(&join(&real, "lib")) {
                    found.push(RocmRelease {
                        path: real,
                        version,
                    });
                }
            }
            found
        })
}

/// Where the consumer's own copies may lie.
pub(in crate::probe) struct Where<'a> {
    /// The folders of the environment.
    pub(in crate::probe) sites: &'a [Site],
    /// The environment's own folder of libraries.
    pub(in crate::probe) own: Option<String>,
    /// The program or process that was named.
    pub(in crate::probe) application: &'a ApplicationFacts,
    /// The caller's environment.
    pub(in crate::probe) env: &'a BTreeMap<String, String>,
}

/// Libraries, what is lacking among them, and folders of kernels.
pub(in crate::probe) fn libraries(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    at: &Where<'_>,
) -> AmdFacts {
    let is_ours = |name: &str| NAMES.iter().any(|start| name.starts_with(start));
    let mut found: Vec<Found> = Vec::new();
    if let Some(program) = at.application.program.value() {
        let resolved = program.needed.iter().filter_map(|n| n.resolved.clone());
        found.extend(
            resolved
                .filter(|path| is_ours(file_name(path)))
                .map(|path| Found {
                    path,
                    by: ReachedBy::Program,
                }),
        );
    }
    if let Some(process) = at.application.process.value() {
        let mapped = process.mapped.items().iter();
        found.extend(
            mapped
                .filter(|m| is_ours(file_name(&m.path)))
                .map(|m| Found {
                    path: m.path.clone(),
                    by: ReachedBy::Process,
                }),
        );
    }
    let own = at.own.clone();
    for dir in environment_folders(sysroot, at.sites)
        .into_iter()
        .chain(own)
    {
        let names = sysroot.list(&dir, |name| is_ours(name) && name.contains(".so"));
        found.extend(names.items().iter().map(|name| Found {
            path: join(&dir, name),
            by: ReachedBy::Environment,
        }));
    }
    for dir in loader.library_path() {
        let names = sysroot.list(dir, |name| is_ours(name) && name.contains(".so"));
        found.extend(names.items().iter().map(|name| Found {
            path: join(dir, name),
            by: ReachedBy::LdLibraryPath(dir.clone()),
        }));
    }
    found.extend(loader.cached(&NAMES));
    // Without a cache the libraries of a distribution lie in a default folder, and AMD's own in theirs.
    let unlisted = if loader.has_cache() {
        Vec::new()
    } else {
        loader.default_folders()
    };
    for dir in unlisted {
        let names = sysroot.list(&dir, |name| is_ours(name) && name.contains(".so."));
        found.extend(names.items().iter().map(|name| Found {
            path: join(&dir, name),
            by: ReachedBy::DefaultPath,
        }));
    }
    let opt = sysroot.list("/opt", |name| name == "rocm" || name.starts_with("rocm-"));
    for name in opt.items() {
        let dir = format!("/opt/{name}/lib");
        let names = sysroot.list(&dir, |name| is_ours(name) && name.contains(".so."));
        found.extend(names.items().iter().map(|name| Found {
            path: join(&dir, name),
            by: ReachedBy::KnownPlace,
        }));
    }
    let mut all: Vec<RocmLibrary> = Vec::new();
    for Found { path, by } in found {
        let Some(name) = NAMES.iter().find(|name| is_copy(&path, name, &by)) else {
            continue;
        };
        let real = match sysroot.real_path(&path) {
            Reading::Present { value, .. } => value,
            _ => path.clone(),
        };
        match all.iter_mut().find(|copy| copy.real_path == real) {
            Some(copy) if by.is_live() && !copy.reached_by.contains(&by) => {
                copy.reached_by.push(by);
            }
            Some(_) => {}
            None => all.push(library(loader, name, path, real, by)),
        }
    }
    let kernels = kernel_folders(sysroot, at.env, &all);
    let lacking = lacking(sysroot, loader, at, &all);
    let place =
        "program or process, environment, LD_LIBRARY_PATH, ld.so.cache, default folders, /opt/rocm";
    AmdFacts {
        libraries: Reading::present(all, place),
        lacking: Reading::present(lacking, place),
        kernels: Reading::present(kernels, "beside rocBLAS and hipBLASLt"),
        ..AmdFacts::default()
    }
}

/// What torch needs of HIP, and HIP of the HSA runtime, where no file of that name is among those that were found, and the loader
/// finds none by the search path of whoever needs it.
fn lacking(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    at: &Where<'_>,
    all: &[RocmLibrary],
) -> Vec<RocmNeed> {
    let torch = at.sites.iter();
    let torch = torch.map(|site| join(&site.path, "torch/lib/libtorch_hip.so"));
    let hip = all.iter().filter(|copy| {
        copy.name == LOWEST[0]
            && (copy.is_reached() || copy.reached_by.contains(&ReachedBy::Environment))
    });
    let users: Vec<String> = torch
        .filter(|path| sysroot.exists(path))
        .chain(hip.map(|copy| copy.path.clone()))
        .collect();
    let mut found = Vec::new();
    for user in users {
        let (_, _, Some(elf)) = loader.look_at(&user) else {
            continue;
        };
        let is_here = |soname: &String| {
            all.iter().any(|copy| {
                file_name(&copy.path) == soname
                    || file_name(&copy.real_path) == soname
                    || copy.soname.value() == Some(soname)
            })
        };
        let mut wanted = elf
            .needed
            .iter()
            .filter(|soname| LOWEST.contains(&stem(soname)) && !is_here(soname))
            .peekable();
        if wanted.peek().is_none() {
            continue;
        }
        let search = resolve::Environment {
            library_path: at.env.get("LD_LIBRARY_PATH").cloned(),
            ..resolve::Environment::default()
        };
        let Some(closure) = Resolver::new(sysroot, &search).closure(&user) else {
            continue;
        };
        for soname in wanted {
            let mut needs = closure.needs.iter().filter(|need| need.object == 0);
            let need = needs.find(|need| need.soname == *soname && need.found.is_none());
            found.extend(need.map(|need| RocmNeed {
                soname: soname.clone(),
                user: user.clone(),
                by: need.by.clone(),
            }));
        }
    }
    found
}

/// Whether a file is a copy of this library: `libamdhip64.so.6`, and `libamdhip64.so` of a wheel. A link for linking
/// (`libamdhip64.so` in a folder of the loader) leads to the same file.
fn is_copy(path: &str, name: &str, by: &ReachedBy) -> bool {
    is_library_name(path, &format!("{name}.so"))
        || *by == ReachedBy::Environment && file_name(path).starts_with(&format!("{name}-"))
}

/// Folders of an environment that hold libraries of `ROCm`: torch's own, and those of AMD's wheels.
fn environment_folders(sysroot: &Sysroot, sites: &[Site]) -> Vec<String> {
    let mut dirs = Vec::new();
    for site in sites {
        dirs.push(join(&site.path, "torch/lib"));
        let parts = sysroot.list(&site.path, |name| name.starts_with("_rocm_sdk_"));
        let parts = parts.items().iter();
        dirs.extend(parts.map(|name| format!("{}/{name}/lib", site.path)));
    }
    dirs
}

fn library(
    loader: &Loader<'_>,
    name: &str,
    path: String,
    real: String,
    by: ReachedBy,
) -> RocmLibrary {
    let (kind, _, identity) = loader.look_at(&path);
    let told = rocm::library_version(file_name(&real));
    let version = |version: Option<Version>| match version {
        Some(version) => Reading::present(version, real.as_str()),
        None => Reading::absent(format!("{real}: its name")),
    };
    RocmLibrary {
        name: name.to_owned(),
        soname: match identity.and_then(|elf| elf.soname) {
            Some(soname) => Reading::present(soname, real.as_str()),
            None => Reading::absent(real.as_str()),
        },
        version: version(told.as_ref().map(|(own, _)| own.clone())),
        release: version(told.and_then(|(_, release)| release)),
        kind,
        path,
        real_path: real,
        reached_by: vec![by],
    }
}

/// Folders of kernels of the libraries that were found.
fn kernel_folders(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    libraries: &[RocmLibrary],
) -> Vec<KernelFolder> {
    let mut folders: Vec<KernelFolder> = Vec::new();
    for (file, name, below, variable) in LOADERS {
        let named = env.get(variable).filter(|dir| dir.starts_with('/'));
        for library in libraries.iter().filter(|library| library.name == file) {
            let own = join(parent(&library.real_path), below);
            let (path, named_by) = match named {
                Some(dir) => (dir.clone(), Some(variable.to_owned())),
                None => (own, None),
            };
            if let Some(folder) = folders
                .iter_mut()
                .find(|folder| folder.path == path && folder.library == name)
            {
                folder.reached_by.extend(library.reached_by.iter().cloned());
                continue;
            }
            let names = sysroot.list(&path, |_| true);
            let targets = rocm::kernel_targets(names.items().iter().map(String::as_str));
            // A folder without any kernel is not the one that this build loads from.
            if !targets.is_empty() {
                folders.push(KernelFolder {
                    library: name.to_owned(),
                    path,
                    targets,
                    reached_by: library.reached_by.clone(),
                    named_by,
                });
            }
        }
    }
    folders
}
