//! Will a file run on a machine, and what is missing: pure, from what was read of the file and the matrix.

mod elsewhere;
mod image;
mod libcuda;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

pub use elsewhere::{Brought, by_minor_version, of_machine, unmet};
pub use image::of_image;

use super::{Container, File, Inspection, Kind, Linkage, Machine, Module, Use, gather};
use crate::ask::{Way, WayKind};
use crate::diagnosis::{Status, Verdict};
use crate::facts::{Layer, Vendor};
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::matrix::{Capability, CodeFit, Matrix, Target};
use crate::target;
use crate::version::Version;

/// The first driver that can unpack device code packed by zstd, for CUDA 12.
const ZSTD_DRIVER: &str = "550.54.14";

/// Judges the files; findings, worst first, and the verdict. Without a machine only what is wrong with a file by itself
/// is found, and there is a verdict only where something is.
pub fn judge(found: &mut Inspection, machine: Option<&Machine>, matrix: &Matrix) {
    let mut unknown: Vec<String> = Vec::new();
    let (in_images, files): (Vec<&File>, Vec<&File>) = found
        .files
        .iter()
        .partition(|file| image_of(file, &found.containers).is_some());
    // What was named by itself is meant.
    let is_within = |file: &File| {
        let mut containers = found.containers.iter();
        containers.any(|container| {
            let rest = file.path.strip_prefix(&container.path);
            rest.is_some_and(|rest| {
                rest.starts_with(['!', '/']) || container.path.ends_with('/') && !rest.is_empty()
            })
        })
    };
    let of_files = of_files(&files, &is_within, machine, matrix, &mut unknown);
    let mut findings = merged(of_files.into_iter().flatten().collect());
    for container in &found.containers {
        let Some(image) = &container.image else {
            continue;
        };
        let is_inside = |file: &&&File| is_in(file, container);
        let inside: Vec<&File> = in_images.iter().filter(is_inside).copied().collect();
        let path = &container.path;
        findings.extend(of_image(
            path,
            image,
            &inside,
            machine,
            matrix,
            &mut unknown,
        ));
    }
    if let Some(machine) = machine.filter(|machine| !machine.here) {
        findings.extend(of_machine(machine, matrix));
        // What is said to be there is all there is; of a target that says nothing of it nothing is held missing.
        if machine.cuda.is_some() {
            let brought = Brought::by(&found.files);
            for file in files {
                findings.extend(unmet(file, &brought, machine, matrix));
            }
        }
    }
    findings.sort_by(|a, b| b.severity.cmp(&a.severity).then(a.layer.cmp(&b.layer)));
    if machine.is_none() && findings.is_empty() {
        return;
    }
    // What was not read may stand in the way.
    if machine.is_some() {
        let is_read = |problem: &&String| problem.ends_with(gather::NOT_THERE);
        let unread: Vec<&String> = found.problems.iter().filter(|p| !is_read(p)).collect();
        if let Some((first, rest)) = unread.split_first() {
            unknown.push(match rest.len() {
                0 => (*first).clone(),
                n => format!("{first} (and {n} more that were not read)"),
            });
        }
    }
    found.verdict = Some(verdict(found, &findings, &unknown, machine));
    found.findings = Some(findings);
    found.target = machine.map(|machine| machine.name.clone());
}

/// The image that a file is of.
fn image_of<'a>(file: &File, containers: &'a [Container]) -> Option<&'a Container> {
    let mut images = containers.iter().filter(|c| c.image.is_some());
    images.find(|container| is_in(file, container))
}

fn is_in(file: &File, container: &Container) -> bool {
    let rest = file.path.strip_prefix(&container.path);
    rest.is_some_and(|rest| rest.starts_with('!'))
}

/// Judges one file; what cannot be told is added to `unknown`.
pub fn of_file(
    file: &File,
    machine: Option<&Machine>,
    matrix: &Matrix,
    unknown: &mut Vec<String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    damaged(file, &mut findings);
    if let Some(machine) = machine {
        driver(file, machine, matrix, &mut findings, unknown);
        device_code(file, machine, matrix, &mut findings, unknown);
        libraries(file, machine, &mut findings);
        c_library(file, machine, matrix, &mut findings, unknown);
        if !machine.here {
            elsewhere::file(file, machine, &mut findings);
        }
    }
    findings
}

/// Judges files that belong together. `is_within`: it lies in a folder, a wheel or an image, and was not named by itself.
pub fn of_files(
    files: &[&File],
    is_within: &dyn Fn(&File) -> bool,
    machine: Option<&Machine>,
    matrix: &Matrix,
    unknown: &mut Vec<String>,
) -> Vec<Vec<Finding>> {
    let is_spared = |file: &File| is_loose(file) && is_within(file);
    let has_others = files
        .iter()
        .any(|file| file.has_device_code() && !is_spared(file));
    let mut of_files: Vec<Vec<Finding>> = files
        .iter()
        .map(|file| {
            let mut open = Vec::new();
            let mut findings = of_file(file, machine, matrix, &mut open);
            if has_others && is_spared(file) {
                spare_loose(&mut findings);
            } else {
                unknown.extend(open);
            }
            findings
        })
        .collect();
    spare_variants(files, &mut of_files);
    of_files
}

/// Whether a file is device code on its own, which a program loads by its name where it wants that one, or a part that a
/// linker takes: that one of them does not fit a GPU says nothing of the whole.
fn is_loose(file: &File) -> bool {
    matches!(
        file.kind,
        Kind::Cubin | Kind::Fatbin | Kind::Ptx | Kind::Object | Kind::StaticLibrary
    )
}

/// What is found in a file that is loaded by its name is worth a note, beside others that have code too.
fn spare_loose(findings: &mut [Finding]) {
    for finding in findings.iter_mut().filter(|f| {
        matches!(
            f.id.as_str(),
            "no-device-code-for-gpu" | "ptx-too-new-for-driver" | "device-code-packed-too-new"
        )
    }) {
        finding.severity = Severity::Note;
        finding.detail = format!(
            "{}; it lies there to be loaded by its name, or to be linked, where it is wanted",
            finding.detail
        );
    }
}

/// A variant that does not run is no error where another one does: some ways work.
fn spare_variants(files: &[&File], of_files: &mut [Vec<Finding>]) {
    spare_special_code(files, of_files);
    let is_sound = |findings: &[Finding]| findings.iter().all(|f| f.severity < Severity::Error);
    let mut sound: BTreeMap<String, &str> = BTreeMap::new();
    for (file, findings) in files.iter().zip(of_files.iter()) {
        if is_sound(findings) && file.has_device_code() {
            sound.insert(variants_of(file), &file.path);
        }
    }
    let with_code = files.iter().filter(|file| file.has_device_code());
    let of_cuda: BTreeSet<String> = with_code.map(|file| variants_of(file)).collect();
    for (file, findings) in files.iter().zip(of_files) {
        let is_other = OTHER_VENDORS
            .iter()
            .any(|word| crate::sysroot::file_name(&file.path).contains(word));
        if is_other && of_cuda.contains(&variants_of(file)) {
            // Whatever it lacks, no NVIDIA GPU misses it.
            findings.retain(|f| f.severity < Severity::Error);
            continue;
        }
        let Some(other) = sound
            .get(&variants_of(file))
            .filter(|_| !is_sound(findings))
        else {
            continue;
        };
        for finding in findings
            .iter_mut()
            .filter(|f| f.severity == Severity::Error)
        {
            finding.severity = Severity::Warning;
            finding.evidence.push(Evidence {
                what: "a variant without a fault".to_owned(),
                value: (*other).to_owned(),
                source: (*other).to_owned(),
            });
        }
    }
}

/// Packages keep kernels for some architectures in libraries of their own (`_C_cutlass_90a.so`): where another library of
/// the package has code for the GPU, that is as with the modules of one file, and worth a note.
fn spare_special_code(files: &[&File], of_files: &mut [Vec<Finding>]) {
    const ID: &str = "no-device-code-for-gpu";
    let gpu = |finding: &Finding| {
        let subject = finding.subjects.first()?;
        subject.rsplit_once(" on ").map(|(_, gpu)| gpu.to_owned())
    };
    // Of each package the files with code, and which GPUs one of them serves.
    let mut without: BTreeMap<(&str, String), usize> = BTreeMap::new();
    let mut all: BTreeMap<&str, usize> = BTreeMap::new();
    for (file, findings) in files.iter().zip(of_files.iter()) {
        let Some(package) = file.package.as_deref().filter(|_| !file.modules.is_empty()) else {
            continue;
        };
        *all.entry(package).or_default() += 1;
        for finding in findings.iter().filter(|f| f.id == ID) {
            if let Some(gpu) = gpu(finding) {
                *without.entry((package, gpu)).or_default() += 1;
            }
        }
    }
    for (file, findings) in files.iter().zip(of_files.iter_mut()) {
        let Some(package) = file.package.as_deref() else {
            continue;
        };
        for finding in findings.iter_mut().filter(|f| f.id == ID) {
            let Some(gpu) = gpu(finding) else { continue };
            let bare = without.get(&(package, gpu)).copied().unwrap_or_default();
            let with_code = all.get(package).copied().unwrap_or_default();
            if bare < with_code {
                finding.severity = Severity::Note;
                finding.evidence.push(Evidence {
                    what: "libraries of the package with code for it".to_owned(),
                    value: format!("{} of {with_code}", with_code - bare),
                    source: package.to_owned(),
                });
            }
        }
    }
}

/// What the variants of a file share: the path but for digits in its last two parts. So `libbitsandbytes_cuda124.so` stands
/// beside `..._cuda130.so`, and `cuda_v12/libggml-cuda.so` beside `cuda_v13/...`; two environments are no variants.
fn variants_of(file: &File) -> String {
    let mut slashes = file.path.rmatch_indices(['/', '!']);
    let from = slashes.nth(1).map_or(0, |(at, _)| at);
    let (place, name) = file.path.split_at(from);
    let name: String = name.chars().filter(|c| !c.is_ascii_digit()).collect();
    // Those for other vendors' GPUs stand beside the one for CUDA, and are not loaded where that is.
    let name = OTHER_VENDORS
        .iter()
        .fold(name, |name, word| name.replace(word, "_cuda"));
    format!("{place}{name}")
}

/// How libraries for other vendors' GPUs are told from those for CUDA in their names.
const OTHER_VENDORS: [&str; 3] = ["_rocm", "_hip", "_xpu"];

fn verdict(
    found: &Inspection,
    findings: &[Finding],
    unknown: &[String],
    machine: Option<&Machine>,
) -> Verdict {
    let roots = findings
        .iter()
        .filter(|f| f.severity >= Severity::Warning)
        .map(|f| f.key.clone())
        .collect();
    let worst = findings.first().filter(|f| f.severity >= Severity::Warning);
    let machine = machine.map_or("", |machine| machine.name.as_str());
    let (status, summary) = match worst {
        Some(f) if f.severity == Severity::Error => (Status::Fault, f.title.clone()),
        // What could not be told may be worse than what will bite.
        _ if !unknown.is_empty() => (Status::Unknown, unknown.join("; ")),
        Some(f) => (Status::Warning, f.title.clone()),
        None if found.files.is_empty() => (
            Status::Unknown,
            match found.problems.first() {
                Some(problem) => problem.clone(),
                None => match found.containers.as_slice() {
                    [one] if one.image.is_some() => {
                        format!("{}: nothing in it has to do with the GPU", one.path)
                    }
                    _ => "nothing was found that can be judged".to_owned(),
                },
            },
        ),
        None => {
            let files = match found.files.as_slice() {
                [one] => one.path.clone(),
                several => match found.containers.as_slice() {
                    [one] if one.image.is_some() => one.path.clone(),
                    _ => format!("{} files", several.len()),
                },
            };
            (
                Status::Ok,
                format!("{files}: nothing stands in the way on {machine}"),
            )
        }
    };
    let worst = worst.filter(|_| status != Status::Unknown);
    Verdict {
        status,
        layer: worst.map(|f| f.layer),
        finding: worst.map(|f| f.id.clone()),
        key: worst.map(|f| f.key.clone()),
        summary,
        roots,
    }
}

/// One driver that is too old for ten files of a wheel is one fault: its findings become one, for each major version of
/// the runtime, with the files as its subjects.
pub fn merged(findings: Vec<Finding>) -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    for finding in findings {
        let minimum = |f: &Finding| f.fixes.first().map(|fix| fix.summary.clone());
        let same = |f: &&mut Finding| {
            f.id == "driver-too-old"
                && (&f.id, f.severity) == (&finding.id, finding.severity)
                && minimum(f) == minimum(&finding)
        };
        match all.iter_mut().find(same) {
            Some(first) => {
                first.subjects.extend(finding.subjects);
                let runtime = finding.evidence.into_iter().take(1);
                first.evidence.extend(runtime);
            }
            None => all.push(finding),
        }
    }
    for finding in all
        .iter_mut()
        .filter(|f| f.id == "driver-too-old" && f.subjects.len() > 1)
    {
        let others = finding.subjects.len() - 1;
        let Some(first) = finding.subjects.first() else {
            continue;
        };
        // Of lines of requirement files: `requirements.txt:3 and 1 more`.
        let is_line = |subject: &String| {
            let end = subject.rsplit_once(':').map(|(_, end)| end);
            end.is_some_and(|end| !end.is_empty() && end.bytes().all(|b| b.is_ascii_digit()))
        };
        let plural = match others {
            _ if finding.subjects.iter().any(is_line) => "",
            1 => " file",
            _ => " files",
        };
        let (before, after) = (
            format!("{first}), "),
            format!("{first} and {others} more{plural}), "),
        );
        finding.title = finding.title.replacen(&before, &after, 1);
    }
    all
}

/// A file that is not what it stands for.
fn damaged(file: &File, findings: &mut Vec<Finding>) {
    if !file.is_damaged() {
        return;
    }
    let fix = match (&file.package, &file.kind) {
        (Some(package), _) => format!("install {package} again, whatever its record says"),
        (None, Kind::GitLfsPointer) => {
            "fetch the real file: `git lfs pull` in its repository".to_owned()
        }
        (None, _) => {
            "put the whole file there: install its package again, or copy it again".to_owned()
        }
    };
    let of_package = file
        .package
        .as_ref()
        .map_or_else(String::new, |package| format!(" of {package}"));
    let layer = if file.path.contains("libcuda.so") || file.path.contains("libnvidia-") {
        Layer::Driver
    } else {
        Layer::Libraries
    };
    findings.push(
        Finding::new(
            "file-damaged",
            layer,
            Severity::Error,
            format!("{}{of_package} is {}", file.path, file.description),
        )
        .subject(&file.path)
        .evidence("file", &file.description, &file.path)
        .evidence("size", format!("{} bytes", file.size_bytes), &file.path)
        .fix(Fix::at(layer, fix)),
    );
}

/// The runtime, and the toolkit where there is no other sign of it.
fn runtime_version(file: &File) -> Option<(Version, String)> {
    if let Some(version) = file.runtime.cuda() {
        let how = match file.runtime.linkage {
            Linkage::Static => "static libcudart, inferred from its code".to_owned(),
            _ => file.runtime.library.clone().unwrap_or_default(),
        };
        return Some((version, how));
    }
    if let Some(identity) = file
        .identity
        .as_ref()
        .filter(|identity| identity.name == "libcudart")
    {
        return Some((identity.version.clone()?, identity.source.clone()));
    }
    (file.runtime.linkage == Linkage::Dlopen)
        .then(|| file.toolkits.last().cloned())
        .flatten()
        .map(|toolkit| (toolkit, "toolkit that built its device code".to_owned()))
}

/// Whether the driver is there, and new enough for the runtime.
fn driver(
    file: &File,
    machine: &Machine,
    matrix: &Matrix,
    findings: &mut Vec<Finding>,
    unknown: &mut Vec<String>,
) {
    if machine.no_driver && (file.libcuda == Use::Needed || file.has_device_code()) {
        let severity = if file.libcuda == Use::Needed {
            Severity::Error
        } else {
            Severity::Warning
        };
        findings.push(
            Finding::new(
                "driver-not-installed",
                Layer::Driver,
                severity,
                format!(
                    "{} needs libcuda.so.1, and the target has no driver",
                    file.path
                ),
            )
            .subject(&file.path)
            .complaining(Layer::Application)
            .component("libcuda.so.1")
            .evidence(
                "use of libcuda",
                if file.libcuda == Use::Needed {
                    "needed"
                } else {
                    "opened at run time"
                },
                &file.path,
            )
            .fix(Fix::at(
                Layer::Driver,
                "install NVIDIA's driver on the target",
            )),
        );
        return;
    }
    let Some(driver) = &machine.driver else {
        return;
    };
    let Some((runtime, how)) = runtime_version(file) else {
        return;
    };
    let level = match matrix.cuda_level_range(driver) {
        (Some(low), Some(high))
            if matrix.runtime_accepts(&runtime, low) == matrix.runtime_accepts(&runtime, high) =>
        {
            low
        }
        (Some(low), _) if matrix.runtime_accepts(&runtime, low) => low,
        (None, Some(high)) if !matrix.runtime_accepts(&runtime, high) => high,
        _ => {
            unknown.push(format!("{}: driver {driver} is in no table, so whether it runs CUDA {runtime} is not known", file.path));
            return;
        }
    };
    if matrix.runtime_accepts(&runtime, level) {
        if !machine.here {
            findings.extend(elsewhere::by_minor_version(
                &file.path, &runtime, driver, level, machine,
            ));
        }
        return;
    }
    let minimum = matrix.minimum_driver(&runtime);
    let wanted = minimum
        .as_ref()
        .and_then(|m| m.version.as_ref())
        .map_or("a newer driver".to_owned(), |v| format!("{v} or newer"));
    let mut finding = Finding::new(
        "driver-too-old",
        Layer::Driver,
        Severity::Error,
        format!(
            "driver {driver} is too old for CUDA {runtime} ({}), which needs {wanted}",
            file.path
        ),
    )
    .subject(&file.path)
    .complaining(Layer::Runtime)
    .component("libcuda.so.1")
    .detail(
        "the runtime asks the driver for its CUDA level first and refuses to start on an older one",
    )
    .evidence("CUDA runtime", format!("{runtime} ({how})"), &file.path)
    .evidence("driver", driver.to_string(), &machine.name);
    if let Some(minimum) = minimum {
        finding = finding.source(minimum.source);
    }
    findings.push(ways_out(finding, driver, runtime, machine, matrix));
}

/// The ways out that `matrix can` tells for the same driver, runtime and GPUs.
fn ways_out(
    finding: Finding,
    driver: &Version,
    runtime: Version,
    machine: &Machine,
    matrix: &Matrix,
) -> Finding {
    let target = target::Target {
        driver: Some(target::Driver::Version(driver.clone())),
        gpus: machine.gpus.iter().map(|gpu| gpu.asked.clone()).collect(),
        cuda: Some(runtime),
        ..target::Target::default()
    };
    with_ways(finding, machine.advice.ways(matrix, &target))
}

/// What mends a finding, of the ways that the matrix tells.
fn with_ways(mut finding: Finding, ways: Vec<Way>) -> Finding {
    // What hangs on a GPU that was not named is no advice yet.
    for way in ways.into_iter().filter(|way| way.open == Some(true)) {
        // The package is the driver's part, and it is installed in the image.
        let layer = match way.kind {
            WayKind::CompatPackage => Layer::Container,
            _ => way.layer,
        };
        let mut fix = Fix::at(layer, way.summary).cost(way.cost);
        if let Some(why) = way.why_second {
            fix = fix.second(why);
        }
        if let Some(verify) = way.verify {
            fix = fix.verify(verify);
        }
        finding = finding.fix(fix);
    }
    finding
}

/// How one module does on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runs {
    No,
    /// There is PTX for it, but in a language that the driver does not know.
    PtxTooNew,
    Unknown,
    Compiled,
    Natively,
}

fn module_runs(module: &Module, gpu: Capability, level: Option<u32>, matrix: &Matrix) -> Runs {
    let elf: Vec<Target> = module
        .elf
        .iter()
        .filter_map(|target| Target::parse(target))
        .collect();
    let ptx: Vec<(Target, Version)> = module
        .ptx
        .iter()
        .filter_map(|ptx| Some((Target::parse(&ptx.target)?, ptx.isa.clone())))
        .collect();
    match matrix.held_code_fit(&elf, &ptx, gpu, level) {
        CodeFit::Cubin(_) => Runs::Natively,
        CodeFit::Ptx(_) => Runs::Compiled,
        CodeFit::Unknown(_) => Runs::Unknown,
        CodeFit::PtxTooNew(_) => Runs::PtxTooNew,
        CodeFit::No => Runs::No,
    }
}

/// Whether there is code for the GPUs.
fn device_code(
    file: &File,
    machine: &Machine,
    matrix: &Matrix,
    findings: &mut Vec<Finding>,
    unknown: &mut Vec<String>,
) {
    if file.modules.is_empty() {
        return;
    }
    // The level of a driver in no table is taken at its least: what that runs, it runs.
    let level = machine
        .driver
        .as_ref()
        .and_then(|driver| matrix.cuda_level_range(driver).0);
    for gpu in &machine.gpus {
        let (major, minor) = gpu.capability;
        let mut count = [0u64; 5];
        for module in &file.modules {
            if let Some(slot) =
                count.get_mut(module_runs(module, gpu.capability, level, matrix) as usize)
            {
                *slot += module.count;
            }
        }
        let [no, ptx_too_new, not_known, compiled, natively] = count;
        let all: u64 = count.iter().sum();
        let is_product = !gpu.name.starts_with("sm_");
        let name = if is_product {
            format!("{} (sm_{major}{minor})", gpu.name)
        } else {
            gpu.name.clone()
        };
        let ptx = match file.archs.ptx.as_slice() {
            [] => "no PTX".to_owned(),
            targets => format!("PTX {}", targets.join(" ")),
        };
        let has = match file.archs.elf.as_slice() {
            [] => ptx,
            targets => format!("{}, {ptx}", targets.join(" ")),
        };
        let subject = format!("{} on {}", file.path, gpu.name);
        let evidence = |finding: Finding| {
            finding
                .subject(&subject)
                .complaining(Layer::Application)
                .component(&file.path)
                .evidence("device code", has.clone(), &file.path)
                .evidence(
                    "modules with code for it",
                    format!("{} of {all}", natively + compiled),
                    &file.path,
                )
                .evidence("GPU", name.clone(), &machine.name)
        };
        if natively + compiled + not_known == 0 && ptx_too_new > 0 {
            findings.push(
                evidence(Finding::new(
                    "ptx-too-new-for-driver",
                    Layer::Driver,
                    Severity::Error,
                    format!(
                        "{} has no machine code for {name}, and its PTX ({}) is newer than driver {} can compile",
                        file.path,
                        file.ptx_isa.last().map_or(String::new(), |isa| format!("version {isa}")),
                        machine.driver.as_ref().map_or(String::new(), ToString::to_string),
                    ),
                ))
                .detail("the driver compiles PTX when the program starts, and knows the PTX of its own CUDA release and older")
                .fix(Fix::at(Layer::Driver, "upgrade the driver to the CUDA release that the file was built with, or newer").cost("root, reboot"))
                .fix(Fix::at(Layer::Application, build_for(gpu.capability, file, matrix)).cost("rebuild")),
            );
        } else if natively + compiled + not_known == 0 {
            findings.push(
                evidence(Finding::new(
                    "no-device-code-for-gpu",
                    Layer::Application,
                    Severity::Error,
                    format!("{} has no code for {name}: it has {has}", file.path),
                ))
                .detail("no kernel of it can start there: `no kernel image is available for execution on the device`")
                .fix(Fix::at(Layer::Application, build_for(gpu.capability, file, matrix)).cost("rebuild")),
            );
        } else if not_known > 0 && natively + compiled == 0 {
            unknown.push(format!(
                "{}: whether its code runs on {name} is not known",
                file.path
            ));
        } else if no + ptx_too_new > 0 {
            findings.push(
                evidence(Finding::new(
                    "device-code-partial",
                    Layer::Application,
                    Severity::Note,
                    format!("{} of {all} modules of {} have code for {name}", natively + compiled + not_known, file.path),
                ))
                .detail("libraries keep special kernels for some architectures only; where a program needs one of the others, it fails there"),
            );
        } else if natively == 0 {
            findings.push(
                evidence(Finding::new(
                    "device-code-compiled-at-start",
                    Layer::Application,
                    Severity::Note,
                    format!("{} has only PTX for {name}: the driver compiles it when it is first run", file.path),
                ))
                .detail("the first start takes seconds to minutes longer; the result is kept in ~/.nv/ComputeCache"),
            );
        }
    }
    if file.device.zstd > 0
        && let Some(driver) = &machine.driver
        && Version::parse(ZSTD_DRIVER).is_some_and(|first| *driver < first)
        && file.toolkits.iter().any(|toolkit| toolkit.major() == 12)
    {
        findings.push(
            Finding::new(
                "device-code-packed-too-new",
                Layer::Driver,
                Severity::Warning,
                format!(
                    "{} has device code packed by zstd, which driver {driver} may not unpack",
                    file.path
                ),
            )
            .subject(&file.path)
            .complaining(Layer::Application)
            .evidence(
                "entries packed by zstd",
                file.device.zstd.to_string(),
                &file.path,
            )
            .evidence("driver", driver.to_string(), &machine.name)
            .source("RAPIDS rapids-cmake documentation on fat binary compression (secondary)")
            .fix(
                Fix::at(
                    Layer::Driver,
                    format!("upgrade the driver to {ZSTD_DRIVER} or newer"),
                )
                .cost("root, reboot"),
            ),
        );
    }
}

/// The build that has code for a GPU: what to ask nvcc for, and which toolkit can, where the file's own cannot.
fn build_for(gpu: Capability, file: &File, matrix: &Matrix) -> String {
    let (major, minor) = gpu;
    let own = file.toolkits.last().cloned().or_else(|| {
        let isa = file.ptx_isa.last()?;
        let row = matrix.ptx_isas().iter().find(|row| row.ptx == *isa)?;
        Some(row.cuda.clone())
    });
    let arch = matrix.arch(gpu);
    let last = arch.and_then(|arch| arch.last_toolkit.as_ref());
    let first = arch.map(|arch| &arch.first_toolkit);
    let toolkit = match (own, first, last) {
        (Some(own), _, Some(last)) if own.major_minor() != last.major_minor() && own > *last => {
            format!(
                " with CUDA {last} or older: CUDA {} builds for no sm_{major}{minor}",
                own.major_minor()
            )
        }
        (Some(own), Some(first), _) if own.major_minor() != first.major_minor() && own < *first => {
            format!(
                " with CUDA {first} or newer: CUDA {} does not know sm_{major}{minor}",
                own.major_minor()
            )
        }
        _ => String::new(),
    };
    format!(
        "take or make a build with code for sm_{major}{minor} (`-gencode arch=compute_{major}{minor},code=sm_{major}{minor}`){toolkit}"
    )
}

/// Why nothing that hangs on the glibc of a system was judged.
pub fn glibc_not_known(os: &str, matrix: &Matrix) -> String {
    let mut known: Vec<&str> = matrix
        .distro_libcs()
        .iter()
        .map(|row| row.os.as_str())
        .collect();
    known.dedup();
    format!(
        "which glibc {} has is in no table (there are {}): say it, such as glibc=2.35",
        os.escape_debug(),
        known.join(", ")
    )
}

/// A file for another C library than the target's, and one for glibc where it is not known which the target has.
fn c_library(
    file: &File,
    machine: &Machine,
    matrix: &Matrix,
    findings: &mut Vec<Finding>,
    unknown: &mut Vec<String>,
) {
    if machine.here {
        return;
    }
    let needs = |stem: &str| file.needed.iter().any(|n| n.soname.starts_with(stem));
    let interpreter = file.interpreter.as_deref().unwrap_or_default();
    let for_glibc = file.glibc.is_some() || needs("libc.so.6") || interpreter.contains("/ld-linux");
    let for_musl = needs("libc.musl-") || interpreter.contains("/ld-musl");
    if for_glibc && let Some(os) = &machine.glibc_of {
        let why = glibc_not_known(os, matrix);
        if !unknown.contains(&why) {
            unknown.push(why);
        }
    }
    let (is, has) = match (for_glibc, for_musl) {
        (true, false) if machine.musl => ("glibc", "musl"),
        (false, true) if !machine.musl && machine.glibc.is_some() => ("musl", "glibc"),
        _ => return,
    };
    findings.push(
        Finding::new(
            "program-loader-missing",
            Layer::System,
            Severity::Error,
            format!("{} is for {is}, and {} has {has}", file.path, machine.name),
        )
        .subject(&file.path)
        .complaining(Layer::Application)
        .component(if is == "glibc" { "libc.so.6" } else { "ld-musl" })
        .evidence("C library", is, &file.path)
        .fix(Fix::at(
            Layer::System,
            if is == "glibc" {
                "run it in an image with glibc (Debian, Ubuntu, Rocky Linux): NVIDIA's libraries need it"
            } else {
                "build it for glibc: NVIDIA's libraries need it, and musl cannot load them"
            },
        )),
    );
}

/// What the file needs of others: the C library of the target, and on this machine everything.
fn libraries(file: &File, machine: &Machine, findings: &mut Vec<Finding>) {
    if let (Some(needs), Some(has)) = (&file.glibc, &machine.glibc)
        && needs > has
    {
        findings.push(
            Finding::new("glibc-too-old", Layer::System, Severity::Error, format!("{} needs glibc {needs}, and {} has {has}", file.path, machine.name))
                .subject(&file.path)
                .complaining(Layer::Application)
                .component("libc.so.6")
                .evidence("version needs", format!("GLIBC_{needs}"), &file.path)
                .fix(Fix::at(Layer::Application, format!("build it on a system with glibc {has} or older, or run it in an image with glibc {needs} or newer")).cost("rebuild"))
                .fix(Fix::at(Layer::System, "take a newer distribution").cost("root").second("the C library cannot be replaced by itself")),
        );
    }
    if !machine.here {
        return;
    }
    for needed in file.needed.iter().filter(|needed| needed.is_missing()) {
        let layer = layer_of(&needed.soname);
        findings.push(
            Finding::new(
                "library-not-found",
                layer,
                Severity::Error,
                match needed.broken() {
                    Some((path, why)) => format!(
                        "{path}, which the loader takes as {} for {}, is no library: {why}",
                        needed.soname, file.path
                    ),
                    None => format!(
                        "{} needs {}, which the loader does not find here",
                        file.path, needed.soname
                    ),
                },
            )
            .of(vendor_of(&needed.soname))
            .subject(format!("{} for {}", needed.soname, file.path))
            .complaining(Layer::Application)
            .component(&needed.soname)
            .evidence(
                "search",
                &needed.by,
                "RPATH, LD_LIBRARY_PATH, RUNPATH, ld.so.cache, default folders",
            )
            .fix(match needed.broken() {
                Some((path, why)) => make_whole(layer, path, why),
                None => bring(layer, &needed.soname),
            }),
        );
    }
    for missing in &file.missing {
        let layer = layer_of(&missing.soname);
        if missing.is_library() {
            let library = &missing.library;
            findings.push(
                Finding::new(
                    "library-not-found",
                    layer,
                    Severity::Error,
                    format!(
                        "{library} needs {}, which the loader does not find here; {} needs it",
                        missing.soname, file.path
                    ),
                )
                .of(vendor_of(&missing.soname))
                .subject(format!("{} for {}", missing.soname, file.path))
                .complaining(Layer::Application)
                .component(&missing.soname)
                .evidence("needed by", library, &missing.what)
                .fix(bring(layer, &missing.soname)),
            );
            continue;
        }
        findings.push(
            Finding::new(
                "symbol-version-missing",
                layer,
                Severity::Error,
                format!(
                    "{} does not have `{}`, which {} needs",
                    missing.library, missing.what, file.path
                ),
            )
            .subject(format!("{} for {}", missing.what, file.path))
            .complaining(Layer::Application)
            .component(&missing.soname)
            .evidence(
                "library that the loader takes",
                &missing.library,
                &missing.soname,
            )
            .fix(newer(layer, &missing.soname, &missing.what)),
        );
    }
}

/// Libraries of glibc, by their names up to `.so`. Each goes with the loader and with all the others: one that is taken by
/// itself breaks every program that gets it.
const OF_GLIBC: &[&str] = &[
    "ld-linux",
    "ld-linux-aarch64",
    "ld-linux-x86-64",
    "libanl",
    "libc",
    "libdl",
    "libm",
    "libmvec",
    "libpthread",
    "libresolv",
    "librt",
    "libthread_db",
    "libutil",
];

/// What gives a program a library that has what it needs of it.
fn newer(layer: Layer, soname: &str, what: &str) -> Fix {
    let stem = soname.split(".so").next().unwrap_or(soname);
    if !OF_GLIBC.contains(&stem) {
        return Fix::at(
            layer,
            format!("put a newer {soname} where the loader finds it first"),
        );
    }
    let needed = match what.strip_prefix("GLIBC_").filter(|v| *v != "PRIVATE") {
        Some(version) => format!("glibc {version} or newer"),
        None => "a newer glibc".to_owned(),
    };
    Fix::at(
        Layer::Application,
        format!(
            "build it on a system with a glibc as old as the one here, or run it in an image or on a system with {needed}: {soname} is part of the system and is not replaced by itself"
        ),
    )
    .cost("rebuild")
}

/// What mends a file that stands where the loader looks and is no library.
fn make_whole(layer: Layer, path: &str, why: &str) -> Fix {
    let fix = |text: String| Fix::at(layer, text);
    if why.contains("Git LFS") {
        return fix(format!(
            "fetch the file that {path} stands for: git lfs pull in its repository, or copy it from where it is whole"
        ));
    }
    fix(format!(
        "put the whole library at {path}, or take away what lies there: the loader stops at it and searches no further"
    ))
}

/// Libraries that distributions bring, by their names up to `.so`: what the C library and the compilers are made of, and what
/// NVIDIA's packages, frameworks' wheels and common programs take from the system.
const OF_DISTRIBUTIONS: &[&str] = &[
    // glibc and musl
    "ld-linux",
    "ld-linux-x86-64",
    "ld-linux-aarch64",
    "libanl",
    "libc",
    "libcrypt",
    "libdl",
    "libm",
    "libmvec",
    "libnsl",
    "libpthread",
    "libresolv",
    "librt",
    "libthread_db",
    "libutil",
    // gcc and clang
    "libatomic",
    "libc++",
    "libc++abi",
    "libgcc_s",
    "libgfortran",
    "libgomp",
    "libitm",
    "libomp",
    "libquadmath",
    "libstdc++",
    "libunwind",
    // what NVIDIA's libraries and frameworks need beside those
    "libdrm",
    "libelf",
    "libffi",
    "libibverbs",
    "libmlx5",
    "libnuma",
    "librdmacm",
    "libudev",
    "libz",
    // what programs take from nearly every distribution
    "libEGL",
    "libGL",
    "libGLX",
    "libGLdispatch",
    "libICE",
    "libOpenGL",
    "libSM",
    "libX11",
    "libXext",
    "libXrender",
    "libasound",
    "libblas",
    "libbz2",
    "libcap",
    "libcrypto",
    "libcurl",
    "libexpat",
    "libglib-2",
    "libgthread-2",
    "libjpeg",
    "liblapack",
    "liblzma",
    "libncurses",
    "libncursesw",
    "libopenblas",
    "libpng16",
    "libpython",
    "libreadline",
    "libsndfile",
    "libsqlite3",
    "libssl",
    "libsystemd",
    "libtiff",
    "libtinfo",
    "libuuid",
    "libxcb",
    "libxml2",
    "libzstd",
];

/// Whether a distribution brings a library of this name.
fn is_of_distribution(soname: &str) -> bool {
    let stem = soname.split(".so").next().unwrap_or(soname);
    // `libglib-2.0.so.0`, `libpython3.11.so.1.0`, `libc.musl-x86_64.so.1`: a version may stand before the ending.
    let bare = stem.split_once('.').map_or(stem, |(name, _)| name);
    let bare = match bare.strip_prefix("libpython") {
        Some(_) => "libpython",
        None => bare,
    };
    OF_DISTRIBUTIONS.contains(&bare)
}

/// Whose a library of a vendor's stack is.
fn vendor_of(soname: &str) -> Vendor {
    let is = |stems: &[&str]| stems.iter().any(|stem| soname.starts_with(stem));
    if is(&["libsycl.so", "libze_loader", "libmkl_sycl"]) {
        Vendor::Intel
    } else if is(&[
        "libhsa-runtime64",
        "libamdhip64",
        "libhiprtc",
        "libamd_comgr",
    ]) || is(ROCM_LIBRARIES)
    {
        Vendor::Amd
    } else {
        Vendor::Nvidia
    }
}

/// Libraries of `ROCm` and oneAPI above the runtime, by the start of their names.
const ROCM_LIBRARIES: &[&str] = &[
    "libMIOpen",
    "libhipblas",
    "libhipfft",
    "libhiprand",
    "libhipsolver",
    "libhipsparse",
    "libmkl_sycl",
    "librccl",
    "librocblas",
    "librocfft",
    "librocrand",
    "librocsolver",
    "librocsparse",
];

/// The layer that a library belongs to; what neither the stack nor a distribution has is the program's own.
fn layer_of(soname: &str) -> Layer {
    let is = |stems: &[&str]| stems.iter().any(|stem| soname.starts_with(stem));
    if is(&["libcuda.so", "libnvidia-", "libhsa-runtime64"]) {
        Layer::Driver
    } else if is(&[
        "libcudart",
        "libnvrtc",
        "libnvJitLink",
        "libamdhip64",
        "libhiprtc",
        "libamd_comgr",
        "libsycl.so",
        "libze_loader",
    ]) {
        Layer::Runtime
    } else if is(ROCM_LIBRARIES) {
        Layer::Libraries
    } else if is(&["libtorch", "libc10", "libtensorflow", "libonnxruntime"]) {
        Layer::Framework
    } else if super::is_cuda_library(soname) {
        Layer::Libraries
    } else if is_of_distribution(soname) {
        Layer::System
    } else {
        Layer::Application
    }
}

/// How a library gets to where a program searches.
fn bring(layer: Layer, soname: &str) -> Fix {
    match layer {
        Layer::Application => Fix::at(
            layer,
            format!(
                "put {soname}, which came with the program or is its own, where the program searches, or name its folder in LD_LIBRARY_PATH"
            ),
        ),
        Layer::System => Fix::at(
            layer,
            format!("install the package of this distribution that brings {soname}"),
        )
        .cost("root"),
        _ => Fix::at(
            layer,
            format!("install what brings {soname}, or name its folder in LD_LIBRARY_PATH"),
        ),
    }
}

#[cfg(test)]
mod tests;
