//! Rules whose fault lies in the runtime layer.

use super::Rule;

pub(super) static RULES: &[Rule] = &[];
