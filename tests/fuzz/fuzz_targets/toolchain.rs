//! Headers of a toolkit, flags and names of compilers, build files of projects, a compiler's program.

#![no_main]

use gpudoctor::read::{recipes, toolchain};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let _ = toolchain::host_limits(&text);
    let _ = toolchain::plain_math(bytes);
    let _ = toolchain::compiler_of_flags(&text);
    let _ = toolchain::script_target(&text);
    let _ = toolchain::compiler_word(&text);
    let _ = toolchain::compiler_name(&text);
    for name in ["setup.py", "pyproject.toml", "CMakeLists.txt"] {
        let _ = toolchain::builds_cuda(name, &text);
        let _ = toolchain::builds_with_torch(name, &text);
    }
    let _ = toolchain::nvcc_of_ninja(&text);
    let major = u32::from(bytes.first().copied().unwrap_or_default());
    let _ = toolchain::full_compiler_version(&bytes, major);
    let _ = recipes::tools_version(&bytes);
});
