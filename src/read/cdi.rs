//! CDI specifications (Container Device Interface): YAML, or JSON, which is YAML too. What a specification says of nodes,
//! mounts and hooks, of the whole file and of each device, and whether engines would take it.

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What a specification holds, as far as it is of use here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// The version of the format.
    pub version: String,
    /// `nvidia.com/gpu`.
    pub kind: String,
    /// Its devices.
    pub devices: Vec<Device>,
    /// What every container gets that asks for one of them.
    pub common: Edits,
}

/// A device of a specification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// `0`, `all`, `GPU-...`.
    pub name: String,
    /// What a container gets that asks for it.
    pub edits: Edits,
}

/// What is put into a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Device nodes.
    pub nodes: Vec<Node>,
    /// Files that are mounted: the path on the host.
    pub mounts: Vec<String>,
    /// Programs that are run as hooks.
    pub hooks: Vec<String>,
}

/// A device node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The path on the host.
    pub path: String,
    /// Its type and numbers stand in the specification, so that the engine need not look at it.
    pub described: bool,
}

impl Spec {
    /// Everything that is put into some container.
    pub fn all(&self) -> impl Iterator<Item = &Edits> {
        std::iter::once(&self.common).chain(self.devices.iter().map(|device| &device.edits))
    }
}

/// An empty value (`containerEdits:`) is as good as none, as Go reads it.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSpec {
    cdi_version: Option<String>,
    kind: Option<String>,
    devices: Option<Vec<RawDevice>>,
    container_edits: Option<RawEdits>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawDevice {
    name: Option<String>,
    container_edits: Option<RawEdits>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawEdits {
    device_nodes: Option<Vec<RawNode>>,
    mounts: Option<Vec<RawMount>>,
    hooks: Option<Vec<RawHook>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawNode {
    path: Option<String>,
    host_path: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    major: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawMount {
    host_path: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawHook {
    path: Option<String>,
}

impl From<Option<RawEdits>> for Edits {
    fn from(raw: Option<RawEdits>) -> Self {
        let raw = raw.unwrap_or_default();
        let mut edits = Self::default();
        for node in raw.device_nodes.unwrap_or_default() {
            let kind = node.kind.unwrap_or_default();
            let host = node.host_path.filter(|path| !path.is_empty());
            if let Some(path) = host.or(node.path) {
                edits.nodes.push(Node {
                    path,
                    // As the engines' library decides whether it has to look.
                    described: kind == "p" || !kind.is_empty() && node.major.unwrap_or(0) != 0,
                });
            }
        }
        let mounts = raw.mounts.unwrap_or_default().into_iter();
        edits.mounts = mounts.filter_map(|mount| mount.host_path).collect();
        let hooks = raw.hooks.unwrap_or_default().into_iter();
        edits.hooks = hooks.filter_map(|hook| hook.path).collect();
        edits
    }
}

/// Reads a specification as engines do: of several documents the first one, and only what they take.
///
/// # Errors
/// Why no engine takes it, in one line.
pub fn spec(text: &str) -> Result<Spec, String> {
    let text = first_document(text.strip_prefix('\u{feff}').unwrap_or(text));
    let raw: RawSpec = if text.trim_start().starts_with('{') {
        json(text)?
    } else {
        yaml(text)?
    };
    let mut spec = Spec {
        version: raw.cdi_version.unwrap_or_default(),
        kind: raw.kind.unwrap_or_default(),
        common: raw.container_edits.into(),
        devices: Vec::new(),
    };
    if spec.kind.is_empty() {
        return Err("it names no kind".to_owned());
    }
    if !is_version(&spec.version) {
        return Err(format!(
            "`{}` is no version of the format: cdiVersion: 0.5.0 is one",
            spec.version.escape_debug()
        ));
    }
    for device in raw.devices.unwrap_or_default() {
        let name = device.name.unwrap_or_default();
        if spec.devices.iter().any(|known| known.name == name) {
            return Err(format!(
                "the device `{}` stands in it twice",
                name.escape_debug()
            ));
        }
        spec.devices.push(Device {
            name,
            edits: device.container_edits.into(),
        });
    }
    if spec.devices.is_empty() {
        return Err("it names no devices".to_owned());
    }
    Ok(spec)
}

/// Three numbers; the engines' library knows no other versions.
fn is_version(text: &str) -> bool {
    let text = text.strip_prefix('v').unwrap_or(text);
    text.split('.').count() == 3
        && text
            .split('.')
            .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| {
        let what = if e.is_data() {
            "a value is of another kind than the format has there"
        } else {
            "this is no JSON"
        };
        format!("line {}, column {}: {what}", e.line(), e.column())
    })
}

fn yaml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str(text).map_err(|e| {
        let is_yaml = serde_saphyr::from_str::<serde_json::Value>(text).is_ok();
        let what = if is_yaml {
            "a value is of another kind than the format has there"
        } else {
            "this is no YAML"
        };
        match e.location() {
            Some(at) if at.line() > 0 => {
                format!("line {}, column {}: {what}", at.line(), at.column())
            }
            _ => what.to_owned(),
        }
    })
}

/// The first document of a stream: `---` or `...` at the beginning of a line ends it.
fn first_document(text: &str) -> &str {
    let is_mark = |line: &str, mark: &str| {
        line.strip_prefix(mark)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
    };
    let mut began = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if began && (is_mark(line, "---") || is_mark(line, "...")) {
            return text.get(..at).unwrap_or(text);
        }
        let rest = line.strip_prefix("---").unwrap_or(line).trim();
        began |= !rest.is_empty() && !rest.starts_with(['#', '%']);
        at += line.len();
    }
    text
}

/// The kind that a text names, whether or not the rest of it can be read.
pub fn kind_of(text: &str) -> Option<&str> {
    const WORD: &str = "kind";
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    lines
        .flat_map(|line| line.match_indices(WORD).map(move |(at, _)| (line, at)))
        .find_map(|(line, at)| {
            let before = line.get(..at)?.chars().next_back();
            if before.is_some_and(|c| !c.is_whitespace() && !matches!(c, '"' | '\'' | '{' | ',')) {
                return None;
            }
            let rest = line.get(at + WORD.len()..)?;
            let rest = rest.trim_start_matches(['"', '\'']).trim_start();
            let value = rest.strip_prefix(':')?.trim_start();
            let value = value.trim_start_matches(['"', '\'']);
            let end = value
                .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '}' | '#'))
                .unwrap_or(value.len());
            value.get(..end).filter(|value| !value.is_empty())
        })
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
        assert_eq!(names(&spec), ["0", "all"]);
        assert_eq!(
            nodes(&spec),
            [
                "/dev/nvidiactl",
                "/run/nvidia/driver/dev/nvidia-uvm",
                "/dev/nvidia0",
                "/dev/nvidia0",
            ]
        );
        assert_eq!(spec.common.hooks, ["/usr/bin/nvidia-cdi-hook"]);
        assert_eq!(spec.common.mounts.len(), 1);
    }

    fn names(spec: &Spec) -> Vec<&str> {
        spec.devices.iter().map(|d| d.name.as_str()).collect()
    }

    fn nodes(spec: &Spec) -> Vec<&str> {
        let nodes = spec.all().flat_map(|edits| &edits.nodes);
        nodes.map(|node| node.path.as_str()).collect()
    }

    /// What Go's reader takes is taken, and what it refuses is refused in own words.
    #[test]
    fn what_engines_take_and_refuse() {
        let empty = YAML.replace(
            "  env:\n  - NVIDIA_VISIBLE_DEVICES=void\n",
            "  env:\n  hooks:\n",
        );
        let empty = empty.replace("  hooks:\n  - hookName: createContainer\n    path: /usr/bin/nvidia-cdi-hook\n    args: [nvidia-cdi-hook, update-ldcache]\n", "");
        for text in [
            empty.clone(),
            "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits:\ndevices:\n- name: all\n"
                .to_owned(),
            format!("{YAML}---\nkind: 7\n"),
            format!("{YAML}...\nrubbish: [\n"),
            format!("\u{feff}{YAML}"),
            YAML.replace('\n', "\r\n"),
        ] {
            assert_eq!(
                spec(&text).map(|spec| spec.kind),
                Ok("nvidia.com/gpu".to_owned()),
                "{text}"
            );
        }
        for (text, why) in [
            (YAML.replace("0.5.0", "0.5"), "no version of the format"),
            (
                YAML.replace("name: all", "name: '0'"),
                "`0` stands in it twice",
            ),
            (
                "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n".to_owned(),
                "no devices",
            ),
            (YAML.replace("'0'", "'0"), "this is no YAML"),
            (
                YAML.replace("devices:\n- name", "devices:\n  name"),
                "line ",
            ),
            ("{\"kind\": 1}".to_owned(), "of another kind"),
            ("{\"kind\": ".to_owned(), "this is no JSON"),
        ] {
            let e = spec(&text).unwrap_err();
            assert!(e.contains(why), "{e}");
            assert!(!e.contains("use ") && !e.contains("::"), "{e}");
        }
    }

    #[test]
    fn nodes_that_need_not_be_there() {
        let text = YAML.replace(
            "  - path: /dev/nvidiactl\n",
            "  - path: /dev/nvidiactl\n    type: c\n    major: 195\n  - path: /dev/nvidia-modeset\n    major: 195\n",
        );
        let common = spec(&text).unwrap().common;
        let described: Vec<bool> = common.nodes.iter().map(|node| node.described).collect();
        assert_eq!(described, [true, false, false]);
    }

    #[test]
    fn the_kind_of_what_cannot_be_read() {
        for (text, kind) in [
            (
                "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [\n",
                Some("nvidia.com/gpu"),
            ),
            (
                "{\"cdiVersion\":\"0.5.0\",\"kind\":\"nvidia.com/rdma-nic\",",
                Some("nvidia.com/rdma-nic"),
            ),
            ("# kind: nvidia.com/gpu specs go here\n", None),
            (
                "kind: 'rdma.nvidia.com/nic' # not nvidia.com/gpu\n: broken [",
                Some("rdma.nvidia.com/nic"),
            ),
            ("mankind: x\nkinds: y\nkind:\n", None),
        ] {
            assert_eq!(kind_of(text), kind, "{text}");
        }
    }

    #[test]
    fn json_reads_the_same() {
        let json = r#"{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0",
            "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}], "containerEdits": {"mounts": null}}"#;
        let spec = spec(json).unwrap();
        assert_eq!(names(&spec), ["0"]);
        assert_eq!(nodes(&spec), ["/dev/nvidia0"]);
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
