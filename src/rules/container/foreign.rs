//! Containers whose kernel or C library is not the one that NVIDIA's driver is made for: gVisor, and images of musl.

use super::{has_gpu_node, has_libcuda, with_request};
use crate::facts::{Layer, LibraryCopy};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::{cuda_code, verified, with_init_answers};
use crate::rules::{Ctx, Expectation, Outcome, gpu_expected};

/// CUDA does not start in a sandbox of gVisor that was given a GPU.
pub(super) fn gvisor_refuses_driver(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_gvisor() || !has_gpu_node(ctx) || !has_libcuda(ctx) {
        return Outcome::Clean;
    }
    let Some(code) = ctx.cu_init().filter(|code| *code != 0) else {
        return Outcome::Clean;
    };
    let libcuda = ctx.libcuda().and_then(|copy| copy.version.value());
    let driver = libcuda.map_or_else(
        || "this driver".to_owned(),
        |version| format!("driver {version}"),
    );
    let finding = Finding::new(
        "gvisor-refuses-driver",
        Layer::Container,
        Severity::Error,
        format!("cuInit answers {} inside gVisor: its nvproxy does not pass what {driver} asks of the kernel", cuda_code(code)),
    )
    .complaining(Layer::Runtime)
    .component("runsc (gVisor)")
    .detail("In a sandbox of gVisor the calls to the GPU go through nvproxy, which knows some versions of the driver, to the last digit, and some of their calls. Devices and libraries are here; what the driver asks is refused.")
    .reading("kernel", &ctx.facts.system.kernel_version)
    .source("gVisor user guide: GPU support")
    .source("google/gvisor issues 9846, 10605, 10647 (secondary)");
    let finding = with_request(ctx, with_init_answers(ctx, finding));
    Outcome::found([finding
        .fix(verified(ctx, Fix::at(Layer::Container, format!("on the host, see whether {driver} is one that this runsc knows; if not, take a newer runsc or a driver that is listed"))
            .line("runsc nvproxy list-supported-drivers")
            .cost("restart of the container")))
        .fix(Fix::at(Layer::Container, "or start the container with runc: that it works there shows that the driver is right")
            .cost("restart of the container")
            .second("without the sandbox"))])
}

/// The driver's libraries are here, and the C library is musl: they need glibc.
pub(super) fn libc_is_musl(ctx: &Ctx<'_>) -> Outcome {
    let system = &ctx.facts.system;
    let Some(libc) = system.libc.value().filter(|libc| libc.lacks_glibc()) else {
        return Outcome::Clean;
    };
    let real = |copy: &&LibraryCopy| copy.kind.is_usable() && !copy.is_stub() && !copy.is_compat();
    let driver = &ctx.facts.driver;
    let copies = driver
        .libcuda
        .items()
        .iter()
        .chain(driver.libnvidia_ml.items());
    let Some(copy) = copies.into_iter().find(real) else {
        return Outcome::Clean;
    };
    if ctx.cuda_works() || matches!(gpu_expected(ctx), Expectation::No) {
        return Outcome::Clean;
    }
    let container = ctx.in_container();
    let (layer, place) = if container {
        (Layer::Container, "this image")
    } else {
        (Layer::System, "this system")
    };
    let gcompat = libc.has_gcompat();
    let mut finding = Finding::new(
        "libc-is-musl",
        layer,
        if gcompat { Severity::Warning } else { Severity::Error },
        format!("{place} is built on musl, and NVIDIA's libraries ({}) need glibc", copy.path),
    )
    .complaining(Layer::Runtime)
    .component("musl")
    .detail("NVIDIA builds the driver's user space, CUDA and nvidia-smi for glibc. The loader of musl does not find them by ldconfig's cache, and what they need of glibc is not there: `Error relocating ...: symbol not found`, or `nvidia-smi: not found`. gcompat is enough for nvidia-smi at best.")
    .evidence("C library", libc.kind.clone(), system.libc.source())
    .evidence("driver's library", copy.real_path.clone(), "the loader's search")
    .source("NVIDIA/nvidia-container-toolkit issue 1526; NVIDIA/nvidia-installer issue 10 (secondary)");
    if let Some(loader) = &libc.glibc_loader {
        finding = finding.evidence("loader of glibc", loader.clone(), "a stand-in (gcompat)");
    }
    let fix = if container {
        Fix::at(Layer::Container, "take an image of a distribution with glibc (Debian, Ubuntu, Red Hat's UBI) for what uses the GPU")
            .cost("rebuild of the image")
    } else {
        Fix::at(
            Layer::System,
            "run what uses the GPU in a container or chroot of a distribution with glibc",
        )
    };
    Outcome::found([with_request(ctx, finding).fix(verified(ctx, fix))])
}
