//! Code for AMD's GPUs in a program or library: the targets that it was compiled for.
//!
//! It lies in `.hip_fatbin` as bundles, one for each source file, each at a multiple of 4096 bytes. A bundle's header lists its
//! code objects with their targets (`hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-`). Newer releases of `ROCm` pack a whole bundle; its
//! header is then in the first block of what is packed. Headers alone are read, nothing is disassembled, and no code is judged.
//!
//! Layout: LLVM, "Clang Offload Bundler"; alignment: clang, `CGCUDANV.cpp`.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::ops::Range;

use miniz_oxide::inflate::stream::{InflateState, inflate};
use miniz_oxide::{DataFormat, MZFlush};

use super::Endian;
use super::elf;
use super::window::{ReadAt, bytes, bytes_up_to};

/// The section.
const SECTION: &str = ".hip_fatbin";
/// What a bundle begins with.
const MAGIC: &[u8; 24] = b"__CLANG_OFFLOAD_BUNDLE__";
/// What a packed one begins with.
const PACKED: &[u8; 4] = b"CCOB";
/// Where bundles begin, counted from the start of the section.
const ALIGN: u64 = 4096;
/// The most bundles that are looked into; the largest library of `PyTorch` has some hundred.
const MAX_BUNDLES: u64 = 1 << 13;
/// The most places without a bundle that are tried, all together.
const MAX_GAPS: u64 = 1 << 16;
/// How many bytes of a bundle are read for its header; one with fifteen targets has 1 kB.
const FIRST_HEADER: usize = 4 << 10;
/// The most bytes of a bundle's header.
const MAX_HEADER: usize = 64 << 10;
/// The most code objects of a bundle.
const MAX_ENTRIES: u64 = 512;
/// The most different targets that are kept.
const MAX_TARGETS: usize = 128;
/// The longest name of a target.
const MAX_NAME: usize = 96;
/// The most bytes that a block of zstd unpacks to (RFC 8878).
const MAX_BLOCK: usize = 128 << 10;

/// What a file holds of such code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundles {
    /// Targets with their features, as the bundles name them: `gfx90a:xnack-`, `gfx11-generic`, `amdgcnspirv`.
    pub targets: BTreeSet<String>,
    /// How many bundles were looked into.
    pub count: u64,
    /// How many of them are packed.
    pub packed: u64,
    /// Whether all of them were looked into, and told their targets: only then is what is not listed not there.
    pub complete: bool,
}

/// The code for AMD's GPUs in a file, read until `enough`; `None` where it has no section for it.
pub fn bundles(file: &dyn ReadAt, enough: &mut dyn FnMut(&Bundles) -> bool) -> Option<Bundles> {
    let range = elf::section(file, SECTION)?;
    let end = range.end.min(file.len());
    let mut found = Bundles {
        complete: true,
        ..Bundles::default()
    };
    let mut at = range.start;
    let mut gaps = 0;
    // The length of the last one was not told: what follows may be its own.
    let mut is_open = false;
    while at < end {
        if found.count >= MAX_BUNDLES || gaps >= MAX_GAPS || found.count > 0 && enough(&found) {
            found.complete = false;
            break;
        }
        let start = bytes_up_to(file, at, 32);
        let len = if start.starts_with(MAGIC) {
            is_open = false;
            found.count += 1;
            let header = |most: usize| bytes_up_to(file, at, most.min(room(at..end)));
            let read = entries(&header(FIRST_HEADER)).or_else(|| entries(&header(MAX_HEADER)));
            found.take(read)
        } else if start.starts_with(PACKED) {
            found.count += 1;
            found.packed += 1;
            let packed = Packed::read(&start);
            let header = packed.as_ref().and_then(|packed| {
                let from = at.checked_add(packed.header)?;
                packed.first_bytes(file, from..end)
            });
            found.take(header.and_then(|header| entries(&header)));
            let len = packed.and_then(|packed| packed.len);
            is_open = len.is_none();
            len
        } else {
            gaps += 1;
            found.complete &= is_open || start.iter().all(|byte| *byte == 0);
            None
        };
        let next = at.saturating_add(len.unwrap_or(1).max(1)) - range.start;
        at = range.start.saturating_add(next.next_multiple_of(ALIGN));
    }
    Some(found)
}

impl Bundles {
    /// Adds a bundle's entries; its length where they tell.
    fn take(&mut self, entries: Option<(Vec<String>, u64)>) -> Option<u64> {
        let Some((targets, len)) = entries else {
            self.complete = false;
            return None;
        };
        for target in targets {
            if self.targets.len() < MAX_TARGETS {
                self.targets.insert(target);
            }
        }
        Some(len)
    }
}

fn room(range: Range<u64>) -> usize {
    usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX)
}

/// The targets of the code objects that a bundle's header lists, and where the last of them ends.
///
/// Behind the magic: how many, then of each the offset, the size, the length of its name and the name, numbers of 64 bits.
fn entries(header: &[u8]) -> Option<(Vec<String>, u64)> {
    let number = |at: usize| Endian::Little.u64(header, at);
    let count = number(MAGIC.len()).filter(|count| *count <= MAX_ENTRIES)?;
    let mut at = MAGIC.len() + 8;
    let mut targets = Vec::new();
    let mut end = 0;
    for _ in 0..count {
        let (offset, size) = (number(at)?, number(at + 8)?);
        let length = usize::try_from(number(at + 16)?).ok()?;
        let name = header.get(at + 24..(at + 24).checked_add(length)?)?;
        at = at + 24 + length;
        end = end.max(offset.checked_add(size)?);
        if size > 0
            && let Some(target) = target(std::str::from_utf8(name).ok()?)
        {
            targets.push(target);
        }
    }
    Some((targets, end.max(at as u64)))
}

/// The target in an entry's name: `gfx90a:xnack-` of `hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-`; none of the host's entry.
fn target(name: &str) -> Option<String> {
    let (kind, triple) = name.split_once('-')?;
    if kind == "host" {
        return None;
    }
    let target = match triple.find("-gfx") {
        Some(at) => triple.get(at + 1..)?,
        // Code that is compiled for the GPU when it is loaded: `spirv64-amd-amdhsa--amdgcnspirv`.
        None => triple.rsplit('-').next()?,
    };
    let is_plain = !target.is_empty() && target.chars().all(|c| c.is_ascii_graphic());
    (is_plain && target.len() <= MAX_NAME).then(|| target.to_owned())
}

/// The header of a packed bundle.
struct Packed {
    /// Its own length in bytes.
    header: u64,
    /// The length of all of it, which version 1 does not tell.
    len: Option<u64>,
    method: Method,
}

/// `llvm::compression::Format`.
enum Method {
    Zlib,
    Zstd,
}

impl Packed {
    /// Magic, version and method of 16 bits each; from version 2 the length, then the unpacked length, of 32 bits up to version 2
    /// and of 64 from 3; a hash of 64 bits.
    fn read(start: &[u8]) -> Option<Self> {
        let method = match Endian::Little.u16(start, 6)? {
            0 => Method::Zlib,
            1 => Method::Zstd,
            _ => return None,
        };
        let (header, len) = match Endian::Little.u16(start, 4)? {
            1 => (20, None),
            2 => (24, Some(u64::from(Endian::Little.u32(start, 8)?))),
            3 => (32, Some(Endian::Little.u64(start, 8)?)),
            _ => return None,
        };
        Some(Self {
            header,
            len,
            method,
        })
    }

    /// The first bytes of what is packed at a place, as many as a bundle's header may have.
    fn first_bytes(&self, file: &dyn ReadAt, at: Range<u64>) -> Option<Vec<u8>> {
        match self.method {
            Method::Zlib => {
                let packed = bytes_up_to(file, at.start, MAX_HEADER.min(room(at)));
                let mut out = vec![0; MAX_HEADER];
                let mut state = InflateState::new_boxed(DataFormat::Zlib);
                let done = inflate(&mut state, &packed, &mut out, MZFlush::None);
                out.truncate(done.bytes_written);
                Some(out)
            }
            Method::Zstd => first_block(file, at),
        }
    }
}

/// What the first block of a zstd frame unpacks to. Its header says how large the whole is, up to gigabytes, and a decoder would
/// take a window of that size: so a frame of this block alone is made, to which nothing that comes later matters.
fn first_block(file: &dyn ReadAt, at: Range<u64>) -> Option<Vec<u8>> {
    const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    // No length, no checksum, a window of 1 MiB.
    const HEADER: [u8; 2] = [0, 10 << 3];
    const LAST: u8 = 1;
    const REPEATED: u32 = 1;
    let start = bytes_up_to(file, at.start, 24.min(room(at.clone())));
    let descriptor = *start.strip_prefix(&MAGIC)?.first()?;
    // A dictionary that is not here.
    if descriptor & 3 != 0 {
        return None;
    }
    let is_single = descriptor & 0x20 != 0;
    let length = match descriptor >> 6 {
        0 => usize::from(is_single),
        wide => 1 << wide,
    };
    let block = MAGIC.len() + 1 + usize::from(!is_single) + length;
    let head: [u8; 3] = *start.get(block..)?.first_chunk()?;
    let word = u32::from_le_bytes([head[0], head[1], head[2], 0]);
    let size = match (word >> 1 & 3, usize::try_from(word >> 3).ok()?) {
        (REPEATED, _) => 1,
        (_, size) => size,
    };
    if size > MAX_BLOCK {
        return None;
    }
    let from = at.start.checked_add(block as u64 + 3)?;
    let packed = bytes(file, from, size).filter(|_| from + size as u64 <= at.end)?;
    let [first, second, third] = head;
    let frame = [&MAGIC[..], &HEADER, &[first | LAST, second, third], &packed].concat();
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(frame.as_slice()).ok()?;
    let mut out = vec![0; MAX_HEADER];
    let mut done = 0;
    while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match decoder.read(rest) {
            Ok(0) | Err(_) => break,
            Ok(n) => done += n,
        }
    }
    out.truncate(done);
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A bundle with code objects of 16 bytes.
    fn bundle(names: &[&str]) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        header.extend((names.len() as u64).to_le_bytes());
        let mut offset = ALIGN;
        for name in names {
            let size = if name.starts_with("host") { 0u64 } else { 16 };
            for number in [offset, size, name.len() as u64] {
                header.extend(number.to_le_bytes());
            }
            header.extend(name.as_bytes());
            offset = (offset + size).next_multiple_of(ALIGN);
        }
        header.resize(usize::try_from(offset).unwrap(), 0);
        header
    }

    const NAMES: [&str; 4] = [
        "host-x86_64-unknown-linux-gnu-",
        "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-",
        "hip-amdgcn-amd-amdhsa-gfx803",
        "hipv4-amdgcn-amd-amdhsa-unknown-gfx9-4-generic",
    ];

    #[test]
    fn a_header_lists_targets() {
        let bytes = bundle(&NAMES);
        let (targets, end) = entries(&bytes).unwrap();
        assert_eq!(targets, ["gfx90a:xnack-", "gfx803", "gfx9-4-generic"]);
        assert_eq!(end, 3 * ALIGN + 16);
        assert_eq!(
            target("hip-spirv64-amd-amdhsa--amdgcnspirv").unwrap(),
            "amdgcnspirv"
        );
        for none in [
            "",
            "hip",
            "host-x86_64-unknown-linux--",
            "hipv4-amdgcn-amd-amdhsa--",
        ] {
            assert_eq!(target(none), None, "{none}");
        }
        assert_eq!(entries(&bytes[..60]), None);
    }

    /// The versions of a packed bundle's header, and both ways of packing.
    #[test]
    fn a_packed_header_lists_the_same() {
        use ruzstd::encoding::{CompressionLevel, compress_to_vec};
        let plain = bundle(&NAMES);
        let zstd = compress_to_vec(plain.as_slice(), CompressionLevel::Fastest);
        let zlib = miniz_oxide::deflate::compress_to_vec_zlib(&plain, 6);
        for (version, method, body) in [
            (1u16, 1u16, &zstd),
            (2, 1, &zstd),
            (3, 1, &zstd),
            (2, 0, &zlib),
        ] {
            let mut file = PACKED.to_vec();
            file.extend(version.to_le_bytes());
            file.extend(method.to_le_bytes());
            let header: u32 = [20, 24, 32][usize::from(version) - 1];
            let len = header + u32::try_from(body.len()).unwrap();
            let unpacked = u32::try_from(plain.len()).unwrap();
            match version {
                1 => file.extend(unpacked.to_le_bytes()),
                2 => file.extend([len.to_le_bytes(), unpacked.to_le_bytes()].concat()),
                _ => file.extend(
                    [
                        u64::from(len).to_le_bytes(),
                        u64::from(unpacked).to_le_bytes(),
                    ]
                    .concat(),
                ),
            }
            file.extend([7; 8]);
            file.extend(body);
            let packed = Packed::read(&file).unwrap();
            assert_eq!(packed.header, u64::from(header));
            assert_eq!(packed.len, (version > 1).then_some(u64::from(len)));
            let first = packed
                .first_bytes(&file, packed.header..file.len() as u64)
                .unwrap();
            assert_eq!(
                entries(&first),
                entries(&plain),
                "version {version}, method {method}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), packed: bool) {
            let _ = entries(&[MAGIC.as_slice(), &bytes].concat());
            let _ = Packed::read(&[PACKED.as_slice(), &bytes].concat());
            let head: &[u8] = if packed { b"\x28\xb5\x2f\xfd\x20\x40" } else { b"" };
            let file = [head, &bytes].concat();
            let end = file.len() as u64;
            let _ = first_block(&file, 0..end);
            let _ = Packed { header: 0, len: None, method: Method::Zlib }.first_bytes(&file, 0..end);
        }
    }
}
