//! Hardware and IP addresses. The hard part is what is none: `9.10.2.21` is a cuDNN, `0000:01:00.0` a PCI address,
//! `12:34:56` a time. Four small numbers with dots are taken for an address only where the words around say so.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::names::Kind;
use super::runs::{Splice, is_hex, leading, replace_runs, runs, trailing};
use super::{Place, Redactor};

/// Words before an address.
const BEFORE: [&str; 17] = [
    "addr",
    "address",
    "bind",
    "client",
    "dns",
    "endpoint",
    "gateway",
    "host",
    "inet",
    "ip",
    "ipv4",
    "listen",
    "listening",
    "nameserver",
    "peer",
    "remote",
    "server",
];

/// Words before `to`, `from` or `on` and an address.
const TRAFFIC: [&str; 11] = [
    "connect",
    "connected",
    "connecting",
    "connection",
    "connections",
    "packet",
    "request",
    "route",
    "ssh",
    "listen",
    "listening",
];

/// From this first number on, four numbers up to 255 are no version of anything in the stack.
const FIRST_THAT_IS_NO_VERSION: u8 = 30;

impl Redactor {
    /// Hardware addresses: six or eight pairs of hexadecimal digits.
    pub(super) fn hardware_addresses<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let colons = self.hardware_addresses_with(text, ':');
        match self.hardware_addresses_with(&colons, '-') {
            Cow::Borrowed(_) => colons,
            Cow::Owned(new) => Cow::Owned(new),
        }
    }

    fn hardware_addresses_with<'a>(&mut self, text: &'a str, separator: char) -> Cow<'a, str> {
        let mut splice = Splice::new(text);
        if text.matches(separator).nth(4).is_none() {
            return splice.finish();
        }
        for (start, run) in runs(text, |c| c.is_ascii_alphanumeric() || c == separator) {
            for (at, address) in hardware_addresses(run.text, separator) {
                let digits = address.replace(separator, "").to_ascii_lowercase();
                let name = self.names.name(Kind::Mac, &digits);
                splice.put(start + at, start + at + address.len(), &name);
            }
        }
        splice.finish()
    }

    /// IPv6 addresses that are in use anywhere: global, local, link and multicast.
    pub(super) fn ipv6<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        if !text.contains(':') {
            return Cow::Borrowed(text);
        }
        replace_runs(
            text,
            |c| c.is_ascii_alphanumeric() || matches!(c, ':' | '.'),
            |run| {
                let mut kept = run.text.trim_end_matches('.');
                if kept.ends_with(':') && !kept.ends_with("::") {
                    kept = kept.trim_end_matches(':');
                }
                // `addr:fe80::1`: the label in front is none of it.
                let mut from = 0;
                for group in kept.split(':') {
                    if group.is_empty() || (group.len() <= 4 && is_hex(group)) {
                        break;
                    }
                    from += group.len() + 1;
                }
                let candidate = kept.get(from..)?;
                let address: Ipv6Addr = candidate.parse().ok()?;
                let first = address.segments().first().copied().unwrap_or(0);
                let in_use =
                    matches!(first, 0x2000..=0x3fff | 0xfc00..=0xfdff | 0xfe80..=0xfeff | 0xff00..);
                let name = in_use.then(|| self.names.name(Kind::Ip, &address.to_string()))?;
                let tail = run.text.get(kept.len()..).unwrap_or_default();
                Some(format!(
                    "{}{name}{tail}",
                    kept.get(..from).unwrap_or_default()
                ))
            },
        )
    }

    /// IPv4 addresses.
    pub(super) fn ipv4<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        if !text.contains('.') {
            return Cow::Borrowed(text);
        }
        let place = self.place;
        replace_runs(
            text,
            |c| c.is_alphanumeric() || matches!(c, '.' | '_'),
            |run| {
                let kept = run.text.trim_end_matches('.');
                let address: Ipv4Addr = kept.parse().ok()?;
                if says_nothing(address) || place == Place::Version {
                    return None;
                }
                let [first, second, ..] = address.octets();
                // Versions of 10.x are TensorRT's and cuRAND's; their second number is small.
                let no_version = first >= FIRST_THAT_IS_NO_VERSION || (first == 10 && second >= 32);
                let told = no_version
                    || matches!(place, Place::Address | Place::Host)
                    || told_by_words(run.before, run.after);
                let name = told.then(|| self.names.name(Kind::Ip, kept))?;
                Some(format!(
                    "{name}{}",
                    run.text.get(kept.len()..).unwrap_or_default()
                ))
            },
        )
    }
}

/// Addresses that every machine has: loopback, any, netmasks.
pub(super) fn says_nothing(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    matches!(first, 0 | 127 | 255)
}

/// The hardware addresses in a run, and where they begin.
fn hardware_addresses(run: &str, separator: char) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut at = 0;
    let mut first = None;
    let mut pairs: usize = 0;
    // Hexadecimal digits beside the pairs make them part of something longer.
    let mut clear = true;
    // The group behind the last one is no pair and so ends what is being counted.
    for group in run.split(separator).chain(std::iter::once("end")) {
        if group.len() == 2 && is_hex(group) {
            first.get_or_insert(at);
            pairs += 1;
        } else {
            if let Some(start) = first
                && matches!(pairs, 6 | 8)
                && clear
                && !is_hex(group)
                && let Some(address) = run.get(start..start + 3 * pairs - 1)
                // `01-02-03-04-05-06` is a date and a time.
                && (separator == ':' || address.bytes().any(|b| b.is_ascii_alphabetic()))
            {
                found.push((start, address));
            }
            (first, pairs) = (None, 0);
            clear = !is_hex(group);
        }
        at += group.len() + 1;
    }
    found
}

/// Whether the words around four numbers say that they are an address: a port, a network's length, or a word before.
fn told_by_words(before: &str, after: &str) -> bool {
    if let Some(rest) = after.strip_prefix(':') {
        let port = leading(rest, |c| c.is_ascii_digit());
        let beyond = rest.get(port.len()..).unwrap_or_default();
        if (2..=5).contains(&port.len()) && !beyond.starts_with(['.', ':', '-']) {
            return true;
        }
    }
    if let Some(rest) = after.strip_prefix('/')
        && !before.ends_with('/')
    {
        let length = leading(rest, |c| c.is_ascii_digit());
        let beyond = rest.get(length.len()..).unwrap_or_default();
        if length.parse::<u8>().is_ok_and(|n| (8..=32).contains(&n))
            && !beyond
                .starts_with(|c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_'))
        {
            return true;
        }
    }
    let (before, word) = last_word(before);
    let is_in = |list: &[&str], word: &str| list.iter().any(|w| w.eq_ignore_ascii_case(word));
    is_in(&BEFORE, word)
        || (is_in(&["to", "from", "on"], word) && is_in(&TRAFFIC, last_word(before).1))
}

/// The last word of a text, over at most two characters that bind it to what follows, and what comes before it.
fn last_word(text: &str) -> (&str, &str) {
    let mut kept = text;
    for _ in 0..2 {
        kept = kept.strip_suffix([' ', ':', '=', '(', '[']).unwrap_or(kept);
    }
    let word = trailing(kept, |c| c.is_ascii_alphanumeric());
    (kept.strip_suffix(word).unwrap_or(kept), word)
}
