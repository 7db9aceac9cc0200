//! `gpudoctor demo`: reports of bundled hosts. They are snapshots of the hosts of the same cases in `fixtures/hosts`,
//! taken by gpudoctor itself.

use std::fmt::Write as _;

use super::{check, print, snapshot};
use crate::cli::{CheckArgs, DemoArgs};
use crate::diagnosis::Options;
use crate::error::Error;
use crate::matrix::Matrix;

/// Name, what it is, snapshot.
const HOSTS: &[(&str, &str, &str)] = &[
    (
        "driver-too-old",
        "a PyTorch for CUDA 13.0 on a workstation whose driver runs CUDA 12.4",
        include_str!("../../fixtures/snapshots/driver-too-old.json"),
    ),
    (
        "driver-library-mismatch",
        "the driver was upgraded overnight, and the old kernel module still runs",
        include_str!("../../fixtures/snapshots/driver-library-mismatch.json"),
    ),
    (
        "gpu-held-by-other-driver",
        "three GPUs that nouveau took at boot",
        include_str!("../../fixtures/snapshots/gpu-held-by-other-driver.json"),
    ),
    (
        "gpu-off-bus",
        "one of four GPUs has fallen off the bus",
        include_str!("../../fixtures/snapshots/gpu-off-bus.json"),
    ),
    (
        "uvm-missing",
        "nvidia-smi works, CUDA does not",
        include_str!("../../fixtures/snapshots/uvm-missing.json"),
    ),
    (
        "healthy",
        "eight H100 with four NVSwitches, all well",
        include_str!("../../fixtures/snapshots/healthy.json"),
    ),
];

pub(super) fn run(args: &DemoArgs) -> Result<u8, Error> {
    if args.list {
        let mut text = String::new();
        for (name, what, _) in HOSTS {
            let _ = writeln!(text, "{name:<26} {what}");
        }
        print(&text)?;
        return Ok(0);
    }
    let wanted = args.name.as_deref();
    let host = HOSTS
        .iter()
        .find(|(name, ..)| wanted.is_none_or(|wanted| wanted == *name));
    let Some((name, _, text)) = host else {
        let names: Vec<&str> = HOSTS.iter().map(|(name, ..)| *name).collect();
        return Err(Error::Usage(format!(
            "no demo is called `{}`: there are {}",
            wanted.unwrap_or_default().escape_debug(),
            names.join(", ")
        )));
    };
    let facts = snapshot::parse(text.as_bytes())
        .map_err(|reason| Error::Usage(format!("the bundled snapshot {name} {reason}")))?;
    let like_check = CheckArgs {
        report: args.report.clone(),
        ..CheckArgs::default()
    };
    // The host is sick, the demonstration is not: it succeeds.
    check::judge(
        &like_check,
        &facts,
        &Matrix::bundled(),
        &Options::default(),
        None,
    )?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::diagnose;

    #[test]
    fn every_demo_shows_what_its_name_says() {
        for (name, _, text) in HOSTS {
            let facts = snapshot::parse(text.as_bytes()).unwrap();
            let verdict = diagnose(&facts, &Matrix::bundled(), &Options::default()).verdict;
            let found = verdict.finding.unwrap_or_else(|| "healthy".to_owned());
            assert_eq!(found, *name);
        }
    }
}
