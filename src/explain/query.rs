//! Understands a short question: a code with or without the words around it, a name, an id.

use super::matcher::entry_of_code;
use crate::catalogue::{self, Entry};

/// What a question turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Codes, names or an id: the entries, likeliest first, each with the code.
    Entries(Vec<(Entry, Option<(&'static str, i32)>)>),
    /// A code that the catalogue does not have.
    UnknownCode,
    /// Something to search in.
    Text,
}

/// Words that name whose code a number is.
const DOMAINS: [(&str, &str); 53] = [
    ("xid", "xid"),
    ("xids", "xid"),
    ("nvrm", "xid"),
    ("sxid", "sxid"),
    ("nvswitch", "sxid"),
    ("cuda", "cuda"),
    ("cudart", "cuda"),
    ("cudaerror", "cuda"),
    ("cudaerror_t", "cuda"),
    ("cuda_error", "cuda"),
    ("curesult", "cuda"),
    ("cuinit", "cuda"),
    ("cudagetdevicecount", "cuda"),
    ("nvml", "nvml"),
    ("nvmlinit", "nvml"),
    ("nvmlreturn_t", "nvml"),
    ("nvidia-smi", "nvml"),
    ("cudnn", "cudnn"),
    ("cudnnstatus_t", "cudnn"),
    ("cublas", "cublas"),
    ("cublasstatus_t", "cublas"),
    ("nccl", "nccl"),
    ("ncclresult_t", "nccl"),
    ("opencl", "opencl"),
    ("cl", "opencl"),
    ("vulkan", "vk"),
    ("vkresult", "vk"),
    ("vk", "vk"),
    ("cufft", "cufft"),
    ("cufftresult", "cufft"),
    ("cufftresult_t", "cufft"),
    ("cusolver", "cusolver"),
    ("cusolverstatus_t", "cusolver"),
    ("cusparse", "cusparse"),
    ("cusparsestatus_t", "cusparse"),
    ("curand", "curand"),
    ("curandstatus_t", "curand"),
    ("nvrtc", "nvrtc"),
    ("nvrtcresult", "nvrtc"),
    ("nvjitlink", "nvjitlink"),
    ("nvjitlinkresult", "nvjitlink"),
    ("hip", "hip"),
    ("hiperror", "hip"),
    ("hiperror_t", "hip"),
    ("hipgetdevicecount", "hip"),
    ("rocm", "hip"),
    ("hsa", "hsa"),
    ("hsa_status_t", "hsa"),
    ("ze", "ze"),
    ("zeinit", "ze"),
    ("ze_result_t", "ze"),
    ("level-zero", "ze"),
    ("rccl", "nccl"),
];

/// Words that say nothing beside a number.
const FILLERS: [&str; 22] = [
    "error",
    "errors",
    "code",
    "codes",
    "status",
    "failure",
    "failed",
    "err",
    "errno",
    "number",
    "returned",
    "returns",
    "return",
    "exit",
    "rc",
    "runtime",
    "driver",
    "api",
    "with",
    "result",
    "errorcode",
    "is",
];

/// Reads a question.
pub fn ask(question: &str) -> Asked {
    let question = question.trim();
    if let Some(entry) = catalogue::by_id(&question.to_ascii_lowercase()) {
        return Asked::Entries(vec![(entry, None)]);
    }
    if !question.contains(char::is_whitespace) {
        let name = question
            .trim_end_matches("()")
            .trim_matches(['\'', '"', '`', ':', ',', '.']);
        let named: Vec<_> = catalogue::by_name(name)
            .map(|entry| (entry, code_of_name(entry, name)))
            .collect();
        if !named.is_empty() {
            return Asked::Entries(named);
        }
    }
    code(question).unwrap_or(Asked::Text)
}

/// The code of a name: of an entry that has one only, or that has a name for each.
fn code_of_name(entry: Entry, name: &str) -> Option<(&'static str, i32)> {
    let error = entry.error()?;
    let code = match error.codes.as_slice() {
        [code] => code,
        codes if codes.len() == error.names.len() => {
            let place = error
                .names
                .iter()
                .position(|known| known.eq_ignore_ascii_case(name))?;
            codes.get(place)?
        }
        _ => return None,
    };
    let (domain, number) = code.split_once(' ')?;
    let domain = DOMAINS.iter().map(|(_, d)| *d).find(|d| *d == domain)?;
    Some((domain, number.parse().ok()?))
}

/// A question that is a number and words that say whose.
fn code(question: &str) -> Option<Asked> {
    let lower = question.to_ascii_lowercase();
    let (mut number, mut domains) = (None, Vec::new());
    for word in lower.split(|c: char| c.is_whitespace() || ":=#(),;[]'\"`".contains(c)) {
        let word = word.trim_matches('.');
        if word.is_empty() || FILLERS.contains(&word) {
            continue;
        }
        if let Some((_, domain)) = DOMAINS.iter().find(|(known, _)| *known == word) {
            domains.push(*domain);
            continue;
        }
        let glued = DOMAINS.iter().find_map(|(known, domain)| {
            let rest = word.strip_prefix(known)?.trim_start_matches(['-', '_']);
            Some((*domain, rest.parse::<i32>().ok()?))
        });
        match (glued, whole(word), number) {
            (Some((domain, value)), _, None) => {
                domains.push(domain);
                number = Some(value);
            }
            (None, Some(value), None) => number = Some(value),
            _ => return None,
        }
    }
    let number = number?;
    domains.dedup();
    let mut found: Vec<(Entry, Option<(&'static str, i32)>)> = Vec::new();
    if domains.is_empty() {
        found.extend(
            catalogue::with_number(number).map(|(domain, entry)| (entry, Some((domain, number)))),
        );
        if !found
            .iter()
            .any(|(_, code)| code.is_some_and(|(domain, _)| domain == "cuda"))
            && let Some((entry, now)) = entry_of_code("cuda", number)
        {
            found.push((entry, Some(("cuda", now))));
        }
        // What a bare number means most often: a code of CUDA or NVML, or an Xid.
        let common = |code: Option<(&str, i32)>| {
            code.is_some_and(|(domain, _)| ["cuda", "nvml", "xid", "sxid"].contains(&domain))
        };
        found.sort_by_key(|(entry, code)| {
            (!common(*code), std::cmp::Reverse(entry.weight()), *entry)
        });
        found.dedup_by_key(|(entry, _)| *entry);
    } else {
        found.extend(domains.into_iter().filter_map(|domain| {
            entry_of_code(domain, number).map(|(entry, number)| (entry, Some((domain, number))))
        }));
    }
    Some(if found.is_empty() {
        Asked::UnknownCode
    } else {
        Asked::Entries(found)
    })
}

/// A whole number, decimal or hexadecimal.
fn whole(word: &str) -> Option<i32> {
    match word.strip_prefix("0x") {
        Some(hex) => i32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(question: &str) -> Vec<&'static str> {
        match ask(question) {
            Asked::Entries(found) => found.into_iter().map(|(entry, _)| entry.id()).collect(),
            Asked::UnknownCode => vec!["?"],
            Asked::Text => vec!["text"],
        }
    }

    #[test]
    fn codes_are_told_apart_by_the_words_around_them() {
        for (question, first) in [
            ("804", "cuda-804-compat-not-supported"),
            ("CUDA error 804", "cuda-804-compat-not-supported"),
            ("xid 79", "xid-79-fallen-off-the-bus"),
            ("Xid: 79", "xid-79-fallen-off-the-bus"),
            ("xid79", "xid-79-fallen-off-the-bus"),
            ("sxid 12028", "sxid-12028-egress-nonposted-priv"),
            ("nvml 18", "nvml-18-version-mismatch"),
            ("nvidia-smi exit code 9", "nvml-9-driver-not-loaded"),
            ("cudaErrorInsufficientDriver", "cuda-35-insufficient-driver"),
            ("CUDA_ERROR_NO_DEVICE", "cuda-100-no-device"),
            (
                "NVML_ERROR_LIB_RM_VERSION_MISMATCH",
                "nvml-18-version-mismatch",
            ),
            ("0x64", "cuda-100-no-device"),
            ("torch-driver-too-old", "torch-driver-too-old"),
            ("cuda error 38", "cuda-100-no-device"),
            ("CUDA_ERROR: 3", "cuda-3-initialization-error"),
            ("cudnn 9999", "?"),
            ("cudnn 8", "cudnn-5000-execution-failed"),
            ("hipError 98", "hip-invalid-device-function"),
            ("cufft 5", "cufft-internal-error"),
            ("hsa 0x1008", "hsa-out-of-resources"),
            ("opencl -5", "cl-out-of-resources"),
            ("cudaSuccess", "success"),
            ("no idea 79 at all", "text"),
            ("", "text"),
        ] {
            assert_eq!(ids(question).first(), Some(&first), "{question}");
        }
    }

    #[test]
    fn a_bare_number_is_all_that_it_may_be() {
        for number in ["100", "999", "35"] {
            assert!(ids(number).len() >= 2, "{number}: {:?}", ids(number));
        }
        assert_eq!(ids("100").first(), Some(&"cuda-100-no-device"));
        assert_eq!(ids("0"), ["success"]);
        assert_eq!(ids("35").first(), Some(&"cuda-35-insufficient-driver"));
    }
}
