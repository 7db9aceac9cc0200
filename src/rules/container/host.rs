//! What will go wrong when this host starts containers, beside specifications, engines and the toolkit: links that systemd
//! needs, and the GPU operator's steps. None of it breaks the host's own programs, so nothing here is worse than a warning.

use super::on_host;
use super::toolkit::by_cdi;
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};

/// Marks of the GPU operator in the order in which they are made (gpu-operator, `nvidia-validator`).
const MARKS: &[(&str, &str)] = &[
    ("driver-ready", "the driver"),
    ("toolkit-ready", "the container toolkit"),
    ("cuda-ready", "a CUDA program in a pod"),
    ("plugin-ready", "the device plugin"),
];
/// How older operators call the first of them where the driver is the host's own.
const OLDER_FIRST: &str = "host-driver-ready";

/// The links that systemd needs to know the devices of a container again.
pub(super) fn container_char_links_missing(ctx: &Ctx<'_>) -> Outcome {
    if !on_host(ctx) || !ctx.plain_linux() || ctx.module_loaded() != Some(true) {
        return Outcome::Clean;
    }
    let container = &ctx.facts.container;
    let toolkit = known!(container.toolkit, "container toolkit");
    // By CDI the engine knows the devices itself.
    if by_cdi(toolkit) {
        return Outcome::Clean;
    }
    let says = |config: &crate::facts::Reading<crate::facts::EngineConfig>| {
        config
            .value()
            .and_then(|config| config.cgroup_driver.clone())
    };
    let main =
        |config: &crate::facts::Reading<crate::facts::EngineConfig>| config.source().to_owned();
    // Docker's own default is systemd where systemd runs and cgroups are of version 2.
    let has_docker = container
        .engines
        .items()
        .iter()
        .any(|engine| engine.name == "docker");
    let docker = match says(&container.docker).as_deref() {
        Some("systemd") => Some(main(&container.docker)),
        None if has_docker && container.systemd_cgroups.value() == Some(&true) => {
            Some("Docker's default, with cgroup v2 and systemd".to_owned())
        }
        _ => None,
    };
    let other = [&container.containerd, &container.crio]
        .into_iter()
        .find(|config| says(config).as_deref() == Some("systemd"));
    let by_docker = docker.is_some();
    let Some(said_by) = docker.or_else(|| other.map(main)) else {
        return Outcome::Clean;
    };
    // Only nodes that are there can have a link.
    let nodes: Vec<_> = ctx
        .facts
        .driver
        .nodes
        .items()
        .iter()
        .filter(|node| node.major == 195)
        .collect();
    let links = match &container.char_links {
        crate::facts::Reading::Present { value, .. } => value.as_slice(),
        crate::facts::Reading::Absent { .. } => &[],
        crate::facts::Reading::Unreadable { reason } => {
            return Outcome::unknown(format!("/dev/char: {reason}"));
        }
    };
    let without: Vec<String> = nodes
        .iter()
        .filter(|node| !links.contains(&format!("{}:{}", node.major, node.minor)))
        .map(|node| node.path.clone())
        .collect();
    let Some(first) = without.first() else {
        return Outcome::Clean;
    };
    // A device plugin may hand the devices to the engine of a node (PASS_DEVICE_SPECS), which then knows them.
    let severity = if by_docker {
        Severity::Warning
    } else {
        Severity::Note
    };
    Outcome::found([Finding::new(
        "container-char-links-missing",
        Layer::Container,
        severity,
        format!("{first} has no link in /dev/char: running containers lose their GPUs at the next systemctl daemon-reload"),
    )
    .component("/dev/char")
    .detail("With the systemd cgroup driver, systemd writes the device rules of a container anew at a daemon-reload, and knows a device by its link in /dev/char. The legacy hook adds its rules behind systemd's back.")
    .evidence("without a link", in_words(&without), "/dev/char")
    .evidence("cgroup driver", "systemd", said_by)
    .source("NVIDIA container toolkit: notice on containers that lose access to GPUs")
    .fix(
        Fix::at(Layer::Container, "make the links, and have them made at every boot by a udev rule")
            .line("sudo nvidia-ctk system create-dev-char-symlinks --create-all")
            .cost("root")
            .verify("ls -l /dev/char/195:*"),
    )
    .fix(Fix::at(Layer::Container, "or let containers ask by CDI, so that the engine knows the devices").second("changes how containers are started"))])
}

/// Where the GPU operator has stopped.
pub(super) fn gpu_operator_stuck(ctx: &Ctx<'_>) -> Outcome {
    if !on_host(ctx) {
        return Outcome::Clean;
    }
    let marks = known!(
        ctx.facts.container.operator_marks,
        "marks of the GPU operator"
    );
    let has = |name: &str| {
        let older = name == "driver-ready" && marks.iter().any(|mark| mark == OLDER_FIRST);
        older || marks.iter().any(|mark| mark == name)
    };
    // A node that hands GPUs to virtual machines has other marks.
    if marks
        .iter()
        .any(|mark| mark.starts_with("vfio-") || mark.starts_with("vgpu-"))
    {
        return Outcome::Clean;
    }
    // A later mark says that an earlier one was not waited for: its part is switched off in the operator's settings.
    let passed = MARKS
        .iter()
        .rposition(|(mark, _)| has(mark))
        .map_or(0, |at| at + 1);
    let Some((mark, what)) = MARKS.get(passed) else {
        return Outcome::Clean;
    };
    // The plugin is rightly absent where claims (DRA) take its place.
    // The folder alone is also what an operator that was taken away leaves until the next boot.
    let severity = if *mark == "plugin-ready" || marks.is_empty() {
        Severity::Note
    } else {
        Severity::Warning
    };
    let done: Vec<String> = MARKS
        .iter()
        .filter(|(mark, _)| has(mark))
        .map(|(mark, _)| (*mark).to_owned())
        .collect();
    let seen = if done.is_empty() {
        "none".to_owned()
    } else {
        in_words(&done)
    };
    let pod = match *mark {
        "driver-ready" => "nvidia-driver-daemonset",
        "toolkit-ready" => "nvidia-container-toolkit-daemonset",
        "cuda-ready" => "nvidia-cuda-validator",
        _ => "nvidia-device-plugin-daemonset",
    };
    Outcome::found([Finding::new(
        "gpu-operator-stuck",
        Layer::Container,
        severity,
        format!("the GPU operator has not seen {what} work on this node: {mark} is missing in /run/nvidia/validations"),
    )
    .component("gpu-operator")
    .detail("The operator's validators run one after another, and each leaves a file where its part works. The first that is missing is where it waits; pods that ask for a GPU stay pending.")
    .evidence("marks that are there", seen, "/run/nvidia/validations")
    .evidence("first one missing", *mark, "/run/nvidia/validations")
    .source("gpu-operator sources: nvidia-validator")
    .fix(
        Fix::at(Layer::Container, format!("look into the pod of this node that is to make it: {pod}"))
            .line(format!("kubectl -n gpu-operator logs -l app={pod} --all-containers --tail=50"))
            .verify("gpudoctor"),
    )])
}
