//! The `gpudoctor` program: parse, dispatch, and the one place for exit codes.

use std::process::ExitCode;

use clap::Parser as _;
use gpudoctor::{cli, commands, ffi, probe};

fn main() -> ExitCode {
    // A child that asks a vendor library is this program once more.
    if let Some(code) = probe::vendor::child_main(std::env::args_os()) {
        return ExitCode::from(u8::try_from(code).unwrap_or(2));
    }
    ffi::memory::give_back_large_blocks();
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => return ExitCode::from(commands::refuse(&e)),
    };
    commands::log::start();
    match commands::run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            commands::complain(&e);
            ExitCode::from(2)
        }
    }
}
