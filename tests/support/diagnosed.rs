//! Described hosts, looked at by the real probes and diagnosed by the real rules.
//!
//! A host is laid out under a temporary folder and read from there as a live machine would be. What a folder cannot hold
//! without root (nodes, their groups, sockets with long paths) and the answers of vendor libraries are put in afterwards,
//! where the live probes would have put them.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpudoctor::cli::FailOn;
use gpudoctor::diagnosis::{Diagnosis, Options, Status, diagnose};
use gpudoctor::facts::{DeviceNode, Facts, Reading, RenderNode};
use gpudoctor::finding::Severity;
use gpudoctor::matrix::Matrix;
use gpudoctor::probe::vendor::Launcher;
use gpudoctor::probe::{self, Request};
use gpudoctor::read::proc::group_names;
use gpudoctor::report::{Report, json, text};
use gpudoctor::sysroot::Sysroot;

use super::host::{self, Host};
use super::layout::{Laid, folder, lay_out};

/// A host and what came of it.
pub struct Diagnosed {
    /// The description.
    pub host: Host,
    /// What was read.
    pub facts: Facts,
    /// What it means.
    pub diagnosis: Diagnosis,
}

impl Diagnosed {
    /// Diagnoses facts of a host.
    pub fn of(host: Host, facts: Facts) -> Self {
        let diagnosis = judge(&facts, expects_gpu(&host));
        Self {
            host,
            facts,
            diagnosis,
        }
    }

    /// Ids of its findings at or above a severity.
    pub fn ids(&self, least: Severity) -> Vec<&str> {
        let all = self.diagnosis.findings.iter();
        all.filter(|f| f.severity >= least)
            .map(|f| f.id.as_str())
            .collect()
    }

    /// The exit code of `gpudoctor check`.
    pub fn exit(&self) -> i32 {
        let found = self
            .diagnosis
            .findings
            .iter()
            .any(|f| FailOn::default().fails(f.severity));
        let unknown = expects_gpu(&self.host) && self.diagnosis.verdict.status == Status::Unknown;
        i32::from(found || unknown)
    }

    /// The text report at 80 columns.
    pub fn text(&self) -> String {
        text::render(&self.report(), text::Options::default())
    }

    /// The JSON report.
    pub fn json(&self) -> String {
        json::render(&self.report()).expect("a report can be written as JSON")
    }

    /// What a format is given.
    pub fn report(&self) -> Report<'_> {
        Report {
            facts: &self.facts,
            matrix: matrix(),
            diagnosis: &self.diagnosis,
            symptoms: &[],
            log: None,
        }
    }
}

/// Diagnoses facts with the bundled matrix.
pub fn judge(facts: &Facts, expect_gpu: bool) -> Diagnosis {
    diagnose(
        facts,
        matrix(),
        &Options {
            expect_gpu,
            ..Options::default()
        },
    )
}

/// Whether the run of a host demands a GPU.
pub fn expects_gpu(host: &Host) -> bool {
    host.args.iter().any(|arg| arg == "--expect-gpu")
}

/// What an option of a host's run names.
fn named_by(host: &Host, option: &str) -> Option<String> {
    let mut args = host.args.iter().skip_while(|arg| *arg != option);
    args.nth(1).cloned()
}

/// The bundled matrix, parsed once a test program.
pub fn matrix() -> &'static Matrix {
    static MATRIX: OnceLock<Matrix> = OnceLock::new();
    MATRIX.get_or_init(Matrix::bundled)
}

/// Every host of `fixtures/hosts`, diagnosed once a test program, sorted by name.
pub fn all() -> &'static [Diagnosed] {
    static ALL: OnceLock<Vec<Diagnosed>> = OnceLock::new();
    ALL.get_or_init(|| {
        let hosts = host::load_all();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut done = Vec::new();
            while let Some(host) = hosts.get(next.fetch_add(1, Ordering::Relaxed)) {
                done.push(Diagnosed::of(host.clone(), take(host)));
            }
            done
        };
        let mut all: Vec<Diagnosed> = std::thread::scope(|scope| {
            let threads = std::thread::available_parallelism().map_or(2, usize::from);
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            running
                .into_iter()
                .flat_map(|thread| thread.join().expect("the fixtures are right"))
                .collect()
        });
        all.sort_by(|a, b| a.host.case.cmp(&b.host.case));
        all
    })
}

/// The host of this name.
pub fn named(case: &str) -> &'static Diagnosed {
    all()
        .iter()
        .find(|d| d.host.case == case)
        .unwrap_or_else(|| panic!("no host {case} in fixtures/hosts"))
}

/// Lays a host out and takes its snapshot.
pub fn take(host: &Host) -> Facts {
    let folder = folder();
    let laid = lay_out(host, folder.path());
    let mut request = request(folder.path(), &laid, host.taken_at.as_deref());
    request.app = named_by(host, "--app");
    let mut facts = probe::take(&request);
    "live".clone_into(&mut facts.scope.mode);
    facts.scope.calls = laid.calls;
    complete(&mut facts, &request.sysroot, &laid);
    facts.vendor = laid.vendor;
    probe::redacted(&request, facts)
}

/// When a host's snapshot is taken where it does not say so itself.
const TAKEN_AT: &str = "2026-01-02T03:04:05Z";

fn request(root: &Path, laid: &Laid, taken_at: Option<&str>) -> Request {
    Request {
        sysroot: Sysroot::at(root).expect("the folder is there"),
        environment: Reading::present(laid.environment.clone(), "environment"),
        working_folder: Some("/".to_owned()),
        python_env: None,
        app: None,
        process: None,
        load_nothing: false,
        init_always: false,
        timeout: Duration::from_secs(30),
        uname: Some((laid.kernel_release.clone(), laid.arch.clone())),
        user: Some(laid.user.clone()),
        taken_at: taken_at.unwrap_or(TAKEN_AT).to_owned(),
        redact: false,
        // Nothing is called below a folder, so no child is started.
        launcher: Launcher::new("/nonexistent"),
        say: |_| {},
        image: None,
    }
}

/// What the folder could not hold.
fn complete(facts: &mut Facts, sysroot: &Sysroot, laid: &Laid) {
    let nodes: Vec<DeviceNode> = laid
        .nodes
        .iter()
        .filter(|node| is_read(&node.path))
        .cloned()
        .collect();
    let groups: Vec<u32> = laid
        .nodes
        .iter()
        .map(|node| node.gid)
        .chain(laid.user.groups.iter().copied())
        .chain([laid.user.gid])
        .collect();
    facts.system.group_names = sysroot.text("/etc/group").map(|text| {
        let mut names = group_names(&text);
        names.retain(|gid, _| groups.contains(gid));
        names
    });
    facts.driver.nodes = Reading::present(nodes, "/dev");
    for node in &laid.nodes {
        let fact = || Reading::present(node.clone(), &node.path);
        if node.path == "/dev/kfd" {
            facts.amd.kfd = fact();
        } else if let Some(name) = node.path.strip_prefix("/dev/dri/") {
            let Reading::Present { value, .. } = &mut facts.drm.render else {
                panic!("the folder can be listed")
            };
            if let Some(known) = value.iter_mut().find(|known| known.name == name) {
                known.node = fact();
            } else {
                value.push(RenderNode {
                    name: name.to_owned(),
                    node: fact(),
                    ..RenderNode::default()
                });
            }
        }
    }
    for (path, reading) in [
        (
            "/run/nvidia-persistenced/socket",
            &mut facts.driver.persistenced_socket,
        ),
        (
            "/run/nvidia-fabricmanager/socket",
            &mut facts.driver.fabric_manager.socket,
        ),
    ] {
        if laid.sockets.iter().any(|socket| socket == path) {
            *reading = Reading::present(path.to_owned(), path);
        }
    }
}

/// Whether the probe lists a node: those of the DRM subsystem, for one, it does not.
fn is_read(path: &str) -> bool {
    let name = path.strip_prefix("/dev/").unwrap_or_default();
    name.starts_with("nvidia")
        || name.starts_with("nvgpu/igpu0/")
        || ["dxg", "nvhost-gpu", "nvmap", "kfd"].contains(&name)
}
