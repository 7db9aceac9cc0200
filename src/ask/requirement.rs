//! Whether a described host does what an image asks of it: a value of `NVIDIA_REQUIRE_CUDA` against driver and GPUs.

use super::gpus::{self, Meant};
use super::{Answer, Cited, Question, Way, WayKind, Word, in_words};
use crate::facts::Layer;
use crate::matrix::{Confidence, Matrix};
use crate::read::nvidia_require::{
    self, Answer as Verdict, Condition, Evaluator, Host, HostValue, Operator, Property, evaluate,
};
use crate::target::{self, Target};
use crate::version::Version;

/// Who says how a value is read.
const SOURCE: &str = "libnvidia-container and NVIDIA container toolkit sources: requirements";

/// Whether the target meets a requirement, as `nvidia-container-cli` reads it.
///
/// # Errors
/// Where the target says neither driver nor GPU, or a driver of Windows.
pub fn requirement(matrix: &Matrix, value: &str, target: &Target) -> Result<Answer, String> {
    if target.driver.is_none() && target.gpus.is_empty() {
        return Err(
            "the target names neither driver= nor gpu=, and a requirement is about these"
                .to_owned(),
        );
    }
    if target
        .os
        .as_ref()
        .is_some_and(target::Os::has_windows_driver)
    {
        return Err(
            "a driver of Windows has numbers of another line than requirements are about"
                .to_owned(),
        );
    }
    let meant: Vec<Meant> = target
        .gpus
        .iter()
        .map(|gpu| gpus::meant(matrix, gpu))
        .collect();
    let driver = match &target.driver {
        Some(target::Driver::Version(version)) => Some(version),
        Some(target::Driver::None) | None => None,
    };
    let hosts = hosts(matrix, driver, &meant);
    // Every GPU has to pass: the first that does not decides.
    let verdicts: Vec<(&Host, Verdict)> = hosts
        .iter()
        .map(|host| (host, evaluate(Evaluator::Legacy, value, host)))
        .collect();
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Invalid(_) => 0,
        Verdict::Unmet => 1,
        Verdict::Unknown(_) => 2,
        Verdict::Met => 3,
    };
    let Some((host, verdict)) = verdicts.iter().min_by_key(|(_, verdict)| rank(verdict)) else {
        return Err("the target names no host".to_owned());
    };
    let terms = nvidia_require::terms(value);
    let first = terms.first().map_or(value, |(text, _)| text.as_str());
    let (word, summary) = match verdict {
        Verdict::Met => (
            Word::Yes,
            format!("the host meets the requirement: {}", met(&terms, host)),
        ),
        Verdict::Unmet => (
            Word::No,
            format!("the host does not meet the requirement: {first}"),
        ),
        Verdict::Invalid(what) => (
            Word::No,
            format!(
                "the legacy hook refuses to read the requirement at `{what}`: invalid expression"
            ),
        ),
        Verdict::Unknown(open) => {
            let names: Vec<String> = open.iter().map(|p| p.name().to_owned()).collect();
            (
                Word::Unknown,
                format!(
                    "it hangs on {} of the host, which the target does not tell",
                    in_words(&names)
                ),
            )
        }
    };
    let question = Question::Requirement {
        requirement: value.to_owned(),
        driver: target.driver.clone(),
        gpus: target.gpus.clone(),
    };
    let mut answer = Answer::new(question, word, summary);
    for (text, conditions) in &terms {
        let failing: Vec<String> = conditions
            .iter()
            .filter(|condition| nvidia_require::holds(condition, host) == Some(false))
            .map(|condition| condition.text.clone())
            .collect();
        let open = conditions
            .iter()
            .any(|condition| nvidia_require::holds(condition, host).is_none());
        let state = match (failing.is_empty(), open) {
            (false, _) => format!("not met: {}", in_words(&failing)),
            (true, true) => "not known".to_owned(),
            (true, false) => "met".to_owned(),
        };
        answer.why.push(Cited::rule(
            format!("{text}: {state}"),
            SOURCE,
            Confidence::Verified,
        ));
    }
    let csv = evaluate(Evaluator::Csv, value, host);
    if rank(&csv) != rank(verdict) {
        let says = match csv {
            Verdict::Met => "takes it",
            Verdict::Unmet => "does not take it: it knows cuda and arch only",
            Verdict::Invalid(_) => "refuses to read it: it reads everything first",
            Verdict::Unknown(_) => "cannot tell",
        };
        answer.limits.push(Cited::rule(
            format!("the csv mode of a Jetson {says}"),
            SOURCE,
            Confidence::Verified,
        ));
    }
    answer.limits.push(Cited::rule("in the CDI modes, which are the default of the runtime since toolkit 1.18, nobody checks it: the container starts", SOURCE, Confidence::Verified));
    if *verdict == Verdict::Unmet {
        answer.layer = Some(Layer::Container);
        answer.ways = ways(matrix, &terms, host);
    }
    answer.gpus = meant;
    Ok(answer.weighed())
}

/// The term that is met.
fn met(terms: &[(String, Vec<Condition>)], host: &Host) -> String {
    let holds = |conditions: &[Condition]| {
        conditions
            .iter()
            .all(|condition| nvidia_require::holds(condition, host) == Some(true))
    };
    terms
        .iter()
        .find(|(_, conditions)| holds(conditions))
        .map_or_else(|| "nothing is asked".to_owned(), |(text, _)| text.clone())
}

/// A host of this driver, once for each of its GPUs.
pub(crate) fn hosts(matrix: &Matrix, driver: Option<&Version>, meant: &[Meant]) -> Vec<Host> {
    let base = Host {
        cuda: driver
            .and_then(|version| matrix.cuda_level_of(version))
            .map_or(HostValue::Unknown, |(level, _)| {
                HostValue::is(Version::from_cuda_level(level).major_minor())
            }),
        // A branch alone is any build of it.
        driver: match driver {
            Some(version) if version.len() == 1 => {
                HostValue::OneOf(vec![version.to_string(), format!("{version}.999")])
            }
            Some(version) => HostValue::is(version.to_string()),
            None => HostValue::Unknown,
        },
        ..Host::default()
    };
    if meant.is_empty() {
        return vec![base];
    }
    meant
        .iter()
        .map(|gpu| {
            let archs: Vec<String> = gpu
                .kinds
                .iter()
                .filter_map(|kind| kind.capability)
                .map(|(major, minor)| format!("{major}.{minor}"))
                .collect();
            Host {
                arch: if archs.is_empty() {
                    HostValue::Unknown
                } else {
                    HostValue::OneOf(archs)
                },
                brand: match gpu.kinds.as_slice() {
                    [one] => brand(matrix, &one.name),
                    _ => brand(matrix, &gpu.asked),
                },
                ..base.clone()
            }
        })
        .collect()
}

/// The brand of a GPU by its name. Data-center boards have no word of their line in it: older drivers call them Tesla, newer
/// ones NVIDIA.
fn brand(matrix: &Matrix, name: &str) -> HostValue {
    match nvidia_require::brands_of(name) {
        HostValue::Unknown if matrix.compat_eligible(name) == Some(true) => {
            HostValue::OneOf(vec!["nvidia".to_owned(), "tesla".to_owned()])
        }
        brand => brand,
    }
}

/// What would satisfy it: a newer driver, an older image.
pub(crate) fn ways(matrix: &Matrix, terms: &[(String, Vec<Condition>)], host: &Host) -> Vec<Way> {
    let wanted = terms
        .iter()
        .find_map(|(_, conditions)| match conditions.as_slice() {
            [only]
                if only.property == Property::Cuda && only.operator == Operator::GreaterEqual =>
            {
                Version::parse(&only.operand)
            }
            _ => None,
        });
    let mut ways = Vec::new();
    if let Some(wanted) = wanted {
        let row = matrix.first_branch_of_level(wanted.cuda_level());
        let branch = row.map_or_else(String::new, |row| {
            format!(": branch {} or newer", row.branch)
        });
        ways.push(Way {
            kind: WayKind::Driver,
            layer: Layer::Driver,
            open: Some(true),
            summary: format!("a driver of CUDA {wanted}{branch}"),
            cost: "root, reboot",
            why_second: None,
            why_not: None,
            verify: Some("gpudoctor"),
            rows: row
                .map(|row| {
                    Cited::row(
                        format!(
                            "branch {} is of CUDA {}",
                            row.branch,
                            Version::from_cuda_level(row.level)
                        ),
                        "driver_branch",
                        row.branch,
                        &row.source,
                        row.confidence,
                    )
                })
                .into_iter()
                .collect(),
        });
    }
    if let HostValue::OneOf(values) = &host.cuda
        && let [has] = values.as_slice()
    {
        ways.push(Way {
            kind: WayKind::Build,
            layer: Layer::Container,
            open: Some(true),
            summary: format!("an image of CUDA {has} or older"),
            cost: "",
            why_second: Some("leaves the host as it is".to_owned()),
            why_not: None,
            verify: Some("gpudoctor"),
            rows: Vec::new(),
        });
    }
    ways
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(value: &str, target: &str) -> Answer {
        requirement(&Matrix::bundled(), value, &target.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_geforce_needs_the_very_level_and_a_tesla_has_a_branch() {
        let image =
            "cuda>=12.8 brand=tesla,driver>=550,driver<551 brand=nvidia,driver>=550,driver<551";
        let word = |target: &str| asked(image, target).answer;
        assert_eq!(word("driver=550.54.14,gpu=RTX 4090"), Word::No);
        assert_eq!(word("driver=570.86.10,gpu=RTX 4090"), Word::Yes);
        assert_eq!(word("driver=535,gpu=RTX 4090"), Word::No);
        assert_eq!(asked("driver>=535.100", "driver=535").answer, Word::Unknown);
        assert_eq!(asked("driver>=535", "driver=535").answer, Word::Yes);
        assert_eq!(asked("arch>=9.0", "gpu=A100").answer, Word::No);
        assert_eq!(word("driver=550.54.14,gpu=A100"), Word::Yes);
        assert_eq!(word("driver=550.54.14,gpu=sm_80"), Word::Unknown);
        let answer = asked(image, "driver=550.54.14,gpu=RTX 4090");
        assert!(
            answer
                .ways
                .iter()
                .any(|way| way.summary.contains("branch 570")),
            "{answer:#?}"
        );
        assert_eq!(asked("cuda>=.0", "driver=580").answer, Word::No);
    }
}
