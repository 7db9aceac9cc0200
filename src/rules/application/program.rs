//! What `inspect` says of a file, said of the program that was named, on this machine.

use crate::facts::{Layer, Reading};
use crate::inspect::{self, Machine, MachineGpu};
use crate::rules::{Ctx, Outcome};
use crate::sysroot::file_name;
use crate::target;

/// The findings of one id about the program.
pub(super) fn has(ctx: &Ctx<'_>, id: &str) -> Outcome {
    let program = match &ctx.facts.application.program {
        Reading::Present { value, .. } => value,
        Reading::Absent { .. } | Reading::Unreadable { .. } => return Outcome::Clean,
    };
    let machine = machine(ctx);
    let mut unknown = Vec::new();
    let mut findings = inspect::of_file(program, Some(&machine), ctx.matrix, &mut unknown);
    // A driver that is missing or wrong is told by the driver's own rules.
    findings.retain(|f| f.id == id && !(f.layer == Layer::Driver && id == "library-not-found"));
    // What is wrong with the program itself is the application's own.
    for finding in findings.iter_mut().filter(|f| f.id == "file-damaged") {
        finding.layer = Layer::Application;
        for fix in &mut finding.fixes {
            fix.layer = Some(Layer::Application);
        }
    }
    // Libraries of this machine are none for a program of another one, 32-bit ones among them.
    let arch = ctx.facts.system.arch.value();
    if program
        .arch
        .as_ref()
        .zip(arch)
        .is_some_and(|(its, own)| its != own)
    {
        findings.retain(|f| f.id == "file-damaged");
    }
    // musl's loader searches otherwise than what was followed.
    let loader = program.interpreter.as_deref().unwrap_or_default();
    if file_name(loader).starts_with("ld-musl-") {
        findings
            .retain(|f| !["library-not-found", "symbol-version-missing"].contains(&f.id.as_str()));
    }
    match unknown.pop() {
        Some(why) if findings.is_empty() && id == "no-device-code-for-gpu" => Outcome::unknown(why),
        _ => Outcome::found(findings),
    }
}

/// This machine as `inspect` takes one. Its C library is not named: the loader's search tells more.
fn machine(ctx: &Ctx<'_>) -> Machine {
    let gpus = ctx.gpus().filter_map(|device| {
        Some(MachineGpu {
            name: ctx.gpu_name(device),
            asked: target::Gpu::Pci(device.vendor, device.device),
            capability: ctx.gpu(device)?.capability?,
        })
    });
    let mut gpus: Vec<MachineGpu> = gpus.collect();
    gpus.dedup();
    Machine {
        name: "this machine".to_owned(),
        driver: ctx.driver_version().map(|(version, _)| version.clone()),
        no_driver: false,
        gpus,
        glibc: None,
        here: true,
    }
}
