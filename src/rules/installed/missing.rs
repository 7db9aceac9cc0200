//! Distributions whose libraries are not there.

use super::{Tool, in_words, layer_of, needed, with_commands};
use crate::facts::{Installed, Layer};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::file_name;

/// How many missing files are named.
const NAMED: usize = 3;

pub(super) fn distribution_files_missing(ctx: &Ctx<'_>) -> Outcome {
    let all = known!(ctx.facts.python.distributions, "distributions");
    let needed = needed(ctx);
    let broken = all.iter().filter(|dist| !dist.missing.is_empty());
    let broken = broken.filter(|dist| !is_left_over(dist, all));
    Outcome::found(broken.map(|dist| finding(ctx, dist, &needed)))
}

/// Whether this is the record of an earlier version that an upgrade left behind: another one of the same name is whole.
fn is_left_over(dist: &Installed, all: &[Installed]) -> bool {
    all.iter().any(|other| {
        other.name == dist.name
            && other.site == dist.site
            && other.metadata != dist.metadata
            && other.files.is_present()
            && other.missing.is_empty()
    })
}

fn finding(ctx: &Ctx<'_>, dist: &Installed, needed: &[(String, String)]) -> Finding {
    let subject = in_words(&dist.name, &dist.version);
    let frameworks = ctx.facts.consumer.frameworks.items();
    // The first of a name is what the interpreter sees, and what a framework's requirements mean.
    let is_seen = ctx
        .facts
        .python
        .installed(&dist.name)
        .is_some_and(|seen| seen.metadata == dist.metadata);
    let user = needed.iter().find(|(name, _)| *name == dist.name);
    let user = user.map(|(_, by)| by.clone()).filter(|_| is_seen);
    let is_framework = is_seen && frameworks.iter().any(|f| f.name == dist.name);
    let severity = if user.is_some() || is_framework {
        Severity::Error
    } else {
        Severity::Warning
    };
    let count = dist.missing.len();
    let names: Vec<&str> = dist
        .missing
        .iter()
        .take(NAMED)
        .map(|p| file_name(p))
        .collect();
    let rest = count.saturating_sub(names.len());
    let listed = match rest {
        0 => names.join(", "),
        rest => format!("{} and {rest} more", names.join(", ")),
    };
    let recorded = dist.files.items().len().max(count);
    let title = match &user {
        Some(user) => format!(
            "{subject}, which {user} needs, is recorded as installed, but {listed} {} not there",
            are(count)
        ),
        None => format!(
            "{subject} is recorded as installed, but {listed} {} not there",
            are(count)
        ),
    };
    let mut finding = Finding::new("distribution-files-missing", layer_of(&dist.name), severity, title)
        .complaining(Layer::Framework)
        .component(dist.name.clone())
        .subject(subject.clone())
        .detail("The record says what was installed; an installation that was interrupted, a second `pip install --target` into the same folder, a full disk or a hand that tidied up leaves the record without the files. Installers look at the record alone and answer that the requirement is satisfied.")
        .evidence("recorded", format!("{recorded} shared libraries"), dist.metadata.clone());
    for path in dist.missing.iter().take(NAMED) {
        finding = finding.evidence(file_name(path), "not there", path.clone());
    }
    if let Some(user) = user {
        finding = finding.evidence("needed by", user, "Requires-Dist of its METADATA");
    }
    let tool = Tool::of(ctx, dist);
    let how = if dist.version.contains('+') {
        ", from the index that it came from"
    } else {
        ""
    };
    finding
        .fix(with_commands(
            Fix::at(
                layer_of(&dist.name),
                format!("install {subject} again, whatever its record says{how}"),
            ),
            vec![tool.install_again(&dist.name, &dist.version)],
        ))
        .source("Python packaging: recording installed projects (RECORD)")
}

fn are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}
