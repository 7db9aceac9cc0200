//! Rules about Intel's stack, whatever the layer: `i915` or `xe` and their render nodes, Level Zero's loader and driver, builds for
//! another vendor, variables.
//!
//! Intel's GPUs are part of most processors: nothing is said of them where the consumer is not built for them.

mod consumer;
mod driver;
mod stack;

use super::{Need, Rule};
use crate::facts::Layer;
use crate::finding::Severity::{Error, Warning};

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "intel-node-permission",
        layer: Layer::System,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/intel-node-permission.md"),
        check: driver::permission,
    },
    Rule {
        id: "intel-gpu-driver-absent",
        layer: Layer::Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/intel-gpu-driver-absent.md"),
        check: driver::absent,
    },
    Rule {
        id: "level-zero-driver-missing",
        layer: Layer::Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/level-zero-driver-missing.md"),
        check: driver::level_zero_driver_missing,
    },
    Rule {
        id: "level-zero-loader-missing",
        layer: Layer::Runtime,
        severity: Warning,
        need: Need::Detail,
        follows_from: &["level-zero-driver-missing"],
        page: include_str!("../pages/level-zero-loader-missing.md"),
        check: driver::level_zero_loader_missing,
    },
    Rule {
        id: "intel-container-node-missing",
        layer: Layer::Container,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/intel-container-node-missing.md"),
        check: driver::container_node_missing,
    },
    Rule {
        id: "sycl-runtime-missing",
        layer: Layer::Runtime,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/sycl-runtime-missing.md"),
        check: consumer::sycl_runtime_missing,
    },
    Rule {
        id: "framework-cuda-build-on-intel",
        layer: Layer::Framework,
        severity: Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/framework-cuda-build-on-intel.md"),
        check: consumer::cuda_build_on_intel,
    },
    Rule {
        id: "intel-gpus-hidden",
        layer: Layer::Application,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/intel-gpus-hidden.md"),
        check: consumer::hidden,
    },
];

/// How to see that the driver and Level Zero work.
const VERIFY: &str = "python -c \"import torch; print(torch.xpu.is_available())\"";
