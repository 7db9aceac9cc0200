//! Driver versions in strings of a library.

#![no_main]

use gpudoctor::read::elf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = elf::libcuda_driver_version(&file);
    let _ = elf::libnvidia_ml_version(&file);
    let _ = elf::fabric_manager_version(&file);
});
