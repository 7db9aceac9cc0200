//! `gpudoctor explain X`: an error line, a code, a name, a log, the id of a finding, or a word, to what it means.
//!
//! What X is, is told by trying in this order: a word or an id with a page, an existing file, a code or name, then text,
//! and last a code in a text that nobody knows. Several arguments are one text, unless each is a thing of its own.

use std::fs::{self, File, FileType};
use std::io::{self, IsTerminal as _, Read};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use super::{look, overlay, print, redactor, terminal};
use crate::catalogue;
use crate::cli::{ExplainArgs, ExplainFormat};
use crate::diagnosis::{self, diagnose};
use crate::error::Error;
use crate::explain::concepts::{CONCEPTS, concept};
use crate::explain::{self, Asked, Explanation, Here, Scan};
use crate::facts::Layer;
use crate::matrix::Matrix;
use crate::report::explanation::{self, Answer, Listed, Listing, NoError, Nothing, Page, PageKind};
use crate::rules::{self, Rule};

/// Ids that are offered in place of one that is not known.
const CLOSE: usize = 8;
/// Letters of a question that are repeated where nothing is known about it.
const REPEATED: usize = 200;

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
        let list = list();
        let text = match args.format {
            ExplainFormat::Json => {
                explanation::list_json(&list).map_err(|e| Error::Output(e.into()))?
            }
            ExplainFormat::Markdown => explanation::list_markdown(&list),
            ExplainFormat::Text => explanation::list_text(&list),
        };
        print(&text)?;
        return Ok(0);
    }
    let things = things(&args.what);
    if things.iter().all(String::is_empty) && io::stdin().is_terminal() {
        print(USAGE)?;
        return Ok(2);
    }
    let matrix = Matrix::bundled();
    let mut answers = Vec::new();
    for thing in &things {
        let mut answer = answer(thing, &matrix)?;
        if let Answer::Found { found, .. } = &mut answer
            && things.len() > 1
        {
            for one in &mut found.matches {
                one.asked = Some(cut(thing));
            }
        }
        answers.push(answer);
    }
    tell(args, answers)
}

/// The things that the arguments ask for: one in many words, or each a thing of its own.
fn things(words: &[String]) -> Vec<String> {
    let whole = words.join(" ").trim().to_owned();
    let is_one = |text: &str| {
        page(text).is_some()
            || Path::new(text).exists()
            || !matches!(explain::ask(text), Asked::Text)
    };
    if words.len() < 2 || is_one(&whole) {
        return vec![whole];
    }
    // `xid 13 31 79`
    if let Some((domain, numbers)) = words.split_first()
        && numbers.iter().all(|word| word.parse::<i32>().is_ok())
        && domain.parse::<i32>().is_err()
    {
        let each: Vec<String> = numbers.iter().map(|n| format!("{domain} {n}")).collect();
        if each.iter().all(|text| is_one(text)) {
            return each;
        }
    }
    // Words in quotes are meant to belong together.
    let is_own = |word: &String| {
        word == "-" || word.contains(char::is_whitespace) || looks_like_a_path(word) || is_one(word)
    };
    if words.iter().all(is_own) {
        return words.iter().map(|word| word.trim().to_owned()).collect();
    }
    vec![whole]
}

/// What is known about one thing.
fn answer(question: &str, matrix: &Matrix) -> Result<Answer, Error> {
    if question.is_empty() || question == "-" {
        let scan = read(io::stdin().lock(), Path::new("-"))?;
        return Ok(of_log("standard input", &scan, matrix));
    }
    if let Some(page) = page(question) {
        return Ok(Answer::Page(page));
    }
    let path = Path::new(question);
    if let Some(file) = open(path)? {
        return Ok(of_log(question, &read(file, path)?, matrix));
    }
    let asked = match explain::ask(question) {
        Asked::Text => {
            let scan = read(question.as_bytes(), Path::new("-"))?;
            if !scan.groups.is_empty() {
                let mut found = explain::of_scan(&scan, matrix);
                // A line that was typed is its own first line.
                for one in found.matches.iter_mut().filter(|_| scan.lines <= 1) {
                    (one.line, one.line_end) = (None, None);
                }
                return Ok(Answer::Found {
                    found,
                    readings: false,
                });
            }
            if looks_like_a_path(question) {
                return Err(Error::file("read", path, "no such file"));
            }
            explain::code_in(question)
        }
        asked => asked,
    };
    Ok(match asked {
        Asked::Entries(entries) => Answer::Found {
            found: Explanation {
                matches: entries
                    .into_iter()
                    .filter_map(|(entry, code)| explain::of_entry(entry, code))
                    .collect(),
            },
            readings: true,
        },
        Asked::Success(rows) => {
            let rows: Vec<String> = rows
                .iter()
                .map(|row| format!("{} ({})", row.api, row.names.join(", ")))
                .collect();
            Answer::NoError(NoError {
                asked: cut(question),
                text: format!("0 says that a call went well in {}", rows.join(", ")),
            })
        }
        Asked::UnknownCode(number) => nothing(
            question,
            format!(
                "nothing is known about `{}`: {number} is no known code of it{}",
                cut(question),
                errno(number)
            ),
        ),
        Asked::ExitStatus(number) => nothing(question, exit_status(&cut(question), number)),
        Asked::Text => match explain::nearest(question) {
            Some(found) => Answer::Found {
                found: Explanation {
                    matches: vec![found],
                },
                readings: false,
            },
            None => nothing(
                question,
                format!("nothing is known about `{}`", cut(question)),
            ),
        },
    })
}

/// What a negative number is where Linux gives it.
fn errno(number: i32) -> String {
    let known = io::Error::from_raw_os_error(number.saturating_neg()).to_string();
    let words = crate::error::plain_io(&known);
    if (-133..0).contains(&number) && !words.starts_with("Unknown error") {
        format!("; from Linux it would be: {words}")
    } else {
        String::new()
    }
}

/// What the exit status of a program says: that it failed, or by which signal it ended.
fn exit_status(question: &str, number: i32) -> String {
    let ended = match number {
        129..=192 => format!("ended by signal {}", number - 128),
        _ => "its own last lines say what for".to_owned(),
    };
    let of_kernel = if number == 137 {
        ", as the kernel does where memory runs out"
    } else {
        ""
    };
    format!(
        "no code of the GPU stack: `{question}` is the exit status of a program, {ended}{of_kernel}"
    )
}

fn cut(question: &str) -> String {
    question.chars().take(REPEATED).collect()
}

/// Opens a file of that name; `None` where there is none.
fn open(path: &Path) -> Result<Option<File>, Error> {
    let failed = |e: io::Error| Error::file("read", path, e);
    let kind = match fs::metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(e) if looks_like_a_path(&path.to_string_lossy()) => {
            let missing = e.kind() == io::ErrorKind::NotFound;
            return if missing { Ok(None) } else { Err(failed(e)) };
        }
        Err(_) => return Ok(None),
    };
    if let Some(why) = unreadable(kind, path) {
        return Err(Error::file("read", path, why));
    }
    File::open(path).map(Some).map_err(failed)
}

/// Why what has that name is no log: opening a device can wake hardware up or wait for ever.
fn unreadable(kind: FileType, path: &Path) -> Option<&'static str> {
    let stream = ["/dev/null", "/dev/stdin", "/dev/tty"]
        .iter()
        .any(|name| path == Path::new(name))
        || path.starts_with("/dev/fd")
        || path.starts_with("/proc/self/fd");
    if kind.is_dir() {
        Some("it is a folder")
    } else if kind.is_socket() {
        Some("it is a socket")
    } else if kind.is_block_device() || kind.is_char_device() && !stream {
        Some("it is a device")
    } else {
        None
    }
}

/// Reads a log.
fn read(input: impl Read, path: &Path) -> Result<Scan, Error> {
    explain::scan(input).map_err(|e| Error::file("read", path, e))
}

/// A log in the named file, or standard input for `-`.
pub(super) fn read_log(path: &Path) -> Result<Scan, Error> {
    if path.as_os_str() == "-" {
        return read(io::stdin().lock(), path);
    }
    let file = open(path)?.ok_or_else(|| Error::file("read", path, "no such file"))?;
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
fn page(question: &str) -> Option<Page> {
    if let Some(rule) = rules::by_id(question) {
        return Some(Page {
            id: rule.id.to_owned(),
            kind: PageKind::Finding,
            layers: layers(rule),
            severity: Some(rule.severity),
            text: rule.page.to_owned(),
        });
    }
    concept(question).map(|concept| Page {
        id: concept.name.to_owned(),
        kind: PageKind::Concept,
        layers: Vec::new(),
        severity: None,
        text: concept.page.to_owned(),
    })
}

/// What a log says.
fn of_log(name: &str, scan: &Scan, matrix: &Matrix) -> Answer {
    let name = cut(name);
    if scan.bytes == 0 {
        return nothing(&name, format!("{name} is empty"));
    }
    if scan.groups.is_empty() {
        let lines = scan.lines;
        return nothing(
            &name,
            format!("no known error in {name}: {lines} lines read"),
        );
    }
    Answer::Found {
        found: explain::of_scan(scan, matrix),
        readings: false,
    }
}

/// Writes the answers.
fn tell(args: &ExplainArgs, mut answers: Vec<Answer>) -> Result<u8, Error> {
    if args.here
        && answers
            .iter()
            .any(|answer| matches!(answer, Answer::Found { .. }))
    {
        let matrix = overlay::matrix(None, !args.look.no_redact)?;
        let facts = look(&args.look)?;
        let diagnosis = diagnose(&facts, &matrix, &diagnosis::Options::default());
        let here = Here::new(&facts, &matrix, false, &diagnosis);
        for answer in &mut answers {
            if let Answer::Found { found, .. } = answer {
                explain::judge(found, &here);
            }
        }
    }
    redact(args, &mut answers);
    let text = match args.format {
        ExplainFormat::Json => explanation::json(&answers).map_err(|e| Error::Output(e.into()))?,
        ExplainFormat::Markdown => explanation::markdown_text(&answers, args.here),
        ExplainFormat::Text => explanation::text(
            &answers,
            explanation::Options {
                width: terminal::width(),
                color: terminal::color(args.color),
                verbose: args.verbose,
                here: args.here,
                wrap_answer: terminal::is_terminal(),
            },
        ),
    };
    print(&text)?;
    Ok(u8::from(explanation::nothing_known(&answers)))
}

/// Takes secrets out of what comes from the log or the question. What the catalogue and the check say has none.
fn redact(args: &ExplainArgs, answers: &mut [Answer]) {
    let foreign = answers.iter_mut().flat_map(Answer::foreign_text);
    let mut foreign = foreign.peekable();
    // A bare code has nothing to redact, and is answered without a look at the machine.
    if foreign.peek().is_none() {
        return;
    }
    let Some(mut redactor) = redactor(&args.look) else {
        return;
    };
    for text in foreign {
        *text = redactor.text(text).into_owned();
    }
}

/// Says that nothing is known, and what is called alike.
fn nothing(what: &str, text: String) -> Answer {
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
    if what.split_whitespace().count() > 3 {
        close.clear();
    }
    Answer::Nothing(Nothing {
        asked: cut(what),
        text,
        close: close.into_iter().map(str::to_owned).collect(),
    })
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
fn layers(rule: &Rule) -> Vec<Layer> {
    let others = OTHER_LAYERS.iter().find(|(id, _)| *id == rule.id);
    let others = others.map_or(&[][..], |(_, layers)| layers);
    let mut all: Vec<Layer> = others.iter().copied().chain([rule.layer]).collect();
    all.sort_unstable();
    all
}

/// Everything that can be asked for: findings by layer, words, errors.
fn list() -> Listing {
    let mut findings: Vec<Listed> = rules::all()
        .map(|rule| Listed {
            id: rule.id.to_owned(),
            layer: rule.layer,
            severity: rule.severity,
            title: rule
                .page
                .lines()
                .find(|line| !line.is_empty() && !line.starts_with('#'))
                .unwrap_or_default()
                .to_owned(),
        })
        .collect();
    findings.sort_by(|a, b| (a.layer, &a.id).cmp(&(b.layer, &b.id)));
    Listing {
        findings,
        concepts: CONCEPTS
            .iter()
            .map(|concept| concept.name.to_owned())
            .collect(),
        errors: catalogue::all()
            .map(|entry| entry.id().to_owned())
            .collect(),
    }
}
