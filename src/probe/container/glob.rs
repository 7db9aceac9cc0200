//! The files that a path with patterns in it means.

use crate::read::glob::matches;
use crate::sysroot::{Sysroot, join};

/// The files of a path of which any part may be a pattern, sorted, at most so many; a path without patterns is itself.
pub(super) fn files(sysroot: &Sysroot, pattern: &str, cap: usize) -> Vec<String> {
    let mut paths = vec!["/".to_owned()];
    for part in pattern
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
    {
        let is_pattern = part.contains(['*', '?', '[', '\\']);
        paths = paths
            .into_iter()
            .flat_map(|folder| {
                let names = if is_pattern {
                    let found = sysroot.list(&folder, |name| matches(part, name));
                    found.items().to_vec()
                } else {
                    vec![part.to_owned()]
                };
                names.into_iter().map(move |name| join(&folder, &name))
            })
            .take(cap)
            .collect();
    }
    if pattern.contains(['*', '?', '[']) {
        paths.retain(|path| sysroot.exists(path));
    }
    paths.sort_unstable();
    paths
}
