//! What of a repository can be judged, as globs for a `gpudoctor.toml` to begin with: those that mean something now.
//!
//! It looks a few levels deep and at a few thousand names, by names alone where they tell and else at the first bytes of what
//! may be run: a repository is not walked for a first proposal.

use std::collections::BTreeMap;

use super::manifest;
use crate::facts::Reading;
use crate::read::window::bytes_up_to;
use crate::sysroot::{Kind, Sysroot, join};

/// The deepest folder that is looked into.
const MAX_DEPTH: usize = 4;
/// The most names that are looked at.
const MAX_NAMES: usize = 5_000;
/// The most files of one folder that are named one by one.
const MAX_SINGLE: usize = 4;
/// Folders that hold what others have built, or nothing that is shipped.
const NOT_ENTERED: &[&str] = &[
    "node_modules",
    "site-packages",
    "__pycache__",
    "CMakeFiles",
    "target",
];

/// Globs for what lies in a folder and is worth judging, each of which means a file.
pub fn globs(sysroot: &Sysroot, folder: &str) -> Vec<String> {
    let mut seen = Seen {
        sysroot,
        left: MAX_NAMES,
        manifests: Vec::new(),
        files: BTreeMap::new(),
    };
    seen.folder(folder, "", MAX_DEPTH);
    let mut globs: Vec<String> = Vec::new();
    for ((top, ending), paths) in seen.files {
        if paths.len() <= MAX_SINGLE || ending.is_empty() {
            globs.extend(paths);
        } else if top.is_empty() {
            globs.push(format!("*{ending}"));
        } else {
            globs.push(format!("{top}/**/*{ending}"));
        }
    }
    globs.extend(seen.manifests);
    globs
}

struct Seen<'a> {
    sysroot: &'a Sysroot,
    left: usize,
    manifests: Vec<String>,
    /// By the first folder and the ending.
    files: BTreeMap<(String, &'static str), Vec<String>>,
}

impl Seen<'_> {
    fn folder(&mut self, place: &str, path: &str, deeper: usize) {
        let mut folders = Vec::new();
        for name in self.sysroot.list(place, |_| true).items() {
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            let inner = if path.is_empty() {
                name.clone()
            } else {
                join(path, name)
            };
            let place = join(place, name);
            // A name with signs of globs in it would mean something else.
            if name.contains(['*', '?', '[', ']', '{', '}', '!']) {
                continue;
            }
            let stat = self.sysroot.lstat(&place);
            match stat.value().map(|stat| stat.kind) {
                Some(Kind::File) => self.file(&place, inner),
                Some(Kind::Folder)
                    if deeper > 0
                        && !name.starts_with('.')
                        && !NOT_ENTERED.contains(&name.as_str())
                        && !self.sysroot.exists(&join(&place, "pyvenv.cfg")) =>
                {
                    folders.push((place, inner));
                }
                _ => {}
            }
        }
        for (place, inner) in folders {
            self.folder(&place, &inner, deeper - 1);
        }
    }

    fn file(&mut self, place: &str, path: String) {
        if manifest::is_manifest(&path) {
            self.manifests.push(path);
            return;
        }
        let name = path.rsplit('/').next().unwrap_or(&path);
        let has_ending = |ending: &str| name.ends_with(ending);
        let ending = if has_ending(".whl") {
            ".whl"
        } else if has_ending(".so") {
            ".so"
        } else if name.contains(".so.") && self.is_elf(place) {
            ".so.*"
        } else if !name.contains('.') && self.is_elf(place) {
            ""
        } else {
            return;
        };
        let top = path.split_once('/').map_or("", |(top, _)| top).to_owned();
        self.files.entry((top, ending)).or_default().push(path);
    }

    /// Whether its first bytes are those of a program or library.
    fn is_elf(&self, place: &str) -> bool {
        match self.sysroot.file(place) {
            Reading::Present { value, .. } => bytes_up_to(&value, 0, 4) == *b"\x7fELF",
            _ => false,
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test makes a folder")]
mod tests {
    use super::*;

    #[test]
    fn globs_mean_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let make = |path: &str, bytes: &[u8]| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        for (path, bytes) in [
            ("build/server", &b"\x7fELF\x02"[..]),
            ("build/Makefile", b"all:"),
            ("build/CMakeFiles/3.25/a.out", b"\x7fELF"),
            ("build/libone.so", b"\x7fELF"),
            ("lib/a/1.so", b""),
            ("lib/a/2.so", b""),
            ("lib/a/3.so", b""),
            ("lib/a/4.so", b""),
            ("lib/5.so", b""),
            ("dist/app-1.0-py3-none-any.whl", b"PK"),
            ("requirements.txt", b"torch"),
            ("notes.txt", b"text"),
            (".git/objects/pack.so", b""),
            (".venv/lib/x.so", b""),
            ("env/pyvenv.cfg", b""),
            ("env/lib/x.so", b""),
            ("a/b/c/d/e/deep.so", b""),
        ] {
            make(path, bytes);
        }
        let found = globs(&Sysroot::live(), folder.path().to_str().unwrap());
        assert_eq!(
            found,
            [
                "build/server",
                "build/libone.so",
                "dist/app-1.0-py3-none-any.whl",
                "lib/**/*.so",
                "requirements.txt",
            ]
        );
        // Each of them means a file.
        let met = super::super::walk::Globs::new(&found)
            .unwrap()
            .find(&Sysroot::live(), folder.path().to_str().unwrap());
        assert!(met.problems.is_empty(), "{:?}", met.problems);
        let empty = tempfile::tempdir().unwrap();
        assert!(globs(&Sysroot::live(), empty.path().to_str().unwrap()).is_empty());
    }
}
