//! Architectures that builds here are told to write code for: (1) variables, (2) what `CMake` has cached, (3) the
//! commands that it wrote down. A build folder is one that lies in the working folder and has a name for it.

use super::Places;
use crate::facts::{ArchitectureRequest, Reading};
use crate::read::architectures::{self, Asked};
use crate::read::window::{ReadAt as _, bytes_up_to};
use crate::sysroot::join;

/// The most of a `CMakeCache.txt` or `compile_commands.json` that is read, in bytes.
const CAP: usize = 8 << 20;
/// The most build folders that are looked into.
const MOST_FOLDERS: usize = 16;
/// The most characters of a request that are kept.
const MOST_TEXT: usize = 200;

pub(super) fn find(
    places: &Places<'_>,
    working_folder: Option<&str>,
    unread: &mut Vec<String>,
) -> Vec<ArchitectureRequest> {
    type Reader = fn(&str) -> Asked;
    const VARIABLES: &[(&str, Reader)] = &[
        ("TORCH_CUDA_ARCH_LIST", architectures::of_torch),
        ("CUDAARCHS", architectures::of_cmake),
        ("NVCC_PREPEND_FLAGS", architectures::of_flags),
        ("NVCC_APPEND_FLAGS", architectures::of_flags),
    ];
    let mut found: Vec<ArchitectureRequest> = VARIABLES
        .iter()
        .filter_map(|(name, read)| {
            let value = places.variable(name)?;
            request(name, value, "environment", read(value), None)
        })
        .collect();
    for folder in working_folder
        .into_iter()
        .flat_map(|dir| folders(places, dir))
    {
        let cache = join(&folder, "CMakeCache.txt");
        if let Some(text) = text(places, &cache, unread) {
            let said = architectures::cmake_cache(&text);
            if let Some(list) = &said.architectures {
                let asked = architectures::of_cmake(list);
                let compiler = said.compiler.clone();
                found.extend(request(
                    "CMAKE_CUDA_ARCHITECTURES",
                    list,
                    &cache,
                    asked,
                    compiler,
                ));
            }
            if let Some(flags) = &said.flags {
                let asked = architectures::of_flags(flags);
                found.extend(request(
                    "CMAKE_CUDA_FLAGS",
                    flags,
                    &cache,
                    asked,
                    said.compiler,
                ));
            }
        }
        let commands = join(&folder, "compile_commands.json");
        if let Some(text) = text(places, &commands, unread) {
            let (asked, nvcc) = architectures::compile_commands(&text);
            let words: Vec<&str> = asked.written.iter().map(String::as_str).collect();
            let words = words.join(" ");
            found.extend(request(
                "compile_commands.json",
                &words,
                &commands,
                asked,
                nvcc,
            ));
        }
    }
    found
}

/// The working folder, and the build folders in it.
fn folders(places: &Places<'_>, working_folder: &str) -> Vec<String> {
    let is_build =
        |name: &str| name == "out" || name.starts_with("build") || name.starts_with("cmake-build");
    let mut inside: Vec<String> = places
        .sysroot
        .list(working_folder, is_build)
        .items()
        .iter()
        .map(|name| join(working_folder, name))
        .collect();
    inside.sort();
    inside.truncate(MOST_FOLDERS);
    inside.insert(0, working_folder.to_owned());
    inside
}

fn text(places: &Places<'_>, path: &str, unread: &mut Vec<String>) -> Option<String> {
    let file = places.sysroot.file(path);
    if let Reading::Unreadable { reason } = &file {
        unread.push(reason.clone());
    }
    let file = file.value()?;
    if file.len() > CAP as u64 {
        unread.push(format!(
            "{path}: of its {} bytes {CAP} were read",
            file.len()
        ));
    }
    let bytes = bytes_up_to(file, 0, CAP);
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn request(
    by: &str,
    text: &str,
    source: &str,
    asked: Asked,
    nvcc: Option<String>,
) -> Option<ArchitectureRequest> {
    (!asked.is_empty()).then(|| ArchitectureRequest {
        by: by.to_owned(),
        text: text.chars().take(MOST_TEXT).collect(),
        source: source.to_owned(),
        written: asked.written.into_iter().collect(),
        named: asked.named.into_iter().collect(),
        open: asked.open,
        nvcc,
    })
}
