//! Requirement and lock files, and files of conda and pixi.

#![no_main]

use gpudoctor::preflight::manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = manifest::decoded(bytes) else {
        return;
    };
    for name in [
        "requirements.txt",
        "uv.lock",
        "poetry.lock",
        "environment.yml",
        "pixi.lock",
    ] {
        let _ = manifest::read(name, &text);
    }
    let _ = manifest::looks_like_requirements(&text);
});
