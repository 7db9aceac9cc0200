//! Holds AMD's tables against each other.

use super::Report;
use crate::gfx::GfxTarget;

pub(super) fn check(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let targets = matrix.gfx_targets();
    report.ascending(
        "gfx_target",
        true,
        targets.iter().map(|row| (GfxTarget::parse(&row.name), row)),
    );
    for row in targets {
        let mut at = report.at("gfx_target", &row.name);
        let target = GfxTarget::parse(&row.name);
        at.need(
            target.is_some_and(|target| target.to_string() == row.name),
            "no name of a target",
        );
        let of = |family: &String| {
            let major = target.map_or(0, |target| target.major);
            family.starts_with(&format!("gfx{major}-")) && family.ends_with("-generic")
        };
        at.need(
            row.family.as_ref().is_none_or(of),
            "a family of another generation",
        );
    }
    for row in matrix.gfx_overrides() {
        let mut at = report.at("gfx_override", &row.gpu);
        let known = |name: &str| targets.iter().find(|row| row.name == name);
        let (gpu, code) = (known(&row.gpu), known(&row.code));
        at.need(
            gpu.is_some() && code.is_some(),
            "names a target that is no row",
        );
        at.need(
            gpu.and_then(|row| row.family.as_ref()) == code.and_then(|row| row.family.as_ref()),
            "code of another family",
        );
    }
    let distributions = matrix.rocm_distributions().iter();
    report.ascending(
        "rocm_distribution",
        true,
        distributions.map(|row| (&row.name, row)),
    );
    let drivers = matrix.rocm_drivers();
    report.ascending(
        "rocm_driver",
        true,
        drivers.iter().map(|row| (&row.driver, row)),
    );
    for row in drivers {
        let mut at = report.at("rocm_driver", &row.driver);
        at.need(row.rocm.is_sorted(), "releases out of order");
    }
}
