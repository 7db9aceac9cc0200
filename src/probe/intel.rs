//! Intel's stack as files tell it: the loader of Level Zero and the driver that it opens, the runtime of SYCL that is needed.

use crate::facts::{Consumer, FileKind, IntelFacts, IntelLibrary, Reading, SyclNeed};
use crate::inspect::File;
use crate::probe::loader::Loader;
use crate::sysroot::{Sysroot, join, parent};
use crate::version::Version;

/// What is asked of the loader by name, and once more in the environment, where wheels put libraries.
const LOADER: &[&str] = &["libze_loader.so.1"];
/// The driver, and the one for GPUs that it no longer knows.
const DRIVER: &[&str] = &["libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1"];

/// The name of SYCL's runtime, up to its version.
const SYCL: &str = "libsycl.so.";
/// Where oneAPI is installed.
const ONEAPI: &str = "/opt/intel/oneapi";
/// Libraries of torch that need it, below site-packages.
const TORCH: [&str; 2] = ["torch/lib/libc10_xpu.so", "torch/lib/libtorch_xpu.so"];

/// Looks for all of it.
pub(super) fn probe(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    consumer: &Consumer,
    program: Option<&File>,
) -> IntelFacts {
    let prefix = consumer.prefix.value();
    let own = prefix.map(|prefix| join(prefix, "lib"));
    IntelFacts {
        level_zero_loader: found(sysroot, loader, LOADER, own.as_deref()),
        // The loader of Level Zero opens it by name, in whatever folder it lies itself.
        level_zero_driver: found(sysroot, loader, DRIVER, None),
        sycl: Reading::present(
            sycl(sysroot, loader, consumer, program),
            "needs of torch and of the program that was named",
        ),
    }
}

/// The runtimes of SYCL that are needed: (1) by the program, as the loader's search for it went, (2) by torch, which gets the one
/// of its environment's folder of libraries, where the wheel `intel-sycl-rt` puts it, or the loader's.
fn sycl(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    consumer: &Consumer,
    program: Option<&File>,
) -> Vec<SyclNeed> {
    let mut needs: Vec<SyclNeed> = Vec::new();
    let mut add = |soname: &str, user: &str, found: Reading<String>| {
        if needs.iter().any(|need| need.soname == soname) {
            return;
        }
        let elsewhere = found.is_absent().then(|| of_oneapi(sysroot, soname));
        needs.push(SyclNeed {
            soname: soname.to_owned(),
            user: user.to_owned(),
            found,
            elsewhere: elsewhere.flatten(),
        });
    };
    if let Some(program) = program {
        for need in &program.needed {
            if need.soname.starts_with(SYCL) {
                let found = match &need.resolved {
                    Some(path) => Reading::present(path.clone(), need.by.as_str()),
                    None => Reading::absent(need.by.as_str()),
                };
                add(&need.soname, &program.path, found);
            }
        }
    }
    for site in &consumer.site_packages {
        for place in TORCH {
            let path = join(site, place);
            if !sysroot.exists(&path) {
                continue;
            }
            let (_, _, Some(elf)) = loader.look_at(&path) else {
                continue;
            };
            for soname in elf.needed.iter().filter(|name| name.starts_with(SYCL)) {
                // Four folders up from torch's own: the one of the environment.
                let own = [parent(&path), parent(parent(site))];
                let own = own.map(|dir| join(dir, soname)).into_iter();
                let mut own = own.filter(|path| sysroot.exists(path));
                let found = match own.next() {
                    Some(path) => Reading::present(path, "the environment"),
                    None => searched(
                        loader,
                        soname,
                        elf.runpath.as_deref().or(elf.rpath.as_deref()),
                    ),
                };
                add(soname, &path, found);
            }
        }
    }
    needs
}

/// What the loader finds by a name.
fn searched(loader: &Loader<'_>, soname: &str, runpath: Option<&str>) -> Reading<String> {
    let (copies, refused) = loader.search(soname);
    match (copies.into_iter().next(), refused) {
        (Some(copy), _) => Reading::present(copy.path, copy.by.describe()),
        (None, Some(reason)) => Reading::unreadable(reason),
        // Where a path of its own leads was not followed.
        (None, None)
            if runpath.is_some_and(|path| path.split(':').any(|dir| dir.starts_with('/'))) =>
        {
            Reading::unreadable(format!(
                "{soname}: the search path of its user was not followed"
            ))
        }
        (None, None) => Reading::absent(format!(
            "{soname}: environment, LD_LIBRARY_PATH, ld.so.cache, default folders"
        )),
    }
}

/// A library of this name in a release of oneAPI's compiler, the newest one first.
fn of_oneapi(sysroot: &Sysroot, soname: &str) -> Option<String> {
    let dir = join(ONEAPI, "compiler");
    let releases = sysroot.list(&dir, |name| name.starts_with(|c: char| c.is_ascii_digit()));
    let mut releases: Vec<&String> = releases.items().iter().collect();
    releases.sort_by_key(|name| std::cmp::Reverse(Version::parse(name)));
    // Releases up to 2023 have a folder for the system.
    let mut places = releases.into_iter().flat_map(|release| {
        ["lib", "linux/lib"].map(|below| format!("{dir}/{release}/{below}/{soname}"))
    });
    places.find(|path| sysroot.exists(path))
}

/// The first of these names that leads to a library for this machine, else the first that leads to a file.
fn found(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    names: &[&str],
    own: Option<&str>,
) -> Reading<IntelLibrary> {
    let mut other = None;
    let mut refused = None;
    for name in names {
        let (copies, reason) = loader.search(name);
        refused = refused.or(reason);
        let own = own.map(|dir| join(dir, name));
        let own = own.filter(|path| sysroot.lstat(path).is_present());
        for path in own.into_iter().chain(copies.into_iter().map(|f| f.path)) {
            let (kind, _, _) = loader.look_at(&path);
            let is_library = kind == FileKind::Library;
            let library = IntelLibrary {
                real_path: match sysroot.real_path(&path) {
                    Reading::Present { value, .. } => value,
                    _ => path.clone(),
                },
                path,
                kind,
            };
            if is_library {
                let source = library.path.clone();
                return Reading::present(library, source);
            }
            other.get_or_insert(library);
        }
    }
    match (other, refused) {
        (Some(library), _) => {
            let source = library.path.clone();
            Reading::present(library, source)
        }
        (None, Some(reason)) => Reading::unreadable(reason),
        (None, None) => Reading::absent(format!(
            "{}: LD_LIBRARY_PATH, ld.so.cache, default folders",
            names.join(", ")
        )),
    }
}
