//! Which frameworks are looked for: how their distributions are called, and where their GPU library lies.

/// A framework, companion or extension.
pub(super) struct Known {
    /// What it is called here, whatever its distribution is called.
    pub(super) name: &'static str,
    /// Its distributions by normalised name; `*` at the end stands for any ending.
    pub(super) distributions: &'static [&'static str],
    /// A file that only it has, below site-packages: it says that the framework is there where no record does.
    pub(super) marker: &'static str,
    /// Places of its GPU library below site-packages; the first that is there counts. `*` in a file's name stands for
    /// anything.
    pub(super) libraries: &'static [&'static str],
    /// Whether its own device code decides which GPUs it runs on. What compiles for the GPU that it meets (JAX, Triton,
    /// Numba, `CuPy`) holds little code, and that says nothing.
    pub(super) by_code: bool,
    /// Whether it is built against torch, so that it has to fit the torch beside it.
    pub(super) on_torch: bool,
}

pub(super) const fn plain(name: &'static str, distributions: &'static [&'static str]) -> Known {
    Known {
        name,
        distributions,
        marker: "",
        libraries: &[],
        by_code: false,
        on_torch: false,
    }
}

/// Whether a distribution of this normalised name is looked for.
pub(in crate::probe) fn is_known(name: &str) -> bool {
    let mut all = KNOWN.iter().flat_map(|known| known.distributions);
    all.any(|wanted| match wanted.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *wanted,
    })
}

/// What is looked for, torch first: what is built on it is read against it.
///
/// Places measured on the wheels of `PyPI` (`x86_64`, 2026-12); those of llama.cpp, flash-attn, TensorRT-LLM and
/// conda by their packaging.
pub(super) const KNOWN: &[Known] = &[
    Known {
        marker: "torch/version.py",
        libraries: &[
            "torch/lib/libtorch_cuda.so",
            // 1.9 to 1.13 for CUDA 11: the library was built in two.
            "torch/lib/libtorch_cuda_cu.so",
            "torch/lib/libtorch_hip.so",
        ],
        by_code: true,
        ..plain("torch", &["torch", "pytorch"])
    },
    Known {
        marker: "torchvision/version.py",
        libraries: &["torchvision/_C.so", "torchvision/_C_stable.so"],
        on_torch: true,
        ..plain("torchvision", &["torchvision"])
    },
    Known {
        marker: "torchaudio/version.py",
        libraries: &[
            "torchaudio/lib/_torchaudio.so",
            "torchaudio/lib/libtorchaudio.so",
        ],
        on_torch: true,
        ..plain("torchaudio", &["torchaudio"])
    },
    Known {
        libraries: &["vllm/_C.abi3.so", "vllm/_C*.so"],
        by_code: true,
        on_torch: true,
        ..plain("vllm", &["vllm"])
    },
    Known {
        libraries: &["xformers/_C.so"],
        by_code: true,
        on_torch: true,
        ..plain("xformers", &["xformers"])
    },
    Known {
        libraries: &["flash_attn_2_cuda*.so"],
        by_code: true,
        on_torch: true,
        ..plain("flash-attn", &["flash-attn"])
    },
    Known {
        libraries: &["flash_attn_3/_C.abi3.so", "flash_attn_3/_C*.so"],
        by_code: true,
        on_torch: true,
        ..plain("flash-attn-3", &["flash-attn-3"])
    },
    // Its library is the one for torch's CUDA: see `bitsandbytes`.
    Known {
        by_code: true,
        ..plain("bitsandbytes", &["bitsandbytes"])
    },
    // Compiled when they are first used, or along with it: see `operators`.
    plain("deepspeed", &["deepspeed"]),
    plain(
        "triton",
        &["triton", "pytorch-triton", "pytorch-triton-rocm"],
    ),
    Known {
        marker: "tensorflow/python/platform/build_info.py",
        libraries: &[
            "tensorflow/libtensorflow_cc.so.2",
            "tensorflow/python/_pywrap_tensorflow_internal.so",
        ],
        by_code: true,
        ..plain(
            "tensorflow",
            &[
                "tensorflow",
                "tensorflow-gpu",
                "tensorflow-cpu",
                "tensorflow-base",
                "tf-nightly",
            ],
        )
    },
    plain("jax", &["jax"]),
    plain("jaxlib", &["jaxlib"]),
    Known {
        libraries: &[
            "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
            "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
        ],
        ..plain("jax-cuda-pjrt", &["jax-cuda12-pjrt", "jax-cuda13-pjrt"])
    },
    plain(
        "jax-cuda-plugin",
        &["jax-cuda12-plugin", "jax-cuda13-plugin"],
    ),
    Known {
        marker: "onnxruntime/capi/build_and_package_info.py",
        libraries: &["onnxruntime/capi/libonnxruntime_providers_cuda.so"],
        by_code: true,
        ..plain("onnxruntime", &["onnxruntime-gpu", "onnxruntime"])
    },
    Known {
        libraries: &[
            "llama_cpp/lib/libggml-cuda.so",
            "llama_cpp/libggml-cuda.so",
            // Before ggml's back ends became libraries of their own, all of it was one.
            "llama_cpp/lib/libllama.so",
            "llama_cpp/libllama.so",
        ],
        by_code: true,
        ..plain("llama.cpp", &["llama-cpp-python"])
    },
    Known {
        libraries: &["ctranslate2.libs/libctranslate2-*"],
        by_code: true,
        ..plain("ctranslate2", &["ctranslate2"])
    },
    plain("cupy", &["cupy", "cupy-*"]),
    plain("numba", &["numba"]),
    plain("numba-cuda", &["numba-cuda"]),
    plain("tensorrt", &["tensorrt", "tensorrt-cu*"]),
    Known {
        libraries: &["tensorrt_llm/libs/libtensorrt_llm.so"],
        by_code: true,
        ..plain("tensorrt-llm", &["tensorrt-llm"])
    },
    plain("pynvml", &["pynvml"]),
    plain("nvidia-ml-py", &["nvidia-ml-py"]),
];

impl Known {
    /// Whether a distribution of this name is it.
    pub(super) fn is_called(&self, distribution: &str) -> bool {
        self.distributions
            .iter()
            .any(|name| match name.strip_suffix('*') {
                Some(start) => {
                    distribution.starts_with(start)
                        && !distribution.ends_with("-libs")
                        && !distribution.ends_with("-bindings")
                }
                None => distribution == *name,
            })
    }
}
