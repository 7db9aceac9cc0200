//! `gpudoctor inspect PATH...`: what files hold, and whether they run on a target.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::Instant;

use super::{overlay, print, terminal, with_watch};
use crate::cli::{FailOn, InspectArgs, InspectFormat};
use crate::diagnosis::Status;
use crate::error::Error;
use crate::image;
use crate::inspect::gather::{Request, gather};
use crate::inspect::{self, File, Inspection, Machine};
use crate::probe::resolve::{Environment, Resolver};
use crate::read::fatbin::Look;
use crate::redact::{self, Secrets};
use crate::report::{inspection, text};
use crate::sysroot::{Sysroot, path_text};
use crate::target::Target;

pub(super) fn run(args: &InspectArgs) -> Result<u8, Error> {
    let matrix = overlay::matrix(None, !args.no_redact)?;
    // An image as the root: what is in it is judged as it would be in a container of it.
    let image = args
        .root
        .as_ref()
        .map(|root| path_text(root))
        .filter(|root| image::is_image(&Sysroot::live(), root));
    let sysroot = match &args.root {
        Some(dir) if image.is_none() => Sysroot::at(dir)?,
        _ => Sysroot::live(),
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
        arch: match &machine {
            Some(machine) if !machine.here => machine.processor(&matrix).0,
            _ => inspect::ARCH,
        },
    };
    let mut wrong = None;
    with_watch(|| {
        for path in &args.paths {
            // One bad name does not keep the others from being looked at.
            let looked = super::readable_name(path).and_then(|()| match &image {
                Some(image) => within(image, path, &request, &mut found),
                None => gather(&path_text(path), &request, &mut found),
            });
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

/// Looks at a path in an image: at the image, of which what lies there is kept.
fn within(
    image: &str,
    path: &Path,
    request: &Request<'_>,
    found: &mut Inspection,
) -> Result<(), Error> {
    let wanted = path_text(path);
    let wanted = format!("/{}", wanted.trim_matches('/'));
    let is_whole = wanted == "/";
    let mut inside = Inspection::default();
    // Of a file that is named all is told.
    let request = Request {
        all_of_images: request.all_of_images || !is_whole,
        ..*request
    };
    gather(image, &request, &mut inside)?;
    if !is_whole {
        let below = format!("{}/", wanted.trim_end_matches('/'));
        let place = |file: &File| {
            let place = file.path.strip_prefix(image)?.strip_prefix('!')?;
            Some(place.to_owned())
        };
        let all = request.all;
        inside.files.retain(|file| {
            place(file).is_some_and(|place| {
                let is_told = all || file.is_gpu() || file.is_damaged();
                place == wanted || place.starts_with(&below) && is_told
            })
        });
        if inside.files.is_empty() {
            return Err(Error::file(
                "inspect",
                path,
                "there is no such file in the image, or nothing that device code can be in",
            ));
        }
    }
    // One image, however many paths in it are named.
    for container in inside.containers {
        if found
            .containers
            .iter()
            .all(|other| other.path != container.path)
        {
            found.looked_at += container.looked_at;
            found.containers.push(container);
        }
    }
    for file in inside.files {
        if found.files.iter().all(|other| other.path != file.path) {
            found.files.push(file);
        }
    }
    for problem in inside.problems {
        if !found.problems.contains(&problem) {
            found.problems.push(problem);
        }
    }
    Ok(())
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
