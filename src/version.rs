//! One version type for everything that NVIDIA numbers.
//!
//! `semver` refuses what is really written on these parts: `550.163.01` (leading zero), `12.4` (two parts),
//! `9.10.2.21` (four). So a [`Version`] is a list of numbers, compared left to right, a missing part being 0; the text
//! is kept for display. It does not order pre-releases: what follows the numbers is text only.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A version of one to five numeric parts: `550.163.01`, `12.4`, `2.7.1+cu126`.
///
/// Equality and order look at the numbers alone, so `12.4` equals `12.4.0`, and `550.90.07` equals `550.90.7`.
#[derive(Clone, Debug)]
pub struct Version {
    parts: Vec<u32>,
    text: String,
}

/// The most numeric parts that a version is read to.
const MAX_PARTS: usize = 5;

impl Version {
    /// Reads the numbers at the start of `text`; what follows them (`+cu126`, `rc2`, ` LTS`) is kept as text only.
    ///
    /// `None` where `text` does not begin with a number.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
        let mut parts = Vec::new();
        let mut rest = text;
        loop {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, after) = rest.split_at_checked(digits)?;
            if number.is_empty() {
                break;
            }
            parts.push(number.parse().ok()?);
            rest = after;
            match rest.strip_prefix('.') {
                Some(next)
                    if parts.len() < MAX_PARTS
                        && next.starts_with(|c: char| c.is_ascii_digit()) =>
                {
                    rest = next;
                }
                _ => break,
            }
        }
        if parts.is_empty() {
            None
        } else {
            Some(Self {
                parts,
                text: text.to_owned(),
            })
        }
    }

    /// The version that a CUDA integer stands for: `1000 * major + 10 * minor`, as `cuDriverGetVersion` and
    /// `cudaRuntimeGetVersion` answer it. 12040 is 12.4.
    pub fn from_cuda_level(level: u32) -> Self {
        let (major, minor) = (level / 1000, level % 1000 / 10);
        Self {
            parts: vec![major, minor],
            text: format!("{major}.{minor}"),
        }
    }

    /// The CUDA integer of a toolkit version: 12.4.1 is 12040.
    pub fn cuda_level(&self) -> u32 {
        self.major()
            .saturating_mul(1000)
            .saturating_add(self.minor().saturating_mul(10))
    }

    /// The first number: a driver's branch, a toolkit's major version.
    pub fn major(&self) -> u32 {
        self.part(0)
    }

    /// The second number, 0 where there is none.
    pub fn minor(&self) -> u32 {
        self.part(1)
    }

    /// The number at `index`, 0 where there is none.
    pub fn part(&self, index: usize) -> u32 {
        self.parts.get(index).copied().unwrap_or(0)
    }

    /// How many numbers were written.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Never true: a version has at least one number.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The text it was read from, without a leading `v`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// `major.minor`, as CUDA toolkits are called in speech.
    pub fn major_minor(&self) -> String {
        format!("{}.{}", self.major(), self.minor())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| format!("`{}` is no version", text.escape_debug()))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let parts = self.parts.len().max(other.parts.len());
        (0..parts)
            .map(|i| self.part(i).cmp(&other.part(i)))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Version {}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// A version is a string in every document.
impl schemars::JsonSchema for Version {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Version".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "One to five numbers separated by dots, and what was written after them" })
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn what_nvidia_writes_is_read() {
        for (text, parts) in [
            ("550.163.01", &[550, 163, 1][..]),
            ("12.4", &[12, 4]),
            ("9.10.2.21", &[9, 10, 2, 21]),
            ("2.7.1+cu126", &[2, 7, 1]),
            ("0.11.0rc2", &[0, 11, 0]),
            ("v12.4", &[12, 4]),
            ("535.183.01-0ubuntu0.22.04.1", &[535, 183, 1]),
            ("1.2.3.4.5.6", &[1, 2, 3, 4, 5]),
            ("13.", &[13]),
        ] {
            assert_eq!(v(text).parts, parts, "{text}");
        }
        for text in ["", "stub", ".5", "-1", "99999999999999999999"] {
            assert!(Version::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn numbers_are_compared_as_numbers() {
        assert!(v("12.10") > v("12.9"));
        assert!(v("535.54.03") < v("535.104.05"));
        assert_eq!(v("12.4"), v("12.4.0"));
        assert_eq!(v("550.90.07"), v("550.90.7"));
    }

    #[test]
    fn cuda_integers() {
        assert_eq!(Version::from_cuda_level(12040).to_string(), "12.4");
        assert_eq!(Version::from_cuda_level(13050), v("13.5"));
        assert_eq!(v("11.8.89").cuda_level(), 11080);
    }

    proptest! {
        #[test]
        fn order_is_total_and_any_text_is_taken(a in "[0-9.]{0,12}", b in "[0-9.]{0,12}", c in "\\PC{0,20}") {
            let _ = Version::parse(&c);
            if let (Some(a), Some(b)) = (Version::parse(&a), Version::parse(&b)) {
                prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
                prop_assert_eq!(a == b, a.cmp(&b).is_eq());
            }
        }
    }
}
