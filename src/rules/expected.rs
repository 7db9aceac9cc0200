//! Whether a GPU is expected here: the table of the design. A loaded module or `--expect-gpu` makes its absence an
//! error; an installed driver a warning; CUDA wheels, toolkits, stubs, compat copies and a lone `/dev/nvidiactl` say
//! nothing, since build hosts have all of these.

use super::Ctx;

/// Whether a GPU is expected, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Its absence is an error.
    Yes(String),
    /// Its absence is a warning.
    Likely(String),
    /// Its absence is healthy.
    No,
}

/// The table.
pub fn gpu_expected(ctx: &Ctx<'_>) -> Expectation {
    if ctx.expect_gpu {
        return Expectation::Yes("--expect-gpu".to_owned());
    }
    // An image has no GPU and no bus; its containers have their hosts'.
    if ctx.facts.scope.is_image() {
        return Expectation::No;
    }
    // On Tegra nvidia.ko drives the display, and the GPU is no PCI device.
    if ctx.plain_linux() && ctx.module_loaded() == Some(true) {
        return Expectation::Yes("the nvidia module is loaded".to_owned());
    }
    if ctx.wsl_gpu() && ctx.libcuda().is_some() {
        return Expectation::Yes("/dev/dxg and a libcuda are here".to_owned());
    }
    if let Some(container) = ctx.facts.system.container.value() {
        let injected = container
            .injected
            .iter()
            .find(|path| path.contains("/libcuda.so") || path.starts_with("/dev/nvidia"));
        if let Some(path) = injected {
            return Expectation::Yes(format!("{path} was mounted into this container"));
        }
        // Every image built on nvidia/cuda carries NVIDIA_VISIBLE_DEVICES=all: by itself it is a wish, not a request.
        return match ctx.env("NVIDIA_VISIBLE_DEVICES") {
            None | Some("" | "void" | "none") => Expectation::No,
            Some(_) => Expectation::Likely("NVIDIA_VISIBLE_DEVICES asks for GPUs".to_owned()),
        };
    }
    if ctx.windows_has_nvidia() {
        return Expectation::Likely(
            "the libraries of Windows's NVIDIA driver are in /usr/lib/wsl".to_owned(),
        );
    }
    match ctx.driver_installed() {
        Some(why) => Expectation::Likely(why),
        None => Expectation::No,
    }
}
