//! What the PCI bus holds, by sysfs alone: it needs no driver and wakes nothing.
//!
//! `vendor`, `device`, `class`, `subsystem_*` and `resource` come from the kernel's memory. `config` and
//! `current_link_*` ask the device and would wake a sleeping one, so `power/runtime_status` is read first and they
//! are left alone unless it is awake.

use crate::facts::{HardwareFacts, PciDevice, Reading, VENDOR_AMD, VENDOR_INTEL, VENDOR_NVIDIA};
use crate::read::proc;
use crate::sysroot::{Sysroot, file_name, join, parent};

const DEVICES: &str = "/sys/bus/pci/devices";
const LISTED: &str = "/proc/driver/nvidia/gpus";
const SWITCHES: &str = "/proc/driver/nvidia-nvswitch/devices";

/// PCI devices of GPU vendors: (1) `/sys/bus/pci/devices`, (2) the `NVSwitches` that the driver lists.
pub(super) fn probe(sysroot: &Sysroot) -> HardwareFacts {
    let pci = sysroot.list(DEVICES, |_| true).map(|names| {
        names
            .iter()
            .filter_map(|name| device(sysroot, name))
            .collect()
    });
    HardwareFacts {
        pci,
        nvswitch_driver: sysroot.list(SWITCHES, |_| true),
    }
}

/// GPUs that the nvidia driver lists, in the order of their addresses.
pub(super) fn listed_by_driver(sysroot: &Sysroot) -> Vec<String> {
    let mut addresses = sysroot.list(LISTED, |_| true).items().to_vec();
    addresses.sort_unstable();
    addresses
}

/// Whether a device sleeps. Reading this does not wake it.
pub(super) fn sleeps(sysroot: &Sysroot, address: &str) -> bool {
    let status = sysroot.text(&join(&join(DEVICES, address), "power/runtime_status"));
    matches!(
        status.value().map(|status| status.trim()),
        Some("suspended" | "suspending")
    )
}

/// Whether every GPU that the driver lists sleeps. A call that initialises GPUs would wake them then, only to look.
pub(super) fn all_asleep(sysroot: &Sysroot) -> bool {
    let listed = listed_by_driver(sysroot);
    !listed.is_empty() && listed.iter().all(|address| sleeps(sysroot, address))
}

/// One function, where it is one of interest: a display, a processing accelerator (class 12) or an `NVSwitch`.
fn device(sysroot: &Sysroot, address: &str) -> Option<PciDevice> {
    let dir = join(DEVICES, address);
    let number = |name: &str| {
        sysroot
            .text(&join(&dir, name))
            .and_then("no hexadecimal number", |text| proc::hex(&text))
    };
    let vendor = u16::try_from(*number("vendor").value()?).ok()?;
    if ![VENDOR_NVIDIA, VENDOR_AMD, VENDOR_INTEL].contains(&vendor) {
        return None;
    }
    let class = *number("class").value()?;
    let is_gpu = matches!(class >> 16, 0x03 | 0x12);
    let is_switch = vendor == VENDOR_NVIDIA && class >> 8 == 0x0680;
    if !is_gpu && !is_switch {
        return None;
    }
    let text = |name: &str| {
        sysroot
            .text(&join(&dir, name))
            .map(|text| text.trim().to_owned())
    };
    let runtime_status = text("power/runtime_status");
    let awake = !matches!(
        runtime_status.value().map(String::as_str),
        Some("suspended" | "suspending" | "resuming")
    );
    let asleep = || format!("{dir}: not read, since the device sleeps and would wake");
    let width = |name: &str| text(name).and_then("no number", |text| text.parse().ok());
    Some(PciDevice {
        address: address.to_owned(),
        vendor,
        device: u16::try_from(*number("device").value()?).ok()?,
        class,
        subsystem: match (number("subsystem_vendor"), number("subsystem_device")) {
            (
                Reading::Present {
                    value: vendor,
                    source,
                },
                Reading::Present { value: device, .. },
            ) => match (u16::try_from(vendor), u16::try_from(device)) {
                (Ok(vendor), Ok(device)) => Reading::present((vendor, device), source),
                _ => Reading::unreadable(format!("{source}: no 16-bit number")),
            },
            (Reading::Present { .. }, other) | (other, _) => other.and_then("half an id", |_| None),
        },
        driver: sysroot
            .link(&join(&dir, "driver"))
            .map(|target| file_name(&target).to_owned()),
        driver_override: match text("driver_override") {
            Reading::Present { value, source } if value.is_empty() || value == "(null)" => {
                Reading::absent(source)
            }
            other => other,
        },
        runtime_status,
        power_state: text("power_state"),
        link_width: if awake {
            width("current_link_width")
        } else {
            Reading::unreadable(asleep())
        },
        link_width_max: width("max_link_width"),
        slot_width_max: if awake {
            slot_width(sysroot, &dir)
        } else {
            Reading::unreadable(asleep())
        },
        bar_bytes: sysroot
            .text(&join(&dir, "resource"))
            .map(|text| proc::bar_sizes(&text)),
        config_all_ones: if !awake {
            Reading::unreadable(asleep())
        } else if vendor == VENDOR_NVIDIA {
            sysroot
                .bytes(&join(&dir, "config"), 64)
                .and_then("shorter than a PCI header", |config| all_ones(&config))
        } else {
            Reading::unreadable("not read: only asked of NVIDIA devices")
        },
        numa_node: text("numa_node").and_then("no number", |text| text.parse().ok()),
    })
}

/// Lanes of the port above a device: the folder above the one that the device's link leads to.
fn slot_width(sysroot: &Sysroot, dir: &str) -> Reading<u32> {
    let port = match sysroot.real_path(dir) {
        Reading::Present { value, .. } => parent(&value).to_owned(),
        Reading::Absent { source } => return Reading::absent(source),
        Reading::Unreadable { reason } => return Reading::unreadable(reason),
    };
    // `0000:40:01.1`, and not `pci0000:40`, which is no device.
    let is_device = file_name(&port).split([':', '.']).count() == 4;
    if !is_device {
        return Reading::absent(port);
    }
    sysroot
        .text(&join(&port, "max_link_width"))
        .and_then("no number", |text| text.trim().parse().ok())
}

/// Whether a configuration space of at least 16 bytes is all ones. Without root the kernel hands out 64 bytes.
fn all_ones(config: &[u8]) -> Option<bool> {
    (config.len() >= 16).then(|| config.iter().all(|byte| *byte == 0xff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_device_reads_all_ones() {
        assert_eq!(all_ones(&[0xff; 64]), Some(true));
        assert_eq!(
            all_ones(&[vec![0xde, 0x10], vec![0xff; 62]].concat()),
            Some(false)
        );
        assert_eq!(all_ones(&[0xff; 4]), None);
    }
}
