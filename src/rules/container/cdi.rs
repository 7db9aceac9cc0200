//! The CDI specifications of a host, of NVIDIA GPUs: whether containers that ask by them will start. Which kinds those are is
//! the matrix's business; network cards and whatever else is described by CDI are not judged, and no fix names their files.

use crate::facts::{CdiSpec, Layer, MissingNode};
use crate::finding::{Finding, Fix, Severity, shell_quote};
use crate::matrix::CdiKind;
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::{file_name, parent};

/// The folder that wins over `/etc/cdi`.
const LATER: &str = "/var/run/cdi";
/// Devices that are named in a sentence.
const NAMES_TOLD: usize = 3;

/// What is wrong with a specification.
struct Fault {
    /// In words that follow on its path.
    what: String,
    /// Devices that cannot be had; `None`: which it has is not known.
    devices: Option<Vec<String>>,
    /// Containers may start all the same, with libraries of another driver.
    may_start: bool,
}

/// A specification that no engine takes, or that names what is not here.
pub(super) fn cdi_spec_stale(ctx: &Ctx<'_>) -> Outcome {
    if !super::on_host(ctx) {
        return Outcome::Clean;
    }
    let specs = known!(ctx.facts.container.cdi_specs, "CDI specifications");
    let findings = specs.iter().filter_map(|spec| {
        let row = kind_of_gpus(ctx, &spec.kind)?;
        let fault = fault(ctx, spec)?;
        let same = || specs.iter().filter(|other| other.kind == spec.kind);
        // What a later folder has in its place is what counts.
        let served = |device: &String| {
            same().any(|other| is_later(other, spec) && other.devices.contains(device))
        };
        let lost: Vec<String> = fault.devices.as_ref().map_or_else(Vec::new, |devices| {
            let left = devices.iter().filter(|device| !served(device));
            left.cloned().collect()
        });
        if fault.devices.is_some() && lost.is_empty() {
            return None;
        }
        let beside = same().find(|other| {
            other.path != spec.path
                && fault_free(ctx, other)
                && (is_later(other, spec) || lost.is_empty())
        });
        Some(stale(ctx, spec, row, &fault, &lost, beside))
    });
    Outcome::found(findings.collect::<Vec<_>>())
}

fn kind_of_gpus<'a>(ctx: &Ctx<'a>, kind: &str) -> Option<&'a CdiKind> {
    ctx.matrix.cdi_kinds().iter().find(|row| row.kind == kind)
}

fn fault_free(ctx: &Ctx<'_>, spec: &CdiSpec) -> bool {
    spec.problem.is_none() && fault(ctx, spec).is_none()
}

/// What is wrong with one.
fn fault(ctx: &Ctx<'_>, spec: &CdiSpec) -> Option<Fault> {
    if let Some(problem) = &spec.problem {
        return (!problem.contains("permission denied")).then(|| Fault {
            what: format!("is no CDI specification that engines take ({problem})"),
            devices: None,
            may_start: false,
        });
    }
    let running = ctx.module_loaded() == Some(true);
    let loaded = ctx.loaded_version().filter(|_| ctx.plain_linux());
    let other = spec.driver.as_ref().zip(loaded);
    if let Some((driver, loaded)) = other.filter(|(driver, loaded)| driver != loaded) {
        return Some(Fault {
            what: format!("is for driver {driver}, and {loaded} is loaded"),
            devices: Some(spec.devices.clone()),
            may_start: true,
        });
    }
    // Sockets and nodes are made anew at each boot: of a disk, or without the driver, nothing can be said.
    let of_this_boot = |path: &str| {
        ["/run/", "/var/run/", "/dev/", "/tmp/", "/proc/"]
            .iter()
            .any(|folder| path.starts_with(folder))
    };
    let file = |path: &&String| running || !of_this_boot(path);
    let missing = spec
        .missing
        .iter()
        .filter(file)
        .max_by_key(|path| file_name(path).starts_with("libcuda.so"))
        .map(|path| format!("mounts {path}, which is not there"));
    let hook = || {
        let hook = spec.missing_hooks.iter().find(file)?;
        Some(format!("runs {hook}, which is not there"))
    };
    if let Some(what) = missing.or_else(hook) {
        // An older snapshot does not say which devices it is about.
        let devices = if spec.broken_devices.is_empty() {
            &spec.devices
        } else {
            &spec.broken_devices
        };
        return Some(Fault {
            what,
            devices: Some(devices.clone()),
            may_start: false,
        });
    }
    let nodes = missing_nodes(ctx, spec);
    let node = nodes.first()?;
    let is_broken = |device: &&String| nodes.iter().any(|node| node.devices.contains(device));
    Some(Fault {
        what: format!("names {}, which is not there", node.path),
        devices: Some(spec.devices.iter().filter(is_broken).cloned().collect()),
        may_start: false,
    })
}

/// Nodes that are missing for sure: where no node at all is there yet, they are made on first use.
fn missing_nodes<'a>(ctx: &Ctx<'_>, spec: &'a CdiSpec) -> Vec<&'a MissingNode> {
    let here = ctx.facts.driver.nodes.items();
    if ctx.module_loaded() != Some(true) || here.is_empty() {
        return Vec::new();
    }
    let is_here = |path: &str| here.iter().any(|node| node.path == path);
    let missing = spec.missing_nodes.iter();
    missing.filter(|node| !is_here(&node.path)).collect()
}

fn stale(
    ctx: &Ctx<'_>,
    spec: &CdiSpec,
    row: &CdiKind,
    fault: &Fault,
    lost: &[String],
    beside: Option<&CdiSpec>,
) -> Finding {
    let named: Vec<String> = lost
        .iter()
        .map(|name| format!("{}={name}", spec.kind))
        .collect();
    let mut told = named.get(..NAMES_TOLD).unwrap_or(&named).to_vec();
    if named.len() > told.len() {
        told.push(format!("{} more", named.len() - told.len()));
    }
    let end = if fault.may_start {
        "will not start, or get the wrong libraries"
    } else {
        "will not start"
    };
    let all_lost = lost.is_empty() || lost.len() == spec.devices.len();
    // A specification for the operator's own containers, or for those that the device plugin starts.
    let own = spec.kind == "nvidia.com/gpu";
    let whom = match (beside, all_lost, own) {
        (Some(_), ..) if lost.is_empty() => "what it alone has is not to be had".to_owned(),
        (None, true, true) => format!("containers that ask for GPUs by CDI {end}"),
        (None, true, false) => format!("containers that ask for {} {end}", spec.kind),
        _ => format!("containers that ask for {} {end}", in_words(&told)),
    };
    // Nobody asks for GPUs where there are none any more.
    let no_gpu = ctx.gpus().next().is_none()
        && ctx.module_loaded() == Some(false)
        && !ctx.in_wsl()
        && !ctx.on_tegra();
    let severity = if beside.is_some() || no_gpu {
        Severity::Note
    } else {
        Severity::Warning
    };
    let mut finding = Finding::new(
        "cdi-spec-stale",
        Layer::Container,
        severity,
        format!("{} {}: {whom}", spec.path, fault.what),
    )
    .component(file_name(&spec.path))
    .subject(spec.path.clone())
    .detail("A CDI specification is a list of files with the driver's version in their names, of nodes and of hooks, and a container starts only where all of them are there. One in /etc/cdi was made by hand once and stays as it is; the one in /var/run/cdi is made anew by nvidia-cdi-refresh where the toolkit is 1.18 or newer.")
    .source("NVIDIA container toolkit sources: CDI specifications, nvidia-cdi-refresh")
    .source("Container Device Interface: what is validated, and how nodes are looked at");
    if let Some(other) = beside {
        finding = finding.evidence("serves the others", other.path.clone(), other.path.clone());
    }
    if let Some(problem) = &spec.problem {
        finding = finding.evidence("specification", problem.clone(), spec.path.clone());
    }
    if let Some(driver) = &spec.driver {
        finding = finding.evidence(
            "libcuda in the specification",
            driver.to_string(),
            spec.path.clone(),
        );
    }
    if let Some((version, source)) = ctx.facts.driver.loaded_version() {
        finding = finding.evidence("loaded kernel module", version.to_string(), source);
    }
    let nodes = missing_nodes(ctx, spec);
    for path in spec
        .missing
        .iter()
        .take(4)
        .chain(spec.missing_hooks.iter().take(2))
        .chain(nodes.iter().map(|node| &node.path).take(2))
    {
        finding = finding.evidence("not there", path.clone(), spec.path.clone());
    }
    if !named.is_empty() && !all_lost {
        finding = finding.evidence("devices", in_words(&told), spec.path.clone());
    }
    finding.fix(anew(spec, row, &nodes))
}

/// How it is written anew: by who writes it.
fn anew(spec: &CdiSpec, row: &CdiKind, nodes: &[&MissingNode]) -> Fix {
    let nodes_alone = spec.missing.is_empty() && spec.missing_hooks.is_empty();
    let fix = match (&row.command, &row.pod) {
        (Some(command), _) => {
            let how = if nodes_alone && !nodes.is_empty() {
                "have the driver make its nodes (nvidia-smi as root; nvidia-modprobe -u -m for those of UVM and of modeset), or write the specification anew without them"
            } else {
                "write the specification anew"
            };
            Fix::at(Layer::Container, how)
                .line(command.replace("{path}", &shell_quote(&spec.path)))
                .verify("nvidia-ctk cdi list")
        }
        (None, Some(pod)) => Fix::at(
            Layer::Container,
            format!(
                "have {} write it anew: start its pod on this node again",
                row.made_by
            ),
        )
        .line(format!(
            "kubectl -n gpu-operator delete pod -l app={pod} --field-selector spec.nodeName=NODE"
        ))
        .verify("gpudoctor"),
        (None, None) => Fix::at(
            Layer::Container,
            format!("have {} write it anew", row.made_by),
        )
        .verify("gpudoctor"),
    };
    fix.cost("root")
}

/// Whether a specification lies in the folder that wins.
fn is_later(spec: &CdiSpec, than: &CdiSpec) -> bool {
    parent(&spec.path) == LATER && parent(&than.path) == "/etc/cdi"
}

/// The same device in two files of one folder is dropped; in two folders the later one wins.
pub(super) fn cdi_device_twice(ctx: &Ctx<'_>) -> Outcome {
    if !super::on_host(ctx) {
        return Outcome::Clean;
    }
    let specs = known!(ctx.facts.container.cdi_specs, "CDI specifications");
    let mut findings: Vec<Finding> = Vec::new();
    for (at, first) in specs.iter().enumerate() {
        for second in specs.iter().skip(at + 1) {
            let both: Vec<String> = first
                .devices
                .iter()
                .filter(|device| second.kind == first.kind && second.devices.contains(device))
                .map(|device| format!("{}={device}", first.kind))
                .collect();
            let Some(device) = both.first() else { continue };
            if kind_of_gpus(ctx, &first.kind).is_none() {
                continue;
            }
            let same_folder = parent(&first.path) == parent(&second.path);
            // Two folders with the same content are an old guide and the refresh service: nothing to tell. Of folders that an
            // engine's configuration names, each engine has its own order.
            if !same_folder && (first.driver == second.driver || !is_later(second, first)) {
                continue;
            }
            findings.push(twice(first, second, device, &both, same_folder));
        }
    }
    Outcome::found(findings)
}

fn twice(
    first: &CdiSpec,
    second: &CdiSpec,
    device: &str,
    both: &[String],
    same_folder: bool,
) -> Finding {
    let (severity, title) = if same_folder {
        (
            Severity::Warning,
            format!(
                "{device} is in {} and in {}: the engine drops it, and containers that ask for it end with `unresolvable CDI devices`",
                first.path, second.path
            ),
        )
    } else {
        (
            Severity::Note,
            format!(
                "{device} is in {} and in {}, which differ: the second one wins",
                first.path, second.path
            ),
        )
    };
    let remove = if same_folder {
        &second.path
    } else {
        &first.path
    };
    Finding::new("cdi-device-twice", Layer::Container, severity, title)
        .component(first.kind.clone())
        .subject(format!("{} {}", first.path, second.path))
        .detail("Engines read every .yaml and .json of a folder. A copy that was kept beside the file counts as much as the file.")
        .evidence("in both", in_words(both.get(..4).unwrap_or(both)), "devices of both specifications")
        .source("Container Device Interface: cache of specifications and their precedence")
        .fix(
            Fix::at(Layer::Container, format!("keep one of the two: move {remove} out of the folder"))
                .cost("root")
                .verify("nvidia-ctk cdi list"),
        )
}
