//! A program that was named (`--app`) and a process that runs (`--pid`), with NVIDIA's real runtimes and drivers.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{lab, parts};

/// A program that asks the runtime for its version.
const SOURCE: &str = "extern int cudaRuntimeGetVersion(int *);\n\
    int main(void) { int version; return cudaRuntimeGetVersion(&version); }\n";

/// Compiles it against the shared or the static runtime of an environment.
fn program(name: &str, prefix: &Path, is_static: bool, place: &Path) -> PathBuf {
    let shared = lab::libcudart(prefix);
    let folder = shared.parent().unwrap();
    let (source, program) = (place.join("program.c"), place.join(name));
    std::fs::write(&source, SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.arg(&source).arg("-o").arg(&program);
    if is_static {
        gcc.arg(folder.join("libcudart_static.a"));
        gcc.args(["-ldl", "-lpthread", "-lrt"]);
    } else {
        gcc.arg(&shared);
        gcc.arg(format!("-Wl,-rpath,{}", folder.display()));
    }
    assert!(gcc.status().unwrap().success());
    program
}

#[test]
fn a_program_is_judged_by_the_runtime_that_it_brings() {
    let Some(parts) = parts::all() else { return };
    if lab::has_driver() {
        return parts::left_out("this machine has a driver of its own");
    }
    let place = lab::place();
    let libraries = lab::driver_folder(&parts.drivers[1], place.path());
    for (version, too_old) in [("12.9.79", false), ("13.0.96", true)] {
        let runtime = parts.runtimes.iter().find(|(w, _)| w.version == version);
        let prefix = lab::environment(runtime.unwrap(), place.path());
        for is_static in [false, true] {
            let name = format!("program-{version}-{is_static}");
            let program = program(&name, &prefix, is_static, place.path());
            let mut run = lab::gpudoctor(place.path());
            run.env("LD_LIBRARY_PATH", &libraries);
            let report = lab::check(&mut run, &["--app", program.to_str().unwrap()]);
            if too_old {
                assert_eq!(report.errors(), ["driver-too-old"], "{name}");
                let title = lab::text(&report.finding("driver-too-old")["title"]);
                assert!(
                    title.contains(&name) && title.contains("CUDA 13.0"),
                    "{title}"
                );
            } else {
                assert_eq!(report.errors(), [""; 0], "{name}: {:#?}", report.findings());
            }
        }
    }
}

/// A Python that has loaded these libraries and waits.
struct Loaded(Child);

/// Loads what it is given, says so, and waits.
const LOAD: &str = "import ctypes, sys\n\
    for path in sys.argv[1:]: ctypes.CDLL(path)\n\
    print('loaded', flush=True)\n\
    sys.stdin.read()\n";

impl Loaded {
    fn new(libraries: &[PathBuf], library_path: &Path) -> Option<Self> {
        let mut python = Command::new("python3");
        python.args(["-c", LOAD]).args(libraries);
        Self::started(python.env("LD_LIBRARY_PATH", library_path))
    }

    fn started(command: &mut Command) -> Option<Self> {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn();
        let Ok(mut child) = child else {
            parts::not_run("there is no python3");
            return None;
        };
        let mut line = String::new();
        let output = child.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "loaded\n");
        Some(Self(child))
    }

    fn check(&self, place: &Path) -> lab::Report {
        let pid = self.0.id().to_string();
        lab::check(&mut lab::gpudoctor(place), &["--pid", &pid])
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_is_judged_by_what_it_has_loaded() {
    let Some(parts) = parts::all() else { return };
    if lab::has_driver() {
        return parts::left_out("this machine has a driver of its own");
    }
    let place = lab::place();
    // Of the process, not of the caller: only there this driver is on the loader's path.
    let old = lab::driver_folder(&parts.drivers[0], place.path());
    let new = lab::driver_folder(&parts.drivers[2], place.path());
    let runtime = |version: &str| {
        let runtime = parts.runtimes.iter().find(|(w, _)| w.version == version);
        lab::libcudart(&lab::environment(runtime.unwrap(), place.path()))
    };
    let (twelve, thirteen) = (runtime("12.4.127"), runtime("13.0.96"));

    let Some(process) = Loaded::new(std::slice::from_ref(&twelve), &new) else {
        return;
    };
    let report = process.check(place.path());
    assert_eq!(report.errors(), [""; 0], "{:#?}", report.findings());
    let replaced = "process-library-replaced".to_owned();
    assert!(!report.alarms().contains(&replaced));
    // Replaced as a package manager does it: another file takes the name.
    let other = place.path().join("other");
    assert!(
        Command::new("cp")
            .args([&twelve, &other])
            .status()
            .unwrap()
            .success()
    );
    std::fs::rename(&other, &twelve).unwrap();
    let report = process.check(place.path());
    assert!(report.alarms().contains(&replaced), "{:?}", report.alarms());
    drop(process);

    let Some(process) = Loaded::new(std::slice::from_ref(&twelve), &old) else {
        return;
    };
    let report = process.check(place.path());
    assert_eq!(report.errors(), ["driver-too-old"]);
    drop(process);

    let Some(process) = Loaded::new(&[twelve, thirteen], &new) else {
        return;
    };
    let report = process.check(place.path());
    assert!(
        lab::text(&report.finding("process-two-runtimes")["title"]).contains("CUDA 12 and CUDA 13")
    );
    // 13 does not run on 550, and 12 does: some ways are broken.
    assert_eq!(report.errors(), [""; 0]);
    assert!(report.alarms().contains(&"driver-too-old".to_owned()));
}

/// The copies of libraries that a report counts, by file name.
fn copies(report: &lab::Report) -> Vec<String> {
    let copies = &report.json["facts"]["libraries"]["copies"]["present"]["value"];
    let copies = copies.as_array().unwrap();
    let name = |copy: &serde_json::Value| {
        lab::text(&copy["path"])
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned()
    };
    copies.iter().map(name).collect()
}

/// A library of this soname with nothing in it.
fn stand_in(folder: &Path, soname: &str) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let (source, library) = (folder.join("empty.c"), folder.join(soname));
    std::fs::write(&source, "int stand_in(void) { return 0; }\n").unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    gcc.arg(format!("-Wl,-soname,{soname}"));
    assert!(gcc.status().unwrap().success());
    library
}

#[test]
fn libraries_of_a_process_are_those_that_it_has_mapped() {
    let Some(parts) = parts::all() else { return };
    if lab::has_driver() {
        return parts::left_out("this machine has a driver of its own");
    }
    let place = lab::place();
    let runtime = parts.runtimes.iter().find(|(w, _)| w.version == "12.4.127");
    let runtime = lab::libcudart(&lab::environment(runtime.unwrap(), place.path()));
    let (loaded, beside) = (place.path().join("loaded"), place.path().join("beside"));
    let cudnn = stand_in(&loaded, "libcudnn.so.9");
    // On its LD_LIBRARY_PATH, and not loaded.
    stand_in(&beside, "libcudnn.so.8");
    stand_in(&beside, "libnccl.so.2");
    let Some(process) = Loaded::new(&[runtime.clone(), cudnn.clone()], &beside) else {
        return;
    };
    let report = process.check(place.path());
    assert_eq!(copies(&report), ["libcudart.so.12", "libcudnn.so.9"]);
    assert_eq!(report.errors(), [""; 0], "{:#?}", report.findings());
    // Removed while it runs: it has them all the same.
    std::fs::remove_file(&cudnn).unwrap();
    std::fs::remove_file(&runtime).unwrap();
    let report = process.check(place.path());
    let gone = ["libcudart.so.12 (deleted)", "libcudnn.so.9 (deleted)"];
    assert_eq!(copies(&report), gone);
    let runtimes = &report.json["facts"]["runtime"]["cudart"]["present"]["value"];
    assert_eq!(runtimes[0]["reached_by"][0], "process", "{runtimes:#?}");
    if lab::is_root() {
        assert_eq!(
            runtimes[0]["version"]["present"]["value"], "12.4",
            "{runtimes:#?}"
        );
    } else {
        let why = lab::text(&runtimes[0]["version"]["unreadable"]["reason"]);
        assert!(why.contains("no longer on the disk"), "{why}");
    }
    let replaced = report.finding("process-library-replaced");
    assert_eq!(lab::text(&replaced["layer"]), "application");
}

#[test]
fn a_runtime_whose_file_is_gone_counts_on() {
    let Some(parts) = parts::all() else { return };
    if lab::has_driver() {
        return parts::left_out("this machine has a driver of its own");
    }
    let place = lab::place();
    let old = lab::driver_folder(&parts.drivers[0], place.path());
    let runtime = |version: &str| {
        let runtime = parts.runtimes.iter().find(|(w, _)| w.version == version);
        lab::libcudart(&lab::environment(runtime.unwrap(), place.path()))
    };
    let (twelve, thirteen) = (runtime("12.4.127"), runtime("13.0.96"));
    let Some(process) = Loaded::new(&[twelve.clone(), thirteen], &old) else {
        return;
    };
    std::fs::remove_file(&twelve).unwrap();
    let report = process.check(place.path());
    // 470 runs neither; the one that is gone is still one of the two.
    assert_eq!(
        report.errors(),
        ["driver-too-old"; 2],
        "{:#?}",
        report.findings()
    );
    let title = lab::text(&report.finding("process-two-runtimes")["title"]);
    assert!(title.contains("CUDA 12 and CUDA 13"), "{title}");
}

#[test]
fn a_process_of_another_user_is_said_not_to_be_readable() {
    use std::os::unix::process::CommandExt as _;
    const NOBODY: u32 = 65534;
    if !lab::is_root() {
        return parts::left_out("only root can become another user");
    }
    let place = lab::place();
    let Some(process) = Loaded::new(&[], Path::new("/nonexistent")) else {
        return;
    };
    let program = place.path().join("gpudoctor");
    let copied = Command::new("cp").arg(lab::PROGRAM).arg(&program).status();
    assert!(copied.unwrap().success());
    let output = Command::new(&program)
        .args(["check", "--format", "json", "--static", "--pid"])
        .arg(process.0.id().to_string())
        .env_clear()
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    let report = lab::report(&output);
    assert_eq!(report.code, Some(0));
    assert_eq!(report.verdict().0, "unknown", "{:#?}", report.findings());
    let why = report.json["facts"]["libraries"]["copies"]["unreadable"]["reason"].to_string();
    assert!(why.contains("permission denied"), "{why}");
}

#[test]
fn a_process_that_sees_other_files_is_read_by_its_own_root() {
    let Some(parts) = parts::all() else { return };
    let place = lab::place();
    let runtime = parts.runtimes.iter().find(|(w, _)| w.version == "12.4.127");
    let runtime = lab::libcudart(&lab::environment(runtime.unwrap(), place.path()));
    // A file that only this process sees, at a path where others see nothing.
    let script = "mount -t tmpfs gpudoctor-test \"$1\"; cp \"$2\" \"$1/libcudart.so.12\"\n\
        exec python3 -c \"$3\" \"$1/libcudart.so.12\"\n";
    let folder = place.path().join("inside");
    std::fs::create_dir(&folder).unwrap();
    let Some(mut shell) = lab::with_own_mounts(script) else {
        return;
    };
    shell.arg(&folder).arg(&runtime).arg(LOAD);
    let Some(process) = Loaded::started(&mut shell) else {
        return;
    };
    assert!(!folder.join("libcudart.so.12").exists());
    let report = process.check(place.path());
    let facts = &report.json["facts"];
    assert_eq!(
        facts["application"]["process"]["present"]["value"]["other_root"]["present"]["value"],
        true
    );
    let runtimes = &facts["runtime"]["cudart"]["present"]["value"];
    assert_eq!(runtimes[0]["reached_by"][0], "process", "{runtimes:#?}");
    assert_eq!(
        runtimes[0]["version"]["present"]["value"], "12.4",
        "{runtimes:#?}"
    );
}

#[test]
fn a_stub_that_is_preloaded_is_the_libcuda_in_use() {
    let Some(parts) = parts::all() else { return };
    if lab::has_driver() {
        return parts::left_out("this machine has a driver of its own");
    }
    let place = lab::place();
    let driver = lab::driver_folder(&parts.drivers[1], place.path());
    let stub = stand_in(&place.path().join("stubs"), "libcuda.so.1");
    for (preload, is_stub) in [(stub, true), (driver.join("libcuda.so.1"), false)] {
        let mut run = lab::gpudoctor(place.path());
        run.env("LD_LIBRARY_PATH", &driver);
        run.env("LD_PRELOAD", &preload);
        let report = lab::check(&mut run, &["--static"]);
        let found = report.findings().iter().find(|f| f["id"] == "libcuda-stub");
        assert_eq!(found.is_some(), is_stub, "{}", preload.display());
        if let Some(found) = found {
            assert!(
                lab::text(&found["title"]).contains("LD_PRELOAD"),
                "{found:#}"
            );
        }
    }
}

#[test]
fn a_process_that_has_ended_is_said_in_one_line() {
    let place = lab::place();
    // It has ended, and nobody has asked for its exit code yet.
    let mut ended = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    std::io::copy(&mut ended.stdout.take().unwrap(), &mut std::io::sink()).unwrap();
    let pid = ended.id().to_string();
    let has_ended = || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        state.rsplit(") ").next().unwrap().starts_with('Z')
    };
    while !has_ended() {
        std::thread::yield_now();
    }
    let output = lab::gpudoctor(place.path())
        .args(["--pid", &pid])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("has ended") && said.lines().count() == 1,
        "{said}"
    );
    ended.wait().unwrap();
}

#[test]
fn what_is_not_there_is_said_in_one_line() {
    let place = lab::place();
    for (options, says) in [
        (["--app", "nowhere"], "cannot read"),
        (["--pid", "4294967295"], "there is no process"),
    ] {
        let output = lab::gpudoctor(place.path()).args(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    }
}
