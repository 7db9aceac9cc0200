//! What loads the GPU stack in an environment: the libraries of frameworks and of their extensions, by the places where
//! their wheels and packages have them, and what each of them loads first.
//!
//! Places, search paths and order of loading: measured on the wheels of `PyPI` (torch 1.13 to 2.15, TensorFlow 2.21,
//! JAX 0.10, ONNX Runtime 1.18 to 1.31, vLLM 0.33, xFormers 0.0.35, `CuPy` 14, bitsandbytes 0.50).

use std::collections::BTreeMap;

use super::Environment;
use crate::facts::{Consumer, LibraryFile, Reading};
use crate::probe::framework::cuda_by_name;
use crate::sysroot::{Sysroot, file_name, join};
use crate::version::Version;

/// One library that a program or a package loads, and what came before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// What it is part of, with its version where that is known: `torch 2.5.1`.
    pub(super) consumer: String,
    /// The library.
    pub(super) path: String,
    /// What its package opens by path before, in order.
    pub(super) first: Vec<String>,
    /// The entry whose libraries are loaded before it, by path: an extension of torch comes after torch.
    pub(super) after: Option<String>,
    /// What it opens by name while it runs.
    pub(super) opens: Vec<String>,
    /// Folders in which its package looks last, by itself, for what nothing else has.
    pub(super) toolkit: Vec<String>,
}

/// torch loads nvJitLink and NVRTC of the environment by path since this version, whatever the loader would find.
const TORCH_PRELOADS: &str = "2.6";
/// ... and cuBLASLt since this one.
const TORCH_PRELOADS_CUBLASLT: &str = "2.11";

/// `CuPy` has cuda-pathfinder look for its libraries since this version.
const CUPY_FINDS: &str = "14";
/// The compiler that `CuPy` opens, by the CUDA major version in its distribution's name.
const NVRTC: &[(u32, &str)] = &[
    (11, "libnvrtc.so.11.2"),
    (12, "libnvrtc.so.12"),
    (13, "libnvrtc.so.13"),
];

/// TensorFlow opens the libraries of CUDA 12 by name, and cuDNN 9, since this version.
const TENSORFLOW_FOR_12: &str = "2.18";
/// The names by which XLA and `TensorFlow` open libraries while they run, by the CUDA major version that they are built for.
/// Which of them they do without is the matrix's knowledge (`opens`).
const BY_NAME: &[(u32, &[&str])] = &[
    (
        12,
        &[
            "libcudart.so.12",
            "libcublas.so.12",
            "libcublasLt.so.12",
            "libcudnn.so.9",
            "libcufft.so.11",
            "libcupti.so.12",
            "libcusolver.so.11",
            "libcusparse.so.12",
            "libnccl.so.2",
            "libnvrtc.so.12",
        ],
    ),
    (
        13,
        &[
            "libcudart.so.13",
            "libcublas.so.13",
            "libcublasLt.so.13",
            "libcudnn.so.9",
            "libcufft.so.12",
            "libcupti.so.13",
            "libcusolver.so.12",
            "libcusparse.so.12",
            "libnccl.so.2",
            "libnvrtc.so.13",
        ],
    ),
];

/// Adds the names for a CUDA major version that are not among these.
fn add_names(opens: &mut Vec<String>, cuda: u32) {
    let names = BY_NAME.iter().find(|(major, _)| *major == cuda);
    for name in names.map_or(&[][..], |(_, names)| names) {
        if !opens.iter().any(|known| known == name) {
            opens.push((*name).to_owned());
        }
    }
}

/// The entries of the consumer's environment; none where it is no environment.
pub(super) fn find(
    sysroot: &Sysroot,
    env: &BTreeMap<String, String>,
    environment: &Environment<'_>,
    brought: &[LibraryFile],
) -> Vec<Entry> {
    let mut found = Vec::new();
    if let Some(path) = environment.program {
        found.push(Entry {
            consumer: environment.consumer.what.clone(),
            path: path.to_owned(),
            ..Entry::default()
        });
    }
    for site in environment.sites {
        let all = Site {
            sysroot,
            consumer: environment.consumer,
            folder: &site.path,
            brought,
            env,
        };
        let torch = all.torch(&mut found);
        all.after_torch(torch.as_deref(), &mut found);
        all.tensorflow(&mut found);
        all.jax(&mut found);
        all.cupy(&mut found);
        all.others(&mut found);
    }
    if found.is_empty() {
        // No framework that is known: the libraries themselves have to fit each other.
        found = brought
            .iter()
            .filter(|copy| copy.path.contains("/nvidia/"))
            .map(|copy| Entry {
                consumer: copy
                    .owner
                    .value()
                    .map_or_else(|| copy.name.clone(), Clone::clone),
                path: copy.path.clone(),
                ..Entry::default()
            })
            .collect();
    }
    found
}

struct Site<'a> {
    sysroot: &'a Sysroot,
    consumer: &'a Consumer,
    folder: &'a str,
    brought: &'a [LibraryFile],
    env: &'a BTreeMap<String, String>,
}

impl Site<'_> {
    fn has(&self, path: &str) -> Option<String> {
        let path = join(self.folder, path);
        self.sysroot.exists(&path).then_some(path)
    }

    /// Files of a folder whose name is wanted.
    fn files(&self, folder: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let dir = join(self.folder, folder);
        let names = self.sysroot.list(&dir, wanted);
        names.items().iter().map(|name| join(&dir, name)).collect()
    }

    /// `torch 2.5.1`, or the bare name where no distribution says the version.
    fn named(&self, distribution: &str) -> String {
        self.version(distribution).map_or_else(
            || distribution.to_owned(),
            |version| format!("{distribution} {version}"),
        )
    }

    fn version(&self, distribution: &str) -> Option<&str> {
        self.consumer
            .frameworks
            .items()
            .iter()
            .find(|d| d.name == distribution)
            .map(|d| d.version.as_str())
    }

    /// Copies that the environment brought of these libraries, by path.
    fn brought(&self, names: &[&str]) -> Vec<String> {
        let in_site = self
            .brought
            .iter()
            .filter(|copy| copy.path.starts_with(self.folder));
        names
            .iter()
            .flat_map(|name| in_site.clone().filter(move |copy| copy.name == *name))
            .map(|copy| copy.path.clone())
            .collect()
    }

    fn torch(&self, found: &mut Vec<Entry>) -> Option<String> {
        let path = self.has("torch/lib/libtorch_cuda.so")?;
        let version = self.version("torch").and_then(Version::parse);
        let since = |first: &str| {
            Version::parse(first)
                .zip(version.as_ref())
                .is_some_and(|(first, version)| *version >= first)
        };
        let mut first: Vec<String> = Vec::new();
        first.extend(self.has("torch/lib/libtorch_global_deps.so"));
        if since(TORCH_PRELOADS) {
            first.extend(self.brought(&["libnvrtc", "libnvJitLink"]));
        }
        if since(TORCH_PRELOADS_CUBLASLT) {
            first.extend(self.brought(&["libcublasLt"]));
        }
        found.push(Entry {
            consumer: self.named("torch"),
            path: path.clone(),
            first,
            ..Entry::default()
        });
        // Opened when the first function of linear algebra is called, or the first kernel compiled.
        for later in ["libtorch_cuda_linalg.so", "libcaffe2_nvrtc.so"] {
            let Some(library) = self.has(&format!("torch/lib/{later}")) else {
                continue;
            };
            found.push(Entry {
                consumer: self.named("torch"),
                path: library,
                after: Some(path.clone()),
                ..Entry::default()
            });
        }
        Some(path)
    }

    /// Extensions that import torch before their own library.
    fn after_torch(&self, torch: Option<&str>, found: &mut Vec<Entry>) {
        let mut add = |distribution: &str, paths: Vec<String>| {
            for path in paths {
                found.push(Entry {
                    consumer: self.named(distribution),
                    path,
                    after: torch.map(str::to_owned),
                    ..Entry::default()
                });
            }
        };
        let is_extension = |name: &str| is_shared(name) && name.contains("_C");
        add("vllm", self.files("vllm", is_extension));
        add("xformers", self.files("xformers", is_extension));
        if torch.is_some() {
            add(
                "flash-attn",
                self.files("", |name| {
                    is_shared(name) && name.starts_with("flash_attn_2_cuda")
                }),
            );
        }
        if let Some(cuda) = self.consumer.torch_cuda.value() {
            let variant = format!(
                "bitsandbytes/libbitsandbytes_cuda{}{}.so",
                cuda.major(),
                cuda.minor()
            );
            add("bitsandbytes", self.has(&variant).into_iter().collect());
        }
    }

    /// TensorFlow opens everything by name, from a library with RUNPATH.
    fn tensorflow(&self, found: &mut Vec<Entry>) {
        let library = [
            "tensorflow/libtensorflow_cc.so.2",
            "tensorflow/libtensorflow_framework.so.2",
        ];
        let Some(path) = library.iter().find_map(|path| self.has(path)) else {
            return;
        };
        let mut opens = self.sonames(&[
            "libcudart",
            "libcublas",
            "libcublasLt",
            "libcufft",
            "libcusolver",
            "libcusparse",
            "libcudnn",
            "libnccl",
        ]);
        let is_for_12 = self
            .version("tensorflow")
            .and_then(Version::parse)
            .zip(Version::parse(TENSORFLOW_FOR_12))
            .is_some_and(|(version, first)| version >= first);
        if is_for_12 {
            add_names(&mut opens, 12);
        }
        let name = ["tensorflow", "tensorflow-gpu"]
            .into_iter()
            .find(|name| self.version(name).is_some())
            .unwrap_or("tensorflow");
        found.push(Entry {
            consumer: self.named(name),
            path,
            opens,
            ..Entry::default()
        });
    }

    /// The plugins of JAX open what NVIDIA's wheels brought by path first.
    fn jax(&self, found: &mut Vec<Entry>) {
        for plugin in ["xla_cuda12", "xla_cuda13", "xla_cuda"] {
            let Some(path) = self.has(&format!("jax_plugins/{plugin}/xla_cuda_plugin.so")) else {
                continue;
            };
            let major = plugin.strip_prefix("xla_cuda").and_then(|m| m.parse().ok());
            let libraries = [
                "libcudart",
                "libcublasLt",
                "libcublas",
                "libcufft",
                "libcusolver",
                "libcusparse",
                "libcudnn",
                "libnccl",
                "libnvJitLink",
                "libnvrtc",
            ];
            let first = self.brought(&libraries);
            let mut opens = Vec::new();
            if let Some(major) = major {
                add_names(&mut opens, major);
            }
            let is_of_plugin = |path: &String| {
                let copy = self.brought.iter().find(|copy| copy.path == **path);
                copy.and_then(cuda_major)
                    .zip(major)
                    .is_none_or(|(has, wants): (u32, u32)| has == wants)
            };
            found.push(Entry {
                consumer: self.named("jax"),
                path,
                first: first.into_iter().filter(is_of_plugin).collect(),
                opens,
                ..Entry::default()
            });
        }
    }

    /// `CuPy`'s modules need their libraries, and its compiler is opened by name. Since 14 each is looked for by
    /// cuda-pathfinder first: in wheels, in conda's folder, by the loader, last in the toolkit that a variable names.
    fn cupy(&self, found: &mut Vec<Entry>) {
        let frameworks = self.consumer.frameworks.items();
        let Some(cupy) = frameworks.iter().find(|d| d.name.starts_with("cupy")) else {
            return;
        };
        let finds = Version::parse(CUPY_FINDS)
            .zip(Version::parse(&cupy.version))
            .is_some_and(|(first, version)| version >= first);
        let toolkit = if finds {
            self.toolkit_folders()
        } else {
            Vec::new()
        };
        let major = cuda_by_name(&cupy.name).map(|version| version.major());
        let of_fft = |name: &str| is_shared(name) && name.starts_with("cufft");
        let modules = [
            self.files("cupy_backends/cuda/api", is_shared),
            self.files("cupy_backends/cuda/libs", is_shared),
            self.files("cupy/cuda", of_fft),
        ];
        for path in modules.into_iter().flatten() {
            let opens = match major {
                Some(major) if file_name(&path).starts_with("nvrtc.") => NVRTC
                    .iter()
                    .find(|(cuda, _)| *cuda == major)
                    .map(|(_, soname)| (*soname).to_owned()),
                _ => None,
            };
            found.push(Entry {
                consumer: self.named(&cupy.name),
                path,
                opens: opens.into_iter().collect(),
                toolkit: toolkit.clone(),
                ..Entry::default()
            });
        }
    }

    /// The folders of libraries of the toolkit that a variable names.
    fn toolkit_folders(&self) -> Vec<String> {
        ["CUDA_PATH", "CUDA_HOME"]
            .iter()
            .filter_map(|name| self.env.get(*name))
            .filter(|dir| dir.starts_with('/'))
            .flat_map(|dir| [join(dir, "lib64"), join(dir, "lib")])
            .collect()
    }

    fn others(&self, found: &mut Vec<Entry>) {
        let mut add = |consumer: &str, paths: Vec<String>| {
            for path in paths {
                found.push(Entry {
                    consumer: self.named(consumer),
                    path,
                    ..Entry::default()
                });
            }
        };
        add(
            "onnxruntime-gpu",
            self.has("onnxruntime/capi/libonnxruntime_providers_cuda.so")
                .into_iter()
                .collect(),
        );
        add(
            "llama-cpp-python",
            self.has("llama_cpp/lib/libggml-cuda.so")
                .into_iter()
                .collect(),
        );
        // RAPIDS: libcuvs/lib64/libcuvs.so. Their packages load each other's libraries by path.
        let rapids = self
            .sysroot
            .list(self.folder, |name| RAPIDS.contains(&name));
        let libraries: Vec<String> = rapids
            .items()
            .iter()
            .filter_map(|name| self.has(&format!("{name}/lib64/{name}.so")))
            .collect();
        for path in &libraries {
            let name = file_name(path).trim_end_matches(".so");
            found.push(Entry {
                consumer: name.to_owned(),
                path: path.clone(),
                ..Entry::default()
            });
        }
    }

    /// The sonames of libraries that the environment brought; what it did not bring is not known to be wanted.
    fn sonames(&self, names: &[&str]) -> Vec<String> {
        let mut sonames: Vec<String> = Vec::new();
        for copy in names
            .iter()
            .flat_map(|name| self.brought.iter().filter(move |copy| copy.name == *name))
        {
            if let Reading::Present { value, .. } = &copy.soname
                && !sonames.contains(value)
            {
                sonames.push(value.clone());
            }
        }
        sonames
    }
}

/// The libraries of RAPIDS that have GPU code and a wheel of their own.
const RAPIDS: &[&str] = &[
    "libcudf",
    "libcugraph",
    "libcuml",
    "libcuvs",
    "libcuspatial",
    "libraft",
    "libcucim",
    "librmm",
];

/// The CUDA major version that a copy is of, by the distribution that brought it.
fn cuda_major(copy: &LibraryFile) -> Option<u32> {
    let owner = copy.owner.value()?;
    let (name, _) = owner.split_once(' ')?;
    match name
        .rsplit_once("-cu")
        .and_then(|(_, major)| major.parse().ok())
    {
        Some(major) => Some(major),
        None => copy.path.contains("/nvidia/cu13/").then_some(13),
    }
}

fn is_shared(name: &str) -> bool {
    crate::probe::consumer::has_extension(name, "so")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Matrix;

    #[test]
    fn what_the_matrix_says_to_be_needed_is_asked_for() {
        for row in Matrix::bundled().opened() {
            let mut opens = Vec::new();
            add_names(&mut opens, row.cuda);
            assert!(row.needs.iter().all(|s| opens.contains(s)), "{row:?}");
        }
    }
}
