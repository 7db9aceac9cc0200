//! NVIDIA's real libraries for the tests, by name and pinned version: CUDA runtimes through pip, the driver's user
//! space through apt from Debian's non-free component. Fetched once, unpacked under `target/parts`, and kept there.
//!
//! Nothing is installed and nothing of the machine is changed: apt gets a configuration, lists and a cache of its own.
//! Nothing in here loads a library or judges what was fetched.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "test code: it starts pip and apt and writes below target"
)]

mod apt;
mod pip;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A CUDA runtime as a wheel.
#[derive(Clone, Copy, Debug)]
pub struct Wheel {
    /// The distribution.
    pub name: &'static str,
    /// Its version, which is that of the CUDA component.
    pub version: &'static str,
}

/// The first and last runtime of each major version that drivers of today meet, and one or two between them.
pub const RUNTIMES: [Wheel; 7] = [
    Wheel::new("nvidia-cuda-runtime-cu11", "11.8.89"),
    Wheel::new("nvidia-cuda-runtime-cu12", "12.0.107"),
    Wheel::new("nvidia-cuda-runtime-cu12", "12.4.127"),
    Wheel::new("nvidia-cuda-runtime-cu12", "12.9.79"),
    Wheel::new("nvidia-cuda-runtime", "13.0.96"),
    Wheel::new("nvidia-cuda-runtime", "13.2.86"),
    Wheel::new("nvidia-cuda-runtime", "13.5.37"),
];

/// Headers of toolkits as wheels, 160 kB each: one of each minor version, and the first in which `rsqrt` is declared as
/// newer C libraries do.
pub const HEADERS: [Wheel; 6] = [
    Wheel::new("nvidia-cuda-crt", "13.0.48"),
    Wheel::new("nvidia-cuda-crt", "13.1.115"),
    Wheel::new("nvidia-cuda-crt", "13.2.86"),
    Wheel::new("nvidia-cuda-crt", "13.3.73"),
    Wheel::new("nvidia-cuda-crt", "13.4.92"),
    Wheel::new("nvidia-cuda-crt", "13.5.37"),
];

/// Compilers of older toolkits as wheels, some 20 to 40 MB each, for the headers in them.
pub const COMPILERS: [Wheel; 15] = [
    Wheel::new("nvidia-cuda-nvcc-cu11", "11.7.99"),
    Wheel::new("nvidia-cuda-nvcc-cu11", "11.8.89"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.0.76"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.0.140"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.1.105"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.2.140"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.3.52"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.3.107"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.4.99"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.4.131"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.5.82"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.6.20"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.6.85"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.8.93"),
    Wheel::new("nvidia-cuda-nvcc-cu12", "12.9.86"),
];

impl Wheel {
    const fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version }
    }
}

/// A driver branch as Debian packages it.
#[derive(Clone, Copy, Debug)]
pub struct Branch {
    /// 535.
    pub number: u32,
    /// The package with libcuda, and the one with libnvidia-ml.
    packages: [&'static str; 2],
    /// The package with the driver's own compiler of PTX.
    ptx_compiler: &'static str,
    /// The version of both that these tests were written with. A mirror keeps the newest of each release only: where this
    /// one is gone, a newer one of the same branch is taken.
    version: &'static str,
}

/// The branches.
pub const BRANCHES: [Branch; 3] = [
    Branch {
        number: 470,
        packages: ["libnvidia-tesla-470-cuda1", "libnvidia-tesla-470-ml1"],
        ptx_compiler: "libnvidia-tesla-470-ptxjitcompiler1",
        version: "470.256.02-1~deb12u1",
    },
    Branch {
        number: 535,
        packages: ["libcuda1", "libnvidia-ml1"],
        ptx_compiler: "libnvidia-ptxjitcompiler1",
        version: "535.261.03-1",
    },
    Branch {
        number: 550,
        packages: ["libcuda1", "libnvidia-ml1"],
        ptx_compiler: "libnvidia-ptxjitcompiler1",
        version: "550.163.01-2",
    },
];

/// The releases of Debian that have these branches.
const RELEASES: &str = "bookworm trixie";

/// A driver's two libraries, as they were unpacked.
#[derive(Clone, Debug)]
pub struct Driver {
    /// Its branch.
    pub branch: u32,
    /// Its version, by the package: `535.261.03`.
    pub version: String,
    /// `.../libcuda.so.535.261.03`.
    pub libcuda: PathBuf,
    /// `.../libnvidia-ml.so.535.261.03`.
    pub libnvidia_ml: PathBuf,
}

/// Everything that was fetched.
#[derive(Debug)]
pub struct Parts {
    /// Each runtime with the folder of its unpacked wheel: what belongs into site-packages.
    pub runtimes: Vec<(Wheel, PathBuf)>,
    /// In the order of [`BRANCHES`].
    pub drivers: Vec<Driver>,
    /// In the order of [`HEADERS`], with the folders of their unpacked wheels.
    pub headers: Vec<(Wheel, PathBuf)>,
}

/// The parts. Where they cannot be had, the reason is written down and the answer is `None`; where `CI` is set, the test
/// fails instead.
pub fn all() -> Option<&'static Parts> {
    static PARTS: OnceLock<Result<Parts, String>> = OnceLock::new();
    match PARTS.get_or_init(fetch) {
        Ok(parts) => Some(parts),
        Err(why) => {
            not_run(&format!("NVIDIA's real parts cannot be had: {why}"));
            None
        }
    }
}

/// Debian's `ROCm`, as far as it runs without a GPU: HIP, HSA and rocminfo, with what they need that a machine may not have.
const ROCM: [(&str, &str); 14] = [
    ("libamdhip64-5", "5.2.3-8"),
    ("libamd-comgr2", "5.2.3-2"),
    ("libhsa-runtime64-1", "5.2.3-3"),
    ("libhsakmt1", "5.2.3+dfsg-1"),
    ("libllvm15", "1:15.0.6-4+b1"),
    ("rocminfo", "5.2.3-2"),
    ("libnuma1", "2.0.16-1"),
    ("libdrm-amdgpu1", "2.4.114-1+b1"),
    ("libxml2", "2.9.14+dfsg-1.3~deb12u6"),
    ("libz3-4", "4.8.12-3.1"),
    ("libedit2", "3.1-20221030-2"),
    ("libbsd0", "0.11.7-2"),
    ("libmd0", "1.0.4-2"),
    ("libicu72", "72.1-3+deb12u1"),
];

/// The folder with Debian's `ROCm`, 60 MB to fetch. `None` as with [`all`].
pub fn rocm() -> Option<PathBuf> {
    of_main("rocm-5.2.3", &ROCM, "Debian's parts of ROCm")
}

/// A folder with packages of Debian that are free software.
fn of_main(name: &str, packages: &[(&str, &str)], what: &str) -> Option<PathBuf> {
    let fetched = store().and_then(|(store, _lock)| {
        if !cfg!(target_arch = "x86_64") {
            return Err("they are fetched for x86_64 only".to_owned());
        }
        let place = store.join(name);
        complete(&place, |folder| {
            apt::Apt::main(&store.join("apt-main")).fetch_all(packages, folder)
        })?;
        Ok(place)
    });
    match fetched {
        Ok(place) => Some(place),
        Err(why) => {
            not_run(&format!("{what} cannot be had: {why}"));
            None
        }
    }
}

/// A library of Debian's `ROCm` with code for GPUs, 8 MB to fetch. `None` as with [`all`].
pub fn rocrand() -> Option<PathBuf> {
    of_main(
        "rocrand-5.3.3",
        &[("librocrand1", "5.3.3-4")],
        "Debian's rocRAND",
    )
}

/// Debian's drivers of Vulkan and `OpenCL` that compute on the processor, those for GPUs beside them, the loaders, clinfo and
/// vulkaninfo, with what they need that a machine may not have.
const ICDS: [(&str, &str); 38] = [
    ("clinfo", "3.0.23.01.25-1"),
    ("libclang-cpp15", "1:15.0.6-4+b1"),
    ("libhwloc15", "2.9.0-1"),
    ("libllvm15", "1:15.0.6-4+b1"),
    ("libpocl2", "3.1-3+deb12u1"),
    ("libpocl2-common", "3.1-3+deb12u1"),
    ("libvulkan1", "1.3.239.0-1"),
    ("libze1", "1.8.12-1"),
    ("mesa-vulkan-drivers", "22.3.6-1+deb12u2"),
    ("ocl-icd-libopencl1", "2.3.1-1"),
    ("pocl-opencl-icd", "3.1-3+deb12u1"),
    ("vulkan-tools", "1.3.239.0+dfsg1-1"),
    ("libbsd0", "0.11.7-2"),
    ("libdrm-amdgpu1", "2.4.114-1+b1"),
    ("libdrm2", "2.4.114-1+b1"),
    ("libedit2", "3.1-20221030-2"),
    ("libelf1", "0.188-2.1"),
    ("libexpat1", "2.5.0-1+deb12u2"),
    ("libffi8", "3.4.4-1"),
    ("libicu72", "72.1-3+deb12u1"),
    ("libmd0", "1.0.4-2"),
    ("libwayland-client0", "1.21.0-1"),
    ("libx11-6", "2:1.8.4-2+deb12u2"),
    ("libx11-xcb1", "2:1.8.4-2+deb12u2"),
    ("libxau6", "1:1.0.9-1"),
    ("libxcb-dri3-0", "1.15-1"),
    ("libxcb-keysyms1", "0.4.0-1+b2"),
    ("libxcb-present0", "1.15-1"),
    ("libxcb-randr0", "1.15-1"),
    ("libxcb-shm0", "1.15-1"),
    ("libxcb-sync1", "1.15-1"),
    ("libxcb-xfixes0", "1.15-1"),
    ("libxcb1", "1.15-1"),
    ("libxdmcp6", "1:1.1.2-3"),
    ("libxml2", "2.9.14+dfsg-1.3~deb12u6"),
    ("libxshmfence1", "1.3-1"),
    ("libz3-4", "4.8.12-3.1"),
    ("libzstd1", "1.5.4+dfsg2-5"),
];

/// The folder with Debian's drivers of Vulkan and `OpenCL`, 75 MB to fetch. `None` as with [`all`].
pub fn icds() -> Option<PathBuf> {
    of_main(
        "icds-22.3.6",
        &ICDS,
        "Debian's drivers of Vulkan and OpenCL",
    )
}

/// The compilers of PTX of the drivers, 10 to 15 MB each: version of the driver, and the library. `None` as with [`all`].
pub fn ptx_compilers() -> Option<Vec<(String, PathBuf)>> {
    let fetched = store().and_then(|(store, _lock)| {
        if !cfg!(target_arch = "x86_64") {
            return Err("they are fetched for x86_64 only".to_owned());
        }
        let apt = apt::Apt::new(&store.join("apt"));
        let mut found = Vec::new();
        for branch in BRANCHES {
            let place = store.join(format!("ptx-compiler-{}", branch.version));
            let branch = Branch {
                packages: [branch.ptx_compiler; 2],
                ..branch
            };
            complete(&place, |folder| apt.fetch(branch, folder))?;
            found.push(apt::library(&place, "libnvidia-ptxjitcompiler")?);
        }
        Ok(found)
    });
    match fetched {
        Ok(found) => Some(found),
        Err(why) => {
            not_run(&format!("NVIDIA's compilers of PTX cannot be had: {why}"));
            None
        }
    }
}

/// Says that a test, or a part of one, is not run; under CI that is a failure.
pub fn not_run(why: &str) {
    let under_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty() && ci != "false");
    assert!(!under_ci, "not run, and under CI it must be: {why}");
    left_out(why);
}

/// Says that a test, or a part of one, is left out since it does not apply here.
pub fn left_out(why: &str) {
    let test = std::thread::current();
    say(&format!(
        "{}: NOT RUN: {why}",
        test.name().unwrap_or("a test")
    ));
}

/// Says something whether or not the test passes: the test harness holds back what `println!` writes, not this.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Fetches what is not there yet. One process and one thread at a time: the others wait at the lock file.
fn fetch() -> Result<Parts, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("they are fetched for x86_64 only".to_owned());
    }
    let (store, _lock) = store()?;
    let unpacked = |wheel: Wheel| {
        let place = store.join(format!("{}-{}", wheel.name, wheel.version));
        complete(&place, |folder| pip::fetch(wheel, folder)).map(|()| (wheel, place))
    };
    let runtimes = RUNTIMES
        .into_iter()
        .map(unpacked)
        .collect::<Result<_, _>>()?;
    let headers = HEADERS
        .into_iter()
        .map(unpacked)
        .collect::<Result<_, _>>()?;
    let apt = apt::Apt::new(&store.join("apt"));
    let drivers = BRANCHES
        .into_iter()
        .map(|branch| {
            let place = store.join(format!("driver-{}", branch.version));
            complete(&place, |folder| apt.fetch(branch, folder))?;
            apt::driver(branch, &place)
        })
        .collect::<Result<_, _>>()?;
    Ok(Parts {
        runtimes,
        drivers,
        headers,
    })
}

/// The folder of what was fetched, and the lock that keeps others out of it until it is dropped.
pub fn store() -> Result<(PathBuf, File), String> {
    let store = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap()
        .join("parts");
    let io = |e: std::io::Error| format!("{}: {e}", store.display());
    fs::create_dir_all(&store).map_err(io)?;
    let lock = File::create(store.join("lock")).map_err(io)?;
    lock.lock().map_err(io)?;
    Ok((store, lock))
}

/// One more wheel, unpacked; what it holds belongs into site-packages.
pub fn wheel(wheel: Wheel) -> Result<PathBuf, String> {
    let (store, _lock) = store()?;
    let place = store.join(format!("{}-{}", wheel.name, wheel.version));
    complete(&place, |folder| pip::fetch(wheel, folder))?;
    Ok(place)
}

/// Fills a folder beside its place and moves it there when it is complete: what lies at the place is whole.
pub fn complete(
    place: &Path,
    fill: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<(), String> {
    if place.is_dir() {
        return Ok(());
    }
    let io = |e: std::io::Error| format!("{}: {e}", place.display());
    let beside = tempfile::tempdir_in(place.parent().unwrap()).map_err(io)?;
    let folder = beside.path().join("part");
    fs::create_dir(&folder).map_err(io)?;
    fill(&folder)?;
    fs::rename(&folder, place).map_err(io)
}

/// Runs a program to its end; its standard output, or in one line what went wrong.
pub fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().display().to_string();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last: Vec<&str> = said
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = last.iter().rev().take(3).rev();
    let last: Vec<&str> = last.copied().collect();
    Err(format!(
        "{program}: {}: {}",
        output.status,
        last.join(" / ")
    ))
}
