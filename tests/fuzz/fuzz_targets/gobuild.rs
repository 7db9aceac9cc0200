//! The build record of a Go program.

#![no_main]

use gpudoctor::read::gobuild;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = gobuild::build(&file);
});
