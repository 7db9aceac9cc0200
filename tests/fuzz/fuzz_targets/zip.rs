//! The index of a wheel.

#![no_main]

use gpudoctor::read::zip;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    for member in zip::members(&file).unwrap_or_default() {
        let _ = member.range(&file);
    }
});
