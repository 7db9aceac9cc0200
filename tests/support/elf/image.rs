//! The frame of an ELF file: sections one after another, their table, segments, strings.
//!
//! What the sections hold is not this file's business.

use super::Machine;

/// Where the second segment lies in memory, beyond its place in the file: one page up, so that the two never share one.
pub(super) const PAGE: u64 = 0x1000;
pub(super) const SHT_STRTAB: u32 = 3;
pub(super) const SHF_ALLOC: u64 = 2;

/// A number in a narrower field; the files are far too small for it not to fit.
pub(super) fn narrow<T: TryFrom<usize>>(number: usize) -> T {
    T::try_from(number).unwrap_or_else(|_| panic!("{number} is too large"))
}

/// A string table.
pub(super) struct Strings {
    pub(super) bytes: Vec<u8>,
}

impl Strings {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0] }
    }

    pub(super) fn add(&mut self, text: &str) -> u32 {
        let place = self.bytes.len();
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        narrow(place)
    }
}

pub(super) struct Section {
    pub(super) name: &'static str,
    pub(super) kind: u32,
    pub(super) flags: u64,
    pub(super) align: u64,
    pub(super) link: usize,
    pub(super) info: u32,
    pub(super) entry: u64,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) size: u64,
}

impl Section {
    pub(super) fn new(name: &'static str, kind: u32, flags: u64, align: u64) -> Self {
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

    pub(super) fn link(mut self, link: usize) -> Self {
        self.link = link;
        self
    }

    pub(super) fn info(mut self, info: u32) -> Self {
        self.info = info;
        self
    }

    pub(super) fn entry(mut self, entry: u64) -> Self {
        self.entry = entry;
        self
    }
}

pub(super) struct Segment {
    pub(super) kind: u32,
    pub(super) flags: u32,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) align: u64,
}

/// A file that grows section by section; addresses equal offsets until [`Image::start_writable`].
pub(super) struct Image {
    pub(super) kind: u16,
    pub(super) machine: Machine,
    pub(super) segments: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) sections: Vec<Section>,
    pub(super) shift: u64,
}

impl Image {
    /// `kind` is 1 for an object file, 3 for a shared object.
    pub(super) fn new(kind: u16, machine: Machine, segments: usize) -> Self {
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

    pub(super) fn end(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn pad(&mut self, align: u64) {
        let end = self.end().next_multiple_of(align);
        self.bytes.resize(usize::try_from(end).unwrap(), 0);
    }

    pub(super) fn start_writable(&mut self) {
        self.pad(8);
        self.shift = PAGE;
    }

    /// Adds a section and answers its index.
    pub(super) fn add(&mut self, mut section: Section, content: &[u8]) -> usize {
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

    pub(super) fn finish(mut self, segments: &[Segment]) -> Vec<u8> {
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
