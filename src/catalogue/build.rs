//! Runs when gpudoctor is built: makes the index of the error catalogue, so that a question parses the entries that it
//! concerns and nothing else.
//!
//! It reads `compat-matrix/errors/*.toml` line by line and knows the few keys that the index needs; that the index says
//! what the tables say is held by a test. The index is a searcher for many literals at once after Wu and Manber: each
//! literal is known by a window of four letters in it, a table says for any three letters how far the next window can be,
//! and another one which literals end theirs there.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::unnecessary_debug_formatting,
    reason = "it runs when gpudoctor is built: it reads the catalogue, and what is wrong there has to stop the build"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Letters of a window.
const WINDOW: usize = 4;
/// Three letters, five bits of each: upper and lower case are the same.
const HASHES: usize = 1 << 15;

/// What the index needs of a table.
#[derive(Default)]
struct Table {
    kind: String,
    file: usize,
    start: usize,
    end: usize,
    id: String,
    weight: u32,
    codes: Vec<String>,
    names: Vec<String>,
    literals: Vec<String>,
    with: Vec<String>,
}

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let folder = root.join("compat-matrix/errors");
    println!("cargo::rerun-if-changed={}", folder.display());
    println!("cargo::rerun-if-changed=src/catalogue/build.rs");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the catalogue's folder")
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    let mut tables = Vec::new();
    let mut index = String::new();
    let _ = writeln!(index, "pub(super) static FILES: &[(&str, &str)] = &[");
    for (number, path) in files.iter().enumerate() {
        println!("cargo::rerun-if-changed={}", path.display());
        let text = fs::read_to_string(path).expect("a file of the catalogue");
        read(&text, number, &mut tables);
        let name = path
            .file_name()
            .expect("a file has a name")
            .to_string_lossy();
        // What is compiled in are the bytes that were read here: the file may change before the compiler comes to it.
        fs::write(out.join(&*name), &text).expect("a copy of a file of the catalogue");
        let _ = writeln!(
            index,
            "    ({name:?}, include_str!(concat!(env!(\"OUT_DIR\"), \"/{name}\"))),"
        );
    }
    let _ = writeln!(index, "];");
    write(&tables, &out, &mut index);
    fs::write(out.join("catalogue.rs"), index).expect("the index is written");
}

/// Reads the tables of one file: where each begins and ends, and the keys that the index is made of.
fn read(text: &str, file: usize, tables: &mut Vec<Table>) {
    let (mut at, mut key) = (0, String::new());
    let first = tables.len();
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let line = line.trim_end();
        if let Some(kind) = line.strip_prefix("[[").and_then(|l| l.strip_suffix("]]")) {
            if let Some(before) = tables.get_mut(first..).and_then(<[Table]>::last_mut) {
                before.end = start;
            }
            tables.push(Table {
                kind: kind.to_owned(),
                file,
                start,
                end: text.len(),
                ..Table::default()
            });
            continue;
        }
        let Some(table) = tables.get_mut(first..).and_then(<[Table]>::last_mut) else {
            continue;
        };
        if let Some((name, _)) = line.split_once(" = ").filter(|(name, _)| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        }) {
            name.clone_into(&mut key);
        }
        let value = line.split_once(" = ").map_or(line, |(_, value)| value);
        match key.as_str() {
            "id" => table.id = strings(value).remove(0),
            "weight" => table.weight = value.parse().expect("a weight is a number"),
            "codes" => table.codes.extend(strings(line)),
            "names" => table.names.extend(strings(line)),
            "literals" => table.literals.extend(strings(line)),
            "with" => table.with.extend(strings(line)),
            "patterns" => {
                let with = line
                    .split_once("with = [")
                    .and_then(|(_, rest)| rest.split_once("], regex"));
                if let Some((with, _)) = with {
                    table.with.extend(strings(with));
                }
            }
            _ => {}
        }
        key = if line.ends_with('[') || line.starts_with("  ") {
            key
        } else {
            String::new()
        };
    }
}

/// The basic strings of a line of TOML, with their escapes undone.
fn strings(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c != '"' {
            continue;
        }
        let mut text = String::new();
        while let Some(c) = chars.next() {
            match c {
                '"' => break,
                '\\' => text.push(match chars.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some(c) => c,
                    None => '\\',
                }),
                c => text.push(c),
            }
        }
        found.push(text);
    }
    found
}

/// Three letters as a number.
fn hash(three: &[u8]) -> usize {
    three
        .iter()
        .fold(0, |hash, letter| hash << 5 | usize::from(letter & 31))
}

/// What stands in every log: a window of this kind is found too often.
const FREQUENT: &[&str] = &[
    "err", "ror", "rro", "cud", "uda", "nvi", "vid", "idi", "dia", "ing", "ion", "tio", "ati",
    "the", "lib", "ver", "ers", "rsi", "sio", "fai", "ail", "ile", "led", "not", "oun", "und",
    "mod", "odu", "dul", "ule", "com", "omp", "dev", "evi", "vic", "ice", "for", "ope", "pen",
    "ent", "ter", "est", "res", "nst", "ins", "sta", "all", "con", "ect", "tor", "str", "rea",
    "ead", "load", "ile", "pro", "per", "ess", "use", "has", "with", "from", "pyt", "tho", "hon",
    "init", "nit", "mem", "emo", "mor", "ory", "ust", "ack", "tch", "lin", "ine", "ire", "var",
    "ran", "ang", "tal", "fil", "ree",
];

/// Where in a literal its window lies: the one that is found least often.
fn window(literal: &str, seen: &BTreeMap<usize, usize>) -> usize {
    let bytes = literal.as_bytes();
    let bad = |b: u8| b == b' ' || b == b'\'' || !b.is_ascii_graphic();
    let mut best = None;
    for at in 0..=bytes.len().saturating_sub(WINDOW) {
        let Some(window) = bytes.get(at..at + WINDOW) else {
            continue;
        };
        let blanks = window.iter().filter(|b| bad(**b)).count() * 1000;
        let text = String::from_utf8_lossy(window).to_ascii_lowercase();
        let frequent = FREQUENT.iter().filter(|f| text.contains(**f)).count() * 12;
        let digits = window.iter().filter(|b| b.is_ascii_digit()).count() * 8;
        let crowd = seen.get(&hash(&window[1..])).copied().unwrap_or(0);
        let cost = blanks + frequent + digits + crowd;
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, at));
        }
    }
    best.unwrap_or_else(|| panic!("the literal `{literal}` is shorter than {WINDOW} letters"))
        .1
}

fn write(tables: &[Table], out: &Path, index: &mut String) {
    let mut slots = String::new();
    let mut literals: BTreeMap<String, Vec<(usize, bool)>> = BTreeMap::new();
    let (mut codes, mut names, mut numbers) = (Vec::new(), Vec::new(), String::new());
    let mut count = 0;
    for table in tables {
        let place = format!(
            "file: {}, start: {}, end: {}",
            table.file, table.start, table.end
        );
        if !matches!(table.kind.as_str(), "error" | "form") {
            let _ = writeln!(
                numbers,
                "    (\"{}\", Slot {{ id: \"\", weight: 0, {place} }}),",
                table.kind
            );
            continue;
        }
        let _ = writeln!(
            slots,
            "    Slot {{ id: {:?}, weight: {}, {place} }},",
            table.id, table.weight
        );
        for code in &table.codes {
            let (domain, number) = code
                .split_once(' ')
                .expect("a code is a domain and a number");
            codes.push((
                domain.to_owned(),
                number.parse::<i32>().expect("a code's number"),
                count,
            ));
        }
        for name in &table.names {
            names.push((name.to_ascii_lowercase(), count));
            literals
                .entry(name.to_ascii_lowercase())
                .or_default()
                .push((count, true));
        }
        for literal in &table.literals {
            literals
                .entry(literal.to_ascii_lowercase())
                .or_default()
                .push((count, true));
        }
        for literal in &table.with {
            // The pattern decides where it may stand.
            let open = format!("*{}*", literal.trim_matches('*').to_ascii_lowercase());
            literals.entry(open).or_default().push((count, false));
        }
        count += 1;
    }
    let _ = write!(index, "pub(super) static SLOTS: &[Slot] = &[\n{slots}];\n");
    let _ = write!(
        index,
        "pub(super) static OTHERS: &[(&str, Slot)] = &[\n{numbers}];\n"
    );
    codes.sort();
    codes.dedup();
    names.sort();
    names.dedup();
    let _ = writeln!(
        index,
        "pub(super) static CODES: &[(&str, i32, u16)] = &{codes:?};"
    );
    let _ = writeln!(
        index,
        "pub(super) static NAMES: &[(&str, u16)] = &{names:?};"
    );
    searcher(&literals, out, index);
}

/// The tables of the searcher.
fn searcher(literals: &BTreeMap<String, Vec<(usize, bool)>>, out: &Path, index: &mut String) {
    let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
    let mut shift = vec![u8::try_from(WINDOW - 2).expect("small"); HASHES];
    let mut buckets: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (literal, targets) in literals {
        let open_start = literal.starts_with('*');
        let open_end = literal.ends_with('*');
        let text = literal.trim_matches('*');
        let at = window(text, &seen);
        let window = &text.as_bytes()[at..at + WINDOW];
        for (k, three) in window.windows(3).enumerate() {
            let slot = &mut shift[hash(three)];
            *slot = (*slot).min(u8::try_from(WINDOW - 3 - k).expect("small"));
        }
        *seen.entry(hash(&window[1..])).or_default() += 1;
        let mut targets = targets.clone();
        targets.sort_unstable();
        targets.dedup();
        buckets.entry(hash(&window[1..])).or_default().push(format!(
            "    Literal {{ text: {text:?}, open_start: {open_start}, open_end: {open_end}, window_end: {}, targets: &{targets:?} }},\n",
            at + WINDOW
        ));
    }
    let mut starts: Vec<u8> = Vec::with_capacity(2 * HASHES + 2);
    let (mut list, mut count) = (String::new(), 0u16);
    for hash in 0..=HASHES {
        starts.extend(count.to_le_bytes());
        for literal in buckets.get(&hash).into_iter().flatten() {
            list.push_str(literal);
            count += 1;
        }
    }
    let _ = write!(
        index,
        "pub(super) static LITERALS: &[Literal] = &[\n{list}];\n"
    );
    fs::write(out.join("shift.bin"), shift).expect("the shifts are written");
    fs::write(out.join("starts.bin"), starts).expect("the buckets are written");
    let _ = writeln!(
        index,
        "pub(super) static SHIFT: &[u8; {HASHES}] = include_bytes!(concat!(env!(\"OUT_DIR\"), \"/shift.bin\"));\npub(super) static STARTS: &[u8; {}] = include_bytes!(concat!(env!(\"OUT_DIR\"), \"/starts.bin\"));",
        2 * HASHES + 2
    );
}
