//! The architectures that a build asks for against the nvcc that it takes: what nvcc does not know stops it.

use super::{in_words, with_nvcc};
use crate::facts::{ArchitectureRequest, Layer, Nvcc};
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::{Arch, Matrix, Scope, Target as CodeTarget};
use crate::rules::{Ctx, Outcome, known};
use crate::version::Version;

/// A build that asks for an architecture that its nvcc does not know yet, or no longer.
pub(super) fn architecture_unknown_to_nvcc(ctx: &Ctx<'_>) -> Outcome {
    known!(ctx.facts.toolchain.nvcc, "nvcc");
    let requests = known!(ctx.facts.toolchain.requests, "requested architectures");
    let mut findings = Vec::new();
    let mut unread = None;
    for request in requests {
        let Some((nvcc, by)) = nvcc_of(ctx, request) else {
            continue;
        };
        let Some(version) = nvcc.version.value() else {
            unread = Some(format!("version of nvcc: {}", nvcc.version.source()));
            continue;
        };
        let unknown: Vec<(CodeTarget, Knows<'_>)> = targets(request)
            .into_iter()
            .map(|target| (target, knows(ctx.matrix, version, target)))
            .filter(|(_, knows)| !matches!(knows, Knows::Yes | Knows::NotSaid))
            .collect();
        if !unknown.is_empty() {
            findings.push(finding(ctx, request, nvcc, &by, &unknown));
        }
    }
    match unread {
        Some(reason) if findings.is_empty() => Outcome::unknown(reason),
        _ => Outcome::found(findings),
    }
}

/// The nvcc that a request goes to, and by what: the one that a build folder was configured with, that of `PyTorch`'s
/// extensions, or that of everything else.
fn nvcc_of<'a>(ctx: &'a Ctx<'_>, request: &ArchitectureRequest) -> Option<(&'a Nvcc, String)> {
    if let Some(path) = &request.nvcc {
        let all = ctx.facts.toolchain.nvcc.items();
        return all
            .iter()
            .find(|nvcc| nvcc.path == *path || nvcc.program == *path)
            .map(|nvcc| (nvcc, request.source.clone()));
    }
    if request.by == "TORCH_CUDA_ARCH_LIST" {
        ctx.nvcc_of_torch()
    } else {
        ctx.nvcc_of_others()
    }
}

/// The targets that are named, each once.
fn targets(request: &ArchitectureRequest) -> Vec<CodeTarget> {
    let mut all: Vec<CodeTarget> = request
        .named
        .iter()
        .filter_map(|word| CodeTarget::parse(word))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether an nvcc knows a target.
enum Knows<'a> {
    Yes,
    /// It came before it: the first toolkit that knows it, where the matrix says.
    TooOld(Option<&'a Arch>, Option<Version>),
    /// It has dropped it: the last toolkit that knew it.
    Dropped(&'a Arch, Version),
    /// Neither list has it.
    NotSaid,
}

/// By the measured list of that toolkit's ptxas; where there is none, by the first and last toolkit of the capability.
fn knows<'a>(matrix: &'a Matrix, version: &Version, target: CodeTarget) -> Knows<'a> {
    let minor = Version::from_cuda_level(version.cuda_level());
    let arch = matrix.arch(target.capability);
    let dropped = arch.and_then(|arch| {
        let last = arch.last_toolkit.clone()?;
        (minor > last).then_some(Knows::Dropped(arch, last))
    });
    if let Some(row) = matrix.ptxas_targets(version) {
        let word = target.to_string();
        let word = word.trim_start_matches("sm_");
        if row.targets.iter().any(|known| known == word) {
            return Knows::Yes;
        }
        if let Some(dropped) = dropped {
            return dropped;
        }
        let first = matrix.first_toolkit_for(word);
        return match (arch, &first) {
            // A number that is in no list of any toolkit may be a slip of the pen, and is told without a remedy.
            (None, None) => Knows::TooOld(None, None),
            (_, Some(first)) if *first <= minor => Knows::NotSaid,
            _ => Knows::TooOld(arch, first),
        };
    }
    match arch {
        _ if dropped.is_some() => dropped.unwrap_or(Knows::NotSaid),
        Some(arch) if target.scope == Scope::Plain && minor < arch.first_toolkit => {
            Knows::TooOld(Some(arch), Some(arch.first_toolkit.clone()))
        }
        _ => Knows::NotSaid,
    }
}

fn finding(
    ctx: &Ctx<'_>,
    request: &ArchitectureRequest,
    nvcc: &Nvcc,
    by: &str,
    unknown: &[(CodeTarget, Knows<'_>)],
) -> Finding {
    let words: Vec<String> = unknown
        .iter()
        .map(|(target, _)| target.to_string())
        .collect();
    let firsts = unknown.iter().filter_map(|(_, knows)| match knows {
        Knows::TooOld(_, first) => first.clone(),
        _ => None,
    });
    let first = firsts.max();
    let lasts = unknown.iter().filter_map(|(_, knows)| match knows {
        Knows::Dropped(_, last) => Some(last.clone()),
        _ => None,
    });
    let last = lasts.min();
    let toolkit = match (&first, &last) {
        (Some(first), None) => Some(format!("CUDA {} or newer", first.major_minor())),
        (None, Some(last)) => Some(format!("CUDA {} or older", last.major_minor())),
        // One is too new and another too old: no toolkit has both.
        _ => None,
    };
    let verb = if last.is_some() && first.is_none() {
        "no longer knows"
    } else {
        "does not know"
    };
    let takes = toolkit
        .as_ref()
        .map_or_else(String::new, |toolkit| format!(": that takes {toolkit}"));
    let mut finding = Finding::new(
        "architecture-unknown-to-nvcc",
        Layer::Toolchain,
        Severity::Warning,
        format!(
            "{} asks for {}, which {} {verb}{takes}",
            request.by,
            words.join(", "),
            in_words(nvcc)
        ),
    );
    let virtual_name = words
        .first()
        .map_or_else(String::new, |word| word.replacen("sm_", "compute_", 1));
    finding = finding.detail(format!(
        "The build stops at its first CUDA source with \"nvcc fatal   : Unsupported gpu architecture '{virtual_name}'\"."
    ));
    finding = with_nvcc(finding, nvcc, by).evidence(
        "architectures asked for",
        request.text.clone(),
        format!("{} in {}", request.by, request.source),
    );
    finding.key = format!("{}:{}:{}", finding.key, request.by, request.source);
    if let Some(row) = nvcc
        .version
        .value()
        .and_then(|version| ctx.matrix.ptxas_targets(version))
    {
        finding = finding
            .evidence(
                format!("what {} builds for", in_words(nvcc)),
                row.targets
                    .iter()
                    .map(|target| format!("sm_{target}"))
                    .collect::<Vec<_>>()
                    .join(" "),
                "compatibility matrix".to_owned(),
            )
            .source(row.source.clone());
    }
    for (_, knows) in unknown {
        if let Knows::TooOld(Some(arch), _) | Knows::Dropped(arch, _) = knows {
            finding = finding.source(arch.source.clone());
        }
    }
    let kept: Vec<&str> = request
        .written
        .iter()
        .map(String::as_str)
        .filter(|word| {
            CodeTarget::parse(word)
                .is_some_and(|target| unknown.iter().all(|(gone, _)| *gone != target))
        })
        .collect();
    let without = Fix::at(
        Layer::Toolchain,
        if kept.is_empty() {
            format!("take {} out of {}", words.join(", "), request.by)
        } else {
            format!(
                "take {} out of {}; what stays is {}",
                words.join(", "),
                request.by,
                kept.join(" ")
            )
        },
    );
    match toolkit {
        // What was dropped is more often a list that nobody cleared than a GPU that somebody has.
        Some(toolkit) if first.is_none() => finding.fix(without).fix(
            Fix::at(
                Layer::Toolchain,
                format!("build with a toolkit of {toolkit}"),
            )
            .second("an older toolkit lacks what newer libraries need; right where such a GPU is in use"),
        ),
        Some(toolkit) => finding
            .fix(
                Fix::at(
                    Layer::Toolchain,
                    format!("build with a toolkit of {toolkit}: its nvcc first on PATH, and in CUDA_HOME"),
                )
                .verify("nvcc --list-gpu-code"),
            )
            .fix(without.second("the program then has no machine code for that GPU")),
        None => finding.fix(without.verify("nvcc --list-gpu-code")),
    }
}
