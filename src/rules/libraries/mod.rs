//! Rules about the libraries between runtime and framework: whether each asks for something that the copy it gets has,
//! whether the parts of one library belong together, and what shadows what. NVRTC's builtins, which are the runtime's, are
//! found the same way and judged here too.

mod driver;
mod gpu;
mod lacking;
mod majors;
mod missing;
mod older;
mod parts;
mod paths;
mod shadowed;

pub(super) use majors::cuda_majors_mixed;
pub(super) use missing::missing_links;
pub(super) use parts::nvrtc_builtins_mixed;
pub(super) use paths::{pythonpath_of, without_pythonpath};

use paths::out_of_the_way;

use super::installed::Tool;
use super::{Ctx, Need, Rule};
use crate::facts::{Layer, LibraryFile, Link, ReachedBy};
use crate::finding::{Fix, Severity};
use crate::read::recipes;
use crate::sysroot::{file_name, parent};

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "cudnn-older-than-build",
        layer: Layer::Libraries,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["distribution-overwritten", "library-parts-mixed"],
        page: include_str!("../pages/cudnn-older-than-build.md"),
        check: older::cudnn_older_than_build,
    },
    Rule {
        id: "library-damaged",
        layer: Layer::Libraries,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/library-damaged.md"),
        check: missing::library_damaged,
    },
    Rule {
        id: "library-drops-gpu",
        layer: Layer::Libraries,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/library-drops-gpu.md"),
        check: gpu::library_drops_gpu,
    },
    Rule {
        id: "library-lacks-symbol",
        layer: Layer::Libraries,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[
            "distribution-overwritten",
            "library-parts-mixed",
            "torch-extension-symbols",
        ],
        page: include_str!("../pages/library-lacks-symbol.md"),
        check: lacking::library_lacks_symbol,
    },
    Rule {
        id: "library-missing",
        layer: Layer::Libraries,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["distribution-files-missing", "library-damaged"],
        page: include_str!("../pages/library-missing.md"),
        check: missing::library_missing,
    },
    Rule {
        id: "library-newer-than-driver",
        layer: Layer::Libraries,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["distribution-overwritten", "library-parts-mixed"],
        page: include_str!("../pages/library-newer-than-driver.md"),
        check: driver::library_newer_than_driver,
    },
    Rule {
        id: "library-parts-mixed",
        layer: Layer::Libraries,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["distribution-files-missing", "distribution-overwritten"],
        page: include_str!("../pages/library-parts-mixed.md"),
        check: parts::library_parts_mixed,
    },
    Rule {
        id: "library-shadowed",
        layer: Layer::Libraries,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[
            "library-parts-mixed",
            "library-lacks-symbol",
            "nvrtc-builtins-mixed",
            "cudnn-older-than-build",
        ],
        page: include_str!("../pages/library-shadowed.md"),
        check: shadowed::library_shadowed,
    },
];

/// The layer that a library belongs to.
pub(super) fn layer_of(soname: &str) -> Layer {
    match recipes::known_name(file_name(soname)).as_deref() {
        Some("libcudart" | "libnvrtc" | "libnvrtc-builtins") => Layer::Runtime,
        _ => Layer::Libraries,
    }
}

/// What a copy is in words: the distribution that brought it, else its file name and version, where both are known.
fn called(ctx: &Ctx<'_>, path: &str) -> String {
    let Some(copy) = ctx.facts.libraries.at(path) else {
        return file_name(path).to_owned();
    };
    match copy.version.value() {
        Some(version) => format!("{} ({version})", file_name(path)),
        None => file_name(path).to_owned(),
    }
}

/// The name and version of the distribution that brought a copy.
fn owner<'a>(ctx: &'a Ctx<'_>, path: &str) -> Option<(&'a str, &'a str)> {
    ctx.facts.libraries.at(path)?.owner.value()?.split_once(' ')
}

/// The copy that a link leads to.
fn got<'a>(ctx: &'a Ctx<'_>, link: &Link) -> Option<&'a LibraryFile> {
    ctx.facts.libraries.at(link.got.as_deref()?)
}

/// Where a copy lies and by which rule it was taken, for a title: `/usr/local/cuda-12.1/lib64 (by LD_LIBRARY_PATH)`.
fn place(link: &Link) -> String {
    let folder = link.got.as_deref().map_or("", parent);
    format!("{folder} (by {})", by(link))
}

/// The loader's rule in words.
fn by(link: &Link) -> String {
    match link.by.as_str() {
        "path" => "its path".to_owned(),
        "ld.so.cache" => "the loader's cache".to_owned(),
        "default folder" => "the loader's default folders".to_owned(),
        other => other.to_owned(),
    }
}

/// The command that brings a distribution of the environment to a requirement.
fn install(ctx: &Ctx<'_>, name: &str, requirement: &str) -> Option<String> {
    Tool::of(ctx, ctx.facts.python.installed(name)?).install(requirement, false)
}

/// The command that installs a distribution of the environment once more.
fn install_again(ctx: &Ctx<'_>, name: &str, version: &str) -> Option<String> {
    Tool::of(ctx, ctx.facts.python.installed(name)?).install_again(name, version)
}

/// A fix with its command, where that is known.
fn with_command(fix: Fix, command: Option<String>) -> Fix {
    match command {
        Some(command) => fix.line(command),
        None => fix,
    }
}

/// How a copy is reached, for evidence.
fn reached(copy: &LibraryFile) -> String {
    copy.reached_by
        .iter()
        .map(ReachedBy::describe)
        .collect::<Vec<_>>()
        .join(", ")
}
