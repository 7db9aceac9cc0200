//! Host compilers: those that nvcc would call, and others that could be named to it.
//!
//! nvcc calls, in this order, what `-ccbin` in its flag variables names, what `NVCC_CCBIN` names, the `gcc` beside its own
//! program (its profile puts that folder first on `PATH`), the `gcc` on `PATH`. `CUDAHOSTCXX` is read by `CMake`, `CC` by
//! `torch.utils.cpp_extension`; both hand it on as `-ccbin`.

use super::Places;
use crate::facts::{Compiler, CompilerFamily, CompilerUse, Nvcc, Reading};
use crate::read::toolchain::{
    compiler_name, compiler_of_flags, compiler_word, full_compiler_version,
};
use crate::sysroot::{Kind, Sysroot, file_name, join, parent};
use crate::version::Version;

/// Variables that hold flags of nvcc.
const FLAGS: &[&str] = &["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"];
/// Variables that name a compiler.
const NAMES: &[&str] = &["NVCC_CCBIN", "CUDAHOSTCXX", "CC"];

pub(super) fn find(places: &Places<'_>, nvccs: &[Nvcc]) -> Vec<Compiler> {
    let of_flags = FLAGS.iter().filter_map(|variable| {
        let named = compiler_of_flags(places.variable(variable)?)?;
        Some((*variable, named))
    });
    let of_names = NAMES
        .iter()
        .filter_map(|variable| Some((*variable, compiler_word(places.variable(variable)?)?)));
    let mut found: Vec<(String, CompilerUse)> = of_flags
        .chain(of_names)
        .filter_map(|(variable, word)| {
            Some((
                named(places, word)?,
                CompilerUse::Variable(variable.to_owned()),
            ))
        })
        .collect();
    found.extend(nvccs.iter().map(|nvcc| {
        (
            join(parent(&nvcc.program), "gcc"),
            CompilerUse::BesideNvcc(nvcc.program.clone()),
        )
    }));
    found.extend(places.on_path("gcc").map(|path| (path, CompilerUse::Path)));
    found.extend(installed(places).map(|path| (path, CompilerUse::Installed)));

    let mut compilers: Vec<Compiler> = Vec::new();
    for (path, by) in found {
        if !places.is_program(&path) {
            continue;
        }
        let real = match places.sysroot.real_path(&path) {
            Reading::Present { value, .. } => value,
            _ => path.clone(),
        };
        match compilers.iter_mut().find(|c| c.real_path == real) {
            Some(_) if by == CompilerUse::Installed => {}
            Some(compiler) => compiler.used_by.push(by),
            None => compilers.push(read(places.sysroot, path, real, by)),
        }
    }
    compilers
}

/// The file that a word names: a path, a folder that holds `gcc`, or a name on `PATH`.
fn named(places: &Places<'_>, word: &str) -> Option<String> {
    if !word.contains('/') {
        return places.on_path(word);
    }
    let is_folder = places
        .sysroot
        .stat(word)
        .value()
        .is_some_and(|stat| stat.kind == Kind::Folder);
    Some(if is_folder {
        join(word, "gcc")
    } else {
        word.to_owned()
    })
    .filter(|path| path.starts_with('/'))
}

/// `g++-12` and the like, where distributions put them.
fn installed(places: &Places<'_>) -> impl Iterator<Item = String> {
    places
        .sysroot
        .list("/usr/bin", |name| {
            name.strip_prefix("g++-")
                .is_some_and(|v| v.bytes().all(|b| b.is_ascii_digit()))
        })
        .items()
        .to_vec()
        .into_iter()
        .map(|name| join("/usr/bin", &name))
}

/// One compiler, read.
fn read(sysroot: &Sysroot, path: String, real: String, by: CompilerUse) -> Compiler {
    let by_name = compiler_name(file_name(&real));
    let family = by_name
        .as_ref()
        .map_or(CompilerFamily::Other, |(family, _)| *family);
    // Debian's nvcc has a script beside it that takes the first GCC that it finds: its name is `gcc` and it is none.
    let is_elf = sysroot.file(&real).value().is_some_and(|file| {
        crate::read::window::bytes(file, 0, 4).is_some_and(|start| start == b"\x7fELF")
    });
    if !is_elf {
        return Compiler {
            version: Reading::unreadable(format!("{real}: a script, which chooses when it runs")),
            family: CompilerFamily::Other,
            path,
            real_path: real,
            used_by: vec![by],
        };
    }
    let known = by_name
        .and_then(|(_, version)| version)
        .map(|version| (version, real.clone()))
        .or_else(|| match family {
            CompilerFamily::Gcc => of_libraries(sysroot, &real),
            CompilerFamily::Clang => of_llvm_folder(&real),
            CompilerFamily::Other => None,
        });
    let version = match known {
        None => Reading::unreadable(format!("{real}: no version by its name or its libraries")),
        Some((version, source)) if version.len() > 1 => Reading::present(version, source),
        Some((version, source)) => {
            let full = sysroot
                .file(&real)
                .value()
                .and_then(|file| full_compiler_version(file, version.major()));
            Reading::present(full.unwrap_or(version), source)
        }
    };
    Compiler {
        path,
        real_path: real,
        family,
        version,
        used_by: vec![by],
    }
}

/// The version of a GCC by the folder of its libraries, `lib/gcc/TRIPLET/11`, where there is one alone.
fn of_libraries(sysroot: &Sysroot, real: &str) -> Option<(Version, String)> {
    let prefix = parent(parent(real));
    let mut found = Vec::new();
    for lib in ["lib/gcc", "lib64/gcc"] {
        let dir = join(prefix, lib);
        for triplet in sysroot.list(&dir, |name| name.contains('-')).items() {
            let dir = join(&dir, triplet);
            let versions =
                sysroot.list(&dir, |name| name.starts_with(|c: char| c.is_ascii_digit()));
            found.extend(
                versions
                    .items()
                    .iter()
                    .filter_map(|name| Some((Version::parse(name)?, join(&dir, name)))),
            );
        }
    }
    // One folder under two names, as lib and lib64 are on some systems, is one.
    found.dedup_by(|a, b| a.0 == b.0);
    match found.as_slice() {
        [one] => Some(one.clone()),
        _ => None,
    }
}

/// `/usr/lib/llvm-18/bin/clang` is 18.
fn of_llvm_folder(real: &str) -> Option<(Version, String)> {
    real.split('/')
        .find_map(|part| Version::parse(part.strip_prefix("llvm-")?))
        .map(|version| (version, real.to_owned()))
}
