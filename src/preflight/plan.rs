//! `matrix plan`: the newest CUDA and framework builds that run on all machines of a fleet, each with what keeps a newer one
//! out, and the architectures to compile for.
//!
//! Pure: of machines and matrix. What the matrix cannot tell of a build keeps it out; nothing is proposed on a guess.

use serde::Serialize;

use super::fleet::{Target, least_level, unsaid};
use crate::finding::{Severity, shell_quote};
use crate::inspect;
use crate::matrix::{Capability, CodeFit, CodeTargets, Machine, Matrix, TorchBuild, WheelFor};
use crate::requirement::Bounds;
use crate::version::Version;

/// The schema of a plan.
pub const SCHEMA: &str = "gpudoctor.plan/1";

/// What goes on all machines.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The machines: name, and what is known of each.
    pub targets: Vec<(String, String)>,
    /// What is not said of them, so that nothing was held against it: `prod: driver`.
    pub unsaid: Vec<String>,
    /// The newest builds.
    pub builds: Vec<Build>,
    /// What to compile for; absent where no GPU was named.
    pub compile: Option<Compile>,
}

/// The newest build of something.
#[derive(Clone, Debug, Serialize)]
pub struct Build {
    /// `CUDA`, `PyTorch`.
    pub what: &'static str,
    /// The newest that runs on all: `12.9.1`, `2.7.1+cu126`; `None` where none does.
    pub newest: Option<String>,
    /// Words that install it.
    pub install: Option<String>,
    /// What keeps a newer one out; `None` where it is the newest that there is. Where none runs: what stands against the
    /// newest, and against the oldest where that is something else.
    pub limit: Option<String>,
    /// What holds although it runs.
    pub note: Option<String>,
}

impl Build {
    fn none(what: &'static str, why: Option<String>) -> Self {
        Self {
            what,
            newest: None,
            install: None,
            limit: why,
            note: None,
        }
    }
}

/// What to compile for.
#[derive(Clone, Debug, Serialize)]
pub struct Compile {
    /// `-gencode` options of nvcc.
    pub gencode: Vec<String>,
    /// For extensions of PyTorch.
    pub torch_cuda_arch_list: String,
    /// For `CMake`.
    pub cmake_cuda_architectures: String,
    /// What is worth knowing of it.
    pub note: String,
}

/// All that decides.
struct Fleet<'a> {
    matrix: &'a Matrix,
    /// The machines: each is a constraint of its own, with its own driver beside its own GPUs.
    targets: &'a [Target],
    /// The least CUDA level, with the target and its driver in words.
    level: Option<(u32, String)>,
    /// The GPUs with their targets' names, each capability once.
    gpus: Vec<(Capability, String)>,
    /// Why nothing runs on one of the machines: it has no driver, or one that does not drive its GPU.
    nothing_runs: Option<String>,
}

/// A framework's build, as far as it decides.
struct Candidate<'a> {
    /// The package by which the matrix knows its wheels, and the release.
    wheel: (&'a str, &'a Version),
    cuda: &'a Version,
    /// Its device code, by machine.
    code: &'a dyn Fn(Machine) -> Option<&'a CodeTargets>,
    /// The least compute capability.
    capability_min: Option<Capability>,
    /// It is known to do without a list of code: what compiles on the GPU that it meets.
    compiles: bool,
    pythons: Option<&'a Bounds>,
}

impl Fleet<'_> {
    /// Why the drivers do not take this CUDA.
    fn driver_against(&self, cuda: &Version) -> Option<String> {
        let (level, whose) = self.level.as_ref()?;
        if self.matrix.runtime_accepts(cuda, *level) {
            return None;
        }
        let needs = self
            .matrix
            .minimum_driver(cuda)
            .and_then(|minimum| minimum.version)
            .map_or(String::new(), |version| format!(", and it needs {version}"));
        Some(format!("{whose}{needs}"))
    }

    /// Why a build does not go, on the first machine that it does not go on.
    fn against(&self, build: &Candidate<'_>) -> Option<String> {
        self.driver_against(build.cuda).or_else(|| {
            self.targets
                .iter()
                .find_map(|target| self.against_on(build, target))
        })
    }

    fn against_on(&self, build: &Candidate<'_>, target: &Target) -> Option<String> {
        let (machine, name) = (&target.machine, &target.name);
        let arch = machine.arch.as_deref().unwrap_or("x86_64");
        if machine.musl {
            return Some(format!("its wheels are for glibc, and {name} has musl"));
        }
        if let (Some(bounds), Some(python)) = (build.pythons, &machine.python)
            && !bounds.allow(python)
        {
            return Some(format!(
                "it asks for Python {bounds}, and {name} has {python}"
            ));
        }
        let (package, release) = build.wheel;
        if let (Some(row), Some(python)) =
            (self.matrix.wheel_pythons(package, release), &machine.python)
            && !row.takes(python)
        {
            return Some(format!(
                "it has wheels for Python {}, and {name} has {python}",
                row.shown()
            ));
        }
        match self.matrix.wheel_for(package, release, arch) {
            WheelFor::None => return Some(format!("it has no wheel for {arch}, which {name} is")),
            WheelFor::Wheel(row) => {
                if let Some(has) = machine.glibc.as_ref().filter(|has| **has < row.glibc) {
                    return Some(format!(
                        "its wheels need glibc {}, and {name} has {has}",
                        row.glibc
                    ));
                }
            }
            WheelFor::Unknown => {}
        }
        let level = machine.driver.as_ref();
        let level = level.and_then(|driver| self.matrix.cuda_level_of(driver));
        let level = level.map(|(level, _)| level);
        let code = Machine::parse(arch).and_then(|machine| (build.code)(machine));
        machine.gpus.iter().find_map(|gpu| {
            let (major, minor) = gpu.capability;
            let whose = format!("{} (sm_{major}{minor}) of {name}", gpu.name);
            if let Some((major, minor)) =
                build.capability_min.filter(|least| gpu.capability < *least)
            {
                return Some(format!("it asks for {major}.{minor}, and there is {whose}"));
            }
            let Some(code) = code else {
                return (!build.compiles)
                    .then(|| "the matrix has no list of its device code".to_owned());
            };
            match self
                .matrix
                .code_fit(code, gpu.capability, build.cuda, level)
            {
                CodeFit::Cubin(_) | CodeFit::Ptx(_) => None,
                CodeFit::No => Some(format!("it has no code for {whose}")),
                CodeFit::PtxTooNew(isa) => Some(format!(
                    "for {whose} it has only PTX {isa}, newer than the driver compiles"
                )),
                CodeFit::Unknown(why) => Some(format!("not known for {whose}: {why}")),
            }
        })
    }
}

/// Makes the plan.
pub fn plan(targets: &[Target], matrix: &Matrix) -> Plan {
    let level = least_level(targets, matrix).map(|(level, target, driver)| {
        let cuda = Version::from_cuda_level(level);
        (
            level,
            format!("driver {driver} of {} is of CUDA {cuda}", target.name),
        )
    });
    let mut gpus: Vec<(Capability, String)> = Vec::new();
    for target in targets {
        for gpu in &target.machine.gpus {
            let (major, minor) = gpu.capability;
            if !gpus.iter().any(|(other, _)| *other == gpu.capability) {
                let whose = format!("{} (sm_{major}{minor}) of {}", gpu.name, target.name);
                gpus.push((gpu.capability, whose));
            }
        }
    }
    gpus.sort();
    let fleet = Fleet {
        matrix,
        targets,
        level,
        gpus,
        nothing_runs: targets.iter().find_map(|target| {
            if target.machine.no_driver {
                return Some(format!("{} has no driver", target.name));
            }
            inspect::of_machine(&target.machine, matrix)
                .into_iter()
                .find(|finding| finding.severity == Severity::Error)
                .map(|finding| format!("{}: {}", target.name, finding.title))
        }),
    };
    let mut builds = vec![
        cuda(&fleet),
        pytorch(&fleet),
        releases(
            "TensorFlow",
            "tensorflow[and-cuda]",
            matrix.tensorflow_releases(),
            |row| {
                let build = Candidate {
                    wheel: ("tensorflow", &row.version),
                    cuda: &row.cuda,
                    code: &|machine| row.archs.as_ref().filter(|_| machine == Machine::X86_64),
                    capability_min: row.capability_min,
                    compiles: false,
                    pythons: Some(&row.requires_python),
                };
                (&row.version, fleet.against(&build))
            },
        ),
        jax(&fleet),
        vllm(&fleet),
        releases(
            "ONNX Runtime",
            "onnxruntime-gpu",
            matrix.onnxruntime_releases(),
            |row| {
                let build = Candidate {
                    wheel: ("onnxruntime-gpu", &row.version),
                    cuda: &row.cuda,
                    code: &|machine| row.archs.as_ref().filter(|_| machine == Machine::X86_64),
                    capability_min: None,
                    compiles: false,
                    pythons: row.requires_python.as_ref(),
                };
                (&row.version, fleet.against(&build))
            },
        ),
    ];
    if let Some(why) = &fleet.nothing_runs {
        for build in &mut builds {
            build.newest = None;
            build.install = None;
            build.limit = Some(why.clone());
            build.note = None;
        }
    }
    let compile = compile(
        &fleet,
        builds.first().and_then(|build| build.newest.as_deref()),
    );
    Plan {
        schema: SCHEMA,
        targets: targets
            .iter()
            .map(|target| (target.name.clone(), target.described.clone()))
            .collect(),
        unsaid: targets
            .iter()
            .filter_map(|target| {
                let parts = unsaid(&target.machine);
                (!parts.is_empty()).then(|| format!("{}: {}", target.name, parts.join(", ")))
            })
            .collect(),
        builds,
        compile,
    }
}

/// The newest toolkit whose runtime the drivers take and whose compiler builds for the GPUs.
fn cuda(fleet: &Fleet<'_>) -> Build {
    let against = |version: &Version| {
        fleet.driver_against(version).or_else(|| {
            fleet.gpus.iter().find_map(|(capability, whose)| {
                let arch = fleet.matrix.arch(*capability)?;
                let minor = Version::parse(&version.major_minor())?;
                if minor < arch.first_toolkit {
                    return Some(format!(
                        "{whose} needs CUDA {} at least",
                        arch.first_toolkit
                    ));
                }
                let last = arch.last_toolkit.as_ref()?;
                (minor > *last).then(|| format!("CUDA {last} is the last one for {whose}"))
            })
        })
    };
    let rows = fleet
        .matrix
        .toolkits()
        .iter()
        .rev()
        .filter(|row| !row.preview);
    let (mut limit, mut first) = (None, None);
    for row in rows {
        match against(&row.cuda) {
            None => {
                return Build {
                    what: "CUDA",
                    newest: Some(row.cuda.to_string()),
                    install: None,
                    limit: limit.map(|(version, why)| format!("{version}: {why}")),
                    note: ptx_note(fleet, &row.cuda),
                };
            }
            Some(why) => {
                first.get_or_insert((row.cuda.clone(), why.clone()));
                limit = Some((row.cuda.clone(), why));
            }
        }
    }
    Build::none(
        "CUDA",
        first.map(|(version, why)| format!("{version}: {why}")),
    )
}

/// What minor version compatibility does not cover.
fn ptx_note(fleet: &Fleet<'_>, cuda: &Version) -> Option<String> {
    let (level, whose) = fleet.level.as_ref()?;
    let has = Version::from_cuda_level(*level);
    let is_newer = cuda.major() == has.major() && cuda.cuda_level() > *level;
    is_newer.then(|| {
        format!(
            "newer than CUDA {has} it runs by minor version compatibility, machine code alone: its PTX, and what NVRTC and Triton make of it, is refused, since {whose}"
        )
    })
}

fn pytorch(fleet: &Fleet<'_>) -> Build {
    let matrix = fleet.matrix;
    let (mut limit, mut first) = (None, None);
    for release in matrix.torch_releases().iter().rev() {
        let mut cudas: Vec<&Version> = release.cudas.iter().collect();
        cudas.sort_unstable();
        // Of the same release a newer CUDA may be what is kept out.
        let mut newer = None;
        for cuda in cudas.into_iter().rev() {
            let build = TorchBuild {
                release,
                cuda,
                archs: matrix.torch_archs(&release.version, cuda),
            };
            match torch_against(fleet, &build) {
                None => {
                    let install = matrix.torch_install(&build, "pip");
                    return Build {
                        what: "PyTorch",
                        newest: Some(build.name()),
                        install: install.map(|words| words.join(" ")),
                        limit: limit.or(newer),
                        note: None,
                    };
                }
                Some(why) => newer = Some(format!("{}: {why}", build.name())),
            }
        }
        limit = newer.or(limit);
        if first.is_none() {
            first.clone_from(&limit);
        }
    }
    Build::none("PyTorch", newest_and_oldest(first, limit))
}

fn torch_against(fleet: &Fleet<'_>, build: &TorchBuild<'_>) -> Option<String> {
    let release = build.release;
    let python = fleet.targets.iter().find_map(|target| {
        let python = target.machine.python.as_ref()?;
        let name = &target.name;
        (!release.takes_python(python))
            .then(|| format!("it has no wheel for Python {python}, which {name} has"))
    });
    python.or_else(|| {
        fleet.against(&Candidate {
            wheel: ("torch", &release.version),
            cuda: build.cuda,
            code: &|machine| build.archs.and_then(|row| row.code(machine)),
            capability_min: None,
            compiles: false,
            pythons: None,
        })
    })
}

/// Why none of several releases goes: what stands against the newest may be mended, and the oldest still not run.
fn newest_and_oldest(newest: Option<String>, oldest: Option<String>) -> Option<String> {
    let (newest, oldest) = (newest?, oldest?);
    let why = |told: &str| told.split_once(": ").map(|(_, why)| why.to_owned());
    Some(if why(&newest) == why(&oldest) {
        newest
    } else {
        format!("{newest}; and {oldest}")
    })
}

/// The newest release that nothing stands against.
fn releases<'m, R>(
    what: &'static str,
    package: &str,
    rows: &'m [R],
    judge: impl Fn(&'m R) -> (&'m Version, Option<String>),
) -> Build {
    let (mut limit, mut first) = (None, None);
    for row in rows.iter().rev() {
        let (version, against) = judge(row);
        match against {
            None => {
                return Build {
                    what,
                    newest: Some(version.to_string()),
                    install: Some(format!(
                        "pip install {}",
                        shell_quote(&format!("{package}=={version}"))
                    )),
                    limit,
                    note: None,
                };
            }
            Some(why) => {
                limit = Some(format!("{version}: {why}"));
                if first.is_none() {
                    first.clone_from(&limit);
                }
            }
        }
    }
    Build::none(what, newest_and_oldest(first, limit))
}

fn jax(fleet: &Fleet<'_>) -> Build {
    let mut rows: Vec<_> = fleet.matrix.jax_plugins().iter().collect();
    rows.sort_by(|a, b| (&a.version, a.cuda).cmp(&(&b.version, b.cuda)));
    let (mut limit, mut first) = (None, None);
    for row in rows.into_iter().rev() {
        let cuda = Version::parse(&row.cuda.to_string());
        let against = cuda.as_ref().and_then(|cuda| {
            fleet.against(&Candidate {
                wheel: (&row.plugin, &row.version),
                cuda,
                code: &|_| None,
                capability_min: Some(row.capability_min),
                compiles: true,
                pythons: Some(&row.requires_python),
            })
        });
        let name = format!("{} (CUDA {})", row.version, row.cuda);
        match against {
            None => {
                return Build {
                    what: "JAX",
                    newest: Some(name),
                    install: Some(format!(
                        "pip install {}",
                        shell_quote(&format!("jax[cuda{}]=={}", row.cuda, row.version))
                    )),
                    limit,
                    note: None,
                };
            }
            Some(why) => {
                limit = Some(format!("{name}: {why}"));
                if first.is_none() {
                    first.clone_from(&limit);
                }
            }
        }
    }
    Build::none("JAX", newest_and_oldest(first, limit))
}

/// By the code of the torch that it pins; of its own kernels no table has a list.
fn vllm(fleet: &Fleet<'_>) -> Build {
    releases("vLLM", "vllm", fleet.matrix.vllm_releases(), |row| {
        let archs = fleet.matrix.torch_archs(&row.torch, &row.cuda);
        let build = Candidate {
            wheel: ("vllm", &row.version),
            cuda: &row.cuda,
            code: &|machine| archs.and_then(|archs| archs.code(machine)),
            capability_min: row.capability_min,
            compiles: false,
            pythons: Some(&row.requires_python),
        };
        // Its own tag may promise less than that of the torch which it pins.
        let torch = Candidate {
            wheel: ("torch", &row.torch),
            capability_min: None,
            pythons: None,
            ..build
        };
        let against = fleet.against(&build).or_else(|| fleet.against(&torch));
        (&row.version, against)
    })
}

/// One architecture a GPU, and PTX of the newest for those that come.
fn compile(fleet: &Fleet<'_>, toolkit: Option<&str>) -> Option<Compile> {
    let last = fleet.gpus.last()?.0;
    let names = |(major, minor): Capability| format!("{major}{minor}");
    let mut gencode: Vec<String> = fleet
        .gpus
        .iter()
        .map(|(gpu, _)| {
            let name = names(*gpu);
            format!("-gencode arch=compute_{name},code=sm_{name}")
        })
        .collect();
    let newest = names(last);
    gencode.push(format!(
        "-gencode arch=compute_{newest},code=compute_{newest}"
    ));
    let torch: Vec<String> = fleet
        .gpus
        .iter()
        .map(|((major, minor), _)| format!("{major}.{minor}"))
        .collect();
    let cmake: Vec<String> = fleet
        .gpus
        .iter()
        .map(|(gpu, _)| {
            let name = names(*gpu);
            // Without a word behind it a number stands for both machine code and PTX.
            if *gpu == last {
                name
            } else {
                format!("{name}-real")
            }
        })
        .collect();
    let note = match toolkit {
        Some(cuda) => {
            format!(
                "PTX of compute_{newest} serves later GPUs, where their driver is of CUDA {} or newer",
                minor_of(cuda)
            )
        }
        None => "no toolkit builds for all of them and runs on their drivers".to_owned(),
    };
    Some(Compile {
        gencode,
        torch_cuda_arch_list: format!("{}+PTX", torch.join(";")),
        cmake_cuda_architectures: cmake.join(";"),
        note,
    })
}

/// `12.9` of `12.9.1`.
fn minor_of(cuda: &str) -> String {
    Version::parse(cuda).map_or_else(|| cuda.to_owned(), |version| version.major_minor())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::fleet::described;

    fn of(targets: &[(&str, &str)]) -> Plan {
        let matrix = Matrix::bundled();
        let targets: Vec<Target> = targets
            .iter()
            .map(|(name, text)| {
                described(name, &text.parse().unwrap(), Vec::new(), &matrix).unwrap()
            })
            .collect();
        plan(&targets, &matrix)
    }

    fn newest<'p>(plan: &'p Plan, what: &str) -> &'p Build {
        plan.builds.iter().find(|build| build.what == what).unwrap()
    }

    #[test]
    fn a_mixed_fleet_gets_what_runs_on_all_of_it() {
        let plan = of(&[
            ("edge", "driver=535.183.01,gpu=P100"),
            ("prod", "driver=580.95.05,gpu=A100+H100"),
        ]);
        // 535 takes 12.x, and 12.9 is the last for Pascal.
        let cuda = newest(&plan, "CUDA");
        assert!(
            cuda.newest.as_ref().unwrap().starts_with("12.9"),
            "{cuda:?}"
        );
        let limit = cuda.limit.as_ref().unwrap();
        assert!(
            limit.contains("edge") && limit.contains("580.65.06"),
            "{limit}"
        );
        let torch = newest(&plan, "PyTorch");
        assert!(
            torch.newest.as_ref().unwrap().ends_with("+cu126"),
            "{torch:?}"
        );
        assert!(
            torch.install.as_ref().unwrap().contains("cu126"),
            "{torch:?}"
        );
        let compile = plan.compile.unwrap();
        assert_eq!(compile.torch_cuda_arch_list, "6.0;8.0;9.0+PTX");
        assert_eq!(compile.cmake_cuda_architectures, "60-real;80-real;90");
        assert_eq!(
            compile.gencode.join(" "),
            "-gencode arch=compute_60,code=sm_60 -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90"
        );
    }

    #[test]
    fn each_machine_is_a_constraint_of_its_own() {
        // The old driver stands beside the old GPU alone: PTX for the new one is the new driver's business.
        let plan = of(&[
            ("old", "driver=535.183.01,gpu=T4"),
            ("new", "driver=580.95.05,gpu=RTX 5090"),
        ]);
        let torch = newest(&plan, "PyTorch");
        assert!(
            torch.newest.as_ref().unwrap().ends_with("+cu129")
                || torch.newest.as_ref().unwrap().ends_with("+cu128"),
            "{torch:?}"
        );
        let plan = of(&[("a", "driver=470.256.02,gpu=V100")]);
        for what in ["TensorFlow", "ONNX Runtime", "PyTorch"] {
            assert!(newest(&plan, what).newest.is_some(), "{what}: {plan:?}");
        }
        // glibc, the machine and Python bound it as well.
        let old = of(&[("a", "driver=580.95.05,gpu=A100,glibc=2.17")]);
        let torch = newest(&old, "PyTorch").newest.clone().unwrap();
        assert!(torch.starts_with("2.6.0"), "{torch}");
        let old = of(&[("a", "driver=580.95.05,gpu=A100,python=3.9")]);
        let torch = newest(&old, "PyTorch").newest.clone().unwrap();
        assert!(torch.starts_with("2.8.0"), "{torch}");
        let musl = of(&[("a", "driver=580.95.05,gpu=A100,os=alpine-3.20")]);
        assert_eq!(newest(&musl, "PyTorch").newest, None);
        let p100 = of(&[("a", "driver=580.95.05,gpu=P100")]);
        assert_eq!(newest(&p100, "vLLM").newest, None);
    }

    #[test]
    fn machines_that_share_no_toolkit_get_none() {
        let plan = of(&[("a", "driver=470,gpu=K80"), ("b", "driver=580,gpu=B200")]);
        assert_eq!(newest(&plan, "CUDA").newest, None);
        let plan = of(&[("a", "driver=none,gpu=A100")]);
        assert!(plan.builds.iter().all(|build| build.newest.is_none()));
    }

    #[test]
    fn what_is_proposed_runs_by_the_judge_of_pins() {
        // The plan and the preflight must not contradict each other.
        let matrix = Matrix::bundled();
        for text in [
            "driver=470.256.02,gpu=A100",
            "driver=535.183.01,gpu=L40S",
            "driver=550.54.14,gpu=T4",
            "driver=570.86.15,gpu=RTX 5090",
            "driver=580.95.05,gpu=V100",
        ] {
            let target = described("t", &text.parse().unwrap(), Vec::new(), &matrix).unwrap();
            let plan = plan(std::slice::from_ref(&target), &matrix);
            for (what, package) in [
                ("PyTorch", "torch"),
                ("TensorFlow", "tensorflow"),
                ("ONNX Runtime", "onnxruntime-gpu"),
                ("vLLM", "vllm"),
            ] {
                let Some(version) = &newest(&plan, what).newest else {
                    continue;
                };
                let line = format!("{package}=={version}\n");
                let read = crate::preflight::manifest::read("requirements.txt", &line).unwrap();
                let mut unknown = Vec::new();
                let pins: Vec<_> = read.pins.iter().collect();
                let found =
                    crate::preflight::pins::judge(&pins, &target.machine, &matrix, &mut unknown);
                let found: Vec<_> = found
                    .into_iter()
                    .filter(|f| f.severity > crate::finding::Severity::Note)
                    .collect();
                assert!(
                    found.is_empty() && unknown.is_empty(),
                    "{text}: {line}: {found:?} {unknown:?}"
                );
            }
        }
    }
}
