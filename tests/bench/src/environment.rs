//! A folder with what is measured: a virtual environment as large as one with a full PyTorch, and a driver's libraries.
//!
//! 101 distributions and some 40,000 files, spread as packages have them; names, not contents, are what a walk would pay
//! for. Where real parts are there, the runtime among them is NVIDIA's.

use std::fs;
use std::path::{Path, PathBuf};

/// How many distributions are installed.
const DISTRIBUTIONS: usize = 101;
/// Files of torch, of each of NVIDIA's wheels, and of any other distribution: 40,000 in all with the metadata.
const TORCH_FILES: usize = 20_000;
const WHEEL_FILES: usize = 100;
const OTHER_FILES: usize = 211;
/// Files in one folder of a package.
const IN_FOLDER: usize = 25;
/// Distributions that mean something to gpudoctor; the others are called `package-N`.
const NAMED: &[(&str, &str)] = &[
    ("torch", "2.6.0+cu124"),
    ("triton", "3.2.0"),
    ("nvidia_cuda_runtime_cu12", "12.4.127"),
    ("nvidia_cuda_nvrtc_cu12", "12.4.127"),
    ("nvidia_cublas_cu12", "12.4.5.8"),
    ("nvidia_cudnn_cu12", "9.1.0.70"),
    ("nvidia_cufft_cu12", "11.2.1.3"),
    ("nvidia_curand_cu12", "10.3.5.147"),
    ("nvidia_cusolver_cu12", "11.6.1.9"),
    ("nvidia_cusparse_cu12", "12.3.1.170"),
    ("nvidia_nccl_cu12", "2.21.5"),
    ("nvidia_nvjitlink_cu12", "12.4.127"),
    ("nvidia_nvtx_cu12", "12.4.127"),
    ("numpy", "2.2.1"),
];

/// NVIDIA's libraries among the fetched parts.
pub(crate) struct Parts {
    runtime: Option<PathBuf>,
    driver: Option<PathBuf>,
}

impl Parts {
    /// Looks for them in a folder as the tests fill it.
    pub(crate) fn find(folder: &Path) -> Self {
        let runtime = folder.join("nvidia-cuda-runtime-cu12-12.4.127");
        let drivers = fs::read_dir(folder).into_iter().flatten().flatten();
        let drivers = drivers.filter(|e| e.file_name().as_encoded_bytes().starts_with(b"driver-"));
        let mut drivers: Vec<PathBuf> = drivers.map(|entry| entry.path()).collect();
        drivers.sort();
        Self {
            runtime: runtime.is_dir().then_some(runtime),
            driver: drivers.pop(),
        }
    }
}

/// The folder; it is removed in the end.
pub(crate) struct Place {
    root: PathBuf,
    home: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// An error of the file system, with what was being written.
pub(crate) fn at<T>(path: &Path, result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|e| format!("{}: {e}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        at(folder, fs::create_dir_all(folder))?;
    }
    at(path, fs::write(path, text))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    at(to, fs::create_dir_all(to))?;
    for entry in at(from, fs::read_dir(from))? {
        let entry = at(from, entry)?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_symlink() {
            let target = at(&from, fs::read_link(&from))?;
            at(&to, std::os::unix::fs::symlink(target, &to))?;
        } else if from.is_dir() {
            copy(&from, &to)?;
        } else {
            at(&to, fs::copy(&from, &to))?;
        }
    }
    Ok(())
}

impl Place {
    pub(crate) fn new() -> Result<Self, String> {
        let root = std::env::temp_dir().join(format!("gpudoctor-bench-{}", std::process::id()));
        let home = root.join("home");
        let place = Self { root, home };
        at(&place.root, fs::create_dir(&place.root))?;
        at(&place.home, fs::create_dir(&place.home))?;
        Ok(place)
    }

    /// An empty home.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// How many files lie in the place.
    pub(crate) fn files(&self) -> usize {
        let mut folders = vec![self.root.clone()];
        let mut files = 0;
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push(entry.path());
                } else {
                    files += 1;
                }
            }
        }
        files
    }

    /// Makes the environment; its prefix.
    pub(crate) fn environment(&self, parts: &Parts) -> Result<PathBuf, String> {
        let prefix = self.root.join("venv");
        let site = prefix.join("lib/python3.11/site-packages");
        write(
            &prefix.join("pyvenv.cfg"),
            "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n",
        )?;
        if let Some(runtime) = &parts.runtime {
            copy(runtime, &site)?;
        }
        write(
            &site.join("torch/version.py"),
            "__version__ = '2.6.0+cu124'\ncuda: Optional[str] = '12.4'\n",
        )?;
        for number in 0..DISTRIBUTIONS {
            let (name, version) = NAMED.get(number).map_or_else(
                || (format!("package_{number}"), "1.0.0"),
                |(name, version)| ((*name).to_owned(), *version),
            );
            let info = site.join(format!("{name}-{version}.dist-info"));
            let mut record = String::new();
            // NVIDIA's wheels share one folder, and torch is half of all files.
            let (folder, count) = match name.strip_prefix("nvidia_") {
                Some(part) => (
                    format!("nvidia/{}", part.trim_end_matches("_cu12")),
                    WHEEL_FILES,
                ),
                None if name == "torch" => (name.clone(), TORCH_FILES),
                None => (name.clone(), OTHER_FILES),
            };
            for file in 0..count {
                let file = format!("{folder}/part_{}/module_{file}.py", file / IN_FOLDER);
                write(&site.join(&file), "")?;
                record.push_str(&file);
                record.push_str(",sha256=0000000000000000000000000000000000000000000,0\n");
            }
            write(&info.join("RECORD"), &record)?;
            write(
                &info.join("METADATA"),
                &format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
            )?;
        }
        Ok(prefix)
    }

    /// Makes a folder with that many copies of a library, some together in folders of their own. Copies, since a file
    /// under two names is looked at once.
    pub(crate) fn libraries(
        &self,
        library: &Path,
        count: usize,
        together: usize,
    ) -> Result<PathBuf, String> {
        let folder = self.root.join(format!("{count}-libraries"));
        for number in 0..count {
            let inner = folder.join(format!("part_{}", number / together));
            at(&inner, fs::create_dir_all(&inner))?;
            let copy = inner.join(format!("lib{number}.so"));
            at(&copy, fs::copy(library, &copy))?;
        }
        Ok(folder)
    }

    /// Makes a folder with a driver's libraries, where there are any.
    pub(crate) fn driver(&self, parts: &Parts) -> Result<Option<PathBuf>, String> {
        let Some(unpacked) = &parts.driver else {
            return Ok(None);
        };
        let libraries = unpacked.join("usr/lib/x86_64-linux-gnu/nvidia");
        let folder = self.root.join("driver");
        for place in at(&libraries, fs::read_dir(&libraries))? {
            copy(&at(&libraries, place)?.path(), &folder)?;
        }
        Ok(Some(folder))
    }
}
