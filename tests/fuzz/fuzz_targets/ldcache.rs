//! The cache of the loader.

#![no_main]

use gpudoctor::read::ldcache::{parse, parse_prefixed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = parse(bytes, &["libcuda.so.1"]);
    let _ = parse_prefixed(bytes, &[""]);
});
