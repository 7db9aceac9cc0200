//! `proc`, `etc`; and that any text is answered, by those and the others of text.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::facts::{CharMajor, DriverGpu, Flavour, LoadedModule, User};
use crate::read::proc::{
    Mount, bar_sizes, char_devices, cmdline, cuda_toolkit_version, dpkg_packages, efi_bool,
    gpu_information, gridd_log, group_names, hex, is_gvisor, kernel_log, keyring_count,
    kmsg_record, lockdown, modprobe_lines, modules, modules_dep, mountinfo, nvidia_version,
    os_release, pacman_dir_name, params, status_ids, tegra_release, vgpu_profile, wsl_ldconfig,
};
use crate::version::Version;

#[test]
fn loaded_modules() {
    let text = "\
nvidia_uvm 2093056 0 - Live 0x0000000000000000 (POE)
nvidia 14381056 34 nvidia_uvm,nvidia_modeset, Loading 0x0000000000000000 (OE+)
i915 2527232 - - Live 0x0000000000000000

short
";
    let module = |name: &str, state: &str, taint: &str, used_by| LoadedModule {
        name: name.to_owned(),
        state: state.to_owned(),
        taint: taint.to_owned(),
        used_by,
    };
    assert_eq!(
        modules(text),
        [
            module("nvidia_uvm", "Live", "POE", 0),
            module("nvidia", "Loading", "OE+", 34),
            module("i915", "Live", "", -1),
        ]
    );
}

#[test]
fn driver_version_lines() {
    for (line, version, flavour) in [
        (
            "NVIDIA UNIX x86_64 Kernel Module  999.88.77  Sat Jun 14 16:05:50 UTC 2025",
            "999.88.77",
            Flavour::Proprietary,
        ),
        (
            "NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@build-host)  Tue",
            "580.95.05",
            Flavour::Open,
        ),
        (
            "NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build  (a@b)  Tue",
            "540.4.0",
            Flavour::Open,
        ),
        (
            "NVIDIA UNIX x86_64 Kernel Module  396.44  Wed Jul 11 16:51:49 PDT 2018",
            "396.44",
            Flavour::Proprietary,
        ),
    ] {
        let text = format!("NVRM version: {line}\nGCC version:  gcc 12\n");
        let found = nvidia_version(&text).unwrap();
        assert_eq!(
            (found.version.as_str(), found.flavour, found.raw),
            (version, Some(flavour), text)
        );
    }
    for text in [
        "",
        "GCC version: 12.1",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module",
        "NVRM version: Kernel Module 7",
    ] {
        assert!(nvidia_version(text).is_none(), "{text}");
    }
    let long = "NVRM version: Kernel Module 999.1\n".to_owned() + &"é".repeat(4000);
    assert_eq!(nvidia_version(&long).unwrap().raw.len(), 4096);
}

#[test]
fn a_gpu_that_the_module_lists() {
    let text = "\
Model: \t\t NVIDIA Example 9000
IRQ:   \t\t 67
GPU UUID: \t GPU-00000000-0000-4000-8000-000000000001
Bus Location: \t 0000:65:00.0
Device Minor: \t 3
GPU Firmware: \t 999.88.77
GPU Excluded:\t No
";
    let gpu = gpu_information("0000:65:00.0", text);
    let expected = DriverGpu {
        address: "0000:65:00.0".to_owned(),
        model: "NVIDIA Example 9000".to_owned(),
        uuid: "GPU-00000000-0000-4000-8000-000000000001".to_owned(),
        minor: Some(3),
        firmware: "999.88.77".to_owned(),
        excluded: false,
    };
    assert_eq!(gpu, expected);
    let other = gpu_information(
        "",
        "GPU Firmware: \t N/A\nGPU Excluded:\t Yes\nDevice Minor: ?\n",
    );
    assert_eq!(
        other,
        DriverGpu {
            excluded: true,
            ..DriverGpu::default()
        }
    );
}

#[test]
fn driver_parameters() {
    let text = "ModifyDeviceFiles: 1\nDeviceFileMode: 438\nExcludedGpus: \"\"\nRmMsg: \"a: b\"\nno value\n";
    let expected = [
        ("DeviceFileMode", "438"),
        ("ExcludedGpus", ""),
        ("ModifyDeviceFiles", "1"),
        ("RmMsg", "a: b"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(params(text), BTreeMap::from(expected));
}

#[test]
fn device_majors() {
    let text = "\
Character devices:
  1 mem
195 nvidia
195 nvidiactl
235 nvidia-uvm
241 kfd
 10 misc

Block devices:
259 nvidia-disk
";
    let found = char_devices(text);
    let names: Vec<_> = found.iter().map(|m| (m.major, m.name.as_str())).collect();
    assert_eq!(
        names,
        [
            (195, "nvidia"),
            (195, "nvidiactl"),
            (235, "nvidia-uvm"),
            (241, "kfd")
        ]
    );
    assert_eq!(char_devices("195 nvidia\n"), Vec::<CharMajor>::new());
}

#[test]
fn distributions() {
    let text = "PRETTY_NAME=\"A \\\"B\\\" \\$1\"\nID=ubuntu\nID_LIKE=\"rhel fedora\"\nVERSION_ID='24.04'\n# ID=x\nVARIANT_ID=silverblue\n";
    let os = os_release(text);
    assert_eq!(os.pretty_name, "A \"B\" $1");
    assert_eq!(
        (
            os.id.as_str(),
            os.version_id.as_str(),
            os.variant_id.as_str()
        ),
        ("ubuntu", "24.04", "silverblue")
    );
    assert_eq!(os.id_like, ["rhel", "fedora"]);
}

#[test]
fn kernel_parameters() {
    let text = "BOOT_IMAGE=/vmlinuz-6.1 root=UUID=00000000-0000 ro quiet nouveau.modeset=0 nvidia-drm.modeset=1 \
        rd.driver.blacklist=nouveau,nova_core modprobe.blacklist=nouveau intel_iommu=on iommu=pt pci=realloc nomodeset \
        vfio-pci.ids=10de:1b80 nova_core.x=1 lockdown=integrity module.sig_enforce=1 \
        nvidia.NVreg_TemporaryFilePath=/home/alice novalue cryptdevice=UUID=1:nvidia resume=/dev/sda2 -- nouveau.late=1\n";
    assert_eq!(
        cmdline(text),
        [
            "nouveau.modeset=0",
            "nvidia-drm.modeset=1",
            "rd.driver.blacklist=nouveau,nova_core",
            "modprobe.blacklist=nouveau",
            "intel_iommu=on",
            "iommu=pt",
            "pci=realloc",
            "nomodeset",
            "vfio-pci.ids=10de:1b80",
            "nova_core.x=1",
            "lockdown=integrity",
            "module.sig_enforce=1",
            "nvidia.NVreg_TemporaryFilePath",
        ]
    );
}

#[test]
fn secure_boot() {
    assert_eq!(efi_bool(&[6, 0, 0, 0, 1]), Some(true));
    assert_eq!(efi_bool(&[6, 0, 0, 0, 0]), Some(false));
    for bytes in [&[][..], &[1], &[6, 0, 0, 0, 2], &[6, 0, 0, 0, 1, 0]] {
        assert_eq!(efi_bool(bytes), None);
    }
    assert_eq!(
        lockdown("none [integrity] confidentiality\n").as_deref(),
        Some("integrity")
    );
    assert_eq!(lockdown("none integrity\n"), None);
    let keys = "\
00000001 I------     1 perm 1f0b0000     0     0 keyring   .builtin_trusted_keys: 2
00000002 I------     1 perm 1f0f0000     0     0 keyring   .machine: empty
00000003 I------     1 perm 1f0f0000     0     0 asymmetri Example key: X509.rsa 1 []
00000004 I------     1 perm 1f0f0000     0     0 keyring   .platform: 3/8
";
    for (ring, count) in [
        (".builtin_trusted_keys", Some(2)),
        (".machine", Some(0)),
        (".platform", Some(3)),
        (".mach", None),
        (".other", None),
    ] {
        assert_eq!(keyring_count(keys, ring), count, "{ring}");
    }
}

#[test]
fn modules_of_a_kernel() {
    let text = "\
kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.zst: kernel/drivers/video/fbdev/core/fb.ko.zst
kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko: kernel/drivers/acpi/video.ko
kernel/drivers/i2c/busses/i2c-nvidia-gpu.ko:
updates/dkms/nvidia-current-uvm.ko.zst: updates/dkms/nvidia-current.ko.zst
updates/dkms/nvidia.ko:
/nix/store/x/misc/nvidia_drm.ko.xz: misc/nvidia.ko
nvidia.so: x
";
    let expected = [
        "updates/dkms/nvidia-current-uvm.ko.zst",
        "updates/dkms/nvidia.ko",
        "/nix/store/x/misc/nvidia_drm.ko.xz",
    ];
    assert_eq!(modules_dep(text), expected);
}

#[test]
fn modprobe_configuration() {
    let text = "\
# blacklist nvidia
blacklist nouveau # said the installer
  options nvidia-current \\
      NVreg_DeviceFileMode=0660
install nova_core /bin/false
softdep nvidia pre: vfio-pci
blacklist novatel
options snd_hda_intel power_save=1
nvidia
";
    let lines = modprobe_lines("/etc/modprobe.d/a.conf", text);
    assert!(
        lines
            .iter()
            .all(|line| line.file == "/etc/modprobe.d/a.conf")
    );
    let texts: Vec<_> = lines.into_iter().map(|line| line.text).collect();
    let expected = [
        "blacklist nouveau",
        "options nvidia-current NVreg_DeviceFileMode=0660",
        "install nova_core /bin/false",
        "softdep nvidia pre: vfio-pci",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn mounts() {
    let text = "\
1200 1100 0:450 / / rw,relatime - overlay overlay rw,lowerdir=/a - b
1210 1200 0:55 /nvidiactl /dev/nvidiactl rw,nosuid shared:1 master:2 - devtmpfs udev rw
1212 1200 8:2 /a\\040b\\134\\011 /c\\0 ro - fuse.x  rw
broken line
";
    let mount = |root: &str, target: &str, fstype: &str, source: &str| Mount {
        root: root.to_owned(),
        target: target.to_owned(),
        fstype: fstype.to_owned(),
        source: source.to_owned(),
        read_only: target.starts_with("/c"),
    };
    assert_eq!(
        mountinfo(text),
        [
            mount("/", "/", "overlay", "overlay"),
            mount("/nvidiactl", "/dev/nvidiactl", "devtmpfs", "udev"),
            mount("/a b\\\t", "/c\\0", "fuse.x", ""),
        ]
    );
}

#[test]
fn users_and_groups() {
    let groups = group_names("root:x:0:\nvideo:x:44:user,other\nbroken\n+nis::\n:x:5:\n");
    assert_eq!(
        groups,
        BTreeMap::from([(0, "root".to_owned()), (44, "video".to_owned())])
    );
    let status =
        "Name:\tx\nUid:\t1000\t1001\t1002\t1003\nGid:\t100\t101\t102\t103\nGroups:\t27 44 \n";
    assert_eq!(
        status_ids(status),
        Some(User {
            uid: 1001,
            gid: 101,
            groups: vec![27, 44]
        })
    );
    assert_eq!(status_ids("Uid:\t0\t0\t0\t0\n"), None);
}

#[test]
fn kernels_of_gvisor() {
    for text in [
        "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n",
        "Linux version 4.19.0-gvisor #1 SMP Sun Jan 10 15:06:54 PST 2016\n",
    ] {
        assert!(is_gvisor(text), "{text}");
    }
    // A distribution's kernel of that release.
    let real = "Linux version 4.4.0-210-generic (buildd@lcy01) (gcc 5.4.0) #242-Ubuntu SMP Fri Apr 16 09:57:56 UTC 2021\n";
    assert!(!is_gvisor(real));
}

#[test]
fn names_of_vgpus() {
    for (model, profile) in [
        ("NVIDIA A40-48Q", Some(("A40-48Q", 'Q'))),
        ("GRID T4-2B", Some(("T4-2B", 'B'))),
        ("NVIDIA A100-1-5C", Some(("A100-1-5C", 'C'))),
        ("NVIDIA A100-1-5CME", Some(("A100-1-5CME", 'C'))),
        ("GRID P40-8A", Some(("P40-8A", 'A'))),
        ("NVIDIA RTX6000-Ada-12Q", Some(("RTX6000-Ada-12Q", 'Q'))),
        ("NVIDIA A40", None),
        ("NVIDIA A100-SXM4-40GB", None),
        ("Tesla V100-SXM2-16GB", None),
        ("NVIDIA H20-3e", None),
        ("NVIDIA B-Q", None),
        ("", None),
    ] {
        let found = vgpu_profile(model);
        assert_eq!(
            found,
            profile.map(|(name, series)| (name.to_owned(), series)),
            "{model}"
        );
    }
}

#[test]
fn what_gridd_says() {
    let log = "Dec  1 08:01:12 host nvidia-gridd[911]: Started (911)\n\
               Dec  1 08:01:14 host nvidia-gridd[911]: Failed to acquire license from licence.site.example (Info: x - Error: y)\n\
               Dec  1 08:01:15 host other[3]: nvidia-gridd: License acquired successfully.\n";
    assert_eq!(gridd_log(log), ["Failed to acquire license"]);
    let later = format!(
        "{log}2026-12-01T08:03:15+00:00 host nvidia-gridd: License acquired successfully. (Info: 192.0.2.1)\n"
    );
    assert_eq!(
        gridd_log(&later),
        ["Failed to acquire license", "License acquired successfully"]
    );
    assert!(gridd_log("").is_empty());
}

#[test]
fn settings_of_wsl() {
    let off = "# comment\n[boot]\nsystemd=true\n[ automount ]\nenabled = true\nldconfig = False\n";
    assert_eq!(wsl_ldconfig(off), Some(false));
    assert_eq!(wsl_ldconfig("[automount]\nldconfig=\"true\"\n"), Some(true));
    for text in [
        "",
        "ldconfig=false\n",
        "[network]\nldconfig=false\n",
        "[automount]\n#ldconfig=false\n",
        "[automount]\nldconfig=no\n",
    ] {
        assert_eq!(wsl_ldconfig(text), None, "{text}");
    }
}

#[test]
fn versions_in_text() {
    let text = |version: Option<Version>| version.map(|v| v.to_string());
    let tegra = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n# KERNEL_VARIANT: oot\n";
    assert_eq!(text(tegra_release(tegra)).as_deref(), Some("36.4.3"));
    assert_eq!(text(tegra_release("# R (release), REVISION: 4.3")), None);
    let json = r#"{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}, "nvcc": {"version": "1"}}"#;
    assert_eq!(text(cuda_toolkit_version(json)).as_deref(), Some("12.4.1"));
    assert_eq!(
        text(cuda_toolkit_version("CUDA Version 8.0.61\n")).as_deref(),
        Some("8.0.61")
    );
    assert_eq!(text(cuda_toolkit_version(r#"{"cuda": 1}"#)), None);
    assert_eq!(text(cuda_toolkit_version("CUDA Version\n")), None);
}

#[test]
fn pci_numbers() {
    let resource = "\
0x00000000de000000 0x00000000deffffff 0x0000000000040200
0x00000000c0000000 0x00000000cfffffff 0x000000000014220c
0x0000000000000000 0x0000000000000000 0x0000000000000000
0x0000000000000000 0x0000000001ffffff 0x000000000014220c
0x00000000d0000000 0x00000000d1ffffff 0x000000002014220c
0x000000000000e000 0x000000000000e07f 0x0000000000040101
0x00000000df000000 0x00000000df07ffff 0x0000000000046200
";
    assert_eq!(bar_sizes(resource), [16 << 20, 256 << 20, 0, 0, 0, 128]);
    assert_eq!(
        bar_sizes("0x2 0x1 0x0\nx y z\n0x1 0xffffffffffffffff 0x0"),
        [0, u64::MAX]
    );
    assert_eq!(hex("0x10de\n"), Some(0x10de));
    for text in ["10de", "0x", "0x1ffffffff", "0xg", ""] {
        assert_eq!(hex(text), None, "{text}");
    }
}

/// Asks everything; the answers do not matter.
fn ask_everything(text: &str) {
    let _ = (
        modules(text),
        nvidia_version(text),
        gpu_information("", text),
        params(text),
    );
    let _ = (
        char_devices(text),
        os_release(text),
        cmdline(text),
        efi_bool(text.as_bytes()),
    );
    let _ = (
        lockdown(text),
        keyring_count(text, ".machine"),
        modules_dep(text),
    );
    let _ = (
        modprobe_lines("", text),
        mountinfo(text),
        group_names(text),
        status_ids(text),
    );
    let _ = (
        tegra_release(text),
        wsl_ldconfig(text),
        bar_sizes(text),
        hex(text),
        kernel_log(text),
        kmsg_record(text),
    );
    let _ = (
        dpkg_packages(text.as_bytes()),
        pacman_dir_name(text),
        cuda_toolkit_version(text),
    );
}

proptest! {
    #[test]
    fn any_text_is_answered(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,80}") {
        ask_everything(&String::from_utf8_lossy(&bytes));
        ask_everything(&text);
    }

    /// Pieces of what the files hold, in any order and cut anywhere.
    #[test]
    fn pieces_are_answered(pieces in prop::collection::vec(prop::sample::select(vec![
        "NVRM version:", "Kernel Module", " 999.88.77 ", "Open", ":", "\n", " ", "\t", "\"", "'", "=", "(", ")", "[", "]", "<", ">", ";", ",",
        "Character devices:", " keyring ", ".machine", " - ", "\\040", "\\", "é", "\0", "0x", "ffffffffffffffff", "Uid:", "Gid:", "REVISION:",
        "# R", "{", "}", "Nov 20 10:00:01 ", "2022-10-20T11:02:15 ", "kernel: ", "NVRM: ", "nvidia", ".ko", "--", "CUDA Version ", "-",
    ]), 0..25)) {
        ask_everything(&pieces.concat());
    }
}
