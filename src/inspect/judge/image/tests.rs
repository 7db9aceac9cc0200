//! What is said of images on machines.

use std::collections::BTreeMap;

use super::*;
use crate::facts::CompatNote;
use crate::inspect::image::{Compat as InImage, DriverFile, OwnLibcuda, TakenBy};
use crate::inspect::{Archs, Linkage, Module, Needed, Ptx, Runtime, machine_of_target};
use crate::target::Target;
use crate::version::Version;

fn program(cuda: &str) -> File {
    File {
        path: "app.tar!/opt/app".to_owned(),
        kind: Kind::Program,
        runtime: Runtime {
            linkage: Linkage::Static,
            version: Version::parse(cuda),
            ..Runtime::default()
        },
        glibc: Version::parse("2.34"),
        ..File::default()
    }
}

fn image(variables: &[(&str, &str)]) -> ImageFacts {
    let all: BTreeMap<String, String> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    ImageFacts {
        environment: Some(all),
        glibc: Version::parse("2.35"),
        ..ImageFacts::default()
    }
}

fn found(target: &str, image: &ImageFacts, files: &[File]) -> Vec<(String, Severity)> {
    let matrix = Matrix::bundled();
    let target: Target = target.parse().unwrap();
    let machine = machine_of_target(&target, &matrix).unwrap();
    let files: Vec<&File> = files.iter().collect();
    let mut unknown = Vec::new();
    let all = of_image(
        "app.tar",
        image,
        &files,
        Some(&machine),
        &matrix,
        &mut unknown,
    );
    let mut told: Vec<_> = all.into_iter().map(|f| (f.id, f.severity)).collect();
    told.extend(
        unknown
            .into_iter()
            .map(|_| ("unknown".to_owned(), Severity::Note)),
    );
    told
}

#[test]
fn an_image_that_leaves_out_what_its_programs_need() {
    const VARIABLE: &str = "NVIDIA_DRIVER_CAPABILITIES";
    const ID: &str = "container-library-missing";
    let target = "driver=550.54.14,gpu=A100";
    let has = |asked: &str, files: &[File]| {
        let found = found(target, &image(&[(VARIABLE, asked)]), files);
        found.iter().any(|(id, _)| id == ID)
    };
    let only_nvml = File {
        libnvidia_ml: Use::Dlopen,
        runtime: Runtime::default(),
        ..program("12.4")
    };
    assert!(has("utility", &[program("12.4")]));
    assert!(has("video, utility", &[program("12.4"), only_nvml.clone()]));
    for asked in ["compute,utility", "utility, compute", "all", ""] {
        assert!(!has(asked, &[program("12.4")]), "{asked}");
    }
    assert!(!has("utility", &[only_nvml]) && !has("utility", &[]));
    let unset = found(target, &image(&[]), &[program("12.4")]);
    assert!(unset.iter().all(|(id, _)| id != ID), "{unset:?}");
}

#[test]
fn what_an_image_asks_of_its_host() {
    let asks = "cuda>=12.4 brand=tesla,driver>=470,driver<471 brand=tesla,driver>=535,driver<536 brand=nvidia,driver>=535,driver<536";
    let image = image(&[("NVIDIA_REQUIRE_CUDA", asks)]);
    let unmet = [("image-requirement-not-met".to_owned(), Severity::Error)];
    // Met by the CUDA version, by the branch and the board, by neither.
    assert!(found("driver=550.54.14,gpu=RTX 4090", &image, &[]).is_empty());
    assert!(found("driver=535.104.05,gpu=Tesla T4", &image, &[]).is_empty());
    assert_eq!(
        found("driver=535.104.05,gpu=GeForce RTX 4090", &image, &[]),
        unmet
    );
    assert_eq!(found("driver=525.60.13,gpu=A100", &image, &[]), unmet);
    // The board decides, and it is not known which it is.
    let open = found("driver=535.104.05,gpu=sm_80", &image, &[]);
    assert_eq!(open, [("unknown".to_owned(), Severity::Note)]);
    let off = self::image(&[
        ("NVIDIA_REQUIRE_CUDA", asks),
        ("NVIDIA_DISABLE_REQUIRE", "1"),
    ]);
    assert!(found("driver=525.60.13,gpu=A100", &off, &[]).is_empty());
    let broken = self::image(&[("NVIDIA_REQUIRE_CUDA", "cuda>=.0")]);
    assert_eq!(found("driver=550.54.14,gpu=A100", &broken, &[]), unmet);
}

#[test]
fn files_of_a_driver_belong_to_the_host() {
    let mut image = image(&[]);
    image.driver_files = vec![DriverFile {
        path: "/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05".to_owned(),
        version: Version::parse("535.104.05").unwrap(),
        size_bytes: 0,
    }];
    // What the file itself would be blamed for is not told besides.
    let empty = File {
        path: format!("app.tar!{}", image.driver_files[0].path),
        kind: Kind::Empty,
        ..File::default()
    };
    let told = found(
        "driver=550.54.14,gpu=A100",
        &image,
        std::slice::from_ref(&empty),
    );
    assert_eq!(
        told,
        [("image-has-driver-files".to_owned(), Severity::Warning)]
    );
    image.driver_files.clear();
    let told = found("driver=550.54.14,gpu=A100", &image, &[empty]);
    assert_eq!(told, [("file-damaged".to_owned(), Severity::Error)]);
}

/// A compat library of this version where the toolkit looks for it.
fn compat(version: &str) -> InImage {
    InImage {
        path: format!("/usr/local/cuda-13.1/compat/libcuda.so.{version}"),
        version: Version::parse(version),
        taken_by: TakenBy::Toolkit,
        ..InImage::default()
    }
}

fn severity(target: &str, image: &ImageFacts, cuda: &str, id: &str) -> Option<Severity> {
    let told = found(target, image, &[program(cuda)]);
    told.into_iter()
        .find(|(found, _)| found == id)
        .map(|(_, severity)| severity)
}

const NOT_USABLE: &str = "compat-libcuda-not-usable";

#[test]
fn a_compat_library_that_is_put_first_goes_with_data_center_boards_alone() {
    let mut with = image(&[]);
    with.compat = vec![compat("550.163.01")];
    let on = |target: &str| severity(target, &with, "12.4", NOT_USABLE);
    // The driver itself is new enough for the program.
    for gpu in [
        "RTX 4090",
        "GeForce RTX 4090",
        "10de:2684",
        "MX150",
        "A100+RTX 3090",
    ] {
        let target = format!("driver=535.104.05,gpu={gpu}");
        assert_eq!(on(&target), Some(Severity::Error), "{gpu}");
    }
    for gpu in [
        "A100",
        "T4",
        "V100",
        "P100",
        "Tesla T4",
        "H100 PCIe",
        "10de:20b0",
    ] {
        let target = format!("driver=535.104.05,gpu={gpu}");
        assert_eq!(on(&target), None, "{gpu}");
        assert!(found(&target, &with, &[]).is_empty(), "{gpu}");
    }
    // Of the same branch or a newer one the driver's own is taken.
    for driver in ["550.54.14", "550.163.01", "580.65.06"] {
        let target = format!("driver={driver},gpu=RTX 4090");
        assert_eq!(on(&target), None, "{driver}");
    }
    // Nobody puts it first: no fault, and no help either.
    with.compat[0].taken_by = TakenBy::Nobody;
    let target = "driver=535.104.05,gpu=RTX 4090";
    assert_eq!(severity(target, &with, "12.4", NOT_USABLE), None);
    // A start script tries it first.
    with.compat[0].taken_by = TakenBy::StartScript;
    assert_eq!(severity(target, &with, "12.4", NOT_USABLE), None);
    // Which boards may is not known of all: then it is not told.
    with.compat[0].taken_by = TakenBy::Toolkit;
    let told = found("driver=535.104.05,gpu=RTX A6000", &with, &[program("12.2")]);
    assert_eq!(told, [("unknown".to_owned(), Severity::Note)]);
}

#[test]
fn a_compat_library_on_the_library_path_is_a_fault_on_newer_drivers() {
    let mut with = image(&[]);
    with.compat = vec![InImage {
        taken_by: TakenBy::LibraryPath,
        ..compat("550.163.01")
    }];
    with.own_libcuda = Some(OwnLibcuda {
        path: "/usr/local/cuda/compat/libcuda.so.1".to_owned(),
        real_path: with.compat[0].path.clone(),
        kind: OwnKind::Compat,
        version: Version::parse("550.163.01"),
    });
    let on = |target: &str| severity(target, &with, "12.4", NOT_USABLE);
    for gpu in ["A100", "RTX 4090"] {
        let target = format!("driver=570.86.10,gpu={gpu}");
        assert_eq!(on(&target), Some(Severity::Error), "{gpu}");
        // The driver's very version.
        let target = format!("driver=550.163.01,gpu={gpu}");
        assert_eq!(on(&target), None, "{gpu}");
    }
    assert_eq!(on("driver=535.104.05,gpu=A100"), None);
    assert_eq!(on("driver=535.104.05,gpu=RTX 4090"), Some(Severity::Error));
    // Of WSL and Jetson the numbers are others.
    assert_eq!(on("driver=570.86.10,gpu=A100,os=wsl"), None);
    assert_eq!(on("driver=580.65.06,gpu=sm_87"), None);
}

#[test]
fn the_note_in_a_compat_library_beats_the_tables() {
    let mut with = image(&[]);
    with.compat = vec![compat("580.65.06")];
    let too_old = |image: &ImageFacts, driver: &str| {
        let target = format!("driver={driver},gpu=A100");
        severity(&target, image, "13.0", "driver-too-old")
    };
    assert_eq!(too_old(&with, "535.104.05"), Some(Severity::Warning));
    with.compat[0].note = Some(CompatNote {
        cuda: Version::parse("13.0"),
        drivers: vec![570, 575, 580],
    });
    assert_eq!(too_old(&with, "535.104.05"), Some(Severity::Error));
    assert_eq!(too_old(&with, "570.86.10"), Some(Severity::Note));
    // A branch in no list that was seen is not told.
    with.compat[0].note = None;
    for driver in ["525.60.13", "470.82.01", "560.28.03"] {
        let target = format!("driver={driver},gpu=A100");
        let told = found(&target, &with, &[program("13.0")]);
        assert!(told.iter().any(|(id, _)| id == "unknown"), "{told:?}");
        assert_eq!(too_old(&with, driver), Some(Severity::Warning), "{driver}");
    }
}

#[test]
fn ptx_is_compiled_by_the_compat_library_of_the_image() {
    let ptx = File {
        path: "app.tar!/opt/k.ptx".to_owned(),
        kind: Kind::Ptx,
        archs: Archs {
            elf: Vec::new(),
            ptx: vec!["compute_80".to_owned()],
        },
        modules: vec![Module {
            count: 1,
            elf: Vec::new(),
            ptx: vec![Ptx {
                target: "compute_80".to_owned(),
                isa: Version::parse("8.8").unwrap(),
            }],
        }],
        ..File::default()
    };
    let on = |image: &ImageFacts, gpu: &str| {
        let target = format!("driver=550.54.14,gpu={gpu}");
        let told = found(&target, image, std::slice::from_ref(&ptx));
        told.into_iter()
            .find(|(id, _)| id == "ptx-too-new-for-driver")
            .map(|(_, severity)| severity)
    };
    let mut with = image(&[]);
    assert_eq!(on(&with, "A100"), Some(Severity::Error));
    with.compat = vec![compat("575.57.08")];
    assert_eq!(on(&with, "A100"), Some(Severity::Error));
    with.compat[0].compiles_ptx = true;
    assert_eq!(on(&with, "A100"), Some(Severity::Note));
    assert_eq!(on(&with, "RTX 3090"), Some(Severity::Error));
}

#[test]
fn a_stub_on_the_library_path_is_found_before_the_driver() {
    let mut with = image(&[]);
    let own = |kind: OwnKind, name: &str| {
        Some(OwnLibcuda {
            path: format!("/usr/local/cuda/lib64/stubs/{name}"),
            real_path: "/usr/local/cuda-12.4/lib64/stubs/libcuda.so".to_owned(),
            kind,
            version: None,
        })
    };
    let on =
        |image: &ImageFacts| severity("driver=570.86.10,gpu=A100", image, "12.4", "libcuda-stub");
    assert_eq!(on(&with), None);
    with.own_libcuda = own(OwnKind::Stub, "libcuda.so.1");
    assert_eq!(on(&with), Some(Severity::Error));
    with.own_libcuda = own(OwnKind::StubByShortName, "libcuda.so");
    assert_eq!(on(&with), Some(Severity::Warning));
}

#[test]
fn a_program_whose_loader_is_not_there_cannot_start() {
    const ID: &str = "program-loader-missing";
    let target = "driver=570.86.10,gpu=A100";
    let with_loader = |loader: &str| File {
        interpreter: Some(loader.to_owned()),
        arch: Some("x86_64".to_owned()),
        ..program("12.4")
    };
    let glibc = "/lib64/ld-linux-x86-64.so.2";
    let mut musl = image(&[]);
    musl.arch = Some("x86_64".to_owned());
    musl.loaders_missing = vec![glibc.to_owned()];
    let told = |image: &ImageFacts, files: &[File]| {
        let told = found(target, image, files);
        told.into_iter().find(|(id, _)| id == ID).map(|(_, s)| s)
    };
    assert_eq!(told(&musl, &[with_loader(glibc)]), Some(Severity::Error));
    // Another program starts; libraries are loaded by whom they are.
    let other = with_loader("/lib/ld-musl-x86_64.so.1");
    let both = [with_loader(glibc), other.clone()];
    assert_eq!(told(&musl, &both), Some(Severity::Warning));
    assert_eq!(told(&musl, &[other]), None);
    let library = File {
        kind: Kind::SharedLibrary,
        ..with_loader(glibc)
    };
    assert_eq!(told(&musl, &[library]), None);
    // A tool of a toolkit for another processor.
    let foreign = File {
        arch: Some("aarch64".to_owned()),
        ..with_loader("/lib/ld-linux-aarch64.so.1")
    };
    musl.loaders_missing = vec!["/lib/ld-linux-aarch64.so.1".to_owned()];
    let files = [foreign, with_loader(glibc)];
    assert!(found(target, &musl, &files).is_empty());
}

#[test]
fn code_that_is_loaded_by_its_name_is_worth_a_note() {
    let code = |path: &str, kind: Kind, sm: &str| File {
        path: format!("app.tar!{path}"),
        kind,
        archs: Archs {
            elf: vec![sm.to_owned()],
            ptx: Vec::new(),
        },
        modules: vec![Module {
            count: 1,
            elf: vec![sm.to_owned()],
            ptx: Vec::new(),
        }],
        ..File::default()
    };
    let cubin = code("/site/fi/cubins/fmha.cubin", Kind::Cubin, "sm_90a");
    let on = |files: &[File]| found("driver=580.65.06,gpu=A100", &image(&[]), files);
    let not = |severity| [("no-device-code-for-gpu".to_owned(), severity)];
    let good = code("/opt/app", Kind::Program, "sm_80");
    assert_eq!(on(&[good.clone(), cubin.clone()]), not(Severity::Note));
    // It is all that there is, or a library's own code.
    assert_eq!(on(std::slice::from_ref(&cubin)), not(Severity::Error));
    let bad = code("/opt/lib/libx.so", Kind::SharedLibrary, "sm_90a");
    assert_eq!(on(&[good, bad]), not(Severity::Error));
    let of_tests = code("/site/numba/tests/data/x.cubin", Kind::Cubin, "sm_80");
    assert_eq!(on(&[of_tests]), [("unknown".to_owned(), Severity::Note)]);
}

#[test]
fn variables_of_an_image_that_keep_it_from_the_gpus() {
    let target = "driver=570.86.10,gpu=A100";
    let on = |name: &str, value: &str| {
        let told = found(target, &image(&[(name, value)]), &[program("12.4")]);
        told.into_iter().next()
    };
    let hidden = Some(("cuda-visible-devices-hides-all".to_owned(), Severity::Error));
    for value in ["", "-1", "none"] {
        assert_eq!(on("CUDA_VISIBLE_DEVICES", value), hidden, "{value}");
    }
    for value in ["0", "0,1", "7", "GPU-5ebe9f43-ac33-420b-1a6e-c2f2c8a6b2d1"] {
        assert_eq!(on("CUDA_VISIBLE_DEVICES", value), None, "{value}");
    }
    let asked = "NVIDIA_DRIVER_CAPABILITIES";
    let refused = Some(("container-library-missing".to_owned(), Severity::Error));
    assert_eq!(on(asked, "compute,utility,foo"), refused);
    assert_eq!(
        on(asked, "compute,utility,video,graphics,display,ngx,compat32"),
        None
    );
    // Nothing in it goes to the driver.
    let none = image(&[("CUDA_VISIBLE_DEVICES", "-1")]);
    assert!(found(target, &none, &[]).is_empty());
}

#[test]
fn a_target_without_a_processor_is_for_x86_64_but_for_boards_with_their_own() {
    let on = |target: &str, arch: &str, others: &[&str]| {
        let mut of = image(&[]);
        of.arch = Some(arch.to_owned());
        of.other_archs = others.iter().map(|a| (*a).to_owned()).collect();
        found(target, &of, &[]).into_iter().next().map(|(id, _)| id)
    };
    let refused = Some("program-other-architecture".to_owned());
    assert_eq!(on("driver=580.95.05,gpu=A100", "aarch64", &[]), refused);
    assert_eq!(on("driver=580.95.05,gpu=A100", "x86_64", &[]), None);
    assert_eq!(on("driver=580.95.05,gpu=GH200", "aarch64", &[]), None);
    assert_eq!(on("driver=580.95.05,gpu=GB10", "x86_64", &[]), refused);
    assert_eq!(
        on("driver=580.95.05,gpu=A100,arch=aarch64", "aarch64", &[]),
        None
    );
    let other = on("driver=580.95.05,gpu=GH200", "x86_64", &["aarch64"]);
    assert_eq!(other, Some("unknown".to_owned()));
}

#[test]
fn a_driver_in_a_folder_of_the_library_path_goes_with_its_own_version_alone() {
    let mut with = image(&[]);
    let path = "/opt/nv/libcuda.so.550.163.01".to_owned();
    with.driver_files = vec![DriverFile {
        path: path.clone(),
        version: Version::parse("550.163.01").unwrap(),
        size_bytes: 1,
    }];
    with.own_libcuda = Some(OwnLibcuda {
        path: "/opt/nv/libcuda.so.1".to_owned(),
        real_path: path,
        kind: OwnKind::Driver,
        version: Version::parse("550.163.01"),
    });
    let on = |driver: &str| {
        let target = format!("driver={driver},gpu=A100");
        severity(&target, &with, "12.4", "image-has-driver-files")
    };
    assert_eq!(on("570.86.10"), Some(Severity::Error));
    assert_eq!(on("550.163.01"), Some(Severity::Warning));
}

#[test]
fn a_newer_libcuda_in_the_image_makes_up_for_an_older_driver() {
    let plain = image(&[]);
    let mut with = plain.clone();
    with.compat = vec![InImage {
        path: "app.tar!/usr/local/cuda-13.1/compat/libcuda.so.590.44.01".to_owned(),
        version: Version::parse("590.44.01"),
        taken_by: TakenBy::Toolkit,
        ..InImage::default()
    }];
    let too_old = |target, image: &ImageFacts, cuda| {
        let told = found(target, image, &[program(cuda)]);
        told.into_iter()
            .find(|(id, _)| id == "driver-too-old")
            .map(|(_, severity)| severity)
    };
    let a100 = "driver=535.104.05,gpu=A100";
    assert_eq!(too_old(a100, &plain, "13.1"), Some(Severity::Error));
    assert_eq!(too_old(a100, &with, "13.1"), Some(Severity::Note));
    assert_eq!(
        too_old("driver=535.104.05,gpu=GeForce RTX 4090", &with, "13.1"),
        Some(Severity::Error)
    );
    assert_eq!(
        too_old("driver=535.104.05", &with, "13.1"),
        Some(Severity::Warning)
    );
    assert_eq!(too_old(a100, &with, "12.4"), None);
}

#[test]
fn a_program_without_its_libraries_is_told() {
    let needs = |kind: Kind, by: &str| {
        let mut file = program("12.4");
        file.kind = kind;
        file.needed = vec![Needed {
            soname: "libcudart.so.12".to_owned(),
            resolved: None,
            by: by.to_owned(),
        }];
        file
    };
    let told = |files: &[File]| found("driver=550.54.14,gpu=A100", &image(&[]), files);
    let missing = [("library-not-found".to_owned(), Severity::Warning)];
    assert_eq!(told(&[needs(Kind::Program, "not found")]), missing);
    assert!(told(&[needs(Kind::SharedLibrary, "not found")]).is_empty());
    let elsewhere = File {
        soname: Some("libcudart.so.12".to_owned()),
        ..File::default()
    };
    assert!(told(&[needs(Kind::Program, "not found"), elsewhere]).is_empty());
}

#[test]
fn the_system_is_the_images_own() {
    let glibc = |target: &str| found(target, &image(&[]), &[program("12.4")]);
    assert!(glibc("driver=550.54.14,gpu=A100,glibc=2.17").is_empty());
    let mut older = image(&[]);
    older.glibc = Version::parse("2.31");
    let told = found(
        "driver=550.54.14,gpu=A100,glibc=2.39",
        &older,
        &[program("12.4")],
    );
    assert_eq!(told, [("glibc-too-old".to_owned(), Severity::Error)]);
}
