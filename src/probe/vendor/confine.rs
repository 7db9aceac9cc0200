//! Confines the child before any vendor code runs in it, so that the host stays as it was.
//!
//! Measured on the real libraries of 470, 535 and 550: `cuInit` and `nvmlInit` as root create, re-mode and re-own nodes in
//! /dev and start nvidia-modprobe; as an ordinary user, or with /dev read-only, they answer the same and change nothing.
//! Where root cannot have a read-only /dev, the answer is that calls with side effects must not be made; nothing here
//! makes do with less. Nor with more: with all files read-only libcuda 550 answers 304 where it should answer 100, since it
//! names its threads by writing to `/proc/self/task/*/comm` and takes a refusal for a failure (measured).

#![expect(
    clippy::disallowed_methods,
    reason = "lists the live /dev of the process that is being confined"
)]

use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::thread::{
    CapabilitySet, capabilities, capability_is_in_bounding_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use crate::error::plain_io;
use crate::facts::Confinement;
use crate::ffi;

/// What lets a process change nodes, load modules and undo a read-only mount. `CAP_SYS_ADMIN` goes last: the mounts need it.
const GIVEN_UP: [CapabilitySet; 3] = [
    CapabilitySet::MKNOD,
    CapabilitySet::SYS_MODULE,
    CapabilitySet::SYS_ADMIN,
];

/// Confines this process, for good. What was had, and why calls with side effects must not be made, if they must not.
pub(super) fn confine() -> (Confinement, Option<String>) {
    let root = rustix::process::geteuid().is_root();
    let mut had = Confinement::default();
    let mut lacking = Vec::new();
    match set_no_new_privs(true) {
        Ok(()) => had.no_new_privs = true,
        Err(e) => lacking.push(format!("no_new_privs: {e}")),
    }
    if root {
        match read_only_dev() {
            Ok(()) => {
                had.read_only_dev = true;
                private_shared_memory();
            }
            // An ordinary user cannot change nodes that root owns: in a container without CAP_SYS_ADMIN that is the way.
            Err(why) => match become_nobody() {
                Ok(()) => had.as_nobody = true,
                Err(e) => lacking.push(format!("{why}; becoming an ordinary user: {e}")),
            },
        }
    }
    let root = rustix::process::geteuid().is_root();
    match give_up_capabilities(root) {
        Ok(()) => had.dropped_capabilities = true,
        Err(e) => lacking.push(format!("giving up capabilities: {e}")),
    }
    let lacking: Vec<String> = lacking.iter().map(|why| plain_io(why)).collect();
    let withheld = (!lacking.is_empty())
        .then(|| format!("the child could not be confined: {}", lacking.join("; ")));
    (had, withheld)
}

/// Root gives up what is listed above, and keeps the rest: whether root may open a node is part of the question. Anybody
/// else who holds capabilities gives up all of them.
fn give_up_capabilities(root: bool) -> Result<(), Errno> {
    let mut kept = capabilities(None)?;
    let mut given_up = CapabilitySet::empty();
    for capability in GIVEN_UP {
        given_up |= capability;
        if root && capability_is_in_bounding_set(capability)? {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    if !root {
        given_up = CapabilitySet::all();
    }
    kept.effective -= given_up;
    kept.permitted -= given_up;
    kept.inheritable -= given_up;
    set_capabilities(None, kept)
}

/// The overflow user and group of Linux, which own nothing.
const NOBODY: u32 = 65534;

/// Becomes an ordinary user without groups, for good. The child has one thread, so that the thread's ids are the process's.
fn become_nobody() -> Result<(), Errno> {
    use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    if rustix::process::geteuid().is_root() {
        Err(Errno::PERM)
    } else {
        Ok(())
    }
}

/// Makes /dev and everything mounted below it read-only, in a mount namespace of its own.
fn read_only_dev() -> Result<(), String> {
    ffi::own_mount_namespace().map_err(|e| format!("a mount namespace of its own: {e}"))?;
    // From here on nothing may be mounted before it is certain that no mount spreads to the host. In a chroot "/" need not
    // be a mount, but /dev usually is.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private)
        .or_else(|_| mount_change("/dev", private))
        .map_err(|e| format!("making /dev private: {e}"))?;
    // With what is mounted below: in a container each node may be a mount of its own.
    mount_bind_recursive("/dev", "/dev").map_err(|e| format!("mounting /dev onto itself: {e}"))?;
    if ffi::read_only_with_all_below(c"/dev").is_err() {
        remount_one_by_one()?;
    }
    if !is_read_only(Path::new("/dev")) {
        return Err("/dev did not become read-only".to_owned());
    }
    Ok(())
}

/// Kernels before 5.12 cannot make a whole tree read-only: /dev, then each node or folder of nodes that is still writable.
fn remount_one_by_one() -> Result<(), String> {
    for path in std::iter::once(PathBuf::from("/dev")).chain(nodes_that_vendors_touch()) {
        if is_read_only(&path) {
            continue;
        }
        let flags = MountFlags::BIND | MountFlags::RDONLY | kept_flags(&path);
        mount_remount(&path, flags, "")
            .map_err(|e| format!("making {} read-only: {e}", path.display()))?;
        if !is_read_only(&path) {
            return Err(format!("{} did not become read-only", path.display()));
        }
    }
    Ok(())
}

/// What NVIDIA's libraries create or re-mode in /dev, as far as it is there.
fn nodes_that_vendors_touch() -> Vec<PathBuf> {
    let listed = |folder: &str| {
        std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
    };
    let is_nvidia = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"nvidia"))
    };
    let mut found: Vec<PathBuf> = listed("/dev").filter(is_nvidia).collect();
    for folder in [
        "/dev/nvidia-caps",
        "/dev/nvidia-caps-imex-channels",
        "/dev/dri",
    ] {
        found.extend(listed(folder));
    }
    found.extend(
        ["/dev/char", "/dev/dri"]
            .map(PathBuf::from)
            .into_iter()
            .filter(|path| path.exists()),
    );
    found
}

/// A remount sets all flags of a mount anew: these must stay as they are, nodev above all, since it decides what `open()`
/// of a node answers.
fn kept_flags(path: &Path) -> MountFlags {
    let Ok(now) = rustix::fs::statvfs(path) else {
        return MountFlags::empty();
    };
    [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ]
    .into_iter()
    .filter(|(has, _)| now.f_flag.contains(*has))
    .fold(MountFlags::empty(), |flags, (_, keep)| flags | keep)
}

fn is_read_only(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|s| s.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Shared memory that is gone with the child: a library that wants some gets it, and leaves nothing behind. Nor does it find
/// anything there: libcuda 550 looks for `cuda_injection_path_shm`, by which any user could name a library for root to load
/// (seen by strace). Where it is refused, /dev/shm is read-only like the rest of /dev.
fn private_shared_memory() {
    let is_folder = std::fs::symlink_metadata("/dev/shm").is_ok_and(|m| m.is_dir());
    if is_folder
        && let Err(e) = mount(
            "gpudoctor",
            "/dev/shm",
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV,
            c"mode=1777,size=64m",
        )
    {
        log::debug!("/dev/shm stays read-only: {e}");
    }
}
