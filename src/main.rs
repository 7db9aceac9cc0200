//! gpudoctor

fn main() {
    if let Some(code) = gpudoctor::probe::vendor::child_main(std::env::args_os()) {
        std::process::exit(code)
    }
}
