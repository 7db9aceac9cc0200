//! Reports of some telling hosts, whole, as they were reviewed: text as a terminal of 80 columns shows it, and JSON.
//!
//! A changed snapshot is reviewed like code: read the difference as somebody who was woken up for it. To take a new one over,
//! run the test with `INSTA_UPDATE=always`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test code: what is not as reviewed has to stop the test"
)]

mod support;

use serde_json::Value;
use support::diagnosed::{Diagnosed, take};
use support::host;

/// A fault of each kind that is met most, a healthy machine with a GPU and one without.
const TELLING: [&str; 6] = [
    "container-gpu-lost-after-daemon-reload",
    "driver-mismatch-unattended-upgrade",
    "driver-too-old-for-cuda-13",
    "healthy-ci-runner-cuda-wheels-no-gpu",
    "healthy-desktop-runtime-12-8-on-driver-535",
    "kernel-nouveau-owns-gpus",
];

/// The host whose JSON report is kept with its facts.
const WITH_FACTS: &str = "driver-too-old-for-cuda-13";

fn diagnosed(case: &str) -> Diagnosed {
    let host = host::load(case);
    let facts = take(&host);
    Diagnosed::of(host, facts)
}

#[test]
fn text_and_json_of_telling_hosts() {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_prepend_module_to_snapshot(false);
    settings.set_snapshot_path("snapshots");
    for case in TELLING {
        let d = diagnosed(case);
        let mut json: Value = serde_json::from_str(&d.json()).unwrap();
        json["version"] = "[version]".into();
        json["matrix"]["as_of"] = "[date]".into();
        json["facts"]["version"] = "[version]".into();
        // The facts of one host show what a snapshot looks like; those of all would drown what is to be reviewed.
        if case != WITH_FACTS {
            json["facts"] = "[facts]".into();
        }
        settings.set_description(d.host.expect.clone());
        settings.bind(|| {
            insta::assert_snapshot!(case, d.text());
            insta::assert_json_snapshot!(format!("{case}.json"), json);
        });
    }
}
