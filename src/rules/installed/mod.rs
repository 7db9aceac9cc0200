//! Rules about what an environment's distributions recorded, held against what lies there and against what they require
//! of each other. Which copy of a library a process gets, and whether that one fits, is not asked here.

mod missing;
mod overwritten;
mod requirements;
mod twice;

pub(super) use requirements::{Absent, absent, unmet_of};

use super::libraries::pythonpath_of;
use super::{Ctx, Need, Rule};
use crate::facts::{Installed, Layer};
use crate::finding::{Fix, Severity, shell_line};
use crate::matrix::{Matrix, cuda_of_torch_tag};
use crate::read::requirement::{Platform, Requirement};
use crate::version::Version;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "distribution-files-missing",
        layer: Layer::Libraries,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &["distribution-overwritten"],
        page: include_str!("../pages/distribution-files-missing.md"),
        check: missing::distribution_files_missing,
    },
    Rule {
        id: "distribution-overwritten",
        layer: Layer::Libraries,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/distribution-overwritten.md"),
        check: overwritten::distribution_overwritten,
    },
    Rule {
        id: "distribution-recorded-twice",
        layer: Layer::Libraries,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/distribution-recorded-twice.md"),
        check: twice::distribution_recorded_twice,
    },
    Rule {
        id: "requirement-absent",
        layer: Layer::Libraries,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/requirement-absent.md"),
        check: requirements::requirement_absent,
    },
    Rule {
        id: "requirement-not-met",
        layer: Layer::Libraries,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[
            "distribution-overwritten",
            "cudnn-older-than-build",
            "torch-companion-mismatch",
        ],
        page: include_str!("../pages/requirement-not-met.md"),
        check: requirements::requirement_not_met,
    },
];

/// What a distribution requires, of those that matter, and that surely applies where it is installed.
fn requirements<'a>(
    ctx: &Ctx<'_>,
    dist: &'a Installed,
    extras: &'a [String],
) -> impl Iterator<Item = Requirement> + 'a {
    let platform = Platform {
        machine: ctx.facts.system.arch.value().cloned(),
        python: dist
            .site
            .split('/')
            .find_map(|part| part.strip_prefix("python"))
            .filter(|version| version.contains('.'))
            .map(str::to_owned),
        cpython: false,
    };
    // Conda's dependencies have another form and other names.
    let lines = if dist.is_conda_package() {
        &[]
    } else {
        dist.requires.as_slice()
    };
    lines
        .iter()
        .filter_map(|line| Requirement::parse(line))
        .filter(move |required| required.applies(&platform, extras) == Some(true))
}

/// The names of distributions that a framework of the consumer needs, those that its requirements need included, each with
/// the framework's name and version.
fn needed(ctx: &Ctx<'_>) -> Vec<(String, String)> {
    let python = &ctx.facts.python;
    let frameworks = ctx.facts.consumer.frameworks.items().iter();
    let mut found: Vec<(String, String)> = Vec::new();
    let mut to_do: Vec<(String, Vec<String>, String)> = frameworks
        .rev()
        .map(|f| {
            (
                f.name.clone(),
                Vec::new(),
                format!("{} {}", f.name, f.version),
            )
        })
        .collect();
    let mut done: Vec<(String, Vec<String>)> = Vec::new();
    while let Some((name, extras, by)) = to_do.pop() {
        let step = (name, extras);
        if done.contains(&step) {
            continue;
        }
        if let Some(dist) = python.installed(&step.0) {
            for required in requirements(ctx, dist, &step.1) {
                if !found.iter().any(|(name, _)| *name == required.name) {
                    found.push((required.name.clone(), by.clone()));
                }
                to_do.push((required.name, required.extras, by.clone()));
            }
        }
        done.push(step);
    }
    found
}

/// The layer whose part a distribution is: NVIDIA's wheels are libraries, the others build on them.
fn layer_of(name: &str) -> Layer {
    let is_library = name.starts_with("nvidia-")
        || name.starts_with("lib")
        || name.starts_with("cuda-")
        || ["cudnn", "nccl", "cudatoolkit", "cusparselt", "cutensor"].contains(&name);
    if is_library {
        Layer::Libraries
    } else {
        Layer::Framework
    }
}

/// A distribution in words: `torch 2.7.1`.
fn in_words(name: &str, version: &str) -> String {
    format!("{name} {version}")
}

/// Stands for the installer of what lies in a folder of `PYTHONPATH`: that is another environment's, and what is installed
/// into this one comes behind it.
const ELSEWHERE: &str = "PYTHONPATH";

/// How the tool that installed a distribution is called for its environment.
pub(super) struct Tool<'a> {
    prefix: &'a str,
    installer: &'a str,
    user_site: bool,
    matrix: &'a Matrix,
}

impl<'a> Tool<'a> {
    /// The tool of a distribution's own installer.
    pub(super) fn of(ctx: &'a Ctx<'_>, dist: &'a Installed) -> Self {
        let prefix = ctx.facts.consumer.prefix.value();
        Self {
            prefix: prefix.map_or("/usr", String::as_str),
            installer: if pythonpath_of(ctx, &dist.site).is_some() {
                ELSEWHERE
            } else {
                dist.installer.value().map_or("pip", String::as_str)
            },
            user_site: dist.site.contains("/.local/lib/python"),
            matrix: ctx.matrix,
        }
    }

    /// Installs these, whatever is there; `None` where no command for it can be known: Debian's packages have names of
    /// their own, and a version with a local part lies in an index that nobody recorded, but for PyTorch's (`+cu124`).
    pub(super) fn install_again(&self, name: &str, version: &str) -> Option<String> {
        if version.contains('+') {
            return self.install_all(&self.pytorch_words(name, version)?, true);
        }
        self.install(&format!("{name}=={version}"), true)
    }

    /// The words that name a build of PyTorch's own index: `torch==2.7.1+cu128 --index-url ..`.
    fn pytorch_words(&self, name: &str, version: &str) -> Option<Vec<String>> {
        let (release, tag) = version.split_once('+')?;
        let cuda = cuda_of_torch_tag(tag);
        match name {
            "torch" => {
                let row = self.matrix.torch_release(&Version::parse(release)?)?;
                let known = |cuda: Version| {
                    let mut cudas = row.cudas.iter();
                    cudas.any(|known| known.major_minor() == cuda.major_minor())
                };
                (row.version.as_str() == release && cuda.is_some_and(known)).then_some(())?;
            }
            "torchvision" | "torchaudio" => {
                cuda?;
            }
            _ => return None,
        }
        let mut rows = self.matrix.torch_installs().iter();
        let row = rows.find(|row| row.installer == self.installer)?;
        let words = row.command.iter().skip_while(|word| *word != "install");
        let words = words.skip(1).map(|word| {
            word.replace("torch==", &format!("{name}=="))
                .replace("{version}", release)
                .replace("{tag}", tag)
        });
        Some(words.collect())
    }

    /// Installs what a requirement asks for.
    pub(super) fn install(&self, requirement: &str, again: bool) -> Option<String> {
        self.install_all(&[requirement.to_owned()], again)
    }

    /// Installs several in one go, so that one resolution suits all.
    pub(super) fn install_all(&self, requirements: &[String], again: bool) -> Option<String> {
        let python = format!("{}/bin/python3", self.prefix);
        let mut words = match self.installer {
            "dpkg" | ELSEWHERE => return None,
            "conda" => {
                let mut words = vec!["conda", "install", "--prefix", self.prefix];
                if again {
                    words.push("--force-reinstall");
                }
                words
            }
            "uv" => {
                let mut words = vec!["uv", "pip", "install", "--python", self.prefix];
                if again {
                    words.extend(["--reinstall", "--no-deps"]);
                }
                words
            }
            _ => {
                let mut words = vec![python.as_str(), "-m", "pip", "install"];
                if self.user_site {
                    words.push("--user");
                }
                if again {
                    words.extend(["--force-reinstall", "--no-deps"]);
                }
                words
            }
        };
        words.extend(requirements.iter().map(String::as_str));
        Some(shell_line(&words))
    }

    /// Whether it is conda, whose packages have names of their own.
    pub(super) fn is_conda(&self) -> bool {
        self.installer == "conda"
    }

    /// Whether this is called the same way.
    fn is_same(&self, other: &Self) -> bool {
        self.installer == other.installer && self.prefix == other.prefix
    }

    /// Takes these out.
    pub(super) fn uninstall(&self, names: &[&str]) -> Option<String> {
        let python = format!("{}/bin/python3", self.prefix);
        let mut words = match self.installer {
            "dpkg" | ELSEWHERE => return None,
            "conda" => vec!["conda", "remove", "--prefix", self.prefix, "--force"],
            "uv" => vec!["uv", "pip", "uninstall", "--python", self.prefix],
            _ => vec![python.as_str(), "-m", "pip", "uninstall", "--yes"],
        };
        words.extend(names);
        Some(shell_line(&words))
    }
}

/// A fix with its commands, where all of them are known.
fn with_commands(mut fix: Fix, commands: Vec<Option<String>>) -> Fix {
    if let Some(commands) = commands.into_iter().collect::<Option<Vec<_>>>() {
        fix.commands = commands;
    }
    fix.verify("gpudoctor")
}
