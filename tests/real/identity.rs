//! Versions out of the real files: by name, by content alone, and by package; and the loader's cache of this machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use gpudoctor::facts::{Facts, LibraryCopy};
use gpudoctor::read::ldcache;
use gpudoctor::version::Version;

use crate::{lab, parts};

/// What the program sees without loading anything.
pub fn snapshot(run: &mut Command) -> Facts {
    let output = run.args(["snapshot", "--static"]).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn drivers() {
    let Some(parts) = parts::all() else { return };
    let place = lab::place();
    for driver in &parts.drivers {
        let named = lab::driver_folder(driver, place.path());
        // The same files without a version in their names, as some packagers and container tools have them.
        let nameless = named.join("nameless");
        fs::create_dir(&nameless).unwrap();
        for soname in ["libcuda.so.1", "libnvidia-ml.so.1"] {
            fs::copy(named.join(soname), nameless.join(soname)).unwrap();
        }
        for folder in [&named, &nameless] {
            let facts = snapshot(lab::gpudoctor(place.path()).env("LD_LIBRARY_PATH", folder));
            for copies in [&facts.driver.libcuda, &facts.driver.libnvidia_ml] {
                let copy: &LibraryCopy = copies.items().iter().find(|c| c.chosen).unwrap();
                assert!(Path::new(&copy.path).starts_with(folder), "{copy:?}");
                let version = copy.version.value().map(ToString::to_string);
                assert_eq!(version.as_ref(), Some(&driver.version), "{copy:?}");
                assert!(!copy.is_compat() && !copy.is_stub(), "{copy:?}");
            }
        }
    }
}

#[test]
fn runtimes() {
    let Some(parts) = parts::all() else { return };
    let place = lab::place();
    for runtime in &parts.runtimes {
        let (wheel, _) = runtime;
        let prefix = lab::environment(runtime, place.path());
        let facts = snapshot(lab::gpudoctor(place.path()).env("VIRTUAL_ENV", &prefix));
        let copies = facts.runtime.cudart.items();
        let own = copies
            .iter()
            .find(|c| Path::new(&c.path).starts_with(&prefix));
        let copy = own.unwrap_or_else(|| panic!("{}: {copies:?}", wheel.version));
        let owner = copy.owner.value().map(String::as_str);
        assert_eq!(owner, Some(&*format!("{} {}", wheel.name, wheel.version)));
        let pinned = Version::parse(wheel.version).unwrap();
        let [(_, code), (_, package)] = &copy.versions[..] else {
            panic!("{}: {:?}", wheel.version, copy.versions)
        };
        assert_eq!(package, &pinned, "{copy:?}");
        assert_eq!(code.to_string(), pinned.major_minor(), "{copy:?}");
    }
}

#[test]
fn the_loaders_cache_is_read_as_ldconfig_prints_it() {
    let cache = fs::read("/etc/ld.so.cache").unwrap_or_default();
    let printed = ["ldconfig", "/sbin/ldconfig"]
        .iter()
        .find_map(|program| Command::new(program).arg("-p").output().ok());
    let Some(printed) = printed.filter(|o| o.status.success() && !cache.is_empty()) else {
        return parts::left_out("no ld.so.cache, or no ldconfig");
    };
    let printed = String::from_utf8(printed.stdout).unwrap();
    // `\tlibm.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libm.so.6`
    let lines: Vec<(&str, &str)> = printed
        .lines()
        .filter_map(|line| {
            let (left, path) = line.trim().split_once(" => ")?;
            Some((left.split_once(" (")?.0, path))
        })
        .collect();
    for soname in [
        "libc.so.6",
        "libm.so.6",
        "libgcc_s.so.1",
        "libstdc++.so.6",
        "libz.so.1",
    ] {
        let expected: Vec<&str> = lines
            .iter()
            .filter(|(name, _)| *name == soname)
            .map(|(_, path)| *path)
            .collect();
        let entries = ldcache::parse(&cache, &[soname]).unwrap();
        let read: Vec<&str> = entries.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(read, expected, "{soname}");
    }
    let all = ldcache::parse_prefixed(&cache, &["lib"]).unwrap();
    let expected = lines.iter().filter(|(name, _)| name.starts_with("lib"));
    assert_eq!(all.len(), expected.count());
}
