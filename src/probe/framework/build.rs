//! For which CUDA a framework was built, by its own files: (1) what its build wrote down, (2) the `+cu128` of its
//! version or the `cuda12x` of its name, (3) the sonames that its library needs. The first that tells counts.

use super::Look;
use super::known::Known;
use crate::facts::{Framework, Reading};
use crate::probe::consumer::has_extension;
use crate::read::pybuild::{Literal, assigned, keyed};
use crate::sysroot::{file_name, join};
use crate::version::Version;

/// The most of such a file that is read, in bytes; they have 1 to 6 kB.
const CAP: usize = 32 << 10;

impl Look<'_> {
    /// Fills in the CUDA and `ROCm` versions, and the version where the build's own is fuller than the record's.
    pub(super) fn built_for(&self, known: &Known, found: &mut Framework) {
        let text = |place: &str| self.sysroot.text_up_to(&join(&found.site, place), CAP);
        let cuda = match known.name {
            "torch" => {
                let text = text(known.marker);
                self.torch(found, &text)
            }
            "torchvision" | "torchaudio" => {
                let text = text(known.marker);
                if let Reading::Present { value, source } = &text {
                    version_of_build(found, value, source);
                }
                None
            }
            "tensorflow" => match text(known.marker) {
                Reading::Present { value, source } => tensorflow(&value, &source),
                other => said_nothing(other),
            },
            "llama.cpp" => self.llama_for_cpu(found),
            "onnxruntime" => match text(known.marker) {
                Reading::Present { value, source } => onnxruntime(found, &value, &source),
                other => said_nothing(other),
            },
            _ => None,
        };
        let named = || {
            let (version, source) = (found.version.value()?, found.version.source());
            by_local_version(version, source).or_else(|| {
                let name = found.distribution.value()?;
                by_name(name).map(|v| Reading::present(v, format!("{source}: its name")))
            })
        };
        found.cuda = cuda
            .or_else(named)
            .or_else(|| by_needs(found))
            .unwrap_or_else(|| {
                Reading::unreadable(format!("{}: nothing of {} tells", found.site, known.name))
            });
    }

    /// torch: `version.py`, whose version is the one of the build; the record of a wheel from `PyPI` has no `+cu128`.
    fn torch(&self, found: &mut Framework, text: &Reading<String>) -> Option<Reading<Version>> {
        // Before 2.6 `version.py` does not say it.
        let for_xpu = join(&found.site, "torch/lib/libtorch_xpu.so");
        if self.sysroot.exists(&for_xpu) {
            found.xpu = Reading::present("libtorch_xpu.so".to_owned(), for_xpu);
        }
        if let Reading::Present { value, source } = text {
            if let Some(version) = assigned(value, "__version__")
                .as_ref()
                .and_then(Literal::text)
            {
                found.version = Reading::present(version.to_owned(), source.as_str());
            }
            if let Some(hip) = assigned(value, "hip")
                .as_ref()
                .and_then(Literal::text)
                .and_then(Version::parse)
            {
                found.hip = Reading::present(hip, source.as_str());
            }
            if let Some(xpu) = assigned(value, "xpu").as_ref().and_then(Literal::text) {
                found.xpu = Reading::present(xpu.to_owned(), source.as_str());
            }
            match assigned(value, "cuda") {
                Some(Literal::None) => {
                    return Some(Reading::absent(format!("{source}: cuda = None")));
                }
                Some(Literal::Text(cuda)) => {
                    return Version::parse(&cuda).map(|v| Reading::present(v, source.as_str()));
                }
                _ => {}
            }
        }
        if let Some((version, source)) = found.version.value().zip(Some(found.version.source())) {
            if version.contains("+cpu") {
                return Some(Reading::absent(format!("{source}: {version}")));
            }
            if let Some(hip) = version
                .split_once("+rocm")
                .and_then(|(_, v)| Version::parse(v))
            {
                found.hip = Reading::present(hip, source.to_owned());
                return Some(Reading::absent(format!("{source}: {version}")));
            }
            if let Some(cuda) = by_local_version(version, source) {
                return Some(cuda);
            }
        }
        // Without a word of its own: a torch whose libraries are there, and the one for GPUs is not.
        let cpu = join(&found.site, "torch/lib/libtorch_cpu.so");
        (found.library.is_absent() && self.sysroot.exists(&cpu))
            .then(|| Reading::absent(format!("{cpu}: no libtorch_cuda.so beside it")))
    }
}

impl Look<'_> {
    /// llama-cpp-python: a build whose ggml has back ends of their own, and none for a GPU among them. Of older builds, all
    /// in one library, it is not told.
    fn llama_for_cpu(&self, found: &Framework) -> Option<Reading<Version>> {
        let dir = join(&found.site, "llama_cpp/lib");
        let names = self.sysroot.list(&dir, |name| name.starts_with("libggml-"));
        let names = names.items();
        let is_for_cpu = |name: &String| {
            ["libggml-base", "libggml-cpu", "libggml-blas", "libggml-rpc"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        (!names.is_empty() && names.iter().all(is_for_cpu))
            .then(|| Reading::absent(format!("{dir}: no libggml-cuda.so")))
    }
}

/// The version that the build wrote down.
fn version_of_build(found: &mut Framework, text: &str, source: &str) {
    if let Some(Literal::Text(version)) = assigned(text, "__version__") {
        found.version = Reading::present(version, source);
    }
}

/// What could not be read tells nothing; what is not there leaves it to the other signs.
fn said_nothing(text: Reading<String>) -> Option<Reading<Version>> {
    match text {
        Reading::Unreadable { reason } => Some(Reading::unreadable(reason)),
        _ => None,
    }
}

/// `TensorFlow`: `build_info.py`.
fn tensorflow(text: &str, source: &str) -> Option<Reading<Version>> {
    if keyed(text, "is_cuda_build") == Some(Literal::Bool(false)) {
        return Some(Reading::absent(format!("{source}: is_cuda_build False")));
    }
    let cuda = keyed(text, "cuda_version")?;
    Version::parse(cuda.text()?).map(|v| Reading::present(v, source))
}

/// ONNX Runtime: `build_and_package_info.py`. Of two distributions in one folder it names the one that was written last.
fn onnxruntime(found: &mut Framework, text: &str, source: &str) -> Option<Reading<Version>> {
    let value = |name| assigned(text, name);
    if let (Some(Literal::Text(name)), Some(Literal::Text(version))) =
        (value("package_name"), value("__version__"))
        && found.distribution.is_absent()
    {
        found.distribution = Reading::present(name, source);
        found.version = Reading::present(version, source);
    }
    if let Some(cuda) = value("cuda_version").as_ref().and_then(Literal::text) {
        return Version::parse(cuda).map(|v| Reading::present(v, source));
    }
    found
        .library
        .is_absent()
        .then(|| Reading::absent(format!("{source}: no CUDA version, and no CUDA provider")))
}

/// The CUDA version in a local version: `2.8.0+cu128`, `2.8.3+cu12torch2.8cxx11abiTRUE`.
fn by_local_version(version: &str, source: &str) -> Option<Reading<Version>> {
    let (_, local) = version.split_once("+cu")?;
    let digits = local.len() - local.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    cuda_of_digits(local.get(..digits)?).map(|v| Reading::present(v, source))
}

/// The CUDA version in a distribution's name: `cupy-cuda12x`, `cupy-cuda102`, `jax-cuda13-plugin`, `tensorrt-cu12`.
pub(in crate::probe) fn by_name(name: &str) -> Option<Version> {
    let (_, rest) = name
        .split_once("-cuda")
        .or_else(|| name.split_once("-cu"))?;
    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    cuda_of_digits(rest.get(..digits)?)
}

/// 128 is 12.8, 102 is 10.2, 92 is 9.2; 12 is 12.
pub(super) fn cuda_of_digits(digits: &str) -> Option<Version> {
    let number: u32 = digits.parse().ok()?;
    let text = match number {
        11..=20 => number.to_string(),
        80..=299 => format!("{}.{}", number / 10, number % 10),
        _ => return None,
    };
    Version::parse(&text)
}

/// The CUDA major version of the sonames that the library needs. CUDA 11 calls its runtime `libcudart.so.11.0`.
pub(super) fn by_needs(found: &Framework) -> Option<Reading<Version>> {
    let runtime = found
        .needed
        .iter()
        .find_map(|soname| soname.strip_prefix("libcudart.so."))?;
    let version = Version::parse(runtime)?;
    let version = if version.major() >= 11 {
        Version::parse(&version.major().to_string())?
    } else {
        version
    };
    let source = found.library.value()?;
    Some(Reading::present(
        version,
        format!("{source}: needs libcudart.so.{runtime}"),
    ))
}

/// bitsandbytes: a library for each CUDA version; the one that it takes beside this torch.
pub(super) fn bitsandbytes(look: &Look<'_>, site: &str, found: &mut Framework) -> Option<String> {
    let dir = join(site, "bitsandbytes");
    let names = look.sysroot.list(&dir, |name| {
        name.starts_with("libbitsandbytes_cuda") && has_extension(name, "so")
    });
    let version_of = |name: &str| {
        let digits = file_name(name)
            .strip_prefix("libbitsandbytes_cuda")?
            .strip_suffix(".so")?;
        cuda_of_digits(digits.strip_suffix("_nocublaslt").unwrap_or(digits))
    };
    found.variants = names.items().iter().filter_map(|n| version_of(n)).collect();
    found.variants.sort();
    found.variants.dedup();
    let torch = look.torch.as_ref()?.cuda.value()?;
    names
        .items()
        .iter()
        .find(|name| version_of(name).is_some_and(|v| v.major_minor() == torch.major_minor()))
        .map(|name| join(&dir, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits() {
        for (digits, version) in [
            ("128", Some("12.8")),
            ("130", Some("13.0")),
            ("102", Some("10.2")),
            ("92", Some("9.2")),
            ("12", Some("12")),
            ("", None),
            ("1", None),
            ("99999999999", None),
        ] {
            let read = cuda_of_digits(digits).map(|v| v.as_str().to_owned());
            assert_eq!(read.as_deref(), version, "{digits}");
        }
    }

    #[test]
    fn names_and_local_versions() {
        let local = |v: &str| by_local_version(v, "x").and_then(|r| r.value().cloned());
        assert_eq!(local("2.8.0+cu128").unwrap().as_str(), "12.8");
        assert_eq!(
            local("2.8.3+cu12torch2.8cxx11abiTRUE").unwrap().as_str(),
            "12"
        );
        assert_eq!(local("2.8.0+cpu"), None);
        assert_eq!(local("2.8.0"), None);
        assert_eq!(by_name("cupy-cuda12x").unwrap().as_str(), "12");
        assert_eq!(by_name("jax-cuda13-plugin").unwrap().as_str(), "13");
        assert_eq!(by_name("cupy"), None);
    }
}
