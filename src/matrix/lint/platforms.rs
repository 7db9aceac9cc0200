//! Holds images, Jetson releases and distribution packages against toolkits, branches and forward compatibility.

use super::Report;
use crate::matrix::rows::AnyRow;
use crate::matrix::{Confidence, Jetson, distros};
use crate::version::Version;

pub(super) fn check(report: &mut Report<'_>) {
    images(report);
    jetsons(report);
    jetson_upgrades(report);
    distro_packages(report);
    toolkit_flaws(report);
    cdi_kinds(report);
}

fn cdi_kinds(report: &mut Report<'_>) {
    for row in report.matrix.cdi_kinds() {
        let mut at = report.at("cdi_kind", &row.kind);
        at.need(
            row.kind.split('/').filter(|part| !part.is_empty()).count() == 2,
            "no vendor and class",
        );
        at.need(
            row.command.is_some() != row.pod.is_some(),
            "made anew by neither a command nor a pod, or by both",
        );
    }
}

fn toolkit_flaws(report: &mut Report<'_>) {
    let rows = report.matrix.toolkit_flaws();
    report.ascending(
        "toolkit_flaw",
        false,
        rows.iter().map(|row| (&row.fixed, row)),
    );
    for row in rows {
        let mut at = report.at("toolkit_flaw", &row.id);
        at.need(row.last < row.fixed, "mended before its last version");
        at.need(row.id.starts_with("CVE-"), "no number of a CVE");
    }
}

fn images(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.image_requirements();
    report.ascending(
        "image_require",
        false,
        rows.iter().map(|row| (&row.cuda, row)),
    );
    for row in rows {
        let level = row.cuda.cuda_level();
        let compat = matrix
            .forward_compat_rows()
            .iter()
            .find(|compat| compat.cuda == row.cuda);
        let mut at = report.at("image_require", &row.image);
        at.toolkit(&row.cuda);
        let lists = [
            &row.tesla_branches,
            &row.branches,
            &row.early_branches,
            &row.late_branches,
        ];
        for branch in lists.into_iter().flatten() {
            // Old images list the branch of their own level as well, which their first term takes anyway.
            let base = at.branch(*branch).map_or(0, |row| row.level);
            at.need(
                base <= level,
                format_args!("branch {branch} is newer than the image"),
            );
            let agrees = base == level || compat.is_none_or(|row| row.supported.contains(branch));
            at.need(
                agrees,
                format_args!("forward_compat does not have branch {branch}"),
            );
        }
        if let Some(from) = row.any_brand_from_driver {
            at.branch(from);
        }
        let together = row.branches.is_empty() == row.brands.is_none();
        at.need(together, "branches and brands go together");
        let lists = matrix.brand_lists();
        let known = row
            .brands
            .as_ref()
            .is_none_or(|name| lists.iter().any(|list| list.name == *name));
        at.need(known, "there is no such brand list");
    }
}

fn jetsons(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.jetsons();
    report.ascending("jetson", true, rows.iter().map(|row| (&row.l4t, row)));
    report.ascending("jetson", false, rows.iter().map(|row| (&row.jetpack, row)));
    for row in rows {
        let mut at = report.at("jetson", &row.l4t);
        at.toolkit(&row.cuda);
        for board in &row.boards {
            let known = matrix.jetson_board(board).is_some();
            at.need(known, format_args!("there is no board {board}"));
        }
    }
    for row in matrix.jetson_boards() {
        let tegra = matrix.arch(row.capability).is_some_and(|arch| arch.tegra);
        report
            .at("jetson_board", &row.board)
            .need(tegra, "its capability is no Jetson's");
    }
}

fn jetson_upgrades(report: &mut Report<'_>) {
    let matrix = report.matrix;
    for row in matrix.jetson_upgrades() {
        let mut at = report.at("jetson_upgrade", &row.jetpack);
        for cuda in row.upgrades.iter().chain([&row.cuda]) {
            at.toolkit(cuda);
        }
        at.need(
            row.upgrades.iter().all(|cuda| *cuda > row.cuda),
            "an upgrade that is none",
        );
        let from = |cuda: &Version| row.never_from.as_ref().is_some_and(|from| cuda >= from);
        let never = row
            .upgrades
            .iter()
            .any(|cuda| row.never.contains(cuda) || from(cuda));
        at.need(!never, "an upgrade that never works");
        let brings = |jetson: &Jetson| {
            jetson.cuda == row.cuda && matrix.jetson_upgrade(&jetson.jetpack) == Some(row)
        };
        let brought = matrix.jetsons().iter().any(brings);
        at.need(brought, "no release of the series brings its CUDA");
    }
}

fn distro_packages(report: &mut Report<'_>) {
    for row in report.matrix.distro_package_rows() {
        let mut at = report.at("distro_package", row.key());
        let verified = row.confidence == Confidence::Verified;
        let allowed = verified || row.commands.is_empty();
        at.need(allowed, "commands of a row that is not verified");
        at.need(!row.packages.is_empty(), "no package");
        let filled = |word: &String| !word.replace(distros::RELEASE, "").contains('{');
        let whole = row.commands.iter().flatten().all(filled);
        at.need(whole, "a placeholder that nothing fills");
        if let Some(branch) = row.driver_branch {
            at.branch(branch);
        }
    }
}
