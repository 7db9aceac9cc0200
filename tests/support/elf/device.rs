//! What only libraries for GPUs hold: containers of device code of NVIDIA's and AMD's, and the note of a forward-compatibility
//! libcuda.

use super::image::{Put, narrow};

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
/// header, `compute_90` a few lines of PTX 8.0, `compute_90@8.7` of PTX 8.7. Nothing is compressed.
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
            (true, _) => (1, arch.isa.0, arch.isa.1),
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

/// A bundle with a code object of sixteen bytes for each target: `gfx90a:xnack-`, `gfx11-generic`. Nothing is compressed.
pub fn bundle(targets: &[String]) -> Vec<u8> {
    const SIZE: usize = 16;
    let host = "host-x86_64-unknown-linux-gnu-".to_owned();
    let names = targets
        .iter()
        .map(|target| format!("hipv4-amdgcn-amd-amdhsa--{target}"));
    let names: Vec<String> = std::iter::once(host).chain(names).collect();
    let header = 32 + names.iter().map(|name| 24 + name.len()).sum::<usize>();
    let mut out = b"__CLANG_OFFLOAD_BUNDLE__".to_vec();
    out.u64(names.len() as u64);
    for (index, name) in names.iter().enumerate() {
        let size = if index == 0 { 0 } else { SIZE };
        let offset = header + SIZE * index.saturating_sub(1);
        out.u64(offset as u64)
            .u64(size as u64)
            .u64(name.len() as u64);
        out.extend(name.as_bytes());
    }
    out.resize(header + SIZE * targets.len(), 0x90);
    out
}

/// `sm_90a` or `compute_90`.
struct Architecture {
    is_ptx: bool,
    sm: u32,
    suffix: String,
    /// Of PTX: the version of its language.
    isa: (u16, u16),
}

impl Architecture {
    fn parse(name: &str) -> Option<Self> {
        let (name, isa) = name.split_once('@').unwrap_or((name, "8.0"));
        let (major, minor) = isa.split_once('.')?;
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
            isa: (major.parse().ok()?, minor.parse().ok()?),
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
            ".version {}.{}\n.target sm_{}{}\n.address_size 64\n\0",
            self.isa.0, self.isa.1, self.sm, self.suffix
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
