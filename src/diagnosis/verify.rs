//! How to see that a fix worked, as it has to be typed here: the same question again, and the interpreter that the fix is for.
//!
//! Rules say `gpudoctor` and `python -c ...`; what was asked for by `--python-env`, `--app` or `--pid`, and whose Python it
//! is, the facts of the consumer know.

use crate::facts::{ConsumerKind, Facts};
use crate::finding::{Finding, shell_line, shell_quote};

/// Completes the checks of all fixes.
pub(super) fn fill(facts: &Facts, findings: &mut [Finding]) {
    let again = again(facts);
    let python = python(facts);
    let fixes = findings.iter_mut().flat_map(|finding| &mut finding.fixes);
    for check in fixes.filter_map(|fix| fix.verify.as_mut()) {
        if check == "gpudoctor" {
            check.clone_from(&again);
        } else if let (Some(python), Some((word, rest))) = (&python, check.split_once(' '))
            && ["python", "python3"].contains(&word)
            && rest.starts_with("-c ")
        {
            *check = format!("{python} {rest}");
        }
    }
}

/// The command that asks the same.
fn again(facts: &Facts) -> String {
    const ASKED: &str = "--python-env";
    let consumer = &facts.consumer;
    let prefix = consumer.prefix.value().map(String::as_str);
    let mut words = vec!["gpudoctor"];
    let pid;
    match consumer.kind {
        ConsumerKind::Machine => {}
        ConsumerKind::Environment => {
            if consumer.why.starts_with(ASKED) {
                words.extend([ASKED, consumer.what.as_str()]);
            }
        }
        ConsumerKind::Application => {
            words.extend(["--app", consumer.what.as_str()]);
            // Of a program the environment is the one that was named; of a script that may be another.
            let named = consumer.why == "--app" || consumer.why.contains("(--python-env");
            if let Some(prefix) = prefix.filter(|_| named) {
                words.extend([ASKED, prefix]);
            }
        }
        ConsumerKind::Process => {
            if let Some(process) = facts.application.process.value() {
                pid = process.pid.to_string();
                words.extend(["--pid", pid.as_str()]);
            }
        }
    }
    shell_line(&words)
}

/// The interpreter of the environment.
fn python(facts: &Facts) -> Option<String> {
    // There the plain word is it, as it is in the fix.
    const ACTIVE: &[&str] = &["$VIRTUAL_ENV", "$CONDA_PREFIX", "python3 on PATH"];
    let consumer = &facts.consumer;
    let prefix = consumer
        .prefix
        .value()
        .filter(|_| !ACTIVE.contains(&consumer.why.as_str()))?;
    Some(shell_quote(&format!(
        "{}/bin/python3",
        prefix.trim_end_matches('/')
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Consumer, Layer, Reading};
    use crate::finding::{Fix, Severity};

    fn checked(facts: &Facts, how: &str) -> String {
        let fix = Fix::at(Layer::Runtime, "x").verify(how);
        let mut findings = [Finding::new("x", Layer::Runtime, Severity::Note, "x").fix(fix)];
        fill(facts, &mut findings);
        let mut fixes = findings.iter().flat_map(|f| &f.fixes);
        fixes.next().and_then(|f| f.verify.clone()).unwrap()
    }

    fn facts(kind: ConsumerKind, what: &str, why: &str) -> Facts {
        Facts {
            consumer: Consumer {
                kind,
                what: what.to_owned(),
                why: why.to_owned(),
                prefix: Reading::present("/v e".to_owned(), why),
                ..Consumer::default()
            },
            ..Facts::default()
        }
    }

    #[test]
    fn the_check_asks_the_same_again() {
        use ConsumerKind::{Application, Environment, Machine};
        for (kind, what, why, check) in [
            (Machine, "this machine", "", "gpudoctor"),
            (Environment, "./F", "$VIRTUAL_ENV", "gpudoctor"),
            (
                Environment,
                "./F",
                "--python-env",
                "gpudoctor --python-env ./F",
            ),
            (
                Environment,
                "/v e",
                "--python-env",
                "gpudoctor --python-env '/v e'",
            ),
            (
                Application,
                "./a",
                "--app",
                "gpudoctor --app ./a --python-env '/v e'",
            ),
            (
                Application,
                "./a",
                "--app, in /x ($VIRTUAL_ENV)",
                "gpudoctor --app ./a",
            ),
        ] {
            assert_eq!(checked(&facts(kind, what, why), "gpudoctor"), check);
        }
        let facts = facts(Environment, "./F", "--python-env");
        assert_eq!(
            checked(&facts, "python -c \"import torch\""),
            "'/v e/bin/python3' -c \"import torch\""
        );
        assert_eq!(checked(&facts, "nvidia-smi -L"), "nvidia-smi -L");
    }
}
