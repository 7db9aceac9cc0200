//! What a host has to start containers with: engines, NVIDIA's container toolkit, their configuration, CDI specifications,
//! the links in `/dev/char`, and the marks of the GPU operator. Files alone; no daemon is asked.

use std::collections::BTreeMap;

use crate::facts::{
    CdiSpec, ContainerFacts, ContainerToolkit, Engine, EngineConfig, Reading, RuntimeEntry,
    ToolkitConfig, ToolkitPart,
};
use crate::read::{cdi, engines};
use crate::sysroot::{Sysroot, file_name, join, parent};
use crate::version::Version;

/// Configuration and specifications are small; a CDI specification of sixteen GPUs with MIG has some 200 KiB.
const CONFIG_CAP: usize = 1 << 20;
/// Specifications and drop-in files that are read.
const FILES_CAP: usize = 64;
/// Missing files of a specification that are kept.
const MISSING_CAP: usize = 16;
/// Folders of CDI specifications where nobody says otherwise; the later one wins.
const CDI_FOLDERS: &[&str] = &["/etc/cdi", "/var/run/cdi"];
/// What says that an engine is installed.
const ENGINES: &[(&str, &[&str])] = &[
    (
        "docker",
        &[
            "/usr/bin/dockerd",
            "/usr/local/bin/dockerd",
            "/usr/sbin/dockerd",
        ],
    ),
    (
        "containerd",
        &["/usr/bin/containerd", "/usr/local/bin/containerd"],
    ),
    ("cri-o", &["/usr/bin/crio", "/usr/local/bin/crio"]),
    ("podman", &["/usr/bin/podman", "/usr/local/bin/podman"]),
    (
        "apptainer",
        &[
            "/usr/bin/apptainer",
            "/usr/local/bin/apptainer",
            "/usr/bin/singularity",
        ],
    ),
    ("enroot", &["/usr/bin/enroot", "/usr/local/bin/enroot"]),
    ("k3s", &["/usr/local/bin/k3s"]),
    ("rke2", &["/usr/local/bin/rke2"]),
    (
        "microk8s",
        &["/var/snap/microk8s/current/args/containerd-template.toml"],
    ),
];
/// The toolkit's programs, where packages and the GPU operator put them.
const TOOLKIT_FOLDERS: &[&str] = &["/usr/bin", "/usr/local/bin", "/usr/local/nvidia/toolkit"];
const TOOLKIT_PROGRAMS: &[&str] = &[
    "nvidia-cdi-hook",
    "nvidia-container-cli",
    "nvidia-container-runtime",
    "nvidia-container-runtime-hook",
    "nvidia-ctk",
];
/// Packages of the toolkit.
const TOOLKIT_PACKAGES: &[&str] = &[
    "libnvidia-container-tools",
    "libnvidia-container1",
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
];
/// Where the library lies, whose file name holds its version.
const LIBRARY_FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
];
/// The toolkit's configuration, and the operator's.
const TOOLKIT_CONFIGS: &[&str] = &[
    "/etc/nvidia-container-runtime/config.toml",
    "/usr/local/nvidia/toolkit/.config/nvidia-container-runtime/config.toml",
];
/// Docker's configuration, and that of the snap.
const DOCKER_CONFIG: &str = "/etc/docker/daemon.json";
const DOCKER_SNAP_CONFIG: &str = "/var/snap/docker/current/config/daemon.json";
/// Main files of containerd, by who runs it. Those of k3s, rke2 and `MicroK8s` are made from templates at each start.
const CONTAINERD_CONFIGS: &[&str] = &[
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
];
/// Where programs without a folder are looked for.
const PROGRAM_FOLDERS: &[&str] = &[
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Everything of the container layer that a host has; the packages are added from what is known of the system.
pub(in crate::probe) fn probe_host(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    packages: &[crate::facts::Package],
) -> ContainerFacts {
    ContainerFacts {
        glue: Reading::default(),
        engines: engines_here(sysroot),
        toolkit: toolkit(sysroot, packages),
        docker: docker(sysroot, env),
        containerd: containerd(sysroot),
        crio: crio(sysroot),
        cdi_specs: cdi_specs(sysroot),
        char_links: sysroot.list("/dev/char", |name| name.starts_with("195:")),
        operator_marks: sysroot.list("/run/nvidia/validations", |name| name.ends_with("-ready")),
    }
}

fn engines_here(sysroot: &Sysroot) -> Reading<Vec<Engine>> {
    let found: Vec<Engine> = ENGINES
        .iter()
        .filter_map(|(name, paths)| {
            let path = paths.iter().find(|path| sysroot.exists(path))?;
            Some(Engine {
                name: (*name).to_owned(),
                path: (*path).to_owned(),
            })
        })
        .collect();
    if found.is_empty() {
        Reading::absent("/usr/bin, /usr/local/bin")
    } else {
        Reading::present(found, "/usr/bin, /usr/local/bin")
    }
}

/// The toolkit: (1) packages, (2) the name of the file that `libnvidia-container.so.1` leads to, (3) its programs.
fn toolkit(sysroot: &Sysroot, packages: &[crate::facts::Package]) -> Reading<ContainerToolkit> {
    let mut parts: Vec<ToolkitPart> = packages
        .iter()
        .filter(|package| TOOLKIT_PACKAGES.contains(&package.name.as_str()))
        .filter_map(|package| {
            Some(ToolkitPart {
                name: package.name.clone(),
                version: released(&package.version)?,
                source: "the list of packages".to_owned(),
            })
        })
        .collect();
    for folder in LIBRARY_FOLDERS {
        const NAME: &str = "libnvidia-container.so.";
        for name in sysroot.list(folder, |name| name.starts_with(NAME)).items() {
            let version = name.strip_prefix(NAME).and_then(Version::parse);
            if let Some(version) = version.filter(|version| version.len() == 3) {
                parts.push(ToolkitPart {
                    name: "libnvidia-container.so".to_owned(),
                    version,
                    source: join(folder, name),
                });
            }
        }
    }
    let programs: Vec<String> = TOOLKIT_FOLDERS
        .iter()
        .flat_map(|folder| TOOLKIT_PROGRAMS.iter().map(|name| join(folder, name)))
        .filter(|path| sysroot.exists(path))
        .collect();
    if parts.is_empty() && programs.is_empty() {
        return Reading::absent("packages, /usr/bin, /usr/local/nvidia/toolkit");
    }
    let source = programs
        .first()
        .cloned()
        .or_else(|| parts.first().map(|part| part.source.clone()))
        .unwrap_or_default();
    Reading::present(
        ContainerToolkit {
            parts,
            programs,
            config: toolkit_config(sysroot),
        },
        source,
    )
}

/// The released version of a package's: `1.17.8-1` is 1.17.8; of a release candidate nothing is said.
fn released(text: &str) -> Option<Version> {
    let (version, _) = text.split_once('-').unwrap_or((text, ""));
    let plain = version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    plain.then(|| Version::parse(version))?
}

fn toolkit_config(sysroot: &Sysroot) -> Reading<ToolkitConfig> {
    let mut last = Reading::absent("/etc/nvidia-container-runtime/config.toml");
    for path in TOOLKIT_CONFIGS {
        match sysroot.text_up_to(path, CONFIG_CAP) {
            Reading::Absent { .. } => {}
            Reading::Unreadable { reason } => last = Reading::unreadable(reason),
            Reading::Present { value, source } => {
                let config = engines::toolkit(&value).unwrap_or_else(|problem| ToolkitConfig {
                    problem: Some(problem),
                    ..ToolkitConfig::default()
                });
                return Reading::present(config, source);
            }
        }
    }
    last
}

/// Adds what one file says; what was said before holds where the new file is silent.
fn add(
    sysroot: &Sysroot,
    into: &mut EngineConfig,
    path: &str,
    read: Result<engines::Config, String>,
) {
    let said = match read {
        Ok(said) => said,
        Err(problem) => {
            into.problems.push(format!("{path}: {problem}"));
            return;
        }
    };
    into.files.push(path.to_owned());
    for (name, program) in said.runtimes {
        if !name.contains("nvidia") && !program.contains("nvidia") {
            continue;
        }
        into.runtimes.retain(|entry| entry.name != name);
        into.runtimes.push(RuntimeEntry {
            program_found: if program.is_empty() {
                Reading::unreadable("no program is named")
            } else if path == DOCKER_SNAP_CONFIG && !program.contains('/') {
                Reading::unreadable("a program of this name is looked for inside the snap")
            } else {
                program_found(sysroot, &program)
            },
            name,
            program,
            file: path.to_owned(),
        });
    }
    into.default_runtime = said.default_runtime.or(into.default_runtime.take());
    into.cdi = said.cdi.or(into.cdi);
    if !said.cdi_dirs.is_empty() {
        into.cdi_dirs = said.cdi_dirs;
    }
    into.cgroup_driver = said.cgroup_driver.or(into.cgroup_driver.take());
    into.version = said.version.or(into.version);
}

/// Whether a program is there; a name alone is looked for in the default PATH.
fn program_found(sysroot: &Sysroot, program: &str) -> Reading<bool> {
    let paths: Vec<String> = if program.contains('/') {
        vec![program.to_owned()]
    } else {
        PROGRAM_FOLDERS
            .iter()
            .map(|folder| join(folder, program))
            .collect()
    };
    for path in &paths {
        match sysroot.stat(path) {
            Reading::Present { source, .. } => return Reading::present(true, source),
            Reading::Unreadable { reason } => return Reading::unreadable(reason),
            Reading::Absent { .. } => {}
        }
    }
    Reading::present(false, program.to_owned())
}

/// Docker: (1) the system's, (2) the snap's, (3) that of a daemon which the caller runs without root.
fn docker(sysroot: &Sysroot, env: &BTreeMap<String, String>) -> Reading<EngineConfig> {
    let of_user = || {
        let folder = env.get("XDG_CONFIG_HOME").cloned();
        let folder = folder.or_else(|| env.get("HOME").map(|home| join(home, ".config")));
        folder.map(|folder| join(&folder, "docker/daemon.json"))
    };
    let places = [DOCKER_CONFIG, DOCKER_SNAP_CONFIG].map(str::to_owned);
    let mut refused = None;
    for path in places.into_iter().chain(of_user()) {
        match sysroot.text_up_to(&path, CONFIG_CAP) {
            Reading::Absent { .. } => {}
            Reading::Unreadable { reason } => {
                refused.get_or_insert(reason);
            }
            Reading::Present { value, source } => {
                let mut config = EngineConfig::default();
                add(sysroot, &mut config, &source, engines::docker(&value));
                return Reading::present(config, source);
            }
        }
    }
    match refused {
        Some(reason) => Reading::unreadable(reason),
        None => Reading::absent(DOCKER_CONFIG),
    }
}

/// containerd: the main file, what it imports, and drop-in files that it ought to import.
fn containerd(sysroot: &Sysroot) -> Reading<EngineConfig> {
    let mut refused = None;
    for main in CONTAINERD_CONFIGS {
        let text = match sysroot.text_up_to(main, CONFIG_CAP) {
            Reading::Absent { .. } => continue,
            Reading::Unreadable { reason } => {
                refused = Some(reason);
                continue;
            }
            Reading::Present { value, .. } => value,
        };
        let mut config = EngineConfig::default();
        let read = engines::containerd(&text);
        let imports = read
            .as_ref()
            .map_or(Vec::new(), |read| read.imports.clone());
        let unread = read.is_err();
        add(sysroot, &mut config, main, read);
        let mut imported: Vec<String> = imports
            .iter()
            .flat_map(|pattern| matching(sysroot, &in_folder(parent(main), pattern)))
            .collect();
        imported.sort_unstable();
        imported.dedup();
        for path in imported.iter().take(FILES_CAP) {
            if let Some(text) = sysroot.text_up_to(path, CONFIG_CAP).value() {
                add(sysroot, &mut config, path, engines::containerd(text));
            }
        }
        if !unread {
            let drop_ins = matching(sysroot, &in_folder(parent(main), "conf.d/*.toml"));
            for path in drop_ins.into_iter().filter(|path| !imported.contains(path)) {
                let text = sysroot.text_up_to(&path, CONFIG_CAP);
                let speaks = text.value().is_some_and(|text| text.contains("nvidia"));
                if speaks {
                    config.not_imported.push(path);
                }
            }
        }
        return Reading::present(config, *main);
    }
    match refused {
        Some(reason) => Reading::unreadable(reason),
        None => Reading::absent("/etc/containerd/config.toml"),
    }
}

/// CRI-O: the main file, then the drop-in files in the order of their names.
fn crio(sysroot: &Sysroot) -> Reading<EngineConfig> {
    let mut config = EngineConfig::default();
    let mut paths = vec!["/etc/crio/crio.conf".to_owned()];
    paths.extend(matching(sysroot, "/etc/crio/crio.conf.d/*"));
    for path in paths.iter().take(FILES_CAP) {
        match sysroot.text_up_to(path, CONFIG_CAP) {
            Reading::Absent { .. } => {}
            Reading::Unreadable { reason } => config.problems.push(reason),
            Reading::Present { value, .. } => {
                add(sysroot, &mut config, path, engines::crio(&value));
            }
        }
    }
    if config.files.is_empty() && config.problems.is_empty() {
        Reading::absent("/etc/crio/crio.conf, /etc/crio/crio.conf.d")
    } else {
        Reading::present(config, "/etc/crio")
    }
}

/// A path as a file of this folder names it.
fn in_folder(folder: &str, path: &str) -> String {
    if path.starts_with('/') {
        path.to_owned()
    } else {
        join(folder, path)
    }
}

/// The files that a path with `*` in its last part means, sorted.
fn matching(sysroot: &Sysroot, pattern: &str) -> Vec<String> {
    let (folder, name) = (parent(pattern), file_name(pattern));
    let Some((before, after)) = name.split_once('*') else {
        return vec![pattern.to_owned()];
    };
    let fits = |name: &str| {
        name.len() >= before.len() + after.len()
            && name.starts_with(before)
            && name.ends_with(after)
            && !name.starts_with('.')
    };
    let mut paths: Vec<String> = sysroot
        .list(folder, fits)
        .items()
        .iter()
        .map(|name| join(folder, name))
        .collect();
    paths.sort_unstable();
    paths
}

/// The CDI specifications of GPUs in the usual folders.
fn cdi_specs(sysroot: &Sysroot) -> Reading<Vec<CdiSpec>> {
    let mut specs = Vec::new();
    let mut refused = None;
    for folder in CDI_FOLDERS {
        let is_spec = |name: &str| {
            [".yaml", ".json"].iter().any(|end| name.ends_with(end)) && !name.starts_with('.')
        };
        let mut names = match sysroot.list(folder, is_spec) {
            Reading::Absent { .. } => continue,
            Reading::Unreadable { reason } => {
                refused = Some(reason);
                continue;
            }
            Reading::Present { value, .. } => value,
        };
        names.sort_unstable();
        for name in names.iter().take(FILES_CAP) {
            let path = join(folder, name);
            match sysroot.text_up_to(&path, CONFIG_CAP) {
                Reading::Absent { .. } => {}
                Reading::Unreadable { reason } => specs.push(CdiSpec {
                    path,
                    problem: Some(reason),
                    ..CdiSpec::default()
                }),
                Reading::Present { value, .. } => specs.extend(cdi_spec(sysroot, path, &value)),
            }
        }
    }
    match (specs.is_empty(), refused) {
        (true, Some(reason)) => Reading::unreadable(reason),
        (true, None) => Reading::absent("/etc/cdi, /var/run/cdi"),
        (false, _) => Reading::present(specs, "/etc/cdi, /var/run/cdi"),
    }
}

/// One specification; `None` where it is of something that is no NVIDIA GPU.
fn cdi_spec(sysroot: &Sysroot, path: String, text: &str) -> Option<CdiSpec> {
    let spec = match cdi::spec(text) {
        Ok(spec) => spec,
        // Somebody else's broken file is not ours to tell of.
        Err(_) if !text.contains("nvidia.com/") => return None,
        Err(problem) => {
            return Some(CdiSpec {
                path,
                problem: Some(problem),
                ..CdiSpec::default()
            });
        }
    };
    if !spec.kind.starts_with("nvidia.com/") {
        return None;
    }
    let gone = |paths: &[String]| -> Vec<String> {
        let absent = paths.iter().filter(|path| sysroot.stat(path).is_absent());
        absent.take(MISSING_CAP).cloned().collect()
    };
    let driver = spec.mounts.iter().find_map(|path| {
        let version = file_name(path).strip_prefix("libcuda.so.")?;
        Version::parse(version).filter(|version| version.len() > 1)
    });
    Some(CdiSpec {
        path,
        cdi_version: spec.version,
        kind: spec.kind,
        devices: spec.devices,
        driver,
        missing: gone(&spec.mounts),
        mounts: u32::try_from(spec.mounts.len()).unwrap_or(u32::MAX),
        missing_hooks: gone(&spec.hooks),
        nodes: spec.nodes,
        problem: None,
    })
}
