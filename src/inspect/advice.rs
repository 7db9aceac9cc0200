//! The ways out for a machine, looked up once: hundreds of files that fail for one reason ask the same question.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

use crate::ask::{self, Way};
use crate::matrix::Matrix;
use crate::target::Target;

/// The ways that were looked up before. It is no part of what a machine is: a copy begins empty, and any two are equal.
#[derive(Default)]
pub struct Advice(RefCell<BTreeMap<String, Vec<Way>>>);

impl Advice {
    /// The ways that are open, best first.
    pub fn ways(&self, matrix: &Matrix, target: &Target) -> Vec<Way> {
        let key = target.to_string();
        if let Some(known) = self.0.borrow().get(&key) {
            return known.clone();
        }
        let ways = ask::can(matrix, target).map_or_else(|_| Vec::new(), |answer| answer.ways);
        // What hangs on a GPU that was not named is no advice yet.
        let open: Vec<Way> = ways
            .into_iter()
            .filter(|way| way.open == Some(true))
            .collect();
        self.0.borrow_mut().insert(key, open.clone());
        open
    }
}

impl Clone for Advice {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Advice {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Advice {}

impl fmt::Debug for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Advice")
    }
}
