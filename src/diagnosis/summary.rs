//! What is there, in one line a layer, and the one line of a healthy machine.

use super::{LayerState, Status};
use crate::facts::{Calls, Injection, Layer, PciDevice, Reading, Vendor};
use crate::inspect::Linkage;
use crate::rules::Ctx;
use crate::version::Version;

/// Whether a layer has anything at all, and what.
pub(super) fn of_layer(ctx: &Ctx<'_>, layer: Layer) -> (bool, String) {
    match layer {
        Layer::Hardware => hardware(ctx),
        Layer::System => system(ctx),
        Layer::Driver => driver(ctx),
        Layer::Container => container(ctx),
        Layer::Runtime => runtime(ctx),
        Layer::Framework => crate::rules::framework_summary(ctx),
        Layer::Application => application(ctx),
        Layer::Libraries => libraries(ctx),
        Layer::Toolchain => toolchain(ctx),
    }
}

/// Equal things counted: "8 x NVIDIA H100 80GB HBM3".
fn counted(names: &[String]) -> String {
    let mut kinds: Vec<(&String, usize)> = Vec::new();
    for name in names {
        match kinds.iter_mut().find(|(n, _)| *n == name) {
            Some((_, count)) => *count += 1,
            None => kinds.push((name, 1)),
        }
    }
    kinds
        .iter()
        .map(|(name, count)| {
            if *count == 1 {
                (*name).clone()
            } else {
                format!("{count} x {name}")
            }
        })
        .collect::<Vec<_>>()
        .join(", ")
}

/// The GPUs on the bus. A container sees all of its host's there, also those that it was not given: where it has nodes of
/// some, these are its own.
fn gpus_on_bus<'a>(ctx: &'a Ctx<'_>) -> Vec<&'a PciDevice> {
    let all: Vec<&PciDevice> = ctx
        .facts
        .hardware
        .pci
        .items()
        .iter()
        .filter(|d| d.is_nvidia_gpu())
        .collect();
    if !ctx.in_container() || !ctx.plain_linux() {
        return all;
    }
    let driver = &ctx.facts.driver;
    let is_given = |device: &&&PciDevice| {
        let known = driver.gpus.items().iter();
        let mut known = known.filter(|gpu| gpu.address == device.address);
        let minor = known.next().and_then(|gpu| gpu.minor);
        minor.is_some_and(|minor| driver.node(&format!("/dev/nvidia{minor}")).is_some())
    };
    let given: Vec<&PciDevice> = all.iter().filter(is_given).copied().collect();
    if given.is_empty() { all } else { given }
}

/// Names of the GPUs: of PCI devices, else those that a library names.
fn gpu_names(ctx: &Ctx<'_>) -> Vec<String> {
    let by_bus: Vec<String> = gpus_on_bus(ctx)
        .into_iter()
        .map(|d| name_of(ctx, d))
        .collect();
    if !by_bus.is_empty() {
        return by_bus;
    }
    let by_driver: Vec<String> = ctx
        .facts
        .driver
        .gpus
        .items()
        .iter()
        .map(|g| g.model.clone())
        .filter(|m| !m.is_empty())
        .collect();
    if !by_driver.is_empty() {
        return by_driver;
    }
    let answers = [&ctx.facts.vendor.libcuda, &ctx.facts.vendor.libnvidia_ml];
    answers
        .into_iter()
        .filter_map(Reading::value)
        .map(|a| {
            a.devices
                .iter()
                .filter_map(|d| d.name.clone())
                .collect::<Vec<_>>()
        })
        .find(|names| !names.is_empty())
        .unwrap_or_default()
}

fn name_of(ctx: &Ctx<'_>, device: &crate::facts::PciDevice) -> String {
    let by_driver = ctx
        .facts
        .driver
        .gpus
        .items()
        .iter()
        .find(|g| g.address == device.address && !g.model.is_empty())
        .map(|g| g.model.clone());
    by_driver
        .or_else(|| ctx.matrix.gpu(device.device).map(|g| g.name))
        .unwrap_or_else(|| format!("NVIDIA GPU {}", device.id()))
}

fn hardware(ctx: &Ctx<'_>) -> (bool, String) {
    let names = gpu_names(ctx);
    let pci = ctx.facts.hardware.pci.items();
    let beside = others(ctx);
    if !names.is_empty() {
        let switches = pci.iter().filter(|d| d.is_nvswitch()).count();
        let asleep = pci
            .iter()
            .filter(|d| d.is_nvidia_gpu() && d.sleeps())
            .count();
        let mut text = counted(&names);
        let on_host = pci.iter().filter(|d| d.is_nvidia_gpu()).count();
        if ctx.in_container() && on_host > names.len() {
            text = format!("{text} (of {on_host} that the host has)");
        }
        if switches > 0 {
            let plural = if switches == 1 { "" } else { "es" };
            text = format!("{text}, {switches} NVSwitch{plural}");
        }
        if asleep > 0 {
            text.push_str(if asleep == 1 {
                " (one sleeps)"
            } else {
                " (asleep)"
            });
        }
        if !beside.is_empty() {
            text = format!("{text}; beside it {}", counted(&beside));
        }
        return (true, text);
    }
    if let Some(tegra) = ctx.facts.system.tegra.value() {
        return (
            true,
            if tegra.model.is_empty() {
                "Tegra".to_owned()
            } else {
                tegra.model.clone()
            },
        );
    }
    if ctx.in_wsl() && ctx.facts.driver.node("/dev/dxg").is_some() {
        return if ctx.windows_has_nvidia() {
            (true, "a GPU of Windows, through /dev/dxg".to_owned())
        } else {
            let text = "a GPU of Windows, through /dev/dxg; no NVIDIA driver of Windows";
            (false, text.to_owned())
        };
    }
    match &ctx.facts.hardware.pci {
        Reading::Present { .. } if !beside.is_empty() => (
            ctx.amd_is_here() || ctx.xpu_in_words().is_some(),
            counted(&beside),
        ),
        Reading::Present { .. } => (false, "no GPU".to_owned()),
        Reading::Absent { .. } => (false, "no PCI bus, no GPU".to_owned()),
        Reading::Unreadable { reason } => (false, format!("not read: {reason}")),
    }
}

/// Names of the GPUs that are not NVIDIA's.
fn others(ctx: &Ctx<'_>) -> Vec<String> {
    let pci = ctx.facts.hardware.pci.items().iter();
    pci.filter_map(|device| match device.gpu_of()? {
        Vendor::Nvidia => None,
        Vendor::Amd => Some(ctx.amd_name(device)),
        Vendor::Intel => Some(ctx.name_of(device)),
    })
    .collect()
}

fn system(ctx: &Ctx<'_>) -> (bool, String) {
    let system = &ctx.facts.system;
    let mut parts = Vec::new();
    if let Some(os) = system.os.value() {
        parts.push(if os.pretty_name.is_empty() {
            os.id.clone()
        } else {
            os.pretty_name.clone()
        });
    }
    if let Some(release) = system.kernel_release.value() {
        parts.push(format!("kernel {release}"));
    }
    if let Some(libc) = system.libc.value() {
        parts.push(
            libc.version
                .as_ref()
                .map_or_else(|| libc.kind.clone(), |v| format!("{} {v}", libc.kind)),
        );
    }
    if ctx.in_wsl_1() {
        parts.push("WSL 1".to_owned());
    } else if system.wsl.is_present() {
        parts.push("WSL2".to_owned());
    } else if let Some(name) = system.virtualisation.value() {
        parts.push(if name == "a hypervisor" {
            "virtual machine".to_owned()
        } else {
            format!("virtual machine ({name})")
        });
    }
    if system.secure_boot.value() == Some(&true) {
        parts.push("Secure Boot on".to_owned());
    }
    (true, parts.join(", "))
}

fn driver(ctx: &Ctx<'_>) -> (bool, String) {
    let facts = &ctx.facts.driver;
    let mut parts = Vec::new();
    if let Some((version, _)) = facts.loaded_version() {
        let flavour = facts
            .loaded_flavour()
            .map_or_else(String::new, |f| format!(" ({} module)", f.id()));
        parts.push(format!("{version}{flavour}"));
    }
    let chosen = facts.libcuda.items().iter().find(|c| c.chosen);
    let answered = ctx
        .facts
        .vendor
        .libcuda
        .value()
        .and_then(|a| a.number("cuDriverGetVersion"))
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| *n > 0);
    let by_table = chosen
        .filter(|_| answered.is_none() && ctx.plain_linux())
        .and_then(|c| c.version.value())
        .and_then(|v| ctx.matrix.cuda_level_of(v))
        .map(|(level, _)| level);
    if let Some(copy) = chosen {
        let version = copy.version.value();
        if version.is_none_or(|v| facts.loaded_version().is_none_or(|(loaded, _)| v != loaded)) {
            let what = if copy.is_stub() { "stub" } else { "libcuda" };
            parts.push(version.map_or_else(
                || format!("{what} at {}", copy.path),
                |v| format!("{what} {v}"),
            ));
        }
    }
    if let Some(level) = answered.or(by_table) {
        parts.push(format!("CUDA {}", Version::from_cuda_level(level)));
    }
    let amd = ctx.amdgpu_in_words();
    if parts.is_empty() {
        if let Some(other) = amd.or_else(|| ctx.intel_driver_in_words()) {
            return (true, other);
        }
        return (
            false,
            if ctx.module_loaded() == Some(true) {
                "nvidia module loaded".to_owned()
            } else {
                "no NVIDIA driver".to_owned()
            },
        );
    }
    if ctx.module_loaded() == Some(false) && ctx.plain_linux() && !ctx.in_gvisor() {
        parts.push("module not loaded".to_owned());
    }
    parts.extend(amd);
    (true, parts.join(", "))
}

fn container(ctx: &Ctx<'_>) -> (bool, String) {
    match &ctx.facts.system.container {
        Reading::Present { value, .. } => {
            let glue = ctx.facts.container.glue.value();
            let engine = match glue.map(|glue| glue.engine.as_str()) {
                Some("gke") => "kubernetes (GKE)".to_owned(),
                Some(engine) if engine != value.kind && value.kind == "kubernetes" => {
                    format!("kubernetes ({engine})")
                }
                Some(engine) => engine.to_owned(),
                None => value.kind.clone(),
            };
            let mut text = engine;
            if !value.injected.is_empty() {
                text.push_str(", driver files mounted in");
                match glue.map(|glue| glue.injection) {
                    None | Some(Injection::None | Injection::Unknown) => {}
                    Some(Injection::ByHand) => text.push_str(" one by one, by hand"),
                    Some(injection) => text = format!("{text} {}", injection.words()),
                }
            }
            if let Some(root) = glue.and_then(|glue| glue.driver_root.as_ref()) {
                text = format!("{text}, from {root} of the node");
            }
            (true, text)
        }
        Reading::Absent { .. } if ctx.facts.scope.is_image() => (
            false,
            "a container image: what a host brings to its containers is not in it".to_owned(),
        ),
        Reading::Absent { .. } => (false, format!("not in a container{}", toolkit(ctx))),
        Reading::Unreadable { reason } => (false, format!("not read: {reason}")),
    }
}

/// What starts containers with GPUs on a host: the toolkit, and how it works.
fn toolkit(ctx: &Ctx<'_>) -> String {
    let Some(toolkit) = ctx.facts.container.toolkit.value() else {
        return String::new();
    };
    let version = toolkit
        .oldest()
        .map_or_else(String::new, |part| format!(" {}", part.version));
    let config = toolkit.config.value();
    let mode = match config.and_then(|config| config.mode.as_deref()) {
        Some(mode) => format!(", mode {mode}"),
        None if config.is_some_and(|config| config.problem.is_some()) => String::new(),
        None => ", mode auto".to_owned(),
    };
    format!("; NVIDIA container toolkit{version}{mode}")
}

/// The runtimes that the consumer gets, as texts: "CUDA 12.4".
fn runtimes(ctx: &Ctx<'_>) -> Vec<String> {
    let runtimes = ctx.runtimes_of_consumer().into_iter();
    let mut versions: Vec<_> = runtimes
        .map(|copy| crate::rules::version_of(ctx, copy).map(|(version, _)| version))
        .collect();
    // Those of unknown version last.
    versions.sort_by(|a, b| a.is_none().cmp(&b.is_none()).then_with(|| a.cmp(b)));
    let mut texts: Vec<String> = versions
        .iter()
        .map(|version| match version {
            Some(v) if v.len() < 2 => format!("CUDA {}", v.major()),
            Some(v) => format!("CUDA {}", v.major_minor()),
            None => "CUDA of unknown version".to_owned(),
        })
        .collect();
    texts.dedup();
    texts
}

fn runtime(ctx: &Ctx<'_>) -> (bool, String) {
    let texts = runtimes(ctx);
    let consumer = &ctx.facts.consumer;
    if !texts.is_empty() {
        let mut parts = vec![format!("{} ({})", texts.join(", "), consumer.what)];
        parts.extend(in_use(
            ctx,
            &[("libnvrtc", "NVRTC"), ("libnvJitLink", "nvJitLink")],
        ));
        return (true, parts.join(", "));
    }
    if let Some(other) = ctx.hip_in_words().or_else(|| ctx.level_zero_in_words()) {
        return (true, format!("{other} ({})", consumer.what));
    }
    if let Reading::Unreadable { reason } = &ctx.facts.runtime.cudart {
        return (false, format!("not read: {reason}"));
    }
    let all = ctx.facts.runtime.cudart.items();
    match all.first() {
        None if !ctx.unread(Layer::Runtime).is_empty() => {
            (false, "no libcudart in what was read".to_owned())
        }
        Some(copy) => (
            false,
            format!(
                "none that {} reaches; {} lies in {}",
                consumer.what,
                all.len(),
                crate::sysroot::parent(&copy.path)
            ),
        ),
        None => (
            false,
            "no shared libcudart; programs may carry their own".to_owned(),
        ),
    }
}

/// The libraries of these names that something of the consumer gets, with their versions: `cuDNN 9.10.2.21`.
fn in_use(ctx: &Ctx<'_>, names: &[(&str, &str)]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for (file, name) in names {
        let copies = ctx.facts.libraries.in_use();
        for copy in copies.filter(|copy| copy.name == *file && copy.kind.is_usable()) {
            let text = copy
                .version
                .value()
                .map_or_else(|| (*name).to_owned(), |version| format!("{name} {version}"));
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
    }
    texts
}

fn libraries(ctx: &Ctx<'_>) -> (bool, String) {
    const NAMES: &[(&str, &str)] = &[
        ("libcublas", "cuBLAS"),
        ("libcudnn", "cuDNN"),
        ("libnccl", "NCCL"),
        ("libcufft", "cuFFT"),
        ("libcusparse", "cuSPARSE"),
        ("libcusolver", "cuSOLVER"),
        ("libcurand", "cuRAND"),
        ("libcusparseLt", "cuSPARSELt"),
        ("libnvinfer", "TensorRT"),
    ];
    let texts = in_use(ctx, NAMES);
    let texts = [texts, ctx.rocblas_in_words()].concat();
    if !texts.is_empty() {
        return (true, texts.join(", "));
    }
    let what = &ctx.facts.consumer.what;
    match &ctx.facts.libraries.copies {
        Reading::Unreadable { reason } => (false, format!("not read: {reason}")),
        copies => {
            let other = |copy: &&crate::facts::LibraryFile| {
                NAMES.iter().any(|(file, _)| copy.name == *file)
            };
            match copies.items().iter().filter(other).count() {
                0 => (false, format!("none that {what} reaches")),
                1 => (
                    true,
                    format!("one copy, and nothing known of {what} gets it"),
                ),
                count => (
                    true,
                    format!("{count} copies, and nothing known of {what} gets them"),
                ),
            }
        }
    }
}

fn application(ctx: &Ctx<'_>) -> (bool, String) {
    let names = [
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HSA_OVERRIDE_GFX_VERSION",
        "ONEAPI_DEVICE_SELECTOR",
        "ZE_AFFINITY_MASK",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
    ];
    let named = &ctx.facts.application;
    let program = named.program.value().map(|program| {
        let how = match program.runtime.linkage {
            Linkage::Dynamic => ", shared CUDA runtime",
            Linkage::Static => ", CUDA runtime inside",
            Linkage::Dlopen => ", opens a CUDA runtime",
            Linkage::None => "",
        };
        format!("{}{how}", program.description)
    });
    let mapped = named.process.value().and_then(|process| {
        let mapped = process.mapped.value()?;
        Some(format!(
            "libraries of the GPU stack that are mapped: {}",
            mapped.len()
        ))
    });
    let variables = names
        .iter()
        .filter_map(|name| ctx.env(name).map(|value| format!("{name}={value}")));
    let set: Vec<String> = program.into_iter().chain(mapped).chain(variables).collect();
    match (&ctx.facts.environment, set.is_empty()) {
        (Reading::Unreadable { .. }, _) => (false, "environment not looked at".to_owned()),
        (_, true) => (false, "no variable hides or redirects GPUs".to_owned()),
        (_, false) => (true, set.join(", ")),
    }
}

/// What a build gets: each nvcc with its folder and the host compiler that it calls by itself.
fn toolchain(ctx: &Ctx<'_>) -> (bool, String) {
    let facts = &ctx.facts.toolchain;
    let all = match &facts.nvcc {
        Reading::Present { value, .. } => value,
        Reading::Absent { .. } => return (false, "no nvcc".to_owned()),
        Reading::Unreadable { reason } => return (false, format!("not read: {reason}")),
    };
    let in_use = ctx.nvccs_in_use();
    let parts: Vec<String> = in_use
        .iter()
        .map(|(nvcc, _)| {
            let version = nvcc
                .version
                .value()
                .map_or_else(|| "of unknown version".to_owned(), Version::to_string);
            let compiler = ctx.compiler_of(nvcc).map_or_else(
                || "no host compiler".to_owned(),
                |compiler| match compiler.version.value() {
                    Some(version) => format!("{} {version}", compiler.family.id()),
                    None => compiler.path.clone(),
                },
            );
            format!("nvcc {version} ({}) with {compiler}", nvcc.toolkit)
        })
        .collect();
    if parts.is_empty() {
        let place = all.first().map_or("", |nvcc| nvcc.path.as_str());
        return (
            true,
            format!(
                "no nvcc that builds take by themselves; {} lies in {place}",
                all.len()
            ),
        );
    }
    (true, parts.join(", "))
}

/// The one line of a container that was given no GPU, or not all that CUDA needs, while its host's driver runs: that runs
/// nothing in here.
fn without_a_gpu(ctx: &Ctx<'_>, read: usize) -> Option<String> {
    let parts = ctx.parts_here()?;
    if parts.nodes && parts.libcuda || !ctx.plain_linux() || ctx.cuda_works() {
        return None;
    }
    let wants = ctx.wants_a_gpu();
    let driver = match ctx.facts.driver.loaded_version() {
        Some((version, _)) => format!("driver {version}"),
        None => "driver".to_owned(),
    };
    if ctx.declines_gpus() {
        let hence = wants.map_or_else(String::new, |wants| format!("; {wants} runs on the CPU"));
        return Some(format!(
            "no GPU in this container, as NVIDIA_VISIBLE_DEVICES=none asks{hence}: {read} layers read, no fault"
        ));
    }
    if parts.nvml && !parts.libcuda && parts.nodes {
        return Some(format!(
            "no fault: the host's {driver} answers NVML in this container ({}), and nothing here needs libcuda, which was left out",
            counted(&gpu_names(ctx))
        ));
    }
    if parts.nodes {
        return Some(format!(
            "no fault: the host's {driver} runs, its libraries are not in this container, and nothing here asks for CUDA"
        ));
    }
    if parts.libcuda || parts.nvml {
        return None;
    }
    let start = match ctx.facts.container.glue.value()?.engine.as_str() {
        "docker" => "docker run --gpus all",
        "podman" => "podman run --device nvidia.com/gpu=all",
        "apptainer" => "apptainer exec --nv",
        "kubernetes" | "containerd" | "cri-o" | "gke" => "nvidia.com/gpu: 1 in the pod's limits",
        _ => "a start with GPUs",
    };
    Some(match (wants, ctx.image_of_old_cuda()) {
        (Some(wants), _) => format!(
            "no GPU in this container, since none was asked for: {wants} runs on the CPU; {start} would give it one"
        ),
        (None, Some(version)) => format!(
            "no GPU in this container, which was started without one; its image is one of CUDA {version}: {start} would give it one"
        ),
        (None, None) => format!(
            "no GPU in this container, and none was asked for: {read} layers read, no fault"
        ),
    })
}

/// The one line of a machine without faults whose GPU is AMD's or Intel's: what its driver runs.
fn of_vendor(ctx: &Ctx<'_>, vendor: Vendor, read: usize) -> String {
    let pci = ctx.facts.hardware.pci.items().iter();
    let gpus: Vec<String> = pci
        .filter(|d| d.gpu_of() == Some(vendor))
        .map(|d| ctx.name_of(d))
        .collect();
    let gpus = counted(&gpus);
    let (wants, driver, stack, module) = match vendor {
        Vendor::Intel => (
            ctx.xpu_in_words(),
            ctx.intel_driver_in_words(),
            "Level Zero",
            "i915 or xe",
        ),
        _ => (ctx.rocm_in_words(), ctx.amdgpu_in_words(), "ROCm", "amdgpu"),
    };
    let limit = match ctx.facts.scope.calls {
        Calls::Forbidden => " (as far as files tell: no library was called)",
        _ => "",
    };
    match (wants, driver) {
        (Some(wants), Some(driver)) => format!("{driver} runs {wants} on {gpus}{limit}"),
        (_, Some(driver)) => format!(
            "no fault, and nothing here asks for {stack}: {read} layers read ({gpus}, driven by {driver})"
        ),
        (_, None) => format!(
            "no fault, and nothing here asks for a GPU: {read} layers read ({gpus}, without {module})"
        ),
    }
}

/// Whether a container on WSL has the variable of CUDA's images, and nothing of Windows's driver.
fn asked_of_windows(ctx: &Ctx<'_>) -> bool {
    ctx.in_wsl() && ctx.in_container() && ctx.asks_for_gpus() && !ctx.windows_has_nvidia()
}

/// The one line of a machine without faults.
pub(super) fn of_healthy(ctx: &Ctx<'_>, layers: &[LayerState]) -> String {
    let names = gpu_names(ctx);
    let read = layers
        .iter()
        .filter(|l| matches!(l.status, Status::Ok | Status::Absent))
        .count();
    let runs = ctx.module_loaded() == Some(true)
        || ctx.wsl_gpu()
        || ctx.cuda_works()
        || (ctx.on_tegra() && ctx.facts.driver.libcuda.is_present());
    if ctx.vendor() == Some(Vendor::Amd) && ctx.amd_is_here() {
        return of_vendor(ctx, Vendor::Amd, read);
    }
    // Intel's are in most processors: that one is here says nothing by itself.
    if ctx.vendor() == Some(Vendor::Intel) && ctx.xpu_runs() {
        return of_vendor(ctx, Vendor::Intel, read);
    }
    if !runs {
        return match names.as_slice() {
            [] if ctx.on_tegra() => format!("no fault on this Tegra system: {read} layers read"),
            [] if ctx.in_wsl() && ctx.facts.driver.node("/dev/dxg").is_some() => format!(
                "no NVIDIA GPU here, and none expected: {read} layers read, no fault (WSL passes a GPU of Windows, and no NVIDIA driver of Windows is in /usr/lib/wsl/lib)"
            ),
            [] if !others(ctx).is_empty() => format!(
                "no NVIDIA GPU here, and none expected: {read} layers read, no fault ({})",
                counted(&others(ctx))
            ),
            [] if asked_of_windows(ctx) => format!(
                "no GPU in this container: images of CUDA ask for one (NVIDIA_VISIBLE_DEVICES), and nothing of Windows's driver came in: {read} layers read, no fault"
            ),
            [] => format!("no GPU here, and none expected: {read} layers read, no fault"),
            names if ctx.in_container() && ctx.module_loaded().is_none() => format!(
                "no fault as far as files tell; files of the driver are in this container, and /proc and /sys do not say whether it runs ({})",
                counted(names)
            ),
            names => format!(
                "no fault found; NVIDIA's driver does not run here ({}), and nothing here asks for it",
                counted(names)
            ),
        };
    }
    if let Some(line) = without_a_gpu(ctx, read) {
        return line;
    }
    let mut has = runtimes(ctx);
    has.extend(
        ctx.facts
            .consumer
            .frameworks
            .items()
            .iter()
            .take(2)
            .map(|d| format!("{} {}", d.name, d.version)),
    );
    if !names.is_empty() {
        has.push(counted(&names));
    }
    let driver = match ctx.facts.driver.loaded_version() {
        Some((version, _)) => format!("driver {version}"),
        None if ctx.in_wsl() => "the Windows driver".to_owned(),
        None => "the driver".to_owned(),
    };
    let cu_init = ctx
        .facts
        .vendor
        .libcuda
        .value()
        .and_then(|a| a.code("cuInit"));
    let limit = match ctx.facts.scope.calls {
        Calls::Forbidden => " (as far as files tell: no library was called)",
        Calls::Asleep => " (as far as files tell: the GPU sleeps and was not woken)",
        // A confined child may not make the nodes that the first CUDA program makes.
        Calls::Made | Calls::NoDriver if cu_init.is_some_and(|code| code != 0) => {
            " (as far as files tell: device nodes are made on first use)"
        }
        Calls::Made | Calls::NoDriver => "",
    };
    if has.is_empty() {
        format!("{driver} runs{limit}")
    } else {
        format!(
            "{driver} runs all that was found: {}{limit}",
            has.join(", ")
        )
    }
}
