//! The catalogue of errors against lines that programs write, the headers that codes come from, and logs of healthy machines.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: it reads fixtures, and what is not as expected has to stop the test"
)]

use std::fs;
use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use gpudoctor::explain::{self, Asked, Explanation};
use gpudoctor::finding::Severity;
use gpudoctor::matrix::Matrix;
use serde::Deserialize;

fn fixture(name: &str) -> Vec<u8> {
    fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures/errors")
            .join(name),
    )
    .unwrap()
}

fn explained(text: &[u8]) -> Explanation {
    thread_local! {
        static MATRIX: Matrix = Matrix::bundled();
    }
    let scan = explain::scan(text).unwrap();
    MATRIX.with(|matrix| explain::of_scan(&scan, matrix))
}

#[derive(Deserialize)]
struct Lines {
    line: Vec<Line>,
}

#[derive(Deserialize)]
struct Line {
    text: String,
    entry: String,
    layer: String,
}

#[test]
fn lines_lead_to_the_entry_and_the_layer_at_fault() {
    let lines: Lines = toml::from_str(&String::from_utf8(fixture("lines.toml")).unwrap()).unwrap();
    assert!(lines.line.len() >= 100);
    let mut wrong = Vec::new();
    for line in &lines.line {
        let found = explained(line.text.as_bytes());
        let first = found.matches.first();
        let entry = first.map_or("", |m| m.id.as_str());
        let layer = first.map_or("", |m| m.layers_at_fault[0].id());
        if (entry, layer) != (line.entry.as_str(), line.layer.as_str()) {
            wrong.push(format!(
                "{entry} in {layer}, not {} in {}: {}",
                line.entry, line.layer, line.text
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        lines.line.len(),
        wrong.join("\n")
    );
}

/// Codes and names as the vendors' headers have them.
#[test]
fn every_code_is_known_by_number_and_by_name() {
    let codes = String::from_utf8(fixture("codes.txt")).unwrap();
    let mut seen = 0;
    for line in codes.lines().filter(|line| !line.starts_with('#')) {
        let [domain, number, name] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        seen += 1;
        let wanted: i32 = number.parse().unwrap();
        let by_number = match explain::ask(&format!("{domain} {number}")) {
            Asked::Entries(found) => found,
            // What is no error has no entry.
            Asked::Success(rows) if wanted == 0 => {
                let is_it = rows.iter().any(|row| row.domain == domain);
                assert!(is_it, "{line}: {rows:?}");
                let by_name = explain::ask(name);
                assert!(matches!(by_name, Asked::Success(_)), "{line}: {by_name:?}");
                continue;
            }
            other => panic!("{line}: {other:?}"),
        };
        let (entry, code) = by_number[0];
        assert!(
            code.is_some_and(|(d, n)| d == domain && n == wanted),
            "{line}: {code:?}"
        );
        let told = explain::of_entry(entry, code).unwrap();
        assert!(
            told.names.iter().any(|known| known == name),
            "{line}: {:?}",
            told.names
        );
        if ["xid", "sxid"].contains(&domain) {
            continue;
        }
        let by_name = explain::ask(name);
        assert!(
            matches!(&by_name, Asked::Entries(found) if found.iter().any(|(by_name, _)| *by_name == entry)),
            "{line}: {by_name:?}"
        );
        // As it stands in a line as well, whatever its case.
        let found = explained(format!("x: [{}] y", name.to_ascii_lowercase()).as_bytes());
        assert_eq!(found.matches[0].id, entry.id(), "{line}");
    }
    assert!(seen > 500, "{seen}");
}

/// Logs of machines where nothing is wrong, made here: what they say is no fault.
#[test]
fn healthy_logs_have_no_fault() {
    let mut bytes = 0;
    for name in ["apt", "build", "kernel", "pip", "python"] {
        let mut log = Vec::new();
        let packed = fixture(&format!("healthy-{name}.log.gz"));
        GzDecoder::new(&packed[..]).read_to_end(&mut log).unwrap();
        bytes += log.len();
        let found = explained(&log);
        let faults: Vec<_> = found
            .matches
            .iter()
            .filter(|m| m.severity > Severity::Note)
            .map(|m| (&m.id, m.line, &m.text))
            .collect();
        assert!(faults.is_empty(), "{name}: {faults:?}");
    }
    assert!(bytes > 1_000_000, "{bytes}");
}

/// Lines of programs and kernels that no machine at hand writes: alone and together they are no fault.
#[test]
fn healthy_lines_have_no_fault() {
    let all = fixture("healthy-lines.txt");
    let lines: Vec<&[u8]> = all
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
        .collect();
    assert!(lines.len() > 250, "{}", lines.len());
    let whole = lines.join(&b'\n');
    let mut wrong = Vec::new();
    for text in lines.into_iter().chain([whole.as_slice()]) {
        wrong.extend(
            explained(text)
                .matches
                .into_iter()
                .filter(|m| m.severity > Severity::Note)
                .map(|m| format!("{}: {}", m.id, m.text.unwrap_or_default())),
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const DRIVER_TOO_OLD: &str = "CUDA driver version is insufficient for CUDA runtime version";

#[test]
fn a_log_is_read_whatever_stands_around_the_error() {
    let plain = format!("before\n{DRIVER_TOO_OLD}\nafter\n");
    let long = format!(
        "{}{DRIVER_TOO_OLD}{}\n",
        "x ".repeat(3_000_000),
        " y".repeat(100_000)
    );
    let mut junk: Vec<u8> = (0..=255u8).cycle().take(3_000_000).collect();
    junk.extend(b"\n\xff\xfe ");
    junk.extend(DRIVER_TOO_OLD.as_bytes());
    junk.extend(b"\x80\n");
    let wide: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain(plain.encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    let cases: Vec<(&str, Vec<u8>, u64)> = vec![
        ("plain", plain.clone().into_bytes(), 2),
        ("crlf", plain.replace('\n', "\r\n").into_bytes(), 2),
        (
            "colours",
            plain
                .replace("version is", "\x1b[1;31mversion\x1b[0m is")
                .into_bytes(),
            2,
        ),
        (
            "rank",
            plain
                .replace("CUDA driver", "[rank3]: CUDA driver")
                .into_bytes(),
            2,
        ),
        (
            "journal",
            plain
                .replace("CUDA driver", "Dec 01 10:00:00 host python[7]: CUDA driver")
                .into_bytes(),
            2,
        ),
        (
            "kubernetes",
            plain
                .replace(
                    "CUDA driver",
                    "2026-12-01T10:00:00.123456789Z stderr F CUDA driver",
                )
                .into_bytes(),
            2,
        ),
        (
            "wrapped",
            plain
                .replace("insufficient for", "insufficient\n    for")
                .into_bytes(),
            2,
        ),
        (
            "typographic",
            plain
                .replace("CUDA driver", "\u{201c}CUDA driver")
                .into_bytes(),
            2,
        ),
        (
            "no last line end",
            format!("x\n{DRIVER_TOO_OLD}").into_bytes(),
            2,
        ),
        ("one long line", long.into_bytes(), 1),
        ("utf-16", wide, 2),
        (
            "far down",
            format!("{}{plain}", "line\n".repeat(1_000_000)).into_bytes(),
            1_000_002,
        ),
    ];
    for (name, log, line) in cases {
        let found = explained(&log);
        let first = found.matches.first().map(|m| (m.id.as_str(), m.line));
        assert_eq!(
            first,
            Some(("cuda-35-insufficient-driver", Some(line))),
            "{name}"
        );
    }
    let found = explained(&junk);
    assert_eq!(found.matches[0].id, "cuda-35-insufficient-driver");
    assert!(explained(b"").matches.is_empty());
}

/// How the line of a program is broken and decorated by what carries it to the reader.
#[test]
fn a_text_is_read_however_it_was_quoted_and_broken() {
    let prefixes = [
        "> ",
        ">> ",
        "| ",
        "[rank3]: ",
        "[1,0]<stderr>:",
        "3: ",
        "web-1  | ",
        "2026-12-01T10:00:00.123456789Z stderr F ",
        "2026-12-01 10:00:00,123 ",
        "Dec 01 10:00:00 host python[7]: ",
        "[   12.345678] ",
        "(EngineCore_0 pid=812) ",
        "\u{1b}[36mweb-1  | \u{1b}[0m",
        "[pod/train-0/main] ",
    ];
    let mut wrong = Vec::new();
    let mut check = |name: &str, log: &str| {
        let found = explained(log.as_bytes());
        let first = found.matches.first();
        let told = first.map(|m| (m.id.as_str(), m.line, m.count));
        if told != Some(("cuda-35-insufficient-driver", Some(2), 1)) {
            wrong.push(format!("{name}: {told:?}: {log:?}"));
        }
    };
    for prefix in prefixes {
        let whole = format!("{prefix}before\n{prefix}{DRIVER_TOO_OLD}\n{prefix}after\n");
        check("whole", &whole);
        // Broken at every blank.
        for (at, _) in DRIVER_TOO_OLD.match_indices(' ') {
            let (head, tail) = DRIVER_TOO_OLD.split_at(at);
            let tail = tail.trim_start();
            for newline in
                ["\n", "\r\n", " \n"]
                    .into_iter()
                    .take(if prefix == "> " { 3 } else { 1 })
            {
                let log = format!(
                    "{prefix}before{newline}{prefix}{head}{newline}{prefix}{tail}{newline}"
                );
                check("at a blank", &log);
            }
        }
    }
    // Broken by a terminal: anywhere; by mail with a hyphen; by Kubernetes after so many bytes.
    for at in 1..DRIVER_TOO_OLD.len() {
        let (head, tail) = DRIVER_TOO_OLD.split_at(at);
        check("terminal", &format!("before\n{head}\n{tail}\nafter\n"));
        let time = "2026-12-01T10:00:00.123456789Z stderr";
        check(
            "kubernetes",
            &format!("{time} F before\n{time} P {head}\n{time} F {tail}\n{time} F after\n"),
        );
        let within_word = !head.ends_with(' ') && !tail.starts_with(' ');
        if within_word {
            check("hyphen", &format!("before\n{head}-\n{tail}\nafter\n"));
        }
    }
    for (name, text) in [
        (
            "json",
            format!("{{\"log\":\"{DRIVER_TOO_OLD}\\n\",\"stream\":\"stderr\"}}"),
        ),
        (
            "message",
            format!("{{\"level\": \"error\", \"message\": \"{DRIVER_TOO_OLD}\"}}"),
        ),
        (
            "colour in json",
            format!("{{\"log\":\"\\u001b[31m{DRIVER_TOO_OLD}\\u001b[0m\\n\"}}"),
        ),
        ("colour in cat -v", format!("^[[31m{DRIVER_TOO_OLD}^[[0m")),
        (
            "charset",
            format!("\u{1b}(B\u{1b}[m{DRIVER_TOO_OLD}\u{1b}(B\u{1b}[m"),
        ),
        ("table", format!("| 3 | {DRIVER_TOO_OLD} | x |")),
        ("code", format!("`{DRIVER_TOO_OLD}`")),
        ("no-break spaces", DRIVER_TOO_OLD.replace(' ', "\u{a0}")),
    ] {
        check(name, &format!("before\n{text}\nafter\n"));
    }
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
    let big_endian: Vec<u8> = [0xfe, 0xff]
        .into_iter()
        .chain(
            format!("before\n{DRIVER_TOO_OLD}\n")
                .encode_utf16()
                .flat_map(u16::to_be_bytes),
        )
        .collect();
    assert_eq!(explained(&big_endian).matches[0].line, Some(2));
}

#[test]
fn patterns_see_a_text_in_one_piece_as_well() {
    for log in [
        "[rank0]: cuInit failed with error\n[rank1]: step 5\n[rank0]: code: 803\n",
        "this line is long enough to have been broken by the terminal: cuInit retu\nrned 803\n",
        "web-1  | cuInit failed with\nweb-1  | error code 803\n",
    ] {
        let found = explained(log.as_bytes());
        let first = found.matches.first().map(|m| (m.id.as_str(), m.line));
        assert!(
            first.is_some_and(|(id, _)| id == "cuda-803-system-driver-mismatch"),
            "{first:?}: {log:?}"
        );
    }
    // What stands in lines of their own is not read as one.
    for log in [
        "[rank0]: cuInit failed with error\n[rank1]: code: 803\n",
        "cuInit was called with success by the program, as it has to be\n\n803 tests passed\n",
    ] {
        let found = explained(log.as_bytes());
        assert!(
            found
                .matches
                .iter()
                .all(|m| m.id != "cuda-803-system-driver-mismatch"),
            "{log:?}"
        );
    }
}

#[test]
fn the_symptom_of_a_traceback_is_its_last_line() {
    let log = "\
Traceback (most recent call last):
  File \"/app/train.py\", line 12, in <module>
    raise_if(cudaErrorNoDevice, \"no CUDA-capable device is detected\")
  File \"/app/check.py\", line 3, in raise_if
    x = torch.zeros(1).cuda()
RuntimeError: CUDA error: out of memory
";
    let found = explained(log.as_bytes());
    let told: Vec<_> = found
        .matches
        .iter()
        .map(|m| (m.id.as_str(), m.line))
        .collect();
    assert_eq!(told[0], ("cuda-2-out-of-memory", Some(6)), "{told:?}");
    assert!(told.contains(&("cuda-100-no-device", Some(3))), "{told:?}");
}

#[test]
fn repeats_are_counted_and_a_long_line_is_shown_around_what_was_found() {
    let log = format!(
        "{}{}",
        format!("x: {DRIVER_TOO_OLD}\n").repeat(10_000),
        "x: no CUDA-capable device is detected\n".repeat(3)
    );
    let found = explained(log.as_bytes());
    let told: Vec<_> = found
        .matches
        .iter()
        .map(|m| (m.id.as_str(), m.line, m.line_end, m.count))
        .collect();
    assert_eq!(
        told,
        [
            ("cuda-35-insufficient-driver", Some(1), Some(10_000), 10_000),
            ("cuda-100-no-device", Some(10_001), Some(10_003), 3),
        ]
    );
    let log = format!(
        "{}{DRIVER_TOO_OLD}{}",
        "y ".repeat(50_000),
        " z".repeat(50_000)
    );
    let found = explained(log.as_bytes());
    let text = found.matches[0].text.as_deref().unwrap();
    assert!(text.contains(DRIVER_TOO_OLD), "{text}");
    assert!(
        text.starts_with("... y") && text.ends_with("z ..."),
        "{text}"
    );
    assert!(text.len() < 500, "{}", text.len());
    assert_eq!(found.matches[0].count, 1);
}

/// What was said of a line many times is not taken to hold for one with another number.
#[test]
fn a_number_is_looked_at_however_often_the_words_were_the_same() {
    let quiet = (0..100).map(|n| format!("step {n}: cufft status 0\n"));
    let quiet = quiet.collect::<Vec<_>>().concat();
    let log = format!("{quiet}step 7: cufft status 5\n{quiet}");
    let found = explained(log.as_bytes());
    let told: Vec<_> = found
        .matches
        .iter()
        .map(|m| (m.id.as_str(), m.line))
        .collect();
    assert_eq!(told, [("cufft-internal-error", Some(101))]);
    // Digits beside it do not matter, and how many lines say so is known all the same.
    let lines = (0..200).map(|n| format!("[rank{}] {n}: cufft status {}\n", n % 8, n % 2 * 5));
    let found = explained(lines.collect::<Vec<_>>().concat().as_bytes());
    assert_eq!(found.matches[0].count, 100);
}

#[test]
fn the_first_failure_comes_before_what_follows_from_it() {
    let log = "\
[rank1]: step 100
[rank0]: NET/Plugin: No plugin found
Unable to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered
[rank2]: CUDA error: an illegal memory access was encountered
[rank2]: CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)
[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6)
";
    let found = explained(log.as_bytes());
    let told: Vec<(&str, Option<u64>, u64)> = found
        .matches
        .iter()
        .map(|m| (m.id.as_str(), m.line, m.count))
        .collect();
    assert_eq!(
        told,
        [
            ("cuda-700-illegal-address", Some(4), 1),
            ("nccl-remote-error", Some(6), 1),
            ("torch-nccl-timeout", Some(7), 2),
            ("torch-error-generic", Some(5), 1),
            ("tf-factory-noise", Some(3), 1),
        ]
    );
    assert_eq!(found.matches[4].severity, Severity::Note);
}

#[test]
fn versions_in_a_message_are_read_and_held_against_the_matrix() {
    let found = explained(b"The NVIDIA driver on your system is too old (found version 11040).");
    let first = &found.matches[0];
    assert_eq!(first.versions["driver_cuda"], "11.4");
    assert!(
        first.advice.iter().any(|line| line.contains("branch 470")),
        "{:?}",
        first.advice
    );
    assert!(
        first.advice.iter().any(|line| line.contains("525.60.13")),
        "{:?}",
        first.advice
    );
    let found = explained(b"NVRM: API mismatch: the client has the version 535.183.01, but\nNVRM: this kernel module has the version 535.161.08.");
    assert_eq!(found.matches[0].versions["driver_library"], "535.183.01");
    assert_eq!(found.matches[0].versions["kernel_module"], "535.161.08");
}
