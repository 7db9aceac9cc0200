//! What the user wants to run: the environment whose runtimes are judged, found without running Python.
//!
//! Order: `--python-env`, `$VIRTUAL_ENV`, `$CONDA_PREFIX`, `./.venv`, the `python3` on PATH with its user site where
//! that holds anything of CUDA, else the machine as such. What else was seen is told, not examined.

use std::collections::BTreeMap;

use crate::facts::{Consumer, ConsumerKind, Distribution, Process, Reading};
use crate::probe::application::App;
use crate::probe::distributions::{self, Named};
use crate::probe::search_path::{self, Site, python_folders};
use crate::probe::unread;
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};
use crate::version::Version;

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

/// Why an environment is examined that the caller named.
const ASKED: &str = "--python-env";
/// Where Python's versions lie that pyenv, and only that, hands out.
const PYENV_VERSIONS: &str = "versions";
/// The most conda environments that are named besides the one that is examined.
const MOST_NAMED: usize = 5;

/// What is examined, with what was listed on the way.
pub(super) struct Examined {
    pub(super) consumer: Consumer,
    /// The folders of its search path.
    pub(super) sites: Vec<Site>,
    /// The distributions in them that matter.
    pub(super) named: Vec<Named>,
}

/// The caller's world, as far as it decides which environment is meant.
struct World<'a> {
    sysroot: &'a Sysroot,
    env: &'a BTreeMap<String, String>,
    working_folder: Option<&'a str>,
}

/// What the caller named.
pub(super) struct Asked<'a> {
    /// `--python-env`.
    pub(super) prefix: Option<&'a str>,
    /// `--app`, and its path.
    pub(super) app: Option<(&'a App, &'a str)>,
    /// `--pid`.
    pub(super) process: Option<&'a Process>,
}

pub(super) fn find(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    working_folder: Option<&str>,
    asked: &Asked<'_>,
) -> Examined {
    let world = World {
        sysroot,
        env,
        working_folder,
    };
    if let Some(process) = asked.process {
        return world.process(process);
    }
    match asked.app {
        Some((App::Program(..), path)) => named(
            asked
                .prefix
                .map_or_else(machine, |prefix| world.environment(prefix, ASKED)),
            ConsumerKind::Application,
            short(path, working_folder),
            "--app",
        ),
        Some((App::Script(Some(prefix)), path))
            if asked.prefix.is_none() && is_environment(sysroot, prefix) =>
        {
            let examined = world.environment(prefix, "--app");
            let why = format!("--app: its first line names {prefix}");
            named(
                examined,
                ConsumerKind::Application,
                short(path, working_folder),
                &why,
            )
        }
        Some((App::Script(_), path)) => {
            let examined = world.active(asked.prefix);
            let why = format!(
                "--app, in {} ({})",
                examined.consumer.what, examined.consumer.why
            );
            named(
                examined,
                ConsumerKind::Application,
                short(path, working_folder),
                &why,
            )
        }
        None => world.active(asked.prefix),
    }
}

/// The same, told as what the caller named.
fn named(mut examined: Examined, kind: ConsumerKind, what: String, why: &str) -> Examined {
    examined.consumer.kind = kind;
    examined.consumer.what = what;
    why.clone_into(&mut examined.consumer.why);
    examined
}

impl World<'_> {
    /// A process, with the environment that its modules come from.
    fn process(&self, process: &Process) -> Examined {
        let examined = match &process.prefix {
            Some(prefix) => self.environment(prefix, "--pid"),
            None => machine(),
        };
        let program = process.exe.value().map_or_else(String::new, |exe| {
            format!(" ({})", file_name(exe.trim_end_matches(" (deleted)")))
        });
        let what = format!("process {}{program}", process.pid);
        named(examined, ConsumerKind::Process, what, "--pid")
    }

    /// The environment that was asked for, else the active one, else the machine as such.
    fn active(&self, asked: Option<&str>) -> Examined {
        let (sysroot, world) = (self.sysroot, self);
        let mut candidates = world.candidates(asked);
        // A variable may outlive the environment that it names; what was asked for by name is examined as it is.
        let stale: Vec<String> = candidates
            .iter()
            .filter(|(prefix, why)| why != ASKED && sysroot.stat(prefix).is_absent())
            .map(|(prefix, why)| format!("{why} names {prefix}, which is not there"))
            .collect();
        candidates.retain(|(prefix, why)| why == ASKED || !sysroot.stat(prefix).is_absent());
        let on_path = world.python_on_path();
        let mut chosen = candidates
            .first()
            .map(|(prefix, why)| world.environment(prefix, why));
        let mut also_found: Vec<(String, String)> = candidates.into_iter().skip(1).collect();
        let is_chosen = |chosen: &Option<Examined>, prefix: &str| {
            chosen
                .as_ref()
                .is_some_and(|e| e.consumer.prefix.value().is_some_and(|own| own == prefix))
        };
        if let Some(prefix) = on_path.filter(|prefix| !is_chosen(&chosen, prefix)) {
            let found = world.environment(&prefix, "python3 on PATH");
            let has_cuda = !found.consumer.frameworks.items().is_empty()
                || found.sites.iter().any(|site| site.has_nvidia);
            match (has_cuda, &chosen) {
                (true, None) => chosen = Some(found),
                (true, Some(_)) => also_found.push((prefix, "python3 on PATH".to_owned())),
                (false, _) => {}
            }
        }
        also_found.extend(world.beside());
        also_found.extend(world.conda_environments());
        let mut examined = chosen.unwrap_or_else(machine);
        for (prefix, why) in also_found {
            let line = format!("{prefix} ({why})");
            let known = examined.consumer.also_found.iter().any(|other| {
                other
                    .strip_prefix(prefix.as_str())
                    .is_some_and(|rest| rest.starts_with(" ("))
            });
            if !known && examined.consumer.prefix.value() != Some(&prefix) {
                examined.consumer.also_found.push(line);
            }
        }
        for reason in stale {
            examined.consumer.why = format!("{}; {reason}", examined.consumer.why);
        }
        examined
    }
}

/// No environment at all.
fn machine() -> Examined {
    Examined {
        consumer: Consumer {
            kind: ConsumerKind::Machine,
            what: "this machine".to_owned(),
            why: "no environment is active, and no python3 on PATH brings anything of CUDA"
                .to_owned(),
            prefix: Reading::absent("$VIRTUAL_ENV, $CONDA_PREFIX, ./.venv, python3 on PATH"),
            frameworks: Reading::present(Vec::new(), "no environment"),
            torch_cuda: Reading::absent("torch/version.py"),
            ..Consumer::default()
        },
        sites: Vec::new(),
        named: Vec::new(),
    }
}

impl World<'_> {
    /// Environments that somebody named or that lie where one would, in the order in which they count; prefix and why.
    fn candidates(&self, asked: Option<&str>) -> Vec<(String, String)> {
        let variable = |name: &str| {
            let value = self.env.get(name).filter(|value| value.starts_with('/'))?;
            Some((trimmed(value), format!("${name}")))
        };
        // uv's name for the environment of the project in which it is called.
        let project = self
            .env
            .get("UV_PROJECT_ENVIRONMENT")
            .filter(|dir| !dir.is_empty());
        let (own, why) = match project {
            Some(dir) => (dir.as_str(), "$UV_PROJECT_ENVIRONMENT"),
            None => (".venv", "./.venv"),
        };
        let own = if own.starts_with('/') {
            Some(trimmed(own))
        } else {
            self.working_folder
                .map(|dir| trimmed(&join(dir, own.trim_start_matches("./"))))
        };
        let own = own.filter(|dir| is_environment(self.sysroot, dir));
        [
            asked.map(|prefix| (trimmed(prefix), ASKED.to_owned())),
            variable("VIRTUAL_ENV"),
            variable("CONDA_PREFIX"),
            own.map(|prefix| (prefix, why.to_owned())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Environments in the working folder that nothing names.
    fn beside(&self) -> Vec<(String, String)> {
        let names = ["venv", "env"].iter();
        names
            .filter_map(|name| {
                let dir = join(self.working_folder?, name);
                let config = self.sysroot.lstat(&join(&dir, "pyvenv.cfg"));
                config.is_present().then(|| (dir, format!("./{name}")))
            })
            .collect()
    }

    /// The named environments of the conda installation that is active.
    fn conda_environments(&self) -> Vec<(String, String)> {
        let Some(prefix) = self
            .env
            .get("CONDA_PREFIX")
            .filter(|dir| dir.starts_with('/'))
        else {
            return Vec::new();
        };
        let prefix = trimmed(prefix);
        let root = match prefix.rsplit_once("/envs/") {
            Some((root, name)) if !name.contains('/') => root.to_owned(),
            _ => prefix,
        };
        let envs = join(&root, "envs");
        let names = self.sysroot.list(&envs, |name| !name.starts_with('.'));
        let found: Vec<String> = names
            .items()
            .iter()
            .map(|name| join(&envs, name))
            .filter(|dir| self.sysroot.exists(&join(dir, "conda-meta")))
            .collect();
        let count = found.len();
        found
            .into_iter()
            .take(MOST_NAMED)
            .map(|dir| {
                let why = if count > MOST_NAMED {
                    format!("one of {count} conda environments")
                } else {
                    "conda environment".to_owned()
                };
                (dir, why)
            })
            .collect()
    }

    /// The prefix of the python3 that PATH finds first.
    fn python_on_path(&self) -> Option<String> {
        let sysroot = self.sysroot;
        for dir in self
            .env
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
            // pyenv's shims are scripts; its version files say which interpreter they start.
            if dir.ends_with("/shims") && sysroot.exists(&join(parent(dir), PYENV_VERSIONS)) {
                match self.pyenv_prefix(parent(dir)) {
                    Some(prefix) => return Some(prefix),
                    None => continue,
                }
            }
            // A link such as /usr/local/bin/python3 -> /opt/python/bin/python3.12 has its libraries where it leads, unless
            // the folder it lies in is an environment of its own.
            let prefix = parent(dir).to_owned();
            let has_lib = !python_folders(sysroot, &prefix).is_empty()
                || sysroot.exists(&join(&prefix, "pyvenv.cfg"));
            if has_lib {
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

    /// The interpreter that pyenv's shims start: by `$PYENV_VERSION`, the nearest `.python-version`, or the file
    /// `version`; none for `system`, where the shim hands on to the rest of PATH.
    fn pyenv_prefix(&self, root: &str) -> Option<String> {
        let first_word = |path: &str| {
            let text = self.sysroot.text(path);
            let text = text.value()?;
            text.split_whitespace().next().map(str::to_owned)
        };
        let in_folders = || {
            let mut folder = self.working_folder?;
            loop {
                if let Some(version) = first_word(&join(folder, ".python-version")) {
                    return Some(version);
                }
                if folder == "/" {
                    return None;
                }
                folder = parent(folder);
            }
        };
        let version = self
            .env
            .get("PYENV_VERSION")
            .filter(|version| !version.is_empty())
            .and_then(|versions| versions.split(':').next().map(str::to_owned))
            .or_else(in_folders)
            .or_else(|| first_word(&join(root, "version")))?;
        let versions = join(root, PYENV_VERSIONS);
        let exact = join(&versions, &version);
        if self.sysroot.exists(&exact) {
            return Some(exact);
        }
        // "3.12" means the newest 3.12.x that is installed.
        let installed = self.sysroot.list(&versions, |name| {
            name.strip_prefix(version.as_str())
                .is_some_and(|rest| rest.starts_with('.'))
        });
        let newest = installed
            .items()
            .iter()
            .max_by_key(|name| Version::parse(name));
        newest.map(|name| join(&versions, name))
    }

    /// An environment, with what its interpreter would find.
    fn environment(&self, prefix: &str, why: &str) -> Examined {
        let sites = search_path::sites(self.sysroot, self.env, prefix);
        let named = distributions::named(self.sysroot, &sites, prefix);
        let site_packages: Vec<String> = sites.iter().map(|site| site.path.clone()).collect();
        let torch_cuda = match torch_cuda(self.sysroot, &site_packages) {
            Some(version) => Reading::present(version, "torch/version.py"),
            None => Reading::absent("torch/version.py"),
        };
        Examined {
            consumer: Consumer {
                kind: ConsumerKind::Environment,
                what: short(prefix, self.working_folder),
                why: why.to_owned(),
                // What is refused is there all the same.
                prefix: if self.sysroot.stat(prefix).is_absent() {
                    Reading::absent(prefix)
                } else {
                    Reading::present(prefix.to_owned(), why)
                },
                frameworks: match unread::of_search_path(self.sysroot, prefix, &sites).first() {
                    Some(refused) if named.is_empty() => Reading::unreadable(&refused.reason),
                    _ => frameworks(&sites, &named),
                },
                site_packages,
                also_found: Vec::new(),
                torch_cuda,
                unread: unread::of_search_path(self.sysroot, prefix, &sites),
                dead_python: dead_python(self.sysroot, prefix),
            },
            sites,
            named,
        }
    }
}

/// Whether a folder is an environment at all.
pub(super) fn is_environment(sysroot: &Sysroot, prefix: &str) -> bool {
    ["pyvenv.cfg", "conda-meta", "bin/python3", "bin/python"]
        .iter()
        .any(|name| sysroot.lstat(&join(prefix, name)).is_present())
}

/// The link in place of a virtual environment's Python that leads nowhere, with its text: what it was made from was
/// upgraded or removed since, or lies on another machine.
fn dead_python(sysroot: &Sysroot, prefix: &str) -> Option<(String, String)> {
    if !sysroot.exists(&join(prefix, "pyvenv.cfg")) {
        return None;
    }
    let names = ["bin/python3", "bin/python"].map(|name| join(prefix, name));
    let link = names
        .iter()
        .find_map(|path| Some((path.clone(), sysroot.link(path).value()?.clone())))?;
    let is_dead = |path: &String| sysroot.stat(path).is_absent();
    names.iter().all(is_dead).then_some(link)
}

/// A folder without slashes at its end.
fn trimmed(dir: &str) -> String {
    match dir.trim_end_matches('/') {
        "" => "/".to_owned(),
        dir => dir.to_owned(),
    }
}

/// A name for titles: relative to the working folder where it lies in it.
fn short(prefix: &str, working_folder: Option<&str>) -> String {
    working_folder
        .and_then(|dir| prefix.strip_prefix(dir))
        .and_then(|rest| rest.strip_prefix('/'))
        .map_or_else(|| prefix.to_owned(), |rest| format!("./{rest}"))
}

/// Frameworks by the names of dist-info folders and of conda's records, the environment's trade first.
fn frameworks(sites: &[Site], named: &[Named]) -> Reading<Vec<Distribution>> {
    let mut found: Vec<Distribution> = Vec::new();
    for dist in named {
        let name = if dist.name == "pytorch" {
            "torch"
        } else {
            &dist.name
        };
        let is_framework = FRAMEWORKS.contains(&name) || name.starts_with("cupy-");
        if is_framework && !found.iter().any(|d| d.name == name) {
            found.push(Distribution {
                name: name.to_owned(),
                version: dist.version.clone(),
                site: dist.site.clone(),
            });
        }
    }
    found.sort_by_key(|d| {
        FRAMEWORKS
            .iter()
            .position(|f| *f == d.name)
            .unwrap_or(FRAMEWORKS.len())
    });
    match sites.iter().find_map(|site| site.refused.as_ref()) {
        Some(reason) if found.is_empty() => Reading::unreadable(reason),
        _ => Reading::present(found, "names of dist-info folders and conda records"),
    }
}

/// Whether a file name has this extension, in lower case as these programs write it.
pub(super) fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, e)| e == extension)
}

/// The CUDA version that torch in one of these folders was built for, from its `version.py`.
fn torch_cuda(sysroot: &Sysroot, sites: &[String]) -> Option<Version> {
    let text = sites.iter().find_map(|site| {
        sysroot
            .text(&join(site, "torch/version.py"))
            .value()
            .cloned()
    })?;
    let line = text.lines().find(|line| line.starts_with("cuda"))?;
    Version::parse(line.split_once('=')?.1.trim().trim_matches(['\'', '"']))
}
