//! UUIDs: those of GPUs and MIG instances (also abbreviated, as `CUDA_VISIBLE_DEVICES` takes them), AMD's, and any other.

use std::borrow::Cow;

use super::Redactor;
use super::names::Kind;
use super::runs::{is_hex, replace_runs, runs};

/// Hexadecimal digits in the groups of a UUID.
const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// UUIDs that are the same everywhere: the owners of EFI variables (the UEFI specification's global one, shim's).
const PUBLIC: [&str; 2] = [
    "8be4df6193ca11d2aa0d00e098032b8c",
    "605dab50e0464300abb63dd810dd8b23",
];

/// The shortest abbreviation that is taken for one of a UUID seen elsewhere in the text.
const SHORTEST_KNOWN: usize = 4;

impl Redactor {
    /// Remembers the UUIDs of GPUs and MIG instances, so that an abbreviation that comes earlier gets the same name.
    pub(super) fn survey_uuids(&mut self, text: &str) {
        if !text.contains("GPU-") && !text.contains("MIG-") {
            return;
        }
        for (_, run) in runs(text, is_uuid_char) {
            let groups: Vec<&str> = run.text.split('-').collect();
            for window in groups.windows(1 + GROUPS.len()) {
                if let Some((&("GPU" | "MIG"), groups)) = window.split_first()
                    && let Some(hex) = uuid(groups)
                {
                    self.uuids.insert(hex);
                }
            }
        }
    }

    /// `GPU-8932f937-d72c-...` becomes `GPU-1`, `MIG-GPU-8932f937-.../3/0` becomes `MIG-GPU-1/3/0`.
    pub(super) fn identifiers<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        // The shortest that is replaced is `GPU-8932`.
        if text.len() < "GPU-".len() + SHORTEST_KNOWN {
            return Cow::Borrowed(text);
        }
        replace_runs(text, is_uuid_char, |run| {
            if is_bare_uuid(run.text) && stands_alone(run.before, run.after) {
                return Some(self.names.name(Kind::Uuid, &run.text.to_ascii_lowercase()));
            }
            let new = self.uuid_run(run.text)?;
            (new != run.text).then_some(new)
        })
    }

    /// A run of letters, digits and dashes with its UUIDs named; `None` where it can hold none.
    fn uuid_run(&mut self, run: &str) -> Option<String> {
        if !run.contains('-') {
            return None;
        }
        let groups: Vec<&str> = run.split('-').collect();
        let mut out: Vec<String> = Vec::with_capacity(groups.len());
        let mut rest = groups.as_slice();
        while let Some((group, others)) = rest.split_first() {
            let kind = match out.last().map(String::as_str) {
                Some("GPU") => Some(Kind::Gpu),
                Some("MIG") => Some(Kind::Mig),
                _ => None,
            };
            let whole = rest.get(..GROUPS.len()).and_then(uuid);
            if let Some(hex) = whole.filter(|hex| !PUBLIC.contains(&hex.as_str())) {
                if kind.is_some() {
                    out.pop();
                }
                out.push(self.names.name(kind.unwrap_or(Kind::Uuid), &hex));
                rest = rest.get(GROUPS.len()..).unwrap_or_default();
            } else if let Some(kind) = kind
                && let Some((hex, length)) = self.abbreviated(rest)
            {
                out.pop();
                out.push(self.names.name(kind, &hex));
                rest = rest.get(length..).unwrap_or_default();
            } else {
                out.push((*group).to_owned());
                rest = others;
            }
        }
        Some(out.join("-"))
    }

    /// The abbreviated UUID that groups begin with, written out where the whole is known, and how many groups it has.
    fn abbreviated(&self, groups: &[&str]) -> Option<(String, usize)> {
        // AMD's are sixteen digits in one group; a start of it with more than eight is taken for one as well.
        if let Some(group) = groups.first()
            && (GROUPS[0] + 1..=16).contains(&group.len())
            && is_hex(group)
        {
            return Some((group.to_ascii_lowercase(), 1));
        }
        let mut hex = String::new();
        let mut length = 0;
        for (group, full) in groups.iter().zip(GROUPS) {
            if !is_hex(group) || group.len() > full {
                break;
            }
            hex.push_str(group);
            length += 1;
            if group.len() < full {
                break;
            }
        }
        hex.make_ascii_lowercase();
        let whole = self
            .uuids
            .range(hex.clone()..)
            .next()
            .filter(|uuid| uuid.starts_with(&hex));
        match whole {
            Some(whole) if hex.len() >= SHORTEST_KNOWN => Some((whole.clone(), length)),
            // A whole first group is no number that somebody counts GPUs with.
            _ if hex.len() >= 8 => Some((hex, length)),
            _ => None,
        }
    }
}

fn is_uuid_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

/// The digits of the UUID that five groups make, without dashes and in lower case.
fn uuid(groups: &[&str]) -> Option<String> {
    let fits = groups.len() == GROUPS.len()
        && groups
            .iter()
            .zip(GROUPS)
            .all(|(group, length)| group.len() == length && is_hex(group));
    fits.then(|| groups.concat().to_ascii_lowercase())
}

/// A UUID written without dashes, as machine ids are.
fn is_bare_uuid(run: &str) -> bool {
    run.len() == 32
        && is_hex(run)
        && run.bytes().any(|b| b.is_ascii_digit())
        && run.bytes().any(|b| b.is_ascii_alphabetic())
}

/// Whether 32 hexadecimal digits are a word of their own: no checksum, no part of a file's name.
fn stands_alone(before: &str, after: &str) -> bool {
    !before.ends_with(['_', '.'])
        && !["md5=", "md5:", "md5 "]
            .iter()
            .any(|mark| before.ends_with(mark))
        && !after.starts_with('_')
        && !after
            .strip_prefix('.')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_alphanumeric()))
}
