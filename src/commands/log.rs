//! The log for those who look for why something was not seen: standard error, off unless `GPUDOCTOR_LOG` names a level
//! (`debug`, `info`, `warn`, `error`). No report depends on it.

#![expect(clippy::disallowed_methods, reason = "the level is in the environment")]

use std::io::Write as _;

use log::{LevelFilter, Log, Metadata, Record};

struct Stderr;

impl Log for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("gpudoctor")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = crate::report::escape::terminal(&record.args().to_string()).into_owned();
            let _ = writeln!(
                std::io::stderr(),
                "{:>5} {}: {line}",
                record.level(),
                record.target()
            );
        }
    }

    fn flush(&self) {}
}

/// Starts logging where it is asked for.
pub fn start() {
    let level = std::env::var("GPUDOCTOR_LOG")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(LevelFilter::Off);
    if level != LevelFilter::Off && log::set_logger(&Stderr).is_ok() {
        log::set_max_level(level);
    }
}
