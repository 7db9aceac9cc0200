//! What the rules about AMD's and Intel's GPUs share, since the kernel's DRM subsystem drives both: whose stack the consumer runs
//! on, who may open the nodes, what keeps a module from being loaded.

use crate::facts::{DeviceNode, Layer, PciDevice, ReachedBy, Reading, Vendor};
use crate::finding::{Finding, Fix, Severity, shell_line};
use crate::rules::Ctx;
use crate::rules::stack::{PASSTHROUGH_HOLDERS, in_words};

/// What makes a vendor's stack matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wants {
    /// `torch 2.8.0+rocm6.4`.
    pub(super) what: String,
    /// Where that was read.
    pub(super) source: String,
    /// Whether it is the consumer's own: what it runs is built for that stack. Else the stack is installed on the machine.
    pub(super) own: bool,
}

impl Ctx<'_> {
    /// Whose stack the consumer runs on: (1) what it is built for, (2) where that says nothing, whose stack is installed beside
    /// whose GPU, (3) whose GPUs alone are here.
    pub fn vendor(&self) -> Option<Vendor> {
        if self.wants_rocm().is_some_and(|wants| wants.own) {
            return Some(Vendor::Amd);
        }
        let consumer = &self.facts.consumer;
        let own = [
            ReachedBy::Environment,
            ReachedBy::Program,
            ReachedBy::Process,
        ];
        let cudart = self.facts.runtime.cudart.items().iter();
        let mut cudart = cudart.flat_map(|copy| &copy.reached_by);
        if consumer.torch_cuda.is_present() || cudart.any(|by| own.contains(by)) {
            return Some(Vendor::Nvidia);
        }
        if self.wants_xpu().is_some_and(|wants| wants.own) {
            return Some(Vendor::Intel);
        }
        if self.module_loaded() == Some(true) && self.gpus().next().is_some() {
            return Some(Vendor::Nvidia);
        }
        if self.amd_gpus().next().is_some() && self.wants_rocm().is_some() {
            return Some(Vendor::Amd);
        }
        if self.in_wsl() || self.on_tegra() || self.facts.driver.libcuda.is_present() {
            return Some(Vendor::Nvidia);
        }
        let mut here: Vec<Vendor> = self
            .facts
            .hardware
            .pci
            .items()
            .iter()
            .filter_map(PciDevice::gpu_of)
            .collect();
        here.sort_unstable();
        here.dedup();
        match here[..] {
            [vendor] => Some(vendor),
            [Vendor::Nvidia, ..] => Some(Vendor::Nvidia),
            _ => None,
        }
    }

    /// A vendor's GPUs on the PCI bus, without those that are kept for a virtual machine.
    pub(super) fn gpus_of(&self, vendor: Vendor) -> impl Iterator<Item = &PciDevice> {
        let is_kept = |d: &PciDevice| {
            let holder = d.driver.value().map(String::as_str);
            holder.is_some_and(|name| PASSTHROUGH_HOLDERS.contains(&name))
        };
        let pci = self.facts.hardware.pci.items().iter();
        pci.filter(move |d| d.gpu_of() == Some(vendor) && !is_kept(d))
    }

    /// Whether GPUs of this vendor are the only ones here, by the bus.
    pub(super) fn is_of_alone(&self, vendor: Vendor) -> bool {
        let pci = self.facts.hardware.pci.items().iter();
        let mut vendors = pci.filter_map(PciDevice::gpu_of).peekable();
        vendors.peek().is_some()
            && vendors.all(|other| other == vendor)
            && self.module_loaded() != Some(true)
    }

    /// What `open()` of one of these nodes answered: `ok` or an errno name.
    pub(super) fn drm_open(&self, path: &str) -> Option<&str> {
        let opens = self.facts.vendor.drm_opens.items().iter();
        let mut opens = opens.filter(|open| open.path == path);
        opens.next().map(|open| open.result.as_str())
    }
}

/// Those of these nodes that this user may not open, by `open()` where it was asked, else by their mode bits.
pub(super) fn refused<'a>(
    ctx: &Ctx<'_>,
    nodes: Vec<&'a DeviceNode>,
) -> Result<Vec<&'a DeviceNode>, String> {
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
    Ok(nodes.into_iter().filter(is_refused).collect())
}

/// What of nodes and user is evidence: of nodes of DRM and of NVIDIA's driver alike. `was_opened`: whether `open()` of one was asked,
/// else its mode bits tell.
pub(super) fn with_nodes(
    ctx: &Ctx<'_>,
    mut finding: Finding,
    nodes: &[&DeviceNode],
    was_opened: impl Fn(&str) -> bool,
) -> Finding {
    for node in nodes {
        let how = if was_opened(&node.path) {
            "open()"
        } else {
            "by its mode bits"
        };
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
pub(super) fn group(ctx: &Ctx<'_>, node: &DeviceNode) -> String {
    match group_name(ctx, node) {
        Some(name) => format!("{} ({name})", node.gid),
        None => node.gid.to_string(),
    }
}

pub(super) fn group_name<'a>(ctx: &'a Ctx<'_>, node: &DeviceNode) -> Option<&'a String> {
    ctx.facts.system.group_names.value()?.get(&node.gid)
}

/// Nodes that a stack opens, and how that is told.
pub(super) struct Access<'a> {
    /// The finding's id.
    pub(super) id: &'static str,
    pub(super) vendor: Vendor,
    pub(super) wants: Wants,
    /// The nodes that computing needs, those that are there.
    pub(super) needed: Vec<&'a DeviceNode>,
    /// How bad it is where no GPU can be opened.
    pub(super) severity: Severity,
    pub(super) detail: &'static str,
    /// What gives them to a container.
    pub(super) devices: &'static str,
    pub(super) source: &'static str,
    /// How to see that it worked.
    pub(super) verify: &'static str,
}

/// The user is in none of the groups that may open these nodes; `None` where there are none.
pub(super) fn permission(
    ctx: &Ctx<'_>,
    access: &Access<'_>,
    nodes: &[&DeviceNode],
) -> Option<Finding> {
    let first = nodes.first()?;
    let in_container = ctx.in_container();
    // One GPU of several may be kept from a user on purpose.
    let render = |nodes: &[&DeviceNode]| {
        nodes
            .iter()
            .filter(|n| n.path.starts_with("/dev/dri/"))
            .count()
    };
    let all = nodes.iter().any(|node| !node.path.starts_with("/dev/dri/"))
        || render(nodes) == render(&access.needed);
    let severity = if all {
        access.severity
    } else {
        Severity::Warning
    };
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
    let finding = Finding::new(
        access.id,
        layer,
        severity,
        format!(
            "{} {is} for {who}, and this user is not in it (EACCES)",
            in_words(&paths)
        ),
    )
    .of(access.vendor)
    .complaining(Layer::Runtime)
    .component(first.path.clone())
    .detail(access.detail)
    .evidence(
        "wants it",
        access.wants.what.clone(),
        access.wants.source.clone(),
    );
    let asked = |path: &str| ctx.drm_open(path).is_some();
    let finding = with_nodes(ctx, finding, nodes, asked).source(access.source);
    let fix = if in_container {
        let mut line = format!("docker run {}", access.devices);
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
    let finding = finding.fix(fix.verify(access.verify));
    if in_container {
        return Some(finding);
    }
    Some(
        finding.fix(
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
        ),
    )
}

/// What keeps a module from being loaded by itself, where something does: the line, and where it stands.
pub(super) fn blocked(ctx: &Ctx<'_>, module: &str) -> Option<(String, String)> {
    let line = ctx.facts.driver.modprobe.items().iter();
    let mut lines = line.filter(|line| line.blocks() == Some(module));
    if let Some(line) = lines.next() {
        return Some((line.text.clone(), line.file.clone()));
    }
    let names_it = |parameter: &&String| {
        let Some((name, value)) = parameter.split_once('=') else {
            return *parameter == "nomodeset";
        };
        [
            "modprobe.blacklist",
            "module_blacklist",
            "rd.driver.blacklist",
            "rdblacklist",
        ]
        .contains(&name)
            && value.split(',').any(|named| named == module)
    };
    let parameter = ctx.facts.system.cmdline.items().iter().find(names_it)?;
    Some((parameter.clone(), "/proc/cmdline".to_owned()))
}
