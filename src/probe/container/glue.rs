//! What NVIDIA's glue left in this container. Sources: (1) the process's own mountinfo, (2) the environment, (3) names of
//! files in the folders where driver libraries lie.

use std::collections::BTreeMap;

use super::{MOUNTINFO_CAP, is_injected};
use crate::facts::{
    DriverFacts, DriverMount, Glue, ImageFile, Injection, LibraryCopy, Reading, SystemFacts,
};
use crate::probe::Request;
use crate::read::proc::{self, Mount};
use crate::sysroot::{Kind, Sysroot, file_name, join};
use crate::version::Version;

const MOUNTINFO: &str = "/proc/self/mountinfo";
/// Mounts that are kept. The toolkit makes fewer than a hundred.
const MOUNTS_CAP: usize = 256;
/// Driver libraries of an image that are kept.
const FILES_CAP: usize = 64;
/// Rules of a device control group that are kept.
const RULES_CAP: usize = 64;
/// Where driver libraries lie in an image.
const LIBRARY_FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/lib64",
];
/// Libraries that belong to the driver and to nothing else: an image has no business with them.
const DRIVER_LIBRARIES: &[&str] = &[
    "libcuda.so.",
    "libcudadebugger.so.",
    "libnvidia-allocator.so.",
    "libnvidia-cfg.so.",
    "libnvidia-gpucomp.so.",
    "libnvidia-ml.so.",
    "libnvidia-nvvm.so.",
    "libnvidia-opencl.so.",
    "libnvidia-ptxjitcompiler.so.",
];

/// The container's glue; absent on a host.
pub(in crate::probe) fn probe_glue(
    sysroot: &Sysroot,
    request: &Request,
    system: &SystemFacts,
    driver: &DriverFacts,
) -> Reading<Glue> {
    let kind = match &system.container {
        Reading::Present { value, .. } => value.kind.as_str(),
        Reading::Absent { source } => return Reading::absent(source),
        Reading::Unreadable { reason } => return Reading::unreadable(reason),
    };
    let all = match sysroot
        .text_up_to(MOUNTINFO, MOUNTINFO_CAP)
        .map(|text| proc::mountinfo(&text))
    {
        Reading::Present { value, .. } => value,
        Reading::Absent { source } => return Reading::unreadable(format!("{source}: not there")),
        Reading::Unreadable { reason } => return Reading::unreadable(reason),
    };
    // The last one on a place is the one that is seen.
    let root = all.iter().rev().find(|m| m.target == "/");
    let read_only_root = root.is_some_and(|m| m.read_only);
    let mounts: Vec<DriverMount> = all
        .iter()
        .filter(|m| is_injected(&m.target) || is_driver_folder(m))
        .take(MOUNTS_CAP)
        .map(|m| DriverMount {
            target: m.target.clone(),
            root: m.root.clone(),
            fstype: m.fstype.clone(),
        })
        .collect();
    let empty = BTreeMap::new();
    let env = request.environment.value().unwrap_or(&empty);
    let mut evidence = Vec::new();
    let engine = engine(sysroot, env, kind, &mounts, &mut evidence);
    let injection = injection(sysroot, env, system, &engine, &mounts, &mut evidence);
    let driver_root = ["/run/nvidia/driver", "/home/kubernetes/bin/nvidia"]
        .into_iter()
        .find(|root| mounts.iter().any(|m| is_below(&m.root, root)));
    Reading::present(
        Glue {
            engine,
            injection,
            evidence,
            in_image: in_image(sysroot, &all, driver),
            mounts,
            read_only_root,
            driver_root: driver_root.map(str::to_owned),
            job: job(sysroot),
            device_rules: sysroot
                .text_up_to("/sys/fs/cgroup/devices/devices.list", 1 << 16)
                .map(|text| {
                    let lines = text.lines().filter(|line| !line.is_empty());
                    lines.take(RULES_CAP).map(str::to_owned).collect()
                }),
            rootless: rootless(sysroot),
            compat_files: sysroot
                .list("/etc/ld.so.conf.d", |name| {
                    let stem = name.strip_suffix(".conf");
                    stem.is_some_and(|stem| stem.starts_with("00-compat-"))
                })
                .map(|names| {
                    let paths = names.iter().map(|name| join("/etc/ld.so.conf.d", name));
                    paths.collect()
                }),
        },
        MOUNTINFO,
    )
}

/// The job of Slurm that this process belongs to: `/system.slice/slurmstepd.scope/job_42/step_0`, and with version 1 of
/// control groups `/slurm/uid_1000/job_42`.
fn job(sysroot: &Sysroot) -> Reading<String> {
    const CGROUP: &str = "/proc/self/cgroup";
    let is_job = |part: &&str| {
        part.strip_prefix("job_")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    match sysroot.text_up_to(CGROUP, 1 << 16) {
        Reading::Present { value, .. } => {
            let lines = value.lines().filter(|line| line.contains("/slurm"));
            match lines.flat_map(|line| line.split('/')).find(is_job) {
                Some(job) => Reading::present(job.to_owned(), CGROUP),
                None => Reading::absent(CGROUP),
            }
        }
        Reading::Absent { source } => Reading::absent(source),
        Reading::Unreadable { reason } => Reading::unreadable(reason),
    }
}

/// Whether user 0 in here is another one outside.
fn rootless(sysroot: &Sysroot) -> Reading<bool> {
    const PODMAN: &str = "/run/.containerenv";
    let noted = sysroot.text_up_to(PODMAN, 1 << 12);
    if noted
        .value()
        .is_some_and(|text| text.lines().any(|line| line.trim() == "rootless=1"))
    {
        return Reading::present(true, PODMAN);
    }
    sysroot
        .text_up_to("/proc/self/uid_map", 1 << 14)
        .and_then("no line in it", |text| {
            let mut first = text.lines().next()?.split_ascii_whitespace();
            Some(first.next()? == "0" && first.next()? != "0")
        })
}

/// A folder of the node's driver that is mounted whole.
fn is_driver_folder(mount: &Mount) -> bool {
    mount.target == "/usr/local/nvidia"
        || is_below(&mount.target, "/usr/lib/wsl")
        || is_below(&mount.root, "/home/kubernetes/bin/nvidia")
}

/// Whether a path is a folder or lies in it.
fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Who started the container, where more can be told than the kind.
fn engine(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    kind: &str,
    mounts: &[DriverMount],
    evidence: &mut Vec<String>,
) -> String {
    if let Some(mount) = mounts
        .iter()
        .find(|m| is_below(&m.root, "/home/kubernetes/bin/nvidia"))
    {
        evidence.push(format!("{} comes from {}", mount.target, mount.root));
        return "gke".to_owned();
    }
    // pyxis and enroot leave their names in variables.
    if let Some(name) = env
        .keys()
        .find(|name| name.starts_with("ENROOT_") || name.starts_with("PYXIS_"))
    {
        evidence.push(format!("{name} is set"));
        return "enroot".to_owned();
    }
    if kind == "kubernetes" {
        let cgroup = sysroot.text_up_to("/proc/self/cgroup", 1 << 16);
        for (token, name) in [("crio-", "cri-o"), ("cri-containerd", "containerd")] {
            if cgroup.value().is_some_and(|text| text.contains(token)) {
                evidence.push(format!("/proc/self/cgroup names {token}"));
                return name.to_owned();
            }
        }
    }
    kind.to_owned()
}

/// How the driver came in.
fn injection(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    system: &SystemFacts,
    engine: &str,
    mounts: &[DriverMount],
    evidence: &mut Vec<String>,
) -> Injection {
    let at = |path: &str| mounts.iter().find(|m| m.target == path);
    if env.contains_key("NVIDIA_CTK_LIBCUDA_DIR") {
        evidence.push("NVIDIA_CTK_LIBCUDA_DIR is set: CDI, by toolkit 1.18 or newer".to_owned());
        return Injection::Cdi;
    }
    if at("/proc/driver/nvidia/params").is_some() {
        evidence.push("/proc/driver/nvidia/params is a mount of its own: a hook of CDI".to_owned());
        return Injection::Cdi;
    }
    if at("/proc/driver/nvidia").is_some_and(|m| m.fstype == "tmpfs")
        || mounts
            .iter()
            .any(|m| m.target.starts_with("/proc/driver/nvidia/gpus/"))
    {
        evidence.push("/proc/driver/nvidia is mounted anew: nvidia-container-cli".to_owned());
        return Injection::Legacy;
    }
    if sysroot.exists("/.singularity.d/libs") && !mounts.is_empty() {
        evidence.push("/.singularity.d/libs".to_owned());
        return Injection::Apptainer;
    }
    let library = mounts.iter().find(|m| m.target.contains(".so"));
    if system.tegra.is_present() && library.is_some() {
        evidence.push("driver files of a Jetson are mounted".to_owned());
        return Injection::Csv;
    }
    if let Some(mount) = mounts
        .iter()
        .find(|m| is_below(&m.root, "/usr/lib/wsl") || is_below(&m.target, "/usr/lib/wsl"))
    {
        evidence.push(format!("{} comes from {}", mount.target, mount.root));
        return Injection::Wsl;
    }
    if let Some(mount) = mounts.iter().find(|m| {
        m.target == "/usr/local/nvidia" || is_below(&m.root, "/home/kubernetes/bin/nvidia")
    }) {
        evidence.push(format!("{} is mounted whole", mount.target));
        return Injection::Folder;
    }
    // The toolkit mounts files by their full name and makes the links itself.
    if let Some(mount) = mounts.iter().find(|m| {
        ["/libcuda.so", "/libcuda.so.1", "/libnvidia-ml.so.1"]
            .iter()
            .any(|name| m.target.ends_with(name))
    }) {
        evidence.push(format!("{} is a mount of its own", mount.target));
        return Injection::ByHand;
    }
    match (library, mounts.first()) {
        (_, None) => Injection::None,
        (None, Some(node)) => {
            evidence.push(format!("{} is mounted, and no library", node.target));
            Injection::ByHand
        }
        // Their hooks call it, without the marks that it leaves below Docker.
        (Some(_), _)
            if engine == "enroot"
                || engine == "lxc" && env.keys().any(|name| name.starts_with("NVIDIA_")) =>
        {
            evidence.push(format!("the hook of {engine}: nvidia-container-cli"));
            Injection::Legacy
        }
        (Some(_), _) => Injection::Unknown,
    }
}

/// Driver libraries that lie in the image: no mount is above them. Looked for in the folders of the system, and wherever the
/// loader finds one.
fn in_image(sysroot: &Sysroot, mounts: &[Mount], driver: &DriverFacts) -> Vec<ImageFile> {
    let mut found: Vec<ImageFile> = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    let mut look_at = |path: String| {
        let version = file_name(&path)
            .split_once(".so.")
            .and_then(|(_, version)| Version::parse(version));
        // `libcuda.so.1` is a link that anybody makes; the driver's own files end in its version.
        if found.len() >= FILES_CAP
            || version
                .as_ref()
                .is_none_or(|v| v.len() < 2 || v.major() < 100)
            || found.iter().any(|file| file.path == path)
        {
            return;
        }
        let covered = |m: &Mount| m.target != "/" && is_below(&path, &m.target);
        if mounts.iter().any(covered) {
            return;
        }
        if let Some(stat) = sysroot
            .lstat(&path)
            .value()
            .filter(|stat| stat.kind == Kind::File)
        {
            found.push(ImageFile {
                path,
                size_bytes: stat.size_bytes,
                version,
            });
        }
    };
    for folder in LIBRARY_FOLDERS {
        // Several of these names are links to one folder.
        let Some(real) = sysroot.real_path(folder).value().cloned() else {
            continue;
        };
        if seen.contains(&real) {
            continue;
        }
        let wanted = |name: &str| {
            DRIVER_LIBRARIES
                .iter()
                .any(|library| name.starts_with(library))
        };
        for name in sysroot.list(&real, wanted).items() {
            look_at(join(&real, name));
        }
        seen.push(real);
    }
    let copies = [driver.libcuda.items(), driver.libnvidia_ml.items()];
    // A toolkit's compat copy belongs to the image.
    let own = |copy: &&LibraryCopy| !copy.is_compat() && !copy.is_stub();
    for copy in copies.into_iter().flatten().filter(own) {
        look_at(copy.real_path.clone());
    }
    found
}
