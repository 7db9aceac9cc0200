//! Lists of architectures, caches and commands of builds.

#![no_main]

use gpudoctor::read::architectures;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let _ = architectures::of_torch(&text);
    let _ = architectures::of_cmake(&text);
    let _ = architectures::of_flags(&text);
    let _ = architectures::cmake_cache(&text);
    let _ = architectures::compile_commands(&text);
});
