//! What is to be asked of a file that goes to another machine: whether what it needs is there or comes with it, what it
//! still knows of the machine that built it, and whether the driver there drives the GPUs there at all.

use std::collections::BTreeSet;

use super::layer_of;
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::inspect::{File, Kind, Machine, is_cuda_library};
use crate::matrix::{Confidence, Matrix};
use crate::sysroot::file_name;
use crate::version::Version;

/// The CUDA libraries that come along.
#[derive(Clone, Debug, Default)]
pub struct Brought {
    /// Sonames and file names of the libraries among the files.
    sonames: BTreeSet<String>,
    /// Something that brings all of CUDA's libraries comes along: a pinned PyTorch, say.
    pub all: bool,
    /// The CUDA versions whose runtime comes along.
    pub runtimes: Vec<Version>,
}

impl Brought {
    /// What these files bring.
    pub fn by(files: &[File]) -> Self {
        let mut sonames = BTreeSet::new();
        for file in files {
            sonames.insert(file_name(member_of(&file.path)).to_owned());
            sonames.extend(file.soname.clone());
        }
        Self {
            sonames,
            ..Self::default()
        }
    }

    fn has(&self, soname: &str, matrix: &Matrix) -> bool {
        // A framework brings what its own CUDA version has, and nothing of another one.
        let majors = matrix.cuda_majors_of_soname(soname);
        let brings_all = self.all && (majors.is_empty() || self.runtimes.is_empty());
        brings_all
            || self.sonames.contains(soname)
            || self
                .runtimes
                .iter()
                .any(|cuda| is_of_cuda(soname, cuda, matrix))
    }
}

/// The path within a wheel, else the path.
fn member_of(path: &str) -> &str {
    path.rsplit_once('!').map_or(path, |(_, member)| member)
}

/// Whether a toolkit of this version has a library of this soname.
fn is_of_cuda(soname: &str, cuda: &Version, matrix: &Matrix) -> bool {
    // What comes by a package of its own.
    const OTHERS: &[&str] = &[
        "libcudnn",
        "libnccl",
        "libnvinfer",
        "libnvshmem",
        "libtorch_",
        "libc10_",
    ];
    let is = |stems: &[&str]| stems.iter().any(|stem| soname.starts_with(stem));
    if is(OTHERS) {
        return false;
    }
    let majors = matrix.cuda_majors_of_soname(soname);
    // Not every library has a row; of these two one that has none is of no CUDA that is known.
    majors.contains(&cuda.major()) || majors.is_empty() && !is(&["libcudart", "libcublas"])
}

/// Needs of CUDA's libraries that neither a file that comes along nor the machine meets. The driver's own libraries come
/// with the driver; what any distribution has (`libc`, `libstdc++`, `libgcc_s`) is met anyway.
pub fn unmet(file: &File, brought: &Brought, machine: &Machine, matrix: &Matrix) -> Vec<Finding> {
    let mut findings = Vec::new();
    // An extension of PyTorch is loaded by a PyTorch, which has brought CUDA's libraries by then.
    let is_torch = |soname: &str| soname.starts_with("libtorch") || soname.starts_with("libc10");
    if file.kind == Kind::SharedLibrary && file.needed.iter().any(|n| is_torch(&n.soname)) {
        return findings;
    }
    // What a Python package needs may come with another one that is imported before it.
    let severity = if file.package.is_some() {
        Severity::Warning
    } else {
        Severity::Error
    };
    for needed in &file.needed {
        let soname = needed.soname.as_str();
        let is_drivers = soname.starts_with("libcuda.so") || soname.starts_with("libnvidia-");
        let is_met = is_drivers
            || !is_cuda_library(soname)
            || needed.by == super::super::gather::IN_WHEEL
            || machine.provides.iter().any(|provided| provided == soname)
            || brought.has(soname, matrix)
            || machine
                .cuda
                .as_ref()
                .is_some_and(|cuda| is_of_cuda(soname, cuda, matrix));
        if is_met {
            continue;
        }
        let layer = layer_of(soname);
        let there = match &machine.cuda {
            Some(cuda) => format!("CUDA {cuda}"),
            None => "no CUDA is said to be there".to_owned(),
        };
        let mut finding = Finding::new(
            "library-not-found",
            layer,
            severity,
            format!(
                "{} needs {soname}, and nobody brings it",
                file.path
            ),
        )
        .subject(format!("{soname} for {}", file.path))
        .complaining(Layer::Application)
        .component(soname)
        .evidence("needs", soname, &file.path)
        .evidence("installed there", there, &machine.name)
        .detail("the loader refuses it there: `error while loading shared libraries`")
        .fix(Fix::at(
            layer,
            format!("ship {soname} with it, or install what brings it, and say so in the target (`cuda`, `provides`)"),
        ));
        if soname.starts_with("libcudart.") {
            finding = finding.fix(
                Fix::at(
                    Layer::Application,
                    "link the runtime in: nvcc's `-cudart static`, the default, needs no libcudart",
                )
                .cost("rebuild"),
            );
        }
        findings.push(finding);
    }
    findings
}

/// Whether the machine's driver drives its GPUs: one that does not runs nothing on them.
pub fn of_machine(machine: &Machine, matrix: &Matrix) -> Vec<Finding> {
    let Some(driver) = &machine.driver else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for gpu in machine
        .gpus
        .iter()
        .filter(|gpu| seen.insert(gpu.name.clone()))
    {
        let Some(arch) = matrix.arch(gpu.capability).filter(|arch| !arch.tegra) else {
            continue;
        };
        let branch = driver.major();
        let (id, title, fix) = match (arch.first_driver_branch, arch.last_driver_branch) {
            (_, Some(last)) if branch > last => (
                "gpu-dropped-by-branch",
                format!(
                    "driver {driver} no longer drives the {}: branch {last} is the last one that does",
                    gpu.name
                ),
                format!("stay on driver branch {last} where that GPU is"),
            ),
            (Some(first), _) if branch < first => (
                "gpu-too-new-for-branch",
                format!(
                    "driver {driver} does not know the {}: branch {first} is the first one that does",
                    gpu.name
                ),
                format!("upgrade the driver to branch {first} or newer"),
            ),
            _ => continue,
        };
        let severity = match arch.confidence {
            Confidence::Verified => Severity::Error,
            Confidence::Secondary => Severity::Warning,
        };
        let (major, minor) = gpu.capability;
        findings.push(
            Finding::new(id, Layer::Driver, severity, title)
                .subject(&gpu.name)
                .component("nvidia.ko")
                .evidence("driver", driver.to_string(), &machine.name)
                .evidence(
                    "GPU",
                    format!("{}, sm_{major}{minor}", gpu.name),
                    &machine.name,
                )
                .source(&arch.source)
                .fix(Fix::at(Layer::Driver, fix).cost("root, reboot")),
        );
    }
    findings
}

/// What holds where the runtime is newer than the driver's CUDA within one major version: a note.
pub fn by_minor_version(
    subject: &str,
    runtime: &Version,
    driver: &Version,
    level: u32,
    machine: &Machine,
) -> Option<Finding> {
    let has = Version::from_cuda_level(level);
    // Of a major version alone it is not known.
    if runtime.len() < 2 || runtime.major() != has.major() || runtime.cuda_level() <= level {
        return None;
    }
    Some(
        Finding::new(
            "minor-version-compatibility",
            Layer::Driver,
            Severity::Note,
            format!(
                "CUDA {} ({subject}) runs on driver {driver}, of CUDA {has}, by minor version compatibility",
                runtime.major_minor()
            ),
        )
        .subject(subject)
        .detail("PTX of the newer version, and what NVRTC and Triton of it make, is refused: `the provided PTX was compiled with an unsupported toolchain`")
        .evidence("CUDA runtime", runtime.to_string(), subject)
        .evidence("driver", format!("{driver}, CUDA {has}"), &machine.name),
    )
}

/// What is wrong with a file for a machine that is not this one.
pub(super) fn file(file: &File, machine: &Machine, findings: &mut Vec<Finding>) {
    processor(file, machine, findings);
    cpp_library(file, machine, findings);
    if matches!(file.kind, Kind::Program | Kind::SharedLibrary) {
        search_path(file, machine, findings);
    }
}

fn processor(file: &File, machine: &Machine, findings: &mut Vec<Finding>) {
    let (Some(its), Some(wanted)) = (&file.arch, &machine.arch) else {
        return;
    };
    // 32-bit x86 programs run on x86_64.
    if its == wanted || its == "i386" && wanted == "x86_64" {
        return;
    }
    findings.push(
        Finding::new(
            "program-other-architecture",
            Layer::Application,
            Severity::Error,
            format!(
                "{} is for {its}, and {} is {wanted}",
                file.path, machine.name
            ),
        )
        .complaining(Layer::System)
        .subject(&file.path)
        .detail("the kernel refuses it: `Exec format error`; the loader passes such a library over")
        .evidence("processor", its, &file.path)
        .evidence("processor", wanted, &machine.name)
        .fix(Fix::at(Layer::Application, format!("build it for {wanted}")).cost("rebuild")),
    );
}

fn cpp_library(file: &File, machine: &Machine, findings: &mut Vec<Finding>) {
    let (Some(needs), Some((has, confidence))) = (&file.glibcxx, &machine.glibcxx) else {
        return;
    };
    // Conda environments and some wheels bring their own.
    let brings_own = file.needed.iter().any(|needed| {
        needed.soname.starts_with("libstdc++") && needed.by == super::super::gather::IN_WHEEL
    });
    if needs <= has || brings_own {
        return;
    }
    let severity = match confidence {
        Confidence::Verified => Severity::Error,
        Confidence::Secondary => Severity::Warning,
    };
    findings.push(
        Finding::new(
            "libstdcxx-too-old",
            Layer::System,
            severity,
            format!(
                "{} needs libstdc++ with GLIBCXX_{needs}, and {} has GLIBCXX_{has}",
                file.path, machine.name
            ),
        )
        .subject(&file.path)
        .complaining(Layer::Application)
        .component("libstdc++.so.6")
        .evidence("version needs", format!("GLIBCXX_{needs}"), &file.path)
        .fix(
            Fix::at(
                Layer::Application,
                "build it with the compiler of the oldest system it is to run on, or in a manylinux image, or link with `-static-libstdc++`",
            )
            .cost("rebuild"),
        )
        .fix(Fix::at(Layer::System, "run it in an image with a newer libstdc++").second("another system than the target has")),
    );
}

/// Folders in the file's own search path that are of the machine that built it, or that hold stubs.
fn search_path(file: &File, machine: &Machine, findings: &mut Vec<Finding>) {
    let (kind, path) = match (&file.runpath, &file.rpath) {
        (Some(path), _) => ("RUNPATH", path),
        (None, Some(path)) => ("RPATH", path),
        (None, None) => return,
    };
    let folders: Vec<&str> = path
        .split(':')
        .filter(|folder| !folder.is_empty())
        .collect();
    let with = |finding: Finding| {
        finding
            .subject(&file.path)
            .evidence(kind, path, &file.path)
            .evidence("target", &machine.name, &machine.name)
    };
    let of_stubs = |folder: &&str| folder.split('/').any(|part| part == "stubs");
    if let Some(folder) = folders.iter().copied().find(of_stubs) {
        findings.push(
            with(Finding::new(
                "runpath-to-stubs",
                Layer::Application,
                Severity::Warning,
                format!("{} looks for libraries in {folder}: stubs, which only the linker is to see", file.path),
            ))
            .detail("where a toolkit is installed the stub is found before the driver's library, and answers every call with an error")
            .fix(
                Fix::at(
                    Layer::Application,
                    format!("link again without that folder in the {kind}: CMake's `CUDA::cuda_driver` leaves RPATH alone, `patchelf --remove-rpath` takes it out"),
                )
                .cost("rebuild"),
            ),
        );
    }
    if let Some(folder) = folders.iter().copied().find(|folder| is_builders(folder)) {
        findings.push(
            with(Finding::new(
                "runpath-to-build-machine",
                Layer::Application,
                Severity::Warning,
                format!("{} looks for libraries in {folder}, a folder of the machine that built it", file.path),
            ))
            .detail("what was found there while it was built is not there on the target; and whoever can write to a folder of that name there decides what is loaded")
            .fix(
                Fix::at(
                    Layer::Application,
                    "install it before it is shipped (`cmake --install` sets the RPATH anew), or link with `-Wl,-rpath,$ORIGIN/../lib`",
                )
                .cost("rebuild"),
            ),
        );
    }
}

/// Whether a folder is one of a user, a build or a CI job: such a folder is not there on another machine.
fn is_builders(folder: &str) -> bool {
    const PLACES: &[&str] = &[
        "/home/",
        "/root/",
        "/tmp/",
        "/var/tmp/",
        "/build/",
        "/builds/",
        "/workspace/",
        "/github/",
        "/__w/",
        "/Users/",
        "/mnt/",
        "/io/",
    ];
    // `$ORIGIN/..` is where the file lies. A relative folder is one of the caller's.
    !folder.starts_with('$') && PLACES.iter().any(|place| folder.starts_with(place))
        || folder.contains("/_work/")
        || folder.contains("/jenkins/workspace/")
}
