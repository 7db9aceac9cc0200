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
use crate::read::proc::{self, Mount};
use crate::sysroot::Sysroot;

/// mountinfo of a container host may be long.
const MOUNTINFO_CAP: usize = 1 << 20;
/// Where systemd notes what it was started in.
const SYSTEMD: &str = "/run/systemd/container";

/// Whether a part of a path is a mark, by the part and whether more of the path follows.
type IsMark = fn(&str, bool) -> bool;

/// What in the path of a control group names who made it: the first part that does, and whose it is.
const CGROUP_MARKS: &[(&str, Option<&str>, IsMark)] = &[
    ("kubepods", Some("kubernetes"), |part, _| {
        part.starts_with("kubepods")
    }),
    // `docker.service` is the daemon's own group, on the host.
    ("docker", Some("docker"), |part, has_more| {
        part == "docker" && has_more || is_scope(part, "docker-")
    }),
    ("libpod", Some("podman"), |part, _| {
        part.starts_with("libpod-") || part.starts_with("libpod_")
    }),
    ("lxc", Some("lxc"), |part, has_more| {
        part == "lxc" && has_more || part.starts_with("lxc.payload")
    }),
    ("crio", Some("kubernetes"), |part, _| {
        is_scope(part, "crio-")
    }),
    ("buildkit", None, |part, has_more| {
        part == "buildkit" && has_more
    }),
];

/// Whether a part of a control group's path is a systemd scope of this prefix: `docker-0123abcd.scope`.
fn is_scope(part: &str, prefix: &str) -> bool {
    part.strip_prefix(prefix)
        .is_some_and(|rest| !rest.is_empty() && !rest.ends_with(".service"))
}

/// The first mark in `/proc/self/cgroup`.
fn cgroup_mark(text: &str) -> Option<(&'static str, Option<&'static str>)> {
    let paths: Vec<Vec<&str>> = text
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .map(|path| path.split('/').filter(|part| !part.is_empty()).collect())
        .collect();
    let marks = CGROUP_MARKS.iter().find(|(_, _, is_mark)| {
        paths.iter().any(|parts| {
            let last = parts.len().saturating_sub(1);
            let mut parts = parts.iter().enumerate();
            parts.any(|(at, part)| is_mark(part, at < last))
        })
    });
    marks.map(|(mark, kind, _)| (*mark, *kind))
}

/// The kind that the variable `container` or systemd's file of it names.
fn kind_named(value: &str) -> Option<&'static str> {
    match value {
        _ if value.starts_with("lxc") => Some("lxc"),
        "systemd-nspawn" => Some("nspawn"),
        _ => None,
    }
}

/// What the mounts say of the root that is seen.
struct Root {
    /// Layers of an image, as container engines make it.
    layered: bool,
    /// A whole file system of a disk, or one with the modules of the kernel that runs: the system's own. Variables and
    /// control groups are inherited by what changes its root to the host's (`oc debug`, then `chroot /host`).
    of_host: bool,
}

impl Root {
    fn of(sysroot: &Sysroot, request: &Request, mounts: &[Mount]) -> Option<Self> {
        // The last one on a place is the one that is seen.
        let root = mounts.iter().rev().find(|m| m.target == "/")?;
        // Systems that are images (bootc) mount them as an overlay of this name, live systems with their kernel's modules.
        let overlay = matches!(root.fstype.as_str(), "overlay" | "fuse-overlayfs")
            && root.source != "composefs";
        let release = sysroot
            .text("/proc/sys/kernel/osrelease")
            .value()
            .map(|text| text.trim().to_owned())
            .or_else(|| request.uname.as_ref().map(|(release, _)| release.clone()));
        let has_modules = release.is_some_and(|release| {
            !release.is_empty() && sysroot.exists(&format!("/lib/modules/{release}/modules.dep"))
        });
        let mounted = mounts.iter().any(|m| {
            ["/lib/modules", "/usr/lib/modules"]
                .iter()
                .any(|folder| m.target.starts_with(folder))
        });
        let own_modules = has_modules && !mounted;
        let whole_disk = root.root == "/" && root.source.starts_with("/dev/");
        Some(Self {
            layered: overlay && !own_modules,
            of_host: own_modules || !overlay && whole_disk,
        })
    }
}

/// Whether this is a container, by weighing what says so. No single weak sign decides: `/.dockerenv` is left behind on
/// machines made from images, live systems have an overlay as root, and variables are exported in shells.
pub(super) fn detect(sysroot: &Sysroot, request: &Request) -> Reading<Container> {
    let mounts = sysroot
        .text_up_to("/proc/self/mountinfo", MOUNTINFO_CAP)
        .map(|text| proc::mountinfo(&text));
    let root = Root::of(sysroot, request, mounts.items());
    let of_host = root.as_ref().is_some_and(|root| root.of_host);
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
    if env("KUBERNETES_SERVICE_HOST").is_some() && !of_host {
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
    // systemd's own note of what it was started in; WSL is no container.
    let noted = sysroot
        .text_up_to(SYSTEMD, 64)
        .value()
        .map(|text| text.trim().to_owned())
        .filter(|value| !value.is_empty() && value != "wsl");
    if let Some(value) = noted {
        say(kind_named(&value), 2, format!("{SYSTEMD} is {value}"));
    }
    if let Some(value) = env("container")
        && (kind_named(value).is_some() || !of_host)
    {
        say(kind_named(value), 2, format!("container={value}"));
    }
    let enroot = request.environment.value().and_then(|env| {
        env.keys()
            .find(|name| name.starts_with("ENROOT_") || name.starts_with("PYXIS_"))
    });
    if let Some(name) = enroot.filter(|_| !of_host) {
        say(Some("enroot"), 1, format!("{name} is set"));
    }
    if sysroot
        .text("/proc/version")
        .value()
        .is_some_and(|text| proc::is_gvisor(text))
    {
        say(None, 3, "/proc/version is that of gVisor".to_owned());
    }
    let cgroup = sysroot.text_up_to("/proc/self/cgroup", 1 << 16);
    let mark = cgroup.value().and_then(|text| cgroup_mark(text));
    if let Some((mark, name)) = mark.filter(|_| !of_host) {
        say(name, 2, format!("/proc/self/cgroup names {mark}"));
    }
    let layered = root.as_ref().is_some_and(|root| root.layered);
    if layered {
        say(None, 1, "the root is an overlay".to_owned());
    }
    let is_mount = |path: &&&str| mounts.items().iter().any(|m| m.target == **path);
    let names = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
    if names.iter().filter(is_mount).count() > 1 {
        say(
            None,
            1,
            "files of names in /etc are mounts of their own".to_owned(),
        );
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
    // Of an image or of a shell: it says something only where nothing speaks for a host.
    if env("NVIDIA_VISIBLE_DEVICES").is_some() && (layered || root.is_none()) {
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

#[cfg(test)]
mod tests {
    use super::cgroup_mark;

    #[test]
    fn a_control_group_names_its_engine_and_no_daemon_does() {
        for (text, mark) in [
            ("0::/\n", None),
            ("0::/system.slice/docker.service\n", None),
            ("0::/system.slice/crio.service\n", None),
            ("12:devices:/docker/0123\n0::/\n", Some("docker")),
            ("0::/system.slice/docker-0123.scope\n", Some("docker")),
            (
                "0::/kubepods.slice/kubepods-a.slice/crio-b.scope\n",
                Some("kubepods"),
            ),
            (
                "0::/machine.slice/libpod-01.scope/container\n",
                Some("libpod"),
            ),
            ("0::/lxc.payload.web/init.scope\n", Some("lxc")),
            ("4:devices:/lxc/web\n", Some("lxc")),
            ("0::/lxc\n", None),
            ("0::/buildkit/abc\n", Some("buildkit")),
            ("", None),
            (":::::\n", None),
        ] {
            assert_eq!(cgroup_mark(text).map(|(mark, _)| mark), mark, "{text}");
        }
    }
}
