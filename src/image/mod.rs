//! A container image, read where it lies: `docker save` (old layout and new), an OCI image layout (folder or archive), the
//! archive of a root filesystem that `docker export` writes; each packed by gzip or zstd, or not.
//!
//! Nothing is unpacked to disk. The layers are gone through once, the lowest first; of each path is kept what it is and
//! where its bytes lie (`tree`), and the caller is shown each file as it comes by, since in a packed layer that is when
//! its bytes are cheap. What comes out is the root of a machine like any other: [`crate::sysroot::Sysroot::of_image`].

mod layout;
mod tree;

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};

pub(crate) use layout::is_layout;
pub use tree::{Bytes, MAX_MEMBERS, Tree};

use self::layout::Blob;
use self::tree::Refused;
use crate::read::gist::{Gist, Sifted};
use crate::read::oci;
use crate::read::pages::{PAGE, Pages};
use crate::read::part::Part;
use crate::read::tar::{self, Members};
use crate::read::unpacked::{Packing, Unpacked};
use crate::read::window::{ReadAt, WINDOW, bytes_up_to, fill};
use crate::sysroot::{Sysroot, file_name};

/// Bytes that can be read from anywhere.
pub type Source = Arc<dyn ReadAt + Send + Sync>;

/// What is said of other archives.
pub const NO_IMAGE: &str = "is a tar archive, but no container image and no root filesystem";

/// Files of a packed layer up to this size are read into memory in one go.
const MAX_WHOLE: u64 = 12 << 20;
/// The most bytes that are held to go back into layers, all together.
const MAX_RESTING: usize = 12 << 20;
/// The largest small text that is kept in memory.
const MAX_TEXT: u64 = 512 << 10;
/// The most pages that are kept of one file that is small enough for memory.
const MAX_PAGES: usize = 256;
/// The most members that are named because they were left out.
const MAX_PROBLEMS: usize = 8;

/// An image.
#[derive(Debug)]
pub struct Image {
    /// What its configuration says.
    pub described: Described,
    /// Its files.
    pub tree: Arc<Tree>,
    /// Layers are not here that may be missing: what is not found may lie in one of them.
    pub is_partial: bool,
    /// What was left out, in words.
    pub problems: Vec<String>,
}

/// What an image says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// `docker-archive`, `oci-archive`, `oci-layout`, `root-filesystem`.
    pub form: String,
    /// A name that it goes by.
    pub name: Option<String>,
    /// Its configuration; a root filesystem has none.
    pub config: Option<oci::Config>,
    /// Its layers, the lowest first.
    pub layers: Vec<Layer>,
    /// For which other processors its index has an image, as `uname -m` writes them.
    pub other_archs: Vec<String>,
}

/// A layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// Its digest, or its path in the archive.
    pub name: String,
    /// `gzip`, `zstd`; `None` where it is not packed.
    pub packing: Option<String>,
    /// Bytes as it lies there.
    pub size: u64,
    /// How many members it has.
    pub members: u64,
    /// Its digest is the one that it should have.
    pub checked: bool,
}

/// A file of a layer as it comes by.
pub struct Passing<'a> {
    /// Its path in the image.
    pub path: &'a str,
    /// Its layer and place: the same file under two names has the same.
    pub identity: (u64, u64),
    /// Its bytes.
    pub file: &'a dyn ReadAt,
    /// The same bytes: what is asked of them is kept, for those who ask again later.
    pub kept: &'a dyn ReadAt,
    /// `layer 3 of 12`.
    pub place: &'a str,
}

/// Is shown the files as they come by; answers whether they are worth being kept for another look.
pub type Show<'a> = dyn FnMut(&Passing<'_>) -> bool + 'a;

/// A part of a file that is shared.
#[derive(Clone)]
pub struct Slice {
    source: Source,
    start: u64,
    len: u64,
}

impl Slice {
    /// The bytes of `range`, or as many of them as there are.
    pub fn new(source: Source, range: Range<u64>) -> Self {
        let end = range.end.min(source.len());
        let start = range.start.min(end);
        Self {
            source,
            start,
            len: end - start,
        }
    }
}

impl ReadAt for Slice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Part::new(&*self.source, self.start..self.start + self.len).read_at(offset, buf)
    }
}

/// A packed file that is shared.
pub struct Packed(Mutex<Unpacked<Slice>>);

impl Packed {
    /// A file that is packed so.
    pub fn new(slice: Slice, packing: Packing) -> Self {
        Self(Mutex::new(Unpacked::going_ahead(slice, packing)))
    }

    fn rest(&self, bytes: usize) {
        if let Ok(unpacked) = self.0.lock() {
            unpacked.rest(bytes);
        }
    }
}

impl ReadAt for Packed {
    fn len(&self) -> u64 {
        self.0.lock().map_or(0, |unpacked| unpacked.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let unpacked = self.0.lock();
        let unpacked = unpacked.map_err(|_| io::Error::other("a reader before gave up"))?;
        unpacked.read_at(offset, buf)
    }
}

/// A file whose digest is computed as it is read forward.
struct Digested {
    source: Source,
    /// The digest so far, and how many bytes it is of.
    so_far: Mutex<(Sha256, u64)>,
}

impl Digested {
    fn new(source: Source) -> Self {
        Self {
            source,
            so_far: Mutex::new((Sha256::new(), 0)),
        }
    }

    /// Whether the digest is this one; what was not read yet is read now.
    fn is(&self, digest: &str) -> Result<bool, String> {
        let mut piece = vec![0; WINDOW];
        loop {
            let done = self.so_far.lock().map_or(u64::MAX, |so_far| so_far.1);
            if done >= self.source.len() {
                break;
            }
            if self.read_at(done, &mut piece).map_err(|e| e.to_string())? == 0 {
                break;
            }
        }
        let so_far = self.so_far.lock().map_err(|e| e.to_string())?;
        Ok(oci::is_digest(so_far.0.clone(), digest))
    }
}

impl ReadAt for Digested {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.source.read_at(offset, buf)?;
        if let Ok(mut so_far) = self.so_far.lock()
            && let Some(known) = so_far.1.checked_sub(offset)
            && let Some(new) = usize::try_from(known)
                .ok()
                .and_then(|known| buf.get(known..got))
        {
            so_far.0.update(new);
            so_far.1 += new.len() as u64;
        }
        Ok(got)
    }
}

/// A layer that is to be read.
struct Opened {
    source: Source,
    packed: Option<Arc<Packed>>,
    /// It is packed, or the archive around it is: looking back is dear.
    is_dear: bool,
    /// How many bytes it may hold when it was gone through.
    resting: usize,
    packing: Option<Packing>,
    digested: Option<Arc<Digested>>,
}

/// Opens a layer. Its digest is checked where it is read from start to end anyway: where it is packed, or where `all` is.
fn opened(blob: Blob, digest: Option<&String>, all: bool, resting: usize) -> Opened {
    let Blob {
        bytes: source,
        is_packed_around,
    } = blob;
    let packing = Packing::of(&*source);
    let is_checked = (packing.is_some() || all) && digest.is_some_and(|d| oci::is_computed(d));
    let digested = is_checked.then(|| Arc::new(Digested::new(source.clone())));
    let source = match &digested {
        Some(digested) => digested.clone(),
        None => source,
    };
    let (source, packed): (Source, _) = match packing {
        None => (source, None),
        Some(packing) => {
            let len = source.len();
            let packed = Arc::new(Packed::new(Slice::new(source, 0..len), packing));
            (packed.clone(), Some(packed))
        }
    };
    Opened {
        is_dear: packing.is_some() || is_packed_around,
        source,
        packed,
        resting,
        packing,
        digested,
    }
}

/// What a layer is packed by that is not unpacked here: no builder of images packs by it.
fn unread_packing(file: &dyn ReadAt) -> Option<&'static str> {
    let start = bytes_up_to(file, 0, 6);
    if start.starts_with(b"\xfd7zXZ\0") {
        Some("xz")
    } else if start.starts_with(b"BZh") {
        Some("bzip2")
    } else {
        None
    }
}

/// Whether there is an image at a path: a folder in the OCI's layout, or a tar archive, packed or not.
pub fn is_image(sysroot: &Sysroot, path: &str) -> bool {
    is_layout(sysroot, path)
        || sysroot.file(path).value().is_some_and(|file| {
            tar::is_tar(file)
                || Packing::of(file).is_some_and(|packing| {
                    let whole = Unpacked::new(file, packing);
                    tar::is_tar(&whole)
                })
        })
}

/// Reads an image, of several in an index the one for this processor: see [`open_for`].
///
/// # Errors
/// In words: what is wrong with it.
pub fn open(
    sysroot: &Sysroot,
    path: &str,
    all: bool,
    show: &mut Show<'_>,
) -> Result<Image, String> {
    open_for(sysroot, path, crate::inspect::ARCH, all, show)
}

/// Reads an image, of several in an index the one for a processor (`x86_64`). `show` is shown its files as they come by. With
/// `all` the digests of layers that are not packed are checked too, which takes reading all of them.
///
/// # Errors
/// In words: what is wrong with it.
pub fn open_for(
    sysroot: &Sysroot,
    path: &str,
    arch: &str,
    all: bool,
    show: &mut Show<'_>,
) -> Result<Image, String> {
    let found = layout::find(sysroot, path, arch)?;
    let mut described = found.described;
    let mut problems = found.problems;
    let mut tree = Tree::new();
    let count = found.layers.len();
    for (index, (blob, digest)) in found.layers.into_iter().enumerate() {
        let packed_by = unread_packing(&*blob.bytes);
        let layer = opened(blob, digest.as_ref(), all, MAX_RESTING / count.max(1));
        let place = format!("layer {} of {count}", index + 1);
        let told = described.layers.get_mut(index);
        let name = told
            .as_ref()
            .map_or(String::new(), |told| told.name.clone());
        let wrong = |why: String| {
            if found.is_root {
                why
            } else {
                format!("{place} ({name}) {why}")
            }
        };
        if let Some(program) = packed_by {
            return Err(wrong(format!(
                "is packed by {program}, which is not read: gzip and zstd are, and what is not packed"
            )));
        }
        let members = read_layer(&mut tree, &layer, &place, show, &mut problems).map_err(wrong)?;
        if let (Some(digested), Some(digest)) = (&layer.digested, &digest)
            && !digested.is(digest).map_err(wrong)?
        {
            return Err(wrong("has another digest".to_owned()));
        }
        if let Some(told) = told {
            told.checked = layer.digested.is_some();
            told.packing = layer.packing.map(|packing| packing.name().to_owned());
            told.members = members;
        }
    }
    if found.is_root && tree.find("/etc", true).is_err() && tree.find("/usr", true).is_err() {
        return Err(NO_IMAGE.to_owned());
    }
    Ok(Image {
        described,
        tree: Arc::new(tree),
        is_partial: found.is_partial,
        problems,
    })
}

/// Goes through a layer; how many members it has.
fn read_layer(
    tree: &mut Tree,
    layer: &Opened,
    place: &str,
    show: &mut Show<'_>,
    problems: &mut Vec<String>,
) -> Result<u64, String> {
    tree.add_layer(layer.source.clone(), layer.is_dear);
    let mut whole = Vec::new();
    let mut count = 0;
    let mut left_out = 0;
    for member in Members::new(&*layer.source) {
        let member = member?;
        count += 1;
        let id = match tree.add(&member) {
            Ok(id) => id,
            Err(Refused::Image(why)) => return Err(why),
            Err(Refused::Member(why)) => {
                left_out += 1;
                if left_out <= MAX_PROBLEMS {
                    let name: String = member.name.chars().take(100).collect();
                    problems.push(format!("{place}: `{}` {why}", name.escape_debug()));
                }
                continue;
            }
        };
        if let Some(id) = id.filter(|_| member.kind == tar::Kind::File && member.size > 0) {
            pass(tree, layer, id, &member, place, &mut whole, show)?;
        }
    }
    if left_out > MAX_PROBLEMS {
        let more = left_out - MAX_PROBLEMS;
        problems.push(format!("{place}: {more} more members were left out"));
    }
    if let Some(packed) = &layer.packed {
        packed.rest(layer.resting);
    }
    Ok(count)
}

/// Shows a file, and keeps of it what is read again. `whole` is room for one that is read into memory.
fn pass(
    tree: &Tree,
    layer: &Opened,
    id: u32,
    member: &tar::Member,
    place: &str,
    whole: &mut Vec<u8>,
    show: &mut Show<'_>,
) -> Result<(), String> {
    let Some(node) = tree.node(id) else {
        return Ok(());
    };
    let end = member.at.saturating_add(member.size);
    let part = Part::new(&*layer.source, member.at..end);
    let path = tree.path(id);
    let identity = (u64::from(node.layer) + 1, member.at);
    let shown = |file: &dyn ReadAt, kept: &dyn ReadAt, show: &mut Show<'_>| {
        show(&Passing {
            path: &path,
            identity,
            file,
            kept,
            place,
        })
    };
    if !layer.is_dear {
        shown(&part, &part, show);
        return Ok(());
    }
    if member.size <= MAX_TEXT && is_read_again(&path) {
        let bytes = read_whole(&part, whole)?;
        let pages = bytes.chunks(PAGE).map(Box::from);
        tree.keep(node.layer, member.at, (0..).zip(pages).collect());
        shown(&bytes, &bytes, show);
        return Ok(());
    }
    let recorded = |file: &dyn ReadAt, show: &mut Show<'_>| {
        let pages = Pages::up_to(file, MAX_PAGES);
        if shown(file, &pages, show) {
            tree.keep(node.layer, member.at, pages.into_kept());
        }
    };
    if !may_be_looked_at(&part) {
        recorded(&part, show);
        return Ok(());
    }
    if member.size <= MAX_WHOLE {
        recorded(&read_whole(&part, whole)?, show);
        return Ok(());
    }
    // What is kept of a large file takes as much.
    *whole = Vec::new();
    if let Some(gist) = Gist::of(&part, file_name(&path)).map_err(|e| e.to_string())? {
        let sifted = Sifted::new(&part, gist);
        if shown(&sifted, &sifted, show) {
            tree.keep(node.layer, member.at, sifted.into_pages());
        }
    } else {
        recorded(&part, show);
    }
    Ok(())
}

/// Whether a file begins like something that is read at many places.
fn may_be_looked_at(file: &dyn ReadAt) -> bool {
    let mut start = [0; 4];
    fill(file, 0, &mut start).is_ok() && (start == *b"\x7fELF" || start == *b"!<ar")
}

/// Reads all of a file that is small enough for memory, into room that is used again: a library of megabytes for each
/// file would leave holes behind.
fn read_whole<'w>(file: &dyn ReadAt, room: &'w mut Vec<u8>) -> Result<&'w [u8], String> {
    let size = usize::try_from(file.len()).unwrap_or(0);
    if room.len() < size {
        room.resize(size, 0);
    }
    let into = room.get_mut(..size).unwrap_or_default();
    let got = fill(file, 0, into).map_err(|e| e.to_string())?;
    Ok(into.get(..got).unwrap_or_default())
}

/// Small texts that say what is installed and where libraries are searched for.
fn is_read_again(path: &str) -> bool {
    let name = file_name(path);
    path.contains(".dist-info/")
        || path.starts_with("/etc/ld.so")
        || matches!(
            name,
            "os-release" | "version.json" | "version.txt" | "pyvenv.cfg" | "version.py"
        )
}
