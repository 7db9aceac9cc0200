//! Device code: which target runs on which GPU.
//!
//! The rules are those of NVIDIA's documentation; where a real linker answers otherwise (Jetson's GPUs, Rubin) the answer
//! is "unknown" with the reason, until a GPU says so.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::rows::{capability, row};
use super::{Capability, Confidence, Matrix};
use crate::version::Version;

/// How far a target reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// `sm_80`: later minors of the same major; as PTX every later GPU.
    Plain,
    /// `sm_100f`: the same family, later minors.
    Family,
    /// `sm_90a`: that very capability.
    Specific,
}

/// A target of device code: `sm_86`, `compute_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// (8, 6).
    pub capability: Capability,
    /// What the letter at the end says.
    pub scope: Scope,
}

impl Target {
    /// Reads `sm_86`, `compute_90a`, `100f`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text
            .strip_prefix("sm_")
            .or_else(|| text.strip_prefix("compute_"))
            .unwrap_or(text);
        let number = text.trim_end_matches(['a', 'f']);
        let scope = match text.get(number.len()..)? {
            "" => Scope::Plain,
            "a" => Scope::Specific,
            "f" => Scope::Family,
            _ => return None,
        };
        // The last digit is the minor: 86 is 8.6, 120 is 12.0.
        let (major, minor) = number.split_at_checked(number.len().checked_sub(1)?)?;
        if !(1..=3).contains(&major.len()) || !number.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        Some(Self {
            capability: (major.parse().ok()?, minor.parse().ok()?),
            scope,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.scope {
            Scope::Plain => "",
            Scope::Family => "f",
            Scope::Specific => "a",
        };
        write!(f, "sm_{}{}{letter}", self.capability.0, self.capability.1)
    }
}

/// Device code as a table lists it: `["sm_80", "sm_90a", "compute_90"]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct CodeTargets {
    /// Machine code, in the order of the table.
    pub elf: Vec<Target>,
    /// PTX, likewise.
    pub ptx: Vec<Target>,
}

impl TryFrom<Vec<String>> for CodeTargets {
    type Error = String;

    fn try_from(words: Vec<String>) -> Result<Self, String> {
        let mut code = Self::default();
        for word in words {
            let list = match word.split_once('_') {
                Some(("sm", _)) => &mut code.elf,
                Some(("compute", _)) => &mut code.ptx,
                _ => return Err(format!("`{}` is no architecture", word.escape_debug())),
            };
            let target = Target::parse(&word);
            list.push(
                target.ok_or_else(|| format!("`{}` is no architecture", word.escape_debug()))?,
            );
        }
        Ok(code)
    }
}

impl From<CodeTargets> for Vec<String> {
    fn from(code: CodeTargets) -> Self {
        code.words()
    }
}

impl CodeTargets {
    /// As they are written: `sm_90a`, `compute_90`.
    pub fn words(&self) -> Vec<String> {
        let ptx = |target: &Target| target.to_string().replacen("sm_", "compute_", 1);
        let elf = self.elf.iter().map(ToString::to_string);
        elf.chain(self.ptx.iter().map(ptx)).collect()
    }
}

/// How listed device code does on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeFit {
    /// Its machine code for this target runs.
    Cubin(Target),
    /// The driver compiles its PTX for this target.
    Ptx(Target),
    /// There is PTX for it, of this version of the language, and the driver compiles older ones only.
    PtxTooNew(Version),
    /// There is nothing for it.
    No,
    /// Not known, and why.
    Unknown(String),
}

/// Whether code runs on a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// Not known, and why.
    Unknown(String),
}

/// Where a rule comes from; the rule itself is code in this file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BinaryRule {
    /// `cubin`, `ptx`, `family`, `architecture-specific`, `no image`.
    pub kind: String,
    /// What is so.
    pub fact: String,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(BinaryRule, |rule| rule.kind);

/// A border that the plain rule for machine code crosses and a real linker does not, or not always.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompatBorder {
    /// Capability of the code.
    #[serde(with = "capability")]
    pub from: Capability,
    /// Capability of the GPU.
    #[serde(with = "capability")]
    pub to: Capability,
    /// What was seen.
    pub fact: String,
    /// Who says so.
    pub source: String,
    /// How far to trust it.
    pub confidence: Confidence,
}
row!(CompatBorder, |border| format!(
    "{:?} to {:?}",
    border.from, border.to
));

impl Matrix {
    /// Whether machine code (a cubin) for `target` runs on a GPU of this capability.
    pub fn cubin_fits(&self, target: &Target, gpu: Capability) -> Fit {
        let code = target.capability;
        if code == gpu {
            return Fit::Yes;
        }
        if self
            .arch(code)
            .is_some_and(|arch| arch.renamed_to == Some(gpu))
        {
            return Fit::Unknown(format!(
                "{}.{} is what older toolkits called {}.{}",
                code.0, code.1, gpu.0, gpu.1
            ));
        }
        if target.scope == Scope::Specific || code.0 != gpu.0 || code.1 > gpu.1 {
            return Fit::No;
        }
        if let Some(border) = self
            .compat_borders()
            .iter()
            .find(|border| border.from == code && border.to == gpu)
        {
            return Fit::Unknown(border.fact.clone());
        }
        if [code, gpu]
            .iter()
            .any(|cc| self.arch(*cc).is_some_and(|arch| arch.tegra))
        {
            return Fit::Unknown(
                "the GPU of a Jetson and another one do not simply share machine code".to_owned(),
            );
        }
        Fit::Yes
    }

    /// Whether the driver can compile PTX for `target` for a GPU of this capability. Whether the driver knows the PTX
    /// ISA is another question: [`Matrix::ptx_loads`].
    pub fn ptx_fits(&self, target: &Target, gpu: Capability) -> Fit {
        let code = target.capability;
        let fits = match target.scope {
            Scope::Plain => gpu >= code,
            Scope::Family => gpu.0 == code.0 && gpu.1 >= code.1,
            Scope::Specific => gpu == code,
        };
        if fits { Fit::Yes } else { Fit::No }
    }

    /// How device code of these targets does on a GPU: machine code first, then PTX, if a driver knows its language
    /// ([`Matrix::ptx_loads`]).
    pub fn targets_fit(&self, code: &CodeTargets, gpu: Capability) -> CodeFit {
        let mut unknown = None;
        let mut best = None;
        for target in &code.elf {
            match self.cubin_fits(target, gpu) {
                Fit::Yes => best = best.max(Some(*target)),
                Fit::No => {}
                Fit::Unknown(why) => unknown = Some(why),
            }
        }
        if let Some(target) = best {
            return CodeFit::Cubin(target);
        }
        let ptx = code
            .ptx
            .iter()
            .filter(|target| self.ptx_fits(target, gpu) == Fit::Yes);
        match (ptx.max(), unknown) {
            (Some(target), _) => CodeFit::Ptx(*target),
            (None, Some(why)) => CodeFit::Unknown(why),
            (None, None) => CodeFit::No,
        }
    }

    /// How device code does on a GPU where the language of each PTX is known: machine code first, then PTX that a driver of
    /// this CUDA level compiles (any driver, without one).
    pub fn held_code_fit(
        &self,
        elf: &[Target],
        ptx: &[(Target, Version)],
        gpu: Capability,
        level: Option<u32>,
    ) -> CodeFit {
        let machine = self.targets_fit(
            &CodeTargets {
                elf: elf.to_vec(),
                ptx: Vec::new(),
            },
            gpu,
        );
        if matches!(machine, CodeFit::Cubin(_)) {
            return machine;
        }
        let mut compiled: Option<Target> = None;
        let mut too_new: Option<&Version> = None;
        let mut unknown = None;
        for (target, isa) in ptx {
            if self.ptx_fits(target, gpu) != Fit::Yes {
                continue;
            }
            match level.map(|level| self.ptx_loads(isa, level)) {
                None | Some(Some(true)) => compiled = compiled.max(Some(*target)),
                Some(Some(false)) => too_new = too_new.max(Some(isa)),
                Some(None) => {
                    unknown = Some(CodeFit::Unknown(
                        "the driver is newer than the matrix".to_owned(),
                    ));
                }
            }
        }
        match (compiled, unknown, too_new) {
            (Some(target), _, _) => CodeFit::Ptx(target),
            (None, Some(unknown), _) => unknown,
            (None, None, Some(isa)) if machine == CodeFit::No => CodeFit::PtxTooNew(isa.clone()),
            _ => machine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_written() {
        for (text, capability, scope) in [
            ("sm_86", (8, 6), Scope::Plain),
            ("compute_90a", (9, 0), Scope::Specific),
            ("100f", (10, 0), Scope::Family),
            ("sm_121", (12, 1), Scope::Plain),
        ] {
            let target = Target::parse(text).unwrap();
            assert_eq!(target, Target { capability, scope }, "{text}");
            assert_eq!(Target::parse(&target.to_string()), Some(target));
        }
        for text in ["", "sm_", "sm_8", "sm_8x", "sm_90af", "sm_999999", "gfx90a"] {
            assert_eq!(Target::parse(text), None, "{text}");
        }
    }
}
