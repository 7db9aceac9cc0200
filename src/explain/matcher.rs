//! Which entries one line matches: literals found by the searcher, then the patterns of those entries alone.

use std::cell::OnceCell;
use std::collections::HashMap;

use regex::bytes::{Regex, RegexBuilder};

use crate::catalogue::{self, Entry};
use crate::finding::Severity;

/// An entry that a line matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) entry: Entry,
    pub(super) severity: Severity,
    /// The code that the line has, where that led there.
    pub(super) code: Option<(&'static str, i32)>,
}

/// Entries that were looked at, with their patterns compiled.
#[derive(Default)]
pub(super) struct Matcher {
    compiled: HashMap<Entry, Compiled>,
}

/// What a line is held against.
#[derive(Default)]
struct Compiled {
    severity: Option<Severity>,
    unless: Vec<String>,
    patterns: Vec<CompiledPattern>,
    /// The domain of a form, and its pattern.
    form: Option<(&'static str, Regex)>,
}

struct CompiledPattern {
    regex: Regex,
    across: bool,
    severity: Option<Severity>,
}

/// A line and what stands around it. Most lines are decided by themselves, so the rest is prepared when it is asked for.
pub(super) struct Line<'a> {
    /// The line itself, in the form that patterns see.
    pub(super) text: &'a str,
    /// The line and the few after it, for what was wrapped; empty where it is too long to be wrapped.
    wrapped: (&'a [u8], OnceCell<String>),
    /// What stands before and after.
    around: (&'a [u8], OnceCell<String>),
}

impl<'a> Line<'a> {
    /// A line in its form, and the bytes of what is around it.
    pub(super) fn new(text: &'a str, wrapped: &'a [u8], around: &'a [u8]) -> Self {
        Self {
            text,
            wrapped: (wrapped, OnceCell::new()),
            around: (around, OnceCell::new()),
        }
    }

    fn wrapped(&self) -> &str {
        self.wrapped
            .1
            .get_or_init(|| catalogue::normal(self.wrapped.0))
    }

    fn around(&self) -> &str {
        self.around
            .1
            .get_or_init(|| catalogue::normal(self.around.0))
    }
}

/// Below this weight an entry only passes on what another one says.
pub(super) const PASSES_ON: u32 = 30;

/// Domains of codes, for the lifetime of the program.
const DOMAINS: [&str; 18] = [
    "cuda",
    "nvml",
    "xid",
    "sxid",
    "cudnn",
    "cublas",
    "nccl",
    "opencl",
    "vk",
    "cufft",
    "cusolver",
    "cusparse",
    "curand",
    "nvrtc",
    "nvjitlink",
    "hip",
    "hsa",
    "ze",
];

/// Compiles a pattern of the catalogue: ASCII, whatever the case.
pub(crate) fn regex(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern)
        .case_insensitive(true)
        .unicode(false)
        .size_limit(1 << 20)
        .build()
        .ok()
}

impl Matcher {
    /// What a line matches, heaviest first. `candidates`: entries, with whether a literal alone proves them.
    pub(super) fn line(&mut self, line: &Line<'_>, candidates: &[(u16, bool)]) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        let lower = line.text.to_ascii_lowercase();
        for (target, proves) in candidates {
            let entry = Entry::of_target(*target);
            let compiled = self.compiled.entry(entry).or_insert_with(|| compile(entry));
            let hit = match &compiled.form {
                Some((domain, regex)) => code(domain, regex, line.text),
                None => compiled
                    .matches(line, &lower, *proves)
                    .map(|severity| Found {
                        entry,
                        severity,
                        code: None,
                    }),
            };
            let Some(hit) = hit else { continue };
            match found.iter_mut().find(|known| known.entry == hit.entry) {
                Some(known) => {
                    known.severity = known.severity.max(hit.severity);
                    known.code = known.code.or(hit.code);
                }
                None => found.push(hit),
            }
        }
        // What a number alone says counts only where no text of the same kind says more.
        let told: Vec<Entry> = found
            .iter()
            .filter(|f| f.code.is_none())
            .map(|f| f.entry)
            .collect();
        let outweighed = |entry: Entry| {
            told.iter()
                .any(|text| text.file() == entry.file() && text.weight() >= entry.weight())
        };
        let mut kept: Vec<Found> = found
            .iter()
            .filter(|f| f.code.is_none() || !outweighed(f.entry))
            .copied()
            .collect();
        kept.sort_by_key(|f| {
            let class = match (f.severity, f.entry.weight()) {
                (Severity::Note, _) => 1,
                (_, ..PASSES_ON) => 2,
                _ => 0,
            };
            (class, std::cmp::Reverse(f.entry.weight()), f.entry)
        });
        kept
    }
}

impl Compiled {
    /// With what weight the line is this entry.
    fn matches(&self, line: &Line<'_>, lower: &str, proves: bool) -> Option<Severity> {
        let own = self.severity?;
        if self.unless.iter().any(|text| lower.contains(text)) {
            return None;
        }
        if proves {
            return Some(own);
        }
        self.patterns
            .iter()
            .filter(|pattern| {
                if pattern.across {
                    return pattern.regex.is_match(line.around().as_bytes());
                }
                pattern.regex.is_match(line.text.as_bytes())
                    || !line.wrapped.0.is_empty()
                        && pattern.regex.is_match(line.wrapped().as_bytes())
            })
            .map(|pattern| pattern.severity.unwrap_or(own))
            .max()
    }
}

fn compile(entry: Entry) -> Compiled {
    if let Some(form) = entry.form() {
        let domain = DOMAINS.into_iter().find(|known| *known == form.domain);
        return Compiled {
            form: domain.zip(regex(&form.regex)),
            ..Compiled::default()
        };
    }
    let Some(error) = entry.error() else {
        return Compiled::default();
    };
    Compiled {
        severity: Some(error.severity),
        unless: error
            .unless
            .iter()
            .map(|text| text.to_ascii_lowercase())
            .collect(),
        patterns: error
            .patterns
            .iter()
            .filter_map(|pattern| {
                Some(CompiledPattern {
                    regex: regex(&pattern.regex)?,
                    across: pattern.across,
                    severity: pattern.severity,
                })
            })
            .collect(),
        form: None,
    }
}

/// What the first group matches that matches anything.
pub(super) fn first_group<'t>(regex: &Regex, text: &'t str) -> Option<&'t str> {
    let captures = regex.captures(text.as_bytes())?;
    let found = captures.iter().skip(1).flatten().next()?;
    text.get(found.range())
}

/// The entry of the number that a form finds in a line.
fn code(domain: &'static str, regex: &Regex, line: &str) -> Option<Found> {
    let number = first_group(regex, line)?.parse().ok()?;
    let (entry, number) = entry_of_code(domain, number)?;
    let severity = entry.error()?.severity;
    Some(Found {
        entry,
        severity,
        code: Some((domain, number)),
    })
}

/// The entry of a code, where the runtime's old numbers stand for those of now.
pub(super) fn entry_of_code(domain: &str, number: i32) -> Option<(Entry, i32)> {
    if let Some(entry) = catalogue::by_code(domain, number) {
        return Some((entry, number));
    }
    match domain {
        "cuda" => {
            let now = catalogue::since_cuda_10_1(number)?;
            Some((catalogue::by_code("cuda", now)?, now))
        }
        "xid" if (1..=255).contains(&number) => Some((catalogue::by_id("xid-generic")?, number)),
        "sxid" if (10_000..=99_999).contains(&number) => {
            Some((catalogue::by_id("sxid-generic")?, number))
        }
        _ => None,
    }
}
