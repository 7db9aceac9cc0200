//! What a run of gpudoctor costs in processor time and memory, its children included, on the machine it is run on:
//! bare, with a full PyTorch environment, and with a driver's user space where real parts are there.
//!
//!     cargo run --release --manifest-path tests/bench/Cargo.toml -- [--runs N] [--bin PROGRAM]... [--parts FOLDER]
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
mod measure;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use measure::{Cost, Run, cost};

/// A situation, and what a run may cost there: milliseconds of processor time, and megabytes.
struct Situation {
    name: &'static str,
    options: &'static [&'static str],
    variables: Vec<(&'static str, PathBuf)>,
    budget: Option<(f64, f64)>,
}

/// What the command line asks for.
struct Wanted {
    runs: usize,
    programs: Vec<PathBuf>,
    parts: PathBuf,
}

fn main() -> ExitCode {
    match wanted(std::env::args().skip(1)).and_then(|wanted| bench(&wanted)) {
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
        runs: 51,
        programs: Vec::new(),
        parts: repository.join("target/parts"),
    };
    while let Some(option) = arguments.next() {
        let value = arguments
            .next()
            .ok_or_else(|| format!("`{option}` takes a value"))?;
        match option.as_str() {
            "--runs" => {
                wanted.runs = value.parse().map_err(|e| format!("`{value}`: {e}"))?;
            }
            "--bin" => wanted.programs.push(PathBuf::from(value)),
            "--parts" => wanted.parts = PathBuf::from(value),
            _ => return Err(format!("unknown option `{option}`")),
        }
    }
    if wanted.programs.is_empty() {
        wanted
            .programs
            .push(repository.join("target/release/gpudoctor"));
    }
    Ok(wanted)
}

fn bench(wanted: &Wanted) -> Result<(), String> {
    for program in &wanted.programs {
        if !program.is_file() {
            let program = program.display();
            return Err(format!(
                "{program}: no such program; `cargo build --release` makes it"
            ));
        }
    }
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
        wanted.runs,
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
                situation.options,
                &situation.variables,
                place.home(),
            )
        })
        .collect::<Result<_, _>>()?;
    let mut costs: Vec<Vec<Cost>> = runs.iter().map(|_| Vec::new()).collect();
    // The first run of each warms the caches and does not count.
    for turn in 0..=wanted.runs {
        for (run, costs) in runs.iter().zip(&mut costs) {
            let cost = cost(run)?;
            if turn > 0 {
                costs.push(cost);
            }
        }
    }
    let budget = situation
        .budget
        .map_or_else(|| "-".to_owned(), |(ms, mb)| format!("{ms} ms, {mb} MB"));
    for (program, costs) in wanted.programs.iter().zip(&mut costs) {
        costs.sort_by(|a, b| a.cpu_ms.total_cmp(&b.cpu_ms));
        let (Some(least), Some(most)) = (costs.first(), costs.last()) else {
            return Err("`--runs` must be 1 or more".to_owned());
        };
        let median = costs.get(costs.len() / 2).unwrap_or(least);
        let memory = costs.iter().map(|c| c.memory_mb).fold(0.0, f64::max);
        println!(
            "{:<24} {:>5.1} ms {:>5.1} ms {:>5.1} ms {memory:>5.1} MB  {budget:<16} {}",
            situation.name,
            median.cpu_ms,
            least.cpu_ms,
            most.cpu_ms,
            program.display()
        );
    }
    Ok(())
}
