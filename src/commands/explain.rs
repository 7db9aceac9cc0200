//! `gpudoctor explain X`: an error line, a code, a name, a log, the id of a finding, or a word, to what it means.
//!
//! What X is, is told by trying in this order: a word or an id with a page, an existing file, a code or name, then text.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::Path;

use super::{look, overlay, print, terminal};
use crate::cli::{ExplainArgs, ExplainFormat};
use crate::diagnosis::{self, diagnose};
use crate::error::Error;
use crate::explain::concepts::{CONCEPTS, concept};
use crate::explain::{self, Asked, Explanation, Here, Scan};
use crate::facts::Layer;
use crate::matrix::Matrix;
use crate::report::{escape, explanation};
use crate::rules::{self, Rule};

/// Ids that are offered in place of one that is not known.
const CLOSE: usize = 8;

/// What somebody who only typed `explain` is told.
const USAGE: &str = "\
gpudoctor explain WHAT, where WHAT is
  a code                   804, xid 79, nvml 18, CUDA_ERROR_NO_DEVICE
  an error line            \"CUDA driver version is insufficient for ...\"
  a log                    training.log, or - to read one from a pipe
  a finding of the check   driver-too-old
  a word                   layers, driver, ptx, forward-compatibility
--here says which of the causes it is on this machine; --list lists all.
";

pub(super) fn run(args: &ExplainArgs) -> Result<u8, Error> {
    if args.list {
        print(&list())?;
        return Ok(0);
    }
    let question = args.what.join(" ");
    let question = question.trim();
    if question.is_empty() || question == "-" {
        if question.is_empty() && io::stdin().is_terminal() {
            print(USAGE)?;
            return Ok(2);
        }
        let scan = read(io::stdin().lock(), Path::new("-"))?;
        return tell_scan(args, "-", &scan);
    }
    if let Some(page) = page(question) {
        print(&page)?;
        return Ok(0);
    }
    let path = Path::new(question);
    if path.is_file() {
        let file = File::open(path).map_err(|e| Error::file("read", path, e))?;
        let scan = read(file, path)?;
        return tell_scan(args, question, &scan);
    }
    if path.is_dir() {
        return Err(Error::file("read", path, "it is a folder"));
    }
    match explain::ask(question) {
        Asked::Entries(entries) => {
            let matches = entries
                .into_iter()
                .filter_map(|(entry, code)| explain::of_entry(entry, code))
                .collect();
            tell(args, Explanation { matches }, &Matrix::bundled(), true)
        }
        Asked::UnknownCode => nothing(args, question, ""),
        Asked::Text => {
            let scan = read(question.as_bytes(), Path::new("-"))?;
            if scan.groups.is_empty() && looks_like_a_path(question) {
                return Err(Error::file("read", path, "no such file"));
            }
            if scan.groups.is_empty() {
                return nothing(args, question, "");
            }
            let matrix = Matrix::bundled();
            let mut found = explain::of_scan(&scan, &matrix);
            // A line that was typed is its own first line.
            for one in found.matches.iter_mut().filter(|_| scan.lines <= 1) {
                (one.line, one.line_end) = (None, None);
            }
            tell(args, found, &matrix, false)
        }
    }
}

/// Reads a log.
pub(super) fn read(input: impl Read, path: &Path) -> Result<Scan, Error> {
    explain::scan(input).map_err(|e| Error::file("read", path, e))
}

/// A log in the named file, or standard input for `-`.
pub(super) fn read_log(path: &Path) -> Result<Scan, Error> {
    if path.as_os_str() == "-" {
        return read(io::stdin().lock(), path);
    }
    let file = File::open(path).map_err(|e| Error::file("read", path, e))?;
    read(file, path)
}

/// One word that ends like a log, or has folders.
fn looks_like_a_path(question: &str) -> bool {
    let ends = [".log", ".txt", ".out", ".err"]
        .iter()
        .any(|end| question.ends_with(end));
    !question.contains(char::is_whitespace) && (ends || question.contains('/'))
}

/// The page of a finding or of a word.
fn page(question: &str) -> Option<String> {
    if let Some(rule) = rules::by_id(question) {
        return Some(format!(
            "{}\n\nlayer at fault: {}    worst severity: {}\n",
            rule.page.trim_end(),
            layers(rule),
            rule.severity.id()
        ));
    }
    concept(question).map(|concept| concept.page.to_owned())
}

fn tell_scan(args: &ExplainArgs, what: &str, scan: &Scan) -> Result<u8, Error> {
    if scan.groups.is_empty() {
        return nothing(args, what, &format!(" ({} lines)", scan.lines));
    }
    let matrix = Matrix::bundled();
    tell(args, explain::of_scan(scan, &matrix), &matrix, false)
}

/// Writes an explanation; `readings`: its matches are ways to read one code.
fn tell(
    args: &ExplainArgs,
    mut found: Explanation,
    matrix: &Matrix,
    readings: bool,
) -> Result<u8, Error> {
    if args.here {
        let matrix = overlay::matrix(None, !args.look.no_redact)?;
        let facts = look(&args.look)?;
        let diagnosis = diagnose(&facts, &matrix, &diagnosis::Options::default());
        explain::judge(&mut found, &Here::new(&facts, &matrix, false, &diagnosis));
    }
    let _ = matrix;
    let text = match args.format {
        ExplainFormat::Json => explanation::json(&found).map_err(|e| Error::Output(e.into()))?,
        ExplainFormat::Markdown => explanation::markdown_text(&found, args.here),
        ExplainFormat::Text => explanation::text(
            &found,
            explanation::Options {
                width: terminal::width(),
                color: terminal::color(args.color),
                verbose: args.verbose,
                here: args.here,
                wrap_answer: terminal::is_terminal(),
                readings,
            },
        ),
    };
    print(&text)?;
    Ok(0)
}

/// Says that nothing is known, and what to paste where somebody can help.
fn nothing(args: &ExplainArgs, what: &str, size: &str) -> Result<u8, Error> {
    if args.format == ExplainFormat::Json {
        let text =
            explanation::json(&Explanation::default()).map_err(|e| Error::Output(e.into()))?;
        print(&text)?;
        return Ok(1);
    }
    let shown: String = what.chars().take(200).collect();
    let mut text = format!(
        "nothing is known about `{}`{size}\n",
        escape::terminal(&shown)
    );
    let words: Vec<String> = what
        .split(['-', ' ', '_'])
        .filter(|word| word.len() >= 3)
        .map(str::to_lowercase)
        .collect();
    let likeness = |id: &str| {
        words
            .iter()
            .filter(|word| id.contains(word.as_str()))
            .count()
    };
    let mut close: Vec<&str> = rules::all()
        .map(|rule| rule.id)
        .chain(CONCEPTS.iter().map(|concept| concept.name))
        .filter(|id| likeness(id) > 0)
        .collect();
    close.sort_by_key(|id| std::cmp::Reverse(likeness(id)));
    close.truncate(CLOSE);
    if !close.is_empty() && what.split_whitespace().count() <= 3 {
        let _ = writeln!(text, "close to it: {}", close.join(", "));
    }
    text.push_str(
        "\nto ask for help, paste the first error of the log with ten lines before it, and
  gpudoctor --format markdown
`gpudoctor` alone checks this machine; `gpudoctor explain --list` lists what is known\n",
    );
    print(&text)?;
    Ok(1)
}

/// Findings whose layer is that of the part that is meant, and which layers that can be beside the rule's own.
const OTHER_LAYERS: &[(&str, &[Layer])] = &[
    ("distribution-files-missing", &[Layer::Framework]),
    ("library-damaged", &[Layer::Runtime, Layer::Framework]),
    ("library-lacks-symbol", &[Layer::Runtime]),
    ("library-missing", &[Layer::Runtime, Layer::Framework]),
    (
        "library-not-found",
        &[
            Layer::System,
            Layer::Runtime,
            Layer::Framework,
            Layer::Application,
        ],
    ),
    ("requirement-absent", &[Layer::Runtime, Layer::Framework]),
    ("requirement-not-met", &[Layer::Framework]),
    (
        "symbol-version-missing",
        &[
            Layer::System,
            Layer::Runtime,
            Layer::Framework,
            Layer::Application,
        ],
    ),
];

/// The layers that a finding of a rule can have.
fn layers(rule: &Rule) -> String {
    let others = OTHER_LAYERS.iter().find(|(id, _)| *id == rule.id);
    let others = others.map_or(&[][..], |(_, layers)| layers);
    let mut all: Vec<Layer> = others.iter().copied().chain([rule.layer]).collect();
    all.sort_unstable();
    let all: Vec<&str> = all.into_iter().map(Layer::id).collect();
    match all.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => rule.layer.to_string(),
    }
}

/// One line an id: layer, severity, id, the page's first sentence; then the words, and how many errors there are.
fn list() -> String {
    let mut text = String::new();
    let mut all: Vec<_> = rules::all()
        .map(|rule| (rule.layer, rule.severity, rule.id, rule.page))
        .collect();
    all.sort_by_key(|(layer, _, id, _)| (*layer, *id));
    for (layer, severity, id, page) in all {
        let title = page
            .lines()
            .find(|line| !line.is_empty() && !line.starts_with('#'))
            .unwrap_or_default();
        let _ = writeln!(text, "{layer:<12} {:<8} {id:<36} {title}", severity.id());
    }
    let names: Vec<&str> = CONCEPTS.iter().map(|concept| concept.name).collect();
    let _ = writeln!(text, "\nwords: {}", names.join(", "));
    let _ = writeln!(
        text,
        "and {} errors of the stack, by code, name or text: gpudoctor explain 804",
        crate::catalogue::all().count()
    );
    text
}
