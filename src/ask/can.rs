//! Whether driver, CUDA runtime (or the PyTorch that brings it), cuDNN and GPU go together, each pair of them; the first
//! pair that does not decides.
//!
//! The runtime asks the driver for a CUDA level; the driver has to know the GPU; and what the toolkit wrote has to be
//! code for it. A pair of which the matrix cannot tell makes the whole unknown, which is no yes.

use super::code::code_for_gpu;
use super::cudnn::{cudnn_on_gpu, other_cudnn};
use super::driver::Side;
use super::gpus::{self, GpuKind, Meant};
use super::hardware::{gpu_by_driver, is_tegra};
use super::look_up::not_in_matrix;
use super::runtime::{runtime_on_driver, runtime_on_glibc};
use super::torch::{TorchSide, torch_for_gpu};
use super::{Answer, Cited, Question, WayKind, Word, capability, in_words, ways};
use crate::facts::Layer;
use crate::matrix::{Confidence, Machine, Matrix, MinimumDriver, VllmRelease, nearest};
use crate::target::{Target, Torch, TorchBuild};
use crate::version::Version;

/// Systems whose driver comes with the board's own release.
const TEGRA_SYSTEMS: &[&str] = &["jetson", "jetpack", "l4t", "tegra"];

/// One pair, judged.
pub(super) struct Check {
    pub(super) word: Word,
    /// One line, where it is no yes.
    pub(super) headline: String,
    /// The layer whose part has to change.
    pub(super) layer: Layer,
    /// Why that one and not the other.
    pub(super) why_layer: String,
    pub(super) why: Vec<Cited>,
    pub(super) limits: Vec<Cited>,
    /// Another driver, build or GPU would help.
    helped: bool,
}

impl Check {
    pub(super) fn yes(layer: Layer, why: Vec<Cited>) -> Self {
        Self {
            word: Word::Yes,
            headline: String::new(),
            layer,
            why_layer: String::new(),
            why,
            limits: Vec::new(),
            helped: false,
        }
    }

    pub(super) fn not(word: Word, layer: Layer, headline: String, why: Vec<Cited>) -> Self {
        Self {
            word,
            headline,
            ..Self::yes(layer, why)
        }
    }

    /// Something helps: that layer has to change, for this reason; without one it may be that nothing has to.
    pub(super) fn because(mut self, why_layer: impl Into<String>) -> Self {
        self.why_layer = why_layer.into();
        self.helped = true;
        self
    }
}

/// A CUDA version, and where it lies in the matrix.
pub(super) struct CudaSide<'m> {
    pub(super) version: &'m Version,
    /// What the driver needs for it; `None` where it is older than the matrix.
    pub(super) minimum: Option<MinimumDriver>,
    /// The minor version whose toolkit's architectures hold for it; `None` for an unknown major version.
    pub(super) toolkit: Option<Version>,
    /// It is newer than the last of its major version, or of a newer major version, than the matrix has.
    pub(super) newer: bool,
    /// It lies between versions that the matrix has, and was never published.
    pub(super) hole: bool,
    /// Who brings it: `torch 2.7.1+cu128`.
    pub(super) brought_by: Option<String>,
}

impl<'m> CudaSide<'m> {
    pub(super) fn of(matrix: &Matrix, version: &'m Version) -> Self {
        let minor = Version::from_cuda_level(version.cuda_level());
        let of_major = || {
            let rows = matrix.toolkits().iter();
            rows.filter(|row| row.cuda.major() == minor.major())
                .map(|row| Version::from_cuda_level(row.level))
        };
        let known = of_major().any(|known| known == minor);
        let newest = of_major().max();
        let newest_major = matrix.newest_toolkit().map_or(0, |row| row.cuda.major());
        // Before 11 every minor version was a family of its own, and those series are closed.
        let newer = !known
            && minor.major() >= 11
            && newest
                .as_ref()
                .map_or(minor.major() > newest_major, |newest| minor > *newest);
        Self {
            version,
            minimum: matrix.minimum_driver(version),
            toolkit: match newest {
                Some(newest) => Some(minor.min(newest)),
                // Before the matrix: architectures know toolkits that it does not.
                None => (minor.major() < newest_major).then_some(minor),
            },
            newer,
            hole: !known && !newer && oldest_level(matrix) <= version.cuda_level(),
            brought_by: None,
        }
    }

    /// `CUDA 12.4`, `torch 2.7.1+cu128 (CUDA 12.8)`.
    pub(super) fn shown(&self) -> String {
        match &self.brought_by {
            Some(by) => format!("{by} ({})", self.cuda()),
            None => self.cuda(),
        }
    }

    /// `CUDA 12.4`.
    pub(super) fn cuda(&self) -> String {
        format!("CUDA {}", self.version.major_minor())
    }
}

/// The level of the oldest toolkit in the matrix.
fn oldest_level(matrix: &Matrix) -> u32 {
    matrix.toolkits().first().map_or(0, |row| row.level)
}

/// Everything that was asked, looked up.
pub(super) struct Case<'m> {
    pub(super) matrix: &'m Matrix,
    pub(super) driver: Option<Side<'m>>,
    pub(super) cuda: Option<CudaSide<'m>>,
    pub(super) torch: Option<&'m TorchSide<'m>>,
    pub(super) cudnn: Option<&'m Version>,
    pub(super) gpus: Vec<Meant>,
    /// The driver comes with a Jetson's release.
    pub(super) tegra: bool,
}

impl Case<'_> {
    /// All GPUs that could be meant.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &GpuKind> {
        self.gpus.iter().flat_map(|meant| &meant.kinds)
    }

    /// Their names: "A100 and L40S".
    pub(super) fn gpu_names(&self) -> String {
        let name = |meant: &Meant| match meant.kinds.as_slice() {
            [one] => one.name.clone(),
            _ => meant.asked.clone(),
        };
        in_words(&self.gpus.iter().map(name).collect::<Vec<_>>())
    }

    /// The oldest branch that all GPUs take, and the newest that one of them still takes.
    pub(super) fn branches_of_gpus(&self) -> (Option<u32>, Option<(u32, &GpuKind)>) {
        let archs = || {
            self.kinds()
                .filter_map(|kind| Some((kind.arch(self.matrix)?, kind)))
        };
        let first = archs()
            .filter_map(|(arch, _)| arch.first_driver_branch)
            .max();
        let last = archs()
            .filter_map(|(arch, kind)| Some((arch.last_driver_branch?, kind)))
            .min_by_key(|(branch, _)| *branch);
        (first, last)
    }
}

/// Whether they go together. At least two of driver, CUDA version and GPU are needed; PyTorch stands for the CUDA version
/// that it brings, and cuDNN is held against the GPU.
///
/// # Errors
/// One line where there is nothing to hold against each other, or two CUDA versions are given.
pub fn can(matrix: &Matrix, target: &Target) -> Result<Answer, String> {
    if target.cuda.is_some() && target.torch.is_some() {
        return Err("`cuda` and `torch`: PyTorch brings the CUDA version of its build".to_owned());
    }
    if target.vllm.is_some() && (target.cuda.is_some() || target.torch.is_some()) {
        return Err("`vllm` beside `cuda` or `torch`: vLLM pins its own PyTorch".to_owned());
    }
    let vllm = match &target.vllm {
        Some(version) => {
            let Some(row) = matrix.vllm_release(version) else {
                let near = nearest(matrix.vllm_releases(), version);
                let why = not_in_matrix(matrix, &format!("vLLM {version}"), near);
                return Ok(Answer::new(question(target), Word::Unknown, why));
            };
            Some(row)
        }
        None => None,
    };
    let of_vllm = vllm.map(|row| Torch {
        version: row.torch.clone(),
        build: Some(TorchBuild::Cuda(row.cuda.clone())),
    });
    let machine = match &target.arch {
        Some(arch) => Machine::parse(arch).ok_or_else(|| {
            format!("`arch={arch}`: the matrix knows wheels for x86_64 and aarch64")
        })?,
        None => Machine::X86_64,
    };
    let torch = target.torch.as_ref().or(of_vllm.as_ref());
    let torch = torch.map(|asked| {
        let mut side = TorchSide::of(matrix, asked, machine);
        if let Some(row) = vllm {
            side.shown = format!("vLLM {} with {}", row.version, side.shown);
        }
        side
    });
    let of_torch = torch.as_ref().and_then(|torch| torch.cuda.as_ref());
    let gpus: Vec<Meant> = target
        .gpus
        .iter()
        .map(|gpu| gpus::meant(matrix, gpu))
        .collect();
    let on_tegra = target
        .os
        .as_ref()
        .is_some_and(|os| TEGRA_SYSTEMS.contains(&os.id.as_str()));
    let case = Case {
        tegra: on_tegra
            || gpus
                .iter()
                .flat_map(|meant| &meant.kinds)
                .any(|kind| is_tegra(kind, matrix)),
        matrix,
        driver: target
            .driver
            .as_ref()
            .map(|driver| Side::of(matrix, driver, target.os.as_ref())),
        cuda: target.cuda.as_ref().or(of_torch).map(|version| CudaSide {
            brought_by: torch.as_ref().map(|torch| torch.shown.clone()),
            ..CudaSide::of(matrix, version)
        }),
        torch: torch.as_ref(),
        cudnn: target.cudnn.as_ref(),
        gpus,
    };
    let mut checks = Vec::new();
    if let (Some(driver), Some(cuda)) = (&case.driver, &case.cuda) {
        checks.push(runtime_on_driver(&case, driver, cuda));
    }
    for meant in &case.gpus {
        if let Some(driver) = &case.driver {
            checks.push(each_kind(meant, |kind| gpu_by_driver(&case, driver, kind)));
        }
        match (case.torch, &case.cuda) {
            (Some(torch), Some(_)) => {
                checks.push(each_kind(meant, |kind| torch_for_gpu(&case, torch, kind)));
            }
            (None, Some(cuda)) => {
                checks.push(each_kind(meant, |kind| code_for_gpu(&case, cuda, kind)));
            }
            (_, None) => {}
        }
        if let Some(row) = vllm {
            checks.push(each_kind(meant, |kind| vllm_on_gpu(row, kind)));
        }
        if let Some(cudnn) = case.cudnn {
            checks.push(each_kind(meant, |kind| cudnn_on_gpu(&case, cudnn, kind)));
        }
    }
    let there = case.driver.is_some() || !case.gpus.is_empty();
    let problem = case.torch.filter(|_| there).and_then(TorchSide::check);
    // A build that is none decides before whatever it would run on.
    checks.splice(0..0, problem);
    if checks.is_empty() {
        return Err(
            "there is nothing to hold against each other: two of driver, CUDA version and GPU are needed (PyTorch brings a CUDA version, and cuDNN goes with a GPU)"
                .to_owned(),
        );
    }
    let cudnn_alone = case.cudnn.is_some() && case.gpus.is_empty();
    if cudnn_alone {
        return Err("cuDNN is held against a GPU, and none is given".to_owned());
    }
    if let Some(glibc) = &target.glibc {
        checks.extend(runtime_on_glibc(matrix, glibc));
    }
    Ok(answer(&case, &checks, target))
}

/// vLLM and GPU: the compute capability that its documentation asks for.
fn vllm_on_gpu(row: &VllmRelease, kind: &GpuKind) -> Check {
    let layer = Layer::Framework;
    let (Some(least), Some(has)) = (row.capability_min, kind.capability) else {
        return Check::yes(layer, Vec::new());
    };
    let cited = Cited::row(
        format!(
            "vLLM {} asks for compute capability {} or newer",
            row.version,
            capability(least)
        ),
        "vllm_release",
        &row.version,
        &row.source,
        row.confidence,
    );
    if has >= least {
        return Check::yes(layer, vec![cited]);
    }
    Check::not(
        Word::No,
        layer,
        format!(
            "vLLM {} asks for compute capability {}, and {} has {}",
            row.version,
            capability(least),
            kind.name,
            capability(has)
        ),
        vec![cited],
    )
}

fn question(target: &Target) -> Question {
    Question::Can {
        driver: target.driver.clone(),
        cuda: target.cuda.clone(),
        torch: target.torch.clone(),
        vllm: target.vllm.clone(),
        cudnn: target.cudnn.clone(),
        gpus: target.gpus.clone(),
        glibc: target.glibc.clone(),
        os: target.os.clone(),
    }
}

fn answer(case: &Case<'_>, checks: &[Check], target: &Target) -> Answer {
    let of = |word: Word| checks.iter().find(|check| check.word == word);
    let decisive = of(Word::No).or_else(|| of(Word::Unknown));
    let mut answer = match decisive {
        Some(check) => Answer::new(question(target), check.word, check.headline.clone()),
        None => Answer::new(question(target), Word::Yes, runs(case, checks)),
    };
    if let Some(check) = decisive {
        to_change(case, check, &mut answer);
    }
    answer.gpus.clone_from(&case.gpus);
    // What decided comes first; where it is a no, what else holds is no reason.
    let mut told = Vec::new();
    for check in checks {
        let tells = check.word == answer.answer || answer.answer == Word::Yes;
        if tells {
            told.extend(check.why.iter().cloned());
        }
        if answer.answer != Word::No {
            answer.limits.extend(check.limits.iter().cloned());
        }
    }
    for cited in told {
        if !answer.why.contains(&cited) {
            answer.why.push(cited);
        }
    }
    answer.limits.dedup();
    answer.weighed()
}

/// The ways out, which layer has to change, and why not the other.
fn to_change(case: &Case<'_>, check: &Check, answer: &mut Answer) {
    if check.helped && !case.tegra && check.layer != Layer::System {
        answer.ways = match (check.layer, case.cudnn) {
            (Layer::Libraries, Some(cudnn)) => other_cudnn(case, cudnn),
            _ => ways::out(case),
        };
    }
    let open = answer.ways.iter().find(|way| way.open == Some(true));
    if check.word == Word::No || !check.why_layer.is_empty() {
        answer.layer = Some(open.map_or(check.layer, |way| way.layer));
    }
    answer.why_layer = match open {
        Some(way) if way.kind == WayKind::DriverAndBuild => Some(format!(
            "and the build with it: no driver makes up for an old build, and no build for an old driver, on {}",
            case.gpu_names()
        )),
        // The part that is at fault cannot change: why not stands at the way that is closed.
        Some(way) if way.layer != check.layer => answer
            .ways
            .iter()
            .find(|way| way.layer == check.layer && way.open == Some(false))
            .and_then(|way| way.why_not.clone()),
        _ => Some(check.why_layer.clone()),
    }
    .filter(|why| !why.is_empty() && answer.layer.is_some());
}

/// The line of a yes.
fn runs(case: &Case<'_>, checks: &[Check]) -> String {
    let names = case.gpu_names();
    let line = match (&case.driver, &case.cuda) {
        (Some(driver), Some(cuda)) => {
            let on = if names.is_empty() {
                String::new()
            } else {
                format!(" on {names}")
            };
            let minor = driver
                .low
                .is_some_and(|level| cuda.version.cuda_level() > level);
            let how = if minor {
                " by minor-version compatibility"
            } else {
                ""
            };
            let limits = checks.iter().any(|check| !check.limits.is_empty());
            let within = if limits { ", within limits" } else { "" };
            format!(
                "{} runs {}{on}{how}{within}",
                driver.in_full(),
                cuda.shown()
            )
        }
        (Some(driver), None) => format!("{} drives {names}", driver.in_full()),
        (None, Some(cuda)) if case.torch.is_some() => {
            format!("{} has code for {names}", cuda.shown())
        }
        (None, Some(cuda)) => format!("what {} builds runs on {names}", cuda.shown()),
        (None, None) => String::new(),
    };
    match case.cudnn {
        Some(cudnn) if line.is_empty() => format!("cuDNN {cudnn} runs on {names}"),
        Some(cudnn) => format!("{line}; cuDNN {cudnn} runs there too"),
        None => line,
    }
}

/// A name that means GPUs of several architectures: the answer of all where they agree, else unknown.
fn each_kind(meant: &Meant, check: impl Fn(&GpuKind) -> Check) -> Check {
    if let Some(why) = &meant.unknown {
        let source = "the matrix holds each id and name by itself, and guesses none";
        let cited = Cited::rule(
            format!("`{}`: {why}", meant.asked),
            source,
            Confidence::Verified,
        );
        return Check::not(
            Word::Unknown,
            Layer::Hardware,
            format!("`{}` is no GPU that the matrix knows", meant.asked),
            vec![cited],
        );
    }
    let mut checks: Vec<Check> = meant.kinds.iter().map(check).collect();
    let agree = checks
        .first()
        .is_some_and(|first| checks.iter().all(|check| check.word == first.word));
    if agree {
        return checks.swap_remove(0);
    }
    let kinds: Vec<_> = meant
        .kinds
        .iter()
        .map(|kind| format!("{}, {}", kind.name, kind.code()))
        .collect();
    let cited = meant
        .kinds
        .iter()
        .zip(&checks)
        .map(|(kind, check)| {
            let told = match check.word {
                Word::Yes => "yes",
                Word::No => "no",
                _ => "unknown",
            };
            Cited::rule(
                format!("{} ({}): {told}", kind.name, kind.code()),
                &kind.source,
                kind.confidence,
            )
        })
        .collect();
    Check::not(
        Word::Unknown,
        Layer::Hardware,
        format!(
            "`{}` is the name of several GPUs, and the answer differs ({}): give its PCI id",
            meant.asked,
            kinds.join("; ")
        ),
        cited,
    )
}
