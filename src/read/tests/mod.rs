//! Tests of the parsers of binary files and of the longer text formats: real small files, then the same ones damaged.

mod elf;
mod fatbin;
mod gist;
mod kernel_log;
mod kmod;
mod ldcache;
mod text;

use std::cell::Cell;
use std::io;

use crate::read::window::ReadAt;

/// A file that counts how many bytes of it are read.
pub(super) struct Counted {
    pub(super) file: Vec<u8>,
    bytes: Cell<usize>,
}

impl Counted {
    pub(super) fn new(file: Vec<u8>) -> Self {
        let bytes = Cell::new(0);
        Self { file, bytes }
    }

    /// The bytes that were read so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }
}

impl ReadAt for Counted {
    fn len(&self) -> u64 {
        self.file.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read_at(offset, buf)?;
        self.bytes.set(self.bytes.get() + got);
        Ok(got)
    }
}

/// Built from `fixtures/elf/library.S`: soname, needed, runpath, versions, notes, strings, code.
const LIBRARY: &[u8] = include_bytes!("../../../fixtures/elf/libexample.so.9");
/// A 32-bit library for x86.
const LIBRARY_I386: &[u8] = include_bytes!("../../../fixtures/elf/libexample-i386.so");
/// A signed module, built from `fixtures/elf/module.S`.
const MODULE: &[u8] = include_bytes!("../../../fixtures/elf/example.ko");

/// The file with some bytes put over it.
fn patched(file: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = file.to_vec();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

/// The file with each occurrence of some bytes replaced by as many others.
fn replaced(file: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let places: Vec<_> = memchr::memmem::find_iter(file, old).collect();
    assert!(!places.is_empty() && old.len() == new.len());
    places
        .into_iter()
        .fold(file.to_vec(), |file, at| patched(&file, at, new))
}

/// The file without its section table, as `sstrip` leaves it.
fn without_sections(file: &[u8]) -> Vec<u8> {
    patched(&patched(file, 40, &[0; 8]), 60, &[0; 4])
}
