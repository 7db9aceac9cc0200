//! Host names: this machine's own wherever it stands as a token, any host where a log line has one; and serial
//! numbers, where a word says that it is one.

use std::borrow::Cow;

use super::names::{self, Kind};
use super::runs::{Splice, leading, replace_runs, runs};
use super::{Redactor, words};

/// How a host's name is to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// The name is distinctive: in any case.
    Any,
    /// The name is made of common words (`dgx-1` beside the product DGX-1): only as it was given.
    Exact,
}

/// A name of this machine.
#[derive(Clone, Debug)]
pub(super) struct OwnHost {
    name: String,
    spelling: Spelling,
}

/// The names by which this machine is called, and its domains.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnHosts {
    hosts: Vec<OwnHost>,
    /// With at least two labels.
    domains: Vec<String>,
}

/// Last labels of domains that exist on one site only.
const LOCAL_DOMAINS: [&str; 8] = [
    "cluster",
    "corp",
    "home",
    "internal",
    "intranet",
    "lan",
    "local",
    "localdomain",
];

/// Fewer digits behind the word `serial` are a port or a speed.
const FEWEST_SERIAL_DIGITS: usize = 6;

impl OwnHosts {
    /// From the kernel's host name and whatever else names this machine.
    pub(super) fn new(given: &[String]) -> Self {
        let mut hosts = Self::default();
        for name in given {
            let name = name.trim().trim_end_matches('.');
            hosts.add(name);
            if let Some((short, domain)) = name.split_once('.')
                && !words::is_ending(domain)
                && name.contains(char::is_alphabetic)
            {
                hosts.add(short);
                if domain.contains('.') && domain.contains(char::is_alphabetic) {
                    hosts.domains.push(domain.to_owned());
                }
            }
        }
        hosts
    }

    fn add(&mut self, name: &str) {
        let shaped = name.chars().all(is_host_char) && name.contains(char::is_alphabetic);
        let local = name.to_ascii_lowercase().starts_with("localhost");
        if !shaped
            || local
            || name.chars().count() < 3
            || names::parse(name).is_some()
            || words::is_path_name(name)
        {
            return;
        }
        let marked = name.contains(|c: char| c.is_ascii_digit() || matches!(c, '-' | '.'));
        if !marked && words::is_common(name) {
            return;
        }
        let spelling = if marked && !words::is_common_name(name) {
            Spelling::Any
        } else {
            Spelling::Exact
        };
        self.hosts.push(OwnHost {
            name: name.to_owned(),
            spelling,
        });
    }

    /// Whether a token is one of these names.
    fn holds(&self, token: &str) -> bool {
        self.hosts.iter().any(|own| match own.spelling {
            Spelling::Any => own.name.eq_ignore_ascii_case(token),
            Spelling::Exact => own.name == token,
        })
    }

    /// How much of a token (from its beginning) is a host of ours.
    fn length_in(&self, token: &str) -> Option<usize> {
        if self.holds(token)
            || self
                .domains
                .iter()
                .any(|domain| is_in_domain(token, domain))
        {
            return Some(token.len());
        }
        let (short, rest) = token.split_once('.')?;
        let (_, last) = token.rsplit_once('.')?;
        if !self.holds(short) {
            return None;
        }
        let domain = !words::is_ending(last)
            && last.chars().all(char::is_alphabetic)
            && (rest.contains('.') || LOCAL_DOMAINS.contains(&last.to_ascii_lowercase().as_str()));
        Some(if domain { token.len() } else { short.len() })
    }
}

/// Whether a name is a domain or lies in it.
fn is_in_domain(host: &str, domain: &str) -> bool {
    let start = host.len().checked_sub(domain.len());
    start
        .and_then(|start| host.split_at_checked(start))
        .is_some_and(|(rest, end)| {
            end.eq_ignore_ascii_case(domain) && (rest.is_empty() || rest.ends_with('.'))
        })
}

fn is_host_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '-')
}

impl Redactor {
    /// Whether a host is this machine, whatever its name.
    pub(super) fn is_own_host(&self, host: &str) -> bool {
        self.host_names.contains(&host.to_ascii_lowercase())
    }

    /// The form under which a host gets its name: the short one for this machine, else the whole in lower case.
    pub(super) fn canonical_host(&self, host: &str) -> String {
        let lower = host.to_ascii_lowercase();
        match lower.split_once('.') {
            Some((short, _)) if self.host_names.contains(short) => short.to_owned(),
            _ => lower,
        }
    }

    /// This machine's name where it stands as a token or as a whole component of a path.
    pub(super) fn own_hosts<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        if self.hosts.hosts.is_empty() {
            return Cow::Borrowed(text);
        }
        replace_runs(
            text,
            |c| is_host_char(c) || c == '_',
            |run| {
                let start = run.text.len() - run.text.trim_start_matches(['.', '-']).len();
                let token = run.text.get(start..)?.trim_end_matches(['.', '-']);
                if names::parse(token).is_some() {
                    return None;
                }
                let length = self.hosts.length_in(token)?;
                let canonical = self.canonical_host(token.get(..length)?);
                let name = self.names.name(Kind::Host, &canonical);
                Some(format!(
                    "{}{name}{}",
                    run.text.get(..start)?,
                    run.text.get(start + length..)?
                ))
            },
        )
    }

    /// `Nov 20 10:00:01 gpu kernel: NVRM: ...`: the word between time and program is a host, whatever it is called.
    pub(super) fn logging_hosts<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        if !text.contains("kernel:") && !text.contains("]:") {
            return Cow::Borrowed(text);
        }
        let mut splice = Splice::new(text);
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if let Some((start, host)) = logging_host(line)
                && names::parse(host).is_none()
                && !host.eq_ignore_ascii_case("localhost")
            {
                let canonical = self.canonical_host(host);
                let name = self.names.name(Kind::Host, &canonical);
                splice.put(at + start, at + start + host.len(), &name);
            }
            at += line.len();
        }
        splice.finish()
    }

    /// `Serial Number : 1322621000000` becomes `Serial Number : serial-1`.
    pub(super) fn serials<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        if !text.contains(|c: char| c.is_ascii_digit()) {
            return Cow::Borrowed(text);
        }
        let mut splice = Splice::new(text);
        let lower = text.to_ascii_lowercase();
        for (at, word) in lower.match_indices("serial") {
            let mut from = at + word.len();
            let rest = lower.get(from..).unwrap_or_default();
            from += [" number", "_number", "-number", "number", " no.", " no"]
                .iter()
                .find(|more| rest.starts_with(**more))
                .map_or(0, |more| more.len());
            let rest = text.get(from..).unwrap_or_default();
            let gap = leading(rest, |c| matches!(c, ' ' | '\t' | ':' | '=' | '#' | '"')).len();
            let number = leading(rest.get(gap..).unwrap_or_default(), |c| {
                c.is_ascii_alphanumeric() || c == '-'
            });
            let digits = number.bytes().filter(u8::is_ascii_digit).count();
            if gap > 0 && digits >= FEWEST_SERIAL_DIGITS && names::parse(number).is_none() {
                let name = self.names.name(Kind::Serial, number);
                splice.put(from + gap, from + gap + number.len(), &name);
            }
        }
        splice.finish()
    }
}

/// The host in a line of a system log, and where it begins.
fn logging_host(line: &str) -> Option<(usize, &str)> {
    let mut words = runs(line, |c| !c.is_whitespace()).map(|(start, run)| (start, run.text));
    let (_, first) = words.next()?;
    if is_month(first) {
        let ((_, day), (_, time)) = (words.next()?, words.next()?);
        if !day.bytes().all(|b| b.is_ascii_digit()) || !is_time(time) {
            return None;
        }
    } else {
        let (date, time) = first.split_once('T')?;
        if date.len() != "2022-10-20".len() || !is_time(time) {
            return None;
        }
    }
    let host = words.next()?;
    let (_, program) = words.next()?;
    let is_program = program == "kernel:" || program.ends_with("]:");
    (is_program && host.1.chars().all(is_host_char)).then_some(host)
}

fn is_month(word: &str) -> bool {
    [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ]
    .contains(&word)
}

/// Whether a word begins like `10:00:01`.
fn is_time(word: &str) -> bool {
    let mut parts = word.split(':');
    let two = |part: Option<&str>| {
        part.is_some_and(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_digit()))
    };
    two(parts.next())
        && two(parts.next())
        && parts
            .next()
            .is_some_and(|p| p.starts_with(|c: char| c.is_ascii_digit()))
}
