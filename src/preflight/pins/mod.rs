//! What a file pins, held against a machine: whether it is installed there at all (markers, platform tags), whether the
//! driver takes the CUDA of a framework's build, and whether the build has code for the GPUs.
//!
//! Of a version that is left open all releases that the file allows and the matrix knows are judged: an installer takes the
//! newest.
//!
//! A package that no table knows is none of the GPU stack, and says nothing. Of one that a table knows, a release without
//! a row is unknown: it is told, and never taken for its neighbour.

mod installed;
mod meaning;
mod open;

use std::collections::BTreeMap;

pub(super) use installed::wheel_file;
use meaning::{Build, Meaning, meaning};

use super::manifest::Pin;
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::inspect::{Machine, by_minor_version};
use crate::matrix::{CodeFit, Matrix};
use crate::rules::BUILT_ON_TORCH;
use crate::target;
use crate::version::Version;

/// The machine that is judged for where a target does not say which it is.
const ARCH: &str = "x86_64";

/// Whether a pin has to do with the GPU.
pub(super) fn concerns_gpu(pin: &Pin, matrix: &Matrix) -> bool {
    !matches!(meaning(pin, matrix, ARCH), Meaning::Nothing)
}

/// What brings a PyTorch with it, where nothing says which: it is no project that needs no GPU.
pub(super) fn brings_some_torch(pin: &Pin) -> Option<String> {
    BUILT_ON_TORCH.contains(&pin.name.as_str()).then(|| {
        format!(
            "{}: {} brings a PyTorch, and nothing here says which",
            pin.place, pin.name
        )
    })
}

/// The CUDA whose libraries come along with these pins, and whether all of its libraries do.
pub(super) fn brought(pins: &[&Pin], matrix: &Matrix) -> (Vec<Version>, bool) {
    let mut runtimes = Vec::new();
    let mut all = false;
    for pin in pins {
        if let Meaning::Build(build) = meaning(pin, matrix, ARCH)
            && build.layer != Layer::Libraries
        {
            all |= build.layer == Layer::Framework;
            runtimes.push(build.cuda);
        }
    }
    (runtimes, all)
}

/// Judges the pins of one file. Of several pins of one package (for several systems, or to choose from) one that runs is
/// enough for the file to run; that another one does not is a warning.
pub(super) fn judge(
    pins: &[&Pin],
    machine: &Machine,
    matrix: &Matrix,
    unknown: &mut Vec<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut by_name: BTreeMap<&str, Vec<&Pin>> = BTreeMap::new();
    for pin in pins {
        by_name.entry(pin.name.as_str()).or_default().push(pin);
    }
    // The build of torch that is pinned is the one that vLLM gets.
    let torch = by_name.get("torch").into_iter().flatten();
    let mut tags = torch
        .filter(|pin| installed::applies(pin, machine) != Some(false))
        .filter_map(|pin| pin.local.as_ref().or(pin.index.as_ref()));
    let tag = tags.next().filter(|first| tags.all(|tag| tag == *first));
    for (name, of_name) in by_name {
        let pins = of_name;
        let mut of_name = Vec::new();
        for pin in pins {
            let applies = installed::applies(pin, machine);
            if applies == Some(false) {
                continue;
            }
            let beside = (name == "vllm" && pin.local.is_none() && pin.index.is_none())
                .then_some(tag)
                .flatten();
            let judged = match beside {
                Some(tag) => {
                    let pin = Pin {
                        index: Some(tag.clone()),
                        ..pin.clone()
                    };
                    of_pin(&pin, machine, matrix)
                }
                None => of_pin(pin, machine, matrix),
            };
            let Some(mut judged) = judged else {
                continue;
            };
            if applies.is_none() {
                judged = installed::hangs_on_marker(pin, judged);
            }
            of_name.push(judged);
        }
        // An extra for the CPU beside one for CUDA is a choice, and not the one that is for this machine.
        if of_name.iter().any(|judged| !judged.no_cuda) {
            of_name.retain(|judged| !judged.no_cuda);
        }
        of_name.sort_by_key(|judged| (judged.worst(), !judged.not_told.is_empty()));
        let mut of_name = of_name.into_iter();
        if let Some(best) = of_name.next() {
            findings.extend(best.found);
            unknown.extend(best.not_told);
        }
        for mut finding in of_name.flat_map(|judged| judged.found) {
            finding.severity = finding.severity.min(Severity::Warning);
            finding = finding.evidence(
                "another pin of it",
                "does better: which one counts is the installer's choice",
                name,
            );
            findings.push(finding);
        }
    }
    without_what_follows(&mut findings);
    findings
}

/// The libraries of a framework that is too new for the driver are so as well, and change with it.
fn without_what_follows(findings: &mut Vec<Finding>) {
    const ID: &str = "driver-too-old";
    let is_of_framework = |f: &Finding| f.complaining_layer == Layer::Framework;
    // The driver that is asked for: a library for a newer CUDA than the framework's is a fault of its own.
    let asks_for = |f: &Finding| f.fixes.first().map(|fix| fix.summary.clone());
    let of_frameworks: Vec<_> = findings
        .iter()
        .filter(|f| f.id == ID && f.severity == Severity::Error && is_of_framework(f))
        .map(asks_for)
        .collect();
    findings.retain(|f| f.id != ID || is_of_framework(f) || !of_frameworks.contains(&asks_for(f)));
}

/// What came of one pin.
#[derive(Default)]
struct Judged {
    found: Vec<Finding>,
    not_told: Vec<String>,
    /// It is a build without CUDA.
    no_cuda: bool,
}

impl Judged {
    fn worst(&self) -> Option<Severity> {
        self.found.iter().map(|finding| finding.severity).max()
    }

    /// Nothing that is worth a warning, and all could be told.
    fn is_fine(&self) -> bool {
        self.worst() < Some(Severity::Warning) && self.not_told.is_empty()
    }

    fn fails(&self) -> bool {
        self.worst() == Some(Severity::Error)
    }
}

/// What is found of one pin; `None` where it has nothing to do with the GPU.
fn of_pin(pin: &Pin, machine: &Machine, matrix: &Matrix) -> Option<Judged> {
    if pin.version.is_none()
        && let Some(judged) = open::judge(pin, machine, matrix)
    {
        return Some(judged);
    }
    of_version(pin, machine, matrix)
}

fn of_version(pin: &Pin, machine: &Machine, matrix: &Matrix) -> Option<Judged> {
    let mut judged = Judged::default();
    match meaning(pin, matrix, arch_of(machine)) {
        Meaning::Nothing => return None,
        Meaning::Build(build) => {
            judged.found = one(pin, &build, machine, matrix, &mut judged.not_told);
        }
        Meaning::NoCuda(shown) => {
            judged.found = no_cuda(pin, &shown, machine);
            judged.no_cuda = true;
        }
        Meaning::Unknown(why) => judged.not_told.push(format!("{}: {why}", pin.place)),
    }
    Some(judged)
}

fn arch_of(machine: &Machine) -> &str {
    machine.arch.as_deref().unwrap_or(ARCH)
}

fn no_cuda(pin: &Pin, shown: &str, machine: &Machine) -> Vec<Finding> {
    if machine.gpus.is_empty() {
        return Vec::new();
    }
    vec![
        Finding::new(
            "framework-cpu-build",
            Layer::Framework,
            Severity::Warning,
            format!("{shown} has no CUDA and will not use the GPUs ({})", pin.place),
        )
        .subject(&pin.place)
        .evidence("pinned", shown, &pin.place)
        .fix(Fix::at(
            Layer::Framework,
            "pin a build for CUDA: `gpudoctor matrix plan` names the newest one that runs on all targets",
        )),
    ]
}

fn one(
    pin: &Pin,
    build: &Build,
    machine: &Machine,
    matrix: &Matrix,
    unknown: &mut Vec<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if machine.no_driver {
        findings.push(
            Finding::new(
                "driver-not-installed",
                Layer::Driver,
                Severity::Warning,
                format!(
                    "{} is built for CUDA, and {} has no driver",
                    build.shown, machine.name
                ),
            )
            .subject(&pin.place)
            .evidence("pinned", &build.shown, &pin.place)
            .fix(Fix::at(
                Layer::Driver,
                "install NVIDIA's driver on the target",
            )),
        );
        return findings;
    }
    findings.extend(installed::python(pin, build, machine, matrix));
    findings.extend(installed::wheel(pin, build, machine, matrix, unknown));
    // What can be mended by an image or another Python leaves the driver to be judged; what is for another machine does not.
    if machine.musl
        || findings
            .iter()
            .any(|f| f.id == "program-other-architecture")
    {
        return findings;
    }
    let level = machine.driver.as_ref().and_then(|driver| {
        let (low, high) = matrix.cuda_level_range(driver);
        let runs = |level: u32| matrix.runtime_accepts(&build.cuda, level);
        match (low, high) {
            (Some(low), Some(high)) if runs(low) != runs(high) => {
                unknown.push(format!(
                    "{}: driver {driver} is in no table, so whether it runs CUDA {} is not known",
                    pin.place, build.cuda
                ));
                None
            }
            (Some(low), _) => Some(low),
            (None, Some(_)) => Some(0),
            (None, None) => None,
        }
    });
    if let (Some(driver), Some(level)) = (&machine.driver, level)
        && !matrix.runtime_accepts(&build.cuda, level)
    {
        findings.push(too_old(pin, build, driver, machine, matrix));
        return findings;
    }
    if let (Some(driver), Some(level)) = (&machine.driver, level) {
        findings.extend(by_minor_version(
            &pin.place,
            &build.cuda,
            driver,
            level,
            machine,
        ));
    }
    for gpu in &machine.gpus {
        let (major, minor) = gpu.capability;
        let fit = match (&build.code, build.capability_min) {
            (_, Some(least)) if gpu.capability < least => CodeFit::No,
            (Some(code), _) => matrix.code_fit(code, gpu.capability, &build.cuda, level),
            (None, Some(_)) => continue,
            (None, None) => {
                // Only of PyTorch a missing list of code is a gap; of the others none is kept.
                if build.torch.is_some() {
                    unknown.push(format!(
                        "{}: the matrix has no list of the code in {}",
                        pin.place, build.shown
                    ));
                }
                break;
            }
        };
        let (id, layer, title) = match fit {
            CodeFit::Cubin(_) | CodeFit::Ptx(_) => continue,
            CodeFit::Unknown(why) => {
                unknown.push(format!(
                    "{}: whether {} runs on {} is not known: {why}",
                    pin.place, build.shown, gpu.name
                ));
                continue;
            }
            CodeFit::PtxTooNew(isa) => (
                "framework-ptx-too-new",
                Layer::Driver,
                format!(
                    "{} has only PTX {isa} for {} (sm_{major}{minor}), newer than driver {} can compile",
                    build.shown,
                    gpu.name,
                    machine.driver.as_ref().map_or("", Version::as_str)
                ),
            ),
            CodeFit::No => {
                let least = build.capability_min.filter(|least| gpu.capability < *least);
                let why = match least {
                    Some((a, b)) => {
                        format!("needs compute capability {a}.{b}, and does not run on")
                    }
                    None => "has no code for".to_owned(),
                };
                (
                    "framework-lacks-gpu-code",
                    Layer::Framework,
                    format!("{} {why} {} (sm_{major}{minor})", build.shown, gpu.name),
                )
            }
        };
        let has = build
            .code
            .as_ref()
            .map_or_else(String::new, |code| code.words().join(" "));
        let mut finding = Finding::new(
            id,
            layer,
            Severity::Error,
            format!("{title} ({})", pin.place),
        )
        .subject(format!("{} on {}", pin.place, gpu.name))
        .complaining(Layer::Framework)
        .component(&pin.name)
        .evidence("pinned", &build.shown, &pin.place)
        .source(&build.source);
        if !has.is_empty() {
            finding = finding.evidence("device code", has, &build.shown);
        }
        findings.push(with_ways(finding, build, machine, matrix));
    }
    findings
}

fn too_old(
    pin: &Pin,
    build: &Build,
    driver: &Version,
    machine: &Machine,
    matrix: &Matrix,
) -> Finding {
    let minimum = matrix.minimum_driver(&build.cuda);
    let wanted = minimum
        .as_ref()
        .and_then(|m| m.version.as_ref())
        .map_or("a newer one".to_owned(), |v| format!("{v} or newer"));
    let mut finding = Finding::new(
        "driver-too-old",
        Layer::Driver,
        Severity::Error,
        format!(
            "driver {driver} is too old for {} ({}), which needs {wanted}",
            build.shown, pin.place
        ),
    )
    .subject(&pin.place)
    .complaining(build.layer)
    .component("libcuda.so.1")
    .evidence(
        "pinned",
        format!("{}, CUDA {}", build.shown, build.cuda),
        &pin.place,
    )
    .evidence("driver", driver.to_string(), &machine.name)
    .source(&build.source);
    if let Some(minimum) = minimum {
        finding = finding.source(minimum.source);
    }
    with_ways(finding, build, machine, matrix)
}

/// The ways out that `matrix can` tells for the same driver, GPUs and build.
fn with_ways(mut finding: Finding, build: &Build, machine: &Machine, matrix: &Matrix) -> Finding {
    let asked = target::Target {
        driver: machine.driver.clone().map(target::Driver::Version),
        gpus: machine.gpus.iter().map(|gpu| gpu.asked.clone()).collect(),
        cuda: build.torch.is_none().then(|| build.cuda.clone()),
        torch: build.torch.clone(),
        ..target::Target::default()
    };
    for way in machine.advice.ways(matrix, &asked) {
        let mut fix = Fix::at(way.layer, way.summary).cost(way.cost);
        if let Some(why) = way.why_second {
            fix = fix.second(why);
        }
        finding = finding.fix(fix);
    }
    if finding.fixes.is_empty() {
        finding = finding.fix(Fix::at(
            Layer::Framework,
            "pin a release that runs there: `gpudoctor matrix plan` names the newest one",
        ));
    }
    finding
}
