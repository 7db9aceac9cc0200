//! The toolchain: every nvcc that a build would take, in the order of `torch.utils.cpp_extension` (`CUDA_HOME`, else
//! `CUDA_PATH`, else the one on `PATH`, else `/usr/local/cuda`) and of `CMake` (`CUDACXX`, else `PATH`), what its own
//! headers say, and the host compilers beside it.
//!
//! No compiler is run. Where there is no nvcc, nothing but the places where one would lie is looked at.

mod compilers;
mod requests;
mod signs;

use std::collections::BTreeMap;

use crate::facts::{Consumer, ConsumerKind, CudaHome, Nvcc, NvccFoundBy, Reading, ToolchainFacts};
use crate::probe::loader::toolkit_folders;
use crate::read::window::bytes_up_to;
use crate::read::{proc, recipes, toolchain};
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};
use crate::version::Version;

/// The most of a header that is read, in bytes: `crt/math_functions.h` has 240 kB.
const HEADER_CAP: usize = 1 << 20;
/// Where `PyTorch` looks last.
const DEFAULT_FOLDER: &str = "/usr/local/cuda";

pub(super) fn probe(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    working_folder: Option<&str>,
    consumer: &Consumer,
) -> ToolchainFacts {
    let places = Places { sysroot, env };
    let homes = places.homes();
    let nvcc = nvccs(&places, &homes, consumer);
    let signs = if nvcc.is_empty() && homes.is_empty() {
        Reading::absent("no toolkit was found or named")
    } else {
        Reading::present(
            signs::find(&places, working_folder, consumer),
            "variables, the working folder, the environment, extensions built before",
        )
    };
    let mut requests_unread = Vec::new();
    let requests = if nvcc.is_empty() && homes.is_empty() {
        Reading::absent("no toolkit was found or named")
    } else {
        Reading::present(
            requests::find(&places, working_folder, &mut requests_unread),
            "variables, build folders of the working folder",
        )
    };
    let looked_in = "CUDA_HOME, CUDA_PATH, CUDACXX, PATH, /usr/local/cuda*, the environment";
    ToolchainFacts {
        requests,
        requests_unread,
        compilers: if nvcc.is_empty() {
            Reading::absent("no nvcc that would call one")
        } else {
            Reading::present(
                compilers::find(&places, &nvcc),
                "variables, the folders of nvcc, PATH",
            )
        },
        nvcc: if nvcc.is_empty() {
            Reading::absent(looked_in)
        } else {
            Reading::present(nvcc, looked_in)
        },
        homes: if homes.is_empty() {
            Reading::absent("CUDA_HOME, CUDA_PATH")
        } else {
            Reading::present(homes, "environment")
        },
        signs,
    }
}

/// Where programs are looked for.
struct Places<'a> {
    sysroot: &'a Sysroot,
    env: &'a BTreeMap<String, String>,
}

impl Places<'_> {
    /// A variable that is set to something.
    fn variable(&self, name: &str) -> Option<&str> {
        self.env
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    /// Whether a program lies there: a file that somebody may execute.
    fn is_program(&self, path: &str) -> bool {
        self.sysroot
            .stat(path)
            .value()
            .is_some_and(|stat| stat.kind == Kind::File && stat.mode & 0o111 != 0)
    }

    /// Absolute folders of `PATH`; an empty or relative one depends on where a build starts, and is left out.
    fn path(&self) -> impl Iterator<Item = &str> {
        self.variable("PATH")
            .unwrap_or_default()
            .split(':')
            .filter(|dir| dir.starts_with('/'))
    }

    /// The program that `PATH` gives for a name; what only passes calls on is passed over.
    fn on_path(&self, name: &str) -> Option<String> {
        self.path()
            .map(|dir| join(dir, name))
            .find(|path| self.is_program(path) && !self.is_wrapper(path))
    }

    fn is_wrapper(&self, path: &str) -> bool {
        self.sysroot
            .real_path(path)
            .value()
            .is_some_and(|real| toolchain::is_wrapper(file_name(real)))
    }

    /// The variables that name a toolkit folder.
    fn homes(&self) -> Vec<CudaHome> {
        ["CUDA_HOME", "CUDA_PATH"]
            .into_iter()
            .filter_map(|variable| {
                let folder = self.variable(variable)?;
                let nvcc = join(folder, "bin/nvcc");
                Some(CudaHome {
                    variable: variable.to_owned(),
                    folder: folder.to_owned(),
                    // A relative folder is one of the build's working folder, which is not known.
                    nvcc: if folder.starts_with('/') {
                        self.sysroot.stat(&nvcc).map(|_| nvcc)
                    } else {
                        Reading::unreadable(format!("{variable}: `{folder}` is no absolute path"))
                    },
                })
            })
            .collect()
    }
}

/// Every nvcc, each once, with all ways to it.
fn nvccs(places: &Places<'_>, homes: &[CudaHome], consumer: &Consumer) -> Vec<Nvcc> {
    let by_variable = homes.iter().filter_map(|home| {
        let by = if home.variable == "CUDA_HOME" {
            NvccFoundBy::CudaHome
        } else {
            NvccFoundBy::CudaPath
        };
        Some((home.nvcc.value()?.clone(), by))
    });
    let mut found: Vec<(String, NvccFoundBy)> = by_variable.collect();
    let cudacxx = places
        .variable("CUDACXX")
        .and_then(toolchain::compiler_word)
        .and_then(|word| {
            if word.starts_with('/') {
                Some(word.to_owned())
            } else {
                places.on_path(word)
            }
        });
    // Clang compiles CUDA code too, and is no nvcc.
    found.extend(
        cudacxx
            .filter(|path| file_name(path) == "nvcc")
            .map(|path| (path, NvccFoundBy::Cudacxx)),
    );
    found.extend(places.on_path("nvcc").map(|path| (path, NvccFoundBy::Path)));
    found.push((join(DEFAULT_FOLDER, "bin/nvcc"), NvccFoundBy::DefaultFolder));
    found.extend(
        environment_folders(consumer, places.sysroot)
            .into_iter()
            .map(|dir| (join(&dir, "bin/nvcc"), NvccFoundBy::Environment)),
    );
    found.extend(
        toolkit_folders(places.sysroot)
            .into_iter()
            .map(|dir| (join(&dir, "bin/nvcc"), NvccFoundBy::Toolkit)),
    );

    let mut nvccs: Vec<Nvcc> = Vec::new();
    for (path, by) in found {
        if !places.is_program(&path) {
            continue;
        }
        let program = program_of(places.sysroot, &path);
        match nvccs.iter_mut().find(|nvcc| nvcc.program == program) {
            Some(nvcc) if nvcc.is_by(by) => {}
            Some(nvcc) => nvcc.found_by.push(by),
            None => nvccs.push(read(places.sysroot, path, program, by)),
        }
    }
    nvccs
}

/// Folders of an environment that hold an nvcc in their `bin`: conda's prefix, the wheels of CUDA 12 and 13.
fn environment_folders(consumer: &Consumer, sysroot: &Sysroot) -> Vec<String> {
    if consumer.kind != ConsumerKind::Environment {
        return Vec::new();
    }
    let mut folders: Vec<String> = consumer.prefix.value().cloned().into_iter().collect();
    for site in &consumer.site_packages {
        let nvidia = join(site, "nvidia");
        let wheels = sysroot.list(&nvidia, |name| {
            name == "cuda_nvcc" || name.starts_with("cu1")
        });
        folders.extend(wheels.items().iter().map(|name| join(&nvidia, name)));
    }
    folders
}

/// The program that a path leads to: links followed, and a script that does nothing but start another one.
fn program_of(sysroot: &Sysroot, path: &str) -> String {
    let real = sysroot.real_path(path).value().cloned();
    let real = real.unwrap_or_else(|| path.to_owned());
    let target = sysroot.file(&real).value().and_then(|file| {
        let start = bytes_up_to(file, 0, crate::sysroot::TEXT_CAP);
        toolchain::script_target(&String::from_utf8_lossy(&start)).map(str::to_owned)
    });
    target
        .and_then(|target| sysroot.real_path(&target).value().cloned())
        .unwrap_or(real)
}

/// One nvcc, read.
fn read(sysroot: &Sysroot, path: String, program: String, by: NvccFoundBy) -> Nvcc {
    let toolkit = parent(parent(&path)).to_owned();
    // Its headers lie in its own toolkit; Debian has them where the script lies, in /usr/include.
    let mut tops = vec![parent(parent(&program)), toolkit.as_str()];
    tops.dedup();
    let header = |name: &str| {
        let places = tops.iter().flat_map(|top| {
            [
                "include",
                "targets/x86_64-linux/include",
                "targets/sbsa-linux/include",
                "targets/aarch64-linux/include",
            ]
            .map(|sub| join(&join(top, sub), name))
        });
        let mut tried = String::new();
        for place in places {
            match sysroot.bytes(&place, HEADER_CAP) {
                Reading::Absent { source } if tried.is_empty() => tried = source,
                Reading::Absent { .. } => {}
                found => return found,
            }
        }
        Reading::absent(tried)
    };
    let limits = header("crt/host_config.h")
        .map(|bytes| toolchain::host_limits(&String::from_utf8_lossy(&bytes)));
    let plain_math = header("crt/math_functions.h").map(|bytes| toolchain::plain_math(&bytes));
    Nvcc {
        version: version(sysroot, &program),
        toolkit,
        limits,
        plain_math,
        path,
        program,
        found_by: vec![by],
    }
}

/// The version of an nvcc: (1) the text in the program, (2) the version file of its toolkit.
fn version(sysroot: &Sysroot, program: &str) -> Reading<Version> {
    let file = match sysroot.file(program) {
        Reading::Present { value, .. } => value,
        Reading::Absent { source } => return Reading::absent(source),
        Reading::Unreadable { reason } => return Reading::unreadable(reason),
    };
    if let Some(version) = recipes::tools_version(&file) {
        return Reading::present(version, program);
    }
    let top = parent(parent(program));
    for name in ["version.json", "version.txt"] {
        let path = join(top, name);
        let text = sysroot.text_up_to(&path, 1 << 14);
        if let Some(version) = text
            .value()
            .and_then(|text| proc::cuda_toolkit_version(text))
        {
            return Reading::present(version, path);
        }
    }
    Reading::unreadable(format!(
        "{program}: no version in it, and no version file in {top}"
    ))
}
