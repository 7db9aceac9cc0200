//! What the kernel's `amdgpu` writes for people: the topology of its compute part (KFD), and its messages in the kernel's log;
//! and libdrm's list of product names.

use crate::facts::KfdProperties;

/// The most lines of the log that are kept, the newest ones.
const MAX_LINES: usize = 60;
/// The most bytes of one line that are kept.
const MAX_LINE: usize = 1024;

/// `properties` of a node of the topology: a name and a decimal number a line. `None` where it has none of them.
pub fn properties(text: &str) -> Option<KfdProperties> {
    let mut found = KfdProperties::default();
    let mut any = false;
    for line in text.lines() {
        let Some((name, value)) = line.trim().split_once(' ') else {
            continue;
        };
        let place = match name {
            "simd_count" => &mut found.simd_count,
            "vendor_id" => &mut found.vendor_id,
            "device_id" => &mut found.device_id,
            "location_id" => &mut found.location_id,
            "domain" => &mut found.domain,
            "gfx_target_version" => &mut found.gfx_target_version,
            "drm_render_minor" => &mut found.drm_render_minor,
            "cpu_cores_count" => &mut found.cpu_cores_count,
            _ => continue,
        };
        // Some numbers of other lines are wider; none of these is.
        let Ok(number) = value.trim().parse() else {
            continue;
        };
        *place = number;
        any = true;
    }
    any.then_some(found)
}

/// The UUID that the `properties` of a GPU's node make, as HSA writes it: `GPU-` and its `unique_id` in sixteen hexadecimal
/// digits, `GPU-XX` where it has none (ROCR-Runtime, `amd_gpu_agent.cpp`).
pub fn uuid(text: &str) -> String {
    let number = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("unique_id "))
        .find_map(|number| number.trim().parse::<u64>().ok());
    match number {
        None | Some(0) => "GPU-XX".to_owned(),
        Some(number) => format!("GPU-{number:016x}"),
    }
}

/// Whether an entry of a variable is a UUID: of the HSA runtime what begins with a G, of HIP what has `GPU-` in it.
pub fn is_uuid(entry: &str, by_rocr: bool) -> bool {
    if by_rocr {
        entry.trim_start().starts_with(['G', 'g'])
    } else {
        entry.contains("GPU-")
    }
}

/// Which of these UUIDs an entry of `ROCR_VISIBLE_DEVICES` names: the only one that it is the start of, whatever the case
/// (ROCR-Runtime, `amd_filter_device.cpp`).
pub fn named_by_rocr(entry: &str, uuids: &[String]) -> Option<usize> {
    let entry = entry.to_uppercase();
    let is_one = |uuid: &String| uuid != "GPU-XX" && uuid.to_uppercase().starts_with(&entry);
    let mut found = (0..).zip(uuids).filter(|(_, uuid)| is_one(uuid));
    let first = found.next().filter(|_| (5..=20).contains(&entry.len()))?;
    found.next().is_none().then_some(first.0)
}

/// The same of `HIP_VISIBLE_DEVICES`: the first one that it is a part of (ROCm/clr, `rocdevice.cpp`).
pub fn named_by_hip(entry: &str, uuids: &[String]) -> Option<usize> {
    uuids.iter().position(|uuid| uuid.contains(entry))
}

/// What a message of `amdgpu` or KFD says when something is wrong with a GPU for computing, or with all of it. `amdgpu` writes
/// a hundred lines at every start, and none of the others matters here.
const TROUBLE: [&str; 16] = [
    "not supported in kfd",
    "atomics",
    "skipped device",
    "ailed to load firmware",
    "ailed to load ucode",
    "irmware load for",
    "failed with error",
    "Fatal error during GPU init",
    "fatal error",
    "failed to initialize",
    "disagrees about version",
    "Unknown symbol",
    "ring ",
    "GPU reset",
    "page fault",
    "KFD support disabled",
];

/// The messages about `amdgpu` and KFD that tell of trouble, oldest first.
pub fn trouble(text: &str) -> Vec<String> {
    let speaks = |line: &&str| {
        (line.contains("amdgpu") || line.contains("kfd"))
            && !line.contains("Command line")
            && TROUBLE.iter().any(|word| line.contains(word))
    };
    let mut kept: Vec<String> = text
        .lines()
        .filter(speaks)
        .map(|line| super::cut(&super::kernel_log::message(line), MAX_LINE).to_owned())
        .collect();
    kept.drain(..kept.len().saturating_sub(MAX_LINES));
    kept
}

/// The product that libdrm's `amdgpu.ids` names for a device and its revision: a line
/// `73DF, C1, AMD Radeon RX 6700 XT`, with tabs.
pub fn product(ids: &str, device: u16, revision: u8) -> Option<&str> {
    ids.lines().find_map(|line| {
        let mut fields = line.splitn(3, ',').map(str::trim);
        let hex = |field: Option<&str>| u32::from_str_radix(field?, 16).ok();
        let is_it = hex(fields.next()) == Some(device.into())
            && hex(fields.next()) == Some(revision.into());
        fields.next().filter(|name| is_it && !name.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_the_topology() {
        let text = "cpu_cores_count 0\nsimd_count 80\nlocation_id 3072\nvendor_id 4098\ndevice_id 29663\ngfx_target_version 100301\ndrm_render_minor 128\nunique_id 12345678901234567890\n";
        let found = properties(text).unwrap();
        assert_eq!((found.simd_count, found.gfx_target_version), (80, 100_301));
        assert_eq!((found.device_id, found.drm_render_minor), (0x73df, 128));
        assert_eq!(properties("nonsense\n"), None);
        assert_eq!(properties(""), None);
    }

    #[test]
    fn a_gpu_by_its_uuid() {
        let text = "simd_count 304\nunique_id 12345678901234567890\n";
        assert_eq!(uuid(text), "GPU-ab54a98ceb1f0ad2");
        assert_eq!(uuid("simd_count 80\nunique_id 0\n"), "GPU-XX");
        let uuids = ["GPU-ab54a98ceb1f0ad2", "GPU-XX", "GPU-ab00000000000001"].map(str::to_owned);
        for (entry, rocr, hip) in [
            ("GPU-ab54a98ceb1f0ad2", Some(0), Some(0)),
            ("gpu-AB54", Some(0), None),
            ("GPU-ab0", Some(2), Some(2)),
            // Two begin so.
            ("GPU-ab", None, Some(0)),
            ("GPU-XX", None, Some(1)),
            ("GPU-", None, Some(0)),
            ("GPU-ab54a98ceb1f0ad3", None, None),
        ] {
            assert_eq!(named_by_rocr(entry, &uuids), rocr, "{entry}");
            assert_eq!(named_by_hip(entry, &uuids), hip, "{entry}");
        }
    }

    #[test]
    fn of_the_log_only_what_tells_of_trouble() {
        let log = "Nov 20 10:00:01 host kernel: kfd kfd: amdgpu: PITCAIRN  not supported in kfd\n\
                   Nov 20 10:00:01 host kernel: amdgpu 0000:01:00.0: amdgpu: Fetched VBIOS from VFCT\n\
                   [    4.1] kfd kfd: amdgpu: skipped device 1002:7300, PCI rejects atomics 730<0\n";
        assert_eq!(
            trouble(log),
            [
                "kfd kfd: amdgpu: PITCAIRN  not supported in kfd",
                "kfd kfd: amdgpu: skipped device 1002:7300, PCI rejects atomics 730<0"
            ]
        );
    }

    #[test]
    fn a_product_by_device_and_revision() {
        let ids =
            "# list\n1.0.0\n73DF,\tC0,\tAMD Radeon RX 6750 XT\n73DF,\tC1,\tAMD Radeon RX 6700 XT\n";
        assert_eq!(product(ids, 0x73df, 0xc1), Some("AMD Radeon RX 6700 XT"));
        assert_eq!(product(ids, 0x73df, 0xc2), None);
    }
}
