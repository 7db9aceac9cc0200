//! `gpudoctor preflight`: what was built here, held against the machines that it is for.

use std::fs;
use std::path::{Path, PathBuf};

use super::deliver::{Renderers, deliver};
use super::inspect::Progress;
use super::{files, look, now, overlay, snapshot, terminal, with_watch};
use crate::cli::{FailOn, FleetArgs, LookArgs, PreflightArgs, ReportArgs};
use crate::diagnosis::{Options, Status, diagnose};
use crate::error::Error;
use crate::facts::Layer;
use crate::image;
use crate::inspect::gather::{Request, gather};
use crate::inspect::{self, Inspection, Kind};
use crate::matrix::Matrix;
use crate::preflight::config::{self, Config};
use crate::preflight::fleet::{self, Target};
use crate::preflight::manifest::{self, Manifest};
use crate::preflight::walk::{Found, Globs};
use crate::preflight::{Build, Ignore, Preflight, Question, Read, init, judge, seen};
use crate::read::fatbin::Look;
use crate::report::ci::{self, Results};
use crate::report::{json, preflight as report};
use crate::sysroot::{Sysroot, file_name, path_text};
use crate::{redact, rules};

/// The most bytes of a requirement or lock file; a lock of a large project has a few megabytes.
const MAX_MANIFEST: usize = 64 << 20;
/// The most bytes of gpudoctor.toml.
const MAX_CONFIG: usize = 1 << 20;
/// How far requirement files may name each other.
const MAX_INCLUDES: usize = 16;

pub(super) fn run(args: &PreflightArgs) -> Result<u8, Error> {
    let matrix = overlay::matrix(args.matrix.as_deref(), !args.no_redact)?;
    if args.init {
        return begin(args, &matrix);
    }
    super::deliver::check(&args.report)?;
    let (config, folder) = fleet_file(&args.fleet, &matrix)?;
    let targets = targets(&args.fleet, &config, &matrix)?;
    let sysroot = Sysroot::live();
    let (found, folder) = if args.paths.is_empty() {
        if config.artifacts.is_empty() {
            return Err(Error::Usage(
                "nothing to judge: name files, or `artifacts` under [preflight] in gpudoctor.toml"
                    .to_owned(),
            ));
        }
        let globs = Globs::new(&config.artifacts).map_err(Error::Usage)?;
        (with_watch(|| globs.find(&sysroot, &folder)), folder)
    } else {
        (named(&args.paths), String::new())
    };
    let mut artifacts = Vec::new();
    let mut archs: Vec<&str> = Vec::new();
    for target in &targets {
        let (arch, _) = target.machine.processor(&matrix);
        if !archs.contains(&arch) {
            archs.push(arch);
        }
    }
    with_watch(|| {
        for (path, is_named) in &found.paths {
            let place = place(&folder, path);
            artifacts.extend(for_each(&sysroot, &place, path, *is_named, &archs)?);
        }
        Ok::<(), Error>(())
    })?;
    not_over(&args.report, &artifacts, &folder)?;
    let mut problems = found.problems;
    if artifacts.is_empty() && problems.is_empty() {
        problems.push(format!(
            "nothing was judged: {} that the artifacts mean can hold neither device code nor pins",
            match found.paths.len() {
                1 => "the one file".to_owned(),
                count => format!("the {count} files"),
            }
        ));
    }
    let mut ignore = config.ignore;
    for name in &args.ignore {
        let id = name.split(':').next().unwrap_or(name);
        if rules::by_id(id).is_none() {
            return Err(Error::Usage(format!(
                "--ignore: `{}` is no finding id; `gpudoctor explain --list` lists them",
                id.escape_debug()
            )));
        }
        ignore.push(Ignore {
            what: name.clone(),
            reason: "--ignore".to_owned(),
            expires: None,
        });
    }
    let taken_at = now();
    // What is wrong with the compilers here is told before the build finds out; where there is none nothing is.
    let here = look(&LookArgs {
        load_nothing: true,
        no_redact: true,
        timeout: 1,
        ..LookArgs::default()
    })?;
    let has_nvcc = here.toolchain.nvcc.is_present();
    let of_toolchain = Options {
        only: vec![Layer::Toolchain],
        ..Options::default()
    };
    let findings = if has_nvcc {
        diagnose(&here, &matrix, &of_toolchain).findings
    } else {
        Vec::new()
    };
    let mut preflight = judge(&Question {
        build: has_nvcc.then_some(Build {
            toolchain: &here.toolchain,
            findings: &findings,
        }),
        artifacts: &artifacts,
        targets: &targets,
        ignore: &ignore,
        today: taken_at.get(..10).unwrap_or_default(),
        problems: &problems,
        matrix: &matrix,
    });
    if !args.no_redact {
        preflight = redacted(&sysroot, &preflight)?;
    }
    let fail_on = args.fail_on.or(config.fail_on);
    let code = exit_code(fail_on, &preflight);
    let results = || {
        Results::of_preflight(
            &preflight,
            &taken_at,
            code != 0,
            unknown_counts(fail_on),
            |f| fail_on.unwrap_or(FailOn::Error).fails(f),
        )
    };
    deliver(
        &args.report,
        &Renderers {
            text: &|options| report::text(&preflight, options),
            markdown: &|| ci::summary(&results()),
            json: &|| json::preflight(&preflight, &matrix, &taken_at),
            results: &results,
        },
    )?;
    Ok(code)
}

/// 1 where something is at or above the threshold. Without one: an error, or that it could not be told.
fn exit_code(fail_on: Option<FailOn>, found: &Preflight) -> u8 {
    let threshold = fail_on.unwrap_or(FailOn::Error);
    let of_build = found.build_host.iter().flat_map(|host| &host.findings);
    let mut findings = found
        .targets
        .iter()
        .flat_map(|target| &target.findings)
        .chain(of_build);
    let fails = findings.any(|finding| threshold.fails(finding.severity));
    let is_unknown = found
        .targets
        .iter()
        .any(|target| target.verdict.status == Status::Unknown || !target.unknown.is_empty());
    u8::from(fails || unknown_counts(fail_on) && is_unknown)
}

/// Whether what could not be told fails the run.
fn unknown_counts(fail_on: Option<FailOn>) -> bool {
    matches!(fail_on, None | Some(FailOn::Unknown))
}

/// gpudoctor.toml and its folder: the one that is named, else that of this folder or the nearest one above it. Empty where
/// there is none.
pub(super) fn fleet_file(args: &FleetArgs, matrix: &Matrix) -> Result<(Config, String), Error> {
    let path = match &args.config {
        Some(path) => path.clone(),
        None => match nearest()? {
            Some(path) => path,
            None => return Ok((Config::default(), ".".to_owned())),
        },
    };
    let sysroot = Sysroot::live();
    let shown = path_text(&path);
    let text = sysroot.text_up_to(&shown, MAX_CONFIG);
    let text = match &text {
        crate::facts::Reading::Present { value, .. } => value,
        crate::facts::Reading::Absent { .. } => {
            return Err(Error::file("read", &path, "no such file"));
        }
        crate::facts::Reading::Unreadable { reason } => {
            let reason = reason.rsplit(": ").next().unwrap_or(reason);
            return Err(Error::file("read", &path, reason));
        }
    };
    let mut config = config::parse(text, matrix).map_err(|e| Error::file("use", &path, e))?;
    config.is_there = true;
    let folder = match shown.rsplit_once('/') {
        None => ".",
        Some(("", _)) => "/",
        Some((folder, _)) => folder,
    };
    Ok((config, folder.to_owned()))
}

/// The file in this folder or above it, up to the repository's own.
fn nearest() -> Result<Option<PathBuf>, Error> {
    let own = PathBuf::from(config::FILE);
    if own.is_file() {
        return Ok(Some(own));
    }
    let here = std::env::current_dir()
        .map_err(|e| Error::Usage(format!("the working folder cannot be read: {e}")))?;
    for folder in here.ancestors() {
        let file = folder.join(config::FILE);
        if file.is_file() {
            return Ok(Some(file));
        }
        if folder.join(".git").exists() {
            break;
        }
    }
    Ok(None)
}

/// The machines: those that are named, else those of the file.
pub(super) fn targets(
    args: &FleetArgs,
    config: &Config,
    matrix: &Matrix,
) -> Result<Vec<Target>, Error> {
    let mut targets = Vec::new();
    for name in &args.target_name {
        let target = config.targets.iter().find(|target| target.name == *name);
        let Some(target) = target else {
            let known: Vec<&str> = config.targets.iter().map(|t| t.name.as_str()).collect();
            return Err(Error::Usage(format!(
                "--target-name: there is no target `{}`{}",
                name.escape_debug(),
                if known.is_empty() {
                    ": gpudoctor.toml has none".to_owned()
                } else {
                    format!(": gpudoctor.toml has {}", known.join(", "))
                }
            )));
        };
        targets.push(target.clone());
    }
    for (index, named) in args.target.iter().enumerate() {
        let described = &named.target;
        fleet::check(described, matrix)
            .map_err(|(key, why)| Error::Usage(format!("--target: {key}: {why}")))?;
        let name = match (&named.name, args.target.len()) {
            (Some(name), _) => name.clone(),
            (None, 1) => "target".to_owned(),
            (None, _) => format!("target-{}", index + 1),
        };
        let target = fleet::described(&name, described, Vec::new(), matrix)
            .map_err(|e| Error::Usage(format!("--target: {e}")))?;
        targets.push(target);
    }
    for path in &args.target_from {
        let facts = snapshot::read(path)?;
        let name = path.file_stem().map_or("snapshot".to_owned(), |stem| {
            stem.to_string_lossy().into_owned()
        });
        let target =
            fleet::of_snapshot(&name, &facts, matrix).map_err(|e| Error::file("use", path, e))?;
        targets.push(target);
    }
    let mut names = std::collections::BTreeSet::new();
    if let Some(twice) = targets.iter().find(|target| !names.insert(&target.name)) {
        return Err(Error::Usage(format!(
            "two targets are called `{}`: --target NAME:driver=...,gpu=... gives one another name",
            twice.name.escape_debug()
        )));
    }
    if targets.is_empty() {
        targets.clone_from(&config.targets);
    }
    if targets.is_empty() {
        // That there is a file is no help where it names none.
        let what = if config.is_there {
            "gpudoctor.toml has no target: add `[target.prod]` with driver and gpus to it, or give --target driver=535,gpu=A100"
        } else {
            "no machine to hold it against: --target driver=535,gpu=A100, --target-from FILE, or a gpudoctor.toml (`gpudoctor preflight --init` writes one)"
        };
        return Err(Error::Usage(what.to_owned()));
    }
    Ok(targets)
}

fn named(paths: &[PathBuf]) -> Found {
    Found {
        paths: paths.iter().map(|path| (path_text(path), true)).collect(),
        problems: Vec::new(),
    }
}

fn place(folder: &str, path: &str) -> String {
    if folder.is_empty() || folder == "." || path.starts_with('/') {
        path.to_owned()
    } else {
        crate::sysroot::join(folder, path)
    }
}

/// Refuses to write a report over what is judged.
fn not_over(args: &ReportArgs, artifacts: &[Read], folder: &str) -> Result<(), Error> {
    for output in &args.output {
        let Ok(written) = output.file.canonicalize() else {
            continue;
        };
        let is_same = |read: &&Read| {
            Path::new(&place(folder, &read.path))
                .canonicalize()
                .is_ok_and(|judged| judged == written)
        };
        if let Some(read) = artifacts.iter().find(is_same) {
            return Err(Error::Usage(format!(
                "--output: {} is judged here, and a report would be written over it",
                read.path.escape_debug()
            )));
        }
    }
    Ok(())
}

/// Reads one artifact, and where it is an index of images for several processors, the image for each that a target has.
fn for_each(
    sysroot: &Sysroot,
    place: &str,
    path: &str,
    is_named: bool,
    archs: &[&str],
) -> Result<Vec<Read>, Error> {
    let first = archs.first().copied().unwrap_or(inspect::ARCH);
    let Some(mut whole) = read(sysroot, place, path, is_named, first)? else {
        return Ok(Vec::new());
    };
    let others: Vec<&str> = archs
        .iter()
        .copied()
        .filter(|arch| {
            let image = whole.image.as_ref();
            image.is_some_and(|image| image.other_archs.iter().any(|other| other == arch))
        })
        .collect();
    if others.is_empty() {
        return Ok(vec![whole]);
    }
    whole.not_on = others.iter().map(|arch| (*arch).to_owned()).collect();
    let mut all = vec![whole];
    for arch in others {
        if let Some(mut one) = read(sysroot, place, path, is_named, arch)? {
            let is_other = |other: &&&str| **other != arch;
            one.not_on = archs
                .iter()
                .filter(is_other)
                .map(|arch| (*arch).to_owned())
                .collect();
            all.push(one);
        }
    }
    Ok(all)
}

/// Reads one artifact; `None` where a glob met a file that device code cannot be in.
fn read(
    sysroot: &Sysroot,
    place: &str,
    path: &str,
    is_named: bool,
    arch: &str,
) -> Result<Option<Read>, Error> {
    if manifest::is_manifest(place) || is_list_of_requirements(sysroot, place) {
        return Ok(Some(read_manifest(sysroot, place, path)?));
    }
    let mut found = Inspection::default();
    let progress = Progress::new();
    let request = Request {
        sysroot,
        resolver: None,
        look: Look { deep: false },
        all: true,
        all_of_images: false,
        progress: &|count, path| progress.show(count, path),
        looked: None,
        arch,
    };
    let done = gather(place, &request, &mut found);
    progress.clear();
    match done {
        Ok(()) => {}
        Err(e) if is_named => return Err(e),
        // An archive of sources is no image; an image that cannot be read is not passed over.
        Err(e) if image::is_image(sysroot, place) && !e.to_string().contains(image::NO_IMAGE) => {
            return Err(e);
        }
        Err(_) => return Ok(None),
    }
    let kind = found
        .containers
        .last()
        .map_or("file", |container| container.kind.as_str())
        .to_owned();
    let requires = found
        .containers
        .iter()
        .flat_map(|container| container.requires.clone())
        .collect();
    // As they are named in gpudoctor.toml, not as they are reached from here.
    for file in &mut found.files {
        if let Some(rest) = file.path.strip_prefix(place) {
            file.path = format!("{path}{rest}");
        }
    }
    let unread = found
        .problems
        .iter()
        .map(|problem| match problem.strip_prefix(place) {
            // It is named there already.
            Some(rest) if rest.starts_with([':', '!', '/']) => format!("{path}{rest}"),
            _ => format!("{path}: {problem}"),
        })
        .collect();
    found.files.retain(|file| file.kind != Kind::Other);
    let image = found.containers.pop().and_then(|last| last.image);
    if image.is_some() {
        // Of a file or a wheel all is asked, of a whole system what has to do with the GPU.
        found
            .files
            .retain(|file| file.is_gpu() || file.is_damaged());
    }
    let mut read = Read {
        image,
        path: path.to_owned(),
        kind,
        files: found.files,
        pins: Vec::new(),
        requires,
        unread,
        not_on: Vec::new(),
    };
    if read.kind == "folder" {
        // What is pinned beside the binaries goes with them. Folders in it are other projects, tests, documents.
        for name in sysroot.list(place, manifest::is_manifest).items() {
            let beside = |of: &str| crate::sysroot::join(of, name);
            let pinned = read_manifest(sysroot, &beside(place), &beside(path))?;
            read.pins.extend(pinned.pins);
            read.unread.extend(pinned.unread);
        }
    }
    Ok(Some(read))
}

/// A list of requirements under a name of its own: `deps.txt`, `gpu.in`.
fn is_list_of_requirements(sysroot: &Sysroot, place: &str) -> bool {
    let is_text = [".txt", ".in"].iter().any(|ending| place.ends_with(ending));
    is_text && text_of(sysroot, place).is_ok_and(|text| manifest::looks_like_requirements(&text))
}

/// The text of a requirement or lock file.
fn text_of(sysroot: &Sysroot, place: &str) -> Result<String, String> {
    match sysroot.bytes(place, MAX_MANIFEST) {
        crate::facts::Reading::Present { value, .. } => manifest::decoded(&value),
        crate::facts::Reading::Absent { .. } => Err("no such file".to_owned()),
        crate::facts::Reading::Unreadable { reason } => {
            Err(reason.rsplit(": ").next().unwrap_or(&reason).to_owned())
        }
    }
}

/// A requirement or lock file with those that it names.
fn read_manifest(sysroot: &Sysroot, place: &str, path: &str) -> Result<Read, Error> {
    let first =
        text_of(sysroot, place).map_err(|reason| Error::file("read", Path::new(place), reason))?;
    let read = |path: &str, text: &str| {
        // Whatever the name of what they name is, pip reads it as requirements.
        manifest::read(path, text).unwrap_or_else(|| manifest::read_requirements(path, text))
    };
    let mut whole = read(path, &first);
    let mut constraints = Vec::new();
    let mut waiting = within(place, path, &mut whole);
    let mut seen = vec![place.to_owned()];
    while let Some((place, path, is_constraint)) = waiting.pop() {
        if seen.contains(&place) {
            continue;
        }
        if seen.len() > MAX_INCLUDES {
            whole.problems.push(format!(
                "{path}: not read, since more than {MAX_INCLUDES} files name each other"
            ));
            break;
        }
        seen.push(place.clone());
        match text_of(sysroot, &place) {
            Ok(text) => {
                let mut read = read(&path, &text);
                waiting.extend(within(&place, &path, &mut read));
                whole.problems.extend(read.problems);
                whole.indexes.extend(read.indexes);
                if is_constraint {
                    constraints.extend(read.pins);
                } else {
                    whole.pins.extend(read.pins);
                }
            }
            Err(e) => whole.problems.push(format!("{path}: {e}")),
        }
    }
    manifest::constrain(&mut whole.pins, &constraints);
    manifest::from_indexes(&mut whole.pins, &whole.indexes);
    Ok(Read {
        path: path.to_owned(),
        kind: whole.kind.to_owned(),
        pins: whole.pins,
        unread: whole.problems,
        ..Read::default()
    })
}

/// The files that a requirement file names, as they are reached and as they are shown. What lies elsewhere is not fetched, and
/// is told.
fn within(place: &str, path: &str, read: &mut Manifest) -> Vec<(String, String, bool)> {
    let beside = |of: &str, name: &str| match of.rsplit_once('/') {
        Some((folder, _)) if !name.starts_with('/') => crate::sysroot::join(folder, name),
        _ => name.to_owned(),
    };
    let (there, here): (Vec<_>, Vec<_>) = std::mem::take(&mut read.includes)
        .into_iter()
        .partition(|(name, _)| name.contains("://"));
    let problems = there
        .iter()
        .map(|(name, _)| format!("{path}: what {name} asks for is not fetched, and so not judged"));
    read.problems.extend(problems);
    here.iter()
        .map(|(name, is_constraint)| (beside(place, name), beside(path, name), *is_constraint))
        .collect()
}

/// Without what a report may not hold.
fn redacted(sysroot: &Sysroot, found: &Preflight) -> Result<Preflight, Error> {
    let secrets = crate::probe::secrets(sysroot, &super::own_environment());
    let value = serde_json::to_value(found).map_err(|e| Error::Output(e.into()))?;
    serde_json::from_value(redact::value(secrets, value)).map_err(|e| Error::Output(e.into()))
}

/// `--init`: writes a file to begin with.
fn begin(args: &PreflightArgs, matrix: &Matrix) -> Result<u8, Error> {
    let path = args
        .fleet
        .config
        .clone()
        .unwrap_or_else(|| PathBuf::from(config::FILE));
    #[expect(clippy::disallowed_methods, reason = "the file that is to be written")]
    let is_there = fs::symlink_metadata(&path).is_ok();
    if is_there && !args.force {
        return Err(Error::file(
            "write",
            &path,
            "it is there already; --force writes over it",
        ));
    }
    let own = args.fleet.target.first();
    let name = args
        .fleet
        .target_name
        .first()
        .or_else(|| own?.name.as_ref())
        .map_or("prod", String::as_str);
    if !config::is_target_name(name) {
        return Err(Error::Usage(format!(
            "--target-name: `{}`: {}",
            name.escape_debug(),
            config::TARGET_NAME
        )));
    }
    if let [_, second, ..] = args.fleet.target.as_slice() {
        return Err(Error::Usage(format!(
            "--init writes one target; add `{}` to the file by hand",
            second
                .name
                .as_deref()
                .unwrap_or("the second one")
                .escape_debug()
        )));
    }
    let artifacts = artifacts_here(&path);
    let mut wrote_from = "flags".to_owned();
    let target = match (own, &args.from) {
        (Some(named), _) => {
            fleet::check(&named.target, matrix)
                .map_err(|(key, why)| Error::Usage(format!("--target: {key}: {why}")))?;
            fleet::described(name, &named.target, Vec::new(), matrix)
                .map_err(|e| Error::Usage(format!("--target: {e}")))?
        }
        (None, Some(from)) => {
            wrote_from = match file_name(&path_text(from)) {
                "-" => "a snapshot".to_owned(),
                file => format!("the snapshot {file}"),
            };
            let facts = snapshot::read(from)?;
            fleet::of_snapshot(name, &facts, matrix).map_err(|e| Error::file("use", from, e))?
        }
        (None, None) => {
            "this machine".clone_into(&mut wrote_from);
            let facts = look(&LookArgs {
                load_nothing: true,
                timeout: 30,
                ..LookArgs::default()
            })?;
            if let Ok(target) = fleet::of_snapshot(name, &facts, matrix) {
                target
            } else {
                // A build host has no GPU: the file says so, and what to fill in.
                let text = init::example(name, &artifacts);
                config::parse(&text, matrix).map_err(Error::Usage)?;
                files::write(&path, &text)?;
                terminal::say(&format!(
                    "{} is written with an example: there is no GPU here to describe; put in the machines that it is for, or take one there with `gpudoctor snapshot -o host.json` and `gpudoctor preflight --init --from host.json`",
                    path_text(&path)
                ));
                return Ok(0);
            }
        }
    };
    let mut target = target;
    // A machine may have another C library than its distribution came with: what was read of it is what counts.
    if fleet::check(&target.target, matrix).is_err() {
        target.target.os = None;
    }
    let text = init::of_target(&target, &wrote_from, &artifacts);
    // What is written has to be read again.
    config::parse(&text, matrix).map_err(Error::Usage)?;
    files::write(&path, &text)?;
    terminal::say(&format!("{} is written", path_text(&path)));
    Ok(0)
}

/// Globs for what lies beside the file that is to be written.
fn artifacts_here(path: &Path) -> Vec<String> {
    let folder = path
        .parent()
        .map(path_text)
        .filter(|folder| !folder.is_empty());
    seen::globs(&Sysroot::live(), folder.as_deref().unwrap_or("."))
}
