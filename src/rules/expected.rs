//! Whether a GPU is expected here: the table of the design. A loaded module or `--expect-gpu` makes its absence an
//! error; an installed driver a warning; CUDA wheels, toolkits, stubs, compat copies and a lone `/dev/nvidiactl` say
//! nothing, since build hosts have all of these.

use super::Ctx;
use super::container::has_gpu_node;

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
        if let Some(path) = injected.filter(|_| !ctx.declines_gpus()) {
            return Expectation::Yes(format!("{path} was mounted into this container"));
        }
        // Every image built on nvidia/cuda carries NVIDIA_VISIBLE_DEVICES=all: by itself it is a wish, not a request.
        return if ctx.asks_for_gpus() {
            Expectation::Likely("NVIDIA_VISIBLE_DEVICES asks for GPUs".to_owned())
        } else {
            Expectation::No
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

/// What says in a container that a GPU is wanted there.
impl Ctx<'_> {
    /// `NVIDIA_VISIBLE_DEVICES`, without the blanks that the toolkit trims as well.
    fn visible_devices(&self) -> Option<&str> {
        self.env("NVIDIA_VISIBLE_DEVICES").map(str::trim)
    }

    /// Whether the variable names GPUs.
    pub fn asks_for_gpus(&self) -> bool {
        self.visible_devices()
            .is_some_and(|value| !matches!(value, "" | "void" | "none"))
    }

    /// Whether the variable asks for the driver's files without a GPU, and nothing else asks for one.
    pub fn declines_gpus(&self) -> bool {
        self.visible_devices() == Some("none") && !self.expect_gpu && !has_gpu_node(self)
    }

    /// Whether files or nodes of the driver were mounted into this container.
    pub(super) fn driver_was_mounted(&self) -> bool {
        let container = self.facts.system.container.value();
        container.is_some_and(|container| !container.injected.is_empty())
    }

    /// Whether this container was given a GPU, or something of it that something in it wants: what is amiss with it then
    /// matters. On a host that has a GPU any container sees it on the bus, a privileged one and Apptainer's have its
    /// nodes, and the variable is one of any image of CUDA.
    pub(super) fn was_given_a_gpu(&self) -> bool {
        if self.expect_gpu {
            return true;
        }
        if self.declines_gpus() {
            return false;
        }
        self.driver_was_mounted()
            || has_gpu_node(self) && self.engine() != "apptainer" && self.wants_a_gpu().is_some()
    }
}
