//! Images that are made to do harm: refused in one line, or read as far as they are sound.

use std::fs;
use std::path::{Path, PathBuf};

use super::tar::{Member, archive, digest, gzip, header, oci, oci_and, saved, zstd};
use super::{confined, inspected};

const ELF: &[u8] = include_bytes!("../../fixtures/fatbin/shared.so");

fn written(dir: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// The image is refused: exit status 2, and one line that has these words.
fn refused(path: &Path, words: &str) {
    let output = confined(&["inspect", "--deep", path.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(words), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn what_is_no_image_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let etc = archive(&[Member("etc/os-release", b'0', b"ID=x\n", "")]);
    let packed = gzip(&etc);
    let half = packed[..packed.len() / 2].to_vec();
    let text = archive(&[Member("notes.txt", b'0', b"x", "")]);
    let absent = archive(&[Member(
        "manifest.json",
        b'0',
        b"[{\"Config\":\"config.json\",\"Layers\":[\"../../etc/passwd\"]}]",
        "",
    )]);
    let round = archive(&[
        Member(
            "manifest.json",
            b'0',
            b"[{\"Config\":\"a\",\"Layers\":[]}]",
            "",
        ),
        Member("a", b'2', b"", "b"),
        Member("b", b'2', b"", "a"),
    ]);
    let huge = [header("etc/hole", b'0', 1 << 32, ""), vec![0; 1024]].concat();
    let digest = "0".repeat(64);
    let manifest = format!("[{{\"Config\":\"{digest}.json\",\"Layers\":[]}}]");
    let config = format!("{digest}.json");
    let wrong = archive(&[
        Member("manifest.json", b'0', manifest.as_bytes(), ""),
        Member(&config, b'0', b"{}", ""),
    ]);
    let no_layer = saved(&[b"this is no archive".repeat(100)]);
    let xz = [&b"\xfd7zXZ\0"[..], &[0; 2000]].concat();
    let zeros = gzip(&vec![0; 64 << 20]).repeat(20);
    for (name, bytes, words) in [
        ("half.tar", saved(&[half]), "is cut off"),
        ("text.tar", text, "no container image"),
        ("absent.tar", absent, "is not in it"),
        ("round.tar", round, "lead round"),
        ("huge.tar", huge, "is cut off"),
        ("wrong.tar", wrong, "another digest"),
        ("empty.tar", vec![0; 10240], "is"),
        ("layer.tar", no_layer, "no header of a tar archive"),
        ("member.tar", saved(&[etc])[..2000].to_vec(), "is cut off"),
        ("zeros.tar.gz", zeros, ""),
        ("xz.tar", saved(&[xz]), "is packed by xz"),
    ] {
        refused(&written(dir, name, &bytes), words);
    }
}

#[test]
fn what_leads_out_is_left_out_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let outside = written(dir.path(), "outside", b"secret");
    let layer = archive(&[
        Member("etc/os-release", b'2', b"", outside.to_str().unwrap()),
        Member("../../evil.so", b'0', ELF, ""),
        Member("/usr/lib/x.so", b'0', ELF, ""),
        Member("usr/lib/round.so", b'2', b"", "round.so"),
        Member("usr/lib/hard.so", b'1', b"", "../../../outside"),
        Member("usr/lib/up", b'2', b"", "../../../../../../"),
        Member("usr/lib/up/usr/lib/y.so", b'0', ELF, ""),
        Member("dev/null.so", b'3', b"", ""),
    ]);
    let image = written(dir.path(), "image.tar", &saved(&[gzip(&layer)]));
    let found = inspected(&image, &[]);
    let files = found["files"].as_array().unwrap();
    let shown = image.to_str().unwrap();
    let paths: Vec<&str> = files.iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert_eq!(
        paths,
        [
            format!("{shown}!/usr/lib/x.so"),
            format!("{shown}!/usr/lib/y.so")
        ]
    );
    assert_eq!(
        found["containers"][0]["image"]["system"],
        serde_json::Value::Null
    );
    let problems = found["problems"].to_string();
    assert!(problems.contains("leads out of the image"), "{problems}");
    assert!(!found.to_string().contains("secret"));
}

#[test]
fn layers_are_merged_and_a_folder_of_blobs_stays_inside() {
    let dir = tempfile::tempdir().unwrap();
    let lower = archive(&[
        Member("usr/lib/a.so", b'0', ELF, ""),
        Member("usr/lib/b.so", b'0', ELF, ""),
        Member("opt/c.so", b'0', ELF, ""),
    ]);
    let upper = archive(&[
        Member("usr/lib/.wh.a.so", b'0', b"", ""),
        Member("opt/.wh..wh..opq", b'0', b"", ""),
        Member("opt/d.so", b'0', ELF, ""),
    ]);
    let image = written(dir.path(), "image.tar", &saved(&[gzip(&lower), upper]));
    let found = inspected(&image, &[]);
    let files = found["files"].as_array().unwrap();
    let ends: Vec<&str> = files
        .iter()
        .map(|f| f["path"].as_str().unwrap().rsplit_once('!').unwrap().1)
        .collect();
    assert_eq!(ends, ["/opt/d.so", "/usr/lib/b.so"]);
    let layers = &found["containers"][0]["image"]["layers"];
    assert_eq!(
        (&layers[0]["packing"], &layers[1]["packing"]),
        (&"gzip".into(), &serde_json::Value::Null)
    );
    // Packed as a whole, it is the same.
    let whole = gzip(&fs::read(&image).unwrap());
    let packed = written(dir.path(), "image.tar.gz", &whole);
    let again = inspected(&packed, &[]);
    assert_eq!(again["files"].as_array().unwrap().len(), 2);
    // A blob that is a link.
    let folder = dir.path().join("layout");
    fs::create_dir_all(folder.join("blobs/sha256")).unwrap();
    written(&folder, "oci-layout", b"{}");
    let digest = "a".repeat(64);
    written(
        &folder,
        "index.json",
        format!("{{\"manifests\":[{{\"digest\":\"sha256:{digest}\",\"size\":2}}]}}").as_bytes(),
    );
    std::os::unix::fs::symlink("/etc/passwd", folder.join("blobs/sha256").join(&digest)).unwrap();
    refused(&folder, "is not in it");
}

#[test]
fn a_layer_is_what_its_digest_says() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let layer = archive(&[Member("usr/lib/x.so", b'0', ELF, "")]);
    let packed = gzip(&layer);
    let right = written(
        dir,
        "right.tar",
        &oci(&[(digest(&layer), &layer), (digest(&packed), &packed)]),
    );
    let checked = |words: &[&str]| {
        let found = inspected(&right, words);
        let layers = found["containers"][0]["image"]["layers"]
            .as_array()
            .unwrap()
            .clone();
        layers
            .iter()
            .map(|layer| layer["checked"].clone())
            .collect::<Vec<_>>()
    };
    // What is not packed is not read for its digest alone.
    assert_eq!(checked(&[]), [false, true]);
    assert_eq!(checked(&["--deep"]), [true, true]);
    let other = digest(b"something else");
    for (name, bytes) in [("packed.tar", &packed), ("plain.tar", &layer)] {
        let wrong = oci(&[(digest(&layer), &layer), (other.clone(), bytes)]);
        refused(&written(dir, name, &wrong), "layer 2 of 2");
        refused(&dir.join(name), "has another digest");
    }
    // A layer twice is one layer; an absent one is named.
    let twice = oci(&[(digest(&packed), &packed), (digest(&packed), &packed)]);
    let found = inspected(&written(dir, "twice.tar", &twice), &[]);
    assert_eq!(found["files"].as_array().unwrap().len(), 1);
    let mut absent = oci(&[(digest(&packed), &packed)]);
    absent.truncate(absent.len() - 1024 - 512 - packed.len().next_multiple_of(512));
    absent.resize(absent.len() + 1024, 0);
    refused(&written(dir, "absent.tar", &absent), "is not in it");
}

#[test]
fn a_layer_that_may_be_missing_is_no_error_and_accuses_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let packed = gzip(&archive(&[Member("usr/lib/x.so", b'0', ELF, "")]));
    let gone = digest(b"what is only to be had elsewhere");
    let described = |kind: &str, more: &str| {
        format!(r#",{{"mediaType":"application/vnd.{kind}","digest":"{gone}","size":7{more}}}"#)
    };
    let layers = [(digest(&packed), packed.as_slice())];
    let needed = |image: &Path| {
        let found = inspected(image, &[]);
        let files = found["files"].as_array().unwrap();
        assert_eq!(files.len(), 1, "{found}");
        let said = found["problems"].to_string();
        (files[0]["needed"].to_string(), said)
    };
    for (name, other) in [
        (
            "foreign.tar",
            described("docker.image.rootfs.foreign.diff.tar.gzip", ""),
        ),
        (
            "urls.tar",
            described(
                "oci.image.layer.v1.tar+gzip",
                r#","urls":["https://example.com/x"]"#,
            ),
        ),
    ] {
        let (needed, said) = needed(&written(dir.path(), name, &oci_and(&layers, &other)));
        assert!(said.contains("its files are missing"), "{said}");
        assert!(!needed.contains("not found"), "{needed}");
    }
    // With all its layers it is known what is not there.
    let (needed, said) = needed(&written(dir.path(), "whole.tar", &oci(&layers)));
    assert_eq!(said, "[]");
    assert!(needed.contains("not found"), "{needed}");
    let plain = described("oci.image.layer.v1.tar+gzip", "");
    let plain = written(dir.path(), "plain.tar", &oci_and(&layers, &plain));
    refused(&plain, "is not in it");
}

#[test]
fn a_large_library_reads_packed_as_it_does_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let mut large = ELF.to_vec();
    // Of a size that is gone through once, with something behind its headers.
    large.resize(13 << 20, 0);
    large.extend_from_slice(b"NCCL version 2.21.5+cuda12.4\0");
    let layer = archive(&[
        Member("usr/lib/libnccl.so.2", b'0', &large, ""),
        Member("usr/lib/x.so", b'0', ELF, ""),
    ]);
    let read = |name: &str, bytes: &[u8]| {
        let image = written(dir.path(), name, bytes);
        let found = inspected(&image, &["--all"]);
        let shown = image.to_str().unwrap();
        found["files"].to_string().replace(shown, "image")
    };
    let plain = read("plain.tar", &saved(std::slice::from_ref(&layer)));
    assert!(plain.contains("libnccl.so.2"), "{plain}");
    assert_eq!(read("gzip.tar", &saved(&[gzip(&layer)])), plain);
    assert_eq!(read("whole.tar.gz", &gzip(&saved(&[layer]))), plain);
}

#[test]
fn bombs_and_holes_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let etc = header("etc/", b'5', 0, "");
    let large = [etc.clone(), header("usr/lib/large.so", b'0', 7 << 30, "")].concat();
    // Some 64 KB that unpack to 8 GB.
    let bomb = zstd(&large, 65_000);
    refused(&written(dir, "bomb.tar.zst", &bomb), "times its size");
    // A name of 1 GB, and records of 1 GB.
    for (name, kind) in [("name.tar", b'L'), ("records.tar", b'x')] {
        let long = [etc.clone(), header("x", kind, 1 << 30, "")].concat();
        refused(&written(dir, name, &zstd(&long, 20)), "of 1073741824 bytes");
    }
    // A window of 2 GB.
    let mut window = zstd(&large, 1);
    window[5] = 0xa8;
    refused(&written(dir, "window.tar.zst", &window), "");
    // A hole of 8 TB: what is no library is left alone, and one that is cannot be read.
    let mut hole = header("usr/lib/hole.so", b'S', 512, "");
    hole[124..136].copy_from_slice(b"00000001000\0");
    hole[483..495].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0]);
    hole[148..156].fill(b' ');
    let sum: u32 = hole.iter().map(|byte| u32::from(*byte)).sum();
    hole[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let holes = [etc.clone(), hole, vec![0; 512 + 1024]].concat();
    let found = inspected(&written(dir, "holes.tar", &holes), &[]);
    assert_eq!(found["files"].as_array().unwrap().len(), 0);
    // Many members of the same few names, each hiding what was there.
    let names: Vec<String> = (0..1000).map(|n| format!("d/{}", n % 700)).collect();
    let mut members: Vec<Member<'_>> = names.iter().map(|n| Member(n, b'0', b"", "")).collect();
    members.push(Member("d/.wh..wh..opq", b'0', b"", ""));
    let mut many = archive(&members);
    many.truncate(many.len() - 1024);
    let many = [etc, many.repeat(40), vec![0; 1024]].concat();
    let found = inspected(&written(dir, "many.tar", &many), &[]);
    assert_eq!(found["containers"][0]["image"]["files"], 700);
    assert_eq!(
        found["containers"][0]["image"]["layers"][0]["members"],
        40_041
    );
}

/// crane, kaniko and ko write the configuration first, under its whole digest.
#[test]
fn an_archive_of_crane_is_an_image() {
    let dir = tempfile::tempdir().unwrap();
    let layer = gzip(&archive(&[Member("opt/a.so", b'0', ELF, "")]));
    let config = b"{\"architecture\":\"amd64\",\"os\":\"linux\",\"config\":{}}";
    let name = digest(config);
    let manifest = format!(
        "[{{\"Config\":\"{name}\",\"RepoTags\":[\"app:1\"],\"Layers\":[\"layer.tar.gz\"]}}]"
    );
    let members = |config: &[u8]| {
        archive(&[
            Member(&name, b'0', config, ""),
            Member("layer.tar.gz", b'0', &layer, ""),
            Member("manifest.json", b'0', manifest.as_bytes(), ""),
        ])
    };
    let image = written(dir.path(), "crane.tar", &members(config));
    let found = inspected(&image, &[]);
    assert_eq!(found["files"].as_array().unwrap().len(), 1, "{found}");
    let other = b"{\"architecture\":\"arm64\",\"os\":\"linux\",\"config\":{}}";
    let image = written(dir.path(), "wrong.tar", &members(other));
    refused(&image, "another digest");
}

#[test]
fn what_is_odd_but_sound_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // A name that is no UTF-8; a hard link to a file of a lower layer; a file in place of a folder, and the other way round.
    let mut odd = header("usr/lib/x.so", b'0', ELF.len() as u64, "");
    odd[8] = 0xff;
    odd[148..156].fill(b' ');
    let sum: u32 = odd.iter().map(|byte| u32::from(*byte)).sum();
    odd[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let mut lower = odd;
    lower.extend_from_slice(ELF);
    lower.resize(lower.len().next_multiple_of(512), 0);
    lower.extend(archive(&[
        Member("opt/a.so", b'0', ELF, ""),
        Member("opt/folder/b.so", b'0', ELF, ""),
        Member("opt/file", b'0', b"x", ""),
    ]));
    let upper = archive(&[
        Member("opt/hard.so", b'1', b"", "opt/a.so"),
        Member("opt/.wh.a.so", b'0', b"", ""),
        Member("opt/folder", b'0', b"x", ""),
        Member("opt/file/c.so", b'0', ELF, ""),
    ]);
    let image = written(dir, "odd.tar", &saved(&[zstd(&lower, 0), upper]));
    let found = inspected(&image, &[]);
    let files = found["files"].as_array().unwrap();
    let ends: Vec<&str> = files
        .iter()
        .map(|f| f["path"].as_str().unwrap().rsplit_once('!').unwrap().1)
        .collect();
    assert_eq!(
        ends,
        ["/opt/file/c.so", "/opt/hard.so", "/usr/lib/\u{fffd}.so"]
    );
}
