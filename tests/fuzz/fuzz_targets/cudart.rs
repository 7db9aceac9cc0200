//! The version constant in the code of a runtime.

#![no_main]

use gpudoctor::read::cudart;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = cudart::version(&file);
});
