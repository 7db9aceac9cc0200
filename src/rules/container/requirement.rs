//! What the image asks of its host (`NVIDIA_REQUIRE_*`), held against the host that it runs on. In the CDI modes nobody
//! else does that: a container that the legacy hook would have refused starts, and dies later with another message.

use super::with_request;
use crate::ask::brand;
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::read::nvidia_require::{
    self, Answer, Condition, Evaluator, Host, HostValue, Lack, Named, Property, sure,
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
    let enroot = ctx.engine() == "enroot";
    let asked = if enroot {
        nvidia_require::requirements_in_enroot(env)
    } else {
        nvidia_require::requirements(env)
    };
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
            None => findings.extend(let_in_by_branch(ctx, named, &hosts, evaluator)),
        }
    }
    Outcome::found(findings)
}

/// The requirement is met by a branch alone: the image supposes its compat package, and without one in use the programs of a
/// newer major version of CUDA do not start.
fn let_in_by_branch(
    ctx: &Ctx<'_>,
    named: &Named,
    hosts: &[Host],
    evaluator: Evaluator,
) -> Option<Finding> {
    let met = |host: &&Host| nvidia_require::evaluate(evaluator, &named.value, host) == Answer::Met;
    if !hosts.iter().all(|host| met(&host)) || ctx.libcuda()?.is_compat() {
        return None;
    }
    let terms = nvidia_require::terms(&named.value);
    let wanted = Lack::of(&terms, hosts.first()?).cuda?;
    let has = Version::parse(sure(&hosts.first()?.cuda)?)?;
    if wanted.major() <= has.major() {
        return None;
    }
    let (driver, source) = ctx.facts.driver.loaded_version()?;
    let finding = Finding::new(
        "container-requirement-not-met",
        Layer::Container,
        Severity::Note,
        format!("this image is of CUDA {wanted}, and driver {driver} (CUDA {has}) is let in by its branch alone: no compat libcuda is in use"),
    )
    .subject(named.variable.clone())
    .component(named.variable.clone())
    .detail("The image lists branches on which its compat package (a newer libcuda) works. Programs of CUDA's newer major version start only with that package first on the loader's path, and on a GPU that may use it.")
    .evidence(named.variable.clone(), format!("cuda>={wanted}: not met"), "environment")
    .evidence("host's kernel module", driver.to_string(), source)
    .source("NVIDIA container toolkit and libnvidia-container sources: requirements and who checks them");
    Some(with_request(ctx, finding).fix(
        Fix::at(
            Layer::Container,
            format!("take an image of CUDA {has} or older, or one with the compat package of CUDA {wanted}"),
        )
        .verify("gpudoctor"),
    ))
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
                .map_or(HostValue::Unknown, |name| brand(ctx.matrix, name)),
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
                brand: brand(ctx.matrix, &ctx.gpu_name(gpu)),
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
    let lack = Lack::of(&terms, host);
    let wanted = lack.cuda.clone();
    let has = sure(&host.cuda);
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
    let what = if lack.is_of_driver() {
        format!("{driver}{shows}")
    } else {
        "the GPU here".to_owned()
    };
    let mut finding = Finding::new(
        "container-requirement-not-met",
        Layer::Container,
        severity,
        format!("{what} does not meet what this image asks for: {first}"),
    )
    .subject(named.variable.clone())
    .component(named.variable.clone())
    .detail(if !lack.is_of_driver() {
        "What is asked is asked of the GPU, and no driver changes that. NVIDIA's legacy hook would have refused to start this container; in the CDI modes, with Apptainer and with mounts by hand nobody looks at the requirement."
    } else if runs {
        "The image was made for a newer driver. Within a major version of CUDA its programs run all the same, but for what the newer driver alone can do; a host whose toolkit works in legacy mode refuses to start it."
    } else if wanted.is_some() {
        "NVIDIA's legacy hook would have refused to start this container. In the CDI modes, with Apptainer and with mounts by hand nobody looks at the requirement, and the program fails later, often with error 35 (driver version is insufficient)."
    } else {
        "NVIDIA's legacy hook would have refused to start this container. In the CDI modes, with Apptainer and with mounts by hand nobody looks at the requirement."
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
    fixes(ctx, with_request(ctx, finding), &lack, has, runs)
}

/// What would satisfy it: another driver, another image, another GPU; and where it runs anyway, no check.
fn fixes(ctx: &Ctx<'_>, finding: Finding, lack: &Lack, has: Option<&str>, runs: bool) -> Finding {
    let mut finding = finding;
    let place = ctx
        .hands_off()
        .map_or_else(String::new, |place| format!(" {place}"));
    let reboot = |fix: Fix| fix.cost("root on the host, reboot").verify("gpudoctor");
    let branches: Vec<String> = lack.branches.iter().map(u32::to_string).collect();
    if let Some(wanted) = &lack.cuda {
        let branch = ctx
            .matrix
            .first_branch_of_level(wanted.cuda_level())
            .map_or_else(String::new, |row| {
                format!(" (branch {} or newer)", row.branch)
            });
        let others = if branches.is_empty() {
            String::new()
        } else {
            format!(
                "; with the compat package in the image one of branch {} does too",
                in_words(&branches)
            )
        };
        finding = finding.fix(reboot(Fix::at(
            Layer::Driver,
            format!("take a driver of CUDA {wanted}{branch}{place}{others}"),
        )));
    } else if !branches.is_empty() {
        finding = finding.fix(reboot(Fix::at(
            Layer::Driver,
            format!(
                "take a driver of branch {}{place}",
                in_words(&branches).replace(" and ", " or ")
            ),
        )));
    } else if !lack.driver.is_empty() {
        finding = finding.fix(reboot(Fix::at(
            Layer::Driver,
            format!(
                "take a driver for which {} holds{place}",
                in_words(&lack.driver).replace(" and ", " or ")
            ),
        )));
    } else if !lack.gpu.is_empty() {
        finding = finding.fix(
            Fix::at(
                Layer::Hardware,
                format!(
                    "run it where there is a GPU for which {} holds",
                    in_words(&lack.gpu).replace(" and ", " or ")
                ),
            )
            .verify("gpudoctor"),
        );
    }
    let older = match (&lack.cuda, has) {
        (Some(_), Some(has)) => format!("or take an image of CUDA {has} or older"),
        _ => "or take an image that asks for what this host has".to_owned(),
    };
    finding = finding.fix(
        Fix::at(Layer::Container, older)
            .second("leaves the host as it is")
            .verify("gpudoctor"),
    );
    if runs {
        finding = finding.fix(
            Fix::at(Layer::Container, "or set NVIDIA_DISABLE_REQUIRE=1 where a host refuses to start it: programs of this major version of CUDA run on this driver")
                .second("hides what the image knows of its own needs"),
        );
    }
    finding
}
