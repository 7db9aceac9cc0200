//! Every libcudart, how it is reached, and its version by file: (1) the real file's name, (2) the version constant in
//! its code, (3) the distribution that brought it. What it answers when called is `vendor`'s business.

use crate::facts::{Consumer, FileKind, ReachedBy, Reading, RuntimeCopy, Toolkit};
use crate::probe::application::Own;
use crate::probe::distributions::Named;
use crate::probe::loader::{Found, Loader, is_library_name, toolkit_folders};
use crate::probe::search_path::Site;
use crate::probe::unread;
use crate::read::{cudart, proc};
use crate::sysroot::{Sysroot, file_name, join};
use crate::version::Version;

const PREFIX: &str = "libcudart.so";

/// All copies: the environment's, those the loader finds, those in toolkit folders.
pub(super) fn copies(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    own: Own,
    consumer: &Consumer,
    sites: &[Site],
    named: &[Named],
) -> Reading<Vec<RuntimeCopy>> {
    let mut found: Vec<Found> = own.shared;
    if !sites.is_empty() {
        for dir in environment_folders(sysroot, consumer, sites) {
            // auditwheel renames what it copies: libcudart-80664282.so.10.2.89.
            let names = sysroot.list(&dir, |name| name.starts_with("libcudart"));
            found.extend(names.items().iter().map(|name| Found {
                path: join(&dir, name),
                by: ReachedBy::Environment,
            }));
        }
    }
    found.extend(loader.on_library_path(PREFIX));
    found.extend(loader.cached_with_prefix("libcudart.so."));
    found.extend(loader.elsewhere(PREFIX, &[]));

    let mut copies: Vec<RuntimeCopy> = own.inside;
    for Found { path, by } in found {
        let is_own = matches!(
            by,
            ReachedBy::Environment | ReachedBy::Program | ReachedBy::Process
        );
        let renamed = is_own && file_name(&path).contains(".so");
        if !is_library_name(&path, PREFIX) && !renamed || path.contains("/stubs/") {
            continue;
        }
        let real = match sysroot.real_path(&path) {
            Reading::Present { value, .. } => value,
            _ => path.clone(),
        };
        if let Some(copy) = copies.iter_mut().find(|c| c.real_path == real) {
            if by.is_live() && !copy.reached_by.contains(&by) {
                copy.reached_by.push(by);
            }
            continue;
        }
        copies.push(copy(sysroot, loader, named, path, real, by));
    }
    if let Some(reason) = unread::search_path(consumer, sites)
        && !copies
            .iter()
            .any(|copy| copy.reached_by.contains(&ReachedBy::Environment))
    {
        return Reading::unreadable(reason);
    }
    // Reached by nothing but a listing of a default folder: the loader does get it there.
    Reading::present(
        copies,
        "program or process, environment, LD_LIBRARY_PATH, ld.so.cache, toolkit folders",
    )
}

/// Folders of an environment that hold CUDA runtimes: those of NVIDIA's wheels, torch's own, what auditwheel copied,
/// conda's lib.
pub(super) fn environment_folders(
    sysroot: &Sysroot,
    consumer: &Consumer,
    sites: &[Site],
) -> Vec<String> {
    let mut dirs = Vec::new();
    for site in sites {
        if site.has_nvidia {
            let nvidia = join(&site.path, "nvidia");
            let parts = sysroot.list(&nvidia, |_| true);
            let parts = parts.items().iter();
            dirs.extend(parts.map(|name| format!("{nvidia}/{name}/lib")));
        }
        dirs.push(join(&site.path, "torch/lib"));
        dirs.extend(site.libs.iter().map(|name| join(&site.path, name)));
    }
    if let Some(prefix) = consumer
        .prefix
        .value()
        .filter(|p| *p != "/usr" && *p != "/usr/local")
    {
        dirs.push(join(prefix, "lib"));
        dirs.push(join(prefix, "targets/x86_64-linux/lib"));
    }
    dirs
}

/// One copy, read.
fn copy(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    named: &[Named],
    path: String,
    real: String,
    by: ReachedBy,
) -> RuntimeCopy {
    let (kind, _, identity) = loader.look_at(&path);
    let soname = match identity.and_then(|elf| elf.soname) {
        Some(soname) => Reading::present(soname, real.as_str()),
        None => Reading::absent(real.as_str()),
    };
    let mut versions = Vec::new();
    // The name of a real file has three parts; libcudart.so.12 and libcudart.so.11.0 are sonames.
    if let Some(version) = file_name(&real)
        .split_once(".so.")
        .and_then(|(_, v)| Version::parse(v))
        .filter(|v| v.len() >= 3)
    {
        versions.push((real.clone(), version));
    }
    if kind == FileKind::Library
        && let Some(version) = sysroot
            .file(&path)
            .value()
            .and_then(|file| cudart::version(file))
    {
        versions.push((format!("{real}: version constant in its code"), version));
    }
    // A file that is damaged says nothing of itself; its name does.
    let by_name = file_name(&real).to_owned();
    let owner = owner(named, &real, soname.value().or(Some(&by_name)));
    if let Some((name, version)) = owner.value().and_then(|owner| owner.rsplit_once(' '))
        && (name.contains("cuda-runtime") || name.contains("cudart"))
    {
        versions.extend(Version::parse(version).map(|v| (format!("distribution {name}"), v)));
    }
    let version = match versions.first() {
        Some((source, version)) => Reading::present(version.clone(), source),
        None => Reading::unreadable(format!("{path}: no version in name, code or package")),
    };
    RuntimeCopy {
        path,
        real_path: real,
        kind,
        soname,
        version,
        versions,
        owner,
        reached_by: vec![by],
    }
}

/// The distribution that brought a runtime: a wheel of NVIDIA's whose CUDA major is that of the soname, torch for what
/// lies in torch/lib, conda's package.
fn owner(named: &[Named], real: &str, soname: Option<&String>) -> Reading<String> {
    let major = soname
        .and_then(|s| s.strip_prefix("libcudart.so."))
        .and_then(Version::parse)
        .map(|v| v.major());
    let owner = named.iter().find(|dist| {
        let Some(inside) = real
            .strip_prefix(dist.site.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
        else {
            return false;
        };
        let in_torch = inside.starts_with("torch/");
        let same_major =
            major.is_some() && Version::parse(&dist.version).map(|v| v.major()) == major;
        match dist.name.as_str() {
            "torch" => in_torch,
            "cuda-cudart" | "cudatoolkit" => same_major,
            name => name.starts_with("nvidia-cuda-runtime") && same_major && !in_torch,
        }
    });
    match owner {
        Some(dist) => Reading::present(
            format!("{} {}", dist.name, dist.version),
            dist.metadata.as_str(),
        ),
        None => Reading::absent("dist-info folders, conda-meta"),
    }
}

/// Toolkits on disk, by the version file that they ship.
pub(super) fn toolkits(sysroot: &Sysroot) -> Reading<Vec<Toolkit>> {
    let toolkits = toolkit_folders(sysroot).into_iter().map(|path| {
        let json = sysroot.text_up_to(&join(&path, "version.json"), 1 << 14);
        let text = if json.is_absent() {
            sysroot.text(&join(&path, "version.txt"))
        } else {
            json
        };
        Toolkit {
            version: text.and_then("no version in it", |text| proc::cuda_toolkit_version(&text)),
            path,
        }
    });
    Reading::present(
        toolkits.collect(),
        "/usr/local/cuda*, /opt/cuda, /usr/lib/cuda",
    )
}
