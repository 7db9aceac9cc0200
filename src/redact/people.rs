//! `user@host` in all its forms: builders of kernels and modules, mail addresses, credentials without a scheme.
//! Symbol versions (`memcpy@GLIBC_2.14`), package specs (`cuda@12.4`) and systemd units are none of them.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use super::names::{self, Kind};
use super::runs::{Splice, leading, trailing};
use super::{Redactor, words};

/// What may stand before a mail address with a colon and is no user of a password.
const LABELS: [&str; 12] = [
    "author",
    "by",
    "cc",
    "contact",
    "e-mail",
    "email",
    "error",
    "from",
    "mail",
    "mailto",
    "maintainer",
    "to",
];

/// Names of checksums, as in `image@sha256:...`.
const CHECKSUMS: [&str; 4] = ["md5", "sha1", "sha256", "sha512"];

/// `(dvs-builder@build-host)` becomes `(builder)`.
pub(super) fn builders(text: &str) -> Cow<'_, str> {
    let mut splice = Splice::new(text);
    for (at, _) in text.match_indices('(') {
        let rest = text.get(at + 1..).unwrap_or_default();
        let inner = leading(rest, |c| !c.is_whitespace() && !matches!(c, '(' | ')'));
        let beyond = rest.get(inner.len()..).unwrap_or_default();
        let Some((user, host)) = inner.split_once('@') else {
            continue;
        };
        // A kernel that was built without a host name says `(root@(none))`.
        let nameless = host.is_empty() && beyond.starts_with("(none))");
        let named = beyond.starts_with(')') && is_word(host, is_host_char) && !is_no_host(host);
        if is_word(user, is_user_char) && (nameless || named) {
            let length = if nameless { "(none)".len() } else { 0 };
            splice.put(at + 1, at + 1 + inner.len() + length, "builder");
        }
    }
    splice.finish()
}

impl Redactor {
    /// `alice@node17` becomes `user-1@host-1`; a password before the `@` goes.
    pub(super) fn people<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let mut splice = Splice::new(text);
        let mut from = 0;
        for (at, _) in text.match_indices('@') {
            let Some(before) = text.get(from..at) else {
                continue;
            };
            let after = text.get(at + 1..).unwrap_or_default();
            from = at + 1;
            let run = leading(after, is_host_char);
            let host = run.trim_end_matches(['.', '-']);
            let user = trailing(before, is_user_char);
            let beyond = after.get(host.len()..).unwrap_or_default();
            if host.is_empty() || beyond.starts_with(['_', '@']) || before.is_empty() {
                continue;
            }
            let word = trailing(before, |c| {
                !c.is_whitespace()
                    && !matches!(
                        c,
                        '"' | '\'' | '`' | '=' | ',' | ';' | '(' | '<' | '/' | '|'
                    )
            });
            let credentials = word
                .split_once(':')
                .filter(|(name, secret)| is_word(name, is_user_char) && !secret.is_empty())
                .filter(|(name, _)| !LABELS.iter().any(|label| label.eq_ignore_ascii_case(name)));
            let (user, length) =
                credentials.map_or((user, user.len()), |(name, _)| (name, word.len()));
            if user.is_empty() {
                continue;
            }
            let Some(named_host) = self.host_of(user, host) else {
                continue;
            };
            let named_user = if names::parse(user).is_some_and(|(kind, _)| kind == Kind::User) {
                user.to_owned()
            } else {
                self.names.name(Kind::User, user)
            };
            splice.put(
                at - length,
                at + 1 + host.len(),
                &format!("{named_user}@{named_host}"),
            );
            from = at + 1 + host.len();
        }
        splice.finish()
    }

    /// The name of the host behind `user@`; `None` where this is no host at all.
    fn host_of(&mut self, user: &str, host: &str) -> Option<String> {
        if names::parse(host).is_some_and(|(kind, _)| matches!(kind, Kind::Host | Kind::Ip)) {
            return Some(host.to_owned());
        }
        let known_user = self.users.contains_key(user) || user == "root";
        if host.parse::<Ipv4Addr>().is_ok() {
            return known_user.then(|| self.names.name(Kind::Ip, host));
        }
        if is_no_host(host) {
            return None;
        }
        let known = known_user || self.is_own_host(host);
        let dotted = host.rsplit_once('.').is_some_and(|(_, last)| {
            last.chars().count() >= 2 && last.chars().all(char::is_alphabetic)
        });
        // `node17`, `build-host`: as machines are called, and nothing else that follows an `@`.
        let machine = host.starts_with(char::is_alphabetic)
            && host.contains(|c: char| c.is_ascii_digit() || c == '-')
            && !host.contains(|c: char| c.is_ascii_uppercase() || c == '.')
            && !is_tag(host);
        (known || dotted || machine).then(|| {
            let canonical = self.canonical_host(host);
            self.names.name(Kind::Host, &canonical)
        })
    }
}

/// Symbol versions, package versions, systemd units and checksums.
fn is_no_host(text: &str) -> bool {
    let number = leading(text, |c| c.is_ascii_digit());
    let beyond = text.get(number.len()..).unwrap_or_default();
    let version = !number.is_empty() && (beyond.is_empty() || beyond.starts_with('.'));
    (version && text.parse::<Ipv4Addr>().is_err())
        || text.split('.').any(|label| label == "so")
        || text
            .rsplit_once('.')
            .is_some_and(|(_, last)| words::is_ending(last))
        || ["GLIBC", "CXXABI", "GCC"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        || CHECKSUMS.contains(&text)
}

/// `v2`, `v2-rc1`: a version in a package's spec.
fn is_tag(text: &str) -> bool {
    text.strip_prefix('v')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn is_user_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '%' | '+' | '-')
}

fn is_host_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '-')
}

fn is_word(text: &str, member: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.chars().all(member)
}
