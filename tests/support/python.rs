//! Python environments of a described host: distributions, interpreter, and what an active one sets.

use std::collections::BTreeMap;

use super::host::Host;
use super::tree::Tree;

/// Python distributions with the interpreter of the first one's environment; answers the environment of a run.
pub fn python(host: &Host, tree: &Tree) -> BTreeMap<String, String> {
    let mut environment: BTreeMap<String, String> = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/root"),
        ("NO_COLOR", "1"),
        ("LANG", "C.UTF-8"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    for (i, distribution) in host.python.iter().enumerate() {
        let (name, version, site) = (
            &distribution.name,
            &distribution.version,
            &distribution.site,
        );
        let words: Vec<&str> = name
            .split(['-', '_', '.'])
            .filter(|word| !word.is_empty())
            .collect();
        let text = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
        tree.write(
            &format!("{site}/{}-{version}.dist-info/METADATA", words.join("_")),
            text.as_bytes(),
        );
        let Some((prefix, python)) = prefix_of(site).filter(|_| i == 0) else {
            continue;
        };
        let mut prefix = prefix.to_owned();
        // A user's own site: the interpreter is the system's.
        if let Some(home) = prefix.strip_suffix("/.local") {
            environment.insert("HOME".to_owned(), home.to_owned());
            "/usr".clone_into(&mut prefix);
        }
        let program = format!("{prefix}/bin/{python}");
        if !tree.has_entry(&program) {
            tree.write(&program, b"#!/bin/sh\nexit 127\n");
            tree.set_mode(&program, 0o755);
            tree.link(&format!("{prefix}/bin/python3"), python);
        }
        if !host.env.contains_key("CONDA_PREFIX") && is_virtual_environment(&prefix) {
            environment.insert("VIRTUAL_ENV".to_owned(), prefix.clone());
            let version = python.trim_start_matches("python");
            let text = format!("home = /usr/bin\nversion = {version}.0\n");
            tree.write(&format!("{prefix}/pyvenv.cfg"), text.as_bytes());
        }
        environment.insert("PATH".to_owned(), format!("{prefix}/bin:/usr/bin:/bin"));
    }
    environment
}

/// Prefix and interpreter of a site-packages folder: `/opt/venv`, `python3.12`.
pub fn prefix_of(site: &str) -> Option<(&str, &str)> {
    let site = site
        .strip_suffix("/site-packages")
        .or_else(|| site.strip_suffix("/dist-packages"))?;
    let (rest, python) = site.rsplit_once('/')?;
    let prefix = rest.strip_suffix("/lib")?;
    let minor = python.strip_prefix("python3.")?;
    (!minor.is_empty() && minor.chars().all(|c| c.is_ascii_digit())).then_some((prefix, python))
}

/// Whether a prefix is called as virtual environments are: its name begins with env, venv, .env or .venv.
fn is_virtual_environment(prefix: &str) -> bool {
    let name = prefix.rsplit('/').next().unwrap_or_default();
    let name = name.strip_prefix('.').unwrap_or(name);
    let name = name.strip_prefix('v').unwrap_or(name);
    name.starts_with("env")
}
