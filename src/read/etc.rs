//! Small text files under /etc, /lib/modules and in toolkit folders, as people and packages write them.

use std::collections::BTreeMap;

use crate::facts::{ModprobeLine, OsRelease};
use crate::version::Version;

/// `/etc/os-release`: shell assignments, with or without quotes.
pub fn os_release(text: &str) -> OsRelease {
    let mut os = OsRelease::default();
    for (key, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
        let value = shell_value(value);
        match key {
            "ID" => os.id = value,
            "ID_LIKE" => os.id_like = value.split_ascii_whitespace().map(str::to_owned).collect(),
            "VERSION_ID" => os.version_id = value,
            "PRETTY_NAME" => os.pretty_name = value,
            "VARIANT_ID" => os.variant_id = value,
            _ => {}
        }
    }
    os
}

/// The value of a shell assignment: quotes off, and the escapes that count within double quotes undone.
fn shell_value(value: &str) -> String {
    let value = value.trim();
    let inside = |quote| {
        value
            .strip_prefix(quote)
            .and_then(|value| value.strip_suffix(quote))
    };
    if let Some(value) = inside('\'') {
        return value.to_owned();
    }
    let Some(value) = inside('"') else {
        return value.to_owned();
    };
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars().peekable();
    while let Some(letter) = letters.next() {
        let escaped =
            letters.next_if(|next| letter == '\\' && matches!(next, '"' | '$' | '\\' | '`'));
        plain.push(escaped.unwrap_or(letter));
    }
    plain
}

/// The nvidia modules of `modules.dep`, as it writes their paths (from the folder it lies in): `updates/dkms/nvidia.ko.zst`.
/// The kernel's own `nvidiafb` and the like are not among them: they are not NVIDIA's driver.
pub fn modules_dep(text: &str) -> Vec<String> {
    let is_nvidia = |path: &&str| {
        let rest = super::kmod::module_name(path).and_then(|name| name.strip_prefix("nvidia"));
        rest.is_some_and(|rest| {
            let is_own = rest.is_empty() || rest.starts_with(['-', '_']);
            is_own && !matches!(rest, "-wmi-ec-backlight" | "_wmi_ec_backlight")
        })
    };
    let paths = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, _)| path);
    paths.filter(is_nvidia).map(str::to_owned).collect()
}

/// The lines of a file of modprobe.d that name a GPU driver (nvidia*, nouveau, nova*, nvgpu, amdgpu, i915, xe) or vfio: continued
/// lines joined, comments off, runs of blanks made one.
pub fn modprobe_lines(file: &str, text: &str) -> Vec<ModprobeLine> {
    let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
    let line = |line: &str| {
        let words: Vec<_> = line
            .split_whitespace()
            .take_while(|word| !word.starts_with('#'))
            .collect();
        let names_driver = words.iter().skip(1).any(|word| {
            let word = word.replace('-', "_");
            ["nvidia", "nouveau", "vfio", "nvgpu", "nova_", "amdgpu"]
                .iter()
                .any(|name| word.starts_with(name))
                || ["nova", "i915", "xe"].contains(&word.as_str())
        });
        names_driver.then(|| ModprobeLine {
            file: file.to_owned(),
            text: words.join(" "),
        })
    };
    joined.lines().filter_map(line).collect()
}

/// Names by id from `/etc/group`: `video:x:44:user`.
pub fn group_names(text: &str) -> BTreeMap<u32, String> {
    let line = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        Some((fields.nth(1)?.trim().parse().ok()?, name.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// `[automount] ldconfig = false` of `/etc/wsl.conf`: whether WSL runs ldconfig; `None` where it does not say.
pub fn wsl_ldconfig(text: &str) -> Option<bool> {
    let mut section = String::new();
    let mut said = None;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').trim().to_lowercase();
        } else if let Some((key, value)) = line.split_once('=')
            && section == "automount"
            && key.trim().eq_ignore_ascii_case("ldconfig")
        {
            let value = value.trim().trim_matches('"');
            said = value.to_lowercase().parse().ok().or(said);
        }
    }
    said
}

/// `/etc/nv_tegra_release`: `# R36 (release), REVISION: 4.3, GCID: ...` is L4T 36.4.3.
pub fn tegra_release(text: &str) -> Option<Version> {
    let line = text
        .lines()
        .find_map(|line| line.trim_start_matches('#').trim_start().strip_prefix('R'))?;
    let major = line
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .filter(|digits| !digits.is_empty())?;
    let (_, revision) = line.split_once("REVISION:")?;
    let revision = revision.split(',').next()?.trim();
    Version::parse(&format!("{major}.{revision}"))
}

/// The toolkit's version from its `version.json` (`cuda.version`) or, up to 10.2, `version.txt` (`CUDA Version 8.0.61`).
pub fn cuda_toolkit_version(text: &str) -> Option<Version> {
    if let Ok(json) = serde_json::from_str::<serde_json::Value>(text) {
        return Version::parse(json.get("cuda")?.get("version")?.as_str()?);
    }
    let version = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("CUDA Version "))?;
    Version::parse(version.split_ascii_whitespace().next()?)
}
