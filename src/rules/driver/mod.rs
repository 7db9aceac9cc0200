//! Rules whose fault lies in the driver layer, by topic: the kernel module, which GPUs it can drive, device nodes,
//! user-space libraries, calls that go wrong, the fabric manager, and the level that runtimes ask for.

mod calls;
mod fabric;
mod level;
mod library;
mod module;
mod nodes;
mod supported;

use super::{Need, Rule};
use crate::facts::Layer::Driver;
use crate::finding::Severity::{Error, Note, Warning};

/// What keeps the kernel module from running, likeliest first.
const NO_MODULE: &[&str] = &[
    "gpu-absent",
    "gpu-dropped-by-branch",
    "module-not-built",
    "module-refused-by-secure-boot",
    "module-blacklisted",
    "module-vermagic-mismatch",
    "gpu-held-by-other-driver",
];

/// What makes cuInit or nvmlInit fail, the more fundamental first.
const INIT_FAILS: &[&str] = &[
    "gpu-absent",
    "gpu-off-bus",
    "driver-library-hangs",
    "driver-library-crashes",
    "driver-library-exits",
    "gpu-dropped-by-branch",
    "open-module-unsupported-gpu",
    "proprietary-module-unsupported-gpu",
    "gpu-too-new-for-branch",
    "module-not-built",
    "module-refused-by-secure-boot",
    "module-blacklisted",
    "module-vermagic-mismatch",
    "gpu-held-by-other-driver",
    "module-not-loaded",
    "libcuda-stub",
    "wsl-linux-driver",
    "driver-library-damaged",
    "driver-library-mismatch",
    "container-driver-mismatch",
    "compat-libcuda-not-usable",
    "container-device-eperm",
    "device-node-eperm",
    "device-node-permission",
    "container-device-missing",
    "device-node-missing",
    "device-node-wrong-major",
    "uvm-missing",
    "fabric-manager-absent",
    "fabric-manager-version",
    "cuda-visible-devices-hides-all",
];

pub(super) static RULES: &[Rule] = &[
    Rule { id: "compat-libcuda-in-use", layer: Driver, severity: Note, need: Need::Detail, follows_from: &[], page: include_str!("../pages/compat-libcuda-in-use.md"), check: library::compat_in_use },
    Rule {
        id: "compat-libcuda-not-usable",
        layer: Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/compat-libcuda-not-usable.md"),
        check: library::compat_not_usable,
    },
    Rule { id: "cuda-init-failed", layer: Driver, severity: Error, need: Need::Detail, follows_from: INIT_FAILS, page: include_str!("../pages/cuda-init-failed.md"), check: calls::cuda_init_failed },
    Rule {
        id: "device-node-missing",
        layer: Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: NO_MODULE,
        page: include_str!("../pages/device-node-missing.md"),
        check: nodes::device_node_missing,
    },
    Rule {
        id: "device-node-wrong-major",
        layer: Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: NO_MODULE,
        page: include_str!("../pages/device-node-wrong-major.md"),
        check: nodes::device_node_wrong_major,
    },
    Rule {
        id: "driver-library-crashes",
        layer: Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/driver-library-crashes.md"),
        check: calls::driver_library_crashes,
    },
    Rule {
        id: "driver-library-damaged",
        layer: Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/driver-library-damaged.md"),
        check: library::driver_library_damaged,
    },
    Rule { id: "driver-library-exits", layer: Driver, severity: Error, need: Need::Detail, follows_from: &[], page: include_str!("../pages/driver-library-exits.md"), check: calls::driver_library_exits },
    Rule { id: "driver-library-hangs", layer: Driver, severity: Error, need: Need::Detail, follows_from: &[], page: include_str!("../pages/driver-library-hangs.md"), check: calls::driver_library_hangs },
    Rule {
        id: "driver-library-mismatch",
        layer: Driver,
        severity: Error,
        need: Need::Verdict,
        follows_from: &["wsl-linux-driver"],
        page: include_str!("../pages/driver-library-mismatch.md"),
        check: module::driver_library_mismatch,
    },
    Rule { id: "driver-library-prints", layer: Driver, severity: Error, need: Need::Detail, follows_from: &[], page: include_str!("../pages/driver-library-prints.md"), check: calls::driver_library_prints },
    Rule { id: "driver-library-slow", layer: Driver, severity: Warning, need: Need::Detail, follows_from: &[], page: include_str!("../pages/driver-library-slow.md"), check: calls::driver_library_slow },
    Rule { id: "driver-not-installed", layer: Driver, severity: Error, need: Need::Detail, follows_from: &[], page: include_str!("../pages/driver-not-installed.md"), check: module::driver_not_installed },
    Rule { id: "driver-too-old", layer: Driver, severity: Error, need: Need::Verdict, follows_from: &["wsl-linux-driver"], page: include_str!("../pages/driver-too-old.md"), check: level::driver_too_old },
    Rule { id: "fabric-manager-absent", layer: Driver, severity: Error, need: Need::Detail, follows_from: &[], page: include_str!("../pages/fabric-manager-absent.md"), check: fabric::fabric_manager_absent },
    Rule { id: "fabric-manager-version", layer: Driver, severity: Error, need: Need::Detail, follows_from: &[], page: include_str!("../pages/fabric-manager-version.md"), check: fabric::fabric_manager_version },
    Rule { id: "gpu-dropped-by-branch", layer: Driver, severity: Error, need: Need::Detail, follows_from: &[], page: include_str!("../pages/gpu-dropped-by-branch.md"), check: supported::gpu_dropped_by_branch },
    Rule {
        id: "gpu-held-by-other-driver",
        layer: Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &["gpu-dropped-by-branch", "module-not-built", "module-refused-by-secure-boot", "module-blacklisted", "module-vermagic-mismatch"],
        page: include_str!("../pages/gpu-held-by-other-driver.md"),
        check: module::gpu_held_by_other_driver,
    },
    Rule { id: "gpu-too-new-for-branch", layer: Driver, severity: Error, need: Need::Detail, follows_from: &[], page: include_str!("../pages/gpu-too-new-for-branch.md"), check: supported::gpu_too_new_for_branch },
    Rule { id: "libcuda-missing", layer: Driver, severity: Error, need: Need::Verdict, follows_from: &[], page: include_str!("../pages/libcuda-missing.md"), check: library::libcuda_missing },
    Rule { id: "libcuda-stub", layer: Driver, severity: Error, need: Need::Detail, follows_from: &[], page: include_str!("../pages/libcuda-stub.md"), check: library::libcuda_stub },
    Rule { id: "module-blacklisted", layer: Driver, severity: Error, need: Need::Detail, follows_from: &["module-not-built"], page: include_str!("../pages/module-blacklisted.md"), check: module::module_blacklisted },
    Rule { id: "module-not-built", layer: Driver, severity: Error, need: Need::Detail, follows_from: &["gpu-absent"], page: include_str!("../pages/module-not-built.md"), check: module::module_not_built },
    Rule { id: "module-not-loaded", layer: Driver, severity: Error, need: Need::Verdict, follows_from: NO_MODULE, page: include_str!("../pages/module-not-loaded.md"), check: module::module_not_loaded },
    Rule {
        id: "module-on-disk-differs",
        layer: Driver,
        severity: Warning,
        need: Need::Detail,
        follows_from: &["driver-library-mismatch"],
        page: include_str!("../pages/module-on-disk-differs.md"),
        check: module::module_on_disk_differs,
    },
    Rule {
        id: "module-vermagic-mismatch",
        layer: Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/module-vermagic-mismatch.md"),
        check: module::module_vermagic_mismatch,
    },
    Rule {
        id: "module-version-disagrees",
        layer: Driver,
        severity: Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("../pages/module-version-disagrees.md"),
        check: module::module_version_disagrees,
    },
    Rule { id: "nvml-init-failed", layer: Driver, severity: Warning, need: Need::Detail, follows_from: INIT_FAILS, page: include_str!("../pages/nvml-init-failed.md"), check: calls::nvml_init_failed },
    Rule {
        id: "open-module-unsupported-gpu",
        layer: Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &["gpu-dropped-by-branch"],
        page: include_str!("../pages/open-module-unsupported-gpu.md"),
        check: supported::open_module_unsupported_gpu,
    },
    Rule {
        id: "proprietary-module-unsupported-gpu",
        layer: Driver,
        severity: Error,
        need: Need::Detail,
        follows_from: &["gpu-too-new-for-branch"],
        page: include_str!("../pages/proprietary-module-unsupported-gpu.md"),
        check: supported::proprietary_module_unsupported_gpu,
    },
    Rule { id: "uvm-missing", layer: Driver, severity: Error, need: Need::Detail, follows_from: NO_MODULE, page: include_str!("../pages/uvm-missing.md"), check: nodes::uvm_missing },
    Rule { id: "wsl-linux-driver", layer: Driver, severity: Error, need: Need::Detail, follows_from: &[], page: include_str!("../pages/wsl-linux-driver.md"), check: library::wsl_linux_driver },
];

pub(super) use level::{runtime_version, user_of};
pub(super) use module::mismatch;
