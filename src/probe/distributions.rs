//! The distributions of the consumer's environment that mean something to the GPU stack, by their own records and held
//! against the disk: (1) name and version from the names of `dist-info` and `egg-info` folders and of files in
//! `conda-meta`, (2) requirements from METADATA, (3) shared libraries from RECORD, each looked up on the disk.
//!
//! An environment has a hundred distributions; only those of [`is_relevant`] are opened. Nothing is run or imported.

use crate::facts::{
    ChangedFile, Consumer, ConsumerKind, FileKind, Installed, PythonFacts, Reading, RecordedFile,
};
use crate::probe::consumer::has_extension;
use crate::probe::loader::kind_of;
use crate::probe::search_path::{Site, resolved};
use crate::probe::{shared_files, unread};
use crate::read::{ReadAt, elf, pydist, record};
use crate::sysroot::{Sysroot, file_name, join, parent};

/// The most of a METADATA that is read, in bytes: its header comes first, and vLLM's with 150 lines has 10 kB.
const METADATA_CAP: usize = 64 << 10;
/// The most of a file in `conda-meta` that is read, in bytes; that of `PyTorch` with 12,000 files has 5 MB.
const CONDA_CAP: usize = 16 << 20;

/// Names of distributions that bring GPU libraries, frameworks or extensions. What a name begins with counts as well
/// where a `*` stands at its end.
const RELEVANT: &[&str] = &[
    "apex",
    "auto-gptq",
    "autoawq*",
    "bitsandbytes",
    "causal-conv1d",
    "ctranslate2",
    "cucim*",
    "cuda-*",
    "cudatoolkit",
    "cudf*",
    "cudnn",
    "cugraph*",
    "cuml*",
    "cupy",
    "cupy-*",
    "cusparselt",
    "cutensor*",
    "cuvs*",
    "deepspeed",
    "dgl*",
    "exllamav2",
    "faiss-*",
    "flash-attn*",
    "flashinfer*",
    "horovod",
    "intel-tensorflow*",
    "jax",
    "jax-*",
    "jaxlib",
    "libcu*",
    "libmagma*",
    "libnccl*",
    "libnpp*",
    "libnv*",
    "libraft*",
    "librmm*",
    "libtorch",
    "llama-cpp-python*",
    "lmdeploy",
    "magma*",
    "mamba-ssm",
    "mxnet*",
    "nccl",
    "numba",
    "numba-cuda*",
    "nvidia-*",
    "onnxruntime*",
    "paddlepaddle*",
    "pycuda",
    "pylibraft*",
    "pynccl*",
    "pynvml",
    "pyopencl",
    "pytorch",
    "pytorch-cuda",
    "pytorch-gpu",
    "pytorch-mutex",
    "pytorch-triton*",
    "rmm*",
    "sgl-kernel*",
    "sglang",
    "tensorflow*",
    "tensorrt*",
    "tf-nightly*",
    "torch",
    "torch-*",
    "torchao",
    "torchaudio",
    "torchcodec",
    "torchtext",
    "torchtriton",
    "torchvision",
    "transformer-engine*",
    "triton",
    "triton-*",
    "vllm*",
    "warp-lang",
    "xformers",
];

/// Programs that a distribution brought and does not compute without: Triton calls its own ptxas for each kernel. By
/// distribution and path below its folder; told where its record names them and they are not there.
const PROGRAMS: &[(&str, &str)] = &[
    ("pytorch-triton", "triton/backends/nvidia/bin/ptxas"),
    ("triton", "triton/backends/nvidia/bin/ptxas"),
];
/// The most of a RECORD that is searched for a program, in bytes; Triton's has 60 kB.
const RECORD_CAP: usize = 1 << 20;

/// Whether a distribution of this normalised name may bring something that runs on a GPU, or what that needs.
fn is_relevant(name: &str) -> bool {
    let rapids = ["-cu11", "-cu12", "-cu13"]
        .iter()
        .any(|end| name.ends_with(end));
    rapids
        || RELEVANT.iter().any(|known| match known.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *known,
        })
}

/// A distribution by its name alone: nothing of it has been opened.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) version: String,
    /// The folder that it is installed in; of a conda package the prefix.
    pub(super) site: String,
    /// Its `dist-info` or `egg-info`, or its file in `conda-meta`.
    pub(super) metadata: String,
}

/// Those that matter in the folders of a search path and among the packages of a conda environment.
pub(super) fn named(sysroot: &Sysroot, sites: &[Site], prefix: &str) -> Vec<Named> {
    let mut found = Vec::new();
    for site in sites {
        for info in &site.infos {
            let metadata = join(&site.path, info);
            let distribution = match info.as_str() {
                "EGG-INFO" => pydist::from_egg(file_name(&site.path)),
                _ => pydist::from_dist_info_dir(info).or_else(|| unversioned(sysroot, &metadata)),
            };
            if let Some((name, version)) = distribution.filter(|(name, _)| is_relevant(name)) {
                found.push(Named {
                    name,
                    version,
                    site: site.path.clone(),
                    metadata,
                });
            }
        }
    }
    let meta = join(prefix, "conda-meta");
    let records = sysroot.list(&meta, |name| has_extension(name, "json"));
    for file in records.items() {
        if let Some((name, version)) =
            pydist::from_conda_meta(file).filter(|(name, _)| is_relevant(name))
        {
            found.push(Named {
                name,
                version,
                site: prefix.to_owned(),
                metadata: join(&meta, file),
            });
        }
    }
    found
}

/// An `egg-info` of a development install has its version only inside.
fn unversioned(sysroot: &Sysroot, metadata: &str) -> Option<(String, String)> {
    let stem = file_name(metadata).strip_suffix(".egg-info")?;
    is_relevant(&pydist::normalised(stem)).then_some(())?;
    let text = sysroot.text(&join(metadata, "PKG-INFO"));
    pydist::metadata_name_version(text.value()?)
}

/// Reads their records and looks for what those name.
pub(super) fn probe(
    sysroot: &Sysroot,
    consumer: &Consumer,
    sites: &[Site],
    named: Vec<Named>,
) -> PythonFacts {
    const SOURCE: &str = "dist-info folders, conda-meta";
    if consumer.kind == ConsumerKind::Machine {
        return PythonFacts {
            distributions: Reading::absent("no environment"),
            shared: Reading::absent("no environment"),
        };
    }
    let refused = unread::search_path(consumer, sites);
    if let Some(reason) = refused.filter(|_| named.is_empty()) {
        return PythonFacts {
            distributions: Reading::unreadable(reason.as_str()),
            shared: Reading::unreadable(reason),
        };
    }
    let (distributions, modules): (Vec<Installed>, Vec<Vec<RecordedFile>>) = named
        .into_iter()
        .map(|distribution| installed(sysroot, distribution))
        .unzip();
    PythonFacts {
        shared: Reading::present(
            shared_files::find(sysroot, &distributions, &modules),
            SOURCE,
        ),
        distributions: Reading::present(distributions, SOURCE),
    }
}

/// One distribution, and the extension modules that it recorded.
fn installed(sysroot: &Sysroot, named: Named) -> (Installed, Vec<RecordedFile>) {
    let records = if has_extension(&named.metadata, "json") {
        conda_records(sysroot, &named)
    } else {
        python_records(sysroot, &named)
    };
    let mut installed = Installed {
        name: named.name,
        version: named.version,
        site: named.site,
        metadata: named.metadata,
        installer: records.installer,
        requires: records.requires,
        ..Installed::default()
    };
    let mut modules = Vec::new();
    for (_, program) in PROGRAMS.iter().filter(|(name, _)| *name == installed.name) {
        let path = join(&installed.site, program);
        let record = join(&installed.metadata, "RECORD");
        let is_gone = sysroot.stat(&path).is_absent();
        if is_gone && is_recorded(&sysroot.text_up_to(&record, RECORD_CAP), program) {
            installed.missing.push(path);
        }
    }
    installed.files = records.files.map(|files| {
        let mut libraries = Vec::new();
        for file in files {
            match sysroot.stat(&file.path) {
                Reading::Absent { .. } => installed.missing.push(file.path.clone()),
                Reading::Present { value: stat, .. } => {
                    if let Some(recorded_bytes) = file.size_bytes
                        && recorded_bytes != stat.size_bytes
                    {
                        installed.changed.push(ChangedFile {
                            path: file.path.clone(),
                            recorded_bytes,
                            size_bytes: stat.size_bytes,
                            kind: kind_now(sysroot, &file.path),
                        });
                    }
                }
                Reading::Unreadable { .. } => {}
            }
            if file_name(&file.path).starts_with("lib") {
                libraries.push(file);
            } else {
                modules.push(file);
            }
        }
        libraries
    });
    (installed, modules)
}

/// Whether a RECORD has a line for a path.
fn is_recorded(record: &Reading<String>, path: &str) -> bool {
    record.value().is_some_and(|text| {
        text.lines().any(|line| {
            line.strip_prefix(path)
                .is_some_and(|rest| rest.starts_with(','))
        })
    })
}

/// What a distribution's records say.
struct Records {
    installer: Reading<String>,
    requires: Vec<String>,
    files: Reading<Vec<RecordedFile>>,
}

/// The records of a `dist-info` or `egg-info` folder, or of an `egg-info` file.
fn python_records(sysroot: &Sysroot, named: &Named) -> Records {
    let info = &named.metadata;
    let text = ["METADATA", "PKG-INFO"]
        .iter()
        .map(|name| sysroot.text_up_to(&join(info, name), METADATA_CAP))
        .find(Reading::is_present)
        .unwrap_or_else(|| sysroot.text_up_to(info, METADATA_CAP));
    let requires = text.value().map(|text| {
        let all = pydist::metadata_requires(text);
        let relevant = all.filter(|line| is_relevant(&pydist::required_name(line)));
        relevant.map(str::to_owned).collect()
    });
    // RECORD has paths from the folder that dist-info lies in, installed-files.txt from the egg-info folder itself.
    let record = [("RECORD", parent(info)), ("installed-files.txt", info)]
        .into_iter()
        .map(|(name, base)| {
            let file = sysroot.file(&join(info, name));
            file.map(|file| absolute(base, record::shared_objects(&file as &dyn ReadAt)))
        })
        .find(|files| !files.is_absent());
    Records {
        installer: installer(sysroot, named),
        requires: requires.unwrap_or_default(),
        files: record.unwrap_or_else(|| Reading::absent(join(info, "RECORD"))),
    }
}

/// Who installed it, by the file INSTALLER; what Debian's packages bring lies in a folder of their own.
fn installer(sysroot: &Sysroot, named: &Named) -> Reading<String> {
    let path = join(&named.metadata, "INSTALLER");
    match sysroot.text(&path) {
        // Poetry adds its version.
        Reading::Present { value, source } if !value.trim().is_empty() => Reading::present(
            value
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_lowercase(),
            source,
        ),
        _ if named.site == "/usr/lib/python3/dist-packages" => {
            Reading::present("dpkg".to_owned(), named.site.as_str())
        }
        Reading::Unreadable { reason } => Reading::unreadable(reason),
        _ => Reading::absent(path),
    }
}

/// The record of a conda package.
fn conda_records(sysroot: &Sysroot, named: &Named) -> Records {
    let record = sysroot
        .bytes(&named.metadata, CONDA_CAP)
        .and_then("no record of conda's", |json| record::conda(&json));
    let depends = record.value().map(|record| {
        let all = record.depends.iter();
        let relevant = all.filter(|line| is_relevant(&pydist::required_name(line)));
        relevant.cloned().collect()
    });
    Records {
        installer: Reading::present("conda".to_owned(), named.metadata.as_str()),
        requires: depends.unwrap_or_default(),
        files: record.map(|record| absolute(&named.site, record.shared_objects)),
    }
}

/// Recorded files with whole paths.
fn absolute(base: &str, files: Vec<record::Recorded>) -> Vec<RecordedFile> {
    files
        .into_iter()
        .map(|file| RecordedFile {
            path: resolved(base, &file.path),
            size_bytes: file.size_bytes,
            digest: file.digest,
        })
        .collect()
}

/// What kind of file lies there now.
fn kind_now(sysroot: &Sysroot, path: &str) -> FileKind {
    match sysroot.file(path) {
        Reading::Present { value, .. } => kind_of(path, &elf::identify(&value)),
        Reading::Absent { .. } => FileKind::DanglingLink,
        Reading::Unreadable { reason } => FileKind::Unreadable(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters() {
        for name in [
            "torch",
            "nvidia-nccl-cu12",
            "cupy-cuda12x",
            "cudf-cu12",
            "onnxruntime-gpu",
            "libcublas",
            "ucx-py-cu12",
            "jax-cuda12-plugin",
            "vllm",
            "cuda-cudart",
        ] {
            assert!(is_relevant(name), "{name}");
        }
        for name in [
            "numpy",
            "requests",
            "torchmetrics",
            "pytorch-lightning",
            "jaxtyping",
            "curl",
            "nccl-x",
        ] {
            assert!(!is_relevant(name), "{name}");
        }
        assert!(RELEVANT.is_sorted());
    }
}
