//! A machine that is not here, described in one word: `driver=535.104.05,gpu=A100+L40S,cuda=12.4,glibc=2.31,os=ubuntu-22.04`.
//!
//! One grammar wherever a target is taken. Keys stand in any order, each once, none is a must. It is read strictly,
//! since a number that was taken for another would give a wrong answer in good faith. What a name means (which GPU
//! `A100` is) is the matrix's business, and whether the target suffices for a question is the question's.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::matrix::{Capability, Target as CodeTarget, cuda_of_torch_tag, torch_tag};
use crate::version::Version;

/// The keys, as errors list them.
const KEYS: &str = "driver, gpu, cuda, torch, vllm, cudnn, glibc, os, arch, python, container";

/// A described machine; `None` and empty where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Its driver.
    pub driver: Option<Driver>,
    /// Its GPUs.
    pub gpus: Vec<Gpu>,
    /// The CUDA runtime that is to run there.
    pub cuda: Option<Version>,
    /// The PyTorch that is to run there; it brings its own CUDA runtime.
    pub torch: Option<Torch>,
    /// The vLLM that is to run there; it brings its own PyTorch.
    pub vllm: Option<Version>,
    /// The cuDNN that is to run there.
    pub cudnn: Option<Version>,
    /// Its C library.
    pub glibc: Option<Version>,
    /// Its system.
    pub os: Option<Os>,
    /// Its processor, as the kernel names it.
    pub arch: Option<String>,
    /// Its Python, or that of the image: `3.12`.
    pub python: Option<Version>,
    /// Programs run in a container there, and the driver is its host's.
    pub container: Option<bool>,
}

/// A driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// There is none.
    None,
    /// Its version, `535.104.05`; a branch alone, `535`, is some build of it.
    Version(Version),
}

/// A GPU, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// `10de:2b85`: PCI vendor and device.
    Pci(u16, u16),
    /// `sm_120`, `12.0`: a compute capability.
    Capability(Capability),
    /// `RTX 5090`, `A100`, `GA102`.
    Name(String),
}

/// A build of `PyTorch`: `2.7.1+cu128`; `2.7` is the newest 2.7 as `PyPI` has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torch {
    /// The release.
    pub version: Version,
    /// What it is built for; `None`: as on `PyPI`.
    pub build: Option<TorchBuild>,
}

/// What a `PyTorch` is built for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TorchBuild {
    /// A CUDA version.
    Cuda(Version),
    /// No CUDA: `cpu`, `rocm6.4`.
    Other(String),
}

/// A system: `ubuntu-22.04`, `windows`, `wsl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Os {
    /// `ID` of os-release in lower case, or `windows`, `wsl`.
    pub id: String,
    /// `VERSION_ID`.
    pub version: Option<Version>,
}

impl Os {
    /// Whether its driver is the Windows one, whose numbers are another line than those of Linux.
    pub fn has_windows_driver(&self) -> bool {
        matches!(self.id.as_str(), "windows" | "wsl" | "wsl2")
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut target = Self::default();
        for part in text.split(',') {
            let part = part.trim();
            let Some((key, value)) = part.split_once('=') else {
                return Err(format!(
                    "`{}` has no `=`: keys are {KEYS}",
                    part.escape_debug()
                ));
            };
            let (key, value) = (key.trim(), value.trim());
            let twice = match key {
                "driver" => target.driver.replace(driver(value)?).is_some(),
                "gpu" => !std::mem::replace(&mut target.gpus, gpus(value)?).is_empty(),
                "cuda" => target.cuda.replace(cuda(value)?).is_some(),
                "torch" => target.torch.replace(torch(value)?).is_some(),
                "cudnn" => target.cudnn.replace(release(value)?).is_some(),
                "glibc" => target.glibc.replace(glibc(value)?).is_some(),
                "os" => target.os.replace(os(value)?).is_some(),
                "vllm" => target.vllm.replace(release(value)?).is_some(),
                "arch" => target.arch.replace(arch(value)?).is_some(),
                "python" => target.python.replace(python(value)?).is_some(),
                "container" => target.container.replace(container(value)?).is_some(),
                _ => {
                    return Err(format!(
                        "unknown key `{}`: keys are {KEYS}",
                        key.escape_debug()
                    ));
                }
            };
            if twice {
                let hint = if key == "gpu" {
                    ", several GPUs are joined with `+`"
                } else {
                    ""
                };
                return Err(format!("`{key}` is given twice{hint}"));
            }
        }
        Ok(target)
    }
}

/// Digits and dots, at most five numbers.
fn version(text: &str, what: &str, example: &str) -> Result<Version, String> {
    let wrong = || format!("`{}` is no {what}: {example} is one", text.escape_debug());
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    if text.split('.').count() > 5 || !text.split('.').all(digits) {
        return Err(wrong());
    }
    Version::parse(text).ok_or_else(wrong)
}

/// Reads a driver: a version, a branch (`535`, `R535`), or `none`.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn driver(text: &str) -> Result<Driver, String> {
    if text == "none" {
        return Ok(Driver::None);
    }
    let number = text
        .strip_prefix(['R', 'r'])
        .filter(|rest| !rest.contains('.'))
        .unwrap_or(text);
    let version = version(number, "driver version", "535.104.05")?;
    if !(100..1000).contains(&version.major()) {
        return Err(format!(
            "`{number}` is no driver version, which begins with a branch of three digits: 535.104.05 is one"
        ));
    }
    Ok(Driver::Version(version))
}

/// Reads a CUDA version: `12.4`, `12.4.1`, `13`.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn cuda(text: &str) -> Result<Version, String> {
    let version = version(text, "CUDA version", "12.4")?;
    if version.major() >= 100 {
        return Err(format!(
            "`{text}` is no CUDA version but looks like a driver's: 12.4 is one"
        ));
    }
    if version.major() == 0 || version.minor() >= 100 {
        return Err(format!("`{text}` is no CUDA version: 12.4 is one"));
    }
    Ok(version)
}

/// Reads a build of `PyTorch`: `2.7`, `2.7.1`, `2.7.1+cu128`, `2.7.1+cpu`.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn torch(text: &str) -> Result<Torch, String> {
    const EXAMPLE: &str = "2.7.1 and 2.7.1+cu128 are some";
    let (number, tag) = match text.split_once('+') {
        Some((number, tag)) => (number, Some(tag)),
        None => (text, None),
    };
    let wrong = || {
        format!(
            "`{}` is no version of PyTorch: {EXAMPLE}",
            text.escape_debug()
        )
    };
    let version = version(number, "version of PyTorch", "2.7.1").map_err(|_| wrong())?;
    let build = tag.map(|tag| match cuda_of_torch_tag(tag) {
        Some(cuda) => Some(TorchBuild::Cuda(cuda)),
        None => ["cpu", "rocm", "xpu"]
            .iter()
            .any(|other| tag.starts_with(other))
            .then(|| TorchBuild::Other(tag.to_owned())),
    });
    let build = match build {
        Some(None) => return Err(wrong()),
        Some(build) => build,
        None => None,
    };
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
    if version.len() < 2 || !tag.is_none_or(plain) {
        return Err(wrong());
    }
    Ok(Torch { version, build })
}

/// Reads the version of a library or framework: `9.8`, `2.27.5`.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn release(text: &str) -> Result<Version, String> {
    let release = version(text, "version", "9.8")?;
    if release.len() < 2 {
        return Err(format!("`{text}` is a major version: 9.8 is a release"));
    }
    Ok(release)
}

/// Reads a glibc: `2.31`.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn glibc(text: &str) -> Result<Version, String> {
    let glibc = version(text, "glibc version", "2.31")?;
    // It is 2.x since 1997, and 2.42 is of 2025.
    if glibc.major() != 2 || glibc.len() < 2 || glibc.minor() >= 100 {
        return Err(format!("`{text}` is no glibc version: 2.31 is one"));
    }
    Ok(glibc)
}

/// Reads a processor, by any of its usual names, as the kernel names it.
///
/// # Errors
/// In one line, where it is none that NVIDIA's stack runs on.
pub fn arch(text: &str) -> Result<String, String> {
    match text {
        "x86_64" | "amd64" => Ok("x86_64".to_owned()),
        "aarch64" | "arm64" | "sbsa" => Ok("aarch64".to_owned()),
        "ppc64le" => Ok("ppc64le".to_owned()),
        _ => Err(format!(
            "`{}` is none of x86_64, aarch64 and ppc64le",
            text.escape_debug()
        )),
    }
}

/// Reads a Python: `3.12`, `3.12.4`.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn python(text: &str) -> Result<Version, String> {
    let python = version(text, "Python version", "3.12")?;
    if !matches!(python.major(), 2 | 3) || python.len() < 2 || python.minor() >= 100 {
        return Err(format!("`{text}` is no Python version: 3.12 is one"));
    }
    Ok(python)
}

/// Reads whether programs run in a container: `yes` or `no`.
///
/// # Errors
/// Where it is neither, in one line.
pub fn container(text: &str) -> Result<bool, String> {
    match text {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(format!("`{}` is neither yes nor no", text.escape_debug())),
    }
}

/// Reads a system: `ubuntu-22.04`, `debian:12`, `windows`, `wsl`.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn os(text: &str) -> Result<Os, String> {
    let split = text
        .rsplit_once(['-', ':'])
        .filter(|(_, version)| version.starts_with(|c: char| c.is_ascii_digit()));
    let (id, number) = match split {
        Some((id, number)) => (id, Some(version(number, "version of a system", "22.04")?)),
        None => (text, None),
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if id.is_empty() || !id.chars().all(plain) {
        return Err(format!(
            "`{}` is no system: ubuntu-22.04, windows and wsl are some",
            text.escape_debug()
        ));
    }
    Ok(Os {
        id: id.to_ascii_lowercase(),
        version: number,
    })
}

/// Reads GPUs joined with `+`.
///
/// # Errors
/// What is wrong with the first one that is none, in one line.
pub fn gpus(text: &str) -> Result<Vec<Gpu>, String> {
    text.split('+').map(gpu).collect()
}

/// Reads one GPU: a PCI id, an architecture, a capability, or a name.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn gpu(text: &str) -> Result<Gpu, String> {
    let text = text.trim();
    let wrong = |what: &str| Err(format!("`{}` is no {what}", text.escape_debug()));
    if text.is_empty() {
        return Err("a GPU is wanted: `A100`, `10de:2b85`, `sm_120`".to_owned());
    }
    if let Some((vendor, device)) = text.split_once(':') {
        let hex = |text: &str| {
            let digits = text.len() == 4 && text.bytes().all(|b| b.is_ascii_hexdigit());
            digits.then(|| u16::from_str_radix(text, 16).ok()).flatten()
        };
        return match (hex(vendor), hex(device)) {
            (Some(vendor), Some(device)) => Ok(Gpu::Pci(vendor, device)),
            _ => wrong("PCI id: 10de:2b85 is one"),
        };
    }
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("sm_") || lower.starts_with("compute_") {
        return match CodeTarget::parse(&lower) {
            Some(target) => Ok(Gpu::Capability(target.capability)),
            None => wrong("architecture: sm_120 is one"),
        };
    }
    if lower.bytes().all(|b| b.is_ascii_digit() || b == b'.') && lower.contains('.') {
        let parts = lower.split_once('.');
        let numbers = parts.and_then(|(major, minor)| {
            let small = |text: &str| text.parse::<u32>().ok().filter(|n| *n < 100);
            Some((small(major)?, small(minor)?))
        });
        return match numbers {
            Some(capability) => Ok(Gpu::Capability(capability)),
            None => wrong("compute capability: 8.6 is one"),
        };
    }
    if text.chars().count() > 100 || text.chars().any(char::is_control) {
        return wrong("name of a GPU");
    }
    Ok(Gpu::Name(text.to_owned()))
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Version(version) => version.fmt(f),
        }
    }
}

impl fmt::Display for Torch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.build {
            Some(TorchBuild::Cuda(cuda)) => write!(f, "{}+{}", self.version, torch_tag(cuda)),
            Some(TorchBuild::Other(tag)) => write!(f, "{}+{tag}", self.version),
            None => self.version.fmt(f),
        }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(vendor, device) => write!(f, "{vendor:04x}:{device:04x}"),
            Self::Capability((major, minor)) => write!(f, "sm_{major}{minor}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Os {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}-{version}", self.id),
            None => f.write_str(&self.id),
        }
    }
}

/// The target as it can be read again.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gpus: Vec<_> = self.gpus.iter().map(ToString::to_string).collect();
        let parts = [
            self.driver.as_ref().map(|it| format!("driver={it}")),
            (!gpus.is_empty()).then(|| format!("gpu={}", gpus.join("+"))),
            self.cuda.as_ref().map(|it| format!("cuda={it}")),
            self.torch.as_ref().map(|it| format!("torch={it}")),
            self.vllm.as_ref().map(|it| format!("vllm={it}")),
            self.cudnn.as_ref().map(|it| format!("cudnn={it}")),
            self.glibc.as_ref().map(|it| format!("glibc={it}")),
            self.os.as_ref().map(|it| format!("os={it}")),
            self.arch.as_ref().map(|it| format!("arch={it}")),
            self.python.as_ref().map(|it| format!("python={it}")),
            self.container
                .map(|it| format!("container={}", if it { "yes" } else { "no" })),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(","))
    }
}

/// Written as the words that they are read from.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
as_text!(Driver, Gpu, Os, Torch);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "driver=535.104.05,gpu=A100+L40S,cuda=12.4,glibc=2.31,os=ubuntu-22.04",
            "gpu=RTX 5090+10de:2b85+sm_120",
            "driver=none",
            "driver=551.61,os=windows",
            "os=opensuse-leap-15.5",
            "gpu=P100,torch=2.7.1+cu128,cudnn=9.10.2.21",
            "torch=2.7+cpu",
            "gpu=T4,vllm=0.10.2",
            "driver=535,glibc=2.31,arch=aarch64,python=3.12,container=yes",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        let target: Target = " os = Debian:12 , driver = R535 ".parse().unwrap();
        assert_eq!(target.to_string(), "driver=535,os=debian-12");
        let gpus = "compute_90a + 8.6+SM_103f";
        let capabilities: Vec<_> = super::gpus(gpus).unwrap();
        assert_eq!(capabilities, [(9, 0), (8, 6), (10, 3)].map(Gpu::Capability));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, needle) in [
            ("", "has no `=`"),
            ("535.104.05", "has no `=`"),
            ("driver=535,", "has no `=`"),
            ("gpus=A100", "unknown key `gpus`: keys are driver, gpu"),
            ("driver=", "no driver version"),
            ("driver=12.4", "three digits"),
            ("driver=535.104.05-1ubuntu1", "no driver version"),
            ("driver=535.1.2.3.4.5", "no driver version"),
            ("driver=99999999999", "no driver version"),
            ("cuda=550.54", "looks like a driver's"),
            ("cuda=12.4rc", "no CUDA version"),
            ("cuda=12.", "no CUDA version"),
            ("cuda=0.5", "no CUDA version"),
            ("torch=2", "no version of PyTorch"),
            ("torch=2.7+12.8", "no version of PyTorch"),
            ("torch=2.7.1rc2", "no version of PyTorch"),
            ("torch=2.7+cpu\u{1b}", "no version of PyTorch"),
            ("cudnn=nine", "no version"),
            ("cudnn=9", "a major version"),
            ("glibc=two", "no glibc version"),
            ("glibc=9.99", "no glibc version"),
            ("glibc=2", "no glibc version"),
            ("driver=5351", "three digits"),
            ("arch=mips", "none of x86_64"),
            ("arch=", "none of x86_64"),
            ("python=3", "no Python version"),
            ("python=4.1", "no Python version"),
            ("container=maybe", "neither yes nor no"),
            ("os=a b", "no system"),
            ("gpu=", "a GPU is wanted"),
            ("gpu=A100+", "a GPU is wanted"),
            ("gpu=10de:xyz", "no PCI id"),
            ("gpu=10de:2b850", "no PCI id"),
            ("gpu=sm_", "no architecture"),
            ("gpu=8.6.1", "no compute capability"),
            ("gpu=A\u{1b}[2J", "no name"),
            ("gpu=A100,gpu=L40S", "joined with `+`"),
            ("cuda=12.4,cuda=12.4", "given twice"),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(error.contains(needle), "{text}: {error}");
            assert!(!error.contains(char::is_control), "{text}: {error:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "((driver|gpu|cuda|torch|vllm|cudnn|glibc|os|arch|python|container)=\\PC{0,8},?){0,4}\\PC{0,8}") {
            if let Ok(target) = text.parse::<Target>() {
                let again: Target = target.to_string().parse().unwrap();
                prop_assert_eq!(again.to_string(), target.to_string());
            }
        }
    }
}
