//! Matrix

/// The compatibility knowledge.
pub struct Matrix;
