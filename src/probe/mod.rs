//! The probes: the only part that touches the machine. One file a layer; each records what it saw and where, and why
//! something could not be seen. None of them judges.
//!
//! Order: the calls into vendor libraries are started first, since a child costs milliseconds; files are read
//! meanwhile, and the answers are collected last.

mod amd;
pub mod application;
mod ask;
mod consumer;
mod container;
mod distributions;
mod driver;
mod drm;
mod environment;
mod framework;
pub mod gpus;
mod hardware;
mod icd;
mod intel;
mod libraries;
mod loader;
pub mod resolve;
mod runtime;
mod search_path;
mod shared_files;
mod start;
mod system;
mod toolchain;
mod unread;
pub mod vendor;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use self::resolve::Resolver;
use crate::facts::{Calls, ConsumerKind, Facts, Process, Reading, SCHEMA, Scope};
use crate::redact::{self, Secrets};
use crate::sysroot::{Sysroot, join};

/// PATH where nobody set one.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is to be looked at, and how. The caller reads its own environment; probes take it as data.
#[derive(Debug)]
pub struct Request {
    /// The machine.
    pub sysroot: Sysroot,
    /// The environment of the caller, or of the process that was named; of an image what its configuration sets; unreadable
    /// under another `--root`, where the caller's does not count.
    pub environment: Reading<BTreeMap<String, String>>,
    /// The caller's working folder, for `./.venv`.
    pub working_folder: Option<String>,
    /// `--python-env`.
    pub python_env: Option<String>,
    /// `--app`: a program or a script that is there.
    pub app: Option<String>,
    /// `--pid`: the process.
    pub process: Option<Process>,
    /// `--static`: load and open nothing.
    pub load_nothing: bool,
    /// `--probe`: make init calls even where no driver seems loaded.
    pub init_always: bool,
    /// How long a call into a vendor library may take.
    pub timeout: Duration,
    /// `uname -r` and `uname -m`, for what the files do not say; `None` under `--root`.
    pub uname: Option<(String, String)>,
    /// The effective user; `None` under `--root`.
    pub user: Option<crate::facts::User>,
    /// When: UTC, RFC 3339.
    pub taken_at: String,
    /// Whether private names are replaced.
    pub redact: bool,
    /// How the children are started.
    pub launcher: vendor::Launcher,
    /// Where talk goes while something is waited for.
    pub say: fn(&str),
    /// The root is that of a container image.
    pub image: Option<Image>,
}

/// A container image that is read in place of a machine.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// What of it is not here or was not read, in words.
    pub lacks: Option<String>,
}

/// The variables of an environment that a report may hold.
pub fn kept_variables(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    environment::allowed(all)
}

/// Whether a distribution of this normalised name is a framework, or built on one.
pub fn is_known_framework(name: &str) -> bool {
    framework::is_known(name)
}

/// Takes the snapshot.
pub fn take(request: &Request) -> Facts {
    let sysroot = &request.sysroot;
    let mut problems = Vec::new();
    // Another root has no caller: what its own login would have counts, and that is the default PATH alone.
    let env = request
        .environment
        .value()
        .cloned()
        .unwrap_or_else(|| BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH.to_owned())]));

    let mut facts = Facts {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        taken_at: request.taken_at.clone(),
        environment: request
            .environment
            .clone()
            .map(|all| environment::allowed(&all)),
        ..Facts::default()
    };

    let mapped = request.process.iter().flat_map(|process| {
        let mapped = process.mapped.items().iter();
        mapped.filter(|m| !m.deleted).map(|m| m.path.as_str())
    });
    let loader = loader::Loader::new(
        sysroot,
        env.get("LD_LIBRARY_PATH").map(String::as_str),
        request.uname.as_ref(),
    )
    .loaded_before(env.get("LD_PRELOAD").map(String::as_str), mapped);
    facts.driver.libcuda = guarded(&mut problems, "driver.libcuda", || {
        driver::library_copies(sysroot, &loader, driver::Library::Cuda)
    });
    facts.driver.libnvidia_ml = guarded(&mut problems, "driver.libnvidia_ml", || {
        driver::library_copies(sysroot, &loader, driver::Library::Nvml)
    });
    (
        facts.driver.sys_version,
        facts.driver.proc_version,
        facts.driver.modules,
    ) = driver::loaded(sysroot);
    facts.driver.nodes = guarded(&mut problems, "driver.nodes", || driver::nodes(sysroot));
    let app = request.app.as_ref().map(|path| {
        let search = resolve::Environment {
            library_path: env.get("LD_LIBRARY_PATH").cloned(),
            preload: env.get("LD_PRELOAD").cloned(),
            working_folder: request.working_folder.clone(),
        };
        application::app(sysroot, &env, &Resolver::new(sysroot, &search), path)
    });
    let consumer::Examined {
        consumer,
        sites,
        named,
    } = consumer::find(
        sysroot,
        &env,
        request.working_folder.as_deref(),
        &consumer::Asked {
            prefix: request.python_env.as_deref(),
            app: app.as_ref().zip(request.app.as_deref()),
            process: request.process.as_ref(),
        },
    );
    facts.consumer = consumer;
    let own = application::own_runtimes(sysroot, app.as_ref(), request.process.as_ref());
    // What a process would find is no sign of what it has.
    let unread = request
        .process
        .as_ref()
        .filter(|process| process.mapped.is_unreadable());
    facts.runtime.cudart = match unread {
        Some(process) => Reading::unreadable(format!(
            "what the process has mapped: {}",
            process.mapped.source()
        )),
        None => guarded(&mut problems, "runtime.cudart", || {
            runtime::copies(sysroot, &loader, own, &facts.consumer, &sites, &named)
        }),
    };
    facts.application = application::facts(app, request.process.clone());
    facts.application.start = match &request.app {
        Some(path) => {
            let machine = system::machine(sysroot, request);
            let env = request.environment.value();
            let start = start::start(sysroot, env, machine.value().map(String::as_str), path);
            Reading::present(start, path)
        }
        None => Reading::absent("--app was not given"),
    };

    let calls = if request.load_nothing || !sysroot.is_live() {
        Calls::Forbidden
    } else if request.init_always {
        Calls::Made
    } else if driver::seems_loaded(sysroot, &facts.driver) {
        if hardware::all_asleep(sysroot) {
            Calls::Asleep
        } else {
            Calls::Made
        }
    } else {
        Calls::NoDriver
    };
    facts.scope = Scope {
        mode: match (&request.image, sysroot.is_live()) {
            (Some(_), _) => Scope::IMAGE,
            (None, true) => "live",
            (None, false) => "root",
        }
        .to_owned(),
        calls,
        as_root: match &request.user {
            Some(user) => Reading::present(user.uid == 0, "geteuid"),
            None => Reading::unreadable("not recorded: another root is read"),
        },
        sudo: match &request.environment {
            Reading::Present { value, .. } => {
                Reading::present(value.contains_key("SUDO_USER"), "SUDO_USER")
            }
            _ => Reading::unreadable("not recorded: another root is read"),
        },
    };
    facts.drm = guarded(&mut problems, "drm", || drm::probe(sysroot));
    facts.amd = guarded(&mut problems, "amd.first", || {
        amd::first(
            sysroot,
            &loader,
            &amd::Where {
                sites: &sites,
                // A distribution's own folder is the loader's.
                own: facts
                    .consumer
                    .prefix
                    .value()
                    .filter(|prefix| !["/usr", "/"].contains(&prefix.as_str()))
                    .map(|prefix| join(prefix, "lib")),
                application: &facts.application,
                env: &env,
            },
        )
    });
    let asked = ask::start(request, &facts, calls);
    facts.intel = guarded(&mut problems, "intel", || {
        let program = facts.application.program.value().map(|program| &**program);
        intel::probe(sysroot, &loader, &facts.consumer, program)
    });
    facts.icd = guarded(&mut problems, "icd", || icd::probe(sysroot, &loader, &env));

    facts.python = guarded(&mut problems, "python", || {
        distributions::probe(sysroot, &facts.consumer, &sites, named)
    });
    facts.hardware = guarded(&mut problems, "hardware", || hardware::probe(sysroot));
    facts.system = guarded(&mut problems, "system", || {
        system::probe(sysroot, request, &facts.driver, &facts.drm)
    });
    facts.container = guarded(&mut problems, "container", || {
        container::probe_host(sysroot, &env, facts.system.packages.items())
    });
    facts.container.glue = guarded(&mut problems, "container.glue", || {
        container::probe_glue(sysroot, request, &facts.system, &facts.driver)
    });
    driver::probe(sysroot, &mut facts);
    amd::probe(sysroot, &mut facts);
    facts.libraries = guarded(&mut problems, "libraries", || {
        libraries::probe(
            sysroot,
            &loader,
            &env,
            request.working_folder.as_deref(),
            &libraries::Environment {
                consumer: &facts.consumer,
                sites: &sites,
                python: &facts.python,
                program: facts.application.program.value().map(|p| p.path.as_str()),
                process: request.process.as_ref(),
            },
        )
    });
    facts.runtime.toolkits = guarded(&mut problems, "runtime.toolkits", || {
        runtime::toolkits(sysroot)
    });
    facts.toolchain = guarded(&mut problems, "toolchain", || {
        toolchain::probe(
            sysroot,
            &env,
            request.working_folder.as_deref(),
            &facts.consumer,
        )
    });
    facts.vendor = asked.finish();
    facts.framework = guarded(&mut problems, "framework", || {
        framework::probe(sysroot, &loader, &env, &sites, &facts)
    });
    unread::in_environment(sysroot, &sites, &mut facts);
    facts.problems = problems;
    if let Some(image) = &request.image {
        in_image(image, &mut facts);
    }

    if request.redact {
        redacted(request, facts)
    } else {
        facts
    }
}

/// What is otherwise where an image was read in place of a machine.
fn in_image(image: &Image, facts: &mut Facts) {
    if facts.consumer.kind == ConsumerKind::Machine {
        "this image".clone_into(&mut facts.consumer.what);
    }
    // What is not found may lie in what is not here.
    let Some(why) = &image.lacks else { return };
    let not_told = || format!("what is not found may be in what was not read: {why}");
    if facts.runtime.cudart.items().is_empty() {
        facts.runtime.cudart = Reading::unreadable(not_told());
    }
    if facts.driver.libcuda.items().is_empty() {
        facts.driver.libcuda = Reading::unreadable(not_told());
    }
    facts.problems.push(why.clone());
}

/// Whether a folder is an environment of Python or conda.
pub fn is_environment(sysroot: &Sysroot, prefix: &str) -> bool {
    consumer::is_environment(sysroot, prefix)
        || !search_path::python_folders(sysroot, prefix).is_empty()
}

/// The facts without what is private on the machine that was looked at.
pub fn redacted(request: &Request, facts: Facts) -> Facts {
    let env = request.environment.value().cloned().unwrap_or_default();
    redact::facts(secrets(&request.sysroot, &env), facts)
}

/// Runs one question; a panic in it is a bug, becomes a problem, and leaves its facts unreadable.
fn guarded<T: Default>(problems: &mut Vec<String>, name: &str, question: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(question)).unwrap_or_else(|_| {
        problems.push(format!("{name}: the probe failed: a bug in gpudoctor"));
        T::default()
    })
}

/// What this machine's reports may not hold.
pub(crate) fn secrets(sysroot: &Sysroot, env: &BTreeMap<String, String>) -> Secrets {
    let host = |path| {
        sysroot
            .text(path)
            .value()
            .map(|text: &String| text.trim().to_owned())
            .filter(|name| !name.is_empty())
    };
    let mut host_names: Vec<String> = ["/proc/sys/kernel/hostname", "/etc/hostname"]
        .into_iter()
        .filter_map(host)
        .collect();
    host_names.extend(env.get("HOSTNAME").cloned());
    host_names.sort_unstable();
    host_names.dedup();
    let mut user_names: Vec<String> = ["USER", "LOGNAME", "SUDO_USER"]
        .iter()
        .filter_map(|name| env.get(*name).cloned())
        .collect();
    user_names.sort_unstable();
    user_names.dedup();
    Secrets {
        home: env
            .get("HOME")
            .cloned()
            .filter(|home| home.starts_with('/') && home.len() > 1),
        user_names,
        host_names,
    }
}
