//! The NVIDIA driver as files tell it: the module in the kernel and on disk, its device nodes, the libraries of its
//! user space, its services.
//!
//! All sources of one fact are kept, since a disagreement between them is a finding: `/sys/module/nvidia/version` and
//! `/proc/driver/nvidia/version` are the module that runs, `.modinfo` is the module on disk, file names and contents
//! are user space.

use crate::facts::{
    DeviceNode, DiskModule, DkmsTree, DriverFacts, FabricManager, Facts, FileKind, Flavour,
    GspFirmware, LibraryCopy, LoadedModule, MigInstance, Mps, NvidiaModprobe, ProcVersion,
    ReachedBy, Reading, VgpuLicence,
};
use crate::probe::consumer::has_extension;
use crate::probe::loader::{Found, Loader, is_library_name};
use crate::probe::system::package_version;
use crate::read::{elf, kmod, proc};
use crate::sysroot::{Kind, Stat, Sysroot, file_name, join};
use crate::version::Version;

/// Bytes of a log's end that are searched: the newest days of a busy machine.
const LOG_CAP: usize = 256 << 10;
/// Lines kept of a failed build's log.
const BUILD_ERRORS: usize = 5;

/// A library of the driver's user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Library {
    /// libcuda: the CUDA driver API.
    Cuda,
    /// libnvidia-ml: NVML.
    Nvml,
}

impl Library {
    /// Every file name begins with this.
    fn prefix(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so",
            Self::Nvml => "libnvidia-ml.so",
        }
    }

    /// What programs open.
    fn soname(self) -> &'static str {
        match self {
            Self::Cuda => "libcuda.so.1",
            Self::Nvml => "libnvidia-ml.so.1",
        }
    }
}

/// The module in the kernel: (1) `/sys/module/nvidia/version`, (2) `/proc/driver/nvidia/version`, (3) `/proc/modules`.
/// Debian may call it `nvidia_current`.
pub(super) fn loaded(
    sysroot: &Sysroot,
) -> (
    Reading<Version>,
    Reading<ProcVersion>,
    Reading<Vec<LoadedModule>>,
) {
    let version = |name: &str| {
        sysroot
            .text(&format!("/sys/module/{name}/version"))
            .and_then("no version", |text| Version::parse(&text))
    };
    let sys = match version("nvidia") {
        Reading::Absent { source } => match version("nvidia_current") {
            Reading::Absent { .. } => Reading::Absent { source },
            other => other,
        },
        other => other,
    };
    let proc_version = sysroot
        .text("/proc/driver/nvidia/version")
        .and_then("no version in it", |text| proc::nvidia_version(&text));
    let modules = sysroot.text_up_to("/proc/modules", 1 << 20).map(|text| {
        let mut modules = proc::modules(&text);
        modules.retain(|m| bears_on_gpus(&m.name));
        modules
    });
    (sys, proc_version, modules)
}

/// Whether a module's name bears on GPUs.
fn bears_on_gpus(name: &str) -> bool {
    [
        "nvidia",
        "nouveau",
        "nova",
        "vfio",
        "nvgpu",
        "amdgpu",
        "amdkcl",
        "i915",
        "xe",
        "gdrdrv",
        "dxgkrnl",
        "simpledrm",
    ]
    .iter()
    .any(|p| *p == "xe" && name == "xe" || *p != "xe" && name.starts_with(p))
}

/// Whether a driver seems loaded, so that there is somebody to ask: a module, WSL's device, Tegra's, or the nodes of a
/// GPU and of the control device together. A lone `/dev/nvidiactl` is what a CUDA program leaves behind on any machine.
pub(super) fn seems_loaded(sysroot: &Sysroot, driver: &DriverFacts) -> bool {
    driver.module_loaded() == Some(true)
        || ["/dev/dxg", "/dev/nvhost-gpu", "/dev/nvgpu"]
            .iter()
            .any(|path| sysroot.lstat(path).is_present())
        || driver.has_module("nvgpu") == Some(true)
        || (driver.node("/dev/nvidiactl").is_some()
            && driver
                .nodes
                .items()
                .iter()
                .any(|n| gpu_minor(&n.path).is_some()))
}

/// N of `/dev/nvidiaN`.
pub(super) fn gpu_minor(path: &str) -> Option<u32> {
    path.strip_prefix("/dev/nvidia")?.parse().ok()
}

/// Device nodes, by `stat` alone.
pub(super) fn nodes(sysroot: &Sysroot) -> Reading<Vec<DeviceNode>> {
    let mut paths: Vec<String> = match sysroot.list("/dev", |name| {
        name.starts_with("nvidia") || ["dxg", "nvhost-gpu", "nvmap", "kfd"].contains(&name)
    }) {
        Reading::Present { value, .. } => value.iter().map(|name| join("/dev", name)).collect(),
        Reading::Absent { source } => return Reading::absent(source),
        Reading::Unreadable { reason } => return Reading::unreadable(reason),
    };
    for dir in [
        "/dev/nvidia-caps",
        "/dev/nvidia-caps-imex-channels",
        "/dev/nvgpu/igpu0",
    ] {
        paths.extend(
            sysroot
                .list(dir, |_| true)
                .items()
                .iter()
                .map(|name| join(dir, name)),
        );
    }
    let nodes = paths.iter().filter_map(|path| node(sysroot, path));
    Reading::present(nodes.collect(), "/dev")
}

/// A device node, by `stat` alone; `None` where there is none, or a folder.
pub(super) fn node(sysroot: &Sysroot, path: &str) -> Option<DeviceNode> {
    let stat: Stat = sysroot.stat(path).value()?.clone();
    (stat.kind != Kind::Folder).then(|| DeviceNode {
        path: path.to_owned(),
        is_char: stat.kind == Kind::CharDevice,
        major: stat.rdev.0,
        minor: stat.rdev.1,
        mode: stat.mode & 0o777,
        uid: stat.uid,
        gid: stat.gid,
        acl: if sysroot.is_live() {
            acl(path)
        } else {
            Reading::unreadable("not asked: another root is read")
        },
    })
}

/// Whether a node has an access control list beyond its mode bits.
fn acl(path: &str) -> Reading<bool> {
    match rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 0]) {
        Ok(size) => Reading::present(size > 0, path),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => {
            Reading::present(false, path)
        }
        Err(e) => Reading::unreadable(format!("{path}: {e}")),
    }
}

/// Every copy of a driver library, in the loader's order first. A copy is a real file; its names are collected.
pub(super) fn library_copies(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    library: Library,
) -> Reading<Vec<LibraryCopy>> {
    let (reached, refused) = loader.search(library.soname());
    let elsewhere = loader.elsewhere(library.prefix(), &reached);
    let mut copies: Vec<LibraryCopy> = Vec::new();
    // A link-time stub is called libcuda.so only, and some programs open that name: it counts as reached there.
    let by_short_name = loader.on_library_path(library.prefix());
    for Found { path, by } in reached.iter().chain(&by_short_name).chain(&elsewhere) {
        if !is_library_name(path, library.prefix()) {
            continue;
        }
        let real = match sysroot.real_path(path) {
            Reading::Present { value, .. } => value,
            _ => path.clone(),
        };
        if let Some(copy) = copies.iter_mut().find(|c| c.real_path == real) {
            if by.is_live() && !copy.reached_by.contains(by) {
                copy.reached_by.push(by.clone());
            }
            continue;
        }
        copies.push(library_copy(sysroot, loader, library, path, &real, by));
    }
    // The loader takes the first file for the soname that is no library for another machine.
    for Found { path, .. } in &reached {
        let Some(copy) = copies
            .iter_mut()
            .find(|c| c.path == *path || sysroot.real_path(path).value() == Some(&c.real_path))
        else {
            continue;
        };
        if matches!(copy.kind, FileKind::OtherArch(_) | FileKind::DanglingLink) {
            continue;
        }
        copy.chosen = true;
        break;
    }
    if let Some(reason) = refused.filter(|_| !copies.iter().any(|c| c.chosen)) {
        return Reading::unreadable(reason);
    }
    if copies.is_empty() {
        Reading::absent("LD_LIBRARY_PATH, ld.so.cache, default folders, known places")
    } else {
        Reading::present(copies, "the loader's search")
    }
}

/// One copy, read.
fn library_copy(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    library: Library,
    path: &str,
    real: &str,
    by: &ReachedBy,
) -> LibraryCopy {
    let (kind, size_bytes, identity) = loader.look_at(path);
    let file = || sysroot.file(path);
    let from_name = driver_version_in_name(file_name(real));
    let version = match from_name {
        Some(version) => Reading::present(version, real),
        None if kind == FileKind::Library => {
            file().and_then("no driver version in it", |file| match library {
                Library::Cuda => elf::libcuda_driver_version(&file),
                Library::Nvml => elf::libnvidia_ml_version(&file),
            })
        }
        None => Reading::unreadable(format!("{path}: {}", describe(&kind))),
    };
    let compat = if kind == FileKind::Library && library == Library::Cuda {
        match file() {
            Reading::Present { value, .. } => match elf::compat_note(&value) {
                Some(Ok(note)) => {
                    Reading::present(note, format!("{real}: .note.cuda.fwd_compatibility"))
                }
                Some(Err(reason)) => {
                    Reading::unreadable(format!("{real}: .note.cuda.fwd_compatibility: {reason}"))
                }
                None => Reading::absent(real),
            },
            Reading::Absent { source } => Reading::absent(source),
            Reading::Unreadable { reason } => Reading::unreadable(reason),
        }
    } else {
        Reading::absent(real)
    };
    LibraryCopy {
        path: path.to_owned(),
        real_path: real.to_owned(),
        size_bytes,
        soname: match identity.and_then(|elf| elf.soname) {
            Some(soname) => Reading::present(soname, real),
            None => Reading::absent(real),
        },
        kind,
        version,
        compat,
        reached_by: vec![by.clone()],
        chosen: false,
        package: Reading::default(),
    }
}

/// A file kind in words.
fn describe(kind: &FileKind) -> String {
    match kind {
        FileKind::Library => "a library".to_owned(),
        FileKind::OtherArch(arch) => format!("a library for {arch}"),
        FileKind::Empty => "empty".to_owned(),
        FileKind::Truncated => "truncated".to_owned(),
        FileKind::NotElf(words) => words.clone(),
        FileKind::DanglingLink => "a link that leads nowhere".to_owned(),
        FileKind::Unreadable(reason) => reason.clone(),
        FileKind::Unknown => "not recorded".to_owned(),
    }
}

/// The driver version in `libcuda.so.550.54.14`; `libcuda.so.1` and Tegra's `libcuda.so.1.1` carry none.
fn driver_version_in_name(name: &str) -> Option<Version> {
    let (_, suffix) = name.split_once(".so.")?;
    Version::parse(suffix).filter(|v| v.major() >= 100)
}

/// The rest of the layer.
pub(super) fn probe(sysroot: &Sysroot, facts: &mut Facts) {
    let release = facts.system.kernel_release.value().cloned();
    let mps_directory = facts
        .environment
        .value()
        .and_then(|env| env.get("CUDA_MPS_PIPE_DIRECTORY"))
        .filter(|path| !path.is_empty())
        .cloned();
    let driver = &mut facts.driver;
    let has_nvidia = facts
        .hardware
        .pci
        .items()
        .iter()
        .any(|d| d.vendor == crate::facts::VENDOR_NVIDIA);
    let has_switch = facts
        .hardware
        .pci
        .items()
        .iter()
        .any(crate::facts::PciDevice::is_nvswitch)
        || !facts.hardware.nvswitch_driver.items().is_empty();
    let packages = facts.system.packages.items();
    let involved = has_nvidia
        || driver.module_loaded() != Some(false)
        || packages.iter().any(|p| p.name.contains("nvidia"));

    driver.majors = sysroot
        .text_up_to("/proc/devices", 1 << 16)
        .map(|text| proc::char_devices(&text));
    driver.params = sysroot
        .text_up_to("/proc/driver/nvidia/params", 1 << 14)
        .map(|text| proc::params(&text));
    driver.gpus = sysroot
        .list("/proc/driver/nvidia/gpus", |_| true)
        .map(|addresses| {
            let information = |address: &String| {
                sysroot
                    .text(&format!("/proc/driver/nvidia/gpus/{address}/information"))
                    .value()
                    .map(|text| proc::gpu_information(address, text))
            };
            addresses.iter().filter_map(information).collect()
        });
    driver.mig_instances = mig_instances(sysroot);
    driver.vgpu_licence = vgpu_licence(sysroot, driver.gpus.items());
    driver.modprobe = modprobe(sysroot);
    driver.dkms = dkms(sysroot, "nvidia");
    if let Some(release) = &release {
        driver.modules_dep = modules_dep(sysroot, release);
        driver.kernel_headers = match sysroot.real_path(&format!("/lib/modules/{release}/build")) {
            Reading::Absent { .. } => {
                sysroot.real_path(&format!("/usr/lib/modules/{release}/build"))
            }
            other => other,
        };
        let agreed = agreed_version(driver);
        driver.disk_modules = disk_modules(sysroot, release, &driver.modules_dep, agreed.as_ref());
        driver.disk_module_kernels = other_kernels(sysroot, release);
    } else {
        let reason = format!(
            "kernel release unknown: {}",
            facts.system.kernel_release.source()
        );
        driver.modules_dep = Reading::unreadable(&reason);
        driver.kernel_headers = Reading::unreadable(&reason);
        driver.disk_modules = Reading::unreadable(&reason);
        driver.disk_module_kernels = Reading::unreadable(&reason);
    }
    driver.nvidia_modprobe = sysroot
        .stat("/usr/bin/nvidia-modprobe")
        .map(|stat| NvidiaModprobe {
            path: "/usr/bin/nvidia-modprobe".to_owned(),
            setuid: stat.mode & 0o4000 != 0 && stat.uid == 0,
        });
    driver.persistenced_socket = socket(sysroot, "/run/nvidia-persistenced/socket");
    driver.fabric_manager = fabric_manager(sysroot, has_switch);
    driver.mps = mps(sysroot, mps_directory);
    driver.gsp_firmware = sysroot
        .list("/lib/firmware/nvidia", |name| {
            Version::parse(name).is_some_and(|v| v.major() >= 100)
        })
        .map(|versions| {
            versions
                .into_iter()
                .map(|version| {
                    let dir = join("/lib/firmware/nvidia", &version);
                    GspFirmware {
                        files: sysroot
                            .list(&dir, |name| name.starts_with("gsp"))
                            .items()
                            .to_vec(),
                        version,
                    }
                })
                .collect()
        });
    driver.kernel_log = if involved {
        kernel_log(sysroot, proc::kernel_log)
    } else {
        Reading::unreadable("not read: no NVIDIA part here")
    };
    for copies in [&mut driver.libcuda, &mut driver.libnvidia_ml] {
        if let Reading::Present { value, .. } = copies {
            for copy in value {
                copy.package = owner(sysroot, copy, &facts.system.packages);
            }
        }
    }
}

/// The version that loaded module and user space agree on; then a compressed module need not be unpacked.
fn agreed_version(driver: &DriverFacts) -> Option<Version> {
    let (loaded, _) = driver.loaded_version()?;
    let agrees = |copies: &Reading<Vec<LibraryCopy>>| {
        copies
            .items()
            .iter()
            .find(|c| c.chosen)
            .is_none_or(|c| c.version.value() == Some(loaded))
    };
    let any = driver
        .libcuda
        .items()
        .iter()
        .chain(driver.libnvidia_ml.items())
        .any(|c| c.chosen);
    (any && agrees(&driver.libcuda) && agrees(&driver.libnvidia_ml)).then(|| loaded.clone())
}

/// MIG instances: the folders below `capabilities/gpuN/mig`. The table of minors lists every possible one instead.
fn mig_instances(sysroot: &Sysroot) -> Reading<Vec<MigInstance>> {
    const CAPABILITIES: &str = "/proc/driver/nvidia/capabilities";
    let numbered = |name: &str, prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let mut instances = Vec::new();
    let mut add = |name: String, dir: &str| {
        let source = join(dir, "access");
        let minor = sysroot.text(&source).value().and_then(|text| {
            text.lines()
                .find_map(|line| line.strip_prefix("DeviceFileMinor:")?.trim().parse().ok())
        });
        if let Some(minor) = minor {
            instances.push(MigInstance {
                name,
                minor,
                source,
            });
        }
    };
    let gpus = sysroot.list(CAPABILITIES, |name| numbered(name, "gpu"));
    for gpu in gpus.items() {
        let mig = format!("{CAPABILITIES}/{gpu}/mig");
        for gi in sysroot.list(&mig, |name| numbered(name, "gi")).items() {
            let dir = join(&mig, gi);
            add(format!("{gpu}/{gi}"), &dir);
            for ci in sysroot.list(&dir, |name| numbered(name, "ci")).items() {
                add(format!("{gpu}/{gi}/{ci}"), &join(&dir, ci));
            }
        }
    }
    gpus.map(|_| instances)
}

/// A socket, where there is one.
fn socket(sysroot: &Sysroot, path: &str) -> Reading<String> {
    sysroot.stat(path).and_then("no socket", |stat| {
        (stat.kind == Kind::Socket).then(|| path.to_owned())
    })
}

/// Folders below `/lib/modules/RELEASE` where nvidia modules are put by DKMS, akmods, distributions and the installer.
const MODULE_FOLDERS: &[&str] = &[
    "updates/dkms",
    "updates",
    "extra",
    "extra/nvidia",
    "weak-updates",
    "weak-updates/nvidia",
    "kernel/drivers/video",
    "kernel/drivers/video/nvidia",
    "misc",
    "nvidia",
];

/// Where module trees lie: the usual place, and that of NixOS.
pub(super) fn module_roots(release: &str) -> [String; 3] {
    [
        format!("/lib/modules/{release}"),
        format!("/usr/lib/modules/{release}"),
        format!("/run/booted-system/kernel-modules/lib/modules/{release}"),
    ]
}

/// nvidia's lines of `modules.dep`.
fn modules_dep(sysroot: &Sysroot, release: &str) -> Reading<Vec<String>> {
    for root in module_roots(release) {
        match sysroot.text_up_to(&join(&root, "modules.dep"), 4 << 20) {
            Reading::Absent { .. } => {}
            other => return other.map(|text| proc::modules_dep(&text)),
        }
    }
    Reading::absent(format!("/lib/modules/{release}/modules.dep"))
}

/// Whether a file name is an nvidia module's: `nvidia.ko`, `nvidia-uvm.ko.zst`, `nvidia-current-open.ko`.
fn module_name(name: &str) -> Option<&str> {
    let stem = name.split(".ko").next().filter(|stem| *stem != name)?;
    (stem == "nvidia" || stem.starts_with("nvidia-") || stem.starts_with("nvidia_")).then_some(stem)
}

/// nvidia modules on disk for a kernel: (1) those that `modules.dep` names, (2) those in the usual folders.
fn disk_modules(
    sysroot: &Sysroot,
    release: &str,
    dep: &Reading<Vec<String>>,
    agreed: Option<&Version>,
) -> Reading<Vec<DiskModule>> {
    let mut modules: Vec<DiskModule> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    let mut refused = None;
    for root in module_roots(release) {
        let mut paths: Vec<String> = dep
            .items()
            .iter()
            .map(|path| {
                if path.starts_with('/') {
                    path.clone()
                } else {
                    join(&root, path)
                }
            })
            .collect();
        let mut folders: Vec<String> = MODULE_FOLDERS.iter().map(|dir| join(&root, dir)).collect();
        // Ubuntu's prebuilt modules lie in kernel/nvidia-550.
        folders.extend(
            sysroot
                .list(&join(&root, "kernel"), |name| name.starts_with("nvidia"))
                .items()
                .iter()
                .map(|name| join(&join(&root, "kernel"), name)),
        );
        for folder in folders {
            match sysroot.list(&folder, |name| module_name(name).is_some()) {
                Reading::Present { value, .. } => {
                    paths.extend(value.iter().map(|name| join(&folder, name)));
                }
                Reading::Unreadable { reason } => refused = Some(reason),
                Reading::Absent { .. } => {}
            }
        }
        for path in paths {
            let Reading::Present { value: real, .. } = sysroot.real_path(&path) else {
                continue;
            };
            if seen.contains(&real) {
                continue;
            }
            seen.push(real);
            if let Some(name) = module_name(file_name(&path)) {
                modules.push(disk_module(sysroot, &path, name, agreed));
            }
        }
    }
    let has_tree = module_roots(release)
        .iter()
        .any(|root| sysroot.exists(root));
    match refused.filter(|_| modules.is_empty()) {
        Some(reason) => Reading::unreadable(reason),
        None if modules.is_empty() && !has_tree => {
            Reading::absent(format!("/lib/modules/{release}"))
        }
        None => Reading::present(modules, format!("/lib/modules/{release}")),
    }
}

/// One module file. Unpacking a compressed one costs up to a second, so it is done only for the core module and only
/// where what runs and what user space is do not already agree.
fn disk_module(sysroot: &Sysroot, path: &str, name: &str, agreed: Option<&Version>) -> DiskModule {
    let compression = kmod::Compression::from_file_name(path).unwrap_or(kmod::Compression::None);
    let mut module = DiskModule {
        path: path.to_owned(),
        name: name.to_owned(),
        version: Reading::default(),
        flavour: Reading::default(),
        vermagic: Reading::default(),
        signer: Reading::default(),
    };
    let skip = if compression == kmod::Compression::None {
        None
    } else if agreed.is_some() {
        Some("not unpacked: the loaded module and user space agree")
    } else if !module.is_core() {
        Some("not unpacked: only the core module is")
    } else {
        None
    };
    let info = match skip {
        Some(reason) => Err(format!("{path}: {reason}")),
        None => match sysroot.file(path) {
            Reading::Present { value, .. } => {
                kmod::modinfo(&value, compression).map_err(|reason| format!("{path}: {reason}"))
            }
            Reading::Absent { source } => Err(format!("{source}: gone")),
            Reading::Unreadable { reason } => Err(reason),
        },
    };
    match info {
        Ok(info) => {
            let field = |value: Option<String>| match value {
                Some(value) => Reading::present(value, path),
                None => Reading::absent(path),
            };
            module.version =
                field(info.version).and_then("no version", |text| Version::parse(&text));
            module.flavour =
                field(info.license).and_then("an unknown licence", |text| match text.as_str() {
                    "NVIDIA" => Some(Flavour::Proprietary),
                    "Dual MIT/GPL" => Some(Flavour::Open),
                    _ => None,
                });
            module.vermagic = field(info.vermagic);
            module.signer = match (info.signer, info.signed) {
                (Some(signer), _) => Reading::present(signer, path),
                (None, true) => Reading::present("a signature is appended".to_owned(), path),
                (None, false) => Reading::absent(path),
            };
        }
        Err(reason) => {
            module.version = Reading::unreadable(&reason);
            module.flavour = Reading::unreadable(&reason);
            module.vermagic = Reading::unreadable(&reason);
            module.signer = Reading::unreadable(&reason);
        }
    }
    module
}

/// Kernels other than the running one that have an nvidia module.
fn other_kernels(sysroot: &Sysroot, running: &str) -> Reading<Vec<String>> {
    sysroot
        .list("/lib/modules", |name| name != running)
        .map(|releases| {
            let has_module = |release: &String| {
                let root = format!("/lib/modules/{release}");
                let prebuilt =
                    sysroot.list(&join(&root, "kernel"), |name| name.starts_with("nvidia"));
                let folders = MODULE_FOLDERS.iter().map(|dir| join(&root, dir)).chain(
                    prebuilt
                        .items()
                        .iter()
                        .map(|name| format!("{root}/kernel/{name}")),
                );
                folders.into_iter().any(|dir| {
                    !sysroot
                        .list(&dir, |name| module_name(name).is_some())
                        .items()
                        .is_empty()
                })
            };
            releases.into_iter().filter(has_module).collect()
        })
}

/// modprobe's configuration, as far as it names GPU drivers.
fn modprobe(sysroot: &Sysroot) -> Reading<Vec<crate::facts::ModprobeLine>> {
    let mut lines = Vec::new();
    let mut refused = None;
    let mut seen: Vec<String> = Vec::new();
    // In modprobe's order: a file in /etc replaces one of the same name further down.
    for dir in [
        "/etc/modprobe.d",
        "/run/modprobe.d",
        "/usr/local/lib/modprobe.d",
        "/usr/lib/modprobe.d",
        "/lib/modprobe.d",
    ] {
        for name in sysroot
            .list(dir, |name| has_extension(name, "conf"))
            .items()
        {
            if seen.contains(name) {
                continue;
            }
            seen.push(name.clone());
            let path = join(dir, name);
            match sysroot.text_up_to(&path, 1 << 16) {
                Reading::Present { value, .. } => lines.extend(proc::modprobe_lines(&path, &value)),
                Reading::Unreadable { reason } => refused = Some(reason),
                Reading::Absent { .. } => {}
            }
        }
    }
    match refused {
        Some(reason) if lines.is_empty() => Reading::unreadable(reason),
        _ => Reading::present(lines, "modprobe.d"),
    }
}

/// DKMS trees whose name begins so, without calling dkms.
pub(super) fn dkms(sysroot: &Sysroot, of: &str) -> Reading<Vec<DkmsTree>> {
    const TREES: &str = "/var/lib/dkms";
    sysroot
        .list(TREES, |name| name.starts_with(of))
        .map(|names| {
            let mut trees = Vec::new();
            for name in names {
                let dir = join(TREES, &name);
                for version in sysroot
                    .list(&dir, |v| v.starts_with(|c: char| c.is_ascii_digit()))
                    .items()
                {
                    trees.push(dkms_tree(sysroot, &name, version, &join(&dir, version)));
                }
            }
            trees
        })
}

/// One tree: `KERNEL/ARCH/module/*.ko` is a built module, `build/make.log` a build that failed.
fn dkms_tree(sysroot: &Sysroot, name: &str, version: &str, dir: &str) -> DkmsTree {
    let mut tree = DkmsTree {
        name: name.to_owned(),
        version: version.to_owned(),
        ..DkmsTree::default()
    };
    for kernel in sysroot
        .list(dir, |k| !matches!(k, "build" | "source"))
        .items()
    {
        let kernel_dir = join(dir, kernel);
        let arches = sysroot.list(&kernel_dir, |_| true);
        let built = arches.items().iter().any(|arch| {
            !sysroot
                .list(&join(&join(&kernel_dir, arch), "module"), |n| {
                    n.contains(".ko")
                })
                .items()
                .is_empty()
        });
        if built {
            tree.built.push(kernel.clone());
        } else if !arches.items().is_empty() {
            tree.logged.push(kernel.clone());
        }
    }
    if let Reading::Present { value, .. } = sysroot.tail(&join(dir, "build/make.log"), 16 << 10) {
        tree.failed_build = true;
        let text = String::from_utf8_lossy(&value);
        let errors: Vec<&str> = text
            .lines()
            .filter(|line| {
                line.contains("rror:") || line.contains("Error ") || line.contains("ERROR")
            })
            .collect();
        tree.errors = errors
            .iter()
            .rev()
            .take(BUILD_ERRORS)
            .rev()
            .map(|line| line.chars().take(300).collect())
            .collect();
    }
    tree
}

/// The fabric manager, looked for only where there is an `NVSwitch`: finding a process by name reads every process's.
fn fabric_manager(sysroot: &Sysroot, has_switch: bool) -> FabricManager {
    if !has_switch {
        let none = || "not looked for: no NVSwitch here".to_owned();
        return FabricManager {
            socket: Reading::unreadable(none()),
            process: Reading::unreadable(none()),
            version: Reading::unreadable(none()),
            unit: Reading::unreadable(none()),
        };
    }
    let units = [
        "/etc/systemd/system/nvidia-fabricmanager.service",
        "/lib/systemd/system/nvidia-fabricmanager.service",
        "/usr/lib/systemd/system/nvidia-fabricmanager.service",
    ];
    let unit = units.into_iter().find(|path| sysroot.exists(path));
    FabricManager {
        socket: socket(sysroot, "/run/nvidia-fabricmanager/socket"),
        process: fabric_manager_process(sysroot),
        version: sysroot
            .file("/usr/bin/nv-fabricmanager")
            .and_then("no version in it", |file| {
                elf::fabric_manager_version(&file)
            }),
        unit: unit.map_or_else(
            || Reading::absent("systemd's unit folders"),
            |path| Reading::present(path.to_owned(), path),
        ),
    }
}

/// Its process: (1) its pid file, (2) the names of all processes.
fn fabric_manager_process(sysroot: &Sysroot) -> Reading<u32> {
    const NAME: &str = "nv-fabricmanager";
    const FILE: &str = "/run/nvidia-fabricmanager/nv-fabricmanager.pid";
    let file = sysroot.text(FILE);
    if let Some(pid) = file
        .value()
        .and_then(|text| text.trim().parse().ok())
        .filter(|pid| is_called(sysroot, *pid, NAME))
    {
        return Reading::present(pid, FILE);
    }
    process_called(sysroot, NAME)
}

/// Whether a process has this name, of which the kernel keeps 15 characters.
fn is_called(sysroot: &Sysroot, pid: u32, name: &str) -> bool {
    sysroot
        .text(&format!("/proc/{pid}/comm"))
        .value()
        .is_some_and(|comm| name.get(..15).unwrap_or(name) == comm.trim())
}

/// The first process of this name.
fn process_called(sysroot: &Sysroot, name: &str) -> Reading<u32> {
    match sysroot.list("/proc", |name| name.bytes().all(|b| b.is_ascii_digit())) {
        Reading::Present { value, .. } if value.is_empty() => {
            Reading::unreadable("/proc: no processes visible")
        }
        Reading::Present { value, .. } => match value
            .iter()
            .filter_map(|name| name.parse().ok())
            .find(|pid| is_called(sysroot, *pid, name))
        {
            Some(pid) => Reading::present(pid, format!("/proc/{pid}/comm")),
            None => Reading::absent("/proc/*/comm"),
        },
        Reading::Absent { source } => Reading::unreadable(format!("{source}: absent")),
        Reading::Unreadable { reason } => Reading::unreadable(reason),
    }
}

/// The Multi-Process Service: the folder that clients look into, and whether its daemon runs.
fn mps(sysroot: &Sysroot, told: Option<String>) -> Mps {
    const USUAL: &str = "/tmp/nvidia-mps";
    let pipe_directory = match told {
        Some(path) => Reading::present(path, "CUDA_MPS_PIPE_DIRECTORY"),
        None => sysroot.lstat(USUAL).map(|_| USUAL.to_owned()),
    };
    let process = if pipe_directory.is_present() {
        // The control daemon and its server have the same first 15 characters.
        process_called(sysroot, "nvidia-cuda-mps-control")
    } else {
        Reading::unreadable("not looked for: no folder of MPS here")
    };
    Mps {
        pipe_directory,
        process,
    }
}

/// The licence of a vGPU: (1) what nvidia-gridd wrote into the files of a syslog daemon, (2) its tokens.
fn vgpu_licence(sysroot: &Sysroot, gpus: &[crate::facts::DriverGpu]) -> VgpuLicence {
    if !gpus
        .iter()
        .any(|gpu| proc::vgpu_profile(&gpu.model).is_some())
    {
        let none = || "not looked for: no vGPU here".to_owned();
        return VgpuLicence {
            log: Reading::unreadable(none()),
            tokens: Reading::unreadable(none()),
        };
    }
    let mut refused = None;
    let mut log = Reading::absent("/var/log/syslog, /var/log/messages");
    for path in ["/var/log/syslog", "/var/log/messages"] {
        match sysroot.tail(path, LOG_CAP) {
            Reading::Present { value, .. } => {
                let said = proc::gridd_log(&String::from_utf8_lossy(&value));
                log = Reading::present(said, path);
                break;
            }
            Reading::Unreadable { reason } => refused = Some(reason),
            Reading::Absent { .. } => {}
        }
    }
    if let (false, Some(reason)) = (log.is_present(), refused) {
        log = Reading::unreadable(reason);
    }
    let tokens = sysroot.list("/etc/nvidia/ClientConfigToken", |name| {
        has_extension(name, "tok")
    });
    VgpuLicence {
        log,
        tokens: tokens.map(|names| names.len()),
    }
}

/// What `pick` takes of the kernel's log: (1) its ring buffer, (2) the files that syslog daemons write. What is refused is
/// unknown, not empty.
pub(super) fn kernel_log(sysroot: &Sysroot, pick: fn(&str) -> Vec<String>) -> Reading<Vec<String>> {
    let mut refused = None;
    if sysroot.is_live() {
        match ring_buffer() {
            Ok(text) => return Reading::present(pick(&text), "/dev/kmsg"),
            Err(rustix::io::Errno::NOENT) => {}
            Err(e) => refused = Some(format!("/dev/kmsg: {}", e.to_string().to_lowercase())),
        }
    }
    for path in [
        "/var/log/kern.log",
        "/var/log/messages",
        "/var/log/syslog",
        "/var/log/dmesg",
    ] {
        match sysroot.tail(path, LOG_CAP) {
            Reading::Present { value, .. } => {
                return Reading::present(pick(&String::from_utf8_lossy(&value)), path);
            }
            Reading::Unreadable { reason } => refused = Some(reason),
            Reading::Absent { .. } => {}
        }
    }
    refused.map_or_else(
        || Reading::absent("/dev/kmsg, /var/log"),
        Reading::unreadable,
    )
}

/// The records of the kernel's ring buffer. Each read gives one; the end is `EAGAIN`, an overwritten record `EPIPE`.
fn ring_buffer() -> Result<String, rustix::io::Errno> {
    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;
    let fd = rustix::fs::open(
        "/dev/kmsg",
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut text = String::new();
    let mut record = vec![0_u8; 8192];
    loop {
        match rustix::io::read(&fd, &mut record) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(n) => {
                let bytes = record.get(..n).unwrap_or_default();
                if let Some(message) = proc::kmsg_record(&String::from_utf8_lossy(bytes)) {
                    text.push_str(message);
                    text.push('\n');
                }
            }
            Err(Errno::PIPE | Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(text)
}

/// The package that owns a library: (1) the file list of an installed package that names it, (2) an installed package
/// of user-space libraries with the library's very version.
fn owner(
    sysroot: &Sysroot,
    copy: &LibraryCopy,
    packages: &Reading<Vec<crate::facts::Package>>,
) -> Reading<String> {
    let packages = match packages {
        Reading::Present { value, .. } => value,
        Reading::Absent { source } => return Reading::absent(source),
        Reading::Unreadable { reason } => return Reading::unreadable(reason),
    };
    let brings_libraries = |name: &str| {
        ["libcuda1", "libnvidia-ml1", "nvidia-utils", "nvidia-libs"].contains(&name)
            || ["-compute", "-cuda1", "-ml1", "cuda-compat"]
                .iter()
                .any(|part| name.contains(part))
    };
    let listed = |name: &str| {
        [
            format!("/var/lib/dpkg/info/{name}.list"),
            format!("/var/lib/dpkg/info/{name}:amd64.list"),
            format!("/var/lib/dpkg/info/{name}:arm64.list"),
        ]
        .into_iter()
        .find(|list| {
            sysroot
                .text_up_to(list, 1 << 18)
                .value()
                .is_some_and(|text| {
                    text.lines()
                        .any(|line| line == copy.real_path || line == copy.path)
                })
        })
    };
    for package in packages.iter().filter(|p| brings_libraries(&p.name)) {
        if let Some(list) = listed(&package.name) {
            return Reading::present(package.name.clone(), list);
        }
    }
    let same_version = packages.iter().find(|p| {
        brings_libraries(&p.name)
            && !p.name.contains("compat")
            && copy.version.is_present()
            && package_version(&p.version).as_ref() == copy.version.value()
    });
    match same_version {
        Some(package) if !copy.is_compat() => {
            Reading::present(package.name.clone(), "/var/lib/dpkg/status (same version)")
        }
        _ => Reading::absent("package database"),
    }
}
