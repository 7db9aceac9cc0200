//! Parts of one framework that do not go together: JAX's plugin, TensorFlow and the libraries that pip brought for it,
//! vLLM and an old pynvml, Triton and the name that it links libcuda by.

use super::{Ctx, Outcome, finding, instead, shown, unread};
use crate::facts::{Framework, Layer, Reading};
use crate::finding::{Fix, Severity};
use crate::sysroot::{join, parent};
use crate::version::Version;

/// jaxlib, plugin and PJRT library have to be of one release, and the last two come together.
pub(super) fn jax_plugin_mismatch(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let Some(jaxlib) = ctx.framework("jaxlib") else {
        return Outcome::Clean;
    };
    let parts: Vec<&Framework> = ["jax-cuda-plugin", "jax-cuda-pjrt"]
        .into_iter()
        .filter_map(|name| ctx.framework(name))
        .collect();
    let Some(first) = parts.first() else {
        return Outcome::Clean;
    };
    let version = |framework: &Framework| framework.version.value().and_then(|v| Version::parse(v));
    let Some(wanted) = version(jaxlib) else {
        return Outcome::Clean;
    };
    let name = |framework: &Framework| {
        framework
            .distribution
            .value()
            .cloned()
            .unwrap_or_else(|| framework.name.clone())
    };
    let other: Vec<String> = parts
        .iter()
        .filter(|part| version(part).is_some_and(|v| v != wanted))
        .map(|part| {
            format!(
                "{} {}",
                name(part),
                part.version.value().map_or("", String::as_str)
            )
        })
        .collect();
    let alone = parts.len() == 1;
    if other.is_empty() && !alone {
        return Outcome::Clean;
    }
    let what = if other.is_empty() {
        let lacks = if first.name == "jax-cuda-plugin" {
            "pjrt"
        } else {
            "plugin"
        };
        format!("{} is installed without its {lacks} part", name(first))
    } else {
        format!("{} does not go with jaxlib {wanted}", other.join(" and "))
    };
    let mut finding = finding("jax-plugin-mismatch", first, Severity::Error, format!("{what}: JAX does not use the GPU"))
        .detail("JAX takes its CUDA plugin only where jaxlib, plugin and PJRT library are of one release, and falls back to the processor otherwise: `is not compatible with the installed jaxlib version, so it will not be used`.")
        .reading("jaxlib", &jaxlib.version);
    for part in &parts {
        finding = finding.reading(&name(part), &part.version);
    }
    let extra = if name(first).contains("cuda13") {
        "cuda13"
    } else {
        "cuda12"
    };
    let fix = Fix::at(
        Layer::Framework,
        format!("install all parts of JAX {wanted} together"),
    );
    let what = format!("jax[{extra}]=={wanted}");
    Outcome::found([finding.fix(
        instead::install(ctx, fix, first, &["-U", &what])
            .verify("python -c \"import jax; print(jax.devices())\""),
    )])
}

/// TensorFlow opens CUDA libraries by name; those of the wheels lie in folders that it does not look into.
pub(super) fn tensorflow_libraries_out_of_reach(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let Some(tensorflow) = ctx.framework("tensorflow").filter(|f| !f.cuda.is_absent()) else {
        return Outcome::Clean;
    };
    let lost = match &tensorflow.out_of_reach {
        Reading::Present { value, .. } => value,
        Reading::Absent { .. } => return Outcome::Clean,
        Reading::Unreadable { reason } => {
            return Outcome::unknown(format!("libraries for TensorFlow: {reason}"));
        }
    };
    // On a host without a GPU it does not look for them.
    let Some(first) = lost.first().filter(|_| ctx.gpu_usable()) else {
        return Outcome::Clean;
    };
    let mut folders: Vec<&str> = lost.iter().map(|path| parent(path)).collect();
    folders.dedup();
    let more = match lost.len() - 1 {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let mut finding = finding(
        "tensorflow-libraries-out-of-reach",
        tensorflow,
        Severity::Error,
        format!("{} does not find the CUDA libraries that the environment brings: {first}{more}", shown(tensorflow)),
    )
    .detail("TensorFlow opens them by name: the loader looks into its RUNPATH and LD_LIBRARY_PATH, and neither names these folders. It then says `Cannot dlopen some GPU libraries` and computes on the processor. The driver is not asked.")
    .reading("CUDA that it was built for", &tensorflow.cuda);
    for path in lost.iter().take(8) {
        finding = finding.evidence(
            "out of reach",
            path.clone(),
            tensorflow.out_of_reach.source(),
        );
    }
    // Inside of the quotes a `~` (a redacted home) would stay one.
    let quotable: Vec<String> = folders
        .iter()
        .map(|folder| match folder.strip_prefix("~/") {
            Some(rest) => format!("$HOME/{rest}"),
            None => folder.to_string(),
        })
        .collect();
    let path = quotable.join(":");
    finding = finding.evidence(
        "LD_LIBRARY_PATH",
        ctx.env("LD_LIBRARY_PATH").unwrap_or("not set"),
        "environment",
    );
    let value = format!("LD_LIBRARY_PATH={path}:${{LD_LIBRARY_PATH:-}}");
    let set = Fix::at(
        Layer::Framework,
        "name the folders of the wheels in LD_LIBRARY_PATH",
    )
    .line(format!("export \"{value}\""));
    let link = Fix::at(
        Layer::Framework,
        "or link the libraries into TensorFlow's own folder",
    )
    .command(&[
        "ln",
        "-sf",
        "-t",
        &join(&tensorflow.site, "tensorflow"),
        first,
    ])
    .second("each library takes a link, and an upgrade takes them away");
    let newer = Fix::at(
        Layer::Framework,
        "or take a release of TensorFlow that finds them: 2.18 or newer",
    );
    let newer = instead::install(ctx, newer, tensorflow, &["-U", "tensorflow[and-cuda]"])
        .second("it is another release");
    Outcome::found([finding
        .fix(set.verify(
            "python -c \"import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))\"",
        ))
        .fix(link)
        .fix(newer)
        .source("tensorflow/tensorflow issue 63362")])
}

/// The first pynvml that leaves the module of that name to nvidia-ml-py.
const PYNVML_MENDED: &str = "12";
/// The first vLLM that brings a copy of the module and no longer imports the one that is installed.
const VLLM_OWN_PYNVML: &str = "0.7.3";

/// Both pynvml and nvidia-ml-py bring a module `pynvml`; vLLM takes the old one for a machine without GPUs.
pub(super) fn pynvml_shadows_nvml(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let (Some(vllm), Some(old), Some(new)) = (
        ctx.framework("vllm"),
        ctx.framework("pynvml"),
        ctx.framework("nvidia-ml-py"),
    ) else {
        return Outcome::Clean;
    };
    let is_before = |framework: &Framework, version: &str| {
        let has = framework.version.value().and_then(|v| Version::parse(v));
        has.zip(Version::parse(version))
            .is_some_and(|(has, border)| has < border)
    };
    if !is_before(old, PYNVML_MENDED) || !is_before(vllm, VLLM_OWN_PYNVML) || !ctx.gpu_usable() {
        return Outcome::Clean;
    }
    let title = format!(
        "{} takes the place of nvidia-ml-py, and {} infers no device with it",
        shown(old),
        shown(vllm)
    );
    let finding = finding("pynvml-shadows-nvml", old, Severity::Error, title)
        .complaining(Layer::Framework)
        .detail("Both distributions bring a module called pynvml, and the old one wins. vLLM asks it for the GPUs and ends with `Failed to infer device type`, although NVML and CUDA work.")
        .reading("nvidia-ml-py", &new.version)
        .reading("vllm", &vllm.version)
        .source("vllm-project/vllm issues 12847 and 12947");
    let fix = Fix::at(
        Layer::Framework,
        "upgrade pynvml: from 12 on it leaves the module to nvidia-ml-py",
    );
    let remove = Fix::at(
        Layer::Framework,
        "or take pynvml out and install nvidia-ml-py again",
    )
    .second("two steps for the same");
    Outcome::found([finding
        .fix(instead::install(ctx, fix, old, &["-U", "pynvml>=12"]))
        .fix(instead::install(
            ctx,
            remove,
            new,
            &["--force-reinstall", "nvidia-ml-py"],
        ))])
}

/// Triton 2 links what it compiles with `-lcuda`, so it takes a file called libcuda.so beside libcuda.so.1.
pub(in crate::rules) fn triton_libcuda_link_missing(ctx: &Ctx<'_>) -> Outcome {
    if let Some(unknown) = unread(ctx) {
        return unknown;
    }
    let Some(triton) = ctx.framework("triton") else {
        return Outcome::Clean;
    };
    let is_old = triton
        .version
        .value()
        .and_then(|v| Version::parse(v))
        .is_some_and(|v| v.major() == 2);
    let Some(libcuda) = ctx.real_libcuda().filter(|_| is_old) else {
        return Outcome::Clean;
    };
    if ctx
        .env("TRITON_LIBCUDA_PATH")
        .is_some_and(|value| !value.is_empty())
    {
        return Outcome::Clean;
    }
    let dir = parent(&libcuda.path);
    let link = join(dir, "libcuda.so");
    let copies = ctx.facts.driver.libcuda.items();
    let has_link = |dir: &str| {
        copies
            .iter()
            .any(|copy| copy.path == join(dir, "libcuda.so"))
    };
    // A folder of LD_LIBRARY_PATH with such a file does as well.
    let on_path = ctx
        .env("LD_LIBRARY_PATH")
        .unwrap_or_default()
        .split(':')
        .any(|dir| !dir.is_empty() && has_link(dir));
    if has_link(dir) || has_link(parent(&libcuda.real_path)) || on_path || !ctx.gpu_usable() {
        return Outcome::Clean;
    }
    // With torch only what it compiles by Triton fails.
    let severity = if ctx.framework("torch").is_some() {
        Severity::Warning
    } else {
        Severity::Error
    };
    let mut finding = finding("triton-libcuda-link-missing", triton, severity, format!("{} cannot link its kernels: {dir} has libcuda.so.1 and no libcuda.so", shown(triton)))
        .detail("This Triton compiles a small launcher for each kernel and links it with -lcuda: `cannot find -lcuda`, `libcuda.so cannot found!`. CUDA programs run without that file, since they open libcuda.so.1.")
        .component("libcuda.so")
        .evidence("libcuda that programs get", libcuda.path.clone(), libcuda.real_path.clone())
        .evidence(link.clone(), "not there", dir)
        .source("triton-lang/triton pull request 1981, issue 2110");
    finding.layer = Layer::Driver;
    finding.complaining_layer = Layer::Framework;
    let mend = Fix::at(Layer::Driver, "make the link")
        .command(&["sudo", "ln", "-s", "libcuda.so.1", &link])
        .cost("root");
    let variable = Fix::at(
        Layer::Framework,
        "or take Triton 3, which links libcuda.so.1 itself: torch 2.4 or newer brings it",
    )
    .second("it is another release of torch");
    Outcome::found([finding.fix(mend).fix(variable)])
}
