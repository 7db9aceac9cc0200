//! The version of a library by its recipe.

#![no_main]

use gpudoctor::read::{elf, recipes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    if let elf::Shape::Elf(elf) = elf::identify(&file) {
        for name in [
            "libcublasLt.so.13",
            "libcudnn_graph.so.9",
            "libnccl.so.2",
            "libnvrtc.so.12",
        ] {
            let elf = elf::Elf {
                soname: Some(name.to_owned()),
                ..elf.clone()
            };
            let _ = recipes::identify(&file, &elf, name);
        }
    }
});
