//! What a Python package asks of another: `nvidia-cudnn-cu12==9.1.0.70`, `<10.0,>=9.8`, as METADATA writes it.
//!
//! It compares numbers, as [`Version`] does: pre-releases are not ordered, local versions (`+cu126`) do not count, and a
//! post-release counts where a bound names one. Environment markers are cut off and not judged.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::version::Version;

/// A package and the versions of it that will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The name as package indexes compare it: lower case, `-` for `_` and `.`.
    pub name: String,
    /// Which versions; all where none is named.
    pub bounds: Bounds,
}

/// Bounds that all have to hold: `<10.0,>=9.8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds(Vec<Bound>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Bound {
    relation: Relation,
    version: Version,
    /// `==12.9.*`: the numbers that are written are enough.
    any_after: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Exactly,
    Not,
    AtLeast,
    AtMost,
    Above,
    Below,
    Compatible,
}

/// How relations are written, longer ones first.
const RELATIONS: [(&str, Relation); 8] = [
    ("===", Relation::Exactly),
    ("==", Relation::Exactly),
    ("!=", Relation::Not),
    (">=", Relation::AtLeast),
    ("<=", Relation::AtMost),
    ("~=", Relation::Compatible),
    (">", Relation::Above),
    ("<", Relation::Below),
];

/// The name of a package as indexes compare it.
pub fn normalised(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if text.ends_with('-') => {}
            '-' | '_' | '.' => text.push('-'),
            c => text.push(c.to_ascii_lowercase()),
        }
    }
    text
}

impl Requirement {
    /// Reads the value of a `Requires-Dist`; `None` where it is none, or names a place instead of versions.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.split(';').next()?.trim();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
        let (name, mut rest) = text.split_at_checked(end)?;
        if name.is_empty() {
            return None;
        }
        rest = rest.trim_start();
        if let Some(extras) = rest.strip_prefix('[') {
            rest = extras.split_once(']')?.1.trim_start();
        }
        if let Some(inner) = rest.strip_prefix('(') {
            rest = inner.split_once(')')?.0;
        }
        Some(Self {
            name: normalised(name),
            bounds: rest.parse().ok()?,
        })
    }
}

impl Bounds {
    /// Whether this version will do.
    pub fn allow(&self, version: &Version) -> bool {
        self.0.iter().all(|bound| bound.allows(version))
    }

    /// The only version that will do, where a bound names one whole.
    pub fn exactly(&self) -> Option<&Version> {
        let exact = |bound: &&Bound| bound.relation == Relation::Exactly && !bound.any_after;
        self.0.iter().find(exact).map(|bound| &bound.version)
    }

    /// The least version that will do, where a bound names it.
    pub fn at_least(&self) -> Option<&Version> {
        let least = |bound: &&Bound| {
            matches!(
                bound.relation,
                Relation::Exactly | Relation::AtLeast | Relation::Compatible
            )
        };
        let named = self.0.iter().filter(least).map(|bound| &bound.version);
        named.max()
    }

    /// Whether there is no bound.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Bound {
    fn allows(&self, version: &Version) -> bool {
        let bound = &self.version;
        match self.relation {
            Relation::Exactly => self.is(version),
            Relation::Not => !self.is(version),
            Relation::AtLeast => version >= bound,
            Relation::AtMost => version <= bound,
            Relation::Above => version > bound,
            Relation::Below => version < bound,
            Relation::Compatible => version >= bound && same_start(version, bound, bound.len() - 1),
        }
    }

    fn is(&self, version: &Version) -> bool {
        if self.any_after {
            return same_start(version, &self.version, self.version.len());
        }
        *version == self.version && release_suffix(version) == release_suffix(&self.version)
    }
}

fn same_start(a: &Version, b: &Version, parts: usize) -> bool {
    (0..parts).all(|i| a.part(i) == b.part(i))
}

/// What follows the numbers, without a local version: `.post1`.
fn release_suffix(version: &Version) -> &str {
    let text = version.as_str();
    let public = text.split('+').next().unwrap_or(text);
    let numbers = |c: char| c.is_ascii_digit() || c == '.';
    public.trim_start_matches(numbers)
}

impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` bounds no version", text.escape_debug());
        let parts = text.split(',').map(str::trim);
        let bounds = parts.filter(|part| !part.is_empty()).map(|part| {
            let (relation, version) = RELATIONS.iter().find_map(|(written, relation)| {
                Some((*relation, part.strip_prefix(written)?.trim()))
            })?;
            let bare = version.strip_suffix(".*");
            Some(Bound {
                relation,
                version: Version::parse(bare.unwrap_or(version))?,
                any_after: bare.is_some(),
            })
        });
        let bounds: Option<Vec<_>> = bounds.collect();
        bounds.map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, bound) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let written = RELATIONS
                .iter()
                .rev()
                .find(|(_, relation)| *relation == bound.relation)
                .map_or("", |(written, _)| written);
            let any = if bound.any_after { ".*" } else { "" };
            write!(f, "{comma}{written}{}{any}", bound.version)?;
        }
        Ok(())
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, self.bounds)
    }
}

impl Serialize for Bounds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Bounds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for Requirement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Requirement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong =
            || serde::de::Error::custom(format!("`{}` is no requirement", text.escape_debug()));
        Self::parse(&text).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requirements_as_metadata_has_them() {
        for (text, name, bounds) in [
            (
                "nvidia-cudnn-cu12==9.1.0.70",
                "nvidia-cudnn-cu12",
                "==9.1.0.70",
            ),
            (
                "nvidia-nccl-cu12 (==2.21.5) ; platform_system == \"Linux\"",
                "nvidia-nccl-cu12",
                "==2.21.5",
            ),
            (
                "cuda-toolkit[cublas,cudart]==13.0.2",
                "cuda-toolkit",
                "==13.0.2",
            ),
            ("Torch_Vision", "torch-vision", ""),
            (
                "nvidia-cublas <=13.1.1.3, >=13.1.0.3",
                "nvidia-cublas",
                "<=13.1.1.3,>=13.1.0.3",
            ),
            (
                "nvidia-nvtx==12.9.79.*; extra == 'all'",
                "nvidia-nvtx",
                "==12.9.79.*",
            ),
        ] {
            let read = Requirement::parse(text).unwrap();
            assert_eq!(
                (read.name.as_str(), read.bounds.to_string().as_str()),
                (name, bounds),
                "{text}"
            );
            assert_eq!(Requirement::parse(&read.to_string()), Some(read));
        }
        for text in [
            "",
            "==1.0",
            "a[b",
            "a (>=1",
            "a @ https://example.org/a.whl",
            "a=>1",
            "a ==one",
        ] {
            assert_eq!(Requirement::parse(text), None, "{text}");
        }
    }

    #[test]
    fn versions_within_bounds() {
        for (bounds, version, allowed) in [
            ("", "1", true),
            ("==2.7.1", "2.7.1+cu126", true),
            ("==2.7.1", "2.7.0", false),
            ("==2.7", "2.7.0", true),
            ("==0.0.23.post1", "0.0.23", false),
            ("==0.0.23.post1", "0.0.23.post1", true),
            ("<10.0,>=9.8", "9.10.2.21", true),
            ("<10.0,>=9.8", "9.7.1", false),
            ("~=12.0", "12.9", true),
            ("~=12.0", "13.0", false),
            ("~=3.8.0", "3.8.5", true),
            ("~=3.8.0", "3.9.0", false),
            ("==12.9.79.*", "12.9.79.3", true),
            ("!=9.10.0", "9.10.0.56", true),
            ("!=9.10.0", "9.10.0", false),
            (">3,<=3.12", "3.12", true),
        ] {
            let read: Bounds = bounds.parse().unwrap();
            let version = Version::parse(version).unwrap();
            assert_eq!(read.allow(&version), allowed, "{version} in {bounds}");
        }
        let bounds: Bounds = "<10.0,>=9.8".parse().unwrap();
        assert_eq!(bounds.at_least(), Version::parse("9.8").as_ref());
        assert_eq!(bounds.exactly(), None);
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "\\PC{0,40}", near in "[a-z]{1,3}[=<>~!]{0,3}[0-9.*]{0,6}") {
            for text in [text, near] {
                if let Some(read) = Requirement::parse(&text) {
                    let _ = read.bounds.allow(&Version::from_cuda_level(12040));
                }
            }
        }
    }
}
