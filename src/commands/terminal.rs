//! What the caller's terminal is like, and talking to it: colour, width, and words on standard error.

#![expect(
    clippy::disallowed_methods,
    reason = "the terminal's width and the wish for colour are in the environment"
)]

use std::io::{IsTerminal as _, Write as _};

use crate::cli::Color;
use crate::report::escape;

/// Columns of a report that goes to no terminal.
const WIDTH: usize = 80;
/// Columns of a table that goes to no terminal.
const TABLE_WIDTH: usize = 100;
/// Lines longer than this are hard to read on any terminal.
const WIDEST: usize = 110;

/// Says something on standard error: progress and notices, never data.
pub(super) fn say(text: &str) {
    // If even standard error is gone there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "gpudoctor: {}", escape::terminal(text));
}

/// Shows one line of progress in place of the one before, on a terminal's standard error; an empty one clears it.
pub(super) fn progress(text: &str) {
    let width = rustix::termios::tcgetwinsize(std::io::stderr())
        .map_or(WIDTH, |size| usize::from(size.ws_col));
    let text = escape::terminal(text);
    let line: String = text.chars().take(width.saturating_sub(1)).collect();
    let _ = write!(std::io::stderr(), "\r\u{1b}[2K{line}");
}

/// Whether standard output gets colour: on a terminal that can show it, unless `NO_COLOR` is set.
pub(super) fn color(when: Color) -> bool {
    match when {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
            let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
            !refused && !dumb && is_terminal()
        }
    }
}

/// Whether standard output is a terminal.
pub(super) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// The width of a table: what the terminal has, else enough that nothing in it need be cut.
pub(super) fn table_width() -> usize {
    if std::io::stdout().is_terminal() {
        width()
    } else {
        TABLE_WIDTH
    }
}

/// The width to wrap at.
pub(super) fn width() -> usize {
    if is_terminal() {
        rustix::termios::tcgetwinsize(std::io::stdout())
            .map_or(WIDTH, |size| usize::from(size.ws_col))
            .clamp(40, WIDEST)
    } else {
        WIDTH
    }
}
