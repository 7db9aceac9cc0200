//! What an ELF file needs of others beyond their names: version nodes, symbols, and the least C and C++ libraries; and
//! which version nodes it defines itself. By the tables the loader uses, none of which needs section headers.

use std::collections::BTreeMap;

use goblin::elf::dynamic::{
    DT_FLAGS_1, DT_GNU_HASH, DT_HASH, DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, DT_STRTAB,
    DT_SYMTAB, DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM, DT_VERSYM,
};

use super::dynamic::Dynamic;
use super::elf::Headers;
use super::window::{ReadAt, bytes, bytes_up_to};
use crate::version::Version;

/// The most entries of a version table that are read.
const MAX_VERSIONS: u64 = 1024;
/// The most version nodes that are read of one file.
const MAX_NODES: usize = 4096;
/// The most undefined symbols that are listed; `libtorch_cuda` has 9,000.
const MAX_SYMBOLS: u64 = 32 << 10;
/// The most needed libraries that are listed.
const MAX_NEEDED: usize = 512;
/// Flag of `DT_FLAGS_1`: do not look in the default folders.
const DF_1_NODEFLIB: u64 = 0x800;

/// Version nodes that a file needs of one library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionNeed {
    /// The library, by the name it was linked under: `libc.so.6`.
    pub library: String,
    /// `GLIBC_2.34`; a node that is only weakly needed is left out.
    pub nodes: Vec<String>,
}

/// A symbol that a file uses and does not define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undefined {
    /// Its name.
    pub name: String,
    /// Its version node and the library that has to define it, where it has one.
    pub node: Option<(String, String)>,
    /// The program runs without it.
    pub weak: bool,
}

/// What the loader goes by when it looks for what a file needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loading {
    /// The name that it is known by once loaded.
    pub soname: Option<String>,
    /// What it needs, in order.
    pub needed: Vec<String>,
    /// `DT_RPATH` as written.
    pub rpath: Option<String>,
    /// `DT_RUNPATH` as written.
    pub runpath: Option<String>,
    /// It is not to be looked for in the default folders.
    pub no_default_folders: bool,
}

/// Names and search paths; `None` where this is no ELF file.
pub fn loading(file: &dyn ReadAt) -> Option<Loading> {
    let headers = Headers::read(file).ok()?;
    let dynamic = Dynamic::read(file, &headers);
    let folders = |tag| dynamic.value(tag).and_then(|at| dynamic.folders(file, at));
    Some(Loading {
        soname: dynamic
            .value(DT_SONAME)
            .and_then(|at| dynamic.name(file, at)),
        needed: dynamic
            .values(DT_NEEDED)
            .take(MAX_NEEDED)
            .filter_map(|at| dynamic.name(file, at))
            .collect(),
        rpath: folders(DT_RPATH),
        runpath: folders(DT_RUNPATH),
        no_default_folders: dynamic
            .value(DT_FLAGS_1)
            .is_some_and(|flags| flags & DF_1_NODEFLIB != 0),
    })
}

/// Which version nodes of which libraries a file needs.
pub fn version_needs(file: &dyn ReadAt) -> Vec<VersionNeed> {
    let Ok(headers) = Headers::read(file) else {
        return Vec::new();
    };
    let dynamic = Dynamic::read(file, &headers);
    nodes_needed(file, &headers, &dynamic)
        .into_iter()
        .map(|need| VersionNeed {
            library: need.library,
            nodes: need
                .nodes
                .into_iter()
                .filter(|n| !n.weak)
                .map(|n| n.name)
                .collect(),
        })
        .collect()
}

struct Need {
    library: String,
    nodes: Vec<Node>,
}

struct Node {
    name: String,
    index: u16,
    weak: bool,
}

fn nodes_needed(file: &dyn ReadAt, headers: &Headers, dynamic: &Dynamic) -> Vec<Need> {
    const VER_FLG_WEAK: u16 = 2;
    let endian = headers.endian;
    let mut found = Vec::new();
    let (Some(count), Some(mut at)) = (dynamic.value(DT_VERNEEDNUM), dynamic.address(DT_VERNEED))
    else {
        return found;
    };
    let mut left = MAX_NODES;
    for _ in 0..count.min(MAX_VERSIONS) {
        // version, count (16 bits each), library, offset of the nodes, offset of the next
        let Some(raw) = bytes(file, at, 16) else {
            break;
        };
        let word = |i| endian.u32(&raw, i).map(u64::from);
        let (Some(number), Some(library), Some(first), Some(next)) =
            (endian.u16(&raw, 2), word(4), word(8), word(12))
        else {
            break;
        };
        let mut nodes = Vec::new();
        let mut node_at = at.checked_add(first);
        for _ in 0..number {
            // hash, flags, index (16 bits each), name, offset of the next
            let Some(raw) = node_at
                .filter(|_| left > 0)
                .and_then(|at| bytes(file, at, 16))
            else {
                break;
            };
            left -= 1;
            let name = endian
                .u32(&raw, 8)
                .and_then(|at| dynamic.name(file, at.into()));
            if let (Some(name), Some(flags), Some(index)) =
                (name, endian.u16(&raw, 4), endian.u16(&raw, 6))
            {
                nodes.push(Node {
                    name,
                    index,
                    weak: flags & VER_FLG_WEAK != 0,
                });
            }
            node_at = match endian.u32(&raw, 12) {
                Some(next) if next > 0 => node_at.and_then(|at| at.checked_add(next.into())),
                _ => None,
            };
        }
        if let Some(library) = dynamic.name(file, library) {
            found.push(Need { library, nodes });
        }
        match at.checked_add(next) {
            Some(after) if next != 0 => at = after,
            _ => break,
        }
    }
    found
}

/// The version nodes that a file defines, without the one that only names the file.
pub fn version_definitions(file: &dyn ReadAt) -> Vec<String> {
    const VER_FLG_BASE: u16 = 1;
    let Ok(headers) = Headers::read(file) else {
        return Vec::new();
    };
    let endian = headers.endian;
    let dynamic = Dynamic::read(file, &headers);
    let mut found = Vec::new();
    let (Some(count), Some(mut at)) = (dynamic.value(DT_VERDEFNUM), dynamic.address(DT_VERDEF))
    else {
        return found;
    };
    for _ in 0..count.min(MAX_VERSIONS) {
        // version, flags, index, count (16 bits each), hash, offset of the names, offset of the next
        let Some(raw) = bytes(file, at, 20) else {
            break;
        };
        let word = |i| endian.u32(&raw, i).map(u64::from);
        let (Some(flags), Some(names), Some(next)) = (endian.u16(&raw, 2), word(12), word(16))
        else {
            break;
        };
        let name = at.checked_add(names).and_then(|at| bytes(file, at, 4));
        let name = name.and_then(|raw| endian.u32(&raw, 0));
        let name = name.and_then(|at| dynamic.name(file, at.into()));
        // Shared libraries of NVIDIA's are versioned by their soname, which is then a node like others.
        if flags & VER_FLG_BASE == 0 {
            found.extend(name);
        }
        match at.checked_add(next) {
            Some(after) if next != 0 => at = after,
            _ => break,
        }
    }
    found
}

/// The highest version that a file needs under a prefix, of any library: `GLIBC_`, `GLIBCXX_`, `CXXABI_`.
pub fn highest_need(needs: &[VersionNeed], prefix: &str) -> Option<Version> {
    needs
        .iter()
        .flat_map(|need| &need.nodes)
        .filter_map(|node| Version::parse(node.strip_prefix(prefix)?))
        .max()
}

/// The symbols that a file uses and does not define, with their version nodes.
pub fn undefined_symbols(file: &dyn ReadAt) -> Vec<Undefined> {
    undefined_symbols_of(file, |_| true)
}

/// The same, of the libraries alone that are wanted: by the name of the library that has to define a symbol, `None`
/// where it has no version node and any library may. The names of the others are not read.
pub fn undefined_symbols_of(
    file: &dyn ReadAt,
    wanted: impl Fn(Option<&str>) -> bool,
) -> Vec<Undefined> {
    let Ok(headers) = Headers::read(file) else {
        return Vec::new();
    };
    let dynamic = Dynamic::read(file, &headers);
    let endian = headers.endian;
    let mut nodes: BTreeMap<u16, (String, String)> = BTreeMap::new();
    for need in nodes_needed(file, &headers, &dynamic) {
        for node in need.nodes {
            nodes.insert(node.index, (node.name, need.library.clone()));
        }
    }
    let of_any = wanted(None);
    if !of_any && !nodes.values().any(|(_, library)| wanted(Some(library))) {
        return Vec::new();
    }
    let (Some(table), Some(count)) = (
        dynamic.address(DT_SYMTAB),
        symbol_count(file, &headers, &dynamic),
    ) else {
        return Vec::new();
    };
    let size: usize = if headers.is_64() { 24 } else { 16 };
    let (info_at, section_at) = if headers.is_64() { (4, 6) } else { (12, 14) };
    let count = usize::try_from(count.min(MAX_SYMBOLS)).unwrap_or(0);
    let versions = dynamic.address(DT_VERSYM).map_or_else(Vec::new, |at| {
        bytes_up_to(file, at, count.saturating_mul(2))
    });
    // `libtorch_cuda` has 3,500 symbols, most of them its own or the C++ library's: where only some are wanted, only those
    // are read.
    let all = of_any.then(|| bytes_up_to(file, table, count.saturating_mul(size)));
    let symbol = |index: usize| -> Option<Undefined> {
        const WEAK: u8 = 2;
        let version = endian.u16(&versions, index.checked_mul(2)?);
        let node = version.and_then(|version| nodes.get(&(version & 0x7fff)));
        if !wanted(node.map(|(_, library)| library.as_str())) {
            return None;
        }
        let at = index.checked_mul(size)?;
        let raw = match &all {
            Some(all) => all.get(at..at.checked_add(size)?)?.to_vec(),
            None => bytes(file, table.checked_add(u64::try_from(at).ok()?)?, size)?,
        };
        let is_undefined = endian.u16(&raw, section_at)? == 0;
        let name = dynamic.name(file, endian.u32(&raw, 0)?.into())?;
        (is_undefined && !name.is_empty()).then(|| Undefined {
            name,
            node: node.cloned(),
            weak: raw.get(info_at).is_some_and(|info| info >> 4 == WEAK),
        })
    };
    (1..count).filter_map(symbol).collect()
}

/// How many symbols may be undefined: with a GNU hash table they come first, else it may be all of them. The table of a
/// file that defines nothing says 1; there it is what lies between the symbols and their names.
fn symbol_count(file: &dyn ReadAt, headers: &Headers, dynamic: &Dynamic) -> Option<u64> {
    let word = |at: u64| headers.endian.u32(&bytes(file, at, 4)?, 0).map(u64::from);
    let Some(table) = dynamic.address(DT_GNU_HASH) else {
        return word(dynamic.address(DT_HASH)?.checked_add(4)?);
    };
    let first_defined = word(table.checked_add(4)?)?;
    if first_defined > 1 {
        return Some(first_defined);
    }
    let size = if headers.is_64() { 24 } else { 16 };
    let between = dynamic
        .address(DT_STRTAB)?
        .checked_sub(dynamic.address(DT_SYMTAB)?)?;
    Some(between / size)
}
