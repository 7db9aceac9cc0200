//! Whether a GPU is expected here: the table of the design.

use super::Ctx;

/// Whether a GPU is expected, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// Its absence is an error.
    Yes(String),
    /// Its absence is a warning.
    Likely(String),
    /// Its absence is healthy.
    No,
}

/// The table.
pub fn gpu_expected(_ctx: &Ctx<'_>) -> Expectation {
    Expectation::No
}
