//! `gpudoctor inspect PATH...`: what files hold, and whether they run on a target.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::time::Instant;

use super::{overlay, print, root_at, terminal, with_watch};
use crate::cli::{FailOn, InspectArgs, InspectFormat};
use crate::diagnosis::Status;
use crate::error::Error;
use crate::inspect::gather::{Request, gather};
use crate::inspect::{self, Inspection, Machine};
use crate::probe::resolve::{Environment, Resolver};
use crate::read::fatbin::Look;
use crate::redact::{self, Secrets};
use crate::report::{inspection, text};
use crate::sysroot::{Sysroot, path_text};
use crate::target::Target;

pub(super) fn run(args: &InspectArgs) -> Result<u8, Error> {
    let matrix = overlay::matrix(None, !args.no_redact)?;
    let sysroot = match &args.root {
        Some(dir) => root_at(dir)?,
        None => Sysroot::live(),
    };
    let target = match &args.target {
        Some(text) => {
            let target: Target = text
                .parse()
                .map_err(|e| Error::Usage(format!("--target: {e}")))?;
            let machine = inspect::machine_of_target(&target, &matrix);
            Some(machine.map_err(|e| Error::Usage(format!("--target: {e}")))?)
        }
        None => None,
    };
    let variable = |name| std::env::var(name).ok().filter(|_| sysroot.is_live());
    let environment = Environment {
        library_path: variable("LD_LIBRARY_PATH"),
        preload: variable("LD_PRELOAD"),
        working_folder: std::env::current_dir()
            .ok()
            .filter(|_| sysroot.is_live())
            .map(|dir| path_text(&dir)),
    };
    let resolver = Resolver::new(&sysroot, &environment);
    let machine: Option<Machine> = target.or_else(|| {
        let mut machine = inspect::machine_of_host(&sysroot, &matrix)?;
        machine.glibc = resolver.glibc();
        Some(machine)
    });
    let mut found = Inspection {
        schema: inspect::SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Inspection::default()
    };
    let progress = Progress::new();
    let request = Request {
        sysroot: &sysroot,
        resolver: Some(&resolver),
        look: Look { deep: args.deep },
        all: args.all,
        all_of_images: args.all,
        progress: &|count, path| progress.show(count, path),
        looked: None,
    };
    let mut wrong = None;
    with_watch(|| {
        for path in &args.paths {
            // One bad name does not keep the others from being looked at.
            let looked = super::readable_name(path)
                .and_then(|()| gather(&path_text(path), &request, &mut found));
            if let Err(e) = looked
                && let Some(before) = wrong.replace(e)
            {
                terminal::say(&before.to_string());
            }
        }
    });
    progress.clear();
    if found.files.is_empty()
        && found.containers.is_empty()
        && let Some(wrong) = wrong
    {
        return Err(wrong);
    }
    inspect::judge(&mut found, machine.as_ref(), &matrix);
    if !args.no_redact {
        found = redacted(&sysroot, found)?;
    }
    let report = match args.format {
        InspectFormat::Json => inspection::json(&found).map_err(|e| Error::Output(e.into()))?,
        InspectFormat::Text => inspection::text(
            &found,
            text::Options {
                width: terminal::width(),
                color: terminal::color(args.color),
                verbose: args.verbose,
                quiet: args.quiet,
                wrap_answer: false,
            },
        ),
    };
    print(&report)?;
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let fails = found
        .findings
        .iter()
        .flatten()
        .any(|finding| args.fail_on.fails(finding.severity));
    let is_unknown = found
        .verdict
        .as_ref()
        .is_some_and(|verdict| verdict.status == Status::Unknown);
    Ok(u8::from(
        fails || is_unknown && args.fail_on == FailOn::Unknown,
    ))
}

/// Without what a report may not hold.
fn redacted(sysroot: &Sysroot, mut found: Inspection) -> Result<Inspection, Error> {
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let secrets = crate::probe::secrets(sysroot, &environment);
    redacted_pieces(secrets, &mut found).map_err(|e| Error::Output(e.into()))?;
    Ok(found)
}

/// The files one by one, since there may be thousands.
fn redacted_pieces(secrets: Secrets, found: &mut Inspection) -> serde_json::Result<()> {
    let mut files = std::mem::take(&mut found.files);
    let mut pieces = redact::Pieces::new(secrets);
    let rest = serde_json::to_value(&*found)?;
    pieces.survey(&rest);
    for file in &files {
        pieces.survey(&serde_json::to_value(file)?);
    }
    *found = serde_json::from_value(pieces.redacted(rest))?;
    for file in &mut files {
        let value = serde_json::to_value(&*file)?;
        *file = serde_json::from_value(pieces.redacted(value))?;
    }
    found.files = files;
    Ok(())
}

/// A line on the terminal's standard error while it takes long.
pub(super) struct Progress {
    since: Instant,
    last: Cell<Option<Instant>>,
    is_terminal: bool,
}

impl Progress {
    /// Before this, nothing is shown.
    const PATIENCE_MS: u128 = 500;
    /// Between two lines.
    const STEP_MS: u128 = 100;

    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            last: Cell::new(None),
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    pub(super) fn show(&self, count: u64, path: &str) {
        let is_soon = self
            .last
            .get()
            .is_some_and(|last| last.elapsed().as_millis() < Self::STEP_MS);
        if !self.is_terminal || is_soon || self.since.elapsed().as_millis() < Self::PATIENCE_MS {
            return;
        }
        self.last.set(Some(Instant::now()));
        terminal::progress(&format!("{count} files looked at, now {path}"));
    }

    pub(super) fn clear(&self) {
        if self.last.get().is_some() {
            terminal::progress("");
        }
    }
}
