//! CDI specifications (Container Device Interface): YAML, or JSON, which is YAML too. What a specification says of nodes,
//! mounts and hooks, of the whole file and of each device.

use serde::Deserialize;

/// What a specification holds, as far as it is of use here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// The version of the format.
    pub version: String,
    /// `nvidia.com/gpu`.
    pub kind: String,
    /// Names of its devices.
    pub devices: Vec<String>,
    /// Device nodes: the path on the host.
    pub nodes: Vec<String>,
    /// Files that are mounted: the path on the host.
    pub mounts: Vec<String>,
    /// Programs that are run as hooks.
    pub hooks: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSpec {
    cdi_version: String,
    kind: String,
    devices: Vec<RawDevice>,
    container_edits: Edits,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawDevice {
    name: String,
    container_edits: Edits,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Edits {
    device_nodes: Option<Vec<Node>>,
    mounts: Option<Vec<Mount>>,
    hooks: Option<Vec<Hook>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Node {
    path: String,
    host_path: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Mount {
    host_path: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Hook {
    path: String,
}

/// Reads a specification.
///
/// # Errors
/// What is wrong with it, in one line.
pub fn spec(text: &str) -> Result<Spec, String> {
    let raw: RawSpec = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|e| e.to_string())?
    } else {
        serde_saphyr::from_str(text).map_err(|e| {
            let words = e.to_string();
            words.lines().next().unwrap_or("is no YAML").to_owned()
        })?
    };
    if raw.kind.is_empty() {
        return Err("it names no kind".to_owned());
    }
    let mut spec = Spec {
        version: raw.cdi_version,
        kind: raw.kind,
        ..Spec::default()
    };
    let mut take = |edits: Edits| {
        let nodes = edits.device_nodes.unwrap_or_default().into_iter();
        spec.nodes
            .extend(nodes.map(|node| node.host_path.unwrap_or(node.path)));
        let mounts = edits.mounts.unwrap_or_default().into_iter();
        spec.mounts.extend(mounts.map(|mount| mount.host_path));
        let hooks = edits.hooks.unwrap_or_default().into_iter();
        spec.hooks.extend(hooks.map(|hook| hook.path));
    };
    take(raw.container_edits);
    for device in raw.devices {
        take(device.container_edits);
        spec.devices.push(device.name);
    }
    for list in [&mut spec.nodes, &mut spec.mounts, &mut spec.hooks] {
        list.sort_unstable();
        list.dedup();
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = r"---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: '0'
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  deviceNodes:
  - path: /dev/nvidiactl
  - path: /dev/nvidia-uvm
    hostPath: /run/nvidia/driver/dev/nvidia-uvm
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache]
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.570.133.20
    options: [ro, nosuid, nodev, bind]
";

    #[test]
    fn a_specification_of_the_toolkit() {
        let spec = spec(YAML).unwrap();
        assert_eq!(spec.kind, "nvidia.com/gpu");
        assert_eq!(spec.version, "0.5.0");
        assert_eq!(spec.devices, ["0", "all"]);
        assert_eq!(
            spec.nodes,
            [
                "/dev/nvidia0",
                "/dev/nvidiactl",
                "/run/nvidia/driver/dev/nvidia-uvm"
            ]
        );
        assert_eq!(spec.hooks, ["/usr/bin/nvidia-cdi-hook"]);
        assert_eq!(spec.mounts.len(), 1);
    }

    #[test]
    fn json_reads_the_same() {
        let json = r#"{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0",
            "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}], "containerEdits": {"mounts": null}}"#;
        let spec = spec(json).unwrap();
        assert_eq!(spec.devices, ["0"]);
        assert_eq!(spec.nodes, ["/dev/nvidia0"]);
    }

    #[test]
    fn damaged_ones_are_refused_in_one_line() {
        for cut in 0..YAML.len() {
            if let Some(Err(e)) = YAML.get(..cut).map(spec) {
                assert!(!e.contains('\n') && !e.is_empty(), "{e:?}");
            }
        }
        for text in [
            "",
            "[",
            "kind: [",
            "- a\n- b\n",
            "kind: nvidia.com/gpu\ndevices: 5\n",
            "a: &a [*a]\n",
            "{\"kind\": 1}",
        ] {
            assert!(spec(text).is_err(), "{text:?}");
        }
        // Aliases that grow to billions of items come to an end.
        let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for n in 1..12 {
            let list = format!("*a{},", n - 1).repeat(10);
            let line = format!("a{n}: &a{n} [{}]\n", list.trim_end_matches(','));
            bomb.push_str(&line);
        }
        bomb.push_str("kind: nvidia.com/gpu\ndevices: *a11\n");
        assert!(spec(&bomb).is_err());
    }
}
