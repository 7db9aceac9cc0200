//! probes

pub mod vendor;
