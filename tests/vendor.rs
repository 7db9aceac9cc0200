//! Vendor calls in child processes, against stub libraries that hang, crash, exit and print. The stubs are compiled
//! here with the C compiler that linking Rust needs anyway (`CC`, else `cc`).

#![expect(
    clippy::disallowed_methods,
    reason = "lays out stub libraries and starts a compiler"
)]
#![expect(clippy::unwrap_used, reason = "the helpers are tests, too")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gpudoctor::facts::{ChildEnd, Confinement, LibraryAnswers};
use gpudoctor::probe::vendor::{Ask, Heard, Launcher, LibraryKind, Running};
use tempfile::TempDir;

/// Compiles a stub into a folder of its own. In the system's temporary folder, since root loads nothing from a folder that
/// others can write.
fn stub(source: &str, name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/stubs")
        .join(source);
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut words = compiler.split_whitespace();
    let status = Command::new(words.next().unwrap())
        .args(words)
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source)
        .status()
        .unwrap();
    assert!(status.success());
    (folder, library)
}

fn ask(kind: LibraryKind, library: &Path, broken: &str) -> Ask {
    Ask {
        init: true,
        env: BTreeMap::from([
            ("STUB".to_owned(), Some(broken.to_owned())),
            ("LD_LIBRARY_PATH".to_owned(), None),
        ]),
        ..Ask::library(kind, library.to_str().unwrap())
    }
}

fn start(ask: &Ask) -> Running {
    Launcher::new(env!("CARGO_BIN_EXE_gpudoctor")).start(ask)
}

fn heard(ask: &Ask) -> Heard {
    start(ask).finish()
}

/// Whether calls with side effects can be made here: root needs a mount namespace, which a container may refuse.
fn confinable() -> bool {
    let heard = heard(&Ask::nodes(vec!["/dev/null".to_owned()]));
    assert_eq!(heard.answers.end, ChildEnd::Finished);
    assert_eq!(
        heard.answers.withheld.is_none(),
        heard.opens.len() == 1,
        "{heard:?}"
    );
    heard.answers.withheld.is_none()
}

fn names(answers: &LibraryAnswers) -> Vec<(&str, Option<i64>)> {
    answers
        .calls
        .iter()
        .map(|call| (call.name.as_str(), call.code))
        .collect()
}

#[test]
fn a_healthy_driver() {
    let (_folder, library) = stub("cuda.c", "libcuda.so.1");
    let heard = heard(&ask(LibraryKind::Cuda, &library, ""));
    assert_eq!(heard.answers.end, ChildEnd::Finished);
    assert_eq!(heard.answers.number("cuDriverGetVersion"), Some(99080));
    assert!(
        matches!(
            heard.confined.value(),
            Some(Confinement {
                no_new_privs: true,
                dropped_capabilities: true,
                ..
            })
        ),
        "{heard:?}"
    );
    if !confinable() {
        assert_eq!(names(&heard.answers).len(), 2);
        return;
    }
    assert_eq!(
        names(&heard.answers),
        [
            ("dlopen", Some(0)),
            ("cuDriverGetVersion", Some(0)),
            ("cuInit", Some(0)),
            ("cuDeviceGetCount", Some(0))
        ]
    );
    let gpus: Vec<_> = heard
        .answers
        .devices
        .iter()
        .map(|d| {
            (
                d.index,
                d.code,
                d.name.as_deref(),
                d.capability,
                d.address.as_deref(),
            )
        })
        .collect();
    assert_eq!(
        gpus,
        [
            (
                0,
                0,
                Some("Stub GPU 40"),
                Some((9, 0)),
                Some("0000:c0:00.0")
            ),
            (
                1,
                0,
                Some("Stub GPU 41"),
                Some((9, 1)),
                Some("0000:c1:00.0")
            ),
        ]
    );
}

#[test]
fn without_leave_nothing_is_initialised() {
    let (_folder, library) = stub("cuda.c", "libcuda.so.1");
    let asked = Ask {
        init: false,
        ..ask(LibraryKind::Cuda, &library, "hang-init")
    };
    let heard = heard(&asked);
    assert_eq!(heard.answers.end, ChildEnd::Finished);
    assert_eq!(
        names(&heard.answers),
        [("dlopen", Some(0)), ("cuDriverGetVersion", Some(0))]
    );
    assert_eq!(heard.answers.withheld, None);
}

#[test]
fn drivers_that_do_not_come_back() {
    let (_folder, library) = stub("cuda.c", "libcuda.so.1");
    let call = |name: &str| name.to_owned();
    let cases = [
        (
            "crash-load",
            ChildEnd::Signal {
                call: call("dlopen"),
                signal: 11,
            },
        ),
        (
            "exit-load",
            ChildEnd::Exited {
                call: call("dlopen"),
                code: 3,
            },
        ),
        (
            "hang-version",
            ChildEnd::TimedOut {
                call: call("cuDriverGetVersion"),
                after_ms: 3000,
            },
        ),
        (
            "hang-init",
            ChildEnd::TimedOut {
                call: call("cuInit"),
                after_ms: 3000,
            },
        ),
        (
            "crash-init",
            ChildEnd::Signal {
                call: call("cuInit"),
                signal: 6,
            },
        ),
        (
            "exit-init",
            ChildEnd::Exited {
                call: call("cuInit"),
                code: 7,
            },
        ),
        (
            "fork-crash",
            ChildEnd::Signal {
                call: call("cuInit"),
                signal: 4,
            },
        ),
        (
            "close-all",
            ChildEnd::Garbled {
                call: call("cuInit"),
            },
        ),
        (
            "shout",
            ChildEnd::Garbled {
                call: call("cuInit"),
            },
        ),
    ];
    let init = confinable();
    // All at once, as the probes do.
    let running: Vec<_> = cases
        .iter()
        .map(|(broken, _)| {
            let deadline = Duration::from_secs(if broken.starts_with("hang") { 3 } else { 30 });
            start(&Ask {
                deadline,
                ..ask(LibraryKind::Cuda, &library, broken)
            })
        })
        .collect();
    for ((broken, expected), running) in cases.into_iter().zip(running) {
        let heard = running.finish();
        if !init && heard.answers.withheld.is_some() {
            continue;
        }
        assert_eq!(heard.answers.end, expected, "{broken}");
        let last = heard.answers.calls.last().unwrap();
        let died_in = format!("{expected:?}").contains(&format!("{:?}", last.name));
        assert!(died_in && last.code.is_none(), "{broken}: {last:?}");
        if broken == "crash-init" {
            assert_eq!(last.printed.as_deref(), Some("about to fall over\n"));
        }
    }
}

#[test]
fn what_is_printed_is_kept_and_no_message() {
    let (_folder, library) = stub("cuda.c", "libcuda.so.1");
    let heard = heard(&Ask {
        init: false,
        ..ask(LibraryKind::Cuda, &library, "print")
    });
    assert_eq!(heard.answers.end, ChildEnd::Finished);
    let call = heard.answers.call("cuDriverGetVersion").unwrap();
    assert_eq!(
        call.printed.as_deref(),
        Some("cuda says\x1b[2J\n{\"done\":null}\n")
    );
    assert_eq!(heard.answers.call("dlopen").unwrap().printed, None);
}

#[test]
fn a_flood_is_cut_short() {
    let (_folder, library) = stub("cuda.c", "libcuda.so.1");
    let heard = heard(&ask(LibraryKind::Cuda, &library, "flood"));
    assert_eq!(heard.answers.end, ChildEnd::Finished);
    if heard.answers.withheld.is_none() {
        assert_eq!(
            heard
                .answers
                .call("cuInit")
                .unwrap()
                .printed
                .as_ref()
                .map(String::len),
            Some(4096)
        );
    }
}

#[test]
fn a_return_code_comes_through() {
    let (_folder, library) = stub("cuda.c", "libcuda.so.1");
    let heard = heard(&ask(LibraryKind::Cuda, &library, "mismatch"));
    if heard.answers.withheld.is_none() {
        assert_eq!(heard.answers.code("cuInit"), Some(803));
    }
    assert!(heard.answers.devices.is_empty());
}

#[test]
fn what_is_no_driver() {
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("libcuda.so.1");
    for (bytes, message) in [
        (
            &*"this is no library, whatever its name ".repeat(9),
            "invalid ELF header",
        ),
        ("", "file too short"),
    ] {
        std::fs::write(&garbage, bytes).unwrap();
        let answers = heard(&ask(LibraryKind::Cuda, &garbage, "")).answers;
        assert_eq!(answers.end, ChildEnd::Finished);
        assert_eq!(names(&answers), [("dlopen", None)]);
        let text = answers.call("dlopen").unwrap().text.as_deref().unwrap();
        assert!(
            text.contains(message) || cfg!(not(target_env = "gnu")),
            "{text}"
        );
    }
    let missing = heard(&ask(LibraryKind::Cuda, &folder.path().join("none.so"), "")).answers;
    assert_eq!(names(&missing), [("dlopen", None)]);
}

#[test]
fn functions_that_are_not_there() {
    let (_folder, library) = stub("old.c", "libcuda.so.1");
    let answers = heard(&ask(LibraryKind::Cuda, &library, "")).answers;
    assert_eq!(answers.end, ChildEnd::Finished);
    let version = answers.call("cuDriverGetVersion").unwrap();
    assert_eq!(version.code, None);
    assert!(
        version
            .text
            .as_deref()
            .unwrap()
            .contains("cuDriverGetVersion"),
        "{version:?}"
    );
    // The older name of a function that has no newer one here.
    let answers = heard(&ask(LibraryKind::Nvml, &library, "")).answers;
    if answers.withheld.is_none() {
        assert_eq!(
            names(&answers),
            [("dlopen", Some(0)), ("nvmlInit", Some(9))]
        );
    }
}

#[test]
fn a_gpu_that_was_lost() {
    let (_folder, library) = stub("nvml.c", "libnvidia-ml.so.1");
    let answers = heard(&ask(LibraryKind::Nvml, &library, "")).answers;
    assert_eq!(answers.end, ChildEnd::Finished);
    if answers.withheld.is_some() {
        return;
    }
    assert_eq!(
        names(&answers),
        [
            ("dlopen", Some(0)),
            ("nvmlInit_v2", Some(0)),
            ("nvmlSystemGetDriverVersion", Some(0)),
            ("nvmlSystemGetCudaDriverVersion_v2", Some(0)),
            ("nvmlDeviceGetCount_v2", Some(0)),
            ("nvmlDeviceGetHandleByIndex_v2", Some(15)),
            ("nvmlShutdown", Some(0)),
        ]
    );
    assert_eq!(
        answers.text("nvmlSystemGetDriverVersion"),
        Some("999.88.77")
    );
    assert_eq!(answers.number("nvmlDeviceGetCount_v2"), Some(2));
    let [first, second] = answers.devices.as_slice() else {
        panic!("{answers:?}")
    };
    assert_eq!(
        (first.code, first.capability, first.address.as_deref()),
        (0, Some((9, 0)), Some("0000:c1:00.0"))
    );
    assert_eq!(
        first.uuid.as_deref(),
        Some("GPU-00000000-0000-4000-8000-000000000001")
    );
    assert_eq!(
        (second.index, second.code, second.name.as_deref()),
        (1, 15, None)
    );
}

#[test]
fn runtimes_are_asked_what_they_answer_without_side_effects() {
    for (name, init, asked) in [
        (
            "libcudart.so.12",
            false,
            &["cudaRuntimeGetVersion", "cudaDriverGetVersion"][..],
        ),
        ("libcudart.so.11.0", false, &["cudaDriverGetVersion"]),
        (
            "libcudart.so.11.0",
            true,
            &[
                "cudaRuntimeGetVersion",
                "cudaDriverGetVersion",
                "cudaGetDeviceCount",
            ],
        ),
    ] {
        let (_folder, library) = stub("cudart.c", name);
        let answers = heard(&Ask {
            init,
            ..ask(LibraryKind::Cudart, &library, "")
        })
        .answers;
        if answers.withheld.is_none() {
            let made: Vec<_> = answers
                .calls
                .iter()
                .skip(1)
                .map(|call| call.name.as_str())
                .collect();
            assert_eq!(made, asked, "{name}");
            if init {
                let count = answers.call("cudaGetDeviceCount").unwrap();
                assert_eq!((count.code, count.number), (Some(35), None));
            }
        }
    }
}

#[test]
fn nodes_are_opened_and_left_as_they_were() {
    if !confinable() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let asked = [
        "/dev/null".to_owned(),
        path("missing"),
        path(""),
        "/dev/null/below".to_owned(),
    ];
    let heard = heard(&Ask::nodes(asked.to_vec()));
    assert_eq!(heard.answers.end, ChildEnd::Finished);
    let results: Vec<_> = heard
        .opens
        .iter()
        .map(|open| open.result.as_str())
        .collect();
    assert_eq!(results, ["ok", "ENOENT", "EISDIR", "ENOTDIR"]);
    assert!(heard.opens.iter().map(|open| &open.path).eq(&asked));
    assert!(!folder.path().join("missing").exists());
}

#[test]
fn variables_of_the_child_are_the_consumers() {
    let (_folder, library) = stub("cuda.c", "libcuda.so.1");
    let mut asked = ask(LibraryKind::Cuda, &library, "exit-load");
    assert!(matches!(heard(&asked).answers.end, ChildEnd::Exited { .. }));
    asked.env.insert("STUB".to_owned(), None);
    assert_eq!(heard(&asked).answers.end, ChildEnd::Finished);
}

#[test]
fn a_program_that_is_no_child() {
    let (_folder, library) = stub("cuda.c", "libcuda.so.1");
    let asked = ask(LibraryKind::Cuda, &library, "");
    let none = Launcher::new("/nonexistent/gpudoctor")
        .start(&asked)
        .finish();
    assert!(
        matches!(none.answers.end, ChildEnd::NotStarted { .. }),
        "{none:?}"
    );
    assert!(none.confined.is_unreadable());
    let other = Launcher::new("/bin/true").start(&asked).finish();
    assert_eq!(
        other.answers.end,
        ChildEnd::Exited {
            call: "start".to_owned(),
            code: 0
        }
    );
}

#[test]
fn whoever_waits_is_told_what_for() {
    let (_folder, library) = stub("cuda.c", "libcuda.so.1");
    let deadline = Duration::from_secs(3);
    let asked = Ask {
        deadline,
        init: false,
        ..ask(LibraryKind::Cuda, &library, "hang-version")
    };
    let mut waited_for = Vec::new();
    let heard = start(&asked).finish_saying(Duration::from_secs(2), &mut |call| {
        waited_for.push(call.to_owned());
    });
    assert_eq!(
        heard.answers.end,
        ChildEnd::TimedOut {
            call: "cuDriverGetVersion".to_owned(),
            after_ms: 3000
        }
    );
    assert_eq!(waited_for, ["cuDriverGetVersion"]);
}

#[test]
fn a_question_by_hand_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_gpudoctor"))
        .arg("__vendor-child")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}
