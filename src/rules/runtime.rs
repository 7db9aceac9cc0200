//! Rules whose fault lies in the runtime layer: libcudart itself, and NVRTC's builtins, which are judged with the
//! libraries. That a driver is too old for a runtime is the driver's.

use super::driver::{runtime_version, user_of};
use super::installed::Tool;
use super::{Ctx, Need, Outcome, Rule, known};
use crate::facts::{FileKind, Layer};
use crate::finding::{Finding, Fix, Severity};
use crate::version::Version;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "cuda-majors-mixed",
        layer: Layer::Runtime,
        severity: Severity::Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/cuda-majors-mixed.md"),
        check: super::libraries::cuda_majors_mixed,
    },
    Rule {
        id: "minor-version-compatibility",
        layer: Layer::Runtime,
        severity: Severity::Note,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/minor-version-compatibility.md"),
        check: minor_version_compatibility,
    },
    Rule {
        id: "nvrtc-builtins-mixed",
        layer: Layer::Runtime,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/nvrtc-builtins-mixed.md"),
        check: super::libraries::nvrtc_builtins_mixed,
    },
    Rule {
        id: "runtime-library-damaged",
        layer: Layer::Runtime,
        severity: Severity::Error,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/runtime-library-damaged.md"),
        check: runtime_library_damaged,
    },
    Rule {
        id: "runtime-version-disagrees",
        layer: Layer::Runtime,
        severity: Severity::Note,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/runtime-version-disagrees.md"),
        check: runtime_version_disagrees,
    },
];

/// A runtime of the driver's family that is newer than the driver: it runs, with one limit.
fn minor_version_compatibility(ctx: &Ctx<'_>) -> Outcome {
    let Some((level, source)) = ctx.driver_level() else {
        return Outcome::Clean;
    };
    let mut findings = Vec::new();
    for copy in ctx.consumer_runtimes() {
        let Some((version, version_source)) = runtime_version(ctx, copy) else {
            continue;
        };
        // A soname gives the major alone: nothing can be said of the minor then.
        if version.len() < 2
            || !ctx.matrix.runtime_accepts(&version, level)
            || version.cuda_level() <= level
        {
            continue;
        }
        let has = Version::from_cuda_level(level);
        let isa = ctx.matrix.ptx_isa_of_level(level);
        let limit = isa.map_or_else(
            || "PTX of the newer version".to_owned(),
            |isa| format!("PTX newer than ISA {}", isa.ptx),
        );
        let mut finding = Finding::new(
            "minor-version-compatibility",
            Layer::Runtime,
            Severity::Note,
            format!("CUDA {} ({}) runs on this driver of CUDA {has} by minor-version compatibility, except for {limit}", version.major_minor(), user_of(ctx, copy, &version)),
        )
        .component("libcudart")
        .subject(copy.path.clone())
        .detail(format!("Within one major version a newer runtime runs on an older driver. The limit: this driver does not compile {limit}, so code that ships as PTX only (or is made at run time by NVRTC or Triton of the newer version) fails with error 222."))
        .evidence("driver", format!("CUDA {has} ({level})"), source.clone())
        .evidence("CUDA runtime", version.to_string(), version_source)
        .source("CUDA Compatibility guide: minor version compatibility");
        if let Some(isa) = isa {
            finding = finding.evidence(
                "PTX that this driver takes",
                format!("up to ISA {}", isa.ptx),
                isa.source.clone(),
            );
        }
        findings.push(finding);
    }
    Outcome::found(findings)
}

/// A runtime of the consumer that is no library.
fn runtime_library_damaged(ctx: &Ctx<'_>) -> Outcome {
    let copies = known!(ctx.facts.runtime.cudart, "CUDA runtimes");
    let own = ctx.consumer_runtimes();
    let usable = own.iter().filter(|c| c.kind.is_usable()).count();
    Outcome::found(own.iter().filter(|c| copies.contains(c)).filter_map(|copy| {
        let what = match &copy.kind {
            FileKind::Empty => "is empty (0 bytes)".to_owned(),
            FileKind::Truncated => "is cut off: shorter than its own headers say".to_owned(),
            FileKind::NotElf(words) => format!("is {words}"),
            FileKind::OtherArch(arch) => format!("is for {arch}, not for this machine"),
            FileKind::DanglingLink => "is a link that leads nowhere".to_owned(),
            _ => return None,
        };
        let severity = if usable == 0 { Severity::Error } else { Severity::Warning };
        let finding = Finding::new("runtime-library-damaged", Layer::Runtime, severity, format!("the CUDA runtime {} {what}", copy.path))
            .component("libcudart")
            .subject(copy.path.clone())
            .detail("Programs that need this file fail when they start, before any driver is asked.")
            .evidence("file", what.clone(), copy.real_path.clone())
            .reading("brought by", &copy.owner);
        let owner = copy.owner.value().and_then(|owner| owner.split_once(' '));
        let fix = match owner {
            Some((name, version)) => {
                let fix = Fix::at(Layer::Runtime, format!("install {name} {version} again"));
                let dist = ctx.facts.python.installed(name);
                match dist.and_then(|dist| Tool::of(ctx, dist).install_again(name, version)) {
                    Some(command) => fix.line(command),
                    None => fix,
                }
            }
            None => Fix::at(Layer::Runtime, "install the package that brought it again"),
        };
        Some(finding.fix(fix.verify("gpudoctor")))
    }))
}

/// Name, code and package of one file tell different versions.
fn runtime_version_disagrees(ctx: &Ctx<'_>) -> Outcome {
    Outcome::found(ctx.consumer_runtimes().into_iter().filter_map(|copy| {
        let (first_source, first) = copy.versions.first()?;
        let (source, other) = copy.versions.iter().find(|(_, v)| v.major() != first.major() || v.minor() != first.minor())?;
        Some(
            Finding::new("runtime-version-disagrees", Layer::Runtime, Severity::Note, format!("{} is CUDA {first} by one source and {other} by another", copy.path))
                .component("libcudart")
                .subject(copy.path.clone())
                .detail("The file is not the one that its name or package promises: it was replaced, or two packages own it.")
                .evidence("version", first.to_string(), first_source.clone())
                .evidence("version", other.to_string(), source.clone())
                .fix(Fix::at(Layer::Runtime, "install the package that owns it again").verify("gpudoctor")),
        )
    }))
}
