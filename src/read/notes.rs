//! Notes of ELF files: small named records that a linker or a vendor leaves in a library.

use super::elf::Headers;
use super::window::{ReadAt, bytes};
use super::{Endian, text_to_nul};
use crate::facts::CompatNote;
use crate::version::Version;

/// The most bytes of notes that are read.
pub(super) const MAX_NOTES: usize = 64 << 10;

/// A note of an ELF file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Who defines it: `GNU`, `NVIDIA Corporation`.
    pub owner: String,
    /// Its type, whose meaning is the owner's.
    pub kind: u32,
    /// Its content.
    pub descriptor: Vec<u8>,
}

/// The first note in a section.
pub fn note_section(file: &dyn ReadAt, name: &str) -> Option<Note> {
    let headers = Headers::read(file).ok()?;
    let at = headers.section(file, name)?;
    let len = usize::try_from(at.end - at.start).ok()?.min(MAX_NOTES);
    notes(&bytes(file, at.start, len)?, 4, headers.endian)
        .into_iter()
        .next()
}

/// The note that a cuda-compat libcuda carries; `None` where the file has none, an error in words where it has one that
/// cannot be used.
///
/// Section `.note.cuda.fwd_compatibility`, owner `NVIDIA Corporation`, content JSON. Its keys have changed their case
/// before, so case does not count; the list of driver branches may be missing (Orin's 13.2.1).
pub fn compat_note(file: &dyn ReadAt) -> Option<Result<CompatNote, String>> {
    const SECTION: &str = ".note.cuda.fwd_compatibility";
    let headers = Headers::read(file).ok()?;
    headers.section(file, SECTION)?;
    Some(match note_section(file, SECTION) {
        None => Err(format!("section {SECTION} holds no note")),
        Some(note) if note.owner != "NVIDIA Corporation" => Err(format!(
            "the note in {SECTION} is owned by `{}`",
            note.owner.escape_debug()
        )),
        Some(note) => compat_json(&text_to_nul(&note.descriptor)),
    })
}

fn compat_json(text: &str) -> Result<CompatNote, String> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text.trim())
        .map_err(|e| format!("the compatibility note is no JSON object: {e}"))?;
    let get = |key: &str| {
        object
            .iter()
            .find(|(k, _)| k.eq_ignore_ascii_case(key))
            .map(|(_, v)| v)
    };
    let cuda = match get("CUDA version") {
        Some(serde_json::Value::String(text)) => Version::parse(text),
        Some(serde_json::Value::Number(number)) => Version::parse(&number.to_string()),
        _ => None,
    };
    let branch = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => Version::parse(text).map(|v| v.major()),
        value => value.as_u64().and_then(|n| u32::try_from(n).ok()),
    };
    let drivers = get("driver").and_then(serde_json::Value::as_array);
    let drivers = drivers.into_iter().flatten().filter_map(branch).collect();
    Ok(CompatNote { cuda, drivers })
}

/// The notes of a note segment or section, up to the first that makes no sense.
pub(super) fn notes(bytes: &[u8], align: u64, endian: Endian) -> Vec<Note> {
    let mask = if align == 8 { 7 } else { 3 };
    let padded = |len: usize| len.checked_add(mask).map(|len| len & !mask);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(note) = (|| {
        let size = |i: usize| usize::try_from(endian.u32(bytes, at + i)?).ok();
        let (name_len, len) = (size(0)?, size(4)?);
        let name = at.checked_add(12)?;
        let start = padded(name.checked_add(name_len)?)?;
        let end = start.checked_add(len)?;
        let note = Note {
            owner: text_to_nul(bytes.get(name..name.checked_add(name_len)?)?),
            kind: endian.u32(bytes, at + 8)?,
            descriptor: bytes.get(start..end)?.to_vec(),
        };
        at = padded(end)?;
        Some(note)
    })() {
        found.push(note);
    }
    found
}
