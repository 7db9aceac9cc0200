//! What shows that CUDA code is compiled here: variables that only builds read, the project in the working folder and
//! what it was built into, ninja in the environment, extensions that `PyTorch` has compiled while programs ran.

use super::Places;
use crate::facts::{BuildSign, Consumer, ConsumerKind, SignKind};
use crate::probe::consumer::has_extension;
use crate::read::toolchain;
use crate::sysroot::join;

/// The most of a project's build file that is read, in bytes.
const BUILD_FILE_CAP: usize = 64 << 10;
/// What is read of a `build.ninja`, in bytes: the compilers stand at its beginning.
const NINJA_CAP: usize = 16 << 10;
/// Folders of builds that are looked into.
const MAX_FOLDERS: usize = 8;

/// Variables that only builds read.
const VARIABLES: &[&str] = &[
    "CUDAARCHS",
    "CUDACXX",
    "CUDAHOSTCXX",
    "CUDA_HOME",
    "CUDA_PATH",
    "FLASH_ATTN_CUDA_ARCHS",
    "FORCE_CUDA",
    "NVCC_APPEND_FLAGS",
    "NVCC_CCBIN",
    "NVCC_PREPEND_FLAGS",
    "NVTE_CUDA_ARCHS",
    "TCNN_CUDA_ARCHITECTURES",
    "TORCH_CUDA_ARCH_LIST",
    "TORCH_NVCC_FLAGS",
];
/// The beginnings of others: those of flash-attn, of `DeepSpeed`'s prebuilt operators.
const FAMILIES: &[&str] = &["DS_BUILD_", "FLASH_ATTENTION_FORCE_"];
/// Files of the working folder that say how a project is built.
const PROJECT: &[&str] = &["setup.py", "pyproject.toml", "CMakeLists.txt"];
/// Folders below it that hold the sources of an extension.
const SOURCES: &[&str] = &["", "csrc", "src", "cuda", "kernels"];

pub(super) fn find(
    places: &Places<'_>,
    working_folder: Option<&str>,
    consumer: &Consumer,
) -> Vec<BuildSign> {
    let mut signs = variables(places);
    if let Some(folder) = working_folder {
        signs.extend(project(places, folder));
        signs.extend(built_in(places, folder));
    }
    signs.extend(ninja(places, consumer));
    signs.extend(built_while_running(places, consumer));
    signs
}

fn variables(places: &Places<'_>) -> Vec<BuildSign> {
    let family = places
        .env
        .keys()
        .map(String::as_str)
        .filter(|name| FAMILIES.iter().any(|start| name.starts_with(start)));
    VARIABLES
        .iter()
        .copied()
        .chain(family)
        .filter_map(|name| {
            Some(BuildSign {
                kind: SignKind::Variable,
                what: format!("{name}={}", places.variable(name)?),
                source: "environment".to_owned(),
            })
        })
        .collect()
}

/// The project in the working folder: its build file speaks of CUDA, or it asks for torch to be built with and has CUDA
/// sources.
fn project(places: &Places<'_>, folder: &str) -> Option<BuildSign> {
    let sign = |what: String, source: String| BuildSign {
        kind: SignKind::Project,
        what,
        source,
    };
    let mut needs_torch = None;
    for name in PROJECT {
        let path = join(folder, name);
        let text = places.sysroot.text_up_to(&path, BUILD_FILE_CAP);
        let Some(text) = text.value() else { continue };
        if toolchain::builds_cuda(name, text) {
            let what = format!("{name} of the working folder compiles CUDA code");
            return Some(sign(what, path));
        }
        if toolchain::builds_with_torch(name, text) {
            needs_torch.get_or_insert(*name);
        }
    }
    let name = needs_torch?;
    SOURCES.iter().find_map(|dir| {
        let dir = match *dir {
            "" => folder.to_owned(),
            dir => join(folder, dir),
        };
        let sources = places.sysroot.list(&dir, |name| has_extension(name, "cu"));
        let source = sources.items().first()?;
        let what = format!("{name} of the working folder builds with torch, and {source} is there");
        Some(sign(what, join(&dir, source)))
    })
}

/// What `torch.utils.cpp_extension` left of the project's last build: `build/temp.linux-x86_64-cpython-312/build.ninja`.
fn built_in(places: &Places<'_>, folder: &str) -> Option<BuildSign> {
    let build = join(folder, "build");
    let temp = places
        .sysroot
        .list(&build, |name| name.starts_with("temp."));
    temp.items()
        .iter()
        .take(MAX_FOLDERS)
        .find_map(|name| compiled(places, &join(&build, name), SignKind::Project))
}

/// A folder whose `build.ninja` names an nvcc.
fn compiled(places: &Places<'_>, folder: &str, kind: SignKind) -> Option<BuildSign> {
    let path = join(folder, "build.ninja");
    let text = places.sysroot.text_up_to(&path, NINJA_CAP);
    let nvcc = toolchain::nvcc_of_ninja(text.value()?)?;
    Some(BuildSign {
        kind,
        what: format!("an extension was compiled by {nvcc}"),
        source: path,
    })
}

/// ninja in the environment, by which `PyTorch` compiles extensions.
fn ninja(places: &Places<'_>, consumer: &Consumer) -> Option<BuildSign> {
    let prefix = consumer
        .prefix
        .value()
        .filter(|_| consumer.kind == ConsumerKind::Environment)
        .filter(|prefix| *prefix != "/usr")?;
    let path = join(prefix, "bin/ninja");
    places.is_program(&path).then(|| BuildSign {
        kind: SignKind::Tool,
        what: "ninja, by which PyTorch compiles extensions".to_owned(),
        source: path,
    })
}

/// Extensions that torch has compiled while programs ran (`DeepSpeed`'s operators come about so), those for its own CUDA:
/// `~/.cache/torch_extensions/py312_cu128/NAME/build.ninja`.
fn built_while_running(places: &Places<'_>, consumer: &Consumer) -> Option<BuildSign> {
    let cuda = consumer.torch_cuda.value()?;
    let top = match places.variable("TORCH_EXTENSIONS_DIR") {
        Some(dir) => dir.to_owned(),
        None => join(places.variable("HOME")?, ".cache/torch_extensions"),
    };
    let wanted = format!("_cu{}{}", cuda.major(), cuda.minor());
    let of_cuda = places.sysroot.list(&top, |name| name.ends_with(&wanted));
    let folders = of_cuda.items().iter().take(MAX_FOLDERS);
    folders.map(|name| join(&top, name)).find_map(|dir| {
        let built = places.sysroot.list(&dir, |name| !name.starts_with('.'));
        let mut built = built.items().iter().take(MAX_FOLDERS);
        built.find_map(|name| compiled(places, &join(&dir, name), SignKind::Tool))
    })
}
