//! The host compiler that nvcc calls against the newest one that it takes.

use super::{in_words, with_nvcc, with_signs};
use crate::facts::{Compiler, CompilerFamily, CompilerUse, Layer, Nvcc, Reading};
use crate::finding::{Finding, Fix, shell_line};
use crate::matrix::Confidence;
use crate::rules::{Ctx, Outcome, known};
use crate::version::Version;

/// Variables by which a build system hands a compiler on to nvcc: `CMake`'s, and that of `PyTorch`'s extensions.
const HANDED_ON: [&str; 2] = ["CUDAHOSTCXX", "CC"];

/// The newest compiler of a family that an nvcc takes.
struct Limit {
    /// Its major version.
    newest: u32,
    /// The first version of that major one whose own headers nvcc cannot parse.
    headers_break: Option<Version>,
    /// Where that is from.
    source: String,
}

/// A host compiler that nvcc refuses, or whose headers it cannot parse.
pub(super) fn host_compiler_too_new(ctx: &Ctx<'_>) -> Outcome {
    known!(ctx.facts.toolchain.nvcc, "nvcc");
    known!(ctx.facts.toolchain.compilers, "host compilers");
    if ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"]
        .iter()
        .any(|name| {
            ctx.env(name)
                .is_some_and(|flags| flags.contains("allow-unsupported-compiler"))
        })
    {
        return Outcome::Clean;
    }
    let mut findings = Vec::new();
    let mut missing = Vec::new();
    for (nvcc, by) in ctx.nvccs_in_use() {
        let handed_on: Vec<&Compiler> = HANDED_ON
            .iter()
            .filter(|name| **name != "CC" || ctx.facts.consumer.torch_cuda.is_present())
            .filter_map(|name| {
                let by = CompilerUse::Variable((*name).to_owned());
                let all = ctx.facts.toolchain.compilers.items();
                all.iter().find(|c| c.used_by.contains(&by))
            })
            .collect();
        // Who named a compiler that fits has dealt with it: builds that matter to them go by that.
        if handed_on
            .iter()
            .any(|c| matches!(refused(ctx, nvcc, c), Ok(None)))
        {
            continue;
        }
        let own = ctx.compiler_of(nvcc);
        for compiler in own.into_iter().chain(handed_on) {
            match refused(ctx, nvcc, compiler) {
                Ok(Some(limit)) => findings.push(finding(ctx, nvcc, &by, compiler, &limit)),
                Ok(None) => {}
                Err(reason) => missing.push(reason),
            }
        }
    }
    findings.dedup_by(|a, b| a.key == b.key);
    if findings.is_empty() && !missing.is_empty() {
        Outcome::Unknown { missing }
    } else {
        Outcome::found(findings)
    }
}

/// The limit that a compiler is beyond; why it cannot be told where it cannot.
fn refused(ctx: &Ctx<'_>, nvcc: &Nvcc, compiler: &Compiler) -> Result<Option<Limit>, String> {
    if compiler.family == CompilerFamily::Other {
        return Err(format!(
            "host compiler {}: {}",
            compiler.path,
            compiler.version.source()
        ));
    }
    let version = match &compiler.version {
        Reading::Present { value, .. } => value,
        other => {
            return Err(format!(
                "host compiler {}: {}",
                compiler.path,
                other.source()
            ));
        }
    };
    let limit = limit(ctx, nvcc, compiler.family).ok_or_else(|| {
        format!(
            "newest host compiler for {}: neither in its headers nor in the matrix",
            nvcc.path
        )
    })?;
    let breaks = limit.headers_break.as_ref().is_some_and(|first| {
        version.len() > 1 && version.major() == first.major() && version >= first
    });
    Ok((version.major() > limit.newest || breaks).then_some(limit))
}

/// By (1) the toolkit's own header, which is what decides, (2) the matrix.
fn limit(ctx: &Ctx<'_>, nvcc: &Nvcc, family: CompilerFamily) -> Option<Limit> {
    let row = nvcc
        .version
        .value()
        .and_then(|version| ctx.matrix.host_compiler(version));
    let in_header = nvcc.limits.value().and_then(|limits| match family {
        CompilerFamily::Gcc => limits.gcc_max,
        CompilerFamily::Clang => limits.clang_max,
        CompilerFamily::Other => None,
    });
    let headers_break = row
        .filter(|_| family == CompilerFamily::Gcc)
        .and_then(|row| row.gcc_headers_break.clone());
    match (in_header, row) {
        (Some(newest), _) => Some(Limit {
            newest,
            headers_break,
            source: nvcc.limits.source().to_owned(),
        }),
        (None, Some(row)) => Some(Limit {
            newest: match family {
                CompilerFamily::Clang => row.clang_max,
                _ => row.gcc_max,
            },
            headers_break,
            source: format!("compatibility matrix: {}", row.source),
        }),
        (None, None) => None,
    }
}

fn finding(ctx: &Ctx<'_>, nvcc: &Nvcc, by: &str, compiler: &Compiler, limit: &Limit) -> Finding {
    let family = compiler.family.id();
    let version = compiler.version.value();
    let major = version.map_or(0, Version::major);
    let version = version.map(Version::to_string).unwrap_or_default();
    let is_refused = major > limit.newest;
    let named_by = compiler.used_by.iter().find_map(|used| match used {
        CompilerUse::Variable(name) => Some(name.as_str()),
        _ => None,
    });
    let title = if is_refused {
        format!(
            "{} takes {family} up to {}, and {} is {family} {version}: CUDA code does not compile",
            in_words(nvcc),
            limit.newest,
            named_by.map_or_else(
                || "the one here".to_owned(),
                |name| format!("that of {name}")
            ),
        )
    } else {
        format!(
            "{} stumbles over the C++ headers of {family} {version}: CUDA code that includes them does not compile",
            in_words(nvcc)
        )
    };
    let finding = Finding::new(
        "host-compiler-too-new",
        Layer::Toolchain,
        ctx.severity_for(nvcc),
        title,
    )
    .detail(if is_refused {
        "A header of the toolkit tests the version of the host compiler: \"unsupported GNU version! gcc versions later than ... are not supported!\". The flag that switches the test off leads to errors further on as often as not. Programs that are built already are not affected."
    } else {
        "The header of this toolkit lets the compiler pass, but nvcc's own front end cannot parse that compiler's library: \"parameter packs not expanded with '...'\". Programs that are built already are not affected."
    });
    let mut finding = with_nvcc(finding, nvcc, by)
        .subject(compiler.path.clone())
        .evidence(
            format!("newest {family} for this nvcc"),
            match (&limit.headers_break, is_refused) {
                (Some(first), false) => format!("older than {first}"),
                _ => limit.newest.to_string(),
            },
            limit.source.clone(),
        )
        .reading("host compiler", &compiler.version);
    finding.key = format!("{}:{}", finding.key, compiler.path);
    finding = finding.evidence(
        "called by nvcc as",
        compiler.path.clone(),
        named_by.unwrap_or("the one that nvcc finds by itself"),
    );
    finding = with_signs(ctx, finding);

    let fits = |c: &&Compiler| {
        c.family == CompilerFamily::Gcc && refused(ctx, nvcc, c).is_ok_and(|limit| limit.is_none())
    };
    let installed = ctx.facts.toolchain.compilers.items().iter().filter(fits);
    let newest = if is_refused {
        limit.newest
    } else {
        limit.newest.saturating_sub(1)
    };
    finding = finding.fix(match installed.max_by_key(|c| c.version.value().cloned()) {
        Some(other) => name_compiler(&other.path, format!("let nvcc call {}, which is installed", other.path)),
        None if compiler.family == CompilerFamily::Gcc => name_compiler(
            &format!("g++-{newest}"),
            format!("install g++ {newest} beside the one that is here (package g++-{newest} on Debian and Ubuntu) and let nvcc call it: by NVCC_PREPEND_FLAGS, in newer toolkits NVCC_CCBIN; CMake reads CUDAHOSTCXX"),
        ),
        None => Fix::at(
            Layer::Toolchain,
            format!("let nvcc call {family} {} or older, or a gcc that it takes", limit.newest),
        ),
    });
    let toolkit = match compiler.family {
        CompilerFamily::Clang => ctx.matrix.first_toolkit_for_clang(major),
        _ => ctx.matrix.first_toolkit_for_gcc(major),
    };
    match toolkit.filter(|row| row.confidence == Confidence::Verified || !is_refused) {
        Some(row) => finding
            .fix(
                Fix::at(
                    Layer::Toolchain,
                    format!(
                        "or build with the CUDA toolkit {} or newer, whose nvcc takes {family} {major}",
                        row.toolkit.major_minor()
                    ),
                )
                .second("a larger change, and what is built then needs a driver of that CUDA version or its family"),
            )
            .source(row.source.clone()),
        None => finding,
    }
    .source("crt/host_config.h of the toolkit")
}

/// The one variable to set.
fn name_compiler(path: &str, summary: String) -> Fix {
    let flag = format!("-ccbin {}", shell_line(&[path]));
    Fix::at(Layer::Toolchain, summary)
        .line(format!(
            "export NVCC_PREPEND_FLAGS={}",
            shell_line(&[&flag])
        ))
        .verify("nvcc -x cu -E /dev/null >/dev/null")
}
