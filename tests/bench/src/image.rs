//! What `gpudoctor inspect` costs on container images, beside unpacking their layers and throwing away what comes out.
//!
//! ```sh
//! docker save IMAGE -o image.tar
//! cargo build --release
//! cargo run --release --manifest-path tests/bench/Cargo.toml -- image image.tar
//! ```
//!
//! FILE is what `docker save` or `docker export` writes, packed or not. Budget: twice the processor time of its
//! decompressor, and 100 MB of memory. Where nothing is packed there is nothing to compare with.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use crate::Wanted;
use crate::environment::{Place, at};
use crate::measure::{Costs, Run};

/// How often a program is run on an image, where the command line does not say.
const RUNS: usize = 3;
/// How many times the decompressor's processor time.
const TIMES: f64 = 2.0;
/// Megabytes.
const MEMORY: f64 = 100.0;

/// The word that makes this program the decompressor alone.
pub(crate) const UNPACK: &str = "unpack-alone";

pub(crate) fn bench(wanted: &Wanted) -> Result<(), String> {
    let place = Place::new()?;
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let runs = wanted.runs.unwrap_or(RUNS);
    for file in &wanted.files {
        let file = at(file, file.canonicalize())?;
        let mut programs = vec![Run::new(
            &own,
            [Path::new(UNPACK), &file],
            &[],
            place.home(),
        )?];
        for program in &wanted.programs {
            programs.push(Run::new(
                program,
                [Path::new("inspect"), &file],
                &[],
                place.home(),
            )?);
        }
        let costs = Costs::of(&programs, runs)?;
        let unpacked = unpack(&file)?;
        let size = at(&file, file.metadata())?.len();
        println!(
            "{}: {:.0} MB, {:.0} MB in packed layers unpacked",
            file.display(),
            size as f64 / 1e6,
            unpacked as f64 / 1e6
        );
        let [alone, ..] = costs[0].cpu_ms();
        println!(
            "  {alone:>8.0} ms {:>8.1} MB  its decompressor alone",
            costs[0].memory_mb()
        );
        for (program, costs) in wanted.programs.iter().zip(&costs[1..]) {
            let ([median, least, most], memory) = (costs.cpu_ms(), costs.memory_mb());
            println!(
                "  {median:>8.0} ms ({least:.0} to {most:.0}) {memory:>8.1} MB  {:.2} times, budget {TIMES} and {MEMORY} MB  {}",
                median / alone,
                program.display()
            );
        }
    }
    Ok(())
}

/// Unpacks what is packed in an image's archive; how many bytes came out.
///
/// # Errors
/// Where it cannot be read.
pub(crate) fn unpack(path: &Path) -> Result<u64, String> {
    let mut file = at(path, File::open(path))?;
    let length = at(path, file.metadata())?.len();
    if let Some(count) = at(path, through(&mut file, 0, length))? {
        return Ok(count);
    }
    let (mut offset, mut sum) = (0, 0);
    while offset + 512 <= length {
        let mut header = [0; 512];
        at(path, file.seek(SeekFrom::Start(offset)))?;
        at(path, file.read_exact(&mut header))?;
        let digits: String = header[124..136]
            .iter()
            .filter(|byte| byte.is_ascii_digit())
            .map(|byte| char::from(*byte))
            .collect();
        let size = u64::from_str_radix(&digits, 8).unwrap_or(0);
        offset += 512;
        sum += at(path, through(&mut file, offset, size))?.unwrap_or(0);
        offset += size.next_multiple_of(512);
    }
    Ok(sum)
}

/// Unpacks a piece of a file, where it is packed.
fn through(file: &mut File, offset: u64, size: u64) -> io::Result<Option<u64>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut start = [0; 4];
    let got = file.read(&mut start)?;
    file.seek(SeekFrom::Start(offset))?;
    let piece = BufReader::with_capacity(32 << 10, file.take(size));
    let mut sink = io::sink();
    if got < 4 {
        Ok(None)
    } else if start.starts_with(&[0x1f, 0x8b]) {
        io::copy(&mut flate2::bufread::MultiGzDecoder::new(piece), &mut sink).map(Some)
    } else if start == [0x28, 0xb5, 0x2f, 0xfd] {
        let mut frame = ruzstd::decoding::StreamingDecoder::new(piece).map_err(io::Error::other)?;
        io::copy(&mut frame, &mut sink).map(Some)
    } else {
        Ok(None)
    }
}
