//! Writes small ELF files: 64-bit little-endian shared objects and kernel modules, a few hundred bytes to a few
//! kilobytes long, with everything in them that can be told of a library without loading it.
//!
//! The files are well-formed (`readelf -a` takes them without complaint) and hold no working code: they are there to
//! be read, never to be loaded. There are no relocations.

mod device;
mod image;
mod versions;

pub use device::{bundle, compat_note, fatbin};
pub use image::Put;
use image::{Image, PAGE, SHF_ALLOC, SHT_STRTAB, Section, Segment, Strings, narrow};
use versions::{Versions, gnu_hash_table, hash_table};

/// The processor that a file is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Machine {
    /// `x86_64`.
    #[default]
    X86_64,
    /// `aarch64`.
    Aarch64,
}

impl Machine {
    /// By its name in `uname -m`.
    pub fn named(name: &str) -> Self {
        match name {
            "x86_64" => Self::X86_64,
            "aarch64" => Self::Aarch64,
            other => panic!("machine {other} is not known"),
        }
    }

    /// `e_machine`.
    pub fn number(self) -> u16 {
        match self {
            Self::X86_64 => 62,
            Self::Aarch64 => 183,
        }
    }

    /// A function that returns 0.
    fn return_zero(self) -> &'static [u8] {
        match self {
            // xor eax, eax; ret
            Self::X86_64 => &[0x31, 0xc0, 0xc3],
            // mov w0, #0; ret
            Self::Aarch64 => &[0x00, 0x00, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6],
        }
    }

    /// A function that stores a constant where its first argument points and returns 0. This is how a CUDA runtime
    /// for `x86_64` carries its version; on aarch64 the constant is spread over instructions and left out here.
    pub fn store_constant(self, value: u32) -> Vec<u8> {
        let mut code = Vec::new();
        if self == Self::X86_64 {
            // mov dword ptr [rdi], value
            code.extend([0xc7, 0x07]);
            code.extend(value.to_le_bytes());
        }
        code.extend(self.return_zero());
        code
    }
}

/// A dynamic symbol.
#[derive(Clone, Debug, Default)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Its version node.
    pub node: Option<String>,
    /// The library that has to define it, for an undefined symbol with a node.
    pub library: Option<String>,
    /// Its code, for a defined symbol; a function that returns 0 where empty.
    pub code: Vec<u8>,
}

impl Symbol {
    /// From `symbol`, `symbol@node` or `symbol@@node`.
    pub fn parse(text: &str) -> Self {
        let (name, node) = text.split_once('@').unwrap_or((text, ""));
        let node = node.trim_start_matches('@');
        Self {
            name: name.to_owned(),
            node: (!node.is_empty()).then(|| node.to_owned()),
            ..Self::default()
        }
    }
}

/// What a shared object is to hold.
#[derive(Clone, Debug, Default)]
pub struct SharedObject {
    /// The processor.
    pub machine: Machine,
    /// `DT_SONAME`; none where empty.
    pub soname: String,
    /// `DT_NEEDED`, in this order.
    pub needed: Vec<String>,
    /// `DT_RUNPATH`.
    pub runpath: Option<String>,
    /// `DT_RPATH`.
    pub rpath: Option<String>,
    /// Defined symbols.
    pub defined: Vec<Symbol>,
    /// Undefined symbols.
    pub undefined: Vec<Symbol>,
    /// Version nodes that are defined beside those of the defined symbols.
    pub nodes: Vec<String>,
    /// Texts of `.rodata`, each closed by a NUL.
    pub texts: Vec<String>,
    /// Note sections: the section's name and the whole note.
    pub notes: Vec<(&'static str, Vec<u8>)>,
    /// Device code: the names of its architectures, as [`fatbin`] takes them.
    pub device_code: Vec<String>,
    /// Code for AMD's GPUs: its targets, as [`bundle`] takes them.
    pub gfx: Vec<String>,
}

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_HASH: u32 = 5;
const SHT_DYNAMIC: u32 = 6;
const SHT_NOTE: u32 = 7;
const SHT_DYNSYM: u32 = 11;
const SHT_GNU_HASH: u32 = 0x6fff_fff6;
const SHT_GNU_VERDEF: u32 = 0x6fff_fffd;
const SHT_GNU_VERNEED: u32 = 0x6fff_fffe;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
const SHF_WRITE: u64 = 1;
const SHF_EXECINSTR: u64 = 4;

impl SharedObject {
    /// The file's bytes.
    pub fn write(&self) -> Vec<u8> {
        let versions = Versions::of(self);
        let has_notes = !self.notes.is_empty();
        let mut image = Image::new(3, self.machine, if has_notes { 5 } else { 4 });

        for (name, note) in &self.notes {
            image.add(Section::new(name, SHT_NOTE, SHF_ALLOC, 4), note);
        }
        let notes_end = image.end();

        let mut text = Vec::new();
        let mut places = Vec::new();
        for symbol in &self.defined {
            text.resize(text.len().next_multiple_of(16), 0xcc);
            let code = if symbol.code.is_empty() {
                self.machine.return_zero()
            } else {
                &symbol.code
            };
            places.push((text.len() as u64, code.len() as u64));
            text.extend(code);
        }
        let text_section = image.add(
            Section::new(".text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, 16),
            &text,
        );
        let mut texts = Vec::new();
        for line in &self.texts {
            texts.extend(line.as_bytes());
            texts.push(0);
        }
        image.add(Section::new(".rodata", SHT_PROGBITS, SHF_ALLOC, 8), &texts);
        let device_code = (!self.device_code.is_empty()).then(|| {
            let section = Section::new(".nv_fatbin", SHT_PROGBITS, SHF_ALLOC, 8);
            let index = image.add(section, &fatbin(&self.device_code));
            image.sections[index].address
        });
        if !self.gfx.is_empty() {
            let section = Section::new(".hip_fatbin", SHT_PROGBITS, SHF_ALLOC, 8);
            image.add(section, &bundle(&self.gfx));
        }

        let mut strings = Strings::new();
        let mut symbols = vec![0; 24];
        let text_address = image.sections[text_section].address;
        for symbol in &self.undefined {
            symbols
                .u32(strings.add(&symbol.name))
                .u8(0x10)
                .u8(0)
                .u16(0)
                .u64(0)
                .u64(0);
        }
        for (symbol, (offset, size)) in self.defined.iter().zip(&places) {
            symbols
                .u32(strings.add(&symbol.name))
                .u8(0x12) // global function
                .u8(0)
                .u16(narrow(text_section))
                .u64(text_address + offset)
                .u64(*size);
        }
        let mut dynamic = Vec::new();
        for name in &self.needed {
            dynamic.push((1, u64::from(strings.add(name))));
        }
        for (tag, value) in [
            (14, Some(&self.soname)),
            (15, self.rpath.as_ref()),
            (29, self.runpath.as_ref()),
        ] {
            if let Some(value) = value.filter(|v| !v.is_empty()) {
                dynamic.push((tag, u64::from(strings.add(value))));
            }
        }
        let definitions = versions.definitions(&mut strings);
        let needs = versions.needs(&mut strings);

        let dynstr = image.add(
            Section::new(".dynstr", SHT_STRTAB, SHF_ALLOC, 1),
            &strings.bytes,
        );
        // The one local symbol is the empty one at index 0, so the global ones begin at 1.
        let section = Section::new(".dynsym", SHT_DYNSYM, SHF_ALLOC, 8)
            .link(dynstr)
            .info(1)
            .entry(24);
        let dynsym = image.add(section, &symbols);
        let names: Vec<&str> = self
            .undefined
            .iter()
            .chain(&self.defined)
            .map(|s| s.name.as_str())
            .collect();
        let hash = Section::new(".hash", SHT_HASH, SHF_ALLOC, 8)
            .link(dynsym)
            .entry(4);
        let hash = image.add(hash, &hash_table(&names));
        for (tag, index) in [(4, hash), (5, dynstr), (6, dynsym)] {
            dynamic.push((tag, image.sections[index].address));
        }
        dynamic.push((10, strings.bytes.len() as u64));
        dynamic.push((11, 24));
        // A table of defined symbols only: without any, it would hide the undefined ones from those who count by it.
        if !self.defined.is_empty() {
            let section = Section::new(".gnu.hash", SHT_GNU_HASH, SHF_ALLOC, 8).link(dynsym);
            let index = image.add(
                section,
                &gnu_hash_table(self.undefined.len() + 1, &self.defined),
            );
            dynamic.push((0x6fff_fef5, image.sections[index].address));
        }
        if versions.any() {
            let section = Section::new(".gnu.version", SHT_GNU_VERSYM, SHF_ALLOC, 2)
                .link(dynsym)
                .entry(2);
            let index = image.add(section, &versions.of_symbols(self));
            dynamic.push((0x6fff_fff0, image.sections[index].address));
        }
        for (name, kind, tag, (bytes, count)) in [
            (".gnu.version_d", SHT_GNU_VERDEF, 0x6fff_fffc, definitions),
            (".gnu.version_r", SHT_GNU_VERNEED, 0x6fff_fffe, needs),
        ] {
            if count > 0 {
                let index = image.add(
                    Section::new(name, kind, SHF_ALLOC, 8)
                        .link(dynstr)
                        .info(count),
                    &bytes,
                );
                dynamic.push((tag, image.sections[index].address));
                dynamic.push((tag + 1, u64::from(count)));
            }
        }
        dynamic.push((0, 0));

        image.start_writable();
        let writable = image.end();
        if let Some(container) = device_code {
            // Magic, version of the wrapper, address of the container, and the list that only linked device code has.
            let mut wrapper = Vec::new();
            wrapper.u32(0x4662_43b1).u32(1).u64(container).u64(0);
            image.add(
                Section::new(".nvFatBinSegment", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, 8),
                &wrapper,
            );
        }
        let mut entries = Vec::new();
        for (tag, value) in dynamic {
            entries.u64(tag).u64(value);
        }
        let section = Section::new(".dynamic", SHT_DYNAMIC, SHF_ALLOC | SHF_WRITE, 8)
            .link(dynstr)
            .entry(16);
        let dynamic = image.add(section, &entries);
        let end = image.end();

        let mut segments = vec![
            Segment {
                kind: 1,
                flags: 5,
                offset: 0,
                address: 0,
                size: writable,
                align: PAGE,
            },
            Segment {
                kind: 1,
                flags: 6,
                offset: writable,
                address: writable + PAGE,
                size: end - writable,
                align: PAGE,
            },
        ];
        let at = &image.sections[dynamic];
        segments.push(Segment {
            kind: 2,
            flags: 6,
            offset: at.offset,
            address: at.address,
            size: entries.len() as u64,
            align: 8,
        });
        if has_notes {
            let start = image.sections[1].offset;
            segments.push(Segment {
                kind: 4,
                flags: 4,
                offset: start,
                address: start,
                size: notes_end - start,
                align: 4,
            });
        }
        // PT_GNU_STACK: no executable stack.
        segments.push(Segment {
            kind: 0x6474_e551,
            flags: 6,
            offset: 0,
            address: 0,
            size: 0,
            align: 16,
        });
        image.finish(&segments)
    }
}

/// A kernel module with these entries of `.modinfo`; with a signature appended where asked for.
///
/// The signature is 64 zero bytes: it has the form of one and proves nothing.
pub fn kernel_module(machine: Machine, modinfo: &[(&str, &str)], signed: bool) -> Vec<u8> {
    let mut image = Image::new(1, machine, 0);
    let mut entries = Vec::new();
    for (key, value) in modinfo {
        entries.extend(format!("{key}={value}\0").bytes());
    }
    image.add(
        Section::new(".modinfo", SHT_PROGBITS, SHF_ALLOC, 1),
        &entries,
    );
    let strtab = image.add(Section::new(".strtab", SHT_STRTAB, 0, 1), &[0]);
    image.add(
        Section::new(".symtab", SHT_SYMTAB, 0, 8)
            .link(strtab)
            .info(1)
            .entry(24),
        &[0; 24],
    );
    let mut file = image.finish(&[]);
    if signed {
        file.extend([0; 64]);
        // Algorithm, hash, kind (2 = PKCS#7), lengths of name and key id, padding, length of the signature.
        file.extend([0, 0, 2, 0, 0, 0, 0, 0]);
        file.extend(64_u32.to_be_bytes());
        file.extend(b"~Module signature appended~\n");
    }
    file
}
