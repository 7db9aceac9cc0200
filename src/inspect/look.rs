//! One file, read: everything of it that can be told from its own bytes.

use super::{File, Go, Identity, KernelModule, Kind, Linkage, Needed, Runtime, Use};
use crate::facts::GfxCode;
use crate::read::ar;
use crate::read::elf::{self, Elf, Shape};
use crate::read::fatbin::{self, DeviceCode, Look};
use crate::read::gobuild;
use crate::read::kmod::{self, Compression};
use crate::read::linkage::{self, linkage};
use crate::read::needs::{highest_need, version_needs};
use crate::read::offload;
use crate::read::part::Part;
use crate::read::recipes;
use crate::read::window::{ReadAt, bytes_up_to};
use crate::sysroot::file_name;

/// The most members of a static library whose own words are kept.
const MAX_PROBLEMS: usize = 8;

/// Says what a file is and holds. `path` is for its name only.
pub fn look(file: &dyn ReadAt, path: &str, how: Look) -> File {
    let mut found = File {
        path: path.to_owned(),
        size_bytes: file.len(),
        ..File::default()
    };
    if let Some(packing) = Compression::from_file_name(path) {
        kernel_module(file, packing, &mut found);
        if found.kind == Kind::KernelModule {
            return found;
        }
    }
    match elf::identify(file) {
        Shape::Elf(elf) => elf_file(file, &elf, how, &mut found),
        Shape::Empty => described(&mut found, Kind::Empty, "an empty file"),
        Shape::Unreadable(why) => described(&mut found, Kind::Unreadable, &why),
        Shape::Truncated(why) => {
            let words = format!("an ELF file that is cut off: {why}");
            described(&mut found, Kind::Truncated, &words);
        }
        Shape::NotElf(words) => other_file(file, &words, how, &mut found),
    }
    found
}

fn described(found: &mut File, kind: Kind, words: &str) {
    found.kind = kind;
    words.clone_into(&mut found.description);
}

fn kernel_module(file: &dyn ReadAt, packing: Compression, found: &mut File) {
    let Ok(info) = kmod::modinfo(file, packing) else {
        return;
    };
    described(found, Kind::KernelModule, "kernel module");
    if let Shape::Elf(elf) = elf::identify(file) {
        found.arch = Some(elf.arch);
    }
    found.module = Some(KernelModule {
        name: info
            .name
            .or_else(|| kmod::module_name(&found.path).map(str::to_owned)),
        version: info.version,
        vermagic: info.vermagic,
        license: info.license,
        signed: info.signed,
    });
}

fn elf_file(file: &dyn ReadAt, elf: &Elf, how: Look, found: &mut File) {
    let is_cubin = fatbin::cubin_arch(file).is_some();
    let (kind, words) = match elf.kind {
        _ if is_cubin => (Kind::Cubin, "cubin"),
        elf::Kind::SharedObject => (Kind::SharedLibrary, "shared library"),
        elf::Kind::Executable => (Kind::Program, "program"),
        elf::Kind::Relocatable => (Kind::Object, "object file"),
        elf::Kind::Core => (Kind::Core, "core dump"),
        elf::Kind::Other(_) => (Kind::Other, "ELF file of another type"),
    };
    described(found, kind, words);
    if !is_cubin {
        found.arch = Some(elf.arch.clone());
    }
    found.soname.clone_from(&elf.soname);
    found.build_id.clone_from(&elf.build_id);
    found.interpreter.clone_from(&elf.interp);
    found.rpath.clone_from(&elf.rpath);
    found.runpath.clone_from(&elf.runpath);
    found.needed = elf
        .needed
        .iter()
        .map(|soname| Needed {
            soname: soname.clone(),
            ..Needed::default()
        })
        .collect();
    let code = fatbin::device_code(file, how);
    found.take_device_code(&code);
    if code.rocm {
        found.gfx = offload::bundles(file, &mut |_| false).map(GfxCode::from);
    }
    if is_cubin || matches!(kind, Kind::Core | Kind::Object) {
        return;
    }
    let needs = version_needs(file);
    found.glibc = highest_need(&needs, "GLIBC_");
    found.glibcxx = highest_need(&needs, "GLIBCXX_");
    found.cxxabi = highest_need(&needs, "CXXABI_");
    let linked = linkage(file, elf, &needs, !code.is_empty(), how);
    found.libcuda = driver_use(linked.libcuda);
    found.libnvidia_ml = driver_use(linked.libnvidia_ml);
    found.runtime = Runtime {
        linkage: match linked.runtime {
            linkage::Runtime::Dynamic => Linkage::Dynamic,
            linkage::Runtime::Static => Linkage::Static,
            linkage::Runtime::Dlopen => Linkage::Dlopen,
            linkage::Runtime::None => Linkage::None,
        },
        version: linked.version,
        library: linked.library,
        linked_as: linked.linked_as,
    };
    found.identity =
        recipes::identify(file, elf, file_name(&found.path)).map(|identity| Identity {
            name: identity.name,
            version: identity.version,
            source: identity.source,
            cuda: identity.cuda,
        });
    if let Some(name) = found
        .identity
        .as_ref()
        .map(|identity| identity.name.as_str())
    {
        // A library of the driver names itself among its texts.
        if name == "libcuda" {
            found.libcuda = Use::None;
        }
        if name == "libnvidia-ml" {
            found.libnvidia_ml = Use::None;
        }
    }
    if kind == Kind::Program
        && let Some(build) = gobuild::build(file)
    {
        "Go program".clone_into(&mut found.description);
        found.go = Some(Go {
            version: build.go,
            path: build.path,
            module_count: build.modules.len() as u64,
            modules: build
                .modules
                .into_iter()
                .filter(|(name, _)| is_gpu_module(name))
                .collect(),
        });
    }
}

/// Go modules that talk to the GPU or to its container glue.
fn is_gpu_module(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["nvidia", "nvml", "cuda", "rocm", "dcgm"]
        .iter()
        .any(|word| name.contains(word))
}

fn driver_use(driver: linkage::Driver) -> Use {
    match driver {
        linkage::Driver::Needed => Use::Needed,
        linkage::Driver::Dlopen => Use::Dlopen,
        linkage::Driver::None => Use::None,
    }
}

fn other_file(file: &dyn ReadAt, words: &str, how: Look, found: &mut File) {
    if words.starts_with("a Git LFS pointer") {
        described(found, Kind::GitLfsPointer, words);
        return;
    }
    if let Some(members) = ar::members(file) {
        let count = members.len();
        let mut code = DeviceCode::default();
        let mut objects = 0;
        for (_, range) in members {
            let member = Part::new(file, range);
            match elf::identify(&member) {
                Shape::Elf(elf) => {
                    objects += 1;
                    found.arch.get_or_insert(elf.arch);
                    code.add(fatbin::device_code(&member, how));
                }
                Shape::Truncated(why) if found.problems.len() < MAX_PROBLEMS => {
                    found.problems.push(format!("a member is cut off: {why}"));
                }
                _ => {}
            }
        }
        found.take_device_code(&code);
        let words = format!("static library of {objects} object files");
        described(
            found,
            Kind::StaticLibrary,
            if count == objects {
                &words
            } else {
                "static library"
            },
        );
        return;
    }
    let code = fatbin::device_code(file, how);
    let start = bytes_up_to(file, 0, 4);
    if start == [0x50, 0xed, 0x55, 0xba] {
        described(found, Kind::Fatbin, "fat binary");
    } else if code.is_empty() {
        described(found, Kind::Other, words);
    } else {
        described(found, Kind::Ptx, "PTX text");
    }
    found.take_device_code(&code);
}
