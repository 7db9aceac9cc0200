//! How a container is started right, for the engine at hand: the part of a fix that differs from engine to engine.

use crate::facts::Layer;
use crate::finding::Fix;
use crate::rules::Ctx;
use crate::rules::stack::verified;

impl Ctx<'_> {
    /// Who started this container, as exactly as is known.
    pub(in crate::rules) fn engine(&self) -> &str {
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

    /// Whether this container is a system of its own, in which the user space of the driver is installed by hand, rightly.
    pub(in crate::rules) fn is_system_container(&self) -> bool {
        matches!(self.engine(), "lxc" | "nspawn")
    }

    /// Whether this runs in a job of Slurm.
    pub(in crate::rules) fn in_slurm(&self) -> bool {
        let glue = self.facts.container.glue.value();
        self.env("SLURM_JOB_ID").is_some() || glue.is_some_and(|glue| glue.job.is_present())
    }
}

/// Start it with its GPUs.
pub(super) fn with_gpus(ctx: &Ctx<'_>) -> Fix {
    let fix = match ctx.engine() {
        // Without NVML there the runtime goes by the lists of the Jetson, which --gpus does not read.
        "docker" | "container" if ctx.on_tegra() => Fix::at(Layer::Container, "start the container with NVIDIA's runtime, which brings what the lists of a Jetson name: docker run --runtime nvidia; --gpus does not")
            .line("docker run --runtime nvidia IMAGE"),
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
        "nspawn" => Fix::at(Layer::Container, "on the host, bind the devices and allow them (systemd-nspawn --bind=/dev/nvidia0 --bind=/dev/nvidiactl --bind=/dev/nvidia-uvm, DeviceAllow= in its unit), and bind or install the driver's libraries of the host's version"),
        "enroot" if ctx.in_slurm() => Fix::at(Layer::Container, "ask Slurm for GPUs, and for both capabilities where the image does not: enroot gives nothing where NVIDIA_VISIBLE_DEVICES is not set, and no libcuda where the capabilities are not")
            .line("NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility srun --gpus=1 --container-image=IMAGE PROGRAM"),
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
        // A CDI specification brings all libraries, whatever the variable says.
        "podman" => Fix::at(Layer::Container, "start the container with its GPUs by CDI, which brings all libraries, whatever NVIDIA_DRIVER_CAPABILITIES says; where the specification does not have them all, generate it again on the host")
            .line("podman run --device nvidia.com/gpu=all IMAGE"),
        "kubernetes" | "containerd" | "cri-o" => Fix::at(Layer::Container, format!("set {BOTH} in the env of the container of the pod, or in the image")),
        "enroot" => Fix::at(Layer::Container, format!("set {BOTH} before the container is started: enroot takes `utility` alone where nobody says"))
            .line(format!("NVIDIA_VISIBLE_DEVICES=all {BOTH} enroot start NAME")),
        "lxc" => Fix::at(Layer::Container, "on the host, give the instance both capabilities")
            .line("incus config set NAME nvidia.driver.capabilities=compute,utility"),
        _ => Fix::at(Layer::Container, format!("ask for both capabilities: {BOTH}, and in a device request capabilities: [gpu, compute, utility]")),
    };
    verified(ctx, fix.cost("restart of the container"))
}

/// Start it with the group of the device nodes, which is the host's, by its number: names inside may mean others.
pub(in crate::rules) fn with_group(ctx: &Ctx<'_>, gid: u32) -> Fix {
    let rootless = ctx
        .facts
        .container
        .glue
        .value()
        .is_some_and(|glue| glue.rootless.value() == Some(&true));
    let at = |summary: String| Fix::at(Layer::Container, summary);
    let fix = match ctx.engine() {
        "podman" if rootless => at(format!("on the host, be in group {gid}, and start the container with the groups that you have there"))
            .line("podman run --group-add keep-groups --device nvidia.com/gpu=all IMAGE"),
        "podman" => at(format!("start the container with group {gid} of the nodes as well"))
            .line(format!("podman run --group-add {gid} --device nvidia.com/gpu=all IMAGE")),
        "kubernetes" | "containerd" | "cri-o" | "gke" => at(format!("give the pod group {gid} of the nodes: securityContext.supplementalGroups: [{gid}]")),
        "apptainer" | "enroot" => at(format!("on the host, add the user to group {gid} and log in anew: user and groups in here are those of the host")),
        "lxc" | "nspawn" => at(format!("in the container, make a group of number {gid} and add the user to it")),
        _ if ctx.on_tegra() => at(format!("start the container with group {gid} of the nodes as well"))
            .line(format!("docker run --runtime nvidia --group-add {gid} IMAGE")),
        _ => at(format!("start the container with group {gid} of the nodes as well"))
            .line(format!("docker run --gpus all --group-add {gid} IMAGE")),
    };
    verified(ctx, fix.cost("restart of the container"))
}
