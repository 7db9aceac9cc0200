//! What distributions require of each other, against what is installed.

use std::collections::BTreeMap;

use super::{Tool, in_words, layer_of, requirements, with_commands};
use crate::facts::{Installed, Layer, Link};
use crate::finding::{Finding, Fix, Severity};
use crate::read::requirement::{Fit, Requirement};
use crate::rules::BUILT_ON_TORCH;
use crate::rules::libraries::{
    layer_of as layer_of_library, missing_links, pythonpath_of, without_pythonpath,
};
use crate::rules::{Ctx, Outcome, known, unread};
use crate::sysroot::file_name;
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
    let asked = Asked::of(ctx);
    Outcome::found(seen(ctx, all).filter_map(|dist| {
        let extras = asked.extras_of(ctx, dist);
        let mut unmet: Vec<Unmet<'_>> = requirements(ctx, dist, &extras)
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
    let mut finding = finding.source("Python packaging: dependency specifiers (Requires-Dist)");
    let mut shadows: Vec<Fix> = Vec::new();
    let (ours, elsewhere): (Vec<&Unmet<'_>>, Vec<&Unmet<'_>>) = unmet
        .iter()
        .partition(|unmet| pythonpath_of(ctx, &unmet.installed.site).is_none());
    for unmet in &elsewhere {
        let fix = without_pythonpath(ctx, &unmet.installed.site);
        let fix = fix.map(|fix| fix.verify("gpudoctor"));
        shadows.extend(fix.filter(|fix| !shadows.contains(fix)));
    }
    for fix in shadows {
        finding = finding.fix(fix);
    }
    if ours.is_empty() {
        return Some(finding);
    }
    let unmet = ours;
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
    // Where that very library lacks what something needs of it, this says why: one cause.
    let links = ctx.facts.libraries.links.items().iter();
    let lacking = links.filter(|link| !link.lacking.is_empty()).find(|link| {
        let owner = link
            .got
            .as_deref()
            .and_then(|got| ctx.facts.libraries.at(got));
        owner.and_then(|copy| copy.owner.value()) == Some(&has)
    });
    if unmet.len() == 1 {
        finding.caused_by = lacking
            .and_then(|link| link.got.as_ref())
            .map(|path| format!("library-lacks-symbol:{path}"));
    }
    Some(finding.fix(with_commands(
        Fix::at(
            layer,
            format!("install what it requires: {}", names.join("; ")),
        ),
        commands,
    )))
}

/// The requirement (`nvidia-cuda-runtime-cu12==12.8.90`) of a distribution of the environment that the installed version of
/// this one does not meet.
pub(in crate::rules) fn unmet_of(ctx: &Ctx<'_>, name: &str) -> Option<String> {
    let all = ctx.facts.python.distributions.items();
    seen(ctx, all).find_map(|dist| {
        let asked = requirements(ctx, dist, &[]).find(|r| r.name == name)?;
        let unmet = unmet(ctx, asked)?;
        let versions = unmet.required.versions().replace(' ', "");
        Some(format!("{name}{versions}"))
    })
}

/// What a distribution requires and the environment does not have.
pub(in crate::rules) struct Absent<'a> {
    /// The distribution: of several that require the same, a framework, else the first.
    dist: &'a Installed,
    /// What is not there.
    required: Vec<Requirement>,
    /// Others that require some of it too.
    also: Vec<&'a Installed>,
}

impl Absent<'_> {
    /// Whether these packages would bring a library that something misses, or what misses it is not whole without them.
    pub(in crate::rules) fn explains(&self, ctx: &Ctx<'_>, link: &Link) -> bool {
        let brought = ctx
            .matrix
            .wheels_with(file_name(&link.soname))
            .any(|row| self.required.iter().any(|r| r.name == row.wheel));
        let without_torch = self.required.iter().any(|r| r.name == "torch")
            && link.consumer.split(' ').next() == Some(self.dist.name.as_str());
        brought || without_torch
    }

    /// The key of the finding about it.
    pub(in crate::rules) fn key(&self) -> String {
        let name = in_words(&self.dist.name, &self.dist.version);
        format!("requirement-absent:{name}")
    }
}

/// All of them. NVIDIA's wheels, without which a framework finds its libraries elsewhere or not at all, and torch, without
/// which nothing that is built on it is loaded.
pub(in crate::rules) fn absent<'a>(ctx: &'a Ctx<'_>) -> Vec<Absent<'a>> {
    let all = ctx.facts.python.distributions.items();
    // Conda's packages bring the same libraries under other names.
    let by_conda = |dist: &Installed| dist.installer.value().is_some_and(|by| by == "conda");
    if all.iter().any(by_conda) {
        return Vec::new();
    }
    let frameworks = ctx.facts.consumer.frameworks.items();
    let mut whole: Vec<&Installed> = seen(ctx, all)
        .filter(|dist| dist.missing.is_empty())
        .collect();
    // A framework is what the user knows; what NVIDIA's wheels require of each other follows from it.
    whole.sort_by_key(|dist| {
        let place = frameworks.iter().position(|f| f.name == dist.name);
        place.unwrap_or(usize::MAX)
    });
    let asked = Asked::of(ctx);
    let mut found: Vec<Absent<'_>> = Vec::new();
    for dist in whole {
        let built_on_torch = BUILT_ON_TORCH.contains(&dist.name.as_str());
        let is_meant = |required: &Requirement| {
            required.name.starts_with("nvidia-")
                || required.name == "torch" && built_on_torch && ctx.framework("torch").is_none()
        };
        let extras = asked.extras_of(ctx, dist);
        let absent: Vec<Requirement> = requirements(ctx, dist, &extras)
            .filter(is_meant)
            .filter(|required| ctx.facts.python.installed(&required.name).is_none())
            .collect();
        let (told, new): (Vec<_>, Vec<_>) = absent.into_iter().partition(|required| {
            let same = |r: &Requirement| r.name == required.name;
            found.iter().any(|other| other.required.iter().any(same))
        });
        for required in told {
            let same = |r: &Requirement| r.name == required.name;
            let other = found.iter_mut().find(|o| o.required.iter().any(same));
            if let Some(other) = other.filter(|o| o.also.iter().all(|a| a.name != dist.name)) {
                other.also.push(dist);
            }
        }
        if !new.is_empty() {
            found.push(Absent {
                dist,
                required: new,
                also: Vec::new(),
            });
        }
    }
    found
}

/// What the distributions of an environment ask for of each other, extras of their own left out.
struct Asked {
    /// By what is required: who requires it. NVIDIA's wheels are left out as askers: what they require of each other comes
    /// along with any of them.
    by: BTreeMap<String, Vec<String>>,
    /// By what is required: the extras that are asked for with it.
    extras: BTreeMap<String, Vec<String>>,
}

impl Asked {
    fn of(ctx: &Ctx<'_>) -> Self {
        let mut asked = Self {
            by: BTreeMap::new(),
            extras: BTreeMap::new(),
        };
        for dist in ctx.facts.python.distributions.items() {
            for required in requirements(ctx, dist, &[]) {
                let extras = asked.extras.entry(required.name.clone()).or_default();
                extras.extend(required.extras);
                if !dist.name.starts_with("nvidia-") {
                    asked
                        .by
                        .entry(required.name)
                        .or_default()
                        .push(dist.name.clone());
                }
            }
        }
        asked
    }

    /// The extras that a distribution was evidently installed with. Nobody records them: (1) those that another
    /// distribution asks for, (2) those of which something is installed that nothing else requires.
    fn extras_of(&self, ctx: &Ctx<'_>, dist: &Installed) -> Vec<String> {
        let mut wanted = self.extras.get(&dist.name).cloned().unwrap_or_default();
        let mut named: Vec<String> = dist.requires.iter().filter_map(|l| extra_of(l)).collect();
        named.sort();
        named.dedup();
        let is_sign = |required: &Requirement| {
            required.name.starts_with("nvidia-")
                && ctx.facts.python.installed(&required.name).is_some()
                && !self.by.contains_key(&required.name)
        };
        for extra in named {
            let with = [extra];
            if requirements(ctx, dist, &with).any(|required| is_sign(&required)) {
                wanted.extend(with);
            }
        }
        wanted
    }
}

/// The extra in the marker of a requirement: `with-cuda` of `...; extra == "with-cuda"`.
fn extra_of(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(';')?.1.split_once("extra")?;
    let rest = rest.trim_start().strip_prefix("==")?.trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (extra, _) = rest.get(1..)?.split_once(quote)?;
    Some(crate::read::pydist::normalised(extra))
}

pub(super) fn requirement_absent(ctx: &Ctx<'_>) -> Outcome {
    let _ = known!(ctx.facts.python.distributions, "distributions");
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let links = missing_links(ctx);
    Outcome::found(
        absent(ctx)
            .iter()
            .filter_map(|absent| absent_of(ctx, absent, &links)),
    )
}

fn absent_of(ctx: &Ctx<'_>, absent: &Absent<'_>, links: &[Link]) -> Option<Finding> {
    let (dist, required) = (absent.dist, &absent.required);
    let first = required.first()?;
    let name = in_words(&dist.name, &dist.version);
    let more = match required.len() {
        1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    let missed: Vec<&Link> = links
        .iter()
        .filter(|link| absent.explains(ctx, link))
        .collect();
    let torch = required.iter().any(|r| r.name == "torch");
    let (layer, severity) = match missed.first() {
        _ if torch => (Layer::Framework, Severity::Error),
        Some(link) => (layer_of_library(&link.soname), Severity::Error),
        None => (Layer::Libraries, Severity::Warning),
    };
    let which = if required.len() == 1 { "it" } else { "them" };
    let mut finding = Finding::new(
        "requirement-absent",
        layer,
        severity,
        format!("{name} requires {}{}{more}, and the environment does not have {which}", first.name, first.versions()),
    )
    .complaining(Layer::Framework)
    .component(first.name.clone())
    .subject(name)
    .detail(if torch {
        "What is built on torch is loaded into a process that has torch, and not at all without."
    } else {
        "It looks for the libraries of these distributions beside itself first. Where they are absent it takes what the loader finds elsewhere, of whatever version that is, or does not start."
    });
    for required in required {
        finding = finding.evidence(
            "required and not installed",
            format!("{}{}", required.name, required.versions()),
            format!("{}/METADATA", dist.metadata),
        );
    }
    for other in &absent.also {
        finding = finding.evidence(
            "required as well by",
            in_words(&other.name, &other.version),
            format!("{}/METADATA", other.metadata),
        );
    }
    let mut sonames: Vec<&str> = missed.iter().map(|link| file_name(&link.soname)).collect();
    sonames.sort_unstable();
    sonames.dedup();
    if !sonames.is_empty() {
        finding = finding.evidence(
            "not found, and brought by these",
            sonames.join(" "),
            "the loader's rules",
        );
    }
    let tool = Tool::of(ctx, dist);
    let all: Vec<String> = required
        .iter()
        .map(|required| format!("{}{}", required.name, required.versions().replace(' ', "")))
        .collect();
    Some(
        finding
            .fix(with_commands(
                Fix::at(layer, "install what it requires"),
                vec![tool.install_all(&all, false)],
            ))
            .source("Python packaging: dependency specifiers (Requires-Dist)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extras_of_markers() {
        for (line, extra) in [
            (
                "nvidia-cublas-cu12>=12.1; sys_platform == \"linux\" and extra == \"with-cuda\"",
                Some("with-cuda"),
            ),
            ("a; extra == 'and_cuda'", Some("and-cuda")),
            ("extra==1", None),
            ("a; python_version > '3'", None),
            ("a; extra == ", None),
        ] {
            assert_eq!(extra_of(line).as_deref(), extra, "{line}");
        }
    }
}
