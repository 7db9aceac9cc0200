//! Whether a described host does what an image asks of it: `NVIDIA_REQUIRE_*` and what goes with it against driver and GPUs.

use std::collections::BTreeMap;

use super::gpus::{self, Meant};
use super::{Answer, Cited, Question, Way, WayKind, Word, in_words};
use crate::facts::Layer;
use crate::matrix::{Confidence, Matrix};
use crate::read::nvidia_require::{
    self, Answer as Verdict, Condition, Evaluator, Host, HostValue, Lack, Named, Property,
    evaluate, lone_cuda, sure,
};
use crate::target::{self, Target};
use crate::version::Version;

/// Who says how a value is read.
const SOURCE: &str = "libnvidia-container and NVIDIA container toolkit sources: requirements";
/// Terms that a short answer tells.
const TERMS_TOLD: usize = 6;

/// A value with one of the target's GPUs, and what the legacy hook makes of it.
type Judged<'a> = (&'a Named, &'a Host, Verdict);

/// Whether the target meets what these variables ask, as `nvidia-container-cli` reads them. `here`: the target is this machine.
///
/// # Errors
/// Where the target says neither driver nor GPU, or a driver of Windows.
pub fn requirement(
    matrix: &Matrix,
    variables: &BTreeMap<String, String>,
    target: &Target,
    here: bool,
) -> Result<Answer, String> {
    if target.driver.is_none() && target.gpus.is_empty() {
        return Err(if here {
            "neither a driver nor a GPU of NVIDIA's is seen on this machine: --target describes another one, such as --target driver=550.54.14,gpu=A100"
        } else {
            "the target names neither driver= nor gpu=, and a requirement is about these"
        }
        .to_owned());
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
    let asked = nvidia_require::requirements(variables);
    let hosts = hosts(matrix, driver, &meant);
    // Every GPU has to pass every variable: the first that does not decides.
    let judged: Vec<Judged<'_>> = asked
        .values
        .iter()
        .flat_map(|named| hosts.iter().map(move |host| (named, host)))
        .map(|(named, host)| (named, host, evaluate(Evaluator::Legacy, &named.value, host)))
        .collect();
    let question = Question::Requirement {
        requirement: judged
            .first()
            .map_or_else(String::new, |(named, ..)| named.value.clone()),
        variables: variables.clone(),
        driver: target.driver.clone(),
        gpus: target.gpus.clone(),
    };
    let worst = judged.iter().min_by_key(|(_, _, verdict)| rank(verdict));
    let mut answer = match (&asked.broken_cuda_version, worst) {
        (Some(version), _) => Answer::new(
            question,
            Word::No,
            format!(
                "CUDA_VERSION is no version ({version}), and an image without NVIDIA_REQUIRE_CUDA asks by it: the legacy hook fails with `failed to get requirements`"
            ),
        ),
        (None, Some((named, host, verdict))) => {
            let mut answer = of_value(matrix, question, (named, host, verdict), &meant, here);
            if asked.values.len() > 1 {
                answer.summary = format!("{}: {}", named.variable, answer.summary);
            }
            answer
        }
        (None, None) => Answer::new(
            question,
            Word::Yes,
            "nothing is asked of the host".to_owned(),
        ),
    };
    let decided = worst.map(|(named, ..)| &named.variable);
    for named in &asked.values {
        if Some(&named.variable) == decided {
            continue;
        }
        let of_it = judged.iter().filter(|(other, ..)| *other == named);
        let worst = of_it.map(|(_, _, verdict)| verdict).min_by_key(|v| rank(v));
        answer.limits.extend(worst.map(|verdict| {
            rule(format!(
                "{} asks for {}: {}",
                named.variable,
                first_term(&named.value),
                match verdict {
                    Verdict::Met => "met",
                    Verdict::Unmet => "not met either",
                    Verdict::Invalid(_) => "cannot be read",
                    Verdict::Unknown(_) => "not known",
                }
            ))
        }));
    }
    if asked.legacy_image && asked.broken_cuda_version.is_none() {
        answer.limits.push(rule(
            "CUDA_VERSION asks since NVIDIA_REQUIRE_CUDA is not set: it knows no branches and no minor-version compatibility".to_owned(),
        ));
    }
    if let Some(word) = &asked.not_disabled_by {
        answer.limits.push(rule(format!(
            "NVIDIA_DISABLE_REQUIRE={word} switches nothing off: 1, t or true does; in enroot any word"
        )));
    }
    answer.limits.push(rule("in the CDI modes, which are the default of the runtime since toolkit 1.18, nobody checks it: the container starts".to_owned()));
    if asked.disabled {
        let without = match answer.answer {
            Word::Yes => format!("yes all the same: {}", answer.summary),
            Word::No => format!("no: {}", answer.summary),
            Word::Unknown | Word::Known => format!("unknown: {}", answer.summary),
        };
        let word = variables
            .get("NVIDIA_DISABLE_REQUIRE")
            .map_or("", String::as_str);
        answer.answer = Word::Yes;
        answer.summary = format!("nobody checks: NVIDIA_DISABLE_REQUIRE={word} switches it off");
        answer.layer = None;
        answer
            .limits
            .insert(0, rule(format!("without it, {without}")));
    }
    answer.gpus = meant;
    Ok(answer.weighed())
}

/// What is worst comes first.
fn rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Invalid(_) => 0,
        Verdict::Unmet => 1,
        Verdict::Unknown(_) => 2,
        Verdict::Met => 3,
    }
}

fn rule(text: String) -> Cited {
    Cited::rule(text, SOURCE, Confidence::Verified)
}

fn first_term(value: &str) -> String {
    let terms = nvidia_require::terms(value);
    terms
        .into_iter()
        .next()
        .map_or_else(|| value.to_owned(), |(text, _)| text)
}

/// The answer for one value on one host.
fn of_value(
    matrix: &Matrix,
    question: Question,
    (named, host, verdict): (&Named, &Host, &Verdict),
    meant: &[Meant],
    here: bool,
) -> Answer {
    let terms = nvidia_require::terms(&named.value);
    let lack = Lack::of(&terms, host);
    let mut decisive: Vec<&str> = Vec::new();
    let (word, summary) = match verdict {
        Verdict::Met => {
            decisive = met(&terms, host);
            let by = match decisive.as_slice() {
                [] if terms.is_empty() => "nothing is asked".to_owned(),
                // A term of commas alone, or a blank value.
                [] => "the hook stops reading before anything fails".to_owned(),
                [one] => (*one).to_owned(),
                some => format!(
                    "{}, by the brand that the driver gives the GPU",
                    some.join(" or ")
                ),
            };
            (Word::Yes, format!("the host meets the requirement: {by}"))
        }
        Verdict::Unmet => {
            let first = first_term(&named.value);
            (
                Word::No,
                format!("the host does not meet the requirement: {first}"),
            )
        }
        Verdict::Invalid(what) => (
            Word::No,
            format!(
                "the legacy hook refuses to read the requirement at `{what}`: invalid expression"
            ),
        ),
        Verdict::Unknown(open) => (Word::Unknown, hangs_on(open, meant, here)),
    };
    let mut answer = Answer::new(question, word, summary);
    let mut told = Vec::new();
    for (text, conditions) in &terms {
        let (state, weight) = state_of(conditions, host);
        let decides = decisive.contains(&text.as_str()) || lone_cuda(conditions).is_some();
        let weight = if decides { 0 } else { weight };
        told.push((weight, rule(format!("{text}: {state}"))));
    }
    // What decides first, and of the rest what is nearest to it.
    told.sort_by_key(|(weight, _)| *weight);
    let worth = u8::from(*verdict == Verdict::Unmet);
    let nearest = told.iter().filter(|(weight, _)| *weight <= worth).count();
    answer.decisive = nearest.clamp(1, TERMS_TOLD);
    answer.why = told.into_iter().map(|(_, cited)| cited).collect();
    if *verdict == Verdict::Met
        && let Some(wanted) = &lack.cuda
    {
        answer.limits.push(by_branch(wanted, host, meant));
    }
    let csv = evaluate(Evaluator::Csv, &named.value, host);
    if rank(&csv) != rank(verdict) {
        let says = match csv {
            Verdict::Met => "takes it",
            Verdict::Unmet => "does not take it: it knows cuda and arch only",
            Verdict::Invalid(_) => "refuses to read it: it reads everything first",
            Verdict::Unknown(_) => "cannot tell",
        };
        answer
            .limits
            .push(rule(format!("the csv mode of a Jetson {says}")));
    }
    if *verdict == Verdict::Unmet {
        answer.layer = Some(Layer::Container);
        answer.ways = ways(matrix, &terms, host);
    }
    answer
}

/// How a term stands on a host, and how near it is to being met: 0 where nothing is known to be against it, 1 where only the
/// number of the driver is.
fn state_of(conditions: &[Condition], host: &Host) -> (String, u8) {
    let failing: Vec<&Condition> = conditions
        .iter()
        .filter(|condition| nvidia_require::holds(condition, host) == Some(false))
        .collect();
    let open = conditions
        .iter()
        .any(|condition| nvidia_require::holds(condition, host).is_none());
    let texts: Vec<String> = failing.iter().map(|c| c.text.clone()).collect();
    let of_driver = failing.iter().all(|c| c.property == Property::Driver);
    match (failing.is_empty(), open) {
        (false, _) => (
            format!("not met: {}", in_words(&texts)),
            if of_driver { 1 } else { 2 },
        ),
        (true, true) => ("not known".to_owned(), 0),
        (true, false) => ("met".to_owned(), 0),
    }
}

/// On what it hangs, and who could say.
fn hangs_on(open: &[Property], meant: &[Meant], here: bool) -> String {
    let names: Vec<String> = open.iter().map(|p| p.name().to_owned()).collect();
    let names = in_words(&names);
    if here {
        return format!("it hangs on {names} of the host, which could not be told here");
    }
    let of_gpu = open
        .iter()
        .any(|p| matches!(p, Property::Arch | Property::Brand));
    let hint = match meant {
        _ if !of_gpu => "",
        [] => ": gpu=A100 would name a GPU",
        _ => ": a product such as gpu=A100 says more than an architecture",
    };
    format!("it hangs on {names} of the host, which the target does not tell{hint}")
}

/// The terms that are met: the first one that surely is, else those of which one is, whatever brand it is of.
fn met<'a>(terms: &'a [(String, Vec<Condition>)], host: &Host) -> Vec<&'a str> {
    let holds = |condition: &Condition| nvidia_require::holds(condition, host);
    let sure = terms
        .iter()
        .find(|(_, conditions)| conditions.iter().all(|c| holds(c) == Some(true)));
    if let Some((text, _)) = sure {
        return vec![text];
    }
    terms
        .iter()
        .filter(|(_, conditions)| conditions.iter().all(|c| holds(c) != Some(false)))
        .map(|(text, _)| text.as_str())
        .collect()
}

/// What it means that a branch is let in whose CUDA version is too low.
fn by_branch(wanted: &Version, host: &Host, meant: &[Meant]) -> Cited {
    let has = sure(&host.cuda).map_or_else(String::new, |has| format!(" of CUDA {has}"));
    let refused: Vec<String> = meant
        .iter()
        .flat_map(|gpu| &gpu.kinds)
        .filter(|kind| kind.compat_eligible == Some(false))
        .map(|kind| kind.name.clone())
        .collect();
    let refused = if refused.is_empty() {
        String::new()
    } else {
        format!("; {} may not use it (error 804)", in_words(&refused))
    };
    rule(format!(
        "it is the branch that is let in, not the CUDA version: on a driver{has} programs of CUDA {wanted} need the compat package in the image and a GPU that may use it, or run within a major version by minor-version compatibility{refused}"
    ))
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
pub(crate) fn brand(matrix: &Matrix, name: &str) -> HostValue {
    match nvidia_require::brands_of(name) {
        HostValue::Unknown if matrix.compat_eligible(name) == Some(true) => {
            HostValue::OneOf(vec!["nvidia".to_owned(), "tesla".to_owned()])
        }
        brand => brand,
    }
}

/// What would satisfy it: another driver, an older image, the compat package on a branch that the image names, another GPU.
pub(crate) fn ways(matrix: &Matrix, terms: &[(String, Vec<Condition>)], host: &Host) -> Vec<Way> {
    let lack = Lack::of(terms, host);
    let mut ways = Vec::new();
    if let Some(wanted) = &lack.cuda {
        ways.push(newer_driver(matrix, wanted));
        if let Some(has) = sure(&host.cuda) {
            let mut way = Way::new(
                WayKind::Build,
                Layer::Container,
                Some(true),
                format!("an image of CUDA {has} or older"),
            );
            way.why_second = Some("leaves the host as it is".to_owned());
            way.verify = Some("gpudoctor");
            ways.push(way);
        }
    }
    if !lack.branches.is_empty() {
        let branches: Vec<String> = lack.branches.iter().map(u32::to_string).collect();
        let mut way = Way::new(
            WayKind::CompatPackage,
            Layer::Driver,
            None,
            format!(
                "a driver of branch {}",
                in_words(&branches).replace(" and ", " or ")
            ),
        );
        way.cost = "root, reboot";
        way.why_not = Some("only where the image brings the compat package and the GPU may use it: data-center boards may, a GeForce answers error 804".to_owned());
        way.verify = Some("gpudoctor");
        ways.push(way);
    }
    // Where a driver of that CUDA version would do, other words for the driver and the brands of other GPUs are no news.
    if lack.cuda.is_none() {
        if !lack.driver.is_empty() {
            let mut way = Way::new(
                WayKind::Driver,
                Layer::Driver,
                Some(true),
                format!("a driver for which {} holds", or(&lack.driver)),
            );
            way.cost = "root, reboot";
            way.verify = Some("gpudoctor");
            ways.push(way);
        } else if lack.branches.is_empty() && !lack.gpu.is_empty() {
            let mut way = Way::new(
                WayKind::Gpu,
                Layer::Hardware,
                Some(true),
                format!("a GPU for which {} holds", or(&lack.gpu)),
            );
            way.verify = Some("gpudoctor");
            ways.push(way);
        }
        let mut way = Way::new(
            WayKind::Build,
            Layer::Container,
            Some(true),
            "an image that asks for what this host has",
        );
        way.why_second = Some("leaves the host as it is".to_owned());
        way.verify = Some("gpudoctor");
        ways.push(way);
    }
    ways
}

/// "`a`, `b` or `c`".
fn or(terms: &[String]) -> String {
    let quoted: Vec<String> = terms.iter().take(TERMS_TOLD).cloned().collect();
    in_words(&quoted).replace(" and ", " or ")
}

/// A driver of the CUDA version that is asked for.
fn newer_driver(matrix: &Matrix, wanted: &Version) -> Way {
    let row = matrix.first_branch_of_level(wanted.cuda_level());
    let branch = row.map_or_else(String::new, |row| {
        format!(": branch {} or newer", row.branch)
    });
    let mut way = Way::new(
        WayKind::Driver,
        Layer::Driver,
        Some(true),
        format!("a driver of CUDA {wanted}{branch}"),
    );
    way.cost = "root, reboot";
    way.verify = Some("gpudoctor");
    way.rows = row
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
        .collect();
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(value: &str, target: &str) -> Answer {
        let words: Vec<String> = value.split('|').map(str::to_owned).collect();
        let variables = nvidia_require::given(&words).unwrap();
        requirement(
            &Matrix::bundled(),
            &variables,
            &target.parse().unwrap(),
            false,
        )
        .unwrap()
    }

    fn ways_out(value: &str, target: &str) -> String {
        let ways = asked(value, target).ways;
        let told: Vec<String> = ways.into_iter().map(|way| way.summary).collect();
        told.join("; ")
    }

    /// The first line names what decides, also where that hangs on what the driver calls the GPU.
    #[test]
    fn a_branch_that_is_let_in_is_named_and_what_it_supposes() {
        let image =
            "cuda>=13.1 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=535,driver<536";
        for gpu in ["T4", "A100", "NVIDIA RTX A6000"] {
            let answer = asked(image, &format!("driver=535.183.01,gpu={gpu}"));
            if gpu.contains("RTX") {
                // Neither of the brands that it may be of is sure to be in the list.
                assert_eq!(answer.answer, Word::Unknown);
                continue;
            }
            assert_eq!(answer.answer, Word::Yes);
            assert!(
                answer
                    .summary
                    .contains("brand=tesla,driver>=535,driver<536 or brand=nvidia"),
                "{}",
                answer.summary
            );
            let limits: Vec<_> = answer.limits.iter().map(|l| l.text.as_str()).collect();
            assert!(limits.join(" ").contains("compat package"), "{limits:?}");
        }
        let by_level = asked(image, "driver=590.44.01,gpu=T4");
        assert!(
            by_level.summary.ends_with("cuda>=13.1"),
            "{}",
            by_level.summary
        );
        assert!(by_level.limits.iter().all(|l| !l.text.contains("compat")));
    }

    /// What is asked of the GPU is no driver's matter, and what is forbidden is no least version.
    #[test]
    fn ways_out_are_of_what_is_asked() {
        let image = "cuda>=13.1 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=580,driver<581 brand=geforce,driver>=570,driver<571";
        assert_eq!(
            ways_out(image, "driver=550.54.14,gpu=A100"),
            "a driver of CUDA 13.1: branch 590 or newer; an image of CUDA 12.4 or older; a driver of branch 535 or 580"
        );
        for (value, way) in [
            ("arch>=9.0", "a GPU for which arch>=9.0 holds"),
            ("brand=geforce", "a GPU for which brand=geforce holds"),
            ("cuda!=12.4", "a driver for which cuda!=12.4 holds"),
            ("driver>=560", "a driver for which driver>=560 holds"),
        ] {
            let told = ways_out(value, "driver=550.54.14,gpu=A100");
            assert!(told.starts_with(way), "{value}: {told}");
            assert!(!told.contains("or older"), "{value}: {told}");
        }
    }

    #[test]
    fn several_variables_and_what_goes_with_them() {
        let answer = |value: &str| asked(value, "driver=550.54.14,gpu=A100");
        let two = answer("NVIDIA_REQUIRE_CUDA=cuda>=12.0|NVIDIA_REQUIRE_ARCH=arch>=9.0");
        assert_eq!(two.answer, Word::No);
        assert!(
            two.summary.starts_with("NVIDIA_REQUIRE_ARCH: "),
            "{}",
            two.summary
        );
        assert_eq!(answer("CUDA_VERSION=12.4.1").answer, Word::Yes);
        assert_eq!(answer("CUDA_VERSION=12.9").answer, Word::No);
        assert_eq!(answer("CUDA_VERSION=latest").answer, Word::No);
        assert_eq!(
            answer("CUDA_VERSION=latest|NVIDIA_REQUIRE_CUDA=cuda>=12").answer,
            Word::Yes
        );
        let off = answer("cuda>=12.9|NVIDIA_DISABLE_REQUIRE=1");
        assert_eq!(off.answer, Word::Yes);
        assert!(
            off.limits[0].text.starts_with("without it, no: "),
            "{:?}",
            off.limits
        );
        let not_off = answer("cuda>=12.9|NVIDIA_DISABLE_REQUIRE=yes");
        assert_eq!(not_off.answer, Word::No);
    }

    /// An official value has some 60 terms: a short answer tells those that matter.
    #[test]
    fn a_long_value_is_told_by_the_terms_that_decide() {
        let mut value = "cuda>=13.1".to_owned();
        for branch in [535, 550, 570, 575, 580] {
            for brand in ["unknown", "grid", "tesla", "nvidia", "quadro", "vws"] {
                let below = branch + 1;
                let term = format!(" brand={brand},driver>={branch},driver<{below}");
                value.push_str(&term);
            }
        }
        let mut answer = asked(&value, "driver=560.35.03,gpu=T4");
        assert_eq!(answer.answer, Word::No);
        assert_eq!(answer.why.len(), 31);
        answer.shorten();
        assert_eq!(answer.why.len(), TERMS_TOLD + 1);
        assert!(answer.why[0].text.starts_with("cuda>=13.1: not met"));
        assert!(
            answer.why[1].text.starts_with("brand=tesla,driver>=535"),
            "{:?}",
            answer.why
        );
        assert!(answer.why[TERMS_TOLD].text.starts_with("25 more terms"));
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
