//! Paths: the caller's home becomes `~`, the name of a user in a path `user-1`.
//!
//! A name is replaced only where a path says that it is one: behind a folder that holds homes. A user called `cuda`
//! does not change `/usr/local/cuda`.

use std::borrow::Cow;

use super::names::{self, Kind};
use super::runs::{Splice, replace_runs, split_tail, trailing};
use super::{Redactor, words};

/// Folders of homes, wherever they stand in a path (`/export/home`, `/proc/1/root/home`): what lies in them is a user.
const HOMES: [&str; 4] = ["home", "homes", "Users", "users"];

/// Folders at the root of which the same is true, but for the common words that clusters put there.
const USER_SPACES: [&str; 2] = ["scratch", "u"];

/// Folders at the root in which only a name that is known is a user.
const SHARED_SPACES: [&str; 3] = ["media", "scratch", "work"];

/// Folders of the system: below them a distinctive name is that of a service, not of a person.
const SYSTEM: [&str; 17] = [
    "bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "nix", "opt", "proc", "run", "sbin",
    "snap", "sys", "tmp", "usr", "var",
];

/// A distinctive name of a user is replaced down to this depth, where clusters keep people's folders.
const DEEPEST_PERSON: usize = 4;

/// What lies in a folder of homes and belongs to nobody.
/// Google's nodes keep the driver's libraries in `/home/kubernetes`.
const NO_USERS: [&str; 5] = ["kubernetes", "linuxbrew", "lost+found", "Public", "Shared"];

/// The home in a form that can be compared; `None` where it is a folder that says nothing about a person.
pub(super) fn home(path: &str) -> Option<String> {
    let path = path.trim_end_matches('/');
    let mut parts = path.strip_prefix('/')?.split('/');
    let first = parts.next()?;
    let second = parts.next();
    let shared = match first {
        "" | "bin" | "boot" | "dev" | "etc" | "lib" | "lib32" | "lib64" | "nix" | "nonexistent"
        | "proc" | "sbin" | "sys" => true,
        "usr" => matches!(
            second,
            None | Some("bin" | "lib" | "lib64" | "libexec" | "local" | "sbin" | "share")
        ),
        "var" => matches!(second, None | Some("empty" | "run")) || path == "/var/lib",
        "data" | "home" | "media" | "mnt" | "opt" | "run" | "scratch" | "srv" | "tmp" | "Users"
        | "work" => second.is_none(),
        _ => false,
    };
    (!shared).then(|| path.to_owned())
}

/// The folder that holds homes two levels deep (`/home/lab` of `/home/lab/alice`).
pub(super) fn home_group(home: &str) -> Option<String> {
    let (group, _) = home.rsplit_once('/')?;
    let (above, _) = group.rsplit_once('/')?;
    above
        .split('/')
        .any(|part| HOMES.contains(&part))
        .then(|| group.to_owned())
}

impl Redactor {
    /// `/home/alice/.venv` becomes `~/.venv` where that is the caller's home.
    pub(super) fn own_home<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let Some(home) = &self.home else {
            return Cow::Borrowed(text);
        };
        let mut splice = Splice::new(text);
        for (at, _) in text.match_indices(home.as_str()) {
            let before = text.get(..at).unwrap_or_default();
            let after = text.get(at + home.len()..).unwrap_or_default();
            if begins_path(before) && ends_component(after) {
                splice.put(at, at + home.len(), "~");
            }
        }
        splice.finish()
    }

    /// `/home/bob/.venv` becomes `/home/user-1/.venv`.
    pub(super) fn user_folders<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        // Most paths lie in the system: no folder of homes and no known user is even named in them.
        let named = |list: &[&str]| list.iter().any(|folder| text.contains(folder));
        let known =
            |(user, distinctive): (&String, &bool)| *distinctive && text.contains(user.as_str());
        let may_hold = named(&HOMES)
            || named(&["/u/"])
            || named(&SHARED_SPACES)
            || self.users.iter().any(known);
        if !may_hold {
            return Cow::Borrowed(text);
        }
        replace_runs(text, is_path_char, |run| {
            let separator = if run.text.contains('/') { '/' } else { '\\' };
            let new = self.user_folders_of(run.text, separator)?;
            (new != run.text).then_some(new)
        })
    }

    fn user_folders_of(&mut self, path: &str, separator: char) -> Option<String> {
        let (root, rest) = path.split_once(separator)?;
        // `-L/scratch/bob`: an option, not a folder.
        let absolute = root.is_empty() || root.starts_with('-');
        let in_system = rest
            .split(separator)
            .find(|part| !part.is_empty())
            .is_some_and(|first| SYSTEM.contains(&first));
        let group = self
            .home_group
            .clone()
            .filter(|_| absolute && separator == '/');
        let mut out = root.to_owned();
        // The last folder that has a name, how deep it lies, and the path so far as it was written.
        let (mut parent, mut depth, mut original) = ("", 0, String::new());
        for part in rest.split(separator) {
            out.push(separator);
            if part.is_empty() {
                original.push(separator);
                continue;
            }
            let (name, tail) = split_tail(part, &['.']);
            let is_user = names::parse(name).is_none()
                && is_user_name(name)
                && (HOMES.contains(&parent)
                    || group
                        .as_deref()
                        .is_some_and(|group| !group.is_empty() && group == original)
                    || (depth == 1
                        && absolute
                        && USER_SPACES.contains(&parent)
                        && !words::is_common_name(name))
                    || self.is_user_at(name, parent, depth, absolute && !in_system));
            if is_user {
                out.push_str(&self.names.name(Kind::User, name));
                out.push_str(tail);
            } else {
                out.push_str(part);
            }
            (parent, depth) = (part, depth + 1);
            original.push(separator);
            original.push_str(part);
        }
        Some(out)
    }

    /// Whether a known name stands where only a known name is a user.
    fn is_user_at(&self, name: &str, parent: &str, depth: usize, outside_system: bool) -> bool {
        let Some(distinctive) = self.users.get(name) else {
            return false;
        };
        (depth == 1 && (USER_SPACES.contains(&parent) || SHARED_SPACES.contains(&parent)))
            // `/run/media/alice`: where a desktop mounts what alice plugs in.
            || (depth == 2 && parent == "media")
            || (*distinctive && outside_system && (1..DEEPEST_PERSON).contains(&depth))
    }
}

/// Whether a character can be part of a path in running text or in a list of paths.
fn is_path_char(c: char) -> bool {
    !c.is_whitespace()
        && !c.is_control()
        && !matches!(
            c,
            '"' | '\''
                | '`'
                | ':'
                | ','
                | ';'
                | '('
                | ')'
                | '<'
                | '>'
                | '|'
                | '['
                | ']'
                | '{'
                | '}'
                | '='
                | '&'
                | '*'
        )
}

/// Whether a path may begin behind this text: after a delimiter, or glued to an option (`-L/home/alice`).
fn begins_path(before: &str) -> bool {
    let word = trailing(before, |c| is_path_char(c) && c != '/');
    let glued = before
        .strip_suffix(word)
        .is_some_and(|rest| rest.ends_with('/'));
    !glued && (word.is_empty() || (word.starts_with('-') && !word.contains('~')))
}

/// Whether a path's component ends before this text.
fn ends_component(after: &str) -> bool {
    let after = after.trim_start_matches('.');
    let dots_only = |text: &str| !text.starts_with(is_path_char);
    after.starts_with('/') || dots_only(after)
}

/// Whether a folder's name can be that of a user, domain users (`alice@corp.example`) included.
fn is_user_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_alphanumeric() || c == '_')
        && !NO_USERS.contains(&name)
        && name.chars().all(|c| {
            c.is_alphanumeric()
                || matches!(
                    c,
                    '_' | '.' | '-' | '@' | '\\' | '+' | '%' | '#' | '~' | '!' | '$'
                )
        })
}
