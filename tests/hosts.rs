//! Every host of `fixtures/hosts` end to end: laid out, probed, diagnosed, and held against what it says is wrong.
//!
//! A host is data: to add a case, add a file there. What is checked here is what gpudoctor makes of the hosts; that they
//! are laid out as described is checked in `layout.rs`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code: what is not as described has to stop the test"
)]

mod support;

use std::collections::BTreeSet;

use gpudoctor::diagnosis::Status;
use gpudoctor::facts::{Facts, Layer, PciDevice, Vendor};
use gpudoctor::finding::{Finding, Severity};
use gpudoctor::rules;
use serde_json::Value;
use support::diagnosed::{Diagnosed, all, judge, named};
use support::host::Host;

/// The layers that are right as an answer.
fn expected_layers(host: &Host) -> Vec<Layer> {
    let name = match host.expect_layer.as_str() {
        "kernel" => return vec![Layer::System, Layer::Driver],
        "build" => "toolchain",
        other => other,
    };
    let names = if host.expect_layers.is_empty() {
        vec![name.to_owned()]
    } else {
        host.expect_layers.clone()
    };
    names
        .iter()
        .map(|name| {
            name.parse()
                .unwrap_or_else(|e| panic!("{}: {e}", host.case))
        })
        .collect()
}

/// Collects what falls short, host by host, and fails with all of it.
fn check<'a>(
    hosts: impl Iterator<Item = &'a Diagnosed>,
    judge: impl Fn(&Diagnosed) -> Vec<String> + Sync,
) {
    let hosts: Vec<_> = hosts.collect();
    assert!(!hosts.is_empty(), "no host was judged");
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let judge = &judge;
    let short: Vec<String> = std::thread::scope(|scope| {
        let running: Vec<_> = hosts
            .chunks(hosts.len().div_ceil(threads))
            .map(|some| {
                scope.spawn(move || {
                    some.iter()
                        .flat_map(|d| {
                            let short = judge(d).into_iter();
                            short.map(|s| format!("{}: {s}", d.host.case))
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let done = running.into_iter().map(|thread| thread.join().unwrap());
        done.flatten().collect()
    });
    assert!(short.is_empty(), "\n{}", short.join("\n"));
}

fn wrong_exit(d: &Diagnosed) -> Option<String> {
    let usual = vec![i32::from(!d.host.is_healthy())];
    let right = if d.host.exit.is_empty() {
        &usual
    } else {
        &d.host.exit
    };
    (!right.contains(&d.exit())).then(|| format!("exit {}, not one of {right:?}", d.exit()))
}

/// What a reader can see of a finding without `-v`'s help: text dumped elsewhere does not count as said.
fn said(finding: &Finding) -> String {
    let evidence = finding
        .evidence
        .iter()
        .map(|e| format!("{} {} {}", e.what, e.value, e.source));
    let fixes = finding
        .fixes
        .iter()
        .map(|f| format!("{} {}", f.summary, f.commands.join(" ")));
    let component = finding.component.clone().unwrap_or_default();
    [finding.title.clone(), component]
        .into_iter()
        .chain(evidence)
        .chain(fixes)
        .collect::<Vec<_>>()
        .join(" ")
        .to_lowercase()
}

/// The finding at the end of a chain of causes.
fn root_of<'a>(finding: &'a Finding, all: &'a [Finding]) -> &'a Finding {
    let mut at = finding;
    while let Some(cause) = &at.caused_by {
        at = all.iter().find(|f| f.key == *cause).unwrap();
    }
    at
}

#[test]
fn each_sick_host_is_blamed_on_the_right_layer_and_told_what_mends_it() {
    let sick = all().iter().filter(|d| !d.host.is_healthy());
    check(sick, |d| {
        let verdict = &d.diagnosis.verdict;
        let findings = &d.diagnosis.findings;
        let mut short = Vec::new();
        short.extend(wrong_exit(d));
        let Some(root) = findings
            .iter()
            .find(|f| Some(&f.key) == verdict.key.as_ref())
        else {
            return vec![format!("no fault found: {}", verdict.summary)];
        };
        let expected = expected_layers(&d.host);
        if !verdict.layer.is_some_and(|layer| expected.contains(&layer)) {
            short.push(format!("blames {}, not {expected:?}", root.layer));
        }
        let said = said(root);
        assert!(!d.host.expect_says.is_empty(), "{}", d.host.case);
        for word in &d.host.expect_says {
            if !said.contains(&word.to_lowercase()) {
                short.push(format!("{} does not name {word}", root.id));
            }
        }
        for finding in findings.iter().filter(|f| f.severity == Severity::Error) {
            if root_of(finding, findings).key != root.key && !d.host.also.contains(&finding.id) {
                short.push(format!("a second fault: {} beside {}", finding.id, root.id));
            }
        }
        if root.fixes.is_empty() {
            short.push(format!("{} has no fix", root.id));
        }
        short
    });
}

#[test]
fn no_healthy_host_is_alarmed() {
    check(all().iter().filter(|d| d.host.is_healthy()), |d| {
        let worst = match d.host.worst.as_deref() {
            Some("note") => Severity::Note,
            _ => Severity::Warning,
        };
        let bad = d
            .diagnosis
            .findings
            .iter()
            .filter(|f| f.severity > worst)
            .map(|f| format!("{}: {}", f.severity.id(), f.title));
        let status = match d.diagnosis.verdict.status {
            Status::Ok | Status::Warning => None,
            other => Some(format!("{}: {}", other.id(), d.diagnosis.verdict.summary)),
        };
        bad.chain(status).chain(wrong_exit(d)).collect()
    });
}

#[test]
fn each_host_provokes_the_findings_that_it_is_there_for() {
    check(all().iter(), |d| {
        let found = &d.diagnosis.findings;
        d.host
            .provoked()
            .into_iter()
            .filter_map(|(id, severity)| {
                let severities: Vec<_> = found
                    .iter()
                    .filter(|f| f.id == id)
                    .map(|f| f.severity.id())
                    .collect();
                (!severities.contains(&severity.id()))
                    .then(|| format!("no {} {id}; found {severities:?}", severity.id()))
            })
            .collect()
    });
}

#[test]
fn each_twin_stays_quiet() {
    check(all().iter(), |d| {
        d.host
            .twin_of
            .iter()
            .filter(|id| {
                // A rule that gives notes only has to be silent; another may still have something to note.
                let worst = rules::by_id(id).map_or(Severity::Note, |rule| rule.severity);
                let loud = d.ids(worst.min(Severity::Warning));
                loud.contains(&id.as_str())
            })
            .map(|id| format!("{id} is found on its healthy twin"))
            .collect()
    });
}

#[test]
fn a_missing_gpu_is_an_error_only_where_one_is_demanded() {
    for case in [
        "healthy-bare-host",
        "healthy-ci-runner-cuda-wheels-no-gpu",
        "healthy-lone-nvidiactl",
        "healthy-vm-without-module-list",
    ] {
        let relaxed = named(case);
        assert_eq!(relaxed.diagnosis.verdict.status, Status::Ok, "{case}");
        assert_eq!(relaxed.exit(), 0, "{case}");
        let demanding = judge(&relaxed.facts, true);
        assert_eq!(demanding.verdict.status, Status::Fault, "{case}");
        assert_eq!(demanding.verdict.layer, Some(Layer::Hardware), "{case}");
        assert_eq!(
            demanding.verdict.finding.as_deref(),
            Some("gpu-absent"),
            "{case}"
        );
    }
}

/// Whether a host has GPUs of other makers alone, and nothing that is built for NVIDIA's.
fn is_of_others(facts: &Facts) -> bool {
    let pci = facts.hardware.pci.items().iter();
    let here: Vec<Vendor> = pci.filter_map(PciDevice::gpu_of).collect();
    let cuda = facts.framework.frameworks.items().iter();
    let mut cuda = cuda.filter(|framework| framework.cuda.is_present());
    !here.is_empty()
        && !here.contains(&Vendor::Nvidia)
        && facts.driver.module_loaded() != Some(true)
        && !facts.driver.libcuda.is_present()
        && !facts.system.wsl.is_present()
        && facts.runtime.cudart.items().is_empty()
        && cuda.next().is_none()
}

/// Where NVIDIA has no part in it, no finding is about NVIDIA's.
#[test]
fn nothing_is_said_of_nvidia_where_there_is_nothing_of_it() {
    let hosts: Vec<&Diagnosed> = all().iter().filter(|d| is_of_others(&d.facts)).collect();
    assert!(hosts.len() > 40, "{} hosts", hosts.len());
    check(hosts.into_iter(), |d| {
        let findings = d.diagnosis.findings.iter();
        let of_nvidia = findings.filter(|f| f.vendor.as_deref() == Some("nvidia"));
        of_nvidia
            .map(|f| format!("{}: {}", f.id, f.title))
            .collect()
    });
}

#[test]
fn findings_are_well_formed() {
    check(all().iter(), |d| {
        let findings = &d.diagnosis.findings;
        let mut short = Vec::new();
        let mut keys = BTreeSet::new();
        for f in findings {
            let mut must = |is: bool, what: &str| {
                if !is {
                    short.push(format!("{} {what}: {}", f.key, f.title));
                }
            };
            let rule = rules::by_id(&f.id);
            must(rule.is_some(), "has no rule");
            must(
                rule.is_some_and(|r| f.severity <= r.severity),
                "is worse than its rule says",
            );
            must(keys.insert(&f.key), "has the key of another finding");
            must(
                f.caused_by
                    .as_ref()
                    .is_none_or(|key| findings.iter().any(|c| c.key == *key)),
                "has a cause that is not there",
            );
            must(
                !f.title.is_empty() && !f.title.ends_with('.') && !f.title.contains('\n'),
                "has no title of one line without full stop",
            );
            must(
                f.severity == Severity::Note || !f.fixes.is_empty(),
                "has no fix",
            );
            must(!f.evidence.is_empty(), "has no evidence");
            must(
                f.evidence.iter().all(|e| !e.source.is_empty()),
                "has evidence without its place",
            );
        }
        let roots = &d.diagnosis.verdict.roots;
        if d.diagnosis.verdict.key.as_ref() != roots.first()
            && d.diagnosis.verdict.status != Status::Unknown
        {
            short.push("the verdict is not the first root".to_owned());
        }
        short
    });
}

/// Facts from a snapshot as text, as `--from` reads it.
fn read_back(snapshot: &str) -> Facts {
    serde_json::from_str(snapshot).unwrap()
}

#[test]
fn a_snapshot_reads_back_to_the_same_report() {
    check(all().iter(), |d| {
        let snapshot = serde_json::to_string_pretty(&d.facts).unwrap();
        let again = Diagnosed::of(d.host.clone(), read_back(&snapshot));
        let mut short = Vec::new();
        for (what, first, second) in [
            ("text", d.text(), again.text()),
            ("JSON", d.json(), again.json()),
        ] {
            if first != second {
                short.push(format!("another {what} report:\n{first}\n---\n{second}"));
            }
        }
        if again.facts != d.facts {
            short.push("other facts".to_owned());
        }
        short
    });
}

/// A snapshot without some keys, named by one or two levels: `driver`, `driver.libcuda`.
fn without(snapshot: &Value, keys: &[&str]) -> Facts {
    let mut snapshot = snapshot.clone();
    for key in keys {
        let (part, name) = key.rsplit_once('.').unwrap_or(("", key));
        let part = if part.is_empty() {
            Some(&mut snapshot)
        } else {
            snapshot.get_mut(part)
        };
        let removed = part
            .and_then(Value::as_object_mut)
            .and_then(|o| o.remove(name));
        assert!(removed.is_some(), "no key {key}");
    }
    serde_json::from_value(snapshot).unwrap()
}

/// Every key of the first two levels. The answers of one reading (`present`) are not keys of the snapshot.
fn keys_of(snapshot: &Value) -> Vec<String> {
    let mut keys = Vec::new();
    for (name, value) in snapshot.as_object().unwrap() {
        keys.push(name.clone());
        let below = value.as_object().into_iter().flatten();
        keys.extend(
            below
                .filter(|(key, _)| !["present", "absent", "unreadable"].contains(&key.as_str()))
                .map(|(key, _)| format!("{name}.{key}")),
        );
    }
    keys
}

#[test]
fn a_missing_key_accuses_nobody_and_clears_nobody() {
    check(all().iter().filter(|d| d.host.is_healthy()), |d| {
        let snapshot = serde_json::to_value(&d.facts).unwrap();
        let mut short = Vec::new();
        for key in keys_of(&snapshot) {
            let less = judge(&without(&snapshot, &[&key]), false);
            if less.verdict.status == Status::Fault {
                short.push(format!("without {key}: {}", less.verdict.summary));
            }
            let reasons = less.layers.iter().filter_map(|l| l.reason.as_ref());
            if let Some(bug) = reasons.chain(&less.not_seen).find(|r| r.contains("a bug")) {
                short.push(format!("without {key}: {bug}"));
            }
        }
        short
    });
}

#[test]
fn without_what_a_verdict_needs_there_is_none() {
    let module = [
        "driver.modules",
        "driver.sys_version",
        "driver.proc_version",
    ];
    for (case, keys, expect_gpu) in [
        ("healthy-minor-version-compatibility", &module[..], false),
        (
            "healthy-minor-version-compatibility",
            &["driver.libcuda"],
            false,
        ),
        ("healthy-minor-version-compatibility", &["driver"], false),
        (
            "healthy-minor-version-compatibility",
            &["runtime.cudart"],
            false,
        ),
        ("healthy-minor-version-compatibility", &["runtime"], false),
        ("healthy-bare-host", &["hardware.pci"], true),
        ("healthy-bare-host", &["hardware"], true),
    ] {
        let d = named(case);
        let snapshot = serde_json::to_value(&d.facts).unwrap();
        let facts = without(&snapshot, keys);
        let verdict = judge(&facts, expect_gpu).verdict;
        assert_eq!(
            verdict.status,
            Status::Unknown,
            "{case} without {keys:?}: {}",
            verdict.summary
        );
        assert!(
            verdict.summary.contains("not recorded"),
            "{case}: {}",
            verdict.summary
        );
    }
}

#[test]
fn own_words_fit_into_80_columns() {
    check(all().iter(), |d| {
        let text = d.text();
        // The first line is for logs and titles, commands are for copying, and what cannot be broken is the host's.
        let is_free = |line: &str| {
            let indent = line.len() - line.trim_start().len();
            // Seven columns in the answer, nine in the details.
            [7, 9].contains(&indent) || line.split(' ').any(|word| word.len() > 50)
        };
        text.lines()
            .skip(1)
            .filter(|line| line.chars().count() > 80 && !is_free(line))
            .map(str::to_owned)
            .collect()
    });
}
