//! Package lists of dpkg and pacman.

#![no_main]

use gpudoctor::read::proc::{dpkg_packages, pacman_dir_name};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = dpkg_packages(bytes);
    let _ = pacman_dir_name(&String::from_utf8_lossy(bytes));
});
