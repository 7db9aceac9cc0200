//! What a host has to start containers with: engines, NVIDIA's container toolkit and its configuration, the links in
//! `/dev/char`, and the marks of the GPU operator. Files alone; no daemon is asked.

use std::collections::BTreeMap;

use super::cdi;
use super::engines::{self, Configs};
use crate::facts::{
    ContainerFacts, ContainerToolkit, Engine, EngineConfig, Reading, ToolkitConfig, ToolkitPart,
};
use crate::read::engines::toolkit as read_toolkit;
use crate::sysroot::{Sysroot, join};
use crate::version::Version;

/// The toolkit's configuration is small.
const CONFIG_CAP: usize = 1 << 20;
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
/// Everything of the container layer that a host has; the packages are added from what is known of the system.
pub(in crate::probe) fn probe_host(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    packages: &[crate::facts::Package],
) -> ContainerFacts {
    let Configs {
        docker,
        containerd,
        crio,
        others,
    } = engines::configs(sysroot, env);
    let read = [&docker, &containerd, &crio].into_iter();
    let read: Vec<&EngineConfig> = read
        .filter_map(Reading::value)
        .chain(others.items())
        .collect();
    let folders: Vec<String> = read.iter().flat_map(|c| c.cdi_dirs.clone()).collect();
    ContainerFacts {
        glue: Reading::default(),
        engines: engines_here(sysroot),
        toolkit: toolkit(sysroot, env, packages),
        cdi_specs: cdi::specs(sysroot, &folders),
        docker,
        containerd,
        crio,
        others,
        systemd_cgroups: systemd_cgroups(sysroot),
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
fn toolkit(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    packages: &[crate::facts::Package],
) -> Reading<ContainerToolkit> {
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
            config: toolkit_config(sysroot, env),
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

/// (1) The system's, (2) the operator's, (3) that of the caller's own folder, which daemons that he runs himself read.
fn toolkit_config(sysroot: &Sysroot, env: &BTreeMap<String, String>) -> Reading<ToolkitConfig> {
    let mut last = Reading::absent("/etc/nvidia-container-runtime/config.toml");
    let of_user = env
        .get("XDG_CONFIG_HOME")
        .map(|folder| join(folder, "nvidia-container-runtime/config.toml"));
    let usual = TOOLKIT_CONFIGS.iter().map(|path| (*path).to_owned());
    for path in usual.chain(of_user.clone()) {
        match sysroot.text_up_to(&path, CONFIG_CAP) {
            Reading::Absent { .. } => {}
            Reading::Unreadable { reason } => last = Reading::unreadable(reason),
            Reading::Present { value, source } => {
                let mut config = read_toolkit(&value).unwrap_or_else(|problem| ToolkitConfig {
                    problem: Some(problem),
                    ..ToolkitConfig::default()
                });
                config.of_user = of_user.as_deref() == Some(path.as_str());
                look_up(sysroot, &mut config);
                return Reading::present(config, source);
            }
        }
    }
    last
}

/// Whether what the configuration names is there.
fn look_up(sysroot: &Sysroot, config: &mut ToolkitConfig) {
    let there = |path: &str| match sysroot.stat(path) {
        Reading::Present { source, .. } => Reading::present(true, source),
        Reading::Absent { source, .. } => Reading::present(false, source),
        Reading::Unreadable { reason } => Reading::unreadable(reason),
    };
    let of_host = config
        .ldconfig
        .as_deref()
        .and_then(|path| path.strip_prefix('@'));
    if let Some(path) = of_host.filter(|path| path.starts_with('/')) {
        // Ubuntu's ldconfig.real and ldconfig stand for each other: the toolkit takes the one that is there
        // (github.com/NVIDIA/nvidia-container-toolkit, internal/config, NormalizeLDConfigPath).
        let plain = path.strip_suffix(".real").unwrap_or(path);
        config.ldconfig_found = match there(plain) {
            Reading::Present { value: false, .. } => there(&format!("{plain}.real")),
            found => found,
        };
    }
    if let Some(root) = config.root.as_deref().filter(|root| root.starts_with('/')) {
        config.root_found = there(root);
    }
    // A name alone is looked for in the PATH of whoever runs it, which is not known here.
    let named = &config.runtimes;
    if !named.is_empty() && named.iter().all(|path| path.starts_with('/')) {
        let found: Vec<Reading<bool>> = named.iter().map(|path| there(path)).collect();
        let any = found.iter().find(|found| found.value() != Some(&false));
        config.runtimes_found = any.or(found.first()).cloned().unwrap_or_default();
    }
}

/// As Docker decides which cgroup driver it takes.
fn systemd_cgroups(sysroot: &Sysroot) -> Reading<bool> {
    const UNIFIED: &str = "/sys/fs/cgroup/cgroup.controllers";
    const SYSTEMD: &str = "/run/systemd/system";
    match (sysroot.stat(UNIFIED), sysroot.stat(SYSTEMD)) {
        (Reading::Unreadable { reason }, _) | (_, Reading::Unreadable { reason }) => {
            Reading::unreadable(reason)
        }
        (unified, systemd) => Reading::present(
            unified.is_present() && systemd.is_present(),
            format!("{UNIFIED}, {SYSTEMD}"),
        ),
    }
}
