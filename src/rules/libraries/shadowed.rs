//! `LD_LIBRARY_PATH` puts another copy before the one that the environment brought.

use super::{called, got, out_of_the_way, reached};
use crate::facts::{Layer, LibraryFile, Link};
use crate::finding::{Finding, Severity};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::{file_name, parent};

/// How many libraries a title names.
const NAMED: usize = 2;

pub(super) fn library_shadowed(ctx: &Ctx<'_>) -> Outcome {
    let links = known!(ctx.facts.libraries.links, "who gets which library");
    let mut folders: Vec<(&str, Vec<Shadow<'_>>)> = Vec::new();
    for link in links {
        let Some(shadow) = shadow(ctx, link) else {
            continue;
        };
        let folder = parent(&shadow.copy.path);
        match folders.iter_mut().find(|(known, _)| *known == folder) {
            Some((_, all)) => {
                if !all.iter().any(|s| s.copy.path == shadow.copy.path) {
                    all.push(shadow);
                }
            }
            None => folders.push((folder, vec![shadow])),
        }
    }
    Outcome::found(
        folders
            .iter()
            .filter_map(|(folder, shadows)| finding(ctx, folder, shadows)),
    )
}

struct Shadow<'a> {
    link: &'a Link,
    copy: &'a LibraryFile,
    own: &'a LibraryFile,
    older: bool,
}

/// A copy by `LD_LIBRARY_PATH` that is of another version than the one in the environment. Of the same one it does no harm.
fn shadow<'a>(ctx: &'a Ctx<'_>, link: &'a Link) -> Option<Shadow<'a>> {
    if link.by != "LD_LIBRARY_PATH" {
        return None;
    }
    let copy = got(ctx, link)?;
    let own = ctx.facts.libraries.at(link.beside.as_deref()?)?;
    let (version, brought) = (copy.version.value()?, own.version.value()?);
    let len = version.len().min(brought.len());
    let order = (0..len)
        .map(|index| version.part(index).cmp(&brought.part(index)))
        .find(|order| order.is_ne())?;
    Some(Shadow {
        link,
        copy,
        own,
        older: order.is_lt(),
    })
}

fn finding(ctx: &Ctx<'_>, folder: &str, shadows: &[Shadow<'_>]) -> Option<Finding> {
    let older = shadows.iter().any(|s| s.older);
    let first = shadows.iter().find(|s| s.older == older)?;
    let severity = if older {
        Severity::Warning
    } else {
        Severity::Note
    };
    let mut names: Vec<String> = shadows.iter().map(|s| called(ctx, &s.copy.path)).collect();
    names.dedup();
    // Enough to know what it is about; the evidence has all of them.
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let mut finding = Finding::new(
        "library-shadowed",
        Layer::Libraries,
        severity,
        format!(
            "{} in LD_LIBRARY_PATH comes before what {} brought: {} instead of {}",
            folder,
            first.link.consumer,
            in_words(&names),
            first
                .own
                .version
                .value()
                .map_or_else(String::new, ToString::to_string),
        ),
    )
    .complaining(Layer::Framework)
    .component(file_name(&first.copy.path))
    .subject(folder)
    .detail("Libraries with RUNPATH, or without any search path of their own, get what LD_LIBRARY_PATH has first. Nothing that is needed of these copies is missing, but they are not the versions that the environment was put together with.");
    for shadow in shadows {
        finding = finding
            .evidence(
                format!("{} in use", file_name(&shadow.copy.path)),
                called(ctx, &shadow.copy.path),
                format!("{} ({})", shadow.copy.path, reached(shadow.copy)),
            )
            .evidence(
                "brought by the environment",
                called(ctx, &shadow.own.path),
                shadow.own.path.clone(),
            );
    }
    if let Some(fix) = out_of_the_way(ctx, first.link) {
        finding = finding.fix(fix.verify("gpudoctor"));
    }
    Some(finding.source("ld.so(8): LD_LIBRARY_PATH is searched before RUNPATH"))
}
