//! Writes small ELF files: 64-bit little-endian shared objects and kernel modules, a few hundred bytes to a few
//! kilobytes long, with everything in them that can be told of a library without loading it.
//!
//! The files are well-formed (`readelf -a` takes them without complaint) and hold no working code: they are there to
//! be read, never to be loaded. There are no relocations.

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
}

/// Where the second segment lies in memory, beyond its place in the file: one page up, so that the two never share one.
const PAGE: u64 = 0x1000;

const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_HASH: u32 = 5;
const SHT_DYNAMIC: u32 = 6;
const SHT_NOTE: u32 = 7;
const SHT_DYNSYM: u32 = 11;
const SHT_GNU_HASH: u32 = 0x6fff_fff6;
const SHT_GNU_VERDEF: u32 = 0x6fff_fffd;
const SHT_GNU_VERNEED: u32 = 0x6fff_fffe;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;

const SHF_WRITE: u64 = 1;
const SHF_ALLOC: u64 = 2;
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

/// The version nodes of a library: those it defines, and those it needs of others.
struct Versions {
    soname: String,
    defined: Vec<String>,
    /// Library and node.
    needed: Vec<(String, String)>,
}

impl Versions {
    fn of(object: &SharedObject) -> Self {
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

    fn any(&self) -> bool {
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
    fn of_symbols(&self, object: &SharedObject) -> Vec<u8> {
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
    fn definitions(&self, strings: &mut Strings) -> (Vec<u8>, u32) {
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
    fn needs(&self, strings: &mut Strings) -> (Vec<u8>, u32) {
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

/// The note that a forward-compatibility libcuda carries.
pub fn compat_note(cuda: &str, drivers: &[u32]) -> Vec<u8> {
    let drivers: Vec<String> = drivers.iter().map(u32::to_string).collect();
    let text = format!(
        "{{\"format\":1,\"CUDA version\":\"{cuda}\",\"driver\":[{}],\"device\":[1,2,7,8,9]}}\0",
        drivers.join(",")
    );
    let owner = b"NVIDIA Corporation\0";
    let mut note = Vec::new();
    note.u32(narrow(owner.len())).u32(narrow(text.len())).u32(0);
    for part in [owner.as_slice(), text.as_bytes()] {
        note.extend(part);
        note.resize(note.len().next_multiple_of(4), 0);
    }
    note
}

/// One container of device code with an entry for each architecture: `sm_90a` makes a cubin that is only its ELF
/// header, `compute_90` a few lines of PTX. Nothing is compressed.
pub fn fatbin(archs: &[String]) -> Vec<u8> {
    let mut body = Vec::new();
    for name in archs {
        let arch =
            Architecture::parse(name).unwrap_or_else(|| panic!("architecture {name} is not known"));
        let mut payload = if arch.is_ptx {
            arch.ptx()
        } else {
            arch.cubin()
        };
        payload.resize(payload.len().next_multiple_of(8), 0);
        let (kind, major, minor) = match (arch.is_ptx, arch.is_new()) {
            (true, _) => (1, 8, 0),
            (false, false) => (2, 1, 7),
            (false, true) => (2, 1, 8),
        };
        body.u16(kind)
            .u16(0x101)
            .u32(64)
            .u64(payload.len() as u64)
            .u32(0)
            .u32(0)
            .u16(minor)
            .u16(major);
        body.u32(arch.sm)
            .u32(0)
            .u32(0)
            .u64(arch.flags())
            .u64(0)
            .u64(0);
        body.extend(payload);
    }
    let mut container = Vec::new();
    container
        .u32(0xba55_ed50)
        .u16(1)
        .u16(16)
        .u64(body.len() as u64);
    container.extend(body);
    container
}

/// `sm_90a` or `compute_90`.
struct Architecture {
    is_ptx: bool,
    sm: u32,
    suffix: String,
}

impl Architecture {
    fn parse(name: &str) -> Option<Self> {
        let (kind, number) = name.split_once('_')?;
        let digits = number.trim_end_matches(['a', 'f']);
        let is_ptx = match kind {
            "sm" => false,
            "compute" => true,
            _ => return None,
        };
        Some(Self {
            is_ptx,
            sm: digits.parse().ok()?,
            suffix: number[digits.len()..].to_owned(),
        })
    }

    /// From `sm_100` on cubins have another ELF identification.
    fn is_new(&self) -> bool {
        self.sm >= 100
    }

    /// 64-bit, for Linux, and the bit of the suffix.
    fn flags(&self) -> u64 {
        let suffix = match self.suffix.as_str() {
            "a" => 1 << 20,
            "f" => 1 << 21,
            _ => 0,
        };
        0x11 | suffix
    }

    fn ptx(&self) -> Vec<u8> {
        format!(
            ".version 8.0\n.target sm_{}{}\n.address_size 64\n\0",
            self.sm, self.suffix
        )
        .into_bytes()
    }

    fn cubin(&self) -> Vec<u8> {
        let mut elf = Vec::new();
        elf.extend(b"\x7fELF\x02\x01\x01");
        let (abi, version, flags) = if self.is_new() {
            ([0x41, 8], 1, self.sm << 8)
        } else {
            ([0x33, 7], 121, self.sm | self.sm << 16)
        };
        elf.extend(abi);
        elf.extend([0; 7]);
        elf.u16(2)
            .u16(190)
            .u32(version)
            .u64(0)
            .u64(0)
            .u64(64)
            .u32(flags);
        elf.u16(64).u16(56).u16(0).u16(64).u16(1).u16(0);
        // The one section header, an empty one.
        elf.extend([0; 64]);
        elf
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
fn hash_table(names: &[&str]) -> Vec<u8> {
    let count = narrow::<u32>(names.len() + 1);
    let mut table = Vec::new();
    table.u32(1).u32(count).u32(u32::from(count > 1)).u32(0);
    for i in 1..count {
        table.u32(if i + 1 == count { 0 } else { i + 1 });
    }
    table
}

/// `.gnu.hash` with one bucket and a filter that lets every name pass.
fn gnu_hash_table(first: usize, defined: &[Symbol]) -> Vec<u8> {
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

/// A number in a narrower field; the files are far too small for it not to fit.
fn narrow<T: TryFrom<usize>>(number: usize) -> T {
    T::try_from(number).unwrap_or_else(|_| panic!("{number} is too large"))
}

/// A string table.
struct Strings {
    bytes: Vec<u8>,
}

impl Strings {
    fn new() -> Self {
        Self { bytes: vec![0] }
    }

    fn add(&mut self, text: &str) -> u32 {
        let place = self.bytes.len();
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        narrow(place)
    }
}

struct Section {
    name: &'static str,
    kind: u32,
    flags: u64,
    align: u64,
    link: usize,
    info: u32,
    entry: u64,
    offset: u64,
    address: u64,
    size: u64,
}

impl Section {
    fn new(name: &'static str, kind: u32, flags: u64, align: u64) -> Self {
        Self {
            name,
            kind,
            flags,
            align,
            link: 0,
            info: 0,
            entry: 0,
            offset: 0,
            address: 0,
            size: 0,
        }
    }

    fn link(mut self, link: usize) -> Self {
        self.link = link;
        self
    }

    fn info(mut self, info: u32) -> Self {
        self.info = info;
        self
    }

    fn entry(mut self, entry: u64) -> Self {
        self.entry = entry;
        self
    }
}

struct Segment {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    size: u64,
    align: u64,
}

/// A file that grows section by section; addresses equal offsets until [`Image::start_writable`].
struct Image {
    kind: u16,
    machine: Machine,
    segments: usize,
    bytes: Vec<u8>,
    sections: Vec<Section>,
    shift: u64,
}

impl Image {
    /// `kind` is 1 for an object file, 3 for a shared object.
    fn new(kind: u16, machine: Machine, segments: usize) -> Self {
        let bytes = vec![0; 64 + 56 * segments];
        Self {
            kind,
            machine,
            segments,
            bytes,
            sections: vec![Section::new("", 0, 0, 0)],
            shift: 0,
        }
    }

    fn end(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn pad(&mut self, align: u64) {
        let end = self.end().next_multiple_of(align);
        self.bytes.resize(usize::try_from(end).unwrap(), 0);
    }

    fn start_writable(&mut self) {
        self.pad(8);
        self.shift = PAGE;
    }

    /// Adds a section and answers its index.
    fn add(&mut self, mut section: Section, content: &[u8]) -> usize {
        self.pad(section.align.max(1));
        section.offset = self.end();
        section.size = content.len() as u64;
        if section.flags & SHF_ALLOC != 0 && self.segments > 0 {
            section.address = section.offset + self.shift;
        }
        self.bytes.extend(content);
        self.sections.push(section);
        self.sections.len() - 1
    }

    fn finish(mut self, segments: &[Segment]) -> Vec<u8> {
        assert_eq!(
            segments.len(),
            self.segments,
            "as many segments as room was left for"
        );
        let mut names = Strings::new();
        let mut places: Vec<u32> = self
            .sections
            .iter()
            .skip(1)
            .map(|s| names.add(s.name))
            .collect();
        places.insert(0, 0);
        places.push(names.add(".shstrtab"));
        let shstrtab = self.add(Section::new(".shstrtab", SHT_STRTAB, 0, 1), &names.bytes);
        self.pad(8);
        let table = self.end();
        for (section, name) in self.sections.iter().zip(places) {
            self.bytes
                .u32(name)
                .u32(section.kind)
                .u64(section.flags)
                .u64(section.address)
                .u64(section.offset);
            self.bytes
                .u64(section.size)
                .u32(narrow(section.link))
                .u32(section.info);
            self.bytes.u64(section.align).u64(section.entry);
        }
        let mut head = Vec::new();
        head.extend(b"\x7fELF\x02\x01\x01");
        head.extend([0; 9]);
        head.u16(self.kind).u16(self.machine.number()).u32(1).u64(0);
        head.u64(if segments.is_empty() { 0 } else { 64 })
            .u64(table)
            .u32(0)
            .u16(64);
        head.u16(if segments.is_empty() { 0 } else { 56 })
            .u16(narrow(segments.len()));
        head.u16(64)
            .u16(narrow(self.sections.len()))
            .u16(narrow(shstrtab));
        for s in segments {
            head.u32(s.kind)
                .u32(s.flags)
                .u64(s.offset)
                .u64(s.address)
                .u64(s.address)
                .u64(s.size)
                .u64(s.size)
                .u64(s.align);
        }
        self.bytes[..head.len()].copy_from_slice(&head);
        self.bytes
    }
}

/// Little-endian numbers, one after another.
pub trait Put {
    /// One byte.
    fn u8(&mut self, value: u8) -> &mut Self;
    /// Two bytes.
    fn u16(&mut self, value: u16) -> &mut Self;
    /// Four bytes.
    fn u32(&mut self, value: u32) -> &mut Self;
    /// Eight bytes.
    fn u64(&mut self, value: u64) -> &mut Self;
}

impl Put for Vec<u8> {
    fn u8(&mut self, value: u8) -> &mut Self {
        self.push(value);
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.extend(value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.extend(value.to_le_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.extend(value.to_le_bytes());
        self
    }
}
