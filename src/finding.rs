//! A finding: what is wrong, in which layer, on what evidence, and what mends it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::{Layer, Reading, Vendor};

/// How bad it is, seen from the consumer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Some ways to a usable GPU are broken, or it works now and will bite.
    Warning,
    /// Every way from the consumer to a usable GPU is broken.
    Error,
}

impl Severity {
    /// `error`, `warning`, `note`.
    pub fn id(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// What was asked: `loaded kernel module`.
    pub what: String,
    /// The answer: `535.104.05`.
    pub value: String,
    /// Where it was read.
    pub source: String,
}

/// A way to mend it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fix {
    /// The layer it is applied at; `None` where it is outside the stack (ask the host's owner).
    pub layer: Option<Layer>,
    /// What to do, in one sentence.
    pub summary: String,
    /// Commands to type, shell-quoted; only for this distribution and only from verified rows.
    pub commands: Vec<String>,
    /// What it costs: `reboot`, `root`, `rebuild`; empty where nothing.
    pub cost: String,
    /// Why this is second best, where it is.
    pub why_second: Option<String>,
    /// How to see that it worked.
    pub verify: Option<String>,
}

impl Fix {
    /// A fix at a layer.
    pub fn at(layer: Layer, summary: impl Into<String>) -> Self {
        Self {
            layer: Some(layer),
            summary: summary.into(),
            ..Self::default()
        }
    }

    /// A command to type; `words` are shell-quoted.
    #[must_use]
    pub fn command(mut self, words: &[&str]) -> Self {
        self.commands.push(shell_line(words));
        self
    }

    /// A command line that was composed from verified text and quoted words.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Self {
        self.commands.push(line.into());
        self
    }

    /// What it costs.
    #[must_use]
    pub fn cost(mut self, cost: &str) -> Self {
        cost.clone_into(&mut self.cost);
        self
    }

    /// Why it is second best.
    #[must_use]
    pub fn second(mut self, why: impl Into<String>) -> Self {
        self.why_second = Some(why.into());
        self
    }

    /// How to see that it worked.
    #[must_use]
    pub fn verify(mut self, how: impl Into<String>) -> Self {
        self.verify = Some(how.into());
        self
    }
}

/// Joins words to a command line that a POSIX shell reads as those very words.
pub fn shell_line(words: &[&str]) -> String {
    words
        .iter()
        .map(|w| shell_quote(w))
        .collect::<Vec<_>>()
        .join(" ")
}

/// One word, quoted where a shell would read it otherwise. A leading `~/` (a redacted home) stays outside the quotes.
pub fn shell_quote(word: &str) -> String {
    let plain = |w: &str| {
        !w.is_empty()
            && w.chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./=+:@%,".contains(c))
    };
    if plain(word) {
        return word.to_owned();
    }
    if let Some(rest) = word.strip_prefix("~/") {
        return if plain(rest) {
            word.to_owned()
        } else {
            format!("~/{}", shell_quote(rest))
        };
    }
    // Control characters cannot be typed and would be acted on by a terminal: shown escaped inside the quotes.
    let mut quoted = String::from("'");
    for c in word.chars() {
        match c {
            '\'' => quoted.push_str("'\\''"),
            c if c.is_control() => quoted.extend(c.escape_debug()),
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

/// A list for a variable such as `LD_LIBRARY_PATH`, as a shell reads it. A `~` (a redacted home) would stay a `~` inside of
/// quotes and behind a colon: it becomes `$HOME`.
pub fn shell_list(parts: &[&str], separator: &str) -> String {
    let one = |part: &&str| match part.strip_prefix("~/") {
        Some(rest) => format!("\"$HOME\"/{}", shell_quote(rest)),
        None if *part == "~" => "\"$HOME\"".to_owned(),
        None => shell_quote(part),
    };
    if !parts.iter().any(|part| part.starts_with('~')) {
        return shell_quote(&parts.join(separator));
    }
    let quoted: Vec<String> = parts.iter().map(one).collect();
    quoted.join(separator)
}

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The rule's id, kebab-case, never reused.
    pub id: String,
    /// The id and the subject: unique in a report.
    pub key: String,
    /// The layer at fault: the one whose part has to change.
    pub layer: Layer,
    /// The layer where the user sees it.
    pub complaining_layer: Layer,
    /// `nvidia`, `amd`, `intel`; `None` where none is meant.
    pub vendor: Option<String>,
    /// The part at fault: `nvidia.ko`, `libcudart.so.12`.
    pub component: Option<String>,
    /// Which GPU, environment, process.
    pub subjects: Vec<String>,
    /// How bad.
    pub severity: Severity,
    /// One line that can stand alone in a ticket, without full stop.
    pub title: String,
    /// What it means, in a sentence or two.
    pub detail: String,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// Ways to mend it, best first.
    pub fixes: Vec<Fix>,
    /// Where the knowledge comes from.
    pub sources: Vec<String>,
    /// The key of the finding that this one follows from.
    pub caused_by: Option<String>,
}

impl Finding {
    /// A finding about NVIDIA's stack; the caller adds evidence and fixes.
    pub fn new(id: &str, layer: Layer, severity: Severity, title: impl Into<String>) -> Self {
        Self {
            id: id.to_owned(),
            key: id.to_owned(),
            layer,
            complaining_layer: layer,
            vendor: Some("nvidia".to_owned()),
            component: None,
            subjects: Vec::new(),
            severity,
            title: title.into(),
            detail: String::new(),
            evidence: Vec::new(),
            fixes: Vec::new(),
            sources: Vec::new(),
            caused_by: None,
        }
    }

    /// Whose stack it is about.
    #[must_use]
    pub fn of(mut self, vendor: Vendor) -> Self {
        self.vendor = Some(vendor.id().to_owned());
        self
    }

    /// The layer where the user sees it.
    #[must_use]
    pub fn complaining(mut self, layer: Layer) -> Self {
        self.complaining_layer = layer;
        self
    }

    /// The part at fault.
    #[must_use]
    pub fn component(mut self, component: impl Into<String>) -> Self {
        self.component = Some(component.into());
        self
    }

    /// A subject; the first one makes the key unique.
    #[must_use]
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        let subject = subject.into();
        if self.subjects.is_empty() {
            self.key = format!("{}:{subject}", self.id);
        }
        self.subjects.push(subject);
        self
    }

    /// What it means.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// A piece of evidence.
    #[must_use]
    pub fn evidence(
        mut self,
        what: impl Into<String>,
        value: impl Into<String>,
        source: impl Into<String>,
    ) -> Self {
        self.evidence.push(Evidence {
            what: what.into(),
            value: value.into(),
            source: source.into(),
        });
        self
    }

    /// A reading as evidence: what it is, or that it is absent or unreadable.
    #[must_use]
    pub fn reading<T: std::fmt::Display>(self, what: &str, reading: &Reading<T>) -> Self {
        match reading {
            Reading::Present { value, source } => self.evidence(what, value.to_string(), source),
            Reading::Absent { source } => self.evidence(what, "absent", source),
            Reading::Unreadable { reason } => self.evidence(what, "could not be read", reason),
        }
    }

    /// A way to mend it; the first is the best.
    #[must_use]
    pub fn fix(mut self, fix: Fix) -> Self {
        self.fixes.push(fix);
        self
    }

    /// Where the knowledge comes from.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        let source = source.into();
        if !source.is_empty() && !self.sources.contains(&source) {
            self.sources.push(source);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_what_a_shell_reads_as_these_words() {
        assert_eq!(shell_line(&["cat", "/dev/nvidia0"]), "cat /dev/nvidia0");
        assert_eq!(shell_quote("$(id)"), "'$(id)'");
        assert_eq!(shell_quote("it's"), "'it'\\''s'");
        assert_eq!(
            shell_quote("a\n::error::\u{1b}[2J"),
            "'a\\n::error::\\u{1b}[2J'"
        );
        assert_eq!(shell_quote("~/my env/bin"), "~/'my env/bin'");
        assert_eq!(shell_quote(""), "''");
    }

    #[test]
    fn a_home_in_a_list_is_read_as_one() {
        assert_eq!(shell_list(&["/a", "/b"], ":"), "/a:/b");
        assert_eq!(shell_list(&["/a b", "/c"], ":"), "'/a b:/c'");
        assert_eq!(
            shell_list(&["/o", "~/a b", "~"], ":"),
            "/o:\"$HOME\"/'a b':\"$HOME\""
        );
    }
}
