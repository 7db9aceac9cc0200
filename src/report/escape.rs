//! Strings from the host are hostile: here they are made harmless for each place that a report is shown in.
//!
//! Each function takes any string and gives one that shows the same letters in its place and does nothing else there.
//! What cannot be seen is shown as an escape (`\n`, `\x1b`, `\u{202e}`). Nothing is hidden and nothing is judged;
//! secrets are taken out before, by `redact`. Quoting for a shell is `finding::shell_quote`.

use std::borrow::Cow;

/// For a terminal: control characters, and what reorders or hides text, are shown.
pub fn terminal(text: &str) -> Cow<'_, str> {
    replace_chars(text, shown)
}

/// Like [`terminal`], and every character that is not ASCII is shown as `\u{..}`.
pub fn ascii(text: &str) -> Cow<'_, str> {
    replace_chars(text, |c| {
        if c.is_ascii() {
            shown(c)
        } else {
            Some(escape(c))
        }
    })
}

/// For running text and table cells in Markdown as code forges render it (GFM, references, emoji).
///
/// A backslash stops Markdown but not what forges do with the finished text: mentions, `#123` and bare links are
/// broken by an empty comment, which shows nothing.
pub fn markdown(text: &str) -> String {
    let text = terminal(text);
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut before = None;
    for (at, c) in text.char_indices() {
        let after = text.get(at + c.len_utf8()..).unwrap_or_default();
        let next = after.chars().next();
        let in_word =
            before.is_some_and(char::is_alphanumeric) && next.is_some_and(char::is_alphanumeric);
        let named = next.is_some_and(|n| n.is_alphanumeric() || n == '_');
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // An entity, since a backslash before a bar means two things in a table.
            '|' => out.push_str("&#124;"),
            '$' => out.push_str("&#36;"),
            ' ' if before.is_none() || next.is_none() => out.push_str("&#32;"),
            '_' if in_word => out.push('_'),
            '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '^' | '#' => {
                out.push('\\');
                out.push(c);
            }
            // What makes a list, a heading or a rule at the beginning of a line.
            '-' | '+' | '=' | ':' if before.is_none() => {
                out.push('\\');
                out.push(c);
            }
            '.' | ')' if opens_list(&out) => {
                out.push('\\');
                out.push(c);
            }
            '.' if ends_with_word(&out, "www") => {
                out.push_str(BREAK);
                out.push(c);
            }
            c => out.push(c),
        }
        let reference = match c {
            '@' => next.is_some_and(|n| !n.is_whitespace()),
            '#' | '!' => named,
            ':' => after.starts_with("//") || begins_emoji(after),
            '-' => ends_with_word(&out, "gh-") && next.is_some_and(|n| n.is_ascii_digit()),
            _ => false,
        };
        if reference {
            out.push_str(BREAK);
        }
        before = Some(c);
    }
    out
}

/// An inline code span in Markdown, whatever backticks the text holds; safe in a table as well.
pub fn markdown_code(text: &str) -> String {
    let shown = terminal(text);
    if shown.is_empty() || shown.contains('|') {
        // A bar ends a table's cell even within backticks, and escaping it there shows outside of tables.
        return format!("<code>{}</code>", markdown(&shown));
    }
    let longest = shown.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // One space on both sides is taken off again by the renderer.
    let padded = shown.starts_with(['`', ' ']) || shown.ends_with(['`', ' ']);
    if padded && !shown.trim_matches(' ').is_empty() {
        format!("{fence} {shown} {fence}")
    } else {
        format!("{fence}{shown}{fence}")
    }
}

/// For text and quoted attributes in HTML.
pub fn html(text: &str) -> Cow<'_, str> {
    replace_chars(text, |c| match c {
        '\'' => Some(Cow::Borrowed("&#39;")),
        c => markup(c).or_else(|| shown(c)),
    })
}

/// For the message of a workflow command (`::error file=a::MESSAGE`). Line breaks are kept, encoded.
pub fn github_annotation_message(text: &str) -> Cow<'_, str> {
    replace_chars(text, annotation)
}

/// For a property of a workflow command (`::error title=PROPERTY::message`).
pub fn github_annotation_property(text: &str) -> Cow<'_, str> {
    replace_chars(text, |c| match c {
        ':' => Some(Cow::Borrowed("%3A")),
        ',' => Some(Cow::Borrowed("%2C")),
        c => annotation(c),
    })
}

/// For one ordinary line in the log of a workflow: what the runner would take for a command of its own is shown.
///
/// A command is a line that begins with `::` after blanks, or has `##[` anywhere.
pub fn github_log_line(text: &str) -> Cow<'_, str> {
    let mut line = terminal(text);
    let indent = line.len() - line.trim_start().len();
    if let Some((blanks, command)) = line.split_at_checked(indent)
        && let Some(rest) = command.strip_prefix("::")
    {
        line = Cow::Owned(format!("{blanks}\\x3a:{rest}"));
    }
    if line.contains("##[") {
        Cow::Owned(line.replace("##[", "#\\x23["))
    } else {
        line
    }
}

/// For text between tags in XML 1.0. Tab and line feed are kept; characters that XML has no way to write are shown.
pub fn xml_text(text: &str) -> Cow<'_, str> {
    replace_chars(text, |c| {
        if matches!(c, '\n' | '\t') {
            None
        } else {
            xml(c)
        }
    })
}

/// For a quoted attribute in XML 1.0. Tab and line feed are written as references, since a parser makes them spaces.
pub fn xml_attribute(text: &str) -> Cow<'_, str> {
    replace_chars(text, |c| match c {
        '\n' => Some(Cow::Borrowed("&#10;")),
        '\t' => Some(Cow::Borrowed("&#9;")),
        c => xml(c),
    })
}

/// What breaks a reference without showing.
const BREAK: &str = "<!-- -->";

/// The longest emoji name that is looked for; the longest that forges know has fewer letters.
const LONGEST_EMOJI: usize = 48;

fn annotation(c: char) -> Option<Cow<'static, str>> {
    match c {
        '%' => Some(Cow::Borrowed("%25")),
        '\r' => Some(Cow::Borrowed("%0D")),
        '\n' => Some(Cow::Borrowed("%0A")),
        c => shown(c),
    }
}

fn xml(c: char) -> Option<Cow<'static, str>> {
    match c {
        '\'' => Some(Cow::Borrowed("&apos;")),
        '\u{fffe}' | '\u{ffff}' => Some(escape(c)),
        c => markup(c).or_else(|| shown(c)),
    }
}

/// The entity of a character that has one in HTML and in XML.
fn markup(c: char) -> Option<Cow<'static, str>> {
    let entity = match c {
        '&' => "&amp;",
        '<' => "&lt;",
        '>' => "&gt;",
        '"' => "&quot;",
        _ => return None,
    };
    Some(Cow::Borrowed(entity))
}

/// Whether `:name:` follows, as an emoji: at least one letter, or one of the numbers that have a picture.
fn begins_emoji(after: &str) -> bool {
    let is_name = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '+' | '-');
    let name: String = after
        .chars()
        .take(LONGEST_EMOJI)
        .take_while(is_name)
        .collect();
    let closed = after
        .get(name.len()..)
        .is_some_and(|rest| rest.starts_with(':'));
    closed
        && (name.contains(|c: char| !c.is_ascii_digit()) && !is_number(&name)
            || matches!(name.as_str(), "100" | "1234"))
}

/// Part of a PCI address: `0b`.
fn is_number(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether the line so far is a number that a dot or a bracket would make a list of.
fn opens_list(line: &str) -> bool {
    !line.is_empty() && line.len() <= 9 && line.bytes().all(|b| b.is_ascii_digit())
}

/// Whether the line so far ends with this word (in lower case), and not within a longer one.
fn ends_with_word(line: &str, word: &str) -> bool {
    line.len()
        .checked_sub(word.len())
        .and_then(|start| line.split_at_checked(start))
        .is_some_and(|(rest, end)| {
            end.eq_ignore_ascii_case(word) && !rest.ends_with(char::is_alphanumeric)
        })
}

/// Whether a character cannot be seen or changes how others are: control characters, line and paragraph separators,
/// marks and overrides of direction, joiners, fillers, tags, variation selectors.
fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// What stands for a character that cannot be seen; `None` where it can.
fn shown(c: char) -> Option<Cow<'static, str>> {
    is_unseen(c).then(|| escape(c))
}

/// A character in ASCII: `\n`, `\x1b`, `\u{202e}`.
fn escape(c: char) -> Cow<'static, str> {
    match c {
        '\n' => Cow::Borrowed("\\n"),
        '\r' => Cow::Borrowed("\\r"),
        '\t' => Cow::Borrowed("\\t"),
        c if c.is_ascii() => Cow::Owned(format!("\\x{:02x}", u32::from(c))),
        c => Cow::Owned(format!("\\u{{{:x}}}", u32::from(c))),
    }
}

/// Copies a text with other text in place of the characters for which `instead` has some.
fn replace_chars(text: &str, instead: impl Fn(char) -> Option<Cow<'static, str>>) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    for (at, c) in text.char_indices() {
        if let Some(with) = instead(c) {
            out.push_str(text.get(copied..at).unwrap_or_default());
            out.push_str(&with);
            copied = at + c.len_utf8();
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check<R: AsRef<str>>(escape: impl Fn(&'static str) -> R, cases: &[(&'static str, &str)]) {
        for (text, expected) in cases {
            assert_eq!(escape(text).as_ref(), *expected, "{text:?}");
        }
    }

    #[test]
    fn a_terminal_gets_nothing_to_act_on() {
        check(
            terminal,
            &[
                ("NVIDIA RTX 4090, Größe 日本", "NVIDIA RTX 4090, Größe 日本"),
                ("a\n\u{1b}[2J\r\tb\0\u{7f}", "a\\n\\x1b[2J\\r\\tb\\x00\\x7f"),
                ("\u{9b}31m", "\\u{9b}31m"),
                (
                    "a\u{202e}b\u{2066}c\u{200b}\u{feff}",
                    "a\\u{202e}b\\u{2066}c\\u{200b}\\u{feff}",
                ),
                ("\u{e0041}\u{2028}", "\\u{e0041}\\u{2028}"),
                ("", ""),
            ],
        );
        check(
            ascii,
            &[
                ("Größe\u{1b}", "Gr\\u{f6}\\u{df}e\\x1b"),
                ("plain", "plain"),
            ],
        );
    }

    #[test]
    fn markdown_has_no_effect() {
        check(
            markdown,
            &[
                (
                    "nvidia_uvm 0000:01:00.0 12.4 (x)",
                    "nvidia_uvm 0000:01:00.0 12.4 (x)",
                ),
                ("PCI:0000:0b:00: x", "PCI:0000:0b:00: x"),
                (
                    "__init__ *b* `c` ~d~",
                    "\\_\\_init\\_\\_ \\*b\\* \\`c\\` \\~d\\~",
                ),
                ("[x](y) ![z](u)", "\\[x\\](y) !\\[z\\](u)"),
                ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
                ("a|b \\|", "a&#124;b \\\\&#124;"),
                ("@user a@b.c @ x", "@<!-- -->user a@<!-- -->b.c @ x"),
                (
                    "#123 o/r#1 # GH-7 high-7",
                    "\\#<!-- -->123 o/r\\#<!-- -->1 \\# GH-<!-- -->7 high-7",
                ),
                ("https://x www.y", "https:<!-- -->//x www<!-- -->.y"),
                (":smile: :100: a::b", "\\:<!-- -->smile: :<!-- -->100: a::b"),
                ("1. a", "1\\. a"),
                ("- a - b", "\\- a - b"),
                ("# a\n# b", "\\# a\\\\n\\# b"),
                ("    code ", "&#32;   code&#32;"),
                ("$x$", "&#36;x&#36;"),
            ],
        );
        check(
            markdown_code,
            &[
                ("nvidia-smi", "`nvidia-smi`"),
                ("a`b", "``a`b``"),
                ("``", "``` `` ```"),
                (" a", "`  a `"),
                ("  ", "`  `"),
                ("a|`@b", "<code>a&#124;\\`@<!-- -->b</code>"),
                ("a\nb", "`a\\nb`"),
                ("", "<code></code>"),
            ],
        );
    }

    #[test]
    fn html_xml_and_workflow_commands_have_no_effect() {
        check(
            html,
            &[
                ("<a href=\"'&\u{1b}", "&lt;a href=&quot;&#39;&amp;\\x1b"),
                ("a", "a"),
            ],
        );
        check(
            xml_text,
            &[(
                "a\n\t<]]>\u{1}\r\u{ffff}",
                "a\n\t&lt;]]&gt;\\x01\\r\\u{ffff}",
            )],
        );
        check(
            xml_attribute,
            &[("a\n\t'\"\0", "a&#10;&#9;&apos;&quot;\\x00")],
        );
        check(
            github_annotation_message,
            &[("100%\r\na: b, c\u{1b}", "100%25%0D%0Aa: b, c\\x1b")],
        );
        check(
            github_annotation_property,
            &[("a: b, c%\n::x", "a%3A b%2C c%25%0A%3A%3Ax")],
        );
        check(
            github_log_line,
            &[
                ("::error::x", "\\x3a:error::x"),
                ("  ::stop-commands::x", "  \\x3a:stop-commands::x"),
                ("a ##[group]b", "a #\\x23[group]b"),
                ("a\n::error::x", "a\\n::error::x"),
                ("std::fs: 1", "std::fs: 1"),
            ],
        );
    }

    fn is_xml(c: char) -> bool {
        matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
    }

    proptest! {
        #[test]
        fn whatever_the_text(text in proptest::collection::vec(any::<char>(), 0..40)) {
            let text: String = text.into_iter().collect();
            for shown in [terminal(&text), ascii(&text), html(&text)] {
                prop_assert!(!shown.contains(char::is_control), "{:?}", shown);
                prop_assert!(!shown.contains(is_unseen), "{:?}", shown);
            }
            prop_assert!(ascii(&text).is_ascii());
            let once = terminal(&text);
            prop_assert_eq!(terminal(&once), once.clone());
            for shown in [github_annotation_message(&text), github_annotation_property(&text)] {
                prop_assert!(!shown.contains(char::is_control), "{:?}", shown);
            }
            prop_assert!(!github_annotation_property(&text).contains([':', ',']));
            prop_assert!(!github_log_line(&text).trim_start().starts_with("::"));
            for shown in [xml_text(&text), xml_attribute(&text)] {
                prop_assert!(shown.chars().all(is_xml), "{:?}", shown);
                prop_assert!(!shown.contains(['<', '>', '"', '\'']));
            }
            prop_assert!(!html(&text).contains(['<', '>', '"', '\'']));
        }

        #[test]
        fn whatever_the_markdown(text in "[-a1 @#:/.`|<>&!_*\\[\\]()~$\\\\\n]{0,30}") {
            let shown = markdown(&text).replace(BREAK, "");
            prop_assert!(!shown.contains(['<', '>', '|', '\n', '$']), "{}", shown);
            let code = markdown_code(&text);
            prop_assert!(!code.contains(['|', '\n']), "{}", code);
            if let Some(inner) = code.strip_prefix('`') {
                let fence = inner.len() - inner.trim_start_matches('`').len() + 1;
                let runs = code.split(|c| c != '`').filter(|run| run.len() == fence).count();
                prop_assert_eq!(runs, 2, "{}", code);
            }
        }
    }
}
