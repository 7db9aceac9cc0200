//! Whether the program or script that was named can be started here at all: is it for this machine, and are the loader or
//! the interpreter there that it names.

use crate::facts::{ConsumerKind, Layer, Reading, Start, StartPart, StartState, Started};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::{file_name, parent};

/// Folders whose programs a distribution brings.
const OF_DISTRIBUTION: &[&str] = &["/bin", "/usr/bin", "/sbin", "/usr/sbin"];
/// Folders in which the loader of a C library lies.
const OF_LOADERS: &[&str] = &[
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr/lib",
    "/usr/lib64",
];
/// Endings of scripts that are handed to their interpreter as often as they are called themselves.
const HANDED_OVER: &[&str] = &[".py", ".sh", ".bash", ".pl", ".rb", ".js", ".lua", ".R"];

/// Whether the kernel of a machine starts files for another one without an emulator. `None`: some do, and it cannot be told.
fn runs_natively(machine: &str, file: &str) -> Option<bool> {
    match (machine, file) {
        _ if machine == file => Some(true),
        ("x86_64", "i386") => Some(true),
        // What was built into the kernel, or what the processor has.
        ("x86_64", "x32") | ("aarch64", "arm") | ("ppc64le", "ppc64") => None,
        ("x86_64" | "aarch64" | "ppc64le" | "riscv64" | "s390x" | "loongarch64", _) => Some(false),
        // A process may be told of a 32-bit machine by a 64-bit kernel.
        _ => None,
    }
}

impl Ctx<'_> {
    /// How the program or script of `--app` is started; absent where none was named.
    fn start(&self) -> &Reading<Start> {
        static NONE: Reading<Start> = Reading::Absent {
            source: String::new(),
        };
        if self.facts.consumer.kind == ConsumerKind::Application {
            &self.facts.application.start
        } else {
            &NONE
        }
    }

    /// The file of the start that is for another machine than this one, and what this one is.
    fn foreign(&self) -> Option<(&Started, &str)> {
        let machine = self.facts.system.arch.value()?;
        let is_foreign = |file: &&Started| {
            let arch = file.arch.as_deref();
            file.part != StartPart::Loader
                && arch.is_some_and(|arch| runs_natively(machine, arch) == Some(false))
        };
        let file = self.start().value()?.chain.iter().find(is_foreign)?;
        Some((file, machine))
    }

    /// Whether the program that was named is for another machine: libraries and drivers of this one are none for it.
    pub(in crate::rules) fn program_is_foreign(&self) -> bool {
        self.foreign().is_some()
    }
}

pub(super) fn program_other_architecture(ctx: &Ctx<'_>) -> Outcome {
    let start = known!(ctx.start(), "how the program is started");
    if start.chain.iter().any(|file| file.arch.is_some()) {
        known!(ctx.facts.system.arch, "this machine's architecture");
    }
    let Some((file, machine)) = ctx.foreign() else {
        return Outcome::Clean;
    };
    let (severity, emulator) = match &start.emulator {
        Reading::Present { .. } => return Outcome::Clean,
        Reading::Absent { source } => (Severity::Error, ("none", source)),
        // It may be started after all.
        Reading::Unreadable { reason } => (Severity::Warning, ("not known", reason)),
    };
    let named = start.chain.first().map_or("", |file| file.path.as_str());
    let arch = file.arch.as_deref().unwrap_or_default();
    let (title, detail) = match file.part {
        StartPart::Library => (
            format!("{named} is a library for {arch}, and this machine is {machine}"),
            "The loader passes over libraries for another machine: `cannot open shared object file`.",
        ),
        StartPart::Interpreter | StartPart::OnPath => (
            format!(
                "{named} is started by {}, which is for {arch}, and this machine is {machine}",
                file.path
            ),
            "The kernel does not start a program for another machine: `Exec format error`.",
        ),
        _ => (
            format!("{named} is a program for {arch}, and this machine is {machine}"),
            "The kernel does not start a program for another machine: `Exec format error`.",
        ),
    };
    let fix = if matches!(file.part, StartPart::Interpreter | StartPart::OnPath) {
        format!(
            "make its environment on a machine of this kind ({machine}): one that was copied holds programs and libraries for {arch}"
        )
    } else {
        format!("take or make the build for {machine}")
    };
    Outcome::found([Finding::new(
        "program-other-architecture",
        Layer::Application,
        severity,
        title,
    )
    .complaining(Layer::System)
    .component(file_name(&file.path))
    .subject(named)
    .detail(detail)
    .evidence("built for", arch, format!("{}: ELF header", file.path))
    .evidence("this machine", machine, ctx.facts.system.arch.source())
    .evidence(
        "emulator registered for it",
        emulator.0,
        emulator.1.as_str(),
    )
    .source("execve(2): ENOEXEC; binfmt_misc of the kernel")
    .fix(Fix::at(Layer::Application, fix).verify(format!("file {}", file.path)))])
}

/// What stands against a file, in words that follow its name; `None` where nothing does.
fn what_is_wrong(file: &Started) -> Option<String> {
    Some(match &file.state {
        StartState::Missing => "is not there".to_owned(),
        StartState::BrokenLink(text) => format!("is a link to {text}, which is not there"),
        StartState::NotExecutable => "may not be executed".to_owned(),
        StartState::NotOnPath => "is in no folder of PATH".to_owned(),
        StartState::Fit | StartState::Unreadable(_) | StartState::Unknown => return None,
    })
}

/// The file of a part that cannot be started; or why that is not known.
fn unfit(start: &Start, parts: &[StartPart]) -> Result<Option<(Started, String)>, Outcome> {
    for file in start.chain.iter().filter(|f| parts.contains(&f.part)) {
        match &file.state {
            StartState::Unreadable(reason) => {
                return Err(Outcome::unknown(format!("{}: {reason}", file.path)));
            }
            StartState::Unknown => {
                return Err(Outcome::unknown(format!("{}: not recorded", file.path)));
            }
            _ => {}
        }
        if let Some(what) = what_is_wrong(file) {
            return Ok(Some((file.clone(), what)));
        }
    }
    Ok(None)
}

pub(super) fn program_loader_missing(ctx: &Ctx<'_>) -> Outcome {
    let start = known!(ctx.start(), "how the program is started");
    if !start
        .chain
        .iter()
        .any(|file| file.part == StartPart::Loader)
    {
        return Outcome::Clean;
    }
    known!(ctx.facts.system.arch, "this machine's architecture");
    // An emulator brings loaders of its own.
    if ctx.program_is_foreign() || start.emulator.is_present() {
        return Outcome::Clean;
    }
    let is_stub = |file: &&Started| {
        let leads_to = file.leads_to.as_deref().unwrap_or_default();
        file.part == StartPart::Loader && leads_to.ends_with("-stub-ld")
    };
    let (loader, what) = match unfit(start, &[StartPart::Loader]) {
        Err(unknown) => return unknown,
        Ok(Some(found)) => found,
        Ok(None) => match start.chain.iter().find(is_stub) {
            Some(stub) => (
                stub.clone(),
                "only says that programs of other systems do not run here".to_owned(),
            ),
            None => return Outcome::Clean,
        },
    };
    let Some(at) = start.chain.iter().position(|file| file.path == loader.path) else {
        return Outcome::Clean;
    };
    let program = at.checked_sub(1).and_then(|before| start.chain.get(before));
    let Some(program) = program else {
        return Outcome::Clean;
    };
    let named = start.chain.first().map_or("", |file| file.path.as_str());
    let path = loader.path.as_str();
    let of_system = OF_LOADERS.contains(&parent(path))
        || OF_LOADERS
            .iter()
            .any(|dir| path.starts_with(&format!("{dir}/")) && path.contains("-linux-"));
    let layer = if of_system {
        Layer::System
    } else {
        Layer::Application
    };
    let mut finding = Finding::new(
        "program-loader-missing",
        layer,
        Severity::Error,
        format!("{} is started by the loader {path}, which {what}", program.path),
    )
    .complaining(Layer::Application)
    .component(file_name(path))
    .subject(named)
    .detail("The kernel starts the loader that a program names, and the loader the program. Without it shells say `no such file or directory`, or `required file not found`, of the program that is there.")
    .evidence("loader that it names", &loader.written, format!("{}: PT_INTERP", program.path))
    .evidence("what lies there", what, loader.leads_to.as_deref().unwrap_or(path))
    .source("execve(2): ENOENT; ld.so(8)");
    if let Reading::Present { value, source } = &ctx.facts.system.libc {
        finding = finding.evidence("C library of this system", &value.kind, source);
    }
    for fix in loader_fixes(ctx, path, layer, program.arch.as_deref()) {
        finding = finding.fix(fix);
    }
    Outcome::found([finding])
}

/// How a program gets its loader.
fn loader_fixes(ctx: &Ctx<'_>, loader: &str, layer: Layer, arch: Option<&str>) -> Vec<Fix> {
    let os = ctx.facts.system.os.value().map_or("", |os| os.id.as_str());
    let on_musl = ctx
        .facts
        .system
        .libc
        .value()
        .is_some_and(|libc| libc.kind == "musl");
    let is_musl = file_name(loader).starts_with("ld-musl-");
    let system = |text: &str| Fix::at(Layer::System, text);
    let application = |text: &str| Fix::at(Layer::Application, text);
    if layer == Layer::Application {
        return vec![application(
            "take or make a build for this system: the loader that it names is part of the one that it was built on",
        )];
    }
    if os == "nixos" {
        return vec![
            system(
                "give programs of other systems a loader: `programs.nix-ld.enable = true;` in the NixOS configuration",
            ),
            application("or build it with Nix, which names the loader in /nix/store"),
        ];
    }
    if is_musl {
        return vec![
            application("take or make the build for glibc"),
            system("or install musl, whose loader this is").cost("root"),
        ];
    }
    if on_musl {
        return vec![
            system(
                "run it in an image or on a system with glibc: NVIDIA's driver libraries need that as well",
            ),
            application("or take or make a build for musl")
                .second("a build that uses the GPU needs libcuda, which is made for glibc"),
        ];
    }
    if arch == Some("i386") {
        return vec![
            system("install the 32-bit C library: libc6:i386 on Debian and Ubuntu, glibc.i686 on Fedora").cost("root"),
            application("or take the 64-bit build"),
        ];
    }
    vec![
        system("install the package that brings this loader").cost("root"),
        application("or take or make a build for this system").cost("rebuild"),
    ]
}

/// A virtual environment has no Python of its own but a link to the one that it was made with.
fn dead_environment(ctx: &Ctx<'_>) -> Option<Finding> {
    let consumer = &ctx.facts.consumer;
    let (path, text) = consumer.dead_python.as_ref()?;
    let prefix = consumer.prefix.value()?;
    let python = file_name(text);
    let again = Fix::at(
        Layer::Application,
        format!("install {python} again, or make the environment anew on a Python that is there and install its packages again"),
    )
    .verify("gpudoctor");
    // One that merely lies in the working folder may be another machine's: of a container that the folder is mounted into.
    let severity = if consumer.why.starts_with("./.venv") {
        Severity::Warning
    } else {
        Severity::Error
    };
    Some(
        Finding::new(
            "interpreter-unusable",
            Layer::Application,
            severity,
            format!("{path} is a link to {text}, which is not there: the environment cannot be used"),
        )
        .complaining(Layer::System)
        .component(file_name(path))
        .subject(path.as_str())
        .detail("A virtual environment links to the Python that it was made with. Where that was removed, upgraded to another minor version or lies on another machine, nothing in the environment starts, and its packages are of no use to another Python.")
        .evidence("link", text.as_str(), path.as_str())
        .evidence("environment", prefix.as_str(), consumer.why.as_str())
        .source("Python documentation: venv")
        .fix(again),
    )
}

pub(super) fn interpreter_unusable(ctx: &Ctx<'_>) -> Outcome {
    if let Some(finding) = dead_environment(ctx) {
        return Outcome::found([finding]);
    }
    let start = known!(ctx.start(), "how the program is started");
    // What may not be executed is handed to an interpreter by whoever runs it.
    let Some(script) = start
        .chain
        .first()
        .filter(|file| file.part == StartPart::Script && file.state == StartState::Fit)
    else {
        return Outcome::Clean;
    };
    let (file, what) = match unfit(start, &[StartPart::Interpreter, StartPart::OnPath]) {
        Err(unknown) => return unknown,
        Ok(Some(found)) => found,
        Ok(None) => return Outcome::Clean,
    };
    let severity = if HANDED_OVER
        .iter()
        .any(|ending| script.path.ends_with(ending))
    {
        Severity::Warning
    } else {
        Severity::Error
    };
    let (layer, fixes) = interpreter_fixes(ctx, start, script, &file);
    let shown: String = file.path.escape_debug().collect();
    let mut finding = Finding::new(
        "interpreter-unusable",
        layer,
        severity,
        format!("{} is started by {shown}, which {what}", script.path),
    )
    .complaining(Layer::System)
    .component(file_name(&shown))
    .subject(script.path.as_str())
    .detail("The kernel starts what the first line of a script names. Where that is not there, shells say `bad interpreter: No such file or directory`, and `env` says it of the name. Handed to an interpreter by hand the script runs.")
    .evidence("first line", file.written.escape_debug().collect::<String>(), script.path.as_str())
    .evidence("what lies there", what, shown.as_str());
    if let Some(beside) = start.beside.as_ref().filter(|_| shown.contains("py")) {
        finding = finding.evidence("Python beside it", beside, parent(&script.path));
    }
    if file.part == StartPart::OnPath
        && let Some(path) = ctx.facts.consumer.prefix.value()
    {
        finding = finding.evidence(
            "environment that is examined",
            path,
            &ctx.facts.consumer.why,
        );
    }
    for fix in fixes {
        finding = finding.fix(fix);
    }
    Outcome::found([finding.source("execve(2): interpreter scripts; env(1)")])
}

/// The layer at fault, and what mends it.
fn interpreter_fixes(
    ctx: &Ctx<'_>,
    start: &Start,
    script: &Started,
    file: &Started,
) -> (Layer, Vec<Fix>) {
    let application = |text: String| Fix::at(Layer::Application, text);
    if file.path.ends_with('\r') {
        let fix = application(
            "take the carriage returns out of its lines: it has those of Windows".to_owned(),
        )
        .command(&["sed", "-i", "s/\\r$//", &script.path]);
        return (Layer::Application, vec![fix]);
    }
    if let Some((name, options)) = file
        .path
        .split_once(' ')
        .filter(|_| file.part == StartPart::OnPath)
    {
        let fix = application(format!(
            "let env part the words: write `#!/usr/bin/env -S {name} {options}` as its first line"
        ));
        return (Layer::Application, vec![fix]);
    }
    let name = file_name(&file.path);
    let is_python = name.starts_with("python") || name.starts_with("pypy");
    let beside = start.beside.as_ref().filter(|_| is_python);
    if file.part == StartPart::OnPath {
        let with_beside = beside.map(|python| {
            application("start it with the Python beside it".to_owned())
                .command(&[python, &script.path])
        });
        let prefix = ctx.facts.consumer.prefix.value().filter(|_| is_python);
        let activate = prefix.map(|prefix| {
            application(format!(
                "put {prefix}/bin on PATH: activate the environment that it is for"
            ))
        });
        let fixes: Vec<Fix> = with_beside.into_iter().chain(activate).collect();
        if !fixes.is_empty() {
            return (Layer::Application, fixes);
        }
        let fix = Fix::at(
            Layer::System,
            format!(
                "install {}, or put the folder that has it on PATH",
                file.path
            ),
        );
        return (Layer::System, vec![fix]);
    }
    if OF_DISTRIBUTION.contains(&parent(&file.path)) {
        let fixes = vec![
            Fix::at(Layer::System, format!("install what brings {}", file.path)).cost("root"),
            application("or name an interpreter that is here in its first line".to_owned()),
        ];
        return (Layer::System, fixes);
    }
    if !is_python {
        let named = "its first line names a full path";
        return (
            Layer::Application,
            vec![application(format!(
                "name the {name} of this system in its first line, or install one at {}: {named}",
                file.path
            ))],
        );
    }
    let mut fixes = Vec::new();
    if let Some(python) = beside {
        fixes.push(
            application(format!(
                "its environment was moved to {}: start it with the Python there",
                parent(parent(python))
            ))
            .command(&[python, &script.path]),
        );
    }
    fixes.push(application(format!(
        "{}make the environment again with a Python that is here, and install into it what it had: first lines hold full paths",
        if fixes.is_empty() { "" } else { "or " }
    )));
    (Layer::Application, fixes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kernel_starts() {
        for (machine, file, runs) in [
            ("x86_64", "x86_64", Some(true)),
            ("x86_64", "i386", Some(true)),
            ("x86_64", "aarch64", Some(false)),
            ("aarch64", "x86_64", Some(false)),
            ("aarch64", "arm", None),
            ("i686", "x86_64", None),
            ("armv7l", "arm", None),
        ] {
            assert_eq!(runs_natively(machine, file), runs, "{file} on {machine}");
        }
    }
}
