//! How the loaders of Vulkan and `OpenCL` are told of a driver (an "installable client driver"): a small file that names a library.

use crate::sysroot::file_name;

/// What a manifest of Vulkan says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// `ICD.library_path` as written: a name, a path, or a path from the manifest's folder.
    pub library: String,
    /// `ICD.library_arch`: `32` or `64`, where it is given.
    pub bits: Option<String>,
}

/// A manifest of Vulkan (JSON). `None` where it names no library.
pub fn vulkan(text: &str) -> Option<Manifest> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    let icd = json.get("ICD")?;
    let library = icd.get("library_path")?.as_str()?.trim();
    let bits = icd.get("library_arch").and_then(serde_json::Value::as_str);
    (!library.is_empty()).then(|| Manifest {
        library: library.to_owned(),
        bits: bits.map(str::to_owned),
    })
}

/// A file of `OpenCL`: the library is its first line. `None` where that is empty.
pub fn opencl(text: &str) -> Option<String> {
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// A library without folder, ending and version: `libvulkan_intel` of `/usr/lib/libvulkan_intel.so.1`.
pub fn stem(library: &str) -> &str {
    let name = file_name(library);
    name.split_once(".so").map_or(name, |(stem, _)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_a_library() {
        let text = r#"{"file_format_version": "1.0.1", "ICD": {"library_arch": "64", "library_path": "/usr/lib/libvulkan_lvp.so", "api_version": "1.3.230"}}"#;
        let read = vulkan(text).unwrap();
        assert_eq!(stem(&read.library), "libvulkan_lvp");
        assert_eq!(read.bits.as_deref(), Some("64"));
        for broken in [
            "",
            "{",
            "[]",
            "null",
            r#"{"ICD": 1}"#,
            r#"{"ICD": {"library_path": 1}}"#,
            r#"{"ICD": {"library_path": " "}}"#,
        ] {
            assert_eq!(vulkan(broken), None, "{broken}");
        }
    }

    #[test]
    fn an_icd_of_opencl_is_one_line() {
        assert_eq!(
            opencl("libpocl.so.2.9.0\n").as_deref(),
            Some("libpocl.so.2.9.0")
        );
        assert_eq!(opencl(" \n"), None);
        assert_eq!(opencl(""), None);
        assert_eq!(stem("libpocl.so.2.9.0"), "libpocl");
        assert_eq!(stem("amdvlk64.so"), "amdvlk64");
        assert_eq!(stem(".so"), "");
    }
}
