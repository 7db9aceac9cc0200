//! `gpudoctor.toml`: the machines that a repository's artifacts are to run on, and what is to be judged.
//!
//! It is read strictly: a key that nobody reads, or a value that nothing can be, would be trusted and would do nothing. What
//! is wrong is told in one line with the number of the line.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::Ignore;
use super::fleet::{self, Target};
use crate::cli::FailOn;
use crate::matrix::Matrix;
use crate::rules;
use crate::target;

/// The file's name.
pub const FILE: &str = "gpudoctor.toml";

/// What the file says.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// It was read from a file; else there is none.
    pub is_there: bool,
    /// The machines, by name.
    pub targets: Vec<Target>,
    /// Globs of the artifacts, seen from the file's folder; `!` before one takes away.
    pub artifacts: Vec<String>,
    /// From when on a run has failed.
    pub fail_on: Option<FailOn>,
    /// Findings that do not count.
    pub ignore: Vec<Ignore>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    target: BTreeMap<Spanned<String>, Spanned<TargetTable>>,
    #[serde(default)]
    preflight: Settings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TargetTable {
    driver: Option<Spanned<Word>>,
    gpus: Option<Vec<Spanned<Word>>>,
    cuda: Option<Spanned<Word>>,
    cudnn: Option<Spanned<Word>>,
    glibc: Option<Spanned<Word>>,
    os: Option<Spanned<Word>>,
    arch: Option<Spanned<Word>>,
    python: Option<Spanned<Word>>,
    container: Option<bool>,
    #[serde(default)]
    provides: Vec<Spanned<String>>,
}

/// A text, or a number that somebody wrote without quotes. A number is taken as it is written where that is what is meant.
#[derive(Debug)]
enum Word {
    Text(String),
    Number,
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => Ok(Self::Text(text)),
            toml::Value::Integer(_) | toml::Value::Float(_) => Ok(Self::Number),
            other => Err(D::Error::custom(format!(
                "{} is no text: \"535\" is one",
                in_words(&other)
            ))),
        }
    }
}

/// What kind of value it is.
fn in_words(value: &toml::Value) -> &'static str {
    match value {
        toml::Value::String(_) => "a text",
        toml::Value::Integer(_) | toml::Value::Float(_) => "a number",
        toml::Value::Boolean(_) => "true or false",
        toml::Value::Datetime(_) => "a date",
        toml::Value::Array(_) => "a list",
        toml::Value::Table(_) => "a table",
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Settings {
    #[serde(default)]
    artifacts: Vec<Spanned<String>>,
    fail_on: Option<Spanned<String>>,
    #[serde(default)]
    ignore: Vec<IgnoreTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IgnoreTable {
    id: Spanned<String>,
    reason: Spanned<String>,
    expires: Option<Spanned<Day>>,
}

/// A date of TOML, or a text that is one.
struct Day(String);

impl<'de> Deserialize<'de> for Day {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match toml::Value::deserialize(deserializer)? {
            toml::Value::String(text) => Ok(Self(text)),
            toml::Value::Datetime(date) => Ok(Self(date.to_string())),
            other => Err(D::Error::custom(format!(
                "{} is no day: 2026-03-31 is one",
                in_words(&other)
            ))),
        }
    }
}

/// Reads the file.
///
/// # Errors
/// What is wrong, in one line that begins with the number of the line: `line 3: unknown field ...`.
pub fn parse(text: &str, matrix: &Matrix) -> Result<Config, String> {
    let lines = Lines(text);
    let file: File = toml::from_str(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        lines.wrong(
            at,
            unquoted(text, at).unwrap_or_else(|| plain(&one_line(e.message()))),
        )
    })?;
    let mut config = Config::default();
    for (name, table) in &file.target {
        config.targets.push(target(name, table, &lines, matrix)?);
    }
    // As they stand in the file.
    let place = |name: &str| {
        let found = file.target.keys().find(|key| key.get_ref() == name);
        found.map_or(0, |key| key.span().start)
    };
    config.targets.sort_by_key(|target| place(&target.name));
    for glob in file.preflight.artifacts {
        let at = glob.span().start;
        let glob = glob.into_inner();
        super::walk::Globs::new(std::slice::from_ref(&glob)).map_err(|e| lines.wrong(at, e))?;
        config.artifacts.push(glob);
    }
    if let Some(word) = &file.preflight.fail_on {
        config.fail_on = Some(match word.get_ref().as_str() {
            "error" => FailOn::Error,
            "warning" => FailOn::Warning,
            "unknown" => FailOn::Unknown,
            "never" => FailOn::Never,
            other => {
                return Err(lines.wrong(
                    word.span().start,
                    format!(
                        "fail-on `{}`: error, warning, unknown or never is wanted",
                        other.escape_debug()
                    ),
                ));
            }
        });
    }
    for table in &file.preflight.ignore {
        config.ignore.push(ignore(table, &lines)?);
    }
    Ok(config)
}

/// Whether a name can be that of a target.
pub fn is_target_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.chars().all(is_plain)
}

/// What the name of a target may have in it.
pub const TARGET_NAME: &str = "the name of a target has letters, digits, `-`, `_` and `.` only";

/// `driver = 535.104.05` is no number of TOML: what is wrong with the line there, where it is that.
fn unquoted(text: &str, at: usize) -> Option<String> {
    let before = text.get(..at)?;
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..)?.lines().next()?;
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.split('#').next()?.trim());
    let is_version =
        value.matches('.').count() >= 2 && value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    is_version.then(|| format!("a version is a text: put it in quotes, {key} = \"{value}\""))
}

fn target(
    name: &Spanned<String>,
    table: &Spanned<TargetTable>,
    lines: &Lines<'_>,
    matrix: &Matrix,
) -> Result<Target, String> {
    let place = name.span().start;
    if !is_target_name(name.get_ref()) {
        return Err(lines.wrong(place, TARGET_NAME));
    }
    let table = table.get_ref();
    let mut gpus = Vec::new();
    for gpu in table.gpus.iter().flatten() {
        let read = lines.read("gpus", gpu, target::gpu)?;
        // Each by itself, so that the line is that of the GPU.
        let one = target::Target {
            gpus: vec![read.clone()],
            ..target::Target::default()
        };
        crate::inspect::machine_of_target(&one, matrix)
            .map_err(|e| lines.wrong(gpu.span().start, format!("gpus: {e}")))?;
        gpus.push(read);
    }
    if let Some(gpus) = &table.gpus
        && gpus.is_empty()
    {
        let what = "gpus: there is none in the list; without the key no GPU is judged";
        return Err(lines.wrong(lines.line_of(place, "gpus"), what));
    }
    let described = target::Target {
        driver: lines.maybe("driver", table.driver.as_ref(), target::driver)?,
        gpus,
        cuda: lines.maybe("cuda", table.cuda.as_ref(), target::cuda)?,
        cudnn: lines.maybe("cudnn", table.cudnn.as_ref(), target::release)?,
        glibc: lines.maybe("glibc", table.glibc.as_ref(), target::glibc)?,
        os: lines.maybe("os", table.os.as_ref(), target::os)?,
        arch: lines.maybe("arch", table.arch.as_ref(), target::arch)?,
        python: lines.maybe("python", table.python.as_ref(), target::python)?,
        container: table.container,
        ..target::Target::default()
    };
    if described == target::Target::default() {
        return Err(lines.wrong(
            place,
            format!(
                "target `{}` says nothing: driver and gpus are wanted",
                name.get_ref()
            ),
        ));
    }
    let mut provides = Vec::new();
    for soname in &table.provides {
        let text = soname.get_ref();
        if !text.contains(".so") || text.contains(char::is_whitespace) || text.contains('/') {
            return Err(lines.wrong(
                soname.span().start,
                format!(
                    "provides: `{}` is no name of a library: libnccl.so.2 is one",
                    text.escape_debug()
                ),
            ));
        }
        provides.push(text.clone());
    }
    fleet::check(&described, matrix).map_err(|(key, why)| {
        let word = match key {
            "cuda" => table.cuda.as_ref(),
            "glibc" => table.glibc.as_ref(),
            _ => table.os.as_ref(),
        };
        let at = word.map_or(place, |word| word.span().start);
        lines.wrong(at, format!("{key}: {why}"))
    })?;
    fleet::described(name.get_ref(), &described, provides, matrix)
        .map_err(|e| lines.wrong(place, e))
}

fn ignore(table: &IgnoreTable, lines: &Lines<'_>) -> Result<Ignore, String> {
    let name = table.id.get_ref();
    let id = name.split(':').next().unwrap_or(name);
    if rules::by_id(id).is_none() {
        return Err(lines.wrong(
            table.id.span().start,
            format!(
                "`{}` is no finding id: `gpudoctor explain --list` lists them",
                id.escape_debug()
            ),
        ));
    }
    let reason = table.reason.get_ref().trim();
    if reason.is_empty() {
        return Err(lines.wrong(table.reason.span().start, "the reason is empty"));
    }
    let expires = match &table.expires {
        None => None,
        Some(day) => {
            let text = &day.get_ref().0;
            let date: jiff::civil::Date = text.parse().map_err(|_| {
                let what = format!("`{}` is no day: 2026-03-31 is one", text.escape_debug());
                lines.wrong(day.span().start, what)
            })?;
            Some(date.to_string())
        }
    };
    Ok(Ignore {
        what: name.clone(),
        reason: reason.to_owned(),
        expires,
    })
}

/// The text, to tell on which line something is.
struct Lines<'a>(&'a str);

impl Lines<'_> {
    fn wrong(&self, at: usize, what: impl std::fmt::Display) -> String {
        let before = self.0.get(..at.min(self.0.len())).unwrap_or(self.0);
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        format!("line {line}: {what}")
    }

    /// Where a key stands, behind a place.
    fn line_of(&self, after: usize, key: &str) -> usize {
        let rest = self.0.get(after..).unwrap_or_default();
        rest.find(key).map_or(after, |at| after + at)
    }

    /// A value as text; a number as it is written, since 2.30 is not 2.3.
    fn word(&self, word: &Spanned<Word>) -> String {
        match word.get_ref() {
            Word::Text(text) => text.clone(),
            Word::Number => self.0.get(word.span()).unwrap_or_default().to_owned(),
        }
    }

    fn read<T>(
        &self,
        key: &str,
        word: &Spanned<Word>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, String> {
        read(&self.word(word)).map_err(|e| self.wrong(word.span().start, format!("{key}: {e}")))
    }

    fn maybe<T>(
        &self,
        key: &str,
        word: Option<&Spanned<Word>>,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        word.map(|word| self.read(key, word, read)).transpose()
    }
}

/// A message of the parser in the words of the file's author.
fn plain(message: &str) -> String {
    const WORDS: &[(&str, &str)] = &[
        ("struct TargetTable", "a table"),
        ("struct Settings", "a table"),
        (
            "struct IgnoreTable",
            "a table such as { id = \"...\", reason = \"...\" }",
        ),
        ("struct File", "a table"),
        ("a map", "a table"),
        ("a sequence", "a list"),
        ("sequence", "a list"),
        ("map", "a table"),
        ("a string", "a text in quotes"),
        ("a boolean", "true or false"),
        ("invalid type: string", "it is the text"),
        ("invalid type: integer", "it is the number"),
        ("invalid type: floating point", "it is the number"),
        ("invalid type: boolean", "it is"),
        ("invalid type:", "it is"),
        (", expected ", ", and it should be "),
        ("unknown field", "unknown key"),
        ("missing field", "missing key"),
    ];
    if message.starts_with("invalid length") {
        return "it is a list, and it should be a table".to_owned();
    }
    // Names of keys are the author's own.
    if message.contains("unknown field") || message.contains("missing field") {
        return message.replacen(" field", " key", 1);
    }
    if !message.starts_with("invalid type") {
        return message.to_owned();
    }
    WORDS.iter().fold(message.to_owned(), |text, (from, to)| {
        text.replacen(from, to, 1)
    })
}

/// A message of the parser without its line breaks and what a terminal would act on.
fn one_line(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    let line = words.join(" ");
    let mut shown = String::with_capacity(line.len());
    for c in line.chars() {
        if c.is_control() {
            shown.extend(c.escape_debug());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
[target.prod]
driver = 535.183
gpus = ["A100", 8.9]
glibc = 2.30
cuda = "12.4"

[target.edge]
driver = "470.256.02"
gpus = ["sm_61"]
os = "ubuntu-20.04"
arch = "arm64"
container = true
provides = ["libnccl.so.2"]

[preflight]
artifacts = ["build/**/*.so", "!build/tmp/**"]
fail-on = "warning"
ignore = [
    { id = "runpath-to-stubs", reason = "wrapped by the launcher", expires = 2026-03-31 },
    { id = "driver-too-old:app", reason = "upgraded in May", expires = "2026-05-31" },
]
"#;

    #[test]
    fn a_whole_file() {
        let config = parse(WHOLE, &Matrix::bundled()).unwrap();
        let told: Vec<(&str, &str)> = config
            .targets
            .iter()
            .map(|t| (t.name.as_str(), t.described.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("prod", "driver=535.183,gpu=A100+sm_89,cuda=12.4,glibc=2.30"),
                (
                    "edge",
                    "driver=470.256.02,gpu=sm_61,os=ubuntu-20.04,arch=aarch64,container=yes"
                ),
            ]
        );
        let edge = &config.targets[1].machine;
        assert_eq!(edge.arch.as_deref(), Some("aarch64"));
        assert!(edge.container && edge.provides == ["libnccl.so.2"]);
        assert_eq!(edge.glibc.as_ref().unwrap().as_str(), "2.31");
        assert_eq!(config.fail_on, Some(FailOn::Warning));
        assert_eq!(config.artifacts.len(), 2);
        let days: Vec<_> = config.ignore.iter().map(|i| i.expires.as_deref()).collect();
        assert_eq!(days, [Some("2026-03-31"), Some("2026-05-31")]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        let matrix = Matrix::bundled();
        for (text, line, needle) in [
            ("[target.a]\ndriver = \"535\"\ngpu = [\"A100\"]\n", 3, "gpu"),
            ("[target.a]\ndriver = \"12.4\"\n", 2, "three digits"),
            ("[target.a]\ndriver = [1]\n", 2, ""),
            (
                "[target.a]\n\ngpus = [\n\"A100\",\n\"A1000000\"]\n",
                5,
                "is not known",
            ),
            ("[target.a]\nglibc = \"two\"\n", 2, "glibc"),
            ("[target.a]\ndriver = 5351\n", 2, "three digits"),
            ("[target.a]\ndriver = \"\"\n", 2, "driver"),
            ("[target.a]\ndriver = 535\ncuda = 99\n", 3, "the newest is"),
            ("[target.a]\nglibc = 9.99\n", 2, "no glibc version"),
            (
                "[target.a]\ndriver = 535\n\ngpus = []\n",
                4,
                "none in the list",
            ),
            ("[target.a]\ngpus = [\"\"]\n", 2, "a GPU is wanted"),
            ("[target.a]\ndriver = 535\nos = \"\"\n", 3, "no system"),
            ("[target.a]\nos = \"ubuntu\"\n", 2, "has no version"),
            (
                "[target.a]\nos = \"alpine-3.20\"\nglibc = 2.31\n",
                3,
                "musl",
            ),
            (
                "[target.a]\nglibc = 2.31\nos = \"ubuntu-22.04\"\n",
                2,
                "has 2.35",
            ),
            (
                "[target.a]\ndriver = 535\nprovides = [\"\"]\n",
                3,
                "no name of a library",
            ),
            ("[target.a]\ndriver = true\n", 2, "true or false is no text"),
            ("[target.a]\ngpus = \"A100\"\n", 2, "should be a list"),
            (
                "[target.a]\ncontainer = \"yes\"\n",
                2,
                "should be true or false",
            ),
            ("target = 5\n", 1, "should be a table"),
            ("[target]\nprod = 5\n", 2, "should be a table"),
            ("preflight = []\n", 1, ""),
            ("[preflight]\nartifacts = \"a\"\n", 2, "should be a list"),
            ("[preflight]\nartifacts = [1]\n", 2, "a text in quotes"),
            ("[preflight]\nfail-on = 1\n", 2, "a text in quotes"),
            ("[preflight]\nignore = [\"driver-too-old\"]\n", 2, "{ id"),
            (
                "[preflight]\nignore = [{ id = \"driver-too-old\", reason = \"x\", expires = 3 }]\n",
                2,
                "no day",
            ),
            ("[target.a]\narch = \"mips\"\n", 2, "arch"),
            ("[target.a]\nos = \"windows\"\n", 2, "Linux"),
            ("\n[target.a]\n", 2, "says nothing"),
            ("[target.\"a b\"]\ndriver = 535\n", 1, "letters"),
            ("[targets.a]\ndriver = 535\n", 1, "targets"),
            ("[preflight]\nartifact = []\n", 2, "artifact"),
            ("[preflight]\nartifacts = [\"a[\"]\n", 2, "a["),
            ("[preflight]\nfail-on = \"always\"\n", 2, "always"),
            (
                "[preflight]\nignore = [\n{ id = \"no-such\", reason = \"x\" }]\n",
                3,
                "no finding id",
            ),
            (
                "[preflight]\nignore = [{ id = \"driver-too-old\" }]\n",
                2,
                "reason",
            ),
            (
                "[preflight]\nignore = [{ id = \"driver-too-old\", reason = \" \" }]\n",
                2,
                "empty",
            ),
            (
                "[preflight]\nignore = [{ id = \"driver-too-old\", reason = \"x\", expires = \"soon\" }]\n",
                2,
                "no day",
            ),
            ("[preflight\n", 1, ""),
            ("a = \"\u{1b}[2J\"\n", 1, ""),
        ] {
            let error = parse(text, &matrix).unwrap_err();
            assert!(
                error.starts_with(&format!("line {line}: ")),
                "{text}: {error}"
            );
            assert!(error.contains(needle), "{text}: {error}");
            assert!(!error.contains(char::is_control), "{text}: {error:?}");
            for word in [
                "struct ", "enum ", "variant", "sequence", "map,", "field", "f64", "Spanned",
            ] {
                assert!(!error.contains(word), "{text}: {error}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken(text in "(\\[|\\]|target|preflight|\\.|=|\"|driver|gpus|ignore|\\{|\\}|535|A100|\n|\\PC){0,30}") {
            if let Err(error) = parse(&text, &Matrix::bundled()) {
                proptest::prop_assert!(error.starts_with("line ") && !error.contains(char::is_control));
            }
        }
    }
}
