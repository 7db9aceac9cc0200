//! report
pub mod escape;
