//! Will a container of an image start and run on a machine: its files, with what the image itself has of a system, what it
//! asks of its host, and what it should have left to it.

use super::super::gather::ELSEWHERE;
use super::super::image::OwnKind;
use super::super::{File, ImageFacts, Kind, Linkage, Machine, Use};
use super::{layer_of, libcuda, merged, variables};
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::Matrix;
use crate::sysroot::{file_name, parent};

/// Findings about an image and the files in it. `path` is the image's.
pub fn of_image(
    path: &str,
    image: &ImageFacts,
    files: &[&File],
    machine: Option<&Machine>,
    matrix: &Matrix,
    unknown: &mut Vec<String>,
) -> Vec<Finding> {
    // The driver and the GPUs are the host's; all else comes along.
    let inside = machine.map(|machine| Machine {
        glibc: image.glibc.clone(),
        glibcxx: None,
        musl: false,
        glibc_of: None,
        // What of it is for another one than itself is judged only where all of it is; of an image for another processor
        // that is told of the whole.
        arch: image
            .arch
            .clone()
            .filter(|arch| machine.processor(matrix).0 == arch),
        cuda: None,
        provides: Vec::new(),
        container: true,
        here: false,
        ..machine.clone()
    });
    let judged = judged(path, image, files);
    let mut findings = files_on(&judged, inside.as_ref(), matrix, unknown);
    let is_used = judged.iter().any(uses_cuda);
    if let Some(machine) = machine {
        let taken = libcuda::taken(image, machine, matrix);
        let mut is_told = false;
        if let (Some(taken), Some(inside)) = (&taken, &inside)
            && taken.version().is_some()
        {
            // What is judged otherwise with the driver that it stands for is what it makes up for.
            let with_it = Machine {
                driver: taken.version().cloned(),
                ..inside.clone()
            };
            let with_it = files_on(&judged, Some(&with_it), matrix, &mut Vec::new());
            is_told = libcuda::make_up(&mut findings, &with_it, taken, machine, unknown);
        }
        libcuda::unused(&mut findings, path, image, machine, matrix);
        // That the driver is too old comes first, and then one fault is told: a newer one leaves the library aside.
        let is_too_old = findings
            .iter()
            .any(|f| f.id == "driver-too-old" && f.severity == Severity::Error);
        let taken = taken.filter(|_| !is_too_old && !is_told);
        libcuda::judge(
            path,
            image,
            taken.as_ref(),
            machine,
            is_used,
            &mut findings,
            unknown,
        );
    }
    driver_files(path, image, machine, &mut findings);
    variables::capabilities(path, image, &judged, &mut findings);
    if machine.is_some() && is_used {
        variables::hidden(path, image, &mut findings);
    }
    if machine.is_some() {
        cannot_start(image, &judged, &mut findings);
        missing(image, &judged, &mut findings);
        if !judged.is_empty() && judged.iter().all(is_of_tests) {
            unknown.push(format!(
                "{path}: all that is in it for the GPU belongs to tests"
            ));
        }
    }
    if let Some(machine) = machine {
        processor(path, image, machine, matrix, &mut findings, unknown);
        variables::requirements(path, image, machine, matrix, &mut findings, unknown);
        on_the_host(&mut findings, machine);
    }
    findings
}

/// The files that are judged by themselves: not those of a driver, and of programs and libraries for another processor than
/// the image's none, since tools of a toolkit bring some for other machines.
fn judged(path: &str, image: &ImageFacts, files: &[&File]) -> Vec<File> {
    let is_of_driver = |file: &File| {
        let own = libcuda::strip(&file.path, path);
        let mut all = image.driver_files.iter();
        all.any(|driver| driver.path == own)
    };
    let is_of_other = |file: &File| match (&file.arch, &image.arch) {
        (Some(its), Some(image)) => its != image,
        _ => false,
    };
    let all_of_other = files.iter().all(|file| is_of_other(file));
    files
        .iter()
        .filter(|file| !is_of_driver(file) && (all_of_other || !is_of_other(file)))
        .map(|file| {
            let mut file = (*file).clone();
            // Which package brought it is not known here: the libraries of one folder belong together.
            file.package
                .get_or_insert_with(|| parent(&file.path).to_owned());
            file
        })
        .collect()
}

/// What is found in the files on a machine.
fn files_on(
    files: &[File],
    machine: Option<&Machine>,
    matrix: &Matrix,
    unknown: &mut Vec<String>,
) -> Vec<Finding> {
    let files: Vec<&File> = files.iter().collect();
    merged(
        super::of_files(&files, &|_| true, machine, matrix, unknown)
            .into_iter()
            .flatten()
            .collect(),
    )
}

/// Whether a file goes to the driver by the CUDA runtime or by itself.
pub(super) fn uses_cuda(file: &File) -> bool {
    file.runtime.linkage != Linkage::None || file.libcuda != Use::None
}

/// Whether a file is device code that a package keeps for its tests.
fn is_of_tests(file: &File) -> bool {
    let mut parts = file.path.split('/');
    super::is_loose(file) && parts.any(|part| matches!(part, "test" | "tests" | "testing"))
}

/// Programs whose loader is not in the image: the kernel says `no such file or directory` of them.
fn cannot_start(image: &ImageFacts, files: &[File], findings: &mut Vec<Finding>) {
    let loader_of = |file: &File| {
        let is_for_it = file.arch.is_none() || image.arch.is_none() || file.arch == image.arch;
        let is_program = file.kind == Kind::Program && is_for_it;
        let named = file.interpreter.clone().filter(|_| is_program)?;
        image.loaders_missing.contains(&named).then_some(named)
    };
    let is_program = |file: &&File| file.kind == Kind::Program;
    let programs = files.iter().filter(is_program).count();
    let stopped: Vec<(&File, String)> = files
        .iter()
        .filter_map(|file| Some((file, loader_of(file)?)))
        .collect();
    let severity = if stopped.len() == programs {
        Severity::Error
    } else {
        Severity::Warning
    };
    for (file, loader) in stopped {
        let is_glibc = loader.contains("ld-linux");
        let system = image
            .system
            .as_deref()
            .unwrap_or("an image without a system");
        findings.push(
            Finding::new(
                "program-loader-missing",
                Layer::System,
                severity,
                format!("{} names the loader {loader}, which is not in the image", file.path),
            )
            .subject(&file.path)
            .complaining(Layer::Application)
            .component(&loader)
            .detail("it cannot be started there: `no such file or directory`, of a program that is there")
            .evidence("loader that it names", &loader, &file.path)
            .evidence("system of the image", system, &file.path)
            .source("execve(2): ENOENT; ld.so(8)")
            .fix(
                Fix::at(
                    Layer::System,
                    if is_glibc {
                        "take a base image with glibc (Debian, Ubuntu, Rocky Linux): NVIDIA's libraries need it"
                    } else {
                        "take a base image with the C library that it was built for, or build it for the one of the image"
                    },
                )
                .cost("rebuild"),
            ),
        );
    }
}

/// Libraries that a program needs and that lie nowhere in the image. Of what is loaded by a program that is not known (a
/// plug-in, a Python extension) nothing is held missing: it may never be loaded.
fn missing(image: &ImageFacts, files: &[File], findings: &mut Vec<Finding>) {
    let has = |soname: &str| {
        let mut all = files.iter();
        all.any(|f| f.soname.as_deref() == Some(soname) || file_name(&f.path) == soname)
    };
    for file in files.iter().filter(|file| file.kind == Kind::Program) {
        // Without its loader it needs no library.
        let loader = file.interpreter.as_ref();
        if loader.is_some_and(|loader| image.loaders_missing.contains(loader)) {
            continue;
        }
        let missing = file
            .needed
            .iter()
            .filter(|needed| needed.is_missing() && needed.by != ELSEWHERE && !has(&needed.soname));
        for needed in missing {
            let soname = &needed.soname;
            let layer = layer_of(soname);
            findings.push(
                Finding::new(
                    "library-not-found",
                    layer,
                    Severity::Warning,
                    format!("{} needs {soname}, which is not in the image", file.path),
                )
                .subject(format!("{soname} for {}", file.path))
                .complaining(Layer::Application)
                .component(soname)
                .evidence(
                    "search",
                    &needed.by,
                    "LD_LIBRARY_PATH of the image, ld.so.cache, default folders",
                )
                .fix(
                    Fix::at(layer, format!("install what brings {soname} in the image"))
                        .cost("rebuild"),
                ),
            );
        }
    }
}

/// The driver of a container is its host's: nothing in the image changes it.
fn on_the_host(findings: &mut [Finding], machine: &Machine) {
    if machine.container {
        return;
    }
    let fixes = findings.iter_mut().flat_map(|finding| &mut finding.fixes);
    for fix in fixes.filter(|fix| fix.layer == Some(Layer::Driver)) {
        fix.commands.clear();
        fix.summary = format!("on the container's host: {}", fix.summary);
    }
}

/// Files of a driver that are in the image: they stand where the host's are put.
fn driver_files(
    path: &str,
    image: &ImageFacts,
    machine: Option<&Machine>,
    findings: &mut Vec<Finding>,
) {
    let Some(first) = image.driver_files.first() else {
        return;
    };
    let empty = image.driver_files.iter().filter(|f| f.size_bytes == 0);
    let (count, empty) = (image.driver_files.len(), empty.count());
    let driver = machine.and_then(|machine| machine.driver.as_ref());
    let what = if empty == count {
        "empty files of the driver"
    } else {
        "libraries of the driver"
    };
    // By LD_LIBRARY_PATH its libcuda is taken whatever the host brings, and goes with the very same driver alone.
    let own = image.own_libcuda.as_ref();
    let own = own.filter(|own| own.kind == OwnKind::Driver);
    let other = own.and_then(|own| {
        let version = own.version.as_ref()?;
        (Some(version) != driver).then_some((own, version, driver?))
    });
    let (severity, title) = match other {
        Some((own, version, driver)) => (
            Severity::Error,
            format!(
                "LD_LIBRARY_PATH of {path} puts libcuda {version} of the image ({}) before that of driver {driver}, with which it does not go",
                own.path
            ),
        ),
        None => (
            Severity::Warning,
            format!(
                "{path} has {what} {}, which a container takes from its host",
                first.version
            ),
        ),
    };
    let mut finding = Finding::new(
        "image-has-driver-files",
        Layer::Container,
        severity,
        title,
    )
    .subject(path)
    .complaining(Layer::Driver)
    .component("libcuda.so.1")
    .evidence(
        "files of a driver in the image",
        format!("{count}, {empty} of them empty, such as {}", first.path),
        path,
    )
    .detail(
        "the host's libraries are put beside them; where the versions differ the loader may take the wrong one, and then CUDA finds no driver or another one than the kernel's",
    )
    .fix(
        Fix::at(
            Layer::Container,
            "make the image anew without them: from a Dockerfile on a base without a driver, never by `docker commit` of a container that had GPUs, and without installing NVIDIA's driver in it",
        )
        .cost("rebuild"),
    );
    if let Some(driver) = driver {
        finding = finding.evidence(
            "driver",
            driver.to_string(),
            machine.map_or("", |machine| machine.name.as_str()),
        );
    }
    findings.push(finding);
}

fn processor(
    path: &str,
    image: &ImageFacts,
    machine: &Machine,
    matrix: &Matrix,
    findings: &mut Vec<Finding>,
    unknown: &mut Vec<String>,
) {
    // What this machine runs on the target was not said for.
    if machine.here {
        return;
    }
    let Some(its) = &image.arch else { return };
    let (wanted, whence) = machine.processor(matrix);
    if its == wanted {
        return;
    }
    if image.other_archs.iter().any(|other| other == wanted) {
        unknown.push(format!(
            "{path}: its index has an image for {wanted} too, and the one for {its} was read"
        ));
        return;
    }
    let platform = match wanted {
        "aarch64" => "linux/arm64",
        "x86_64" => "linux/amd64",
        other => other,
    };
    findings.push(
        Finding::new(
            "program-other-architecture",
            Layer::Application,
            Severity::Error,
            format!("{path} is for {its}, and {} is {wanted}", machine.name),
        )
        .subject(path)
        .detail("the kernel refuses its programs: `exec format error`")
        .evidence("architecture of the image", its, path)
        .evidence(format!("processor {whence}"), wanted, &machine.name)
        .fix(
            Fix::at(
                Layer::Application,
                format!("pull or build it for {wanted}: `docker pull --platform {platform} IMAGE`, `docker build --platform {platform} .`"),
            )
            .cost("rebuild"),
        )
        .fix(
            Fix::at(
                Layer::Application,
                format!("where the machine is for {its}, say so: `arch={its}` in the target"),
            )
            .second("changes what is asked"),
        ),
    );
}

#[cfg(test)]
mod tests;
