//! Device code of a fat binary, an ELF file or PTX text.

#![no_main]

use gpudoctor::read::fatbin;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = fatbin::device_code(&file, fatbin::Look::default());
    let _ = fatbin::device_code(&file, fatbin::Look { deep: true });
    let _ = fatbin::cubin_arch(&file);
});
