//! Rules whose fault lies in the hardware layer.

use super::Rule;

pub(super) static RULES: &[Rule] = &[];
