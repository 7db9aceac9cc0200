//! The CDI specifications of a host: what they say, and whether what they name is there.

use crate::facts::{CdiSpec, MissingNode, Reading};
use crate::read::cdi;
use crate::sysroot::{Sysroot, file_name, join};
use crate::version::Version;

/// A specification of sixteen GPUs with MIG has some 200 KiB.
const SPEC_CAP: usize = 1 << 20;
/// Specifications of a folder that are read.
const FILES_CAP: usize = 64;
/// Missing files of a specification that are kept.
const MISSING_CAP: usize = 16;
/// Folders where nobody says otherwise; the later one wins.
const FOLDERS: &[&str] = &["/etc/cdi", "/var/run/cdi"];

/// The specifications of NVIDIA's in the usual folders, and in those that an engine's configuration names.
pub(super) fn specs(sysroot: &Sysroot, named: &[String]) -> Reading<Vec<CdiSpec>> {
    let mut folders: Vec<String> = FOLDERS.iter().map(|folder| (*folder).to_owned()).collect();
    for folder in named {
        // One folder under two names: /var/run is a link.
        let folder = match folder.trim_end_matches('/').strip_prefix("/run/") {
            Some(rest) => format!("/var/run/{rest}"),
            None => folder.trim_end_matches('/').to_owned(),
        };
        if folder.starts_with('/') && !folders.contains(&folder) && folders.len() < FILES_CAP {
            folders.push(folder);
        }
    }
    let mut specs = Vec::new();
    let mut refused = None;
    for folder in &folders {
        // What is hidden counts as well; the extension decides.
        let is_spec = |name: &str| [".yaml", ".json"].iter().any(|end| name.ends_with(end));
        let mut names = match sysroot.list(folder, is_spec) {
            Reading::Absent { .. } => continue,
            Reading::Unreadable { reason } => {
                refused = Some(reason);
                continue;
            }
            Reading::Present { value, .. } => value,
        };
        names.sort_unstable();
        for name in names.iter().take(FILES_CAP) {
            let path = join(folder, name);
            match sysroot.text_up_to(&path, SPEC_CAP) {
                Reading::Absent { .. } => {}
                Reading::Unreadable { reason } => specs.push(CdiSpec {
                    path,
                    problem: Some(reason),
                    ..CdiSpec::default()
                }),
                Reading::Present { value, .. } => specs.extend(spec(sysroot, path, &value)),
            }
        }
    }
    let source = folders.join(", ");
    match (specs.is_empty(), refused) {
        (true, Some(reason)) => Reading::unreadable(reason),
        (true, None) => Reading::absent(source),
        (false, _) => Reading::present(specs, source),
    }
}

/// Whether a kind is of NVIDIA's: GPUs, network cards and more.
fn is_nvidia(kind: &str) -> bool {
    let vendor = kind.split('/').next().unwrap_or_default();
    vendor == "nvidia.com" || vendor.ends_with(".nvidia.com")
}

/// One specification; `None` where it is not of NVIDIA's.
fn spec(sysroot: &Sysroot, path: String, text: &str) -> Option<CdiSpec> {
    let spec = match cdi::spec(text) {
        Ok(spec) => spec,
        // Somebody else's broken file is not ours to tell of.
        Err(problem) => {
            let kind = cdi::kind_of(text).filter(|kind| is_nvidia(kind))?;
            return Some(CdiSpec {
                path,
                kind: kind.to_owned(),
                problem: Some(problem),
                ..CdiSpec::default()
            });
        }
    };
    if !is_nvidia(&spec.kind) {
        return None;
    }
    let gone = |path: &str| path.starts_with('/') && sysroot.stat(path).is_absent();
    let listed = |paths: Vec<&str>| -> Vec<String> {
        let mut paths: Vec<String> = paths
            .into_iter()
            .filter(|path| gone(path))
            .map(str::to_owned)
            .collect();
        paths.sort_unstable();
        paths.dedup();
        paths.truncate(MISSING_CAP);
        paths
    };
    let is_broken = |edits: &cdi::Edits| {
        let mut named = edits.mounts.iter().chain(&edits.hooks);
        named.any(|path| gone(path))
    };
    let all_broken = is_broken(&spec.common);
    let broken = spec
        .devices
        .iter()
        .filter(|d| all_broken || is_broken(&d.edits));
    let broken_devices = broken.map(|device| device.name.clone()).collect();
    let mounts = || spec.all().flat_map(|edits| &edits.mounts);
    let hooks = || spec.all().flat_map(|edits| &edits.hooks);
    let libcuda = |path: &String| {
        let version = file_name(path).strip_prefix("libcuda.so.")?;
        Version::parse(version).filter(|version| version.len() > 1)
    };
    // The copy for 32-bit programs is a package of its own.
    let is_wide = |path: &&String| !path.contains("/i386-linux-gnu/") && !path.contains("/lib32/");
    let driver = mounts()
        .filter(is_wide)
        .find_map(libcuda)
        .or_else(|| mounts().find_map(libcuda));
    let mut all_nodes: Vec<String> = spec
        .all()
        .flat_map(|edits| edits.nodes.iter().map(|node| node.path.clone()))
        .collect();
    all_nodes.sort_unstable();
    all_nodes.dedup();
    Some(CdiSpec {
        missing: listed(mounts().map(String::as_str).collect()),
        mounts: u32::try_from(mounts().count()).unwrap_or(u32::MAX),
        missing_hooks: listed(hooks().map(String::as_str).collect()),
        missing_nodes: missing_nodes(&spec, gone),
        broken_devices,
        driver,
        nodes: all_nodes,
        devices: spec.devices.iter().map(|d| d.name.clone()).collect(),
        cdi_version: spec.version,
        kind: spec.kind,
        path,
        problem: None,
    })
}

/// Nodes that are not there, with the devices that need them. What is described in full the engine makes without looking.
fn missing_nodes(spec: &cdi::Spec, gone: impl Fn(&str) -> bool) -> Vec<MissingNode> {
    let looked_at = |edits: &cdi::Edits, path: &str| {
        let mut nodes = edits.nodes.iter();
        nodes.any(|node| !node.described && node.path == path)
    };
    let mut paths: Vec<&str> = spec
        .all()
        .flat_map(|edits| &edits.nodes)
        .filter(|node| !node.described)
        .map(|node| node.path.as_str())
        .collect();
    paths.sort_unstable();
    paths.dedup();
    paths
        .into_iter()
        .filter(|path| gone(path))
        .take(MISSING_CAP)
        .map(|path| {
            let all = looked_at(&spec.common, path);
            let users = spec
                .devices
                .iter()
                .filter(|device| all || looked_at(&device.edits, path));
            MissingNode {
                path: path.to_owned(),
                devices: users.map(|device| device.name.clone()).collect(),
            }
        })
        .collect()
}
