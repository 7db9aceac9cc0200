//! GitHub Actions: annotations as workflow commands, the log that they stand in, and the summary of a step.

use std::fmt::Write as _;

use super::{Results, in_full};
use crate::finding::Severity;
use crate::report::escape::{
    github_annotation_message, github_annotation_property, github_log_line, markdown, markdown_code,
};

/// The runner shows ten annotations of each level a step and drops the others; the log has them all.
const SHOWN: usize = 10;

/// The most bytes of a summary: the runner takes 1 MiB a step and refuses the whole of a longer one.
const MOST_BYTES: usize = 1 << 20;

/// A text report with nothing in it that the runner would take for a command, and the annotations after it.
pub fn log(text: &str, results: &Results<'_>) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        // The report's own characters were made safe for a terminal; this is about the runner.
        out.push_str(&github_log_line(line));
        out.push('\n');
    }
    out.push_str(&annotations(results));
    out
}

/// A line for each root cause that is worth a look: `::error title=..,file=..::message`.
pub fn annotations(results: &Results<'_>) -> String {
    let mut out = String::new();
    let mut written = [0_usize; 2];
    for (suite, case, told) in results.findings() {
        let finding = told.finding;
        let is_note = finding.severity == Severity::Note && !told.fails;
        if told.ignored || is_note || finding.caused_by.is_some() {
            continue;
        }
        let (level, at) = if told.fails {
            ("error", 0)
        } else {
            ("warning", 1)
        };
        if let Some(count) = written.get_mut(at) {
            *count += 1;
            if *count > SHOWN {
                continue;
            }
        }
        let mut properties = format!(
            "title={}",
            github_annotation_property(&format!(
                "gpudoctor: {} is at fault{}",
                finding.layer,
                results.on(suite)
            ))
        );
        if let Some(file) = &case.file {
            let _ = write!(properties, ",file={}", github_annotation_property(file));
        }
        let mut message = format!("{} [{}]", finding.title, finding.id);
        for (index, fix) in finding.fixes.iter().enumerate() {
            let label = if index == 0 { "fix" } else { "or" };
            let summary = fix.summary.strip_prefix("or ").unwrap_or(&fix.summary);
            let _ = write!(message, "\n{label}: {summary}");
            for command in &fix.commands {
                let _ = write!(message, "\n  {command}");
            }
        }
        let _ = writeln!(
            out,
            "::{level} {properties}::{}",
            github_annotation_message(&message)
        );
    }
    for (suite, case, reason) in results.unknown() {
        let _ = writeln!(
            out,
            "::error title={}::{}",
            github_annotation_property(&format!("gpudoctor: could not tell{}", results.on(suite))),
            github_annotation_message(&format!("{}: {reason}", case.name))
        );
    }
    out
}

/// The summary of the step, as Markdown: the answer, a table of all cases, and the findings in full.
pub fn summary(results: &Results<'_>) -> String {
    let mut out = format!(
        "### gpudoctor {}: {}\n\n**{}**\n\n",
        results.command,
        if results.failed { "failed" } else { "passed" },
        markdown(&results.summary)
    );
    table(&mut out, results);
    let mut left_out = 0;
    for (suite, case, told) in results.findings().filter(|(_, _, told)| !told.ignored) {
        if told.finding.severity == Severity::Note {
            continue;
        }
        let mut block = String::new();
        let _ = writeln!(
            block,
            "<details><summary>{}: {}{}</summary>\n",
            markdown(&case.name),
            markdown(&told.finding.title),
            markdown(&results.on(suite))
        );
        for line in in_full(told.finding).lines() {
            // Four spaces: a block of code in which nothing is acted on.
            let _ = writeln!(block, "    {}", crate::report::escape::terminal(line));
        }
        block.push_str("\n</details>\n\n");
        if out.len() + block.len() > MOST_BYTES - 200 {
            left_out += 1;
        } else {
            out.push_str(&block);
        }
    }
    if left_out > 0 {
        let _ = writeln!(out, "{left_out} more findings are in the log.");
    }
    out
}

fn table(out: &mut String, results: &Results<'_>) {
    out.push_str("| |");
    for suite in &results.suites {
        let _ = write!(out, " {} |", markdown(&suite.name));
    }
    out.push_str("\n|---|");
    out.push_str(&"---|".repeat(results.suites.len()));
    out.push('\n');
    let mut names: Vec<&str> = Vec::new();
    for case in results.suites.iter().flat_map(|suite| &suite.cases) {
        if !names.contains(&case.name.as_str()) {
            names.push(&case.name);
        }
    }
    for name in names {
        let _ = write!(out, "| {} |", markdown_code(name));
        for suite in &results.suites {
            let case = suite.cases.iter().find(|case| case.name == name);
            let worst = case.and_then(|case| {
                case.findings
                    .iter()
                    .filter(|told| !told.ignored)
                    .max_by_key(|told| (told.fails, told.finding.severity))
            });
            let cell = match (case, worst) {
                (None, _) => String::new(),
                (Some(_), Some(told)) if told.finding.severity > Severity::Note => format!(
                    "{}: {}",
                    if told.fails { "**fails**" } else { "warning" },
                    markdown(&told.finding.title)
                ),
                (Some(case), _) => match &case.unknown {
                    Some(unknown) => format!("could not tell: {}", markdown(&unknown.reason)),
                    None if case.absent => format!("- {}", markdown(&case.tells)),
                    None => format!("ok: {}", markdown(&case.tells)),
                },
            };
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    }
    out.push('\n');
}
