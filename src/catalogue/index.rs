//! The index that `build.rs` made of `compat-matrix/errors`.
#![allow(clippy::all, clippy::pedantic, reason = "generated")]

use super::Slot;
use super::search::Literal;

include!(concat!(env!("OUT_DIR"), "/catalogue.rs"));
