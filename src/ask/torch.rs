//! PyTorch: which CUDA a build of it brings, whether the code in its wheel runs on a GPU, and which build does instead.

use super::can::{Case, Check};
use super::gpus::GpuKind;
use super::{Cited, Way, WayKind, Word, in_words, sm};
use crate::facts::Layer;
use crate::matrix::{
    Capability, CodeFit, Confidence, Machine, Matrix, TorchArchs, TorchRelease, TorchWanted,
    nearest, torch_tag,
};
use crate::target::{Torch, TorchBuild};
use crate::version::Version;

/// A PyTorch that was asked for, looked up.
pub(super) struct TorchSide<'m> {
    /// `torch 2.7.1+cu128`.
    pub(super) shown: String,
    /// Its release; as it was asked for where it has no row.
    pub(super) version: Version,
    /// The CUDA version of the build, where it has one and it is known.
    pub(super) cuda: Option<Version>,
    /// The row of its device code.
    pub(super) archs: Option<&'m TorchArchs>,
    /// Of which wheels the code is meant.
    pub(super) machine: Machine,
    /// What that rests on.
    pub(super) cited: Vec<Cited>,
    /// Why it cannot be judged, or cannot run.
    problem: Option<(Word, String)>,
}

impl<'m> TorchSide<'m> {
    pub(super) fn of(matrix: &'m Matrix, asked: &Torch, machine: Machine) -> Self {
        let release = matrix.torch_release(&asked.version);
        let version = release.map_or_else(|| asked.version.clone(), |row| row.version.clone());
        let mut side = Self {
            shown: format!("torch {version}"),
            version,
            cuda: None,
            archs: None,
            machine,
            cited: Vec::new(),
            problem: None,
        };
        match &asked.build {
            Some(TorchBuild::Other(tag)) => {
                side.shown = format!("{}+{tag}", side.shown);
                let why = format!("{} is a build without CUDA", side.shown);
                side.problem = Some((Word::No, why));
                return side;
            }
            Some(TorchBuild::Cuda(cuda)) => side.cuda = Some(cuda.clone()),
            None => side.cuda = release.map(|row| row.cuda.clone()),
        }
        let Some(cuda) = &side.cuda else {
            side.problem = Some((Word::Unknown, not_there(matrix, &side.version)));
            return side;
        };
        side.shown = format!("{}+{}", side.shown, torch_tag(cuda));
        side.archs = matrix.torch_archs(&side.version, cuda);
        if let Some(row) = release {
            if row.cudas.contains(cuda) {
                side.cited.push(brings(row, cuda));
            } else {
                side.cited.push(builds(row));
                let why = format!("the matrix knows no {}", side.shown);
                side.problem = Some((Word::Unknown, why));
            }
        }
        side
    }

    /// What there is to say of the build by itself.
    pub(super) fn check(&self) -> Option<Check> {
        let (word, headline) = self.problem.as_ref()?;
        let check = Check::not(
            *word,
            Layer::Framework,
            headline.clone(),
            self.cited.clone(),
        );
        Some(check.because("no driver and no GPU makes up for what is not in the build"))
    }

    /// Whether its code runs on a GPU of this capability.
    pub(super) fn serves(&self, matrix: &Matrix, gpu: Capability, level: Option<u32>) -> CodeFit {
        let code = self.archs.and_then(|row| row.code(self.machine));
        match (code, &self.cuda) {
            (Some(code), Some(cuda)) => matrix.code_fit(code, gpu, cuda, level),
            _ => CodeFit::Unknown("the matrix has no list of the code in this build".to_owned()),
        }
    }
}

/// `torch 2.9.5 is not in the matrix of ...; the nearest are 2.9.1 and 2.10.0`.
pub(super) fn not_there(matrix: &Matrix, version: &Version) -> String {
    super::look_up::not_in_matrix(
        matrix,
        &format!("torch {version}"),
        nearest(matrix.torch_releases(), version),
    )
}

/// Its CUDA version, with the row.
pub(super) fn brings(row: &TorchRelease, cuda: &Version) -> Cited {
    let (text, confidence) = if row.cuda == *cuda {
        let text = format!("torch {} on PyPI is built for CUDA {cuda}", row.version);
        (text, row.confidence)
    } else {
        let text = format!(
            "torch {} has a build for CUDA {cuda} in PyTorch's own index",
            row.version
        );
        (text, row.cudas_confidence())
    };
    Cited::row(text, "torch_release", &row.version, &row.source, confidence)
}

/// All its builds, with the row.
pub(super) fn builds(row: &TorchRelease) -> Cited {
    let cudas: Vec<_> = row
        .cudas
        .iter()
        .map(|cuda| {
            let on_pypi = if row.cuda == *cuda { " (PyPI)" } else { "" };
            format!("{cuda}{on_pypi}")
        })
        .collect();
    Cited::row(
        format!("built for CUDA {}", in_words(&cudas)),
        "torch_release",
        &row.version,
        &row.source,
        row.cudas_confidence(),
    )
}

/// The device code of its wheels, with the row.
pub(super) fn code(row: &TorchArchs) -> Cited {
    let words = row.x86_64.words();
    Cited::row(
        format!("wheels for CUDA {} hold {}", row.cuda, words.join(", ")),
        "torch_archs",
        format!(
            "{} to {} for CUDA {}",
            row.torch_from, row.torch_to, row.cuda
        ),
        &row.source,
        row.confidence,
    )
}

/// PyTorch and GPU: whether the wheel holds code for it.
pub(super) fn torch_for_gpu(case: &Case<'_>, torch: &TorchSide<'_>, kind: &GpuKind) -> Check {
    let layer = Layer::Framework;
    let Some(capability) = kind.capability else {
        let headline = format!(
            "whether {} runs on {} is not known: its compute capability is not known",
            torch.shown, kind.name
        );
        return Check::not(Word::Unknown, layer, headline, Vec::new());
    };
    let mut why = torch.cited.clone();
    why.extend(torch.archs.map(code));
    let level = case.driver.as_ref().and_then(|driver| driver.low);
    let of_gpu = format!("{} ({})", kind.name, sm(capability));
    let no_driver =
        "no driver makes up for code that the wheel does not hold; another build of PyTorch may";
    match torch.serves(case.matrix, capability, level.filter(|level| *level > 0)) {
        CodeFit::Cubin(target) => {
            let mut check = Check::yes(layer, why);
            if target.capability != capability {
                check.limits.push(Cited::rule(
                    format!("its machine code for {target} runs on {of_gpu}, for which it has none of its own"),
                    "compute capability rules of the CUDA documentation",
                    Confidence::Verified,
                ));
            }
            check
        }
        CodeFit::Ptx(target) => {
            let mut check = Check::yes(layer, why);
            check.limits.push(Cited::rule(
                format!(
                    "the driver compiles its PTX ({}) for {of_gpu} when it is first used: there is no machine code for it",
                    target.to_string().replacen("sm_", "compute_", 1)
                ),
                "compute capability rules of the CUDA documentation",
                Confidence::Verified,
            ));
            check
        }
        CodeFit::PtxTooNew(isa) => {
            let headline = format!(
                "{} has only PTX {isa} for {of_gpu}, which this driver does not compile",
                torch.shown
            );
            Check::not(Word::No, layer, headline, why)
                .because("a newer driver compiles it; machine code needs another build of PyTorch")
        }
        CodeFit::No => {
            let headline = format!("{} has no code for {of_gpu}", torch.shown);
            Check::not(Word::No, layer, headline, why).because(no_driver)
        }
        CodeFit::Unknown(unknown) => {
            let headline = format!(
                "whether {} has code for {of_gpu} is not known: {unknown}",
                torch.shown
            );
            Check::not(Word::Unknown, layer, headline, why)
        }
    }
}

/// Another build of PyTorch for drivers of this level and the GPUs that were asked for.
pub(super) fn other_torch(
    case: &Case<'_>,
    torch: &TorchSide<'_>,
    level: Option<u32>,
    on: &str,
) -> Option<Way> {
    let (kind, layer) = (WayKind::Build, Layer::Framework);
    let summary = "another build of PyTorch";
    let gpus: Vec<Capability> = case.kinds().filter_map(|kind| kind.capability).collect();
    let wanted = TorchWanted {
        torch: &torch.version,
        gpus: &gpus,
        level,
        python: None,
        machine: torch.machine,
    };
    let Some(build) = case.matrix.torch_build_for(&wanted) else {
        let why = format!("the matrix knows none that runs on {on}");
        return Some(Way::closed(kind, layer, summary, why));
    };
    if build.release.version == torch.version && Some(build.cuda) == torch.cuda.as_ref() {
        return None;
    }
    let install = case.matrix.torch_install(&build, "pip");
    let command = install.map_or_else(String::new, |words| format!(": {}", words.join(" ")));
    let other_release = if build.release.version == torch.version {
        String::new()
    } else {
        format!(" ({} has no build that would run)", torch.version)
    };
    let mut way = Way::new(
        kind,
        layer,
        Some(true),
        format!("take torch {}{other_release}{command}", build.name()),
    );
    way.cost = "reinstall";
    way.why_second = Some(
        "the driver stays as old as it is, and what only the newer CUDA version has is given up"
            .to_owned(),
    );
    way.verify = Some("python -c 'import torch; print(torch.cuda.get_arch_list())'");
    way.rows.push(brings(build.release, build.cuda));
    way.rows.extend(build.archs.map(code));
    Some(way)
}
