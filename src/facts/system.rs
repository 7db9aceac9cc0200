//! The system layer: what the driver sits on.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Container, Reading};
use crate::version::Version;

/// Kernel, distribution, firmware security, libc, users, and in what kind of world this runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SystemFacts {
    /// `uname -r`.
    pub kernel_release: Reading<String>,
    /// `/proc/version`, raw (its builder is redacted).
    pub kernel_version: Reading<String>,
    /// `x86_64`, `aarch64`.
    pub arch: Reading<String>,
    /// `/etc/os-release`.
    pub os: Reading<OsRelease>,
    /// The kernel parameters that bear on GPUs, from `/proc/cmdline`; others are not recorded.
    pub cmdline: Reading<Vec<String>>,
    /// Whether Secure Boot is on. Absent: no EFI, so it does not apply.
    pub secure_boot: Reading<bool>,
    /// Whether shim was told not to verify modules (`MokSBStateRT`).
    pub shim_validation_disabled: Reading<bool>,
    /// Whether shim handed a list of machine owner keys to the kernel (`MokListRT`).
    pub mok_list: Reading<bool>,
    /// Keys in the kernel's `.machine` keyring (where enrolled owner keys land); absent where there is no such ring.
    pub machine_keys: Reading<u32>,
    /// Active lockdown mode: `none`, `integrity`, `confidentiality`.
    pub lockdown: Reading<String>,
    /// Whether the kernel insists on module signatures (`sig_enforce`).
    pub sig_enforce: Reading<bool>,
    /// The C library.
    pub libc: Reading<Libc>,
    /// The hypervisor or cloud that DMI names; absent on bare metal.
    pub virtualisation: Reading<String>,
    /// The kernel's release where this is WSL, or a virtual machine that gets its GPU from Windows in the same way (`/dev/dxg`
    /// with Windows's libraries); absent elsewhere.
    pub wsl: Reading<String>,
    /// Whether WSL brings the loader's cache up to date when it starts (`[automount] ldconfig` in `/etc/wsl.conf`); absent
    /// where that does not say.
    pub wsl_ldconfig: Reading<bool>,
    /// The Jetson's L4T release (`36.4.3`) or board; absent where this is no Tegra system.
    pub tegra: Reading<Tegra>,
    /// The container this runs in; absent on a host.
    pub container: Reading<Container>,
    /// The user who asked.
    pub user: Reading<User>,
    /// The systemd service or scope that this process belongs to, by `/proc/self/cgroup`; absent where it is in none.
    pub unit: Reading<String>,
    /// Names of groups by id, for the groups of the device nodes and of the user.
    pub group_names: Reading<BTreeMap<u32, String>>,
    /// The process limits that CUDA runs into, of the process that asked.
    pub limits: Reading<Limits>,
    /// Installed packages whose name speaks of NVIDIA or CUDA, with versions: dpkg, pacman.
    pub packages: Reading<Vec<Package>>,
}

/// Fields of `/etc/os-release`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OsRelease {
    /// `ubuntu`, `debian`, `rhel`, `arch`.
    pub id: String,
    /// Families: `rhel fedora`.
    pub id_like: Vec<String>,
    /// `24.04`; empty on rolling releases.
    pub version_id: String,
    /// `Ubuntu 24.04.3 LTS`.
    pub pretty_name: String,
    /// `silverblue`, `container`; empty where not given.
    pub variant_id: String,
}

/// The C library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Libc {
    /// `glibc` or `musl`.
    pub kind: String,
    /// Its version, where known.
    #[serde(default)]
    pub version: Option<Version>,
    /// On a system of musl, the file that the loader of glibc leads to, where there is one: glibc's own, or gcompat's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub glibc_loader: Option<String>,
}

impl Libc {
    /// Whether this is musl without a glibc beside it: programs and libraries that need glibc do not run.
    pub fn lacks_glibc(&self) -> bool {
        let is_glibc = |path: &String| !path.contains("gcompat") && !path.contains("ld-musl");
        self.kind == "musl" && !self.glibc_loader.as_ref().is_some_and(is_glibc)
    }

    /// Whether gcompat stands in for glibc.
    pub fn has_gcompat(&self) -> bool {
        self.lacks_glibc() && self.glibc_loader.is_some()
    }
}

/// Limits of a process (`/proc/self/limits`, the soft ones).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Limits {
    /// Most bytes of address space (`ulimit -v`); `None` = unlimited.
    pub address_space_bytes: Option<u64>,
    /// Most bytes of locked memory (`ulimit -l`); `None` = unlimited.
    pub locked_bytes: Option<u64>,
}

/// A Tegra system (Jetson).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tegra {
    /// `35.4.1`; absent where `/etc/nv_tegra_release` is missing.
    pub l4t: Option<Version>,
    /// The board, from the device tree.
    pub model: String,
    /// The chip, from the device tree: `tegra234`.
    pub chip: String,
}

/// The user who asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct User {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl User {
    /// Whether mode bits let this user read a node. Root always may.
    pub fn may_read(&self, mode: u32, uid: u32, gid: u32) -> bool {
        self.bits(mode, uid, gid) & 0o4 != 0
    }

    /// Whether mode bits let this user open a node for reading and writing. Root always may.
    pub fn may_read_write(&self, mode: u32, uid: u32, gid: u32) -> bool {
        self.bits(mode, uid, gid) & 0o6 == 0o6
    }

    /// The permission bits that apply to this user.
    fn bits(&self, mode: u32, uid: u32, gid: u32) -> u32 {
        if self.uid == 0 {
            0o7
        } else if self.uid == uid {
            mode >> 6
        } else if self.gid == gid || self.groups.contains(&gid) {
            mode >> 3
        } else {
            mode
        }
    }
}

/// An installed package of the distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version as the package manager writes it.
    pub version: String,
}
