//! Pages about what the words mean: a screenful each, with how to look at it on a machine.

/// A page.
pub struct Concept {
    /// What it is asked by.
    pub name: &'static str,
    /// Other words for it.
    pub also: &'static [&'static str],
    /// Its text.
    pub page: &'static str,
}

macro_rules! concepts {
    ($($name:literal $also:tt;)*) => {
        /// All pages, sorted by name.
        pub static CONCEPTS: &[Concept] = &[$(Concept {
            name: $name,
            also: &$also,
            page: include_str!(concat!("pages/", $name, ".md")),
        },)*];
    };
}

concepts! {
    "compute-capability" ["sm", "arch", "architecture", "compute capability"];
    "container" ["containers", "container toolkit", "nvidia-container-toolkit", "cdi"];
    "cuda-version" ["cuda version", "cuda versions", "nvidia-smi cuda version"];
    "driver" ["libcuda", "kernel module", "nvidia driver"];
    "fabric-manager" ["fabric manager", "nvswitch", "nvlink"];
    "fatbin" ["fatbinary", "device code", "cubin"];
    "forward-compatibility" ["forward compatibility", "cuda-compat", "compat"];
    "layers" ["layer", "stack"];
    "mig" ["multi-instance gpu"];
    "minor-version-compatibility" ["minor version compatibility", "mvc"];
    "nvml" ["libnvidia-ml"];
    "other-vendors" ["amd", "rocm", "intel", "vendors"];
    "ptx" ["jit", "ptx jit"];
    "runtime" ["cudart", "libcudart", "cuda runtime"];
    "xid" ["xids"];
}

/// The page of a word.
pub fn concept(word: &str) -> Option<&'static Concept> {
    let word = word.trim().to_ascii_lowercase();
    CONCEPTS
        .iter()
        .find(|concept| concept.name == word || concept.also.contains(&word.as_str()))
}
