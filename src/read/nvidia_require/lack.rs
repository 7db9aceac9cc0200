//! What a host lacks for a value that it does not meet: which other driver, GPU or image would do. Judged term by term, since
//! each of them is a way by itself.

use super::{Condition, Host, HostValue, Operator, Property, holds};
use crate::version::Version;

/// What would make the terms of a value hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lack {
    /// The least CUDA version that a term asks of the driver and nothing else does: `cuda>=12.8`.
    pub cuda: Option<Version>,
    /// Branches of a driver that would do: `brand=tesla,driver>=535,driver<536`, where nothing but the driver is against it.
    /// The image brings the compat package for them.
    pub branches: Vec<u32>,
    /// What else another driver would make hold: `cuda!=12.4`, `driver>=560`.
    pub driver: Vec<String>,
    /// What another GPU would make hold: `arch>=9.0`.
    pub gpu: Vec<String>,
    /// What it takes both for, another driver and another GPU.
    pub both: Vec<String>,
}

impl Lack {
    /// What is missing on a host; empty where a term holds already.
    pub fn of(terms: &[(String, Vec<Condition>)], host: &Host) -> Self {
        let mut lack = Self::default();
        for (_, conditions) in terms {
            let failing: Vec<&Condition> = conditions
                .iter()
                .filter(|condition| holds(condition, host) == Some(false))
                .collect();
            if failing.is_empty() {
                continue;
            }
            let of_driver = |condition: &&&Condition| {
                matches!(condition.property, Property::Cuda | Property::Driver)
            };
            let by_driver = failing.iter().filter(of_driver).count();
            let text = told(&failing);
            if by_driver == 0 {
                push(&mut lack.gpu, text);
            } else if by_driver < failing.len() {
                push(&mut lack.both, text);
            } else if let Some(cuda) = lone_cuda(conditions) {
                lack.cuda = Some(lack.cuda.map_or(cuda.clone(), |least| least.min(cuda)));
            } else if let Some(branch) = branch(conditions) {
                if !lack.branches.contains(&branch) {
                    lack.branches.push(branch);
                }
            } else {
                push(&mut lack.driver, text);
            }
        }
        lack.branches.sort_unstable();
        lack
    }

    /// Whether another driver alone would do.
    pub fn is_of_driver(&self) -> bool {
        self.cuda.is_some() || !self.branches.is_empty() || !self.driver.is_empty()
    }
}

/// The CUDA version of `cuda>=12.8`, where that is the whole term.
pub fn lone_cuda(conditions: &[Condition]) -> Option<Version> {
    match conditions {
        [only] if only.property == Property::Cuda && only.operator == Operator::GreaterEqual => {
            Version::parse(&only.operand)
        }
        _ => None,
    }
}

/// The branch that a term is about: `driver>=535,driver<536`, whatever it says of the GPU.
pub fn branch(conditions: &[Condition]) -> Option<u32> {
    let number = |property: Property, operator: Operator| {
        let mut of_it = conditions
            .iter()
            .filter(|c| c.property == property && c.operator == operator);
        let version = Version::parse(&of_it.next()?.operand)?;
        of_it.next().is_none().then(|| version.major())
    };
    let from = number(Property::Driver, Operator::GreaterEqual)?;
    let below = number(Property::Driver, Operator::Less)?;
    let no_cuda = conditions.iter().all(|c| c.property != Property::Cuda);
    (no_cuda && below == from.checked_add(1)?).then_some(from)
}

/// The one value that a host has for a property, where it is sure.
pub fn sure(value: &HostValue) -> Option<&str> {
    match value {
        HostValue::OneOf(values) => match values.as_slice() {
            [value] => Some(value),
            _ => None,
        },
        HostValue::Unknown | HostValue::NoGpu => None,
    }
}

fn told(conditions: &[&Condition]) -> String {
    let texts: Vec<&str> = conditions.iter().map(|c| c.text.as_str()).collect();
    texts.join(",")
}

fn push(list: &mut Vec<String>, text: String) {
    if !list.contains(&text) {
        list.push(text);
    }
}
