//! What builds here are told to write code for, held against a target: a list that leaves a GPU out is cheaper to mend
//! before the build than after it.

use std::collections::BTreeSet;

use crate::facts::{ArchitectureRequest, Layer, ToolchainFacts};
use crate::finding::{Finding, Fix, Severity};
use crate::inspect::Machine;
use crate::matrix::{Capability, CodeFit, CodeTargets, Matrix, Target};
use crate::version::Version;

/// What is found for one machine. All requests together count, since several build folders may serve a fleet; one that
/// leaves the choice to the tool may cover everything, so nothing is said beside it.
pub(super) fn judge(
    toolchain: &ToolchainFacts,
    machine: &Machine,
    matrix: &Matrix,
) -> Vec<Finding> {
    let requests = toolchain.requests.items();
    if requests.iter().any(|request| request.open.is_some()) {
        return Vec::new();
    }
    let words: BTreeSet<&String> = requests.iter().flat_map(|r| &r.written).collect();
    let Ok(code) = CodeTargets::try_from(words.into_iter().cloned().collect::<Vec<_>>()) else {
        return Vec::new();
    };
    if code.elf.is_empty() && code.ptx.is_empty() {
        return Vec::new();
    }
    // The oldest nvcc that a request goes to writes the oldest PTX; where several are in play nothing is said of PTX.
    let mut versions: Vec<&Version> = toolchain
        .nvcc
        .items()
        .iter()
        .filter_map(|nvcc| nvcc.version.value())
        .collect();
    versions.dedup();
    let isa = match versions.as_slice() {
        [version] => matrix
            .ptx_isa_of_toolkit(version)
            .map(|row| row.ptx.clone()),
        _ => None,
    };
    let level = machine
        .driver
        .as_ref()
        .and_then(|driver| matrix.cuda_level_of(driver));
    let mut seen: BTreeSet<Capability> = BTreeSet::new();
    machine
        .gpus
        .iter()
        .filter(|gpu| seen.insert(gpu.capability))
        .filter_map(|gpu| {
            let ptx: Vec<(Target, Version)> = match &isa {
                Some(isa) => code.ptx.iter().map(|t| (*t, isa.clone())).collect(),
                None => Vec::new(),
            };
            let fit = if isa.is_some() {
                let level = level.as_ref().map(|(level, _)| *level);
                matrix.held_code_fit(&code.elf, &ptx, gpu.capability, level)
            } else {
                matrix.targets_fit(&code, gpu.capability)
            };
            let (major, minor) = gpu.capability;
            let why = match fit {
                CodeFit::No => String::new(),
                CodeFit::PtxTooNew(isa) => format!(
                    ": its PTX (version {isa}) is newer than the driver of {} compiles",
                    machine.name
                ),
                CodeFit::Cubin(_) | CodeFit::Ptx(_) | CodeFit::Unknown(_) => return None,
            };
            Some(finding(
                requests,
                &code,
                machine,
                &gpu.name,
                (major, minor),
                &why,
            ))
        })
        .collect()
}

fn finding(
    requests: &[ArchitectureRequest],
    code: &CodeTargets,
    machine: &Machine,
    gpu: &str,
    (major, minor): Capability,
    why: &str,
) -> Finding {
    let mut finding = Finding::new(
        "architecture-not-asked-for",
        Layer::Toolchain,
        Severity::Warning,
        format!(
            "what is built here has no code for {gpu} (sm_{major}{minor}): {} asked for{why}",
            code.words().join(" ")
        ),
    )
    .detail("Kernels of such a build cannot start there: \"no kernel image is available for execution on the device\".")
    .complaining(Layer::Application)
    .component("nvcc")
    .subject(format!("{gpu} of {}", machine.name));
    for request in requests {
        finding = finding.evidence(
            format!("asked for by {}", request.by),
            request.text.clone(),
            request.source.clone(),
        );
    }
    let dotted = format!("{major}.{minor}");
    let number = format!("{major}{minor}");
    let by = requests.first().map_or("", |request| request.by.as_str());
    let how = match by {
        "TORCH_CUDA_ARCH_LIST" => format!("add {dotted} to TORCH_CUDA_ARCH_LIST"),
        "CMAKE_CUDA_ARCHITECTURES" | "CUDAARCHS" => format!("add {number} to {by}"),
        _ => format!("add `-gencode arch=compute_{number},code=sm_{number}`"),
    };
    finding.fix(Fix::at(Layer::Toolchain, how).cost("rebuild"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Nvcc, Reading};
    use crate::inspect::machine_of_target;

    fn found(requests: &[(&str, &[&str], Option<&str>)], nvcc: &str, target: &str) -> Vec<String> {
        let matrix = Matrix::bundled();
        let toolchain = ToolchainFacts {
            nvcc: Reading::present(
                vec![Nvcc {
                    version: Reading::present(Version::parse(nvcc).unwrap(), "nvcc"),
                    ..Nvcc::default()
                }],
                "PATH",
            ),
            requests: Reading::present(
                requests
                    .iter()
                    .map(|(by, written, open)| ArchitectureRequest {
                        by: (*by).to_owned(),
                        written: written.iter().map(|w| (*w).to_owned()).collect(),
                        open: open.map(str::to_owned),
                        ..ArchitectureRequest::default()
                    })
                    .collect(),
                "environment",
            ),
            ..ToolchainFacts::default()
        };
        let machine = machine_of_target(&target.parse().unwrap(), &matrix).unwrap();
        judge(&toolchain, &machine, &matrix)
            .into_iter()
            .map(|finding| finding.title)
            .collect()
    }

    #[test]
    fn a_list_that_leaves_a_gpu_out() {
        let list: &[(&str, &[&str], Option<&str>)] = &[("CUDAARCHS", &["sm_80", "sm_90"], None)];
        assert_eq!(
            found(list, "12.4.131", "driver=550.54.14,gpu=A100+P100"),
            ["what is built here has no code for P100 (sm_60): sm_80 sm_90 asked for"]
        );
        assert!(found(list, "12.4.131", "driver=550.54.14,gpu=A100+H100+L40S").is_empty());
        // PTX saves it, unless its language is newer than the driver.
        let ptx: &[(&str, &[&str], Option<&str>)] =
            &[("TORCH_CUDA_ARCH_LIST", &["sm_80", "compute_80"], None)];
        assert!(found(ptx, "12.4.131", "driver=550.54.14,gpu=H100").is_empty());
        assert_eq!(
            found(ptx, "12.4.131", "driver=535.104.05,gpu=H100").len(),
            1
        );
        // Two folders serve a fleet together, and a choice that is the tool's is not judged.
        let both: &[(&str, &[&str], Option<&str>)] = &[
            ("CMAKE_CUDA_ARCHITECTURES", &["sm_80"], None),
            ("CMAKE_CUDA_ARCHITECTURES", &["sm_60"], None),
        ];
        assert!(found(both, "12.4.131", "driver=550.54.14,gpu=A100+P100").is_empty());
        let open: &[(&str, &[&str], Option<&str>)] = &[
            ("CUDAARCHS", &["sm_80"], None),
            ("NVCC_APPEND_FLAGS", &[], Some("all-major")),
        ];
        assert!(found(open, "12.4.131", "driver=550.54.14,gpu=P100").is_empty());
        assert!(found(&[], "12.4.131", "driver=550.54.14,gpu=P100").is_empty());
    }
}
