//! The report for a terminal or a log: the answer in the first line, then the fix, then the stack in walking order, then
//! the details of what is not healthy. Plain ASCII but for what the host's own strings hold; colour repeats what the
//! words say and never carries meaning alone.

use std::fmt::Write as _;

use owo_colors::{OwoColorize as _, Style};

use super::Report;
use super::escape::terminal;
use crate::diagnosis::Status;
use crate::facts::{Calls, Layer};
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::Matrix;

/// How a text report is laid out.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Columns to wrap at.
    pub width: usize,
    /// Whether escape sequences for colour are written.
    pub color: bool,
    /// All evidence of all findings, notes included.
    pub verbose: bool,
    /// Only what is wrong.
    pub quiet: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            width: 80,
            color: false,
            verbose: false,
            quiet: false,
        }
    }
}

/// Pieces of evidence shown without `-v`.
const EVIDENCE_SHOWN: usize = 8;

/// The report.
pub fn render(report: &Report<'_>, options: Options) -> String {
    let mut out = Writer {
        text: String::new(),
        options,
    };
    if options.quiet && report.diagnosis.verdict.status == Status::Ok {
        return String::new();
    }
    out.answer(report);
    if let Some(root) = report
        .diagnosis
        .verdict
        .key
        .as_ref()
        .and_then(|key| report.diagnosis.findings.iter().find(|f| f.key == *key))
    {
        out.fixes(root);
    }
    if !options.quiet {
        out.examined(report);
    }
    out.overlays(report);
    if !options.quiet {
        out.stack(report);
    }
    out.details(report);
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

    /// Wraps a paragraph: the first line after `first`, the others after `rest`.
    fn paragraph(&mut self, first: &str, rest: &str, text: &str) {
        self.text
            .push_str(&wrapped(self.options.width, first, rest, text));
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }

    /// The first line. It is not wrapped, so that a log has it in one piece.
    fn answer(&mut self, report: &Report<'_>) {
        let verdict = &report.diagnosis.verdict;
        let (label, style) = match (verdict.status, verdict.layer) {
            (Status::Fault, Some(layer)) => (format!("{layer}: "), Style::new().red().bold()),
            (Status::Warning, Some(layer)) => {
                (format!("warning: {layer}: "), Style::new().yellow().bold())
            }
            (Status::Unknown, _) => ("could not tell: ".to_owned(), Style::new().yellow().bold()),
            _ if verdict.summary.starts_with("no GPU here") => {
                (String::new(), Style::new().green().bold())
            }
            _ => ("ok: ".to_owned(), Style::new().green().bold()),
        };
        // The layer's name stands before the colon: "driver: 535.104.05 is too old", not "driver: driver 535.104.05".
        let summary = verdict
            .layer
            .and_then(|layer| verdict.summary.strip_prefix(&format!("{layer} ")))
            .unwrap_or(&verdict.summary);
        let others = match verdict.roots.len().saturating_sub(1) {
            _ if !matches!(verdict.status, Status::Fault | Status::Warning) => String::new(),
            0 => String::new(),
            1 => " (and 1 more independent fault)".to_owned(),
            n => format!(" (and {n} more independent faults)"),
        };
        let label = self.paint(&label, style);
        let _ = writeln!(self.text, "{label}{}{others}", terminal(summary));
    }

    fn fixes(&mut self, finding: &Finding) {
        for (index, fix) in finding.fixes.iter().enumerate() {
            self.blank();
            self.fix(if index == 0 { "fix: " } else { "or:  " }, fix);
        }
    }

    fn fix(&mut self, label: &str, fix: &Fix) {
        let cost = if fix.cost.is_empty() {
            String::new()
        } else {
            format!(" [{}]", fix.cost)
        };
        let summary = fix.summary.strip_prefix("or ").unwrap_or(&fix.summary);
        self.paragraph(label, "     ", &format!("{summary}{cost}"));
        for command in &fix.commands {
            // A command is never wrapped: it is there to be copied.
            let line = format!("       {}", terminal(command));
            let line = self.paint(&line, Style::new().bold());
            let _ = writeln!(self.text, "{line}");
        }
        if let Some(why) = &fix.why_second {
            self.paragraph("     second best: ", "     ", why);
        }
        if let Some(how) = &fix.verify {
            self.paragraph("     then check: ", "     ", how);
        }
    }

    fn examined(&mut self, report: &Report<'_>) {
        let consumer = &report.facts.consumer;
        self.blank();
        self.paragraph(
            "examined: ",
            "     ",
            &format!("{} ({})", consumer.what, consumer.why),
        );
        for other in &consumer.also_found {
            let prefix = other.split(" (").next().unwrap_or(other);
            self.paragraph(
                "also found: ",
                "     ",
                &format!(
                    "{other}: gpudoctor --python-env {}",
                    crate::finding::shell_quote(prefix)
                ),
            );
        }
        if report.facts.scope.sudo.value() == Some(&true) {
            self.paragraph(
                "note: ",
                "     ",
                "started through sudo: this is root's environment, not yours",
            );
        }
    }

    /// Rows that are not gpudoctor's own decide with: whoever reads the report has to know.
    fn overlays(&mut self, report: &Report<'_>) {
        for line in overlay_lines(report.matrix) {
            self.paragraph("matrix: ", "     ", &line);
        }
    }

    fn stack(&mut self, report: &Report<'_>) {
        self.blank();
        for state in &report.diagnosis.layers {
            let (word, style) = match state.status {
                Status::Ok => ("ok", Style::new().green()),
                Status::Fault => ("FAULT", Style::new().red().bold()),
                Status::Warning => ("warning", Style::new().yellow()),
                Status::Absent => ("-", Style::new().dimmed()),
                Status::Unknown => ("?", Style::new().yellow()),
            };
            let word = self.paint(&format!("{word:<8}"), style);
            let text = match &state.reason {
                Some(reason)
                    if state.status == Status::Unknown && state.summary != "not examined" =>
                {
                    format!("{} (could not tell: {reason})", state.summary)
                }
                _ => state.summary.clone(),
            };
            let first = format!("  {word}{:<12} ", state.layer);
            // The label's width without what colours it.
            let indent = " ".repeat(23);
            let wrapped = textwrap::wrap(
                &terminal(&text),
                textwrap::Options::new(self.options.width.saturating_sub(23).max(20))
                    .word_separator(textwrap::WordSeparator::AsciiSpace)
                    .word_splitter(textwrap::WordSplitter::NoHyphenation)
                    .break_words(false),
            )
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>();
            let _ = writeln!(
                self.text,
                "{}",
                format!("{first}{}", wrapped.first().map_or("", String::as_str)).trim_end()
            );
            for line in wrapped.iter().skip(1) {
                let _ = writeln!(self.text, "{indent}{line}");
            }
        }
        if report.facts.scope.calls == Calls::Forbidden {
            self.paragraph(
                "  ",
                "  ",
                "no vendor library was called (--static, --root)",
            );
        }
        if self.options.verbose {
            for reason in &report.diagnosis.not_seen {
                self.paragraph("  not seen: ", "      ", reason);
            }
        }
    }

    fn details(&mut self, report: &Report<'_>) {
        let findings = &report.diagnosis.findings;
        for finding in findings {
            let is_root = report.diagnosis.verdict.key.as_ref() == Some(&finding.key);
            if finding.severity == Severity::Note
                && (self.options.quiet || !self.options.verbose && finding.caused_by.is_some())
            {
                continue;
            }
            self.blank();
            self.finding(finding, findings, is_root);
        }
    }

    fn finding(&mut self, finding: &Finding, all: &[Finding], is_root: bool) {
        let style = match finding.severity {
            Severity::Error => Style::new().red().bold(),
            Severity::Warning => Style::new().yellow().bold(),
            Severity::Note => Style::new().cyan().bold(),
        };
        let seen = if finding.complaining_layer == finding.layer {
            String::new()
        } else {
            format!(
                ", seen as trouble in the {} layer",
                finding.complaining_layer
            )
        };
        let head = format!(
            "{} in {}: {}{seen}",
            finding.severity.id(),
            layer_word(finding.layer),
            finding.id
        );
        let head = self.paint(&head, style);
        let _ = writeln!(self.text, "{head}");
        self.paragraph("  ", "  ", &finding.title);
        if let Some(cause) = finding
            .caused_by
            .as_ref()
            .and_then(|key| all.iter().find(|f| f.key == *key))
        {
            self.paragraph(
                "  follows from: ",
                "      ",
                &format!("{} ({})", cause.id, cause.layer),
            );
        }
        let brief = finding.caused_by.is_some() || finding.severity == Severity::Note;
        if !finding.detail.is_empty() && (!brief || self.options.verbose) {
            self.paragraph("  ", "  ", &finding.detail);
        }
        if !brief || self.options.verbose {
            let shown = if self.options.verbose {
                usize::MAX
            } else {
                EVIDENCE_SHOWN
            };
            for evidence in finding.evidence.iter().take(shown) {
                self.paragraph(
                    "    - ",
                    "      ",
                    &format!(
                        "{}: {} [{}]",
                        evidence.what, evidence.value, evidence.source
                    ),
                );
            }
            if finding.evidence.len() > shown {
                let _ = writeln!(
                    self.text,
                    "    - {} more with -v",
                    finding.evidence.len() - shown
                );
            }
        }
        if !is_root && !brief {
            for (index, fix) in finding.fixes.iter().enumerate() {
                self.fix(if index == 0 { "fix: " } else { "or:  " }, fix);
            }
        }
        if !brief || self.options.verbose {
            let _ = writeln!(self.text, "  more: gpudoctor explain {}", finding.id);
        }
    }
}

/// A paragraph at most `width` columns wide: the first line after `first`, the others after `rest`. What the text holds
/// is shown, never acted on.
pub(super) fn wrapped(width: usize, first: &str, rest: &str, text: &str) -> String {
    let options = textwrap::Options::new(width)
        .initial_indent(first)
        .subsequent_indent(rest)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::wrap(&terminal(text), options)
        .iter()
        .fold(String::new(), |mut out, line| {
            let _ = writeln!(out, "{}", line.trim_end());
            out
        })
}

/// One line for each file that was added to the bundled matrix.
pub(super) fn overlay_lines(matrix: &Matrix) -> impl Iterator<Item = String> {
    matrix.overlays().iter().map(|overlay| {
        let plural = if overlay.rows == 1 { "" } else { "s" };
        format!(
            "{} row{plural} of {} (sha256 {}) added to the bundled tables",
            overlay.rows, overlay.path, overlay.sha256
        )
    })
}

/// A layer in a sentence.
fn layer_word(layer: Layer) -> &'static str {
    layer.id()
}
