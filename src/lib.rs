//! gpudoctor walks the layers between a program and the GPU and names the one at fault.
//!
//! This library serves the `gpudoctor` binary, its tests, fuzz targets and benchmarks; it is not a public API.

pub mod ask;
pub mod cli;
pub mod commands;
pub mod diagnosis;
pub mod error;
pub mod facts;
pub mod ffi;
pub mod finding;
pub mod matrix;
pub mod probe;
pub mod read;
pub mod redact;
pub mod report;
pub mod rules;
pub mod sysroot;
pub mod target;
pub mod version;
