//! NVIDIA's libraries above the driver as files tell them: which copies the consumer has and reaches, which of them its
//! programs get by the loader's rules, and whether those have what is asked of them. Nothing is loaded.
//!
//! Each program or extension that loads the stack is followed in a process of its own, in the order in which it loads
//! its libraries (`entries`): what is loaded already under a name ends the search for it. Libraries that others open by
//! name while they run count as needs of those that open them (`links`). Of a process that runs, what it has mapped is all
//! that counts (`process`).

mod copies;
mod entries;
mod links;
mod process;

use std::collections::BTreeMap;

use self::copies::Copies;
use self::links::Links;
use crate::facts::{Consumer, ConsumerKind, LibrariesFacts, Link, Process, PythonFacts, Reading};
use crate::probe::loader::Loader;
use crate::probe::resolve::{self, Resolver};
use crate::probe::search_path::Site;
use crate::probe::unread;
use crate::read::recipes;
use crate::sysroot::Sysroot;

/// What is known of the consumer's environment.
pub(super) struct Environment<'a> {
    pub(super) consumer: &'a Consumer,
    pub(super) sites: &'a [Site],
    pub(super) python: &'a PythonFacts,
    /// The program that was named.
    pub(super) program: Option<&'a str>,
    /// The process that was named.
    pub(super) process: Option<&'a Process>,
}

/// The libraries of one consumer.
pub(super) fn probe(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    env: &BTreeMap<String, String>,
    working_folder: Option<&str>,
    environment: &Environment<'_>,
) -> LibrariesFacts {
    if let Some(process) = environment.process {
        return process::of_process(sysroot, loader, environment, process);
    }
    // What may lie in a folder that is refused comes before anything that the loader finds elsewhere.
    if let Some(reason) = unread::search_path(environment.consumer, environment.sites) {
        return LibrariesFacts {
            copies: Reading::unreadable(reason.as_str()),
            links: Reading::unreadable(reason),
        };
    }
    let copies = Copies::new(sysroot, loader, environment);
    let entries = entries::find(sysroot, env, environment, copies.brought());
    let by_name = if environment.consumer.kind == ConsumerKind::Machine {
        copies.sonames_of_loader()
    } else {
        Vec::new()
    };
    if entries.is_empty() && by_name.is_empty() {
        return facts(copies, Vec::new());
    }
    let resolver = Resolver::new(
        sysroot,
        &resolve::Environment {
            library_path: env.get("LD_LIBRARY_PATH").cloned(),
            preload: env.get("LD_PRELOAD").cloned(),
            working_folder: working_folder.map(str::to_owned),
        },
    );
    let mut links = Links::new(sysroot, &resolver, loader.arch());
    for entry in &entries {
        links.follow(entry, &entries, &copies);
    }
    for soname in &by_name {
        links.follow_name(soname, &copies);
    }
    let links = links.finish(&copies);
    facts(copies, links)
}

fn facts(mut copies: Copies<'_>, links: Vec<Link>) -> LibrariesFacts {
    for link in &links {
        copies.mark_used(link);
    }
    LibrariesFacts {
        copies: Reading::present(
            copies.finish(),
            "environment, LD_LIBRARY_PATH, ld.so.cache, programs' own search paths",
        ),
        links: Reading::present(links, "the loader's rules"),
    }
}

/// Whether a soname or file name is one of the libraries that this layer is about; the driver's are not.
fn known(name: &str) -> Option<String> {
    recipes::known_name(name).filter(|name| name != "libcuda" && name != "libnvidia-ml")
}
