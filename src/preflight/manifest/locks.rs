//! Lock files in TOML: `uv.lock`, `poetry.lock`, `pdm.lock`, `pylock.toml`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::{Spanned, Value};

use super::{Manifest, Pin, index_tag, of_wheel_name, platform_tags, split_local};
use crate::read::requirement::Specifiers;
use crate::requirement::normalised;

#[derive(Deserialize)]
struct Lock {
    #[serde(default, alias = "packages")]
    package: Vec<Package>,
    #[serde(rename = "requires-python")]
    requires_python: Option<String>,
    metadata: Option<Metadata>,
}

/// What poetry and pdm write at the end.
#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "python-versions", alias = "requires_python")]
    python_versions: Option<Value>,
}

#[derive(Deserialize)]
struct Package {
    name: Spanned<String>,
    version: Option<String>,
    source: Option<Value>,
    index: Option<String>,
    marker: Option<Value>,
    markers: Option<Value>,
    #[serde(default, rename = "resolution-markers")]
    resolution_markers: Vec<String>,
    #[serde(default)]
    wheels: Vec<Value>,
    #[serde(default)]
    files: Vec<Value>,
    sdist: Option<Value>,
    dependencies: Option<Value>,
    #[serde(default, rename = "optional-dependencies")]
    optional_dependencies: BTreeMap<String, Vec<Value>>,
    #[serde(default, rename = "dev-dependencies")]
    dev_dependencies: BTreeMap<String, Vec<Value>>,
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
    let of_metadata = lock.metadata.as_ref();
    let of_metadata = of_metadata.and_then(|m| m.python_versions.as_ref()?.as_str());
    let pythons = lock.requires_python.as_deref().or(of_metadata);
    let pythons = pythons.and_then(|text| Specifiers::parse(text).or_else(|| poetrys(text)));
    let reached = reached(&lock.package);
    for (package, reached) in lock.package.iter().zip(reached) {
        let Reach::By(edges) = reached else { continue };
        let Some(version) = &package.version else {
            continue;
        };
        let Some(markers) = both(own_markers(package), edges) else {
            continue;
        };
        let (version, mut local) = split_local(version);
        let urls = source_urls(package);
        let files: Vec<&str> = package
            .wheels
            .iter()
            .chain(&package.files)
            .filter_map(|file| {
                let keys = ["url", "file", "name", "filename", "path"];
                let named = keys.iter().filter_map(|key| file.get(key)?.as_str());
                named.into_iter().find(|name| name.contains('.'))
            })
            .collect();
        let is_wheel = |file: &&&str| platform_tags(file).is_some();
        // A wheel of PyTorch's index may have its tag in its name alone.
        if local.is_none() {
            local = files.iter().filter(is_wheel).find_map(|file| {
                let (_, version) = of_wheel_name(file)?;
                split_local(&version).1
            });
        }
        let tags = files.iter().filter_map(|file| platform_tags(file));
        let mut wheels: Vec<String> = tags.flatten().collect();
        wheels.sort_unstable();
        wheels.dedup();
        manifest.pins.push(Pin {
            name: normalised(package.name.get_ref()),
            version,
            local,
            index: urls.iter().find_map(|url| index_tag(url)),
            markers,
            pythons: pythons.clone(),
            wheels,
            sdist: package.sdist.is_some() || files.iter().any(|file| !is_wheel(&file)),
            place: format!("{path}:{}", line_of(text, package.name.span().start)),
            ..Pin::default()
        });
    }
    manifest
}

/// The markers of a package by itself, of which one has to hold; `None` where none holds on any Linux.
fn own_markers(package: &Package) -> Option<Vec<String>> {
    let mut markers: Vec<String> = package.resolution_markers.clone();
    for value in [&package.marker, &package.markers].into_iter().flatten() {
        match value {
            Value::String(marker) => markers.push(marker.clone()),
            // Poetry: by group.
            Value::Table(groups) => {
                markers.extend(groups.values().filter_map(Value::as_str).map(str::to_owned));
            }
            _ => {}
        }
    }
    if markers.is_empty() {
        return Some(markers);
    }
    markers.retain(|marker| !is_elsewhere(marker));
    (!markers.is_empty()).then_some(markers)
}

/// Bounds as poetry writes them: `^3.11` is up to the next major version, `~3.11` up to the next minor one.
fn poetrys(text: &str) -> Option<Specifiers> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        let Some(base) = part
            .strip_prefix(['^', '~'])
            .filter(|b| !b.starts_with('='))
        else {
            all.push(part.to_owned());
            continue;
        };
        let mut numbers = base.trim().split('.').map(|n| n.parse::<u32>().ok());
        let major = numbers.next()??;
        let end = match numbers.next() {
            Some(minor) if part.starts_with('~') => format!("{major}.{}", minor? + 1),
            _ => format!("{}", major + 1),
        };
        all.push(format!(">={},<{end}", base.trim()));
    }
    Specifiers::parse(&all.join(","))
}

/// Markers of a package and of the ways to it: both have to hold.
fn both(own: Option<Vec<String>>, ways: Vec<String>) -> Option<Vec<String>> {
    let own = own?;
    if own.is_empty() || ways.is_empty() {
        return Some(if own.is_empty() { ways } else { own });
    }
    let mut joined = Vec::new();
    for own in &own {
        for way in &ways {
            // Along a chain the same marker stands at each package.
            let both = if way == own || way.starts_with(&format!("({own}) and (")) {
                way.clone()
            } else {
                format!("({own}) and ({way})")
            };
            if joined.len() < MAX_WAYS && !joined.contains(&both) {
                joined.push(both);
            }
        }
    }
    // What no file that people have needs is not told apart: come by anyway.
    let is_long = joined.iter().map(String::len).sum::<usize>() > MAX_MARKERS;
    Some(if is_long { Vec::new() } else { joined })
}

/// How a package is come by.
#[derive(Clone, Debug)]
enum Reach {
    /// By none that is installed on Linux.
    Never,
    /// With markers, one of which has to hold; empty: anyway.
    By(Vec<String>),
}

/// The most ways to a package that are told apart; with more it counts as come by anyway.
const MAX_WAYS: usize = 64;
/// The most bytes of a package's markers.
const MAX_MARKERS: usize = 4 << 10;

/// How the packages of uv's lock are come by from the project itself: its markers stand where a package is asked for, and not
/// at the package. Of extras and groups each is followed. Where a lock has no project in it, or another form, each package is
/// come by anyway.
fn reached(packages: &[Package]) -> Vec<Reach> {
    let is_project = |package: &&Package| {
        let source = package.source.as_ref();
        let source = source.and_then(Value::as_table);
        source.is_some_and(|source| {
            let keys = ["editable", "virtual", "directory", "workspace"];
            keys.iter().any(|key| source.contains_key(*key))
        })
    };
    if !packages.iter().any(|package| is_project(&package)) {
        return vec![Reach::By(Vec::new()); packages.len()];
    }
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, package) in packages.iter().enumerate() {
        by_name
            .entry(package.name.get_ref())
            .or_default()
            .push(index);
    }
    let named: BTreeSet<&str> = packages
        .iter()
        .flat_map(edges)
        .filter_map(|edge| edge.get("name")?.as_str())
        .collect();
    let mut found = vec![Reach::Never; packages.len()];
    let mut waiting: Vec<usize> = Vec::new();
    for (index, package) in packages.iter().enumerate() {
        // What nothing asks for would not be in the lock; who does is not seen.
        if (is_project(&package) || !named.contains(package.name.get_ref().as_str()))
            && let Some(slot) = found.get_mut(index)
        {
            *slot = Reach::By(Vec::new());
            waiting.push(index);
        }
    }
    while let Some(index) = waiting.pop() {
        let (Some(package), Some(Reach::By(before))) =
            (packages.get(index), found.get(index).cloned())
        else {
            continue;
        };
        for edge in edges(package) {
            let marker = edge.get("marker").and_then(Value::as_str);
            if marker.is_some_and(is_elsewhere) {
                continue;
            }
            let own: Vec<String> = marker.map(str::to_owned).into_iter().collect();
            let Some(ways) = both(Some(own), before.clone()) else {
                continue;
            };
            let name = edge.get("name").and_then(Value::as_str).unwrap_or_default();
            let version = edge.get("version").and_then(Value::as_str);
            for to in by_name.get(name).into_iter().flatten() {
                let is_meant =
                    |package: &Package| version.is_none() || package.version.as_deref() == version;
                if packages.get(*to).is_some_and(is_meant)
                    && found
                        .get_mut(*to)
                        .is_some_and(|known| widened(known, &ways))
                {
                    waiting.push(*to);
                }
            }
        }
    }
    found
}

/// Adds ways to those that are known; true where there is a new one.
fn widened(known: &mut Reach, ways: &[String]) -> bool {
    match known {
        Reach::Never => {
            *known = Reach::By(ways.to_vec());
            true
        }
        Reach::By(before) if before.is_empty() => false,
        Reach::By(before) => {
            let new: Vec<&String> = ways.iter().filter(|way| !before.contains(way)).collect();
            let is_any = ways.is_empty() || before.len() + new.len() > MAX_WAYS;
            let is_wider = is_any || !new.is_empty();
            if is_any {
                before.clear();
            } else {
                before.extend(new.into_iter().cloned());
            }
            is_wider
        }
    }
}

/// What a package asks for, with its extras and groups.
fn edges(package: &Package) -> impl Iterator<Item = &Value> {
    let own = package.dependencies.as_ref().and_then(Value::as_array);
    own.into_iter()
        .flatten()
        .chain(package.optional_dependencies.values().flatten())
        .chain(package.dev_dependencies.values().flatten())
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

/// Whether a marker gives the package to a system that is not Linux, whichever extras are chosen.
fn is_elsewhere(marker: &str) -> bool {
    let read = crate::read::requirement::Marker::parse(marker);
    read.is_some_and(|marker| marker.is_never_on_linux())
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    before.bytes().filter(|b| *b == b'\n').count() + 1
}
