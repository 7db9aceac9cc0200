//! One tree in every layout that umoci and skopeo make of it, against the tree itself.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::parts::{self, RUNTIMES};
use super::{has, inspected, run};

/// Files with their paths within, without what stands before.
fn files(found: &Value, prefix: &str) -> Vec<Value> {
    let mut files = found["files"].as_array().unwrap().clone();
    for file in &mut files {
        let path = file["path"].as_str().unwrap();
        let path = path.strip_prefix(prefix).unwrap().to_owned();
        file["path"] = path.into();
    }
    files
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Two layers: a system with Python packages of NVIDIA's, and one that takes something away and puts something on.
fn image(dir: &Path) -> Option<PathBuf> {
    let wheels = [parts::wheel(RUNTIMES[0]), parts::wheel(RUNTIMES[2])];
    let [Ok(old), Ok(new)] = &wheels else {
        parts::not_run(&format!("NVIDIA's wheels cannot be had: {wheels:?}"));
        return None;
    };
    let base = dir.join("base");
    let site = base.join("usr/local/lib/python3.12/site-packages");
    for folder in ["etc", "usr/lib/x86_64-linux-gnu", "opt/old/sub", "opt/gone"] {
        fs::create_dir_all(base.join(folder)).unwrap();
    }
    fs::create_dir_all(&site).unwrap();
    let system = "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n";
    fs::write(base.join("etc/os-release"), system).unwrap();
    std::os::unix::fs::symlink("usr/lib", base.join("lib")).unwrap();
    run("cp", &["-aL", &format!("{}/.", text(new)), text(&site)]);
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/elf/libexample.so.9");
    for place in ["usr/lib/x86_64-linux-gnu", "opt/old/sub"] {
        run("cp", &[text(&example), text(&base.join(place))]);
    }
    run(
        "cp",
        &["-aL", text(old), text(&base.join("opt/gone/wheel"))],
    );
    fs::hard_link(
        base.join("opt/old/sub/libexample.so.9"),
        base.join("opt/old/another-name.so"),
    )
    .unwrap();
    // A libcuda for forward compatibility: of the driver's package, since it is the same file, of 30 MB.
    let driver = parts::all()?.drivers.last().unwrap();
    let compat = base.join("usr/local/cuda-12.4/compat");
    fs::create_dir_all(&compat).unwrap();
    run("cp", &["-aL", text(&driver.libcuda), text(&compat)]);
    let app = dir.join("app");
    fs::create_dir(&app).unwrap();
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/fatbin/shared.so");
    run(
        "cp",
        &[
            text(&shared),
            text(&app.join(format!("{}.so", "long".repeat(30)))),
        ],
    );
    let layout = dir.join("layout");
    let at = format!("{}:v1", text(&layout));
    run("umoci", &["init", "--layout", text(&layout)]);
    run("umoci", &["new", "--image", &at]);
    run(
        "umoci",
        &["insert", "--rootless", "--image", &at, text(&base), "/"],
    );
    run(
        "umoci",
        &["insert", "--image", &at, "--whiteout", "/opt/gone"],
    );
    run(
        "umoci",
        &[
            "insert",
            "--rootless",
            "--image",
            &at,
            "--opaque",
            text(&app),
            "/opt/old",
        ],
    );
    run(
        "umoci",
        &[
            "config",
            "--image",
            &at,
            "--config.env",
            "NVIDIA_REQUIRE_CUDA=cuda>=12.4",
            "--config.env",
            "NVIDIA_VISIBLE_DEVICES=all",
            "--config.env",
            "API_TOKEN=secret",
        ],
    );
    Some(layout)
}

#[test]
fn every_layout_reads_as_the_tree_itself() {
    if !has("umoci") || !has("skopeo") || !has("zstd") {
        return;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = dir.path();
    let Some(layout) = image(dir) else {
        return;
    };
    let at = format!("{}:v1", text(&layout));
    run(
        "umoci",
        &[
            "unpack",
            "--rootless",
            "--image",
            &at,
            text(&dir.join("bundle")),
        ],
    );
    let root = dir.join("bundle/rootfs");
    let tree = inspected(Path::new("/"), &["--all", "--root", text(&root)]);
    let wanted = files(&tree, "");
    assert!(wanted.len() >= 3, "{tree}");
    let from = format!("oci:{at}");
    let copy = |to: &str, words: &[&str]| {
        let words = [
            &["--insecure-policy", "copy", "--quiet"],
            words,
            &[from.as_str(), to],
        ]
        .concat();
        run("skopeo", &words);
    };
    let path = |name: &str| dir.join(name);
    copy(
        &format!("docker-archive:{}:app:1", text(&path("docker.tar"))),
        &[],
    );
    copy(&format!("oci-archive:{}:v1", text(&path("oci.tar"))), &[]);
    copy(
        &format!("oci:{}:v1", text(&path("zstd"))),
        &["--dest-compress", "--dest-compress-format", "zstd"],
    );
    // Docker since 25 saves the OCI's layout, and its own manifest beside it.
    let new = path("new");
    run("cp", &["-a", text(&layout), text(&new)]);
    let read = |name: &str| -> Value {
        let path = match name.split_once(':') {
            Some((kind, digits)) => new.join("blobs").join(kind).join(digits),
            None => new.join(name),
        };
        serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
    };
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        format!("blobs/{}", digest.replace(':', "/"))
    };
    let manifest = read(
        read("index.json")["manifests"][0]["digest"]
            .as_str()
            .unwrap(),
    );
    let layers: Vec<String> = manifest["layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(blob)
        .collect();
    let saved = serde_json::json!([{ "Config": blob(&manifest["config"]), "RepoTags": ["app:1"], "Layers": layers }]);
    fs::write(new.join("manifest.json"), saved.to_string()).unwrap();
    run(
        "tar",
        &[
            "-C",
            text(&new),
            "-cf",
            text(&path("new.tar")),
            "blobs",
            "index.json",
            "manifest.json",
            "oci-layout",
        ],
    );
    // What `docker export` writes, in both of GNU tar's formats, and packed.
    for (name, words) in [
        ("export.tar", ["--format=gnu", "-c"]),
        ("export.tgz", ["--format=pax", "-cz"]),
    ] {
        run(
            "tar",
            &[
                "-C",
                text(&root),
                words[0],
                words[1],
                "-f",
                text(&path(name)),
                ".",
            ],
        );
    }
    let packed = path("export.tar.zst");
    run(
        "zstd",
        &["-q", "-12", text(&path("export.tar")), "-o", text(&packed)],
    );
    for (name, form) in [
        ("export.tar.zst", "root-filesystem"),
        ("layout", "oci-layout"),
        ("oci.tar", "oci-archive"),
        ("docker.tar", "docker-archive"),
        ("new.tar", "docker-archive"),
        ("zstd", "oci-layout"),
        ("export.tar", "root-filesystem"),
        ("export.tgz", "root-filesystem"),
    ] {
        let place = path(name);
        let found = inspected(&place, &["--all"]);
        assert_eq!(
            files(&found, &format!("{}!", text(&place))),
            wanted,
            "{name}"
        );
        let container = found["containers"].as_array().unwrap().last().unwrap();
        let image = &container["image"];
        assert_eq!(image["form"], form, "{name}");
        assert_eq!(container["looked_at"], tree["looked_at"], "{name}");
        assert_eq!(image["system"], "Debian GNU/Linux 12", "{name}");
        let packages = image["packages"].to_string();
        assert!(
            packages.contains("nvidia-cuda-runtime-cu12"),
            "{name}: {packages}"
        );
        let compat = image["compat"].as_array().unwrap();
        assert_eq!(compat.len(), 1, "{name}: {compat:?}");
        assert!(compat[0]["version"].is_string(), "{name}: {compat:?}");
        let environment = &image["environment"];
        if form == "root-filesystem" {
            assert!(environment.is_null(), "{name}");
        } else {
            assert_eq!(environment["NVIDIA_REQUIRE_CUDA"], "cuda>=12.4", "{name}");
        }
        assert!(!found.to_string().contains("API_TOKEN"), "{name}");
        if name == "zstd" {
            assert_eq!(image["layers"][0]["packing"], "zstd");
        }
        // By either way of packing once: the trees are the same.
        if !["docker.tar", "zstd"].contains(&name) {
            continue;
        }
        let root = super::gpudoctor(&[
            "inspect",
            "--format",
            "json",
            "--no-redact",
            "--all",
            "--root",
            text(&place),
            "/",
        ]);
        let by_root: Value = serde_json::from_slice(&root.stdout).unwrap();
        let prefix = format!("{}!", text(&place));
        assert_eq!(files(&by_root, &prefix), wanted, "--root {name}");
    }
    // Will it start there?
    let docker = path("docker.tar");
    let judged = |target: &str| inspected(&docker, &["--target", target]);
    assert_eq!(judged("driver=620,gpu=A100")["verdict"]["status"], "ok");
    let old = judged("driver=535.104.05,gpu=A100");
    assert_eq!(old["verdict"]["status"], "fault");
    let ids: Vec<&str> = old["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["id"].as_str().unwrap())
        .collect();
    for id in ["image-requirement-not-met", "driver-too-old"] {
        assert!(ids.contains(&id), "{ids:?}");
    }
    let preflight = super::gpudoctor(&[
        "preflight",
        "--target",
        "driver=535.104.05,gpu=A100",
        text(&docker),
    ]);
    let said = String::from_utf8_lossy(&preflight.stdout).into_owned();
    assert_eq!(preflight.status.code(), Some(1), "{said}");
    assert!(said.contains("image-requirement-not-met"), "{said}");
}
