//! `ldcache`.

use proptest::prelude::*;

use crate::read::ldcache::{CacheEntry, is_for_arch, parse, parse_prefixed};

/// Soname, path, flags, hardware capabilities.
type Line = (&'static str, &'static str, u32, u64);

const LINES: [Line; 5] = [
    (
        "libcudart.so.12",
        "/usr/local/cuda/lib64/libcudart.so.12",
        0x0303,
        0,
    ),
    (
        "libcuda.so.1",
        "/lib/glibc-hwcaps/x86-64-v3/libcuda.so.1",
        0x0303,
        1 << 62,
    ),
    (
        "libcuda.so.1",
        "/lib/x86_64-linux-gnu/libcuda.so.1",
        0x0303,
        0,
    ),
    (
        "libcuda.so.1",
        "/lib/i386-linux-gnu/libcuda.so.1",
        0x0003,
        0,
    ),
    ("libcuda.so", "/lib/x86_64-linux-gnu/libcuda.so", 0x0303, 0),
];

/// A cache as glibc 2.36 writes it: header, entries, strings.
fn cache(lines: &[Line]) -> Vec<u8> {
    let mut strings = Vec::new();
    let mut entries = Vec::new();
    let start = 48 + 24 * lines.len();
    let mut string = |text: &str| {
        let at = u32::try_from(start + strings.len()).unwrap();
        strings.extend([text.as_bytes(), b"\0"].concat());
        at.to_le_bytes()
    };
    for (soname, path, flags, hwcap) in lines {
        let (key, value) = (string(soname), string(path));
        entries.extend(
            [
                &flags.to_le_bytes()[..],
                &key,
                &value,
                &[0; 4],
                &hwcap.to_le_bytes(),
            ]
            .concat(),
        );
    }
    let count = u32::try_from(lines.len()).unwrap().to_le_bytes();
    let length = u32::try_from(strings.len()).unwrap().to_le_bytes();
    [
        b"glibc-ld.so.cache1.1",
        &count[..],
        &length,
        &[2, 0, 0, 0],
        &[0; 16],
        &entries,
        &strings,
    ]
    .concat()
}

/// The same behind a table of the old format with one entry: 16 + 12 bytes, and 4 to align.
fn with_old_table(cache: &[u8]) -> Vec<u8> {
    [b"ld.so-1.7.0\0\x01\0\0\0", &[0; 16][..], cache].concat()
}

#[test]
fn entries_in_the_caches_order() {
    for bytes in [cache(&LINES), with_old_table(&cache(&LINES))] {
        let found = parse(&bytes, &["libcuda.so.1", "libnothing.so"]).unwrap();
        let expected = LINES[1..4]
            .iter()
            .map(|(soname, path, flags, hwcap)| CacheEntry {
                soname: (*soname).to_owned(),
                path: (*path).to_owned(),
                flags: i32::try_from(*flags).unwrap(),
                hwcap: *hwcap,
            });
        assert_eq!(found, expected.collect::<Vec<_>>());
        assert_eq!(parse_prefixed(&bytes, &["libcudart.so"]).unwrap().len(), 1);
        assert_eq!(
            parse_prefixed(&bytes, &["libcuda.so", "libcudart.so"])
                .unwrap()
                .len(),
            5
        );
    }
    assert!(parse(&cache(&[]), &["libcuda.so.1"]).unwrap().is_empty());
}

#[test]
fn architectures() {
    assert!(is_for_arch(0x0303, "x86_64") && is_for_arch(0x0a03, "aarch64"));
    assert!(
        !is_for_arch(0x0003, "x86_64")
            && !is_for_arch(0x0303, "aarch64")
            && !is_for_arch(0x0303, "riscv64")
    );
}

#[test]
fn errors_are_words() {
    let whole = cache(&LINES);
    for (bytes, words) in [
        (&b""[..], "this is no ld.so.cache of glibc"),
        (b"#!/bin/sh", "this is no ld.so.cache of glibc"),
        (
            &whole[..100],
            "the cache is cut off: it says 5 entries, but it has 100 bytes",
        ),
        (
            &with_old_table(&whole)[..30],
            "the cache has only the table of glibc before 2.2, or is cut off",
        ),
    ] {
        assert_eq!(parse(bytes, &["libcuda.so.1"]), Err(words.to_owned()));
    }
    // Cut behind the first two strings: the entries whose strings are gone are left out.
    let first_two = LINES[0].0.len() + 1 + LINES[0].1.len() + 1;
    let cut = &whole[..48 + 24 * LINES.len() + first_two];
    assert_eq!(parse_prefixed(cut, &[""]).unwrap().len(), 1);
    assert_eq!(
        parse_prefixed(&cut[..cut.len() - 1], &[""]).unwrap().len(),
        0
    );
}

proptest! {
    #[test]
    fn damaged_caches_are_answered(at: prop::sample::Index, byte: u8, old: bool, cut: prop::sample::Index) {
        let mut bytes = if old { with_old_table(&cache(&LINES)) } else { cache(&LINES) };
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = parse_prefixed(&bytes, &[""]);
        let _ = parse(&bytes[..cut.index(bytes.len())], &["libcuda.so.1"]);
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, &[""]);
        let _ = parse_prefixed(&[b"glibc-ld.so.cache1.1", bytes.as_slice()].concat(), &[""]);
        let _ = parse_prefixed(&[b"ld.so-1.7.0\0", bytes.as_slice()].concat(), &[""]);
    }
}
