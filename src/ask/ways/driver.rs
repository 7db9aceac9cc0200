//! Another driver with the same build: which branches do, which of them had support on the day of the matrix, and where
//! none does, why.

use super::{VERIFY_DRIVER, branches_for_gpus, build_serves_all};
use crate::ask::can::Case;
use crate::ask::driver::Side;
use crate::ask::{Cited, Way, WayKind, cuda_of, in_words};
use crate::facts::Layer;
use crate::matrix::{DriverBranch, EndOfLife, Matrix};

/// Another driver with the same build.
pub(super) fn other_driver(case: &Case<'_>, driver: &Side<'_>) -> Option<Way> {
    let (kind, layer) = (WayKind::Driver, Layer::Driver);
    let matrix = case.matrix;
    if driver.windows {
        return other_windows_driver(case, driver);
    }
    let minimum = case.cuda.as_ref().and_then(|cuda| cuda.minimum.as_ref());
    let floor = minimum.and_then(|minimum| minimum.branch).unwrap_or(0);
    let level = minimum.map_or(0, |minimum| minimum.level);
    let for_gpus = branches_for_gpus(case);
    let fitting: Vec<&DriverBranch> = for_gpus
        .iter()
        .copied()
        .filter(|row| row.branch >= floor && row.level >= level)
        .collect();
    let summary = "another driver";
    let Some(oldest) = fitting.first() else {
        let (_, last) = case.branches_of_gpus();
        let why = match (last, &case.cuda) {
            (Some((last, gpu)), Some(cuda)) if last < floor || for_gpus.is_empty() => format!(
                "{last} is the last branch for {}, and {} needs {floor} or newer",
                gpu.name,
                cuda.shown()
            ),
            _ if for_gpus.is_empty() => {
                format!("no branch drives {} together", case.gpu_names())
            }
            _ => format!(
                "the matrix of {} knows no driver of {}",
                matrix.as_of(),
                cuda_of(level)
            ),
        };
        return Some(Way::closed(kind, layer, summary, why));
    };
    let fits_now = driver
        .number
        .is_some_and(|number| fitting.iter().any(|row| row.branch == number.major()));
    if let Some(cuda) = &case.cuda
        && !build_serves_all(case, cuda)
    {
        let lacks = if case.torch.is_some() {
            "hold"
        } else {
            "build"
        };
        let why = format!(
            "no driver makes up for what {} does not {lacks}: machine code for {}",
            cuda.shown(),
            case.gpu_names()
        );
        return Some(Way::closed(kind, layer, summary, why));
    }
    if fits_now {
        return None;
    }
    let back = driver
        .number
        .is_some_and(|number| fitting.iter().all(|row| row.branch < number.major()));
    let newest = fitting.last().unwrap_or(oldest);
    let least = match minimum.and_then(|minimum| minimum.version.as_ref()) {
        Some(version) if version.major() == oldest.branch => version.to_string(),
        _ => format!("branch {}", oldest.branch),
    };
    let (_, last) = case.branches_of_gpus();
    let bound = last.map_or_else(String::new, |(last, gpu)| {
        format!(", {last} at the newest: the last branch for {}", gpu.name)
    });
    let support = with_support(&fitting, matrix);
    let text = if back {
        format!(
            "go back to driver branch {} on the host{support}",
            newest.branch
        )
    } else if driver.number.is_none() {
        format!("install a driver of {least} or newer on the host{bound}{support}")
    } else {
        format!("upgrade the driver of the host to {least} or newer{bound}{support}")
    };
    let mut way = Way::new(kind, layer, Some(true), text);
    way.cost = "root, reboot";
    way.verify = Some(VERIFY_DRIVER);
    let alive: Vec<_> = fitting
        .iter()
        .filter(|row| row.life_at(matrix.as_of()) == EndOfLife::Alive)
        .collect();
    let advised = if alive.is_empty() {
        vec![newest]
    } else {
        alive
    };
    way.rows = advised
        .into_iter()
        .map(|row| {
            Cited::row(
                format!("branch {}: {}", row.branch, cuda_of(row.level)),
                "driver_branch",
                row.branch,
                &row.source,
                row.confidence,
            )
        })
        .collect();
    Some(way)
}

/// Which of these branches had support on the day of the matrix: "; with support on ...: 580 (lts, until 2028-06)".
pub(super) fn with_support(branches: &[&DriverBranch], matrix: &Matrix) -> String {
    let alive: Vec<_> = branches
        .iter()
        .filter(|row| row.life_at(matrix.as_of()) == EndOfLife::Alive)
        .map(|row| {
            format!(
                "{} ({}, until {})",
                row.branch,
                row.kind,
                row.end_of_life.as_deref().unwrap_or_default()
            )
        })
        .collect();
    if alive.is_empty() {
        format!(
            "; none of these branches has support any more on {}",
            matrix.as_of()
        )
    } else {
        format!("; with support on {}: {}", matrix.as_of(), in_words(&alive))
    }
}

fn other_windows_driver(case: &Case<'_>, driver: &Side<'_>) -> Option<Way> {
    let (kind, layer) = (WayKind::Driver, Layer::Driver);
    let minimum = case.cuda.as_ref().and_then(|cuda| cuda.minimum.as_ref())?;
    let floor = minimum.version_windows.as_ref();
    if floor.is_some_and(|floor| driver.number.is_some_and(|number| number >= floor)) {
        return None;
    }
    let text = match floor {
        Some(floor) => format!("upgrade the driver in Windows to {floor} or newer"),
        None => format!(
            "upgrade the driver in Windows to one of {} or newer; no least number is documented",
            cuda_of(minimum.level)
        ),
    };
    Some(Way {
        cost: "administrator, reboot",
        ..Way::new(kind, layer, Some(true), text)
    })
}
