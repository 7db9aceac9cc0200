//! Configuration of container engines and of NVIDIA's container toolkit: what they say of GPUs, and nothing else.

use toml::{Table, Value};

use crate::facts::ToolkitConfig;

/// What a file of an engine's configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Runtimes: name and program.
    pub runtimes: Vec<(String, String)>,
    /// containerd: runtimes under a plugin that this form of the file does not have.
    pub unread: Vec<(String, String)>,
    /// containerd: the CRI plugin is among those that are switched off.
    pub cri_disabled: bool,
    /// The runtime of containers that name none.
    pub default_runtime: Option<String>,
    /// Whether CDI is on.
    pub cdi: Option<bool>,
    /// Folders of CDI specifications.
    pub cdi_dirs: Vec<String>,
    /// `systemd` or `cgroupfs`.
    pub cgroup_driver: Option<String>,
    /// containerd: the version of the form.
    pub version: Option<u32>,
    /// containerd: files that are read as well; may hold `*`.
    pub imports: Vec<String>,
}

/// Docker's `daemon.json`.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn docker(text: &str) -> Result<Config, String> {
    use serde_json::Value as Json;
    // Docker decodes by the mark of the byte order; of UTF-16 nothing is left to read here.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() || text.contains('\0') {
        return Ok(Config::default());
    }
    let all: Json = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let Some(all) = all.as_object() else {
        return Err("is no JSON object".to_owned());
    };
    let texts = |value: Option<&Json>| -> Vec<String> {
        let items = value.and_then(Json::as_array).into_iter().flatten();
        items
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    };
    let runtimes = all.get("runtimes").and_then(Json::as_object);
    Ok(Config {
        runtimes: runtimes
            .into_iter()
            .flatten()
            .map(|(name, runtime)| {
                let options = runtime.get("options");
                let named = || options?.get("BinaryName")?.as_str();
                let program = runtime.get("path").and_then(Json::as_str).or_else(named);
                (name.clone(), program.unwrap_or_default().to_owned())
            })
            .collect(),
        default_runtime: all
            .get("default-runtime")
            .and_then(Json::as_str)
            .map(str::to_owned),
        cdi: all
            .get("features")
            .and_then(|features| features.get("cdi"))
            .and_then(Json::as_bool),
        cdi_dirs: texts(all.get("cdi-spec-dirs")),
        cgroup_driver: texts(all.get("exec-opts")).into_iter().find_map(|option| {
            option
                .strip_prefix("native.cgroupdriver=")
                .map(str::to_owned)
        }),
        ..Config::default()
    })
}

/// The plugin of the CRI by the forms of the file: 1, 2, 3 and newer.
const CRI_PLUGINS: &[&str] = &[
    "cri",
    "io.containerd.grpc.v1.cri",
    "io.containerd.cri.v1.runtime",
];

/// A file of containerd: the main one, or one that it imports. Forms 1 and 2 name the CRI plugin
/// `io.containerd.grpc.v1.cri` (form 1: `cri`), form 3 `io.containerd.cri.v1.runtime`.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn containerd(text: &str) -> Result<Config, String> {
    let all = table(text)?;
    let mut config = Config {
        version: all
            .get("version")
            .and_then(Value::as_integer)
            .and_then(|n| u32::try_from(n).ok()),
        imports: texts(all.get("imports")),
        ..Config::default()
    };
    let disabled = texts(all.get("disabled_plugins"));
    config.cri_disabled = disabled
        .iter()
        .any(|name| CRI_PLUGINS.contains(&name.as_str()));
    let plugins = all.get("plugins").and_then(Value::as_table);
    for name in CRI_PLUGINS {
        // In form 3 the runtimes have a plugin of their own, and nothing moves them there.
        let unread = config.version >= Some(3) && *name != "io.containerd.cri.v1.runtime";
        let Some(cri) = plugins.and_then(|plugins| plugins.get(*name)) else {
            continue;
        };
        if !unread {
            config.cdi = config
                .cdi
                .or(cri.get("enable_cdi").and_then(Value::as_bool));
            config.cdi_dirs.extend(texts(cri.get("cdi_spec_dirs")));
        }
        let Some(containerd) = cri.get("containerd") else {
            continue;
        };
        if !unread {
            config.default_runtime = containerd
                .get("default_runtime_name")
                .and_then(Value::as_str)
                .map(str::to_owned)
                .or(config.default_runtime);
        }
        let runtimes = containerd.get("runtimes").and_then(Value::as_table);
        for (name, runtime) in runtimes.into_iter().flatten() {
            let options = runtime.get("options");
            let program = options
                .and_then(|options| options.get("BinaryName"))
                .and_then(Value::as_str);
            if options
                .and_then(|options| options.get("SystemdCgroup"))
                .and_then(Value::as_bool)
                == Some(true)
            {
                config.cgroup_driver = Some("systemd".to_owned());
            }
            let list = if unread {
                &mut config.unread
            } else {
                &mut config.runtimes
            };
            list.push((name.clone(), program.unwrap_or_default().to_owned()));
        }
    }
    Ok(config)
}

/// A file of CRI-O.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn crio(text: &str) -> Result<Config, String> {
    let all = table(text)?;
    let runtime = all.get("crio").and_then(|crio| crio.get("runtime"));
    let get = |name: &str| runtime.and_then(|runtime| runtime.get(name));
    let runtimes = get("runtimes").and_then(Value::as_table);
    let word = |name: &str| get(name).and_then(Value::as_str).map(str::to_owned);
    Ok(Config {
        runtimes: runtimes
            .into_iter()
            .flatten()
            .map(|(name, runtime)| {
                let program = runtime.get("runtime_path").and_then(Value::as_str);
                (name.clone(), program.unwrap_or_default().to_owned())
            })
            .collect(),
        default_runtime: word("default_runtime"),
        cdi_dirs: texts(get("cdi_spec_dirs")),
        cgroup_driver: word("cgroup_manager"),
        ..Config::default()
    })
}

/// `config.toml` of the toolkit.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn toolkit(text: &str) -> Result<ToolkitConfig, String> {
    let all = table(text)?;
    let at = |path: &[&str]| {
        let (first, rest) = path.split_first()?;
        let mut value = all.get(*first)?;
        for name in rest {
            value = value.get(*name)?;
        }
        Some(value)
    };
    let flag = |path: &[&str]| at(path).and_then(Value::as_bool);
    let word = |path: &[&str]| at(path).and_then(Value::as_str).map(str::to_owned);
    Ok(ToolkitConfig {
        mode: word(&["nvidia-container-runtime", "mode"]),
        disable_require: flag(&["disable-require"]),
        accept_variable: flag(&["accept-nvidia-visible-devices-envvar-when-unprivileged"]),
        no_cgroups: flag(&["nvidia-container-cli", "no-cgroups"]),
        ldconfig: word(&["nvidia-container-cli", "ldconfig"]),
        root: word(&["nvidia-container-cli", "root"]),
        runtimes: texts(at(&["nvidia-container-runtime", "runtimes"])),
        cuda_compat_mode: word(&[
            "nvidia-container-runtime",
            "modes",
            "legacy",
            "cuda-compat-mode",
        ]),
        compat_hook_off: flag(&["features", "disable-cuda-compat-lib-hook"]),
        ..ToolkitConfig::default()
    })
}

/// Runtimes that flags of the Docker daemon add, in a unit of systemd or a file of its defaults: `--add-runtime=nvidia=...`.
pub fn runtimes_of_flags(text: &str) -> Vec<String> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    lines
        .flat_map(|line| line.split("--add-runtime").skip(1))
        .filter_map(|rest| {
            let rest = rest.trim_start_matches(['=', ' ', '"', '\'']);
            let end = rest.find(['=', ' '])?;
            rest.get(..end).map(str::to_owned)
        })
        .collect()
}

/// Reads TOML; the error is one line.
fn table(text: &str) -> Result<Table, String> {
    text.parse::<Table>().map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        let what = e.message().lines().next().unwrap_or_default().to_owned();
        format!("line {line}: {what}")
    })
}

/// The texts of a list.
fn texts(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_with_and_without_the_runtime() {
        let config = docker(
            r#"{"default-runtime": "nvidia", "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},
                "features": {"cdi": true}, "exec-opts": ["native.cgroupdriver=systemd"]}"#,
        )
        .unwrap();
        assert_eq!(
            config.runtimes,
            [("nvidia".to_owned(), "nvidia-container-runtime".to_owned())]
        );
        assert_eq!(config.default_runtime.as_deref(), Some("nvidia"));
        assert_eq!(config.cdi, Some(true));
        assert_eq!(config.cgroup_driver.as_deref(), Some("systemd"));
        assert_eq!(docker("").unwrap(), Config::default());
        assert!(docker("{,}").is_err() && docker("[]").is_err());
        assert_eq!(docker("\u{feff}{}\n").unwrap(), Config::default());
        let shim = docker(
            r#"{"runtimes": {"nvidia": {"runtimeType": "io.containerd.runc.v2", "options": {"BinaryName": "/x/nvidia"}}}}"#,
        );
        assert_eq!(shim.unwrap().runtimes[0].1, "/x/nvidia");
        assert_eq!(
            runtimes_of_flags(
                "# --add-runtime=no=1\nExecStart=/usr/bin/dockerd --add-runtime=nvidia=/usr/bin/x --add-runtime kata=/k\n"
            ),
            ["nvidia", "kata"]
        );
        assert!(docker(r#"{"runtimes": 7}"#).unwrap().runtimes.is_empty());
    }

    #[test]
    fn containerd_of_both_forms() {
        for (version, plugin) in [
            (2, "io.containerd.grpc.v1.cri"),
            (3, "io.containerd.cri.v1.runtime"),
        ] {
            let text = format!(
                "version = {version}\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n\
                 [plugins.\"{plugin}\"]\nenable_cdi = true\ncdi_spec_dirs = [\"/etc/cdi\"]\n\
                 [plugins.\"{plugin}\".containerd]\ndefault_runtime_name = \"nvidia\"\n\
                 [plugins.\"{plugin}\".containerd.runtimes.nvidia.options]\nBinaryName = \"/usr/bin/nvidia-container-runtime\"\nSystemdCgroup = true\n"
            );
            let config = containerd(&text).unwrap();
            assert_eq!(config.version, Some(version));
            assert_eq!(config.imports.len(), 1);
            assert_eq!(config.cdi, Some(true));
            assert_eq!(config.default_runtime.as_deref(), Some("nvidia"));
            assert_eq!(config.runtimes[0].1, "/usr/bin/nvidia-container-runtime");
            assert_eq!(config.cgroup_driver.as_deref(), Some("systemd"));
        }
        // The plugin of form 2 in a file of form 3; the CRI switched off.
        let old = "version = 3\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia.options]\nBinaryName = \"x\"\n";
        let config = containerd(old).unwrap();
        assert_eq!((config.runtimes.len(), config.unread.len()), (0, 1));
        assert!(
            containerd("disabled_plugins = [\"cri\"]\n")
                .unwrap()
                .cri_disabled
        );
        let e = containerd("a = 1\nb = \n").unwrap_err();
        assert!(e.starts_with("line 2"), "{e}");
    }

    #[test]
    fn crio_and_the_toolkit() {
        let config = crio("[crio.runtime]\ndefault_runtime = \"nvidia\"\n[crio.runtime.runtimes.nvidia]\nruntime_path = \"/usr/bin/nvidia-container-runtime\"\n").unwrap();
        assert_eq!(config.default_runtime.as_deref(), Some("nvidia"));
        assert_eq!(config.runtimes.len(), 1);
        let config = toolkit("disable-require = false\n[nvidia-container-runtime]\nmode = \"cdi\"\n[nvidia-container-cli]\nldconfig = \"@/sbin/ldconfig.real\"\nno-cgroups = true\n[features]\ndisable-cuda-compat-lib-hook = true\n").unwrap();
        assert_eq!(config.mode.as_deref(), Some("cdi"));
        assert_eq!(config.no_cgroups, Some(true));
        assert_eq!(config.compat_hook_off, Some(true));
        assert_eq!(config.disable_require, Some(false));
        assert!(toolkit("mode = ").is_err());
    }
}
