//! Configuration of container engines on a host that cannot work with GPUs. Only where NVIDIA's container toolkit or a CDI
//! specification of GPUs is there, or a runtime of NVIDIA's is named: a host where nobody runs containers with GPUs is told
//! nothing. None of it breaks the host's own programs, so nothing here is worse than a warning.

use super::{on_host, toolkit};
use crate::facts::{EngineConfig, Layer, RuntimeEntry};
use crate::finding::{Finding, Fix, Severity, shell_quote};
use crate::rules::{Ctx, Outcome};

/// An engine, as far as it is spoken of and started again.
struct Engine {
    /// `docker`, `containerd of k3s`.
    name: &'static str,
    /// How it reads its configuration again.
    restart: &'static str,
    /// How NVIDIA's runtime is put into its configuration; `None` where its files are made from templates.
    configure: Option<&'static str>,
    /// How to see that it worked.
    verify: &'static str,
}

const RUN_IT: &str = "docker run --rm --gpus all IMAGE nvidia-smi";
const DOCKER: Engine = Engine {
    name: "docker",
    restart: "sudo systemctl restart docker",
    configure: Some("sudo nvidia-ctk runtime configure --runtime=docker"),
    verify: RUN_IT,
};
const DOCKER_OF_USER: Engine = Engine {
    name: "docker without root",
    restart: "systemctl --user restart docker",
    configure: Some(
        "nvidia-ctk runtime configure --runtime=docker --config=$HOME/.config/docker/daemon.json",
    ),
    verify: RUN_IT,
};
const DOCKER_SNAP: Engine = Engine {
    name: "docker of the snap",
    restart: "sudo snap restart docker",
    configure: None,
    verify: RUN_IT,
};
const CONTAINERD: Engine = Engine {
    name: "containerd",
    restart: "sudo systemctl restart containerd",
    configure: Some("sudo nvidia-ctk runtime configure --runtime=containerd"),
    verify: "sudo containerd config dump: it has the runtime nvidia",
};
const K3S: Engine = Engine {
    name: "containerd of k3s",
    restart: "sudo systemctl restart k3s",
    configure: None,
    verify: "a pod with runtimeClassName: nvidia that runs nvidia-smi",
};
const RKE2: Engine = Engine {
    name: "containerd of rke2",
    restart: "sudo systemctl restart rke2-agent",
    ..K3S
};
const MICROK8S: Engine = Engine {
    name: "containerd of MicroK8s",
    restart: "sudo snap restart microk8s",
    ..K3S
};
const CRIO: Engine = Engine {
    name: "cri-o",
    restart: "sudo systemctl restart crio",
    configure: Some("sudo nvidia-ctk runtime configure --runtime=crio"),
    verify: "a pod with nvidia.com/gpu: 1 that runs nvidia-smi",
};

/// Whose file it is.
fn of_main(main: &str) -> &'static Engine {
    if main.contains("/snap/docker/") {
        &DOCKER_SNAP
    } else if main.contains("/snap/microk8s/") {
        &MICROK8S
    } else if main.contains("/rancher/k3s/") {
        &K3S
    } else if main.contains("/rancher/rke2/") {
        &RKE2
    } else if main == "/etc/docker/daemon.json" {
        &DOCKER
    } else if main.ends_with("/daemon.json") {
        &DOCKER_OF_USER
    } else if main.starts_with("/etc/crio") {
        &CRIO
    } else {
        &CONTAINERD
    }
}

/// An engine's configuration that cannot work.
pub(super) fn container_engine_misconfigured(ctx: &Ctx<'_>) -> Outcome {
    if !on_host(ctx) {
        return Outcome::Clean;
    }
    let container = &ctx.facts.container;
    let gpus = |spec: &crate::facts::CdiSpec| {
        let mut kinds = ctx.matrix.cdi_kinds().iter();
        kinds.any(|row| row.kind == spec.kind)
    };
    let here = container.toolkit.is_present() || container.cdi_specs.items().iter().any(gpus);
    let mut findings = Vec::new();
    let usual = [&container.docker, &container.containerd, &container.crio];
    let usual = usual.into_iter().filter_map(|config| config.value());
    for config in usual.chain(container.others.items()) {
        // Without the CRI nobody reads what a containerd file says of runtimes: Docker brings its own.
        if config.cri_disabled {
            continue;
        }
        // Nor does what a removed package left behind keep anything from starting.
        if config.engine_found.value() == Some(&false) {
            continue;
        }
        let engine = of_main(main_of(config));
        findings.extend(programs_missing(ctx, engine, config));
        findings.extend(default_undefined(engine, config));
        if here {
            findings.extend(not_imported(engine, config));
            findings.extend(not_read(engine, config));
            findings.extend(imports_missing(engine, config));
            findings.extend(newer_form(engine, config));
            findings.extend(broken_files(engine, config));
        }
    }
    findings.extend(toolkit::misconfigurations(ctx));
    Outcome::found(findings)
}

fn main_of(config: &EngineConfig) -> &str {
    let first = || config.files.first().map_or("", String::as_str);
    if config.main.is_empty() {
        first()
    } else {
        &config.main
    }
}

pub(super) fn misconfigured(engine: &str, title: String, file: &str, fix: Fix) -> Finding {
    of_subject(engine, &format!("{engine} {file}"), title, file, fix)
}

/// One of several that may be wrong with a file.
pub(super) fn of_subject(
    engine: &str,
    subject: &str,
    title: String,
    file: &str,
    fix: Fix,
) -> Finding {
    Finding::new("container-engine-misconfigured", Layer::Container, Severity::Warning, title)
        .component(engine)
        .subject(subject)
        .detail("Containers that ask for GPUs will not start here. Programs of the host itself are not touched.")
        .evidence("configuration", file, file)
        .source("NVIDIA container toolkit sources: configuration of engines")
        .fix(fix)
}

/// A fix that ends with the engine reading its configuration again.
fn then_restart(engine: &Engine, fix: Fix) -> Fix {
    let fix = fix.line(engine.restart).verify(engine.verify);
    if engine.restart.starts_with("sudo") {
        fix.cost("root")
    } else {
        fix
    }
}

/// Runtimes whose program is gone.
fn programs_missing(ctx: &Ctx<'_>, engine: &Engine, config: &EngineConfig) -> Option<Finding> {
    let is_default =
        |entry: &&&RuntimeEntry| config.default_runtime.as_deref() == Some(entry.name.as_str());
    // MicroK8s writes this one into each configuration, for whoever installs the toolkit
    // (github.com/canonical/microk8s, microk8s-resources/default-args/containerd-template.toml).
    let is_of_template = |entry: &&RuntimeEntry| {
        engine.name == MICROK8S.name
            && entry.name == "nvidia-container-runtime"
            && entry.program == entry.name
            && !is_default(&entry)
    };
    let lost: Vec<&RuntimeEntry> = config
        .runtimes
        .iter()
        .filter(|entry| entry.program_found.value() == Some(&false) && !is_of_template(entry))
        .collect();
    let entry = *lost.iter().find(is_default).or(lost.first())?;
    let weight = if is_default(&&entry) {
        ", and it is the default one: no container starts"
    } else {
        ""
    };
    let more = match lost.len() - 1 {
        0 => String::new(),
        more => format!(" (and of {more} more runtimes)"),
    };
    let ctk = ctx.facts.container.toolkit.value().is_some_and(|toolkit| {
        toolkit
            .programs
            .iter()
            .any(|path| path.ends_with("/nvidia-ctk"))
    });
    let fix = Fix::at(
        Layer::Container,
        format!(
            "install nvidia-container-toolkit, or take the runtime out of {}",
            entry.file
        ),
    );
    // With the toolkit there, its own tool writes the name of the program that it has.
    let fix = match engine.configure.filter(|_| ctk) {
        Some(line) => fix.line(line),
        None => fix,
    };
    let mut finding = misconfigured(
        engine.name,
        format!(
            "{} has a runtime `{}` whose program {} is not there{more}{weight}",
            engine.name, entry.name, entry.program
        ),
        &entry.file,
        then_restart(engine, fix),
    );
    for entry in lost {
        finding = finding.evidence("not there", entry.program.clone(), entry.file.clone());
    }
    Some(finding)
}

/// A default runtime that no file defines.
fn default_undefined(engine: &Engine, config: &EngineConfig) -> Option<Finding> {
    let name = config.default_runtime.as_deref()?;
    // Of a runtime of somebody else's nothing is said; one with a dot in its name is a shim that Docker looks for; and what a
    // file that could not be read defines is not known.
    let known = config.runtime_names.iter().any(|known| known == name);
    if !name.contains("nvidia")
        || name.contains('.')
        || known
        || !config.problems.is_empty()
        || !config.unread_runtimes.is_empty()
        // The snap starts its daemon with flags of its own.
        || engine.name == DOCKER_SNAP.name
        || config.main.is_empty()
    {
        return None;
    }
    let effect = if engine.name.starts_with("docker") {
        "docker does not start with it"
    } else if engine.name == CRIO.name {
        "cri-o does not start with it"
    } else {
        "its CRI plugin does not load, and no pod starts"
    };
    let main = main_of(config);
    let fix = Fix::at(
        Layer::Container,
        format!("define the runtime `{name}`, or take the default out of {main}"),
    );
    let fix = match engine.configure {
        Some(line) => fix.line(line),
        None => fix,
    };
    Some(
        of_subject(
            engine.name,
            &format!("{} {main} default", engine.name),
            format!(
                "{main} names `{name}` as the default runtime and nothing defines it: {effect}"
            ),
            main,
            then_restart(engine, fix),
        )
        .evidence("default runtime", name, main)
        .source("moby, containerd and CRI-O sources: validation of the default runtime"),
    )
}

/// A drop-in file that containerd does not read.
fn not_imported(engine: &Engine, config: &EngineConfig) -> Vec<Finding> {
    // A runtime that the main file has already makes the drop-in superfluous.
    if !config.runtimes.is_empty() {
        return Vec::new();
    }
    let main = main_of(config);
    config
        .not_imported
        .iter()
        .map(|path| {
            let fix = Fix::at(
                Layer::Container,
                format!("add it to `imports` of {main}, and restart: imports = [\"{path}\"]"),
            );
            misconfigured(
                engine.name,
                format!("{path} is not read: {main} does not import it, so that {} knows no runtime `nvidia`", engine.name),
                path,
                then_restart(engine, fix),
            )
        })
        .collect()
}

/// Runtimes that stand where this form of the file reads none.
fn not_read(engine: &Engine, config: &EngineConfig) -> Option<Finding> {
    let unread = |entry: &&RuntimeEntry| {
        let mut read = config.runtimes.iter();
        !read.any(|known| known.name == entry.name)
    };
    let entry = config.unread_runtimes.iter().find(unread)?;
    let fix = Fix::at(
        Layer::Container,
        format!(
            "move it to [plugins.'io.containerd.cri.v1.runtime'] in {}, or have it written anew",
            entry.file
        ),
    );
    let fix = match engine.configure {
        Some(line) => fix.line(line),
        None => fix,
    };
    Some(
        of_subject(
            engine.name,
            &format!("{} {} form", engine.name, entry.file),
            format!(
                "{} is of form 3 and has the runtime `{}` under io.containerd.grpc.v1.cri, which is its place in form 2: {} does not know it",
                entry.file, entry.name, engine.name
            ),
            &entry.file,
            then_restart(engine, fix),
        )
        .source("containerd sources: migration of the CRI plugin's configuration"),
    )
}

/// Files that are named by themselves in `imports` and are not there.
fn imports_missing(engine: &Engine, config: &EngineConfig) -> Option<Finding> {
    let path = config.imports_missing.first()?;
    let main = main_of(config);
    let fix = Fix::at(
        Layer::Container,
        format!("take it out of `imports` of {main}, or bring the file back"),
    );
    Some(
        of_subject(
            engine.name,
            &format!("{} {main} imports", engine.name),
            format!(
                "{main} imports {path}, which is not there: {} does not start with it",
                engine.name
            ),
            main,
            then_restart(engine, fix),
        )
        .evidence("not there", path.clone(), main)
        .source("containerd sources: imports; only a pattern with `*` may match nothing"),
    )
}

/// A drop-in file of a newer form than the main one. What that does hangs on the release, which no file tells.
fn newer_form(engine: &Engine, config: &EngineConfig) -> Option<Finding> {
    let path = config.newer_form.first()?;
    let main = main_of(config);
    let mut finding = of_subject(
        engine.name,
        &format!("{} {main} newer form", engine.name),
        format!("{path} is of a newer form than {main} that imports it: containerd 1.x and 2.3.0 to 2.3.4 do not start with it, and 2.0 to 2.2 then leave the main file's settings of the CRI unread"),
        path,
        then_restart(
            engine,
            Fix::at(Layer::Container, format!("bring {main} to the same form: containerd config migrate prints it")),
        ),
    )
    .source("containerd sources: cmd/containerd/server/config, 1.7 to 2.4");
    finding.severity = Severity::Note;
    Some(finding)
}

/// Files that are no TOML or JSON.
fn broken_files(engine: &Engine, config: &EngineConfig) -> Vec<Finding> {
    let broken = config
        .problems
        .iter()
        .filter(|problem| !problem.contains("permission denied"));
    broken
        .map(|problem| {
            let file = problem.split(": ").next().unwrap_or(problem).to_owned();
            let fix = Fix::at(Layer::Container, format!("correct {file}"));
            let mut finding = misconfigured(
                engine.name,
                format!("{problem}: {} does not start with it", engine.name),
                &file,
                then_restart(engine, fix),
            );
            if engine.name == DOCKER.name
                && let Some(fix) = finding.fixes.first_mut()
            {
                let check = format!(
                    "sudo dockerd --validate --config-file={}",
                    shell_quote(&file)
                );
                fix.commands.insert(0, check);
            }
            finding
        })
        .collect()
}
