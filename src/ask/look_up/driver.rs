//! What a driver runs and drives, and until when it has support.

use crate::ask::driver::Side;
use crate::ask::{Answer, Cited, Question, Word, cuda_of, in_words};
use crate::matrix::{Compat, DriverBranch, EndOfLife, KernelModules, Matrix};
use crate::target::{Driver, Os};
use crate::version::Version;

/// What a driver is and runs.
pub fn driver(matrix: &Matrix, driver: &Driver, os: Option<&Os>) -> Answer {
    let question = Question::Driver {
        driver: driver.clone(),
        os: os.cloned(),
    };
    let side = Side::of(matrix, driver, os);
    let Driver::Version(number) = driver else {
        return Answer::new(
            question,
            Word::Known,
            "without a driver no CUDA runtime runs: each answers error 35".to_owned(),
        );
    };
    if let Some(why) = &side.unknown {
        return Answer::new(question, Word::Unknown, why.clone());
    }
    let runs = match (side.low, side.high) {
        (Some(low), Some(_)) => format!("runs {} and older", matrix.newest_runtime_for_level(low)),
        (Some(low), None) => format!(
            "runs {} and older at least",
            matrix.newest_runtime_for_level(low)
        ),
        (None, _) => "what it runs is not in the matrix".to_owned(),
    };
    let level = side.level_in_words().unwrap_or_default();
    let Some(row) = side.branch else {
        let word = if side.low.is_some() && side.high.is_some() {
            Word::Known
        } else {
            Word::Unknown
        };
        let newer = if side.newer {
            " is newer than the matrix:"
        } else {
            ":"
        };
        let mut answer = Answer::new(
            question,
            word,
            format!("{}{newer} {level}, {runs}", side.shown),
        );
        answer.why.clone_from(&side.cited);
        return answer.weighed();
    };
    let ended = match row.life_at(matrix.as_of()) {
        EndOfLife::Ended => ", without support since",
        EndOfLife::Alive => ", with support until",
        EndOfLife::Unknown => "",
    };
    let end = row.end_of_life.as_deref().filter(|_| !ended.is_empty());
    let support = end.map_or_else(String::new, |end| format!("{ended} {end}"));
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!(
            "{} is {level}: {runs}; branch {} ({}){support}",
            side.shown, row.branch, row.kind
        ),
    );
    of_branch(matrix, row, number, &mut answer);
    answer.weighed()
}

fn of_branch(matrix: &Matrix, row: &DriverBranch, number: &Version, answer: &mut Answer) {
    answer.fact(
        "CUDA level",
        Cited::branch(format!("{} ({})", cuda_of(row.level), row.level), row),
    );
    let next = matrix
        .families()
        .iter()
        .find(|family| family.min_level > row.level);
    if let Some(family) = next {
        answer.fact(
            "does not run",
            Cited::row(
                format!(
                    "CUDA {}.x, which needs {} or newer",
                    family.major, family.min_driver
                ),
                "family",
                family.major,
                &family.source,
                family.confidence,
            ),
        );
    }
    let of_own = matrix
        .families()
        .iter()
        .find(|family| family.min_branch == row.branch && *number < family.min_driver);
    if let Some(family) = of_own {
        answer.fact(
            "floor",
            Cited::row(
                format!(
                    "CUDA {}.x is documented from {} on",
                    family.major, family.min_driver
                ),
                "family",
                family.major,
                &family.source,
                family.confidence,
            ),
        );
    }
    if let Some(isa) = matrix.ptx_isa_of_level(row.level) {
        answer.fact(
            "PTX",
            Cited::row(
                format!("compiles up to {}", isa.ptx),
                "ptx_isa",
                &isa.cuda,
                &isa.source,
                isa.confidence,
            ),
        );
    }
    let newest: Vec<_> = row
        .newest_arch
        .iter()
        .map(|age| age.name().to_owned())
        .collect();
    let some = row
        .newest_arch_note
        .as_ref()
        .map_or_else(String::new, |note| format!(" ({note})"));
    let mut gpus = Cited::branch(
        format!("{} to {}{some}", row.oldest_arch.name(), in_words(&newest)),
        row,
    );
    gpus.confidence = row.archs_confidence.unwrap_or(row.confidence);
    answer.fact("GPUs", gpus);
    if let Some(modules) = row.kernel_modules {
        let text = match modules {
            KernelModules::ProprietaryOnly => "proprietary only",
            KernelModules::OpenOptional => "proprietary by default, open for Turing and newer",
            KernelModules::OpenDefault => "open by default, proprietary for those who ask",
            KernelModules::OpenOnly => "open only",
        };
        answer.fact("kernel modules", Cited::branch(text, row));
    }
    if let Some(first) = &row.first_release {
        let mut cited = Cited::branch(first.clone(), row);
        cited.confidence = row.first_release_confidence.unwrap_or(row.confidence);
        answer.fact("first release", cited);
    }
    let end = row.end_of_life.clone().or_else(|| {
        row.no_end_of_life
            .then(|| "none of its own: support ends with the next branch".to_owned())
    });
    if let Some(end) = end {
        let mut cited = Cited::branch(end, row);
        cited.confidence = row.end_of_life_confidence();
        answer.fact("end of support", cited);
    }
    let packages: Vec<_> = matrix
        .forward_compat_rows()
        .iter()
        .filter(|compat| {
            matches!(
                matrix.forward_compat(&compat.cuda, row.branch),
                Compat::Supported { .. }
            )
        })
        .collect();
    if let Some(confidence) = packages.iter().map(|compat| compat.confidence).min() {
        let names: Vec<_> = packages
            .iter()
            .map(|compat| compat.package.clone())
            .collect();
        answer.fact(
            "compat packages",
            Cited::row(
                format!("{} on data-center GPUs", names.join(", ")),
                "forward_compat",
                "*",
                "the rows of each package",
                confidence,
            ),
        );
    }
    if let Some(note) = &row.note {
        answer.fact("note", Cited::branch(note.clone(), row));
    }
}
