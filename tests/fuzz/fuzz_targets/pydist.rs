//! Names, metadata and file lists of Python and conda distributions.

#![no_main]

use gpudoctor::read::requirement::{Platform, Requirement};
use gpudoctor::read::{pydist, record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let _ = pydist::from_dist_info_dir(&text);
    let _ = pydist::from_conda_meta(&text);
    let _ = pydist::metadata_name_version(&text);
    let _ = pydist::pth_paths(&text);
    let _ = pydist::metadata_requires(&text);
    let _ = record::shared_objects(&bytes);
    let _ = record::conda(bytes);
    if let Some(required) = Requirement::parse(&text) {
        let _ = (
            required.applies(&Platform::default(), &[]),
            required.judge(&text),
        );
    }
});
