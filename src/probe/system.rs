//! What the driver sits on: kernel, distribution, firmware security, libc, users, and the kind of world this is.

use crate::error::plain_io;
use crate::facts::{DriverFacts, DrmFacts, Libc, Package, Reading, SystemFacts, Tegra, User};
use crate::probe::Request;
use crate::probe::consumer::has_extension;
use crate::read::{elf, proc};
use crate::sysroot::{Sysroot, join};
use crate::version::Version;

/// EFI variables of the global namespace, and shim's.
const SECURE_BOOT: &str =
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";
const MOK_STATE: &str =
    "/sys/firmware/efi/efivars/MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23";
const MOK_LIST: &str = "/sys/firmware/efi/efivars/MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23";
/// dpkg's list of packages.
const DPKG_STATUS: &str = "/var/lib/dpkg/status";
/// /etc/group of a large site.
const GROUP_CAP: usize = 1 << 20;

pub(super) fn probe(
    sysroot: &Sysroot,
    request: &Request,
    driver: &DriverFacts,
    drm: &DrmFacts,
) -> SystemFacts {
    let line = |path: &str| {
        sysroot
            .text(path)
            .map(|text| text.trim_end_matches(['\n', '\0']).to_owned())
    };
    let uname = |index: usize| match &request.uname {
        Some((release, machine)) => Reading::present(
            if index == 0 {
                release.clone()
            } else {
                machine.clone()
            },
            "uname",
        ),
        None => Reading::unreadable("not recorded: another root is read"),
    };
    let kernel_release = match line("/proc/sys/kernel/osrelease") {
        Reading::Absent { .. } => uname(0),
        other => other,
    };
    let user = match &request.user {
        Some(user) => Reading::present(user.clone(), "geteuid, getgroups"),
        None => Reading::unreadable("not recorded: another root is read"),
    };
    let wsl = match &kernel_release {
        Reading::Present { value, source } if value.to_lowercase().contains("microsoft") => {
            Reading::present(value.clone(), source)
        }
        // A kernel of one's own under WSL need not name Microsoft, and a guest of Hyper-V may get its GPU in the same way.
        Reading::Present { value, .. }
            if sysroot.lstat("/dev/dxg").is_present() && sysroot.exists("/usr/lib/wsl/lib") =>
        {
            Reading::present(value.clone(), "/dev/dxg, /usr/lib/wsl/lib")
        }
        Reading::Present { source, .. } | Reading::Absent { source } => Reading::absent(source),
        // Another root without a record of its kernel: WSL's own folder tells.
        Reading::Unreadable { .. } if !sysroot.is_live() && !sysroot.exists("/usr/lib/wsl/lib") => {
            Reading::absent("/usr/lib/wsl/lib")
        }
        Reading::Unreadable { reason } => Reading::unreadable(reason),
    };
    let arch = machine(sysroot, request);
    SystemFacts {
        arch: arch.clone(),
        kernel_version: line("/proc/version"),
        os: match sysroot.text("/etc/os-release") {
            Reading::Absent { .. } => sysroot.text("/usr/lib/os-release"),
            other => other,
        }
        .map(|text| proc::os_release(&text)),
        cmdline: sysroot
            .text("/proc/cmdline")
            .map(|text| proc::cmdline(&text)),
        secure_boot: efi_bool(sysroot, SECURE_BOOT),
        shim_validation_disabled: efi_bool(sysroot, MOK_STATE),
        mok_list: if efi(sysroot) {
            exists(sysroot, MOK_LIST)
        } else {
            Reading::absent("/sys/firmware/efi")
        },
        machine_keys: sysroot
            .text_up_to("/proc/keys", 1 << 16)
            .and_then("no .machine keyring listed", |text| {
                proc::keyring_count(&text, ".machine")
            }),
        lockdown: sysroot
            .text("/sys/kernel/security/lockdown")
            .and_then("no active mode marked", |text| proc::lockdown(&text)),
        sig_enforce: line("/sys/module/module/parameters/sig_enforce").map(|text| text == "Y"),
        libc: libc(sysroot, arch.value()),
        virtualisation: virtualisation(sysroot),
        wsl_ldconfig: if wsl.is_present() {
            sysroot
                .text("/etc/wsl.conf")
                .and_then("no `ldconfig` under [automount]", |text| {
                    proc::wsl_ldconfig(&text)
                })
        } else {
            Reading::absent("not WSL")
        },
        tegra: tegra(sysroot),
        container: super::container::detect(sysroot, request),
        group_names: group_names(sysroot, user.value(), driver, drm),
        limits: sysroot
            .text_up_to("/proc/self/limits", 1 << 14)
            .and_then("no limits in it", |text| proc::limits(&text)),
        packages: packages(sysroot),
        kernel_release,
        wsl,
        user,
        unit: unit(sysroot),
    }
}

/// The machine's architecture: (1) `uname -m`, (2) of another root, what its own programs are for.
pub(super) fn machine(sysroot: &Sysroot, request: &Request) -> Reading<String> {
    match &request.uname {
        Some((_, machine)) => Reading::present(machine.clone(), "uname"),
        None => super::start::machine_of(sysroot),
    }
}

/// Whether the firmware is EFI at all, as far as this kernel shows it.
fn efi(sysroot: &Sysroot) -> bool {
    sysroot.exists("/sys/firmware/efi")
}

/// An EFI variable of one byte. Without EFI it does not apply: absent.
fn efi_bool(sysroot: &Sysroot, path: &str) -> Reading<bool> {
    sysroot
        .bytes(path, 64)
        .and_then("not five bytes", |bytes| proc::efi_bool(&bytes))
}

/// Whether a file is there: present or absent.
fn exists(sysroot: &Sysroot, path: &str) -> Reading<bool> {
    sysroot.lstat(path).map(|_| true)
}

/// The C library: (1) the version definitions of libc.so.6, (2) musl's loader.
fn libc(sysroot: &Sysroot, machine: Option<&String>) -> Reading<Libc> {
    let own = std::env::consts::ARCH;
    let arch = machine.map_or(own, String::as_str);
    let usual = [
        format!("/lib/{arch}-linux-gnu"),
        format!("/usr/lib/{arch}-linux-gnu"),
        "/lib64".into(),
        "/usr/lib64".into(),
        "/usr/lib".into(),
        // Under an emulator, what this program runs on.
        format!("/usr/lib/{own}-linux-gnu"),
    ];
    // A disk that does not tell its machine: the one of whatever machine lies there.
    let of_others = ["/lib", "/usr/lib"].into_iter().flat_map(|dir| {
        let is_multiarch = |name: &str| name.ends_with("-linux-gnu");
        let names = match machine {
            Some(_) => Vec::new(),
            None => sysroot.list(dir, is_multiarch).items().to_vec(),
        };
        names.into_iter().map(move |name| join(dir, &name))
    });
    for dir in usual.into_iter().chain(of_others) {
        let path = join(&dir, "libc.so.6");
        if let Reading::Present { value: file, .. } = sysroot.file(&path) {
            let version = elf::highest_version_definition(&file, "GLIBC_");
            return Reading::present(
                Libc {
                    kind: "glibc".to_owned(),
                    version,
                    glibc_loader: None,
                },
                path,
            );
        }
    }
    let musl = sysroot.list("/lib", |name| name.starts_with("ld-musl-"));
    match musl.items().first() {
        Some(name) => Reading::present(
            Libc {
                kind: "musl".to_owned(),
                version: None,
                glibc_loader: glibc_loader(sysroot),
            },
            join("/lib", name),
        ),
        None => Reading::absent("libc.so.6 in the loader's default folders"),
    }
}

/// Where the loader of glibc leads on a system of musl: gcompat puts a stand-in there, and some add glibc itself.
fn glibc_loader(sysroot: &Sysroot) -> Option<String> {
    let names = [
        "/lib64/ld-linux-x86-64.so.2",
        "/lib/ld-linux-x86-64.so.2",
        "/lib/ld-linux-aarch64.so.1",
    ];
    names
        .into_iter()
        .find_map(|name| sysroot.real_path(name).value().cloned())
}

/// The hypervisor: (1) DMI, (2) the `hypervisor` flag of the first processor.
fn virtualisation(sysroot: &Sysroot) -> Reading<String> {
    const VENDORS: &[&str] = &[
        "QEMU",
        "VMware",
        "Xen",
        "Microsoft Corporation",
        "Amazon EC2",
        "Google",
        "OracleCloud",
        "innotek",
        "Parallels",
        "DigitalOcean",
        "Hetzner",
        "OpenStack",
        "Alibaba Cloud",
        "Red Hat",
    ];
    let vendor = sysroot
        .text("/sys/class/dmi/id/sys_vendor")
        .map(|text| text.trim().to_owned());
    let product = sysroot
        .text("/sys/class/dmi/id/product_name")
        .map(|text| text.trim().to_owned());
    let virtual_cpu = sysroot
        .bytes("/proc/cpuinfo", 8192)
        .map(|bytes| memchr::memmem::find(&bytes, b" hypervisor").is_some());
    match (&vendor, &virtual_cpu) {
        (Reading::Present { value, source }, cpu)
            if VENDORS.iter().any(|v| value.contains(v)) && cpu.value() != Some(&false) =>
        {
            let name = product
                .value()
                .filter(|p| !p.is_empty() && *p != value)
                .map_or_else(|| value.clone(), |p| format!("{value} {p}"));
            Reading::present(name, source)
        }
        (
            _,
            Reading::Present {
                value: true,
                source,
            },
        ) => Reading::present("a hypervisor".to_owned(), source),
        (_, Reading::Present { source, .. }) => Reading::absent(source),
        (Reading::Unreadable { reason }, _) | (_, Reading::Unreadable { reason }) => {
            Reading::unreadable(reason)
        }
        (_, Reading::Absent { source }) => Reading::absent(source),
    }
}

/// A Tegra system: (1) `/etc/nv_tegra_release`, (2) the device tree, (3) the name of the `SoC` family.
fn tegra(sysroot: &Sysroot) -> Reading<Tegra> {
    let release = sysroot.text("/etc/nv_tegra_release");
    let tree = |name: &str| {
        sysroot
            .text(&join("/proc/device-tree", name))
            .map(|text| text.replace('\0', " ").trim().to_owned())
    };
    let compatible = tree("compatible");
    let chip = compatible
        .value()
        .and_then(|c| {
            c.split_whitespace()
                .find_map(|part| part.strip_prefix("nvidia,tegra"))
        })
        .map(|n| format!("tegra{n}"));
    let family = sysroot
        .text("/sys/devices/soc0/family")
        .value()
        .is_some_and(|f| f.to_lowercase().starts_with("tegra"));
    let source = if release.is_present() {
        release.source().to_owned()
    } else if chip.is_some() {
        "/proc/device-tree/compatible".to_owned()
    } else if family {
        "/sys/devices/soc0/family".to_owned()
    } else {
        return match release {
            Reading::Unreadable { reason } => Reading::unreadable(reason),
            _ => Reading::absent("/etc/nv_tegra_release, device tree"),
        };
    };
    let l4t = release.value().and_then(|text| proc::tegra_release(text));
    Reading::present(
        Tegra {
            l4t,
            model: tree("model").value().cloned().unwrap_or_default(),
            chip: chip.unwrap_or_default(),
        },
        source,
    )
}

/// The systemd unit of this process: the innermost `.service` or `.scope` of its cgroup path.
fn unit(sysroot: &Sysroot) -> Reading<String> {
    const CGROUP: &str = "/proc/self/cgroup";
    match sysroot.text_up_to(CGROUP, 1 << 16) {
        Reading::Present { value, .. } => {
            let parts = value.lines().flat_map(|line| line.rsplit('/'));
            let is_unit =
                |part: &&str| has_extension(part, "service") || has_extension(part, "scope");
            match parts.into_iter().find(is_unit) {
                // The instance of a template may be a user's name or a container's id: `app@anna.service`.
                Some(name) => Reading::present(without_instance(name), CGROUP),
                None => Reading::absent(CGROUP),
            }
        }
        Reading::Absent { source } => Reading::absent(source),
        Reading::Unreadable { reason } => Reading::unreadable(reason),
    }
}

/// A unit's name without its instance: `app@.service`.
fn without_instance(name: &str) -> String {
    match (name.split_once('@'), name.rsplit_once('.')) {
        (Some((template, _)), Some((_, kind))) => format!("{template}@.{kind}"),
        _ => name.to_owned(),
    }
}

/// Names of the groups that matter.
fn group_names(
    sysroot: &Sysroot,
    user: Option<&User>,
    driver: &DriverFacts,
    drm: &DrmFacts,
) -> Reading<std::collections::BTreeMap<u32, String>> {
    let mut wanted: Vec<u32> = driver.nodes.items().iter().map(|n| n.gid).collect();
    let render = drm.render.items().iter();
    wanted.extend(render.filter_map(|render| Some(render.node.value()?.gid)));
    if let Some(user) = user {
        wanted.extend(user.groups.iter().chain([&user.gid]));
    }
    sysroot.text_up_to("/etc/group", GROUP_CAP).map(|text| {
        let mut names = proc::group_names(&text);
        // Other groups say who works here, and nothing about the GPU; a user's private group has the user's name.
        names.retain(|gid, name| {
            wanted.contains(gid) && (*gid < 1000 || ["video", "render"].contains(&name.as_str()))
        });
        names
    })
}

/// Packages that speak of NVIDIA: (1) dpkg's status file, (2) the folder names of pacman's database. The RPM database
/// is a binary one and is not read.
fn packages(sysroot: &Sysroot) -> Reading<Vec<Package>> {
    match sysroot.file(DPKG_STATUS) {
        Reading::Absent { .. } => {}
        Reading::Unreadable { reason } => return Reading::unreadable(reason),
        Reading::Present { value: file, .. } => {
            return match proc::dpkg_packages(&file) {
                Ok(packages) => Reading::present(packages, DPKG_STATUS),
                Err(e) => {
                    Reading::unreadable(format!("{DPKG_STATUS}: {}", plain_io(&e.to_string())))
                }
            };
        }
    }
    sysroot
        .list("/var/lib/pacman/local", |name| {
            name.contains("nvidia") || name.contains("cuda")
        })
        .map(|names| {
            names
                .iter()
                .filter_map(|n| proc::pacman_dir_name(n))
                .collect()
        })
}

/// A version out of a package's: what dpkg puts before the colon is an epoch.
pub(super) fn package_version(text: &str) -> Option<Version> {
    Version::parse(text.split_once(':').map_or(text, |(_, rest)| rest))
}
