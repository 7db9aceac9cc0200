//! What the kernel's DRM subsystem offers to programs that compute: render nodes, for GPUs of AMD and Intel alike, and AMD's
//! `/dev/kfd`. (NVIDIA's compute nodes are its driver's own, and among the driver's facts.)

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{DeviceNode, Reading};

/// Nodes of GPUs that the DRM subsystem drives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DrmFacts {
    /// Render nodes that the kernel has (`/sys/class/drm`) or that lie in `/dev/dri`, by number.
    pub render: Reading<Vec<RenderNode>>,
}

/// A render node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RenderNode {
    /// `renderD128`.
    pub name: String,
    /// The device behind it: `0000:03:00.0`.
    pub address: Reading<String>,
    /// The node in `/dev/dri`; absent where the kernel has it and `/dev` does not, as in a container.
    pub node: Reading<DeviceNode>,
}

impl RenderNode {
    /// `/dev/dri/renderD128`.
    pub fn path(&self) -> String {
        format!("/dev/dri/{}", self.name)
    }

    /// Its minor number: 128.
    pub fn minor(&self) -> Option<u32> {
        self.name.strip_prefix("renderD")?.parse().ok()
    }
}
