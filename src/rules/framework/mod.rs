//! Rules whose fault lies in the framework layer: a build that has nothing for the GPU that is here, one without CUDA,
//! parts that were built for one another's other versions. Which build to take instead is in `instead`.

mod assembler;
mod code;
mod companions;
mod cpu;
mod extensions;
mod instead;
mod parts;
mod programs;

pub(super) use code::{framework_ptx_too_new, ptx_jit_variable};
pub(crate) use companions::BUILT_ON_TORCH;
pub(super) use extensions::is_for_other_cuda;
pub(super) use parts::triton_libcuda_link_missing;

use super::{Ctx, Need, Outcome, Rule};
use crate::facts::{ConsumerKind, Framework, Layer, NOT_RECORDED, Reading};
use crate::finding::{Finding, Severity};
use crate::matrix::Capability;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "bitsandbytes-no-library",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/bitsandbytes-no-library.md"),
        check: extensions::bitsandbytes_no_library,
    },
    Rule {
        id: "deepspeed-ops-for-other-torch",
        layer: Layer::Framework,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/deepspeed-ops-for-other-torch.md"),
        check: extensions::deepspeed_ops_for_other_torch,
    },
    Rule {
        id: "framework-cpu-build",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["distribution-overwritten"],
        page: include_str!("../pages/framework-cpu-build.md"),
        check: cpu::framework_cpu_build,
    },
    Rule {
        id: "framework-for-other-cuda",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["torch-companion-mismatch", "requirement-absent"],
        page: include_str!("../pages/framework-for-other-cuda.md"),
        check: extensions::framework_for_other_cuda,
    },
    Rule {
        id: "framework-lacks-gpu-code",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["driver-too-old"],
        page: include_str!("../pages/framework-lacks-gpu-code.md"),
        check: code::framework_lacks_gpu_code,
    },
    Rule {
        id: "framework-not-for-jetson",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["driver-too-old"],
        page: include_str!("../pages/framework-not-for-jetson.md"),
        check: cpu::framework_not_for_jetson,
    },
    Rule {
        id: "jax-plugin-mismatch",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/jax-plugin-mismatch.md"),
        check: parts::jax_plugin_mismatch,
    },
    Rule {
        id: "ollama-no-back-end",
        layer: Layer::Framework,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &["driver-too-old"],
        page: include_str!("../pages/ollama-no-back-end.md"),
        check: programs::ollama_no_back_end,
    },
    Rule {
        id: "pynvml-shadows-nvml",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/pynvml-shadows-nvml.md"),
        check: parts::pynvml_shadows_nvml,
    },
    Rule {
        id: "tensorflow-libraries-out-of-reach",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/tensorflow-libraries-out-of-reach.md"),
        check: parts::tensorflow_libraries_out_of_reach,
    },
    Rule {
        id: "torch-companion-mismatch",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/torch-companion-mismatch.md"),
        check: companions::torch_companion_mismatch,
    },
    Rule {
        id: "torch-extension-symbols",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["torch-companion-mismatch"],
        page: include_str!("../pages/torch-extension-symbols.md"),
        check: companions::torch_extension_symbols,
    },
    Rule {
        id: "triton-ptxas-lacks-gpu",
        layer: Layer::Framework,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &["framework-lacks-gpu-code"],
        page: include_str!("../pages/triton-ptxas-lacks-gpu.md"),
        check: assembler::triton_ptxas_lacks_gpu,
    },
    Rule {
        // Found by `preflight` alone, which knows the target's Python.
        id: "no-wheel-for-python",
        layer: Layer::Framework,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/no-wheel-for-python.md"),
        check: |_| Outcome::Clean,
    },
    Rule {
        // Found by `preflight` alone, which reads requirement files.
        id: "version-left-open",
        layer: Layer::Framework,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/version-left-open.md"),
        check: |_| Outcome::Clean,
    },
];

/// A GPU that is here.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GpuHere {
    /// `NVIDIA GeForce GTX 1050`.
    name: String,
    capability: Capability,
    /// Where that was read.
    source: String,
}

impl GpuHere {
    /// `sm_61 (NVIDIA GeForce GTX 1050)`.
    fn shown(&self) -> String {
        format!("{} ({})", sm(self.capability), self.name)
    }
}

/// A capability as machine code is called.
fn sm((major, minor): Capability) -> String {
    format!("sm_{major}{minor}")
}

impl Ctx<'_> {
    /// The frameworks of the environment.
    pub(super) fn frameworks(&self) -> &[Framework] {
        self.facts.framework.frameworks.items()
    }

    /// The one of this name that Python finds first.
    pub(super) fn framework(&self, name: &str) -> Option<&Framework> {
        self.frameworks().iter().find(|f| f.name == name)
    }

    /// The GPUs that a program of the consumer meets, with their capability: what CUDA answers, else what NVML answers,
    /// else what the PCI ids say, as far as the matrix knows them.
    fn gpus_here(&self) -> Vec<GpuHere> {
        let answers = [self.cuda_answers(), self.nvml_answers()];
        for answers in answers.into_iter().flatten() {
            let told: Vec<GpuHere> = answers
                .devices
                .iter()
                .filter_map(|device| {
                    Some(GpuHere {
                        name: device.name.clone().unwrap_or_else(|| "the GPU".to_owned()),
                        capability: device.capability?,
                        source: answers.path.clone(),
                    })
                })
                .collect();
            if !told.is_empty() {
                return told;
            }
        }
        self.gpus()
            .filter_map(|device| {
                let gpu = self.gpu(device)?;
                Some(GpuHere {
                    name: self.gpu_name(device),
                    capability: gpu.capability?,
                    source: format!("PCI id {}, {}", device.id(), gpu.source),
                })
            })
            .collect()
    }

    /// Whether a GPU is here that nothing below the frameworks stands in the way of, as far as that can be seen: CUDA
    /// works, or it was not asked and the driver is loaded.
    pub(super) fn gpu_usable(&self) -> bool {
        match self.cu_init() {
            Some(_) => self.cuda_works(),
            None => {
                self.module_loaded() == Some(true)
                    && self.real_libcuda().is_some()
                    && self.gpus().next().is_some()
            }
        }
    }
}

/// A framework with its version: `torch 2.8.0+cu128`.
pub(super) fn shown(framework: &Framework) -> String {
    match framework.version.value() {
        Some(version) => format!("{} {version}", framework.name),
        None => framework.name.clone(),
    }
}

/// A finding about a framework: its version and its place as evidence.
fn finding(id: &str, framework: &Framework, severity: Severity, title: String) -> Finding {
    Finding::new(id, Layer::Framework, severity, title)
        .component(framework.library.value().map_or_else(
            || framework.name.clone(),
            |path| crate::sysroot::file_name(path).to_owned(),
        ))
        .subject(format!("{} in {}", framework.name, framework.site))
        .reading("version", &framework.version)
}

/// Why frameworks cannot be judged, where they cannot.
fn unread(ctx: &Ctx<'_>) -> Option<Outcome> {
    match &ctx.facts.framework.frameworks {
        Reading::Unreadable { reason } => Some(Outcome::unknown(format!("frameworks: {reason}"))),
        _ => None,
    }
}

/// Parts that the layer's line does not name.
const QUIET: &[&str] = &["jax-cuda-pjrt", "pynvml", "nvidia-ml-py"];
/// How many parts it names.
const TOLD: usize = 4;

/// What the layer's line says: the frameworks, and whether their code is for the GPUs that are here.
pub fn summary(ctx: &Ctx<'_>) -> (bool, String) {
    let all = match &ctx.facts.framework.frameworks {
        Reading::Unreadable { reason } if reason == NOT_RECORDED => return (false, reason.clone()),
        Reading::Unreadable { reason } => return (false, format!("not read: {reason}")),
        other => other.items(),
    };
    let mut named: Vec<String> = all
        .iter()
        .filter(|f| !QUIET.contains(&f.name.as_str()))
        .map(shown)
        .collect();
    named.dedup();
    if named.is_empty() {
        let consumer = &ctx.facts.consumer;
        let where_to = match (&consumer.kind, &consumer.prefix) {
            (ConsumerKind::Machine, _) => "no environment is examined".to_owned(),
            (_, Reading::Present { value, .. }) => format!("none that is known in {value}"),
            _ => format!("none that is known of {}", consumer.what),
        };
        return (false, where_to);
    }
    let more = named.len().saturating_sub(TOLD);
    named.truncate(TOLD);
    let mut text = named.join(", ");
    if more > 0 {
        text = format!("{text} and {more} more");
    }
    let torch = ctx.framework("torch");
    let build = torch.and_then(|torch| match (&torch.cuda, &torch.hip) {
        (_, Reading::Present { value, .. }) => Some(format!("built for ROCm {value}")),
        (Reading::Absent { .. }, _) if ctx.wants_xpu().is_some() => {
            Some("built for Intel GPUs".to_owned())
        }
        (Reading::Absent { .. }, Reading::Absent { .. }) => Some("built without CUDA".to_owned()),
        _ => None,
    });
    match code::summary(ctx).or(build) {
        Some(more) => (true, format!("{text}: {more}")),
        None => (true, text),
    }
}
