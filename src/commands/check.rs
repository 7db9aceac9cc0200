//! `gpudoctor check`: facts to report, and the exit code.

use super::{look, overlay, print, snapshot, terminal};
use crate::cli::{CheckArgs, FailOn, Format};
use crate::diagnosis::{Diagnosis, Status, diagnose};
use crate::error::Error;
use crate::facts::Facts;
use crate::matrix::Matrix;
use crate::report::{Report, json, text};

pub(super) fn run(args: &CheckArgs) -> Result<u8, Error> {
    let matrix = overlay::matrix(args.matrix.as_deref(), !args.look.no_redact)?;
    let facts = match &args.from {
        Some(path) => snapshot::read(path)?,
        None => look(&args.look)?,
    };
    let diagnosis = diagnose(&facts, &matrix, args.expect_gpu);
    print(&render(args, &facts, &matrix, &diagnosis)?)?;
    Ok(exit_code(args, &diagnosis))
}

fn render(
    args: &CheckArgs,
    facts: &Facts,
    matrix: &Matrix,
    diagnosis: &Diagnosis,
) -> Result<String, Error> {
    let report = Report {
        facts,
        matrix,
        diagnosis,
    };
    match args.format {
        Format::Json => json::render(&report).map_err(|e| Error::Output(e.into())),
        Format::Text => Ok(text::render(
            &report,
            text::Options {
                width: terminal::width(),
                color: terminal::color(args.color),
                verbose: args.verbose,
                quiet: args.quiet,
            },
        )),
    }
}

/// 1 where something is at or above the threshold. That something could not be told counts only on request, and where
/// a GPU was demanded.
fn exit_code(args: &CheckArgs, diagnosis: &Diagnosis) -> u8 {
    let found = diagnosis
        .findings
        .iter()
        .any(|f| args.fail_on.fails(f.severity));
    let unknown = diagnosis.verdict.status == Status::Unknown
        && (args.fail_on == FailOn::Unknown || args.expect_gpu && args.fail_on != FailOn::Never);
    u8::from(found || unknown)
}
