//! What a report may not hold, and the names that stand for it: `GPU-1`, `host-1`, `user-1`, `~`.
//!
//! [`facts`] is the only writer of a redacted snapshot; it walks every string of it, so a new field cannot be
//! forgotten, and the report is made from what comes out. Whole tokens and whole components of paths are replaced,
//! never a bare short word: a user called `root`, `gpu` or `cuda` does not turn `root cause` into something else.
//! It does not decide which facts are recorded (environment variables are an allow-list of the probe), and it does
//! not make strings safe to print: that is `report::escape`.

mod addresses;
mod hosts;
mod identifiers;
mod names;
mod paths;
mod people;
mod runs;
mod urls;
mod words;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

use serde::Deserialize as _;
use serde_json::{Map, Value};

use self::hosts::OwnHosts;
use self::names::{Kind, Names};
use crate::facts::Facts;

/// What is known to be private on this machine. Everything else (UUIDs, addresses, other people's homes) is known by
/// its form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets {
    /// The caller's home folder: `$HOME`.
    pub home: Option<String>,
    /// Names of users: `$USER`, `$LOGNAME`, `$SUDO_USER`, owners of the homes in `/etc/passwd`.
    pub user_names: Vec<String>,
    /// Names of this machine: the kernel's host name, with or without domain.
    pub host_names: Vec<String>,
}

/// Replaces secrets in text. One redactor serves one snapshot: the same secret gets the same name throughout.
#[derive(Debug, Default)]
pub struct Redactor {
    names: Names,
    home: Option<String>,
    home_group: Option<String>,
    /// Known users, and whether the name is distinctive: no common word and no short one.
    users: BTreeMap<String, bool>,
    hosts: OwnHosts,
    /// All names of this machine in lower case, also those that are common words.
    host_names: BTreeSet<String>,
    /// UUIDs of GPUs and MIG instances, without dashes and in lower case.
    uuids: BTreeSet<String>,
    place: Place,
    /// What became of texts before, where all were surveyed first: hundreds of findings share their sources and fixes.
    before: Option<HashMap<(Place, String), String>>,
}

/// What the key of a snapshot says about the string behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Place {
    /// Nothing.
    #[default]
    Anywhere,
    /// It is a version: four numbers are no address.
    Version,
    /// It is an address: four numbers are one.
    Address,
    /// It is a host.
    Host,
    /// It is a user.
    User,
    /// It is a group: one named after a user tells the user.
    Group,
    /// It is a serial number.
    Serial,
}

/// One step of the redaction.
type Step = for<'a> fn(&mut Redactor, &'a str) -> Cow<'a, str>;

/// The steps in the order that they need: what holds other secrets (URLs, builders) before those.
const STEPS: [Step; 12] = [
    Redactor::urls,
    |_, text| people::builders(text),
    Redactor::serials,
    Redactor::identifiers,
    Redactor::hardware_addresses,
    Redactor::ipv6,
    Redactor::ipv4,
    Redactor::own_home,
    Redactor::user_folders,
    Redactor::people,
    Redactor::logging_hosts,
    Redactor::own_hosts,
];

/// Text as it occurs is done after one round; a second one sees that.
const MOST_ROUNDS: usize = 8;

impl Redactor {
    /// A redactor that has given no names yet.
    pub fn new(secrets: Secrets) -> Self {
        let users = secrets
            .user_names
            .into_iter()
            .filter(|name| !name.is_empty() && names::parse(name).is_none())
            .map(|name| {
                let distinctive = name.chars().count() >= 3 && !words::is_common_name(&name);
                (name, distinctive)
            })
            .collect();
        let home = secrets.home.as_deref().and_then(paths::home);
        let lower = |name: &str| name.trim().trim_end_matches('.').to_ascii_lowercase();
        let mut host_names = BTreeSet::new();
        for name in secrets
            .host_names
            .iter()
            .map(|name| lower(name))
            .filter(|name| !name.is_empty())
        {
            if let Some((short, _)) = name.split_once('.') {
                host_names.insert(short.to_owned());
            }
            host_names.insert(name);
        }
        Self {
            home_group: home.as_deref().and_then(paths::home_group),
            home,
            users,
            hosts: OwnHosts::new(&secrets.host_names),
            host_names,
            ..Self::default()
        }
    }

    /// The text with every secret replaced. Takes time in proportion to its length; redacting twice changes nothing
    /// more.
    pub fn text<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        self.survey(text);
        self.replaced(text)
    }

    /// Learns what must be known before the first string is changed: names that stand there already, and UUIDs.
    fn survey(&mut self, text: &str) {
        self.names.reserve(text);
        self.survey_uuids(text);
    }

    fn replaced<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let mut current = Cow::Borrowed(text);
        // A name that took the place of something can complete what an earlier step looks for, so all steps are
        // gone through until none changes anything: then a second redaction changes nothing either.
        for _ in 0..MOST_ROUNDS {
            let mut changed = false;
            for step in STEPS {
                if let Cow::Owned(next) = step(self, &current) {
                    current = Cow::Owned(next);
                    changed = true;
                }
            }
            if !changed {
                break;
            }
        }
        current
    }

    fn survey_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.survey(text),
            Value::Array(items) => items.iter().for_each(|item| self.survey_value(item)),
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.survey(key);
                    self.survey_value(value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn walk(&mut self, value: Value, place: Place) -> Value {
        match value {
            Value::String(text) => {
                let known = self.before.as_ref();
                let key = (place, text);
                if let Some(known) = known.and_then(|known| known.get(&key)) {
                    return Value::String(known.clone());
                }
                let new = self.at(&key.1, place);
                if let Some(before) = &mut self.before {
                    before.insert(key, new.clone());
                }
                Value::String(new)
            }
            Value::Array(items) => Value::Array(
                items
                    .into_iter()
                    .map(|item| self.walk(item, place))
                    .collect(),
            ),
            Value::Object(fields) => {
                let mut new = Map::new();
                for (key, value) in fields {
                    let inner = place_of(&key, place);
                    let key = if is_field(&key) {
                        key
                    } else {
                        self.at(&key, Place::Anywhere)
                    };
                    let value = self.walk(value, inner);
                    new.insert(key, value);
                }
                Value::Object(new)
            }
            other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => other,
        }
    }

    /// A string whose key says what it is.
    fn at(&mut self, text: &str, place: Place) -> String {
        let whole = text.trim();
        let is_name = |text: &str| {
            !text.is_empty()
                && names::parse(text).is_none()
                && text
                    .chars()
                    .all(|c| c.is_alphanumeric() || matches!(c, '-' | '.' | '_'))
        };
        let is_host = |text: &str| {
            is_name(text)
                && text.parse::<Ipv4Addr>().is_err()
                && text.contains(char::is_alphabetic)
                && !text.eq_ignore_ascii_case("localhost")
        };
        let (host, port) = match whole.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (host, Some(port)),
            _ => (whole, None),
        };
        match place {
            Place::Serial
                if names::parse(whole).is_none()
                    && whole.contains(|c: char| c.is_ascii_digit() && c != '0') =>
            {
                self.names.name(Kind::Serial, whole)
            }
            Place::Host | Place::Address if is_host(host) => {
                let canonical = self.canonical_host(host);
                let name = self.names.name(Kind::Host, &canonical);
                port.map_or(name.clone(), |port| format!("{name}:{port}"))
            }
            Place::User if is_name(whole) => self.names.name(Kind::User, whole),
            // The groups of device nodes and of distributions are no persons, even where a user is called like one.
            Place::Group
                if self.users.contains_key(whole)
                    && (whole.len() < 3 || !words::is_common(whole)) =>
            {
                self.names.name(Kind::User, whole)
            }
            _ => {
                self.place = place;
                let new = self.replaced(text).into_owned();
                self.place = Place::Anywhere;
                new
            }
        }
    }
}

/// What a key says about the strings behind it. The parts of a reading say what the reading's own key says; where it
/// was read says nothing.
fn place_of(key: &str, outer: Place) -> Place {
    match key {
        "present" | "value" => return outer,
        "absent" | "unreadable" | "source" | "reason" => return Place::Anywhere,
        "group_names" => return Place::Group,
        _ => {}
    }
    if !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit()) {
        return outer;
    }
    let lower = key.to_ascii_lowercase();
    if lower.ends_with("serial") || lower.ends_with("serial_number") {
        return Place::Serial;
    }
    // Keys of the environment; fields of a snapshot are in lower case.
    let last = key.rsplit('_').next().unwrap_or(key);
    match (last, lower.as_str()) {
        ("HOST" | "HOSTNAME" | "NODENAME", _) | (_, "hostname" | "host_name") => Place::Host,
        ("ADDR" | "ADDRESS" | "IP" | "ENDPOINT", _) => Place::Address,
        ("USER" | "USERNAME" | "LOGNAME", _) => Place::User,
        _ if lower.contains("version") => Place::Version,
        _ => Place::Anywhere,
    }
}

/// Whether a key is (or could be) the name of a field or of a variant: those have neither digits nor capitals nor
/// dots. A key of a map that carries a secret does.
fn is_field(key: &str) -> bool {
    key.bytes()
        .all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'-'))
}

/// The snapshot without secrets. The original is taken by value: it must not outlive this call.
///
/// A section that a replacement has made unusable (a host called like a value of this very schema) is left out: it
/// reads as not recorded, and `problems` says so.
#[expect(
    clippy::needless_pass_by_value,
    reason = "whoever redacts gives the original away"
)]
pub fn facts(secrets: Secrets, facts: Facts) -> Facts {
    let mut redactor = Redactor::new(secrets);
    let Ok(value) = serde_json::to_value(&facts) else {
        return left_out(&["all"]);
    };
    redactor.survey_value(&value);
    let value = redactor.walk(value, Place::Anywhere);
    if let Ok(facts) = Facts::deserialize(&value) {
        return facts;
    }
    let Value::Object(sections) = value else {
        return left_out(&["all"]);
    };
    let (usable, unusable): (Map<_, _>, Map<_, _>) =
        sections.into_iter().partition(|(key, section)| {
            let alone = Map::from_iter([(key.clone(), section.clone())]);
            serde_json::from_value::<Facts>(Value::Object(alone)).is_ok()
        });
    let names: Vec<&str> = unusable.keys().map(String::as_str).collect();
    let mut rest: Facts = serde_json::from_value(Value::Object(usable)).unwrap_or_default();
    rest.problems.extend(left_out(&names).problems);
    rest
}

/// Any data without secrets, such as what `inspect` found.
pub fn value(secrets: Secrets, value: Value) -> Value {
    let mut pieces = Pieces::new(secrets);
    pieces.survey(&value);
    pieces.redacted(value)
}

/// Data without secrets, piece by piece: as a [`Value`] it takes many times the memory that it takes otherwise. All of them
/// are surveyed before the first one is redacted.
pub struct Pieces(Redactor);

impl Pieces {
    /// Before anything was surveyed.
    pub fn new(secrets: Secrets) -> Self {
        Self(Redactor::new(secrets))
    }

    /// Learns from a piece what names are secret in all of them.
    pub fn survey(&mut self, piece: &Value) {
        self.0.survey_value(piece);
    }

    /// A piece without secrets.
    pub fn redacted(&mut self, piece: Value) -> Value {
        self.0.before.get_or_insert_default();
        self.0.walk(piece, Place::Anywhere)
    }
}

/// An empty snapshot that says which sections are missing.
fn left_out(sections: &[&str]) -> Facts {
    let problems = sections
        .iter()
        .map(|section| format!("redaction: {section}: could not be kept, left out"));
    Facts {
        problems: problems.collect(),
        ..Facts::default()
    }
}

#[cfg(test)]
mod tests;
