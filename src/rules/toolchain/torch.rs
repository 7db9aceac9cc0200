//! nvcc against the CUDA that `PyTorch` was built for, and against itself: which of several a build gets.

use super::{in_words, with_nvcc, with_signs};
use crate::facts::{Layer, Nvcc, NvccFoundBy, SignKind};
use crate::finding::{Finding, Fix, Severity, shell_line};
use crate::rules::{Ctx, Outcome, known};
use crate::version::Version;

/// nvcc of another major version than torch's CUDA: `torch.utils.cpp_extension` stops. Of another minor version it only
/// warns itself, which is worth a note where something is built.
pub(super) fn nvcc_differs_from_torch(ctx: &Ctx<'_>) -> Outcome {
    let nvccs = known!(ctx.facts.toolchain.nvcc, "nvcc");
    let torch = known!(ctx.facts.consumer.torch_cuda, "CUDA version of torch");
    let Some((nvcc, by)) = ctx.nvcc_of_torch() else {
        return Outcome::Clean;
    };
    let version = known!(nvcc.version, "version of nvcc");
    let is_built = !ctx.build_signs().is_empty();
    let (severity, title, detail) = if version.major() != torch.major() {
        (
            if is_built {
                Severity::Warning
            } else {
                Severity::Note
            },
            format!(
                "PyTorch refuses to build extensions here: nvcc is of CUDA {}, and {} was built with CUDA {torch}",
                version.major_minor(),
                torch_name(ctx),
            ),
            "torch.utils.cpp_extension compares the two before it compiles anything and stops where the major versions differ: \"The detected CUDA version mismatches the version that was used to compile PyTorch\". Only builds of extensions (also those that happen while a program runs) are affected: what is installed runs with the CUDA that it brought, whatever nvcc is here.",
        )
    } else if version.minor() != torch.minor() && is_built {
        (
            Severity::Note,
            format!(
                "nvcc is of CUDA {}, {} was built with CUDA {torch}: PyTorch warns and builds",
                version.major_minor(),
                torch_name(ctx),
            ),
            "Within one major version torch.utils.cpp_extension builds extensions and says that the minor versions differ. Some projects compare exactly on their own and stop.",
        )
    } else {
        return Outcome::Clean;
    };
    let finding = Finding::new("nvcc-differs-from-torch", Layer::Toolchain, severity, title)
        .detail(detail)
        .evidence(
            "CUDA that torch was built with",
            torch.to_string(),
            ctx.facts.consumer.torch_cuda.source(),
        );
    let mut finding = with_signs(ctx, with_nvcc(finding, nvcc, &by))
        .source("torch/utils/cpp_extension.py of PyTorch 2.9.1 and 2.15.0");
    if severity == Severity::Note && version.major() == torch.major() {
        return Outcome::Found(vec![finding]);
    }
    let other = closest(ctx, nvccs, torch);
    if let Some(other) = other {
        finding = finding.fix(take_home(
            other,
            &format!(
                "let CUDA_HOME name the toolkit of CUDA {} that is here: it goes before CUDA_PATH, PATH and /usr/local/cuda",
                torch.major_minor()
            ),
        ));
    }
    let install = Fix::at(
        Layer::Toolchain,
        format!(
            "install the compiler of CUDA {} (NVIDIA's package cuda-toolkit-{}-{}; in a conda environment cuda-nvcc and cuda-cudart-dev of that version, which need no root) and let CUDA_HOME name its folder",
            torch.major_minor(),
            torch.major(),
            torch.minor()
        ),
    )
    .verify("$CUDA_HOME/bin/nvcc --version");
    finding = finding.fix(if other.is_some() {
        install.second("a matching toolkit is here already")
    } else {
        install
    });
    Outcome::Found(vec![
        finding.fix(
            Fix::at(
                Layer::Framework,
                format!(
                    "install the build of PyTorch for CUDA {}, where there is one",
                    version.major()
                ),
            )
            .second("what was installed against the torch that is here has to change with it"),
        ),
    ])
}

/// `CUDA_HOME`, or `CUDA_PATH` where that is not set, names a folder without nvcc: builds look nowhere else then.
pub(super) fn cuda_home_without_nvcc(ctx: &Ctx<'_>) -> Outcome {
    let homes = known!(ctx.facts.toolchain.homes, "CUDA_HOME, CUDA_PATH");
    let Some(home) = homes.first() else {
        return Outcome::Clean;
    };
    if home.nvcc.is_unreadable() {
        return Outcome::unknown(home.nvcc.source());
    }
    if home.nvcc.is_present() {
        return Outcome::Clean;
    }
    // Programs read the variable as well, to find libraries: alone it is no sign of a build without a compiler.
    let is_built = ctx.build_signs().iter().any(|sign| {
        sign.kind != SignKind::Variable
            || !["CUDA_HOME=", "CUDA_PATH="]
                .iter()
                .any(|name| sign.what.starts_with(name))
    });
    let severity = if is_built {
        Severity::Warning
    } else {
        Severity::Note
    };
    let mut finding = Finding::new(
        "cuda-home-without-nvcc",
        Layer::Toolchain,
        severity,
        format!(
            "{} names {}, where no nvcc is: builds of CUDA code that go by it fail",
            home.variable, home.folder
        ),
    )
    .component("nvcc")
    .subject(home.variable.clone())
    .detail("Where the variable is set, torch.utils.cpp_extension and others look for bin/nvcc there and nowhere else. A folder of the runtime alone has none; neither has one that is gone, or two folders joined by a colon. Programs that are built run all the same.")
    .evidence(home.variable.clone(), home.folder.clone(), "environment")
    .reading("its nvcc", &home.nvcc);
    finding =
        with_signs(ctx, finding).source("torch/utils/cpp_extension.py of PyTorch 2.9.1 and 2.15.0");
    let other = match ctx.facts.consumer.torch_cuda.value() {
        Some(torch) => closest(ctx, ctx.facts.toolchain.nvcc.items(), torch),
        None => ctx
            .facts
            .toolchain
            .nvcc
            .items()
            .iter()
            .find(|nvcc| is_whole(ctx, nvcc)),
    };
    Outcome::Found(vec![match other {
        Some(other) => finding.fix(take_home(
            other,
            &format!("let {} name a toolkit that has one", home.variable),
        )),
        None => finding.fix(Fix::at(
            Layer::Toolchain,
            format!(
                "unset {}, or install a CUDA toolkit with its compiler and let the variable name its folder",
                home.variable
            ),
        )),
    }])
}

/// The nvcc that a variable names and the one on PATH are of different versions: parts of one build get different ones.
pub(super) fn nvcc_versions_differ(ctx: &Ctx<'_>) -> Outcome {
    let Some(home) = ctx.facts.toolchain.homes.items().first() else {
        return Outcome::Clean;
    };
    let (Some((named, by)), Some((other, other_by))) = (ctx.nvcc_of_torch(), ctx.nvcc_of_others())
    else {
        return Outcome::Clean;
    };
    if named.program == other.program {
        return Outcome::Clean;
    }
    let version = known!(named.version, "version of nvcc");
    let other_version = known!(other.version, "version of nvcc");
    if version.cuda_level() == other_version.cuda_level() {
        return Outcome::Clean;
    }
    let severity = if version.major() == other_version.major() {
        Severity::Note
    } else {
        Severity::Warning
    };
    let finding = Finding::new(
        "nvcc-versions-differ",
        Layer::Toolchain,
        severity,
        format!(
            "{} names CUDA {}, and the nvcc of the shell and of CMake is of CUDA {}: one build can get both",
            home.variable,
            version.major_minor(),
            other_version.major_minor()
        ),
    )
    .detail("PyTorch's extensions go by the variable, CMake and makefiles by PATH (or CUDACXX). A project that uses both compiles with one toolkit and links or includes from the other.");
    let finding = with_nvcc(finding, named, &by)
        .reading("the other nvcc", &other.version)
        .evidence("taken by others", other.path.clone(), other_by);
    // Where torch says which of the two is right, the other one gives way.
    let torch = ctx.facts.consumer.torch_cuda.value();
    let right = torch.and_then(|torch| closest(ctx, [named, other], torch));
    Outcome::Found(vec![
        if right.is_some_and(|nvcc| nvcc.program == named.program) {
            finding.fix(
                Fix::at(
                    Layer::Toolchain,
                    format!("put the bin folder of {} first on PATH", named.toolkit),
                )
                .line(format!(
                    "export PATH={}:\"$PATH\"",
                    shell_line(&[&format!("{}/bin", named.toolkit)])
                ))
                .verify("nvcc --version"),
            )
        } else {
            finding.fix(take_home(
                other,
                &format!(
                    "let {} name the toolkit whose nvcc is on PATH",
                    home.variable
                ),
            ))
        },
    ])
}

/// `torch 2.9.1` where its distribution says so.
fn torch_name(ctx: &Ctx<'_>) -> String {
    ctx.facts
        .consumer
        .frameworks
        .items()
        .iter()
        .find(|distribution| distribution.name == "torch")
        .map_or_else(
            || "torch".to_owned(),
            |torch| format!("torch {}", torch.version),
        )
}

/// Whether a toolkit is one to build with. The wheels of CUDA have a compiler, but not the libraries to link with.
fn is_whole(ctx: &Ctx<'_>, nvcc: &Nvcc) -> bool {
    let of_environment = nvcc.found_by == [NvccFoundBy::Environment];
    !of_environment || ctx.facts.consumer.prefix.value() == Some(&nvcc.toolkit)
}

/// The nvcc of torch's own CUDA: of the same minor version, else of the same major one.
fn closest<'a>(
    ctx: &Ctx<'_>,
    nvccs: impl IntoIterator<Item = &'a Nvcc>,
    torch: &Version,
) -> Option<&'a Nvcc> {
    nvccs
        .into_iter()
        .filter(|nvcc| is_whole(ctx, nvcc))
        .filter_map(|nvcc| Some((nvcc, nvcc.version.value()?)))
        .filter(|(_, version)| version.major() == torch.major())
        .min_by_key(|(_, version)| version.minor().abs_diff(torch.minor()))
        .map(|(nvcc, _)| nvcc)
}

/// The one variable to set.
fn take_home(nvcc: &Nvcc, summary: &str) -> Fix {
    // The link may lead elsewhere tomorrow: what it leads to is named.
    let folder = if nvcc.toolkit == "/usr/local/cuda" {
        nvcc.program
            .strip_suffix("/bin/nvcc")
            .unwrap_or(&nvcc.toolkit)
    } else {
        &nvcc.toolkit
    };
    Fix::at(Layer::Toolchain, format!("{summary} ({})", in_words(nvcc)))
        .line(format!("export CUDA_HOME={}", shell_line(&[folder])))
        .verify("$CUDA_HOME/bin/nvcc --version")
}
