//! Small files of /proc and /sys as the kernel writes them; the text in, values out.
//!
//! A line that is not understood is left out, never guessed. Files under /etc and the like are in `etc`, the kernel's log
//! in `kernel_log`, package lists in `packages`; all are reached by this module's name.

use std::collections::BTreeMap;

pub use super::etc::{
    cuda_toolkit_version, group_names, modprobe_lines, modules_dep, os_release, tegra_release,
    wsl_ldconfig,
};
pub use super::kernel_log::{Xid, gridd_log, kernel_log, kmsg_record, xid};
pub use super::packages::{dpkg_packages, pacman_dir_name};
use crate::facts::{CharMajor, DriverGpu, Flavour, Limits, LoadedModule, ProcVersion, User};
use crate::version::Version;

/// The most text of a small file that is kept as it is: 4 KiB.
const MAX_RAW: usize = 4 << 10;

/// `/proc/modules`: `nvidia 14381056 34 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)`.
pub fn modules(text: &str) -> Vec<LoadedModule> {
    let line = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next()?.to_owned();
        let _size = words.next()?;
        // A kernel that cannot unload modules does not count their users: `-`.
        let used_by = words
            .next()
            .and_then(|count| count.parse().ok())
            .unwrap_or(-1);
        let _users = words.next();
        let state = words.next().unwrap_or_default().to_owned();
        let taint = words.find_map(|word| word.strip_prefix('(')?.strip_suffix(')'));
        Some(LoadedModule {
            name,
            state,
            taint: taint.unwrap_or_default().to_owned(),
            used_by,
        })
    };
    text.lines().filter_map(line).collect()
}

/// `/proc/driver/nvidia/version`:
///
/// ```text
/// NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Sat Jun 14 16:05:50 UTC 2025
/// NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  535.261.03  Release Build  (user@host)  <date>
/// ```
pub fn nvidia_version(text: &str) -> Option<ProcVersion> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("NVRM version:"))?;
    let (before, after) = line.split_once("Kernel Module")?;
    let mut words = after.split_ascii_whitespace();
    let version = words.find_map(|w| {
        let starts_with_digit = w.starts_with(|c: char| c.is_ascii_digit());
        Version::parse(w).filter(|v| starts_with_digit && v.len() > 1)
    })?;
    let is_open = before.split_ascii_whitespace().any(|word| word == "Open");
    let flavour = Some(if is_open {
        Flavour::Open
    } else {
        Flavour::Proprietary
    });
    Some(ProcVersion {
        version,
        flavour,
        raw: super::cut(text, MAX_RAW).to_owned(),
    })
}

/// `/proc/driver/nvidia/gpus/ADDRESS/information`. Lines that an old branch does not write leave their field empty.
pub fn gpu_information(address: &str, text: &str) -> DriverGpu {
    let mut gpu = DriverGpu {
        address: address.to_owned(),
        ..DriverGpu::default()
    };
    for (label, value) in labelled(text) {
        match label {
            "Model" => value.clone_into(&mut gpu.model),
            "GPU UUID" => value.clone_into(&mut gpu.uuid),
            "Device Minor" => gpu.minor = value.parse().ok(),
            // `N/A`: the driver runs this GPU without a system processor.
            "GPU Firmware" if value != "N/A" => value.clone_into(&mut gpu.firmware),
            "GPU Excluded" => gpu.excluded = value == "Yes",
            _ => {}
        }
    }
    gpu
}

/// `/proc/driver/nvidia/params`: numbers are decimal (a mode of 438 is 0666), quotes around strings are dropped.
pub fn params(text: &str) -> BTreeMap<String, String> {
    let unquoted = |value: &str| {
        let inner = value
            .strip_prefix('"')
            .and_then(|value| value.strip_suffix('"'));
        inner.unwrap_or(value).to_owned()
    };
    labelled(text)
        .map(|(name, value)| (name.to_owned(), unquoted(value)))
        .collect()
}

fn labelled(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(k, v)| (k.trim(), v.trim()))
}

/// The character devices of `/proc/devices` that belong to a GPU: nvidia*, dxg, nvgpu, kfd.
pub fn char_devices(text: &str) -> Vec<CharMajor> {
    let lines = text
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "Character devices:")
        .skip(1);
    let line = |line: &str| {
        let (major, name) = line.split_once(' ')?;
        let name = name.trim();
        let is_gpu = name.starts_with("nvidia") || matches!(name, "dxg" | "nvgpu" | "kfd");
        Some(CharMajor {
            major: major.parse().ok().filter(|_| is_gpu)?,
            name: name.to_owned(),
        })
    };
    lines
        .take_while(|line| !line.ends_with("devices:"))
        .filter_map(line)
        .collect()
}

/// `/proc/self/limits`: the soft limits of address space and locked memory. `None` where neither line is there.
pub fn limits(text: &str) -> Option<Limits> {
    // `Max locked memory         8388608              8388608              bytes`
    let soft = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        match line.split_whitespace().next()? {
            "unlimited" => Some(None),
            number => number.parse().ok().map(Some),
        }
    };
    Some(Limits {
        address_space_bytes: soft("Max address space")?,
        locked_bytes: soft("Max locked memory")?,
    })
}

/// The profile of a vGPU and its series, out of the name that the driver of a guest gives it: `NVIDIA A40-48Q` is an A40-48Q
/// of series Q. A number of gigabytes and the letter of the series end the name; `ME` (media engines) may follow.
pub fn vgpu_profile(model: &str) -> Option<(String, char)> {
    let name = model.split_ascii_whitespace().next_back()?;
    let (board, size) = name.rsplit_once('-')?;
    let size = size.strip_suffix("ME").unwrap_or(size);
    let series = size.chars().next_back()?;
    let digits = size.strip_suffix(series)?;
    let is_profile = !board.is_empty()
        && !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && ['A', 'B', 'C', 'Q'].contains(&series);
    is_profile.then(|| (name.to_owned(), series))
}

/// Whether `/proc/version` is that of gVisor, which answers system calls itself: its releases say `4.4.0` or
/// `4.19.0-gvisor`, all with one date that no distribution's kernel of that release has.
pub fn is_gvisor(text: &str) -> bool {
    text.to_lowercase().contains("gvisor")
        || text.contains("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016")
}

/// The kernel parameters of `/proc/cmdline` that bear on GPUs. Of a parameter whose value holds a path, which could
/// name a disk or a home folder, only the name is kept.
pub fn cmdline(text: &str) -> Vec<String> {
    const EXACT: [&str; 11] = [
        "lockdown",
        "module.sig_enforce",
        "module_blacklist",
        "modprobe.blacklist",
        "nomodeset",
        "nomodule",
        "pci",
        "rd.driver.blacklist",
        "rd.driver.pre",
        "rdblacklist",
        "vfio",
    ];
    let bears_on_gpus = |parameter: &&str| {
        // The kernel takes `-` and `_` for the same.
        let name = parameter
            .split('=')
            .next()
            .unwrap_or_default()
            .replace('-', "_");
        let starts = ["nouveau", "nvidia", "nova.", "nova_", "vfio."];
        starts.iter().any(|start| name.starts_with(start))
            || name.starts_with("vfio_")
            || name.contains("iommu")
            || EXACT.contains(&name.as_str())
    };
    let kept = |parameter: &str| match parameter.split_once('=') {
        Some((name, value)) if value.contains('/') || value.contains("UUID") => name.to_owned(),
        _ => parameter.to_owned(),
    };
    // What follows `--` is for the init program.
    let parameters = text
        .split_ascii_whitespace()
        .take_while(|parameter| *parameter != "--");
    parameters.filter(bears_on_gpus).map(kept).collect()
}

/// A yes-or-no EFI variable: four bytes of attributes, then 0 or 1.
pub fn efi_bool(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [_, _, _, _, 0] => Some(false),
        [_, _, _, _, 1] => Some(true),
        _ => None,
    }
}

/// The active mode of `/sys/kernel/security/lockdown`: `integrity` of `none [integrity] confidentiality`.
pub fn lockdown(text: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let mode = words.find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))?;
    (!mode.is_empty()).then(|| mode.to_owned())
}

/// How many keys the ring `name` has by `/proc/keys`: `... keyring   .machine: 3`, or `empty`. `None` where the ring is
/// not listed.
pub fn keyring_count(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let (_, description) = line.split_once(" keyring ")?;
        match description
            .trim()
            .strip_prefix(name)?
            .strip_prefix(':')?
            .trim()
        {
            "empty" => Some(0),
            count => count.split('/').next()?.trim().parse().ok(),
        }
    })
}

/// One line of `/proc/self/mountinfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The folder or file within the mounted file system that is seen at the target.
    pub root: String,
    /// Where it is mounted.
    pub target: String,
    /// `overlay`, `devtmpfs`, `ext4`.
    pub fstype: String,
    /// The device, or what the file system names instead.
    pub source: String,
    /// Whether it is mounted read-only here.
    pub read_only: bool,
}

/// `/proc/self/mountinfo`, with octal escapes (`\040` for a blank) decoded:
/// `1210 1200 0:55 /nvidiactl /dev/nvidiactl rw,nosuid - devtmpfs udev rw`.
pub fn mountinfo(text: &str) -> Vec<Mount> {
    let line = |line: &str| {
        // The number of optional fields before ` - ` varies.
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut after = after.split(' ');
        Some(Mount {
            root: unescaped(before.next()?),
            target: unescaped(before.next()?),
            read_only: before.next()?.split(',').any(|option| option == "ro"),
            fstype: unescaped(after.next()?),
            source: unescaped(after.next().unwrap_or_default()),
        })
    };
    text.lines().filter_map(line).collect()
}

/// Decodes a backslash and three octal digits, as the kernel writes blanks, tabs, line ends and backslashes.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escape = match rest {
            [
                b'\\',
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                after @ ..,
            ] => Some(((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), after)),
            _ => None,
        };
        let (byte, after) = escape.unwrap_or((*first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The effective ids of `/proc/self/status`: the second number of `Uid:` and `Gid:`, and `Groups:`.
pub fn status_ids(text: &str) -> Option<User> {
    let field = |name: &str| {
        labelled(text)
            .find(|(label, _)| *label == name)
            .map(|(_, value)| value)
    };
    let effective = |name| field(name)?.split_ascii_whitespace().nth(1)?.parse().ok();
    let groups = field("Groups").unwrap_or_default().split_ascii_whitespace();
    Some(User {
        uid: effective("Uid")?,
        gid: effective("Gid")?,
        groups: groups.filter_map(|group| group.parse().ok()).collect(),
    })
}

/// Sizes in bytes of the six base address registers, from the first six lines of a PCI device's `resource`:
/// `0x00000000d0000000 0x00000000dfffffff 0x000000000014220c`. 0 = unused, or without an address.
pub fn bar_sizes(text: &str) -> Vec<u64> {
    /// The kernel's mark for a range that could not be given an address (`IORESOURCE_UNSET` of `linux/ioport.h`).
    const UNSET: u64 = 0x2000_0000;
    let line = |line: &str| {
        let mut numbers = line
            .split_ascii_whitespace()
            .map(|word| u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok());
        let (start, end) = (numbers.next()??, numbers.next()??);
        let flags = numbers.next().flatten().unwrap_or(0);
        let is_assigned = start != 0 && flags & UNSET == 0;
        let size = end.checked_sub(start).and_then(|size| size.checked_add(1));
        Some(size.filter(|_| is_assigned).unwrap_or(0))
    };
    text.lines().take(6).filter_map(line).collect()
}

/// A number as sysfs writes ids: `0x10de\n`.
pub fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}
