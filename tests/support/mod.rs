//! Described hosts for the tests: read from `fixtures/hosts`, laid out under a temporary folder, with what the vendor
//! libraries of such a host would answer.
//!
//! Nothing in here runs a compiler, needs root, or looks at the machine that the tests run on. It is test code: what
//! is wrong in a fixture ends in a panic that names the file.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test program compiles this module and takes what it needs"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it writes trees under a temporary folder, and a fixture that is wrong has to stop the test"
)]

pub mod answers;
pub mod diagnosed;
pub mod elf;
pub mod host;
pub mod layout;
pub mod library;
pub mod loader;
pub mod python;
pub mod tree;
