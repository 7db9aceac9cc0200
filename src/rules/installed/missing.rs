//! Distributions whose libraries are not there.

use super::{Tool, in_words, layer_of, needed, with_commands};
use crate::facts::{FileKind, Installed, Layer};
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
    // What went together (the folder `nvidia`, an interrupted installation) is one fault, and one command mends it.
    let mut groups: Vec<Vec<&Installed>> = Vec::new();
    for dist in broken {
        let is_together = |group: &&mut Vec<&Installed>| {
            group.first().is_some_and(|first| {
                first.site == dist.site
                    && first.installer.value() == dist.installer.value()
                    && layer_of(&first.name) == layer_of(&dist.name)
                    && !dist.version.contains('+')
                    && !first.version.contains('+')
            })
        };
        match groups.iter_mut().find(is_together) {
            Some(group) => group.push(dist),
            None => groups.push(vec![dist]),
        }
    }
    Outcome::found(groups.iter().filter_map(|group| match group.as_slice() {
        [one] => Some(finding(ctx, one, &needed)),
        several => together(ctx, several, &needed),
    }))
}

/// One finding of several distributions.
fn together(ctx: &Ctx<'_>, group: &[&Installed], needed: &[(String, String)]) -> Option<Finding> {
    let mut alone: Vec<(&Installed, Finding)> = group
        .iter()
        .map(|dist| (*dist, finding(ctx, dist, needed)))
        .collect();
    alone.sort_by_key(|(_, finding)| std::cmp::Reverse(finding.severity));
    let (first, worst) = alone.first()?;
    let user = needed.iter().find(|(name, _)| *name == first.name);
    let user = user.filter(|_| worst.severity == Severity::Error);
    let user = user.map_or_else(String::new, |(_, by)| format!(", which {by} needs,"));
    let others = match alone.len() - 1 {
        1 => "one more distribution".to_owned(),
        more => format!("{more} more distributions"),
    };
    let files: usize = group.iter().map(|dist| dist.missing.len()).sum();
    let title = format!(
        "{} and {others}{user} are recorded as installed, but {files} of their libraries are not there",
        in_words(&first.name, &first.version)
    );
    let layer = layer_of(&first.name);
    let mut told = Finding::new("distribution-files-missing", layer, worst.severity, title)
        .complaining(Layer::Framework)
        .component(first.name.clone())
        .detail(worst.detail.clone());
    for (dist, _) in &alone {
        told = told.subject(in_words(&dist.name, &dist.version)).evidence(
            in_words(&dist.name, &dist.version),
            format!(
                "{} of {} recorded libraries not there: {}",
                dist.missing.len(),
                dist.files.items().len().max(dist.missing.len()),
                dist.missing.first().map_or("", |path| file_name(path))
            ),
            dist.missing
                .first()
                .map_or(dist.metadata.clone(), Clone::clone),
        );
    }
    let what: Vec<String> = alone
        .iter()
        .map(|(dist, _)| format!("{}=={}", dist.name, dist.version))
        .collect();
    let fix = Fix::at(
        layer,
        "install them again in one go, whatever their records say",
    );
    let command = Tool::of(ctx, first).install_all(&what, true);
    Some(
        told.fix(with_commands(fix, vec![command]))
            .source("Python packaging: recording installed projects (RECORD)"),
    )
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
    let instead: Vec<_> = dist
        .missing
        .iter()
        .map(|path| taken_instead(ctx, path))
        .collect();
    // Without a program of its own (Triton's ptxas) a part of what it does fails, and it is loaded all the same.
    let is_loaded = dist
        .missing
        .iter()
        .all(|path| !file_name(path).contains(".so"));
    let severity = if (user.is_some() || is_framework) && instead.contains(&None) && !is_loaded {
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
        .evidence("recorded", format!("{recorded} shared {}", if recorded == 1 { "library" } else { "libraries" }), dist.metadata.clone());
    for (path, instead) in dist.missing.iter().zip(&instead).take(NAMED) {
        finding = finding.evidence(file_name(path), "not there", path.clone());
        if let Some(instead) = instead {
            finding = finding.evidence("taken instead", file_name(instead), *instead);
        }
    }
    if let Some(user) = user {
        finding = finding.evidence("needed by", user, "Requires-Dist of its METADATA");
    }
    // A link that leads nowhere is told as a runtime that is damaged.
    let dead = ctx.consumer_runtimes().into_iter().find(|copy| {
        copy.kind == FileKind::DanglingLink && dist.missing.iter().all(|path| *path == copy.path)
    });
    finding.caused_by = dead.map(|copy| format!("runtime-library-damaged:{}", copy.path));
    let tool = Tool::of(ctx, dist);
    let command = tool.install_again(&dist.name, &dist.version);
    let how = if dist.version.contains('+') && command.is_none() {
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
            vec![command],
        ))
        .source("Python packaging: recording installed projects (RECORD)")
}

/// The copy that whoever asks for a missing library gets in its place.
fn taken_instead<'a>(ctx: &'a Ctx<'_>, path: &str) -> Option<&'a str> {
    let links = ctx.facts.libraries.links.items().iter();
    let mut asked = links
        .filter(|link| link.soname == file_name(path))
        .peekable();
    asked.peek()?;
    let got: Option<Vec<&str>> = asked.map(|link| link.got.as_deref()).collect();
    got?.first().copied()
}

fn are(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}
