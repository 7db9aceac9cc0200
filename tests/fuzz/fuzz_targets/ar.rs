//! The members of a static library.

#![no_main]

use gpudoctor::read::ar;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = ar::members(&file);
});
