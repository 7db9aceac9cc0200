//! What `gpudoctor preflight` costs on a repository of many artifacts, beside `cuobjdump --list-elf` on each of them, and in
//! repositories that double.
//!
//! The artifacts are copies, each with its own bytes on the disk, of files that the command line names, by turns. The files of
//! the README's table: `libbitsandbytes_cuda130.so` of bitsandbytes 0.50.2 (3.9 MB), and `fixtures/preflight/13.0/server-static`
//! unpacked (1 MB), so that 2,000 have 5 GB:
//!
//! ```sh
//! cargo build --release
//! cargo run --release --manifest-path tests/bench/Cargo.toml -- preflight --cuobjdump CUOBJDUMP FILE...
//! ```
//!
//! Budgets: 1/20 of cuobjdump's processor time, 100 MB, and for a repository twice as large 2.2 times the processor time.

use std::path::{Path, PathBuf};

use crate::Wanted;
use crate::environment::{Place, at};
use crate::measure::{Costs, Run};

/// How often each is run, where the command line does not say.
const RUNS: usize = 3;
/// How many artifacts the repositories have.
const COUNTS: [usize; 3] = [500, 1000, 2000];
/// Artifacts in one folder.
const TOGETHER: usize = 50;
/// The part of cuobjdump's processor time.
const TIME_PART: f64 = 20.0;
const MEMORY_MB: f64 = 100.0;
const DOUBLED: f64 = 2.2;
/// Two machines: one that the files run on, and one that they do not.
const RUNS_ON: &str = "prod:driver=580.95.05,gpu=A100+H100,glibc=2.35,cuda=13.0";
const FAILS_ON: &str = "edge:driver=470.256.02,gpu=P100,glibc=2.31";

pub(crate) fn bench(wanted: &Wanted) -> Result<(), String> {
    if wanted.files.is_empty() {
        return Err("`preflight` takes the files to make a repository of".to_owned());
    }
    let place = Place::new()?;
    let runs = wanted.runs.unwrap_or(RUNS);
    let repositories = COUNTS
        .iter()
        .map(|count| place.repository(&wanted.files, *count, TOGETHER))
        .collect::<Result<Vec<_>, _>>()?;
    println!("{runs} runs each, by turns; processor time as median (least to most)");
    let largest = repositories.last().ok_or("no repository")?;
    let theirs = match &wanted.cuobjdump {
        Some(cuobjdump) => Some(all_by_cuobjdump(cuobjdump, largest, &place)?),
        None => None,
    };
    for program in &wanted.programs {
        for (name, targets) in [
            ("all run", &[RUNS_ON][..]),
            ("half of the answers are faults", &[RUNS_ON, FAILS_ON]),
        ] {
            println!("\n{}: {name}", program.display());
            let programs = repositories
                .iter()
                .map(|folder| {
                    let mut words = vec![Path::new("preflight"), folder.as_path()];
                    for target in targets {
                        words.extend([Path::new("--target"), Path::new(target)]);
                    }
                    Run::new(program, words, &[], place.home())
                })
                .collect::<Result<Vec<_>, _>>()?;
            let costs = Costs::of(&programs, runs)?;
            for (count, costs) in COUNTS.iter().zip(&costs) {
                let [median, least, most] = costs.cpu_ms();
                println!(
                    "  {median:>8.1} ms ({least:.1} to {most:.1}) {:>8.1} MB of memory  {count} artifacts",
                    costs.memory_mb()
                );
            }
            for (counts, costs) in COUNTS.windows(2).zip(costs.windows(2)) {
                if let ([few, many], [cheap, dear]) = (counts, costs) {
                    let ratio = dear.cpu_ms()[0] / cheap.cpu_ms()[0];
                    let what = format!("processor time from {few} to {many}");
                    verdict(&what, ratio, DOUBLED, ratio <= DOUBLED);
                }
            }
            if let (Some(theirs), Some(own)) = (theirs, costs.last()) {
                let ratio = theirs / own.cpu_ms()[0];
                verdict(
                    "part of cuobjdump's time, 1/",
                    ratio,
                    TIME_PART,
                    ratio >= TIME_PART,
                );
                let memory = own.memory_mb();
                verdict("memory in MB", memory, MEMORY_MB, memory <= MEMORY_MB);
            }
        }
    }
    Ok(())
}

/// The processor time of cuobjdump over all files of a folder, one after the other, once.
fn all_by_cuobjdump(cuobjdump: &Path, folder: &Path, place: &Place) -> Result<f64, String> {
    let cuobjdump = at(cuobjdump, cuobjdump.canonicalize())?;
    let script = "for file in \"$1\"/*/*; do \"$0\" --list-elf \"$file\" || true; done";
    let words: [&std::ffi::OsStr; 4] = [
        "-c".as_ref(),
        script.as_ref(),
        cuobjdump.as_os_str(),
        folder.as_os_str(),
    ];
    let run = Run::new(Path::new("/bin/sh"), words, &[], place.home())?;
    let costs = Costs::once(&run)?;
    let [time, ..] = costs.cpu_ms();
    println!(
        "cuobjdump --list-elf on each of {}: {time:.0} ms",
        COUNTS[2]
    );
    Ok(time)
}

fn verdict(what: &str, value: f64, budget: f64, is_within: bool) {
    let says = if is_within { "within" } else { "OVER" };
    println!("    {what:<32} {value:.1}, budget {budget}: {says}");
}

impl Place {
    /// Makes a folder of `count` files, copies of these by turns, `together` in one folder of it.
    fn repository(
        &self,
        files: &[PathBuf],
        count: usize,
        together: usize,
    ) -> Result<PathBuf, String> {
        let folder = self.home().join(format!("{count}-artifacts"));
        for (number, file) in files.iter().cycle().take(count).enumerate() {
            let inner = folder.join(format!("part_{}", number / together));
            at(&inner, std::fs::create_dir_all(&inner))?;
            let copy = inner.join(format!("artifact{number}.so"));
            let bytes = at(file, std::fs::read(file))?;
            // Written, and not cloned by the file system: each has its own bytes.
            at(&copy, std::fs::write(&copy, bytes))?;
        }
        Ok(folder)
    }
}
