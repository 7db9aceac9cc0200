//! What the vendor libraries and `open()` answer on a described host, as the child that asks them would record it.
//!
//! The answers follow from the tree (which file the loader takes) and from what the host says in `dlopen`, `stubs` and
//! `open`. Nothing is loaded or opened.

mod gpus;
mod libraries;

use std::collections::BTreeMap;

use gpudoctor::facts::{
    Calls, Confinement, LibraryAnswers, OpenAnswer, Reading, User, VendorFacts,
};
use libraries::{Cuda, cudart, nvml};
pub use libraries::{cuda_major, runtime_level};

use super::host::{ElfFile, Host};
use super::loader::{Loaded, Loader};
use super::python::prefix_of;
use super::tree::Tree;

const LIBCUDA: &str = "libcuda.so.1";
const LIBNVIDIA_ML: &str = "libnvidia-ml.so.1";

/// Whether calls with side effects are made: only where a driver seems to be loaded.
pub fn calls(host: &Host, tree: &Tree) -> Calls {
    if is_static(host) {
        return Calls::Forbidden;
    }
    let loaded = [
        "/sys/module/nvidia",
        "/proc/driver/nvidia/version",
        "/sys/module/nvgpu",
    ];
    let in_kernel = host
        .files
        .get("/proc/modules")
        .is_some_and(|text| text.lines().any(|l| l.starts_with("nvgpu ")));
    let by_node = host
        .nodes
        .iter()
        .any(|node| node.path == "/dev/dxg" || node.path.starts_with("/dev/nvgpu/"));
    // In a sandbox the module cannot be seen; the control device and a GPU's node together tell.
    let has = |path: &str| host.nodes.iter().any(|node| node.path == path);
    let by_node = by_node || has("/dev/nvidiactl") && has("/dev/nvidia0");
    if in_kernel || by_node || loaded.iter().any(|path| tree.resolve(path).is_some()) {
        if all_asleep(host) {
            Calls::Asleep
        } else {
            Calls::Made
        }
    } else {
        Calls::NoDriver
    }
}

/// Whether no library may be called there: as on a system whose libraries this program could not load.
fn is_static(host: &Host) -> bool {
    host.args.iter().any(|arg| arg == "--static")
}

/// Whether a node is one of the DRM subsystem, or AMD's.
fn is_drm(path: &str) -> bool {
    path == "/dev/kfd" || path.starts_with("/dev/dri/")
}

/// Whether `/proc/modules` lists a module.
fn has_module(host: &Host, name: &str) -> bool {
    let modules = host.files.get("/proc/modules");
    modules.is_some_and(|text| text.lines().any(|l| l.split(' ').next() == Some(name)))
}

/// Whether every GPU that the driver lists sleeps: then nobody wakes it.
fn all_asleep(host: &Host) -> bool {
    let mut addresses = gpus::listed(host).peekable();
    addresses.peek().is_some()
        && addresses.all(|address| {
            let path = format!("/sys/bus/pci/devices/{address}/power/runtime_status");
            host.files
                .get(&path)
                .is_some_and(|status| status.trim() == "suspended")
        })
}

/// All answers.
pub fn vendor(
    host: &Host,
    loader: &Loader<'_>,
    environment: &BTreeMap<String, String>,
    user: &User,
    calls: Calls,
) -> VendorFacts {
    if is_static(host) {
        let none = || "not asked: --static".to_owned();
        return VendorFacts {
            libcuda: Reading::unreadable(none()),
            libcuda_unhidden: Reading::unreadable(none()),
            libnvidia_ml: Reading::unreadable(none()),
            cudart: Reading::unreadable(none()),
            hip: Reading::unreadable(none()),
            hsa: Reading::unreadable(none()),
            opens: Reading::unreadable(none()),
            drm_opens: Reading::unreadable(none()),
            confined: Reading::unreadable(none()),
        };
    }
    let tree = loader.tree;
    let made = calls == Calls::Made;
    let driver = match loader.open(LIBCUDA) {
        Loaded::File(path) => Some(Cuda::of(host, described(loader, host, &path))),
        Loaded::Missing | Loaded::Refused(_) => None,
    };
    let cudart: Vec<_> = cudart_files(host, loader, environment)
        .into_iter()
        .map(|(path, file)| cudart(&path, runtime_level(host, file), driver.as_ref(), made))
        .collect();
    let libcuda = ask(host, loader, LIBCUDA, |path, file| {
        Cuda::of(host, file).answers(path, host, made)
    });
    // A host says what happens in the failing process. Where that sees no GPU and has the variable, it is what hides them.
    let hidden = environment.contains_key("CUDA_VISIBLE_DEVICES")
        && (libcuda.value()).is_some_and(|answers| answers.code("cuInit") == Some(100));
    VendorFacts {
        libcuda_unhidden: if hidden {
            ask(host, loader, LIBCUDA, |path, file| {
                Cuda::of(host, file)
                    .unhidden(host)
                    .answers(path, host, made)
            })
        } else {
            Reading::absent("asked only where CUDA_VISIBLE_DEVICES is set and no GPU was seen")
        },
        libcuda,
        // NVML has nothing to say without init calls.
        libnvidia_ml: if made {
            ask(host, loader, LIBNVIDIA_ML, |path, file| {
                nvml(path, host, file, driver.as_ref())
            })
        } else {
            Reading::unreadable("not asked: no driver seems loaded")
        },
        cudart: if cudart.is_empty() {
            Reading::absent("no libcudart is reached")
        } else {
            Reading::present(cudart, "the runtimes that are reached")
        },
        // No library of ROCm is called where nothing can be loaded: what it would answer is in no description.
        hip: Reading::unreadable("not asked"),
        hsa: Reading::unreadable("not asked"),
        opens: if made {
            Reading::present(opens(host, user, |path| !is_drm(path)), "open()")
        } else {
            Reading::unreadable("not opened: no driver seems loaded")
        },
        drm_opens: if tree.resolve("/sys/module/amdgpu").is_some() || has_module(host, "amdgpu") {
            Reading::present(opens(host, user, is_drm), "open()")
        } else {
            Reading::unreadable("not opened: no driver for them seems loaded")
        },
        confined: Reading::present(
            Confinement {
                no_new_privs: true,
                read_only_dev: user.uid == 0,
                dropped_capabilities: user.uid == 0,
                ..Confinement::default()
            },
            "the child",
        ),
    }
}

/// Loads `name` and asks the file that the loader takes.
fn ask(
    host: &Host,
    loader: &Loader<'_>,
    name: &str,
    answers: impl Fn(&str, &ElfFile) -> LibraryAnswers,
) -> Reading<LibraryAnswers> {
    match loader.open(name) {
        Loaded::Missing => Reading::absent(format!("the loader's search for {name}")),
        Loaded::Refused(path) => Reading::absent(format!("{path}: no library that can be loaded")),
        Loaded::File(path) => {
            Reading::present(answers(&path, described(loader, host, &path)), path.clone())
        }
    }
}

/// The entry of the host that describes the file at `path`.
fn described<'a>(loader: &Loader<'_>, host: &'a Host, path: &str) -> &'a ElfFile {
    let real = loader.tree.resolve(path);
    let found = host
        .elf
        .iter()
        .find(|file| loader.tree.resolve(&file.path) == real);
    found.unwrap_or_else(|| {
        panic!(
            "{}: {path} is a library that no `elf` entry describes",
            host.case
        )
    })
}

/// The libcudart files that the consumer reaches: those inside its environment, then what its loader finds.
fn cudart_files<'a>(
    host: &'a Host,
    loader: &Loader<'_>,
    environment: &BTreeMap<String, String>,
) -> Vec<(String, &'a ElfFile)> {
    let all: Vec<&ElfFile> = host
        .elf
        .iter()
        .filter(|file| file_name(&file.path).starts_with("libcudart.so"))
        .collect();
    let mut folders: Vec<String> = host
        .python
        .iter()
        .map(|distribution| format!("{}/", distribution.site))
        .collect();
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        folders.extend(environment.get(name).map(|prefix| format!("{prefix}/lib/")));
    }
    if let Some((prefix, _)) = host.python.first().and_then(|first| prefix_of(&first.site)) {
        // A system interpreter's libraries are found by the loader, or not at all.
        if !["/usr", "/usr/local"].contains(&prefix) {
            folders.push(format!("{prefix}/lib/"));
        }
    }
    let mut found: Vec<(String, &ElfFile)> = all
        .iter()
        .filter(|file| folders.iter().any(|folder| file.path.starts_with(folder)))
        .map(|file| (file.path.clone(), *file))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let mut sonames: Vec<&str> = all.iter().map(|file| file.soname.as_str()).collect();
    sonames.sort_unstable();
    sonames.dedup();
    for soname in sonames {
        let Loaded::File(path) = loader.open(soname) else {
            continue;
        };
        let file = described(loader, host, &path);
        if found.iter().all(|(_, known)| known.path != file.path) {
            found.push((path, file));
        }
    }
    found
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// What opening the nodes answers: what the host says; else what the mode bits say. Nodes of MIG capabilities are
/// opened by nobody who only looks.
fn opens(host: &Host, user: &User, wanted: impl Fn(&str) -> bool) -> Vec<OpenAnswer> {
    let mut answers = Vec::new();
    for node in host.nodes.iter().filter(|node| wanted(&node.path)) {
        let fact = node.fact();
        let result = match host.open.get(&node.path) {
            Some(told) => told.as_str(),
            None if node.path.starts_with("/dev/nvidia-caps/") => continue,
            None if user.may_read_write(fact.mode, fact.uid, fact.gid) => "ok",
            None => "EACCES",
        };
        answers.push(OpenAnswer {
            path: node.path.clone(),
            result: result.to_owned(),
        });
    }
    answers
}
