//! Two CUDA runtimes of different major versions in one process.

use super::{by, called};
use crate::facts::{ANY_PROGRAM, ConsumerKind, Layer, Link};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::file_name;

/// Shared runtimes only: two libraries with a runtime inside each never meet.
pub(in crate::rules) fn cuda_majors_mixed(ctx: &Ctx<'_>) -> Outcome {
    // Of a process that runs, what it has mapped is told by a rule of its own.
    if ctx.facts.consumer.kind == ConsumerKind::Process {
        return Outcome::Clean;
    }
    let links = known!(ctx.facts.libraries.links, "who gets which library");
    let runtimes: Vec<&Link> = links
        .iter()
        .filter(|link| link.consumer != ANY_PROGRAM && link.got.is_some())
        .filter(|link| file_name(&link.soname).starts_with("libcudart.so."))
        .collect();
    let mut findings: Vec<Finding> = Vec::new();
    for link in &runtimes {
        let in_one_process = |other: &&&Link| {
            other.consumer == link.consumer || Some(&other.consumer) == link.after.as_ref()
        };
        let other = runtimes
            .iter()
            .filter(in_one_process)
            .find(|other| file_name(&other.soname) != file_name(&link.soname));
        if let Some(other) = other {
            let finding = finding(ctx, link, other);
            if !findings.iter().any(|f| f.key == finding.key) {
                findings.push(finding);
            }
        }
    }
    Outcome::found(findings)
}

fn finding(ctx: &Ctx<'_>, link: &Link, other: &Link) -> Finding {
    let mut names = [file_name(&other.soname), file_name(&link.soname)].map(str::to_owned);
    names.sort_unstable();
    let mut users = vec![other.consumer.clone(), link.consumer.clone()];
    users.dedup();
    let mut finding = Finding::new(
        "cuda-majors-mixed",
        Layer::Runtime,
        Severity::Warning,
        format!(
            "{} {} {} into one process",
            in_words(&users),
            if users.len() == 1 { "loads" } else { "load" },
            in_words(&names)
        ),
    )
    .complaining(Layer::Framework)
    .component(file_name(&link.soname))
    .subject(link.consumer.clone())
    .detail("Each runtime keeps a state of its own: what one made known (current device, streams, errors, peer access) the other does not see. Programs may run like that, and fail where the two hand things to each other.");
    for one in [other, link] {
        let path = one.got.as_deref().unwrap_or_default();
        finding = finding.evidence(
            format!("{} gets", file_name(&one.user)),
            called(ctx, path),
            format!("{path}, by {}", by(one)),
        );
    }
    let fix = if users.len() == 1 {
        format!(
            "install a build of {} that uses one CUDA major version",
            link.consumer
        )
    } else {
        format!(
            "install a build of {} for the CUDA major version of {}",
            link.consumer, other.consumer
        )
    };
    finding
        .fix(Fix::at(Layer::Framework, fix).verify("gpudoctor"))
        .source("CUDA runtime API: one runtime's state is its library's own")
}
