//! Rules whose fault lies in the system layer.

use super::Rule;

pub(super) static RULES: &[Rule] = &[];
