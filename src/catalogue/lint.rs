//! Holds the catalogue against itself and against the rules: which entries cannot be right.
//!
//! It cannot say whether an entry is true. It knows that an entry has to be reachable by what it says of itself: by its
//! codes, its names, and every sample line, better than any other entry; and that a cause in a layer that rules look at
//! has to name the finding that confirms it.

use std::collections::BTreeSet;

use super::{Entry, Head, all, by_code, by_name, files, forms};
use crate::explain;
use crate::facts::Layer;
use crate::rules;

/// Everything that is wrong, one line each: `kernel.toml, aer-errors: sample 2 is pci-no-bar-space`.
pub fn lint() -> Vec<String> {
    let mut problems = Vec::new();
    for (name, text) in files() {
        let end = text.find("\n[[").unwrap_or(text.len());
        match toml::from_str::<Head>(text.get(..end).unwrap_or_default()) {
            Ok(head) if head.schema == 1 && head.as_of.len() == "2026-12-01".len() => {}
            Ok(_) => problems.push(format!("{name}: schema or as_of is wrong")),
            Err(e) => problems.push(format!("{name}: {}", e.message())),
        }
    }
    let mut ids = BTreeSet::new();
    for entry in all() {
        let Some(slot) = entry.slot() else { continue };
        let mut say =
            |problem: String| problems.push(format!("{}, {}: {problem}", entry.file(), entry.id()));
        if !ids.insert(entry.id()) {
            say("the id stands twice".to_owned());
        }
        if let Err(e) = super::one::<super::Error>(slot, "error") {
            say(e);
            continue;
        }
        self::entry(entry, &mut say);
    }
    for form in forms() {
        let Some(slot) = form.slot() else { continue };
        let mut say =
            |problem: String| problems.push(format!("{}, {}: {problem}", form.file(), form.id()));
        match super::one::<super::Form>(slot, "form") {
            Err(e) => say(e),
            Ok(row) => {
                if explain::regex(&row.regex).is_none() {
                    say(format!("`{}` is no expression", row.regex));
                }
                let found = scanned(&row.sample);
                if found.is_empty() {
                    say(format!("its sample leads nowhere: {}", row.sample));
                }
            }
        }
    }
    problems
}

/// The ids that a text leads to, in their order.
fn scanned(text: &str) -> Vec<&'static str> {
    explain::scan(text.as_bytes())
        .map(|scan| scan.groups.iter().map(|group| group.entry.id()).collect())
        .unwrap_or_default()
}

fn entry(entry: Entry, say: &mut dyn FnMut(String)) {
    let Some(row) = entry.error() else { return };
    if row.id != entry.id() || row.weight != entry.weight() {
        say("the index does not say what the table says".to_owned());
    }
    let kebab = |id: &str| {
        id.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    if !kebab(&row.id) {
        say("the id is not kebab-case".to_owned());
    }
    if row.weight > 100 {
        say(format!("weight {}", row.weight));
    }
    for code in &row.codes {
        let found = code
            .split_once(' ')
            .and_then(|(domain, number)| by_code(domain, number.parse().ok()?));
        if found != Some(entry) {
            say(format!("its code {code} leads elsewhere"));
        }
    }
    for name in &row.names {
        if !by_name(name).any(|found| found == entry) {
            say(format!("its name {name} leads elsewhere"));
        }
    }
    if row.names.is_empty()
        && row.literals.is_empty()
        && row.patterns.is_empty()
        && row.codes.is_empty()
    {
        say("nothing leads to it".to_owned());
    }
    for pattern in &row.patterns {
        if explain::regex(&pattern.regex).is_none() {
            say(format!("`{}` is no expression", pattern.regex));
        }
        if pattern.with.is_empty() {
            say(format!("`{}` has no literal", pattern.regex));
        }
    }
    for version in &row.versions {
        if explain::regex(&version.regex).is_none_or(|regex| regex.captures_len() < 2) {
            say(format!("`{}` finds no version", version.regex));
        }
    }
    texts(&row, say);
    causes(&row, say);
    let by_code_alone = row.names.is_empty() && row.literals.is_empty() && row.patterns.is_empty();
    if row.samples.is_empty() && !by_code_alone {
        say("no sample".to_owned());
    }
    for sample in &row.samples {
        let found = scanned(sample);
        if found.first() != Some(&entry.id()) {
            say(format!("a sample leads to {found:?}: {sample}"));
        }
    }
}

/// What is read by people.
fn texts(row: &super::Error, say: &mut dyn FnMut(String)) {
    let mut texts: Vec<&str> = vec![&row.meaning];
    texts.extend(row.fixes.iter().map(String::as_str));
    texts.extend(row.causes.iter().map(|cause| cause.text.as_str()));
    texts.extend(row.causes.iter().filter_map(|cause| cause.check.as_deref()));
    for text in texts {
        if text.trim().is_empty()
            || text.trim() != text
            || text.ends_with('.')
            || text.contains('\n')
        {
            say(format!("`{text}` is no phrase"));
        }
    }
    if row.fixes.is_empty() {
        say("no fix".to_owned());
    }
    if row.source.trim().len() < 6 {
        say(format!("`{}` is no source", row.source));
    }
}

fn causes(row: &super::Error, say: &mut dyn FnMut(String)) {
    if row.causes.is_empty() || row.layers_at_fault.is_empty() {
        say("no cause, or no layer".to_owned());
    }
    let layers: BTreeSet<Layer> = row.layers_at_fault.iter().copied().collect();
    if layers.len() != row.layers_at_fault.len() {
        say("a layer stands twice".to_owned());
    }
    for cause in &row.causes {
        // Rules look at these layers: a cause there names the finding that confirms it, or says that none can.
        let ruled = matches!(
            cause.layer,
            Layer::Driver | Layer::Container | Layer::Runtime | Layer::Libraries
        );
        if ruled && cause.findings.is_empty() && !cause.unseen {
            say(format!("`{}` names no finding", cause.text));
        }
        if cause.unseen && !(ruled && cause.findings.is_empty()) {
            say(format!("`{}` need not say that it is unseen", cause.text));
        }
        for id in &cause.findings {
            if rules::by_id(id).is_none() {
                say(format!("`{id}` is no finding"));
            }
        }
    }
    for layer in &row.layers_at_fault {
        if !row.causes.iter().any(|cause| cause.layer == *layer) {
            say(format!("{layer} is at fault and is no cause"));
        }
    }
}
