//! What variables make of AMD's GPUs: which of them are seen, in what order, and what their instruction set passes for.

use super::VERIFY;
use crate::facts::{KfdNode, Layer, NamedGpu, Vendor};
use crate::finding::{Finding, Fix, Severity};
use crate::gfx::GfxTarget;
use crate::read::kfd::is_uuid;
use crate::rules::stack::in_words;
use crate::rules::{Ctx, Outcome, missing};

/// The GPUs that a program of the consumer sees.
pub(super) enum Seen<'a> {
    /// These, in this order.
    These(Vec<&'a KfdNode>),
    /// A variable names GPUs by UUID, and those were not looked up.
    Untold,
}

/// A variable that chooses GPUs, with its value.
struct Choice<'a> {
    name: &'static str,
    value: &'a str,
}

/// `ROCR_VISIBLE_DEVICES`: set and empty, it leaves none.
fn of_rocr<'a>(ctx: &'a Ctx<'_>) -> Option<Choice<'a>> {
    let name = "ROCR_VISIBLE_DEVICES";
    ctx.env(name).map(|value| Choice { name, value })
}

/// `HIP_VISIBLE_DEVICES`, else CUDA's variable, which HIP takes in its place; an empty one is none (ROCm/clr, `rocdevice.cpp`).
fn of_hip<'a>(ctx: &'a Ctx<'_>) -> Option<Choice<'a>> {
    ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"]
        .into_iter()
        .find_map(|name| {
            let value = ctx.env(name).filter(|value| !value.is_empty())?;
            Some(Choice { name, value })
        })
}

impl Choice<'_> {
    fn by_rocr(&self) -> bool {
        self.name == "ROCR_VISIBLE_DEVICES"
    }
}

/// What a choice leaves of these GPUs; `None` where an entry is a UUID that was not looked up.
fn left<'a>(
    ctx: &'a Ctx<'_>,
    choice: &Choice<'_>,
    gpus: &[&'a KfdNode],
) -> Option<Vec<&'a KfdNode>> {
    let known = ctx.facts.amd.named.items();
    let named = |entry: &str| {
        let is_it =
            |gpu: &&NamedGpu| gpu.variable == choice.name && gpu.entry.trim() == entry.trim();
        known.iter().find(is_it).map(|gpu| gpu.node)
    };
    let nodes: Vec<u32> = gpus.iter().map(|gpu| gpu.node).collect();
    let left = read(choice.value, choice.by_rocr(), &nodes, named)?;
    let left = left.into_iter();
    Some(left.filter_map(|at| gpus.get(at).copied()).collect())
}

/// The places of GPUs that a list leaves: of its entries up to the first that is none of these nodes. `named` tells the node of a
/// UUID, `None` where that is not known.
fn read(
    list: &str,
    by_rocr: bool,
    nodes: &[u32],
    named: impl Fn(&str) -> Option<Option<u32>>,
) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for entry in list.split(',') {
        let at = if is_uuid(entry, by_rocr) {
            let node = named(entry)?;
            nodes.iter().position(|known| Some(*known) == node)
        } else {
            let index = entry.trim().parse::<usize>();
            index.ok().filter(|index| *index < nodes.len())
        };
        // What follows an entry that is no GPU is left out.
        let Some(at) = at else { break };
        if !found.contains(&at) {
            found.push(at);
        } else if by_rocr {
            // The HSA runtime ends there as well.
            break;
        }
    }
    Some(found)
}

/// The GPUs of KFD that are seen.
pub(super) fn seen<'a>(ctx: &'a Ctx<'_>) -> Seen<'a> {
    let mut gpus = ctx.kfd_gpus();
    for choice in [of_rocr(ctx), of_hip(ctx)].into_iter().flatten() {
        let Some(these) = left(ctx, &choice, &gpus) else {
            return Seen::Untold;
        };
        gpus = these;
    }
    Seen::These(gpus)
}

/// Whether the environment of the caller is the one that counts, on a machine whose AMD GPUs are meant.
fn matters(ctx: &Ctx<'_>) -> bool {
    ctx.vendor() == Some(Vendor::Amd) && ctx.wants_rocm().is_some() && !ctx.kfd_gpus().is_empty()
}

/// A variable that leaves no GPU.
pub(super) fn hides_all(ctx: &Ctx<'_>) -> Outcome {
    if !matters(ctx) {
        return Outcome::Clean;
    }
    let gpus = ctx.kfd_gpus();
    let mut visible = gpus.clone();
    for choice in [of_rocr(ctx), of_hip(ctx)].into_iter().flatten() {
        let Some(these) = left(ctx, &choice, &visible) else {
            return match missing("GPUs by UUID", &ctx.facts.amd.named) {
                Some(reason) => Outcome::unknown(reason),
                None => Outcome::Clean,
            };
        };
        if !these.is_empty() {
            visible = these;
            continue;
        }
        let names: Vec<String> = gpus.iter().map(|node| ctx.kfd_name(node)).collect();
        let by_uuid = is_uuid(choice.value, choice.by_rocr());
        let how = if by_uuid {
            "unset the variable, or name GPUs that are here: `rocminfo` lists each with its Uuid"
        } else {
            "unset the variable, or name GPUs that are here"
        };
        return Outcome::found([Finding::new("hip-visible-devices-hides-all", Layer::Application, Severity::Error, format!("{}={} hides every AMD GPU ({} {} here)", choice.name, choice.value, gpus.len(), if gpus.len() == 1 { "is" } else { "are" }))
            .of(Vendor::Amd)
            .complaining(Layer::Framework)
            .component(choice.name)
            .detail(if by_uuid {
                "A GPU is named by `GPU-` and the sixteen digits of its unique id, as rocminfo shows it (Uuid), or by the start of it; no GPU here has this one. The list is read up to the first entry that is no GPU."
            } else {
                "GPUs are counted from 0. The list is read up to the first entry that is no GPU, and what follows is left out; -1 leaves none."
            })
            .evidence(choice.name, choice.value, ctx.facts.environment.source())
            .evidence("GPUs in KFD's topology", in_words(&names), ctx.facts.amd.topology.source())
            .source("ROCm documentation: GPU isolation; ROCm/clr: rocclr/device/rocm/rocdevice.cpp; ROCR-Runtime: amd_filter_device.cpp")
            .fix(Fix::at(Layer::Application, how).line(format!("unset {}", choice.name)).verify(VERIFY))]);
    }
    Outcome::Clean
}

/// The GPU that is part of the processor comes first, and programs take the first.
pub(super) fn integrated_gpu_first(ctx: &Ctx<'_>) -> Outcome {
    // A variable that was not seen may choose.
    if ctx.facts.environment.is_unreadable() {
        return Outcome::Clean;
    }
    if !matters(ctx) || of_rocr(ctx).is_some() || of_hip(ctx).is_some() {
        return Outcome::Clean;
    }
    let gpus = ctx.kfd_gpus();
    let is_integrated = |node: &KfdNode| {
        node.target()
            .and_then(|target| ctx.matrix.gfx_is_integrated(target))
    };
    let first = gpus.first().copied();
    let discrete: Vec<usize> = (0..)
        .zip(&gpus)
        .filter(|(_, node)| is_integrated(node) == Some(false))
        .map(|(index, _)| index)
        .collect();
    let Some(first) =
        first.filter(|node| is_integrated(node) == Some(true) && !discrete.is_empty())
    else {
        return Outcome::Clean;
    };
    let list: Vec<String> = discrete.iter().map(ToString::to_string).collect();
    let mut finding = Finding::new("amd-integrated-gpu-first", Layer::Application, Severity::Warning, format!("HIP's first GPU is the processor's own: {}", ctx.kfd_name(first)))
        .of(Vendor::Amd)
        .complaining(Layer::Framework)
        .component("HIP_VISIBLE_DEVICES")
        .detail("A program that names no GPU takes the first. The one in the processor is slow, shares the system's memory, and builds seldom have code for it.");
    for (index, node) in gpus.iter().enumerate() {
        finding = finding.evidence(
            format!("GPU {index}"),
            ctx.kfd_name(node),
            format!("/sys/class/kfd/kfd/topology/nodes/{}", node.node),
        );
    }
    Outcome::found([finding
        .source("ROCm documentation: GPU isolation")
        .fix(
            Fix::at(Layer::Application, "let programs see the other GPU alone")
                .line(format!("export HIP_VISIBLE_DEVICES={}", list.join(",")))
                .verify(VERIFY),
        )
        .fix(
            Fix::at(
                Layer::System,
                "switch the integrated GPU off in the firmware's set-up",
            )
            .cost("reboot")
            .second("takes its display outputs away"),
        )])
}

/// `HSA_OVERRIDE_GFX_VERSION` makes a GPU pass for one that it is not.
pub(super) fn override_mismatch(ctx: &Ctx<'_>) -> Outcome {
    const NAME: &str = "HSA_OVERRIDE_GFX_VERSION";
    if !matters(ctx) {
        return Outcome::Clean;
    }
    let Some((value, told)) = ctx
        .env(NAME)
        .and_then(|value| Some((value, GfxTarget::from_dotted(value)?)))
    else {
        return Outcome::Clean;
    };
    let Seen::These(gpus) = seen(ctx) else {
        return Outcome::Clean;
    };
    let family = |target: GfxTarget| {
        ctx.matrix
            .gfx_target(target)
            .and_then(|row| row.family.clone())
    };
    let gpus: Vec<(&KfdNode, GfxTarget)> = gpus
        .into_iter()
        .filter_map(|node| Some((node, node.target()?)))
        .filter(|(_, own)| *own != told)
        .collect();
    // Another generation is another language; of the same one, only what both tables name can be judged.
    let wrong: Vec<&(&KfdNode, GfxTarget)> = gpus
        .iter()
        .filter(|(_, own)| {
            own.major != told.major
                || family(*own) != family(told)
                    && ctx.matrix.gfx_target(*own).is_some()
                    && ctx.matrix.gfx_target(told).is_some()
        })
        .collect();
    let Some((_, own)) = wrong.first() else {
        let Some((node, own)) = gpus.first() else {
            return Outcome::Clean;
        };
        return Outcome::found([Finding::new(
            "hsa-override-mismatch",
            Layer::Application,
            Severity::Note,
            format!(
                "{NAME}={value} lets {own} pass for {told}: close relatives, unsupported by AMD"
            ),
        )
        .of(Vendor::Amd)
        .component(NAME)
        .detail("Where results are wrong or a program is lost in the GPU, try without it first.")
        .evidence(NAME, value, ctx.facts.environment.source())
        .evidence(
            "instruction set",
            own.to_string(),
            format!("/sys/class/kfd/kfd/topology/nodes/{}/properties", node.node),
        )
        .fix(
            Fix::at(
                Layer::Application,
                "take a build with code for the GPU itself, and unset the variable",
            )
            .line(format!("unset {NAME}")),
        )]);
    };
    let other = own.major != told.major;
    let mut finding = Finding::new("hsa-override-mismatch", Layer::Application, if other { Severity::Error } else { Severity::Warning }, format!("{NAME}={value} lets {own} pass for {told}, whose code it cannot run"))
        .of(Vendor::Amd)
        .complaining(Layer::Framework)
        .component(NAME)
        .detail("The variable makes the runtime load code for another instruction set. Within a family that may work; between families the GPU meets instructions that it does not have, and programs end with memory faults or hang.")
        .evidence(NAME, value, ctx.facts.environment.source());
    for (node, own) in &wrong {
        finding = finding.evidence(
            format!("instruction set of {}", ctx.kfd_name(node)),
            own.to_string(),
            format!("/sys/class/kfd/kfd/topology/nodes/{}/properties", node.node),
        );
    }
    Outcome::found([finding
        .source("LLVM, User Guide for AMDGPU Backend: generic processors")
        .fix(
            Fix::at(Layer::Application, "unset the variable")
                .line(format!("unset {NAME}"))
                .verify(VERIFY),
        )])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_up_to_the_first_entry_that_is_no_gpu() {
        let named = |entry: &str| match entry.trim() {
            "GPU-a" => Some(Some(1)),
            "GPU-b" => Some(Some(2)),
            "GPU-gone" => Some(None),
            _ => None,
        };
        for (list, hip, rocr) in [
            ("0", Some(vec![0]), Some(vec![0])),
            ("1,0", Some(vec![1, 0]), Some(vec![1, 0])),
            ("-1", Some(vec![]), Some(vec![])),
            ("0,-1,1", Some(vec![0]), Some(vec![0])),
            ("2", Some(vec![]), Some(vec![])),
            ("", Some(vec![]), Some(vec![])),
            ("0,0,1", Some(vec![0, 1]), Some(vec![0])),
            ("GPU-b,GPU-a", Some(vec![1, 0]), Some(vec![1, 0])),
            ("GPU-b,GPU-gone,0", Some(vec![1]), Some(vec![1])),
            ("GPU-gone", Some(vec![]), Some(vec![])),
            ("GPU-never-looked-up", None, None),
        ] {
            assert_eq!(read(list, false, &[1, 2], named), hip, "{list}");
            assert_eq!(read(list, true, &[1, 2], named), rocr, "{list}");
        }
    }
}
