//! The report for a ticket: verdict first, a table of the layers, the findings, and the facts folded away.
//!
//! It renders on code forges, and is pasted as it is: below the 65,536 characters that the largest of them take, with
//! nothing private in it (the facts were redacted before) and nothing in it that a forge would act on.

use std::fmt::Write as _;

use super::Report;
use super::escape::{html, markdown, markdown_code};
use crate::diagnosis::Status;
use crate::finding::{Finding, Fix, Severity};

/// The most characters of a report. A ticket has room for some words besides.
pub const MOST_CHARACTERS: usize = 60_000;
/// The most pieces of evidence of one finding; a ticket is read by people.
const EVIDENCE_SHOWN: usize = 20;

/// The report.
pub fn render(report: &Report<'_>) -> String {
    let mut out = String::new();
    head(&mut out, report);
    layers(&mut out, report);
    for finding in &report.diagnosis.findings {
        let room = MOST_CHARACTERS / 2;
        let before = out.len();
        self::finding(&mut out, finding, &report.diagnosis.findings);
        if out.chars().count() > room {
            out.truncate(before);
            out.push_str("\nMore findings are in `gpudoctor --format json`.\n");
            break;
        }
    }
    if !report.diagnosis.ignored.is_empty() {
        let ids: Vec<String> = report
            .diagnosis
            .ignored
            .iter()
            .map(|f| markdown_code(&f.key))
            .collect();
        let _ = writeln!(out, "\nIgnored on request: {}\n", ids.join(", "));
    }
    facts(&mut out, report);
    out
}

fn head(out: &mut String, report: &Report<'_>) {
    let verdict = &report.diagnosis.verdict;
    let _ = writeln!(
        out,
        "**{}{}**\n",
        verdict.label(),
        markdown(&verdict.answer())
    );
    let root = verdict
        .key
        .as_ref()
        .and_then(|key| report.diagnosis.findings.iter().find(|f| f.key == *key));
    for (index, fix) in root.into_iter().flat_map(|f| &f.fixes).enumerate() {
        self::fix(out, if index == 0 { "Fix" } else { "Or" }, fix);
    }
    if let Some(log) = report.log.filter(|_| report.symptoms.is_empty()) {
        let _ = writeln!(out, "Log: {}\n", log.without_symptom());
    }
    for symptom in report.symptoms {
        let cause = match &symptom.explained_by {
            Some(key) => format!("follows from {}", markdown_code(key)),
            None => "nothing found here explains it".to_owned(),
        };
        let _ = writeln!(
            out,
            "Log, {}: {}\n\n- {}: {cause}\n",
            symptom.place(),
            markdown_code(&symptom.text),
            markdown(&symptom.meaning)
        );
    }
    let facts = report.facts;
    let _ = writeln!(
        out,
        "Examined: {} ({}), taken {} by gpudoctor {}, compatibility matrix of {}\n",
        markdown(&facts.consumer.what),
        markdown(&facts.consumer.why),
        markdown(&facts.taken_at),
        markdown(&facts.version),
        markdown(report.matrix.as_of())
    );
}

fn layers(out: &mut String, report: &Report<'_>) {
    out.push_str("| layer | state | what is there |\n|---|---|---|\n");
    for state in &report.diagnosis.layers {
        let status = match state.status {
            Status::Fault => "**FAULT**",
            other => other.id(),
        };
        let reason = state
            .reason
            .as_ref()
            .map_or_else(String::new, |reason| format!(" ({})", markdown(reason)));
        let _ = writeln!(
            out,
            "| {} | {status} | {}{reason} |",
            state.layer,
            markdown(&state.summary)
        );
    }
    out.push('\n');
}

fn fix(out: &mut String, label: &str, fix: &Fix) {
    let cost = if fix.cost.is_empty() {
        String::new()
    } else {
        format!(" \\[{}\\]", markdown(&fix.cost))
    };
    let summary = fix.summary.strip_prefix("or ").unwrap_or(&fix.summary);
    let _ = writeln!(out, "{label}: {}{cost}\n", markdown(summary));
    for command in &fix.commands {
        let _ = writeln!(out, "- {}", markdown_code(command));
    }
    if let Some(why) = &fix.why_second {
        let _ = writeln!(out, "- second best: {}", markdown(why));
    }
    if let Some(how) = &fix.verify {
        let _ = writeln!(out, "- then check: {}", markdown_code(how));
    }
    if !fix.commands.is_empty() || fix.why_second.is_some() || fix.verify.is_some() {
        out.push('\n');
    }
}

fn finding(out: &mut String, finding: &Finding, all: &[Finding]) {
    let _ = writeln!(
        out,
        "### {}: {} in {}\n",
        finding.severity.id(),
        markdown_code(&finding.id),
        finding.layer
    );
    let _ = writeln!(out, "{}\n", markdown(&finding.title));
    if let Some(cause) = finding
        .caused_by
        .as_ref()
        .and_then(|key| all.iter().find(|f| f.key == *key))
    {
        let _ = writeln!(
            out,
            "Follows from {} ({}).\n",
            markdown_code(&cause.id),
            cause.layer
        );
    } else if !finding.detail.is_empty() && finding.severity > Severity::Note {
        let _ = writeln!(out, "{}\n", markdown(&finding.detail));
    }
    for evidence in finding.evidence.iter().take(EVIDENCE_SHOWN) {
        let _ = writeln!(
            out,
            "- {}: {} ({})",
            markdown(&evidence.what),
            markdown_code(&evidence.value),
            markdown(&evidence.source)
        );
    }
    if finding.evidence.len() > EVIDENCE_SHOWN {
        let _ = writeln!(
            out,
            "- and {} more",
            finding.evidence.len() - EVIDENCE_SHOWN
        );
    }
    out.push('\n');
}

/// The snapshot, folded away; as HTML, since a code fence could be ended by what stands in it.
fn facts(out: &mut String, report: &Report<'_>) {
    const HEAD: &str = "<details>\n<summary>Facts (the snapshot)</summary>\n\n<pre>\n";
    const TAIL: &str = "</pre>\n\n</details>\n";
    const CUT: &str = "... cut here: gpudoctor snapshot -o FILE writes all of it\n";
    let text = serde_json::to_string_pretty(report.facts).unwrap_or_default();
    out.push_str(HEAD);
    let mut room = MOST_CHARACTERS.saturating_sub(out.chars().count() + TAIL.len() + CUT.len());
    for line in text.lines() {
        // An empty line would end the block of HTML.
        let line = html(line);
        let length = line.chars().count() + 1;
        if length > room {
            out.push_str(CUT);
            break;
        }
        room -= length;
        out.push_str(&line);
        out.push('\n');
    }
    out.push_str(TAIL);
}
