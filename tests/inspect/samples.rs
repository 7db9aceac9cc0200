//! Small files that nvcc and Go made (the `Makefile` beside each says how), damaged ones, and what is no such file.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{inspect, json, list};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/fatbin")
        .join(name)
}

#[test]
fn what_nvcc_made() {
    const ALL: &str = "sm_80 sm_90a sm_100f sm_120";
    for (name, kind, elf, ptx, packed) in [
        ("several.fatbin", "fatbin", ALL, "compute_120", "unpacked"),
        ("ptx-only.fatbin", "fatbin", "", "compute_90", "zstd"),
        ("zstd.fatbin", "fatbin", ALL, "compute_120", "zstd"),
        ("lz4.fatbin", "fatbin", ALL, "compute_120", "lz4"),
        ("concatenated.fatbin", "fatbin", ALL, "compute_120", "zstd"),
        ("sm_90a.cubin", "cubin", "sm_90a", "", ""),
        (
            "shared.so",
            "shared-library",
            ALL,
            "compute_120",
            "unpacked",
        ),
    ] {
        let found = json(&sample(name), &[]);
        let file = &found["files"][0];
        assert_eq!(file["kind"], kind, "{name}");
        assert_eq!(list(&file["archs"]["elf"]), elf, "{name}");
        assert_eq!(list(&file["archs"]["ptx"]), ptx, "{name}");
        if !elf.is_empty() {
            assert_eq!(list(&file["toolkits"]), "13.5", "{name}");
            assert_eq!(
                file["device"]["toolkits_of"], file["device"]["cubins"],
                "{name}"
            );
        }
        if !ptx.is_empty() {
            assert_eq!(list(&file["ptx_isa"]), "9.5", "{name}");
        }
        assert!(
            packed.is_empty() || file["device"][packed].as_u64().unwrap() > 0,
            "{name}: {}",
            file["device"]
        );
    }
    let object = json(&sample("relocatable.o"), &[]);
    let file = &object["files"][0];
    assert_eq!(
        (
            list(&file["archs"]["elf"]),
            list(&file["relocatable"]["elf"])
        ),
        (String::new(), "sm_80".to_owned())
    );
    assert_eq!(list(&file["relocatable"]["ptx"]), "compute_80");
    let library = json(&sample("shared.so"), &[]);
    let runtime = &library["files"][0]["runtime"];
    assert_eq!(
        (&runtime["linkage"], &runtime["version"]),
        (&"dynamic".into(), &"13".into())
    );
}

/// A sample that is kept packed, unpacked into a folder.
fn unpacked(name: &str, folder: &Path) -> PathBuf {
    let packed =
        fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fixtures/{name}.xz")));
    let packed = packed.unwrap();
    let mut content = Vec::new();
    lzma_rust2::XzReader::new(packed.as_slice(), true)
        .read_to_end(&mut content)
        .unwrap();
    let path = folder.join(Path::new(name).file_name().unwrap());
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn what_nvcc_11_8_made() {
    const ALL: &str = "sm_35 sm_70 sm_80 sm_90";
    const PTX: &str = "compute_90";
    let folder = tempfile::tempdir().unwrap();
    // Linked code, relocatable code, entries that are LZ4 and that are not packed, the runtime.
    for (name, kind, linked, to_link, packings, runtime) in [
        (
            "several.fatbin",
            "fatbin",
            (ALL, PTX),
            ("", ""),
            (1, 4),
            ("none", None),
        ),
        (
            "packed.fatbin",
            "fatbin",
            (ALL, PTX),
            ("", ""),
            (5, 0),
            ("none", None),
        ),
        (
            "unpacked.fatbin",
            "fatbin",
            (ALL, PTX),
            ("", ""),
            (0, 5),
            ("none", None),
        ),
        (
            "ptx-only.fatbin",
            "fatbin",
            ("", "compute_50"),
            ("", ""),
            (1, 0),
            ("none", None),
        ),
        (
            "sm_90.cubin",
            "cubin",
            ("sm_90", ""),
            ("", ""),
            (0, 0),
            ("none", None),
        ),
        (
            "relocatable.o",
            "object",
            ("", ""),
            (ALL, PTX),
            (5, 0),
            ("none", None),
        ),
        (
            "shared.so",
            "shared-library",
            (ALL, PTX),
            ("", ""),
            (1, 4),
            ("dynamic", Some("11.0")),
        ),
        (
            "static.so",
            "shared-library",
            (ALL, PTX),
            ("", ""),
            (1, 4),
            ("static", Some("11.8")),
        ),
        (
            "linked.so",
            "shared-library",
            (ALL, ""),
            (ALL, PTX),
            (5, 4),
            ("dynamic", Some("11.0")),
        ),
    ] {
        let mut path = sample(&format!("11.8/{name}"));
        if !path.exists() {
            path = unpacked(&format!("fatbin/11.8/{name}"), folder.path());
        }
        let found = json(&path, &[]);
        let file = &found["files"][0];
        let codes = |of: &Value| (list(&of["elf"]), list(&of["ptx"]));
        let words = |(elf, ptx): (&str, &str)| (elf.to_owned(), ptx.to_owned());
        assert_eq!(file["kind"], kind, "{name}");
        assert_eq!(codes(&file["archs"]), words(linked), "{name}");
        assert_eq!(codes(&file["relocatable"]), words(to_link), "{name}");
        let (lz4, plain) = packings;
        assert_eq!(
            (
                &file["device"]["lz4"],
                &file["device"]["unpacked"],
                &file["device"]["zstd"]
            ),
            (&lz4.into(), &plain.into(), &0.into()),
            "{name}"
        );
        let (linkage, version) = runtime;
        assert_eq!(
            (&file["runtime"]["linkage"], &file["runtime"]["version"]),
            (&linkage.into(), &version.into()),
            "{name}"
        );
        let has_cubins = file["device"]["cubins"] != 0;
        assert_eq!(
            list(&file["toolkits"]),
            if has_cubins { "11.8" } else { "" },
            "{name}"
        );
        let has_ptx = !(linked.1.is_empty() && to_link.1.is_empty());
        assert_eq!(
            list(&file["ptx_isa"]),
            if has_ptx { "7.8" } else { "" },
            "{name}"
        );
    }
}

#[test]
fn a_go_program_that_opens_nvml() {
    let folder = tempfile::tempdir().unwrap();
    let program = unpacked("go/meter", folder.path());
    let found = json(&program, &[]);
    let file = &found["files"][0];
    assert_eq!(
        (&file["kind"], &file["description"]),
        (&"program".into(), &"Go program".into())
    );
    let go = &file["go"];
    assert_eq!(
        (&go["version"], &go["path"]),
        (&"go1.19.8".into(), &"example.com/meter".into())
    );
    assert_eq!(go["modules"]["github.com/NVIDIA/go-nvml"], "v0.12.4-1");
    assert_eq!(
        (
            &file["libnvidia_ml"],
            &file["libcuda"],
            &file["runtime"]["linkage"]
        ),
        (&"dlopen".into(), &"none".into(), &"none".into())
    );
    let text = inspect(&[program.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("Go program, opens libnvidia-ml") && text.contains("go-nvml v0.12.4-1"),
        "{text}"
    );
}

#[test]
fn targets() {
    let path = sample("several.fatbin");
    let library = sample("shared.so");
    for (file, target, code, finding) in [
        (&path, "gpu=A100", 0, None),
        (&path, "gpu=sm_75", 1, Some("no-device-code-for-gpu")),
        (&path, "gpu=sm_90,driver=550.54.14", 0, None),
        (&path, "gpu=sm_121,driver=999.1", 0, None),
        (&library, "driver=535.104.05", 1, Some("driver-too-old")),
        (&library, "driver=580.95.05", 0, None),
        (
            &sample("ptx-only.fatbin"),
            "driver=580.65.06,gpu=sm_90",
            1,
            Some("ptx-too-new-for-driver"),
        ),
    ] {
        let words = ["--target", target];
        let found = json(file, &words);
        let first = found["findings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|f| f["severity"] == "error");
        assert_eq!(
            first.map(|f| f["id"].as_str().unwrap()),
            finding,
            "{} {target}",
            file.display()
        );
        let output = inspect(&[file.to_str().unwrap(), words[0], words[1]]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{} {target}",
            file.display()
        );
    }
}

#[test]
fn what_is_no_such_file_is_named_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("text"), "hello, world\n").unwrap();
    for (words, needle) in [
        (vec![at("none")], "no such file"),
        (vec![at("text")], "a text file"),
        (vec!["/dev/null".to_owned()], "no regular file"),
        (
            vec![at("text"), "--target".to_owned(), "gpu=nonsense".to_owned()],
            "is not known",
        ),
        (
            vec![at("text"), "--target".to_owned(), "gpus=A100".to_owned()],
            "unknown key",
        ),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = inspect(&words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (output.status.code(), said.lines().count()),
            (Some(2), 1),
            "{words:?}: {said}"
        );
        assert!(said.contains(needle), "{words:?}: {said}");
    }
    let library = fs::read(sample("shared.so")).unwrap();
    fs::write(at("empty.so"), "").unwrap();
    fs::write(at("cut.so"), &library[..library.len() / 2]).unwrap();
    fs::write(
        at("pointer.so"),
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    )
    .unwrap();
    for (name, words) in [
        ("empty.so", "an empty file"),
        ("cut.so", "cut off"),
        ("pointer.so", "a Git LFS pointer"),
    ] {
        let output = inspect(&[&at(name)]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(said.lines().next().unwrap().contains(words), "{said}");
    }
}

#[test]
fn a_folder_an_archive_and_a_wheel_hold_what_is_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("lib")).unwrap();
    fs::copy(sample("shared.so"), at("lib/libone.so")).unwrap();
    fs::hard_link(at("lib/libone.so"), at("lib/libtwo.so")).unwrap();
    std::os::unix::fs::symlink("libone.so", at("lib/libthree.so")).unwrap();
    std::os::unix::fs::symlink("..", at("lib/loop")).unwrap();
    fs::write(at("lib/notes.txt"), "text").unwrap();
    let object = sample("relocatable.o");
    let script = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1], 'w', zipfile.ZIP_DEFLATED)\nz.write(sys.argv[2], 'pkg/_C.so')\nz.writestr('pkg-1.2.dist-info/METADATA', 'Name: pkg\\nVersion: 1.2\\n')";
    let run = |program: &str, words: &[&std::ffi::OsStr]| {
        assert!(
            std::process::Command::new(program)
                .args(words)
                .status()
                .unwrap()
                .success(),
            "{program}"
        );
    };
    run(
        "ar",
        &["rc".as_ref(), at("libobj.a").as_ref(), object.as_ref()],
    );
    let wheel = at("pkg-1.2-py3-none-any.whl");
    run(
        "python3",
        &[
            "-c".as_ref(),
            script.as_ref(),
            wheel.as_ref(),
            sample("shared.so").as_ref(),
        ],
    );
    let odd = |bytes: &'static [u8]| -> &std::ffi::OsStr {
        std::os::unix::ffi::OsStrExt::from_bytes(bytes)
    };
    fs::copy(
        sample("shared.so"),
        folder.path().join(odd(b"lib/caf\xe9.so")),
    )
    .unwrap();
    fs::write(folder.path().join(odd(b"lib/caf\xe9.txt")), "text").unwrap();
    let found = json(folder.path(), &[]);
    let problems = list(&found["problems"]);
    assert!(
        problems.ends_with("lib/caf\u{fffd}.so: not read, since its name is not UTF-8: rename it"),
        "{problems}"
    );
    let files = found["files"].as_array().unwrap();
    let names: Vec<&str> = files
        .iter()
        .map(|f| {
            f["path"]
                .as_str()
                .unwrap()
                .rsplit(['/', '!'])
                .next()
                .unwrap()
        })
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let archive = files
        .iter()
        .find(|f| f["kind"] == "static-library")
        .unwrap();
    assert_eq!(list(&archive["relocatable"]["ptx"]), "compute_80");
    let member = files
        .iter()
        .find(|f| f["path"].as_str().unwrap().ends_with("!pkg/_C.so"))
        .unwrap();
    assert_eq!(
        (list(&member["archs"]["ptx"]), &member["package"]),
        ("compute_120".to_owned(), &"pkg 1.2".into())
    );
}
