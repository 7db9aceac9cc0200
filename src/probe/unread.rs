//! What of the consumer's environment is there and could not be read: a folder or file that the caller may not open, or a
//! disk that answers with an error. Without this the empty listing of a refused folder would look like an empty folder.

use crate::facts::{Consumer, Facts, FileKind, ReachedBy, Reading, Unread};
use crate::probe::runtime::environment_folders;
use crate::probe::search_path::Site;
use crate::sysroot::{Sysroot, join, parent};

/// The most that are told: with a whole tree refused its top is one of them.
const MOST: usize = 8;

/// The prefix itself, its lib and the folders of the search path, as far as they are refused.
pub(super) fn of_search_path(sysroot: &Sysroot, prefix: &str, sites: &[Site]) -> Vec<Unread> {
    let mut found = Found::default();
    let lib = join(prefix, "lib");
    for dir in [prefix, &lib] {
        found.look(dir, &sysroot.list(dir, |_| false));
    }
    for site in sites {
        if let Some(reason) = &site.refused {
            found.add(&site.path, reason);
        }
    }
    found.0
}

/// Why it is not known what the search path holds, where one of its folders is refused.
pub(super) fn search_path(consumer: &Consumer, sites: &[Site]) -> Option<String> {
    let prefix = consumer.prefix.value();
    let is_whole = |unread: &&Unread| {
        prefix.is_some_and(|prefix| unread.path == *prefix || unread.path == join(prefix, "lib"))
            || sites.iter().any(|site| site.path == unread.path)
    };
    let first = consumer.unread.iter().find(is_whole)?;
    Some(first.reason.clone())
}

/// Adds what was refused inside: folders of NVIDIA's wheels and of frameworks, runtimes and libraries.
pub(super) fn in_environment(sysroot: &Sysroot, sites: &[Site], facts: &mut Facts) {
    let mut found = Found(std::mem::take(&mut facts.consumer.unread));
    for site in sites.iter().filter(|site| site.has_nvidia) {
        let nvidia = join(&site.path, "nvidia");
        let parts = sysroot.list(&nvidia, |_| true);
        found.look(&nvidia, &parts);
        for part in parts.items() {
            let dir = join(&nvidia, part);
            let listed = sysroot.list(&dir, |_| false);
            if !matches!(&listed, Reading::Unreadable { .. }) || is_folder(sysroot, &dir) {
                found.look(&dir, &listed);
            }
        }
    }
    for framework in facts.consumer.frameworks.items() {
        let dir = join(&framework.site, &framework.name.replace('-', "_"));
        if is_folder(sysroot, &dir) {
            found.look(&dir, &sysroot.list(&dir, |_| false));
        }
    }
    for dir in environment_folders(sysroot, &facts.consumer, sites) {
        if is_folder(sysroot, &dir) {
            found.look(&dir, &sysroot.list(&dir, |_| false));
        }
    }
    // One file of each folder that a record names.
    let mut folders: Vec<&str> = Vec::new();
    for dist in facts.python.distributions.items() {
        for file in dist.files.items() {
            let folder = parent(&file.path);
            if !folders.contains(&folder) {
                folders.push(folder);
                found.look(&file.path, &sysroot.stat(&file.path));
            }
        }
    }
    let is_reached = |by: &[ReachedBy]| by.iter().any(ReachedBy::is_live);
    for copy in facts.runtime.cudart.items() {
        if is_reached(&copy.reached_by)
            && let FileKind::Unreadable(reason) = &copy.kind
        {
            found.add(&copy.path, reason);
        }
    }
    for copy in facts.libraries.copies.items() {
        if is_reached(&copy.reached_by)
            && let FileKind::Unreadable(reason) = &copy.kind
        {
            found.add(&copy.path, reason);
        }
    }
    for framework in facts.framework.frameworks.items() {
        if let Some(path) = framework.library.value() {
            found.look(path, &sysroot.file(path));
        }
    }
    facts.consumer.unread = found.0;
}

fn is_folder(sysroot: &Sysroot, path: &str) -> bool {
    let stat = sysroot.stat(path);
    stat.value()
        .is_some_and(|stat| stat.kind == crate::sysroot::Kind::Folder)
}

/// What was refused, the topmost of each tree.
#[derive(Default)]
struct Found(Vec<Unread>);

impl Found {
    fn look<T>(&mut self, path: &str, reading: &Reading<T>) {
        if let Reading::Unreadable { reason } = reading {
            self.add(path, reason);
        }
    }

    fn add(&mut self, path: &str, reason: &str) {
        let is_below = |known: &Unread| {
            path.strip_prefix(known.path.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if self.0.len() < MOST && !self.0.iter().any(is_below) {
            self.0.push(Unread {
                path: path.to_owned(),
                reason: reason.to_owned(),
            });
        }
    }
}
