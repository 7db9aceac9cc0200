//! What a sentence is about that no entry's text stands in: people retell an error in words of their own.
//!
//! Each word counts by how few entries have it. The answer is a guess and is told as one; of a line that a program wrote,
//! and of a few words, there is none.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Match, of_entry};
use crate::catalogue::{self, Entry};
use crate::finding::Severity;

/// Words that sentences have and programs seldom write; two of them make a sentence.
const SENTENCE: &[&str] = &[
    "i",
    "my",
    "me",
    "we",
    "our",
    "the",
    "a",
    "it",
    "its",
    "is",
    "was",
    "are",
    "but",
    "when",
    "since",
    "after",
    "says",
    "say",
    "said",
    "tells",
    "cant",
    "can",
    "dont",
    "doesnt",
    "wont",
    "get",
    "gets",
    "getting",
    "gives",
    "only",
    "no",
    "not",
    "does",
    "until",
    "whenever",
    "keeps",
    "complains",
    "could",
    "then",
    "inside",
    "and",
];
/// Words that say nothing of what is wrong.
const EMPTY: &[&str] = &[
    "the", "and", "for", "that", "this", "with", "not", "you", "your", "are", "was", "were", "but",
    "from", "have", "has", "had", "can", "cant", "cannot", "could", "will", "would", "when",
    "then", "than", "its", "into", "out", "over", "under", "after", "before", "again", "there",
    "here", "what", "which", "who", "how", "why", "does", "did", "get", "gets", "got", "only",
    "just", "also", "any", "all", "some", "more", "most", "very", "too", "one", "two", "own",
    "use", "used", "using", "let", "make", "made", "say", "said", "tell", "told", "about", "while",
    "where", "being", "because", "still", "even", "ever", "see", "seen", "find", "found", "file",
    "line", "error", "failed", "fail", "failure", "fatal", "warning", "message", "call", "called",
    "problem", "issue", "trying", "try", "tried", "run", "running", "ran", "start", "started",
    "stop", "stopped", "version", "new", "old", "set", "unset", "other", "another", "between",
    "work", "working", "during", "until", "like", "need", "keep", "going", "through", "every",
    "first", "last", "them", "they", "our", "mine", "few", "hour", "minute", "load", "machine",
];
/// The least part of what its words weigh that an entry has to hold, and the least weight of that part.
const LEAST_PART: f64 = 0.42;
const LEAST_WEIGHT: f64 = 9.0;
/// The longest question that is no log.
const LONGEST: usize = 600;
/// How much the text of an entry, its meaning and its causes count.
const OF_TEXT: f64 = 1.0;
const OF_MEANING: f64 = 0.8;
const OF_CAUSE: f64 = 0.5;

/// The entry that a sentence is about, most likely; `None` where it is no sentence, or could be anything.
pub fn nearest(question: &str) -> Option<Match> {
    if !is_sentence(question) {
        return None;
    }
    let asked: BTreeSet<String> = words(question).collect();
    let mut all: Vec<(Entry, u32, BTreeMap<String, f64>)> = Vec::new();
    let mut holders: HashMap<String, u32> = HashMap::new();
    let mut entries = 0u32;
    for entry in catalogue::all() {
        let Some((weight, held)) = held(entry, &asked) else {
            continue;
        };
        entries += 1;
        for word in held.keys() {
            *holders.entry(word.clone()).or_default() += 1;
        }
        if !held.is_empty() {
            all.push((entry, weight, held));
        }
    }
    // How much it says that an entry has this word.
    let says = |word: &str| {
        let holders = holders.get(word).copied().filter(|n| *n > 0)?;
        Some((f64::from(entries) / f64::from(holders)).ln())
    };
    let whole: f64 = asked.iter().filter_map(|word| says(word)).sum();
    let sum = |held: &BTreeMap<String, f64>| -> f64 {
        let parts = held.iter();
        parts
            .filter_map(|(word, part)| Some(says(word)? * part))
            .sum()
    };
    let best = all
        .iter()
        .map(|(entry, weight, held)| (sum(held), *weight, *entry))
        .max_by(|a, b| {
            // Where two are as near, the weightier one.
            let near = |of: &(f64, u32, Entry)| of.0 * (1.0 + f64::from(of.1) / 1000.0);
            near(a).total_cmp(&near(b))
        })?;
    if best.0 < LEAST_WEIGHT || best.0 < whole * LEAST_PART {
        return None;
    }
    let mut found = of_entry(best.2, None)?;
    found.guessed = true;
    Some(found)
}

/// Whether somebody wrote it to be read.
fn is_sentence(question: &str) -> bool {
    let of_programs = |c: char| "[]{}|<>=\\".contains(c);
    if question.len() > LONGEST || question.lines().count() > 1 || question.contains(of_programs) {
        return false;
    }
    let lower = question.to_lowercase().replace('\'', "");
    let said = lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| SENTENCE.contains(word));
    said.count() >= 2
}

/// The words that say something, as they are compared.
fn words(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(move |c: char| !is_part(c)).filter_map(|word| {
        let word = word.trim_matches('_').to_ascii_lowercase();
        let word = match word.strip_suffix('s') {
            Some(one) if word.len() > 4 && !one.ends_with('s') => one.to_owned(),
            _ => word,
        };
        let is_word = word.len() >= 3 && word.starts_with(|c: char| c.is_ascii_alphabetic());
        (is_word && !EMPTY.contains(&word.as_str())).then_some(word)
    })
}

/// Which of the words an entry has, and how much each counts there; its weight. `None` for what is no failure.
fn held(entry: Entry, asked: &BTreeSet<String>) -> Option<(u32, BTreeMap<String, f64>)> {
    let error = entry
        .error()
        .filter(|error| error.severity > Severity::Note)?;
    let mut held: BTreeMap<String, f64> = BTreeMap::new();
    let mut add = |text: &str, part: f64| {
        for word in words(text).filter(|word| asked.contains(word)) {
            let known = held.entry(word).or_default();
            *known = known.max(part);
        }
    };
    add(&error.id.replace('-', " "), OF_TEXT);
    for text in error
        .literals
        .iter()
        .chain(&error.samples)
        .chain(&error.names)
    {
        add(text, OF_TEXT);
    }
    add(&error.meaning, OF_MEANING);
    for cause in &error.causes {
        add(&cause.text, OF_CAUSE);
    }
    Some((error.weight, held))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What people told of errors, and where those are mended.
    #[test]
    fn sentences_lead_to_a_layer() {
        for (question, layer) in [
            (
                "nvidia-smi says it cant communicate with the driver since the kernel was updated",
                "driver",
            ),
            (
                "docker run with all gpus says it could not select the device driver nvidia with capabilities gpu",
                "container",
            ),
            (
                "rocminfo gets permission denied on /dev/kfd and my user is not in the render group",
                "system",
            ),
            (
                "jax falls back to the cpu and tells me that a cuda enabled jaxlib is not installed",
                "framework",
            ),
            (
                "one of my 3090s keeps falling off the bus under load, have to power cycle the machine",
                "hardware",
            ),
            (
                "the build of deepspeed fails since CUDA_HOME does not exist",
                "toolchain",
            ),
        ] {
            let found = nearest(question).unwrap();
            assert!(found.guessed);
            assert_eq!(
                found.layers_at_fault[0].id(),
                layer,
                "{question}: {}",
                found.id
            );
        }
    }

    #[test]
    fn what_is_no_sentence_is_not_guessed_at() {
        for question in [
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.127.05",
            "| NVIDIA-SMI 550.127.05   Driver Version: 550.127.05   CUDA Version: 12.4 |",
            "[W socket.cpp:601] The client socket cannot be initialized and is not used",
            "why is the sky blue and the grass not",
            "hello",
            "",
            "it is a driver",
        ] {
            assert_eq!(nearest(question).map(|found| found.id), None, "{question}");
        }
    }
}
