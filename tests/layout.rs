//! The helper that lays described hosts out, tried on every host of `fixtures/hosts`.
//!
//! What is checked here is the helper and the fixtures, not what gpudoctor makes of them.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test code: what is not as described has to stop the test"
)]

mod support;

use std::fs;

use goblin::elf::{Elf, VerdefSection, VerneedSection, VersymSection};
use gpudoctor::facts::{Call, Calls, ChildEnd, LibraryAnswers, Reading};
use support::elf::{self, Machine, SharedObject, Symbol};
use support::host::{self, Host};
use support::layout::{Laid, folder, lay_out};
use support::library::is_module;
use support::loader::{ENTRY_BYTES, EXTENSION_MAGIC, HEADER_BYTES, MAGIC, parse_line};
use support::tree::Tree;

fn laid(host: &Host) -> (tempfile::TempDir, Tree, Laid) {
    let folder = folder();
    let laid = lay_out(host, folder.path());
    let tree = Tree::new(folder.path());
    (folder, tree, laid)
}

#[test]
fn every_fixture_says_what_it_is_for() {
    for host in &host::load_all() {
        let case = &host.case;
        let text = fs::read_to_string(host::folder().join(format!("{case}.toml"))).unwrap();
        assert!(
            text.starts_with("# "),
            "{case}: the first line says what host it is"
        );
        assert!(
            !host.expect.is_empty() && !host.expect_layer.is_empty(),
            "{case}"
        );
        assert_eq!(
            host.is_healthy(),
            host.expect.starts_with("no fault"),
            "{case}"
        );
        // A healthy host is somebody's twin, or gives a note that harms nobody.
        assert!(
            !host.provokes.is_empty() || !host.twin_of.is_empty(),
            "{case}: a host proves something"
        );
    }
}

#[test]
fn every_fixture_is_laid_out_as_described() {
    for host in host::load_all() {
        let (_folder, tree, laid) = laid(&host);
        check_files(&host, &tree, &laid);
        check_elf_files(&host, &tree);
        check_loader_cache(&host, &tree);
    }
}

fn check_files(host: &Host, tree: &Tree, laid: &Laid) {
    let case = &host.case;
    for (path, text) in host
        .files
        .iter()
        .filter(|(path, _)| !host.links.contains_key(*path))
    {
        assert_eq!(
            tree.read(path).as_deref(),
            Some(text.as_bytes()),
            "{case}: {path}"
        );
    }
    for path in host.files_hex.keys() {
        assert!(tree.read(path).is_some(), "{case}: {path}");
    }
    for (path, target) in &host.links {
        assert_eq!(
            tree.link_target(path).as_ref(),
            Some(target),
            "{case}: {path}"
        );
    }
    for path in &host.absent {
        assert!(tree.resolve(path).is_none(), "{case}: {path} is there");
        assert!(
            host.nodes.iter().all(|node| node.path != *path),
            "{case}: {path} is there"
        );
    }
    for path in &host.sockets {
        assert!(tree.has_entry(path), "{case}: {path}");
    }
    for distribution in &host.python {
        assert!(
            tree.names(&distribution.site)
                .iter()
                .any(|name| name.ends_with(".dist-info")),
            "{case}"
        );
    }
    assert_eq!(laid.nodes.len(), host.nodes.len(), "{case}");
    assert_eq!(laid.arch, host.machine(), "{case}");
    assert!(
        host.env
            .iter()
            .all(|(name, value)| laid.environment.get(name) == Some(value)),
        "{case}"
    );
}

fn check_elf_files(host: &Host, tree: &Tree) {
    let case = &host.case;
    for file in &host.elf {
        let path = &file.path;
        let bytes = tree.read(path).unwrap_or_else(|| panic!("{case}: {path}"));
        let elf = Elf::parse(&bytes).unwrap_or_else(|e| panic!("{case}: {path}: {e}"));
        let section = |name: &str| {
            let found = elf
                .section_headers
                .iter()
                .find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(name));
            found.map(|s| &bytes[s.file_range().unwrap()])
        };
        let machine = Machine::named(file.machine.as_deref().unwrap_or(host.machine()));
        assert_eq!(elf.header.e_machine, machine.number(), "{case}: {path}");
        if is_module(path) {
            let info = String::from_utf8(section(".modinfo").unwrap().to_vec()).unwrap();
            assert!(
                info.split('\0')
                    .any(|line| line == format!("version={}", file.version)),
                "{case}: {path}"
            );
            let vermagic = file.modinfo_vermagic.as_deref().unwrap_or_default();
            assert!(
                info.contains(&format!("vermagic={vermagic}\0")),
                "{case}: {path}"
            );
            continue;
        }
        assert_eq!(
            elf.soname.unwrap_or_default(),
            file.soname,
            "{case}: {path}"
        );
        assert_eq!(elf.libraries, file.needed, "{case}: {path}");
        assert_eq!(
            elf.runpaths,
            file.runpath.iter().collect::<Vec<_>>(),
            "{case}: {path}"
        );
        assert_eq!(
            elf.rpaths,
            file.rpath.iter().collect::<Vec<_>>(),
            "{case}: {path}"
        );
        let names: Vec<&str> = elf
            .dynsyms
            .iter()
            .map(|s| elf.dynstrtab.get_at(s.st_name).unwrap())
            .collect();
        for symbol in file.defines.iter().chain(&file.undefined) {
            assert!(
                names.contains(&Symbol::parse(symbol).name.as_str()),
                "{case}: {path}: {symbol}"
            );
        }
        assert_eq!(
            section(".note.cuda.fwd_compatibility").is_some(),
            file.compat_note.is_some(),
            "{case}: {path}"
        );
        let has_code = !file.cubins.is_empty() || !file.ptx.is_empty();
        assert_eq!(section(".nv_fatbin").is_some(), has_code, "{case}: {path}");
        assert!(
            file.size.is_none_or(|size| bytes.len() as u64 >= size),
            "{case}: {path}"
        );
    }
}

fn check_loader_cache(host: &Host, tree: &Tree) {
    let case = &host.case;
    let cache = tree.read("/etc/ld.so.cache").unwrap();
    let number = |at: usize| u32::from_le_bytes(cache[at..at + 4].try_into().unwrap()) as usize;
    let text = |at: usize| {
        let end = cache[at..].iter().position(|byte| *byte == 0).unwrap();
        str::from_utf8(&cache[at..at + end]).unwrap().to_owned()
    };
    assert!(cache.starts_with(MAGIC), "{case}");
    let (count, strings, extensions) = (number(20), number(24), number(32));
    let start = HEADER_BYTES + ENTRY_BYTES * count;
    assert_eq!((start + strings).next_multiple_of(4), extensions, "{case}");
    assert_eq!(number(extensions), EXTENSION_MAGIC as usize, "{case}");
    let generator = number(extensions + 16);
    assert_eq!(generator + number(extensions + 20), cache.len(), "{case}");
    let entries: Vec<(String, String)> = (0..count)
        .map(|i| HEADER_BYTES + ENTRY_BYTES * i)
        .map(|at| {
            assert!(
                [number(at + 4), number(at + 8)]
                    .iter()
                    .all(|s| (start..extensions).contains(s)),
                "{case}"
            );
            (text(number(at + 4)), text(number(at + 8)))
        })
        .collect();
    for line in &host.ldcache {
        assert!(
            entries.contains(&parse_line(line).unwrap()),
            "{case}: {line}"
        );
    }
    // libcuda.so.1 comes before libcuda.so: the order is descending, and a shorter name is the lesser one.
    let place = |name: &str| entries.iter().position(|(key, _)| key == name);
    if let (Some(long), Some(short)) = (place("libcuda.so.1"), place("libcuda.so")) {
        assert!(long < short, "{case}");
    }
    // A host of another C library has neither.
    assert!(place("libm.so.6") <= place("libc.so.6"), "{case}");
}

/// A call as a short text: `cuInit=100`, `cuDriverGetVersion=0:12040`, `dlopen=?`.
fn short(call: &Call) -> String {
    let code = call.code.map_or("?".to_owned(), |code| code.to_string());
    let rest = call
        .number
        .map(|n| format!(":{n}"))
        .or(call.text.as_ref().map(|t| format!(":{t}")));
    format!("{}={code}{}", call.name, rest.unwrap_or_default())
}

fn shorts(answers: &LibraryAnswers) -> String {
    answers
        .calls
        .iter()
        .map(short)
        .collect::<Vec<_>>()
        .join(" ")
}

fn of(reading: &Reading<LibraryAnswers>) -> String {
    reading.value().map_or("absent".to_owned(), shorts)
}

#[test]
fn libraries_answer_as_the_host_says() {
    // Host, libcuda, libnvidia-ml, runtimes.
    for (case, libcuda, nvml, cudart) in [
        ("healthy-bare-host", "absent", "absent", &[][..]),
        (
            "driver-too-old-for-cuda-13",
            "dlopen=0 cuDriverGetVersion=0:12040 cuInit=0 cuDeviceGetCount=0:1",
            "dlopen=0 nvmlInit_v2=0 nvmlSystemGetDriverVersion=0:550.163.01 \
             nvmlSystemGetCudaDriverVersion_v2=0:12040 nvmlDeviceGetCount_v2=0:1 nvmlShutdown=0",
            &[
                "dlopen=0 cudaRuntimeGetVersion=0:13000 cudaDriverGetVersion=0:12040 cudaGetDeviceCount=35",
            ],
        ),
        (
            "healthy-compat-on-tesla-t4",
            "dlopen=0 cuDriverGetVersion=0:12090 cuInit=0 cuDeviceGetCount=0:1",
            "dlopen=0 nvmlInit_v2=0 nvmlSystemGetDriverVersion=0:535.216.03 \
             nvmlSystemGetCudaDriverVersion_v2=0:12090 nvmlDeviceGetCount_v2=0:1 nvmlShutdown=0",
            &[
                "dlopen=0 cudaRuntimeGetVersion=0:12090 cudaDriverGetVersion=0:12090 cudaGetDeviceCount=0:1",
            ],
        ),
        (
            "driver-stub-in-ld-library-path",
            "dlopen=0 cuDriverGetVersion=34 cuInit=34",
            "dlopen=0 nvmlInit_v2=0 nvmlSystemGetDriverVersion=0:530.30.02 nvmlDeviceGetCount_v2=0:1 nvmlShutdown=0",
            &[
                "dlopen=0 cudaRuntimeGetVersion=0:12010 cudaDriverGetVersion=34 cudaGetDeviceCount=34",
            ],
        ),
        // No driver is loaded: the version is asked for, nothing is initialised.
        (
            "gpu-held-by-nouveau",
            "dlopen=0 cuDriverGetVersion=0:13000",
            "absent",
            &[],
        ),
        (
            "healthy-ci-runner-cuda-wheels-no-gpu",
            "absent",
            "absent",
            &["dlopen=0 cudaRuntimeGetVersion=0:12080 cudaDriverGetVersion=0:0"],
        ),
        (
            "libcuda-empty",
            "absent",
            "dlopen=0 nvmlInit_v2=0 nvmlSystemGetDriverVersion=0:999.88.77 \
             nvmlSystemGetCudaDriverVersion_v2=12 nvmlDeviceGetCount_v2=0:1 nvmlShutdown=0",
            &[],
        ),
        (
            "libcuda-hangs",
            "dlopen=0 cuDriverGetVersion=0:13000 cuInit=?",
            "dlopen=0 nvmlInit_v2=0 nvmlSystemGetDriverVersion=0:999.88.77 \
             nvmlSystemGetCudaDriverVersion_v2=0:13000 nvmlDeviceGetCount_v2=0:1 nvmlShutdown=0",
            &[],
        ),
    ] {
        let (_folder, _, laid) = laid(&host::load(case));
        assert_eq!(of(&laid.vendor.libcuda), libcuda, "{case}");
        assert_eq!(of(&laid.vendor.libnvidia_ml), nvml, "{case}");
        assert_eq!(
            laid.vendor
                .cudart
                .items()
                .iter()
                .map(shorts)
                .collect::<Vec<_>>(),
            cudart,
            "{case}"
        );
    }
}

#[test]
fn the_loader_takes_the_file_that_a_process_would_get() {
    for (case, path) in [
        (
            "driver-mismatch-unattended-upgrade",
            "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        ),
        (
            "driver-stub-in-ld-library-path",
            "/scratch/user/opt/cuda-12.1/lib64/stubs/libcuda.so.1",
        ),
        (
            "driver-linux-driver-inside-wsl",
            "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        ),
        ("healthy-wsl2-torch-cu128", "/usr/lib/wsl/lib/libcuda.so.1"),
        (
            "driver-compat-on-geforce",
            "/usr/local/cuda/compat/libcuda.so.1",
        ),
        (
            "kernel-branch-dropped-pascal",
            "/run/opengl-driver/lib/libcuda.so.1",
        ),
        (
            "fw-jetson-generic-aarch64-wheel",
            "/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
        ),
    ] {
        let (_folder, _, laid) = laid(&host::load(case));
        assert_eq!(
            laid.vendor
                .libcuda
                .value()
                .map(|answers| answers.path.as_str()),
            Some(path),
            "{case}"
        );
    }
}

#[test]
fn lost_gpus_hanging_libraries_and_refused_nodes_come_out() {
    let (_folder, _, laid) = laid(&host::load("hw-gpu-lost-reseat"));
    let codes: Vec<i64> = laid
        .vendor
        .libnvidia_ml
        .value()
        .unwrap()
        .devices
        .iter()
        .map(|d| d.code)
        .collect();
    assert_eq!(codes, [0, 15, 0, 0]);

    for (case, end) in [
        (
            "libcuda-hangs",
            ChildEnd::TimedOut {
                call: "cuInit".to_owned(),
                after_ms: 30_000,
            },
        ),
        (
            "libcuda-crashes",
            ChildEnd::Signal {
                call: "cuInit".to_owned(),
                signal: 11,
            },
        ),
        (
            "libcuda-crashes-on-load",
            ChildEnd::Signal {
                call: "dlopen".to_owned(),
                signal: 11,
            },
        ),
        (
            "libcuda-exits",
            ChildEnd::Exited {
                call: "cuInit".to_owned(),
                code: 7,
            },
        ),
    ] {
        let (_folder, _, laid) = self::laid(&host::load(case));
        assert_eq!(laid.vendor.libcuda.value().unwrap().end, end, "{case}");
    }

    for (case, path, result) in [
        ("nodes-for-group-video-only", "/dev/nvidia0", "EACCES"),
        ("healthy-nodes-for-group-video", "/dev/nvidia0", "ok"),
        ("nodes-refused-to-a-service", "/dev/nvidiactl", "EPERM"),
        ("uvm-node-with-old-major", "/dev/nvidia-uvm", "ENXIO"),
    ] {
        let (_folder, _, laid) = self::laid(&host::load(case));
        let answer = laid
            .vendor
            .opens
            .items()
            .iter()
            .find(|open| open.path == path);
        assert_eq!(
            answer.map(|open| open.result.as_str()),
            Some(result),
            "{case}"
        );
    }
}

#[test]
fn user_environment_and_calls_follow_from_the_description() {
    let (_folder, tree, laid) = laid(&host::load("healthy-desktop-runtime-12-8-on-driver-535"));
    assert_eq!(laid.environment["VIRTUAL_ENV"], "/home/user/venv");
    assert_eq!(
        laid.environment["PATH"],
        "/home/user/venv/bin:/usr/bin:/bin"
    );
    assert_eq!(laid.kernel_release, "6.8.0-49-generic");
    assert_eq!(laid.calls, Calls::Made);
    assert!(tree.read("/home/user/venv/pyvenv.cfg").is_some());
    assert_eq!(
        tree.link_target("/home/user/venv/bin/python3").as_deref(),
        Some("python3.12")
    );

    // The user is told by /proc/self/status there.
    let (_folder, _, laid) = self::laid(&host::load("amd-kfd-node-root-only"));
    assert_eq!(
        (laid.user.uid, laid.user.groups),
        (1000, vec![27, 44, 1000])
    );
    assert_eq!(laid.calls, Calls::NoDriver);

    let (folder, _, _) = self::laid(&host::load("healthy-fresh-boot-nodes-on-demand"));
    let helper = fs::metadata(folder.path().join("usr/bin/nvidia-modprobe")).unwrap();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&helper.permissions()) & 0o7777,
        0o4755
    );
}

#[test]
fn links_lead_nowhere_outside_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path());
    tree.write("/opt/real/file", b"inside");
    tree.link("/a", "/opt/real");
    tree.link("/b", "../../../../a/file");
    tree.link("/round", "round");
    assert_eq!(tree.resolve("/a/file").as_deref(), Some("/opt/real/file"));
    assert_eq!(tree.read("/b").as_deref(), Some(&b"inside"[..]));
    assert_eq!(tree.resolve("/etc/passwd"), None);
    assert_eq!(tree.resolve("/round"), None);
    tree.write("/a/new", b"");
    assert!(tree.resolve("/opt/real/new").is_some());
}

#[test]
fn symbol_versions_are_linked_to_their_libraries() {
    let undefined = |text: &str, library: &str| Symbol {
        library: Some(library.to_owned()),
        ..Symbol::parse(text)
    };
    let bytes = SharedObject {
        soname: "libx.so.1".to_owned(),
        needed: vec!["libc.so.6".to_owned(), "liby.so.2".to_owned()],
        defined: vec![Symbol::parse("x@@libx.so.1"), Symbol::parse("plain")],
        undefined: vec![
            undefined("y@liby.so.2", "liby.so.2"),
            undefined("memcpy@GLIBC_2.14", "libc.so.6"),
            undefined("stat@GLIBC_2.33", "libc.so.6"),
            Symbol::parse("anywhere"),
        ],
        nodes: vec!["X_1.1".to_owned()],
        ..SharedObject::default()
    }
    .write();
    let elf = Elf::parse(&bytes).unwrap();
    let name = |at: usize| elf.dynstrtab.get_at(at).unwrap();
    let defined: Vec<_> = elf.verdef.iter().flat_map(VerdefSection::iter).collect();
    let nodes: Vec<_> = defined
        .iter()
        .flat_map(|d| d.iter().map(|aux| name(aux.vda_name)))
        .collect();
    assert_eq!(nodes, ["libx.so.1", "X_1.1", "libx.so.1"]);
    let needed: Vec<_> = (elf.verneed.iter().flat_map(VerneedSection::iter))
        .flat_map(|need| {
            need.iter()
                .map(|aux| (name(need.vn_file), name(aux.vna_name)))
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(
        needed,
        [
            ("libc.so.6", "GLIBC_2.14"),
            ("libc.so.6", "GLIBC_2.33"),
            ("liby.so.2", "liby.so.2")
        ]
    );
    // One version index for each dynamic symbol: the empty one, the undefined, the defined.
    let indexes: Vec<u16> = elf
        .versym
        .iter()
        .flat_map(VersymSection::iter)
        .map(|v| v.vs_val)
        .collect();
    assert_eq!(indexes, [0, 6, 4, 5, 1, 3, 1]);
}

#[test]
fn device_code_notes_and_signatures_have_their_layout() {
    let archs = ["sm_80", "sm_90a", "sm_100f", "compute_90"].map(str::to_owned);
    let container = elf::fatbin(&archs);
    let number = |at: usize, bytes: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&container[at..at + bytes]);
        usize::try_from(u64::from_le_bytes(word)).unwrap()
    };
    assert_eq!(container[..4], [0x50, 0xed, 0x55, 0xba]);
    assert_eq!(number(8, 8) + 16, container.len());
    let mut at = 16;
    let mut entries = Vec::new();
    while at < container.len() {
        // Kind, architecture, and the bits of the suffixes.
        entries.push((
            number(at, 2),
            number(at + 0x1c, 4),
            number(at + 0x28, 8) >> 20,
        ));
        at += number(at + 4, 4) + number(at + 8, 8);
    }
    assert_eq!(entries, [(2, 80, 0), (2, 90, 1), (2, 100, 2), (1, 90, 0)]);

    let note = elf::compat_note("12.9", &[535, 550]);
    assert_eq!(note.len() % 4, 0);
    assert_eq!(note[12..31], *b"NVIDIA Corporation\0");
    let text = String::from_utf8(note[32..].to_vec()).unwrap();
    let json: serde_json::Value = serde_json::from_str(text.trim_end_matches('\0')).unwrap();
    assert_eq!(
        (&json["CUDA version"], &json["driver"][1]),
        (&"12.9".into(), &550.into())
    );

    let signed = elf::kernel_module(Machine::X86_64, &[("name", "nvidia")], true);
    assert!(signed.ends_with(b"\0\0\0\x40~Module signature appended~\n"));
    assert!(Elf::parse(&signed).is_ok());
    assert!(!elf::kernel_module(Machine::X86_64, &[("name", "nvidia")], false).ends_with(b"~\n"));
}

#[test]
fn a_runtime_carries_its_version_in_its_code() {
    let host = host::load("healthy-compat-on-tesla-t4");
    let (_folder, tree, _) = laid(&host);
    let bytes = tree
        .read("/usr/local/cuda-12.9/lib64/libcudart.so.12")
        .unwrap();
    let constant: Vec<u8> = [0xc7, 0x07]
        .into_iter()
        .chain(12090_u32.to_le_bytes())
        .collect();
    assert_eq!(
        bytes
            .windows(6)
            .filter(|window| *window == constant)
            .count(),
        2
    );
}
