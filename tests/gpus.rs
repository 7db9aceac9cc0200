//! `gpudoctor gpus` against a stub library with eight GPUs, and against Debian's nvidia-smi on the same stub: once, and tick
//! by tick while something goes wrong. Nothing here needs a GPU; on a machine that has one the stub is asked all the same.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "test code: it compiles stubs, starts gpudoctor and looks at its processes"
)]

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

use gpudoctor::matrix::Matrix;
use gpudoctor::probe::gpus::{GpusProbe, GpusRequest};
use gpudoctor::probe::vendor::Launcher;
use gpudoctor::report::gpus::Table;
use gpudoctor::sysroot::Sysroot;
use rustix::process::{Pid, Signal, kill_process};

/// The columns that scripts ask nvidia-smi for.
const QUERY: &str = "--query-gpu=index,name,driver_version,memory.used,memory.total,utilization.gpu,temperature.gpu,power.draw";
const GPUS: usize = 8;

/// The stub in a folder of its own: in the system's temporary folder, since root loads nothing from a folder that others can
/// write.
struct Stub {
    folder: tempfile::TempDir,
}

impl Stub {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let mut words = compiler.split_whitespace();
        let status = Command::new(words.next().unwrap())
            .args(words)
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(folder.path().join("libnvidia-ml.so.1"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stubs/gpus.c"))
            .status()
            .unwrap();
        assert!(status.success());
        Self { folder }
    }

    /// What the driver leaves behind when it is gone. Also writable for the user that root's child may have to become.
    fn mark(&self) -> PathBuf {
        let folder = self.folder.path().join("marks");
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(65534), None).ok();
        folder.join("gone")
    }

    /// A program that finds the stub, in which `broken` is what goes wrong.
    fn command(&self, program: impl AsRef<Path>, broken: &str) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("STUB", broken)
            .env("STUB_MARK", self.mark());
        command
    }

    fn gpus(&self, broken: &str, args: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_gpudoctor"), broken)
            .args(["gpus", "--probe"])
            .args(args)
            .output()
            .unwrap()
    }

    fn watch(&self, broken: &str, args: &[&str]) -> Watch {
        let mut child = self
            .command(env!("CARGO_BIN_EXE_gpudoctor"), broken)
            .args(["gpus", "--probe"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Watch {
            lines: BufReader::new(child.stdout.take().unwrap()),
            said: child.stderr.take().unwrap(),
            child,
        }
    }
}

/// A gpudoctor that watches.
struct Watch {
    child: Child,
    lines: BufReader<ChildStdout>,
    said: ChildStderr,
}

impl Watch {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line
    }

    /// So many ticks of as many lines as there are GPUs.
    fn ticks(&mut self, ticks: usize) -> Vec<String> {
        (0..ticks * GPUS).map(|_| self.line()).collect()
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The process that asks.
    fn asking(&self) -> Pid {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        let [only] = children.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("not one child: {children:?}")
        };
        Pid::from_raw(only.parse().unwrap()).unwrap()
    }

    /// Ends it by a signal: exit code, and what it had said.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(self.pid(), signal).unwrap();
        self.wait()
    }

    fn wait(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Whether NVML can be asked here: root needs a mount namespace or another user to become, which a container may refuse.
fn confinable(stub: &Stub) -> bool {
    let output = stub.gpus("", &[]);
    let refused = text(&output.stderr).contains("could not be confined");
    assert_eq!(refused, output.stdout.is_empty(), "{output:?}");
    !refused
}

/// A process that is gone, or of which only the entry in the table is left.
fn is_gone(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
        .map_or(true, |stat| stat.contains(") Z "))
}

/// Waits until it is gone, for as long as a test may take.
fn wait_for_end(pid: Pid) {
    while !is_gone(pid) {
        std::thread::yield_now();
    }
}

#[test]
fn a_table_for_people() {
    let stub = Stub::new();
    if !confinable(&stub) {
        return;
    }
    let output = stub.gpus("lost", &[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        text(&output.stdout),
        "\
gpu name             driver     memory MiB util temp power   cc pci     mig proc
  0 H100 80GB HBM3   999.88.77  1279/81559  37%  41C   61W  9.0 41:00.0 off    1
  1 H100 80GB HBM3   999.88.77  1024/81559  N/A  33C   70W  9.0 42:00.0   2    0
  2 H100 80GB HBM3   999.88.77 lost: NVML answers 15 (NVML_ERROR_GPU_IS_LOST)
  3 GeForce RTX 4090 999.88.77     0/24564 100%  83C   N/A  8.9 44:00.0 N/A   12
  4 GB10             999.88.77         N/A   5%  45C    4W 12.1 45:00.0 N/A    0
  5 Tesla T4         999.88.77      1/8192  N/A  N/A  100W  7.5 46:00.0 N/A    0
  6 Tesla T4         999.88.77 no answer: 999 (NVML_ERROR_UNKNOWN)
  7 Tesla T4         999.88.77      1/4096   7%  52C   12W  6.1 48:00.0 N/A    2
"
    );
    assert_eq!(
        text(&output.stderr),
        "\
gpudoctor: GPU 2 (NVIDIA H100 80GB HBM3 at 0000:43:00.0) is lost: NVML answers 15 (NVML_ERROR_GPU_IS_LOST); `gpudoctor explain gpu-off-bus` tells what that means
gpudoctor: GPU 6 (Tesla T4 at 0000:47:00.0) does not answer: 999 (NVML_ERROR_UNKNOWN)
"
    );
}

#[test]
fn json_for_all_others() {
    let stub = Stub::new();
    if !confinable(&stub) {
        return;
    }
    let output = stub.gpus("lost-handle", &["--format", "json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["schema"], "gpudoctor.gpus/1");
    assert_eq!(document["driver"], "999.88.77");
    assert_eq!(document["trouble"], serde_json::Value::Null);
    let gpus = document["gpus"].as_array().unwrap();
    let nvidia: Vec<_> = gpus.iter().filter(|g| g["vendor"] == "nvidia").collect();
    assert_eq!(nvidia.len(), GPUS);
    let states: Vec<_> = nvidia
        .iter()
        .map(|g| g["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states,
        ["ok", "ok", "lost", "ok", "ok", "ok", "silent", "ok"]
    );
    let first = nvidia[0];
    assert_eq!(first["memory_used_bytes"], 1_342_177_279_u64);
    assert_eq!(first["power_milliwatts"], 61255);
    assert_eq!(first["row_remap_pending"], true);
    assert_eq!(first["refused"], serde_json::json!({}));
    assert_eq!(
        nvidia[1]["mig"],
        serde_json::json!({"on": true, "pending": true, "instances": 2})
    );
    assert_eq!(nvidia[3]["power_milliwatts"], serde_json::Value::Null);
    assert_eq!(nvidia[3]["compute_mode"], "exclusive-process");
    assert_eq!(
        nvidia[5]["refused"]["temperature_celsius"],
        "4 (NVML_ERROR_NO_PERMISSION)"
    );
}

#[test]
fn without_gpus_one_sentence() {
    let stub = Stub::new();
    if !confinable(&stub) {
        return;
    }
    for (broken, sentence) in [
        ("none", "the driver runs and counts no GPU"),
        (
            "not-loaded",
            "nvmlInit_v2 answers 9 (NVML_ERROR_DRIVER_NOT_LOADED)",
        ),
    ] {
        for args in [
            &["--format=csv"][..],
            &["--format=csv", "--watch"],
            &["--format=json"],
        ] {
            let output = stub.gpus(broken, args);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{broken} {args:?}");
            assert!(
                said.contains(sentence) && said.lines().count() == 1,
                "{said}"
            );
            let is_document = args == ["--format=json"];
            assert_eq!(output.stdout.is_empty(), !is_document);
        }
    }
}

#[test]
fn what_is_no_number_of_seconds() {
    let stub = Stub::new();
    for wrong in ["--watch=0", "--watch=x", "--watch=NaN", "--watch=-1"] {
        assert_eq!(stub.gpus("", &[wrong]).status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn a_gpu_that_is_lost_while_one_watches() {
    let stub = Stub::new();
    if !confinable(&stub) {
        return;
    }
    let mut watch = stub.watch("lost-4", &["--watch=0.05", "--format=csv"]);
    let lines = watch.ticks(6);
    let states: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("2, "))
        .map(|line| line.rsplit(", ").nth(1).unwrap())
        .collect();
    assert_eq!(states, ["ok", "ok", "ok", "lost", "lost", "lost"]);
    let (code, said) = watch.end(Signal::INT);
    assert_eq!(code, Some(0));
    let about: Vec<_> = said.lines().filter(|line| line.contains("GPU 2")).collect();
    assert_eq!(about.len(), 1, "{said}");
    assert!(about[0].contains("NVIDIA H100 80GB HBM3 at 0000:43:00.0) is lost"));
}

#[test]
fn a_driver_that_hangs_while_one_watches() {
    let stub = Stub::new();
    if !confinable(&stub) {
        return;
    }
    let mut watch = stub.watch("hang-3", &["--watch=0.05", "--format=csv", "--timeout=1"]);
    watch.ticks(2);
    let first = watch.asking();
    // What was learnt before the hang is shown; the next tick asks a new child, which hangs in its third tick as well.
    assert!(watch.line().starts_with("0, "));
    let lines = watch.ticks(2);
    let starts: String = lines
        .iter()
        .filter_map(|line| line.chars().next())
        .collect();
    assert_eq!(starts, "0123456701234567");
    assert_ne!(watch.asking(), first);
    assert!(is_gone(first));
    let (code, said) = watch.end(Signal::TERM);
    assert_eq!(code, Some(0));
    let hang = "nvmlDeviceGetMemoryInfo_v2 of GPU 1 did not come back within 1 s";
    assert!(said.contains(hang), "{said}");
    assert!(said.contains("the driver answers again"), "{said}");
}

#[test]
fn a_driver_that_goes_away_and_comes_back() {
    let stub = Stub::new();
    if !confinable(&stub) {
        return;
    }
    let mut watch = stub.watch("gone-4", &["--watch=0.05", "--format=json"]);
    let mut troubles = String::new();
    let mut is_back = false;
    while !is_back {
        let document: serde_json::Value = serde_json::from_str(&watch.line()).unwrap();
        let gpus = document["gpus"].as_array().unwrap();
        let trouble = document["trouble"].as_str();
        let answers = gpus.iter().any(|g| g["vendor"] == "nvidia");
        assert_ne!(answers, trouble.is_some(), "{document}");
        is_back = answers && !troubles.is_empty();
        let init = trouble.is_some_and(|trouble| trouble.contains("nvmlInit"));
        if let Some(trouble) = trouble {
            let _ = writeln!(troubles, "{trouble}");
        }
        // A new child could not start the driver either: from here on it can.
        if init && stub.mark().exists() {
            fs::remove_file(stub.mark()).unwrap();
        }
    }
    assert!(troubles.contains("nvmlDeviceGetCount_v2 answers 9"));
    let (code, said) = watch.end(Signal::INT);
    assert_eq!(code, Some(0));
    assert!(said.contains("the driver went away: "), "{said}");
    assert!(said.contains("the driver answers again"), "{said}");
}

/// Resident memory of a process in KiB.
fn resident(pid: Pid) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.parse().unwrap()
}

#[test]
fn watching_takes_no_memory_and_leaves_no_child() {
    let stub = Stub::new();
    if !confinable(&stub) {
        return;
    }
    for (format, lines) in [("csv", GPUS), ("json", 1), ("text", GPUS)] {
        let format = format!("--format={format}");
        let mut watch = stub.watch("", &["--watch=0.02", &format]);
        let read = |watch: &mut Watch, ticks: usize| {
            for _ in 0..ticks * lines {
                assert!(!watch.line().is_empty());
            }
        };
        read(&mut watch, 10);
        let asking = watch.asking();
        let before = (resident(watch.pid()), resident(asking));
        read(&mut watch, 50);
        let after = (resident(watch.pid()), resident(asking));
        // Pages that are touched for the first time; a leak of one answer a tick would be more.
        let few = 64;
        assert!(
            after.0 <= before.0 + few && after.1 <= before.1 + few,
            "{format}: {before:?} -> {after:?} KiB"
        );
        assert_eq!(watch.end(Signal::INT).0, Some(0));
        assert!(is_gone(asking));
    }
}

#[test]
fn nobody_reads_any_more() {
    let stub = Stub::new();
    if !confinable(&stub) {
        return;
    }
    // An hour until the next tick: it is the pipe that ends it.
    let mut watch = stub.watch("", &["--watch=3600", "--format=csv"]);
    watch.ticks(1);
    let asking = watch.asking();
    let closed = std::mem::replace(
        &mut watch.lines,
        BufReader::new(
            Command::new("/bin/true")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
                .stdout
                .unwrap(),
        ),
    );
    drop(closed);
    let (code, said) = watch.wait();
    assert_eq!(code, Some(0), "{said}");
    assert!(is_gone(asking));
}

#[test]
fn a_child_that_hangs_ends_with_its_parent() {
    let stub = Stub::new();
    if !confinable(&stub) {
        return;
    }
    for signal in [Signal::INT, Signal::KILL] {
        let mut watch = stub.watch("hang-3", &["--watch=0.05", "--format=csv"]);
        watch.ticks(2);
        let asking = watch.asking();
        // The third tick hangs in the second GPU for the default of 30 s. Its first line is not written before that.
        let (code, _) = watch.end(signal);
        assert_eq!(code, (signal == Signal::INT).then_some(0));
        wait_for_end(asking);
    }
}

/// Debian's nvidia-smi, unpacked below `target/parts`; `None` where it cannot be had, which fails in CI.
fn nvidia_smi() -> Option<PathBuf> {
    let parts = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap()
        .join("parts/nvidia-smi");
    let program = parts.join("root/usr/lib/nvidia/current/nvidia-smi");
    if !program.exists()
        && let Err(why) = fetch_nvidia_smi(&parts)
    {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "nvidia-smi cannot be had: {why}"
        );
        eprintln!("not compared with nvidia-smi: {why}");
        return None;
    }
    Some(program)
}

/// Fetches the package by a copy of the machine's own apt sources, with Debian's non-free component added. Nothing is
/// installed, and the machine's lists stay as they are.
fn fetch_nvidia_smi(parts: &Path) -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the package is for x86-64".to_owned());
    }
    let io = |e: std::io::Error| e.to_string();
    for folder in ["lists/partial", "cache/archives/partial", "sources"] {
        fs::create_dir_all(parts.join(folder)).map_err(io)?;
    }
    let own = fs::read_dir("/etc/apt/sources.list.d")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let mut found = 0;
    for path in own.chain([PathBuf::from("/etc/apt/sources.list")]) {
        let Ok(text) = fs::read_to_string(&path) else {
            continue;
        };
        if !text.contains("/debian") {
            continue;
        }
        let with_component = |line: &str| {
            let lists_main = line.starts_with("Components:") || line.starts_with("deb ");
            if lists_main && line.split_whitespace().any(|word| word == "main") {
                format!("{line} non-free")
            } else {
                line.to_owned()
            }
        };
        let text: String = text.lines().map(|l| with_component(l) + "\n").collect();
        let copy = parts.join("sources").join(path.file_name().unwrap());
        fs::write(copy, text).map_err(io)?;
        found += 1;
    }
    if found == 0 {
        return Err("no apt source of Debian here".to_owned());
    }
    let configuration = parts.join("apt.conf");
    let folder = parts.display();
    fs::write(
        &configuration,
        format!(
            "Dir::Etc::SourceList \"{folder}/sources/sources.list\";\nDir::Etc::SourceParts \"{folder}/sources\";\n\
             Dir::State::Lists \"{folder}/lists\";\nDir::Cache \"{folder}/cache\";\nAPT::Sandbox::User \"\";\n"
        ),
    )
    .map_err(io)?;
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(args)
            .env("APT_CONFIG", &configuration)
            .current_dir(parts)
            .output()
            .map_err(|e| format!("{program}: {e}"))?;
        if output.status.success() {
            Ok(())
        } else {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(format!("{program} {}: {said}", args.join(" ")))
        }
    };
    run("apt-get", &["update"])?;
    run("apt-get", &["download", "nvidia-smi"])?;
    let package = fs::read_dir(parts)
        .map_err(io)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "deb"))
        .ok_or("apt-get left no package")?;
    run("dpkg", &["-x", package.to_str().unwrap(), "root"])
}

#[test]
fn the_shared_columns_are_nvidia_smis() {
    let stub = Stub::new();
    let Some(program) = nvidia_smi().filter(|_| confinable(&stub)) else {
        return;
    };
    for broken in ["", "lost"] {
        let theirs = stub
            .command(&program, broken)
            .args([QUERY, "--format=csv,noheader,nounits"])
            .output()
            .unwrap();
        let ours = stub.gpus(broken, &["--format=csv"]);
        assert_eq!(ours.status.code(), theirs.status.code(), "{theirs:?}");
        let shared: String = text(&ours.stdout)
            .lines()
            .map(|line| line.split(", ").take(8).collect::<Vec<_>>().join(", ") + "\n")
            .collect();
        assert_eq!(shared, text(&theirs.stdout), "{broken}");
        assert_eq!(shared.lines().count(), GPUS);
    }
}

/// A folder as the root of a machine with a Radeon, its integrated sibling that sleeps, and a GPU of Intel.
fn machine_of_others() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for (address, vendor, device, driver) in [
        ("0000:03:00.0", "0x1002", "0x744c", "amdgpu"),
        ("0000:7a:00.0", "0x1002", "0x164e", "amdgpu"),
        ("0000:00:02.0", "0x8086", "0x46a6", "i915"),
    ] {
        let dir = format!("sys/bus/pci/devices/{address}");
        write(&format!("{dir}/vendor"), vendor);
        write(&format!("{dir}/device"), device);
        write(&format!("{dir}/class"), "0x030000");
        write(&format!("{dir}/revision"), "0xc8");
        std::os::unix::fs::symlink(
            format!("../../../../bus/pci/drivers/{driver}"),
            root.path().join(&dir).join("driver"),
        )
        .unwrap();
    }
    let card = "sys/bus/pci/devices/0000:03:00.0";
    write(&format!("{card}/mem_info_vram_total"), "25753026560\n");
    write(&format!("{card}/mem_info_vram_used"), "1073741824\n");
    write(&format!("{card}/gpu_busy_percent"), "37\n");
    write(&format!("{card}/hwmon/hwmon3/temp1_input"), "51000\n");
    write(&format!("{card}/hwmon/hwmon3/power1_average"), "98000000\n");
    write(
        "sys/bus/pci/devices/0000:7a:00.0/power/runtime_status",
        "suspended\n",
    );
    write("sys/bus/pci/devices/0000:7a:00.0/gpu_busy_percent", "1\n");
    write(
        "usr/share/libdrm/amdgpu.ids",
        "1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n",
    );
    write("sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
    write(
        "sys/class/kfd/kfd/topology/nodes/0/properties",
        "simd_count 0\n",
    );
    write("sys/class/kfd/kfd/topology/nodes/1/gpu_id", "40001\n");
    write(
        "sys/class/kfd/kfd/topology/nodes/1/properties",
        "simd_count 192\nlocation_id 768\ngfx_target_version 110000\ndrm_render_minor 128\n",
    );
    root
}

#[test]
fn gpus_of_amd_and_intel_are_told_by_sysfs() {
    let root = machine_of_others();
    let request = GpusRequest {
        library_path: None,
        uname: ("6.8.0".to_owned(), "x86_64".to_owned()),
        always: false,
        timeout: std::time::Duration::from_secs(5),
        launcher: Launcher::new("/nonexistent"),
        stop: || false,
    };
    let mut probe = GpusProbe::at(Sysroot::at(root.path()).unwrap(), request);
    let mut gpus = probe.look("2026-01-02T03:04:05Z".to_owned());
    Matrix::bundled().name_gpus(&mut gpus);
    let document: serde_json::Value =
        serde_json::from_str(&gpudoctor::report::gpus::json(&gpus, false).unwrap()).unwrap();
    let told: Vec<_> = document["gpus"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gpu| {
            (
                gpu["vendor"].as_str().unwrap(),
                gpu["pci_address"].as_str().unwrap(),
                gpu["state"].as_str().unwrap(),
                gpu["driver"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("intel", "0000:00:02.0", "not-asked", "i915"),
            ("amd", "0000:03:00.0", "ok", "amdgpu"),
            ("amd", "0000:7a:00.0", "asleep", "amdgpu"),
        ]
    );
    // Sysfs has no names: Intel's are the matrix's, AMD's libdrm's.
    assert_eq!(document["gpus"][0]["name"], "Intel Iris Xe Graphics");
    let card = &document["gpus"][1];
    assert_eq!(card["name"], "AMD Radeon RX 7900 XTX");
    assert_eq!(card["target"], "gfx1100");
    assert_eq!(card["memory_total_bytes"], 25_753_026_560_u64);
    assert_eq!(card["memory_used_bytes"], 1_073_741_824_u64);
    assert_eq!(card["utilization_percent"], 37);
    assert_eq!(card["temperature_celsius"], 51);
    assert_eq!(card["power_milliwatts"], 98_000);
    // One that sleeps is not read: that would wake it.
    assert!(document["gpus"][2]["utilization_percent"].is_null());
    let table = Table::new(&gpus, 100, false);
    let rows = table.rows(&gpus);
    assert!(
        rows.contains("AMD Radeon RX 7900 XTX") && rows.contains("gfx1100"),
        "{rows}"
    );
    assert!(rows.contains("sleeps"), "{rows}");
}
