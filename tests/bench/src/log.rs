//! What reading a log costs beside `grep -F` with the same literals: a hundred megabytes as programs write them, and what
//! is no log at all. Also what the explanation of one code costs.
//!
//! The logs are made from a seed, so that every machine reads the same bytes. Literals are those of the catalogue, read
//! out of its tables by the few keys that hold them.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::Wanted;
use crate::environment::{Place, at};
use crate::measure::{Costs, Run};

/// How often a program is run on a log, where the command line does not say.
const RUNS: usize = 5;
/// Bytes of the large log.
const LARGE: usize = 100_000_000;
/// Bytes of what is no log.
const JUNK: usize = 50_000_000;
/// The seed of all logs.
const SEED: u64 = 20_261_201;

/// Numbers that follow from a seed: xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 32) % end
    }
}

/// A line as one of several programs writes it; rarely one that says what is wrong.
fn line(random: &mut Random, number: usize) -> String {
    let (a, b, c) = (random.below(100_000), random.below(1000), random.below(60));
    match random.below(10_000) {
        0 => "RuntimeError: CUDA error: an illegal memory access was encountered".to_owned(),
        1 => format!("NVRM: Xid (PCI:0000:3b:00): 31, pid={a}, name=python, Ch 00000010"),
        2 => "NCCL WARN Cuda failure 'out of memory'".to_owned(),
        3..2000 => format!(
            "[rank{}]: 2026-12-01 10:{c:02}:07,{b:03} INFO train.py:{b} step {number} loss 0.{a:05} lr 3.0e-04 tokens/s {a}",
            b % 8
        ),
        2000..4000 => format!(
            "Dec 01 10:{c:02}:07 node{b} kernel: nvme nvme0: {b}/0/0 default/read/poll queues of device {a}"
        ),
        4000..5500 => format!(
            "  Downloading package_{a}-{b}.{c}.0-py3-none-any.whl ({b}.{c} MB), required by torch and its libraries"
        ),
        5500..7000 => format!(
            "2026-12-01T10:{c:02}:07.{a:09}Z stdout F {{\"level\":\"info\",\"message\":\"request {a} served in {b} ms\",\"error\":null}}"
        ),
        7000..8500 => format!(
            "INFO {c:02}:{c:02} [loggers.py:{b}] Engine 000: Avg prompt throughput: {a}.0 tokens/s, GPU KV cache usage: {c}.{b}%"
        ),
        _ => format!(
            "-- Building CXX object src/CMakeFiles/core.dir/module_{a}.cpp.o with /usr/bin/c++ -O{c} -Wall -I/opt/include/{b}"
        ),
    }
}

/// Writes a log and says how many bytes it has.
fn write(path: &Path, mut part: impl FnMut(usize) -> Vec<u8>, bytes: usize) -> Result<(), String> {
    let mut out = BufWriter::new(at(path, File::create(path))?);
    let (mut written, mut number) = (0, 0);
    while written < bytes {
        let part = part(number);
        at(path, out.write_all(&part))?;
        written += part.len();
        number += 1;
    }
    at(path, out.flush())
}

/// The catalogue's literals, as `grep` takes them: one a line.
fn literals(folder: &Path) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for entry in at(folder, fs::read_dir(folder))? {
        let path = at(folder, entry)?.path();
        let text = at(&path, fs::read_to_string(&path))?;
        let mut within = false;
        for line in text.lines() {
            let starts = ["literals = [", "names = [", "with = ["]
                .iter()
                .any(|key| line.starts_with(key));
            within = starts || within && line.starts_with("  ");
            let with = line
                .split_once("with = [")
                .and_then(|(_, rest)| rest.split_once("], regex"))
                .map(|(with, _)| with);
            let strings = if within { Some(line) } else { with };
            for literal in strings.into_iter().flat_map(|text| text.split('"').skip(1).step_by(2)) {
                let literal = literal.trim_matches('*');
                if !literal.is_empty() {
                    found.push(literal.to_owned());
                }
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Runs every program on every log, and `grep` where it compares, and prints a line each.
///
/// # Errors
/// Where a log cannot be written, or a program fails.
pub(crate) fn bench(wanted: &Wanted) -> Result<(), String> {
    let place = Place::new()?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let file = |name: &str| place.home().join(name);
    let literals = literals(&repository.join("compat-matrix/errors"))?;
    let patterns = file("literals");
    at(&patterns, fs::write(&patterns, literals.join("\n") + "\n"))?;
    let mut random = Random(SEED);
    let large = file("large.log");
    write(
        &large,
        |number| (line(&mut random, number) + "\n").into_bytes(),
        LARGE,
    )?;
    let junk = file("junk.log");
    write(&junk, |_| random.next().to_le_bytes().to_vec(), JUNK)?;
    let one_line = file("one-line.log");
    write(
        &one_line,
        |number| (line(&mut random, number) + " ").into_bytes(),
        JUNK,
    )?;
    let same = file("same.log");
    write(
        &same,
        |_| b"RuntimeError: CUDA error: out of memory (os error)\n".to_vec(),
        JUNK,
    )?;
    let runs = wanted.runs.unwrap_or(RUNS);
    println!(
        "{runs} runs each; {} literals\n\n{:<24} {:>9} {:>9} {:>9} {:>8}  program",
        literals.len(),
        "log",
        "median",
        "least",
        "most",
        "memory"
    );
    let grep = PathBuf::from("/usr/bin/grep");
    for (name, path) in [
        ("100 MB of lines", Some(&large)),
        ("50 MB of random bytes", Some(&junk)),
        ("one line of 50 MB", Some(&one_line)),
        ("50 MB of one error", Some(&same)),
        ("one code", None),
    ] {
        let mut programs: Vec<(&Path, Vec<PathBuf>)> = Vec::new();
        for program in &wanted.programs {
            let what = path.map_or_else(|| PathBuf::from("804"), Clone::clone);
            programs.push((program, vec!["explain".into(), what]));
        }
        if let Some(path) = path {
            let options = ["-F", "-i", "-a", "-c", "-f"].map(PathBuf::from);
            let arguments = options.into_iter().chain([patterns.clone(), path.clone()]);
            programs.push((&grep, arguments.collect()));
        }
        let all: Vec<Run> = programs
            .iter()
            .map(|(program, arguments)| Run::new(program, arguments, &[], place.home()))
            .collect::<Result<_, _>>()?;
        let costs = Costs::of(&all, runs)?;
        for ((program, _), costs) in programs.iter().zip(&costs) {
            let ([median, least, most], memory) = (costs.cpu_ms(), costs.memory_mb());
            println!(
                "{name:<24} {median:>6.1} ms {least:>6.1} ms {most:>6.1} ms {memory:>5.1} MB  {}",
                program.display()
            );
        }
    }
    Ok(())
}
