//! The report for a ticket, of every host in `fixtures/hosts`: it renders as meant, fits into a ticket, and holds nothing
//! private - whatever the user, the host and the home are called.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "test code: what is not as described has to stop the test"
)]

mod support;

use gpudoctor::diagnosis::{Diagnosis, Options, diagnose};
use gpudoctor::facts::{Facts, Reading};
use gpudoctor::redact::{self, Secrets};
use gpudoctor::report::markdown::{self, MOST_CHARACTERS};
use gpudoctor::report::{Report, json, text};
use pulldown_cmark::{Event, Parser, Tag};
use support::diagnosed::{all, expects_gpu, matrix};

fn markdown_of(facts: &Facts, diagnosis: &Diagnosis) -> String {
    markdown::render(&Report {
        facts,
        matrix: matrix(),
        diagnosis,
        symptoms: &[],
        log: None,
    })
}

#[test]
fn it_renders_as_a_verdict_a_table_and_a_folded_part() {
    for host in all() {
        let case = &host.host.case;
        let document = markdown_of(&host.facts, &host.diagnosis);
        assert!(document.chars().count() <= MOST_CHARACTERS, "{case}");
        let options = pulldown_cmark::Options::ENABLE_TABLES;
        let mut first = String::new();
        let (mut tables, mut rows, mut bold) = (0, 0, false);
        let mut html = String::new();
        for event in Parser::new_ext(&document, options) {
            match event {
                Event::Start(Tag::Strong) if first.is_empty() => bold = true,
                Event::Text(text) if bold => first.push_str(&text),
                Event::End(pulldown_cmark::TagEnd::Strong) => bold = false,
                Event::Start(Tag::Table(_)) => tables += 1,
                Event::Start(Tag::TableRow) => rows += 1,
                Event::Html(text) | Event::InlineHtml(text) => html.push_str(&text),
                _ => {}
            }
        }
        let summary = &host.diagnosis.verdict.summary;
        let told = summary.split(' ').next_back().unwrap();
        assert!(first.contains(told), "{case}: {first} / {summary}");
        assert_eq!((tables, rows), (1, 9), "{case}: a table of nine layers");
        for part in ["<details>", "<summary>Facts", "</pre>", "</details>"] {
            assert_eq!(html.matches(part).count(), 1, "{case}: {part}");
        }
        assert!(!html.contains("<script"), "{case}");
    }
}

/// What nobody may read in a report, each where a machine would have it.
const PLANTED: [&str; 9] = [
    "tron-17.example.net",
    "/home/anna",
    "1320000000042",
    "GPU-5d8f9a31-77aa-4bcd-9e01-0123456789ab",
    "52:54:00:ab:cd:ef",
    "203.0.113.77",
    "buildmaster@farm-3",
    "anna:s3cret",
    "tok3n",
];

/// The facts with private things in every kind of place, redacted as a user of this name would have them redacted.
fn planted(facts: &Facts, user: &str) -> Facts {
    let mut facts = facts.clone();
    let version = facts.system.kernel_version.value().cloned();
    let version = version.unwrap_or_else(|| "Linux version 6.8.0".to_owned());
    facts.system.kernel_version = Reading::present(
        format!("{version} (buildmaster@farm-3) (gcc 13)"),
        "/proc/version",
    );
    let lines = [
        "NVRM: GPU at PCI:0000:0b:00: GPU-5d8f9a31-77aa-4bcd-9e01-0123456789ab",
        "NVRM: GPU Board Serial Number: 1320000000042",
        "NVRM: host tron-17.example.net, mac 52:54:00:ab:cd:ef, peer 203.0.113.77:22",
    ];
    let mut log = facts.driver.kernel_log.items().to_vec();
    log.extend(lines.map(str::to_owned));
    facts.driver.kernel_log = Reading::present(log, "/var/log/kern.log");
    if let Reading::Present { value, .. } = &mut facts.environment {
        value.insert("LD_LIBRARY_PATH".to_owned(), "/home/anna/lib".to_owned());
        value.insert(
            "CC".to_owned(),
            "https://anna:s3cret@proxy/x?key=tok3n".to_owned(),
        );
    }
    facts
        .problems
        .push("/home/anna/.venv: permission denied".to_owned());
    let secrets = Secrets {
        home: Some("/home/anna".to_owned()),
        user_names: vec![user.to_owned(), "anna".to_owned()],
        host_names: vec!["tron-17.example.net".to_owned()],
    };
    redact::facts(secrets, facts)
}

#[test]
fn nothing_private_is_in_any_format_and_no_word_is_damaged() {
    for host in all() {
        let case = &host.host.case;
        for user in ["root", "gpu", "cuda", "a"] {
            let facts = planted(&host.facts, user);
            let options = Options {
                expect_gpu: expects_gpu(&host.host),
                ..Options::default()
            };
            let diagnosis = diagnose(&facts, matrix(), &options);
            let report = Report {
                facts: &facts,
                matrix: matrix(),
                diagnosis: &diagnosis,
                symptoms: &[],
                log: None,
            };
            let documents = [
                markdown::render(&report),
                json::render(&report).unwrap(),
                text::render(
                    &report,
                    text::Options {
                        verbose: true,
                        ..text::Options::default()
                    },
                ),
            ];
            for document in &documents {
                for secret in PLANTED {
                    assert!(!document.contains(secret), "{case}, user {user}: {secret}");
                }
                // A user called cuda, gpu or a must not turn these into something else.
                for damage in ["user-1.so", "libuser-", "/usr/local/user-", "user-2 driver"] {
                    assert!(!document.contains(damage), "{case}, user {user}: {damage}");
                }
            }
            let verdict = &diagnosis.verdict;
            assert_eq!(
                (verdict.status, &verdict.layer, &verdict.finding),
                (
                    host.diagnosis.verdict.status,
                    &host.diagnosis.verdict.layer,
                    &host.diagnosis.verdict.finding
                ),
                "{case}, user {user}: redaction changes no verdict"
            );
        }
    }
}
