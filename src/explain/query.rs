//! Understands a short question: a code with or without the words around it, a name, an id.

use std::cmp::Reverse;

use super::matcher::entry_of_code;
use crate::catalogue::{self, Entry, Success};

/// An entry, and the code that led there.
pub type Reading = (Entry, Option<(&'static str, i32)>);

/// What a question turned out to be.
#[derive(Clone, Debug)]
pub enum Asked {
    /// Codes, names or an id: the entries, likeliest first, each with the code.
    Entries(Vec<Reading>),
    /// What says that a call went well, in these interfaces.
    Success(Vec<&'static Success>),
    /// A code that the catalogue does not have.
    UnknownCode(i32),
    /// The exit status of a program, which says nothing about the GPU.
    ExitStatus(i32),
    /// Something to search in.
    Text,
}

/// Words that name whose code a number is.
const DOMAINS: &[(&str, &str)] = &[
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
    ("nvjpeg", "nvjpeg"),
    ("nvjpegstatus_t", "nvjpeg"),
    ("npp", "npp"),
    ("nppstatus", "npp"),
    ("cutensor", "cutensor"),
    ("cutensorstatus_t", "cutensor"),
    ("nvenc", "nvenc"),
    ("nvencstatus", "nvenc"),
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
    ("sxids", "sxid"),
    ("libcuda", "cuda"),
    ("libcudart", "cuda"),
    ("clresult", "opencl"),
];

/// How functions of an interface begin: `cudaMalloc`, `cuInit`, `nvmlInit_v2`. A capital letter follows.
const FUNCTIONS: &[(&str, &str)] = &[
    ("cudnn", "cudnn"),
    ("cublas", "cublas"),
    ("cufft", "cufft"),
    ("cusolver", "cusolver"),
    ("cusparse", "cusparse"),
    ("curand", "curand"),
    ("cutensor", "cutensor"),
    ("cuda", "cuda"),
    ("cu", "cuda"),
    ("nvml", "nvml"),
    ("nvrtc", "nvrtc"),
    ("nvJitLink", "nvjitlink"),
    ("nvjpeg", "nvjpeg"),
    ("nppi", "npp"),
    ("npps", "npp"),
    ("nvEnc", "nvenc"),
    ("NvEnc", "nvenc"),
    ("nccl", "nccl"),
    ("hip", "hip"),
    ("hsa", "hsa"),
    ("ze", "ze"),
    ("cl", "opencl"),
    ("vk", "vk"),
];

/// What looks like a function, and has the number of a GPU behind it.
const NUMBERED: &[&str] = &["cudaDev", "nvmlDev"];

/// Words that say nothing beside a number.
const FILLERS: &[&str] = &[
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
    "ret",
    "retval",
    "exit",
    "exited",
    "rc",
    "runtime",
    "driver",
    "api",
    "with",
    "result",
    "errorcode",
    "error_code",
    "err_code",
    "is",
];

/// Words of a line that may be about its number alone.
const SHORT: usize = 6;

/// Reads a question that is nothing but a code, a name or an id.
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
        let success: Vec<_> = catalogue::successes()
            .iter()
            .filter(|row| {
                row.names
                    .iter()
                    .any(|known| known.eq_ignore_ascii_case(name))
            })
            .collect();
        if !success.is_empty() {
            return Asked::Success(success);
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

/// Whose code a number beside this word is.
fn domain(word: &str) -> Option<&'static str> {
    let lower = word.to_ascii_lowercase();
    if let Some((_, domain)) = DOMAINS.iter().find(|(known, _)| *known == lower) {
        return Some(domain);
    }
    // `cudaErrorNoDevice` is a name of its own; NCCL numbers its GPUs by `cudaDev 3 nvmlDev 3`.
    if NUMBERED.contains(&word) || catalogue::by_name(word).next().is_some() {
        return None;
    }
    FUNCTIONS.iter().find_map(|(start, domain)| {
        let rest = word.strip_prefix(start)?;
        rest.starts_with(|c: char| c.is_ascii_uppercase())
            .then_some(*domain)
    })
}

/// The words of a question, without what stands around and between them.
fn words(question: &str) -> impl Iterator<Item = &str> {
    question
        .split(|c: char| c.is_whitespace() || ":=#(),;[]{}<>|\'\"`".contains(c))
        .map(|word| word.trim_matches(['.', '!', '?']))
        .filter(|word| !word.is_empty())
}

fn is_filler(word: &str) -> bool {
    FILLERS
        .iter()
        .any(|filler| filler.eq_ignore_ascii_case(word))
}

/// A number with the word glued before it that says whose it is: `xid79`, `cuda_error-35`.
fn glued(word: &str) -> Option<(&'static str, i32)> {
    let lower = word.to_ascii_lowercase();
    DOMAINS.iter().find_map(|(known, domain)| {
        let rest = lower.strip_prefix(known)?.trim_start_matches(['-', '_']);
        Some((*domain, rest.parse::<i32>().ok()?))
    })
}

/// A question that is a number and words that say whose.
fn code(question: &str) -> Option<Asked> {
    let (mut number, mut domains) = (None, Vec::new());
    for word in words(question) {
        if is_filler(word) {
            continue;
        }
        if let Some(domain) = domain(word) {
            domains.push(domain);
            continue;
        }
        match (glued(word), whole(word), number) {
            (Some((domain, value)), _, None) => {
                domains.push(domain);
                number = Some(value);
            }
            (None, Some(value), None) => number = Some(value),
            _ => return None,
        }
    }
    let number = number?;
    let exited = |word: &str| {
        ["exit", "exited"]
            .iter()
            .any(|exit| exit.eq_ignore_ascii_case(word))
    };
    if domains.is_empty() && number != 0 && words(question).any(exited) {
        return Some(Asked::ExitStatus(number));
    }
    Some(readings(number, domains, question))
}

/// What a number may mean: in these domains, or where there is none in all.
fn readings(number: i32, mut domains: Vec<&'static str>, question: &str) -> Asked {
    domains.dedup();
    if number == 0 && !domains.iter().any(|domain| domain.ends_with("xid")) {
        let of_it = |row: &&Success| domains.is_empty() || domains.contains(&row.domain.as_str());
        return Asked::Success(catalogue::successes().iter().filter(of_it).collect());
    }
    let mut found: Vec<Reading> = Vec::new();
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
        let said: Vec<String> = words(question)
            .filter(|word| word.len() >= 3 && !is_filler(word))
            .map(str::to_ascii_lowercase)
            .collect();
        // What a bare number means most often: a code of CUDA or NVML, or an Xid.
        let common = |code: Option<(&str, i32)>| {
            code.is_some_and(|(domain, _)| ["cuda", "nvml", "xid", "sxid"].contains(&domain))
        };
        found.sort_by_cached_key(|(entry, code)| {
            let cuda = code.is_some_and(|(domain, now)| domain == "cuda" && now == number);
            (
                Reverse(words_of(*entry, &said)),
                !(cuda && is_first_of_cuda(number)),
                !common(*code),
                Reverse(entry.weight()),
                *entry,
            )
        });
        found.dedup_by_key(|(entry, _)| *entry);
    } else {
        found.extend(domains.into_iter().filter_map(|domain| {
            entry_of_code(domain, number).map(|(entry, number)| (entry, Some((domain, number))))
        }));
    }
    if found.is_empty() {
        Asked::UnknownCode(number)
    } else {
        Asked::Entries(found)
    }
}

/// Whether a bare number is a code of CUDA before all else: the few that its programs print day by day, and the large
/// ones, most of which nobody else has.
fn is_first_of_cuda(number: i32) -> bool {
    (1..=4).contains(&number) || number >= 100
}

/// How many of the words an entry says as well.
fn words_of(entry: Entry, said: &[String]) -> usize {
    if said.is_empty() {
        return 0;
    }
    let Some(error) = entry.error() else { return 0 };
    let known = format!("{} {} {}", error.id, error.meaning, error.names.join(" "));
    let known = known.to_ascii_lowercase();
    let known: Vec<&str> = known.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    said.iter()
        .filter(|word| known.contains(&word.as_str()))
        .count()
}

/// The code that stands in a line of which the catalogue knows no text: `Error 2: out of memory`, `Xid 79 GPU fell off`,
/// `cudaMalloc() = 2`.
pub fn code_in(line: &str) -> Asked {
    let all: Vec<&str> = words(line).collect();
    let (mut near, mut found, mut asked) = (None, None, false);
    for (at, word) in all.iter().enumerate() {
        if let Some(domain) = domain(word) {
            (near, asked) = (Some(domain), true);
            continue;
        }
        if let Some((domain, value)) = glued(word) {
            (near, found) = (Some(domain), Some(value));
            break;
        }
        if is_filler(word) {
            // A number of Linux is none of ours: `[Errno 12] Cannot allocate memory`.
            asked = !word.eq_ignore_ascii_case("errno");
            continue;
        }
        // What is left of an arrow.
        if word.chars().all(|c| c == '-') {
            continue;
        }
        // A number in brackets at the end is one as well: `unknown error (999)`.
        let last = at + 1 == all.len() && line.trim_end().ends_with([')', ']']);
        match whole(word) {
            // What a function is called with is no answer of it.
            Some(_) if !last && is_argument(line, word) => asked = false,
            Some(value) if asked || last => {
                found = Some(value);
                break;
            }
            _ => asked = false,
        }
    }
    let Some(number) = found else {
        return Asked::Text;
    };
    let domain = near.or_else(|| all.iter().find_map(|word| self::domain(word)));
    // In a sentence of somebody else's a small number is mostly not one of ours: `make: *** [x.o] Error 1`.
    if domain.is_none() && number.abs() < 100 && all.len() > SHORT {
        return Asked::Text;
    }
    match readings(number, domain.into_iter().collect(), line) {
        Asked::UnknownCode(_) if domain.is_none() => Asked::Text,
        other => other,
    }
}

/// Whether a word of a line stands right behind a function and its bracket: the `1` of `cudaMalloc(1 GiB)`.
fn is_argument(line: &str, word: &str) -> bool {
    let at = (word.as_ptr() as usize).checked_sub(line.as_ptr() as usize);
    let before = at.and_then(|at| line.get(..at));
    let Some(called) = before.and_then(|text| text.strip_suffix('(')) else {
        return false;
    };
    let name = words(called).last().filter(|name| called.ends_with(name));
    name.is_some_and(|name| {
        domain(name).is_some()
            && !DOMAINS
                .iter()
                .any(|(known, _)| known.eq_ignore_ascii_case(name))
    })
}

/// A whole number, decimal or hexadecimal.
fn whole(word: &str) -> Option<i32> {
    let digits = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X"));
    match digits {
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
            Asked::Success(_) => vec!["success"],
            Asked::UnknownCode(_) => vec!["?"],
            Asked::ExitStatus(_) => vec!["exit"],
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
            ("Error 803:", "cuda-803-system-driver-mismatch"),
            ("code=209", "cuda-209-no-kernel-image"),
            ("(err 999)", "cuda-999-unknown"),
            ("CUresult 100", "cuda-100-no-device"),
            ("cuInit() = 100", "cuda-100-no-device"),
            ("nvmlInit_v2 returned 999", "nvml-999-unknown"),
            ("ncclResult_t 1", "nccl-unhandled-cuda"),
            ("0", "success"),
            ("cuda error 0", "success"),
            ("exit code 0", "success"),
            ("exit code 137", "exit"),
            ("exited with 1", "exit"),
            ("NVML_SUCCESS", "success"),
            ("cudasuccess", "success"),
            ("xid 0", "?"),
            ("rc=-110", "?"),
            ("", "text"),
        ] {
            assert_eq!(ids(question).first(), Some(&first), "{question}");
        }
    }

    #[test]
    fn a_bare_number_is_first_what_people_meet_it_as() {
        for (number, first) in [
            ("1", "cuda-1-invalid-value"),
            ("2", "cuda-2-out-of-memory"),
            ("3", "cuda-3-initialization-error"),
            ("4", "cuda-4-driver-shutting-down"),
            ("9", "nvml-9-driver-not-loaded"),
            ("18", "nvml-18-version-mismatch"),
            ("31", "xid-31-mmu-fault"),
            ("79", "xid-79-fallen-off-the-bus"),
            ("999", "cuda-999-unknown"),
            // The words beside it say more.
            ("Error 4: no permission", "nvml-4-no-permission"),
        ] {
            let found = match ask(number) {
                Asked::Text => code_in(number),
                asked => asked,
            };
            let Asked::Entries(found) = found else {
                panic!("{number}: {found:?}");
            };
            assert_eq!(
                found.first().map(|(entry, _)| entry.id()),
                Some(first),
                "{number}"
            );
        }
    }

    #[test]
    fn a_code_is_found_in_words_that_nobody_knows() {
        let id = |line: &str| match code_in(line) {
            Asked::Entries(found) => found.first().map_or("", |(entry, _)| entry.id()),
            Asked::Success(_) => "success",
            Asked::UnknownCode(_) => "?",
            Asked::ExitStatus(_) => "exit",
            Asked::Text => "text",
        };
        for (line, expected) in [
            ("Error 2: out of memory", "cuda-2-out-of-memory"),
            ("Xid 79 GPU fell off bus", "xid-79-fallen-off-the-bus"),
            ("my_tool: cudaMalloc(1 GiB) -> 2", "text"),
            ("my_tool: cudaMalloc -> 2", "cuda-2-out-of-memory"),
            ("gpu init failed, it said (999)", "cuda-999-unknown"),
            ("cuInit gave us 100, why", "text"),
            ("cuInit returned 0", "success"),
            ("CUDA 12.4 is installed", "text"),
            ("3 tests passed", "text"),
            ("error in line 35 of main.cu", "text"),
            ("exit status 57005", "text"),
            (
                "OSError: [Errno 12] Cannot allocate memory: cuda context",
                "text",
            ),
            (
                "make[2]: *** [scripts/Makefile.build:243: /var/lib/dkms/example/1.0/build/a.o] Error 1",
                "text",
            ),
        ] {
            assert_eq!(id(line), expected, "{line}");
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
