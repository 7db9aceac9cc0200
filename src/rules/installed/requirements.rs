//! What distributions require of each other, against what is installed.

use super::{Tool, in_words, layer_of, requirements, with_commands};
use crate::facts::{Installed, Layer};
use crate::finding::{Finding, Fix, Severity};
use crate::read::requirement::{Fit, Requirement};
use crate::rules::{Ctx, Outcome, known};
use crate::version::Version;

/// A requirement that what is installed does not meet.
struct Unmet<'a> {
    required: Requirement,
    installed: &'a Installed,
    severity: Severity,
    fit: Fit,
}

pub(super) fn requirement_not_met(ctx: &Ctx<'_>) -> Outcome {
    let all = known!(ctx.facts.python.distributions, "distributions");
    Outcome::found(seen(ctx, all).filter_map(|dist| {
        let mut unmet: Vec<Unmet<'_>> = requirements(ctx, dist, &[])
            .filter_map(|required| unmet(ctx, required))
            .collect();
        unmet.sort_by_key(|unmet| std::cmp::Reverse(unmet.severity));
        not_met(ctx, dist, &unmet)
    }))
}

/// The distributions that an interpreter sees: the first of each name.
fn seen<'a>(ctx: &'a Ctx<'_>, all: &'a [Installed]) -> impl Iterator<Item = &'a Installed> {
    all.iter().filter(|dist| {
        let first = ctx.facts.python.installed(&dist.name);
        first.is_some_and(|first| first.metadata == dist.metadata)
    })
}

fn unmet<'a>(ctx: &'a Ctx<'_>, required: Requirement) -> Option<Unmet<'a>> {
    let installed = ctx.facts.python.installed(&required.name)?;
    let fit = required
        .judge(&installed.version)
        .filter(|fit| *fit != Fit::Good)?;
    let exact = required.versions();
    let exact = exact.strip_prefix("==").and_then(Version::parse);
    let has = Version::parse(&installed.version)?;
    // NVIDIA's libraries keep what they had within a major version: a newer one than an exact pin asks for mostly runs.
    let newer_of_same_major = fit == Fit::Newer
        && layer_of(&installed.name) == Layer::Libraries
        && exact.is_some_and(|pinned| pinned.major() == has.major());
    Some(Unmet {
        severity: if newer_of_same_major {
            Severity::Note
        } else {
            Severity::Warning
        },
        required,
        installed,
        fit,
    })
}

fn not_met(ctx: &Ctx<'_>, dist: &Installed, unmet: &[Unmet<'_>]) -> Option<Finding> {
    let worst = unmet.first()?;
    let name = in_words(&dist.name, &dist.version);
    let has = in_words(&worst.installed.name, &worst.installed.version);
    let compared = match worst.fit {
        Fit::Older => "older",
        Fit::Newer | Fit::Good => "newer",
    };
    let versions = worst.required.versions();
    let more = match unmet.len() {
        1 => String::new(),
        2 => ", and one more is not what it requires".to_owned(),
        n => format!(", and {} more are not what it requires", n - 1),
    };
    let layer = layer_of(&worst.installed.name);
    let mut finding = Finding::new(
        "requirement-not-met",
        layer,
        worst.severity,
        format!("{has} is {compared} than {name} requires ({versions}){more}"),
    )
    .complaining(Layer::Framework)
    .component(worst.installed.name.clone())
    .subject(name.clone())
    .detail("It was built and tested against the versions that it requires. An installer that was told to ignore that, or that installed something else later, leaves others; what that breaks shows when the program calls it.");
    for unmet in unmet {
        finding = finding
            .evidence(
                format!("{name} requires"),
                format!("{}{}", unmet.required.name, unmet.required.versions()),
                format!("{}/METADATA", dist.metadata),
            )
            .evidence(
                unmet.installed.name.clone(),
                unmet.installed.version.clone(),
                unmet.installed.metadata.clone(),
            );
    }
    let commands = unmet
        .iter()
        .map(|unmet| {
            let versions = unmet.required.versions().replace(' ', "");
            let requirement = format!("{}{versions}", unmet.required.name);
            // A build of a framework is told by the index that it comes from.
            let known = layer_of(&unmet.required.name) == Layer::Libraries;
            Tool::of(ctx, unmet.installed)
                .install(&requirement, false)
                .filter(|_| known)
        })
        .collect();
    let names: Vec<String> = unmet
        .iter()
        .map(|unmet| format!("{}{}", unmet.required.name, unmet.required.versions()))
        .collect();
    Some(
        finding
            .fix(with_commands(
                Fix::at(
                    layer,
                    format!("install what it requires: {}", names.join("; ")),
                ),
                commands,
            ))
            .source("Python packaging: dependency specifiers (Requires-Dist)"),
    )
}

/// NVIDIA's wheels alone: without them a framework finds its libraries elsewhere or not at all.
pub(super) fn requirement_absent(ctx: &Ctx<'_>) -> Outcome {
    let all = known!(ctx.facts.python.distributions, "distributions");
    // Conda's packages bring the same libraries under other names.
    let by_conda = |dist: &Installed| dist.installer.value().is_some_and(|by| by == "conda");
    if all.iter().any(by_conda) {
        return Outcome::Clean;
    }
    let whole = seen(ctx, all).filter(|dist| dist.missing.is_empty());
    Outcome::found(whole.filter_map(|dist| {
        let absent: Vec<Requirement> = requirements(ctx, dist, &[])
            .filter(|required| required.name.starts_with("nvidia-"))
            .filter(|required| ctx.facts.python.installed(&required.name).is_none())
            .collect();
        absent_of(ctx, dist, &absent)
    }))
}

fn absent_of(ctx: &Ctx<'_>, dist: &Installed, absent: &[Requirement]) -> Option<Finding> {
    let first = absent.first()?;
    let name = in_words(&dist.name, &dist.version);
    let more = match absent.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let mut finding = Finding::new(
        "requirement-absent",
        Layer::Libraries,
        Severity::Warning,
        format!("{name} requires {}{}{more}, and the environment does not have it", first.name, first.versions()),
    )
    .complaining(Layer::Framework)
    .component(first.name.clone())
    .subject(name)
    .detail("It looks for the libraries of these distributions beside itself first. Where they are absent it takes what the loader finds elsewhere, of whatever version that is, or does not start.");
    for required in absent {
        finding = finding.evidence(
            "required and not installed",
            format!("{}{}", required.name, required.versions()),
            format!("{}/METADATA", dist.metadata),
        );
    }
    let tool = Tool::of(ctx, dist);
    let commands = absent
        .iter()
        .map(|required| {
            let versions = required.versions().replace(' ', "");
            tool.install(&format!("{}{versions}", required.name), false)
        })
        .collect();
    Some(
        finding
            .fix(with_commands(
                Fix::at(Layer::Libraries, "install what it requires"),
                commands,
            ))
            .source("Python packaging: dependency specifiers (Requires-Dist)"),
    )
}
