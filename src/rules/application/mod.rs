//! Rules about the program or process that was named, and about the environment that it is started with. The fault may
//! lie in any layer.

mod process;
mod program;
mod setting;
mod start;
mod visible;

pub(crate) use visible::why_nothing_is_visible;

use super::{Need, Rule};
use crate::facts::Layer;
use crate::finding::Severity;

macro_rules! rule {
    ($id:literal, $layer:ident, $severity:ident, $check:expr) => {
        Rule {
            id: $id,
            layer: Layer::$layer,
            severity: Severity::$severity,
            need: Need::Detail,
            follows_from: &[],
            page: include_str!(concat!("../pages/", $id, ".md")),
            check: $check,
        }
    };
    // One of what is found in the program that was named.
    ($id:literal, $layer:ident, $severity:ident) => {
        rule!($id, $layer, $severity, |ctx| program::has(ctx, $id))
    };
}

/// What a program lacks of a system that is not the one that it was built for.
macro_rules! follows {
    ($id:literal, $layer:ident) => {
        Rule {
            follows_from: &["program-loader-missing"],
            ..rule!($id, $layer, Error)
        }
    };
}

pub(super) static RULES: &[Rule] = &[
    follows!("glibc-too-old", System),
    rule!("libstdcxx-too-old", System, Error),
    rule!(
        "program-loader-missing",
        System,
        Error,
        start::program_loader_missing
    ),
    rule!("device-code-packed-too-new", Driver, Warning),
    rule!("image-requirement-not-met", Driver, Error),
    rule!("ptx-too-new-for-driver", Driver, Error),
    rule!("image-has-driver-files", Container, Warning),
    rule!("file-damaged", Libraries, Error),
    follows!("library-not-found", Libraries),
    follows!("symbol-version-missing", Libraries),
    rule!(
        "cuda-visible-devices-hides-all",
        Application,
        Error,
        visible::cuda_visible_devices_hides_all
    ),
    rule!(
        "cuda-visible-devices-hides-some",
        Application,
        Warning,
        visible::cuda_visible_devices_hides_some
    ),
    rule!("device-code-compiled-at-start", Application, Note),
    rule!("device-code-partial", Application, Note),
    rule!(
        "framework-told-to-use-cpu",
        Application,
        Warning,
        setting::framework_told_to_use_cpu
    ),
    rule!(
        "interpreter-unusable",
        Application,
        Error,
        start::interpreter_unusable
    ),
    rule!("no-device-code-for-gpu", Application, Error),
    rule!(
        "program-other-architecture",
        Application,
        Error,
        start::program_other_architecture
    ),
    Rule {
        // What a process has loaded is all that is known of it.
        need: Need::Verdict,
        ..rule!(
            "process-library-replaced",
            Application,
            Warning,
            process::library_replaced
        )
    },
    rule!(
        "process-two-runtimes",
        Application,
        Note,
        process::two_runtimes
    ),
    rule!(
        "ptx-jit-variable",
        Application,
        Error,
        program::ptx_jit_variable
    ),
    rule!("runpath-to-build-machine", Application, Warning),
    rule!("runpath-to-stubs", Application, Warning),
];
