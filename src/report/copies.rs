//! What `-v` says below a layer that is sound: every copy of its libraries that is known, with its version and who gets it
//! by what rule.

use crate::facts::{ANY_PROGRAM, Facts, FileKind, Layer, LibraryCopy, ReachedBy, Reading};
use crate::sysroot::file_name;
use crate::version::Version;

/// The lines of a layer, in the order in which the copies were found.
pub(super) fn lines(facts: &Facts, layer: Layer) -> Vec<String> {
    match layer {
        Layer::Driver => {
            let driver = &facts.driver;
            let all = driver.libcuda.items().iter();
            all.chain(driver.libnvidia_ml.items())
                .map(of_driver)
                .collect()
        }
        Layer::Runtime => {
            let all = facts.runtime.cudart.items().iter();
            all.map(|copy| {
                let reached: Vec<String> =
                    copy.reached_by.iter().map(ReachedBy::describe).collect();
                let by = if reached.is_empty() {
                    "reached by nothing".to_owned()
                } else {
                    format!("by {}", reached.join(", "))
                };
                format!("{}: {by}", named(&copy.path, &copy.version))
            })
            .collect()
        }
        Layer::Libraries => libraries(facts),
        _ => Vec::new(),
    }
}

fn named(path: &str, version: &Reading<Version>) -> String {
    match version {
        Reading::Present { value, .. } => format!("{} {value}, {path}", file_name(path)),
        _ => format!("{} of unknown version, {path}", file_name(path)),
    }
}

fn of_driver(copy: &LibraryCopy) -> String {
    let what = match (copy.chosen, copy.kind.is_usable()) {
        (true, true) => "in use",
        (true, false) => "first, and no library",
        (false, _) => "not in use",
    };
    format!("{}: {what}", named(&copy.path, &copy.version))
}

/// Who gets a copy: the first link of each consumer that leads to it.
fn libraries(facts: &Facts) -> Vec<String> {
    let links = facts.libraries.links.items();
    let line = |copy: &crate::facts::LibraryFile| {
        let mut users: Vec<String> = Vec::new();
        for link in links {
            if link.got.as_ref() != Some(&copy.path) {
                continue;
            }
            let user = if link.consumer == ANY_PROGRAM || link.user.is_empty() {
                link.consumer.clone()
            } else {
                format!("{} of {}", file_name(&link.user), link.consumer)
            };
            let text = format!("{user} by {}", link.by);
            // One line a rule is enough: a library of a framework needs most of them.
            if !users
                .iter()
                .any(|known| known.ends_with(&format!(" by {}", link.by)))
            {
                users.push(text);
            }
        }
        let used = match (users.is_empty(), &copy.kind) {
            (true, FileKind::Library) => "nothing known gets it".to_owned(),
            (true, _) => "no library".to_owned(),
            (false, _) => users.join("; "),
        };
        format!("{}: {used}", named(&copy.path, &copy.version))
    };
    facts.libraries.copies.items().iter().map(line).collect()
}
