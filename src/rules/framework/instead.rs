//! The build to take instead, as the very command for the installer and the platform. Which builds there are is the
//! matrix's knowledge; one that it does not know to run here is not proposed.

use super::{Ctx, GpuHere, sm};
use crate::facts::{Framework, Layer};
use crate::finding::{Finding, Fix};
use crate::matrix::{Machine, TorchBuild, TorchWanted};
use crate::rules::libraries::without_pythonpath;
use crate::rules::stack::in_words;
use crate::version::Version;

/// What is replaced along with torch, since it is built for one torch and one CUDA.
const COMPANIONS: &[&str] = &["torchvision", "torchaudio"];

/// Whether it worked: the list of architectures, and a kernel that starts.
const VERIFY: &str =
    "python -c \"import torch; print(torch.cuda.get_arch_list(), torch.zeros(1).cuda())\"";

/// The Python of an environment, by the name of its site-packages: `lib/python3.12/site-packages`.
fn python_of(site: &str) -> Option<Version> {
    let (_, rest) = site.rsplit_once("/python")?;
    Version::parse(rest.split('/').next()?).filter(|v| v.len() >= 2)
}

/// How the installer of a framework is called here: an environment that is not the active one is named.
fn installer<'a>(ctx: &Ctx<'_>, framework: &'a Framework) -> &'a str {
    let told = framework.installer.value().map_or("", String::as_str);
    let is_conda = told == "conda"
        || told.is_empty()
            && ctx.facts.consumer.why == "$CONDA_PREFIX"
            && framework.distribution.source().contains("/conda-meta/");
    match told {
        _ if is_conda => "conda",
        "uv" => "uv",
        _ => "pip",
    }
}

/// Words of an installer as they are typed for the environment that is examined.
fn words_for(ctx: &Ctx<'_>, words: &[&str]) -> Vec<String> {
    let consumer = &ctx.facts.consumer;
    let active =
        ["$VIRTUAL_ENV", "$CONDA_PREFIX", "python3 on PATH"].contains(&consumer.why.as_str());
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    let Some(prefix) = consumer.prefix.value().filter(|_| !active) else {
        return words;
    };
    let prefix = prefix.trim_end_matches('/');
    match words.split_first() {
        Some((first, rest)) if first == "pip" => {
            let python = [
                format!("{prefix}/bin/python"),
                "-m".to_owned(),
                "pip".to_owned(),
            ];
            python.into_iter().chain(rest.iter().cloned()).collect()
        }
        Some((first, rest)) if first == "uv" => {
            let mut words: Vec<String> = vec![first.clone()];
            words.extend(rest.iter().cloned());
            words.extend(["--python".to_owned(), prefix.to_owned()]);
            words
        }
        Some((first, rest)) if first == "conda" => {
            let mut words: Vec<String> = vec![first.clone()];
            words.extend(rest.iter().cloned());
            words.extend(["--prefix".to_owned(), prefix.to_owned()]);
            words
        }
        _ => words,
    }
}

/// Adds a command of an installer to a fix.
pub(super) fn command(ctx: &Ctx<'_>, fix: Fix, words: &[&str]) -> Fix {
    let words = words_for(ctx, words);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    fix.command(&words)
}

/// Adds `INSTALLER install WHAT ..` as pip or uv have it; conda environments have pip as well.
pub(super) fn install(ctx: &Ctx<'_>, fix: Fix, framework: &Framework, what: &[&str]) -> Fix {
    let start: &[&str] = if installer(ctx, framework) == "uv" {
        &["uv", "pip", "install"]
    } else {
        &["pip", "install"]
    };
    let words: Vec<&str> = start.iter().chain(what).copied().collect();
    // What PYTHONPATH brings would come before what is installed now.
    let fix = match without_pythonpath(ctx, &framework.site) {
        Some(first) => Fix {
            commands: [fix.commands, first.commands].concat(),
            ..fix
        },
        None => fix,
    };
    command(ctx, fix, &words)
}

/// The release of NVIDIA's own builds of torch, as its images for servers and for Jetson have them: 25.01 of
/// `2.6.0a0+ecf3bae40a.nv25.01`. No index has those, and an index's build does not go with what else is in the image.
pub(super) fn nvidia_release(torch: &Framework) -> Option<Version> {
    let (_, local) = torch.version.value()?.split_once('+')?;
    let release = local
        .split('.')
        .collect::<Vec<_>>()
        .windows(2)
        .find_map(|pair| match pair {
            [year, month] => Some(format!("{}.{month}", year.strip_prefix("nv")?)),
            _ => None,
        })?;
    Version::parse(&release)
}

/// The build of torch for these GPUs and this driver, the release that is installed or as near to it as there is.
pub(super) fn torch_build<'m>(
    ctx: &Ctx<'m>,
    torch: &Framework,
    gpus: &[GpuHere],
) -> Option<TorchBuild<'m>> {
    if nvidia_release(torch).is_some() {
        return None;
    }
    let machine = Machine::parse(ctx.facts.system.arch.value()?)?;
    let version = Version::parse(torch.version.value()?)?;
    let capabilities: Vec<_> = gpus.iter().map(|gpu| gpu.capability).collect();
    let python = python_of(&torch.site);
    ctx.matrix.torch_build_for(&TorchWanted {
        torch: &version,
        gpus: &capabilities,
        level: ctx.driver_level().map(|(level, _)| level),
        python: python.as_ref(),
        machine,
    })
}

/// The build of the release that is installed for the newest CUDA of a major version that this driver runs.
pub(super) fn torch_build_of_major<'m>(
    ctx: &Ctx<'m>,
    torch: &Framework,
    major: u32,
) -> Option<TorchBuild<'m>> {
    if nvidia_release(torch).is_some() {
        return None;
    }
    let release = ctx
        .matrix
        .torch_release(&Version::parse(torch.version.value()?)?)?;
    let level = ctx.driver_level().map(|(level, _)| level);
    let runs = |cuda: &&Version| {
        cuda.major() == major && level.is_none_or(|level| ctx.matrix.runtime_accepts(cuda, level))
    };
    let cuda = release.cudas.iter().filter(runs).max()?;
    torch_build_of(ctx, &release.version, cuda)
}

/// The build of this release for this CUDA, where the matrix knows one.
pub(super) fn torch_build_of<'m>(
    ctx: &Ctx<'m>,
    version: &Version,
    cuda: &Version,
) -> Option<TorchBuild<'m>> {
    let release = ctx.matrix.torch_release(version)?;
    let cuda = release
        .cudas
        .iter()
        .find(|known| known.major_minor() == cuda.major_minor())?;
    Some(TorchBuild {
        release,
        cuda,
        archs: ctx.matrix.torch_archs(&release.version, cuda),
    })
}

/// The fix that takes a build of torch, with the companions that are here.
pub(super) fn torch_fix(
    ctx: &Ctx<'_>,
    torch: &Framework,
    build: &TorchBuild<'_>,
    why: &str,
) -> Fix {
    let companions: Vec<&str> = COMPANIONS
        .iter()
        .copied()
        .filter(|name| ctx.framework(name).is_some())
        .collect();
    let with = if companions.is_empty() {
        String::new()
    } else {
        format!(", with {} of the same build", companions.join(" and "))
    };
    let fix = Fix::at(
        Layer::Framework,
        format!("install torch {}{with}: {why}", build.name()),
    );
    commands(ctx, fix, torch, build, &companions).verify(VERIFY)
}

/// The commands that take a build of torch. Its companions go first: an installer leaves one that is there, and it is
/// built for the other torch.
pub(super) fn commands(
    ctx: &Ctx<'_>,
    mut fix: Fix,
    torch: &Framework,
    build: &TorchBuild<'_>,
    companions: &[&str],
) -> Fix {
    let by = installer(ctx, torch);
    if by == "conda" {
        if let Some(words) = conda_words(build, companions) {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            return command(ctx, fix, &words);
        }
        let mut words = vec!["conda", "remove", "pytorch"];
        words.extend(companions);
        fix = command(ctx, fix, &words);
    } else if !companions.is_empty() {
        let start: &[&str] = if by == "uv" {
            &["uv", "pip", "uninstall"]
        } else {
            &["pip", "uninstall", "-y"]
        };
        let words: Vec<&str> = start.iter().chain(companions).copied().collect();
        fix = command(ctx, fix, &words);
    }
    let pip = if by == "uv" { "uv" } else { "pip" };
    let Some(words) = ctx.matrix.torch_install(build, pip) else {
        return fix;
    };
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    let torch_at = words.iter().position(|word| word.starts_with("torch=="));
    if let Some(at) = torch_at {
        words.splice(at + 1..=at, companions.iter().copied());
    }
    command(ctx, fix, &words)
}

/// Conda's own packages of torch: the channel `pytorch` has them up to 2.5 (page of previous versions of PyTorch); what is
/// newer comes as a wheel into a conda environment as well.
fn conda_words(build: &TorchBuild<'_>, companions: &[&str]) -> Option<Vec<String>> {
    let last = Version::parse("2.5")?;
    if Version::parse(&build.release.version.major_minor())? > last {
        return None;
    }
    let mut words = vec!["conda".to_owned(), "install".to_owned()];
    words.push(format!("pytorch=={}", build.release.version));
    words.extend(companions.iter().map(|name| (*name).to_owned()));
    words.push(format!("pytorch-cuda={}", build.cuda.major_minor()));
    words.extend(["-c", "pytorch", "-c", "nvidia"].map(str::to_owned));
    Some(words)
}

/// Adds the build to take instead of one that has nothing for these GPUs.
pub(super) fn with_build_for(
    ctx: &Ctx<'_>,
    finding: Finding,
    framework: &Framework,
    gpus: &[GpuHere],
) -> Finding {
    let mut archs: Vec<String> = gpus.iter().map(|gpu| sm(gpu.capability)).collect();
    archs.dedup();
    let archs = in_words(&archs);
    let listed = |between: &str| {
        let mut all: Vec<String> = gpus
            .iter()
            .map(|gpu| format!("{}{between}{}", gpu.capability.0, gpu.capability.1))
            .collect();
        all.dedup();
        all.join(";")
    };
    let rebuild = |summary: String| Fix::at(Layer::Framework, summary).cost("rebuild");
    match framework.name.as_str() {
        "torch" => match torch_build(ctx, framework, gpus) {
            Some(build) => {
                let source = build.archs.map(|row| row.source.clone()).unwrap_or_default();
                let fix = torch_fix(ctx, framework, &build, &format!("it has code for {archs}, and this driver runs it"));
                finding.fix(fix).source(source)
            }
            None if nvidia_release(framework).is_some() => finding.fix(image_for(ctx, framework, &archs, gpus)),
            None => finding.fix(rebuild(format!(
                "build PyTorch from source with TORCH_CUDA_ARCH_LIST=\"{}\": no build that the matrix knows has code for {archs} and runs on this driver",
                listed(".")
            ))),
        },
        "llama.cpp" => {
            let list = listed("");
            let is_python = framework.distribution.is_present();
            let mut fix = rebuild(format!("build it again with CMAKE_CUDA_ARCHITECTURES={list}, or take a release built for {archs}"));
            if is_python {
                fix = fix.line(format!("CMAKE_ARGS=\"-DGGML_CUDA=on -DCMAKE_CUDA_ARCHITECTURES={list}\" pip install --force-reinstall --no-cache-dir llama-cpp-python"));
            }
            fix.layer = Some(Layer::Application);
            finding.fix(fix)
        }
        "onnxruntime" => {
            let fitting = ctx.matrix.onnxruntime_releases().iter().rev().find(|row| {
                let level = ctx.driver_level().map(|(level, _)| level);
                let runs = level.is_none_or(|level| ctx.matrix.runtime_accepts(&row.cuda, level));
                runs && row.archs.as_ref().is_some_and(|archs| {
                    gpus.iter().all(|gpu| matches!(
                        ctx.matrix.code_fit(archs, gpu.capability, &row.cuda, level),
                        crate::matrix::CodeFit::Cubin(_) | crate::matrix::CodeFit::Ptx(_)
                    ))
                })
            });
            match fitting {
                Some(row) => {
                    let fix = Fix::at(Layer::Framework, format!("install onnxruntime-gpu {}, which has code for {archs}", row.version));
                    let what = format!("onnxruntime-gpu=={}", row.version);
                    finding.fix(install(ctx, fix, framework, &[&what])).source(row.source.clone())
                }
                None => finding.fix(rebuild(format!("build ONNX Runtime from source with CMAKE_CUDA_ARCHITECTURES for {archs}: no release that the matrix knows has code for it"))),
            }
        }
        name => {
            let fix = Fix::at(Layer::Framework, format!("take a release of {name} with code for {archs}, or build it on this machine with TORCH_CUDA_ARCH_LIST=\"{}\"", listed(".")));
            finding.fix(fix.cost("rebuild"))
        }
    }
}

/// NVIDIA's image to take in place of the one whose torch has nothing for these GPUs.
fn image_for(ctx: &Ctx<'_>, torch: &Framework, archs: &str, gpus: &[GpuHere]) -> Fix {
    let release = nvidia_release(torch).map_or_else(String::new, |v| v.to_string());
    // Images begin to drop a GPU with a release, and begin to have code for it with another: which side it is, the
    // capabilities tell.
    let dropped = ctx.matrix.ngc_images().iter().find(|row| {
        row.capability_min
            .is_some_and(|min| gpus.iter().any(|gpu| gpu.capability < min))
    });
    match dropped {
        Some(row) => Fix::at(
            Layer::Framework,
            format!("take an image of NVIDIA from before {}, where those for compute capability {} begin: this one is of {release}",
                row.tag,
                row.capability_min.map_or_else(String::new, |(major, minor)| format!("{major}.{minor}"))),
        ),
        None => Fix::at(
            Layer::Framework,
            format!("take a newer image of NVIDIA, whose PyTorch has code for {archs}: this one is of {release}"),
        ),
    }
    .verify(VERIFY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_nvidias_own_builds() {
        for (version, release) in [
            ("2.6.0a0+ecf3bae40a.nv25.01", Some("25.01")),
            ("2.3.0a0+ebedce2.nv24.02", Some("24.02")),
            ("2.6.0+cu124", None),
            ("2.6.0a0+ecf3bae40a", None),
        ] {
            let torch = Framework {
                version: crate::facts::Reading::present(version.to_owned(), "version.py"),
                ..Framework::default()
            };
            let read = nvidia_release(&torch).map(|v| v.as_str().to_owned());
            assert_eq!(read.as_deref(), release, "{version}");
        }
    }

    #[test]
    fn the_python_of_an_environment() {
        for (site, python) in [
            ("/opt/venv/lib/python3.12/site-packages", Some("3.12")),
            ("/usr/lib/python3/dist-packages", None),
            ("/srv", None),
        ] {
            let read = python_of(site).map(|v| v.as_str().to_owned());
            assert_eq!(read.as_deref(), python, "{site}");
        }
    }
}
