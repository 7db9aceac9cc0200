//! What the vendor libraries and `open()` answer on a described host, as the child that asks them would record it.
//!
//! The answers follow from the tree (which file the loader takes) and from what the host says in `dlopen`, `stubs` and
//! `open`. Nothing is loaded or opened.

use std::collections::BTreeMap;

use gpudoctor::facts::{
    Call, Calls, ChildEnd, Confinement, DeviceAnswer, LibraryAnswers, OpenAnswer, Reading, User,
    VendorFacts,
};

use super::host::{Answer, ElfFile, Host};
use super::layout::prefix_of;
use super::loader::{Loaded, Loader};
use super::tree::Tree;

/// Deadline that a hanging call is killed after, in milliseconds.
const DEADLINE_MS: u64 = 30_000;
/// The signal of an invalid memory access.
const SIGSEGV: i32 = 11;
/// `CUDA_ERROR_STUB_LIBRARY`.
const CUDA_STUB_LIBRARY: i64 = 34;
/// `cudaErrorInsufficientDriver`.
const CUDA_INSUFFICIENT_DRIVER: i64 = 35;
/// `CUDA_ERROR_NO_DEVICE`.
const CUDA_NO_DEVICE: i64 = 100;
/// `NVML_ERROR_LIBRARY_NOT_FOUND`.
const NVML_LIBRARY_NOT_FOUND: i64 = 12;
/// `NVML_ERROR_GPU_IS_LOST`.
const NVML_GPU_IS_LOST: i64 = 15;

/// Whether calls with side effects are made: only where a driver seems to be loaded.
pub fn calls(host: &Host, tree: &Tree) -> Calls {
    let loaded = [
        "/sys/module/nvidia",
        "/proc/driver/nvidia/version",
        "/sys/module/nvgpu",
    ];
    let in_kernel = host
        .files
        .get("/proc/modules")
        .is_some_and(|text| text.lines().any(|l| l.starts_with("nvgpu ")));
    let by_node = host
        .nodes
        .iter()
        .any(|node| node.path == "/dev/dxg" || node.path.starts_with("/dev/nvgpu/"));
    if in_kernel || by_node || loaded.iter().any(|path| tree.resolve(path).is_some()) {
        Calls::Made
    } else {
        Calls::NoDriver
    }
}

/// All answers.
pub fn vendor(
    host: &Host,
    loader: &Loader<'_>,
    environment: &BTreeMap<String, String>,
    user: &User,
    calls: Calls,
) -> VendorFacts {
    let made = calls == Calls::Made;
    let libcuda = ask(loader, "libcuda.so.1", |path, file| {
        let cuda = Cuda::of(host, file, environment);
        cuda.answers(path, host, made)
    });
    let libnvidia_ml = ask(loader, "libnvidia-ml.so.1", |path, file| {
        nvml(path, host, file, made)
    });
    let driver = match loader.open("libcuda.so.1") {
        Loaded::File(path) => {
            described(loader, host, &path).map(|file| Cuda::of(host, file, environment))
        }
        _ => None,
    };
    let cudart: Vec<_> = cudart_files(host, loader, environment)
        .into_iter()
        .map(|(path, file)| cudart(&path, runtime_level(host, file), driver.as_ref(), made))
        .collect();
    VendorFacts {
        libcuda: libcuda(host),
        libnvidia_ml: libnvidia_ml(host),
        cudart: if cudart.is_empty() {
            Reading::absent("no libcudart is reached")
        } else {
            Reading::present(cudart, "the runtimes that are reached")
        },
        opens: if made {
            Reading::present(opens(host, user), "open()")
        } else {
            Reading::absent("no driver seems loaded, so nothing was opened")
        },
        confined: Reading::present(
            Confinement {
                no_new_privs: true,
                read_only_dev: user.uid == 0,
                dropped_capabilities: user.uid == 0,
            },
            "the child",
        ),
    }
}

/// Loads `name` and asks the file that the loader takes.
fn ask<'a>(
    loader: &'a Loader<'_>,
    name: &'static str,
    answers: impl Fn(&str, &ElfFile) -> LibraryAnswers + 'a,
) -> impl FnOnce(&Host) -> Reading<LibraryAnswers> + 'a {
    move |host| match loader.open(name) {
        Loaded::Missing => Reading::absent(format!("the loader's search for {name}")),
        Loaded::Refused(path, message) => {
            let call = Call {
                name: "dlopen".to_owned(),
                text: Some(message),
                ..Call::default()
            };
            let answers = LibraryAnswers {
                path: path.clone(),
                calls: vec![call],
                end: ChildEnd::Finished,
                devices: Vec::new(),
            };
            Reading::present(answers, path)
        }
        Loaded::File(path) => {
            let file = described(loader, host, &path)
                .unwrap_or_else(|| panic!("{}: {path}: no elf entry", host.case));
            Reading::present(answers(&path, file), path.clone())
        }
    }
}

/// The entry of the host that describes the file at `path`.
fn described<'a>(loader: &Loader<'_>, host: &'a Host, path: &str) -> Option<&'a ElfFile> {
    let real = loader.tree.resolve(path)?;
    host.elf
        .iter()
        .find(|file| loader.tree.resolve(&file.path).as_ref() == Some(&real))
}

/// A call that came back with a code.
fn code(name: &str, code: i64) -> Call {
    Call {
        name: name.to_owned(),
        code: Some(code),
        ..Call::default()
    }
}

/// A call that came back with 0 and a number.
fn number(name: &str, number: i64) -> Call {
    Call {
        number: Some(number),
        ..code(name, 0)
    }
}

/// A call that did not come back.
fn lost_call(name: &str) -> Call {
    Call {
        name: name.to_owned(),
        ..Call::default()
    }
}

/// How a libcuda behaves.
struct Cuda {
    /// Its level, or the code of `cuDriverGetVersion`.
    level: Result<i64, i64>,
    init: i64,
    count: i64,
    /// The call that it does not come back from, and how that ends.
    dies: Option<(&'static str, ChildEnd)>,
}

impl Cuda {
    fn of(host: &Host, file: &ElfFile, environment: &BTreeMap<String, String>) -> Self {
        if let Some(stub) = stub(host, &file.path) {
            let value = |name: &str| stub.get(name).and_then(Answer::code);
            return Self {
                level: value("VERSION_CODE")
                    .map_or(Ok(value("DRIVER_VERSION").unwrap_or(12040)), Err),
                init: value("INIT_CODE").unwrap_or(0),
                count: value("DEVICE_COUNT").unwrap_or(1),
                dies: deadly(stub, "cuInit", "cuDriverGetVersion"),
            };
        }
        let told = &host.dlopen;
        let (mut level, mut init) = (&told.driver_level, &told.cu_init);
        if file.path.contains("/wsl/") && told.cu_init_wsl.is_some() {
            (level, init) = (
                told.driver_level_wsl
                    .as_ref()
                    .map_or(level, |_| &told.driver_level_wsl),
                &told.cu_init_wsl,
            );
        } else if told.libcuda_system.as_ref() == Some(&file.path) {
            level = told
                .driver_level_system
                .as_ref()
                .map_or(level, |_| &told.driver_level_system);
            init = told
                .cu_init_system
                .as_ref()
                .map_or(init, |_| &told.cu_init_system);
        }
        if file.is_stub {
            return Self {
                level: Err(CUDA_STUB_LIBRARY),
                init: CUDA_STUB_LIBRARY,
                count: 0,
                dies: None,
            };
        }
        let mut init = init.as_ref().and_then(Answer::code).unwrap_or(0);
        // The code is what the variable makes of it: without the variable the driver works.
        if init == CUDA_NO_DEVICE && host.env.contains_key("CUDA_VISIBLE_DEVICES") {
            init = if environment.contains_key("CUDA_VISIBLE_DEVICES") {
                init
            } else {
                0
            };
        }
        let count = told
            .cu_device_count
            .as_ref()
            .or(told.nvml_device_count.as_ref())
            .and_then(Answer::code);
        let level = level.as_ref();
        Self {
            level: level
                .and_then(Answer::number)
                .ok_or_else(|| level.and_then(Answer::code).unwrap_or(CUDA_STUB_LIBRARY)),
            init,
            count: count.unwrap_or_else(|| driver_gpus(host).max(1)),
            dies: None,
        }
    }

    /// The code that counting GPUs gives.
    fn count_code(&self) -> i64 {
        if self.count > 0 { 0 } else { CUDA_NO_DEVICE }
    }

    fn answers(&self, path: &str, host: &Host, made: bool) -> LibraryAnswers {
        let mut calls = Vec::new();
        let mut devices = Vec::new();
        let mut end = ChildEnd::Finished;
        let version = match self.level {
            Ok(level) => number("cuDriverGetVersion", level),
            Err(error) => code("cuDriverGetVersion", error),
        };
        let mut planned = vec![code("dlopen", 0), version];
        if made {
            planned.push(code("cuInit", self.init));
            if self.init == 0 {
                planned.push(Call {
                    code: Some(self.count_code()),
                    ..number("cuDeviceGetCount", self.count)
                });
                devices = devices_of(host, self.count, None);
            }
        }
        for call in planned {
            if let Some((deadly, how)) = self.dies.as_ref().filter(|(name, _)| *name == call.name) {
                calls.push(lost_call(deadly));
                end = how.clone();
                devices.clear();
                break;
            }
            calls.push(call);
        }
        LibraryAnswers {
            path: path.to_owned(),
            calls,
            end,
            devices,
        }
    }
}

/// The entry of `stubs` for a path.
fn stub<'a>(host: &'a Host, path: &str) -> Option<&'a BTreeMap<String, Answer>> {
    host.stubs
        .iter()
        .find(|(pattern, _)| matches(pattern.as_bytes(), path.as_bytes()))
        .map(|(_, stub)| stub)
}

/// Whether a text is of a pattern in which `*` stands for any number of characters and `?` for one.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| matches(rest, &text[skip..])),
        ([b'?', pattern @ ..], [_, text @ ..]) => matches(pattern, text),
        ([a, pattern @ ..], [b, text @ ..]) if a == b => matches(pattern, text),
        _ => false,
    }
}

/// The call that a stub does not come back from.
fn deadly(
    stub: &BTreeMap<String, Answer>,
    init: &'static str,
    version: &'static str,
) -> Option<(&'static str, ChildEnd)> {
    let timed_out = |call: &str| ChildEnd::TimedOut {
        call: call.to_owned(),
        after_ms: DEADLINE_MS,
    };
    let signal = |call: &str| ChildEnd::Signal {
        call: call.to_owned(),
        signal: SIGSEGV,
    };
    if stub.contains_key("CRASH_ON_LOAD") {
        Some(("dlopen", signal("dlopen")))
    } else if stub.contains_key("HANG_ON_VERSION") {
        Some((version, timed_out(version)))
    } else if stub.contains_key("HANG_ON_INIT") {
        Some((init, timed_out(init)))
    } else if stub.contains_key("CRASH_ON_INIT") {
        Some((init, signal(init)))
    } else if stub.contains_key("EXIT_ON_INIT") {
        Some((
            init,
            ChildEnd::Exited {
                call: init.to_owned(),
                code: 7,
            },
        ))
    } else {
        None
    }
}

/// The answers of a libnvidia-ml.
fn nvml(path: &str, host: &Host, file: &ElfFile, made: bool) -> LibraryAnswers {
    let mut calls = vec![code("dlopen", 0)];
    let mut devices = Vec::new();
    let mut end = ChildEnd::Finished;
    let told = &host.dlopen;
    let stub = stub(host, &file.path);
    let value = |name: &str| stub.and_then(|stub| stub.get(name)).and_then(Answer::code);
    let init = value("INIT_CODE").unwrap_or_else(|| match &told.nvml_init {
        Some(answer) => answer.code().unwrap_or(NVML_LIBRARY_NOT_FOUND),
        None => 0,
    });
    let dies = stub.and_then(|stub| deadly(stub, "nvmlInit_v2", "nvmlInit_v2"));
    if let Some((call, how)) = dies.filter(|(call, _)| made || *call == "dlopen") {
        calls.retain(|c| c.name != call);
        calls.push(lost_call(call));
        end = how;
    } else if made {
        calls.push(code("nvmlInit_v2", init));
        if init == 0 {
            let text = Some(file.version.clone());
            calls.push(Call {
                text,
                ..code("nvmlSystemGetDriverVersion", 0)
            });
            let told_count = told.nvml_device_count.as_ref().and_then(Answer::code);
            let count = value("DEVICE_COUNT")
                .or(told_count)
                .unwrap_or_else(|| driver_gpus(host).max(1));
            calls.push(number("nvmlDeviceGetCount_v2", count));
            devices = devices_of(host, count, told.lost);
        }
    }
    LibraryAnswers {
        path: path.to_owned(),
        calls,
        end,
        devices,
    }
}

/// The answers of a libcudart, which asks the libcuda that the same loader gives it.
fn cudart(path: &str, level: u32, driver: Option<&Cuda>, made: bool) -> LibraryAnswers {
    let major = level / 1000;
    // What cudaGetDeviceCount answers: first whether the driver is new enough, then what cuInit says.
    let usable = match driver {
        None => CUDA_INSUFFICIENT_DRIVER,
        Some(Cuda {
            level: Err(error), ..
        }) => *error,
        Some(Cuda {
            level: Ok(have), ..
        }) if *have < i64::from(major) * 1000 => CUDA_INSUFFICIENT_DRIVER,
        Some(cuda) if cuda.init != 0 => cuda.init,
        Some(cuda) => cuda.count_code(),
    };
    // One of 11.x does not tell its own version where no GPU can be used; of older ones nobody has measured it.
    let version = match usable {
        error if major == 11 && error != 0 => code("cudaRuntimeGetVersion", error),
        _ => number("cudaRuntimeGetVersion", i64::from(level)),
    };
    let driver_version = match driver.map(|cuda| cuda.level) {
        None => number("cudaDriverGetVersion", 0),
        Some(Ok(have)) => number("cudaDriverGetVersion", have),
        Some(Err(error)) => code("cudaDriverGetVersion", error),
    };
    let mut calls = vec![code("dlopen", 0), version, driver_version];
    if made {
        calls.push(match (usable, driver) {
            (0, Some(cuda)) => number("cudaGetDeviceCount", cuda.count),
            // On an error the count is not set.
            (error, _) => code("cudaGetDeviceCount", error),
        });
    }
    LibraryAnswers {
        path: path.to_owned(),
        calls,
        end: ChildEnd::Finished,
        devices: Vec::new(),
    }
}

/// The libcudart files that the consumer reaches: those inside its environment, then what its loader finds.
fn cudart_files<'a>(
    host: &'a Host,
    loader: &Loader<'_>,
    environment: &BTreeMap<String, String>,
) -> Vec<(String, &'a ElfFile)> {
    let all: Vec<&ElfFile> = host
        .elf
        .iter()
        .filter(|file| file_name(&file.path).starts_with("libcudart.so"))
        .collect();
    let mut folders: Vec<String> = host
        .python
        .iter()
        .map(|distribution| format!("{}/", distribution.site))
        .collect();
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        folders.extend(environment.get(name).map(|prefix| format!("{prefix}/lib/")));
    }
    if let Some((prefix, _)) = host.python.first().and_then(|first| prefix_of(&first.site)) {
        // A system interpreter's libraries are found by the loader, or not at all.
        if !["/usr", "/usr/local"].contains(&prefix) {
            folders.push(format!("{prefix}/lib/"));
        }
    }
    let mut found: Vec<(String, &ElfFile)> = all
        .iter()
        .filter(|file| folders.iter().any(|folder| file.path.starts_with(folder)))
        .map(|file| (file.path.clone(), *file))
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let mut sonames: Vec<&str> = all.iter().map(|file| file.soname.as_str()).collect();
    sonames.sort_unstable();
    sonames.dedup();
    for soname in sonames {
        let Loaded::File(path) = loader.open(soname) else {
            continue;
        };
        if let Some(file) = described(loader, host, &path)
            && found.iter().all(|(_, known)| known.path != file.path)
        {
            found.push((path, file));
        }
    }
    found
}

/// The level that a libcudart answers: what the host says of it, else what follows from its version.
pub fn runtime_level(host: &Host, file: &ElfFile) -> u32 {
    let told = host
        .dlopen
        .runtime_level
        .filter(|_| host.dlopen.libcudart.as_ref() == Some(&file.path));
    told.unwrap_or_else(|| {
        gpudoctor::version::Version::parse(&file.version).map_or(12000, |v| v.cuda_level())
    })
}

/// The CUDA major version of the driver, as its libnvidia-ml names it.
pub fn cuda_major(host: &Host) -> i64 {
    host.dlopen
        .driver_level
        .as_ref()
        .and_then(Answer::number)
        .unwrap_or(12000)
        / 1000
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// How many GPUs the kernel module lists.
fn driver_gpus(host: &Host) -> i64 {
    i64::try_from(
        host.files
            .keys()
            .filter(|path| gpu_address(path).is_some())
            .count(),
    )
    .unwrap()
}

/// The PCI address in `/proc/driver/nvidia/gpus/ADDRESS/information`.
fn gpu_address(path: &str) -> Option<&str> {
    path.strip_prefix("/proc/driver/nvidia/gpus/")?
        .strip_suffix("/information")
}

/// The GPUs that a library names, `count` of them; beyond the last one described they are like the last.
fn devices_of(host: &Host, count: i64, lost: Option<u32>) -> Vec<DeviceAnswer> {
    let rows = gpu_rows(host);
    let count = u32::try_from(count).unwrap_or(0);
    (0..count)
        .map(|index| {
            if lost == Some(index) {
                return DeviceAnswer {
                    index,
                    code: NVML_GPU_IS_LOST,
                    ..DeviceAnswer::default()
                };
            }
            let row = &rows[(index as usize).min(rows.len() - 1)];
            DeviceAnswer {
                index,
                ..row.clone()
            }
        })
        .collect()
}

/// What is told of each GPU, at least one.
fn gpu_rows(host: &Host) -> Vec<DeviceAnswer> {
    let mut told: Vec<(String, Option<String>, Option<String>)> = Vec::new();
    for gpu in &host.dlopen.gpus {
        told.push((
            gpu.bus.clone().unwrap_or_else(|| "0000:01:00.0".to_owned()),
            Some(gpu.name.clone()),
            None,
        ));
    }
    if told.is_empty() {
        for (path, text) in &host.files {
            if let Some(address) = gpu_address(path) {
                let field = |name: &str| {
                    let value = text
                        .lines()
                        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
                    Some(value.trim().to_owned())
                };
                told.push((address.to_owned(), field("Model"), field("GPU UUID")));
            }
        }
    }
    if told.is_empty() {
        told.extend(pci_gpus(host).map(|address| (address, None, None)));
    }
    if told.is_empty() {
        told.push(("0000:41:00.0".to_owned(), None, None));
    }
    let capabilities: Vec<(u32, u32)> = host
        .dlopen
        .compute_capability
        .iter()
        .map(|text| capability(text))
        .collect();
    let row = |(i, (address, name, uuid)): (usize, (String, Option<String>, Option<String>))| {
        DeviceAnswer {
            index: 0,
            code: 0,
            name: Some(name.unwrap_or_else(|| "NVIDIA GPU".to_owned())),
            capability: capabilities.get(i).or(capabilities.last()).copied(),
            address: Some(address),
            uuid: Some(
                uuid.unwrap_or_else(|| format!("GPU-00000000-0000-4000-8000-{:012}", i + 1)),
            ),
        }
    };
    told.into_iter().enumerate().map(row).collect()
}

/// Addresses of NVIDIA's display and 3D controllers.
fn pci_gpus(host: &Host) -> impl Iterator<Item = String> + '_ {
    host.files.iter().filter_map(|(path, text)| {
        let device = path.strip_suffix("/vendor")?;
        let address = device.strip_prefix("/sys/bus/pci/devices/")?;
        let class = host.files.get(&format!("{device}/class"));
        (text.trim() == "0x10de" && class.is_none_or(|c| c.starts_with("0x03")))
            .then(|| address.to_owned())
    })
}

fn capability(text: &str) -> (u32, u32) {
    let (major, minor) = text.split_once('.').unwrap_or((text, "0"));
    let number = |part: &str| {
        part.parse()
            .unwrap_or_else(|e| panic!("compute capability {text}: {e}"))
    };
    (number(major), number(minor))
}

/// What opening the nodes answers: what the host says; else what the mode bits say. Nodes of MIG capabilities are
/// opened by nobody who only looks.
fn opens(host: &Host, user: &User) -> Vec<OpenAnswer> {
    let mut answers = Vec::new();
    for node in &host.nodes {
        let fact = node.fact();
        let result = match host.open.get(&node.path) {
            Some(told) => told.as_str(),
            None if node.path.starts_with("/dev/nvidia-caps/") => continue,
            None if user.may_read_write(fact.mode, fact.uid, fact.gid) => "ok",
            None => "EACCES",
        };
        answers.push(OpenAnswer {
            path: node.path.clone(),
            result: result.to_owned(),
        });
    }
    answers
}
