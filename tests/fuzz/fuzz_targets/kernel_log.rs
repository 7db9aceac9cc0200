//! Lines and records of the log of the kernel.

#![no_main]

use gpudoctor::read::proc::{kernel_log, kmsg_record, xid};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    assert!(kernel_log(&text).len() <= 200);
    let _ = kmsg_record(&text);
    let _ = xid(&text);
});
