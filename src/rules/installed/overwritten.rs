//! Two distributions that brought the same files: one lies there, the other is there by name alone.

use super::{Tool, in_words, needed, with_commands};
use crate::facts::{Installed, Layer, Owner, SharedFile};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::file_name;
use crate::version::Version;

pub(super) fn distribution_overwritten(ctx: &Ctx<'_>) -> Outcome {
    let shared = known!(ctx.facts.python.shared, "files of two distributions");
    let needed = needed(ctx);
    let mut groups: Vec<Vec<&SharedFile>> = Vec::new();
    for file in shared.iter().filter(|file| !is_one_file(file)) {
        let same = |group: &&mut Vec<&SharedFile>| {
            group.first().is_some_and(|first| {
                let records = |f: &SharedFile| -> Vec<String> {
                    f.owners.iter().map(|o| o.metadata.clone()).collect()
                };
                records(first) == records(file)
            })
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(file),
            None => groups.push(vec![file]),
        }
    }
    Outcome::found(
        groups
            .iter()
            .filter_map(|files| finding(ctx, files, &needed)),
    )
}

/// Whether all recorded the very same file: then it matters not whose it is.
fn is_one_file(file: &SharedFile) -> bool {
    let mut recorded = file
        .owners
        .iter()
        .map(|owner| Some((owner.recorded_digest.as_deref()?, owner.recorded_bytes?)));
    match recorded.next() {
        Some(Some(first)) => recorded.all(|other| other == Some(first)),
        _ => false,
    }
}

/// Whether a distribution is the build of a framework for GPUs, where one for the processor lies beside it: by its name,
/// which for some frameworks says `-gpu` and for others `-cpu`.
fn is_for_gpu(owner: &Owner, owners: &[Owner]) -> bool {
    let names_gpu = |o: &Owner| o.name.contains("-gpu");
    if owners.iter().any(names_gpu) {
        return names_gpu(owner);
    }
    owners.iter().any(is_for_cpu) && !is_for_cpu(owner)
}

/// Whether a name says that a build is for the processor alone.
fn is_for_cpu(owner: &Owner) -> bool {
    owner.name.ends_with("-cpu") || owner.name.contains("intel")
}

/// Whose file lies there, and how that is known.
fn in_place(file: &SharedFile) -> Option<(&Owner, String)> {
    let only = |wanted: &dyn Fn(&Owner) -> bool| {
        let mut fitting = file.owners.iter().filter(|owner| wanted(owner));
        fitting.next().filter(|_| fitting.next().is_none())
    };
    if let Some(size) = file.size_bytes.value()
        && let Some(owner) = only(&|owner| owner.recorded_bytes == Some(*size))
    {
        return Some((owner, format!("{size} bytes, as its record says")));
    }
    if let Some(package) = file.package.value()
        && let Some(owner) = only(&|owner| owner.name == *package)
    {
        return Some((owner, format!("package_name {package}")));
    }
    if let Some(told) = file.version.value()
        && let Some(owner) = only(&|owner| begins_with(&owner.version, told))
    {
        return Some((owner, format!("version {told}, as the file itself says")));
    }
    if let Some(cuda) = file.cuda.value()
        && let Some(owner) = only(&|owner| cuda_major(&owner.name) == Some(cuda.major()))
    {
        return Some((
            owner,
            format!("built for CUDA {cuda}, as the file itself says"),
        ));
    }
    None
}

/// Whether a distribution's version is the one that a file tells, which has fewer parts: 9.10.2 of 9.10.2.21.
fn begins_with(version: &str, told: &Version) -> bool {
    Version::parse(version).is_some_and(|version| {
        told.len() >= 2
            && version.len() >= told.len()
            && (0..told.len()).all(|at| version.part(at) == told.part(at))
    })
}

/// The major version of CUDA that a wheel's name ends with: 13 of `nvidia-nccl-cu13`.
fn cuda_major(name: &str) -> Option<u32> {
    name.rsplit_once("-cu")?.1.parse().ok()
}

/// Which of several the environment needs, and why.
fn wanted<'a>(
    ctx: &Ctx<'_>,
    owners: &'a [Owner],
    needed: &[(String, String)],
) -> Option<(&'a Owner, String)> {
    let only = |fits: &dyn Fn(&Owner) -> bool| {
        let mut fitting = owners.iter().filter(|owner| fits(owner));
        fitting.next().filter(|_| fitting.next().is_none())
    };
    // Whoever installs a build for GPUs wants it; the other one mostly came as somebody's requirement.
    if let Some(owner) = only(&|owner| is_for_gpu(owner, owners)) {
        return Some((owner, "the build for GPUs".to_owned()));
    }
    let by = |owner: &Owner| needed.iter().find(|(name, _)| *name == owner.name);
    if let Some(owner) = only(&|owner| by(owner).is_some()) {
        let user = by(owner).map_or("", |(_, user)| user);
        return Some((owner, format!("required by {user}")));
    }
    let torch = ctx
        .facts
        .consumer
        .frameworks
        .items()
        .iter()
        .find(|f| f.name == "torch");
    let torch_cuda = ctx.facts.consumer.torch_cuda.value().map(Version::major);
    let local = torch.and_then(|torch| {
        let digits = torch.version.split_once("+cu")?.1;
        digits.get(..digits.len().checked_sub(1)?)?.parse().ok()
    });
    if let (Some(torch), Some(major)) = (torch, torch_cuda.or(local))
        && let Some(owner) = only(&|owner| cuda_major(&owner.name) == Some(major))
    {
        let torch = in_words(&torch.name, &torch.version);
        return Some((owner, format!("{torch} is built for CUDA {major}")));
    }
    None
}

fn finding(ctx: &Ctx<'_>, files: &[&SharedFile], needed: &[(String, String)]) -> Option<Finding> {
    let first = files.first()?;
    let owners = &first.owners;
    // Two records of one distribution are what an upgrade leaves behind: the newer one speaks.
    if owners
        .iter()
        .all(|o| o.name == owners.first().map_or("", |first| &first.name) && !is_conda(o))
    {
        return None;
    }
    let wanted = wanted(ctx, owners, needed);
    let places: Vec<_> = files.iter().map(|file| (*file, in_place(file))).collect();
    let wrong = wanted.as_ref().and_then(|(wanted, _)| {
        let is_wrong = |(_, place): &&(&SharedFile, Option<(&Owner, String)>)| {
            place
                .as_ref()
                .is_some_and(|(owner, _)| owner.metadata != wanted.metadata)
        };
        // The module that Python imports tells more than a library beside it.
        let is_module = |(file, _): &&(&SharedFile, _)| !file_name(&file.path).starts_with("lib");
        let mut all = places.iter().filter(is_wrong);
        all.clone().find(is_module).or_else(|| all.next())
    });
    let (file, place) = wrong
        .or_else(|| places.iter().find(|(_, place)| place.is_some()))
        .or_else(|| places.first())?;
    let mut there: Vec<&str> = places
        .iter()
        .filter_map(|(_, place)| place.as_ref().map(|(owner, _)| owner.metadata.as_str()))
        .collect();
    there.sort_unstable();
    there.dedup();
    let is_mixed = there.len() > 1;
    let library = first
        .owners
        .iter()
        .all(|owner| super::layer_of(&owner.name) == Layer::Libraries);
    let layer = if library {
        Layer::Libraries
    } else {
        Layer::Framework
    };
    let severity = match (&wanted, place, wrong) {
        (Some((wanted, _)), Some((there, _)), Some(_)) => {
            how_bad(ctx, layer, file, (wanted, there), owners)
        }
        (Some(_), None, None) => Severity::Warning,
        _ if is_mixed => Severity::Warning,
        // It works until one of the two is upgraded, and then the other one's files lie there.
        (Some((wanted, _)), Some(_), None) if is_for_gpu(wanted, owners) => Severity::Warning,
        _ => Severity::Note,
    };
    let name = file_name(&file.path);
    let all: Vec<String> = owners
        .iter()
        .map(|o| in_words(&o.name, &o.version))
        .collect();
    let title = match (&wanted, place) {
        (Some((wanted, why)), Some((there, _))) if wrong.is_some() => format!(
            "{name} is that of {}, which has overwritten {} ({why})",
            in_words(&there.name, &there.version),
            in_words(&wanted.name, &wanted.version),
        ),
        _ if is_mixed => format!(
            "{} bring the same files, and some of each lie there",
            all.join(" and "),
        ),
        (_, Some((there, _))) => format!(
            "{} bring the same {name}; that of {} lies there",
            all.join(" and "),
            in_words(&there.name, &there.version),
        ),
        (_, None) => format!(
            "{} bring the same {name}; whose lies there cannot be told",
            all.join(" and ")
        ),
    };
    let component = wanted
        .as_ref()
        .map_or(&first.owners.first()?.name, |(owner, _)| &owner.name);
    let mut finding = Finding::new("distribution-overwritten", layer, severity, title)
        .complaining(Layer::Framework)
        .component(component.clone())
        .subject(all.join(", "))
        .detail("Both distributions install to the same path, so the one that was installed last is there, and the other by its record alone. Taking one of them out removes the files of both.");
    for owner in owners {
        let size = match file.owners.iter().find(|o| o.metadata == owner.metadata) {
            Some(Owner {
                recorded_bytes: Some(bytes),
                ..
            }) => format!("{}, {name} of {bytes} bytes", owner.version),
            _ => owner.version.clone(),
        };
        finding = finding.evidence(owner.name.clone(), size, owner.metadata.clone());
    }
    finding = match place {
        Some((owner, how)) => finding.evidence(
            format!("{name} in place"),
            format!("that of {}: {how}", owner.name),
            file.path.clone(),
        ),
        None => finding.reading(&format!("{name} in place"), &file.size_bytes),
    };
    if layer == Layer::Framework {
        finding = with_gpu_library(ctx, finding, owners);
    }
    if files.len() > 1 {
        finding = finding.evidence("files of both", files.len().to_string(), "RECORD of both");
    }
    if let Some((owner, why)) = &wanted {
        finding = finding.evidence(
            "wanted",
            format!("{}: {why}", owner.name),
            owner.metadata.clone(),
        );
    }
    Some(mended(
        ctx,
        finding,
        layer,
        owners,
        wanted.map(|(owner, _)| owner),
    ))
}

/// Whether a record is conda's.
fn is_conda(owner: &Owner) -> bool {
    owner.metadata.contains("/conda-meta/")
}

/// How bad it is that another distribution's file lies there.
fn how_bad(
    ctx: &Ctx<'_>,
    layer: Layer,
    file: &SharedFile,
    (wanted, there): (&Owner, &Owner),
    owners: &[Owner],
) -> Severity {
    if layer == Layer::Framework {
        // Whoever installed the build for GPUs gets none of it.
        return if is_for_gpu(wanted, owners) && !is_for_gpu(there, owners) {
            Severity::Error
        } else {
            Severity::Warning
        };
    }
    // What asks for it tells best, where anything does.
    let links = ctx.facts.libraries.links.items().iter();
    let mut users = links
        .filter(|link| link.got.as_ref() == Some(&file.path))
        .peekable();
    if users.peek().is_some() {
        return if users.any(|link| !link.lacking.is_empty()) {
            Severity::Error
        } else {
            Severity::Warning
        };
    }
    // Functions are added from one version to the next, and seldom taken away.
    match (
        Version::parse(&there.version),
        Version::parse(&wanted.version),
    ) {
        (Some(there), Some(wanted)) if there < wanted => Severity::Error,
        _ => Severity::Warning,
    }
}

/// Whether the library that the framework's package has for GPUs lies there: what another build brought stays when that
/// one is overwritten, and no module opens it.
fn with_gpu_library(ctx: &Ctx<'_>, finding: Finding, owners: &[Owner]) -> Finding {
    let is_one = |name: &String| owners.iter().any(|owner| owner.name == *name);
    let frameworks = ctx.facts.framework.frameworks.items().iter();
    let of_package = frameworks
        .filter(|f| f.distribution.value().is_some_and(is_one))
        .find(|f| f.library.is_present() || file_name(f.library.source()).contains(".so"));
    match of_package {
        Some(framework) if framework.library.is_present() => finding.evidence(
            "library for GPUs",
            format!("{} is there", file_name(framework.library.source())),
            framework.library.source(),
        ),
        Some(framework) => finding.evidence(
            "library for GPUs",
            format!("{} is not there", file_name(framework.library.source())),
            framework.library.source(),
        ),
        None => finding,
    }
}

/// Both out, the right one in.
fn mended(
    ctx: &Ctx<'_>,
    finding: Finding,
    layer: Layer,
    owners: &[Owner],
    wanted: Option<&Owner>,
) -> Finding {
    let record = |owner: &Owner| -> Option<&Installed> {
        let all = ctx.facts.python.distributions.items().iter();
        all.clone().find(|dist| dist.metadata == owner.metadata)
    };
    let Some(wanted) = wanted else {
        return finding.fix(
            Fix::at(
                layer,
                "keep the one that the program needs: uninstall both, then install that one again",
            )
            .verify("gpudoctor"),
        );
    };
    let others: Vec<&Owner> = owners
        .iter()
        .filter(|o| o.metadata != wanted.metadata)
        .collect();
    // A library's wheel is taken out alone: what requires the other one keeps its record. Of two builds of a framework both
    // go, so that nothing of either is left.
    let both = layer == Layer::Framework;
    let out: Vec<&Owner> = if both {
        owners.iter().collect()
    } else {
        others
    };
    let names: Vec<&str> = out.iter().map(|o| o.name.as_str()).collect();
    let mut commands: Vec<Option<String>> = Vec::new();
    for owner in &out {
        let tool = record(owner).map(|dist| Tool::of(ctx, dist));
        let of_tool: Vec<&str> = out
            .iter()
            .filter(|other| {
                record(other).is_some_and(|dist| {
                    tool.as_ref()
                        .is_some_and(|tool| tool.is_same(&Tool::of(ctx, dist)))
                })
            })
            .map(|other| other.name.as_str())
            .collect();
        let command = tool.and_then(|tool| tool.uninstall(&of_tool));
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    commands.push(
        record(wanted)
            .and_then(|dist| Tool::of(ctx, dist).install_again(&wanted.name, &wanted.version)),
    );
    let whose = if both { "" } else { ", whose files go with it" };
    finding.fix(with_commands(
        Fix::at(
            layer,
            format!(
                "uninstall {}, then install {} again{whose}",
                names.join(" and "),
                in_words(&wanted.name, &wanted.version)
            ),
        ),
        commands,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions() {
        assert_eq!(cuda_major("nvidia-nccl-cu13"), Some(13));
        assert_eq!(cuda_major("nvidia-cublas"), None);
        let told = Version::parse("9.10.2").unwrap();
        assert!(begins_with("9.10.2.21", &told));
        assert!(!begins_with("9.1.0.70", &told));
        assert!(!begins_with("9.10", &told));
    }
}
