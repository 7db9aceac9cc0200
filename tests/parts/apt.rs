//! Driver packages from the mirror that this machine's apt already uses, with the component that holds them added in a
//! copy of that source. Lists, cache and configuration are private, so it takes no root and leaves the machine as it is.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Branch, Driver, RELEASES, run, say};

/// The component of NVIDIA's packages: what is not free software.
const NON_FREE: &str = "non-free";
/// The component of AMD's.
const MAIN: &str = "main";
/// Where a package says, for later runs, which version it was.
const TAKEN: &str = "taken";
/// Names by which apt sources call Debian's archive; those of other archives are left alone.
const DEBIAN: &[&str] = &[
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "sid",
    "oldoldstable",
    "oldstable",
    "stable",
    "testing",
    "unstable",
];

/// A private apt. Its lists are fetched when the first package is asked for.
pub(super) struct Apt {
    folder: PathBuf,
    component: &'static str,
    ready: OnceCell<Result<(), String>>,
}

impl Apt {
    pub(super) fn new(folder: &Path) -> Self {
        Self::of(NON_FREE, folder)
    }

    /// The same for what is free software.
    pub(super) fn main(folder: &Path) -> Self {
        Self::of(MAIN, folder)
    }

    fn of(component: &'static str, folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            component,
            ready: OnceCell::new(),
        }
    }

    /// Downloads both packages of a branch and unpacks them into `folder`.
    pub(super) fn fetch(&self, branch: Branch, folder: &Path) -> Result<(), String> {
        self.ready.get_or_init(|| self.prepare()).clone()?;
        let io = |e: std::io::Error| format!("{}: {e}", folder.display());
        let version = self.available(branch)?;
        if version != branch.version {
            say(&format!(
                "parts: {} {version} is taken, since {} is gone from the mirror",
                branch.packages[0], branch.version
            ));
        }
        let download = tempfile::tempdir_in(folder.parent().unwrap()).map_err(io)?;
        let packages = branch.packages.map(|name| format!("{name}={version}"));
        let packages: std::collections::BTreeSet<String> = packages.into_iter().collect();
        run(self
            .command("apt-get")
            .current_dir(download.path())
            .args(["--quiet", "download"])
            .args(packages))?;
        for file in fs::read_dir(download.path()).map_err(io)? {
            let file = file.map_err(io)?.path();
            run(Command::new("dpkg-deb").arg("-x").args([&file, folder]))?;
        }
        fs::write(folder.join(TAKEN), version).map_err(io)
    }

    /// Downloads packages of these versions, each the newest that the mirror has where its own is gone, and unpacks them into
    /// `folder`.
    pub(super) fn fetch_all(&self, packages: &[(&str, &str)], folder: &Path) -> Result<(), String> {
        self.ready.get_or_init(|| self.prepare()).clone()?;
        let io = |e: std::io::Error| format!("{}: {e}", folder.display());
        let mut wanted = Vec::new();
        for (name, version) in packages {
            let offered = self.versions(name)?;
            let taken = offered
                .iter()
                .find(|offer| offer == version)
                .or_else(|| offered.first())
                .ok_or_else(|| format!("{name}: the mirror has none"))?;
            if taken != version {
                say(&format!(
                    "parts: {name} {taken} is taken, since {version} is gone from the mirror"
                ));
            }
            wanted.push(format!("{name}={taken}"));
        }
        let download = tempfile::tempdir_in(folder.parent().unwrap()).map_err(io)?;
        run(self
            .command("apt-get")
            .current_dir(download.path())
            .args(["--quiet", "download"])
            .args(wanted))?;
        for file in fs::read_dir(download.path()).map_err(io)? {
            let file = file.map_err(io)?.path();
            run(Command::new("dpkg-deb").arg("-x").args([&file, folder]))?;
        }
        Ok(())
    }

    /// The pinned version where both packages have it, else the newest of the branch that both have.
    fn available(&self, branch: Branch) -> Result<String, String> {
        let [cuda, ml] = branch.packages.map(|name| self.versions(name));
        let (cuda, ml) = (cuda?, ml?);
        let both: Vec<&String> = cuda.iter().filter(|v| ml.contains(v)).collect();
        let of_branch = format!("{}.", branch.number);
        both.iter()
            .find(|v| **v == branch.version)
            .or_else(|| both.iter().find(|v| v.starts_with(&of_branch)))
            .map(|v| (*v).clone())
            .ok_or_else(|| {
                format!(
                    "{}: the mirror has {cuda:?}, none of branch {}",
                    branch.packages[0], branch.number
                )
            })
    }

    /// The versions of a package, newest first.
    fn versions(&self, package: &str) -> Result<Vec<String>, String> {
        let lines = run(self.command("apt-cache").args(["madison", package]))?;
        Ok(lines
            .lines()
            .filter_map(|line| line.split('|').nth(1))
            .map(|version| version.trim().to_owned())
            .collect())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("APT_CONFIG", self.folder.join("apt.conf"))
            .env("LC_ALL", "C");
        command
    }

    /// Writes configuration and source, and fetches the lists.
    fn prepare(&self) -> Result<(), String> {
        let io = |e: std::io::Error| format!("{}: {e}", self.folder.display());
        for folder in [
            "none",
            "sources",
            "state/lists/partial",
            "cache/archives/partial",
        ] {
            fs::create_dir_all(self.folder.join(folder)).map_err(io)?;
        }
        fs::write(self.folder.join("status"), "").map_err(io)?;
        let source = source(self.component)?;
        fs::write(self.folder.join("sources/parts.sources"), source).map_err(io)?;
        // The machine's way to the mirror (a proxy, say) is kept; its hooks, which clean the machine's own cache, are not.
        let mut config: String = run(Command::new("apt-config").arg("dump"))?
            .lines()
            .filter(|line| line.starts_with("Acquire::"))
            .flat_map(|line| [line, "\n"])
            .collect();
        let at = |name: &str| self.folder.join(name).display().to_string();
        for (option, value) in [
            ("Dir::Etc::main", "/dev/null".to_owned()),
            ("Dir::Etc::parts", at("none")),
            ("Dir::Etc::sourcelist", "/dev/null".to_owned()),
            ("Dir::Etc::sourceparts", at("sources")),
            ("Dir::Etc::preferences", "/dev/null".to_owned()),
            ("Dir::Etc::preferencesparts", at("none")),
            ("Dir::State", at("state")),
            ("Dir::State::status", at("status")),
            ("Dir::Cache", at("cache")),
            ("APT::Sandbox::User", "root".to_owned()),
            ("Acquire::Languages", "none".to_owned()),
        ] {
            let _ = writeln!(config, "{option} \"{value}\";");
        }
        fs::write(self.folder.join("apt.conf"), config).map_err(io)?;
        run(self.command("apt-get").args(["--quiet", "update"])).map(drop)
    }
}

/// The machine's source of Debian's archive, as a stanza for the releases and the component that are wanted.
fn source(component: &str) -> Result<String, String> {
    let listed = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten();
    let mut files: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files.insert(0, PathBuf::from("/etc/apt/sources.list"));
    let found = files.iter().find_map(|file| {
        let text = fs::read_to_string(file).ok()?;
        match file.extension()?.to_str()? {
            "sources" => text
                .split("\n\n")
                .find_map(|stanza| of_stanza(component, stanza)),
            "list" => text.lines().find_map(|line| of_line(component, line)),
            _ => None,
        }
    });
    found.ok_or_else(|| "this machine's apt has no source of Debian's archive".to_owned())
}

/// `URIs`, `Signed-By` and the like of a stanza that is Debian's main archive, with the rest said anew.
fn of_stanza(component: &str, stanza: &str) -> Option<String> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in stanza.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(':') {
            Some((name, value)) if !line.starts_with([' ', '\t']) => {
                fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            // More of the field before: a key may stand there in full.
            _ => {
                let (_, value) = fields.last_mut()?;
                value.push('\n');
                value.push_str(line);
            }
        }
    }
    let field = |wanted: &str| fields.iter().find(|(name, _)| name == wanted);
    let is_debian = field("suites")?
        .1
        .split_whitespace()
        .any(|s| DEBIAN.contains(&s));
    let is_off = field("enabled").is_some_and(|(_, value)| value == "no");
    if !is_debian || is_off || !field("types")?.1.split_whitespace().any(|t| t == "deb") {
        return None;
    }
    let kept = fields
        .iter()
        .filter(|(name, _)| matches!(name.as_str(), "uris" | "signed-by" | "trusted"));
    let mut stanza = format!("Types: deb\nSuites: {RELEASES}\nComponents: {component}\n");
    for (name, value) in kept {
        let _ = writeln!(stanza, "{name}: {value}");
    }
    Some(stanza)
}

/// The same of a line: `deb [signed-by=FILE] URI SUITE COMPONENT...`.
fn of_line(component: &str, line: &str) -> Option<String> {
    let rest = line.trim().strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace();
    let (uri, suite) = (words.next()?, words.next()?);
    if !DEBIAN.contains(&suite) {
        return None;
    }
    let mut stanza =
        format!("types: deb\nsuites: {RELEASES}\ncomponents: {component}\nuris: {uri}\n");
    for (name, value) in options.split_whitespace().filter_map(|o| o.split_once('=')) {
        if matches!(name, "signed-by" | "trusted") {
            let _ = writeln!(stanza, "{name}: {value}");
        }
    }
    Some(stanza)
}

/// A library of an unpacked branch, with the driver's version.
pub(super) fn library(folder: &Path, name: &str) -> Result<(String, PathBuf), String> {
    let package =
        fs::read_to_string(folder.join(TAKEN)).map_err(|e| format!("{}: {e}", folder.display()))?;
    let version = package.split('-').next().unwrap_or_default().to_owned();
    let libraries = folder.join("usr/lib/x86_64-linux-gnu/nvidia");
    let places = fs::read_dir(&libraries).into_iter().flatten().flatten();
    let file = format!("{name}.so.{version}");
    let mut found = places.map(|place| place.path().join(&file));
    let path = found
        .find(|path| path.is_file())
        .ok_or_else(|| format!("no {file} below {}", libraries.display()))?;
    Ok((version, path))
}

/// The libraries of an unpacked branch.
pub(super) fn driver(branch: Branch, folder: &Path) -> Result<Driver, String> {
    let (version, libcuda) = library(folder, "libcuda")?;
    let (_, libnvidia_ml) = library(folder, "libnvidia-ml")?;
    Ok(Driver {
        branch: branch.number,
        libcuda,
        libnvidia_ml,
        version,
    })
}
