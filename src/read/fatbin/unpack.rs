//! The packed payloads of device code: raw LZ4 blocks and zstd frames, unpacked no further than was asked for.

use crate::read::window::{ReadAt, bytes_up_to};
use crate::read::zstd::Frame;

/// The most bytes of a start that is unpacked on its own; names of `libtorch_cuda` push the notes to 285 KB.
pub(super) const HEAD: usize = 1 << 20;
/// The first bytes of a zstd frame.
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// How much there is when it is asked for the first time whether that is enough.
const FIRST: usize = 2 << 10;
/// The largest window of a frame; nvcc's frames have one of their own size. Memory is taken for what comes out only.
const MAX_WINDOW: u64 = 64 << 20;

/// The start of a raw LZ4 block: `limit` bytes of it unpacked, or fewer where it ends or makes no sense. `enough` is shown
/// what there is each time that it has doubled, and may end it.
///
/// The block has no frame and no length. Each sequence is a token, literals, and a copy of what was unpacked before.
pub(super) fn lz4(packed: &[u8], limit: usize, enough: &mut dyn FnMut(&[u8]) -> bool) -> Vec<u8> {
    let (mut next, mut shown) = (FIRST, 0);
    let mut out = Vec::with_capacity(limit.min(packed.len().saturating_mul(4)).min(64 << 10));
    let mut rest = packed.iter();
    // A length over 14 goes on in bytes that are added up, until one that is not 255.
    let length = |nibble: u8, rest: &mut std::slice::Iter<'_, u8>| {
        let mut length = usize::from(nibble);
        if nibble == 15 {
            loop {
                let more = *rest.next()?;
                length = length.checked_add(usize::from(more))?;
                if more != 255 {
                    break;
                }
            }
        }
        Some(length)
    };
    let mut step = || {
        let token = *rest.next()?;
        let literals = length(token >> 4, &mut rest)?;
        let have = rest.as_slice();
        let taken = have.get(..literals.min(have.len()))?;
        out.extend_from_slice(taken.get(..taken.len().min(limit - out.len()))?);
        rest = have.get(literals..)?.iter();
        let distance = usize::from(u16::from_le_bytes([*rest.next()?, *rest.next()?]));
        let copied = length(token & 15, &mut rest)?.checked_add(4)?;
        let copied = copied.min(limit - out.len());
        let from = out.len().checked_sub(distance).filter(|_| distance > 0)?;
        // A copy may overlap itself: what was copied is copied again.
        for at in from..from.checked_add(copied)? {
            out.push(*out.get(at)?);
        }
        if out.len() >= next {
            shown = out.len();
            next = shown * 2;
            if enough(&out) {
                return None;
            }
        }
        (out.len() < limit).then_some(())
    };
    while step().is_some() {}
    if out.len() > shown {
        enough(&out);
    }
    out
}

/// The start of a zstd frame: `limit` bytes of it unpacked, or fewer where it ends or is damaged. `enough` is shown what
/// there is each time that it has doubled, and may end it.
pub(super) fn zstd(
    packed: &dyn ReadAt,
    limit: usize,
    enough: &mut dyn FnMut(&[u8]) -> bool,
) -> Vec<u8> {
    let mut out = Vec::new();
    if bytes_up_to(packed, 0, MAGIC.len()) != MAGIC {
        return out;
    }
    let Ok(mut frame) = Frame::begin(packed, 0, MAX_WINDOW) else {
        return out;
    };
    let (mut next, mut shown) = (FIRST, 0);
    let mut piece = vec![0; (16 << 10).min(limit)];
    while out.len() < limit {
        let room = limit - out.len();
        let len = piece.len().min(room);
        let Some(into) = piece.get_mut(..len) else {
            break;
        };
        match frame.read(packed, into) {
            Ok(0) | Err(_) => break,
            Ok(n) => out.extend_from_slice(into.get(..n).unwrap_or_default()),
        }
        if out.len() >= next {
            shown = out.len();
            next = shown * 2;
            if enough(&out) {
                return out;
            }
        }
    }
    if out.len() > shown {
        enough(&out);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lz4_blocks() {
        // "abc" and three more of it, then a literal "d"; a literal of 16 bytes with a long length.
        let block = [0x35, b'a', b'b', b'c', 3, 0, 0x10, b'd'];
        let lz4 = |packed: &[u8], limit| lz4(packed, limit, &mut |_| false);
        assert_eq!(lz4(&block, 100), b"abcabcabcabcd");
        assert_eq!(lz4(&block, 5), b"abcab");
        assert_eq!(lz4(&block, 2), b"ab");
        let mut long = vec![0xf0, 1];
        long.extend([b'x'; 16]);
        assert_eq!(lz4(&long, 100), [b'x'; 16]);
        assert_eq!(
            lz4(&long[..7], 100),
            [b'x'; 5],
            "what is there of a block cut off"
        );
        assert_eq!(lz4(&[0x00, 0, 0], 100), b"", "a copy from nowhere");
        assert_eq!(lz4(&[0x1f, b'a', 1, 0, 255, 255, 255, 0], 50), [b'a'; 50]);
    }

    /// Shown ever more, and content with so many bytes.
    fn content_with(least: usize) -> impl FnMut(&[u8]) -> bool {
        let mut seen = 0;
        move |start: &[u8]| {
            assert!(start.len() > seen);
            seen = start.len();
            seen >= least
        }
    }

    #[test]
    fn the_start_of_a_frame() {
        use ruzstd::encoding::{CompressionLevel, compress_to_vec};
        let bytes: Vec<u8> = (0..400_000u32).flat_map(u32::to_le_bytes).collect();
        let packed = compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest);
        let half = packed.len() / 2;
        for (most, limit, wanted, least) in [
            (20, HEAD, HEAD, 0),
            (half, HEAD, HEAD, 128 << 10),
            (packed.len(), HEAD, HEAD, HEAD),
            (packed.len(), bytes.len(), usize::MAX, bytes.len()),
            (packed.len(), HEAD, 9000, 9000),
            (packed.len(), 3, 0, 3),
            (packed.len(), 0, 0, 0),
        ] {
            let start = zstd(&&packed[..most], limit, &mut content_with(wanted));
            assert!((least..=limit).contains(&start.len()), "{most}, {limit}");
            assert!(
                start.len() <= wanted.max(3).saturating_mul(4),
                "{}",
                start.len()
            );
            assert_eq!(start, bytes[..start.len()]);
        }
        assert_eq!(zstd(&b"no frame".as_slice(), 9, &mut |_| false), b"");
    }

    proptest! {
        #[test]
        fn any_bytes(packed in prop::collection::vec(any::<u8>(), 0..200), limit in 0usize..300) {
            let frame = [&MAGIC, packed.as_slice()].concat();
            prop_assert!(lz4(&packed, limit, &mut content_with(200)).len() <= limit);
            for packed in [packed, frame] {
                prop_assert!(zstd(&packed, limit, &mut content_with(200)).len() <= limit);
            }
        }
    }
}
