//! The names of device code's targets: `sm_90a`, `compute_120f`.

use std::fmt;

/// What a device-code entry was built for: the decimal number of the SM, and how far it reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// 75, 90, 120: ten times the major version of the compute capability, plus the minor.
    pub number: u32,
    /// The letter at the end.
    pub suffix: Suffix,
}

/// The letter at the end of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suffix {
    /// `sm_80`.
    None,
    /// `sm_90a`: this very capability.
    Specific,
    /// `sm_100f`: its family.
    Family,
}

impl Arch {
    /// By the number and the flags of an entry: bit 20 is `a`, bit 21 is `f`.
    pub(super) fn of_flags(number: u32, flags: u64) -> Self {
        let suffix = if flags & 0x10_0000 != 0 {
            Suffix::Specific
        } else if flags & 0x20_0000 != 0 {
            Suffix::Family
        } else {
            Suffix::None
        };
        Self { number, suffix }
    }

    /// From `90a`, `sm_90a`, `compute_90a`.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text
            .strip_prefix("sm_")
            .or_else(|| text.strip_prefix("compute_"))
            .unwrap_or(text);
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, suffix) = text.split_at_checked(digits)?;
        let suffix = match suffix {
            "" => Suffix::None,
            "a" => Suffix::Specific,
            "f" => Suffix::Family,
            _ => return None,
        };
        Some(Self {
            number: number.parse().ok()?,
            suffix,
        })
    }

    /// As machine code is called: `sm_90a`.
    pub fn sm(self) -> String {
        format!("sm_{self}")
    }

    /// As PTX is called: `compute_90a`.
    pub fn compute(self) -> String {
        format!("compute_{self}")
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.suffix {
            Suffix::None => "",
            Suffix::Specific => "a",
            Suffix::Family => "f",
        };
        write!(f, "{}{letter}", self.number)
    }
}
