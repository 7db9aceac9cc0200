//! The Multi-Process Service: a client that is sent to a daemon that is not there.

use crate::facts::{Layer, Reading};
use crate::finding::{Finding, Fix, Severity, shell_line};
use crate::rules::stack::{cuda_code, verified};
use crate::rules::{Ctx, Outcome};

/// `CUDA_ERROR_MPS_CONNECTION_FAILED` of cuda.h.
const CONNECTION_FAILED: i64 = 805;

/// cuInit finds the folder of MPS, and no daemon answers there.
pub(super) fn mps_leftover(ctx: &Ctx<'_>) -> Outcome {
    if ctx.cu_init() != Some(CONNECTION_FAILED) {
        return Outcome::Clean;
    }
    let mps = &ctx.facts.driver.mps;
    let told = ctx.env("CUDA_MPS_PIPE_DIRECTORY");
    let folder = told
        .or(mps.pipe_directory.value().map(String::as_str))
        .unwrap_or("/tmp/nvidia-mps");
    let runs = mps.process.is_present();
    // A variable that sends the program there by mistake is the application's; what lies about is the driver's.
    let layer = if told.is_some() {
        Layer::Application
    } else {
        Layer::Driver
    };
    let title = if runs {
        format!(
            "the MPS daemon that runs does not answer in {folder}, so no CUDA program can start"
        )
    } else if told.is_some() {
        format!("CUDA_MPS_PIPE_DIRECTORY={folder} sends CUDA to an MPS daemon that does not answer")
    } else {
        format!(
            "{folder} is left over from an MPS daemon that is gone, and keeps CUDA from starting"
        )
    };
    let finding = Finding::new("mps-leftover", layer, Severity::Error, title)
        .complaining(Layer::Runtime)
        .component(if told.is_some() {
            "CUDA_MPS_PIPE_DIRECTORY"
        } else {
            "nvidia-cuda-mps-control"
        })
        .detail("Where that folder is there, or the variable names one, CUDA takes it that an MPS daemon shares the GPU out, asks it, and does not go on without it. A daemon of another user, or one outside this container, does not answer either.")
        .evidence(
            "cuInit",
            cuda_code(CONNECTION_FAILED),
            ctx.cuda_answers().map_or("", |a| a.path.as_str()),
        )
        .reading("folder of MPS", &mps.pipe_directory)
        .reading("process nvidia-cuda-mps-control", &mps.process)
        .source("NVIDIA Multi-Process Service: environment variables, troubleshooting");
    let start = Fix::at(
        Layer::Driver,
        if ctx.in_container() {
            "or share the host's daemon with this container: its folder, and the host's IPC namespace"
        } else {
            "or start the daemon as the user who runs the program, if MPS is wanted"
        },
    );
    let start = if ctx.in_container() || runs {
        start
    } else {
        start.line("nvidia-cuda-mps-control -d")
    };
    let away = match (told, &mps.pipe_directory) {
        (Some(_), _) => Fix::at(
            Layer::Application,
            "unset the variable, if MPS is not wanted",
        )
        .line("unset CUDA_MPS_PIPE_DIRECTORY"),
        (None, Reading::Present { .. }) if !runs => Fix::at(
            Layer::Driver,
            "move the folder away, if MPS is not wanted: nothing uses it any more",
        )
        .line(shell_line(&["mv", folder, &format!("{folder}.old")])),
        _ => Fix::at(Layer::Driver, "end the daemon, if MPS is not wanted")
            .line("echo quit | nvidia-cuda-mps-control"),
    };
    Outcome::found([finding
        .fix(verified(ctx, away))
        .fix(start.second("right only where MPS is wanted"))])
}
