//! The Go evaluator of the runtime's csv mode: reads every condition first, then compares.

use std::cmp::Ordering;

use super::{Answer, Host, HostValue, Operator, Possible, Property};

/// Operators in the order in which they are tried.
const OPERATORS: &[Operator] = &[
    Operator::NotEqual,
    Operator::LessEqual,
    Operator::GreaterEqual,
    Operator::Equal,
    Operator::Less,
    Operator::Greater,
];
/// The longest version that is read.
const VERSION_CAP: usize = 256;

/// A condition that was read; those on unknown properties are skipped.
struct Read<'a> {
    property: Property,
    /// `None`: none of the operators, which only a brand gets away with, and then never holds.
    operator: Option<Operator>,
    operand: &'a str,
}

pub(super) fn evaluate(value: &str, host: &Host) -> Answer {
    let mut terms = Vec::new();
    for term in value.split(' ') {
        let mut conditions = Vec::new();
        for text in term.split(',').filter(|text| !text.trim().is_empty()) {
            match read(text) {
                Ok(Some(one)) => conditions.push(one),
                Ok(None) => {}
                Err(()) => return Answer::Invalid(text.to_owned()),
            }
        }
        if !conditions.is_empty() {
            terms.push(conditions);
        }
    }
    if terms.is_empty() {
        return Answer::Met;
    }
    let mut any = Possible::just(false);
    for term in &terms {
        let mut all = Possible::just(true);
        for one in term {
            let one = compare(one, host);
            all.yes &= one.yes;
            all.no |= one.no;
            all.open.extend(one.open);
        }
        any.yes |= all.yes;
        any.no &= all.no;
        any.open.extend(all.open);
    }
    any.answer()
}

/// Reads a condition; `Ok(None)`: on an unknown property.
fn read(text: &str) -> Result<Option<Read<'_>>, ()> {
    let at = text.find(['<', '>', '=', '!']).ok_or(())?;
    let (name, rest) = text.split_at_checked(at).ok_or(())?;
    let Some(property) = Property::ALL.into_iter().find(|p| p.name() == name) else {
        return Ok(None);
    };
    let operator = OPERATORS
        .iter()
        .copied()
        .find(|operator| rest.starts_with(operator.text()));
    let operand = operator
        .and_then(|operator| rest.strip_prefix(operator.text()))
        .unwrap_or(rest);
    if property != Property::Brand && Semver::parse(operand).is_none() {
        return Err(());
    }
    Ok(Some(Read {
        property,
        operator,
        operand,
    }))
}

/// What a condition comes to. Driver and brand are never filled in: no version, and no text.
fn compare(one: &Read<'_>, host: &Host) -> Possible {
    let holds = |order: Ordering| one.operator.is_some_and(|operator| operator.holds(order));
    match one.property {
        Property::Driver => Possible::just(false),
        Property::Brand => Possible::just(holds("".cmp(one.operand))),
        Property::Cuda | Property::Arch => {
            let against = |value: &str| {
                Semver::parse(value)
                    .zip(Semver::parse(one.operand))
                    .is_some_and(|(value, operand)| holds(value.order(&operand)))
            };
            match host.value(one.property) {
                HostValue::OneOf(values) if !values.is_empty() => {
                    let mut possible = Possible::default();
                    for value in values {
                        let met = against(value);
                        possible.yes |= met;
                        possible.no |= !met;
                    }
                    if values.len() > 1 {
                        possible.open.insert(one.property);
                    }
                    possible
                }
                // No GPU: the runtime has nothing to do, and checks nothing.
                HostValue::NoGpu => Possible::just(true),
                HostValue::Unknown | HostValue::OneOf(_) => Possible {
                    yes: true,
                    no: true,
                    invalid: None,
                    open: [one.property].into(),
                },
            }
        }
    }
}

/// A version as the Go evaluator reads it: `v` or not, one to three numbers, `-pre`, `+meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Semver<'a> {
    numbers: [u64; 3],
    /// What stands behind `-`; it is below the release.
    pre: Option<&'a str>,
}

impl<'a> Semver<'a> {
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if text.len() > VERSION_CAP {
            return None;
        }
        let text = text.strip_prefix('v').unwrap_or(text);
        let (text, meta) = match text.split_once('+') {
            Some((text, meta)) => (text, Some(meta)),
            None => (text, None),
        };
        let (text, pre) = match text.split_once('-') {
            Some((text, pre)) => (text, Some(pre)),
            None => (text, None),
        };
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
        let leading_zero = |word: &str| word.len() > 1 && word.starts_with('0') && is_number(word);
        if meta.is_some_and(|meta| !meta.split('.').all(is_word))
            || pre.is_some_and(|pre| {
                !pre.split('.')
                    .all(|word| is_word(word) && !leading_zero(word))
            })
        {
            return None;
        }
        let mut numbers = [0; 3];
        let mut parts = text.split('.');
        let mut slots = numbers.iter_mut();
        *slots.next()? = whole(parts.next()?)?;
        for part in parts {
            *slots.next()? = whole(part)?;
        }
        Some(Self { numbers, pre })
    }

    pub(super) fn major(&self) -> u64 {
        self.numbers[0]
    }

    pub(super) fn minor(&self) -> u64 {
        self.numbers[1]
    }

    /// Which is newer; what stands behind `+` does not count.
    fn order(&self, other: &Self) -> Ordering {
        self.numbers
            .cmp(&other.numbers)
            .then_with(|| match (self.pre, other.pre) {
                (None, None) => Ordering::Equal,
                (None, Some(_)) => Ordering::Greater,
                (Some(_), None) => Ordering::Less,
                (Some(a), Some(b)) => order_pre(a, b),
            })
    }
}

/// Digits alone, and a number of 64 bits.
fn whole(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// Words of a pre-release: numbers by value and below letters, letters by byte, fewer words first.
fn order_pre(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => match (whole(x), whole(y)) {
                (Some(x), Some(y)) => x.cmp(&y),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => x.cmp(y),
            },
        };
        if order.is_ne() {
            return order;
        }
    }
}
