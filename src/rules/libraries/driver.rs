//! A library that was built for a CUDA major version which the driver does not run. NCCL, cuDNN and TensorRT each have a
//! runtime of their own inside, which asks the driver the same question as any other.

use super::gpu::cuda_major;
use super::{by, out_of_the_way, owner, with_command};
use crate::facts::{Layer, LibraryFile, Reading};
use crate::finding::{Finding, Fix, Severity};
use crate::read::requirement::Requirement;
use crate::rules::driver::runtime_version;
use crate::rules::installed::Tool;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::file_name;
use crate::version::Version;

/// What is told once for a library of several files, by the names of those that the question is asked of.
const ASKED: &[(&str, &str)] = &[
    ("libcudnn_graph", "cuDNN"),
    ("libnccl", "NCCL"),
    ("libnvinfer", "TensorRT"),
];

pub(super) fn library_newer_than_driver(ctx: &Ctx<'_>) -> Outcome {
    let _ = known!(ctx.facts.libraries.copies, "copies of libraries");
    let newer: Vec<(&LibraryFile, &str, u32)> = ctx
        .facts
        .libraries
        .in_use()
        .filter_map(|copy| {
            let (_, name) = ASKED.iter().find(|(file, _)| *file == copy.name)?;
            Some((copy, *name, cuda_major(copy)?))
        })
        .collect();
    if newer.is_empty() {
        return Outcome::Clean;
    }
    if let Reading::Unreadable { reason } = &ctx.facts.driver.libcuda {
        return Outcome::unknown(format!("libcuda: {reason}"));
    }
    // No real libcuda: that is another fault, or a machine without a driver.
    let Some(libcuda) = ctx.real_libcuda() else {
        return Outcome::Clean;
    };
    let Some((level, source)) = ctx.driver_level() else {
        return Outcome::unknown(format!("the CUDA version of {}", libcuda.path));
    };
    // Where the consumer's own runtime is too new as well, the driver is at fault, and this says nothing more.
    let accepts = |version: &Version| ctx.matrix.runtime_accepts(version, level);
    let driver_is_at_fault = ctx
        .consumer_runtimes()
        .iter()
        .filter_map(|copy| runtime_version(ctx, copy))
        .any(|(version, _)| !accepts(&version));
    if driver_is_at_fault {
        return Outcome::Clean;
    }
    let findings = newer.into_iter().filter_map(|(copy, name, major)| {
        let cuda = Version::from_cuda_level(major.saturating_mul(1000));
        (!accepts(&cuda)).then(|| finding(ctx, copy, name, &cuda, level, &source))
    });
    Outcome::found(findings.collect::<Vec<_>>())
}

fn finding(
    ctx: &Ctx<'_>,
    copy: &LibraryFile,
    name: &str,
    cuda: &Version,
    level: u32,
    level_source: &str,
) -> Finding {
    let has = Version::from_cuda_level(level);
    let version = copy
        .version
        .value()
        .map_or_else(String::new, |version| format!(" {version}"));
    let minimum = ctx.matrix.minimum_driver(cuda);
    let needs = minimum
        .as_ref()
        .and_then(|minimum| minimum.version.as_ref())
        .map_or_else(|| format!("CUDA {cuda}"), ToString::to_string);
    let link = ctx
        .facts
        .libraries
        .links
        .items()
        .iter()
        .find(|link| link.got.as_deref() == Some(&copy.path));
    let user = copy.used_by.as_deref().map_or("", file_name);
    let mut finding = Finding::new(
        "library-newer-than-driver",
        Layer::Libraries,
        Severity::Error,
        format!(
            "{name}{version} is a build for CUDA {}, and the driver runs CUDA {has}: it needs {needs} or newer",
            cuda.major()
        ),
    )
    .complaining(Layer::Libraries)
    .component(file_name(&copy.path))
    .subject(copy.path.clone())
    .detail("The library has a CUDA runtime of its own inside, which asks the driver for its major version: its first call answers error 35 (\"driver version is insufficient\"), while everything else runs.")
    .evidence(name, version.trim(), copy.version.source())
    .evidence(
        "built for",
        match &copy.cuda {
            Some(cuda) => format!("CUDA {cuda}"),
            None => format!("CUDA {}", cuda.major()),
        },
        match (&copy.cuda, copy.owner.value()) {
            (None, Some(owner)) => owner.clone(),
            _ => copy.path.clone(),
        },
    )
    .evidence("driver", format!("CUDA {has} ({level})"), level_source);
    if let Some(link) = link {
        finding = finding.evidence(
            "used by",
            if user.is_empty() {
                &link.consumer
            } else {
                user
            },
            format!("{}, by {}", copy.path, by(link)),
        );
    }
    if let Some(minimum) = &minimum {
        finding = finding
            .evidence(
                "needed",
                format!("driver level {}, that is {needs} or newer", minimum.level),
                minimum.source.clone(),
            )
            .source(minimum.source.clone());
    }
    if let Some(fix) = link
        .filter(|link| link.beside.is_some())
        .and_then(|link| out_of_the_way(ctx, link))
    {
        // What the environment brought under that name is used then, and judged by the next run.
        return finding.fix(fix.verify("gpudoctor"));
    }
    finding
        .fix(other_build(ctx, copy, name, &has).verify("gpudoctor"))
        .fix(
            Fix::at(
                Layer::Driver,
                format!("upgrade the driver to {needs} or newer"),
            )
            .cost("root, reboot")
            .second("changes the host for one library")
            .verify("gpudoctor"),
        )
}

/// The build for the driver's CUDA: by the command where the environment brought the library under its CUDA's name.
fn other_build(ctx: &Ctx<'_>, copy: &LibraryFile, name: &str, has: &Version) -> Fix {
    let fix = Fix::at(
        Layer::Libraries,
        format!("take a build of {name} for CUDA {}", has.major()),
    );
    let command = owner(ctx, &copy.path).and_then(|(wrong, _)| {
        let (stem, _) = wrong.rsplit_once("-cu")?;
        let tool = Tool::of(ctx, ctx.facts.python.installed(wrong)?);
        // The two own the same file: the wrong one goes first, and what it took with it comes back with the other.
        let right = format!("{stem}-cu{}", has.major());
        let install = match ctx.facts.python.installed(&right) {
            Some(other) => tool.install_again(&right, &other.version),
            None => tool.install(&asked_for(ctx, &right).unwrap_or(right), false),
        }?;
        Some((tool.uninstall(&[wrong])?, install))
    });
    match command {
        Some((remove, install)) => with_command(fix.line(remove), Some(install)),
        None => fix,
    }
}

/// The requirement by which something that is installed asks for a distribution: `nvidia-nccl-cu12==2.21.5`.
fn asked_for(ctx: &Ctx<'_>, name: &str) -> Option<String> {
    let requirements = ctx.facts.python.distributions.items().iter();
    let mut requirements = requirements
        .flat_map(|dist| &dist.requires)
        .filter_map(|line| Requirement::parse(line));
    let required = requirements.find(|required| required.name == name)?;
    Some(format!("{name}{}", required.versions().replace(' ', "")))
}
