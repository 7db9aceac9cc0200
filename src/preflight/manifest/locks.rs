//! Lock files in TOML: `uv.lock`, `poetry.lock`, `pdm.lock`, `pylock.toml`.

use serde::Deserialize;
use toml::{Spanned, Value};

use super::{Manifest, Pin, index_tag, of_wheel_name, split_local};
use crate::requirement::normalised;

#[derive(Deserialize)]
struct Lock {
    #[serde(default, alias = "packages")]
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: Spanned<String>,
    version: Option<String>,
    source: Option<Value>,
    index: Option<String>,
    marker: Option<String>,
    #[serde(default, rename = "resolution-markers")]
    resolution_markers: Vec<String>,
    #[serde(default)]
    wheels: Vec<Value>,
}

pub(super) fn read(path: &str, text: &str) -> Manifest {
    let mut manifest = Manifest {
        kind: "lock",
        ..Manifest::default()
    };
    let lock: Lock = match toml::from_str(text) {
        Ok(lock) => lock,
        Err(e) => {
            let at = e.span().map_or(0, |span| span.start);
            manifest.problems.push(format!(
                "{path}:{}: {}",
                line_of(text, at),
                e.message().replace(['\n', '\r'], " ")
            ));
            return manifest;
        }
    };
    for package in &lock.package {
        let markers = package.resolution_markers.iter().chain(&package.marker);
        let mut markers = markers.peekable();
        // Markers of one package say where it is wanted; it is none of ours where each of them names another system.
        if markers.peek().is_some() && markers.all(|marker| is_elsewhere(marker)) {
            continue;
        }
        let Some(version) = &package.version else {
            continue;
        };
        let (version, mut local) = split_local(version);
        let urls = source_urls(package);
        // A wheel of PyTorch's index may have its tag in its name alone.
        if local.is_none() {
            local = package.wheels.iter().find_map(|wheel| {
                let wheel = wheel.get("url").or_else(|| wheel.get("name"))?;
                let (_, version) = of_wheel_name(wheel.as_str()?)?;
                split_local(&version).1
            });
        }
        manifest.pins.push(Pin {
            name: normalised(package.name.get_ref()),
            version,
            local,
            index: urls.iter().find_map(|url| index_tag(url)),
            place: format!("{path}:{}", line_of(text, package.name.span().start)),
            ..Pin::default()
        });
    }
    manifest
}

fn source_urls(package: &Package) -> Vec<String> {
    let mut urls: Vec<String> = package.index.iter().cloned().collect();
    if let Some(source) = &package.source {
        for key in ["registry", "url"] {
            urls.extend(source.get(key).and_then(Value::as_str).map(str::to_owned));
        }
    }
    urls
}

/// Whether a marker gives the package to a system that is not Linux.
fn is_elsewhere(marker: &str) -> bool {
    let requirement = crate::read::requirement::Requirement::parse(&format!("x ; {marker}"));
    let platform = crate::read::requirement::Platform::default();
    requirement.is_some_and(|r| r.applies(&platform, &[]) == Some(false))
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    before.bytes().filter(|b| *b == b'\n').count() + 1
}
