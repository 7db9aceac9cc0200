//! Requirements as people hand them over: bare values, `NAME=VALUE` as an image's configuration has them, a line copied out of
//! `docker inspect`.

use std::collections::BTreeMap;

/// The variable of a value that comes without one.
const BARE: &str = "NVIDIA_REQUIRE_CUDA";

/// The variables that are meant. Words without a name go on with the value before them, so that a value which the shell
/// took apart at its blanks is whole again.
///
/// # Errors
/// In one line: a variable that is given twice, or is none that asks anything of a host.
pub fn given(words: &[String]) -> Result<BTreeMap<String, String>, String> {
    let mut all: Vec<(String, String)> = Vec::new();
    for word in words {
        let word = plain(word);
        match variable(&word)? {
            Some((name, value)) => {
                if all.iter().any(|(known, _)| known == name) {
                    return Err(format!("`{name}` is given twice"));
                }
                all.push((name.to_owned(), value.to_owned()));
            }
            None => match all.last_mut() {
                Some((_, value)) => {
                    value.push(' ');
                    value.push_str(&word);
                }
                None => all.push((BARE.to_owned(), word)),
            },
        }
    }
    Ok(all.into_iter().collect())
}

/// Without what JSON puts around a text and writes for `<`, `>` and `&`.
fn plain(word: &str) -> String {
    let quoted = word.trim();
    let inner = quoted.strip_suffix(',').unwrap_or(quoted);
    let inner = inner
        .strip_prefix('"')
        .and_then(|inner| inner.strip_suffix('"'));
    match inner {
        Some(inner) => [("\\u003c", "<"), ("\\u003e", ">"), ("\\u0026", "&")]
            .iter()
            .fold(inner.to_owned(), |text, (from, to)| text.replace(from, to)),
        None => word.to_owned(),
    }
}

/// Name and value, where the word begins with a name in capitals: no property of a requirement does.
fn variable(word: &str) -> Result<Option<(&str, &str)>, String> {
    let Some((name, value)) = word.split_once('=') else {
        return Ok(None);
    };
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    if !name.contains('_') || !name.chars().all(is_name) {
        return Ok(None);
    }
    let known = name.starts_with("NVIDIA_REQUIRE_")
        || matches!(name, "NVIDIA_DISABLE_REQUIRE" | "CUDA_VERSION");
    if !known {
        return Err(format!(
            "`{name}` asks nothing of a host: NVIDIA_REQUIRE_*, CUDA_VERSION and NVIDIA_DISABLE_REQUIRE do"
        ));
    }
    Ok(Some((name, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Vec<(String, String)>, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        given(&words).map(|all| all.into_iter().collect())
    }

    fn cuda(value: &str) -> Vec<(String, String)> {
        vec![(BARE.to_owned(), value.to_owned())]
    }

    #[test]
    fn values_with_and_without_their_name() {
        const VALUE: &str = "cuda>=12.8 brand=tesla,driver>=535,driver<536";
        for words in [
            vec![VALUE],
            vec!["cuda>=12.8", "brand=tesla,driver>=535,driver<536"],
            vec!["NVIDIA_REQUIRE_CUDA=cuda>=12.8 brand=tesla,driver>=535,driver<536"],
            vec![
                "NVIDIA_REQUIRE_CUDA=cuda>=12.8",
                "brand=tesla,driver>=535,driver<536",
            ],
            vec![
                "  \"NVIDIA_REQUIRE_CUDA=cuda\\u003e=12.8 brand=tesla,driver\\u003e=535,driver\\u003c536\",",
            ],
        ] {
            assert_eq!(read(&words).unwrap(), cuda(VALUE), "{words:?}");
        }
        // A blank at the beginning is part of a value.
        assert_eq!(read(&[" cuda>=12"]).unwrap(), cuda(" cuda>=12"));
        assert_eq!(read(&["CUDA>=12"]).unwrap(), cuda("CUDA>=12"));
        assert_eq!(read(&[""]).unwrap(), cuda(""));
    }

    #[test]
    fn several_variables() {
        let all = read(&[
            "NVIDIA_REQUIRE_A=arch>=8.0",
            "CUDA_VERSION=12.4.1",
            "NVIDIA_DISABLE_REQUIRE=1",
        ])
        .unwrap();
        assert_eq!(all.len(), 3);
        assert!(
            read(&["CUDA_VERSION=1", "CUDA_VERSION=2"])
                .unwrap_err()
                .contains("twice")
        );
        assert!(read(&["NVIDIA_VISIBLE_DEVICES=all"]).is_err());
    }
}
