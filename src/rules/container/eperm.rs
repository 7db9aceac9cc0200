//! A node that is there and whose mode allows it, and `open()` says EPERM: a device control group. Whose that is differs from
//! engine to engine: Apptainer and enroot make none, theirs is the one of the job or the unit that they were started in.

use super::with_request;
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::{in_words, verified, with_cu_init};
use crate::rules::system::needed_by_cuda;
use crate::rules::{Ctx, Outcome};

/// Rules of a control group that are shown.
const RULES_TOLD: usize = 8;

/// Who made the device control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The engine, for this container.
    Engine,
    /// A job of Slurm, around it.
    Job,
    /// A unit or session around it.
    Outside,
}

impl Owner {
    fn of(ctx: &Ctx<'_>) -> Self {
        match ctx.engine() {
            "apptainer" | "enroot" if ctx.in_slurm() => Self::Job,
            "apptainer" | "enroot" => Self::Outside,
            _ => Self::Engine,
        }
    }
}

/// EPERM on a node whose mode allows it.
pub(super) fn container_device_eperm(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container() {
        return Outcome::Clean;
    }
    let refused: Vec<_> = ctx
        .facts
        .driver
        .nodes
        .items()
        .iter()
        .filter(|n| needed_by_cuda(&n.path) && ctx.open_result(&n.path) == Some("EPERM"))
        .collect();
    let Some(first) = refused.first() else {
        return Outcome::Clean;
    };
    if ctx.cuda_works() {
        return Outcome::Clean;
    }
    let owner = Owner::of(ctx);
    let glue = ctx.facts.container.glue.value();
    let job = glue.and_then(|glue| glue.job.value());
    let whose = match owner {
        Owner::Engine => "this container's device cgroup".to_owned(),
        Owner::Job => format!(
            "the device cgroup of the Slurm job{}",
            job.map_or_else(String::new, |job| format!(" ({job})"))
        ),
        Owner::Outside => "the device cgroup that this container was started in".to_owned(),
    };
    let detail = match owner {
        Owner::Engine => {
            "The nodes are in the container, but its cgroup has no rule for them. Either they were mounted by hand, or the rules were lost: systemd writes a container's device rules anew on `systemctl daemon-reload`, and forgets those that a hook had added."
        }
        Owner::Job => {
            "Apptainer and enroot make no device cgroup of their own. Slurm makes one for the job (ConstrainDevices), with the GPUs that the job was given and no others: the nodes of all GPUs are seen, and those of others cannot be opened."
        }
        Owner::Outside => {
            "Apptainer and enroot make no device cgroup of their own: it is the one of the service, session or outer container that they were started in."
        }
    };
    let paths: Vec<String> = refused.iter().map(|n| n.path.clone()).collect();
    let mut finding = Finding::new(
        "container-device-eperm",
        Layer::Container,
        Severity::Error,
        format!(
            "{} cannot be opened (EPERM) although mode {:04o} allows it: {whose} forbids it",
            in_words(&paths),
            first.mode
        ),
    )
    .complaining(Layer::Driver)
    .component("device cgroup")
    .detail(detail)
    .source("NVIDIA container toolkit: notice on containers that lose access to GPUs");
    for node in &refused {
        finding = finding.evidence(
            format!("open {}", node.path),
            "EPERM",
            format!(
                "open(); mode {:04o}, owner {}:{}",
                node.mode, node.uid, node.gid
            ),
        );
    }
    if let Some(glue) = glue {
        let rules = glue.device_rules.items();
        if !rules.is_empty() {
            let told: Vec<&str> = rules.iter().take(RULES_TOLD).map(String::as_str).collect();
            let more = rules.len().saturating_sub(told.len());
            let more = match more {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            finding = finding.evidence(
                "rules of the device cgroup",
                format!("{}{more}", told.join(", ")),
                glue.device_rules.source(),
            );
        }
        if glue.rootless.value() == Some(&true) {
            finding = finding.evidence(
                "root in here",
                "another user outside (rootless)",
                glue.rootless.source(),
            );
        }
    }
    if owner == Owner::Job
        && let Some(glue) = glue
        && let Some(job) = glue.job.value()
    {
        finding = finding.evidence("job", job.clone(), glue.job.source());
    }
    let mut finding = with_cu_init(ctx, with_request(ctx, finding));
    for fix in fixes(ctx, owner, &paths) {
        finding = finding.fix(fix);
    }
    Outcome::found([finding])
}

/// What mends it, for the engine at hand.
fn fixes(ctx: &Ctx<'_>, owner: Owner, paths: &[String]) -> Vec<Fix> {
    const RESTART: &str = "restart of the container";
    let at = |summary: &str| Fix::at(Layer::Container, summary);
    // The rules of a hook are lost at a daemon-reload; those that the engine itself knows are not.
    let links = || {
        at("on the host, make the links in /dev/char that systemd needs to keep the rules over a daemon-reload")
            .line("sudo nvidia-ctk system create-dev-char-symlinks --create-all")
            .cost("root on the host")
    };
    let rootless = ctx
        .facts
        .container
        .glue
        .value()
        .is_some_and(|glue| glue.rootless.value() == Some(&true));
    match (owner, ctx.engine()) {
        (Owner::Job, "enroot") => vec![verified(ctx, at("ask Slurm for GPUs when the job is started: it lets the job use those alone")
            .line("srun --gpus=1 --container-image=IMAGE PROGRAM")
            .cost("a new job"))],
        (Owner::Job, _) => vec![verified(ctx, at("ask Slurm for GPUs when the job is started: it lets the job use those alone")
            .line("srun --gpus=1 apptainer exec --nv IMAGE PROGRAM")
            .cost("a new job"))],
        (Owner::Outside, engine) => vec![verified(ctx, at(&format!("let what {engine} was started in use the devices: DeviceAllow= lines for /dev/nvidiactl, /dev/nvidia-uvm and the GPUs in the service, a GPU from the batch system, or GPUs for the outer container"))
            .cost(RESTART))],
        (_, "docker") => vec![
            verified(ctx, at("start the container anew, with its GPUs given by --gpus or as devices (--device), so that the engine knows the rules")
                .line("docker run --gpus all IMAGE")
                .cost(RESTART)),
            links(),
        ],
        (_, "podman") if rootless => vec![
            verified(ctx, at("start the container anew, with its GPUs given by CDI: a rootless Podman has no device rules of its own to add to")
                .line("podman run --device nvidia.com/gpu=all IMAGE")
                .cost(RESTART)),
            at("on the host, set no-cgroups = true under [nvidia-container-cli] in the toolkit's config.toml")
                .cost("root on the host")
                .second("only where Podman still uses the old hook in place of CDI"),
        ],
        (_, "podman") => vec![
            verified(ctx, at("start the container anew, with its GPUs given by CDI, so that Podman knows the rules")
                .line("podman run --device nvidia.com/gpu=all IMAGE")
                .cost(RESTART)),
            links(),
        ],
        (_, "kubernetes" | "containerd" | "cri-o" | "gke") => vec![
            verified(ctx, at("start the pod anew with the GPU from the device plugin: resources.limits nvidia.com/gpu: 1. Nodes that are mounted by hostPath come without rules")
                .cost("restart of the pod")),
            at("on the node, make the links in /dev/char that systemd needs to keep the rules over a daemon-reload; the GPU operator does so by itself")
                .line("sudo nvidia-ctk system create-dev-char-symlinks --create-all")
                .cost("root on the node"),
        ],
        (_, "lxc") => {
            let plain = at(&format!("without Incus or LXD, allow the devices in the container's configuration on the host: lxc.cgroup2.devices.allow = c MAJOR:* rwm, for the majors {}", majors(ctx, paths)))
                .cost("root on the host, restart of the container");
            vec![
                verified(ctx, at("on the host, give the instance a gpu device, which brings the rules along")
                    .line("incus config device add NAME gpu gpu")
                    .cost(RESTART)),
                plain,
            ]
        }
        (_, "nspawn") => vec![verified(ctx, at(&format!("on the host, allow the devices in the unit of the container (systemctl edit systemd-nspawn@NAME): under [Service] {}", allow_lines(paths)))
            .cost("root on the host, restart of the container"))],
        _ => vec![
            verified(ctx, at("start the container anew; give it its GPUs as devices (CDI, or --gpus), so that the engine knows the rules")
                .cost(RESTART)),
            links(),
        ],
    }
}

/// The numbers of these nodes' drivers.
fn majors(ctx: &Ctx<'_>, paths: &[String]) -> String {
    let mut all: Vec<String> = Vec::new();
    for node in paths.iter().filter_map(|path| ctx.facts.driver.node(path)) {
        let major = node.major.to_string();
        if !all.contains(&major) {
            all.push(major);
        }
    }
    in_words(&all)
}

/// Lines of a unit that allow these nodes.
fn allow_lines(paths: &[String]) -> String {
    let lines: Vec<String> = paths
        .iter()
        .map(|path| format!("DeviceAllow={path} rw"))
        .collect();
    in_words(&lines)
}
