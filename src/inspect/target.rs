//! Against what files are judged: a described machine, or this one.

use super::advice::Advice;
use crate::ask;
use crate::facts::Reading;
use crate::matrix::{Capability, Confidence, Matrix};
use crate::sysroot::{Sysroot, join};
use crate::target::{self, Driver, Gpu, Target};
use crate::version::Version;

/// A machine, as far as it decides whether a file runs there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// In words, for reports.
    pub name: String,
    /// The driver's version, where known.
    pub driver: Option<Version>,
    /// It has no driver.
    pub no_driver: bool,
    /// Its GPUs.
    pub gpus: Vec<MachineGpu>,
    /// Its C library.
    pub glibc: Option<Version>,
    /// Its C library is musl.
    pub musl: bool,
    /// The system that was said, where no table says which glibc it has.
    pub glibc_of: Option<String>,
    /// The newest symbol version of its libstdc++, and how far that can be trusted.
    pub glibcxx: Option<(Version, Confidence)>,
    /// Its processor: `x86_64`, `aarch64`.
    pub arch: Option<String>,
    /// Its Python.
    pub python: Option<Version>,
    /// The CUDA that is installed there.
    pub cuda: Option<Version>,
    /// Sonames of what else is there.
    pub provides: Vec<String>,
    /// Programs run in a container there, and the driver is its host's.
    pub container: bool,
    /// Its driver is that of Windows, whose numbers are others.
    pub wsl: bool,
    /// It is this machine: what a file needs is looked up here.
    pub here: bool,
    /// What was looked up for it.
    pub advice: Advice,
}

/// A GPU of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineGpu {
    /// As it was asked for, or its product name.
    pub name: String,
    /// In the grammar of `--target`.
    pub asked: Gpu,
    /// Its compute capability.
    pub capability: Capability,
}

impl MachineGpu {
    /// Whether it may use forward compatibility; `None` where that is not known.
    pub fn compat_eligible(&self, matrix: &Matrix) -> Option<bool> {
        ask::compat_eligible(matrix, &self.asked, self.capability)
    }
}

impl Machine {
    /// The processor that programs there have to be for: what was said, else what its GPUs are built together with, else
    /// `x86_64`; and why it is taken.
    pub fn processor(&self, matrix: &Matrix) -> (&str, &'static str) {
        // Grace: one module with the processor, as Jetson is.
        const WITH_ARM: &[&str] = &["GH200", "GB200", "GB300", "GB10"];
        if let Some(arch) = &self.arch {
            return (arch, "of the target");
        }
        let is_with_arm = |gpu: &MachineGpu| {
            let mut words = gpu.name.split(|c: char| !c.is_ascii_alphanumeric());
            words.any(|word| WITH_ARM.contains(&word))
                || matrix.arch(gpu.capability).is_some_and(|arch| arch.tegra)
        };
        if self.gpus.iter().any(is_with_arm) {
            return ("aarch64", "of its GPU");
        }
        ("x86_64", "where a target says nothing else")
    }
}

/// Distributions whose C library is musl.
const WITH_MUSL: &[&str] = &["alpine", "chimera", "postmarketos"];

/// Whether a system of this `ID` has musl in place of glibc.
pub fn has_musl(id: &str) -> bool {
    WITH_MUSL.contains(&id)
}

/// The machine that a target describes.
///
/// # Errors
/// In one line: a GPU that is not in the matrix, or a name that stands for GPUs of several architectures.
pub fn machine_of_target(target: &Target, matrix: &Matrix) -> Result<Machine, String> {
    let mut gpus = Vec::new();
    for gpu in &target.gpus {
        let capability = match gpu {
            Gpu::Capability(capability) => {
                if matrix.arch(*capability).is_none() {
                    return Err(format!("GPU `{gpu}` is not in the matrix"));
                }
                *capability
            }
            Gpu::Pci(0x10de, device) => matrix
                .gpu(*device)
                .and_then(|gpu| gpu.capability)
                .ok_or_else(|| {
                    format!(
                        "GPU `{gpu}` is not in the matrix: give its architecture, such as gpu=sm_90"
                    )
                })?,
            Gpu::Pci(..) => return Err(format!("GPU `{gpu}` is not NVIDIA's")),
            Gpu::Name(name) => capability_of(name, matrix)?,
        };
        gpus.push(MachineGpu {
            name: gpu.to_string(),
            asked: gpu.clone(),
            capability,
        });
    }
    let libc = target
        .os
        .as_ref()
        .and_then(|os| matrix.distro_libc(&os.id, os.version.as_ref()?));
    let cudnn = target.cudnn.as_ref();
    let musl = target.os.as_ref().is_some_and(|os| has_musl(&os.id));
    let is_open = target.glibc.is_none() && libc.is_none() && !musl;
    // WSL runs some distribution, and says nothing of which.
    let os = target.os.as_ref().filter(|os| !os.has_windows_driver());
    Ok(Machine {
        name: target.to_string(),
        driver: match &target.driver {
            Some(Driver::Version(version)) => Some(version.clone()),
            _ => None,
        },
        no_driver: target.driver == Some(Driver::None),
        gpus,
        glibc: target.glibc.clone().or_else(|| Some(libc?.glibc.clone())),
        musl,
        glibc_of: os.filter(|_| is_open).map(ToString::to_string),
        glibcxx: libc.and_then(|row| {
            let confidence = row.glibcxx_confidence.unwrap_or(row.confidence);
            Some((row.glibcxx.clone()?, confidence))
        }),
        arch: target.arch.clone(),
        python: target.python.clone(),
        cuda: target.cuda.clone(),
        provides: cudnn
            .map(|cudnn| format!("libcudnn.so.{}", cudnn.major()))
            .into_iter()
            .collect(),
        container: target.container.unwrap_or_default(),
        wsl: target
            .os
            .as_ref()
            .is_some_and(target::Os::has_windows_driver),
        here: false,
        advice: Advice::default(),
    })
}

/// The capability of what a name stands for: all products with these words one after the other must have the same.
fn capability_of(name: &str, matrix: &Matrix) -> Result<Capability, String> {
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty() && !word.eq_ignore_ascii_case("nvidia"))
            .map(str::to_ascii_lowercase)
            .collect()
    };
    let wanted = words(name);
    let longest = wanted
        .iter()
        .max_by_key(|word| word.len())
        .cloned()
        .unwrap_or_default();
    let with_words = |wanted: &[String]| -> Vec<(Capability, String)> {
        let gpus = matrix.gpus_named(&longest).into_iter();
        gpus.filter(|gpu| {
            let of_gpu = words(&gpu.name);
            gpu.chip.eq_ignore_ascii_case(name.trim())
                || of_gpu.windows(wanted.len().max(1)).any(|w| w == wanted)
        })
        .filter_map(|gpu| Some((gpu.capability?, gpu.name)))
        .collect()
    };
    let mut found = with_words(&wanted);
    // `A100 80GB`: how much memory it has does not change what it runs.
    let is_memory = |word: &str| {
        let digits = word.strip_suffix("gb").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    };
    if found.is_empty() && wanted.iter().any(|word| is_memory(word)) {
        let mut bare = wanted.clone();
        bare.retain(|word| !is_memory(word));
        if !bare.is_empty() {
            found = with_words(&bare);
        }
    }
    // `RTX5090`: two words and more, written as one.
    if found.is_empty() && !wanted.is_empty() {
        let glued = wanted.concat();
        let is_meant = |name: &str| {
            let of_gpu = words(name);
            (2..=3).any(|n| of_gpu.windows(n).any(|part| part.concat() == glued))
        };
        let gpus = matrix.gpus_named("").into_iter();
        found = gpus
            .filter(|gpu| is_meant(&gpu.name))
            .filter_map(|gpu| Some((gpu.capability?, gpu.name)))
            .collect();
    }
    found.sort_unstable();
    found.dedup_by_key(|(capability, _)| *capability);
    match found.as_slice() {
        [] => Err(format!(
            "GPU `{}` is not known: give its architecture, such as gpu=sm_90 for an H100",
            name.escape_debug()
        )),
        [(capability, _)] => Ok(*capability),
        several => {
            let list: Vec<String> = several
                .iter()
                .map(|((a, b), name)| format!("{name} (sm_{a}{b})"))
                .collect();
            Err(format!(
                "GPU `{}` stands for several architectures: {}",
                name.escape_debug(),
                list.join(", ")
            ))
        }
    }
}

/// This machine (or the one under a root), where it has a GPU of NVIDIA's or a loaded driver; by /sys and /proc alone.
pub fn machine_of_host(sysroot: &Sysroot, matrix: &Matrix) -> Option<Machine> {
    const DEVICES: &str = "/sys/bus/pci/devices";
    let number = |path: &str| {
        let text = sysroot.text(path);
        let text = text.value()?.trim().to_owned();
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    let mut gpus = Vec::new();
    for name in sysroot.list(DEVICES, |_| true).items() {
        let dir = join(DEVICES, name);
        let is_display = number(&join(&dir, "class")).is_some_and(|class| class >> 16 == 3);
        if !is_display || number(&join(&dir, "vendor")) != Some(0x10de) {
            continue;
        }
        let device = number(&join(&dir, "device")).and_then(|device| u16::try_from(device).ok());
        if let Some(device) = device
            && let Some(gpu) = matrix.gpu(device)
            && let Some(capability) = gpu.capability
        {
            gpus.push(MachineGpu {
                name: gpu.name,
                asked: Gpu::Pci(0x10de, device),
                capability,
            });
        }
    }
    let driver = match sysroot.text("/sys/module/nvidia/version") {
        Reading::Present { value, .. } => Version::parse(&value),
        _ => None,
    };
    if gpus.is_empty() && driver.is_none() {
        return None;
    }
    let names: Vec<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    Some(Machine {
        name: format!(
            "this machine: {}, {}",
            driver
                .as_ref()
                .map_or("no driver loaded".to_owned(), |v| format!("driver {v}")),
            if names.is_empty() {
                "no GPU seen".to_owned()
            } else {
                names.join(" + ")
            }
        ),
        driver,
        no_driver: false,
        gpus,
        here: true,
        ..Machine::default()
    })
}
