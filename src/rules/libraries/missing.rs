//! Libraries that are needed and are not there, or are there and are none.

use super::{called, install_again, layer_of, owner, with_command};
use crate::facts::{
    ANY_PROGRAM, ChangedFile, FileKind, Installed, Layer, LibraryFile, Link, ReachedBy,
};
use crate::finding::{Finding, Fix, Severity};
use crate::read::recipes::known_name;
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::file_name;
use crate::version::Version;

/// Libraries whose number is that of CUDA: where one of another number is there, the framework was built for another CUDA,
/// and a rule of its layer says which build to take.
const NUMBERED_BY_CUDA: &[&str] = &[
    "libcudart",
    "libcublas",
    "libcublasLt",
    "libnvrtc",
    "libnvJitLink",
];

/// Parts of `CuPy` that it does without where their library is not there.
const OPTIONAL: &[(&str, &[&str])] = &[("cupy", &["libcudnn", "libnccl", "libcutensor"])];

pub(super) fn library_missing(ctx: &Ctx<'_>) -> Outcome {
    let links = known!(ctx.facts.libraries.links, "who gets which library");
    let copies = known!(ctx.facts.libraries.copies, "copies of libraries");
    let missing = links.iter().filter(|link| {
        link.got.is_none()
            // What the named program needs is told by the rules about it.
            && !(ctx.facts.application.program.is_present()
                && link.consumer == ctx.facts.consumer.what)
            && link.by.starts_with("not found")
            // A Python package may load it before: what the environment has is not missing.
            && link.beside.is_none()
            // An entry of the loader's cache that leads nowhere is asked for by nobody.
            && !link.user.is_empty()
            && !is_optional(link)
            && !is_left_out_by_design(link, links)
    });
    let mut groups: Vec<(&str, Vec<&Link>)> = Vec::new();
    for link in missing {
        match groups
            .iter_mut()
            .find(|(consumer, _)| *consumer == link.consumer)
        {
            Some((_, all)) => all.push(link),
            None => groups.push((&link.consumer, vec![link])),
        }
    }
    Outcome::found(
        groups
            .iter()
            .filter_map(|(consumer, links)| finding(ctx, consumer, links, copies)),
    )
}

fn is_optional(link: &Link) -> bool {
    OPTIONAL.iter().any(|(consumer, libraries)| {
        link.consumer.starts_with(consumer)
            && libraries
                .iter()
                .any(|library| link.soname.starts_with(library))
    })
}

/// Whether this is a part that the small package of cuDNN (`-jit-`) comes without: it has no kernels but those that it
/// compiles itself, and none of the others.
fn is_left_out_by_design(link: &Link, links: &[Link]) -> bool {
    const LEFT_OUT: &[&str] = &[
        "libcudnn_ops.so.",
        "libcudnn_cnn.so.",
        "libcudnn_adv.so.",
        "libcudnn_engines_precompiled.so.",
    ];
    let is_missing = |start: &&&str| {
        let of_part = |l: &&Link| l.consumer == link.consumer && l.soname.starts_with(**start);
        links.iter().filter(of_part).all(|l| l.got.is_none())
    };
    link.soname.starts_with("libcudnn_")
        && LEFT_OUT.iter().filter(is_missing).count() == LEFT_OUT.len()
}

/// Usable copies of the libraries that are missing, of whatever major version.
fn others<'a>(copies: &'a [LibraryFile], links: &[&Link]) -> Vec<&'a LibraryFile> {
    let names: Vec<Option<String>> = links
        .iter()
        .map(|link| known_name(file_name(&link.soname)))
        .collect();
    copies
        .iter()
        .filter(|copy| copy.kind.is_usable() && copy.reached_by.iter().any(ReachedBy::is_live))
        .filter(|copy| names.contains(&Some(copy.name.clone())))
        .collect()
}

fn finding(
    ctx: &Ctx<'_>,
    consumer: &str,
    links: &[&Link],
    copies: &[LibraryFile],
) -> Option<Finding> {
    let first = links.first()?;
    // Where no program is known that uses it, it is the library itself that cannot be loaded.
    let (severity, consumer) = if consumer == ANY_PROGRAM {
        (Severity::Warning, file_name(&first.user))
    } else {
        (Severity::Error, consumer)
    };
    let mut names: Vec<String> = links
        .iter()
        .map(|l| file_name(&l.soname).to_owned())
        .collect();
    names.sort_unstable();
    names.dedup();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let mut others = others(copies, links);
    if others
        .iter()
        .any(|copy| NUMBERED_BY_CUDA.contains(&copy.name.as_str()))
    {
        return None;
    }
    others.truncate(4);
    // cuDNN counts for itself: an older one than is needed is out of date, beside a newer one the framework is.
    let number = |soname: &str| Version::parse(soname.rsplit_once(".so.")?.1);
    let is_older = |other: &LibraryFile| {
        let has = other.soname.value().and_then(|soname| number(soname));
        has.zip(number(&first.soname))
            .is_some_and(|(has, needs)| has < needs)
    };
    let other_layer = match others.first() {
        Some(other) if other.name.starts_with("libcudnn") && is_older(other) => Layer::Libraries,
        _ => Layer::Framework,
    };
    let (layer, title) = match others.first() {
        Some(other) => (
            other_layer,
            format!(
                "{consumer} needs {}, which {verb} not there: only {} is, of another major version",
                in_words(&names),
                called(ctx, &other.path),
            ),
        ),
        None => (
            layer_of(&first.soname),
            format!(
                "{consumer} needs {}, which {verb} nowhere that it searches",
                in_words(&names)
            ),
        ),
    };
    let mut finding = Finding::new("library-missing", layer, severity, title)
        .complaining(Layer::Framework)
        .component(file_name(&first.soname))
        .subject(consumer)
        .detail("The loader stops with `cannot open shared object file` when the library that needs it is loaded. Some frameworks then go on with the processor alone and say so in one line of their log.");
    for link in links {
        finding = finding.evidence(
            format!(
                "{} needs {}",
                file_name(&link.user),
                file_name(&link.soname)
            ),
            link.by.clone(),
            link.user.clone(),
        );
    }
    for other in &others {
        finding = finding.evidence(
            "another version of it",
            called(ctx, &other.path),
            other.path.clone(),
        );
    }
    let fix = match (others.first(), owner(ctx, &first.user)) {
        (Some(_), _) if other_layer == Layer::Libraries => Fix::at(
            other_layer,
            format!(
                "install the release of cuDNN that {consumer} was built for: the one that it requires"
            ),
        ),
        (Some(_), _) => Fix::at(
            Layer::Framework,
            format!(
                "install a build of {consumer} for the CUDA version whose libraries are here, or the libraries that it was built for"
            ),
        ),
        (None, Some((name, version))) => {
            let fix = Fix::at(layer, format!("install {name} again"));
            with_command(fix, install_again(ctx, name, version))
        }
        (None, None) => Fix::at(
            layer,
            format!(
                "install what brings {}, or put the folder on the loader's path",
                in_words(&names)
            ),
        ),
    };
    Some(finding.fix(fix.verify("gpudoctor")))
}

/// What a file is that stands where a library should be, in words; `None` where it is one, or that is not known.
fn damage(kind: &FileKind) -> Option<String> {
    Some(match kind {
        FileKind::Empty => "is empty (0 bytes)".to_owned(),
        FileKind::Truncated => "is cut off: shorter than its own headers say".to_owned(),
        FileKind::NotElf(words) => format!("is {words}"),
        FileKind::OtherArch(arch) => format!("is for {arch}, not for this machine"),
        FileKind::DanglingLink => "is a link that leads nowhere".to_owned(),
        _ => return None,
    })
}

/// A file that stands where a library should be and is none.
pub(super) fn library_damaged(ctx: &Ctx<'_>) -> Outcome {
    let copies = known!(ctx.facts.libraries.copies, "copies of libraries");
    let links = ctx.facts.libraries.links.items();
    let of_frameworks = damaged_of_packages(ctx, copies);
    Outcome::found(of_frameworks.into_iter().chain(copies.iter().filter_map(|copy| {
        // The runtime itself has a rule of its own.
        if copy.name == "libcudart" {
            return None;
        }
        let what = damage(&copy.kind)?;
        let stops = links.iter().find(|link| {
            link.got.is_none()
                && (link.by.contains(&copy.path) || link.beside.as_ref() == Some(&copy.path))
        });
        let is_ours = copy.reached_by.contains(&ReachedBy::Environment)
            && copy.kind != FileKind::DanglingLink;
        // A dead link or a foreign library on the loader's path is skipped, and hurts only who needs it.
        if stops.is_none() && !is_ours {
            return None;
        }
        let severity = if stops.is_some() {
            Severity::Error
        } else {
            Severity::Warning
        };
        let mut finding = Finding::new(
            "library-damaged",
            layer_of(&copy.path),
            severity,
            format!("{} {what}", copy.path),
        )
        .complaining(Layer::Framework)
        .component(file_name(&copy.path))
        .subject(copy.path.clone())
        .detail("What needs this file fails when it is loaded: `file too short`, `invalid ELF header`, `cannot open shared object file`.")
        .evidence("file", what.clone(), copy.real_path.clone())
        .evidence("size", format!("{} bytes", copy.size_bytes), copy.real_path.clone());
        if let Some(link) = stops {
            finding = finding.evidence(
                "needed by",
                format!("{} of {}", file_name(&link.user), link.consumer),
                link.user.clone(),
            );
        }
        let fix = match owner(ctx, &copy.path) {
            Some((name, version)) => {
                let fix = Fix::at(Layer::Libraries, format!("install {name} {version} again"));
                with_command(fix, install_again(ctx, name, version))
            }
            None => Fix::at(
                Layer::Libraries,
                "put the whole file there: install its package again, or copy it again",
            ),
        };
        Some(finding.fix(fix.verify("gpudoctor")))
    })))
}

/// Libraries that packages brought and that are none of NVIDIA's, `libc10.so` or a framework's GPU library: those with
/// another size than recorded that are no library any more.
fn damaged_of_packages(ctx: &Ctx<'_>, copies: &[LibraryFile]) -> Vec<Finding> {
    let frameworks = ctx.facts.consumer.frameworks.items();
    let distributions = ctx.facts.python.distributions.items().iter();
    let is_new = |path: &str| {
        !copies.iter().any(|c| c.path == path || c.real_path == path)
            && known_name(file_name(path)).as_deref() != Some("libcudart")
    };
    let of_one = |dist: &Installed| -> Option<Finding> {
        let damaged: Vec<(&ChangedFile, String)> = dist
            .changed
            .iter()
            .filter(|file| is_new(&file.path))
            .filter_map(|file| Some((file, damage(&file.kind)?)))
            .collect();
        let (first, what) = damaged.first()?;
        let others = match damaged.len() - 1 {
            0 => String::new(),
            n => format!(" (and {n} more of its libraries are damaged)"),
        };
        let is_framework = frameworks.iter().any(|f| f.name == dist.name);
        let severity = if is_framework {
            Severity::Error
        } else {
            Severity::Warning
        };
        let named = format!("{} {}", dist.name, dist.version);
        let title = format!("{} of {named} {what}{others}", first.path);
        let mut finding = Finding::new("library-damaged", Layer::Framework, severity, title)
            .component(file_name(&first.path))
            .subject(named.clone())
            .detail("What needs this file fails when it is loaded: `file too short`, `invalid ELF header`.");
        for (file, what) in &damaged {
            let sizes = format!(
                "{what}: {} bytes, {} when it was installed",
                file.size_bytes, file.recorded_bytes
            );
            finding = finding.evidence(&file.path, sizes, dist.metadata.clone());
        }
        let fix = Fix::at(Layer::Framework, format!("install {named} again"));
        let command = install_again(ctx, &dist.name, &dist.version);
        Some(finding.fix(with_command(fix, command).verify("gpudoctor")))
    };
    distributions.filter_map(of_one).collect()
}
