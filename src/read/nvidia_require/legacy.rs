//! `nvidia-container-cli`: left to right, and no further than needed.

use super::{Answer, Host, HostValue, Operator, Possible, Property, split};

/// A condition that does not hold and is this long, written with a blank on either side of the operator, is refused: the
/// program has no room for its message.
const MESSAGE_ROOM: usize = 128;

pub(super) fn evaluate(value: &str, host: &Host) -> Answer {
    let mut all = Possible::default();
    // What the conditions so far came to, where the program is still reading.
    let mut so_far = true;
    let mut reading = true;
    for term in value.split(' ').filter(|term| !term.is_empty()) {
        let mut conditions = term.split(',').filter(|c| !c.is_empty()).peekable();
        if conditions.peek().is_none() {
            // A term of commas alone ends it with what there is.
            break;
        }
        let mut alive = true;
        let mut may_fail = false;
        for text in conditions {
            let one = condition(text, host);
            all.open.extend(one.open);
            if all.invalid.is_none() {
                all.invalid = one.invalid;
            }
            may_fail |= one.no;
            if !one.yes {
                alive = false;
                break;
            }
        }
        all.yes |= alive;
        reading = may_fail;
        if !reading {
            break;
        }
        so_far = false;
    }
    if reading {
        all.yes |= so_far;
        all.no |= !so_far;
    }
    all.answer()
}

/// What one condition comes to.
pub(super) fn condition(text: &str, host: &Host) -> Possible {
    let refused = || Possible::invalid(text);
    let Some((name, operator, operand)) = split(text) else {
        return refused();
    };
    // The program compares as many letters as were written, so that a lone `!` is the beginning of `!=`.
    let operator = match operator {
        "!" => Operator::NotEqual,
        written => match Operator::of(written) {
            Some(operator) => operator,
            None => return refused(),
        },
    };
    if name.is_empty() || operand.is_empty() {
        return refused();
    }
    let Some(property) = Property::ALL
        .into_iter()
        .find(|property| name.eq_ignore_ascii_case(property.name()))
    else {
        return refused();
    };
    let too_long = name.len() + operator.text().len() + operand.len() + 2 >= MESSAGE_ROOM;
    let compare = |value: &str| match property {
        Property::Brand => compare_brand(value, operator, operand),
        _ => compare_version(value, operator, operand),
    };
    let mut possible = Possible::default();
    let mut add = |holds: Option<bool>| match holds {
        Some(true) => possible.yes = true,
        Some(false) if !too_long => possible.no = true,
        _ => possible.invalid = Some(text.to_owned()),
    };
    match host.value(property) {
        HostValue::NoGpu => add(Some(true)),
        HostValue::OneOf(values) if !values.is_empty() => {
            for value in values {
                add(compare(value));
            }
            if values.len() > 1 {
                possible.open.insert(property);
            }
        }
        HostValue::Unknown | HostValue::OneOf(_) => {
            // What no host's value could be compared with is refused whatever the host is.
            let readable = match property {
                Property::Brand => matches!(operator, Operator::Equal | Operator::NotEqual),
                _ => compare_version("1", operator, operand).is_some(),
            };
            if readable {
                add(Some(true));
                add(Some(false));
                possible.open.insert(property);
            } else {
                add(None);
            }
        }
    }
    possible
}

/// Brands are equal or not.
fn compare_brand(host: &str, operator: Operator, operand: &str) -> Option<bool> {
    match operator {
        Operator::Equal => Some(host.eq_ignore_ascii_case(operand)),
        Operator::NotEqual => Some(!host.eq_ignore_ascii_case(operand)),
        _ => None,
    }
}

/// Versions are numbers with dots between, as many as there are; what is missing counts as zero. `None`: refused.
fn compare_version(host: &str, operator: Operator, operand: &str) -> Option<bool> {
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !plain(host) || !plain(operand) {
        return None;
    }
    let (mut left, mut right) = (host, operand);
    while !left.is_empty() && !right.is_empty() {
        let (a, after_a) = number(left)?;
        let (b, after_b) = number(right)?;
        if a != b {
            return Some(operator.holds(a.cmp(&b)));
        }
        left = after_a.trim_start_matches('.');
        right = after_b.trim_start_matches('.');
    }
    let more = |rest: &str| u8::from(rest.bytes().any(|b| !matches!(b, b'.' | b'0')));
    Some(operator.holds(more(left).cmp(&more(right))))
}

/// The number at the beginning, and the rest. The largest number of 64 bits counts as an overflow.
fn number(text: &str) -> Option<(u64, &str)> {
    let end = text
        .bytes()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    let value: u64 = digits.parse().ok()?;
    (value != u64::MAX).then_some((value, rest))
}
