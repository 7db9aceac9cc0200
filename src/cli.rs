//! The command line: types and help texts only.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::finding::Severity;

/// Walks the layers between a program and the GPU, and names the one at fault
#[derive(Debug, Parser)]
#[command(
    name = "gpudoctor",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    after_help = "Without a command it checks this machine.\n\nExamples:\n  gpudoctor                                the layer at fault, and what mends it\n  gpudoctor --python-env .venv             as that environment would see it\n  gpudoctor --expect-gpu                   fail where there is no GPU\n  gpudoctor snapshot -o host.json          what was seen, to be judged elsewhere\n  gpudoctor --from host.json               judge it\n\nExit status: 0 nothing wrong, 1 a fault, 2 the call was wrong or an input unreadable."
)]
pub struct Cli {
    /// The command; without one, `check`.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Options of `check`.
    #[command(flatten)]
    pub check: CheckArgs,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Walk the layers of this machine and report which is at fault
    #[command(
        after_help = "Examples:\n  gpudoctor check --format json\n  gpudoctor check --root /mnt/image        a machine's disk, read and never run\n  gpudoctor check --static                 load no vendor library, open no device"
    )]
    Check(CheckArgs),
    /// Write down what was seen, as a file that any machine can judge
    #[command(
        after_help = "Example:\n  gpudoctor snapshot -o host.json && gpudoctor check --from host.json"
    )]
    Snapshot(SnapshotArgs),
    /// Explain a finding: what it means, how it is detected, causes and fixes
    #[command(
        after_help = "Examples:\n  gpudoctor explain driver-too-old\n  gpudoctor explain --list"
    )]
    Explain(ExplainArgs),
}

/// Where to look, and how.
#[derive(Args, Clone, Debug, Default)]
pub struct LookArgs {
    /// Read DIR as the root of a machine; nothing in it is run, and links in it never lead out of it
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Examine this Python or conda environment instead of the active one
    #[arg(long, value_name = "PREFIX")]
    pub python_env: Option<PathBuf>,
    /// Load no vendor library and open no device: judge by files alone
    #[arg(long = "static", conflicts_with = "probe")]
    pub load_nothing: bool,
    /// Call the driver's init functions even where no driver seems loaded
    #[arg(long)]
    pub probe: bool,
    /// How long a call into a vendor library may take
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
    /// Keep host names, users, serials, addresses and UUIDs in the output
    #[arg(long)]
    pub no_redact: bool,
}

/// `gpudoctor check`.
#[derive(Args, Clone, Debug, Default)]
pub struct CheckArgs {
    /// Where to look, and how.
    #[command(flatten)]
    pub look: LookArgs,
    /// Judge a snapshot or a JSON report instead of this machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "python_env", "load_nothing", "probe"])]
    pub from: Option<PathBuf>,
    /// Tables that add rows to the bundled compatibility matrix, in place of those in ~/.config/gpudoctor/matrix
    #[arg(long, value_name = "DIR")]
    pub matrix: Option<PathBuf>,
    /// A GPU must be here: its absence is an error
    #[arg(long)]
    pub expect_gpu: bool,
    /// From which severity on the exit status is 1
    #[arg(long, value_name = "SEVERITY", value_enum, default_value_t)]
    pub fail_on: FailOn,
    /// How to write the report
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write only what is wrong
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Write all evidence
    #[arg(short, long)]
    pub verbose: bool,
    /// Whether to colour the report
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub color: Color,
}

/// `gpudoctor snapshot`.
#[derive(Args, Clone, Debug)]
pub struct SnapshotArgs {
    /// Where to look, and how.
    #[command(flatten)]
    pub look: LookArgs,
    /// Where to write it; standard output without this
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// `gpudoctor explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// A finding's id
    #[arg(value_name = "ID", required_unless_present = "list")]
    pub what: Option<String>,
    /// List all ids
    #[arg(long, conflicts_with = "what")]
    pub list: bool,
}

/// From when on a run has failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// An error
    #[default]
    Error,
    /// A warning or an error
    Warning,
    /// Also where it could not be told
    Unknown,
    /// Never
    Never,
}

impl FailOn {
    /// Whether a finding of this severity fails the run.
    pub fn fails(self, severity: Severity) -> bool {
        match self {
            Self::Never => false,
            Self::Error => severity == Severity::Error,
            Self::Warning | Self::Unknown => severity >= Severity::Warning,
        }
    }
}

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// By the contract `gpudoctor.report/1`
    Json,
}

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}
