//! Which layers an image has, and where they lie: by `manifest.json` of `docker save`, or by the OCI's `index.json`.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Described, Layer, Packed, Slice, Source};
use crate::facts::Reading;
use crate::read::oci::{self, Descriptor, MAX_JSON, MAX_LAYERS, Manifest, Saved};
use crate::read::tar::{self, Members};
use crate::read::unpacked::Packing;
use crate::read::window::bytes_up_to;
use crate::sysroot::{self, Sysroot, join};

/// The most members of an archive that holds an image: a few for each layer.
const MAX_MEMBERS: usize = 20_000;
/// Links followed from one member to another.
const MAX_LINKS: usize = 8;
/// Indexes within indexes.
const MAX_INDEXES: usize = 4;

/// An image that was found, its layers not read yet.
pub(super) struct Found {
    pub(super) described: Described,
    /// With the digests that their bytes have to have, where that is known.
    pub(super) layers: Vec<(Blob, Option<String>)>,
    /// It is one archive of a root filesystem.
    pub(super) is_root: bool,
    /// Layers are missing that may be.
    pub(super) is_partial: bool,
    pub(super) problems: Vec<String>,
}

/// Where the files of an image's layout lie.
enum Store<'a> {
    /// In a folder.
    Folder(&'a Sysroot, &'a str),
    /// In a tar archive.
    Archive(Around, HashMap<String, tar::Member>),
}

/// An archive around layers.
struct Around {
    bytes: Source,
    is_packed: bool,
}

/// A layer as it lies there.
pub(super) struct Blob {
    pub(super) bytes: Source,
    /// It lies in an archive that is packed as a whole.
    pub(super) is_packed_around: bool,
}

impl Store<'_> {
    fn get(&self, name: &str) -> Result<Blob, String> {
        let missing = || format!("`{}` is not in it", shortened(name));
        match self {
            Self::Folder(sysroot, folder) => {
                let path = join(folder, name);
                // No link: what it leads to is no part of the layout.
                let stat = sysroot.lstat(&path);
                if stat.value().is_none_or(|s| s.kind != sysroot::Kind::File) {
                    return Err(missing());
                }
                match sysroot.file(&path) {
                    Reading::Present { value, .. } => Ok(Blob {
                        bytes: Arc::new(value),
                        is_packed_around: false,
                    }),
                    Reading::Absent { .. } => Err(missing()),
                    Reading::Unreadable { reason } => Err(reason),
                }
            }
            Self::Archive(archive, members) => {
                let mut name = plain(name).ok_or_else(missing)?;
                for _ in 0..=MAX_LINKS {
                    let member = members.get(&name).ok_or_else(missing)?;
                    match member.kind {
                        tar::Kind::File => {
                            let range = member.at..member.at.saturating_add(member.size);
                            return Ok(Blob {
                                bytes: Arc::new(Slice::new(archive.bytes.clone(), range)),
                                is_packed_around: archive.is_packed,
                            });
                        }
                        // Old layouts have a layer once, and links to it.
                        tar::Kind::Link => {
                            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
                            name =
                                plain(&format!("{folder}/{}", member.link)).ok_or_else(missing)?;
                        }
                        tar::Kind::HardLink => {
                            name = plain(&member.link).ok_or_else(missing)?;
                        }
                        _ => return Err(format!("`{}` is no file in it", shortened(&name))),
                    }
                }
                Err(format!("the links of `{}` lead round", shortened(&name)))
            }
        }
    }

    fn json(&self, name: &str) -> Result<Vec<u8>, String> {
        let source = self.get(name)?.bytes;
        let size = source.len();
        if size > MAX_JSON as u64 {
            return Err(format!("`{}` has {size} bytes", shortened(name)));
        }
        let bytes = bytes_up_to(&*source, 0, MAX_JSON);
        if bytes.len() as u64 == size {
            Ok(bytes)
        } else {
            Err(format!("`{}` is cut off", shortened(name)))
        }
    }

    /// The bytes of a blob that its digest vouches for.
    fn blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, String> {
        let bytes = self.json(&descriptor.path()?)?;
        if oci::has_digest(&bytes, &descriptor.digest) {
            Ok(bytes)
        } else {
            Err(format!("the blob {} has another digest", descriptor.digest))
        }
    }
}

/// A name for a message.
fn shortened(name: &str) -> String {
    let start: String = name.chars().take(100).collect();
    start.escape_debug().to_string()
}

/// A path in an archive without `.` and `..`; `None` where it leads out of it.
fn plain(name: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether a folder is an image layout.
pub(crate) fn is_layout(sysroot: &Sysroot, path: &str) -> bool {
    let stat = sysroot.stat(path);
    stat.value()
        .is_some_and(|s| s.kind == sysroot::Kind::Folder)
        && ["oci-layout", "index.json", "blobs"]
            .iter()
            .all(|name| sysroot.exists(&join(path, name)))
}

/// Finds an image's layers; of several images in an index that for a processor.
pub(super) fn find(sysroot: &Sysroot, path: &str, arch: &str) -> Result<Found, String> {
    if is_layout(sysroot, path) {
        return by_index(&Store::Folder(sysroot, path), "oci-layout", arch);
    }
    let file = match sysroot.file(path) {
        Reading::Present { value, .. } => value,
        Reading::Absent { .. } => return Err("no such file".to_owned()),
        Reading::Unreadable { reason } => {
            return Err(reason.rsplit(": ").next().unwrap_or(&reason).to_owned());
        }
    };
    let file: Source = Arc::new(file);
    let packed = Packing::of(&*file).map(|packing| {
        let whole = Slice::new(file.clone(), 0..file.len());
        Arc::new(Packed::new(whole, packing))
    });
    let is_packed = packed.is_some();
    let archive: Source = match packed {
        None => file.clone(),
        Some(packed) => packed,
    };
    // `tar .` writes the folder itself first.
    let mut members = Members::new(&*archive);
    let mut first = members.next();
    while let Some(Ok(member)) = &first
        && plain(&member.name).is_some_and(|name| name.is_empty())
    {
        first = members.next();
    }
    let first = first.ok_or_else(|| "is an archive of nothing".to_owned())??;
    if !begins_an_image(&first.name) {
        let size = file.len();
        return Ok(Found {
            described: Described {
                form: "root-filesystem".to_owned(),
                layers: vec![Layer {
                    size,
                    ..Layer::default()
                }],
                ..Described::default()
            },
            // The archive itself, so that its packing is told.
            layers: vec![(
                Blob {
                    bytes: file,
                    is_packed_around: false,
                },
                None,
            )],
            is_root: true,
            is_partial: false,
            problems: Vec::new(),
        });
    }
    let mut members = HashMap::new();
    for member in Members::new(&*archive) {
        let member = member?;
        if let Some(name) = plain(&member.name) {
            members.insert(name, member);
        }
        if members.len() > MAX_MEMBERS {
            return Err(format!(
                "has more than {MAX_MEMBERS} members around its layers"
            ));
        }
    }
    let is_saved = members.contains_key("manifest.json");
    let is_index = members.contains_key("index.json");
    let around = Around {
        bytes: archive,
        is_packed,
    };
    let store = Store::Archive(around, members);
    if is_saved {
        by_manifest(&store)
    } else if is_index {
        by_index(&store, "oci-archive", arch)
    } else {
        Err("has neither manifest.json nor index.json: it is no container image".to_owned())
    }
}

/// Whether an archive whose first member is called so holds an image, and is no root filesystem.
fn begins_an_image(name: &str) -> bool {
    let name = name.trim_start_matches("./");
    // As crane and ko name the configuration, which they write first.
    let name = name.strip_prefix("sha256:").unwrap_or(name);
    let stem = name.split(['/', '.']).next().unwrap_or_default();
    let is_digest = stem.len() == 64 && stem.bytes().all(|b| b.is_ascii_hexdigit());
    is_digest
        || matches!(
            stem,
            "blobs" | "manifest" | "index" | "oci-layout" | "repositories"
        )
}

/// By what `docker save` writes.
fn by_manifest(store: &Store<'_>) -> Result<Found, String> {
    let all =
        oci::saved(&store.json("manifest.json")?).map_err(|e| format!("its manifest.json {e}"))?;
    let Some(saved) = all.first() else {
        return Err("its manifest.json names no image".to_owned());
    };
    let mut problems = Vec::new();
    let name = |saved: &Saved| saved.repo_tags.iter().flatten().next().cloned();
    if all.len() > 1 {
        let others: Vec<String> = all.iter().skip(1).filter_map(name).take(4).collect();
        problems.push(format!(
            "it holds {} images, and the first one was read; not {}",
            all.len(),
            others.join(", ")
        ));
    }
    let bytes = store.json(&saved.config)?;
    let stem = sysroot::file_name(&saved.config).trim_end_matches(".json");
    let stem = stem.strip_prefix("sha256:").unwrap_or(stem);
    if stem.len() == 64 && !oci::has_digest(&bytes, &format!("sha256:{stem}")) {
        return Err(format!(
            "its configuration {} has another digest",
            shortened(&saved.config)
        ));
    }
    let config = oci::config(&bytes).map_err(|e| format!("its configuration {e}"))?;
    limited(saved.layers.len())?;
    let diff_ids = config.rootfs.diff_ids.len();
    if diff_ids != 0 && diff_ids != saved.layers.len() {
        return Err(format!(
            "its configuration has {diff_ids} layers, its manifest.json {}",
            saved.layers.len()
        ));
    }
    let mut layers = Vec::new();
    let mut told = Vec::new();
    for (index, path) in saved.layers.iter().enumerate() {
        let source = store.get(path)?;
        let diff_id = config.rootfs.diff_ids.get(index);
        let name = diff_id.unwrap_or(path);
        // A blob is called by the digest of its bytes; of a layer that is not packed the configuration has it too.
        let of_blob = path
            .strip_prefix("blobs/sha256/")
            .map(|digits| format!("sha256:{digits}"));
        let is_packed = Packing::of(&*source.bytes).is_some();
        let digest = of_blob.or_else(|| diff_id.filter(|_| !is_packed).cloned());
        told.push(Layer {
            name: shortened(name),
            size: source.bytes.len(),
            ..Layer::default()
        });
        layers.push((source, digest));
    }
    Ok(Found {
        described: Described {
            form: "docker-archive".to_owned(),
            name: name(saved),
            config: Some(config),
            layers: told,
            ..Described::default()
        },
        layers,
        is_root: false,
        is_partial: false,
        problems,
    })
}

fn limited(layers: usize) -> Result<(), String> {
    if layers > MAX_LAYERS {
        return Err(format!(
            "has {layers} layers; {MAX_LAYERS} at most are read"
        ));
    }
    Ok(())
}

/// By the OCI's index.
fn by_index(store: &Store<'_>, form: &str, arch: &str) -> Result<Found, String> {
    let mut problems = Vec::new();
    let mut other_archs = Vec::new();
    let mut name = None;
    let mut manifest =
        oci::manifest(&store.json("index.json")?).map_err(|e| format!("its index.json {e}"))?;
    let mut depth = 0;
    while !manifest.manifests.is_empty() {
        depth += 1;
        if depth > MAX_INDEXES {
            return Err(format!(
                "its indexes lie more than {MAX_INDEXES} deep in each other"
            ));
        }
        let chosen = chosen(&manifest, arch, &mut problems, &mut other_archs)?;
        name = name.or_else(|| chosen.name());
        let bytes = store.blob(chosen)?;
        manifest = oci::manifest(&bytes).map_err(|e| format!("its manifest {e}"))?;
    }
    if manifest.config.digest.is_empty() {
        return Err(if depth == 0 {
            "its index.json names no image".to_owned()
        } else {
            "its manifest names no configuration".to_owned()
        });
    }
    let config = store.blob(&manifest.config)?;
    let config = oci::config(&config).map_err(|e| format!("its configuration {e}"))?;
    limited(manifest.layers.len())?;
    let mut layers = Vec::new();
    let mut told = Vec::new();
    let mut is_partial = false;
    for layer in &manifest.layers {
        if !layer.media_type.is_empty() && !layer.media_type.contains("tar") {
            return Err(format!(
                "holds `{}`, which is no layer of a container image",
                shortened(&layer.media_type)
            ));
        }
        let source = match store.get(&layer.path()?) {
            Err(_) if layer.is_foreign() => {
                is_partial = true;
                problems.push(format!(
                    "the layer {} may not be handed on with the image, and is not here: its files are missing",
                    layer.digest
                ));
                continue;
            }
            source => source?,
        };
        let size = source.bytes.len();
        if size != layer.size {
            return Err(format!(
                "the layer {} has {size} bytes, and its manifest says {}",
                layer.digest, layer.size
            ));
        }
        told.push(Layer {
            name: layer.digest.clone(),
            size: layer.size,
            ..Layer::default()
        });
        layers.push((source, Some(layer.digest.clone())));
    }
    Ok(Found {
        described: Described {
            form: form.to_owned(),
            name,
            config: Some(config),
            layers: told,
            other_archs,
        },
        layers,
        is_root: false,
        is_partial,
        problems,
    })
}

/// The image of an index that is read: the one for that processor, else the first. Where it is not the only one that it may
/// be, the others are told; images of one name for other processors are no others, and only their processors are noted.
fn chosen<'m>(
    index: &'m Manifest,
    arch: &str,
    problems: &mut Vec<String>,
    other_archs: &mut Vec<String>,
) -> Result<&'m Descriptor, String> {
    let images: Vec<&Descriptor> = index
        .manifests
        .iter()
        .filter(|m| m.may_be_image())
        .collect();
    let arch_of = |descriptor: &Descriptor| {
        let platform = descriptor.platform.as_ref();
        platform.map(|p| oci::arch(&p.architecture).to_owned())
    };
    let runs_there = |descriptor: &&Descriptor| arch_of(descriptor).as_deref() == Some(arch);
    let there: Vec<&Descriptor> = images.iter().copied().filter(runs_there).collect();
    let others: Vec<&Descriptor> = images.iter().copied().filter(|d| !runs_there(d)).collect();
    let may_be = if there.is_empty() { images } else { there };
    let Some(first) = may_be.first() else {
        return Err("its index names no image for Linux".to_owned());
    };
    let mut archs: Vec<String> = others.into_iter().filter_map(arch_of).collect();
    archs.retain(|other| Some(other) != arch_of(first).as_ref());
    other_archs.extend(archs);
    other_archs.sort_unstable();
    other_archs.dedup();
    if may_be.len() > 1 {
        let platform = first.platform.as_ref();
        let what = first
            .name()
            .or_else(|| platform.map(|p| format!("linux/{}", p.architecture)))
            .unwrap_or_else(|| first.digest.clone());
        problems.push(format!(
            "it holds {} images, and {} was read",
            may_be.len(),
            shortened(&what)
        ));
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_for_that_processor_is_read() {
        let read = |wanted: &str, platforms: &[&str]| {
            let manifests: Vec<String> = platforms
                .iter()
                .enumerate()
                .map(|(index, architecture)| {
                    format!(
                        r#"{{"digest":"{index}","platform":{{"os":"linux","architecture":"{architecture}"}}}}"#
                    )
                })
                .collect();
            let text = format!(r#"{{"manifests":[{}]}}"#, manifests.join(","));
            let index = oci::manifest(text.as_bytes()).unwrap();
            let (mut problems, mut archs) = (Vec::new(), Vec::new());
            let digest = chosen(&index, wanted, &mut problems, &mut archs);
            let digest = digest.map(|m| m.digest.clone());
            (digest, problems.len(), archs.join(" "))
        };
        let is = |digest: &str, problems, archs: &str| {
            (Ok(digest.to_owned()), problems, archs.to_owned())
        };
        let both = ["arm64", "amd64"];
        assert_eq!(read("x86_64", &both), is("1", 0, "aarch64"));
        assert_eq!(read("aarch64", &both), is("0", 0, "x86_64"));
        assert_eq!(read("x86_64", &["arm64"]), is("0", 0, ""));
        assert_eq!(read("x86_64", &["arm64", "s390x"]), is("0", 1, "s390x"));
        assert_eq!(read("x86_64", &["amd64", "amd64"]), is("0", 1, ""));
        assert!(read("x86_64", &[]).0.is_err());
    }
}
