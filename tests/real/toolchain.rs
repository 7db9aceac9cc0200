//! Headers of real toolkits, and the host compiler of this machine held against what it answers when it is asked.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use gpudoctor::facts::{CompilerUse, Nvcc, NvccFoundBy};
use gpudoctor::matrix::Matrix;
use gpudoctor::version::Version;

use crate::identity::snapshot;
use crate::{lab, parts};

/// What stands for nvcc: the text that the real one holds, in a file of its name.
fn nvcc(toolkit: &Path, version: &str) {
    let bin = toolkit.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let program = bin.join("nvcc");
    let release = Version::parse(version).unwrap().major_minor();
    let text = format!("\0Cuda compilation tools, release {release}, V{version}\0");
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn headers_say_what_the_matrix_says() {
    let Some(parts) = parts::all() else { return };
    let matrix = Matrix::bundled();
    for (wheel, folder) in &parts.headers {
        let place = lab::place();
        let toolkit = place.path().join("toolkit");
        nvcc(&toolkit, wheel.version);
        std::os::unix::fs::symlink(folder.join("nvidia/cu13/include"), toolkit.join("include"))
            .unwrap();
        let facts = snapshot(lab::gpudoctor(place.path()).env("CUDA_HOME", &toolkit));
        let all = facts.toolchain.nvcc.items();
        let read: &Nvcc = all.iter().find(|n| n.is_by(NvccFoundBy::CudaHome)).unwrap();
        let version = Version::parse(wheel.version).unwrap();
        assert_eq!(read.version.value(), Some(&version));
        let row = matrix.host_compiler(&version).unwrap();
        let limits = read.limits.value().unwrap();
        assert_eq!(
            (limits.gcc_max, limits.clang_max),
            (Some(row.gcc_max), Some(row.clang_max)),
            "{}",
            wheel.version
        );
        let newer: Vec<_> = matrix
            .shared_math()
            .iter()
            .filter(|row| row.toolkit > version)
            .map(|row| row.function.clone())
            .collect();
        assert_eq!(read.plain_math.value(), Some(&newer), "{}", wheel.version);
    }
}

#[test]
fn the_host_compiler_of_this_machine() {
    let asked = Command::new("gcc").arg("-dumpfullversion").output();
    let Some(answer) = asked.ok().filter(|output| output.status.success()) else {
        parts::not_run("there is no gcc here");
        return;
    };
    let answer = String::from_utf8(answer.stdout).unwrap();
    let place = lab::place();
    let toolkit = place.path().join("toolkit");
    nvcc(&toolkit, "13.5.37");
    let facts = snapshot(lab::gpudoctor(place.path()).env("CUDA_HOME", &toolkit));
    let compilers = facts.toolchain.compilers.items();
    let own = compilers
        .iter()
        .find(|c| c.used_by.contains(&CompilerUse::Path))
        .unwrap();
    assert_eq!(
        own.version.value(),
        Version::parse(&answer).as_ref(),
        "{own:?}"
    );
}
