//! `elf`, `symbols`, `notes`, `identity`, `cudart`.

use proptest::prelude::*;

use super::{LIBRARY, LIBRARY_I386, MODULE, patched, replaced, without_sections};
use crate::read::elf::{
    Elf, Kind, Shape, compat_note, dynamic_symbols_defined, fabric_manager_version,
    highest_version_definition, identify, libcuda_driver_version, libnvidia_ml_version,
    note_section, section,
};
use crate::read::{cudart, window};

fn elf(file: &[u8]) -> Elf {
    match identify(&file) {
        Shape::Elf(elf) => elf,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_library() {
    let expected = Elf {
        arch: "x86_64".to_owned(),
        is_64: true,
        kind: Kind::SharedObject,
        soname: Some("libexample.so.9".to_owned()),
        needed: vec!["libneeded.so.1".to_owned()],
        rpath: None,
        runpath: Some("$ORIGIN/../lib".to_owned()),
        interp: None,
        build_id: Some("0123456789abcdef".to_owned()),
    };
    assert_eq!(elf(LIBRARY), expected);
    assert_eq!(
        elf(&without_sections(LIBRARY)),
        expected,
        "sections are not needed"
    );

    let rpath = elf(&replaced(
        LIBRARY,
        b"\x1d\0\0\0\0\0\0\0",
        b"\x0f\0\0\0\0\0\0\0",
    ));
    assert_eq!((rpath.rpath, rpath.runpath), (expected.runpath, None));
}

#[test]
fn machines_and_kinds() {
    for (machine, arch) in [
        (183, "aarch64"),
        (3, "i386"),
        (21, "ppc64le"),
        (40, "arm"),
        (190, "machine 190"),
    ] {
        assert_eq!(elf(&patched(LIBRARY, 18, &[machine, 0])).arch, arch);
    }
    for (number, kind) in [(2, Kind::Executable), (4, Kind::Core), (9, Kind::Other(9))] {
        assert_eq!(elf(&patched(LIBRARY, 16, &[number, 0])).kind, kind);
    }
    assert_eq!(elf(MODULE).kind, Kind::Relocatable);
    let old = elf(LIBRARY_I386);
    assert_eq!((old.arch.as_str(), old.is_64), ("i386", false));
    assert_eq!(old.soname.as_deref(), Some("libexample-i386.so"));
}

#[test]
fn what_is_no_library_is_said_in_words() {
    for (start, words) in [
        (
            &b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"[..],
            "a Git LFS pointer, not the library itself",
        ),
        (b"!<arch>\nlib.o/", "a static library (ar archive)"),
        (b"\x1f\x8b\x08\0", "a gzip archive"),
        (b"  <!DOCTYPE HTML><html>", "an HTML page"),
        (b"BZh91AY&SY", "a bzip2 archive"),
        (b"#!/bin/sh\n", "a script"),
        (
            b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\0",
            "an Apptainer image (SIF)",
        ),
        (
            b"/* GNU ld script */\nGROUP ( a b )",
            "a linker script, for linking programs and not for loading",
        ),
        (b"not found\n", "a text file"),
        (&[0; 600], "a file that begins with zero bytes only"),
        (
            b"\x01\x02\x03",
            "no ELF file: it begins with the bytes 010203",
        ),
        (
            b"\x7fELF\x09\x01\x01                                                          ",
            "an ELF file of an unknown class or byte order",
        ),
    ] {
        assert_eq!(identify(&start), Shape::NotElf(words.to_owned()));
    }
    assert_eq!(identify(&&b""[..]), Shape::Empty);
}

#[test]
fn every_cut_is_noticed() {
    for len in 4..LIBRARY.len() {
        let Shape::Truncated(words) = identify(&&LIBRARY[..len]) else {
            panic!("cut at {len}")
        };
        assert!(words.ends_with(&format!("the file has {len}")), "{words}");
    }
    let table = without_sections(LIBRARY);
    let Shape::Truncated(words) = identify(&&table[..1500]) else {
        panic!()
    };
    assert_eq!(
        words,
        "its last segment ends at byte 1624, but the file has 1500"
    );
}

#[test]
fn an_unreadable_file_is_not_called_broken() {
    struct Refused;
    impl crate::read::ReadAt for Refused {
        fn len(&self) -> u64 {
            5000
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::PermissionDenied.into())
        }
    }
    assert_eq!(
        identify(&Refused),
        Shape::Unreadable("permission denied".to_owned())
    );
}

#[test]
fn sections_and_notes() {
    let at = section(&LIBRARY, ".rodata").unwrap();
    assert!(window::bytes(&LIBRARY, at.start, 7).unwrap() == b"999.11\0");
    assert_eq!(section(&LIBRARY, ".rodat"), None);
    assert_eq!(section(&without_sections(LIBRARY), ".rodata"), None);
    let note = note_section(&LIBRARY, ".note.gnu.build-id").unwrap();
    assert_eq!(
        (note.owner.as_str(), note.kind, note.descriptor.len()),
        ("GNU", 3, 8)
    );
}

#[test]
fn compat_notes() {
    let note = compat_note(&LIBRARY).unwrap().unwrap();
    assert_eq!(
        (note.cuda.unwrap().to_string(), note.drivers),
        ("12.8".to_owned(), vec![535, 550])
    );

    let other_case = replaced(LIBRARY, b"CUDA version", b"CUDA Version");
    assert_eq!(
        compat_note(&other_case)
            .unwrap()
            .unwrap()
            .cuda
            .unwrap()
            .to_string(),
        "12.8"
    );
    let no_list = replaced(LIBRARY, b"\"driver\"", b"\"others\"");
    assert!(compat_note(&no_list).unwrap().unwrap().drivers.is_empty());
    let texts = replaced(LIBRARY, b"[535,550]", b"[\"53\", 1]");
    assert_eq!(compat_note(&texts).unwrap().unwrap().drivers, [53, 1]);

    assert_eq!(
        compat_note(&without_sections(LIBRARY)),
        None,
        "an ordinary libcuda has none"
    );
    assert!(
        compat_note(&replaced(LIBRARY, b"{\"format", b"[\"format"))
            .unwrap()
            .is_err()
    );
    assert!(
        compat_note(&replaced(LIBRARY, b"NVIDIA Corp", b"Somebody's "))
            .unwrap()
            .is_err()
    );
}

#[test]
fn version_definitions() {
    let highest = |prefix| highest_version_definition(&LIBRARY, prefix).map(|v| v.to_string());
    assert_eq!(highest("EXAMPLE_").as_deref(), Some("1.10"));
    assert_eq!(highest("libexample.so.").as_deref(), Some("9"));
    assert_eq!(highest("GLIBC_"), None);
    assert_eq!(highest_version_definition(&MODULE, "EXAMPLE_"), None);
}

#[test]
fn symbols_by_both_hash_tables() {
    let wanted = [
        "example_init",
        "example_version",
        "needed",
        "example_ini",
        "other",
        "",
    ];
    let defined = [true, true, false, false, false, false];
    assert_eq!(dynamic_symbols_defined(&LIBRARY, &wanted), defined);
    let old_only = replaced(LIBRARY, b"\xf5\xfe\xff\x6f", b"\xf0\xfe\xff\x6f");
    assert_eq!(dynamic_symbols_defined(&old_only, &wanted), defined);
    assert_eq!(
        dynamic_symbols_defined(&LIBRARY_I386, &["example", "needed"]),
        [true, false]
    );
    assert_eq!(
        dynamic_symbols_defined(&&b"garbage"[..], &["a", "b"]),
        [false, false]
    );
}

#[test]
fn driver_versions() {
    let say = |v: Option<crate::version::Version>| v.map(|v| v.to_string()).unwrap_or_default();
    for file in [LIBRARY.to_vec(), without_sections(LIBRARY)] {
        assert_eq!(say(libcuda_driver_version(&file)), "999.88.77");
        assert_eq!(say(libnvidia_ml_version(&file)), "999.88.66");
        assert_eq!(say(fabric_manager_version(&file)), "999.88.55");
    }
    for (text, libcuda, ml) in [
        (&b"\x00460.56\x00\x00418.140\0"[..], "460.56", "460.56"),
        (b"\x00540.4.0\0", "540.4.0", "540.4.0"),
        (
            b"\xa3\xfe550.163.01\0\x00550.90.06\0",
            "550.163.01",
            "550.163.01",
        ),
        (
            b"/x/nvidia-application-profiles-550.90.07-rc\0\x00999.1.1\0",
            "550.90.07",
            "550.90.07",
        ),
        (b"\x0012.550.163.01\0", "", "550.163.01"),
        (
            b"\x00built for version 460.73.01 of it\0",
            "460.73.01",
            "460.73.01",
        ),
        (b"\x00550.163.01", "", ""),
        (b"550.163.01\0", "", ""),
        (
            b"\x00123.45\0\x00550.1\0\x001550.163.01\0\x00550.163.010\0\x00x550.163.01\0",
            "",
            "",
        ),
    ] {
        assert_eq!(
            say(libcuda_driver_version(&text)),
            libcuda,
            "{}",
            text.escape_ascii()
        );
        assert_eq!(
            say(libnvidia_ml_version(&text)),
            ml,
            "{}",
            text.escape_ascii()
        );
    }
    // Across the edge of a window.
    for at in 65_500..65_570 {
        let mut file = vec![b' '; 70_000];
        file[at..at + 12].copy_from_slice(b"\x00999.88.77\0\0");
        assert_eq!(say(libcuda_driver_version(&file)), "999.88.77", "{at}");
        assert_eq!(say(fabric_manager_version(&file)), "");
    }
}

#[test]
fn the_runtime_says_its_version_twice() {
    let version = |file: &[u8]| cudart::version(&file).map(|v| v.to_string());
    assert_eq!(version(LIBRARY).as_deref(), Some("12.4"));
    assert_eq!(version(&without_sections(LIBRARY)).as_deref(), Some("12.4"));
    let newer = replaced(LIBRARY, &12040u32.to_le_bytes(), &13050u32.to_le_bytes());
    assert_eq!(version(&newer).as_deref(), Some("13.5"));
    assert_eq!(
        version(&patched(LIBRARY, 18, &[183])),
        None,
        "another machine's code is not read"
    );
    assert_eq!(version(MODULE), None);
}

/// Asks everything; the answers do not matter.
fn ask_everything(file: &[u8]) {
    let _ = (
        identify(&file),
        section(&file, ".rodata"),
        note_section(&file, ".rodata"),
    );
    let _ = (
        compat_note(&file),
        highest_version_definition(&file, "EXAMPLE_"),
    );
    let _ = dynamic_symbols_defined(&file, &["example_init", "x"]);
    let _ = (libcuda_driver_version(&file), libnvidia_ml_version(&file));
    let _ = (fabric_manager_version(&file), cudart::version(&file));
}

proptest! {
    #[test]
    fn damaged_files_are_answered(
        which in 0usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..7),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut file = [LIBRARY, LIBRARY_I386, MODULE][which].to_vec();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        file.truncate(cut.map_or(file.len(), |cut| cut.index(file.len())));
        ask_everything(&file);
    }

    #[test]
    fn damaged_headers_are_answered(fields in prop::collection::vec((4usize..0x158, prop::sample::select(vec![0u64, 1, 64, 0xffff, 0xffff_ffff, u64::MAX, 1 << 63])), 1..4)) {
        let file = fields.into_iter().fold(LIBRARY.to_vec(), |file, (at, value)| patched(&file, at, &value.to_le_bytes()));
        ask_everything(&file);
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300), class in 0u8..4, order in 0u8..4) {
        ask_everything(&bytes);
        ask_everything(&[b"\x7fELF".to_vec(), vec![class, order], bytes].concat());
    }
}
