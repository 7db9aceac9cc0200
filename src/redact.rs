//! redact: to be written.
