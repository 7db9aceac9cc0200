//! Tables of what is replaced and of what must stay, and properties of the whole.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::facts::*;
use crate::version::Version;

const UUID: &str = "8932f937-d72c-4106-c12f-20bd9faed9f6";
const OTHER_UUID: &str = "0a1b2c3d-0001-4002-8003-0123456789ab";

fn secrets(home: &str, users: &[&str], hosts: &[&str]) -> Secrets {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    Secrets {
        home: Some(home.to_owned()),
        user_names: owned(users),
        host_names: owned(hosts),
    }
}

fn alice() -> Secrets {
    secrets(
        "/home/alice",
        &["alice", "root", "gpu", "cuda", "a"],
        &["gpu-box-17.lab.example.org"],
    )
}

/// Each text alone, by a redactor of its own.
fn check(secrets: &Secrets, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        let once = Redactor::new(secrets.clone()).text(text).into_owned();
        assert_eq!(once, *expected, "{text}");
        let twice = Redactor::new(secrets.clone()).text(&once).into_owned();
        assert_eq!(twice, once, "twice: {text}");
    }
}

fn untouched(secrets: &Secrets, texts: &[&str]) {
    let cases: Vec<_> = texts.iter().map(|text| (*text, *text)).collect();
    check(secrets, &cases);
}

#[test]
fn uuids_get_names() {
    let (gpu, mig) = (format!("GPU-{UUID}"), format!("MIG-GPU-{UUID}/3/0"));
    check(
        &alice(),
        &[
            (&gpu, "GPU-1"),
            (&mig, "MIG-GPU-1/3/0"),
            (&format!("MIG-{UUID},{gpu}"), "MIG-1,GPU-1"),
            (
                &format!("{gpu},GPU-{OTHER_UUID},{gpu}"),
                "GPU-1,GPU-2,GPU-1",
            ),
            (&gpu.to_uppercase(), "GPU-1"),
            (&format!("root=UUID={UUID} ro"), "root=UUID=uuid-1 ro"),
            (&format!("GPU-8932 and {gpu}"), "GPU-1 and GPU-1"),
            ("GPU-8932f937", "GPU-1"),
            ("GPU-8932f937-d72c-41", "GPU-1"),
            ("GPU-4b2c1a9f8d3e6f7a,GPU-4b2c1a9f8d3e6f7b", "GPU-1,GPU-2"),
            (
                &format!("machine {}", UUID.replace('-', "")),
                "machine uuid-1",
            ),
            ("seen: GPU-1, new: GPU-8932f937", "seen: GPU-1, new: GPU-2"),
        ],
    );
    untouched(
        &alice(),
        &[
            "GPU-0 GPU-1 GPU-12 MIG-3",
            "GPU-????????-????-????-????-????????????",
            "libcudart-9f8e7d6c.so.12",
            "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
            "MokListRT-605dab50-e046-4300-abb6-3dd810dd8b23",
            "/nix/store/0a1b2c3d4e5f60718293a4b5c6d7e8f9-cudatoolkit",
            "file.whl#md5=0a1b2c3d4e5f60718293a4b5c6d7e8f9",
            "MIG 1g.10gb",
            "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        ],
    );
}

#[test]
fn addresses_get_names() {
    check(
        &alice(),
        &[
            ("mlx5: aa:bb:cc:0d:ee:0f up", "mlx5: mac-1 up"),
            ("00-1A-2b-3c-4d-5e", "mac-1"),
            ("aa:bb:cc:dd:ee:ff and AA:BB:CC:DD:EE:FF", "mac-1 and mac-1"),
            ("guid 00:02:c9:03:00:0a:0b:0c.", "guid mac-1."),
            ("192.168.1.5", "ip-1"),
            ("at 203.0.113.9:8080, 203.0.113.9.", "at ip-1:8080, ip-1."),
            (
                "nfs: server 10.0.0.17 not responding",
                "nfs: server ip-1 not responding",
            ),
            (
                "cannot connect to 10.1.2.3: timed out",
                "cannot connect to ip-1: timed out",
            ),
            ("10.1.2.3:29500", "ip-1:29500"),
            ("net 10.1.0.0/16", "net ip-1/16"),
            ("root@10.1.2.3", "user-1@ip-1"),
            ("10.77.2.3", "ip-1"),
            ("fe80::1%eth0, [2001:db8::7]:443", "ip-1%eth0, [ip-2]:443"),
            ("addr:2001:db8:0:0:0:0:0:7", "addr:ip-1"),
            ("::ffff:192.168.1.5", "::ffff:ip-1"),
        ],
    );
}

#[test]
fn versions_pci_addresses_and_times_stay() {
    untouched(
        &alice(),
        &[
            "550.163.01",
            "12.4.1.2 9.10.2.21 11.11.3.6 10.3.5.147 10.13.3.9 1.17.8",
            "cudnn@8.9.7.29",
            "libcurand.so.10.3.5.147",
            "/opt/trt/10.13.3.9/lib",
            "12.9.1.4-1+cuda12.9",
            "0000:01:00.0",
            "PCI:0000:0b:00: NVRM",
            "12:34:56 2025-09-23T09:55:41Z",
            "90.02.0b.00.c7 c7:00:04",
            "RmInitAdapter failed! (0x22:0x56:884)",
            "127.0.0.1:8080 0.0.0.0 255.255.255.0 ::1",
            "c10::Error at::Tensor std::fs c10::cuda",
            "4f:5c:00:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10:11",
            "01-02-03-04-05-06",
            "6.8.0-31-generic SMP mod_unload modversions",
            "libcudart.so.12 libcuda.so.1 libnvrtc.so.12 libc.so.6",
            "10de:2330",
            "Tue Sep 23 09:55:41 UTC 2025",
        ],
    );
}

#[test]
fn homes_and_users() {
    check(
        &alice(),
        &[
            ("/home/alice", "~"),
            ("/home/alice.", "~."),
            ("/home/alice/.venv/lib", "~/.venv/lib"),
            ("/home/alice/a:/usr/lib:/home/alice/b", "~/a:/usr/lib:~/b"),
            ("-L/home/alice/lib", "-L~/lib"),
            ("`/home/alice/x`: denied", "`~/x`: denied"),
            ("/home/alice2/x", "/home/user-1/x"),
            (
                "/home/bob/x /home/carol /home/bob",
                "/home/user-1/x /home/user-2 /home/user-1",
            ),
            ("/export/home/alice/x", "/export/home/user-1/x"),
            ("/var/home/bob /Users/bob", "/var/home/user-1 /Users/user-1"),
            ("/proc/12/root/home/alice/x", "/proc/12/root/home/user-1/x"),
            ("/home/alice@corp.example/x", "/home/user-1/x"),
            (
                "/home/cuda/lib /home/gpu /home/a/b /home/root",
                "/home/user-1/lib /home/user-2 /home/user-3/b /home/user-4",
            ),
            ("/scratch/cuda/lib /u/gpu", "/scratch/user-1/lib /u/user-2"),
            ("/scratch/bob/opt", "/scratch/user-1/opt"),
            ("/run/media/alice/disk", "/run/media/user-1/disk"),
            ("/nfs/lab/alice/.venv", "/nfs/lab/user-1/.venv"),
            ("file:///home/alice/x", "file:///home/user-1/x"),
            (
                "C:\\Users\\Bob\\x /mnt/c/Users/Bob/x",
                "C:\\Users\\user-1\\x /mnt/c/Users/user-1/x",
            ),
            ("~/home/bob", "~/home/user-1"),
            ("/home/kubernetes/bin/nvidia", "/home/kubernetes/bin/nvidia"),
        ],
    );
    // Folders of a cluster, each with homes of its own.
    for space in ["scratch", "work"] {
        check(
            &alice(),
            &[(
                &format!("/{space}/alice/x /{space}/a/x"),
                &format!("/{space}/user-1/x /{space}/user-2/x"),
            )],
        );
    }
    check(
        &secrets("/root", &["root"], &[]),
        &[
            (&format!("{}/.venv", "/root"), "~/.venv"),
            ("/root", "~"),
            ("'/root'", "'~'"),
            ("/rootfs /root2/x /a/root/b", "/rootfs /root2/x /a/root/b"),
        ],
    );
    check(
        &secrets("/home/lab/alice/", &["alice"], &[]),
        &[(
            "/home/lab/alice/x /home/lab/bob/x",
            "~/x /home/user-1/user-2/x",
        )],
    );
    check(
        &secrets("/home/jane doe", &[], &[]),
        &[("in /home/jane doe/x", "in ~/x")],
    );
    for home in [
        "/",
        "",
        "/usr",
        "/usr/local",
        "/opt",
        "/nonexistent",
        "/home",
        "relative",
    ] {
        untouched(
            &secrets(home, &[], &[]),
            &["/usr/local/cuda/lib64", "/opt/conda", "/", "/home"],
        );
    }
}

#[test]
fn people_builders_and_credentials() {
    check(
        &alice(),
        &[
            ("(dvs-builder@build-host)  Tue", "(builder)  Tue"),
            (
                "(root@4f5e6d7c8b9a) (gcc (GCC) 13.2.0)",
                "(builder) (gcc (GCC) 13.2.0)",
            ),
            ("(root@(none)) (gcc", "(builder) (gcc"),
            ("(nixbld@localhost)", "(builder)"),
            ("alice@gpu-box-17", "user-1@host-1"),
            (
                "cuda@x a@node root@b",
                "user-1@host-1 user-2@host-2 user-3@host-3",
            ),
            ("bob@node17: x", "user-1@host-1: x"),
            ("<mailto:bob.b+c@example.org>.", "<mailto:user-1@host-1>."),
            (
                "proxy bob:secret!x@proxy.example:3128",
                "proxy user-1@host-1:3128",
            ),
            ("user-1@gpu-box-17", "user-1@host-1"),
            ("https://u:p@build.example/x", "https://host-1/x"),
            ("https://u:p/w@build.example/x", "https://host-1/x"),
            (
                "https://tok@github.com/o/r#sha256=0a",
                "https://github.com/o/r#sha256=0a",
            ),
            (
                "git+ssh://git@git.corp:22/r?token=t#k=v",
                "git+ssh://host-1:22/r?...#...",
            ),
            (
                "(see https://b.example/a?x=1&y=2), then",
                "(see https://host-1/a?...), then",
            ),
            (
                "http://a:b@h1.example,http://c:d@10.0.0.1:80/",
                "http://host-1,http://ip-1:80/",
            ),
            (
                "https://download.pytorch.org/whl?k=s",
                "https://download.pytorch.org/whl?...",
            ),
            ("http://[2001:db8::1]:80/x", "http://[ip-1]:80/x"),
        ],
    );
    untouched(
        &alice(),
        &[
            "__nvJitLinkAddData_12_1@libnvJitLink.so.12",
            "memcpy@GLIBC_2.14 memcpy@@GLIBC_2.14 (x@GLIBC_2.14)",
            "cuda@12.4 python@3 torch@2.1.0a0 (cuda@12.4) torch@v2-rc1",
            "user@1000.service getty@tty1.service",
            "image@sha256:0a1b",
            "docker://ubuntu:22.04 unix:///run/x.sock http://localhost:80 http://127.0.0.1/x",
            "@ a@ @b a @ b",
            "https://docs.nvidia.com/deploy/x.html",
        ],
    );
}

#[test]
fn hosts_are_whole_tokens() {
    check(
        &alice(),
        &[
            ("on gpu-box-17.", "on host-1."),
            (
                "GPU-BOX-17.lab.example.org, node2.lab.example.org",
                "host-1, host-2",
            ),
            (
                "/mnt/gpu-box-17/x gpu-box-17.log",
                "/mnt/host-1/x host-1.log",
            ),
            ("gpu-box-17.other.net:80", "host-1:80"),
            (
                "Nov 20 10:00:01 host kernel: NVRM",
                "Nov 20 10:00:01 host-1 kernel: NVRM",
            ),
            (
                "2022-10-20T11:02:15.1+02:00 a systemd[1]: x\n2022-10-20T11:02:15 a kernel: y",
                "2022-10-20T11:02:15.1+02:00 host-1 systemd[1]: x\n2022-10-20T11:02:15 host-1 kernel: y",
            ),
            ("Serial Number : 1322621000123", "Serial Number : serial-1"),
            ("serial=0324A18045603,", "serial=serial-1,"),
        ],
    );
    untouched(
        &alice(),
        &[
            "gpu-box-170 xgpu-box-17 gpu-box-17_a",
            "kernel: NVRM: loading",
            "serial: 8250/16550 driver; Serial Number : N/A",
        ],
    );
    for host in [
        "gpu",
        "cuda",
        "host",
        "node",
        "ubuntu",
        "a",
        "localhost",
        "cuda-12",
        "cuda-12.4",
        "python3",
        "thor",
    ] {
        untouched(
            &secrets("/home/x", &[], &[host]),
            &[
                "Jetson AGX Thor, a GPU on host node",
                "/usr/local/cuda-12.4/lib64 /usr/lib/cuda-12 python3 libcuda.so",
                "localhost ubuntu",
            ],
        );
    }
    check(
        &secrets("/x", &[], &["dgx-1"]),
        &[("DGX-1 at dgx-1", "DGX-1 at host-1")],
    );
    check(
        &secrets("/x", &[], &["zeus"]),
        &[(
            "zeus Zeus zeus.local zeus.py",
            "host-1 Zeus host-1 host-1.py",
        )],
    );
    check(
        &secrets("/x", &[], &["gpu-1"]),
        &[("GPU-1 on gpu-1", "GPU-1 on host-1")],
    );
}

#[test]
fn no_word_is_damaged() {
    let names = [
        "root", "gpu", "cuda", "a", "data", "user", "nvidia", "host", "torch", "home", "ollama",
        "python",
    ];
    let texts = [
        "root cause: a GPU that the user cannot open; data loss",
        "/usr/local/cuda/lib64/libcuda.so /usr/local/cuda-12.4 /usr/lib/nvidia/a",
        "/usr/local/lib/ollama/cuda_v12/libcudart.so.12",
        "cuda:0 gpu:0 gpu0 nvidia-smi nvidia.com/gpu=all user=root host=python",
        "/data/models/a /opt/nvidia/data /opt/conda/envs/torch /mnt/cuda/lib",
        "/usr/lib/python3/dist-packages/torch/lib /rootfs/root /dev/nvidia0",
        "CUDA_HOME=/usr/local/cuda CUDA_VISIBLE_DEVICES=0,1",
        "RmInitAdapter failed! (0x22:0x56:884)",
        "NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (builder)",
        "name=python, pid=1234, 'GPU has fallen off the bus.'",
        "~/.venv this machine",
        "",
    ];
    for home in names
        .iter()
        .map(|name| format!("/home/{name}"))
        .chain(["/root".to_owned()])
    {
        untouched(&secrets(&home, &names, &names), &texts);
    }
}

/// A snapshot with something private in every kind of place.
fn planted() -> Facts {
    let gpu = format!("GPU-{UUID}");
    let environment = BTreeMap::from(
        [
            ("CUDA_VISIBLE_DEVICES", gpu.as_str()),
            ("LD_LIBRARY_PATH", "/home/alice/lib:/usr/local/cuda/lib64"),
            ("MASTER_ADDR", "10.0.0.17"),
            ("OLLAMA_HOST", "trainer:11434"),
            ("USER", "alice"),
            (
                "PIP_INDEX_URL",
                "https://alice:hunter2@index.corp.example/simple?token=hunter2",
            ),
            ("/home/alice/key", "x"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let mut facts = Facts {
        schema: SCHEMA.to_owned(),
        version: "0.1.0".to_owned(),
        taken_at: "2025-09-23T09:55:41Z".to_owned(),
        environment: Reading::present(environment, "the environment of gpu-box-17"),
        problems: vec!["`/home/alice/x`: denied to alice@gpu-box-17".to_owned()],
        ..Facts::default()
    };
    facts.consumer.what = "/home/alice/.venv".to_owned();
    facts.consumer.prefix =
        Reading::present("/home/alice/.venv".to_owned(), "/home/bob/pyvenv.cfg");
    facts.consumer.also_found = vec!["/home/bob/.venv".to_owned()];
    facts.system.kernel_version = Reading::present(
        "Linux version 6.8.0 (buildd@lcy02) (gcc 13.2.0) #1".to_owned(),
        "/proc/version",
    );
    facts.system.group_names = Reading::present(
        [(0, "root"), (44, "video"), (1000, "alice"), (1001, "a")]
            .map(|(id, name)| (id, name.to_owned()))
            .into(),
        "/etc/group",
    );
    facts.system.cmdline =
        Reading::present(vec![format!("root=UUID={OTHER_UUID}")], "/proc/cmdline");
    facts.driver.proc_version = Reading::present(
        ProcVersion {
            version: Version::parse("580.95.05").unwrap(),
            flavour: Some(Flavour::Open),
            raw: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  \
                  (root@gpu-box-17)  Tue Sep 23 09:55:41 UTC 2025"
                .to_owned(),
        },
        "/proc/driver/nvidia/version",
    );
    facts.driver.params = Reading::present(
        BTreeMap::from([("ModifyDeviceFiles".to_owned(), "1".to_owned())]),
        "/proc/driver/nvidia/params",
    );
    facts.driver.gpus = Reading::present(
        vec![DriverGpu {
            address: "0000:01:00.0".to_owned(),
            uuid: gpu.clone(),
            ..DriverGpu::default()
        }],
        "/proc/driver/nvidia/gpus",
    );
    facts.driver.kernel_log = Reading::present(
        vec![
            format!("Nov 20 10:00:01 gpu-box-17 kernel: NVRM: GPU at PCI:0000:0b:00: {gpu}"),
            "NVRM: GPU Board Serial Number: 1322621000123".to_owned(),
            "mlx5_core 0000:3b:00.0: aa:bb:cc:0d:ee:0f 192.168.7.9".to_owned(),
        ],
        "/var/log/kern.log",
    );
    facts.driver.libcuda = Reading::present(
        vec![LibraryCopy {
            path: "/home/alice/lib/libcuda.so.1".to_owned(),
            real_path: "/home/bob/lib/libcuda.so.550.163.01".to_owned(),
            version: Reading::present(Version::parse("550.163.01").unwrap(), "/home/bob/lib"),
            reached_by: vec![
                ReachedBy::LdLibraryPath("/home/alice/lib".to_owned()),
                ReachedBy::LdCache,
            ],
            ..LibraryCopy::default()
        }],
        "the loader's search",
    );
    facts.runtime.cudart = Reading::present(
        vec![RuntimeCopy {
            path: "/home/alice/.venv/libcudart.so.12".to_owned(),
            versions: vec![(
                "/home/bob/x".to_owned(),
                Version::parse("192.4.1.2").unwrap(),
            )],
            ..RuntimeCopy::default()
        }],
        "/home/alice",
    );
    facts.vendor.libcuda = Reading::present(
        LibraryAnswers {
            end: ChildEnd::TimedOut {
                call: "cuInit".to_owned(),
                after_ms: 30_000,
            },
            calls: vec![Call {
                printed: Some(format!("{gpu} on gpu-box-17")),
                ..Call::default()
            }],
            devices: vec![DeviceAnswer {
                uuid: Some(gpu),
                capability: Some((9, 0)),
                ..DeviceAnswer::default()
            }],
            ..LibraryAnswers::default()
        },
        "a child",
    );
    facts
}

#[test]
fn a_snapshot_keeps_nothing_private_and_everything_else() {
    let redacted = facts(alice(), planted());
    let text = serde_json::to_string_pretty(&redacted).unwrap();
    for secret in [
        "alice",
        "bob",
        "gpu-box",
        "8932f937",
        "0a1b2c3d",
        "hunter2",
        "corp",
        "buildd",
        "lcy02",
        "root@",
        "10.0.0.17",
        "192.168.7.9",
        "trainer",
        "aa:bb",
        "1322621000123",
    ] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    let environment = redacted.environment.value().unwrap();
    for (key, value) in [
        ("CUDA_VISIBLE_DEVICES", "GPU-1"),
        ("LD_LIBRARY_PATH", "~/lib:/usr/local/cuda/lib64"),
        ("OLLAMA_HOST", "host-2:11434"),
        ("~/key", "x"),
    ] {
        assert_eq!(
            environment.get(key).map(String::as_str),
            Some(value),
            "{key}: {environment:?}"
        );
    }
    assert_eq!(redacted.driver.gpus.items()[0].uuid, "GPU-1");
    assert_eq!(redacted.driver.gpus.items()[0].address, "0000:01:00.0");
    assert_eq!(
        redacted.vendor.libcuda.value().unwrap().end,
        planted().vendor.libcuda.value().unwrap().end
    );
    assert_eq!(
        redacted.runtime.cudart.items()[0].versions[0].1.as_str(),
        "192.4.1.2"
    );
    assert_eq!(
        redacted.driver.loaded_version(),
        planted().driver.loaded_version()
    );
    let groups = redacted.system.group_names.value().unwrap();
    assert_eq!(groups.get(&0).map(String::as_str), Some("root"));
    assert!(
        groups.get(&1001).unwrap().starts_with("user-"),
        "{groups:?}"
    );
    let raw = &redacted.driver.proc_version.value().unwrap().raw;
    assert!(
        raw.ends_with("580.95.05  Release Build  (builder)  Tue Sep 23 09:55:41 UTC 2025"),
        "{raw}"
    );
    assert_eq!(
        redacted.driver.kernel_log.items(),
        [
            "Nov 20 10:00:01 host-1 kernel: NVRM: GPU at PCI:0000:0b:00: GPU-1",
            "NVRM: GPU Board Serial Number: serial-1",
            "mlx5_core 0000:3b:00.0: mac-1 ip-1",
        ]
    );
}

#[test]
fn a_redacted_snapshot_stays_as_it_is() {
    let once = facts(alice(), planted());
    assert_eq!(facts(alice(), once.clone()), once);
    assert_eq!(facts(Secrets::default(), once.clone()), once);
    assert_eq!(facts(alice(), Facts::default()), Facts::default());
}

#[test]
fn a_serial_is_replaced_whole_where_the_key_says_so() {
    let mut redactor = Redactor::new(Secrets::default());
    let value = serde_json::json!({"serial": {"present": {"value": "PK 0012", "source": "/sys/serial"}}, "board_serial": "N/A"});
    let expected = serde_json::json!({"serial": {"present": {"value": "serial-1", "source": "/sys/serial"}}, "board_serial": "N/A"});
    assert_eq!(redactor.walk(value, Place::Anywhere), expected);
}

#[test]
fn a_host_called_like_a_value_of_the_schema_costs_that_section_only() {
    let mut snapshot = planted();
    snapshot.driver.modules = Reading::absent("x");
    snapshot.consumer.kind = ConsumerKind::Environment;
    // Not on the list of common words, so it is replaced where it stands alone: also as a value of an enumeration.
    let redacted = facts(secrets("/home/alice", &[], &["no-driver"]), snapshot);
    assert_eq!(redacted.scope, Scope::default());
    assert!(
        redacted.problems.iter().any(|p| p.contains("scope")),
        "{:?}",
        redacted.problems
    );
    assert!(redacted.driver.modules.is_absent());
}

/// Texts made of what the scanners look for, in any order.
fn nasty() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        proptest::sample::select(vec![
            "/home/alice",
            "/home/",
            "/root",
            "alice",
            "root",
            "cuda",
            "a",
            "bob",
            "gpu-box-17",
            "lab.example.org",
            "~",
            "/",
            "//",
            "\\",
            "Users",
            "home",
            "scratch",
            "@",
            "(",
            ")",
            ":",
            "://",
            "http://",
            "?",
            "#",
            "=",
            "-",
            "--",
            ".",
            "..",
            "...",
            " ",
            "\n",
            ",",
            "%",
            "_",
            "GPU-",
            "MIG-",
            "8932f937",
            UUID,
            "d72c",
            "4106",
            "host-1",
            "user-1",
            "ip-1",
            "mac-1",
            "serial-1",
            "GPU-1",
            "uuid-1",
            "builder",
            "aa:bb:cc:dd:ee:ff",
            "fe80::1",
            "::",
            "192.168.1.5",
            "10.1.2.3",
            "12.4.1.2",
            "Serial Number: ",
            "1322621000123",
            "Nov 20 10:00:01 ",
            " kernel: ",
            "[1]: ",
            "(none)",
            "so.1",
            "token",
            "-L",
            "1",
            "12",
            "ff",
            "localhost",
            "github.com",
            "é",
            "x",
        ])
        .prop_map(str::to_owned),
        "\\PC{0,3}",
        "[0-9a-f]{1,12}",
    ];
    proptest::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn redacting_twice_is_redacting_once(text in nasty()) {
        let mut redactor = Redactor::new(alice());
        let once = redactor.text(&text).into_owned();
        prop_assert_eq!(redactor.text(&once), once.as_str(), "by the same redactor");
        prop_assert_eq!(Redactor::new(alice()).text(&once), once.as_str(), "by another");
    }

    #[test]
    fn known_secrets_do_not_survive(before in nasty(), after in nasty()) {
        for secret in [UUID, "aa:bb:cc:0d:ee:0f", "gpu-box-17", "192.168.1.5"] {
            let text = format!("{before} {secret} {after}");
            let words = |text: &str| text.split_whitespace().filter(|word| *word == secret).count();
            prop_assert_eq!(words(&Redactor::new(alice()).text(&text)), 0, "{}", text);
        }
    }
}
