//! What the loaders of Vulkan and `OpenCL` are told of drivers: the files that name a library each, and where that name leads.

use std::collections::BTreeMap;

use crate::facts::{FileKind, Icd, IcdFacts, Reading};
use crate::probe::loader::Loader;
use crate::read::icd;
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};

/// Where Vulkan's loader looks by itself, in its order; `NixOS`'s last.
const VULKAN: [&str; 6] = [
    "/etc/xdg/vulkan/icd.d",
    "/usr/local/etc/vulkan/icd.d",
    "/etc/vulkan/icd.d",
    "/usr/local/share/vulkan/icd.d",
    "/usr/share/vulkan/icd.d",
    "/run/opengl-driver/share/vulkan/icd.d",
];
/// Where `OpenCL`'s loaders look by themselves.
const OPENCL: &str = "/etc/OpenCL/vendors";
/// The most files of one kind that are read; Mesa brings about ten.
const MOST: usize = 64;

/// A file, and the variable that names it.
type Named = (String, Option<String>);

/// The files of both, each once.
pub(super) fn probe(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    env: &BTreeMap<String, String>,
) -> IcdFacts {
    IcdFacts {
        vulkan: vulkan(sysroot, env).map(|files| {
            let one = |(path, named_by): Named| {
                let text = sysroot.text(&path);
                let read = text.and_then("names no library", |text| icd::vulkan(&text));
                let bits = read.value().and_then(|read| read.bits.clone());
                let library = read.map(|read| read.library);
                let mut found = driver(sysroot, loader, path, named_by, library, true);
                found.for_32_bit |= bits.as_deref() == Some("32");
                found
            };
            files.into_iter().map(one).collect()
        }),
        opencl: opencl(sysroot, env).map(|files| {
            let one = |(path, named_by): Named| {
                let text = sysroot.text(&path);
                let library = text.and_then("names no library", |text| icd::opencl(&text));
                driver(sysroot, loader, path, named_by, library, false)
            };
            files.into_iter().map(one).collect()
        }),
    }
}

/// Files of one ending in a folder.
fn files_in(
    sysroot: &Sysroot,
    dir: &str,
    ending: &str,
    named_by: Option<&str>,
) -> Reading<Vec<Named>> {
    let names = sysroot.list(dir, |name| name.ends_with(ending));
    names.map(|names| {
        let paths = names.iter().map(|name| join(dir, name));
        paths
            .map(|path| (path, named_by.map(str::to_owned)))
            .collect()
    })
}

/// Files of several places as one list; unreadable only where nothing was found and a place could not be read.
fn together(all: Vec<Reading<Vec<Named>>>, looked: &str) -> Reading<Vec<Named>> {
    let mut files: Vec<Named> = Vec::new();
    let mut refused = None;
    for reading in all {
        match reading {
            Reading::Present { value, .. } => {
                for file in value {
                    if files.len() < MOST && !files.iter().any(|(path, _)| *path == file.0) {
                        files.push(file);
                    }
                }
            }
            Reading::Absent { .. } => {}
            Reading::Unreadable { reason } => {
                refused.get_or_insert(reason);
            }
        }
    }
    match refused {
        Some(reason) if files.is_empty() => Reading::unreadable(reason),
        _ => Reading::present(files, looked),
    }
}

/// What a variable lists: files, and folders of them.
fn listed(sysroot: &Sysroot, value: &str, variable: &str) -> Vec<Reading<Vec<Named>>> {
    let entries = value.split(':').filter(|entry| entry.starts_with('/'));
    entries
        .map(|entry| match sysroot.stat(entry).value() {
            Some(stat) if stat.kind == Kind::Folder => {
                files_in(sysroot, entry, ".json", Some(variable))
            }
            _ => Reading::present(vec![(entry.to_owned(), Some(variable.to_owned()))], entry),
        })
        .collect()
}

/// Manifests of Vulkan: (1) `VK_DRIVER_FILES`, else its old name `VK_ICD_FILENAMES`, in place of all folders; (2)
/// `VK_ADD_DRIVER_FILES` before the folders of XDG's variables and those of the system.
fn vulkan(sysroot: &Sysroot, env: &BTreeMap<String, String>) -> Reading<Vec<Named>> {
    let set = |name: &'static str| {
        let value = env.get(name).filter(|value| !value.is_empty());
        value.map(|value| (name, value.as_str()))
    };
    if let Some((name, value)) = set("VK_DRIVER_FILES").or_else(|| set("VK_ICD_FILENAMES")) {
        return together(listed(sysroot, value, name), name);
    }
    let mut all = Vec::new();
    if let Some((name, value)) = set("VK_ADD_DRIVER_FILES") {
        all.extend(listed(sysroot, value, name));
    }
    let home = |below: &str| env.get("HOME").map(|home| join(home, below));
    let own = [
        env.get("XDG_CONFIG_HOME")
            .cloned()
            .or_else(|| home(".config")),
        env.get("XDG_DATA_HOME")
            .cloned()
            .or_else(|| home(".local/share")),
    ];
    let own = own.into_iter().flatten();
    let data = env.get("XDG_DATA_DIRS").map_or("", String::as_str);
    let extra = own.chain(data.split(':').map(str::to_owned));
    let extra = extra
        .filter(|dir| dir.starts_with('/'))
        .map(|dir| join(dir.trim_end_matches('/'), "vulkan/icd.d"));
    for dir in extra.chain(VULKAN.map(str::to_owned)) {
        all.push(files_in(sysroot, &dir, ".json", None));
    }
    together(all, "vulkan/icd.d in /etc, /usr/share and XDG's folders")
}

/// Files of `OpenCL`: those of `OCL_ICD_VENDORS` (a folder, or one file), else of `/etc/OpenCL/vendors`.
fn opencl(sysroot: &Sysroot, env: &BTreeMap<String, String>) -> Reading<Vec<Named>> {
    let name = "OCL_ICD_VENDORS";
    let value = env.get(name).filter(|value| !value.is_empty());
    let all = match value {
        Some(file) if file.strip_suffix(".icd").is_some() => {
            let path = if file.starts_with('/') {
                file.clone()
            } else {
                join(OPENCL, file)
            };
            Reading::present(vec![(path, Some(name.to_owned()))], name)
        }
        Some(dir) if dir.starts_with('/') => {
            files_in(sysroot, dir.trim_end_matches('/'), ".icd", Some(name))
        }
        Some(_) => Reading::unreadable(format!("{name}: a path from the working folder")),
        None => files_in(sysroot, OPENCL, ".icd", None),
    };
    together(vec![all], value.map_or(OPENCL, |_| name))
}

/// A driver, with the file that its library's name leads to.
fn driver(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    path: String,
    named_by: Option<String>,
    library: Reading<String>,
    from_own_folder: bool,
) -> Icd {
    let name = file_name(&path);
    let for_32_bit = ["i386", "i686", "32.json", "32.icd"]
        .iter()
        .any(|part| name.contains(part));
    let (file, kind) = match &library {
        Reading::Present { value, .. } if value.starts_with('/') => at(loader, value),
        Reading::Present { value, .. } if value.contains('/') && from_own_folder => {
            match sysroot.real_path(&join(parent(&path), value)) {
                Reading::Present { value, .. } => at(loader, &value),
                Reading::Absent { source } => (Reading::absent(source), FileKind::DanglingLink),
                Reading::Unreadable { reason } => (Reading::unreadable(reason), FileKind::Unknown),
            }
        }
        Reading::Present { value, .. } if value.contains('/') => {
            let why = format!("{path}: a path from the working folder");
            (Reading::unreadable(why), FileKind::Unknown)
        }
        Reading::Present { value, .. } => searched(loader, value),
        other => (Reading::unreadable(other.source()), FileKind::Unknown),
    };
    Icd {
        path,
        library,
        for_32_bit,
        file,
        kind,
        named_by,
    }
}

/// The file at a path.
fn at(loader: &Loader<'_>, path: &str) -> (Reading<String>, FileKind) {
    match loader.look_at(path).0 {
        FileKind::DanglingLink => (Reading::absent(path), FileKind::DanglingLink),
        kind => (Reading::present(path.to_owned(), path), kind),
    }
}

/// The file that the loader takes for a name: the first one for this machine, else the first that is there.
fn searched(loader: &Loader<'_>, name: &str) -> (Reading<String>, FileKind) {
    let (found, refused) = loader.search(name);
    let mut first = None;
    for found in &found {
        let (kind, _, _) = loader.look_at(&found.path);
        let taken = kind == FileKind::Library;
        if taken || first.is_none() {
            first = Some((found, kind));
        }
        if taken {
            break;
        }
    }
    match (first, refused) {
        (Some((found, kind)), _) => (
            Reading::present(found.path.clone(), found.by.describe()),
            kind,
        ),
        (None, Some(reason)) => (Reading::unreadable(reason), FileKind::Unknown),
        (None, None) => (
            Reading::absent(format!(
                "{name}: LD_LIBRARY_PATH, ld.so.cache, default folders"
            )),
            FileKind::DanglingLink,
        ),
    }
}
