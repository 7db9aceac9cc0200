//! cuDNN and GPU: whether a release still runs on it, or already does, and which one does instead.

use super::can::{Case, Check};
use super::gpus::GpuKind;
use super::{Cited, Way, WayKind, Word, capability, in_words, look_up, sm};
use crate::facts::Layer;
use crate::matrix::{Capability, Cudnn, Matrix};
use crate::version::Version;

/// The rows of a release; of one major version of CUDA where that is known.
fn rows<'m>(matrix: &'m Matrix, version: &Version, cuda: Option<u32>) -> Vec<&'m Cudnn> {
    let mut rows = matrix.cudnn_release(version);
    rows.retain(|row| cuda.is_none_or(|cuda| row.cuda == cuda));
    rows
}

fn serves(row: &Cudnn, gpu: Capability) -> bool {
    row.capability_min <= gpu && row.capability_max.is_none_or(|max| gpu <= max)
}

/// What a row says of GPUs.
pub(super) fn told(row: &Cudnn) -> Cited {
    let least = capability(row.capability_min);
    let gpus = match row.capability_max {
        Some(max) => format!("compute capability {least} to {}", capability(max)),
        None => format!("compute capability {least} and newer"),
    };
    Cited::row(
        format!(
            "cuDNN {} to {} for CUDA {}.x runs on {gpus}",
            row.first, row.last, row.cuda
        ),
        "cudnn",
        format!("{} to {} for CUDA {}", row.first, row.last, row.cuda),
        &row.source,
        row.confidence,
    )
}

/// cuDNN and GPU.
pub(super) fn cudnn_on_gpu(case: &Case<'_>, version: &Version, kind: &GpuKind) -> Check {
    let layer = Layer::Libraries;
    let matrix = case.matrix;
    let major = case.cuda.as_ref().map(|cuda| cuda.version.major());
    let rows = rows(matrix, version, major);
    let unknown = |headline: String| Check::not(Word::Unknown, layer, headline, Vec::new());
    if rows.is_empty() {
        let of = major.map_or_else(String::new, |major| format!(" for CUDA {major}.x"));
        let name = format!("cuDNN {version}{of}");
        return unknown(look_up::not_in_matrix_by_range(matrix, &name));
    }
    let Some(gpu) = kind.capability else {
        return unknown(format!(
            "whether cuDNN {version} runs on {} is not known: its compute capability is not known",
            kind.name
        ));
    };
    let of_gpu = format!("{} ({})", kind.name, sm(gpu));
    let why: Vec<Cited> = rows.iter().map(|row| told(row)).collect();
    let served: Vec<&&Cudnn> = rows.iter().filter(|row| serves(row, gpu)).collect();
    if served.is_empty() {
        let too_old = rows.iter().any(|row| gpu < row.capability_min);
        let headline = if too_old {
            format!("cuDNN {version} no longer runs on {of_gpu}")
        } else {
            format!("cuDNN {version} does not know {of_gpu} yet")
        };
        return Check::not(Word::No, layer, headline, why)
            .because("the library has no code for the GPU, and nothing beside it brings that");
    }
    let mut check = Check::yes(layer, why);
    let notes = served.iter().filter_map(|row| {
        let note = row.note.as_ref()?;
        Some(Cited {
            text: note.clone(),
            ..told(row)
        })
    });
    check.limits.extend(notes);
    if served.len() < rows.len() {
        let cudas: Vec<_> = served.iter().map(|row| format!("{}.x", row.cuda)).collect();
        let text = format!("on {of_gpu} the build for CUDA {} alone", in_words(&cudas));
        check
            .limits
            .extend(served.first().map(|row| Cited { text, ..told(row) }));
    }
    check
}

/// Another cuDNN that runs on all GPUs.
pub(super) fn other_cudnn(case: &Case<'_>, version: &Version) -> Vec<Way> {
    let (kind, layer) = (WayKind::Library, Layer::Libraries);
    let matrix = case.matrix;
    let gpus: Vec<Capability> = case.kinds().filter_map(|kind| kind.capability).collect();
    let major = case.cuda.as_ref().map(|cuda| cuda.version.major());
    let majors: Vec<u32> = rows(matrix, version, major)
        .iter()
        .map(|row| row.cuda)
        .collect();
    let all = |row: &&Cudnn| {
        majors.contains(&row.cuda)
            && row.first.major() == version.major()
            && gpus.iter().all(|gpu| serves(row, *gpu))
    };
    // Of several builds the newest that serves them: one way is enough.
    let Some(row) = matrix
        .cudnns()
        .iter()
        .filter(all)
        .max_by_key(|row| &row.last)
    else {
        return vec![Way::closed(
            kind,
            layer,
            "another cuDNN",
            format!(
                "no cuDNN {}.x in the matrix runs on {}",
                version.major(),
                case.gpu_names()
            ),
        )];
    };
    let text = if row.last < *version {
        format!("take cuDNN {} or older", row.last)
    } else {
        format!("take cuDNN {} or newer", row.first)
    };
    let mut way = Way::new(
        kind,
        layer,
        Some(true),
        format!(
            "{text}, for CUDA {}.x (nvidia-cudnn-cu{})",
            row.cuda, row.cuda
        ),
    );
    way.cost = "reinstall";
    way.rows.push(told(row));
    vec![way]
}
