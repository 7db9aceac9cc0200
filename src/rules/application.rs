//! Rules whose fault lies in the application layer.

use super::Rule;

pub(super) static RULES: &[Rule] = &[];
