//! The rules: pure functions of facts and matrix, one file a layer, one page an id.
//!
//! To add one: an entry in `rules/LAYER.rs`, `pages/ID.md`, a sick host and its healthy twin in `fixtures/hosts/`.

mod amd;
mod application;
mod container;
mod driver;
mod drm;
mod expected;
mod framework;
mod gpu_state;
mod hardware;
mod icd;
mod installed;
mod intel;
mod libraries;
mod runtime;
mod stack;
mod system;
mod toolchain;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

pub(crate) use application::why_nothing_is_visible;
pub use expected::{Expectation, gpu_expected};
pub(crate) use framework::BUILT_ON_TORCH;
pub use framework::summary as framework_summary;
pub use stack::nvml_code;

use crate::facts::{Facts, Layer, Reading};
use crate::finding::{Finding, Severity};
use crate::matrix::Matrix;

/// What a rule answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is so.
    Found(Vec<Finding>),
    /// It is a symptom that proves nothing by itself: it stands where another finding explains it, and without one
    /// it only says that something cannot be told.
    Symptom {
        /// The symptom.
        finding: Box<Finding>,
        /// What cannot be told where nothing explains it.
        alone: String,
        /// How much that matters then.
        need: Need,
    },
    /// It is not so, and what was needed to say that could be read.
    Clean,
    /// It cannot be told: what was missing, each with its reason.
    Unknown {
        /// `loaded kernel module: /proc/modules: permission denied`.
        missing: Vec<String>,
    },
}

impl Outcome {
    /// Found where there is something, else clean.
    pub fn found(findings: impl IntoIterator<Item = Finding>) -> Self {
        let findings: Vec<_> = findings.into_iter().collect();
        if findings.is_empty() {
            Self::Clean
        } else {
            Self::Found(findings)
        }
    }

    /// Cannot be told, for one reason.
    pub fn unknown(missing: impl Into<String>) -> Self {
        Self::Unknown {
            missing: vec![missing.into()],
        }
    }
}

/// What a rule may look at.
pub struct Ctx<'a> {
    /// The snapshot.
    pub facts: &'a Facts,
    /// The knowledge.
    pub matrix: &'a Matrix,
    /// `--expect-gpu`.
    pub expect_gpu: bool,
}

impl Ctx<'_> {
    /// An environment variable's value, where it is set.
    pub fn env(&self, name: &str) -> Option<&str> {
        self.facts
            .environment
            .value()
            .and_then(|env| env.get(name))
            .map(String::as_str)
    }

    /// What of the consumer's environment could not be read and belongs to a layer, each with its reason.
    pub fn unread(&self, layer: Layer) -> Vec<String> {
        let consumer = &self.facts.consumer;
        let all = consumer.unread.iter();
        all.filter(|unread| layers_of(&unread.path, &consumer.site_packages).contains(&layer))
            .map(|unread| unread.reason.clone())
            .chain(self.unread_of_process(layer))
            .collect()
    }

    /// Why it is not known what a process has of a layer.
    fn unread_of_process(&self, layer: Layer) -> Option<String> {
        let facts = self.facts;
        if facts.consumer.kind != crate::facts::ConsumerKind::Process {
            return None;
        }
        match (layer, &facts.runtime.cudart, &facts.libraries.copies) {
            (Layer::Runtime, Reading::Unreadable { reason }, _)
            | (Layer::Libraries, _, Reading::Unreadable { reason }) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Whether this runs in a container.
    pub fn in_container(&self) -> bool {
        self.facts.system.container.is_present()
    }

    /// Whether this is WSL, where the driver is Windows's.
    pub fn in_wsl(&self) -> bool {
        self.facts.system.wsl.is_present()
    }

    /// Whether this is a Tegra system, where the GPU is no PCI device and `nvidia.ko` may drive the display only.
    pub fn on_tegra(&self) -> bool {
        self.facts.system.tegra.is_present()
    }

    /// Whether this runs in a sandbox of gVisor, whose kernel answers itself: neither the host's module nor its
    /// `/proc/driver/nvidia` can be seen.
    pub fn in_gvisor(&self) -> bool {
        let version = self.facts.system.kernel_version.value();
        version.is_some_and(|text| crate::read::proc::is_gvisor(text))
    }

    /// The Jetson release that this is, where the matrix knows it.
    pub fn jetpack(&self) -> Option<&crate::matrix::Jetson> {
        let tegra = self.facts.system.tegra.value()?;
        self.matrix.jetson(tegra.l4t.as_ref()?)
    }

    /// Why it cannot be told in what kind of world this runs, where it cannot: what would be a fault on a plain host may
    /// be right in a container, in WSL, on a Jetson. A rule that accuses because something is missing asks this first.
    pub fn place_unknown(&self) -> Option<String> {
        let system = &self.facts.system;
        missing("whether this is a container", &system.container)
            .or_else(|| missing("whether this is WSL", &system.wsl))
            .or_else(|| missing("whether this is a Tegra system", &system.tegra))
    }

    /// Whether the discrete-GPU driver rules of a plain Linux system apply.
    pub fn plain_linux(&self) -> bool {
        !self.in_wsl() && !self.on_tegra()
    }
}

/// How much the verdict depends on a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// If it cannot be told, the layer's state cannot be told.
    Verdict,
    /// It sharpens the picture: if it cannot be told, the report says so and the layer keeps its state.
    Detail,
}

/// One entry of the table.
pub struct Rule {
    /// Kebab-case, about the fault, never reused.
    pub id: &'static str,
    /// The layer at fault (a finding may differ where the same fault has another owner, as in a container).
    pub layer: Layer,
    /// The worst severity that it gives.
    pub severity: Severity,
    /// What happens if it cannot be told.
    pub need: Need,
    /// Ids of findings that explain this one, likeliest first.
    pub follows_from: &'static [&'static str],
    /// Its page: what it means, how it is detected, causes, fixes, sources.
    pub page: &'static str,
    /// The rule.
    pub check: fn(&Ctx<'_>) -> Outcome,
}

/// All rules in walking order of their layers, sorted by id within each.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    static ALL: LazyLock<Vec<&'static Rule>> = LazyLock::new(|| {
        let mut all: Vec<&Rule> = [
            hardware::RULES,
            system::RULES,
            driver::RULES,
            container::RULES,
            runtime::RULES,
            libraries::RULES,
            installed::RULES,
            framework::RULES,
            application::RULES,
            toolchain::RULES,
            amd::RULES,
            icd::RULES,
            intel::RULES,
        ]
        .into_iter()
        .flatten()
        .collect();
        // Several files may have rules of one layer.
        all.sort_by_key(|rule| (rule.layer, rule.id));
        all
    });
    ALL.iter().copied()
}

/// The rule of an id.
pub fn by_id(id: &str) -> Option<&'static Rule> {
    all().find(|rule| rule.id == id)
}

/// Runs every rule. A rule that panics is a bug and answers unknown.
pub fn run(ctx: &Ctx<'_>) -> Vec<(&'static Rule, Outcome)> {
    all()
        .map(|rule| {
            let outcome =
                catch_unwind(AssertUnwindSafe(|| (rule.check)(ctx))).unwrap_or_else(|_| {
                    Outcome::unknown(format!("the rule `{}` failed: a bug in gpudoctor", rule.id))
                });
            (rule, outcome)
        })
        .collect()
}

/// Unwraps a reading inside a rule: absent is clean, unreadable is unknown.
macro_rules! known {
    ($reading:expr, $what:literal) => {
        match &$reading {
            $crate::facts::Reading::Present { value, .. } => value,
            $crate::facts::Reading::Absent { .. } => return $crate::rules::Outcome::Clean,
            $crate::facts::Reading::Unreadable { reason } => {
                return $crate::rules::Outcome::unknown(format!(concat!($what, ": {}"), reason));
            }
        }
    };
}
use known;

/// The layers that a file or folder of an environment may hold something of.
fn layers_of(path: &str, sites: &[String]) -> &'static [Layer] {
    let known = crate::read::recipes::known_name(crate::sysroot::file_name(path));
    if known.is_some() {
        return match libraries::layer_of(path) {
            Layer::Runtime => &[Layer::Runtime],
            _ => &[Layer::Libraries],
        };
    }
    let inside = sites.iter().find_map(|site| {
        let rest = path.strip_prefix(site.as_str())?;
        rest.strip_prefix('/')
    });
    match inside {
        Some(inside) if inside == "nvidia" || inside.starts_with("nvidia/") => {
            &[Layer::Runtime, Layer::Libraries]
        }
        Some(_) => &[Layer::Framework],
        None => &[Layer::Runtime, Layer::Libraries, Layer::Framework],
    }
}

/// What a rule answers that accuses because something is not there, where some of the environment could not be read.
fn unread(ctx: &Ctx<'_>) -> Option<Outcome> {
    let first = ctx.facts.consumer.unread.first()?;
    Some(Outcome::unknown(first.reason.clone()))
}

/// Why a reading is missing, for [`Outcome::Unknown`]; `None` where it is present or absent.
fn missing<T>(what: &str, reading: &Reading<T>) -> Option<String> {
    match reading {
        Reading::Unreadable { reason } => Some(format!("{what}: {reason}")),
        _ => None,
    }
}

impl Ctx<'_> {
    /// The runtimes that the consumer's processes get, for summaries.
    pub fn runtimes_of_consumer(&self) -> Vec<&crate::facts::RuntimeCopy> {
        self.consumer_runtimes()
    }
}

/// A runtime's version and where it was read, for summaries.
pub fn version_of(
    ctx: &Ctx<'_>,
    copy: &crate::facts::RuntimeCopy,
) -> Option<(crate::version::Version, String)> {
    driver::runtime_version(ctx, copy)
}
