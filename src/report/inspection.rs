//! What `inspect` found, as text and as JSON by the contract `gpudoctor.inspection/1`.
//!
//! As text, the first line of each file is the answer: what it is, which CUDA it uses, for which GPUs it has code, or
//! what stands in the way. Paths and names are the host's and hostile.

use std::fmt::Write as _;

use owo_colors::Style;

use super::escape::terminal;
use super::paragraph::{painted, wrapped};
use super::text::Options;
use crate::diagnosis::Status;
use crate::finding::{Finding, Severity};
use crate::inspect::{
    self, Archs, Container, File, ImageFacts, Inspection, Kind, Linkage, TakenBy, Use,
};
use crate::version::Version;

/// Columns of the labels of a file's details.
const LABEL: usize = 12;
/// Needed libraries shown without `-v`: those of CUDA, and those that are missing, all of them.
const NEEDED_SHOWN: usize = 12;

/// Characters of a variable of an image that are shown without `-v`.
const MAX_VALUE: usize = 160;

/// As pretty-printed JSON with a final newline.
pub fn json(found: &Inspection) -> serde_json::Result<String> {
    serde_json::to_string_pretty(found).map(|text| text + "\n")
}

/// As text.
pub fn text(found: &Inspection, options: Options) -> String {
    let mut out = Writer {
        text: String::new(),
        options,
    };
    out.answer(found);
    for container in &found.containers {
        if let Some(image) = &container.image {
            out.image(container, image);
            continue;
        }
        let package = container
            .package
            .as_ref()
            .map_or(String::new(), |package| format!(", {package}"));
        let line = format!(
            "{}: {}{package}: {} of {} binaries have to do with the GPU",
            container.path,
            container.kind.replace('-', " "),
            container.listed,
            container.looked_at
        );
        out.wrapped("", "  ", &line);
    }
    // Many files get a line each, a few all of it.
    let brief = found.files.len() > 3 && !options.verbose;
    for file in &found.files {
        let findings: Vec<&Finding> = found
            .findings
            .iter()
            .flatten()
            .filter(|finding| {
                let subjects = &finding.subjects;
                subjects.iter().any(|subject| concerns(subject, &file.path))
            })
            .collect();
        let worst = findings.iter().map(|finding| finding.severity).max();
        let worst = worst.filter(|severity| *severity >= Severity::Warning);
        if options.quiet && worst.is_none() {
            continue;
        }
        out.file(found, file, worst, brief);
    }
    out.findings(found);
    for problem in &found.problems {
        out.wrapped("not read: ", "  ", problem);
    }
    if brief && !options.quiet {
        let _ = writeln!(out.text, "\nmore of each file: -v, or name it alone");
    }
    out.text
}

/// Whether a finding's subject is this file, or something about it: `PATH`, `PATH on GPU`, `SONAME for PATH`.
fn concerns(subject: &str, path: &str) -> bool {
    let rest = subject.strip_prefix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" on "))
        || subject
            .strip_suffix(path)
            .is_some_and(|before| before.ends_with(" for "))
}

struct Writer {
    text: String,
    options: Options,
}

impl Writer {
    fn paint(&self, text: &str, style: Style) -> String {
        painted(self.options.color, text, style)
    }

    fn wrapped(&mut self, first: &str, rest: &str, text: &str) {
        self.text
            .push_str(&wrapped(self.options.width, first, rest, text));
    }

    /// The verdict, where there is one; it is not wrapped, so that a log has it in one piece.
    fn answer(&mut self, found: &Inspection) {
        let Some(verdict) = &found.verdict else {
            return;
        };
        if self.options.quiet && verdict.status == Status::Ok {
            return;
        }
        let (label, style) = match verdict.status {
            Status::Fault => (
                verdict
                    .layer
                    .map_or("fault: ".to_owned(), |layer| format!("{layer}: ")),
                Style::new().red().bold(),
            ),
            Status::Warning => ("warning: ".to_owned(), Style::new().yellow().bold()),
            Status::Unknown => ("could not tell: ".to_owned(), Style::new().yellow().bold()),
            Status::Ok | Status::Absent => ("ok: ".to_owned(), Style::new().green().bold()),
        };
        let others = match verdict.roots.len().saturating_sub(1) {
            0 => String::new(),
            1 => " (and 1 more)".to_owned(),
            n => format!(" (and {n} more)"),
        };
        // The layer's name stands before the colon: "driver: 535.104.05 is too old", not "driver: driver 535.104.05".
        let summary = verdict
            .layer
            .and_then(|layer| verdict.summary.strip_prefix(&format!("{layer} ")))
            .unwrap_or(&verdict.summary);
        let label = self.paint(&label, style);
        let _ = writeln!(self.text, "{label}{}{others}\n", terminal(summary));
    }

    fn file(&mut self, found: &Inspection, file: &File, worst: Option<Severity>, brief: bool) {
        // In a long list a member is told by its path within; the line of its wheel or folder stands above.
        let within = found
            .containers
            .iter()
            .filter_map(|container| file.path.strip_prefix(&container.path))
            .filter_map(|rest| rest.strip_prefix(['!', '/']))
            .min_by_key(|rest| rest.len());
        let (indent, path) = match within {
            Some(path) if brief => ("  ", path),
            _ => ("", file.path.as_str()),
        };
        let path = self.paint(&terminal(path), Style::new().bold());
        let mark = match worst {
            Some(Severity::Error) => self.paint("FAULT: ", Style::new().red().bold()),
            Some(_) => self.paint("WARNING: ", Style::new().yellow().bold()),
            None => String::new(),
        };
        let answer = answer(file);
        let answer = terminal(&answer);
        let _ = writeln!(self.text, "{indent}{path}: {mark}{answer}");
        if brief {
            return;
        }
        self.details(file);
        self.text.push('\n');
    }

    fn detail(&mut self, label: &str, text: &str) {
        if !text.is_empty() {
            self.wrapped(&format!("  {label:<LABEL$}"), &" ".repeat(LABEL + 2), text);
        }
    }

    /// What an image is, and what is in it and asked by it beside its files.
    fn image(&mut self, container: &Container, image: &ImageFacts) {
        if self.options.quiet {
            return;
        }
        let mut what = vec![format!("image{}", spaced(image.name.as_ref()))];
        let of = format!(
            "{}{}",
            image.system.as_deref().unwrap_or("a system without a name"),
            image
                .arch
                .as_ref()
                .map_or(String::new(), |arch| format!(" for {arch}"))
        );
        what.push(of);
        let torch = image
            .packages
            .iter()
            .find(|package| package.name == "torch");
        what.extend(torch.map(|torch| format!("torch {}", torch.version)));
        what.extend(image.toolkits.last().map(|t| format!("CUDA {}", t.version)));
        let line = format!(
            "{}: {}: {} of {} binaries have to do with the GPU",
            container.path,
            what.join(", "),
            container.listed,
            container.looked_at
        );
        self.wrapped("", "  ", &line);
        let packed = image.layers.iter().filter(|layer| layer.packing.is_some());
        let bytes = image.layers.iter().map(|layer| layer.size_bytes).sum();
        self.detail(
            "layout",
            &format!(
                "{}, {}{} of {}, {} files",
                image.form.replace('-', " "),
                match image.layers.len() {
                    1 => "1 layer".to_owned(),
                    count => format!("{count} layers"),
                },
                match packed.count() {
                    0 => String::new(),
                    count => format!(" ({count} packed)"),
                },
                size(bytes),
                image.files
            ),
        );
        if let Some(glibc) = &image.glibc {
            self.detail("C library", &format!("glibc {glibc}"));
        }
        match &image.environment {
            None => self.detail(
                "environment",
                "not known: a root filesystem has no configuration",
            ),
            Some(environment) => {
                let mut label = "environment";
                for (name, value) in environment {
                    let cut: String = value.chars().take(MAX_VALUE).collect();
                    let is_whole = cut.len() == value.len() || self.options.verbose;
                    let shown = if is_whole { value.clone() } else { cut + "..." };
                    self.detail(label, &format!("{name}={shown}"));
                    label = "";
                }
                if environment.is_empty() {
                    self.detail(label, "nothing that has to do with the GPU");
                }
            }
        }
        let toolkits = image.toolkits.iter();
        let toolkits: Vec<String> = toolkits
            .map(|toolkit| format!("{} in {}", toolkit.version, toolkit.path))
            .collect();
        self.detail("toolkits", &toolkits.join(", "));
        let mut packages: Vec<String> = image
            .packages
            .iter()
            .map(|package| format!("{} {}", package.name, package.version))
            .collect();
        packages.dedup();
        self.detail("packages", &packages.join(", "));
        for compat in &image.compat {
            let version = compat.version.as_ref();
            let version = version.map_or("version not known".to_owned(), ToString::to_string);
            let by = match compat.taken_by {
                TakenBy::LibraryPath => ", first by LD_LIBRARY_PATH",
                TakenBy::Toolkit => ", for drivers of older branches",
                TakenBy::StartScript => ", where the start script takes it",
                TakenBy::Nobody => ", on no path of the loader",
            };
            self.detail("compat", &format!("libcuda {version}: {}{by}", compat.path));
        }
        if !image.other_archs.is_empty() {
            let archs = image.other_archs.join(", ");
            self.detail(
                "beside it",
                &format!("images of the same index for {archs}"),
            );
        }
        for file in image.driver_files.iter().take(NEEDED_SHOWN) {
            let what = if file.size_bytes == 0 { ", empty" } else { "" };
            self.detail("of a driver", &format!("{}{what}", file.path));
        }
        self.text.push('\n');
    }

    fn details(&mut self, file: &File) {
        let list = |items: &[String]| items.join(" ");
        let mut what = vec![file.description.clone()];
        what.extend(file.arch.as_ref().map(|arch| format!("for {arch}")));
        let mut what = what.join(" ");
        let _ = write!(what, ", {}", size(file.size_bytes));
        if let Some(soname) = &file.soname {
            let _ = write!(what, ", soname {soname}");
        }
        self.detail("file", &what);
        if let Some(identity) = &file.identity {
            let version = identity
                .version
                .as_ref()
                .map_or("version not known".to_owned(), ToString::to_string);
            let cuda = identity
                .cuda
                .as_ref()
                .map_or(String::new(), |cuda| format!(", built for CUDA {cuda}"));
            let by = if identity.source.is_empty() {
                String::new()
            } else {
                format!(" (by {})", identity.source)
            };
            self.detail(
                "identity",
                &format!("{} {version}{cuda}{by}", identity.name),
            );
        }
        self.detail("package", file.package.as_deref().unwrap_or_default());
        if let Some(module) = &file.module {
            let field =
                |value: &Option<String>| value.clone().unwrap_or_else(|| "not said".to_owned());
            let signed = if module.signed {
                "signed"
            } else {
                "not signed"
            };
            self.detail(
                "module",
                &format!(
                    "{} {}, for kernel {}, licence {}, {signed}",
                    field(&module.name),
                    field(&module.version),
                    field(&module.vermagic),
                    field(&module.license)
                ),
            );
        }
        if let Some(go) = &file.go {
            let modules: Vec<String> = go
                .modules
                .iter()
                .map(|(name, version)| format!("{name} {version}"))
                .collect();
            let of_gpu = if modules.is_empty() {
                "none of the GPU".to_owned()
            } else {
                modules.join(", ")
            };
            self.detail(
                "go",
                &format!(
                    "{}, modules: {} in all, {of_gpu}",
                    go.version, go.module_count
                ),
            );
        }
        let code = |archs: &Archs, entries: (u64, u64)| {
            let mut parts = Vec::new();
            if !archs.elf.is_empty() {
                parts.push(format!("{} cubins for {}", entries.0, list(&archs.elf)));
            }
            if !archs.ptx.is_empty() {
                parts.push(format!("{} PTX for {}", entries.1, list(&archs.ptx)));
            }
            parts.join("; ")
        };
        self.detail(
            "code",
            &code(&file.archs, (file.device.elf, file.device.ptx)),
        );
        self.detail(
            "to link",
            &code(
                &file.relocatable,
                (file.device.relocatable_elf, file.device.relocatable_ptx),
            ),
        );
        for (section, archs) in &file.stray {
            let all: Vec<&String> = archs.elf.iter().chain(&archs.ptx).collect();
            let all: Vec<&str> = all.into_iter().map(String::as_str).collect();
            self.detail("stray code", &format!("in {section}: {}", all.join(" ")));
        }
        if !file.ptx_isa.is_empty() {
            self.detail("PTX version", &versions(&file.ptx_isa));
        }
        if !file.toolkits.is_empty() {
            let of = if file.device.toolkits_of < file.device.cubins {
                format!(
                    " (asked {} of {} cubins; --deep asks all)",
                    file.device.toolkits_of, file.device.cubins
                )
            } else {
                String::new()
            };
            self.detail(
                "built by",
                &format!("CUDA {}{of}", versions(&file.toolkits)),
            );
        }
        let mut packed = Vec::new();
        for (count, name) in [
            (file.device.unpacked, "not packed"),
            (file.device.lz4, "LZ4"),
            (file.device.zstd, "zstd"),
        ] {
            if count > 0 {
                packed.push(format!("{count} {name}"));
            }
        }
        self.detail("packing", &packed.join(", "));
        self.detail("runtime", &runtime(file));
        self.detail("driver", &driver(file));
        let needs: Vec<String> = [
            ("glibc", &file.glibc),
            ("GLIBCXX", &file.glibcxx),
            ("CXXABI", &file.cxxabi),
        ]
        .iter()
        .filter_map(|(name, version)| Some(format!("{name} {}", version.as_ref()?)))
        .collect();
        self.detail("needs", &needs.join(", "));
        let mut label = "libraries";
        let mut left = file.needed.len();
        for needed in file.needed.iter().take(if self.options.verbose {
            usize::MAX
        } else {
            NEEDED_SHOWN
        }) {
            let line = match &needed.resolved {
                Some(path) => format!("{}: {path} [{}]", needed.soname, needed.by),
                None if needed.by.is_empty() => needed.soname.clone(),
                None => format!("{}: {}", needed.soname, needed.by),
            };
            self.detail(label, &line);
            label = "";
            left -= 1;
        }
        if left > 0 {
            self.detail("", &format!("{left} more with -v"));
        }
        for missing in &file.missing {
            self.detail(
                "missing",
                &format!("{} in {}", missing.what, missing.library),
            );
        }
        if self.options.verbose {
            self.detail("RPATH", file.rpath.as_deref().unwrap_or_default());
            self.detail("RUNPATH", file.runpath.as_deref().unwrap_or_default());
            self.detail("build id", file.build_id.as_deref().unwrap_or_default());
        }
        for problem in &file.problems {
            self.detail("problem", problem);
        }
    }

    fn findings(&mut self, found: &Inspection) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
        for finding in found.findings.iter().flatten() {
            let is_note = finding.severity == Severity::Note;
            if is_note && (self.options.quiet || found.files.len() > 3 && !self.options.verbose) {
                continue;
            }
            let style = match finding.severity {
                Severity::Error => Style::new().red().bold(),
                Severity::Warning => Style::new().yellow().bold(),
                Severity::Note => Style::new().cyan().bold(),
            };
            let head = format!(
                "{} in {}: {}",
                finding.severity.id(),
                finding.layer,
                finding.id
            );
            let head = self.paint(&head, style);
            let _ = writeln!(self.text, "{head}");
            self.wrapped("  ", "  ", &finding.title);
            if !is_note || self.options.verbose {
                for evidence in &finding.evidence {
                    self.wrapped(
                        "    - ",
                        "      ",
                        &format!(
                            "{}: {} [{}]",
                            evidence.what, evidence.value, evidence.source
                        ),
                    );
                }
                for (index, fix) in finding.fixes.iter().enumerate() {
                    let cost = if fix.cost.is_empty() {
                        String::new()
                    } else {
                        format!(" [{}]", fix.cost)
                    };
                    self.wrapped(
                        if index == 0 { "  fix: " } else { "  or:  " },
                        "       ",
                        &format!("{}{cost}", fix.summary),
                    );
                    if let Some(why) = &fix.why_second {
                        self.wrapped("       ", "       ", &format!("second best: {why}"));
                    }
                }
            }
        }
    }
}

/// What a file is, which CUDA it uses, and for which GPUs it has code: one line.
fn answer(file: &File) -> String {
    let mut parts = Vec::new();
    match &file.identity {
        Some(identity) => {
            let version = identity
                .version
                .as_ref()
                .map_or(String::new(), |v| format!(" {v}"));
            parts.push(format!("{}{version}", identity.name));
        }
        None => parts.push(file.description.clone()),
    }
    if let Some(arch) = file.arch.as_ref().filter(|arch| *arch != inspect::ARCH) {
        parts.push(format!("for {arch}"));
    }
    if let Some(module) = &file.module {
        parts.extend(module.version.as_ref().map(|v| format!("version {v}")));
    }
    let version = file
        .runtime
        .cuda()
        .map_or(String::new(), |v| format!(" {v}"));
    match file.runtime.linkage {
        Linkage::Dynamic => parts.push(format!("CUDA{version} (shared runtime)")),
        Linkage::Static => parts.push(format!("CUDA{version} (static runtime)")),
        Linkage::Dlopen => parts.push("CUDA (opens a runtime)".to_owned()),
        Linkage::None => {
            for (name, used) in [
                ("libcuda", file.libcuda),
                ("libnvidia-ml", file.libnvidia_ml),
            ] {
                match used {
                    Use::Needed => parts.push(format!("needs {name}")),
                    Use::Dlopen => parts.push(format!("opens {name}")),
                    Use::None => {}
                }
            }
        }
    }
    let shown = if file.archs == Archs::default() {
        &file.relocatable
    } else {
        &file.archs
    };
    let mut code: Vec<String> = Vec::new();
    if !shown.elf.is_empty() {
        code.push(shown.elf.join(" "));
    }
    if !shown.ptx.is_empty() {
        code.push(format!("PTX {}", shown.ptx.join(" ")));
    }
    if !code.is_empty() {
        parts.push(code.join(" + "));
    } else if file.rocm {
        let gfx = file.gfx.as_ref().filter(|gfx| !gfx.targets.is_empty());
        parts.push(match gfx {
            Some(gfx) => {
                let more = if gfx.complete {
                    ""
                } else {
                    " (not all was read)"
                };
                format!("ROCm {}{more}", gfx.targets.join(" "))
            }
            None => "code of AMD's ROCm, none of CUDA".to_owned(),
        });
    } else if matches!(
        file.kind,
        Kind::Program | Kind::SharedLibrary | Kind::Object | Kind::StaticLibrary
    ) {
        parts.push("no device code".to_owned());
    }
    parts.join(", ")
}

fn runtime(file: &File) -> String {
    let runtime = &file.runtime;
    let version = runtime
        .cuda()
        .map_or("version not known".to_owned(), |v| format!("CUDA {v}"));
    match runtime.linkage {
        Linkage::Dynamic => {
            let library = runtime.library.clone().unwrap_or_default();
            let renamed = runtime
                .linked_as
                .as_ref()
                .map_or(String::new(), |soname| format!(", renamed from {soname}"));
            format!("{version}, shared: {library}{renamed}")
        }
        Linkage::Static => format!("{version}, static (inferred from its code)"),
        Linkage::Dlopen => "opened at run time".to_owned(),
        Linkage::None => String::new(),
    }
}

fn driver(file: &File) -> String {
    let say = |name: &str, used: Use| match used {
        Use::Needed => Some(format!("needs {name} (does not load without a driver)")),
        Use::Dlopen => Some(format!("opens {name} where it is there")),
        Use::None => None,
    };
    let parts = [
        say("libcuda", file.libcuda),
        say("libnvidia-ml", file.libnvidia_ml),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn versions(versions: &[Version]) -> String {
    versions
        .iter()
        .map(Version::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}

/// A space and a text, or nothing.
fn spaced(text: Option<&String>) -> String {
    text.map_or(String::new(), |text| format!(" {text}"))
}

/// Bytes for people.
#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn size(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}
