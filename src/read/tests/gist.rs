//! What was learnt of a library as it came by, against what the library itself says.

use proptest::prelude::*;

use super::fatbin::{CONCATENATED, LZ4, OBJECT, SEVERAL, SHARED, ZSTD};
use super::{Counted, LIBRARY};
use crate::read::elf::{self, Shape};
use crate::read::fatbin::{Look, device_code};
use crate::read::gist::{Gist, Sifted};
use crate::read::linkage::linkage;
use crate::read::window::{ReadAt, bytes_up_to};
use crate::read::{cudart, gobuild, needs, recipes};

/// Everything that is asked of a file, as text.
fn answers(file: &dyn ReadAt, name: &str) -> String {
    let code = device_code(file, Look::default());
    let needed = needs::version_needs(file);
    let shape = elf::identify(file);
    let (mut linked, mut identity) = (None, None);
    if let Shape::Elf(elf) = &shape {
        let has_code = !code.is_empty();
        linked = Some(linkage(file, elf, &needed, has_code, Look::default()));
        let elf = elf::Elf {
            soname: Some(name.to_owned()),
            ..elf.clone()
        };
        identity = recipes::identify(file, &elf, name);
    }
    let loading = needs::loading(file);
    let (defined, undefined) = (
        needs::version_definitions(file),
        needs::undefined_symbols(file),
    );
    let (version, inside) = (cudart::version(file), cudart::version_inside(file));
    let build = gobuild::build(file);
    format!(
        "{code:?} {needed:?} {shape:?} {linked:?} {identity:?} {loading:?} {defined:?} {undefined:?} {version:?} {inside:?} {build:?}"
    )
}

fn check(file: &[u8], name: &str) {
    let file = &file;
    let Some(gist) = Gist::of(file, name).unwrap() else {
        return;
    };
    let sifted = Sifted::new(file, gist);
    assert_eq!(answers(&sifted, name), answers(file, name), "{name}");
    for at in (0..file.len()).step_by(997) {
        assert_eq!(bytes_up_to(&sifted, at, 301), bytes_up_to(file, at, 301));
        let at_hand = sifted.gist().unwrap().at_hand(at);
        assert!(bytes_up_to(file, at, at_hand.len()) == at_hand);
    }
    for (number, page) in sifted.into_pages() {
        assert!(bytes_up_to(file, number * 4096, page.len()) == *page);
    }
}

/// A library of so many megabytes: what its headers know, and much behind it.
fn large(library: &[u8], megabytes: usize) -> Vec<u8> {
    let mut file = library.to_vec();
    file.resize(megabytes << 20, 0);
    file
}

const NAMES: [&str; 3] = ["libnccl.so.2", "libcudnn_graph.so.9", "libnvrtc.so.12"];

#[test]
fn the_same_is_answered() {
    for library in [SHARED, LIBRARY, OBJECT, SEVERAL] {
        for name in NAMES {
            check(library, name);
        }
        let mut file = large(library, 3);
        // Texts and device code where nothing in the headers says so, across two pieces.
        let at = (256 << 10) - 5;
        file[at..at + 22].copy_from_slice(b"NCCL version 2.21.5+cu");
        file[at + 300_000..at + 300_000 + SEVERAL.len()].copy_from_slice(SEVERAL);
        check(&file, NAMES[0]);
    }
}

#[test]
fn nothing_is_read_twice() {
    let file = Counted::new(large(SHARED, 3));
    let gist = Gist::of(&file, "libshared.so").unwrap().unwrap();
    let once = file.bytes();
    assert_eq!(once, file.file.len());
    let sifted = Sifted::new(&file, gist);
    assert!(!device_code(&sifted, Look::default()).is_empty());
    answers(&sifted, "libshared.so");
    assert_eq!(file.bytes(), once);
}

#[test]
fn what_is_no_library_has_none() {
    for file in [&b""[..], b"!<arch>\n", b"\x7fELF", ZSTD, LZ4, CONCATENATED] {
        assert!(Gist::of(&file, "x").unwrap().is_none());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn damaged_files(which in 0usize..3, places in prop::collection::vec((any::<usize>(), any::<u8>()), 1..12), cut: usize) {
        let mut file = [SHARED, OBJECT, LIBRARY][which].to_vec();
        for (place, byte) in places {
            let end = if place % 2 == 0 { 512 } else { file.len() };
            let place = place / 2 % end.min(file.len());
            file[place] = byte;
        }
        if cut % 3 == 0 {
            file.truncate(cut / 3 % file.len());
        }
        check(&file, NAMES[which]);
    }
}
