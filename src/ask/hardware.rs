//! Driver and GPU: whether the branch knows the architecture already, drives it still, and has the flavour of kernel
//! modules that it takes.

use super::can::{Case, Check};
use super::driver::Side;
use super::gpus::GpuKind;
use super::{Cited, Word, sm};
use crate::facts::Layer;
use crate::matrix::{Arch, DriverBranch, KernelModules, Matrix, OpenModule};

/// Driver and GPU: whether the kernel module knows it.
pub(super) fn gpu_by_driver(case: &Case<'_>, driver: &Side<'_>, kind: &GpuKind) -> Check {
    let matrix = case.matrix;
    let unknown = |why: String, cited: Vec<Cited>| {
        let headline = format!(
            "whether {} drives {} is not known: {why}",
            driver.shown, kind.name
        );
        Check::not(Word::Unknown, Layer::Driver, headline, cited)
    };
    let Some(number) = driver.number else {
        let headline = format!("without a driver {} cannot be used", kind.name);
        return Check::not(Word::No, Layer::Driver, headline, Vec::new())
            .because("nothing above the driver reaches the GPU without it");
    };
    if let Some(why) = &driver.unknown {
        return unknown(why.clone(), Vec::new());
    }
    let Some(arch) = kind.arch(matrix) else {
        return by_generation(driver, kind)
            .unwrap_or_else(|| unknown("its architecture is in no row".to_owned(), Vec::new()));
    };
    if is_tegra(kind, matrix) || arch.driver_unknown {
        let why = if arch.tegra {
            "a Jetson's driver comes with its L4T release"
        } else {
            "no product of this architecture is known"
        };
        return unknown(why.to_owned(), vec![Cited::arch(arch_text(arch), arch)]);
    }
    let cited = Cited::arch(arch_text(arch), arch);
    let mut why = vec![cited];
    why.extend(
        driver
            .cited
            .iter()
            .filter(|_| driver.windows || driver.branch.is_none())
            .cloned(),
    );
    why.extend(driver.by_number());
    let (too_old, too_new) = if driver.windows {
        by_level(matrix, driver, arch)
    } else {
        let dropped = arch.last_driver_branch.map(|last| number.major() > last);
        let before = arch.first_driver_branch.map(|first| number.major() < first);
        (dropped, before)
    };
    if too_old == Some(true) {
        let last = arch.last_driver_branch.unwrap_or_default();
        let headline = format!(
            "{} no longer drives {}: {last} is the last branch for {}",
            driver.shown,
            kind.name,
            generation(arch)
        );
        return Check::not(Word::No, Layer::Driver, headline, why).because(
            "newer branches leave this GPU alone, and nothing above the driver changes that",
        );
    }
    if too_new == Some(true) {
        let first = arch.first_driver_branch.unwrap_or_default();
        if driver.branch.is_some_and(|branch| may_know(branch, arch)) {
            let mut check = unknown(
                format!(
                    "{first} is the first branch that lists it, though this one has others of its generation"
                ),
                why,
            );
            check
                .why
                .extend(arch.note.iter().map(|note| Cited::arch(&**note, arch)));
            return check.because("");
        }
        let headline = format!(
            "{} is too old for {}: {first} is the first branch for it",
            driver.shown, kind.name
        );
        return Check::not(Word::No, Layer::Driver, headline, why)
            .because("the kernel module has to know the GPU; nothing above it does");
    }
    let bounded = arch.first_driver_branch.is_some() && too_new.is_none()
        || arch.last_driver_branch.is_some() && too_old.is_none();
    if bounded {
        return unknown(
            "its number lies between those that are known".to_owned(),
            why,
        );
    }
    modules(case, driver, kind, Check::yes(Layer::Driver, why))
}

/// What the row says of drivers.
fn arch_text(arch: &Arch) -> String {
    let drivers = match (arch.first_driver_branch, arch.last_driver_branch) {
        (Some(first), Some(last)) => format!("driver branches {first} to {last}"),
        (Some(first), None) => format!("driver branch {first} or newer"),
        (None, Some(last)) => format!("driver branches up to {last}"),
        (None, None) => "no driver branches".to_owned(),
    };
    format!("{} ({}): {drivers}", generation(arch), sm(arch.capability))
}

fn generation(arch: &Arch) -> String {
    arch.name.clone().unwrap_or_else(|| sm(arch.capability))
}

/// Whether a branch older than the first that lists a GPU drives others of its generation, and no row says which.
fn may_know(branch: &DriverBranch, arch: &Arch) -> bool {
    let newest = branch.newest_arch.iter().max().copied();
    branch.newest_arch_note.is_none() && newest.is_some() && newest == arch.generation
}

/// By generation alone, for GPUs before the first that has a row: only that a branch left them.
fn by_generation(driver: &Side<'_>, kind: &GpuKind) -> Option<Check> {
    let (branch, age) = (driver.branch?, kind.age?);
    (branch.oldest_arch > age).then(|| {
        let cited = Cited::row(
            format!(
                "branch {} drives {} and newer",
                branch.branch,
                branch.oldest_arch.name()
            ),
            "driver_branch",
            branch.branch,
            &branch.source,
            branch.archs_confidence.unwrap_or(branch.confidence),
        );
        let headline = format!(
            "{} no longer drives {} ({})",
            driver.shown,
            kind.name,
            age.name()
        );
        Check::not(Word::No, Layer::Driver, headline, vec![cited]).because(
            "newer branches leave this GPU alone, and nothing above the driver changes that",
        )
    })
}

/// Windows numbers have no branches here: dropped, too new, by the CUDA levels of the Linux branches.
fn by_level(matrix: &Matrix, driver: &Side<'_>, arch: &Arch) -> (Option<bool>, Option<bool>) {
    let level = |branch: Option<u32>| {
        let rows = matrix.driver_branches();
        rows.iter()
            .find(|row| Some(row.branch) == branch)
            .map(|row| row.level)
    };
    let dropped = level(arch.last_driver_branch).and_then(|last| match (driver.low, driver.high) {
        (Some(low), _) if low > last => Some(true),
        (_, Some(high)) if high <= last => Some(false),
        _ => None,
    });
    let before =
        level(arch.first_driver_branch).and_then(|first| match (driver.low, driver.high) {
            (_, Some(high)) if high < first => Some(true),
            (Some(low), _) if low >= first => Some(false),
            _ => None,
        });
    (dropped, before)
}

/// Which flavour of the kernel modules the GPU takes, and whether the branch has it.
fn modules(case: &Case<'_>, driver: &Side<'_>, kind: &GpuKind, mut check: Check) -> Check {
    let matrix = case.matrix;
    let Some(arch) = kind.arch(matrix) else {
        return check;
    };
    let of_gpus = kind.gpus.iter().find_map(|gpu| matrix.open_module_of(gpu));
    let Some(OpenModule::Required { confidence }) = of_gpus.or_else(|| arch.open_module()) else {
        return check;
    };
    if driver.windows {
        return check;
    }
    let flavours = driver.branch.and_then(|branch| branch.kernel_modules);
    let cited = |text: &str| Cited {
        confidence,
        ..Cited::arch(text, arch)
    };
    if flavours == Some(KernelModules::ProprietaryOnly) {
        let headline = format!(
            "{} has proprietary kernel modules only, and {} needs the open ones",
            driver.shown, kind.name
        );
        let why = vec![cited("needs the open kernel modules")];
        return Check::not(Word::No, Layer::Driver, headline, why)
            .because("the kernel module has to drive the GPU; nothing above it does");
    }
    if flavours != Some(KernelModules::OpenOnly) {
        check.limits.push(cited(
            "this GPU is driven by the open kernel modules of the branch only",
        ));
    }
    check
}

pub(super) fn is_tegra(kind: &GpuKind, matrix: &Matrix) -> bool {
    kind.arch(matrix)
        .is_some_and(|arch| arch.tegra && arch.first_driver_branch.is_none())
}
