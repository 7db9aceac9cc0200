//! How a report is written: the options that `check`, `demo` and `preflight` share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Color;

/// How to report.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "How to report")]
pub struct ReportArgs {
    /// `text` for people, `markdown` for a ticket, `json` for programs; for CI `github` (annotations, and the summary of
    /// the step), `gitlab` (code quality), `junit`, `sarif`. Without it `text`, or `github` in a GitHub workflow
    #[arg(long, value_enum, hide_possible_values = true)]
    pub format: Option<Format>,
    /// Write the report to a file as well: --output junit=report.xml; may be repeated
    #[arg(long, value_name = "FORMAT=FILE", value_parser = output)]
    pub output: Vec<Output>,
    /// Write only what is wrong, and nothing where nothing is
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Write all evidence, notes, and what could not be seen
    #[arg(short, long)]
    pub verbose: bool,
    /// `always`, `never`, or `auto`: on a terminal, unless `NO_COLOR` is set
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    pub color: Color,
}

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// For a ticket: renders on code forges, holds the facts
    Markdown,
    /// By the contract `gpudoctor.report/1`
    Json,
    /// Annotations of a GitHub workflow
    Github,
    /// GitLab's code-quality report
    Gitlab,
    /// JUnit XML
    Junit,
    /// SARIF 2.1.0
    Sarif,
}

/// One more place for the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How it is written.
    pub format: Format,
    /// Where to.
    pub file: PathBuf,
}

/// `junit=report.xml`.
fn output(text: &str) -> Result<Output, String> {
    let wanted = "FORMAT=FILE is wanted, as in junit=report.xml";
    let (format, file) = text.split_once('=').ok_or(wanted)?;
    if file.is_empty() {
        return Err(wanted.to_owned());
    }
    let format = Format::from_str(format, false).map_err(|_| {
        let known: Vec<String> = Format::value_variants()
            .iter()
            .filter_map(|f| f.to_possible_value().map(|v| v.get_name().to_owned()))
            .collect();
        format!(
            "`{}` is no format; there are {}",
            format.escape_debug(),
            known.join(", ")
        )
    })?;
    Ok(Output {
        format,
        file: PathBuf::from(file),
    })
}
