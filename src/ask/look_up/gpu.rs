//! What a GPU is, what drives it and what builds for it.

use crate::ask::gpus::{self, GpuKind};
use crate::ask::{Answer, Cited, Question, Word, capability, in_words, sm};
use crate::matrix::{Arch, Confidence, Fit, Matrix, OpenModule, Scope, Target};
use crate::target;

/// Products that are listed by id.
const PRODUCTS_SHOWN: usize = 12;

/// What a GPU is, and what drives it and builds for it.
pub fn gpu(matrix: &Matrix, asked: &target::Gpu) -> Answer {
    let question = Question::Gpu { gpu: asked.clone() };
    let meant = gpus::meant(matrix, asked);
    let mut answer = match (meant.kinds.as_slice(), &meant.unknown) {
        ([], why) => Answer::new(
            question,
            Word::Unknown,
            format!(
                "`{}` is unknown: {}",
                meant.asked,
                why.as_deref().unwrap_or_default()
            ),
        ),
        ([one], _) => {
            let word = if one.arch(matrix).is_some() {
                Word::Known
            } else {
                Word::Unknown
            };
            Answer::new(question, word, in_one_line(matrix, one))
        }
        (several, _) => {
            let codes: Vec<_> = several.iter().map(GpuKind::code).collect();
            Answer::new(
                question,
                Word::Unknown,
                format!(
                    "`{}` is the name of GPUs of several architectures ({}): its PCI id tells which",
                    meant.asked,
                    codes.join(", ")
                ),
            )
        }
    };
    for kind in &meant.kinds {
        of_kind(matrix, kind, &mut answer);
    }
    if !meant.also.is_empty() {
        answer.fact(
            "not these",
            Cited::rule(
                shortened(&meant.also),
                &matrix.pci_edition(),
                Confidence::Verified,
            ),
        );
    }
    answer.gpus = vec![meant];
    answer.weighed()
}

fn in_one_line(matrix: &Matrix, kind: &GpuKind) -> String {
    let Some(arch) = kind.arch(matrix) else {
        return format!(
            "{} is known ({}), but its compute capability is not",
            kind.name,
            kind.generation.unwrap_or("generation not known")
        );
    };
    let driver = match (arch.first_driver_branch, arch.last_driver_branch) {
        (_, Some(last)) => format!("driver branch {last} at the newest"),
        (Some(first), None) => format!("driver branch {first} or newer"),
        (None, None) if arch.tegra => "the driver of its L4T release".to_owned(),
        (None, None) => "a driver that is not known".to_owned(),
    };
    let toolkit = match &arch.last_toolkit {
        Some(last) => format!(
            "CUDA {} to {}",
            arch.first_toolkit.major_minor(),
            last.major_minor()
        ),
        None => format!("CUDA {} or newer", arch.first_toolkit.major_minor()),
    };
    format!(
        "{} has compute capability {}: it takes {driver}, and {toolkit} builds for it",
        kind.name,
        capability_in_full(arch)
    )
}

/// A dozen names, and how many more.
fn shortened(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(PRODUCTS_SHOWN).cloned().collect();
    let more = match names.len().saturating_sub(PRODUCTS_SHOWN) {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    format!("{}{more}", shown.join(", "))
}

fn of_kind(matrix: &Matrix, kind: &GpuKind, answer: &mut Answer) {
    if !kind.products.is_empty() {
        let products: Vec<_> = kind
            .products
            .iter()
            .map(|product| format!("{} {}", product.id, product.name))
            .collect();
        answer.fact(
            "products",
            Cited::row(
                format!("{}: {}", kind.name, shortened(&products)),
                "chip",
                kind.chips.join(", "),
                &kind.source,
                kind.gpus
                    .iter()
                    .map(|gpu| gpu.confidence)
                    .min()
                    .unwrap_or(kind.confidence),
            ),
        );
    }
    let Some(arch) = kind.arch(matrix) else {
        return;
    };
    let examples = if kind.products.is_empty() && !arch.examples.is_empty() {
        format!(": {}", arch.examples.join(", "))
    } else {
        String::new()
    };
    answer.fact(
        "architecture",
        Cited::arch(
            format!(
                "{}, {}{examples}",
                sm(arch.capability),
                arch.name.as_deref().unwrap_or("no product known")
            ),
            arch,
        ),
    );
    let drivers = match (arch.first_driver_branch, arch.last_driver_branch) {
        (Some(first), Some(last)) => format!("branches {first} to {last}"),
        (Some(first), None) => format!("branch {first} or newer"),
        (None, Some(last)) => format!("up to branch {last}"),
        (None, None) if arch.supported => "all that are in the matrix".to_owned(),
        (None, None) => "not known by branch".to_owned(),
    };
    answer.fact("drivers", Cited::arch(drivers, arch));
    let last = arch.last_toolkit.as_ref().map_or_else(
        || "on".to_owned(),
        |last| format!("to {}", last.major_minor()),
    );
    answer.fact(
        "toolkits",
        Cited::arch(
            format!("CUDA {} {last}", arch.first_toolkit.major_minor()),
            arch,
        ),
    );
    let older: Vec<_> = matrix
        .archs()
        .iter()
        .filter(|other| other.capability < arch.capability)
        .filter(|other| {
            let target = Target {
                capability: other.capability,
                scope: Scope::Plain,
            };
            matrix.cubin_fits(&target, arch.capability) == Fit::Yes
        })
        .map(|other| sm(other.capability))
        .collect();
    let own = sm(arch.capability);
    let runs = if older.is_empty() {
        format!("for {own} alone")
    } else {
        format!("for {own}, and for {}", in_words(&older))
    };
    let rule = matrix
        .binary_rules()
        .iter()
        .find(|rule| rule.kind == "cubin");
    if let Some(rule) = rule {
        answer.fact(
            "machine code",
            Cited {
                text: format!(
                    "{runs}; PTX of {} or lower is compiled by the driver",
                    capability(arch.capability)
                ),
                ..Cited::binary_rule(rule)
            },
        );
    }
    let by_product = kind.gpus.iter().find_map(|gpu| matrix.open_module_of(gpu));
    let modules = match by_product.or_else(|| arch.open_module()) {
        Some(OpenModule::Required { confidence }) => Some(("the open ones only", confidence)),
        Some(OpenModule::Possible) => Some(("open or proprietary", arch.confidence)),
        Some(OpenModule::Impossible) => Some(("the proprietary ones only", arch.confidence)),
        None => None,
    };
    if let Some((text, confidence)) = modules {
        let cited = Cited {
            confidence,
            ..Cited::arch(text, arch)
        };
        answer.fact("kernel modules", cited);
    }
    let compat = match kind.compat_eligible {
        Some(true) => "may be used: a data-center board",
        Some(false) => "may not be used: error 804",
        None => "not known for this name",
    };
    answer.fact(
        "compat package",
        Cited::rule(
            compat,
            "CUDA Compatibility guide, Forward Compatibility: by the name of the board",
            Confidence::Secondary,
        ),
    );
    if let Some(note) = &arch.note {
        answer.fact("note", Cited::arch(note.clone(), arch));
    }
}

/// `8.6 (Ampere)`.
fn capability_in_full(arch: &Arch) -> String {
    match &arch.name {
        Some(name) => format!("{} ({name})", capability(arch.capability)),
        None => capability(arch.capability),
    }
}
