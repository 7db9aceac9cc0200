//! diagnosis: to be written.
