//! Which libcuda a program in a container of an image gets: the host's, or one of the image itself, and what that does there.
//!
//! `LD_LIBRARY_PATH` comes before what the container's tools bring. A compat library in `/usr/local/cuda/compat` is put first by
//! the tools themselves, where it is of a newer branch than the host's driver, without a look at the GPU.

use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::inspect::image::{Compat, OwnKind, OwnLibcuda, TakenBy};
use crate::inspect::{ImageFacts, Machine};
use crate::matrix::{CompatFit, CompatLibrary, Confidence, Matrix};
use crate::version::Version;

/// Who says when the container's tools take a compat library.
const TOOLKIT: &str = "NVIDIA libnvidia-container and container toolkit sources: compat mode";
/// Who says that it has to be newer than the driver, and what GPUs may use it.
const GUIDE: &str = "CUDA Compatibility guide: forward compatibility";

/// A compat library that programs in a container get, and how it does there.
pub(super) struct Taken<'a> {
    pub(super) compat: &'a Compat,
    pub(super) fit: CompatFit,
}

impl Taken<'_> {
    /// The version of the driver that it stands for.
    pub(super) fn version(&self) -> Option<&Version> {
        self.compat.version.as_ref()
    }

    /// The library in words.
    pub(super) fn name(&self) -> String {
        match &self.compat.version {
            Some(version) => format!("libcuda {version}"),
            None => "libcuda".to_owned(),
        }
    }
}

/// The compat library that is taken on a machine; `None` where the host's own is.
pub(super) fn taken<'a>(
    image: &'a ImageFacts,
    machine: &Machine,
    matrix: &Matrix,
) -> Option<Taken<'a>> {
    let driver = machine.driver.as_ref()?;
    let is_tegra = |gpu: &super::super::MachineGpu| {
        let arch = matrix.arch(gpu.capability);
        arch.is_some_and(|arch| arch.tegra)
    };
    // Of drivers of Windows and of a Jetson the numbers are others.
    if machine.wsl || machine.gpus.iter().any(is_tegra) {
        return None;
    }
    let by = |by: TakenBy| image.compat.iter().find(|compat| compat.taken_by == by);
    let is_newer = |compat: &&Compat| {
        let version = compat.version.as_ref();
        version.is_some_and(|version| version.major() > driver.major())
    };
    let compat = match image.own_libcuda.as_ref().map(|own| own.kind) {
        Some(OwnKind::Stub | OwnKind::Driver) => return None,
        Some(OwnKind::Compat) => by(TakenBy::LibraryPath)?,
        Some(OwnKind::StubByShortName) | None => by(TakenBy::Toolkit)
            .filter(is_newer)
            .or_else(|| by(TakenBy::StartScript).filter(is_newer))?,
    };
    Some(Taken {
        compat,
        fit: fit(compat, driver, machine, matrix),
    })
}

/// How a compat library does on a machine.
pub(super) fn fit(
    compat: &Compat,
    driver: &Version,
    machine: &Machine,
    matrix: &Matrix,
) -> CompatFit {
    let gpus: Vec<(String, Option<bool>)> = machine
        .gpus
        .iter()
        .map(|gpu| (gpu.name.clone(), gpu.compat_eligible(matrix)))
        .collect();
    let note = compat.note.as_ref();
    let library = CompatLibrary {
        version: compat.version.as_ref(),
        cuda: note.and_then(|note| note.cuda.as_ref()),
        branches: note.map_or(&[], |note| note.drivers.as_slice()),
    };
    matrix.compat_fit(library, driver, &gpus)
}

/// What is wrong with the libcuda that a container of an image gets. `is_used`: something in the image uses CUDA.
pub(super) fn judge(
    path: &str,
    image: &ImageFacts,
    taken: Option<&Taken<'_>>,
    machine: &Machine,
    is_used: bool,
    findings: &mut Vec<Finding>,
    unknown: &mut Vec<String>,
) {
    match &image.own_libcuda {
        Some(own) if matches!(own.kind, OwnKind::Stub | OwnKind::StubByShortName) => {
            findings.push(stub(path, own, is_used));
        }
        _ => {}
    }
    let (Some(taken), Some(driver)) = (taken, &machine.driver) else {
        return;
    };
    // Its start script tries it first.
    if taken.compat.taken_by == TakenBy::StartScript {
        return;
    }
    match &taken.fit {
        CompatFit::Works { .. } => {}
        CompatFit::Unknown { why } => unknown.push(format!(
            "{path}: its own {} is taken in place of that of driver {driver}, and whether it works there is not known: {why}",
            taken.name()
        )),
        CompatFit::Refused {
            why,
            by_gpu,
            confidence,
        } => {
            let refusal = Refusal {
                why,
                by_gpu: *by_gpu,
                is_sure: *confidence == Confidence::Verified && is_used,
            };
            let own = image.own_libcuda.as_ref();
            findings.push(not_usable(path, own, taken, &refusal, driver, machine));
        }
    }
}

/// Why a compat library is refused, by what, and how sure that is.
struct Refusal<'a> {
    why: &'a str,
    by_gpu: bool,
    is_sure: bool,
}

/// A compat library that is taken and cannot work.
fn not_usable(
    path: &str,
    own: Option<&OwnLibcuda>,
    taken: &Taken<'_>,
    refusal: &Refusal<'_>,
    driver: &Version,
    machine: &Machine,
) -> Finding {
    let why = refusal.why;
    let by_path = taken.compat.taken_by == TakenBy::LibraryPath;
    let name = taken.name();
    let place = strip(&taken.compat.path, path);
    // As the variable names it.
    let found = own.filter(|_| by_path).map_or(place, |own| &own.path);
    let folder = crate::sysroot::parent(found);
    // The tools of CDI read the note, and pass by a library that is not for this branch.
    let is_error = refusal.is_sure && (by_path || refusal.by_gpu);
    let error = if refusal.by_gpu { 804 } else { 803 };
    let who = if by_path {
        format!("LD_LIBRARY_PATH of {path} puts {name} of the image")
    } else {
        format!("the container toolkit puts {name} of {path}")
    };
    let finding = Finding::new(
        "compat-libcuda-not-usable",
        Layer::Driver,
        if is_error {
            Severity::Error
        } else {
            Severity::Warning
        },
        format!("{who} before that of driver {driver}, and it cannot work there: {why}"),
    )
    .subject(path)
    .complaining(Layer::Runtime)
    .component("libcuda.so.1")
    .evidence("libcuda for forward compatibility", name, place)
    .evidence("driver", driver.to_string(), &machine.name)
    .source(GUIDE);
    let finding = with_note(finding, taken);
    if by_path {
        return finding
            .detail(format!("CUDA answers with error {error} there, though the driver itself may be new enough"))
            .fix(
                Fix::at(
                    Layer::Container,
                    format!("take {folder} out of LD_LIBRARY_PATH in the Dockerfile: from /usr/local/cuda/compat the container toolkit takes the library by itself, where the driver is older"),
                )
                .cost("rebuild"),
            )
            .fix(
                Fix::at(
                    Layer::Container,
                    "start it with another LD_LIBRARY_PATH, without that folder: `docker run -e LD_LIBRARY_PATH=... IMAGE`",
                )
                .second("has to be done each time"),
            );
    }
    let how = if refusal.by_gpu {
        "`docker run --gpus all` and CDI alike take the library of a newer branch than the driver's, and do not look at the GPU"
    } else {
        "in its legacy mode, the default of `docker run --gpus all`, the toolkit does not read the library's note; in the CDI modes it does, and the driver's own is taken"
    };
    finding
        .detail(format!("CUDA answers with error {error} there, though the driver itself may be new enough: {how}"))
        .source(TOOLKIT)
        .fix(
            Fix::at(
                Layer::Container,
                format!("take the compat library out of the image: the package cuda-compat, or the folder {folder}"),
            )
            .cost("rebuild"),
        )
        .fix(
            Fix::at(
                Layer::Driver,
                match taken.version() {
                    Some(version) => format!("upgrade the driver to branch {} or newer, which leaves the library aside", version.major()),
                    None => "upgrade the driver, so that the library is left aside".to_owned(),
                },
            )
            .cost("root, reboot")
            .second("changes the host for what one image brings"),
        )
}

/// The same with what the library says of itself.
fn with_note(finding: Finding, taken: &Taken<'_>) -> Finding {
    let Some(note) = &taken.compat.note else {
        return finding;
    };
    let list: Vec<String> = note.drivers.iter().map(ToString::to_string).collect();
    let cuda = note.cuda.as_ref();
    let cuda = cuda.map_or("not said".to_owned(), ToString::to_string);
    finding.evidence(
        "its note",
        format!("CUDA {cuda}, driver branches {}", list.join(", ")),
        ".note.cuda.fwd_compatibility",
    )
}

/// A library to link against that is found as libcuda.
fn stub(path: &str, own: &OwnLibcuda, is_used: bool) -> Finding {
    let is_short = own.kind == OwnKind::StubByShortName;
    let what = if is_short {
        "programs that open libcuda.so get the CUDA stub library"
    } else {
        "the CUDA stub library is found as libcuda.so.1 before the driver's"
    };
    let folder = crate::sysroot::parent(&own.path);
    Finding::new(
        "libcuda-stub",
        Layer::Driver,
        if is_used && !is_short {
            Severity::Error
        } else {
            Severity::Warning
        },
        format!("{what}: {} by LD_LIBRARY_PATH of {path}", own.path),
    )
    .subject(path)
    .complaining(Layer::Runtime)
    .component("libcuda.so.1")
    .detail("a stub is there to link against on machines without a driver; it answers each call with error 34, whatever driver the host has")
    .evidence("stub", &own.real_path, &own.path)
    .source("CUDA installation guide: stub libraries")
    .fix(
        Fix::at(
            Layer::Container,
            format!("take {folder} out of LD_LIBRARY_PATH in the Dockerfile, and keep it for the linker alone (-L, LIBRARY_PATH)"),
        )
        .cost("rebuild"),
    )
}

/// What of the findings on the host's driver a compat library of the image makes up for: those that are not there with the
/// driver that it stands for. Whether it was told that this is not known.
pub(super) fn make_up(
    findings: &mut Vec<Finding>,
    with_it: &[Finding],
    taken: &Taken<'_>,
    machine: &Machine,
    unknown: &mut Vec<String>,
) -> bool {
    const OF_LEVEL: &[&str] = &[
        "driver-too-old",
        "device-code-packed-too-new",
        "minor-version-compatibility",
    ];
    let is_met = |finding: &Finding| {
        let is_of_level = OF_LEVEL.contains(&finding.id.as_str())
            || finding.id == "ptx-too-new-for-driver" && taken.compat.compiles_ptx;
        is_of_level && with_it.iter().all(|other| other.key != finding.key)
    };
    if let CompatFit::Refused { why, .. } = &taken.fit {
        for finding in findings.iter_mut().filter(|finding| is_met(finding)) {
            finding.evidence.push(crate::finding::Evidence {
                what: format!("{} of the image", taken.name()),
                value: format!("does not help: {why}"),
                source: taken.compat.path.clone(),
            });
            // It brings such a package already.
            without_packages(finding);
        }
        return false;
    }
    let told_before = unknown.len();
    findings.retain(|finding| finding.id != "minor-version-compatibility" || !is_met(finding));
    for finding in findings.iter_mut().filter(|finding| is_met(finding)) {
        let name = taken.name();
        let by = if machine.gpus.is_empty() {
            ", where the GPUs are data-center boards"
        } else {
            ""
        };
        let how = match &taken.fit {
            CompatFit::Unknown { why } => {
                unknown.push(format!(
                    "{}; whether {name} of the image makes up for it is not known: {why}",
                    finding.title
                ));
                finding.severity = finding.severity.min(Severity::Warning);
                format!("whether {name} of the image makes up for it is not known: {why}")
            }
            CompatFit::Works { source, confidence } => {
                let is_sure = *confidence == Confidence::Verified && !machine.gpus.is_empty();
                finding.severity = if is_sure {
                    Severity::Note
                } else {
                    finding.severity.min(Severity::Warning)
                };
                if !finding.sources.contains(source) {
                    finding.sources.push(source.clone());
                }
                let word = match confidence {
                    Confidence::Verified => "makes up for it",
                    Confidence::Secondary => "should make up for it",
                };
                format!("{name} of the image {word}{by}")
            }
            CompatFit::Refused { .. } => continue,
        };
        finding.title = format!("{}; {how}", finding.title);
        finding.evidence.push(crate::finding::Evidence {
            what: "libcuda for forward compatibility".to_owned(),
            value: name,
            source: taken.compat.path.clone(),
        });
        without_packages(finding);
    }
    unknown.len() > told_before
}

/// A compat library in the image that would help, and that nobody puts on the loader's path.
pub(super) fn unused(
    findings: &mut [Finding],
    path: &str,
    image: &ImageFacts,
    machine: &Machine,
    matrix: &Matrix,
) {
    let Some(driver) = &machine.driver else {
        return;
    };
    let helps = |compat: &&Compat| {
        compat.taken_by == TakenBy::Nobody
            && matches!(
                fit(compat, driver, machine, matrix),
                CompatFit::Works { .. }
            )
    };
    let Some(compat) = image.compat.iter().find(helps) else {
        return;
    };
    let level = compat.version.as_ref();
    let level = level.and_then(|version| matrix.cuda_level_range(version).0);
    let place = strip(&compat.path, path);
    let folder = crate::sysroot::parent(place);
    for finding in findings
        .iter_mut()
        .filter(|finding| finding.id == "driver-too-old" && finding.severity == Severity::Error)
    {
        let wanted = finding
            .evidence
            .iter()
            .filter(|evidence| evidence.what == "CUDA runtime")
            .filter_map(|evidence| Version::parse(evidence.value.split(' ').next()?));
        let covers = |runtime: Version| level.is_some_and(|l| matrix.runtime_accepts(&runtime, l));
        if !wanted.into_iter().all(covers) {
            continue;
        }
        without_packages(finding);
        finding.evidence.push(crate::finding::Evidence {
            what: "libcuda for forward compatibility, on no path of the loader".to_owned(),
            value: compat
                .version
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            source: compat.path.clone(),
        });
        finding.fixes.push(
            Fix::at(
                Layer::Container,
                format!("put the compat library that the image has where it is found: `ENV LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH` in the Dockerfile, or a link /usr/local/cuda to its toolkit's folder"),
            )
            .cost("rebuild")
            .second("only for data-center GPUs; and in LD_LIBRARY_PATH it is a fault of its own once the host's driver is newer"),
        );
    }
}

/// Takes away the advice to install a compat package.
fn without_packages(finding: &mut Finding) {
    finding
        .fixes
        .retain(|fix| !fix.summary.contains("cuda-compat-"));
}

/// A path in the image.
pub(super) fn strip<'a>(path: &'a str, image: &str) -> &'a str {
    path.strip_prefix(image)
        .and_then(|rest| rest.strip_prefix('!'))
        .unwrap_or(path)
}
