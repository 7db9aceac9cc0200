//! Render nodes of the DRM subsystem: those that the kernel has, the device behind each, and whether `/dev/dri` has the node.

use crate::facts::{DrmFacts, Reading, RenderNode};
use crate::probe::driver;
use crate::sysroot::{Sysroot, file_name, join};

const CLASS: &str = "/sys/class/drm";
const NODES: &str = "/dev/dri";

/// Render nodes: (1) of `/sys/class/drm`, (2) of `/dev/dri`, where the kernel's list is not to be seen.
pub(super) fn probe(sysroot: &Sysroot) -> DrmFacts {
    let is_render = |name: &str| name.starts_with("renderD");
    let known = sysroot.list(CLASS, is_render);
    let there = sysroot.list(NODES, is_render);
    let mut names: Vec<String> = [known.items(), there.items()].concat();
    names.sort_unstable();
    names.dedup();
    let nodes = names.into_iter().map(|name| {
        let path = join(NODES, &name);
        RenderNode {
            address: sysroot
                .real_path(&format!("{CLASS}/{name}/device"))
                .map(|device| file_name(&device).to_owned()),
            node: match (driver::node(sysroot, &path), &there) {
                (Some(node), _) => Reading::present(node, path),
                (None, Reading::Unreadable { reason }) => Reading::unreadable(reason),
                (None, _) => Reading::absent(NODES),
            },
            name,
        }
    });
    let nodes: Vec<RenderNode> = nodes.collect();
    DrmFacts {
        render: match (known, there) {
            (_, Reading::Unreadable { reason }) | (Reading::Unreadable { reason }, _)
                if nodes.is_empty() =>
            {
                Reading::unreadable(reason)
            }
            _ => Reading::present(nodes, "/sys/class/drm, /dev/dri"),
        },
    }
}
