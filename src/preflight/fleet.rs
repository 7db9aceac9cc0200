//! The machines that artifacts are held against: described in words, or taken from a snapshot of a real one.

use std::collections::BTreeSet;

use crate::facts::{Facts, Reading};
use crate::inspect::{self, Machine, machine_of_target};
use crate::matrix::Matrix;
use crate::target;
use crate::version::Version;

/// A machine with its name.
#[derive(Clone, Debug)]
pub struct Target {
    /// `prod`.
    pub name: String,
    /// What is known of it, in the grammar of `--target`.
    pub described: String,
    /// The same, as it is judged against.
    pub machine: Machine,
    /// What `matrix plan` asks for.
    pub target: target::Target,
}

/// A target that is described in words, and what the grammar of `--target` has no words for: sonames of what else is there.
///
/// # Errors
/// In one line: a GPU that is not known.
pub fn described(
    name: &str,
    target: &target::Target,
    provides: Vec<String>,
    matrix: &Matrix,
) -> Result<Target, String> {
    let mut machine = machine_of_target(target, matrix)?;
    name.clone_into(&mut machine.name);
    machine.provides.extend(provides);
    Ok(Target {
        name: name.to_owned(),
        described: target.to_string(),
        machine,
        target: target.clone(),
    })
}

/// What of a description cannot be, and the key that says it; a description may well be of something that the matrix does
/// not know yet.
///
/// # Errors
/// The first key that is wrong, and why in one line.
pub fn check(target: &target::Target, matrix: &Matrix) -> Result<(), (&'static str, String)> {
    for (key, is_said) in [
        ("torch", target.torch.is_some()),
        ("vllm", target.vllm.is_some()),
    ] {
        if is_said {
            return Err((
                key,
                "it is no part of a machine: what is to run there stands in requirement and lock files".to_owned(),
            ));
        }
    }
    let newest = matrix.newest_toolkit().map(|row| &row.cuda);
    if let (Some(cuda), Some(newest)) = (&target.cuda, newest)
        && cuda.major() > newest.major() + 2
    {
        return Err((
            "cuda",
            format!("`{cuda}` is no CUDA version: the newest is {newest}"),
        ));
    }
    let Some(os) = &target.os else {
        return Ok(());
    };
    if os.id == "windows" {
        let why = "files for Linux are judged, and Windows runs none; `wsl` does";
        return Err(("os", why.to_owned()));
    }
    let musl = inspect::has_musl(&os.id);
    let rows = || matrix.distro_libcs().iter().filter(|row| row.os == os.id);
    let Some(version) = &os.version else {
        return match rows().next_back() {
            Some(row) if target.glibc.is_none() => Err((
                "os",
                format!("`{os}` has no version: {os}-{} is one", row.version),
            )),
            _ => Ok(()),
        };
    };
    match (&target.glibc, matrix.distro_libc(&os.id, version)) {
        (Some(glibc), _) if musl => Err((
            "glibc",
            format!("`{glibc}`: {os} has musl and no glibc, so one of them is wrong"),
        )),
        (Some(glibc), Some(row)) if *glibc != row.glibc => Err((
            "glibc",
            format!("`{glibc}`: {os} has {}, so one of them is wrong", row.glibc),
        )),
        _ => Ok(()),
    }
}

/// The machine that a snapshot is of.
///
/// # Errors
/// In one line: where neither its driver nor a GPU of it is known.
pub fn of_snapshot(name: &str, facts: &Facts, matrix: &Matrix) -> Result<Target, String> {
    let libcuda = || {
        let copies = facts.driver.libcuda.items().iter();
        let mut real = copies.filter(|copy| !copy.is_compat());
        real.find_map(|copy| copy.version.value().cloned())
    };
    let loaded = facts.driver.loaded_version();
    let driver = match loaded.map(|(version, _)| version.clone()).or_else(libcuda) {
        Some(version) => Some(target::Driver::Version(version)),
        // That there is none has to have been seen.
        None if facts.driver.module_loaded() == Some(false)
            && facts.driver.libcuda.is_present() =>
        {
            Some(target::Driver::None)
        }
        None => None,
    };
    let mut gpus: Vec<target::Gpu> = Vec::new();
    for device in facts.hardware.pci.items() {
        let known = matrix.gpu(device.device).and_then(|gpu| gpu.capability);
        let gpu = target::Gpu::Pci(device.vendor, device.device);
        if device.is_nvidia_gpu() && known.is_some() && !gpus.contains(&gpu) {
            gpus.push(gpu);
        }
    }
    if gpus.is_empty() && !matches!(driver, Some(target::Driver::Version(_))) {
        return Err("it has no driver and no GPU of NVIDIA's that is known".to_owned());
    }
    let libc = facts.system.libc.value();
    let os = facts.system.os.value().and_then(|os| {
        let text = match os.version_id.as_str() {
            "" => os.id.clone(),
            version => format!("{}-{version}", os.id),
        };
        target::os(&text).ok()
    });
    let target = target::Target {
        driver,
        gpus,
        glibc: libc
            .filter(|libc| libc.kind == "glibc")
            .and_then(|libc| libc.version.clone()),
        os,
        arch: facts
            .system
            .arch
            .value()
            .and_then(|arch| target::arch(arch).ok()),
        container: facts.system.container.is_present().then_some(true),
        ..target::Target::default()
    };
    let mut made = described(name, &target, Vec::new(), matrix)?;
    // The names of products are what people know.
    for gpu in &mut made.machine.gpus {
        if let target::Gpu::Pci(_, device) = gpu.asked
            && let Some(known) = matrix.gpu(device)
        {
            gpu.name = known.name;
        }
    }
    made.machine.provides = provided(facts);
    Ok(made)
}

/// The sonames of CUDA's libraries that the loader of that machine finds.
fn provided(facts: &Facts) -> Vec<String> {
    let mut sonames: BTreeSet<String> = BTreeSet::new();
    for copy in facts.runtime.cudart.items() {
        if copy.is_reached()
            && let Reading::Present { value, .. } = &copy.soname
        {
            sonames.insert(value.clone());
        }
    }
    sonames.into_iter().collect()
}

/// What of a machine is not said, so that nothing that hangs on it is judged.
pub fn unsaid(machine: &Machine) -> Vec<String> {
    let mut parts = Vec::new();
    if machine.driver.is_none() && !machine.no_driver {
        parts.push("driver".to_owned());
    }
    if machine.gpus.is_empty() {
        parts.push("GPUs".to_owned());
    }
    if machine.glibc.is_none() && !machine.musl && machine.glibc_of.is_none() {
        parts.push("glibc".to_owned());
    }
    parts
}

/// The least CUDA level of the machines' drivers, and whose it is.
pub fn least_level<'t>(
    targets: &'t [Target],
    matrix: &Matrix,
) -> Option<(u32, &'t Target, &'t Version)> {
    let levels = targets.iter().filter_map(|target| {
        let driver = target.machine.driver.as_ref()?;
        let (low, _) = matrix.cuda_level_range(driver);
        Some((low.unwrap_or(0), target, driver))
    });
    levels.min_by_key(|(level, ..)| *level)
}
