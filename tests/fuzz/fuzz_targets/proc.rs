//! Small files of /proc, /sys and /etc.

#![no_main]

use gpudoctor::read::{proc, start};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = proc::efi_bool(bytes);
    let text = String::from_utf8_lossy(bytes);
    let text = text.as_ref();
    let _ = proc::modules(text);
    let _ = proc::nvidia_version(text);
    let _ = proc::gpu_information("0000:01:00.0", text);
    let _ = proc::params(text);
    let _ = proc::char_devices(text);
    let _ = proc::os_release(text);
    let _ = proc::cmdline(text);
    let _ = proc::limits(text);
    let _ = proc::lockdown(text);
    let _ = proc::keyring_count(text, ".machine");
    let _ = proc::modules_dep(text);
    let _ = proc::modprobe_lines("a.conf", text);
    let _ = proc::mountinfo(text);
    let _ = proc::group_names(text);
    let _ = proc::status_ids(text);
    let _ = proc::tegra_release(text);
    let _ = proc::is_gvisor(text);
    let _ = proc::gridd_log(text);
    let _ = proc::vgpu_profile(text);
    let _ = proc::wsl_ldconfig(text);
    let _ = proc::bar_sizes(text);
    let _ = proc::hex(text);
    let _ = proc::cuda_toolkit_version(text);
    let _ = start::first_line(bytes);
    let _ = start::env_command(text);
    if let Some(handler) = start::handler(text) {
        let _ = handler.takes(bytes);
    }
});
