//! `gpudoctor check`: facts to report, and the exit code.

use super::deliver::{Renderers, deliver};
use super::{explain, look, overlay, redactor, snapshot};
use crate::cli::{CheckArgs, FailOn};
use crate::diagnosis::{Diagnosis, Options, Status, diagnose};
use crate::error::Error;
use crate::explain::{Here, Scan, symptoms};
use crate::facts::Facts;
use crate::matrix::Matrix;
use crate::report::ci::Results;
use crate::report::{LogRead, Report, json, markdown, text};
use crate::rules;

pub(super) fn run(args: &CheckArgs) -> Result<u8, Error> {
    let matrix = overlay::matrix(args.matrix.as_deref(), !args.look.no_redact)?;
    let facts = match &args.from {
        Some(path) => snapshot::read(path)?,
        None => look(&args.look)?,
    };
    let options = Options {
        expect_gpu: args.expect_gpu,
        ignore: ignored(&args.ignore)?,
        only: args.only.clone(),
    };
    let scan = args.log.as_deref().map(explain::read_log).transpose()?;
    judge(args, &facts, &matrix, &options, scan.as_ref())
}

/// Facts to report and exit code.
pub(super) fn judge(
    args: &CheckArgs,
    facts: &Facts,
    matrix: &Matrix,
    options: &Options,
    log: Option<&Scan>,
) -> Result<u8, Error> {
    let diagnosis = diagnose(facts, matrix, options);
    let symptoms = log.map_or_else(Vec::new, |scan| {
        let here = Here::new(facts, matrix, options.expect_gpu, &diagnosis);
        let mut symptoms = symptoms(scan, matrix, &here);
        if let Some(mut redactor) = redactor(&args.look) {
            for symptom in &mut symptoms {
                symptom.text = redactor.text(&symptom.text).into_owned();
            }
        }
        symptoms
    });
    let report = Report {
        facts,
        matrix,
        diagnosis: &diagnosis,
        symptoms: &symptoms,
        log: log.map(|scan| LogRead {
            lines: scan.lines,
            bytes: scan.bytes,
            noise: scan.groups.len(),
        }),
    };
    let code = exit_code(args, &diagnosis);
    let unknown_fails = unknown_fails(args) && diagnosis.verdict.status == Status::Unknown;
    deliver(
        &args.report,
        &Renderers {
            text: &|options| text::render(&report, options),
            markdown: &|| markdown::render(&report),
            json: &|| json::render(&report),
            results: &|| {
                Results::of_check(&report, code != 0, unknown_fails, |severity| {
                    args.fail_on.fails(severity)
                })
            },
        },
    )?;
    Ok(code)
}

/// Ids or keys to ignore. A misspelt id would ignore nothing without a word, so it is refused.
fn ignored(names: &[String]) -> Result<Vec<String>, Error> {
    for name in names {
        let id = name.split(':').next().unwrap_or(name);
        if rules::by_id(id).is_none() {
            return Err(Error::Usage(format!(
                "--ignore: `{}` is no finding id; `gpudoctor explain --list` lists them",
                id.escape_debug()
            )));
        }
    }
    Ok(names.to_vec())
}

/// 1 where something is at or above the threshold. That something could not be told counts only on request, and where
/// a GPU was demanded.
fn exit_code(args: &CheckArgs, diagnosis: &Diagnosis) -> u8 {
    let found = diagnosis
        .findings
        .iter()
        .any(|f| args.fail_on.fails(f.severity));
    let unknown = diagnosis.verdict.status == Status::Unknown && unknown_fails(args);
    u8::from(found || unknown)
}

fn unknown_fails(args: &CheckArgs) -> bool {
    args.fail_on == FailOn::Unknown || args.expect_gpu && args.fail_on != FailOn::Never
}
