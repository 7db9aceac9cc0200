//! Requirement and lock files: which builds of the GPU stack's packages they pin. Text in, plain values out.
//!
//! Of a package that is pinned several times (for several systems, say) each pin is kept; those that a marker gives to
//! another system are not.

mod conda;
mod encoding;
mod locks;
mod requirements;

pub use encoding::decoded;

use crate::read::requirement::Specifiers;
use crate::requirement::normalised;
use crate::sysroot::file_name;
use crate::version::Version;

/// A package that a file names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pin {
    /// Its name, as indexes compare names.
    pub name: String,
    /// Its version without what stands behind `+`; `None` where the file leaves it open.
    pub version: Option<Version>,
    /// Where the version is open, which ones will do; `None`: any.
    pub allowed: Option<Specifiers>,
    /// What stands behind `+`: `cu126`, `cpu`.
    pub local: Option<String>,
    /// The tag of the index that it comes from: `cu126`, `cpu`.
    pub index: Option<String>,
    /// Where it comes from, where that is not read, so that nothing is known of its build: a repository, a folder, an index
    /// that a variable names.
    pub unseen: Option<String>,
    /// It is a package of conda's.
    pub conda: bool,
    /// The build of a conda package: `cuda126_mkl_py312_h1`.
    pub build: Option<String>,
    /// The extras that are asked for.
    pub extras: Vec<String>,
    /// Markers, of which one has to hold where it is installed; empty: it is installed anywhere.
    pub markers: Vec<String>,
    /// The Pythons that the file is for, as bounds; `None` where it does not say.
    pub pythons: Option<Specifiers>,
    /// The machine that the file gives it to: `aarch64`.
    pub arch: Option<&'static str>,
    /// Platform tags of its wheels, where the file lists them: `manylinux_2_28_x86_64`.
    pub wheels: Vec<String>,
    /// Where the file lists what there is of it: a source release is among it.
    pub sdist: bool,
    /// Where it stands: `requirements.txt:3`.
    pub place: String,
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// `requirements`, `lock`.
    pub kind: &'static str,
    /// The pins.
    pub pins: Vec<Pin>,
    /// Other requirement files that it names, relative to it; true: constraints.
    pub includes: Vec<(String, bool)>,
    /// What its options name beside PyPI: indexes and places of wheels. They hold for all files that are read together.
    pub indexes: Vec<String>,
    /// What in it is not understood.
    pub problems: Vec<String>,
}

/// Which reader is for a file, by its name; `None`: it is no such file.
pub fn is_manifest(path: &str) -> bool {
    reader(path).is_some()
}

type Reader = fn(&str, &str) -> Manifest;

fn reader(path: &str) -> Option<Reader> {
    let name = file_name(path);
    let is = |ending: &str| name.ends_with(ending);
    let is_text = is(".txt") || is(".in");
    let names = ["requirements", "constraints"];
    let is_pip = names.iter().any(|word| name.contains(word))
        || path
            .split('/')
            .rev()
            .nth(1)
            .is_some_and(|folder| names.contains(&folder));
    if is_text && is_pip {
        return Some(requirements::read);
    }
    match name {
        "uv.lock" | "poetry.lock" | "pdm.lock" | "pylock.toml" => Some(locks::read),
        "pixi.lock" => Some(conda::read_urls),
        _ if is("conda-lock.yml") || is("conda-lock.yaml") => Some(conda::read_urls),
        _ if (is(".yml") || is(".yaml"))
            && (name.starts_with("environment") || name.starts_with("conda")) =>
        {
            Some(conda::read_environment)
        }
        _ => None,
    }
}

/// Whether a text has the form of a requirement file whatever its name is: each line a requirement or an option, and one at
/// least with a version, which no prose has.
pub fn looks_like_requirements(text: &str) -> bool {
    requirements::looks_like(text)
}

/// Reads a text as pip reads it, whatever its name is.
pub fn read_requirements(path: &str, text: &str) -> Manifest {
    requirements::read(path, text)
}

/// Constraints say which version, where something else asks for the package. Of several, each for a system or a Python of its
/// own, each makes a pin.
pub fn constrain(pins: &mut Vec<Pin>, constraints: &[Pin]) {
    let mut done = Vec::new();
    for mut pin in std::mem::take(pins) {
        let of_name = || constraints.iter().filter(|other| other.name == pin.name);
        if let Some(version) = &pin.version {
            // Both have to hold: the build that a constraint names is the one that comes.
            let same = of_name().find(|other| other.version.as_ref() == Some(version));
            if let Some(same) = same.filter(|_| pin.local.is_none()) {
                pin.local.clone_from(&same.local);
            }
            done.push(pin);
            continue;
        }
        let exact: Vec<&Pin> = of_name().filter(|other| other.version.is_some()).collect();
        let bounds: Vec<Specifiers> = of_name()
            .filter_map(|other| other.allowed.clone())
            .collect();
        for bounds in bounds {
            let own = pin.allowed.take();
            pin.allowed = Some(own.map_or_else(|| bounds.clone(), |own| own.and(&bounds)));
        }
        if exact.is_empty() {
            done.push(pin);
            continue;
        }
        for other in exact {
            done.push(Pin {
                version: other.version.clone(),
                local: other.local.clone(),
                allowed: None,
                markers: both_hold(&pin.markers, &other.markers),
                ..pin.clone()
            });
        }
    }
    *pins = done;
}

/// Markers, one of which has to hold, of two lists that both have to hold; an empty list always does.
fn both_hold(one: &[String], other: &[String]) -> Vec<String> {
    match (one, other) {
        ([], rest) | (rest, []) => rest.to_vec(),
        _ => one
            .iter()
            .flat_map(|a| other.iter().map(move |b| format!("({a}) and ({b})")))
            .collect(),
    }
}

/// Gives each pin the index that the files name. Of several for CUDA an installer takes the build that sorts last, where it
/// has one: each is a pin of its own, and one that runs is enough.
pub fn from_indexes(pins: &mut Vec<Pin>, indexes: &[String]) {
    let mut tags: Vec<String> = indexes.iter().filter_map(|url| index_tag(url)).collect();
    tags.sort_unstable();
    tags.dedup();
    let variable = indexes.iter().find(|url| url.contains('$'));
    let mut done = Vec::new();
    for mut pin in std::mem::take(pins) {
        if pin.local.is_some() || pin.index.is_some() || pin.conda || pin.unseen.is_some() {
            done.push(pin);
            continue;
        }
        if pin.name == "torch" {
            pin.unseen = variable.map(|url| format!("the index {url}"));
        }
        if let Some((last, others)) = tags.split_last() {
            for tag in others {
                done.push(Pin {
                    index: Some(tag.clone()),
                    ..pin.clone()
                });
            }
            pin.index = Some(last.clone());
        }
        done.push(pin);
    }
    *pins = done;
}

/// Reads a file by its name.
pub fn read(path: &str, text: &str) -> Option<Manifest> {
    Some(reader(path)?(path, text))
}

/// Splits `2.7.1+cu126` into the version and what stands behind the `+`.
fn split_local(text: &str) -> (Option<Version>, Option<String>) {
    let (number, local) = match text.split_once('+') {
        Some((number, local)) => (number, Some(local.to_ascii_lowercase())),
        None => (text, None),
    };
    (
        Version::parse(number),
        local.filter(|local| !local.is_empty()),
    )
}

/// The tag of an index of PyTorch's, `https://download.pytorch.org/whl/cu126`, also of a mirror of it.
fn index_tag(url: &str) -> Option<String> {
    let mut parts = url.trim_end_matches('/').split('/').rev();
    let tag = parts.find(|part| !matches!(*part, "simple" | "torch" | "nightly"))?;
    let is_cuda = tag
        .strip_prefix("cu")
        .is_some_and(|rest| rest.len() >= 3 && rest.bytes().all(|b| b.is_ascii_digit()));
    (is_cuda || tag == "cpu" || tag.starts_with("rocm")).then(|| tag.to_owned())
}

/// The platform tags in the name of a wheel: `manylinux_2_27_x86_64`, `manylinux_2_28_x86_64`.
fn platform_tags(url: &str) -> Option<Vec<String>> {
    let name = url.split(['#', '?']).next()?.rsplit('/').next()?;
    let (_, tags) = name.strip_suffix(".whl")?.rsplit_once('-')?;
    Some(tags.split('.').map(str::to_owned).collect())
}

/// Name, version and the rest of a wheel's or conda package's file name in a URL.
fn of_wheel_name(url: &str) -> Option<(String, String)> {
    let name = url.split(['#', '?']).next()?.rsplit('/').next()?;
    let name = name.strip_suffix(".whl")?;
    let mut parts = name.split('-');
    let (package, version) = (parts.next()?, parts.next()?);
    Some((
        normalised(package),
        version.replace("%2B", "+").replace("%2b", "+"),
    ))
}

#[cfg(test)]
mod tests;
