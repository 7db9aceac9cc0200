//! Packed streams at any place, by who reads and ahead of them.

#![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

use std::io::Write as _;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::read::window::fill;

#[derive(Clone)]
struct Shared(Arc<Vec<u8>>);

impl ReadAt for Shared {
    fn len(&self) -> u64 {
        self.0.as_ref().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(offset, buf)
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::GzBuilder::new()
        .filename("layer.tar")
        .write(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn open(packed: &[u8]) -> Unpacked<Shared> {
    let packing = Packing::of(&packed).unwrap();
    Unpacked::new(Shared(Arc::new(packed.to_vec())), packing)
}

/// Unpacked by who reads, and ahead of them.
fn both(packed: &[u8]) -> [Unpacked<Shared>; 2] {
    let ahead = open(packed);
    ahead.inner.borrow_mut().send_ahead = Some(send_ahead);
    [open(packed), ahead]
}

/// Bytes that cannot be packed well.
fn noise(len: usize) -> Vec<u8> {
    let mut seed = 1u32;
    let mut next = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8 & 0x3f
    };
    (0..len).map(|_| next()).collect()
}

#[test]
fn any_place_of_a_large_stream() {
    let bytes = noise(5 << 20);
    let packed = [gzip(&bytes), zstd(&bytes)];
    for file in packed.iter().flat_map(|packed| both(packed)) {
        let mut buf = [0; 100];
        for at in [
            0, 5_242_800, 3, 5_000_000, 4_999_999, 65_530, 5_242_850, 100,
        ] {
            let got = fill(&file, at, &mut buf).unwrap();
            let at = at as usize;
            assert_eq!(buf[..got], bytes[at..(at + 100).min(bytes.len())]);
        }
        assert_eq!(file.len(), bytes.len() as u64);
        assert_eq!(fill(&file, 4_345_678, &mut buf).unwrap(), 100);
        file.rest(1 << 20);
        assert_eq!(fill(&file, 2_345_678, &mut buf).unwrap(), 100);
        assert_eq!(buf, bytes[2_345_678..2_345_778]);
        let mut large = vec![0; bytes.len()];
        assert_eq!(fill(&file, 0, &mut large).unwrap(), bytes.len());
        assert_eq!(large, bytes);
    }
}

#[test]
fn many_members_are_one_stream() {
    let (one, other) = (noise(100_000), noise(70_000));
    let all = [one.clone(), other.clone()].concat();
    let skipped = [
        &b"\x50\x2a\x4d\x18\x03\0\0\0abc"[..],
        &zstd(&one),
        b"\x5e\x2a\x4d\x18\x01\0\0\0x",
        &zstd(&other),
    ]
    .concat();
    for packed in [[gzip(&one), gzip(&other), vec![0; 512]].concat(), skipped] {
        let file = open(&packed);
        let mut buf = vec![0; all.len() + 5];
        assert_eq!(fill(&file, 0, &mut buf).unwrap(), all.len());
        assert_eq!(buf[..all.len()], all);
    }
}

#[test]
fn what_is_cut_off_or_damaged_is_said() {
    let bytes = noise(4 << 20);
    for mut packed in [gzip(&bytes), zstd(&bytes)] {
        let mut buf = vec![0; bytes.len()];
        let whole = packed.len();
        for half in both(&packed[..whole / 2]) {
            let error = fill(&half, 0, &mut buf).unwrap_err().to_string();
            assert!(error.contains("cut off"), "{error}");
            assert_eq!(fill(&half, 0, &mut buf).unwrap_err().to_string(), error);
            assert_eq!(fill(&half, 1 << 20, &mut buf[..90]).unwrap(), 90);
            assert_eq!(buf[..90], bytes[1 << 20..][..90]);
        }
        packed[whole / 2..whole / 2 + 400].fill(0xff);
        assert!(fill(&open(&packed), 0, &mut buf).is_err() || buf != bytes);
    }
}

/// What is packed is readable to its end, and is not what was packed.
#[test]
fn checksums_are_held_against_what_comes_out() {
    let bytes = b"what is packed";
    // RFC 8878: one segment with a checksum, its length, one raw block that is the last.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x24, bytes.len() as u8];
    frame.extend([(bytes.len() as u8) << 3 | 1, 0, 0]);
    frame.extend(bytes);
    let checksum = twox_hash::XxHash64::oneshot(0, bytes).to_le_bytes();
    frame.extend(&checksum[..4]);
    let packed = gzip(bytes);
    // Of gzip the length stands behind the checksum.
    let last_of_checksum = packed.len() - 5;
    for (mut packed, at) in [(packed, last_of_checksum), (frame.clone(), frame.len() - 1)] {
        let mut buf = [0; 20];
        assert_eq!(fill(&open(&packed), 0, &mut buf).unwrap(), bytes.len());
        packed[at] ^= 1;
        let error = fill(&open(&packed), 0, &mut buf).unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
    }
}

#[test]
fn a_stream_that_unpacks_without_end_is_refused() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![0; 20 << 20]).unwrap();
    let file = open(&encoder.finish().unwrap());
    let error = fill(&file, 18 << 20, &mut [0; 9]).unwrap_err();
    assert!(error.to_string().contains("250 times"), "{error}");
    assert!(fill(&file, 1 << 20, &mut [0; 9]).is_ok());
}

#[test]
fn who_looks_back_on_the_way_misses_nothing() {
    let bytes = noise(24 << 20);
    for file in both(&gzip(&bytes)) {
        let mut piece = vec![0; 100_000];
        let mut at = 0;
        while at < bytes.len() {
            let got = fill(&file, at as u64, &mut piece).unwrap();
            assert_eq!(piece[..got], bytes[at..at + got]);
            at += got;
            if at % 1_900_000 == 0 {
                let back = at / 3;
                assert_eq!(fill(&file, back as u64, &mut piece[..50]).unwrap(), 50);
                assert_eq!(piece[..50], bytes[back..back + 50]);
            }
        }
        let states = file.inner.borrow().states.len();
        assert!((4..=6).contains(&states), "{states}");
        assert!(file.again() < 32 << 20, "{}", file.again());
    }
}

proptest! {
    #[test]
    fn any_bytes(mut packed in prop::collection::vec(any::<u8>(), 0..300), is_zstd: bool, offset in 0u64..200_000) {
        let head: &[u8] = if is_zstd { b"\x28\xb5\x2f\xfd" } else { b"\x1f\x8b\x08\0\0\0\0\0\0\0" };
        packed.splice(0..0, head.iter().copied());
        let _ = open(&packed).read_at(offset, &mut [0; 64]);
    }
}
