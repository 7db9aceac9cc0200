//! Rules whose fault lies in the driver layer.

use super::Rule;

pub(super) static RULES: &[Rule] = &[];
