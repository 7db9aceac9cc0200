//! Writes the GPUs of one moment: a table for people, CSV for scripts that read nvidia-smi's until now, JSON for all others;
//! and says in sentences what changed since the moment before.
//!
//! It decides nothing and asks nobody; the caller writes what comes out of here.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::escape;
use crate::facts::{
    ChildEnd, GpuLine, GpuSample, GpuState, Gpus, MigAnswer, ModeAnswer, NVML_GPU_IS_LOST,
    NVML_NOT_SUPPORTED, Sensor, Trouble,
};
use crate::rules::nvml_code;

/// The schema of the JSON document.
pub const SCHEMA: &str = "gpudoctor.gpus/1";

/// `NVML_ERROR_FUNCTION_NOT_FOUND`: the driver is too old for the question.
const FUNCTION_NOT_FOUND: i64 = 13;
/// Bytes of the unit that nvidia-smi counts memory in.
const MIB: u64 = 1 << 20;
/// What stands where there is nothing to say.
const NOTHING: &str = "N/A";
/// The narrowest column for names: what tells an A100 from an H100.
const NARROWEST_NAME: usize = 8;

/// The numbers and letters of a capability: `9.0`.
fn capability(sample: &GpuSample) -> Option<String> {
    let (major, minor) = sample.device.capability?;
    Some(format!("{major}.{minor}"))
}

impl GpuLine {
    fn sample(&self) -> Option<&GpuSample> {
        match &self.state {
            GpuState::Asked(sample) => Some(sample),
            GpuState::Foreign(gpu) => Some(&gpu.sample),
            GpuState::Asleep { .. } => None,
        }
    }

    fn index(&self) -> Option<u32> {
        match &self.state {
            GpuState::Asked(sample) => Some(sample.device.index),
            GpuState::Asleep { index, .. } => Some(*index),
            GpuState::Foreign(_) => None,
        }
    }

    /// The instruction set of one of AMD's: `gfx1100`.
    fn target(&self) -> Option<&str> {
        match &self.state {
            GpuState::Foreign(gpu) => gpu.target.as_deref(),
            GpuState::Asked(_) | GpuState::Asleep { .. } => None,
        }
    }

    /// What NVML, the driver or libdrm calls it.
    fn name(&self) -> Option<&str> {
        match &self.state {
            GpuState::Asked(sample) => sample.device.name.as_deref(),
            GpuState::Asleep { name, .. } => name.as_deref(),
            GpuState::Foreign(gpu) => gpu.name.as_deref(),
        }
    }

    /// Its address on the bus, by NVML or sysfs.
    fn address(&self) -> Option<&str> {
        let by_bus = self.pci.as_ref().map(|(address, _)| address.as_str());
        self.sample()
            .and_then(|sample| sample.device.address.as_deref())
            .or(by_bus)
    }

    /// The code by which NVML says that it does not answer; `None` where it answers, sleeps or is none of NVML's.
    fn failed(&self) -> Option<i64> {
        self.sample().map(GpuSample::code).filter(|code| *code != 0)
    }

    /// Whether something is known of it.
    pub fn is_good(&self) -> bool {
        self.failed().is_none()
    }

    /// Whether it is one of NVIDIA's.
    pub fn is_nvidia(&self) -> bool {
        self.vendor == "nvidia"
    }

    /// One word for its state.
    fn state_id(&self) -> &'static str {
        match (&self.state, self.failed()) {
            (_, Some(NVML_GPU_IS_LOST)) => "lost",
            (_, Some(_)) => "silent",
            (GpuState::Asked(_), None) => "ok",
            (GpuState::Asleep { .. }, None) => "asleep",
            (GpuState::Foreign(gpu), None) if gpu.asleep => "asleep",
            (GpuState::Foreign(gpu), None) if gpu.reads() => "ok",
            (GpuState::Foreign(_), None) => "not-asked",
        }
    }
}

/// The columns of nvidia-smi's `index,name,driver_version,memory.used,memory.total,utilization.gpu,temperature.gpu,power.draw`
/// as `csv,noheader,nounits`, then: capability, PCI address, PCI id, MIG instances, compute processes, state, time.
///
/// Only NVIDIA's GPUs, as there. Measured on nvidia-smi 535: memory is cut down to whole MiB; watts have two digits of a
/// 32-bit quotient; what a board has not is `[N/A]`, and another refusal stands there by its name.
pub fn csv(gpus: &Gpus) -> String {
    let mut text = String::new();
    for line in gpus.lines.iter().filter(|line| line.is_nvidia()) {
        let nothing = || "[N/A]".to_owned();
        let shown = |text: Option<&str>| {
            text.map_or_else(nothing, |text| escape::terminal(text).into_owned())
        };
        let sample = line.sample();
        let sensor = |of: fn(&GpuSample) -> Sensor, show: fn(u64) -> String| {
            sample.map_or_else(nothing, |sample| match of(sample) {
                Sensor::Reads(number) => show(number),
                Sensor::Refuses(code) => in_brackets(code),
            })
        };
        let name = match sample {
            Some(sample) if sample.device.code != 0 => in_brackets(sample.device.code),
            _ => shown(line.name()),
        };
        let number = |number: Option<u32>| number.map_or_else(nothing, |n| n.to_string());
        let device = sample.map(|sample| &sample.device);
        let columns = [
            number(line.index()),
            name,
            shown(gpus.driver.as_deref()),
            sensor(|s| s.memory_used_bytes, |n| (n / MIB).to_string()),
            sensor(|s| s.memory_total_bytes, |n| (n / MIB).to_string()),
            sensor(|s| s.utilization_percent, |n| n.to_string()),
            sensor(|s| s.temperature_celsius, |n| n.to_string()),
            sensor(|s| s.power_milliwatts, watts),
            sample.and_then(capability).unwrap_or_else(nothing),
            shown(line.address()),
            shown(line.pci.as_ref().map(|(_, id)| id.as_str())),
            number(device.and_then(|d| d.mig?.instances)),
            number(device.and_then(|d| d.processes)),
            line.state_id().to_owned(),
            gpus.taken_at.clone(),
        ];
        text.push_str(&columns.join(", "));
        text.push('\n');
    }
    text
}

/// A refusal as nvidia-smi writes it (`nvmlErrorString`, measured on 535).
fn in_brackets(code: i64) -> String {
    let words = match code {
        NVML_NOT_SUPPORTED | FUNCTION_NOT_FOUND => "N/A",
        1 => "Uninitialized",
        2 => "Invalid Argument",
        4 => "Insufficient Permissions",
        6 => "Not Found",
        9 => "Driver Not Loaded",
        10 => "Timeout",
        NVML_GPU_IS_LOST => "GPU is lost",
        _ => "Unknown Error",
    };
    format!("[{words}]")
}

/// Milliwatts as nvidia-smi shows watts: it divides in 32 bits and prints two digits, so that 1005 gives 1.00.
#[expect(
    clippy::cast_precision_loss,
    reason = "what is lost here is lost there as well, and the same digits are wanted"
)]
fn watts(milliwatts: u64) -> String {
    format!("{:.2}", milliwatts as f32 / 1000.0)
}

/// A table whose columns keep their widths, so that one moment stands under the other.
#[derive(Debug)]
pub struct Table {
    widths: Vec<usize>,
    watching: bool,
}

/// Headings; `driver` is replaced by `time` where one watches.
const HEADINGS: [&str; 11] = [
    "gpu",
    "name",
    "driver",
    "memory MiB",
    "util",
    "temp",
    "power",
    "cc",
    "pci",
    "mig",
    "proc",
];
/// Columns that hold words, and are filled up on the right.
const WORDS: [usize; 3] = [1, 2, 8];
/// The first column of readings: where a GPU has none to show, words stand there instead.
const FIRST_READING: usize = 3;

impl Table {
    /// A table for these GPUs that is no wider than `width`, as far as their numbers allow.
    pub fn new(gpus: &Gpus, width: usize, watching: bool) -> Self {
        let mut table = Self {
            widths: HEADINGS.iter().map(|h| h.len()).collect(),
            watching,
        };
        for line in &gpus.lines {
            for (wide, cell) in table
                .widths
                .iter_mut()
                .zip(table_cells(gpus, line, watching))
            {
                *wide = (*wide).max(cell.chars().count());
            }
            // What is 0 now may need as many digits as the total.
            let total = line.sample().and_then(|s| s.memory_total_bytes.value());
            let most = total.map_or(0, |total| format!("{0}/{0}", total / MIB).len());
            for (at, least) in [(FIRST_READING, most), (6, "1000W".len())] {
                if let Some(wide) = table.widths.get_mut(at) {
                    *wide = (*wide).max(least);
                }
            }
        }
        let separators = table.widths.len().saturating_sub(1);
        let all = table.widths.iter().sum::<usize>() + separators;
        if let Some(name) = table.widths.get_mut(1) {
            *name = name
                .saturating_sub(all.saturating_sub(width))
                .max(NARROWEST_NAME);
        }
        table
    }

    /// The headings; as a comment where one watches, as scripts expect that of such streams.
    pub fn heading(&self) -> String {
        let mut headings = HEADINGS.map(str::to_owned);
        if self.watching {
            "#gpu".clone_into(&mut headings[0]);
            "time".clone_into(&mut headings[2]);
        }
        self.row(&headings)
    }

    /// One line a GPU.
    pub fn rows(&self, gpus: &Gpus) -> String {
        gpus.lines
            .iter()
            .map(|line| {
                let cells = table_cells(gpus, line, self.watching);
                match instead(line) {
                    Some(words) => {
                        let known: Vec<String> = cells.into_iter().take(FIRST_READING).collect();
                        format!("{} {words}\n", self.row(&known).trim_end_matches('\n'))
                    }
                    None => self.row(&cells),
                }
            })
            .collect()
    }

    fn row(&self, cells: &[String]) -> String {
        let mut text = String::new();
        for (at, (cell, wide)) in cells.iter().zip(&self.widths).enumerate() {
            if at > 0 {
                text.push(' ');
            }
            let cell = cut(cell, *wide);
            let _ = if WORDS.contains(&at) {
                write!(text, "{cell:<wide$}")
            } else {
                write!(text, "{cell:>wide$}")
            };
        }
        format!("{}\n", text.trim_end())
    }
}

/// A text of at most so many characters; one that was cut ends in an ellipsis.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// What stands in place of the readings of a GPU that has none.
fn instead(line: &GpuLine) -> Option<String> {
    match (line.failed(), &line.state) {
        (Some(NVML_GPU_IS_LOST), _) => Some(format!(
            "lost: NVML answers {}",
            nvml_code(NVML_GPU_IS_LOST)
        )),
        (Some(code), _) => Some(format!("no answer: {}", nvml_code(code))),
        (None, GpuState::Asleep { .. }) => {
            Some("sleeps, and was not woken (--probe does)".to_owned())
        }
        (None, GpuState::Foreign(gpu)) if gpu.asleep && !gpu.reads() => {
            Some("sleeps, and was not woken (--probe does)".to_owned())
        }
        (None, GpuState::Asked(_) | GpuState::Foreign(_)) => None,
    }
}

/// The cells of one line, in the order of [`HEADINGS`].
fn table_cells(gpus: &Gpus, line: &GpuLine, watching: bool) -> [String; 11] {
    let nothing = || NOTHING.to_owned();
    let sample = line.sample();
    let sensor = |of: fn(&GpuSample) -> Sensor| sample.and_then(|s| of(s).value());
    let mib = |of| sensor(of).map_or_else(nothing, |n| (n / MIB).to_string());
    let with_unit = |of, unit: &str, scale: u64| {
        sensor(of).map_or_else(nothing, |n| format!("{}{unit}", (n + scale / 2) / scale))
    };
    let name = match (line.name(), line.vendor) {
        (Some(name), _) => name.strip_prefix("NVIDIA ").unwrap_or(name).to_owned(),
        (None, "amd") => format!("AMD {}", pci_id(line)),
        (None, "intel") => format!("Intel {}", pci_id(line)),
        (None, _) => nothing(),
    };
    let driver = if line.is_nvidia() {
        gpus.driver.as_ref()
    } else {
        line.bound.as_ref()
    };
    let mig = sample
        .and_then(|s| s.device.mig)
        .map_or_else(nothing, |mig| match (mig.on, mig.instances) {
            (false, _) => "off".to_owned(),
            (true, Some(instances)) => instances.to_string(),
            (true, None) => "on".to_owned(),
        });
    let memory = match (mib(|s| s.memory_used_bytes), mib(|s| s.memory_total_bytes)) {
        (used, total) if used == NOTHING && total == NOTHING => used,
        (used, total) => format!("{used}/{total}"),
    };
    // The time of day, in UTC as everywhere: what stands between the T and the Z.
    let time = gpus.taken_at.get(11..19).unwrap_or_default().to_owned();
    [
        line.index()
            .map_or_else(|| "-".to_owned(), |i| i.to_string()),
        escape::terminal(&name).into_owned(),
        if watching {
            time
        } else {
            driver.map_or_else(nothing, |d| escape::terminal(d).into_owned())
        },
        memory,
        with_unit(|s| s.utilization_percent, "%", 1),
        with_unit(|s| s.temperature_celsius, "C", 1),
        with_unit(|s| s.power_milliwatts, "W", 1000),
        sample
            .and_then(capability)
            .or_else(|| line.target().map(str::to_owned))
            .unwrap_or_else(nothing),
        line.address().map_or_else(nothing, |address| {
            // Almost every machine has one PCI domain.
            escape::terminal(address.strip_prefix("0000:").unwrap_or(address)).into_owned()
        }),
        mig,
        sample
            .and_then(|s| s.device.processes)
            .map_or_else(nothing, |n| n.to_string()),
    ]
}

fn pci_id(line: &GpuLine) -> &str {
    line.pci.as_ref().map_or("GPU", |(_, id)| id.as_str())
}

/// The JSON document.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    version: &'static str,
    taken_at: &'a str,
    driver: Option<&'a str>,
    trouble: Option<String>,
    gpus: Vec<Entry<'a>>,
}

#[derive(Serialize)]
struct Entry<'a> {
    vendor: &'static str,
    index: Option<u32>,
    name: Option<&'a str>,
    state: &'static str,
    driver: Option<&'a str>,
    pci_address: Option<&'a str>,
    pci_id: Option<&'a str>,
    capability: Option<String>,
    /// The instruction set of AMD's GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    memory_used_bytes: Option<u64>,
    memory_total_bytes: Option<u64>,
    utilization_percent: Option<u64>,
    temperature_celsius: Option<u64>,
    power_milliwatts: Option<u64>,
    mig: Option<MigAnswer>,
    compute_processes: Option<u32>,
    compute_mode: Option<&'static str>,
    persistence: Option<bool>,
    ecc: Option<ModeAnswer>,
    row_remap_pending: Option<bool>,
    row_remap_failed: Option<bool>,
    retired_pages_pending: Option<bool>,
    link_width: Option<u32>,
    link_width_max: Option<u32>,
    /// Why a sensor says nothing, by its name; without those that the board has not.
    refused: BTreeMap<&'static str, String>,
}

/// The document as JSON: on one line where one watches, so that each line is a document.
///
/// # Errors
/// None in practice: every key is a string.
pub fn json(gpus: &Gpus, watching: bool) -> serde_json::Result<String> {
    let document = Document {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        taken_at: &gpus.taken_at,
        driver: gpus.driver.as_deref(),
        trouble: gpus.trouble.as_ref().map(sentence),
        gpus: gpus.lines.iter().map(|line| entry(gpus, line)).collect(),
    };
    let text = if watching {
        serde_json::to_string(&document)?
    } else {
        serde_json::to_string_pretty(&document)?
    };
    Ok(text + "\n")
}

fn entry<'a>(gpus: &'a Gpus, line: &'a GpuLine) -> Entry<'a> {
    let sample = line.sample();
    let device = sample.map(|s| &s.device);
    let sensor = |of: fn(&GpuSample) -> Sensor| sample.and_then(|s| of(s).value());
    Entry {
        vendor: line.vendor,
        index: line.index(),
        name: line.name(),
        state: line.state_id(),
        driver: if line.is_nvidia() {
            gpus.driver.as_deref()
        } else {
            line.bound.as_deref()
        },
        pci_address: line.address(),
        pci_id: line.pci.as_ref().map(|(_, id)| id.as_str()),
        capability: sample.and_then(capability),
        target: line.target(),
        memory_used_bytes: sensor(|s| s.memory_used_bytes),
        memory_total_bytes: sensor(|s| s.memory_total_bytes),
        utilization_percent: sensor(|s| s.utilization_percent),
        temperature_celsius: sensor(|s| s.temperature_celsius),
        power_milliwatts: sensor(|s| s.power_milliwatts),
        mig: device.and_then(|d| d.mig),
        compute_processes: device.and_then(|d| d.processes),
        compute_mode: device.and_then(|d| d.compute_mode).map(compute_mode),
        persistence: device.and_then(|d| d.persistence),
        ecc: device.and_then(|d| d.ecc),
        row_remap_pending: device.and_then(|d| d.row_remap_pending),
        row_remap_failed: device.and_then(|d| d.row_remap_failed),
        retired_pages_pending: device.and_then(|d| d.retired_pages_pending),
        link_width: device.and_then(|d| d.link_width),
        link_width_max: device.and_then(|d| d.link_width_max),
        refused: sample
            .into_iter()
            .flat_map(GpuSample::sensors)
            .filter_map(|(name, sensor)| Some((name, sensor.code()?)))
            .filter(|(_, code)| ![NVML_NOT_SUPPORTED, FUNCTION_NOT_FOUND].contains(code))
            .map(|(name, code)| (name, nvml_code(code)))
            .collect(),
    }
}

/// `nvmlComputeMode_t` in words.
fn compute_mode(mode: u32) -> &'static str {
    match mode {
        0 => "default",
        1 => "exclusive-thread",
        2 => "prohibited",
        3 => "exclusive-process",
        _ => "unknown",
    }
}

/// Why GPUs could not be asked, in one sentence.
pub fn sentence(trouble: &Trouble) -> String {
    const WHY: &str = "`gpudoctor` tells why";
    match trouble {
        Trouble::NoGpu => "there is no NVIDIA GPU here, and no driver for one is loaded".to_owned(),
        Trouble::NoDriver { gpus: 1 } => {
            format!("an NVIDIA GPU is on the PCI bus, but no driver is loaded that could be asked: {WHY}")
        }
        Trouble::NoDriver { gpus } => {
            format!("{gpus} NVIDIA GPUs are on the PCI bus, but no driver is loaded that could be asked: {WHY}")
        }
        Trouble::NoLibrary(source) => {
            format!("there is no libnvidia-ml.so.1 by which GPUs could be asked (looked for in {source})")
        }
        Trouble::NotAsked(reason) => format!("the GPUs could not be asked by NVML: {reason}"),
        Trouble::Refused { call, code } => {
            format!("the GPUs could not be asked: {call} answers {}; {WHY}", nvml_code(*code))
        }
        Trouble::Ended(end) => match end {
            ChildEnd::TimedOut { call, after_ms } => format!(
                "{call} did not come back within {} s, and the child that made the call was killed",
                after_ms / 1000
            ),
            ChildEnd::Signal { call, signal } => {
                format!("libnvidia-ml crashed in {call} (signal {signal})")
            }
            ChildEnd::Exited { call, code } => {
                format!("libnvidia-ml ended its process in {call} (exit code {code})")
            }
            ChildEnd::Garbled { call } => {
                format!("libnvidia-ml broke the conversation in {call}")
            }
            ChildEnd::NotStarted { reason } | ChildEnd::NotTrusted { reason } => reason.clone(),
            ChildEnd::Finished | ChildEnd::Unknown => "NVML gave no answer".to_owned(),
        },
        Trouble::Stuck => "a child hangs in the driver and cannot be killed; nothing more is asked until it is gone".to_owned(),
        Trouble::NoneCounted => format!("the driver runs and counts no GPU: {WHY}"),
        Trouble::WhichSleep => "some GPUs sleep, and NVML counts others than the driver lists, so none was asked (--probe asks all of them)".to_owned(),
    }
}

/// What was said of the GPUs last, so that a change is said once.
#[derive(Debug, Default)]
pub struct Changes {
    /// By index: what to call it, and the code by which it did not answer.
    gpus: BTreeMap<u32, (String, i64)>,
    trouble: Option<Trouble>,
    /// Whether GPUs were ever seen.
    seen: bool,
}

impl Changes {
    /// What is new in this moment, a sentence each.
    pub fn since(&mut self, gpus: &Gpus) -> Vec<String> {
        let mut said = Vec::new();
        if gpus.trouble != self.trouble {
            match &gpus.trouble {
                Some(
                    trouble @ (Trouble::Refused { .. }
                    | Trouble::NoDriver { .. }
                    | Trouble::NoGpu
                    | Trouble::NoneCounted),
                ) if self.seen => {
                    said.push(format!("the driver went away: {}", sentence(trouble)));
                }
                Some(trouble) => said.push(sentence(trouble)),
                None => said.push("the driver answers again".to_owned()),
            }
            self.trouble.clone_from(&gpus.trouble);
        }
        for line in gpus.lines.iter().filter(|line| line.is_nvidia()) {
            let Some(index) = line.index() else { continue };
            let code = line.failed().unwrap_or(0);
            let (name, before) = self
                .gpus
                .entry(index)
                .or_insert_with(|| (format!("GPU {index}"), 0));
            if let Some(known) = line.name() {
                *name = match line.address() {
                    Some(address) => format!("GPU {index} ({known} at {address})"),
                    None => format!("GPU {index} ({known})"),
                };
            }
            if code != *before {
                said.push(match code {
                    0 => format!("{name} answers again"),
                    NVML_GPU_IS_LOST => format!(
                        "{name} is lost: NVML answers {}; `gpudoctor explain gpu-off-bus` tells what that means",
                        nvml_code(code)
                    ),
                    code => format!("{name} does not answer: {}", nvml_code(code)),
                });
                *before = code;
            }
        }
        if gpus.trouble.is_none() {
            self.seen = true;
            let here: Vec<u32> = gpus.lines.iter().filter_map(GpuLine::index).collect();
            self.gpus.retain(|index, (name, _)| {
                let still = here.contains(index);
                if !still {
                    said.push(format!("{name} is gone: NVML no longer counts it"));
                }
                still
            });
        }
        said
    }
}
