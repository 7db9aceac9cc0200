//! Where the interpreter of an environment would look for modules, without running it: the folders of `sys.path` that hold
//! distributions, in order, as Python's `site` module puts them together. Each folder is listed once.
//!
//! Order: PYTHONPATH; of a virtual environment its own site-packages and, where it includes those of its base
//! (`pyvenv.cfg`), the user's and the base's; of any other prefix the user's and its own. What a `.pth` file adds comes
//! after the folder that it lies in. Lines of code in `.pth` files are not run, so what they add is not seen.

use std::collections::BTreeMap;

use crate::facts::Reading;
use crate::read::pydist;
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};

/// The most folders that are looked at: real search paths have less than ten.
const MOST_SITES: usize = 64;

/// A folder with distributions, as it was listed.
#[derive(Debug, Default)]
pub(super) struct Site {
    /// Where it is.
    pub(super) path: String,
    /// The names in it that end in `.dist-info` or `.egg-info`; of an egg `EGG-INFO`.
    pub(super) infos: Vec<String>,
    /// The names in it that end in `.libs`: what auditwheel copies into a wheel.
    pub(super) libs: Vec<String>,
    /// Whether it has a folder `nvidia`, which NVIDIA's wheels share.
    pub(super) has_nvidia: bool,
    /// Why it could not be listed.
    pub(super) refused: Option<String>,
}

/// The folders of an environment's search path that are there.
pub(super) fn sites(sysroot: &Sysroot, env: &BTreeMap<String, String>, prefix: &str) -> Vec<Site> {
    let mut sites = Sites {
        sysroot,
        found: Vec::new(),
        seen: Vec::new(),
    };
    for dir in env
        .get("PYTHONPATH")
        .into_iter()
        .flat_map(|all| all.split(':'))
    {
        if dir.starts_with('/') {
            sites.add(dir.trim_end_matches('/').to_owned());
        }
    }
    let config = sysroot.text(&join(prefix, "pyvenv.cfg"));
    let config = config.value().map(|text| VenvConfig::parse(text));
    let versions = versions(sysroot, prefix);
    if let Some(config) = &config {
        sites.add_prefix(prefix, &versions);
        if config.includes_base {
            // `home` is the folder of the interpreter that the environment was made with.
            let base = config.home.as_deref().map_or("/usr", parent);
            sites.add_user(env, &versions);
            sites.add_prefix(base, &versions);
        }
    } else {
        sites.add_user(env, &versions);
        sites.add_prefix(prefix, &versions);
    }
    sites.found
}

/// The search path as it grows.
struct Sites<'a> {
    sysroot: &'a Sysroot,
    found: Vec<Site>,
    /// The folders that are in it, by device and inode: two paths may lead to the same.
    seen: Vec<(u64, u64)>,
}

impl Sites<'_> {
    /// The site-packages folders of a prefix: those of Python itself, and Debian's and Fedora's.
    fn add_prefix(&mut self, prefix: &str, versions: &[String]) {
        // In a virtual environment lib64 is a link to lib, on Fedora a folder of its own that comes first.
        let lib64 = self.sysroot.lstat(&join(prefix, "lib64"));
        let own_lib64 = lib64.value().is_some_and(|stat| stat.kind == Kind::Folder);
        for version in versions {
            self.add_with_pth(format!("{prefix}/local/lib/{version}/dist-packages"));
            if own_lib64 {
                self.add_with_pth(format!("{prefix}/local/lib64/{version}/site-packages"));
                self.add_with_pth(format!("{prefix}/local/lib/{version}/site-packages"));
                self.add_with_pth(format!("{prefix}/lib64/{version}/site-packages"));
            }
            self.add_with_pth(format!("{prefix}/lib/{version}/site-packages"));
            self.add_with_pth(format!("{prefix}/lib/{version}/dist-packages"));
        }
        self.add_with_pth(format!("{prefix}/lib/python3/dist-packages"));
    }

    /// The user's own site-packages, which every interpreter but that of a virtual environment takes.
    fn add_user(&mut self, env: &BTreeMap<String, String>, versions: &[String]) {
        let is_set = |name: &str| env.get(name).is_some_and(|value| !value.is_empty());
        if is_set("PYTHONNOUSERSITE") {
            return;
        }
        let absolute = |name: &str| env.get(name).filter(|dir| dir.starts_with('/'));
        let base = match (absolute("PYTHONUSERBASE"), absolute("HOME")) {
            (Some(base), _) => base.clone(),
            (None, Some(home)) => join(home, ".local"),
            (None, None) => return,
        };
        let own = if versions.is_empty() {
            python_folders(self.sysroot, &base)
        } else {
            versions.to_vec()
        };
        for version in own {
            self.add_with_pth(format!("{base}/lib/{version}/site-packages"));
        }
    }

    fn add_with_pth(&mut self, path: String) {
        for (pth, text) in self.add(path) {
            let folder = parent(&pth).to_owned();
            for line in pydist::pth_paths(&text) {
                let dir = resolved(&folder, &line);
                self.add(dir.trim_end_matches('/').to_owned());
            }
        }
    }

    /// Lists a folder where it is one and not listed yet; the `.pth` files in it with their text.
    fn add(&mut self, path: String) -> Vec<(String, String)> {
        let stat = self.sysroot.stat(&path);
        let Some(stat) = stat.value().filter(|stat| stat.kind == Kind::Folder) else {
            return Vec::new();
        };
        if self.seen.contains(&stat.identity) || self.found.len() >= MOST_SITES {
            return Vec::new();
        }
        self.seen.push(stat.identity);
        let names = self.sysroot.list(&path, |name| {
            name == "nvidia"
                || name == "EGG-INFO"
                || [".dist-info", ".egg-info", ".libs", ".pth"]
                    .iter()
                    .any(|end| name.ends_with(end))
        });
        let mut site = Site {
            path,
            ..Site::default()
        };
        let mut pth = Vec::new();
        match names {
            Reading::Present { value, .. } => {
                for name in value {
                    match name.rsplit_once('.') {
                        Some((_, "libs")) => site.libs.push(name),
                        Some((_, "pth")) => pth.push(join(&site.path, &name)),
                        _ if name == "nvidia" => site.has_nvidia = true,
                        _ => site.infos.push(name),
                    }
                }
            }
            Reading::Unreadable { reason } => site.refused = Some(reason),
            Reading::Absent { .. } => {}
        }
        self.found.push(site);
        let text = |path: String| {
            let text = self.sysroot.text(&path).value().cloned()?;
            Some((path, text))
        };
        pth.into_iter().filter_map(text).collect()
    }
}

/// What of a `pyvenv.cfg` matters here.
#[derive(Debug, Default, PartialEq, Eq)]
struct VenvConfig {
    /// The folder of the base's interpreter.
    home: Option<String>,
    /// Whether the base's packages are on the search path too.
    includes_base: bool,
}

impl VenvConfig {
    fn parse(text: &str) -> Self {
        let mut config = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            let value = value.trim();
            match key.trim().to_ascii_lowercase().as_str() {
                "home" if value.starts_with('/') => {
                    config.home = Some(value.trim_end_matches('/').to_owned());
                }
                "include-system-site-packages" => {
                    config.includes_base = value.eq_ignore_ascii_case("true");
                }
                _ => {}
            }
        }
        config
    }
}

/// The `python3.12` folders in a prefix's lib; only that of its own interpreter where that is among them.
fn versions(sysroot: &Sysroot, prefix: &str) -> Vec<String> {
    let mut versions = python_folders(sysroot, prefix);
    if let Some(name) = sysroot
        .real_path(&join(prefix, "bin/python3"))
        .value()
        .map(|real| file_name(real).to_owned())
        && let Some(at) = versions.iter().position(|v| *v == name)
    {
        versions = vec![versions.swap_remove(at)];
    }
    versions
}

/// `python3.12` folders in a prefix's lib.
pub(super) fn python_folders(sysroot: &Sysroot, prefix: &str) -> Vec<String> {
    sysroot
        .list(&join(prefix, "lib"), |name| name.starts_with("python3."))
        .items()
        .to_vec()
}

/// A path below a folder as a whole one: `../../../bin/x` goes up by names, as installers and `site` mean it.
pub(super) fn resolved(base: &str, path: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let mut base = base.trim_end_matches('/');
    let mut rest = path;
    loop {
        rest = rest.trim_start_matches("./");
        let Some(up) = rest.strip_prefix("../") else {
            return join(base, rest);
        };
        base = parent(base);
        rest = up;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_paths() {
        for (path, whole) in [
            (
                "nvidia/nccl/lib/libnccl.so.2",
                "/v/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2",
            ),
            ("../../../lib/libx.so", "/v/lib/libx.so"),
            ("./a.so", "/v/lib/python3.12/site-packages/a.so"),
            ("/opt/x.so", "/opt/x.so"),
            ("../../../../../../../x.so", "/x.so"),
        ] {
            assert_eq!(resolved("/v/lib/python3.12/site-packages", path), whole);
        }
    }
}
