//! What rows of several tables share: how far a row can be trusted, compute capabilities, notes.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How far a row or a cell can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Public repositories, packages, memory: good for a warning, not for an error.
    Secondary,
    /// A primary source that could have said otherwise was read, or it was measured.
    Verified,
}

/// A compute capability: (8, 6) is 8.6, `sm_86`.
pub type Capability = (u32, u32);

/// `8.6` as (8, 6).
pub(super) fn parse_capability(text: &str) -> Option<Capability> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `#[serde(with = "capability")]`: a capability written `"8.6"`.
pub(super) mod capability {
    use super::{Capability, Deserialize, Deserializer, Serializer, parse_capability};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the form that serde calls"
    )]
    pub(in crate::matrix) fn serialize<S: Serializer>(
        value: &Capability,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}.{}", value.0, value.1))
    }

    pub(in crate::matrix) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Capability, D::Error> {
        let text = String::deserialize(deserializer)?;
        let error = || {
            serde::de::Error::custom(format!(
                "`{}` is no compute capability",
                text.escape_debug()
            ))
        };
        parse_capability(&text).ok_or_else(error)
    }
}

/// `#[serde(with = "optional_capability", default)]`: the same where it may be missing.
pub(super) mod optional_capability {
    use super::{Capability, Deserializer, Serializer, capability};

    #[expect(clippy::ref_option, reason = "the form that serde calls")]
    pub(in crate::matrix) fn serialize<S: Serializer>(
        value: &Option<Capability>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => capability::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(in crate::matrix) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Capability>, D::Error> {
        capability::deserialize(deserializer).map(Some)
    }
}

/// Something worth knowing that has no column of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Note {
    /// What it is about, unique in its table.
    pub topic: String,
    /// What is so.
    pub fact: String,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}

/// What every row has: the linter walks rows by it.
pub(super) trait AnyRow {
    /// What makes the row unique in its table.
    fn key(&self) -> String;
    /// Who says so.
    fn source(&self) -> &str;
    /// How far to trust it.
    fn confidence(&self) -> Confidence;
    /// Its cells by name.
    fn cells(&self) -> serde_json::Map<String, serde_json::Value>;
}

/// Implements [`AnyRow`] by an expression for the key.
macro_rules! row {
    ($type:ty, |$row:ident| $key:expr) => {
        impl crate::matrix::rows::AnyRow for $type {
            fn key(&self) -> String {
                let $row = self;
                $key.to_string()
            }

            fn source(&self) -> &str {
                &self.source
            }

            fn confidence(&self) -> crate::matrix::rows::Confidence {
                self.confidence
            }

            fn cells(&self) -> serde_json::Map<String, serde_json::Value> {
                match serde_json::to_value(self) {
                    Ok(serde_json::Value::Object(cells)) => cells,
                    _ => serde_json::Map::new(),
                }
            }
        }
    };
}
pub(super) use row;

row!(Note, |note| note.topic);
