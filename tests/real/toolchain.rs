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

/// Whether a header lets a compiler pass: the preprocessor is run over it with that compiler's own macros in place of
/// its own.
fn passes(header: &Path, macros: &[String]) -> bool {
    let output = Command::new("gcc")
        .args(["-E", "-P", "-undef", "-nostdinc", "-x", "c++"])
        .args([
            "-D__linux__",
            "-D__x86_64__",
            "-D__CUDACC__",
            "-D__cplusplus=201703L",
        ])
        .args(macros.iter().map(|name| format!("-D{name}")))
        .arg("-I")
        .arg(header.parent().unwrap().parent().unwrap())
        .arg(header)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // Headers of the C library that it includes afterwards are not there, which is nothing to the test.
    !said.contains("unsupported")
}

#[test]
fn the_preprocessor_agrees_on_host_compilers() {
    let Some(parts) = parts::all() else { return };
    let mut headers: Vec<(String, std::path::PathBuf)> = parts
        .headers
        .iter()
        .map(|(wheel, folder)| {
            let header = folder.join("nvidia/cu13/include/crt/host_config.h");
            (wheel.version.to_owned(), header)
        })
        .collect();
    if std::env::var("GPUDOCTOR_REAL").as_deref() == Ok("full") {
        for wheel in parts::COMPILERS {
            let folder = parts::wheel(wheel).unwrap();
            let header = folder.join("nvidia/cuda_nvcc/include/crt/host_config.h");
            headers.push((wheel.version.to_owned(), header));
        }
    }
    let matrix = Matrix::bundled();
    for (version, header) in headers {
        let text = fs::read_to_string(&header).unwrap();
        let limits = gpudoctor::read::toolchain::host_limits(&text);
        let row = matrix
            .host_compiler(&Version::parse(&version).unwrap())
            .unwrap();
        for major in 5..=20 {
            let gcc = [format!("__GNUC__={major}"), "__GNUC_MINOR__=1".to_owned()];
            let real = passes(&header, &gcc);
            assert_eq!(
                major <= limits.gcc_max.unwrap(),
                real,
                "{version}: gcc {major}"
            );
            assert_eq!(major <= row.gcc_max, real, "{version}: gcc {major}, matrix");
        }
        for major in 4..=26 {
            let clang = [
                "__clang__=1".to_owned(),
                format!("__clang_major__={major}"),
                "__clang_minor__=0".to_owned(),
                // What Clang says of GCC.
                "__GNUC__=4".to_owned(),
                "__GNUC_MINOR__=2".to_owned(),
            ];
            let real = passes(&header, &clang);
            let least = row.clang_min.major();
            assert_eq!(
                (least..=limits.clang_max.unwrap()).contains(&major),
                real,
                "{version}: clang {major}"
            );
            assert_eq!(
                (least..=row.clang_max).contains(&major),
                real,
                "{version}: clang {major}, matrix"
            );
        }
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
