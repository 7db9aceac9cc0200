//! Programs and scripts that were named (`--app`) and cannot be started here, or lack a library: each made by the compiler
//! or as a file, with the finding and the layer that are right written beside it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{lab, parts};

/// Compiles a program or library; `None`, and said, where there is no compiler.
fn compiled(place: &Path, name: &str, source: &str, options: &[&str]) -> Option<PathBuf> {
    let (from, to) = (place.join(format!("{name}.c")), place.join(name));
    fs::write(&from, source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.arg(&from)
        .args(options)
        .arg("-o")
        .arg(&to)
        .current_dir(place);
    let Ok(status) = gcc.status() else {
        parts::not_run("there is no gcc");
        return None;
    };
    assert!(status.success(), "{name}");
    Some(to)
}

/// The same file with another machine in its header.
fn for_machine(file: &Path, number: u8) -> PathBuf {
    let mut bytes = fs::read(file).unwrap();
    bytes[18] = number;
    let to = file.with_extension(format!("machine-{number}"));
    fs::write(&to, bytes).unwrap();
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
    to
}

fn script(place: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = place.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// The id and the layer of the worst finding about what can be started; its title.
fn told(place: &Path, app: &Path) -> (String, String, String) {
    let report = lab::check(
        &mut lab::gpudoctor(place),
        &["--app", app.to_str().unwrap(), "--static"],
    );
    let told = report.findings().iter().find(|f| {
        ["error", "warning"].contains(&lab::text(&f["severity"])) && f["caused_by"].is_null()
    });
    told.map_or_else(Default::default, |f| {
        let text = |key: &str| lab::text(&f[key]).to_owned();
        (text("id"), text("layer"), text("title"))
    })
}

const MAIN: &str = "int main(void) { return 0; }\n";

#[test]
fn what_cannot_be_started_is_named_with_its_layer() {
    let folder = lab::place();
    let place = folder.path();
    let Some(program) = compiled(place, "program", MAIN, &[]) else {
        return;
    };
    let library = compiled(
        place,
        "plugin.so",
        "int f(void) { return 0; }\n",
        &["-shared"],
    )
    .unwrap();
    let with_loader = |name: &str, loader: &str| {
        let option = format!("-Wl,--dynamic-linker={loader}");
        compiled(place, name, MAIN, &[&option]).unwrap()
    };
    // aarch64, or x86_64 where the tests run on another machine.
    let other = if cfg!(target_arch = "x86_64") {
        183
    } else {
        62
    };
    let architecture = ("program-other-architecture", "application");
    let interpreter = ("interpreter-unusable", "application");
    let none = ("", "");
    let script = |name: &str, text: &str, mode| script(place, name, text, mode);
    fs::create_dir(place.join("bin")).unwrap();
    std::os::unix::fs::symlink("/nowhere/python3.9", place.join("python")).unwrap();
    let broken = format!("#!{}\n", place.join("python").display());
    for (path, (id, layer)) in [
        (program.clone(), none),
        (library.clone(), none),
        (for_machine(&program, other), architecture),
        (for_machine(&library, other), architecture),
        (
            with_loader("without-loader", "/lib/ld-of-another-libc.so.9"),
            ("program-loader-missing", "system"),
        ),
        (
            with_loader("of-a-build-tree", "/opt/nowhere/lib/ld.so"),
            ("program-loader-missing", "application"),
        ),
        (script("sh", "#!/bin/sh\ntrue\n", 0o755), none),
        (script("by-env", "#!/usr/bin/env sh\ntrue\n", 0o755), none),
        (script("bare", "true\n", 0o755), none),
        (
            script("moved", "#!/nowhere/env/bin/python\nimport torch\n", 0o755),
            interpreter,
        ),
        (script("broken", &broken, 0o755), interpreter),
        (
            script("removed", "#!/usr/bin/no-such-python2\n", 0o755),
            ("interpreter-unusable", "system"),
        ),
        (
            script("not-on-path", "#!/usr/bin/env no-such-python\n", 0o755),
            ("interpreter-unusable", "system"),
        ),
        (
            script("windows", "#!/usr/bin/env sh\r\ntrue\r\n", 0o755),
            interpreter,
        ),
        (
            script("two-words", "#!/usr/bin/env sh -e\ntrue\n", 0o755),
            interpreter,
        ),
        (
            script("split", "#!/usr/bin/env -S sh -e\ntrue\n", 0o755),
            none,
        ),
        // Handed to an interpreter by whoever runs it.
        (
            script("train.txt", "#!/usr/bin/env no-such-python\n", 0o644),
            none,
        ),
    ] {
        let (told_id, told_layer, title) = told(place, &path);
        let shown = path.display();
        assert_eq!(
            (told_id.as_str(), told_layer.as_str()),
            (id, layer),
            "{shown}: {title}"
        );
        if !id.is_empty() {
            assert!(title.contains(path.to_str().unwrap()), "{shown}: {title}");
        }
    }
}

#[test]
fn a_missing_library_is_blamed_on_the_layer_that_has_it() {
    let folder = lab::place();
    let place = folder.path();
    for (soname, layer) in [
        ("libprivate.so.1", "application"),
        ("libgfortran.so.99", "system"),
        ("libcudart.so.99", "runtime"),
        ("libcublas.so.99", "libraries"),
    ] {
        let option = format!("-Wl,-soname,{soname}");
        let library = compiled(
            place,
            soname,
            "int f(void) { return 0; }\n",
            &["-shared", &option],
        );
        if library.is_none() {
            return;
        }
        let name = format!("needs-{soname}");
        let source = "int f(void);\nint main(void) { return f(); }\n";
        let there = format!("-Wl,-rpath,{}", place.display());
        let program = compiled(place, &name, source, &[&format!("./{soname}"), &there]).unwrap();
        assert_eq!(told(place, &program).0, "", "{soname}");
        fs::remove_file(place.join(soname)).unwrap();
        let (id, told_layer, title) = told(place, &program);
        assert_eq!(
            (id.as_str(), told_layer.as_str()),
            ("library-not-found", layer),
            "{title}"
        );
    }
}
