//! The pages of the findings that only `inspect` makes; those of the rules stand with the rules.

use crate::facts::Layer;
use crate::finding::Severity;

/// A finding of `inspect` and its page.
pub struct Page {
    /// Kebab-case, about the fault, never reused.
    pub id: &'static str,
    /// The layer at fault, in most cases.
    pub layer: Layer,
    /// The worst severity that it gives.
    pub severity: Severity,
    /// What it means, how it is detected, causes, fixes, sources.
    pub text: &'static str,
}

macro_rules! page {
    ($id:literal, $layer:ident, $severity:ident) => {
        Page {
            id: $id,
            layer: Layer::$layer,
            severity: Severity::$severity,
            text: include_str!(concat!("pages/", $id, ".md")),
        }
    };
}

/// All of them, sorted by layer in walking order, then by id.
pub const PAGES: &[Page] = &[
    page!("glibc-too-old", System, Error),
    page!("device-code-packed-too-new", Driver, Warning),
    page!("ptx-too-new-for-driver", Driver, Error),
    page!("file-damaged", Libraries, Error),
    page!("library-not-found", Libraries, Error),
    page!("symbol-version-missing", Libraries, Error),
    page!("device-code-compiled-at-start", Application, Note),
    page!("device-code-partial", Application, Note),
    page!("no-device-code-for-gpu", Application, Error),
];

/// The page of an id.
pub fn by_id(id: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_about_its_id_and_complete() {
        for page in PAGES {
            assert!(
                page.text.starts_with(&format!("# {}\n\n", page.id)),
                "{}",
                page.id
            );
            let headings: Vec<&str> = page
                .text
                .lines()
                .filter_map(|line| line.strip_prefix("## "))
                .collect();
            assert_eq!(
                headings,
                [
                    "What it means",
                    "How it is detected",
                    "Causes",
                    "Fixes",
                    "Sources"
                ],
                "{}",
                page.id
            );
            assert!(
                crate::rules::by_id(page.id).is_none(),
                "{} is a rule's",
                page.id
            );
        }
    }
}
