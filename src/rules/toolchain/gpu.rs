//! nvcc against the GPUs that are here: a toolkit builds for a GPU from some version on, and newer ones drop old GPUs.

use super::{in_words, with_nvcc, with_signs};
use crate::facts::{Layer, PciDevice};
use crate::finding::{Finding, Fix};
use crate::matrix::Arch;
use crate::rules::{Ctx, Outcome, known};
use crate::version::Version;

/// An nvcc that builds for none of a GPU's own targets: it came before the GPU, or has dropped it.
pub(super) fn nvcc_lacks_gpu(ctx: &Ctx<'_>) -> Outcome {
    known!(ctx.facts.toolchain.nvcc, "nvcc");
    let mut findings = Vec::new();
    let mut unread = None;
    for (nvcc, by) in ctx.nvccs_in_use() {
        let Some(version) = nvcc.version.value() else {
            unread = Some(format!("version of nvcc: {}", nvcc.version.source()));
            continue;
        };
        let minor = Version::from_cuda_level(version.cuda_level());
        for (arch, devices) in by_arch(ctx) {
            let is_too_old = minor < arch.first_toolkit;
            let dropped = arch.last_toolkit.as_ref().filter(|last| minor > **last);
            let (what, toolkit) = match dropped {
                Some(last) => ("no longer builds", format!("CUDA {last} or older")),
                None if is_too_old => (
                    "cannot build",
                    format!("CUDA {} or newer", arch.first_toolkit),
                ),
                None => continue,
            };
            let (major, minor) = arch.capability;
            let names: Vec<String> = devices.iter().map(|device| ctx.gpu_name(device)).collect();
            let mut finding = Finding::new(
                "nvcc-lacks-gpu",
                Layer::Toolchain,
                ctx.severity_for(nvcc),
                format!(
                    "{} {what} for {} (compute capability {major}.{minor}): that takes {toolkit}",
                    in_words(nvcc),
                    names.first().map_or("the GPU", String::as_str),
                ),
            )
            .detail(format!("Builds that ask for this GPU's own target stop with \"Unsupported gpu architecture 'compute_{major}{minor}'\". Programs that are built already are not affected, and neither is the driver."));
            finding = with_nvcc(finding, nvcc, &by);
            // One nvcc may lack several GPUs: each is a finding of its own.
            finding.key = format!("{}:sm_{major}{minor}", finding.key);
            for device in devices {
                finding = finding.subject(device.address.clone()).evidence(
                    ctx.gpu_in_full(device),
                    format!("compute capability {major}.{minor}"),
                    format!("/sys/bus/pci/devices/{}", device.address),
                );
            }
            finding = with_signs(ctx, finding)
                .evidence(
                    format!("toolkits that build for {major}.{minor}"),
                    toolkit.clone(),
                    format!("compatibility matrix: {}", arch.source),
                )
                .source(arch.source.clone());
            let fits = |version: &Version| {
                let minor = Version::from_cuda_level(version.cuda_level());
                minor >= arch.first_toolkit
                    && arch.last_toolkit.as_ref().is_none_or(|last| minor <= *last)
            };
            let other = ctx
                .facts
                .toolchain
                .nvcc
                .items()
                .iter()
                .find(|nvcc| nvcc.version.value().is_some_and(fits));
            let fix = match other {
                Some(other) => Fix::at(
                    Layer::Toolchain,
                    format!(
                        "build with {} of {}: first on PATH, and in CUDA_HOME",
                        in_words(other),
                        other.path
                    ),
                ),
                None => Fix::at(
                    Layer::Toolchain,
                    format!(
                        "install the CUDA toolkit of {toolkit}, and put its nvcc first on PATH"
                    ),
                ),
            };
            finding = finding.fix(fix.verify("nvcc --list-gpu-arch"));
            if is_too_old {
                finding = finding.fix(
                    Fix::at(
                        Layer::Toolchain,
                        "build for the newest architecture that this nvcc knows, as PTX (code=compute_NN)",
                    )
                    .second("the driver then compiles it when the program starts, without what is new in this GPU"),
                );
            }
            findings.push(finding);
        }
    }
    match unread {
        Some(reason) if findings.is_empty() => Outcome::unknown(reason),
        _ => Outcome::found(findings),
    }
}

/// The GPUs by architecture, as far as the matrix knows them.
fn by_arch<'a>(ctx: &'a Ctx<'_>) -> Vec<(&'a Arch, Vec<&'a PciDevice>)> {
    let mut all: Vec<(&Arch, Vec<&PciDevice>)> = Vec::new();
    for device in ctx.gpus() {
        let Some(arch) = ctx
            .gpu(device)
            .and_then(|gpu| ctx.matrix.arch(gpu.capability?))
        else {
            continue;
        };
        match all
            .iter_mut()
            .find(|(a, _)| a.capability == arch.capability)
        {
            Some((_, devices)) => devices.push(device),
            None => all.push((arch, vec![device])),
        }
    }
    all
}
