//! Cuts one table out of a file of tables and parses it alone. Knows nothing of what the rows mean.
//!
//! A file is a head (`schema`, `as_of`) and then tables of `[[name]]` rows; the rows of a table stand together. Parsing is
//! what costs, finding does not, so a look-up pays for its own table only.

use std::collections::BTreeMap;

use memchr::memmem;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The keys before the first table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Head {
    /// The form of the file.
    pub(super) schema: u32,
    /// `YYYY-MM-DD`.
    pub(super) as_of: String,
    /// Where a generated table comes from.
    pub(super) edition: Option<String>,
}

/// Reads the head.
pub(super) fn head(file: &str, text: &str) -> Result<Head, String> {
    let end = memmem::find(text.as_bytes(), b"\n[[").map_or(text.len(), |at| at + 1);
    let part = text.get(..end).unwrap_or_default();
    toml::from_str(part).map_err(|error| describe(file, part, 0, "head", &error))
}

/// The value of `as_of`, without parsing; empty where there is none.
pub(super) fn as_of(text: &str) -> &str {
    let line = text.lines().find_map(|line| line.strip_prefix("as_of = "));
    line.map_or("", |value| value.trim_matches('"'))
}

/// Refuses tables that nobody reads, and tables whose rows do not stand together.
pub(super) fn check_layout(file: &str, text: &str, known: &[&str]) -> Result<(), String> {
    let (mut done, mut current) = (Vec::new(), "");
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| line.starts_with('['))
    {
        let line_number = index + 1;
        let name = line
            .strip_prefix("[[")
            .and_then(|rest| rest.split_once("]]"))
            .map(|(name, _)| name);
        let Some(name) = name.filter(|name| known.contains(name)) else {
            return Err(format!(
                "{file}, line {line_number}: unknown table `{}`",
                line.escape_debug()
            ));
        };
        if name == current {
            continue;
        }
        if done.contains(&name) {
            return Err(format!(
                "{file}, line {line_number}: the rows of [[{name}]] do not stand together"
            ));
        }
        done.push(name);
        current = name;
    }
    Ok(())
}

/// The text of one table and where it begins; `None` where the file has no such table.
pub(super) fn section<'a>(text: &'a str, name: &str) -> Option<(usize, &'a str)> {
    let header = format!("\n[[{name}]]");
    let start = memmem::find(text.as_bytes(), header.as_bytes())? + 1;
    let mut end = start;
    loop {
        let rest = text.get(end..)?;
        let Some(next) = memmem::find(rest.as_bytes(), b"\n[[") else {
            break end = text.len();
        };
        let another = !rest.get(next..)?.starts_with(&header);
        end += next + 1;
        if another {
            break;
        }
    }
    Some((start, text.get(start..end)?))
}

/// Parses the rows of one table.
pub(super) fn parse<T: DeserializeOwned>(
    file: &str,
    text: &str,
    name: &str,
) -> Result<Vec<T>, String> {
    let (start, part) =
        section(text, name).ok_or_else(|| format!("{file}: there is no table [[{name}]]"))?;
    let lines_before = text
        .get(..start)
        .map_or(0, |before| before.matches('\n').count());
    rows(part, name)
        .map_err(|error| describe(file, part, lines_before, &format!("[[{name}]]"), &error))
}

/// Parses text that holds rows of one table only.
pub(super) fn rows<T: DeserializeOwned>(part: &str, name: &str) -> Result<Vec<T>, toml::de::Error> {
    let mut tables: BTreeMap<String, Vec<T>> = toml::from_str(part)?;
    Ok(tables.remove(name).unwrap_or_default())
}

/// One line: file, line, table, and what the parser says.
fn describe(
    file: &str,
    part: &str,
    lines_before: usize,
    table: &str,
    error: &toml::de::Error,
) -> String {
    let at = error.span().and_then(|span| part.get(..span.start));
    let line = lines_before + at.map_or(0, |before| before.matches('\n').count()) + 1;
    let message = error.message().replace('\n', "; ");
    format!("{file}, line {line}, {table}: {message}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "schema = 1\nas_of = \"2026-12-01\"\n\n[[a]]\nx = 1\n\n# about b\n[[b]]\nx = 2\n[[b]]\nx = 3\n[[bb]]\nx = 4\n";

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Row {
        x: u32,
    }

    fn values(name: &str) -> Vec<u32> {
        parse::<Row>("f", FILE, name)
            .unwrap()
            .iter()
            .map(|row| row.x)
            .collect()
    }

    #[test]
    fn a_table_is_cut_out_whole_and_alone() {
        assert_eq!(
            (values("a"), values("b"), values("bb")),
            (vec![1], vec![2, 3], vec![4])
        );
        assert!(parse::<Row>("f", FILE, "c").is_err());
        assert_eq!(
            (head("f", FILE).unwrap().schema, as_of(FILE)),
            (1, "2026-12-01")
        );
    }

    #[test]
    fn a_fault_is_told_with_its_line() {
        let broken = FILE.replace("x = 3", "y = 3");
        let error = parse::<Row>("f", &broken, "b").unwrap_err();
        assert!(
            error.starts_with("f, line 11, [[b]]: unknown field `y`"),
            "{error}"
        );
        assert!(check_layout("f", FILE, &["a", "b", "bb"]).is_ok());
        assert!(
            check_layout("f", FILE, &["a", "b"])
                .unwrap_err()
                .contains("line 12")
        );
        let apart = format!("{FILE}[[a]]\nx = 5\n");
        assert!(
            check_layout("f", &apart, &["a", "b", "bb"])
                .unwrap_err()
                .contains("line 14")
        );
    }
}
