//! The dynamic loader of a laid-out host: what `ldconfig` would write into its cache, and which file a name leads to.
//!
//! No library is parsed for that: the layout knows the soname of every file that it wrote. `glibc-hwcaps` folders,
//! `LD_PRELOAD` and `DT_RUNPATH` are left out: no fixture's driver library is found through one.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::elf::{Machine, Put};
use super::tree::Tree;

/// The magic of glibc's cache since 2.32.
pub const MAGIC: &[u8; 20] = b"glibc-ld.so.cache1.1";
/// Size of the cache's header.
pub const HEADER_BYTES: usize = 48;
/// Size of one entry.
pub const ENTRY_BYTES: usize = 24;
/// The magic of the block of extensions.
pub const EXTENSION_MAGIC: u32 = 0xeaa4_2174;

/// Size of the header of a 64-bit ELF file.
const ELF_HEADER_BYTES: u64 = 64;

/// What the loader of a host goes by.
pub struct Loader<'a> {
    /// The host's files.
    pub tree: &'a Tree,
    /// Its processor.
    pub machine: Machine,
    /// Sonames by the real path of a library.
    pub sonames: &'a BTreeMap<String, String>,
    /// Folders of `LD_LIBRARY_PATH`.
    pub library_path: Vec<String>,
    /// The cache: names and paths, in the order in which the loader prefers them.
    pub cache: Vec<(String, String)>,
    /// The folders searched last.
    pub defaults: Vec<String>,
}

/// What the loader makes of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// There is no such file.
    Missing,
    /// The path by which it was found.
    File(String),
    /// A file was found and refused: its path.
    Refused(String),
}

impl Loader<'_> {
    /// What `dlopen(name)` leads to.
    pub fn open(&self, name: &str) -> Loaded {
        let cached = self
            .cache
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, path)| path.clone());
        let candidates = (self.library_path.iter().map(|dir| format!("{dir}/{name}")))
            .chain(cached)
            .chain(self.defaults.iter().map(|dir| format!("{dir}/{name}")));
        for path in candidates {
            match self
                .tree
                .read(&path)
                .map(|bytes| refusal(&bytes, self.machine))
            {
                None | Some(Refusal::OtherMachine) => {}
                Some(Refusal::None) => return Loaded::File(path),
                Some(Refusal::Fatal) => return Loaded::Refused(path),
            }
        }
        Loaded::Missing
    }
}

enum Refusal {
    None,
    /// The search goes on.
    OtherMachine,
    /// The search ends.
    Fatal,
}

fn refusal(bytes: &[u8], machine: Machine) -> Refusal {
    if (bytes.len() as u64) < ELF_HEADER_BYTES || !bytes.starts_with(b"\x7fELF") {
        Refusal::Fatal
    } else if bytes[18..20] != machine.number().to_le_bytes() {
        Refusal::OtherMachine
    } else {
        Refusal::None
    }
}

/// The cache's content: the given lines as they stand, then what `ldconfig` finds in `folders`.
pub fn cache_content(
    lines: &[String],
    folders: &[String],
    tree: &Tree,
    machine: Machine,
    sonames: &BTreeMap<String, String>,
) -> Vec<(String, String)> {
    let mut content: Vec<(String, String)> =
        lines.iter().filter_map(|line| parse_line(line)).collect();
    for folder in folders {
        for key in names_in(folder, tree, machine, sonames) {
            let pair = (key.clone(), format!("{folder}/{key}"));
            if !content.contains(&pair) {
                content.push(pair);
            }
        }
    }
    content
}

/// Name and path of a line of `ldconfig -p`: `libcuda.so.1 (libc6,x86-64) => /usr/lib64/libcuda.so.1`.
pub fn parse_line(line: &str) -> Option<(String, String)> {
    let (name, path) = line.split_once("=>")?;
    Some((
        name.split_whitespace().next()?.to_owned(),
        path.trim().to_owned(),
    ))
}

/// The names that `ldconfig` gives to what lies in a folder: the soname of a file; of a link its own name where that
/// is the soname or its beginning up to `.so`.
fn names_in(
    folder: &str,
    tree: &Tree,
    machine: Machine,
    sonames: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for name in tree.names(folder) {
        let path = format!("{folder}/{name}");
        if !(name.starts_with("lib") || name.starts_with("ld-")) || !name.contains(".so") {
            continue;
        }
        let Some(real) = tree.resolve(&path) else {
            continue;
        };
        if !tree
            .read(&path)
            .is_some_and(|bytes| matches!(refusal(&bytes, machine), Refusal::None))
        {
            continue;
        }
        let soname = sonames
            .get(&real)
            .filter(|s| !s.is_empty())
            .unwrap_or(&name);
        let is_development_link = name.strip_suffix(".so").is_some()
            && soname.starts_with(&name)
            && tree.link_target(&path).is_some();
        let key = if is_development_link { &name } else { soname };
        // A file whose soname lies nowhere could not be opened by it.
        if !keys.contains(key) && tree.resolve(&format!("{folder}/{key}")).is_some() {
            keys.push(key.clone());
        }
    }
    keys
}

/// The cache as a file: header, entries sorted as the loader's binary search needs them, strings, extensions.
pub fn cache_file(content: &[(String, String)], machine: Machine) -> Vec<u8> {
    let mut sorted: Vec<&(String, String)> = content.iter().collect();
    // Stable: among equal names the first stays first, and that is the one that the loader takes.
    sorted.sort_by(|a, b| compare(&b.0, &a.0));
    let mut strings = Vec::new();
    let mut entries = Vec::new();
    let start = HEADER_BYTES + ENTRY_BYTES * sorted.len();
    let mut add = |text: &str| {
        let place = u32::try_from(start + strings.len()).unwrap();
        strings.extend(text.as_bytes());
        strings.push(0);
        place
    };
    let flags = match machine {
        Machine::X86_64 => 0x303,
        Machine::Aarch64 => 0xa03,
    };
    for (key, value) in sorted {
        entries
            .u32(flags)
            .u32(add(key))
            .u32(add(value))
            .u32(0)
            .u64(0);
    }
    let extensions = (start + strings.len()).next_multiple_of(4);
    let mut file = MAGIC.to_vec();
    file.u32(u32::try_from(content.len()).unwrap())
        .u32(u32::try_from(strings.len()).unwrap());
    // 2: little-endian.
    file.u8(2)
        .u8(0)
        .u8(0)
        .u8(0)
        .u32(u32::try_from(extensions).unwrap());
    file.resize(HEADER_BYTES, 0);
    file.extend(entries);
    file.extend(strings);
    file.resize(extensions, 0);
    let generator = b"ldconfig (GNU libc) stable release version 2.36";
    let text = u32::try_from(extensions + 8 + 16).unwrap();
    file.u32(EXTENSION_MAGIC)
        .u32(1)
        .u32(0)
        .u32(0)
        .u32(text)
        .u32(u32::try_from(generator.len()).unwrap());
    file.extend(generator);
    file
}

/// The order of names in the cache: runs of digits count as numbers, and a digit comes after everything else.
fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a, b) {
            ([], []) => return Ordering::Equal,
            ([], _) => {
                return if b[0].is_ascii_digit() {
                    Ordering::Less
                } else {
                    0.cmp(&b[0])
                };
            }
            ([x, ..], _) if x.is_ascii_digit() && b.first().is_some_and(u8::is_ascii_digit) => {
                let (left, right) = (take_number(&mut a), take_number(&mut b));
                if left != right {
                    return left.cmp(&right);
                }
            }
            ([x, ..], _) if x.is_ascii_digit() => return Ordering::Greater,
            (_, [y, ..]) if y.is_ascii_digit() => return Ordering::Less,
            ([x, ..], []) => return x.cmp(&0),
            ([x, left @ ..], [y, right @ ..]) => {
                if x != y {
                    return x.cmp(y);
                }
                (a, b) = (left, right);
            }
        }
    }
}

fn take_number(text: &mut &[u8]) -> u64 {
    let digits = text.iter().take_while(|c| c.is_ascii_digit()).count();
    let number = text[..digits].iter().fold(0_u64, |n, c| {
        n.wrapping_mul(10).wrapping_add(u64::from(c - b'0'))
    });
    *text = &text[digits..];
    number
}
