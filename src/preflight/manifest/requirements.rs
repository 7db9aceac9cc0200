//! `requirements.txt` of pip, as pip, uv and pip-tools write it.

use super::{Manifest, Pin, of_wheel_name, platform_tags, split_local};
use crate::read::requirement::{Marker, Platform, Requirement};
use crate::requirement::{Requirement as Bounded, normalised};

pub(super) fn read(path: &str, text: &str) -> Manifest {
    let mut manifest = Manifest {
        kind: "requirements",
        ..Manifest::default()
    };
    for (number, line) in logical_lines(text) {
        let place = format!("{path}:{number}");
        if let Some((option, value)) = option(&line) {
            match option {
                _ if is_index(option) => manifest.indexes.push(value.to_owned()),
                "-r" | "--requirement" => manifest.includes.push((value.to_owned(), false)),
                "-c" | "--constraint" => manifest.includes.push((value.to_owned(), true)),
                _ => {}
            }
            continue;
        }
        // Options of the requirement stand behind it.
        let bare = line
            .split_once(" --")
            .map_or(line.as_str(), |(bare, _)| bare)
            .trim();
        if bare.is_empty() || bare.starts_with('-') {
            continue;
        }
        match pin(bare, place) {
            Ok(Some(pin)) => manifest.pins.push(pin),
            Ok(None) => {}
            Err(place) => manifest.problems.push(format!("{place}: not understood")),
        }
    }
    manifest
}

/// Whether an option names where packages come from.
pub(super) fn is_index(option: &str) -> bool {
    [
        "-i",
        "--index-url",
        "--extra-index-url",
        "-f",
        "--find-links",
    ]
    .contains(&option)
}

/// Whether a text is one of requirements, whatever its name is.
pub(super) fn looks_like(text: &str) -> bool {
    let mut is_sure = false;
    for (_, line) in logical_lines(text) {
        if line.starts_with('-') {
            is_sure |= option(&line).is_some();
            continue;
        }
        let bare = line
            .split_once(" --")
            .map_or(line.as_str(), |(bare, _)| bare);
        match pin(bare.trim(), String::new()) {
            Ok(Some(pin)) => is_sure |= pin.version.is_some() || pin.allowed.is_some(),
            Ok(None) => {}
            Err(_) => return false,
        }
    }
    is_sure
}

/// One requirement; `None` where its marker gives it to another system.
pub(super) fn pin(text: &str, place: String) -> Result<Option<Pin>, String> {
    // A wheel by its URL or path alone; a marker stands behind a space.
    let (place_of, marker) = match text.split_once(" ;") {
        Some((head, marker)) => (head.trim(), Some(marker.trim())),
        None => (text, None),
    };
    let is_one = !place_of.contains([' ', ';']) && !place_of.contains(" @");
    if let Some((name, version)) = (is_one && is_place(place_of))
        .then(|| of_wheel_name(place_of))
        .flatten()
    {
        let given_away = marker.is_some_and(|marker| {
            Marker::parse(marker).is_some_and(|marker| marker.is_never_on_linux())
        });
        let mut pin = of_wheel(name, &version, place_of, place);
        pin.markers = marker.map(str::to_owned).into_iter().collect();
        return Ok((!given_away).then_some(pin));
    }
    let Some(requirement) = Requirement::parse(text) else {
        // What is installed from a folder or a repository is no pin.
        return if is_place(text) { Ok(None) } else { Err(place) };
    };
    // Which Linux it is, and which Python, the target says.
    if requirement.applies(&Platform::default(), &[]) == Some(false) {
        return Ok(None);
    }
    let (head, marker) = match text.split_once(';') {
        Some((head, marker)) => (head, Some(marker.trim().to_owned())),
        None => (text, None),
    };
    let markers: Vec<String> = marker.into_iter().collect();
    if let Some((_, url)) = head.split_once('@')
        && let Some((_, version)) = of_wheel_name(url.trim())
    {
        let mut pin = of_wheel(requirement.name.clone(), &version, url.trim(), place);
        pin.extras = requirement.extras;
        pin.markers = markers;
        return Ok(Some(pin));
    }
    // What comes from a repository or a folder has the version that is there.
    let unseen = head
        .split_once('@')
        .map(|(_, url)| url.trim().to_owned())
        .filter(|url| !url.is_empty());
    // `==` and `===` with what stands behind the `+`, which our versions do not keep.
    let exact = head
        .split_once("==")
        .map(|(_, rest)| rest.trim_start_matches('=').trim());
    let exact = exact.and_then(|rest| rest.split([',', ' ', ')']).next());
    let (version, local) = match exact {
        Some(text) if !text.contains('*') => split_local(text),
        _ => (None, None),
    };
    let version = version.or_else(|| Bounded::parse(text)?.bounds.exactly().cloned());
    Ok(Some(Pin {
        name: normalised(&requirement.name),
        allowed: requirement.specifiers().filter(|_| version.is_none()),
        version,
        local,
        extras: requirement.extras,
        markers,
        unseen,
        place,
        ..Pin::default()
    }))
}

/// Whether a text is a path or an address.
fn is_place(text: &str) -> bool {
    text.starts_with(['.', '/']) || text.contains("://") || platform_tags(text).is_some()
}

fn of_wheel(name: String, version: &str, url: &str, place: String) -> Pin {
    let (version, local) = split_local(version);
    Pin {
        name,
        version,
        local,
        wheels: platform_tags(url).unwrap_or_default(),
        place,
        ..Pin::default()
    }
}

/// An option at the start of a line, with its value behind a space or `=`.
pub(super) fn option(line: &str) -> Option<(&str, &str)> {
    if !line.starts_with('-') {
        return None;
    }
    // Short options take their value without a sign between, too: `-rbase.txt`.
    for short in ["-r", "-c", "-i", "-f", "-e"] {
        if let Some(value) = line.strip_prefix(short) {
            let value = value.trim_start_matches(['=', ' ', '\t']).trim();
            return (!value.is_empty()).then_some((short, value));
        }
    }
    let (option, value) = line.split_once(|c: char| c == '=' || c.is_whitespace())?;
    Some((option, value.trim_start_matches(['=', ' ', '\t']).trim()))
}

/// Lines without comments, those that end in `\` joined with the next, each with the number of its first.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, raw) in text.lines().enumerate() {
        let raw = raw.trim_end();
        let comment = if raw.trim_start().starts_with('#') {
            Some(0)
        } else {
            raw.find(" #")
        };
        let line = comment.map_or(raw, |at| raw.get(..at).unwrap_or(raw));
        let (line, more) = match line.strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, last)) => {
                last.push(' ');
                last.push_str(line.trim());
            }
            None if line.trim().is_empty() => {}
            None => lines.push((index + 1, line.trim().to_owned())),
        }
        goes_on = more;
    }
    lines
}
