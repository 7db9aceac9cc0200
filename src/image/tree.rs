//! The merged layers of an image: a file system in memory, without its bytes.
//!
//! Of each path is kept what it is and where its bytes lie; those are read where they lie. Links are resolved inside, so
//! that nothing leads out of it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::Source;
use crate::read::pages::{Kept as Pages, PAGE};
use crate::read::part::Part;
use crate::read::tar;
use crate::read::window::{ReadAt, fill};

/// The most paths of an image, those that a later layer takes away included; the largest images have 300,000.
pub const MAX_MEMBERS: usize = 350_000;
/// The most parts of a path.
const MAX_DEPTH: usize = 256;
/// Links followed in one path before it counts as a loop, as in the kernel.
const MAX_LINKS: usize = 40;
/// The most bytes of links, all together.
const MAX_LINK_BYTES: usize = 16 << 20;
/// The longest name that file systems of Linux take, in bytes.
const MAX_NAME: usize = 255;
/// The most bytes of names, all together: some 45 for each path that there may be.
const MAX_NAME_BYTES: usize = 16 << 20;
/// The most bytes of files that are kept in memory because they are read again.
const MAX_KEPT: usize = 32 << 20;

/// The root folder.
const ROOT: u32 = 0;

/// The most paths that are looked at to take some away, all together.
const MAX_HIDING: u64 = 50_000_000;

/// What lies at a path.
#[derive(Clone, Debug)]
pub struct Node {
    parent: u32,
    name: Arc<str>,
    /// What it is.
    pub kind: tar::Kind,
    /// The layer that its bytes are of, counted from the lowest.
    pub layer: u16,
    /// The layer that the path is of: a further name of a file of a lower layer is of a higher one.
    named_by: u16,
    /// Where its bytes begin in the layer.
    pub at: u64,
    /// In bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The file system of an image.
#[derive(Default)]
pub struct Tree {
    nodes: Vec<Node>,
    names: BTreeMap<(u32, Arc<str>), u32>,
    hidden: u64,
    links: HashMap<u32, Box<str>>,
    link_bytes: usize,
    name_bytes: usize,
    sources: Vec<Origin>,
    kept: Arc<Mutex<Kept>>,
    unread: Arc<AtomicBool>,
}

/// Where the bytes of a layer come from.
#[derive(Clone)]
struct Origin {
    source: Source,
    /// It is packed: each look back unpacks again.
    is_dear: bool,
}

/// Pages of files, by layer and place.
#[derive(Default)]
struct Kept {
    pages: HashMap<(u16, u64), Pages>,
    bytes: usize,
}

impl Kept {
    fn add(&mut self, file: (u16, u64), pages: Pages) {
        let bytes: usize = pages.values().map(|page| page.len() + 64).sum();
        if self.bytes + bytes <= MAX_KEPT {
            self.bytes += bytes;
            self.pages.entry(file).or_default().extend(pages);
        }
    }

    /// Reads what is kept; 0 where it is not.
    fn read(&self, file: (u16, u64), offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let pages = self.pages.get(&file);
        let page = pages.and_then(|pages| pages.get(&(offset / PAGE as u64)));
        let inside = usize::try_from(offset % PAGE as u64).unwrap_or(PAGE);
        let rest = page.and_then(|page| page.get(inside..));
        rest.unwrap_or_default().read_at(0, into)
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree of {} paths", self.nodes.len())
    }
}

impl Tree {
    /// One without anything.
    pub fn new() -> Self {
        let mut tree = Self::default();
        tree.nodes.push(Node {
            parent: ROOT,
            name: Arc::from(""),
            kind: tar::Kind::Folder,
            layer: 0,
            named_by: 0,
            at: 0,
            size: 0,
            mode: 0o755,
            uid: 0,
            gid: 0,
        });
        tree
    }

    /// Begins a layer above all others. With `is_dear` it is packed, and its bytes are to be had in their order.
    pub fn add_layer(&mut self, source: Source, is_dear: bool) {
        self.sources.push(Origin { source, is_dear });
    }

    /// Whether something was asked of a file that could not be read.
    pub fn has_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// How many paths it has, or had.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// How many regular files there are in the end.
    pub fn files(&self) -> u64 {
        let ids = self.names.values();
        let files = ids.filter(|id| self.node(**id).is_some_and(|n| n.kind == tar::Kind::File));
        files.count() as u64
    }

    /// The paths of folders with one of these names.
    pub fn folders_named(&self, wanted: &[&str]) -> Vec<String> {
        let named = |name: &str| wanted.contains(&name);
        self.names
            .iter()
            .filter(|((_, name), id)| named(name) && self.is_folder(**id))
            .map(|(_, id)| self.path(*id))
            .collect()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Adds a member of the newest layer, or takes away what it says is gone.
    ///
    /// # Errors
    /// In words: its path leads out of the image, or there are too many.
    pub fn add(&mut self, member: &tar::Member) -> Result<Option<u32>, Refused> {
        let layer = u16::try_from(self.sources.len().saturating_sub(1)).unwrap_or(u16::MAX);
        let parts = parts_of(&member.name)?;
        let Some((name, folders)) = parts.split_last() else {
            return Ok(None);
        };
        if self.hidden > MAX_HIDING {
            return Err(Refused::Image("takes away files too often".to_owned()));
        }
        if name == &".wh..wh..opq" {
            if let Ok(folder) = self.lookup(folders) {
                self.hide(folder, layer, false);
            }
            return Ok(None);
        }
        if let Some(gone) = name.strip_prefix(".wh.") {
            // What the storage drivers of old kept for themselves begins with another `.wh.`.
            if !gone.is_empty()
                && !gone.starts_with(".wh.")
                && let Ok(folder) = self.lookup(folders)
                && let Some(id) = self.child(folder, gone)
            {
                self.hide(id, layer, true);
            }
            return Ok(None);
        }
        let folder = self.folders(folders, layer)?;
        let mut node = Node {
            parent: folder,
            name: Arc::from(*name),
            kind: member.kind,
            layer,
            named_by: layer,
            at: member.at,
            size: member.size,
            mode: u16::try_from(member.mode).unwrap_or(0),
            uid: member.uid,
            gid: member.gid,
        };
        if member.kind == tar::Kind::HardLink {
            let target = parts_of(&member.link)?;
            let (last, before) = target
                .split_last()
                .ok_or_else(|| Refused::Member("is a link to nothing".to_owned()))?;
            let target = self
                .lookup(before)
                .ok()
                .and_then(|folder| self.child(folder, last))
                .and_then(|id| Some((id, self.node(id)?.clone())))
                .filter(|(_, node)| node.kind != tar::Kind::Folder);
            let Some((id, target)) = target else {
                return Err(Refused::Member(
                    "is another name of a file that is not there".to_owned(),
                ));
            };
            let link = self.links.get(&id).cloned();
            node = Node {
                parent: node.parent,
                name: node.name,
                named_by: layer,
                ..target
            };
            let id = self.put(node)?;
            self.set_link(id, link.as_deref())?;
            return Ok(None);
        }
        let id = self.put(node)?;
        let link = (member.kind == tar::Kind::Link).then_some(member.link.as_str());
        self.set_link(id, link)?;
        Ok(Some(id))
    }

    fn set_link(&mut self, id: u32, link: Option<&str>) -> Result<(), Refused> {
        match link {
            Some(link) => {
                self.link_bytes += link.len();
                if self.link_bytes > MAX_LINK_BYTES {
                    return Err(Refused::Image(format!(
                        "has more than {MAX_LINK_BYTES} bytes of links"
                    )));
                }
                self.links.insert(id, link.into());
            }
            None => {
                self.links.remove(&id);
            }
        }
        Ok(())
    }

    fn put(&mut self, node: Node) -> Result<u32, Refused> {
        let key = (node.parent, node.name.clone());
        if let Some(id) = self.names.get(&key).copied() {
            let was_folder = self.node(id).is_some_and(|n| n.kind == tar::Kind::Folder);
            if was_folder && node.kind != tar::Kind::Folder {
                self.hide_below(id, u16::MAX);
            }
            self.links.remove(&id);
            if let Some(slot) = self.slot(id) {
                *slot = node;
            }
            return Ok(id);
        }
        if self.nodes.len() >= MAX_MEMBERS {
            return Err(Refused::Image(format!("has more than {MAX_MEMBERS} files")));
        }
        self.name_bytes += node.name.len();
        if self.name_bytes > MAX_NAME_BYTES {
            return Err(Refused::Image(format!(
                "has more than {} MiB of names",
                MAX_NAME_BYTES >> 20
            )));
        }
        let id = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.nodes.push(node);
        self.names.insert(key, id);
        Ok(id)
    }

    fn slot(&mut self, id: u32) -> Option<&mut Node> {
        self.nodes.get_mut(usize::try_from(id).ok()?)
    }

    /// What is known of a node.
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.get(usize::try_from(id).ok()?)
    }

    fn child(&self, folder: u32, name: &str) -> Option<u32> {
        self.names.get(&(folder, Arc::from(name))).copied()
    }

    fn children(&self, folder: u32) -> impl Iterator<Item = (&str, u32)> {
        self.names
            .range((folder, Arc::from(""))..)
            .take_while(move |((parent, _), _)| *parent == folder)
            .map(|((_, name), id)| (name.as_ref(), *id))
    }

    /// The folder at a path within the image, links followed; those that are not there are made.
    fn folders(&mut self, parts: &[&str], layer: u16) -> Result<u32, Refused> {
        let mut folder = ROOT;
        for (index, part) in parts.iter().enumerate() {
            let id = match self.child(folder, part) {
                None => self.put(implied(folder, part, layer))?,
                Some(id) => match self.node(id).map(|node| node.kind) {
                    Some(tar::Kind::Folder) => id,
                    Some(tar::Kind::Link) => {
                        let there = parts.get(..=index).unwrap_or_default();
                        match self.lookup(there) {
                            Ok(id) if self.is_folder(id) => id,
                            _ => self.put(implied(folder, part, layer))?,
                        }
                    }
                    _ => self.put(implied(folder, part, layer))?,
                },
            };
            folder = id;
        }
        Ok(folder)
    }

    fn is_folder(&self, id: u32) -> bool {
        self.node(id).is_some_and(|n| n.kind == tar::Kind::Folder)
    }

    fn lookup(&self, parts: &[&str]) -> io::Result<u32> {
        self.find(&parts.join("/"), true)
    }

    /// Takes away what lower layers have below a node, and the node itself where `whole` and it is theirs.
    fn hide(&mut self, id: u32, layer: u16, whole: bool) {
        let is_theirs = self.node(id).is_some_and(|node| node.named_by < layer);
        let is_empty = self.hide_below(id, layer);
        if whole && is_theirs && is_empty && id != ROOT {
            self.remove(id);
        }
    }

    /// Takes away what layers below `layer` have under a folder; whether nothing is left.
    fn hide_below(&mut self, folder: u32, layer: u16) -> bool {
        // Folders in the order in which they were met; the deepest are looked at last, and emptied first.
        let mut folders = vec![folder];
        let mut index = 0;
        let mut gone = Vec::new();
        let mut looked_at = 0;
        while let Some(id) = folders.get(index).copied() {
            index += 1;
            for (_, child) in self.children(id) {
                looked_at += 1;
                if self.is_folder(child) {
                    folders.push(child);
                } else if self.node(child).is_some_and(|node| node.named_by < layer) {
                    gone.push(child);
                }
            }
        }
        self.hidden += looked_at;
        for id in gone {
            self.remove(id);
        }
        for id in folders.into_iter().skip(1).rev() {
            let is_theirs = self.node(id).is_some_and(|node| node.named_by < layer);
            if is_theirs && self.children(id).next().is_none() {
                self.remove(id);
            }
        }
        self.children(folder).next().is_none()
    }

    fn remove(&mut self, id: u32) {
        if let Some(key) = self.node(id).map(|node| (node.parent, node.name.clone())) {
            self.names.remove(&key);
            self.links.remove(&id);
        }
    }

    /// The node at a path; of a link at its end the link itself where it is not to be followed.
    ///
    /// # Errors
    /// As the kernel answers: nothing there, no folder on the way, links that lead round.
    pub fn find(&self, path: &str, follow: bool) -> io::Result<u32> {
        let mut here = ROOT;
        let mut todo: Vec<&str> = path.rsplit('/').collect();
        let mut links = 0;
        while let Some(part) = todo.pop() {
            if part.is_empty() || part == "." {
                continue;
            }
            if !self.is_folder(here) {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            if part == ".." {
                here = self.node(here).map_or(ROOT, |node| node.parent);
                continue;
            }
            let id = self.child(here, part).ok_or(io::ErrorKind::NotFound)?;
            let is_last = todo.iter().all(|rest| rest.is_empty());
            let link = self.links.get(&id).filter(|_| follow || !is_last);
            let Some(link) = link else {
                here = id;
                continue;
            };
            links += 1;
            if links > MAX_LINKS || todo.len() > 2 * MAX_DEPTH {
                return Err(io::Error::other("too many levels of symbolic links"));
            }
            if link.starts_with('/') {
                here = ROOT;
            }
            todo.extend(link.rsplit('/'));
        }
        Ok(here)
    }

    /// The path of a node.
    pub fn path(&self, id: u32) -> String {
        let mut parts = Vec::new();
        let mut here = id;
        while here != ROOT && parts.len() <= MAX_DEPTH {
            let Some(node) = self.node(here) else {
                break;
            };
            parts.push(node.name.as_ref());
            here = node.parent;
        }
        parts.reverse();
        format!("/{}", parts.join("/"))
    }

    /// Where a link leads, as written.
    pub fn link(&self, id: u32) -> Option<&str> {
        self.links.get(&id).map(AsRef::as_ref)
    }

    /// The names in a folder, sorted.
    pub fn list(&self, id: u32) -> impl Iterator<Item = &str> {
        self.children(id).map(|(name, _)| name)
    }

    /// A regular file's bytes.
    ///
    /// # Errors
    /// Where it is none, or has holes.
    pub fn open(&self, id: u32) -> io::Result<Bytes> {
        let node = self.node(id).ok_or(io::ErrorKind::NotFound)?;
        match node.kind {
            tar::Kind::File => {}
            tar::Kind::Folder => return Err(io::Error::other("is a folder")),
            tar::Kind::Sparse => {
                return Err(io::Error::other("is a sparse file, which is not read"));
            }
            _ => return Err(io::Error::other("is no regular file")),
        }
        let origin = self.sources.get(usize::from(node.layer));
        Ok(Bytes {
            origin: origin.cloned().ok_or(io::ErrorKind::NotFound)?,
            layer: node.layer,
            at: node.at,
            size: node.size,
            kept: self.kept.clone(),
            unread: self.unread.clone(),
        })
    }

    /// Keeps pages of a file that are read again, as long as there is room.
    pub fn keep(&self, layer: u16, at: u64, pages: Pages) {
        if let Ok(mut kept) = self.kept.lock() {
            kept.add((layer, at), pages);
        }
    }
}

/// A folder that no member stands for.
fn implied(parent: u32, name: &str, layer: u16) -> Node {
    Node {
        parent,
        name: Arc::from(name),
        kind: tar::Kind::Folder,
        layer,
        named_by: layer,
        at: 0,
        size: 0,
        mode: 0o755,
        uid: 0,
        gid: 0,
    }
}

/// Why a member is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// This one is left out.
    Member(String),
    /// The whole image is.
    Image(String),
}

/// The parts of a path in a layer. One that leads out of it is refused.
fn parts_of(path: &str) -> Result<Vec<&str>, Refused> {
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        return Err(Refused::Member("leads out of the image".to_owned()));
    }
    if let Some(long) = parts.iter().find(|part| part.len() > MAX_NAME) {
        return Err(Refused::Member(format!(
            "has a name of {} bytes; {MAX_NAME} at most are possible",
            long.len()
        )));
    }
    if parts.len() > MAX_DEPTH {
        return Err(Refused::Member(format!(
            "lies {} folders deep",
            parts.len()
        )));
    }
    Ok(parts)
}

/// The bytes of a file of an image.
#[derive(Clone)]
pub struct Bytes {
    origin: Origin,
    layer: u16,
    at: u64,
    size: u64,
    kept: Arc<Mutex<Kept>>,
    unread: Arc<AtomicBool>,
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {}", self.size, self.at)
    }
}

impl Bytes {
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let source = &self.origin.source;
        if !self.origin.is_dear {
            return source.read_at(self.at.saturating_add(offset), into);
        }
        let file = (self.layer, self.at);
        let poisoned = |_| io::Error::other("a reader before gave up");
        let got = self
            .kept
            .lock()
            .map_err(poisoned)?
            .read(file, offset, into)?;
        if got > 0 {
            return Ok(got);
        }
        log::debug!("goes back to byte {offset} of {self:?}");
        if into.len() > 8 * PAGE {
            return source.read_at(self.at.saturating_add(offset), into);
        }
        // The page around it, so that the next question finds it.
        let number = offset / PAGE as u64;
        let part = Part::new(&**source, self.at..self.at.saturating_add(self.size));
        let mut page = vec![0; PAGE];
        let got = fill(&part, number * PAGE as u64, &mut page)?;
        page.truncate(got);
        let inside = usize::try_from(offset % PAGE as u64).unwrap_or(PAGE);
        let got = page.get(inside..).unwrap_or_default().read_at(0, into);
        let mut kept = self.kept.lock().map_err(poisoned)?;
        kept.add(file, Pages::from([(number, page.into_boxed_slice())]));
        got
    }
}

impl ReadAt for Bytes {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = self.size.saturating_sub(offset);
        let len = usize::try_from(rest).unwrap_or(usize::MAX).min(buf.len());
        let Some(into) = buf.get_mut(..len).filter(|into| !into.is_empty()) else {
            return Ok(0);
        };
        let got = self.read(offset, into);
        if got.is_err() {
            self.unread.store(true, Ordering::Relaxed);
        }
        got
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, kind: tar::Kind, link: &str) -> tar::Member {
        tar::Member {
            name: name.to_owned(),
            kind,
            size: 1,
            at: 0,
            link: link.to_owned(),
            mode: 0o644,
            uid: 0,
            gid: 0,
            device: (0, 0),
        }
    }

    fn file(name: &str) -> tar::Member {
        member(name, tar::Kind::File, "")
    }

    fn tree(layers: &[&[tar::Member]]) -> Tree {
        let mut tree = Tree::new();
        for layer in layers {
            tree.add_layer(Arc::new(Vec::<u8>::new()), false);
            for member in *layer {
                tree.add(member).unwrap();
            }
        }
        tree
    }

    fn names(tree: &Tree, path: &str) -> Vec<String> {
        let id = tree.find(path, true).unwrap();
        tree.list(id).map(str::to_owned).collect()
    }

    #[test]
    fn a_later_layer_takes_away_and_puts_anew() {
        let tree = tree(&[
            &[
                file("a/x"),
                file("a/y"),
                file("b/c/z"),
                file("d"),
                file("e/f"),
            ],
            &[
                file("a/.wh.x"),
                file("b/.wh..wh..opq"),
                file("b/new"),
                file("./d/inside"),
                file(".wh.e"),
            ],
        ]);
        assert_eq!(names(&tree, "/"), ["a", "b", "d"]);
        assert_eq!(names(&tree, "/a"), ["y"]);
        assert_eq!(names(&tree, "/b"), ["new"]);
        assert_eq!(names(&tree, "/d"), ["inside"]);
        assert_eq!(tree.files(), 3);
    }

    #[test]
    fn a_whiteout_spares_what_its_own_layer_brings() {
        // The order within a layer does not matter.
        let tree = tree(&[
            &[file("a/old"), file("a/sub/old")],
            &[file("a/sub/new"), file("a/new"), file("a/.wh..wh..opq")],
        ]);
        assert_eq!(names(&tree, "/a"), ["new", "sub"]);
        assert_eq!(names(&tree, "/a/sub"), ["new"]);
    }

    #[test]
    fn a_whiteout_spares_a_new_name_of_an_old_file() {
        let tree = tree(&[
            &[file("keep/app"), file("d/old")],
            &[
                member("d/new", tar::Kind::HardLink, "keep/app"),
                file("d/.wh..wh..opq"),
            ],
        ]);
        assert_eq!(names(&tree, "/d"), ["new"]);
        assert_eq!(names(&tree, "/keep"), ["app"]);
    }

    #[test]
    fn names_have_a_bound() {
        let mut tree = tree(&[&[file(&"n".repeat(255))]]);
        let long = tree.add(&file(&"n".repeat(256)));
        assert!(matches!(long, Err(Refused::Member(why)) if why.contains("256 bytes")));
        let refused = (0..200_000u32).find_map(|index| {
            let name = format!("{index:0>200}");
            tree.add(&file(&name)).err()
        });
        assert!(matches!(refused, Some(Refused::Image(why)) if why.contains("16 MiB")));
    }

    #[test]
    fn links_stay_inside() {
        let link = |name, to| member(name, tar::Kind::Link, to);
        let tree = tree(&[
            &[
                link("lib", "usr/lib"),
                file("usr/lib/x"),
                link("out", "../../../../etc/passwd"),
                link("abs", "/usr/lib/x"),
            ],
            &[link("r1", "r2"), link("r2", "r1"), link("self", "self/x")],
            // Through the link of a lower layer.
            &[file("lib/y")],
        ]);
        assert_eq!(names(&tree, "/usr/lib"), ["x", "y"]);
        assert_eq!(
            tree.path(tree.find("/lib/../lib/x", true).unwrap()),
            "/usr/lib/x"
        );
        assert_eq!(tree.path(tree.find("/abs", true).unwrap()), "/usr/lib/x");
        assert_eq!(
            tree.find("/out", true).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
        for round in ["/r1", "/self"] {
            assert!(
                tree.find(round, true)
                    .unwrap_err()
                    .to_string()
                    .contains("links")
            );
            assert!(tree.find(round, false).is_ok());
        }
        assert!(tree.find("/usr/lib/x/y", true).is_err());
    }

    #[test]
    fn what_leads_out_is_left_out() {
        let mut tree = tree(&[&[file("a")]]);
        assert!(matches!(tree.add(&file("../b")), Err(Refused::Member(_))));
        assert!(matches!(
            tree.add(&file("c/../../b")),
            Err(Refused::Member(_))
        ));
        let deep = "d/".repeat(MAX_DEPTH + 1);
        assert!(matches!(tree.add(&file(&deep)), Err(Refused::Member(_))));
        let hard = |to| member("h", tar::Kind::HardLink, to);
        assert!(tree.add(&hard("../../etc/passwd")).is_err() && tree.add(&hard("none")).is_err());
        tree.add(&hard("a")).unwrap();
        assert_eq!(names(&tree, "/"), ["a", "h"]);
    }

    #[test]
    fn many_members_are_refused_and_much_hiding_too() {
        let mut tree = tree(&[&[]]);
        let refused = (0..=MAX_MEMBERS).find_map(|n| tree.add(&file(&format!("f/{n}"))).err());
        assert!(matches!(refused, Some(Refused::Image(_))));
        tree.add_layer(Arc::new(Vec::<u8>::new()), false);
        let hide = file(".wh..wh..opq");
        tree.add(&hide).unwrap();
        assert_eq!(tree.files(), 0);
        let again = (0..1000).find_map(|_| tree.add(&hide).err());
        assert!(again.is_none());
    }
}
