//! What single frameworks bring that others do not have: the ptxas of Triton, the compiled operators of `DeepSpeed`.

use super::Look;
use crate::facts::{Assembler, Operators, Reading};
use crate::read::pybuild::{keyed, switched_on};
use crate::read::recipes::tools_version;
use crate::sysroot::join;
use crate::version::Version;

/// Where Triton has its ptxas, newest layout first, and the variable that names another one.
const ASSEMBLERS: &[(&[&str], &str, bool)] = &[
    (
        &[
            "triton/backends/nvidia/bin/ptxas",
            "triton/third_party/cuda/bin/ptxas",
        ],
        "TRITON_PTXAS_PATH",
        false,
    ),
    (
        &["triton/backends/nvidia/bin/ptxas-blackwell"],
        "TRITON_PTXAS_BLACKWELL_PATH",
        true,
    ),
];
/// The most of the file about `DeepSpeed`'s build that is read, in bytes; it has 1 kB.
const CAP: usize = 16 << 10;

impl Look<'_> {
    /// The ptxas that Triton starts for each kernel. Without a GPU it compiles nothing, so that nothing is read.
    pub(super) fn assemblers(&self, site: &str) -> Reading<Vec<Assembler>> {
        if !self.has_gpu {
            return Reading::absent("no GPU that it would compile for");
        }
        let found: Vec<Assembler> = ASSEMBLERS
            .iter()
            .filter_map(|(places, variable, only_blackwell)| {
                let mut places = places.iter().map(|place| join(site, place));
                let own = places.find(|path| self.sysroot.exists(path))?;
                let named = self
                    .env
                    .get(*variable)
                    .filter(|path| !path.is_empty() && self.sysroot.exists(path));
                let path = named.cloned().unwrap_or(own);
                let version = match self.sysroot.file(&path) {
                    Reading::Present { value, .. } => match tools_version(&value) {
                        Some(version) => Reading::present(version, path.as_str()),
                        None => Reading::unreadable(format!("{path}: no version in it")),
                    },
                    Reading::Absent { source } => Reading::absent(source),
                    Reading::Unreadable { reason } => Reading::unreadable(reason),
                };
                Some(Assembler {
                    named_by: named.map(|_| (*variable).to_owned()),
                    path,
                    only_blackwell: *only_blackwell,
                    version,
                })
            })
            .collect();
        if found.is_empty() {
            Reading::absent(join(site, "triton/backends/nvidia/bin/ptxas"))
        } else {
            Reading::present(found, site)
        }
    }

    /// Which of `DeepSpeed`'s operators were compiled along with it, and with which torch.
    pub(super) fn operators(&self, site: &str) -> Reading<Operators> {
        let path = join(site, "deepspeed/git_version_info_installed.py");
        let (text, source) = match self.sysroot.text_up_to(&path, CAP) {
            Reading::Present { value, source } => (value, source),
            Reading::Absent { source } => return Reading::absent(source),
            Reading::Unreadable { reason } => return Reading::unreadable(reason),
        };
        let names = switched_on(&text, "installed_ops");
        if names.is_empty() {
            return Reading::absent(source);
        }
        let version = |key| {
            let value = keyed(&text, key)?;
            Version::parse(value.text()?).filter(|version| version.major() > 0)
        };
        match version("version") {
            Some(torch) => Reading::present(
                Operators {
                    names,
                    torch,
                    cuda: version("cuda_version"),
                },
                source,
            ),
            None => Reading::unreadable(format!("{source}: no version of torch")),
        }
    }
}
