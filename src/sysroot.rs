//! sysroot: to be written.
