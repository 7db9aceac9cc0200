//! What `CUDA_VISIBLE_DEVICES` leaves of the GPUs.

use crate::facts::Layer;
use crate::finding::{Finding, Fix, Severity};
use crate::rules::stack::{in_words, verified, with_cu_init};
use crate::rules::{Ctx, Outcome};

/// Why a value of `CUDA_VISIBLE_DEVICES` shows no GPU; `None` where it shows some, or that cannot be told.
///
/// CUDA reads the list from the left and stops at the first entry that it cannot use.
pub(crate) fn why_nothing_is_visible(value: &str, gpus: usize) -> Option<String> {
    let first = value.split(',').next().unwrap_or_default().trim();
    if value.is_empty() {
        return Some("it is empty".to_owned());
    }
    if value.trim().is_empty() {
        return Some("it holds nothing but blanks".to_owned());
    }
    if first.is_empty() {
        return Some("its first entry is empty".to_owned());
    }
    if first.starts_with("GPU-") || first.starts_with("MIG-") {
        return None;
    }
    match first.parse::<i64>() {
        Ok(index) if index < 0 => Some(format!(
            "it begins with {first}, which ends the list before the first GPU"
        )),
        Ok(index) if usize::try_from(index).is_ok_and(|index| index >= gpus) => Some(
            format!(
                "it begins with {first}, and there {} 0 to {}",
                if gpus == 1 { "is only GPU" } else { "are GPUs" },
                gpus.saturating_sub(1)
            )
            .replace("GPU 0 to 0", "GPU 0"),
        ),
        Ok(_) => None,
        Err(_) => Some(format!(
            "it begins with `{}`, which is no index and no UUID",
            beginning(first)
        )),
    }
}

/// A value as it fits into a title.
fn beginning(value: &str) -> String {
    const SHOWN: usize = 60;
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", value.get(..end).unwrap_or_default()),
        None => value.to_owned(),
    }
}

/// An entry that ends the list before others that name GPUs: the entry, those that are visible, and the indices that it
/// hides. `None` where every index before the end of the list is one of a GPU, or nothing that could be used comes after.
///
/// Indices alone: whether a UUID is one of these GPUs is not known here.
fn what_ends_the_list(value: &str, gpus: usize) -> Option<(&str, usize, Vec<usize>)> {
    let entries: Vec<&str> = value.split(',').map(str::trim).collect();
    let index = |entry: &&str| entry.parse::<usize>().ok();
    let indices: Option<Vec<usize>> = entries.iter().map(index).collect();
    let indices = indices?;
    let at = indices.iter().position(|index| *index >= gpus)?;
    let (visible, rest) = indices.split_at(at);
    let mut hidden: Vec<usize> = rest
        .iter()
        .copied()
        .filter(|index| *index < gpus && !visible.contains(index))
        .collect();
    hidden.sort_unstable();
    hidden.dedup();
    let entry = entries.get(at)?;
    // None before it: all are hidden, which is another finding.
    (at > 0 && !hidden.is_empty()).then_some((entry, at, hidden))
}

/// Whether a value begins with the name of a MIG instance.
fn names_mig(value: &str) -> bool {
    value.trim_start().starts_with("MIG-")
}

/// Whether a value begins with the UUID of a GPU that is none of those that the driver lists. `None` where that cannot be told: an
/// abbreviation, or a GPU whose UUID the driver does not tell yet.
fn names_a_stranger(ctx: &Ctx<'_>, value: &str) -> Option<bool> {
    let first = value.split(',').next()?.trim();
    let gpus = ctx.facts.driver.gpus.items();
    let known: Vec<&str> = gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
    let all_known = !known.is_empty() && known.iter().all(|uuid| is_whole_uuid(uuid));
    (is_whole_uuid(first) && all_known)
        .then(|| !known.iter().any(|uuid| uuid.eq_ignore_ascii_case(first)))
}

/// Whether this is the whole UUID of a GPU, or the name that a report has for one (`GPU-1`).
fn is_whole_uuid(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("GPU-") else {
        return false;
    };
    let groups: Vec<usize> = rest.split('-').map(str::len).collect();
    let is_hex = rest.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let is_name = rest.len() <= 3 && rest.chars().all(|c| c.is_ascii_digit());
    is_hex && groups == [8, 4, 4, 4, 12] || !rest.is_empty() && is_name
}

/// Why a value that begins with a UUID shows nothing, where it was seen that it does.
fn why_no_uuid_fits(value: &str) -> Option<String> {
    let first = value.split(',').next().unwrap_or_default().trim();
    if first.starts_with("MIG-") && first.contains('/') {
        Some("it names a MIG instance in the form of drivers before 470 (MIG-GPU-UUID/GI/CI), and there is none of that name".to_owned())
    } else if first.starts_with("MIG-") {
        Some("there is no MIG instance of that name".to_owned())
    } else if first.starts_with("GPU-") {
        Some("there is no GPU of that name".to_owned())
    } else {
        None
    }
}

/// Several MIG instances are named, and a process gets one of them.
fn one_of_several_instances(ctx: &Ctx<'_>, value: &str) -> Option<Finding> {
    let mut named: Vec<&str> = value
        .split(',')
        .map(str::trim)
        .take_while(|entry| entry.starts_with("MIG-"))
        .collect();
    named.sort_unstable();
    named.dedup();
    let answers = ctx.cuda_answers().filter(|a| a.code("cuInit") == Some(0))?;
    let seen = answers.number("cuDeviceGetCount")?;
    if named.len() < 2 || seen != 1 {
        return None;
    }
    let finding = Finding::new(
        "cuda-visible-devices-hides-some",
        Layer::Application,
        Severity::Warning,
        format!("CUDA_VISIBLE_DEVICES names {} MIG instances, and one process sees one of them", named.len()),
    )
    .complaining(Layer::Runtime)
    .component("CUDA_VISIBLE_DEVICES")
    .detail("A CUDA process can use a single MIG instance, whatever the list names: training over several instances needs a process for each, and NCCL does not join them.")
    .evidence("CUDA_VISIBLE_DEVICES", format!("'{value}'"), "environment")
    .evidence("GPUs that CUDA sees", seen.to_string(), "cuDeviceGetCount")
    .source("NVIDIA MIG user guide: CUDA visible devices (secondary)");
    Some(
        finding
            .fix(
                Fix::at(Layer::Application, "start one process for each instance, each with one name in the variable")
                    .verify("gpudoctor"),
            )
            .fix(
                Fix::at(Layer::Hardware, "or cut the GPU into fewer, larger instances, or turn MIG off where a job needs all of it")
                    .cost("root, no process on the GPU")
                    .second("for all who use the GPU"),
            ),
    )
}

/// An index that no GPU has hides what is named behind it.
pub(super) fn cuda_visible_devices_hides_some(ctx: &Ctx<'_>) -> Outcome {
    let Some(value) = ctx.env("CUDA_VISIBLE_DEVICES") else {
        return Outcome::Clean;
    };
    if let Some(finding) = one_of_several_instances(ctx, value) {
        return Outcome::found([finding]);
    }
    let driver_here = ctx.module_loaded() == Some(true) || ctx.in_wsl() || ctx.on_tegra();
    let by_nvml = ctx
        .nvml_answers()
        .and_then(|a| a.number("nvmlDeviceGetCount_v2"))
        .and_then(|n| usize::try_from(n).ok());
    let gpus = by_nvml.unwrap_or_else(|| ctx.facts.driver.gpus.items().len());
    let Some((entry, visible, hidden)) = what_ends_the_list(value, gpus).filter(|_| driver_here)
    else {
        return Outcome::Clean;
    };
    // CUDA itself knows better.
    let count = ctx
        .cuda_answers()
        .filter(|a| a.code("cuInit") == Some(0))
        .and_then(|a| a.number("cuDeviceGetCount"))
        .and_then(|n| usize::try_from(n).ok());
    if count.is_some_and(|count| count != visible) {
        return Outcome::Clean;
    }
    let named: Vec<String> = hidden.iter().map(usize::to_string).collect();
    let named = in_words(&named);
    let what = if hidden.len() == 1 { "GPU" } else { "GPUs" };
    let finding = Finding::new(
        "cuda-visible-devices-hides-some",
        Layer::Application,
        Severity::Warning,
        format!("CUDA_VISIBLE_DEVICES='{}' hides {what} {named}: the list ends at {entry}, and there are GPUs 0 to {}", beginning(value), gpus.saturating_sub(1)),
    )
    .complaining(Layer::Runtime)
    .component("CUDA_VISIBLE_DEVICES")
    .detail("CUDA reads the list from the left and stops at the first entry that it cannot use. It says nothing: a program sees fewer GPUs than were named.")
    .evidence("CUDA_VISIBLE_DEVICES", format!("'{value}'"), "environment")
    .evidence("GPUs", gpus.to_string(), if by_nvml.is_some() { "nvmlDeviceGetCount_v2" } else { "driver's list" })
    .source("CUDA programming guide: environment variables");
    let rest: Vec<&str> = value
        .split(',')
        .map(str::trim)
        .filter(|entry| entry.parse().is_ok_and(|index: usize| index < gpus))
        .collect();
    Outcome::found([finding.fix(
        Fix::at(Layer::Application, format!("take {entry} out of the list"))
            .line(format!("export CUDA_VISIBLE_DEVICES={}", rest.join(",")))
            .verify("gpudoctor"),
    )])
}

pub(super) fn cuda_visible_devices_hides_all(ctx: &Ctx<'_>) -> Outcome {
    let Some(value) = ctx.env("CUDA_VISIBLE_DEVICES") else {
        return Outcome::Clean;
    };
    let by_nvml = ctx
        .nvml_answers()
        .and_then(|a| a.number("nvmlDeviceGetCount_v2"))
        .and_then(|n| usize::try_from(n).ok());
    let unhidden = ctx.facts.vendor.libcuda_unhidden.value();
    let by_cuda = unhidden
        .filter(|a| a.code("cuInit") == Some(0))
        .and_then(|a| a.number("cuDeviceGetCount"))
        .and_then(|n| usize::try_from(n).ok());
    let gpus = by_cuda
        .or(by_nvml)
        .unwrap_or_else(|| ctx.facts.driver.gpus.items().len().max(ctx.gpus().count()));
    let driver_here = ctx.module_loaded() == Some(true) || ctx.in_wsl() || ctx.on_tegra();
    if gpus == 0 || !driver_here {
        return Outcome::Clean;
    }
    let count = ctx
        .cuda_answers()
        .and_then(|a| a.number("cuDeviceGetCount"));
    let saw_none = ctx.cu_init() == Some(100) || (ctx.cu_init() == Some(0) && count == Some(0));
    let proved = by_cuda.is_some_and(|n| n > 0) && saw_none;
    // With no driver asked, the value alone decides where it leaves no doubt.
    let why = why_nothing_is_visible(value, gpus).or_else(|| {
        let strange = names_a_stranger(ctx, value) == Some(true);
        strange.then(|| "there is no GPU of that name".to_owned())
    });
    let why = match (proved, saw_none, ctx.cu_init(), why) {
        (_, true, _, Some(why)) | (_, false, None, Some(why)) => why,
        (true, _, _, None) => {
            why_no_uuid_fits(value).unwrap_or_else(|| "without it CUDA sees them".to_owned())
        }
        _ => return Outcome::Clean,
    };
    let mut finding = Finding::new("cuda-visible-devices-hides-all", Layer::Application, Severity::Error, format!("CUDA_VISIBLE_DEVICES='{}' hides every GPU: {why}", beginning(value)))
        .complaining(Layer::Runtime)
        .component("CUDA_VISIBLE_DEVICES")
        .detail("The variable names the GPUs that a CUDA program may see, from the left, up to the first entry that it cannot use. NVML and nvidia-smi do not look at it and show all of them.")
        .evidence("CUDA_VISIBLE_DEVICES", format!("'{value}'"), "environment")
        .evidence("GPUs without it", gpus.to_string(), if by_cuda.is_some() { "cuDeviceGetCount without the variable" } else if by_nvml.is_some() { "nvmlDeviceGetCount_v2" } else { "driver's list or PCI bus" })
        .source("CUDA programming guide: environment variables");
    finding = with_cu_init(ctx, finding);
    if names_mig(value) {
        let name = Fix::at(Layer::Application, "name an instance that is there: `nvidia-smi -L` lists them with their UUIDs, which change when the GPU is cut anew")
            .line("nvidia-smi -L");
        finding = finding.fix(verified(ctx, name));
    }
    Outcome::found([finding
        .fix(verified(
            ctx,
            Fix::at(Layer::Application, "unset it to see every GPU")
                .line("unset CUDA_VISIBLE_DEVICES"),
        ))
        .fix(
            Fix::at(
                Layer::Application,
                "or name the GPUs that the program shall see, by index or UUID",
            )
            .line("export CUDA_VISIBLE_DEVICES=0"),
        )])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_a_list_early() {
        assert_eq!(what_ends_the_list("0,99,1", 8), Some(("99", 1, vec![1])));
        assert_eq!(
            what_ends_the_list("0, 1 ,8,2,1,3", 4),
            Some(("8", 2, vec![2, 3]))
        );
        for value in [
            "0,1",
            "0,1,9",
            "9,0",
            "0,9,0",
            "",
            ",",
            "0,GPU-1,1",
            "0,x,1",
            "0,-1,1",
        ] {
            assert_eq!(what_ends_the_list(value, 2), None, "{value}");
        }
    }

    #[test]
    fn whole_uuids() {
        for (text, whole) in [
            ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", true),
            ("GPU-1", true),
            ("GPU-8932f937", false),
            ("GPU-", false),
            ("GPU-????????-????-????-????-????????????", false),
            ("MIG-8932f937-d72c-4106-c12f-20bd9faed9f6", false),
        ] {
            assert_eq!(is_whole_uuid(text), whole, "{text}");
        }
    }

    #[test]
    fn what_hides_everything() {
        for (value, gpus, hides) in [
            ("", 1, true),
            (" ", 1, true),
            (",", 2, true),
            ("-1", 4, true),
            ("NoDevFiles", 4, true),
            ("-bash", 1, true),
            ("0", 1, false),
            ("0,1,9", 2, false),
            ("2", 2, true),
            ("3,0", 2, true),
            ("GPU-1", 1, false),
            ("MIG-1", 1, false),
        ] {
            assert_eq!(
                why_nothing_is_visible(value, gpus).is_some(),
                hides,
                "{value}"
            );
        }
    }
}
