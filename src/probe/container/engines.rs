//! The configuration of container engines: Docker, containerd, CRI-O, with what each of them reads beside its main file. The
//! first of a kind is its own fact; further ones on the same host stand beside them.

use std::collections::BTreeMap;

use super::glob;
use crate::facts::{EngineConfig, Reading, RuntimeEntry};
use crate::read::engines;
use crate::sysroot::{Sysroot, join, parent};

/// Configuration is small.
const CONFIG_CAP: usize = 1 << 20;
/// Imported and drop-in files that are read.
const FILES_CAP: usize = 64;
/// Docker's configuration, and that of the snap.
const DOCKER_CONFIG: &str = "/etc/docker/daemon.json";
const DOCKER_SNAP_CONFIG: &str = "/var/snap/docker/current/config/daemon.json";
/// Where the flags of Docker's daemon stand.
const DOCKER_FLAGS: &[&str] = &[
    "/etc/systemd/system/docker.service",
    "/etc/systemd/system/docker.service.d/*.conf",
    "/run/systemd/system/docker.service.d/*.conf",
    "/usr/lib/systemd/system/docker.service.d/*.conf",
    "/lib/systemd/system/docker.service.d/*.conf",
    "/usr/lib/systemd/system/docker.service",
    "/lib/systemd/system/docker.service",
    "/etc/default/docker",
    "/etc/sysconfig/docker",
];
/// The main file of a containerd that is nobody else's part.
const CONTAINERD_CONFIG: &str = "/etc/containerd/config.toml";
/// Main files of containerd, by who runs it. Those of k3s, rke2 and `MicroK8s` are made from templates at each start.
const CONTAINERD_CONFIGS: &[&str] = &[
    CONTAINERD_CONFIG,
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "/var/snap/microk8s/current/args/containerd.toml",
];
/// CRI-O's main file and folder.
const CRIO_CONFIG: &str = "/etc/crio/crio.conf";
const CRIO_FOLDER: &str = "/etc/crio/crio.conf.d";
/// Where programs without a folder are looked for.
const PROGRAM_FOLDERS: &[&str] = &[
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// Where systemd's units are.
const UNIT_FOLDERS: &[&str] = &[
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// What the engines of a host are told.
pub(super) struct Configs {
    pub(super) docker: Reading<EngineConfig>,
    pub(super) containerd: Reading<EngineConfig>,
    pub(super) crio: Reading<EngineConfig>,
    pub(super) others: Reading<Vec<EngineConfig>>,
}

pub(super) fn configs(sysroot: &Sysroot, env: &BTreeMap<String, String>) -> Configs {
    let (docker, other_dockers) = first_of(dockers(sysroot, env), DOCKER_CONFIG);
    let containerds = CONTAINERD_CONFIGS
        .iter()
        .map(|main| containerd(sysroot, main));
    let (containerd, other_containerds) = first_of(containerds.collect(), CONTAINERD_CONFIG);
    let others: Vec<EngineConfig> = other_dockers.into_iter().chain(other_containerds).collect();
    Configs {
        docker,
        containerd,
        crio: crio(sysroot),
        others: if others.is_empty() {
            Reading::absent("further configurations of engines")
        } else {
            Reading::present(others, "further configurations of engines")
        },
    }
}

/// The first one that is there, and the others.
fn first_of(
    all: Vec<Reading<EngineConfig>>,
    usual: &str,
) -> (Reading<EngineConfig>, Vec<EngineConfig>) {
    let mut first = None;
    let mut refused = None;
    let mut others = Vec::new();
    for config in all {
        match config {
            Reading::Absent { .. } => {}
            Reading::Unreadable { .. } => {
                refused.get_or_insert(config);
            }
            Reading::Present { .. } if first.is_none() => first = Some(config),
            Reading::Present { value, .. } => others.push(value),
        }
    }
    let first = first.or(refused);
    (first.unwrap_or_else(|| Reading::absent(usual)), others)
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
    let entry = |(name, program): (String, String)| RuntimeEntry {
        program_found: if program.is_empty() {
            Reading::unreadable("no program is named")
        } else if is_inside_snap(&into.main, &program) {
            Reading::unreadable("it is looked for inside the snap")
        } else {
            program_found(sysroot, &program)
        },
        name,
        program,
        file: path.to_owned(),
    };
    let of_nvidia =
        |(name, program): &(String, String)| name.contains("nvidia") || program.contains("nvidia");
    let names: Vec<String> = said.runtimes.iter().map(|(name, _)| name.clone()).collect();
    let read: Vec<RuntimeEntry> = said
        .runtimes
        .into_iter()
        .filter(of_nvidia)
        .map(&entry)
        .collect();
    let unread: Vec<RuntimeEntry> = said
        .unread
        .into_iter()
        .filter(of_nvidia)
        .map(&entry)
        .collect();
    for runtime in read {
        into.runtimes.retain(|known| known.name != runtime.name);
        into.runtimes.push(runtime);
    }
    into.unread_runtimes.extend(unread);
    for name in names {
        if !into.runtime_names.contains(&name) {
            into.runtime_names.push(name);
        }
    }
    into.default_runtime = said.default_runtime.or(into.default_runtime.take());
    into.cdi = said.cdi.or(into.cdi);
    into.cri_disabled |= said.cri_disabled;
    if !said.cdi_dirs.is_empty() {
        into.cdi_dirs = said.cdi_dirs;
    }
    into.cgroup_driver = said.cgroup_driver.or(into.cgroup_driver.take());
    if path == into.main {
        into.version = said.version;
    } else if into.version.is_some() && said.version > into.version {
        into.newer_form.push(path.to_owned());
    }
}

/// Docker's snap has a root of its own; of the host's folders it sees those of snaps.
fn is_inside_snap(main: &str, program: &str) -> bool {
    main == DOCKER_SNAP_CONFIG
        && !program.starts_with("/snap/")
        && !program.starts_with("/var/snap/")
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

/// Whether an engine is there: its program, its unit or its socket.
fn engine_found(sysroot: &Sysroot, program: &str, unit: &str, socket: &str) -> Reading<bool> {
    let places = UNIT_FOLDERS.iter().map(|folder| join(folder, unit));
    let places = places.chain([socket.to_owned()]);
    for found in [program_found(sysroot, program)]
        .into_iter()
        .chain(places.map(|path| program_found(sysroot, &path)))
    {
        if found.value() != Some(&false) {
            return found;
        }
    }
    Reading::present(false, program.to_owned())
}

/// Docker: (1) the system's, (2) the snap's, (3) that of a daemon which the caller runs without root.
fn dockers(sysroot: &Sysroot, env: &BTreeMap<String, String>) -> Vec<Reading<EngineConfig>> {
    let folder = env.get("XDG_CONFIG_HOME").cloned();
    let folder = folder.or_else(|| env.get("HOME").map(|home| join(home, ".config")));
    let of_user = folder.map(|folder| join(&folder, "docker/daemon.json"));
    let places = [DOCKER_CONFIG, DOCKER_SNAP_CONFIG].map(|path| (path.to_owned(), false));
    places
        .into_iter()
        .chain(of_user.map(|path| (path, true)))
        .map(
            |(path, of_user)| match sysroot.text_up_to(&path, CONFIG_CAP) {
                Reading::Absent { .. } => Reading::absent(path),
                Reading::Unreadable { reason } => Reading::unreadable(reason),
                Reading::Present { value, source } => {
                    let mut config = EngineConfig {
                        main: source.clone(),
                        of_user,
                        ..EngineConfig::default()
                    };
                    add(sysroot, &mut config, &source, engines::docker(&value));
                    if path == DOCKER_CONFIG {
                        config.engine_found =
                            engine_found(sysroot, "dockerd", "docker.service", "/run/docker.sock");
                        config.runtime_names.extend(added_by_flags(sysroot));
                    }
                    Reading::present(config, source)
                }
            },
        )
        .collect()
}

fn added_by_flags(sysroot: &Sysroot) -> Vec<String> {
    let files = DOCKER_FLAGS
        .iter()
        .flat_map(|pattern| glob::files(sysroot, pattern, FILES_CAP));
    files
        .filter_map(|path| sysroot.text_up_to(&path, CONFIG_CAP).value().cloned())
        .flat_map(|text| engines::runtimes_of_flags(&text))
        .collect()
}

/// containerd: the main file, what it imports and what that imports, and drop-in files that it ought to import.
fn containerd(sysroot: &Sysroot, main: &str) -> Reading<EngineConfig> {
    let text = match sysroot.text_up_to(main, CONFIG_CAP) {
        Reading::Absent { .. } => return Reading::absent(main),
        Reading::Unreadable { reason } => return Reading::unreadable(reason),
        Reading::Present { value, .. } => value,
    };
    let mut config = EngineConfig {
        main: main.to_owned(),
        ..EngineConfig::default()
    };
    let read = engines::containerd(&text);
    let unread = read.is_err();
    // As containerd does: in the order in which they are named, each file once.
    if main == CONTAINERD_CONFIG {
        let socket = "/run/containerd/containerd.sock";
        config.engine_found = engine_found(sysroot, "containerd", "containerd.service", socket);
    }
    let mut pending = imports(sysroot, &mut config, main, &read);
    let mut loaded = vec![main.to_owned()];
    add(sysroot, &mut config, main, read);
    while !pending.is_empty() && loaded.len() < FILES_CAP {
        let path = pending.remove(0);
        if loaded.contains(&path) {
            continue;
        }
        loaded.push(path.clone());
        match sysroot.text_up_to(&path, CONFIG_CAP) {
            Reading::Present { value, .. } => {
                let read = engines::containerd(&value);
                let more = imports(sysroot, &mut config, &path, &read);
                pending.extend(more);
                add(sysroot, &mut config, &path, read);
            }
            Reading::Absent { .. } => config.imports_missing.push(path),
            Reading::Unreadable { .. } => {}
        }
    }
    if !unread {
        let drop_ins = glob::files(sysroot, &join(parent(main), "conf.d/*.toml"), FILES_CAP);
        for path in drop_ins.into_iter().filter(|path| !loaded.contains(path)) {
            let text = sysroot.text_up_to(&path, CONFIG_CAP);
            let defines = text.value().and_then(|text| engines::containerd(text).ok());
            let of_nvidia = |all: &[(String, String)]| {
                let mut all = all.iter();
                all.any(|(name, program)| name.contains("nvidia") || program.contains("nvidia"))
            };
            if defines.is_some_and(|said| of_nvidia(&said.runtimes)) {
                config.not_imported.push(path);
            }
        }
    }
    Reading::present(config, main)
}

/// The files that a file imports. A path without `*` is meant by itself, whether or not it is there.
fn imports(
    sysroot: &Sysroot,
    config: &mut EngineConfig,
    file: &str,
    read: &Result<engines::Config, String>,
) -> Vec<String> {
    let Ok(read) = read else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for pattern in read.imports.iter().take(FILES_CAP) {
        let pattern = if pattern.starts_with('/') {
            pattern.clone()
        } else {
            join(parent(file), pattern)
        };
        let pattern = cleaned(&pattern);
        if pattern.contains('*') {
            files.extend(glob::files(sysroot, &pattern, FILES_CAP));
        } else if sysroot.stat(&pattern).is_absent() {
            config.imports_missing.push(pattern);
        } else {
            files.push(pattern);
        }
    }
    files
}

/// A path without `.` and `..`, as Go's `filepath.Clean` has it: by its words alone.
fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// CRI-O: the main file, then every drop-in file in the order of their names.
fn crio(sysroot: &Sysroot) -> Reading<EngineConfig> {
    let mut config = EngineConfig {
        main: CRIO_CONFIG.to_owned(),
        engine_found: engine_found(sysroot, "crio", "crio.service", "/run/crio/crio.sock"),
        ..EngineConfig::default()
    };
    if sysroot.stat(CRIO_CONFIG).is_absent() {
        CRIO_FOLDER.clone_into(&mut config.main);
    }
    let mut paths = vec![CRIO_CONFIG.to_owned()];
    paths.extend(glob::files(sysroot, &join(CRIO_FOLDER, "*"), FILES_CAP));
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
