//! What `inspect` says of a file, said of the program that was named, on this machine.

use crate::facts::{Layer, Reading};
use crate::finding::{Finding, Fix, Severity};
use crate::inspect::{self, File, Machine, MachineGpu};
use crate::rules::{Ctx, Outcome, amd, framework};
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
    findings.extend(amd::code::program_lacks(ctx));
    // A driver that is missing or wrong is told by the driver's own rules.
    findings.retain(|f| f.id == id && !(f.layer == Layer::Driver && id == "library-not-found"));
    // So is a runtime of SYCL, which may lie where oneAPI's environment leads.
    let sycl = ctx.facts.intel.sycl.items();
    let is_told = |f: &Finding| {
        let mut needs = sycl.iter().filter(|need| need.user == program.path);
        needs.any(|need| f.component.as_ref() == Some(&need.soname))
    };
    findings.retain(|f| id != "library-not-found" || !is_told(f));
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
    // The copy that lacks it for this program is a fault of its own where the libraries are judged: one cause, told once.
    if id == "symbol-version-missing" {
        for finding in &mut findings {
            let taken = finding.evidence.first().map(|e| e.value.clone());
            let links = ctx.facts.libraries.links.items();
            let same = links
                .iter()
                .find(|link| !link.lacking.is_empty() && link.got == taken);
            finding.caused_by = same
                .and_then(|link| link.got.as_ref())
                .map(|path| format!("library-lacks-symbol:{path}"));
        }
    }
    match unknown.pop() {
        Some(why) if findings.is_empty() && id == "no-device-code-for-gpu" => Outcome::unknown(why),
        _ => Outcome::found(findings),
    }
}

/// The variables by which the driver ignores a part of the code, for the frameworks of the environment and for the program.
pub(super) fn ptx_jit_variable(ctx: &Ctx<'_>) -> Outcome {
    let own = jit_variable(ctx);
    match framework::ptx_jit_variable(ctx) {
        Outcome::Found(mut findings) => {
            findings.extend(own);
            Outcome::Found(findings)
        }
        other if own.is_empty() => other,
        _ => Outcome::Found(own),
    }
}

/// What a variable leaves of the program's own code, where that is too little for a GPU that the whole of it serves.
fn jit_variable(ctx: &Ctx<'_>) -> Vec<Finding> {
    const NO_CODE: &[&str] = &["no-device-code-for-gpu", "ptx-too-new-for-driver"];
    let Some(program) = ctx.facts.application.program.value() else {
        return Vec::new();
    };
    let is_set = |name: &&str| ctx.env(name).is_some_and(|value| value.trim() == "1");
    let variables = ["CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT"];
    let Some(variable) = variables.into_iter().find(is_set) else {
        return Vec::new();
    };
    let forced = variable == "CUDA_FORCE_PTX_JIT";
    let mut left = program.clone();
    for module in &mut left.modules {
        if forced {
            module.elf.clear();
        } else {
            module.ptx.clear();
        }
    }
    let machine = machine(ctx);
    let without_code = |file: &File| -> Vec<Finding> {
        let found = inspect::of_file(file, Some(&machine), ctx.matrix, &mut Vec::new());
        let found = found.into_iter();
        found.filter(|f| NO_CODE.contains(&f.id.as_str())).collect()
    };
    let before = without_code(program);
    let (takes, rest) = if forced {
        ("machine code", "PTX")
    } else {
        ("PTX", "machine code")
    };
    let lost = without_code(&left)
        .into_iter()
        .filter(|lost| !before.iter().any(|known| known.subjects == lost.subjects));
    let finding = |lost: Finding| {
        let on = lost.subjects.first().map_or("", String::as_str);
        let gpu = on.rsplit_once(" on ").map_or(on, |(_, gpu)| gpu);
        let mut finding = Finding::new(
            "ptx-jit-variable",
            Layer::Application,
            Severity::Error,
            format!("{variable}=1 leaves {} without code for {gpu}: it has only {takes} for it", program.path),
        )
        .complaining(Layer::Application)
        .component(variable)
        .subject(on)
        .detail(format!("With this variable the driver ignores {takes}, and of {rest} there is none that this GPU and driver run: `no kernel image is available for execution on the device`."))
        .evidence(variable, "1", "environment");
        finding.evidence.extend(lost.evidence);
        finding
            .source("CUDA programming guide: environment variables")
            .fix(
                Fix::at(Layer::Application, format!("do not set {variable}"))
                    .command(&["unset", variable]),
            )
    };
    lost.map(finding).collect()
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
        gpus,
        here: true,
        ..Machine::default()
    }
}
