//! What is wrong with what came into a container, beside devices and libcuda: NVML left out, files without the links that
//! the loader follows, and driver libraries that the image ships itself.

use super::ways::with_capabilities;
use super::{has_gpu_node, has_libcuda, with_request};
use crate::facts::{ImageFile, Layer, ReachedBy};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::{in_words, verified, with_cu_init};
use crate::rules::{Ctx, Outcome, known};

/// libcuda is here with its devices, and NVML is not: the `utility` capability was left out.
pub(super) fn container_nvml_missing(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container() || !ctx.plain_linux() || ctx.module_loaded() != Some(true) {
        return Outcome::Clean;
    }
    let glue = known!(ctx.facts.container.glue, "what came into this container");
    let mounted = |name: &str| glue.mounts.iter().find(|m| m.target.contains(name));
    let Some(libcuda) = mounted("/libcuda.so") else {
        return Outcome::Clean;
    };
    if ctx.facts.driver.libnvidia_ml.is_unreadable()
        || ctx.libnvidia_ml().is_some()
        || mounted("/libnvidia-ml.so").is_some()
        || !has_libcuda(ctx)
        || !has_gpu_node(ctx)
    {
        return Outcome::Clean;
    }
    let finding = Finding::new(
        "container-nvml-missing",
        Layer::Container,
        Severity::Warning,
        "libcuda is in this container and libnvidia-ml.so.1 (NVML) is not: the utility capability was not asked for",
    )
    .complaining(Layer::Framework)
    .component("libnvidia-ml.so.1")
    .detail("CUDA works without NVML. nvidia-smi does not, nor what asks NVML for GPUs: vLLM, NCCL's topology search, PyTorch with PYTORCH_NVML_BASED_CUDA_CHECK, monitoring.")
    .evidence("libnvidia-ml.so.1", "not found", "LD_LIBRARY_PATH, ld.so.cache, default folders")
    .evidence("libcuda", libcuda.target.clone(), "/proc/self/mountinfo")
    .source("libnvidia-container sources: libraries by capability");
    Outcome::found([with_cu_init(ctx, with_request(ctx, finding)).fix(with_capabilities(ctx))])
}

/// The driver's libcuda is mounted, and the loader does not find it: neither link nor cache leads there.
pub(super) fn container_library_not_linked(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container() || ctx.cuda_works() || ctx.facts.driver.libcuda.is_unreadable() {
        return Outcome::Clean;
    }
    let glue = known!(ctx.facts.container.glue, "what came into this container");
    let Some(mount) = glue
        .mounts
        .iter()
        .find(|m| m.target.contains("/libcuda.so.") && !m.target.ends_with(".so.1"))
    else {
        return Outcome::Clean;
    };
    if ctx.libcuda().is_some() {
        return Outcome::Clean;
    }
    let why = if glue.read_only_root {
        "the root of this container is read-only, so that no hook could write them"
    } else {
        "the hook that runs ldconfig has failed, or the image has no ldconfig (musl, distroless)"
    };
    let folder = crate::sysroot::parent(&mount.target).to_owned();
    let mut finding = Finding::new(
        "container-library-not-linked",
        Layer::Container,
        Severity::Error,
        format!("{} is in this container and the loader finds no libcuda.so.1: the link or ld.so.cache was not made", mount.target),
    )
    .complaining(Layer::Runtime)
    .component("libcuda.so.1")
    .detail(format!("NVIDIA's glue mounts the driver's files by their full names, and then has ldconfig make links and cache in the container. That did not happen here: {why}."))
    .evidence("mounted", mount.target.clone(), "/proc/self/mountinfo")
    .evidence("libcuda.so.1", "not found", "LD_LIBRARY_PATH, ld.so.cache, default folders")
    .evidence("root of the container", if glue.read_only_root { "read-only" } else { "writable" }, "/proc/self/mountinfo")
    .source("NVIDIA container toolkit sources: hooks create-symlinks and update-ldcache");
    finding = with_request(ctx, finding);
    let first = if glue.read_only_root {
        Fix::at(
            Layer::Container,
            "start the container without --read-only, or with a writable /etc and library folder",
        )
    } else {
        Fix::at(
            Layer::Container,
            "take an image with glibc and ldconfig, and look into the log of the NVIDIA runtime on the host for the failed hook",
        )
    };
    Outcome::found([finding
        .fix(verified(ctx, first.cost("restart of the container")))
        .fix(Fix::at(Layer::Container, format!("or make the link in a place of your own and name it: ln -s {} DIR/libcuda.so.1, LD_LIBRARY_PATH=DIR (files are in {folder})", mount.target)).second("has to be done in every container")) ])
}

/// Driver libraries lie in the image itself.
pub(super) fn container_driver_in_image(ctx: &Ctx<'_>) -> Outcome {
    // In a system container the user space of the driver is installed by hand, rightly.
    if !ctx.in_container() || !ctx.plain_linux() || ctx.is_system_container() {
        return Outcome::Clean;
    }
    let glue = known!(ctx.facts.container.glue, "what came into this container");
    if glue.in_image.is_empty() {
        return Outcome::Clean;
    }
    let (empty, real): (Vec<&ImageFile>, Vec<&ImageFile>) =
        glue.in_image.iter().partition(|file| file.size_bytes == 0);
    let chosen = |file: &&ImageFile| {
        [ctx.libcuda(), ctx.libnvidia_ml()]
            .into_iter()
            .flatten()
            .any(|copy| copy.real_path == file.path || copy.path == file.path)
    };
    let shadows = real.iter().copied().find(chosen);
    let loaded = ctx.loaded_version();
    // An image for a machine without a container engine's help (a driver container) has them on purpose: only where the
    // host's driver is another one, or was mounted beside them, are they in the way.
    let wrong = |file: &ImageFile| loaded.is_some() && file.version.as_ref() != loaded;
    let mounted = glue.mounts.iter().any(|m| m.target.contains(".so."));
    let severity = match shadows {
        Some(file) if wrong(file) && !ctx.cuda_works() => Severity::Error,
        Some(file) if wrong(file) => Severity::Warning,
        _ if mounted || !empty.is_empty() => Severity::Note,
        _ => return Outcome::Clean,
    };
    let subject = shadows.or(real.first().copied()).or(empty.first().copied());
    let Some(subject) = subject else {
        return Outcome::Clean;
    };
    let version = subject
        .version
        .as_ref()
        .map_or_else(String::new, |version| format!(" of driver {version}"));
    let title = match (shadows, empty.is_empty()) {
        (Some(file), _) => format!(
            "the image ships {}{version}, and the loader takes it in place of the host's",
            file.path
        ),
        (None, false) => format!(
            "the image holds {} empty driver files{version}: it was built or committed with GPUs mounted",
            empty.len()
        ),
        (None, true) => format!(
            "the image ships {}{version}, beside the driver that the host brings",
            subject.path
        ),
    };
    let mut finding = Finding::new("container-driver-in-image", Layer::Container, severity, title)
        .complaining(Layer::Driver)
        .component(crate::sysroot::file_name(&subject.path))
        .detail("A container takes the driver's libraries from its host; they have to be of the very version of the host's kernel module. Those that an image brings fit one host by chance and fail on the next.")
        .source("NVIDIA libnvidia-container: answer of a maintainer on empty driver libraries (secondary)");
    for file in glue.in_image.iter().take(8) {
        let size = if file.size_bytes == 0 {
            "empty (0 bytes)".to_owned()
        } else {
            format!("{} bytes", file.size_bytes)
        };
        finding = finding.evidence(file.path.clone(), size, "the image: no mount is above it");
    }
    if let Some((version, source)) = ctx.facts.driver.loaded_version() {
        finding = finding.evidence("host's kernel module", version.to_string(), source);
    }
    let finding = with_cu_init(ctx, with_request(ctx, finding));
    Outcome::found([finding.fix(verified(ctx, Fix::at(Layer::Container, "build the image without driver packages (nvidia-utils, libnvidia-compute, a .run installer), and with runc as Docker's default runtime where Docker builds it; the host's libraries are mounted when it is started with GPUs").cost("rebuild of the image")))])
}

impl Ctx<'_> {
    /// What of the consumer evidently wants a GPU: a framework built for CUDA, or the named program's own runtime.
    pub fn wants_a_gpu(&self) -> Option<String> {
        let consumer = &self.facts.consumer;
        if let Some(cuda) = consumer.torch_cuda.value() {
            let torch = consumer
                .frameworks
                .items()
                .iter()
                .find(|d| d.name == "torch");
            return Some(torch.map_or_else(
                || format!("torch for CUDA {cuda}"),
                |torch| format!("torch {} (CUDA {cuda})", torch.version),
            ));
        }
        // Their libraries say that they were built for CUDA.
        let built = self.facts.framework.frameworks.items().iter();
        let mut built = built.filter_map(|framework| {
            let cuda = framework.cuda.value()?;
            let version = framework.version.value();
            let version = version.map_or_else(String::new, |version| format!(" {version}"));
            Some(format!("{}{version} (CUDA {cuda})", framework.name))
        });
        if let Some(first) = built.next() {
            return Some(first);
        }
        let own: Vec<String> = self
            .facts
            .runtime
            .cudart
            .items()
            .iter()
            .filter(|copy| {
                copy.reached_by.iter().any(|by| {
                    matches!(
                        by,
                        ReachedBy::Program | ReachedBy::Process | ReachedBy::Environment
                    )
                })
            })
            .map(|copy| copy.path.clone())
            .take(1)
            .collect();
        if own.is_empty() {
            return None;
        }
        Some(in_words(&own))
    }
}
