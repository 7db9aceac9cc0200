//! `gpudoctor matrix`: the questions, their options and help texts.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{Color, PlanArgs};
use crate::target::{self, Target};
use crate::version::Version;

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
    /// `text` for people, or `json` for programs
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub format: AnswerFormat,
    /// `always`, `never`, or `auto`: on a terminal, unless `NO_COLOR` is set
    #[arg(
        long,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        hide_possible_values = true
    )]
    pub color: Color,
}

/// A question to the matrix.
#[derive(Clone, Debug, Subcommand)]
pub enum MatrixQuestion {
    /// What a CUDA version needs, came with and builds for
    #[command(after_help = "\
Examples:
  gpudoctor matrix cuda 12.4
  gpudoctor matrix cuda 12.4.1    that release alone
  gpudoctor matrix cuda 13        all of 13.x

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Cuda {
        /// The CUDA version: 12.4, a release (12.4.1) or all of a major version (13)
        #[arg(value_parser = target::cuda)]
        version: Version,
        /// How it is answered.
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// What a driver runs and drives
    #[command(after_help = "\
Examples:
  gpudoctor matrix driver 470.82.01
  gpudoctor matrix driver 535                  any build of the branch
  gpudoctor matrix driver 551.61 --os windows  Windows counts in its own way

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Driver {
        /// The version of the driver, 470.82.01, or its branch: 470
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
    #[command(after_help = "\
Examples:
  gpudoctor matrix gpu 'RTX 5090'
  gpudoctor matrix gpu 10de:2b85    as lspci -nn shows it
  gpudoctor matrix gpu sm_120       or 12.0

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Gpu {
        /// A name, a PCI id (10de:2b85) or an architecture (`sm_120`, 12.0)
        #[arg(value_parser = target::gpu)]
        gpu: target::Gpu,
        /// How it is answered.
        #[command(flatten)]
        answer: AnswerArgs,
    },
    /// What a release of PyTorch brings and needs, and which builds of it there are
    #[command(after_help = "\
Examples:
  gpudoctor matrix torch 2.6          the newest 2.6, as PyPI has it
  gpudoctor matrix torch 2.7.1+cu128  that build

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Torch {
        /// The release, 2.7.1, or a build of it: 2.7.1+cu128
        #[arg(value_parser = target::torch)]
        version: target::Torch,
        /// How it is answered.
        #[command(flatten)]
        answer: AnswerArgs,
    },
    #[command(flatten)]
    #[allow(missing_docs, reason = "clap would take it for a help text")]
    Release(ReleaseQuestion),
    /// Whether driver, CUDA version or PyTorch, and GPU go together: yes or no, why, and the ways out
    #[command(after_help = "\
Two of driver, CUDA version and GPU are needed. PyTorch stands for the CUDA
version that its build brings; cuDNN is held against the GPU.

Examples:
  gpudoctor matrix can --driver 470.82.01 --cuda 12.4
  gpudoctor matrix can --driver 470.82.01 --cuda 12.4 --gpu A100
  gpudoctor matrix can --cuda 13.0 --gpu V100
  gpudoctor matrix can --cuda 12.9 --target driver=535,gpu=A100+L40S,glibc=2.31
  gpudoctor matrix can --torch 2.7+cu128 --driver 535.104 --gpu P100
  gpudoctor matrix can --vllm 0.10.2 --gpu P100
  gpudoctor matrix can --cudnn 9.11 --gpu V100

Exit status: 0 yes, 1 no, or the matrix cannot tell, 2 the call was wrong")]
    Can(Box<CanArgs>),
    /// Whether a host does what an image asks of it in `NVIDIA_REQUIRE_CUDA`
    #[command(after_help = "\
A blank is OR, a comma AND; cuda, driver, arch and brand are known. Quote it.
Several variables are given one after the other; CUDA_VERSION, by which older
images ask, and NVIDIA_DISABLE_REQUIRE are read too. Without --target it is
this machine's driver and GPUs.

Examples:
  gpudoctor matrix require 'cuda>=12.8'
  gpudoctor matrix require 'NVIDIA_REQUIRE_CUDA=cuda>=12.8' CUDA_VERSION=12.8.1
  gpudoctor matrix require 'cuda>=12.8' --target driver=550.54.14
  gpudoctor matrix require 'cuda>=12.8 brand=tesla,driver>=535,driver<536' \\
      --target driver=535.183.01,gpu=T4

Exit status: 0 it does, 1 it does not, or it cannot be told, 2 the call was
             wrong")]
    Require(Box<RequireArgs>),
    /// The newest builds that run on all of several machines, and the architectures to compile for
    #[command(after_help = "\
The machines are those of gpudoctor.toml, or are named.

Examples:
  gpudoctor matrix plan
  gpudoctor matrix plan --target-name prod
  gpudoctor matrix plan --target driver=535,gpu=P100+A100

Exit status: 0 there is a CUDA version for all, 1 there is none, 2 the call was
             wrong")]
    Plan(Box<PlanArgs>),
}

/// Questions about a release of a library or framework.
#[derive(Clone, Debug, Subcommand)]
pub enum ReleaseQuestion {
    /// What a release of TensorFlow is built with and needs
    #[command(after_help = "\
Example:
  gpudoctor matrix tensorflow 2.19

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Tensorflow(ReleaseArgs),
    /// What the CUDA plugins of a JAX release need
    #[command(after_help = "\
Example:
  gpudoctor matrix jax 0.6.2

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Jax(ReleaseArgs),
    /// What a release of onnxruntime-gpu is built with and needs
    #[command(after_help = "\
Example:
  gpudoctor matrix onnxruntime 1.23.2

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Onnxruntime(ReleaseArgs),
    /// Which PyTorch a release of vLLM pins, and what that needs
    #[command(after_help = "\
Example:
  gpudoctor matrix vllm 0.10.2

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Vllm(ReleaseArgs),
    /// What a release of cuDNN runs on, and who asks for it
    #[command(after_help = "\
Example:
  gpudoctor matrix cudnn 9.8

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Cudnn(ReleaseArgs),
    /// Which CUDA versions an NCCL is built for, and who asks for it
    #[command(after_help = "\
Example:
  gpudoctor matrix nccl 2.27.5

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Nccl(ReleaseArgs),
    /// Which CUDA versions a release of Ollama has back ends for, and the driver it needs
    #[command(after_help = "\
Example:
  gpudoctor matrix ollama 0.12.11

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Ollama(ReleaseArgs),
    /// What is in the images of a release of Triton Inference Server
    #[command(after_help = "\
Example:
  gpudoctor matrix tritonserver 25.03

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Tritonserver(ReleaseArgs),
    /// What a release of TensorRT runs on and goes with
    #[command(after_help = "\
Example:
  gpudoctor matrix tensorrt 10.13.2

Exit status: 0 it is known, 1 it is unknown, 2 the call was wrong")]
    Tensorrt(ReleaseArgs),
}

/// A release, and how it is answered.
#[derive(Args, Clone, Debug)]
pub struct ReleaseArgs {
    /// The release
    #[arg(value_parser = target::release)]
    pub version: Version,
    /// How it is answered.
    #[command(flatten)]
    pub answer: AnswerArgs,
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
    /// PyTorch: 2.7.1 as on PyPI, or a build of it, 2.7.1+cu128
    #[arg(long, value_name = "VERSION", value_parser = target::torch, conflicts_with = "cuda")]
    pub torch: Option<target::Torch>,
    /// vLLM: 0.10.2
    #[arg(long, value_name = "VERSION", value_parser = target::release, conflicts_with_all = ["cuda", "torch"])]
    pub vllm: Option<Version>,
    /// cuDNN: 9.10.2
    #[arg(long, value_name = "VERSION", value_parser = target::release)]
    pub cudnn: Option<Version>,
    /// GPUs: names, PCI ids or architectures, joined with `+`
    #[arg(long, value_name = "GPU", value_parser = GpuList::parse)]
    pub gpu: Vec<GpuList>,
    /// The system: ubuntu-22.04; with `windows` or `wsl` the driver is a Windows one
    #[arg(long, value_name = "OS", value_parser = target::os)]
    pub os: Option<target::Os>,
    /// All in one word, such as driver=535.104.05,gpu=A100+L40S,cuda=12.4; also torch=, vllm=, cudnn=, glibc=, os= and
    /// arch=
    #[arg(long, value_name = "TARGET")]
    pub target: Option<Target>,
    /// How it is answered.
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `gpudoctor matrix require`.
#[derive(Args, Clone, Debug)]
pub struct RequireArgs {
    /// The value of the variable, or NAME=VALUE as `docker inspect` shows it
    #[arg(required = true)]
    pub requirement: Vec<String>,
    /// The host: driver=535.104.05,gpu=A100+L40S; without it, this machine
    #[arg(long, value_name = "TARGET")]
    pub target: Option<Target>,
    /// Every term, not only those that decide
    #[arg(short, long)]
    pub verbose: bool,
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
