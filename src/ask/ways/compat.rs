//! Forward compatibility: the user-space libcuda of a newer driver on the kernel module of an older branch, for GPUs and
//! branches that it is made for.

use super::{build_serves_all, not_driven};
use crate::ask::can::{Case, CudaSide};
use crate::ask::driver::Side;
use crate::ask::gpus::GpuKind;
use crate::ask::{Cited, Way, WayKind, in_words};
use crate::facts::Layer;
use crate::matrix::{Compat, ForwardCompat, Matrix};
use crate::version::Version;

/// The compat package, where the driver is too old for the runtime and that is all.
pub(super) fn compat_package(
    case: &Case<'_>,
    driver: &Side<'_>,
    cuda: &CudaSide<'_>,
) -> Option<Way> {
    let (kind, layer) = (WayKind::CompatPackage, Layer::Driver);
    let matrix = case.matrix;
    let minimum = cuda.minimum.as_ref()?;
    let too_old = driver
        .high
        .is_some_and(|level| !matrix.runtime_accepts(cuda.version, level));
    let number = driver.number.filter(|_| too_old)?;
    let exact = format!(
        "cuda-compat-{}-{}",
        cuda.version.major(),
        cuda.version.minor()
    );
    let closed = |why: String| {
        Some(Way::closed(
            kind,
            layer,
            &format!("the package {exact}"),
            why,
        ))
    };
    if driver.windows {
        return closed("forward compatibility is for Linux hosts with data-center GPUs".to_owned());
    }
    if let Some(gpu) = case.kinds().find(|gpu| gpu.compat_eligible == Some(false)) {
        return closed(format!(
            "{} may not use forward compatibility, which is for data-center GPUs: error 804",
            gpu.name
        ));
    }
    if let Some(why) = not_driven(case, driver) {
        return closed(why);
    }
    if !build_serves_all(case, cuda) && !case.gpus.is_empty() {
        return closed(format!(
            "{} has no machine code for {} on any driver",
            cuda.shown(),
            case.gpu_names()
        ));
    }
    let base = number.major();
    let found = match package(matrix, cuda, minimum.level, base) {
        Ok(found) => found,
        Err((Some(true), why)) => {
            let mut way = closed(why)?;
            way.open = None;
            return Some(way);
        }
        Err((_, why)) => return closed(why),
    };
    let (row, limited) = found;
    let folder = format!("/usr/local/cuda-{}/compat", row.cuda.major_minor());
    let mut text = format!(
        "keep the driver of branch {base}, install {} in the image and put its folder ({folder}) first on the loader's path (LD_LIBRARY_PATH)",
        row.package
    );
    if limited {
        text.push_str("; it stands for a driver of that CUDA version, so the limits of minor-version compatibility remain");
    }
    let unsure: Vec<String> = case
        .gpus
        .iter()
        .filter(|meant| {
            let sure = |gpu: &GpuKind| gpu.compat_eligible == Some(true);
            meant.kinds.is_empty() || !meant.kinds.iter().all(sure)
        })
        .map(|meant| meant.asked.clone())
        .collect();
    let open = if case.gpus.is_empty() || !unsure.is_empty() {
        None
    } else {
        Some(true)
    };
    let mut way = Way::new(kind, layer, open, text);
    way.cost = "another image";
    if case.gpus.is_empty() {
        way.why_not = Some("only where every GPU is a data-center board (A100, H100, L40S, Tesla ...); a GeForce answers error 804".to_owned());
    } else if !unsure.is_empty() {
        way.why_not = Some(format!(
            "whether {} may use it is not known: data-center boards may, GeForce may not (error 804)",
            in_words(&unsure)
        ));
    }
    way.why_second = Some("it changes user space alone and has to go again: once the host's driver is newer than the package, it is a fault of its own (error 803)".to_owned());
    way.verify = Some("gpudoctor in the container: it names the libcuda in use");
    way.rows.push(Cited::row(
        format!("{} works on branch {base}", row.package),
        "forward_compat",
        &row.cuda,
        &row.source,
        row.confidence,
    ));
    for note in matrix.cuda_notes() {
        let text = match note.topic.as_str() {
            "forward compatibility files" => {
                "the package configures nothing by itself; the kernel module stays old"
            }
            "forward compatibility limits" => &note.fact,
            _ => continue,
        };
        way.rows.push(Cited {
            text: text.to_owned(),
            ..Cited::note(note)
        });
    }
    Some(way)
}

/// The best package for a base branch: that of the version itself, else the next newer one of the same major version,
/// else the newest older one that the runtime still accepts (`true`). Else whether it is unknown, and why.
fn package<'m>(
    matrix: &'m Matrix,
    cuda: &CudaSide<'_>,
    level: u32,
    base: u32,
) -> Result<(&'m ForwardCompat, bool), (Option<bool>, String)> {
    let wanted = Version::from_cuda_level(cuda.version.cuda_level());
    let works = |row: &&ForwardCompat| {
        row.cuda.major() == wanted.major()
            && row.cuda.cuda_level() >= level
            && matches!(
                matrix.forward_compat(&row.cuda, base),
                Compat::Supported { .. }
            )
    };
    let rows = matrix.forward_compat_rows();
    let at_least = rows.iter().filter(works).find(|row| row.cuda >= wanted);
    if let Some(row) = at_least {
        return Ok((row, false));
    }
    if let Some(row) = rows.iter().rev().find(works) {
        return Ok((row, true));
    }
    match matrix.forward_compat(&wanted, base) {
        Compat::Unknown { why } => Err((
            Some(true),
            format!("whether a package works on branch {base} is not known: {why}"),
        )),
        _ => Err((
            Some(false),
            format!(
                "no package of CUDA {}.x works on branch {base}",
                wanted.major()
            ),
        )),
    }
}
