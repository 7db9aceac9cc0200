//! The toolkit's headers against the C library's.

use super::{in_words, with_nvcc, with_signs};
use crate::facts::{Layer, Reading};
use crate::finding::{Finding, Fix};
use crate::matrix::SharedMath;
use crate::rules::{Ctx, Outcome, known};

/// Functions that both declare, and in different ways: C++ refuses that, whatever the host compiler is.
pub(super) fn cuda_headers_clash_with_glibc(ctx: &Ctx<'_>) -> Outcome {
    known!(ctx.facts.toolchain.nvcc, "nvcc");
    let libc = known!(ctx.facts.system.libc, "C library");
    let Some(glibc) = libc.version.as_ref().filter(|_| libc.kind == "glibc") else {
        return Outcome::Clean;
    };
    let mut findings = Vec::new();
    for (nvcc, by) in ctx.nvccs_in_use() {
        let Reading::Present { value, source } = &nvcc.plain_math else {
            continue;
        };
        let clash: Vec<&SharedMath> = ctx
            .matrix
            .shared_math()
            .iter()
            .filter(|row| *glibc >= row.glibc && value.contains(&row.function))
            .collect();
        let Some(needed) = clash.iter().map(|row| &row.toolkit).max() else {
            continue;
        };
        let functions: Vec<&str> = clash.iter().map(|row| row.function.as_str()).collect();
        let functions = functions.join(", ");
        let mut finding = Finding::new(
            "cuda-headers-clash-with-glibc",
            Layer::Toolchain,
            ctx.severity_for(nvcc),
            format!(
                "the headers of {} and of glibc {glibc} both declare {functions}, in different ways: no CUDA code compiles",
                in_words(nvcc)
            ),
        )
        .detail("The C library declares these functions with an exception specification, the toolkit's crt/math_functions.h without: \"exception specification is incompatible with that of previous function\". Another host compiler does not help.");
        finding = with_nvcc(finding, nvcc, &by)
            .evidence(
                "declared without exception specification",
                functions,
                source.clone(),
            )
            .reading(
                "C library",
                &ctx.facts
                    .system
                    .libc
                    .clone()
                    .map(|_| format!("glibc {glibc}")),
            );
        finding = with_signs(ctx, finding);
        for row in &clash {
            finding = finding.source(row.source.clone());
        }
        findings.push(
            finding
                .fix(
                    Fix::at(
                        Layer::Toolchain,
                        format!("build with the CUDA toolkit {needed} or newer, whose headers go with this C library"),
                    )
                    .verify("nvcc --version"),
                )
                .fix(
                    Fix::at(
                        Layer::Toolchain,
                        "build in a container or on a system with an older C library",
                    )
                    .second("needed only where the older toolkit has to stay"),
                ),
        );
    }
    Outcome::found(findings)
}
