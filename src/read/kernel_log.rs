//! Lines of the kernel's log that speak of GPU drivers, from whatever file has them: dmesg, syslog, journal as text.
//!
//! What stands before the message (time, host, process id) is taken off, so that the same message reads the same
//! wherever it was found. What a message means is not said here.

use std::collections::BTreeMap;

use memchr::memmem;

/// The most lines that are kept, the newest ones: a GPU that falls off the bus writes thousands.
const MAX_LINES: usize = 200;
/// The most bytes of one line that are kept.
const MAX_LINE: usize = 1024;

/// What a message about GPU drivers has in it.
const WORDS: [&str; 18] = [
    "NVRM",
    "nvidia",
    "NVIDIA",
    "nouveau",
    "NovaCore",
    "nova_core",
    "nova-core",
    "nova_drm",
    "nova-drm",
    "nvgpu",
    "Xid",
    "API mismatch",
    "Key was rejected",
    "Required key not available",
    "module verification failed",
    "Loading of unsigned module",
    "Kernel is locked down",
    "kfd kfd:",
];
/// Words that need another one beside them.
const HALF_WORDS: [&str; 3] = ["Lockdown:", "vfio-pci", "vfio_pci"];
/// The boot parameters name disks; sound outputs and traces name NVIDIA without saying anything about it.
const NOISE: [&str; 6] = [
    "Command line:",
    "Kernel command line:",
    "Unknown kernel command line",
    "Modules linked in:",
    "input: ",
    "audit: ",
];

/// The messages that speak of GPU drivers, oldest first, at most the newest 200.
///
/// Control characters stay in: the report escapes them. A log of 10,000 lines takes about as long as searching it for
/// twenty words: lines without any of them are not looked at.
pub fn kernel_log(text: &str) -> Vec<String> {
    let mut lines = BTreeMap::new();
    for word in WORDS.iter().chain(&HALF_WORDS) {
        let finder = memmem::Finder::new(word);
        let mut from = 0;
        while let Some(found) = text
            .as_bytes()
            .get(from..)
            .and_then(|rest| finder.find(rest))
        {
            let (before, after) = text.split_at_checked(from + found).unwrap_or((text, ""));
            let start = before.rfind('\n').map_or(0, |end| end + 1);
            from = after
                .find('\n')
                .map_or(text.len(), |len| before.len() + len);
            lines.insert(start, text.get(start..from).unwrap_or_default());
        }
    }
    let lines = lines.into_values();
    let messages = lines.map(message).filter(|message| speaks_of_gpu(message));
    let mut kept: Vec<_> = messages
        .map(|message| super::cut(&message, MAX_LINE).to_owned())
        .collect();
    kept.drain(..kept.len().saturating_sub(MAX_LINES));
    kept
}

/// What NVIDIA's licensing daemon says of a vGPU's licence in syslog, in order, without names and addresses of servers:
/// `nvidia-gridd[911]: License acquired successfully. (Info: ...)`.
pub fn gridd_log(text: &str) -> Vec<String> {
    /// How the messages that tell begin.
    const MESSAGES: [&str; 5] = [
        "License acquired successfully",
        "License renewed successfully",
        "License returned successfully",
        "Failed to acquire license",
        "Failed to renew license",
    ];
    let mut said: Vec<String> = Vec::new();
    for line in text.lines() {
        // The daemon's name stands where syslog puts it, not in another's message.
        let Some((before, rest)) = line.split_once("nvidia-gridd") else {
            continue;
        };
        let message = rest.split_once(": ").map_or("", |(_, message)| message);
        let is_its_own = !before.contains(": ");
        let known = MESSAGES.iter().find(|known| message.starts_with(**known));
        if let Some(known) = known.filter(|_| is_its_own) {
            said.retain(|other| other != known);
            said.push((*known).to_owned());
        }
    }
    said
}

/// The message of one record of `/dev/kmsg`: `6,339,5140900,-;NVRM: loading ...`, with keyword lines after it. `None` for
/// what a program wrote there, and for what is no record.
pub fn kmsg_record(text: &str) -> Option<&str> {
    let (head, message) = text.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    // Three bits of urgency, and above them who speaks: 0 is the kernel.
    (priority >> 3 == 0).then(|| message.lines().next().unwrap_or_default())
}

/// An Xid: an error that the driver tells of one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xid {
    /// The GPU's PCI address as /sys writes it: `0000:0b:00.0`.
    pub address: String,
    /// 79: fallen off the bus.
    pub code: u32,
}

/// The Xid of a message such as `NVRM: Xid (PCI:0000:0b:00): 79, pid=...`; that of a switch (`SXid`) is none.
pub fn xid(message: &str) -> Option<Xid> {
    let (place, rest) = message.split_once("NVRM: Xid (")?.1.split_once("): ")?;
    // Old drivers write the address alone; with MIG the instance follows it: `PCI:0000:41:00 GPU-I:02`.
    let place = place.split_whitespace().next()?;
    let address = place.strip_prefix("PCI:").unwrap_or(place);
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .map_or(rest, |end| rest.get(..end).unwrap_or_default());
    Some(Xid {
        address: format!("{}.0", address.to_ascii_lowercase()),
        code: digits.parse().ok()?,
    })
}

/// A line without urgency, time, host and process id. A program's name stays before its message; `kernel` does not.
pub(super) fn message(line: &str) -> String {
    let line = without_urgency(line.trim_end());
    if let Some(message) = line.strip_prefix("kernel: ") {
        return without_times(message).to_owned();
    }
    // `Nov 20 10:00:01 host kernel: ...`, `2022-10-20T11:02:15 host modprobe[123]: ...`
    let Some(rest) = without_date(line)
        .and_then(|rest| rest.split_once(' '))
        .map(|(_host, rest)| rest)
    else {
        return without_times(line).to_owned();
    };
    match rest.split_once(": ") {
        Some(("kernel", message)) => without_times(message).to_owned(),
        Some((program, message)) => {
            let name = program.split('[').next().unwrap_or_default();
            format!("{name}: {message}")
        }
        None => rest.to_owned(),
    }
}

/// Without `<4>`.
fn without_urgency(line: &str) -> &str {
    let inner = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    match inner {
        Some((number, rest))
            if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) =>
        {
            rest
        }
        _ => line,
    }
}

/// Without `[    5.140900]`, `[Mon Nov 20 10:00:01 2023]`, `[  T123]`, as often as they stand there.
fn without_times(mut message: &str) -> &str {
    while let Some((time, rest)) = message
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
    {
        let time = time.trim();
        let number = time.strip_prefix(['T', 'C']).unwrap_or(time);
        let is_number = number.starts_with(|c: char| c.is_ascii_digit())
            && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let is_time = is_number || (time.matches(':').count() == 2 && time.split(' ').count() > 3);
        if !is_time {
            break;
        }
        message = rest.trim_start_matches(' ');
    }
    message
}

/// What follows a date at the start of a line of syslog.
fn without_date(line: &str) -> Option<&str> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (first, rest) = line.split_once(' ')?;
    let is_iso = first.len() >= 19
        && first.bytes().take(4).all(|b| b.is_ascii_digit())
        && first.get(10..11) == Some("T");
    if is_iso {
        return Some(rest);
    }
    // Day (padded with a blank), then time.
    let (day, rest) = rest.trim_start().split_once(' ')?;
    let (time, rest) = rest.split_once(' ')?;
    let is_date =
        MONTHS.contains(&first) && day.parse::<u8>().is_ok() && time.matches(':').count() == 2;
    is_date.then_some(rest)
}

fn speaks_of_gpu(message: &str) -> bool {
    // Lockdown also refuses hibernation and raw ports; vfio also takes network cards.
    let [lockdown, vfio, vfio_module] = HALF_WORDS;
    let both = |a: &str, b: &[&str]| message.contains(a) && b.iter().any(|b| message.contains(b));
    !NOISE.iter().any(|noise| message.starts_with(noise))
        && (WORDS.iter().any(|word| message.contains(word))
            || both(lockdown, &["module"])
            || both(vfio, &["vga", "VGA", "10de"])
            || both(vfio_module, &["vga", "VGA", "10de"]))
}
