//! The two lowest libraries of `ROCm`: HIP's runtime, and the HSA runtime that it reaches the driver by.
//!
//! What a program that was named needs and the loader does not find is told where the program is judged, of the HSA runtime here.

use super::VERIFY;
use super::stack::LOWEST;
use crate::facts::{ConsumerKind, FileKind, Layer, Vendor};
use crate::finding::{Finding, Fix, Severity};
use crate::read::icd::stem;
use crate::rules::drm::Wants;
use crate::rules::{Ctx, Outcome, known};
use crate::sysroot::file_name;

/// What the consumer wants of `ROCm`, where it is the consumer's own.
fn wanted(ctx: &Ctx<'_>) -> Option<Wants> {
    let wants = ctx.wants_rocm()?;
    // A process that runs has what it needs.
    let runs = ctx.facts.consumer.kind == ConsumerKind::Process;
    (wants.own && !runs && ctx.amd_is_here() && ctx.vendor() == Some(Vendor::Amd)).then_some(wants)
}

/// What of one of the two lowest libraries is needed and found nowhere: its name, and the file that needs it.
fn lacking<'a>(ctx: &'a Ctx<'_>, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    // The consumer's own: what another one would get is none of its business.
    let torch = ctx
        .framework("torch")
        .and_then(|torch| torch.library.value());
    let hip = ctx.rocm_libraries(LOWEST[0]);
    let is_its = |user: &String| torch == Some(user) || hip.iter().any(|copy| copy.path == *user);
    let mut needs = ctx.facts.amd.lacking.items().iter();
    needs
        .find(|need| stem(&need.soname) == name && is_its(&need.user))
        .map(|need| (need.soname.as_str(), need.user.as_str(), need.by.as_str()))
}

/// A finding with what needs the library, and what there is of it.
fn missing(
    ctx: &Ctx<'_>,
    finding: Finding,
    wants: &Wants,
    (soname, user, by): (&str, &str, &str),
) -> Finding {
    let mut finding = finding
        .of(Vendor::Amd)
        .complaining(Layer::Framework)
        .component(soname)
        .subject(soname)
        .evidence("wants it", wants.what.clone(), wants.source.clone())
        .evidence(format!("{} needs", file_name(user)), soname, user)
        .evidence(soname, by, ctx.facts.amd.lacking.source());
    let others = ctx.facts.amd.libraries.items().iter();
    for other in others.filter(|copy| copy.name == stem(soname)) {
        let what = match &other.kind {
            FileKind::Library => other.soname.value().cloned(),
            FileKind::OtherArch(arch) => Some(format!("a library for {arch}")),
            _ => Some("cannot be loaded".to_owned()),
        };
        finding = finding.evidence("there is", what.unwrap_or_default(), other.path.clone());
    }
    finding
}

/// The framework needs HIP's runtime, and there is none.
pub(super) fn hip_runtime_missing(ctx: &Ctx<'_>) -> Outcome {
    let Some(wants) = wanted(ctx) else {
        return Outcome::Clean;
    };
    known!(ctx.facts.amd.lacking, "libraries of ROCm");
    let Some(need) = lacking(ctx, LOWEST[0]) else {
        return Outcome::Clean;
    };
    // A wheel of PyTorch's brings its own: what such a one has lost is told by its record.
    let Some(torch) = ctx.framework("torch").filter(|torch| {
        torch
            .version
            .value()
            .is_none_or(|version| !version.contains("+rocm"))
    }) else {
        return Outcome::Clean;
    };
    if let Some(unknown) = crate::rules::unread(ctx) {
        return unknown;
    }
    let (needed, ..) = need;
    let title = format!(
        "{} needs {needed}, HIP's runtime, which is not here",
        wants.what
    );
    let finding = Finding::new("hip-runtime-missing", Layer::Runtime, Severity::Error, title)
        .detail("A build for ROCm does not start without HIP's runtime. Wheels bring their own beside them; builds of distributions and one's own take the one of the ROCm that is installed, of the same major version.");
    let finding = missing(ctx, finding, &wants, need);
    let hip = torch.hip.value();
    let hip = hip.map_or(String::new(), |hip| format!(" {}", hip.major_minor()));
    let fix = Fix::at(
        Layer::Runtime,
        format!("install the HIP runtime of ROCm{hip} (package hip-runtime-amd of AMD), and let the loader find it"),
    )
    .cost(cost(ctx));
    let other = Fix::at(
        Layer::Framework,
        "or take a wheel of PyTorch for ROCm, which brings HIP's runtime",
    );
    Outcome::found([finding
        .source("ROCm documentation: HIP runtime; pytorch/pytorch: .ci/manywheel/build_rocm.sh")
        .fix(fix.verify(VERIFY_HIP))
        .fix(other.verify(VERIFY_HIP))])
}

/// HIP's runtime is there, and the HSA runtime that it needs is not.
pub(super) fn hsa_runtime_missing(ctx: &Ctx<'_>) -> Outcome {
    let Some(wants) = wanted(ctx) else {
        return Outcome::Clean;
    };
    // What the program needs, directly or by HIP, is a part of what was followed for it.
    let of_program = ctx.facts.application.program.value().and_then(|program| {
        let is_hsa = |soname: &str| stem(soname) == LOWEST[1];
        let direct = program.needed.iter();
        let direct = direct
            .filter(|need| is_hsa(&need.soname) && need.is_missing())
            .map(|need| {
                (
                    need.soname.as_str(),
                    program.path.as_str(),
                    need.by.as_str(),
                )
            });
        let further = program.missing.iter();
        let further = further
            .filter(|need| is_hsa(&need.soname) && need.is_library())
            .map(|need| (need.soname.as_str(), need.library.as_str(), "not found"));
        direct.chain(further).next()
    });
    if ctx.facts.application.program.is_absent() {
        known!(ctx.facts.amd.lacking, "libraries of ROCm");
    }
    let Some(need) = of_program.or_else(|| lacking(ctx, LOWEST[1])) else {
        return Outcome::Clean;
    };
    if let Some(unknown) = crate::rules::unread(ctx) {
        return unknown;
    }
    let (needed, user, _) = need;
    let title = format!(
        "{} needs {needed}, the HSA runtime, which is not here: {} finds no GPU",
        file_name(user),
        wants.what
    );
    let finding = Finding::new("hsa-runtime-missing", Layer::Driver, Severity::Error, title)
        .detail("The HSA runtime (ROCr) is the user space of AMD's driver: it opens /dev/kfd and the render nodes for HIP. Without it HIP's runtime cannot be loaded at all.");
    let finding = missing(ctx, finding, &wants, need);
    let fix = Fix::at(
        Layer::Driver,
        "install the HSA runtime of the same release of ROCm (packages hsa-rocr of AMD, libhsa-runtime64-1 of Debian); of a wheel, install it anew",
    )
    .cost(cost(ctx));
    Outcome::found([finding
        .source("ROCm documentation: ROCR-Runtime; Debian: dependencies of libamdhip64-5")
        .fix(fix.verify(VERIFY))])
}

fn cost(ctx: &Ctx<'_>) -> &'static str {
    if ctx.in_container() {
        "rebuild"
    } else {
        "root"
    }
}

/// How to see that HIP's runtime is found.
const VERIFY_HIP: &str =
    "python -c \"import torch; print(torch.version.hip, torch.cuda.device_count())\"";
