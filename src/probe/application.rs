//! The program of `--app` and the process of `--pid`. Neither is run, stopped or asked: files and `/proc` tell all of it.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{
    ApplicationFacts, DELETED, FileKind, Mapped, Process, ReachedBy, Reading, RuntimeCopy,
};
use crate::inspect::gather::{self, gather};
use crate::inspect::{File, Inspection, Linkage};
use crate::probe::loader::Found;
use crate::probe::resolve::Resolver;
use crate::read::elf::{self, Shape};
use crate::read::fatbin::Look;
use crate::read::linkage::{Runtime, linkage};
use crate::read::pages::Pages;
use crate::read::window::bytes_up_to;
use crate::read::{needs, recipes};
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};
use crate::version::Version;

/// The most of a list of mappings that is read, in bytes; a Python with torch has 600 kB.
const MAPS_CAP: usize = 32 << 20;
/// What is read of a script's beginning, in bytes: the kernel takes a first line of 256, and pip writes a second one where
/// the path of the interpreter is longer or has spaces.
const HEAD: usize = 1024;
const ELF: &[u8] = b"\x7fELF";

/// What was named by `--app`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum App {
    /// A program: what it holds and needs, and the path of each library that the loader brings into it.
    Program(Box<File>, Vec<String>),
    /// A script, and the prefix of the environment that its first line names; `None` where it names none.
    Script(Option<String>),
}

/// Looks at what was named. The caller has seen to it that there is such a file.
pub(super) fn app(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    resolver: &Resolver<'_>,
    path: &str,
) -> App {
    let file = sysroot.file(path);
    let head = file
        .value()
        .map_or_else(Vec::new, |file| bytes_up_to(file, 0, HEAD));
    if !head.starts_with(ELF) {
        return App::Script(interpreter(sysroot, env, &head).map(|python| prefix_of(&python)));
    }
    if is_python(path) {
        // The interpreter itself stands for what it would import.
        return App::Script(Some(prefix_of(path)));
    }
    let mut found = Inspection::default();
    let request = gather::Request {
        sysroot,
        resolver: Some(resolver),
        look: Look::default(),
        all: true,
        all_of_images: false,
        progress: &|_, _| {},
        looked: None,
        arch: crate::inspect::ARCH,
    };
    let program = match gather(path, &request, &mut found) {
        Ok(()) => found.files.pop(),
        Err(e) => {
            log::debug!("{e}");
            None
        }
    };
    let objects = resolver.closure(path).map_or_else(Vec::new, |closure| {
        closure.objects.into_iter().map(|o| o.path).collect()
    });
    App::Program(Box::new(program.unwrap_or_default()), objects)
}

/// Why a file can be no program and no script; `None` where it can.
pub fn why_not_to_run(sysroot: &Sysroot, path: &str) -> Option<String> {
    let head = match sysroot.file(path) {
        Reading::Present { value, .. } => bytes_up_to(&value, 0, HEAD),
        other => return Some(other.source().to_owned()),
    };
    // Behind the first line of a zipapp comes an archive.
    let is_text = !head.is_empty() && (!head.contains(&0) || head.starts_with(b"#!"));
    (!head.starts_with(ELF) && !is_text).then(|| "neither a program nor a script".to_owned())
}

/// The runtimes that a program or a process is sure to have.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Shared ones, by path.
    pub(super) shared: Vec<Found>,
    /// Those inside the program or a library of its own.
    pub(super) inside: Vec<RuntimeCopy>,
}

/// The section that `nvcc` has the linker put device code into.
const DEVICE_CODE: &str = ".nv_fatbin";

/// What the named program or process has of libcudart.
pub(super) fn own_runtimes(sysroot: &Sysroot, app: Option<&App>, process: Option<&Process>) -> Own {
    let is_runtime = |path: &&String| file_name(path).starts_with("libcudart");
    let shared = |paths: Vec<&String>, by: &ReachedBy| {
        let found = paths.into_iter().filter(is_runtime).map(|path| Found {
            path: path.clone(),
            by: by.clone(),
        });
        found.collect()
    };
    if let Some(process) = process {
        let mapped = process.mapped.items().iter();
        let paths = mapped.filter(|m| !m.deleted).map(|m| &m.path).collect();
        let gone = process.mapped.items().iter().filter(|m| m.deleted);
        let gone = gone.filter(|m| is_runtime(&&m.path)).map(gone_runtime);
        let exe = process.exe.value().filter(|exe| !exe.ends_with(DELETED));
        let inside = exe.and_then(|exe| static_runtime(sysroot, exe, ReachedBy::Process));
        // Hundreds of libraries may be mapped: one with device code has a section for it.
        let libraries = process.mapped.items().iter().filter(|m| {
            !m.deleted && Some(&m.path) != exe && is_of_its_own(&m.path) && m.path.contains(".so")
        });
        let in_libraries = libraries.filter_map(|m| {
            let file = sysroot.file(&m.path);
            elf::section(file.value()?, DEVICE_CODE)?;
            static_runtime(sysroot, &m.path, ReachedBy::Process)
        });
        return Own {
            shared: shared(paths, &ReachedBy::Process),
            inside: inside.into_iter().chain(in_libraries).chain(gone).collect(),
        };
    }
    let Some(App::Program(program, objects)) = app else {
        return Own::default();
    };
    let mut inside = Vec::new();
    if program.runtime.linkage == Linkage::Static {
        let version = program.runtime.version.clone();
        inside.push(static_copy(&program.path, version, ReachedBy::Program));
    }
    let of_its_own = objects.iter().skip(1).filter(|path| is_of_its_own(path));
    inside.extend(of_its_own.filter_map(|path| static_runtime(sysroot, path, ReachedBy::Program)));
    Own {
        shared: shared(objects.iter().collect(), &ReachedBy::Program),
        inside,
    }
}

/// Whether a library may hold the application's own CUDA: the system's have none in them, and NVIDIA's have a runtime for
/// themselves.
fn is_of_its_own(path: &str) -> bool {
    recipes::known_name(file_name(path)).is_none()
        && !["/lib", "/usr/lib"].iter().any(|dir| path.starts_with(dir))
}

/// The runtime that is linked into a file, where there is one.
fn static_runtime(sysroot: &Sysroot, path: &str, by: ReachedBy) -> Option<RuntimeCopy> {
    let file = sysroot.file(path);
    let file = file.value()?;
    let Shape::Elf(elf) = elf::identify(file) else {
        return None;
    };
    let linkage = linkage(file, &elf, &[], false, Look::default());
    (linkage.runtime == Runtime::Static).then(|| static_copy(path, linkage.version, by))
}

/// A runtime that a process goes on with although its file is gone: what lies at its path now is another one, or nothing.
fn gone_runtime(mapped: &Mapped) -> RuntimeCopy {
    let path = format!("{}{DELETED}", mapped.path);
    let by_name = file_name(&mapped.path).contains(".so.");
    let soname = if mapped.soname.is_none() && by_name {
        // `libcudart.so.12` tells as much as a soname does.
        Reading::present(file_name(&mapped.path).to_owned(), "its name")
    } else {
        mapped.soname()
    };
    RuntimeCopy {
        kind: FileKind::Library,
        soname,
        version: mapped.version(),
        versions: mapped.versions(),
        owner: Reading::unreadable("the file is no longer on the disk"),
        reached_by: vec![ReachedBy::Process],
        real_path: path.clone(),
        path,
    }
}

fn static_copy(path: &str, version: Option<Version>, by: ReachedBy) -> RuntimeCopy {
    const INSIDE: &str = "static runtime, inferred from its code";
    RuntimeCopy {
        path: path.to_owned(),
        real_path: path.to_owned(),
        kind: FileKind::Library,
        soname: Reading::absent(format!("{path}: {INSIDE}")),
        version: match version {
            Some(version) => Reading::present(version, format!("{path}: {INSIDE}")),
            None => {
                Reading::unreadable(format!("{path}: the static runtime's version is not known"))
            }
        },
        versions: Vec::new(),
        owner: Reading::absent("linked into the file"),
        reached_by: vec![by],
    }
}

/// What was named, as facts.
pub(super) fn facts(app: Option<App>, process: Option<Process>) -> ApplicationFacts {
    ApplicationFacts {
        program: match app {
            Some(App::Program(program, _)) => {
                let path = program.path.clone();
                Reading::present(program, path)
            }
            Some(App::Script(_)) => Reading::absent("--app names a script"),
            None => Reading::absent("--app was not given"),
        },
        process: match process {
            Some(process) => {
                let path = format!("/proc/{}", process.pid);
                Reading::present(process, path)
            }
            None => Reading::absent("--pid was not given"),
        },
        start: Reading::absent("--app was not given"),
    }
}

/// Whether a path is that of a Python interpreter.
fn is_python(path: &str) -> bool {
    file_name(path).strip_prefix("python").is_some_and(|rest| {
        rest.chars()
            .all(|c| c.is_ascii_digit() || c == '.' || c == 't')
    })
}

/// The Python of a script's first line: `#!/opt/env/bin/python`, `#!/usr/bin/env python3`; of the second one where pip wrote
/// `#!/bin/sh` and `''''exec' "/opt/my env/bin/python3" "$0" "$@"`. Other interpreters bring no environment.
fn interpreter(sysroot: &Sysroot, env: &BTreeMap<String, String>, head: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(head.strip_prefix(b"#!")?).into_owned();
    let mut lines = text.lines();
    let mut words = lines.next()?.split_ascii_whitespace();
    let first = words.next()?;
    let named = match file_name(first) {
        "sh" => lines
            .next()?
            .strip_prefix("'''exec' \"")?
            .split('"')
            .next()?
            .to_owned(),
        "env" => words
            .find(|word| !word.starts_with('-') && !word.contains('='))?
            .to_owned(),
        _ => first.to_owned(),
    };
    if !is_python(&named) {
        return None;
    }
    if named.starts_with('/') {
        return Some(named);
    }
    let dirs = env.get("PATH")?.split(':').filter(|d| d.starts_with('/'));
    dirs.map(|dir| join(dir, &named)).find(|path| {
        let stat = sysroot.stat(path);
        stat.value().is_some_and(|stat| stat.kind == Kind::File)
    })
}

/// `/opt/env` of `/opt/env/bin/python3`: of the link, since the environment is where the link lies.
fn prefix_of(python: &str) -> String {
    parent(parent(python)).to_owned()
}

/// A process and its environment variables. `/proc` is that of this machine. What cannot be read without being root or
/// that user is unreadable.
///
/// # Errors
/// Where there is no process of that number, or none that runs a program.
pub fn process(pid: u32) -> Result<(Process, Reading<BTreeMap<String, String>>), String> {
    let live = Sysroot::live();
    let dir = format!("/proc/{pid}");
    if !live.exists(&dir) {
        return Err(format!("there is no process {pid}"));
    }
    let of = |name: &str| join(&dir, name);
    let text = live.bytes(&of("maps"), MAPS_CAP);
    let (own, its) = (live.link("/proc/self/ns/mnt"), live.link(&of("ns/mnt")));
    let other_root = match (own.value(), &its) {
        (Some(own), Reading::Present { value, source }) => {
            Reading::present(own != value, source.clone())
        }
        (_, other) => Reading::unreadable(other.source()),
    };
    let inside = match other_root.value() {
        Some(true) => Sysroot::of_process(pid),
        _ => Sysroot::live(),
    };
    if text.value().is_some_and(Vec::is_empty) {
        return Err(format!(
            "process {pid} runs no program: it is a thread of the kernel, or has ended"
        ));
    }
    // It may end between two questions.
    if text.is_absent() || !live.exists(&dir) {
        return Err(format!("process {pid} has ended"));
    }
    let (mapped, prefix) = match text {
        Reading::Present { value, source } => {
            let files = mapped_files(&String::from_utf8_lossy(&value));
            let prefix = files.iter().find_map(|file| environment_of(&file.path));
            let mapped = files
                .into_iter()
                .filter(|file| is_of_stack(file_name(&file.path)))
                .map(|file| told(&live, &inside, &dir, file))
                .collect();
            (Reading::present(mapped, source), prefix)
        }
        other => (Reading::unreadable(other.source()), None),
    };
    // Before it has imported anything of its environment, the path by which it was started names it.
    let prefix = prefix.or_else(|| {
        let words = live.bytes(&of("cmdline"), MAPS_CAP);
        let first = words.value()?.split(|b| *b == 0).next()?;
        let first = String::from_utf8_lossy(first).into_owned();
        let prefix =
            prefix_of(Some(&first).filter(|path| path.starts_with('/') && is_python(path))?);
        inside
            .exists(&join(&prefix, "pyvenv.cfg"))
            .then_some(prefix)
    });
    let environment = match live.bytes(&of("environ"), MAPS_CAP) {
        Reading::Present { value, source } => Reading::present(variables(&value), source),
        other => Reading::unreadable(other.source()),
    };
    let process = Process {
        pid,
        exe: live.link(&of("exe")),
        other_root,
        mapped,
        prefix,
    };
    Ok((process, environment))
}

/// A mapped file as a fact. Of one that is gone the kernel still has the bytes, for those who may ask for them (root, and
/// `CAP_CHECKPOINT_RESTORE`): under the range of its mapping.
fn told(live: &Sysroot, inside: &Sysroot, dir: &str, file: MappedFile) -> Mapped {
    let mut mapped = Mapped {
        replaced: file.deleted && inside.exists(&file.path),
        path: file.path,
        deleted: file.deleted,
        ..Mapped::default()
    };
    if !mapped.deleted {
        return mapped;
    }
    let name = file_name(&mapped.path);
    let held = join(dir, &format!("map_files/{}", file.range));
    let why = match live.file(&held) {
        Reading::Present { value, .. } => {
            let pages = Pages::new(value);
            mapped.soname = needs::loading(&pages).and_then(|loading| loading.soname);
            let told = recipes::identify_quickly(&pages, mapped.soname.as_deref(), name);
            mapped.version = told.and_then(|told| told.version);
            mapped.told_by = held;
            "no version in its code or name".to_owned()
        }
        other => other.source().to_owned(),
    };
    if mapped.version.is_none() {
        // A soname has one or two numbers, and says no version.
        let full = name.split_once(".so.").map(|(_, version)| version);
        mapped.version = full
            .and_then(Version::parse)
            .filter(|version| version.len() >= 3);
        mapped.told_by = match &mapped.version {
            Some(_) => format!("the name of {}", mapped.path),
            None => format!("its file is no longer on the disk, and {why}"),
        };
    }
    mapped
}

/// A file of a list of mappings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// Its path when it was mapped.
    pub path: String,
    /// Whether it was deleted since.
    pub deleted: bool,
    /// The addresses of its first mapping: `7f5c1a000000-7f5c1a02d000`.
    pub range: String,
}

/// The files of a list of mappings, each once. A path counts twice where the file at it was replaced and both are mapped.
///
/// A line: `7f5c1a000000-7f5c1a02d000 r--p 00000000 fd:01 393253  /usr/lib/libcuda.so.1 (deleted)`. Newlines in a path
/// are written as `\012`.
pub fn mapped_files(text: &str) -> Vec<MappedFile> {
    let mut files: Vec<MappedFile> = Vec::new();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        let (mut rest, mut range, mut inode) = (line, "", "");
        for field in 0..5 {
            let (word, after) = rest.trim_start().split_once(' ').unwrap_or_default();
            match field {
                0 => range = word,
                4 => inode = word,
                _ => {}
            }
            rest = after;
        }
        let path = rest.trim_start();
        if !path.starts_with('/') || !seen.insert((path, inode)) {
            continue;
        }
        let (path, deleted) = match path.strip_suffix(DELETED) {
            Some(path) => (path, true),
            None => (path, false),
        };
        files.push(MappedFile {
            path: path.to_owned(),
            deleted,
            range: range.to_owned(),
        });
    }
    files
}

/// Whether a file name is that of a library of the GPU stack: the driver's, the toolkit's, a framework's own.
fn is_of_stack(name: &str) -> bool {
    recipes::known_name(name).is_some()
        // auditwheel renames what it copies: libcudart-80664282.so.10.2.89.
        || [
            "libnvidia-",
            "libtorch",
            "libc10",
            "libcudadebugger",
            "libcudart",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// The prefix of the environment that a module lies in: `/opt/env` of `/opt/env/lib/python3.11/site-packages/...`.
fn environment_of(path: &str) -> Option<String> {
    let (before, _) = ["/site-packages/", "/dist-packages/"]
        .iter()
        .find_map(|folder| path.split_once(folder))?;
    let (prefix, python) = before.rsplit_once("/lib/")?;
    python.starts_with("python").then(|| prefix.to_owned())
}

/// `NAME=VALUE`, parted by NUL, as the process had it when it was started.
fn variables(bytes: &[u8]) -> BTreeMap<String, String> {
    let entries = bytes.split(|b| *b == 0);
    entries
        .filter_map(|entry| {
            let entry = String::from_utf8_lossy(entry);
            let (name, value) = entry.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings() {
        let text = "\
555555554000-555555575000 r--p 00000000 fd:01 10  /usr/bin/python3.11
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000001000-7f0000002000 r--p 00000000 fd:01 11  /opt/a b/libcudart.so.12 (deleted)
7f0000002000-7f0000003000 r-xp 00001000 fd:01 11  /opt/a b/libcudart.so.12 (deleted)
7f0000003000-7f0000004000 r--p 00000000 fd:01 12  /opt/a b/libcudart.so.12
7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0  [stack]
cut";
        let file = |path: &str, deleted, range: &str| MappedFile {
            path: path.to_owned(),
            deleted,
            range: range.to_owned(),
        };
        let runtime = "/opt/a b/libcudart.so.12";
        assert_eq!(
            mapped_files(text),
            [
                file("/usr/bin/python3.11", false, "555555554000-555555575000"),
                file(runtime, true, "7f0000001000-7f0000002000"),
                file(runtime, false, "7f0000003000-7f0000004000"),
            ]
        );
    }

    #[test]
    fn only_a_python_names_an_environment() {
        let sysroot = Sysroot::live();
        let env = BTreeMap::from([("PATH".to_owned(), "/nowhere".to_owned())]);
        for (head, python) in [
            ("#!/v/bin/python3\nimport torch\n", Some("/v/bin/python3")),
            (
                "#!/usr/bin/env -S /v/bin/python3.11 -u\n",
                Some("/v/bin/python3.11"),
            ),
            ("#!/usr/bin/env python3\n", None),
            ("#!/bin/bash\npython train.py\n", None),
            ("#!/bin/sh\npython train.py\n", None),
            (
                "#!/bin/sh\n'''exec' \"/a b/v/bin/python3\" \"$0\" \"$@\"\n",
                Some("/a b/v/bin/python3"),
            ),
            ("import torch\n", None),
            ("#!", None),
        ] {
            let found = interpreter(&sysroot, &env, head.as_bytes());
            assert_eq!(found.as_deref(), python, "{head}");
        }
        assert!(is_python("/v/bin/python3.13t") && !is_python("/bin/pythonic"));
    }

    #[test]
    fn environments_of_modules() {
        for (path, prefix) in [
            ("/v/lib/python3.11/site-packages/torch/_C.so", Some("/v")),
            ("/usr/lib/python3/dist-packages/x.so", Some("/usr")),
            ("/srv/site-packages/x.so", None),
            ("/usr/lib/libc.so.6", None),
        ] {
            assert_eq!(environment_of(path).as_deref(), prefix, "{path}");
        }
    }
}
