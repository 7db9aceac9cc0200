//! Which entries one line matches: literals found by the searcher, then the patterns of those entries alone.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;

use regex::bytes::{Captures, Regex, RegexBuilder};

use super::log::Neighbours;
use crate::catalogue::{self, Entry};
use crate::finding::Severity;

/// An entry that a literal in a line speaks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Its number in the index.
    pub(super) target: u16,
    /// Whether the literal alone proves it.
    pub(super) proves: bool,
    /// Where the literal begins.
    pub(super) at: usize,
    /// Where it ends: in a later line where it was broken.
    pub(super) end: usize,
}

/// An entry that a line matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) entry: Entry,
    pub(super) severity: Severity,
    /// The code that the line has, where that led there.
    pub(super) code: Option<(&'static str, i32)>,
    /// Where the literal begins that led there.
    pub(super) at: usize,
    /// Where it ends.
    pub(super) end: usize,
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
    /// Whether any digit is to it as any other.
    digits_alike: bool,
}

struct CompiledPattern {
    regex: Regex,
    across: bool,
    severity: Option<Severity>,
}

/// A line and what stands around it. Most lines are decided by themselves, so the rest is prepared when it is asked for.
pub(super) struct Line<'a> {
    /// The line itself, in the form that patterns see.
    text: &'a str,
    neighbours: &'a dyn Fn() -> Neighbours,
    /// The line with those beside it that it may have been broken into.
    joined: OnceCell<Vec<Joined>>,
    /// What stands before and after.
    around: (&'a [u8], OnceCell<String>),
    /// The line as it stands.
    raw: &'a [u8],
}

/// Lines as one, and where in it the line in question stands.
struct Joined {
    text: String,
    own: Range<usize>,
}

impl Joined {
    /// The first match that the line has a part in.
    fn captures<'t>(&'t self, regex: &Regex) -> Option<Captures<'t>> {
        regex.captures_iter(self.text.as_bytes()).find(|captures| {
            captures
                .get(0)
                .is_some_and(|all| all.start() < self.own.end && all.end() > self.own.start)
        })
    }
}

impl<'a> Line<'a> {
    /// A line in its form and as it stands, what gives the lines beside it, and the bytes of what is around it.
    pub(super) fn new(
        text: &'a str,
        raw: &'a [u8],
        neighbours: &'a dyn Fn() -> Neighbours,
        around: &'a [u8],
    ) -> Self {
        Self {
            text,
            neighbours,
            joined: OnceCell::new(),
            around: (around, OnceCell::new()),
            raw,
        }
    }

    fn joined(&self) -> &[Joined] {
        self.joined.get_or_init(|| {
            let (before, cut, after) = (self.neighbours)();
            let mut all = Vec::new();
            if before.is_empty() && after.is_empty() {
                return all;
            }
            let mut lines = before.clone();
            lines.extend(self.raw);
            let own_end = lines.len();
            lines.extend(after);
            for within_words in [false, true] {
                if within_words && !cut {
                    continue;
                }
                let length = |end| {
                    let part = lines.get(..end).unwrap_or_default();
                    catalogue::unfolded(part, within_words).len()
                };
                all.push(Joined {
                    own: length(before.len())..length(own_end),
                    text: catalogue::unfolded(&lines, within_words),
                });
            }
            all
        })
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
const DOMAINS: [&str; 22] = [
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
    "nvjpeg",
    "npp",
    "cutensor",
    "nvenc",
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
    fn compiled(&mut self, entry: Entry) -> &Compiled {
        self.compiled.entry(entry).or_insert_with(|| compile(entry))
    }

    /// Whether these literals alone decide what the line is, whatever else stands in it.
    pub(super) fn decided(&mut self, candidates: &[Candidate]) -> bool {
        candidates.iter().all(|candidate| {
            candidate.proves
                && self
                    .compiled(Entry::of_target(candidate.target))
                    .is_decided_by_literals()
        })
    }

    /// Whether a line that these literals stand in comes out the same whatever digits stand in place of its digits, where
    /// no number stands where codes stand.
    pub(super) fn digits_alike(&mut self, candidates: &[Candidate]) -> bool {
        candidates.iter().all(|candidate| {
            let entry = Entry::of_target(candidate.target);
            self.compiled(entry).digits_alike
        })
    }

    /// What a line matches, heaviest first, and whether a number in it stands where codes stand.
    pub(super) fn line(&mut self, line: &Line<'_>, candidates: &[Candidate]) -> (Vec<Found>, bool) {
        let (mut found, mut numbered) = (Vec::<Found>::new(), false);
        let lower = line.text.to_ascii_lowercase();
        for candidate in candidates {
            let entry = Entry::of_target(candidate.target);
            let compiled = self.compiled(entry);
            let hit = match &compiled.form {
                Some((domain, regex)) => {
                    let (domain, number) = (*domain, number(regex, line));
                    // One that no entry has may be no failure where the next one is: `status 0`, `status 5`.
                    numbered |= number.is_some();
                    number
                        .and_then(|number| entry_of_code(domain, number))
                        .and_then(|(entry, number)| {
                            let severity = self.compiled(entry).severity?;
                            Some((entry, severity, Some((domain, number))))
                        })
                }
                None => compiled
                    .matches(line, &lower, candidate.proves)
                    .map(|severity| (entry, severity, None)),
            };
            let Some((entry, severity, code)) = hit else {
                continue;
            };
            let hit = Found {
                entry,
                severity,
                code,
                at: candidate.at,
                end: candidate.end,
            };
            match found.iter_mut().find(|known| known.entry == hit.entry) {
                Some(known) => {
                    known.severity = known.severity.max(hit.severity);
                    known.code = known.code.or(hit.code);
                    known.at = known.at.min(hit.at);
                    known.end = known.end.max(hit.end);
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
        (kept, numbered)
    }
}

impl Compiled {
    /// Whether a literal that proves it does so whatever else stands in the line.
    fn is_decided_by_literals(&self) -> bool {
        self.form.is_none() && self.unless.is_empty()
    }

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
                    || line
                        .joined()
                        .iter()
                        .any(|joined| joined.captures(&pattern.regex).is_some())
            })
            .map(|pattern| pattern.severity.unwrap_or(own))
            .max()
    }
}

fn compile(entry: Entry) -> Compiled {
    if let Some(form) = entry.form() {
        let domain = DOMAINS.into_iter().find(|known| *known == form.domain);
        return Compiled {
            digits_alike: names_no_digit(&form.regex),
            form: domain.zip(regex(&form.regex)),
            ..Compiled::default()
        };
    }
    let Some(error) = entry.error() else {
        return Compiled::default();
    };
    let expressions = error.patterns.iter().map(|pattern| pattern.regex.as_str());
    let unless = error.unless.iter().map(String::as_str);
    Compiled {
        severity: Some(error.severity),
        digits_alike: expressions.chain(unless).all(names_no_digit),
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

/// Whether an expression takes any digit for any other: what it names are all of them, or counts.
fn names_no_digit(expression: &str) -> bool {
    let mut rest = expression.replace("0-9", "");
    while let Some((before, after)) = rest.split_once('{') {
        let after = after.split_once('}').map_or("", |(_, after)| after);
        rest = format!("{before}{after}");
    }
    !rest.bytes().any(|b| b.is_ascii_digit())
}

/// What the first group matches that matches anything.
pub(super) fn first_group<'t>(regex: &Regex, text: &'t str) -> Option<&'t str> {
    group_of(&regex.captures(text.as_bytes())?)
}

fn group_of<'t>(captures: &Captures<'t>) -> Option<&'t str> {
    let found = captures.iter().skip(1).flatten().next()?;
    std::str::from_utf8(found.as_bytes()).ok()
}

/// The number that a form finds in a line.
fn number(regex: &Regex, line: &Line<'_>) -> Option<i32> {
    let number = first_group(regex, line.text).or_else(|| {
        let mut broken = line.joined().iter();
        broken.find_map(|joined| group_of(&joined.captures(regex)?))
    })?;
    number.parse().ok()
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
