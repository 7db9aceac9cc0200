//! Frameworks that are programs of their own, outside every Python environment: Ollama, llama.cpp, Triton Inference
//! Server. Found by the folders that their packages use and by `PATH`; none is started.

use super::Look;
use super::known::{Known, plain};
use crate::facts::{Framework, Reading, Runner};
use crate::sysroot::{file_name, join, parent};
use crate::version::Version;

/// Programs of llama.cpp; one of them says that it is installed.
const LLAMA: &[&str] = &["llama-server", "llama-cli"];
/// Where the server of an NGC image lies.
const TRITON_SERVER: &str = "/opt/tritonserver";
/// Where Ollama's libraries lie, beside those that its program on `PATH` leads to.
const OLLAMA: &[&str] = &["/usr/local/lib/ollama", "/usr/lib/ollama"];
/// ggml's back ends for other GPUs.
const OTHER_BACK_ENDS: &[&str] = &[
    "libggml-hip",
    "libggml-vulkan",
    "libggml-sycl",
    "libggml-musa",
];
/// The most folders of back ends that are looked into.
const MAX_RUNNERS: usize = 8;

impl Look<'_> {
    pub(super) fn programs(&mut self) -> Vec<Framework> {
        let all = [self.ollama(), self.llama(), self.triton_server()];
        all.into_iter().flatten().collect()
    }

    /// A program on `PATH`, links followed.
    fn program(&self, name: &str) -> Option<String> {
        let path = self.env.get("PATH").map_or("", String::as_str);
        let mut dirs = path.split(':').filter(|dir| dir.starts_with('/'));
        let found = dirs.find_map(|dir| {
            let path = join(dir, name);
            self.sysroot.exists(&path).then_some(path)
        })?;
        let real = self.sysroot.real_path(&found).value().cloned();
        Some(real.unwrap_or(found))
    }

    /// What is known of every program before it is looked into. None tells its version in a file.
    fn bare(name: &str, site: &str) -> Framework {
        Framework {
            name: name.to_owned(),
            site: site.to_owned(),
            distribution: Reading::absent("no Python distribution"),
            installer: Reading::absent("no Python distribution"),
            version: Reading::absent(site),
            cuda: Reading::unreadable(format!("{site}: nothing tells")),
            hip: Reading::absent(site),
            xpu: Reading::absent(site),
            library: Reading::absent(site),
            lacking: Reading::absent(site),
            out_of_reach: Reading::absent(site),
            code: Reading::absent(site),
            assemblers: Reading::absent(site),
            runners: Reading::absent(site),
            operators: Reading::absent(site),
            ..Framework::default()
        }
    }

    /// Looks into a GPU library.
    fn library_of(&mut self, found: &mut Framework, path: &str) {
        let known = Known {
            by_code: true,
            ..plain("", &[])
        };
        found.library = Reading::present(path.to_owned(), path);
        self.look_into(&known, path, found);
        if let Some(cuda) = super::build::by_needs(found) {
            found.cuda = cuda;
        }
    }

    /// Whether a folder holds a back end for other GPUs.
    fn has_other_back_end(&self, dir: &str) -> bool {
        let names = self.sysroot.list(dir, |name| {
            OTHER_BACK_ENDS.iter().any(|start| name.starts_with(start))
        });
        !names.items().is_empty()
    }

    /// Ollama: a folder for each CUDA version, `cuda_v12`, or one library for all in builds of distributions.
    fn ollama(&mut self) -> Option<Framework> {
        let by_program = self
            .program("ollama")
            .map(|program| join(parent(parent(&program)), "lib/ollama"));
        let site = by_program
            .into_iter()
            .chain(OLLAMA.iter().map(|dir| (*dir).to_owned()))
            .find(|dir| self.sysroot.exists(dir))?;
        let mut found = Self::bare("ollama", &site);
        let mut folders = self
            .sysroot
            .list(&site, |name| name.starts_with("cuda_"))
            .items()
            .to_vec();
        folders.truncate(MAX_RUNNERS);
        let mut folders: Vec<String> = folders.iter().map(|name| join(&site, name)).collect();
        folders.push(site.clone());
        let mut runners = Vec::new();
        for folder in folders {
            let path = join(&folder, "libggml-cuda.so");
            if !self.sysroot.exists(&path) {
                continue;
            }
            let mut one = Self::bare("ollama", &folder);
            self.library_of(&mut one, &path);
            runners.push(Runner {
                folder,
                cuda: one.cuda,
                code: one.code,
            });
        }
        if runners.is_empty() {
            let missing = join(&site, "cuda_v*/libggml-cuda.so");
            found.runners = Reading::absent(missing.as_str());
            // Releases before those with back ends of their own had other folders; of one with a base library it is known
            // that CUDA would lie beside it.
            let has_base = self.sysroot.exists(&join(&site, "libggml-base.so"));
            let others = self.sysroot.list(&site, |name| {
                name.starts_with("rocm") || name.starts_with("vulkan")
            });
            if has_base && others.items().is_empty() && !self.has_other_back_end(&site) {
                found.cuda = Reading::absent(missing);
            }
        } else {
            found.runners = Reading::present(runners, site.as_str());
        }
        Some(found)
    }

    /// llama.cpp as it is built or packaged: its back end beside the program or in the folder of libraries, or inside it.
    fn llama(&mut self) -> Option<Framework> {
        let program = LLAMA.iter().find_map(|name| self.program(name))?;
        let bin = parent(&program).to_owned();
        let mut found = Self::bare("llama.cpp", &bin);
        let lib = join(parent(&bin), "lib");
        let dirs = [bin.clone(), lib.clone(), join(&lib, "llama.cpp")];
        let mut places = dirs.iter().map(|dir| join(dir, "libggml-cuda.so"));
        if let Some(path) = places.find(|path| self.sysroot.exists(path)) {
            self.library_of(&mut found, &path);
            return Some(found);
        }
        let base = dirs
            .iter()
            .find(|dir| self.sysroot.exists(&join(dir, "libggml-base.so")));
        if let Some(dir) = base {
            if !self.has_other_back_end(dir) {
                found.cuda = Reading::absent(join(dir, "libggml-cuda.so"));
            }
            return Some(found);
        }
        // All in one file: what it holds tells, and that it holds nothing tells nothing.
        self.library_of(&mut found, &program);
        if found
            .code
            .value()
            .is_some_and(|code| code.elf.is_empty() && code.ptx.is_empty())
        {
            found.library = Reading::absent(program.as_str());
            found.code = Reading::absent(program);
        }
        Some(found)
    }

    /// The server of NGC's images, with what its back ends need.
    fn triton_server(&mut self) -> Option<Framework> {
        let program = join(TRITON_SERVER, "bin/tritonserver");
        if !self.sysroot.exists(&program) {
            return None;
        }
        let mut found = Self::bare("triton-server", TRITON_SERVER);
        let text = self.sysroot.text(&join(TRITON_SERVER, "TRITON_VERSION"));
        let of_file = text.value().map(|text| text.trim().to_owned());
        let of_variable = self.env.get("TRITON_SERVER_VERSION").cloned();
        let told = of_file
            .map(|version| (version, text.source().to_owned()))
            .or_else(|| Some((of_variable?, "TRITON_SERVER_VERSION".to_owned())))
            .filter(|(version, _)| Version::parse(version).is_some());
        if let Some((version, source)) = told {
            found.version = Reading::present(version, source);
        }
        let core = join(TRITON_SERVER, "lib/libtritonserver.so");
        let core = if self.sysroot.exists(&core) {
            core
        } else {
            program
        };
        self.library_of(&mut found, &core);
        let backends = join(TRITON_SERVER, "backends");
        let names = self.sysroot.list(&backends, |name| !name.starts_with('.'));
        let names = names.items().to_vec();
        for name in names.iter().take(32) {
            let path = join(&join(&backends, name), &format!("libtriton_{name}.so"));
            if !self.sysroot.exists(&path) {
                continue;
            }
            let mut one = Self::bare(name, file_name(&path));
            let known = plain("", &[]);
            self.look_into(&known, &path, &mut one);
            for need in one.cuda_needs {
                if !found.cuda_needs.iter().any(|n| n.soname == need.soname) {
                    found.cuda_needs.push(need);
                }
            }
        }
        Some(found)
    }
}
