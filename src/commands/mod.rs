//! The commands: from a parsed command line to bytes on standard output and an exit code.
//!
//! This is where the caller's world is read - environment, working folder, terminal, clock - and handed on as data.

#![expect(
    clippy::disallowed_methods,
    reason = "commands read the caller's environment and write what they were asked to write"
)]

mod check;
mod deliver;
mod demo;
mod explain;
mod files;
mod gpus;
mod inspect;
pub mod log;
mod matrix;
mod overlay;
mod preflight;
mod snapshot;
mod terminal;

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use clap::CommandFactory as _;

use crate::cli::{Cli, Command, LookArgs};
use crate::error::Error;
use crate::facts::{Facts, Reading, User};
use crate::image;
use crate::probe::vendor::Launcher;
use crate::probe::{self, Request};
use crate::read::{elf, needs};
use crate::redact::Redactor;
use crate::report::json;
use crate::sysroot::{Kind, Sysroot, path_text, waiting_for};

/// Runs a command; the exit code.
///
/// # Errors
/// Where the call was wrong, or an input cannot be read: exit code 2.
pub fn run(cli: Cli) -> Result<u8, Error> {
    match cli.command {
        None => check::run(&cli.check),
        Some(Command::Check(args)) => check::run(&args),
        Some(Command::Snapshot(args)) => snapshot::run(&args),
        Some(Command::Demo(args)) => demo::run(&args),
        Some(Command::Schema) => {
            print(&json::schema().map_err(|e| Error::Output(e.into()))?)?;
            Ok(0)
        }
        Some(Command::Explain(args)) => explain::run(&args),
        Some(Command::Inspect(args)) => inspect::run(&args),
        Some(Command::Preflight(args)) => preflight::run(&args),
        Some(Command::Gpus(args)) => gpus::run(&args),
        Some(Command::Matrix(args)) => matrix::run(&args),
    }
}

/// Writes to standard output. A reader that went away is no error: the exit code says what was found all the same.
fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(Error::Output),
    }
}

/// Says what the call did wrong: one line on standard error.
pub fn complain(error: &Error) {
    terminal::say(&error.to_string());
}

/// Answers a command line that asks for help or the version, or that cannot be understood; the exit code. What is wrong
/// is said in one line, as all complaints are.
pub fn refuse(error: &clap::Error) -> u8 {
    if !error.use_stderr() {
        return match error.print() {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                complain(&Error::Output(e));
                2
            }
            _ => 0,
        };
    }
    let said = error.render().to_string();
    // Its whole help is what the parser answers where the subcommand is not there.
    let said = if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        subcommand_missing(&said)
    } else {
        one_line(&said)
    };
    complain(&Error::Usage(said));
    2
}

/// Which subcommands a command has of which none was named; the help that was rendered names the command.
fn subcommand_missing(help: &str) -> String {
    let usage = help
        .lines()
        .find_map(|line| line.trim().strip_prefix("Usage:"));
    let words = usage.unwrap_or_default().split_whitespace().skip(1);
    let path: Vec<&str> = words
        .take_while(|word| !word.starts_with(['<', '[']))
        .collect();
    let all = Cli::command();
    let mut command = &all;
    for name in &path {
        let Some(found) = command.find_subcommand(name) else {
            break;
        };
        command = found;
    }
    let names = command.get_subcommands().map(clap::Command::get_name);
    let names: Vec<&str> = names.filter(|name| *name != "help").collect();
    let called = [&["gpudoctor"], path.as_slice()].concat().join(" ");
    format!(
        "`{called}` needs one of {} (see `{called} --help`)",
        names.join(", ")
    )
}

/// The parser's message without its label, its usage line and its advice to look at the help.
fn one_line(message: &str) -> String {
    let said: Vec<&str> = message
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .map(|line| line.strip_prefix("error: ").unwrap_or(line))
        .collect();
    let said = said.join("; ").replace(":; ", ": ").replace("; [", " [");
    format!("{said} (see `gpudoctor --help`)")
}

/// Refuses a name that is not UTF-8: everything that is told names the file by text.
pub(crate) fn readable_name(path: &Path) -> Result<(), Error> {
    match path.to_str() {
        Some(_) => Ok(()),
        None => Err(Error::file(
            "read",
            path,
            "its name is not UTF-8: make a link with a plain name, and name that",
        )),
    }
}

/// A root that is looked at.
struct Root {
    sysroot: Sysroot,
    /// The variables that the configuration of an image sets.
    environment: Option<BTreeMap<String, String>>,
    image: Option<probe::Image>,
}

/// A folder, or a container image, that is read as the root of a machine.
fn root_at(path: &Path) -> Result<Root, Error> {
    let live = Sysroot::live();
    let text = path_text(path);
    if !image::is_image(&live, &text) {
        return Ok(Root {
            sysroot: Sysroot::at(path)?,
            environment: None,
            image: None,
        });
    }
    // What is asked of libraries later stands in the pages that this reads.
    let progress = inspect::Progress::new();
    let mut count = 0;
    let mut show = |passing: &image::Passing<'_>| {
        count += 1;
        progress.show(count, passing.place);
        let is_library = passing.path.contains(".so");
        is_library
            && needs::loading(passing.kept).is_some()
            && matches!(elf::identify(passing.kept), elf::Shape::Elf(_))
    };
    let image = image::open(&live, &text, false, &mut show)
        .map_err(|why| Error::file("read", path, why))?;
    for problem in &image.problems {
        terminal::say(&format!("{text}: {problem}"));
    }
    let config = image.described.config.as_ref();
    Ok(Root {
        environment: config.map(|_| crate::inspect::variables_of(&image)),
        image: Some(probe::Image {
            lacks: image.problems.first().cloned(),
        }),
        sysroot: Sysroot::of_image(image.tree),
    })
}

/// What takes the secrets of this machine out of a log's lines; `None` where they are to be kept.
fn redactor(args: &LookArgs) -> Option<Redactor> {
    let secrets = || probe::secrets(&Sysroot::live(), &own_environment());
    (!args.no_redact).then(|| Redactor::new(secrets()))
}

/// Takes a snapshot as the options say.
fn look(args: &LookArgs) -> Result<Facts, Error> {
    let live = args.root.is_none();
    let process = match args.pid {
        Some(pid) => Some(
            probe::application::process(pid)
                .map_err(|why| Error::Usage(format!("--pid: {why}")))?,
        ),
        None => None,
    };
    let root = args.root.as_ref().map(|dir| root_at(dir)).transpose()?;
    let (root, of_image, image) = match root {
        Some(root) => (Some(root.sysroot), root.environment, root.image),
        None => (None, None, None),
    };
    let sysroot = match (root, &process) {
        (Some(root), _) => root,
        (None, Some((process, _))) if process.other_root.value() == Some(&true) => {
            Sysroot::of_process(process.pid)
        }
        _ => Sysroot::live(),
    };
    let (process, environment) = match process {
        Some((process, environment)) => (Some(process), environment),
        None if live => (None, Reading::present(own_environment(), "environment")),
        None if of_image.is_some() => (
            None,
            Reading::present(of_image.unwrap_or_default(), "configuration of the image"),
        ),
        None => (
            None,
            Reading::unreadable(
                "not recorded: the caller's environment does not count for another root",
            ),
        ),
    };
    let working_folder = if live {
        std::env::current_dir().ok().map(|dir| path_text(&dir))
    } else {
        None
    };
    let named = |path: &Path, kind: Kind, missing: &str| {
        readable_name(path)?;
        // Under another root the path is that machine's.
        let (text, where_to) = if live {
            let absolute = std::path::absolute(path).map_err(|e| Error::file("read", path, e))?;
            (path_text(&absolute), "")
        } else {
            (path_text(path), " in that root")
        };
        match sysroot.stat(&text) {
            Reading::Present { value, .. } if value.kind == kind => Ok(text),
            Reading::Unreadable { reason } => {
                let reason = reason.rsplit(": ").next().unwrap_or(&reason);
                Err(Error::file("read", path, reason))
            }
            Reading::Present { value, .. } if value.kind == Kind::Folder => {
                Err(Error::file("read", path, "it is a folder"))
            }
            Reading::Present { .. } if kind == Kind::File => {
                Err(Error::file("read", path, "it is no regular file"))
            }
            _ => Err(Error::file("read", path, format!("{missing}{where_to}"))),
        }
    };
    let python_env = args
        .python_env
        .as_ref()
        .map(|prefix| {
            let path = named(prefix, Kind::Folder, "no such folder")?;
            if probe::is_environment(&sysroot, &path) {
                Ok(path)
            } else if let Reading::Unreadable { reason } = sysroot.list(&path, |_| false) {
                let reason = reason.rsplit(": ").next().unwrap_or(&reason);
                Err(Error::file("read", prefix, reason))
            } else {
                Err(Error::file(
                    "examine",
                    prefix,
                    "it is no Python or conda environment",
                ))
            }
        })
        .transpose()?;
    let app = args
        .app
        .as_ref()
        .map(|file| {
            let path = named(file, Kind::File, "no such file")?;
            match probe::application::why_not_to_run(&sysroot, &path) {
                Some(why) => {
                    let why = why.rsplit(": ").next().unwrap_or(&why);
                    Err(Error::file("judge", file, why))
                }
                None => Ok(path),
            }
        })
        .transpose()?;
    let request = Request {
        sysroot,
        environment,
        working_folder,
        python_env,
        app,
        process,
        load_nothing: args.load_nothing,
        init_always: args.probe,
        timeout: Duration::from_secs(args.timeout),
        uname: live.then(uname),
        user: live.then(user),
        taken_at: now(),
        redact: !args.no_redact,
        launcher: launcher()?,
        say: terminal::say,
        image,
    };
    Ok(with_watch(|| probe::take(&request)))
}

/// This program's own environment variables.
fn own_environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| {
            Some((
                name.into_string().ok()?,
                value.to_string_lossy().into_owned(),
            ))
        })
        .collect()
}

/// How children are started.
fn launcher() -> Result<Launcher, Error> {
    Launcher::own()
        .map_err(|e| Error::Usage(format!("cannot find gpudoctor's own program file: {e}")))
}

/// The time: UTC, RFC 3339, whole seconds.
fn now() -> String {
    jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

/// Release of the kernel and name of the machine architecture.
fn uname() -> (String, String) {
    let uname = rustix::system::uname();
    (
        uname.release().to_string_lossy().into_owned(),
        uname.machine().to_string_lossy().into_owned(),
    )
}

/// The effective user and groups.
fn user() -> User {
    User {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: rustix::process::getgroups()
            .map(|groups| {
                groups
                    .into_iter()
                    .map(rustix::process::Gid::as_raw)
                    .collect()
            })
            .unwrap_or_default(),
    }
}

/// Runs something that reads files; what does not come back (a dead mount) is named while it is waited for.
fn with_watch<T>(work: impl FnOnce() -> T) -> T {
    const PATIENCE_S: u64 = 3;
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        let mut said = None;
        while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) =
            waiting.recv_timeout(Duration::from_secs(1))
        {
            if let Some(path) = waiting_for(PATIENCE_S).filter(|path| said.as_ref() != Some(path)) {
                terminal::say(&format!("still waiting for {path}"));
                said = Some(path);
            }
        }
    });
    let result = work();
    drop(done);
    let _ = watch.join();
    result
}
