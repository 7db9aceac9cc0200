//! An explanation of an error for people, tickets and programs (`gpudoctor.explanation/1`). The first line is the answer:
//! the layer at fault, and what the error says.

use std::fmt::Write as _;

use owo_colors::Style;
use schemars::JsonSchema;
use serde::Serialize;

use super::escape::{markdown, markdown_code, terminal};
use super::paragraph::{painted, wrapped};
use crate::explain::{Cause, Explanation, Match, State};
use crate::facts::Layer;
use crate::finding::Severity;

/// The schema.
pub const SCHEMA: &str = "gpudoctor.explanation/1";
/// Matches that are told in full where there are several.
const IN_FULL: usize = 1;
/// Matches that are told in a line each.
const IN_BRIEF: usize = 20;

/// How the text is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Columns to wrap at.
    pub width: usize,
    /// Whether escape sequences for colour are written.
    pub color: bool,
    /// All matches in full.
    pub verbose: bool,
    /// Whether this machine was checked.
    pub here: bool,
    /// Whether the first line is wrapped as well.
    pub wrap_answer: bool,
}

/// What stands under one heading: the answer to one question.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A page.
    Page(Page),
    /// What the catalogue knows; `readings`: its matches are ways to read one code.
    Found {
        /// The matches.
        found: Explanation,
        /// Whether they are ways to read one code, and not lines of a log.
        readings: bool,
    },
    /// It is what says that a call went well.
    NoError(NoError),
    /// Nothing is known about it.
    Nothing(Nothing),
}

impl Answer {
    /// Every string in it that comes from a log or a question, and so may hold secrets.
    pub fn foreign_text(&mut self) -> Vec<&mut String> {
        match self {
            Self::Page(_) | Self::NoError(_) => Vec::new(),
            Self::Nothing(nothing) => vec![&mut nothing.asked, &mut nothing.text],
            Self::Found { found, .. } => {
                let mut all = Vec::new();
                for one in &mut found.matches {
                    // A code that was asked for brings nothing with it.
                    if one.text.is_none() {
                        continue;
                    }
                    all.extend(&mut one.text);
                    all.extend(&mut one.asked);
                    all.extend(one.versions.values_mut());
                }
                all
            }
        }
    }
}

/// What says that a call went well.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NoError {
    /// What was asked.
    pub asked: String,
    /// What it is, in a phrase.
    pub text: String,
}

/// What nothing is known about.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Nothing {
    /// What was asked: a code, a text, or the name of a log.
    pub asked: String,
    /// What came of it, in a phrase.
    pub text: String,
    /// Ids of pages that are called alike.
    pub close: Vec<String>,
}

/// A page about a finding or a word, in Markdown.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Page {
    /// `driver-too-old`, `ptx`.
    pub id: String,
    /// Which of both.
    pub kind: PageKind,
    /// Where a finding of that id can be at fault; empty for a word.
    pub layers: Vec<Layer>,
    /// How bad it is at worst; `None` for a word.
    pub severity: Option<Severity>,
    /// Its text.
    pub text: String,
}

/// What a page is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PageKind {
    /// Something that the check finds.
    Finding,
    /// A word of the trade.
    Concept,
}

/// Everything that can be asked for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Listing {
    /// What the check finds, in the order of the layers.
    pub findings: Vec<Listed>,
    /// Words with a page.
    pub concepts: Vec<String>,
    /// Entries of the catalogue of errors.
    pub errors: Vec<String>,
}

/// A finding in the list.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// The layer at fault.
    pub layer: Layer,
    /// How bad it is at worst.
    pub severity: Severity,
    /// What it is, in a sentence.
    pub title: String,
}

#[derive(Serialize, JsonSchema)]
#[schemars(title = "gpudoctor.explanation/1")]
struct Document<'a> {
    schema: &'static str,
    version: &'a str,
    matches: Vec<&'a Match>,
    pages: Vec<&'a Page>,
    no_error: Vec<&'a NoError>,
    nothing: Vec<&'a Nothing>,
    /// With `--list`.
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<&'a Listing>,
}

impl<'a> Document<'a> {
    fn new(answers: &'a [Answer], list: Option<&'a Listing>) -> Self {
        let mut document = Self {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            matches: Vec::new(),
            pages: Vec::new(),
            no_error: Vec::new(),
            nothing: Vec::new(),
            list,
        };
        for answer in answers {
            match answer {
                Answer::Page(page) => document.pages.push(page),
                Answer::Found { found, .. } => document.matches.extend(&found.matches),
                Answer::NoError(no_error) => document.no_error.push(no_error),
                Answer::Nothing(nothing) => document.nothing.push(nothing),
            }
        }
        document
    }
}

/// Answers as JSON with a final newline.
pub fn json(answers: &[Answer]) -> serde_json::Result<String> {
    super::json::document(&Document::new(answers, None))
}

/// The list as JSON with a final newline.
pub fn list_json(list: &Listing) -> serde_json::Result<String> {
    super::json::document(&Document::new(&[], Some(list)))
}

/// The list for people: one line an id, then the words, and how many errors there are.
pub fn list_text(list: &Listing) -> String {
    let mut text = String::new();
    for row in &list.findings {
        let _ = writeln!(
            text,
            "{:<12} {:<8} {:<36} {}",
            row.layer,
            row.severity.id(),
            row.id,
            row.title
        );
    }
    let _ = writeln!(text, "\nwords: {}", list.concepts.join(", "));
    let _ = writeln!(
        text,
        "and {} errors of the stack, by code, name or text: gpudoctor explain 804",
        list.errors.len()
    );
    text
}

/// The list for a ticket or a wiki.
pub fn list_markdown(list: &Listing) -> String {
    let mut text = "| layer | severity | finding | what it is |\n|---|---|---|---|\n".to_owned();
    for row in &list.findings {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            row.layer,
            row.severity.id(),
            markdown_code(&row.id),
            markdown(&row.title)
        );
    }
    let words: Vec<String> = list
        .concepts
        .iter()
        .map(|word| markdown_code(word))
        .collect();
    let _ = writeln!(text, "\nWords: {}\n", words.join(", "));
    let errors: Vec<String> = list.errors.iter().map(|id| markdown_code(id)).collect();
    let _ = writeln!(text, "Errors: {}", errors.join(", "));
    text
}

/// `driver`, `runtime or framework`.
fn one_of(layers: &[Layer]) -> String {
    let names: Vec<&str> = layers.iter().map(|layer| layer.id()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

impl Page {
    /// The page with what a finding's page says of itself at its end.
    fn whole(&self) -> String {
        let text = self.text.trim_end();
        match self.severity {
            Some(severity) => format!(
                "{text}\n\nlayer at fault: {}    worst severity: {}\n",
                one_of(&self.layers),
                severity.id()
            ),
            None => format!("{text}\n"),
        }
    }
}

impl Nothing {
    fn whole(&self) -> String {
        let mut text = format!("{}\n", terminal(&self.text));
        if !self.close.is_empty() {
            let _ = writeln!(text, "close to it: {}", self.close.join(", "));
        }
        text
    }
}

/// What helps where nothing is known.
const FOR_HELP: &str = "
to ask for help, paste the first error of the log with ten lines before it, and
  gpudoctor --format markdown
`gpudoctor` alone checks this machine; `gpudoctor explain --list` lists what is known
";

/// The layer at fault first, then what is said.
fn answer(found: &Match) -> (String, String) {
    let layer = found
        .layers_at_fault
        .first()
        .map_or("unknown", |layer| layer.id());
    let label = match found.severity {
        _ if found.guessed => format!("perhaps {layer}: "),
        Severity::Note => "no fault: ".to_owned(),
        Severity::Warning => format!("warning: {layer}: "),
        Severity::Error => format!("{layer}: "),
    };
    (label, found.meaning.clone())
}

/// `driver; or container, system`.
fn at_fault(layers: &[Layer]) -> String {
    let mut names = layers.iter().map(|layer| layer.id());
    let first = names.next().unwrap_or("unknown");
    let rest: Vec<&str> = names.collect();
    if rest.is_empty() {
        first.to_owned()
    } else {
        format!("{first}, else {}", rest.join(", "))
    }
}

/// Where in a log it stands.
fn place(found: &Match) -> Option<String> {
    let line = found.line?;
    let last = found.line_end.unwrap_or(line);
    Some(super::lines(line, last, found.count))
}

/// The name under which it can be asked for, with its code.
fn name(found: &Match) -> String {
    let mut name = found.id.clone();
    if let Some(code) = &found.code {
        let _ = write!(name, " ({code}");
        for known in &found.names {
            let _ = write!(name, ", {known}");
        }
        name.push(')');
    } else if !found.names.is_empty() {
        let _ = write!(name, " ({})", found.names.join(", "));
    }
    name
}

/// Answers for a terminal or a log, one under the other.
pub fn text(answers: &[Answer], options: Options) -> String {
    let mut out = Writer {
        text: String::new(),
        options,
        readings: false,
    };
    for (index, answer) in answers.iter().enumerate() {
        if index > 0 {
            out.text.push('\n');
        }
        match answer {
            Answer::Page(page) => out.text.push_str(&page.whole()),
            Answer::Found { found, readings } => out.explanation(found, *readings),
            Answer::NoError(no_error) => out.first(
                None,
                "no error: ",
                &no_error.text,
                Style::new().green().bold(),
            ),
            Answer::Nothing(nothing) => out.text.push_str(&nothing.whole()),
        }
    }
    if nothing_known(answers) {
        out.text.push_str(FOR_HELP);
    }
    out.text
}

/// Whether there is something that nothing is known about.
pub fn nothing_known(answers: &[Answer]) -> bool {
    answers.iter().any(|answer| match answer {
        Answer::Nothing(_) => true,
        Answer::Found { found, .. } => found.matches.iter().any(|found| found.guessed),
        Answer::Page(_) | Answer::NoError(_) => false,
    })
}

struct Writer {
    text: String,
    options: Options,
    /// Whether the matches are ways to read one code.
    readings: bool,
}

impl Writer {
    fn explanation(&mut self, explanation: &Explanation, readings: bool) {
        self.readings = readings;
        let full = if self.options.verbose {
            usize::MAX
        } else {
            IN_FULL
        };
        for (index, found) in explanation.matches.iter().take(full).enumerate() {
            if index > 0 {
                self.text.push('\n');
            }
            self.found(found);
        }
        self.brief(explanation.matches.get(full..).unwrap_or_default());
    }

    /// The first line of an answer; on a terminal it is wrapped.
    fn first(&mut self, asked: Option<&str>, label: &str, said: &str, style: Style) {
        let asked = asked.map(|asked| format!("{}: ", terminal(asked)));
        let asked = asked.unwrap_or_default();
        if self.options.wrap_answer && !self.options.color {
            self.paragraph(&format!("{asked}{label}"), "  ", said);
        } else {
            let label = self.paint(label, style);
            let _ = writeln!(self.text, "{asked}{label}{}", terminal(said));
        }
    }

    fn paint(&self, text: &str, style: Style) -> String {
        painted(self.options.color, text, style)
    }

    fn paragraph(&mut self, first: &str, rest: &str, text: &str) {
        self.text
            .push_str(&wrapped(self.options.width, first, rest, text));
    }

    fn found(&mut self, found: &Match) {
        let (label, said) = answer(found);
        let style = match found.severity {
            Severity::Error => Style::new().red().bold(),
            Severity::Warning => Style::new().yellow().bold(),
            Severity::Note => Style::new().green().bold(),
        };
        self.first(found.asked.as_deref(), &label, &said, style);
        let _ = writeln!(
            self.text,
            "complains: {}    at fault: {}",
            found.complaining_layer,
            at_fault(&found.layers_at_fault)
        );
        if found.guessed {
            let said = "by its words alone: no entry has this text. Paste the line as the program wrote it";
            self.paragraph("guessed ", "     ", said);
        }
        if let (Some(place), Some(text)) = (place(found), &found.text) {
            self.paragraph(&format!("{place}: "), "     ", text);
        }
        self.paragraph("known as: ", "     ", &name(found));
        for (what, value) in &found.versions {
            let _ = writeln!(self.text, "{}: {}", what.replace('_', " "), terminal(value));
        }
        for line in &found.advice {
            self.paragraph("  ", "    ", line);
        }
        self.text.push('\n');
        self.fixes(&found.fixes);
        self.causes(&found.causes);
        self.text.push('\n');
        self.paragraph("source: ", "        ", &found.source);
    }

    fn fixes(&mut self, fixes: &[String]) {
        for (index, fix) in fixes.iter().enumerate() {
            self.paragraph(if index == 0 { "fix: " } else { "or:  " }, "     ", fix);
        }
    }

    fn causes(&mut self, causes: &[Cause]) {
        self.text.push('\n');
        let _ = writeln!(
            self.text,
            "{}",
            if self.options.here {
                "causes, by what this machine shows:"
            } else {
                "causes, likeliest first:"
            }
        );
        for cause in causes {
            let state = match cause.state {
                State::Confirmed => "confirmed",
                State::RuledOut => "ruled out",
                State::Unknown if self.options.here => "could not be told",
                State::Unknown => "",
            };
            let state = if state.is_empty() {
                String::new()
            } else {
                format!("{state}: ")
            };
            self.paragraph(
                &format!("  - {state}{}: ", cause.layer),
                "      ",
                &cause.text,
            );
            match cause.state {
                State::Confirmed | State::RuledOut => {
                    if let Some(evidence) = &cause.evidence {
                        self.paragraph("      seen: ", "        ", evidence);
                    }
                }
                State::Unknown => {
                    if let Some(evidence) = &cause.evidence {
                        self.paragraph("      not seen: ", "        ", evidence);
                    }
                    if let Some(check) = &cause.check {
                        self.paragraph("      look: ", "        ", check);
                    }
                }
            }
            if let (State::Confirmed, Some(id)) = (cause.state, &cause.finding) {
                let _ = writeln!(self.text, "      more: gpudoctor explain {id}");
            }
        }
        let could = causes.iter().any(|cause| !cause.findings.is_empty());
        if could && !self.options.here {
            self.text
                .push_str("which of them it is on this machine: add --here\n");
        }
    }

    /// The other matches, a line each.
    fn brief(&mut self, others: &[Match]) {
        let parts = if self.readings {
            [
                ("it may also be:", true),
                ("it may also be, and then it is no fault:", false),
            ]
        } else {
            [
                ("also in it:", true),
                ("in it as well, and no fault:", false),
            ]
        };
        for (title, faults) in parts {
            let of_it: Vec<&Match> = others
                .iter()
                .filter(|m| (m.severity > Severity::Note) == faults)
                .collect();
            if of_it.is_empty() {
                continue;
            }
            let _ = write!(self.text, "\n{title}\n");
            for found in of_it.iter().take(IN_BRIEF) {
                let place = place(found)
                    .map(|place| format!("{place}: "))
                    .unwrap_or_default();
                let (label, said) = answer(found);
                let code = found
                    .code
                    .as_ref()
                    .map(|code| format!("{code}: "))
                    .unwrap_or_default();
                let code = if self.readings { code } else { String::new() };
                self.paragraph(
                    "  ",
                    "      ",
                    &format!("{place}{code}{label}{said} [{}]", found.id),
                );
            }
            if of_it.len() > IN_BRIEF {
                let _ = writeln!(
                    self.text,
                    "  and {} more: -v shows them",
                    of_it.len() - IN_BRIEF
                );
            }
        }
    }
}

/// Answers for a ticket.
pub fn markdown_text(answers: &[Answer], here: bool) -> String {
    let mut out = String::new();
    for answer in answers {
        match answer {
            // A page is Markdown as it stands.
            Answer::Page(page) => out.push_str(&page.whole()),
            Answer::Found { found, .. } => out.push_str(&in_markdown(found, here)),
            Answer::NoError(no_error) => {
                let _ = writeln!(out, "**no error**: {}", markdown(&no_error.text));
            }
            Answer::Nothing(nothing) => {
                let _ = writeln!(out, "{}", markdown(&nothing.text));
            }
        }
        out.push('\n');
    }
    if nothing_known(answers) {
        out.push_str(FOR_HELP.trim_start());
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

fn in_markdown(explanation: &Explanation, here: bool) -> String {
    let mut out = String::new();
    for found in &explanation.matches {
        let (label, said) = answer(found);
        let asked = found.asked.as_ref().map(|asked| format!("{asked}: "));
        let said = format!("{}{label}{said}", asked.unwrap_or_default());
        let _ = writeln!(out, "**{}**\n", markdown(&said));
        let _ = writeln!(
            out,
            "Complains: {}. At fault: {}. Known as {}.\n",
            found.complaining_layer,
            at_fault(&found.layers_at_fault),
            markdown_code(&found.id)
        );
        if let (Some(place), Some(text)) = (place(found), &found.text) {
            let _ = writeln!(out, "{}: {}\n", markdown(&place), markdown_code(text));
        }
        for line in &found.advice {
            let _ = writeln!(out, "- {}", markdown(line));
        }
        if !found.advice.is_empty() {
            out.push('\n');
        }
        for (index, fix) in found.fixes.iter().enumerate() {
            let _ = writeln!(
                out,
                "{}: {}\n",
                if index == 0 { "Fix" } else { "Or" },
                markdown(fix)
            );
        }
        out.push_str("Causes:\n\n");
        for cause in &found.causes {
            let state = match cause.state {
                State::Confirmed => "**confirmed**: ",
                State::RuledOut => "ruled out: ",
                State::Unknown if here => "could not be told: ",
                State::Unknown => "",
            };
            let _ = write!(out, "- {state}{}: {}", cause.layer, markdown(&cause.text));
            if let Some(evidence) = &cause.evidence {
                let _ = write!(out, " ({})", markdown(evidence));
            } else if let Some(check) = &cause.check {
                let _ = write!(out, " ({})", markdown(check));
            }
            out.push('\n');
        }
        let _ = writeln!(out, "\nSource: {}\n", markdown(&found.source));
    }
    out
}

/// The JSON Schema of an explanation.
pub fn schema() -> serde_json::Result<String> {
    serde_json::to_string_pretty(&schemars::schema_for!(Document<'static>)).map(|text| text + "\n")
}
