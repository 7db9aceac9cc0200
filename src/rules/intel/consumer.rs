//! What the consumer itself does: a build for another vendor, variables that hide GPUs.

use super::VERIFY;
use crate::facts::{FileKind, Layer, Reading, Vendor};
use crate::finding::{Finding, Fix, Severity};
use crate::read::icd::stem;
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::{file_name, parent};

/// A build for CUDA where the only GPUs are Intel's and their compute runtime was installed.
pub(super) fn cuda_build_on_intel(ctx: &Ctx<'_>) -> Outcome {
    let Some(torch) = ctx.framework("torch") else {
        return Outcome::Clean;
    };
    let Some(cuda) = torch.cuda.value() else {
        return Outcome::Clean;
    };
    if !ctx.plain_linux()
        || !ctx.is_of_alone(Vendor::Intel)
        || ctx.module_loaded() != Some(false)
        || ctx.facts.driver.libcuda.is_present()
        || ctx.intel_nodes().is_empty()
    {
        return Outcome::Clean;
    }
    // The index of Python packages has the build for CUDA as the usual one: who computes on the processor takes it as well.
    let runtime = &ctx.facts.intel.level_zero_driver;
    let Some(installed) = runtime
        .value()
        .filter(|library| library.kind == FileKind::Library)
    else {
        return Outcome::Clean;
    };
    let gpus = ctx.driven_intel_gpus().into_iter();
    let names: Vec<String> = gpus.map(|gpu| ctx.name_of(gpu)).collect();
    let shown = match torch.version.value() {
        Some(version) => format!("torch {version}"),
        None => "torch".to_owned(),
    };
    let title = format!(
        "{shown} is built for CUDA {cuda}, and the GPU here is Intel's ({}): it runs on the processor",
        in_words(&names)
    );
    Outcome::found([Finding::new(
        "framework-cuda-build-on-intel",
        Layer::Framework,
        Severity::Warning,
        title,
    )
    .of(Vendor::Intel)
    .component("torch")
    .subject(torch.site.clone())
    .detail("A build of PyTorch is for the GPUs of one maker. The one that `pip install torch` takes by itself is for CUDA; the one for Intel's has +xpu in its version.")
    .evidence("torch is built for", format!("CUDA {cuda}"), torch.cuda.source())
    .evidence("GPUs that compute here", in_words(&names), ctx.facts.hardware.pci.source())
    .evidence("NVIDIA GPUs", "none", ctx.facts.hardware.pci.source())
    .evidence("Level Zero's driver", installed.path.clone(), runtime.source())
    .fix(
        Fix::at(
            Layer::Framework,
            "install the build for Intel GPUs (+xpu), by the command that the PyTorch selector gives for XPU",
        )
        .verify(VERIFY),
    )
    .source("PyTorch documentation: getting started on Intel GPU")])
}

/// The runtime of SYCL, in which torch for Intel GPUs and what oneAPI builds are written, is not found.
pub(super) fn sycl_runtime_missing(ctx: &Ctx<'_>) -> Outcome {
    let program = ctx.facts.application.program.value();
    let by_program =
        program.is_some_and(|program| program.needed.iter().any(|n| stem(&n.soname) == "libsycl"));
    if !by_program && ctx.wants_xpu().is_none() {
        return Outcome::Clean;
    }
    let needs = known!(ctx.facts.intel.sycl, "runtime of SYCL");
    let Some(need) = needs.iter().find(|need| !need.found.is_present()) else {
        return Outcome::Clean;
    };
    if let Reading::Unreadable { reason } = &need.found {
        return Outcome::unknown(reason.clone());
    }
    if let Some(unknown) = crate::rules::unread(ctx) {
        return unknown;
    }
    // Libraries of this machine are none for a program of another one.
    let program = program.filter(|program| program.path == need.user);
    let arch = program.and_then(|program| program.arch.as_ref());
    if arch.is_some_and(|arch| ctx.facts.system.arch.value() != Some(arch)) {
        return Outcome::Clean;
    }
    let is_torch = need.user.contains("/torch/lib/");
    // Where the wheel that brings it is recorded, its files are what is missing, and its record tells that.
    let mut distributions = ctx.facts.python.distributions.items().iter();
    if is_torch && distributions.any(|d| d.name == "intel-sycl-rt") {
        return Outcome::Clean;
    }
    let what = match ctx.wants_xpu().filter(|_| is_torch) {
        Some(wants) => wants.what,
        None => file_name(&need.user).to_owned(),
    };
    let title = match &need.elsewhere {
        Some(path) => format!(
            "{what} needs {}, which lies in {} and is not on the loader's path: oneAPI's environment is not set",
            need.soname,
            parent(path)
        ),
        None => format!(
            "{what} needs {}, the runtime of SYCL, which is not here",
            need.soname
        ),
    };
    let mut finding = Finding::new("sycl-runtime-missing", Layer::Runtime, Severity::Error, title)
        .of(Vendor::Intel)
        .complaining(if is_torch { Layer::Framework } else { Layer::Application })
        .component(need.soname.clone())
        .subject(need.soname.clone())
        .detail("What is written in SYCL does not start without its runtime, of the very version that it was built with: `libsycl.so.N: cannot open shared object file`.")
        .evidence(format!("{} needs", file_name(&need.user)), need.soname.clone(), need.user.clone())
        .evidence(need.soname.clone(), "not found", need.found.source());
    if let Some(path) = &need.elsewhere {
        finding = finding
            .evidence("there is", path.clone(), parent(path))
            .fix(
                Fix::at(
                    Layer::Runtime,
                    "set oneAPI's environment before the program is started",
                )
                .line("source /opt/intel/oneapi/setvars.sh")
                .verify("sycl-ls"),
            );
    } else if is_torch {
        finding = finding.fix(
            Fix::at(
                Layer::Framework,
                "install torch anew with what it requires: intel-sycl-rt brings the runtime",
            )
            .verify(VERIFY),
        );
    } else {
        finding = finding.fix(
            Fix::at(
                Layer::Runtime,
                format!("install the runtime of oneAPI's compiler whose library is {}, and set its environment", need.soname),
            )
            .line("source /opt/intel/oneapi/setvars.sh")
            .cost("root")
            .verify("sycl-ls"),
        );
    }
    Outcome::found([finding.source(
        "Intel oneAPI documentation: setvars; PyTorch documentation: getting started on Intel GPU",
    )])
}

/// The most tiles that a GPU of Intel's is counted as.
const TILES: usize = 4;

/// Whether a value of `ZE_AFFINITY_MASK` (`0,1.0`) names no GPU of so many.
fn masks_all(value: &str, gpus: usize) -> bool {
    let mut entries = value.split(',').map(str::trim).peekable();
    let is_beyond = |entry: &str| {
        let root = entry.split('.').next().unwrap_or_default();
        root.parse::<usize>()
            .is_ok_and(|index| index >= gpus * TILES)
    };
    entries.peek().is_some() && entries.all(is_beyond)
}

/// Whether a value of `ONEAPI_DEVICE_SELECTOR` (`level_zero:gpu;opencl:*`) leaves Level Zero no GPU.
fn deselects_all(value: &str) -> bool {
    let mut accepts = Vec::new();
    for term in value.split(';').map(|term| term.trim().to_lowercase()) {
        let (discards, term) = match term.strip_prefix('!') {
            Some(rest) => (true, rest.to_owned()),
            None => (false, term),
        };
        let Some((backend, devices)) = term.split_once(':') else {
            // No term of the grammar: nothing can be said.
            return false;
        };
        let is_ours = ["level_zero", "*"].contains(&backend);
        let mut devices = devices.split(',').map(str::trim);
        if discards && is_ours && devices.any(|device| ["*", "gpu"].contains(&device)) {
            return true;
        }
        if !discards {
            let gpus = devices.any(|device| !["cpu", "fpga", "acc"].contains(&device));
            accepts.push(is_ours && gpus);
        }
    }
    !accepts.is_empty() && !accepts.contains(&true)
}

/// A variable that leaves no GPU.
pub(super) fn hidden(ctx: &Ctx<'_>) -> Outcome {
    let gpus = ctx.driven_intel_gpus();
    let Some(wants) = ctx
        .wants_xpu()
        .filter(|_| ctx.vendor() == Some(Vendor::Intel) && !gpus.is_empty())
    else {
        return Outcome::Clean;
    };
    let mask = ctx
        .env("ZE_AFFINITY_MASK")
        .filter(|value| masks_all(value, gpus.len()))
        .map(|value| ("ZE_AFFINITY_MASK", value));
    // Programs that were named may take OpenCL instead; PyTorch takes Level Zero alone.
    let selector = ctx
        .env("ONEAPI_DEVICE_SELECTOR")
        .filter(|value| ctx.framework("torch").is_some() && deselects_all(value))
        .map(|value| ("ONEAPI_DEVICE_SELECTOR", value));
    let Some((name, value)) = mask.or(selector) else {
        return Outcome::Clean;
    };
    let names: Vec<String> = gpus.iter().map(|gpu| ctx.name_of(gpu)).collect();
    let title = format!(
        "{name}={value} hides every Intel GPU from {} ({} {} here)",
        wants.what,
        gpus.len(),
        if gpus.len() == 1 { "is" } else { "are" }
    );
    Outcome::found([Finding::new(
        "intel-gpus-hidden",
        Layer::Application,
        Severity::Error,
        title,
    )
    .of(Vendor::Intel)
    .complaining(Layer::Framework)
    .component(name)
    .detail("ZE_AFFINITY_MASK lists GPUs of Level Zero from 0. ONEAPI_DEVICE_SELECTOR lists back ends and devices; PyTorch uses those of level_zero alone.")
    .evidence(name, value, ctx.facts.environment.source())
    .evidence("Intel GPUs", in_words(&names), ctx.facts.hardware.pci.source())
    .evidence("wants them", wants.what.clone(), wants.source.clone())
    .source("Level Zero specification: affinity mask; oneAPI DPC++ documentation: environment variables")
    .fix(
        Fix::at(Layer::Application, "unset the variable, or name GPUs that are here")
            .line(format!("unset {name}"))
            .verify(VERIFY),
    )])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_hides_all_where_every_entry_is_beyond() {
        for (value, gpus, hides) in [
            ("0", 1, false),
            ("1", 1, false),
            ("4", 1, true),
            ("9.0,8", 2, true),
            ("9,0.1", 2, false),
            ("", 1, false),
            ("gpu", 1, false),
        ] {
            assert_eq!(masks_all(value, gpus), hides, "{value}");
        }
    }

    #[test]
    fn a_selector_without_level_zero_hides_all_from_it() {
        for (value, hides) in [
            ("level_zero:*", false),
            ("level_zero:gpu", false),
            ("Level_Zero:0;opencl:cpu", false),
            ("*:gpu", false),
            ("opencl:*", true),
            ("opencl:cpu", true),
            ("*:cpu", true),
            ("!level_zero:*", true),
            ("!opencl:*", false),
            ("level_zero", false),
            ("", false),
        ] {
            assert_eq!(deselects_all(value), hides, "{value}");
        }
    }
}
