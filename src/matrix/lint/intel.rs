//! Holds the table of Intel's GPUs together.

use std::collections::BTreeSet;

use super::Report;

pub(super) fn check(report: &mut Report<'_>) {
    let rows = report.matrix.intel_gpus();
    report.ascending("intel_gpu", true, rows.iter().map(|row| (&row.name, row)));
    let mut seen = BTreeSet::new();
    for row in rows {
        let mut at = report.at("intel_gpu", &row.name);
        at.need(!row.devices.is_empty(), "no id");
        for id in &row.devices {
            let is_id = id.len() == 4
                && id
                    .bytes()
                    .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            at.need(is_id, format_args!("`{id}` is no PCI device id"));
            at.need(seen.insert(id), format_args!("{id} stands twice"));
        }
    }
}
