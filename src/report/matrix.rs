//! An answer of the matrix for a terminal, and as JSON (`gpudoctor.matrix/1`). The first line is the answer. What it
//! says and in which order is the answer's own business.

use std::fmt::Write as _;

use owo_colors::Style;
use serde::Serialize;

use super::json::MatrixOf;
use super::paragraph::{painted, wrapped};
use super::text::overlay_lines;
use crate::ask::{Answer, Cited, Way, Word};
use crate::matrix::{Confidence, Matrix};
use crate::report::escape::terminal;

/// The schema of an answer.
pub const SCHEMA: &str = "gpudoctor.matrix/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'a str,
    matrix: MatrixOf<'a>,
    #[serde(flatten)]
    answer: &'a Answer,
}

/// The answer as pretty-printed JSON with a final newline.
///
/// # Errors
/// Where serde fails, which nothing in an answer makes it do.
pub fn json(answer: &Answer, matrix: &Matrix) -> serde_json::Result<String> {
    let document = Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        matrix: matrix.into(),
        answer,
    };
    serde_json::to_string_pretty(&document).map(|text| text + "\n")
}

/// The answer as text; `width`: columns to wrap at.
pub fn text(answer: &Answer, matrix: &Matrix, width: usize, color: bool) -> String {
    let mut out = Writer {
        text: String::new(),
        width,
        color,
        cited: Vec::new(),
    };
    out.first_line(answer);
    if let (Some(layer), Some(why)) = (answer.layer, &answer.why_layer) {
        out.blank();
        out.paragraph("layer to change: ", "  ", &format!("{layer}: {why}"));
    } else if let Some(layer) = answer.layer {
        out.blank();
        out.paragraph("layer to change: ", "  ", layer.id());
    }
    out.list("why:", &answer.why);
    out.ways(&answer.ways);
    out.list("within limits:", &answer.limits);
    out.facts(answer);
    out.sources();
    out.blank();
    out.paragraph("matrix: ", "  ", &format!("as of {}", matrix.as_of()));
    for line in overlay_lines(matrix) {
        out.paragraph("matrix: ", "  ", &line);
    }
    out.text
}

struct Writer<'a> {
    text: String,
    width: usize,
    color: bool,
    /// What was cited so far, for the list of sources.
    cited: Vec<&'a Cited>,
}

impl<'a> Writer<'a> {
    fn paint(&self, text: &str, style: Style) -> String {
        painted(self.color, text, style)
    }

    fn paragraph(&mut self, first: &str, rest: &str, text: &str) {
        self.text.push_str(&wrapped(self.width, first, rest, text));
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }

    fn heading(&mut self, text: &str) {
        self.blank();
        let text = self.paint(text, Style::new().bold());
        let _ = writeln!(self.text, "{text}");
    }

    /// It is not wrapped, so that a log has it in one piece.
    fn first_line(&mut self, answer: &Answer) {
        let (label, style) = match answer.answer {
            Word::Yes => ("yes: ", Style::new().green().bold()),
            Word::No => ("no: ", Style::new().red().bold()),
            Word::Unknown => ("unknown: ", Style::new().yellow().bold()),
            Word::Known => ("", Style::new()),
        };
        let weak = match answer.confidence {
            Confidence::Secondary if answer.answer != Word::Known => " (by secondary sources)",
            _ => "",
        };
        let label = self.paint(label, style);
        let _ = writeln!(self.text, "{label}{}{weak}", terminal(&answer.summary));
    }

    /// The text with its row in brackets; the source follows at the end.
    fn told(&mut self, cited: &'a Cited) -> String {
        if !self.cited.contains(&cited) {
            self.cited.push(cited);
        }
        let weak = match cited.confidence {
            Confidence::Secondary => ", secondary",
            Confidence::Verified => "",
        };
        match &cited.row {
            Some(row) => format!("{} [{row}{weak}]", cited.text),
            None => format!("{} [rule{weak}]", cited.text),
        }
    }

    fn list(&mut self, heading: &str, all: &'a [Cited]) {
        if all.is_empty() {
            return;
        }
        self.heading(heading);
        for cited in all {
            let text = self.told(cited);
            self.paragraph("  - ", "    ", &text);
        }
    }

    fn ways(&mut self, ways: &'a [Way]) {
        if ways.is_empty() {
            return;
        }
        self.heading("ways out, best first:");
        let mut rank = 0;
        for way in ways {
            let cost = if way.cost.is_empty() {
                String::new()
            } else {
                format!(" [{}]", way.cost)
            };
            if way.open == Some(false) {
                let why = way.why_not.as_deref().unwrap_or_default();
                let text = format!("{} ({}): {why}", way.summary, way.layer);
                self.paragraph("  closed: ", "     ", &text);
                continue;
            }
            rank += 1;
            let text = format!("{}: {}{cost}", way.layer, way.summary);
            self.paragraph(&format!("  {rank}. "), "     ", &text);
            if let Some(why) = &way.why_not {
                self.paragraph("     on one condition: ", "     ", why);
            }
            if let Some(why) = &way.why_second {
                self.paragraph("     second best: ", "     ", why);
            }
            if let Some(how) = way.verify {
                self.paragraph("     then check: ", "     ", how);
            }
            for cited in &way.rows {
                let text = self.told(cited);
                self.paragraph("     - ", "       ", &text);
            }
        }
    }

    fn facts(&mut self, answer: &'a Answer) {
        if answer.facts.is_empty() {
            return;
        }
        self.blank();
        for fact in &answer.facts {
            let text = self.told(&fact.cited);
            self.paragraph(&format!("  {:<16} ", fact.what), &" ".repeat(19), &text);
        }
    }

    /// Each row once, with who says so.
    fn sources(&mut self) {
        let mut lines: Vec<String> = Vec::new();
        for cited in std::mem::take(&mut self.cited) {
            let confidence = match cited.confidence {
                Confidence::Verified => "verified",
                Confidence::Secondary => "secondary",
            };
            let row = cited.row.as_deref().unwrap_or("rule");
            let line = format!("{row}: {} ({confidence})", cited.source);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        if lines.is_empty() {
            return;
        }
        self.heading("sources:");
        for line in lines {
            self.paragraph("  ", "    ", &line);
        }
    }
}
