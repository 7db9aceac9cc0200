//! The JSON of container images: what `docker save` and the OCI's image layout write. Unknown fields are left alone.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::hexadecimal;

/// The most bytes of such a file; those of images with a hundred layers have 60 kB.
pub const MAX_JSON: usize = 4 << 20;
/// The most layers of an image; the kernel mounts 500 at most, Docker 127.
pub const MAX_LAYERS: usize = 512;

/// An image of `manifest.json`, which `docker save` writes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Saved {
    /// The path of its configuration in the archive.
    pub config: String,
    /// Its names.
    pub repo_tags: Option<Vec<String>>,
    /// The paths of its layers in the archive, the lowest first.
    pub layers: Vec<String>,
}

/// What points at a blob.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Descriptor {
    /// What it is: `application/vnd.oci.image.layer.v1.tar+gzip`.
    pub media_type: String,
    /// `sha256:` and 64 digits.
    pub digest: String,
    /// In bytes.
    pub size: u64,
    /// Where else it is to be had: of a layer that may not be handed on with the image.
    pub urls: Option<Vec<String>>,
    /// What else is said of it.
    pub annotations: Option<BTreeMap<String, Value>>,
    /// What it runs on.
    pub platform: Option<Platform>,
}

/// What an image runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Platform {
    /// `amd64`, `arm64`; `unknown` of what is no image but says something of one.
    pub architecture: String,
    /// `linux`.
    pub os: String,
}

/// `index.json`, an index within it, or a manifest: one has manifests, the other a configuration and layers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Manifest {
    /// Images, or indexes of them.
    pub manifests: Vec<Descriptor>,
    /// The configuration.
    pub config: Descriptor,
    /// The layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

/// An image's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// `amd64`.
    pub architecture: String,
    /// `linux`.
    pub os: String,
    /// How it is run.
    pub config: Option<Run>,
    /// The digests of its layers, unpacked.
    pub rootfs: Rootfs,
    /// The steps that made it.
    pub history: Vec<Step>,
}

/// How an image is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Run {
    /// `NAME=VALUE`.
    pub env: Option<Vec<String>>,
    /// The program, with its first arguments.
    pub entrypoint: Option<Vec<String>>,
    /// Its arguments.
    pub cmd: Option<Vec<String>>,
}

/// The layers by their digests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Rootfs {
    /// The lowest first.
    pub diff_ids: Vec<String>,
}

/// A step that made an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Step {
    /// The command.
    pub created_by: String,
    /// It made no layer.
    pub empty_layer: bool,
}

/// The images of a `manifest.json`.
///
/// # Errors
/// In words.
pub fn saved(bytes: &[u8]) -> Result<Vec<Saved>, String> {
    parse(bytes)
}

/// An index or a manifest.
///
/// # Errors
/// In words.
pub fn manifest(bytes: &[u8]) -> Result<Manifest, String> {
    parse(bytes)
}

/// A configuration.
///
/// # Errors
/// In words.
pub fn config(bytes: &[u8]) -> Result<Config, String> {
    parse(bytes)
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|e| format!("is not what it should be: {e}"))
}

impl Descriptor {
    /// The path of the blob in an image layout.
    ///
    /// # Errors
    /// In words: it is no digest of a kind that blobs are named by.
    pub fn path(&self) -> Result<String, String> {
        let wrong = || {
            let digest: String = self.digest.chars().take(80).collect();
            format!("`{}` is no digest", digest.escape_debug())
        };
        let (kind, digits) = self.digest.split_once(':').ok_or_else(wrong)?;
        let is_digest = matches!((kind, digits.len()), ("sha256", 64) | ("sha512", 128))
            && digits.bytes().all(|b| b.is_ascii_hexdigit());
        if is_digest {
            Ok(format!("blobs/{kind}/{digits}"))
        } else {
            Err(wrong())
        }
    }

    /// Whether it may be left out of an image that is handed on.
    pub fn is_foreign(&self) -> bool {
        let has_urls = self.urls.as_ref().is_some_and(|urls| !urls.is_empty());
        has_urls
            || ["nondistributable", "foreign"]
                .iter()
                .any(|word| self.media_type.contains(word))
    }

    /// Whether it is an image for Linux, or an index: and not a signature or a statement on one.
    pub fn may_be_image(&self) -> bool {
        let is_statement = self
            .annotations
            .as_ref()
            .is_some_and(|all| all.contains_key("vnd.docker.reference.type"));
        let platform = self.platform.as_ref();
        !is_statement && platform.is_none_or(|p| p.os.is_empty() || p.os == "linux")
    }

    /// A name that it goes by in an index.
    pub fn name(&self) -> Option<String> {
        let all = self.annotations.as_ref()?;
        [
            "io.containerd.image.name",
            "org.opencontainers.image.ref.name",
        ]
        .iter()
        .find_map(|key| Some(all.get(*key)?.as_str()?.to_owned()))
    }
}

/// Whether bytes have a digest; true of a digest of another kind than SHA-256, which is not computed here.
pub fn has_digest(bytes: &[u8], digest: &str) -> bool {
    !is_computed(digest) || is_digest(Sha256::new_with_prefix(bytes), digest)
}

/// Whether a digest is of the kind that is computed here.
pub fn is_computed(digest: &str) -> bool {
    digest.starts_with("sha256:")
}

/// Whether what was hashed has this digest.
pub fn is_digest(hashed: Sha256, digest: &str) -> bool {
    let is = |digits: &str| hexadecimal(&hashed.finalize()).eq_ignore_ascii_case(digits);
    digest.strip_prefix("sha256:").is_some_and(is)
}

/// The processor family as `uname -m` writes it: `x86_64` for `amd64`.
pub fn arch(architecture: &str) -> &str {
    match architecture {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        "386" => "i386",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_docker_saves() {
        let text = br#"[{"Config":"blobs/sha256/ab","RepoTags":["a:1"],"Layers":["x/layer.tar"],"LayerSources":{}},{"RepoTags":null}]"#;
        let all = saved(text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].layers, ["x/layer.tar"]);
        assert!(saved(b"{}").is_err() && saved(b"[1]").is_err() && saved(&[0xff; 9]).is_err());
        let deep = "[".repeat(100_000);
        assert!(saved(deep.as_bytes()).is_err());
    }

    #[test]
    fn digests() {
        let digits = "a".repeat(64);
        let at = |digest: &str| {
            let digest = digest.to_owned();
            Descriptor {
                digest,
                ..Descriptor::default()
            }
            .path()
        };
        assert_eq!(
            at(&format!("sha256:{digits}")).unwrap(),
            format!("blobs/sha256/{digits}")
        );
        for wrong in ["", "sha256:", "sha256:../../etc/passwd", "md5:aa", &digits] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert!(has_digest(b"", empty) && !has_digest(b"x", empty) && has_digest(b"x", "sha512:1"));
    }

    #[test]
    fn an_index_has_statements_beside_images() {
        let text = br#"{"manifests":[{"digest":"a","platform":{"os":"linux","architecture":"amd64"},"annotations":{"org.opencontainers.image.ref.name":"v1"}},
            {"digest":"b","platform":{"os":"unknown","architecture":"unknown"}},
            {"digest":"c","annotations":{"vnd.docker.reference.type":"attestation-manifest"}}]}"#;
        let index = manifest(text).unwrap();
        let images: Vec<_> = index
            .manifests
            .iter()
            .filter(|m| m.may_be_image())
            .collect();
        assert_eq!(images.len(), 1);
        assert_eq!(images[0].name().as_deref(), Some("v1"));
    }
}
