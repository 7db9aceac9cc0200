//! What a pin means for the GPU stack: which CUDA a package of that release and build brings, and for which GPUs it has code.

use super::ARCH;
use crate::facts::Layer;
use crate::matrix::{
    Capability, CodeTargets, Machine as WheelMachine, Matrix, cuda_of_torch_tag, torch_tag,
};
use crate::preflight::manifest::Pin;
use crate::requirement::Bounds;
use crate::target;
use crate::version::Version;

/// What a pin means for the GPU stack.
pub(super) struct Build {
    /// The package and its release, by which the matrix knows its wheels.
    pub(super) wheel: Option<(&'static str, Version)>,
    /// `torch 2.7.1+cu126`.
    pub(super) shown: String,
    /// The CUDA whose runtime it brings or needs; a major version alone where no more is known.
    pub(super) cuda: Version,
    /// Its device code, where a table has it.
    pub(super) code: Option<CodeTargets>,
    /// The Pythons that the release asks for, where a table says.
    pub(super) pythons: Option<Bounds>,
    /// The least compute capability, where that is all that is known.
    pub(super) capability_min: Option<Capability>,
    /// The layer that it belongs to.
    pub(super) layer: Layer,
    /// PyTorch of that build, for the ways out.
    pub(super) torch: Option<target::Torch>,
    /// Who says so.
    pub(super) source: String,
}

/// What is to be said of a pin by itself.
pub(super) enum Meaning {
    /// Nothing: it is none of the stack, or brings no CUDA.
    Nothing,
    /// It is judged.
    Build(Box<Build>),
    /// It is a build without CUDA.
    NoCuda(String),
    /// It cannot be told what it brings.
    Unknown(String),
}

/// What a pin means.
pub(super) fn meaning(pin: &Pin, matrix: &Matrix, arch: &str) -> Meaning {
    if pin.conda {
        return conda(pin, matrix);
    }
    if let Some(from) = &pin.unseen
        && BUILDS.contains(&pin.name.as_str())
    {
        return Meaning::Unknown(format!(
            "{} comes from {from}, which is not read, so which CUDA it brings cannot be told",
            pin.name
        ));
    }
    match pin.name.as_str() {
        "torch" => torch(pin, matrix, arch),
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
            None => by_name(pin, matrix),
        },
    }
}

/// Packages whose CUDA depends on where they come from.
const BUILDS: &[&str] = &["torch", "tensorflow", "onnxruntime-gpu", "vllm"];

/// Packages of conda that are built for one CUDA or another, and say which in their build. Where a file leaves the build open,
/// conda takes one that the driver runs.
const CONDA_BUILDS: &[&str] = &[
    "pytorch",
    "pytorch-gpu",
    "libtorch",
    "tensorflow",
    "tensorflow-base",
    "tensorflow-gpu",
    "jaxlib",
    "onnxruntime",
    "onnxruntime-gpu",
    "vllm",
    "cupy-core",
];

fn conda(pin: &Pin, matrix: &Matrix) -> Meaning {
    if CONDA_BUILDS.contains(&pin.name.as_str()) {
        conda_build(pin)
    } else {
        by_name(pin, matrix)
    }
}

/// `cuda12`, `cuda12-pip`, `cuda13-local`.
pub(super) fn jax_extra(extra: &str) -> Option<u32> {
    let rest = extra.strip_prefix("cuda")?;
    rest.split('-').next()?.parse().ok()
}

fn framework(shown: String, cuda: Version, code: Option<CodeTargets>, source: &str) -> Build {
    Build {
        wheel: None,
        shown,
        cuda,
        code,
        pythons: None,
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
    build.pythons = Some(release.requires_python.clone());
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
    let rest = rest.trim_start_matches(['_', '=']);
    // `cuda126*`, `cuda112py39h...`, `cuda12.4_cudnn9`; of `*cuda*` conda takes one that the driver runs.
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
    let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
    let word = word.trim_end_matches('.');
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
    build.capability_min = row.capability_min;
    build.pythons = Some(row.requires_python.clone());
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
    build.pythons.clone_from(&row.requires_python);
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
    // `+cu118` is a build of vLLM's own; an index or a torch beside it says which torch it runs with.
    let tag = pin.local.as_ref().or(pin.index.as_ref());
    let of_tag = tag.and_then(|tag| cuda_of_torch_tag(tag));
    let of_torch = of_tag.clone().filter(|cuda| {
        let release = matrix.torch_release(&row.torch);
        release.is_some_and(|release| release.cudas.contains(cuda))
    });
    let of_torch = of_torch.unwrap_or_else(|| row.cuda.clone());
    let cuda = match (&pin.local, of_tag) {
        (Some(_), Some(own)) => own,
        _ => row.cuda.clone().max(of_torch.clone()),
    };
    let archs = matrix.torch_archs(&row.torch, &of_torch);
    let code = archs.and_then(|row| row.code(WheelMachine::parse(arch)?).cloned());
    let shown = format!("vllm {version} (torch {}, CUDA {cuda})", row.torch);
    let mut build = framework(shown, cuda, code, &row.source);
    build.pythons = Some(row.requires_python.clone());
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
    build.pythons = Some(row.requires_python.clone());
    build.wheel = match major {
        12 => Some(("jax-cuda12-plugin", row.version.clone())),
        13 => Some(("jax-cuda13-plugin", row.version.clone())),
        _ => None,
    };
    Meaning::Build(Box::new(build))
}

/// Packages that say in their name which CUDA they are for, NVIDIA's own runtime, and its libraries.
fn by_name(pin: &Pin, matrix: &Matrix) -> Meaning {
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
    // On PyPI `cuda` is something else.
    if OF_CUDA.contains(&name) || name == "cuda" && pin.conda {
        let cuda = version.and_then(|v| Version::parse(&v.major_minor()));
        // `cuda-version>=12`: the least that will do.
        let least = || {
            let bounds = pin.allowed.as_ref()?;
            let mut cudas = matrix.toolkits().iter().map(|row| &row.cuda);
            let least = cudas.find(|cuda| bounds.allow(&cuda.major_minor()))?;
            Version::parse(&least.major_minor())
        };
        let cuda = cuda.or_else(least);
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
    // nvidia-cublas-cu12, nvidia-cudnn-cu13.
    if let Some(row) = matrix.wheels().iter().find(|row| row.wheel == name) {
        return build(Version::parse(&row.cuda.to_string()), Layer::Libraries);
    }
    Meaning::Nothing
}
