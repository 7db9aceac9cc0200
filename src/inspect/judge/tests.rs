//! Each finding on a file that is made up for it, and its healthy twin.

use super::*;
use crate::inspect::{Archs, Missing, Needed, Ptx, Runtime};

/// A library with device code that needs the runtime of this soname.
fn library(path: &str, runtime: &str) -> File {
    File {
        path: path.to_owned(),
        kind: Kind::SharedLibrary,
        archs: Archs {
            elf: vec!["sm_80".to_owned()],
            ptx: Vec::new(),
        },
        runtime: Runtime {
            linkage: Linkage::Dynamic,
            version: Version::parse(runtime),
            library: Some(format!("libcudart.so.{runtime}")),
            linked_as: None,
        },
        ..File::default()
    }
}

fn judged(files: &[(&str, &str)]) -> Inspection {
    let matrix = Matrix::bundled();
    let target: target::Target = "driver=535.104.05,gpu=A100".parse().unwrap();
    let machine = super::super::machine_of_target(&target, &matrix).unwrap();
    let mut found = Inspection {
        files: files
            .iter()
            .map(|(path, cuda)| library(path, cuda))
            .collect(),
        ..Inspection::default()
    };
    judge(&mut found, Some(&machine), &matrix);
    found
}

#[test]
fn a_variant_that_does_not_run_is_an_error_only_where_no_other_does() {
    let status = |files: &[(&str, &str)]| judged(files).verdict.unwrap().status;
    let one = ("w.whl!b/lib_cuda124.so", "12");
    let other = ("w.whl!b/lib_cuda130.so", "13");
    assert_eq!(status(&[one]), Status::Ok);
    assert_eq!(status(&[other]), Status::Fault);
    assert_eq!(status(&[one, other]), Status::Warning);
    // Other files, and the same file of another environment, are no variants.
    assert_eq!(status(&[("w.whl!b/libx.so", "12"), other]), Status::Fault);
    assert_eq!(
        status(&[("a/3.10/s/b/lib.so", "12"), ("a/3.11/s/b/lib.so", "13")]),
        Status::Fault
    );
}

/// How many modules have these cubins, and this PTX with its version.
type Modules<'a> = (u64, &'a [&'a str], &'a [(&'a str, &'a str)]);

fn with_modules(modules: &[Modules<'_>]) -> File {
    let modules = modules.iter().map(|(count, elf, ptx)| Module {
        count: *count,
        elf: elf.iter().map(ToString::to_string).collect(),
        ptx: ptx
            .iter()
            .map(|(target, isa)| Ptx {
                target: (*target).to_owned(),
                isa: Version::parse(isa).unwrap(),
            })
            .collect(),
    });
    File {
        path: "app".to_owned(),
        kind: Kind::Program,
        modules: modules.collect(),
        ..File::default()
    }
}

/// The ids of what is found, on a target or on this machine.
fn ids(file: &File, target: &str) -> Vec<String> {
    let matrix = Matrix::bundled();
    let machine = match target {
        "here" => Machine {
            here: true,
            ..Machine::default()
        },
        target => {
            let target: target::Target = target.parse().unwrap();
            super::super::machine_of_target(&target, &matrix).unwrap()
        }
    };
    let found = of_file(file, Some(&machine), &matrix, &mut Vec::new());
    found.into_iter().map(|finding| finding.id).collect()
}

#[test]
fn each_finding_and_its_healthy_twin() {
    let (a100, h100) = ("driver=550.54.14,gpu=A100", "driver=550.54.14,gpu=H100");
    let old_ptx = with_modules(&[(1, &["sm_80"], &[("compute_80", "8.0")])]);
    assert_eq!(ids(&old_ptx, a100), [""; 0]);
    assert_eq!(ids(&old_ptx, h100), ["device-code-compiled-at-start"]);
    let new_ptx = with_modules(&[(1, &["sm_80"], &[("compute_80", "9.0")])]);
    assert_eq!(ids(&new_ptx, a100), [""; 0]);
    assert_eq!(ids(&new_ptx, h100), ["ptx-too-new-for-driver"]);
    let none = with_modules(&[(1, &["sm_80"], &[])]);
    assert_eq!(ids(&none, a100), [""; 0]);
    assert_eq!(ids(&none, h100), ["no-device-code-for-gpu"]);
    let some = with_modules(&[(3, &["sm_80", "sm_90"], &[]), (1, &["sm_80"], &[])]);
    assert_eq!(ids(&some, a100), [""; 0]);
    assert_eq!(ids(&some, h100), ["device-code-partial"]);

    let mut packed = with_modules(&[(1, &["sm_80"], &[])]);
    packed.device.zstd = 1;
    packed.toolkits = vec![Version::parse("12.9").unwrap()];
    assert_eq!(ids(&packed, a100), [""; 0]);
    let old = "driver=535.104.05,gpu=A100";
    assert_eq!(ids(&packed, old), ["device-code-packed-too-new"]);

    let mut needs = with_modules(&[]);
    needs.glibc = Version::parse("2.34");
    assert_eq!(ids(&needs, "glibc=2.34"), [""; 0]);
    assert_eq!(ids(&needs, "glibc=2.31"), ["glibc-too-old"]);

    let mut cut = with_modules(&[]);
    assert_eq!(ids(&cut, "here"), [""; 0]);
    cut.kind = Kind::Truncated;
    assert_eq!(ids(&cut, "here"), ["file-damaged"]);

    let mut lost = with_modules(&[]);
    lost.needed = vec![Needed {
        soname: "libcublas.so.12".to_owned(),
        resolved: Some("/opt/libcublas.so.12".to_owned()),
        by: "RUNPATH".to_owned(),
    }];
    assert_eq!(ids(&lost, "here"), [""; 0]);
    for needed in &mut lost.needed {
        needed.resolved = None;
        "not found".clone_into(&mut needed.by);
    }
    assert_eq!(ids(&lost, "here"), ["library-not-found"]);
    // What another machine has of it is not known.
    assert_eq!(ids(&lost, a100), [""; 0]);

    let mut lacks = with_modules(&[]);
    lacks.missing = vec![Missing {
        soname: "libcublasLt.so.12".to_owned(),
        library: "/opt/libcublasLt.so.12".to_owned(),
        what: "cublasLtMatmul".to_owned(),
    }];
    assert_eq!(ids(&lacks, "here"), ["symbol-version-missing"]);
}

/// What is found on this machine of a file with these needs.
fn here(file: &File) -> Vec<Finding> {
    let machine = Machine {
        here: true,
        ..Machine::default()
    };
    of_file(file, Some(&machine), &Matrix::bundled(), &mut Vec::new())
}

#[test]
fn a_library_of_glibc_is_never_replaced_by_itself() {
    for (soname, what, is_glibc) in [
        ("libc.so.6", "GLIBC_2.38", true),
        ("libm.so.6", "GLIBC_2.38", true),
        ("ld-linux-x86-64.so.2", "GLIBC_2.35", true),
        ("libcublasLt.so.12", "cublasLtMatmul", false),
    ] {
        let mut file = library("/srv/app", "12");
        file.missing = vec![Missing {
            soname: soname.to_owned(),
            library: format!("/lib/{soname}"),
            what: what.to_owned(),
        }];
        let found = here(&file);
        let fixes: Vec<&str> = found
            .iter()
            .flat_map(|f| &f.fixes)
            .map(|fix| fix.summary.as_str())
            .collect();
        let replaces = fixes.iter().any(|fix| fix.starts_with("put a newer"));
        assert_eq!(replaces, !is_glibc, "{soname}: {fixes:?}");
    }
}

#[test]
fn a_file_that_is_no_library_is_named() {
    let mut file = library("/srv/app", "12");
    for (by, named) in [
        ("/srv/l/libcudart.so.12 (RUNPATH) is an empty file", true),
        ("/srv/l/libcudart.so.12 is a folder", true),
        ("not found", false),
        (
            "not found (/srv/l (old)/libcudart.so.12 is for another machine)",
            false,
        ),
    ] {
        file.needed = vec![Needed {
            soname: "libcudart.so.12".to_owned(),
            resolved: None,
            by: by.to_owned(),
        }];
        let found = here(&file);
        let title = found.first().map_or("", |f| f.title.as_str());
        let start = title.starts_with("/srv/l/libcudart.so.12, which the loader takes");
        assert_eq!(start, named, "{by}: {title}");
    }
}

#[test]
fn the_ways_out_are_those_of_the_matrix() {
    let found = judged(&[("lib.so", "13")]);
    let [finding] = found.findings.as_deref().unwrap() else {
        panic!("{found:?}");
    };
    let has = |layer, text: &str| {
        let mut fixes = finding.fixes.iter();
        fixes.any(|fix| fix.layer == Some(layer) && fix.summary.contains(text))
    };
    assert!(has(Layer::Driver, "580.65.06 or newer"));
    assert!(has(Layer::Runtime, "CUDA 12.9 or older"));
    assert!(has(Layer::Container, "cuda-compat-13-0"));
}

/// What is found in a file for a described machine, notes aside.
fn found(file: &File, target: &str, change: impl Fn(&mut Machine)) -> Vec<String> {
    let matrix = Matrix::bundled();
    let target: target::Target = target.parse().unwrap();
    let mut machine = super::super::machine_of_target(&target, &matrix).unwrap();
    change(&mut machine);
    let findings = of_file(file, Some(&machine), &matrix, &mut Vec::new());
    findings
        .iter()
        .filter(|f| f.severity > Severity::Note)
        .map(|f| f.id.clone())
        .collect()
}

#[test]
fn what_a_file_still_knows_of_the_machine_that_built_it() {
    let file = |runpath: &str| File {
        runpath: Some(runpath.to_owned()),
        ..library("app", "12")
    };
    for (runpath, id) in [
        ("/usr/local/cuda/lib64/stubs", Some("runpath-to-stubs")),
        ("/home/me/app/build", Some("runpath-to-build-machine")),
        ("$ORIGIN:/builds/app/lib", Some("runpath-to-build-machine")),
        ("$ORIGIN/../lib:/usr/local/cuda/lib64:/opt/app/lib", None),
        ("", None),
    ] {
        let ids = found(&file(runpath), "driver=535.104.05,gpu=A100", |_| {});
        assert_eq!(ids, id.into_iter().collect::<Vec<_>>(), "{runpath}");
        // On this machine the loader's search says more.
        let here = found(&file(runpath), "driver=535.104.05,gpu=A100", |m| {
            m.here = true;
        });
        assert!(here.is_empty(), "{runpath}: {here:?}");
    }
}

#[test]
fn a_file_for_another_processor_or_libstdcxx() {
    let mut file = library("app", "12");
    file.arch = Some("x86_64".to_owned());
    file.glibcxx = Version::parse("3.4.30");
    let ids = |target: &str, arch: Option<&str>| {
        found(&file, target, |m| m.arch = arch.map(str::to_owned))
    };
    assert_eq!(
        ids("gpu=A100", Some("aarch64")),
        ["program-other-architecture"]
    );
    assert!(ids("gpu=A100", Some("x86_64")).is_empty());
    assert_eq!(ids("os=ubuntu-20.04", None), ["libstdcxx-too-old"]);
    assert!(ids("os=debian-12", None).is_empty());
    assert!(ids("os=somewhere-1", None).is_empty());
}

#[test]
fn a_driver_that_does_not_drive_the_gpus_of_its_machine() {
    let matrix = Matrix::bundled();
    for (target, id) in [
        ("driver=595.45.04,gpu=V100", Some("gpu-dropped-by-branch")),
        ("driver=470.256.02,gpu=L40S", Some("gpu-too-new-for-branch")),
        ("driver=580.95.05,gpu=V100+RTX 5090", None),
        ("driver=580.95.05", None),
        ("gpu=V100", None),
    ] {
        let target: target::Target = target.parse().unwrap();
        let machine = super::super::machine_of_target(&target, &matrix).unwrap();
        let ids: Vec<String> = of_machine(&machine, &matrix)
            .into_iter()
            .map(|f| f.id)
            .collect();
        assert_eq!(ids, id.into_iter().collect::<Vec<_>>(), "{target}");
    }
}

#[test]
fn a_library_of_a_package_may_be_for_other_gpus() {
    let file = |name: &str, package: Option<&str>, code: &[&str]| File {
        package: package.map(str::to_owned),
        modules: vec![Module {
            count: 1,
            elf: code.iter().map(|c| (*c).to_owned()).collect(),
            ptx: Vec::new(),
        }],
        ..library(name, "12")
    };
    let worst = |files: Vec<File>| {
        let matrix = Matrix::bundled();
        let target: target::Target = "driver=535.104.05,gpu=A100".parse().unwrap();
        let machine = super::super::machine_of_target(&target, &matrix).unwrap();
        let mut found = Inspection {
            files,
            ..Inspection::default()
        };
        judge(&mut found, Some(&machine), &matrix);
        found.findings.unwrap().iter().map(|f| f.severity).max()
    };
    let (own, other) = (Some("x 1"), Some("y 1"));
    let hopper = |package| file("w!x/_C_90a.so", package, &["sm_90a"]);
    let plain = |package| file("w!x/_C.so", package, &["sm_80"]);
    assert_eq!(worst(vec![hopper(own)]), Some(Severity::Error));
    assert_eq!(worst(vec![hopper(own), plain(own)]), Some(Severity::Note));
    assert_eq!(
        worst(vec![hopper(own), plain(other)]),
        Some(Severity::Error)
    );
    // Files that belong to no package stand each for itself.
    assert_eq!(
        worst(vec![
            file("a", None, &["sm_90a"]),
            file("b", None, &["sm_80"])
        ]),
        Some(Severity::Error)
    );
}

#[test]
fn what_a_described_machine_lacks() {
    let matrix = Matrix::bundled();
    let of = |file: &File, target: &str, brought: &Brought| {
        let target: target::Target = target.parse().unwrap();
        let machine = super::super::machine_of_target(&target, &matrix).unwrap();
        let found = unmet(file, brought, &machine, &matrix);
        found.first().map(|f| f.severity)
    };
    let needs = |soname: &str| File {
        needed: vec![Needed {
            soname: soname.to_owned(),
            ..Needed::default()
        }],
        ..library("app", "12")
    };
    let none = Brought::default();
    let error = Some(Severity::Error);
    for (soname, target, found) in [
        ("libcudart.so.12", "gpu=A100", error),
        ("libcudart.so.12", "gpu=A100,cuda=12.4", None),
        ("libcudart.so.12", "gpu=A100,cuda=11.8", error),
        ("libcublas.so.12", "gpu=A100,cuda=12.4", None),
        ("libcudnn.so.9", "gpu=A100,cuda=12.4", error),
        ("libcudnn.so.9", "gpu=A100,cuda=12.4,cudnn=9.8", None),
        ("libnccl.so.2", "gpu=A100,cuda=12.4", error),
        // The driver's own, and what any distribution has.
        ("libcuda.so.1", "gpu=A100", None),
        ("libnvidia-ml.so.1", "gpu=A100", None),
        ("libstdc++.so.6", "gpu=A100", None),
        ("libgcc_s.so.1", "gpu=A100", None),
        ("libssl.so.3", "gpu=A100", None),
    ] {
        assert_eq!(
            of(&needs(soname), target, &none),
            found,
            "{soname} on {target}"
        );
    }
    let runtime = File {
        path: "lib/libcudart.so.12".to_owned(),
        ..File::default()
    };
    let brought = Brought::by(&[runtime]);
    assert_eq!(of(&needs("libcudart.so.12"), "gpu=A100", &brought), None);
    let packaged = File {
        package: Some("x 1".to_owned()),
        ..needs("libcudart.so.12")
    };
    assert_eq!(of(&packaged, "gpu=A100", &none), Some(Severity::Warning));
    // An extension of PyTorch.
    let mut extension = needs("libcudart.so.12");
    extension.needed.push(Needed {
        soname: "libtorch_cuda.so".to_owned(),
        ..Needed::default()
    });
    assert_eq!(of(&extension, "gpu=A100", &none), None);
}
