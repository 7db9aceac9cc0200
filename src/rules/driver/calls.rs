//! Calls into the driver's libraries that go wrong: they hang, crash, end the process, print, take long, or answer an
//! error that something else explains. The number alone never says which layer is at fault.

use crate::facts::{ChildEnd, Layer, LibraryAnswers, Reading};
use crate::finding::{Finding, Fix, Severity};
use crate::rules::driver::nodes::nodes_come_on_first_use;
use crate::rules::stack::{cuda_code, nvml_code, verified};
use crate::rules::{Ctx, Need, Outcome, gpu_state};
use crate::sysroot::file_name;

/// A call that takes longer than this is slow, in milliseconds.
const SLOW_MS: u64 = 5000;

/// `CUDA_ERROR_NO_DEVICE` of cuda.h.
const NO_DEVICE: i64 = 100;

/// The answers of all libraries that were asked.
fn asked<'a>(ctx: &'a Ctx<'_>) -> impl Iterator<Item = &'a LibraryAnswers> {
    let vendor = &ctx.facts.vendor;
    vendor
        .libcuda
        .value()
        .into_iter()
        .chain(vendor.libnvidia_ml.value())
        .chain(vendor.cudart.items())
}

/// A finding about one library and the call that went wrong in it.
fn about(
    ctx: &Ctx<'_>,
    id: &str,
    severity: Severity,
    answers: &LibraryAnswers,
    call: &str,
    what: &str,
) -> Finding {
    // A libcudart that dies while it is loaded has not reached the driver yet.
    let is_runtime = ctx
        .facts
        .vendor
        .cudart
        .items()
        .iter()
        .any(|a| a.path == answers.path);
    let layer = if is_runtime && matches!(call, "start" | "dlopen" | "cudaRuntimeGetVersion") {
        Layer::Runtime
    } else {
        Layer::Driver
    };
    Finding::new(
        id,
        layer,
        severity,
        format!("{} {what} in {call}", file_name(&answers.path)),
    )
    .complaining(Layer::Runtime)
    .component(file_name(&answers.path))
    .subject(answers.path.clone())
    .evidence("call", call, answers.path.clone())
}

/// Whether this is the library that every way to the GPU leads through.
fn weight(ctx: &Ctx<'_>, answers: &LibraryAnswers) -> Severity {
    if ctx
        .facts
        .vendor
        .libnvidia_ml
        .value()
        .is_some_and(|a| a.path == answers.path)
    {
        Severity::Warning
    } else {
        Severity::Error
    }
}

/// What to do about a library that misbehaves.
fn mend(ctx: &Ctx<'_>, finding: Finding) -> Finding {
    finding
        .fix(verified(ctx, Fix::at(Layer::Driver, "look at the kernel log for what the driver says, and reboot if processes hang in it").line("sudo dmesg | grep -iE 'nvrm|xid'").cost("root")))
        .fix(Fix::at(Layer::Driver, "install the driver's user-space libraries again, if the file is not the driver's own").cost("root").second("right only where the library itself is damaged or a stand-in"))
}

pub(super) fn driver_library_hangs(ctx: &Ctx<'_>) -> Outcome {
    Outcome::found(asked(ctx).filter_map(|answers| {
        let ChildEnd::TimedOut { call, after_ms } = &answers.end else { return None };
        let seconds = after_ms / 1000;
        let finding = about(ctx, "driver-library-hangs", weight(ctx, answers), answers, call, "hangs")
            .evidence("waited", format!("{seconds} s, then the child was killed"), "deadline (--timeout)")
            .detail("The call did not come back. A driver that waits for a GPU that no longer answers, a fabric that is not ready, or a stuck kernel thread are the usual causes; every CUDA program would hang at the same place.");
        Some(mend(ctx, finding))
    }))
}

pub(super) fn driver_library_crashes(ctx: &Ctx<'_>) -> Outcome {
    Outcome::found(asked(ctx).filter_map(|answers| {
        let (call, what, value) = match &answers.end {
            ChildEnd::Signal { call, signal } => (call, "crashes", format!("signal {signal}")),
            ChildEnd::Garbled { call } => (call, "breaks the conversation", "what came back was no answer".to_owned()),
            _ => return None,
        };
        let finding = about(ctx, "driver-library-crashes", weight(ctx, answers), answers, call, what)
            .evidence("child ended by", value, "wait status")
            .detail("The process died inside the library, as every CUDA program would. The file is damaged, does not go with the libraries that it needs, or is not what its name says.");
        Some(mend(ctx, finding))
    }))
}

pub(super) fn driver_library_exits(ctx: &Ctx<'_>) -> Outcome {
    Outcome::found(asked(ctx).filter_map(|answers| {
        let ChildEnd::Exited { call, code } = &answers.end else { return None };
        let finding = about(ctx, "driver-library-exits", weight(ctx, answers), answers, call, "ends the process")
            .evidence("exit code", code.to_string(), "wait status")
            .detail("The library called exit(): the program that uses it ends without an error of its own. NVIDIA's libraries do not do that; something stands in for them.");
        Some(mend(ctx, finding))
    }))
}

/// A library that writes to the program's standard output.
pub(super) fn driver_library_prints(ctx: &Ctx<'_>) -> Outcome {
    Outcome::found(asked(ctx).filter_map(|answers| {
        let call = answers.calls.iter().find(|c| c.printed.is_some())?;
        let finding = about(ctx, "driver-library-prints", weight(ctx, answers), answers, &call.name, "prints on standard output")
            .evidence("printed", call.printed.clone().unwrap_or_default(), "standard output of the child")
            .detail("NVIDIA's libraries print nothing. A library that does so is a stand-in or a shim in front of the real one, and what it prints ends up in the output of every program that uses it.");
        Some(finding.fix(verified(ctx, Fix::at(Layer::Driver, format!("find out where {} comes from, and install the driver's own libraries again if it is not meant to be there", answers.path)))))
    }))
}

pub(super) fn driver_library_slow(ctx: &Ctx<'_>) -> Outcome {
    Outcome::found(asked(ctx).filter_map(|answers| {
        let call = answers.calls.iter().filter(|c| c.slow_ms.unwrap_or(0) >= SLOW_MS).max_by_key(|c| c.slow_ms)?;
        let seconds = call.slow_ms.unwrap_or(0) / 1000;
        let finding = about(ctx, "driver-library-slow", Severity::Warning, answers, &call.name, &format!("takes {seconds} s"))
            .detail("Every program that starts pays this. Without a persistence daemon the driver initialises the GPU anew for each of them.")
            .reading("persistence daemon", &ctx.facts.driver.persistenced_socket);
        Some(finding.fix(Fix::at(Layer::Driver, "run the persistence daemon").line("sudo systemctl enable --now nvidia-persistenced").cost("root")))
    }))
}

/// cuInit fails. Other findings explain it; where none does, and the nodes could be opened, it stands alone.
pub(super) fn cuda_init_failed(ctx: &Ctx<'_>) -> Outcome {
    let Some(answers) = ctx.cuda_answers() else {
        return match &ctx.facts.vendor.libcuda {
            Reading::Unreadable { reason } if ctx.calls_made() => {
                Outcome::unknown(format!("what libcuda answers: {reason}"))
            }
            _ => Outcome::Clean,
        };
    };
    let Some(code) = ctx.cu_init().filter(|code| *code != 0) else {
        return match ctx.facts.vendor.libcuda.value().map(|a| &a.end) {
            Some(ChildEnd::NotStarted { reason } | ChildEnd::NotTrusted { reason })
                if ctx.calls_made() =>
            {
                Outcome::unknown(format!("cuInit: {reason}"))
            }
            _ => ctx.withheld().map_or(Outcome::Clean, |reason| {
                Outcome::unknown(format!("cuInit was not called: {reason}"))
            }),
        };
    };
    // Asked on request on a machine without a driver: 100 is then the right answer.
    // In a container of which files of the driver were asked for and no GPU it is the right answer too.
    if ctx.declines_gpus() && code == NO_DEVICE {
        return Outcome::Clean;
    }
    let hidden = ctx.in_container() && ctx.module_loaded().is_none();
    let driver_here =
        ctx.module_loaded() == Some(true) || hidden || !ctx.plain_linux() || ctx.in_gvisor();
    if !driver_here && ctx.gpus().next().is_none() {
        return Outcome::Clean;
    }
    // A GPU that is bound to nothing and a module that is not loaded are told by their own rules.
    if !driver_here {
        return Outcome::found([finding(ctx, answers, code, Severity::Note)]);
    }
    let symptom = |alone: String, need: Need| Outcome::Symptom {
        finding: Box::new(finding(ctx, answers, code, Severity::Error)),
        alone,
        need,
    };
    // The child is not allowed what a setuid helper would do for others: a missing node proves nothing then.
    if let Some(how) = nodes_come_on_first_use(ctx) {
        return symptom(
            format!(
                "whether CUDA works: cuInit answers {} while device nodes are missing, and {how}",
                cuda_code(code)
            ),
            Need::Detail,
        );
    }
    if !ctx.all_nodes_open() {
        return symptom(
            format!(
                "why cuInit answers {}: not all device nodes could be opened by a restricted child",
                cuda_code(code)
            ),
            Need::Verdict,
        );
    }
    if ctx.in_container() {
        return symptom(
            format!("why cuInit answers {} in this container", cuda_code(code)),
            Need::Verdict,
        );
    }
    Outcome::found([finding(ctx, answers, code, Severity::Error)])
}

fn finding(ctx: &Ctx<'_>, answers: &LibraryAnswers, code: i64, severity: Severity) -> Finding {
    let text = cuda_code(code);
    let mut finding = Finding::new("cuda-init-failed", Layer::Driver, severity, format!("cuInit answers {text}, so no CUDA program can start"))
        .complaining(Layer::Runtime)
        .component("libcuda.so.1")
        .detail("The CUDA driver API refuses to start. The number says what it noticed, not what is wrong; what explains it is listed as its cause where something does.")
        .evidence("cuInit", text, answers.path.clone());
    if let Some(code) = ctx.nvml_init() {
        let meaning = if code == 0 {
            "0: NVML works".to_owned()
        } else {
            nvml_code(code)
        };
        finding = finding.evidence(
            "nvmlInit",
            meaning,
            ctx.nvml_answers().map_or("", |a| a.path.as_str()),
        );
    }
    for open in ctx
        .facts
        .vendor
        .opens
        .items()
        .iter()
        .filter(|o| o.result != "ok" && crate::rules::system::needed_by_cuda(&o.path))
        .take(8)
    {
        finding = finding.evidence(format!("open {}", open.path), open.result.clone(), "open()");
    }
    if ctx.in_wsl() && !ctx.in_container() {
        return super::wsl::with_fixes_in_windows(ctx, finding);
    }
    if ctx.on_tegra() {
        return finding.fix(
            Fix::at(
                Layer::Driver,
                "read what the GPU's driver says in the kernel log",
            )
            .line("sudo dmesg | grep -iE 'nvgpu|nvmap|nvhost'")
            .cost("root")
            .verify("gpudoctor"),
        );
    }
    gpu_state::with_last_xid(ctx, finding)
        .fix(verified(
            ctx,
            Fix::at(Layer::Driver, "read what the driver says in the kernel log")
                .line("sudo dmesg | grep -iE 'nvrm|xid'")
                .cost("root"),
        ))
        .fix(
            Fix::at(Layer::Driver, "reload the driver or reboot")
                .cost("root, reboot")
                .second("may bring the GPU back without telling why it was gone"),
        )
}

/// nvmlInit fails: nvidia-smi and monitoring do not work; CUDA may.
pub(super) fn nvml_init_failed(ctx: &Ctx<'_>) -> Outcome {
    let (Some(answers), Some(code)) = (
        ctx.nvml_answers(),
        ctx.nvml_init().filter(|code| *code != 0),
    ) else {
        return Outcome::Clean;
    };
    if ctx.plain_linux() && ctx.module_loaded() != Some(true)
        || ctx.on_tegra()
        || ctx.declines_gpus()
    {
        return Outcome::Clean;
    }
    let finding = Finding::new("nvml-init-failed", Layer::Driver, Severity::Warning, format!("nvmlInit answers {}, so nvidia-smi does not work", nvml_code(code)))
        .component("libnvidia-ml.so.1")
        .detail("NVML is the management interface; CUDA does not need it, but monitoring, schedulers and container tools do.")
        .evidence("nvmlInit", nvml_code(code), answers.path.clone());
    let finding = if ctx.in_wsl() && !ctx.in_container() {
        // One refusal of Windows, told by two libraries.
        let mut finding = super::wsl::with_fixes_in_windows(ctx, finding);
        finding.caused_by = Some("cuda-init-failed".to_owned());
        finding
    } else {
        finding.fix(verified(ctx, Fix::at(Layer::Driver, "see what is listed as its cause; without one, the kernel log says what the driver refuses").line("sudo dmesg | grep -iE 'nvrm|xid'").cost("root")))
    };
    if ctx.all_nodes_open() && !ctx.in_container() {
        return Outcome::found([finding]);
    }
    match nodes_come_on_first_use(ctx) {
        Some(how) => Outcome::Symptom {
            finding: Box::new(finding),
            alone: format!(
                "whether NVML works: nvmlInit answers {} while device nodes are missing, and {how}",
                nvml_code(code)
            ),
            need: Need::Detail,
        },
        None => Outcome::Symptom {
            finding: Box::new(finding),
            alone: if ctx.all_nodes_open() {
                format!("why nvmlInit answers {} in this container", nvml_code(code))
            } else {
                format!(
                    "why nvmlInit answers {}: not all device nodes could be opened by a restricted child",
                    nvml_code(code)
                )
            },
            need: Need::Verdict,
        },
    }
}
