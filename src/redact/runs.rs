//! The scanner's hands: find stretches of text and put other text in their place, in one pass from left to right.
//! Knows nothing of what is secret.

use std::borrow::Cow;

/// A text that is being copied with some stretches replaced.
pub(super) struct Splice<'a> {
    text: &'a str,
    out: String,
    /// How far `out` stands for `text`, in bytes.
    copied: usize,
    touched: bool,
}

impl<'a> Splice<'a> {
    /// Nothing replaced yet.
    pub(super) fn new(text: &'a str) -> Self {
        Self {
            text,
            out: String::new(),
            copied: 0,
            touched: false,
        }
    }

    /// Replaces the bytes from `start` to `end`; stretches come in ascending order, one that overlaps its
    /// predecessor is ignored.
    pub(super) fn put(&mut self, start: usize, end: usize, with: &str) {
        if start < self.copied || end < start {
            return;
        }
        if let Some(kept) = self.text.get(self.copied..start) {
            self.out.push_str(kept);
            self.out.push_str(with);
            self.copied = end;
            self.touched = true;
        }
    }

    /// The new text.
    pub(super) fn finish(mut self) -> Cow<'a, str> {
        if !self.touched {
            return Cow::Borrowed(self.text);
        }
        self.out
            .push_str(self.text.get(self.copied..).unwrap_or_default());
        Cow::Owned(self.out)
    }
}

/// A longest stretch of characters of one class, and what stands around it.
pub(super) struct Run<'a> {
    /// All that comes before.
    pub(super) before: &'a str,
    /// The stretch.
    pub(super) text: &'a str,
    /// All that comes after.
    pub(super) after: &'a str,
}

/// Every longest stretch of characters that `member` accepts, with the byte where it begins.
pub(super) fn runs(
    text: &str,
    member: impl Fn(char) -> bool,
) -> impl Iterator<Item = (usize, Run<'_>)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text.get(from..)?.find(&member)?;
        let rest = text.get(start..)?;
        let length = rest.find(|c| !member(c)).unwrap_or(rest.len());
        from = start + length;
        let run = Run {
            before: text.get(..start)?,
            text: text.get(start..from)?,
            after: text.get(from..)?,
        };
        Some((start, run))
    })
}

/// Replaces stretches: `replace` is shown each one and answers with what is to stand there instead.
pub(super) fn replace_runs<'a>(
    text: &'a str,
    member: impl Fn(char) -> bool,
    mut replace: impl FnMut(&Run<'a>) -> Option<String>,
) -> Cow<'a, str> {
    let mut splice = Splice::new(text);
    for (start, run) in runs(text, member) {
        if let Some(with) = replace(&run) {
            splice.put(start, start + run.text.len(), &with);
        }
    }
    splice.finish()
}

/// The part of `text` at its end that `member` accepts throughout.
pub(super) fn trailing(text: &str, member: impl Fn(char) -> bool) -> &str {
    let kept = text.trim_end_matches(member).len();
    text.get(kept..).unwrap_or_default()
}

/// The part of `text` at its beginning that `member` accepts throughout.
pub(super) fn leading(text: &str, member: impl Fn(char) -> bool) -> &str {
    let end = text.find(|c| !member(c)).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// `text` without the punctuation that ends a sentence, and that punctuation.
pub(super) fn split_tail<'a>(text: &'a str, punctuation: &[char]) -> (&'a str, &'a str) {
    let kept = text.trim_end_matches(punctuation).len();
    text.split_at_checked(kept).unwrap_or((text, ""))
}

/// Whether `text` is one or more hexadecimal digits.
pub(super) fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_found_and_replaced() {
        let up = |run: &Run| (run.text != "keep").then(|| run.text.to_uppercase());
        assert_eq!(
            replace_runs("a keep, bc é", |c| c.is_ascii_lowercase(), up),
            "A keep, BC é"
        );
        assert!(matches!(
            replace_runs("keep", |c| c.is_ascii_lowercase(), up),
            Cow::Borrowed("keep")
        ));
        assert_eq!(trailing("é/ab", |c| c.is_ascii_lowercase()), "ab");
        assert_eq!(leading("ab/é", |c| c.is_ascii_lowercase()), "ab");
    }

    #[test]
    fn overlapping_replacements_are_ignored() {
        let mut splice = Splice::new("abcdef");
        splice.put(0, 4, "x");
        splice.put(2, 5, "y");
        splice.put(5, 6, "z");
        assert_eq!(splice.finish(), "xez");
    }
}
