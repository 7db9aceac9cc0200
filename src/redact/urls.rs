//! URLs: user information, query and private hosts go, scheme and path stay.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use super::names::{self, Kind};
use super::runs::{Splice, leading, split_tail, trailing};
use super::{Redactor, addresses, words};

/// Schemes whose first part is a short name, not a host: `docker://ubuntu`.
const NAME_SCHEMES: [&str; 5] = ["docker", "docker-daemon", "library", "oci", "shub"];

/// Fragments that say what was fetched, not who fetched it.
const PLAIN_FRAGMENTS: [&str; 5] = ["sha256=", "sha512=", "md5=", "egg=", "subdirectory="];

/// What may stand behind a URL in a sentence.
const PUNCTUATION: [char; 6] = ['.', ',', ';', ')', ']', '!'];

impl Redactor {
    /// `https://u:p@build.example.org/x?token=t` becomes `https://host-1/x?...`.
    pub(super) fn urls<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let mut splice = Splice::new(text);
        let mut marks = text.match_indices("://").map(|(at, _)| at).peekable();
        let mut begin = 0;
        while let Some(at) = marks.next() {
            let scheme = scheme_before(text.get(begin..at).unwrap_or_default());
            let from = at + "://".len();
            begin = from;
            if scheme.is_empty() {
                continue;
            }
            // A URL that follows without a break is one of its own.
            let end = marks.peek().copied();
            let region = text
                .get(from..end.unwrap_or(text.len()))
                .unwrap_or_default();
            let mut url = leading(region, is_url_char);
            if end.is_some() && url.len() == region.len() {
                url = url.strip_suffix(scheme_before(region)).unwrap_or(url);
            }
            let new = self.url(scheme, url);
            if new != url {
                splice.put(from, from + url.len(), &new);
            }
        }
        splice.finish()
    }

    /// What stands behind `scheme://`.
    fn url(&mut self, scheme: &str, url: &str) -> String {
        let is_authority = |c| !matches!(c, '/' | '?' | '#' | '\\');
        let authority = leading(url, is_authority);
        let mut user_end = authority.rfind('@').map(|at| at + 1);
        if user_end.is_none() && has_odd_port(authority) {
            // A password with a bare slash: all up to the last `@` belongs to it.
            user_end = url.rfind('@').map(|at| at + 1);
        }
        let rest = url.get(user_end.unwrap_or(0)..).unwrap_or_default();
        let authority = leading(rest, is_authority);
        let mut out = self.authority(scheme, authority);
        let rest = rest.get(authority.len()..).unwrap_or_default();
        let (rest, fragment) = rest
            .split_once('#')
            .map_or((rest, None), |(r, f)| (r, Some(f)));
        let (path, query) = rest
            .split_once('?')
            .map_or((rest, None), |(p, q)| (p, Some(q)));
        out.push_str(path);
        if let Some(query) = query {
            out.push('?');
            out.push_str(&masked(query));
        }
        if let Some(fragment) = fragment {
            let plain = !fragment.contains('=')
                || PLAIN_FRAGMENTS
                    .iter()
                    .any(|plain| fragment.starts_with(plain));
            out.push('#');
            out.push_str(&if plain {
                Cow::Borrowed(fragment)
            } else {
                masked(fragment)
            });
        }
        out
    }

    /// `build.example.org:8080` becomes `host-1:8080`; what anybody knows, and what is no host at all, stays.
    fn authority(&mut self, scheme: &str, authority: &str) -> String {
        let (whole, tail) = split_tail(authority, &PUNCTUATION);
        let (host, port) = match whole.rsplit_once(':') {
            Some((host, port)) if is_port(port) => (host, Some(port)),
            _ => (whole, None),
        };
        let shaped = host
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_'))
            && host.chars().any(char::is_alphanumeric);
        let name_only = port.is_none() && !host.contains('.') && NAME_SCHEMES.contains(&scheme);
        let well_known = host.eq_ignore_ascii_case("localhost") || words::is_public_host(host);
        let named = if let Ok(address) = host.parse::<Ipv4Addr>() {
            if addresses::says_nothing(address) {
                return authority.to_owned();
            }
            self.names.name(Kind::Ip, host)
        } else if !shaped || name_only || well_known || names::parse(host).is_some() {
            return authority.to_owned();
        } else {
            let canonical = self.canonical_host(host);
            self.names.name(Kind::Host, &canonical)
        };
        match port {
            Some(port) => format!("{named}:{port}{tail}"),
            None => named + tail,
        }
    }
}

/// `...` for what must not be shown, with the punctuation behind it.
fn masked(part: &str) -> Cow<'_, str> {
    let (secret, tail) = split_tail(part, &PUNCTUATION);
    if secret.is_empty() {
        Cow::Borrowed(part)
    } else {
        Cow::Owned(format!("...{tail}"))
    }
}

fn is_url_char(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '\'' | '<' | '>' | '`')
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|b| b.is_ascii_digit())
}

/// Whether what follows the last colon is no port, as in `user:pass` before a bare slash.
fn has_odd_port(authority: &str) -> bool {
    !authority.starts_with('[')
        && authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.is_empty() && !is_port(port))
}

/// The scheme at the end of what stands before `://`; empty where there is none.
fn scheme_before(text: &str) -> &str {
    trailing(text, |c| {
        c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-')
    })
    .trim_start_matches(|c: char| !c.is_ascii_alphabetic())
}
