//! Rules about the drivers that the loaders of Vulkan and `OpenCL` are told of: whether the library is there, and whether it is one
//! for the GPU that is here.
//!
//! A machine that computes by CUDA or `ROCm` needs neither: where nothing asks for them, what lacks is a note at most.

use super::stack::in_words;
use super::{Ctx, Need, Outcome, Rule};
use crate::facts::{FileKind, Icd, Layer, PciDevice, Reading, Vendor};
use crate::finding::Severity::Warning;
use crate::finding::{Finding, Fix, Severity};
use crate::matrix::{Confidence, IcdRow};
use crate::read::icd::stem;
use crate::sysroot::file_name;

pub(super) static RULES: &[Rule] = &[
    Rule {
        id: "icd-library-missing",
        layer: Layer::Driver,
        severity: Warning,
        need: Need::Detail,
        follows_from: &[],
        page: include_str!("pages/icd-library-missing.md"),
        check: library_missing,
    },
    Rule {
        id: "only-cpu-device",
        layer: Layer::Driver,
        severity: Warning,
        need: Need::Detail,
        follows_from: &["icd-library-missing"],
        page: include_str!("pages/only-cpu-device.md"),
        check: only_cpu_device,
    },
];

/// A programming interface whose loader is told of drivers by files.
struct Api {
    /// As the matrix has it.
    id: &'static str,
    name: &'static str,
    /// What its loader's file is called.
    loader: &'static str,
    /// Distributions of Python that are of use with it alone.
    users: &'static [&'static str],
    /// How to see what it has.
    verify: &'static str,
}

const VULKAN: Api = Api {
    id: "vulkan",
    name: "Vulkan",
    loader: "libvulkan.so",
    users: &[],
    verify: "vulkaninfo --summary",
};
const OPENCL: Api = Api {
    id: "opencl",
    name: "OpenCL",
    loader: "libOpenCL.so",
    users: &["pyopencl"],
    verify: "clinfo -l",
};
const APIS: [&Api; 2] = [&VULKAN, &OPENCL];

/// A driver, with what the matrix knows of it.
type Known<'a> = (&'a Icd, Option<&'a IcdRow>);

impl Api {
    /// The drivers of 64 bits that its loader is told of.
    fn drivers<'a>(&self, ctx: &'a Ctx<'_>) -> Result<Vec<Known<'a>>, String> {
        let all = match self.id {
            "vulkan" => &ctx.facts.icd.vulkan,
            _ => &ctx.facts.icd.opencl,
        };
        match all {
            Reading::Unreadable { reason } => Err(format!("drivers of {}: {reason}", self.name)),
            all => Ok(all
                .items()
                .iter()
                .filter(|icd| !icd.for_32_bit)
                .map(|icd| {
                    let library = icd.library.value();
                    (icd, library.and_then(|name| ctx.matrix.icd(stem(name))))
                })
                .collect()),
        }
    }

    /// What asks for it: the program or process that was named, or a distribution of the environment.
    fn wanted(&self, ctx: &Ctx<'_>) -> Option<(String, String)> {
        let application = &ctx.facts.application;
        let is_loader = |path: &str| file_name(path).starts_with(self.loader);
        if let Some(program) = application.program.value()
            && let Some(needed) = program.needed.iter().find(|n| is_loader(&n.soname))
        {
            let what = format!("{}, which needs {}", ctx.facts.consumer.what, needed.soname);
            return Some((what, program.path.clone()));
        }
        if let Some(process) = application.process.value()
            && let Some(mapped) = process.mapped.items().iter().find(|m| is_loader(&m.path))
        {
            let what = format!("{}, which has it mapped", ctx.facts.consumer.what);
            return Some((what, mapped.path.clone()));
        }
        let mut distributions = ctx.facts.python.distributions.items().iter();
        let user = distributions.find(|d| self.users.contains(&d.name.as_str()))?;
        Some((
            format!("{} {}", user.name, user.version),
            user.metadata.clone(),
        ))
    }

    /// How bad it is that a GPU is not to be had by it: nothing where the consumer computes by another stack.
    fn severity(&self, ctx: &Ctx<'_>) -> Option<Severity> {
        if self.wanted(ctx).is_some() {
            return Some(Warning);
        }
        let application = &ctx.facts.application;
        let another = !ctx.frameworks().is_empty()
            || application.program.is_present()
            || application.process.is_present();
        (!another && !ctx.in_container()).then_some(Severity::Note)
    }

    /// How a driver for this GPU gets here, by the row of one that drives it.
    fn fix(&self, ctx: &Ctx<'_>, gpu: &PciDevice) -> Fix {
        let rows = || self.rows(ctx, gpu);
        let vendor = gpu.gpu_of();
        let name = vendor.map_or("the GPU's maker", Vendor::name);
        if ctx.in_container() {
            let what = match (vendor, self.id) {
                (Some(Vendor::Nvidia), "vulkan") => "start the container with graphics among NVIDIA_DRIVER_CAPABILITIES: the driver's Vulkan part is mounted in with it".to_owned(),
                (Some(Vendor::Nvidia), _) => "let the image have /etc/OpenCL/vendors/nvidia.icd, whose one line is libnvidia-opencl.so.1: the library is mounted in with the driver".to_owned(),
                _ => format!("install {name}'s {} driver in the image", self.name),
            };
            return Fix::at(Layer::Container, what)
                .cost("rebuild")
                .verify(self.verify);
        }
        let os = ctx.facts.system.os.value().map(|os| os.id.as_str());
        let package = rows()
            .filter(|row| row.confidence == Confidence::Verified)
            .find_map(|row| row.debian.as_deref())
            .filter(|_| matches!(os, Some("debian" | "ubuntu")));
        let fix = match (package, vendor) {
            (Some(package), _) => Fix::at(
                Layer::Driver,
                format!("install {name}'s {} driver", self.name),
            )
            .command(&["sudo", "apt-get", "install", "--reinstall", package]),
            (None, Some(Vendor::Nvidia)) => Fix::at(
                Layer::Driver,
                format!(
                    "install the {} part of NVIDIA's driver, of the very version of the rest",
                    self.name
                ),
            ),
            (None, _) => Fix::at(
                Layer::Driver,
                format!(
                    "install the package with {name}'s {} driver anew",
                    self.name
                ),
            ),
        };
        fix.cost("root").verify(self.verify)
    }

    /// The drivers that the matrix knows for a GPU, by who holds it in the kernel.
    fn rows<'a>(&self, ctx: &'a Ctx<'_>, gpu: &PciDevice) -> impl Iterator<Item = &'a IcdRow> {
        let id = self.id;
        let (vendor, holder) = (gpu.gpu_of(), gpu.driver.value().cloned());
        ctx.matrix.icds().iter().filter(move |row| {
            row.api == id
                && row.vendor == vendor
                && holder
                    .as_ref()
                    .is_some_and(|holder| row.kernel_drivers.contains(holder))
        })
    }
}

/// The GPUs that a driver of this interface may drive here: held by the kernel driver that it works with, and with a node to open.
fn gpus<'a>(ctx: &'a Ctx<'_>, api: &Api) -> Vec<&'a PciDevice> {
    let pci = ctx.facts.hardware.pci.items().iter();
    pci.filter(|gpu| api.rows(ctx, gpu).next().is_some())
        .filter(|gpu| {
            let nvidia = gpu.driver.value().is_some_and(|name| name == "nvidia");
            if nvidia {
                let nodes = ctx.facts.driver.nodes.items();
                nodes
                    .iter()
                    .any(|node| node.path.starts_with("/dev/nvidia"))
            } else {
                ctx.render_of(gpu)
                    .is_some_and(|render| render.node.is_present())
            }
        })
        .collect()
}

/// What a driver's file leads to, in words.
fn led_to(icd: &Icd) -> String {
    match (&icd.file, &icd.kind) {
        (Reading::Present { value, .. }, FileKind::OtherArch(arch)) => {
            format!("{value} is for {arch}")
        }
        (Reading::Present { value, .. }, FileKind::Empty) => format!("{value} is empty"),
        (Reading::Present { value, .. }, FileKind::Truncated) => format!("{value} is cut short"),
        (Reading::Present { value, .. }, FileKind::NotElf(what)) => format!("{value} is {what}"),
        (Reading::Present { value, .. }, _) => format!("{value} cannot be loaded"),
        _ => "no such file".to_owned(),
    }
}

/// Every driver for a GPU that is here names a library that cannot be loaded.
fn library_missing(ctx: &Ctx<'_>) -> Outcome {
    let mut findings: Vec<Finding> = Vec::new();
    let mut unknown = Vec::new();
    for api in APIS {
        let drivers = match api.drivers(ctx) {
            Ok(drivers) => drivers,
            Err(reason) => {
                unknown.push(reason);
                continue;
            }
        };
        if api.severity(ctx).is_none() {
            continue;
        }
        for gpu in gpus(ctx, api) {
            let of_gpu: Vec<&Icd> = drivers
                .iter()
                .filter(|(_, row)| {
                    row.is_some_and(|row| api.rows(ctx, gpu).any(|r| r.library == row.library))
                })
                .map(|(icd, _)| *icd)
                .collect();
            let Some(first) = of_gpu.first() else {
                continue;
            };
            let known = findings
                .iter()
                .any(|finding| finding.subjects.first() == Some(&first.path));
            if known || of_gpu.iter().any(|icd| icd.loads() != Some(false)) {
                continue;
            }
            findings.push(broken(ctx, api, gpu, &of_gpu));
        }
    }
    if findings.is_empty() && !unknown.is_empty() {
        return Outcome::Unknown { missing: unknown };
    }
    Outcome::found(findings)
}

fn broken(ctx: &Ctx<'_>, api: &Api, gpu: &PciDevice, icds: &[&Icd]) -> Finding {
    let first = icds.first();
    let path = first.map_or("", |icd| icd.path.as_str());
    let library = first.and_then(|icd| icd.library.value());
    let library = library.map_or("", |name| file_name(name));
    let why = match first.map(|icd| (&icd.file, &icd.kind)) {
        Some((Reading::Present { .. }, FileKind::OtherArch(arch))) => {
            format!("which is for {arch}")
        }
        Some((Reading::Present { .. }, _)) => "which cannot be loaded".to_owned(),
        _ => "which is not there".to_owned(),
    };
    let vendor = gpu.gpu_of().unwrap_or(Vendor::Nvidia);
    let mut finding = Finding::new(
        "icd-library-missing",
        Layer::Driver,
        Warning,
        format!(
            "{} names {library}, {why}: {} does not have {}",
            file_name(path),
            api.name,
            ctx.name_of(gpu)
        ),
    )
    .of(vendor)
    .complaining(Layer::Runtime)
    .component(library)
    .subject(path)
    .detail(format!(
        "{}'s loader reads such files and passes over a driver that it cannot load, without a word: the GPU is not listed.",
        api.name
    ));
    for icd in icds {
        finding = finding.evidence(
            format!("{} names", icd.path),
            icd.library.value().cloned().unwrap_or_default(),
            icd.named_by.clone().unwrap_or_else(|| icd.path.clone()),
        );
        finding = finding.evidence("which leads to", led_to(icd), icd.file.source());
    }
    with_gpu_and_want(ctx, api, gpu, finding).fix(api.fix(ctx, gpu))
}

fn with_gpu_and_want(ctx: &Ctx<'_>, api: &Api, gpu: &PciDevice, finding: Finding) -> Finding {
    let holder = gpu.driver.value().cloned().unwrap_or_default();
    let finding = finding.evidence(
        format!("{} at {}", ctx.name_of(gpu), gpu.address),
        format!("bound to {holder}"),
        "/sys/bus/pci/devices",
    );
    match api.wanted(ctx) {
        Some((what, source)) => finding.evidence("wants it", what, source),
        None => finding,
    }
}

/// The only driver that can be loaded computes on the processor, beside a GPU.
fn only_cpu_device(ctx: &Ctx<'_>) -> Outcome {
    let mut findings = Vec::new();
    let mut unknown = Vec::new();
    for api in APIS {
        match only_cpu(ctx, api) {
            Ok(Some(finding)) => findings.push(finding),
            Ok(None) => {}
            Err(reason) => unknown.push(reason),
        }
    }
    if findings.is_empty() && !unknown.is_empty() {
        return Outcome::Unknown { missing: unknown };
    }
    Outcome::found(findings)
}

fn only_cpu(ctx: &Ctx<'_>, api: &Api) -> Result<Option<Finding>, String> {
    let drivers = api.drivers(ctx)?;
    let Some(severity) = api.severity(ctx) else {
        return Ok(None);
    };
    if drivers.iter().any(|(icd, _)| icd.loads().is_none()) {
        return Ok(None);
    }
    let mut loaded = drivers
        .iter()
        .filter(|(icd, _)| icd.loads() == Some(true))
        .peekable();
    let gpus = gpus(ctx, api);
    let Some(gpu) = gpus.first().filter(|_| loaded.peek().is_some()) else {
        return Ok(None);
    };
    let mut on_cpu: Vec<&Icd> = Vec::new();
    for (icd, row) in loaded {
        match row {
            // Somebody chose the processor.
            Some(row) if row.cpu && icd.named_by.is_some() => return Ok(None),
            Some(row) if row.cpu => on_cpu.push(icd),
            // For GPUs that are not here, or that another kernel driver holds.
            Some(row) if row.vendor.is_some() => {
                let drives =
                    |gpu: &&PciDevice| api.rows(ctx, gpu).any(|r| r.library == row.library);
                if gpus.iter().any(drives) {
                    return Ok(None);
                }
            }
            // It may drive any.
            _ => return Ok(None),
        }
    }
    if on_cpu.is_empty() {
        return Ok(None);
    }
    let names: Vec<String> = gpus.iter().map(|gpu| ctx.name_of(gpu)).collect();
    let libraries: Vec<String> = on_cpu
        .iter()
        .filter_map(|icd| icd.library.value())
        .map(|name| stem(name).to_owned())
        .collect();
    let libraries = in_words(&libraries);
    let mut finding = Finding::new(
        "only-cpu-device",
        Layer::Driver,
        severity,
        format!(
            "{}'s only device is the processor ({libraries}): no driver of it is here for {}",
            api.name,
            in_words(&names)
        ),
    )
    .of(gpu.gpu_of().unwrap_or(Vendor::Nvidia))
    .complaining(Layer::Application)
    .component(libraries)
    .subject(api.id)
    .detail("A program that takes the first device takes the processor, without a word, and is many times slower than on the GPU.");
    for icd in &on_cpu {
        finding = finding.evidence(
            format!("{} names", icd.path),
            icd.library.value().cloned().unwrap_or_default(),
            icd.file.source(),
        );
    }
    Ok(Some(
        with_gpu_and_want(ctx, api, gpu, finding).fix(api.fix(ctx, gpu)),
    ))
}
