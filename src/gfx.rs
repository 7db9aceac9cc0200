//! AMD's names for instruction sets (`gfx1031`), in the three spellings that the stack has for them: the name of a compiler
//! target, the number of the kernel's topology (100301), and the `10.3.1` of `HSA_OVERRIDE_GFX_VERSION`.
//!
//! Whether code for one runs on another is the matrix's business.

use std::fmt;

/// An instruction set of AMD's GPUs (LLVM, "User Guide for AMDGPU Backend", processors).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GfxTarget {
    /// Generation: 9 is Vega and CDNA, 10 RDNA 1 and 2, 11 RDNA 3, 12 RDNA 4.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Stepping.
    pub stepping: u32,
}

impl GfxTarget {
    /// `gfx90a`, `gfx1031`; features behind it (`gfx906:sramecc+:xnack-`, `gfx906-xnack-`) are not part of the name.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("gfx")?;
        let end = digits
            .find(|c: char| !c.is_ascii_hexdigit())
            .unwrap_or(digits.len());
        let (digits, rest) = digits.split_at_checked(end)?;
        // `gfx11-generic` stands for a family, not for one of it.
        if !(rest.is_empty() || rest.starts_with([':', '-', '_', '.'])) || rest.starts_with("-gen")
        {
            return None;
        }
        let (major, small) = digits.split_at_checked(digits.len().checked_sub(2)?)?;
        let mut small = small.chars().map(|c| c.to_digit(16));
        Some(Self {
            major: major.parse().ok().filter(|major| *major > 0)?,
            minor: small.next()??,
            stepping: small.next()??,
        })
    }

    /// The number that the kernel writes as `gfx_target_version`: 100301. 0 is a processor.
    pub fn from_number(number: u32) -> Option<Self> {
        (number > 0).then_some(Self {
            major: number / 10_000,
            minor: number / 100 % 100,
            stepping: number % 100,
        })
    }

    /// The text of `HSA_OVERRIDE_GFX_VERSION`: `10.3.0`, all three numbers decimal.
    pub fn from_dotted(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.').map(|part| part.parse().ok());
        let target = Self {
            major: parts.next()??,
            minor: parts.next()??,
            stepping: parts.next()??,
        };
        parts.next().is_none().then_some(target)
    }

    /// As `HSA_OVERRIDE_GFX_VERSION` takes it.
    pub fn dotted(self) -> String {
        format!("{}.{}.{}", self.major, self.minor, self.stepping)
    }
}

impl fmt::Display for GfxTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gfx{}{:x}{:x}", self.major, self.minor, self.stepping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_target_in_three_spellings() {
        for (name, number, dotted) in [
            ("gfx803", 80_003, "8.0.3"),
            ("gfx90a", 90_010, "9.0.10"),
            ("gfx942", 90_402, "9.4.2"),
            ("gfx1031", 100_301, "10.3.1"),
            ("gfx1151", 110_501, "11.5.1"),
            ("gfx1201", 120_001, "12.0.1"),
        ] {
            let target = GfxTarget::parse(name).unwrap();
            assert_eq!(GfxTarget::from_number(number), Some(target), "{name}");
            assert_eq!(GfxTarget::from_dotted(dotted), Some(target), "{name}");
            assert_eq!(target.to_string(), name);
            assert_eq!(target.dotted(), dotted);
        }
    }

    #[test]
    fn features_are_no_part_of_a_name_and_a_family_is_no_target() {
        let target = GfxTarget::parse("gfx906");
        assert!(target.is_some());
        assert_eq!(GfxTarget::parse("gfx906:sramecc+:xnack-"), target);
        assert_eq!(GfxTarget::parse("gfx906-xnack-"), target);
        for none in ["gfx", "gfx9", "gfx11-generic", "gfxabc", "sm_90", "gfx90z"] {
            assert_eq!(GfxTarget::parse(none), None, "{none}");
        }
        assert_eq!(GfxTarget::from_number(0), None);
        for none in ["", "10.3", "10.3.0.1", "gfx1030", "10.3.x"] {
            assert_eq!(GfxTarget::from_dotted(none), None, "{none}");
        }
    }
}
