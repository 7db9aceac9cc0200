//! NVIDIA's container toolkit on a host: its `config.toml`, its parts, and holes that are known of its version.

use super::engines::{misconfigured, of_subject};
use super::on_host;
use crate::facts::{ContainerToolkit, Layer, Reading, ToolkitConfig};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};

/// The version of the toolkit from which the runtime itself works by CDI where `mode` is not set, and knows `jit-cdi`.
const CDI_BY_DEFAULT: (u32, u32) = (1, 18);
/// What `mode` may be (toolkit sources, internal/info).
const MODES: &[&str] = &["auto", "legacy", "cdi", "jit-cdi", "csv"];
/// Where the toolkit's settings are, where nobody says otherwise.
const CONFIG: &str = "/etc/nvidia-container-runtime/config.toml";
/// Packages that are made together and have one version.
const PACKAGES: &[&str] = &[
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
];

/// Whether the runtime works by CDI: it is set so, or the version has it as its default. Where that is not known it may.
pub(super) fn by_cdi(toolkit: &ContainerToolkit) -> bool {
    match toolkit
        .config
        .value()
        .and_then(|config| config.mode.as_deref())
    {
        Some("cdi" | "jit-cdi" | "csv") => true,
        Some("legacy") => false,
        _ => !is_before_cdi(toolkit),
    }
}

/// Whether it is of a version that works in legacy mode where nothing else is set.
fn is_before_cdi(toolkit: &ContainerToolkit) -> bool {
    toolkit
        .oldest()
        .is_some_and(|part| (part.version.major(), part.version.minor()) < CDI_BY_DEFAULT)
}

/// What `config.toml` says that cannot work, and parts that do not belong together.
pub(super) fn misconfigurations(ctx: &Ctx<'_>) -> Vec<Finding> {
    let Some(toolkit) = ctx.facts.container.toolkit.value() else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if let Reading::Present { value, source } = &toolkit.config {
        findings.extend(in_config(ctx, toolkit, value, source));
    }
    findings.extend(parts_differ(toolkit));
    findings
}

fn in_config(
    ctx: &Ctx<'_>,
    toolkit: &ContainerToolkit,
    config: &ToolkitConfig,
    source: &str,
) -> Vec<Finding> {
    let set = |key: &str, value: &str| {
        let file = if source == CONFIG {
            String::new()
        } else {
            format!(" --config-file={}", crate::finding::shell_quote(source))
        };
        format!("sudo nvidia-ctk config --in-place{file} --set {key}={value}")
    };
    let of_toolkit = |title: String, key: &str, value: &str, fix: Fix| {
        let subject = format!("nvidia-container-toolkit {key}");
        of_subject(
            "nvidia-container-toolkit",
            &subject,
            title,
            source,
            fix.cost("root"),
        )
        .evidence(key, value, source)
    };
    let tried = |fix: Fix| fix.verify("docker run --rm --runtime=nvidia IMAGE nvidia-smi");
    let mut findings = Vec::new();
    if let Some(problem) = &config.problem {
        let mut finding = misconfigured(
            "nvidia-container-toolkit",
            format!("{source} cannot be read: {problem}"),
            source,
            tried(
                Fix::at(
                    Layer::Container,
                    format!("correct {source}; or move it away, and have the default one written"),
                )
                .line(format!(
                    "sudo nvidia-ctk config default --output={}",
                    crate::finding::shell_quote(source)
                ))
                .cost("root"),
            ),
        );
        // Daemons of the system do not see the caller's folder.
        if config.of_user {
            finding.severity = Severity::Note;
        }
        return vec![finding];
    }
    if let Some(mode) = config.mode.as_deref() {
        let unknown = !MODES.contains(&mode);
        let too_new = mode == "jit-cdi" && is_before_cdi(toolkit);
        if unknown || too_new {
            let why = if too_new {
                "which toolkits before 1.18 do not know"
            } else {
                "which is none"
            };
            findings.push(of_toolkit(
                format!("{source} sets the mode `{mode}`, {why}: no container starts by NVIDIA's runtime or hook"),
                "nvidia-container-runtime.mode",
                mode,
                tried(
                    Fix::at(Layer::Container, "set a mode that there is: auto, legacy, cdi, jit-cdi (1.18 and newer) or csv (Jetson)")
                        .line(set("nvidia-container-runtime.mode", "auto")),
                ),
            ));
        }
    }
    if let Some(path) = config.ldconfig.as_deref()
        && config.ldconfig_found.value() == Some(&false)
    {
        findings.push(of_toolkit(
            format!("{source} has `{path}` run after mounting the driver's libraries, and that is not there: containers that ask for GPUs will not start"),
            "nvidia-container-cli.ldconfig",
            path,
            tried(
                Fix::at(Layer::Container, "name the ldconfig of this host; @ means the host's")
                    .line(set("nvidia-container-cli.ldconfig", "@/sbin/ldconfig")),
            ),
        ));
    }
    // Of a disk nothing is known of what lies in /run.
    let running = ctx.module_loaded() == Some(true);
    if let Some(root) = config.root.as_deref()
        && config.root_found.value() == Some(&false)
        && (running || !root.starts_with("/run/"))
    {
        findings.push(of_toolkit(
            format!("{source} has the driver looked for in {root}, which is not there: containers that ask for GPUs will not start"),
            "nvidia-container-cli.root",
            root,
            tried(
                Fix::at(Layer::Container, "bring the driver container back that makes it; or, with a driver of the host's own, set its root")
                    .line(set("nvidia-container-cli.root", "/")),
            ),
        ));
    }
    if config.runtimes_found.value() == Some(&false) {
        let all = config.runtimes.join(", ");
        findings.push(of_toolkit(
            format!("{source} lists low-level runtimes of which none is there ({all}): no container starts by NVIDIA's runtime"),
            "nvidia-container-runtime.runtimes",
            &all,
            tried(
                Fix::at(Layer::Container, "name the runc or crun of this host")
                    .line(set("nvidia-container-runtime.runtimes", "runc,crun")),
            ),
        ));
    }
    findings.extend(
        cgroups(ctx, toolkit, config, &set).map(|(title, value, fix, severity)| {
            let mut finding =
                of_toolkit(title, "nvidia-container-cli.no-cgroups", value, tried(fix));
            finding.severity = severity;
            finding
        }),
    );
    findings
}

/// `no-cgroups` is for engines without root, which may not write device rules; with root it leaves containers without them.
/// Only the legacy hook reads it.
fn cgroups(
    ctx: &Ctx<'_>,
    toolkit: &ContainerToolkit,
    config: &ToolkitConfig,
    set: &dyn Fn(&str, &str) -> String,
) -> Option<(String, &'static str, Fix, Severity)> {
    const KEY: &str = "nvidia-container-cli.no-cgroups";
    let container = &ctx.facts.container;
    // A default that became CDI with 1.18 leaves `docker run --gpus` in legacy mode, or not, by the version of Docker.
    if by_cdi(toolkit) {
        return None;
    }
    let with_runtime = |main: &str| {
        let configs = container.docker.value().into_iter();
        configs
            .chain(container.others.items())
            .any(|config| config.main == main && !config.runtimes.is_empty())
    };
    let system = with_runtime("/etc/docker/daemon.json");
    let user = container
        .docker
        .value()
        .into_iter()
        .chain(container.others.items())
        .find(|config| config.of_user && !config.runtimes.is_empty());
    match (config.no_cgroups, system, user) {
        (Some(true), true, None) => Some((
            "no-cgroups is set, which is for Docker without root: containers of the system's Docker get the GPU's nodes and may not open them".to_owned(),
            "true",
            Fix::at(Layer::Container, "let the hook write device rules again").line(set(KEY, "false")),
            Severity::Warning,
        )),
        (None | Some(false), false, Some(user)) => Some((
            format!("{} has NVIDIA's runtime for a Docker without root, and no-cgroups is not set: its containers do not start, since device rules take root", user.main),
            "false",
            Fix::at(Layer::Container, "leave device rules to the engine (containers of a Docker with root then may not open the GPUs)").line(set(KEY, "true")),
            Severity::Warning,
        )),
        _ => None,
    }
}

/// Packages of different versions.
fn parts_differ(toolkit: &ContainerToolkit) -> Option<Finding> {
    let packages: Vec<_> = toolkit
        .parts
        .iter()
        .filter(|part| PACKAGES.contains(&part.name.as_str()))
        .collect();
    let oldest = packages.iter().min_by(|a, b| a.version.cmp(&b.version))?;
    let newest = packages.iter().max_by(|a, b| a.version.cmp(&b.version))?;
    // Before, the packages asked for one version of each other loosely.
    if oldest.version == newest.version
        || (newest.version.major(), newest.version.minor()) < CDI_BY_DEFAULT
    {
        return None;
    }
    let mut finding = of_subject(
        "nvidia-container-toolkit",
        "nvidia-container-toolkit parts",
        format!(
            "parts of NVIDIA's container toolkit are of two versions: {} {} and {} {}",
            newest.name, newest.version, oldest.name, oldest.version
        ),
        &newest.source,
        Fix::at(
            Layer::Container,
            format!(
                "bring all parts to {}: {}",
                newest.version,
                in_words(
                    &PACKAGES
                        .iter()
                        .map(|name| (*name).to_owned())
                        .collect::<Vec<_>>()
                )
            ),
        )
        .cost("root")
        .verify("nvidia-container-cli --version, nvidia-ctk --version"),
    );
    finding.severity = Severity::Note;
    for part in packages {
        finding = finding.evidence(
            part.name.clone(),
            part.version.to_string(),
            part.source.clone(),
        );
    }
    Some(finding)
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
