//! What the user wants to run: the environment whose runtimes are judged, found without running Python.
//!
//! Order: `--python-env`, `$VIRTUAL_ENV`, `$CONDA_PREFIX`, `./.venv`, the `python3` on PATH with its user site where
//! that holds anything of CUDA, else the machine as such.

use std::collections::BTreeMap;

use crate::facts::{Consumer, ConsumerKind, Distribution, Reading};
use crate::read::pydist;
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};

/// Distributions that use a CUDA runtime, by normalised name; the first that is installed names the environment's trade.
const FRAMEWORKS: &[&str] = &[
    "torch",
    "vllm",
    "tensorflow",
    "tensorflow-gpu",
    "jax",
    "jaxlib",
    "onnxruntime-gpu",
    "cupy",
    "numba",
    "tensorrt",
    "bitsandbytes",
    "xformers",
    "flash-attn",
    "ctranslate2",
    "triton",
    "paddlepaddle-gpu",
    "cuml-cu12",
    "cudf-cu12",
    "mxnet",
    "deepspeed",
];

pub(super) fn find(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    working_folder: Option<&str>,
    asked: Option<&str>,
) -> Consumer {
    let dot_venv = working_folder
        .map(|dir| join(dir, ".venv"))
        .filter(|dir| is_environment(sysroot, dir));
    let value = |name: &str| {
        env.get(name)
            .filter(|value| value.starts_with('/'))
            .map(|value| value.trim_end_matches('/').to_owned())
    };
    let mut candidates: Vec<(String, String)> = Vec::new();
    if let Some(prefix) = asked {
        candidates.push((
            prefix.trim_end_matches('/').to_owned(),
            "--python-env".to_owned(),
        ));
    }
    if let Some(prefix) = value("VIRTUAL_ENV") {
        candidates.push((prefix, "$VIRTUAL_ENV".to_owned()));
    }
    if let Some(prefix) = value("CONDA_PREFIX") {
        candidates.push((prefix, "$CONDA_PREFIX".to_owned()));
    }
    if let Some(prefix) = &dot_venv {
        candidates.push((prefix.clone(), "./.venv".to_owned()));
    }
    let on_path = python_on_path(sysroot, env);
    let mut chosen: Option<Consumer> = None;
    let mut also_found = Vec::new();
    for (prefix, why) in candidates {
        if chosen.is_none() {
            chosen = Some(environment(sysroot, env, &prefix, &why, working_folder));
        } else if chosen
            .as_ref()
            .is_some_and(|c| c.prefix.value() != Some(&prefix))
            && sysroot.exists(&prefix)
        {
            also_found.push(format!("{prefix} ({why})"));
        }
    }
    if let Some(prefix) = on_path
        && chosen.is_none()
    {
        let found = environment(sysroot, env, &prefix, "python3 on PATH", working_folder);
        let has_cuda = !found.frameworks.items().is_empty()
            || found
                .site_packages
                .iter()
                .any(|site| sysroot.exists(&join(site, "nvidia")));
        if has_cuda {
            chosen = Some(found);
        }
    }
    let mut consumer = chosen.unwrap_or_else(|| Consumer {
        kind: ConsumerKind::Machine,
        what: "this machine".to_owned(),
        why: "no environment is active, and no python3 on PATH brings anything of CUDA".to_owned(),
        prefix: Reading::absent("$VIRTUAL_ENV, $CONDA_PREFIX, ./.venv, python3 on PATH"),
        frameworks: Reading::present(Vec::new(), "no environment"),
        ..Consumer::default()
    });
    consumer.also_found = also_found;
    consumer.torch_cuda = match torch_cuda(sysroot, &consumer.site_packages) {
        Some(version) => Reading::present(version, "torch/version.py"),
        None => Reading::absent("torch/version.py"),
    };
    consumer
}

/// Whether a folder is an environment at all.
fn is_environment(sysroot: &Sysroot, prefix: &str) -> bool {
    ["pyvenv.cfg", "conda-meta", "bin/python3", "bin/python"]
        .iter()
        .any(|name| sysroot.lstat(&join(prefix, name)).is_present())
}

/// The prefix of the python3 that PATH finds first.
fn python_on_path(sysroot: &Sysroot, env: &BTreeMap<String, String>) -> Option<String> {
    for dir in env
        .get("PATH")?
        .split(':')
        .filter(|dir| dir.starts_with('/'))
    {
        let python = join(dir, "python3");
        if !sysroot
            .stat(&python)
            .value()
            .is_some_and(|stat| stat.kind == Kind::File)
        {
            continue;
        }
        // pyenv's shims are scripts; the version file says which interpreter they start.
        if dir.ends_with("/shims") {
            let root = parent(dir);
            let version = env.get("PYENV_VERSION").cloned().or_else(|| {
                sysroot
                    .text(&join(root, "version"))
                    .value()
                    .map(|text| text.lines().next().unwrap_or_default().trim().to_owned())
            });
            let prefix = version
                .map(|v| format!("{root}/versions/{v}"))
                .filter(|prefix| sysroot.exists(prefix));
            if let Some(prefix) = prefix {
                return Some(prefix);
            }
            continue;
        }
        // A link such as /usr/local/bin/python3 -> /opt/python/bin/python3.12 has its libraries where it leads, unless
        // the folder it lies in is an environment of its own.
        let prefix = parent(dir).to_owned();
        let has_lib = |prefix: &str| {
            !python_versions(sysroot, prefix).is_empty()
                || sysroot.exists(&join(prefix, "pyvenv.cfg"))
        };
        if has_lib(&prefix) {
            return Some(prefix);
        }
        let real = sysroot
            .real_path(&python)
            .value()
            .map(|real| parent(parent(real)).to_owned());
        return Some(real.unwrap_or(prefix));
    }
    log::debug!("no python3 on PATH");
    None
}

/// `python3.12` folders in a prefix's lib.
fn python_versions(sysroot: &Sysroot, prefix: &str) -> Vec<String> {
    sysroot
        .list(&join(prefix, "lib"), |name| name.starts_with("python3."))
        .items()
        .to_vec()
}

/// An environment: its site-packages folders as its interpreter would search them.
fn environment(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    prefix: &str,
    why: &str,
    working_folder: Option<&str>,
) -> Consumer {
    let mut sites = Vec::new();
    let mut add = |site: String| {
        if sysroot.exists(&site) && !sites.contains(&site) {
            sites.push(site);
        }
    };
    let config = sysroot.text(&join(prefix, "pyvenv.cfg"));
    let isolated = config.value().is_some_and(|text| {
        !text.lines().any(|line| {
            line.replace(' ', "")
                .eq_ignore_ascii_case("include-system-site-packages=true")
        })
    });
    let mut versions = python_versions(sysroot, prefix);
    if let Some(name) = sysroot
        .real_path(&join(prefix, "bin/python3"))
        .value()
        .map(|real| file_name(real).to_owned())
    {
        // The interpreter's own version first, where several lie side by side.
        if let Some(at) = versions.iter().position(|v| *v == name) {
            versions = vec![versions.swap_remove(at)];
        }
    }
    if !isolated && let Some(home) = env.get("HOME").filter(|home| home.starts_with('/')) {
        let own: Vec<String> = if versions.is_empty() {
            python_versions(sysroot, &join(home, ".local"))
        } else {
            versions.clone()
        };
        for version in own {
            add(format!("{home}/.local/lib/{version}/site-packages"));
        }
    }
    for version in &versions {
        add(format!("{prefix}/lib/{version}/site-packages"));
        add(format!("{prefix}/local/lib/{version}/dist-packages"));
        add(format!("{prefix}/lib/{version}/dist-packages"));
    }
    add(format!("{prefix}/lib/python3/dist-packages"));
    let frameworks = frameworks(sysroot, &sites, prefix);
    Consumer {
        kind: ConsumerKind::Environment,
        what: short(prefix, working_folder),
        why: why.to_owned(),
        prefix: if sysroot.exists(prefix) {
            Reading::present(prefix.to_owned(), why)
        } else {
            Reading::absent(prefix)
        },
        site_packages: sites,
        also_found: Vec::new(),
        torch_cuda: Reading::default(),
        frameworks,
    }
}

/// A name for titles: relative to the working folder where it lies in it.
fn short(prefix: &str, working_folder: Option<&str>) -> String {
    working_folder
        .and_then(|dir| prefix.strip_prefix(dir))
        .and_then(|rest| rest.strip_prefix('/'))
        .map_or_else(|| prefix.to_owned(), |rest| format!("./{rest}"))
}

/// Frameworks by the names of dist-info folders and of conda's records: no file is opened, but for torch's version
/// file, which says for which CUDA it was built.
fn frameworks(sysroot: &Sysroot, sites: &[String], prefix: &str) -> Reading<Vec<Distribution>> {
    let mut found: Vec<Distribution> = Vec::new();
    let mut refused = None;
    for site in sites {
        match sysroot.list(site, |name| {
            name.ends_with(".dist-info") || name.ends_with(".egg-info")
        }) {
            Reading::Present { value, .. } => {
                for (name, version) in value
                    .iter()
                    .filter_map(|dir| pydist::from_dist_info_dir(dir))
                {
                    let is_framework =
                        FRAMEWORKS.contains(&name.as_str()) || name.starts_with("cupy-");
                    if is_framework && !found.iter().any(|d| d.name == name) {
                        found.push(Distribution {
                            name,
                            version,
                            site: site.clone(),
                        });
                    }
                }
            }
            Reading::Unreadable { reason } => refused = Some(reason),
            Reading::Absent { .. } => {}
        }
    }
    let meta = join(prefix, "conda-meta");
    for (name, version) in sysroot
        .list(&meta, |name| has_extension(name, "json"))
        .items()
        .iter()
        .filter_map(|file| pydist::from_conda_meta(file))
    {
        let name = if name == "pytorch" {
            "torch".to_owned()
        } else {
            name
        };
        if FRAMEWORKS.contains(&name.as_str()) && !found.iter().any(|d| d.name == name) {
            found.push(Distribution {
                name,
                version,
                site: meta.clone(),
            });
        }
    }
    found.sort_by_key(|d| {
        FRAMEWORKS
            .iter()
            .position(|f| *f == d.name)
            .unwrap_or(FRAMEWORKS.len())
    });
    match refused {
        Some(reason) if found.is_empty() => Reading::unreadable(reason),
        _ => Reading::present(found, "names of dist-info folders and conda records"),
    }
}

/// Whether a file name has this extension, in lower case as these programs write it.
pub(super) fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, e)| e == extension)
}

/// The CUDA version that torch in one of these folders was built for, from its `version.py`.
fn torch_cuda(sysroot: &Sysroot, sites: &[String]) -> Option<crate::version::Version> {
    let text = sites.iter().find_map(|site| {
        sysroot
            .text(&join(site, "torch/version.py"))
            .value()
            .cloned()
    })?;
    let line = text.lines().find(|line| line.starts_with("cuda"))?;
    crate::version::Version::parse(line.split_once('=')?.1.trim().trim_matches(['\'', '"']))
}
