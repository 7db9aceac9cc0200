//! Whether a container of an image runs on a machine: the same answer by `inspect IMAGE`, `inspect / --root IMAGE` and
//! `preflight IMAGE`, and what `check --root IMAGE` says of it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::elf::{SharedObject, compat_note};
use super::tar::{Member, archive, digest, oci_and};
use super::{gpudoctor, has, run};

const OS: &[u8] = b"ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n";
const COMPAT: &str = "usr/local/cuda-13.1/compat/libcuda.so.590.44.01";

/// What `docker save` writes of one layer and variables.
fn saved(dir: &Path, name: &str, layer: &[Member<'_>], variables: &[&str]) -> PathBuf {
    let layer = archive(layer);
    let env = serde_json::to_string(variables).unwrap();
    let config = format!(r#"{{"architecture":"amd64","os":"linux","config":{{"Env":{env}}}}}"#);
    let manifest = br#"[{"Config":"config.json","RepoTags":["app:1"],"Layers":["layer.tar"]}]"#;
    let bytes = archive(&[
        Member("manifest.json", b'0', manifest, ""),
        Member("config.json", b'0', config.as_bytes(), ""),
        Member("layer.tar", b'0', &layer, ""),
    ]);
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// A libcuda, with a note of these branches or none.
fn libcuda(branches: &[u32]) -> Vec<u8> {
    let note = (
        ".note.cuda.fwd_compatibility",
        compat_note("13.1", branches),
    );
    SharedObject {
        soname: "libcuda.so.1".to_owned(),
        notes: if branches.is_empty() {
            Vec::new()
        } else {
            vec![note]
        },
        ..SharedObject::default()
    }
    .write()
}

/// A library that uses the shared runtime of CUDA 13.
fn app() -> Vec<u8> {
    SharedObject {
        soname: "libapp.so".to_owned(),
        needed: vec!["libcudart.so.13".to_owned()],
        ..SharedObject::default()
    }
    .write()
}

/// The JSON of a command.
fn told(words: &[&str]) -> Value {
    let output = gpudoctor(&[words, &["--format", "json", "--no-redact"]].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!(
            "{words:?}: {e}: {}",
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// The verdict's status and finding, the same by each way of asking.
fn verdict(image: &Path, target: &str) -> (String, String) {
    let image = image.to_str().unwrap();
    let of = |found: &Value| {
        let text = |key: &str| {
            found["verdict"][key]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        (text("status"), text("finding"))
    };
    let by_itself = of(&told(&["inspect", image, "--target", target]));
    let as_root = of(&told(&[
        "inspect", "/", "--root", image, "--target", target,
    ]));
    assert_eq!(by_itself, as_root, "{image} on {target}");
    let by_preflight = of(&told(&["preflight", image, "--target", target]));
    assert_eq!(by_itself, by_preflight, "{image} on {target}");
    by_itself
}

#[test]
fn a_compat_library_is_judged_by_its_note_its_place_and_the_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (app, plain, noted) = (app(), libcuda(&[]), libcuda(&[535, 550, 580, 590]));
    let made = |name: &str, libcuda: &[u8], place: &str, variables: &[&str]| {
        let layer = [
            Member("etc/os-release", b'0', OS, ""),
            Member("usr/local/cuda", b'2', b"", "cuda-13.1"),
            Member(place, b'0', libcuda, ""),
            Member(
                "usr/local/cuda-13.1/compat/libcuda.so.1",
                b'2',
                b"",
                "libcuda.so.590.44.01",
            ),
            Member("opt/libapp.so", b'0', &app, ""),
        ];
        saved(dir, name, &layer, variables)
    };
    let is = |status: &str, finding: &str| (status.to_owned(), finding.to_owned());
    let by_toolkit = made("toolkit.tar", &plain, COMPAT, &[]);
    let not_usable = is("fault", "compat-libcuda-not-usable");
    // 580 is of CUDA 13 by itself, and the toolkit puts 590 before it.
    assert_eq!(
        verdict(&by_toolkit, "driver=580.65.06,gpu=RTX 4090"),
        not_usable
    );
    assert_eq!(
        verdict(&by_toolkit, "driver=580.65.06,gpu=A100"),
        is("ok", "")
    );
    assert_eq!(
        verdict(&by_toolkit, "driver=595.45.04,gpu=RTX 4090"),
        is("ok", "")
    );
    // An older branch: by the table of CUDA 13.1, then by the note.
    assert_eq!(
        verdict(&by_toolkit, "driver=535.104.05,gpu=A100"),
        is("ok", "")
    );
    let too_old = is("fault", "driver-too-old");
    assert_eq!(
        verdict(&by_toolkit, "driver=535.104.05,gpu=RTX 4090"),
        too_old
    );
    let with_note = made("noted.tar", &noted, COMPAT, &[]);
    assert_eq!(
        verdict(&with_note, "driver=535.104.05,gpu=A100"),
        is("ok", "")
    );
    assert_eq!(verdict(&with_note, "driver=570.86.10,gpu=A100"), too_old);
    // NGC's place, and one that nobody looks into.
    let of_ngc = COMPAT.replace("compat/", "compat/lib.real/");
    let of_ngc = made("ngc.tar", &noted, &of_ngc, &[]);
    assert_eq!(verdict(&of_ngc, "driver=535.104.05,gpu=A100"), is("ok", ""));
    assert_eq!(
        verdict(&of_ngc, "driver=580.65.06,gpu=RTX 4090"),
        is("ok", "")
    );
    let nobodys = COMPAT.replace("cuda-13.1", "cuda-13.0");
    let nobodys = made("nobody.tar", &noted, &nobodys, &[]);
    assert_eq!(verdict(&nobodys, "driver=535.104.05,gpu=A100"), too_old);
    assert_eq!(
        verdict(&nobodys, "driver=580.65.06,gpu=RTX 4090"),
        is("ok", "")
    );
    // By the variable it comes first on newer drivers too.
    let path = &["LD_LIBRARY_PATH=/usr/local/cuda/compat:/usr/local/nvidia/lib64"];
    let by_path = made("path.tar", &plain, COMPAT, path);
    assert_eq!(verdict(&by_path, "driver=595.45.04,gpu=A100"), not_usable);
    assert_eq!(verdict(&by_path, "driver=580.65.06,gpu=A100"), is("ok", ""));
    // Behind a folder in which the host's is put it is not reached.
    let behind = &["LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu:/usr/local/cuda/compat"];
    let layer = [
        Member("etc/os-release", b'0', OS, ""),
        Member("usr/lib/x86_64-linux-gnu/libx.so", b'0', b"", ""),
        Member("usr/local/cuda", b'2', b"", "cuda-13.1"),
        Member(COMPAT, b'0', &plain, ""),
        Member(
            "usr/local/cuda-13.1/compat/libcuda.so.1",
            b'2',
            b"",
            "libcuda.so.590.44.01",
        ),
        Member("opt/libapp.so", b'0', &app, ""),
    ];
    let behind = saved(dir, "behind.tar", &layer, behind);
    assert_ne!(verdict(&behind, "driver=595.45.04,gpu=A100"), not_usable);
}

#[test]
fn a_stub_and_a_driver_in_the_image_are_found_by_its_variable() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let (app, libcuda) = (app(), libcuda(&[]));
    let layer = [
        Member("etc/os-release", b'0', OS, ""),
        Member("usr/local/cuda/lib64/stubs/libcuda.so", b'0', &libcuda, ""),
        Member(
            "usr/local/cuda/lib64/stubs/libcuda.so.1",
            b'2',
            b"",
            "libcuda.so",
        ),
        Member("opt/nv/libcuda.so.550.163.01", b'0', &libcuda, ""),
        Member("opt/nv/libcuda.so.1", b'2', b"", "libcuda.so.550.163.01"),
        Member("opt/libapp.so", b'0', &app, ""),
    ];
    let target = "driver=580.65.06,gpu=A100";
    let on = |name: &str, variables: &[&str]| {
        let image = saved(dir, name, &layer, variables);
        let (status, finding) = verdict(&image, target);
        let words = ["check", "--root", image.to_str().unwrap()];
        let checked = told(&words)["verdict"]["finding"]
            .as_str()
            .map(str::to_owned);
        (status, finding, checked)
    };
    let stubs = "LD_LIBRARY_PATH=/usr/local/cuda/lib64/stubs";
    let (status, finding, checked) = on("stub.tar", &[stubs]);
    assert_eq!(
        (status.as_str(), finding.as_str()),
        ("fault", "libcuda-stub")
    );
    assert_eq!(checked.as_deref(), Some("libcuda-stub"));
    // For the linker alone it is where it belongs.
    let (status, _, checked) = on("linker.tar", &["LIBRARY_PATH=/usr/local/cuda/lib64/stubs"]);
    assert_eq!((status.as_str(), checked), ("ok", None));
    let (status, finding, checked) = on("driver.tar", &["LD_LIBRARY_PATH=/opt/nv"]);
    assert_eq!(
        (status.as_str(), finding.as_str()),
        ("fault", "image-has-driver-files")
    );
    // No board is blamed for what an image cannot have.
    assert_ne!(checked.as_deref(), Some("gpu-absent"));
}

#[test]
fn a_program_without_its_loader_does_not_start() {
    if !has("cc") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let source = dir.join("app.c");
    let code = "extern void *dlopen(const char *, int);\nint main(void) { return !dlopen(\"libcuda.so.1\", 2); }\n";
    fs::write(&source, code).unwrap();
    let program = dir.join("app");
    run(
        "cc",
        &[source.to_str().unwrap(), "-o", program.to_str().unwrap()],
    );
    let program = fs::read(program).unwrap();
    let loader = fs::read("/lib64/ld-linux-x86-64.so.2");
    let Ok(loader) = loader else { return };
    let alpine: &[u8] = b"ID=alpine\nVERSION_ID=3.20.1\nPRETTY_NAME=\"Alpine Linux v3.20\"\n";
    let target = "driver=580.65.06,gpu=A100";
    let bare = [
        Member("etc/os-release", b'0', alpine, ""),
        Member("opt/app", b'0', &program, ""),
    ];
    let bare = saved(dir, "bare.tar", &bare, &[]);
    let (status, finding) = verdict(&bare, target);
    assert_eq!(
        (status.as_str(), finding.as_str()),
        ("fault", "program-loader-missing")
    );
    let whole = [
        Member("etc/os-release", b'0', OS, ""),
        Member("lib64/ld-linux-x86-64.so.2", b'0', &loader, ""),
        Member(
            "lib64/libc.so.6",
            b'0',
            &fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap_or_default(),
            "",
        ),
        Member("opt/app", b'0', &program, ""),
    ];
    let whole = saved(dir, "whole.tar", &whole, &[]);
    assert_ne!(verdict(&whole, target).1, "program-loader-missing");
}

#[test]
fn of_an_index_the_image_for_the_targets_processor_is_judged() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let app = app();
    let manifests = ["amd64", "arm64"].map(|arch| {
        let layer = archive(&[
            Member("etc/os-release", b'0', OS, ""),
            Member(&format!("opt/{arch}/libapp.so"), b'0', &app, ""),
        ]);
        let config = format!(r#"{{"architecture":"{arch}","os":"linux","config":{{}}}}"#);
        let manifest = format!(
            r#"{{"schemaVersion":2,"config":{{"digest":"{}","size":{}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{}","size":{}}}]}}"#,
            digest(config.as_bytes()),
            config.len(),
            digest(&layer),
            layer.len()
        );
        (arch, layer, config.into_bytes(), manifest.into_bytes())
    });
    let told_of: Vec<String> = manifests
        .iter()
        .map(|(arch, _, _, manifest)| {
            format!(
                r#"{{"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":"{}","size":{},"platform":{{"os":"linux","architecture":"{arch}"}}}}"#,
                digest(manifest),
                manifest.len()
            )
        })
        .collect();
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{}]}}"#,
        told_of.join(",")
    );
    let place = |bytes: &[u8]| format!("blobs/{}", digest(bytes).replace(':', "/"));
    let mut blobs: Vec<(String, &[u8])> = vec![
        (
            "oci-layout".to_owned(),
            br#"{"imageLayoutVersion":"1.0.0"}"#,
        ),
        ("index.json".to_owned(), index.as_bytes()),
    ];
    for (_, layer, config, manifest) in &manifests {
        for bytes in [layer, config, manifest] {
            blobs.push((place(bytes), bytes));
        }
    }
    let members: Vec<Member<'_>> = blobs
        .iter()
        .map(|(name, bytes)| Member(name, b'0', bytes, ""))
        .collect();
    let path = dir.join("multi.tar");
    fs::write(&path, archive(&members)).unwrap();
    let path = path.to_str().unwrap();
    let read = |target: &str| {
        let found = told(&["inspect", path, "--target", target]);
        let image = &found["containers"][0]["image"];
        (image["arch"].clone(), image["other_archs"][0].clone())
    };
    let (x86, arm) = (Value::from("x86_64"), Value::from("aarch64"));
    assert_eq!(
        read("driver=580.95.05,gpu=A100"),
        (x86.clone(), arm.clone())
    );
    assert_eq!(
        read("driver=580.95.05,gpu=GH200"),
        (arm.clone(), x86.clone())
    );
    assert_eq!(read("driver=580.95.05,gpu=A100,arch=aarch64"), (arm, x86));
    // Each machine of a fleet gets its own.
    let both = told(&[
        "preflight",
        path,
        "--target",
        "a:driver=580.95.05,gpu=A100",
        "--target",
        "b:driver=580.95.05,gpu=GH200",
    ]);
    let findings = both["targets"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|target| target["findings"].as_array().cloned().unwrap_or_default());
    let refused = findings
        .filter(|finding| {
            finding["id"] == "program-other-architecture" && finding["subjects"][0] == path
        })
        .count();
    assert_eq!(refused, 0, "{both}");
}

#[test]
fn what_was_not_read_of_an_image_is_not_fine() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let target = "driver=580.65.06,gpu=A100";
    // A layer that may not be handed on, and is not here.
    let layer = archive(&[Member("etc/os-release", b'0', OS, "")]);
    let foreign = format!(
        r#",{{"mediaType":"application/vnd.oci.image.layer.nondistributable.v1.tar","digest":"sha256:{}","size":10}}"#,
        "a".repeat(64)
    );
    let path = dir.join("part.tar");
    fs::write(&path, oci_and(&[(digest(&layer), &layer)], &foreign)).unwrap();
    assert_eq!(verdict(&path, target).0, "unknown");
    let checked = told(&["check", "--root", path.to_str().unwrap()]);
    assert_eq!(
        checked["verdict"]["status"], "unknown",
        "{}",
        checked["verdict"]
    );
    // Folders that are images in no layout that is read, and one of nothing.
    let name = "0".repeat(64);
    for (folder, files) in [
        ("skopeo", &["manifest.json", "version", name.as_str()][..]),
        ("bare", &["index.json", "blobs/sha256/x"]),
        ("empty", &[]),
    ] {
        let folder = dir.join(folder);
        fs::create_dir(&folder).unwrap();
        for file in files {
            let file = folder.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "{}").unwrap();
        }
        let folder = folder.to_str().unwrap();
        let output = gpudoctor(&["preflight", folder, "--target", target]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("could not tell: "), "{said}");
        assert_eq!(
            said.lines().next().unwrap().matches(folder).count(),
            1,
            "{said}"
        );
        let inspected = told(&["inspect", folder, "--target", target]);
        assert_eq!(inspected["verdict"]["status"], "unknown");
    }
    // A project of texts that needs no GPU runs everywhere.
    let sources = dir.join("sources");
    fs::create_dir(&sources).unwrap();
    fs::write(sources.join("app.py"), "print()\n").unwrap();
    let output = gpudoctor(&["preflight", sources.to_str().unwrap(), "--target", target]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn an_image_as_the_root_has_its_own_environment() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let site = "opt/venv/lib/python3.11/site-packages";
    let version = format!("{site}/torch/version.py");
    let metadata = format!("{site}/torch-2.10.0.dist-info/METADATA");
    let layer = [
        Member("etc/os-release", b'0', OS, ""),
        Member(
            "opt/venv/pyvenv.cfg",
            b'0',
            b"home = /usr/bin\nversion = 3.11.2\n",
            "",
        ),
        Member(
            &version,
            b'0',
            b"__version__ = '2.10.0+cu130'\ncuda = '13.0'\n",
            "",
        ),
        Member(
            &metadata,
            b'0',
            b"Metadata-Version: 2.1\nName: torch\nVersion: 2.10.0+cu130\n",
            "",
        ),
    ];
    let variables = ["VIRTUAL_ENV=/opt/venv", "PATH=/opt/venv/bin:/usr/bin:/bin"];
    let image = saved(dir, "venv.tar", &layer, &variables);
    let checked = told(&["check", "--root", image.to_str().unwrap()]);
    assert_eq!(
        checked["examined"]["kind"], "environment",
        "{}",
        checked["examined"]
    );
    let what = checked["examined"]["what"].as_str().unwrap();
    assert!(what.contains("/opt/venv"), "{what}");
    let bare = saved(dir, "bare.tar", &layer, &[]);
    let checked = told(&["check", "--root", bare.to_str().unwrap()]);
    assert_eq!(checked["examined"]["what"], "this image");
    let layers = checked["layers"].as_array().unwrap();
    let container = layers
        .iter()
        .find(|layer| layer["layer"] == "container")
        .unwrap();
    assert!(
        container["summary"].as_str().unwrap().contains("image"),
        "{container}"
    );
}
