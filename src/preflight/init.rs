//! The text of a `gpudoctor.toml` to begin with.

use std::fmt::Write as _;

use super::fleet::Target;
use crate::target::{Driver, Gpu};

const HEAD: &str = "\
# What runs where: `gpudoctor preflight` holds the artifacts against the targets, with no GPU and running nothing.
";

const REST: &str = r#"
[preflight]
# Globs, seen from this file; `**` is any number of folders, `!` takes away. Programs, libraries, wheels, folders, Python
# environments, and requirement and lock files: requirements.txt, uv.lock, poetry.lock, environment.yml, pixi.lock.
ARTIFACTS
# What fails the job: "error", "warning", "unknown" or "never". Without it: an error, or that something cannot be told.
# fail-on = "error"
# Findings that are known and accepted, by id or key, each with its reason and, where it is to end, the last day.
# ignore = [{ id = "runpath-to-stubs", reason = "the launcher sets the path", expires = 2026-12-31 }]
"#;

/// A file for a machine that is not here.
pub fn example(name: &str, artifacts: &[String]) -> String {
    format!(
        r#"{HEAD}
# An example: put in a machine that the artifacts are for. More of them are more tables.
[target.{name}]
# Its driver: a version or a branch. `nvidia-smi` tells it.
driver = "535"
# Its GPUs: names, architectures ("sm_80") or capabilities ("8.0").
gpus = ["A100"]
# Its distribution, or of a container its image's; or glibc = "2.35".
os = "ubuntu-22.04"
{}{}"#,
        extras(""),
        rest(artifacts)
    )
}

/// What is to be judged: these globs, which mean something, and others as examples.
fn rest(artifacts: &[String]) -> String {
    const EXAMPLES: &[&str] = &["build/**/*.so", "dist/*.whl", "requirements.txt"];
    let list = |globs: &mut dyn Iterator<Item = &str>| {
        let globs: Vec<String> = globs.map(quoted).collect();
        globs.join(", ")
    };
    let others = list(&mut EXAMPLES.iter().copied());
    let line = if artifacts.is_empty() {
        format!(
            "# Nothing was found here yet; once it is built, take those away that mean nothing.\n# artifacts = [{others}]"
        )
    } else {
        let own = list(&mut artifacts.iter().map(String::as_str));
        format!("artifacts = [{own}]\n# Others are of the form {others}.")
    };
    REST.replace("ARTIFACTS", &line)
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// What else can be said, as comments, without what is said.
fn extras(said: &str) -> String {
    [
        ("cuda", "# cuda = \"12.4\"                  # the CUDA that is installed there, or in the image\n"),
        ("arch", "# arch = \"x86_64\"                # or \"aarch64\"\n"),
        ("python", "# python = \"3.12\"                # for markers such as `python_version < \"3.13\"`\n"),
        ("container", "# container = true               # programs run in a container, and the driver is its host's\n"),
        ("provides", "# provides = [\"libnccl.so.2\"]    # what else is there\n"),
    ]
    .iter()
    .filter(|(key, _)| !said.contains(&format!("\n{key} = ")))
    .map(|(_, line)| *line)
    .collect()
}

/// A file for a machine that is known.
pub fn of_target(target: &Target, from: &str, artifacts: &[String]) -> String {
    let machine = &target.machine;
    let mut table = format!("[target.{}]\n", target.name);
    let mut line = |key: &str, value: String| {
        let _ = writeln!(table, "{key} = {value}");
    };
    match &target.target.driver {
        Some(driver @ (Driver::None | Driver::Version(_))) => {
            line("driver", quoted(&driver.to_string()));
        }
        None => line("# driver", "\"535\"".to_owned()),
    }
    if machine.gpus.is_empty() {
        line("# gpus", "[\"A100\"]".to_owned());
    } else {
        let gpus = machine.gpus.iter();
        let gpus = gpus.map(|gpu| match &gpu.asked {
            // The id is sure where a name is of several boards.
            Gpu::Pci(..) => {
                let asked = gpu.asked.to_string();
                (quoted(&asked), Some(gpu.name.clone()))
            }
            other => (quoted(&other.to_string()), None),
        });
        let (words, names): (Vec<String>, Vec<Option<String>>) = gpus.unzip();
        let names: Vec<String> = names.into_iter().flatten().collect();
        let comment = if names.is_empty() {
            String::new()
        } else {
            format!("  # {}", names.join(", ").replace(char::is_control, " "))
        };
        line("gpus", format!("[{}]{comment}", words.join(", ")));
    }
    if let Some(os) = &target.target.os {
        line("os", quoted(&os.to_string()));
    }
    if let Some(glibc) = &target.target.glibc {
        line("glibc", quoted(glibc.as_str()));
    }
    if let Some(cuda) = &target.target.cuda {
        line("cuda", quoted(cuda.as_str()));
    }
    if let Some(cudnn) = &target.target.cudnn {
        line("cudnn", quoted(cudnn.as_str()));
    }
    if let Some(arch) = &machine.arch {
        line("arch", quoted(arch));
    }
    if let Some(python) = &target.target.python {
        line("python", quoted(python.as_str()));
    }
    if machine.container {
        line("container", "true".to_owned());
    }
    if !machine.provides.is_empty() && target.target.cudnn.is_none() {
        let words: Vec<String> = machine.provides.iter().map(|p| quoted(p)).collect();
        line("provides", format!("[{}]", words.join(", ")));
    }
    let extras = extras(&table);
    format!(
        "{HEAD}\n# From {from}. More machines are more tables.\n{table}{extras}{}",
        rest(artifacts)
    )
}
