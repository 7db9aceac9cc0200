//! A version that a file leaves open: `torch>=2.6`, `vllm~=0.10.0`, `tensorflow`. An installer takes the newest release that
//! is allowed, so that one decides; which others do is what mends it.

use super::{Judged, of_version};
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::inspect::Machine;
use crate::matrix::Matrix;
use crate::preflight::manifest::Pin;
use crate::version::Version;

/// Judges all releases that are allowed and known; `None` where nothing is known of releases of that package.
pub(super) fn judge(pin: &Pin, machine: &Machine, matrix: &Matrix) -> Option<Judged> {
    let releases = releases(&pin.name, pin, matrix)?;
    let asked = asked(pin);
    let mut allowed: Vec<Version> = releases
        .into_iter()
        .filter(|version| {
            let bounds = pin.allowed.as_ref();
            bounds.is_none_or(|bounds| bounds.allow(version.as_str()))
        })
        .collect();
    allowed.sort_unstable();
    allowed.dedup();
    let pinned = |version: &Version| Pin {
        version: Some(version.clone()),
        ..pin.clone()
    };
    let Some(newest) = allowed.pop() else {
        return Some(Judged {
            found: Vec::new(),
            no_cuda: false,
            not_told: vec![format!(
                "{}: no release of {} that `{asked}` allows is in the matrix of {}",
                pin.place,
                pin.name,
                matrix.as_of()
            )],
        });
    };
    let mut first = of_version(&pinned(&newest), machine, matrix)?;
    if first.is_fine() {
        first.found.push(
            Finding::new(
                "version-left-open",
                Layer::Framework,
                Severity::Note,
                format!("`{asked}` leaves the release open: {newest}, the newest of the matrix of {}, runs ({})", matrix.as_of(), pin.place),
            )
            .subject(&pin.place)
            .component(&pin.name)
            .evidence("asked for", &asked, &pin.place),
        );
        return Some(first);
    }
    if allowed.is_empty() {
        return Some(first);
    }
    let (mut runs, mut not_told) = (None, None);
    for version in allowed.iter().rev() {
        let judged = of_version(&pinned(version), machine, matrix)?;
        if judged.is_fine() {
            runs = Some(version);
            break;
        }
        if !judged.fails() && not_told.is_none() {
            not_told = judged.not_told.into_iter().next();
        }
    }
    if !first.fails() {
        // What it warns of, or could not tell, holds of what is installed.
        return Some(first);
    }
    let why = first.found.first().map(|finding| finding.title.clone())?;
    if let Some(runs) = runs {
        return Some(Judged {
            found: vec![left_open(pin, &asked, &why, runs, first.found)],
            not_told: Vec::new(),
            no_cuda: false,
        });
    }
    if let Some(not_told) = not_told {
        return Some(Judged {
            found: Vec::new(),
            no_cuda: false,
            not_told: vec![format!(
                "{}: `{asked}` takes {newest}, which does not run ({why}); of older releases: {not_told}",
                pin.place
            )],
        });
    }
    let count = allowed.len() + 1;
    for finding in &mut first.found {
        *finding = finding.clone().evidence(
            "releases that are allowed",
            format!("none of {count} in the matrix runs there; {newest} is the newest"),
            format!("{} ({asked})", pin.place),
        );
    }
    Some(first)
}

fn left_open(
    pin: &Pin,
    asked: &str,
    why: &str,
    runs: &Version,
    of_newest: Vec<Finding>,
) -> Finding {
    let mut finding = Finding::new(
        "version-left-open",
        Layer::Framework,
        Severity::Warning,
        format!("`{asked}` lets an installer take a release that does not run: {why}; {runs} does"),
    )
    .subject(&pin.place)
    .component(&pin.name)
    .evidence("asked for", asked, &pin.place)
    .evidence("newest that is allowed", why, "the matrix")
    .evidence("newest that runs", runs.as_str(), "the matrix")
    .fix(Fix::at(
        Layer::Framework,
        format!("pin it: `{}=={runs}`", with_extras(pin)),
    ));
    for source in of_newest.into_iter().flat_map(|finding| finding.sources) {
        finding = finding.source(source);
    }
    finding
}

fn with_extras(pin: &Pin) -> String {
    match pin.extras.as_slice() {
        [] => pin.name.clone(),
        extras => format!("{}[{}]", pin.name, extras.join(",")),
    }
}

/// As the file asks for it.
fn asked(pin: &Pin) -> String {
    let bounds = pin.allowed.as_ref();
    format!(
        "{}{}",
        with_extras(pin),
        bounds.map_or_else(String::new, ToString::to_string)
    )
}

/// The releases that the matrix knows.
fn releases(name: &str, pin: &Pin, matrix: &Matrix) -> Option<Vec<Version>> {
    Some(match name {
        "torch" => {
            let rows = matrix.torch_releases().iter();
            rows.map(|row| row.version.clone()).collect()
        }
        "tensorflow" => {
            let rows = matrix.tensorflow_releases().iter();
            rows.map(|row| row.version.clone()).collect()
        }
        "onnxruntime-gpu" => {
            let rows = matrix.onnxruntime_releases().iter();
            rows.map(|row| row.version.clone()).collect()
        }
        "vllm" => {
            let rows = matrix.vllm_releases().iter();
            rows.map(|row| row.version.clone()).collect()
        }
        _ => {
            let extra = pin
                .extras
                .iter()
                .find_map(|extra| super::meaning::jax_extra(extra));
            let plugin = name.strip_prefix("jax-cuda").and_then(|rest| {
                let major = rest.strip_suffix("-plugin")?;
                major.parse::<u32>().ok()
            });
            let major = plugin.or(extra.filter(|_| name == "jax"))?;
            let rows = matrix.jax_plugins().iter();
            rows.filter(|row| row.cuda == major)
                .map(|row| row.version.clone())
                .collect()
        }
    })
}
