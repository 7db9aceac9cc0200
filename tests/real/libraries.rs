//! Who gets which copy of a library, and whether it fits: what `check` says of an environment, held against what the real
//! loader does with the same files. A real nvJitLink, and small libraries that this test builds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{lab, parts, wheels};

/// Opens a library, has it open another one and read a number from it; says the number, or the loader's words.
const OPENER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    if (argc < 4) { puts("loaded"); return 0; }
    int (*number_of)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(library, "number_of");
    printf("%d\n", number_of(argv[2], argv[3]));
    return 0;
}
"#;

/// A library that opens others by name, as `libcudnn.so` does.
const SHIM: &str = r"
#include <dlfcn.h>
int number_of(const char *library, const char *name) {
    void *part = dlopen(library, RTLD_NOW);
    int *number = part ? (int *)dlsym(part, name) : 0;
    return number ? *number : -1;
}
";

/// An environment that is put together by gcc.
struct Lab {
    place: tempfile::TempDir,
    site: PathBuf,
    opener: PathBuf,
}

impl Lab {
    /// `None`, and said, where there is no compiler.
    fn new() -> Option<Self> {
        let place = lab::place();
        let prefix = place.path().join("venv");
        let site = prefix.join("lib/python3.11/site-packages");
        fs::create_dir_all(&site).unwrap();
        fs::write(prefix.join("pyvenv.cfg"), "home = /usr/bin\n").unwrap();
        let lab = Self {
            opener: place.path().join("opener"),
            place,
            site,
        };
        let built = lab.gcc(&lab.opener, OPENER, &[]);
        if !built {
            parts::not_run("no C compiler");
        }
        built.then_some(lab)
    }

    fn gcc(&self, file: &Path, source: &str, words: &[&str]) -> bool {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let text = self.place.path().join("source.c");
        fs::write(&text, source).unwrap();
        Command::new("gcc")
            .args(["-w", "-o"])
            .arg(file)
            .arg(&text)
            .args(words)
            .arg("-ldl")
            .status()
            .is_ok_and(|status| status.success())
    }

    /// A shared library under its soname.
    fn library(&self, path: &str, source: &str, words: &[&str]) -> PathBuf {
        let file = self.place.path().join(path);
        let soname = format!(
            "-Wl,-soname,{}",
            file.file_name().unwrap().to_str().unwrap()
        );
        let mut all = vec!["-shared", "-fPIC", &soname];
        all.extend(words);
        assert!(self.gcc(&file, source, &all), "{path}");
        file
    }

    fn distribution(&self, name: &str, version: &str) {
        let folder = self
            .site
            .join(format!("{}-{version}.dist-info", name.replace('-', "_")));
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join("METADATA"),
            format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        )
        .unwrap();
    }

    /// What the check says of the environment: its exit code and its report.
    fn check(&self, library_path: Option<&Path>) -> (i32, Value) {
        let mut command = lab::gpudoctor(self.place.path());
        command.env("VIRTUAL_ENV", self.place.path().join("venv"));
        command.args(["check", "--static", "--format", "json"]);
        if let Some(folder) = library_path {
            command.env("LD_LIBRARY_PATH", folder);
        }
        let output = command.output().unwrap();
        let report = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), report)
    }

    /// What the loader says.
    fn loader(&self, words: &[&str], library_path: Option<&Path>) -> String {
        let mut command = Command::new(&self.opener);
        command.args(words).env_clear();
        if let Some(folder) = library_path {
            command.env("LD_LIBRARY_PATH", folder);
        }
        String::from_utf8_lossy(&command.output().unwrap().stdout)
            .trim()
            .to_owned()
    }
}

/// The finding of an id.
fn finding<'a>(report: &'a Value, id: &str) -> Option<&'a Value> {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["id"] == id)
}

/// Ids of findings about libraries that are no notes.
fn alarms(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings
        .filter(|finding| finding["severity"] != "note" && finding["layer"] == "libraries")
        .map(|finding| finding["id"].as_str().unwrap())
        .collect()
}

#[test]
fn an_older_nvjitlink_comes_first() {
    let Some(lab) = Lab::new() else { return };
    let Some(wheel) = wheels::wheel("nvidia-nvjitlink-cu12", "12.4.127", "3.11") else {
        return;
    };
    let real = wheels::member(&wheel, "nvidia/nvjitlink/lib/libnvJitLink.so.12");
    let old = lab.place.path().join("old");
    fs::create_dir(&old).unwrap();
    fs::copy(&real, old.join("libnvJitLink.so.12")).unwrap();
    fs::set_permissions(
        old.join("libnvJitLink.so.12"),
        fs::Permissions::from_mode(0o644),
    )
    .unwrap();

    // The environment's own: as the real ones are, each function once for every minor version, in a node named as the file.
    let script = lab.place.path().join("versions");
    fs::write(&script, "libnvJitLink.so.12 { global: *; };\n").unwrap();
    let functions: Vec<String> = (0..=9)
        .map(|minor| format!("int __nvJitLinkCreate_12_{minor}(void) {{ return 0; }}\n"))
        .collect();
    let functions = functions.concat();
    let script = format!("-Wl,--version-script={}", script.display());
    let site = "venv/lib/python3.11/site-packages";
    let own = lab.library(
        &format!("{site}/nvidia/nvjitlink/lib/libnvJitLink.so.12"),
        &functions,
        &[&script],
    );
    let user =
        "int __nvJitLinkCreate_12_9(void);\nint use(void) { return __nvJitLinkCreate_12_9(); }\n";
    let cusparse = lab.library(
        &format!("{site}/nvidia/cusparse/lib/libcusparse.so.12"),
        user,
        &[
            own.to_str().unwrap(),
            "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../../nvjitlink/lib",
        ],
    );
    lab.library(
        &format!("{site}/torch/lib/libtorch_cuda.so"),
        "",
        &[
            "-Wl,--no-as-needed",
            cusparse.to_str().unwrap(),
            "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/cusparse/lib,--allow-shlib-undefined",
        ],
    );
    lab.distribution("torch", "2.5.1");
    lab.distribution("nvidia-cusparse-cu12", "12.5.10.65");
    lab.distribution("nvidia-nvjitlink-cu12", "12.9.86");

    let cusparse = cusparse.to_str().unwrap();
    assert_eq!(lab.loader(&[cusparse], None), "loaded");
    let (_, report) = lab.check(None);
    assert_eq!(alarms(&report), [""; 0], "{report:#}");

    let said = lab.loader(&[cusparse], Some(&old));
    let symbol = "__nvJitLinkCreate_12_9";
    assert!(
        said.contains(&format!(
            "undefined symbol: {symbol}, version libnvJitLink.so.12"
        )),
        "{said}"
    );
    let (exit, report) = lab.check(Some(&old));
    assert_eq!(exit, 1);
    assert_eq!(report["verdict"]["finding"], "library-lacks-symbol");
    assert_eq!(report["verdict"]["layer"], "libraries");
    let title = report["verdict"]["summary"].as_str().unwrap();
    for word in [symbol, "12.4", old.to_str().unwrap()] {
        assert!(title.contains(word), "{title}");
    }

    // torch 2.6 loads its own copy first, and what is loaded already ends the search.
    fs::remove_dir_all(lab.site.join("torch-2.5.1.dist-info")).unwrap();
    lab.distribution("torch", "2.6.0");
    let (_, report) = lab.check(Some(&old));
    assert_eq!(finding(&report, "library-lacks-symbol"), None, "{report:#}");
}

#[test]
fn parts_of_cudnn_from_two_places() {
    const PARTS: [(&str, &str); 7] = [
        ("graph", "cudnn_graph_version"),
        ("ops", "cudnn_ops_infer_version"),
        ("cnn", ""),
        ("adv", "cudnn_adv_infer_version"),
        ("engines_precompiled", ""),
        ("engines_runtime_compiled", ""),
        ("heuristic", ""),
    ];
    let Some(lab) = Lab::new() else { return };
    let part = |folder: &str, (name, variable): (&str, &str), minor: u32| {
        let number = 9 << 16 | minor << 8;
        let source = if variable.is_empty() {
            String::new()
        } else {
            format!("int {variable} = {number};\n")
        };
        lab.library(&format!("{folder}/libcudnn_{name}.so.9"), &source, &[])
    };
    let home = "venv/lib/python3.11/site-packages/nvidia/cudnn/lib";
    for one in PARTS {
        part(home, one, 21);
    }
    let shim = lab.library(
        &format!("{home}/libcudnn.so.9"),
        SHIM,
        &["-Wl,--enable-new-dtags,-rpath,$ORIGIN"],
    );
    lab.library(
        "venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so",
        "",
        &[
            "-Wl,--no-as-needed",
            shim.to_str().unwrap(),
            "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/cudnn/lib",
        ],
    );
    lab.distribution("torch", "2.9.1");
    lab.distribution("nvidia-cudnn-cu12", "9.21.0.82");
    part("other", ("ops", "cudnn_ops_infer_version"), 22);
    let other = lab.place.path().join("other");
    let number = |library_path| {
        lab.loader(
            &[
                shim.to_str().unwrap(),
                "libcudnn_ops.so.9",
                "cudnn_ops_infer_version",
            ],
            library_path,
        )
    };

    assert_eq!(number(None), (9 << 16 | 21 << 8).to_string());
    let (_, report) = lab.check(None);
    assert_eq!(alarms(&report), [""; 0], "{report:#}");

    // By LD_LIBRARY_PATH, which is searched before RUNPATH.
    assert_eq!(number(Some(&other)), (9 << 16 | 22 << 8).to_string());
    let (exit, report) = lab.check(Some(&other));
    assert_eq!(exit, 1);
    assert_eq!(report["verdict"]["finding"], "library-parts-mixed");
    let title = report["verdict"]["summary"].as_str().unwrap();
    for word in ["9.21.0", "9.22.0", other.to_str().unwrap()] {
        assert!(title.contains(word), "{title}");
    }

    // A part that is not there at all.
    fs::remove_file(lab.place.path().join(home).join("libcudnn_ops.so.9")).unwrap();
    assert_eq!(number(None), "-1");
    let (exit, report) = lab.check(None);
    assert_eq!(exit, 1, "{report:#}");
    assert_eq!(report["verdict"]["finding"], "library-missing");
    part(home, ("ops", "cudnn_ops_infer_version"), 21);

    // A file that is cut off, and one that Git LFS has not fetched.
    let graph = lab.place.path().join(home).join("libcudnn_graph.so.9");
    let whole = fs::read(&graph).unwrap();
    for bytes in [
        &whole[..whole.len() / 2],
        b"version https://git-lfs.github.com/spec/v1\n",
    ] {
        fs::write(&graph, bytes).unwrap();
        // It refuses the one, and may die of the other.
        let shim = shim.to_str().unwrap();
        let said = lab.loader(&[shim, "libcudnn_graph.so.9", "cudnn_graph_version"], None);
        assert!(["-1", ""].contains(&said.as_str()), "{said}");
        let (exit, report) = lab.check(None);
        assert_eq!(exit, 1);
        assert_eq!(
            report["verdict"]["finding"], "library-damaged",
            "{report:#}"
        );
    }
    fs::write(&graph, whole).unwrap();
    let (_, report) = lab.check(None);
    assert_eq!(alarms(&report), [""; 0], "{report:#}");
}
