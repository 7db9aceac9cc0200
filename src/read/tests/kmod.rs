//! `kmod`.

use proptest::prelude::*;

use super::{MODULE, patched, replaced};
use crate::read::kmod::{Compression, ModInfo, modinfo, module_name};

const XZ: &[u8] = include_bytes!("../../../fixtures/elf/example.ko.xz");
const ZSTD: &[u8] = include_bytes!("../../../fixtures/elf/example.ko.zst");
const GZIP: &[u8] = include_bytes!("../../../fixtures/elf/example.ko.gz");

fn expected() -> ModInfo {
    let some = |text: &str| Some(text.to_owned());
    ModInfo {
        version: some("999.88.77"),
        license: some("Dual MIT/GPL"),
        vermagic: some("6.1.0-99-amd64 SMP preempt mod_unload modversions"),
        srcversion: some("0123456789ABCDEF0123456"),
        name: some("nvidia"),
        depends: vec!["i2c-core".to_owned(), "drm".to_owned()],
        signer: some("Example key"),
        signed: true,
    }
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn names() {
    for (path, name, compression) in [
        ("updates/dkms/nvidia.ko", "nvidia", Compression::None),
        (
            "kernel/drivers/video/nvidia-uvm.ko.xz",
            "nvidia-uvm",
            Compression::Xz,
        ),
        (
            "nvidia-current-open.ko.zst",
            "nvidia-current-open",
            Compression::Zstd,
        ),
        ("extra/nvidia.ko.gz", "nvidia", Compression::Gzip),
    ] {
        assert_eq!(
            (module_name(path), Compression::from_file_name(path)),
            (Some(name), Some(compression))
        );
    }
    assert_eq!(
        (
            module_name("nvidia.so"),
            Compression::from_file_name("nvidia.kozst")
        ),
        (None, None)
    );
}

#[test]
fn the_same_however_it_is_packed() {
    for (file, compression) in [
        (MODULE, Compression::None),
        (XZ, Compression::Xz),
        (ZSTD, Compression::Zstd),
        (GZIP, Compression::Gzip),
    ] {
        assert_eq!(
            modinfo(&file, compression),
            Ok(expected()),
            "{compression:?}"
        );
    }
}

#[test]
fn signatures() {
    let unsigned = &MODULE[..MODULE.len() - 28];
    let info = modinfo(&unsigned, Compression::None).unwrap();
    assert_eq!((info.signed, info.signer), (false, None));

    // Before PKCS#7 the signer's name stood before the signature.
    let description = MODULE.len() - 28 - 12;
    let old = patched(MODULE, description, &[0, 0, 1, 11, 0, 0, 0, 0, 0, 0, 0, 30]);
    assert_eq!(
        modinfo(&old, Compression::None).unwrap().signer.as_deref(),
        Some("Example key")
    );

    let nameless = replaced(MODULE, b"\x06\x03\x55\x04\x03", b"\x06\x03\x55\x04\x0a");
    let info = modinfo(&nameless, Compression::None).unwrap();
    assert_eq!((info.signed, info.signer), (true, None));
    let too_long = patched(MODULE, description + 8, &[0xff; 4]);
    assert!(modinfo(&too_long, Compression::None).unwrap().signed);
}

/// Whatever the distance from the start, and whatever is packed after it.
#[test]
fn strings_are_found_anywhere_in_a_packed_module() {
    for (before, after) in [(0, 0), (65_400, 10), (65_536, 300_000), (900_000, 900_000)] {
        let filler = |len| [b"\0".to_vec(), vec![b'x'; len], b"\0".to_vec()].concat();
        let file = [
            b"\x7fELF".to_vec(),
            filler(before),
            MODULE[4..MODULE.len() - 88].to_vec(),
            filler(after),
        ];
        let file = [file.concat(), MODULE[MODULE.len() - 88..].to_vec()].concat();
        assert_eq!(
            modinfo(&gzipped(&file), Compression::Gzip),
            Ok(expected()),
            "{before} {after}"
        );
    }
}

#[test]
fn errors_are_words() {
    let no_info = replaced(MODULE, b".modinfo", b".nothing");
    let no_magic = replaced(MODULE, b"vermagic=", b"vermerde=");
    for (file, compression, words) in [
        (vec![], Compression::None, "the file is empty"),
        (
            MODULE[..700].to_vec(),
            Compression::None,
            "the file is cut off: its section header table ends at byte 880, but the file has 700",
        ),
        (
            XZ.to_vec(),
            Compression::None,
            "this is no kernel module but an xz archive",
        ),
        (
            no_info,
            Compression::None,
            "the file has no .modinfo section",
        ),
        (
            gzipped(&no_magic),
            Compression::Gzip,
            "nothing in it looks like a .modinfo section",
        ),
        (
            gzipped(b"some text"),
            Compression::Gzip,
            "what is packed in it is no kernel module",
        ),
        (
            gzipped(b""),
            Compression::Gzip,
            "nothing in it looks like a .modinfo section",
        ),
    ] {
        assert_eq!(modinfo(&file, compression), Err(words.to_owned()));
    }
    for (file, compression) in [
        (XZ, Compression::Xz),
        (ZSTD, Compression::Zstd),
        (GZIP, Compression::Gzip),
    ] {
        for file in [&file[..file.len() / 2], &file[1..], MODULE] {
            let words = modinfo(&file, compression).unwrap_err();
            assert!(words.starts_with("it cannot be unpacked: "), "{words}");
        }
    }
}

proptest! {
    #[test]
    fn damaged_modules_are_answered(
        which in 0usize..4,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let (file, compression) = [
            (MODULE, Compression::None),
            (XZ, Compression::Xz),
            (ZSTD, Compression::Zstd),
            (GZIP, Compression::Gzip),
        ][which];
        let mut file = file.to_vec();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        let _ = modinfo(&file, compression);
    }

    #[test]
    fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for compression in [Compression::None, Compression::Xz, Compression::Zstd, Compression::Gzip] {
            let _ = modinfo(&bytes, compression);
        }
        let _ = modinfo(&gzipped(&[b"\x7fELF\0vermagic=", bytes.as_slice()].concat()), Compression::Gzip);
    }
}
