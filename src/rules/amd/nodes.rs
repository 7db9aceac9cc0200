//! Nodes in `/dev`: `/dev/kfd` and render nodes, with their groups, on hosts and in containers.

use super::VERIFY;
use crate::facts::{DeviceNode, Layer, Reading, Vendor};
use crate::finding::{Finding, Fix, Severity, shell_line};
use crate::rules::drm::{self, Access};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome};

/// Whether only root can ever open a node.
fn is_for_root_alone(node: &DeviceNode) -> bool {
    node.mode & 0o006 != 0o006 && (node.mode & 0o060 != 0o060 || node.gid == 0)
}

/// Nobody but root may open `/dev/kfd`: no udev rule gave it a group.
pub(super) fn root_only(ctx: &Ctx<'_>) -> Outcome {
    if ctx.in_container() || !ctx.plain_linux() || ctx.vendor() != Some(Vendor::Amd) {
        return Outcome::Clean;
    }
    // A kernel whose KFD has no GPU computes for nobody.
    if ctx.kfd_gpus().is_empty() {
        return Outcome::Clean;
    }
    let nodes = match drm::refused(ctx, ctx.amd_nodes()) {
        Ok(nodes) => nodes,
        Err(reason) => return Outcome::unknown(reason),
    };
    let Some(kfd) = nodes
        .iter()
        .find(|node| node.path == "/dev/kfd" && is_for_root_alone(node))
    else {
        return Outcome::Clean;
    };
    // As the render nodes have it, else as systemd's own rule has it.
    let render = ctx
        .facts
        .drm
        .render
        .items()
        .iter()
        .find_map(|render| render.node.value());
    let group = render
        .filter(|node| node.gid != 0)
        .map_or("render".to_owned(), |node| {
            let named = drm::group_name(ctx, node).cloned();
            named.unwrap_or_else(|| if node.gid == 44 { "video" } else { "render" }.to_owned())
        });
    let owner = if kfd.gid == 0 {
        "root:root".to_owned()
    } else {
        format!("root:{}", drm::group(ctx, kfd))
    };
    let finding = Finding::new("amd-node-root-only", Layer::System, Severity::Error, format!("/dev/kfd is {:04o} {owner}: only root can compute on the AMD GPU", kfd.mode))
        .of(Vendor::Amd)
        .complaining(Layer::Runtime)
        .component("/dev/kfd")
        .detail("The kernel makes the node for root alone; a udev rule has to give it a group. systemd brings one since release 240, AMD's packages bring theirs; here neither did it.");
    let rule = format!(
        "SUBSYSTEM==\"kfd\", KERNEL==\"kfd\", TAG+=\"uaccess\", GROUP=\"{group}\", MODE=\"0660\""
    );
    let asked = |path: &str| ctx.drm_open(path).is_some();
    Outcome::found([drm::with_nodes(ctx, finding, &[kfd], asked)
        .source("ROCm installation documentation: groups render and video; systemd: rules.d/50-udev-default.rules")
        .fix(Fix::at(Layer::System, format!("add a udev rule that gives /dev/kfd to group {group}, and the user to that group; log in anew"))
            .line(format!("echo {} | sudo tee /etc/udev/rules.d/70-kfd.rules", shell_line(&[&rule])))
            .line("sudo udevadm control --reload-rules && sudo udevadm trigger --subsystem-match=kfd")
            .line(format!("sudo usermod -aG {} \"$USER\"", shell_line(&[&group])))
            .cost("root, new login")
            .verify(VERIFY))])
}

/// The user is in none of the groups that may open the nodes.
pub(super) fn permission(ctx: &Ctx<'_>) -> Outcome {
    let Some(wants) = ctx
        .wants_rocm()
        .filter(|_| ctx.vendor() == Some(Vendor::Amd))
    else {
        return Outcome::Clean;
    };
    if ctx.in_wsl() || !ctx.in_container() && ctx.kfd_gpus().is_empty() {
        return Outcome::Clean;
    }
    let nodes = match drm::refused(ctx, ctx.amd_nodes()) {
        Ok(nodes) => nodes,
        Err(reason) => return Outcome::unknown(reason),
    };
    let in_container = ctx.in_container();
    let nodes: Vec<&DeviceNode> = nodes
        .into_iter()
        .filter(|node| in_container || node.path != "/dev/kfd" || !is_for_root_alone(node))
        .collect();
    Outcome::found(drm::permission(
        ctx,
        &Access {
            id: "amd-node-permission",
            vendor: Vendor::Amd,
            wants,
            needed: ctx.amd_nodes(),
            severity: Severity::Error,
            detail: "ROCm opens /dev/kfd and the render node of each GPU for reading and writing. As root it finds the GPU, as this user none.",
            devices: "--device=/dev/kfd --device=/dev/dri",
            source: "ROCm installation documentation: groups render and video",
            verify: VERIFY,
        },
        &nodes,
    ))
}

/// A container whose program is built for `ROCm`, on a host with an AMD GPU, was given no `/dev/kfd` or no render node.
pub(super) fn container_node_missing(ctx: &Ctx<'_>) -> Outcome {
    if !ctx.in_container() || ctx.in_wsl() {
        return Outcome::Clean;
    }
    let Some(wants) = ctx.wants_rocm().filter(|wants| wants.own) else {
        return Outcome::Clean;
    };
    // The host's /sys is seen from inside, whatever was given.
    if ctx.facts.amd.topology.value().is_none_or(Vec::is_empty) || ctx.kfd_gpus().is_empty() {
        return Outcome::Clean;
    }
    if let Reading::Unreadable { reason } = &ctx.facts.amd.kfd {
        return Outcome::unknown(reason.clone());
    }
    let render: Vec<&DeviceNode> = ctx
        .facts
        .drm
        .render
        .items()
        .iter()
        .filter_map(|render| render.node.value())
        .collect();
    let mut absent: Vec<String> = Vec::new();
    if ctx.facts.amd.kfd.is_absent() {
        absent.push("/dev/kfd".to_owned());
    }
    if render.is_empty() {
        if let Reading::Unreadable { reason } = &ctx.facts.drm.render {
            return Outcome::unknown(reason.clone());
        }
        absent.push("/dev/dri/renderD*".to_owned());
    }
    // What a device cgroup keeps is there and cannot be opened.
    let kept = ctx.drm_open("/dev/kfd") == Some("EPERM");
    if absent.is_empty() && !kept {
        return Outcome::Clean;
    }
    let title = if kept && absent.is_empty() {
        "/dev/kfd is in this container and its device cgroup forbids it (EPERM)".to_owned()
    } else {
        let is = if absent.len() == 1 { "is" } else { "are" };
        format!(
            "{} {is} not in this container, on a host with an AMD GPU: {} finds none",
            in_words(&absent),
            wants.what
        )
    };
    let gpus: Vec<String> = ctx
        .kfd_gpus()
        .into_iter()
        .map(|node| ctx.kfd_name(node))
        .collect();
    let mut finding = Finding::new("amd-container-node-missing", Layer::Container, Severity::Error, title)
        .of(Vendor::Amd)
        .complaining(Layer::Framework)
        .component("/dev/kfd")
        .detail("A container gets the host's AMD GPUs by device nodes alone: /dev/kfd, which all share, and a render node for each. The libraries come with the image.")
        .evidence("GPUs of the host", in_words(&gpus), ctx.facts.amd.topology.source())
        .evidence("wants it", wants.what, wants.source);
    for path in &absent {
        finding = finding.evidence(path.clone(), "absent", "/dev");
    }
    if kept {
        finding = finding.evidence("open /dev/kfd", "EPERM", "open()");
    }
    let numbers: Vec<String> = render
        .iter()
        .filter(|node| node.gid != 0)
        .map(|node| format!(" --group-add {}", node.gid))
        .take(1)
        .collect();
    let groups = if numbers.is_empty() {
        " --group-add video --group-add render".to_owned()
    } else {
        numbers.concat()
    };
    let engine = ctx.facts.system.container.value().map_or("docker", |c| {
        if c.kind == "podman" {
            "podman"
        } else {
            "docker"
        }
    });
    let fix = match ctx.facts.system.container.value().map(|c| c.kind.as_str()) {
        Some("kubernetes") => Fix::at(
            Layer::Container,
            "ask for `amd.com/gpu: 1` in the pod's limits; AMD's device plugin gives the nodes",
        ),
        _ => Fix::at(Layer::Container, "start the container with the nodes").line(format!(
            "{engine} run --device=/dev/kfd --device=/dev/dri{groups} IMAGE"
        )),
    };
    Outcome::found([finding
        .source("ROCm documentation: running ROCm in containers")
        .fix(fix.cost("restart of the container").verify(VERIFY))])
}
