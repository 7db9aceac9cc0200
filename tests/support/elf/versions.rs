//! Symbol versions of a shared object, and the hash tables that its symbols are found by.

use super::image::{Put, Strings, narrow};
use super::{SharedObject, Symbol};

/// The version nodes of a library: those it defines, and those it needs of others.
pub(super) struct Versions {
    soname: String,
    defined: Vec<String>,
    /// Library and node.
    needed: Vec<(String, String)>,
}

impl Versions {
    pub(super) fn of(object: &SharedObject) -> Self {
        let mut defined: Vec<String> = Vec::new();
        for node in object
            .nodes
            .iter()
            .chain(object.defined.iter().filter_map(|s| s.node.as_ref()))
        {
            if !defined.contains(node) {
                defined.push(node.clone());
            }
        }
        let mut needed: Vec<(String, String)> = Vec::new();
        for symbol in &object.undefined {
            if let (Some(library), Some(node)) = (&symbol.library, &symbol.node) {
                let pair = (library.clone(), node.clone());
                if !needed.contains(&pair) {
                    needed.push(pair);
                }
            }
        }
        // Entries of one library have to follow each other.
        needed.sort();
        Self {
            soname: object.soname.clone(),
            defined,
            needed,
        }
    }

    pub(super) fn any(&self) -> bool {
        !self.defined.is_empty() || !self.needed.is_empty()
    }

    /// Index of a defined node. 0 is local, 1 is the library as such.
    fn index_of_defined(&self, node: &str) -> u16 {
        self.defined
            .iter()
            .position(|n| n == node)
            .map_or(1, |i| narrow(i + 2))
    }

    /// Index of a needed node: they follow the defined ones.
    fn index_of_needed(&self, library: &str, node: &str) -> u16 {
        let place = self
            .needed
            .iter()
            .position(|(l, n)| l == library && n == node);
        place.map_or(1, |i| narrow(self.defined.len() + 2 + i))
    }

    /// `.gnu.version`: the index for each dynamic symbol.
    pub(super) fn of_symbols(&self, object: &SharedObject) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.u16(0);
        for symbol in &object.undefined {
            match (&symbol.library, &symbol.node) {
                (Some(library), Some(node)) => bytes.u16(self.index_of_needed(library, node)),
                _ => bytes.u16(1),
            };
        }
        for symbol in &object.defined {
            bytes.u16(
                symbol
                    .node
                    .as_ref()
                    .map_or(1, |node| self.index_of_defined(node)),
            );
        }
        bytes
    }

    /// `.gnu.version_d` and the number of its entries.
    pub(super) fn definitions(&self, strings: &mut Strings) -> (Vec<u8>, u32) {
        let mut bytes = Vec::new();
        if self.defined.is_empty() {
            return (bytes, 0);
        }
        let all: Vec<&str> = std::iter::once(&self.soname)
            .chain(&self.defined)
            .map(String::as_str)
            .collect();
        for (i, name) in all.iter().enumerate() {
            let last = i + 1 == all.len();
            bytes
                .u16(1)
                .u16(u16::from(i == 0))
                .u16(narrow(i + 1))
                .u16(1)
                .u32(elf_hash(name));
            bytes
                .u32(20)
                .u32(if last { 0 } else { 28 })
                .u32(strings.add(name))
                .u32(0);
        }
        (bytes, narrow(all.len()))
    }

    /// `.gnu.version_r` and the number of its entries.
    pub(super) fn needs(&self, strings: &mut Strings) -> (Vec<u8>, u32) {
        let mut bytes = Vec::new();
        let mut libraries: Vec<&str> = self
            .needed
            .iter()
            .map(|(library, _)| library.as_str())
            .collect();
        libraries.dedup();
        for (i, library) in libraries.iter().enumerate() {
            let nodes: Vec<&str> = self
                .needed
                .iter()
                .filter(|(l, _)| l == library)
                .map(|(_, node)| node.as_str())
                .collect();
            let next = if i + 1 == libraries.len() {
                0
            } else {
                narrow::<u32>(16 + 16 * nodes.len())
            };
            bytes
                .u16(1)
                .u16(narrow(nodes.len()))
                .u32(strings.add(library))
                .u32(16)
                .u32(next);
            for (j, node) in nodes.iter().enumerate() {
                let next = if j + 1 == nodes.len() { 0 } else { 16 };
                bytes
                    .u32(elf_hash(node))
                    .u16(0)
                    .u16(self.index_of_needed(library, node));
                bytes.u32(strings.add(node)).u32(next);
            }
        }
        (bytes, narrow(libraries.len()))
    }
}

/// The System V hash of a name.
fn elf_hash(name: &str) -> u32 {
    name.bytes().fold(0_u32, |hash, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}

/// The GNU hash of a name.
fn gnu_hash(name: &str) -> u32 {
    name.bytes().fold(5381_u32, |hash, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(byte))
    })
}

/// `.hash` with one bucket: all symbols in one chain. It counts the empty symbol too.
pub(super) fn hash_table(names: &[&str]) -> Vec<u8> {
    let count = narrow::<u32>(names.len() + 1);
    let mut table = Vec::new();
    table.u32(1).u32(count).u32(u32::from(count > 1)).u32(0);
    for i in 1..count {
        table.u32(if i + 1 == count { 0 } else { i + 1 });
    }
    table
}

/// `.gnu.hash` with one bucket and a filter that lets every name pass.
pub(super) fn gnu_hash_table(first: usize, defined: &[Symbol]) -> Vec<u8> {
    let mut table = Vec::new();
    table
        .u32(1)
        .u32(narrow(first))
        .u32(1)
        .u32(0)
        .u64(u64::MAX)
        .u32(narrow(first));
    for (i, symbol) in defined.iter().enumerate() {
        // The lowest bit marks the end of the chain.
        table.u32(gnu_hash(&symbol.name) & !1 | u32::from(i + 1 == defined.len()));
    }
    table
}
