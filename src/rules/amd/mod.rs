//! Rules about AMD's stack, whatever the layer, by topic: `amdgpu` and what its compute part (KFD) lists, nodes in `/dev`, code for
//! the instruction set of a GPU, what variables do.
//!
//! None of them says anything where the consumer does not run on AMD's stack: an AMD GPU that drives a display is no fault.

pub(super) mod code;
mod driver;
mod libraries;
mod nodes;
mod stack;
mod variables;

use super::{Need, Rule};
use crate::facts::Layer;
use crate::finding::Severity::{Error, Warning};

/// What keeps `amdgpu` from driving a GPU, likeliest first.
const NO_MODULE: &[&str] = &[
    "amdgpu-not-built",
    "amdgpu-blacklisted",
    "amdgpu-firmware-missing",
];

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "amd-gpu-not-in-kfd",
        layer: Layer::Hardware,
        severity: Error,
        need: Need::Detail,
        follows_from: &["amdgpu-firmware-missing", "amd-pcie-atomics-missing"],
        page: include_str!("../pages/amd-gpu-not-in-kfd.md"),
        check: driver::gpu_not_in_kfd,
    },
    Rule {
        id: "amd-pcie-atomics-missing",
        layer: Layer::Hardware,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/amd-pcie-atomics-missing.md"),
        check: driver::pcie_atomics_missing,
    },
    Rule {
        id: "amd-node-permission",
        layer: Layer::System,
        severity: Error,
        need: Need::Detail,
        follows_from: &["amd-gpu-not-in-kfd"],
        page: include_str!("../pages/amd-node-permission.md"),
        check: nodes::permission,
    },
    Rule {
        id: "amd-node-root-only",
        layer: Layer::System,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/amd-node-root-only.md"),
        check: nodes::root_only,
    },
    Rule {
        id: "amd-kfd-absent",
        layer: Layer::Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: NO_MODULE,
        page: include_str!("../pages/amd-kfd-absent.md"),
        check: driver::kfd_absent,
    },
    Rule {
        id: "amdgpu-blacklisted",
        layer: Layer::Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &["amdgpu-not-built"],
        page: include_str!("../pages/amdgpu-blacklisted.md"),
        check: driver::blacklisted,
    },
    Rule {
        id: "amdgpu-firmware-missing",
        layer: Layer::Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/amdgpu-firmware-missing.md"),
        check: driver::firmware_missing,
    },
    Rule {
        id: "amdgpu-not-built",
        layer: Layer::Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/amdgpu-not-built.md"),
        check: driver::not_built,
    },
    Rule {
        id: "amdgpu-not-loaded",
        layer: Layer::Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: NO_MODULE,
        page: include_str!("../pages/amdgpu-not-loaded.md"),
        check: driver::not_loaded,
    },
    Rule {
        id: "hip-runtime-missing",
        layer: Layer::Runtime,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/hip-runtime-missing.md"),
        check: libraries::hip_runtime_missing,
    },
    Rule {
        id: "hsa-runtime-missing",
        layer: Layer::Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/hsa-runtime-missing.md"),
        check: libraries::hsa_runtime_missing,
    },
    Rule {
        id: "rocm-driver-untested",
        layer: Layer::Driver,
        severity: Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/rocm-driver-untested.md"),
        check: driver::release_untested,
    },
    Rule {
        id: "amd-container-node-missing",
        layer: Layer::Container,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/amd-container-node-missing.md"),
        check: nodes::container_node_missing,
    },
    Rule {
        id: "rocblas-no-kernels",
        layer: Layer::Libraries,
        severity: Error,
        need: Need::Detail,
        follows_from: &["hsa-override-mismatch"],
        page: include_str!("../pages/rocblas-no-kernels.md"),
        check: code::rocblas_no_kernels,
    },
    Rule {
        id: "framework-cuda-build-on-amd",
        layer: Layer::Framework,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/framework-cuda-build-on-amd.md"),
        check: code::cuda_build_on_amd,
    },
    Rule {
        id: "framework-rocm-gfx-missing",
        layer: Layer::Framework,
        severity: Error,
        need: Need::Detail,
        follows_from: &["hsa-override-mismatch"],
        page: include_str!("../pages/framework-rocm-gfx-missing.md"),
        check: code::framework_rocm_gfx_missing,
    },
    Rule {
        id: "amd-integrated-gpu-first",
        layer: Layer::Application,
        severity: Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/amd-integrated-gpu-first.md"),
        check: variables::integrated_gpu_first,
    },
    Rule {
        id: "hip-visible-devices-hides-all",
        layer: Layer::Application,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/hip-visible-devices-hides-all.md"),
        check: variables::hides_all,
    },
    Rule {
        id: "hsa-override-mismatch",
        layer: Layer::Application,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/hsa-override-mismatch.md"),
        check: variables::override_mismatch,
    },
];

/// How to see that the driver and `ROCm`'s lowest library work.
const VERIFY: &str = "rocminfo | grep gfx";
