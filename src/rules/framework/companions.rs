//! What is built against torch and has to fit the very torch beside it: releases that are pinned, the CUDA in the local
//! versions, and the C++ symbols.

use super::{Ctx, Outcome, finding, instead, shown, unread};
use crate::facts::{Framework, Layer, Reading};
use crate::finding::{Finding, Fix, Severity};
use crate::requirement::Requirement;
use crate::rules::stack::in_words;
use crate::version::Version;

/// Parts that are built against one release of torch and one CUDA.
pub(crate) const BUILT_ON_TORCH: &[&str] = &[
    "torchvision",
    "torchaudio",
    "vllm",
    "xformers",
    "flash-attn",
    "flash-attn-3",
];
/// Parts whose operators register with torch when they are imported: of another release nothing of them works.
const REGISTERING: &[&str] = &["torchvision", "torchaudio"];

/// What does not fit between a part and torch.
struct Misfit {
    /// In words that can follow the part's name.
    what: String,
    severity: Severity,
}

/// The CUDA version in a local version.
fn tag(framework: &Framework) -> Option<(&str, Version)> {
    let version = framework.version.value()?;
    let (_, local) = version.split_once('+')?;
    let tag = local.split(['.', '-']).next()?;
    crate::matrix::cuda_of_torch_tag(tag).map(|cuda| (tag, cuda))
}

/// The torch that a part asks for by name: `torch==2.13.0`; of flash-attn the one in its local version.
fn pin(framework: &Framework) -> Option<Version> {
    let by_requirement = framework
        .requires
        .iter()
        .filter_map(|line| Requirement::parse(line))
        .find(|asked| asked.name == "torch")
        .and_then(|asked| asked.bounds.exactly().cloned());
    by_requirement.or_else(|| {
        // 2.8.3+cu12torch2.8cxx11abiTRUE
        let (_, rest) = framework
            .version
            .value()?
            .split_once('+')?
            .1
            .split_once("torch")?;
        let numbers: String = rest
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        Version::parse(numbers.trim_end_matches('.'))
    })
}

/// The numbers of a version alone: `2.14.0` of `2.14.0+cu130`.
fn numbers(version: &str) -> &str {
    version.split('+').next().unwrap_or(version)
}

fn misfit(framework: &Framework, torch: &Framework) -> Option<Misfit> {
    misfit_of_builds(framework, torch).or_else(|| {
        // Its operators for CUDA are not there: `Could not run 'torchvision::nms' with arguments from the 'CUDA' backend`.
        let local = framework.version.value()?.split_once('+')?.1;
        let is_cpu = REGISTERING.contains(&framework.name.as_str()) && local == "cpu";
        (is_cpu && torch.cuda.is_present()).then(|| Misfit {
            what: "is a build without CUDA".to_owned(),
            severity: Severity::Warning,
        })
    })
}

fn misfit_of_builds(framework: &Framework, torch: &Framework) -> Option<Misfit> {
    let registers = REGISTERING.contains(&framework.name.as_str());
    if let (Some((tag, cuda)), Some((torch_tag, torch_cuda))) = (tag(framework), tag(torch))
        && cuda.major_minor() != torch_cuda.major_minor()
    {
        // Within a major version the libraries are the same ones; torchvision itself compares the major versions.
        let severity = if cuda.major() == torch_cuda.major() {
            Severity::Warning
        } else {
            Severity::Error
        };
        return Some(Misfit {
            what: format!(
                "is built for CUDA {cuda} (+{tag}), and torch for CUDA {torch_cuda} (+{torch_tag})"
            ),
            severity,
        });
    }
    let has = Version::parse(numbers(torch.version.value()?))?;
    let asks = pin(framework)?;
    let same = (0..asks.len()).all(|part| asks.part(part) == has.part(part));
    if same {
        return None;
    }
    let other_release = asks.major_minor() != has.major_minor();
    Some(Misfit {
        what: format!("is built for torch {asks}"),
        severity: if registers && other_release {
            Severity::Error
        } else {
            Severity::Warning
        },
    })
}

pub(super) fn torch_companion_mismatch(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let Some(torch) = ctx.framework("torch") else {
        return Outcome::Clean;
    };
    let parts: Vec<(&Framework, Misfit)> = ctx
        .frameworks()
        .iter()
        .filter(|f| BUILT_ON_TORCH.contains(&f.name.as_str()))
        .filter_map(|part| Some((part, misfit(part, torch)?)))
        .collect();
    let Some(severity) = parts.iter().map(|(_, misfit)| misfit.severity).max() else {
        return Outcome::Clean;
    };
    // One torch that was replaced under its companions is one fault.
    let worst: Vec<&(&Framework, Misfit)> = parts
        .iter()
        .filter(|(_, misfit)| misfit.severity == severity)
        .collect();
    let told: Vec<String> = worst
        .iter()
        .map(|(part, misfit)| format!("{} {}", shown(part), misfit.what))
        .collect();
    let Some((first, _)) = worst.first() else {
        return Outcome::Clean;
    };
    let title = format!("{}, but {} is here", told.join("; "), shown(torch));
    let mut finding = finding("torch-companion-mismatch", first, severity, title)
        .detail("Operators and symbols of such a part are those of the torch and the CUDA that it was built with. Beside another one it does not load, or its operators do not register: `operator torchvision::nms does not exist`. One without CUDA has no operators for the GPU: `Could not run 'torchvision::nms' with arguments from the 'CUDA' backend`. Driver and GPU are not at fault.")
        .reading("torch", &torch.version);
    for (part, misfit) in &parts {
        finding = finding.evidence(
            part.name.clone(),
            format!("{} {}", shown(part), misfit.what),
            part.version.source(),
        );
        let asked = part
            .requires
            .iter()
            .find(|line| Requirement::parse(line).is_some_and(|asked| asked.name == "torch"));
        if let Some(line) = asked {
            finding = finding.evidence("it requires", line.clone(), part.distribution.source());
        }
    }
    Outcome::found([fixes(ctx, finding, torch, &parts)])
}

/// First the parts that fit this torch; for what pins torch itself (vLLM), that torch.
fn fixes(
    ctx: &Ctx<'_>,
    finding: Finding,
    torch: &Framework,
    parts: &[(&Framework, Misfit)],
) -> Finding {
    let names: Vec<&str> = parts.iter().map(|(part, _)| part.name.as_str()).collect();
    let companions: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| REGISTERING.contains(name))
        .collect();
    let mut finding = finding;
    if !companions.is_empty() {
        let version = torch.version.value().map_or("", String::as_str);
        let fix = Fix::at(
            Layer::Framework,
            format!(
                "install {} of the same release and build as {}",
                companions.join(" and "),
                shown(torch)
            ),
        );
        let cuda = tag(torch).map(|(_, cuda)| cuda);
        let build = Version::parse(numbers(version))
            .zip(cuda.or_else(|| torch.cuda.value().cloned()))
            .and_then(|(version, cuda)| instead::torch_build_of(ctx, &version, &cuda));
        let fix = match build {
            Some(build) => instead::commands(ctx, fix, torch, &build, &companions),
            None => fix,
        };
        finding = finding.fix(fix.verify(if companions.contains(&"torchvision") {
            "python -c \"import torchvision; print(torchvision.ops.nms)\""
        } else {
            "python -c \"import torchaudio\""
        }));
    }
    let pinned: Vec<(&Framework, Version)> = parts
        .iter()
        .filter(|(part, _)| !REGISTERING.contains(&part.name.as_str()))
        .filter_map(|(part, _)| Some((*part, pin(part)?)))
        .collect();
    if let Some(fix) = no_torch_for_all(ctx, torch, &pinned) {
        return finding.fix(fix);
    }
    for (part, _) in parts
        .iter()
        .filter(|(part, _)| !REGISTERING.contains(&part.name.as_str()))
    {
        let Some(asks) = pin(part) else { continue };
        let name = part.distribution.value().unwrap_or(&part.name);
        let version = part.version.value().map_or("", |v| numbers(v));
        let what = format!("{name}=={version}");
        let fix = Fix::at(
            Layer::Framework,
            format!(
                "install {} again with the torch {asks} that it is built for",
                shown(part)
            ),
        );
        finding = finding.fix(instead::install(
            ctx,
            fix,
            part,
            &[&what, &format!("torch=={asks}")],
        ));
    }
    if finding.fixes.is_empty() {
        finding = finding.fix(Fix::at(
            Layer::Framework,
            format!(
                "take builds of {} for CUDA as {} has it",
                names.join(" and "),
                shown(torch)
            ),
        ));
    }
    finding
}

/// What to do where parts are built for different releases of torch, so that no torch fits them all: which one stays, with
/// its torch, and which have to go or be updated.
fn no_torch_for_all(
    ctx: &Ctx<'_>,
    torch: &Framework,
    pinned: &[(&Framework, Version)],
) -> Option<Fix> {
    let has = Version::parse(numbers(torch.version.value()?))?;
    // The one that is nearest to the torch that is here stays; of several as near, that for the newest.
    let near = |asks: &Version| asks.major_minor() == has.major_minor();
    let (kept, asks) = pinned
        .iter()
        .max_by(|a, b| near(&a.1).cmp(&near(&b.1)).then_with(|| a.1.cmp(&b.1)))?;
    let others: Vec<&(&Framework, Version)> =
        pinned.iter().filter(|(_, other)| other != asks).collect();
    if others.is_empty() {
        return None;
    }
    let told: Vec<String> = others
        .iter()
        .map(|(part, asks)| format!("{} (built for torch {asks})", shown(part)))
        .collect();
    let which = if told.len() == 1 { "has" } else { "have" };
    let mut fix = Fix::at(
        Layer::Framework,
        format!(
            "no torch fits them all: keep {} with torch {asks}; {} {which} to be updated to a release for that torch, or go",
            shown(kept),
            in_words(&told)
        ),
    );
    let name = |part: &Framework| part.distribution.value().unwrap_or(&part.name).clone();
    let mut words = vec!["pip".to_owned(), "uninstall".to_owned()];
    words.extend(others.iter().map(|(part, _)| name(part)));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    fix = instead::command(ctx, fix, &words);
    let version = kept.version.value().map_or("", |v| numbers(v));
    let what = format!("{}=={version}", name(kept));
    let torch = format!("torch=={asks}");
    Some(instead::install(ctx, fix, kept, &[&what, &torch]))
}

/// An extension that uses symbols of torch's C++ core which this torch does not have.
pub(super) fn torch_extension_symbols(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let Some(torch) = ctx.framework("torch") else {
        return Outcome::Clean;
    };
    let mut findings = Vec::new();
    let mut unknown = Vec::new();
    for part in ctx.frameworks() {
        let lacking = match &part.lacking {
            Reading::Present { value, .. } => value,
            Reading::Absent { .. } => continue,
            Reading::Unreadable { reason } => {
                unknown.push(format!("symbols of {}: {reason}", part.name));
                continue;
            }
        };
        let Some(symbol) = lacking.first() else {
            continue;
        };
        findings.push(lacks_symbols(ctx, part, torch, symbol, lacking));
    }
    if findings.is_empty() && !unknown.is_empty() {
        return Outcome::Unknown { missing: unknown };
    }
    Outcome::found(findings)
}

/// Which C++ ABI a symbol with a string in it is of: `Ss` is the old `std::string`, `__cxx11` the new one.
fn abi_of(symbol: &str) -> Option<&'static str> {
    if symbol.contains("7__cxx11") {
        Some("new")
    } else if symbol.ends_with("Ss") || symbol.contains("RKSs") {
        Some("old")
    } else {
        None
    }
}

fn lacks_symbols(
    ctx: &Ctx<'_>,
    part: &Framework,
    torch: &Framework,
    symbol: &str,
    lacking: &[String],
) -> Finding {
    let abi = lacking.iter().find_map(|symbol| abi_of(symbol));
    let built = match abi {
        Some("old") => "for a torch of the old C++ ABI (cxx11abiFALSE)".to_owned(),
        Some(_) => "for a torch of the new C++ ABI (cxx11abiTRUE)".to_owned(),
        None => "for another release of torch".to_owned(),
    };
    let title = format!(
        "{} is built {built}, and {} lacks `{symbol}`",
        shown(part),
        shown(torch)
    );
    let library = part.library.source();
    let mut finding = finding("torch-extension-symbols", part, Severity::Error, title)
        .detail("It does not load: `undefined symbol`. PyTorch's wheels changed their C++ ABI with 2.6 for CUDA 12.6 and with 2.7 for the others, and its C++ interface changes with each release. The CUDA versions are not what differs.")
        .evidence("symbols that no library of this torch defines", lacking.join(" "), library)
        .reading("torch", &torch.version);
    let name = part.distribution.value().unwrap_or(&part.name).clone();
    let has = torch.version.value().map_or("", String::as_str);
    let minor = Version::parse(has).map_or_else(String::new, |v| v.major_minor());
    let wanted = if abi == Some("old") {
        ", cxx11abiTRUE"
    } else if abi.is_some() {
        ", cxx11abiFALSE"
    } else {
        ""
    };
    let fix = Fix::at(Layer::Framework, format!("install a wheel of {name} built for torch {minor}{wanted}, or build it here against this torch")).cost("rebuild");
    let words: &[&str] = if part.name == "flash-attn" {
        &[
            "flash-attn",
            "--no-build-isolation",
            "--no-binary",
            "flash-attn",
            "--force-reinstall",
            "--no-deps",
        ]
    } else {
        &[&name, "--force-reinstall", "--no-deps"]
    };
    finding = finding.fix(instead::install(ctx, fix, part, words));
    finding.source("PyTorch release notes 2.6 and 2.7: CXX11_ABI=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, version: &str, requires: &[&str]) -> Framework {
        Framework {
            name: name.to_owned(),
            version: Reading::present(version.to_owned(), "version.py"),
            requires: requires.iter().map(|line| (*line).to_owned()).collect(),
            ..Framework::default()
        }
    }

    #[test]
    fn what_fits_and_what_does_not() {
        let mut torch = part("torch", "2.14.0+cu130", &[]);
        torch.cuda = Reading::present(Version::parse("13.0").unwrap(), "version.py");
        for (name, version, requires, severity) in [
            (
                "torchvision",
                "0.28.0+cu129",
                &[][..],
                Some(Severity::Error),
            ),
            ("torchvision", "0.29.0+cu130", &["torch==2.14.0"][..], None),
            (
                "torchvision",
                "0.28.0",
                &["torch==2.13.0"][..],
                Some(Severity::Error),
            ),
            (
                "torchvision",
                "0.29.0+cu132",
                &[][..],
                Some(Severity::Warning),
            ),
            ("torchaudio", "2.11.0", &["torch"][..], None),
            ("vllm", "0.33.0", &["torch==2.14.0"][..], None),
            (
                "vllm",
                "0.32.0",
                &["torch == 2.13.0"][..],
                Some(Severity::Warning),
            ),
            (
                "flash-attn",
                "2.8.3+cu12torch2.8cxx11abiTRUE",
                &["torch"][..],
                Some(Severity::Warning),
            ),
            ("flash-attn", "2.8.3", &["torch"][..], None),
            (
                "torchvision",
                "0.29.0+cpu",
                &["torch==2.14.0"][..],
                Some(Severity::Warning),
            ),
            ("torchaudio", "2.14.0+cpu", &[][..], Some(Severity::Warning)),
            ("xformers", "0.0.35", &["torch>=2.10"][..], None),
        ] {
            let found = misfit(&part(name, version, requires), &torch).map(|m| m.severity);
            assert_eq!(found, severity, "{name} {version} {requires:?}");
        }
    }

    #[test]
    fn abis() {
        assert_eq!(
            abi_of("_ZN3c105ErrorC2ENS_14SourceLocationESs"),
            Some("old")
        );
        assert_eq!(
            abi_of(
                "_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
            ),
            Some("new")
        );
        assert_eq!(abi_of("_ZN3c1021AutogradMetaInterfaceD1Ev"), None);
    }
}
