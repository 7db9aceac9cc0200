//! Intel's stack as files tell it: the loader of Level Zero and the driver that it opens.

use crate::facts::{Consumer, FileKind, IntelFacts, IntelLibrary, Reading};
use crate::probe::loader::Loader;
use crate::sysroot::{Sysroot, join};

/// What is asked of the loader by name, and once more in the environment, where wheels put libraries.
const LOADER: &[&str] = &["libze_loader.so.1"];
/// The driver, and the one for GPUs that it no longer knows.
const DRIVER: &[&str] = &["libze_intel_gpu.so.1", "libze_intel_gpu_legacy1.so.1"];

/// Looks for both.
pub(super) fn probe(sysroot: &Sysroot, loader: &Loader<'_>, consumer: &Consumer) -> IntelFacts {
    let prefix = consumer.prefix.value();
    let own = prefix.map(|prefix| join(prefix, "lib"));
    IntelFacts {
        level_zero_loader: found(sysroot, loader, LOADER, own.as_deref()),
        // The loader of Level Zero opens it by name, in whatever folder it lies itself.
        level_zero_driver: found(sysroot, loader, DRIVER, None),
    }
}

/// The first of these names that leads to a library for this machine, else the first that leads to a file.
fn found(
    sysroot: &Sysroot,
    loader: &Loader<'_>,
    names: &[&str],
    own: Option<&str>,
) -> Reading<IntelLibrary> {
    let mut other = None;
    let mut refused = None;
    for name in names {
        let (copies, reason) = loader.search(name);
        refused = refused.or(reason);
        let own = own.map(|dir| join(dir, name));
        let own = own.filter(|path| sysroot.lstat(path).is_present());
        for path in own.into_iter().chain(copies.into_iter().map(|f| f.path)) {
            let (kind, _, _) = loader.look_at(&path);
            let is_library = kind == FileKind::Library;
            let library = IntelLibrary {
                real_path: match sysroot.real_path(&path) {
                    Reading::Present { value, .. } => value,
                    _ => path.clone(),
                },
                path,
                kind,
            };
            if is_library {
                let source = library.path.clone();
                return Reading::present(library, source);
            }
            other.get_or_insert(library);
        }
    }
    match (other, refused) {
        (Some(library), _) => {
            let source = library.path.clone();
            Reading::present(library, source)
        }
        (None, Some(reason)) => Reading::unreadable(reason),
        (None, None) => Reading::absent(format!(
            "{}: LD_LIBRARY_PATH, ld.so.cache, default folders",
            names.join(", ")
        )),
    }
}
