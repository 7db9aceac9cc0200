//! A library that has no code any more, or not yet, for the GPU that is here.

use super::{install, owner, with_command};
use crate::facts::{Layer, LibraryFile, PciDevice};
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::Capability;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::file_name;
use crate::version::Version;

/// What the matrix says of a library in use.
struct Limit {
    name: &'static str,
    least: Capability,
    source: String,
    /// Of cuDNN the CUDA major version that it was built for.
    cudnn_for: Option<u32>,
}

pub(super) fn library_drops_gpu(ctx: &Ctx<'_>) -> Outcome {
    let _ = known!(ctx.facts.libraries.copies, "copies of libraries");
    let gpus: Vec<(&PciDevice, Capability)> = ctx
        .gpus()
        .filter_map(|device| Some((device, ctx.gpu(device)?.capability?)))
        .collect();
    let mut findings: Vec<Finding> = Vec::new();
    for copy in ctx.facts.libraries.in_use() {
        let Some((limit, version)) = limit(ctx, copy) else {
            continue;
        };
        let (below, served): (Vec<_>, Vec<_>) = gpus
            .iter()
            .partition(|(_, capability)| *capability < limit.least);
        let Some((device, capability)) = below.first() else {
            continue;
        };
        let severity = if served.is_empty() {
            Severity::Error
        } else {
            Severity::Warning
        };
        findings.push(finding(
            ctx,
            copy,
            version,
            &limit,
            (device, *capability),
            severity,
        ));
    }
    Outcome::found(findings)
}

fn limit<'a>(ctx: &Ctx<'_>, copy: &'a LibraryFile) -> Option<(Limit, &'a Version)> {
    let version = copy.version.value()?;
    match copy.name.as_str() {
        // All parts are of one release: the file that opens them stands for them.
        "libcudnn" => {
            let major = cuda_major(copy);
            let rows = ctx.matrix.cudnn_release(version);
            let rows: Vec<_> = rows
                .into_iter()
                .filter(|row| major.is_none_or(|major| row.cuda == major))
                .collect();
            let row = rows.iter().min_by_key(|row| row.capability_min)?;
            Some((
                Limit {
                    name: "cuDNN",
                    least: row.capability_min,
                    source: row.source.clone(),
                    cudnn_for: Some(row.cuda),
                },
                version,
            ))
        }
        "libnvinfer" => {
            let row = ctx.matrix.tensorrt(version)?;
            Some((
                Limit {
                    name: "TensorRT",
                    least: row.capability_min?,
                    source: row.source.clone(),
                    cudnn_for: None,
                },
                version,
            ))
        }
        _ => None,
    }
}

/// The CUDA major version that a copy was built for, by itself or by the name of its distribution.
pub(super) fn cuda_major(copy: &LibraryFile) -> Option<u32> {
    let by_name = || {
        let (name, _) = copy.owner.value()?.split_once(' ')?;
        name.rsplit_once("-cu")?.1.parse().ok()
    };
    copy.cuda.as_ref().map(Version::major).or_else(by_name)
}

fn finding(
    ctx: &Ctx<'_>,
    copy: &LibraryFile,
    version: &Version,
    limit: &Limit,
    (device, capability): (&PciDevice, Capability),
    severity: Severity,
) -> Finding {
    let (major, minor) = limit.least;
    let gpu = ctx.gpu_name(device);
    let user = copy.used_by.as_deref().map_or("", file_name);
    let finding = Finding::new(
        "library-drops-gpu",
        Layer::Libraries,
        severity,
        format!(
            "{} {version} has no code for {gpu} (compute capability {}.{}): it begins with {major}.{minor}",
            limit.name, capability.0, capability.1
        ),
    )
    .complaining(Layer::Framework)
    .component(file_name(&copy.path))
    .subject(copy.path.clone())
    .detail("The library loads, and its first call on this GPU fails: `CUDNN_STATUS_ARCH_MISMATCH`, `no kernel image is available for execution on the device`, or an engine that is not found.")
    .evidence(limit.name, version.to_string(), copy.version.source())
    .evidence("used by", user, copy.path.clone())
    .evidence(
        "GPU",
        format!("{}, compute capability {}.{}", ctx.gpu_in_full(device), capability.0, capability.1),
        "PCI id",
    )
    .evidence(
        format!("{} {version} runs on", limit.name),
        format!("compute capability {major}.{minor} and newer"),
        limit.source.clone(),
    );
    let last = limit
        .cudnn_for
        .and_then(|cuda| ctx.matrix.newest_cudnn_for(capability, cuda));
    let fix = match last.map(|row| &row.last) {
        Some(last) => {
            let fix = Fix::at(
                Layer::Libraries,
                format!("take {} {last}, the last release for this GPU", limit.name),
            );
            let command = owner(ctx, &copy.path).and_then(|(name, _)| {
                let next = format!("{}.{}", last.major_minor(), last.part(2).saturating_add(1));
                install(ctx, name, &format!("{name}<{next}"))
            });
            with_command(fix, command)
        }
        None => Fix::at(
            Layer::Libraries,
            format!(
                "take an older release of {} that serves this GPU",
                limit.name
            ),
        ),
    };
    finding
        .fix(fix.verify("gpudoctor"))
        .source(limit.source.clone())
}
