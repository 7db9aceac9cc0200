//! Where a needed library comes from: `inspect` against glibc's own loader, on libraries that this test builds with gcc.
//!
//! The real loader is asked by `LD_TRACE_LOADED_OBJECTS`, which lists what it would load and starts nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::parts;

struct Lab {
    folder: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn at(&self, name: &str) -> String {
        // Its real path, since the loader's answers are such.
        fs::canonicalize(self.folder.path())
            .unwrap()
            .join(name)
            .to_str()
            .unwrap()
            .to_owned()
    }

    fn gcc(&self, words: &[String]) -> bool {
        let source = self.at("empty.c");
        fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        Command::new("gcc")
            .arg(&source)
            .args(words)
            .status()
            .is_ok_and(|status| status.success())
    }

    /// A library at `path` that needs others by name; `link` are words for the linker.
    fn library(&self, path: &str, needs: &[&str], link: &[String]) -> bool {
        let file = self.at(path);
        fs::create_dir_all(Path::new(&file).parent().unwrap()).unwrap();
        let soname = Path::new(path).file_name().unwrap().to_str().unwrap();
        let mut words = vec![
            "-shared".to_owned(),
            "-fPIC".into(),
            "-nostdlib".into(),
            "-o".into(),
            file,
        ];
        words.push(format!("-Wl,-soname,{soname},--no-as-needed"));
        words.extend(needs.iter().map(|need| self.at(need)));
        words.extend(link.iter().cloned());
        self.gcc(&words)
    }

    fn program(&self, needs: &[&str], link: &[String]) -> String {
        let file = self.at("program");
        let mut words = vec![
            "-o".to_owned(),
            file.clone(),
            "-Wl,--no-as-needed,--allow-shlib-undefined".into(),
        ];
        words.extend(needs.iter().map(|need| self.at(need)));
        words.push(format!("-Wl,-rpath-link,{}", self.at("build")));
        words.extend(link.iter().cloned());
        assert!(self.gcc(&words));
        file
    }
}

/// What the loader would load for each name.
fn traced(program: &str, variables: &[(&str, String)]) -> BTreeMap<String, String> {
    let output = Command::new(program)
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .env_remove("LD_LIBRARY_PATH")
        .envs(
            variables
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        )
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter_map(|line| {
            let (name, path) = line.trim().split_once(" => ")?;
            Some((name.to_owned(), path.split(" (0x").next()?.to_owned()))
        })
        .collect()
}

fn ours(program: &str, variables: &[(&str, String)]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_gpudoctor"))
        .args([
            "inspect",
            "--format",
            "json",
            "--no-redact",
            "--all",
            program,
        ])
        .env_remove("LD_LIBRARY_PATH")
        .envs(
            variables
                .iter()
                .filter(|(name, _)| *name != "LD_PRELOAD")
                .map(|(name, value)| (*name, value.as_str())),
        )
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn check(lab: &Lab, name: &str, program: &str, variables: &[(&str, String)]) {
    let real = traced(program, variables);
    let found = ours(program, variables);
    let file = &found["files"][0];
    for needed in file["needed"].as_array().unwrap() {
        let soname = needed["soname"].as_str().unwrap();
        let real = real.get(soname).map_or("not found", String::as_str);
        let is = needed["resolved"].as_str().unwrap_or("not found");
        // The loader writes a path as it was composed, with `/../` in it.
        let plain = |path: &str| {
            fs::canonicalize(path).map_or(path.to_owned(), |p| p.to_str().unwrap().to_owned())
        };
        assert_eq!(
            plain(is),
            plain(real),
            "{name}: {soname} [{}] in {}",
            needed["by"],
            lab.at("")
        );
    }
    // What is needed further down and not found is the same.
    let missing: Vec<&str> = file["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m["soname"].as_str().unwrap())
        .collect();
    let direct: Vec<&str> = file["needed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["soname"].as_str().unwrap())
        .collect();
    let real_missing: Vec<&str> = real
        .iter()
        .filter(|(soname, path)| *path == "not found" && !direct.contains(&soname.as_str()))
        .map(|(soname, _)| soname.as_str())
        .collect();
    assert_eq!(missing, real_missing, "{name}");
}

#[test]
fn the_search_is_the_loaders() {
    let lab = Lab::new();
    if !lab.gcc(&["-o".to_owned(), lab.at("program")]) {
        parts::not_run("gcc cannot build a program here");
        return;
    }
    for folder in [
        "build",
        "a",
        "b",
        "c/glibc-hwcaps/x86-64-v2",
        "d/tls/x86_64",
        "c",
        "d",
    ] {
        assert!(lab.library(&format!("{folder}/libone.so"), &[], &[]));
    }
    let rpath = |dirs: &str| vec![format!("-Wl,--disable-new-dtags,-rpath,{dirs}")];
    let runpath = |dirs: &str| vec![format!("-Wl,--enable-new-dtags,-rpath,{dirs}")];
    // A library that needs libone.so and has no search path, an RPATH, a RUNPATH.
    assert!(lab.library("build/libtwo.so", &["build/libone.so"], &[]));
    assert!(lab.library("a/libtwo.so", &["build/libone.so"], &[]));
    assert!(lab.library(
        "b/libtwo.so",
        &["build/libone.so"],
        &runpath("$ORIGIN/../b")
    ));
    assert!(lab.library(
        "c/libtwo.so",
        &["build/libone.so"],
        &rpath("${ORIGIN}/../d")
    ));
    // Files that the loader passes over, and one at which it stops.
    fs::create_dir_all(lab.at("e")).unwrap();
    let mut other = fs::read(lab.at("a/libone.so")).unwrap();
    other[18] = 183;
    fs::write(lab.at("e/libone.so"), other).unwrap();

    let path = |dirs: &[&str]| {
        dirs.iter()
            .map(|dir| lab.at(dir))
            .collect::<Vec<_>>()
            .join(":")
    };
    let variable = |dirs: &[&str]| vec![("LD_LIBRARY_PATH", path(dirs))];
    let (one, two) = (&["build/libone.so"][..], &["build/libtwo.so"][..]);
    for (name, needs, link, variables) in [
        ("nothing", one, vec![], vec![]),
        ("the variable", one, vec![], variable(&["a"])),
        ("its order", one, vec![], variable(&["none", "b", "a"])),
        (
            "RPATH before the variable",
            one,
            rpath("$ORIGIN/a"),
            variable(&["b"]),
        ),
        (
            "the variable before RUNPATH",
            one,
            runpath("$ORIGIN/a"),
            variable(&["b"]),
        ),
        ("RUNPATH", one, runpath("$ORIGIN/none:${ORIGIN}/a"), vec![]),
        (
            "RPATH reaches further down",
            two,
            rpath("$ORIGIN/a"),
            vec![],
        ),
        ("RUNPATH does not", two, runpath("$ORIGIN/a"), vec![]),
        ("a library's own RUNPATH", two, runpath("$ORIGIN/b"), vec![]),
        (
            "it shuts out the program's RPATH",
            two,
            rpath("$ORIGIN/b:$ORIGIN/a"),
            vec![],
        ),
        (
            "a library's own RPATH comes first",
            two,
            rpath("$ORIGIN/c"),
            variable(&["a"]),
        ),
        (
            "what is loaded already",
            &["build/libone.so", "build/libtwo.so"][..],
            rpath("$ORIGIN/c:$ORIGIN/d"),
            vec![],
        ),
        ("glibc-hwcaps", one, vec![], variable(&["c"])),
        ("folders of older glibc", one, vec![], variable(&["d"])),
        (
            "another machine's is passed over",
            one,
            vec![],
            variable(&["e", "a"]),
        ),
        (
            "default folders shut",
            one,
            vec!["-Wl,-z,nodefaultlib".to_owned()],
            variable(&["b"]),
        ),
    ] {
        let program = lab.program(needs, &link);
        check(&lab, name, &program, &variables);
    }
}
