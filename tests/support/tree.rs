//! A folder that stands for the root of a machine: every path and every link in it is read as that machine would read
//! it, so an absolute link leads to a place inside.

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The root folder.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

/// As many links as Linux follows in one path.
const MAX_LINKS: usize = 40;

impl Tree {
    /// The tree under `root`, which exists.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Where `path` leads in the end, as a path of that machine; `None` where nothing is there.
    pub fn resolve(&self, path: &str) -> Option<String> {
        self.walk(path)
            .filter(|real| fs::symlink_metadata(self.outside(real)).is_ok())
    }

    /// The file on this machine that `path` leads to; `None` where nothing is there.
    pub fn find(&self, path: &str) -> Option<PathBuf> {
        self.resolve(path).map(|real| self.outside(&real))
    }

    /// The bytes of a regular file.
    pub fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.find(path)
            .filter(|p| p.is_file())
            .and_then(|p| fs::read(p).ok())
    }

    /// The first bytes of a regular file, at most `count`.
    pub fn head(&self, path: &str, count: u64) -> Option<Vec<u8>> {
        let place = self.find(path).filter(|p| p.is_file())?;
        let mut bytes = Vec::new();
        fs::File::open(place)
            .ok()?
            .take(count)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(bytes)
    }

    /// Names in a folder, sorted; none where there is no such folder.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let Some(entries) = self.find(folder).and_then(|p| fs::read_dir(p).ok()) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .map(|e| {
                e.unwrap()
                    .file_name()
                    .into_string()
                    .expect("names in fixtures are text")
            })
            .collect();
        names.sort();
        names
    }

    /// Makes a folder and those above it.
    pub fn make_folder(&self, path: &str) {
        let real = self
            .walk(path)
            .unwrap_or_else(|| panic!("{path} goes round in circles"));
        fs::create_dir_all(self.outside(&real)).unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// Writes a file; what lay there before is gone, a link included.
    pub fn write(&self, path: &str, bytes: &[u8]) {
        let place = self.place(path);
        clear(&place);
        fs::write(&place, bytes).unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// Brings a file to a size, without filling it.
    pub fn resize(&self, path: &str, size: u64) {
        let file = fs::OpenOptions::new().write(true).open(self.place(path));
        file.and_then(|f| f.set_len(size))
            .unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// Sets permission bits.
    pub fn set_mode(&self, path: &str, mode: u32) {
        let place = self
            .find(path)
            .unwrap_or_else(|| panic!("{path}: no such file to set the mode of"));
        fs::set_permissions(place, fs::Permissions::from_mode(mode))
            .unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// Makes a link; what lay there before is gone.
    pub fn link(&self, path: &str, target: &str) {
        let place = self.place(path);
        clear(&place);
        symlink(target, &place).unwrap_or_else(|e| panic!("{path}: {e}"));
    }

    /// What the link at `path` holds; `None` where it is no link.
    pub fn link_target(&self, path: &str) -> Option<String> {
        fs::read_link(self.place(path))
            .ok()
            .map(|t| t.into_os_string().into_string().unwrap())
    }

    /// Whether something lies at `path`, be it a link that leads nowhere.
    pub fn has_entry(&self, path: &str) -> bool {
        fs::symlink_metadata(self.place(path)).is_ok()
    }

    /// The place on this machine for `path` itself: links above it are followed, the folder is made.
    pub fn place(&self, path: &str) -> PathBuf {
        let (folder, name) = path
            .rsplit_once('/')
            .unwrap_or_else(|| panic!("{path} is not absolute"));
        self.make_folder(folder);
        let folder = self.walk(folder).unwrap();
        self.outside(&folder).join(name)
    }

    fn outside(&self, real: &str) -> PathBuf {
        self.root.join(real.trim_start_matches('/'))
    }

    /// Follows all links; the end need not exist. `None` where they go round in circles.
    fn walk(&self, path: &str) -> Option<String> {
        let mut done: Vec<String> = Vec::new();
        let mut ahead: VecDeque<String> = path.split('/').map(str::to_owned).collect();
        let mut links = 0;
        while let Some(part) = ahead.pop_front() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    done.pop();
                    continue;
                }
                _ => done.push(part),
            }
            let here = self.outside(&done.join("/"));
            let Ok(target) = fs::read_link(&here) else {
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            let target = target.to_str().expect("links in fixtures are text");
            done.pop();
            if target.starts_with('/') {
                done.clear();
            }
            for part in target.split('/').rev() {
                ahead.push_front(part.to_owned());
            }
        }
        Some(format!("/{}", done.join("/")))
    }
}

/// Removes what lies at a place, unless it is a folder.
fn clear(place: &Path) {
    if fs::symlink_metadata(place).is_ok_and(|m| !m.is_dir()) {
        fs::remove_file(place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    }
}
