//! Rules whose fault lies in the container layer.

use super::Rule;

pub(super) static RULES: &[Rule] = &[];
