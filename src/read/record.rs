//! What distributions record of their files: RECORD of a `dist-info` folder (CSV by the wheel format: path, hash, size),
//! `installed-files.txt` of an `egg-info` folder (paths alone), and the JSON files of `conda-meta`.
//!
//! A RECORD has up to 20,000 lines and a GPU stack cares for some twenty of them: only lines that name a shared object are
//! taken out, through a window.

use std::fmt;
use std::ops::ControlFlow;

use memchr::{memchr, memmem, memrchr};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use super::ReadAt;
use super::window::{self, WINDOW};

/// A shared object that a distribution recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// As recorded: relative to the folder that the record lies in, or to the prefix of a conda environment.
    pub path: String,
    /// In bytes, where it was recorded.
    pub size_bytes: Option<u64>,
    /// Its digest as a RECORD has it: `sha256=` and 43 signs. `None` where there is none; conda's have another form and
    /// are left out.
    pub digest: Option<String>,
}

/// The longest line that is looked at, in bytes: twice the longest path of Linux.
const LONGEST_LINE: usize = 8 << 10;
/// The most shared objects that one distribution may have; the largest have some hundreds.
const MOST: usize = 4096;

/// The shared objects in a RECORD or an `installed-files.txt`.
pub fn shared_objects(file: &dyn ReadAt) -> Vec<Recorded> {
    let finder = memmem::Finder::new(b".so");
    let mut found: Vec<Recorded> = Vec::new();
    window::scan(file, 0..file.len(), LONGEST_LINE, |offset, bytes| {
        // The overlap is read again with the next window, unless this one is the last.
        let last = bytes.len() < WINDOW + LONGEST_LINE;
        let mut at = 0;
        while let Some(hit) = bytes.get(at..).and_then(|rest| finder.find(rest)) {
            let before = bytes.get(..at + hit).unwrap_or_default();
            let after = bytes.get(at + hit..).unwrap_or_default();
            let start = match memrchr(b'\n', before) {
                Some(end) => end + 1,
                None => 0,
            };
            let end = at + hit + memchr(b'\n', after).unwrap_or(after.len());
            if start > WINDOW && !last {
                break;
            }
            // What begins where the window does was taken with the window before.
            if start > 0 || offset == 0 {
                found.extend(bytes.get(start..end).and_then(line));
            }
            at = end;
        }
        if found.len() >= MOST {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    found.truncate(MOST);
    found
}

/// One line: `nvidia/nccl/lib/libnccl.so.2,sha256=...,396000000`, a path with commas or quotes in quotes, or a path alone.
fn line(bytes: &[u8]) -> Option<Recorded> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end_matches('\r');
    let (path, rest) = match text.strip_prefix('"') {
        Some(rest) => quoted(rest)?,
        None => match text.split_once(',') {
            Some((path, _)) => (path.to_owned(), text.get(path.len()..)?),
            None => (text.to_owned(), ""),
        },
    };
    let size_bytes = rest.rsplit(',').next().and_then(|size| size.parse().ok());
    let digest = rest
        .trim_start_matches(',')
        .split(',')
        .next()
        .filter(|digest| digest.starts_with("sha256="));
    is_shared_object(&path).then_some(Recorded {
        digest: digest.map(str::to_owned),
        path,
        size_bytes,
    })
}

/// The rest of a text in quotes, two of which stand for one that belongs to it, and what follows.
fn quoted(mut rest: &str) -> Option<(String, &str)> {
    let mut text = String::new();
    loop {
        let (head, tail) = rest.split_once('"')?;
        text.push_str(head);
        let Some(more) = tail.strip_prefix('"') else {
            return Some((text, tail));
        };
        text.push('"');
        rest = more;
    }
}

/// Whether a path names a shared object: `libtorch_cuda.so`, `libnccl.so.2`, `_C.cpython-312-x86_64-linux-gnu.so`.
fn is_shared_object(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    name.match_indices(".so").any(|(at, _)| {
        name.get(at + 3..)
            .is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.').is_some_and(digit))
    })
}

/// What a file of `conda-meta` says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CondaRecord {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What it depends on: `cuda-cudart >=12.4.127,<13.0a0`.
    pub depends: Vec<String>,
    /// Shared objects, links left out: what they lead to is recorded as well.
    pub shared_objects: Vec<Recorded>,
}

/// Reads a file of `conda-meta`; `None` where it is none.
pub fn conda(json: &[u8]) -> Option<CondaRecord> {
    #[derive(Deserialize)]
    struct Raw {
        name: String,
        version: String,
        #[serde(default)]
        depends: Vec<String>,
        #[serde(default)]
        paths_data: PathsData,
    }
    let raw: Raw = serde_json::from_slice(json).ok()?;
    Some(CondaRecord {
        name: raw.name,
        version: raw.version,
        depends: raw.depends,
        shared_objects: raw.paths_data.paths.0,
    })
}

#[derive(Default, Deserialize)]
struct PathsData {
    #[serde(default)]
    paths: SharedObjects,
}

/// The shared objects of a list of ten thousand files, the others dropped as they are read.
#[derive(Default)]
struct SharedObjects(Vec<Recorded>);

impl<'de> Deserialize<'de> for SharedObjects {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Entry<'a> {
            #[serde(borrow, rename = "_path")]
            path: std::borrow::Cow<'a, str>,
            #[serde(default, borrow)]
            path_type: std::borrow::Cow<'a, str>,
            #[serde(default)]
            size_in_bytes: Option<u64>,
        }
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = SharedObjects;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of files")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut found = Vec::new();
                while found.len() < MOST {
                    let Some(entry) = list.next_element::<Entry<'_>>()? else {
                        return Ok(SharedObjects(found));
                    };
                    if entry.path_type != "softlink" && is_shared_object(&entry.path) {
                        found.push(Recorded {
                            path: entry.path.into_owned(),
                            size_bytes: entry.size_in_bytes,
                            digest: None,
                        });
                    }
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(SharedObjects(found))
            }
        }
        deserializer.deserialize_seq(Entries)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn recorded(path: &str, size_bytes: Option<u64>) -> Recorded {
        Recorded {
            path: path.to_owned(),
            size_bytes,
            digest: None,
        }
    }

    fn with_digest(path: &str, digest: &str, size_bytes: u64) -> Recorded {
        Recorded {
            digest: Some(format!("sha256={digest}")),
            ..recorded(path, Some(size_bytes))
        }
    }

    #[test]
    fn lines() {
        let record = concat!(
            "nvidia/nccl/include/nccl.h,sha256=n0A,19000\r\n",
            "nvidia/nccl/lib/libnccl.so.2,sha256=abc,396000000\r\n",
            "torch/_C.cpython-312-x86_64-linux-gnu.so,,\n",
            "\"odd, \"\"quoted\"\"/lib.so\",sha256=x,7\n",
            "\"unfinished.so\n",
            "docs/about.so.html,,\n",
            "torch/lib/libtorch.so.py,,1\n",
            "../../../lib/libx.so.1.2,sha256=x,9",
        );
        assert_eq!(
            shared_objects(&record.as_bytes()),
            [
                with_digest("nvidia/nccl/lib/libnccl.so.2", "abc", 396_000_000),
                recorded("torch/_C.cpython-312-x86_64-linux-gnu.so", None),
                with_digest("odd, \"quoted\"/lib.so", "x", 7),
                with_digest("../../../lib/libx.so.1.2", "x", 9),
            ]
        );
        assert_eq!(
            shared_objects(&b"../pkg/a.so\n../pkg/a.py\n".as_slice()),
            [recorded("../pkg/a.so", None)]
        );
    }

    #[test]
    fn conda_records() {
        let json = br#"{"build": "0", "depends": ["libcublas >=12.4", "python"], "files": ["lib/libcudart.so.12"],
            "name": "cuda-cudart", "paths_data": {"paths": [
                {"_path": "lib/libcudart.so.12", "path_type": "softlink", "size_in_bytes": 707904},
                {"_path": "lib/libcudart.so.12.4.127", "path_type": "hardlink", "sha256": "0", "size_in_bytes": 707904},
                {"_path": "include/cuda.h", "path_type": "hardlink"}], "paths_version": 1}, "version": "12.4.127"}"#;
        let record = conda(json).unwrap();
        assert_eq!(
            (record.name.as_str(), record.version.as_str()),
            ("cuda-cudart", "12.4.127")
        );
        assert_eq!(record.depends, ["libcublas >=12.4", "python"]);
        assert_eq!(
            record.shared_objects,
            [recorded("lib/libcudart.so.12.4.127", Some(707_904))]
        );
        assert_eq!(conda(b"{}"), None);
    }

    proptest! {
        /// However long the lines between and wherever a window ends, each is found once.
        #[test]
        fn every_line_once(gaps in prop::collection::vec(0usize..9000, 1..40)) {
            let mut record = String::new();
            for (number, gap) in gaps.iter().enumerate() {
                let long = "x".repeat(*gap);
                let lines = format!("{long}.py,,\nlib{number}.so,sha256=0,{number}\n");
                record.push_str(&lines);
            }
            let found = shared_objects(&record.as_bytes());
            let expected: Vec<Recorded> = (0..gaps.len()).map(|n| with_digest(&format!("lib{n}.so"), "0", n as u64)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80), text in "[\\\\\",.so0-9\n\r/]{0,80}") {
            let _ = (shared_objects(&bytes), conda(&bytes), shared_objects(&text.as_bytes()), conda(text.as_bytes()));
        }
    }
}
