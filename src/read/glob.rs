//! Patterns of file names as Go's `path.Match` reads them, in which containerd's imports are written: `*`, `?`, `[a-z]`, `[^a]`
//! and `\`. A name that begins with a dot is matched like any other.

/// Whether a name (no path) fits a pattern; a pattern that is none fits nothing.
pub fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut p, mut n) = (0, 0);
    // Where to go on when what follows on the last `*` does not fit.
    let mut again: Option<(usize, usize)> = None;
    while n < name.len() || p < pattern.len() {
        if pattern.get(p) == Some(&'*') {
            again = Some((p, n + 1));
            p += 1;
            continue;
        }
        let one = name
            .get(n)
            .and_then(|c| one_fits(pattern.get(p..).unwrap_or_default(), *c));
        match (one, again) {
            (Some(used), _) => {
                p += used;
                n += 1;
            }
            (None, Some((star, from))) if from <= name.len() => {
                p = star;
                n = from;
            }
            _ => return false,
        }
    }
    true
}

/// How much of the pattern one character takes; `None`: it does not fit.
fn one_fits(pattern: &[char], c: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == c).then_some(2),
        ['[', rest @ ..] => in_class(rest, c).map(|used| used + 1),
        [plain, ..] => (*plain == c).then_some(1),
        [] => None,
    }
}

/// The length of a class up to its `]`, where the character is in it.
fn in_class(class: &[char], c: char) -> Option<usize> {
    let negated = class.first() == Some(&'^');
    let mut at = usize::from(negated);
    let mut found = false;
    let mut first = true;
    loop {
        let one = |at: usize| match class.get(at)? {
            '\\' => Some((*class.get(at + 1)?, at + 2)),
            // Go takes neither without a backslash.
            '-' | ']' => None,
            plain => Some((*plain, at + 1)),
        };
        if class.get(at) == Some(&']') && !first {
            return (found != negated).then_some(at + 1);
        }
        let (low, next) = one(at)?;
        let (high, next) = if class.get(next) == Some(&'-') {
            one(next + 1)?
        } else {
            (low, next)
        };
        found |= (low..=high).contains(&c);
        at = next;
        first = false;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::matches;

    #[test]
    fn as_go_reads_them() {
        for (pattern, name, fits) in [
            ("*.toml", "99-nvidia.toml", true),
            ("*.toml", ".hidden.toml", true),
            ("*.toml", "99-nvidia.toml.bak", false),
            ("[0-9]*.toml", "99-nvidia.toml", true),
            ("[^0-9]*.toml", "99-nvidia.toml", false),
            ("[^0-9]*", "nvidia", true),
            ("99-?????a.toml", "99-nvidia.toml", true),
            ("*nvi*a*", "99-nvidia.toml", true),
            ("*b*", "aac", false),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[ab", "a", false),
            ("[]a]", "]", false),
            ("[\\]a]", "]", true),
            ("*", "", true),
            ("", "", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern, name), fits, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn it_comes_to_an_end(pattern in "[*?\\[\\]^a\\\\-]{0,12}", name in "[a\\-]{0,12}") {
            let _ = matches(&pattern, &name);
        }
    }
}
