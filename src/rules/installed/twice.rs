//! Two records of one distribution with different versions in one folder: only one of them speaks of the files there.

use super::{Tool, in_words, layer_of, with_commands};
use crate::facts::Installed;
use crate::finding::{Finding, Fix, Severity, shell_line};
use crate::rules::{Ctx, Outcome, known};

pub(super) fn distribution_recorded_twice(ctx: &Ctx<'_>) -> Outcome {
    let all = known!(ctx.facts.python.distributions, "distributions");
    let mut groups: Vec<Vec<&Installed>> = Vec::new();
    for dist in all.iter().filter(|dist| !dist.is_conda_package()) {
        let same = |group: &&mut Vec<&Installed>| {
            group
                .first()
                .is_some_and(|first| first.name == dist.name && first.site == dist.site)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(dist),
            None => groups.push(vec![dist]),
        }
    }
    Outcome::found(groups.iter().filter_map(|group| twice(ctx, group)))
}

fn twice(ctx: &Ctx<'_>, group: &[&Installed]) -> Option<Finding> {
    let first = group.first()?;
    if group.iter().all(|dist| dist.version == first.version) {
        return None;
    }
    let right = in_place(ctx, group);
    let all: Vec<&str> = group.iter().map(|dist| dist.version.as_str()).collect();
    let all = all.join(" and ");
    let title = match right {
        Some((dist, _)) => format!(
            "{} is recorded twice, as {all}; what is imported is {}",
            first.name, dist.version
        ),
        None => format!("{} is recorded twice, as {all}", first.name),
    };
    let layer = layer_of(&first.name);
    let mut finding = Finding::new("distribution-recorded-twice", layer, Severity::Warning, title)
        .component(first.name.clone())
        .subject(format!("{} in {}", first.name, first.site))
        .detail("An installation that was interrupted, or one over a folder that another tool had filled, leaves the record of the version before. The files are those of one of them, yet installers and programs that ask for the version may read the other record, and then take a requirement for met, or not met.");
    for dist in group {
        finding = finding.evidence(
            "recorded",
            in_words(&dist.name, &dist.version),
            dist.metadata.clone(),
        );
    }
    let Some((right, why)) = right else {
        let fix = Fix::at(
            layer,
            format!(
                "uninstall {} until none is left, then install it again",
                first.name
            ),
        );
        return Some(finding.fix(fix.verify("gpudoctor")));
    };
    finding = finding.evidence("in place", in_words(&right.name, &right.version), why);
    let stale = group.iter().filter(|dist| dist.version != right.version);
    let mut commands: Vec<Option<String>> = stale
        .map(|dist| Some(shell_line(&["rm", "-r", &dist.metadata])))
        .collect();
    let mut summary = format!(
        "remove the record of the version that is not there; {} stays",
        in_words(&right.name, &right.version)
    );
    if let Some(command) = Tool::of(ctx, right).install_again(&right.name, &right.version) {
        summary = format!(
            "remove the record of the version that is not there, then install {} again",
            in_words(&right.name, &right.version)
        );
        commands.push(Some(command));
    }
    Some(
        finding
            .fix(with_commands(Fix::at(layer, summary), commands))
            .source("Python packaging: recording installed projects"),
    )
}

/// The version whose files lie there: by what the framework's own file says, else the one record whose files are all there
/// as recorded.
fn in_place<'a>(ctx: &Ctx<'_>, group: &[&'a Installed]) -> Option<(&'a Installed, String)> {
    let numbers = |version: &str| version.split('+').next().unwrap_or(version).to_owned();
    let own = ctx.frameworks().iter().find(|framework| {
        group.first().is_some_and(|first| {
            framework.site == first.site && framework.distribution.value() == Some(&first.name)
        }) && !framework.version.source().contains(".dist-info")
    });
    if let Some(framework) = own
        && let Some(version) = framework.version.value()
        && let Some(dist) = group
            .iter()
            .find(|dist| numbers(&dist.version) == numbers(version))
    {
        return Some((dist, format!("{}: {version}", framework.version.source())));
    }
    let is_whole = |dist: &&&Installed| {
        dist.files.is_present() && dist.missing.is_empty() && dist.changed.is_empty()
    };
    let mut whole = group.iter().filter(is_whole);
    let dist = whole.next().filter(|_| whole.next().is_none())?;
    Some((
        dist,
        format!("{}: its files are as recorded", dist.metadata),
    ))
}
