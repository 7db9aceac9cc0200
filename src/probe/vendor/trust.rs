//! Whether a library may be loaded: by root not if somebody else could have written it, or what the loader may pick up for
//! it; by an ordinary user not if it belongs to another one.
//!
//! Only what can be seen from owners and modes counts; what a library itself asks the loader for by absolute path or
//! RUNPATH is not followed.

#![expect(
    clippy::disallowed_methods,
    reason = "what counts is the live file that dlopen will take, not a file under --root"
)]

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Variables that name libraries which the loader or libcuda take into a process.
const LIBRARY_VARIABLES: [&str; 4] = [
    "LD_PRELOAD",
    "LD_AUDIT",
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
];
/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;
/// Write permission for the group or for everybody. The group counts even if it is root's: an ACL shows in its bits.
const OTHERS_WRITE: u32 = 0o022;
/// "Overflow" owner of files whose owner a user namespace has no number for (/proc/sys/kernel/overflowuid).
const NOBODY: u32 = 65534;

/// Whether this process may load the file at `path` under the environment that `variable` answers from: `Err` with the
/// reason where it is root and somebody else could have written the file, a folder above it, a folder of `LD_LIBRARY_PATH`,
/// or a library that a variable adds.
pub fn trusted_to_load(
    path: &Path,
    variable: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(), String> {
    let user = rustix::process::geteuid();
    if !user.is_root() {
        return of_a_stranger(path, &[0, NOBODY, user.as_raw()]);
    }
    let mut trust = Trust { owners: vec![0] };
    if in_user_namespace() {
        // Here root is an ordinary user of the host, and the host's root shows as nobody: files it lent are as good as ours.
        trust.owners.push(NOBODY);
    }
    trust.to_load(path, variable)
}

/// Whether an ordinary user would run what another user put there: a library whose file, or the folder it lies in, is
/// neither the caller's nor the system's. Its version is read from the file, as root reads it.
fn of_a_stranger(path: &Path, owners: &[u32]) -> Result<(), String> {
    let file = std::fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?;
    for place in [Some(file.as_path()), file.parent()].into_iter().flatten() {
        let owner = std::fs::metadata(place)
            .map_err(|e| format!("{}: {e}", place.display()))?
            .uid();
        if !owners.contains(&owner) {
            return Err(format!("{} belongs to user {owner}", place.display()));
        }
    }
    Ok(())
}

/// Whether the numbers of users are mapped, as in a rootless container.
fn in_user_namespace() -> bool {
    let everything = |map: String| map.split_whitespace().eq(["0", "0", "4294967295"]);
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !everything(map))
}

/// Whose files are as good as our own.
struct Trust {
    owners: Vec<u32>,
}

impl Trust {
    fn to_load(
        &self,
        path: &Path,
        variable: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<(), String> {
        self.path(path)?;
        let folders = variable("LD_LIBRARY_PATH").unwrap_or_default();
        for folder in split(&folders, b":;") {
            if folder.as_bytes().contains(&b'$') {
                return Err(format!(
                    "LD_LIBRARY_PATH: {} stands for different folders",
                    folder.display()
                ));
            }
            self.path(Path::new(folder))
                .map_err(|why| format!("LD_LIBRARY_PATH: {why}"))?;
        }
        for name in LIBRARY_VARIABLES {
            let files = variable(name).unwrap_or_default();
            // A bare name is looked up in the folders above and in the system's.
            for file in split(&files, b": ").filter(|file| file.as_bytes().contains(&b'/')) {
                self.path(Path::new(file))
                    .map_err(|why| format!("{name}: {why}"))?;
            }
        }
        Ok(())
    }

    /// Walks to a file or folder, link by link: nobody else may be able to change where the way leads, nor to put anything
    /// at its end.
    fn path(&self, path: &Path) -> Result<(), String> {
        let path = std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut ahead: VecDeque<OsString> = steps(&path).collect();
        let mut here = PathBuf::from("/");
        let mut open_to_others = None;
        let mut links = 0;
        loop {
            let metadata = match here.symlink_metadata() {
                Ok(metadata) => metadata,
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    break;
                }
                Err(e) => return Err(format!("{}: {e}", here.display())),
            };
            self.own(&here, &metadata)?;
            if metadata.is_symlink() {
                links += 1;
                if links > MOST_LINKS {
                    return Err(format!("{}: too many links", path.display()));
                }
                let target = here
                    .read_link()
                    .map_err(|e| format!("{}: {e}", here.display()))?;
                here.pop();
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                for step in steps(&target).collect::<Vec<_>>().into_iter().rev() {
                    ahead.push_front(step);
                }
            } else {
                open_to_others = (metadata.mode() & OTHERS_WRITE != 0).then(|| here.clone());
            }
            match ahead.pop_front() {
                None => break,
                Some(step) if step == ".." => {
                    here.pop();
                }
                Some(step) => here.push(step),
            }
        }
        match open_to_others {
            None => Ok(()),
            Some(folder) => Err(format!("others can put files into {}", folder.display())),
        }
    }

    /// Whether nobody else can change this one or replace what is in it. In a sticky folder (/tmp) others can neither rename
    /// nor remove what is ours.
    fn own(&self, path: &Path, metadata: &Metadata) -> Result<(), String> {
        if !self.owners.contains(&metadata.uid()) {
            return Err(format!(
                "{} belongs to user {}",
                path.display(),
                metadata.uid()
            ));
        }
        let sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
        if !metadata.is_symlink() && metadata.mode() & OTHERS_WRITE != 0 && !sticky {
            return Err(format!("others can write {}", path.display()));
        }
        Ok(())
    }
}

/// The names on the way of a path; `..` stays, since what it means depends on the links before it.
fn steps(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    })
}

/// The parts of a list; an empty one means the current folder to the loader and is given as `.`.
fn split<'a>(list: &'a OsStr, separators: &'static [u8]) -> impl Iterator<Item = &'a OsStr> {
    let parts = (!list.is_empty()).then(|| list.as_bytes().split(|byte| separators.contains(byte)));
    parts
        .into_iter()
        .flatten()
        .map(|part| OsStr::from_bytes(if part.is_empty() { b"." } else { part }))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn who_could_have_written_it() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for (folder, mode) in [
            ("ours", 0o755),
            ("theirs", 0o777),
            ("group", 0o775),
            ("sticky", 0o1777),
        ] {
            std::fs::create_dir(at(folder)).unwrap();
            std::fs::write(at(folder).join("lib.so"), "").unwrap();
            std::fs::set_permissions(at(folder).join("lib.so"), PermissionsExt::from_mode(0o644))
                .unwrap();
            std::fs::set_permissions(at(folder), PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::write(at("ours/loose.so"), "").unwrap();
        std::fs::set_permissions(at("ours/loose.so"), PermissionsExt::from_mode(0o666)).unwrap();
        symlink("../theirs/lib.so", at("ours/out.so")).unwrap();
        symlink("lib.so", at("ours/in.so")).unwrap();
        symlink(at("ours/lib.so"), at("theirs/back.so")).unwrap();
        symlink("loop.so", at("ours/loop.so")).unwrap();
        let trust = Trust {
            owners: vec![0, rustix::process::geteuid().as_raw()],
        };
        let none = |_: &str| None;
        for (path, why) in [
            ("ours/lib.so", None),
            ("ours/in.so", None),
            ("sticky/lib.so", None),
            ("ours/missing/lib.so", None),
            ("ours/lib.so/lib.so", None),
            ("theirs/lib.so", Some("others can write")),
            ("group/lib.so", Some("others can write")),
            ("ours/loose.so", Some("others can write")),
            ("ours/out.so", Some("others can write")),
            ("theirs/back.so", Some("others can write")),
            ("ours/../theirs/lib.so", Some("others can write")),
            ("sticky/missing.so", Some("others can put files into")),
            ("ours/loop.so", Some("too many links")),
        ] {
            let answer = trust.to_load(&at(path), &none).err();
            assert_eq!(answer.is_some(), why.is_some(), "{path}: {answer:?}");
            assert!(
                answer.unwrap_or_default().contains(why.unwrap_or_default()),
                "{path}"
            );
        }
        for (name, value, trusted) in [
            (
                "LD_LIBRARY_PATH",
                format!("{}:{}", at("ours").display(), at("missing").display()),
                true,
            ),
            (
                "LD_LIBRARY_PATH",
                format!("{}:{}", at("ours").display(), at("sticky").display()),
                false,
            ),
            ("LD_LIBRARY_PATH", at("theirs").display().to_string(), false),
            (
                "LD_LIBRARY_PATH",
                format!("{}/$LIB", at("ours").display()),
                false,
            ),
            (
                "LD_PRELOAD",
                format!("libm.so.6 {}", at("ours/lib.so").display()),
                true,
            ),
            (
                "LD_PRELOAD",
                format!("libm.so.6 {}", at("theirs/lib.so").display()),
                false,
            ),
            (
                "CUDA_INJECTION64_PATH",
                at("ours/loose.so").display().to_string(),
                false,
            ),
        ] {
            let variable = |asked: &str| (asked == name).then(|| OsString::from(&value));
            let answer = trust.to_load(&at("ours/lib.so"), &variable);
            assert_eq!(answer.is_ok(), trusted, "{name}={value}: {answer:?}");
        }
        let stranger = Trust {
            owners: vec![0, u32::MAX],
        };
        let others = !rustix::process::geteuid().is_root();
        assert_eq!(stranger.to_load(&at("ours/lib.so"), &none).is_err(), others);
    }

    #[test]
    fn lists_as_the_loader_reads_them() {
        let parts = |list: &str| {
            split(OsStr::new(list), b":;")
                .map(|p| p.display().to_string())
                .collect::<Vec<_>>()
                .join("|")
        };
        assert_eq!(parts(""), "");
        assert_eq!(parts("/a:/b;/c"), "/a|/b|/c");
        assert_eq!(parts("/a:"), "/a|.");
    }
}
