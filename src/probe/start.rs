//! How the program or script of `--app` would be started: which files the kernel, `env` and the program itself name for
//! it, and whether those are there. Nothing is started.
//!
//! A program names its loader (`PT_INTERP`), a script its interpreter (`#!`), and `env` looks a name up on `PATH`. A file
//! of another machine is handed to an emulator where one is registered with the kernel (`binfmt_misc`).

use std::collections::BTreeMap;

use crate::facts::{Reading, Start, StartPart, StartState, Started};
use crate::read::elf::{self, Shape};
use crate::read::proc;
use crate::read::start::{env_command, first_line, handler};
use crate::read::window::bytes_up_to;
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};

/// What is read of a file's beginning, in bytes: the kernel looks at 256.
const HEAD: usize = 512;
/// The most files that are followed; the kernel gives up after five scripts.
const MOST: usize = 8;
/// The most of the list of mounts that is read, in bytes.
const MOUNTS_CAP: usize = 4 << 20;
/// Files of every system that tell what machine it is for, where nobody can be asked.
const OF_EVERY_SYSTEM: &[&str] = &["/bin/sh", "/usr/bin/env", "/bin/busybox", "/sbin/init"];

/// Follows a start. `path_variable` is that of the caller; `None` where it is not known. `machine` is the machine's own
/// architecture.
pub(super) fn start(
    sysroot: &Sysroot,
    path_variable: Option<&BTreeMap<String, String>>,
    machine: Option<&str>,
    path: &str,
) -> Start {
    let mut chain = vec![Started {
        path: path.to_owned(),
        ..look(sysroot, path)
    }];
    while let Some(last) = chain.last() {
        if chain.len() >= MOST || last.state != StartState::Fit && chain.len() > 1 {
            break;
        }
        let Some(next) = next(sysroot, path_variable, last) else {
            break;
        };
        if chain.iter().any(|file| file.path == next.path) {
            break;
        }
        chain.push(next);
    }
    let is_foreign = |file: &&Started| file.arch.is_some() && file.arch.as_deref() != machine;
    let emulator = match chain.iter().find(is_foreign) {
        Some(foreign) => emulator(sysroot, &foreign.path),
        None => Reading::absent("the program is for this machine"),
    };
    let is_script = chain
        .first()
        .is_some_and(|file| file.part == StartPart::Script);
    let beside = is_script.then(|| beside(sysroot, path)).flatten();
    Start {
        chain,
        emulator,
        beside,
    }
}

/// Loaders of the C library, for a disk that holds libraries and no programs.
const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

/// The machine that a system's own programs are for, or its loader: what `uname` would say, where it cannot be asked.
pub(super) fn machine_of(sysroot: &Sysroot) -> Reading<String> {
    let tells = |path: &&str| Some(Reading::present(look(sysroot, path).arch?, *path));
    let all = OF_EVERY_SYSTEM.iter().chain(&LOADERS);
    all.into_iter().find_map(tells).unwrap_or_else(|| {
        Reading::unreadable(
            "not recorded: another root is read, and no program in it tells its machine",
        )
    })
}

/// What lies at a path, and whether it can be started.
fn look(sysroot: &Sysroot, path: &str) -> Started {
    let mut started = Started {
        path: path.to_owned(),
        ..Started::default()
    };
    let is_link = sysroot
        .lstat(path)
        .value()
        .is_some_and(|stat| stat.kind == Kind::Link);
    if is_link {
        started.leads_to = sysroot.real_path(path).value().cloned();
    }
    started.state = match sysroot.stat(path) {
        Reading::Present { value, .. } if value.kind != Kind::File || value.mode & 0o111 == 0 => {
            StartState::NotExecutable
        }
        Reading::Present { .. } => StartState::Fit,
        Reading::Unreadable { reason } => StartState::Unreadable(reason),
        Reading::Absent { .. } if is_link => {
            StartState::BrokenLink(sysroot.link(path).value().cloned().unwrap_or_default())
        }
        // A folder that may not be entered hides what is in it; one that is not there does not.
        Reading::Absent { .. } => StartState::Missing,
    };
    let file = sysroot.file(path);
    let Some(file) = file.value() else {
        return started;
    };
    match elf::identify(file) {
        Shape::Elf(elf) => {
            started.part = match elf.kind {
                elf::Kind::SharedObject => StartPart::Library,
                _ => StartPart::Program,
            };
            // Code of a GPU is an ELF file as well, of a machine that has no name here.
            started.arch = (!elf.arch.starts_with("machine ")).then_some(elf.arch);
        }
        _ if first_line(&bytes_up_to(file, 0, HEAD)).is_some() => {
            started.part = StartPart::Script;
        }
        _ => {}
    }
    started
}

/// What a file names to be started.
fn next(
    sysroot: &Sysroot,
    env: Option<&BTreeMap<String, String>>,
    last: &Started,
) -> Option<Started> {
    let file = sysroot.file(&last.path);
    let file = file.value()?;
    if let Shape::Elf(elf) = elf::identify(file) {
        // A library that names a loader can be run as well, and need not be.
        let loader = elf
            .interp
            .filter(|loader| loader.starts_with('/') && elf.kind == elf::Kind::Executable)?;
        let mut found = look(sysroot, &loader);
        found.part = StartPart::Loader;
        found.written = loader;
        return Some(found);
    }
    let line = first_line(&bytes_up_to(file, 0, HEAD))?;
    let written = match &line.argument {
        Some(argument) => format!("#!{} {argument}", line.interpreter),
        None => format!("#!{}", line.interpreter),
    };
    let interpreter = line.interpreter;
    if !interpreter.starts_with('/') {
        // Counted from the folder in which it is called, which nobody knows.
        return None;
    }
    let found = look(sysroot, &interpreter);
    if file_name(&interpreter) != "env" || found.state != StartState::Fit {
        return Some(Started {
            part: StartPart::Interpreter,
            written,
            ..found
        });
    }
    let name = env_command(&line.argument?)?;
    let found = if name.starts_with('/') {
        look(sysroot, &name)
    } else if name.contains('/') {
        return None;
    } else {
        on_path(sysroot, env, &name)
    };
    Some(Started {
        part: StartPart::OnPath,
        written,
        ..found
    })
}

/// What a name is on `PATH`: the first file that may be executed.
fn on_path(sysroot: &Sysroot, env: Option<&BTreeMap<String, String>>, name: &str) -> Started {
    let nothing = |state| Started {
        path: name.to_owned(),
        state,
        ..Started::default()
    };
    let Some(path) = env.and_then(|env| env.get("PATH")) else {
        return nothing(StartState::Unreadable(
            "the PATH with which it is started is not known".to_owned(),
        ));
    };
    let mut refused = None;
    for dir in path.split(':') {
        // An empty part is the folder in which it is called.
        if !dir.starts_with('/') {
            refused.get_or_insert_with(|| {
                "PATH has folders that are not told from the root".to_owned()
            });
            continue;
        }
        let found = look(sysroot, &join(dir, name));
        match &found.state {
            StartState::Fit => return found,
            StartState::Unreadable(reason) => {
                refused.get_or_insert_with(|| reason.clone());
            }
            _ => {}
        }
    }
    nothing(refused.map_or(StartState::NotOnPath, StartState::Unreadable))
}

/// A Python in the folder of a script that can be started.
fn beside(sysroot: &Sysroot, script: &str) -> Option<String> {
    ["python3", "python"]
        .iter()
        .map(|name| join(parent(script), name))
        .find(|path| look(sysroot, path).state == StartState::Fit)
}

/// The emulator that is registered for a file: (1) where `binfmt_misc` is mounted, its handlers; (2) where the kernel does
/// not know that file system, there are none. The folder itself is not entered elsewhere: systemd would mount it for that.
fn emulator(sysroot: &Sysroot, path: &str) -> Reading<String> {
    const MOUNTS: &str = "/proc/self/mountinfo";
    const KNOWN: &str = "/proc/filesystems";
    let file = sysroot.file(path);
    let Some(file) = file.value() else {
        return Reading::unreadable(file.source());
    };
    let head = bytes_up_to(file, 0, HEAD);
    let mounts = sysroot
        .text_up_to(MOUNTS, MOUNTS_CAP)
        .map(|text| proc::mountinfo(&text));
    let mounted = mounts.items().iter().find(|m| m.fstype == "binfmt_misc");
    let Some(mounted) = mounted else {
        return match sysroot.text_up_to(KNOWN, 1 << 16) {
            Reading::Present { value, source }
                if !value.split_ascii_whitespace().any(|w| w == "binfmt_misc") =>
            {
                Reading::absent(source)
            }
            Reading::Unreadable { reason } => Reading::unreadable(reason),
            _ => Reading::unreadable(
                "binfmt_misc is not mounted here, so emulators that are registered are not seen",
            ),
        };
    };
    let dir = &mounted.target;
    let status = sysroot.text(&join(dir, "status"));
    if status.value().is_some_and(|text| text.trim() != "enabled") {
        return Reading::absent(join(dir, "status"));
    }
    let names = match sysroot.list(dir, |name| !["status", "register"].contains(&name)) {
        Reading::Present { value, .. } => value,
        other => return Reading::unreadable(other.source()),
    };
    for name in names {
        let entry = join(dir, &name);
        let text = match sysroot.text(&entry) {
            Reading::Present { value, .. } => value,
            Reading::Absent { .. } => continue,
            Reading::Unreadable { reason } => return Reading::unreadable(reason),
        };
        let takes = handler(&text).filter(|handler| handler.takes(&head));
        if let Some(handler) = takes
            && (handler.is_held || sysroot.exists(&handler.interpreter))
        {
            return Reading::present(handler.interpreter, entry);
        }
    }
    Reading::absent(dir)
}
