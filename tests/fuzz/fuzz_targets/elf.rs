//! Headers, notes, versions and symbols of an ELF file.

#![no_main]

use gpudoctor::read::elf;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let _ = elf::identify(&file);
    let _ = elf::section(&file, ".rodata");
    let _ = elf::note_section(&file, ".note.gnu.build-id");
    let _ = elf::compat_note(&file);
    let _ = elf::highest_version_definition(&file, "EXAMPLE_");
    let _ = elf::dynamic_symbols_defined(&file, &["example_init", "x"]);
});
