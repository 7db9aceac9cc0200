//! The GPUs of a described host, as its libraries name them.

use gpudoctor::facts::{DeviceAnswer, MigAnswer};

use super::super::host::Host;

/// `NVML_ERROR_GPU_IS_LOST`.
const NVML_GPU_IS_LOST: i64 = 15;

/// How many GPUs the kernel module lists.
pub(super) fn driver_gpus(host: &Host) -> i64 {
    i64::try_from(listed(host).count()).unwrap()
}

/// The addresses of those.
pub(super) fn listed(host: &Host) -> impl Iterator<Item = &str> {
    host.files.keys().filter_map(|path| gpu_address(path))
}

/// The PCI address in `/proc/driver/nvidia/gpus/ADDRESS/information`.
fn gpu_address(path: &str) -> Option<&str> {
    path.strip_prefix("/proc/driver/nvidia/gpus/")?
        .strip_suffix("/information")
}

/// The GPUs that a library names, `count` of them; beyond the last one described they are like the last.
pub(super) fn devices_of(host: &Host, count: i64, lost: Option<u32>) -> Vec<DeviceAnswer> {
    let rows = gpu_rows(host);
    let count = u32::try_from(count).unwrap_or(0);
    (0..count)
        .map(|index| {
            if lost == Some(index) {
                return DeviceAnswer {
                    index,
                    code: NVML_GPU_IS_LOST,
                    ..DeviceAnswer::default()
                };
            }
            let row = &rows[(index as usize).min(rows.len() - 1)];
            DeviceAnswer {
                index,
                ..row.clone()
            }
        })
        .collect()
}

/// The same GPUs as NVML names them: with what it reads of each.
pub(super) fn nvml_devices(host: &Host, count: i64) -> Vec<DeviceAnswer> {
    let mut devices = devices_of(host, count, host.dlopen.lost);
    let readings = &host.dlopen.readings;
    for (index, device) in devices.iter_mut().enumerate() {
        let told = readings.get(index).or(readings.last());
        let told = told.cloned().unwrap_or_default();
        if device.code == 0 {
            device.mig = host.dlopen.mig_mode.map(|mode| MigAnswer {
                on: mode == 1,
                pending: mode == 1,
                instances: told.mig_instances.filter(|_| mode == 1),
            });
            device.row_remap_pending = told.row_remap_pending;
            device.row_remap_failed = told.row_remap_failed;
            device.retired_pages_pending = told.retired_pages_pending;
            device.compute_mode = told.compute_mode;
            device.persistence = told.persistence;
            device.link_width_max = told.link_width_max;
            device.processes = told.processes;
        }
    }
    devices
}

/// What is told of each GPU, at least one.
fn gpu_rows(host: &Host) -> Vec<DeviceAnswer> {
    let mut told: Vec<(String, Option<String>, Option<String>)> = Vec::new();
    for gpu in &host.dlopen.gpus {
        told.push((
            gpu.bus.clone().unwrap_or_else(|| "0000:01:00.0".to_owned()),
            Some(gpu.name.clone()),
            None,
        ));
    }
    if told.is_empty() {
        for (path, text) in &host.files {
            if let Some(address) = gpu_address(path) {
                let field = |name: &str| {
                    let value = text
                        .lines()
                        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
                    Some(value.trim().to_owned())
                };
                told.push((address.to_owned(), field("Model"), field("GPU UUID")));
            }
        }
    }
    if told.is_empty() {
        told.extend(pci_gpus(host).map(|address| (address, None, None)));
    }
    if told.is_empty() {
        told.push(("0000:41:00.0".to_owned(), None, None));
    }
    let capabilities: Vec<(u32, u32)> = host
        .dlopen
        .compute_capability
        .iter()
        .map(|text| capability(text))
        .collect();
    let row = |(i, (address, name, uuid)): (usize, (String, Option<String>, Option<String>))| {
        DeviceAnswer {
            index: 0,
            code: 0,
            name: Some(name.unwrap_or_else(|| "NVIDIA GPU".to_owned())),
            capability: capabilities.get(i).or(capabilities.last()).copied(),
            address: Some(address),
            uuid: Some(
                uuid.unwrap_or_else(|| format!("GPU-00000000-0000-4000-8000-{:012}", i + 1)),
            ),
            ..DeviceAnswer::default()
        }
    };
    told.into_iter().enumerate().map(row).collect()
}

/// Addresses of NVIDIA's display and 3D controllers.
fn pci_gpus(host: &Host) -> impl Iterator<Item = String> + '_ {
    host.files.iter().filter_map(|(path, text)| {
        let device = path.strip_suffix("/vendor")?;
        let address = device.strip_prefix("/sys/bus/pci/devices/")?;
        let class = host.files.get(&format!("{device}/class"));
        (text.trim() == "0x10de" && class.is_none_or(|c| c.starts_with("0x03")))
            .then(|| address.to_owned())
    })
}

fn capability(text: &str) -> (u32, u32) {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    let number = |part: &str| {
        part.parse()
            .unwrap_or_else(|e| panic!("compute capability {text}: {e}"))
    };
    (number(major), number(minor))
}
