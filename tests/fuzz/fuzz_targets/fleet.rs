//! `gpudoctor.toml`, and the grammar of `--target`.

#![no_main]

use gpudoctor::matrix::Matrix;
use gpudoctor::preflight::config;
use gpudoctor::target::Target;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static MATRIX: Matrix = Matrix::bundled();
}

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let _ = text.parse::<Target>();
    MATRIX.with(|matrix| {
        if let Err(error) = config::parse(&text, matrix) {
            assert!(error.starts_with("line "), "{error}");
            assert!(!error.contains(char::is_control), "{error:?}");
        }
    });
});
