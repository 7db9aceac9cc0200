//! The libraries of a process that runs, by what it has mapped: which copies those are is settled, and nothing else counts.
//!
//! What lies in its environment, on its `LD_LIBRARY_PATH` or in the loader's cache and is not mapped the process does not
//! have. A file that was deleted or replaced since is still what it has: what the mapping or the name tells of it is kept.

use super::copies::Copies;
use super::{Environment, known};
use crate::facts::{
    DELETED, FileKind, LibrariesFacts, LibraryFile, Link, Mapped, Process, ReachedBy, Reading,
};
use crate::probe::loader::Loader;
use crate::sysroot::{Sysroot, file_name};

/// How a library was got that is there already.
const BY: &str = "the process's mappings";

/// The libraries of a process.
pub(super) fn of_process(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    environment: &Environment<'_>,
    process: &Process,
) -> LibrariesFacts {
    let source = format!("/proc/{}/maps", process.pid);
    let mapped = match &process.mapped {
        Reading::Present { value, .. } => value,
        Reading::Absent { source } => {
            return LibrariesFacts {
                copies: Reading::absent(source),
                links: Reading::absent(source),
            };
        }
        // What its environment would bring it need not be what it has.
        Reading::Unreadable { reason } => {
            let reason = format!("what the process has mapped: {reason}");
            return LibrariesFacts {
                copies: Reading::unreadable(&reason),
                links: Reading::unreadable(reason),
            };
        }
    };
    let of_layer = mapped.iter().filter(|m| is_of_layer(m));
    let there = of_layer.clone().filter(|m| !m.deleted);
    let mut files = Copies::of_files(
        sysroot,
        loader,
        environment,
        there.map(|m| m.path.as_str()),
        &ReachedBy::Process,
    )
    .finish();
    files.extend(of_layer.filter(|m| m.deleted).map(gone));
    let consumer = &environment.consumer.what;
    for file in &mut files {
        file.used_by = Some(consumer.clone());
    }
    let links = links(consumer, &files);
    LibrariesFacts {
        copies: Reading::present(files, source.as_str()),
        links: Reading::present(links, source),
    }
}

fn is_of_layer(mapped: &Mapped) -> bool {
    let name = mapped.soname.as_deref();
    name.and_then(known)
        .or_else(|| known(file_name(&mapped.path)))
        .is_some()
}

/// A copy whose file is gone.
fn gone(mapped: &Mapped) -> LibraryFile {
    let path = format!("{}{DELETED}", mapped.path);
    let name = mapped.soname.as_deref().and_then(known);
    LibraryFile {
        name: name
            .or_else(|| known(file_name(&mapped.path)))
            .unwrap_or_default(),
        kind: FileKind::Library,
        soname: mapped.soname(),
        version: mapped.version(),
        versions: mapped.versions(),
        owner: Reading::unreadable("the file is no longer on the disk"),
        reached_by: vec![ReachedBy::Process],
        real_path: path.clone(),
        path,
        ..LibraryFile::default()
    }
}

/// Who has which copy: what each needs, and the parts of cuDNN and NVRTC, which are opened by those that need none of them.
fn links(consumer: &str, files: &[LibraryFile]) -> Vec<Link> {
    let called = |file: &LibraryFile| match file.soname.value() {
        Some(soname) => soname.clone(),
        None => file_name(file.path.trim_end_matches(DELETED)).to_owned(),
    };
    let mut links: Vec<Link> = Vec::new();
    let mut link = |user: &LibraryFile, soname: String, got: &LibraryFile, opened: bool| {
        links.push(Link {
            consumer: consumer.to_owned(),
            user: user.path.clone(),
            soname,
            opened,
            got: Some(got.path.clone()),
            by: BY.to_owned(),
            ..Link::default()
        });
    };
    for user in files {
        for soname in &user.needed {
            if let Some(got) = files.iter().find(|file| called(file) == *soname) {
                link(user, soname.clone(), got, false);
            }
        }
        let parts = match user.name.as_str() {
            "libcudnn" => "libcudnn_",
            "libnvrtc" => "libnvrtc-builtins",
            _ => continue,
        };
        for part in files.iter().filter(|file| file.name.starts_with(parts)) {
            link(user, called(part), part, true);
        }
    }
    // No one is known to have opened these; the process has them.
    for file in files {
        if !file.name.starts_with("libcudnn_") && file.name != "libnvrtc-builtins" {
            links.push(Link {
                consumer: consumer.to_owned(),
                soname: called(file),
                opened: true,
                got: Some(file.path.clone()),
                by: BY.to_owned(),
                ..Link::default()
            });
        }
    }
    links
}
