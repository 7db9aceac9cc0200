//! The driver's user-space libraries: which copy the loader takes, and whether it is the right kind of one.

use crate::facts::{FileKind, Injection, Layer, LibraryCopy, ReachedBy, Reading};
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::{CompatFit, CompatLibrary, refused_for_certain};
use crate::rules::stack::{cuda_code, verified, with_cu_init};
use crate::rules::{Ctx, Expectation, Outcome, gpu_expected, known, missing};
use crate::sysroot::parent;

/// Whether there is a GPU that a program could want: on the bus, in the driver's list, or by WSL's device; in a container,
/// one that was given to it.
fn gpu_here(ctx: &Ctx<'_>) -> bool {
    if ctx.in_container() {
        return ctx.was_given_a_gpu();
    }
    ctx.gpus().next().is_some()
        || !ctx.facts.driver.gpus.items().is_empty()
        || ctx.wsl_gpu()
        || matches!(gpu_expected(ctx), Expectation::Yes(_))
}

/// The evidence of one copy: where it is, how it was reached.
pub(super) fn with_copy(finding: Finding, what: &str, copy: &LibraryCopy) -> Finding {
    let by = copy
        .reached_by
        .iter()
        .map(ReachedBy::describe)
        .collect::<Vec<_>>()
        .join(", ");
    let at = if copy.path == copy.real_path {
        copy.path.clone()
    } else {
        format!("{} -> {}", copy.path, copy.real_path)
    };
    finding.evidence(
        what,
        at,
        if by.is_empty() {
            "not reached".to_owned()
        } else {
            by
        },
    )
}

/// How to take a folder off the loader's path.
fn off_the_path(copy: &LibraryCopy) -> String {
    let folder = parent(&copy.path);
    // That a process has it does not say how it found it.
    let ways = copy.reached_by.iter().filter(|by| by.is_live());
    match ways.min_by_key(|by| **by == ReachedBy::Process) {
        Some(ReachedBy::LdLibraryPath(dir)) => format!("remove {dir} from LD_LIBRARY_PATH"),
        Some(ReachedBy::LdPreload) => format!("remove {} from LD_PRELOAD", copy.path),
        // A link in a folder of the system: the folder has to stay on the path, the link has not.
        Some(ReachedBy::LdCache | ReachedBy::DefaultPath) if copy.path != copy.real_path => {
            format!("remove the link {} and run ldconfig", copy.path)
        }
        Some(ReachedBy::LdCache) => {
            format!("remove {folder} from /etc/ld.so.conf.d and run ldconfig")
        }
        _ => format!("remove {}", copy.path),
    }
}

/// The other real libcuda that the loader would take without this one.
fn next_real<'a>(ctx: &'a Ctx<'_>) -> Option<&'a LibraryCopy> {
    ctx.facts.driver.libcuda.items().iter().find(|c| {
        !c.chosen
            && c.kind.is_usable()
            && !c.is_stub()
            && !c.is_compat()
            && c.reached_by.iter().any(ReachedBy::is_live)
    })
}

/// The module is loaded, and no libcuda can be loaded.
pub(super) fn libcuda_missing(ctx: &Ctx<'_>) -> Outcome {
    let wsl_gpu = ctx.wsl_gpu();
    let host_gpu =
        ctx.plain_linux() && ctx.module_loaded() == Some(true) && ctx.gpus().next().is_some();
    if ctx.in_container() || !(wsl_gpu || host_gpu) {
        return Outcome::Clean;
    }
    if let Reading::Unreadable { reason } = &ctx.facts.driver.libcuda {
        return Outcome::unknown(format!("libcuda: {reason}"));
    }
    if let Some(FileKind::Unreadable(reason)) = ctx.libcuda().map(|c| &c.kind) {
        return Outcome::unknown(format!("libcuda: {reason}"));
    }
    if ctx.libcuda().is_some() {
        return Outcome::Clean;
    }
    if let Some(reason) = ctx.place_unknown() {
        return Outcome::unknown(reason);
    }
    let copies: Vec<_> = ctx
        .facts
        .driver
        .libcuda
        .items()
        .iter()
        .filter(|c| c.kind.is_usable() && !c.is_stub() && !c.is_compat())
        .collect();
    // NixOS and driver containers keep it off the loader's path on purpose, and programs there find it by RUNPATH: on NixOS
    // those of nixpkgs. What comes from elsewhere does not.
    if let Some(copy) = copies.iter().find(|c| c.path.starts_with(NIXOS_DRIVER)) {
        return Outcome::found(from_elsewhere_on_nixos(ctx, copy));
    }
    if copies.iter().any(|c| {
        c.path.starts_with("/run/nvidia/driver/")
            || c.path.starts_with("/home/kubernetes/bin/nvidia/")
    }) {
        return Outcome::Clean;
    }
    let title = match copies.first() {
        Some(copy) => format!("the loader does not find libcuda.so.1: it lies in {}, which is not on its path", parent(&copy.path)),
        None => "libcuda.so.1 is not installed: the driver's kernel module is loaded without its user space".to_owned(),
    };
    let mut finding = Finding::new("libcuda-missing", Layer::Driver, Severity::Error, title)
        .complaining(Layer::Runtime)
        .component("libcuda.so.1")
        .detail("Every CUDA program opens libcuda.so.1 by name. Without it the CUDA runtime answers error 35, as if the driver were too old.")
        .evidence("libcuda.so.1", "not found", "LD_LIBRARY_PATH, ld.so.cache, default folders");
    if let Some((version, source)) = ctx.facts.driver.loaded_version() {
        finding = finding.evidence("loaded kernel module", version.to_string(), source);
    }
    for copy in &copies {
        finding = with_copy(finding, "a copy off the loader's path", copy);
    }
    for broken in ctx
        .facts
        .driver
        .libcuda
        .items()
        .iter()
        .filter(|c| !c.kind.is_usable())
        .take(4)
    {
        let what = match &broken.kind {
            FileKind::DanglingLink => "a link that leads nowhere".to_owned(),
            FileKind::OtherArch(arch) => format!("for {arch}"),
            other => format!("{other:?}").to_lowercase(),
        };
        finding = finding.evidence(
            "unusable copy",
            format!("{}: {what}", broken.path),
            "the loader's search",
        );
    }
    if let Some(copy) = ctx.libnvidia_ml() {
        finding = with_copy(finding, "libnvidia-ml.so.1", copy);
    }
    if ctx.facts.system.wsl_ldconfig.value() == Some(&false) {
        finding = finding.evidence(
            "WSL runs ldconfig at its start",
            "no: ldconfig=false",
            "/etc/wsl.conf",
        );
    }
    let version = ctx
        .loaded_version()
        .map_or_else(String::new, |v| format!(" {v}"));
    let fix = match (copies.first(), wsl_gpu) {
        (_, true) => put_back_on_wsl(ctx),
        // Debian's links go over its alternatives, which may still lead to a driver that was removed.
        (Some(copy), _) if is_of_debian(copy) => Fix::at(Layer::Driver, "have Debian's links made anew: its alternative `nvidia` leads to the driver that is in use").line("sudo update-alternatives --auto nvidia").line("sudo ldconfig").cost("root"),
        (Some(copy), _) => Fix::at(Layer::Driver, format!("let the loader find {}: repair the distribution's links, or list the folder in /etc/ld.so.conf.d and run ldconfig", parent(&copy.path))).line("sudo ldconfig").cost("root"),
        (None, _) => Fix::at(Layer::Driver, format!("install the user-space libraries of driver{version} (the package that holds libcuda.so.1)")).cost("root"),
    };
    Outcome::found([finding.fix(verified(ctx, fix))])
}

/// Where NixOS keeps the driver's libraries.
const NIXOS_DRIVER: &str = "/run/opengl-driver/";

/// Whether a copy lies where Debian's packages put it, below a folder for each branch of the driver.
fn is_of_debian(copy: &LibraryCopy) -> bool {
    ["-linux-gnu/nvidia/current", "-linux-gnu/nvidia/tesla-"]
        .iter()
        .any(|part| copy.path.contains(part))
}

/// On NixOS, a runtime of the consumer's environment that was not built by Nix, and has no RUNPATH to the driver.
fn from_elsewhere_on_nixos(ctx: &Ctx<'_>, copy: &LibraryCopy) -> Option<Finding> {
    let runtime = ctx.consumer_runtimes().into_iter().find(|runtime| {
        runtime.reached_by.contains(&ReachedBy::Environment)
            && !runtime.real_path.starts_with("/nix/store/")
    })?;
    // nix-ld puts its own variable in front of programs that are not of Nix.
    let by_nix_ld = ctx.env("NIX_LD_LIBRARY_PATH");
    if by_nix_ld.is_some_and(|value| value.contains(NIXOS_DRIVER.trim_end_matches('/'))) {
        return None;
    }
    let answers = ctx.facts.vendor.cudart.items();
    let code = answers
        .iter()
        .find(|answers| answers.path == runtime.path)
        .and_then(|answers| answers.code("cudaGetDeviceCount"));
    if code == Some(0) {
        return None;
    }
    let folder = parent(&copy.path);
    let what = &ctx.facts.consumer.what;
    let finding = Finding::new(
        "libcuda-missing",
        Layer::Driver,
        Severity::Error,
        format!("{what} does not find libcuda.so.1: on NixOS it lies in {folder}, where only packages of nixpkgs look by themselves"),
    )
    .complaining(Layer::Runtime)
    .component("libcuda.so.1")
    .detail("NixOS has no folder of libraries that every program searches. Packages of nixpkgs find the driver by their RUNPATH; wheels and downloaded programs open libcuda.so.1 by name and do not.")
    .evidence("libcuda.so.1", "not found", "LD_LIBRARY_PATH, ld.so.cache, default folders")
    .evidence("CUDA runtime that is not of nixpkgs", runtime.path.clone(), "the environment")
    .source("NixOS manual: GPU acceleration");
    let mut finding = with_copy(finding, "the driver's libcuda", copy);
    if let Some(code) = code {
        finding = finding.evidence("cudaGetDeviceCount", code.to_string(), runtime.path.clone());
    }
    let old = match ctx.env("LD_LIBRARY_PATH") {
        Some(value) if !value.is_empty() => ":$LD_LIBRARY_PATH",
        _ => "",
    };
    Some(finding
        .fix(
            Fix::at(Layer::Application, format!("put {folder} into LD_LIBRARY_PATH of the shell (shellHook), the service or the program"))
                .line(format!("export LD_LIBRARY_PATH={folder}{old}"))
                .verify("gpudoctor"),
        )
        .fix(
            Fix::at(Layer::Framework, "or take the package of nixpkgs (config.cudaSupport = true) in place of the wheel")
                .second("builds for a long time where no binary cache has it")
                .verify("gpudoctor"),
        ))
}

/// How the folder of Windows's libraries comes back on the loader's path.
fn put_back_on_wsl(ctx: &Ctx<'_>) -> Fix {
    let told_not_to = ctx.facts.system.wsl_ldconfig.value() == Some(&false);
    let first = if told_not_to {
        "take ldconfig=false out of /etc/wsl.conf, and put /usr/lib/wsl/lib back on the loader's path"
    } else {
        "put /usr/lib/wsl/lib back on the loader's path, as WSL itself does at its start"
    };
    Fix::at(Layer::Driver, first)
        .line("echo /usr/lib/wsl/lib | sudo tee /etc/ld.so.conf.d/ld.wsl.conf")
        .line("sudo ldconfig")
        .cost("root")
}

/// A link-time stub is found first.
pub(super) fn libcuda_stub(ctx: &Ctx<'_>) -> Outcome {
    let copies = known!(ctx.facts.driver.libcuda, "libcuda");
    let chosen = copies
        .iter()
        .find(|c| c.chosen)
        .filter(|c| c.is_stub() || ctx.answers_as_stub());
    // A stub has no soname link beside it as NVIDIA ships it: programs that open `libcuda.so` get it all the same.
    let short = copies.iter().find(|c| {
        !c.chosen
            && c.is_stub()
            && c.reached_by
                .iter()
                .any(|by| matches!(by, ReachedBy::LdLibraryPath(_)))
    });
    let Some(stub) = chosen.or(short) else {
        return Outcome::Clean;
    };
    // In an image it comes before what any host brings.
    let is_image = ctx.facts.scope.is_image();
    if !is_image
        && let Some(reason) = missing("whether this is a container", &ctx.facts.system.container)
    {
        return Outcome::unknown(reason);
    }
    let severity = match (chosen.is_some(), is_image || gpu_here(ctx)) {
        (_, false) => Severity::Note,
        (true, true) => Severity::Error,
        (false, true) => Severity::Warning,
    };
    let by = stub
        .reached_by
        .iter()
        .find(|by| by.is_live())
        .map_or_else(|| stub.path.clone(), ReachedBy::describe);
    let what = if chosen.is_some() {
        "the CUDA stub library is found as libcuda.so.1 before the driver's"
    } else {
        "programs that open libcuda.so get the CUDA stub library"
    };
    let mut finding = Finding::new("libcuda-stub", Layer::Driver, severity, format!("{what}: {} by {by}", stub.path))
        .complaining(Layer::Runtime)
        .component("libcuda.so.1")
        .detail("Toolkits ship a stub libcuda to link against on machines without a driver. It has every function and answers each with an error (34, or 35 from the runtime). It must never be on the loader's path.");
    finding = with_copy(finding, "stub", stub);
    if let Some(real) = next_real(ctx) {
        finding = with_copy(finding, "the driver's libcuda", real);
    }
    let finding = with_cu_init(ctx, finding);
    Outcome::found([finding.fix(verified(
        ctx,
        Fix::at(
            Layer::Application,
            format!("{}; keep it only for the linker (-L)", off_the_path(stub)),
        ),
    ))])
}

/// The copy that the loader takes has nothing in it, or not enough.
pub(super) fn driver_library_damaged(ctx: &Ctx<'_>) -> Outcome {
    let mut findings: Vec<Finding> = Vec::new();
    for (soname, copy) in [
        ("libcuda.so.1", ctx.libcuda()),
        ("libnvidia-ml.so.1", ctx.libnvidia_ml()),
    ] {
        let Some(copy) = copy else { continue };
        let what = match &copy.kind {
            FileKind::Empty => "is empty (0 bytes)".to_owned(),
            FileKind::Truncated => "is cut off: shorter than its own headers say".to_owned(),
            FileKind::NotElf(words) => format!("is {words}"),
            _ => continue,
        };
        let container = ctx.in_container();
        // On a host it would be a fault, in a container that was given no GPU it is none.
        if let Some(reason) = missing("whether this is a container", &ctx.facts.system.container) {
            return Outcome::unknown(reason);
        }
        let severity = if !gpu_here(ctx) {
            Severity::Note
        } else if soname == "libcuda.so.1" {
            Severity::Error
        } else {
            Severity::Warning
        };
        let mut finding = Finding::new("driver-library-damaged", if container { Layer::Container } else { Layer::Driver }, severity, format!("{soname} is found as {}, which {what}", copy.real_path))
            .complaining(Layer::Runtime)
            .component(soname)
            .subject(copy.real_path.clone())
            .detail("The loader stops at this file and reports that it is too short or no ELF file. Empty driver libraries are what a container runtime's mounts leave behind when an image is built or committed with it.")
            .evidence("size", format!("{} bytes", copy.size_bytes), copy.real_path.clone());
        finding = with_copy(finding, soname, copy);
        let fix = if container {
            Fix::at(Layer::Container, format!("remove {} from the image (build it without the NVIDIA runtime as default), and let the runtime mount the host's", copy.real_path)).cost("rebuild of the image")
        } else {
            Fix::at(
                Layer::Driver,
                format!(
                    "remove {}, install the driver's user-space libraries again, and run ldconfig",
                    copy.real_path
                ),
            )
            .line("sudo ldconfig")
            .cost("root")
        };
        findings.push(finding.fix(verified(ctx, fix)));
    }
    // What emptied the one has emptied the other.
    if let [first, second] = findings.as_mut_slice()
        && first.title.ends_with("(0 bytes)")
        && second.title.ends_with("(0 bytes)")
    {
        second.caused_by = Some(first.key.clone());
    }
    Outcome::found(findings)
}

/// A compat libcuda with what it says of itself.
struct Compat<'a> {
    copy: &'a LibraryCopy,
    /// Why it cannot work here, where that is certain from files.
    misfit: Option<String>,
}

/// The compat copy in use on a machine with a driver.
fn compat<'a>(ctx: &'a Ctx<'_>) -> Option<Compat<'a>> {
    let copy = ctx
        .libcuda()
        .filter(|c| c.is_compat() && c.kind.is_usable())?;
    let loaded = ctx.loaded_version()?;
    let note = copy.compat.value();
    let library = CompatLibrary {
        version: copy.version.value(),
        cuda: note.and_then(|note| note.cuda.as_ref()),
        branches: note.map_or(&[], |note| note.drivers.as_slice()),
    };
    // Eligibility is a matter of the product: one GPU that is not eligible is enough for error 804.
    let gpus: Vec<(String, Option<bool>)> = ctx
        .gpus()
        .map(|device| ctx.gpu_name(device))
        .map(|name| {
            let may = ctx.matrix.compat_eligible(&name);
            (name, may)
        })
        .collect();
    let misfit = match refused_for_certain(library, loaded, &gpus) {
        Some(CompatFit::Refused { why, .. }) => Some(why),
        _ => None,
    };
    Some(Compat { copy, misfit })
}

/// The file by which the container toolkit has put this copy first, and where that was seen: it makes it anew at each start.
/// What a variable names is not its doing.
fn put_first_by_toolkit<'a>(ctx: &'a Ctx<'_>, copy: &LibraryCopy) -> Option<(&'a str, &'a str)> {
    let glue = ctx.facts.container.glue.value()?;
    let by_variable = copy
        .reached_by
        .iter()
        .any(|by| matches!(by, ReachedBy::LdLibraryPath(_) | ReachedBy::LdPreload));
    let file = glue.compat_files.items().first().filter(|_| !by_variable)?;
    Some((file, glue.compat_files.source()))
}

/// How the toolkit is kept from it. The key is of the legacy mode, the feature of all others. Source: the container toolkit's
/// sources and changelog (1.17.5, 1.17.7).
fn without_compat_by_toolkit(ctx: &Ctx<'_>) -> Fix {
    const KEY: &str =
        "cuda-compat-mode = \"disabled\" under [nvidia-container-runtime.modes.legacy]";
    const FEATURE: &str = "disable-cuda-compat-lib-hook = true under [features]";
    let glue = ctx.facts.container.glue.value();
    let keys = match glue.map(|glue| glue.injection) {
        Some(Injection::Legacy) => KEY.to_owned(),
        Some(Injection::Cdi) => format!("{FEATURE} (in the legacy mode {KEY})"),
        _ => format!("{KEY}, and {FEATURE} for CDI"),
    };
    Fix::at(Layer::Container, format!("on the host, keep the toolkit from it: {keys}, in /etc/nvidia-container-runtime/config.toml; then start the container anew. To remove the file in here lasts until the next start"))
        .cost("root on the host, restart of the container")
}

/// A compat copy that cannot work on this driver or GPU.
pub(super) fn compat_not_usable(ctx: &Ctx<'_>) -> Outcome {
    let Some(Compat { copy, misfit }) = compat(ctx) else {
        return Outcome::Clean;
    };
    let refused = ctx.cu_init().filter(|code| matches!(code, 803 | 804));
    // What the driver answers decides; from files alone only where it was not asked.
    let why = match (refused, ctx.cu_init(), misfit) {
        (_, Some(0), _) | (None, _, None) => return Outcome::Clean,
        (None, Some(_), Some(why)) | (_, None, Some(why)) | (Some(_), _, Some(why)) => why,
        (Some(804), _, None) => {
            "the driver says that a GPU here is not eligible for forward compatibility".to_owned()
        }
        (Some(_), _, None) => {
            "the driver says that it does not go with this compat library".to_owned()
        }
    };
    let version = copy
        .version
        .value()
        .map_or_else(|| "of unknown version".to_owned(), ToString::to_string);
    let loaded = ctx
        .loaded_version()
        .map_or_else(String::new, ToString::to_string);
    let by_toolkit = put_first_by_toolkit(ctx, copy);
    let mut finding = Finding::new(
        "compat-libcuda-not-usable",
        Layer::Driver,
        Severity::Error,
        format!("the forward-compatibility libcuda {version} is used on driver {loaded} and cannot work here: {why}"),
    )
    .complaining(Layer::Runtime)
    .component("libcuda.so.1")
    .detail(format!("The cuda-compat package brings a newer libcuda for older drivers, for data-center GPUs and for the branches that it names. {}, and it is found before the driver's own.", if by_toolkit.is_some() { "The container toolkit has put that of the image first on the loader's path" } else { "Somebody put it on the loader's path" }))
    .evidence("loaded kernel module", loaded.clone(), ctx.facts.driver.loaded_version().map_or("", |(_, source)| source))
    .source("CUDA Compatibility guide: forward compatibility");
    finding = with_copy(finding, &format!("compat libcuda {version}"), copy);
    if let Reading::Present { value, source } = &copy.compat {
        let cuda = value
            .cuda
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), ToString::to_string);
        let branches = value
            .drivers
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ");
        finding = finding.evidence(
            "its note",
            format!("CUDA {cuda}, driver branches {branches}"),
            source.clone(),
        );
    }
    for device in ctx.gpus() {
        finding = finding.evidence(
            "GPU",
            ctx.gpu_in_full(device),
            format!("/sys/bus/pci/devices/{}", device.address),
        );
    }
    if let Some(code) = ctx.cu_init() {
        finding = finding.evidence("cuInit", cuda_code(code), copy.path.clone());
    }
    if let Some(real) = next_real(ctx) {
        finding = with_copy(finding, "the driver's libcuda", real);
    }
    let cuda = copy.compat.value().and_then(|n| n.cuda.clone());
    let upgrade = cuda
        .and_then(|c| ctx.matrix.first_branch_of_level(c.cuda_level()))
        .map(|row| row.branch)
        .map_or_else(
            || "upgrade the driver to the branch of the CUDA version that is wanted".to_owned(),
            |branch| format!("upgrade the driver to branch {branch} or newer"),
        );
    let place = ctx
        .hands_off()
        .map_or_else(String::new, |place| format!(" {place}"));
    if let Some((file, source)) = by_toolkit {
        finding = finding.evidence(
            "put first by",
            format!("the container toolkit: {file}"),
            source,
        );
    }
    if by_toolkit.is_some() {
        return Outcome::found([finding
            .fix(verified(ctx, without_compat_by_toolkit(ctx)))
            .fix(verified(ctx, Fix::at(Layer::Container, "or take an image without the compat package (/usr/local/cuda/compat), or of a CUDA version that this driver runs by itself").cost("rebuild of the image")))
            .fix(verified(ctx, Fix::at(Layer::Driver, format!("or {upgrade}{place}, which makes the compat library unnecessary")).cost("root, reboot").second("only needed where something asks for more than the driver's own CUDA version")))]);
    }
    let mut finding = finding.fix(verified(ctx, Fix::at(if ctx.in_container() { Layer::Container } else { Layer::Application }, format!("take the compat library off the loader's path: {}; driver {loaded} then serves every CUDA version of its family", off_the_path(copy)))));
    // In its legacy mode the toolkit tells ldconfig alone, and leaves no file.
    if legacy_mode_may_have_put_first(ctx, copy) {
        finding = finding.fix(
            verified(ctx, without_compat_by_toolkit(ctx))
                .second("where it was the container toolkit: its legacy mode puts the image's compat library first by itself, and leaves no file that says so"),
        );
    }
    Outcome::found([finding.fix(verified(
        ctx,
        Fix::at(
            Layer::Driver,
            format!("or {upgrade}{place}, which makes the compat library unnecessary"),
        )
        .cost("root, reboot")
        .second("only needed where something asks for more than the driver's own CUDA version"),
    ))])
}

/// Whether nothing but the loader's cache leads to this copy, in a container whose driver came by the legacy mode.
fn legacy_mode_may_have_put_first(ctx: &Ctx<'_>, copy: &LibraryCopy) -> bool {
    let glue = ctx.facts.container.glue.value();
    glue.is_some_and(|glue| glue.injection == Injection::Legacy)
        && copy.reached_by.contains(&ReachedBy::LdCache)
        && !copy
            .reached_by
            .iter()
            .any(|by| matches!(by, ReachedBy::LdLibraryPath(_) | ReachedBy::LdPreload))
}

/// A compat copy that works, or about which nothing is wrong.
pub(super) fn compat_in_use(ctx: &Ctx<'_>) -> Outcome {
    let Some(Compat { copy, misfit }) = compat(ctx) else {
        return Outcome::Clean;
    };
    let failed = ctx.cu_init().is_some_and(|code| code != 0);
    if failed || (misfit.is_some() && ctx.cu_init().is_none()) {
        return Outcome::Clean;
    }
    let version = copy
        .version
        .value()
        .map_or_else(|| "of unknown version".to_owned(), ToString::to_string);
    let loaded = ctx
        .loaded_version()
        .map_or_else(String::new, ToString::to_string);
    let finding = Finding::new("compat-libcuda-in-use", Layer::Driver, Severity::Note, format!("CUDA goes through the forward-compatibility libcuda {version} on driver {loaded}"))
        .component("libcuda.so.1")
        .detail("A newer user-space driver runs on an older kernel module. That is supported on data-center GPUs; once the host's driver is upgraded past it, the compat library has to go.")
        .evidence("loaded kernel module", loaded, ctx.facts.driver.loaded_version().map_or("", |(_, source)| source));
    Outcome::found([with_copy(
        finding,
        &format!("compat libcuda {version}"),
        copy,
    )])
}
