//! What a Python distribution requires, as METADATA has it (`Requires-Dist`, PEP 508): name, extras, version specifiers,
//! and the marker that says where it applies.
//!
//! Versions and specifiers are compared by PEP 440 (`pep440_rs`). Markers are evaluated here: the crate for them brings
//! thirty others, for URLs and international host names. Of a marker variable that is not known the answer is that it
//! cannot be told, and extras count as not asked for, since nobody records which were.

use std::str::FromStr as _;

use pep440_rs::{Operator, Version, VersionSpecifiers};

use super::pydist;

/// A requirement.
#[derive(Clone, Debug)]
pub struct Requirement {
    /// The normalised name of what is required.
    pub name: String,
    /// The extras that are asked for with it, normalised.
    pub extras: Vec<String>,
    /// The versions that will do; `None` where any will, or where it is a URL.
    specifiers: Option<VersionSpecifiers>,
    /// Where it applies; `None`: everywhere.
    marker: Option<Term>,
}

/// Where an environment lies, as far as markers ask. What is `None` is not known.
#[derive(Clone, Debug, Default)]
pub struct Platform {
    /// `x86_64`.
    pub machine: Option<String>,
    /// `3.12`, or with its patch release `3.12.4`.
    pub python: Option<String>,
    /// It is known to be `CPython`.
    pub cpython: bool,
}

/// Bounds of a version by PEP 440.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specifiers(VersionSpecifiers);

impl Specifiers {
    /// Reads them; `None` where they are none.
    pub fn parse(text: &str) -> Option<Self> {
        VersionSpecifiers::from_str(text).ok().map(Self)
    }

    /// Whether a version will do; one that is none by PEP 440 will not.
    pub fn allow(&self, version: &str) -> bool {
        Version::from_str(version).is_ok_and(|version| self.0.contains(&version))
    }

    /// Those of both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(other.0.iter()).cloned().collect())
    }
}

impl std::fmt::Display for Specifiers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.to_string().replace(' ', ""))
    }
}

/// Which extras hold where a marker asks for one.
#[derive(Clone, Copy, Debug)]
enum Extras<'a> {
    /// These, and no others.
    Are(&'a [String]),
    /// Each term that asks for one holds, or none does.
    Every(bool),
}

impl Requirement {
    /// Reads one; `None` where it does not have the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, marker) = match text.split_once(';') {
            Some((head, marker)) => (head, Some(Term::parse(marker)?)),
            None => (text, None),
        };
        let head = head.trim();
        let end = head
            .find(|c: char| !pydist::is_name(c))
            .unwrap_or(head.len());
        let (name, rest) = head.split_at_checked(end)?;
        let rest = rest.trim();
        let (extras, rest) = match rest.strip_prefix('[') {
            Some(extras) => extras.split_once(']')?,
            None => ("", rest),
        };
        let rest = rest.trim();
        let bare = rest
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'))
            .unwrap_or(rest);
        let specifiers = match bare {
            "" => None,
            url if url.starts_with('@') => None,
            bare => Some(VersionSpecifiers::from_str(bare).ok()?),
        };
        let name = pydist::normalised(name);
        (!name.is_empty()).then_some(Self {
            name,
            extras: extras
                .split(',')
                .map(|extra| pydist::normalised(extra.trim()))
                .filter(|extra| !extra.is_empty())
                .collect(),
            specifiers,
            marker,
        })
    }

    /// Whether it applies on a platform, to one that was installed with these extras; `None` where that cannot be told.
    pub fn applies(&self, platform: &Platform, extras: &[String]) -> Option<bool> {
        match &self.marker {
            Some(marker) => marker.holds(platform, Extras::Are(extras)),
            None => Some(true),
        }
    }

    /// How an installed version stands to what is required; `None` where it is no version by PEP 440.
    pub fn judge(&self, installed: &str) -> Option<Fit> {
        let installed = Version::from_str(installed).ok()?;
        let Some(specifiers) = &self.specifiers else {
            return Some(Fit::Good);
        };
        let broken: Vec<_> = specifiers
            .iter()
            .filter(|specifier| !specifier.contains(&installed))
            .collect();
        if broken.is_empty() {
            return Some(Fit::Good);
        }
        // "Older" where one of the broken ones asks for something that comes later.
        let older = broken.iter().any(|specifier| {
            *specifier.version() > installed
                && !matches!(
                    specifier.operator(),
                    Operator::LessThan | Operator::LessThanEqual
                )
        });
        Some(if older { Fit::Older } else { Fit::Newer })
    }

    /// The versions that will do; `None` where any will, or where it is a URL.
    pub fn specifiers(&self) -> Option<Specifiers> {
        self.specifiers.clone().map(Specifiers)
    }

    /// The versions that will do, as written: `==2.26.2`.
    pub fn versions(&self) -> String {
        self.specifiers
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default()
    }
}

/// How an installed version stands to what is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It will do.
    Good,
    /// It is older than required.
    Older,
    /// It is newer than allowed, or excluded.
    Newer,
}

/// A marker, as a tree.
#[derive(Clone, Debug)]
pub struct Marker(Term);

impl Marker {
    /// Reads one; `None` where it is none.
    pub fn parse(text: &str) -> Option<Self> {
        Term::parse(text).map(Self)
    }

    /// Whether it holds with any of these Pythons, whichever extras are chosen: `None` where that hangs on what is not known,
    /// or on which of the Pythons it is.
    pub fn holds_on(&self, machine: &str, pythons: &[String]) -> Option<bool> {
        let mut answer = None;
        for python in pythons {
            let platform = Platform {
                machine: Some(machine.to_owned()),
                python: Some(python.clone()),
                cpython: true,
            };
            let by = |extras| self.0.holds(&platform, extras);
            let with = by(Extras::Every(true));
            let holds = match (with, by(Extras::Every(false))) {
                (Some(false), Some(false)) => false,
                (Some(true), _) | (_, Some(true)) => true,
                _ => return None,
            };
            if answer.is_some_and(|before| before != holds) {
                return None;
            }
            answer = Some(holds);
        }
        answer
    }

    /// Whether it holds on no Linux, whichever extras are chosen.
    pub fn is_never_on_linux(&self) -> bool {
        let by = |holds| self.0.holds(&Platform::default(), Extras::Every(holds));
        by(true) == Some(false) && by(false) == Some(false)
    }
}

#[derive(Clone, Debug)]
enum Term {
    And(Vec<Term>),
    Or(Vec<Term>),
    /// `platform_machine == "x86_64"`: variable or text, operator, variable or text.
    Compare(Side, String, Side),
}

#[derive(Clone, Debug)]
enum Side {
    Variable(String),
    Text(String),
}

/// Brackets in brackets that are followed; real markers have two.
const DEEPEST: usize = 16;

impl Term {
    fn parse(text: &str) -> Option<Self> {
        let tokens = tokens(text)?;
        let mut rest = tokens.as_slice();
        let marker = Self::any(&mut rest, 0)?;
        rest.is_empty().then_some(marker)
    }

    fn any(rest: &mut &[Token], depth: usize) -> Option<Self> {
        let mut parts = vec![Self::all(rest, depth)?];
        while take(rest, |token| token.is_word("or")) {
            parts.push(Self::all(rest, depth)?);
        }
        Some(Self::Or(parts))
    }

    fn all(rest: &mut &[Token], depth: usize) -> Option<Self> {
        let mut parts = vec![Self::one(rest, depth)?];
        while take(rest, |token| token.is_word("and")) {
            parts.push(Self::one(rest, depth)?);
        }
        Some(Self::And(parts))
    }

    fn one(rest: &mut &[Token], depth: usize) -> Option<Self> {
        if take(rest, |token| *token == Token::Sign("(".to_owned())) {
            let inner = (depth < DEEPEST).then(|| Self::any(rest, depth + 1))??;
            return take(rest, |token| *token == Token::Sign(")".to_owned())).then_some(inner);
        }
        let left = side(rest)?;
        let operator = match next(rest)? {
            Token::Sign(sign) if sign != "(" && sign != ")" => sign,
            Token::Word(word) if word == "in" => word,
            Token::Word(word) if word == "not" => {
                take(rest, |token| token.is_word("in")).then(|| "not in".to_owned())?
            }
            _ => return None,
        };
        Some(Self::Compare(left, operator, side(rest)?))
    }

    /// Whether it holds: true, false, or not to be told.
    fn holds(&self, platform: &Platform, extras: Extras<'_>) -> Option<bool> {
        let decided = |parts: &[Term], decisive: bool| {
            let answers: Vec<Option<bool>> = parts
                .iter()
                .map(|part| part.holds(platform, extras))
                .collect();
            if answers.contains(&Some(decisive)) {
                Some(decisive)
            } else if answers.contains(&None) {
                None
            } else {
                Some(!decisive)
            }
        };
        match self {
            Self::And(parts) => decided(parts, false),
            Self::Or(parts) => decided(parts, true),
            Self::Compare(left, operator, right) => {
                let extra = match (left, right) {
                    (Side::Variable(name), Side::Text(extra))
                    | (Side::Text(extra), Side::Variable(name))
                        if name == "extra" =>
                    {
                        Some(pydist::normalised(extra))
                    }
                    _ => None,
                };
                if let Some(extra) = extra {
                    return match (operator.as_str(), extras) {
                        ("==", Extras::Are(extras)) => Some(extras.contains(&extra)),
                        ("!=", Extras::Are(extras)) => Some(!extras.contains(&extra)),
                        ("==" | "!=", Extras::Every(holds)) => Some(holds),
                        _ => None,
                    };
                }
                let versions = [left, right].iter().any(|side| {
                    side.is_variable("python_version") || side.is_variable("python_full_version")
                });
                let (left, right) = (left.value(platform)?, right.value(platform)?);
                if versions && !operator.ends_with("in") {
                    let specifiers = VersionSpecifiers::from_str(&format!("{operator}{right}"));
                    return Some(specifiers.ok()?.contains(&Version::from_str(&left).ok()?));
                }
                match operator.as_str() {
                    "==" | "===" => Some(left == right),
                    "!=" => Some(left != right),
                    "in" => Some(right.contains(&left)),
                    "not in" => Some(!right.contains(&left)),
                    _ => None,
                }
            }
        }
    }
}

impl Side {
    fn is_variable(&self, name: &str) -> bool {
        matches!(self, Self::Variable(own) if own == name)
    }

    fn value(&self, platform: &Platform) -> Option<String> {
        let name = match self {
            Self::Text(text) => return Some(text.clone()),
            Self::Variable(name) => name.as_str(),
        };
        match name {
            "sys_platform" => Some("linux".to_owned()),
            "platform_system" => Some("Linux".to_owned()),
            "os_name" => Some("posix".to_owned()),
            "platform_machine" => platform.machine.clone(),
            "implementation_name" => platform.cpython.then(|| "cpython".to_owned()),
            "platform_python_implementation" => platform.cpython.then(|| "CPython".to_owned()),
            "python_version" => {
                let python = platform.python.as_ref()?;
                let minor: Vec<&str> = python.split('.').take(2).collect();
                Some(minor.join("."))
            }
            // Of `3.12` alone the patch release is not known.
            "python_full_version" => {
                let python = platform.python.as_ref()?;
                (python.split('.').count() > 2).then(|| python.clone())
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A variable, or `and`, `or`, `in`, `not`.
    Word(String),
    /// A text in quotes.
    Text(String),
    /// An operator or a bracket.
    Sign(String),
}

impl Token {
    fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own == word)
    }
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '"' | '\'' => {
                let (text, after) = rest.get(1..)?.split_once(first)?;
                (Token::Text(text.to_owned()), after)
            }
            '(' | ')' => (Token::Sign(first.to_string()), rest.get(1..)?),
            _ => {
                let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
                let is_sign = |c: char| "=!<>~".contains(c);
                let same = |c: char| {
                    if is_word(first) {
                        is_word(c)
                    } else {
                        is_sign(c)
                    }
                };
                let end = rest.find(|c| !same(c)).unwrap_or(rest.len());
                let (token, after) = rest.split_at_checked(end).filter(|(t, _)| !t.is_empty())?;
                let token = token.to_owned();
                let token = if is_word(first) {
                    Token::Word(token)
                } else {
                    Token::Sign(token)
                };
                (token, after)
            }
        };
        tokens.push(token);
        rest = after.trim_start();
    }
    Some(tokens)
}

/// The next token, taken off.
fn next(rest: &mut &[Token]) -> Option<Token> {
    let (first, others) = rest.split_first()?;
    *rest = others;
    Some(first.clone())
}

/// Takes the next token off where it is the one that is wanted.
fn take(rest: &mut &[Token], wanted: impl Fn(&Token) -> bool) -> bool {
    let found = rest.first().is_some_and(wanted);
    if found {
        let _ = next(rest);
    }
    found
}

fn side(rest: &mut &[Token]) -> Option<Side> {
    match next(rest)? {
        Token::Word(name) => Some(Side::Variable(name)),
        Token::Text(text) => Some(Side::Text(text)),
        Token::Sign(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn here() -> Platform {
        Platform {
            machine: Some("x86_64".to_owned()),
            python: Some("3.12".to_owned()),
            cpython: false,
        }
    }

    #[test]
    fn real_ones() {
        for (text, name, versions, applies) in [
            (
                "nvidia-nccl-cu12==2.26.2; platform_system == \"Linux\" and platform_machine == \"x86_64\"",
                "nvidia-nccl-cu12",
                "==2.26.2",
                Some(true),
            ),
            (
                "jaxlib (<=0.4.35,>=0.4.34)",
                "jaxlib",
                ">=0.4.34, <=0.4.35",
                Some(true),
            ),
            (
                "jax_cuda12_plugin[with-cuda] ; extra == 'cuda12'",
                "jax-cuda12-plugin",
                "",
                Some(false),
            ),
            (
                "numpy<2 ; python_version < '3.9' or (sys_platform == 'win32' and os_name == 'nt')",
                "numpy",
                "<2",
                Some(false),
            ),
            (
                "torch ~= 2.6; python_version not in '3.7, 3.8'",
                "torch",
                "~=2.6",
                Some(true),
            ),
            ("triton>=3; platform_release == '1'", "triton", ">=3", None),
            (
                "triton; platform_release == '1' and os_name == 'nt'",
                "triton",
                "",
                Some(false),
            ),
            ("torch @ file:///wheels/torch.whl", "torch", "", Some(true)),
        ] {
            let requirement = Requirement::parse(text).unwrap();
            assert_eq!(
                (
                    requirement.name.as_str(),
                    requirement.versions().as_str(),
                    requirement.applies(&here(), &[])
                ),
                (name, versions, applies),
                "{text}"
            );
        }
        for text in [
            "",
            "torch==",
            "torch[a",
            "torch; python_version",
            "torch; (os_name == 'a'",
        ] {
            assert!(Requirement::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn markers_on_pythons() {
        let pythons = ["3.12.0".to_owned(), "3.12.99".to_owned()];
        for (marker, holds) in [
            ("sys_platform == 'linux'", Some(true)),
            ("sys_platform == 'win32'", Some(false)),
            ("platform_machine == 'aarch64'", Some(false)),
            (
                "platform_machine == 'x86_64' and python_version >= '3.10'",
                Some(true),
            ),
            ("python_full_version < '3.12.4'", None),
            ("python_full_version < '3.13'", Some(true)),
            ("platform_python_implementation == 'CPython'", Some(true)),
            ("platform_release == '6.8'", None),
            // Whichever extras are chosen.
            (
                "extra == 'extra-3-app-cu124' and sys_platform == 'linux'",
                Some(true),
            ),
            (
                "extra != 'extra-3-app-cu124' and sys_platform == 'linux'",
                Some(true),
            ),
            ("extra == 'cu124' and sys_platform == 'darwin'", Some(false)),
        ] {
            let read = Marker::parse(marker).unwrap();
            assert_eq!(read.holds_on("x86_64", &pythons), holds, "{marker}");
        }
        let two = ["3.9.0".to_owned(), "3.12.0".to_owned()];
        let marker = Marker::parse("python_version < '3.10'").unwrap();
        assert_eq!(marker.holds_on("x86_64", &two), None);
    }

    #[test]
    fn extras() {
        let asked = Requirement::parse("cuda-toolkit[cublas, NVRTC]==13.0.2")
            .unwrap()
            .extras;
        let part =
            Requirement::parse("nvidia-cublas==13.1.0.3; extra == 'cublas' or extra == 'all'")
                .unwrap();
        assert_eq!(asked, ["cublas", "nvrtc"]);
        assert_eq!(part.applies(&here(), &asked), Some(true));
        assert_eq!(part.applies(&here(), &[]), Some(false));
    }

    #[test]
    fn versions() {
        for (required, installed, fit) in [
            ("torch==2.6.0", "2.6.0+cu124", Some(Fit::Good)),
            ("torch==2.6.0+cu124", "2.6.0", Some(Fit::Older)),
            ("torch==2.6.0", "2.7.1", Some(Fit::Newer)),
            (
                "torch==2.6.0",
                "2.5.0a0+872d972e41.nv24.8",
                Some(Fit::Older),
            ),
            ("nvidia-cudnn-cu12>=9.1,<10", "9.10.2.21", Some(Fit::Good)),
            ("nvidia-cudnn-cu12>=9.8,<10", "9.1.0.70", Some(Fit::Older)),
            ("nvidia-cudnn-cu12<9", "9.1.0.70", Some(Fit::Newer)),
            ("torch!=2.6.0", "2.6.0", Some(Fit::Newer)),
            ("torch", "anything", None),
        ] {
            let requirement = Requirement::parse(required).unwrap();
            assert_eq!(requirement.judge(installed), fit, "{required} {installed}");
        }
    }

    proptest! {
        #[test]
        fn any_text(text in "\\PC{0,60}", marker in "[()a-z\"' =<>!~_0-9]{0,60}") {
            for text in [text, format!("a; {marker}"), format!("a {marker}")] {
                if let Some(requirement) = Requirement::parse(&text) {
                    let _ = (requirement.applies(&here(), &[]), requirement.judge("1.0"), requirement.versions());
                }
            }
        }
    }
}
