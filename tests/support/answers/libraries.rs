//! libcuda, libnvidia-ml and libcudart of a described host: which calls are made and what comes back.

use std::collections::BTreeMap;

use gpudoctor::facts::{Call, ChildEnd, DeviceAnswer, LibraryAnswers};

use super::super::host::{Answer, ElfFile, Host};
use super::gpus::{devices_of, driver_gpus, nvml_devices};

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
pub(super) struct Cuda {
    /// Its level, or the code of `cuDriverGetVersion`.
    level: Result<i64, i64>,
    init: i64,
    count: i64,
    /// The call that it does not come back from, and how that ends.
    dies: Option<(&'static str, ChildEnd)>,
    /// What it prints in `cuInit`.
    prints: Option<String>,
    /// How long its `cuInit` takes, in milliseconds.
    slow_ms: Option<u64>,
}

impl Cuda {
    pub(super) fn of(host: &Host, file: &ElfFile) -> Self {
        if let Some(stub) = stub(host, &file.path) {
            let value = |name: &str| stub.get(name).and_then(Answer::code);
            return Self {
                level: value("VERSION_CODE")
                    .map_or(Ok(value("DRIVER_VERSION").unwrap_or(12040)), Err),
                init: value("INIT_CODE").unwrap_or(0),
                count: value("DEVICE_COUNT").unwrap_or(1),
                dies: deadly(stub, "cuInit", "cuDriverGetVersion"),
                prints: match stub.get("PRINT_ON_INIT") {
                    Some(Answer::Text(text)) => Some(text.clone()),
                    _ => None,
                },
                slow_ms: value("SLOW_ON_INIT").and_then(|ms| u64::try_from(ms).ok()),
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
                prints: None,
                slow_ms: None,
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
            init: init.as_ref().and_then(Answer::code).unwrap_or(0),
            count: count.unwrap_or_else(|| driver_gpus(host).max(1)),
            dies: None,
            prints: None,
            slow_ms: None,
        }
    }

    /// The same libcuda in a process from whose environment nothing hides GPUs.
    pub(super) fn unhidden(self, host: &Host) -> Self {
        Self {
            init: 0,
            count: driver_gpus(host).max(1),
            ..self
        }
    }

    /// The code that counting GPUs gives.
    fn count_code(&self) -> i64 {
        if self.count > 0 { 0 } else { CUDA_NO_DEVICE }
    }

    pub(super) fn answers(&self, path: &str, host: &Host, made: bool) -> LibraryAnswers {
        let mut calls = Vec::new();
        let mut devices = Vec::new();
        let mut end = ChildEnd::Finished;
        let version = match self.level {
            Ok(level) => number("cuDriverGetVersion", level),
            Err(error) => code("cuDriverGetVersion", error),
        };
        let mut planned = vec![code("dlopen", 0), version];
        if made {
            planned.push(Call {
                printed: self.prints.clone(),
                slow_ms: self.slow_ms,
                ..code("cuInit", self.init)
            });
            if self.init == 0 {
                planned.push(match self.count_code() {
                    0 => number("cuDeviceGetCount", self.count),
                    error => code("cuDeviceGetCount", error),
                });
                // libcuda is not asked for the UUIDs.
                let named = devices_of(host, self.count, None);
                devices = named
                    .into_iter()
                    .map(|device| DeviceAnswer {
                        uuid: None,
                        ..device
                    })
                    .collect();
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
            ..LibraryAnswers::default()
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
pub(super) fn nvml(
    path: &str,
    host: &Host,
    file: &ElfFile,
    driver: Option<&Cuda>,
) -> LibraryAnswers {
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
    if let Some((call, how)) = dies {
        calls.retain(|c| c.name != call);
        calls.push(lost_call(call));
        end = how;
    } else {
        calls.push(code("nvmlInit_v2", init));
        if init == 0 {
            let text = Some(file.version.clone());
            calls.push(Call {
                text,
                ..code("nvmlSystemGetDriverVersion", 0)
            });
            // It asks the libcuda that the same loader gives it. What it makes of a stub nobody has measured.
            match driver.map(|cuda| cuda.level) {
                None => calls.push(code(
                    "nvmlSystemGetCudaDriverVersion_v2",
                    NVML_LIBRARY_NOT_FOUND,
                )),
                Some(Ok(level)) => calls.push(number("nvmlSystemGetCudaDriverVersion_v2", level)),
                Some(Err(_)) => {}
            }
            let told_count = told.nvml_device_count.as_ref().and_then(Answer::code);
            let count = value("DEVICE_COUNT")
                .or(told_count)
                .unwrap_or_else(|| driver_gpus(host).max(1));
            calls.push(number("nvmlDeviceGetCount_v2", count));
            devices = nvml_devices(host, count);
            calls.push(code("nvmlShutdown", 0));
        }
    }
    LibraryAnswers {
        path: path.to_owned(),
        calls,
        end,
        devices,
        ..LibraryAnswers::default()
    }
}

/// The answers of a libcudart, which asks the libcuda that the same loader gives it.
pub(super) fn cudart(path: &str, level: u32, driver: Option<&Cuda>, made: bool) -> LibraryAnswers {
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
    let mut calls = vec![code("dlopen", 0)];
    // Up to 11.x the version call initialises the driver, so it counts as an init call.
    if made || major >= 12 {
        calls.push(version);
    }
    calls.push(driver_version);
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
        ..LibraryAnswers::default()
    }
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
