//! The matrix against what is known from outside: real runtimes on real drivers, NVIDIA's published tables, and the
//! mistakes that other tools make. It asks the bundled tables only; nothing of the machine is read.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests: what fails here fails the test"
)]

use std::collections::BTreeMap;

use gpudoctor::matrix::{
    Capability, CodeFit, Compat, Confidence, EndOfLife, Fit, Machine, Matrix, OpenModule, Purpose,
    Target, TorchBuild, TorchWanted, nearest, torch_tag,
};
use gpudoctor::version::Version;

/// The measured grid: every cell one libcudart beside one libcuda.
const ORACLE: &str = include_str!("../fixtures/oracle-cudart-driver.csv");

/// Cells that break the rule: cudart 11.2 asks `cuInit` before it looks at the version, so on a driver that is too old it
/// passes on what `cuInit` says without a GPU (100; 999 from the 390 branch) instead of answering 35.
const EXCEPTIONS: [(&str, &str, u32); 3] = [
    ("11.2.152", "340.108", 100),
    ("11.2.152", "390.157", 999),
    ("11.2.152", "418.226.00", 100),
];

fn v(text: &str) -> Version {
    Version::parse(text).unwrap()
}

fn text(version: Option<Version>) -> String {
    version.map_or_else(|| "-".to_owned(), |version| version.to_string())
}

#[test]
fn every_measured_cell_is_answered_from_versions_alone() {
    let matrix = Matrix::bundled();
    let (mut cells, mut exceptions) = (0, Vec::new());
    for line in ORACLE.lines().filter(|l| !l.starts_with('#')).skip(1) {
        let [cudart, driver, _, _, level, code] = line.split(',').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let (level, code): (u32, u32) = (level.parse().unwrap(), code.parse().unwrap());
        let known = if driver == "none" {
            0
        } else {
            matrix.cuda_level_of(&v(driver)).unwrap().0
        };
        assert_eq!(known, level, "CUDA level of driver {driver}");
        let accepts = matrix.runtime_accepts(&v(cudart), known);
        let answered = match code {
            35 => false,
            100 | 999 => true,
            other => panic!("cell {cudart} on {driver} holds {other}"),
        };
        if accepts != answered {
            exceptions.push((cudart, driver, code));
        }
        cells += 1;
    }
    assert_eq!(cells, 253);
    assert_eq!(exceptions, EXCEPTIONS);
}

/// Forty questions with the answers as NVIDIA prints them.
#[test]
fn forty_questions_from_nvidias_tables() {
    let m = Matrix::bundled();
    let floor = |cuda: &str| text(m.minimum_driver(&v(cuda)).unwrap().version);
    let shipped = |cuda: &str| text(m.toolkit(&v(cuda)).unwrap().driver.clone());
    let level = |driver: &str| m.cuda_level_of(&v(driver)).unwrap().0.to_string();
    let eol = |branch: &str| {
        m.branch(&v(branch))
            .unwrap()
            .end_of_life
            .clone()
            .unwrap_or_default()
    };
    let last = |cc| {
        m.arch(cc)
            .unwrap()
            .last_driver_branch
            .map_or_else(|| "supported".to_owned(), |b| b.to_string())
    };
    let first = |cc| m.arch(cc).unwrap().first_driver_branch.unwrap().to_string();
    let toolkits = |cc| {
        let arch = m.arch(cc).unwrap();
        format!(
            "{}-{}",
            arch.first_toolkit,
            arch.last_toolkit.as_ref().map_or("", Version::as_str)
        )
    };
    let compat = |cuda: &str, base| match m.forward_compat(&v(cuda), base) {
        Compat::Supported { .. } => "yes",
        Compat::Native { .. } => "native",
        Compat::NotSupported { .. } => "no",
        Compat::Unknown { .. } => "unknown",
    };
    let ptx = |level| m.ptx_isa_of_level(level).unwrap().ptx.to_string();
    let cc = |id| {
        let (major, minor) = m.gpu(id).unwrap().capability.unwrap();
        format!("{major}.{minor}")
    };
    let gcc = |cuda: &str| m.host_compiler(&v(cuda)).unwrap().gcc_max.to_string();
    let questions: [(&str, String, &str); 40] = [
        ("least driver for CUDA 11.8", floor("11.8"), "450.80.02"),
        ("least driver for CUDA 12.4", floor("12.4"), "525.60.13"),
        ("least driver for CUDA 13.5", floor("13.5"), "580.65.06"),
        ("least driver for CUDA 10.2", floor("10.2"), "440.33"),
        (
            "least driver for CUDA 10.1 Update 2",
            floor("10.1.243"),
            "418.39",
        ),
        ("least driver for CUDA 10.0", floor("10.0"), "410.48"),
        ("least driver for CUDA 8.0", floor("8.0"), "367.48"),
        (
            "driver shipped with CUDA 12.4 GA",
            shipped("12.4.0"),
            "550.54.14",
        ),
        (
            "driver shipped with CUDA 12.4 Update 1",
            shipped("12.4.1"),
            "550.54.15",
        ),
        (
            "driver shipped with CUDA 12.2 Update 2",
            shipped("12.2.2"),
            "535.104.05",
        ),
        (
            "driver shipped with CUDA 11.4 Update 3",
            shipped("11.4.3"),
            "470.82.01",
        ),
        (
            "driver shipped with CUDA 12.8 GA",
            shipped("12.8.0"),
            "570.26",
        ),
        (
            "driver shipped with CUDA 13.2 Update 2",
            shipped("13.2.2"),
            "595.71.05",
        ),
        ("driver shipped with CUDA 13.5", shipped("13.5.0"), "-"),
        (
            "CUDA version of driver 470.82.01",
            level("470.82.01"),
            "11040",
        ),
        (
            "CUDA version of driver 535.104.05",
            level("535.104.05"),
            "12020",
        ),
        (
            "CUDA version of driver 580.65.06",
            level("580.65.06"),
            "13000",
        ),
        (
            "CUDA version of driver 620.70.06",
            level("620.70.06"),
            "13050",
        ),
        ("end of life of branch 535", eol("535.1"), "2026-06"),
        ("end of life of LTS branch 580", eol("580.1"), "2028-06"),
        ("end of life of LTS branch 620", eol("620.1"), "2029-09"),
        ("last branch for Fermi", last((2, 0)), "390"),
        ("last branch for Kepler (K80)", last((3, 7)), "470"),
        ("last branch for Maxwell (M60)", last((5, 2)), "580"),
        ("last branch for Volta (V100)", last((7, 0)), "580"),
        ("last branch for Turing (T4)", last((7, 5)), "supported"),
        ("first branch for Hopper (H100)", first((9, 0)), "520"),
        (
            "first branch for Blackwell (RTX 5090)",
            first((12, 0)),
            "570",
        ),
        ("toolkits for sm_35", toolkits((3, 5)), "5.0-11.8"),
        ("toolkits for sm_70", toolkits((7, 0)), "9.0-12.9"),
        ("toolkits for sm_120", toolkits((12, 0)), "12.8-"),
        (
            "cuda-compat-12-9 on driver branch 535",
            compat("12.9", 535).into(),
            "yes",
        ),
        (
            "cuda-compat-12-9 on driver branch 575",
            compat("12.9", 575).into(),
            "native",
        ),
        (
            "cuda-compat-12-8 on driver branch 575",
            compat("12.8", 575).into(),
            "no",
        ),
        (
            "newest PTX that a driver of CUDA 12.2 compiles",
            ptx(12020),
            "8.2",
        ),
        (
            "newest PTX that a driver of CUDA 12.6 compiles",
            ptx(12060),
            "8.5",
        ),
        (
            "capability of GeForce RTX 3090 (10de:2204)",
            cc(0x2204),
            "8.6",
        ),
        ("capability of H100 PCIe (10de:2331)", cc(0x2331), "9.0"),
        ("newest GCC for CUDA 12.4", gcc("12.4"), "13"),
        ("newest GCC for CUDA 11.8", gcc("11.8"), "11"),
    ];
    for (question, got, want) in &questions {
        assert_eq!(got, want, "{question}");
    }
}

/// What other tools get wrong, one block each.
#[test]
fn mistakes_that_other_tools_make() {
    let m = Matrix::bundled();

    // 1. Versions compared as text or decimals: 12.10 is newer than 12.9, 550.163 newer than 550.90.
    assert!(v("12.10") > v("12.9") && v("550.163.01") > v("550.90.07"));
    assert_eq!(v("12.10").cuda_level(), 12100);

    // 2. The driver that a toolkit ships taken for the least one: CUDA 12.4 ships 550.54.14 and runs on 525.60.13.
    assert_eq!(
        m.toolkit(&v("12.4.0")).unwrap().driver,
        Some(v("550.54.14"))
    );
    assert_eq!(
        m.minimum_driver(&v("12.4")).unwrap().version,
        Some(v("525.60.13"))
    );
    assert!(m.runtime_accepts(&v("12.9.79"), m.cuda_level_of(&v("535.104.05")).unwrap().0));

    // 3. sm_86 code "missing" on a GPU of 8.9: machine code serves later minors of its major, earlier ones it does not.
    let sm_86 = Target::parse("sm_86").unwrap();
    assert_eq!(m.cubin_fits(&sm_86, (8, 9)), Fit::Yes);
    assert_eq!(m.cubin_fits(&sm_86, (8, 0)), Fit::No);
    assert_eq!(m.cubin_fits(&sm_86, (9, 0)), Fit::No);

    // 4. nvidia-smi's "CUDA Version" taken for an installed toolkit: it is the driver's ceiling, 12.7 for branch 565,
    // and there never was a toolkit 12.7.
    assert_eq!(m.cuda_level_of(&v("565.57.01")).unwrap().0, 12070);
    assert!(m.toolkit(&v("12.7")).is_none());

    // 5. ... and the same number taken for a ceiling on minors within one major version.
    assert!(m.runtime_accepts(&v("12.8"), 12020) && !m.runtime_accepts(&v("13.0"), 12090));

    // 6. The newest driver recommended for every GPU: 580 is the last branch for Pascal.
    let pascal = m.arch((6, 1)).unwrap();
    assert_eq!(
        (pascal.last_driver_branch, pascal.supported),
        (Some(580), false)
    );
    assert_eq!(pascal.open_module(), Some(OpenModule::Impossible));

    // 7. "525 <= driver < 580" read as an upper limit of CUDA 12: a newer driver runs it.
    assert!(m.runtime_accepts(&v("12.1"), m.cuda_level_of(&v("595.71.05")).unwrap().0));

    // 8. A missing driver (level 0) told as a version problem of this or that runtime: every runtime refuses it.
    assert!(
        ["11.2", "12.9", "13.5"]
            .iter()
            .all(|runtime| !m.runtime_accepts(&v(runtime), 0))
    );

    // 9. A compat package recommended for every GPU, or on a driver that is newer than the package.
    assert_eq!(m.compat_eligible("NVIDIA GeForce RTX 4090"), Some(false));
    assert_eq!(m.compat_eligible("NVIDIA A100-SXM4-80GB"), Some(true));
    assert_eq!(m.compat_eligible("NVIDIA RTX 6000 Ada Generation"), None);
    assert!(matches!(
        m.forward_compat(&v("12.4"), 580),
        Compat::NotSupported { .. }
    ));

    // 10. Architecture-specific code (sm_90a) taken for code that later GPUs run, as PTX at least.
    let sm_90a = Target::parse("compute_90a").unwrap();
    assert_eq!(m.ptx_fits(&sm_90a, (9, 0)), Fit::Yes);
    assert_eq!(m.ptx_fits(&sm_90a, (10, 0)), Fit::No);

    // 11. The third number of a toolkit taken for its update: 13.4.1 is the release, and all of 13.4 answers 13040.
    assert_eq!(m.toolkit(&v("13.4")).unwrap().label, "13.4 GA");
    assert!(
        m.toolkits()
            .iter()
            .filter(|t| t.cuda.major_minor() == "13.4")
            .all(|t| t.level == 13040)
    );

    // 12. An id that is not in the table guessed from its neighbours.
    assert!(m.gpu(0x2203).is_some_and(|gpu| gpu.chip == "GA102"));
    assert!(m.gpu(0x2209).is_none() && m.gpu(0xffff).is_none());

    // 13. A GPU's audio function taken for a GPU, or an NVSwitch for one.
    assert!(m.gpu(0x1aef).is_none() && m.gpu(0x1af1).is_none());
    assert_eq!(m.nvswitch(0x1af1).unwrap().name, "A100 NVSwitch");

    // 14. Windows numbers compared with Linux ones.
    let ga = m.toolkit(&v("12.2.0")).unwrap();
    assert_eq!(
        (ga.driver.clone(), ga.driver_windows.clone()),
        (Some(v("535.54.03")), Some(v("536.25")))
    );
}

/// The textbook question: a container built for CUDA 12.4 on a host whose driver is of 2021.
#[test]
fn a_container_for_cuda_12_4_on_a_driver_of_2021() {
    let m = Matrix::bundled();
    let (level, source) = m.cuda_level_of(&v("470.82.01")).unwrap();
    let need = m.minimum_driver(&v("12.4")).unwrap();
    assert!(!m.runtime_accepts(&v("12.4"), level) && !source.is_empty());
    assert_eq!(
        (need.level, need.branch, need.confidence),
        (12000, Some(525), Confidence::Verified)
    );
    assert_eq!(m.newest_runtime_for_level(level), "CUDA 11.x");
    let Compat::Supported { confidence, .. } = m.forward_compat(&v("12.4"), 470) else {
        panic!()
    };
    assert_eq!(
        confidence,
        Confidence::Secondary,
        "only the images' requirement value says so"
    );
    assert_eq!(m.compat_eligible("NVIDIA A100-PCIE-40GB"), Some(true));
    let image = m.image_requirement(&v("12.4")).unwrap();
    assert!(image.branches.contains(&470));
}

#[test]
fn newer_and_older_than_the_matrix() {
    let m = Matrix::bundled();
    let need = m.minimum_driver(&v("14.1")).unwrap();
    assert_eq!(
        (need.level, need.version, need.newer_than_matrix),
        (14000, None, true)
    );
    assert!(m.minimum_driver(&v("7.5")).is_none());
    assert!(m.cuda_level_of(&v("630.10")).is_none());
    assert_eq!(m.cuda_level_range(&v("630.10")), (Some(13050), None));
    assert!(m.branch(&v("387.26")).is_none());
    assert_eq!(m.cuda_level_range(&v("387.26")), (Some(9000), Some(9010)));
    assert_eq!(
        m.ptx_isa_of_driver(&v("387.26")).unwrap().ptx,
        v("6.1"),
        "side lines are compared"
    );
    assert_eq!(m.ptx_isa_of_driver(&v("390.157")).unwrap().ptx, v("6.1"));
    assert!(matches!(
        m.forward_compat(&v("13.4"), 535),
        Compat::Unknown { .. }
    ));
    assert!(matches!(
        m.forward_compat(&v("13.3"), 550),
        Compat::Unknown { .. }
    ));
    assert!(
        matches!(
            m.forward_compat(&v("13.1"), 560),
            Compat::NotSupported { .. }
        ),
        "the library's own list lacks it"
    );
    assert!(matches!(
        m.forward_compat(&v("12.6"), 560),
        Compat::Native { .. }
    ));
}

#[test]
fn ends_of_life_need_a_date() {
    let m = Matrix::bundled();
    let of = |driver: &str, date: &str| m.branch(&v(driver)).unwrap().life_at(date);
    assert_eq!(of("535.261.03", "2026-06-30T12:00:00Z"), EndOfLife::Alive);
    assert_eq!(of("535.261.03", "2026-07-01T12:00:00Z"), EndOfLife::Ended);
    assert_eq!(of("545.23.08", "2026-07-01"), EndOfLife::Unknown);
    assert_eq!(
        of("455.23", "2026-07-01"),
        EndOfLife::Unknown,
        "a developer branch has no date of its own"
    );
    assert_eq!(of("535.261.03", "today"), EndOfLife::Unknown);
}

#[test]
fn gpus_are_identified_without_a_driver() {
    let m = Matrix::bundled();
    for (id, name, chip, arch) in [
        (0x20b0, "A100 SXM4 40GB", "GA100", "Ampere"),
        (0x2b85, "GeForce RTX 5090", "GB202", "Blackwell"),
        (0x1eb8, "Tesla T4", "TU104", "Turing"),
        (0x1b06, "GeForce GTX 1080 Ti", "GP102", "Pascal"),
        (0x05e7, "Tesla C1060 / M1060", "GT200", "Tesla"),
    ] {
        let gpu = m.gpu(id).unwrap();
        assert_eq!(
            (
                gpu.name.as_str(),
                gpu.chip.as_str(),
                gpu.arch_name.as_deref()
            ),
            (name, chip, Some(arch)),
            "{id:04x}"
        );
    }
    assert_eq!(
        m.gpu(0x3340).unwrap().capability,
        None,
        "GB120: in pci.ids, capability not known"
    );
    assert_eq!(m.gpus_named("rtx 5090 d").len(), 2);
    let grace = m.gpu(0x2342).unwrap();
    assert!(grace.name.contains("GH200"), "{grace:?}");
    assert_eq!(
        m.open_module_of(&grace),
        Some(OpenModule::Required {
            confidence: Confidence::Secondary
        })
    );
    assert_eq!(
        m.open_module_of(&m.gpu(0x2331).unwrap()),
        Some(OpenModule::Possible)
    );
    assert_eq!(
        m.open_module_of(&m.gpu(0x2b85).unwrap()),
        Some(OpenModule::Required {
            confidence: Confidence::Secondary
        })
    );
}

#[test]
fn eligible_for_forward_compatibility() {
    let m = Matrix::bundled();
    for (name, eligible) in [
        ("Tesla V100-SXM2-16GB", Some(true)),
        ("NVIDIA H100 80GB HBM3", Some(true)),
        ("NVIDIA GH200 480GB", Some(true)),
        ("NVIDIA B200", Some(true)),
        ("NVIDIA GB200", Some(true)),
        ("NVIDIA L40S", Some(true)),
        ("NVIDIA L4", Some(true)),
        ("A100 PCIe 40GB", Some(true)),
        ("NVIDIA A10G", Some(true)),
        ("NVIDIA TITAN V", Some(false)),
        ("NVIDIA GeForce GTX 1080", Some(false)),
        ("GeForce RTX 5090", Some(false)),
        ("NVIDIA RTX A6000", None),
        ("Quadro RTX 6000", None),
        ("NVIDIA GB10", None),
        ("GB202", None),
        ("Orin (nvgpu)", None),
        ("", None),
    ] {
        assert_eq!(m.compat_eligible(name), eligible, "{name}");
    }
}

#[test]
fn device_code_across_the_borders() {
    let m = Matrix::bundled();
    let fits = |target: &str, cc| {
        let target = Target::parse(target).unwrap();
        (m.cubin_fits(&target, cc), m.ptx_fits(&target, cc))
    };
    assert_eq!(fits("sm_80", (8, 6)), (Fit::Yes, Fit::Yes));
    assert_eq!(fits("sm_70", (12, 0)), (Fit::No, Fit::Yes));
    assert_eq!(fits("sm_100f", (10, 3)), (Fit::Yes, Fit::Yes));
    assert_eq!(fits("sm_103f", (10, 0)), (Fit::No, Fit::No));
    assert_eq!(fits("sm_100f", (12, 0)), (Fit::No, Fit::No));
    assert_eq!(fits("sm_120a", (12, 1)), (Fit::No, Fit::No));
    // A Jetson's GPU and a discrete one: a linker refuses what the plain rule allows.
    assert!(matches!(fits("sm_80", (8, 7)), (Fit::Unknown(_), Fit::Yes)));
    assert!(matches!(fits("sm_87", (8, 9)), (Fit::Unknown(_), Fit::Yes)));
    assert!(matches!(
        fits("sm_100", (10, 7)),
        (Fit::Unknown(_), Fit::Yes)
    ));
    assert!(matches!(
        fits("sm_101", (11, 0)),
        (Fit::Unknown(_), Fit::Yes)
    ));
    assert_eq!(
        m.ptxas_targets(&v("12.9"))
            .unwrap()
            .targets
            .iter()
            .filter(|t| t.ends_with('f'))
            .count(),
        5
    );
    assert!(
        !m.ptxas_targets(&v("13.3.1"))
            .unwrap()
            .targets
            .iter()
            .any(|t| t == "107")
    );
    assert!(
        m.ptxas_targets(&v("13.4.1"))
            .unwrap()
            .targets
            .iter()
            .any(|t| t == "107")
    );
    assert_eq!(m.ptx_loads(&v("8.8"), 12020), Some(false));
    assert_eq!(m.ptx_loads(&v("8.2"), 12020), Some(true));
    assert_eq!(
        m.ptx_loads(&v("9.9"), 14000),
        None,
        "a driver newer than the matrix"
    );
}

#[test]
fn commands_are_given_for_verified_distributions_only() {
    let m = Matrix::bundled();
    let like = |id: &str| vec![id.to_owned()];
    assert_eq!(
        m.distro_commands(
            "debian",
            "12",
            Purpose::KernelHeaders,
            Some("6.1.0-50-amd64")
        ),
        [["apt-get", "install", "linux-headers-6.1.0-50-amd64"]]
    );
    assert!(
        m.distro_commands("debian", "12", Purpose::KernelHeaders, None)
            .is_empty(),
        "which kernel is not known"
    );
    assert!(
        m.distro_commands(
            "ubuntu",
            "24.04",
            Purpose::KernelHeaders,
            Some("6.8.0-40-generic")
        )
        .is_empty()
    );
    assert!(
        m.distro_commands("debian", "14", Purpose::Driver, None)
            .is_empty(),
        "not looked at"
    );
    assert!(
        m.distro_packages("ubuntu", &like("debian"), "24.04", Purpose::KernelHeaders)
            .is_some()
    );
    assert_eq!(
        m.distro_packages("raspbian", &like("debian"), "12", Purpose::Driver)
            .unwrap()
            .driver_branch,
        Some(535),
        "a relative's packages may be named"
    );
    assert_eq!(m.jetson(&v("36.4.3")).unwrap().cuda, v("12.6"));
    assert_eq!(
        m.jetson_upgrade(&v("6.2.1")).unwrap().never_from,
        Some(v("13.0"))
    );
    assert_eq!(m.jetson_board("orin").unwrap().capability, (8, 7));
}

/// The device code in `PyTorch`'s builds, by the look-up that rules use, is that of the table.
#[test]
fn every_build_of_torch_answers_as_its_row_says() {
    let matrix = Matrix::bundled();
    let gpus = matrix.archs().iter().map(|arch| arch.capability);
    let gpus: Vec<Capability> = gpus.filter(|gpu| *gpu >= (3, 5)).collect();
    let mut without = Vec::new();
    for release in matrix.torch_releases() {
        let mut fits = BTreeMap::<Capability, Vec<&Version>>::new();
        for cuda in &release.cudas {
            let Some(row) = matrix.torch_archs(&release.version, cuda) else {
                without.push(format!("{}+{}", release.version, torch_tag(cuda)));
                continue;
            };
            assert_eq!(row.cuda, *cuda);
            for gpu in &gpus {
                let fit = matrix.code_fit(&row.x86_64, *gpu, cuda, None);
                if matches!(fit, CodeFit::Cubin(_) | CodeFit::Ptx(_)) {
                    fits.entry(*gpu).or_default().push(cuda);
                }
            }
            // What stands in the list runs on the GPU of that name.
            for target in &row.x86_64.elf {
                let cudas = fits.get(&target.capability);
                assert!(cudas.is_some_and(|cudas| cudas.contains(&cuda)), "{target}");
            }
        }
        for gpu in &gpus {
            let found = matrix.torch_build_for(&TorchWanted {
                torch: &release.version,
                gpus: &[*gpu],
                level: None,
                python: None,
                machine: Machine::X86_64,
            });
            let newest = fits.get(gpu).and_then(|cudas| cudas.iter().max());
            let own = found.filter(|build| build.release.version == release.version);
            assert_eq!(own.map(|build| build.cuda), newest.copied(), "{gpu:?}");
        }
    }
    assert_eq!(without, ["1.13.0+cu116", "1.13.1+cu116"]);
}

/// Each line: the torch that is there, GPU, CUDA level of the driver (0: not known), Python, and the build to take.
#[test]
fn the_build_of_torch_to_take_instead() {
    let matrix = Matrix::bundled();
    let x86 = Machine::X86_64;
    for (torch, gpu, level, python, machine, build) in [
        ("2.7.1", (6, 0), 12020, "", x86, "2.7.1+cu126"),
        ("2.11.0", (7, 0), 0, "3.12", x86, "2.11.0+cu126"),
        // Of another release, as near as there is one, its newest patch.
        ("2.15.0", (6, 0), 13000, "3.12", x86, "2.14.1+cu126"),
        ("2.9.1", (9, 0), 11040, "", x86, "2.7.1+cu118"),
        ("2.6.0", (12, 0), 13000, "", x86, "2.7.1+cu128"),
        ("2.13.2", (8, 0), 13000, "", x86, "2.13.0+cu132"),
        // No wheel for that Python before.
        ("1.13.1", (8, 9), 12020, "3.12", x86, "2.2.2+cu121"),
        ("2.9.1", (9, 0), 13000, "", Machine::Aarch64, "2.9.1+cu130"),
        ("2.9.1", (11, 0), 13000, "", Machine::Aarch64, "2.9.1+cu130"),
        ("2.9.1", (7, 0), 13000, "", Machine::Aarch64, ""),
        ("2.7.1", (3, 0), 12020, "", x86, ""),
        ("2.7.1", (12, 0), 11040, "", x86, ""),
    ] {
        let torch = v(torch);
        let python = Version::parse(python);
        let found = matrix.torch_build_for(&TorchWanted {
            torch: &torch,
            gpus: &[gpu],
            level: Some(level).filter(|level| *level > 0),
            python: python.as_ref(),
            machine,
        });
        let name = found.as_ref().map_or_else(String::new, TorchBuild::name);
        assert_eq!(name, build, "{torch} on {gpu:?}");
        if let Some(found) = found {
            let pip = matrix.torch_install(&found, "pip").unwrap();
            assert!(pip.contains(&format!("torch=={build}")), "{pip:?}");
            let (_, tag) = build.split_once('+').unwrap();
            assert!(pip.last().unwrap().ends_with(&format!("/{tag}")), "{pip:?}");
            assert_eq!(matrix.torch_install(&found, "poetry"), None);
        }
    }
}

#[test]
fn libraries_by_release_gpu_and_soname() {
    let matrix = Matrix::bundled();
    let rows = |version: &str| {
        let rows = matrix.cudnn_release(&v(version)).into_iter();
        rows.map(|row| (row.cuda, row.capability_min))
            .collect::<Vec<_>>()
    };
    assert_eq!(rows("9.10.2.21"), [(11, (5, 0)), (12, (5, 0))]);
    assert_eq!(rows("9.11.0.98"), [(12, (7, 5))]);
    assert_eq!(rows("9.28.1.4"), [(12, (7, 5)), (13, (7, 5))]);
    assert_eq!(rows("9.29"), []);
    let newest = |gpu, cuda| {
        text(
            matrix
                .newest_cudnn_for(gpu, cuda)
                .map(|row| row.last.clone()),
        )
    };
    assert_eq!(newest((6, 0), 12), "9.10.2");
    assert_eq!(newest((9, 0), 12), "9.28");
    assert_eq!(newest((7, 0), 13), "-");
    assert_eq!(newest((12, 0), 11), "-");
    assert_eq!(matrix.soname("cufft", 12), Some("libcufft.so.11"));
    assert_eq!(matrix.cuda_majors_of_soname("libcusparse.so.12"), [12, 13]);
    assert!(matrix.cuda_majors_of_soname("libcusparse.so.99").is_empty());
    assert_eq!(
        matrix.tensorrt(&v("10.4.0")).unwrap().capability_min,
        Some((7, 0))
    );
    assert_eq!(
        matrix.tensorrt(&v("10.13.2.6")).unwrap().cudas,
        [v("12"), v("13")]
    );
    let by = matrix.pinned_by(|name| name == "nvidia-nccl-cu12", &v("2.27.5"));
    let by: Vec<_> = by.iter().map(|(row, _)| row.version.to_string()).collect();
    assert_eq!(by, ["2.9.0", "2.9.1", "2.10.0"]);
    let pins = matrix.pins_of("torch", &v("2.6.0")).unwrap();
    let cudnn = pins
        .requires
        .iter()
        .find(|asked| asked.name == "nvidia-cudnn-cu12");
    assert_eq!(cudnn.unwrap().bounds.exactly(), Some(&v("9.1.0.70")));
    assert_eq!(
        matrix.jax_plugin(&v("0.10.2"), 13).unwrap().cudnn_min,
        Some(v("9.12.0.46"))
    );
    assert_eq!(matrix.vllm_release(&v("0.10.2")).unwrap().torch, v("2.8.0"));
    assert_eq!(matrix.ngc_image("25.03-py3").unwrap().cuda, v("12.8.1"));
    // Not its neighbour's.
    assert_eq!(matrix.onnxruntime(&v("1.23.1")), None);
    assert_eq!(matrix.torch_release(&v("2.5.2")), None);
    let near = nearest(matrix.torch_releases(), &v("2.5.2"));
    assert_eq!(near.0.map(|row| row.version.as_str()), Some("2.5.1"));
    assert_eq!(near.1.map(|row| row.version.as_str()), Some("2.6.0"));
}
