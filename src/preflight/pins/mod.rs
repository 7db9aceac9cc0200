//! What a file pins, held against a machine: whether it is installed there at all (markers, platform tags), whether the
//! driver takes the CUDA of a framework's build, and whether the build has code for the GPUs.
//!
//! Of a version that is left open all releases that the file allows and the matrix knows are judged: an installer takes the
//! newest.
//!
//! A package that no table knows is none of the GPU stack, and says nothing. Of one that a table knows, a release without
//! a row is unknown: it is told, and never taken for its neighbour.

mod installed;
mod open;

use super::manifest::Pin;
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::inspect::{Machine, by_minor_version};
use crate::matrix::{
    Capability, CodeFit, CodeTargets, Machine as WheelMachine, Matrix, cuda_of_torch_tag, torch_tag,
};
use crate::rules::BUILT_ON_TORCH;
use crate::target;
use crate::version::Version;

/// The machine that is judged for where a target does not say which it is.
const ARCH: &str = "x86_64";

/// What a pin means for the GPU stack.
struct Build {
    /// The package and its release, by which the matrix knows its wheels.
    wheel: Option<(&'static str, Version)>,
    /// `torch 2.7.1+cu126`.
    shown: String,
    /// The CUDA whose runtime it brings or needs; a major version alone where no more is known.
    cuda: Version,
    /// Its device code, where a table has it.
    code: Option<CodeTargets>,
    /// The least compute capability, where that is all that is known.
    capability_min: Option<Capability>,
    /// The layer that it belongs to.
    layer: Layer,
    /// PyTorch of that build, for the ways out.
    torch: Option<target::Torch>,
    /// Who says so.
    source: String,
}

/// What is to be said of a pin by itself.
enum Meaning {
    /// Nothing: it is none of the stack, or brings no CUDA.
    Nothing,
    /// It is judged.
    Build(Box<Build>),
    /// It is a build without CUDA.
    NoCuda(String),
    /// It cannot be told what it brings.
    Unknown(String),
}

/// Whether a pin has to do with the GPU.
pub(super) fn concerns_gpu(pin: &Pin, matrix: &Matrix) -> bool {
    !matches!(meaning(pin, matrix, ARCH), Meaning::Nothing)
}

/// What brings a PyTorch with it, where nothing says which: it is no project that needs no GPU.
pub(super) fn brings_some_torch(pin: &Pin) -> Option<String> {
    BUILT_ON_TORCH.contains(&pin.name.as_str()).then(|| {
        format!(
            "{}: {} brings a PyTorch, and nothing here says which",
            pin.place, pin.name
        )
    })
}

/// The CUDA whose libraries come along with these pins, and whether all of its libraries do.
pub(super) fn brought(pins: &[&Pin], matrix: &Matrix) -> (Vec<Version>, bool) {
    let mut runtimes = Vec::new();
    let mut all = false;
    for pin in pins {
        if let Meaning::Build(build) = meaning(pin, matrix, ARCH) {
            all |= build.layer == Layer::Framework;
            runtimes.push(build.cuda);
        }
    }
    (runtimes, all)
}

/// Judges the pins of one file. Of several pins of one package (for several systems, or to choose from) one that runs is
/// enough for the file to run; that another one does not is a warning.
pub(super) fn judge(
    pins: &[&Pin],
    machine: &Machine,
    matrix: &Matrix,
    unknown: &mut Vec<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut names: Vec<&str> = pins.iter().map(|pin| pin.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let mut of_name = Vec::new();
        for pin in pins.iter().filter(|pin| pin.name == name) {
            let applies = installed::applies(pin, machine);
            if applies == Some(false) {
                continue;
            }
            let Some(mut judged) = of_pin(pin, machine, matrix) else {
                continue;
            };
            if applies.is_none() {
                judged = installed::hangs_on_marker(pin, judged);
            }
            of_name.push(judged);
        }
        of_name.sort_by_key(|judged| (judged.worst(), !judged.not_told.is_empty()));
        let mut of_name = of_name.into_iter();
        if let Some(best) = of_name.next() {
            findings.extend(best.found);
            unknown.extend(best.not_told);
        }
        for mut finding in of_name.flat_map(|judged| judged.found) {
            finding.severity = finding.severity.min(Severity::Warning);
            finding = finding.evidence(
                "another pin of it",
                "does better: which one counts is the installer's choice",
                name,
            );
            findings.push(finding);
        }
    }
    findings
}

/// What came of one pin.
#[derive(Default)]
struct Judged {
    found: Vec<Finding>,
    not_told: Vec<String>,
}

impl Judged {
    fn worst(&self) -> Option<Severity> {
        self.found.iter().map(|finding| finding.severity).max()
    }

    /// Nothing that is worth a warning, and all could be told.
    fn is_fine(&self) -> bool {
        self.worst() < Some(Severity::Warning) && self.not_told.is_empty()
    }

    fn fails(&self) -> bool {
        self.worst() == Some(Severity::Error)
    }
}

/// What is found of one pin; `None` where it has nothing to do with the GPU.
fn of_pin(pin: &Pin, machine: &Machine, matrix: &Matrix) -> Option<Judged> {
    if pin.version.is_none()
        && let Some(judged) = open::judge(pin, machine, matrix)
    {
        return Some(judged);
    }
    of_version(pin, machine, matrix)
}

fn of_version(pin: &Pin, machine: &Machine, matrix: &Matrix) -> Option<Judged> {
    let mut judged = Judged::default();
    match meaning(pin, matrix, arch_of(machine)) {
        Meaning::Nothing => return None,
        Meaning::Build(build) => {
            judged.found = one(pin, &build, machine, matrix, &mut judged.not_told);
        }
        Meaning::NoCuda(shown) => judged.found = no_cuda(pin, &shown, machine),
        Meaning::Unknown(why) => judged.not_told.push(format!("{}: {why}", pin.place)),
    }
    Some(judged)
}

fn arch_of(machine: &Machine) -> &str {
    machine.arch.as_deref().unwrap_or(ARCH)
}

fn meaning(pin: &Pin, matrix: &Matrix, arch: &str) -> Meaning {
    match pin.name.as_str() {
        "torch" => torch(pin, matrix, arch),
        "pytorch" | "pytorch-gpu" | "libtorch" => conda_build(pin),
        "tensorflow" | "tensorflow-gpu" => tensorflow(pin, matrix, arch),
        "onnxruntime-gpu" => onnxruntime(pin, matrix, arch),
        "vllm" => vllm(pin, matrix, arch),
        "jax" => match pin.extras.iter().find_map(|extra| jax_extra(extra)) {
            Some(major) => jax(pin, major, matrix),
            None => Meaning::Nothing,
        },
        name => match name
            .strip_prefix("jax-cuda")
            .and_then(|rest| rest.strip_suffix("-plugin"))
        {
            Some(major) => major
                .parse()
                .map_or(Meaning::Nothing, |major| jax(pin, major, matrix)),
            None => by_name(pin),
        },
    }
}

/// `cuda12`, `cuda12-pip`, `cuda13-local`.
fn jax_extra(extra: &str) -> Option<u32> {
    let rest = extra.strip_prefix("cuda")?;
    rest.split('-').next()?.parse().ok()
}

fn framework(shown: String, cuda: Version, code: Option<CodeTargets>, source: &str) -> Build {
    Build {
        wheel: None,
        shown,
        cuda,
        code,
        capability_min: None,
        layer: Layer::Framework,
        torch: None,
        source: source.to_owned(),
    }
}

fn open(pin: &Pin, what: &str) -> Meaning {
    Meaning::Unknown(format!(
        "{} has no version (`{}==...`), so which {what} comes cannot be told",
        pin.name, pin.name
    ))
}

fn no_row(pin: &Pin, version: &Version) -> Meaning {
    Meaning::Unknown(format!("{} {version} is not in the matrix", pin.name))
}

fn torch(pin: &Pin, matrix: &Matrix, arch: &str) -> Meaning {
    let wheel_machine = WheelMachine::parse(arch);
    let tag = pin.local.as_ref().or(pin.index.as_ref());
    let Some(version) = &pin.version else {
        return open(pin, "CUDA");
    };
    let Some(release) = matrix.torch_release(version) else {
        return match tag.and_then(|tag| cuda_of_torch_tag(tag)) {
            Some(_) | None => no_row(pin, version),
        };
    };
    let cuda = match tag {
        Some(tag) => match cuda_of_torch_tag(tag) {
            Some(cuda) if release.cudas.contains(&cuda) => cuda,
            // The index that holds no such build leaves it to the others.
            Some(_) if pin.local.is_none() => release.cuda.clone(),
            Some(cuda) => {
                return Meaning::Unknown(format!(
                    "the matrix knows no torch {version}+{}",
                    torch_tag(&cuda)
                ));
            }
            None if pin.local.is_some() || tag == "cpu" => {
                return Meaning::NoCuda(format!("torch {version}+{tag}"));
            }
            None => release.cuda.clone(),
        },
        None if wheel_machine == Some(WheelMachine::Aarch64) && !release.aarch64_cuda => {
            return Meaning::NoCuda(format!(
                "torch {} for aarch64, as on PyPI,",
                release.version
            ));
        }
        None => release.cuda.clone(),
    };
    let archs = matrix.torch_archs(&release.version, &cuda);
    let shown = format!("torch {}+{}", release.version, torch_tag(&cuda));
    let asked = target::Torch {
        version: release.version.clone(),
        build: Some(target::TorchBuild::Cuda(cuda.clone())),
    };
    let source = archs.map_or(&release.source, |row| &row.source);
    let code = archs.and_then(|row| row.code(wheel_machine?).cloned());
    let mut build = framework(shown, cuda, code, source);
    build.torch = Some(asked);
    build.wheel = Some(("torch", release.version.clone()));
    Meaning::Build(Box::new(build))
}

/// PyTorch of conda: which CUDA it is built for stands in its build, `cuda126_...`, `py3.12_cuda12.4_...`. Its device code
/// is not that of the wheels, and no table has it.
fn conda_build(pin: &Pin) -> Meaning {
    let Some(build) = &pin.build else {
        return Meaning::Nothing;
    };
    let Some(at) = build.find("cuda") else {
        let is_cpu = build.contains("cpu");
        let version = pin.version.as_ref().map_or("", Version::as_str);
        return if is_cpu {
            Meaning::NoCuda(format!("{} {version} ({build})", pin.name))
        } else {
            Meaning::Nothing
        };
    };
    let rest = build.get(at + 4..).unwrap_or_default();
    let rest = rest.trim_start_matches('_');
    let word = rest.split('_').next().unwrap_or_default();
    let cuda = if word.contains('.') {
        Version::parse(word)
    } else {
        cuda_of_torch_tag(&format!("cu{word}"))
    };
    match cuda {
        Some(cuda) => {
            let version = pin.version.as_ref().map_or("", Version::as_str);
            Meaning::Build(Box::new(framework(
                format!("{} {version} ({build})", pin.name),
                cuda,
                None,
                "the build of the conda package",
            )))
        }
        None => Meaning::Nothing,
    }
}

fn tensorflow(pin: &Pin, matrix: &Matrix, arch: &str) -> Meaning {
    let Some(version) = &pin.version else {
        return open(pin, "CUDA");
    };
    let Some(row) = matrix.tensorflow_release(version) else {
        return no_row(pin, version);
    };
    if arch != ARCH {
        return Meaning::Unknown(format!(
            "whether tensorflow {version} for {arch} is built with CUDA is not known"
        ));
    }
    let shown = format!("tensorflow {version} (CUDA {})", row.cuda);
    let mut build = framework(shown, row.cuda.clone(), row.archs.clone(), &row.source);
    build.wheel = Some(("tensorflow", version.clone()));
    Meaning::Build(Box::new(build))
}

fn onnxruntime(pin: &Pin, matrix: &Matrix, arch: &str) -> Meaning {
    let Some(version) = &pin.version else {
        return open(pin, "CUDA");
    };
    let Some(row) = matrix.onnxruntime(version) else {
        return no_row(pin, version);
    };
    let shown = format!("onnxruntime-gpu {version} (CUDA {})", row.cuda);
    let code = row.archs.clone().filter(|_| arch == ARCH);
    let mut build = framework(shown, row.cuda.clone(), code, &row.source);
    build.wheel = Some(("onnxruntime-gpu", version.clone()));
    Meaning::Build(Box::new(build))
}

fn vllm(pin: &Pin, matrix: &Matrix, arch: &str) -> Meaning {
    let Some(version) = &pin.version else {
        return open(pin, "CUDA");
    };
    let Some(row) = matrix.vllm_release(version) else {
        return no_row(pin, version);
    };
    let archs = matrix.torch_archs(&row.torch, &row.cuda);
    let code = archs.and_then(|row| row.code(WheelMachine::parse(arch)?).cloned());
    let shown = format!("vllm {version} (torch {}, CUDA {})", row.torch, row.cuda);
    let mut build = framework(shown, row.cuda.clone(), code, &row.source);
    build.capability_min = row.capability_min;
    build.wheel = Some(("vllm", row.version.clone()));
    Meaning::Build(Box::new(build))
}

fn jax(pin: &Pin, major: u32, matrix: &Matrix) -> Meaning {
    let Some(version) = &pin.version else {
        return open(pin, "CUDA");
    };
    let (Some(row), Some(cuda)) = (
        matrix.jax_plugin(version, major),
        Version::parse(&major.to_string()),
    ) else {
        return no_row(pin, version);
    };
    let mut build = framework(
        format!("{} {version} (CUDA {major})", row.plugin),
        cuda,
        None,
        &row.source,
    );
    build.capability_min = Some(row.capability_min);
    build.wheel = match major {
        12 => Some(("jax-cuda12-plugin", row.version.clone())),
        13 => Some(("jax-cuda13-plugin", row.version.clone())),
        _ => None,
    };
    Meaning::Build(Box::new(build))
}

/// Packages that say in their name which CUDA they are for, and NVIDIA's own runtime.
fn by_name(pin: &Pin) -> Meaning {
    // The version of these is that of CUDA.
    const OF_CUDA: &[&str] = &[
        "nvidia-cuda-runtime",
        "nvidia-cuda-runtime-cu11",
        "nvidia-cuda-runtime-cu12",
        "cuda-toolkit",
        "cuda-cudart",
        "cuda-version",
        "cuda-runtime",
        "cudatoolkit",
        "pytorch-cuda",
    ];
    let name = pin.name.as_str();
    let version = pin.version.as_ref();
    let build = |cuda: Option<Version>, layer: Layer| match cuda {
        Some(cuda) => {
            let mut build = framework(
                match version {
                    Some(version) => format!("{name} {version}"),
                    None => name.to_owned(),
                },
                cuda,
                None,
                "the name and version of the package",
            );
            build.layer = layer;
            Meaning::Build(Box::new(build))
        }
        None => Meaning::Nothing,
    };
    if OF_CUDA.contains(&name) {
        let cuda = version.and_then(|v| Version::parse(&v.major_minor()));
        // `nvidia-cuda-runtime-cu12` alone is some 12.x.
        let by_suffix = || Version::parse(name.rsplit_once("-cu")?.1);
        let cuda = cuda.or_else(by_suffix);
        return build(cuda, Layer::Runtime);
    }
    // cupy-cuda12x, cupy-cuda118.
    if let Some(word) = name.strip_prefix("cupy-cuda") {
        let cuda = match word.strip_suffix('x') {
            Some(major) => Version::parse(major),
            None => cuda_of_torch_tag(&format!("cu{word}")),
        };
        return build(cuda, Layer::Framework);
    }
    Meaning::Nothing
}

fn no_cuda(pin: &Pin, shown: &str, machine: &Machine) -> Vec<Finding> {
    if machine.gpus.is_empty() {
        return Vec::new();
    }
    vec![
        Finding::new(
            "framework-cpu-build",
            Layer::Framework,
            Severity::Warning,
            format!("{shown} has no CUDA and will not use the GPUs ({})", pin.place),
        )
        .subject(&pin.place)
        .evidence("pinned", shown, &pin.place)
        .fix(Fix::at(
            Layer::Framework,
            "pin a build for CUDA: `gpudoctor matrix plan` names the newest one that runs on all targets",
        )),
    ]
}

fn one(
    pin: &Pin,
    build: &Build,
    machine: &Machine,
    matrix: &Matrix,
    unknown: &mut Vec<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if machine.no_driver {
        findings.push(
            Finding::new(
                "driver-not-installed",
                Layer::Driver,
                Severity::Warning,
                format!(
                    "{} is built for CUDA, and {} has no driver",
                    build.shown, machine.name
                ),
            )
            .subject(&pin.place)
            .evidence("pinned", &build.shown, &pin.place)
            .fix(Fix::at(
                Layer::Driver,
                "install NVIDIA's driver on the target",
            )),
        );
        return findings;
    }
    let not_installed = installed::wheel(pin, build, machine, matrix, unknown);
    if !not_installed.is_empty() {
        return not_installed;
    }
    let level = machine.driver.as_ref().and_then(|driver| {
        let (low, high) = matrix.cuda_level_range(driver);
        let runs = |level: u32| matrix.runtime_accepts(&build.cuda, level);
        match (low, high) {
            (Some(low), Some(high)) if runs(low) != runs(high) => {
                unknown.push(format!(
                    "{}: driver {driver} is in no table, so whether it runs CUDA {} is not known",
                    pin.place, build.cuda
                ));
                None
            }
            (Some(low), _) => Some(low),
            (None, Some(_)) => Some(0),
            (None, None) => None,
        }
    });
    if let (Some(driver), Some(level)) = (&machine.driver, level)
        && !matrix.runtime_accepts(&build.cuda, level)
    {
        findings.push(too_old(pin, build, driver, machine, matrix));
        return findings;
    }
    if let (Some(driver), Some(level)) = (&machine.driver, level) {
        findings.extend(by_minor_version(
            &pin.place,
            &build.cuda,
            driver,
            level,
            machine,
        ));
    }
    for gpu in &machine.gpus {
        let (major, minor) = gpu.capability;
        let fit = match (&build.code, build.capability_min) {
            (_, Some(least)) if gpu.capability < least => CodeFit::No,
            (Some(code), _) => matrix.code_fit(code, gpu.capability, &build.cuda, level),
            (None, Some(_)) => continue,
            (None, None) => {
                // Only of PyTorch a missing list of code is a gap; of the others none is kept.
                if build.torch.is_some() {
                    unknown.push(format!(
                        "{}: the matrix has no list of the code in {}",
                        pin.place, build.shown
                    ));
                }
                break;
            }
        };
        let (id, layer, title) = match fit {
            CodeFit::Cubin(_) | CodeFit::Ptx(_) => continue,
            CodeFit::Unknown(why) => {
                unknown.push(format!(
                    "{}: whether {} runs on {} is not known: {why}",
                    pin.place, build.shown, gpu.name
                ));
                continue;
            }
            CodeFit::PtxTooNew(isa) => (
                "framework-ptx-too-new",
                Layer::Driver,
                format!(
                    "{} has only PTX {isa} for {} (sm_{major}{minor}), newer than driver {} can compile",
                    build.shown,
                    gpu.name,
                    machine.driver.as_ref().map_or("", Version::as_str)
                ),
            ),
            CodeFit::No => {
                let least = build.capability_min.filter(|least| gpu.capability < *least);
                let why = match least {
                    Some((a, b)) => {
                        format!("needs compute capability {a}.{b}, and does not run on")
                    }
                    None => "has no code for".to_owned(),
                };
                (
                    "framework-lacks-gpu-code",
                    Layer::Framework,
                    format!("{} {why} {} (sm_{major}{minor})", build.shown, gpu.name),
                )
            }
        };
        let has = build
            .code
            .as_ref()
            .map_or_else(String::new, |code| code.words().join(" "));
        let mut finding = Finding::new(
            id,
            layer,
            Severity::Error,
            format!("{title} ({})", pin.place),
        )
        .subject(format!("{} on {}", pin.place, gpu.name))
        .complaining(Layer::Framework)
        .component(&pin.name)
        .evidence("pinned", &build.shown, &pin.place)
        .source(&build.source);
        if !has.is_empty() {
            finding = finding.evidence("device code", has, &build.shown);
        }
        findings.push(with_ways(finding, build, machine, matrix));
    }
    findings
}

fn too_old(
    pin: &Pin,
    build: &Build,
    driver: &Version,
    machine: &Machine,
    matrix: &Matrix,
) -> Finding {
    let minimum = matrix.minimum_driver(&build.cuda);
    let wanted = minimum
        .as_ref()
        .and_then(|m| m.version.as_ref())
        .map_or("a newer one".to_owned(), |v| format!("{v} or newer"));
    let mut finding = Finding::new(
        "driver-too-old",
        Layer::Driver,
        Severity::Error,
        format!(
            "driver {driver} is too old for {} ({}), which needs {wanted}",
            build.shown, pin.place
        ),
    )
    .subject(&pin.place)
    .complaining(Layer::Framework)
    .component("libcuda.so.1")
    .evidence(
        "pinned",
        format!("{}, CUDA {}", build.shown, build.cuda),
        &pin.place,
    )
    .evidence("driver", driver.to_string(), &machine.name)
    .source(&build.source);
    if let Some(minimum) = minimum {
        finding = finding.source(minimum.source);
    }
    with_ways(finding, build, machine, matrix)
}

/// The ways out that `matrix can` tells for the same driver, GPUs and build.
fn with_ways(mut finding: Finding, build: &Build, machine: &Machine, matrix: &Matrix) -> Finding {
    let asked = target::Target {
        driver: machine.driver.clone().map(target::Driver::Version),
        gpus: machine.gpus.iter().map(|gpu| gpu.asked.clone()).collect(),
        cuda: build.torch.is_none().then(|| build.cuda.clone()),
        torch: build.torch.clone(),
        ..target::Target::default()
    };
    for way in machine.advice.ways(matrix, &asked) {
        let mut fix = Fix::at(way.layer, way.summary).cost(way.cost);
        if let Some(why) = way.why_second {
            fix = fix.second(why);
        }
        finding = finding.fix(fix);
    }
    if finding.fixes.is_empty() {
        finding = finding.fix(Fix::at(
            Layer::Framework,
            "pin a release that runs there: `gpudoctor matrix plan` names the newest one",
        ));
    }
    finding
}
