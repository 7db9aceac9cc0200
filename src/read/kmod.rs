//! Kernel module files: what `modinfo` would say, without calling it, and whether they are signed.
//!
//! An uncompressed module is read by its section table, in 30 us. A compressed one has to be unpacked from start to end,
//! since its signature stands last: nvidia.ko has 50 to 100 MB, of which each takes 4 ms (zstd, gzip) or 15 ms (xz), so
//! ask only where the answer matters. Nothing of it is kept but a window.
//! A signature is not verified.

use std::io::{self, BufReader, Read};
use std::ops::Range;

use memchr::memmem;

use super::elf::{self, Shape};
use super::window::{ReadAt, bytes, bytes_up_to, fill};

/// The most bytes of a `.modinfo` section that are kept, and of what may stand on either side of `vermagic=` in it;
/// nvidia.ko has about 10 KB.
const MAX_INFO: usize = 256 << 10;
/// The most bytes of a signature that are looked at; they have 300 to 1,500.
const MAX_SIGNATURE: usize = 16 << 10;
/// The most bytes that a compressed module may have unpacked.
const MAX_UNPACKED: u64 = 512 << 20;
/// The most memory that a decoder may take for its dictionary. The kernel's own build takes 8 MiB at most.
const MAX_DICTIONARY: u32 = 128 << 20;
/// What stands at the very end of a signed module, after a description of the signature of [`DESCRIPTION`] bytes.
const SIGNED: &[u8] = b"~Module signature appended~\n";
/// Algorithm, hash, kind, length of the signer's name, length of the key's id, three bytes of nothing, length of the
/// signature as a 32-bit big-endian number (`struct module_signature` of Linux).
const DESCRIPTION: usize = 12;

/// How a module file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// `.ko`
    None,
    /// `.ko.xz`
    Xz,
    /// `.ko.zst`
    Zstd,
    /// `.ko.gz`
    Gzip,
}

impl Compression {
    /// By a file's name or path; `None` where it is not called like a module.
    pub fn from_file_name(name: &str) -> Option<Self> {
        split_name(name).map(|(_, compression)| compression)
    }
}

/// The module's name by its file's name or path: `nvidia-uvm` of `updates/dkms/nvidia-uvm.ko.zst`.
pub fn module_name(path: &str) -> Option<&str> {
    split_name(path.rsplit('/').next()?)
        .map(|(name, _)| name)
        .filter(|name| !name.is_empty())
}

fn split_name(name: &str) -> Option<(&str, Compression)> {
    [
        (".ko", Compression::None),
        (".ko.xz", Compression::Xz),
        (".ko.zst", Compression::Zstd),
        (".ko.gz", Compression::Gzip),
    ]
    .into_iter()
    .find_map(|(ending, compression)| Some((name.strip_suffix(ending)?, compression)))
}

/// What a module says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModInfo {
    /// `version=`: the driver's version.
    pub version: Option<String>,
    /// `license=`: `NVIDIA`, `Dual MIT/GPL`.
    pub license: Option<String>,
    /// `vermagic=`: the kernel release it was built for, and options of that kernel.
    pub vermagic: Option<String>,
    /// `srcversion=`: a checksum of its sources.
    pub srcversion: Option<String>,
    /// `name=`: its name in the kernel.
    pub name: Option<String>,
    /// `depends=`: modules that have to be loaded before it.
    pub depends: Vec<String>,
    /// Who signed it: the common name of the certificate's issuer, where the signature or `signer=` names one.
    pub signer: Option<String>,
    /// Whether a signature is appended. It may still be one that the kernel does not accept.
    pub signed: bool,
}

/// Reads a module file.
///
/// # Errors
/// In words that can follow the file's name: it is no module, it ends too early, its packing cannot be undone.
pub fn modinfo(file: &dyn ReadAt, compression: Compression) -> Result<ModInfo, String> {
    let (info, tail) = match compression {
        Compression::None => plain(file)?,
        _ => packed(file, compression)?,
    };
    let mut module = from_strings(&info);
    if let Some(signature) = signature(&tail) {
        module.signed = true;
        module.signer = signer(signature).or(module.signer);
    }
    Ok(module)
}

/// The `.modinfo` section of a module that is not packed, and its end.
fn plain(file: &dyn ReadAt) -> Result<(Vec<u8>, Vec<u8>), String> {
    match elf::identify(file) {
        Shape::Elf(_) => {}
        Shape::Empty => return Err("the file is empty".to_owned()),
        Shape::Truncated(words) => return Err(format!("the file is cut off: {words}")),
        Shape::NotElf(words) => return Err(format!("this is no kernel module but {words}")),
        Shape::Unreadable(words) => return Err(words),
    }
    let at = elf::section(file, ".modinfo").ok_or("the file has no .modinfo section")?;
    let len = usize::try_from(at.end - at.start)
        .unwrap_or(MAX_INFO)
        .min(MAX_INFO);
    let info = bytes(file, at.start, len).ok_or("its .modinfo section cannot be read")?;
    let tail = file.len().saturating_sub(MAX_SIGNATURE as u64);
    Ok((info, bytes_up_to(file, tail, MAX_SIGNATURE)))
}

/// The same of a packed module, in one pass. Where the section lies is only known at the end of the file, so it is
/// found by what it looks like: `key=value` strings around `vermagic=`, which every module has.
fn packed(file: &dyn ReadAt, compression: Compression) -> Result<(Vec<u8>, Vec<u8>), String> {
    const STEP: usize = 64 << 10;
    let cannot = |e: &dyn std::fmt::Display| format!("it cannot be unpacked: {e}");
    let packed = BufReader::with_capacity(STEP, FromStart { file, at: 0 });
    let mut unpacked: Box<dyn Read + '_> = match compression {
        Compression::None => Box::new(packed),
        Compression::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(
            packed,
            true,
            MAX_DICTIONARY >> 10,
        )),
        Compression::Zstd => Box::new(
            ruzstd::decoding::StreamingDecoder::new_with_max_window_size(
                packed,
                MAX_DICTIONARY.into(),
            )
            .map_err(|e| cannot(&e))?,
        ),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
    };

    let mut step = vec![0; STEP];
    let mut stream = Stream::default();
    let mut total = 0;
    loop {
        let got = match unpacked.read(&mut step) {
            Ok(0) => break,
            Ok(got) => got,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(cannot(&e)),
        };
        if total == 0 && got >= 4 && !step.starts_with(b"\x7fELF") {
            return Err("what is packed in it is no kernel module".to_owned());
        }
        total += got as u64;
        if total > MAX_UNPACKED {
            return Err(format!(
                "it has more than {} MiB when unpacked",
                MAX_UNPACKED >> 20
            ));
        }
        stream.push(step.get(..got).unwrap_or_default());
    }
    stream
        .end()
        .ok_or_else(|| "nothing in it looks like a .modinfo section".to_owned())
}

/// Looks for the modinfo strings in bytes that pass by, and keeps the last of them.
#[derive(Default)]
struct Stream {
    window: Vec<u8>,
    /// Up to where the window was searched.
    searched: usize,
    /// Where `vermagic=` was found, until its surroundings are complete.
    vermagic: Option<usize>,
    info: Option<Vec<u8>>,
}

impl Stream {
    fn push(&mut self, more: &[u8]) {
        const NEEDLE: &[u8] = b"\0vermagic=";
        self.window.extend_from_slice(more);
        if self.info.is_none() {
            if self.vermagic.is_none() {
                let new = self.window.get(self.searched..).unwrap_or_default();
                self.vermagic = memmem::find(new, NEEDLE).map(|at| self.searched + at);
                self.searched = self.window.len().saturating_sub(NEEDLE.len());
            }
            // As many bytes behind it as before it may belong to it.
            if self
                .vermagic
                .is_some_and(|at| self.window.len() - at > MAX_INFO)
            {
                self.take_info();
            }
        }
        let is_open = self.vermagic.is_some() && self.info.is_none();
        if !is_open && self.window.len() > 3 * MAX_INFO {
            let gone = self.window.len() - MAX_INFO;
            self.window.drain(..gone);
            self.searched = self.searched.saturating_sub(gone);
        }
    }

    fn take_info(&mut self) {
        let at = self.vermagic.map(|at| strings_around(&self.window, at));
        self.info = at.and_then(|at| self.window.get(at)).map(<[u8]>::to_vec);
    }

    /// The modinfo strings and the last bytes; `None` where no such strings were seen.
    fn end(mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        if self.info.is_none() {
            self.take_info();
        }
        Some((self.info?, self.window))
    }
}

/// The range of `key=value` strings around the one that begins behind the NUL at `at`.
fn strings_around(window: &[u8], at: usize) -> Range<usize> {
    // Strings of different object files may be padded to their alignment.
    const MAX_PADDING: usize = 64;
    let belongs = |string: &[u8], padding: &mut usize| {
        *padding = if string.is_empty() { *padding + 1 } else { 0 };
        is_info(string) || (string.is_empty() && *padding < MAX_PADDING)
    };
    let (before, after) = window.split_at_checked(at).unwrap_or((window, &[]));
    let mut padding = 0;
    let before = before
        .rsplit(|b| *b == 0)
        .take_while(|string| belongs(string, &mut padding));
    let start = before.map(|string| string.len() + 1).sum::<usize>();
    let mut padding = 0;
    let after = after.get(1..).unwrap_or_default().split(|b| *b == 0);
    let after = after.take_while(|string| belongs(string, &mut padding));
    let end = after.map(|string| string.len() + 1).sum::<usize>();
    at.saturating_sub(start)..(at + end).min(window.len())
}

/// Whether this looks like one string of a `.modinfo` section.
fn is_info(string: &[u8]) -> bool {
    let Some(equals) = memchr::memchr(b'=', string) else {
        return false;
    };
    let (key, value) = string.split_at(equals);
    let is_key = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    // Descriptions of parameters have tabs and line ends in them.
    let is_value = |b: &u8| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..);
    !key.is_empty() && key.iter().all(is_key) && value.iter().all(is_value)
}

fn from_strings(info: &[u8]) -> ModInfo {
    let mut module = ModInfo::default();
    for string in info.split(|b| *b == 0) {
        let string = String::from_utf8_lossy(string);
        let Some((key, value)) = string.split_once('=') else {
            continue;
        };
        let slot = match key {
            "version" => &mut module.version,
            "license" => &mut module.license,
            "vermagic" => &mut module.vermagic,
            "srcversion" => &mut module.srcversion,
            "name" => &mut module.name,
            "signer" => &mut module.signer,
            "depends" => {
                let names = value.split(',').filter(|name| !name.is_empty());
                module.depends.extend(names.map(str::to_owned));
                continue;
            }
            _ => continue,
        };
        // What is linked into a module may bring strings of its own; the module's come first.
        if slot.is_none() {
            *slot = Some(value.trim().to_owned());
        }
    }
    module
}

/// An appended signature: its kind (2 = PKCS#7), and the bytes with the lengths of name, key id and signature proper.
#[derive(Clone, Copy)]
struct Signature<'a> {
    kind: u8,
    name_len: usize,
    id_len: usize,
    len: usize,
    bytes: &'a [u8],
}

fn signature(tail: &[u8]) -> Option<Signature<'_>> {
    let described = tail.strip_suffix(SIGNED)?;
    let (bytes, description) =
        described.split_at_checked(described.len().checked_sub(DESCRIPTION)?)?;
    let [_, _, kind, name_len, id_len, _, _, _, a, b, c, d] = *description.first_chunk()?;
    let len = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
    Some(Signature {
        kind,
        name_len: name_len.into(),
        id_len: id_len.into(),
        len,
        bytes,
    })
}

/// The signer's name in a signature.
fn signer(signature: Signature<'_>) -> Option<String> {
    let Signature {
        kind,
        name_len,
        id_len,
        len,
        bytes,
    } = signature;
    let start = bytes.len().checked_sub(len)?;
    let name = if kind == 2 {
        // A kernel's PKCS#7 has no certificates, so the first common name (object 2.5.4.3) is that of the issuer:
        // 06 03 55 04 03, then the string's type, its length below 128, and the text.
        let signature = bytes.get(start..)?;
        let at = memmem::find(signature, b"\x06\x03\x55\x04\x03")?.checked_add(5)?;
        let [tag, name_len] = *signature.get(at..)?.first_chunk()?;
        let text = at.checked_add(2)?;
        let is_text = matches!(tag, 0x0c | 0x13 | 0x14 | 0x16) && name_len < 128;
        signature
            .get(text..text.checked_add(name_len.into())?)
            .filter(|_| is_text)?
    } else {
        let name = start.checked_sub(id_len)?.checked_sub(name_len)?;
        bytes.get(name..name.checked_add(name_len)?)?
    };
    let name = String::from_utf8_lossy(name).trim().to_owned();
    (!name.is_empty()).then_some(name)
}

/// The bytes of a file from its start on.
struct FromStart<'a> {
    file: &'a dyn ReadAt,
    at: u64,
}

impl Read for FromStart<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = fill(self.file, self.at, buf)?;
        self.at = self.at.saturating_add(got as u64);
        Ok(got)
    }
}
