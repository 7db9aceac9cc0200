//! What the variables of an image do to its containers: what they ask of the host, which parts of its driver they take, and
//! what they leave of the GPUs.

use super::super::{File, ImageFacts, Machine};
use super::image::uses_cuda;
use super::{libcuda, with_ways};
use crate::ask::{self, Meant};
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::Matrix;
use crate::read::nvidia_require::{
    self, Answer, Condition, Evaluator, Host, Named, Property, evaluate,
};
use crate::rules;

/// Who says how a requirement is read.
const SOURCE: &str = "libnvidia-container and NVIDIA container toolkit sources: requirements";
/// The parts of a driver that can be asked for.
const CAPABILITIES: &[&str] = &[
    "all", "compat32", "compute", "display", "graphics", "ngx", "utility", "video",
];

/// An image that asks for parts of the driver, and not for the one that its own files need.
pub(super) fn capabilities(
    path: &str,
    image: &ImageFacts,
    files: &[File],
    findings: &mut Vec<Finding>,
) {
    const VARIABLE: &str = "NVIDIA_DRIVER_CAPABILITIES";
    let variables = image.environment.as_ref();
    // Without one the toolkit takes `utility,compute`.
    let Some(asked) = variables
        .and_then(|variables| variables.get(VARIABLE))
        .filter(|asked| !asked.trim().is_empty())
    else {
        return;
    };
    let strange: Vec<&str> = asked
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty() && !CAPABILITIES.contains(word))
        .collect();
    if let Some(first) = strange.first() {
        findings.push(unknown_capability(path, asked, first));
    }
    let mut words = asked.split(',').map(str::trim);
    if words.any(|word| matches!(word, "compute" | "all")) {
        return;
    }
    let users: Vec<&File> = files.iter().filter(|file| uses_cuda(file)).collect();
    let Some(first) = users.first() else {
        return;
    };
    findings.push(
        Finding::new(
            "container-library-missing",
            Layer::Container,
            Severity::Warning,
            format!("{path} asks for the driver's parts {asked}, and its CUDA programs need compute"),
        )
        .subject(path)
        .complaining(Layer::Runtime)
        .component("libcuda.so.1")
        .evidence(VARIABLE, asked, path)
        .evidence(
            "files that use CUDA",
            format!("{}, such as {}", users.len(), libcuda::strip(&first.path, path)),
            path,
        )
        .detail(
            "where the container toolkit mounts the driver's libraries by capability, a container of it gets no libcuda, and CUDA says that there is no driver; a CDI specification brings all of them whatever the image asks for",
        )
        .source("NVIDIA libnvidia-container sources: libraries by capability")
        .fix(
            Fix::at(
                Layer::Container,
                format!("ENV {VARIABLE}=compute,utility in the Dockerfile, with what else it asks for"),
            )
            .cost("rebuild"),
        )
        .fix(
            Fix::at(
                Layer::Container,
                format!("start it with `-e {VARIABLE}=compute,utility`"),
            )
            .second("has to be done each time"),
        ),
    );
}

/// A part of the driver that there is not: the toolkit refuses the container.
fn unknown_capability(path: &str, asked: &str, word: &str) -> Finding {
    const VARIABLE: &str = "NVIDIA_DRIVER_CAPABILITIES";
    Finding::new(
        "container-library-missing",
        Layer::Container,
        Severity::Error,
        format!("{path} asks for the driver's part `{word}`, which there is not"),
    )
    .subject(format!("{path} asks for {word}"))
    .component("nvidia-container-runtime-hook")
    .evidence(VARIABLE, asked, path)
    .detail("the container toolkit refuses to start it: `unsupported capabilities found`")
    .source("NVIDIA container toolkit sources: capabilities")
    .fix(
        Fix::at(
            Layer::Container,
            format!(
                "take `{word}` out of {VARIABLE} in the Dockerfile; there are {}",
                CAPABILITIES.join(", ")
            ),
        )
        .cost("rebuild"),
    )
}

/// An image whose own variable hides all GPUs from its programs.
pub(super) fn hidden(path: &str, image: &ImageFacts, findings: &mut Vec<Finding>) {
    const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
    let variables = image.environment.as_ref();
    let Some(value) = variables.and_then(|variables| variables.get(VARIABLE)) else {
        return;
    };
    // How many GPUs there are is not said.
    let Some(why) = rules::why_nothing_is_visible(value, usize::MAX) else {
        return;
    };
    findings.push(
        Finding::new(
            "cuda-visible-devices-hides-all",
            Layer::Application,
            Severity::Error,
            format!("{VARIABLE} of {path} hides every GPU from its programs: {why}"),
        )
        .subject(path)
        .component(VARIABLE)
        .evidence(VARIABLE, format!("'{value}'"), path)
        .detail("CUDA answers that there is no device (error 100), whatever the host has, until the variable is set otherwise")
        .source("CUDA programming guide: environment variables")
        .fix(
            Fix::at(Layer::Application, format!("take {VARIABLE} out of the Dockerfile"))
                .cost("rebuild"),
        )
        .fix(
            Fix::at(
                Layer::Application,
                format!("start it with the GPUs that it is to see: `docker run --gpus all -e {VARIABLE}=0 IMAGE`"),
            )
            .second("has to be done each time"),
        ),
    );
}

/// What the image asks of its host by `NVIDIA_REQUIRE_*`.
pub(super) fn requirements(
    path: &str,
    image: &ImageFacts,
    machine: &Machine,
    matrix: &Matrix,
    findings: &mut Vec<Finding>,
    unknown: &mut Vec<String>,
) {
    let Some(environment) = &image.environment else {
        return;
    };
    let asked = nvidia_require::requirements(environment);
    if asked.disabled || machine.driver.is_none() {
        return;
    }
    if let Some(version) = &asked.broken_cuda_version {
        findings.push(invalid(path, "CUDA_VERSION", version, version));
    }
    // Below the floor of what is in it no switch helps: it would start, and fail.
    let is_too_old = findings
        .iter()
        .any(|f| f.id == "driver-too-old" && f.severity >= Severity::Warning);
    let gpus: Vec<Meant> = machine
        .gpus
        .iter()
        .map(|gpu| ask::meant(matrix, &gpu.asked))
        .collect();
    let hosts = ask::hosts(matrix, machine.driver.as_ref(), &gpus);
    for named in &asked.values {
        for (index, host) in hosts.iter().enumerate() {
            match evaluate(Evaluator::Legacy, &named.value, host) {
                Answer::Met => continue,
                Answer::Unknown(open) => {
                    let open: Vec<&str> = open.into_iter().map(Property::name).collect();
                    unknown.push(format!(
                        "{path}: whether {} is met depends on {}, which is not known",
                        named.variable,
                        open.join(" and ")
                    ));
                }
                Answer::Unmet => {
                    let gpu = machine.gpus.get(index).map(|gpu| gpu.name.as_str());
                    let mut unmet = unmet(path, named, (host, gpu), machine, matrix);
                    if !is_too_old {
                        unmet = unmet.fix(without_check());
                    }
                    findings.push(match &asked.not_disabled_by {
                        Some(word) => unmet.evidence(
                            "NVIDIA_DISABLE_REQUIRE",
                            format!("{word}: switches nothing off; 1 or true would"),
                            path,
                        ),
                        None => unmet,
                    });
                }
                Answer::Invalid(what) => {
                    findings.push(invalid(path, &named.variable, &named.value, &what));
                }
            }
            break;
        }
    }
}

/// A value that a host does not meet.
fn unmet(
    path: &str,
    named: &Named,
    (host, gpu): (&Host, Option<&str>),
    machine: &Machine,
    matrix: &Matrix,
) -> Finding {
    let driver = machine.driver.as_ref().map(ToString::to_string);
    let on = gpu.map_or_else(String::new, |gpu| format!(" with {gpu}"));
    let terms = nvidia_require::terms(&named.value);
    let first = terms
        .first()
        .map_or_else(|| named.value.clone(), |(term, _)| term.clone());
    let finding = Finding::new(
        "image-requirement-not-met",
        Layer::Driver,
        Severity::Error,
        format!(
            "driver {}{on} does not meet what {path} asks of its host: {first}",
            driver.clone().unwrap_or_default()
        ),
    )
    .subject(path)
    .complaining(Layer::Container)
    .component("nvidia-container-cli")
    .evidence(&named.variable, decisive(&named.value, &terms, host), path)
    .evidence("driver", driver.unwrap_or_default(), &machine.name)
    .detail(
        "`docker run --gpus all` refuses to start it: `unsatisfied condition`. In CDI mode nobody checks: it starts, and fails where it needs more than the driver has",
    )
    .source(SOURCE);
    with_ways(finding, ask::requirement_ways(matrix, &terms, host))
}

/// Starting an image whatever it asks.
fn without_check() -> Fix {
    Fix::at(
        Layer::Container,
        "start it without the check: `docker run --gpus all -e NVIDIA_DISABLE_REQUIRE=1 IMAGE` (`-e` of podman and nerdctl, `env` of a pod in Kubernetes)",
    )
    .second("nobody checks then; right only where CUDA's minor-version compatibility covers what the image runs")
}

/// The terms of a value that decide for a host: the first, and those of which one condition alone does not hold; and how many
/// more there are.
fn decisive(value: &str, terms: &[(String, Vec<Condition>)], host: &Host) -> String {
    const TOLD: usize = 3;
    let Some(((first, _), rest)) = terms.split_first() else {
        return value.to_owned();
    };
    let is_near = |conditions: &[Condition]| {
        let failing = conditions
            .iter()
            .filter(|condition| nvidia_require::holds(condition, host) == Some(false));
        failing.count() == 1
    };
    let near = rest.iter().filter(|(_, conditions)| is_near(conditions));
    let mut told: Vec<&str> = vec![first];
    told.extend(near.map(|(text, _)| text.as_str()).take(TOLD));
    let left = terms.len() - told.len();
    let told = told.join(" ");
    match left {
        0 => told,
        1 => format!("{told} (and 1 more term, not met either)"),
        n => format!("{told} (and {n} more terms, none of them met)"),
    }
}

/// A value that the legacy hook refuses to read.
fn invalid(path: &str, variable: &str, value: &str, what: &str) -> Finding {
    // The hook makes a requirement of the version first, and that fails before one is read.
    let said = if variable == "CUDA_VERSION" {
        "failed to get requirements"
    } else {
        "invalid expression"
    };
    Finding::new(
        "image-requirement-not-met",
        Layer::Container,
        Severity::Error,
        format!("{path} asks its host by {variable} for what cannot be read: {what}"),
    )
    .subject(path)
    .component("nvidia-container-cli")
    .evidence(variable, value, path)
    .detail(format!(
        "`docker run --gpus all` refuses to start it: `{said}`"
    ))
    .source(SOURCE)
    .fix(
        Fix::at(
            Layer::Container,
            format!("set {variable} anew in the Dockerfile, or empty it: `-e {variable}=`"),
        )
        .cost("rebuild"),
    )
}
