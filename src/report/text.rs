//! The report for a terminal or a log: the answer in the first line, then the fix, then the stack in walking order, then
//! the details of what is not healthy. Plain ASCII but for what the host's own strings hold; colour repeats what the
//! words say and never carries meaning alone.

use std::fmt::Write as _;

use owo_colors::Style;

use super::escape::terminal;
use super::paragraph::{painted, wrap, wrapped};
use super::{Report, copies};
use crate::diagnosis::{LayerState, Status};
use crate::facts::Calls;
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::matrix::Matrix;
use crate::sysroot::file_name;

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
    /// Whether the answer is wrapped like the rest, for somebody at a terminal. In a log it stays one line.
    pub wrap_answer: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            width: 80,
            color: false,
            verbose: false,
            quiet: false,
            wrap_answer: false,
        }
    }
}

/// Pieces of evidence shown without `-v`.
const EVIDENCE_SHOWN: usize = 8;
/// Characters of a value shown without `-v`: a line of a log, a search path.
const VALUE_SHOWN: usize = 300;
/// Columns before what is said of a layer: "  affected application ".
const STACK_INDENT: usize = 24;
/// Kinds of errors of a log that are told unless all are asked for.
const SYMPTOMS: usize = 6;

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
    out.symptoms(report);
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
    if !options.quiet {
        out.ignored(report);
    }
    out.text
}

struct Writer {
    text: String,
    options: Options,
}

impl Writer {
    fn paint(&self, text: &str, style: Style) -> String {
        painted(self.options.color, text, style)
    }

    /// Wraps a paragraph: the first line after `first`, the others after `rest`.
    fn paragraph(&mut self, first: &str, rest: &str, text: &str) {
        self.text
            .push_str(&wrapped(self.options.width, first, rest, text));
    }

    fn blank(&mut self) {
        self.text.push('\n');
    }

    /// The first line.
    fn answer(&mut self, report: &Report<'_>) {
        let verdict = &report.diagnosis.verdict;
        let style = match verdict.status {
            Status::Fault => Style::new().red().bold(),
            Status::Warning | Status::Unknown => Style::new().yellow().bold(),
            _ => Style::new().green().bold(),
        };
        let label = verdict.label();
        let text = verdict.answer();
        if self.options.wrap_answer {
            // Wrapped with the label as it is read, without what colours it.
            let lines = wrap(&text, self.options.width, &label, "  ");
            for (index, line) in lines.iter().enumerate() {
                let indent = if index == 0 {
                    self.paint(&label, style)
                } else {
                    "  ".to_owned()
                };
                let _ = writeln!(self.text, "{indent}{line}");
            }
        } else {
            let label = self.paint(&label, style);
            let _ = writeln!(self.text, "{label}{}", terminal(&text));
        }
    }

    /// What the log of `--log` says, and what causes it.
    fn symptoms(&mut self, report: &Report<'_>) {
        let Some(log) = report.log else { return };
        self.blank();
        if report.symptoms.is_empty() {
            self.paragraph("log: ", "     ", &log.without_symptom());
        }
        let most = if self.options.verbose {
            usize::MAX
        } else {
            SYMPTOMS
        };
        for symptom in report.symptoms.iter().take(most) {
            let text = brief(&symptom.text, self.options.verbose);
            self.paragraph(&format!("log, {}: ", symptom.place()), "     ", &text);
            let cause = match &symptom.explained_by {
                Some(key) => format!("follows from {key}: {}", symptom.meaning),
                None => format!(
                    "{} (nothing found here explains it): gpudoctor explain {}",
                    symptom.meaning, symptom.entry
                ),
            };
            self.paragraph("     ", "     ", &cause);
        }
        if let Some(more) = report.symptoms.len().checked_sub(most).filter(|n| *n > 0) {
            let _ = writeln!(
                self.text,
                "log: and {more} more kinds of errors: -v shows them"
            );
        }
    }

    fn fixes(&mut self, finding: &Finding) {
        for (index, fix) in finding.fixes.iter().enumerate() {
            self.blank();
            self.fix("", index, fix);
        }
    }

    /// One way to mend it, the best with another label than the others.
    fn fix(&mut self, indent: &str, index: usize, fix: &Fix) {
        let label = if index == 0 { "fix: " } else { "or:  " };
        let rest = format!("{indent}     ");
        let summary = fix.summary.strip_prefix("or ").unwrap_or(&fix.summary);
        self.paragraph(&format!("{indent}{label}"), &rest, summary);
        for command in &fix.commands {
            // A command is never wrapped: it is there to be copied.
            let line = format!("{rest}  {}", terminal(command));
            let line = self.paint(&line, Style::new().bold());
            let _ = writeln!(self.text, "{line}");
        }
        for (what, text) in [
            (
                "needs: ",
                Some(fix.cost.as_str()).filter(|cost| !cost.is_empty()),
            ),
            ("second best: ", fix.why_second.as_deref()),
            ("then check: ", fix.verify.as_deref()),
        ] {
            if let Some(text) = text {
                self.paragraph(&format!("{rest}{what}"), &rest, text);
            }
        }
    }

    fn examined(&mut self, report: &Report<'_>) {
        let consumer = &report.facts.consumer;
        self.blank();
        self.paragraph(
            "examined: ",
            "          ",
            &format!("{} ({})", consumer.what, consumer.why),
        );
        for other in &consumer.also_found {
            let prefix = other.split(" (").next().unwrap_or(other);
            self.paragraph(
                "also found: ",
                "            ",
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
            self.layer(report, state);
            if self.options.verbose {
                let indent = " ".repeat(STACK_INDENT);
                for line in copies::lines(report.facts, state.layer) {
                    self.paragraph(&indent, &format!("{indent}  "), &line);
                }
            }
        }
        let limit = match report.facts.scope.calls {
            Calls::Forbidden => {
                Some("told from files alone: no vendor library was called (--static or --root)")
            }
            Calls::Asleep => Some(
                "told from files alone: the GPU sleeps, and starting CUDA would wake it (--probe does)",
            ),
            Calls::Made | Calls::NoDriver => None,
        };
        if let Some(limit) = limit {
            self.paragraph("  ", "    ", limit);
        }
        let not_seen = &report.diagnosis.not_seen;
        if self.options.verbose {
            for reason in not_seen {
                self.paragraph("  not seen: ", "            ", reason);
            }
        } else if !not_seen.is_empty() {
            let things = if not_seen.len() == 1 {
                "1 thing".to_owned()
            } else {
                format!("{} things", not_seen.len())
            };
            self.paragraph("  not seen: ", "    ", &format!("{things}, listed with -v"));
        }
    }

    /// One layer: its state, its name, what is there.
    fn layer(&mut self, report: &Report<'_>, state: &LayerState) {
        let (word, style) = match state.status {
            // What follows from a fault elsewhere is not a fault of its own, and not well either.
            Status::Ok | Status::Absent | Status::Fault if only_suffers(report, state) => {
                ("affected", Style::new().yellow())
            }
            Status::Ok => ("ok", Style::new().green()),
            Status::Fault => ("FAULT", Style::new().red().bold()),
            Status::Warning => ("warning", Style::new().yellow()),
            Status::Absent => ("-", Style::new().dimmed()),
            Status::Unknown => ("?", Style::new().yellow()),
        };
        let word = self.paint(&format!("{word:<8}"), style);
        let summary = brief(&state.summary, self.options.verbose);
        let text = match &state.reason {
            Some(reason) if state.status == Status::Unknown => {
                format!("{summary} (could not tell: {reason})")
            }
            _ => summary,
        };
        let indent = " ".repeat(STACK_INDENT);
        for (index, line) in wrap(&text, self.options.width, &indent, &indent)
            .iter()
            .enumerate()
        {
            let line = if index == 0 {
                format!("  {word} {:<12} {line}", state.layer)
            } else {
                format!("{indent}{line}")
            };
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
    }

    /// Each root cause with what it explains, then the notes.
    /// What was found and does not count, since the caller said so.
    fn ignored(&mut self, report: &Report<'_>) {
        for finding in &report.diagnosis.ignored {
            self.blank();
            self.paragraph(
                "ignored on request: ",
                "    ",
                &format!("{} [{}]", finding.title, finding.key),
            );
        }
    }

    fn details(&mut self, report: &Report<'_>) {
        let findings = &report.diagnosis.findings;
        for finding in findings {
            let follows = finding.caused_by.is_some();
            let skipped = if finding.severity == Severity::Note {
                self.options.quiet || follows && !self.options.verbose
            } else {
                follows && !self.options.verbose
            };
            if skipped {
                continue;
            }
            let is_root = report.diagnosis.verdict.key.as_ref() == Some(&finding.key);
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
            format!(", seen in {}", finding.complaining_layer)
        };
        let head = format!(
            "{} in {}{seen}: {}",
            finding.severity.id(),
            finding.layer,
            finding.id
        );
        let head = self.paint(&head, style);
        let _ = writeln!(self.text, "{head}");
        // The title of the root is the report's first line.
        if !is_root {
            self.paragraph("  ", "  ", &finding.title);
        }
        if let Some(cause) = finding
            .caused_by
            .as_ref()
            .and_then(|key| all.iter().find(|f| f.key == *key))
        {
            self.paragraph(
                "  follows from: ",
                "    ",
                &format!("{} ({})", cause.id, cause.layer),
            );
        }
        let full = finding.caused_by.is_none() && finding.severity > Severity::Note;
        if full || self.options.verbose {
            if !finding.detail.is_empty() {
                self.paragraph("  ", "  ", &finding.detail);
            }
            self.all_evidence(finding);
        }
        if !self.options.verbose {
            self.consequences(finding, all);
        }
        if !is_root && full {
            for (index, fix) in finding.fixes.iter().enumerate() {
                self.fix("  ", index, fix);
            }
        }
        if full || self.options.verbose {
            let _ = writeln!(self.text, "  more: gpudoctor explain {}", finding.id);
        }
    }

    /// What follows from a finding, one line each.
    fn consequences(&mut self, finding: &Finding, all: &[Finding]) {
        let mut keys = vec![finding.key.as_str()];
        // Followers stand after what they follow from, so that one pass finds those of followers too.
        for follower in all {
            let Some(cause) = follower.caused_by.as_deref() else {
                continue;
            };
            if keys.contains(&cause) && follower.severity > Severity::Note {
                keys.push(&follower.key);
                self.paragraph(
                    "  hence: ",
                    "         ",
                    &format!("{} [{}]", follower.title, follower.id),
                );
            }
        }
    }

    fn all_evidence(&mut self, finding: &Finding) {
        let shown = if self.options.verbose {
            usize::MAX
        } else {
            EVIDENCE_SHOWN
        };
        for (index, evidence) in finding.evidence.iter().take(shown).enumerate() {
            let before = finding.evidence.get(..index).unwrap_or_default();
            self.evidence(evidence, before, &finding.evidence);
        }
        if finding.evidence.len() > shown {
            let _ = writeln!(
                self.text,
                "    - {} more with -v",
                finding.evidence.len() - shown
            );
        }
    }

    /// One piece of evidence: what, value, and where it was read, in the same line where it fits.
    fn evidence(&mut self, evidence: &Evidence, before: &[Evidence], all: &[Evidence]) {
        let value = brief(&evidence.value, self.options.verbose);
        let text = format!("{}: {value}", evidence.what);
        let source = if self.options.verbose {
            Some(evidence.source.as_str())
        } else {
            source_once(evidence, before, all)
        };
        let Some(source) = source.filter(|s| !s.is_empty()) else {
            self.paragraph("    - ", "      ", &text);
            return;
        };
        let line = format!("{text} [{source}]");
        if wrap(&line, self.options.width, "    - ", "      ").len() == 1 {
            self.paragraph("    - ", "      ", &line);
        } else {
            self.paragraph("    - ", "      ", &text);
            self.paragraph("      ", "      ", &format!("[{source}]"));
        }
    }
}

/// Whether what is broken in this layer follows from other faults.
fn only_suffers(report: &Report<'_>, state: &LayerState) -> bool {
    let errors = report
        .diagnosis
        .findings
        .iter()
        .filter(|f| f.layer == state.layer && f.severity == Severity::Error);
    let (follow, roots): (Vec<_>, Vec<_>) = errors.partition(|f| f.caused_by.is_some());
    roots.is_empty() && !follow.is_empty()
}

/// Where a piece of evidence was read, without what the lines before it say: `None` where the value is that very path,
/// the file's name alone where the whole path stands before and no other file of that name is meant.
fn source_once<'a>(
    evidence: &'a Evidence,
    before: &[Evidence],
    all: &[Evidence],
) -> Option<&'a str> {
    let source = evidence.source.as_str();
    if !source.starts_with('/') || source.contains(' ') {
        return Some(source);
    }
    if evidence.value == source {
        return None;
    }
    let name = file_name(source);
    // A name such as `version` says nothing without its folder.
    let told = name.contains('.') && before.iter().any(|e| e.source == source);
    let same_name = |e: &&Evidence| file_name(&e.source) == name && e.source != source;
    Some(if told && !all.iter().any(|e| same_name(&e)) {
        name
    } else {
        source
    })
}

/// The beginning of a text that is too long to be read, unless all was asked for.
fn brief(text: &str, all: bool) -> String {
    match text.char_indices().nth(VALUE_SHOWN) {
        Some((end, _)) if !all => {
            let more = text.chars().count() - VALUE_SHOWN;
            let start = text.get(..end).unwrap_or_default();
            format!("{start}... ({more} characters more with -v)")
        }
        _ => text.to_owned(),
    }
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
