//! `gpudoctor matrix`: questions to the compatibility matrix, on any machine. Nothing of the machine is looked at, but by
//! `require` where no target is given: its driver and its GPUs, by /sys and /proc.

use super::{overlay, preflight, print, terminal};
use crate::ask::{self, Answer, Product};
use crate::cli::{
    AnswerArgs, AnswerFormat, CanArgs, MatrixArgs, MatrixQuestion, PlanArgs, ReleaseArgs,
    ReleaseQuestion,
};
use crate::error::Error;
use crate::inspect;
use crate::matrix::Matrix;
use crate::read::nvidia_require::given;
use crate::report::matrix as report;
use crate::sysroot::Sysroot;
use crate::target::{Driver, Target};

pub(super) fn run(args: &MatrixArgs) -> Result<u8, Error> {
    if let MatrixQuestion::Plan(args) = &args.question {
        return plan(args);
    }
    let how = how(&args.question);
    let matrix = overlay::matrix(how.matrix.as_deref(), true)?;
    let mut answer = answer(&args.question, &matrix)?;
    let brief = matches!(&args.question, MatrixQuestion::Require(args) if !args.verbose);
    let text = match how.format {
        AnswerFormat::Json => {
            report::json(&answer, &matrix).map_err(|e| Error::Output(e.into()))?
        }
        AnswerFormat::Text => {
            if brief {
                answer.shorten();
            }
            let (width, color) = (terminal::width(), terminal::color(how.color));
            report::text(&answer, &matrix, width, color)
        }
    };
    print(&text)?;
    Ok(answer.exit_code())
}

/// The newest builds for a fleet.
fn plan(args: &PlanArgs) -> Result<u8, Error> {
    let matrix = overlay::matrix(args.answer.matrix.as_deref(), true)?;
    let (config, _) = preflight::fleet_file(&args.fleet, &matrix)?;
    let targets = preflight::targets(&args.fleet, &config, &matrix)?;
    let plan = crate::preflight::plan::plan(&targets, &matrix);
    let text = match args.answer.format {
        AnswerFormat::Json => {
            crate::report::plan::json(&plan, &matrix).map_err(|e| Error::Output(e.into()))?
        }
        AnswerFormat::Text => {
            crate::report::plan::text(&plan, terminal::width(), terminal::color(args.answer.color))
        }
    };
    print(&text)?;
    let cuda = plan.builds.first().and_then(|build| build.newest.as_ref());
    Ok(u8::from(cuda.is_none()))
}

/// How it is to be answered.
fn how(question: &MatrixQuestion) -> &AnswerArgs {
    match question {
        MatrixQuestion::Cuda { answer, .. }
        | MatrixQuestion::Driver { answer, .. }
        | MatrixQuestion::Gpu { answer, .. }
        | MatrixQuestion::Torch { answer, .. } => answer,
        MatrixQuestion::Require(args) => &args.answer,
        MatrixQuestion::Release(question) => &release(question).1.answer,
        MatrixQuestion::Can(can) => &can.answer,
        MatrixQuestion::Plan(plan) => &plan.answer,
    }
}

fn release(question: &ReleaseQuestion) -> (Product, &ReleaseArgs) {
    match question {
        ReleaseQuestion::Tensorflow(args) => (Product::Tensorflow, args),
        ReleaseQuestion::Jax(args) => (Product::Jax, args),
        ReleaseQuestion::Onnxruntime(args) => (Product::Onnxruntime, args),
        ReleaseQuestion::Vllm(args) => (Product::Vllm, args),
        ReleaseQuestion::Cudnn(args) => (Product::Cudnn, args),
        ReleaseQuestion::Nccl(args) => (Product::Nccl, args),
        ReleaseQuestion::Tensorrt(args) => (Product::Tensorrt, args),
        ReleaseQuestion::Ollama(args) => (Product::Ollama, args),
        ReleaseQuestion::Tritonserver(args) => (Product::Tritonserver, args),
    }
}

fn answer(question: &MatrixQuestion, matrix: &Matrix) -> Result<Answer, Error> {
    Ok(match question {
        MatrixQuestion::Cuda { version, .. } => ask::cuda(matrix, version),
        MatrixQuestion::Driver { version, os, .. } => ask::driver(matrix, version, os.as_ref()),
        MatrixQuestion::Gpu { gpu, .. } => ask::gpu(matrix, gpu),
        MatrixQuestion::Torch { version, .. } => ask::torch(matrix, version),
        MatrixQuestion::Release(question) => {
            let (product, args) = release(question);
            ask::release(matrix, product, &args.version)
        }
        MatrixQuestion::Can(can) => ask::can(matrix, &target(can)?).map_err(Error::Usage)?,
        MatrixQuestion::Require(args) => {
            let variables = given(&args.requirement).map_err(Error::Usage)?;
            let (target, here) = match &args.target {
                Some(target) => (target.clone(), false),
                None => (this_host(matrix), true),
            };
            ask::requirement(matrix, &variables, &target, here).map_err(Error::Usage)?
        }
        MatrixQuestion::Plan(_) => {
            return Err(Error::Usage("a plan is no single answer".to_owned()));
        }
    })
}

/// This machine, as far as a requirement is about it.
fn this_host(matrix: &Matrix) -> Target {
    let machine = inspect::machine_of_host(&Sysroot::live(), matrix).unwrap_or_default();
    Target {
        driver: machine.driver.map(Driver::Version),
        gpus: machine.gpus.into_iter().map(|gpu| gpu.asked).collect(),
        ..Target::default()
    }
}

/// The target with what the single options say; each thing once.
fn target(args: &CanArgs) -> Result<Target, Error> {
    let mut target = args.target.clone().unwrap_or_default();
    let gpus: Vec<_> = args.gpu.iter().flat_map(|gpus| gpus.0.clone()).collect();
    let twice = |key: &str| {
        Err(Error::Usage(format!(
            "`{key}` is given twice: in --target and as --{key}"
        )))
    };
    if let Some(driver) = &args.driver
        && target.driver.replace(driver.clone()).is_some()
    {
        return twice("driver");
    }
    if let Some(cuda) = &args.cuda
        && target.cuda.replace(cuda.clone()).is_some()
    {
        return twice("cuda");
    }
    if let Some(torch) = &args.torch
        && target.torch.replace(torch.clone()).is_some()
    {
        return twice("torch");
    }
    if let Some(vllm) = &args.vllm
        && target.vllm.replace(vllm.clone()).is_some()
    {
        return twice("vllm");
    }
    if let Some(cudnn) = &args.cudnn
        && target.cudnn.replace(cudnn.clone()).is_some()
    {
        return twice("cudnn");
    }
    if let Some(os) = &args.os
        && target.os.replace(os.clone()).is_some()
    {
        return twice("os");
    }
    if !gpus.is_empty() && !std::mem::replace(&mut target.gpus, gpus).is_empty() {
        return twice("gpu");
    }
    Ok(target)
}
