//! The packed payloads of device code: raw LZ4 blocks and zstd frames, unpacked no further than was asked for.

use std::io::Read as _;

/// The most bytes of a start that is unpacked on its own; names of `libtorch_cuda` push the notes to 285 KB.
pub(super) const HEAD: usize = 1 << 20;

/// The start of a raw LZ4 block: `limit` bytes of it unpacked, or fewer where it ends or makes no sense.
///
/// The block has no frame and no length. Each sequence is a token, literals, and a copy of what was unpacked before.
pub(super) fn lz4(packed: &[u8], limit: usize) -> Vec<u8> {
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
        (out.len() < limit).then_some(())
    };
    while step().is_some() {}
    out
}

/// The start of a zstd frame, unpacked to `limit` bytes at most; `None` where it is none, or needs more memory than that.
pub(super) fn zstd(packed: &[u8], limit: usize) -> Option<Vec<u8>> {
    let window = u64::try_from(limit).ok()?.max(1 << 20);
    let mut decoder =
        ruzstd::decoding::StreamingDecoder::new_with_max_window_size(packed, window).ok()?;
    let mut out = vec![0; limit.min(16 << 10)];
    let mut done = 0;
    while done < limit {
        if done == out.len() {
            out.resize(out.len().saturating_mul(2).min(limit), 0);
        }
        match decoder.read(out.get_mut(done..)?) {
            Ok(0) | Err(_) => break,
            Ok(n) => done += n,
        }
    }
    out.truncate(done);
    Some(out)
}

/// What the whole blocks among the first bytes of a zstd frame unpack to, [`HEAD`] bytes at most. `None` where it is no
/// frame, one with a dictionary, or has no whole block so soon: nvcc's have a few kilobytes each.
pub(super) fn zstd_head(packed: &[u8]) -> Option<Vec<u8>> {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    // No length, no checksum, a window of 1 MiB.
    const HEADER: [u8; 2] = [0, 10 << 3];
    const LAST: u8 = 1;
    const REPEATED: u32 = 1;
    let descriptor = *packed.strip_prefix(&MAGIC)?.first()?;
    if descriptor & 3 != 0 {
        return None;
    }
    let is_single = descriptor & 0x20 != 0;
    let length = match descriptor >> 6 {
        0 => usize::from(is_single),
        wide => 1 << wide,
    };
    let blocks = packed.get(MAGIC.len() + 1 + usize::from(!is_single) + length..)?;
    let mut last = None;
    let mut end = 0;
    while let Some(&[a, b, c]) = blocks.get(end..).and_then(<[u8]>::first_chunk) {
        let word = u32::from_le_bytes([a, b, c, 0]);
        let size = if word >> 1 & 3 == REPEATED {
            1
        } else {
            usize::try_from(word >> 3).ok()?
        };
        let next = end + 3 + size;
        if next > blocks.len() {
            break;
        }
        last = Some(end);
        end = next;
        if a & LAST != 0 {
            break;
        }
    }
    // A frame of those blocks alone: nothing in them refers to what comes later.
    let mut frame = [&MAGIC[..], &HEADER, blocks.get(..end)?].concat();
    *frame.get_mut(MAGIC.len() + HEADER.len() + last?)? |= LAST;
    zstd(&frame, HEAD)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lz4_blocks() {
        // "abc" and three more of it, then a literal "d"; a literal of 16 bytes with a long length.
        let block = [0x35, b'a', b'b', b'c', 3, 0, 0x10, b'd'];
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

    #[test]
    fn the_first_blocks_of_a_frame() {
        use ruzstd::encoding::{CompressionLevel, compress_to_vec};
        let bytes: Vec<u8> = (0..400_000u32).flat_map(u32::to_le_bytes).collect();
        let packed = compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest);
        for (most, least) in [(20, 0), (packed.len() / 2, 128 << 10), (packed.len(), HEAD)] {
            let head = zstd_head(&packed[..most]).unwrap_or_default();
            assert!(
                (least..=HEAD).contains(&head.len()),
                "{most} of {}",
                packed.len()
            );
            assert_eq!(head, bytes[..head.len()]);
        }
        assert_eq!(zstd_head(b"no frame"), None);
        assert_eq!(zstd(&packed, 3).as_deref(), Some(&bytes[..3]));
        assert_eq!(zstd(&packed, 0).as_deref(), Some(&bytes[..0]));
    }

    proptest! {
        #[test]
        fn any_bytes(packed in prop::collection::vec(any::<u8>(), 0..200), limit in 0usize..300) {
            prop_assert!(lz4(&packed, limit).len() <= limit);
            prop_assert!(zstd(&packed, limit).is_none_or(|out| out.len() <= limit));
            let frame = [b"\x28\xb5\x2f\xfd".as_slice(), &packed].concat();
            prop_assert!(zstd(&frame, limit).is_none_or(|out| out.len() <= limit));
            prop_assert!(zstd_head(&frame).is_none_or(|out| out.len() <= HEAD));
        }
    }
}
