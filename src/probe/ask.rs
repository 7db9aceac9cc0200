//! Which vendor libraries are asked what: the libcuda and libnvidia-ml that the consumer's loader takes, the libcudarts
//! that the consumer reaches, the device nodes. All children run at once; their answers are collected last.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::facts::{
    Calls, ChildEnd, DELETED, Facts, FileKind, LibraryAnswers, LibraryCopy, OpenAnswer, ReachedBy,
    Reading, RuntimeCopy, VendorFacts,
};
use crate::probe::vendor::{Ask, Heard, LibraryKind, Running};
use crate::probe::{Request, amd};

/// The most runtimes that are asked; more of them tell nothing new.
const RUNTIMES_ASKED: usize = 4;
/// After how long the caller hears what is being waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why a laptop's GPU is left alone.
const ASLEEP: &str = "the GPU sleeps, and asking it would wake it (--probe does)";

/// Children that run.
pub(super) struct Asked<'a> {
    request: &'a Request,
    calls: Calls,
    libcuda: Question,
    libnvidia_ml: Question,
    cudart: Result<Vec<(Ask, Running)>, Reading<Vec<LibraryAnswers>>>,
    hip: Question,
    hsa: Question,
    nodes: Option<Running>,
    hidden: bool,
}

/// What a question becomes: a child that runs, or the reading of a question that is not asked.
type Question = Result<(Ask, Running), Box<Reading<LibraryAnswers>>>;

/// Starts them.
pub(super) fn start<'a>(request: &'a Request, facts: &Facts, calls: Calls) -> Asked<'a> {
    // What another process sees of the GPUs hangs on its variable, not on that of the caller.
    let of_process = match (&request.process, request.environment.value()) {
        (Some(_), Some(env)) => {
            let name = "CUDA_VISIBLE_DEVICES";
            BTreeMap::from([(name.to_owned(), env.get(name).cloned())])
        }
        _ => BTreeMap::new(),
    };
    let library = |kind: LibraryKind, path: &str| {
        let ask = Ask {
            init: calls == Calls::Made,
            deadline: request.timeout,
            env: of_process.clone(),
            ..Ask::library(kind, path)
        };
        let running = request.launcher.start(&ask);
        (ask, running)
    };
    let forbidden = || "not asked: --static or --root".to_owned();
    let chosen = |copies: &Reading<Vec<LibraryCopy>>, kind: LibraryKind| -> Question {
        if calls == Calls::Forbidden {
            return Err(Box::new(Reading::unreadable(forbidden())));
        }
        match copies {
            Reading::Present { value, source } => match value.iter().find(|c| c.chosen) {
                Some(copy) if copy.kind == FileKind::Library => Ok(library(kind, &copy.path)),
                Some(copy) => Err(Box::new(Reading::absent(format!(
                    "{}: no library that can be loaded",
                    copy.path
                )))),
                None => Err(Box::new(Reading::absent(source))),
            },
            Reading::Absent { source } => Err(Box::new(Reading::absent(source))),
            Reading::Unreadable { reason } => Err(Box::new(Reading::unreadable(reason))),
        }
    };
    let libcuda = chosen(&facts.driver.libcuda, LibraryKind::Cuda);
    // NVML has nothing to say without init calls.
    let libnvidia_ml = match calls {
        Calls::NoDriver => Err(Box::new(Reading::unreadable(
            "not asked: no driver seems loaded",
        ))),
        Calls::Asleep => Err(Box::new(Reading::unreadable(format!(
            "not asked: {ASLEEP}"
        )))),
        Calls::Made | Calls::Forbidden => chosen(&facts.driver.libnvidia_ml, LibraryKind::Nvml),
    };
    let cudart = if calls == Calls::Forbidden {
        Err(Reading::unreadable(forbidden()))
    } else {
        Ok(runtimes(facts)
            .into_iter()
            .map(|copy| library(LibraryKind::Cudart, &copy.path))
            .collect())
    };
    let (drm_nodes, amd_asleep) = if calls == Calls::Forbidden {
        (Vec::new(), false)
    } else {
        amd::nodes_to_open(&request.sysroot, facts)
    };
    // HIP initialises every GPU that it sees, and so wakes those that sleep.
    let amd_runs = drm_nodes.iter().any(|path| path == "/dev/kfd") && !amd_asleep;
    let rocm = |kind: LibraryKind, name: &str| -> Question {
        if calls == Calls::Forbidden {
            return Err(Box::new(Reading::unreadable(forbidden())));
        }
        let mut copies = facts.amd.libraries.items().iter();
        match copies.find(|copy| copy.name == name && copy.is_reached()) {
            None => Err(Box::new(Reading::absent(facts.amd.libraries.source()))),
            Some(_) if amd_asleep && !request.init_always => Err(Box::new(Reading::unreadable(
                format!("not asked: {ASLEEP}"),
            ))),
            Some(_) if !amd_runs && !request.init_always => Err(Box::new(Reading::unreadable(
                "not asked: no driver seems loaded",
            ))),
            Some(copy) if copy.kind == FileKind::Library => {
                let ask = Ask {
                    init: true,
                    deadline: request.timeout,
                    ..Ask::library(kind, &copy.path)
                };
                let running = request.launcher.start(&ask);
                Ok((ask, running))
            }
            Some(copy) => Err(Box::new(Reading::absent(format!(
                "{}: no library that can be loaded",
                copy.path
            )))),
        }
    };
    let hip = rocm(LibraryKind::Hip, "libamdhip64");
    let hsa = rocm(LibraryKind::Hsa, "libhsa-runtime64");
    let mut paths: Vec<String> = facts
        .driver
        .nodes
        .items()
        .iter()
        .filter(|_| calls == Calls::Made)
        .filter(|n| {
            n.is_char && n.path != "/dev/nvmap" && n.path != "/dev/kfd" && !n.path.contains("-caps")
        })
        .map(|n| n.path.clone())
        .collect();
    paths.extend(drm_nodes);
    let nodes = (!paths.is_empty()).then(|| {
        request.launcher.start(&Ask {
            deadline: request.timeout,
            ..Ask::nodes(paths)
        })
    });
    let hidden = facts
        .environment
        .value()
        .is_some_and(|env| env.contains_key("CUDA_VISIBLE_DEVICES"));
    Asked {
        request,
        calls,
        libcuda,
        libnvidia_ml,
        cudart,
        hip,
        hsa,
        nodes,
        hidden,
    }
}

/// Runtimes that are asked: the consumer's own where it has any, else those that the loader finds. Another user's
/// environment is not run by root: its versions are read from the files.
fn runtimes(facts: &Facts) -> Vec<&RuntimeCopy> {
    let all: Vec<&RuntimeCopy> = facts
        .runtime
        .cudart
        .items()
        .iter()
        // One that is linked into a program cannot be loaded, nor one whose file is gone.
        .filter(|c| c.kind == FileKind::Library && c.soname.is_present())
        .filter(|c| !c.path.ends_with(DELETED))
        .collect();
    let by = |by: ReachedBy| -> Vec<&RuntimeCopy> {
        let is_so = |c: &&&RuntimeCopy| c.reached_by.contains(&by);
        all.iter().filter(is_so).copied().collect()
    };
    let own = [
        ReachedBy::Process,
        ReachedBy::Program,
        ReachedBy::Environment,
    ]
    .into_iter()
    .map(by)
    .find(|own| !own.is_empty());
    let from = own.unwrap_or_else(|| all.iter().filter(|c| c.is_reached()).copied().collect());
    from.into_iter().take(RUNTIMES_ASKED).collect()
}

impl Asked<'_> {
    /// Collects the answers.
    pub(super) fn finish(self) -> VendorFacts {
        let say = self.request.say;
        let wait = |running: Running| {
            running.finish_saying(PATIENCE, &mut |call| {
                say(&format!("still waiting for {call}"));
            })
        };
        let mut confined = Reading::unreadable("no child was started");
        let mut hears = |question: Question| match question {
            Ok((ask, running)) => {
                let heard = wait(running);
                if heard.confined.is_present() {
                    confined = heard.confined;
                }
                (Reading::present(heard.answers, ask.path.clone()), Some(ask))
            }
            Err(reading) => (*reading, None),
        };
        let (libcuda, cuda_ask) = hears(self.libcuda);
        let (libnvidia_ml, _) = hears(self.libnvidia_ml);
        let cudart = match self.cudart {
            Ok(all) => Reading::present(
                all.into_iter()
                    .map(|(_, running)| wait(running).answers)
                    .collect(),
                "the consumer's runtimes",
            ),
            Err(reading) => reading,
        };
        let (hip, _) = hears(self.hip);
        let (hsa, _) = hears(self.hsa);
        let opened = self.nodes.map(|running| {
            let heard = wait(running);
            if heard.confined.is_present() {
                confined = heard.confined.clone();
            }
            opened(heard)
        });
        let of = |drm: bool| {
            let is_drm = |path: &str| path == "/dev/kfd" || path.starts_with("/dev/dri/");
            opened.clone().map(|all| {
                all.map(|mut answers| {
                    answers.retain(|answer| is_drm(&answer.path) == drm);
                    answers
                })
            })
        };
        let opens = match (of(false), self.calls) {
            (Some(answers), Calls::Made) => answers,
            (None, Calls::Made) => Reading::absent("/dev"),
            (_, Calls::NoDriver) => Reading::unreadable("not opened: no driver seems loaded"),
            (_, Calls::Asleep) => Reading::unreadable(format!("not opened: {ASLEEP}")),
            (_, Calls::Forbidden) => Reading::unreadable("not opened: --static or --root"),
        };
        let drm_opens = match (of(true), self.calls) {
            (_, Calls::Forbidden) => Reading::unreadable("not opened: --static or --root"),
            (Some(answers), _) => answers,
            (None, _) => Reading::unreadable("not opened: no driver for them seems loaded"),
        };
        let libcuda_unhidden = match cuda_ask {
            Some(ask) if self.hidden && saw_no_gpu(&libcuda) => {
                let again = Ask {
                    env: BTreeMap::from([("CUDA_VISIBLE_DEVICES".to_owned(), None)]),
                    ..ask
                };
                Reading::present(
                    wait(self.request.launcher.start(&again)).answers,
                    again.path,
                )
            }
            _ => {
                Reading::absent("asked only where CUDA_VISIBLE_DEVICES is set and no GPU was seen")
            }
        };
        VendorFacts {
            libcuda,
            libcuda_unhidden,
            libnvidia_ml,
            cudart,
            hip,
            hsa,
            opens,
            drm_opens,
            confined,
        }
    }
}

/// The answers of a child that opened nodes.
fn opened(heard: Heard) -> Reading<Vec<OpenAnswer>> {
    match (heard.answers.withheld, heard.answers.end) {
        (Some(reason), _) => Reading::unreadable(reason),
        (None, ChildEnd::NotStarted { reason } | ChildEnd::NotTrusted { reason }) => {
            Reading::unreadable(reason)
        }
        (None, _) => Reading::present(heard.opens, "open()"),
    }
}

/// Whether CUDA came back and saw no GPU.
fn saw_no_gpu(libcuda: &Reading<LibraryAnswers>) -> bool {
    libcuda.value().is_some_and(|a| {
        a.code("cuInit") == Some(100)
            || a.code("cuInit") == Some(0) && a.number("cuDeviceGetCount").is_none_or(|n| n == 0)
    })
}
