//! Code for the instruction set of a GPU: in rocBLAS, in what a framework brings, and of the wrong vendor.

use super::VERIFY;
use super::variables::{Seen, seen};
use crate::facts::{Framework, KernelFolder, KfdNode, Layer, PciDevice, ReachedBy, Vendor};
use crate::finding::{Finding, Fix, Severity};
use crate::gfx::GfxTarget;
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, missing};

/// Code for GPUs of a list of targets.
struct Held<'a> {
    /// `kernels for`, `device code for`.
    what: &'static str,
    targets: &'a [String],
    path: &'a str,
    named_by: Option<&'a String>,
}

/// Code that GPUs lack which the consumer sees.
struct Lacking<'a> {
    held: Vec<Held<'a>>,
    /// The GPUs, and what they pass for.
    gpus: Vec<(&'a KfdNode, GfxTarget)>,
    /// Whether others are seen that it has code for.
    others: bool,
}

/// Whether a folder lies in an environment, as part of a framework.
fn is_of_framework(folder: &KernelFolder) -> bool {
    folder.reached_by.contains(&ReachedBy::Environment) && folder.named_by.is_none()
}

/// The GPUs that the consumer sees and that this code is not for.
fn lacks<'a>(ctx: &'a Ctx<'_>, held: Held<'a>) -> Option<Lacking<'a>> {
    let Seen::These(visible) = seen(ctx) else {
        return None;
    };
    // A spelling that is not understood may be a family, so that nothing can be said.
    if held
        .targets
        .iter()
        .any(|name| !ctx.matrix.gfx_code_is_known(name))
    {
        return None;
    }
    let told: Vec<(&KfdNode, GfxTarget)> = visible
        .iter()
        .filter_map(|node| Some((*node, ctx.passes_for(node)?)))
        .collect();
    let has = |target: GfxTarget| {
        held.targets
            .iter()
            .any(|code| ctx.matrix.gfx_code_runs(code, target))
    };
    let (with, without): (Vec<_>, Vec<_>) = told.into_iter().partition(|(_, target)| has(*target));
    (!without.is_empty()).then_some(Lacking {
        held: vec![held],
        gpus: without,
        others: !with.is_empty(),
    })
}

/// Whether what is examined runs on AMD's stack.
fn is_on_rocm(ctx: &Ctx<'_>) -> bool {
    ctx.wants_rocm().is_some() && ctx.vendor() == Some(Vendor::Amd)
}

/// The folder that the consumer's rocBLAS loads from.
fn rocblas<'a>(ctx: &'a Ctx<'_>) -> Option<&'a KernelFolder> {
    let folders = ctx.facts.amd.kernels.items().iter();
    let folders: Vec<&KernelFolder> = folders.filter(|f| f.library == "rocBLAS").collect();
    let by = |by: ReachedBy| {
        let mut reached = folders.iter();
        reached
            .find(|folder| folder.reached_by.contains(&by))
            .copied()
    };
    let own = [
        ReachedBy::Process,
        ReachedBy::Program,
        ReachedBy::Environment,
    ];
    own.into_iter().find_map(by).or_else(|| {
        // An environment that brings its own HIP has a rocBLAS that was not found; the system's is none of its.
        let own_hip = ctx
            .facts
            .amd
            .libraries
            .items()
            .iter()
            .any(|copy| copy.reached_by.contains(&ReachedBy::Environment));
        let mut reached = folders.iter().filter(|_| !own_hip);
        reached
            .find(|folder| folder.reached_by.iter().any(ReachedBy::is_live))
            .copied()
    })
}

/// What the consumer's rocBLAS lacks.
fn rocblas_lacks<'a>(ctx: &'a Ctx<'_>) -> Option<(&'a KernelFolder, Lacking<'a>)> {
    let folder = rocblas(ctx).filter(|_| is_on_rocm(ctx))?;
    let held = Held {
        what: "kernels for",
        targets: &folder.targets,
        path: &folder.path,
        named_by: folder.named_by.as_ref(),
    };
    Some((folder, lacks(ctx, held)?))
}

/// What the code in a framework's own library lacks; an error where it was not read to its end.
fn framework_lacks<'a>(
    ctx: &'a Ctx<'_>,
    framework: &'a Framework,
) -> Result<Option<Lacking<'a>>, String> {
    let Some(code) = framework.gfx.value() else {
        return Ok(None);
    };
    let held = Held {
        what: "device code for",
        targets: &code.targets,
        path: framework.gfx.source(),
        named_by: None,
    };
    let lacking = lacks(ctx, held).filter(|_| !code.targets.is_empty());
    match lacking {
        Some(_) if !code.complete => Err(format!(
            "device code for AMD's GPUs: {} could not be read to its end",
            framework.gfx.source()
        )),
        other => Ok(other),
    }
}

impl Ctx<'_> {
    /// What a GPU's instruction set is taken for: `HSA_OVERRIDE_GFX_VERSION` stands for all of them.
    pub(in crate::rules) fn passes_for(&self, node: &KfdNode) -> Option<GfxTarget> {
        let told = self
            .env("HSA_OVERRIDE_GFX_VERSION")
            .and_then(GfxTarget::from_dotted);
        told.or_else(|| node.target())
    }
}

/// rocBLAS brings no kernels for a GPU that the consumer sees.
pub(super) fn rocblas_no_kernels(ctx: &Ctx<'_>) -> Outcome {
    let Some((_, lacking)) = rocblas_lacks(ctx).filter(|(folder, _)| !is_of_framework(folder))
    else {
        return Outcome::Clean;
    };
    if let Some(reason) = missing("environment variables", &ctx.facts.environment) {
        return Outcome::unknown(reason);
    }
    Outcome::found([without_kernels(
        ctx,
        &lacking,
        "rocblas-no-kernels",
        Layer::Libraries,
        "rocBLAS",
    )])
}

/// The code or the rocBLAS that a framework brings has none: what it was built for is what AMD's GPUs of that list are.
pub(super) fn framework_rocm_gfx_missing(ctx: &Ctx<'_>) -> Outcome {
    if !is_on_rocm(ctx) {
        return Outcome::Clean;
    }
    let mut unknown = Vec::new();
    let mut of = Vec::new();
    for framework in ctx.frameworks() {
        match framework_lacks(ctx, framework) {
            Ok(Some(lacking)) => of.push((framework, lacking)),
            Ok(None) => {}
            Err(reason) => unknown.push(reason),
        }
    }
    let rocblas = rocblas_lacks(ctx).filter(|(folder, _)| is_of_framework(folder));
    if rocblas.is_none() && of.is_empty() {
        return if unknown.is_empty() {
            Outcome::Clean
        } else {
            Outcome::Unknown { missing: unknown }
        };
    }
    if let Some(reason) = missing("environment variables", &ctx.facts.environment) {
        return Outcome::unknown(reason);
    }
    let mut findings = Vec::new();
    let torch = of
        .iter()
        .position(|(framework, _)| framework.name == "torch");
    let torch = torch.map(|at| of.remove(at).1);
    let rocblas = rocblas.map(|(_, lacking)| lacking);
    // Both were made for the same list: one fault.
    let first = match (rocblas, torch) {
        (Some(rocblas), Some(torch)) => Some(together(ctx, rocblas, torch)),
        (one, other) => one.or(other),
    };
    if let Some(lacking) = &first {
        let what = ctx
            .wants_rocm()
            .map_or("rocBLAS".to_owned(), |wants| wants.what);
        findings.push(without_kernels(
            ctx,
            lacking,
            "framework-rocm-gfx-missing",
            Layer::Framework,
            &what,
        ));
    } else {
        for (framework, lacking) in &of {
            let mut finding = without_kernels(
                ctx,
                lacking,
                "framework-rocm-gfx-missing",
                Layer::Framework,
                &shown(framework),
            );
            // What is built on torch takes another way where such a part does not run.
            if finding.severity == Severity::Error {
                finding.severity = Severity::Warning;
            }
            findings.push(finding);
        }
    }
    Outcome::found(findings)
}

/// What two of one framework lack, as one.
fn together<'a>(ctx: &Ctx<'_>, one: Lacking<'a>, other: Lacking<'a>) -> Lacking<'a> {
    let mut gpus = one.gpus;
    for (node, target) in other.gpus {
        if !gpus.iter().any(|(known, _)| known.node == node.node) {
            gpus.push((node, target));
        }
    }
    let left = match seen(ctx) {
        Seen::These(visible) => visible.len() > gpus.len(),
        Seen::Untold => true,
    };
    Lacking {
        held: one.held.into_iter().chain(other.held).collect(),
        gpus,
        others: left,
    }
}

/// The code in the program that was named is for other GPUs than those that it sees.
pub(in crate::rules) fn program_lacks(ctx: &Ctx<'_>) -> Option<Finding> {
    let program = ctx.facts.application.program.value()?;
    let code = program.gfx.as_ref().filter(|code| code.complete)?;
    if !is_on_rocm(ctx) || code.targets.is_empty() || ctx.facts.environment.is_unreadable() {
        return None;
    }
    let held = Held {
        what: "device code for",
        targets: &code.targets,
        path: &program.path,
        named_by: None,
    };
    let lacking = lacks(ctx, held)?;
    Some(without_kernels(
        ctx,
        &lacking,
        "no-device-code-for-gpu",
        Layer::Application,
        &program.path,
    ))
}

fn without_kernels(
    ctx: &Ctx<'_>,
    lacking: &Lacking<'_>,
    id: &str,
    layer: Layer,
    what: &str,
) -> Finding {
    let mut targets: Vec<String> = lacking
        .gpus
        .iter()
        .map(|(_, target)| target.to_string())
        .collect();
    targets.dedup();
    let integrated =
        |(_, target): &(&KfdNode, GfxTarget)| ctx.matrix.gfx_is_integrated(*target) == Some(true);
    // Beside a GPU that works, one that is part of the processor is in nobody's way.
    let severity = match lacking.others {
        false => Severity::Error,
        true if lacking.gpus.iter().all(integrated) => Severity::Note,
        true => Severity::Warning,
    };
    let names: Vec<String> = lacking
        .gpus
        .iter()
        .map(|(node, _)| ctx.kfd_name(node))
        .collect();
    let targets = in_words(&targets);
    let of_rocblas = lacking.held.iter().any(|held| held.what == "kernels for");
    let component = match layer {
        Layer::Libraries => "rocBLAS",
        Layer::Framework if of_rocblas => "rocBLAS of the framework",
        _ => what,
    };
    let complaining = match layer {
        Layer::Application => Layer::Application,
        _ => Layer::Framework,
    };
    let subject = lacking.held.first().map_or("", |held| held.path);
    let mut finding = Finding::new(id, layer, severity, format!("{what} has no kernels for {targets}: {}", in_words(&names)))
        .of(Vendor::Amd)
        .complaining(complaining)
        .component(component)
        .subject(subject)
        .detail(if of_rocblas {
            "rocBLAS loads its kernels from a folder by the GPU's instruction set and ends the program where there are none (\"Cannot read TensileLibrary.dat\"); other code says \"invalid device function\" or \"no kernel image\". AMD builds for some GPUs of each generation only."
        } else {
            "A kernel starts where there is code for the GPU's instruction set, and nowhere else: \"invalid device function\" (98) or \"no kernel image is available\". Neither the driver nor ROCm is at fault."
        });
    for held in &lacking.held {
        finding = finding.evidence(held.what, held.targets.join(", "), held.path);
        if let Some(variable) = held.named_by {
            finding = finding.evidence(variable.clone(), held.path, "environment");
        }
    }
    for (node, target) in &lacking.gpus {
        let own = node
            .target()
            .map_or_else(|| "not told".to_owned(), |own| own.to_string());
        finding = finding.evidence(
            format!("instruction set of GPU {}", node.node),
            own,
            format!("/sys/class/kfd/kfd/topology/nodes/{}/properties", node.node),
        );
        if node.target() != Some(*target) {
            finding = finding.evidence("HSA_OVERRIDE_GFX_VERSION", target.dotted(), "environment");
        }
    }
    let overridden = ctx.env("HSA_OVERRIDE_GFX_VERSION").is_some();
    // What stands in has to be among all of it.
    let mut among: Vec<String> = lacking
        .held
        .first()
        .map_or_else(Vec::new, |held| held.targets.to_vec());
    for held in lacking.held.iter().skip(1) {
        let same = |a: &str, b: &str| match (GfxTarget::parse(a), GfxTarget::parse(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        };
        among.retain(|name| held.targets.iter().any(|other| same(name, other)));
    }
    let stand_ins: Vec<_> = lacking
        .gpus
        .iter()
        .filter_map(|(node, _)| {
            let own = node.target()?;
            ctx.matrix
                .gfx_stand_in(own, &among)
                .map(|found| (own, found))
        })
        .collect();
    // The variable is for all GPUs at once: it mends one kind.
    let same = stand_ins.first().filter(|(own, (code, _, _))| {
        !lacking.others
            && stand_ins.len() == lacking.gpus.len()
            && stand_ins
                .iter()
                .all(|(o, (c, _, _))| o.major == own.major && c == code)
    });
    if let Some((own, (code, source, known))) = same {
        let why = if *known {
            "the same instructions; it is known to work, and AMD supports it not"
        } else {
            "a close relative; whether all of its code runs nobody has said, and AMD supports it not"
        };
        let fix = Fix::at(
            Layer::Application,
            format!("let {own} pass for {code}: {why}"),
        )
        .line(format!("export HSA_OVERRIDE_GFX_VERSION={}", code.dotted()))
        .verify("python -c \"import torch; x = torch.ones(64, 64).cuda(); print((x @ x).sum())\"");
        finding = finding.fix(fix).source(source.clone());
    } else if overridden {
        finding = finding.fix(Fix::at(Layer::Application, "take HSA_OVERRIDE_GFX_VERSION out of the environment, or name a target that is among the kernels").line("unset HSA_OVERRIDE_GFX_VERSION").verify(VERIFY));
    }
    let flags = targets.replace(" and ", ";").replace(", ", ";");
    let build = match layer {
        Layer::Framework => format!(
            "take a build that is made for {targets}, or build it with PYTORCH_ROCM_ARCH for it"
        ),
        Layer::Application => format!("build it for {targets} (--offload-arch={flags})"),
        _ => format!(
            "take a rocBLAS that is built for {targets}: a distribution's (Debian's and Fedora's are built for more GPUs than AMD's), or one of your own (-DGPU_TARGETS={flags})"
        ),
    };
    let finding = finding.fix(Fix::at(layer, build).cost("rebuild"));
    if of_rocblas {
        finding
            .source("ROCm/rocBLAS: Tensile libraries by target; ROCm documentation: supported GPUs")
    } else {
        finding.source("LLVM: Clang Offload Bundler, User Guide for AMDGPU Backend")
    }
}

/// A build for CUDA where the only GPU is AMD's.
pub(super) fn cuda_build_on_amd(ctx: &Ctx<'_>) -> Outcome {
    let Some(torch) = ctx.framework("torch") else {
        return Outcome::Clean;
    };
    let Some(cuda) = torch.cuda.value() else {
        return Outcome::Clean;
    };
    // Someone who has none of NVIDIA's parts, and an AMD GPU that could compute.
    let foreign = ctx
        .facts
        .hardware
        .pci
        .items()
        .iter()
        .any(|d| d.gpu_of() == Some(Vendor::Nvidia));
    if foreign
        || !ctx.plain_linux()
        || ctx.module_loaded() != Some(false)
        || ctx.facts.driver.libcuda.is_present()
        || ctx.kfd_gpus().is_empty()
    {
        return Outcome::Clean;
    }
    let gpus: Vec<&PciDevice> = ctx
        .amd_gpus()
        .filter(|gpu| ctx.kfd_node_of(gpu).is_some())
        .collect();
    let installed = ctx.wants_rocm();
    let discrete = ctx
        .kfd_gpus()
        .into_iter()
        .any(|node| node.target().and_then(|t| ctx.matrix.gfx_is_integrated(t)) == Some(false));
    // The index of Python packages has the build for CUDA as the usual one: who computes on the processor takes it as well.
    let severity = match &installed {
        Some(_) => Severity::Error,
        None if discrete => Severity::Note,
        None => return Outcome::Clean,
    };
    let names: Vec<String> = gpus.iter().map(|gpu| ctx.amd_name(gpu)).collect();
    let mut finding = Finding::new("framework-cuda-build-on-amd", Layer::Framework, severity, format!("{} is built for CUDA {cuda}, and the GPU here is AMD's ({}): it runs on the processor", shown(torch), in_words(&names)))
        .of(Vendor::Amd)
        .component("torch")
        .subject(torch.site.clone())
        .detail("A build of PyTorch is for the GPUs of one maker. The one that `pip install torch` takes by itself is for CUDA.")
        .evidence("torch is built for", format!("CUDA {cuda}"), torch.cuda.source())
        .evidence("GPUs that compute here", in_words(&names), ctx.facts.amd.topology.source())
        .evidence("NVIDIA GPUs", "none", ctx.facts.hardware.pci.source());
    if let Some(wants) = &installed {
        finding = finding.evidence("ROCm here", wants.what.clone(), wants.source.clone());
    }
    let fix = Fix::at(Layer::Framework, "install the build for ROCm, by the command that the PyTorch selector gives for the release of ROCm that this driver runs")
        .verify("python -c \"import torch; print(torch.version.hip, torch.cuda.is_available())\"");
    Outcome::found([finding
        .fix(fix)
        .source("PyTorch: get started, selector of builds")])
}

fn shown(framework: &Framework) -> String {
    match framework.version.value() {
        Some(version) => format!("{} {version}", framework.name),
        None => framework.name.clone(),
    }
}
