//! What a running process has mapped.

use crate::facts::{Layer, Mapped, Process, ReachedBy, RuntimeCopy};
use crate::finding::{Finding, Fix, Severity};
use crate::read::recipes;
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::file_name;
use crate::version::Version;

/// The process, where its mappings could be read.
macro_rules! mapped {
    ($ctx:expr) => {{
        let Some(process) = $ctx.facts.application.process.value() else {
            return Outcome::Clean;
        };
        (
            process,
            known!(process.mapped, "the files that the process has mapped"),
        )
    }};
}

/// The layer of a library that is mapped.
fn layer_of(path: &str) -> Layer {
    let name = file_name(path);
    match recipes::known_name(name).as_deref() {
        Some("libcuda" | "libnvidia-ml") => Layer::Driver,
        Some("libcudart" | "libnvrtc" | "libnvJitLink") => Layer::Runtime,
        Some(_) => Layer::Libraries,
        None if name.starts_with("libnvidia-") => Layer::Driver,
        None => Layer::Framework,
    }
}

fn named(process: &Process) -> String {
    match process.exe.value() {
        Some(exe) => format!(
            "process {} ({})",
            process.pid,
            file_name(exe.trim_end_matches(" (deleted)"))
        ),
        None => format!("process {}", process.pid),
    }
}

/// Libraries that were replaced or removed while the process runs: it goes on with the old ones.
pub(super) fn library_replaced(ctx: &Ctx<'_>) -> Outcome {
    let (process, mapped) = mapped!(ctx);
    let gone: Vec<&Mapped> = mapped.iter().filter(|m| m.deleted).collect();
    let Some(first) = gone.first() else {
        return Outcome::Clean;
    };
    // The lowest layer says what was done: a driver that was upgraded, an environment into which something was installed.
    let layer = gone
        .iter()
        .map(|m| layer_of(&m.path))
        .min()
        .unwrap_or(Layer::Application);
    let all_replaced = gone.iter().all(|m| m.replaced);
    let what = match (gone.len(), all_replaced) {
        (1, true) => format!("{}, which was replaced on the disk", first.path),
        (1, false) => format!("{}, which is no longer on the disk", first.path),
        (n, true) => format!(
            "{n} libraries that were replaced on the disk, {} first",
            first.path
        ),
        (n, false) => format!(
            "{n} libraries that were replaced or removed, {} first",
            first.path
        ),
    };
    let who = named(process);
    let mut finding = Finding::new(
        "process-library-replaced",
        Layer::Application,
        Severity::Warning,
        format!("{who} still runs with {what}"),
    )
    .complaining(layer)
    .component(file_name(&first.path))
    .subject(who)
    .detail(if layer == Layer::Driver {
        "The driver was changed under it. The process keeps the libraries that it loaded; with another kernel module they no longer fit, and what it opens from now on is of the new version."
    } else {
        "What it loads from now on is of the new version and need not fit what it has loaded."
    });
    for file in gone.iter().take(8) {
        let state = if file.replaced {
            "replaced: another file lies there now"
        } else {
            "deleted: nothing lies there now"
        };
        finding = finding.evidence(&file.path, state, format!("/proc/{}/maps", process.pid));
    }
    // What is gone from its distribution has to come back first: the process alone would start without it.
    let mut distributions = ctx.facts.python.distributions.items().iter();
    finding.caused_by = distributions
        .find(|dist| gone.iter().any(|file| dist.missing.contains(&file.path)))
        .map(|dist| format!("distribution-files-missing:{} {}", dist.name, dist.version));
    Outcome::found([finding.fix(
        Fix::at(Layer::Application, "start the process again")
            .verify(format!("grep deleted /proc/{}/maps", process.pid)),
    )])
}

/// Two CUDA runtimes of different major versions in one process.
pub(super) fn two_runtimes(ctx: &Ctx<'_>) -> Outcome {
    let Some(process) = ctx.facts.application.process.value() else {
        return Outcome::Clean;
    };
    let copies = known!(ctx.facts.runtime.cudart, "CUDA runtimes");
    let runtimes: Vec<(&RuntimeCopy, Version)> = copies
        .iter()
        .filter(|copy| copy.reached_by.contains(&ReachedBy::Process))
        .filter_map(|copy| {
            let version = copy.version.value().cloned();
            Some((copy, version.or_else(|| copy.soname_version())?))
        })
        .collect();
    let mut majors: Vec<u32> = runtimes.iter().map(|(_, v)| v.major()).collect();
    majors.sort_unstable();
    majors.dedup();
    if majors.len() < 2 {
        return Outcome::Clean;
    }
    let who = named(process);
    let shown: Vec<String> = majors.iter().map(|major| format!("CUDA {major}")).collect();
    let mut finding = Finding::new(
        "process-two-runtimes",
        Layer::Application,
        Severity::Note,
        format!("{who} has the runtimes of {} loaded at once", in_words(&shown)),
    )
    .component("libcudart")
    .subject(who)
    .detail("Each library goes on with the runtime that it was linked with, and both share the GPU's primary context: that works where no handle (stream, event, graph) of one is given to the other. The driver has to be new enough for the newer one.");
    for (copy, version) in &runtimes {
        finding = finding.evidence(
            format!("CUDA {version}"),
            &copy.path,
            format!("/proc/{}/maps", process.pid),
        );
    }
    Outcome::found([finding])
}
