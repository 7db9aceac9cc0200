//! Driver and runtime: an integer decides, the CUDA level that the runtime asks for and the driver has. What remains within
//! a major version (PTX, functions) is told as a limit. The C library, which the runtime asks for too, is judged here.

use super::can::{Case, Check, CudaSide};
use super::driver::Side;
use super::{Cited, Word, cuda_of};
use crate::facts::Layer;
use crate::matrix::{Confidence, Matrix, MinimumDriver};
use crate::version::Version;

/// Driver and runtime: the level that the runtime asks for.
pub(super) fn runtime_on_driver(case: &Case<'_>, driver: &Side<'_>, cuda: &CudaSide<'_>) -> Check {
    let matrix = case.matrix;
    if case.tegra {
        let notes = matrix.platform_notes().iter();
        let cited = notes
            .filter(|note| note.topic == "driver floors on Tegra")
            .map(Cited::note)
            .collect();
        return Check::not(
            Word::Unknown,
            Layer::Driver,
            "a Jetson's driver comes with its L4T release, and these numbers say nothing there"
                .to_owned(),
            cited,
        );
    }
    if let Some(why) = &driver.unknown {
        let source = "CUDA release notes: Linux and Windows columns";
        let cited = Cited::rule(why.clone(), source, Confidence::Verified);
        let headline = format!(
            "{} is no Linux driver that the matrix can compare",
            driver.shown
        );
        return Check::not(Word::Unknown, Layer::Driver, headline, vec![cited]);
    }
    if cuda.hole {
        let no_such = format!("there is no {} in the matrix", cuda.cuda());
        let notes = matrix.cuda_notes().iter();
        let cited = notes
            .filter(|note| note.topic == format!("no toolkit {}", cuda.version.major_minor()))
            .map(Cited::note)
            .collect();
        return Check::not(Word::Unknown, Layer::Runtime, no_such, cited);
    }
    let mut why = vec![asked_of_driver(matrix, cuda, driver.windows)];
    why.extend(driver.cited.iter().cloned());
    let accepts =
        |level: Option<u32>| level.map(|level| matrix.runtime_accepts(cuda.version, level));
    let floor = |minimum: &MinimumDriver| {
        if driver.windows {
            minimum.version_windows.clone()
        } else {
            minimum.version.clone()
        }
    };
    let floor = cuda.minimum.as_ref().and_then(floor);
    let below_floor = match (&floor, driver.number) {
        (Some(floor), Some(number)) => number < floor,
        _ => false,
    };
    // On Windows the document decides: what a driver answers was not measured there.
    let by_document = driver.windows && driver.number.is_some() && floor.is_some();
    if !by_document {
        why.extend(driver.by_number());
    }
    let too_old = if by_document {
        below_floor
    } else {
        accepts(driver.high) == Some(false)
    };
    if too_old {
        return Check::not(Word::No, Layer::Driver, too_old_line(case, driver, cuda), why)
            .because(format!(
                "every CUDA {}.x runtime asks the same of the driver, so nothing newer in the image, the framework or the program makes up for it",
                cuda.version.major()
            ));
    }
    if !by_document && accepts(driver.low) != Some(true) {
        let headline = format!(
            "whether {} runs {} is not known: it needs {}",
            driver.in_full(),
            cuda.shown(),
            needed_level(cuda)
        );
        return Check::not(Word::Unknown, Layer::Driver, headline, why).because("");
    }
    let mut check = Check::yes(Layer::Driver, why);
    if let Some(floor) = floor.filter(|_| below_floor) {
        let builds = driver.number.is_some_and(|number| number.len() < 2);
        let text = if builds {
            format!(
                "of branch {} the builds from {floor} on are documented for CUDA {}.x",
                floor.major(),
                cuda.version.major()
            )
        } else {
            format!(
                "{} is below {floor}, from which on NVIDIA documents CUDA {}.x; the runtime's own test looks at the level alone and passes",
                driver.shown,
                cuda.version.major()
            )
        };
        if let Some(minimum) = &cuda.minimum {
            check.limits.push(Cited::row(
                text,
                "family",
                cuda.version.major(),
                &minimum.source,
                minimum.confidence,
            ));
        }
    }
    check.limits.extend(newer_than_matrix(case, driver, cuda));
    check.limits.extend(ptx_limit(matrix, driver, cuda));
    check
}

/// `CUDA 12.0`, as a level.
fn needed_level(cuda: &CudaSide<'_>) -> String {
    cuda.minimum.as_ref().map_or_else(
        || cuda.shown(),
        |minimum| format!("a driver of {}", cuda_of(minimum.level)),
    )
}

/// What the runtime asks for, with its row.
fn asked_of_driver(matrix: &Matrix, cuda: &CudaSide<'_>, windows: bool) -> Cited {
    let Some(minimum) = &cuda.minimum else {
        return Cited::rule(
            format!(
                "{} is older than the matrix: a driver of its own CUDA version or newer runs it",
                cuda.cuda()
            ),
            "CUDA Compatibility guide: backward compatibility",
            Confidence::Secondary,
        );
    };
    let documented = match (windows, &minimum.version, &minimum.version_windows) {
        (false, Some(least), _) => format!("; the documented least driver is {least}"),
        (true, _, Some(least)) => format!("; the documented least Windows driver is {least}"),
        (true, _, None) => "; no least Windows driver is documented".to_owned(),
        (false, None, _) => String::new(),
    };
    let asks = format!(
        "asks the driver for {} (level {}) or newer and answers error 35 otherwise{documented}",
        cuda_of(minimum.level),
        minimum.level
    );
    let major = minimum.runtime_major;
    let (confidence, source) = (minimum.confidence, minimum.source.as_str());
    if minimum.newer_than_matrix {
        return Cited::rule(
            format!("a CUDA {major}.x runtime {asks}"),
            source,
            confidence,
        );
    }
    if matrix.families().iter().any(|row| row.major == major) {
        return Cited::row(
            format!("a CUDA {major}.x runtime, whatever its minor version, {asks}"),
            "family",
            major,
            source,
            confidence,
        );
    }
    let row = matrix
        .toolkits()
        .iter()
        .find(|row| row.level == minimum.level && !row.preview);
    let key = row.map_or_else(String::new, |row| row.cuda.to_string());
    Cited::row(
        format!("{} {asks}", cuda.cuda()),
        "toolkit",
        key,
        source,
        confidence,
    )
}

/// The line of the textbook question: who cannot run what, and what is needed.
fn too_old_line(case: &Case<'_>, driver: &Side<'_>, cuda: &CudaSide<'_>) -> String {
    let base = match driver.number {
        Some(_) => format!("{} cannot run {}", driver.in_full(), cuda.shown()),
        None => format!("without a driver {} does not run", cuda.shown()),
    };
    let Some(minimum) = &cuda.minimum else {
        return base;
    };
    let (first, last) = case.branches_of_gpus();
    let floor_branch = minimum.branch.unwrap_or(0);
    if driver.windows {
        return match &minimum.version_windows {
            Some(floor) => format!("{base}; it needs {floor} or newer"),
            None => format!(
                "{base}; it needs a driver of {} or newer",
                cuda_of(minimum.level)
            ),
        };
    }
    if let Some((last, kind)) = last.filter(|(last, _)| *last < floor_branch) {
        return format!(
            "{base}, and no driver that does drives {} any more ({last} is the last branch for it)",
            kind.name
        );
    }
    match (&minimum.version, first) {
        (Some(_), Some(first)) if first > floor_branch => {
            format!(
                "{base}; with {} it needs branch {first} or newer",
                case.gpu_names()
            )
        }
        (Some(floor), _) => format!("{base}; it needs {floor} or newer"),
        (None, _) => format!(
            "{base}; it needs a driver of {}, newer than any that the matrix knows",
            cuda_of(minimum.level)
        ),
    }
}

fn newer_than_matrix(case: &Case<'_>, driver: &Side<'_>, cuda: &CudaSide<'_>) -> Option<Cited> {
    let as_of = case.matrix.as_of();
    let text = match (driver.newer, cuda.newer) {
        (true, true) => format!(
            "driver and CUDA version are newer than the matrix of {as_of}: judged by the general rules"
        ),
        (true, false) => format!(
            "{} is newer than the matrix of {as_of}: judged by the general rule that a newer driver runs what an older one runs",
            driver.shown
        ),
        (false, true) => format!(
            "{} is newer than the last {}.x in the matrix of {as_of}: judged by the rule of its major version",
            cuda.cuda(),
            cuda.version.major()
        ),
        (false, false) => return None,
    };
    Some(Cited::rule(
        text,
        "CUDA Compatibility guide; libcudart 11.7 to 13.5 measured",
        Confidence::Secondary,
    ))
}

/// Under minor-version compatibility the driver compiles no PTX of a newer version than its own.
fn ptx_limit(matrix: &Matrix, driver: &Side<'_>, cuda: &CudaSide<'_>) -> Option<Cited> {
    let level = driver
        .low
        .filter(|level| cuda.version.cuda_level() > *level)?;
    let written = matrix.ptx_isa_of_toolkit(cuda.version);
    let taken = matrix.ptx_isa_of_level(level)?;
    let (text, row) = match written {
        Some(written) if written.ptx > taken.ptx => (
            format!(
                "minor-version compatibility: {} writes PTX {}, and this driver compiles PTX up to {}; a program needs machine code for its GPU (error 222 otherwise), and functions that are newer than the driver answer error 36",
                cuda.cuda(),
                written.ptx,
                taken.ptx
            ),
            written,
        ),
        Some(written) => (
            format!(
                "minor-version compatibility: functions that are newer than the driver answer error 36; its PTX ({}) the driver compiles",
                written.ptx
            ),
            written,
        ),
        None => (
            format!(
                "minor-version compatibility: this driver compiles PTX up to {}, and what {} writes is not known",
                taken.ptx,
                cuda.cuda()
            ),
            taken,
        ),
    };
    Some(Cited::row(
        text,
        "ptx_isa",
        &row.cuda,
        &row.source,
        row.confidence,
    ))
}

/// NVIDIA's runtime and the C library.
pub(super) fn runtime_on_glibc(matrix: &Matrix, glibc: &Version) -> Option<Check> {
    let row = matrix
        .glibc()
        .iter()
        .find(|row| row.component.starts_with("libcudart"))?;
    let needs = &row.max_symbol_version;
    let cited = Cited::row(
        format!("{} need glibc {needs} or newer", row.component),
        "glibc",
        &row.component,
        &row.source,
        row.confidence,
    );
    Some(if glibc < needs {
        let headline =
            format!("glibc {glibc} is too old for NVIDIA's runtime, which needs {needs}");
        Check::not(Word::No, Layer::System, headline, vec![cited])
            .because("the C library belongs to the system; a container brings its own")
    } else {
        Check::yes(Layer::System, vec![cited])
    })
}
