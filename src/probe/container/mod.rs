//! The container layer: whether this runs in a container and which, what NVIDIA's glue left in it, and what a host has to
//! start containers with.

mod cdi;
mod engines;
mod glob;
mod glue;
mod host;

pub(super) use glue::probe_glue;
pub(super) use host::probe_host;

use crate::facts::{Container, Reading};
use crate::probe::Request;
use crate::read::proc;
use crate::sysroot::Sysroot;

/// mountinfo of a container host may be long.
const MOUNTINFO_CAP: usize = 1 << 20;

/// Whether this is a container, by weighing what says so. No single weak sign decides: `/.dockerenv` is left behind on
/// machines made from images, and live systems have an overlay as root.
pub(super) fn detect(sysroot: &Sysroot, request: &Request) -> Reading<Container> {
    let mut kind = "container";
    let mut weight = 0;
    let mut evidence = Vec::new();
    let mut say = |name: Option<&'static str>, points: u32, what: String| {
        if let Some(name) = name.filter(|_| kind == "container") {
            kind = name;
        }
        weight += points;
        evidence.push(what);
    };
    let env = |name: &str| request.environment.value().and_then(|env| env.get(name));
    if env("KUBERNETES_SERVICE_HOST").is_some() {
        say(
            Some("kubernetes"),
            1,
            "KUBERNETES_SERVICE_HOST is set".to_owned(),
        );
    }
    for (path, name, points) in [
        (
            "/var/run/secrets/kubernetes.io/serviceaccount",
            "kubernetes",
            2,
        ),
        ("/run/.containerenv", "podman", 2),
        ("/.singularity.d", "apptainer", 2),
        ("/dev/.lxd-mounts", "lxc", 2),
        ("/.dockerenv", "docker", 1),
    ] {
        if sysroot.exists(path) {
            say(Some(name), points, path.to_owned());
        }
    }
    if let Some(value) = env("container") {
        say(
            if value.starts_with("lxc") {
                Some("lxc")
            } else {
                None
            },
            2,
            format!("container={value}"),
        );
    }
    if sysroot
        .text("/proc/version")
        .value()
        .is_some_and(|text| proc::is_gvisor(text))
    {
        say(None, 3, "/proc/version is that of gVisor".to_owned());
    }
    let cgroup = sysroot.text_up_to("/proc/self/cgroup", 1 << 16);
    for (token, name) in [
        ("kubepods", "kubernetes"),
        ("/docker", "docker"),
        ("libpod", "podman"),
        ("/lxc", "lxc"),
        ("crio-", "kubernetes"),
    ] {
        if cgroup.value().is_some_and(|text| text.contains(token)) {
            say(
                Some(name),
                2,
                format!("/proc/self/cgroup names {}", token.trim_matches(['/', '-'])),
            );
            break;
        }
    }
    let mounts = sysroot
        .text_up_to("/proc/self/mountinfo", MOUNTINFO_CAP)
        .map(|text| proc::mountinfo(&text));
    if mounts
        .items()
        .iter()
        .any(|m| m.target == "/" && matches!(m.fstype.as_str(), "overlay" | "fuse-overlayfs"))
    {
        say(None, 1, "the root is an overlay".to_owned());
    }
    let injected: Vec<String> = mounts
        .items()
        .iter()
        .filter(|m| is_injected(&m.target))
        .map(|m| m.target.clone())
        .collect();
    if let Some(first) = injected.first() {
        say(None, 1, format!("{first} is a mount of its own"));
    }
    if env("NVIDIA_VISIBLE_DEVICES").is_some() {
        say(None, 1, "NVIDIA_VISIBLE_DEVICES is set".to_owned());
    }
    // An image's root, read on another machine, is not running: whatever it is, no container is around it.
    if weight >= 2 && request.environment.is_present() || weight >= 3 {
        Reading::present(
            Container {
                kind: kind.to_owned(),
                evidence: evidence.clone(),
                injected,
            },
            evidence.join(", "),
        )
    } else {
        match mounts {
            Reading::Unreadable { reason } => Reading::unreadable(reason),
            _ => Reading::absent(
                "/.dockerenv, /run/.containerenv, /proc/self/mountinfo, /proc/self/cgroup",
            ),
        }
    }
}

/// Whether a mount point is a driver file or node that a container toolkit puts there.
fn is_injected(target: &str) -> bool {
    target.starts_with("/dev/nvidia")
        || target == "/dev/dxg"
        || target.starts_with("/proc/driver/nvidia")
        || target.contains("/libcuda.so")
        || target.contains("/libnvidia-")
        || target.contains("/libdxcore.so")
        || target.ends_with("/nvidia-smi")
}
