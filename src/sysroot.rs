//! The only way to a path: the live machine, or a folder or a container image that is read as a machine's root.
//!
//! Under a root every link is resolved inside it: an absolute target starts at the root again, `..` stops there, so
//! nothing that an image or a snapshot of a disk contains leads out of it. Only regular files are read (a FIFO or a
//! device would block or act), by `pread`, never by mapping, and never more than the cap that the caller names.
//! This file knows paths and bytes; what the bytes mean is `read`'s business.

#![expect(
    clippy::disallowed_methods,
    reason = "this is the one place that touches the file system for probes"
)]

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::error::{Error, plain_io};
use crate::facts::Reading;
use crate::image::{Bytes, Tree};
use crate::read::tar;
use crate::read::window::{ReadAt, fill};

/// The most that is kept of a small file's text, in bytes.
pub const TEXT_CAP: usize = 4096;
/// Links followed in one path before it counts as a loop, as in the kernel.
const MAX_LINKS: usize = 40;

/// The file that is being read, and since when: a dead mount is named while it is waited for.
static WAITING_FOR: Mutex<Option<(Instant, PathBuf)>> = Mutex::new(None);

/// What has been waited for longer than `seconds`, where something has.
pub fn waiting_for(seconds: u64) -> Option<String> {
    let guard = WAITING_FOR.lock().ok()?;
    let (since, path) = guard.as_ref()?;
    (since.elapsed().as_secs() >= seconds).then(|| path.display().to_string())
}

/// Runs a call that may not come back, known to [`waiting_for`] meanwhile.
fn watched<T>(path: &Path, call: impl FnOnce() -> T) -> T {
    if let Ok(mut guard) = WAITING_FOR.lock() {
        *guard = Some((Instant::now(), path.to_owned()));
    }
    let result = call();
    if let Ok(mut guard) = WAITING_FOR.lock() {
        *guard = None;
    }
    result
}

/// A machine's file system.
#[derive(Clone, Debug)]
pub struct Sysroot {
    root: Root,
}

#[derive(Clone, Debug)]
enum Root {
    Live,
    Folder(PathBuf),
    Image(Arc<Tree>),
}

/// What `stat` says of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// What it is.
    pub kind: Kind,
    /// Major and minor of a device node.
    pub rdev: (u32, u32),
    /// Device and inode: the same file under two names has the same.
    pub identity: (u64, u64),
}

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link (only by `lstat`).
    Link,
    /// A character device.
    CharDevice,
    /// A socket.
    Socket,
    /// Anything else.
    Other,
}

impl From<&Metadata> for Stat {
    fn from(m: &Metadata) -> Self {
        let t = m.file_type();
        let kind = if t.is_file() {
            Kind::File
        } else if t.is_dir() {
            Kind::Folder
        } else if t.is_symlink() {
            Kind::Link
        } else if t.is_char_device() {
            Kind::CharDevice
        } else if t.is_socket() {
            Kind::Socket
        } else {
            Kind::Other
        };
        Self {
            size_bytes: m.size(),
            mode: m.mode() & 0o7777,
            uid: m.uid(),
            gid: m.gid(),
            kind,
            rdev: (rustix::fs::major(m.rdev()), rustix::fs::minor(m.rdev())),
            identity: (m.dev(), m.ino()),
        }
    }
}

impl Sysroot {
    /// The machine that this runs on.
    pub fn live() -> Self {
        Self { root: Root::Live }
    }

    /// A container image, read where it lies.
    pub fn of_image(tree: Arc<Tree>) -> Self {
        Self {
            root: Root::Image(tree),
        }
    }

    /// A folder that is read as a machine's root.
    ///
    /// # Errors
    /// Where it is no folder that can be read.
    pub fn at(dir: &Path) -> Result<Self, Error> {
        let root = fs::canonicalize(dir).map_err(|e| Error::file("read", dir, e))?;
        fs::read_dir(&root).map_err(|e| Error::file("read", dir, e))?;
        Ok(Self {
            root: Root::Folder(root),
        })
    }

    /// The file system that a process sees, by `/proc/PID/root`.
    pub fn of_process(pid: u32) -> Self {
        // Not made canonical: as a text the link says `/`, only the kernel knows whose.
        Self {
            root: Root::Folder(PathBuf::from(format!("/proc/{pid}/root"))),
        }
    }

    /// Whether this is the running machine.
    pub fn is_live(&self) -> bool {
        matches!(self.root, Root::Live)
    }

    /// The path on this machine's disk: the last component a link or not (`follow`).
    fn locate(&self, path: &str, follow: bool) -> io::Result<PathBuf> {
        match &self.root {
            Root::Live => Ok(PathBuf::from(path)),
            Root::Folder(root) => Ok(root.join(walk(root, Path::new(path), follow)?)),
            Root::Image(_) => Err(io::Error::other("lies in an image")),
        }
    }

    /// Where a path leads in the end, as a path of that machine.
    pub fn real_path(&self, path: &str) -> Reading<String> {
        let resolved = match &self.root {
            Root::Live => watched(Path::new(path), || fs::canonicalize(path)),
            Root::Image(tree) => tree.find(path, true).map(|id| PathBuf::from(tree.path(id))),
            Root::Folder(root) => walk(root, Path::new(path), true).and_then(|p| {
                fs::symlink_metadata(root.join(&p))?;
                Ok(Path::new("/").join(p))
            }),
        };
        reading(path, resolved.map(|p| p.to_string_lossy().into_owned()))
    }

    /// What `stat` says, links followed.
    pub fn stat(&self, path: &str) -> Reading<Stat> {
        if let Root::Image(tree) = &self.root {
            return reading(path, stat_in(tree, path, true));
        }
        let found = self
            .locate(path, true)
            .and_then(|p| watched(&p, || fs::metadata(&p)));
        reading(path, found.map(|m| Stat::from(&m)))
    }

    /// What `lstat` says: of the link itself where it is one.
    pub fn lstat(&self, path: &str) -> Reading<Stat> {
        if let Root::Image(tree) = &self.root {
            return reading(path, stat_in(tree, path, false));
        }
        let found = self
            .locate(path, false)
            .and_then(|p| watched(&p, || fs::symlink_metadata(&p)));
        reading(path, found.map(|m| Stat::from(&m)))
    }

    /// Whether there is something at the path, links followed.
    pub fn exists(&self, path: &str) -> bool {
        self.stat(path).is_present()
    }

    /// The text of a link.
    pub fn link(&self, path: &str) -> Reading<String> {
        if let Root::Image(tree) = &self.root {
            let link = tree.find(path, false).and_then(|id| {
                let link = tree.link(id).map(str::to_owned);
                link.ok_or_else(|| io::ErrorKind::InvalidInput.into())
            });
            return reading(path, link);
        }
        let found = self
            .locate(path, false)
            .and_then(|p| watched(&p, || fs::read_link(&p)));
        reading(path, found.map(|t| t.to_string_lossy().into_owned()))
    }

    /// The names in a folder, sorted, those that `wanted` takes.
    pub fn list(&self, path: &str, wanted: impl Fn(&str) -> bool) -> Reading<Vec<String>> {
        if let Root::Image(tree) = &self.root {
            let names = tree.find(path, true).and_then(|id| {
                if tree.node(id).is_none_or(|n| n.kind != tar::Kind::Folder) {
                    return Err(io::ErrorKind::NotADirectory.into());
                }
                let names = tree.list(id).filter(|name| wanted(name));
                Ok(names.map(str::to_owned).collect())
            });
            return reading(path, names);
        }
        let names = self.locate(path, true).and_then(|p| {
            let mut names = Vec::new();
            for entry in watched(&p, || fs::read_dir(&p))? {
                let name = entry?.file_name();
                // A name that is no UTF-8 is none of those that anything here is called.
                if let Some(name) = name.to_str().filter(|n| wanted(n)) {
                    names.push(name.to_owned());
                }
            }
            names.sort_unstable();
            Ok(names)
        });
        reading(path, names)
    }

    /// All names in a folder, sorted; those that are no UTF-8 apart.
    pub fn list_all(&self, path: &str) -> Reading<Names> {
        // Names in an image are text.
        if matches!(self.root, Root::Image(_)) {
            return self.list(path, |_| true).map(|names| Names {
                names,
                odd: Vec::new(),
            });
        }
        let names = self.locate(path, true).and_then(|p| {
            let mut found = Names::default();
            for entry in watched(&p, || fs::read_dir(&p))? {
                let entry = entry?;
                match entry.file_name().into_string() {
                    Ok(name) => found.names.push(name),
                    Err(name) => {
                        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                        let end = if is_folder { "/" } else { "" };
                        found.odd.push(format!("{}{end}", name.to_string_lossy()));
                    }
                }
            }
            found.names.sort_unstable();
            found.odd.sort_unstable();
            Ok(found)
        });
        reading(path, names)
    }

    /// Opens a regular file for reading by offset.
    pub fn file(&self, path: &str) -> Reading<RegularFile> {
        reading(path, self.open(path))
    }

    fn open(&self, path: &str) -> io::Result<RegularFile> {
        if let Root::Image(tree) = &self.root {
            let bytes = tree.find(path, true).and_then(|id| tree.open(id))?;
            return Ok(RegularFile {
                size_bytes: bytes.len(),
                path: PathBuf::from(path),
                opened: Opened::InImage(bytes),
            });
        }
        self.locate(path, true).and_then(|p| RegularFile::open(&p))
    }

    /// The bytes of a file, at most `cap`. Files of /proc and /sys have no size: they are read until they end.
    pub fn bytes(&self, path: &str, cap: usize) -> Reading<Vec<u8>> {
        let found = self.open(path).and_then(|file| {
            let Opened::OnDisk(on_disk) = &file.opened else {
                let size = usize::try_from(file.size_bytes).unwrap_or(cap);
                let mut bytes = vec![0; size.min(cap)];
                let got = fill(&file, 0, &mut bytes)?;
                bytes.truncate(got);
                return Ok(bytes);
            };
            watched(&file.path, || {
                // In one piece where that can be had: what /proc hands out in one read belongs together, and a buffer that
                // grows as it is filled costs more than reading does.
                let expected = usize::try_from(file.size_bytes).unwrap_or(cap);
                let mut bytes = Vec::with_capacity(expected.max(TEXT_CAP).min(cap) + 1);
                on_disk.take(cap as u64).read_to_end(&mut bytes)?;
                Ok(bytes)
            })
        });
        reading(path, found)
    }

    /// The last `cap` bytes of a file: the newest part of a log.
    pub fn tail(&self, path: &str, cap: usize) -> Reading<Vec<u8>> {
        match self.file(path) {
            Reading::Present { value: file, .. } => {
                let start = file.len().saturating_sub(cap as u64);
                let mut bytes = vec![0; usize::try_from(file.len() - start).unwrap_or(cap)];
                let mut filled = 0;
                while let Some(rest) = bytes.get_mut(filled..).filter(|r| !r.is_empty()) {
                    match file.read_at(start + filled as u64, rest) {
                        Ok(0) => break,
                        Ok(n) => filled += n,
                        Err(e) => return reading(path, Err(e)),
                    }
                }
                bytes.truncate(filled);
                Reading::present(bytes, path)
            }
            Reading::Absent { source } => Reading::Absent { source },
            Reading::Unreadable { reason } => Reading::Unreadable { reason },
        }
    }

    /// The text of a small file, at most [`TEXT_CAP`] bytes; what is no UTF-8 is replaced.
    pub fn text(&self, path: &str) -> Reading<String> {
        self.text_up_to(path, TEXT_CAP)
    }

    /// The text of a file, at most `cap` bytes.
    pub fn text_up_to(&self, path: &str, cap: usize) -> Reading<String> {
        self.bytes(path, cap)
            .map(|bytes| match String::from_utf8(bytes) {
                Ok(text) => text,
                Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
            })
    }
}

/// What `stat` says of a path in an image.
fn stat_in(tree: &Tree, path: &str, follow: bool) -> io::Result<Stat> {
    let node = tree.node(tree.find(path, follow)?);
    let node = node.ok_or(io::ErrorKind::NotFound)?;
    Ok(Stat {
        size_bytes: node.size,
        mode: node.mode.into(),
        uid: node.uid,
        gid: node.gid,
        kind: match node.kind {
            tar::Kind::File | tar::Kind::Sparse | tar::Kind::HardLink => Kind::File,
            tar::Kind::Folder => Kind::Folder,
            tar::Kind::Link => Kind::Link,
            tar::Kind::CharDevice => Kind::CharDevice,
            tar::Kind::Other => Kind::Other,
        },
        rdev: (0, 0),
        identity: (u64::from(node.layer) + 1, node.at),
    })
}

/// The names in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Those that are text.
    pub names: Vec<String>,
    /// Those that are not, with signs in place of what is no text, and `/` behind those of folders.
    pub odd: Vec<String>,
}

/// Resolves links inside the root; the result is relative to it.
fn walk(root: &Path, path: &Path, follow: bool) -> io::Result<PathBuf> {
    let mut done = PathBuf::new();
    let mut todo: Vec<OsString> = components(path);
    todo.reverse();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        if part == ".." {
            done.pop();
            continue;
        }
        let here = root.join(&done).join(&part);
        let is_link = (follow || !todo.is_empty())
            && watched(&here, || fs::symlink_metadata(&here)).is_ok_and(|m| m.is_symlink());
        if !is_link {
            done.push(part);
            continue;
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(io::Error::other("too many levels of symbolic links"));
        }
        let target = fs::read_link(&here)?;
        if target.is_absolute() {
            done = PathBuf::new();
        }
        todo.extend(components(&target).into_iter().rev());
    }
    Ok(done)
}

/// The components of a path below its root, `.` left out.
fn components(path: &Path) -> Vec<OsString> {
    path.components()
        .filter_map(|c| match c {
            Component::Normal(part) => Some(part.to_owned()),
            Component::ParentDir => Some(OsString::from_vec(b"..".to_vec())),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect()
}

/// An I/O result as a reading: what does not exist is absent, what is refused or broken is unreadable.
fn reading<T>(path: &str, result: io::Result<T>) -> Reading<T> {
    match result {
        Ok(value) => Reading::present(value, path),
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Reading::absent(path)
        }
        Err(e) => {
            let reason = format!("{path}: {}", plain_io(&e.to_string()).to_lowercase());
            log::debug!("{reason}");
            Reading::unreadable(reason)
        }
    }
}

/// A regular file, read by offset.
#[derive(Debug)]
pub struct RegularFile {
    opened: Opened,
    size_bytes: u64,
    path: PathBuf,
}

#[derive(Debug)]
enum Opened {
    OnDisk(File),
    InImage(Bytes),
}

impl RegularFile {
    /// Opens it. Anything but a regular file is refused; `O_NONBLOCK` keeps a FIFO from blocking the open.
    fn open(path: &Path) -> io::Result<Self> {
        watched(path, || {
            let before = fs::metadata(path)?;
            if !before.is_file() {
                return Err(io::Error::other(if before.is_dir() {
                    "is a folder"
                } else {
                    "is no regular file"
                }));
            }
            let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
            let file = fs::OpenOptions::new()
                .read(true)
                .custom_flags(flags.bits().cast_signed())
                .open(path)?;
            let size_bytes = file.metadata()?.size();
            Ok(Self {
                opened: Opened::OnDisk(file),
                size_bytes,
                path: path.to_owned(),
            })
        })
    }

    /// Opens a file that the caller named, outside any root.
    ///
    /// # Errors
    /// Where it cannot be opened, or is no regular file.
    pub fn named(path: &Path) -> Result<Self, Error> {
        Self::open(path).map_err(|e| Error::file("read", path, e))
    }
}

impl ReadAt for RegularFile {
    fn len(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        match &self.opened {
            Opened::OnDisk(file) => watched(&self.path, || file.read_at(buf, offset)),
            Opened::InImage(bytes) => bytes.read_at(offset, buf),
        }
    }
}

/// Joins a folder and a name.
pub fn join(dir: &str, name: &str) -> String {
    if dir.ends_with('/') {
        format!("{dir}{name}")
    } else {
        format!("{dir}/{name}")
    }
}

/// The folder of a path.
pub fn parent(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => path.get(..at).unwrap_or("/"),
    }
}

/// The last component of a path.
pub fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a path given on the command line is the same text as these bytes: paths are kept as they were given.
pub fn path_text(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_never_lead_out_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(dir.path().join("secret"), "outside").unwrap();
        fs::write(root.join("etc/inside"), "inside").unwrap();
        symlink("/etc/inside", root.join("usr/lib/absolute")).unwrap();
        symlink("../../../../../../secret", root.join("usr/lib/escape")).unwrap();
        symlink(dir.path().join("secret"), root.join("usr/lib/outside")).unwrap();
        symlink("/usr/lib", root.join("lib")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        let sysroot = Sysroot::at(&root).unwrap();
        assert_eq!(sysroot.text("/lib/absolute").value().unwrap(), "inside");
        assert_eq!(
            sysroot.real_path("/lib/absolute").value().unwrap(),
            "/etc/inside"
        );
        assert!(sysroot.text("/usr/lib/escape").is_absent());
        assert!(sysroot.text("/usr/lib/outside").is_absent());
        assert!(sysroot.text("/../secret").is_absent());
        assert!(sysroot.text("/loop").is_unreadable());
        assert_eq!(sysroot.lstat("/lib").value().unwrap().kind, Kind::Link);
    }

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let sysroot = Sysroot::at(dir.path()).unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("fifo"),
            rustix::fs::FileType::Fifo,
            0o666.into(),
            0,
        )
        .unwrap();
        assert!(sysroot.text("/folder").is_unreadable());
        assert!(sysroot.text("/fifo").is_unreadable());
        assert!(sysroot.text("/nothing").is_absent());
        assert!(sysroot.text("/folder/nothing").is_absent());
    }

    #[test]
    fn tails_and_caps() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("log"), "0123456789").unwrap();
        let sysroot = Sysroot::at(dir.path()).unwrap();
        assert_eq!(sysroot.tail("/log", 3).value().unwrap(), b"789");
        assert_eq!(sysroot.tail("/log", 99).value().unwrap(), b"0123456789");
        assert_eq!(sysroot.bytes("/log", 4).value().unwrap(), b"0123");
    }
}
