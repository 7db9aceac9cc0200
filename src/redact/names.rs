//! The names that stand for secrets: `GPU-1`, `host-2`. The same secret always gets the same name, and a name that
//! the text already holds is not given to anything else.

use std::collections::{BTreeMap, BTreeSet};

use super::runs::runs;

/// What kind of secret a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The UUID of a GPU.
    Gpu,
    /// The UUID of a MIG instance.
    Mig,
    /// Any other UUID.
    Uuid,
    /// A host.
    Host,
    /// A user.
    User,
    /// A serial number.
    Serial,
    /// A hardware address.
    Mac,
    /// An IP address.
    Ip,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Gpu,
        Self::Mig,
        Self::Uuid,
        Self::Host,
        Self::User,
        Self::Serial,
        Self::Mac,
        Self::Ip,
    ];

    fn prefix(self) -> &'static str {
        match self {
            Self::Gpu => "GPU",
            Self::Mig => "MIG",
            Self::Uuid => "uuid",
            Self::Host => "host",
            Self::User => "user",
            Self::Serial => "serial",
            Self::Mac => "mac",
            Self::Ip => "ip",
        }
    }
}

/// More digits than this are no number that we gave: an abbreviated UUID has eight.
const MAX_DIGITS: usize = 7;

/// The kind and number of a name in our form: `host-2`.
pub(super) fn parse(text: &str) -> Option<(Kind, u32)> {
    let (prefix, digits) = text.split_once('-')?;
    let kind = Kind::ALL.into_iter().find(|kind| kind.prefix() == prefix)?;
    let ours = digits.len() <= MAX_DIGITS
        && digits.bytes().all(|b| b.is_ascii_digit())
        && !digits.starts_with('0');
    if ours {
        digits.parse().ok().map(|number| (kind, number))
    } else {
        None
    }
}

/// The names given so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    given: BTreeMap<(Kind, String), u32>,
    last: BTreeMap<Kind, u32>,
    taken: BTreeSet<(Kind, u32)>,
}

impl Names {
    /// The name for a secret; a new one where it has not been seen before.
    pub(super) fn name(&mut self, kind: Kind, secret: &str) -> String {
        let key = (kind, secret.to_owned());
        let number = if let Some(number) = self.given.get(&key) {
            *number
        } else {
            let mut number = self.last.get(&kind).copied().unwrap_or(0).saturating_add(1);
            while self.taken.contains(&(kind, number)) {
                number = number.saturating_add(1);
            }
            self.last.insert(kind, number);
            self.given.insert(key, number);
            number
        };
        format!("{}-{number}", kind.prefix())
    }

    /// Keeps the names that a text already holds from being given to something new.
    pub(super) fn reserve(&mut self, text: &str) {
        if !text.contains('-') {
            return;
        }
        for (_, run) in runs(text, |c| c.is_ascii_alphanumeric() || c == '-') {
            if let Some(name) = parse(run.text)
                && self.last.get(&name.0).is_none_or(|last| *last < name.1)
            {
                self.taken.insert(name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_stable_and_never_given_twice() {
        let mut names = Names::default();
        names.reserve("seen before: host-2, GPU-01, GPU-12345678");
        assert_eq!(names.name(Kind::Host, "a"), "host-1");
        assert_eq!(names.name(Kind::Host, "b"), "host-3");
        assert_eq!(names.name(Kind::Host, "a"), "host-1");
        assert_eq!(names.name(Kind::Gpu, "a"), "GPU-1");
    }

    #[test]
    fn what_is_a_name_of_ours() {
        for (text, ours) in [
            ("host-2", true),
            ("GPU-1", true),
            ("gpu-1", false),
            ("GPU-0", false),
            ("GPU-12345678", false),
            ("host-", false),
            ("host-1a", false),
            ("ip-10-0-0-1", false),
        ] {
            assert_eq!(parse(text).is_some(), ours, "{text}");
        }
    }
}
