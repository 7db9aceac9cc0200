//! What the image asks of its host (`NVIDIA_REQUIRE_*`), held against the host that it runs on. In the CDI modes nobody
//! else does that: a container that the legacy hook would have refused starts, and dies later with another message.

use super::with_request;
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::read::nvidia_require::{
    self, Answer, Condition, Evaluator, Host, HostValue, Named, Operator, Property,
};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};
use crate::version::Version;

/// Terms that are told of one value.
const TERMS_TOLD: usize = 6;

pub(super) fn container_requirement_not_met(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container() {
        return Outcome::Clean;
    }
    let env = known!(ctx.facts.environment, "environment");
    let asked = nvidia_require::requirements(env);
    // Without the driver's libraries nothing runs here, whatever the image asks.
    if asked.disabled || ctx.real_libcuda().is_none() {
        return Outcome::Clean;
    }
    let hosts = hosts(ctx);
    let evaluator = if ctx.on_tegra() {
        Evaluator::Csv
    } else {
        Evaluator::Legacy
    };
    let mut findings = Vec::new();
    if let Some(version) = &asked.broken_cuda_version {
        findings.push(unreadable(ctx, "CUDA_VERSION", version, version));
    }
    for named in &asked.values {
        let unmet = hosts
            .iter()
            .map(|host| {
                (
                    host,
                    nvidia_require::evaluate(evaluator, &named.value, host),
                )
            })
            .find(|(_, answer)| matches!(answer, Answer::Unmet | Answer::Invalid(_)));
        match unmet {
            Some((_, Answer::Invalid(what))) => {
                findings.push(unreadable(ctx, &named.variable, &named.value, &what));
            }
            Some((host, _)) => {
                let finding = not_met(ctx, named, host);
                findings.push(match &asked.not_disabled_by {
                    Some(word) => finding.evidence(
                        "NVIDIA_DISABLE_REQUIRE",
                        format!("{word}: switches nothing off; 1 or true would"),
                        "environment",
                    ),
                    None => finding,
                });
            }
            None => {}
        }
    }
    Outcome::found(findings)
}

/// This host with each of the GPUs that the container may use.
fn hosts(ctx: &Ctx<'_>) -> Vec<Host> {
    let level = ctx
        .real_libcuda()
        .filter(|copy| !copy.is_compat())
        .and_then(|_| ctx.driver_level())
        .map(|(level, _)| level)
        .or_else(|| {
            let loaded = ctx.loaded_version().filter(|_| ctx.plain_linux())?;
            ctx.matrix.cuda_level_of(loaded).map(|(level, _)| level)
        });
    let base = Host {
        cuda: level.map_or(HostValue::Unknown, |level| {
            HostValue::is(Version::from_cuda_level(level).major_minor())
        }),
        driver: ctx
            .loaded_version()
            .filter(|_| ctx.plain_linux())
            .map_or(HostValue::Unknown, |version| {
                HostValue::is(version.as_str())
            }),
        ..Host::default()
    };
    let devices = [ctx.cuda_answers(), ctx.nvml_answers()]
        .into_iter()
        .flatten()
        .find(|answers| !answers.devices.is_empty())
        .map_or(&[][..], |answers| answers.devices.as_slice());
    let mut hosts: Vec<Host> = devices
        .iter()
        .map(|device| Host {
            arch: device
                .capability
                .map_or(HostValue::Unknown, |(major, minor)| {
                    HostValue::is(format!("{major}.{minor}"))
                }),
            brand: device
                .name
                .as_deref()
                .map_or(HostValue::Unknown, nvidia_require::brands_of),
            ..base.clone()
        })
        .collect();
    // Without an answer the host's own list says which GPUs it may be.
    if hosts.is_empty() {
        hosts.extend(ctx.gpus().map(|gpu| {
            Host {
                arch: ctx
                    .gpu(gpu)
                    .and_then(|gpu| gpu.capability)
                    .map_or(HostValue::Unknown, |(major, minor)| {
                        HostValue::is(format!("{major}.{minor}"))
                    }),
                brand: nvidia_require::brands_of(&ctx.gpu_name(gpu)),
                ..base.clone()
            }
        }));
        hosts.dedup();
        // Which of several different ones this container has is not known.
        if hosts.len() > 1 {
            hosts.clear();
        }
    }
    if hosts.is_empty() {
        hosts.push(base);
    }
    hosts
}

/// A value that the legacy hook refuses to read.
fn unreadable(ctx: &Ctx<'_>, variable: &str, value: &str, what: &str) -> Finding {
    let title = if variable == "CUDA_VERSION" {
        format!(
            "CUDA_VERSION is no version ({value}), and the image asks of its host by it: NVIDIA's legacy hook refuses to start it"
        )
    } else {
        format!(
            "{variable} cannot be read at `{what}`: NVIDIA's legacy hook refuses to start this image"
        )
    };
    with_request(
        ctx,
        Finding::new(
            "container-requirement-not-met",
            Layer::Container,
            Severity::Note,
            title,
        )
        .subject(variable)
        .component(variable)
        .detail("Here it runs, since nobody checked it on the way in. On a host whose toolkit works in legacy mode (docker run --gpus) the same image stops with `invalid expression` or `failed to get requirements`.")
        .evidence(variable, value, "environment"),
    )
    .fix(Fix::at(Layer::Container, format!("correct {variable} in the Dockerfile of the image")).cost("rebuild of the image"))
    .source("libnvidia-container and NVIDIA container toolkit sources: requirements")
}

fn not_met(ctx: &Ctx<'_>, named: &Named, host: &Host) -> Finding {
    let terms = nvidia_require::terms(&named.value);
    let failing: Vec<(&str, Vec<&Condition>)> = terms
        .iter()
        .map(|(text, conditions)| {
            let failing = conditions
                .iter()
                .filter(|condition| nvidia_require::holds(condition, host) == Some(false));
            (text.as_str(), failing.collect())
        })
        .collect();
    let first = failing
        .first()
        .map_or(named.value.as_str(), |(text, _)| *text);
    let wanted = wanted_cuda(&terms);
    let has = one(&host.cuda);
    // The same major version runs by minor-version compatibility, whatever the image says.
    let runs = wanted
        .as_ref()
        .zip(has.and_then(Version::parse))
        .is_some_and(|(wanted, has)| wanted.major() == has.major())
        && failing
            .first()
            .is_some_and(|(_, failing)| failing.iter().all(|c| c.property == Property::Cuda));
    let compat = ctx
        .libcuda()
        .is_some_and(crate::facts::LibraryCopy::is_compat);
    let severity = if runs || compat {
        Severity::Note
    } else {
        Severity::Warning
    };
    let driver = ctx
        .loaded_version()
        .map_or_else(|| "the driver here".to_owned(), |v| format!("driver {v}"));
    let shows = has.map_or_else(String::new, |has| format!(" (CUDA {has})"));
    let mut finding = Finding::new(
        "container-requirement-not-met",
        Layer::Container,
        severity,
        format!("{driver}{shows} does not meet what this image asks for: {first}"),
    )
    .subject(named.variable.clone())
    .component(named.variable.clone())
    .detail(if runs {
        "The image was made for a newer driver. Within a major version of CUDA its programs run all the same, but for what the newer driver alone can do; a host whose toolkit works in legacy mode refuses to start it."
    } else {
        "NVIDIA's legacy hook would have refused to start this container. In the CDI modes, with Apptainer and with mounts by hand nobody looks at the requirement, and the program fails later, often with error 35 (driver version is insufficient)."
    })
    .evidence(named.variable.clone(), first, "environment")
    .source("NVIDIA container toolkit and libnvidia-container sources: requirements and who checks them");
    if let Some((version, source)) = ctx.facts.driver.loaded_version() {
        finding = finding.evidence("host's kernel module", version.to_string(), source);
    }
    for (text, conditions) in failing.iter().take(TERMS_TOLD) {
        let unmet: Vec<String> = conditions.iter().map(|c| c.text.clone()).collect();
        if !unmet.is_empty() {
            finding = finding.evidence(
                format!("term {text}"),
                format!("not met: {}", in_words(&unmet)),
                named.variable.clone(),
            );
        }
    }
    if failing.len() > TERMS_TOLD {
        let more = failing.len() - TERMS_TOLD;
        finding = finding.evidence(
            "terms",
            format!("{more} more, none of them met"),
            named.variable.clone(),
        );
    }
    if let Some(glue) = ctx.facts.container.glue.value() {
        finding = finding.evidence(
            "how the driver came in",
            glue.injection.words(),
            ctx.facts.container.glue.source(),
        );
    }
    fixes(
        ctx,
        with_request(ctx, finding),
        &failing,
        wanted.as_ref(),
        has,
        runs,
    )
}

/// What would satisfy it: another driver, another image; and where it runs anyway, no check.
fn fixes(
    ctx: &Ctx<'_>,
    finding: Finding,
    failing: &[(&str, Vec<&Condition>)],
    wanted: Option<&Version>,
    has: Option<&str>,
    runs: bool,
) -> Finding {
    let mut finding = finding;
    let place = ctx
        .hands_off()
        .map_or_else(String::new, |place| format!(" {place}"));
    if let Some(wanted) = wanted {
        let branch = ctx
            .matrix
            .first_branch_of_level(wanted.cuda_level())
            .map_or_else(String::new, |row| {
                format!(" (branch {} or newer)", row.branch)
            });
        let others = branches_that_do(failing);
        let others = if others.is_empty() {
            String::new()
        } else {
            format!(
                "; with the compat package in the image one of branch {} does too",
                in_words(&others)
            )
        };
        finding = finding.fix(
            Fix::at(
                Layer::Driver,
                format!("take a driver of CUDA {wanted}{branch}{place}{others}"),
            )
            .cost("root on the host, reboot")
            .verify("gpudoctor"),
        );
    }
    if let Some(has) = has {
        finding = finding.fix(
            Fix::at(
                Layer::Container,
                format!("or take an image of CUDA {has} or older"),
            )
            .second("leaves the host as it is")
            .verify("gpudoctor"),
        );
    }
    if runs {
        finding = finding.fix(
            Fix::at(Layer::Container, "or set NVIDIA_DISABLE_REQUIRE=1 where a host refuses to start it: programs of this major version of CUDA run on this driver")
                .second("hides what the image knows of its own needs"),
        );
    }
    finding
}

/// The one value of a host, where it is sure.
fn one(value: &HostValue) -> Option<&str> {
    match value {
        HostValue::OneOf(values) => match values.as_slice() {
            [value] => Some(value),
            _ => None,
        },
        HostValue::Unknown | HostValue::NoGpu => None,
    }
}

/// The CUDA version that a term asks for and nothing else does.
fn wanted_cuda(terms: &[(String, Vec<Condition>)]) -> Option<Version> {
    terms
        .iter()
        .find_map(|(_, conditions)| match conditions.as_slice() {
            [only]
                if only.property == Property::Cuda && only.operator == Operator::GreaterEqual =>
            {
                Version::parse(&only.operand)
            }
            _ => None,
        })
}

/// Branches of which a driver alone is missing: terms whose other conditions hold.
fn branches_that_do(failing: &[(&str, Vec<&Condition>)]) -> Vec<String> {
    let mut branches: Vec<String> = failing
        .iter()
        .filter(|(text, conditions)| {
            text.contains("brand") && conditions.iter().all(|c| c.property == Property::Driver)
        })
        .filter_map(|(text, _)| {
            let from = text.split(',').find_map(|c| c.strip_prefix("driver>="))?;
            Version::parse(from).map(|version| version.major().to_string())
        })
        .collect();
    branches.dedup();
    branches
}
