//! Writes a report in each form that was asked for: to standard output, to files, and to the summary of a GitHub step.

#![expect(
    clippy::disallowed_methods,
    reason = "a CI system says in the environment that it is one and where it wants its summary"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::{files, print, terminal};
use crate::cli::{Format, ReportArgs};
use crate::error::Error;
use crate::report::ci::{self, Results};
use crate::report::text;

/// What a command can render by itself; the formats of CI are made from its [`Results`].
pub(super) struct Renderers<'a> {
    /// For people.
    pub(super) text: &'a dyn Fn(text::Options) -> String,
    /// For a ticket.
    pub(super) markdown: &'a dyn Fn() -> String,
    /// For programs.
    pub(super) json: &'a dyn Fn() -> serde_json::Result<String>,
    /// For CI.
    pub(super) results: &'a dyn Fn() -> Results<'a>,
}

/// Refuses two reports in one file, of which the second would be all that is left.
pub(super) fn check(args: &ReportArgs) -> Result<(), Error> {
    // `a.xml` and `./a.xml` are one.
    let whole = |file: &Path| -> PathBuf {
        let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        path.components().collect()
    };
    for (index, output) in args.output.iter().enumerate() {
        if output.file == Path::new("-") {
            return Err(Error::Usage(
                "--output: `-` is no file: what goes to standard output is chosen by --format"
                    .to_owned(),
            ));
        }
        let mut before = args.output.iter().take(index);
        if before.any(|other| whole(&other.file) == whole(&output.file)) {
            return Err(Error::Usage(format!(
                "--output: two reports go to {}: give each a file of its own",
                output.file.display()
            )));
        }
    }
    Ok(())
}

/// Writes to standard output first: what was found is not lost where a file cannot be written.
pub(super) fn deliver(args: &ReportArgs, renderers: &Renderers<'_>) -> Result<(), Error> {
    check(args)?;
    let format = args.format.unwrap_or_else(default_format);
    print(&render(format, false, args, renderers)?)?;
    for output in &args.output {
        files::write(&output.file, &render(output.format, true, args, renderers)?)?;
    }
    if format == Format::Github
        && let Some(file) = std::env::var_os("GITHUB_STEP_SUMMARY").filter(|file| !file.is_empty())
    {
        let file = PathBuf::from(file);
        let results = (renderers.results)();
        if results.failed || !args.quiet {
            append(&file, &ci::summary(&results))?;
        }
    }
    Ok(())
}

/// Text, or in a GitHub workflow what its runner makes annotations of.
fn default_format() -> Format {
    if std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true") {
        Format::Github
    } else {
        Format::Text
    }
}

fn render(
    format: Format,
    to_file: bool,
    args: &ReportArgs,
    renderers: &Renderers<'_>,
) -> Result<String, Error> {
    let json = |text: serde_json::Result<String>| text.map_err(|e| Error::Output(e.into()));
    let text = |in_log: bool| {
        (renderers.text)(text::Options {
            width: terminal::width(),
            color: !to_file && !in_log && terminal::color(args.color),
            verbose: args.verbose,
            quiet: args.quiet,
            wrap_answer: !to_file && !in_log && terminal::is_terminal(),
        })
    };
    match format {
        Format::Text => Ok(text(false)),
        Format::Markdown => Ok((renderers.markdown)()),
        Format::Json => json((renderers.json)()),
        Format::Github => Ok(ci::log(&text(true), &(renderers.results)())),
        Format::Gitlab => json(ci::gitlab(&(renderers.results)())),
        Format::Junit => Ok(ci::junit(&(renderers.results)())),
        Format::Sarif => json(ci::sarif(&(renderers.results)())),
    }
}

/// Adds to a file that the runner made for this step.
fn append(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|e| Error::file("write", path, e))
}
