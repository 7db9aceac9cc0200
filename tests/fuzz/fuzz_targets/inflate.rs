//! A deflated member, read back and forth.

#![no_main]

use gpudoctor::read::inflate::Inflated;
use gpudoctor::read::window::bytes_up_to;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    if let Ok(member) = Inflated::new(&file, 0..file.len() as u64, 1 << 20) {
        for offset in [1_000_000, 0, 70_000, 500] {
            let _ = bytes_up_to(&member, offset, 1000);
        }
    }
});
