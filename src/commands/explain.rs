//! `gpudoctor explain ID`: the page of a finding; `--list`: all ids.

use std::fmt::Write as _;

use super::print;
use crate::cli::ExplainArgs;
use crate::error::Error;
use crate::report::escape;
use crate::rules;

pub(super) fn run(args: &ExplainArgs) -> Result<u8, Error> {
    let Some(what) = args.what.as_deref().filter(|_| !args.list) else {
        print(&list())?;
        return Ok(0);
    };
    if let Some(rule) = rules::by_id(what.trim()) {
        print(&format!(
            "{}\n\nlayer at fault: {}    worst severity: {}\n",
            rule.page.trim_end(),
            rule.layer,
            rule.severity.id()
        ))?;
        return Ok(0);
    }
    let mut text = format!("nothing is known about `{}`\n", escape::terminal(what));
    let close: Vec<&str> = rules::all()
        .map(|r| r.id)
        .filter(|id| {
            what.split(['-', ' ', '_'])
                .any(|word| word.len() > 3 && id.contains(&word.to_lowercase()))
        })
        .collect();
    if close.is_empty() {
        text.push_str("`gpudoctor explain --list` lists what is\n");
    } else {
        let _ = writeln!(text, "close to it: {}", close.join(", "));
    }
    print(&text)?;
    Ok(1)
}

/// One line an id: layer, severity, id, the page's first sentence.
fn list() -> String {
    let mut text = String::new();
    let mut all: Vec<_> = rules::all()
        .map(|rule| (rule.layer, rule.severity, rule.id, rule.page))
        .collect();
    all.sort_by_key(|(layer, _, id, _)| (*layer, *id));
    for (layer, severity, id, page) in all {
        let title = page
            .lines()
            .find(|line| !line.is_empty() && !line.starts_with('#'))
            .unwrap_or_default();
        let _ = writeln!(text, "{layer:<12} {:<8} {id:<36} {title}", severity.id());
    }
    text
}
