//! Names and versions of installed Python and conda distributions, by the names of their folders and files.
//!
//! Reading an environment of 100 distributions takes one listing that way; METADATA is for where a name says nothing.

/// A distribution's name, normalised by PEP 503 (lower case, runs of `-_.` become one `-`), and its version as written.
type Distribution = (String, String);

/// By the name of a `NAME-VERSION.dist-info` or `NAME-VERSION[-pyX.Y[-PLATFORM]].egg-info` folder (or file).
///
/// `None` for other names, and for an `egg-info` without a version (a development install).
pub fn from_dist_info_dir(name: &str) -> Option<Distribution> {
    let stem = match (
        name.strip_suffix(".dist-info"),
        name.strip_suffix(".egg-info"),
    ) {
        (Some(stem), _) => stem,
        (None, Some(stem)) => {
            let tag = stem.match_indices("-py").map(|(at, _)| at);
            let mut tag = tag.filter(|at| follows_digit(stem, at + 3));
            tag.next().and_then(|at| stem.get(..at)).unwrap_or(stem)
        }
        (None, None) => return None,
    };
    let (name, version) = stem.rsplit_once('-')?;
    distribution(name, version)
}

/// By the name of an egg: `flash_attn-2.3.0-py3.10-linux-x86_64.egg`.
pub fn from_egg(name: &str) -> Option<Distribution> {
    let stem = name.strip_suffix(".egg")?;
    from_dist_info_dir(&format!("{stem}.egg-info"))
}

/// By the name of a file in `conda-meta`: `pytorch-2.3.1-py3.11_cuda11.8_cudnn8.7.0_0.json`.
pub fn from_conda_meta(name: &str) -> Option<Distribution> {
    let (rest, _build) = name.strip_suffix(".json")?.rsplit_once('-')?;
    let (name, version) = rest.rsplit_once('-')?;
    distribution(name, version)
}

/// By the text of METADATA or PKG-INFO: the header lines up to the first blank one.
pub fn metadata_name_version(text: &str) -> Option<Distribution> {
    let header = |key: &str| {
        text.lines()
            .take_while(|line| !line.trim().is_empty())
            .find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case(key).then(|| value.trim())
            })
    };
    distribution(header("name")?, header("version")?)
}

/// The requirements in the header of METADATA: the values of `Requires-Dist`, as written.
pub fn metadata_requires(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .take_while(|line| !line.trim().is_empty())
        .filter_map(|line| line.split_once(':'))
        .filter(|(key, _)| key.eq_ignore_ascii_case("requires-dist"))
        .map(|(_, value)| value.trim())
}

/// The normalised name that a requirement begins with: `nvidia-nccl-cu12` of `nvidia_nccl_cu12==2.26.2; ...`. Of
/// conda's requirements as well.
pub fn required_name(requirement: &str) -> String {
    let end = requirement.find(|c: char| !is_name(c));
    normalised(
        end.and_then(|end| requirement.get(..end))
            .unwrap_or(requirement),
    )
}

/// The folders that a `.pth` file adds to the search path, as written. Lines of code (`import ...`) are not run, so what
/// they would add is not seen.
pub fn pth_paths(text: &str) -> Vec<String> {
    let lines = text
        .trim_start_matches('\u{feff}')
        .lines()
        .map(str::trim_end);
    let is_path = |line: &&str| {
        !line.is_empty()
            && !["#", "import ", "import\t"]
                .iter()
                .any(|start| line.starts_with(start))
    };
    lines.filter(is_path).map(str::to_owned).collect()
}

fn distribution(name: &str, version: &str) -> Option<Distribution> {
    // pip leaves `~orch-2.7.1.dist-info` behind where it could not finish.
    let is_whole = name.chars().all(is_name) && version.starts_with(|c: char| c.is_ascii_digit());
    let name = normalised(name);
    (is_whole && !name.is_empty()).then(|| (name, version.to_owned()))
}

/// Whether a letter may stand in a name.
pub(super) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// A name by PEP 503.
pub fn normalised(name: &str) -> String {
    let parts = name.split(['-', '_', '.']).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join("-").to_lowercase()
}

fn follows_digit(text: &str, at: usize) -> bool {
    text.as_bytes().get(at).is_some_and(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[expect(
        clippy::unnecessary_wraps,
        reason = "it is compared with what a parser answers"
    )]
    fn named(name: &str, version: &str) -> Option<Distribution> {
        Some((name.to_owned(), version.to_owned()))
    }

    #[test]
    fn folders() {
        for (dir, name, version) in [
            (
                "nvidia_cuda_runtime_cu12-12.8.90.dist-info",
                "nvidia-cuda-runtime-cu12",
                "12.8.90",
            ),
            ("torch-2.7.1+cu126.dist-info", "torch", "2.7.1+cu126"),
            ("Jinja2-3.1.4.dist-info", "jinja2", "3.1.4"),
            (
                "ruamel.yaml_clib-0.2.8.dist-info",
                "ruamel-yaml-clib",
                "0.2.8",
            ),
            ("dotted-name-1.0.dist-info", "dotted-name", "1.0"),
            ("PyYAML-6.0.1-py3.12.egg-info", "pyyaml", "6.0.1"),
            (
                "horovod-0.28.1-py3.8-linux-x86_64.egg-info",
                "horovod",
                "0.28.1",
            ),
            ("python-pylons-1.0.egg-info", "python-pylons", "1.0"),
        ] {
            assert_eq!(from_dist_info_dir(dir), named(name, version));
        }
        for dir in [
            "torch",
            "torch.egg-info",
            "-1.0.dist-info",
            ".dist-info",
            "~orch-2.7.1.dist-info",
            "",
        ] {
            assert_eq!(from_dist_info_dir(dir), None, "{dir}");
        }
    }

    #[test]
    fn eggs() {
        assert_eq!(
            from_egg("flash_attn-2.3.0-py3.10-linux-x86_64.egg"),
            named("flash-attn", "2.3.0")
        );
        assert_eq!(from_egg("site-packages"), None);
    }

    #[test]
    fn conda() {
        assert_eq!(
            from_conda_meta("pytorch-2.3.1-py3.11_cuda11.8_cudnn8.7.0_0.json"),
            named("pytorch", "2.3.1")
        );
        assert_eq!(
            from_conda_meta("cuda-cudart-12.4.127-0.json"),
            named("cuda-cudart", "12.4.127")
        );
        assert_eq!(
            from_conda_meta("_openmp_mutex-4.5-2_gnu.json"),
            named("openmp-mutex", "4.5")
        );
        for name in ["history", "a.json", "a-1.json", "cuda-cudart-0.json"] {
            assert_eq!(from_conda_meta(name), None, "{name}");
        }
    }

    #[test]
    fn metadata() {
        let text =
            "Metadata-Version: 2.1\nName: nvidia_cudnn.cu12\nVersion: 999.88.77\n\nVersion: 1\n";
        assert_eq!(
            metadata_name_version(text),
            named("nvidia-cudnn-cu12", "999.88.77")
        );
        assert_eq!(metadata_name_version("Name: a\n\nVersion: 1\n"), None);
    }

    #[test]
    fn requirements() {
        let text = "Name: torch\nRequires-Dist: nvidia_nccl_cu12==2.26.2; platform_system == 'Linux'\nRequires-Dist:numpy\n\nRequires-Dist: no\n";
        let found: Vec<&str> = metadata_requires(text).collect();
        assert_eq!(
            found,
            [
                "nvidia_nccl_cu12==2.26.2; platform_system == 'Linux'",
                "numpy"
            ]
        );
        for (requirement, name) in [
            (found[0], "nvidia-nccl-cu12"),
            ("numpy", "numpy"),
            ("jax[cuda12]>=0.4", "jax"),
            ("cuda-cudart >=12.4,<13.0a0", "cuda-cudart"),
            ("", ""),
        ] {
            assert_eq!(required_name(requirement), name);
        }
    }

    #[test]
    fn pth() {
        let text = "\u{feff}/opt/lib\r\n# note\n\nimport sys; sys.path.append('/x')\nimport\tos\n../vendored \nimportant\n";
        assert_eq!(pth_paths(text), ["/opt/lib", "../vendored", "important"]);
    }

    proptest! {
        #[test]
        fn any_text(text in "\\PC{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            for text in [text.clone(), text.clone() + ".dist-info", text + "-py3.egg-info", String::from_utf8_lossy(&bytes).into()] {
                let _ = (from_dist_info_dir(&text), from_conda_meta(&text), metadata_name_version(&text), pth_paths(&text));
            }
        }
    }
}
