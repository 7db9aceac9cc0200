//! Libraries that are needed and are not there, or are there and are none.

use super::{called, install_again, layer_of, owner, with_command};
use crate::facts::{
    ANY_PROGRAM, ChangedFile, DamagedLibrary, FileKind, Framework, Installed, Layer, LibraryFile,
    Link, ReachedBy,
};
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::{Opens, Wheel};
use crate::read::recipes::known_name;
use crate::rules::framework::is_for_other_cuda;
use crate::rules::installed::{Absent, Tool, absent};
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known, unread};
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

/// What something of the consumer needs, and does not get from anywhere.
pub(in crate::rules) fn missing_links(ctx: &Ctx<'_>) -> Vec<Link> {
    let links = ctx.facts.libraries.links.items();
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
            && is_needed(ctx, link)
    });
    missing.cloned().collect()
}

/// The framework that opens libraries by name, and what is known of that.
fn opener<'a>(ctx: &'a Ctx<'_>, link: &Link) -> Option<(&'a Framework, Option<&'a Opens>)> {
    if !link.opened {
        return None;
    }
    let framework = ctx.frameworks().iter().find(|framework| {
        // A module of its own asks; what another library opens is that library's business.
        let is_module = || {
            known_name(file_name(&link.user)).is_none()
                && framework.distribution.value().map(String::as_str)
                    == link.consumer.split(' ').next()
        };
        let is_its = framework.library.value() == Some(&link.user) || is_module();
        is_its
            && ctx
                .matrix
                .opened()
                .iter()
                .any(|row| row.framework == framework.name)
    })?;
    let version = framework.version.value().and_then(|v| Version::parse(v));
    let row = version
        .zip(framework.cuda.value())
        .and_then(|(version, cuda)| {
            ctx.matrix
                .opened_by(&framework.name, &version, cuda.major())
        });
    Some((framework, row))
}

/// Whether a library that is opened by name is one that the framework does not use the GPU without, and is meant to use it:
/// of some it does without, and on a host without a GPU nobody misses those of a framework that runs on the processor too.
fn is_needed(ctx: &Ctx<'_>, link: &Link) -> bool {
    let Some((framework, row)) = opener(ctx, link) else {
        // Of what another library opens every part is wanted; of a framework that is not known, none is known to be.
        return !link.opened || known_name(file_name(&link.user)).is_some();
    };
    let is_listed = row.is_some_and(|row| row.needs.contains(&link.soname));
    // A plugin for CUDA is installed for nothing else.
    let is_plugin = ["jax-cuda-pjrt", "cupy"].contains(&framework.name.as_str());
    is_listed && (is_plugin || ctx.gpu_usable())
}

pub(super) fn library_missing(ctx: &Ctx<'_>) -> Outcome {
    let _ = known!(ctx.facts.libraries.links, "who gets which library");
    let copies = known!(ctx.facts.libraries.copies, "copies of libraries");
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let absent = absent(ctx);
    // By who needs it, and by what explains that it is missing: what nothing explains is a fault of its own.
    let mut groups: Vec<(String, Option<String>, Vec<Link>)> = Vec::new();
    for link in missing_links(ctx) {
        let cause = absent
            .iter()
            .find(|absent| absent.explains(ctx, &link))
            .map(Absent::key)
            .or_else(|| for_other_cuda(ctx, &link));
        let same = |group: &&mut (String, Option<String>, Vec<Link>)| {
            group.0 == link.consumer && group.1 == cause
        };
        match groups.iter_mut().find(same) {
            Some((.., all)) => all.push(link),
            None => groups.push((link.consumer.clone(), cause, vec![link])),
        }
    }
    Outcome::found(groups.iter().filter_map(|(consumer, cause, links)| {
        let is_first = groups
            .iter()
            .find(|g| g.0 == *consumer)
            .is_some_and(|g| g.1 == *cause);
        let mut finding = finding(ctx, consumer, links, copies)?;
        if !is_first {
            let soname = &links.first()?.soname;
            finding.key = format!("{}, {}", finding.key, file_name(soname));
        }
        finding.caused_by.clone_from(cause);
        Some(finding)
    }))
}

/// The finding that a framework is built for another CUDA, where this is a library that it needs.
fn for_other_cuda(ctx: &Ctx<'_>, link: &Link) -> Option<String> {
    let framework = ctx.frameworks().iter().find(|framework| {
        framework.library.value() == Some(&link.user) && is_for_other_cuda(ctx, framework)
    })?;
    Some(format!(
        "framework-for-other-cuda:{} in {}",
        framework.name, framework.site
    ))
}

/// What brings libraries that nothing recorded, as a fix with the command of the installer that is at hand.
fn brought_by(ctx: &Ctx<'_>, consumer: &str, links: &[Link], layer: Layer) -> Option<Fix> {
    let name = consumer.split(' ').next()?;
    let dist = ctx.facts.python.installed(name).or_else(|| {
        let framework = ctx.frameworks().iter().find(|f| f.name == name)?;
        ctx.facts.python.installed(framework.distribution.value()?)
    })?;
    let tool = Tool::of(ctx, dist);
    let sonames: Vec<&str> = links.iter().map(|link| file_name(&link.soname)).collect();
    let cuda = cuda_of(ctx, dist, links, &sonames);
    let version = Version::parse(&dist.version);
    let extra = version
        .filter(|_| !dist.version.contains('+') && !tool.is_conda())
        .and_then(|version| ctx.matrix.libraries_extra(&dist.name, &version, cuda));
    if let Some(row) = extra {
        let what = format!("{}[{}]=={}", dist.name, row.extras, dist.version);
        let fix = Fix::at(layer, format!("install {what}, which brings them"));
        return Some(with_command(fix, tool.install(&what, false)));
    }
    let mut wheels: Vec<&Wheel> = Vec::new();
    for soname in &sonames {
        let mut rows = ctx.matrix.wheels_with(soname);
        let row = match cuda {
            Some(cuda) => rows.find(|row| row.cuda == cuda)?,
            // The same name in several of them, and nothing tells which.
            None => rows.next().filter(|_| rows.next().is_none())?,
        };
        if !wheels.iter().any(|known| known.wheel == row.wheel) {
            wheels.push(row);
        }
    }
    let packages: Vec<String> = if tool.is_conda() {
        let major = format!("cuda-version={}", wheels.first()?.cuda);
        let names = wheels.iter().map(|row| row.conda.clone());
        names.chain([Some(major)]).collect::<Option<_>>()?
    } else {
        wheels.iter().map(|row| row.requirement()).collect()
    };
    let fix = Fix::at(layer, format!("install {}", packages.join(" and ")));
    let command = tool.install_all(&packages, false);
    Some(with_command(fix, command))
}

/// The major version of CUDA whose libraries are missed: that of the framework, else that of a soname among them, or that the
/// same file needs beside them.
fn cuda_of(ctx: &Ctx<'_>, dist: &Installed, links: &[Link], sonames: &[&str]) -> Option<u32> {
    let of_framework = ctx
        .frameworks()
        .iter()
        .find(|f| f.name == dist.name || f.distribution.value() == Some(&dist.name))
        .and_then(|f| f.cuda.value())
        .map(Version::major);
    let only = |soname: &str| {
        let mut rows = ctx.matrix.wheels_with(soname);
        rows.next()
            .filter(|_| rows.next().is_none())
            .map(|row| row.cuda)
    };
    let all = ctx.facts.libraries.links.items().iter();
    let beside = || {
        all.filter(|other| links.iter().any(|link| link.user == other.user))
            .find_map(|other| only(file_name(&other.soname)))
    };
    of_framework
        .or_else(|| sonames.iter().find_map(|soname| only(soname)))
        .or_else(beside)
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
fn others<'a>(copies: &'a [LibraryFile], links: &[Link]) -> Vec<&'a LibraryFile> {
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
    links: &[Link],
    copies: &[LibraryFile],
) -> Option<Finding> {
    let first = links.first()?;
    // Where no program is known that uses it, it is the library itself that cannot be loaded.
    let (severity, consumer) = if consumer == ANY_PROGRAM {
        (Severity::Warning, file_name(&first.user))
    } else {
        (Severity::Error, consumer)
    };
    let opened = opener(ctx, first).and_then(|(_, row)| row);
    // Without a GPU it is not missed yet.
    let severity = match opened {
        Some(_) if !ctx.gpu_usable() && !ctx.expect_gpu => Severity::Warning,
        _ => severity,
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
        .detail(match opened {
            Some(row) => format!("It opens them by name when it starts, and does not use the GPU at all without one of them: `{}`.", row.says),
            None => "The loader stops with `cannot open shared object file` when the library that needs it is loaded. Some frameworks then go on with the processor alone and say so in one line of their log.".to_owned(),
        })
        .source(opened.map(|row| row.source.clone()).unwrap_or_default());
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
        // A part of the same wheel: what is there of it is not whole.
        (None, Some((name, version))) if is_part_of(ctx, name, &names) => {
            let fix = Fix::at(layer, format!("install {name} again"));
            with_command(fix, install_again(ctx, name, version))
        }
        (None, _) => brought_by(ctx, consumer, links, layer).unwrap_or_else(|| {
            Fix::at(
                layer,
                format!(
                    "install what brings {}, or put the folder on the loader's path",
                    in_words(&names)
                ),
            )
        }),
    };
    Some(finding.fix(fix.verify("gpudoctor")))
}

/// Whether a wheel is the one that brings these.
fn is_part_of(ctx: &Ctx<'_>, wheel: &str, sonames: &[String]) -> bool {
    sonames
        .iter()
        .all(|soname| ctx.matrix.wheels_with(soname).any(|row| row.wheel == wheel))
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
    let mut of_frameworks = damaged_of_packages(ctx, copies);
    of_frameworks.extend(damaged_by_headers(ctx, copies));
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

/// Libraries of frameworks that are none by their own headers, where no record tells another size: a pointer of Git LFS that
/// was checked out and installed has the size that was recorded, and what was copied in has no record.
fn damaged_by_headers(ctx: &Ctx<'_>, copies: &[LibraryFile]) -> Vec<Finding> {
    let is_told = |path: &str| {
        let all = ctx.facts.python.distributions.items().iter();
        all.flat_map(|dist| &dist.changed)
            .any(|changed| changed.path == path && damage(&changed.kind).is_some())
            || copies.iter().any(|c| c.path == path || c.real_path == path)
    };
    let of_one = |framework: &Framework| -> Option<Finding> {
        let damaged: Vec<(&DamagedLibrary, String)> = framework
            .damaged
            .iter()
            .filter(|file| !is_told(&file.path))
            .filter_map(|file| Some((file, damage(&file.kind)?)))
            .collect();
        let (first, what) = damaged.first()?;
        let others = match damaged.len() - 1 {
            0 => String::new(),
            n => format!(" (and {n} more of its libraries are damaged)"),
        };
        let version = framework.version.value().map_or("", String::as_str);
        let named = format!("{} {version}", framework.name)
            .trim_end()
            .to_owned();
        let title = format!("{} of {named} {what}{others}", first.path);
        let mut finding = Finding::new("library-damaged", Layer::Framework, Severity::Error, title)
            .component(file_name(&first.path))
            .subject(first.path.clone())
            .detail("What needs this file fails when it is loaded: `file too short`, `invalid ELF header`.");
        for (file, what) in &damaged {
            let size = format!("{what}: {} bytes", file.size_bytes);
            finding = finding.evidence("file", size, file.path.clone());
        }
        let fix = match framework.distribution.value() {
            Some(name) => {
                let fix = Fix::at(Layer::Framework, format!("install {name} {version} again"));
                with_command(fix, install_again(ctx, name, version))
            }
            None => Fix::at(
                Layer::Framework,
                "put the whole file there: install its package again, or copy it again",
            ),
        };
        Some(finding.fix(fix.verify("gpudoctor")))
    };
    ctx.frameworks().iter().filter_map(of_one).collect()
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
    // As another distribution recorded it: who overwrote whom is told elsewhere.
    let is_anothers = |changed: &ChangedFile| {
        let shared = ctx.facts.python.shared.items().iter();
        shared.filter(|file| file.path == changed.path).any(|file| {
            file.owners
                .iter()
                .any(|owner| owner.recorded_bytes == Some(changed.size_bytes))
        })
    };
    let of_one = |dist: &Installed| -> Option<Finding> {
        let damaged: Vec<(&ChangedFile, String)> = dist
            .changed
            .iter()
            .filter(|file| is_new(&file.path) && !is_anothers(file))
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
