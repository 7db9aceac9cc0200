//! The program on NVIDIA's real libraries and on the machine that the tests run on: which driver a runtime accepts, a
//! machine without a GPU, stand-ins that misbehave, and that nothing of the host is changed.
//!
//! The only tests that look at the live machine. They take pip, apt and a C compiler; what a machine lacks is said
//! (`NOT RUN`), and under CI it is a failure.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it lays out folders and starts programs; what is not as described has to stop the test"
)]

mod amd;
mod application;
mod grid;
mod headers;
mod icd;
mod identity;
mod lab;
mod libraries;
mod no_gpu;
#[path = "../parts/mod.rs"]
mod parts;
mod ptx;
mod start;
mod stubs;
mod toolchain;
mod unchanged;
#[path = "../inspect/parts.rs"]
#[expect(dead_code, reason = "the large wheels are for the tests of `inspect`")]
mod wheels;
