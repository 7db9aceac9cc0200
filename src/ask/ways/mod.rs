//! Ways out, best first: another driver, another build, the compat package; both of the first two where one alone does
//! not do, and another GPU where nothing else does. A way that is closed is told too, with the reason, since it is what
//! people try next.

mod compat;
mod driver;

use compat::compat_package;
use driver::{other_driver, with_support};

use super::can::{Case, CudaSide};
use super::code::{Served, serves};
use super::driver::Side;
use super::torch::{TorchSide, other_torch};
use super::{Cited, Way, WayKind};
use crate::facts::Layer;
use crate::matrix::{CodeFit, DriverBranch};
use crate::version::Version;

/// How to see that a driver or a compat package is in place.
const VERIFY_DRIVER: &str =
    "nvidia-smi on the host; for a container: docker run --rm --gpus all IMAGE nvidia-smi";

impl Way {
    pub(super) fn new(
        kind: WayKind,
        layer: Layer,
        open: Option<bool>,
        summary: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            layer,
            open,
            summary: summary.into(),
            cost: "",
            why_second: None,
            why_not: None,
            verify: None,
            rows: Vec::new(),
        }
    }

    pub(super) fn closed(
        kind: WayKind,
        layer: Layer,
        summary: &str,
        why: impl Into<String>,
    ) -> Self {
        Self {
            why_not: Some(why.into()),
            ..Self::new(kind, layer, Some(false), summary)
        }
    }
}

/// Which toolkits serve all GPUs: minor versions, oldest first.
fn builds_for_gpus(case: &Case<'_>) -> Vec<Version> {
    let mut minors: Vec<Version> = Vec::new();
    for row in case.matrix.toolkits().iter().filter(|row| !row.preview) {
        let minor = Version::from_cuda_level(row.level);
        if minors.last() != Some(&minor) && serves_all(case, &minor) {
            minors.push(minor);
        }
    }
    minors
}

/// Whether the toolkit serves all GPUs whose capability is known: the others bound nothing.
fn serves_all(case: &Case<'_>, minor: &Version) -> bool {
    case.kinds().all(|kind| {
        kind.capability.is_none_or(|capability| {
            matches!(
                serves(case.matrix, minor, capability),
                Served::Own | Served::By(_)
            )
        })
    })
}

/// Whether what was asked for has code for all GPUs.
fn build_serves_all(case: &Case<'_>, cuda: &CudaSide<'_>) -> bool {
    let Some(torch) = case.torch else {
        let toolkit = cuda.toolkit.as_ref();
        return toolkit.is_some_and(|minor| serves_all(case, minor));
    };
    case.kinds().all(|kind| {
        kind.capability.is_none_or(|capability| {
            let fit = torch.serves(case.matrix, capability, None);
            matches!(fit, CodeFit::Cubin(_) | CodeFit::Ptx(_))
        })
    })
}

/// The branches that drive all GPUs.
fn branches_for_gpus<'m>(case: &Case<'m>) -> Vec<&'m DriverBranch> {
    let (first, last) = case.branches_of_gpus();
    let drives = |row: &&DriverBranch| {
        first.is_none_or(|first| row.branch >= first)
            && last.is_none_or(|(last, _)| row.branch <= last)
    };
    case.matrix
        .driver_branches()
        .iter()
        .filter(drives)
        .collect()
}

/// All ways out, open ones first.
pub(super) fn out(case: &Case<'_>) -> Vec<Way> {
    // Of a number that is no driver's nothing follows.
    if case
        .driver
        .as_ref()
        .is_some_and(|driver| driver.unknown.is_some())
    {
        return Vec::new();
    }
    let mut ways = Vec::new();
    if let Some(driver) = &case.driver {
        ways.extend(other_driver(case, driver));
    }
    match (case.torch, &case.cuda) {
        (Some(torch), _) => ways.extend(other_build_of_torch(case, torch)),
        (None, Some(cuda)) => ways.push(other_build(case, cuda)),
        (None, None) => {}
    }
    if let (Some(driver), Some(cuda)) = (&case.driver, &case.cuda) {
        ways.extend(compat_package(case, driver, cuda));
        if !ways.iter().any(|way| way.open == Some(true)) {
            ways.extend(driver_and_build(case, driver));
        }
    }
    if !ways.iter().any(|way| way.open == Some(true)) && !case.gpus.is_empty() {
        ways.push(Way {
            cost: "hardware",
            ..Way::new(
                WayKind::Gpu,
                Layer::Hardware,
                Some(true),
                "take another GPU: no driver and build go with what was asked for",
            )
        });
    }
    // The order of preference stays; what is closed comes last.
    ways.sort_by_key(|way| way.open == Some(false));
    let mut first = true;
    for way in ways.iter_mut().filter(|way| way.open != Some(false)) {
        if std::mem::take(&mut first) {
            way.why_second = None;
        }
    }
    ways
}

/// Another build of PyTorch with the same driver.
fn other_build_of_torch(case: &Case<'_>, torch: &TorchSide<'_>) -> Option<Way> {
    let summary = "another build of PyTorch";
    let Some(driver) = &case.driver else {
        return other_torch(case, torch, None, &case.gpu_names());
    };
    if let Some(why) = not_driven(case, driver) {
        let (kind, layer) = (WayKind::Build, Layer::Framework);
        return Some(Way::closed(kind, layer, summary, why));
    }
    let on = if case.gpus.is_empty() {
        driver.shown.clone()
    } else {
        format!("{} and {}", driver.shown, case.gpu_names())
    };
    other_torch(case, torch, Some(driver.low.unwrap_or(0)), &on)
}

/// Another build with the same driver.
fn other_build(case: &Case<'_>, cuda: &CudaSide<'_>) -> Way {
    let (kind, layer) = (WayKind::Build, Layer::Runtime);
    let summary = "an image or build for another CUDA version";
    let matrix = case.matrix;
    let level = match &case.driver {
        Some(driver) => {
            if let Some(why) = not_driven(case, driver) {
                return Way::closed(kind, layer, summary, why);
            }
            driver.low.unwrap_or(0)
        }
        None => u32::MAX,
    };
    let wanted = Version::from_cuda_level(cuda.version.cuda_level());
    let builds: Vec<Version> = builds_for_gpus(case)
        .into_iter()
        .filter(|minor| matrix.runtime_accepts(minor, level))
        .collect();
    // The nearest to what was asked for: an older one where the driver is the limit, a newer one where the GPU is.
    let older = builds.iter().rev().find(|minor| **minor < wanted);
    let newer = builds.iter().find(|minor| **minor > wanted);
    let too_new_gpu = case.kinds().any(|kind| {
        kind.arch(matrix)
            .is_some_and(|arch| arch.first_toolkit > wanted)
    });
    let (nearest, word) = match (older, newer, too_new_gpu) {
        (_, Some(newer), true) | (None, Some(newer), false) => (newer, "newer"),
        (Some(older), _, _) => (older, "older"),
        (None, _, _) => {
            let on = if case.gpus.is_empty() {
                String::new()
            } else {
                format!(" and builds for {}", case.gpu_names())
            };
            let driver = case
                .driver
                .as_ref()
                .map_or("any driver", |driver| &driver.shown);
            return Way::closed(
                kind,
                layer,
                summary,
                format!("no CUDA version in the matrix runs on {driver}{on}"),
            );
        }
    };
    let mut text = format!("take an image or build for CUDA {nearest} or {word}");
    // Up to the driver's own version there is no limit at all.
    let within = builds
        .iter()
        .rev()
        .find(|minor| minor.cuda_level() <= level && **minor <= *nearest);
    match within {
        Some(within) if within != nearest && word == "older" => {
            text = format!("{text} ({within} or older: no limit on PTX either)");
        }
        _ => {}
    }
    let oldest = builds
        .first()
        .filter(|oldest| word == "older" && !case.gpus.is_empty() && *oldest < nearest);
    if let Some(oldest) = oldest {
        text = format!("{text}, {oldest} at the oldest for {}", case.gpu_names());
    }
    let mut way = Way::new(kind, layer, Some(true), text);
    way.cost = "rebuild or another image";
    way.why_second = Some(if word == "older" {
        "the driver stays as old as it is, and what only the newer CUDA version has is given up"
            .to_owned()
    } else {
        "the program has to be built anew".to_owned()
    });
    way.verify = Some("gpudoctor in the container or environment");
    let row = matrix
        .toolkits()
        .iter()
        .find(|row| row.level == nearest.cuda_level() && !row.preview);
    way.rows.extend(row.map(|row| {
        Cited::row(
            format!("{} came with branch {}", row.label, row.branch),
            "toolkit",
            &row.cuda,
            &row.source,
            row.confidence,
        )
    }));
    if let Some(image) = matrix.image_requirement(nearest) {
        way.rows.push(Cited::row(
            format!("images {}", image.image),
            "image_require",
            &image.image,
            &image.source,
            image.confidence,
        ));
    }
    way
}

/// Why the driver drives none or not all of the GPUs, where that is so.
fn not_driven(case: &Case<'_>, driver: &Side<'_>) -> Option<String> {
    let Some(number) = driver.number else {
        return Some("without a driver no CUDA version runs".to_owned());
    };
    if driver.windows {
        return None;
    }
    let (first, last) = case.branches_of_gpus();
    if let Some((last, gpu)) = last.filter(|(last, _)| number.major() > *last) {
        return Some(format!(
            "{} is newer than branch {last}, the last one for {}",
            driver.shown, gpu.name
        ));
    }
    first.filter(|first| number.major() < *first).map(|first| {
        format!(
            "{} is older than branch {first}, the first one for {}",
            driver.shown,
            case.gpu_names()
        )
    })
}

/// A build of PyTorch and the driver for it and the GPUs.
fn torch_and_driver(
    case: &Case<'_>,
    torch: &TorchSide<'_>,
    branches: &[&DriverBranch],
) -> Option<Way> {
    let newest = branches.last()?;
    let mut way = other_torch(case, torch, Some(newest.level), &case.gpu_names())?;
    way.open?.then_some(())?;
    way.kind = WayKind::DriverAndBuild;
    way.layer = Layer::Driver;
    way.summary = format!(
        "both: a driver of branch {} on the host, and {}",
        newest.branch, way.summary
    );
    way.cost = "root, reboot, reinstall";
    Some(way)
}

/// Both at once, where one alone does not do.
fn driver_and_build(case: &Case<'_>, driver: &Side<'_>) -> Option<Way> {
    if driver.windows || case.gpus.is_empty() {
        return None;
    }
    let matrix = case.matrix;
    let branches = branches_for_gpus(case);
    let newest = branches.last()?;
    if let Some(torch) = case.torch {
        return torch_and_driver(case, torch, &branches);
    }
    let builds = builds_for_gpus(case);
    let running: Vec<&Version> = builds
        .iter()
        .filter(|minor| matrix.runtime_accepts(minor, newest.level))
        .collect();
    let (oldest_build, newest_build) = (running.first()?, running.last()?);
    let bound = case.branches_of_gpus().1;
    let branch = match (branches.first(), bound) {
        (Some(first), None) => format!("branch {} or newer", first.branch),
        (_, Some((last, _))) => format!("branch {last}"),
        (None, None) => return None,
    };
    let build = if oldest_build == newest_build {
        format!("CUDA {oldest_build}")
    } else {
        format!("CUDA {oldest_build} to {newest_build}")
    };
    let mut way = Way::new(
        WayKind::DriverAndBuild,
        Layer::Driver,
        Some(true),
        format!(
            "both: a driver of {branch} on the host, and an image or build for {build}: {} needs the one and the other{}",
            case.gpu_names(),
            with_support(&branches, matrix)
        ),
    );
    way.cost = "root, reboot, rebuild or another image";
    way.verify = Some(VERIFY_DRIVER);
    way.rows = case
        .kinds()
        .filter_map(|kind| kind.arch(matrix))
        .map(|arch| {
            Cited::arch(
                format!(
                    "CUDA {} is the first that builds for it",
                    arch.first_toolkit.major_minor()
                ),
                arch,
            )
        })
        .collect();
    Some(way)
}
