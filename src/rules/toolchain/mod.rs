//! Rules of the toolchain, which stands beside the stack: what is wrong here breaks builds, never a program that is
//! built. So nothing here is worse than a warning, and where nothing shows that something is built it is a note.

mod architectures;
mod gpu;
mod headers;
mod host_compiler;
mod torch;

use super::{Ctx, Need, Outcome, Rule};
use crate::facts::{BuildSign, Compiler, CompilerUse, Layer, Nvcc, NvccFoundBy, SignKind};
use crate::finding::{Finding, Severity};

pub(super) static RULES: &[Rule] = &[
    Rule {
        // Found by `preflight` alone, which knows the targets.
        id: "architecture-not-asked-for",
        layer: Layer::Toolchain,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/architecture-not-asked-for.md"),
        check: |_| Outcome::Clean,
    },
    Rule {
        id: "architecture-unknown-to-nvcc",
        layer: Layer::Toolchain,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/architecture-unknown-to-nvcc.md"),
        check: architectures::architecture_unknown_to_nvcc,
    },
    Rule {
        id: "cuda-headers-clash-with-glibc",
        layer: Layer::Toolchain,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/cuda-headers-clash-with-glibc.md"),
        check: headers::cuda_headers_clash_with_glibc,
    },
    Rule {
        id: "cuda-home-without-nvcc",
        layer: Layer::Toolchain,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/cuda-home-without-nvcc.md"),
        check: torch::cuda_home_without_nvcc,
    },
    Rule {
        id: "host-compiler-too-new",
        layer: Layer::Toolchain,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/host-compiler-too-new.md"),
        check: host_compiler::host_compiler_too_new,
    },
    Rule {
        id: "nvcc-differs-from-torch",
        layer: Layer::Toolchain,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/nvcc-differs-from-torch.md"),
        check: torch::nvcc_differs_from_torch,
    },
    Rule {
        id: "nvcc-lacks-gpu",
        layer: Layer::Toolchain,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/nvcc-lacks-gpu.md"),
        check: gpu::nvcc_lacks_gpu,
    },
    Rule {
        id: "nvcc-versions-differ",
        layer: Layer::Toolchain,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &["nvcc-differs-from-torch"],
        page: include_str!("../pages/nvcc-versions-differ.md"),
        check: torch::nvcc_versions_differ,
    },
];

impl Ctx<'_> {
    /// The nvcc that was found this way.
    fn nvcc_by(&self, by: NvccFoundBy) -> Option<&Nvcc> {
        self.facts
            .toolchain
            .nvcc
            .items()
            .iter()
            .find(|nvcc| nvcc.is_by(by))
    }

    /// The nvcc that `torch.utils.cpp_extension` takes, and by what: it looks nowhere else where a variable is set.
    fn nvcc_of_torch(&self) -> Option<(&Nvcc, String)> {
        if let Some(home) = self.facts.toolchain.homes.items().first() {
            let by = if home.variable == "CUDA_HOME" {
                NvccFoundBy::CudaHome
            } else {
                NvccFoundBy::CudaPath
            };
            return self
                .nvcc_by(by)
                .map(|nvcc| (nvcc, format!("{}={}", home.variable, home.folder)));
        }
        let on_path = self.nvcc_by(NvccFoundBy::Path);
        on_path
            .map(|nvcc| (nvcc, "nvcc on PATH".to_owned()))
            .or_else(|| {
                self.nvcc_by(NvccFoundBy::DefaultFolder)
                    .map(|nvcc| (nvcc, "the default folder /usr/local/cuda".to_owned()))
            })
    }

    /// The nvcc that `CMake` and a shell take, and by what.
    fn nvcc_of_others(&self) -> Option<(&Nvcc, String)> {
        self.nvcc_by(NvccFoundBy::Cudacxx)
            .map(|nvcc| (nvcc, format!("CUDACXX={}", nvcc.path)))
            .or_else(|| {
                self.nvcc_by(NvccFoundBy::Path)
                    .map(|nvcc| (nvcc, "nvcc on PATH".to_owned()))
            })
    }

    /// Every nvcc that a build takes, each once, and by what.
    pub fn nvccs_in_use(&self) -> Vec<(&Nvcc, String)> {
        let mut all: Vec<(&Nvcc, String)> = self.nvcc_of_others().into_iter().collect();
        all.extend(self.nvcc_of_torch());
        let mut seen: Vec<&str> = Vec::new();
        all.retain(|(nvcc, _)| {
            let is_new = !seen.contains(&nvcc.program.as_str());
            seen.push(&nvcc.program);
            is_new
        });
        all
    }

    /// The host compiler that nvcc calls where a build says nothing of it.
    pub fn compiler_of(&self, nvcc: &Nvcc) -> Option<&Compiler> {
        let all = self.facts.toolchain.compilers.items();
        let by = |wanted: CompilerUse| all.iter().find(|c| c.used_by.contains(&wanted));
        ["NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN"]
            .into_iter()
            .find_map(|name| by(CompilerUse::Variable(name.to_owned())))
            .or_else(|| by(CompilerUse::BesideNvcc(nvcc.program.clone())))
            .or_else(|| by(CompilerUse::Path))
    }

    /// What shows that CUDA code is compiled here.
    fn build_signs(&self) -> &[BuildSign] {
        self.facts.toolchain.signs.items()
    }

    /// How much it matters that this nvcc cannot do its work. A toolkit that lies in the default folder and is named by
    /// nothing may be there for its libraries alone.
    fn severity_for(&self, nvcc: &Nvcc) -> Severity {
        let is_named = [NvccFoundBy::Cudacxx, NvccFoundBy::Path]
            .into_iter()
            .any(|by| nvcc.is_by(by));
        let has_compiler = is_named && self.compiler_of(nvcc).is_some();
        if has_compiler || !self.build_signs().is_empty() {
            Severity::Warning
        } else {
            Severity::Note
        }
    }
}

/// An nvcc in a sentence: `nvcc 12.1.105`.
fn in_words(nvcc: &Nvcc) -> String {
    match nvcc.version.value() {
        Some(version) => format!("nvcc {version}"),
        None => "nvcc".to_owned(),
    }
}

/// A finding with the nvcc that it is about, and why builds take that one.
fn with_nvcc(finding: Finding, nvcc: &Nvcc, by: &str) -> Finding {
    finding
        .component("nvcc")
        .subject(nvcc.path.clone())
        .reading("nvcc", &nvcc.version)
        .evidence("taken by builds", nvcc.path.clone(), by.to_owned())
}

/// The signs that something is built, as evidence.
fn with_signs(ctx: &Ctx<'_>, mut finding: Finding) -> Finding {
    for sign in ctx.build_signs() {
        // The variable that chose the nvcc stands there already.
        let told = finding
            .evidence
            .iter()
            .any(|evidence| evidence.source == sign.what);
        if !(sign.kind == SignKind::Variable && told) {
            finding = finding.evidence("CUDA code is built here", &sign.what, &sign.source);
        }
    }
    finding
}
