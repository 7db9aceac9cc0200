//! What a release of cuDNN, NCCL or TensorRT runs on, and which frameworks ask for it.

use super::{and_newer, asked_by, cuda_in_words, not_in_matrix_by_range};
use crate::ask::cudnn::told;
use crate::ask::{Answer, Cited, Question, Word, capability, in_words};
use crate::matrix::{Cudnn, Matrix, Nccl, Pins, Tensorrt, cudnn_answer};
use crate::requirement::Requirement;
use crate::version::Version;

/// What a release of cuDNN runs on.
pub(super) fn cudnn(matrix: &Matrix, version: &Version, question: Question) -> Answer {
    let rows = matrix.cudnn_release(version);
    let Some(widest) = rows.iter().min_by_key(|row| row.capability_min) else {
        let near = near_cudnn(matrix, version);
        let text = not_in_matrix_by_range(matrix, &format!("cuDNN {version}"));
        return Answer::not_known(question, format!("{text}{near}"));
    };
    let cudas: Vec<_> = rows.iter().map(|row| format!("{}.x", row.cuda)).collect();
    let greatest = rows.iter().map(|row| row.capability_max).max_by_key(|max| {
        // None is no limit.
        max.map_or((true, (0, 0)), |max| (false, max))
    });
    let gpus = match greatest.flatten() {
        Some(max) => format!(
            "compute capability {} to {}",
            capability(widest.capability_min),
            capability(max)
        ),
        None => and_newer(widest.capability_min),
    };
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!(
            "cuDNN {version} is built for CUDA {} and runs on {gpus}",
            in_words(&cudas)
        ),
    );
    for row in &rows {
        of_build(row, &mut answer);
    }
    if let Some(row) = matrix.cudnn_files(version.major()) {
        let cited =
            |text: String| Cited::row(text, "cudnn_files", row.major, &row.source, row.confidence);
        answer.fact("files", cited(row.files.join(", ")));
        if !row.later.is_empty() {
            answer.fact("newer ones too", cited(row.later.join(", ")));
        }
    }
    answer.fact(
        "numbers",
        Cited::rule(
            format!("cudnnGetVersion answers {}", cudnn_answer(version)),
            "cudnn_version.h: from 9.0 on 10000 x major, before 1000 x major, 100 x minor, patch",
            crate::matrix::Confidence::Verified,
        ),
    );
    let found = matrix.pinned_by(|name| name.starts_with("nvidia-cudnn-cu"), version);
    if let Some(cited) = asked_by(&found) {
        answer.fact("asked for by", cited);
    }
    answer.notes(matrix.library_notes().iter(), &["cuDNN parts"]);
    answer.weighed()
}

fn of_build(row: &Cudnn, answer: &mut Answer) {
    answer.fact("runs on", told(row));
    let cited = |text: String| Cited { text, ..told(row) };
    if let Some(driver) = &row.min_driver {
        let text = format!("Linux {driver} (CUDA {}.x)", row.cuda);
        answer.fact("least driver", cited(text));
    }
    if let (Some(code), Some(of)) = (&row.archs, &row.archs_of) {
        let words = code.words().join(", ");
        let text = format!("libcudnn_ops of {of} for CUDA {}.x: {words}", row.cuda);
        answer.fact("device code", cited(text));
    }
    if let Some(note) = &row.note {
        answer.fact("note", cited(note.clone()));
    }
}

fn near_cudnn(matrix: &Matrix, version: &Version) -> String {
    let rows = || matrix.cudnns().iter();
    let older = rows()
        .filter(|row| row.last < *version)
        .map(|row| &row.last);
    let newer = rows()
        .filter(|row| row.first > *version)
        .map(|row| &row.first);
    near(older.max(), newer.min())
}

fn near(older: Option<&Version>, newer: Option<&Version>) -> String {
    match (older, newer) {
        (Some(older), Some(newer)) => format!("; the nearest are {older} and {newer}"),
        (Some(older), None) => format!("; the newest there is {older}"),
        (None, Some(newer)) => format!("; the oldest there is {newer}"),
        (None, None) => String::new(),
    }
}

/// What a release of NCCL is built for, and who asks for it.
pub(super) fn nccl(matrix: &Matrix, version: &Version, question: Question) -> Answer {
    let rows = matrix.nccl(version);
    let is_nccl = |name: &str| name.starts_with("nvidia-nccl-cu");
    let found = matrix.pinned_by(is_nccl, version);
    let mut cudas: Vec<u32> = rows.iter().map(|row| row.cuda.major()).collect();
    cudas.extend(found.iter().filter_map(|(_, asked)| cuda_of_package(asked)));
    cudas.sort_unstable();
    cudas.dedup();
    if cudas.is_empty() {
        let pins = matrix.pins().iter().flat_map(|row| &row.requires);
        let pinned = pins
            .filter(|asked| is_nccl(&asked.name))
            .filter_map(|asked| asked.bounds.exactly());
        let known: Vec<&Version> = pinned
            .chain(matrix.nccls().iter().map(|row| &row.version))
            .collect();
        let older = known.iter().copied().filter(|known| *known < version).max();
        let newer = known.iter().copied().filter(|known| *known > version).min();
        let text = not_in_matrix_by_range(matrix, &format!("NCCL {version}"));
        return Answer::not_known(question, format!("{text}{}", near(older, newer)));
    }
    let names: Vec<_> = cudas.iter().map(|major| format!("{major}.x")).collect();
    let by = by_torch(&found);
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!("NCCL {version} is built for CUDA {}{by}", in_words(&names)),
    );
    for row in rows {
        of_nccl(row, &mut answer);
    }
    if let Some(cited) = asked_by(&found) {
        answer.fact("asked for by", cited);
    }
    for major in cudas {
        if let Some(cuda) = Version::parse(&major.to_string()) {
            answer.least_driver(matrix, &cuda);
        }
    }
    answer.notes(matrix.library_notes().iter(), &["nccl"]);
    answer.weighed()
}

/// The CUDA major version in the name of a wheel: `nvidia-nccl-cu12`.
fn cuda_of_package(asked: &Requirement) -> Option<u32> {
    asked.name.rsplit_once("-cu")?.1.parse().ok()
}

/// `; torch 2.9.0 and 2.9.1 ask for it`.
fn by_torch(found: &[(&Pins, &Requirement)]) -> String {
    let versions: Vec<_> = found
        .iter()
        .filter(|(row, _)| row.package == "torch")
        .map(|(row, _)| row.version.to_string())
        .collect();
    match versions.as_slice() {
        [] => String::new(),
        [one] => format!("; torch {one} asks for it"),
        several => format!("; torch {} ask for it", in_words(several)),
    }
}

fn of_nccl(row: &Nccl, answer: &mut Answer) {
    let key = format!("{} for CUDA {}", row.version, row.cuda);
    let cited = |text: String| Cited::row(text, "nccl", &key, &row.source, row.confidence);
    let text = format!("{}, libnccl.so.2", cuda_in_words(&row.cuda));
    answer.fact("built for", cited(text));
    if let Some(code) = &row.archs {
        answer.fact("device code", cited(code.words().join(", ")));
    }
    if let Some(note) = &row.note {
        answer.fact("note", cited(note.clone()));
    }
}

/// What a release of TensorRT runs on.
pub(super) fn tensorrt(matrix: &Matrix, version: &Version, question: Question) -> Answer {
    let Some(row) = matrix.tensorrt(version) else {
        let rows = || matrix.tensorrts().iter();
        let older = rows()
            .filter(|row| row.last < *version)
            .map(|row| &row.last);
        let newer = rows()
            .filter(|row| row.first > *version)
            .map(|row| &row.first);
        let near = near(older.max(), newer.min());
        let text = not_in_matrix_by_range(matrix, &format!("TensorRT {version}"));
        return Answer::not_known(question, format!("{text}{near}"));
    };
    let cudas: Vec<_> = row
        .cudas
        .iter()
        .map(|cuda| match cuda.len() {
            1 => format!("{cuda}.x"),
            _ => cuda.to_string(),
        })
        .collect();
    let gpus = row.capability_min.map_or_else(String::new, |least| {
        format!(" and runs on {}", and_newer(least))
    });
    let mut answer = Answer::new(
        question,
        Word::Known,
        format!(
            "TensorRT {version} is built for CUDA {}{gpus}",
            in_words(&cudas)
        ),
    );
    of_tensorrt(row, &cudas, &mut answer);
    let topics = ["onnxruntime TensorRT"];
    answer.notes(matrix.framework_notes().iter(), &topics);
    answer.weighed()
}

fn of_tensorrt(row: &Tensorrt, cudas: &[String], answer: &mut Answer) {
    let key = format!("{} to {}", row.first, row.last);
    let cited = |text: String| Cited::row(text, "tensorrt", &key, &row.source, row.confidence);
    answer.fact(
        "CUDA",
        cited(format!(
            "{} to {}: {}",
            row.first,
            row.last,
            in_words(cudas)
        )),
    );
    if let Some(least) = row.capability_min {
        let gpus = cited(and_newer(least)).weaker(row.capability_min_confidence);
        answer.fact("runs on", gpus);
    }
    if let Some(cudnn) = &row.cudnn {
        answer.fact("cuDNN", cited(cudnn.to_string()));
    }
    answer.fact(
        "soname",
        cited(row.soname.clone()).weaker(row.soname_confidence),
    );
    if let Some(note) = &row.note {
        answer.fact("note", cited(note.clone()));
    }
}
