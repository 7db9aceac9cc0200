//! Will a container of an image start and run on a machine: its files, with what the image itself has of a system, what it
//! asks of its host, and what it should have left to it.

use super::super::{File, ImageFacts, Kind, Linkage, Machine, MachineGpu, Use, is_cuda_library};
use super::{layer_of, merged, of_file, spare_variants, with_ways};
use crate::ask::{self, Meant};
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::{Compat, Confidence, Matrix};
use crate::read::nvidia_require::{self, Answer, Evaluator, Host, Named, Property, evaluate};
use crate::sysroot::{file_name, parent};
use crate::version::Version;

/// Who says how a requirement is read.
const SOURCE: &str = "libnvidia-container and NVIDIA container toolkit sources: requirements";

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
        cuda: None,
        provides: Vec::new(),
        container: true,
        here: false,
        ..machine.clone()
    });
    let is_of_driver = |file: &File| {
        let own = file
            .path
            .strip_prefix(path)
            .and_then(|p| p.strip_prefix('!'));
        let mut all = image.driver_files.iter();
        own.is_some_and(|own| all.any(|driver| driver.path == own))
    };
    let mut findings = Vec::new();
    let judged: Vec<File> = files
        .iter()
        .filter(|file| !is_of_driver(file))
        .map(|file| {
            let mut file = (*file).clone();
            // Which package brought it is not known here: the libraries of one folder belong together.
            file.package
                .get_or_insert_with(|| parent(&file.path).to_owned());
            file
        })
        .collect();
    let mut of_files: Vec<Vec<Finding>> = judged
        .iter()
        .map(|file| of_file(file, inside.as_ref(), matrix, unknown))
        .collect();
    spare_variants(&judged.iter().collect::<Vec<_>>(), &mut of_files);
    let of_files = merged(of_files.into_iter().flatten().collect());
    for mut finding in of_files {
        if finding.id == "driver-too-old"
            && let Some(machine) = &inside
        {
            with_compat(&mut finding, path, image, &judged, machine, matrix);
        }
        findings.push(finding);
    }
    driver_files(path, image, machine, &mut findings);
    capabilities(path, image, &judged, &mut findings);
    if machine.is_some() {
        missing(&judged, &mut findings);
    }
    if let Some(machine) = machine {
        processor(path, image, machine, &mut findings);
        requirements(path, image, machine, matrix, &mut findings, unknown);
        on_the_host(&mut findings, machine);
    }
    findings
}

/// Libraries of CUDA that a program needs and that lie nowhere in the image. Of what is loaded by a program that is not known
/// (a plug-in, a Python extension) nothing is held missing: it may never be loaded.
fn missing(files: &[File], findings: &mut Vec<Finding>) {
    let has = |soname: &str| {
        let mut all = files.iter();
        all.any(|f| f.soname.as_deref() == Some(soname) || file_name(&f.path) == soname)
    };
    for file in files.iter().filter(|file| file.kind == Kind::Program) {
        let missing = file.needed.iter().filter(|needed| {
            needed.is_missing() && is_cuda_library(&needed.soname) && !has(&needed.soname)
        });
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

/// A newer libcuda in the image makes up for an older driver, on the boards that may use it.
fn with_compat(
    finding: &mut Finding,
    path: &str,
    image: &ImageFacts,
    files: &[File],
    machine: &Machine,
    matrix: &Matrix,
) {
    let Some(driver) = &machine.driver else {
        return;
    };
    let runtimes: Vec<Version> = files
        .iter()
        .filter(|file| finding.subjects.contains(&file.path))
        .filter_map(|file| Some(super::runtime_version(file)?.0))
        .collect();
    for compat in &image.compat {
        let Some(version) = &compat.version else {
            continue;
        };
        let Some(level) = matrix.cuda_level_range(version).0 else {
            continue;
        };
        let covers = |runtime: &Version| matrix.runtime_accepts(runtime, level);
        if runtimes.is_empty() || !runtimes.iter().all(covers) {
            continue;
        }
        let cuda = Version::from_cuda_level(level);
        let (is_sure, source) = match matrix.forward_compat(&cuda, driver.major()) {
            Compat::Supported { source, confidence } => {
                (confidence == Confidence::Verified, source)
            }
            Compat::Unknown { why } => (false, why),
            Compat::Native { .. } | Compat::NotSupported { .. } => continue,
        };
        let may = |gpu: &MachineGpu| matrix.compat_eligible(&gpu.name);
        if machine.gpus.iter().any(|gpu| may(gpu) == Some(false)) {
            continue;
        }
        let all_may =
            !machine.gpus.is_empty() && machine.gpus.iter().all(|gpu| may(gpu) == Some(true));
        finding.severity = if is_sure && all_may {
            Severity::Note
        } else {
            Severity::Warning
        };
        finding.title = format!(
            "{}; the image brings libcuda {version} for such drivers{}",
            finding.title,
            if all_may {
                ""
            } else {
                ", which only data-center boards may use"
            }
        );
        let place = format!("{path}!{}", strip(&compat.path, path));
        *finding = finding
            .clone()
            .evidence(
                "libcuda for forward compatibility",
                version.to_string(),
                place,
            )
            .source(source);
        return;
    }
}

fn strip<'a>(path: &'a str, image: &str) -> &'a str {
    path.strip_prefix(image)
        .and_then(|rest| rest.strip_prefix('!'))
        .unwrap_or(path)
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
    let mut finding = Finding::new(
        "image-has-driver-files",
        Layer::Container,
        Severity::Warning,
        format!(
            "{path} has {what} {}, which a container takes from its host",
            first.version
        ),
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

/// An image that asks for parts of the driver, and not for the one that its own files need.
fn capabilities(path: &str, image: &ImageFacts, files: &[File], findings: &mut Vec<Finding>) {
    const VARIABLE: &str = "NVIDIA_DRIVER_CAPABILITIES";
    let variables = image.environment.as_ref();
    // Without one the toolkit takes `utility,compute`.
    let Some(asked) = variables
        .and_then(|variables| variables.get(VARIABLE))
        .filter(|asked| !asked.trim().is_empty())
    else {
        return;
    };
    let mut words = asked.split(',').map(str::trim);
    if words.any(|word| matches!(word, "compute" | "all")) {
        return;
    }
    let uses = |file: &&File| file.runtime.linkage != Linkage::None || file.libcuda != Use::None;
    let users: Vec<&File> = files.iter().filter(uses).collect();
    let Some(first) = users.first() else {
        return;
    };
    findings.push(
        Finding::new(
            "container-library-missing",
            Layer::Container,
            Severity::Warning,
            format!("{path} asks for the driver's parts {asked}, and its CUDA programs need compute"),
        )
        .subject(path)
        .complaining(Layer::Runtime)
        .component("libcuda.so.1")
        .evidence(VARIABLE, asked, path)
        .evidence(
            "files that use CUDA",
            format!("{}, such as {}", users.len(), strip(&first.path, path)),
            path,
        )
        .detail(
            "where the container toolkit mounts the driver's libraries by capability, a container of it gets no libcuda, and CUDA says that there is no driver; a CDI specification brings all of them whatever the image asks for",
        )
        .source("NVIDIA libnvidia-container sources: libraries by capability")
        .fix(
            Fix::at(
                Layer::Container,
                format!("ENV {VARIABLE}=compute,utility in the Dockerfile, with what else it asks for"),
            )
            .cost("rebuild"),
        )
        .fix(
            Fix::at(
                Layer::Container,
                format!("start it with `-e {VARIABLE}=compute,utility`"),
            )
            .second("has to be done each time"),
        ),
    );
}

fn processor(path: &str, image: &ImageFacts, machine: &Machine, findings: &mut Vec<Finding>) {
    let (Some(its), Some(wanted)) = (&image.arch, &machine.arch) else {
        return;
    };
    if its == wanted {
        return;
    }
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
        .evidence("processor", wanted, &machine.name)
        .fix(
            Fix::at(
                Layer::Application,
                format!("pull or build it for {wanted}: `--platform linux/...`"),
            )
            .cost("rebuild"),
        ),
    );
}

/// What the image asks of its host by `NVIDIA_REQUIRE_*`.
fn requirements(
    path: &str,
    image: &ImageFacts,
    machine: &Machine,
    matrix: &Matrix,
    findings: &mut Vec<Finding>,
    unknown: &mut Vec<String>,
) {
    let Some(environment) = &image.environment else {
        return;
    };
    let asked = nvidia_require::requirements(environment);
    if asked.disabled || machine.driver.is_none() {
        return;
    }
    if let Some(version) = &asked.broken_cuda_version {
        findings.push(invalid(path, "CUDA_VERSION", version, version));
    }
    let gpus: Vec<Meant> = machine
        .gpus
        .iter()
        .map(|gpu| ask::meant(matrix, &gpu.asked))
        .collect();
    let hosts = ask::hosts(matrix, machine.driver.as_ref(), &gpus);
    for named in &asked.values {
        for (index, host) in hosts.iter().enumerate() {
            match evaluate(Evaluator::Legacy, &named.value, host) {
                Answer::Met => continue,
                Answer::Unknown(open) => {
                    let open: Vec<&str> = open.into_iter().map(Property::name).collect();
                    unknown.push(format!(
                        "{path}: whether {} is met depends on {}, which is not known",
                        named.variable,
                        open.join(" and ")
                    ));
                }
                Answer::Unmet => {
                    let gpu = machine.gpus.get(index).map(|gpu| gpu.name.as_str());
                    let unmet = unmet(path, named, (host, gpu), machine, matrix);
                    findings.push(match &asked.not_disabled_by {
                        Some(word) => unmet.evidence(
                            "NVIDIA_DISABLE_REQUIRE",
                            format!("{word}: switches nothing off; 1 or true would"),
                            path,
                        ),
                        None => unmet,
                    });
                }
                Answer::Invalid(what) => {
                    findings.push(invalid(path, &named.variable, &named.value, &what));
                }
            }
            break;
        }
    }
}

/// A value that a host does not meet.
fn unmet(
    path: &str,
    named: &Named,
    (host, gpu): (&Host, Option<&str>),
    machine: &Machine,
    matrix: &Matrix,
) -> Finding {
    let driver = machine.driver.as_ref().map(ToString::to_string);
    let on = gpu.map_or_else(String::new, |gpu| format!(" with {gpu}"));
    let terms = nvidia_require::terms(&named.value);
    let first = terms
        .first()
        .map_or_else(|| named.value.clone(), |(term, _)| term.clone());
    let finding = Finding::new(
        "image-requirement-not-met",
        Layer::Driver,
        Severity::Error,
        format!(
            "driver {}{on} does not meet what {path} asks of its host: {first}",
            driver.clone().unwrap_or_default()
        ),
    )
    .subject(path)
    .complaining(Layer::Container)
    .component("nvidia-container-cli")
    .evidence(&named.variable, &named.value, path)
    .evidence("driver", driver.unwrap_or_default(), &machine.name)
    .detail(
        "`docker run --gpus all` refuses to start it: `unsatisfied condition`. In CDI mode nobody checks: it starts, and fails where it needs more than the driver has",
    )
    .source(SOURCE);
    with_ways(finding, ask::requirement_ways(matrix, &terms, host)).fix(
        Fix::at(
            Layer::Container,
            "start it with `-e NVIDIA_DISABLE_REQUIRE=1`",
        )
        .second("nobody checks then; right only where CUDA's minor-version compatibility covers what the image runs"),
    )
}

/// A value that the legacy hook refuses to read.
fn invalid(path: &str, variable: &str, value: &str, what: &str) -> Finding {
    Finding::new(
        "image-requirement-not-met",
        Layer::Container,
        Severity::Error,
        format!("{path} asks its host by {variable} for what cannot be read: {what}"),
    )
    .subject(path)
    .component("nvidia-container-cli")
    .evidence(variable, value, path)
    .detail("`docker run --gpus all` refuses to start it: `invalid expression`")
    .source(SOURCE)
    .fix(
        Fix::at(
            Layer::Container,
            format!("set {variable} anew in the Dockerfile, or empty it: `-e {variable}=`"),
        )
        .cost("rebuild"),
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::inspect::image::{Compat as InImage, DriverFile};
    use crate::inspect::{Linkage, Needed, Runtime, machine_of_target};
    use crate::target::Target;

    fn program(cuda: &str) -> File {
        File {
            path: "app.tar!/opt/app".to_owned(),
            kind: Kind::Program,
            runtime: Runtime {
                linkage: Linkage::Static,
                version: Version::parse(cuda),
                ..Runtime::default()
            },
            glibc: Version::parse("2.34"),
            ..File::default()
        }
    }

    fn image(variables: &[(&str, &str)]) -> ImageFacts {
        let all: BTreeMap<String, String> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        ImageFacts {
            environment: Some(all),
            glibc: Version::parse("2.35"),
            ..ImageFacts::default()
        }
    }

    fn found(target: &str, image: &ImageFacts, files: &[File]) -> Vec<(String, Severity)> {
        let matrix = Matrix::bundled();
        let target: Target = target.parse().unwrap();
        let machine = machine_of_target(&target, &matrix).unwrap();
        let files: Vec<&File> = files.iter().collect();
        let mut unknown = Vec::new();
        let all = of_image(
            "app.tar",
            image,
            &files,
            Some(&machine),
            &matrix,
            &mut unknown,
        );
        let mut told: Vec<_> = all.into_iter().map(|f| (f.id, f.severity)).collect();
        told.extend(
            unknown
                .into_iter()
                .map(|_| ("unknown".to_owned(), Severity::Note)),
        );
        told
    }

    #[test]
    fn an_image_that_leaves_out_what_its_programs_need() {
        const VARIABLE: &str = "NVIDIA_DRIVER_CAPABILITIES";
        const ID: &str = "container-library-missing";
        let target = "driver=550.54.14,gpu=A100";
        let has = |asked: &str, files: &[File]| {
            let found = found(target, &image(&[(VARIABLE, asked)]), files);
            found.iter().any(|(id, _)| id == ID)
        };
        let only_nvml = File {
            libnvidia_ml: Use::Dlopen,
            runtime: Runtime::default(),
            ..program("12.4")
        };
        assert!(has("utility", &[program("12.4")]));
        assert!(has("video, utility", &[program("12.4"), only_nvml.clone()]));
        for asked in ["compute,utility", "utility, compute", "all", ""] {
            assert!(!has(asked, &[program("12.4")]), "{asked}");
        }
        assert!(!has("utility", &[only_nvml]) && !has("utility", &[]));
        let unset = found(target, &image(&[]), &[program("12.4")]);
        assert!(unset.iter().all(|(id, _)| id != ID), "{unset:?}");
    }

    #[test]
    fn what_an_image_asks_of_its_host() {
        let asks = "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=535,driver<536";
        let image = image(&[("NVIDIA_REQUIRE_CUDA", asks)]);
        let unmet = [("image-requirement-not-met".to_owned(), Severity::Error)];
        // Met by the CUDA version, by the branch and the board, by neither.
        assert!(found("driver=550.54.14,gpu=RTX 4090", &image, &[]).is_empty());
        assert!(found("driver=535.104.05,gpu=Tesla T4", &image, &[]).is_empty());
        assert_eq!(
            found("driver=535.104.05,gpu=GeForce RTX 4090", &image, &[]),
            unmet
        );
        assert_eq!(found("driver=525.60.13,gpu=A100", &image, &[]), unmet);
        // The board decides, and it is not known which it is.
        let open = found("driver=535.104.05,gpu=sm_80", &image, &[]);
        assert_eq!(open, [("unknown".to_owned(), Severity::Note)]);
        let off = super::tests::image(&[
            ("NVIDIA_REQUIRE_CUDA", asks),
            ("NVIDIA_DISABLE_REQUIRE", "1"),
        ]);
        assert!(found("driver=525.60.13,gpu=A100", &off, &[]).is_empty());
        let broken = super::tests::image(&[("NVIDIA_REQUIRE_CUDA", "cuda>=.0")]);
        assert_eq!(found("driver=550.54.14,gpu=A100", &broken, &[]), unmet);
    }

    #[test]
    fn files_of_a_driver_belong_to_the_host() {
        let mut image = image(&[]);
        image.driver_files = vec![DriverFile {
            path: "/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05".to_owned(),
            version: Version::parse("535.104.05").unwrap(),
            size_bytes: 0,
        }];
        // What the file itself would be blamed for is not told besides.
        let empty = File {
            path: format!("app.tar!{}", image.driver_files[0].path),
            kind: Kind::Empty,
            ..File::default()
        };
        let told = found(
            "driver=550.54.14,gpu=A100",
            &image,
            std::slice::from_ref(&empty),
        );
        assert_eq!(
            told,
            [("image-has-driver-files".to_owned(), Severity::Warning)]
        );
        image.driver_files.clear();
        let told = found("driver=550.54.14,gpu=A100", &image, &[empty]);
        assert_eq!(told, [("file-damaged".to_owned(), Severity::Error)]);
    }

    #[test]
    fn a_newer_libcuda_in_the_image_makes_up_for_an_older_driver() {
        let plain = image(&[]);
        let mut with = plain.clone();
        with.compat = vec![InImage {
            path: "app.tar!/usr/local/cuda-13.1/compat/libcuda.so.590.44.01".to_owned(),
            version: Version::parse("590.44.01"),
        }];
        let too_old = |target, image: &ImageFacts, cuda| {
            let told = found(target, image, &[program(cuda)]);
            told.into_iter()
                .find(|(id, _)| id == "driver-too-old")
                .map(|(_, severity)| severity)
        };
        let a100 = "driver=535.104.05,gpu=A100";
        assert_eq!(too_old(a100, &plain, "13.1"), Some(Severity::Error));
        assert_eq!(too_old(a100, &with, "13.1"), Some(Severity::Note));
        assert_eq!(
            too_old("driver=535.104.05,gpu=GeForce RTX 4090", &with, "13.1"),
            Some(Severity::Error)
        );
        assert_eq!(
            too_old("driver=535.104.05", &with, "13.1"),
            Some(Severity::Warning)
        );
        assert_eq!(too_old(a100, &with, "12.4"), None);
    }

    #[test]
    fn a_program_without_its_libraries_is_told() {
        let needs = |kind: Kind, by: &str| {
            let mut file = program("12.4");
            file.kind = kind;
            file.needed = vec![Needed {
                soname: "libcudart.so.12".to_owned(),
                resolved: None,
                by: by.to_owned(),
            }];
            file
        };
        let told = |files: &[File]| found("driver=550.54.14,gpu=A100", &image(&[]), files);
        let missing = [("library-not-found".to_owned(), Severity::Warning)];
        assert_eq!(told(&[needs(Kind::Program, "not found")]), missing);
        assert!(told(&[needs(Kind::SharedLibrary, "not found")]).is_empty());
        let elsewhere = File {
            soname: Some("libcudart.so.12".to_owned()),
            ..File::default()
        };
        assert!(told(&[needs(Kind::Program, "not found"), elsewhere]).is_empty());
    }

    #[test]
    fn the_system_is_the_images_own() {
        let glibc = |target: &str| found(target, &image(&[]), &[program("12.4")]);
        assert!(glibc("driver=550.54.14,gpu=A100,glibc=2.17").is_empty());
        let mut older = image(&[]);
        older.glibc = Version::parse("2.31");
        let told = found(
            "driver=550.54.14,gpu=A100,glibc=2.39",
            &older,
            &[program("12.4")],
        );
        assert_eq!(told, [("glibc-too-old".to_owned(), Severity::Error)]);
    }
}
