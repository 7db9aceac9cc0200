//! Which PTX a driver compiles: the matrix against the drivers' own compilers, which answer without a GPU.
//!
//! The compiler is asked for a kernel that does nothing, in each version of the language, for each target that has it, on
//! each GPU that the driver knows. A driver of today calls the same library when it loads a module.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use gpudoctor::matrix::{CodeFit, Matrix, Target};
use gpudoctor::version::Version;

use super::parts;

#[test]
fn ptx_verdicts_are_those_of_the_drivers_own_compilers() {
    let Some(compilers) = parts::ptx_compilers() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ptx");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stubs/ptx.c");
    let built = Command::new("cc")
        .arg("-o")
        .args([&program, &source])
        .arg("-ldl")
        .status();
    if !built.is_ok_and(|status| status.success()) {
        parts::not_run("no C compiler");
        return;
    }
    let matrix = Matrix::bundled();
    for (version, library) in compilers {
        let driver = Version::parse(&version).unwrap();
        let (level, _) = matrix.cuda_level_of(&driver).unwrap();
        let questions = questions(&matrix, driver.major());
        let mut child = Command::new(&program)
            .arg(&library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines: Vec<String> = questions
            .iter()
            .map(|(gpu, isa, target)| format!("sm_{}{} {isa} {target}", gpu.0, gpu.1))
            .collect();
        let lines = lines.join("\n");
        let mut stdin = child.stdin.take().unwrap();
        let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(output.status.success(), "{version}");
        let said = String::from_utf8(output.stdout).unwrap();
        let mut said = said.lines();
        let newest = matrix.ptx_isa_of_level(level).unwrap();
        // Of the language, or as that of 470 of its CUDA release.
        let itself = said.next().unwrap();
        assert!(
            itself == newest.ptx.as_str() || itself == newest.cuda.as_str(),
            "{version}: {itself}"
        );
        let codes: Vec<&str> = said.collect();
        assert_eq!(codes.len(), questions.len(), "{version}");
        let (mut compiled, mut refused) = (0, 0);
        let mut wrong = Vec::new();
        for ((gpu, isa, target), code) in questions.iter().zip(codes) {
            let fit = matrix.held_code_fit(&[], &[(*target, isa.clone())], *gpu, Some(level));
            let runs = matches!(fit, CodeFit::Ptx(_));
            *if code == "0" {
                &mut compiled
            } else {
                &mut refused
            } += 1;
            if runs != (code == "0") {
                wrong.push(format!(
                    "PTX {isa} for {target} on {gpu:?}: {code}, and the matrix says {fit:?}"
                ));
            }
        }
        assert!(wrong.is_empty(), "driver {version}:\n{}", wrong.join("\n"));
        assert!(
            compiled > 20 && refused > 20,
            "driver {version}: {compiled} and {refused}"
        );
    }
}

/// GPU, version of the language and target, where that version has the target.
fn questions(matrix: &Matrix, branch: u32) -> Vec<((u32, u32), Version, Target)> {
    const GPUS: &[(u32, u32)] = &[(7, 0), (8, 0), (8, 6), (9, 0)];
    const TARGETS: &[(u32, u32)] = &[(7, 0), (7, 5), (8, 0), (9, 0)];
    let archs = |of: &'static [(u32, u32)]| {
        let of = of.iter();
        of.map(|capability| matrix.arch(*capability).unwrap())
    };
    let gpus: Vec<_> = archs(GPUS)
        .filter(|arch| arch.first_driver_branch.unwrap() <= branch)
        .map(|arch| arch.capability)
        .collect();
    let mut isas: Vec<_> = matrix.ptx_isas().iter().collect();
    // Of a version that two toolkits write, the first has what it begins with.
    isas.dedup_by(|later, first| later.ptx == first.ptx);
    let mut all = Vec::new();
    for isa in isas.into_iter().filter(|isa| isa.ptx.major() >= 7) {
        for arch in archs(TARGETS) {
            if arch.first_toolkit > isa.cuda {
                continue;
            }
            let (major, minor) = arch.capability;
            let target = Target::parse(&format!("sm_{major}{minor}")).unwrap();
            for gpu in &gpus {
                all.push((*gpu, isa.ptx.clone(), target));
            }
        }
    }
    all
}
