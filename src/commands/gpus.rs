//! `gpudoctor gpus`: the GPUs once, or again and again until it is interrupted or nobody reads any more.

#![expect(
    clippy::disallowed_methods,
    reason = "the caller's LD_LIBRARY_PATH says which libnvidia-ml a program would get"
)]

use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{launcher, now, print, terminal, uname};
use crate::cli::{GpusArgs, GpusFormat};
use crate::error::Error;
use crate::facts::{GpuLine, Gpus, Trouble};
use crate::ffi::interrupt;
use crate::matrix::Matrix;
use crate::probe::gpus::{GpusProbe, GpusRequest};
use crate::report::gpus::{Changes, Table, csv, json};

/// After so many lines the headings stand there once more: a screenful.
const LINES_A_HEADING: usize = 24;

pub(super) fn run(args: &GpusArgs) -> Result<u8, Error> {
    let mut probe = GpusProbe::new(GpusRequest {
        library_path: std::env::var("LD_LIBRARY_PATH").ok(),
        uname: uname(),
        always: args.probe,
        timeout: Duration::from_secs(args.timeout),
        launcher: launcher()?,
        stop: interrupt::came,
    });
    match args.watch {
        None => once(args, &mut probe),
        Some(interval) => watch(args, &mut probe, interval),
    }
}

fn once(args: &GpusArgs, probe: &mut GpusProbe) -> Result<u8, Error> {
    let mut gpus = probe.look(now());
    Matrix::bundled().name_gpus(&mut gpus);
    let mut changes = Changes::default();
    let mut page = Page::new(args.format, false);
    print(&page.add(&gpus)?)?;
    let shown = gpus.lines.iter().any(GpuLine::is_good);
    // A machine with a GPU of another vendor has a GPU, except for those who ask as they would ask nvidia-smi.
    let others = args.format != GpusFormat::Csv && gpus.trouble == Some(Trouble::NoGpu) && shown;
    if !others {
        say_all(changes.since(&gpus));
    }
    Ok(u8::from(!(shown && (others || gpus.trouble.is_none()))))
}

fn watch(args: &GpusArgs, probe: &mut GpusProbe, interval: Duration) -> Result<u8, Error> {
    let interrupted = interrupt::watch().map_err(Error::Output)?;
    let mut changes = Changes::default();
    let mut page = Page::new(args.format, true);
    let mut next = Instant::now();
    let mut first = true;
    let matrix = Matrix::bundled();
    loop {
        let mut gpus = probe.look(now());
        matrix.name_gpus(&mut gpus);
        if interrupt::came() {
            return Ok(0);
        }
        // Data first: a sentence about a GPU then stands behind the line that shows it.
        match write(&page.add(&gpus)?) {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
            other => other.map_err(Error::Output)?,
        }
        say_all(changes.since(&gpus));
        // There is nothing to watch where there is no GPU to begin with; one that hangs may come back.
        let may_come = matches!(gpus.trouble, Some(Trouble::Ended(_) | Trouble::Stuck));
        if first && gpus.lines.is_empty() && !may_come {
            return Ok(1);
        }
        first = false;
        next = later(next, interval);
        if !wait_until(next, &interrupted)? {
            return Ok(0);
        }
    }
}

/// The next tick: ticks that were missed while the driver took its time are left out.
fn later(last: Instant, interval: Duration) -> Instant {
    let next = last + interval;
    let now = Instant::now();
    if next < now { now + interval } else { next }
}

/// Waits; `false` where an interrupt came meanwhile, or nobody reads standard output any more.
fn wait_until(then: Instant, interrupted: &OwnedFd) -> Result<bool, Error> {
    loop {
        if interrupt::came() {
            return Ok(false);
        }
        let left = then.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        let stdout = io::stdout();
        let mut events = [
            PollFd::new(interrupted, PollFlags::IN),
            // Only what is always told: the end of the other side.
            PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()),
        ];
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut events, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::Output(e.into())),
        }
        let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        if events.iter().any(|event| event.revents().intersects(gone)) {
            return Ok(false);
        }
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn say_all(sentences: Vec<String>) {
    for sentence in sentences {
        terminal::say(&sentence);
    }
}

/// What is written, moment by moment.
struct Page {
    format: GpusFormat,
    watching: bool,
    table: Option<Table>,
    /// Lines since the last headings.
    lines: usize,
}

impl Page {
    fn new(format: GpusFormat, watching: bool) -> Self {
        Self {
            format,
            watching,
            table: None,
            lines: 0,
        }
    }

    fn add(&mut self, gpus: &Gpus) -> Result<String, Error> {
        match self.format {
            GpusFormat::Csv => Ok(csv(gpus)),
            GpusFormat::Json => json(gpus, self.watching).map_err(|e| Error::Output(e.into())),
            GpusFormat::Text if gpus.lines.is_empty() => Ok(String::new()),
            GpusFormat::Text => {
                let is_new = self.table.is_none();
                let table = self.table.get_or_insert_with(|| {
                    Table::new(gpus, terminal::table_width(), self.watching)
                });
                let mut text = String::new();
                if is_new || self.lines >= LINES_A_HEADING {
                    text.push_str(&table.heading());
                    self.lines = 0;
                }
                text.push_str(&table.rows(gpus));
                self.lines += gpus.lines.len();
                Ok(text)
            }
        }
    }
}
