//! `matrix plan`: the newest CUDA and framework builds that run on all machines of a fleet, each with what keeps a newer one
//! out, and the architectures to compile for.
//!
//! Pure: of machines and matrix. What the matrix cannot tell of a build keeps it out; nothing is proposed on a guess.

use serde::Serialize;

use super::fleet::{Target, least_level};
use crate::finding::{Severity, shell_quote};
use crate::inspect;
use crate::matrix::{
    Capability, CodeFit, CodeTargets, Machine, Matrix, TorchRelease, TorchWanted, torch_tag,
};
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
    /// newest.
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
    /// The least CUDA level, with the target and its driver in words.
    level: Option<(u32, String)>,
    /// The GPUs with their targets' names.
    gpus: Vec<(Capability, String)>,
    /// Each GPU with the CUDA level of the driver beside it: PTX is compiled by that one.
    beside: Vec<(Capability, Option<u32>)>,
    machine: Machine,
    /// Why nothing runs on one of the machines: it has no driver, or one that does not drive its GPU.
    nothing_runs: Option<String>,
}

impl Fleet<'_> {
    fn level(&self) -> Option<u32> {
        self.level.as_ref().map(|(level, _)| *level)
    }

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

    /// Why device code does not serve the GPUs: the first that it does not.
    fn code_against(&self, code: &CodeTargets, cuda: &Version) -> Option<String> {
        self.beside.iter().find_map(|(capability, level)| {
            let whose = self.gpus.iter().find(|(gpu, _)| gpu == capability);
            let whose = whose.map_or("a GPU", |(_, whose)| whose);
            match self.matrix.code_fit(code, *capability, cuda, *level) {
                CodeFit::Cubin(_) | CodeFit::Ptx(_) => None,
                CodeFit::No => Some(format!("it has no code for {whose}")),
                CodeFit::PtxTooNew(isa) => Some(format!(
                    "for {whose} it has only PTX {isa}, newer than the driver compiles"
                )),
                CodeFit::Unknown(why) => Some(format!("not known for {whose}: {why}")),
            }
        })
    }

    /// Why a framework's release does not go: its driver need, then its code. Without a list of its code it is not proposed
    /// for GPUs.
    fn against(&self, cuda: &Version, code: Option<&CodeTargets>) -> Option<String> {
        self.driver_against(cuda).or_else(|| match code {
            Some(code) => self.code_against(code, cuda),
            None if self.gpus.is_empty() => None,
            None => Some("the matrix has no list of its device code".to_owned()),
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
    let mut beside: Vec<(Capability, Option<u32>)> = targets
        .iter()
        .flat_map(|target| {
            let driver = target.machine.driver.as_ref();
            let level = driver.and_then(|driver| matrix.cuda_level_of(driver));
            let level = level.map(|(level, _)| level);
            let gpus = target.machine.gpus.iter();
            gpus.map(move |gpu| (gpu.capability, level))
        })
        .collect();
    beside.sort_unstable();
    beside.dedup();
    let is_arm = |target: &Target| target.machine.arch.as_deref() == Some("aarch64");
    let fleet = Fleet {
        matrix,
        level,
        gpus,
        machine: if targets.iter().any(is_arm) {
            Machine::Aarch64
        } else {
            Machine::X86_64
        },
        beside,
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
            |row| (&row.version, fleet.against(&row.cuda, row.archs.as_ref())),
        ),
        jax(&fleet),
        vllm(&fleet),
        releases(
            "ONNX Runtime",
            "onnxruntime-gpu",
            matrix.onnxruntime_releases(),
            |row| (&row.version, fleet.against(&row.cuda, row.archs.as_ref())),
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
    let gpus: Vec<Capability> = fleet.gpus.iter().map(|(gpu, _)| *gpu).collect();
    let (mut limit, mut first) = (None, None);
    for release in matrix.torch_releases().iter().rev() {
        let wanted = TorchWanted {
            torch: &release.version,
            gpus: &gpus,
            level: fleet.level(),
            python: None,
            machine: fleet.machine,
        };
        if let Some(build) = matrix.newest_torch_build(release, &wanted) {
            // Of the same release a newer CUDA may be what is kept out.
            let newer = release
                .cudas
                .iter()
                .filter(|cuda| *cuda > build.cuda)
                .min()
                .and_then(|cuda| {
                    let why = torch_against(fleet, release, cuda)?;
                    Some(format!("{}+{}: {why}", release.version, torch_tag(cuda)))
                });
            return Build {
                what: "PyTorch",
                newest: Some(build.name()),
                install: matrix
                    .torch_install(&build, "pip")
                    .map(|words| words.join(" ")),
                limit: limit.or(newer),
                note: None,
            };
        }
        let oldest = release.cudas.iter().min();
        let why = oldest.and_then(|cuda| {
            let why = torch_against(fleet, release, cuda)?;
            Some(format!("{}+{}: {why}", release.version, torch_tag(cuda)))
        });
        limit = why.or(limit);
        if first.is_none() {
            first.clone_from(&limit);
        }
    }
    Build::none("PyTorch", first)
}

fn torch_against(fleet: &Fleet<'_>, release: &TorchRelease, cuda: &Version) -> Option<String> {
    let archs = fleet.matrix.torch_archs(&release.version, cuda);
    fleet.against(cuda, archs.and_then(|row| row.code(fleet.machine)))
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
    Build::none(what, first)
}

fn jax(fleet: &Fleet<'_>) -> Build {
    let mut rows: Vec<_> = fleet.matrix.jax_plugins().iter().collect();
    rows.sort_by(|a, b| (&a.version, a.cuda).cmp(&(&b.version, b.cuda)));
    let (mut limit, mut first) = (None, None);
    for row in rows.into_iter().rev() {
        let cuda = Version::parse(&row.cuda.to_string());
        let against = cuda
            .and_then(|cuda| fleet.driver_against(&cuda))
            .or_else(|| {
                let (_, whose) = fleet
                    .gpus
                    .iter()
                    .find(|(gpu, _)| *gpu < row.capability_min)?;
                let (major, minor) = row.capability_min;
                Some(format!("it asks for {major}.{minor}, and there is {whose}"))
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
    Build::none("JAX", first)
}

/// By the code of the torch that it pins; of its own kernels no table has a list.
fn vllm(fleet: &Fleet<'_>) -> Build {
    releases("vLLM", "vllm", fleet.matrix.vllm_releases(), |row| {
        let archs = fleet.matrix.torch_archs(&row.torch, &row.cuda);
        let code = archs.and_then(|archs| archs.code(fleet.machine));
        (&row.version, fleet.against(&row.cuda, code))
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
    use crate::preflight::fleet::{Extra, described};

    fn of(targets: &[(&str, &str)]) -> Plan {
        let matrix = Matrix::bundled();
        let targets: Vec<Target> = targets
            .iter()
            .map(|(name, text)| {
                described(name, &text.parse().unwrap(), Extra::default(), &matrix).unwrap()
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
            let target = described("t", &text.parse().unwrap(), Extra::default(), &matrix).unwrap();
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
