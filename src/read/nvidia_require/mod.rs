//! What an image asks of its host: the variables `NVIDIA_REQUIRE_*`, and what each of the two programs that check them
//! makes of a value.
//!
//! A value is a list of terms, of which one has to be met (a blank is OR), each of them a list of conditions, all of which
//! have to hold (a comma is AND): `cuda>=12.4 brand=tesla,driver>=470,driver<471`. The two programs read that differently:
//! `nvidia-container-cli` ([`Evaluator::Legacy`]) goes from left to right and stops where the answer is sure, so that what it
//! never reaches may be rubbish; the Go one ([`Evaluator::Csv`], Jetson) reads all of it first. In the CDI modes nobody checks
//! anything.
//!
//! What is not known of a host stays open: the answer is then given only where every possibility leads to it.

mod csv;
mod given;
mod lack;
mod legacy;

use std::collections::{BTreeMap, BTreeSet};

pub use given::given;
pub use lack::{Lack, branch, lone_cuda, sure};

/// The longest value that is looked at. Published images stay below 4 KiB; an environment variable may have 128 KiB.
pub const LENGTH_CAP: usize = 1 << 17;
/// `nvidia-container-runtime-hook` hands on so many requirements and no more.
pub const VARIABLES_CAP: usize = 32;

/// How the names of variables that ask begin.
const PREFIX: &str = "NVIDIA_REQUIRE_";

/// So many brands that a GPU may be of are gone through one by one.
const BRANDS_CAP: usize = 4;

/// Who checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evaluator {
    /// `nvidia-container-cli`: Docker's `--gpus`, the runtime in legacy mode, enroot.
    Legacy,
    /// The runtime in csv mode (Jetson): knows `cuda` and `arch` only.
    Csv,
}

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// The CUDA version of the driver: `12.4`.
    Cuda,
    /// The driver: `550.54.14`.
    Driver,
    /// The compute capability of the GPU: `8.0`.
    Arch,
    /// The GPU's product line: `tesla`.
    Brand,
}

impl Property {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Cuda, Self::Driver, Self::Arch, Self::Brand];

    /// As values spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Driver => "driver",
            Self::Arch => "arch",
            Self::Brand => "brand",
        }
    }
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

impl Operator {
    /// As values spell it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
        }
    }

    /// The operator of this spelling.
    fn of(text: &str) -> Option<Self> {
        [
            Self::Equal,
            Self::NotEqual,
            Self::Less,
            Self::LessEqual,
            Self::Greater,
            Self::GreaterEqual,
        ]
        .into_iter()
        .find(|op| op.text() == text)
    }

    /// Whether it holds for two things of this order.
    fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterEqual => order.is_ge(),
        }
    }
}

/// What a host has for a property.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostValue {
    /// Nobody knows.
    #[default]
    Unknown,
    /// One of these; one alone is sure.
    OneOf(Vec<String>),
    /// No GPU was selected: every condition on it holds.
    NoGpu,
}

impl HostValue {
    /// It is this.
    pub fn is(value: impl Into<String>) -> Self {
        Self::OneOf(vec![value.into()])
    }
}

/// A host with one of its GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The CUDA version of its driver.
    pub cuda: HostValue,
    /// Its driver.
    pub driver: HostValue,
    /// The compute capability of the GPU.
    pub arch: HostValue,
    /// The GPU's brand, in lower case.
    pub brand: HostValue,
}

impl Host {
    /// What it has for a property.
    pub fn value(&self, property: Property) -> &HostValue {
        match property {
            Property::Cuda => &self.cuda,
            Property::Driver => &self.driver,
            Property::Arch => &self.arch,
            Property::Brand => &self.brand,
        }
    }
}

/// What a program makes of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The host does.
    Met,
    /// The host does not do.
    Unmet,
    /// The program refuses the value; in words what it cannot read.
    Invalid(String),
    /// It depends on these, which are not known of the host.
    Unknown(Vec<Property>),
}

/// The answers that are possible, as far as the host is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Possible {
    yes: bool,
    no: bool,
    /// What cannot be read.
    invalid: Option<String>,
    /// What it depends on.
    open: BTreeSet<Property>,
}

impl Possible {
    fn just(holds: bool) -> Self {
        Self {
            yes: holds,
            no: !holds,
            ..Self::default()
        }
    }

    fn invalid(what: impl Into<String>) -> Self {
        Self {
            invalid: Some(what.into()),
            ..Self::default()
        }
    }

    fn answer(self) -> Answer {
        match (self.yes, self.no, self.invalid) {
            (true, false, None) => Answer::Met,
            (false, true, None) => Answer::Unmet,
            (false, false, Some(what)) => Answer::Invalid(what),
            _ => Answer::Unknown(self.open.into_iter().collect()),
        }
    }
}

/// What a program answers for one value on one host.
pub fn evaluate(evaluator: Evaluator, value: &str, host: &Host) -> Answer {
    if value.len() > LENGTH_CAP {
        return Answer::Invalid("a value longer than any environment has".to_owned());
    }
    let one = |host: &Host| match evaluator {
        Evaluator::Legacy => legacy::evaluate(value, host),
        Evaluator::Csv => csv::evaluate(value, host),
    };
    // A GPU has one brand in all terms: `brand=tesla,.. brand=nvidia,..` is met by one that is either of them.
    match &host.brand {
        HostValue::OneOf(brands) if (2..=BRANDS_CAP).contains(&brands.len()) => {
            let answers = brands.iter().map(|brand| {
                one(&Host {
                    brand: HostValue::is(brand),
                    ..host.clone()
                })
            });
            answers
                .reduce(|all, answer| together(all, answer, Property::Brand))
                .unwrap_or_else(|| one(host))
        }
        _ => one(host),
    }
}

/// One answer where two that hang on a property differ.
fn together(one: Answer, other: Answer, by: Property) -> Answer {
    if one == other {
        return one;
    }
    let mut open = BTreeSet::from([by]);
    for answer in [one, other] {
        if let Answer::Unknown(of_one) = answer {
            open.extend(of_one);
        }
    }
    Answer::Unknown(open.into_iter().collect())
}

/// One condition, as somebody who mends it reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// As written.
    pub text: String,
    /// What it is about.
    pub property: Property,
    /// The comparison.
    pub operator: Operator,
    /// What it is compared with.
    pub operand: String,
}

/// The terms of a value with their conditions; what neither program could read is left out.
pub fn terms(value: &str) -> Vec<(String, Vec<Condition>)> {
    let value = value.get(..LENGTH_CAP.min(value.len())).unwrap_or(value);
    value
        .split(' ')
        .map(|term| {
            let conditions = term.split(',').filter_map(condition).collect();
            (term.to_owned(), conditions)
        })
        .filter(|(_, conditions): &(_, Vec<_>)| !conditions.is_empty())
        .collect()
}

/// Reads one condition by the strictest of both grammars, but for the case of the name.
fn condition(text: &str) -> Option<Condition> {
    let (name, operator, operand) = split(text)?;
    let property = Property::ALL
        .into_iter()
        .find(|property| name.eq_ignore_ascii_case(property.name()))?;
    Some(Condition {
        text: text.to_owned(),
        property,
        operator: Operator::of(operator)?,
        operand: operand.to_owned(),
    })
}

/// Whether a condition holds on a host; `None`: not known, or not to be read.
pub fn holds(condition: &Condition, host: &Host) -> Option<bool> {
    match legacy::condition(&condition.text, host).answer() {
        Answer::Met => Some(true),
        Answer::Unmet => Some(false),
        Answer::Invalid(_) | Answer::Unknown(_) => None,
    }
}

/// Name, run of operator characters, rest.
fn split(text: &str) -> Option<(&str, &str, &str)> {
    let is_operator = |c: char| matches!(c, '<' | '>' | '=' | '!');
    let (name, rest) = text.split_at_checked(text.find(is_operator)?)?;
    let end = rest.find(|c| !is_operator(c)).unwrap_or(rest.len());
    let (operator, operand) = rest.split_at_checked(end)?;
    Some((name, operator, operand))
}

/// A requirement: the variable and its value. `CUDA_VERSION` is the variable of one that an old image implies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// `NVIDIA_REQUIRE_CUDA`.
    pub variable: String,
    /// `cuda>=12.4 ...`
    pub value: String,
}

/// The requirements in an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirements {
    /// All of them have to be met.
    pub values: Vec<Named>,
    /// `NVIDIA_DISABLE_REQUIRE` switches them off.
    pub disabled: bool,
    /// What `NVIDIA_DISABLE_REQUIRE` says where it is set and switches nothing off: `yes`.
    pub not_disabled_by: Option<String>,
    /// `CUDA_VERSION` where it stops the container: it is no version.
    pub broken_cuda_version: Option<String>,
    /// The image is one of those from before `NVIDIA_REQUIRE_CUDA`: it asks by `CUDA_VERSION`.
    pub legacy_image: bool,
}

/// The requirements of an image's environment, as enroot's hook gathers them: all variables go to `nvidia-container-cli`, those
/// of a Jetson too; any word in `NVIDIA_DISABLE_REQUIRE` switches them off, and `CUDA_VERSION` asks nothing.
pub fn requirements_in_enroot(env: &BTreeMap<String, String>) -> Requirements {
    let is_asked =
        |(name, value): &(&String, &String)| name.starts_with(PREFIX) && !value.is_empty();
    Requirements {
        values: env
            .iter()
            .filter(is_asked)
            .map(|(variable, value)| Named {
                variable: variable.clone(),
                value: value.clone(),
            })
            .collect(),
        disabled: env
            .get("NVIDIA_DISABLE_REQUIRE")
            .is_some_and(|word| !word.is_empty()),
        ..Requirements::default()
    }
}

/// The requirements of an image's environment, as NVIDIA's container toolkit gathers them.
pub fn requirements(env: &BTreeMap<String, String>) -> Requirements {
    let get = |name: &str| env.get(name).map(String::as_str);
    let mut found = Requirements::default();
    for (variable, value) in env {
        if variable.starts_with(PREFIX)
            && !variable.starts_with("NVIDIA_REQUIRE_JETPACK")
            && !value.is_empty()
        {
            found.values.push(Named {
                variable: variable.clone(),
                value: value.clone(),
            });
        }
    }
    match get("NVIDIA_DISABLE_REQUIRE") {
        // What Go's strconv.ParseBool takes for true.
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => found.disabled = true,
        None | Some("" | "0" | "f" | "F" | "false" | "FALSE" | "False") => {}
        Some(other) => found.not_disabled_by = Some(other.to_owned()),
    }
    let asks = get("NVIDIA_REQUIRE_CUDA").is_some_and(|value| !value.is_empty());
    if let Some(version) = get("CUDA_VERSION").filter(|version| !asks && !version.is_empty()) {
        found.legacy_image = true;
        match csv::Semver::parse(version) {
            Some(read) => found.values.push(Named {
                variable: "CUDA_VERSION".to_owned(),
                value: format!("cuda>={}.{}", read.major(), read.minor()),
            }),
            None => found.broken_cuda_version = Some(version.to_owned()),
        }
    }
    found
}

/// The brands that NVML may give a GPU of this name, as requirement values spell them; unknown for a name of none of these
/// lines. Which of the two a line has changed with the branch of the driver.
pub fn brands_of(model: &str) -> HostValue {
    let name = model.to_lowercase();
    let has = |word: &str| name.split_whitespace().any(|part| part == word);
    let both = |a: &str, b: &str| HostValue::OneOf(vec![a.to_owned(), b.to_owned()]);
    if has("geforce") {
        both("geforce", "geforcertx")
    } else if has("titan") {
        both("titan", "titanrtx")
    } else if has("quadro") {
        both("quadro", "quadrortx")
    } else if has("tesla") {
        both("tesla", "nvidia")
    } else if has("rtx") && is_workstation(&name) {
        // NVIDIA RTX since 2020; drivers from before that say Quadro.
        let brands = ["nvidia", "nvidiartx", "quadro", "quadrortx"];
        HostValue::OneOf(brands.map(str::to_owned).to_vec())
    } else {
        HostValue::Unknown
    }
}

/// `rtx a6000`, `rtx 6000 ada generation`, `rtx pro 6000 blackwell`: none of the gaming line has these words beside `rtx`.
fn is_workstation(name: &str) -> bool {
    name.split_whitespace().any(|word| {
        let number = word.strip_prefix('a').unwrap_or_default();
        let is_model = number.len() >= 3 && number.bytes().all(|b| b.is_ascii_digit());
        is_model || matches!(word, "ada" | "pro")
    })
}

#[cfg(test)]
mod tests;
