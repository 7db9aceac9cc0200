//! `kernel_log`.

use crate::read::proc::{Xid, kernel_log, kmsg_record, xid};

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn the_same_message_wherever_it_is_found() {
    for line in [
        "NVRM: No NVIDIA GPU found.",
        "[    5.140900] NVRM: No NVIDIA GPU found.",
        "<3>[    5.140900][  T123] NVRM: No NVIDIA GPU found.\r",
        "[Mon Nov 20 10:00:01 2023] NVRM: No NVIDIA GPU found.",
        "kernel: NVRM: No NVIDIA GPU found.",
        "Nov  2 10:00:01 some-host kernel: [ 5.140900] NVRM: No NVIDIA GPU found.",
        "2022-10-20T11:02:15.123456+02:00 some-host kernel: NVRM: No NVIDIA GPU found.",
    ] {
        assert_eq!(kernel_log(line), ["NVRM: No NVIDIA GPU found."], "{line}");
    }
    let program = "Nov 20 10:00:01 some-host systemd-modules-load[123]: Failed to insert module 'nvidia': Key was rejected by service";
    assert_eq!(
        kernel_log(program),
        ["systemd-modules-load: Failed to insert module 'nvidia': Key was rejected by service"]
    );
    assert_eq!(
        kernel_log("[drm:nv_drm_load [nvidia_drm]] *ERROR* failed"),
        ["[drm:nv_drm_load [nvidia_drm]] *ERROR* failed"]
    );
}

#[test]
fn which_lines_speak_of_gpus() {
    let kept = strings(&[
        "NVRM: Xid (PCI:0000:0b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "NVRM: API mismatch: the client has the version 999.88.77, but",
        "nvidia: module verification failed: signature and/or required key missing - tainting kernel",
        "Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7",
        "nouveau 0000:01:00.0: unknown chipset (b76000a1)",
        "NovaCore 0000:01:00.0: enabled",
        "vfio-pci 0000:01:00.0: vgaarb: deactivate vga console",
        "vfio_pci: add [10de:1b80[ffffffff:ffffffff]] class 0x000000/00000000",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "kfd kfd: amdgpu: PITCAIRN  not supported in kfd",
        "NVRM: \u{1b}[31mred",
    ]);
    assert_eq!(kernel_log(&kept.join("\n")), kept);
    let others = [
        "Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 nouveau.modeset=0",
        "Kernel command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 nouveau.modeset=0",
        "input: HDA NVidia HDMI/DP,pcm=3 as /devices/pci0000:00/0000:01:00.1/sound/card1/input9",
        "Modules linked in: nvidia_uvm(POE) nvidia(POE)",
        "Lockdown: Xorg: raw io port access is restricted; see man kernel_lockdown.7",
        "vfio-pci 0000:03:00.0: enabling device",
        "usb 1-1: new device, number 10de",
        "novatel: registered",
    ];
    assert_eq!(kernel_log(&others.join("\n")), Vec::<String>::new());
}

#[test]
fn the_newest_lines_are_kept() {
    let lines: Vec<_> = (0..1000).map(|i| format!("[{i}.0] NVRM: {i}")).collect();
    let text = lines.join(
        "
",
    );
    let kept = kernel_log(&text);
    assert_eq!(
        (kept.len(), kept[0].as_str(), kept[199].as_str()),
        (200, "NVRM: 800", "NVRM: 999")
    );
    let long = kernel_log(&format!("NVRM: {}", "é".repeat(5000)));
    assert_eq!(long[0].len(), 1024);
}

#[test]
fn records_of_the_kernels_own_device() {
    let record = "4,339,5140900,-;NVRM: a; b\n SUBSYSTEM=pci\n DEVICE=+pci:0000:01:00.0\n";
    assert_eq!(kmsg_record(record), Some("NVRM: a; b"));
    assert_eq!(kmsg_record("12,1,2,-;NVRM: a program says so\n"), None);
    for text in ["", "NVRM: a; b", ";", "x,1;y"] {
        assert_eq!(kmsg_record(text), None, "{text}");
    }
}

#[test]
fn errors_that_the_driver_tells_of_a_gpu() {
    for (message, told) in [
        (
            "NVRM: Xid (PCI:0000:0b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            Some(("0000:0b:00.0", 79)),
        ),
        (
            "NVRM: Xid (PCI:0000:C1:00 GPU-I:05): 31, pid=1, Ch 00000008",
            Some(("0000:c1:00.0", 31)),
        ),
        (
            "NVRM: Xid (0000:03:00): 13, 0001 00000000",
            Some(("0000:03:00.0", 13)),
        ),
        (
            "NVRM: Xid (PCI:0000:0b:00): 119",
            Some(("0000:0b:00.0", 119)),
        ),
        ("NVRM: Xid (PCI:0000:0b:00): x", None),
        ("NVRM: Xid (): ", None),
        ("NVRM: Xid (PCI:0000:0b:00): 99999999999", None),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
            None,
        ),
    ] {
        let told = told.map(|(address, code)| Xid {
            address: address.to_owned(),
            code,
        });
        assert_eq!(xid(message), told, "{message}");
    }
}
