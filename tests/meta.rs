//! The promises that the code makes about itself, each as a test: who may touch what, and that rules, pages, fixtures and
//! tables go together. `src/lib.rs` names these tests; nothing here looks at what a rule decides.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it reads the sources of this crate, and what is not as promised has to stop the test"
)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use gpudoctor::finding::Severity;
use gpudoctor::matrix::{Matrix, lint};
use gpudoctor::rules::{self, Rule};
use support::host;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a folder, as paths from the crate's root, sorted.
fn files_below(folder: &str) -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                // What a build of the fuzz targets or benchmarks leaves there is not ours.
                if !path.ends_with("target") {
                    walk(&path, found);
                }
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    let mut paths: Vec<String> = found
        .iter()
        .map(|p| p.strip_prefix(root()).unwrap().to_str().unwrap().to_owned())
        .collect();
    paths.sort();
    paths
}

/// The lines of a source file that are neither comment nor test, with their numbers.
fn code(path: &str) -> Vec<(usize, String)> {
    let text = fs::read_to_string(root().join(path)).unwrap();
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.contains("#[cfg(test)]"))
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .map(|(at, line)| (at + 1, line.to_owned()))
        .collect()
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|e| e == "rs")
}

/// Source files, those of unit tests left out.
fn sources() -> Vec<String> {
    let mut all = files_below("src");
    all.retain(|p| is_rust(p) && !p.contains("/tests/") && !p.ends_with("/tests.rs"));
    assert!(all.len() > 50, "{all:?}");
    all
}

/// Fails where one of `words` stands in code outside `rooms`; a room is a file or a folder.
fn only_in(rooms: &[&str], words: &[&str]) {
    let may = |path: &str| rooms.iter().any(|room| path.starts_with(room));
    let mut strays = Vec::new();
    for path in sources().iter().filter(|path| !may(path)) {
        for (at, line) in code(path) {
            if words.iter().any(|word| line.contains(word)) {
                strays.push(format!("{path}:{at}: {}", line.trim()));
            }
        }
    }
    assert!(
        strays.is_empty(),
        "{words:?} may stand in {rooms:?} only:\n{}",
        strays.join("\n")
    );
}

/// Fails where one of `words` stands in the code of a room.
fn never_in(rooms: &[&str], words: &[&str]) {
    let mut strays = Vec::new();
    let mut seen = 0;
    for path in sources() {
        if !rooms.iter().any(|room| path.starts_with(room)) {
            continue;
        }
        seen += 1;
        for (at, line) in code(&path) {
            if words.iter().any(|word| line.contains(word)) {
                strays.push(format!("{path}:{at}: {}", line.trim()));
            }
        }
    }
    assert!(seen > 0, "no file in {rooms:?}");
    assert!(strays.is_empty(), "{words:?}:\n{}", strays.join("\n"));
}

#[test]
fn what_judges_and_renders_touches_nothing() {
    never_in(
        &[
            "src/rules/",
            "src/diagnosis/",
            "src/report/",
            "src/matrix/",
            "src/facts/",
            "src/redact/",
            "src/catalogue/index.rs",
            "src/catalogue/lint.rs",
            "src/catalogue/mod.rs",
            "src/catalogue/prefix.rs",
            "src/catalogue/rows.rs",
            "src/catalogue/search.rs",
            "src/explain/",
            "src/read/",
            "src/preflight/config.rs",
            "src/preflight/init.rs",
            "src/preflight/judge.rs",
            "src/preflight/manifest/",
            "src/preflight/pins.rs",
            "src/preflight/plan.rs",
            "src/finding.rs",
            "src/requirement.rs",
            "src/version.rs",
        ],
        &[
            "std::fs",
            "fs::",
            "std::env::",
            "std::process",
            "TcpStream",
            "UdpSocket",
            "std::os",
            "std::time",
            "SystemTime",
            "Instant::",
            "Timestamp::now",
            "libloading",
            "crate::sysroot::Sysroot",
            "crate::probe",
            "crate::commands",
            "crate::ffi",
        ],
    );
}

#[test]
fn only_the_sysroot_opens_the_files_of_a_machine() {
    only_in(
        &[
            "src/sysroot.rs",
            "src/commands/",
            "src/probe/vendor/",
            "src/ffi/",
            // Runs when gpudoctor is built, and is no part of it.
            "src/catalogue/build.rs",
        ],
        &[
            "std::fs",
            "fs::read",
            "File::open",
            "File::create",
            "OpenOptions",
        ],
    );
}

#[test]
fn only_commands_read_the_callers_world() {
    only_in(
        &[
            "src/commands/",
            "src/main.rs",
            "src/probe/vendor/",
            "src/catalogue/build.rs",
        ],
        &[
            "env::var",
            "env::args",
            "current_dir",
            "geteuid(",
            "Timestamp::now",
            "SystemTime",
        ],
    );
}

#[test]
fn only_the_vendor_probe_starts_a_process_and_nobody_connects() {
    only_in(
        &["src/probe/vendor/live.rs"],
        &["process::Command", "Command::new("],
    );
    never_in(&["src/"], &["TcpStream", "TcpListener", "UdpSocket"]);
    // A pair that the parent and its child share; nobody connects to anything.
    only_in(&["src/probe/vendor/"], &["UnixStream"]);
}

#[test]
fn only_ffi_is_unsafe() {
    only_in(
        &["src/ffi/"],
        &[
            "unsafe ",
            "unsafe{",
            "allow(unsafe_code)",
            "expect(unsafe_code",
        ],
    );
    for path in sources().iter().filter(|p| p.starts_with("src/ffi/")) {
        let text = fs::read_to_string(root().join(path)).unwrap();
        assert!(
            text.matches("unsafe {").count() <= text.matches("SAFETY:").count(),
            "{path}: a block without a word on why it is sound"
        );
    }
}

#[test]
fn only_main_ends_the_program() {
    only_in(
        &["src/main.rs"],
        &["process::exit", "process::abort", "ExitCode"],
    );
}

#[test]
fn only_commands_write_to_standard_output() {
    only_in(
        &["src/commands/", "src/main.rs", "src/catalogue/build.rs"],
        &[
            "print!(",
            "println!(",
            "stdout().lock",
            "stdout().write",
            "dbg!(",
        ],
    );
}

#[test]
fn every_file_says_what_it_is_for() {
    for path in files_below("src").iter().chain(&files_below("tests")) {
        if !is_rust(path) {
            continue;
        }
        let text = fs::read_to_string(root().join(path)).unwrap();
        let head = text
            .lines()
            .find(|line| !line.starts_with("#!["))
            .unwrap_or_default();
        assert!(head.starts_with("//! "), "{path} begins with {head:?}");
        for word in ["TODO", "FIXME", "XXX", "todo!(", "unimplemented!("] {
            let is_here = path != "tests/meta.rs" && text.contains(word);
            assert!(!is_here, "{path}: {word}");
        }
    }
}

#[test]
fn rules_stand_in_walking_order_and_ids_are_unique() {
    let all: Vec<&Rule> = rules::all().collect();
    for pair in all.windows(2) {
        assert!(
            (pair[0].layer, pair[0].id) < (pair[1].layer, pair[1].id),
            "{} stands before {}",
            pair[0].id,
            pair[1].id
        );
    }
    let ids: BTreeSet<&str> = all.iter().map(|rule| rule.id).collect();
    assert_eq!(ids.len(), all.len(), "an id is used twice");
    for id in ids {
        assert!(
            id.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{id} is not kebab-case"
        );
    }
}

/// `tests/ids.txt` holds every id that was ever given out: whoever silences one in a configuration, or searches for it in
/// a ticket, means the same fault in ten years.
#[test]
fn no_id_is_renamed_or_used_again() {
    let text = fs::read_to_string(root().join("tests/ids.txt")).unwrap();
    let mut given = BTreeMap::new();
    let mut last = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (id, state) = line.split_once(' ').unwrap_or((line, ""));
        assert!(last < id, "tests/ids.txt: {id} is not in its place");
        assert!(["", "retired"].contains(&state), "tests/ids.txt: {line}");
        given.insert(id, state == "retired");
        last = id;
    }
    for id in rules::all().map(|rule| rule.id) {
        match given.get(id) {
            None => panic!("{id}: a new id: add `{id}` to tests/ids.txt"),
            Some(true) => panic!("{id}: a retired id must not be used again"),
            Some(false) => {}
        }
    }
    for (id, _) in given.iter().filter(|(_, is_retired)| !**is_retired) {
        assert!(
            rules::by_id(id).is_some(),
            "{id} is gone: mark it `{id} retired` in tests/ids.txt"
        );
    }
}

#[test]
fn every_id_has_a_page_and_every_page_an_id() {
    let pages: Vec<String> = files_below("src/rules/pages")
        .iter()
        .map(|path| {
            Path::new(path)
                .file_stem()
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    let mut ids: Vec<String> = rules::all().map(|rule| rule.id.to_owned()).collect();
    ids.sort();
    assert_eq!(pages, ids);
    for rule in rules::all() {
        let id = rule.id;
        let lines: Vec<&str> = rule.page.lines().collect();
        let headings: Vec<&str> = lines
            .iter()
            .copied()
            .filter(|l| l.starts_with('#'))
            .collect();
        let title = format!("# {id}");
        assert_eq!(
            headings,
            [
                title.as_str(),
                "## What it means",
                "## How it is detected",
                "## Causes",
                "## Fixes",
                "## Sources",
            ],
            "{id}"
        );
        let summary = lines[2];
        assert!(
            lines[1].is_empty() && lines[3].is_empty(),
            "{id}: one line of summary"
        );
        assert!(
            (1..=90).contains(&summary.chars().count()),
            "{id}: {summary}"
        );
        assert!(!summary.ends_with('.'), "{id}: {summary}");
        for (at, line) in lines.iter().enumerate() {
            assert!(
                line.chars().count() <= 100,
                "{id}: line {} is too long",
                at + 1
            );
            let has_text = !line.starts_with("## ")
                || lines
                    .get(at + 1)
                    .is_some_and(|next| !next.is_empty() && !next.starts_with('#'));
            assert!(has_text, "{id}: nothing under {line}");
        }
        assert!(rule.page.ends_with('\n') && rule.page.is_ascii(), "{id}");
    }
}

#[test]
fn what_explains_a_finding_exists_and_never_leads_round() {
    fn walk(id: &'static str, path: &mut Vec<&'static str>) {
        assert!(!path.contains(&id), "{id} explains itself: {path:?}");
        path.push(id);
        let rule = rules::by_id(id).unwrap_or_else(|| panic!("{path:?}: no such id"));
        for cause in rule.follows_from {
            walk(cause, path);
        }
        path.pop();
    }
    for rule in rules::all() {
        walk(rule.id, &mut Vec::new());
        let causes: BTreeSet<_> = rule.follows_from.iter().collect();
        assert_eq!(
            causes.len(),
            rule.follows_from.len(),
            "{}: a cause twice",
            rule.id
        );
    }
}

/// Findings about a file or a process that the caller names, and the tests that provoke them on real ones.
const OF_WHAT_IS_NAMED: &[(&str, &str)] = &[
    ("architecture-not-asked-for", "tests/preflight.rs"),
    (
        "device-code-compiled-at-start",
        "src/inspect/judge/tests.rs",
    ),
    ("device-code-packed-too-new", "src/inspect/judge/tests.rs"),
    ("device-code-partial", "src/inspect/judge/tests.rs"),
    ("file-damaged", "src/inspect/judge/tests.rs"),
    ("glibc-too-old", "src/inspect/judge/tests.rs"),
    ("image-has-driver-files", "src/inspect/judge/image/tests.rs"),
    (
        "image-requirement-not-met",
        "src/inspect/judge/image/tests.rs",
    ),
    ("library-not-found", "src/inspect/judge/tests.rs"),
    ("libstdcxx-too-old", "src/inspect/judge/tests.rs"),
    ("process-library-replaced", "tests/real/application.rs"),
    ("process-two-runtimes", "tests/real/application.rs"),
    ("ptx-too-new-for-driver", "src/inspect/judge/tests.rs"),
    ("runpath-to-build-machine", "src/inspect/judge/tests.rs"),
    ("runpath-to-stubs", "src/inspect/judge/tests.rs"),
    ("symbol-version-missing", "src/inspect/judge/tests.rs"),
    ("no-wheel-for-python", "tests/preflight.rs"),
    ("version-left-open", "tests/preflight.rs"),
];

#[test]
fn every_id_is_provoked_by_a_host_and_stays_quiet_on_its_twin() {
    let mut provoked: BTreeMap<String, Severity> = BTreeMap::new();
    let mut twins: BTreeSet<String> = BTreeSet::new();
    for host in host::load_all() {
        for (id, severity) in host.provoked() {
            assert!(
                rules::by_id(id).is_some(),
                "{}: provokes {id}: no such id",
                host.case
            );
            let worst = provoked.entry(id.to_owned()).or_insert(severity);
            *worst = (*worst).max(severity);
        }
        for id in host.twin_of.iter().chain(&host.also) {
            assert!(
                rules::by_id(id).is_some(),
                "{}: {id}: no such id",
                host.case
            );
        }
        twins.extend(host.twin_of);
    }
    // About a program or process that is named: a described host names none.
    let named: BTreeMap<&str, &str> = OF_WHAT_IS_NAMED.iter().copied().collect();
    for (id, file) in &named {
        let test = fs::read_to_string(root().join(file)).unwrap();
        assert!(test.contains(&format!("\"{id}\"")), "{file} has no {id}");
        assert!(!provoked.contains_key(*id), "{id}: a host provokes it now");
    }
    for rule in rules::all().filter(|rule| !named.contains_key(rule.id)) {
        assert_eq!(
            provoked.get(rule.id),
            Some(&rule.severity),
            "{}: the worst severity that a host in fixtures/hosts provokes is not the rule's",
            rule.id
        );
        assert!(
            twins.contains(rule.id),
            "{}: no healthy twin in fixtures/hosts",
            rule.id
        );
    }
}

#[test]
fn every_table_of_the_matrix_is_bundled() {
    let text = fs::read_to_string(root().join("src/matrix/mod.rs")).unwrap();
    let (errors, tables): (Vec<_>, Vec<_>) = files_below("compat-matrix")
        .into_iter()
        .partition(|path| path.starts_with("compat-matrix/errors/"));
    let embedded: Vec<String> = gpudoctor::catalogue::files()
        .iter()
        .map(|(name, _)| format!("compat-matrix/errors/{name}"))
        .collect();
    assert_eq!(errors, embedded);
    for path in tables {
        assert!(
            text.contains(&format!("include_str!(\"../../{path}\")")),
            "{path} is not embedded"
        );
    }
}

#[test]
fn the_catalogue_of_errors_has_no_fault_that_its_linter_knows() {
    let problems = gpudoctor::catalogue::lint::lint();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_bundled_matrix_has_no_fault_that_its_linter_knows() {
    assert_eq!(lint::lint(&Matrix::bundled()), Vec::<String>::new());
}

/// The architecture page names the test that holds each invariant; a name that leads nowhere would be worse than none.
#[test]
fn the_architecture_page_names_tests_that_exist() {
    let page = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let mut named = 0;
    for word in page.split('`') {
        let Some((file, test)) = word.split_once("::") else {
            continue;
        };
        if !["meta", "hosts", "reports", "layout", "matrix", "vendor"].contains(&file) {
            continue;
        }
        named += 1;
        let text = fs::read_to_string(root().join(format!("tests/{file}.rs"))).unwrap();
        assert!(text.contains(&format!("fn {test}(")), "no test {word}");
    }
    assert!(named >= 8, "{named} tests are named");
    for path in files_below("src") {
        let top = path
            .strip_prefix("src/")
            .unwrap()
            .split('/')
            .next()
            .unwrap()
            .to_owned();
        let name = top.trim_end_matches(".rs");
        assert!(
            ["lib", "main"].contains(&name) || page.contains(&format!("[`{name}`]")),
            "the code map has no `{name}`"
        );
    }
}
