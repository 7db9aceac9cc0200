//! The unsafe room: foreign functions behind safe signatures. All `unsafe` of the program is here and in the files below.
//!
//! It decides nothing. Vendor libraries are called from the confined child that asks them (`probe::vendor`), never from
//! the process that reads the machine and writes the report; that one calls `interrupt` and `memory`.

#![allow(unsafe_code)]

pub mod dl;
pub mod interrupt;
pub mod memory;
pub mod nvml;

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::io;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// `struct mount_attr` of <linux/mount.h>, first version (kernel 5.12).
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

/// `__NR_mount_setattr`: the same number on every architecture, as for all calls added since 5.1.
const MOUNT_SETATTR: c_long = 442;
/// `AT_FDCWD` of <linux/fcntl.h>.
const AT_FDCWD: c_int = -100;
/// `AT_RECURSIVE` of <linux/fcntl.h>.
const AT_RECURSIVE: c_uint = 0x8000;
/// `MOUNT_ATTR_RDONLY` of <linux/mount.h>.
const MOUNT_ATTR_RDONLY: u64 = 1;
/// `_IONBF` of <stdio.h>, in glibc and musl.
const UNBUFFERED: c_int = 2;

/// `SIG_DFL` of <signal.h>.
const DEFAULT_ACTION: usize = 0;
/// SIGSEGV and SIGBUS of <signal.h>: the same two numbers on x86-64, aarch64 and ppc64.
const FAULTS: [c_int; 2] = [11, 7];

// <stdio.h>, <unistd.h>, <signal.h>; a handler is a pointer, passed as a number of that size.
unsafe extern "C" {
    #[link_name = "stdout"]
    static STDOUT: *mut c_void;
    fn setvbuf(stream: *mut c_void, buffer: *mut c_char, mode: c_int, size: usize) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn signal(number: c_int, handler: usize) -> usize;
    safe fn _exit(code: c_int) -> !;
    safe fn alarm(seconds: c_uint) -> c_uint;
}

/// Ends the process at once: neither exit handlers nor destructors of a vendor library run, which may hang.
pub fn exit_now(code: i32) -> ! {
    _exit(code)
}

/// Lets SIGALRM end this process after so many seconds, should the parent be gone by then.
pub fn end_after(seconds: u32) {
    alarm(seconds);
}

/// Makes C's stdout unbuffered, so that what a library prints is seen even if it crashes in the next instruction.
pub fn unbuffer_stdout() {
    // SAFETY: `stdout` is initialised by the C library before main; setvbuf with a null buffer and _IONBF keeps no
    // memory of ours. Nothing has been written to the stream yet, as setvbuf demands.
    unsafe { setvbuf(STDOUT, std::ptr::null_mut(), UNBUFFERED, 0) };
}

/// Lets a fault end the process, as it would end the consumer. Rust's handler for stack overflows would let a library go on
/// that raises the signal by itself.
pub fn faults_are_fatal() {
    for number in FAULTS {
        // SAFETY: restoring the default action replaces a handler by none; the other handlers stay.
        unsafe { signal(number, DEFAULT_ACTION) };
    }
}

/// Gives this process (which must not have started threads) a mount namespace of its own.
pub fn own_mount_namespace() -> rustix::io::Result<()> {
    // SAFETY: unshare is unsafe because of CLONE_FILES, which would part the descriptor tables of threads; CLONE_NEWNS
    // does not touch descriptors.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }
}

/// Makes the mount at `path` and all mounts below it read-only, keeping their other flags. Needs kernel 5.12.
pub fn read_only_with_all_below(path: &CStr) -> io::Result<()> {
    let attr = MountAttr {
        attr_set: MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: mount_setattr(int, const char *, unsigned, struct mount_attr *, size_t) reads a C string and a structure
    // of the size given, both of which live through the call; it writes nothing.
    let result = unsafe {
        syscall(
            MOUNT_SETATTR,
            AT_FDCWD,
            path.as_ptr(),
            AT_RECURSIVE,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
