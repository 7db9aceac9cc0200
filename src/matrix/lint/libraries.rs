//! Holds cuDNN, NCCL, TensorRT, sonames and components against each other and against architectures.

use super::{At, Report};
use crate::matrix::rows::AnyRow;
use crate::matrix::{CodeTargets, Scope};
use crate::version::Version;

pub(super) fn check(report: &mut Report<'_>) {
    cudnn(report);
    tensorrt(report);
    let matrix = report.matrix;
    for row in matrix.nccls() {
        let mut at = report.at("nccl", row.key());
        at.major(row.cuda.major());
        if let Some(code) = row.archs.as_ref().filter(|_| row.cuda.len() > 1) {
            self::code(&mut at, code, &row.cuda);
        }
    }
    for row in matrix.sonames() {
        let mut at = report.at("soname", row.key());
        at.major(row.cuda);
        let named = row.soname.starts_with("lib") && row.soname.contains(".so.");
        at.need(named, "that is no soname");
    }
    for row in matrix.wheels() {
        let mut at = report.at("wheel", row.key());
        at.major(row.cuda);
        at.need(!row.sonames.is_empty(), "it brings nothing");
        let named = row
            .sonames
            .iter()
            .all(|soname| soname.starts_with("lib") && soname.contains(".so."));
        at.need(named, "that is no soname");
        let suffix = row.wheel.rsplit_once("-cu").map(|(_, major)| major);
        // The name of `nvidia-cublas` ends with no number.
        let suffix = suffix.filter(|major| major.starts_with(|c: char| c.is_ascii_digit()));
        let fits = suffix.map_or(row.cuda >= 13, |major| major == row.cuda.to_string());
        at.need(fits, "its name is that of another CUDA");
    }
    for row in matrix.opened() {
        let mut at = report.at("opens", row.key());
        at.major(row.cuda);
        let brought = |soname: &String| matrix.wheels_with(soname).any(|w| w.cuda == row.cuda);
        at.need(
            row.needs.iter().all(brought),
            "no wheel brings one of these",
        );
    }
    let checks = matrix.cudnn_checks().iter();
    report.ascending("cudnn_check", true, checks.map(|row| (&row.framework, row)));
    for row in matrix.cpu_settings() {
        let mut at = report.at("cpu_setting", row.key());
        let is_variable = |name: &str| {
            name.chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        };
        at.need(is_variable(&row.variable), "that is no variable");
        at.need(row.does.starts_with("to "), "that ends no sentence");
    }
    for row in matrix.toolkit_component_rows() {
        let known = matrix.toolkit(&row.toolkit).is_some();
        let mut at = report.at("toolkit_components", &row.toolkit);
        at.need(known, "there is no such toolkit");
        let bounded = row.requires.iter().all(|asked| !asked.bounds.is_empty());
        at.need(bounded, "a component without a version");
    }
}

/// Device code that a toolkit of this version wrote: each architecture has a row, and this toolkit builds for it.
pub(super) fn code(at: &mut At<'_, '_>, code: &CodeTargets, cuda: &Version) {
    at.need(!code.elf.is_empty(), "no machine code");
    let toolkit = Version::from_cuda_level(cuda.cuda_level());
    let minor = |version: &Version| Version::from_cuda_level(version.cuda_level());
    for target in code.elf.iter().chain(&code.ptx) {
        let Some(arch) = at.report.matrix.arch(target.capability) else {
            at.need(false, format_args!("{target} has no row in arch"));
            continue;
        };
        let from = minor(&arch.first_toolkit) <= toolkit;
        let to = arch
            .last_toolkit
            .as_ref()
            .is_none_or(|last| toolkit <= minor(last));
        at.need(
            from && to,
            format_args!("CUDA {toolkit} does not build for {target}"),
        );
    }
}

fn cudnn(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.cudnns();
    report.ascending(
        "cudnn",
        true,
        rows.iter().map(|row| ((row.cuda, &row.first), row)),
    );
    for (index, row) in rows.iter().enumerate() {
        let next = rows.get(index + 1).filter(|next| next.cuda == row.cuda);
        let mut at = report.at("cudnn", row.key());
        at.major(row.cuda);
        at.need(row.first <= row.last, "it ends before it begins");
        let ends = next.is_none_or(|next| !row.covers(&next.first));
        at.need(ends, "the next one begins before it ends");
        let floor = next.is_none_or(|next| next.capability_min >= row.capability_min);
        at.need(floor, "the next one runs on an older GPU again");
        let bounds = row
            .capability_max
            .is_none_or(|max| max >= row.capability_min);
        at.need(bounds, "its greatest capability is below its least");
        at.need(
            row.archs.is_some() == row.archs_of.is_some(),
            "archs and archs_of go together",
        );
        let own = row.archs_of.as_ref().is_none_or(|of| row.covers(of));
        at.need(own, "archs_of is another release");
        let least = row.archs.iter().flat_map(|code| &code.elf).min();
        let same = least.is_none_or(|target| {
            target.scope != Scope::Plain || target.capability == row.capability_min
        });
        at.need(same, "its device code begins with another capability");
        let files = matrix.cudnn_files(row.first.major()).is_some();
        at.need(files, "cudnn_files has no row for it");
    }
}

fn tensorrt(report: &mut Report<'_>) {
    let matrix = report.matrix;
    let rows = matrix.tensorrts();
    report.ascending("tensorrt", true, rows.iter().map(|row| (&row.first, row)));
    for (index, row) in rows.iter().enumerate() {
        let next = rows.get(index + 1);
        let mut at = report.at("tensorrt", row.key());
        at.need(row.first <= row.last, "it ends before it begins");
        let ends = next.is_none_or(|next| !row.covers(&next.first));
        at.need(ends, "the next one begins before it ends");
        let soname = format!("libnvinfer.so.{}", row.first.major());
        at.need(row.soname == soname, "its soname is of another version");
        for cuda in &row.cudas {
            at.major(cuda.major());
            if cuda.len() > 1 {
                at.toolkit(cuda);
            }
        }
    }
}
