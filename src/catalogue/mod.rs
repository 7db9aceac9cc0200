//! The catalogue of errors: texts, codes and names that the GPU stack complains with, the layers at fault, causes and fixes.
//!
//! The knowledge is data in `compat-matrix/errors/*.toml`. An index made when gpudoctor is built says which entry a code, a
//! name or a literal leads to and where in the text it stands, so that a question parses the entries that it concerns and
//! nothing else. Nothing here reads a file or the machine.

mod glance;
mod index;
pub mod lint;
mod prefix;
mod rows;
mod search;

use std::sync::LazyLock;

pub use rows::{Cause, Error, Form, Legacy, Number, Pattern, Role, Success, VersionIn};
pub use search::{Hit, find, normal, unfolded};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Where a table stands.
#[derive(Clone, Copy, Debug)]
struct Slot {
    id: &'static str,
    weight: u32,
    file: usize,
    start: usize,
    end: usize,
}

/// An entry of the catalogue, or a form of numbers: cheap to pass on, parsed when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entry(u16);

impl Entry {
    /// The entry of that number in a [`Hit`].
    pub fn of_target(target: u16) -> Self {
        Self(target)
    }

    fn slot(self) -> Option<&'static Slot> {
        index::SLOTS.get(usize::from(self.0))
    }

    /// Its id.
    pub fn id(self) -> &'static str {
        self.slot().map_or("", |slot| slot.id)
    }

    /// Its weight; a form of numbers has none.
    pub fn weight(self) -> u32 {
        self.slot().map_or(0, |slot| slot.weight)
    }

    /// The file that it stands in: `cuda.toml`.
    pub fn file(self) -> &'static str {
        self.slot()
            .and_then(|slot| index::FILES.get(slot.file))
            .map_or("", |(name, _)| name)
    }

    /// Whether it is a form of numbers.
    pub fn is_form(self) -> bool {
        self.id().starts_with("form-")
    }

    /// The parsed entry; `None` for a form.
    pub fn error(self) -> Option<Error> {
        let slot = self.slot().filter(|_| !self.is_form())?;
        one(slot, "error").ok()
    }

    /// The parsed form; `None` for an entry.
    pub fn form(self) -> Option<Form> {
        let slot = self.slot().filter(|_| self.is_form())?;
        one(slot, "form").ok()
    }
}

/// The only row of a slot.
fn one<T: DeserializeOwned>(slot: &Slot, table: &str) -> Result<T, String> {
    let part = index::FILES
        .get(slot.file)
        .and_then(|(_, text)| text.get(slot.start..slot.end))
        .unwrap_or_default();
    let mut tables: std::collections::BTreeMap<String, Vec<T>> = toml::from_str(part)
        .map_err(|e| format!("{}: {}", slot.id, e.message().replace('\n', "; ")))?;
    tables
        .get_mut(table)
        .and_then(Vec::pop)
        .ok_or_else(|| format!("{}: no [[{table}]]", slot.id))
}

/// All entries, forms left out.
pub fn all() -> impl Iterator<Item = Entry> {
    (0..index::SLOTS.len())
        .filter_map(|at| u16::try_from(at).ok().map(Entry))
        .filter(|entry| !entry.is_form())
}

/// All forms of numbers.
pub fn forms() -> impl Iterator<Item = Entry> {
    (0..index::SLOTS.len())
        .filter_map(|at| u16::try_from(at).ok().map(Entry))
        .filter(|entry| entry.is_form())
}

/// What tells the lines of one writer from those of others: `[rank3]`, `web-1`.
pub fn tag(line: &[u8]) -> Option<&[u8]> {
    prefix::tag(line)
}

/// A line without what stands before its own words: quote marks, ranks, times, hosts.
pub fn without_prefix(line: &[u8]) -> &[u8] {
    line.get(prefix::length(line)..).unwrap_or_default()
}

/// The entry of an id.
pub fn by_id(id: &str) -> Option<Entry> {
    all().find(|entry| entry.id() == id)
}

/// The entry of a code: `("cuda", 35)`.
pub fn by_code(domain: &str, number: i32) -> Option<Entry> {
    let at = index::CODES
        .binary_search_by(|(d, n, _)| (*d, *n).cmp(&(domain, number)))
        .ok()?;
    index::CODES.get(at).map(|(_, _, entry)| Entry(*entry))
}

/// All domains in which a number is a code, with the entry.
pub fn with_number(number: i32) -> impl Iterator<Item = (&'static str, Entry)> {
    index::CODES
        .iter()
        .filter(move |(_, n, _)| *n == number)
        .map(|(domain, _, entry)| (*domain, Entry(*entry)))
}

/// The entries of a name of a code, whatever its case.
pub fn by_name(name: &str) -> impl Iterator<Item = Entry> {
    let name = name.to_ascii_lowercase();
    index::NAMES
        .iter()
        .filter(move |(known, _)| *known == name)
        .map(|(_, entry)| Entry(*entry))
}

/// The number of now for one that the CUDA runtime gave before 10.1.
pub fn since_cuda_10_1(number: i32) -> Option<i32> {
    static LEGACY: LazyLock<Vec<Legacy>> = LazyLock::new(|| others("legacy"));
    LEGACY
        .iter()
        .find(|row| row.number == number)
        .map(|row| row.now)
}

/// What says that a call went well, one row an interface.
pub fn successes() -> &'static [Success] {
    static SUCCESSES: LazyLock<Vec<Success>> = LazyLock::new(|| others("success"));
    &SUCCESSES
}

/// The name of an Xid in the kernel module's header, and for an `SXid` its class, whether or not it has an entry of its own.
pub fn number_name(domain: &str, number: i32) -> Option<(&'static str, Option<&'static str>)> {
    let file = format!("{domain}.toml");
    let (_, text) = index::FILES.iter().find(|(name, _)| *name == file)?;
    let head = format!("\nnumber = {number}\nname = \"");
    let row = text.split_once(&head)?.1;
    let row = row.split_once("\n[[").map_or(row, |(row, _)| row);
    let class = row
        .split_once("class = \"")
        .and_then(|(_, rest)| rest.split_once('"'));
    Some((row.split_once('"')?.0, class.map(|(class, _)| class)))
}

/// The rows of a table that is no entry.
fn others<T: DeserializeOwned>(table: &str) -> Vec<T> {
    index::OTHERS
        .iter()
        .filter(|(kind, _)| *kind == table)
        .filter_map(|(_, slot)| one(slot, table).ok())
        .collect()
}

/// The files: name and text.
pub fn files() -> &'static [(&'static str, &'static str)] {
    index::FILES
}

/// The keys before the first table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    schema: u32,
    as_of: String,
}
