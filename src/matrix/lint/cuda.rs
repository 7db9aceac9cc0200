//! Holds levels, branches, toolkits, forward compatibility and PTX ISA against each other.

use std::collections::BTreeSet;

use super::Report;
use crate::matrix::{Confidence, LevelBy, Toolkit};
use crate::version::Version;

pub(super) fn check(report: &mut Report<'_>) {
    families(report);
    branches(report);
    toolkits(report);
    forward_compat(report);
    compat_libraries(report);
    ptx(report);
}

fn families(report: &mut Report<'_>) {
    let rows = report.matrix.families();
    report.ascending("family", true, rows.iter().map(|row| (row.major, row)));
    report.ascending(
        "family",
        true,
        rows.iter().map(|row| (&row.min_driver, row)),
    );
    for (index, row) in rows.iter().enumerate() {
        let next = rows.get(index + 1).map(|next| next.min_branch);
        let mut at = report.at("family", row.major);
        at.need(
            row.min_level == row.major * 1000,
            "the level is not 1000 x major",
        );
        let of_branch = row.min_driver.major() == row.min_branch;
        at.need(of_branch, "the least driver is not of the least branch");
        at.branch_has_level(
            row.min_branch,
            row.min_level,
            "the least branch has another level",
        );
        let ends = row.native_below_branch == next;
        at.need(ends, "the family does not end where the next one begins");
    }
}

fn branches(report: &mut Report<'_>) {
    const KINDS: [&str; 6] = [
        "lts",
        "production",
        "new-feature",
        "developer",
        "long-lived",
        "legacy",
    ];
    let rows = report.matrix.driver_branches();
    let modules = rows
        .iter()
        .filter_map(|row| Some((row.kernel_modules?, row)));
    report.ascending(
        "driver_branch",
        true,
        rows.iter().map(|row| (row.branch, row)),
    );
    report.ascending(
        "driver_branch",
        false,
        rows.iter().map(|row| (row.level, row)),
    );
    report.ascending(
        "driver_branch",
        false,
        rows.iter().map(|row| (row.oldest_arch, row)),
    );
    report.ascending(
        "driver_branch",
        false,
        rows.iter().map(|row| (row.newest_arch.iter().max(), row)),
    );
    report.ascending("driver_branch", false, modules);
    for row in rows {
        let paired = report
            .matrix
            .toolkits()
            .iter()
            .any(|toolkit| toolkit.branch == row.branch);
        let mut at = report.at("driver_branch", row.branch);
        at.need(row.level.is_multiple_of(10), "the level is no CUDA level");
        at.need(
            !row.no_end_of_life || row.end_of_life.is_none(),
            "an end of life and none",
        );
        let newer = row
            .newest_arch
            .iter()
            .all(|newest| *newest >= row.oldest_arch);
        let order = newer && !row.newest_arch.is_empty();
        at.need(order, "the newest generation is older than the oldest");
        at.need(KINDS.contains(&row.kind.as_str()), "unknown kind");
        let weak = row.confidence == Confidence::Secondary || row.level_by == LevelBy::Measured;
        at.need(
            paired || weak,
            "no toolkit is paired with it, yet its level is verified",
        );
    }
}

fn toolkits(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.toolkits();
    let drivers = rows
        .iter()
        .filter_map(|row| Some((row.driver.as_ref()?, row)));
    report.ascending("toolkit", true, rows.iter().map(|row| (&row.cuda, row)));
    report.ascending("toolkit", false, drivers);
    for row in rows {
        let mut at = report.at("toolkit", &row.cuda);
        let before = |other: &&Toolkit| {
            other.level == row.level && other.cuda < row.cuda && other.released > row.released
        };
        let in_time = row.released.is_none() || !rows.iter().any(|other| before(&other));
        at.need(in_time, "released before the one before it");
        at.need(
            row.level == row.cuda.cuda_level(),
            "the level is that of another version",
        );
        at.branch_has_level(row.branch, row.level, "its branch has another level");
        let own = row
            .driver
            .as_ref()
            .is_none_or(|driver| driver.major() == row.branch);
        at.need(own, "its driver is of another branch");
        at.need(
            row.driver_bundled || row.driver.is_none(),
            "a driver that is not bundled",
        );
        let missing = row.driver_bundled && row.driver.is_none();
        let verified = row.confidence == Confidence::Verified;
        at.need(!missing || !verified, "no driver, yet verified");
        let windows = row.windows_driver_bundled != Some(false) || row.driver_windows.is_none();
        at.need(windows, "a Windows driver that is not bundled");
        let label = row.label.starts_with(&row.cuda.major_minor());
        at.need(label, "its label is of another version");
        // From 12 on what is shipped reaches the floor; 11.0 came out before its documented floor did.
        let family = matrix
            .families()
            .iter()
            .find(|family| family.major == row.cuda.major());
        let floor = family
            .filter(|family| family.major > 11)
            .map(|family| &family.min_driver);
        let reaches = floor
            .zip(row.driver.as_ref())
            .is_none_or(|(floor, driver)| driver >= floor);
        at.need(reaches, "it ships a driver below the floor of its family");
    }
}

/// `cuda-compat-12-9`.
fn package_name(cuda: &Version) -> String {
    format!("cuda-compat-{}-{}", cuda.major(), cuda.minor())
}

fn forward_compat(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.forward_compat_rows();
    report.ascending(
        "forward_compat",
        true,
        rows.iter().map(|row| (&row.cuda, row)),
    );
    for row in rows {
        let level = row.cuda.cuda_level();
        let mut at = report.at("forward_compat", &row.cuda);
        at.toolkit(&row.cuda);
        at.need(
            row.package == package_name(&row.cuda),
            "its package has another name",
        );
        if let Some(native) = row.native {
            at.branch_has_level(native, level, "its native branch has another level");
        }
        for base in row.supported.iter().chain(&row.undecided) {
            let older = at.branch(*base).is_none_or(|base| base.level < level);
            at.need(
                older,
                format_args!("base {base} is not older than the package"),
            );
        }
        for base in &row.not_supported {
            at.branch(*base);
        }
        let lists = [&row.supported, &row.not_supported, &row.undecided];
        let all: Vec<_> = lists.into_iter().flatten().chain(&row.native).collect();
        let distinct = all.iter().collect::<BTreeSet<_>>().len();
        at.need(distinct == all.len(), "a branch stands in two lists");
        let said = row.undecided.is_empty() || row.note.is_some();
        at.need(said, "undecided without a note that says why");
        let noted = matrix
            .compat_notes()
            .iter()
            .any(|note| note.cuda == row.cuda && !note.orin);
        at.need(row.complete == noted, "complete is what has a compat_note");
    }
}

fn compat_libraries(report: &mut Report<'_>) {
    let matrix = report.matrix;
    for row in matrix.compat_notes().iter().filter(|row| !row.orin) {
        let mut at = report.at("compat_note", &row.cuda);
        let own = row.libcuda.as_ref().map_or(0, Version::major);
        at.branch_has_level(
            own,
            row.cuda.cuda_level(),
            "the library is of another level",
        );
        let compat = matrix
            .forward_compat_rows()
            .iter()
            .find(|compat| compat.cuda == row.cuda);
        let listed: BTreeSet<u32> = compat
            .iter()
            .flat_map(|compat| compat.supported.iter().copied().chain(compat.native))
            .collect();
        let noted: BTreeSet<u32> = row.drivers.iter().copied().collect();
        at.need(
            listed == noted,
            "the forward_compat row lists other branches",
        );
    }
    for row in matrix.compat_builds() {
        let mut at = report.at("compat_build", &row.cuda);
        at.need(
            row.package == package_name(&row.cuda),
            "its package has another name",
        );
        let level = row.cuda.cuda_level();
        at.branch_has_level(
            row.libcuda.major(),
            level,
            "the library is of another level",
        );
    }
}

fn ptx(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.ptx_isas();
    report.ascending("ptx_isa", true, rows.iter().map(|row| (&row.cuda, row)));
    report.ascending("ptx_isa", false, rows.iter().map(|row| (&row.ptx, row)));
    report.ascending(
        "ptx_isa",
        true,
        rows.iter().map(|row| (row.document_branch, row)),
    );
    for row in rows {
        let level = row.cuda.cuda_level();
        let branches = matrix.driver_branches();
        let first = branches.iter().find(|branch| branch.level >= level);
        let below = branches.iter().rev().find(|branch| branch.level < level);
        let mut at = report.at("ptx_isa", &row.cuda);
        // The document names internal branches too, so it is held between its neighbours: not above the first branch of
        // this level, and above the last one of a lower level.
        let between = first.is_some_and(|first| row.document_branch <= first.branch)
            && below.is_none_or(|below| row.document_branch > below.branch);
        at.need(between, "the document's branch does not lie at this level");
        at.need(
            first.is_some_and(|first| first.level == level),
            "no branch has this level",
        );
    }
}
