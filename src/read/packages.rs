//! Packages of NVIDIA's stack among those that a distribution's package manager lists: dpkg and pacman.

use std::io;

use memchr::memmem;

use super::window::{ReadAt, WINDOW, fill};
use crate::facts::Package;

/// What an entry of dpkg's begins with.
const NAME: &[u8] = b"Package: ";

/// The most bytes of one entry that are looked at. Status and version stand in the first lines of it.
const MAX_ENTRY: usize = 16 << 10;

/// The installed packages of `/var/lib/dpkg/status` that belong to NVIDIA's stack.
///
/// The file has 5 MB and thousands of entries on a desktop. So it is read window by window, each entry costs one search for
/// its first line, and only entries with a fitting name are looked into.
///
/// # Errors
/// Where the file cannot be read to its end: what was not seen is not known to be absent.
pub fn dpkg_packages<F: ReadAt + ?Sized>(status: &F) -> io::Result<Vec<Package>> {
    let mut packages = Vec::new();
    // An entry that begins before WINDOW is whole in the buffer. Windows overlap by the byte before the first that is new,
    // which says whether a line begins there.
    let mut buffer = vec![0; WINDOW + MAX_ENTRY];
    let mut offset = 0;
    loop {
        let got = fill(&status, offset, &mut buffer)?;
        let seen = buffer.get(..got).unwrap_or_default();
        let first = usize::from(offset > 0);
        let is_last = got < buffer.len();
        packages.extend(
            memmem::find_iter(seen, NAME)
                .skip_while(|at| *at < first)
                .take_while(|at| *at < WINDOW || is_last)
                .filter(|at| *at == 0 || seen.get(at - 1) == Some(&b'\n'))
                .filter_map(|at| installed(seen.get(at..)?)),
        );
        if is_last {
            return Ok(packages);
        }
        offset += WINDOW as u64 - 1;
    }
}

/// The package whose entry begins here, where it is one of the stack's and installed.
fn installed(entry: &[u8]) -> Option<Package> {
    let name = line(entry.get(NAME.len()..)?);
    if !is_of_the_stack(&name) {
        return None;
    }
    let entry = entry.get(..MAX_ENTRY).unwrap_or(entry);
    let entry = entry.get(..memmem::find(entry, b"\n\n").unwrap_or(entry.len()))?;
    let field = |name: &[u8]| Some(line(entry.get(memmem::find(entry, name)? + name.len()..)?));
    // Three words: what is wanted, errors, and what is: `install ok installed`, `deinstall ok config-files`.
    let is_installed = field(b"\nStatus: ")?.split_ascii_whitespace().nth(2) == Some("installed");
    let version = field(b"\nVersion: ")?;
    is_installed.then_some(Package { name, version })
}

/// A package of NVIDIA's stack by the name of its folder in `/var/lib/pacman/local`: `nvidia-utils-570.86.16-2`, whose
/// version is `570.86.16-2`. `None` for other packages.
pub fn pacman_dir_name(name: &str) -> Option<Package> {
    let (rest, release) = name.rsplit_once('-')?;
    let (name, version) = rest.rsplit_once('-')?;
    let is_package = !version.is_empty() && !release.is_empty() && is_of_the_stack(name);
    is_package.then(|| Package {
        name: name.to_owned(),
        version: format!("{version}-{release}"),
    })
}

/// Whether a package's name speaks of NVIDIA, CUDA or the competing driver.
fn is_of_the_stack(name: &str) -> bool {
    const PARTS: [&str; 6] = ["nvidia", "cuda", "cudnn", "nccl", "tensorrt", "nouveau"];
    // libnvinfer, libnvjpeg, libnvjitlink; not libnvme (disks) and libnvpair (file systems).
    let is_library = name.starts_with("libnv")
        && !["libnvme", "libnvpair"]
            .iter()
            .any(|other| name.starts_with(other));
    is_library || name == "amdgpu-dkms" || PARTS.iter().any(|part| name.contains(part))
}

/// The text up to the end of the line.
fn line(bytes: &[u8]) -> String {
    let end = memchr::memchr(b'\n', bytes).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default())
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(status: &str) -> Vec<String> {
        let packages = dpkg_packages(status.as_bytes()).unwrap().into_iter();
        packages
            .map(|p| format!("{} {}", p.name, p.version))
            .collect()
    }

    #[test]
    fn only_installed_packages_of_the_stack() {
        let status = "\
Package: libnvidia-compute-999
Status: install ok installed
Priority: optional
Version: 999.88.77-0ubuntu1
Description: NVIDIA libcompute package
 Package: cuda-in-a-description
 Version: 1

Package: nvidia-dkms-535
Status: deinstall ok config-files
Version: 535.1

Package: cuda-toolkit-12-4
Status: hold ok installed
Version: 12.4.1-1

Package: libnvme1
Status: install ok installed
Version: 1.3

Package: libnvinfer10
Status: install ok half-installed
Version: 10.0

Package: libnvinfer-bin
Status: install ok installed
Version: 10.1

Package: xserver-xorg-video-nouveau
Status: install ok installed
Version: 1:1.0.17-2";
        assert_eq!(
            found(status),
            [
                "libnvidia-compute-999 999.88.77-0ubuntu1",
                "cuda-toolkit-12-4 12.4.1-1",
                "libnvinfer-bin 10.1",
                "xserver-xorg-video-nouveau 1:1.0.17-2"
            ]
        );
        assert!(found("Package: nvidia-smi").is_empty());
        assert!(
            found("Package: nvidia-smi\nStatus: install ok installed\n\nVersion: 1\n").is_empty()
        );
    }

    /// An entry at every place about the edge of a window is found once.
    #[test]
    fn windows() {
        let entry = "Package: cuda\nStatus: install ok installed\nVersion: 1\n\n";
        for edge in [WINDOW, 2 * WINDOW - 1, WINDOW + MAX_ENTRY] {
            for before in edge - entry.len() - 2..edge + 2 {
                let status = format!("{}\n{entry}", "x".repeat(before));
                assert_eq!(found(&status), ["cuda 1"], "{before}");
                let inside = format!("{} {entry}", "x".repeat(before));
                assert_eq!(found(&inside), [""; 0], "{before}");
            }
        }
    }

    #[test]
    fn pacman_folders() {
        let package = pacman_dir_name("nvidia-utils-999.88.77-2").unwrap();
        assert_eq!(
            (package.name.as_str(), package.version.as_str()),
            ("nvidia-utils", "999.88.77-2")
        );
        for other in [
            "glibc-2.41-1",
            "nvidia",
            "nvidia-1",
            "nvidia--1",
            "ALPM_DB_VERSION",
            "",
        ] {
            assert_eq!(pacman_dir_name(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes(text in "(\n|\n\n|Package: |cuda|Status: |installed|Version: |é|.){0,30}", bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            let _ = (dpkg_packages(text.as_bytes()), dpkg_packages(&bytes), pacman_dir_name(&text));
        }
    }
}
