//! A library that does not have what another one needs of it.

use super::{by, called, got, install, layer_of, out_of_the_way, owner, place, with_command};
use crate::facts::{Layer, Link};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::installed::unmet_of;
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::{file_name, parent};

/// How many symbols are named.
const NAMED: usize = 3;

pub(super) fn library_lacks_symbol(ctx: &Ctx<'_>) -> Outcome {
    let links = known!(ctx.facts.libraries.links, "who gets which library");
    let lacking: Vec<&Link> = links.iter().filter(|l| !l.lacking.is_empty()).collect();
    // One copy that is too old for three libraries is one fault.
    let mut groups: Vec<Vec<&Link>> = Vec::new();
    for link in lacking {
        match groups
            .iter_mut()
            .find(|group| group.first().is_some_and(|first| first.got == link.got))
        {
            Some(group) => group.push(link),
            None => groups.push(vec![link]),
        }
    }
    Outcome::found(groups.iter().filter_map(|group| finding(ctx, group)))
}

/// The symbol in words: `__nvJitLinkAddData_12_1`, or the version node where it is that which is not there.
fn symbol(text: &str) -> String {
    match text.split_once('@') {
        Some(("", node)) => format!("version {node}"),
        Some((name, _)) => name.to_owned(),
        None => text.to_owned(),
    }
}

/// The minor version that nvJitLink's symbols carry: `__nvJitLinkCreate_12_9` needs 12.9.
fn needed_version(link: &Link) -> Option<String> {
    let versions = link.lacking.iter().filter_map(|text| {
        let name = text.split('@').next()?.strip_prefix("__nvJitLink")?;
        let mut numbers = name.rsplit('_');
        let minor: u32 = numbers.next()?.parse().ok()?;
        let major: u32 = numbers.next()?.parse().ok()?;
        Some((major, minor))
    });
    versions
        .max()
        .map(|(major, minor)| format!("{major}.{minor}"))
}

fn finding(ctx: &Ctx<'_>, group: &[&Link]) -> Option<Finding> {
    let link = *group.first()?;
    let path = link.got.as_deref()?;
    let layer = layer_of(&link.soname);
    let first = symbol(link.lacking.first()?);
    let mut users: Vec<String> = group.iter().map(|l| user(ctx, l)).collect();
    users.dedup();
    let library = file_name(&link.soname);
    let own = owner(ctx, path);
    let title = match own {
        Some((name, version)) if link.by != "LD_LIBRARY_PATH" => format!(
            "{name} {version} does not fit {}: its {library} lacks {first}",
            in_words(&users)
        ),
        _ => {
            let version = got(ctx, link)
                .and_then(|copy| copy.version.value())
                .map_or(String::new(), |v| format!(" {v}"));
            format!(
                "{library}{version} in {} lacks {first}, which {} needs",
                place(link),
                in_words(&users)
            )
        }
    };
    let mut finding = Finding::new("library-lacks-symbol", layer, Severity::Error, title)
        .complaining(Layer::Framework)
        .component(library)
        .subject(path)
        .detail(format!("The loader stops with `undefined symbol` or `version not found` when {} is loaded: the copy of {library} that it gets is of another release than it was built with.", file_name(&link.user)))
        .evidence(format!("{library} in use"), called(ctx, path), format!("{path}, by {}", by(link)));
    for link in group {
        let named: Vec<&str> = link
            .lacking
            .iter()
            .take(NAMED)
            .map(String::as_str)
            .collect();
        let more = link.lacking.len().saturating_sub(NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        finding = finding.evidence(
            format!("needed by {} and not there", called(ctx, &link.user)),
            format!("{}{more}", named.join(", ")),
            link.user.clone(),
        );
    }
    if let Some(beside) = &link.beside {
        finding = finding.evidence(
            "copy that the environment brought",
            called(ctx, beside),
            beside.clone(),
        );
    }
    finding = with_fixes(ctx, finding, link, own);
    Some(finding.source("ld.so(8); symbols of the files themselves"))
}

/// Who needs it: the distribution that brought it, else its file, with what it is part of.
fn user(ctx: &Ctx<'_>, link: &Link) -> String {
    match owner(ctx, &link.user) {
        Some((name, version)) => format!("{name} {version}"),
        None => format!("{} of {}", file_name(&link.user), link.consumer),
    }
}

fn with_fixes(ctx: &Ctx<'_>, finding: Finding, link: &Link, own: Option<(&str, &str)>) -> Finding {
    let library = file_name(&link.soname);
    let mut finding = finding;
    if let Some(fix) = out_of_the_way(ctx, link) {
        finding = finding.fix(fix.verify("gpudoctor"));
        // What is loaded before, or found by a search path of its own, comes before LD_LIBRARY_PATH.
        let by_search = ["LD_LIBRARY_PATH", "ld.so.cache", "default folder"];
        if let Some(beside) = &link.beside
            && by_search.contains(&link.by.as_str())
        {
            let others = ctx.env("LD_LIBRARY_PATH").unwrap_or_default();
            let mut parts = vec![parent(beside)];
            parts.extend(others.split([':', ';']).filter(|dir| !dir.is_empty()));
            let value = crate::finding::shell_list(&parts, ":");
            finding = finding.fix(
                Fix::at(
                    Layer::Application,
                    format!("or put the environment's own {library} first"),
                )
                .line(format!("export LD_LIBRARY_PATH={value}"))
                .second("other programs of this shell get that copy too"),
            );
        }
        return finding;
    }
    let layer = layer_of(&link.soname);
    let Some((name, version)) = own else {
        return finding.fix(
            Fix::at(layer, format!("put a {library} of the release that {} was built with where the loader finds it first", file_name(&link.user)))
                .verify("gpudoctor"),
        );
    };
    let fix = if let Some(needed) = needed_version(link) {
        let requirement = format!("{name}>={needed}");
        let fix = Fix::at(
            layer,
            format!(
                "upgrade {name} to {needed} or newer, as {} needs it",
                file_name(&link.user)
            ),
        );
        with_command(fix, install(ctx, name, &requirement))
    } else {
        let fix = Fix::at(
            layer,
            format!(
                "install {name} in the version that {} asks for, instead of {version}",
                link.consumer
            ),
        );
        let command = unmet_of(ctx, name).and_then(|asked| install(ctx, name, &asked));
        with_command(fix, command)
    };
    finding.fix(fix.verify("gpudoctor"))
}
