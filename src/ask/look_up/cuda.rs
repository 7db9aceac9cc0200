//! What a CUDA version needs, came with and builds for.

use crate::ask::can::CudaSide;
use crate::ask::{Answer, Cited, Question, Word, cuda_of, sm};
use crate::matrix::{Arch, Matrix, Toolkit};
use crate::version::Version;

/// What a CUDA version is and needs. A major version alone means all of it.
pub fn cuda(matrix: &Matrix, version: &Version) -> Answer {
    let question = Question::Cuda {
        cuda: version.clone(),
    };
    let whole_major = version.len() == 1;
    let side = CudaSide::of(matrix, version);
    let releases: Vec<&Toolkit> = matrix
        .toolkits()
        .iter()
        .filter(|row| {
            row.cuda.major() == version.major()
                && (whole_major || row.cuda.minor() == version.minor())
        })
        .collect();
    let name = if whole_major {
        format!("CUDA {}.x", version.major())
    } else {
        side.shown()
    };
    let exact = releases
        .iter()
        .find(|row| row.cuda == *version && version.len() > 2);
    let shown = exact.map_or_else(|| name.clone(), |row| format!("CUDA {}", row.label));
    let Some(minimum) = side.minimum.as_ref().filter(|_| !releases.is_empty()) else {
        let mut answer = Answer::new(
            question,
            Word::Unknown,
            format!("{name} is not in the matrix of {}", matrix.as_of()),
        );
        let topic = format!("no toolkit {}", version.major_minor());
        let notes = matrix.cuda_notes().iter();
        answer
            .why
            .extend(notes.filter(|note| note.topic == topic).map(Cited::note));
        if let Some(minimum) = &side.minimum {
            answer.why.push(Cited::rule(
                format!(
                    "by the general rule it asks for a driver of {}",
                    cuda_of(minimum.level)
                ),
                &minimum.source,
                minimum.confidence,
            ));
        }
        return answer.weighed();
    };
    let floor = minimum
        .version
        .as_ref()
        .map_or_else(|| cuda_of(minimum.level), ToString::to_string);
    let shipped = match exact
        .copied()
        .or_else(|| releases.iter().copied().find(|row| !row.preview))
    {
        Some(row) if !whole_major => match &row.driver {
            Some(driver) if *driver.as_str() == *floor => "; it came with that one".to_owned(),
            Some(driver) => format!("; it came with {driver}, which is no minimum"),
            None => format!("; it brings no driver, its branch is {}", row.branch),
        },
        _ => String::new(),
    };
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!("{shown} needs driver {floor} or newer{shipped}"),
    );
    let family = matrix
        .families()
        .iter()
        .find(|row| row.major == version.major());
    if let Some(row) = family {
        let cited =
            |text: String| Cited::row(text, "family", row.major, &row.source, row.confidence);
        answer.fact(
            "least driver",
            cited(format!(
                "Linux {}, the same for every {}.x; the runtime asks for level {}",
                row.min_driver, row.major, row.min_level
            )),
        );
        answer.fact(
            "on Windows",
            cited(row.min_driver_windows.as_ref().map_or_else(
                || "no least number is documented".to_owned(),
                |driver| format!("{driver} (for WSL too; the numbers are another line)"),
            )),
        );
    } else if let Some(row) = releases.first() {
        answer.fact(
            "least driver",
            Cited::toolkit(
                format!("Linux {floor}: each version before 11 needs its own driver"),
                row,
            ),
        );
    }
    for row in releases
        .iter()
        .filter(|row| exact.is_none_or(|exact| exact.cuda == row.cuda))
    {
        answer.fact("release", Cited::toolkit(release(row), row));
    }
    if !whole_major {
        of_minor(matrix, &side, &mut answer);
    }
    answer.weighed()
}

/// `12.4 Update 1 (12.4.1), 2024-04: driver 550.54.15 (Windows 551.78)`.
fn release(row: &Toolkit) -> String {
    let date = row
        .released
        .as_ref()
        .map_or_else(String::new, |date| format!(", {date}"));
    let driver = match &row.driver {
        Some(driver) => format!("driver {driver}"),
        None if row.driver_bundled => format!("a driver of branch {}", row.branch),
        None => format!("branch {}, no driver in it", row.branch),
    };
    let windows = row
        .driver_windows
        .as_ref()
        .map_or_else(String::new, |driver| format!(" (Windows {driver})"));
    format!("{} ({}){date}: {driver}{windows}", row.label, row.cuda)
}

/// What holds for a minor version.
fn of_minor(matrix: &Matrix, side: &CudaSide<'_>, answer: &mut Answer) {
    let version = side.version;
    if let Some(row) = matrix.ptx_isa_of_toolkit(version) {
        answer.fact(
            "PTX",
            Cited::row(
                format!(
                    "writes {}, which drivers of {} and newer compile",
                    row.ptx,
                    side.shown()
                ),
                "ptx_isa",
                &row.cuda,
                &row.source,
                row.confidence,
            ),
        );
    }
    let minor = Version::from_cuda_level(version.cuda_level());
    let built: Vec<&Arch> = matrix
        .archs()
        .iter()
        .filter(|arch| {
            arch.first_toolkit.cuda_level() <= minor.cuda_level()
                && arch
                    .last_toolkit
                    .as_ref()
                    .is_none_or(|last| last.cuda_level() >= minor.cuda_level())
        })
        .collect();
    if let Some(confidence) = built.iter().map(|arch| arch.confidence).min() {
        let names: Vec<_> = built.iter().map(|arch| sm(arch.capability)).collect();
        answer.fact(
            "builds for",
            Cited::row(
                names.join(", "),
                "arch",
                "*",
                "the rows of each architecture",
                confidence,
            ),
        );
    }
    if let Some(row) = matrix.host_compiler(version) {
        answer.fact(
            "host compiler",
            Cited::row(
                format!("GCC up to {}, Clang up to {}", row.gcc_max, row.clang_max),
                "host_compiler",
                &row.toolkit,
                &row.source,
                row.confidence,
            ),
        );
    }
    let compat = matrix
        .forward_compat_rows()
        .iter()
        .find(|row| row.cuda == minor);
    if let Some(row) = compat {
        let branches: Vec<_> = row.supported.iter().map(ToString::to_string).collect();
        let on = if branches.is_empty() {
            "no branch is known for sure".to_owned()
        } else {
            format!(
                "on data-center GPUs with driver branch {}",
                branches.join(", ")
            )
        };
        answer.fact(
            "compat package",
            Cited::row(
                format!("{}: {on}", row.package),
                "forward_compat",
                &row.cuda,
                &row.source,
                row.confidence,
            ),
        );
    }
}
