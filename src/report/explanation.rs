//! An explanation of an error for people, tickets and programs (`gpudoctor.explanation/1`). The first line is the answer:
//! the layer at fault, and what the error says.

use std::fmt::Write as _;

use owo_colors::{OwoColorize as _, Style};
use schemars::JsonSchema;
use serde::Serialize;

use super::escape::{markdown, markdown_code, terminal};
use super::json::escaped;
use super::text::wrapped;
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
    /// Whether the matches are ways to read one code, and not lines of a log.
    pub readings: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(title = "gpudoctor.explanation/1")]
struct Document<'a> {
    schema: &'static str,
    version: &'a str,
    matches: &'a [Match],
}

/// The explanation as JSON with a final newline.
pub fn json(explanation: &Explanation) -> serde_json::Result<String> {
    let document = Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        matches: &explanation.matches,
    };
    serde_json::to_string_pretty(&document).map(|text| escaped(&text) + "\n")
}

/// The layer at fault first, then what is said.
fn answer(found: &Match) -> (String, String) {
    let layer = found
        .layers_at_fault
        .first()
        .map_or("unknown", |layer| layer.id());
    let label = match found.severity {
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
    let more = if found.more { "more than " } else { "" };
    Some(match found.count {
        0 | 1 => format!("line {line}"),
        n => format!(
            "line {line}, and {more}{} more up to line {}",
            n - 1,
            found.line_end.unwrap_or(line)
        ),
    })
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

/// The explanation for a terminal or a log.
pub fn text(explanation: &Explanation, options: Options) -> String {
    let mut out = Writer {
        text: String::new(),
        options,
    };
    let full = if options.verbose { usize::MAX } else { IN_FULL };
    for (index, found) in explanation.matches.iter().take(full).enumerate() {
        if index > 0 {
            out.text.push('\n');
        }
        out.found(found);
    }
    out.brief(explanation.matches.get(full..).unwrap_or_default());
    out.text
}

struct Writer {
    text: String,
    options: Options,
}

impl Writer {
    fn paint(&self, text: &str, style: Style) -> String {
        if self.options.color {
            text.style(style).to_string()
        } else {
            text.to_owned()
        }
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
        if self.options.wrap_answer && !self.options.color {
            self.paragraph(&label, "  ", &said);
        } else {
            let label = self.paint(&label, style);
            let _ = writeln!(self.text, "{label}{}", terminal(&said));
        }
        let _ = writeln!(
            self.text,
            "complains: {}    at fault: {}",
            found.complaining_layer,
            at_fault(&found.layers_at_fault)
        );
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
        let parts = if self.options.readings {
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
                let code = if self.options.readings {
                    code
                } else {
                    String::new()
                };
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

/// The explanation for a ticket.
pub fn markdown_text(explanation: &Explanation, here: bool) -> String {
    let mut out = String::new();
    for found in &explanation.matches {
        let (label, said) = answer(found);
        let _ = writeln!(out, "**{}**\n", markdown(&format!("{label}{said}")));
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
