//! Lays a described host out as a tree of files under a folder that stands for its root.
//!
//! What a folder cannot hold without root - device nodes, the calling user, the answers of libraries - is handed back
//! beside it, as the live probes would record it. Nothing outside the folder is written.

use std::collections::BTreeMap;
use std::path::Path;

use gpudoctor::facts::{Calls, DeviceNode, User, VendorFacts};

use super::answers;
use super::elf::{Machine, SharedObject};
use super::host::{Host, Node};
use super::library::{c_library, elf_file, node_names};
use super::loader::{self, Loader};
use super::python::python;
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

/// A temporary folder for a host, in memory where there is a place for that: thousands of small files are made and removed
/// again, which takes a disk's file system several times as long.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("a temporary folder can be made")
}

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
        if file.path.contains("/bin/") {
            tree.set_mode(&file.path, 0o755);
        }
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
        library_path: library_path(&environment),
        cache: Vec::new(),
        defaults,
    };
    loader.cache = loader_cache(host, &loader);

    let user = user(host);
    let calls = answers::calls(host, &tree);
    Laid {
        nodes: host.nodes.iter().map(Node::fact).collect(),
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

/// The folders of `LD_LIBRARY_PATH`. What is preloaded comes before all of them: its folder answers first.
fn library_path(environment: &BTreeMap<String, String>) -> Vec<String> {
    let parts = |name: &str| {
        let value = environment.get(name).map_or("", String::as_str);
        value.split([':', ';']).filter(|part| !part.is_empty())
    };
    let preloaded = parts("LD_PRELOAD").filter_map(|path| Some(path.rsplit_once('/')?.0));
    preloaded
        .chain(parts("LD_LIBRARY_PATH"))
        .map(str::to_owned)
        .collect()
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
