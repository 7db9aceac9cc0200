//! Files of conda and pixi: `environment.yml`, `conda-lock.yml`, `pixi.lock`.
//!
//! No YAML parser: of an environment the list under `dependencies:` is read line by line, of the locks the URLs of the
//! packages, whose names hold name, version and build. What is written in another form than the tools write is not seen,
//! and a file of which nothing is seen is told as that.

use super::requirements;
use super::{Manifest, Pin, of_wheel_name, platform_tags, split_local};
use crate::read::requirement::Specifiers;
use crate::requirement::normalised;
use crate::version::Version;

/// Platforms of Linux, as conda calls them, and the machine that each is for.
const PLATFORMS: &[(&str, Option<&str>)] = &[
    ("/linux-64/", Some("x86_64")),
    ("/linux-aarch64/", Some("aarch64")),
    ("/linux-ppc64le/", Some("ppc64le")),
    ("/noarch/", None),
];

pub(super) fn read_environment(path: &str, text: &str) -> Manifest {
    let mut manifest = Manifest {
        kind: "requirements",
        ..Manifest::default()
    };
    let mut within = false;
    let mut pip: Option<usize> = None;
    for (index, raw) in text.lines().enumerate() {
        let line = raw.split(" #").next().unwrap_or(raw).trim_end();
        let indent = line.len() - line.trim_start().len();
        let bare = line.trim_start();
        if bare.is_empty() || bare.starts_with('#') {
            continue;
        }
        if indent == 0 && !bare.starts_with('-') {
            within = bare.starts_with("dependencies:");
            pip = None;
            continue;
        }
        let Some(item) = bare.strip_prefix("- ").filter(|_| within) else {
            continue;
        };
        let item = item.trim().trim_matches(['"', '\'']);
        let place = format!("{path}:{}", index + 1);
        if item == "pip:" {
            pip = Some(indent);
            continue;
        }
        if pip.is_some_and(|at| indent > at) {
            of_pip(item, place, &mut manifest);
            continue;
        }
        pip = None;
        // All of pip's in one line: `- pip: ["torch==2.7.1"]`.
        if let Some(list) = item.strip_prefix("pip:") {
            let list = list.trim().trim_matches(['[', ']']);
            for item in list
                .split(',')
                .map(|item| item.trim().trim_matches(['"', '\'']))
            {
                if !item.is_empty() {
                    of_pip(item, place.clone(), &mut manifest);
                }
            }
            continue;
        }
        manifest.pins.extend(spec(item, place));
    }
    if manifest.pins.is_empty() {
        manifest
            .problems
            .push(format!("{path}: no dependencies were seen in it"));
    }
    manifest
}

/// A line of the list that pip gets: a requirement, or an option of a requirement file.
fn of_pip(item: &str, place: String, manifest: &mut Manifest) {
    if item.starts_with('-') {
        match requirements::option(item) {
            Some((option, value)) if requirements::is_index(option) => {
                manifest.indexes.push(value.to_owned());
            }
            Some(("-r" | "--requirement", value)) => {
                manifest.includes.push((value.to_owned(), false));
            }
            Some(("-c" | "--constraint", value)) => {
                manifest.includes.push((value.to_owned(), true));
            }
            _ => {}
        }
        return;
    }
    match requirements::pin(item, place) {
        Ok(pin) => manifest.pins.extend(pin),
        Err(place) => manifest.problems.push(format!("{place}: not understood")),
    }
}

/// `channel::name=version=build`, `name ==1.2`, `name>=1.2`, `name 1.2.* build`.
fn spec(text: &str, place: String) -> Option<Pin> {
    let (channel, text) = text.rsplit_once("::").unwrap_or(("", text));
    // `nvidia/label/cuda-12.4.0::cuda-toolkit`: the label says which release of CUDA it is.
    let label = channel
        .rsplit_once("/label/cuda-")
        .map(|(_, version)| version);
    // `pytorch[build=cuda126*]`
    let (text, selectors) = match text.split_once('[') {
        Some((text, selectors)) => (text, selectors.trim_end_matches(']')),
        None => (text, ""),
    };
    let selected = |key: &str| {
        let mut all = selectors.split(',').filter_map(|one| one.split_once('='));
        let value = all.find(|(name, _)| name.trim() == key)?.1;
        Some(value.trim().trim_matches(['"', '\'', '=']).to_owned())
    };
    let end = text
        .find(|c: char| "=<>!~ [".contains(c))
        .unwrap_or(text.len());
    let (name, rest) = text.split_at_checked(end)?;
    let is_exact = !rest.contains(['<', '>', '!', '~', '|']);
    let mut parts = rest
        .trim_start_matches(['=', ' '])
        .split(['=', ' '])
        .filter(|part| !part.is_empty());
    let version = parts.next().filter(|_| is_exact).map(str::to_owned);
    let version = version
        .or_else(|| selected("version"))
        .or_else(|| label.filter(|_| is_exact).map(str::to_owned));
    let build = parts.next().filter(|_| is_exact).map(str::to_owned);
    Some(Pin {
        name: normalised(name),
        version: version.and_then(|v| Version::parse(v.trim_end_matches(".*"))),
        allowed: Specifiers::parse(rest.trim()).filter(|_| !is_exact),
        build: build.or_else(|| selected("build")),
        conda: true,
        place,
        ..Pin::default()
    })
}

pub(super) fn read_urls(path: &str, text: &str) -> Manifest {
    let mut manifest = Manifest {
        kind: "lock",
        ..Manifest::default()
    };
    for (index, line) in text.lines().enumerate() {
        let Some(start) = line.find("https://") else {
            continue;
        };
        let url = line.get(start..).unwrap_or_default();
        let url = url.split([' ', '"', '\'', '#']).next().unwrap_or_default();
        let place = format!("{path}:{}", index + 1);
        if let Some(pin) = of_conda_url(url, &place) {
            // pixi names a package where an environment has it, and where it is described.
            let known = manifest.pins.iter().any(|other| {
                (&other.name, &other.version, &other.build, other.arch)
                    == (&pin.name, &pin.version, &pin.build, pin.arch)
            });
            if !known {
                manifest.pins.push(pin);
            }
        } else if let Some((name, version)) = of_wheel_name(url) {
            let is_elsewhere = ["macosx", "win_", "win32"].iter().any(|s| url.contains(s));
            let (version, local) = split_local(&version);
            let known = manifest.pins.iter().any(|other| {
                other.name == name
                    && other.version == version
                    && other.local == local
                    && other.arch == arch_of_wheel(url)
            });
            if !known && !is_elsewhere {
                manifest.pins.push(Pin {
                    name,
                    version,
                    local,
                    wheels: platform_tags(url).unwrap_or_default(),
                    arch: arch_of_wheel(url),
                    place,
                    ..Pin::default()
                });
            }
        }
    }
    if manifest.pins.is_empty() {
        manifest
            .problems
            .push(format!("{path}: no packages for Linux were seen in it"));
    }
    manifest
}

/// The machine that a wheel is for, by its name.
fn arch_of_wheel(url: &str) -> Option<&'static str> {
    let machines = ["x86_64", "aarch64", "ppc64le"];
    machines
        .into_iter()
        .find(|machine| url.contains(&format!("_{machine}.")))
}

/// `https://.../linux-64/pytorch-2.5.1-cuda126_py312_h1.conda`.
fn of_conda_url(url: &str, place: &str) -> Option<Pin> {
    let (_, arch) = PLATFORMS.iter().find(|(of, _)| url.contains(of))?;
    let file = url.rsplit('/').next()?;
    let stem = file
        .strip_suffix(".conda")
        .or_else(|| file.strip_suffix(".tar.bz2"))?;
    let mut parts = stem.rsplitn(3, '-');
    let (build, version, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Pin {
        name: normalised(name),
        version: Version::parse(version),
        build: Some(build.to_owned()),
        conda: true,
        arch: *arch,
        place: place.to_owned(),
        ..Pin::default()
    })
}
