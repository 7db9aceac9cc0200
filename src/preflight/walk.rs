//! Which files the globs of `gpudoctor.toml` mean.
//!
//! `*` and `?` stay within a part of a path, `**` is any number of folders. A glob without such signs names one file or
//! folder. Links to folders are not followed, `.git` is not entered, and a walk has an end.

use std::collections::BTreeSet;

use glob::{MatchOptions, Pattern};

use crate::facts::Reading;
use crate::image;
use crate::sysroot::{Kind, Sysroot, join};

/// The most names that are looked at: a repository has a tenth of it.
const MAX_NAMES: usize = 1_000_000;
/// The deepest folder that is entered.
const MAX_DEPTH: usize = 64;
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Globs, some of them taking away.
#[derive(Debug, Default)]
pub struct Globs {
    wanted: Vec<(String, Pattern)>,
    unwanted: Vec<Pattern>,
}

/// What they mean.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Paths, in order, each once; true where a glob names it without any sign.
    pub paths: Vec<(String, bool)>,
    /// What could not be read, globs that mean nothing, a walk that was cut.
    pub problems: Vec<String>,
}

impl Globs {
    /// Reads them.
    ///
    /// # Errors
    /// The first one that is none, in one line.
    pub fn new(texts: &[String]) -> Result<Self, String> {
        let mut globs = Self::default();
        for text in texts {
            let (taken_away, bare) = match text.strip_prefix('!') {
                Some(rest) => (true, rest),
                None => (false, text.as_str()),
            };
            let bare = bare.strip_prefix("./").unwrap_or(bare);
            let pattern = Pattern::new(bare)
                .map_err(|e| format!("glob `{}`: {}", text.escape_debug(), e.msg))?;
            if let Some(brace) = unescaped_brace(bare) {
                return Err(format!(
                    "glob `{}`: `{brace}` stands for nothing here: write a glob for each, or `[{brace}]` for the sign itself",
                    text.escape_debug()
                ));
            }
            if bare.is_empty() {
                return Err("glob `` is empty".to_owned());
            }
            if taken_away {
                globs.unwanted.push(pattern);
            } else {
                globs.wanted.push((bare.to_owned(), pattern));
            }
        }
        Ok(globs)
    }

    /// The files below a folder that they mean.
    pub fn find(&self, sysroot: &Sysroot, folder: &str) -> Found {
        let mut walk = Walk {
            sysroot,
            globs: self,
            seen: BTreeSet::new(),
            names: 0,
            is_met: false,
            links: Vec::new(),
            found: Found::default(),
        };
        for (text, pattern) in &self.wanted {
            walk.is_met = false;
            let fixed = fixed_part(text);
            if fixed == text {
                walk.named(&at(folder, text), text);
            } else {
                let rest = text.get(fixed.len()..).unwrap_or_default();
                let deepest = if rest.contains("**") {
                    MAX_DEPTH
                } else {
                    rest.trim_start_matches('/').matches('/').count()
                };
                walk.folder(&at(folder, fixed), fixed, pattern, deepest);
                // A file is better known by its own name than by a link's.
                for (place, path) in std::mem::take(&mut walk.links) {
                    walk.file(&place, path, pattern);
                }
            }
            if !walk.is_met {
                walk.found
                    .problems
                    .push(format!("`{text}` of the artifacts means no file"));
            }
        }
        walk.found.paths.sort();
        walk.found.paths.dedup_by(|a, b| a.0 == b.0);
        walk.found
    }
}

/// A brace outside of `[...]`: other tools make several globs of it.
fn unescaped_brace(text: &str) -> Option<char> {
    let mut within = false;
    for c in text.chars() {
        match c {
            '[' => within = true,
            ']' => within = false,
            '{' | '}' if !within => return Some(c),
            _ => {}
        }
    }
    None
}

/// The folders before the first part with a sign in it; the whole where no part has one.
fn fixed_part(text: &str) -> &str {
    let is_sign = |c: char| matches!(c, '*' | '?' | '[');
    let Some(sign) = text.find(is_sign) else {
        return text;
    };
    let before = text.get(..sign).unwrap_or_default();
    before
        .rfind('/')
        .map_or("", |slash| before.get(..slash.max(1)).unwrap_or_default())
}

fn at(folder: &str, path: &str) -> String {
    if path.starts_with('/') || folder.is_empty() {
        if path.is_empty() {
            ".".to_owned()
        } else {
            path.to_owned()
        }
    } else if path.is_empty() {
        folder.to_owned()
    } else {
        join(folder, path)
    }
}

struct Walk<'a> {
    sysroot: &'a Sysroot,
    globs: &'a Globs,
    /// Device and inode of files that were taken.
    seen: BTreeSet<(u64, u64)>,
    names: usize,
    /// The glob means something.
    is_met: bool,
    /// Links that were met, with the paths they are shown by.
    links: Vec<(String, String)>,
    found: Found,
}

impl Walk<'_> {
    fn is_unwanted(&self, path: &str) -> bool {
        let mut unwanted = self.globs.unwanted.iter();
        unwanted.any(|pattern| pattern.matches_with(path, OPTIONS))
    }

    fn named(&mut self, place: &str, path: &str) {
        match self.sysroot.stat(place) {
            Reading::Present { value, .. } if matches!(value.kind, Kind::File | Kind::Folder) => {
                self.is_met = true;
                if !self.is_unwanted(path) && self.seen.insert(value.identity) {
                    self.found.paths.push((path.to_owned(), true));
                }
            }
            Reading::Unreadable { reason } => self.found.problems.push(reason),
            Reading::Present { .. } | Reading::Absent { .. } => {}
        }
    }

    /// Looks into a folder, and into those in it as far as `deeper` more levels.
    fn folder(&mut self, place: &str, path: &str, pattern: &Pattern, deeper: usize) {
        if self.names >= MAX_NAMES {
            if !self.found.problems.iter().any(|p| p.contains("cut")) {
                self.found.problems.push(format!(
                    "the walk was cut after {MAX_NAMES} names: name narrower folders in the artifacts"
                ));
            }
            return;
        }
        let names = match self.sysroot.list_all(place) {
            Reading::Present { value, .. } => {
                for odd in &value.odd {
                    self.odd(path, odd, pattern, deeper);
                }
                value.names
            }
            Reading::Absent { .. } => return,
            Reading::Unreadable { reason } => {
                self.found.problems.push(reason);
                return;
            }
        };
        self.names += names.len();
        for name in names {
            let inner = if path.is_empty() {
                name.clone()
            } else {
                join(path, &name)
            };
            let place = join(place, &name);
            let stat = self.sysroot.lstat(&place);
            let Some(stat) = stat.value() else { continue };
            match stat.kind {
                // A container image that is a folder: what is in it is no file of its own.
                Kind::Folder
                    if pattern.matches_with(&inner, OPTIONS)
                        && image::is_layout(self.sysroot, &place) =>
                {
                    self.is_met = true;
                    if !self.is_unwanted(&inner) && self.seen.insert(stat.identity) {
                        self.found.paths.push((inner, false));
                    }
                }
                Kind::Folder if name != ".git" && deeper > 0 => {
                    self.folder(&place, &inner, pattern, deeper - 1);
                }
                Kind::File => self.file(&place, inner, pattern),
                Kind::Link => self.links.push((place, inner)),
                _ => {}
            }
        }
    }

    /// A name that is no text cannot be shown, nor written into a report: what it may hold is told as not read.
    fn odd(&mut self, folder: &str, name: &str, pattern: &Pattern, deeper: usize) {
        let path = if folder.is_empty() {
            name.to_owned()
        } else {
            join(folder, name)
        };
        let is_folder = name.ends_with('/');
        let bare = path.trim_end_matches('/');
        let is_meant = if is_folder {
            deeper > 0
        } else {
            pattern.matches_with(bare, OPTIONS)
        };
        if is_meant && !self.is_unwanted(bare) {
            self.is_met = true;
            self.found.problems.push(format!(
                "{path}: not read, since its name is not UTF-8: rename it, or take it away with `!`"
            ));
        }
    }

    fn file(&mut self, place: &str, path: String, pattern: &Pattern) {
        if !pattern.matches_with(&path, OPTIONS) || self.is_unwanted(&path) {
            return;
        }
        // A link to a file is one of its names; a link to a folder may lead round.
        let stat = self.sysroot.stat(place);
        if let Some(stat) = stat.value()
            && stat.kind == Kind::File
        {
            self.is_met = true;
            if self.seen.insert(stat.identity) {
                self.found.paths.push((path, false));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test makes a folder")]
mod tests {
    use super::*;

    fn find(folder: &std::path::Path, globs: &[&str]) -> (Vec<String>, usize) {
        let globs: Vec<String> = globs.iter().map(|g| (*g).to_owned()).collect();
        let sysroot = Sysroot::live();
        let found = Globs::new(&globs)
            .unwrap()
            .find(&sysroot, folder.to_str().unwrap());
        let paths = found.paths.into_iter().map(|(path, _)| path).collect();
        (paths, found.problems.len())
    }

    #[test]
    fn an_image_that_is_a_folder_is_one_artifact() {
        let folder = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        };
        for path in [
            "images/app/oci-layout",
            "images/app/index.json",
            "images/app/blobs/sha256/ab",
            "images/notes/index.json",
        ] {
            make(path);
        }
        let found = |globs: &[&str]| find(folder.path(), globs).0;
        assert_eq!(found(&["images/*"]), ["images/app"]);
        let all = ["images/app", "images/notes/index.json"];
        assert_eq!(found(&["images/**"]), all);
        assert_eq!(found(&["**/*", "!images/app"]), all[1..]);
        assert_eq!(found(&["images/app"]), ["images/app"]);
        assert_eq!(found(&["**/index.json"]).len(), 2);
    }

    #[test]
    fn globs_mean_files() {
        let folder = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        };
        for path in [
            "app",
            "b/one.so",
            "b/c/two.so",
            "b/c/d/three.so",
            "b/c/notes.txt",
            ".git/x.so",
            "b/.hidden/four.so",
        ] {
            make(path);
        }
        let odd = std::os::unix::ffi::OsStrExt::from_bytes(b"b/caf\xe9.so");
        let odd: &std::ffi::OsStr = odd;
        std::fs::write(folder.path().join(odd), "x").unwrap();
        let link = std::os::unix::fs::symlink::<&str, std::path::PathBuf>;
        link("..", folder.path().join("b/loop")).unwrap();
        link("one.so", folder.path().join("b/one-link.so")).unwrap();
        let find = |globs: &[&str]| find(folder.path(), globs);
        let (all, _) = find(&["**/*.so"]);
        assert_eq!(all.len(), 4, "{all:?}");
        assert!(all.iter().all(|path| !path.starts_with(".git")));
        assert_eq!(find(&["b/*.so"]).0.len(), 1);
        assert_eq!(find(&["b/**/*.so", "!b/c/**"]).0.len(), 2);
        assert_eq!(find(&["app"]), (vec!["app".to_owned()], 0));
        assert_eq!(find(&["./b/c/t*.so"]).0, ["b/c/two.so"]);
        assert_eq!(find(&["**/*.so", "b/one.so"]).1, 1);
        assert_eq!(find(&["**/*.so", "!b/caf*"]).1, 0);
        assert_eq!(find(&["b/*.txt", "b/c/*.txt"]).1, 1);
        assert_eq!(find(&["b/*.dll"]), (Vec::new(), 1));
        assert_eq!(find(&["none"]), (Vec::new(), 1));
    }

    #[test]
    fn what_is_no_glob_is_refused() {
        for text in ["a[", "a***b", "", "!", "build/*.{so,a}", "a}"] {
            let error = Globs::new(&[text.to_owned()]).unwrap_err();
            assert!(error.contains("glob"), "{error}");
        }
    }
}
