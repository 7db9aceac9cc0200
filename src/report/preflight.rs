//! What a preflight found, as text: the answer in the first line, the fix under it, then targets side by side, then the
//! findings. As JSON it is [`super::json::preflight`].

use std::collections::BTreeMap;
use std::fmt::Write as _;

use owo_colors::Style;

use super::escape::terminal;
use super::paragraph::{painted, wrapped};
use super::text::Options;
use crate::diagnosis::Status;
use crate::finding::{Finding, Severity};
use crate::preflight::{Artifact, BUILD_HOST, Preflight, key_on};

/// Artifacts without a fault that get a line of their own, where there are no more.
const FEW: usize = 6;
/// Findings of one id that are shown of a target without `-v`.
const OF_A_KIND: usize = 5;
/// Subjects of a finding that are listed.
const SUBJECTS: usize = 4;

/// The report.
pub fn text(found: &Preflight, options: Options) -> String {
    let mut out = Writer {
        text: String::new(),
        options,
    };
    let is_well = found.verdict.status == Status::Ok && found.notes.is_empty();
    if options.quiet && is_well {
        return String::new();
    }
    out.answer(found);
    out.table(found);
    out.unsaid(found);
    for target in &found.targets {
        let on = if found.targets.len() > 1 {
            format!(", on {}", target.name)
        } else {
            String::new()
        };
        out.findings(&target.findings, &target.unknown, &on);
    }
    if let Some(host) = &found.build_host {
        out.findings(&host.findings, &[], ", on this build host");
    }
    out.ignored(found);
    for note in &found.notes {
        out.wrapped("note: ", "  ", note);
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

    fn wrapped(&mut self, first: &str, rest: &str, text: &str) {
        self.text
            .push_str(&wrapped(self.options.width, first, rest, text));
    }

    fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// The verdict; it is not wrapped, so that a log has it in one piece. Then what mends it.
    fn answer(&mut self, found: &Preflight) {
        let verdict = &found.verdict;
        let (label, style) = match verdict.status {
            Status::Fault => ("", Style::new().red().bold()),
            Status::Warning => ("warning: ", Style::new().yellow().bold()),
            Status::Unknown => ("could not tell: ", Style::new().yellow().bold()),
            Status::Ok | Status::Absent => ("ok: ", Style::new().green().bold()),
        };
        let others = verdict.roots.len().saturating_sub(1);
        let others = match verdict.status {
            Status::Fault | Status::Warning if others > 0 => format!(" (and {others} more)"),
            _ => String::new(),
        };
        // Where it is a fault the target's name is the label.
        let (label, summary) = match (verdict.status, verdict.summary.split_once(": ")) {
            (Status::Fault, Some((target, rest))) => (format!("{target}: "), rest),
            _ => (label.to_owned(), verdict.summary.as_str()),
        };
        let label = self.paint(&terminal(&label), style);
        let as_far = if verdict.status == Status::Ok
            && found.targets.iter().any(|target| !target.unsaid.is_empty())
        {
            ", as far as they are described"
        } else {
            ""
        };
        let _ = writeln!(self.text, "{label}{}{as_far}{others}", terminal(summary));
        let root = found.targets.iter().find_map(|target| {
            let key = verdict.key.as_deref()?;
            let mut findings = target.findings.iter();
            findings.find(|f| key_on(&f.key, &target.name) == key)
        });
        let of_build = || {
            let key = verdict.key.as_deref()?;
            let host = found.build_host.as_ref()?;
            let mut findings = host.findings.iter();
            findings.find(|f| key_on(&f.key, BUILD_HOST) == key)
        };
        let root = root.or_else(of_build);
        if let Some(root) = root {
            self.fixes("", root);
        }
    }

    fn fixes(&mut self, indent: &str, finding: &Finding) {
        for (index, fix) in finding.fixes.iter().enumerate() {
            let cost = if fix.cost.is_empty() {
                String::new()
            } else {
                format!(" [{}]", fix.cost)
            };
            let first = if index == 0 { "fix: " } else { "or:  " };
            self.wrapped(
                &format!("{indent}{first}"),
                &format!("{indent}     "),
                &format!("{}{cost}", fix.summary),
            );
            if let Some(why) = &fix.why_second {
                let indent = format!("{indent}     ");
                self.wrapped(&indent, &indent, &format!("second best: {why}"));
            }
        }
    }

    /// Artifacts down, targets across.
    fn table(&mut self, found: &Preflight) {
        let is_well = |artifact: &&Artifact| artifact.on.iter().all(|s| *s == Status::Ok);
        let wells = found.artifacts.iter().filter(is_well).count();
        let shows_all = self.options.verbose || found.artifacts.len() <= FEW;
        let shown: Vec<&Artifact> = found
            .artifacts
            .iter()
            .filter(|artifact| shows_all || !is_well(artifact))
            .collect();
        if shown.is_empty() || found.targets.is_empty() {
            return;
        }
        self.blank();
        let names: Vec<String> = found
            .targets
            .iter()
            .map(|t| terminal(&t.name).into_owned())
            .collect();
        let paths: Vec<String> = shown
            .iter()
            .map(|a| terminal(&a.path).into_owned())
            .collect();
        let width = |text: &str| text.chars().count();
        let first = paths.iter().map(|path| width(path)).max().unwrap_or(0);
        let mut head = " ".repeat(first);
        for name in &names {
            let _ = write!(head, "  {name:<9}");
        }
        let _ = writeln!(self.text, "{}", head.trim_end());
        for (artifact, path) in shown.iter().zip(&paths) {
            let mut line = format!("{path}{}", " ".repeat(first - width(path)));
            for (state, name) in artifact.on.iter().zip(&names) {
                let (word, style) = match state {
                    Status::Ok if artifact.judged == 0 => ("-", Style::new()),
                    Status::Ok => ("ok", Style::new().green()),
                    Status::Absent => ("-", Style::new()),
                    Status::Warning => ("warning", Style::new().yellow()),
                    Status::Fault => ("FAULT", Style::new().red().bold()),
                    Status::Unknown => ("unknown", Style::new().yellow()),
                };
                let room = width(name).max(9).saturating_sub(word.len());
                let _ = write!(line, "  {}{}", self.paint(word, style), " ".repeat(room));
            }
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
        if !shows_all && wells > 0 {
            let _ = writeln!(self.text, "{wells} more: ok on all");
        }
    }

    /// What each target is, and what of it is not said.
    fn unsaid(&mut self, found: &Preflight) {
        if self.options.quiet {
            return;
        }
        for target in &found.targets {
            let unsaid = match target.unsaid.as_slice() {
                [] => String::new(),
                parts => format!(" (no {} said, so not judged)", parts.join(", no ")),
            };
            let line = format!("{}: {}{unsaid}", target.name, target.described);
            self.wrapped("", "  ", &line);
        }
        if let Some(host) = &found.build_host {
            self.wrapped("", "  ", &format!("{BUILD_HOST}: {}", host.described));
        }
    }

    fn findings(&mut self, findings: &[Finding], unknown: &[String], on: &str) {
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in findings {
            let of_kind = count.entry(&finding.id).or_default();
            *of_kind += 1;
            if *of_kind > OF_A_KIND && !self.options.verbose {
                continue;
            }
            let is_note = finding.severity == Severity::Note;
            if is_note && !self.options.verbose {
                continue;
            }
            self.blank();
            let style = match finding.severity {
                Severity::Error => Style::new().red().bold(),
                Severity::Warning => Style::new().yellow().bold(),
                Severity::Note => Style::new().cyan().bold(),
            };
            let head = format!(
                "{} in {}: {}{on}",
                finding.severity.id(),
                finding.layer,
                finding.id
            );
            let head = self.paint(&terminal(&head), style);
            let _ = writeln!(self.text, "{head}");
            self.wrapped("  ", "  ", &finding.title);
            if !finding.detail.is_empty() {
                self.wrapped("  ", "  ", &finding.detail);
            }
            for evidence in &finding.evidence {
                let line = format!(
                    "{}: {} [{}]",
                    evidence.what, evidence.value, evidence.source
                );
                self.wrapped("    - ", "      ", &line);
            }
            let others = finding.subjects.len();
            if others > 1 {
                let of = |subject: &String| {
                    let path = subject.rsplit_once(" for ").map(|(_, path)| path);
                    path.unwrap_or(subject).to_owned()
                };
                let mut list: Vec<String> =
                    finding.subjects.iter().take(SUBJECTS).map(of).collect();
                if others > SUBJECTS {
                    list.push(format!("{} more", others - SUBJECTS));
                }
                self.wrapped("    - of: ", "      ", &list.join(", "));
            }
            self.fixes("  ", finding);
            if self.options.verbose {
                for source in &finding.sources {
                    self.wrapped("  source: ", "    ", source);
                }
            }
        }
        for (id, more) in count {
            if more > OF_A_KIND && !self.options.verbose {
                let line = format!("{} more of {id}{on}: -v shows them", more - OF_A_KIND);
                self.blank();
                self.wrapped("", "  ", &line);
            }
        }
        if !unknown.is_empty() {
            self.blank();
        }
        for unknown in unknown {
            self.wrapped(&format!("could not tell{on}: "), "  ", unknown);
        }
    }

    fn ignored(&mut self, found: &Preflight) {
        if self.options.quiet {
            return;
        }
        let mut before: Option<(&str, &str)> = None;
        for ignored in &found.ignored {
            let this = (ignored.finding.key.as_str(), ignored.reason.as_str());
            if before.replace(this) == Some(this) {
                continue;
            }
            let until = ignored.expires.as_ref();
            let until = until.map_or(String::new(), |day| format!(", until {day}"));
            let line = format!("{} ({}{until})", ignored.finding.title, ignored.reason);
            self.wrapped("ignored: ", "  ", &line);
        }
    }
}
