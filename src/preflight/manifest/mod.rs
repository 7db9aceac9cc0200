//! Requirement and lock files: which builds of the GPU stack's packages they pin. Text in, plain values out.
//!
//! Of a package that is pinned several times (for several systems, say) each pin is kept; those that a marker gives to
//! another system are not.

mod conda;
mod locks;
mod requirements;

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
    /// What stands behind `+`: `cu126`, `cpu`.
    pub local: Option<String>,
    /// The tag of the index that it comes from: `cu126`, `cpu`.
    pub index: Option<String>,
    /// The build of a conda package: `cuda126_mkl_py312_h1`.
    pub build: Option<String>,
    /// The extras that are asked for.
    pub extras: Vec<String>,
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
    let is_pip = is(".txt") && (name.contains("requirements") || name.contains("constraints"))
        || is(".txt") && path.split('/').rev().nth(1) == Some("requirements");
    if is_pip {
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
