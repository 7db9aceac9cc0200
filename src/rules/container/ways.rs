//! How a container is started right, for the engine at hand: the part of a fix that differs from engine to engine.

use crate::facts::Layer;
use crate::finding::Fix;
use crate::rules::Ctx;
use crate::rules::stack::verified;

impl Ctx<'_> {
    /// Who started this container, as exactly as is known.
    pub(super) fn engine(&self) -> &str {
        self.facts
            .container
            .glue
            .value()
            .map(|glue| glue.engine.as_str())
            .or_else(|| {
                let container = self.facts.system.container.value();
                container.map(|container| container.kind.as_str())
            })
            .unwrap_or("container")
    }
}

/// Start it with its GPUs.
pub(super) fn with_gpus(ctx: &Ctx<'_>) -> Fix {
    let fix = match ctx.engine() {
        "docker" => Fix::at(Layer::Container, "start the container with its GPUs: docker run --gpus all; in a compose file, a device request with capabilities: [gpu]")
            .line("docker run --gpus all IMAGE"),
        "podman" => Fix::at(Layer::Container, "start the container with its GPUs: podman run --device nvidia.com/gpu=all; the host needs a CDI specification")
            .line("podman run --device nvidia.com/gpu=all IMAGE"),
        "kubernetes" | "containerd" | "cri-o" => Fix::at(Layer::Container, "give the container of the pod a GPU: resources.limits nvidia.com/gpu: 1, and runtimeClassName: nvidia where nvidia is not the default runtime of the node"),
        "gke" => Fix::at(Layer::Container, "give the container of the pod a GPU: resources.limits nvidia.com/gpu: 1; the driver then lies in /usr/local/nvidia, whose lib64 has to be in LD_LIBRARY_PATH"),
        "apptainer" => Fix::at(Layer::Container, "start it with --nv, which brings the host's driver libraries in")
            .line("apptainer exec --nv IMAGE PROGRAM"),
        "lxc" => Fix::at(Layer::Container, "on the host, give the instance a gpu device and the driver's libraries")
            .line("incus config device add NAME gpu gpu")
            .line("incus config set NAME nvidia.runtime=true"),
        "enroot" => Fix::at(Layer::Container, "ask for GPUs and for both capabilities before the container is started: enroot gives nothing where NVIDIA_VISIBLE_DEVICES is not set, and no libcuda where the capabilities are not")
            .line("NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility enroot start NAME"),
        _ => Fix::at(Layer::Container, "start the container with its GPUs: docker run --gpus all, podman run --device nvidia.com/gpu=all, or a GPU in the pod's resource limits"),
    };
    verified(ctx, fix.cost("restart of the container"))
}

/// Start it with these capabilities.
pub(super) fn with_capabilities(ctx: &Ctx<'_>) -> Fix {
    const BOTH: &str = "NVIDIA_DRIVER_CAPABILITIES=compute,utility";
    let fix = match ctx.engine() {
        "docker" => Fix::at(Layer::Container, format!("ask for both capabilities: {BOTH}, and in a device request of a compose file capabilities: [gpu, compute, utility]"))
            .line(format!("docker run --gpus all -e {BOTH} IMAGE")),
        "kubernetes" | "containerd" | "cri-o" => Fix::at(Layer::Container, format!("set {BOTH} in the env of the container of the pod, or in the image")),
        "enroot" => Fix::at(Layer::Container, format!("set {BOTH} before the container is started: enroot takes `utility` alone where nobody says"))
            .line(format!("NVIDIA_VISIBLE_DEVICES=all {BOTH} enroot start NAME")),
        "lxc" => Fix::at(Layer::Container, "on the host, give the instance both capabilities")
            .line("incus config set NAME nvidia.driver.capabilities=compute,utility"),
        _ => Fix::at(Layer::Container, format!("ask for both capabilities: {BOTH}, and in a device request capabilities: [gpu, compute, utility]")),
    };
    verified(ctx, fix.cost("restart of the container"))
}
