//! Libraries, programs and kernel modules of a described host as files.

use std::collections::BTreeMap;
use std::path::Path;

use super::answers;
use super::elf::{self, Machine, SharedObject, Symbol};
use super::host::{ElfFile, Host};
use super::tree::Tree;

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

/// The C library: names, sonames and version nodes are right, and there is no code behind them.
pub fn c_library(
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
        // A host of another C library says so.
        .filter(|path| !host.absent.contains(path))
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
pub fn node_names(host: &Host) -> Vec<String> {
    host.elf
        .iter()
        .flat_map(|file| &file.undefined)
        .filter_map(|symbol| Symbol::parse(symbol).node)
        .collect()
}

/// A library with the link by its soname, a program, or a kernel module.
pub fn elf_file(
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
        gfx: file.gfx.clone(),
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
