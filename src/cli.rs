//! The command line: types and help texts only.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::finding::Severity;
use crate::target::{self, Target};
use crate::version::Version;

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
    /// Ask the compatibility matrix: what a CUDA version, driver or GPU is, and whether they go together
    #[command(
        after_help = "Examples:\n  gpudoctor matrix cuda 12.4                                  what it needs and builds for\n  gpudoctor matrix driver 470.82.01                           what it runs and drives\n  gpudoctor matrix gpu \"RTX 5090\"                             or 10de:2b85, or sm_120\n  gpudoctor matrix can --driver 470.82.01 --cuda 12.4         does it run, and what helps\n  gpudoctor matrix can --driver 535 --cuda 12.9 --gpu A100+L40S\n  gpudoctor matrix can --target driver=551.61,os=windows,cuda=12.4 --format json\n\nExit status: 0 yes, or known; 1 no, or unknown; 2 the call was wrong."
    )]
    Matrix(MatrixArgs),
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

/// `gpudoctor matrix`.
#[derive(Args, Clone, Debug)]
pub struct MatrixArgs {
    /// The question.
    #[command(subcommand)]
    pub question: MatrixQuestion,
}

/// How a question to the matrix is answered.
#[derive(Args, Clone, Debug)]
pub struct AnswerArgs {
    /// Tables that add rows to the bundled matrix, in place of those in ~/.config/gpudoctor/matrix
    #[arg(long, value_name = "DIR")]
    pub matrix: Option<PathBuf>,
    /// How to write the answer
    #[arg(long, value_enum, default_value_t)]
    pub format: AnswerFormat,
    /// Whether to colour the answer
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub color: Color,
}

/// A question to the matrix.
#[derive(Clone, Debug, Subcommand)]
pub enum MatrixQuestion {
    /// What a CUDA version needs, came with and builds for
    #[command(
        after_help = "Examples:\n  gpudoctor matrix cuda 12.4\n  gpudoctor matrix cuda 12.4.1       that release alone\n  gpudoctor matrix cuda 13           all of 13.x"
    )]
    Cuda {
        /// 12.4
        #[arg(value_parser = target::cuda)]
        version: Version,
        /// How it is answered.
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// What a driver runs and drives
    #[command(
        after_help = "Examples:\n  gpudoctor matrix driver 470.82.01\n  gpudoctor matrix driver 535                     any build of the branch\n  gpudoctor matrix driver 551.61 --os windows     Windows numbers are another line"
    )]
    Driver {
        /// 470.82.01, or a branch: 470
        #[arg(value_parser = target::driver)]
        version: target::Driver,
        /// `windows` or `wsl` where it is a Windows driver
        #[arg(long, value_parser = target::os)]
        os: Option<target::Os>,
        /// How it is answered.
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// What a GPU is, and what drives it and builds for it
    #[command(
        after_help = "Examples:\n  gpudoctor matrix gpu \"RTX 5090\"\n  gpudoctor matrix gpu 10de:2b85     as lspci -nn shows it\n  gpudoctor matrix gpu sm_120        or 12.0"
    )]
    Gpu {
        /// A name, a PCI id (10de:2b85) or an architecture (`sm_120`, 12.0)
        #[arg(value_parser = target::gpu)]
        gpu: target::Gpu,
        /// How it is answered.
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// Whether driver, CUDA version and GPU go together: yes or no, why, and the ways out
    #[command(
        after_help = "Two of driver, CUDA version and GPU are needed.\n\nExamples:\n  gpudoctor matrix can --driver 470.82.01 --cuda 12.4\n  gpudoctor matrix can --driver 470.82.01 --cuda 12.4 --gpu A100\n  gpudoctor matrix can --cuda 13.0 --gpu V100\n  gpudoctor matrix can --target driver=535.104.05,gpu=A100+L40S,glibc=2.31 --cuda 12.9\n\nExit status: 0 yes; 1 no, or the matrix cannot tell; 2 the call was wrong."
    )]
    Can(Box<CanArgs>),
}

/// `gpudoctor matrix can`.
#[derive(Args, Clone, Debug)]
pub struct CanArgs {
    /// The driver: 535.104.05, a branch, or `none`
    #[arg(long, value_name = "VERSION", value_parser = target::driver)]
    pub driver: Option<target::Driver>,
    /// The CUDA version of the program, image or wheel: 12.4
    #[arg(long, value_name = "VERSION", value_parser = target::cuda)]
    pub cuda: Option<Version>,
    /// GPUs: names, PCI ids or architectures, joined with `+`
    #[arg(long, value_name = "GPU", value_parser = GpuList::parse)]
    pub gpu: Vec<GpuList>,
    /// The system: ubuntu-22.04; with `windows` or `wsl` the driver is a Windows one
    #[arg(long, value_name = "OS", value_parser = target::os)]
    pub os: Option<target::Os>,
    /// All in one word: driver=535.104.05,gpu=A100+L40S,cuda=12.4,glibc=2.31,os=ubuntu-22.04
    #[arg(long, value_name = "TARGET")]
    pub target: Option<Target>,
    /// How it is answered.
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// What one `--gpu` names.
#[derive(Clone, Debug)]
pub struct GpuList(pub Vec<target::Gpu>);

impl GpuList {
    fn parse(text: &str) -> Result<Self, String> {
        target::gpus(text).map(Self)
    }
}

/// How an answer of the matrix is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AnswerFormat {
    /// For people
    #[default]
    Text,
    /// By the contract `gpudoctor.matrix/1`
    Json,
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
