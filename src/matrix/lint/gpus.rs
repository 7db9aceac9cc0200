//! Holds architectures, chips, PCI ids and compilers against each other and against branches and toolkits.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use crate::matrix::rows::AnyRow;
use crate::matrix::targets::{Scope, Target};
use crate::matrix::{Arch, Capability};
use crate::version::Version;

pub(super) fn check(report: &mut Report<'_>) {
    let archs = report.matrix.archs();
    report.ascending("arch", true, archs.iter().map(|row| (row.capability, row)));
    for row in archs {
        arch_toolkits(report, row);
        arch_drivers(report, row);
    }
    for row in report.matrix.compat_borders() {
        let known = [row.from, row.to]
            .iter()
            .all(|cc| report.matrix.arch(*cc).is_some());
        let crosses = row.from.0 == row.to.0 && row.from.1 < row.to.1;
        report
            .at("compat_border", row.key())
            .need(known && crosses, "no border within a major");
    }
    chips(report);
    targets(report);
    compilers(report);
}

fn arch_toolkits(report: &mut Report<'_>, row: &Arch) {
    let matrix = report.matrix;
    let mut at = report.at("arch", row.key());
    let one_end = row.in_newest_toolkit != row.last_toolkit.is_some();
    at.need(one_end, "a last toolkit or in_newest_toolkit, one of them");
    let order = row
        .last_toolkit
        .as_ref()
        .is_none_or(|last| row.first_toolkit <= *last);
    at.need(order, "the first toolkit is newer than the last");
    let renamed = row.renamed_to.is_none_or(|to| matrix.arch(to).is_some());
    at.need(renamed, "renamed to what is not there");
    for chip in &row.chips {
        // The chips of Jetsons are on no PCI bus, most of them.
        let found = matrix
            .chips()
            .iter()
            .find(|candidate| candidate.chip == *chip);
        let agrees = found.map_or(row.tegra, |found| found.capability == Some(row.capability));
        at.need(
            agrees,
            format_args!("chip {chip} has another capability or no row"),
        );
    }
}

fn arch_drivers(report: &mut Report<'_>, row: &Arch) {
    let matrix = report.matrix;
    let mut at = report.at("arch", row.key());
    let ends = [
        row.supported,
        row.last_driver_branch.is_some(),
        row.driver_unknown,
    ];
    let told = ends.iter().filter(|end| **end).count();
    let no_branches = row.tegra && row.first_driver_branch.is_none();
    let once = told == usize::from(!no_branches);
    at.need(once, "one of supported, last_driver_branch, driver_unknown");
    let a_question = !row.tegra && row.generation.is_some();
    let answered = row.open_module_word.is_some() == a_question;
    at.need(
        answered,
        "open_module where it is a question, and only there",
    );
    if let Some(first) = row.first_driver_branch.and_then(|first| at.branch(first)) {
        let newest = first.newest_arch.iter().max().copied();
        at.need(
            newest >= row.generation,
            "its first branch is too old for its generation",
        );
        let paired = first.level >= Version::cuda_level(&row.first_toolkit);
        at.need(paired, "its first branch is older than its first toolkit");
    }
    if let Some(last) = row.last_driver_branch.and_then(|last| at.branch(last)) {
        let drives = Some(last.oldest_arch) <= row.generation;
        at.need(drives, "its last branch does not drive it");
        let next = matrix
            .driver_branches()
            .iter()
            .find(|branch| branch.branch > last.branch);
        let ended = next.is_some_and(|next| Some(next.oldest_arch) > row.generation);
        at.need(ended, "the branch after its last one still drives it");
    }
    let newest = matrix.newest_branch().map(|branch| branch.oldest_arch);
    let drives = !row.supported || newest <= row.generation;
    at.need(drives, "supported, yet too old for the newest branch");
}

fn chips(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let on_lines = matrix.ids_on_lines();
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for row in matrix.nvswitches() {
        owners.insert(&row.id, &row.name);
    }
    for row in matrix.chips() {
        report.ascending("chip", true, row.ids.iter().map(|(id, _)| (id, row)));
        let mut at = report.at("chip", &row.chip);
        let arch = row.capability.and_then(|cc| matrix.arch(cc));
        at.need(
            row.capability.is_some() == arch.is_some(),
            "there is no arch of its capability",
        );
        if let Some(arch) = arch {
            let listed = arch.chips.contains(&row.chip);
            at.need(listed, "the arch of its capability does not list it");
            let same = arch.generation == Some(row.generation);
            at.need(same, "its generation is not that of its capability");
        }
        for (id, name) in &row.ids {
            let hex = id
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            let valid = hex && id.len() == 4 && !name.is_empty();
            at.need(
                valid,
                format_args!("`{id}` is no device id, or has no name"),
            );
            let other = owners.insert(id, &row.chip);
            at.need(
                other.is_none(),
                format_args!("{id} is an id of {other:?} too"),
            );
            let found = on_lines.contains(id.as_str());
            at.need(
                found,
                format_args!("{id} is not found: it has no line of its own"),
            );
        }
    }
}

/// ptxas and the architectures agree on what each toolkit builds for.
fn targets(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.ptxas_target_rows();
    report.ascending(
        "ptxas_targets",
        true,
        rows.iter().map(|row| (&row.toolkit_from, row)),
    );
    for row in rows {
        let mut at = report.at("ptxas_targets", &row.toolkit_from);
        at.need(
            row.toolkit_from <= row.toolkit_to,
            "it ends before it begins",
        );
        let targets: Vec<_> = row
            .targets
            .iter()
            .map(|target| Target::parse(target))
            .collect();
        at.need(targets.iter().all(Option::is_some), "a target that is none");
        let plain = targets
            .iter()
            .flatten()
            .filter(|target| target.scope == Scope::Plain);
        let listed: BTreeSet<Capability> = plain.map(|target| target.capability).collect();
        for toolkit in [&row.toolkit_from, &row.toolkit_to] {
            at.toolkit(toolkit);
            let in_time = |arch: &&Arch| {
                let last = arch.last_toolkit.as_ref();
                arch.first_toolkit <= *toolkit && last.is_none_or(|last| last >= toolkit)
            };
            let archs = matrix.archs().iter().filter(in_time);
            let built: BTreeSet<Capability> = archs.map(|arch| arch.capability).collect();
            let other: Vec<_> = listed.symmetric_difference(&built).collect();
            at.need(
                other.is_empty(),
                format_args!("table arch differs at {toolkit}: {other:?}"),
            );
        }
    }
}

fn compilers(report: &mut Report<'_>) {
    let rows = report.matrix.host_compilers();
    report.ascending(
        "host_compiler",
        true,
        rows.iter().map(|row| (&row.toolkit, row)),
    );
    report.ascending(
        "host_compiler",
        false,
        rows.iter().map(|row| (row.gcc_max, row)),
    );
    report.ascending(
        "host_compiler",
        false,
        rows.iter().map(|row| (row.clang_max, row)),
    );
    for row in rows {
        let mut at = report.at("host_compiler", &row.toolkit);
        at.toolkit(&row.toolkit);
        let order = row.gcc_min.is_none_or(|min| min <= row.gcc_max);
        at.need(order, "the oldest GCC is newer than the newest");
        let breaks = row.gcc_headers_break.as_ref();
        at.need(
            breaks.is_none_or(|version| version.major() == row.gcc_max),
            "the GCC whose headers break is not the newest one that the header lets pass",
        );
    }
    for row in report.matrix.shared_math() {
        let mut at = report.at("shared_math", &row.function);
        at.toolkit(&row.toolkit);
    }
    for row in report.matrix.glibc() {
        let order = row
            .min_seen
            .as_ref()
            .is_none_or(|min| *min <= row.max_symbol_version);
        report
            .at("glibc", &row.component)
            .need(order, "the least is more than the most");
    }
}
