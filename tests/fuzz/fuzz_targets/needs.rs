//! Version needs and definitions, undefined symbols, the CUDA runtime.

#![no_main]

use gpudoctor::read::fatbin::Look;
use gpudoctor::read::{elf, linkage, needs};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let found = needs::version_needs(&file);
    let _ = needs::loading(&file);
    let _ = needs::version_definitions(&file);
    let _ = needs::undefined_symbols(&file);
    let _ = needs::undefined_symbols_of(&file, |library| library.is_some());
    if let elf::Shape::Elf(elf) = elf::identify(&file) {
        let _ = linkage::linkage(&file, &elf, &found, true, Look::default());
    }
});
