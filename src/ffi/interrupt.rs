//! SIGINT and SIGTERM as something that can be asked for and waited for, so that what runs on and on ends cleanly.
//!
//! What is done then is for the caller to say. Other signals keep their meaning.

use std::ffi::{c_int, c_void};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};

/// SIGINT and SIGTERM of <signal.h>, the same two numbers on every architecture of Linux.
const ENDINGS: [c_int; 2] = [2, 15];
/// `SIG_IGN` of <signal.h>.
const IGNORE: usize = 1;

static CAME: AtomicBool = AtomicBool::new(false);
static WAKE: AtomicI32 = AtomicI32::new(-1);

// <signal.h>, <unistd.h>; a handler is a pointer, passed as a number of that size.
unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
    fn write(file: c_int, bytes: *const c_void, count: usize) -> isize;
}

extern "C" fn note(_number: c_int) {
    CAME.store(true, Ordering::SeqCst);
    let wake = WAKE.load(Ordering::SeqCst);
    // SAFETY: write is allowed in a handler. The descriptor is that of a pipe which is never closed; it does not block, and
    // a full pipe wakes as well.
    unsafe { write(wake, [0_u8].as_ptr().cast(), 1) };
}

/// From now on these signals no longer end the process. The end of a pipe that can be read from when one came.
pub fn watch() -> std::io::Result<OwnedFd> {
    let (wait, wake) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    WAKE.store(wake.into_raw_fd(), Ordering::SeqCst);
    let handler: extern "C" fn(c_int) = note;
    for number in ENDINGS {
        // SAFETY: the handler is a function of the type that signal wants, and calls only what is allowed in one.
        unsafe { signal(number, handler as usize) };
    }
    Ok(wait)
}

/// Whether one of them came.
pub fn came() -> bool {
    CAME.load(Ordering::SeqCst)
}

/// Leaves these signals to the parent: a child that is asked again and again ends when its parent lets go of it.
pub fn leave_to_parent() {
    for number in ENDINGS {
        // SAFETY: ignoring a signal replaces a handler by none.
        unsafe { signal(number, IGNORE) };
    }
}
