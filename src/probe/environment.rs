//! Which environment variables a snapshot keeps: an allow-list. Some are kept only as "set", since their value is
//! private or says nothing more.

use std::collections::BTreeMap;

/// Variables whose value is kept.
const KEPT: &[&str] = &[
    "BNB_CUDA_VERSION",
    "CC",
    "CONDA_DEFAULT_ENV",
    "CONDA_PREFIX",
    "CUDAARCHS",
    "CUDACXX",
    "CUDAHOSTCXX",
    "CUDA_DEVICE_ORDER",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_HOME",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_PATH",
    "CUDA_VERSION",
    "CUDA_VISIBLE_DEVICES",
    "DS_ACCELERATOR",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "JAX_PLATFORMS",
    "JAX_PLATFORM_NAME",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NIX_LD_LIBRARY_PATH",
    "NUMBA_DISABLE_CUDA",
    "NUMBA_ENABLE_CUDASIM",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "NVCC_PREPEND_FLAGS",
    "NVIDIA_CTK_LIBCUDA_DIR",
    "NVIDIA_DISABLE_REQUIRE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "OCL_ICD_VENDORS",
    "ONEAPI_DEVICE_SELECTOR",
    "PYTHONNOUSERSITE",
    "PYTHONPATH",
    "PYTORCH_SKIP_CUDNN_COMPATIBILITY_CHECK",
    "ROCR_VISIBLE_DEVICES",
    "TORCH_CUDA_ARCH_LIST",
    "TRITON_LIBCUDA_PATH",
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TRITON_PTXAS_PATH",
    "VIRTUAL_ENV",
    "VK_ADD_DRIVER_FILES",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "ZE_AFFINITY_MASK",
    "container",
];

/// Variables of which only is kept that they are set.
const ONLY_SET: &[&str] = &[
    "APPTAINER_CONTAINER",
    "CI",
    "GITHUB_ACTIONS",
    "KUBERNETES_SERVICE_HOST",
    "SINGULARITY_CONTAINER",
    "SLURM_JOB_ID",
    "WSL_DISTRO_NAME",
];

/// The variables that matter.
pub(super) fn allowed(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    all.iter()
        .filter_map(|(name, value)| {
            if KEPT.contains(&name.as_str()) || name.starts_with("NVIDIA_REQUIRE_") {
                Some((name.clone(), value.clone()))
            } else {
                ONLY_SET
                    .contains(&name.as_str())
                    .then(|| (name.clone(), "set".to_owned()))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_allow_list_is_kept() {
        let all = [
            ("CUDA_VISIBLE_DEVICES", "0"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("KUBERNETES_SERVICE_HOST", "192.0.2.1"),
            ("NVIDIA_REQUIRE_CUDA", "cuda>=12.0"),
        ];
        let all = all
            .into_iter()
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        let kept = allowed(&all);
        assert_eq!(kept.len(), 3);
        assert_eq!(kept["KUBERNETES_SERVICE_HOST"], "set");
        assert!(KEPT.is_sorted() && ONLY_SET.is_sorted());
    }
}
