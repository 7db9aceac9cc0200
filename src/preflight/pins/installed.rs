//! Whether a pin is installed on a machine: by the markers of the file and the platform tags of its wheels.

use super::{Build, Judged, arch_of};
use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::inspect::Machine;
use crate::matrix::{Matrix, WheelFor};
use crate::preflight::manifest::Pin;
use crate::read::requirement::Marker;
use crate::version::Version;

/// The Pythons that a marker is asked for where neither target nor file says which it is.
const PYTHONS: std::ops::RangeInclusive<u32> = 6..=15;

/// Whether it is installed there; `None` where that hangs on what is not known of the machine.
pub(super) fn applies(pin: &Pin, machine: &Machine) -> Option<bool> {
    let arch = arch_of(machine);
    if pin.arch.is_some_and(|of| of != arch) {
        return Some(false);
    }
    if pin.markers.is_empty() {
        return Some(true);
    }
    let pythons = pythons(pin, machine);
    let mut is_open = false;
    for marker in &pin.markers {
        match Marker::parse(marker).and_then(|marker| marker.holds_on(arch, &pythons)) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => is_open = true,
        }
    }
    (!is_open).then_some(false)
}

/// The Pythons that it may be, each by its first patch release and one that comes late.
fn pythons(pin: &Pin, machine: &Machine) -> Vec<String> {
    if let Some(python) = &machine.python {
        let text = python.as_str();
        return match python.len() {
            2 => vec![format!("{text}.0"), format!("{text}.99")],
            _ => vec![text.to_owned()],
        };
    }
    let all = PYTHONS.flat_map(|minor| [format!("3.{minor}.0"), format!("3.{minor}.99")]);
    let allowed: Vec<String> = all
        .filter(|python| {
            let bounds = pin.pythons.as_ref();
            bounds.is_none_or(|bounds| bounds.allow(python))
        })
        .collect();
    allowed
}

/// Of a pin of which it cannot be told whether it is installed, what would be found is no finding.
pub(super) fn hangs_on_marker(pin: &Pin, judged: Judged) -> Judged {
    if judged.is_fine() {
        return judged;
    }
    let what = judged
        .found
        .into_iter()
        .max_by_key(|finding| finding.severity);
    let what = what.map(|finding| finding.title);
    let what = what.or_else(|| judged.not_told.into_iter().next());
    let marker = pin.markers.join(" or ");
    let say = if marker.contains("python") {
        "say python=3.12, or whichever it is, of the target"
    } else {
        "a target does not say that"
    };
    Judged {
        found: Vec::new(),
        no_cuda: judged.no_cuda,
        not_told: vec![format!(
            "{}: whether {} is installed there hangs on `{marker}`: {say}. If it is: {}",
            pin.place,
            pin.name,
            what.unwrap_or_default()
        )],
    }
}

/// What a platform tag asks for.
enum Tag {
    /// It is for any system.
    Any,
    /// This machine, with this glibc at least.
    Glibc(Version, String),
    /// This machine, with musl.
    Musl(String),
}

/// Reads a tag of Linux.
fn tag(text: &str) -> Option<Tag> {
    let glibc = |minor: u32, machine: &str| {
        let version = Version::parse(&format!("2.{minor}"))?;
        Some(Tag::Glibc(version, machine.to_owned()))
    };
    if text == "any" {
        return Some(Tag::Any);
    }
    for (name, minor) in [
        ("linux_", 0),
        ("manylinux1_", 5),
        ("manylinux2010_", 12),
        ("manylinux2014_", 17),
    ] {
        if let Some(machine) = text.strip_prefix(name) {
            return glibc(minor, machine);
        }
    }
    let (is_musl, rest) = match text.strip_prefix("manylinux_2_") {
        Some(rest) => (false, rest),
        None => (true, text.strip_prefix("musllinux_1_")?),
    };
    let (minor, machine) = rest.split_once('_')?;
    if is_musl {
        return Some(Tag::Musl(machine.to_owned()));
    }
    glibc(minor.parse().ok()?, machine)
}

/// That there is no wheel of it for the Python of the machine.
pub(super) fn python(
    pin: &Pin,
    build: &Build,
    machine: &Machine,
    matrix: &Matrix,
) -> Option<Finding> {
    let python = machine.python.as_ref()?;
    let (package, version) = build.wheel.as_ref()?;
    let row = matrix.wheel_pythons(package, version);
    let (are_for, source) = match (row, &build.pythons) {
        (Some(row), _) if !row.takes(python) => (row.shown(), &row.source),
        (_, Some(bounds)) if !bounds.allow(python) => (bounds.to_string(), &build.source),
        _ => return None,
    };
    let title = format!(
        "{} has no wheel for Python {python}, which {} has ({})",
        build.shown, machine.name, pin.place
    );
    Some(
        Finding::new("no-wheel-for-python", Layer::Framework, Severity::Error, title)
            .subject(&pin.place)
            .component(&pin.name)
            .evidence("pinned", &build.shown, &pin.place)
            .evidence("wheels for Python", are_for, source)
            .source(source)
            .fix(Fix::at(
                Layer::Framework,
                format!("pin a release with a wheel for Python {python}: `gpudoctor matrix plan` names the newest one"),
            ))
            .fix(
                Fix::at(Layer::Application, "run it with a Python that the release has a wheel for")
                    .second("everything else in the environment has to be installed anew"),
            ),
    )
}

/// What keeps an installer from taking a wheel by the tags in its name: another machine, a newer glibc, another Python.
pub(in crate::preflight) fn wheel_file(path: &str, machine: &Machine) -> Vec<Finding> {
    let name = crate::sysroot::file_name(path);
    let Some(stem) = name.strip_suffix(".whl") else {
        return Vec::new();
    };
    let mut parts = stem.rsplit('-');
    let (Some(platforms), Some(abis), Some(pythons)) = (parts.next(), parts.next(), parts.next())
    else {
        return Vec::new();
    };
    let arch = arch_of(machine);
    let tags: Vec<Tag> = platforms.split('.').filter_map(tag).collect();
    let finding = |id: &str, layer: Layer, title: String| {
        Finding::new(id, layer, Severity::Error, title)
            .subject(path)
            .component(name)
            .evidence(
                "tags of the wheel",
                format!("{pythons}-{abis}-{platforms}"),
                path,
            )
    };
    let mut found = Vec::new();
    let is_any = tags.iter().any(|tag| matches!(tag, Tag::Any));
    let is_own = |tag: &&Tag| match tag {
        Tag::Any => true,
        Tag::Glibc(_, of) => of == arch && !machine.musl,
        Tag::Musl(of) => of == arch && machine.musl,
    };
    let least = tags.iter().filter(is_own).filter_map(|tag| match tag {
        Tag::Glibc(least, _) => Some(least),
        _ => None,
    });
    if !tags.iter().any(|tag| is_own(&tag)) {
        let libc = if machine.musl { " with musl" } else { "" };
        let title = format!(
            "{path} is for {platforms}, and {} is Linux for {arch}{libc}: no installer takes it there",
            machine.name
        );
        found.push(
            finding("program-other-architecture", Layer::Application, title).fix(Fix::at(
                Layer::Application,
                format!("build the wheel for Linux on {arch}{libc} as well"),
            )),
        );
    } else if let (Some(least), Some(has), false) = (least.min(), &machine.glibc, is_any)
        && has < least
    {
        let title = format!(
            "{path} is tagged for glibc {least} or newer, and {} has {has}: no installer takes it there",
            machine.name
        );
        found.push(
            finding("glibc-too-old", Layer::System, title)
                .evidence("glibc", has.as_str(), &machine.name)
                .fix(Fix::at(
                    Layer::Application,
                    format!("build the wheel in an image of manylinux with glibc {has} or older"),
                ))
                .fix(
                    Fix::at(
                        Layer::System,
                        format!(
                            "run it on a distribution or in an image with glibc {least} or newer"
                        ),
                    )
                    .second("it changes the machine for one wheel"),
                ),
        );
    }
    if let Some(python) = &machine.python
        && !takes_python(pythons, abis, python)
    {
        let title = format!(
            "{path} is for Python {pythons}, and {} has {python}: no installer takes it there",
            machine.name
        );
        found.push(
            finding("no-wheel-for-python", Layer::Application, title).fix(Fix::at(
                Layer::Application,
                format!(
                    "build the wheel for Python {python} as well, or against the limited API (abi3)"
                ),
            )),
        );
    }
    found
}

/// Whether tags such as `cp311` and `cp311`, `cp38` and `abi3`, `py3` and `none` are for a Python.
fn takes_python(pythons: &str, abis: &str, python: &Version) -> bool {
    let minor = |tag: &str| -> Option<Version> {
        let digits = tag.strip_prefix("cp").or_else(|| tag.strip_prefix("py"))?;
        let (major, minor) = digits.split_at_checked(1)?;
        Version::parse(&format!(
            "{major}.{}",
            if minor.is_empty() { "0" } else { minor }
        ))
    };
    let Some(own) = Version::parse(&python.major_minor()) else {
        return true;
    };
    // A tag of one CPython without its limited API is for that one alone.
    let is_stable = abis.split('.').any(|abi| abi == "abi3");
    pythons.split('.').any(|tag| match minor(tag) {
        // A tag of another implementation says nothing here.
        None => true,
        Some(of) if of.major() != own.major() => false,
        Some(of) if is_stable && tag.starts_with("cp") || tag.starts_with("py") => of <= own,
        Some(of) => of == own,
    })
}

/// Why no wheel of it is installed there, where that is so: for glibc and the machine has musl, for a newer glibc, for another
/// machine.
pub(super) fn wheel(
    pin: &Pin,
    build: &Build,
    machine: &Machine,
    matrix: &Matrix,
    unknown: &mut Vec<String>,
) -> Vec<Finding> {
    let arch = arch_of(machine);
    let tags: Vec<Tag> = pin.wheels.iter().filter_map(|text| tag(text)).collect();
    if tags.iter().any(|tag| matches!(tag, Tag::Any)) {
        return Vec::new();
    }
    // What the file lists is what there is; else what the matrix knows of the release.
    let (mut least, mut has_musl, mut is_for_other, mut source) =
        (None, false, false, String::new());
    if !pin.wheels.is_empty() {
        let of_arch = tags.iter().filter_map(|tag| match tag {
            Tag::Glibc(glibc, of) if of == arch => Some(glibc),
            _ => None,
        });
        least = of_arch.min().cloned();
        has_musl = tags
            .iter()
            .any(|tag| matches!(tag, Tag::Musl(of) if of == arch));
        is_for_other = least.is_none() && !has_musl && !pin.sdist;
        source.push_str("names of the wheels in the file");
    }
    if let Some((package, version)) = &build.wheel {
        match matrix.wheel_for(package, version, arch) {
            WheelFor::Wheel(row) if pin.wheels.is_empty() => {
                least = Some(row.glibc.clone());
                source.clone_from(&row.source);
            }
            // Of vLLM there are source releases: a build from them is another matter.
            WheelFor::None if pin.wheels.is_empty() && *package != "vllm" => {
                is_for_other = true;
                source.push_str("names of the wheels on PyPI");
            }
            _ => {}
        }
    }
    let finding = |id: &str, layer: Layer, severity: Severity, title: String| {
        Finding::new(id, layer, severity, format!("{title} ({})", pin.place))
            .subject(&pin.place)
            .complaining(Layer::Framework)
            .component(&pin.name)
            .evidence("pinned", &build.shown, &pin.place)
            .source(&source)
    };
    if is_for_other {
        let title = format!(
            "{} has no wheel for {arch}, which {} is",
            build.shown, machine.name
        );
        let fix = format!(
            "take a release that has one for {arch}, or an image of NVIDIA's for {arch} that brings {}",
            pin.name
        );
        return vec![
            finding(
                "program-other-architecture",
                Layer::Framework,
                Severity::Error,
                title,
            )
            .fix(Fix::at(Layer::Framework, fix)),
        ];
    }
    if machine.musl {
        // What comes from NVIDIA or is built for CUDA is for glibc alone.
        if has_musl {
            return Vec::new();
        }
        let title = format!(
            "{} is for glibc, and {} has musl",
            build.shown, machine.name
        );
        return vec![
            finding("program-loader-missing", Layer::System, Severity::Error, title).fix(Fix::at(
                Layer::System,
                "take an image with glibc (Debian, Ubuntu, Rocky Linux): NVIDIA's libraries need it",
            )),
        ];
    }
    let Some(least) = least else {
        return Vec::new();
    };
    if let Some(os) = &machine.glibc_of {
        let why = crate::inspect::glibc_not_known(os, matrix);
        if !unknown.contains(&why) {
            unknown.push(why);
        }
        return Vec::new();
    }
    match &machine.glibc {
        Some(has) if *has < least => {
            let title = format!(
                "{} comes as a wheel for glibc {least} or newer, and {} has {has}",
                build.shown, machine.name
            );
            vec![
                finding("glibc-too-old", Layer::System, Severity::Error, title)
                    .evidence("glibc", has.as_str(), &machine.name)
                    .fix(Fix::at(
                        Layer::System,
                        format!("run it on a distribution or in an image with glibc {least} or newer"),
                    ))
                    .fix(
                        Fix::at(
                            Layer::Framework,
                            format!("pin a release whose wheels take glibc {has}: `gpudoctor matrix plan` names it"),
                        )
                        .second("what the newer release brings is given up"),
                    ),
            ]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platform_tags() {
        for (text, needs) in [
            ("manylinux1_x86_64", Some("2.5 x86_64")),
            ("manylinux2014_aarch64", Some("2.17 aarch64")),
            ("manylinux_2_28_x86_64", Some("2.28 x86_64")),
            ("linux_x86_64", Some("2.0 x86_64")),
            ("musllinux_1_2_x86_64", Some("musl x86_64")),
            ("any", Some("any")),
            ("win_amd64", None),
            ("macosx_11_0_arm64", None),
            ("manylinux_2_x", None),
        ] {
            let read = tag(text).map(|tag| match tag {
                Tag::Any => "any".to_owned(),
                Tag::Glibc(version, machine) => format!("{version} {machine}"),
                Tag::Musl(machine) => format!("musl {machine}"),
            });
            assert_eq!(read.as_deref(), needs, "{text}");
        }
    }
}
