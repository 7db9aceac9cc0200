//! Lays a described host out as a tree of files under a folder that stands for its root.
//!
//! What a folder cannot hold without root - device nodes, the calling user, the answers of libraries - is handed back
//! beside it, as the live probes would record it. Nothing outside the folder is written.

use std::collections::BTreeMap;
use std::path::Path;

use gpudoctor::facts::{Calls, DeviceNode, User, VendorFacts};

use super::answers;
use super::elf::{self, Machine, SharedObject, Symbol};
use super::host::{ElfFile, Host};
use super::loader::{self, Loader};
use super::tree::Tree;

/// What belongs to a laid-out host beside its files.
#[derive(Clone, Debug)]
pub struct Laid {
    /// The environment of the process that asks.
    pub environment: BTreeMap<String, String>,
    /// Its device nodes.
    pub nodes: Vec<DeviceNode>,
    /// The user who asks.
    pub user: User,
    /// What the vendor libraries and `open()` answer.
    pub vendor: VendorFacts,
    /// What `uname -r` answers.
    pub kernel_release: String,
    /// What `uname -m` answers.
    pub arch: String,
    /// Sockets of the host. Those whose path was short enough are there as files too.
    pub sockets: Vec<String>,
    /// Whether calls with side effects are made on such a host.
    pub calls: Calls,
}

/// A longer path does not fit into a socket's address (108 bytes with the NUL).
const MAX_SOCKET_PATH: usize = 107;

/// Libraries of the C library beside `libc.so.6` itself, and the compiler's.
const C_LIBRARIES: [&str; 6] = [
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "libutil.so.1",
];

/// Version nodes of the libc stand-in, which is that of Debian 12.
const LIBC_NODES: [&str; 6] = [
    "GLIBC_2.2.5",
    "GLIBC_2.17",
    "GLIBC_2.28",
    "GLIBC_2.34",
    "GLIBC_2.35",
    "GLIBC_2.36",
];

/// What a process in a login session on a plain disk reads about itself, where the host does not say otherwise.
const OWN_FILES: [(&str, &str); 2] = [
    (
        "/proc/self/cgroup",
        "0::/user.slice/user-1000.slice/session-1.scope\n",
    ),
    (
        "/proc/self/mountinfo",
        "25 1 0:25 / / rw,relatime shared:25 - ext4 /dev/sda2 rw\n\
         26 25 0:26 / /sys rw,relatime shared:26 - sysfs sysfs rw\n\
         27 25 0:27 / /proc rw,relatime shared:27 - proc proc rw\n\
         28 25 0:28 / /dev rw,relatime shared:28 - devtmpfs udev rw\n\
         29 25 0:29 / /run rw,relatime shared:29 - tmpfs tmpfs rw\n\
         30 25 0:30 / /sys/fs/cgroup rw,relatime shared:30 - cgroup2 cgroup2 rw\n",
    ),
];

/// Lays `host` out under `root`, an empty folder.
pub fn lay_out(host: &Host, root: &Path) -> Laid {
    let tree = Tree::new(root);
    let machine = Machine::named(host.machine());
    let library_folder = format!("/usr/lib/{}-linux-gnu", host.machine());
    for folder in [
        "proc",
        "sys",
        "dev",
        "etc",
        "tmp",
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "root",
        "var",
        "run",
    ] {
        tree.make_folder(&format!("/{folder}"));
    }
    tree.make_folder(&library_folder);
    for (link, target) in [
        ("/lib", "usr/lib"),
        ("/lib64", "usr/lib64"),
        ("/bin", "usr/bin"),
        ("/var/run", "/run"),
    ] {
        tree.link(link, target);
    }

    let mut sonames = BTreeMap::new();
    c_library(host, &tree, machine, &library_folder, &mut sonames);
    let nodes = node_names(host);
    for file in &host.elf {
        elf_file(host, file, &nodes, &tree, &mut sonames);
    }
    let mut environment = python(host, &tree);
    for (path, text) in &host.files {
        tree.write(path, text.as_bytes());
    }
    for (path, digits) in &host.files_hex {
        tree.write(path, &unhex(path, digits));
    }
    tools(host, &tree, machine);
    for (path, target) in &host.links {
        tree.link(path, target);
    }
    for (path, text) in OWN_FILES {
        if !host.files.contains_key(path) {
            tree.write(path, text.as_bytes());
        }
    }
    for path in &host.sockets {
        let place = tree.place(path);
        if place.as_os_str().len() <= MAX_SOCKET_PATH {
            // Closed at once: the file stays, and nobody listens.
            drop(
                std::os::unix::net::UnixListener::bind(&place)
                    .unwrap_or_else(|e| panic!("{path}: {e}")),
            );
        }
    }
    for (path, mode) in &host.modes {
        tree.set_mode(
            path,
            u32::from_str_radix(mode, 8).unwrap_or_else(|e| panic!("mode {mode} of {path}: {e}")),
        );
    }

    environment.extend(host.env.clone());
    let defaults = vec![
        library_folder,
        "/usr/lib64".to_owned(),
        "/usr/lib".to_owned(),
    ];
    let mut loader = Loader {
        tree: &tree,
        machine,
        sonames: &sonames,
        library_path: environment
            .get("LD_LIBRARY_PATH")
            .map(|value| {
                value
                    .split([':', ';'])
                    .filter(|d| !d.is_empty())
                    .map(str::to_owned)
                    .collect()
            })
            .unwrap_or_default(),
        cache: Vec::new(),
        defaults,
    };
    loader.cache = loader_cache(host, &loader);

    let user = user(host);
    let calls = answers::calls(host, &tree);
    Laid {
        nodes: host.nodes.iter().map(super::host::Node::fact).collect(),
        vendor: answers::vendor(host, &loader, &environment, &user, calls),
        kernel_release: host
            .files
            .get("/proc/sys/kernel/osrelease")
            .map_or("6.1.0", |t| t.trim())
            .to_owned(),
        arch: host.machine().to_owned(),
        sockets: host.sockets.clone(),
        environment,
        user,
        calls,
    }
}

/// Writes the loader's configuration and cache; answers the cache's content.
fn loader_cache(host: &Host, loader: &Loader<'_>) -> Vec<(String, String)> {
    let mut folders: Vec<String> = Vec::new();
    for (_, path) in host
        .ldcache
        .iter()
        .filter_map(|line| loader::parse_line(line))
    {
        let folder = path
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder)
            .to_owned();
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    let text: String = folders
        .iter()
        .flat_map(|folder| [folder.as_str(), "\n"])
        .collect();
    loader
        .tree
        .write("/etc/ld.so.conf.d/00-host.conf", text.as_bytes());
    let text = format!("include /etc/ld.so.conf.d/*.conf\n{}\n", loader.defaults[0]);
    loader.tree.write("/etc/ld.so.conf", text.as_bytes());
    folders.extend(
        loader
            .defaults
            .iter()
            .filter(|d| !folders.contains(d))
            .cloned()
            .collect::<Vec<_>>(),
    );
    let content = loader::cache_content(
        &host.ldcache,
        &folders,
        loader.tree,
        loader.machine,
        loader.sonames,
    );
    loader.tree.write(
        "/etc/ld.so.cache",
        &loader::cache_file(&content, loader.machine),
    );
    content
}

/// The C library: names, sonames and version nodes are right, and there is no code behind them.
fn c_library(
    host: &Host,
    tree: &Tree,
    machine: Machine,
    folder: &str,
    sonames: &mut BTreeMap<String, String>,
) {
    let loader = match machine {
        Machine::X86_64 => "/usr/lib64/ld-linux-x86-64.so.2",
        Machine::Aarch64 => "/usr/lib/ld-linux-aarch64.so.1",
    };
    let mut paths = vec![format!("{folder}/libc.so.6"), loader.to_owned()];
    paths.extend(C_LIBRARIES.map(|name| format!("{folder}/{name}")));
    for path in paths
        .iter()
        .filter(|path| host.elf.iter().all(|file| file.path != **path))
    {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_libc = name == "libc.so.6";
        let object = SharedObject {
            machine,
            soname: name.to_owned(),
            defined: vec![Symbol::parse(if is_libc {
                "gnu_get_libc_version@@GLIBC_2.2.5"
            } else {
                "_stand_in"
            })],
            nodes: if is_libc {
                LIBC_NODES.map(str::to_owned).to_vec()
            } else {
                Vec::new()
            },
            texts: if is_libc {
                vec!["GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.".to_owned()]
            } else {
                Vec::new()
            },
            ..SharedObject::default()
        };
        tree.write(path, &object.write());
        sonames.insert(tree.resolve(path).unwrap(), name.to_owned());
    }
}

/// Every version node that a described library needs of another one: `libnvJitLink.so.12` of `symbol@libnvJitLink.so.12`.
fn node_names(host: &Host) -> Vec<String> {
    host.elf
        .iter()
        .flat_map(|file| &file.undefined)
        .filter_map(|symbol| Symbol::parse(symbol).node)
        .collect()
}

/// A library with the link by its soname, a program, or a kernel module.
fn elf_file(
    host: &Host,
    file: &ElfFile,
    nodes: &[String],
    tree: &Tree,
    sonames: &mut BTreeMap<String, String>,
) {
    let machine = Machine::named(file.machine.as_deref().unwrap_or(host.machine()));
    let bytes = if is_module(&file.path) {
        kernel_module(file, machine)
    } else {
        library(host, file, machine, nodes)
    };
    tree.write(&file.path, &bytes);
    if let Some(size) = file.size.filter(|size| *size > 0) {
        let size = if size < 64 {
            size
        } else {
            size.max(bytes.len() as u64)
        };
        tree.resize(&file.path, size);
    }
    if file.soname.is_empty() {
        return;
    }
    sonames.insert(tree.resolve(&file.path).unwrap(), file.soname.clone());
    let (folder, name) = file.path.rsplit_once('/').unwrap();
    let beside = format!("{folder}/{}", file.soname);
    if file.soname.contains(".so") && file.link.unwrap_or(true) && !tree.has_entry(&beside) {
        tree.link(&beside, name);
    }
}

/// Whether the path is that of a kernel module.
pub fn is_module(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|e| e == "ko")
}

fn kernel_module(file: &ElfFile, machine: Machine) -> Vec<u8> {
    let name = file
        .path
        .rsplit('/')
        .next()
        .unwrap_or_default()
        .trim_end_matches(".ko");
    // Debian renames the files to nvidia-current.ko and the like; the module's own name stays.
    let name = name
        .replace("-current", "")
        .replace("-open", "")
        .replace('-', "_");
    let info = [
        ("version", file.version.as_str()),
        (
            "license",
            file.modinfo_license.as_deref().unwrap_or("NVIDIA"),
        ),
        ("name", &name),
        (
            "vermagic",
            file.modinfo_vermagic.as_deref().unwrap_or_default(),
        ),
        ("signer", file.modinfo_signer.as_deref().unwrap_or_default()),
    ];
    let info: Vec<_> = info
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect();
    elf::kernel_module(
        machine,
        &info,
        file.signature_appended || file.modinfo_signer.is_some(),
    )
}

fn library(host: &Host, file: &ElfFile, machine: Machine, nodes: &[String]) -> Vec<u8> {
    let name = file.path.rsplit('/').next().unwrap_or_default();
    let mut texts = vec![
        file.version_string
            .clone()
            .unwrap_or_else(|| format!("version {}", file.version)),
    ];
    let mut defined: Vec<Symbol> = file
        .defines
        .iter()
        .map(|symbol| Symbol::parse(symbol))
        .collect();
    let mut version_nodes = file.version_nodes.clone();
    let mut exports = |names: &[&str], code: &[u8]| {
        for name in names {
            defined.push(Symbol {
                code: code.to_vec(),
                ..Symbol::parse(name)
            });
        }
    };
    if name.starts_with("libcuda.so") {
        texts.push(file.version.clone());
        exports(&["cuInit", "cuDriverGetVersion", "cuDeviceGetCount"], &[]);
    } else if name.starts_with("libnvidia-ml.so") {
        // As the real one has it: the CUDA version it was built for and the driver's, in one text.
        texts.push(format!("{}.{}", answers::cuda_major(host), file.version));
        exports(
            &[
                "nvmlInit_v2",
                "nvmlSystemGetDriverVersion",
                "nvmlDeviceGetCount_v2",
            ],
            &[],
        );
    } else if name.starts_with("libcudart.so") {
        texts.push("/cudart.shm.%x.%x.%llx".to_owned());
        // The real runtimes have the constant in their code at least twice.
        let code = machine.store_constant(answers::runtime_level(host, file));
        exports(&["cudaRuntimeGetVersion", "cudaGetDeviceCount"], &code);
        exports(&["cudaDriverGetVersion"], &[]);
        version_nodes.push(file.soname.clone());
    }
    // NVIDIA's libraries call their one version node by their soname.
    if nodes.contains(&file.soname) {
        version_nodes.push(file.soname.clone());
    }
    if version_nodes.contains(&file.soname) && !file.soname.is_empty() {
        for symbol in defined.iter_mut().filter(|symbol| symbol.node.is_none()) {
            symbol.node = Some(file.soname.clone());
        }
    }
    let undefined = file.undefined.iter().map(|text| {
        let mut symbol = Symbol::parse(text);
        symbol.library = symbol.node.as_deref().map(library_of_node);
        symbol
    });
    let ptx = file
        .ptx
        .iter()
        .map(|arch| arch.replacen("sm_", "compute_", 1));
    SharedObject {
        machine,
        soname: file.soname.clone(),
        needed: file.needed.clone(),
        runpath: file.runpath.clone(),
        rpath: file.rpath.clone(),
        undefined: undefined.collect(),
        defined,
        nodes: version_nodes
            .into_iter()
            .filter(|node| !node.is_empty())
            .collect(),
        texts,
        notes: file
            .compat_note
            .iter()
            .map(|note| {
                (
                    ".note.cuda.fwd_compatibility",
                    elf::compat_note(&note.cuda, &note.drivers),
                )
            })
            .collect(),
        device_code: file.cubins.iter().cloned().chain(ptx).collect(),
    }
    .write()
}

/// The library that a version node is looked for in.
fn library_of_node(node: &str) -> String {
    if node.starts_with("GLIBC_") {
        "libc.so.6".to_owned()
    } else if node.starts_with("GLIBCXX_") || node.starts_with("CXXABI_") {
        "libstdc++.so.6".to_owned()
    } else {
        node.to_owned()
    }
}

/// Python distributions with the interpreter of the first one's environment; answers the environment of a run.
fn python(host: &Host, tree: &Tree) -> BTreeMap<String, String> {
    let mut environment: BTreeMap<String, String> = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/root"),
        ("NO_COLOR", "1"),
        ("LANG", "C.UTF-8"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    for (i, distribution) in host.python.iter().enumerate() {
        let (name, version, site) = (
            &distribution.name,
            &distribution.version,
            &distribution.site,
        );
        let words: Vec<&str> = name
            .split(['-', '_', '.'])
            .filter(|word| !word.is_empty())
            .collect();
        let text = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
        tree.write(
            &format!("{site}/{}-{version}.dist-info/METADATA", words.join("_")),
            text.as_bytes(),
        );
        let Some((prefix, python)) = prefix_of(site).filter(|_| i == 0) else {
            continue;
        };
        let mut prefix = prefix.to_owned();
        // A user's own site: the interpreter is the system's.
        if let Some(home) = prefix.strip_suffix("/.local") {
            environment.insert("HOME".to_owned(), home.to_owned());
            "/usr".clone_into(&mut prefix);
        }
        let program = format!("{prefix}/bin/{python}");
        if !tree.has_entry(&program) {
            tree.write(&program, b"#!/bin/sh\nexit 127\n");
            tree.set_mode(&program, 0o755);
            tree.link(&format!("{prefix}/bin/python3"), python);
        }
        if !host.env.contains_key("CONDA_PREFIX") && is_virtual_environment(&prefix) {
            environment.insert("VIRTUAL_ENV".to_owned(), prefix.clone());
            let version = python.trim_start_matches("python");
            let text = format!("home = /usr/bin\nversion = {version}.0\n");
            tree.write(&format!("{prefix}/pyvenv.cfg"), text.as_bytes());
        }
        environment.insert("PATH".to_owned(), format!("{prefix}/bin:/usr/bin:/bin"));
    }
    environment
}

/// Prefix and interpreter of a site-packages folder: `/opt/venv`, `python3.12`.
pub fn prefix_of(site: &str) -> Option<(&str, &str)> {
    let site = site
        .strip_suffix("/site-packages")
        .or_else(|| site.strip_suffix("/dist-packages"))?;
    let (rest, python) = site.rsplit_once('/')?;
    let prefix = rest.strip_suffix("/lib")?;
    let minor = python.strip_prefix("python3.")?;
    (!minor.is_empty() && minor.chars().all(|c| c.is_ascii_digit())).then_some((prefix, python))
}

/// Whether a prefix is called as virtual environments are: its name begins with env, venv, .env or .venv.
fn is_virtual_environment(prefix: &str) -> bool {
    let name = prefix.rsplit('/').next().unwrap_or_default();
    let name = name.strip_prefix('.').unwrap_or(name);
    let name = name.strip_prefix('v').unwrap_or(name);
    name.starts_with("env")
}

/// Programs that answer: files that hold the answers as texts. Nobody runs them here.
fn tools(host: &Host, tree: &Tree, machine: Machine) {
    let mut programs: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (command, answer) in &host.answers {
        let program = command.split_whitespace().next().unwrap_or_default();
        if program.starts_with('/') {
            programs.entry(program).or_default().push(answer.clone());
        }
    }
    for (program, texts) in programs {
        if !tree.has_entry(program) {
            tree.write(
                program,
                &SharedObject {
                    machine,
                    texts,
                    ..SharedObject::default()
                }
                .write(),
            );
            tree.set_mode(program, 0o755);
        }
    }
}

/// The user by `uid` and `groups`, else by `/proc/self/status`, else root.
fn user(host: &Host) -> User {
    let status = host
        .files
        .get("/proc/self/status")
        .map_or("", String::as_str);
    let ids = |name: &str| -> Vec<u32> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default()
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect()
    };
    let uid = host
        .uid
        .or_else(|| ids("Uid").first().copied())
        .unwrap_or(0);
    User {
        uid,
        gid: ids("Gid").first().copied().unwrap_or(uid),
        groups: host.groups.clone().unwrap_or_else(|| ids("Groups")),
    }
}

fn unhex(path: &str, digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits
        .bytes()
        .filter(|c| !c.is_ascii_whitespace())
        .collect();
    digits
        .chunks(2)
        .map(|pair| {
            let text = std::str::from_utf8(pair).unwrap();
            u8::from_str_radix(text, 16).unwrap_or_else(|e| panic!("{path}: {text}: {e}"))
        })
        .collect()
}
