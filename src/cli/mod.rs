//! The command line: types and help texts only.

mod matrix;
mod preflight;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::facts::Layer;
use crate::finding::Severity;

pub use matrix::{
    AnswerArgs, AnswerFormat, CanArgs, GpuList, MatrixArgs, MatrixQuestion, ReleaseArgs,
    ReleaseQuestion,
};
pub use preflight::{FleetArgs, NamedTarget, PlanArgs, PreflightArgs};
pub use report::{Format, Output, ReportArgs};

/// Walks the layers between a program and the GPU, and names the one at fault
#[derive(Debug, Parser)]
#[command(
    name = "gpudoctor",
    version,
    max_term_width = 80,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    override_usage = "gpudoctor [OPTIONS]\n       gpudoctor <COMMAND> [OPTIONS]",
    after_help = "\
Without a command it checks this machine. It changes nothing.

Examples:
  gpudoctor                        which layer is at fault, and what mends it
  gpudoctor --python-env .venv     the same for programs of that environment
  gpudoctor --expect-gpu           fail where there is no GPU
  gpudoctor --format markdown      a report for a ticket, the facts in it
  gpudoctor snapshot -o host.json  write down what was seen, without names
  gpudoctor --from host.json       judge it here or on any other machine
  gpudoctor explain training.log   from an error to the layer at fault
  gpudoctor gpus --watch           memory, load and power, once a second
  gpudoctor matrix can --driver 535 --cuda 12.9
                                   do they go together, and what helps if not
  gpudoctor demo                   the report of a sick host, without a GPU

Exit status: 0 nothing is wrong, 1 something is (see --fail-on),
             2 the call was wrong or an input could not be read"
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
    #[command(after_help = "\
Examples:
  gpudoctor check --format json          for programs
  gpudoctor check --root /mnt/image      a machine's disk: read, and never run
  gpudoctor check --static               load no vendor library, open no device
  gpudoctor check --from host.json       a snapshot or a report of any machine
  gpudoctor check --only driver,runtime  the verdict on these layers alone
  gpudoctor check --fail-on warning --ignore pcie-link-narrow

Exit status: 0 nothing is wrong, 1 something is (see --fail-on),
             2 the call was wrong or an input could not be read")]
    Check(CheckArgs),
    /// Write down what was seen, as a file that any machine can judge
    #[command(after_help = "\
The file is JSON without host, user and home names, addresses, serial numbers
and UUIDs.

Examples:
  gpudoctor snapshot -o host.json
  gpudoctor snapshot | ssh desk gpudoctor --from -")]
    Snapshot(SnapshotArgs),
    /// Show the report of a bundled sick host, so that anybody sees one without a GPU
    #[command(after_help = "\
Examples:
  gpudoctor demo --list
  gpudoctor demo uvm-missing
  gpudoctor demo --format markdown

Exit status: 0, or 2 where there is no such host")]
    Demo(DemoArgs),
    /// Print the JSON Schema of the report
    #[command(after_help = "Example:\n  gpudoctor schema > gpudoctor.report.schema.json")]
    Schema,
    /// Explain an error line, a code, a log, or a finding: the layer at fault, and what mends it
    #[command(after_help = "\
Examples:
  gpudoctor explain 804                  a code of CUDA, NVML, cuDNN ...
  gpudoctor explain xid 79
  gpudoctor explain CUDA_ERROR_NO_DEVICE
  gpudoctor explain 'CUDA driver version is insufficient for ...'
  gpudoctor explain training.log         what matters in it, the first first
  journalctl -k | gpudoctor explain -
  gpudoctor explain --here 802           which of the causes it is here
  gpudoctor explain driver-too-old       a finding of the check
  gpudoctor explain layers               what the words mean
  gpudoctor explain --list

Exit status: 0 it is explained, 1 nothing is known about it, 2 the call was
             wrong or the file could not be read")]
    Explain(ExplainArgs),
    /// Tell what files hold: CUDA runtime, device code, needs; and whether they run on a target
    #[command(after_help = "\
Examples:
  gpudoctor inspect ./server
  gpudoctor inspect torch-2.7.1-cp312-cp312-manylinux_2_28_x86_64.whl
  gpudoctor inspect ./server --target driver=535.104.05,gpu=A100
  gpudoctor inspect .venv --format json
  docker save app:1 -o app.tar && gpudoctor inspect app.tar

A file is never run or loaded, and an image is not unpacked.

Exit status: 0 nothing is wrong, 1 there is a fault, 2 no such file, or one
             that device code cannot be in")]
    Inspect(InspectArgs),
    /// Say whether what was built here runs on the machines that it is for
    #[command(after_help = "\
gpudoctor.toml names the machines and the artifacts; --init writes one. It
needs no GPU and runs nothing.

Examples:
  gpudoctor preflight --init
  gpudoctor preflight
  gpudoctor preflight build/server --target driver=535,gpu=A100+T4
  gpudoctor preflight dist/*.whl requirements.txt --target-from edge.json
  gpudoctor preflight --target-name prod --format json

Exit status: 0 it runs, 1 it does not, or that cannot be told (see
             --fail-on), 2 the call or gpudoctor.toml is wrong")]
    Preflight(Box<PreflightArgs>),
    /// Show the GPUs, one line each: memory, utilisation, temperature, power, MIG instances, processes
    #[command(after_help = "\
Examples:
  gpudoctor gpus
  gpudoctor gpus --watch        a line a GPU and second, until interrupted
  gpudoctor gpus --watch=0.2 --format csv
  gpudoctor gpus --format json | jq '.gpus[] | select(.state != \"ok\")'

The columns of CSV are those of nvidia-smi --format=csv,noheader,nounits
  --query-gpu=index,name,driver_version,memory.used,memory.total,
  utilization.gpu,temperature.gpu,power.draw
and then compute capability, PCI address, PCI id, MIG instances, compute
processes, state and time. It shows NVIDIA's GPUs only.

A GPU that sleeps is not woken unless --probe is given. What a board cannot
tell is N/A.

Exit status: 0 GPUs were shown, 1 there is none or it could not be asked,
             2 the call was wrong")]
    Gpus(GpusArgs),
    /// Ask the compatibility matrix: what a CUDA version, driver, GPU, library or framework is, and whether they go together
    #[command(after_help = "\
Examples:
  gpudoctor matrix cuda 12.4          what it needs, and what it builds for
  gpudoctor matrix driver 470.82.01   what it runs, and what it drives
  gpudoctor matrix gpu 'RTX 5090'     or 10de:2b85, or sm_120
  gpudoctor matrix torch 2.6          its CUDA, its builds, the GPUs they run on
  gpudoctor matrix cudnn 9.8          likewise nccl, tensorrt, tensorflow, jax,
                                      onnxruntime and vllm
  gpudoctor matrix can --driver 470.82.01 --cuda 12.4
                                      does it run, and what helps if not
  gpudoctor matrix can --driver 535 --cuda 12.9 --gpu A100+L40S
  gpudoctor matrix can --target driver=551.61,os=windows,cuda=12.4
  gpudoctor matrix can --torch 2.7+cu128 --driver 535.104 --gpu P100
  gpudoctor matrix plan --target driver=535,gpu=P100+A100
                                      the newest builds that run there

Exit status: 0 yes, or known, 1 no, or unknown, 2 the call was wrong")]
    Matrix(MatrixArgs),
}

/// Where to look, and how.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Where to look, and how")]
pub struct LookArgs {
    /// Look at the disk of a machine that is mounted at DIR instead, or at a container image (an archive, or a folder in
    /// the OCI's layout): it is read, nothing in it is run, and no link in it leads out
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Judge what programs of this Python or conda environment get, instead of the active one
    #[arg(long, value_name = "PREFIX")]
    pub python_env: Option<PathBuf>,
    /// Judge what this program or script gets: what its file holds and needs, and by a script's first line its environment
    #[arg(long, value_name = "FILE")]
    pub app: Option<PathBuf>,
    /// Judge what this running process has loaded, with its environment variables
    #[arg(long, value_name = "PID", conflicts_with_all = ["root", "app", "python_env"])]
    pub pid: Option<u32>,
    /// Load no vendor library and open no device: judge by files alone
    #[arg(long = "static", conflicts_with = "probe")]
    pub load_nothing: bool,
    /// Ask the driver's libraries to start even where no driver seems loaded
    #[arg(long)]
    pub probe: bool,
    /// How long a call into a vendor library may take before it counts as hanging
    #[arg(long, value_name = "SECONDS", default_value = "30", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=3600))]
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
    /// Judge a snapshot or a JSON report instead of this machine; `-` reads it from standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "python_env", "app", "pid", "load_nothing", "probe"])]
    pub from: Option<PathBuf>,
    /// Tables that add rows to the bundled matrix, in place of those in ~/.config/gpudoctor/matrix
    #[arg(long, value_name = "DIR", help_heading = "How to judge")]
    pub matrix: Option<PathBuf>,
    /// Link what this log says to the finding that causes it; `-` reads it from standard input
    #[arg(long, value_name = "FILE", help_heading = "How to judge")]
    pub log: Option<PathBuf>,
    /// A GPU must be here: its absence is an error
    #[arg(long, help_heading = "How to judge")]
    pub expect_gpu: bool,
    /// Judge these layers only, parted by commas: hardware, system, driver, container, runtime, libraries, framework, application, toolchain
    #[arg(
        long,
        value_name = "LAYERS",
        value_delimiter = ',',
        help_heading = "How to judge"
    )]
    pub only: Vec<Layer>,
    /// Leave a finding, by id or key, and what follows from it out of the verdict; may be repeated
    #[arg(long, value_name = "ID", help_heading = "How to judge")]
    pub ignore: Vec<String>,
    /// What makes the exit status 1: an `error`, also a `warning`, also what is `unknown`, or `never` anything
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value_t,
        hide_possible_values = true,
        help_heading = "How to judge"
    )]
    pub fail_on: FailOn,
    /// How to report.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// `gpudoctor snapshot`.
#[derive(Args, Clone, Debug)]
pub struct SnapshotArgs {
    /// Where to look, and how.
    #[command(flatten)]
    pub look: LookArgs,
    /// Write it to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", help_heading = "How to report")]
    pub output: Option<PathBuf>,
}

/// `gpudoctor demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// Which host; without one, the first
    pub name: Option<String>,
    /// List the hosts
    #[arg(long, conflicts_with = "name")]
    pub list: bool,
    /// How to report.
    #[command(flatten)]
    pub report: ReportArgs,
}

/// `gpudoctor explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// A code, an error line, a log file (or `-`), the id of a finding, or a word such as `layers`
    #[arg(value_name = "WHAT", allow_negative_numbers = true)]
    pub what: Vec<String>,
    /// List all findings that this version knows
    #[arg(long, conflicts_with = "what")]
    pub list: bool,
    /// Check this machine, and say which of the causes it is
    #[arg(long, conflicts_with = "list")]
    pub here: bool,
    /// `text` for people, `markdown` for a ticket, or `json` for programs
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub format: ExplainFormat,
    /// Tell all that a log says in full
    #[arg(short, long)]
    pub verbose: bool,
    /// `always`, `never`, or `auto`: on a terminal, unless `NO_COLOR` is set
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    pub color: Color,
    /// Where to look, and how, with --here.
    #[command(flatten)]
    pub look: LookArgs,
}

/// How `explain` writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExplainFormat {
    /// For people
    #[default]
    Text,
    /// For a ticket
    Markdown,
    /// By the contract `gpudoctor.explanation/1`
    Json,
}

/// `gpudoctor inspect`.
#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// Programs, libraries, object files, static libraries, kernel modules, wheels, folders, Python environments, container
    /// images (of `docker save`, `docker export`, or in the OCI's layout)
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Say whether they run there: driver=535.104.05,gpu=A100+L40S,glibc=2.31
    #[arg(long, value_name = "TARGET")]
    pub target: Option<String>,
    /// Read DIR, or a container image, as the root of a machine: the paths are that machine's, and so is what they need
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Read every byte: device code outside the sections for it, the toolkit of every cubin
    #[arg(long)]
    pub deep: bool,
    /// List all binaries of a folder, not only those that have to do with the GPU
    #[arg(long)]
    pub all: bool,
    /// What makes the exit status 1: an `error`, also a `warning`, also what is `unknown`, or `never` anything
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    pub fail_on: FailOn,
    /// `text` for people, or `json` for programs
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub format: InspectFormat,
    /// Write only what is wrong
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Write all that is known of each file
    #[arg(short, long)]
    pub verbose: bool,
    /// `always`, `never`, or `auto`: on a terminal, unless `NO_COLOR` is set
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    pub color: Color,
    /// Keep host names, users and homes in the output
    #[arg(long)]
    pub no_redact: bool,
}

/// How `inspect` writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum InspectFormat {
    /// For people
    #[default]
    Text,
    /// By the contract `gpudoctor.inspection/1`
    Json,
}

/// `gpudoctor gpus`.
#[derive(Args, Clone, Debug)]
pub struct GpusArgs {
    /// `text` for people, `csv` as nvidia-smi writes it, or `json` for programs: with --watch a document a line
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub format: GpusFormat,
    /// Go on showing them, a line a GPU and tick, until interrupted; one second apart where not said otherwise
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "1", value_parser = seconds)]
    pub watch: Option<Duration>,
    /// Ask even where no driver seems loaded, and wake GPUs that sleep
    #[arg(long)]
    pub probe: bool,
    /// How long the driver may take to answer each time
    #[arg(long, value_name = "SECONDS", default_value = "30", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub timeout: u64,
}

/// Seconds between two ticks, with a fraction where wanted.
fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|seconds| (0.01..=86400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a number of seconds between 0.01 and 86400 is wanted".to_owned())
}

/// How GPUs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GpusFormat {
    /// A table for people
    #[default]
    Text,
    /// As nvidia-smi writes it, with more columns behind
    Csv,
    /// By the contract `gpudoctor.gpus/1`; one document a line with --watch
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
