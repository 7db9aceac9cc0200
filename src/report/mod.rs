//! Renders a diagnosis. It decides nothing: what stands in a report was found by a rule or read by a probe.
//!
//! Strings from the host are hostile, and each format shows what its reader would act on (see [`escape`]).

pub mod ci;
pub mod escape;
pub mod gpus;
pub mod inspection;
pub mod json;
pub mod markdown;
pub mod matrix;
pub mod plan;
pub mod preflight;
pub mod text;

use crate::diagnosis::Diagnosis;
use crate::facts::Facts;
use crate::matrix::Matrix;

/// What every format is given.
#[derive(Clone, Copy)]
pub struct Report<'a> {
    /// The snapshot.
    pub facts: &'a Facts,
    /// The knowledge that it was held against.
    pub matrix: &'a Matrix,
    /// What came of it.
    pub diagnosis: &'a Diagnosis,
}
