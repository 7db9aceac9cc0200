//! `gpudoctor preflight` and `gpudoctor matrix plan`: options and help texts.

use std::path::PathBuf;

use clap::Args;

use super::{AnswerArgs, FailOn, ReportArgs};
use crate::target::Target;

/// Which machines.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Which machines")]
pub struct FleetArgs {
    /// The file with the targets, instead of the gpudoctor.toml of this folder or of one above it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A machine, instead of those in gpudoctor.toml: driver=535.104.05,gpu=A100+L40S,glibc=2.31, with a name where wanted:
    /// edge:driver=470,gpu=P100; may be repeated
    #[arg(long, value_name = "TARGET", value_parser = NamedTarget::parse)]
    pub target: Vec<NamedTarget>,
    /// The machine that a snapshot was taken of; may be repeated
    #[arg(long, value_name = "FILE")]
    pub target_from: Vec<PathBuf>,
    /// Only the targets of this name in gpudoctor.toml; may be repeated. With --init, the name of the one that is written
    #[arg(long, value_name = "NAME")]
    pub target_name: Vec<String>,
}

/// What one `--target` says.
#[derive(Clone, Debug)]
pub struct NamedTarget {
    /// The name before the colon.
    pub name: Option<String>,
    /// The machine.
    pub target: Target,
}

impl NamedTarget {
    fn parse(text: &str) -> Result<Self, String> {
        let named = text
            .split_once(':')
            .filter(|(name, _)| !name.contains(['=', ',']));
        let (name, target) = match named {
            Some((name, target)) => {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                if name.is_empty() || !name.chars().all(is_plain) {
                    return Err(format!("`{}` is no name of a target", name.escape_debug()));
                }
                (Some(name.to_owned()), target)
            }
            None => (None, text),
        };
        Ok(Self {
            name,
            target: target.parse()?,
        })
    }
}

/// `gpudoctor preflight`.
#[derive(Args, Clone, Debug, Default)]
pub struct PreflightArgs {
    /// What is to run there: programs, libraries, static libraries, wheels, folders, Python environments, container images,
    /// requirement and lock files. Without any, the artifacts of gpudoctor.toml
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Which machines.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Write a gpudoctor.toml with this machine as the target, or the one of --from or --target
    #[arg(long, help_heading = "To begin with")]
    pub init: bool,
    /// With --init: take the target from a snapshot; `-` reads it from standard input
    #[arg(
        long,
        value_name = "FILE",
        requires = "init",
        help_heading = "To begin with"
    )]
    pub from: Option<PathBuf>,
    /// With --init: write over a file that is there
    #[arg(long, requires = "init", help_heading = "To begin with")]
    pub force: bool,
    /// Tables that add rows to the bundled matrix, in place of those in ~/.config/gpudoctor/matrix
    #[arg(long, value_name = "DIR", help_heading = "How to judge")]
    pub matrix: Option<PathBuf>,
    /// Leave a finding, by id or key, out of the verdict; may be repeated
    #[arg(long, value_name = "ID", help_heading = "How to judge")]
    pub ignore: Vec<String>,
    /// What makes the exit status 1: an `error`, also a `warning`, also what is `unknown`, or `never` anything. Without it,
    /// an error, or that something could not be told
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        hide_possible_values = true,
        help_heading = "How to judge"
    )]
    pub fail_on: Option<FailOn>,
    /// How to report.
    #[command(flatten)]
    pub report: ReportArgs,
    /// Keep host names, users and homes in the output
    #[arg(long, help_heading = "How to report")]
    pub no_redact: bool,
}

/// `gpudoctor matrix plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanArgs {
    /// Which machines.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// How it is answered.
    #[command(flatten)]
    pub answer: AnswerArgs,
}
