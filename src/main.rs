//! gpudoctor
fn main() {}
