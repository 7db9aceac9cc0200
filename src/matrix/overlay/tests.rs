//! Rows that are taken, rows that are refused, and what is said of them.

use super::*;
use crate::version::Version;

const HEAD: &str = "schema = 1\nas_of = \"2027-02-01\"\n";
/// A branch, a toolkit and a PTX ISA that came after the bundled tables.
const NEWER: &str = r#"
[[driver_branch]]
branch = 640
level = 13060
level_by = "pairing"
kind = "new-feature"
oldest_arch = "Turing"
newest_arch = ["Rubin"]
source = "release notes of CUDA 13.6"
confidence = "verified"

[[toolkit]]
cuda = "13.6.0"
label = "13.6 GA"
branch = 640
driver_bundled = false
level = 13060
source = "release notes of CUDA 13.6"
confidence = "verified"
"#;

fn file(name: &str, rows: &str) -> OverlayFile {
    OverlayFile {
        name: name.to_owned(),
        path: format!("~/rows/{name}"),
        text: format!("{HEAD}{rows}"),
    }
}

fn v(text: &str) -> Version {
    Version::parse(text).unwrap()
}

#[test]
fn rows_are_added_and_told_apart() {
    let overlay = [
        file("cuda-driver.toml", NEWER),
        file(
            "gpus.toml",
            "[[chip]]\nchip = \"GB202\"\ngeneration = \"Blackwell\"\ncapability = \"12.0\"\nsource = \"pci.ids 2027\"\nconfidence = \"verified\"\nids = [[\"2b8e\", \"GeForce RTX 5090 Ti\"]]\n",
        ),
        file(
            "frameworks.toml",
            "[[vllm_release]]\nversion = \"0.34.0\"\ntorch = \"2.14.0\"\ncuda = \"13.0\"\nrequires_python = \">=3.11\"\nsource = \"METADATA of the wheel\"\nconfidence = \"verified\"\n",
        ),
    ];
    let matrix = Matrix::with_overlay(&overlay).unwrap();
    assert_eq!(matrix.vllm_release(&v("0.34")).unwrap().torch, v("2.14.0"));
    assert_eq!(
        matrix.cuda_level_of(&v("640.10")),
        Some((
            13060,
            "release notes of CUDA 13.6 (overlay cuda-driver.toml)".to_owned()
        ))
    );
    assert_eq!(matrix.newest_toolkit().unwrap().cuda, v("13.6.0"));
    assert_eq!(matrix.gpu(0x2b8e).unwrap().capability, Some((12, 0)));
    assert_eq!(matrix.gpu(0x2204).unwrap().chip, "GA102");
    assert!(matrix.gpu(0x2209).is_none());
    let rows: Vec<_> = matrix.overlays().iter().map(|o| o.rows).collect();
    assert_eq!(rows, [2, 1, 1]);
    assert_eq!(matrix.as_of(), Matrix::bundled().as_of());
    assert!(Matrix::with_overlay(&[]).unwrap().overlays().is_empty());
}

#[test]
fn the_hash_is_that_of_the_bytes() {
    // FIPS 180-4, the example of one block.
    assert_eq!(
        sha256(b"abc"),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn a_known_key_is_replaced_where_that_is_sane() {
    let branch = |level: u32, by: &str, confidence: &str, end: &str| {
        format!(
            "[[driver_branch]]\nbranch = 550\nlevel = {level}\nlevel_by = \"{by}\"\nkind = \"production\"\n{end}oldest_arch = \"Maxwell\"\nnewest_arch = [\"Ada Lovelace\", \"Hopper\"]\nkernel_modules = \"open-optional\"\nsource = \"the vendor's page\"\nconfidence = \"{confidence}\"\n"
        )
    };
    let of = |rows: &str| Matrix::with_overlay(&[file("cuda-driver.toml", rows)]);
    let end = "end_of_life = \"2025-07\"\n";
    let matrix = of(&branch(12040, "measured", "verified", end)).unwrap();
    assert_eq!(
        matrix.branch(&v("550.54")).unwrap().end_of_life.as_deref(),
        Some("2025-07")
    );
    for (rows, reason) in [
        (branch(12040, "measured", "secondary", end), "is secondary"),
        (branch(12050, "pairing", "verified", end), "was measured"),
    ] {
        let error = of(&rows).unwrap_err();
        assert!(error.reason.contains(reason), "{error:?}");
    }
}

/// Each line: file, what is wrong in it, and what has to be said.
#[test]
fn what_cannot_be_used_is_named() {
    let toolkit = |from: &str, to: &str| {
        assert!(NEWER.contains(from), "{from}");
        NEWER.replacen(from, to, 1)
    };
    let chip = "[[chip]]\nchip = \"GB202\"\ngeneration = \"Blackwell\"\ncapability = \"12.0\"\nsource = \"a page of mine\"\nconfidence = \"verified\"\nids = [[\"2b85\", \"Tesla X\"]]\n";
    for (name, rows, needles) in [
        ("drivers.toml", String::new(), &["no file of the matrix", "gpus.toml"][..]),
        ("cuda-driver.toml", toolkit("level = 13060\nlevel_by", "levl = 13060\nlevel_by"), &["line 6", "[[driver_branch]]", "`levl`"]),
        ("cuda-driver.toml", toolkit("branch = 640\n", "branch = \"640\"\n"), &["line 5", "`branch`", "expected u32"]),
        ("cuda-driver.toml", toolkit("source = \"release notes of CUDA 13.6\"\n", ""), &["line 4", "`source`"]),
        ("cuda-driver.toml", toolkit("\"13.6.0\"", "\"new\""), &["line 15", "`cuda`", "`new` is no version"]),
        ("cuda-driver.toml", toolkit("[[toolkit]]", "[[toolkits]]"), &["line 14", "`toolkits`"]),
        ("cuda-driver.toml", toolkit("kind = \"new-feature\"", "kind = \"new-feature\"\nnote = \"buy a GPU\""), &["line 9", "`note`", "no texts"]),
        ("cuda-driver.toml", toolkit("label = \"13.6 GA\"", "label = \"13.6\\u001b[2J\""), &["`label`", "control"]),
        ("cuda-driver.toml", toolkit("cuda = \"13.6.0\"", "cuda = "), &["line 15"]),
        ("cuda-driver.toml", format!("{NEWER}{NEWER}"), &["stands twice"]),
        ("cuda-driver.toml", "[[note]]\ntopic = \"a\"\nfact = \"b\"\nsource = \"ccccccc\"\nconfidence = \"verified\"\n".to_owned(), &["line 3", "[[note]]", "closed"]),
        ("cuda-driver.toml", "schemata = 2\n".to_owned(), &["line 3", "`schemata`"]),
        ("distros.toml", "[[distro_package]]\nos = \"debian\"\npurpose = \"driver\"\npackages = [\"x\"]\ncommands = [[\"rm\"]]\nsource = \"ccccccc\"\nconfidence = \"verified\"\n".to_owned(), &["line 3", "[[distro_package]]", "no commands"]),
        ("frameworks.toml", "[[torch_install]]\ninstaller = \"pip\"\ncommand = [\"rm\"]\nsource = \"ccccccc\"\nconfidence = \"verified\"\n".to_owned(), &["line 3", "[[torch_install]]", "no commands"]),
        ("libraries.toml", "[[nccl]]\nversion = \"2.33.1\"\ncuda = \"13.5\"\narchs = [\"gfx90a\"]\nsource = \"ccccccc\"\nconfidence = \"verified\"\n".to_owned(), &["line 6", "[[nccl]]", "no architecture"]),
        ("gpus.toml", chip.to_owned(), &["line 3", "GB202", "2b85", "known already"]),
        ("gpus.toml", chip.replace("12.0", "9.0"), &["capability"]),
        ("gpus.toml", chip.replace("2b85", "2204"), &["does not hold", "2204 is an id of"]),
        // The whole: a level that the toolkit contradicts, an order that does not hold.
        ("cuda-driver.toml", toolkit("level = 13060\nlevel_by", "level = 13070\nlevel_by"), &["does not hold", "its branch has another level"]),
        ("cuda-driver.toml", toolkit("branch = 640\n", "branch = 600\n"), &["does not hold", "line 4", "no toolkit is paired"]),
    ] {
        let error = Matrix::with_overlay(&[file(name, &rows)]).unwrap_err();
        assert_eq!(error.name, name);
        let all = needles.iter().all(|needle| error.reason.contains(needle));
        assert!(all, "{needles:?}: {error:?}");
        assert_eq!(error.reason.lines().count(), 1, "{error:?}");
    }
    let mut bare = file("cuda-driver.toml", "");
    for (text, needle) in [
        ("", "schema"),
        ("schema = 2", "schema 2"),
        ("schema = 1\nas_of = \"soon\"", "as_of"),
    ] {
        bare.text = text.to_owned();
        let error = Matrix::with_overlay(&[bare.clone()]).unwrap_err();
        assert!(error.reason.contains(needle), "{error:?}");
    }
}
