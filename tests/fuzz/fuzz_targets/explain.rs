//! A log of any bytes, and a question of any text.

#![no_main]

use gpudoctor::catalogue;
use gpudoctor::explain::{ask, of_scan, scan};
use gpudoctor::matrix::Matrix;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let found = scan(bytes).unwrap();
    assert!(
        found
            .groups
            .iter()
            .all(|group| group.line >= 1 && group.line <= found.lines.max(1))
    );
    let told = of_scan(&found, &Matrix::bundled());
    assert!(told.matches.len() <= catalogue::all().count());
    let _ = ask(&String::from_utf8_lossy(bytes));
    catalogue::find(bytes, 0, bytes.len(), |hit| {
        assert!(hit.start < hit.end && hit.end <= bytes.len());
    });
});
