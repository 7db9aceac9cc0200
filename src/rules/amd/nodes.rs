//! Nodes in `/dev`: `/dev/kfd` and render nodes, with their groups, on hosts and in containers.

use super::VERIFY;
use crate::facts::{DeviceNode, Layer, Reading, Vendor};
use crate::finding::{Finding, Fix, Severity, shell_line};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome};

/// Nodes that this user may not open, by `open()` where it was asked, else by their mode bits.
fn refused<'a>(ctx: &'a Ctx<'_>) -> Result<Vec<&'a DeviceNode>, String> {
    let user = match &ctx.facts.system.user {
        Reading::Present { value, .. } => value,
        other => return Err(format!("the user: {}", other.source())),
    };
    let is_refused = |node: &&DeviceNode| {
        let by_mode = node.is_char && !user.may_read_write(node.mode, node.uid, node.gid);
        match ctx.drm_open(&node.path) {
            Some(result) if !ctx.asked_as_nobody() => result == "EACCES" && by_mode,
            _ => by_mode && node.acl.value() != Some(&true),
        }
    };
    Ok(ctx.amd_nodes().into_iter().filter(is_refused).collect())
}

/// What of nodes and user is evidence.
fn with_nodes(ctx: &Ctx<'_>, mut finding: Finding, nodes: &[&DeviceNode]) -> Finding {
    for node in nodes {
        let how = ctx
            .drm_open(&node.path)
            .map_or("by its mode bits", |_| "open()");
        finding = finding.evidence(
            format!("open {}", node.path),
            "EACCES",
            format!(
                "{how}; mode {:04o}, owner {}, group {}",
                node.mode,
                node.uid,
                group(ctx, node)
            ),
        );
    }
    let user = ctx.facts.system.user.value();
    let groups = user.map(|user| {
        user.groups
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    });
    finding.evidence(
        "groups of this user",
        groups.unwrap_or_default(),
        ctx.facts.system.user.source(),
    )
}

/// A node's group by number and, where known, name.
fn group(ctx: &Ctx<'_>, node: &DeviceNode) -> String {
    match group_name(ctx, node) {
        Some(name) => format!("{} ({name})", node.gid),
        None => node.gid.to_string(),
    }
}

fn group_name<'a>(ctx: &'a Ctx<'_>, node: &DeviceNode) -> Option<&'a String> {
    ctx.facts.system.group_names.value()?.get(&node.gid)
}

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
    let nodes = match refused(ctx) {
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
            let named = group_name(ctx, node).cloned();
            named.unwrap_or_else(|| if node.gid == 44 { "video" } else { "render" }.to_owned())
        });
    let owner = if kfd.gid == 0 {
        "root:root".to_owned()
    } else {
        format!("root:{}", self::group(ctx, kfd))
    };
    let finding = Finding::new("amd-node-root-only", Layer::System, Severity::Error, format!("/dev/kfd is {:04o} {owner}: only root can compute on the AMD GPU", kfd.mode))
        .of(Vendor::Amd)
        .complaining(Layer::Runtime)
        .component("/dev/kfd")
        .detail("The kernel makes the node for root alone; a udev rule has to give it a group. systemd brings one since release 240, AMD's packages bring theirs; here neither did it.");
    let rule = format!(
        "SUBSYSTEM==\"kfd\", KERNEL==\"kfd\", TAG+=\"uaccess\", GROUP=\"{group}\", MODE=\"0660\""
    );
    Outcome::found([with_nodes(ctx, finding, &[kfd])
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
    let nodes = match refused(ctx) {
        Ok(nodes) => nodes,
        Err(reason) => return Outcome::unknown(reason),
    };
    let in_container = ctx.in_container();
    let nodes: Vec<&DeviceNode> = nodes
        .into_iter()
        .filter(|node| in_container || node.path != "/dev/kfd" || !is_for_root_alone(node))
        .collect();
    let Some(first) = nodes.first() else {
        return Outcome::Clean;
    };
    // One GPU of several may be kept from a user on purpose.
    let render = |nodes: &[&DeviceNode]| {
        nodes
            .iter()
            .filter(|n| n.path.starts_with("/dev/dri/"))
            .count()
    };
    let all = nodes.iter().any(|node| node.path == "/dev/kfd")
        || render(&nodes) == render(&ctx.amd_nodes());
    let paths: Vec<String> = nodes.iter().map(|node| node.path.clone()).collect();
    let mut groups: Vec<String> = Vec::new();
    let mut numbers: Vec<u32> = Vec::new();
    for node in nodes
        .iter()
        .filter(|node| node.gid != 0 && node.mode & 0o060 == 0o060)
    {
        let name = group_name(ctx, node)
            .cloned()
            .unwrap_or_else(|| node.gid.to_string());
        if !groups.contains(&name) {
            groups.push(name);
            numbers.push(node.gid);
        }
    }
    let is = if nodes.len() == 1 { "is" } else { "are" };
    let who = if groups.is_empty() {
        "root".to_owned()
    } else {
        format!("group {}", in_words(&groups))
    };
    let layer = if in_container {
        Layer::Container
    } else {
        Layer::System
    };
    let finding = Finding::new("amd-node-permission", layer, if all { Severity::Error } else { Severity::Warning }, format!("{} {is} for {who}, and this user is not in it (EACCES)", in_words(&paths)))
        .of(Vendor::Amd)
        .complaining(Layer::Runtime)
        .component(first.path.clone())
        .detail("ROCm opens /dev/kfd and the render node of each GPU for reading and writing. As root it finds the GPU, as this user none.")
        .evidence("wants it", wants.what, wants.source);
    let finding = with_nodes(ctx, finding, &nodes)
        .source("ROCm installation documentation: groups render and video");
    let fix = if in_container {
        let mut line = "docker run --device=/dev/kfd --device=/dev/dri".to_owned();
        for number in &numbers {
            line = format!("{line} --group-add {number}");
        }
        Fix::at(Layer::Container, "start the container with the host's groups by their numbers: names inside may mean others")
            .line(format!("{line} IMAGE"))
            .cost("restart of the container")
    } else if groups.is_empty() {
        Fix::at(
            Layer::System,
            "give the nodes a group by a udev rule, and the user that group",
        )
        .cost("root")
    } else {
        let list = groups.join(",");
        Fix::at(
            Layer::System,
            format!("add the user to {who} and log in anew"),
        )
        .line(format!(
            "sudo usermod -aG {} \"$USER\"",
            shell_line(&[&list])
        ))
        .cost("root, new login")
    };
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let finding = finding.fix(fix.verify(VERIFY));
    if in_container {
        return Outcome::found([finding]);
    }
    Outcome::found([finding.fix(
        Fix::at(
            Layer::System,
            "until the next boot, let this user alone use them",
        )
        .line(format!(
            "sudo setfacl -m u:\"$USER\":rw {}",
            shell_line(&paths)
        ))
        .cost("root")
        .second("is gone after a reboot"),
    )])
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
