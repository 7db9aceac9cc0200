//! Names of files of `ROCm`: what a library's says of its version, and for which GPUs the kernels in a folder are.

use std::collections::BTreeSet;

use crate::version::Version;

/// What a library's file name tells: its own version, and the release of `ROCm` that it is of.
///
/// AMD's packages add the release as a number: `libamdhip64.so.6.4.60401` is HIP 6.4 of `ROCm` 6.4.1. Debian's write the build
/// there: `libamdhip64.so.5.2.21153`.
pub fn library_version(file_name: &str) -> Option<(Version, Option<Version>)> {
    let (_, text) = file_name.split_once(".so.")?;
    let text = text.split('-').next()?;
    let (own, last) = text.rsplit_once('.')?;
    let number: u32 = last.parse().ok()?;
    let major = number / 10_000;
    // A build of HIP may have such a number as well; its own major version is that of the release.
    let is_release = own.contains('.')
        && major >= 3
        && (!file_name.starts_with("libamdhip64")
            || own.split('.').next() == Some(&major.to_string()));
    let release = is_release
        .then(|| format!("{major}.{}.{}", number / 100 % 100, number % 100))
        .and_then(|release| Version::parse(&release));
    let own = if release.is_some() { own } else { text };
    Some((Version::parse(own)?, release))
}

/// The release of `ROCm` that a package of AMD's driver came with: 6.4.1 of `1:6.12.12.60401-2125197.24.04`. Drivers with a line of
/// their own (30.x) have longer numbers there, and none is told of them.
pub fn driver_release(package_version: &str) -> Option<Version> {
    let text = package_version.split('-').next()?;
    let number: u32 = text.rsplit('.').next()?.parse().ok()?;
    (30_000..100_000).contains(&number).then_some(())?;
    Version::parse(&format!(
        "{}.{}.{}",
        number / 10_000,
        number / 100 % 100,
        number % 100
    ))
}

/// The targets that the kernels of rocBLAS or hipBLASLt in a folder are for, by the names of its files: `gfx90a`, `gfx1031`.
///
/// A release that loads its index in parts has one file for each target (`TensileLibrary_lazy_gfx1030.dat`), and without it the
/// library ends there. Before, one index (`TensileLibrary.dat`) stood for all, and code objects tell.
pub fn kernel_targets<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    const LAZY: &str = "TensileLibrary_lazy_";
    let lazy: BTreeSet<String> = names
        .clone()
        .filter_map(|name| target_in(name.strip_prefix(LAZY)?))
        .collect();
    if !lazy.is_empty() {
        return lazy.into_iter().collect();
    }
    let is_code = |name: &&str| {
        [".co", ".hsaco"].iter().any(|end| name.ends_with(end))
            || name.starts_with("TensileLibrary") && name.strip_suffix(".dat").is_some()
    };
    let all: BTreeSet<String> = names.filter(is_code).filter_map(target_in).collect();
    all.into_iter().collect()
}

/// The target in a file's name: `gfx1031`, of a family `gfx11-generic`.
fn target_in(name: &str) -> Option<String> {
    let (_, rest) = name.rsplit_once("gfx")?;
    let end = rest
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(rest.len());
    let (digits, rest) = rest.split_at_checked(end)?;
    // `gfx9-4-generic` has more parts.
    let family = rest
        .split_once("generic")
        .map(|(between, _)| between)
        .filter(|between| between.chars().all(|c| c == '-' || c.is_ascii_digit()));
    match family {
        Some(between) => Some(format!("gfx{digits}{between}generic")),
        None => (digits.len() >= 3).then(|| format!("gfx{digits}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_file_names() {
        for (name, own, release) in [
            ("libamdhip64.so.6.4.60401", "6.4", Some("6.4.1")),
            ("libhsa-runtime64.so.1.15.60401", "1.15", Some("6.4.1")),
            ("librocblas.so.3.1.50701", "3.1", Some("5.7.1")),
            ("libamdhip64.so.5.2.21153", "5.2.21153", None),
            ("libamdhip64.so.5.7.31921", "5.7.31921", None),
            ("libhsa-runtime64.so.1.5.0", "1.5.0", None),
        ] {
            let (found, of) = library_version(name).unwrap();
            assert_eq!(found.to_string(), own, "{name}");
            assert_eq!(of.map(|v| v.to_string()).as_deref(), release, "{name}");
        }
        for none in ["libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.x.y"] {
            assert!(library_version(none).is_none(), "{none}");
        }
    }

    #[test]
    fn releases_of_driver_packages() {
        for (version, release) in [
            ("1:6.12.12.60401-2125197.24.04", Some("6.4.1")),
            ("1:6.2.4.50701-1664922.22.04", Some("5.7.1")),
            ("1:6.14.14.30100000-2193512.24.04", None),
            ("6.8.5", None),
        ] {
            let found = driver_release(version).map(|v| v.to_string());
            assert_eq!(found.as_deref(), release, "{version}");
        }
    }

    #[test]
    fn targets_of_folders() {
        let lazy = [
            "TensileLibrary_lazy_gfx1030.dat",
            "TensileLibrary_lazy_gfx90a.dat",
            "TensileLibrary_Type_HH_Contraction_l_Ailk_Bjlk_Cijk_Dijk_fallback_gfx803.hsaco",
            "Kernels.so-000-gfx906-xnack-.hsaco",
        ];
        assert_eq!(kernel_targets(lazy.into_iter()), ["gfx1030", "gfx90a"]);
        let old = [
            "TensileLibrary.dat",
            "TensileLibrary_gfx906.co",
            "Kernels.so-000-gfx906-xnack-.hsaco",
            "Kernels.so-000-gfx1010.hsaco",
            "gfx803.txt",
        ];
        assert_eq!(kernel_targets(old.into_iter()), ["gfx1010", "gfx906"]);
        let family = [
            "TensileLibrary_lazy_gfx11-generic.dat",
            "TensileLibrary_lazy_gfx9-4-generic.dat",
        ];
        assert_eq!(
            kernel_targets(family.into_iter()),
            ["gfx11-generic", "gfx9-4-generic"]
        );
        assert!(kernel_targets(["README.md"].into_iter()).is_empty());
    }
}
