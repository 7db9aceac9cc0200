//! What a run of gpudoctor costs in processor time and memory, its children included, on the machine it is run on:
//! bare, with a full PyTorch environment, and with a driver's user space where real parts are there.
//!
//!     cargo run --release --manifest-path tests/bench/Cargo.toml -- [--runs N] [--bin PROGRAM]... [--parts FOLDER]
//!
//! and what `gpudoctor inspect` costs beside `cuobjdump --list-elf`, and in folders that double (see `inspection`):
//!
//!     cargo run --release --manifest-path tests/bench/Cargo.toml -- inspect [--runs N] [--bin PROGRAM]...
//!         [--cuobjdump PROGRAM] [FILE]...
//!
//! what it costs on a container image, beside its decompressor (see `image`):
//!
//!     cargo run --release --manifest-path tests/bench/Cargo.toml -- image [--runs N] [--bin PROGRAM]... FILE...
//!
//! what `gpudoctor preflight` costs on a repository of 2,000 artifacts (see `repository`):
//!
//!     cargo run --release --manifest-path tests/bench/Cargo.toml -- preflight [--cuobjdump PROGRAM] FILE...
//!
//! and what `gpudoctor explain` costs on large logs beside `grep -F` (see `log`):
//!
//!     cargo run --release --manifest-path tests/bench/Cargo.toml -- log [--runs N] [--bin PROGRAM]...
//!
//! Prints one line a program and situation: median, least and most of user and system time, the largest resident set, and
//! the budget. Several programs are run by turns, so that they meet the same weather. It judges nothing: times depend on
//! the machine and on what else runs there.
//!
//! Real parts (`target/parts`, fetched by `cargo test --test real`) put a real libcudart into the environment, so that a
//! child is started and asked, and a real libcuda beside it. Without them the environment has no runtime to ask.

#![allow(
    clippy::disallowed_methods,
    reason = "what the product leaves to few of its files is no matter here: this is another program"
)]

mod environment;
mod headers;
mod image;
mod inspection;
mod log;
mod measure;
mod repository;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use measure::{Costs, Run};

/// A situation, and what a run may cost there: milliseconds of processor time, and megabytes.
struct Situation {
    name: &'static str,
    options: &'static [&'static str],
    variables: Vec<(&'static str, PathBuf)>,
    budget: Option<(f64, f64)>,
}

/// What the command line asks for.
struct Wanted {
    inspect: bool,
    image: bool,
    preflight: bool,
    log: bool,
    runs: Option<usize>,
    programs: Vec<PathBuf>,
    parts: PathBuf,
    cuobjdump: Option<PathBuf>,
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(image::UNPACK) {
        let file = words.next().unwrap_or_default();
        return match image::unpack(Path::new(&file)) {
            Ok(_) => ExitCode::SUCCESS,
            Err(_) => ExitCode::from(2),
        };
    }
    let done = wanted(std::env::args().skip(1)).and_then(|wanted| {
        if wanted.image {
            image::bench(&wanted)
        } else if wanted.inspect {
            inspection::bench(&wanted)
        } else if wanted.preflight {
            repository::bench(&wanted)
        } else if wanted.log {
            log::bench(&wanted)
        } else {
            bench(&wanted)
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

fn wanted(mut arguments: impl Iterator<Item = String>) -> Result<Wanted, String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut wanted = Wanted {
        inspect: false,
        image: false,
        preflight: false,
        log: false,
        runs: None,
        programs: Vec::new(),
        parts: repository.join("target/parts"),
        cuobjdump: None,
        files: Vec::new(),
    };
    while let Some(option) = arguments.next() {
        if !option.starts_with('-') {
            let is_chosen =
                wanted.inspect || wanted.image || wanted.preflight || wanted.log;
            if option == "inspect" && !is_chosen {
                wanted.inspect = true;
            } else if option == "image" && !is_chosen {
                wanted.image = true;
            } else if option == "preflight" && !is_chosen {
                wanted.preflight = true;
            } else if option == "log" && !is_chosen {
                wanted.log = true;
            } else if is_chosen {
                wanted.files.push(PathBuf::from(option));
            } else {
                return Err(format!("unknown word `{option}`"));
            }
            continue;
        }
        let value = arguments
            .next()
            .ok_or_else(|| format!("`{option}` takes a value"))?;
        match option.as_str() {
            "--runs" => {
                let runs = value.parse().map_err(|e| format!("`{value}`: {e}"))?;
                wanted.runs = Some(runs);
            }
            "--bin" => wanted.programs.push(PathBuf::from(value)),
            "--parts" => wanted.parts = PathBuf::from(value),
            "--cuobjdump" if wanted.inspect || wanted.preflight => {
                wanted.cuobjdump = Some(PathBuf::from(value))
            }
            _ => return Err(format!("unknown option `{option}`")),
        }
    }
    if wanted.programs.is_empty() {
        wanted
            .programs
            .push(repository.join("target/release/gpudoctor"));
    }
    for program in &wanted.programs {
        if !program.is_file() {
            let program = program.display();
            return Err(format!(
                "{program}: no such program; `cargo build --release` makes it"
            ));
        }
    }
    Ok(wanted)
}

/// How often a program is run in a situation, where the command line does not say.
const RUNS: usize = 51;

fn bench(wanted: &Wanted) -> Result<(), String> {
    let place = environment::Place::new()?;
    let parts = environment::Parts::find(&wanted.parts);
    let environment = place.environment(&parts)?;
    let mut situations = vec![
        Situation {
            name: "bare host",
            options: &[],
            variables: Vec::new(),
            budget: Some((5.0, 15.0)),
        },
        Situation {
            name: "PyTorch environment",
            options: &[],
            variables: vec![("VIRTUAL_ENV", environment.clone())],
            budget: Some((30.0, 30.0)),
        },
    ];
    match place.driver(&parts)? {
        Some(driver) => {
            for (name, options) in [
                ("the same, and a driver", &[][..]),
                ("the same, with --probe", &["--probe"]),
            ] {
                situations.push(Situation {
                    name,
                    options,
                    variables: vec![
                        ("VIRTUAL_ENV", environment.clone()),
                        ("LD_LIBRARY_PATH", driver.clone()),
                    ],
                    budget: None,
                });
            }
        }
        None => eprintln!(
            "bench: no real parts in {}: no library is asked",
            wanted.parts.display()
        ),
    }
    println!(
        "{} runs each; files: {}\n\n{:<24} {:>8} {:>8} {:>8} {:>8}  {:<16} program",
        wanted.runs.unwrap_or(RUNS),
        place.files(),
        "situation",
        "median",
        "least",
        "most",
        "memory",
        "budget"
    );
    for situation in &situations {
        row(wanted, &place, situation)?;
    }
    Ok(())
}

/// Measures the programs in one situation, by turns, and prints their lines.
fn row(wanted: &Wanted, place: &environment::Place, situation: &Situation) -> Result<(), String> {
    let runs: Vec<Run> = wanted
        .programs
        .iter()
        .map(|program| {
            Run::new(
                program,
                ["check"].iter().chain(situation.options),
                &situation.variables,
                place.home(),
            )
        })
        .collect::<Result<_, _>>()?;
    let costs = Costs::of(&runs, wanted.runs.unwrap_or(RUNS))?;
    let budget = situation
        .budget
        .map_or_else(|| "-".to_owned(), |(ms, mb)| format!("{ms} ms, {mb} MB"));
    for (program, costs) in wanted.programs.iter().zip(&costs) {
        let ([median, least, most], memory) = (costs.cpu_ms(), costs.memory_mb());
        println!(
            "{:<24} {median:>5.1} ms {least:>5.1} ms {most:>5.1} ms {memory:>5.1} MB  {budget:<16} {}",
            situation.name,
            program.display()
        );
    }
    Ok(())
}
