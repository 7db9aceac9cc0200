//! Holds what was found against every target: pure, from what was read and the matrix.
//!
//! Whether a file runs is `inspect`'s judgement; here it is asked of each target, with what comes along taken into account,
//! and what the caller accepts left out.

use super::fleet::{self, Target};
use super::manifest::Pin;
use super::{Artifact, BuildHost, Ignored, Preflight, TargetVerdict, build, pins};
use crate::diagnosis::{Status, Verdict};
use crate::facts::ToolchainFacts;
use crate::finding::{Finding, Severity};
use crate::inspect::{self, Brought, File, ImageFacts, Machine};
use crate::matrix::Matrix;

/// A finding that does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ignore {
    /// Its id, or its key: `driver-too-old:build/app`.
    pub what: String,
    /// Why.
    pub reason: String,
    /// The last day on which it does not count.
    pub expires: Option<String>,
}

/// An artifact with what was read of it.
#[derive(Clone, Debug, Default)]
pub struct Read {
    /// Its path.
    pub path: String,
    /// `file`, `wheel`, `folder` ...
    pub kind: String,
    /// The files in it that have to do with the GPU.
    pub files: Vec<File>,
    /// What a requirement or lock file pins.
    pub pins: Vec<Pin>,
    /// What a container image holds beside its files.
    pub image: Option<Box<ImageFacts>>,
    /// Names of packages that a wheel requires.
    pub requires: Vec<String>,
    /// What could not be read of it: whether it runs cannot be told then.
    pub unread: Vec<String>,
    /// Processors for whose machines it is not: of an index of images another one is for those.
    pub not_on: Vec<String>,
}

/// What is asked.
pub struct Question<'a> {
    /// The artifacts.
    pub artifacts: &'a [Read],
    /// The machines.
    pub targets: &'a [Target],
    /// What does not count.
    pub ignore: &'a [Ignore],
    /// Today, `2026-03-31`.
    pub today: &'a str,
    /// What could not be read, of no artifact.
    pub problems: &'a [String],
    /// The toolchain of this machine; none where it has no nvcc.
    pub build: Option<Build<'a>>,
    /// The knowledge.
    pub matrix: &'a Matrix,
}

/// What builds here.
#[derive(Clone, Copy)]
pub struct Build<'a> {
    /// The toolchain.
    pub toolchain: &'a ToolchainFacts,
    /// What the rules find of it.
    pub findings: &'a [Finding],
}

/// Judges.
pub fn judge(question: &Question<'_>) -> Preflight {
    let mut notes = Vec::new();
    let mut valid = Vec::new();
    for ignore in question.ignore {
        match &ignore.expires {
            Some(day) if day.as_str() < question.today => notes.push(format!(
                "the ignore of `{}` ran out on {day} and no longer counts ({})",
                ignore.what, ignore.reason
            )),
            _ => valid.push(ignore),
        }
    }
    // A project that needs no GPU runs on every machine; that a glob was wrong is a problem of its own.
    if !concern_gpu(question) {
        notes.push("nothing that has to do with a GPU was found in the artifacts".to_owned());
    }
    let brought = brought(question);
    let mut artifacts: Vec<Artifact> = question
        .artifacts
        .iter()
        .map(|read| Artifact {
            path: read.path.clone(),
            kind: read.kind.clone(),
            judged: judged(read, question.matrix),
            on: Vec::new(),
        })
        .collect();
    let mut ignored = Vec::new();
    let mut targets = Vec::new();
    for target in question.targets {
        let (verdict, states) = on_target(question, target, &brought, &valid, &mut ignored);
        for (artifact, state) in artifacts.iter_mut().zip(states) {
            artifact.on.push(state);
        }
        targets.push(verdict);
    }
    let build_host = question.build.map(|build| {
        let mut findings = build.findings.to_vec();
        let name = super::BUILD_HOST;
        findings.retain(|finding| !put_aside(finding, name, &valid, &mut ignored));
        BuildHost {
            described: described(build.toolchain),
            findings,
        }
    });
    for ignore in &valid {
        let met = |i: &Ignored| i.finding.id == ignore.what || i.finding.key == ignore.what;
        if !ignored.iter().any(met) {
            notes.push(format!(
                "the ignore of `{}` met nothing here ({})",
                ignore.what, ignore.reason
            ));
        }
    }
    let verdict = worst(&targets, &artifacts, build_host.as_ref());
    Preflight {
        verdict,
        artifacts,
        targets,
        build_host,
        ignored,
        notes,
    }
}

/// Whether any of the artifacts has to do with the GPU.
fn concern_gpu(question: &Question<'_>) -> bool {
    let mut artifacts = question.artifacts.iter();
    artifacts.any(|read| judged(read, question.matrix) > 0)
}

/// How much of an artifact has to do with the GPU.
fn judged(read: &Read, matrix: &Matrix) -> u64 {
    let pins = read.pins.iter();
    let pins = pins.filter(|pin| pins::concerns_gpu(pin, matrix)).count();
    (read.files.len() + pins) as u64
}

/// What all artifacts bring together: they are shipped together.
fn brought(question: &Question<'_>) -> Brought {
    let files = question.artifacts.iter().flat_map(|read| &read.files);
    let files: Vec<File> = files.cloned().collect();
    let mut brought = Brought::by(&files);
    let all: Vec<&Pin> = question
        .artifacts
        .iter()
        .flat_map(|read| &read.pins)
        .collect();
    (brought.runtimes, brought.all) = pins::brought(&all, question.matrix);
    brought
}

fn on_target(
    question: &Question<'_>,
    target: &Target,
    brought: &Brought,
    ignore: &[&Ignore],
    ignored: &mut Vec<Ignored>,
) -> (TargetVerdict, Vec<Status>) {
    let matrix = question.matrix;
    let machine = &target.machine;
    let mut unknown: Vec<String> = question.problems.to_vec();
    if !concern_gpu(question) {
        let pins = question.artifacts.iter().flat_map(|read| &read.pins);
        unknown.extend(pins.filter_map(pins::brings_some_torch));
    }
    let mut findings = inspect::of_machine(machine, matrix);
    let mut of_build = Vec::new();
    let mut states = Vec::new();
    let mut of_artifacts: Vec<Finding> = Vec::new();
    let (arch, _) = machine.processor(matrix);
    let mut count = 0;
    for read in question.artifacts {
        if read.not_on.iter().any(|other| other == arch) {
            states.push(Status::Absent);
            continue;
        }
        count += 1;
        let mut not_told = read.unread.clone();
        let found = of_artifact(read, machine, brought, matrix, &mut not_told);
        let mut counting = Vec::new();
        for finding in found {
            if !put_aside(&finding, &target.name, ignore, ignored) {
                counting.push(finding);
            }
        }
        let worst = counting.iter().map(|f| f.severity).max();
        states.push(match worst {
            Some(Severity::Error) => Status::Fault,
            _ if !not_told.is_empty() => Status::Unknown,
            Some(Severity::Warning) => Status::Warning,
            _ => Status::Ok,
        });
        of_artifacts.extend(counting);
        unknown.extend(not_told);
    }
    if let Some(build) = question.build {
        of_build = build::judge(build.toolchain, machine, matrix);
        let unread = build.toolchain.requests_unread.iter();
        unknown.extend(unread.map(|why| {
            format!("{why}: so it cannot be told which architectures that build asks for")
        }));
    }
    for found in [&mut findings, &mut of_build] {
        found.retain(|finding| !put_aside(finding, &target.name, ignore, ignored));
    }
    // A driver that does not drive the GPU makes all else on it moot.
    if findings.iter().any(|f| f.severity == Severity::Error) {
        states.fill(Status::Fault);
    }
    findings.extend(together(inspect::merged(of_artifacts)));
    findings.extend(of_build);
    // Stable: the target's own first, then as the artifacts stand.
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.layer.cmp(&b.layer)));
    if machine.container {
        in_container(&mut findings);
    }
    let verdict = verdict(&findings, &unknown, &target.name, count);
    let told = TargetVerdict {
        name: target.name.clone(),
        described: target.described.clone(),
        unsaid: fleet::unsaid(machine),
        verdict,
        findings,
        unknown,
    };
    (told, states)
}

/// Whether a finding is one that does not count; it is kept beside the others then.
fn put_aside(
    finding: &Finding,
    target: &str,
    ignore: &[&Ignore],
    ignored: &mut Vec<Ignored>,
) -> bool {
    let by = ignore
        .iter()
        .find(|i| i.what == finding.id || i.what == finding.key);
    if let Some(ignore) = by {
        ignored.push(Ignored {
            target: target.to_owned(),
            reason: ignore.reason.clone(),
            expires: ignore.expires.clone(),
            finding: finding.clone(),
        });
    }
    by.is_some()
}

/// The compilers that builds take.
fn described(toolchain: &ToolchainFacts) -> String {
    let all = toolchain.nvcc.items().iter();
    let words: Vec<String> = all
        .map(|nvcc| match nvcc.version.value() {
            Some(version) => format!("nvcc {version} of {}", nvcc.path),
            None => format!("nvcc of {}", nvcc.path),
        })
        .collect();
    words.join(", ")
}

/// What is found in one artifact for one machine.
fn of_artifact(
    read: &Read,
    machine: &Machine,
    brought: &Brought,
    matrix: &Matrix,
    unknown: &mut Vec<String>,
) -> Vec<Finding> {
    if let Some(image) = &read.image {
        let files: Vec<&File> = read.files.iter().collect();
        let machine = Some(machine);
        return inspect::of_image(&read.path, image, &files, machine, matrix, unknown);
    }
    let files: Vec<&File> = read.files.iter().collect();
    let is_within = |_: &File| read.kind != "file";
    let of_files = inspect::of_files(&files, &is_within, Some(machine), matrix, unknown);
    let mut findings: Vec<Finding> = of_files.into_iter().flatten().collect();
    // What a wheel requires brings CUDA's libraries.
    let brings_cuda = |name: &String| name.starts_with("nvidia-") || name == "torch";
    if !read.requires.iter().any(brings_cuda) {
        for file in &read.files {
            findings.extend(inspect::unmet(file, brought, machine, matrix));
        }
    }
    if read.kind == "wheel" {
        findings.extend(pins::wheel_file(&read.path, machine));
    }
    let pins: Vec<&Pin> = read.pins.iter().collect();
    findings.extend(pins::judge(&pins, machine, matrix, unknown));
    findings
}

/// A library that ten files miss is one fault.
fn together(findings: Vec<Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for finding in findings {
        let same = |f: &&mut Finding| {
            f.id == "library-not-found" && f.id == finding.id && f.component == finding.component
        };
        match all.iter_mut().find(same) {
            Some(first) => first.subjects.extend(finding.subjects),
            None => all.push(finding),
        }
    }
    for finding in all
        .iter_mut()
        .filter(|f| f.id == "library-not-found" && f.subjects.len() > 1)
    {
        let others = finding.subjects.len() - 1;
        finding.title = finding
            .title
            .replacen(" needs ", &format!(" and {others} more need "), 1);
    }
    all
}

/// In a container the driver is its host's: who runs it changes it, and nothing in the image does.
fn in_container(findings: &mut [Finding]) {
    for finding in findings {
        for fix in finding
            .fixes
            .iter_mut()
            .filter(|fix| fix.layer == Some(crate::facts::Layer::Driver))
        {
            fix.commands.clear();
            fix.summary = format!("on the container's host: {}", fix.summary);
        }
    }
}

fn verdict(findings: &[Finding], unknown: &[String], target: &str, artifacts: usize) -> Verdict {
    let bad = || findings.iter().filter(|f| f.severity >= Severity::Warning);
    let first = bad().next();
    let is_fault = first.is_some_and(|f| f.severity == Severity::Error);
    let (status, summary) = match (first, unknown.first()) {
        (Some(f), _) if is_fault => (Status::Fault, f.title.clone()),
        (_, Some(why)) => (Status::Unknown, why.clone()),
        (Some(f), None) => (Status::Warning, f.title.clone()),
        (None, None) => (Status::Ok, format!("{} on {target}", run(artifacts))),
    };
    let told = first.filter(|_| status != Status::Unknown);
    Verdict {
        status,
        layer: told.map(|f| f.layer),
        finding: told.map(|f| f.id.clone()),
        key: told.map(|f| f.key.clone()),
        summary,
        roots: bad().map(|f| f.key.clone()).collect(),
    }
}

/// `12 artifacts run`, `1 artifact runs`.
fn run(count: usize) -> String {
    match count {
        1 => "1 artifact runs".to_owned(),
        n => format!("{n} artifacts run"),
    }
}

/// The worst verdict of the targets, told with the target's name.
fn worst(
    targets: &[TargetVerdict],
    artifacts: &[Artifact],
    build_host: Option<&BuildHost>,
) -> Verdict {
    // What cannot be told fails a preflight, what will bite does not.
    let rank = |target: &&TargetVerdict| match target.verdict.status {
        Status::Fault => 0,
        Status::Unknown => 1,
        Status::Warning => 2,
        Status::Ok | Status::Absent => 3,
    };
    let Some(worst) = targets.iter().min_by_key(rank) else {
        return Verdict {
            status: Status::Unknown,
            layer: None,
            finding: None,
            key: None,
            summary: "no target was named".to_owned(),
            roots: Vec::new(),
        };
    };
    let mut verdict = worst.verdict.clone();
    verdict.roots = targets
        .iter()
        .flat_map(|target| {
            target
                .verdict
                .roots
                .iter()
                .map(|key| super::key_on(key, &target.name))
        })
        .collect();
    verdict.key = verdict.key.map(|key| super::key_on(&key, &worst.name));
    verdict.summary = match verdict.status {
        Status::Ok | Status::Absent => {
            let names: Vec<&str> = targets.iter().map(|target| target.name.as_str()).collect();
            format!("{} on {}", run(artifacts.len()), names.join(", "))
        }
        _ => format!("{}: {}", worst.name, verdict.summary),
    };
    // What keeps a build from being made comes after what keeps one that is made from running.
    let of_build = build_host.iter().flat_map(|host| &host.findings);
    let bad: Vec<&Finding> = of_build
        .filter(|f| f.severity >= Severity::Warning)
        .collect();
    let key = |finding: &Finding| super::key_on(&finding.key, super::BUILD_HOST);
    verdict.roots.extend(bad.iter().map(|finding| key(finding)));
    if verdict.status == Status::Ok
        && let Some(first) = bad.first()
    {
        verdict.status = Status::Warning;
        verdict.layer = Some(first.layer);
        verdict.finding = Some(first.id.clone());
        verdict.key = Some(key(first));
        verdict.summary = format!("{}: {}", super::BUILD_HOST, first.title);
    }
    verdict
}
