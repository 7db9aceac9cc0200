//! Kernel modules, packed or not: the first byte says how.

#![no_main]

use gpudoctor::read::kmod::{Compression, modinfo};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((how, file)) = input.split_first() else {
        return;
    };
    let compression = match how % 4 {
        0 => Compression::None,
        1 => Compression::Xz,
        2 => Compression::Zstd,
        _ => Compression::Gzip,
    };
    let _ = modinfo(&file, compression);
});
