//! Bundles of code for AMD's GPUs, in an ELF file and as the section's bytes.

#![no_main]

use gpudoctor::read::offload;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = offload::bundles(&file, &mut |_| false);
});
