//! What all reports for people are written with: paragraphs of a width, and colour where it is wanted.

use std::fmt::Write as _;

use owo_colors::{OwoColorize as _, Style};

use super::escape::terminal;

/// A piece of a line in a style, where there is colour.
pub(super) fn painted(color: bool, text: &str, style: Style) -> String {
    if color {
        text.style(style).to_string()
    } else {
        text.to_owned()
    }
}

/// The lines of a paragraph, without their indents, made harmless for a terminal.
pub(super) fn wrap(text: &str, width: usize, first: &str, rest: &str) -> Vec<String> {
    let text = terminal(text);
    let options = textwrap::Options::new(width)
        .initial_indent(first)
        .subsequent_indent(rest)
        .word_separator(textwrap::WordSeparator::Custom(words))
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::wrap(&text, options)
        .iter()
        .enumerate()
        .map(|(index, line)| {
            let indent = if index == 0 { first } else { rest };
            line.strip_prefix(indent)
                .unwrap_or(line)
                .trim_end()
                .to_owned()
        })
        .collect()
}

/// Where a line may be broken: at spaces, and between the folders of a search path.
fn words(line: &str) -> Box<dyn Iterator<Item = textwrap::core::Word<'_>> + '_> {
    let mut rest = line;
    Box::new(std::iter::from_fn(move || {
        let (word, after) = rest.split_at_checked(word_end(rest)).unwrap_or((rest, ""));
        rest = after;
        (!word.is_empty()).then(|| textwrap::core::Word::from(word))
    }))
}

/// The end of the first word with the spaces after it.
fn word_end(text: &str) -> usize {
    let mut before = None;
    for (at, c) in text.char_indices() {
        let after_space = before == Some(' ') && c != ' ';
        let next_folder = before == Some(':')
            && matches!(c, '/' | '~')
            && !text.get(at..).is_some_and(|t| t.starts_with("//"));
        if after_space || next_folder {
            return at;
        }
        before = Some(c);
    }
    text.len()
}

/// A paragraph at most `width` columns wide: the first line after `first`, the others after `rest`. What the text holds
/// is shown, never acted on.
pub(super) fn wrapped(width: usize, first: &str, rest: &str, text: &str) -> String {
    let mut out = String::new();
    for (index, line) in wrap(text, width, first, rest).iter().enumerate() {
        let indent = if index == 0 { first } else { rest };
        let _ = writeln!(out, "{}", format!("{indent}{line}").trim_end());
    }
    out
}
