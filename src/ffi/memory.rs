//! What the C library's allocator does with memory that is free again.

#[cfg(target_env = "gnu")]
use std::ffi::c_int;

/// From this size on, in bytes, a block comes from the kernel and goes back to it.
#[cfg(target_env = "gnu")]
const LARGE: c_int = 1 << 20;
/// `M_MMAP_THRESHOLD` of <malloc.h>.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD: c_int = -3;

// <malloc.h>, of glibc alone.
#[cfg(target_env = "gnu")]
unsafe extern "C" {
    safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
}

/// Lets large blocks go back to the kernel as soon as they are free.
///
/// glibc does so by itself only until the first of them is freed: then it takes blocks of that size, up to 32 MiB, from
/// between the small ones, where they leave holes (`mallopt(3)`, "dynamic mmap threshold"). A container image that is read
/// in 85 MB took 120 MB by that. Other C libraries have no such habit.
pub fn give_back_large_blocks() {
    #[cfg(target_env = "gnu")]
    mallopt(MMAP_THRESHOLD, LARGE);
}
