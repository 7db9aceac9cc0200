//! What will go wrong when this host starts containers. Only where NVIDIA's container toolkit or a CDI specification of
//! GPUs is there: a host where nobody runs containers with GPUs is told nothing. None of it breaks the host's own programs,
//! so nothing here is worse than a warning.

use crate::facts::{CdiSpec, EngineConfig, Layer};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::{file_name, parent};

/// Marks of the GPU operator in the order in which they are made (gpu-operator, `nvidia-validator`).
const MARKS: &[(&str, &str)] = &[
    ("driver-ready", "the driver"),
    ("toolkit-ready", "the container toolkit"),
    ("cuda-ready", "a CUDA program in a pod"),
    ("plugin-ready", "the device plugin"),
];
/// The version of the toolkit from which the runtime itself works by CDI where `mode` is not set.
const CDI_BY_DEFAULT: (u32, u32) = (1, 18);
/// How a specification is written anew.
const GENERATE: &str = "sudo nvidia-ctk cdi generate --output=";

/// What a host's container files say is of no use inside a container.
fn on_host(ctx: &Ctx<'_>) -> bool {
    !ctx.in_container() && ctx.place_unknown().is_none()
}

/// A specification names files of a driver that is no longer here.
pub(super) fn cdi_spec_stale(ctx: &Ctx<'_>) -> Outcome {
    if !on_host(ctx) {
        return Outcome::Clean;
    }
    let specs = known!(ctx.facts.container.cdi_specs, "CDI specifications");
    let loaded = ctx.loaded_version().filter(|_| ctx.plain_linux());
    let mut findings = Vec::new();
    for spec in specs {
        // What a later folder has in its place is what counts.
        if overridden(spec, specs) {
            continue;
        }
        let other = spec
            .driver
            .as_ref()
            .zip(loaded)
            .filter(|(driver, loaded)| driver != loaded);
        // A file or two may be gone with a package; libcuda of another version or half of the files is another driver.
        let libcuda_gone = spec
            .missing
            .iter()
            .any(|path| file_name(path).starts_with("libcuda.so"));
        let title = if let Some(problem) = &spec.problem {
            if problem.contains("permission denied") {
                continue;
            }
            format!(
                "{} cannot be read as a CDI specification: {problem}",
                spec.path
            )
        } else if let Some((driver, loaded)) = other {
            format!(
                "{} is for driver {driver}, and {loaded} is loaded: containers that ask for GPUs by CDI will not start, or get the wrong libraries",
                spec.path
            )
        } else if libcuda_gone {
            format!(
                "{} names a libcuda that is not there: containers that ask for GPUs by CDI will not start",
                spec.path
            )
        } else if let Some(hook) = spec.missing_hooks.first() {
            format!(
                "{} runs {hook}, which is not there: containers that ask for GPUs by CDI will not start",
                spec.path
            )
        } else {
            continue;
        };
        let mut finding = Finding::new("cdi-spec-stale", Layer::Container, Severity::Warning, title)
            .component(file_name(&spec.path))
            .subject(spec.path.clone())
            .detail("A CDI specification is a list of files with the driver's version in their names. One in /etc/cdi was made by hand once and stays as it is; the one in /var/run/cdi is made anew by nvidia-cdi-refresh where the toolkit is 1.18 or newer.")
            .source("NVIDIA container toolkit sources: CDI specifications, nvidia-cdi-refresh");
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
        for path in spec
            .missing
            .iter()
            .take(4)
            .chain(spec.missing_hooks.iter().take(2))
        {
            finding = finding.evidence("not there", path.clone(), spec.path.clone());
        }
        let command = format!("{GENERATE}{}", crate::finding::shell_quote(&spec.path));
        findings.push(
            finding.fix(
                Fix::at(Layer::Container, "write the specification anew")
                    .line(command)
                    .cost("root")
                    .verify("nvidia-ctk cdi list"),
            ),
        );
    }
    Outcome::found(findings)
}

/// Whether every device of a specification is in one of a later folder.
fn overridden(spec: &CdiSpec, all: &[CdiSpec]) -> bool {
    !spec.devices.is_empty()
        && all
            .iter()
            .filter(|other| {
                other.kind == spec.kind
                    && parent(&other.path) != parent(&spec.path)
                    && is_later(other, spec)
            })
            .any(|other| {
                spec.devices
                    .iter()
                    .all(|device| other.devices.contains(device))
            })
}

/// Whether a specification lies in the folder that wins.
fn is_later(spec: &CdiSpec, than: &CdiSpec) -> bool {
    spec.path.starts_with("/var/run/") && !than.path.starts_with("/var/run/")
}

/// The same device in two files of one folder is dropped; in two folders the later one wins.
pub(super) fn cdi_device_twice(ctx: &Ctx<'_>) -> Outcome {
    if !on_host(ctx) {
        return Outcome::Clean;
    }
    let specs = known!(ctx.facts.container.cdi_specs, "CDI specifications");
    let mut findings: Vec<Finding> = Vec::new();
    for (at, first) in specs.iter().enumerate() {
        for second in specs
            .iter()
            .skip(at + 1)
            .filter(|second| second.kind == first.kind)
        {
            let both: Vec<String> = first
                .devices
                .iter()
                .filter(|device| second.devices.contains(device))
                .map(|device| format!("{}={device}", first.kind))
                .collect();
            let Some(device) = both.first() else { continue };
            let same_folder = parent(&first.path) == parent(&second.path);
            // Two folders with the same content are an old guide and the refresh service: nothing to tell.
            if !same_folder && first.driver == second.driver {
                continue;
            }
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
            findings.push(
                Finding::new("cdi-device-twice", Layer::Container, severity, title)
                    .component(first.kind.clone())
                    .subject(format!("{} {}", first.path, second.path))
                    .detail("Engines read every .yaml and .json of a folder. A copy that was kept beside the file counts as much as the file.")
                    .evidence("in both", in_words(both.get(..4).unwrap_or(&both)), "devices of both specifications")
                    .source("Container Device Interface: cache of specifications and their precedence")
                    .fix(
                        Fix::at(Layer::Container, format!("keep one of the two: move {remove} out of the folder"))
                            .cost("root")
                            .verify("nvidia-ctk cdi list"),
                    ),
            );
        }
    }
    Outcome::found(findings)
}

/// A version of the toolkit in which a known hole is open.
pub(super) fn container_toolkit_vulnerable(ctx: &Ctx<'_>) -> Outcome {
    if !on_host(ctx) {
        return Outcome::Clean;
    }
    let toolkit = known!(ctx.facts.container.toolkit, "container toolkit");
    let Some(part) = toolkit.oldest() else {
        return Outcome::Clean;
    };
    let config = toolkit.config.value();
    let only_cdi = config
        .and_then(|config| config.mode.as_deref())
        .is_some_and(|mode| matches!(mode, "cdi" | "jit-cdi"));
    let compat_hook_off = config.and_then(|config| config.compat_hook_off) == Some(true);
    let own_ldconfig = config
        .and_then(|config| config.ldconfig.as_deref())
        .is_some_and(|path| !path.starts_with('@'));
    let open: Vec<_> = ctx
        .matrix
        .toolkit_flaws()
        .iter()
        .filter(|flaw| part.version < flaw.fixed)
        .filter(|flaw| !(flaw.not_in_cdi && only_cdi))
        .filter(|flaw| {
            // Before that version only a host that works by CDI has it.
            flaw.cdi_only_before
                .as_ref()
                .is_none_or(|version| part.version >= *version || only_cdi)
        })
        .filter(|flaw| !flaw.needs_own_ldconfig || own_ldconfig)
        .filter(|flaw| !(flaw.off_without_compat_hook && compat_hook_off))
        .collect();
    let Some(fixed) = open.iter().map(|flaw| &flaw.fixed).max() else {
        return Outcome::Clean;
    };
    let ids: Vec<String> = open.iter().map(|flaw| flaw.id.clone()).collect();
    let mut finding = Finding::new(
        "container-toolkit-vulnerable",
        Layer::Container,
        Severity::Warning,
        format!(
            "NVIDIA container toolkit {} has known holes ({}): {fixed} or newer has none of them",
            part.version,
            in_words(&ids)
        ),
    )
    .component("nvidia-container-toolkit")
    .detail(
        "A container made for it can get at the host. It does not keep any program from its GPU.",
    )
    .evidence(
        part.name.clone(),
        part.version.to_string(),
        part.source.clone(),
    );
    for flaw in &open {
        finding = finding
            .evidence(
                flaw.id.clone(),
                format!("mended in {}", flaw.fixed),
                flaw.source.clone(),
            )
            .source(flaw.source.clone());
    }
    Outcome::found([finding.fix(
        Fix::at(Layer::Container, format!("upgrade nvidia-container-toolkit and libnvidia-container to {fixed} or newer, all parts to one version"))
            .cost("root")
            .verify("nvidia-ctk --version"),
    )])
}

/// An engine's configuration that cannot work.
pub(super) fn container_engine_misconfigured(ctx: &Ctx<'_>) -> Outcome {
    if !on_host(ctx) {
        return Outcome::Clean;
    }
    let container = &ctx.facts.container;
    let mut findings = Vec::new();
    let here = container.toolkit.is_present() || !container.cdi_specs.items().is_empty();
    for (engine, config) in [
        ("docker", &container.docker),
        ("containerd", &container.containerd),
        ("cri-o", &container.crio),
    ] {
        let Some(config) = config.value() else {
            continue;
        };
        findings.extend(programs_missing(engine, config));
        if here {
            findings.extend(not_imported(engine, config));
            findings.extend(broken_files(engine, config));
        }
    }
    if let Some(config) = container
        .toolkit
        .value()
        .and_then(|toolkit| toolkit.config.value())
        && let Some(problem) = &config.problem
    {
        let source = container
            .toolkit
            .value()
            .map_or("", |toolkit| toolkit.config.source());
        findings.push(misconfigured(
            "nvidia-container-toolkit",
            format!("{source} cannot be read: {problem}"),
            source,
            Fix::at(Layer::Container, format!("correct {source}, or write it anew"))
                .line("sudo nvidia-ctk config --in-place --config-file=/etc/nvidia-container-runtime/config.toml"),
        ));
    }
    Outcome::found(findings)
}

fn misconfigured(engine: &str, title: String, file: &str, fix: Fix) -> Finding {
    Finding::new("container-engine-misconfigured", Layer::Container, Severity::Warning, title)
        .component(engine)
        .subject(format!("{engine} {file}"))
        .detail("Containers that ask for GPUs will not start here. Programs of the host itself are not touched.")
        .evidence("configuration", file, file)
        .source("NVIDIA container toolkit sources: configuration of engines")
        .fix(fix.cost("root"))
}

/// Runtimes whose program is gone.
fn programs_missing(engine: &str, config: &EngineConfig) -> Vec<Finding> {
    let lost = config
        .runtimes
        .iter()
        .filter(|entry| entry.program_found.value() == Some(&false));
    lost.map(|entry| {
        let default = config.default_runtime.as_deref() == Some(entry.name.as_str());
        let weight = if default {
            ", and it is the default one: no container starts"
        } else {
            ""
        };
        misconfigured(
            engine,
            format!(
                "{engine} has a runtime `{}` whose program {} is not there{weight}",
                entry.name, entry.program
            ),
            &entry.file,
            Fix::at(
                Layer::Container,
                format!(
                    "install nvidia-container-toolkit, or take the runtime out of {}",
                    entry.file
                ),
            ),
        )
        .evidence("not there", entry.program.clone(), entry.file.clone())
    })
    .collect()
}

/// A drop-in file that containerd does not read.
fn not_imported(engine: &str, config: &EngineConfig) -> Vec<Finding> {
    // A runtime that the main file has already makes the drop-in superfluous.
    if !config.runtimes.is_empty() {
        return Vec::new();
    }
    let main = config.files.first().cloned().unwrap_or_default();
    config
        .not_imported
        .iter()
        .map(|path| {
            misconfigured(
                engine,
                format!("{path} is not read: {main} does not import it, so that {engine} knows no runtime `nvidia`"),
                path,
                Fix::at(Layer::Container, format!("add it to `imports` of {main}, and restart {engine}: imports = [\"{path}\"]")),
            )
        })
        .collect()
}

/// Files that are no TOML or JSON.
fn broken_files(engine: &str, config: &EngineConfig) -> Vec<Finding> {
    let broken = config
        .problems
        .iter()
        .filter(|problem| !problem.contains("permission denied"));
    broken
        .map(|problem| {
            let file = problem.split(": ").next().unwrap_or(problem).to_owned();
            misconfigured(
                engine,
                format!("{problem}: {engine} does not start with it"),
                &file,
                Fix::at(
                    Layer::Container,
                    format!("correct {file}, and restart {engine}"),
                ),
            )
        })
        .collect()
}

/// The links that systemd needs to know the devices of a container again.
pub(super) fn container_char_links_missing(ctx: &Ctx<'_>) -> Outcome {
    if !on_host(ctx) || !ctx.plain_linux() || ctx.module_loaded() != Some(true) {
        return Outcome::Clean;
    }
    let container = &ctx.facts.container;
    let toolkit = known!(container.toolkit, "container toolkit");
    // By CDI the engine knows the devices itself.
    let config = toolkit.config.value();
    let by_cdi = match config.and_then(|config| config.mode.as_deref()) {
        Some("cdi" | "jit-cdi" | "csv") => true,
        Some("legacy") => false,
        _ => toolkit
            .oldest()
            .is_none_or(|part| (part.version.major(), part.version.minor()) >= CDI_BY_DEFAULT),
    };
    let systemd = [&container.docker, &container.containerd, &container.crio]
        .into_iter()
        .filter_map(|config| config.value())
        .find(|config| config.cgroup_driver.as_deref() == Some("systemd"));
    let Some(config) = systemd.filter(|_| !by_cdi) else {
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
    let main = config.files.first().cloned().unwrap_or_default();
    // A device plugin may hand the devices to the engine of a node (PASS_DEVICE_SPECS), which then knows them.
    let severity = if container.docker.value() == Some(config) {
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
    .evidence("cgroup driver", "systemd", main)
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
    let has = |name: &str| marks.iter().any(|mark| mark == name);
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
    let severity = if *mark == "plugin-ready" {
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
