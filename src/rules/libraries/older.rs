//! A cuDNN that is older than the one a framework was built with. Frameworks ask the library for its version when they
//! first use it, and take one of the same major and the same or a later minor version.

use super::{by, got, install, out_of_the_way, place, with_command};
use crate::facts::{Installed, Layer, LibraryFile, Link};
use crate::finding::{Finding, Fix, Severity};
use crate::read::requirement::Requirement;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::file_name;
use crate::version::Version;

/// What a framework was built with, as it is known.
struct Built {
    cudnn: Version,
    /// Where that is written.
    source: String,
    /// The requirement that brings it, where there is one.
    requirement: Option<(String, String)>,
}

pub(super) fn cudnn_older_than_build(ctx: &Ctx<'_>) -> Outcome {
    let links = known!(ctx.facts.libraries.links, "who gets which library");
    let of_frameworks = links
        .iter()
        .filter(|link| file_name(&link.soname).starts_with("libcudnn.so."));
    let mut findings: Vec<Finding> = Vec::new();
    for link in of_frameworks {
        let Some(finding) = older(ctx, links, link) else {
            continue;
        };
        if !findings.iter().any(|known| known.key == finding.key) {
            findings.push(finding);
        }
    }
    Outcome::found(findings)
}

fn older(ctx: &Ctx<'_>, links: &[Link], link: &Link) -> Option<Finding> {
    let name = link.consumer.split(' ').next()?;
    let mut checks = ctx.matrix.cudnn_checks().iter();
    let check = checks.find(|row| row.framework == name)?;
    let (says, source) = (&check.says, &check.source);
    // Whoever sets it knows.
    let skip = check.skip.as_deref().and_then(|variable| ctx.env(variable));
    if skip.is_some_and(|value| !value.is_empty() && value != "0") {
        return None;
    }
    let built = built_with(ctx, name)?;
    // The file that opens the parts answers with the version of the part that it got.
    let part = links.iter().find(|part| {
        Some(&part.user) == link.got.as_ref()
            && file_name(&part.soname).starts_with("libcudnn_graph.so.")
    });
    let copy: &LibraryFile = part
        .and_then(|part| got(ctx, part))
        .or_else(|| got(ctx, link))?;
    let has = copy.version.value()?;
    if has.major() != built.cudnn.major() || has.minor() >= built.cudnn.minor() {
        return None;
    }
    let title = format!(
        "cuDNN {has} in {} is older than the one that {} was built with ({})",
        place(part.unwrap_or(link)),
        link.consumer,
        built.cudnn
    );
    let mut finding = Finding::new("cudnn-older-than-build", Layer::Libraries, Severity::Error, title)
        .complaining(Layer::Framework)
        .component(file_name(&link.soname))
        .subject(format!("{} with {}", link.consumer, copy.path))
        .detail(format!("It asks the library for its version before the first use, and takes the same major and the same or a later minor version: `{says}`."))
        .evidence("cuDNN in use", has.to_string(), format!("{}, by {}", copy.path, by(link)))
        .evidence("cuDNN that it was built with", built.cudnn.to_string(), built.source.clone());
    if let Some(beside) = &link.beside {
        finding = finding.evidence(
            "copy that the environment brought",
            super::called(ctx, beside),
            beside.clone(),
        );
    }
    if link.by == "LD_LIBRARY_PATH"
        && let Some(fix) = out_of_the_way(ctx, link)
    {
        finding = finding.fix(fix.verify("gpudoctor"));
        // Then it gets its own.
        if link.beside.is_some() {
            return Some(finding.source(source.clone()));
        }
    }
    let fix = match &built.requirement {
        Some((wheel, requirement)) => {
            let fix = Fix::at(Layer::Libraries, format!("install {requirement}"));
            let by_wheel = ctx.facts.python.installed(wheel).is_some();
            with_command(fix, install(ctx, wheel, requirement).filter(|_| by_wheel))
        }
        None => Fix::at(
            Layer::Libraries,
            format!(
                "install cuDNN {} or newer of the same major version",
                built.cudnn.major_minor()
            ),
        ),
    };
    Some(finding.fix(fix.verify("gpudoctor")).source(source.clone()))
}

/// The cuDNN that a framework was built with: the version that its wheel pins or asks for at least, else that of its
/// release.
fn built_with(ctx: &Ctx<'_>, name: &str) -> Option<Built> {
    let python = &ctx.facts.python;
    let asks = |dist: &Installed| -> Option<Built> {
        let required = dist
            .requires
            .iter()
            .filter_map(|line| Requirement::parse(line))
            .find(|required| required.name.starts_with("nvidia-cudnn-cu"))?;
        let versions = required.versions();
        let least = versions.split(',').find_map(|part| {
            let part = part.trim();
            part.strip_prefix("==").or_else(|| part.strip_prefix(">="))
        })?;
        Some(Built {
            cudnn: Version::parse(least.trim())?,
            source: format!("{}/METADATA: {}{versions}", dist.metadata, required.name),
            requirement: Some((
                required.name.clone(),
                format!("{}{}", required.name, versions.replace(' ', "")),
            )),
        })
    };
    match name {
        "torch" => asks(python.installed("torch")?),
        "jax" => ["jax-cuda12-plugin", "jax-cuda13-plugin"]
            .iter()
            .find_map(|plugin| asks(python.installed(plugin)?)),
        _ => {
            let dist = python.installed("tensorflow")?;
            asks(dist).or_else(|| {
                let version = Version::parse(&dist.version)?;
                let row = ctx.matrix.tensorflow_releases().iter().find(|row| {
                    row.version.major_minor() == version.major_minor()
                        && row.confidence == crate::matrix::Confidence::Verified
                })?;
                Some(Built {
                    cudnn: row.cudnn.clone(),
                    source: row.source.clone(),
                    requirement: None,
                })
            })
        }
    }
}
