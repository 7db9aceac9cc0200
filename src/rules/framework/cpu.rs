//! Builds without CUDA where a GPU works, and builds for servers on a Jetson.

use super::{BUILT_ON_TORCH, Ctx, GpuHere, Outcome, finding, instead, shown, unread};
use crate::facts::{Framework, Layer, Reading};
use crate::finding::{Fix, Severity};
use crate::matrix::Target;
use crate::read::requirement::Requirement;
use crate::rules::expected::{Expectation, gpu_expected};
use crate::rules::stack::in_words;
use crate::version::Version;

/// Frameworks of which a build for the CPU alone is told.
const JUDGED: &[&str] = &["torch", "tensorflow", "jaxlib", "llama.cpp", "ollama"];
/// Of these nothing in an environment says that a GPU is wanted: many take them for the processor.
const BESIDE: &[&str] = &["llama.cpp", "ollama"];
/// Parts of torch that are of no use without a GPU.
const ON_TORCH: &[&str] = &[
    "vllm",
    "xformers",
    "flash-attn",
    "flash-attn-3",
    "bitsandbytes",
    "tensorrt-llm",
];
/// NVIDIA's wheels that of the frameworks torch alone brings along, by the start of their names: left behind, they tell
/// of a torch for CUDA that was replaced.
const OF_TORCH: &[&str] = &["nvidia-cusparselt", "nvidia-nvtx", "nvidia-cufile"];
/// What uses the GPU by itself, whatever the frameworks beside it do, by the start of the name of its distribution.
const BY_ITSELF: &[&str] = &[
    "cuda-bindings",
    "cuda-core",
    "cuda-python",
    "cudf",
    "cupy",
    "ctranslate2",
    "numba-cuda",
    "onnxruntime-gpu",
    "pycuda",
    "tensorrt",
];

/// Whether a framework says of itself that it has no GPU build at all: neither CUDA nor `ROCm`.
fn is_for_cpu(ctx: &Ctx<'_>, framework: &Framework) -> bool {
    match framework.name.as_str() {
        // JAX has its CUDA part in distributions of their own; before those, jaxlib named it in its version.
        "jaxlib" => {
            let named = framework
                .version
                .value()
                .is_some_and(|v| v.contains("+cuda"));
            // Conda's jaxlib has CUDA in it, or not: its records do not tell.
            !named
                && framework.installer.value().map(String::as_str) != Some("conda")
                && ctx.framework("jax-cuda-plugin").is_none()
                && ctx.framework("jax-cuda-pjrt").is_none()
        }
        // Its library is there without a back end for a GPU as well.
        "llama.cpp" => framework.cuda.is_absent(),
        // Its own list says so where it is built for GPUs of another maker.
        "torch" if for_other_gpus(framework).is_some() => !has_gpus_of_others(ctx),
        _ => {
            framework.cuda.is_absent() && framework.hip.is_absent() && framework.library.is_absent()
                || framework
                    .distribution
                    .value()
                    .is_some_and(|name| name == "tensorflow-cpu")
        }
    }
}

/// What a torch is built for where that is not CUDA: `ROCm 6.4`, `Intel GPUs`.
fn for_other_gpus(framework: &Framework) -> Option<String> {
    if let Some(hip) = framework.hip.value() {
        return Some(format!("ROCm {hip}"));
    }
    let is_named = framework
        .version
        .value()
        .is_some_and(|version| version.contains("+xpu"));
    (framework.xpu.is_present() || is_named).then(|| "Intel GPUs".to_owned())
}

/// Whether a GPU of another maker is here, so that a build for it may be meant.
fn has_gpus_of_others(ctx: &Ctx<'_>) -> bool {
    const MAKERS: [u16; 2] = [0x1002, 0x8086];
    let is_display = |class: u32| class >> 16 == 0x03 || class >> 8 == 0x1200;
    match &ctx.facts.hardware.pci {
        Reading::Present { value, .. } => value
            .iter()
            .any(|device| MAKERS.contains(&device.vendor) && is_display(device.class)),
        // What was not seen may be there.
        _ => true,
    }
}

/// What says that a GPU is wanted, and how surely it is wanted of this very framework.
struct Wanted {
    what: String,
    source: String,
    /// Whether it belongs to the framework; else something in its environment, or in how it is started, is for a GPU.
    own: bool,
}

impl Wanted {
    fn new(what: impl Into<String>, source: impl Into<String>, own: bool) -> Self {
        Self {
            what: what.into(),
            source: source.into(),
            own,
        }
    }
}

/// What wants the GPU of this framework: a part of it that is of no use without one, or a requirement of its extra for CUDA.
fn wanted_of(ctx: &Ctx<'_>, framework: &Framework) -> Option<Wanted> {
    let distributions = ctx.facts.python.distributions.items();
    if framework.name == "torch" {
        let part = ctx.frameworks().iter().find(|f| {
            ON_TORCH.contains(&f.name.as_str())
                || BUILT_ON_TORCH.contains(&f.name.as_str())
                    && f.version.value().is_some_and(|v| v.contains("+cu"))
        });
        if let Some(part) = part {
            let what = format!("{}, which is of no use without a GPU", shown(part));
            return Some(Wanted::new(what, part.site.clone(), true));
        }
        let left = distributions.iter().find(|d| {
            OF_TORCH.iter().any(|start| d.name.starts_with(start)) && !is_required(ctx, &d.name)
        });
        if let Some(wheel) = left {
            let what = format!("{} {}, left of a torch for CUDA", wheel.name, wheel.version);
            return Some(Wanted::new(what, wheel.metadata.clone(), true));
        }
    }
    let name = match framework.name.as_str() {
        "jaxlib" => "jax",
        name => name,
    };
    distributions.iter().find_map(|dist| {
        let line = dist.requires.iter().find(|line| {
            let asked = Requirement::parse(line).filter(|asked| asked.name == name);
            // An extra of its own may not have been asked for.
            !line.contains("extra ==")
                && asked.is_some_and(|a| a.extras.iter().any(|e| e.contains("cuda")))
        })?;
        let what = format!("{} {} requires {line}", dist.name, dist.version);
        Some(Wanted::new(what, dist.metadata.clone(), true))
    })
}

/// Whether a distribution is required by another one.
fn is_required(ctx: &Ctx<'_>, name: &str) -> bool {
    let mut all = ctx.facts.python.distributions.items().iter();
    let asks = |line: &String| Requirement::parse(line).is_some_and(|asked| asked.name == name);
    all.any(|dist| dist.requires.iter().any(asks))
}

/// What the GPU is there for where it is not for a framework: Numba or `CTranslate2` use it by themselves.
fn used_by_another(ctx: &Ctx<'_>) -> bool {
    let by_itself = |name: &str| BY_ITSELF.iter().any(|start| name.starts_with(start));
    let of_frameworks = ctx
        .frameworks()
        .iter()
        .any(|f| by_itself(&f.name) || f.distribution.value().is_some_and(|name| by_itself(name)));
    let mut distributions = ctx.facts.python.distributions.items().iter();
    of_frameworks || distributions.any(|dist| by_itself(&dist.name))
}

/// What in this environment, or in how it is started, is for a GPU; `None` where a build for the CPU may be meant.
fn gpu_meant(ctx: &Ctx<'_>) -> Option<Wanted> {
    if used_by_another(ctx) {
        return None;
    }
    if ctx.expect_gpu {
        return Some(Wanted::new("asks for a GPU", "--expect-gpu", true));
    }
    let wheel = ctx.facts.python.distributions.items().iter().find(|d| {
        d.name.starts_with("nvidia-") && !matches!(d.name.as_str(), "nvidia-ml-py" | "nvidia-smi")
    });
    if let Some(wheel) = wheel {
        let what = format!("{} {} is installed", wheel.name, wheel.version);
        return Some(Wanted::new(what, wheel.metadata.clone(), false));
    }
    if let Some(value) = ctx
        .env("CUDA_VISIBLE_DEVICES")
        .filter(|v| !v.trim().is_empty() && v.trim() != "-1")
    {
        let what = format!("CUDA_VISIBLE_DEVICES={value}");
        return Some(Wanted::new(what, "environment", false));
    }
    if ctx.in_container()
        && let Expectation::Yes(why) = gpu_expected(ctx)
    {
        let what = "a container that was given a GPU";
        return Some(Wanted::new(what, why, false));
    }
    None
}

/// How bad a build without CUDA is. The processor may be meant: an error it is only where the framework's own parts want
/// the GPU.
fn severity_of(ctx: &Ctx<'_>, framework: &Framework, wanted: Option<&Wanted>) -> Severity {
    if BESIDE.contains(&framework.name.as_str()) {
        return if ctx.expect_gpu && wanted.is_some() {
            Severity::Error
        } else {
            Severity::Warning
        };
    }
    match wanted {
        Some(wanted) if wanted.own => Severity::Error,
        Some(_) => Severity::Warning,
        // A build for other GPUs is not one for the processor.
        None if framework.name == "torch" && for_other_gpus(framework).is_some() => {
            Severity::Warning
        }
        None => Severity::Note,
    }
}

pub(super) fn framework_cpu_build(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    // On a Jetson another rule says which build it takes; without a GPU that works there is nothing to miss.
    if ctx.on_tegra() || !ctx.gpu_usable() {
        return Outcome::Clean;
    }
    let gpus = ctx.gpus_here();
    let others_use_cuda = ctx
        .frameworks()
        .iter()
        .any(|f| JUDGED.contains(&f.name.as_str()) && !is_for_cpu(ctx, f) && f.cuda.is_present());
    let meant = gpu_meant(ctx);
    let meant = meant.as_ref();
    let cpu: Vec<&Framework> = ctx
        .frameworks()
        .iter()
        .filter(|f| JUDGED.contains(&f.name.as_str()) && is_for_cpu(ctx, f))
        .collect();
    // Beside a framework that uses the GPU one for the CPU is a choice.
    if others_use_cuda {
        return Outcome::Clean;
    }
    Outcome::found(cpu.into_iter().map(|framework| {
        let mut names: Vec<String> = gpus.iter().map(|gpu| gpu.name.clone()).collect();
        names.dedup();
        let here = if names.is_empty() { "a GPU".to_owned() } else { in_words(&names) };
        let own = wanted_of(ctx, framework);
        let wanted = own.as_ref().or(meant);
        let severity = severity_of(ctx, framework, wanted);
        let built = match for_other_gpus(framework).filter(|_| framework.name == "torch") {
            Some(other) => format!("a build for {other}"),
            None => "a build without CUDA".to_owned(),
        };
        let title = format!("{} is {built}, and {here} works here", shown(framework));
        let mut finding = finding("framework-cpu-build", framework, severity, title)
            .detail(format!("It computes on the processor whatever the driver can do{}. The usual causes are an index of builds for the CPU in a requirements file or install script, and a resolver that replaced the build for CUDA.",
                if framework.name == "torch" { ": torch says `Torch not compiled with CUDA enabled`" } else { "" }));
        // JAX has its CUDA in a plugin: what it was built for is asked of that.
        finding = if framework.name == "jaxlib" {
            finding.evidence("JAX's plugin for CUDA", "absent", framework.site.clone())
        } else {
            finding.reading("CUDA that it was built for", &framework.cuda)
        };
        if let Some(wanted) = wanted {
            finding = finding.evidence("a GPU is wanted", wanted.what.clone(), wanted.source.clone());
        }
        for (count, gpu) in counted(&gpus) {
            let name = if count == 1 { gpu.name.clone() } else { format!("{count} x {}", gpu.name) };
            finding = finding.evidence(name, format!("compute capability {}.{}", gpu.capability.0, gpu.capability.1), gpu.source.clone());
        }
        match framework.name.as_str() {
            "torch" => match instead::torch_build(ctx, framework, &gpus) {
                Some(build) => {
                    let source = build.release.source.clone();
                    let fix = instead::torch_fix(ctx, framework, &build, "built for CUDA, with code for this GPU and this driver");
                    finding.fix(fix).source(source)
                }
                None => finding.fix(Fix::at(Layer::Framework, "install a build of torch for CUDA: the matrix knows none for this GPU and this driver")),
            },
            "tensorflow" => {
                let version = framework.version.value().map_or_else(String::new, |v| format!("=={v}"));
                let what = format!("tensorflow[and-cuda]{version}");
                let fix = Fix::at(Layer::Framework, "install TensorFlow's build for CUDA with its libraries");
                finding.fix(instead::install(ctx, fix, framework, &[&what]))
            }
            "llama.cpp" => finding.fix(llama_fix(framework)),
            "ollama" => finding.fix(
                Fix::at(Layer::Framework, "install Ollama with its back ends for CUDA: its own archive has them, distributions have a package for them (ollama-cuda)")
                    .verify("ollama ps"),
            ),
            _ => {
                let what = jax_extra(ctx, framework);
                let fix = Fix::at(Layer::Framework, format!("install JAX's plugin for CUDA: {what}"));
                finding.fix(instead::install(ctx, fix, framework, &[&what]))
            }
        }
    }))
}

/// Each kind of GPU once, with how many there are of it.
fn counted(gpus: &[GpuHere]) -> Vec<(usize, &GpuHere)> {
    let mut kinds: Vec<(usize, &GpuHere)> = Vec::new();
    for gpu in gpus {
        let same = |kind: &&mut (usize, &GpuHere)| {
            kind.1.name == gpu.name && kind.1.capability == gpu.capability
        };
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.0 += 1,
            None => kinds.push((1, gpu)),
        }
    }
    kinds
}

/// llama.cpp is compiled where it is installed; its wheels for CUDA are not on `PyPI`.
fn llama_fix(framework: &Framework) -> Fix {
    if framework.distribution.is_absent() {
        return Fix::at(
            Layer::Framework,
            "build llama.cpp with GGML_CUDA=ON, or take a build of it for CUDA",
        )
        .cost("rebuild")
        .verify("llama-server --list-devices");
    }
    let version = framework.version.value().map_or("", String::as_str);
    let version = version.split('+').next().unwrap_or(version);
    let what = crate::finding::shell_line(&[&format!("llama-cpp-python=={version}")]);
    Fix::at(
        Layer::Framework,
        "build it again with CUDA: its wheel of the index is compiled for the processor, and a compiler of CUDA is needed here",
    )
    .line(format!(
        "CMAKE_ARGS=\"-DGGML_CUDA=on\" pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python {what}"
    ))
    .cost("rebuild")
    .verify("python -c \"import llama_cpp; print(llama_cpp.llama_supports_gpu_offload())\"")
}

/// `jax[cuda13]==0.8.0`: the newest plugin that this driver runs, at the version of the jaxlib that is here.
fn jax_extra(ctx: &Ctx<'_>, jaxlib: &Framework) -> String {
    let version = jaxlib.version.value().and_then(|v| Version::parse(v));
    let level = ctx.driver_level().map(|(level, _)| level);
    let runs_13 = level.is_some_and(|level| {
        Version::parse("13.0").is_some_and(|cuda| ctx.matrix.runtime_accepts(&cuda, level))
    });
    let has_13 = version
        .as_ref()
        .is_some_and(|v| ctx.matrix.jax_plugin(v, 13).is_some());
    let extra = if runs_13 && has_13 {
        "cuda13"
    } else {
        "cuda12"
    };
    let pin = version.map_or_else(String::new, |v| format!("=={v}"));
    format!("jax[{extra}]{pin}")
}

/// The Python that NVIDIA's wheels for a series of Jetson Linux are for: that of its Ubuntu.
fn python_of_l4t(major: u32) -> Option<&'static str> {
    match major {
        32 => Some("3.6"),
        34 | 35 => Some("3.8"),
        36 => Some("3.10"),
        _ => None,
    }
}

/// torch for another kind of machine on a Jetson: a build without CUDA, or one for servers without code for its GPU.
pub(super) fn framework_not_for_jetson(ctx: &Ctx<'_>) -> Outcome {
    let Some(tegra) = ctx.facts.system.tegra.value() else {
        return match &ctx.facts.system.tegra {
            Reading::Unreadable { reason } => {
                Outcome::unknown(format!("whether this is a Jetson: {reason}"))
            }
            _ => Outcome::Clean,
        };
    };
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let Some(torch) = ctx.framework("torch") else {
        return Outcome::Clean;
    };
    let release = tegra.l4t.as_ref().and_then(|l4t| ctx.matrix.jetson(l4t));
    let gpus = ctx.gpus_here();
    let why = if is_for_cpu(ctx, torch) {
        "is a build without CUDA".to_owned()
    } else {
        // From the release on that runs builds for servers, those are right.
        if release.is_none_or(|row| row.sbsa) {
            return Outcome::Clean;
        }
        let Some(code) = torch
            .code
            .value()
            .filter(|code| code.complete && !code.elf.is_empty())
        else {
            return Outcome::Clean;
        };
        let own = |gpu: &GpuHere| {
            let targets = code.elf.iter().filter_map(|target| Target::parse(target));
            targets
                .into_iter()
                .any(|target| target.capability == gpu.capability)
        };
        if gpus.is_empty() || gpus.iter().any(own) || !code.ptx.is_empty() {
            return Outcome::Clean;
        }
        let has = code.elf.join(" ");
        format!("is a build for arm64 servers: it has code for {has}")
    };
    let place = match (&tegra.l4t, release) {
        (Some(l4t), Some(row)) => format!("JetPack {} (L4T {l4t}, CUDA {})", row.jetpack, row.cuda),
        (Some(l4t), None) => format!("this JetPack (L4T {l4t})"),
        (None, _) => "this JetPack".to_owned(),
    };
    let board = if tegra.model.is_empty() {
        "this Jetson"
    } else {
        tegra.model.as_str()
    };
    let mut finding = finding("framework-not-for-jetson", torch, Severity::Error, format!("{} {why}, not the one for {place} on {board}", shown(torch)))
        .detail("A wheel for aarch64 from the general index is built for servers or for the processor alone; the GPU of a Jetson is reached by what NVIDIA builds for its JetPack. No driver is missing: it comes with JetPack.")
        .reading("CUDA that it was built for", &torch.cuda)
        .evidence("board", board, "/proc/device-tree/model");
    if let Some(l4t) = &tegra.l4t {
        finding = finding.evidence(
            "Jetson Linux",
            format!("L4T {l4t}"),
            "/etc/nv_tegra_release",
        );
    }
    if let Some(row) = release {
        finding = finding.source(row.source.clone());
    }
    let python = tegra
        .l4t
        .as_ref()
        .and_then(|l4t| python_of_l4t(l4t.major()));
    let python = python.map_or_else(String::new, |python| format!(", for its Python {python}"));
    let series = tegra
        .l4t
        .as_ref()
        .map_or_else(String::new, |l4t| format!(" of L4T R{}", l4t.major_minor()));
    Outcome::found([finding
        .fix(
            instead::command(ctx, Fix::at(Layer::Framework, format!("take this torch out, then install the wheel that NVIDIA builds for {place}{python}: \"PyTorch for Jetson\" lists it by JetPack release")), &["pip", "uninstall", "torch"])
                .verify("python3 -c \"import torch; print(torch.version.cuda, torch.cuda.is_available())\""),
        )
        .fix(Fix::at(Layer::Framework, format!("or run it in an l4t-pytorch container{series}")).second("the environment here stays as it is"))
        .source("Installing PyTorch for Jetson Platform, NVIDIA")])
}
