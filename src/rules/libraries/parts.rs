//! Libraries that consist of several files: all of them have to be of one release.

use super::{by, called, got, install_again, out_of_the_way, owner, with_command};
use crate::facts::{Layer, LibraryFile, Link};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::{file_name, parent};
use crate::version::Version;

/// A part with the link that leads to it.
type Part<'a> = (&'a Link, &'a LibraryFile, &'a Version);

pub(super) fn library_parts_mixed(ctx: &Ctx<'_>) -> Outcome {
    let links = known!(ctx.facts.libraries.links, "who gets which library");
    let mut findings: Vec<Finding> = Vec::new();
    for shim in links.iter().filter(|l| is_shim(&l.soname)) {
        let Some(path) = shim.got.as_deref() else {
            continue;
        };
        let mut parts: Vec<Part<'_>> = Vec::new();
        let mut openers = vec![path];
        let mut next = 0;
        while let Some(opener) = openers.get(next).copied() {
            for link in links
                .iter()
                .filter(|l| l.user == opener && l.soname.starts_with("libcudnn_"))
            {
                let Some(copy) = got(ctx, link) else { continue };
                if let Some(version) = copy.version.value()
                    && !parts.iter().any(|(_, known, _)| known.path == copy.path)
                {
                    parts.push((link, copy, version));
                }
                if !openers.contains(&copy.path.as_str()) {
                    openers.push(&copy.path);
                }
            }
            next += 1;
        }
        if let Some(finding) = mixed(ctx, shim, &parts)
            && !findings.iter().any(|f| f.key == finding.key)
        {
            findings.push(finding);
        }
    }
    Outcome::found(findings)
}

/// `libcudnn.so.9`: the file that opens the parts.
fn is_shim(soname: &str) -> bool {
    file_name(soname).starts_with("libcudnn.so.")
}

/// Whether two files of cuDNN are of one release: their first three numbers are the same, so far as both are known.
fn of_one_release(one: &Version, other: &Version) -> bool {
    let len = one.len().min(other.len()).min(3);
    (0..len).all(|index| one.part(index) == other.part(index))
}

fn mixed(ctx: &Ctx<'_>, shim: &Link, parts: &[Part<'_>]) -> Option<Finding> {
    let (first_link, first, version) = parts.first()?;
    let odd = parts
        .iter()
        .find(|(_, _, other)| !of_one_release(version, other))?;
    let (odd_link, other, other_version) = odd;
    let title = format!(
        "cuDNN is mixed for {}: {} is {version} ({}) and {} is {other_version} ({})",
        shim.consumer,
        file_name(&first_link.soname),
        parent(&first.path),
        file_name(&odd_link.soname),
        parent(&other.path),
    );
    let mut finding = Finding::new("library-parts-mixed", Layer::Libraries, Severity::Error, title)
        .complaining(Layer::Framework)
        .component("libcudnn.so")
        .subject(first.path.clone())
        .detail("libcudnn.so opens its parts by name, each by the loader's search. They check each other's version, and the first call fails with CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH where they are of different releases.");
    finding = finding.evidence(
        "opened by",
        shim.got.clone().unwrap_or_default(),
        format!("{}, by {}", shim.consumer, by(shim)),
    );
    for (link, copy, version) in parts {
        finding = finding.evidence(
            file_name(&link.soname),
            version.to_string(),
            format!("{}, by {}", copy.path, by(link)),
        );
    }
    // What is not beside the file that opens it came from elsewhere: that one is in the way, or its own is not there.
    let home = shim.got.as_deref().map_or("", parent);
    let stray = [first_link, odd_link]
        .into_iter()
        .find(|link| link.got.as_deref().map(parent) != Some(home));
    if let Some(link) = stray {
        if let Some(fix) = out_of_the_way(ctx, link) {
            finding = finding.fix(fix.verify("gpudoctor"));
        }
        let beside = link.beside.is_some();
        if !beside && let Some((name, version)) = shim.got.as_deref().and_then(|p| owner(ctx, p)) {
            let fix = Fix::at(
                Layer::Libraries,
                format!(
                    "{home} has no {}: install {name} again, or a release that has it",
                    file_name(&link.soname)
                ),
            );
            finding = finding.fix(with_command(fix, install_again(ctx, name, version)));
        }
    } else {
        let fix = match owner(ctx, &first.path) {
            Some((name, version)) => {
                let fix = Fix::at(
                    Layer::Libraries,
                    format!("{home} holds files of two releases: install {name} again"),
                );
                with_command(fix, install_again(ctx, name, version))
            }
            None => Fix::at(
                Layer::Libraries,
                format!("put all files of one release of cuDNN into {home}, and no other"),
            ),
        };
        finding = finding.fix(fix.verify("gpudoctor"));
    }
    if finding.fixes.is_empty() {
        finding = finding.fix(Fix::at(
            Layer::Libraries,
            "keep one release of cuDNN where this program searches",
        ));
    }
    Some(finding.source("cuDNN: parts of 8.9 to 9.28 and their version variables, read"))
}

/// NVRTC gets the builtins of another version: it refuses to compile.
pub(in crate::rules) fn nvrtc_builtins_mixed(ctx: &Ctx<'_>) -> Outcome {
    let links = known!(ctx.facts.libraries.links, "who gets which library");
    Outcome::found(
        links
            .iter()
            .filter(|l| file_name(&l.soname).starts_with("libnvrtc-builtins.so"))
            .filter_map(|link| builtins(ctx, link)),
    )
}

fn builtins(ctx: &Ctx<'_>, link: &Link) -> Option<Finding> {
    let compiler = ctx.facts.libraries.at(&link.user)?;
    let copy = got(ctx, link)?;
    let (version, other) = (compiler.version.value()?, copy.version.value()?);
    if version.major_minor() == other.major_minor() {
        return None;
    }
    let mut finding = Finding::new(
        "nvrtc-builtins-mixed",
        Layer::Runtime,
        Severity::Error,
        format!(
            "NVRTC {} ({}) gets the builtins of {} ({}, by {})",
            version.major_minor(),
            parent(&compiler.path),
            other.major_minor(),
            parent(&copy.path),
            by(link),
        ),
    )
    .complaining(Layer::Framework)
    .component(file_name(&compiler.path))
    .subject(compiler.path.clone())
    .detail(format!("NVRTC opens its builtins by the bare name {} up to CUDA 10.2, and takes the first file of that name. Those of another version do not fit, and every compilation at run time fails (`nvrtc: error: failed to load builtins`).", file_name(&link.soname)))
    .evidence("NVRTC", called(ctx, &compiler.path), format!("{} of {}", compiler.real_path, link.consumer))
    .evidence("builtins that it gets", called(ctx, &copy.path), format!("{}, by {}", copy.real_path, by(link)));
    finding = match out_of_the_way(ctx, link) {
        Some(fix) => finding.fix(fix.verify("gpudoctor")),
        None => finding,
    };
    Some(
        finding
            .fix(
                Fix::at(
                    Layer::Runtime,
                    "or keep one CUDA toolkit where this program searches",
                )
                .verify("gpudoctor"),
            )
            .source("names in the files of NVRTC 10.2 to 13.2"),
    )
}
