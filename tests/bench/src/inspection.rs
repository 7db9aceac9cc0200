//! What `gpudoctor inspect` costs: a large library beside what `cuobjdump --list-elf` costs on the same file, and folders
//! of 50, 100 and 200 libraries with device code.
//!
//! The parts, some 1 GB of downloads and 1.1 GB unpacked; cuobjdump takes 6 GB of memory for libtorch_cuda:
//!
//! ```sh
//! python3 -m pip download --no-deps --dest parts nvidia-cuda-cuobjdump==13.5.37 nvidia-cublas==13.10.0.20
//! python3 -m pip download --no-deps --dest parts --python-version 3.11 --platform manylinux_2_28_x86_64 torch==2.15.0
//! for wheel in parts/*.whl; do unzip -qo "$wheel" '*/cuobjdump' '*/libcublasLt.so.13' '*/libtorch_cuda.so' -d parts; done
//! cargo build --release
//! cargo run --release --manifest-path tests/bench/Cargo.toml -- inspect --cuobjdump parts/nvidia/cu13/bin/cuobjdump \
//!     parts/torch/lib/libtorch_cuda.so parts/nvidia/cu13/lib/libcublasLt.so.13
//! ```
//!
//! Budgets: 1/50 of cuobjdump's processor time, 1/100 of its memory, twice the bytes that the headers have (`headers`
//! says what counts), and for a folder twice as large 2.2 times the processor time.

use std::fs;
use std::path::{Path, PathBuf};

use crate::Wanted;
use crate::environment::{Place, at};
use crate::headers::headers;
use crate::measure::{Costs, Run};

/// How often a program is run on a file, where the command line does not say: cuobjdump takes seconds.
const RUNS: usize = 7;
/// How many libraries the folders have.
const FOLDERS: [usize; 3] = [50, 100, 200];
/// Libraries in one folder of a folder.
const TOGETHER: usize = 20;
/// The part of cuobjdump's processor time, and of its memory.
const TIME_PART: f64 = 50.0;
const MEMORY_PART: f64 = 100.0;
/// How many times the bytes of the headers may be read.
const READ_TIMES: f64 = 2.0;
/// How many times the processor time a folder twice as large may take.
const DOUBLED: f64 = 2.2;

pub(crate) fn bench(wanted: &Wanted) -> Result<(), String> {
    let place = Place::new()?;
    let runs = wanted.runs.unwrap_or(RUNS);
    println!("{runs} runs each, by turns; processor time as median (least to most)");
    for file in &wanted.files {
        let file = at(file, file.canonicalize())?;
        library(wanted, &file, &place, runs)?;
    }
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/fatbin/shared.so");
    let folders = FOLDERS
        .iter()
        .map(|count| place.libraries(&library, *count, TOGETHER))
        .collect::<Result<Vec<_>, _>>()?;
    for program in &wanted.programs {
        scaling(program, &folders, &place, runs)?;
    }
    Ok(())
}

fn library(wanted: &Wanted, file: &Path, place: &Place, runs: usize) -> Result<(), String> {
    let size = at(file, fs::metadata(file))?.len();
    let needed = headers(file)?;
    println!(
        "\n{}\n  {:.0} MB: {} containers of device code with {} entries, {} of them cubins; its headers have {:.3} MB",
        file.display(),
        size as f64 / 1e6,
        needed.containers,
        needed.entries,
        needed.cubins,
        needed.bytes as f64 / 1e6,
    );
    let inspect = [Path::new("inspect"), file];
    let mut programs: Vec<Run> = wanted
        .programs
        .iter()
        .map(|program| Run::new(program, inspect, &[], place.home()))
        .collect::<Result<_, _>>()?;
    if let Some(cuobjdump) = &wanted.cuobjdump {
        let list = [Path::new("--list-elf"), file];
        programs.push(Run::new(cuobjdump, list, &[], place.home())?);
    }
    let costs = Costs::of(&programs, runs)?;
    let names = wanted.programs.iter().chain(&wanted.cuobjdump);
    for (name, costs) in names.zip(&costs) {
        line(&name.display().to_string(), costs);
    }
    for (program, own) in wanted.programs.iter().zip(&costs) {
        println!("  {}", program.display());
        if wanted.cuobjdump.is_some()
            && let Some(theirs) = costs.last()
        {
            let ratio = median(theirs) / median(own);
            verdict(
                "cuobjdump's processor time",
                "1/",
                ratio,
                TIME_PART,
                ratio >= TIME_PART,
            );
            let ratio = theirs.memory_mb() / own.memory_mb();
            verdict(
                "cuobjdump's memory",
                "1/",
                ratio,
                MEMORY_PART,
                ratio >= MEMORY_PART,
            );
        }
        let ratio = own.read_bytes() as f64 / needed.bytes as f64;
        verdict(
            "what the headers have, read",
            "",
            ratio,
            READ_TIMES,
            ratio <= READ_TIMES,
        );
    }
    Ok(())
}

fn scaling(program: &Path, folders: &[PathBuf], place: &Place, runs: usize) -> Result<(), String> {
    let programs = folders
        .iter()
        .map(|folder| Run::new(program, [Path::new("inspect"), folder], &[], place.home()))
        .collect::<Result<Vec<_>, _>>()?;
    let costs = Costs::of(&programs, runs)?;
    println!("\nfolders of libraries: {}", program.display());
    for (count, costs) in FOLDERS.iter().zip(&costs) {
        line(&format!("{count} libraries"), costs);
    }
    for (counts, costs) in FOLDERS.windows(2).zip(costs.windows(2)) {
        if let ([few, many], [cheap, dear]) = (counts, costs) {
            let ratio = median(dear) / median(cheap);
            let what = format!("processor time from {few} to {many}");
            verdict(&what, "", ratio, DOUBLED, ratio <= DOUBLED);
        }
    }
    Ok(())
}

fn median(costs: &Costs) -> f64 {
    let [median, ..] = costs.cpu_ms();
    median
}

fn line(name: &str, costs: &Costs) {
    let [median, least, most] = costs.cpu_ms();
    println!(
        "  {median:>8.1} ms ({least:.1} to {most:.1}) {:>8.1} MB of memory {:>9.3} MB read  {name}",
        costs.memory_mb(),
        costs.read_bytes() as f64 / 1e6,
    );
}

fn verdict(what: &str, of: &str, ratio: f64, budget: f64, is_within: bool) {
    let says = if is_within { "within" } else { "OVER" };
    println!("    {what:<32} {of}{ratio:.1}, budget {of}{budget}: {says}");
}
